//! `cargo bench -p penstock-cni --bench attach`: what ADD, CHECK and DEL take, beside `host-device` of Debian's containernetworking-plugins in the same
//! run, without IPAM, and what the kernel alone takes of it: the requests that move the interface and bring it up, by a program that runs
//! already. Each plugin is started as a runtime does it, in turn and first every other time.
//!
//! The VF is one end of a veth pair that a tree in the place of `/sys/bus/pci/devices` calls a VF, in namespaces of this program's own. It
//! takes root.
//!
//! Arguments after `--`: `pairs=NUMBER` (200), `links=NUMBER`, how many interfaces more the host has (0), `host-device=PATH`, `before=PATH`,
//! another `penstock` to compare with.
#![allow(clippy::disallowed_methods)]

use std::{
    env, fs,
    io::Write,
    os::unix::{fs::symlink, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use penstock_host::{Netlink, NetworkNamespace};
use penstock_testkit::binary;
use serde_json::{Value, json};

/// Debian's plugin.
const HOST_DEVICE: &str = "/usr/lib/cni/host-device";
/// Says to this program that it is in namespaces of its own.
const INSIDE: &str = "inside";

const PF: &str = "0000:01:00.0";
const VF: &str = "0000:01:10.0";
const VERBS: [&str; 3] = ["ADD", "CHECK", "DEL"];

/// A plugin with the milliseconds that each call of each verb took.
struct Contestant {
    name: &'static str,
    program: PathBuf,
    arguments: &'static [&'static str],
    configuration: Value,
    took: [Vec<f64>; 3],
}

fn main() {
    let words: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    if words.first().is_none_or(|word| word != INSIDE) {
        let own = env::current_exe().expect("this program has a path");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--propagation=private"]).arg(own).arg(INSIDE).args(&words);
        panic!("unshare was not started: {}", command.exec());
    }
    let value = |key: &str| words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let number =
        |key: &str, default: usize| value(key).map_or(default, |text| text.parse().expect("a number"));
    let (pairs, links) = (number("pairs", 200), number("links", 0));
    set_up(links);

    let mut contestants = vec![Contestant {
        name: "penstock cni",
        program: binary::path().expect("the binary was built: `make build`"),
        arguments: &["cni"],
        configuration: json!({"cniVersion": "1.0.0", "name": "data", "type": "penstock-cni", "deviceID": VF}),
        took: Default::default(),
    }];
    if let Some(before) = value("before") {
        let configuration = contestants[0].configuration.clone();
        contestants.push(Contestant {
            name: "penstock cni before",
            program: before.into(),
            arguments: &["cni"],
            configuration,
            took: Default::default(),
        });
    }
    let host_device = PathBuf::from(value("host-device").unwrap_or(HOST_DEVICE));
    if host_device.exists() {
        contestants.push(Contestant {
            name: "host-device",
            program: host_device,
            arguments: &[],
            configuration: json!({"cniVersion": "1.0.0", "name": "data", "type": "host-device", "device": "vf0"}),
            took: Default::default(),
        });
    } else {
        println!("{} is not there: only penstock cni is measured", host_device.display());
    }
    let mut kernel = Kernel::new();
    let before = load();
    for pair in 0..pairs {
        let count = contestants.len() + 1;
        for turn in 0..count {
            match contestants.get_mut((pair + turn) % count) {
                Some(contestant) => contestant.attach(),
                None => kernel.attach(),
            }
        }
    }
    println!("load before: {before}; after: {}", load());
    println!("{pairs} attachments each, {links} interfaces more on the host; milliseconds\n");
    println!("| plugin | verb | median | p99 | least |\n|---|---|---|---|---|");
    for contestant in &mut contestants {
        for (name, took) in VERBS.into_iter().zip(&mut contestant.took) {
            let [median, late, least] = [0.5, 0.99, 0.0].map(|share| quantile(took, share));
            println!("| {} | {name} | {median:.1} | {late:.1} | {least:.1} |", contestant.name);
        }
    }
    for (name, took) in [("ADD", &mut kernel.there), ("DEL", &mut kernel.back)] {
        let [median, late, least] = [0.5, 0.99, 0.0].map(|share| quantile(took, share));
        println!("| kernel alone | {name} | {median:.1} | {late:.1} | {least:.1} |");
    }
}

/// What no plugin can do without.
struct Kernel {
    host: Netlink,
    home: NetworkNamespace,
    inside: Netlink,
    container: NetworkNamespace,
    /// Milliseconds of each move into the container, where it is up.
    there: Vec<f64>,
    /// Milliseconds of each move back, where it is up.
    back: Vec<f64>,
}

impl Kernel {
    fn new() -> Kernel {
        let container = NetworkNamespace::open("/run/netns/container").expect("the container is there");
        Kernel {
            host: Netlink::open().expect("a socket"),
            home: NetworkNamespace::current().expect("the host is there"),
            inside: container.netlink().expect("a socket in the container"),
            container,
            there: Vec::new(),
            back: Vec::new(),
        }
    }

    fn attach(&mut self) {
        let there = moved(&mut self.host, "vf0", &self.container, &mut self.inside, "net1");
        self.there.push(there);
        let back = moved(&mut self.inside, "net1", &self.home, &mut self.host, "vf0");
        self.back.push(back);
    }
}

/// Moves an interface, brings it up, and tells the milliseconds of that.
fn moved(
    from: &mut Netlink,
    name: &str,
    namespace: &NetworkNamespace,
    to: &mut Netlink,
    becomes: &str,
) -> f64 {
    let [name, becomes] = [name, becomes].map(|name| name.parse().expect("a name"));
    let began = Instant::now();
    let index = from.link_named(&name).expect("an answer").expect("the interface").index;
    from.move_to(index, namespace, &becomes).expect("it is moved");
    let index = to.link_named(&becomes).expect("an answer").expect("the interface").index;
    to.set_up(index, true).expect("it is up");
    began.elapsed().as_secs_f64() * 1e3
}

impl Contestant {
    /// Gives the container the VF, checks it and takes it back.
    fn attach(&mut self) {
        let result = self.call(0, &self.configuration.clone());
        let mut configuration = self.configuration.clone();
        configuration["prevResult"] = serde_json::from_slice(&result).expect("a result");
        self.call(1, &configuration);
        self.call(2, &configuration);
        // host-device leaves it down, and a VF of a host is usually up.
        run("ip", &["link", "set", "vf0", "up"]);
    }

    fn call(&mut self, verb: usize, configuration: &Value) -> Vec<u8> {
        let plugin = &self.program;
        let mut command = Command::new(plugin);
        command.args(self.arguments).env_remove("CNI_ARGS");
        command.env("CNI_COMMAND", VERBS[verb]).env("CNI_CONTAINERID", "bench").env("CNI_IFNAME", "net1");
        command.env("CNI_NETNS", "/run/netns/container").env("CNI_PATH", "/usr/lib/cni");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let began = Instant::now();
        let mut child = command.spawn().expect("the plugin starts");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(configuration.to_string().as_bytes()).expect("the plugin reads");
        drop(input);
        let output = child.wait_with_output().expect("the plugin ends");
        self.took[verb].push(began.elapsed().as_secs_f64() * 1e3);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{} {}: {said}", self.name, VERBS[verb]);
        output.stdout
    }
}

/// A machine with a PF, a VF and a container.
fn set_up(links: usize) {
    run("mount", &["-t", "tmpfs", "none", "/run"]);
    run("mount", &["-t", "tmpfs", "none", "/sys/bus/pci/devices"]);
    let devices = Path::new("/sys/bus/pci/devices");
    for (function, interface) in [(PF, "pf0"), (VF, "vf0")] {
        fs::create_dir_all(devices.join(function).join("net").join(interface)).expect("a directory");
    }
    fs::write(devices.join(PF).join("sriov_numvfs"), "1\n").expect("a file");
    symlink(format!("../{PF}"), devices.join(VF).join("physfn")).expect("a link");
    symlink(format!("../{VF}"), devices.join(PF).join("virtfn0")).expect("a link");
    let veth = |name: &str, peer: &str| {
        run("ip", &["link", "add", name, "type", "veth", "peer", "name", peer]);
        run("ip", &["link", "set", peer, "up"]);
        run("ip", &["link", "set", name, "up"]);
    };
    veth("pf0", "wire");
    veth("vf0", "wire0");
    for link in 0..links.div_ceil(2) {
        veth(&format!("more{link}"), &format!("peer{link}"));
    }
    run("ip", &["netns", "add", "container"]);
}

fn run(program: &str, arguments: &[&str]) {
    let ended = Command::new(program).args(arguments).status().expect("the program starts");
    assert!(ended.success(), "{program} {}", arguments.join(" "));
}

fn load() -> String {
    fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}

fn quantile(samples: &mut [f64], share: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let place = (samples.len() as f64 * share) as usize;
    samples.get(place.min(samples.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
