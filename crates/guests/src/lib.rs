//! Guests of this host: define, start, stop, look inside.
//!
//! [`Containers`] are run by LXC, [`Vms`] by libvirt; [`Guests`] joins them. A guest's definition says which it is. [`incus`] finds
//! those that Incus runs, to look into them.
//!
//! What outlives a Penstock is kept in files ([`state`]); no daemon of Penstock's own runs.

pub mod console;
pub mod containers;
mod elsewhere;
pub mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod guests;
pub mod incus;
pub mod realtime;
mod route;
pub mod state;
pub mod status;
pub mod vms;
mod words;

pub use containers::{ContainerPlace, Containers, Recognise};
pub use error::GuestError;
pub use guests::Guests;
pub use status::{Condition, Status};
pub use vms::{Builtin, ConsolePlace, VmPlace, Vms};
