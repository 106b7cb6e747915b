//! Records of runs that try to take all memory. In a program of its own: the memory of the process is measured.
#![allow(clippy::disallowed_methods)]

use penstock_model::{Verdict, verdict::Subject};
use penstock_report::{
    Evidence, ReadError,
    redact::{self, Redactor},
};
use penstock_testkit::memory::{peak, status};

/// What `docs/reports.md` says, for each of these.
const MOST: u64 = 512 << 20;

/// And for the evidence that is redacted.
const REDACTED_MOST: u64 = 1 << 30;

/// As many values and objects as are read, but for a few of the record's own.
const VALUES: usize = (4 << 20) - 100;
const KEPT_VALUES: usize = (1 << 20) - 100;
const OBJECTS: usize = (512 << 10) - 100;

fn list(item: &str, count: usize) -> String {
    format!("[{item}{}]", format!(",{item}").repeat(count - 1))
}

#[test]
fn no_record_of_a_run_takes_all_memory() {
    let record =
        |version: u32, key: &str, value: &str| format!("{{\"version\":{version},\"{key}\":{value}}}");
    let keys = |count: usize| {
        let all: Vec<String> = (0..count).map(|number| format!("\"{number}\":0")).collect();
        format!("{{{}}}", all.join(","))
    };
    let verdicts = |count: usize| {
        let of = |number: usize| {
            let attribute = number.to_string();
            Verdict::of_host(Subject::Machine, &attribute, String::new(), Ok((String::new(), true)))
        };
        serde_json::to_string(&(0..count).map(of).collect::<Vec<_>>()).unwrap()
    };
    let step = r#"{"id":1,"what":"","why":"","outcome":"done"}"#;
    let guest = r#"{"name":"web","kind":"vm"}"#;
    // What is as large as it may be.
    let read = [
        ("nothing known", record(2, "unknown", &list("0", VALUES))),
        ("steps", record(2, "steps", &list(step, OBJECTS))),
        ("verdicts", record(2, "verdicts", &verdicts(VALUES / 10))),
        ("phases", record(2, "phases", &list(r#"{"name":"","seconds":0}"#, OBJECTS))),
        ("notes", record(2, "notes", &list("\"\"", VALUES))),
        ("guests", record(2, "machine", &format!("{{\"guests\":{}}}", list(guest, OBJECTS)))),
        ("verdicts of version 1", record(1, "verdicts", &verdicts(KEPT_VALUES / 10))),
        ("numbers of version 1", record(1, "unknown", &list("0", KEPT_VALUES))),
        ("objects of version 1", record(1, "unknown", &list("{\"\":0}", OBJECTS))),
        ("keys of version 1", record(1, "unknown", &keys(KEPT_VALUES))),
        ("lists of version 1", record(1, "unknown", &list("[0]", KEPT_VALUES / 2))),
    ];
    // What is free again may stay with the process, and counts.
    let before = status("VmRSS");
    for (name, text) in read {
        assert!(text.len() <= 64 << 20, "{name}: no file of a run's evidence is longer");
        let (read, _) = peak(|| Evidence::from_json(&text).map(drop));
        let took = status("VmHWM").saturating_sub(before);
        println!("{name}: {} MiB for {} MiB", took >> 20, text.len() >> 20);
        assert!(read.is_ok(), "{name}: {read:?}");
        assert!(took < MOST, "{name}: {} MiB", took >> 20);
    }
    // What is larger is refused before anything is made of it.
    let refused = [
        record(2, "unknown", &list("0", VALUES + 200)),
        record(2, "steps", &list("{}", OBJECTS + 200)),
        record(1, "unknown", &list("0", KEPT_VALUES + 200)),
        record(1, "unknown", &list("0", 32 << 20)),
    ];
    for text in refused {
        let (read, took) = peak(|| Evidence::from_json(&text));
        let error = read.expect_err("it is too much");
        assert!(matches!(error, ReadError::TooMuch { .. }), "{error}");
        assert!(took < 1 << 20, "{took} bytes: {error}");
    }
    // The same of what is to be redacted, and a text that is no JSON is as long as it likes.
    let (checked, took) = peak(|| redact::check(&list("0", KEPT_VALUES + 200)));
    assert!(matches!(checked, Err(ReadError::TooMuch { .. })), "{checked:?}");
    assert!(took < 16 << 20, "{took}");
    redact::check(&format!("log: {}", list("0", KEPT_VALUES + 200))).unwrap();
    // A kernel's log begins as a list does, and lines as well as values may come before what shows that it is none.
    let line = "[    0.000000] [mem 0x0-0x1], [mem 0x2-0x3], [mem 0x4-0x5]\n";
    redact::check(&line.repeat(KEPT_VALUES / 5)).unwrap();
    let lines = format!("{}no JSON", "[0,0,0,0,0,0,0,0,0]\n".repeat(KEPT_VALUES / 4));
    let logs = [format!("{} and more", list("0", 4 << 20)), lines];
    let mut redactor = Redactor::new(&Evidence::default(), false);
    for log in logs {
        let ((), took) = peak(|| {
            redact::check(&log).unwrap();
            redactor.learn(&log);
        });
        println!("log: {} MiB", took >> 20);
        assert!(took < 64 << 20, "{took}: {}", &log[..40]);
    }
    let (lines, _) = peak(|| redact::check(&"[0,0,0,0,0,0,0,0,0]\n".repeat(KEPT_VALUES / 8)));
    assert!(matches!(lines, Err(ReadError::TooMuch { .. })), "{lines:?}");
    // The evidence itself, which is a value more than once while it is redacted.
    let evidence = [
        record(2, "notes", &list("\"10.1.2.3\"", KEPT_VALUES - 400)),
        record(2, "steps", &list(step, KEPT_VALUES / 10)),
        record(2, "verdicts", &verdicts(KEPT_VALUES / 12)),
    ];
    for text in evidence {
        let before = status("VmRSS");
        let evidence = Evidence::from_json(&text).unwrap();
        let (redacted, _) = peak(|| {
            redact::check(&evidence.json()).unwrap();
            Redactor::new(&evidence, false).evidence(&evidence).map(drop)
        });
        redacted.unwrap();
        let took = status("VmHWM").saturating_sub(before);
        println!("redacted: {} MiB for {} MiB", took >> 20, text.len() >> 20);
        assert!(took < REDACTED_MOST, "{} MiB", took >> 20);
    }
    let many = Evidence::from_json(&record(2, "notes", &list("\"\"", KEPT_VALUES + 200))).unwrap();
    assert!(matches!(redact::check(&many.json()), Err(ReadError::TooMuch { .. })));
}
