//! What a model wants of each VF of this machine, joined once with where the VF is and what is known of it.

use std::collections::{BTreeSet, HashMap};

use indexmap::IndexMap;
use penstock_model::{
    Bdf, Diagnostic, Diagnostics, Function, GuestName, Inventory, Mac, Model, Nic, NicName, Path,
    VfAttribute, VfIndex, VfKey, VfSettings,
    inventory::{Pf, PresentVf, Sriov, Vf},
};

use crate::{
    drivers::{self, PfDriver},
    error::error,
    eswitch::{self, EswitchChange},
};

/// A NIC of the model on this machine.
pub struct WantedNic<'a> {
    pub name: &'a NicName,
    pub nic: &'a Nic,
    pub pf: &'a Pf,
    /// `None` for a NIC without VFs whose PF's driver is not known.
    pub driver: Option<&'static PfDriver>,
    /// The guest that owns the PF, and how.
    pub owner: Option<(&'a GuestName, &'a Function)>,
    pub vfs: Vec<WantedVf<'a>>,
}

/// A VF that the model wants.
pub struct WantedVf<'a> {
    pub index: VfIndex,
    pub found: &'a Vf,
    /// All that is asked for; the MAC always is, but of a VF that somebody else manages, whose MAC is the one that it was
    /// given, as far as known.
    pub settings: VfSettings,
    /// Whether the MAC is derived rather than given.
    pub derived: bool,
    /// The guest that owns it, or whose NIC it is the uplink of.
    pub owner: Option<&'a GuestName>,
    /// Whether it stays on the host as an uplink.
    pub is_uplink: bool,
    pub best_effort: &'a BTreeSet<String>,
}

/// An uplink without what it needs would lose frames in silence.
static NOTHING: BTreeSet<String> = BTreeSet::new();

impl WantedNic<'_> {
    pub fn sriov(&self) -> Option<&Sriov> {
        self.pf.sriov.as_ref()
    }

    /// Whether the number of VFs changes, or the mode of their switch, so that all of them are new.
    pub fn remakes(&self) -> bool {
        let counts = |sriov: &Sriov| sriov.num_vfs != self.nic.vfs && !self.nic.externally_managed;
        let has_some = |sriov: &Sriov| sriov.num_vfs > 0;
        self.sriov().is_some_and(counts)
            || self.eswitch_change().is_some() && self.sriov().is_some_and(has_some)
    }

    /// What changes of the mode of its embedded switch.
    pub fn eswitch_change(&self) -> Option<EswitchChange> {
        eswitch::change(self.nic, self.pf)
    }

    /// What is known of a VF that is left in being; `None` when it is made anew.
    pub fn present<'v>(&self, vf: &WantedVf<'v>) -> Option<&'v PresentVf> {
        if self.remakes() { None } else { vf.found.present.as_ref() }
    }
}

impl WantedVf<'_> {
    /// Whether the model lets `attribute` be unsupported: all the words by which it was asked for are best effort.
    pub fn may_fail(&self, attribute: &VfAttribute) -> bool {
        words(attribute, &self.settings).iter().all(|word| self.best_effort.contains(*word))
    }
}

/// The model's words for what one attribute carries, as far as they were used.
pub fn words(attribute: &VfAttribute, settings: &VfSettings) -> Vec<&'static str> {
    let keys = attribute.values().into_iter().map(|(key, _)| key);
    // What has one word was asked for by it, if only by the rule that derives a MAC address.
    let is_only = attribute.kind().keys().len() == 1;
    keys.filter(|key| is_only || settings.get(*key).is_some()).map(VfKey::name).collect()
}

/// Joins model and machine.
///
/// # Errors
///
/// VFs whose PF has a driver that is not known, or no known MAC to derive theirs from; two functions with one MAC.
pub fn wanted<'a>(
    model: &'a Model,
    inventory: &'a Inventory,
    nics: &IndexMap<NicName, Bdf>,
    running: &HashMap<Bdf, &GuestName>,
) -> Result<Vec<WantedNic<'a>>, Diagnostics> {
    let pfs: HashMap<Bdf, &Pf> = inventory.pfs.iter().map(|pf| (pf.bdf, pf)).collect();
    let mut messages = Vec::new();
    let mut all: Vec<WantedNic<'a>> = Vec::with_capacity(nics.len());
    for (name, nic) in &model.nics {
        let pf = pfs[&nics[name]];
        let driver = drivers::of(pf);
        if driver.is_none() && nic.vfs > 0 {
            messages.push(unknown_driver(name, pf));
        }
        let vfs = pf.sriov.iter().flat_map(|sriov| &sriov.vfs).take(usize::from(nic.vfs));
        let vfs = vfs
            .map(|found| WantedVf {
                index: found.index,
                found,
                settings: nic.vf_defaults.clone(),
                derived: false,
                owner: None,
                is_uplink: false,
                best_effort: &nic.best_effort,
            })
            .collect();
        all.push(WantedNic { name, nic, pf, driver, owner: None, vfs });
    }

    // Where each function's owner names it, for messages.
    let mut places: HashMap<(usize, Option<VfIndex>), Path> = HashMap::new();
    for (guest, owner) in &model.guests {
        for (position, function) in owner.functions.iter().enumerate() {
            let Some(nic) = model.nics.get_index_of(&function.name.nic) else {
                continue;
            };
            let place = Path::of(["guests", guest.as_str(), "functions"]).join(position);
            places.insert((nic, function.name.vf), place);
            match function.name.vf {
                None => all[nic].owner = Some((guest, function)),
                Some(index) => {
                    if let Some(vf) = all[nic].vfs.get_mut(usize::from(index.get())) {
                        vf.settings = function.settings.clone();
                        vf.owner = Some(guest);
                        vf.best_effort = &function.best_effort;
                    }
                }
            }
        }
    }
    for uplink in model.uplink_vfs() {
        let Some(nic) = model.nics.get_index_of(&uplink.function.nic) else { continue };
        let place = Path::of(["guests", uplink.guest.as_str(), "nics", uplink.nic.as_str(), "uplink"]);
        places.insert((nic, uplink.function.vf), place);
        let index = uplink.function.vf.map(|vf| usize::from(vf.get()));
        if let Some(vf) = index.and_then(|index| all[nic].vfs.get_mut(index)) {
            vf.settings = uplink.settings.clone();
            vf.owner = Some(uplink.guest);
            vf.is_uplink = true;
            vf.best_effort = &NOTHING;
        }
    }
    let place = |nic: usize, vf: Option<VfIndex>| {
        let of_nic = || Path::of(["nics", model.nics.get_index(nic).map_or("", |(name, _)| name.as_str())]);
        places.get(&(nic, vf)).cloned().unwrap_or_else(of_nic)
    };
    for (position, nic) in all.iter_mut().enumerate() {
        let seen = !running.contains_key(&nic.pf.bdf);
        derive(nic, seen, |vf| place(position, vf), &mut messages);
    }
    collisions(&all, place, &mut messages);
    if messages.is_empty() { Ok(all) } else { Err(Diagnostics(messages)) }
}

fn unknown_driver(name: &NicName, pf: &Pf) -> Diagnostic {
    let path = Path::of(["nics", name.as_str(), "match"]);
    let known: Vec<&str> = drivers::names().collect();
    match &pf.driver {
        Some(driver) => error(
            path,
            format!("{name} is {} with driver {driver}, whose VF driver is not known", pf.bdf),
            Some(format!("the PF drivers known are {}", known.join(", "))),
        ),
        None => error(
            path,
            format!("{name} is {}, which has no driver, so it can have no VFs", pf.bdf),
            Some("bind its network driver first".to_owned()),
        ),
    }
}

/// Derives the MACs that are not given. A PF whose interface is inside a running guest (not `seen`) may have no MAC
/// that could be read: then its VFs' attributes cannot be set anyway. One without an interface is reported as such.
fn derive(
    nic: &mut WantedNic<'_>,
    seen: bool,
    place: impl Fn(Option<VfIndex>) -> Path,
    messages: &mut Vec<Diagnostic>,
) {
    if nic.nic.externally_managed {
        for vf in &mut nic.vfs {
            vf.settings.mac = vf.settings.mac.or_else(|| vf.found.given_mac());
        }
        return;
    }
    let Some(pf_mac) = nic.pf.permanent_mac.or(nic.nic.matching.mac) else {
        if !seen || nic.pf.interface.is_none() {
            return;
        }
        let lacking = nic.vfs.iter().find(|vf| vf.settings.mac.is_none());
        messages.extend(lacking.map(|vf| {
            error(
                place(Some(vf.index)),
                format!(
                    "{}#{} needs a MAC, and none can be derived: {} has no known one",
                    nic.name, vf.index, nic.pf.bdf
                ),
                Some("give it a mac, and every other VF of this NIC too".to_owned()),
            )
        }));
        return;
    };
    for vf in &mut nic.vfs {
        vf.derived = vf.settings.mac.is_none();
        vf.settings.mac.get_or_insert_with(|| Mac::derived(pf_mac, vf.index));
    }
}

/// Two functions with one MAC: a given one that meets a derived one or a PF's, which the file alone does not show.
fn collisions(
    nics: &[WantedNic<'_>],
    place: impl Fn(usize, Option<VfIndex>) -> Path,
    messages: &mut Vec<Diagnostic>,
) {
    let mut seen: HashMap<Mac, String> = HashMap::new();
    let mut note = |nic: usize, vf: Option<VfIndex>, mac: Mac| {
        let name = nics[nic].name;
        let function = vf.map_or_else(|| name.to_string(), |index| format!("{name}#{index}"));
        if let Some(other) = seen.get(&mac) {
            messages.push(error(
                place(nic, vf),
                format!("{function} and {other} would both have the MAC {mac}"),
                Some("give one of them another mac".to_owned()),
            ));
        } else {
            seen.insert(mac, function);
        }
    };
    for (index, nic) in nics.iter().enumerate() {
        let given = nic.owner.and_then(|(_, function)| function.settings.mac);
        if let Some(mac) = given.or(nic.pf.permanent_mac) {
            note(index, None, mac);
        }
    }
    for (index, nic) in nics.iter().enumerate() {
        for vf in &nic.vfs {
            if let Some(mac) = vf.settings.mac {
                note(index, Some(vf.index), mac);
            }
        }
    }
}
