//! What can be true of a machine: the postconditions of steps.

use std::{collections::BTreeSet, fmt};

use penstock_model::{
    Bdf, CpuSet, GuestName, InterfaceAddress, InterfaceName, Mac, Mtu, NicName, Scheduling, VfAttribute,
    VfIndex,
    inventory::{
        EswitchMode, Manager, SwitchMode,
        tuning::{Knob, ResctrlGroup, Value},
    },
    text::counted,
};
use serde::{Deserialize, Serialize};

use crate::{
    Action, ControllerResources, Direction, InterfaceSetup,
    action::{BootArguments, Schemata, Shares, named, resctrl_group, resources},
    names::{self, Names},
};

/// Something that can be looked up on a machine. Carrying out a step must make its fact true; it is read back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Fact {
    /// The manager was told to leave these functions of the PF alone, and no others of it.
    LeftAlone { manager: Manager, pf: Bdf, functions: BTreeSet<Bdf> },
    /// `sriov_drivers_autoprobe` is so.
    Autoprobe { pf: Bdf, on: bool },
    /// `sriov_numvfs` is so, and that many `virtfnN` exist.
    VfCount { pf: Bdf, count: u16 },
    /// The PF's driver reports the attribute so.
    VfAttribute { pf: Bdf, vf: VfIndex, attribute: VfAttribute },
    /// The function is bound to this driver and, for a network driver, has an interface, with this MAC address where one
    /// is named; or is bound to none.
    Driver {
        function: Bdf,
        driver: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mac: Option<Mac>,
    },
    /// The function's interface has this MAC address.
    Mac { function: Bdf, mac: Mac },
    /// The function's interface has this name.
    Name { function: Bdf, name: InterfaceName },
    /// The function's interface has this MTU.
    MtuIs { function: Bdf, mtu: Mtu },
    /// The function's interface is administratively up or down.
    Link { function: Bdf, direction: Direction },
    /// The function's interface has this address.
    HasAddress { function: Bdf, address: InterfaceAddress },
    /// The function's interface lacks this address.
    LacksAddress { function: Bdf, address: InterfaceAddress },
    /// The host uses the function's interface so, but for addresses that somebody has replaced by others of their family.
    InterfaceIs { function: Bdf, setup: InterfaceSetup },
    /// The embedded switch is in this mode.
    Switch { pf: Bdf, mode: SwitchMode },
    /// devlink reports the embedded switch in this mode.
    EswitchMode { pf: Bdf, mode: EswitchMode },
    /// The controller of the drive's VF has so many pairs of queues, with the one for administration, and so many interrupt vectors.
    VfResources { drive: Bdf, vf: VfIndex, queues: u16, interrupts: u16 },
    /// The controller of the drive's VF is on line, or is not; and has so much, where that is said.
    VfOnline {
        drive: Bdf,
        vf: VfIndex,
        online: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        with: Option<ControllerResources>,
    },
    /// The namespace is attached to the controller of the drive's VF, or is not.
    NamespaceAttached { drive: Bdf, vf: VfIndex, namespace: u32, attached: bool },
    /// The function was reset; nothing lasting shows it.
    Reset { function: Bdf },
    /// The guest is defined (or not).
    GuestDefined { guest: GuestName, defined: bool },
    /// The embedded switch of the guest's NIC runs, with a port for each of its functions (or does not).
    SwitchRunning { guest: GuestName, nic: NicName, running: bool },
    /// Each function of the VM's NIC has its tap, which is up and a port of the NIC's bridge (or there is no tap of the NIC).
    TapsThere { guest: GuestName, nic: NicName, there: bool },
    /// The embedded switch of the guest's NIC has this attribute for the VF, or for the one function that it is.
    PortAttribute {
        guest: GuestName,
        nic: NicName,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vf: Option<VfIndex>,
        attribute: VfAttribute,
    },
    /// The guest runs (or does not).
    GuestRunning { guest: GuestName, running: bool },
    /// The VM is there, and suspended.
    GuestSuspended { guest: GuestName },
    /// The guest runs and is ready.
    GuestReady { guest: GuestName },
    /// The PF's interface has its link.
    LinkUp { pf: Bdf },
    /// The file is there with this text.
    FileIs { path: String, text: String },
    /// There is no such file.
    NoFile { path: String },
    /// systemd starts the unit at boot, or does not.
    UnitEnabled { unit: String, on: bool },
    /// The boot loader's own configuration has these words of ours, and no others.
    BootArguments(BootArguments),
    /// The kernel's file holds this value.
    KnobIs { knob: Knob, value: Value },
    /// The control group is there, an isolated partition of exactly these CPUs.
    Partition { group: String, cpus: CpuSet },
    /// There is no such control group.
    NoPartition { group: String },
    /// The guest's control group is an isolated partition of exactly these CPUs; or, with `on` false, none of them is in a
    /// partition of the guest's.
    GuestIsolated { guest: GuestName, cpus: CpuSet, on: bool },
    /// Every virtual CPU of the VM, or every thread of the container, is scheduled so.
    GuestScheduled { guest: GuestName, scheduling: Scheduling },
    /// Every interrupt that these functions have now and that can be moved is delivered to these CPUs.
    InterruptsAt { functions: BTreeSet<Bdf>, cpus: CpuSet },
    /// The group of resctrl is there with these CPUs and these shares.
    ResctrlGroupIs { group: String, settings: ResctrlGroup },
    /// There is no such group of resctrl.
    NoResctrlGroup { group: String },
    /// The group of resctrl has these shares of the resources that are named.
    SchemataAre { group: String, schemata: Schemata },
}

impl Fact {
    /// What is true after `action`.
    pub fn after(action: &Action) -> Fact {
        action.after()
    }
}

impl Fact {
    /// The guest that it is about; `None` for what is about the host.
    pub fn guest(&self) -> Option<&GuestName> {
        match self {
            Fact::GuestDefined { guest, .. }
            | Fact::SwitchRunning { guest, .. }
            | Fact::TapsThere { guest, .. }
            | Fact::PortAttribute { guest, .. }
            | Fact::GuestRunning { guest, .. }
            | Fact::GuestSuspended { guest }
            | Fact::GuestIsolated { guest, .. }
            | Fact::GuestScheduled { guest, .. }
            | Fact::GuestReady { guest } => Some(guest),
            _ => None,
        }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &Names::default())
    }
}

impl Fact {
    /// The same as its `Display`, with functions named as in `names`.
    pub fn named(&self, names: &Names) -> String {
        names::text(|f| self.write(f, names))
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, names: &Names) -> fmt::Result {
        let of = |function: &Bdf| names.function(*function);
        let not = |set: &bool| if *set { "" } else { "not " };
        match self {
            Fact::LeftAlone { manager, pf, functions } if functions.is_empty() => {
                write!(f, "{manager} is told nothing of {}", of(pf))
            }
            Fact::LeftAlone { manager, functions, .. } => {
                write!(f, "{manager} is told to leave {} alone", names.listed(functions))
            }
            Fact::Autoprobe { pf, on } => {
                write!(f, "driver autoprobe of {} is {}", of(pf), if *on { "on" } else { "off" })
            }
            Fact::VfCount { pf, count } => {
                write!(f, "{} has {}", of(pf), counted(usize::from(*count), "VF"))
            }
            Fact::VfAttribute { pf, vf, attribute } => {
                write!(f, "the PF reports {} with {attribute}", names.vf(*pf, *vf))
            }
            Fact::Driver { function, driver: Some(driver), mac: None } => {
                write!(f, "{} is bound to {driver}", of(function))
            }
            Fact::Driver { function, driver: Some(driver), mac: Some(mac) } => {
                write!(f, "{} is bound to {driver}, whose interface has {mac}", of(function))
            }
            Fact::Driver { function, driver: None, .. } => write!(f, "{} has no driver", of(function)),
            Fact::Mac { function, mac } => {
                write!(f, "the interface of {} has the address {mac}", of(function))
            }
            Fact::Name { function, name } => write!(f, "the interface of {} is called {name}", of(function)),
            Fact::MtuIs { function, mtu } => write!(f, "the interface of {} has MTU {mtu}", of(function)),
            Fact::Link { function, direction: Direction::Up } => {
                write!(f, "the interface of {} is up", of(function))
            }
            Fact::Link { function, direction: Direction::Down } => {
                write!(f, "the interface of {} is down", of(function))
            }
            Fact::HasAddress { function, address } => {
                write!(f, "the interface of {} has {address}", of(function))
            }
            Fact::LacksAddress { function, address } => {
                write!(f, "the interface of {} lacks {address}", of(function))
            }
            Fact::InterfaceIs { function, setup } => {
                write!(f, "the interface of {} is as it was: {setup}", of(function))
            }
            Fact::Switch { pf, mode } => write!(f, "the embedded switch of {} is in {mode} mode", of(pf)),
            Fact::EswitchMode { pf, mode } => {
                write!(f, "devlink reports {mode} mode of {}", of(pf))
            }
            Fact::VfResources { drive, vf, queues, interrupts } => {
                write!(f, "{} has {}", names.vf(*drive, *vf), resources(*queues, *interrupts))
            }
            Fact::VfOnline { drive, vf, online, with } => {
                let line = if *online { "on" } else { "off" };
                write!(f, "the controller of {} is {line} line", names.vf(*drive, *vf))?;
                with.map_or(Ok(()), |with| write!(f, " with {with}"))
            }
            Fact::NamespaceAttached { drive, vf, namespace, attached } => {
                write!(f, "namespace {namespace} is {}attached to {}", not(attached), names.vf(*drive, *vf))
            }
            Fact::Reset { function } => write!(f, "{} was reset", of(function)),
            Fact::GuestDefined { guest, defined } => write!(f, "guest {guest} is {}defined", not(defined)),
            Fact::SwitchRunning { guest, nic, running } => {
                write!(f, "the embedded switch of {guest}/{nic} is {}running", not(running))
            }
            Fact::TapsThere { guest, nic, there: true } => {
                write!(f, "the taps of {guest}/{nic} are there, ports of its bridge")
            }
            Fact::TapsThere { guest, nic, there: false } => write!(f, "there is no tap of {guest}/{nic}"),
            Fact::PortAttribute { guest, nic, vf, attribute } => {
                write!(f, "the embedded switch of {guest}/{nic} has {attribute}")?;
                vf.map_or(Ok(()), |vf| write!(f, " for VF {vf}"))
            }
            Fact::GuestRunning { guest, running } => write!(f, "guest {guest} is {}running", not(running)),
            Fact::GuestSuspended { guest } => write!(f, "guest {guest} is there, suspended"),
            Fact::GuestReady { guest } => write!(f, "guest {guest} is ready"),
            Fact::LinkUp { pf } => write!(f, "the interface of {} has its link", of(pf)),
            Fact::FileIs { path, text } => write!(f, "{path} has the {} bytes that were made", text.len()),
            Fact::NoFile { path } => write!(f, "there is no {path}"),
            Fact::UnitEnabled { unit, on } => write!(f, "{unit} is {}started at boot", not(on)),
            Fact::BootArguments(boot) if boot.words.is_empty() => {
                write!(f, "the boot loader passes none of our words")
            }
            Fact::BootArguments(boot) => write!(f, "the boot loader passes {}", boot.words.join(" ")),
            Fact::KnobIs { knob, value } => write!(f, "{knob} holds {value}"),
            Fact::Partition { group, cpus } => {
                write!(f, "control group {group} is an isolated partition of {}", named(cpus))
            }
            Fact::NoPartition { group } => write!(f, "there is no control group {group}"),
            Fact::GuestIsolated { guest, cpus, on: true } => {
                write!(f, "guest {guest} is in an isolated partition of {}", named(cpus))
            }
            Fact::GuestIsolated { guest, cpus, on: false } => {
                write!(f, "guest {guest} has no partition of {}", named(cpus))
            }
            Fact::GuestScheduled { guest, scheduling } => {
                write!(f, "guest {guest} is scheduled as {scheduling}")
            }
            Fact::InterruptsAt { functions, cpus } => {
                write!(f, "the interrupts of {} go to {}", names.listed(functions), named(cpus))
            }
            Fact::ResctrlGroupIs { group, settings } => {
                let ResctrlGroup { cpus, schemata } = settings;
                write!(f, "resctrl group {group} has {} and {}", named(cpus), Shares(schemata))
            }
            Fact::NoResctrlGroup { group } => write!(f, "there is no resctrl group {group}"),
            Fact::SchemataAre { group, schemata } => {
                write!(f, "{} has {}", resctrl_group(group), Shares(schemata))
            }
        }
    }
}
