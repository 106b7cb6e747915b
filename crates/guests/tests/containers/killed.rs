//! What a Penstock that was killed leaves of a container, and how the next one goes on.

use std::{
    fs,
    path::PathBuf,
    process::{Command as Program, Stdio},
    sync::atomic::Ordering,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use penstock_guests::Recognise;
use penstock_host::{Place, running::Running};
use penstock_model::InterfaceRoute;
use penstock_plan::{Execute, Fact, GuestAction, Observe, action::GuestDefinition};

use crate::{
    bench::{Bench, TIMEOUT, bdf, ip, shell, until},
    monitor::{assert_gone, groups_of, monitor_of},
};

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
        std::thread::sleep(Duration::from_millis(5));
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

    // So is one that had left it before the machine was switched on anew, where the state outlives that.
    bench.start(&definition);
    let mut started: serde_json::Value = serde_json::from_slice(&fs::read(&notes).unwrap()).unwrap();
    bench.stop(&definition);
    started["boot"] = "another".into();
    fs::write(&notes, started.to_string()).unwrap();
    ip(&["link", "set", &bench.link(0), "up"]);
    bench.containers.stop(&definition.guest, TIMEOUT).unwrap();
    assert!(bench.on_host(0).unwrap().interface.up);
    assert!(!notes.exists());
}

/// Penstock was killed while it had an interface down, after LXC had started the container: the next apply found that it runs and left it
/// alone, down for good. Both who waits for it and who starts it once more finish that.
pub fn start_is_finished() {
    let bench = Bench::new();
    let mut definition = bench.guest("begun-", 0);
    let wanted = ["198.51.100.0/24 10.7.7.254", "fd08::/64 fd07::99"].map(|route| {
        let (to, via) = route.split_once(' ').unwrap();
        InterfaceRoute::new(to.parse().unwrap(), via.parse().ok())
    });
    definition.functions[0].routes = wanted.to_vec();
    let (notes, guest) = (file(&bench, &definition, "started.json"), || definition.guest.clone());
    let mut guests = bench.guests();
    let (runs, ready) =
        (Fact::GuestRunning { guest: guest(), running: true }, Fact::GuestReady { guest: guest() });
    let place = bench.start(&definition);
    let pid = place.namespace().unwrap();
    for finish in
        [GuestAction::AwaitGuest { guest: guest(), within: 30 }, GuestAction::StartGuest { guest: guest() }]
    {
        assert_eq!((guests.holds(&runs).unwrap(), guests.holds(&ready).unwrap()), (Ok(()), Ok(())));
        assert!(!bench.containers.found().unwrap()[&definition.guest].unfinished);
        let mut started: serde_json::Value = serde_json::from_slice(&fs::read(&notes).unwrap()).unwrap();
        started["init"] = serde_json::Value::Null;
        fs::write(&notes, started.to_string()).unwrap();
        assert_eq!(shell(&place, "ip link set eth0 down").0, 0);
        assert!(bench.containers.found().unwrap()[&definition.guest].unfinished);
        for fact in [&runs, &ready] {
            assert_eq!(guests.holds(fact).unwrap(), Err("its start was not finished".to_owned()), "{fact}");
        }
        guests.execute(&finish, TIMEOUT).unwrap();
        let inside = place.interfaces().unwrap();
        let found = bench.by.find(bdf(0), &inside).unwrap();
        assert!(found.interface.up, "{finish}");
        for address in &definition.functions[0].addresses {
            assert!(found.interface.addresses.contains(address), "{finish}: {address}");
        }
        let there = found.routes.unwrap();
        for route in &wanted {
            assert!(there.iter().any(|found| route.is_met_by(found)), "{finish}: {route} in {there:#?}");
        }
        let now = bench.containers.place(&definition.guest).unwrap().namespace().unwrap();
        assert_eq!(now, pid, "it is the same container");
    }
    bench.stop(&definition);
    bench.is_back(0);
}

/// Penstock was killed before it had ended a container, which ran on: when that ended by itself later, it was taken for ended by Penstock, and
/// the host's addresses on its interface went.
pub fn end_is_given_up() {
    let bench = Bench::new();
    let definition = bench.guest("on-", 0);
    let (notes, guest) = (file(&bench, &definition, "started.json"), || definition.guest.clone());
    let read = || -> serde_json::Value { serde_json::from_slice(&fs::read(&notes).unwrap()).unwrap() };
    let mut guests = bench.guests();
    let runs = Fact::GuestRunning { guest: guest(), running: true };
    bench.start(&definition);
    for go_on in
        [GuestAction::AwaitGuest { guest: guest(), within: 30 }, GuestAction::StartGuest { guest: guest() }]
    {
        let mut started = read();
        started["ending"] = true.into();
        fs::write(&notes, started.to_string()).unwrap();
        let half = "it runs, and whoever was ending it died".to_owned();
        assert_eq!(guests.holds(&runs).unwrap(), Err(half), "an undo of the stop has it go on");
        assert!(bench.containers.found().unwrap()[&guest()].unfinished);
        guests.execute(&go_on, TIMEOUT).unwrap();
        assert_eq!(read()["ending"], serde_json::Value::Null, "{go_on}");
        assert_eq!(guests.holds(&runs).unwrap(), Ok(()), "{go_on}");
    }
    bench.stop(&definition);
    bench.is_back(0);
}

/// LXC's own process of a container that ended by itself: nobody but who removes or starts that comes by, and a stuck one kept its interfaces.
pub fn process_of_lxc_is_stuck() {
    let bench = Bench::new();
    let definition = bench.guest("stuck-", 0);
    let init = bench.start(&definition).namespace().unwrap().unwrap();
    let monitor = monitor_of(init);
    let groups = groups_of(monitor);
    kill(monitor, Signal::SIGSTOP).unwrap();
    kill(Pid::from_raw(i32::try_from(init).unwrap()), Signal::SIGKILL).unwrap();
    while Running::of(init).is_some() {
        std::thread::sleep(Duration::from_millis(5));
    }
    // An end of a veth pair ends with the namespace, where a VF comes back.
    bench.by.exist.store(false, Ordering::Relaxed);
    bench.containers.undefine(&definition.guest, TIMEOUT).unwrap();
    assert!(Running::of(monitor.as_raw().unsigned_abs()).is_none(), "it is still there");
    assert_gone(&groups);
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

pub fn while_starting() {
    let bench = Bench::new();
    let definition = bench.guest("linux-", 0);
    let pid = bench.start(&definition).namespace().unwrap();
    // As it is between LXC's start and the note of it.
    let directory = bench.state.path().join(format!("guests/penstock-{}", definition.guest));
    let path = directory.join("started.json");
    let mut started: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    started["init"] = serde_json::Value::Null;
    fs::write(&path, started.to_string()).unwrap();
    let place = bench.containers.place(&definition.guest).expect("LXC is asked instead");
    assert_eq!(place.namespace().unwrap(), pid);
    bench.stop(&definition);
    bench.is_back(0);
}

/// Penstock was killed when LXC's process had begun and did not answer yet.
pub fn start_goes_on() {
    let bench = Bench::new();
    let definition = bench.guest("linux-", 0);
    bench.start(&definition);
    let guests = bench.state.path().join("guests");
    let name = format!("penstock-{}", definition.guest);
    let path = guests.join(&name).join("started.json");
    let mut started: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let config = fs::read(path.with_file_name("config")).unwrap();
    bench.stop(&definition);
    bench.is_back(0);
    fs::write(path.with_file_name("config"), config).unwrap();
    started["init"] = serde_json::Value::Null;
    fs::write(&path, started.to_string()).unwrap();
    let lxc = || Program::new("lxc-info").arg("-P").arg(&guests).args(["-n", &name, "-pH"]).output().unwrap();
    let title = format!("[lxc monitor] {} {name}", guests.display());
    let mut monitor = Program::new("bash");
    monitor.args(["-c", "exec -a \"$0\" cat", &title]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut monitor = monitor.spawn().unwrap();
    let called = format!("/proc/{}/cmdline", monitor.id());
    until("it is called so", || fs::read(&called).unwrap() == format!("{title}\0").into_bytes());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(1));
            let mut start = Program::new("lxc-start");
            start.arg("-P").arg(&guests).args(["-n", &name, "-d", "--", "sleep", "1000"]);
            // It fails when it is stopped before it is done.
            start.status().unwrap();
            monitor.kill().unwrap();
        });
        bench.stop(&definition);
    });
    monitor.wait().unwrap();
    let pid = String::from_utf8_lossy(&lxc().stdout).into_owned();
    let _ = Program::new("lxc-stop").arg("-P").arg(&guests).args(["-n", &name, "-k"]).output();
    assert_eq!(pid.trim(), "", "it runs");
    bench.is_back(0);
}
