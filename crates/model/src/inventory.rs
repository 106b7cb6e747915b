//! Everything found on a machine: functions that exist *and VFs that could*, CPUs, caches, IOMMU groups, kernel.
//!
//! An inventory is made by `scan` (crate `host`) and only read elsewhere. It is stable under `serde_json`, so that one
//! machine's inventory can be planned against, or rehearsed, on another.

mod boot;
mod capability;
mod counters;
mod devlink;
mod eswitch;
mod interface;
mod lifelines;
mod nvme;
pub mod tuning;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

pub use self::{
    boot::{BootFacts, BootLoader, BootSetup, IommuKind},
    capability::{Ability, Capabilities, Capability, DriverIdentity, Trial, is_preset},
    counters::{InterfaceCounters, PortCounters, VfCounters},
    devlink::{
        Devlink, DevlinkVersions, Eswitch, EswitchEncapMode, EswitchInlineMode, EswitchMode, HealthReporter,
    },
    eswitch::KnownMode,
    interface::{Interface, Master, Representor, Upper, VlanTag},
    lifelines::{Family, Lifeline, LifelineKind, LifelinePath, LifelineSort, Lifelines, UnknownLifeline},
    nvme::{FlexibleResources, NvmeNamespace, NvmeVirtualization, SecondaryController},
};
pub use crate::vf::VfState;

use serde::{Deserialize, Serialize};

use crate::{
    Bdf, ByteSize, CpuSet, GuestName, InterfaceName, Mac, NicName, PcieRoot, Scheduling, SerialNumber,
    SlotName, VfIndex, pci::PciIds,
};

/// The version of the inventory's JSON form; a reader refuses a newer one.
pub const INVENTORY_VERSION: u32 = 1;

/// Everything found on one machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Inventory {
    /// [`INVENTORY_VERSION`] of the writer.
    pub version: u32,
    /// The running kernel.
    pub kernel: Kernel,
    /// The machine's processors.
    pub cpus: Cpus,
    /// Huge pages by size.
    pub huge_pages: Vec<HugePages>,
    /// All of its RAM (`MemTotal`); 0 when it could not be read.
    #[serde(default)]
    pub memory: ByteSize,
    /// Ethernet physical functions, by PCI address; those without SR-IOV too, so that a message can name them.
    pub pfs: Vec<Pf>,
    /// NVMe controllers that are physical functions, by PCI address.
    pub nvme: Vec<NvmeController>,
    /// IOMMU groups by number, each with all its members; empty when the IOMMU is off.
    pub iommu_groups: BTreeMap<u32, Vec<Bdf>>,
    /// Members of IOMMU groups that are none of the functions above and no VFs, by PCI address.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<Bdf, OtherFunction>,
    /// The names of all network interfaces that are on the host. `None`: nobody asked, as in recorded trees and in inventories of an
    /// older Penstock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interfaces: Option<BTreeSet<InterfaceName>>,
    /// Those of them that are Linux bridges. `None`: nobody asked, as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridges: Option<BTreeSet<InterfaceName>>,
    /// What stands upon the interfaces of functions: the bridges and bonds that they are ports of, their VLANs and what else uses them
    /// (`/sys/class/net/NAME/upper_*`). One that nothing stands upon is left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub uppers: BTreeMap<InterfaceName, BTreeSet<InterfaceName>>,
    /// The drivers that the operator has chosen for functions for good with `driverctl` (`/etc/driverctl.d`), by PCI address;
    /// `none` for no driver at all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub chosen_drivers: BTreeMap<Bdf, String>,
    /// Who configures this machine's network interfaces by itself and runs, and which functions it was told to leave alone: by
    /// the PF of their NIC.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub managers: BTreeMap<Manager, BTreeMap<Bdf, BTreeSet<Bdf>>>,
    /// The PFs of which one of those has not read what it was told last: who told it was killed before.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unread: BTreeMap<Manager, BTreeSet<Bdf>>,
    /// Which PF each NIC of a model is; a NIC whose PF is not here is left out, and named in `unknown`. `scan` leaves it empty; the
    /// binary fills it in for a model (`scan --model`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nics: BTreeMap<NicName, Bdf>,
    /// Functions whose `driver_override` an earlier run of ours set and did not come to clear. `scan` alone leaves it empty;
    /// the binary fills it in.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub own_overrides: BTreeSet<Bdf>,
    /// Guests of ours that are defined here. `scan` alone leaves it empty; the binary fills it in.
    pub guests: BTreeMap<GuestName, FoundGuest>,
    /// The text of the files that the model's `generate` names, by absolute path; one that is not there is left out.
    /// `scan` leaves it empty; the binary fills it in for a model.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// What the machine's own life hangs on. `None`: nobody looked, as in inventories of an older Penstock. `scan` leaves it
    /// so; the binary fills it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifelines: Option<Lifelines>,
    /// What only a new start changes. `None`: nobody looked, as in inventories of an older Penstock. `scan` leaves it so; the
    /// binary fills it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootFacts>,
    /// What the driver of each PF, by the PF's address, is known to do for its VFs. `scan` finds out which driver it is; what
    /// came of trials the binary fills in. A PF whose driver was not asked is left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capabilities: BTreeMap<Bdf, Capabilities>,
    /// What decides how late a thread wakes. `None`: nobody looked. `scan` leaves it so; the binary fills it in where it is asked
    /// for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<tuning::Tuning>,
    /// What could not be read, in words. Never silently empty.
    pub unknown: Vec<String>,
}

/// A program that configures network interfaces as they appear.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Manager {
    /// systemd-networkd.
    Networkd,
    /// NetworkManager.
    NetworkManager,
}

impl Manager {
    /// All that are known.
    pub const ALL: [Manager; 2] = [Manager::Networkd, Manager::NetworkManager];
}

impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Manager::Networkd => "systemd-networkd",
            Manager::NetworkManager => "NetworkManager",
        })
    }
}

/// A guest that is defined on the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FoundGuest {
    /// Whether it runs, or is there and suspended: its functions are then with it.
    pub running: bool,
    /// Whether it is a VM that is there but suspended.
    #[serde(default)]
    pub suspended: bool,
    /// Whether it was started, and nobody has waited since until it was ready: whoever was to do so died.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_awaited: bool,
    /// Whether it is a container that runs and whose start or end nobody has finished: whoever was at it died.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfinished: bool,
    /// The functions that it owns while it runs: their interfaces are inside it and not among the host's.
    pub functions: Vec<Bdf>,
    /// The driver that goes back to a function when the guest is stopped: that of a VF which somebody else made.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub home_drivers: BTreeMap<Bdf, String>,
    /// Those of its functions whose interfaces the host uses since the container ended by itself. `scan` leaves it so; the binary fills
    /// it in.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub in_use: BTreeSet<Bdf>,
    /// The NICs that it owns itself, as it was defined.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub nics: BTreeSet<NicName>,
    /// Those of these NICs whose functions are taps.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taps: BTreeSet<NicName>,
    /// Those of a VM's whose functions are vDPA devices of the host's kernel.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub vdpa: BTreeSet<NicName>,
    /// Those of a VM's, igbs, of which one tap is all that an embedded switch has.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub switch_taps: BTreeSet<NicName>,
    /// The VFs of the host that the embedded switches of these NICs lead to while the VM is there: their interfaces stay on the host.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub uplinks: BTreeSet<Bdf>,
    /// What the embedded switches of these NICs have for their VFs while the VM is there, in index order; for the one function of a
    /// container's. One that does not answer is left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<NicName, Vec<VfState>>,
    /// The CPUs of the isolated partitions that its control groups are; empty for one that is none. `scan` leaves it so; the
    /// binary fills it in.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub isolated: CpuSet,
    /// What it was defined as, a `GuestDefinition` of `penstock-plan`; `None`: nobody looked. It is in no document.
    #[serde(skip)]
    pub definition: Option<serde_json::Value>,
    /// How its virtual CPUs, or all threads of a container, are scheduled; `None`: not known, or not all alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,
}

fn is_empty(cpus: &CpuSet) -> bool {
    cpus.0.is_empty()
}

/// The running kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Kernel {
    /// As `uname -r` prints it.
    pub release: String,
    /// `/proc/cmdline`.
    pub command_line: String,
    /// Whether `/sys/kernel/realtime` says 1.
    pub realtime: bool,
}

/// Processors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Cpus {
    /// The model name of the first processor.
    pub model: String,
    /// CPUs that are on line.
    pub online: CpuSet,
    /// CPUs that the boot command line isolated.
    pub isolated: CpuSet,
    /// CPUs by NUMA node; one node 0 where the kernel knows no nodes.
    pub nodes: BTreeMap<u32, CpuSet>,
    /// Each set of SMT siblings, once.
    pub siblings: Vec<CpuSet>,
    /// Caches, each once, level 1 first.
    pub caches: Vec<Cache>,
}

impl Cpus {
    /// Whether QEMU emulates them in software, as on a board without KVM: nothing takes the time there that it takes elsewhere. That is
    /// what its processor `max` is called then (`target/i386/tcg/tcg-cpu.c` there).
    pub fn are_emulated(&self) -> bool {
        self.model.starts_with("QEMU TCG CPU")
    }
}

/// A cache and the CPUs that share it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Cache {
    /// 1, 2, 3...
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`, as the kernel says.
    pub kind: String,
    /// The size of the cache, in bytes.
    pub size: ByteSize,
    /// Who shares it.
    pub cpus: CpuSet,
}

/// The pool of huge pages of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct HugePages {
    /// The size of a page.
    pub size: ByteSize,
    /// Pages in the pool.
    pub total: u64,
    /// Pages not in use.
    pub free: u64,
}

/// A function's PCI identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PciIdentity {
    /// Vendor, device and subsystem ids.
    pub ids: PciIds,
    /// Vendor's name from the PCI id database, where that is installed.
    pub vendor_name: Option<String>,
    /// Device's name from the PCI id database, where that is installed.
    pub device_name: Option<String>,
    /// Its serial number; `None` for a device that has none, and for who may not read it (it takes root).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<SerialNumber>,
    /// The slot that it is in, itself or on a card behind bridges of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<SlotName>,
    /// What firmware calls it (`label`: ACPI `_DSM` function 7, else SMBIOS type 41).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<SlotName>,
    /// Firmware's number of a device on the main board (`acpi_index`, else SMBIOS' `index`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub onboard: Option<u32>,
    /// The root complex that it is below; `None` where sysfs shows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_root: Option<PcieRoot>,
}

/// Red Hat's PCI vendor id: that of virtio devices, and with the next one that QEMU gives to what it emulates.
const VIRTIO: u16 = 0x1af4;
/// The subsystem that QEMU gives to devices that it emulates (`PCI_SUBDEVICE_ID_QEMU`, docs/specs/pci-ids.rst there).
const QEMU: u16 = 0x1100;

impl PciIdentity {
    /// Whether it is a virtio device: what it does is up to a hypervisor, or to a switch beside it.
    pub fn is_virtio(&self) -> bool {
        self.ids.vendor == VIRTIO
    }

    /// Whether it is another vendor's device as QEMU emulates it: it has what that one's driver needs, and may take settings
    /// that it does nothing about.
    pub fn is_imitated(&self) -> bool {
        !self.is_virtio() && (self.ids.subsystem_vendor, self.ids.subsystem) == (VIRTIO, QEMU)
    }

    /// Whether `place` is where it is: its slot, its label, or `onboardN` with its number.
    pub fn is_in(&self, place: &SlotName) -> bool {
        self.slot.as_ref() == Some(place)
            || self.label.as_ref() == Some(place)
            || self.onboard.is_some_and(|number| place.as_str() == format!("onboard{number}"))
    }
}

/// An Ethernet physical function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Pf {
    /// Its PCI address.
    pub bdf: Bdf,
    /// What it is.
    pub identity: PciIdentity,
    /// The bound driver, as its directory in `/sys/bus/pci/drivers` is called (`virtio-pci` for a virtio NIC).
    pub driver: Option<String>,
    /// Its network interface, when it is in the namespace that was scanned.
    pub interface: Option<Interface>,
    /// The address burnt in (`IFLA_PERM_ADDRESS`); for a driver that reports none, the current one.
    pub permanent_mac: Option<Mac>,
    /// The NUMA node; `None` where the kernel says -1.
    pub numa_node: Option<u32>,
    /// Its IOMMU group.
    pub iommu_group: Option<u32>,
    /// Its SR-IOV capability; `None` when it has none.
    pub sriov: Option<Sriov>,
    /// The embedded switch between the PF, its VFs and the uplink.
    pub switch_mode: SwitchMode,
    /// The version of its firmware, as its driver has it for `ethtool -i`. `None`: the driver names none, or was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// What devlink tells of it. `None`: its driver has no devlink, or was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devlink: Option<Devlink>,
}

/// The mode of an embedded switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SwitchMode {
    /// Frames between functions of the NIC are switched inside (`IFLA_BRIDGE_MODE` = VEB): loopback on.
    Veb,
    /// Every frame goes out to the uplink's switch (VEPA): loopback off.
    Vepa,
    /// devlink's switchdev mode: the host has a representor for each VF.
    Switchdev,
    /// The driver reports no mode.
    #[default]
    Unreported,
}

impl fmt::Display for SwitchMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SwitchMode::Veb => "VEB",
            SwitchMode::Vepa => "VEPA",
            SwitchMode::Switchdev => "switchdev",
            SwitchMode::Unreported => "unreported",
        })
    }
}

/// The SR-IOV capability of a PF (PCI Express Base Specification, 9.3.3) and its VFs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Sriov {
    /// VFs that the driver allows (`sriov_totalvfs`).
    pub total_vfs: u16,
    /// VFs that exist (`sriov_numvfs`).
    pub num_vfs: u16,
    /// Whether drivers bind to new VFs by themselves (`sriov_drivers_autoprobe`).
    pub autoprobe: bool,
    /// First VF Offset. Some devices change it with the number of VFs; it is read at the present number.
    pub first_vf_offset: u16,
    /// VF Stride.
    pub vf_stride: u16,
    /// VF Device ID.
    pub vf_device: u16,
    /// Every VF that exists **or could**, in index order: `total_vfs` of them unless routing ids run out.
    pub vfs: Vec<Vf>,
}

impl Sriov {
    /// How many VFs there can be: what the driver allows, as far as there are PCI addresses for them.
    pub fn room(&self) -> u16 {
        self.total_vfs.min(u16::try_from(self.vfs.len()).unwrap_or(u16::MAX))
    }

    /// The VF with this index. Lists are in the order of indices; one that is not is searched.
    pub fn vf(&self, index: VfIndex) -> Option<&Vf> {
        let in_place = self.vfs.get(usize::from(index.get())).filter(|vf| vf.index == index);
        in_place.or_else(|| self.vfs.iter().find(|vf| vf.index == index))
    }

    /// Gives the VFs what their PF's driver reports of them; the indices of those that do not exist come back.
    pub fn give_attributes(&mut self, states: Vec<(VfIndex, VfState)>) -> Vec<VfIndex> {
        let give = |(index, state): (VfIndex, VfState)| {
            let vf = self.vfs.iter_mut().find(|vf| vf.index == index);
            let Some(present) = vf.and_then(|vf| vf.present.as_mut()) else { return Some(index) };
            present.attributes = Some(state);
            None
        };
        states.into_iter().filter_map(give).collect()
    }
}

/// A VF that exists or could.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Vf {
    /// Its index within its PF.
    pub index: VfIndex,
    /// The address that it has or would get.
    pub bdf: Bdf,
    /// What is known of it when it exists; `None` when it only could.
    pub present: Option<PresentVf>,
}

impl Vf {
    /// The MAC address that its PF gave it; `None` when the PF gave none, or its driver does not say.
    pub fn given_mac(&self) -> Option<Mac> {
        let state = self.present.as_ref()?.attributes.as_ref()?;
        (!state.mac.is_zero()).then_some(state.mac)
    }
}

/// What is known of a VF that exists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PresentVf {
    /// The bound driver.
    pub driver: Option<String>,
    /// `driver_override`, when set.
    pub driver_override: Option<String>,
    /// Its network interface, when it has one in the namespace that was scanned.
    pub interface: Option<Interface>,
    /// Its IOMMU group.
    pub iommu_group: Option<u32>,
    /// What the PF's driver reports of it over netlink; `None` when it reports nothing (virtio never does).
    pub attributes: Option<VfState>,
    /// What stands for it at its PF's embedded switch; `None` where that is not in switchdev mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub representor: Option<Representor>,
}

/// An NVMe controller that is a physical function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NvmeController {
    /// Its PCI address.
    pub bdf: Bdf,
    /// What it is.
    pub identity: PciIdentity,
    /// The bound driver.
    pub driver: Option<String>,
    /// Its name under `/sys/class/nvme`.
    pub name: Option<String>,
    /// The controller's model number.
    pub model: Option<String>,
    /// The controller's serial number.
    pub serial: Option<String>,
    /// The revision of its firmware (`firmware_rev`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// The NUMA node.
    pub numa_node: Option<u32>,
    /// Its IOMMU group.
    pub iommu_group: Option<u32>,
    /// Its SR-IOV capability.
    pub sriov: Option<Sriov>,
    /// What it says of its VFs' queues and of namespaces. `None`: nobody could ask it, as in recorded trees, without root, or where it has no
    /// driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtualization: Option<NvmeVirtualization>,
}

/// A PCI function that is there only because it shares an IOMMU group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct OtherFunction {
    /// Its class code: base class, subclass and programming interface in 24 bits (PCI Code and ID Assignment
    /// Specification, 1).
    pub class: u32,
    /// The bound driver.
    pub driver: Option<String>,
}

impl OtherFunction {
    /// Whether VFIO gives a group away with this member in it: a bridge between buses, or one without a driver
    /// (`drivers/vfio/group.c`, `drivers/iommu/iommu.c`: only who has a driver of the kernel's own holds a group).
    pub fn is_harmless_bridge(&self) -> bool {
        let between_buses = matches!(self.class >> 8, 0x0604 | 0x0609);
        between_buses || (self.class >> 16 == 0x06 && self.driver.is_none())
    }
}

impl Inventory {
    /// The PF at `bdf`.
    pub fn pf(&self, bdf: Bdf) -> Option<&Pf> {
        self.pfs.iter().find(|pf| pf.bdf == bdf)
    }

    /// The NVMe controller at `bdf`.
    pub fn drive(&self, bdf: Bdf) -> Option<&NvmeController> {
        self.nvme.iter().find(|drive| drive.bdf == bdf)
    }

    /// All PFs that have SR-IOV, of NICs and of drives.
    pub fn sriov(&self) -> impl Iterator<Item = (Bdf, &Sriov)> {
        let nics = self.pfs.iter().filter_map(|pf| Some((pf.bdf, pf.sriov.as_ref()?)));
        nics.chain(self.nvme.iter().filter_map(|drive| Some((drive.bdf, drive.sriov.as_ref()?))))
    }

    /// The interface of the PF or VF at `function`, where the host has it.
    pub fn interface(&self, function: Bdf) -> Option<&Interface> {
        if let Some(pf) = self.pf(function) {
            return pf.interface.as_ref();
        }
        let mut vfs = self.pfs.iter().filter_map(|pf| pf.sriov.as_ref()).flat_map(|sriov| &sriov.vfs);
        vfs.find(|vf| vf.bdf == function)?.present.as_ref()?.interface.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vf_is_found_by_its_index_in_whatever_order_they_are_listed() {
        let vf = |index: u16| {
            let bdf = Bdf::new(0, crate::pci::RoutingId(0x400)).of_vf(1, 1, index).expect("few VFs");
            Vf { index: VfIndex::new(index).expect("few VFs"), bdf, present: None }
        };
        for order in [[0, 1, 2, 3], [3, 0, 2, 1]] {
            let sriov = Sriov {
                total_vfs: 4,
                num_vfs: 0,
                autoprobe: true,
                first_vf_offset: 1,
                vf_stride: 1,
                vf_device: 1,
                vfs: order.map(vf).to_vec(),
            };
            for index in 0..4 {
                let found = VfIndex::new(index).and_then(|index| sriov.vf(index));
                assert_eq!(found.map(|vf| vf.index.get()), Some(index));
            }
            assert_eq!(sriov.vf(VfIndex::new(4).expect("few VFs")), None);
        }
    }
}
