//! What is typed after `penstock audit`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::{Machines, NicAt, Strict, Subject, duration};

/// `audit`
#[derive(Debug, Args)]
pub struct Audit {
    /// The model: only what it needs is judged, on the CPUs of its real-time guests
    pub model: Option<PathBuf>,
    /// Take the PF with this permanent MAC address for a NIC, whatever the model's `match` says
    #[arg(long = "nic", value_name = "NAME=MAC", requires = "model")]
    pub nics: Vec<NicAt>,
    /// What becomes of the model's warnings
    #[command(flatten)]
    pub strict: Strict,
    /// Judge a recorded tree instead of this machine: a directory that `--record` wrote, or that holds sys and proc
    #[arg(long, value_name = "DIR", conflicts_with_all = ["record", "over"])]
    pub root: Option<PathBuf>,
    /// Also write what was read, and nothing else, into this directory, which is empty or not there yet
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// First watch for so long what goes on: interrupts, idle states, system management interrupts (60s, 10m)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub over: Option<Duration>,
    /// Show every row in full, also those that pass
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
