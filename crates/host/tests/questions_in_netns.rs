//! Questions that a guest's kernel answers by itself: here Linux in a network namespace, with no program of ours inside.
#![allow(clippy::disallowed_methods)]

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use penstock_host::{
    Command, Netlink,
    frames::{
        Endpoint, FramesError, NeighbourProbe, ProbeResult, ProbeTimeouts, Reach,
        agent::{self, Ask, ProbeReport, ProbeSocket, Task},
        reach_and_ask,
    },
};
use penstock_model::Mac;
use penstock_testkit::{namespace::Namespace, needs, trials::Trials};

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("network namespaces", needs::network_namespace);
    let tests: [(&str, fn()); 8] = [
        ("linux_answers_by_itself_in_netns", linux_answers_by_itself),
        ("linux_answers_whatever_it_is_set_to_in_netns", linux_answers_whatever_it_is_set_to),
        ("who_does_not_have_the_address_does_not_answer_in_netns", another_address_or_mac),
        ("silence_is_told_from_nobody_there_in_netns", silence_is_told_from_nobody_there),
        ("an_answer_that_gets_lost_is_none_in_netns", an_answer_that_gets_lost_is_none),
        ("what_others_make_up_does_not_count_in_netns", what_others_make_up_does_not_count),
        ("an_end_that_is_down_asks_nothing_in_netns", an_end_that_is_down_asks_nothing),
        ("a_station_asks_too_in_netns", a_station_asks_too),
    ];
    trials.add(&missing, tests);
    trials.run()
}

const TIMEOUT: ProbeTimeouts =
    ProbeTimeouts { arrival: Duration::from_secs(20), silence: Duration::from_secs(20) };
const SHORT: ProbeTimeouts =
    ProbeTimeouts { arrival: Duration::from_millis(600), silence: Duration::from_millis(600) };

/// Whoever answers may take long on a busy machine.
const WHERE_ONE_ANSWERS: ProbeTimeouts = ProbeTimeouts { silence: TIMEOUT.silence, ..SHORT };

/// A bridge whose ports end in a namespace for the ends that ask (`e0`, `e1`) and one that is the guest (`e2`, `e3`). The
/// guest alone has addresses, both interfaces in one network.
struct Testbed {
    switch: Namespace,
    guest: Namespace,
    host: Namespace,
    endpoints: Vec<Endpoint>,
    macs: [Mac; 2],
}

const FOUR: &str = "10.20.31.204";
const FIVE: &str = "10.20.31.205";
const SIX: &str = "fd00::4";

fn testbed() -> Testbed {
    let (switch, host, guest) = (Namespace::new(), Namespace::new(), Namespace::new());
    let mut lines = "link add br0 type bridge\nlink set br0 up\n".to_owned();
    for at in 0..4 {
        let home = if at < 2 { host.id } else { guest.id };
        lines += &format!("link add p{at} type veth peer name e{at}\nlink set p{at} master br0 up\n");
        lines += &format!("link set e{at} netns {home}\n");
    }
    switch.batch("ip", &lines);
    host.batch("ip", "link set e0 up\nlink set e1 up\n");
    guest.batch(
        "ip",
        &format!(
            "link set e2 up\nlink set e3 up\naddress add {FOUR}/24 dev e2\naddress add {FIVE}/24 dev e3\n\
             address add {SIX}/64 dev e2 nodad\n"
        ),
    );
    switch.ports_forward("br0");
    let reports = |namespace: &Namespace| {
        let mut reports = Netlink::in_namespace_of(namespace.id).unwrap().interfaces().unwrap();
        reports.sort_by(|a, b| a.interface.name.cmp(&b.interface.name));
        reports
    };
    let macs = reports(&guest).iter().map(|report| report.interface.mac).collect::<Vec<_>>();
    let endpoints = reports(&host)
        .into_iter()
        .map(|report| Endpoint {
            label: report.interface.name.to_string(),
            namespace: Some(host.id),
            interface: report.index,
            mac: report.interface.mac,
        })
        .collect();
    Testbed { switch, guest, host, endpoints, macs: macs.try_into().unwrap() }
}

impl Testbed {
    fn question(&self, from: usize, to: usize, address: &str) -> NeighbourProbe {
        NeighbourProbe { from, to: self.macs[to], address: address.parse().unwrap(), awaited: true }
    }

    fn ask(&self, questions: &[NeighbourProbe], timeout: ProbeTimeouts) -> Vec<ProbeResult> {
        reach_and_ask(&self.endpoints, &[], questions, timeout).unwrap().1
    }

    fn neighbours_of_guest(&self) -> String {
        self.guest.run("ip -4 neighbour show")
    }
}

fn linux_answers_by_itself() {
    let testbed = testbed();
    let questions = [
        testbed.question(0, 0, FOUR),
        testbed.question(1, 0, FOUR),
        testbed.question(0, 1, FIVE),
        testbed.question(0, 0, SIX),
        testbed.question(1, 0, SIX),
    ];
    let started = Instant::now();
    let pairs = [(0, 1), (1, 0)];
    let (reached, asked) = reach_and_ask(&testbed.endpoints, &pairs, &questions, TIMEOUT).unwrap();
    let took = started.elapsed();
    eprintln!("two frames and five answers: {took:?}");
    assert_eq!(reached, [Reach::Arrived, Reach::Arrived]);
    assert_eq!(asked, vec![ProbeResult::Answered; 5]);
    assert!(took < TIMEOUT.silence, "nothing is waited for: {took:?}");
    assert_eq!(testbed.neighbours_of_guest(), "", "a probe leaves nothing in the guest's table");
}

fn linux_answers_whatever_it_is_set_to() {
    let testbed = testbed();
    // The way back to an asker with an address in this network would be through e2.
    let settings = [("rp_filter", "1"), ("arp_ignore", "1"), ("arp_ignore", "2"), ("arp_filter", "1")];
    for (name, value) in settings {
        for interface in ["all", "e2", "e3"] {
            testbed.guest.run(&format!("sysctl -qw net.ipv4.conf.{interface}.{name}={value}"));
        }
        let questions = [testbed.question(1, 1, FIVE), testbed.question(0, 0, FOUR)];
        assert_eq!(
            testbed.ask(&questions, TIMEOUT),
            [ProbeResult::Answered, ProbeResult::Answered],
            "{name}={value}"
        );
    }
}

fn another_address_or_mac() {
    let testbed = testbed();
    let questions = [testbed.question(0, 0, "10.20.31.99"), testbed.question(0, 0, "fd00::99")];
    assert_eq!(testbed.ask(&questions, SHORT), [ProbeResult::AnswersNobody, ProbeResult::AnswersNobody]);
    // The address is there, and not at this MAC address.
    let mut nobody = testbed.question(0, 0, FOUR);
    nobody.to = "02:00:00:00:77:77".parse().unwrap();
    let mut nobody_six = testbed.question(0, 0, SIX);
    nobody_six.to = nobody.to;
    let asked = testbed.ask(&[nobody, nobody_six], SHORT);
    assert_eq!(asked, [ProbeResult::AnswersNobody, ProbeResult::AnswersNobody]);
    // A busy machine may take longer to answer than nobody is waited for.
    assert_eq!(testbed.ask(&[testbed.question(0, 0, FOUR)], TIMEOUT), [ProbeResult::Answered]);
}

fn silence_is_told_from_nobody_there() {
    let testbed = testbed();
    // The first end is kept apart from both of the guest's interfaces.
    for port in ["p0", "p2", "p3"] {
        testbed.switch.run(&format!("bridge link set dev {port} isolated on"));
    }
    for address in [FOUR, SIX] {
        let apart = NeighbourProbe { awaited: false, ..testbed.question(0, 0, address) };
        let started = Instant::now();
        let timeout = ProbeTimeouts { arrival: Duration::from_millis(500), silence: Duration::from_secs(20) };
        let asked = testbed.ask(&[apart.clone(), testbed.question(1, 0, address)], timeout);
        assert_eq!(asked, [ProbeResult::NotAnswered, ProbeResult::Answered], "{address}");
        let took = started.elapsed();
        assert!(took >= timeout.arrival && took < Duration::from_secs(5), "{took:?}");
        assert_eq!(testbed.ask(&[apart], SHORT), [ProbeResult::AnswersNobody]);
    }
    // One that is to answer and answers nobody is given up when others are still waited for.
    testbed.guest.run("ip link set e3 down");
    let started = Instant::now();
    let timeout = ProbeTimeouts { arrival: Duration::from_secs(60), silence: Duration::from_millis(700) };
    let asked = testbed.ask(&[testbed.question(1, 1, FIVE), testbed.question(1, 0, FOUR)], timeout);
    let took = started.elapsed();
    assert_eq!(asked, [ProbeResult::AnswersNobody, ProbeResult::Answered]);
    assert!(took >= timeout.silence && took < Duration::from_secs(10), "{took:?}");
    // One that wakes late is waited for longer than what is not to come.
    let late = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(1500));
            testbed.guest.run("ip link set e3 up");
        });
        let apart = NeighbourProbe { awaited: false, ..testbed.question(0, 1, FIVE) };
        let timeout = ProbeTimeouts { arrival: Duration::from_millis(300), silence: Duration::from_secs(20) };
        testbed.ask(&[apart, testbed.question(1, 1, FIVE)], timeout)
    });
    assert_eq!(late, [ProbeResult::NotAnswered, ProbeResult::Answered]);
}

fn an_answer_that_gets_lost_is_none() {
    let testbed = testbed();
    // What the guest sends to the first end goes nowhere; what that end sends still arrives.
    testbed.switch.run("bridge link set dev p0 learning off");
    testbed.switch.run(&format!("bridge fdb replace {} dev p2 master static", testbed.endpoints[0].mac));
    let asked = testbed.ask(&[testbed.question(0, 0, FOUR), testbed.question(1, 0, FOUR)], WHERE_ONE_ANSWERS);
    assert_eq!(asked, [ProbeResult::NotAnswered, ProbeResult::Answered]);
}

/// Sends frames of ARP replies from a namespace, by a raw socket of another program's.
fn forge(namespace: &Namespace, interface: &str, frames: &[Vec<u8>], times: u32) {
    let frames: Vec<String> = frames.iter().map(|frame| hex(frame)).collect();
    let script = format!(
        "import socket,time\n\
         s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
         s.bind(('{interface}', 0))\n\
         frames = [bytes.fromhex(f) for f in '{}'.split()]\n\
         for n in range({times}):\n\
         \tfor f in frames: s.send(f)\n\
         \tif n % 64 == 0: time.sleep(0.001)\n",
        frames.join(" ")
    );
    let net = format!("--net=/proc/{}/ns/net", namespace.id);
    Command::new("nsenter").args([&net, "python3", "-"]).input(script).succeed().expect("frames are sent");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An ARP reply to a probe.
fn arp_reply(from: Mac, claims: Mac, to: Mac, address: [u8; 4]) -> Vec<u8> {
    let (from, claims, to) = (from.octets(), claims.octets(), to.octets());
    [&to[..], &from, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &claims, &address, &to, &[0; 4]].concat()
}

fn what_others_make_up_does_not_count() {
    if Command::new("python3").arg("--version").succeed().is_err() {
        panic!("python3, which makes the frames up, is not here");
    }
    let testbed = testbed();
    testbed.guest.run("ip address del 10.20.31.204/24 dev e2");
    // The bridge is not to believe what is made up either.
    testbed.switch.run("bridge link set dev p2 learning off");
    let absent: Mac = "02:00:00:00:77:77".parse().unwrap();
    let (asker, other) = (testbed.endpoints[0].mac, testbed.endpoints[1].mac);
    let [own, second] = testbed.macs;
    let four = [10, 20, 31, 204];
    let made_up = [
        // In the name of one that is not there: by the frame alone, by the answer alone.
        arp_reply(absent, own, asker, four),
        arp_reply(own, absent, asker, four),
        arp_reply(second, own, asker, four),
        // For another's address, and for another than asked.
        arp_reply(own, own, asker, [10, 20, 31, 99]),
        arp_reply(own, own, other, four),
        // To everybody.
        arp_reply(own, own, "ff:ff:ff:ff:ff:ff".parse().unwrap(), four),
        vec![0; 60],
    ];
    let mut nobody = testbed.question(0, 0, FOUR);
    nobody.to = absent;
    let timeout =
        ProbeTimeouts { arrival: Duration::from_millis(1500), silence: Duration::from_millis(1500) };
    let (asked, took) = thread::scope(|scope| {
        scope.spawn(|| forge(&testbed.guest, "e2", &made_up, 20_000));
        thread::sleep(Duration::from_millis(200));
        let started = Instant::now();
        let asked =
            testbed.ask(&[nobody, testbed.question(0, 0, FOUR), testbed.question(0, 1, FIVE)], timeout);
        (asked, started.elapsed())
    });
    assert_eq!(asked[..2], [ProbeResult::AnswersNobody, ProbeResult::AnswersNobody]);
    assert_eq!(asked[2], ProbeResult::Answered, "between all that is made up");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

fn an_end_that_is_down_asks_nothing() {
    let mut testbed = testbed();
    testbed.host.run("ip link set e0 down");
    let asked = testbed.ask(&[testbed.question(0, 0, FOUR), testbed.question(1, 0, FOUR)], WHERE_ONE_ANSWERS);
    assert!(matches!(&asked[0], ProbeResult::SendFailed(why) if why.contains("down")), "{asked:?}");
    assert_eq!(asked[1], ProbeResult::Answered);
    let beyond = testbed.question(2, 0, FOUR);
    let error = reach_and_ask(&testbed.endpoints, &[], &[beyond], SHORT).unwrap_err();
    assert!(matches!(error, FramesError::NoSuchEndpoint { pair: 0, endpoint: 2, count: 2 }), "{error}");
    testbed.endpoints[1].interface = 4711;
    let question = testbed.question(1, 0, FOUR);
    let error = reach_and_ask(&testbed.endpoints, &[], &[question], SHORT).unwrap_err();
    assert!(matches!(error, FramesError::Socket { interface: 4711, .. }), "{error}");
}

fn a_station_asks_too() {
    let testbed = testbed();
    let stand = |endpoint: &Endpoint| ProbeSocket { interface: endpoint.interface, mac: endpoint.mac };
    let task = Task {
        stands: testbed.endpoints.iter().map(stand).collect(),
        peers: vec![testbed.macs[0], testbed.macs[1]],
        asks: vec![
            Ask(0, 0, FOUR.parse().unwrap()),
            Ask(1, 0, SIX.parse().unwrap()),
            Ask(0, 1, "10.20.31.99".parse().unwrap()),
        ],
        window: 500,
        every: 50,
        ..Task::default()
    };
    let mut rounds = 0;
    let heard = agent::carry_out_at(&testbed.endpoints, &task, || {
        rounds += 1;
        rounds == 8
    })
    .unwrap();
    let [ProbeReport(_, None, true), ProbeReport(_, None, true), ProbeReport(silent, None, false)] =
        heard.asked[..]
    else {
        panic!("{heard:?}");
    };
    assert_eq!(silent, 8, "asked again until answered");
    let wrong = Task { asks: vec![Ask(0, 9, FOUR.parse().unwrap())], ..task };
    let error = agent::carry_out_at(&testbed.endpoints, &wrong, || true).unwrap_err();
    assert!(matches!(error, FramesError::NoSuchEndpoint { endpoint: 9, .. }), "{error}");
}
