//! Any text as a table of interrupts, as the schemata of a class of service, and as a recorded machine that is audited.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_host::{
    Root, resctrl,
    scan::{
        scan,
        tuning::{interrupts::Table, tuning},
    },
};
use penstock_testkit::sysfs;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    for line in Table::parse(&text).into_iter().flat_map(|table| table.lines) {
        assert!(line.counts.values().all(|count| *count > 0));
        assert!(!line.users.iter().any(|user| user.contains(char::is_control)));
    }
    if let Some(schemata) = resctrl::parsed(&text) {
        assert!(schemata.len() <= text.lines().count());
    }
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let directory = directory.expect("a temporary directory can be made");
    if sysfs::plant(&text, directory.path()).is_ok() {
        let root = Root::recorded(directory.path());
        let mut inventory = scan(&root, None);
        let (tuning, unknown) = tuning(&root, &inventory);
        inventory.tuning = Some(tuning);
        for note in &unknown {
            assert!(!note.contains(char::is_control));
        }
        let found = penstock_audit::audit(&inventory, None);
        assert_eq!(found.score, penstock_model::audit::Score::of(&found.rows));
    }
});
