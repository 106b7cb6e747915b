//! What a Penstock that was killed leaves of a container, and how the next one goes on.

use std::{fs, path::PathBuf};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use penstock_host::{Place, running::Running};
use penstock_plan::{Execute, Fact, GuestAction, Observe, action::GuestDefinition};

use crate::bench::{Bench, TIMEOUT, ip};

fn file(bench: &Bench, definition: &GuestDefinition, name: &str) -> PathBuf {
    bench.state.path().join(format!("guests/penstock-{}", definition.guest)).join(name)
}

/// The host gives the interface back what it had before it was lent.
fn configure(bench: &Bench, end: u32) {
    ip(&["link", "set", &bench.link(end), "up"]);
    ip(&["address", "add", "10.8.8.8/24", "dev", &bench.link(end)]);
}

#[track_caller]
fn is_configured(bench: &Bench, end: u32) {
    let report = bench.on_host(end).expect("the interface is on the host").interface;
    let addresses: Vec<String> = report.addresses.iter().map(ToString::to_string).collect();
    assert!(report.up && addresses.contains(&"10.8.8.8/24".to_owned()), "up: {}, {addresses:?}", report.up);
}

/// An undo passed over the stop of a container that was not there, gave its interface back what it had on the host, and took that away
/// again with the definition.
pub fn stopped_though_it_does_not_run() {
    let bench = Bench::new();
    let definition = bench.guest("ended-", 0);
    let guest = || definition.guest.clone();
    let mut guests = bench.guests();
    let stopped = Fact::GuestRunning { guest: guest(), running: false };
    bench.containers.define(&definition, TIMEOUT).unwrap();
    assert_eq!(guests.holds(&stopped).unwrap(), Ok(()), "it was never started");
    let init = bench.start(&definition).namespace().unwrap().unwrap();
    kill(Pid::from_raw(i32::try_from(init).unwrap()), Signal::SIGKILL).unwrap();
    while Running::of(init).is_some() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(
        guests.holds(&stopped).unwrap(),
        Err("it does not run, and its start was not taken back".to_owned())
    );
    assert!(!bench.runs(&definition), "it is seen as it is all the same");
    guests.execute(&GuestAction::StopGuest { guest: guest() }, TIMEOUT).unwrap();
    assert_eq!(guests.holds(&stopped).unwrap(), Ok(()));
    bench.is_back(0);
    configure(&bench, 0);
    guests.execute(&GuestAction::UndefineGuest { guest: guest() }, TIMEOUT).unwrap();
    is_configured(&bench, 0);
}

/// Penstock was killed after its note and before LXC was asked: the interface is the host's, as it always was.
pub fn never_left() {
    let bench = Bench::new();
    let definition = bench.guest("never-", 0);
    let notes = file(&bench, &definition, "started.json");
    bench.start(&definition);
    let mut started: serde_json::Value = serde_json::from_slice(&fs::read(&notes).unwrap()).unwrap();
    bench.stop(&definition);
    started["init"] = serde_json::Value::Null;
    fs::write(&notes, started.to_string()).unwrap();
    fs::remove_file(file(&bench, &definition, "lxc.log")).unwrap();
    configure(&bench, 0);
    bench.containers.undefine(&definition.guest, TIMEOUT).unwrap();
    is_configured(&bench, 0);
}

/// Nodes of devices are made before anything is noted.
pub fn nodes_of_a_start_that_was_not_noted() {
    let bench = Bench::new();
    let definition = bench.guest("nodes-", 0);
    bench.containers.define(&definition, TIMEOUT).unwrap();
    let nodes = PathBuf::from("/dev/penstock").join(definition.guest.as_str());
    fs::create_dir_all(&nodes).unwrap();
    fs::write(nodes.join("0"), "").unwrap();
    bench.containers.undefine(&definition.guest, TIMEOUT).unwrap();
    let left = nodes.exists();
    let _ = fs::remove_dir_all(&nodes);
    assert!(!left, "{}", nodes.display());
}
