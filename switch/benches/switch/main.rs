//! `make bench-switch`: the embedded switch against Open vSwitch with DPDK, and against the memory. Prints a table and keeps JSON.
//!
//! Arguments are `rows=` (a list of [`rows::ALL`]) and `pairs=` (runs of each, ours and the peer's in turn). Needs root, two CPUs
//! and what `scripts/install-dependencies bench-switch` installs.
#![allow(clippy::disallowed_methods, reason = "it runs others' programs")]
#![allow(unsafe_code, reason = "the copy limit is measured on shared memory")]

mod choice;
mod connection;
mod copying;
mod flow;
mod format;
mod frames;
mod front;
mod lane;
mod latency;
mod memory;
mod packets;
mod peer;
mod ports;
mod prepared;
mod prepared_pair;
mod prepared_ring;
mod processes;
mod prompt;
mod report;
mod segments;
mod supervisor;
mod switches;
mod testpmd;
mod vms;
mod workers;

use std::process::ExitCode;

use penstock_testkit::needs;

use self::{choice::Choice, report::Report, supervisor::Workshop};

fn main() -> ExitCode {
    let choice = match Choice::read(std::env::args().skip(1)) {
        Ok(choice) => choice,
        Err(wrong) => {
            eprintln!("{wrong}");
            return ExitCode::from(2);
        }
    };
    match Workshop::here() {
        None => {
            let missing = needs::of_target("bench-switch");
            if !missing.is_empty() {
                eprintln!(
                    "nothing was measured:\n  {}\n`make bench-switch` installs them",
                    missing.join("\n  ")
                );
                return ExitCode::from(4);
            }
            supervisor::run()
        }
        Some(workshop) => measure(&choice, &workshop),
    }
}

fn measure(choice: &Choice, workshop: &Workshop) -> ExitCode {
    processes::before_all_others();
    let mut report = Report::default();
    frames::measure(choice, workshop, &mut report);
    segments::measure(choice, workshop, &mut report);
    latency::measure(choice, workshop, &mut report);
    ports::measure(choice, workshop, &mut report);
    workers::measure(choice, workshop, &mut report);
    vms::measure(choice, workshop, &mut report);
    report.print();
    match report.keep(workshop) {
        Ok(path) => println!("\nraw samples: {}", path.display()),
        Err(error) => {
            eprintln!("the samples could not be kept: {error}");
            return ExitCode::FAILURE;
        }
    }
    if report.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
