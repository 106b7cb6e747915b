//! Which exit status each error has, and what to do about it: decided here once, and not where errors are met.
//!
//! No match has a default branch but those over the kernel's own error kinds: who adds a variant to an error says here what
//! it means to a script.

use std::io;

use penstock_apply::{
    ApplyError,
    history::StoreError,
    journal::JournalError,
    runner::{NotUndone, StepError},
};
use penstock_board::{BoardError, PackedError, ProofError};
use penstock_cluster::ClusterError;
use penstock_guests::{
    GuestError, console::ConsoleError, containers::config::ConfigError, realtime::RealtimeError,
    vms::VirshError,
};
use penstock_host::{
    NetlinkError, PciError, PlaceError, ProcessError, cgroup::CgroupError, files::FileError,
    frames::FramesError, namespace::NamespaceError, scheduling::SchedulingError, tap::TapError,
    threads::ThreadsError,
};
use penstock_measure::probe::client::ProbeError;
use penstock_plan::{ExecuteError, PlanError};
use penstock_render::GenerateError;
use penstock_report::{evidence::ReadError, redact::RedactError};

use super::Status;

/// An error whose exit status is known.
pub trait Fault {
    /// The exit status.
    fn status(&self) -> Status;

    /// What to do about it, when that is known.
    fn hints(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Files, pipes and sockets of Penstock's own. What the kernel forbids takes another account.
impl Fault for io::Error {
    fn status(&self) -> Status {
        match self.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Status::Missing,
            _ => Status::Internal,
        }
    }
}

impl Fault for FileError {
    fn status(&self) -> Status {
        self.source.status()
    }
}

/// What Penstock writes. What it reads was written by the user: [`or_bad_input`](super::OrBadInput::or_bad_input).
impl Fault for serde_json::Error {
    fn status(&self) -> Status {
        Status::Internal
    }
}

impl Fault for NamespaceError {
    fn status(&self) -> Status {
        kernels(&self.source)
    }
}

/// A request to the kernel that failed.
fn kernels(error: &io::Error) -> Status {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Status::Missing,
        _ => Status::Failed,
    }
}

impl Fault for ProcessError {
    fn status(&self) -> Status {
        match self {
            ProcessError::NotInstalled { .. } => Status::Missing,
            ProcessError::Start { source, .. } => kernels(source),
            ProcessError::Interrupted { .. } => Status::Interrupted,
            ProcessError::Failed { .. } | ProcessError::TimedOut { .. } => Status::Failed,
        }
    }
}

impl Fault for NetlinkError {
    fn status(&self) -> Status {
        match self {
            NetlinkError::Unsupported { .. } | NetlinkError::NoSuchInterface { .. } => Status::DoesNotFit,
            NetlinkError::NotPermitted { .. } => Status::Missing,
            NetlinkError::Refused { .. } | NetlinkError::Malformed { .. } | NetlinkError::TimedOut { .. } => {
                Status::Failed
            }
            NetlinkError::Namespace(error) => error.status(),
            NetlinkError::Socket { source, .. } => kernels(source),
        }
    }

    fn hints(&self) -> Vec<String> {
        self.hint().map(str::to_owned).into_iter().collect()
    }
}

impl Fault for PciError {
    fn status(&self) -> Status {
        match self {
            PciError::Missing { .. } | PciError::Unsupported { .. } => Status::DoesNotFit,
            PciError::Refused { source, .. } => kernels(source),
            PciError::Held { .. } => Status::Refused,
            PciError::NotBound { .. } | PciError::VfCount { .. } | PciError::Odd { .. } => Status::Failed,
            PciError::File(error) => kernels(&error.source),
        }
    }
}

impl Fault for PlaceError {
    fn status(&self) -> Status {
        match self {
            PlaceError::Process { source, .. } => source.status(),
            PlaceError::Interfaces { source, .. } => source.status(),
            PlaceError::File { .. } | PlaceError::Gone { .. } => Status::Failed,
        }
    }
}

impl Fault for FramesError {
    fn status(&self) -> Status {
        match self {
            FramesError::Namespace { source, .. } => source.status(),
            FramesError::Socket { source, .. } | FramesError::System { source, .. } => kernels(source),
            FramesError::NoSuchEndpoint { .. } => Status::Internal,
        }
    }
}

impl Fault for ProbeError {
    fn status(&self) -> Status {
        match self {
            ProbeError::Socket { why, .. } => kernels(why),
            ProbeError::Size { .. } | ProbeError::Rate { .. } => Status::BadInput,
        }
    }
}

impl Fault for CgroupError {
    fn status(&self) -> Status {
        match self {
            CgroupError::NotVersion2 | CgroupError::NoCpuset | CgroupError::TooOld { .. } => {
                Status::DoesNotFit
            }
            CgroupError::Gone { .. }
            | CgroupError::Shared { .. }
            | CgroupError::Invalid { .. }
            | CgroupError::Other { .. } => Status::Failed,
            CgroupError::InUse { .. } => Status::Refused,
            CgroupError::File(error) => kernels(&error.source),
        }
    }
}

impl Fault for ThreadsError {
    fn status(&self) -> Status {
        match self {
            ThreadsError::File { source, .. } => kernels(&source.source),
            ThreadsError::NoVcpus { .. } | ThreadsError::Ended { .. } => Status::Failed,
        }
    }
}

impl Fault for SchedulingError {
    fn status(&self) -> Status {
        match self {
            SchedulingError::Refused { .. } | SchedulingError::Restless { .. } => Status::Failed,
        }
    }
}

impl Fault for RealtimeError {
    fn status(&self) -> Status {
        match self {
            RealtimeError::Cgroup(error) => error.status(),
            RealtimeError::Scheduling(error) => error.status(),
            RealtimeError::Threads(error) => error.status(),
            RealtimeError::NoGroup | RealtimeError::NotAlone { .. } | RealtimeError::OtherCpus { .. } => {
                Status::Failed
            }
        }
    }
}

impl Fault for ConfigError {
    fn status(&self) -> Status {
        match self {
            ConfigError::Root { .. } | ConfigError::Device { .. } | ConfigError::State { .. } => {
                Status::BadInput
            }
        }
    }
}

impl Fault for VirshError {
    fn status(&self) -> Status {
        match self {
            VirshError::Missing | VirshError::Silent { .. } => Status::Missing,
            VirshError::NoDomain | VirshError::Refused { .. } => Status::Failed,
        }
    }
}

impl Fault for GuestError {
    fn status(&self) -> Status {
        match self {
            GuestError::Undefined { .. }
            | GuestError::TooManyFunctions { .. }
            | GuestError::WrongKind { .. } => Status::BadInput,
            GuestError::Busy { .. } => Status::Busy,
            GuestError::Running { .. }
            | GuestError::Elsewhere { .. }
            | GuestError::DeviceInUse { .. }
            | GuestError::InUse { .. }
            | GuestError::Held { .. } => Status::Refused,
            GuestError::NoLxc { .. }
            | GuestError::NoIds { .. }
            | GuestError::OthersRoot { .. }
            | GuestError::Closed { .. }
            | GuestError::NoLimits { .. }
            | GuestError::NoRate { .. }
            | GuestError::NoRoute { .. }
            | GuestError::NoSystemd { .. }
            | GuestError::NoVdpa { .. }
            | GuestError::NoVdpaRule { .. }
            | GuestError::NoComposition { .. }
            | GuestError::NoBuiltin { .. } => Status::Missing,
            GuestError::NoDns { .. }
            | GuestError::NoRoot { .. }
            | GuestError::NoFile { .. }
            | GuestError::NoDevice { .. }
            | GuestError::NoInterface { .. }
            | GuestError::NoKvm
            | GuestError::OtherProcessor { .. }
            | GuestError::NoFunction { .. }
            | GuestError::NoIommu { .. }
            | GuestError::NotVfio { .. }
            | GuestError::NotViable { .. }
            | GuestError::NoMemory { .. }
            | GuestError::NoTun { .. }
            | GuestError::NoHugePages { .. } => Status::DoesNotFit,
            GuestError::Ended { .. }
            | GuestError::NoLease { .. }
            | GuestError::NotInside { .. }
            | GuestError::WrongMac { .. }
            | GuestError::NoLink { .. }
            | GuestError::Interrupts { .. }
            | GuestError::Unstoppable { .. }
            | GuestError::NotBack { .. }
            | GuestError::NotMade { .. }
            | GuestError::Switch { .. }
            | GuestError::NoTaps { .. }
            | GuestError::NotThere { .. }
            | GuestError::Died { .. }
            | GuestError::NotReady { .. } => Status::Failed,
            GuestError::Garbled { .. } => Status::Internal,
            GuestError::State(error) => error.status(),
            GuestError::Node { source, .. } => source.status(),
            GuestError::Config(error) => error.status(),
            GuestError::NotPutRight { error, .. } => error.status(),
            GuestError::Netlink(error) => error.status(),
            GuestError::Lxc { source, .. } => source.status(),
            GuestError::Libvirt { source, .. } => source.status(),
            GuestError::Realtime { source, .. } => source.status(),
            GuestError::Taps { source, .. } => match &**source {
                TapError::Run { source, .. } => source.status(),
                TapError::List(source) => source.status(),
                TapError::Filters(_) => Status::Internal,
                TapError::NoBridge { .. } | TapError::Taken { .. } => Status::DoesNotFit,
            },
        }
    }

    fn hints(&self) -> Vec<String> {
        self.hint().into_iter().collect()
    }
}

impl Fault for ConsoleError {
    fn status(&self) -> Status {
        match self {
            ConsoleError::Lock { source, .. } => source.status(),
            ConsoleError::OnlyRoot { .. } => Status::Missing,
            ConsoleError::NotThere { .. } => Status::Failed,
            ConsoleError::Socket { source, .. } | ConsoleError::Line { source, .. } => kernels(source),
            ConsoleError::Lxc { source, .. } => source.status(),
        }
    }

    fn hints(&self) -> Vec<String> {
        self.hint().into_iter().collect()
    }
}

impl Fault for BoardError {
    fn status(&self) -> Status {
        match self {
            BoardError::Missing { .. }
            | BoardError::OtherProcessor { .. }
            | BoardError::Lacking { .. }
            | BoardError::NoSpace { .. }
            | BoardError::ProgramTooLarge { .. }
            | BoardError::Keyring { .. }
            | BoardError::Emulator { .. } => Status::Missing,
            BoardError::NoSuchBoard { .. }
            | BoardError::Taken { .. }
            | BoardError::Elsewhere { .. }
            | BoardError::Name { .. }
            | BoardError::NoDisk { .. } => Status::BadInput,
            BoardError::Download { .. }
            | BoardError::Build { .. }
            | BoardError::Damaged { .. }
            | BoardError::EmulatorEnded { .. }
            | BoardError::StaleTrap { .. }
            | BoardError::Died { .. }
            | BoardError::Switch { .. }
            | BoardError::Port { .. }
            | BoardError::NotReady { .. }
            | BoardError::Unreachable { .. }
            | BoardError::Bridges { .. }
            | BoardError::Control { .. }
            | BoardError::Stuck { .. } => Status::Failed,
            BoardError::Packed { source, .. } => match source {
                PackedError::Damaged(_) | PackedError::OtherRecipe { .. } | PackedError::Unopened(_) => {
                    Status::BadInput
                }
                PackedError::Interrupted => Status::Interrupted,
                PackedError::Io(source) => kernels(source),
                PackedError::File(error) => error.status(),
            },
            BoardError::Unproven { source, .. } => match source {
                ProofError::NoDigest(_)
                | ProofError::NoKey { .. }
                | ProofError::NoSignature { .. }
                | ProofError::Unsigned(_) => Status::BadInput,
                ProofError::OtherDigest { .. } | ProofError::Forged { .. } => Status::Refused,
            },
            BoardError::NoSwitch => Status::Internal,
            BoardError::Interrupted { .. } => Status::Interrupted,
            BoardError::File(error) => error.status(),
            BoardError::Process(error) => error.status(),
            BoardError::Socket { source, .. } => kernels(source),
            BoardError::Place(error) => error.status(),
        }
    }

    fn hints(&self) -> Vec<String> {
        self.hint().into_iter().collect()
    }
}

impl Fault for ClusterError {
    fn status(&self) -> Status {
        match self {
            ClusterError::NoGo { .. }
            | ClusterError::Modules { .. }
            | ClusterError::NoSpace { .. }
            | ClusterError::Full { .. } => Status::Missing,
            ClusterError::Name { .. }
            | ClusterError::Nodes { .. }
            | ClusterError::Taken { .. }
            | ClusterError::Elsewhere { .. }
            | ClusterError::NoSuchCluster { .. } => Status::BadInput,
            ClusterError::Build { .. }
            | ClusterError::Ended { .. }
            | ClusterError::NotReady { .. }
            | ClusterError::NodesNotReady { .. }
            | ClusterError::Stuck { .. }
            | ClusterError::Furnish { .. } => Status::Failed,
            ClusterError::ComingUp { .. } => Status::Busy,
            ClusterError::Left { error, .. } => error.status(),
            ClusterError::Port { source, .. } => kernels(source),
            ClusterError::Interrupted { .. } => Status::Interrupted,
            ClusterError::Secret(error) => error.status(),
            ClusterError::Board(error) => error.status(),
            ClusterError::File(error) => error.status(),
            ClusterError::Process(error) => error.status(),
            ClusterError::Node { source, .. } => source.status(),
        }
    }

    fn hints(&self) -> Vec<String> {
        self.hint().into_iter().collect()
    }
}

/// The runs of this machine are Penstock's own files.
impl Fault for StoreError {
    fn status(&self) -> Status {
        match self {
            StoreError::File(error) => error.status(),
            StoreError::Journal(error) => error.status(),
            StoreError::Damaged { .. } | StoreError::Newer { .. } => Status::Internal,
            StoreError::TooLong { .. } | StoreError::NoSuchRun(_) => Status::BadInput,
        }
    }
}

impl Fault for JournalError {
    fn status(&self) -> Status {
        match self {
            JournalError::File(error) => error.status(),
            JournalError::Write { source, .. } => source.status(),
            JournalError::Damaged { .. } | JournalError::Newer { .. } => Status::Internal,
        }
    }
}

impl Fault for ExecuteError {
    fn status(&self) -> Status {
        match self {
            ExecuteError::Unsupported(_) => Status::DoesNotFit,
            ExecuteError::Missing { .. } | ExecuteError::Refused { .. } => Status::Missing,
            ExecuteError::Failed { .. } | ExecuteError::TimedOut { .. } => Status::Failed,
        }
    }
}

impl Fault for StepError {
    fn status(&self) -> Status {
        match self {
            StepError::Execute(error) => error.status(),
            StepError::NotSo { .. } | StepError::Lost { .. } => Status::Failed,
            StepError::Journal(error) => error.status(),
            StepError::Cancelled => Status::Interrupted,
        }
    }

    fn hints(&self) -> Vec<String> {
        self.hint().map(str::to_owned).into_iter().collect()
    }
}

impl Fault for ApplyError {
    fn status(&self) -> Status {
        match self {
            // The planner makes no step that nobody carries out.
            ApplyError::NotCarried { .. } | ApplyError::NotObserved { .. } => Status::Internal,
            ApplyError::Journal(error) => error.status(),
            ApplyError::RolledBack { not_undone, .. }
            | ApplyError::Cancelled { not_undone, .. }
            | ApplyError::GuestsFailed { not_undone, .. }
                if not_undone.iter().any(NotUndone::is_left) =>
            {
                Status::HalfWay
            }
            ApplyError::RolledBack { .. } => Status::RolledBack,
            ApplyError::Cancelled { .. } => Status::Interrupted,
            ApplyError::GuestsFailed { .. } => Status::DoesNotHold,
            ApplyError::Incomplete { .. } => Status::HalfWay,
        }
    }

    fn hints(&self) -> Vec<String> {
        self.hint().map(str::to_owned).into_iter().collect()
    }
}

impl Fault for PlanError {
    fn status(&self) -> Status {
        match self {
            PlanError::Model(_) | PlanError::UnsupportedAttributes(_) | PlanError::Unsupported(_) => {
                Status::DoesNotFit
            }
            PlanError::Refused(_) => Status::Refused,
            PlanError::Files(_) | PlanError::Template(_) | PlanError::NoSuchGuest { .. } => Status::BadInput,
        }
    }

    fn hints(&self) -> Vec<String> {
        self.ways_round()
    }
}

impl Fault for GenerateError {
    fn status(&self) -> Status {
        match self {
            // A machine with such a PF would tell the address.
            GenerateError::Unknown(_) => Status::DoesNotFit,
            GenerateError::Model(_) | GenerateError::Template(_) => Status::BadInput,
        }
    }
}

/// A run directory is named by the user.
impl Fault for ReadError {
    fn status(&self) -> Status {
        match self {
            ReadError::Newer { .. }
            | ReadError::Form(_)
            | ReadError::Repeated { .. }
            | ReadError::TooMuch { .. } => Status::BadInput,
        }
    }
}

impl Fault for RedactError {
    fn status(&self) -> Status {
        match self {
            RedactError::Form(_) => Status::BadInput,
        }
    }
}
