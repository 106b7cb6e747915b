//! Any bytes as a guest agent's answer, and as what a guest prints on its console.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_guests::vms::{agent, console_report, kernel_routes};

fuzz_target!(|bytes: &[u8]| {
    // Nothing is made of nothing: what is told is not longer than what was said.
    if let Ok(interfaces) = agent::interfaces(bytes) {
        let told: usize = interfaces.iter().map(|interface| 1 + interface.addresses.len()).sum();
        assert!(told <= bytes.len());
    }
    if let Ok(Some(ended)) = agent::ended(bytes) {
        assert!(ended.stdout.len() + ended.stderr.len() <= bytes.len());
        assert!((0..=255).contains(&ended.code));
    }
    if let Ok((chunk, _)) = agent::chunk(bytes) {
        assert!(chunk.len() <= bytes.len());
    }
    let _ = (agent::nothing(bytes), agent::handle(bytes), agent::pid(bytes));
    if let Some(nics) = console_report::parse(bytes) {
        let told: usize = nics.iter().map(|nic| 1 + nic.addresses.len()).sum();
        assert!(told <= bytes.len());
    }
    // Each route has a line of its own.
    let text = String::from_utf8_lossy(bytes);
    if let Some(routes) = kernel_routes::read(&text) {
        assert!(routes.len() < text.lines().count());
    }
});
