//! `penstock-switch` with many ports that nobody has come to: what its start, an answer and waiting take.

use std::{
    fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        resource::{Resource, getrlimit, setrlimit},
        signal::{Signal, kill},
    },
    time::clock_getcpuclockid,
    unistd::Pid,
};
use penstock_testkit::binary;
use serde_json::json;

use super::{
    choice::{Axis, Choice},
    curve::{Curve, Point, Quantity},
    process,
};

/// How long a switch is watched that has nothing to do.
const IDLE: Duration = Duration::from_secs(2);
/// How long one may take until it answers.
const READY: Duration = Duration::from_secs(60);

/// Which part of a sample a curve shows.
type Part = fn(&PortSample) -> f64;

/// The curves.
const CURVES: [(&str, Quantity, Part); 6] = [
    ("start", Quantity::CpuTime, |sample| sample.start),
    ("ctl get", Quantity::CpuTime, |sample| sample.asking.cpu),
    ("its answer", Quantity::CpuTime, |sample| sample.answer),
    ("idle, for 1 s", Quantity::CpuTime, |sample| sample.idle),
    ("switch, resident", Quantity::Memory, |sample| sample.memory),
    ("ctl get", Quantity::Memory, |sample| sample.asking.memory),
];

/// One start of a switch. Times are CPU time in milliseconds.
struct PortSample {
    /// Until its control socket takes a connection.
    start: f64,
    /// What `ctl get` takes by itself.
    asking: process::ProcessUsage,
    /// What the switch takes to answer that.
    answer: f64,
    /// Of each second in which nobody does anything.
    idle: f64,
    /// MB.
    memory: f64,
}

/// A switch that runs, until it is dropped.
struct RunningSwitch(Child);

impl Drop for RunningSwitch {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

/// Starts switches with so many ports.
pub fn measure(choice: &Choice) -> Vec<Curve> {
    // A port has a socket.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("as many files as may be");
    // In memory, as sockets in /run are: a file system on a disk looks long for room where thousands were deleted before.
    let all = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let all = all.expect("a temporary directory");
    let sizes = choice.sizes(Axis::Ports);
    sizes.iter().for_each(|ports| configure(&all.path().join(ports.to_string()), *ports));
    let mut samples: Vec<Vec<PortSample>> = sizes.iter().map(|_| Vec::new()).collect();
    for round in 1..=choice.repeats {
        eprintln!("  {round} of {}", choice.repeats);
        for (ports, samples) in sizes.iter().zip(&mut samples) {
            samples.push(sample(&all.path().join(ports.to_string())));
        }
    }
    let curve = |(subject, quantity, part): (&str, Quantity, Part)| Curve {
        axis: Axis::Ports,
        subject: subject.to_owned(),
        quantity,
        points: (sizes.iter().zip(&samples))
            .map(|(size, samples)| Point { size: *size, samples: samples.iter().map(part).collect() })
            .collect(),
    };
    CURVES.into_iter().map(curve).collect()
}

/// Writes the configuration: an address, a port VLAN and anti-spoofing for each port.
fn configure(home: &Path, ports: u32) {
    fs::create_dir(home).expect("a directory");
    let port = |number: u32| {
        let mac = format!("02:00:00:00:{:02x}:{:02x}", number >> 8, number & 0xff);
        let port =
            json!({"socket": home.join(number.to_string()), "mac": mac, "vlan": 100, "spoofchk": true});
        (format!("NET0#{number}"), port)
    };
    let ports: serde_json::Map<_, _> = (0..ports).map(port).collect();
    let config = json!({"version": 1, "ports": ports}).to_string();
    fs::write(home.join("switch.json"), config).expect("a file");
}

fn program() -> PathBuf {
    let penstock = binary::path().expect("the binary was built: `make build`");
    penstock.with_file_name("penstock-switch")
}

fn sample(home: &Path) -> PortSample {
    let control = home.join("control");
    let mut command = Command::new(program());
    command.args(["run", "switch.json", "--control", "control"]).current_dir(home);
    let mut switch = RunningSwitch(command.stdin(Stdio::null()).spawn().expect("the switch starts"));
    let began = Instant::now();
    while UnixStream::connect(&control).is_err() {
        let ended = switch.0.try_wait().expect("a child");
        assert!(
            ended.is_none() && began.elapsed() < READY,
            "{}: the switch does not come up",
            home.display()
        );
        thread::sleep(Duration::from_millis(1));
    }
    let start = cpu(&switch);
    // What it is busy with after it took that connection is over.
    thread::sleep(Duration::from_millis(300));
    let before = cpu(&switch);
    let asking = process::measure(home, &program(), &["ctl", "control", "get"]);
    thread::sleep(Duration::from_millis(100));
    let answered = cpu(&switch);
    thread::sleep(IDLE);
    let idle = (cpu(&switch) - answered) / IDLE.as_secs_f64();
    PortSample { start, asking, answer: answered - before, idle, memory: resident(&switch) }
}

/// CPU time of it so far in milliseconds, that of threads which have ended included.
fn cpu(switch: &RunningSwitch) -> f64 {
    let clock = clock_getcpuclockid(Pid::from_raw(switch.0.id() as i32)).expect("it runs");
    Duration::from(clock.now().expect("it runs")).as_secs_f64() * 1e3
}

fn resident(switch: &RunningSwitch) -> f64 {
    let status = fs::read_to_string(format!("/proc/{}/status", switch.0.id())).expect("it runs");
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has memory");
    kib.trim().trim_end_matches(" kB").parse::<f64>().expect("KiB") * 1024.0 / 1e6
}
