//! What is typed after `penstock audit`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::{Machines, NicAt, Strict, Subject, duration};

/// `audit`
#[derive(Debug, Args)]
pub struct Audit {
    /// The model; only what its real-time guests need is audited, on their CPUs
    pub model: Option<PathBuf>,
    /// Use the PF with this permanent MAC address for a NIC, instead of the model's `match`; repeat it for others
    #[arg(long = "nic", value_name = "NAME=MAC", requires = "model")]
    pub nics: Vec<NicAt>,
    /// What becomes of the model's warnings
    #[command(flatten)]
    pub strict: Strict,
    /// Audit a recorded machine: a directory that `--record` wrote, or one with sys and proc
    #[arg(long, value_name = "DIR", conflicts_with_all = ["record", "over"])]
    pub root: Option<PathBuf>,
    /// Also record everything that was read in this new or empty directory
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// First observe interrupts, idle states and system management interrupts for this time: 60s, 10m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub over: Option<Duration>,
    /// Print what is advised as a TuneD profile (`tuned.conf`) instead
    #[arg(long, conflicts_with = "tuned")]
    pub as_tuned: bool,
    /// Also say what this TuneD profile does of what is advised: its directory, or its `tuned.conf`
    #[arg(long, value_name = "PROFILE")]
    pub tuned: Option<PathBuf>,
    /// Show all rules in full, also those that pass
    #[arg(long, short)]
    pub verbose: bool,
    /// Other machines
    #[command(flatten)]
    pub machines: Machines,
    /// The model as the other verbs have it
    #[arg(skip)]
    subject: Option<Subject>,
}

impl Audit {
    /// The model that it is about, if any.
    pub fn subject_mut(&mut self) -> Option<&mut Subject> {
        let model = self.model.clone()?;
        let (nics, strict) = (self.nics.clone(), self.strict);
        Some(self.subject.get_or_insert(Subject { model, nics, strict, payload: None }))
    }
}
