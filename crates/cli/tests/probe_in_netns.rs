//! The latency probe as it runs between two guests: each here is a network namespace.
#![allow(clippy::disallowed_methods)]

use std::{
    net::{SocketAddr, UdpSocket},
    panic,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use penstock_host::{
    Command, Here, InterfaceReport, Output, Place, PlaceError, namespace, process::Background,
};
use penstock_measure::{
    parse::{self, Reading},
    probe::{
        client::{self, Task},
        client_command, in_place,
        outcome::Outcome,
        packet::Packet,
        server_command,
    },
    record::RawOutput,
};
use penstock_model::measurement::{
    Direction, End, EndKind, Load, Measurement, Metric, Network, PathKind, Protocol, Subject, Tool,
};
use penstock_testkit::{
    namespace::Namespace,
    needs::{self, Lack},
    trials::Trials,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_penstock");
const PORT: u16 = 7900;
const SIZE: u32 = 128;
const CLIENT: &str = "192.0.2.1";
const SERVER: &str = "192.0.2.2";

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    // Other tests beside them would be measured too.
    trials.one_at_a_time();
    let missing = trials.lacking("network namespaces", needs::network_namespace);
    let netem = trials.lacking("delays and losses", no_netem);
    let tests: [(&str, fn()); 7] = [
        ("a_slow_peer_is_measured_in_netns", || in_one_of_five(a_slow_peer)),
        ("a_silent_peer_is_no_latency_in_netns", a_silent_peer),
        ("only_an_open_loop_sees_a_stall_in_netns", || in_one_of_five(only_an_open_loop_sees_a_stall)),
        ("a_missing_peer_is_no_latency_in_netns", a_missing_peer),
        ("a_server_that_comes_late_is_waited_for_in_netns", || in_one_of_five(a_server_that_comes_late)),
        ("what_a_hostile_peer_sends_does_not_count_in_netns", a_hostile_peer),
        ("a_rate_that_cannot_be_sent_is_said_in_netns", a_rate_that_cannot_be_sent),
    ];
    trials.add(&missing, tests);
    let tests: [(&str, fn()); 2] = [
        ("a_known_delay_is_measured_in_netns", || in_one_of_five(a_known_delay)),
        ("what_is_lost_is_no_latency_in_netns", || in_one_of_five(what_is_lost)),
    ];
    trials.add(&netem, tests);
    trials.run()
}

/// Programs beside it make a single measurement of time late; what is wrong shows in each.
fn in_one_of_five(measure: fn()) {
    if !(0..4).any(|_| panic::catch_unwind(measure).is_ok()) {
        measure();
    }
}

fn no_netem() -> Option<Lack> {
    let words = ["--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"];
    needs::network_namespace()
        .or_else(|| needs::programs(&["tc"]))
        .or_else(|| needs::refused(Command::new("unshare").args(words)))
}

/// A guest that is reached as a container is.
struct Inside(Namespace);

impl Place for Inside {
    fn describe(&self) -> String {
        "inside a test".to_owned()
    }

    fn run(&self, command: &Command) -> Result<Output, PlaceError> {
        panic!("this program is not run inside a container, which may not see it: {command}")
    }

    fn read(&self, _: &str, _: usize) -> Result<Vec<u8>, PlaceError> {
        unreachable!()
    }

    fn interfaces(&self) -> Result<Vec<InterfaceReport>, PlaceError> {
        unreachable!()
    }

    fn namespace(&self) -> Result<Option<u32>, PlaceError> {
        Ok(Some(self.0.id))
    }
}

/// Two namespaces joined by a veth pair.
struct Pair {
    client: Inside,
    server: Inside,
}

fn pair() -> Pair {
    let (client, server) = (Namespace::new(), Namespace::new());
    client.run(&format!("ip link add e0 type veth peer name e1 netns {}", server.id));
    client.batch("ip", &format!("address add {CLIENT}/24 dev e0\nlink set e0 up\n"));
    server.batch("ip", &format!("address add {SERVER}/24 dev e1\nlink set e1 up\n"));
    Pair { client: Inside(client), server: Inside(server) }
}

impl Pair {
    /// The reflector, `delay` seconds after now and until what is given is dropped.
    fn serve(&self, delay: &str) -> Background {
        let build = |program: &str| server_command(program, SERVER.parse().unwrap(), PORT, 600);
        let (_, command) = in_place(&self.server, &Here::default(), PROGRAM, build).unwrap();
        let words = ["-c", "sleep \"$0\"; exec \"$@\"", delay];
        let command = Command::new("sh").args(words).arg(command.program()).args(command.arguments());
        command.start_logged(tempfile::tempfile().unwrap()).unwrap()
    }

    fn ask(&self, load: Load, dwell: Duration) -> RawOutput {
        let to = SocketAddr::new(SERVER.parse().unwrap(), PORT);
        let build =
            |program: &str| client_command(program, CLIENT.parse().unwrap(), to, load, SIZE, dwell, 1);
        let host = Here::default();
        let (place, command) = in_place(&self.client, &host, PROGRAM, build).unwrap();
        let output = place.run(&command).unwrap();
        RawOutput {
            place: place.describe(),
            command: command.to_string(),
            status: output.status.code(),
            stdout: output.text(),
            cut: None,
            stderr: output.errors(),
            cpu: None,
        }
    }
}

fn read(load: Load, raw: &RawOutput) -> Result<Reading, String> {
    let end = End { place: penstock_model::verdict::Vantage::Host, kind: EndKind::Host, function: None };
    let network = Network {
        protocol: Protocol::UdpRr,
        path: PathKind::PfPf,
        client: end.clone(),
        server: end,
        size: SIZE,
        direction: Direction::Forward,
        load,
    };
    parse::read(&Measurement { tool: Tool::Probe, subject: Subject::Network(network) }, raw)
}

fn outcome(raw: &RawOutput) -> Outcome {
    serde_json::from_str(&raw.stdout).unwrap_or_else(|error| panic!("{error}: {raw:?}"))
}

const OPEN: Load = Load::Open { rate: 2000 };

fn only_an_open_loop_sees_a_stall() {
    let pair = pair();
    let server = pair.serve("0");
    let stalled = |load: Load| {
        let id = Pid::from_raw(server.id() as i32);
        let stopping = thread::spawn(move || {
            thread::sleep(Duration::from_millis(700));
            kill(id, Signal::SIGSTOP).unwrap();
            thread::sleep(Duration::from_millis(60));
            kill(id, Signal::SIGCONT).unwrap();
        });
        let raw = pair.ask(load, Duration::from_millis(1400));
        stopping.join().unwrap();
        read(load, &raw).unwrap_or_else(|error| panic!("{error}: {raw:?}")).values
    };
    // The server is surely there.
    pair.ask(Load::Closed, Duration::from_millis(20));
    let (open, closed) = (stalled(OPEN), stalled(Load::Closed));
    for (load, values) in [("open", &open), ("closed", &closed)] {
        assert!(values[&Metric::Max] >= 50_000.0, "{load} met the stall: {values:?}");
        assert_eq!(values[&Metric::Loss], 0.0, "{load}: {values:?}");
    }
    // 60 of 1400 ms are 4 % of all requests; a quarter of them is the slowest hundredth.
    assert!(open[&Metric::P99] >= 30_000.0, "{open:?}");
    assert!(closed[&Metric::P99] < open[&Metric::P99] / 4.0, "one request of thousands: {closed:?}");
    assert!(closed.contains_key(&Metric::Transactions) && !open.contains_key(&Metric::Transactions));
}

fn a_known_delay() {
    let pair = pair();
    let _server = pair.serve("0");
    pair.client.0.run("tc qdisc add dev e0 root netem delay 2ms limit 10000");
    for load in [OPEN, Load::Closed] {
        let raw = pair.ask(load, Duration::from_secs(1));
        let reading = read(load, &raw).unwrap_or_else(|error| panic!("{error}: {raw:?}"));
        let (min, p50) = (reading.values[&Metric::Min], reading.values[&Metric::P50]);
        assert!(min >= 2000.0, "never shorter than what is put in between: {min}");
        assert!((2000.0..3500.0).contains(&p50), "{load:?}: {p50}");
        let outcome = outcome(&raw);
        assert_eq!((outcome.lost, outcome.duplicates, outcome.foreign), (0, 0, 0));
        if let Some(late) = outcome.late {
            assert!(late.p50_ns < 1_000_000 && late.margin_ns <= 100_000, "{late:?}");
            // 2000 expected, with a standard deviation of 45.
            assert!((1800..2200).contains(&outcome.sent), "{outcome:?}");
        }
    }
}

fn what_is_lost() {
    let pair = pair();
    let _server = pair.serve("0");
    pair.client.0.run("tc qdisc add dev e0 root netem loss 100%");
    let begin = Instant::now();
    for load in [OPEN, Load::Closed] {
        let raw = pair.ask(load, Duration::from_secs(1));
        assert_eq!(read(load, &raw), Err("probe ran, but nothing arrived".to_owned()));
    }
    assert!(begin.elapsed() < Duration::from_secs(12));
    // Some of it: told as loss, and what came is measured.
    pair.client.0.run("tc qdisc change dev e0 root netem loss 20%");
    let raw = pair.ask(OPEN, Duration::from_secs(1));
    let reading = read(OPEN, &raw).unwrap();
    let loss = reading.values[&Metric::Loss];
    assert!((0.1..0.3).contains(&loss), "{loss}");
    assert!(reading.values[&Metric::P50] < 50_000.0);
    let outcome = outcome(&raw);
    assert_eq!(outcome.histogram.total(), outcome.received);
}

/// Somebody other than the reflector, who serves until he is told to end: whoever asks next may be long in coming.
struct Peer {
    end: Arc<AtomicBool>,
    serving: Option<thread::JoinHandle<()>>,
}

impl Peer {
    /// Has `take` see each datagram: the socket, what came in, and who sent it.
    fn at(pair: &Pair, mut take: impl FnMut(&UdpSocket, &[u8], SocketAddr) + Send + 'static) -> Peer {
        let bound = namespace::within(Some(pair.server.0.id), || UdpSocket::bind((SERVER, PORT)));
        let socket = bound.unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let end = Arc::new(AtomicBool::new(false));
        let ends = end.clone();
        let serving = thread::spawn(move || {
            let mut bytes = [0; 2048];
            loop {
                // Asked before it is listened: what was sent before the end is heard.
                let last = ends.load(Ordering::Relaxed);
                match socket.recv_from(&mut bytes) {
                    Ok((length, from)) => take(&socket, &bytes[..length], from),
                    Err(_) if last => break,
                    Err(_) => {}
                }
            }
        });
        Peer { end, serving: Some(serving) }
    }

    /// Ends it when it has heard all that was sent.
    fn ends(mut self) {
        self.end.store(true, Ordering::Relaxed);
        self.serving.take().map(thread::JoinHandle::join).transpose().unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

/// A peer that takes 2 ms for each answer, and answers all but one of so many; and how many it has not answered.
fn slow_peer(pair: &Pair, but_one_of: u64) -> (Peer, Arc<AtomicU64>) {
    let silent = Arc::new(AtomicU64::new(0));
    let unanswered = silent.clone();
    let peer = Peer::at(pair, move |socket, asked, from| {
        let request = Packet::read(asked).unwrap();
        if request.number.is_multiple_of(but_one_of) {
            unanswered.fetch_add(1, Ordering::Relaxed);
            return;
        }
        thread::sleep(Duration::from_millis(2));
        let mut answer = asked.to_vec();
        Packet { answer: true, ..request }.write(&mut answer);
        socket.send_to(&answer, from).unwrap();
    });
    (peer, silent)
}

fn a_slow_peer() {
    let pair = pair();
    let (peer, silent) = slow_peer(&pair, 10);
    // A quarter of what it can answer: few requests wait for one another.
    let load = Load::Open { rate: 100 };
    let raw = pair.ask(load, Duration::from_secs(2));
    let reading = read(load, &raw).unwrap_or_else(|error| panic!("{error}: {raw:?}"));
    let (min, p50) = (reading.values[&Metric::Min], reading.values[&Metric::P50]);
    assert!(min >= 2000.0, "never shorter than what the peer takes: {min}");
    assert!((2000.0..4000.0).contains(&p50), "{p50}");
    let outcome = outcome(&raw);
    peer.ends();
    let silent = silent.load(Ordering::Relaxed);
    assert_eq!(outcome.lost, silent, "{outcome:?}");
    assert_eq!(reading.values[&Metric::Loss], silent as f64 / outcome.sent as f64);
    assert!(!reading.values.contains_key(&Metric::P99), "there are too few for it");
    assert!(reading.withheld.iter().any(|withheld| withheld.metric == Metric::P99));
}

fn a_silent_peer() {
    let pair = pair();
    let (peer, silent) = slow_peer(&pair, 1);
    for load in [OPEN, Load::Closed] {
        let raw = pair.ask(load, Duration::from_millis(200));
        assert_eq!(read(load, &raw), Err("probe ran, but nothing arrived".to_owned()));
    }
    peer.ends();
    assert!(silent.load(Ordering::Relaxed) > 10, "it was asked");
}

fn a_missing_peer() {
    let pair = pair();
    for load in [OPEN, Load::Closed] {
        let raw = pair.ask(load, Duration::from_millis(200));
        let error = read(load, &raw).unwrap_err();
        assert!(error.contains("no answer: Connection refused"), "{error}");
    }
    // Nobody has the address.
    pair.server.0.run(&format!("ip address del {SERVER}/24 dev e1"));
    let error = read(OPEN, &pair.ask(OPEN, Duration::from_millis(200))).unwrap_err();
    assert!(error.contains("No route to host") || error.contains("nothing arrived"), "{error}");
    // Nor is there a way to send.
    pair.client.0.run("ip link set e0 down");
    let error = read(OPEN, &pair.ask(OPEN, Duration::from_millis(200))).unwrap_err();
    assert!(error.contains("unreachable"), "{error}");
    pair.client.0.run(&format!("ip address del {CLIENT}/24 dev e0"));
    let error = read(OPEN, &pair.ask(OPEN, Duration::from_millis(200))).unwrap_err();
    assert!(error.contains("could not send from 192.0.2.1"), "{error}");
}

fn a_server_that_comes_late() {
    let pair = pair();
    let _server = pair.serve("1");
    let raw = pair.ask(OPEN, Duration::from_millis(600));
    let reading = read(OPEN, &raw).unwrap_or_else(|error| panic!("{error}: {raw:?}"));
    assert_eq!(reading.values[&Metric::Loss], 0.0);
    let outcome = outcome(&raw);
    assert!(outcome.refused > 0, "it was not there at first: {outcome:?}");
}

fn a_rate_that_cannot_be_sent() {
    let pair = pair();
    let _server = pair.serve("0");
    let load = Load::Open { rate: 3_000_000 };
    let error = read(load, &pair.ask(load, Duration::from_secs(1))).unwrap_err();
    assert!(error.contains("could not be sent in time"), "{error}");
    let load = Load::Open { rate: u32::MAX };
    let error = read(load, &pair.ask(load, Duration::from_secs(1))).unwrap_err();
    assert!(error.contains("requests a second for 1 s cannot be sent"), "{error}");
}

/// A peer that answers everything three times, and sends whatever it can think of beside.
fn a_hostile_peer() {
    let pair = pair();
    let mut flood = Duration::ZERO;
    let peer = Peer::at(&pair, move |socket, asked, from| {
        let request = Packet::read(asked).unwrap();
        let length = asked.len();
        let mut bytes = [asked, &[0]].concat();
        let mut answer = |packet: Packet, length: usize| {
            packet.write(&mut bytes);
            let _ = socket.send_to(&bytes[..length], from);
        };
        let good = Packet { answer: true, ..request };
        for _ in 0..3 {
            answer(good, length);
        }
        answer(request, length);
        answer(Packet { session: !request.session, ..good }, length);
        answer(good, length - 1);
        answer(good, length + 1);
        for number in [request.number.wrapping_add(1 << 40), u64::MAX - 1, u64::MAX] {
            answer(Packet { number, ..good }, length);
        }
        let _ = socket.send_to(&[], from);
        // Once it never stops for longer than any answer is waited for.
        if request.number == 100 && flood.is_zero() {
            let begin = Instant::now();
            while flood < Duration::from_millis(300) {
                let _ = socket.send_to(b"PNSK", from);
                flood = begin.elapsed();
            }
        }
    });
    for load in [Load::Open { rate: 500 }, Load::Closed] {
        let task = Task {
            bind: CLIENT.parse().unwrap(),
            to: SocketAddr::new(SERVER.parse().unwrap(), PORT),
            load,
            size: SIZE,
            dwell: Duration::from_millis(600),
            seed: 1,
        };
        let outcome = namespace::within(Some(pair.client.0.id), || client::run(&task)).unwrap().unwrap();
        assert_eq!((outcome.received, outcome.lost), (outcome.sent, 0), "{outcome:?}");
        assert!(outcome.duplicates >= outcome.sent, "{outcome:?}");
        assert!(outcome.foreign >= 4 * outcome.sent, "{outcome:?}");
        let text = serde_json::to_string(&outcome).unwrap();
        let reading = parse::probe::json(text.as_bytes(), load, SIZE).unwrap();
        assert_eq!(reading.histogram.unwrap().total(), outcome.received);
    }
    peer.ends();
}
