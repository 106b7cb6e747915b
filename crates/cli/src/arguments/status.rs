//! What is typed after `penstock status`.

use std::path::PathBuf;

use clap::Args;

use super::{Machines, NicAt, Strict, Subject};

/// `status`
#[derive(Debug, Args)]
pub struct StatusRequest {
    /// Show a page on the terminal that is kept up to date, with rates and keys for consoles (docs/status.md)
    #[arg(long, conflicts_with_all = ["hosts", "hosts_from"])]
    pub watch: bool,
    /// The model, by whose names the page shows functions, and with which it compares the machine
    #[arg(requires = "watch")]
    pub model: Option<PathBuf>,
    /// Use the PF with this permanent MAC address for a NIC, instead of the model's `match`; repeat it for others
    #[arg(long = "nic", value_name = "NAME=MAC", requires = "model")]
    pub nics: Vec<NicAt>,
    /// What becomes of the model's warnings
    #[command(flatten)]
    pub strict: Strict,
    /// The machines that it runs on, if not this one
    #[command(flatten)]
    pub machines: Machines,
}

impl StatusRequest {
    /// The model as the other verbs have it.
    pub fn subject(&self) -> Option<Subject> {
        let model = self.model.clone()?;
        Some(Subject { model, nics: self.nics.clone(), strict: self.strict, payload: None })
    }
}
