//! What packages hold beside the programs, made from the programs' own command lines and from what cargo knows of their dependencies:
//! manual pages, completions, licences, bills of materials. `scripts/make-packages` puts it where it belongs. Nothing here is shipped.
//!
//! The same commit gives the same bytes: no time but the commit's, no path of the machine, everything in order.

pub mod bill;
pub mod completions;
pub mod container;
pub mod dependencies;
pub mod licenses;
pub mod manual;

use std::{error::Error, process::ExitCode};

use clap::Command;

/// The exit status of a program of this crate, which says on standard error why it failed.
pub fn exit_status(program: &str, ended: Result<(), Box<dyn Error>>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {}", penstock_host::chain(&*error));
            ExitCode::FAILURE
        }
    }
}

/// A program that is packaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `penstock`
    Penstock,
    /// `penstock-kubernetes`
    Kubernetes,
    /// `penstock-switch`
    Switch,
}

impl Program {
    /// All of them.
    pub const ALL: [Program; 3] = [Program::Penstock, Program::Kubernetes, Program::Switch];

    /// The program's name, which its package has too.
    pub fn name(self) -> &'static str {
        match self {
            Program::Penstock => "penstock",
            Program::Kubernetes => "penstock-kubernetes",
            Program::Switch => "penstock-switch",
        }
    }

    /// The crate that has it.
    pub fn crate_name(self) -> &'static str {
        match self {
            Program::Penstock => "penstock-cli",
            Program::Kubernetes => "penstock-kubernetes",
            Program::Switch => "penstock-switch",
        }
    }

    /// Its command line.
    pub fn command(self) -> Command {
        let command = match self {
            Program::Penstock => penstock_cli::command(),
            Program::Kubernetes => penstock_kubernetes::arguments::command(),
            Program::Switch => penstock_switch::arguments::command(),
        };
        // `--version` has the commit too, which no page need change for.
        command.version(env!("CARGO_PKG_VERSION"))
    }
}
