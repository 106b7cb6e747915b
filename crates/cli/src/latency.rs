//! Measuring how late threads wake: what of a machine is measured, the machine tuned and untuned, and what came of it.

pub mod choice;
pub mod layout;
pub mod outcome;
pub mod perform;
pub mod remote;
pub mod toggle;
pub mod watch;

pub use choice::{Choice, RequestedRun};
