//! Namespaces that stand for two guests and a host, as places, with interfaces on one switch; and the cells that are measured
//! between them.
#![allow(dead_code, reason = "two test programs share it, and each has use for a part")]

pub mod open_vswitch;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use penstock_host::{
    Command, InterfaceReport, Netlink, Output, Place, PlaceError,
    process::{self, Background},
};
use penstock_measure::{
    matrix::Planned,
    network::{NetworkTaker, Options},
    parse,
    sampler::Sampler,
    testbed::{FunctionInterface, Testbed},
};
use penstock_model::{
    Mac, Mtu,
    measurement::{
        Direction, End, EndKind, Load, Measurement, Metric, Network, PathKind, Protocol, Subject, Tool,
    },
    verdict::Vantage,
};
use penstock_testkit::{namespace::Namespace, script};
use tempfile::TempDir;

/// A network namespace that stands for a guest, or for the host.
pub struct Inside {
    pub name: &'static str,
    pub namespace: Mutex<Option<Arc<Namespace>>>,
    /// `PATH` there.
    pub programs: Mutex<Option<String>>,
    /// What stands for `/proc/sys/kernel/random/boot_id` there, as in a VM that boots.
    pub boot: Mutex<Option<PathBuf>>,
}

/// What is set up for a command there; `$0` stands for the kernel's own `boot_id` unless it is empty.
const ENTER: &str = "mount -t sysfs none /sys && { [ -z \"$0\" ] || mount --bind \"$0\" /proc/sys/kernel/random/boot_id; } && exec \"$@\"";

impl Inside {
    fn id(&self) -> Result<u32, PlaceError> {
        let namespace = self.namespace.lock().unwrap();
        let gone = || PlaceError::Gone { place: self.describe(), why: "it stopped".to_owned() };
        namespace.as_ref().map(|namespace| namespace.id).ok_or_else(gone)
    }
}

impl Place for Inside {
    fn describe(&self) -> String {
        if self.name == "host" { "host".to_owned() } else { format!("inside {}", self.name) }
    }

    fn run(&self, command: &Command) -> Result<Output, PlaceError> {
        let mut entering = Command::new("nsenter")
            .arg(format!("--net=/proc/{}/ns/net", self.id()?))
            // A guest sees its own interfaces in /sys.
            .args(["unshare", "--mount", "sh", "-c", ENTER])
            .arg(self.boot.lock().unwrap().clone().unwrap_or_default())
            .arg(command.program())
            .args(command.arguments())
            .input(command.standard_input())
            .deadline(command.time_allowed().expect("nothing runs for ever"));
        for (name, value) in command.environment() {
            entering = entering.env(name, value);
        }
        if let Some(path) = &*self.programs.lock().unwrap() {
            entering = entering.env("PATH", path);
        }
        let output = entering.run();
        self.id()?;
        output.map_err(|source| PlaceError::Process { place: self.describe(), source })
    }

    fn read(&self, path: &str, _: usize) -> Result<Vec<u8>, PlaceError> {
        assert_eq!(self.name, "host", "nobody reads in a guest");
        let failed = |error: std::io::Error| PlaceError::File {
            place: self.describe(),
            path: path.to_owned(),
            why: error.to_string(),
        };
        fs::read(path).map_err(failed)
    }

    fn interfaces(&self) -> Result<Vec<InterfaceReport>, PlaceError> {
        let reports = Netlink::in_namespace_of(self.id()?).and_then(|mut netlink| netlink.interfaces());
        reports.map_err(|source| PlaceError::Interfaces { place: self.describe(), source })
    }

    fn namespace(&self) -> Result<Option<u32>, PlaceError> {
        self.id().map(Some)
    }
}

/// How a shell takes a container back.
const TAKES_BACK: &str = "$(back penstock-measure-";

/// A place with a mount namespace of its own, as a VM has, so that network namespaces can be made there.
pub struct Vm {
    keeper: Background,
    /// Commands that take containers back do not reach it.
    pub takes_nothing_back: AtomicBool,
    /// A directory of programs that are there beside those of the machine.
    pub programs: Mutex<Option<PathBuf>>,
}

impl Vm {
    /// In the network namespace of an id.
    pub fn new(id: u32) -> Vm {
        let script = "mount -t sysfs none /sys && mount -t tmpfs none /run && echo ready && exec sleep 600";
        let log = tempfile::NamedTempFile::new().unwrap();
        let keeper = Command::new("nsenter")
            .arg(format!("--net=/proc/{id}/ns/net"))
            .args(["unshare", "--mount", "--propagation", "private", "sh", "-c", script])
            .start_logged(log.reopen().unwrap())
            .unwrap();
        let ready = (0..100).any(|_| {
            thread::sleep(Duration::from_millis(50));
            fs::read_to_string(log.path()).is_ok_and(|text| text.contains("ready"))
        });
        assert!(ready, "{:?}", fs::read_to_string(log.path()));
        Vm { keeper, takes_nothing_back: AtomicBool::new(false), programs: Mutex::default() }
    }

    /// A shell's line inside; what it printed.
    pub fn shell(&self, line: &str) -> String {
        self.run(&Command::new("sh").args(["-c", line]).deadline(SECOND * 20))
            .unwrap()
            .succeeded()
            .unwrap()
            .text()
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-9", &self.keeper.id().to_string()]).run();
    }
}

impl Place for Vm {
    fn describe(&self) -> String {
        "inside node-1".to_owned()
    }

    fn run(&self, command: &Command) -> Result<Output, PlaceError> {
        let idle = self.takes_nothing_back.load(Ordering::Relaxed);
        let takes_back = |word: &&OsString| word.to_string_lossy().contains(TAKES_BACK);
        let made_too = |word: &OsString| word.to_string_lossy().contains("netns add");
        if idle && command.arguments().iter().find(takes_back).is_some_and(|word| !made_too(word)) {
            return Err(PlaceError::Gone { place: self.describe(), why: "it hangs".to_owned() });
        }
        let argument = |word: &OsString| match word.to_str() {
            Some(text) if idle => text.replace(TAKES_BACK, "$(: penstock-measure-").into(),
            _ => word.clone(),
        };
        let mut entering = Command::new("nsenter")
            .args(["--net", "--mount", "--target", &self.keeper.id().to_string()])
            .arg(command.program())
            .args(command.arguments().iter().map(argument))
            .input(command.standard_input())
            .deadline(command.time_allowed().expect("nothing runs for ever"));
        for (name, value) in command.environment() {
            entering = entering.env(name, value);
        }
        if let Some(programs) = &*self.programs.lock().unwrap() {
            let path = std::env::var("PATH").unwrap_or_default();
            entering = entering.env("PATH", format!("{}:{path}", programs.display()));
        }
        entering.run().map_err(|source| PlaceError::Process { place: self.describe(), source })
    }

    fn read(&self, _: &str, _: usize) -> Result<Vec<u8>, PlaceError> {
        unreachable!("nobody reads here")
    }

    fn interfaces(&self) -> Result<Vec<InterfaceReport>, PlaceError> {
        unreachable!("nobody looks here")
    }

    fn namespace(&self) -> Result<Option<u32>, PlaceError> {
        Err(PlaceError::Gone { place: self.describe(), why: "it is under another kernel".to_owned() })
    }
}

/// Two guests and a host. Each guest has two functions on one switch, and each has its own address: NET0#0 (eth0) and
/// NET0#1 (eth1) are a's, NET0#2 and NET0#3 b's.
pub struct World {
    pub switch: Arc<Namespace>,
    pub places: BTreeMap<Vantage, Arc<Inside>>,
    pub testbed: Testbed,
}

pub const HOST: Vantage = Vantage::Host;

/// Has the shell of a VM tell what a run could leave there.
pub const TRACES: &str = "ip netns list; ip -br link; ip -4 -o address | sed 's/valid_lft.*//'; ip neigh show nud permanent; ip route; \
     cat /proc/sys/net/ipv4/conf/*/forwarding; nft list ruleset";

/// What a VM receives by UDP over this path, by iperf3.
pub fn received_in_vm(path: PathKind) -> Planned {
    let function = if path == PathKind::VmVf { "node-1/net0#0" } else { "node-1/net0" };
    let client = End { place: guest("node-1"), kind: EndKind::Vm, function: Some(function.parse().unwrap()) };
    let server = End { place: HOST, kind: EndKind::Host, function: Some("NET1".parse().unwrap()) };
    let network = Network {
        protocol: Protocol::UdpStream,
        path,
        client,
        server,
        size: 1024,
        direction: Direction::Reverse,
        load: Load::Closed,
    };
    let measurement = Measurement { tool: Tool::Iperf3, subject: Subject::Network(network) };
    Planned { id: path.to_string(), measurement, block: 0, null: false }
}

pub fn guest(name: &str) -> Vantage {
    Vantage::Guest(name.parse().unwrap())
}

pub fn mac(number: u8) -> Mac {
    Mac::new([2, 0, 0, 0, 0, number])
}

impl World {
    /// The same, with guest a as a VM with a NIC of its own.
    pub fn with_vm() -> (World, Arc<Vm>) {
        let mut world = World::new();
        world.uplink();
        let vm = Arc::new(Vm::new(world.namespace(&guest("a")).id));
        vm.shell("ip address flush dev eth0; ip address flush dev eth1");
        world.testbed.places.insert(guest("node-1"), Ok(Arc::clone(&vm) as Arc<dyn Place>));
        for (name, function_interface) in [("node-1/net0", "NET0#0"), ("node-1/net0#0", "NET0#1")] {
            let function_interface =
                world.testbed.function_interfaces[&function_interface.parse().unwrap()].clone();
            world.testbed.function_interfaces.insert(name.parse().unwrap(), function_interface);
        }
        (world, vm)
    }

    /// Gives the VM a control group whose time stands still.
    pub fn still_group(&mut self) -> tempfile::NamedTempFile {
        let group = tempfile::NamedTempFile::new().unwrap();
        fs::write(&group, "usage_usec 7\n").unwrap();
        let groups = vec![group.path().to_str().unwrap().to_owned()];
        self.testbed.vm_groups.insert(guest("node-1"), Ok(groups));
        group
    }

    pub fn new() -> World {
        let switch = Arc::new(Namespace::new());
        switch.batch("ip", "link add sw0 type bridge forward_delay 0\nlink set sw0 up\n");
        let mut world = World { switch, places: BTreeMap::new(), testbed: Testbed::default() };
        for (name, vantage) in [("host", HOST), ("a", guest("a")), ("b", guest("b"))] {
            let namespace = Arc::new(Namespace::new());
            namespace.run("ip link set lo up");
            let (namespace, programs) = (Mutex::new(Some(namespace)), Mutex::default());
            let place = Arc::new(Inside { name, namespace, programs, boot: Mutex::default() });
            world.testbed.places.insert(vantage.clone(), Ok(Arc::clone(&place) as Arc<dyn Place>));
            world.places.insert(vantage, place);
        }
        for number in 0..4 {
            let owner = if number < 2 { "a" } else { "b" };
            let (interface, port) = (format!("eth{}", number % 2), format!("port{number}"));
            let inside = world.namespace(&guest(owner));
            world.switch.batch(
                "ip",
                &format!(
                    "link add {port} type veth peer name {interface} address {} netns {}\n\
                     link set {port} master sw0 up\n",
                    mac(number),
                    inside.id
                ),
            );
            let address = format!("10.9.0.{}/24", number + 1);
            // Without IPv6, which takes its time to settle and would be a difference afterwards.
            let up = format!("link set {interface} addrgenmode none\nlink set {interface} up\n");
            inside.batch("ip", &format!("{up}address add {address} dev {interface}\n"));
            let function_interface = FunctionInterface {
                interface: interface.parse().unwrap(),
                mac: mac(number),
                mtu: Mtu::new(1500).unwrap(),
                carrier: Some(true),
                speed: None,
                in_use: false,
            };
            world
                .testbed
                .function_interfaces
                .insert(format!("NET0#{number}").parse().unwrap(), Ok(function_interface));
        }
        world.links_are_up();
        world
    }

    /// Waits until the links of guests say that they are up: the kernel works that off later, and it would be a difference afterwards.
    fn links_are_up(&self) {
        let began = Instant::now();
        for owner in ["a", "b"] {
            let inside = self.namespace(&guest(owner));
            let links = || inside.run("ip -o link show type veth");
            while links().lines().any(|link| !link.contains(" state UP ")) {
                assert!(began.elapsed() < Duration::from_secs(60), "a link is not up: {}", links());
                thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Gives the host an interface on the switch that stands for the PF of NET1.
    pub fn uplink(&mut self) {
        let host = self.namespace(&HOST);
        let link = format!(
            "link add port9 type veth peer name up0 address {} netns {}\nlink set port9 master sw0 up\n",
            mac(9),
            host.id
        );
        self.switch.batch("ip", &link);
        host.run("ip link set up0 up");
        let function_interface = FunctionInterface {
            interface: "up0".parse().unwrap(),
            mac: mac(9),
            mtu: Mtu::new(1400).unwrap(),
            carrier: Some(true),
            speed: None,
            in_use: false,
        };
        self.testbed.function_interfaces.insert("NET1".parse().unwrap(), Ok(function_interface));
        self.settle();
    }

    /// Waits until IPv6 and links have settled, so that they are no difference afterwards.
    fn settle(&self) {
        let tentative = || {
            let places =
                self.places.keys().filter(|vantage| self.places[vantage].namespace.lock().unwrap().is_some());
            places
                .map(|vantage| self.namespace(vantage).run("ip -6 -o address show tentative"))
                .collect::<String>()
        };
        let began = Instant::now();
        let mut last = None;
        loop {
            let now = Some((tentative(), self.state()));
            if now.as_ref().is_some_and(|(tentative, _)| tentative.is_empty()) && now == last {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "it does not settle: {now:?}");
            last = now;
            thread::sleep(Duration::from_millis(1000));
        }
    }

    pub fn namespace(&self, vantage: &Vantage) -> Arc<Namespace> {
        Arc::clone(self.places[vantage].namespace.lock().unwrap().as_ref().expect("it runs"))
    }

    /// What is there: addresses, neighbours, links, processes of runs.
    pub fn state(&self) -> String {
        let mut state = String::new();
        for (vantage, place) in &self.places {
            if place.namespace.lock().unwrap().is_none() {
                continue;
            }
            let namespace = self.namespace(vantage);
            for what in ["address", "neigh", "route show table all", "link"] {
                let text = namespace.run(&format!("ip {what}"));
                // What was learnt of neighbours comes and goes.
                let kept = |line: &&str| what != "neigh" || line.contains("PERMANENT");
                state.extend(text.lines().filter(kept).map(|line| format!("{vantage} {line}\n")));
            }
        }
        state + &self.marked().join("\n")
    }

    /// Processes of runs in its namespaces.
    pub fn marked(&self) -> Vec<String> {
        let network = |process: &Path| fs::read_link(process.join("ns/net")).ok();
        let namespace = |place: &Arc<Inside>| network(Path::new(&format!("/proc/{}", place.id().ok()?)));
        let own: BTreeSet<PathBuf> = self.places.values().filter_map(namespace).collect();
        let of_run = |process: PathBuf| {
            let environment = fs::read(process.join("environ")).ok()?;
            let marked = environment.split(|byte| *byte == 0).any(|v| v.starts_with(b"PENSTOCK_MEASURE="));
            let here = marked && own.contains(&network(&process)?);
            here.then(|| {
                String::from_utf8_lossy(&fs::read(process.join("cmdline")).unwrap_or_default()).into_owned()
            })
        };
        let processes = fs::read_dir("/proc").unwrap().flatten();
        processes.filter_map(|process| of_run(process.path())).filter(|line| !line.is_empty()).collect()
    }

    pub fn sampler(&self) -> NetworkTaker {
        let options =
            Options { timeout: Duration::from_secs(6), start: Duration::from_secs(4), ..Options::default() };
        NetworkTaker::new(&self.testbed, options)
    }

    /// Only these programs are there from now on, and those in `own`, which are scripts.
    pub fn programs(&self, vantage: &Vantage, kept: &[&str], own: &[(&str, &str)]) -> TempDir {
        let directory = TempDir::new().unwrap();
        for program in kept {
            let target = process::find(program).unwrap_or_else(|| panic!("{program} is here"));
            std::os::unix::fs::symlink(target, directory.path().join(program)).unwrap();
        }
        for (program, text) in own {
            script::write(directory.path().join(program), text);
        }
        let path = directory.path().to_str().unwrap().to_owned();
        *self.places[vantage].programs.lock().unwrap() = Some(path);
        directory
    }
}

/// What a place needs besides the measuring programs.
pub const USUAL: [&str; 14] = [
    "ip", "sh", "cat", "head", "grep", "sleep", "setsid", "mount", "unshare", "nsenter", "kill", "true",
    "echo", "printf",
];

pub fn end(place: &str, function: &str) -> End {
    let function = (!function.is_empty()).then(|| function.parse().unwrap());
    End { place: guest(place), kind: EndKind::Container, function }
}

pub fn cell(tool: Tool, protocol: Protocol, direction: Direction, ends: (End, End)) -> Planned {
    let (client, server) = ends;
    let path = match &client.function {
        None => PathKind::Bridge,
        Some(function) if function.of_model().is_some_and(|function| function.vf.is_none()) => {
            PathKind::BridgeAcross
        }
        Some(_) => PathKind::VfVfInside,
    };
    let id = format!("{tool} {protocol} {direction:?} {client} {server}");
    let network = Network { protocol, path, client, server, size: 1024, direction, load: Load::Closed };
    let measurement = Measurement { tool, subject: Subject::Network(network) };
    Planned { id, measurement, block: 0, null: false }
}

pub fn tcp(ends: (End, End)) -> Planned {
    cell(Tool::Iperf3, Protocol::TcpStream, Direction::Forward, ends)
}

pub fn usual_ends() -> (End, End) {
    (end("a", "NET0#1"), end("b", "NET0#3"))
}

pub const SECOND: Duration = Duration::from_secs(1);

/// The throughput that a sample tells.
pub fn throughput(sampler: &mut NetworkTaker, cell: &Planned) -> Result<f64, String> {
    let raw = sampler.take(cell, SECOND).map_err(|failure| failure.to_string())?;
    let reading = parse::read(&cell.measurement, &raw).map_err(|why| format!("{why}: {raw:?}"))?;
    Ok(reading.values[&Metric::Throughput])
}
