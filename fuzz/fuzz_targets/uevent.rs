//! Any bytes as the kernel's message of a device's event.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(event) = penstock_host::uevent::parse(bytes) {
        // What is told is part of what came.
        assert!(event.action.len() + event.path.len() < bytes.len());
        let _ = event.function();
    }
});
