//! A NIC as another program's file has it, before it is known which PF it is.

use std::collections::BTreeMap;

use penstock_model::{
    Bdf, FreeDriver, InterfaceAddress, InterfaceName, Inventory, Mac, Mtu, NicMatch, SettingsConflict,
    VfIndex, VfSettings, WantedEswitch, inventory::Pf,
};
use penstock_plan::lasting_match;

use super::foreign::ForeignNode;

/// How a file tells which PF is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PfSelector {
    /// The name that its interface has.
    pub name: Option<InterfaceName>,
    /// Its permanent MAC address.
    pub mac: Option<Mac>,
    /// Its PCI address.
    pub bdf: Option<Bdf>,
    /// Its driver.
    pub driver: Option<String>,
}

impl PfSelector {
    /// The PF whose interface has this name.
    pub fn by_name(name: InterfaceName) -> PfSelector {
        PfSelector { name: Some(name), ..PfSelector::default() }
    }

    /// The PF at this PCI address.
    pub fn by_address(bdf: Bdf) -> PfSelector {
        PfSelector { bdf: Some(bdf), ..PfSelector::default() }
    }

    /// What a NIC is called of which no more is known.
    pub fn label(&self) -> String {
        match (&self.name, self.mac, self.bdf) {
            (Some(name), ..) => name.to_string(),
            (None, Some(mac), _) => format!("nic-{mac}").replace(':', ""),
            (None, None, Some(bdf)) => format!("nic-{bdf}").replace(':', "-"),
            (None, None, None) => "nic".to_owned(),
        }
    }

    /// Whether nothing but the name of its interface tells which PF it is.
    pub fn is_by_name(&self) -> bool {
        self.mac.is_none() && self.bdf.is_none() && self.name.is_some()
    }

    /// Whether it says which PF is meant, and that is this one.
    pub fn holds_for(&self, pf: &Pf) -> bool {
        let PfSelector { name, mac, bdf, driver } = self;
        let named =
            |name: &InterfaceName| pf.interface.as_ref().is_some_and(|interface| interface.name == *name);
        (name.is_some() || mac.is_some() || bdf.is_some())
            && name.as_ref().is_none_or(named)
            && mac.is_none_or(|mac| pf.permanent_mac == Some(mac))
            && bdf.is_none_or(|bdf| pf.bdf == bdf)
            && driver.as_ref().is_none_or(|driver| pf.driver.as_ref() == Some(driver))
    }
}

/// A network that gives VFs to whoever asks for one, and sets this of them.
#[derive(Clone)]
pub struct VfNetwork<'a> {
    /// What it sets.
    pub settings: VfSettings,
    /// Where it is in the file.
    pub at: ForeignNode<'a>,
}

/// A NIC of another program's file.
pub struct ForeignNic<'a> {
    /// What the file calls it.
    pub name: String,
    /// Which PF it is.
    pub selector: PfSelector,
    /// Where it is in the file.
    pub at: ForeignNode<'a>,
    /// The name that its interface is to get.
    pub interface: Option<InterfaceName>,
    /// MTU of the PF.
    pub mtu: Option<Mtu>,
    /// The mode of its embedded switch.
    pub eswitch: Option<WantedEswitch>,
    /// IP addresses of the PF's interface.
    pub addresses: Vec<InterfaceAddress>,
    /// How many VFs it has.
    pub vfs: Option<u16>,
    /// What the file says of single VFs.
    pub settings: BTreeMap<VfIndex, VfSettings>,
    /// What drives VFs that nobody else has.
    pub free: Option<FreeDriver>,
}

impl<'a> ForeignNic<'a> {
    /// A NIC of which no more is known.
    pub fn new(name: impl Into<String>, selector: PfSelector, at: ForeignNode<'a>) -> ForeignNic<'a> {
        ForeignNic {
            name: name.into(),
            selector,
            at,
            interface: None,
            mtu: None,
            eswitch: None,
            addresses: Vec::new(),
            vfs: None,
            settings: BTreeMap::new(),
            free: None,
        }
    }

    /// As many VFs as the PF has now: of programs that make none. Where it has none, as many as are named.
    pub fn count_those_of(&mut self, pf: &Pf) {
        self.vfs = pf.sriov.as_ref().map(|sriov| sriov.num_vfs).filter(|there| *there > 0);
    }

    /// At least as many VFs as are named, where their number is not the file's.
    pub fn make_room_for_named(&mut self) {
        self.vfs = self.vfs.map(|there| there.max(self.named()));
    }

    /// How many VFs there are at least, by the single ones that the file names.
    pub fn named(&self) -> u16 {
        self.settings.keys().next_back().map_or(0, |last| last.get() + 1)
    }

    /// Adds what a file says of a VF. What no VF can have is left out, and told at `at`.
    pub fn add(&mut self, index: VfIndex, settings: &VfSettings, at: &ForeignNode<'_>) {
        let known = self.settings.entry(index).or_default();
        *known = settings.or(known);
        while let Some(conflict) = known.conflict() {
            at.left_out(format!("part of VF {index} is left out: {conflict}"));
            match conflict {
                SettingsConflict::Mac(_) => known.mac = None,
                SettingsConflict::QosWithoutVlan(_) => known.qos = None,
                SettingsConflict::ProtocolWithoutVlan(_) => known.vlan_proto = None,
                SettingsConflict::RateAboveLimit { .. } => known.min_tx_rate = None,
            }
        }
    }

    /// Adds what networks set of its `vfs` VFs where it is one thing for all of them, and they give all of them away: a model keeps what a single VF has
    /// with the guest that owns it, and these have none. Where it is not, it is left out, and told at each network with what to do about it.
    pub fn add_to_all(&mut self, vfs: u16, networks: &[VfNetwork<'a>], of_all: bool, hint: &str) {
        let Some(first) = networks.first() else { return };
        if of_all && networks.iter().all(|network| network.settings == first.settings) {
            for index in (0..vfs).filter_map(VfIndex::new) {
                self.add(index, &first.settings, &first.at);
            }
            return;
        }
        for network in networks.iter().filter(|network| network.settings != VfSettings::default()) {
            network.at.left_out_with_hint(
                "what this network sets is left out: other VFs of the PF get something else, or nothing",
                hint,
            );
        }
    }

    /// By what a model knows its PF, and the name that its interface has on `machine`. `None` where that cannot be told, which is a
    /// warning.
    pub fn find(&self, machine: Option<&Inventory>) -> Option<NicMatch> {
        let PfSelector { name, mac, bdf, driver } = &self.selector;
        if mac.is_some() || bdf.is_some() {
            return Some(NicMatch { mac: *mac, bdf: *bdf, driver: driver.clone(), ..NicMatch::default() });
        }
        let hint = "write `match: {mac: ...}`, which `penstock scan` shows on the machine, or give `--inventory`; without it the first PF \
                    with room for the VFs is taken";
        let Some(name) = name else {
            self.at
                .left_out_with_hint("which PF this is was not found: the file names no single device", hint);
            return driver.clone().map(|driver| NicMatch { driver: Some(driver), ..NicMatch::default() });
        };
        match machine
            .and_then(|machine| Some((machine, machine.pfs.iter().find(|pf| self.selector.holds_for(pf))?)))
        {
            Some((machine, pf)) => Some(lasting_match(pf, machine)),
            None => {
                let why = match machine {
                    Some(_) => {
                        format!("which PF this is was not found: no PF of the machine is called {name}")
                    }
                    None => format!(
                        "which PF this is was not found: nothing is known of the machine on which it is called {name}"
                    ),
                };
                self.at.left_out_with_hint(why, hint);
                None
            }
        }
    }
}
