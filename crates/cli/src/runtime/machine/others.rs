//! Who else is on this machine.

use std::collections::{BTreeMap, BTreeSet};

use penstock_host::{files, scan::elsewhere};
use penstock_model::{Bdf, GuestName, Inventory};
use penstock_plan::action::GuestDefinition;

use super::Machine;

impl Machine {
    /// What it is called.
    pub fn host_name(&self) -> Option<String> {
        let read = |path: &str| files::read_to_string(self.root.path(path)).ok();
        let name = read("/proc/sys/kernel/hostname").or_else(|| read("/etc/hostname"))?;
        Some(name.trim().to_owned())
    }

    /// How its guests are defined.
    pub fn definitions(&self) -> BTreeMap<GuestName, GuestDefinition> {
        if self.root.is_system() { self.guests().definitions() } else { BTreeMap::new() }
    }

    /// Who has a VF that no guest of ours has: through VFIO, or with its interface in another network namespace; and why some of these could
    /// not be looked into, if so.
    pub fn strangers(&self, inventory: &Inventory) -> (BTreeMap<Bdf, Vec<String>>, Option<String>) {
        let ours: BTreeSet<Bdf> = inventory
            .guests
            .values()
            .filter(|found| found.running)
            .flat_map(|found| found.functions.iter().copied())
            .collect();
        let holders = inventory.lifelines.iter().flat_map(|found| &found.holders);
        let mut strangers: BTreeMap<Bdf, Vec<String>> =
            holders.filter(|(bdf, _)| !ours.contains(bdf)).map(|(bdf, who)| (*bdf, who.clone())).collect();
        let vfs = inventory.pfs.iter().filter_map(|pf| pf.sriov.as_ref()).flat_map(|sriov| &sriov.vfs);
        let away = vfs.filter(|vf| {
            vf.present.as_ref().is_some_and(|present| present.driver.is_some() && present.interface.is_none())
        });
        let away = away.map(|vf| vf.bdf).filter(|bdf| !ours.contains(bdf) && !strangers.contains_key(bdf));
        let away: BTreeSet<Bdf> = away.collect();
        let elsewhere = elsewhere::look(&self.root, &away);
        for (bdf, who) in elsewhere.found {
            strangers.entry(bdf).or_default().push(who);
        }
        (strangers, elsewhere.unseen)
    }
}
