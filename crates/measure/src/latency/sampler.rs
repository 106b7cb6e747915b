//! What it is to take blocks: the part of a run that touches the machine, its guests and the tools.

use std::{collections::BTreeMap, time::Duration};

use penstock_model::measurement::latency::{Setting, ToolVersion};

use crate::record::RawOutput;

/// Takes the blocks of a latency run, on a machine.
pub trait Sampler {
    /// Looks for the tools that all these need. What fails makes settings missing and nothing else. Called once, before the first
    /// block.
    fn prepare(&mut self, settings: &[Setting]) -> Preparation;

    /// Takes one block, so long. The machine is as the setting's arm has it, and its load runs, or does not, before the tool
    /// starts.
    ///
    /// # Errors
    /// When the tool could not be run or did not end in time. An interrupt is such an error too.
    fn take(&mut self, setting: &Setting, length: Duration) -> Result<RawOutput, Failure>;

    /// Ends the load, and leaves the machine as it was found. Goes on past errors and tells them. Called once, whatever happened
    /// before.
    fn finish(&mut self) -> Vec<String>;
}

/// Why a block could not be taken, in words for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// This block; the next may go well.
    Block(String),
    /// The machine could not be tuned or untuned: nothing can be measured any more.
    Machine(String),
}

/// What looking came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preparation {
    /// What cannot be measured, by [`Setting::id`], each with the reason.
    pub missing: BTreeMap<String, String>,
    /// The tools that were found.
    pub tools: Vec<ToolVersion>,
    /// What the reader should know beside.
    pub notes: Vec<String>,
}
