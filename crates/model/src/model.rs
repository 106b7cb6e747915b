//! The model: what the user's file says, with every default filled in.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Bdf, BridgePort, ByteSize, Drive, DriveName, DriveVfName, Function, FunctionName, Guest, GuestDrive,
    GuestName, InterfaceAddress, InterfaceName, Mac, Measure, Mtu, NicName, Realtime, SerialNumber, SlotName,
    TenantNic, UplinkVf, VfIndex, VfSettings,
    inventory::{EswitchMode, Pf},
    measurement::{Expectation, latency},
};

/// A checked model. Names resolve, no function is given twice, `after` has no cycle: whatever can be known without a
/// machine has been. Maps keep the file's order.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Model {
    /// The machine's name; the file's stem when the file gives none.
    pub machine: String,
    /// NICs by name.
    pub nics: IndexMap<NicName, Nic>,
    /// NVMe drives by name.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub drives: IndexMap<DriveName, Drive>,
    /// Guests by name.
    pub guests: IndexMap<GuestName, Guest>,
    /// What of the machine decides how late its guests wake. `None`, the default: nothing of it is touched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realtime: Option<Realtime>,
    /// What is measured beside the paths that the machine has.
    pub measure: Measure,
    /// What is to hold of the measurements.
    pub expect: Vec<Expectation>,
    /// What is to hold of the latencies of wake-ups: the lines of `expect` that begin with `latency`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expect_latency: Vec<latency::LatencyExpectation>,
    /// What only a rehearsal needs.
    pub board: Board,
}

/// A NIC: one PF with its VFs.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Nic {
    /// Which device it is.
    pub matching: NicMatch,
    /// How many VFs it is to have; one that is managed from outside has at least so many. Default: one more than the highest
    /// index that a guest uses, else 0.
    pub vfs: u16,
    /// Whether somebody else makes its VFs and sets their attributes: they are used, and nothing of the NIC is changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub externally_managed: bool,
    /// Whether functions of this NIC reach each other inside it (VEB). `None`, the default: left as the driver has
    /// it, and reachability inside the NIC is not judged.
    pub loopback: Option<bool>,
    /// The mode that its embedded switch is to be in. `None`, the default: left as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eswitch: Option<WantedEswitch>,
    /// MTU of the PF. `None`, the default: left alone.
    pub mtu: Option<Mtu>,
    /// The PF's interface name on the host. `None`, the default: left alone.
    pub interface: Option<InterfaceName>,
    /// IP addresses of the PF's interface on the host. Default: none are added or removed.
    pub addresses: Vec<InterfaceAddress>,
    /// What every VF of this NIC gets unless a guest's function says otherwise; also for VFs that no guest owns.
    pub vf_defaults: VfSettings,
    /// The driver of VFs that no guest owns. `None`, the default: the host's where a VF has none, as far as it can be bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_driver: Option<FreeDriver>,
    /// Attributes of this NIC and all its functions, in the model's spelling, that may turn out unsupported.
    pub best_effort: BTreeSet<String>,
}

/// The driver of VFs that no guest of a model owns, for whoever else takes them: a container runtime, a device plugin, a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FreeDriver {
    /// The host's network driver: each is an interface of the host, as if the VFs had been made by hand.
    Host,
    /// `vfio-pci`, for VMs and programs that take them from there.
    VfioPci,
    /// None is bound: those that are made have no driver, and others are left as they are.
    None,
}

impl FreeDriver {
    /// Its word in a model.
    pub const fn name(self) -> &'static str {
        match self {
            FreeDriver::Host => "host",
            FreeDriver::VfioPci => "vfio-pci",
            FreeDriver::None => "none",
        }
    }
}

/// The mode of a NIC's embedded switch that a model may ask for (`Documentation/networking/devlink/devlink-eswitch-attr.rst`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "NicEswitchMode")]
pub enum WantedEswitch {
    /// It switches by MAC addresses and VLANs; attributes of VFs are set at the PF.
    Legacy,
    /// The host's rules say where frames go; each VF has a representor there.
    Switchdev,
}

impl WantedEswitch {
    /// The mode as devlink has it.
    pub const fn mode(self) -> EswitchMode {
        match self {
            WantedEswitch::Legacy => EswitchMode::Legacy,
            WantedEswitch::Switchdev => EswitchMode::Switchdev,
        }
    }

    /// Its word in a model.
    pub const fn name(self) -> &'static str {
        match self {
            WantedEswitch::Legacy => "legacy",
            WantedEswitch::Switchdev => "switchdev",
        }
    }
}

/// How a NIC's device is recognised. All that is given must hold; with nothing given, any PF matches that has room
/// for the VFs and that no other NIC claims more exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a mapping like {mac: 0c:c4:7a:9a:61:ea}")]
pub struct NicMatch {
    /// The PF's permanent MAC address. Survives renumbering; prefer it.
    pub mac: Option<Mac>,
    /// The card's serial number, which all its ports share. Survives renumbering, and another slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<SerialNumber>,
    /// The slot that the card is in, or firmware's label of a device on the main board. Survives renumbering, and
    /// another card in that slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<SlotName>,
    /// Which port of a card with several: its PCI function number, 0 to 7.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 7))]
    pub port: Option<u8>,
    /// The PF's PCI address. Changes when the machine is renumbered.
    pub bdf: Option<Bdf>,
    /// The PF's driver.
    pub driver: Option<String>,
}

impl NicMatch {
    /// Whether it says which PF is meant, so that nothing is to be chosen.
    pub fn is_exact(&self) -> bool {
        self.mac.is_some() || self.serial.is_some() || self.slot.is_some() || self.bdf.is_some()
    }

    /// Whether all that is given holds of `pf`. `known`: it is known by other means to be the NIC's, which has to do for a
    /// MAC address that cannot be read.
    pub fn holds_for(&self, pf: &Pf, known: bool) -> bool {
        let NicMatch { mac, serial, slot, port, bdf, driver } = self;
        mac.is_none_or(|mac| pf.permanent_mac.map_or(known, |seen| seen == mac))
            && serial.is_none_or(|serial| pf.identity.serial == Some(serial))
            && slot.as_ref().is_none_or(|slot| pf.identity.is_in(slot))
            && port.is_none_or(|port| pf.bdf.function() == port)
            && bdf.is_none_or(|bdf| pf.bdf == bdf)
            && driver.as_ref().is_none_or(|driver| pf.driver.as_ref() == Some(driver))
    }

    /// All that is given, in words.
    pub fn words(&self) -> Vec<String> {
        let NicMatch { mac, serial, slot, port, bdf, driver } = self;
        let parts = [
            mac.map(|mac| format!("MAC {mac}")),
            serial.map(|serial| format!("serial number {serial}")),
            slot.as_ref().map(|slot| format!("slot {slot}")),
            port.map(|port| format!("port {port}")),
            bdf.map(|bdf| format!("PCI address {bdf}")),
            driver.as_ref().map(|driver| format!("driver {driver}")),
        ];
        parts.into_iter().flatten().collect()
    }
}

/// What only a rehearsal needs; all of it has defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Board {
    /// Pairs of NICs whose uplinks are joined.
    pub cables: Vec<[NicName; 2]>,
    /// CPUs of the board. Default: 2, or 4 when it has more than 64 VFs or to do with real time, or as many as the model
    /// names, up to 32.
    pub cpus: Option<u32>,
    /// Which kernel it runs. Default: realtime for a model that says anything of real time and has no VM, else standard.
    pub kernel: Option<BoardKernel>,
    /// Memory of the board. Default: derived from guests and VFs.
    pub memory: Option<ByteSize>,
    /// What emulates a NIC. Default: igb up to 7 VFs, virtio beyond.
    pub emulation: IndexMap<NicName, Emulation>,
    /// Whether the board has an IOMMU. Default: on, unless it has more than 64 VFs and no VM.
    pub iommu: Option<bool>,
    /// How many VFs an emulated NVMe controller of the board has. `None`: no such controller.
    pub nvme_vfs: Option<u16>,
    /// Whether its clock counts instructions (QEMU's `-icount`): each takes [`Board::INSTRUCTION`] of the time that the board sees.
    pub icount: bool,
}

impl Board {
    /// QEMU's `shift`: an instruction takes two to this power nanoseconds. The less it takes, the fewer timers of the board expire
    /// meanwhile, each of which holds an emulated processor up that counts.
    pub const ICOUNT_SHIFT: u32 = 0;

    /// How long an instruction takes on a board that counts them, in nanoseconds.
    pub const INSTRUCTION: u32 = 1 << Board::ICOUNT_SHIFT;

    /// Where such a board is told so, as a number: an item of QEMU's firmware configuration (`docs/specs/fw_cfg.rst`).
    pub const INSTRUCTION_ITEM: &str = "opt/penstock/instruction";
}

/// The kernel of a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BoardKernel {
    /// The distribution's usual one.
    Standard,
    /// The same with PREEMPT_RT. Its KVM wants a processor whose time stamp counter never changes its rate
    /// (`arch/x86/kvm/x86.c`), and an emulated one does not say so: no VMs.
    Realtime,
}

impl BoardKernel {
    /// Its word in a model.
    pub const fn name(self) -> &'static str {
        match self {
            BoardKernel::Standard => "standard",
            BoardKernel::Realtime => "realtime",
        }
    }
}

/// The device that QEMU makes: for a NIC on a board, or for one that a VM owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Emulation {
    /// Intel 82576: a real embedded switch, at most 7 VFs.
    Igb,
    /// virtio-net composed with `sriov-pf`: up to 255 VFs, no VF attributes at the PF.
    Virtio,
}

impl Emulation {
    /// The most VFs: the 82576 has eight, of which Linux keeps one for itself; a composed NIC has the functions of one bus but the PF's.
    pub const fn most_vfs(self) -> u16 {
        match self {
            Emulation::Igb => 7,
            Emulation::Virtio => 255,
        }
    }
}

impl Nic {
    /// The MAC address that a VF of this NIC is to have: the one `given`, else the one derived from that of its `pf`. What
    /// somebody else manages has none but a given one.
    pub fn vf_mac(&self, given: Option<Mac>, pf: Option<Mac>, vf: VfIndex) -> Option<Mac> {
        let derived = || pf.filter(|_| !self.externally_managed).map(|pf| Mac::derived(pf, vf));
        given.or_else(derived)
    }
}

impl Model {
    /// The guest that owns `function`, and how.
    pub fn owner(&self, function: &FunctionName) -> Option<(&GuestName, &Function)> {
        self.guests.iter().find_map(|(name, guest)| {
            guest.functions.iter().find(|owned| owned.name == *function).map(|owned| (name, owned))
        })
    }

    /// The guest that owns this VF of a drive, and how.
    pub fn drive_owner(&self, vf: &DriveVfName) -> Option<(&GuestName, &GuestDrive)> {
        let mut owned =
            self.guests.iter().flat_map(|(name, guest)| guest.drives.iter().map(move |drive| (name, drive)));
        owned.find(|(_, drive)| drive.name == *vf)
    }

    /// The NICs that guests own: whose, its name, the NIC.
    pub fn tenant_nics(&self) -> impl Iterator<Item = (&GuestName, &NicName, &TenantNic)> {
        self.guests
            .iter()
            .flat_map(|(guest, found)| found.nics.iter().map(move |(name, nic)| (guest, name, nic)))
    }

    /// The NICs that containers own, but for those that lead nowhere.
    pub fn bridge_ports(&self) -> impl Iterator<Item = BridgePort<'_>> {
        self.tenant_nics().filter(|(.., nic)| nic.is_of_container()).filter_map(|(guest, name, nic)| {
            let vlan = nic.settings.vlan.filter(|vlan| vlan.get() != 0);
            Some(BridgePort { guest, name, nic, bridge: nic.uplink.as_ref()?, vlan })
        })
    }

    /// The VFs that stay on the host as uplinks of NICs that VMs own.
    pub fn uplink_vfs(&self) -> impl Iterator<Item = UplinkVf<'_>> {
        self.tenant_nics().filter_map(|(guest, nic, own)| {
            let (function, settings) = own.uplink_vf()?;
            Some(UplinkVf { guest, nic, function, settings })
        })
    }

    /// Whose uplink `function` is, when it is a VF that stays on the host for that.
    pub fn uplink_vf(&self, function: &FunctionName) -> Option<UplinkVf<'_>> {
        self.uplink_vfs().find(|uplink| uplink.function == function)
    }

    /// Every VF that the model wants, with its settings: those of the guest that owns it or of the uplink that it is, else the NIC's
    /// defaults.
    pub fn vfs<'a>(&'a self, nic: &'a NicName) -> impl Iterator<Item = (VfIndex, &'a VfSettings)> + 'a {
        let wanted = &self.nics[nic];
        let mut settings = vec![&wanted.vf_defaults; usize::from(wanted.vfs)];
        for function in self.guests.values().flat_map(|guest| &guest.functions) {
            if let (true, Some(vf)) = (function.name.nic == *nic, function.name.vf)
                && let Some(slot) = settings.get_mut(usize::from(vf.get()))
            {
                *slot = &function.settings;
            }
        }
        for uplink in self.uplink_vfs().filter(|uplink| uplink.function.nic == *nic) {
            if let Some(slot) = uplink.function.vf.and_then(|vf| settings.get_mut(usize::from(vf.get()))) {
                *slot = uplink.settings;
            }
        }
        (0..).map_while(VfIndex::new).zip(settings)
    }
}
