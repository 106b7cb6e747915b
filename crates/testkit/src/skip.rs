//! Tests of the built-in harness that find out only as they run that they cannot, or that a part of them cannot: that harness has no such
//! outcome and counts them as passed. They say so past its capture, as [`trials`](crate::trials) says it of theirs, and `make test` tells.

use std::{
    fmt::Display,
    io::{self, Write},
    thread,
};

/// What stands before the name of a test that could not run, and the reason.
pub const WHOLE: &str = "could not run ";
/// What stands before the name of a test of which a part could not run, and the reason.
pub const PART: &str = "left out of ";

/// Says that the test which calls this cannot run here. It is to return at once.
pub fn whole(why: impl Display) {
    tell(WHOLE, &why);
}

/// The same of a part of it; the rest goes on.
pub fn part(why: impl Display) {
    tell(PART, &why);
}

/// The path of the test whose thread this is; of one that shares its thread with all others (`--test-threads=1`), nothing but that.
fn this_test() -> String {
    match thread::current().name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => "a test".to_owned(),
    }
}

fn tell(start: &str, why: &dyn Display) {
    // The harness captures what is printed, and not what is written.
    let _ = io::stderr().write_all(line(start, &this_test(), why).as_bytes());
}

/// A line of its own wherever it comes: with one thread the harness has begun one by then (`test NAME ... `).
fn line(start: &str, test: &str, why: &dyn Display) -> String {
    format!("\n{start}{test}: {why}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_a_line_wherever_the_harness_has_begun_one() {
        let output = format!("test kept::b ... {}ok\n", line(WHOLE, "kept::b", &"needs root"));
        let told = output.lines().filter(|line| line.starts_with(WHOLE));
        assert_eq!(told.collect::<Vec<_>>(), ["could not run kept::b: needs root"]);
    }
}
