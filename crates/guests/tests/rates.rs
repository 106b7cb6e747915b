//! Rates: what tc's answers are taken for, and, with a real container whose VF is an end of a veth pair, whether the
//! kernel holds them. Also run on a board, whose kernel has all that the one at hand may lack.
#![allow(clippy::disallowed_methods)]

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Command as Program, ExitCode},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{setsockopt, sockopt};
use penstock_guests::{
    Containers, GuestError, Recognise,
    containers::{
        rates::{redirect, root_rate},
        start_script::failure,
    },
};
use penstock_host::{Command, InterfaceReport, Netlink, Place, Root, namespace};
use penstock_model::{Bdf, Function, Guest, GuestName, Mac, Outcome, TxRate, VfSettings};
use penstock_plan::action::{GuestDefinition, GuestFunction};
use penstock_testkit::{
    needs::{self, Lack},
    trials::Trials,
};

const TIMEOUT: Duration = Duration::from_secs(20);

/// In Mbit/s; emulated machines can send a few hundred.
const RATE: u32 = 20;

/// The bytes of TCP's that a frame of 1514 bytes carries, with time stamps.
const PAYLOAD: f64 = 1448.0 / 1514.0;

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let lacking = trials.lacking("rates of containers", lacking);
    let plain: [(&str, fn()); 5] = [
        ("a_bucket_is_told_by_its_rate", bucket_is_told_by_its_rate),
        ("what_is_no_bucket_limits_nothing", no_bucket),
        ("all_that_comes_in_must_be_led_away", all_is_led_away),
        ("what_tc_never_prints_is_an_error", never_printed),
        ("the_log_tells_what_failed", log_tells),
    ];
    let real: [(&str, fn()); 3] = [
        ("rates_hold_in_netns", rates_hold),
        ("a_rate_that_the_guest_took_away_is_told_in_netns", taken_away),
        ("a_rate_that_cannot_be_set_gives_all_back_in_netns", cannot_be_set),
    ];
    if lacking.is_none() && trials.run_at_all() {
        // Of the whole process, before it has a second thread: what LXC gives back comes back here.
        unshare(CloneFlags::CLONE_NEWNET).expect("root may make a network namespace");
    }
    trials.add(&None, plain);
    trials.add(&lacking, real);
    trials.run()
}

/// What is missing here to hold rates of containers.
fn lacking() -> Option<Lack> {
    let line = "ip link add name a0 type veth peer name b0 && ip link add name c0 type ifb && \
                tc qdisc add dev a0 root tbf rate 1mbit burst 20000 limit 20000 && tc qdisc add dev a0 ingress && \
                { tc filter add dev a0 parent ffff: matchall action mirred egress redirect dev c0 2>/dev/null || \
                tc filter add dev a0 parent ffff: protocol all u32 match u32 0 0 \
                action mirred egress redirect dev c0; }";
    needs::containers(&["ip", "tc", "nsenter"])
        .or_else(|| needs::refused(Command::new("unshare").args(["--net", "sh", "-c", line])))
}

#[track_caller]
fn seen(text: &str, rate: u32) -> (String, bool) {
    root_rate(text, TxRate(rate)).unwrap()
}

fn bucket_is_told_by_its_rate() {
    // As tc of iproute2 6.1 and 6.15 prints it.
    let text = r#"[{"kind":"tbf","handle":"1:","root":true,"refcnt":3,
        "options":{"rate":12500000,"burst":131062,"lat":45515}},
        {"kind":"fq_codel","handle":"10:","parent":"1:1","options":{"limit":10240,"flows":1024}},
        {"kind":"ingress","handle":"ffff:","parent":"ffff:fff1","options":{}}]"#;
    assert_eq!(seen(text, 100), ("100 Mbit/s".to_owned(), true));
    assert_eq!(seen(text, 99), ("100 Mbit/s".to_owned(), false));
    let odd = text.replace("12500000", "12500001");
    assert_eq!(seen(&odd, 100), ("100.000008 Mbit/s".to_owned(), false));
    let fast = text.replace("12500000", "6250000000");
    assert_eq!(seen(&fast, 50_000), ("50000 Mbit/s".to_owned(), true));
    let full = text.replace("131062", "4000000000");
    assert_eq!(seen(&full, 100), ("100 Mbit/s with 4000000000 bytes at once".to_owned(), false));
}

fn no_bucket() {
    for text in [
        "",
        "\n",
        "[]",
        "[ ]",
        r#"[{"kind":"ingress","handle":"ffff:","parent":"ffff:fff1","options":{}}]"#,
        // Below something else that lets others pass.
        r#"[{"kind":"tbf","handle":"2:","parent":"1:1","options":{"rate":12500000,"burst":1600}}]"#,
    ] {
        assert_eq!(seen(text, 100), ("no limit".to_owned(), false), "{text:?}");
    }
    let other = r#"[{"kind":"noqueue","root":true},{"kind":"tbf","options":{"rate":12500000,"burst":1}}]"#;
    assert_eq!(seen(other, 100), ("no limit (noqueue)".to_owned(), false));
    let hostile = format!(r#"[{{"kind":"\u001b[31m{}","root":true}}]"#, "x".repeat(1000));
    assert_eq!(seen(&hostile, 100).0, "no limit (?[31mxxxxxxxxxxx)");
}

const MATCHALL: &str = r#"[{"parent":"ffff:","protocol":"all","pref":1,"kind":"matchall","chain":0},
    {"parent":"ffff:","protocol":"all","pref":1,"kind":"matchall","chain":0,"options":{"handle":1,"not_in_hw":true,
    "actions":[{"order":1,"kind":"mirred","mirred_action":"redirect","direction":"egress","to_dev":"penstock-in0",
    "control_action":{"type":"stolen"},"index":1,"ref":1,"bind":1}]}}]"#;

const U32: &str = r#"[{"parent":"ffff:","protocol":"all","pref":1,"kind":"u32","chain":0},
    {"parent":"ffff:","protocol":"all","pref":1,"kind":"u32","chain":0,"options":{"fh":"800:","ht_divisor":1}},
    {"parent":"ffff:","protocol":"all","pref":1,"kind":"u32","chain":0,"options":{"fh":"800::800","order":2048,
    "key_ht":"800","bkt":"0","not_in_hw":true,"match":{"value":"0","mask":"0","offmask":"","off":0},
    "actions":[{"order":1,"kind":"mirred","mirred_action":"redirect","direction":"egress","to_dev":"penstock-in0",
    "control_action":{"type":"stolen"},"index":1,"ref":1,"bind":1}]}}]"#;

fn all_is_led_away() {
    for text in [MATCHALL, U32] {
        assert_eq!(redirect(text).unwrap().unwrap().as_str(), "penstock-in0");
        for (from, to) in [
            ("\"protocol\":\"all\"", "\"protocol\":\"ip\""),
            ("redirect", "mirror"),
            ("\"direction\":\"egress\"", "\"direction\":\"ingress\""),
            ("\"chain\":0", "\"chain\":1"),
            ("\"kind\":\"mirred\"", "\"kind\":\"gact\""),
            ("\"actions\"", "\"inactions\""),
        ] {
            let other = redirect(&text.replace(from, to)).unwrap();
            assert!(other.unwrap_err().contains("does not limit"), "{to}");
        }
        let twice = format!("{},{}", text.trim_end_matches(']'), text.trim_start_matches('['));
        assert_eq!(redirect(&twice).unwrap().unwrap_err(), "2 filters");
    }
    let some = U32.replace("\"mask\":\"0\"", "\"mask\":\"ffffffff\"");
    assert!(redirect(&some).unwrap().is_err());
    assert_eq!(redirect("").unwrap().unwrap_err(), "no limit");
    assert_eq!(redirect("[]").unwrap().unwrap_err(), "no limit");
}

fn never_printed() {
    let deep = "[".repeat(100_000);
    for text in
        ["{", "[1]", "null", "{}", r#"[{"kind":7}]"#, r#"[{"kind":"tbf","root":true,"options":[]}]"#, &deep]
    {
        assert!(root_rate(text, TxRate(1)).is_err(), "{:.40}", text);
        assert!(redirect(text).is_err() || text.contains("tbf"), "{:.40}", text);
    }
    assert!(root_rate(r#"[{"kind":"tbf","root":true}]"#, TxRate(1)).is_err());
    for device in ["--help", "", "a/b", "sixteen-letters-", "\\u001b[2J"] {
        assert!(redirect(&MATCHALL.replace("penstock-in0", device)).is_err(), "{device:?}");
    }
}

fn log_tells() {
    let guest: GuestName = "a".parse().unwrap();
    let log = "# egress_rate eth0\n# ingress_rate eth1\nError: Specified qdisc kind is unknown.\n\n";
    let Some(error @ GuestError::NoRate { .. }) = failure(&guest, log) else {
        panic!("it failed");
    };
    let wanted = "the ingress_rate of interface eth1 of guest a cannot be held: Error: Specified qdisc kind is unknown.";
    assert_eq!(error.to_string(), wanted);
    assert!(error.hint().unwrap().contains("ifb"), "{:?}", error.hint());
    assert!(failure(&guest, "# egress_rate eth0\n").unwrap().to_string().contains("tc did not say why"));
    let log = "# egress_rate eth0\n# route eth0 default via 192.0.2.1\nRTNETLINK answers: File exists\n";
    let wanted = "guest a cannot have the route default via 192.0.2.1 over its interface eth0: RTNETLINK answers: File exists";
    assert_eq!(failure(&guest, log).unwrap().to_string(), wanted);
    for log in ["", "# egress_rate eth0\n# done\n", "nothing of ours"] {
        assert!(failure(&guest, log).is_none(), "{log:?}");
    }
}

/// Tells interfaces by their MAC address, as a VF is told by its PCI device.
struct ByMac(BTreeMap<Bdf, Mac>);

impl Recognise for ByMac {
    fn find(&self, function: Bdf, among: &[InterfaceReport]) -> Option<InterfaceReport> {
        let mac = self.0.get(&function)?;
        among.iter().find(|report| report.interface.mac == *mac).cloned()
    }

    fn exists(&self, function: Bdf) -> bool {
        self.0.contains_key(&function)
    }
}

/// A guest with limits, whose function is one end of a veth pair; the other end is in this process's namespace.
struct Bench {
    number: u8,
    containers: Containers,
    definition: GuestDefinition,
    wanted: Guest,
    _state: tempfile::TempDir,
}

impl Bench {
    fn new(number: u8) -> Bench {
        let state = tempfile::tempdir().unwrap();
        // A container's root is an ordinary account of the host, and has to reach its own directory.
        std::fs::set_permissions(state.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let bdf: Bdf = "0000:01:10.0".parse().unwrap();
        let mac: Mac = format!("02:00:00:00:{number:02x}:01").parse().unwrap();
        let line = format!(
            "ip link add name vf{number} address {mac} mtu 1500 type veth peer name up{number} && \
             ip address add 10.{number}.0.1/24 dev up{number} && ip link set up{number} up"
        );
        assert!(Program::new("sh").args(["-ec", &line]).status().unwrap().success());
        let by = ByMac([(bdf, mac)].into_iter().collect());
        let containers = Containers::new(Root::system(), state.path().join("guests"))
            .keeping_ids_in(state.path().join("ids"))
            .recognising(Arc::new(by));
        let rate = Some(TxRate(RATE));
        let owned = GuestFunction {
            addresses: vec![format!("10.{number}.0.2/24").parse().unwrap()],
            egress_rate: rate,
            ingress_rate: rate,
            ..GuestFunction::bare(bdf, "eth0".parse().unwrap())
        };
        let function = Function {
            name: "NET0#0".parse().unwrap(),
            settings: VfSettings::default(),
            interface: owned.interface.clone(),
            addresses: owned.addresses.clone(),
            routes: Vec::new(),
            dhcp: false,
            mtu: None,
            egress_rate: rate,
            ingress_rate: rate,
            best_effort: Default::default(),
        };
        let definition = GuestDefinition {
            functions: vec![owned],
            ..GuestDefinition::bare(format!("limited-{number}").parse().unwrap())
        };
        let wanted = Guest { functions: vec![function], ..Guest::default() };
        Bench { number, containers, definition, wanted, _state: state }
    }

    /// Starts it; the process id of its first process.
    #[track_caller]
    fn start(&self) -> u32 {
        self.containers.define(&self.definition, TIMEOUT).unwrap();
        self.containers.start(&self.definition.guest, TIMEOUT).unwrap();
        self.containers.place(&self.definition.guest).unwrap().namespace().unwrap().unwrap()
    }

    fn verdicts(&self) -> Vec<(String, String, Outcome)> {
        let verdicts = self.containers.verdicts(&self.definition.guest, &self.wanted);
        verdicts.into_iter().map(|verdict| (verdict.attribute, verdict.seen, verdict.outcome)).collect()
    }

    fn on_host(&self) -> Option<InterfaceReport> {
        let all = Netlink::open().unwrap().interfaces().unwrap();
        all.into_iter().find(|report| report.interface.name.as_str() == format!("vf{}", self.number))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.containers.stop(&self.definition.guest, TIMEOUT);
        let _ = Program::new("ip").args(["link", "del", &format!("up{}", self.number)]).output();
    }
}

fn row(attribute: &str, seen: &str, outcome: Outcome) -> (String, String, Outcome) {
    (attribute.to_owned(), seen.to_owned(), outcome)
}

/// What TCP gets through from one namespace to another, in Mbit/s on the wire, over `time` after a second to settle.
fn tcp(from: Option<u32>, to: Option<u32>, at: SocketAddr, time: Duration) -> f64 {
    let settle = Duration::from_secs(1);
    let listener = namespace::within(to, || TcpListener::bind(at)).unwrap().unwrap();
    // What waits here unread while the machine is busy would count as come in while the clock ran: so little waits.
    setsockopt(&listener, sockopt::RcvBuf, &(64 << 10)).unwrap();
    let receiver = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 64 << 10];
        let (begun, mut first, mut count) = (Instant::now(), None, 0_u64);
        loop {
            let read = stream.read(&mut buffer).unwrap();
            let now = begun.elapsed();
            if now < settle {
                continue;
            }
            let since = *first.get_or_insert(now);
            if read == 0 || now - since >= time {
                return count as f64 * 8.0 / 1e6 / (now - since).as_secs_f64() / PAYLOAD;
            }
            count += read as u64;
        }
    });
    let mut stream =
        namespace::within(from, || TcpStream::connect_timeout(&at, TIMEOUT)).unwrap().expect("it connects");
    let block = vec![0; 64 << 10];
    // Until the receiver goes.
    while stream.write_all(&block).is_ok() {}
    receiver.join().unwrap()
}

fn rates_hold() {
    let bench = Bench::new(7);
    let pid = bench.start();
    let text = format!("{RATE} Mbit/s");
    let wanted = [row("egress_rate", &text, Outcome::Pass), row("ingress_rate", &text, Outcome::Pass)];
    assert_eq!(bench.verdicts(), wanted);
    let time = Duration::from_secs(3);
    let inside: SocketAddr = format!("10.{}.0.2:4711", bench.number).parse().unwrap();
    let outside: SocketAddr = format!("10.{}.0.1:4711", bench.number).parse().unwrap();
    // Never above; and as high as the rate in one of a few tries, for a machine that is busy with something else is slow
    // whatever the limit.
    let holds = |what: &str, measure: &dyn Fn() -> f64| {
        let mut tries = Vec::new();
        while tries.len() < 4 {
            let measured = measure();
            tries.push(measured);
            assert!(measured < f64::from(RATE) * 1.1, "{what}: {measured} Mbit/s");
            if measured > f64::from(RATE) * 0.9 {
                eprintln!("{RATE} Mbit/s {what}: {tries:.2?}");
                return;
            }
        }
        panic!("{what}: {tries:?} Mbit/s");
    };
    holds("leave", &|| tcp(Some(pid), None, outside, time));
    holds("come in", &|| tcp(None, Some(pid), inside, time));
    // Without them the same path is faster by far, else this would show nothing: in one of a few tries as well.
    let words = ["-t", &pid.to_string(), "-n", "tc", "qdisc", "del", "dev", "eth0", "root"];
    assert!(Program::new("nsenter").args(words).status().unwrap().success());
    let mut free = Vec::new();
    while free.last().is_none_or(|free| *free <= f64::from(RATE) * 2.0) {
        assert!(free.len() < 4, "{free:.2?} Mbit/s without a limit");
        free.push(tcp(Some(pid), None, outside, Duration::from_secs(1)));
    }

    bench.containers.stop(&bench.definition.guest, TIMEOUT).unwrap();
    let back = bench.on_host().expect("it came back");
    assert!(!back.interface.up);
    let left = Program::new("tc").args(["qdisc", "show", "dev", "vf7"]).output().unwrap();
    let left = String::from_utf8_lossy(&left.stdout).into_owned();
    assert!(!left.contains("tbf") && !left.contains("ingress"), "{left}");
}

fn taken_away() {
    let bench = Bench::new(8);
    bench.start();
    let place = bench.containers.place(&bench.definition.guest).unwrap();
    let inside = |line: &str| {
        let command = penstock_host::Command::new("sh").args(["-c", line]);
        assert!(place.run(&command).unwrap().status.success(), "{line}");
    };
    // Under another name the interface is still known.
    inside("ip link set eth0 down && ip link set eth0 name eth9 up");
    assert!(bench.verdicts().iter().all(|row| row.2 == Outcome::Pass), "{:?}", bench.verdicts());
    inside("tc qdisc del dev eth9 root && tc qdisc del dev eth9 ingress");
    let seen = bench.verdicts();
    assert!(seen.iter().all(|row| row.2 == Outcome::Fail && row.1.starts_with("no limit")), "{seen:?}");
    bench.containers.stop(&bench.definition.guest, TIMEOUT).unwrap();
    let stopped = bench.verdicts();
    assert!(stopped.iter().all(|row| row.2 == Outcome::Unknown), "{stopped:?}");
}

fn cannot_be_set() {
    let mut bench = Bench::new(9);
    let start = |bench: &Bench| {
        bench.containers.define(&bench.definition, TIMEOUT).unwrap();
        bench.containers.start(&bench.definition.guest, TIMEOUT).unwrap_err()
    };
    // The name that the way in needs is taken, as any failure of tc or ip could be.
    let taken = bench.definition.functions[0].clone();
    bench.definition.functions[0].interface = "penstock-in0".parse().unwrap();
    let error = start(&bench);
    assert!(matches!(error, GuestError::NoRate { .. }), "{error}");
    assert!(error.to_string().starts_with("the ingress_rate of interface penstock-in0"), "{error}");
    assert!(error.to_string().contains("File exists"), "{error}");
    assert!(bench.on_host().is_some_and(|report| !report.interface.up), "the function is back");
    assert!(!bench.containers.found().unwrap()[&bench.definition.guest].running);

    bench.definition.functions[0] = GuestFunction { egress_rate: Some(TxRate(0)), ..taken.clone() };
    let error = start(&bench);
    assert!(error.to_string().contains("let nothing pass"), "{error}");
    assert!(error.hint().is_some());

    // And the same guest can be started at once when the reason is gone.
    bench.definition.functions[0] = taken;
    bench.start();
}
