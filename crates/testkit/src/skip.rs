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
    tell(WHOLE, &this_test(), &why);
}

/// The same of a part of it; the rest goes on.
pub fn part(why: impl Display) {
    tell(PART, &this_test(), &why);
}

/// The same as [`whole`], where it is another thread of the test `test` that finds it out.
pub fn whole_of(test: &str, why: impl Display) {
    tell(WHOLE, test, &why);
}

/// The path of the test whose thread this is; of one that shares its thread with all others (`--test-threads=1`), nothing but that.
pub fn this_test() -> String {
    match thread::current().name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => "a test".to_owned(),
    }
}

fn tell(start: &str, test: &str, why: &dyn Display) {
    // The harness captures what is printed, and not what is written.
    let _ = io::stderr().write_all(format!("{start}{test}: {why}\n").as_bytes());
}
