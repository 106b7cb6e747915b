//! What the fuzz targets reach of this crate: readers of what other programs answer. See fuzz/README.md.

use std::collections::BTreeMap;

use crate::{incus, vms};

/// The bytes are what Incus answers: of itself, its instances and its operations, with a zero byte between them. How many guests it tells of.
pub fn incus(bytes: &[u8]) -> usize {
    let mut answers = bytes.split(|byte| *byte == 0);
    let mut next = || answers.next().unwrap_or_default();
    incus::read_answers(next(), next(), next())
}

/// The text is what `virsh` says, and answers to its questions; the lines of it that are shown.
pub fn virsh(text: &str) -> Vec<String> {
    vms::read_virsh(text)
}

/// The bytes are what QEMU's monitor answers of the filters of the device `d`; the ports of which it tells.
pub fn filters(bytes: &[u8]) -> Vec<String> {
    let devices = BTreeMap::from([("d".to_owned(), "port".to_owned())]);
    vms::read_filters(bytes, &devices)
}
