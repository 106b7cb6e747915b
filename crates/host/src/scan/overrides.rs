//! Drivers that the operator has chosen for functions for good: what `driverctl` keeps.

use std::collections::BTreeMap;

use penstock_model::Bdf;

use super::reader::{Reader, quoted};
use crate::pci::CHOSEN_DRIVERS;

/// What `driverctl` loads for PCI functions when they appear.
pub(super) fn chosen(reader: &mut Reader<'_>) -> BTreeMap<Bdf, String> {
    let mut chosen = BTreeMap::new();
    for name in reader.list(CHOSEN_DRIVERS) {
        // Devices of other buses (`vmbus-...`) are none of ours.
        let Ok(bdf) = name.strip_prefix("pci-").unwrap_or(&name).parse::<Bdf>() else { continue };
        let path = format!("{CHOSEN_DRIVERS}/{name}");
        match reader.text(&path) {
            Some(driver) if is_driver(&driver) => drop(chosen.insert(bdf, driver)),
            Some(other) if !other.is_empty() => {
                reader.note(format!("{path} holds {}, which is no driver's name", quoted(&other)));
            }
            _ => {}
        }
    }
    chosen
}

fn is_driver(text: &str) -> bool {
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !text.is_empty() && text.len() <= 64 && !text.starts_with('.') && text.bytes().all(sound)
}
