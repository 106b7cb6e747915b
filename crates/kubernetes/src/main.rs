//! The binary.

use clap::Parser;

/// SR-IOV NICs on Kubernetes, by Dynamic Resource Allocation
#[derive(Debug, Parser)]
#[command(name = "penstock-kubernetes", version)]
enum Arguments {}

fn main() {
    match Arguments::parse() {}
}
