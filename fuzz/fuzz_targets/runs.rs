//! Any bytes as the files of a run that `undo` and `status` read: its record, plan, journal, outcome and decision, one behind the
//! other with a byte 0xff between them. A file that is missing there is as it was written by Penstock.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use penstock_apply::{
    history::{Purpose, RunRecord, Runs, Who},
    journal,
};
use penstock_host::running::Running;

fn record() -> Vec<u8> {
    let process = Running { id: 1, started: 1 };
    let who = Who {
        process,
        user: "root".into(),
        command: vec!["apply".into()],
        since: 1,
        terminal: None,
        peer: None,
    };
    serde_json::to_vec(&RunRecord::new(Purpose::Apply, who)).expect("a record is text")
}

fuzz_target!(|bytes: &[u8]| {
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let directory = directory.expect("a temporary directory can be made");
    let runs = Runs::new(directory.path(), Some("boot".to_owned()));
    let run = runs.directory().join("1");
    fs::create_dir_all(&run).expect("a directory can be made");
    let mut parts = bytes.split(|byte| *byte == 0xff);
    for name in ["journal", "run.json", "plan.json", "outcome.json", "decision.json"] {
        match parts.next() {
            Some(part) => fs::write(run.join(name), part),
            None if name == "run.json" => fs::write(run.join(name), record()),
            None => Ok(()),
        }
        .expect("a file can be written");
    }
    let (entries, damage) = journal::read_past_damage(run.join("journal"));
    assert_eq!(journal::read(run.join("journal")).is_ok(), damage.is_none());
    let lines =
        bytes.split(|byte| *byte == 0xff).next().unwrap_or_default().split(|byte| *byte == b'\n').count();
    assert!(entries.len() <= lines);
    let (known, unreadable) = runs.list().expect("the directory is there");
    assert_eq!(known.len() + unreadable.len(), 1, "a run is told, whole or damaged");
    for run in &known {
        let state = runs.state(run);
        assert!(damage.is_none() || state.damage.is_some(), "damage is told");
        let _ = (runs.applied_run(run), runs.has_lapsed(run), runs.half_way(&known));
    }
});
