//! `penstock report` as a user meets it: a run rendered again, two compared, one redacted.
#![allow(clippy::disallowed_methods)]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use penstock_measure::summarise;
use penstock_model::{
    Outcome, Verdict,
    measurement::{
        Cell, Conclusion, Direction, End, EndKind, ExpectationResult, Load, Measurement, Measurements,
        Metric, Network, PathKind, Protocol, Sample, SampleResult, Status, StopReason, Subject, Tool,
        latency::{self, Arm, Bins, Block, Latency, Power, Series, Setting},
    },
    verdict::{self, Vantage},
};
use penstock_report::Evidence;
use penstock_testkit::binary::{Run, run_built};

fn penstock(directory: &Path, arguments: &[&str]) -> Run {
    run_built(env!("CARGO_BIN_EXE_penstock"), directory, arguments)
}

/// A cell whose samples lie within a hundredth of `bits`, which is whole: a whole number is the same after any JSON.
fn cell(id: &str, bits: f64) -> Cell {
    let end = |name: &str, function: &str| End {
        place: Vantage::Guest(name.parse().unwrap()),
        kind: EndKind::Container,
        function: Some(function.parse().unwrap()),
    };
    let network = Network {
        protocol: Protocol::UdpStream,
        path: PathKind::VfVfInside,
        client: end("osd-0", "NET0#0"),
        server: end("osd-1", "NET0#1"),
        size: 1024,
        direction: Direction::Forward,
        load: Load::Closed,
    };
    let samples = (0..10).map(|n| Sample {
        at: f64::from(n),
        seconds: 1.0,
        position: n,
        round: n,
        warm_up: n == 0,
        taken: SampleResult::Values(BTreeMap::from([(Metric::Throughput, bits + f64::from(n) * 1e6)])),
    });
    Cell {
        id: id.into(),
        measurement: Measurement { tool: Tool::Netperf, subject: Subject::Network(network) },
        null: false,
        status: summarise::status(samples.collect(), None, 0, Vec::new(), StopReason::TightEnough, 0.95, 1),
    }
}

fn verdict(outcome: Outcome) -> Verdict {
    Verdict {
        subject: verdict::Subject::Machine,
        attribute: "mac".into(),
        item: None,
        vantage: Vantage::Host,
        wanted: "0c:c4:7a:9a:61:ea".into(),
        seen: "0c:c4:7a:9a:61:eb".into(),
        outcome,
        best_effort: false,
        out_of_sight: false,
        emulated: false,
    }
}

fn evidence(id: &str, cells: Vec<Cell>) -> Evidence {
    let mut evidence = Evidence::default();
    evidence.run.id = id.into();
    evidence.run.started = "2026-11-21T15:04:02Z".into();
    evidence.run.command = vec!["penstock".into(), "measure".into(), "/home/jane/m.yaml".into()];
    evidence.machine.name = "storage-node".into();
    let guests = r#"[{"name":"osd-0","kind":"container","functions":
        [{"function":"NET0#0","interface":"eth0","addresses":["10.20.30.4/24"]}]}]"#;
    evidence.machine.guests = serde_json::from_str(guests).unwrap();
    evidence.hashes.inventory = Some("aa".repeat(32));
    evidence.hashes.model = Some("bb".repeat(32));
    evidence.model.text = "nics: {NET0: {match: {mac: 0c:c4:7a:9a:61:ea}, vfs: 2}}\n".into();
    evidence.verdicts = [verdict(Outcome::Pass)].into_iter().collect();
    evidence.serial_log = Some("xeon-d login: root\neth0 10.20.30.4 up\n".into());
    let ruling = ExpectationResult::new("vf-vf inside >= 0.8 x pf-pf".parse().unwrap(), Vec::new());
    let rulings = vec![ExpectationResult { told: Conclusion::Holds, ..ruling }];
    evidence.measurements = Some(Measurements { cells, rulings, ..Measurements::default() });
    evidence
}

/// Leaves a run as a rehearsal does, without its renderings.
fn leave(directory: &Path, evidence: &Evidence) -> PathBuf {
    let run = directory.join(&evidence.run.id);
    std::fs::create_dir_all(run.join("consoles")).unwrap();
    std::fs::write(run.join("evidence.json"), evidence.json()).unwrap();
    run
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path.as_ref())
        .unwrap_or_else(|error| panic!("{}: {error}", path.as_ref().display()))
}

/// Every file below `at`, with its text.
fn all(at: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(all(&path));
        } else {
            found.insert(path.clone(), read(&path));
        }
    }
    found
}

#[test]
fn a_run_is_rendered_again_and_its_evidence_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let original = evidence("first", vec![cell("one", 1e9)]);
    let run = leave(directory.path(), &original);
    let shown = penstock(directory.path(), &["report", "first"]);
    assert_eq!(shown.status, 0, "{}", shown.stderr);
    assert!(shown.stdout.starts_with("storage-node\n"), "{}", shown.stdout);
    assert!(read(run.join("report.html")).contains("storage-node"));
    assert!(read(run.join("report.md")).starts_with("# storage-node"));
    assert_eq!(read(run.join("evidence.json")), original.json());
    let json = penstock(&run, &["report", "evidence.json", "--json", "--output", "../else"]);
    assert_eq!(json.status, 0, "{}", json.stderr);
    let document = penstock_testkit::json::read(&json.stdout).unwrap();
    assert_eq!((&document["kind"], &document["exit"]), (&"report".into(), &0.into()));
    assert_eq!(Evidence::from_json(&json.stdout).unwrap(), original);
    let elsewhere: Vec<PathBuf> = all(&directory.path().join("else")).into_keys().collect();
    assert_eq!(elsewhere.len(), 2, "{elsewhere:?}");
}

#[test]
fn latencies_are_written_as_other_programs_do() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let setting = Setting {
        place: Vantage::Guest("rt-1".parse().unwrap()),
        kind: EndKind::Vm,
        cpu: 3,
        ordinary: false,
        tool: latency::Tool::Cyclictest,
        load: latency::Load::Idle,
        arm: Arm::Tuned,
        power: Power::System,
    };
    let counts = Bins::new([(5, 7)].into(), 100, 8).unwrap();
    let series = Series { blocks: vec![Block { counts, ..Block::default() }], ..Series::new(setting) };
    let mut measured = evidence("late", Vec::new());
    measured.latency = Some(Latency { series: vec![series], ..Latency::default() });
    let run = leave(at, &measured);
    leave(at, &evidence("none", Vec::new()));

    let shown = penstock(at, &["report", "late", "--latencies", "cyclictest"]);
    assert_eq!(shown.stdout, "late/cyclictest-rt-1-idle-tuned-system.hist\n", "{}", shown.stderr);
    let written = read(run.join("cyclictest-rt-1-idle-tuned-system.hist"));
    assert!(written.contains("\n000005 000007\n") && written.contains("Overflows: 00001"), "{written}");
    let json = penstock(at, &["report", "late", "--latencies", "rteval", "--output", "else", "--json"]);
    let document = penstock_testkit::json::read(&json.stdout).unwrap();
    assert_eq!(document["kind"], "latencies");
    assert_eq!(document["files"][0], "else/cyclictest-rt-1-idle-tuned-system.xml");
    assert!(read(at.join("else/cyclictest-rt-1-idle-tuned-system.xml")).contains("<samples>8</samples>"));

    let none = penstock(at, &["report", "none", "--latencies", "rteval"]);
    assert!(none.status == 2 && none.stderr.contains("measure --latency"), "{}", none.stderr);
    assert_eq!(penstock(at, &["report", "late", "none", "--latencies", "rteval"]).status, 2);
}

#[test]
fn what_is_no_run_is_answered_in_words() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let write = |name: &str, text: &str| {
        std::fs::create_dir_all(at.join(name)).unwrap();
        std::fs::write(at.join(name).join("evidence.json"), text).unwrap();
    };
    std::fs::create_dir(at.join("empty")).unwrap();
    let whole = evidence("x", vec![cell("one", 1e9)]).json();
    write("cut", &whole[..whole.len() / 2]);
    write("other", "{\"version\": 1, \"verdicts\": 7}");
    let mut value: serde_json::Value = serde_json::from_str(&whole).unwrap();
    let first = value["verdicts"][0].clone();
    value["verdicts"].as_array_mut().unwrap().push(first);
    write("twice", &value.to_string());
    write("twice-measured", &evidence("x", vec![cell("one", 1e9), cell("one", 1e9)]).json());
    write("newer", "{\"version\": 99}");
    write("newer-measurements", "{\"version\": 1, \"measurements\": {\"version\": 99}}");
    for (run, words) in [
        ("nowhere", "name a run directory, like runs/MACHINE-TIME"),
        ("empty", "empty has no evidence.json"),
        ("cut", "was the disk full?"),
        ("other", "this is not the evidence of a run"),
        ("newer", "use a newer Penstock"),
        ("twice", "verdicts 1 and 2 are both \"machine mac\""),
        ("twice-measured", "two cells called \"one\""),
        ("newer-measurements", "measurements in newer-measurements/evidence.json have version 99"),
    ] {
        for arguments in [vec!["report", run], vec!["report", run, "--redact"], vec!["report", run, run]] {
            let shown = penstock(at, &arguments);
            assert_eq!((shown.status, shown.stdout.as_str()), (2, ""), "{run}");
            assert!(shown.stderr.contains(words), "{run}: {}", shown.stderr);
        }
    }
    assert!(!at.join("cut/report.html").exists() && !at.join("cut-redacted").exists());
}

#[test]
fn two_runs_are_compared_and_the_exit_status_says_whether_something_got_worse() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut lost = cell("lost", 1e9);
    leave(
        at,
        &evidence(
            "a",
            vec![cell("slow", 2e9), cell("fast", 1e9), cell("same", 1e9), lost.clone(), cell("old", 1e9)],
        ),
    );
    let mut better =
        evidence("better", vec![cell("slow", 2e9), cell("fast", 2e9), cell("same", 1e9), lost.clone()]);
    leave(at, &better);
    let good = penstock(at, &["report", "a", "better"]);
    assert_eq!(good.status, 0, "{}{}", good.stdout, good.stderr);
    let said = "Nothing that could be compared got worse: 1 ratio is better, 1 cell only in A";
    assert!(good.stdout.contains(said), "{}", good.stdout);
    assert!(good.stdout.contains("cells that are only in A: 1"), "{}", good.stdout);
    let itself = penstock(at, &["report", "a", "a"]);
    assert_eq!(itself.status, 0, "{}{}", itself.stdout, itself.stderr);
    assert!(itself.stdout.contains("Nothing got worse: all of it is as it was"), "{}", itself.stdout);

    // A run that measured nothing says nothing of what another measured.
    let mut nothing = evidence("nothing", Vec::new());
    nothing.measurements = None;
    leave(at, &nothing);
    let nothing = penstock(at, &["report", "a", "nothing"]);
    assert_eq!(nothing.status, 1, "an expectation held in A, and B does not tell: {}", nothing.stdout);
    for words in
        ["1 expectation holds no longer", "5 cells only in A", "holds -> not there", "B measured nothing"]
    {
        assert!(nothing.stdout.contains(words), "{words}: {}", nothing.stdout);
    }

    leave(
        at,
        &evidence("slower", vec![cell("slow", 1e9), cell("fast", 1e9), cell("same", 1e9), lost.clone()]),
    );
    let worse = penstock(at, &["report", "a", "slower", "--output", "out"]);
    assert_eq!(worse.status, 1, "{}", worse.stderr);
    assert!(worse.stdout.contains("B is worse than A: 1 ratio is worse"), "{}", worse.stdout);
    assert!(worse.stdout.contains("worse  0.50"), "{}", worse.stdout);
    let written = all(&at.join("out"));
    assert_eq!(written.len(), 3, "{:?}", written.keys());
    assert!(written[&at.join("out/comparison.html")].contains("slower"));
    let json: serde_json::Value = serde_json::from_str(&written[&at.join("out/comparison.json")]).unwrap();
    assert_eq!(json["cells"]["changes"][0]["cell"], "slow");

    lost.status = Status::missing("the guest is gone");
    leave(at, &evidence("lost", vec![cell("slow", 2e9), cell("fast", 1e9), cell("same", 1e9), lost]));
    let missing = penstock(at, &["report", "a", "lost"]);
    assert_eq!(missing.status, 1);
    assert!(missing.stdout.contains("missing lost: the guest is gone"), "{}", missing.stdout);

    better.run.id = "failing".into();
    better.verdicts = [verdict(Outcome::Fail)].into_iter().collect();
    better.hashes.inventory = Some("cc".repeat(32));
    better.measurements.as_mut().unwrap().rulings[0].told = Conclusion::DoesNotHold;
    leave(at, &better);
    let failing = penstock(at, &["report", "a", "failing"]);
    assert_eq!(failing.status, 1);
    for words in ["machine mac, seen from host: pass -> fail", "holds -> does not hold", "different hardware"]
    {
        assert!(failing.stdout.contains(words), "{words}: {}", failing.stdout);
    }
    let json = penstock(at, &["report", "a", "failing", "--json"]);
    assert_eq!(json.status, 1);
    assert!(
        penstock_testkit::json::read_as::<penstock_model::measurement::run_comparison::RunComparison>(
            &json.stdout
        )
        .unwrap()
        .got_worse()
    );
}

#[test]
fn a_redacted_run_has_nothing_left_of_the_original_and_the_original_is_untouched() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut original = evidence("xeon-d-1", vec![cell("netperf osd-0:NET0#0>osd-1:NET0#1", 1e9)]);
    let samples = concat!(
        r#"{"cell":"one","ran":{"place":"inside osd-0","command":"iperf3 -c 10.20.30.5","stdout":"{\n\t\"version\":\t\"iperf 3.12.1.2\",\n\t\"system_info\":\t\"Linux xeon-d 6.1.0-13 #1\",\n\t\"connecting_to\":\t{\n\t\t\"host\":\t\"10.20.30.5\"}}"}}"#,
        "\n",
        r#"{"cell":"two","ran":{"stdout":"{\"hostname\" : \"peer7\"}\nfe80::ec4:7aff:fe9a:61ea"#,
    );
    original.notes = vec!["peer7 answered at 12:34:56".into()];
    let run = leave(at, &original);
    std::fs::write(run.join("samples.jsonl"), samples).unwrap();
    std::fs::write(run.join("consoles/osd-0.log"), b"\xff boot\n10.20.30.4 enx0cc47a9a61ea\n").unwrap();
    std::fs::write(run.join("nic_table.h"), "{0x0c, 0xc4, 0x7a, 0x9a, 0x61, 0xea}\n").unwrap();
    std::fs::write(run.join("capture.pcap"), [0xd4, 0xc3, 0xb2, 0xa1, 0xff]).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", run.join("link")).unwrap();
    let deep = "1/2/3/4/5/6/7/8/9";
    std::fs::create_dir_all(run.join(deep)).unwrap();
    let before = std::fs::read(run.join("evidence.json")).unwrap();

    let shown = penstock(at, &["report", "xeon-d-1", "--redact"]);
    assert_eq!(shown.status, 0, "{}", shown.stderr);
    assert!(shown.stderr.contains("capture.pcap is no text"), "{}", shown.stderr);
    assert!(shown.stderr.contains(&format!("{deep} lies too deep")), "{}", shown.stderr);
    assert_eq!(std::fs::read(run.join("evidence.json")).unwrap(), before);
    // The directory is not called like the machine either.
    assert!(!at.join("xeon-d-1-redacted").exists());
    let copy = at.join("host-1-1-redacted");
    let written = all(&copy);
    let names: Vec<String> =
        written.keys().map(|path| path.strip_prefix(&copy).unwrap().display().to_string()).collect();
    let expected = [
        "consoles/osd-0.log",
        "evidence.json",
        "model.yaml",
        "nic_table.h",
        "report.html",
        "report.md",
        "samples.jsonl",
        "serial.log",
    ];
    assert_eq!(names, expected);
    for (path, text) in &written {
        for secret in
            ["10.20.30", "0c:c4:7a", "0cc47a", "0x0c, 0xc4", "fe80", "61ea", "xeon-d", "peer7", "jane"]
        {
            assert!(!text.contains(secret), "{secret} is left in {}:\n{text}", path.display());
        }
    }
    assert!(written[&copy.join("samples.jsonl")].contains("3.12.1.2"), "a version stays");
    assert!(written[&copy.join("consoles/osd-0.log")].contains("enx02005e"), "a name made of an address too");
    let redacted = Evidence::from_json(&written[&copy.join("evidence.json")]).unwrap();
    assert_eq!(redacted.hashes, original.hashes);
    assert_eq!(redacted.measurements, original.measurements);
    assert_eq!(redacted.notes[0], "host-2 answered at 12:34:56");
    assert!(redacted.notes[1].contains("hashes are of the originals"));
    penstock_model::parse(&penstock_model::Source::new("m.yaml", redacted.model.text.clone())).unwrap();

    // Once more changes nothing more, and what is there is not written over.
    let again = penstock(at, &["report", "host-1-1-redacted", "--redact", "--output", "twice"]);
    assert_eq!(again.status, 0, "{}", again.stderr);
    for (path, text) in &written {
        let name = path.strip_prefix(&copy).unwrap();
        assert_eq!(&read(at.join("twice").join(name)), text, "{}", name.display());
    }
    let full = penstock(at, &["report", "xeon-d-1", "--redact"]);
    assert_eq!(full.status, 2);
    assert!(full.stderr.contains("is not empty"), "{}", full.stderr);

    let in_the_way =
        penstock(at, &["report", "xeon-d-1", "--redact", "--output", "xeon-d-1/nic_table.h/copy"]);
    assert_eq!(in_the_way.status, 2, "{}", in_the_way.stderr);
    let in_the_way = penstock(at, &["report", "xeon-d-1", "--output", "xeon-d-1/nic_table.h"]);
    assert_eq!(in_the_way.status, 2, "{}", in_the_way.stderr);
    assert!(in_the_way.stderr.contains("--output"), "{}", in_the_way.stderr);

    let named = ["report", "xeon-d-1", "--redact", "--redact-names", "--output", "named", "--json"];
    let named = penstock(at, &named);
    assert_eq!(named.status, 0, "{}", named.stderr);
    let told: serde_json::Value = serde_json::from_str(&named.stdout).unwrap();
    assert_eq!(told["left_out"], serde_json::json!(["capture.pcap", deep]));
    let written = all(&at.join("named"));
    assert!(written.contains_key(&at.join("named/consoles/guest-1.log")), "{:?}", written.keys());
    for (path, text) in &written {
        assert!(!text.contains("osd-0") && !text.contains("storage-node"), "{}:\n{text}", path.display());
    }
    Evidence::from_json(&written[&at.join("named/evidence.json")]).unwrap();
}

#[test]
fn two_runs_are_not_redacted_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let shown = penstock(directory.path(), &["report", "a", "b", "--redact"]);
    assert_eq!(shown.status, 2);
    assert!(shown.stderr.contains("redact each of them"), "{}", shown.stderr);
    assert_eq!(penstock(directory.path(), &["report"]).status, 2);
    assert_eq!(penstock(directory.path(), &["report", "a", "--redact-names"]).status, 2);
}

#[test]
fn what_is_no_plain_file_in_a_run_directory_hangs_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let fifo = |path: PathBuf| nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for name in ["fifo", "zero", "long"] {
        std::fs::create_dir(at.join(name)).unwrap();
    }
    fifo(at.join("fifo/evidence.json"));
    std::os::unix::fs::symlink("/dev/zero", at.join("zero/evidence.json")).unwrap();
    std::fs::File::create(at.join("long/evidence.json")).unwrap().set_len(1 << 42).unwrap();
    for (name, why) in [("fifo", "it is a FIFO"), ("zero", "it is a device"), ("long", "it is longer than")] {
        let shown = penstock(at, &["report", name]);
        assert_eq!(shown.status, 2, "{}", shown.stderr);
        assert!(shown.stderr.contains(why), "{}", shown.stderr);
        assert_eq!(penstock(at, &["report", name, name]).status, 2);
    }
    // Beside a good run, too.
    let run = at.join("run");
    std::fs::create_dir(&run).unwrap();
    std::fs::write(run.join("evidence.json"), evidence("run", Vec::new()).json()).unwrap();
    fifo(run.join("samples.jsonl"));
    let shown = penstock(at, &["report", "run", "--redact"]);
    assert_eq!(shown.status, 2, "{}", shown.stderr);
    assert!(shown.stderr.contains("it is a FIFO"), "{}", shown.stderr);
}

#[test]
fn a_model_may_be_a_pipe_and_waiting_for_one_ends_with_sigterm() {
    let directory = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_penstock");
    let piped = std::process::Command::new("bash")
        .args(["-c", &format!("{program} check <(echo 'nics: {{NET0: {{vfs: 2}}}}') && echo 'nics: {{NET0: {{vfs: 2}}}}' | {program} check - && {program} check /dev/stdin <<< 'nics: {{NET0: {{vfs: 2}}}}'")])
        .output()
        .unwrap();
    assert!(piped.status.success(), "{}", String::from_utf8_lossy(&piped.stderr));
    let endless = penstock(directory.path(), &["check", "/dev/zero"]);
    assert_eq!(endless.status, 2);
    assert!(endless.stderr.contains("is larger than"), "{}", endless.stderr);

    let path = directory.path().join("fifo");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut waiting = std::process::Command::new(program).arg("check").arg(&path).spawn().unwrap();
    // It has opened the FIFO, and waits for who writes.
    let fifo = path.canonicalize().unwrap();
    let opened = || {
        let files = std::fs::read_dir(format!("/proc/{}/fd", waiting.id())).unwrap();
        files.flatten().any(|file| std::fs::read_link(file.path()).is_ok_and(|to| to == fifo))
    };
    let began = std::time::Instant::now();
    while !opened() {
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "it does not open the FIFO");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(waiting.try_wait().unwrap().is_none(), "it waits for who writes");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(waiting.id() as i32), nix::sys::signal::SIGTERM)
        .unwrap();
    let began = std::time::Instant::now();
    let status = loop {
        if let Some(status) = waiting.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > std::time::Duration::from_secs(10) {
            waiting.kill().unwrap();
            panic!("SIGTERM does not end it");
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    assert_eq!(status.code(), Some(130));
}
