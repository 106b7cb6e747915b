//! The machine that a run was about, reduced to what a picture of it needs.

use std::collections::HashMap;

use indexmap::IndexMap;
use penstock_model::{
    Bdf, Emulation, FunctionName, GuestKind, GuestName, InterfaceAddress, InterfaceName, Inventory, Mac,
    Model, NicName, TenantNic, VfIndex, WantedEswitch, inventory::PresentVf, text::counted,
};
use serde::{Deserialize, Serialize};

/// A machine: its NICs, its guests and the cables between NICs. Who owns a function is said once, by the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Machine {
    /// The name of the machine.
    pub name: String,
    /// Whether it is emulated: what it shows of speed is then worth nothing outside it.
    pub emulated: bool,
    /// NICs in the model's order.
    pub nics: Vec<MachineNic>,
    /// Guests in the model's order.
    pub guests: Vec<MachineGuest>,
    /// Pairs of NICs whose uplinks are joined.
    pub cables: Vec<[NicName; 2]>,
}

/// A NIC: one PF with its VFs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct MachineNic {
    /// The name of the NIC.
    pub name: NicName,
    /// The PF's PCI address.
    #[serde(default)]
    pub bdf: Option<Bdf>,
    /// The PF's permanent MAC address.
    #[serde(default)]
    pub mac: Option<Mac>,
    /// The PF's driver.
    #[serde(default)]
    pub driver: Option<String>,
    /// What emulates it: `igb`, `virtio-net`; `None` for a real one.
    #[serde(default)]
    pub emulated_by: Option<String>,
    /// Whether its functions reach each other inside it; `None` when the model does not say.
    #[serde(default)]
    pub loopback: Option<bool>,
    /// The mode of its embedded switch; `None` when the model does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eswitch: Option<WantedEswitch>,
    /// Its VFs by index.
    #[serde(default)]
    pub vfs: Vec<MachineVf>,
}

/// A VF as the page draws it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct MachineVf {
    /// Its index within its PF.
    pub index: VfIndex,
    /// Its PCI address.
    #[serde(default)]
    pub bdf: Option<Bdf>,
    /// Its MAC address.
    #[serde(default)]
    pub mac: Option<Mac>,
}

/// A guest as the page draws it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct MachineGuest {
    /// The name of the guest.
    pub name: GuestName,
    /// VM or container.
    pub kind: GuestKind,
    /// The functions that it owns, in order.
    #[serde(default)]
    pub functions: Vec<MachineFunction>,
    /// The NICs that it owns itself, as the model has them.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub nics: IndexMap<NicName, TenantNic>,
}

impl MachineGuest {
    /// What it owns, in few words: `NET0#0-2, net0 with 4 VFs`.
    pub(crate) fn owns(&self) -> String {
        let functions = ranges(self.functions.iter().map(|owned| &owned.function));
        let nics = self.nics.iter().map(|(name, nic)| match nic.is_of_container() {
            true => name.to_string(),
            false => format!("{name} with {}", counted(nic.most_vfs(), "VF")),
        });
        let parts = (!functions.is_empty()).then_some(functions).into_iter().chain(nics);
        parts.collect::<Vec<String>>().join(", ")
    }
}

/// A function as a guest owns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct MachineFunction {
    /// Which PF or VF.
    pub function: FunctionName,
    /// The interface's name inside the guest.
    pub interface: InterfaceName,
    /// IP addresses inside the guest.
    #[serde(default)]
    pub addresses: Vec<InterfaceAddress>,
}

impl Machine {
    /// The machine of `model` as found in `inventory`, where `nics` says which PF each NIC turned out to be (a plan
    /// knows). What the inventory does not know is left out of the picture; nothing is guessed.
    pub fn of(
        model: &Model,
        inventory: &Inventory,
        nics: &IndexMap<NicName, Bdf>,
        emulated: bool,
    ) -> Machine {
        Machine {
            name: model.machine.to_string(),
            emulated,
            nics: model
                .nics
                .keys()
                .map(|name| nic(model, inventory, name, nics.get(name).copied(), emulated))
                .collect(),
            guests: model
                .guests
                .iter()
                .map(|(name, guest)| MachineGuest {
                    name: name.clone(),
                    kind: guest.kind,
                    functions: guest
                        .functions
                        .iter()
                        .map(|owned| MachineFunction {
                            function: owned.name.clone(),
                            interface: owned.interface.clone(),
                            addresses: owned.addresses.clone(),
                        })
                        .collect(),
                    nics: guest.nics.clone(),
                })
                .collect(),
            cables: model.board.cables.clone(),
        }
    }

    /// Which guest owns which function.
    pub fn owners(&self) -> HashMap<&FunctionName, &GuestName> {
        self.guests
            .iter()
            .flat_map(|guest| guest.functions.iter().map(move |owned| (&owned.function, &guest.name)))
            .collect()
    }
}

/// One NIC of the model, with what the inventory knows of its PF and VFs.
fn nic(model: &Model, inventory: &Inventory, name: &NicName, bdf: Option<Bdf>, emulated: bool) -> MachineNic {
    let wanted = &model.nics[name];
    let pf = bdf.and_then(|bdf| inventory.pf(bdf));
    let mac = pf.and_then(|pf| pf.permanent_mac).or(wanted.matching.mac);
    let driver = pf.and_then(|pf| pf.driver.clone());
    let emulated_by = emulated.then(|| match model.board.emulation.get(name) {
        Some(Emulation::Igb) => "igb".to_owned(),
        Some(Emulation::Virtio) => "virtio-net".to_owned(),
        None if driver.as_deref() == Some("virtio-pci") => "virtio-net".to_owned(),
        None => driver.clone().unwrap_or_else(|| "QEMU".to_owned()),
    });
    let vfs = model
        .vfs(name)
        .map(|(index, settings)| {
            let found = pf.and_then(|pf| pf.sriov.as_ref()).and_then(|sriov| sriov.vf(index));
            let interface_mac =
                |present: &PresentVf| present.interface.as_ref().map(|interface| interface.mac);
            MachineVf {
                index,
                bdf: found.map(|vf| vf.bdf),
                mac: settings
                    .mac
                    .or_else(|| found.and_then(|vf| vf.present.as_ref()).and_then(interface_mac))
                    .or_else(|| wanted.vf_mac(None, mac, index)),
            }
        })
        .collect();
    let (loopback, eswitch) = (wanted.loopback, wanted.eswitch);
    MachineNic { name: name.clone(), bdf, mac, driver, emulated_by, loopback, eswitch, vfs }
}

/// The word for a guest's kind.
pub(crate) fn kind_word(kind: GuestKind) -> &'static str {
    match kind {
        GuestKind::Vm => "VM",
        GuestKind::Container => "container",
    }
}

/// Functions in few words: `NET0, NET0#0-7, NET1#2`.
pub(crate) fn ranges<'a>(functions: impl IntoIterator<Item = &'a FunctionName>) -> String {
    let mut sorted: Vec<&FunctionName> = functions.into_iter().collect();
    sorted.sort();
    sorted.dedup();
    let index = |function: &FunctionName| function.vf.map(VfIndex::get);
    let follows = |a: &&FunctionName, b: &&FunctionName| {
        a.nic == b.nic && index(a).is_some_and(|a| index(b) == a.checked_add(1))
    };
    let runs = sorted.chunk_by(follows).map(|run| match run {
        [first, second] => format!("{first}, {second}"),
        [first, .., FunctionName { vf: Some(last), .. }] => format!("{first}-{last}"),
        _ => run.iter().map(ToString::to_string).collect(),
    });
    runs.collect::<Vec<String>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_in_a_row_become_a_range() {
        let of = |names: &[&str]| {
            let names: Vec<FunctionName> = names.iter().map(|name| name.parse().unwrap()).collect();
            ranges(&names)
        };
        assert_eq!(of(&["NET0#2", "NET0#0", "NET0#1", "NET0", "NET1#3"]), "NET0, NET0#0-2, NET1#3");
        assert_eq!(of(&["NET0#4", "NET0#5"]), "NET0#4, NET0#5");
        assert_eq!(of(&[]), "");
    }
}
