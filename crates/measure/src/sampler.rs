//! What it is to take samples: the part of a run that touches guests and tools. The order, the statistics and the end of a
//! run are decided elsewhere ([`crate::run`]), against this.

use std::{collections::BTreeMap, time::Duration};

use penstock_model::measurement::{Link, ToolVersion};

use crate::{matrix::Planned, record::RawOutput};

/// Takes samples of cells.
pub trait Sampler {
    /// Makes ready what all these cells need (addresses, servers, a bridge, files), and looks at tools and links first. What
    /// fails makes cells missing and nothing else. Called once, before the first sample.
    fn prepare(&mut self, cells: &[Planned]) -> Preparation;

    /// Takes one sample of a prepared cell, as long as `dwell`.
    ///
    /// # Errors
    /// In words for a person, when the tool could not be run or did not end in time. An interrupt is such an error too.
    fn take(&mut self, cell: &Planned, dwell: Duration) -> Result<RawOutput, String>;

    /// Gives back all that [`Sampler::prepare`] made: addresses, servers, bridges and files are as before. Goes on past errors
    /// and tells them; what is already gone is a success. Called once, whatever happened before.
    fn finish(&mut self) -> Vec<String>;
}

/// What making ready came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preparation {
    /// The cells that cannot be measured, by id, each with the reason.
    pub missing: BTreeMap<String, String>,
    /// The tools that were found.
    pub tools: Vec<ToolVersion>,
    /// The links' speeds.
    pub links: Vec<Link>,
    /// What the reader should know beside.
    pub notes: Vec<String>,
}

impl Preparation {
    /// Takes in what another part made ready.
    pub fn merge(&mut self, other: Preparation) {
        self.missing.extend(other.missing);
        self.tools.extend(other.tools);
        self.links.extend(other.links);
        self.notes.extend(other.notes);
    }
}
