//! The program `penstock`.

use std::process::ExitCode;

fn main() -> ExitCode {
    penstock_cli::main()
}
