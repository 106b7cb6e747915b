//! Attributes of which it was seen before, or is known from its source, that the PF's driver cannot set them: refused before
//! anything is touched, or left out where the model allows it.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use penstock_model::{Path, VfAttribute, VfIndex, inventory::Trial};

use crate::{
    error::error,
    eswitch,
    planner::{Planner, vf_list},
    wanted::{WantedNic, WantedVf, words},
};

/// What the driver of one NIC is known not to do, of what the model asks for.
#[derive(Default)]
pub struct UnsupportedAttributes<'a> {
    /// By where the model says it and in which word.
    required: IndexMap<(Path, &'static str), (Lack<'a>, Vec<VfIndex>)>,
    left_out: BTreeMap<&'static str, (Lack<'a>, Vec<VfIndex>)>,
}

/// How it is known that a driver does not do something.
#[derive(Clone, Copy)]
enum Lack<'a> {
    /// It was tried.
    Tried(&'a Trial),
    /// Its source says so, of the mode that the embedded switch is in then.
    InThisMode(&'static str),
}

impl<'a> UnsupportedAttributes<'a> {
    /// Whether `attribute` of `vf` is known to be out of reach, which is noted.
    pub fn holds(
        &mut self,
        planner: &Planner<'a>,
        nic: &WantedNic<'_>,
        vf: &WantedVf<'_>,
        attribute: &VfAttribute,
    ) -> bool {
        // Every VF is given a MAC, asked for or not; a driver that has no call for that is `unsupported`'s.
        if matches!(attribute, VfAttribute::Mac(_)) {
            return false;
        }
        let off = eswitch::off_in_switchdev(nic, attribute);
        let known = planner.inventory.capabilities.get(&nic.pf.bdf);
        let tried = known.and_then(|known| known.lack_of(attribute)).map(Lack::Tried);
        let lack = off.or_else(|| eswitch::refused(nic, attribute)).map(Lack::InThisMode).or(tried);
        let Some(lack) = lack else { return false };
        let may_fail = off.is_some() || vf.may_fail(attribute);
        for word in words(attribute, &vf.settings) {
            let (_, vfs) = match may_fail {
                true => self.left_out.entry(word).or_insert_with(|| (lack, Vec::new())),
                false => {
                    let key = (place(planner, nic, vf, attribute, word), word);
                    self.required.entry(key).or_insert_with(|| (lack, Vec::new()))
                }
            };
            vfs.push(vf.index);
        }
        true
    }

    /// Says what was found.
    pub fn tell(self, planner: &mut Planner<'_>, nic: &WantedNic<'_>) {
        let driver = nic.pf.driver.as_deref().unwrap_or("none");
        for (word, (lack, vfs)) in self.left_out {
            let who = vf_list(nic.name, &vfs);
            let why = match lack {
                Lack::Tried(trial) => format!("driver {driver} cannot set it ({trial})"),
                Lack::InThisMode(why) => format!("driver {driver} cannot set it: {why}"),
            };
            planner.note(format!("{word} of {who} is left out: {why}"));
        }
        for ((path, word), (lack, vfs)) in self.required {
            let who = vf_list(nic.name, &vfs);
            let does_without = format!("`best_effort: [{word}]` at the NIC or the function does without it");
            let (text, hint) = match lack {
                Lack::Tried(trial) => (
                    format!("{who} cannot have {word}: driver {driver} was tried before ({trial})"),
                    format!("{does_without}; `penstock scan --probe` tries the driver again"),
                ),
                Lack::InThisMode(why) => (
                    format!("{who} cannot have {word} from driver {driver}: {why}"),
                    format!("leave `{word}` out, or write `eswitch: legacy`; {does_without}"),
                ),
            };
            planner.lacking.0.push(error(path, text, Some(hint)));
        }
    }
}

/// Where the model asks for `word` of this VF: at its owner's entry, or for all VFs of the NIC.
fn place(
    planner: &Planner<'_>,
    nic: &WantedNic<'_>,
    vf: &WantedVf<'_>,
    attribute: &VfAttribute,
    word: &str,
) -> Path {
    let defaults = &nic.nic.vf_defaults;
    let from_defaults = defaults
        .attributes()
        .iter()
        .any(|default| default == attribute && words(default, defaults).contains(&word));
    if vf.is_uplink && !from_defaults {
        let function = penstock_model::FunctionName { nic: nic.name.clone(), vf: Some(vf.index) };
        if let Some(uplink) = planner.model.uplink_vf(&function) {
            return Path::of(["guests", uplink.guest.as_str(), "nics", uplink.nic.as_str(), "uplink", word]);
        }
    }
    let owner = vf.owner.filter(|_| !from_defaults).and_then(|name| {
        let functions = &planner.model.guests.get(name)?.functions;
        let is_it = |name: &penstock_model::FunctionName| name.nic == *nic.name && name.vf == Some(vf.index);
        Some((name, functions.iter().position(|function| is_it(&function.name))?))
    });
    match owner {
        Some((guest, at)) => Path::of(["guests", guest.as_str(), "functions"]).join(at).join(word),
        None => Path::of(["nics", nic.name.as_str(), "defaults", word]),
    }
}
