//! What is done to a guest, and how guests are defined.

use std::fmt;

use penstock_model::{
    Bdf, CpuSet, Device, Dns, FunctionName, GuestName, InterfaceAddress, InterfaceName, InterfaceRoute, Mac,
    Mtu, NicName, Scheduling, TenantNic, TxRate, VfAttribute, VfIndex, Vm,
};
use serde::{Deserialize, Serialize};

use super::{ActionTimeLimit, NoInverse, named};
use crate::{Fact, names::Names};

/// One write to a guest, or to what the host keeps for it alone; the guests' executor carries it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
#[allow(clippy::large_enum_variant, reason = "a plan has one definition a guest, and they are few")]
pub enum GuestAction {
    /// Write a guest's definition.
    DefineGuest(GuestDefinition),
    /// Remove a guest's definition.
    UndefineGuest { guest: GuestName },
    /// Start the embedded switch of a NIC that a defined VM owns, with a socket for each of the NIC's functions; systemd starts it
    /// again when it dies. QEMU waits for it, so that it comes before the VM. With `path: vdpa` a vDPA device for each, which QEMU opens;
    /// their driver waits for the switch, so that it goes after the VM. Of a container's NIC: with a tap in the NIC's bridge and
    /// a vDPA device, whose interface the container gets.
    StartSwitch { guest: GuestName, nic: NicName },
    /// Stop such a switch.
    StopSwitch { guest: GuestName, nic: NicName },
    /// Make the taps of a NIC that a defined VM owns, one for each of the NIC's functions, ports of its bridge. QEMU opens them, so that
    /// they come before the VM; they stay until they are removed.
    MakeTaps { guest: GuestName, nic: NicName },
    /// Remove such taps.
    RemoveTaps { guest: GuestName, nic: NicName },
    /// Set an attribute of a VF of a NIC that a VM owns, or of the one function of a container's, at the NIC's embedded switch, while
    /// the guest is there.
    SetPortAttribute {
        guest: GuestName,
        nic: NicName,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vf: Option<VfIndex>,
        attribute: VfAttribute,
    },
    /// Start a defined container; its functions leave the host.
    StartGuest { guest: GuestName },
    /// Create a defined VM suspended: its memory and its functions are with it, and it has not run yet.
    CreateGuest { guest: GuestName },
    /// Let a suspended VM run.
    ResumeGuest { guest: GuestName },
    /// Suspend a VM.
    SuspendGuest { guest: GuestName },
    /// Wait until a running guest is ready, for at most `within` seconds: a VM tells so by its agent or on its console;
    /// a container that owns a PF is ready when the PF has its link.
    AwaitGuest { guest: GuestName, within: u32 },
    /// Stop a guest; its functions come back to the host.
    StopGuest { guest: GuestName },
    /// Have the control group of a guest that is there, running or suspended, be an isolated partition of these CPUs, or a
    /// member of the one above it again. A partition goes with its guest.
    IsolateGuest { guest: GuestName, cpus: CpuSet, on: bool },
    /// Have the virtual CPUs of a VM that is there, or all threads of a running container, be scheduled so.
    ScheduleGuest { guest: GuestName, scheduling: Scheduling },
}

/// All that is needed to define a guest on a machine whose functions have been resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GuestDefinition {
    /// The name of the guest.
    pub guest: GuestName,
    /// Virtual CPUs of a VM; CPU limit of a container.
    pub cpus: Option<u32>,
    /// Memory of a VM, memory limit of a container, in bytes.
    pub memory: Option<u64>,
    /// The host's CPUs that it runs on. A VM with as many virtual CPUs has them one each, in ascending order; with fewer or
    /// more, each on any of them. For a guest that the model pins nowhere: those that are no other guest's alone.
    #[serde(default)]
    pub pin: Option<CpuSet>,
    /// A container's root directory; `None` is an overlay of the host's own.
    pub root: Option<String>,
    /// A container's first process and its arguments; empty is the idle one.
    pub init: Vec<String>,
    /// Whether a container runs without a user namespace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub privileged: bool,
    /// Devices of the host that a container may use.
    #[serde(default)]
    pub devices: Vec<Device>,
    /// What only a VM has; `None` for a container.
    #[serde(default)]
    pub vm: Option<Vm>,
    /// How the virtual CPUs of a VM are scheduled from its start on; `None`: as the kernel has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,
    /// Its functions, in order.
    pub functions: Vec<GuestFunction>,
    /// The VFs of drives that a VM owns, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drives: Vec<Bdf>,
    /// The NICs that it owns itself, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<GuestNic>,
    /// What programs in a container, or in a builtin guest, resolve names by; `None`: as its root has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<Dns>,
}

/// A NIC that a guest owns, on a machine whose functions have been resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GuestNic {
    /// The name of the NIC in its guest.
    pub name: NicName,
    /// What the model says of it.
    pub nic: TenantNic,
    /// Where the function is on this machine that its uplink leads to; `None` for an interface, or no uplink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink_at: Option<Bdf>,
}

impl GuestNic {
    /// Where the VF is that its uplink leads to; `None` for a PF, an interface, or no uplink.
    pub fn uplink_vf(&self) -> Option<Bdf> {
        self.uplink_at.filter(|_| self.nic.uplink_settings.is_some())
    }
}

impl GuestDefinition {
    /// What an inventory says of a guest that was defined so.
    pub fn as_found(&self) -> Option<serde_json::Value> {
        serde_json::to_value(self).ok()
    }

    /// Where all functions of the host are that it gets: those of NICs, then VFs of drives.
    pub fn host_functions(&self) -> impl Iterator<Item = Bdf> {
        self.functions.iter().map(|own| own.function).chain(self.drives.iter().copied())
    }

    /// A container by this name for which nothing is asked: no functions, no limits, the idle first process.
    pub fn bare(guest: GuestName) -> GuestDefinition {
        GuestDefinition {
            guest,
            cpus: None,
            memory: None,
            pin: None,
            root: None,
            init: Vec::new(),
            privileged: false,
            devices: Vec::new(),
            vm: None,
            scheduling: None,
            functions: Vec::new(),
            drives: Vec::new(),
            nics: Vec::new(),
            dns: None,
        }
    }
}

/// A function as a guest gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GuestFunction {
    /// Where it is on this machine.
    pub function: Bdf,
    /// Its interface's name inside the guest.
    pub interface: InterfaceName,
    /// Its IP addresses inside the guest.
    pub addresses: Vec<InterfaceAddress>,
    /// Routes over it inside the guest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<InterfaceRoute>,
    /// Whether a DHCP client inside asks for an address of IPv4.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dhcp: bool,
    /// Its MTU inside the guest.
    pub mtu: Option<Mtu>,
    /// The MAC address that it is to have inside, as far as it is known; a VM's NICs are told apart by it.
    #[serde(default)]
    pub mac: Option<Mac>,
    /// Whether its interface has to have that address before a container may run with it: the PF keeps it for a VF whose driver
    /// asks for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mac_is_kept: bool,
    /// The most that the guest may send through it, held by tc in Mbit/s.
    #[serde(default)]
    pub egress_rate: Option<TxRate>,
    /// The most that the guest may receive through it, held by tc in Mbit/s.
    #[serde(default)]
    pub ingress_rate: Option<TxRate>,
    /// The driver that goes back to it when the guest is stopped: that of a VF which somebody else made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home_driver: Option<String>,
}

impl GuestFunction {
    /// A function whose interface has this name inside, and of which nothing else is asked.
    pub fn bare(function: Bdf, interface: InterfaceName) -> GuestFunction {
        GuestFunction {
            function,
            interface,
            addresses: Vec::new(),
            routes: Vec::new(),
            dhcp: false,
            mtu: None,
            mac: None,
            mac_is_kept: false,
            egress_rate: None,
            ingress_rate: None,
            home_driver: None,
        }
    }
}

impl GuestAction {
    /// The guest that it is done to.
    pub fn guest(&self) -> &GuestName {
        match self {
            Self::DefineGuest(definition) => &definition.guest,
            Self::UndefineGuest { guest }
            | Self::StartSwitch { guest, .. }
            | Self::StopSwitch { guest, .. }
            | Self::MakeTaps { guest, .. }
            | Self::RemoveTaps { guest, .. }
            | Self::SetPortAttribute { guest, .. }
            | Self::StartGuest { guest }
            | Self::CreateGuest { guest }
            | Self::ResumeGuest { guest }
            | Self::SuspendGuest { guest }
            | Self::AwaitGuest { guest, .. }
            | Self::StopGuest { guest }
            | Self::IsolateGuest { guest, .. }
            | Self::ScheduleGuest { guest, .. } => guest,
        }
    }

    /// What is true after it.
    pub fn after(&self) -> Fact {
        match self.clone() {
            Self::DefineGuest(definition) => Fact::GuestDefined { guest: definition.guest, defined: true },
            Self::UndefineGuest { guest } => Fact::GuestDefined { guest, defined: false },
            Self::StartSwitch { guest, nic } => Fact::SwitchRunning { guest, nic, running: true },
            Self::StopSwitch { guest, nic } => Fact::SwitchRunning { guest, nic, running: false },
            Self::MakeTaps { guest, nic } => Fact::TapsThere { guest, nic, there: true },
            Self::RemoveTaps { guest, nic } => Fact::TapsThere { guest, nic, there: false },
            Self::SetPortAttribute { guest, nic, vf, attribute } => {
                Fact::PortAttribute { guest, nic, vf, attribute }
            }
            Self::StartGuest { guest } => Fact::GuestRunning { guest, running: true },
            Self::StopGuest { guest } => Fact::GuestRunning { guest, running: false },
            Self::CreateGuest { guest } | Self::SuspendGuest { guest } => Fact::GuestSuspended { guest },
            Self::ResumeGuest { guest } => Fact::GuestRunning { guest, running: true },
            Self::AwaitGuest { guest, .. } => Fact::GuestReady { guest },
            Self::IsolateGuest { guest, cpus, on } => Fact::GuestIsolated { guest, cpus, on },
            Self::ScheduleGuest { guest, scheduling } => Fact::GuestScheduled { guest, scheduling },
        }
    }

    pub(super) fn is_realtime(&self) -> bool {
        match self {
            Self::IsolateGuest { .. } | Self::ScheduleGuest { .. } => true,
            Self::DefineGuest(_)
            | Self::UndefineGuest { .. }
            | Self::StartSwitch { .. }
            | Self::StopSwitch { .. }
            | Self::MakeTaps { .. }
            | Self::RemoveTaps { .. }
            | Self::SetPortAttribute { .. }
            | Self::StartGuest { .. }
            | Self::CreateGuest { .. }
            | Self::ResumeGuest { .. }
            | Self::SuspendGuest { .. }
            | Self::AwaitGuest { .. }
            | Self::StopGuest { .. } => false,
        }
    }

    pub(super) fn is_setting(&self) -> bool {
        match self {
            Self::SetPortAttribute { .. } => true,
            Self::DefineGuest(_)
            | Self::UndefineGuest { .. }
            | Self::StartSwitch { .. }
            | Self::StopSwitch { .. }
            | Self::MakeTaps { .. }
            | Self::RemoveTaps { .. }
            | Self::StartGuest { .. }
            | Self::CreateGuest { .. }
            | Self::ResumeGuest { .. }
            | Self::SuspendGuest { .. }
            | Self::AwaitGuest { .. }
            | Self::StopGuest { .. }
            // Who asked for CPUs of its own is not to run without them.
            | Self::IsolateGuest { .. }
            | Self::ScheduleGuest { .. } => false,
        }
    }

    pub(super) fn time_limit(&self) -> ActionTimeLimit {
        match self {
            Self::AwaitGuest { within, .. } => ActionTimeLimit::Wait(*within),
            Self::StartSwitch { .. }
            | Self::StopSwitch { .. }
            | Self::MakeTaps { .. }
            | Self::RemoveTaps { .. }
            | Self::StartGuest { .. }
            | Self::CreateGuest { .. }
            | Self::ResumeGuest { .. }
            | Self::SuspendGuest { .. }
            | Self::StopGuest { .. } => ActionTimeLimit::Guest,
            Self::DefineGuest(_)
            | Self::UndefineGuest { .. }
            | Self::SetPortAttribute { .. }
            | Self::IsolateGuest { .. }
            | Self::ScheduleGuest { .. } => ActionTimeLimit::Step,
        }
    }

    pub(super) fn no_inverse(&self) -> NoInverse {
        match self {
            Self::DefineGuest(_) => {
                NoInverse::new("a definition does nothing by itself, and is written anew before each start")
            }
            Self::AwaitGuest { .. } => NoInverse::new(NoInverse::WAITS),
            Self::UndefineGuest { .. }
            | Self::StartSwitch { .. }
            | Self::StopSwitch { .. }
            | Self::MakeTaps { .. }
            | Self::RemoveTaps { .. }
            | Self::SetPortAttribute { .. }
            | Self::StartGuest { .. }
            | Self::CreateGuest { .. }
            | Self::ResumeGuest { .. }
            | Self::SuspendGuest { .. }
            | Self::StopGuest { .. }
            | Self::IsolateGuest { .. }
            | Self::ScheduleGuest { .. } => NoInverse::unexpected(),
        }
    }

    pub(super) fn lost_for_good(&self) -> Option<&'static str> {
        match self {
            Self::StopGuest { .. } => Some("a guest that was stopped has lost its memory"),
            Self::UndefineGuest { .. } => Some("its earlier definition is not known"),
            Self::DefineGuest(_) => Some("the definition that was there before is not known"),
            Self::AwaitGuest { .. } | Self::ResumeGuest { .. } => None,
            Self::StartSwitch { .. }
            | Self::StopSwitch { .. }
            | Self::MakeTaps { .. }
            | Self::RemoveTaps { .. }
            | Self::SetPortAttribute { .. }
            | Self::StartGuest { .. }
            | Self::CreateGuest { .. }
            | Self::SuspendGuest { .. }
            | Self::IsolateGuest { .. }
            | Self::ScheduleGuest { .. } => Some(super::UNKNOWN_BEFORE),
        }
    }

    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, _: &Names) -> fmt::Result {
        match self {
            Self::DefineGuest(definition) => write!(f, "guest {}: define", definition.guest),
            Self::UndefineGuest { guest } => write!(f, "guest {guest}: remove its definition"),
            Self::StartSwitch { guest, nic } => write!(f, "{guest}/{nic}: start its embedded switch"),
            Self::StopSwitch { guest, nic } => write!(f, "{guest}/{nic}: stop its embedded switch"),
            Self::MakeTaps { guest, nic } => write!(f, "{guest}/{nic}: make its taps"),
            Self::RemoveTaps { guest, nic } => write!(f, "{guest}/{nic}: remove its taps"),
            Self::SetPortAttribute { guest, nic, vf, attribute } => {
                let function = FunctionName { nic: nic.clone(), vf: *vf };
                write!(f, "{guest}/{function}: {attribute}")
            }
            Self::StartGuest { guest } => write!(f, "guest {guest}: start"),
            Self::CreateGuest { guest } => write!(f, "guest {guest}: create, suspended"),
            Self::ResumeGuest { guest } => write!(f, "guest {guest}: let it run"),
            Self::SuspendGuest { guest } => write!(f, "guest {guest}: suspend"),
            Self::StopGuest { guest } => write!(f, "guest {guest}: stop"),
            Self::AwaitGuest { guest, within } => {
                write!(f, "guest {guest}: wait until it is ready, up to {within} s")
            }
            Self::IsolateGuest { guest, cpus, on: true } => {
                write!(f, "guest {guest}: isolated partition of {}", named(cpus))
            }
            Self::IsolateGuest { guest, cpus, on: false } => {
                write!(f, "guest {guest}: no partition of {} any more", named(cpus))
            }
            Self::ScheduleGuest { guest, scheduling } => {
                write!(f, "guest {guest}: schedule as {scheduling}")
            }
        }
    }
}
