//! From a [`Model`](penstock_model::Model) and an [`Inventory`](penstock_model::Inventory) to an ordered [`Plan`], purely.
//!
//! A plan is data: immutable, ordered, reviewable. Each step says what it does ([`Action`]), why, what it needs, how it
//! is undone, and which [`Fact`] holds afterwards. Nothing is decided while it is carried out. The [`check`](mod@check)
//! module judges a finished plan without knowing how it was made; the [`danger`] module says what it would take away.

pub mod action;
pub mod adopt;
mod arrival;
pub mod boot;
pub mod check;
mod count;
pub mod danger;
mod definition;
mod draft;
mod drive;
pub mod drivers;
pub mod error;
mod eswitch;
pub mod execute;
mod external;
pub mod fact;
mod files;
mod fits;
mod free;
mod guest;
mod lent;
mod managers;
pub mod names;
mod nic;
mod nics;
mod order;
mod outdated;
mod overrides;
pub mod overview;
pub mod persist;
mod planner;
mod planning;
pub mod probing;
mod realtime;
pub mod resolve;
mod restore;
pub mod step;
mod stop;
mod tenant;
mod text;
mod unsupported;
mod uplink;
mod vfs;
mod waits;
mod wanted;
mod way_back;

pub use action::{
    Action, ActionGroup, ActionTimeLimit, BootAction, ControllerResources, Direction, DriveAction,
    FileAction, FunctionAction, GuestAction, InterfaceSetup, RealTimeAction, VlanSetup,
};
pub use arrival::{modes_not_known, not_there_yet};
pub use boot::boot_needs;
pub use check::{Finding, check};
pub use danger::{Danger, Effects, dangers, effects, in_use};
pub use definition::{VmCpus, vm_cpus};
pub use drive::resolve_drives;
pub use error::{PlanError, Refusal};
pub use execute::{Execute, ExecuteError, ExecuteGuests, ExecuteHost, Executors, Observe};
pub use fact::Fact;
pub use free::stranger;
pub use names::Names;
pub use nics::{NicOnMachine, VfOnMachine, lasting_match, nics_on_machine, vf_ranges};
pub use overview::overview;
pub use planning::{plan, plan_without_guests, start, stop, undo};
pub use realtime::{PARTITION, group_of, housekeeping};
pub use resolve::{resolve, resolve_what_is_there};
pub use step::{Plan, Step, StepId};
pub use waits::longest_waits;
pub use way_back::{WayBack, way_back};
