//! Why something could not be done with a guest.

mod advice;

use std::{path::PathBuf, time::Duration};

use penstock_host::{
    ProcessError, chain, files::FileError, knob::KnobError, netlink::NetlinkError, tap::TapError,
    vdpa::VdpaError,
};
use penstock_model::{Bdf, ByteSize, GuestName, InterfaceName, Mac, NicName};
use thiserror::Error;

use crate::{
    containers::{config::ConfigError, dns::NoResolverFile, ids::Ids},
    realtime::RealtimeError,
    vms::{MOST_FUNCTIONS, VirshError},
    words::listed,
};

/// Why something could not be done with a guest.
#[derive(Debug, Error)]
pub enum GuestError {
    /// It failed, and what it had begun could not all be put right.
    #[error("{}; then: {}", chain(.error), .then.join("; then: "))]
    NotPutRight {
        /// How it failed.
        error: Box<GuestError>,
        /// What could not be put right.
        then: Vec<String>,
    },
    /// There is no such guest.
    #[error("guest {guest} is not defined here")]
    Undefined {
        /// The guest that was asked for.
        guest: GuestName,
    },
    /// It cannot be redefined or removed while it runs.
    #[error("guest {guest} is running; stop it first")]
    Running {
        /// The guest that runs.
        guest: GuestName,
    },
    /// It runs, and this state knows of no start of it.
    #[error("guest {guest} runs as process {pid}, and the state in {} knows of no start of it", state.display())]
    Elsewhere {
        /// The guest that was asked for.
        guest: GuestName,
        /// A VM's QEMU, or LXC's own process of a container.
        pid: u32,
        /// The directory of this state's guests.
        state: PathBuf,
        /// That of the state that it was started with, where that is known.
        of: Option<PathBuf>,
        /// The command that ends it.
        end: String,
    },
    /// Another Penstock is at work on it.
    #[error("another Penstock has been at work on guest {guest} for more than {} s", after.as_secs_f32())]
    Busy {
        /// The guest whose lock another process holds.
        guest: GuestName,
        /// How long it was waited for.
        after: Duration,
    },
    /// An interrupt of the PF of one of its VFs is not where it was before the start or stop.
    #[error(
        "an interrupt of the PF of a VF of {guest} could not be put back to where it was before {guest} was started or stopped"
    )]
    Interrupts {
        /// The container that was started or stopped.
        guest: GuestName,
        /// Why the interrupt was not moved.
        source: KnobError,
    },
    /// Its state could not be read or written.
    #[error("the state of the guests cannot be kept")]
    State(#[from] FileError),
    /// A file of its state makes no sense.
    #[error("{} cannot be parsed", path.display())]
    Garbled {
        /// The path of the file.
        path: PathBuf,
        /// Where and why it is not what was expected.
        #[source]
        source: serde_json::Error,
    },
    /// It cannot be written down for LXC.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Its root directory is not there.
    #[error("the root directory {path} of guest {guest} does not exist")]
    NoRoot {
        /// The container that was to start.
        guest: GuestName,
        /// The path of the directory that is missing.
        path: String,
    },
    /// A program of LXC is not there.
    #[error("{}", penstock_host::process::not_installed(program))]
    NoLxc {
        /// The first program of LXC that was not found.
        program: String,
    },
    /// There are no ids of the host to stand for a container's own.
    #[error("the host has no range of user and group ids for containers: {why}")]
    NoIds {
        /// Why no range was found or entered.
        why: String,
    },
    /// Its root directory belongs to another container, whose ids mean nothing in it.
    #[error(
        "{} belongs to user {owner} of the host, which is an id of guest {holder}: guest {guest} has those from {} on",
        path.display(), ids.user
    )]
    OthersRoot {
        /// The container that was to start.
        guest: GuestName,
        /// The path of its root directory.
        path: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Whose id that is.
        holder: GuestName,
        /// The ids that the container that was to start has.
        ids: Ids,
    },
    /// Its user namespace may not reach a directory that it needs.
    #[error("{} is closed to the root of guest {guest}, which is an ordinary account of the host", path.display())]
    Closed {
        /// The container that was to start.
        guest: GuestName,
        /// The first directory on the way that others may not enter.
        path: PathBuf,
    },
    /// The device nodes of a container with a user namespace could not be made.
    #[error("the node of the device {path} for guest {guest} cannot be made")]
    Node {
        /// The container that was to get the device.
        guest: GuestName,
        /// The device's path on the host.
        path: String,
        /// Why the node could not be made or given to the container's ids.
        source: FileError,
    },
    /// Limits were asked for and the kernel's control groups cannot hold them.
    #[error("the {what} limit of guest {guest} cannot be held: {why}")]
    NoLimits {
        /// The container that was to be limited.
        guest: GuestName,
        /// `cpus`, `memory` or `pin`.
        what: &'static str,
        /// What the control groups lack, or which CPUs alone are online.
        why: String,
    },
    /// A rate was asked for and the kernel cannot hold it.
    #[error("the {what} of interface {interface} of guest {guest} cannot be held: {why}")]
    NoRate {
        /// The container whose interface it is.
        guest: GuestName,
        /// `egress_rate` or `ingress_rate`.
        what: String,
        /// The interface inside.
        interface: String,
        /// What is wrong with the rate, or what the kernel or a program lacks for it.
        why: String,
    },
    /// A route was asked for and cannot be set.
    #[error("guest {guest} cannot have the route {route} over its interface {interface}: {why}")]
    NoRoute {
        /// The container whose interface it is.
        guest: GuestName,
        /// The interface inside.
        interface: String,
        /// The route, as `ip route` writes it.
        route: String,
        /// What `ip` said, or which program is missing.
        why: String,
    },
    /// An interface was to have a lease, and nobody can ask for one.
    #[error("guest {guest} cannot run: nobody asks for a lease of its interface {interface}: {why}")]
    NoLease {
        /// The container whose interface it is.
        guest: GuestName,
        /// The interface inside.
        interface: InterfaceName,
        /// Which program is missing, or what the shell inside said.
        why: String,
    },
    /// Name servers were asked for, and there is no file in its root that they could be mounted over.
    #[error("guest {guest} cannot have the name servers of the model in {path}: {why}")]
    NoDns {
        /// The container that was to have them.
        guest: GuestName,
        /// The path of its `resolv.conf`, as the host has it.
        path: String,
        /// What is there instead of a file.
        why: NoResolverFile,
    },
    /// A device of the model is not there, or is none.
    #[error("guest {guest} cannot be given the device {path}: {why}")]
    NoDevice {
        /// The container that was to get the device.
        guest: GuestName,
        /// The device's path on the host.
        path: String,
        /// What was found at the path, or why it could not be looked at.
        why: String,
    },
    /// A device of the model is the host's own.
    #[error("guest {guest} is not given the device {path}: {why}")]
    DeviceInUse {
        /// The container that was to get the device, or the VM that was to boot it.
        guest: GuestName,
        /// The device's path on the host.
        path: String,
        /// What the host has on it.
        why: String,
    },
    /// A function has no interface on the host.
    #[error("function {function} of guest {guest} has no network interface on this host: {why}")]
    NoInterface {
        /// The guest that should get it.
        guest: GuestName,
        /// The address of the function.
        function: Bdf,
        /// What is known about why.
        why: String,
    },
    /// The kernel could not be asked about interfaces, or refused a change.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A program of LXC failed.
    #[error("LXC failed{}", said(log))]
    Lxc {
        /// The last lines of its log and of the container's console.
        log: Vec<String>,
        /// The command that failed.
        #[source]
        source: ProcessError,
    },
    /// The first process ended at once.
    #[error("its first process, `{init}`, ended at once{}", said(log))]
    Ended {
        /// The first process.
        init: String,
        /// The last lines of LXC's log and of the container's console.
        log: Vec<String>,
    },
    /// It runs, but an interface is not inside.
    #[error("it runs, but the interface {interface} of function {function} is not inside{}", said(log))]
    NotInside {
        /// The address of the function.
        function: Bdf,
        /// The name that its interface should have.
        interface: InterfaceName,
        /// The last lines of LXC's log and of the container's console.
        log: Vec<String>,
    },
    /// The interface of a VF has another address than the PF keeps for it.
    #[error(
        "the interface {interface} of VF {function} has the address {seen}, and its PF keeps {wanted} for it{}",
        if *made_up { ": its driver made that up, since its PF did not answer when it was bound" } else { "" }
    )]
    WrongMac {
        /// The address of the VF.
        function: Bdf,
        /// What its interface is called.
        interface: InterfaceName,
        /// The address that it is to have.
        wanted: Mac,
        /// The address that it has.
        seen: Mac,
        /// Whether the kernel says that the address is a random one (`addr_assign_type`).
        made_up: bool,
    },
    /// The interface of a VF stays without a link although its PF has one.
    #[error(
        "the interface {interface} of VF {function} has no link inside it, although that of its PF {pf} is up: it was waited for {:.0} s, and brought down and up {cycles} time{}",
        after.as_secs_f64(), if *cycles == 1 { "" } else { "s" }
    )]
    NoLink {
        /// The address of the VF.
        function: Bdf,
        /// The address of its PF, whose interface is up.
        pf: Bdf,
        /// What its interface is called.
        interface: InterfaceName,
        /// How long it was waited for.
        after: Duration,
        /// How often it was brought down and up.
        cycles: usize,
    },
    /// It does not stop.
    #[error("its first process, {pid}, still runs after it was killed")]
    Unstoppable {
        /// The first process on the host.
        pid: u32,
    },
    /// A function's interface did not come back.
    #[error(
        "the interface of function {function} (it was called {name}) did not come back to the host within {} s",
        after.as_secs_f32()
    )]
    NotBack {
        /// The address of the function.
        function: Bdf,
        /// Its name on the host before.
        name: InterfaceName,
        /// How long it was waited for.
        after: Duration,
    },
    /// libvirt is not there, does not answer, or refused.
    #[error("could not {attempt}")]
    Libvirt {
        /// What was asked of it.
        attempt: String,
        /// Why `virsh` did not do it.
        #[source]
        source: VirshError,
    },
    /// VMs are of another processor than this host.
    #[error("VMs are x86-64 machines here, and this host is {processor}")]
    OtherProcessor {
        /// What this program is for, as Rust calls it.
        processor: &'static str,
    },
    /// This host cannot run VMs.
    #[error("this host has no KVM: there is no /dev/kvm")]
    NoKvm,
    /// The builtin guest's files are not there.
    #[error("the kernel and the initramfs of the builtin guest are not there; looked in {}", paths(looked))]
    NoBuiltin {
        /// Where they were looked for.
        looked: Vec<PathBuf>,
    },
    /// A file that a VM boots is not there.
    #[error("the {what} {path} of guest {guest} does not exist")]
    NoFile {
        /// The VM that was to boot it.
        guest: GuestName,
        /// `kernel`, `initramfs` or `disk image`.
        what: &'static str,
        /// The path at which it was looked for.
        path: String,
    },
    /// A VM is to have more functions than it has places for.
    #[error("guest {guest} has {count} functions; a VM takes {MOST_FUNCTIONS}")]
    TooManyFunctions {
        /// The VM that they were to be given to.
        guest: GuestName,
        /// How many functions the VM was defined with.
        count: usize,
    },
    /// A function is not on this machine.
    #[error("function {function} of guest {guest} does not exist")]
    NoFunction {
        /// The VM that should get it.
        guest: GuestName,
        /// The address at which there is none.
        function: Bdf,
    },
    /// A function belongs to another guest that is there.
    #[error("function {function} of guest {guest} is in use: guest {by} has it")]
    InUse {
        /// The guest that should get it.
        guest: GuestName,
        /// The address of the function.
        function: Bdf,
        /// The guest that has it.
        by: GuestName,
    },
    /// A function is open to a program that is no guest of Penstock's.
    #[error("function {function} of guest {guest} is in use: {by} has opened it for VFIO")]
    Held {
        /// The guest that should get it.
        guest: GuestName,
        /// The address of the function.
        function: Bdf,
        /// The processes that have it open, each as `NAME (process ID)`, with its user unless that is root, separated by commas.
        by: String,
    },
    /// A function is behind no IOMMU.
    #[error("function {function} cannot be given to VM {guest}: it is behind no IOMMU")]
    NoIommu {
        /// The VM that should get it.
        guest: GuestName,
        /// The address of the function.
        function: Bdf,
    },
    /// A function is not bound to `vfio-pci`.
    #[error(
        "function {function} cannot be given to VM {guest}: it is bound to {}, not to vfio-pci",
        driver.as_deref().unwrap_or("no driver")
    )]
    NotVfio {
        /// The VM that should get it.
        guest: GuestName,
        /// The address of the function.
        function: Bdf,
        /// What it is bound to.
        driver: Option<String>,
    },
    /// A function shares its IOMMU group with devices that the host uses.
    #[error(
        "function {function} cannot be given to VM {guest}: its IOMMU group {group} is not viable, for the host uses {} \
         in it",
        others.join(", ")
    )]
    NotViable {
        /// The VM that should get it.
        guest: GuestName,
        /// The address of the function.
        function: Bdf,
        /// The group's number.
        group: u32,
        /// The group's members that are in the way, each with its driver.
        others: Vec<String>,
    },
    /// There is too little memory.
    #[error(
        "guest {guest} needs {} MiB of memory, and the host has {} MiB available",
        wanted >> 20,
        available >> 20
    )]
    NoMemory {
        /// The VM that was to start.
        guest: GuestName,
        /// Its memory in bytes.
        wanted: u64,
        /// What the kernel calls available, in bytes.
        available: u64,
    },
    /// There are too few huge pages.
    #[error(
        "guest {guest} needs {wanted} huge pages of {size}, and {}",
        free.map_or("this kernel has none of that size".to_owned(), |free| format!("{free} are free"))
    )]
    NoHugePages {
        /// The VM that was to start.
        guest: GuestName,
        /// The size of one page in bytes.
        size: ByteSize,
        /// How many it needs.
        wanted: u64,
        /// How many are free; `None`: the kernel has no pages of this size.
        free: Option<u64>,
    },
    /// libvirt or QEMU did not make the VM.
    #[error("the VM was not made{}", listed(said))]
    NotMade {
        /// What they said last.
        said: Vec<String>,
    },
    /// A guest is not there.
    #[error("guest {guest} is not there: it was not started yet, or was stopped")]
    NotThere {
        /// The guest that was asked for.
        guest: GuestName,
    },
    /// A guest has ended, and nobody stopped it.
    #[error("guest {guest} died{}", listed(said))]
    Died {
        /// The guest that has ended.
        guest: GuestName,
        /// The last lines of QEMU's log and of its console.
        said: Vec<String>,
    },
    /// A guest is not ready in time.
    #[error("guest {guest} is not ready after {:.1} s: {why}{}", after.as_secs_f32(), said(console))]
    NotReady {
        /// The guest that was waited for.
        guest: GuestName,
        /// How long it was waited for.
        after: Duration,
        /// What it lacks.
        why: String,
        /// The last lines of its console.
        console: Vec<String>,
    },
    /// Something that only VMs do was asked of a container, or the other way round.
    #[error("guest {guest} is a {kind}, which {what}")]
    WrongKind {
        /// The guest that was asked.
        guest: GuestName,
        /// `VM` or `container`.
        kind: &'static str,
        /// What it does not do.
        what: &'static str,
    },
    /// The embedded switch of a NIC that a guest owns was not started or stopped.
    #[error("the embedded switch of {guest}/{nic} {what}{}", listed(said))]
    Switch {
        /// The guest that owns the NIC.
        guest: GuestName,
        /// The name of the NIC in the guest.
        nic: NicName,
        /// What went wrong.
        what: String,
        /// The last lines that it, or systemd, said.
        said: Vec<String>,
    },
    /// The taps of a NIC that a VM owns were not made, removed or seen.
    #[error("the taps of {guest}/{nic} are not as they are to be")]
    Taps {
        /// The guest that owns the NIC.
        guest: GuestName,
        /// The name of the NIC in the guest.
        nic: NicName,
        /// What went wrong.
        source: Box<TapError>,
    },
    /// A NIC that is to have taps is defined with an embedded switch.
    #[error("{guest}/{nic} is not defined with taps")]
    NoTaps {
        /// The VM that owns the NIC.
        guest: GuestName,
        /// The name of the NIC in the VM.
        nic: NicName,
    },
    /// The host cannot make taps.
    #[error("this host has no /dev/net/tun, so that no taps of {guest}/{nic} can be made")]
    NoTun {
        /// The VM that owns the NIC.
        guest: GuestName,
        /// The name of the NIC in the VM.
        nic: NicName,
    },
    /// libvirt or its QEMU cannot give a VM an SR-IOV NIC.
    #[error("no VM of this host can own an SR-IOV NIC: {why}")]
    NoComposition {
        /// What was tried, and what came of it.
        why: String,
    },
    /// Nobody is there to start switches again.
    #[error("{guest}/{nic} needs an embedded switch, and this host has no systemd that would look after it")]
    NoSystemd {
        /// The VM that owns the NIC.
        guest: GuestName,
        /// The name of the NIC in the VM.
        nic: NicName,
    },
    /// AppArmor would keep QEMU from writing to the vDPA devices that libvirt hands it.
    #[error(
        "the NICs of {guest} are vDPA devices, and AppArmor keeps the QEMUs of this host's libvirt from them: {why}"
    )]
    NoVdpaRule {
        /// The VM that owns the NICs.
        guest: GuestName,
        /// Where a rule was looked for.
        why: String,
    },
    /// The kernel has no network devices that a switch could serve.
    #[error("the NICs of {guest} are vDPA devices of the host's kernel, which it cannot make")]
    NoVdpa {
        /// The guest that owns the NICs.
        guest: GuestName,
        /// What is missing.
        source: VdpaError,
    },
    /// Its partition or its scheduling.
    #[error("guest {guest} does not have its CPUs as it should")]
    Realtime {
        /// The guest that was to be isolated, scheduled or released.
        guest: GuestName,
        /// Which of its control groups or threads failed, and why.
        #[source]
        source: RealtimeError,
    },
}

impl GuestError {
    /// [`GuestError::Taps`] of a NIC.
    pub(crate) fn taps(guest: &GuestName, nic: &NicName, source: TapError) -> GuestError {
        GuestError::Taps { guest: guest.clone(), nic: nic.clone(), source: Box::new(source) }
    }

    /// The same, with what could not be put right afterwards.
    pub(crate) fn then(mut self, failures: Vec<String>) -> GuestError {
        if failures.is_empty() {
            return self;
        }
        match &mut self {
            GuestError::Lxc { log, .. }
            | GuestError::Ended { log, .. }
            | GuestError::NotInside { log, .. } => {
                log.extend(failures.into_iter().map(|failure| format!("then: {failure}")));
                self
            }
            _ => GuestError::NotPutRight { error: Box::new(self), then: failures },
        }
    }
}

fn paths(paths: &[PathBuf]) -> String {
    let texts: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    if texts.is_empty() { "no directory".to_owned() } else { texts.join(", ") }
}

fn said(log: &[String]) -> String {
    if log.is_empty() {
        return String::new();
    }
    format!(":\n  {}", log.join("\n  "))
}

/// What is said of a guest's device at `path` by what [`penstock_host::device::used::refusal`] gave.
///
/// # Errors
///
/// Somebody uses it, or it is not known whether.
pub(crate) fn refuse_used(
    refusal: Result<Option<String>, FileError>,
    guest: &GuestName,
    path: &str,
) -> Result<(), GuestError> {
    let (guest, path) = (guest.clone(), path.to_owned());
    match refusal {
        Ok(None) => Ok(()),
        Ok(Some(why)) => Err(GuestError::DeviceInUse { guest, path, why }),
        Err(error) => {
            let why = format!("whether the host uses it is not known: {}", chain(&error));
            Err(GuestError::NoDevice { guest, path, why })
        }
    }
}
