//! How time and memory grow with size: VFs, guests, steps of a plan, cells of a report, ports of a switch. Whole processes of the release
//! binary. Prints a table, keeps each sample in `bench/samples/growth.json` and draws a picture for each kind of size in `target/`.
//!
//! Arguments after `--` choose among `vfs`, `guests`, `steps`, `cells`, `ports`; all of them without any. `repeats=N` (7) is how often
//! each is measured, `most=N` leaves larger sizes out, and `docs` puts the pictures into `docs/pictures/`. `kept` measures nothing and shows
//! the samples that are kept.
#![allow(clippy::disallowed_methods)]

#[path = "../audit/mod.rs"]
mod audit;
mod cells;
mod choice;
mod curve;
mod kept;
mod machines;
mod picture;
mod ports;
mod process;
mod rounds;
mod settled;
mod table;
mod verified;

use choice::{Axis, Choice};

#[path = "../../../report/tests/runs/mod.rs"]
mod runs;

fn main() {
    process::launch_if_asked();
    settled::plan_if_asked();
    verified::verify_if_asked();
    let choice = Choice::read(std::env::args().skip(1));
    let mut curves = if choice.kept { kept::read() } else { Vec::new() };
    for axis in choice.axes() {
        eprintln!("{}", axis.label());
        curves.extend(match axis {
            Axis::Vfs => machines::by_vfs(&choice),
            Axis::Guests => machines::by_guests(&choice),
            Axis::Steps => machines::by_steps(&choice),
            Axis::Cells => cells::measure(&choice),
            Axis::Ports => ports::measure(&choice),
        });
    }
    table::print(&curves);
    if choice.is_trial() {
        println!("\nnothing is kept of a trial: it measured less than all sizes, or each less often");
    } else if !choice.kept {
        kept::keep(&curves, &choice.words);
    }
    picture::draw(&curves, choice.docs);
}
