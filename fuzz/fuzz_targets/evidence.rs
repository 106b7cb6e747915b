//! Any text as a run's evidence: rendered in every form, redacted, and compared with itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_report::{Evidence, compare::compare, html, markdown, redact::Redactor, sentence, summary};

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let Ok(evidence) = Evidence::from_json(&text) else { return };
    let again = Evidence::from_json(&evidence.json()).expect("what was written is read");
    assert_eq!(again.json(), evidence.json());
    for forbidden in ["<script", "\u{1b}", "\u{202e}", "\0"] {
        assert!(!html(&evidence).contains(forbidden), "the page contains {forbidden:?}");
    }
    assert!(!summary(&evidence).contains(|c: char| c.is_control() && c != '\n'));
    let _ = (markdown(&evidence), sentence(&evidence));
    let across = compare(&evidence, &evidence, None, Vec::new());
    assert!(across.verdicts.is_empty() && across.outcomes.is_empty() && across.unpaired.is_empty());
    if let Ok(redacted) = Redactor::new(&evidence, true).evidence(&evidence) {
        Evidence::from_json(&redacted.json()).expect("a redacted run is read");
    }
});
