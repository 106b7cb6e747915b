//! Any bytes as configuration space and as a PCI id database, and any text as a recorded machine: scanned.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use penstock_host::{
    Root,
    scan::{
        capability,
        lifelines::{Started, lifelines},
        names, scan,
    },
};
use penstock_testkit::sysfs;

fuzz_target!(|bytes: &[u8]| {
    let _ = capability::sriov(bytes);
    let text = String::from_utf8_lossy(bytes);
    let wanted = BTreeSet::from([(0x8086, 0x15ad), (0x8086, 0x10ed)]);
    assert!(names::look_up(&text, &wanted).len() <= wanted.len());
    // In memory where there is such a place: a tree is hundreds of files.
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let directory = directory.expect("a temporary directory can be made");
    if sysfs::plant(&text, directory.path()).is_ok() {
        let inventory = scan(&Root::at(directory.path()), None);
        for sriov in inventory.pfs.iter().filter_map(|pf| pf.sriov.as_ref()) {
            assert!(sriov.vfs.len() <= usize::from(sriov.total_vfs));
        }
        let started = Started {
            ssh_connection: Some(text.chars().take(100).collect()),
            process: Some(1),
            ..Started::default()
        };
        for unknown in &lifelines(&Root::at(directory.path()), None, &started).unknown {
            assert!(!unknown.why.contains(char::is_control));
        }
        for text in &inventory.unknown {
            assert!(!text.contains(char::is_control));
        }
    }
});
