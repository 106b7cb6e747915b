//! `cargo bench -p penstock-cni --bench attach`: what ADD, CHECK and DEL take, beside `host-device` of Debian's containernetworking-plugins in the same
//! run, without IPAM. Each plugin is started as a runtime does it, in turn and first every other time.
//!
//! The VF is one end of a veth pair that a tree in the place of `/sys/bus/pci/devices` calls a VF, in namespaces of this program's own. It
//! takes root.
//!
//! Arguments after `--`: `pairs=NUMBER` (200), `links=NUMBER`, how many interfaces more the host has (0), `host-device=PATH`.
#![allow(clippy::disallowed_methods)]

use std::{
    env, fs,
    io::Write,
    os::unix::{fs::symlink, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

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
    let before = load();
    for pair in 0..pairs {
        let count = contestants.len();
        for turn in 0..count {
            contestants[(pair + turn) % count].attach();
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
