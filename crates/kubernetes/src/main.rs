//! The binary.

use std::process::ExitCode;

use clap::Parser;
use penstock_kubernetes::{
    arguments::{CommandLine, Verb},
    attach, controller, host, image, log, manifests, node,
};

fn main() -> ExitCode {
    match CommandLine::parse().verb {
        // The container waits for it: nothing is started that it does not need.
        Verb::Attach(attach) => {
            attach::run(&attach.claim, &attach.device, attach.driver.as_str(), &attach.state)
        }
        Verb::Controller(arguments) => match controller::run(arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error),
        },
        Verb::Host(arguments) => match host::run(arguments) {
            Ok(never) => match never {},
            Err(error) => failed(&error),
        },
        Verb::Image(arguments) => match image::run(&arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error),
        },
        Verb::Manifests(manifests) => match manifests::print(&manifests) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error),
        },
        Verb::Node(arguments) => match node::run(*arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error),
        },
    }
}

fn failed(error: &(dyn std::error::Error + 'static)) -> ExitCode {
    log::say(format!("error: {}", penstock_host::chain(error)));
    ExitCode::FAILURE
}
