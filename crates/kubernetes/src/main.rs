//! The binary.

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use penstock_kubernetes::{attach, identity};

/// SR-IOV NICs on Kubernetes, by Dynamic Resource Allocation
#[derive(Debug, Parser)]
#[command(name = "penstock-kubernetes", version)]
enum Arguments {
    /// Give a container its VF: the hook that a container runtime runs
    Attach {
        /// The claim's UID
        #[arg(long)]
        claim: String,
        /// The device
        #[arg(long)]
        device: String,
        /// The driver's name
        #[arg(long, default_value = identity::DRIVER)]
        driver: String,
        /// The agent's directory
        #[arg(long, default_value = identity::STATE)]
        state: PathBuf,
    },
}

fn main() -> ExitCode {
    match Arguments::parse() {
        Arguments::Attach { claim, device, driver, state } => attach::run(&claim, &device, &driver, &state),
    }
}
