//! Any bytes as a model file: read, checked, and what is wrong shown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_model::{Parsed, Source, parse};

fuzz_target!(|bytes: &[u8]| {
    let source = match Source::from_bytes("m.yaml", bytes) {
        Ok(source) => source,
        Err(messages) => {
            messages.render(&Source::new("m.yaml", ""), false);
            return;
        }
    };
    match parse(&source) {
        Ok(Parsed { warnings, .. }) => {
            assert!(!warnings.has_errors());
            warnings.render(&source, true);
        }
        Err(messages) => {
            assert!(messages.has_errors());
            messages.render(&source, true);
        }
    }
});
