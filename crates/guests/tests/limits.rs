//! Limits as the kernel's control groups show them, in a tree that stands for a machine.
#![allow(clippy::disallowed_methods)]

use std::{fs, path::Path, time::Duration};

use penstock_guests::Containers;
use penstock_host::Root;
use penstock_model::{ByteSize, Guest, GuestName, Outcome};

const GROUP: &str = "sys/fs/cgroup/lxc.payload.penstock-a-1";

struct Machine(tempfile::TempDir);

impl Machine {
    /// A machine on which guest `a` runs as process 42.
    fn new() -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        machine.put("proc/sys/kernel/random/boot_id", "b1\n");
        // A program may call itself what it likes.
        let fields = "1 ".repeat(18);
        machine.put("proc/42/stat", &format!("42 (a) b (c) S {fields}777 0 0\n"));
        machine.put("proc/42/cgroup", "0::/lxc.payload.penstock-a-1/init.scope\n");
        machine.put("run/guests/penstock-a/definition.json", DEFINITION);
        machine.put(
            "run/guests/penstock-a/started.json",
            r#"{"boot": "b1", "since": 1, "functions": [], "init": {"pid": 42, "started": 777}}"#,
        );
        machine
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn containers(&self) -> Containers {
        Containers::new(Root::at(self.0.path()), self.0.path().join("run/guests"))
    }

    /// What is seen of the limits 2 CPUs and 256 MiB.
    fn seen(&self) -> Vec<(String, String, Outcome)> {
        self.seen_of(&Guest { cpus: Some(2), memory: Some(ByteSize(256 << 20)), ..Guest::default() })
    }

    fn seen_of(&self, wanted: &Guest) -> Vec<(String, String, Outcome)> {
        self.containers()
            .verdicts(&guest(), wanted)
            .into_iter()
            .map(|verdict| (verdict.attribute, verdict.seen, verdict.outcome))
            .collect()
    }
}

const DEFINITION: &str =
    r#"{"guest": "a", "cpus": 2, "memory": 268435456, "root": null, "init": [], "functions": []}"#;

fn guest() -> GuestName {
    "a".parse().unwrap()
}

fn row(attribute: &str, seen: &str, outcome: Outcome) -> (String, String, Outcome) {
    (attribute.to_owned(), seen.to_owned(), outcome)
}

#[test]
fn limits_that_hold() {
    let machine = Machine::new();
    machine.put(&format!("{GROUP}/cpu.max"), "200000 100000\n");
    machine.put(&format!("{GROUP}/memory.max"), "268435456\n");
    let wanted = [row("cpus", "2", Outcome::Pass), row("memory", "256MiB", Outcome::Pass)];
    assert_eq!(machine.seen(), wanted);
    assert!(machine.seen_of(&Guest::default()).is_empty());
}

#[test]
fn limits_that_are_otherwise() {
    let machine = Machine::new();
    machine.put(&format!("{GROUP}/cpu.max"), "150000 100000\n");
    machine.put(&format!("{GROUP}/memory.max"), "max\n");
    let wanted = [row("cpus", "150000/100000", Outcome::Fail), row("memory", "no limit", Outcome::Fail)];
    assert_eq!(machine.seen(), wanted);
    machine.put(&format!("{GROUP}/cpu.max"), "max 100000\n");
    machine.put(&format!("{GROUP}/memory.max"), "134217728\n");
    let wanted = [row("cpus", "no limit", Outcome::Fail), row("memory", "128MiB", Outcome::Fail)];
    assert_eq!(machine.seen(), wanted);
}

#[test]
fn what_cannot_be_seen_is_unknown() {
    let machine = Machine::new();
    assert!(machine.seen().iter().all(|row| row.2 == Outcome::Unknown));
    for odd in ["", "200000", "200000 0", "-1 100000", "200000 100000 1"] {
        machine.put(&format!("{GROUP}/cpu.max"), odd);
        assert_eq!(machine.seen()[0].2, Outcome::Unknown, "{odd:?}");
    }
    // In somebody else's group, even one that a hostile guest named.
    machine.put(&format!("{GROUP}/cpu.max"), "200000 100000\n");
    for group in ["0::/user.slice", "1:cpu:/lxc.payload.penstock-a", "0::/../lxc.payload.penstock-a-1", ""] {
        machine.put("proc/42/cgroup", group);
        assert_eq!(machine.seen()[0].2, Outcome::Unknown, "{group:?}");
    }
}

#[test]
fn what_it_is_pinned_to_is_what_it_may_run_on() {
    let machine = Machine::new();
    let wanted = Guest { pin: Some("2-3".parse().unwrap()), ..Guest::default() };
    assert_eq!(machine.seen_of(&wanted)[0].2, Outcome::Unknown);
    for (effective, seen, outcome) in [
        ("2-3\n", "2-3", Outcome::Pass),
        ("3,2\n", "2-3", Outcome::Pass),
        ("2\n", "2", Outcome::Fail),
        ("0-3\n", "0-3", Outcome::Fail),
        ("\n", "", Outcome::Fail),
    ] {
        machine.put(&format!("{GROUP}/cpuset.cpus.effective"), effective);
        assert_eq!(machine.seen_of(&wanted), [row("pin", seen, outcome)], "{effective:?}");
    }
    for odd in ["x", "3-2", "0-99999999999", "0-65536"] {
        machine.put(&format!("{GROUP}/cpuset.cpus.effective"), odd);
        assert_eq!(machine.seen_of(&wanted)[0].2, Outcome::Unknown, "{odd:?}");
    }
}

#[test]
fn another_process_with_the_number_is_not_the_guest() {
    let machine = Machine::new();
    assert!(machine.containers().found().unwrap()[&guest()].running);
    let fields = "1 ".repeat(18);
    for stat in [
        format!("42 (a) S {fields}778 0\n"),
        format!("42 (a) Z {fields}777 0\n"),
        "42 (a".to_owned(),
        String::new(),
    ] {
        machine.put("proc/42/stat", &stat);
        assert!(!machine.containers().found().unwrap()[&guest()].running, "{stat:?}");
    }
}

#[test]
fn nothing_survives_a_boot() {
    let machine = Machine::new();
    machine.put("proc/sys/kernel/random/boot_id", "b2\n");
    let containers = machine.containers();
    assert!(!containers.found().unwrap()[&guest()].running);
    assert_eq!(containers.status().unwrap()[&guest()].since, None);
    assert!(containers.place(&guest()).is_none());
    containers.undefine(&guest(), Duration::from_secs(1)).unwrap();
    assert!(containers.found().unwrap().is_empty());
    assert!(!Path::new(&machine.0.path().join("run/guests/penstock-a")).exists());
}

#[test]
fn garbled_state_is_an_error_with_its_path() {
    let machine = Machine::new();
    machine.put("run/guests/penstock-a/started.json", "{");
    let error = machine.containers().found().unwrap_err();
    assert!(error.to_string().contains("penstock-a/started.json"), "{error}");
}
