//! Each exit status, as a script meets it: the binary is run and must end with it.
#![allow(clippy::disallowed_methods)]

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use penstock_host::{files::Lock, running::Running};
use penstock_testkit::{binary, models, script};

const GOOD: &str = "nics: {NET0: {vfs: 1}}\nguests: {a: {functions: [NET0#0]}}\n";

/// A directory with models, an inventory, and programs in place of the machine's.
struct Here {
    directory: tempfile::TempDir,
}

impl Here {
    fn new() -> Here {
        let here = Here { directory: tempfile::tempdir().unwrap() };
        here.write("good.yaml", GOOD);
        here.write("bad.yaml", "nics: {NET0: {vfs: 1, loopbak: on}}\n");
        here.write("fits.yaml", &models::dealt_out(2, 8, 2));
        here.write("large.yaml", &models::dealt_out(2, 9, 2));
        let mut machine = serde_json::to_value(models::machine(2, 8)).unwrap();
        here.write("machine.json", &machine.to_string());
        let bdf = machine.pointer("/pfs/0/bdf").unwrap().clone();
        let paths = serde_json::json!([{"names": ["ens0"], "function": bdf}]);
        machine["lifelines"] = serde_json::json!({"found": [
            {"kind": {"default_route": {"family": "IPv4", "table": 254}}, "paths": paths},
        ]});
        here.write("hanging.json", &machine.to_string());
        fs::create_dir(here.path("bin")).unwrap();
        here
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// A program in place of the machine's `ssh`.
    fn ssh(&self, lines: &str) {
        script::write(self.path("bin/ssh"), format!("#!/bin/sh\n{lines}\n"));
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
        command.args(line.split(' ')).current_dir(self.directory.path()).env("NO_COLOR", "1");
        command.env("PENSTOCK_STATE", self.path("state")).env("PENSTOCK_JOURNAL", self.path("kept"));
        command.stdin(Stdio::null());
        command
    }

    /// Its exit status, and all that it said.
    fn ends(&self, line: &str) -> (i32, String) {
        told(self.command(line).output().unwrap())
    }
}

fn told(output: std::process::Output) -> (i32, String) {
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap_or(-1), said.into_owned())
}

fn holds(here: &Here) -> (i32, String) {
    here.ends("check good.yaml")
}

fn does_not_hold(here: &Here) -> (i32, String) {
    here.write(
        "stale.yaml",
        "nics: {NET0: {vfs: 1}}\nguests: {a: {functions: [{vf: NET0#0, mac: \"02:00:00:00:00:01\"}], generate: [{template: json, to: a.json}]}}\n",
    );
    here.ends("generate stale.yaml --check")
}

fn bad_input(here: &Here) -> (i32, String) {
    assert_eq!(here.ends("chek good.yaml").0, 2, "no such verb");
    assert_eq!(here.ends("check nowhere.yaml").0, 2, "no such file");
    assert_eq!(here.ends("plan good.yaml --inventory good.yaml").0, 2, "no inventory");
    assert_eq!(here.ends("undo 7").0, 2, "no such run");
    let watched = here.ends("verify good.yaml --watch --json --host node-1,node-2");
    assert!(watched.0 == 2 && watched.1.contains("no end"), "{watched:?}");
    for line in [
        "metrics --textfile good.yaml",
        "metrics --textfile nowhere",
        "export fits.yaml --inventory machine.json --to netplan --output good.yaml",
    ] {
        let ended = here.ends(line);
        assert_eq!(ended.0, 2, "{line}: something else is there: {ended:?}");
    }
    here.ends("check bad.yaml")
}

fn refused(here: &Here) -> (i32, String) {
    here.ends("plan fits.yaml --inventory hanging.json")
}

fn missing(here: &Here) -> (i32, String) {
    told(
        here.command("scan --host node")
            .env("PATH", here.path("bin"))
            .env_remove("PENSTOCK_PATH")
            .output()
            .unwrap(),
    )
}

/// An absent PF and an absent IOMMU are the same kind.
fn does_not_fit(here: &Here) -> (i32, String) {
    let mut machine = serde_json::to_value(models::machine(2, 8)).unwrap();
    machine["pfs"][0]["permanent_mac"] = "02:00:00:00:ff:fe".into();
    here.write("other.json", &machine.to_string());
    here.write(
        "absent.yaml",
        "nics: {NET0: {match: {mac: \"02:00:00:00:aa:01\"}, vfs: 1}}\nguests: {a: {functions: [NET0#0]}}\n",
    );
    here.write(
        "vm.yaml",
        "nics: {NET0: {match: {mac: \"02:00:00:00:ff:fe\"}, vfs: 1}}\nguests: {a: {kind: vm, functions: [NET0#0]}}\n",
    );
    let vm = here.ends("plan vm.yaml --inventory other.json");
    assert!(vm.0 == 6 && vm.1.contains("IOMMU"), "{vm:?}");
    let absent = here.ends("plan absent.yaml --inventory other.json");
    assert!(absent.0 == 6 && absent.1.contains("no PF"), "{absent:?}");
    here.ends("plan large.yaml --inventory machine.json")
}

fn failed(here: &Here) -> (i32, String) {
    here.ssh("echo 'ssh: connect to host node port 22: Connection refused' >&2; exit 255");
    let path = format!("{}:/usr/bin:/bin", here.path("bin").display());
    told(here.command("scan --host node").env("PATH", path).env_remove("PENSTOCK_PATH").output().unwrap())
}

fn busy(here: &Here) -> (i32, String) {
    fs::create_dir_all(here.path("state")).unwrap();
    let mut lock = Lock::try_exclusive(here.path("state/lock")).unwrap().unwrap();
    let id = std::process::id();
    let who = serde_json::json!({"process": Running::of(id), "user": "mara", "command": ["penstock", "apply"], "since": 1});
    lock.note(&who.to_string()).unwrap();
    here.ends("undo")
}

fn would_change(here: &Here) -> (i32, String) {
    let plain = here.ends("plan fits.yaml --inventory machine.json");
    assert_eq!(plain.0, 0, "{plain:?}");
    let recorded = penstock_testkit::sysfs::machine("x550-two-port");
    let scan = format!("scan --root {}", recorded.path().display());
    for (words, file) in [("--json", "as-it-is.json"), ("--as-model", "as-it-is.yaml")] {
        let scanned = here.command(&format!("{scan} {words}")).output().unwrap();
        fs::write(here.path(file), scanned.stdout).unwrap();
    }
    let nothing = here.ends("plan as-it-is.yaml --inventory as-it-is.json --detailed-exitcode");
    assert_eq!(nothing.0, 0, "{nothing:?}");
    let refused = here.ends("plan fits.yaml --inventory hanging.json --detailed-exitcode");
    assert_eq!(refused.0, 3, "{refused:?}");
    here.ends("plan fits.yaml --inventory machine.json --detailed-exitcode")
}

/// A failed write of data is no missing tool; nor is it success.
fn internal(here: &Here) -> (i32, String) {
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for line in ["schema", "plan fits.yaml --inventory machine.json", "check good.yaml --json"] {
        let output = here.command(line).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(70), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    told(here.command("check good.yaml").stdout(full()).output().unwrap())
}

fn interrupted(here: &Here) -> (i32, String) {
    let begun = here.path("begun");
    here.ssh(&format!("case $1 in -G) exit 0;; esac; : >'{}'; exec sleep 60", begun.display()));
    let path = format!("{}:/usr/bin:/bin", here.path("bin").display());
    let mut command = here.command("scan --host node");
    let child = command
        .env("PATH", path)
        .env_remove("PENSTOCK_PATH")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let since = Instant::now();
    while !begun.exists() {
        assert!(since.elapsed() < Duration::from_secs(60), "ssh was not started");
        thread::sleep(Duration::from_millis(10));
    }
    binary::interrupt(&child);
    let ended = told(child.wait_with_output().unwrap());
    assert!(ended.1.contains("interrupted before anything was done there"), "{ended:?}");
    ended
}

/// Runs commands in a directory of its own; gives how the last ended, and what it said.
type Case = fn(&Here) -> (i32, String);

/// What each case must end with, by the name that the page gives it.
const CASES: [(i32, &str, Case); 11] = [
    (0, "holds", holds),
    (1, "does-not-hold", does_not_hold),
    (2, "bad-input", bad_input),
    (3, "refused", refused),
    (4, "missing", missing),
    (6, "does-not-fit", does_not_fit),
    (8, "failed", failed),
    (9, "busy", busy),
    (10, "would-change", would_change),
    (70, "internal", internal),
    (130, "interrupted", interrupted),
];

/// Those that only a machine that is changed can end with, and the tests that show them.
const ELSEWHERE: [(i32, &str, &str); 2] =
    [(5, "rolled-back", "crash_in_board.rs"), (7, "half-way", "runs_in_netns.rs")];

#[test]
fn every_exit_status_is_shown_by_a_command_that_ends_with_it() {
    for (status, name, case) in CASES {
        let (ended, said) = case(&Here::new());
        assert_eq!(ended, status, "{name}: {said}");
    }
    for (status, name, file) in ELSEWHERE {
        let text =
            fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file)).unwrap();
        let shown = [format!("ended_with({status})"), format!(", {status})")];
        assert!(shown.iter().any(|shown| text.contains(shown)), "{name} is not shown in {file}");
    }
}

#[test]
fn the_page_lists_just_the_statuses_that_are_shown() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/exit-status.md");
    let page = fs::read_to_string(page).unwrap();
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        Some((cells.next()?.parse().ok()?, cells.next()?.trim_matches('`').to_owned()))
    };
    let listed: BTreeMap<i32, String> = page.lines().filter_map(row).collect();
    let cases = CASES.iter().map(|(status, name, _)| (*status, (*name).to_owned()));
    let elsewhere = ELSEWHERE.iter().map(|(status, name, _)| (*status, (*name).to_owned()));
    assert_eq!(listed, cases.chain(elsewhere).collect());
    let help = Here::new().ends("--help").1;
    for status in listed.keys() {
        let line = |line: &str| line.trim_start().starts_with(&format!("{status} "));
        assert!(help.lines().any(line), "{status}: {help}");
    }
}

#[test]
fn a_reader_that_goes_away_changes_no_status() {
    let here = Here::new();
    for (line, status) in
        [("plan fits.yaml --inventory machine.json", 0), ("plan fits.yaml --inventory hanging.json", 3)]
    {
        let mut child = here.command(line).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(status), "{line}");
    }
}

/// A PF that is away is a verdict, and no end of watching; a reader that has gone is.
#[test]
fn a_watch_begins_without_its_nic_and_ends_with_its_reader() {
    let here = Here::new();
    here.write(
        "away.yaml",
        "nics: {NET0: {match: {mac: \"02:00:00:00:aa:01\"}, vfs: 1}}\nguests: {a: {functions: [NET0#0]}}\n",
    );
    let mut command = here.command("verify away.yaml --watch --json --timeout 100ms");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<serde_json::Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["event"], "blind_spots");
    let state = next();
    assert_eq!((&state["event"], &state["holds"]), (&"state".into(), &false.into()), "{state}");
    assert!(state["verdicts"].to_string().contains("NET0"), "{state}");
    drop(lines);
    let since = Instant::now();
    let ended = loop {
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
        if since.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(ended.code(), Some(1), "nobody reads any more");
}

#[test]
fn what_is_known_of_runs_is_told_where_guests_cannot_be_read() {
    let here = Here::new();
    for directory in ["state", "kept/runs/7"] {
        fs::create_dir_all(here.path(directory)).unwrap();
    }
    here.write("state/guests", "no directory");
    here.write("kept/runs/7/run.json", "{");
    let output = here.command("status --json").output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["kind"], &told["damaged"]), (&"status".into(), &serde_json::json!([7])), "{told}");
    assert!(told["errors"][0].to_string().contains("guests"), "{told}");
    assert_eq!(output.status.code(), Some(70), "{told}");
    let text = here.ends("status");
    assert!(text.1.contains("run 7 cannot be read") && !text.1.contains("No guests"), "{text:?}");
}
