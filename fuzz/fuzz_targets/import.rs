//! Any bytes as a file of each program that `import` reads.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use penstock_exchange::{ImportFormat, import};
use penstock_model::{Inventory, Source, parse};

/// A machine with the names that the corpus has.
fn machine() -> &'static Inventory {
    static MACHINE: OnceLock<Inventory> = OnceLock::new();
    MACHINE.get_or_init(|| {
        serde_json::from_str(include_str!("../../crates/exchange/tests/machine.json")).expect("an inventory")
    })
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(source) = Source::from_bytes("foreign.yaml", bytes) else { return };
    for format in ImportFormat::ALL {
        match import(std::slice::from_ref(&source), format, Some(machine())) {
            Ok(imported) => {
                assert!(!imported.warnings[0].has_errors());
                imported.warnings[0].render(&source, true);
                assert!(parse(&Source::new("m.yaml", imported.model)).is_ok());
            }
            Err(messages) => {
                assert!(messages[0].has_errors());
                messages[0].render(&source, true);
            }
        }
    }
});
