//! FunctionCounters of interfaces and VFs, of the host's network namespace and of containers'.

use std::collections::BTreeMap;

use penstock_guests::Status as GuestStatus;
use penstock_host::{InterfaceReport, Netlink, NetlinkError, Root, VfBackend, chain, interface_of};
use penstock_model::{
    Bdf, GuestKind, GuestName, Inventory, VfIndex,
    inventory::{Interface, InterfaceCounters, Pf, VfCounters},
};
use penstock_report::metrics::{Area, InterfaceMetrics};

use super::{UnreadAreas, present_vfs};
use crate::runtime::machine::Machine;

/// What was counted.
#[derive(Debug, Default)]
pub struct FunctionCounters {
    /// The interfaces that functions have in a namespace that was looked into.
    pub interfaces: BTreeMap<Bdf, InterfaceMetrics>,
    /// What is known to be counted of a PF's VFs.
    pub vfs: BTreeMap<(Bdf, VfIndex), VfCounters>,
    /// Whether the PF's driver was seen to count for VFs, where it has any and could be asked.
    pub counts_vfs: BTreeMap<Bdf, bool>,
}

/// Reads them. Of a recorded tree only what the scan has of the interfaces is known.
pub fn read(
    machine: &Machine,
    inventory: &Inventory,
    guests: &BTreeMap<GuestName, GuestStatus>,
    unread: &mut UnreadAreas<'_>,
) -> FunctionCounters {
    let mut counters = FunctionCounters::default();
    counters.of_scan(inventory);
    if !machine.root().is_system() {
        return counters;
    }
    let pfs: BTreeMap<Bdf, &Pf> = inventory.pfs.iter().map(|pf| (pf.bdf, pf)).collect();
    let host = Netlink::open().and_then(|mut netlink| {
        let counted = netlink.counted_interfaces()?;
        Ok((netlink, counted))
    });
    match host {
        Ok((mut netlink, counted)) => counters.of_host(&mut netlink, &counted, inventory, unread),
        Err(error) => unread.note(Area::Interfaces, chain(&error)),
    }
    let of_containers = guests.iter().filter(|(_, status)| status.kind == GuestKind::Container);
    for (guest, status) in of_containers.filter(|(_, status)| !status.functions.is_empty()) {
        let Some(process) = status.pid else { continue };
        if let Err(error) = counters.of_container(process, status, &pfs, machine.root(), unread) {
            let text = format!("what went through the interfaces of {guest} is not known: {}", chain(&error));
            unread.note(Area::GuestInterfaces, text);
        }
    }
    counters
}

impl FunctionCounters {
    /// The host's interfaces as the scan found them.
    fn of_scan(&mut self, inventory: &Inventory) {
        for pf in &inventory.pfs {
            let own = pf.interface.as_ref().map(|interface| (pf.bdf, interface));
            let of_vfs = present_vfs(pf).filter_map(|(vf, vf_is)| Some((vf.bdf, vf_is.interface.as_ref()?)));
            for (function, interface) in own.into_iter().chain(of_vfs) {
                self.interfaces.insert(function, metrics(interface, None));
            }
        }
    }

    /// The host's interfaces, which are known by their names, and the VFs of PFs that are the host's.
    fn of_host(
        &mut self,
        netlink: &mut Netlink,
        counted: &[(InterfaceReport, Option<InterfaceCounters>)],
        inventory: &Inventory,
        unread: &mut UnreadAreas<'_>,
    ) {
        let by_name: BTreeMap<&str, &(InterfaceReport, Option<InterfaceCounters>)> =
            counted.iter().map(|one| (one.0.interface.name.as_str(), one)).collect();
        for interface in self.interfaces.values_mut() {
            interface.counters = by_name.get(interface.name.as_str()).and_then(|(_, counters)| *counters);
        }
        for pf in &inventory.pfs {
            let name = pf.interface.as_ref().map(|interface| interface.name.as_str());
            if let Some((report, _)) = name.and_then(|name| by_name.get(name)) {
                self.of_vfs(pf, netlink, report.index, unread);
            }
        }
    }

    /// The interfaces inside a container, and the VFs of a PF that it owns.
    fn of_container(
        &mut self,
        process: u32,
        status: &GuestStatus,
        pfs: &BTreeMap<Bdf, &Pf>,
        root: &Root,
        unread: &mut UnreadAreas<'_>,
    ) -> Result<(), NetlinkError> {
        let mut netlink = Netlink::in_namespace_of(process)?;
        let (reports, counted): (Vec<_>, Vec<_>) = netlink.counted_interfaces()?.into_iter().unzip();
        for owned in &status.functions {
            let Some(report) = interface_of(owned.function, &reports, root) else { continue };
            let place = reports.iter().position(|other| other.index == report.index);
            let counters = place.and_then(|place| counted.get(place).copied().flatten());
            self.interfaces.insert(owned.function, metrics(&report.interface, counters));
            if let Some(pf) = pfs.get(&owned.function) {
                self.of_vfs(pf, &mut netlink, report.index, unread);
            }
        }
        Ok(())
    }

    /// What is counted for the VFs of a PF whose interface has this index.
    fn of_vfs(&mut self, pf: &Pf, netlink: &mut Netlink, index: u32, unread: &mut UnreadAreas<'_>) {
        let vfs = pf.sriov.as_ref().map_or(0, |sriov| sriov.num_vfs);
        if vfs == 0 {
            return;
        }
        let told = VfBackend::of(&Root::system(), netlink, index)
            .and_then(|mut backend| Ok((backend.is_switch(), backend.counters()?)));
        let (is_switch, told) = match told {
            Ok(told) => told,
            Err(error) => {
                let text = format!("what {} counts for its VFs is not known: {}", pf.bdf, chain(&error));
                return unread.note(Area::VfCounters, text);
            }
        };
        let known = Known::of(told, vfs, is_switch);
        if known.cut_off {
            let text = format!(
                "what {} counts for its VFs is known of {} of {vfs}: the kernel's answer has no room for more",
                pf.bdf,
                known.told.len()
            );
            unread.note(Area::VfCounters, text);
        }
        self.counts_vfs.insert(pf.bdf, known.counts);
        if known.counts {
            self.vfs.extend(known.told.into_iter().map(|(vf, counters)| ((pf.bdf, vf), counters)));
        }
    }
}

/// What is known of the counters of a PF's VFs.
#[derive(Debug, PartialEq)]
struct Known {
    told: Vec<(VfIndex, VfCounters)>,
    /// Whether they are counted: zeros alone are also what the kernel tells for a driver that counts nothing.
    counts: bool,
    /// Whether some of them are missing.
    cut_off: bool,
}

impl Known {
    /// Of a PF with so many `vfs`; an embedded switch counts for sure, and tells also of VFs that could be.
    fn of(mut told: Vec<(VfIndex, VfCounters)>, vfs: u16, is_switch: bool) -> Known {
        told.retain(|(vf, _)| vf.get() < vfs);
        let counted = is_switch || told.iter().any(|(_, counters)| !counters.is_all_zero());
        let cut_off = !told.is_empty() && told.len() < usize::from(vfs);
        Known { counts: !told.is_empty() && counted, cut_off, told }
    }
}

fn metrics(interface: &Interface, counters: Option<InterfaceCounters>) -> InterfaceMetrics {
    InterfaceMetrics {
        name: interface.name.clone(),
        up: interface.up,
        carrier: interface.carrier,
        speed: interface.speed,
        counters,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(counts: &[u64]) -> Vec<(VfIndex, VfCounters)> {
        let one = |(index, count): (u16, &u64)| {
            let counters =
                VfCounters { tx_dropped: Some(*count), broadcast: Some(0), ..VfCounters::default() };
            (VfIndex::new(index).unwrap(), counters)
        };
        (0..).zip(counts).map(one).collect()
    }

    #[test]
    fn zeros_count_only_where_somebody_is_known_to_count() {
        let of = |counts: &[u64], vfs, is_switch| {
            let known = Known::of(told(counts), vfs, is_switch);
            (known.counts, known.cut_off, known.told.len())
        };
        assert_eq!(of(&[0, 0], 2, false), (false, false, 2), "a driver that counts nothing");
        assert_eq!(of(&[0, 1], 2, false), (true, false, 2), "one VF tells for all");
        assert_eq!(of(&[0, 0, 0], 2, true), (true, false, 2), "a switch counts, also VFs that are not there");
        assert_eq!(of(&[], 2, false), (false, false, 0), "a driver that tells of no VFs");
        assert_eq!(of(&[0, 1], 200, false), (true, true, 2), "an answer that was cut off");
        assert_eq!(of(&[0, 0, 1], 2, false), (false, false, 2), "what is not there tells nothing");
    }
}
