//! Runs a plan on a machine and proves the outcome.
//!
//! - [`executor`]: carries out the host's steps: sysfs and netlink writes, functions named by PCI address.
//! - [`history`]: the runs that changed a machine, and how they are taken back.
//! - [`journal`]: what is about to be written, on disk before it is written.
//! - [`runner`]: takes a plan's steps in order, reads each postcondition back, rolls back when one fails.
//! - [`verify`](mod@verify): compares model and machine anew. It shares nothing with the three above: a mistake of theirs
//!   must not hide itself.

pub mod capabilities;
pub mod executor;
pub mod history;
pub mod journal;
pub mod runner;
pub mod verify;

pub use executor::HostExecutor;
pub use journal::{FileJournal, Journal};
pub use runner::{Applied, ApplyError, Mode, Options, RunProgress, run};
pub use verify::{Effort, GuestPlace, KernelObserver, Observer, attributes, verify};
