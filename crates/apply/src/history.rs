//! The runs that changed this machine: what each did, what of it may still stand, and how that is taken back.
//!
//! - [`record`]: who, when, with which command, and on which run of the kernel.
//! - [`state`]: from a journal to what became of each step. Pure.
//! - [`recovery`]: from runs and what is there to the plan that takes them back. Pure.
//! - [`overrides`]: which drivers a run that was cut off may have forced on functions without taking that back. Pure.
//! - [`decision`]: a run that waits for confirmation is confirmed or taken back, never both.
//! - [`succession`]: which runs have gone on from what others left. Pure.
//! - [`store`]: the runs on disk, each in a directory of its own. [`carried`](mod@carried): the journal of an undo.

pub mod carried;
pub mod decision;
pub mod overrides;
pub mod record;
pub mod recovery;
pub mod state;
pub mod store;
pub mod succession;

pub use carried::UndoJournal;
pub use decision::{Confirmation, Decision};
pub use record::{Confirm, Outcome, Purpose, RunId, RunRecord, Who};
pub use recovery::{UndoPlan, way_back};
pub use state::{Fate, Phase, RunState};
pub use store::{KnownRun, Runs, StoreError, Undecided};

#[cfg(test)]
mod tests;
