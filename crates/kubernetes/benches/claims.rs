//! `cargo bench -p penstock-kubernetes --bench claims`: what kubelet and the container runtime wait for: Prepare, the hook of a pod's first
//! container, that of a later one, and Unprepare. The agent's plugin, the hook and `penstock cni` are as they are, optimised, and the API server is
//! one on this machine; this program takes kubelet's and the runtime's part.
//!
//! The VF is one end of a veth pair that a tree in the place of `/sys/bus/pci/devices` calls a VF, in namespaces of this program's own. It takes
//! root, `make build`, and what `penstock board cluster prepare` makes.
//!
//! Arguments after `--`: `rounds=NUMBER` (200).
#![allow(clippy::disallowed_methods)]

use std::{
    env, fs,
    io::Write,
    os::unix::{fs::symlink, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use penstock_host::Root;
use penstock_kubernetes::{
    change::NodeHost,
    claim::state::RUN,
    client::{self, ClientSettings},
    devices::{Devices, PublishedFunction},
    health::HealthReport,
    metrics::ClaimTimings,
    plugin::{
        Settings, claim_api::ClaimApiClient, orphans::OrphanSettings, reporter::ClaimDriftReport, serve_on,
    },
    protocol::dra_v1::{
        Claim, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest, dra_plugin_client::DraPluginClient,
    },
};
use penstock_testkit::{
    binary,
    control_plane::{self, LocalControlPlane},
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tonic::transport::{Channel, Endpoint};

/// Says to this program that it is in namespaces of its own.
const INSIDE: &str = "inside";
const PF: &str = "0000:01:00.0";
const VF: &str = "0000:01:10.0";
const DRIVER: &str = "sriov.penstock.dev";
const DEVICE: &str = "net0-0";
const NODE: &str = "node-1";
/// How long the plugin may take to listen.
const STARTING: Duration = Duration::from_secs(60);

/// What is measured, in the order in which it happens to a pod.
const STEPS: [&str; 4] = ["Prepare", "hook, first container", "hook, later container", "Unprepare"];

fn main() {
    let words: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    if words.first().is_none_or(|word| word != INSIDE) {
        let own = env::current_exe().expect("this program has a path");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--propagation=private"]).arg(own).arg(INSIDE).args(&words);
        panic!("unshare was not started: {}", command.exec());
    }
    let program = match control_plane::program() {
        Ok(program) => program,
        Err(lack) => return println!("skipped: {lack}"),
    };
    let rounds = words.iter().find_map(|word| word.strip_prefix("rounds="));
    let rounds: usize = rounds.map_or(200, |text| text.parse().expect("a number"));
    let pod = set_up();
    let plane = LocalControlPlane::start(program);
    let uid = claim(&plane);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let mut took: [Vec<f64>; 4] = Default::default();
    let before = load();
    runtime.expect("a runtime").block_on(measure(&plane, &uid, pod.0.id(), rounds, &mut took));
    println!("load before: {before}; after: {}", load());
    println!("{rounds} pods; milliseconds\n");
    println!("| what | median | p99 | most |\n|---|---|---|---|");
    for (name, took) in STEPS.into_iter().zip(&mut took) {
        let [median, late, most] = [0.5, 0.99, 1.0].map(|share| quantile(took, share));
        println!("| {name} | {median:.1} | {late:.1} | {most:.1} |");
    }
}

/// A process in a pod's network namespace.
struct Pod(Child);

impl Drop for Pod {
    fn drop(&mut self) {
        // Its namespace goes with it, and with this program's own.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A machine with a PF and a VF, and a pod.
fn set_up() -> Pod {
    run("mount", &["-t", "tmpfs", "none", "/run"]);
    run("mount", &["-t", "tmpfs", "none", "/sys/bus/pci/devices"]);
    let devices = Path::new("/sys/bus/pci/devices");
    for (function, interface, driver) in [(PF, "pf0", "igb"), (VF, "vf0", "igbvf")] {
        fs::create_dir_all(devices.join(function).join("net").join(interface)).expect("a directory");
        symlink(format!("../../drivers/{driver}"), devices.join(function).join("driver")).expect("a link");
    }
    fs::write(devices.join(PF).join("sriov_numvfs"), "1\n").expect("a file");
    symlink(format!("../{PF}"), devices.join(VF).join("physfn")).expect("a link");
    symlink(format!("../{VF}"), devices.join(PF).join("virtfn0")).expect("a link");
    run("ip", &["link", "set", "lo", "up"]);
    for (name, peer) in [("pf0", "wire"), ("vf0", "wire0")] {
        run("ip", &["link", "add", name, "type", "veth", "peer", "name", peer]);
        run("ip", &["link", "set", peer, "up"]);
        run("ip", &["link", "set", name, "up"]);
    }
    run("ip", &["netns", "add", "pod"]);
    let mut sleeps = Command::new("nsenter");
    sleeps.args(["--net=/run/netns/pod", "sleep", "infinity"]);
    let pod = Pod(sleeps.spawn().expect("nsenter starts"));
    let began = Instant::now();
    let own = fs::read_link("/proc/self/ns/net").expect("a namespace");
    while fs::read_link(format!("/proc/{}/ns/net", pod.0.id())).is_ok_and(|of| of == own) {
        assert!(began.elapsed() < STARTING, "the pod's process does not enter its namespace");
        std::thread::yield_now();
    }
    pod
}

/// A claim that the VF was allocated to; its UID.
fn claim(plane: &LocalControlPlane) -> String {
    let spec =
        json!({"devices": {"requests": [{"name": "vf", "exactly": {"deviceClassName": "vf.penstock.dev"}}]}});
    let object = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "data", "namespace": "default"}, "spec": spec,
    });
    plane.must(&["create", "--filename", "-"], &object.to_string());
    let parameters = json!({"interface": "data", "mac": "02:00:00:00:00:31", "addresses": ["10.1.0.5/24"]});
    let status = json!({"status": {
        "allocation": {"devices": {
            "results": [{"request": "vf", "driver": DRIVER, "pool": NODE, "device": DEVICE}],
            "config": [{"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": parameters}}],
        }},
        "reservedFor": [{"resource": "pods", "name": "pod", "uid": "p-1"}],
    }});
    let patch = format!("--patch={status}");
    plane.must(&["patch", "resourceclaim", "data", "--subresource=status", "--type=merge", &patch], "");
    let made = plane.get("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/data");
    made["metadata"]["uid"].as_str().expect("a UID").to_owned()
}

fn devices() -> Devices {
    let function = PublishedFunction {
        name: serde_json::from_value(json!(DEVICE)).expect("a name"),
        nic: "NET0".to_owned(),
        label: "net0".to_owned(),
        pf: PF.parse().expect("an address"),
        vf: penstock_model::VfIndex::new(0).expect("an index"),
        bdf: VF.parse().expect("an address"),
        driver: Some("igbvf".to_owned()),
        attributes: Default::default(),
        in_use: None,
    };
    Devices { functions: [(function.name.clone(), function)].into(), ..Devices::default() }
}

async fn measure(plane: &LocalControlPlane, uid: &str, pod: u32, rounds: usize, took: &mut [Vec<f64>; 4]) {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let settings = ClientSettings { kubeconfig: Some(plane.path("kubeconfig")) };
    let connection = client::connect(&settings).await.expect("a way to the API server");
    let (_devices, devices) = watch::channel(Arc::new(devices()));
    let (_health, health) = watch::channel(Arc::new(HealthReport::new()));
    let (end, shutdown) = watch::channel(false);
    let plugin = Settings {
        client: ClaimApiClient::new(connection.client, "bench"),
        driver: DRIVER.to_owned(),
        node: NODE.to_owned(),
        pool: NODE.to_owned(),
        penstock: binary::path().expect("the binary was built: `make build`"),
        program: env!("CARGO_BIN_EXE_penstock-kubernetes").into(),
        state: at("state"),
        kubelet: at("kubelet"),
        cdi: at("cdi"),
        devices,
        health,
        drift: ClaimDriftReport { now: watch::channel(Arc::default()).0, news: mpsc::channel(1).0 },
        node_host: watch::channel(NodeHost::ThisMachine).1,
        shutdown,
        timings: ClaimTimings::default(),
        orphans: OrphanSettings::default(),
    };
    let socket = at("kubelet").join("plugins").join(DRIVER).join("dra.sock");
    let served = tokio::spawn(serve_on(Root::system(), RUN.into(), plugin));
    let mut kubelet = DraPluginClient::new(connect(&socket).await);
    let asked = Claim { namespace: "default".to_owned(), uid: uid.to_owned(), name: "data".to_owned() };
    for _ in 0..rounds {
        let request = NodePrepareResourcesRequest { claims: vec![asked.clone()] };
        let began = Instant::now();
        let answer = kubelet.node_prepare_resources(request).await.expect("an answer").into_inner();
        took[0].push(milliseconds(began));
        assert_eq!(answer.claims[uid].error, "");
        took[1].push(hook(uid, &at("state"), pod));
        took[2].push(hook(uid, &at("state"), pod));
        let request = NodeUnprepareResourcesRequest { claims: vec![asked.clone()] };
        let began = Instant::now();
        let answer = kubelet.node_unprepare_resources(request).await.expect("an answer").into_inner();
        took[3].push(milliseconds(began));
        assert_eq!(answer.claims[uid].error, "");
        // As a VF of a host is.
        run("ip", &["link", "set", "vf0", "up"]);
    }
    end.send(true).expect("the plugin runs");
    served.await.expect("it ends").expect("it ends well");
}

async fn connect(socket: &Path) -> Channel {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).expect("an address");
    let began = Instant::now();
    loop {
        match endpoint.connect().await {
            Ok(channel) => return channel,
            Err(error) => assert!(began.elapsed() < STARTING, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The hook, as a container runtime starts it; its milliseconds.
fn hook(uid: &str, state: &Path, pod: u32) -> f64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock-kubernetes"));
    command.args(["attach", "--claim", uid, "--device", DEVICE, "--driver", DRIVER, "--state"]).arg(state);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let oci: Value =
        json!({"ociVersion": "1.0.2", "id": "c", "status": "creating", "pid": pod, "bundle": "/nowhere"});
    let began = Instant::now();
    let mut child = command.spawn().expect("the hook starts");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(oci.to_string().as_bytes()).expect("the hook reads");
    drop(input);
    let output = child.wait_with_output().expect("the hook ends");
    let took = milliseconds(began);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    took
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn run(program: &str, arguments: &[&str]) {
    let ended = Command::new(program).args(arguments).status().expect("the program starts");
    assert!(ended.success(), "{program} {}", arguments.join(" "));
}

fn load() -> String {
    fs::read_to_string(PathBuf::from("/proc/loadavg")).unwrap_or_default().trim().to_owned()
}

fn quantile(samples: &mut [f64], share: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let place = (samples.len() as f64 * share) as usize;
    samples.get(place.min(samples.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
