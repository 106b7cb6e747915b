//! What is typed after `penstock metrics`.

use std::path::PathBuf;

use clap::Args;

use super::{NicAt, Strict, Subject};

/// `metrics`
#[derive(Debug, Args)]
pub struct Metrics {
    /// The model, by whose names functions are then also known
    pub model: Option<PathBuf>,
    /// Use the PF with this permanent MAC address for a NIC, instead of the model's `match`; repeat it for others
    #[arg(long = "nic", value_name = "NAME=MAC", requires = "model")]
    pub nics: Vec<NicAt>,
    /// What becomes of the model's warnings
    #[command(flatten)]
    pub strict: Strict,
    /// Also compare the machine with the model, as `verify` does without sending frames
    #[arg(long, requires = "model", conflicts_with = "root")]
    pub verify: bool,
    /// Write DIR/penstock.prom for node_exporter's textfile collector instead of printing
    #[arg(long, value_name = "DIR")]
    pub textfile: Option<PathBuf>,
    /// Read a recorded tree instead of this machine: a directory that holds sys and proc; it has no counters
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

impl Metrics {
    /// The model as the other verbs have it.
    pub fn subject(&self) -> Option<Subject> {
        let model = self.model.clone()?;
        Some(Subject { model, nics: self.nics.clone(), strict: self.strict, payload: None })
    }
}
