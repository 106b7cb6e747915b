//! Which VFs of a machine a node publishes, and what it says of each. Pure: an inventory in, devices out.
//!
//! PFs are not published: who has one has all of its NIC (docs/claims.md). A VF that can never be a pod's is left out ([`WithheldFunction`] says why): one that the machine depends on (a *lifeline*: a default
//! route, the way to the API server, an SSH connection, a mounted file system), one that the host uses (an IP address, a bridge, bond
//! or VLAN upon it), one that a guest owns, and all of a NIC that somebody else manages (`externally_managed`). One that somebody has
//! only now, and who will give it back (a VM that holds it through VFIO, another network namespace), stays published with a taint. What
//! a claim of ours has stays as it was published.
//!
//! A device is called after its NIC and its index: `net0-3`. The NIC is called as the model calls it; without a model, or
//! where that has not this NIC, after its permanent MAC address. Neither changes when the machine is renumbered.

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::{
    Bdf, FunctionName, GuestName, Inventory, Mac, Model, NicName, VfIndex,
    address::is_link_local,
    digest::sha256,
    inventory::{Interface, LifelineSort, Pf, PresentVf, SwitchMode, Vf},
};
use serde::{Deserialize, Serialize};

use crate::identity::{DeviceName, is_label};

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// `string`, at most 64 characters.
    Text(String),
    /// `int`.
    Number(i64),
    /// `bool`.
    Flag(bool),
}

/// Texts are cut at so many characters (`DeviceAttributeMaxValueLength`). None that the kernel gives is longer.
const TEXT_LIMIT: usize = 64;

/// A VF that this node publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedFunction {
    /// The device's name.
    pub name: DeviceName,
    /// The NIC: as the model calls it (`NET0`), else `mac-` and its permanent MAC address.
    pub nic: String,
    /// The NIC's label, with which the device's name begins.
    pub label: String,
    /// The NIC's PF.
    pub pf: Bdf,
    /// Which VF it is.
    pub vf: VfIndex,
    /// Where it is now.
    pub bdf: Bdf,
    /// The bound driver.
    pub driver: Option<String>,
    /// What a claim can select by, by name. A name without a domain is the driver's own.
    pub attributes: BTreeMap<String, Attribute>,
    /// Who has it now without a claim.
    pub in_use: Option<String>,
}

/// A VF that is not published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithheldFunction {
    /// Which.
    pub bdf: Bdf,
    /// What it is called.
    pub name: DeviceName,
    /// Why.
    pub why: String,
}

/// How a NIC is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownNic {
    /// Its name, as [`PublishedFunction::nic`].
    pub name: String,
    /// Its name in the model.
    pub in_model: Option<NicName>,
    /// Its permanent MAC address.
    pub mac: Option<Mac>,
}

/// The NICs as they were last seen, by their PF. A PF whose interface a container has does not tell its permanent MAC address.
pub type KnownNics = BTreeMap<Bdf, KnownNic>;

/// What this node publishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    /// By device name.
    pub functions: BTreeMap<DeviceName, PublishedFunction>,
    /// What was left out.
    pub withheld: Vec<WithheldFunction>,
    /// How the NICs are known.
    pub nics: KnownNics,
}

/// What decides which functions are published.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The machine, as `penstock scan` tells it.
    pub inventory: &'a Inventory,
    /// The model, where there is one.
    pub model: Option<&'a Model>,
    /// The devices that prepared claims have.
    pub held: &'a BTreeSet<String>,
    /// The NICs as they were last seen.
    pub known: &'a KnownNics,
    /// What was published last.
    pub previous: Option<&'a Devices>,
    /// Why what was not there before may be gone in a moment, where a run is under way or not decided yet.
    pub unsettled: Option<&'a str>,
}

impl Devices {
    /// What a machine publishes.
    pub fn of(input: Input<'_>) -> Devices {
        let pfs: Vec<&Pf> = input.inventory.pfs.iter().filter(|pf| pf.sriov.is_some()).collect();
        let nics: KnownNics = pfs.iter().map(|pf| (pf.bdf, known(pf, &pfs, &input))).collect();
        let labels = labels(&nics);
        let mut devices = Devices { nics, ..Devices::default() };
        for pf in pfs {
            devices.publish(pf, &labels[&pf.bdf], &input);
        }
        devices
    }

    /// The function of a device.
    pub fn get(&self, name: &str) -> Option<&PublishedFunction> {
        self.functions.get(name)
    }

    /// The VFs by NIC and index.
    pub fn in_order(&self) -> Vec<&PublishedFunction> {
        let mut functions: Vec<&PublishedFunction> = self.functions.values().collect();
        functions.sort_by(|a, b| (&a.label, a.vf).cmp(&(&b.label, b.vf)));
        functions
    }

    /// The device that a model's name means, if it is published.
    pub fn named(&self, function: &FunctionName) -> Option<&PublishedFunction> {
        let pf = self.nics.iter().find(|(_, nic)| nic.in_model.as_ref() == Some(&function.nic))?.0;
        self.functions.values().find(|found| found.pf == *pf && Some(found.vf) == function.vf)
    }

    fn publish(&mut self, pf: &Pf, label: &str, input: &Input<'_>) {
        let Some(sriov) = &pf.sriov else { return };
        let nic = self.nics[&pf.bdf].clone();
        let judge = Judge { input, pf, nic: &nic };
        for vf in &sriov.vfs {
            // One that only could be is no device.
            let Some(present) = &vf.present else { continue };
            let name = DeviceName::of(label, vf.index);
            let held = input.held.contains(name.as_str());
            let never = judge.never(vf.bdf, vf.index, present.interface.as_ref());
            if let Some(why) = never.or_else(|| judge.new_in_a_run(&name, vf.bdf).filter(|_| !held)) {
                self.withheld.push(WithheldFunction { bdf: vf.bdf, name, why });
                continue;
            }
            let in_use = if held { None } else { judge.vf_in_use(vf.bdf, present) };
            let mut function = PublishedFunction {
                name,
                nic: nic.name.clone(),
                label: label.to_owned(),
                pf: pf.bdf,
                vf: vf.index,
                bdf: vf.bdf,
                driver: present.driver.clone(),
                attributes: judge.attributes(vf, sriov.vf_device, present),
                in_use,
            };
            if held {
                as_before(&mut function, input);
            }
            self.functions.insert(function.name.clone(), function);
        }
    }
}

/// What a claim has is described as it was before: its driver and interface are the claim's, and a slice that is written for each pod that
/// starts costs the whole cluster.
fn as_before(function: &mut PublishedFunction, input: &Input<'_>) {
    let before = input.previous.and_then(|devices| devices.functions.get(&function.name));
    if let Some(before) = before.filter(|before| before.bdf == function.bdf) {
        function.attributes = before.attributes.clone();
    }
}

/// How a NIC is known: as the model calls it, as it was known while a container has its PF's interface, or by what stays with it.
fn known(pf: &Pf, pfs: &[&Pf], input: &Input<'_>) -> KnownNic {
    let in_model = input.inventory.nics.iter().find(|(_, bdf)| **bdf == pf.bdf).map(|(name, _)| name.clone());
    if let Some(name) = in_model {
        return KnownNic { name: name.to_string(), in_model: Some(name), mac: pf.permanent_mac };
    }
    if let (None, None, Some(known)) = (&pf.interface, pf.permanent_mac, input.known.get(&pf.bdf)) {
        return known.clone();
    }
    let alone = |mac: &Mac| pfs.iter().filter(|other| other.permanent_mac == Some(*mac)).count() == 1;
    let name = match (pf.permanent_mac.filter(alone), pf.identity.serial) {
        (Some(mac), _) => format!("mac-{}", mac.to_string().replace(':', "")),
        (None, Some(serial)) => {
            format!("serial-{}-{}", serial.to_string().replace('-', ""), pf.bdf.function())
        }
        (None, None) => format!("pci-{}", pf.bdf),
    };
    KnownNic { name, in_model: None, mac: pf.permanent_mac }
}

/// The DNS label of each NIC, from which the names of its devices are made. No two NICs have the same.
fn labels(nics: &KnownNics) -> BTreeMap<Bdf, String> {
    let label = |name: &str| {
        let small =
            name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
        let label = small.collect::<String>();
        label.trim_matches('-').chars().take(48).collect::<String>().trim_end_matches('-').to_owned()
    };
    let plain: BTreeMap<Bdf, String> = nics.iter().map(|(bdf, nic)| (*bdf, label(&nic.name))).collect();
    let shared = |label: &str| plain.values().filter(|other| *other == label).count() > 1;
    plain
        .iter()
        .map(|(bdf, label)| {
            let nic = &nics[bdf];
            let distinct = match shared(label) || !is_label(label) {
                true => {
                    let unique = if nic.in_model.is_some() { nic.name.clone() } else { bdf.to_string() };
                    format!("{}-{}", if label.is_empty() { "nic" } else { label }, &sha256(unique)[..8])
                }
                false => label.clone(),
            };
            (*bdf, distinct)
        })
        .collect()
}

/// Judges the VFs of one NIC.
struct Judge<'a> {
    input: &'a Input<'a>,
    pf: &'a Pf,
    nic: &'a KnownNic,
}

impl Judge<'_> {
    /// Why a VF can never be a pod's, if so.
    fn never(&self, bdf: Bdf, vf: VfIndex, interface: Option<&Interface>) -> Option<String> {
        self.lifeline(bdf, interface)
            .or_else(|| self.guest(bdf, vf))
            .or_else(|| self.host(interface?))
            .or_else(|| self.managed_by_others())
    }

    /// Why it is not published yet, if a run has made it that may take it back.
    fn new_in_a_run(&self, name: &DeviceName, bdf: Bdf) -> Option<String> {
        let before = self.input.previous.and_then(|devices| devices.functions.get(name));
        let is_new = before.is_none_or(|before| before.bdf != bdf);
        self.input.unsettled.filter(|_| is_new).map(str::to_owned)
    }

    fn lifeline(&self, bdf: Bdf, interface: Option<&Interface>) -> Option<String> {
        let is_up = interface.is_some_and(|interface| interface.up);
        let Some(lifelines) = &self.input.inventory.lifelines else {
            return is_up
                .then(|| "what the machine depends on is not known, and its interface is up".to_owned());
        };
        let through: Vec<String> =
            lifelines.through(bdf).map(|(lifeline, _)| lifeline.kind.to_string()).collect();
        if !through.is_empty() {
            return Some(format!("the machine depends on it: {}", through.join(", ")));
        }
        // Nobody works on a node from the agent's own session.
        let unseen = lifelines
            .unknown
            .iter()
            .find(|unknown| matches!(unknown.sort, LifelineSort::DefaultRoute | LifelineSort::Peer));
        unseen
            .filter(|_| is_up)
            .map(|unknown| format!("the machine may depend on it, its interface is up: {}", unknown.why))
    }

    fn guest(&self, bdf: Bdf, vf: VfIndex) -> Option<String> {
        let owns = |guest: &GuestName| format!("the guest {guest} owns it");
        let found = self.input.inventory.guests.iter();
        let defined = found
            .filter(|(_, found)| found.functions.contains(&bdf) || found.uplinks.contains(&bdf))
            .map(|(guest, _)| owns(guest))
            .next();
        let in_model = || {
            let model = self.input.model?;
            let name = FunctionName { nic: self.nic.in_model.clone()?, vf: Some(vf) };
            if let Some((guest, _)) = model.owner(&name) {
                return Some(owns(guest));
            }
            let leads_out = model.guests.iter().find(|(_, guest)| {
                let to = penstock_model::Uplink::Function(name.clone());
                guest.nics.values().any(|own| own.uplink.as_ref() == Some(&to))
            });
            leads_out.map(|(guest, _)| format!("a NIC of the guest {guest} leads out through it"))
        };
        defined.or_else(in_model)
    }

    fn host(&self, interface: &Interface) -> Option<String> {
        let address = interface.addresses.iter().find(|address| !is_link_local(address.ip()));
        if let Some(address) = address {
            return Some(format!("the host uses it: {} has the address {address}", interface.name));
        }
        let uppers = self.input.inventory.uppers.get(&interface.name)?;
        let uppers: Vec<&str> = uppers.iter().map(|upper| upper.as_str()).collect();
        Some(format!("the host uses it: {} is below {}", interface.name, uppers.join(", ")))
    }

    fn managed_by_others(&self) -> Option<String> {
        let nic = self.input.model?.nics.get(self.nic.in_model.as_ref()?)?;
        nic.externally_managed.then(|| "the model says that somebody else manages this NIC".to_owned())
    }

    /// Who holds a function open, or has it by the record of a network plugin.
    fn holder(&self, bdf: Bdf) -> Option<String> {
        let holders = self.input.inventory.lifelines.as_ref()?.holders.get(&bdf)?;
        Some(holders.join(", "))
    }

    fn vf_in_use(&self, bdf: Bdf, present: &PresentVf) -> Option<String> {
        let of_the_network = |driver: &str| !driver.starts_with("vfio") && !driver.starts_with("uio");
        let away = || {
            let bound = present.driver.as_deref().is_some_and(of_the_network);
            (bound && present.interface.is_none())
                .then(|| "it has a driver, and its interface is not on the host".to_owned())
        };
        self.holder(bdf).or_else(away)
    }

    /// Every device has all of them, since an expression that names one which is lacking ends an allocation with an error. Only the two
    /// standard names of a NUMA node are left out where there is none, as their standard says.
    fn attributes(&self, vf: &Vf, device: u16, present: &PresentVf) -> BTreeMap<String, Attribute> {
        let text = |text: &str| Attribute::Text(text.chars().take(TEXT_LIMIT).collect());
        let number = |number: Option<u32>| Attribute::Number(number.map_or(-1, i64::from));
        let identity = &self.pf.identity;
        let interface = self.pf.interface.as_ref();
        let mac = self.nic.mac.map(|mac| mac.to_string()).unwrap_or_default();
        let link = interface.and_then(|interface| interface.carrier).unwrap_or(false);
        let speed = interface.filter(|_| link).and_then(|interface| interface.speed);
        let mode = match self.pf.switch_mode {
            SwitchMode::Veb => "veb",
            SwitchMode::Vepa => "vepa",
            SwitchMode::Switchdev => "switchdev",
            SwitchMode::Unreported => "unreported",
        };
        let root = identity.pcie_root.map(|root| root.to_string()).unwrap_or_default();
        let id = |id: u16| format!("{id:04x}");
        let mut attributes: BTreeMap<String, Attribute> = [
            ("nic", text(&self.nic.name)),
            ("type", text("vf")),
            ("vf", Attribute::Number(i64::from(vf.index.get()))),
            ("pciVendor", text(&id(identity.ids.vendor))),
            ("pciDevice", text(&id(device))),
            ("pfPciDevice", text(&id(identity.ids.device))),
            ("pfPciAddress", text(&self.pf.bdf.to_string())),
            ("pfMac", text(&mac)),
            ("pfInterface", text(interface.map_or("", |interface| interface.name.as_str()))),
            ("pfDriver", text(self.pf.driver.as_deref().unwrap_or_default())),
            ("driver", text(present.driver.as_deref().unwrap_or_default())),
            ("iommuGroup", number(present.iommu_group)),
            ("numaNode", number(self.pf.numa_node)),
            ("linkUp", Attribute::Flag(link)),
            ("speed", Attribute::Number(speed.map_or(0, i64::from))),
            ("mtu", number(interface.map(|interface| interface.mtu))),
            ("switchMode", text(mode)),
            ("resource.kubernetes.io/pciBusID", text(&vf.bdf.to_string())),
            ("resource.kubernetes.io/pcieRoot", text(&root)),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
        if let Some(node) = self.pf.numa_node {
            for name in ["resource.kubernetes.io/numaNode", "dra.net/numaNode"] {
                attributes.insert(name.to_owned(), Attribute::Number(i64::from(node)));
            }
        }
        attributes
    }
}
