//! The inventory of a machine: what its sysfs and procfs say, and what only netlink can tell.
//!
//! Everything read here comes from outside and is believed only as far as it parses. A value that makes no sense, a
//! file that cannot be read and a contradiction between two sources each become one sentence in
//! [`Inventory::unknown`] that names the file; nothing of this kind makes a scan fail.

mod answers;
pub mod attachments;
pub mod boot;
pub mod capability;
mod cpus;
pub mod elsewhere;
mod functions;
mod interfaces;
mod kernel;
pub mod lifelines;
pub mod names;
mod nvme;
pub(crate) mod overrides;
mod places;
mod reader;
mod sriov;
pub mod tuning;

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::{
    Bdf, CpuSet, InterfaceName, InterfaceRoute, Inventory, PortVlans, VfIndex,
    inventory::{Capabilities, INVENTORY_VERSION, Manager, Pf, SwitchMode, VfState},
};

use crate::{InterfaceReport, Netlink, Root, VfBackend, chain, driver, managers};
pub use answers::ask_drivers;
use interfaces::Interfaces;
use reader::Reader;

/// Why netlink did not answer, in whatever words its own module has for that.
pub type LinkError = Box<dyn std::error::Error + Send + Sync>;

/// What only netlink can tell of network interfaces.
pub trait Links {
    /// Every interface of the network namespace that is looked at.
    ///
    /// # Errors
    ///
    /// The lister's own, when interfaces cannot be listed.
    fn interfaces(&mut self) -> Result<Vec<InterfaceReport>, LinkError>;

    /// The routes over one interface that somebody set, each with the index of its interface
    /// ([`Netlink::configured_routes`]).
    ///
    /// # Errors
    ///
    /// The lister's own, when routes cannot be listed.
    fn routes(&mut self) -> Result<Vec<(u32, InterfaceRoute)>, LinkError>;

    /// The VLANs of each port of a bridge, with the index of the port ([`Netlink::port_vlans`]).
    ///
    /// # Errors
    ///
    /// The lister's own, when they cannot be listed.
    fn port_vlans(&mut self) -> Result<Vec<(u32, PortVlans)>, LinkError>;

    /// What the driver behind the PF's interface `index` reports of each VF (`IFLA_VFINFO_LIST`); empty for a driver
    /// that reports none.
    ///
    /// # Errors
    ///
    /// The lister's own, when the interface is gone or the kernel cannot be asked.
    fn vfs(&mut self, index: u32) -> Result<Vec<(VfIndex, VfState)>, LinkError>;

    /// The mode of the embedded switch behind the PF's interface `index` (`IFLA_BRIDGE_MODE`).
    ///
    /// # Errors
    ///
    /// The lister's own, when the kernel cannot be asked.
    fn switch_mode(&mut self, index: u32) -> Result<SwitchMode, LinkError>;
}

/// The inventory of the machine whose file systems are under `root`.
///
/// `links` is what asks the kernel over netlink. Without it, as for a recorded tree, interfaces are what
/// `/sys/class/net` says: IP addresses, permanent MAC addresses, VF attributes and switch modes stay unknown. No driver is asked for its
/// firmware or over devlink, which may take long ([`ask_drivers`]): of these there is what a recorded tree has.
pub fn scan(root: &Root, links: Option<&mut dyn Links>) -> Inventory {
    let mut reader = Reader::new(root);
    let mut interfaces = Interfaces::new(links, &mut reader);
    let functions = functions::find(&mut reader);
    let slots = places::Slots::read(&mut reader);
    let mut room = sriov::Room::default();
    let mut inventory = Inventory {
        version: INVENTORY_VERSION,
        kernel: kernel::kernel(&mut reader),
        cpus: cpus::cpus(&mut reader),
        huge_pages: kernel::huge_pages(&mut reader),
        memory: kernel::memory(&mut reader),
        pfs: functions::pfs(&functions, &slots, &mut room, &mut reader, &mut interfaces),
        nvme: functions::nvme(&functions, &slots, &mut room, &mut reader),
        iommu_groups: functions::iommu_groups(&mut reader),
        interfaces: interfaces.names(),
        bridges: interfaces.bridges(),
        chosen_drivers: overrides::chosen(&mut reader),
        ..Inventory::default()
    };
    if !root.is_system() {
        answers::recall(&mut inventory.pfs, &mut reader);
    }
    inventory.others = functions::others(&functions, &inventory.iommu_groups, &mut reader);
    name_functions(&mut inventory, &mut reader);
    inventory.uppers = uppers(&inventory, &reader);
    interfaces.note_others(&mut reader);
    for manager in Manager::ALL.into_iter().filter(|manager| managers::runs(root, *manager)) {
        let (told, unread) = left_alone(root, manager, &mut reader);
        inventory.managers.insert(manager, told);
        if !unread.is_empty() {
            inventory.unread.insert(manager, unread);
        }
    }
    inventory.unknown = reader.into_notes();
    inventory
}

/// What stands upon the functions' interfaces.
fn uppers(inventory: &Inventory, reader: &Reader<'_>) -> BTreeMap<InterfaceName, BTreeSet<InterfaceName>> {
    let vfs = inventory.pfs.iter().filter_map(|pf| pf.sriov.as_ref()).flat_map(|sriov| &sriov.vfs);
    let vfs = vfs.filter_map(|vf| vf.present.as_ref()?.interface.as_ref());
    let all = inventory.pfs.iter().filter_map(|pf| pf.interface.as_ref()).chain(vfs);
    let with_uppers = all.map(|interface| {
        let entries = reader.quiet_list(&format!("/sys/class/net/{}", interface.name));
        let uppers = entries.iter().filter_map(|entry| entry.strip_prefix("upper_")?.parse().ok()).collect();
        (interface.name.clone(), uppers)
    });
    with_uppers.filter(|(_, uppers): &(_, BTreeSet<_>)| !uppers.is_empty()).collect()
}

/// The CPUs that are on line.
pub fn online_cpus(root: &Root) -> CpuSet {
    cpus::online(&mut Reader::new(root))
}

/// What a manager was told to leave alone, by PF, and the PFs of which it has yet to read that. A file that somebody has changed
/// counts as none.
fn left_alone(
    root: &Root,
    manager: Manager,
    reader: &mut Reader<'_>,
) -> (BTreeMap<Bdf, BTreeSet<Bdf>>, BTreeSet<Bdf>) {
    let (mut all, mut unread) = (BTreeMap::new(), BTreeSet::new());
    for pf in managers::known(root, manager) {
        match managers::written(root, manager, pf) {
            Some(functions) if functions.is_empty() => {}
            Some(functions) => drop(all.insert(pf, functions)),
            None => reader.note(format!("what {manager} was told of {pf} has been changed by somebody")),
        }
        if managers::is_unread(root, manager, pf) {
            unread.insert(pf);
        }
    }
    (all, unread)
}

/// One PF of that machine anew, whose driver is not asked; `None` when there is no such function any more.
pub fn scan_pf(root: &Root, links: Option<&mut dyn Links>, pf: Bdf) -> Option<Pf> {
    let mut reader = Reader::new(root);
    let mut interfaces = Interfaces::new(links, &mut reader);
    let function = functions::at(pf, &mut reader)?;
    let slots = places::Slots::read(&mut reader);
    let mut room = sriov::Room::default();
    Some(functions::pf(&function, &slots, &mut room, &mut reader, &mut interfaces))
}

/// The inventory of the machine that Penstock runs on. Its NVMe drives that have SR-IOV are asked for their VFs' queues and for namespaces;
/// drivers of NICs are not ([`ask_drivers`]).
pub fn scan_system() -> Inventory {
    let root = Root::system();
    let mut inventory = match Netlink::open() {
        Ok(mut netlink) => {
            let mut inventory = scan(&root, Some(&mut netlink));
            let pfs = inventory.pfs.iter().filter(|pf| pf.sriov.is_some());
            let identified = pfs.filter_map(|pf| {
                let of = driver::identity_of(pf, &inventory.kernel.release)?;
                Some((pf.bdf, Capabilities { of, ..Capabilities::default() }))
            });
            inventory.capabilities = identified.collect();
            inventory
        }
        Err(error) => {
            let mut inventory = scan(&root, None);
            inventory.unknown.insert(0, chain(&error));
            inventory
        }
    };
    nvme::ask(&root, &mut inventory);
    inventory
}

impl Links for Netlink {
    fn interfaces(&mut self) -> Result<Vec<InterfaceReport>, LinkError> {
        Ok(Netlink::interfaces(self)?)
    }

    fn routes(&mut self) -> Result<Vec<(u32, InterfaceRoute)>, LinkError> {
        Ok(self.configured_routes()?)
    }

    fn port_vlans(&mut self) -> Result<Vec<(u32, PortVlans)>, LinkError> {
        Ok(Netlink::port_vlans(self)?)
    }

    fn vfs(&mut self, index: u32) -> Result<Vec<(VfIndex, VfState)>, LinkError> {
        Ok(VfBackend::of(&Root::system(), self, index)?.vfs()?)
    }

    fn switch_mode(&mut self, index: u32) -> Result<SwitchMode, LinkError> {
        Ok(VfBackend::of(&Root::system(), self, index)?.mode()?)
    }
}

/// Puts vendors' and devices' names to the ids, in one pass over the database.
fn name_functions(inventory: &mut Inventory, reader: &mut Reader<'_>) {
    let mut identities: Vec<_> = inventory.pfs.iter_mut().map(|pf| &mut pf.identity).collect();
    identities.extend(inventory.nvme.iter_mut().map(|nvme| &mut nvme.identity));
    if identities.is_empty() {
        return;
    }
    // Debian's place, then Fedora's.
    let database = ["/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids"]
        .into_iter()
        .find_map(|path| reader.large_text(path));
    let Some(database) = database else { return };
    let wanted = identities.iter().map(|identity| (identity.ids.vendor, identity.ids.device)).collect();
    let names = names::look_up(&database, &wanted);
    for identity in identities {
        if let Some(found) = names.get(&(identity.ids.vendor, identity.ids.device)) {
            identity.vendor_name = found.vendor.clone();
            identity.device_name = found.device.clone();
        }
    }
}
