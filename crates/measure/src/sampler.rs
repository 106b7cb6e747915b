//! What it is to take samples: the part of a run that touches guests and tools. The order, the statistics and the end of a
//! run are decided elsewhere ([`crate::engine`] and its workloads), against this.

use std::{collections::BTreeMap, time::Duration};

use penstock_model::measurement::{Link, ToolVersion};
use thiserror::Error;

use crate::{matrix::Planned, record::RawOutput};

/// Takes samples: of cells (`P`), with tools that are described so (`T`), or of what another workload plans.
pub trait Sampler<P = Planned, T = ToolVersion> {
    /// Makes ready what all these need (addresses, servers, a bridge, files), and looks at tools and links first. What
    /// fails makes some missing and nothing else. Called once, before the first sample.
    fn prepare(&mut self, planned: &[P]) -> Preparation<T>;

    /// The samples to come are of this round.
    fn enter_round(&mut self, _round: u32) {}

    /// Takes one sample of what was made ready, as long as `dwell`.
    ///
    /// # Errors
    /// When the tool could not be run or did not end in time. An interrupt is such an error too.
    fn take(&mut self, planned: &P, dwell: Duration) -> Result<RawOutput, Failure>;

    /// Gives back all that [`Sampler::prepare`] and [`Sampler::take`] made: addresses, servers, bridges and files are as before, and
    /// so is how the machine is tuned. Goes on past errors and tells them; what is already gone is a success. Called once,
    /// whatever happened before.
    fn finish(&mut self) -> Vec<String>;
}

/// Why a sample could not be taken, in words for a person.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// This sample; the next may go well.
    #[error("{0}")]
    Sample(String),
    /// The machine is not as it has to be: nothing can be measured any more.
    #[error("{0}")]
    Machine(String),
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure::Sample(why)
    }
}

/// What making ready came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Preparation<T = ToolVersion> {
    /// What cannot be measured, by id, each with the reason.
    pub missing: BTreeMap<String, String>,
    /// The tools that were found.
    pub tools: Vec<T>,
    /// The links' speeds.
    pub links: Vec<Link>,
    /// What the reader should know beside.
    pub notes: Vec<String>,
}

impl<T> Default for Preparation<T> {
    fn default() -> Preparation<T> {
        Preparation { missing: BTreeMap::new(), tools: Vec::new(), links: Vec::new(), notes: Vec::new() }
    }
}

impl<T> Preparation<T> {
    /// Takes in what another part made ready.
    pub fn merge(&mut self, other: Preparation<T>) {
        self.missing.extend(other.missing);
        self.tools.extend(other.tools);
        self.links.extend(other.links);
        self.notes.extend(other.notes);
    }
}
