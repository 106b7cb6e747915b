//! What fails while samples are taken between network namespaces that stand for guests: links, servers, guests and tools that go,
//! and runs that are interrupted or killed. `ip` is the witness of what is left behind.
#![allow(clippy::disallowed_methods)]

mod network;

use std::{
    collections::BTreeMap,
    fs, iter,
    process::ExitCode,
    sync::{Arc, PoisonError, RwLock, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use network::{HOST, SECOND, USUAL, World, cell, end, guest, tcp, throughput, usual_ends};
use penstock_host::{Command, Place, interrupt, process};
use penstock_measure::{
    matrix::Planned,
    network::{NetworkTaker, Options},
    sampler::{Preparation, Sampler},
};
use penstock_model::measurement::{Direction, Protocol, Tool};
use penstock_testkit::{needs, trials::Trials};
use tempfile::TempDir;

/// An interrupt reaches the whole process.
static ALONE: RwLock<()> = RwLock::new(());

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    trials.side_by_side(4);
    let missing = trials.lacking("network namespaces", needs::network_namespace);
    let no_iperf3 = missing.clone().or_else(|| trials.lacking("iperf3", || needs::programs(&["iperf3"])));
    let iperf3: [(&str, fn()); 11] = [
        ("what_is_down_is_missing_with_the_reason_in_netns", what_is_down_is_missing),
        ("a_path_that_does_not_answer_is_missing_in_netns", a_path_that_does_not_answer_is_missing),
        ("a_slow_path_has_more_time_than_a_dead_one_in_netns", a_slow_path),
        ("a_missing_tool_hides_its_own_cells_alone_in_netns", a_missing_tool),
        ("a_server_that_died_is_started_again_in_netns", a_server_that_died),
        ("a_link_that_was_down_is_used_again_in_netns", a_link_that_was_down),
        ("a_path_that_falls_silent_costs_little_in_netns", a_path_that_falls_silent),
        ("a_guest_that_stops_ends_its_samples_alone_in_netns", a_guest_that_stops),
        ("a_guest_that_boots_during_the_run_is_said_in_netns", a_guest_that_boots),
        ("an_unexpected_output_is_said_in_netns", an_unexpected_output),
        ("a_killed_run_leaves_nothing_for_long_in_netns", a_killed_run),
    ];
    let beside = |(name, test): (&'static str, fn())| {
        let test = move || {
            let _others = ALONE.read().unwrap_or_else(PoisonError::into_inner);
            test();
        };
        (name, test)
    };
    trials.add(&no_iperf3, iperf3.map(beside));
    let interrupted = || {
        let _nobody = ALONE.write().unwrap_or_else(PoisonError::into_inner);
        an_interrupted_run();
    };
    trials.add(&no_iperf3, [("an_interrupted_run_gives_all_back_in_netns", interrupted)]);
    let no_nft = no_iperf3.clone().or_else(|| trials.lacking("lost datagrams", || needs::programs(&["nft"])));
    let lossy: [(&str, fn()); 1] = [("lost_datagrams_are_missing_and_never_0_in_netns", lost_datagrams)];
    trials.add(&no_nft, lossy.map(beside));
    trials.run()
}

fn what_is_down_is_missing() {
    let world = World::new();
    world.switch.run("ip link set port1 down");
    world.namespace(&guest("b")).run("ip link set eth0 down");
    let cells = [
        tcp(usual_ends()),
        tcp((end("a", "NET0#0"), end("b", "NET0#2"))),
        tcp((end("a", "NET0#0"), end("b", "NET0#3"))),
        tcp((end("a", "NET0#0"), end("b", "NET0#9"))),
        tcp((end("a", "NET0#0"), end("c", "NET0#3"))),
    ];
    let before = world.state();
    let mut sampler = world.sampler();
    let preparation = sampler.prepare(&cells);
    let why = |number: usize| preparation.missing.get(&cells[number].id).map(String::as_str);
    assert_eq!(why(0), Some("path is down: NET0#1 inside a has no carrier"));
    assert_eq!(why(1), Some("path is down: NET0#2 inside b is not up (ip link set eth0 up)"));
    assert_eq!(why(2), None);
    assert_eq!(why(3), Some("NET0#9 is not there"));
    assert!(why(4).unwrap().contains("c"), "{:?}", why(4));
    assert!(throughput(&mut sampler, &cells[2]).unwrap() > 1e5);
    assert!(sampler.take(&cells[0], SECOND).unwrap_err().to_string().contains("not made ready"));
    drop(sampler);
    assert_eq!(world.state(), before, "a sampler that is dropped gives all back too");
}

fn a_path_that_does_not_answer_is_missing() {
    let world = World::new();
    world.switch.run("bridge link set dev port1 isolated on");
    world.switch.run("bridge link set dev port3 isolated on");
    let cells = [tcp(usual_ends()), tcp((end("a", "NET0#0"), end("b", "NET0#3")))];
    let mut sampler = world.sampler();
    let missing = sampler.prepare(&cells).missing;
    assert_eq!(missing.keys().collect::<Vec<_>>(), [&cells[0].id]);
    let why = &missing[&cells[0].id];
    assert!(why.starts_with("NET0#1 inside a gets no answer from NET0#3 inside b"), "{why}");
    assert!(why.contains("(NET0#3 inside b counted 0 packets sent and "), "{why}");
    assert!(throughput(&mut sampler, &cells[1]).is_ok());
}

/// The exchange takes its packets at once, and an end never, for as many times.
fn exchanges_without_an_end(times: usize) -> (Preparation, Duration) {
    let world = World::new();
    let iperf3 = process::find("iperf3").expect("iperf3 is here");
    let count = TempDir::new().unwrap();
    let script = format!(
        "#!/bin/sh\niperf3={}; [ \"$1\" = --version ] && exec $iperf3 --version\n\
         $iperf3 \"$@\" || exit; cd {}; set -- *; [ $# -gt {times} ] || {{ echo >$#.made; sleep 60; }}\n",
        iperf3.display(),
        count.path().display()
    );
    fs::write(count.path().join("0.made"), "").unwrap();
    let _kept = world.programs(&guest("a"), &USUAL, &[("iperf3", &script)]);
    let options = Options { timeout: Duration::from_secs(2), ..Options::default() };
    let started = Instant::now();
    let preparation = NetworkTaker::new(&world.testbed, options).prepare(&[tcp(usual_ends())]);
    (preparation, started.elapsed())
}

fn a_slow_path() {
    // On a busy machine the first answer may take longer than is waited for, which is another fault.
    let exchanges = |count| {
        let mut attempts = (0..5).map(|_| exchanges_without_an_end(count));
        let is_other = |why: &String| why.contains(" gets no answer ");
        attempts.find(|(preparation, _)| !preparation.missing.values().any(is_other)).expect("an answer")
    };
    let (preparation, _) = exchanges(1);
    assert_eq!(preparation.missing, BTreeMap::new());
    let (preparation, elapsed) = exchanges(9);
    let why = preparation.missing.values().next().expect("nothing was proved");
    assert_eq!(
        why,
        "the path from NET0#1 inside a to NET0#3 inside b is too slow to measure: 100 packets each way took longer than 14 s"
    );
    assert!(elapsed >= Duration::from_secs(14), "{elapsed:?}");
}

fn a_missing_tool() {
    let world = World::new();
    let mut programs = USUAL.to_vec();
    programs.push("iperf3");
    let _kept = world.programs(&guest("b"), &programs, &[]);
    let cells = [
        cell(Tool::Netperf, Protocol::UdpStream, Direction::Forward, usual_ends()),
        tcp(usual_ends()),
        cell(Tool::Iperf3, Protocol::TcpRr, Direction::Forward, usual_ends()),
    ];
    let mut sampler = world.sampler();
    let preparation = sampler.prepare(&cells);
    let why = &preparation.missing[&cells[0].id];
    assert!(why.contains("is not installed inside") && why.contains("install the package netperf"), "{why}");
    assert_eq!(preparation.missing[&cells[2].id], "iperf3 has no tcp rr");
    let version = |tool| preparation.tools.iter().find(|t| t.tool == tool && t.place == "inside b").cloned();
    assert_eq!(version(Tool::Netperf).unwrap().version, None);
    assert!(throughput(&mut sampler, &cells[1]).unwrap() > 1e5);
    // A server that ends at once.
    drop(sampler);
    let broken = |says: &str, then: &str, start: Duration| {
        let script =
            format!("#!/bin/sh\n[ \"$1\" = --version ] && echo iperf 3.12 && exit\n{says}\n{then}\n");
        let _kept = world.programs(&guest("b"), &USUAL, &[("iperf3", &script)]);
        let started = Instant::now();
        let options = Options { start, ..Options::default() };
        let mut sampler = NetworkTaker::new(&world.testbed, options);
        let why = sampler.prepare(&cells[1..2]).missing[&cells[1].id].clone();
        assert!(why.starts_with("iperf3 does not listen inside b at 198.18.0."), "{why}");
        assert_eq!(started.elapsed() < start, then == "exit 1", "{:?}", started.elapsed());
        why
    };
    let why = broken("echo 'iperf3: error - no * here' >&2", "exit 1", SECOND * 60);
    assert!(why.ends_with(": it says: iperf3: error - no * here"), "{why}");
    let why = broken(":", "exit 1", SECOND * 60);
    assert!(why.ends_with("it ends at once, and does not say why"), "{why}");
    let why = broken("echo hello", "exec sleep 60", SECOND * 9);
    assert!(why.ends_with("it did not within 9 s, try it there by hand"), "{why}");
    // No ip at all.
    let kept: Vec<&str> = USUAL.into_iter().filter(|program| *program != "ip").collect();
    let _kept = world.programs(&guest("b"), &kept, &[]);
    let why = world.sampler().prepare(&cells[1..2]).missing[&cells[1].id].clone();
    assert_eq!(why, "iproute2 is not installed inside b: its program ip sets the addresses");
}

fn a_server_that_died() {
    let world = World::new();
    let mut sampler = world.sampler();
    let cells = [tcp(usual_ends())];
    assert_eq!(sampler.prepare(&cells).missing, BTreeMap::new());
    let kill = format!(
        "pkill --ns {} --nslist net --full --exact iperf3.-4.-s.-B.198.18.0.2.-p.[0-9]+",
        world.namespace(&guest("b")).id
    );
    Command::new("sh").args(["-c", &kill]).succeed().expect("there is a server");
    assert!(throughput(&mut sampler, &cells[0]).unwrap() > 1e5);
    // One that hangs is another matter: the sample ends in words, and the next one has a new server.
    let stop = kill.replace("pkill", "pkill --signal STOP");
    Command::new("sh").args(["-c", &stop]).succeed().expect("there is a server");
    let why = throughput(&mut sampler, &cells[0]).unwrap_err();
    assert!(why.starts_with("iperf3 inside a had no end within 7 s"), "{why}");
    assert!(throughput_again(&mut sampler, &cells[0]) > 1e5);
    // A path on which tools fail now and then is not as well as one on which they do not.
    let notes = sampler.finish();
    assert!(notes.iter().any(|note| note.contains(" taken again: ")), "{notes:?}");
}

fn a_link_that_was_down() {
    let world = World::new();
    let mut sampler = world.sampler();
    let cells = [tcp(usual_ends())];
    assert_eq!(sampler.prepare(&cells).missing, BTreeMap::new());
    for (place, interface) in [("a", "eth1"), ("b", "eth1")] {
        let inside = world.namespace(&guest(place));
        inside.run(&format!("ip link set {interface} down"));
        throughput(&mut sampler, &cells[0]).unwrap_err();
        inside.run(&format!("ip link set {interface} up"));
        assert!(throughput_again(&mut sampler, &cells[0]) > 1e5);
        // With the link it forgot its neighbour; were that one asked for, any interface of the other guest would answer.
        assert!(inside.run("ip neigh show nud permanent").contains("198.18."), "{place}");
    }
    // What is forgotten already is no hindrance to giving back the rest.
    let inside = world.namespace(&guest("a"));
    inside.run("ip link set eth1 down");
    inside.run("ip link set eth1 up");
    assert_eq!(sampler.finish(), Vec::<String>::new());
    assert!(!inside.run("ip address").contains("198.18."));
}

fn a_path_that_falls_silent() {
    let world = World::new();
    let mut sampler = world.sampler();
    let cells = [tcp(usual_ends())];
    assert_eq!(sampler.prepare(&cells).missing, BTreeMap::new());
    let isolated = |how: &str| {
        for port in ["port1", "port3"] {
            world.switch.run(&format!("bridge link set dev {port} isolated {how}"));
        }
    };
    isolated("on");
    let why = throughput(&mut sampler, &cells[0]).unwrap_err();
    assert!(why.contains("had no end within 7 s"), "{why}");
    // Once is enough: the next sample asks first whether anybody answers, and does not wait for long.
    let began = Instant::now();
    let why = throughput(&mut sampler, &cells[0]).unwrap_err();
    assert!(why.contains("gets no answer"), "{why}");
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    isolated("off");
    assert!(throughput_again(&mut sampler, &cells[0]) > 1e5);
}

/// The first sample after one that had no end: whether the server answers is asked first, and on a busy machine an answer may take
/// longer than the 1.5 s that are waited for it here. Such a sample is lost, and the next one is taken.
fn throughput_again(sampler: &mut NetworkTaker, cell: &Planned) -> f64 {
    let mut lost = Vec::new();
    let taken = iter::repeat_with(|| throughput(sampler, cell)).take(5).find_map(|sample| {
        let within = |why: &String| why.contains(" gets no answer ") && why.contains(" within ");
        match sample {
            Err(why) if within(&why) => {
                lost.push(why);
                None
            }
            sample => Some(sample.unwrap()),
        }
    });
    taken.unwrap_or_else(|| panic!("{lost:?}"))
}

fn a_guest_that_stops() {
    let world = World::new();
    let host = world.namespace(&HOST);
    let mut sampler = world.sampler();
    let cells = [tcp(usual_ends()), tcp((end("a", ""), end("b", "")))];
    assert_eq!(sampler.prepare(&cells).missing, BTreeMap::new());
    let before = world.namespace(&guest("a")).run("ip address");
    assert!(before.contains("198.18."));
    let b = Arc::clone(&world.places[&guest("b")]);
    let stop = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        // All that runs there dies with it.
        let kill = "for f in $(grep -l 'PENSTOCK_MEASURE=.*-server;' /proc/[0-9]*/environ 2>/dev/null); do p=${f%/environ}; \
                    [ $(readlink $p/ns/net) = \"$0\" ] && kill -9 ${p#/proc/}; done";
        let id = b.namespace().unwrap().unwrap();
        let name = fs::read_link(format!("/proc/{id}/ns/net")).unwrap();
        *b.namespace.lock().unwrap() = None;
        Command::new("sh").args(["-c", kill]).arg(name).run().unwrap();
    });
    // It ends when the guest does, however long that takes on a busy machine.
    let why = sampler.take(&cells[0], Duration::from_secs(60)).unwrap_err().to_string();
    stop.join().unwrap();
    assert!(why.contains("could not reach anything inside b: it stopped"), "{why}");
    let why = throughput(&mut sampler, &cells[1]).unwrap_err();
    assert!(why.contains("could not reach anything inside b: it stopped"), "{why}");
    assert_eq!(sampler.finish(), Vec::<String>::new());
    let after = world.namespace(&guest("a")).run("ip address");
    assert!(!after.contains("198.18.") && !after.contains("psin"), "{after}");
    assert_eq!(host.run("ip -br link").lines().count(), 1);
    assert_eq!(world.marked(), Vec::<String>::new());
}

fn a_guest_that_boots() {
    let world = World::new();
    let mut sampler = world.sampler();
    let cells = [tcp(usual_ends())];
    assert_eq!(sampler.prepare(&cells).missing, BTreeMap::new());
    let id = tempfile::NamedTempFile::new().unwrap();
    fs::write(id.path(), "5ff2da8c-0d89-4a76-992b-6e1106c26e11\n").unwrap();
    *world.places[&guest("a")].boot.lock().unwrap() = Some(id.path().to_owned());
    let inside = world.namespace(&guest("a"));
    // As a VF that the VM had enabled before.
    inside.run("ip link delete eth1");
    throughput(&mut sampler, &cells[0]).unwrap_err();
    let why = throughput(&mut sampler, &cells[0]).unwrap_err();
    assert!(why.contains("Cannot find device") && why.contains("the kernel inside a has booted"), "{why}");
    let notes = sampler.finish();
    let [note] = &*notes else { panic!("{notes:?}") };
    assert!(note.contains("the kernel inside a has booted since the run began"), "{note}");
}

fn lost_datagrams() {
    let world = World::new();
    let mut sampler = world.sampler();
    let cells =
        [cell(Tool::Iperf3, Protocol::UdpStream, Direction::Forward, usual_ends()), tcp(usual_ends())];
    assert_eq!(sampler.prepare(&cells).missing, BTreeMap::new());
    let to = world.namespace(&guest("b"));
    to.run("nft add table ip lossy");
    to.run("nft add chain ip lossy in { type filter hook input priority 0 ; }");
    // What iperf3 begins with is shorter, and passes.
    to.run("nft add rule ip lossy in udp length > 500 drop");
    let why = throughput(&mut sampler, &cells[0]).unwrap_err();
    assert!(why.contains("nothing arrived"), "{why}");
    to.run("nft add rule ip lossy in udp length > 0 drop");
    let started = Instant::now();
    let why = throughput(&mut sampler, &cells[0]).unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(20), "{why}");
    assert!(throughput(&mut sampler, &cells[1]).unwrap() > 1e5, "TCP goes on");
}

/// An interrupt that comes, and is pending no more once this is dropped: whatever fails, the tests after it are not to be interrupted.
struct Interrupted(Option<thread::JoinHandle<()>>);

impl Interrupted {
    fn after(time: Duration) -> Interrupted {
        Interrupted(Some(thread::spawn(move || {
            thread::sleep(time);
            interrupt::watched().store(true, Ordering::Relaxed);
        })))
    }

    fn wait(&mut self) {
        if let Some(thread) = self.0.take() {
            thread.join().expect("it only sleeps");
        }
    }
}

impl Drop for Interrupted {
    fn drop(&mut self) {
        self.wait();
        interrupt::acknowledge();
    }
}

fn an_interrupted_run() {
    let world = World::new();
    let before = world.state();
    let mut sampler = world.sampler();
    let cells = [tcp(usual_ends()), tcp((end("a", ""), end("b", "")))];
    assert_eq!(sampler.prepare(&cells).missing, BTreeMap::new());
    let mut interrupted = Interrupted::after(Duration::from_millis(300));
    let started = Instant::now();
    let why = sampler.take(&cells[0], Duration::from_secs(5)).unwrap_err();
    interrupted.wait();
    assert!(why.to_string().contains("interrupted"), "{why}");
    assert!(started.elapsed() < Duration::from_secs(3));
    assert_eq!(sampler.finish(), Vec::<String>::new());
    assert!(interrupt::acknowledge(), "whoever asks next is told of it too");
    assert_eq!(world.state(), before);
}

fn a_killed_run() {
    let world = World::new();
    let before = world.state();
    let (lease, timeout) = (Duration::from_secs(4), Duration::from_secs(3));
    let options = Options { lease, timeout, ..Options::default() };
    let mut sampler = NetworkTaker::new(&world.testbed, options);
    let cells = [tcp(usual_ends()), tcp((end("a", ""), end("b", "")))];
    assert_eq!(sampler.prepare(&cells).missing, BTreeMap::new());
    // It is renewed while it is used: a lease is shorter than what is left of it would need.
    assert!(throughput(&mut sampler, &cells[0]).unwrap() > 1e5);
    assert_ne!(world.state(), before);
    std::mem::forget(sampler);
    let started = Instant::now();
    // A sample of 4 s at most was begun, for which it is lent for four times as long.
    while world.state() != before {
        assert!(started.elapsed() < Duration::from_secs(60), "still there: {}", world.state());
        thread::sleep(Duration::from_millis(500));
    }
}

fn an_unexpected_output() {
    let world = World::new();
    // A client of another version, and a server that only listens.
    let client = "#!/bin/sh\ncase \"$1\" in --version) echo 'iperf 4.0 (x)'; exit ;; esac\n\
                  case \"$*\" in *-J*) echo '{\"start\": {\"version\": \"iperf 4.0\"}}' ;; \
                  *) exec REAL \"$@\" ;; esac\n";
    let real = process::find("iperf3").expect("it is here").display().to_string();
    let _kept = world.programs(&guest("a"), &USUAL, &[("iperf3", &client.replace("REAL", &real))]);
    let mut sampler = world.sampler();
    let cells = [tcp(usual_ends())];
    let preparation = sampler.prepare(&cells);
    assert_eq!(preparation.missing, BTreeMap::new());
    assert_eq!(preparation.tools[0].version.as_deref(), Some("4.0"));
    let why = throughput(&mut sampler, &cells[0]).unwrap_err();
    assert!(why.contains("version \"iperf 4.0\" is not known here"), "{why}");
}
