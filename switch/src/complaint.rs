//! Lines on standard error that end nothing where nobody reads them.

/// Says something on standard error, as `eprintln!` does, behind the program's name. That one panics where it cannot write: with a full disk, or
/// when whoever read it is gone.
macro_rules! complain {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "penstock-switch: {}", format_args!($($words)*));
    }};
}
