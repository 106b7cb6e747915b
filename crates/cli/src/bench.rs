//! Measuring this machine, and watching a machine being measured: what of a model is measured, with what, and where the
//! samples are kept.

pub mod choice;
pub mod outcome;
pub mod perform;
pub mod remote;
pub mod requested;
pub mod samples;
pub mod testbed;
pub mod watch;
pub mod wire;

pub use choice::{Choice, ON_A_BOARD, RequestedRun};
pub use requested::Requested;
