//! Evidence of a run, and its rendering as HTML, Markdown, JSON and a few lines for a terminal. Pure.
//!
//! [`Evidence`] is the record of one run: inputs by hash, versions, the steps that were carried out, where the time
//! went, and one [`Verdict`](penstock_model::Verdict) per attribute that was looked at. Its JSON form is documented on
//! the types. The renderings show what the evidence says and decide nothing: whether a run holds is
//! [`Evidence::holds`].
//!
//! What guests and serial lines wrote is shown as text only: the HTML escapes everything, and control characters
//! never reach a terminal.

mod audit;
mod charts;
pub mod compare;
pub mod evidence;
mod extent;
pub mod groups;
mod latency_files;
pub mod machine;
mod markdown;
mod markdown_text;
mod measurements;
pub mod metrics;
mod origin;
mod page;
mod picture;
mod reach;
mod real_time;
pub mod redact;
mod rulings;
mod seconds;
mod section;
mod sentence;
mod shown;
mod summary;
mod templates;

pub use charts::log_chart::{LogChart, LogLine, drawing};
pub use evidence::{
    Accelerator, Audits, EVIDENCE_VERSION, Evidence, Hashes, ModelFile, Phase, ReadError, Run, StepOutcome,
    StepRecord, Versions,
};
pub use groups::{Counts, Group, GroupName};
pub use latency_files::{LatencyFiles, LatencyFormat, latency_files};
pub use machine::{Machine, MachineFunction, MachineGuest, MachineNic, MachineVf};
pub use markdown::markdown;
pub use page::html;
pub(crate) use penstock_model::text as printable;
pub use sentence::sentence;
pub use summary::summary;
