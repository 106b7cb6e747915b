//! `penstock inside frames`, as it runs in VMs: here each "VM" is a network namespace that is reached by a command alone.
#![allow(clippy::disallowed_methods)]

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use penstock_host::{
    Command, InterfaceReport, Netlink, Output, Place, PlaceError,
    frames::{
        Endpoint, NeighbourProbe, ProbeResult, Reach,
        agent::{Heard, ProbeReport, Task},
    },
};
use penstock_model::Mac;
use penstock_testkit::{namespace::Namespace, needs, trials::Trials};
use penstock_verify::{KernelObserver, Observer, ProbeEnd, ProbePath, Remote};

const PROGRAM: &str = env!("CARGO_BIN_EXE_penstock");

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("network namespaces", needs::network_namespace);
    let tests: [(&str, fn()); 6] = [
        ("interfaces_are_told_in_netns", interfaces_are_told),
        ("frames_cross_kernels_and_silence_is_proven_in_netns", frames_cross_kernels),
        ("a_place_that_is_slow_is_given_a_longer_window_in_netns", a_slow_place),
        ("what_a_place_makes_up_does_not_count_in_netns", what_a_place_makes_up),
        ("a_place_that_fails_hides_its_own_paths_alone_in_netns", a_place_that_fails),
        ("a_vm_asks_one_that_nobody_looks_into_in_netns", a_vm_asks),
    ];
    trials.add(&missing, tests);
    trials.run()
}

/// A namespace that is reached as a VM is: a command with its input, and what it printed at its end.
struct Vm {
    namespace: Namespace,
    /// How long a command takes to begin.
    slow: Duration,
    /// What becomes of the answer.
    bend: fn(&Task, Heard) -> Option<Heard>,
}

impl Vm {
    fn new() -> Vm {
        Vm { namespace: Namespace::new(), slow: Duration::ZERO, bend: |_, heard| Some(heard) }
    }
}

impl Place for Vm {
    fn describe(&self) -> String {
        "inside a test".to_owned()
    }

    fn run(&self, command: &Command) -> Result<Output, PlaceError> {
        thread::sleep(self.slow);
        let mut output = Command::new("nsenter")
            .arg(format!("--net=/proc/{}/ns/net", self.namespace.id))
            .arg(command.program())
            .args(command.arguments())
            .input(command.standard_input())
            .deadline(command.time_allowed().expect("nothing runs for ever"))
            .run()
            .map_err(|source| PlaceError::Process { place: self.describe(), source })?;
        if output.status.success()
            && let Ok(task) = serde_json::from_slice(command.standard_input())
        {
            let heard = serde_json::from_slice(&output.stdout).expect("what it prints is its own form");
            output.stdout = match (self.bend)(&task, heard) {
                Some(heard) => serde_json::to_vec(&heard).unwrap(),
                None => b"{\"arrived\": \xff".to_vec(),
            };
        }
        Ok(output)
    }

    fn read(&self, _: &str, _: usize) -> Result<Vec<u8>, PlaceError> {
        unreachable!("nobody reads here")
    }

    fn interfaces(&self) -> Result<Vec<InterfaceReport>, PlaceError> {
        let output = self.run(&Command::new(PROGRAM).args(["inside", "interfaces"]).deadline(TIMEOUT))?;
        assert!(output.status.success(), "{output:?}");
        Ok(serde_json::from_slice(&output.stdout).unwrap())
    }

    fn namespace(&self) -> Result<Option<u32>, PlaceError> {
        Err(PlaceError::Gone { place: self.describe(), why: "it is another kernel's".to_owned() })
    }
}

const TIMEOUT: Duration = Duration::from_secs(20);

/// A bridge with four ports: the ends of the first two are in one VM, the third in another, the last under our own kernel.
/// The first and the third may not pass frames to each other.
struct Fixture {
    switch: Namespace,
    _own: Namespace,
    vms: [Vm; 2],
    posts: Vec<ProbeEnd>,
}

const HOMES: [Option<usize>; 4] = [Some(0), Some(0), Some(1), None];

fn scene(vms: [Vm; 2]) -> Fixture {
    let (switch, own) = (Namespace::new(), Namespace::new());
    let homes = [&vms[0].namespace, &vms[0].namespace, &vms[1].namespace, &own];
    let mut lines = "link add br0 type bridge\nlink set br0 up\n".to_owned();
    for (at, home) in homes.iter().enumerate() {
        lines += &format!("link add p{at} type veth peer name e{at}\nlink set p{at} master br0 up\n");
        lines += &format!("link set e{at} netns {}\n", home.id);
    }
    switch.batch("ip", &lines);
    for (at, home) in homes.iter().enumerate() {
        home.batch("ip", &format!("link set e{at} up\n"));
    }
    switch.batch("bridge", "link set dev p0 isolated on\nlink set dev p2 isolated on\n");
    let posts = homes
        .iter()
        .enumerate()
        .map(|(at, home)| {
            let reports = Netlink::in_namespace_of(home.id).unwrap().interfaces().unwrap();
            let name = format!("e{at}");
            let report = reports.iter().find(|report| report.interface.name.as_str() == name).unwrap();
            let endpoint = Endpoint {
                label: name,
                // Of a VM no namespace is known; were it used all the same, the test would fail.
                namespace: HOMES[at].is_none().then_some(own.id),
                interface: report.index,
                mac: report.interface.mac,
            };
            ProbeEnd { endpoint, remote: HOMES[at] }
        })
        .collect();
    Fixture { switch, _own: own, vms, posts }
}

fn isolated(from: usize, to: usize) -> bool {
    matches!((from, to), (0, 2) | (2, 0))
}

impl Fixture {
    fn reach(&self) -> Vec<(usize, usize, Result<Reach, String>)> {
        let remotes =
            [0, 1].map(|at| Remote { place: &self.vms[at], program: PROGRAM, delay: Duration::ZERO });
        let pairs = (0..4).flat_map(|from| (0..4).map(move |to| (from, to))).filter(|(from, to)| from != to);
        let crossings: Vec<ProbePath> =
            pairs.map(|(from, to)| ProbePath { from, to, awaited: !isolated(from, to) }).collect();
        let told = KernelObserver::new().reach_across(&self.posts, &crossings, &[], &remotes, TIMEOUT);
        crossings.iter().zip(told.frames).map(|(pair, outcome)| (pair.from, pair.to, outcome)).collect()
    }
}

fn all_as_it_should_be(outcomes: &[(usize, usize, Result<Reach, String>)]) {
    assert_eq!(outcomes.len(), 12);
    for (from, to, outcome) in outcomes {
        let wanted = if isolated(*from, *to) { Reach::NotArrived } else { Reach::Arrived };
        assert_eq!(outcome, &Ok(wanted), "{from} -> {to}");
    }
}

fn interfaces_are_told() {
    let scene = scene([Vm::new(), Vm::new()]);
    let reports = scene.vms[0].interfaces().unwrap();
    let mut told: Vec<_> =
        reports.iter().map(|report| (report.index, report.interface.mac, report.interface.up)).collect();
    told.sort();
    let mut known: Vec<_> =
        scene.posts[..2].iter().map(|post| (post.endpoint.interface, post.endpoint.mac, true)).collect();
    known.sort();
    assert_eq!(told, known);
    assert!(reports.iter().all(|report| report.interface.carrier == Some(true)), "{reports:?}");
}

fn frames_cross_kernels() {
    let scene = scene([Vm::new(), Vm::new()]);
    let started = Instant::now();
    let outcomes = scene.reach();
    let took = started.elapsed();
    eprintln!("two VMs and the host: {took:?}");
    all_as_it_should_be(&outcomes);
    assert!(took < Duration::from_secs(20), "one window is enough: {took:?}");
}

fn a_slow_place() {
    // The two windows of the first attempt do not meet.
    let late = Vm { slow: Duration::from_millis(3500), ..Vm::new() };
    let scene = scene([Vm::new(), late]);
    let started = Instant::now();
    let outcomes = scene.reach();
    eprintln!("a VM that begins 3.5 s late: {:?}", started.elapsed());
    all_as_it_should_be(&outcomes);
}

fn what_a_place_makes_up() {
    // It says that all that it was told to send came in, at each of its stands, and numbers that it guessed.
    let liar = Vm {
        bend: |task, mut heard| {
            for stand in 0..task.stands.len() as u32 {
                heard.arrived.extend(task.sends.iter().map(|send| (stand, send.2)));
                heard.arrived.extend((0..5000).map(|guess| (stand, guess)));
            }
            Some(heard)
        },
        ..Vm::new()
    };
    let scene = scene([Vm::new(), liar]);
    all_as_it_should_be(&scene.reach());
}

fn a_place_that_fails() {
    let garbles = Vm { bend: |_, _| None, ..Vm::new() };
    let short = Vm { bend: |_, heard| Some(Heard { sent: Vec::new(), ..heard }), ..Vm::new() };
    for bad in [garbles, short] {
        let scene = scene([Vm::new(), bad]);
        for (from, to, outcome) in scene.reach() {
            match outcome {
                Err(why) if from == 2 || to == 2 => assert!(why.ends_with("cannot be parsed"), "{why}"),
                Ok(Reach::Arrived) if from != 2 && to != 2 => (),
                other => panic!("{from} -> {to}: {other:?}"),
            }
        }
    }
    // An interface that is not there is an error that the program told.
    let mut scene = scene([Vm::new(), Vm::new()]);
    scene.posts[2].endpoint.interface = 4711;
    let outcomes = scene.reach();
    let why =
        outcomes.iter().find_map(|(from, _, outcome)| (*from == 2).then(|| outcome.clone().unwrap_err()));
    assert!(why.as_deref().is_some_and(|why| why.contains("4711")), "{why:?}");
    assert!(outcomes.iter().filter(|(from, to, _)| ![*from, *to].contains(&2)).all(|(_, _, o)| o.is_ok()));
}

/// A guest that answers by its kernel alone, at a fifth port of the scene's bridge: its MAC address, and its namespace.
fn closed_guest(scene: &Fixture, address: &str) -> (Mac, Namespace) {
    let guest = Namespace::new();
    let (switch, id) = (&scene.switch, guest.id);
    let lines =
        format!("link add p9 type veth peer name e9\nlink set p9 master br0 up\nlink set e9 netns {id}\n");
    switch.batch("ip", &lines);
    guest.batch("ip", &format!("link set e9 up\naddress add {address} dev e9\n"));
    // As the ports of the first and the third: these and the guest do not reach each other.
    switch.batch("bridge", "link set dev p9 isolated on\n");
    let reports = Netlink::in_namespace_of(id).unwrap().interfaces().unwrap();
    let report = reports.iter().find(|report| report.interface.name.as_str() == "e9").unwrap();
    (report.interface.mac, guest)
}

fn a_vm_asks() {
    let liar = Vm {
        // It says that it was answered, whatever it asked.
        bend: |_, mut heard| {
            heard.asked.iter_mut().for_each(|ProbeReport(_, _, answered)| *answered = true);
            Some(heard)
        },
        ..Vm::new()
    };
    let scene = scene([Vm::new(), liar]);
    let (to, guest) = closed_guest(&scene, "10.20.31.204/24");
    let address = "10.20.31.204".parse().unwrap();
    let ask = |posts: &[(usize, bool)]| {
        let remotes =
            [0, 1].map(|at| Remote { place: &scene.vms[at], program: PROGRAM, delay: Duration::ZERO });
        let question =
            |(from, awaited): &(usize, bool)| NeighbourProbe { from: *from, to, address, awaited: *awaited };
        let questions: Vec<NeighbourProbe> = posts.iter().map(question).collect();
        let started = Instant::now();
        let told = KernelObserver::new().reach_across(&scene.posts, &[], &questions, &remotes, TIMEOUT);
        eprintln!("{} ends asked: {:?}", posts.len(), started.elapsed());
        told.answers
    };
    // The first is kept apart; the second is the same VM's, the last the host's.
    assert_eq!(
        ask(&[(0, false), (1, true), (3, false)]),
        [Ok(ProbeResult::NotAnswered), Ok(ProbeResult::Answered), Ok(ProbeResult::Answered)]
    );
    assert_eq!(ask(&[(0, false), (3, false)]), [Ok(ProbeResult::NotAnswered), Ok(ProbeResult::Answered)]);
    assert_eq!(ask(&[(0, false)]), [Ok(ProbeResult::AnswersNobody)], "nobody else is answered");
    // What the other VM makes up is about itself: it gives no meaning to the first one's silence.
    assert_eq!(ask(&[(0, false), (2, false)]), [Ok(ProbeResult::AnswersNobody), Ok(ProbeResult::Answered)]);
    guest.batch("ip", "link set e9 down\n");
    assert_eq!(
        ask(&[(1, true), (3, false)]),
        [Ok(ProbeResult::AnswersNobody), Ok(ProbeResult::AnswersNobody)]
    );
}
