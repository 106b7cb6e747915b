//! Runs a plan on a machine: each step journaled before it is taken, and taken back when one fails.
//!
//! - [`executor`]: carries out the host's steps: sysfs and netlink writes, functions named by PCI address.
//! - [`history`]: the runs that changed a machine, and how they are taken back.
//! - [`journal`]: what is about to be written, on disk before it is written.
//! - [`runner`]: takes a plan's steps in order, reads each postcondition back, rolls back when one fails.
//!
//! Whether the machine then is what the model says is `penstock-verify`'s to tell, which uses nothing of this crate.

pub mod capabilities;
pub mod executor;
pub mod history;
pub mod journal;
mod others;
pub mod runner;
#[cfg(test)]
mod steps;

pub use executor::{HostExecutor, MayTake};
pub use journal::{FileJournal, Journal};
pub use runner::{Applied, ApplyError, Mode, Options, RunProgress, run};
