//! Times on the command line: one way to write them for every option.

use std::time::Duration;

/// The longest time that is read. More is a slip of the pen, and a clock must be able to add it to now.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// How a time is written.
const LIKE: &str = "write it like 500ms, 10s, 12min or 2h";

/// Reads a time with its unit: `500ms`, `10s`, `12min` or `12m`, `2h`, `1h 30min`. A number alone is refused, since some options of
/// other tools count seconds and some milliseconds; `0` needs no unit.
///
/// # Errors
///
/// In words for the command line: a number without a unit, `M` for minutes, no time at all, or more than a year.
pub fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return match text.bytes().all(|byte| byte == b'0') {
            true => Ok(Duration::ZERO),
            false => Err(format!("a time needs a unit: did you mean {text}ms or {text}s?")),
        };
    }
    // humantime's month.
    if let Some((number, _)) = text.split_once('M') {
        return Err(format!("M is no unit of time here: did you mean {}min?", number.trim_end()));
    }
    match humantime::parse_duration(text) {
        Ok(time) if time <= LONGEST => Ok(time),
        Ok(_) | Err(humantime::DurationError::NumberOverflow) => Err("that is longer than a year".to_owned()),
        Err(_) => Err(LIKE.to_owned()),
    }
}

/// Reads how long somebody has to confirm.
///
/// # Errors
///
/// As [`duration`], and for less than a second.
pub fn at_least_a_second(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        time if time >= Duration::from_secs(1) => Ok(time),
        _ => Err("at least 1 second is needed to confirm".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{CommandFactory, Parser, builder::ValueParser};

    use super::*;
    use crate::arguments::{Arguments, Verb};

    #[test]
    fn a_time_is_a_number_with_its_unit() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("10 sec", 10_000),
            ("12m", 720_000),
            ("12min", 720_000),
            ("2h", 7_200_000),
            ("1h 30min", 5_400_000),
            ("0.5s", 500),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for (text, said) in [
            ("500", "did you mean 500ms or 500s?"),
            ("10000", "did you mean 10000ms or 10000s?"),
            ("5M", "did you mean 5min?"),
            ("5 Min", "did you mean 5min?"),
            ("99999999999999999999", "needs a unit"),
            ("99999999999999999999s", "longer than a year"),
            ("400d", "longer than a year"),
            ("10x", LIKE),
            ("soon", LIKE),
            ("1.", LIKE),
            ("-1s", LIKE),
            ("", LIKE),
        ] {
            let error = duration(text).expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
        }
        // The longest can be added to any clock's now.
        assert!(std::time::Instant::now().checked_add(LONGEST * 2).is_some());
    }

    #[test]
    fn timeout_takes_units_and_is_ten_seconds_otherwise() {
        let timeout = |more: &[&str]| {
            let words = ["penstock", "verify", "m.yaml"].iter().chain(more);
            Arguments::try_parse_from(words).map(|parsed| match parsed.verb {
                Verb::Verify(verify) => verify.timeout,
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(timeout(&[]).unwrap(), Duration::from_secs(10));
        assert_eq!(timeout(&["--timeout", "500ms"]).unwrap(), Duration::from_millis(500));
        assert_eq!(timeout(&["--patience=2min"]).unwrap(), Duration::from_secs(120));
        let error = timeout(&["--timeout", "500"]).unwrap_err().to_string();
        assert!(error.contains("did you mean 500ms or 500s?"), "{error}");
    }

    #[test]
    fn every_number_on_the_command_line_is_a_count_or_has_a_unit() {
        fn numbers(command: &clap::Command, found: &mut BTreeSet<String>) {
            let raw = |parser: &ValueParser| {
                let kind = format!("{:?}", parser.type_id());
                ["u8", "u16", "u32", "u64", "usize", "i32", "i64", "f64", "NonZero"]
                    .iter()
                    .any(|number| kind.contains(number))
            };
            let raw = command.get_arguments().filter(|argument| raw(argument.get_value_parser()));
            found.extend(raw.map(|argument| argument.get_id().to_string()));
            // Penstocks talk to each other in verbs that are hidden.
            command.get_subcommands().filter(|sub| !sub.is_hide_set()).for_each(|sub| numbers(sub, found));
        }
        let mut found = BTreeSet::new();
        numbers(&Arguments::command(), &mut found);
        // Counts, and `half_width`, which is a share: 5% or 0.05.
        assert_eq!(Vec::from_iter(found), ["at_most", "half_width", "lines", "nodes", "samples", "seed"]);
    }
}
