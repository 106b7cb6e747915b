//! What a step does to a machine, by who carries it out.

use std::{fmt, mem, time::Duration};

use penstock_model::{Bdf, CpuSet, GuestName};
use serde::Serialize;

use crate::{
    Fact,
    names::{self, Names},
};

mod boot;
mod drive;
mod file;
mod function;
mod guest;
mod interface_setup;
mod read;
mod realtime;

pub(crate) use boot::merged;
pub use boot::{BootAction, BootArguments, BootFile, has_words};
pub use drive::{ControllerResources, DriveAction};
pub(crate) use drive::{io_queues, resources};
pub use file::FileAction;
pub use function::{Direction, FunctionAction};
pub use guest::{GuestAction, GuestDefinition, GuestFunction, GuestNic};
pub use interface_setup::{InterfaceSetup, VlanSetup};
pub use realtime::{RealTimeAction, Schemata};
pub(crate) use realtime::{Shares, resctrl_group};

/// One write to a machine. Functions are named by the address that they have on *this* machine; their interfaces are
/// found from it when the step is carried out, because a VF's interface has no name before it exists.
///
/// In JSON it is the action alone: its name, which no two groups share, tells the group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(untagged)]
#[allow(clippy::large_enum_variant, reason = "a plan has one definition a guest, and they are few")]
pub enum Action {
    /// To a function of the host, or to its interface.
    Function(FunctionAction),
    /// To an NVMe drive, for one of its VFs.
    Drive(DriveAction),
    /// To a guest, or to what the host keeps for it alone.
    Guest(GuestAction),
    /// To what decides how late a thread of the host wakes.
    RealTime(RealTimeAction),
    /// To what counts from the next start of the machine on.
    Boot(BootAction),
    /// To a file that the model generates.
    File(FileAction),
}

/// A group of actions: those that one executor carries out.
pub trait ActionGroup: Into<Action> + Sized {
    /// The action as one of this group; `None` for one of another.
    fn of(action: &Action) -> Option<&Self>;
}

/// How long an action may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionTimeLimit {
    /// As long as any step: [`STEP_LIMIT`] unless somebody says otherwise.
    Step,
    /// As long as it may take to start or to stop a guest: [`GUEST_LIMIT`] unless somebody says otherwise.
    Guest,
    /// It waits for at most so many seconds.
    Wait(u32),
}

/// How long one step of the host may take, its read-back included; 200 VFs at once under software emulation take about a second.
pub const STEP_LIMIT: Duration = Duration::from_secs(60);
/// How long starting or stopping one guest may take.
pub const GUEST_LIMIT: Duration = Duration::from_secs(120);

/// What is said of a step that has no inverse.
pub(crate) struct NoInverse {
    /// What takes it back with itself where it is of the same plan, and why that is enough.
    pub goes_with: Option<(GoesWith, &'static str)>,
    /// Else why it is not taken back, and why that is no harm, or what is left.
    pub why: String,
}

/// What an earlier step made that takes with it what a later one did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GoesWith {
    /// The VFs of a PF.
    VfsOf(Bdf),
    /// The driver of a function.
    DriverOf(Bdf),
    /// The guest that the step is part of.
    Guest,
}

impl NoInverse {
    const WAITS: &str = "it only waits";

    fn new(why: impl Into<String>) -> NoInverse {
        NoInverse { goes_with: None, why: why.into() }
    }

    /// A planner gives such an action an inverse. One that came without it is told as it is.
    fn unexpected() -> NoInverse {
        NoInverse::new("nothing takes it back")
    }

    fn unless(self, goes_with: GoesWith, why: &'static str) -> NoInverse {
        NoInverse { goes_with: Some((goes_with, why)), ..self }
    }
}

/// Why most actions without an inverse stay.
const UNKNOWN_BEFORE: &str = "what was so before is not known";

impl Action {
    /// The function of the host that it is done to; `None` for what is done to a guest or a file.
    pub fn function(&self) -> Option<Bdf> {
        match self {
            Action::Function(action) => action.function(),
            Action::Drive(action) => Some(action.drive()),
            Action::Guest(_) | Action::RealTime(_) | Action::Boot(_) | Action::File(_) => None,
        }
    }

    /// Whether it tunes the machine for real time and nothing else: taking it back leaves guests, functions and files as they are.
    pub fn is_realtime(&self) -> bool {
        match self {
            Action::RealTime(_) => true,
            Action::Guest(action) => action.is_realtime(),
            Action::Function(_) | Action::Drive(_) | Action::Boot(_) | Action::File(_) => false,
        }
    }

    /// Whether it puts an embedded switch into a mode.
    pub fn sets_eswitch_mode(&self) -> bool {
        matches!(self, Action::Function(FunctionAction::SetEswitchMode { .. }))
    }

    /// The guest that it is done to; `None` for what is done to the host.
    pub fn guest(&self) -> Option<&GuestName> {
        match self {
            Action::Guest(action) => Some(action.guest()),
            Action::Function(_)
            | Action::Drive(_)
            | Action::RealTime(_)
            | Action::Boot(_)
            | Action::File(_) => None,
        }
    }

    /// Whether the rest of a plan makes sense without this action. Everything else carries later steps: VFs that do not
    /// exist cannot be bound, and a guest that does not start has nothing to verify.
    pub fn is_setting(&self) -> bool {
        match self {
            Action::Function(action) => action.is_setting(),
            Action::Guest(action) => action.is_setting(),
            Action::RealTime(action) => action.is_setting(),
            Action::Drive(_) | Action::Boot(_) | Action::File(_) => false,
        }
    }

    /// How long it may take.
    pub fn time_limit(&self) -> ActionTimeLimit {
        match self {
            Action::Function(action) => action.time_limit(),
            Action::Guest(action) => action.time_limit(),
            Action::Drive(_) | Action::RealTime(_) | Action::Boot(_) | Action::File(_) => {
                ActionTimeLimit::Step
            }
        }
    }

    /// Whether what it does is still there when the kernel is started anew. VFs, attributes, drivers and addresses are the
    /// kernel's; guests are defined in `/run` and are processes; files stay.
    pub fn outlives_reset(&self) -> bool {
        match self {
            Action::Boot(_) | Action::File(_) => true,
            // Resources and attachments may be the drive's to keep, but its VFs are gone, and with them what uses these.
            Action::Function(_) | Action::Drive(_) | Action::Guest(_) | Action::RealTime(_) => false,
        }
    }

    /// What it took away that nobody can bring back where nothing is known of what was before; `None` for what takes nothing.
    pub fn lost_for_good(&self) -> Option<&'static str> {
        match self {
            Action::Function(action) => action.lost_for_good(),
            Action::Guest(action) => action.lost_for_good(),
            Action::Drive(_) | Action::RealTime(_) | Action::Boot(_) => Some(UNKNOWN_BEFORE),
            Action::File(_) => Some("what the file held before is not known"),
        }
    }

    /// What is said of it where it has no inverse.
    pub(crate) fn no_inverse(&self) -> NoInverse {
        match self {
            Action::Function(action) => action.no_inverse(),
            Action::Drive(action) => action.no_inverse(),
            Action::Guest(action) => action.no_inverse(),
            Action::RealTime(action) => action.no_inverse(),
            Action::Boot(_) | Action::File(_) => NoInverse::unexpected(),
        }
    }

    /// Whether both are of one kind, whatever they are done to.
    pub fn is_like(&self, other: &Action) -> bool {
        fn same<A: ActionGroup>(one: &A, other: &Action) -> bool {
            A::of(other).is_some_and(|other| mem::discriminant(one) == mem::discriminant(other))
        }
        match self {
            Action::Function(action) => same(action, other),
            Action::Drive(action) => same(action, other),
            Action::Guest(action) => same(action, other),
            Action::RealTime(action) => same(action, other),
            Action::Boot(action) => same(action, other),
            Action::File(action) => same(action, other),
        }
    }

    /// What is true after it.
    pub(crate) fn after(&self) -> Fact {
        match self {
            Action::Function(action) => action.after(),
            Action::Drive(action) => action.after(),
            Action::Guest(action) => action.after(),
            Action::RealTime(action) => action.after(),
            Action::Boot(action) => action.after(),
            Action::File(action) => action.after(),
        }
    }

    /// The same as its `Display`, with functions named as in `names`.
    pub fn named(&self, names: &Names) -> String {
        names::text(|f| self.write(f, names))
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, names: &Names) -> fmt::Result {
        match self {
            Action::Function(action) => action.write(f, names),
            Action::Drive(action) => action.write(f, names),
            Action::Guest(action) => action.write(f, names),
            Action::RealTime(action) => action.write(f, names),
            Action::Boot(action) => action.write(f, names),
            Action::File(action) => action.write(f, names),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &Names::default())
    }
}

macro_rules! groups {
    ($($name:ident($group:ty),)*) => {$(
        impl From<$group> for Action {
            fn from(action: $group) -> Action {
                Action::$name(action)
            }
        }

        impl ActionGroup for $group {
            fn of(action: &Action) -> Option<&$group> {
                if let Action::$name(action) = action { Some(action) } else { None }
            }
        }

        impl fmt::Display for $group {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.write(f, &Names::default())
            }
        }
    )*};
}

/// Gives all groups to a macro.
macro_rules! with_groups {
    ($given_to:ident) => {
        $given_to! {
            Function(FunctionAction),
            Drive(DriveAction),
            Guest(GuestAction),
            RealTime(RealTimeAction),
            Boot(BootAction),
            File(FileAction),
        }
    };
}
use with_groups;

with_groups!(groups);

/// `CPU 2`, `CPUs 2-3`.
pub(crate) fn named(cpus: &CpuSet) -> String {
    match cpus.0.len() {
        1 => format!("CPU {cpus}"),
        _ => format!("CPUs {cpus}"),
    }
}
