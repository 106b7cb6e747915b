//! Guests of this host: define, start, stop, look inside.
//!
//! [`Containers`] are run by LXC.

pub mod containers;
pub mod error;
pub mod state;
pub mod status;

pub use containers::{ContainerPlace, Containers, Recognise};
pub use error::GuestError;
pub use status::{Condition, Status};
