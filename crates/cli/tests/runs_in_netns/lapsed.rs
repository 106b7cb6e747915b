//! Runs that a reset of the machine, or the end of their guard, has left.

use penstock_apply::history::{Confirmation, Decision, decision};

use super::*;

pub const CHECKS: [(&str, Check); 5] = [
    ("after_a_reset_nothing_of_the_kernel_is_touched_in_netns", after_a_reset),
    ("what_was_being_taken_back_when_the_machine_was_reset_is_taken_back_in_netns", a_reset_of_a_way_back),
    ("a_lapsed_run_that_cannot_be_taken_back_keeps_nobody_in_netns", a_lapsed_run_that_stays),
    ("a_guard_that_was_killed_goes_on_when_it_is_started_again_on_a_full_disk_in_netns", a_guard_again),
    ("what_nobody_watches_any_more_is_taken_back_when_the_machine_starts_in_netns", nobody_watches),
];

fn after_a_reset(host: &Host) {
    let file = host.path("made");
    let path = file.display().to_string();
    let write = FileAction::WriteFile { path: path.clone(), text: "text".to_owned() }.into();
    let steps = [(mtu(9000), mtu(1500)), (write, FileAction::RemoveFile { path }.into())];
    host.left(Some("another".to_owned()), &steps, true);
    fs::write(&file, "text").unwrap();
    // Somebody's own, since the machine started.
    ip("link set pf0 mtu 4000");
    host.says("undo", 0);
    assert!(!file.exists());
    assert_eq!(seen("mtu"), "4000");
    assert!(host.says("undo", 0).contains("Nothing to undo"));
}

/// A run with this file, which nobody had confirmed when the machine was reset.
fn lapsed(host: &Host, file: &Path) -> KnownRun {
    let path = file.display().to_string();
    let write = FileAction::WriteFile { path: path.clone(), text: "text".to_owned() }.into();
    let steps = [(write, FileAction::RemoveFile { path }.into())];
    let run = host.left(Some("another".to_owned()), &steps, true);
    let confirm = Some(Confirm { within: 600_000, at_most: 60_000 });
    let record = RunRecord { confirm, ..run.record.clone() };
    fs::write(run.directory.join("run.json"), serde_json::to_vec(&record).unwrap()).unwrap();
    fs::write(file, "text").unwrap();
    run
}

/// A model that wants nothing of the function, which is a NIC's from now on.
fn model(host: &Host) -> String {
    for (name, text) in [("class", "0x020000"), ("vendor", "0x8086"), ("device", "0x10c9")] {
        fs::write(host.path(&format!("sys/bus/pci/devices/{PF}/{name}")), text).unwrap();
    }
    let path = host.path("model.yaml");
    fs::write(&path, "nics: {NET0: {externally_managed: true}}\n").unwrap();
    path.display().to_string()
}

fn a_reset_of_a_way_back(host: &Host) {
    let (stop, file) = (format!("stop {}", model(host)), host.path("made"));
    for verdict in
        [None, Some(Confirmation::Expired), Some(Confirmation::Failed), Some(Confirmation::TakenBack)]
    {
        let run = lapsed(host, &file);
        if let Some(verdict) = verdict {
            decision::decide(&run.directory, Decision { verdict, who: who(), at: 1 }).unwrap();
        }
        let id = run.id();
        let said = host.says("status", 0);
        assert!(said.contains(&format!("Run {id} was not confirmed before the machine was reset")), "{said}");
        assert!(!said.contains("half-way") && !said.contains("waits"), "{said}");
        host.says(&format!("confirm {id}"), 1);
        host.says(&stop, 0);
        assert!(!file.exists(), "{verdict:?}");
        assert!(!host.says("status", 0).contains(&format!("Run {id}")));
    }
    // What was confirmed stays.
    let run = lapsed(host, &file);
    decision::decide(&run.directory, Decision { verdict: Confirmation::Confirmed, who: who(), at: 1 })
        .unwrap();
    host.says(&stop, 0);
    assert!(file.exists());
}

fn a_lapsed_run_that_stays(host: &Host) {
    let (disk, none) = (host.path("disk"), None::<&str>);
    fs::create_dir(&disk).unwrap();
    mount(Some("tmpfs"), &disk, Some("tmpfs"), MsFlags::empty(), none).unwrap();
    let remount = |flags| mount(none, &disk, none, MsFlags::MS_REMOUNT | flags, none).unwrap();
    let (stop, file) = (format!("stop {}", model(host)), disk.join("made"));
    lapsed(host, &file);
    // One without a plan, of which nobody can tell what it was to do.
    let planless = lapsed(host, &host.path("other"));
    fs::write(planless.directory.join("plan.json"), "{").unwrap();
    remount(MsFlags::MS_RDONLY);
    let said = host.says(&stop, 0);
    for told in [
        "what run 1 left stays for now, and `penstock undo` takes it back when the cause is gone",
        "what run 2 left stays for now",
        "this run goes on from what is",
    ] {
        assert!(said.contains(told), "{told}: {said}");
    }
    assert!(file.exists());
    // It is tried once, and not from below the run that has gone on from it.
    remount(MsFlags::empty());
    assert!(!host.says(&stop, 0).contains("run 1"));
    assert!(file.exists());
    host.says("undo 1", 0);
    assert!(!file.exists());
}

fn a_guard_again(host: &Host) {
    on_a_small_disk(host);
    let run = host.open(who().process, 1, true);
    // What one that was killed while it took the run back has left: the room is given back, and somebody else has it.
    fs::write(run.directory.join("guard.json"), serde_json::to_vec(&who()).unwrap()).unwrap();
    drop(run.deciding().unwrap());
    let filled = fill_once(host);
    let guard = host.guard();
    until("it is taken back", || seen("mtu") == "1500");
    filled.into_iter().for_each(|path| fs::remove_file(path).unwrap());
    until("the guard ends", || !guard.is_alive());
    assert!(host.says("confirm", 1).contains("too late: nobody confirmed run 1 in time"));
    assert!(host.says("undo", 0).contains("Nothing to undo"));
}

fn nobody_watches(host: &Host) {
    host.open(who().process, 600_000, true);
    let guard = host.guard();
    let start = format!("at-boot guests {}", model(host));
    host.says(&start, 9);
    assert!(guard.is_alive());
    assert_eq!(seen("mtu"), "9000");
    assert!(guard.kill(Duration::from_secs(5)));
    // Others leave it to somebody.
    let said = host.says(&format!("stop {}", model(host)), 9);
    assert!(said.contains("penstock confirm") && said.contains("penstock undo"), "{said}");
    assert_eq!(seen("mtu"), "9000");
    let said = host.says(&start, 0);
    assert!(said.contains("run 1 was not confirmed, and nobody watches it any more"), "{said}");
    assert_eq!(seen("mtu"), "1500");
    assert!(host.says("confirm", 1).contains("too late"));
    assert!(host.says("undo", 0).contains("Nothing to undo"));
}
