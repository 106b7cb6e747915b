//! What a step does to a machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use penstock_model::{
    Bdf, CpuSet, Device, GuestName, InterfaceAddress, InterfaceName, Mac, Mtu, NicName, Scheduling,
    TenantNic, TxRate, VfAttribute, VfIndex, Vm,
    inventory::{
        BootLoader, Manager, SwitchMode,
        tuning::{Knob, ResctrlGroup, Value},
    },
    text::counted,
};
use serde::{Deserialize, Serialize};

use crate::names::Names;

/// One write to a machine. Functions are named by the address that they have on *this* machine; their interfaces are
/// found from it when the step is carried out, because a VF's interface has no name before it exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
#[allow(clippy::large_enum_variant, reason = "a plan has one definition a guest, and they are few")]
pub enum Action {
    /// Have a manager of network interfaces leave these functions of a PF alone, itself or VFs, and no others of it.
    LeaveAlone { manager: Manager, pf: Bdf, functions: BTreeSet<Bdf> },
    /// Write `sriov_drivers_autoprobe` of the PF.
    SetAutoprobe { pf: Bdf, on: bool },
    /// Write `sriov_numvfs` of the PF. Linux only takes 0 to N and N to 0 (`drivers/pci/pci-sysfs.c`).
    SetVfCount { pf: Bdf, count: u16 },
    /// Set one attribute of a VF through its PF's interface (`IFLA_VFINFO_LIST`).
    SetVfAttribute { pf: Bdf, vf: VfIndex, attribute: VfAttribute },
    /// Bind a driver to a function that has none: `driver_override`, then `drivers_probe`; or unbind with `None`. With a
    /// MAC address, the one that the PF keeps for a VF: its driver asks for it while it is bound, and where the PF does not
    /// answer just then, takes one of its own (`drivers/net/ethernet/intel/igbvf/netdev.c`, `igbvf_probe`).
    SetDriver {
        function: Bdf,
        driver: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mac: Option<Mac>,
    },
    /// Set the MAC address of a function's own interface (`IFLA_ADDRESS`): for drivers whose PF cannot set it.
    SetMac { function: Bdf, mac: Mac },
    /// Rename a function's interface; it must be down.
    Rename { function: Bdf, to: InterfaceName },
    /// Set the MTU of a function's interface.
    SetMtu { function: Bdf, mtu: Mtu },
    /// Bring a function's interface up or down.
    SetLink { function: Bdf, direction: Direction },
    /// Add an IP address to a function's interface.
    AddAddress { function: Bdf, address: InterfaceAddress },
    /// Remove an IP address from a function's interface.
    RemoveAddress { function: Bdf, address: InterfaceAddress },
    /// Set the mode of the embedded switch (`IFLA_BRIDGE_MODE`).
    SetSwitchMode { pf: Bdf, mode: SwitchMode },
    /// Reset a function (`reset` in its PCI directory): nothing of one guest reaches the next.
    ResetFunction { function: Bdf },
    /// Write a guest's definition.
    DefineGuest(GuestDefinition),
    /// Remove a guest's definition.
    UndefineGuest { guest: GuestName },
    /// Start the embedded switch of a NIC that a defined VM owns, with a socket for each of the NIC's functions; systemd starts it
    /// again when it dies. QEMU waits for it, so that it comes before the VM.
    StartSwitch { guest: GuestName, nic: NicName },
    /// Stop such a switch.
    StopSwitch { guest: GuestName, nic: NicName },
    /// Make the taps of a NIC that a defined VM owns, one for each of the NIC's functions, ports of its bridge. QEMU opens them, so that
    /// they come before the VM; they stay until they are removed.
    MakeTaps { guest: GuestName, nic: NicName },
    /// Remove such taps.
    RemoveTaps { guest: GuestName, nic: NicName },
    /// Set an attribute of a VF of a NIC that a VM owns at the NIC's embedded switch, while the VM is there.
    SetPortAttribute { guest: GuestName, nic: NicName, vf: VfIndex, attribute: VfAttribute },
    /// Start a defined container; its functions leave the host.
    StartGuest { guest: GuestName },
    /// Create a defined VM suspended: its memory and its functions are with it, and it has not run yet.
    CreateGuest { guest: GuestName },
    /// Let a suspended VM run.
    ResumeGuest { guest: GuestName },
    /// Suspend a VM.
    SuspendGuest { guest: GuestName },
    /// Wait until the PF's interface has its link, for at most `within` seconds.
    AwaitLink { pf: Bdf, within: u32 },
    /// Wait until a running guest is ready, for at most `within` seconds: a VM tells so by its agent or on its console;
    /// a container that owns a PF is ready when the PF has its link.
    AwaitGuest { guest: GuestName, within: u32 },
    /// Write a file that the model generates; the directories on its way too.
    WriteFile { path: String, text: String },
    /// Remove such a file.
    RemoveFile { path: String },
    /// Have systemd start a unit at boot, or no longer.
    EnableUnit { unit: String, on: bool },
    /// Put words on the kernel's command line, or take them away, from the next start on.
    SetBootArguments(BootArguments),
    /// Stop a guest; its functions come back to the host.
    StopGuest { guest: GuestName },
    /// Write a file of the kernel that holds one value.
    Tune { knob: Knob, to: Value },
    /// Make a control group of ours, below the root of the groups, that is an isolated partition of these CPUs: nobody's
    /// threads are in it.
    MakePartition { group: String, cpus: CpuSet },
    /// Remove such a group; its CPUs are everybody's again.
    RemovePartition { group: String, cpus: CpuSet },
    /// Have the control group of a guest that is there, running or suspended, be an isolated partition of these CPUs, or a
    /// member of the one above it again. A partition goes with its guest.
    IsolateGuest { guest: GuestName, cpus: CpuSet, on: bool },
    /// Have the virtual CPUs of a VM that is there, or all threads of a running container, be scheduled so.
    ScheduleGuest { guest: GuestName, scheduling: Scheduling },
    /// Have all interrupts that these functions have now delivered to these CPUs. They are looked up when it is carried out: a
    /// VF has none before its driver opens it, and VFIO has none before the VM's driver wants some.
    PlaceInterrupts { functions: BTreeSet<Bdf>, cpus: CpuSet },
    /// Make a group of resctrl with these CPUs and these shares (`Documentation/filesystems/resctrl.rst`).
    MakeResctrlGroup { group: String, settings: ResctrlGroup },
    /// Remove such a group: its CPUs are the default group's again.
    RemoveResctrlGroup { group: String, settings: ResctrlGroup },
    /// Write shares of a group of resctrl, of the resources that are named; the empty name is the default group.
    SetSchemata { group: String, schemata: Schemata },
}

/// Capacity masks, or percents for `MB`, by resource of resctrl and domain.
pub type Schemata = BTreeMap<String, BTreeMap<u32, u64>>;

/// Words of ours for the kernel's command line, and how they get there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BootArguments {
    /// The tool that merges them.
    pub loader: BootLoader,
    /// The file that it reads; `None` for a tool that is told them.
    pub file: Option<BootFile>,
    /// All words of ours that there are then, each group that belongs together for itself.
    pub words: Vec<String>,
    /// Those that there were.
    pub before: Vec<String>,
}

/// A file that a tool of the distribution reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BootFile {
    /// Its absolute path.
    pub path: String,
    /// Its text then; `None`: it is not there.
    pub text: Option<String>,
}

impl BootArguments {
    /// The commands that merge them, as far as they are the same on each machine.
    pub fn commands(&self) -> Vec<Vec<String>> {
        let not_in = |all: &[String], other: &[String]| -> Vec<String> {
            all.iter().filter(|word| !other.contains(word)).cloned().collect()
        };
        match &self.loader {
            BootLoader::Grub { refresh, .. } => vec![refresh.clone()],
            BootLoader::Grubby => {
                let option = |name: &str, words: Vec<String>| {
                    (!words.is_empty()).then(|| format!("--{name}={}", words.join(" ")))
                };
                let options = [
                    option("remove-args", not_in(&self.before, &self.words)),
                    option("args", not_in(&self.words, &self.before)),
                ];
                let options: Vec<String> = options.into_iter().flatten().collect();
                if options.is_empty() {
                    return Vec::new();
                }
                vec![
                    ["grubby", "--update-kernel=ALL"].map(str::to_owned).into_iter().chain(options).collect(),
                ]
            }
            // One call for each kernel that is installed.
            BootLoader::KernelInstall => Vec::new(),
            BootLoader::ProxmoxBootTool => vec![["proxmox-boot-tool", "refresh"].map(str::to_owned).into()],
        }
    }
}

/// Up or down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Direction {
    Up,
    Down,
}

/// All that is needed to define a guest on a machine whose functions have been resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GuestDefinition {
    /// Its name.
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
    /// The NICs that a VM owns itself, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<GuestNic>,
}

/// A NIC that a VM owns, on a machine whose functions have been resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GuestNic {
    /// Its name.
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
            nics: Vec::new(),
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
            mtu: None,
            mac: None,
            mac_is_kept: false,
            egress_rate: None,
            ingress_rate: None,
            home_driver: None,
        }
    }
}

impl Action {
    /// The function of the host that it is done to; `None` for what is done to a guest or a file.
    pub fn function(&self) -> Option<Bdf> {
        match self {
            Action::SetAutoprobe { pf, .. }
            | Action::SetVfCount { pf, .. }
            | Action::SetVfAttribute { pf, .. }
            | Action::SetSwitchMode { pf, .. }
            | Action::AwaitLink { pf, .. } => Some(*pf),
            Action::SetDriver { function, .. }
            | Action::SetMac { function, .. }
            | Action::Rename { function, .. }
            | Action::SetMtu { function, .. }
            | Action::SetLink { function, .. }
            | Action::AddAddress { function, .. }
            | Action::RemoveAddress { function, .. }
            | Action::ResetFunction { function } => Some(*function),
            // What a manager of interfaces is told is kept beside the function, and stays when that is gone.
            Action::LeaveAlone { .. }
            | Action::WriteFile { .. }
            | Action::RemoveFile { .. }
            | Action::EnableUnit { .. }
            | Action::SetBootArguments(_)
            | Action::DefineGuest(_)
            | Action::UndefineGuest { .. }
            | Action::StartSwitch { .. }
            | Action::StopSwitch { .. }
            | Action::MakeTaps { .. }
            | Action::RemoveTaps { .. }
            | Action::SetPortAttribute { .. }
            | Action::StartGuest { .. }
            | Action::CreateGuest { .. }
            | Action::ResumeGuest { .. }
            | Action::SuspendGuest { .. }
            | Action::AwaitGuest { .. }
            | Action::StopGuest { .. }
            | Action::Tune { .. }
            | Action::MakePartition { .. }
            | Action::RemovePartition { .. }
            | Action::IsolateGuest { .. }
            | Action::ScheduleGuest { .. }
            | Action::PlaceInterrupts { .. }
            | Action::MakeResctrlGroup { .. }
            | Action::RemoveResctrlGroup { .. }
            | Action::SetSchemata { .. } => None,
        }
    }

    /// Whether it tunes the machine for real time and nothing else: taking it back leaves guests, functions and files as they are.
    pub fn is_realtime(&self) -> bool {
        matches!(
            self,
            Action::Tune { .. }
                | Action::MakePartition { .. }
                | Action::RemovePartition { .. }
                | Action::IsolateGuest { .. }
                | Action::ScheduleGuest { .. }
                | Action::PlaceInterrupts { .. }
                | Action::MakeResctrlGroup { .. }
                | Action::RemoveResctrlGroup { .. }
                | Action::SetSchemata { .. }
        )
    }

    /// The guest that it is done to; `None` for what is done to the host.
    pub fn guest(&self) -> Option<&GuestName> {
        match self {
            Action::DefineGuest(definition) => Some(&definition.guest),
            Action::UndefineGuest { guest }
            | Action::StartSwitch { guest, .. }
            | Action::StopSwitch { guest, .. }
            | Action::MakeTaps { guest, .. }
            | Action::RemoveTaps { guest, .. }
            | Action::SetPortAttribute { guest, .. }
            | Action::StartGuest { guest }
            | Action::CreateGuest { guest }
            | Action::ResumeGuest { guest }
            | Action::SuspendGuest { guest }
            | Action::StopGuest { guest }
            | Action::IsolateGuest { guest, .. }
            | Action::ScheduleGuest { guest, .. }
            | Action::AwaitGuest { guest, .. } => Some(guest),
            _ => None,
        }
    }
}

/// `CPU 2`, `CPUs 2-3`.
pub(crate) fn named(cpus: &CpuSet) -> String {
    match cpus.0.len() {
        1 => format!("CPU {cpus}"),
        _ => format!("CPUs {cpus}"),
    }
}

/// A group of resctrl in words.
pub(crate) fn resctrl_group(name: &str) -> String {
    if name.is_empty() { "resctrl's default group".to_owned() } else { format!("resctrl group {name}") }
}

/// Shares as `schemata` has them: `L3:0=ff0;1=ff0 MB:0=40`.
pub(crate) struct Shares<'a>(pub &'a Schemata);

impl fmt::Display for Shares<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (resource, domains)) in self.0.iter().enumerate() {
            let share = |(domain, share): (&u32, &u64)| match resource.as_str() {
                "MB" => format!("{domain}={share}"),
                _ => format!("{domain}={share:x}"),
            };
            let domains: Vec<String> = domains.iter().map(share).collect();
            write!(f, "{}{resource}:{}", if n == 0 { "" } else { " " }, domains.join(";"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &Names::default())
    }
}

impl Action {
    /// The same as its `Display`, with functions named as in `names`.
    pub fn named(&self, names: &Names) -> String {
        struct Named<'a>(&'a Action, &'a Names);
        impl fmt::Display for Named<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.write(f, self.1)
            }
        }
        Named(self, names).to_string()
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, names: &Names) -> fmt::Result {
        let of = |function: &Bdf| names.function(*function);
        let on = |set: &bool| if *set { "on" } else { "off" };
        match self {
            Action::LeaveAlone { manager, pf, functions } if functions.is_empty() => {
                write!(f, "{manager}: leave nothing of {} alone any more", of(pf))
            }
            Action::LeaveAlone { manager, functions, .. } => {
                write!(f, "{manager}: leave {} alone", names.listed(functions))
            }
            Action::SetAutoprobe { pf, on: set } => write!(f, "{}: driver autoprobe {}", of(pf), on(set)),
            Action::SetVfCount { pf, count } => {
                write!(f, "{}: {}", of(pf), counted(usize::from(*count), "VF"))
            }
            Action::SetVfAttribute { pf, vf, attribute } => write!(f, "{}: {attribute}", names.vf(*pf, *vf)),
            Action::SetDriver { function, driver: Some(driver), .. } => {
                write!(f, "{}: bind {driver}", of(function))
            }
            Action::SetDriver { function, driver: None, .. } => {
                write!(f, "{}: unbind its driver", of(function))
            }
            Action::SetMac { function, mac } => write!(f, "{}: interface address {mac}", of(function)),
            Action::Rename { function, to } => write!(f, "{}: call its interface {to}", of(function)),
            Action::SetMtu { function, mtu } => write!(f, "{}: MTU {mtu}", of(function)),
            Action::SetLink { function, direction: Direction::Up } => write!(f, "{}: bring up", of(function)),
            Action::SetLink { function, direction: Direction::Down } => {
                write!(f, "{}: bring down", of(function))
            }
            Action::AddAddress { function, address } => write!(f, "{}: add address {address}", of(function)),
            Action::RemoveAddress { function, address } => {
                write!(f, "{}: remove address {address}", of(function))
            }
            Action::SetSwitchMode { pf, mode } => write!(f, "{}: embedded switch in {mode} mode", of(pf)),
            Action::ResetFunction { function } => write!(f, "{}: reset", of(function)),
            Action::DefineGuest(definition) => write!(f, "guest {}: define", definition.guest),
            Action::UndefineGuest { guest } => write!(f, "guest {guest}: remove its definition"),
            Action::StartSwitch { guest, nic } => write!(f, "{guest}/{nic}: start its embedded switch"),
            Action::StopSwitch { guest, nic } => write!(f, "{guest}/{nic}: stop its embedded switch"),
            Action::MakeTaps { guest, nic } => write!(f, "{guest}/{nic}: make its taps"),
            Action::RemoveTaps { guest, nic } => write!(f, "{guest}/{nic}: remove its taps"),
            Action::SetPortAttribute { guest, nic, vf, attribute } => {
                write!(f, "{guest}/{nic}#{vf}: {attribute}")
            }
            Action::StartGuest { guest } => write!(f, "guest {guest}: start"),
            Action::CreateGuest { guest } => write!(f, "guest {guest}: create, suspended"),
            Action::ResumeGuest { guest } => write!(f, "guest {guest}: let it run"),
            Action::SuspendGuest { guest } => write!(f, "guest {guest}: suspend"),
            Action::StopGuest { guest } => write!(f, "guest {guest}: stop"),
            Action::AwaitLink { pf, within } => write!(f, "{}: wait for its link, up to {within} s", of(pf)),
            Action::AwaitGuest { guest, within } => {
                write!(f, "guest {guest}: wait until it is ready, up to {within} s")
            }
            Action::WriteFile { path, text } => write!(f, "write {path} ({} bytes)", text.len()),
            Action::RemoveFile { path } => write!(f, "remove {path}"),
            Action::EnableUnit { unit, on: true } => write!(f, "start {unit} at boot"),
            Action::EnableUnit { unit, on: false } => write!(f, "do not start {unit} at boot"),
            Action::SetBootArguments(boot) if boot.words.is_empty() => {
                write!(f, "no words of ours on the kernel's command line")
            }
            Action::SetBootArguments(boot) => {
                write!(f, "put on the kernel's command line: {}", boot.words.join(" "))
            }
            Action::Tune { knob, to } => write!(f, "{knob} = {to}"),
            Action::MakePartition { group, cpus } => {
                write!(f, "control group {group}: isolated partition of {}", named(cpus))
            }
            Action::RemovePartition { group, cpus } => {
                write!(f, "control group {group}: remove it, with its partition of {}", named(cpus))
            }
            Action::IsolateGuest { guest, cpus, on: true } => {
                write!(f, "guest {guest}: isolated partition of {}", named(cpus))
            }
            Action::IsolateGuest { guest, cpus, on: false } => {
                write!(f, "guest {guest}: no partition of {} any more", named(cpus))
            }
            Action::ScheduleGuest { guest, scheduling } => {
                write!(f, "guest {guest}: schedule as {scheduling}")
            }
            Action::PlaceInterrupts { functions, cpus } => {
                write!(f, "interrupts of {}: to {}", names.listed(functions), named(cpus))
            }
            Action::MakeResctrlGroup { group, settings } => {
                let ResctrlGroup { cpus, schemata } = settings;
                write!(f, "resctrl group {group}: {} with {}", named(cpus), Shares(schemata))
            }
            Action::RemoveResctrlGroup { group, .. } => write!(f, "resctrl group {group}: remove it"),
            Action::SetSchemata { group, schemata } => {
                write!(f, "{}: {}", resctrl_group(group), Shares(schemata))
            }
        }
    }
}
