//! Recorded outputs of the real tools are read; every beginning of one, and every odd one, is refused.
#![allow(clippy::disallowed_methods)]

use penstock_measure::{
    latency::{
        command::nameless,
        parse::{LatencyOutput, cyclictest, hackbench, hwlatdetect, oslat, timerlat},
    },
    output::OutputError,
};
use proptest::prelude::*;

fn recorded(name: &str) -> String {
    let path = format!("{}/tests/outputs/latency/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

fn why(told: Result<LatencyOutput, OutputError>) -> String {
    told.unwrap_err().to_string()
}

#[test]
fn cyclictest_has_what_its_histogram_lacks_as_overflow() {
    let told = cyclictest::json(recorded("cyclictest-2.40.json").as_bytes(), 400).unwrap();
    // It printed "# Histogram Overflows: 00005" to a person, and nothing of it into its JSON.
    assert_eq!((told.counts.total(), told.counts.over()), (14962, 5));
    assert_eq!((told.min, told.mean, told.max), (9.0, 18.61, 4500.0));
    assert_eq!((told.version.as_deref(), told.cpu), (Some("2.40"), Some(1)));
    assert_eq!(told.counts.bins().next(), Some((9, 1)));
    assert_eq!(told.counts.at_least(378), Some(6));
}

#[test]
fn cyclictest_without_a_histogram_or_with_two_threads_is_refused() {
    let none = recorded("cyclictest-2.40-no-histogram.json");
    assert!(why(cyclictest::json(none.as_bytes(), 400_000)).contains("but the longest is 1619 us"));
    let two = recorded("cyclictest-2.40-two-threads.json");
    assert!(why(cyclictest::json(two.as_bytes(), 50)).contains("it tells of 2 of 2"));
}

#[test]
fn cyclictest_that_contradicts_itself_is_refused() {
    let text = recorded("cyclictest-2.40.json");
    let read = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        why(cyclictest::json(text.replacen(from, to, 1).as_bytes(), 400))
    };
    assert!(read("\"cycles\": 14962", "\"cycles\": 14956").contains("hold 14957 latencies, and only 14956"));
    assert!(read("\"cycles\": 14962", "\"cycles\": -1").contains("cut off or is not what was asked for"));
    assert!(read("\"max\": 4500", "\"max\": 399").contains("beyond 400 us, but the longest is 399 us"));
    assert!(read("\"max\": 4500", "\"max\": 1e300").contains("the longest"));
    assert!(read("\"min\": 9", "\"min\": 5").contains("the first bin is that of 9 us"));
    assert!(read("\"378\": 1", "\"-3\": 1").contains("a bin \"-3\""));
    assert!(read("\"378\": 1", "\"401\": 1").contains("ends at 400 us"));
    assert!(read("\"378\": 1", "\"378\": 18446744073709551615").contains("2^64"));
    assert!(read("\"file_version\": 1", "\"file_version\": 2").contains("its form is 2"));
    assert!(read("\"return_code\": 0", "\"return_code\": 1").contains("ended with 1"));
    assert!(read("\"cycles\": 14962,", "").contains("missing field `cycles`"));
    let idle = r#"{"file_version": 1, "rt_test_version:": "2.40", "return_code": 0, "num_threads": 1,
        "thread": {"0": {"histogram": {}, "cycles": 0, "min": 1000000, "max": 0, "avg": 0.0, "cpu": 1}}}"#;
    assert_eq!(why(cyclictest::json(idle.as_bytes(), 400)), "cyclictest ran, but counted no latency");
    assert_eq!(why(cyclictest::json(b" \n", 400)), "cyclictest printed nothing");
}

#[test]
fn oslat_has_its_last_bucket_as_overflow() {
    let told = oslat::json(recorded("oslat-2.40.json").as_bytes(), 32).unwrap();
    assert_eq!((told.counts.over(), told.counts.limit(), told.max), (83, 32, 31472.0));
    assert_eq!(told.counts.bins().next_back(), Some((31, 1)));
    // Asked for more buckets than it has: the last is none then.
    assert!(oslat::json(recorded("oslat-2.40.json").as_bytes(), 64).is_err());
}

#[test]
fn timerlat_tells_of_the_interrupt_and_of_the_thread() {
    let both = timerlat::histogram(recorded("timerlat-6.12.txt").as_bytes(), 100).unwrap();
    assert_eq!(
        (both.interrupt.counts.total(), both.interrupt.counts.over(), both.interrupt.max),
        (5000, 0, 9.0)
    );
    assert_eq!((both.thread.counts.total(), both.thread.counts.over(), both.thread.max), (5000, 4, 112.0));
    assert_eq!(both.thread.cpu, Some(2));
    let text = recorded("timerlat-6.12.txt");
    let read = |from: &str, to: &str| {
        timerlat::histogram(text.replacen(from, to, 1).as_bytes(), 100).unwrap_err().to_string()
    };
    assert!(read("5000      5000", "5001      5000").contains("but it counted 5001"));
    assert!(read("microseconds", "nanoseconds").contains("its unit"));
    assert!(read("Thr-002", "Thr-003").contains("not of one CPU"));
    assert!(read("3             1       750", "3             1").contains("a line reads"));
}

#[test]
fn hwlatdetect_tells_the_longest_or_that_there_was_none() {
    let text = recorded("hwlatdetect-2.4.txt");
    let found = hwlatdetect::summary(text.as_bytes()).unwrap();
    assert_eq!((found.longest, found.exceeding, found.smis), (Some(312.0), 3, None));
    let none =
        text.replace("312us", "Below threshold").replace("exceeding threshold: 3", "exceeding threshold: 0");
    let none = format!("{none}SMIs during run: 2\n");
    let found = hwlatdetect::summary(none.as_bytes()).unwrap();
    assert_eq!((found.longest, found.exceeding, found.smis), (None, 0, Some(2)));
    let odd = text.replace("exceeding threshold: 3", "exceeding threshold: 0");
    assert!(hwlatdetect::summary(odd.as_bytes()).is_err());
}

#[test]
fn hackbench_tells_how_long_each_time_took() {
    let text = recorded("hackbench-2.4.txt");
    assert_eq!(hackbench::times(text.as_bytes()), Ok(vec![0.009, 0.012, 0.006]));
    assert_eq!(hackbench::times(&text.as_bytes()[..text.len() - 3]), Ok(vec![0.009, 0.012]), "cut off");
    assert!(hackbench::times(b"Time: -1\n").is_err() && hackbench::times(b"Time: nan\n").is_err());
}

#[test]
fn what_is_cut_off_anywhere_is_refused() {
    let whole = |text: &str, at: usize| text[at..].trim().is_empty();
    let (cyclic, os) = (recorded("cyclictest-2.40.json"), recorded("oslat-2.40.json"));
    for (text, read) in [
        (&cyclic, (|bytes: &[u8]| cyclictest::json(bytes, 400).is_ok()) as fn(&[u8]) -> bool),
        (&os, |bytes| oslat::json(bytes, 32).is_ok()),
    ] {
        for at in 0..text.len() {
            assert!(!read(&text.as_bytes()[..at]) || whole(text, at), "cut off at {at}");
        }
    }
    let timer = recorded("timerlat-6.12.txt");
    for at in 0..timer.len() {
        assert!(timerlat::histogram(&timer.as_bytes()[..at], 100).is_err(), "cut off at {at}");
    }
    let firmware = recorded("hwlatdetect-2.4.txt");
    let end = firmware.find("ts:").unwrap();
    for at in 0..end {
        assert!(hwlatdetect::summary(&firmware.as_bytes()[..at]).is_err(), "cut off at {at}");
    }
}

#[test]
fn the_machines_name_is_not_kept() {
    for name in ["cyclictest-2.40.json", "oslat-2.40.json"] {
        let kept = nameless(&recorded(name));
        assert!(!kept.contains("somebodys-machine") && kept.contains("\"nodename\": \"\""), "{kept}");
    }
    let told = |text: &str| cyclictest::json(text.as_bytes(), 400);
    let text = recorded("cyclictest-2.40.json");
    assert_eq!(told(&nameless(&text)), told(&text));
}

proptest! {
    #[test]
    fn no_bytes_bring_a_reader_down(bytes in proptest::collection::vec(any::<u8>(), 0..400), limit in 0..2000u32) {
        for told in [cyclictest::json(&bytes, limit), oslat::json(&bytes, limit)] {
            prop_assert!(told.is_err());
        }
        let _ = (timerlat::histogram(&bytes, limit), hwlatdetect::summary(&bytes), hackbench::times(&bytes));
        let text = String::from_utf8_lossy(&bytes);
        nameless(&text);
        nameless(&format!("{{\"nodename\": \"{text}"));
    }

    #[test]
    fn a_change_of_one_byte_is_never_taken_for_nothing(at in 0..4000usize, byte in any::<u8>()) {
        let mut bytes = recorded("cyclictest-2.40.json").into_bytes();
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(told) = cyclictest::json(&bytes, 400) {
            prop_assert!(told.counts.total() > 0 && told.max >= told.mean);
        }
    }
}
