//! A board's clock, which stood still while the board was saved.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use penstock_host::{Command, Output, ProcessError};

use crate::error::BoardError;

/// How far off it is in the end, at most and in nanoseconds, where looks do not take too long to show that.
const PRECISION: u64 = 1_000_000_000;

/// How often it is looked at, at most. Where each look takes too long, the last one decides.
const LOOKS: usize = 10;

/// Moves the clock by so many nanoseconds, and tells it in nanoseconds since 1970. How far and not where to: however long the command
/// is on its way, it does the same.
const SCRIPT: &str = r#"if [ "$1" != 0 ]; then
    to=$(($(date +%s%N) + $1))
    date -s "@$((to / 1000000000)).$(printf %09d $((to % 1000000000)))" >/dev/null || exit
fi
date +%s%N"#;

/// Sets the clock to this machine's, which `now` tells in nanoseconds since 1970. `run` runs a command on the board, which is given so much time.
///
/// # Errors
///
/// [`BoardError::Unreachable`] when the board does not answer, or with something else than a time.
pub fn set(
    allowed: Duration,
    now: impl Fn() -> i64,
    run: impl Fn(&Command) -> Result<Output, ProcessError>,
) -> Result<(), BoardError> {
    let mut behind = 0;
    for _ in 0..LOOKS {
        let script = ["-c", SCRIPT, "sh", &i64::to_string(&behind)];
        let before = now();
        let output = run(&Command::new("sh").args(script).deadline(allowed)).and_then(Output::succeeded);
        let after = now();
        let said = output.map_err(|error| BoardError::Unreachable { why: error.to_string() })?.text();
        let clock: i64 = said.trim().parse().map_err(|_| BoardError::Unreachable {
            why: format!("asked for its clock in nanoseconds, it says: {}", said.trim()),
        })?;
        // It was read at some moment in between.
        let off = clock.abs_diff(before).max(clock.abs_diff(after));
        let may_be_right = (before..=after).contains(&clock);
        let was_set = behind != 0;
        if off <= PRECISION && (was_set || may_be_right) {
            break;
        }
        let middle = before.saturating_add(after.saturating_sub(before) / 2);
        behind = if may_be_right { 0 } else { middle.saturating_sub(clock) };
    }
    Ok(())
}

/// This machine's clock in nanoseconds since 1970.
pub fn here() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, os::unix::process::ExitStatusExt, process::ExitStatus};

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// How far a board is off in the end that was `off` nanoseconds off, and how often it was asked, where the way there and the way back take
    /// so many each time, the last ones from then on.
    fn left_of(off: i64, ways: &[(i64, i64)]) -> (i64, usize) {
        // This machine's clock, how far the board's is off, and how often it was asked.
        let state = RefCell::new((1_700_000_000 * SECOND, off, 0));
        let run = |command: &Command| {
            let mut state = state.borrow_mut();
            let (there, back) = ways[state.2.min(ways.len() - 1)];
            let by: i64 = command.arguments().last().unwrap().to_str().unwrap().parse().unwrap();
            state.0 += there;
            state.1 += by;
            let stdout = format!("{}\n", state.0 + state.1).into_bytes();
            state.0 += back;
            state.2 += 1;
            let status = ExitStatus::from_raw(0);
            Ok(Output { command: String::new(), status, stdout, stderr: Vec::new(), truncated: false })
        };
        set(Duration::from_secs(60), || state.borrow().0, run).unwrap();
        let state = state.borrow();
        (state.1, state.2)
    }

    #[test]
    fn however_long_a_command_is_on_its_way_the_clock_is_right() {
        let quick = (SECOND / 50, SECOND / 50);
        assert_eq!(left_of(0, &[quick]), (0, 1), "one that is right is let alone");
        let days = 40 * 86_400 * SECOND;
        for off in [-days, -3 * SECOND, SECOND / 4, days] {
            assert_eq!(left_of(off, &[quick]), (0, 2));
            // The first one makes the connection, and a few come to a board that has much else to do.
            let slow = (5 * SECOND, SECOND / 10);
            let (left, asked) = left_of(off, &[(2 * SECOND, SECOND / 50), slow, slow, quick]);
            assert!(left.unsigned_abs() <= PRECISION && asked <= 6, "{left} ns off after {asked} looks");
        }
        // One that is always slow is a board all the same, and nothing better can be known of it; nor is it moved for nothing.
        let slow = (3 * SECOND, SECOND);
        let (left, asked) = left_of(-days, &[slow]);
        assert!(left.abs() <= 2 * SECOND && asked == LOOKS, "{left} ns off after {asked} looks");
        assert_eq!(left_of(0, &[slow]), (0, LOOKS));
    }

    #[test]
    fn a_shell_moves_the_clock_by_what_it_is_told() {
        let tell = |by: &str| {
            let date =
                "date() { case $1 in -s) echo \"set $2\" >&2 ;; *) echo 1700000000900000000 ;; esac; }";
            let script = format!("{date}\n{SCRIPT}");
            let output = Command::new("sh").args(["-c", &script, "sh", by]).succeed().unwrap();
            (output.text(), output.errors())
        };
        let told = |set: &str| ("1700000000900000000\n".to_owned(), set.to_owned());
        assert_eq!(tell("0"), told(""));
        assert_eq!(tell("200000001"), told("set @1700000001.100000001\n"));
        assert_eq!(tell("-900000000"), told("set @1700000000.000000000\n"));
    }

    #[test]
    fn what_is_no_clock_is_told() {
        let run = |_: &Command| Command::new("printf").arg("1700000000N").run();
        let error = set(Duration::from_secs(60), here, run).unwrap_err().to_string();
        assert!(error.ends_with("asked for its clock in nanoseconds, it says: 1700000000N"), "{error}");
    }
}
