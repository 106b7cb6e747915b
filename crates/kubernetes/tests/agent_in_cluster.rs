//! The agent against an API server on this machine, with a `penstock` that tells recorded scans and lets a test say what drifts.
#![allow(clippy::disallowed_methods)]

#[path = "agent_in_cluster/metrics.rs"]
mod metrics;
#[path = "agent_in_cluster/pod.rs"]
mod pod;
#[path = "agent_in_cluster/runs.rs"]
mod runs;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use penstock_host::Root;
use penstock_kubernetes::{
    claim::state::{ClaimStore, PreparedClaim},
    client::{self, ClientSettings},
};
use penstock_model::{
    Inventory,
    inventory::{Lifeline, LifelineKind, LifelinePath, PresentVf},
};
use penstock_testkit::{
    control_plane::{self, LocalControlPlane},
    models, needs, script,
    trials::Trials,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// What has to happen at all may take so long on a machine that does other things.
const PATIENT: Duration = Duration::from_secs(120);

const PAUSE: Duration = Duration::from_millis(100);

static PLANE: OnceLock<Plane> = OnceLock::new();

/// The one control plane of all tests, which run one after the other.
struct Plane(std::sync::Mutex<LocalControlPlane>);

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    trials.one_at_a_time();
    let missing = trials.lacking("the agent", || control_plane::program().err());
    if trials.run_at_all() && missing.is_none() {
        // On the main thread, with which its programs end.
        let plane = LocalControlPlane::start(control_plane::program().expect("it was there"));
        plane.must(&["apply", "--filename", "-"], &manifests());
        let _ = PLANE.set(Plane(std::sync::Mutex::new(plane)));
    }
    let tests: [(&'static str, fn()); 13] = [
        ("slices_are_what_was_scanned", slices_are_what_was_scanned),
        ("slices_that_were_wiped_are_back_within_five_seconds", wiped_slices_come_back),
        ("what_a_run_makes_that_is_not_decided_yet_is_not_published", runs::held_back),
        ("an_agent_that_is_killed_at_random_ends_in_the_same_slices", killed_at_random),
        ("drift_is_a_taint_and_an_event_and_both_are_taken_back", drift_and_back),
        ("metrics_tell_of_the_machine_its_drift_slices_and_claims", metrics::scraped),
        ("a_lifeline_is_withdrawn_when_it_becomes_one", lifeline_is_withdrawn),
        ("an_agent_may_write_slices_of_its_own_node_alone", fenced_to_the_own_node),
        (
            "an_agent_may_tell_of_its_own_node_in_a_claim_and_change_nothing_else_there",
            claims_of_the_own_node,
        ),
        ("an_idle_agent_writes_nothing_and_stays_small", idle),
        ("slices_follow_when_the_api_server_comes_back", api_server_away),
        ("a_node_that_is_made_anew_gets_its_slices_again", node_made_anew),
        ("an_agent_that_has_another_nodes_name_publishes_nothing", on_another_machine),
    ];
    trials.add(&missing, tests);
    // The pod's namespaces.
    let missing = missing.or_else(needs::root).or_else(|| needs::programs(&["unshare", "sh", "mount", "cp"]));
    let tests: [(&'static str, fn()); 1] =
        [("a_pod_of_the_daemon_set_becomes_the_agent_of_its_node", pod::pod_becomes_agent)];
    trials.add(&missing, tests);
    trials.run()
}

fn manifests() -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_penstock-kubernetes")).arg("manifests").output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// The recorded 82576 with seven VFs.
fn igb() -> Inventory {
    recorded("82576-seven-vfs")
}

fn recorded(name: &str) -> Inventory {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../testkit/fixtures/inventory/{name}.json"));
    let mut inventory: Inventory = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    inventory.lifelines.get_or_insert_default();
    inventory
}

/// A NIC with 200 VFs, scanned from a tree.
fn large() -> Inventory {
    let tree = tempfile::tempdir().unwrap();
    penstock_testkit::sysfs::plant(&models::tree(1, 200), tree.path()).unwrap();
    let mut inventory = penstock_host::scan(&Root::recorded(tree.path()), None);
    inventory.lifelines.get_or_insert_default();
    inventory
}

/// An agent on a node of its own, with its own `penstock`.
struct Node<'a> {
    plane: std::sync::MutexGuard<'a, LocalControlPlane>,
    name: String,
    directory: TempDir,
    model: bool,
    metrics: bool,
    agent: Option<Child>,
}

impl Node<'_> {
    fn new(name: &str, inventory: &Inventory) -> Node<'static> {
        let plane =
            PLANE.get().expect("it was started").0.lock().unwrap_or_else(|broken| broken.into_inner());
        let directory = tempfile::tempdir().unwrap();
        let node =
            Node { plane, name: name.to_owned(), directory, model: false, metrics: false, agent: None };
        node.make();
        node.scanned(inventory);
        node.runs(&[]);
        let at = node.directory.path().display();
        // `tail` begins with what is there, and waits for more.
        let text = format!(
            "#!/bin/sh\ncase \"$1\" in\nscan) cat {at}/scan.json; [ ! -e {at}/meanwhile ] || . {at}/meanwhile ;;\nundo) exec cat {at}/runs.json ;;\nmetrics) echo \"$*\" >> {at}/calls; exec cat {at}/metrics ;;\nverify) exec tail -n +1 -f {at}/watch.jsonl ;;\n*) exit 2 ;;\nesac\n"
        );
        script::write(node.path("penstock"), text);
        fs::write(node.path("watch.jsonl"), "").unwrap();
        let token = node.plane.token_of_agent(&node.name);
        fs::write(node.path("kubeconfig"), node.plane.kubeconfig(&token)).unwrap();
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn make(&self) {
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}});
        self.plane.must(&["create", "--filename", "-"], &object.to_string());
    }

    fn scanned(&self, inventory: &Inventory) {
        self.replace("scan.json", &serde_json::to_string(inventory).unwrap());
    }

    /// Whoever reads the file meanwhile has it whole.
    fn replace(&self, name: &str, text: &str) {
        fs::write(self.path("part"), text).unwrap();
        fs::rename(self.path("part"), self.path(name)).unwrap();
    }

    /// What `undo --list` tells from now on.
    fn runs(&self, runs: &[Value]) {
        self.replace("runs.json", &json!({"kind": "runs", "runs": runs, "unreadable": []}).to_string());
    }

    fn start(&mut self) {
        let log = OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_penstock-kubernetes"));
        command.args(["node", "--rescan", "1", "--node", &self.name]);
        for (option, name) in [
            ("--kubeconfig", "kubeconfig"),
            ("--penstock", "penstock"),
            ("--state", "state"),
            ("--run-directory", "hooks"),
            ("--kubelet-directory", "kubelet"),
            ("--cdi-directory", "cdi"),
        ] {
            command.arg(option).arg(self.path(name));
        }
        for name in ["kubelet/plugins", "kubelet/plugins_registry", "cdi"] {
            fs::create_dir_all(self.path(name)).unwrap();
        }
        if self.model {
            command.arg("--model").arg(self.path("m.yaml"));
        }
        if self.metrics {
            command.args(["--metrics", "127.0.0.1:0"]);
        }
        let errors = log.try_clone().unwrap();
        self.agent = Some(command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().unwrap());
    }

    fn kill(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn slices(&self) -> Vec<Value> {
        let fields = format!("fieldSelector=spec.nodeName%3D{}", self.name);
        let list = self.plane.get(&format!("/apis/resource.k8s.io/v1/resourceslices?{fields}"));
        list["items"].as_array().unwrap().clone()
    }

    /// The devices of a complete pool: all slices of one generation, as many as they say.
    fn devices(&self) -> Option<BTreeMap<String, Value>> {
        let slices = self.slices();
        let generation = &slices.first()?["spec"]["pool"]["generation"];
        let whole = slices.iter().all(|slice| {
            let pool = &slice["spec"]["pool"];
            pool["generation"] == *generation && pool["resourceSliceCount"] == slices.len()
        });
        let devices =
            slices.iter().flat_map(|slice| slice["spec"]["devices"].as_array().into_iter().flatten());
        let devices = devices.map(|device| (device["name"].as_str().unwrap().to_owned(), device.clone()));
        whole.then(|| devices.collect())
    }

    /// Waits until the pool is as `wanted` says, and gives its devices.
    fn until(
        &self,
        what: &str,
        wanted: impl Fn(&BTreeMap<String, Value>) -> bool,
    ) -> BTreeMap<String, Value> {
        let deadline = Instant::now() + PATIENT;
        loop {
            let found = self.devices();
            if let Some(devices) = found.as_ref().filter(|devices| wanted(devices)) {
                return devices.clone();
            }
            assert!(Instant::now() < deadline, "{what}: {found:?}\n{}", self.log());
            thread::sleep(PAUSE);
        }
    }

    fn say(&self, line: &Value) {
        let mut file = OpenOptions::new().append(true).open(self.path("watch.jsonl")).unwrap();
        writeln!(file, "{line}").unwrap();
    }

    /// What the agent tells scrapers; `None` before it serves them.
    fn scrape(&self) -> Option<String> {
        let log = self.log();
        let address = log.split_once("metrics are at http://")?.1.split_once("/metrics")?.0.to_owned();
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(PATIENT)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer.split_once("\r\n\r\n")?.1.to_owned())
    }

    /// What tells the state of the slices but for generations and versions.
    fn essence(&self) -> BTreeMap<String, Value> {
        let slices = self.slices();
        let plain = slices.into_iter().map(|mut slice| {
            slice["spec"]["pool"]["generation"] = json!(0);
            (slice["metadata"]["name"].as_str().unwrap().to_owned(), slice["spec"].clone())
        });
        plain.collect()
    }
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("the agent said:\n{}", self.log());
        }
    }
}

fn taints(device: &Value) -> BTreeSet<&str> {
    let taints = device["taints"].as_array().into_iter().flatten();
    taints.filter_map(|taint| taint["key"].as_str()).collect()
}

fn slices_are_what_was_scanned() {
    let inventory = igb();
    let mut node = Node::new("scanned", &inventory);
    node.start();
    let devices = node.until("seven VFs", |devices| devices.len() == 7);
    let sriov = inventory.pfs[0].sriov.as_ref().unwrap();
    for vf in &sriov.vfs {
        let device = &devices[&format!("mac-001b217a0010-{}", vf.index.get())];
        let attributes = &device["attributes"];
        assert_eq!(attributes["resource.kubernetes.io/pciBusID"]["string"], vf.bdf.to_string());
        assert_eq!(attributes["vf"]["int"], vf.index.get());
        assert_eq!(
            attributes["driver"]["string"],
            vf.present.as_ref().unwrap().driver.clone().unwrap_or_default()
        );
        assert_eq!(attributes["pfInterface"]["string"], "ens1f0");
    }
    assert_eq!(node.slices().len(), 1);
    node.kill();

    // Another machine: what was there before goes.
    node.scanned(&large());
    node.start();
    node.until("200 VFs", |devices| devices.len() == 200);
    let sizes: Vec<usize> =
        node.slices().iter().map(|slice| slice["spec"]["devices"].as_array().map_or(0, Vec::len)).collect();
    assert_eq!((sizes.iter().sum::<usize>(), sizes.len()), (200, 4), "{sizes:?}");
}

fn wiped_slices_come_back() {
    let mut node = Node::new("wiped", &large());
    node.start();
    node.until("all are there", |devices| devices.len() == 200);
    let mut soonest = Duration::MAX;
    for _ in 0..3 {
        // As kubelet does at its start (pkg/kubelet/cm/dra/plugin, wipeResourceSlices).
        let selector = "--field-selector=spec.nodeName=wiped";
        node.plane.must(&["delete", "resourceslices", selector, "--wait=false"], "");
        let wiped = Instant::now();
        node.until("they come back", |devices| devices.len() == 200);
        let took = wiped.elapsed();
        eprintln!("wiped slices were back after {:.1} s", took.as_secs_f64());
        soonest = soonest.min(took);
    }
    // A machine that does other things takes longer now and then; waiting for the next scan would take longer each time.
    assert!(soonest < Duration::from_secs(5), "{soonest:?}\n{}", node.log());
}

fn killed_at_random() {
    let mut node = Node::new("killed", &large());
    node.start();
    node.until("all are there", |devices| devices.len() == 200);
    let wanted = node.essence();
    node.kill();
    for round in 0..12u64 {
        node.plane.must(&["delete", "resourceslices", "--field-selector=spec.nodeName=killed"], "");
        node.start();
        // From its first request to after its last one.
        thread::sleep(Duration::from_millis(60 * round));
        node.kill();
    }
    node.start();
    node.until("all are there again", |devices| devices.len() == 200);
    assert_eq!(node.essence(), wanted);
}

fn drift_and_back() {
    let mut inventory = igb();
    inventory.nics = [("NET0".parse().unwrap(), inventory.pfs[0].bdf)].into();
    let mut node = Node::new("drifting", &inventory);
    fs::write(node.path("m.yaml"), "nics: {NET0: {vfs: 7, defaults: {vlan: 100}}}\n").unwrap();
    node.model = true;
    node.start();
    // Nothing is published before it is known how it is.
    thread::sleep(Duration::from_secs(3));
    assert_eq!(node.devices(), None, "{}", node.log());
    let state = json!({
        "kind": "watch", "version": 1, "time": "x", "event": "state", "holds": true, "counts": {}, "verdicts": [],
        "glance_every": 0.8, "unheard": [],
    });
    node.say(&state);
    let of_a_claim = |devices: &BTreeMap<String, Value>| devices.len() == 7;
    let devices = node.until("published", of_a_claim);
    assert!(!taints(&devices["net0-3"]).contains("penstock.dev/drift"));
    let mut verdict = json!({
        "kind": "watch", "version": 1, "time": "x", "event": "drift", "subject": {"function": "NET0#3"}, "attribute": "vlan",
        "vantage": "host", "wanted": "100", "seen": "200", "outcome": "fail", "best_effort": false, "concerns": [],
    });
    let drifted = Instant::now();
    node.say(&verdict);
    let devices = node.until("tainted", |devices| taints(&devices["net0-3"]).contains("penstock.dev/drift"));
    eprintln!("drift was a taint after {:.1} s", drifted.elapsed().as_secs_f64());
    assert!(!taints(&devices["net0-4"]).contains("penstock.dev/drift"));
    (verdict["event"], verdict["outcome"], verdict["seen"]) =
        (json!("holds_again"), json!("pass"), json!("100"));
    node.say(&verdict);
    node.until("taken back", |devices| !taints(&devices["net0-3"]).contains("penstock.dev/drift"));
    let deadline = Instant::now() + PATIENT;
    loop {
        let events =
            node.plane.get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Ddrifting");
        let reasons: BTreeSet<&str> =
            events["items"].as_array().unwrap().iter().filter_map(|event| event["reason"].as_str()).collect();
        if reasons == BTreeSet::from(["Drift", "HoldsAgain"]) {
            let text = events.to_string();
            assert!(text.contains("NET0#3 vlan: wanted 100, seen 200"), "{text}");
            break;
        }
        assert!(Instant::now() < deadline, "{events}\n{}", node.log());
        thread::sleep(PAUSE);
    }
}

fn lifeline_is_withdrawn() {
    let mut inventory = large();
    let function = inventory.pfs[0].sriov.as_ref().unwrap().vfs[0].bdf;
    let mut node = Node::new("alive", &inventory);
    node.start();
    node.until("all are published", |devices| devices.len() == 200);
    let path = LifelinePath { names: vec!["br0".to_owned()], function: Some(function) };
    let lifeline =
        Lifeline { kind: LifelineKind::Peer { address: "10.0.0.1".to_owned() }, paths: vec![path] };
    inventory.lifelines.as_mut().unwrap().found.push(lifeline);
    node.scanned(&inventory);
    node.until("it is withdrawn", |devices| devices.len() == 199);
    node.kill();
    node.plane.must(&["delete", "resourceslices", "--field-selector=spec.nodeName=alive"], "");
    node.start();
    let devices = node.until("the others", |devices| devices.len() == 199);
    assert!(!devices.keys().any(|name| name.ends_with("-0")));
    // A VF that is no more is no device.
    inventory.pfs[0].sriov.as_mut().unwrap().vfs[199].present = None::<PresentVf>;
    node.scanned(&inventory);
    node.until("one less", |devices| devices.len() == 198);
}

fn fenced_to_the_own_node() {
    let node = Node::new("fenced", &igb());
    let try_in_pool = |of: &str, pool: &str, driver: &str, token: &str| {
        fs::write(node.path("try"), node.plane.kubeconfig(token)).unwrap();
        let slice = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("try-{of}")},
            "spec": {"driver": driver, "nodeName": of, "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1}},
        });
        let path = node.path("try");
        let config = format!("--kubeconfig={}", path.display());
        node.plane.kubectl_with(&["create", "--filename", "-", &config], &slice.to_string())
    };
    let try_to = |of: &str, driver: &str, token: &str| try_in_pool(of, of, driver, token);
    let own = node.plane.token_of_agent(&node.name);
    // A policy takes a moment to be in force.
    let deadline = Instant::now() + PATIENT;
    let refused = loop {
        let output = try_to("another", "sriov.penstock.dev", &own);
        if !output.status.success() {
            break output.errors();
        }
        assert!(Instant::now() < deadline, "slices of another node are taken");
        node.plane.must(&["delete", "resourceslices", "try-another"], "");
        thread::sleep(PAUSE);
    };
    assert!(
        refused.contains("the agent of the node fenced may not write slices of the node another"),
        "{refused}"
    );
    let output = try_to("fenced", "other.example.org", &own);
    assert!(
        output.errors().contains("may not write slices of the driver other.example.org"),
        "{}",
        output.errors()
    );
    let output = try_in_pool("fenced", "another", "sriov.penstock.dev", &own);
    assert!(output.errors().contains("may not write slices of the pool another"), "{}", output.errors());
    let unbound = node.plane.must(&["create", "token", "penstock-kubernetes", "--namespace=penstock"], "");
    let output = try_to("fenced", "sriov.penstock.dev", unbound.trim());
    assert!(output.errors().contains("bound to no Node"), "{}", output.errors());
    let output = try_to("fenced", "sriov.penstock.dev", &own);
    assert!(output.status.success(), "{}", output.errors());
    let try_event = |host: &str, component: &str, kind: &str, name: &str, reason: &str, token: &str| {
        fs::write(node.path("try"), node.plane.kubeconfig(token)).unwrap();
        let config = format!("--kubeconfig={}", node.path("try").display());
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"generateName": "try-", "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": kind, "name": name}, "reason": reason, "type": "Normal",
            "source": {"host": host, "component": component}});
        node.plane.kubectl_with(&["create", "--filename", "-", &config], &event.to_string())
    };
    let deadline = Instant::now() + PATIENT;
    while try_event("another", "penstock-kubernetes", "Node", "fenced", "Drifted", &own).status.success() {
        assert!(Instant::now() < deadline, "Events of another node are taken");
        thread::sleep(PAUSE);
    }
    for (host, component, kind, name, reason, why) in [
        ("another", "penstock-kubernetes", "Node", "fenced", "Drifted", "in the name of another node"),
        ("fenced", "kubelet", "Node", "fenced", "Drifted", "in the name of another program"),
        (
            "fenced",
            "penstock-kubernetes",
            "Node",
            "another",
            "Drifted",
            "may not make Events of the Node another",
        ),
        ("fenced", "penstock-kubernetes", "Pod", "p", "Killing", "may not make Events of the Pod p"),
        (
            "fenced",
            "penstock-kubernetes",
            "Secret",
            "s",
            "AttachFailed",
            "may not make Events of the Secret s",
        ),
    ] {
        let output = try_event(host, component, kind, name, reason, &own);
        assert!(output.errors().contains(why), "{}", output.errors());
    }
    let output = try_event("fenced", "penstock-kubernetes", "Node", "fenced", "Drifted", unbound.trim());
    assert!(output.errors().contains("bound to no Node"), "{}", output.errors());
    for (component, kind, name, reason) in [
        ("penstock-kubernetes", "Node", "fenced", "Drifted"),
        ("sriov.penstock.dev", "Pod", "p", "AttachFailed"),
        ("sriov.penstock.dev", "Pod", "p", "ClaimUnused"),
        ("sriov.penstock.dev", "Pod", "p", "ClaimGone"),
    ] {
        let output = try_event("fenced", component, kind, name, reason, &own);
        assert!(output.status.success(), "{}", output.errors());
    }
    for (verb, resource) in [("get", "secrets"), ("list", "pods"), ("patch", "nodes"), ("delete", "pods")] {
        let who = "--as=system:serviceaccount:penstock:penstock-kubernetes";
        let output = node.plane.kubectl(&["auth", "can-i", verb, resource, "--all-namespaces", who]);
        assert_eq!(output.text().trim(), "no", "{verb} {resource}");
    }
}

fn claims_of_the_own_node() {
    let node = Node::new("teller", &igb());
    let result = |pool: &str| json!({"request": "vf", "driver": "sriov.penstock.dev", "pool": pool, "device": "net0-0"});
    let told = |pool: &str| json!({"driver": "sriov.penstock.dev", "pool": pool, "device": "net0-0", "data": {"of": pool}});
    let allocation = json!({"devices": {"results": [result("teller"), result("another")]}});
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "data"},
        "spec": {"devices": {"requests": [{"name": "vf", "exactly": {"deviceClassName": "vf.penstock.dev"}}]}}});
    node.plane.must(&["create", "--filename", "-"], &claim.to_string());
    let status = json!({"status": {"allocation": allocation, "devices": [told("another")]}}).to_string();
    let words =
        ["patch", "resourceclaim", "data", "--subresource=status", "--type=merge", "--patch", &status];
    node.plane.must(&words, "");
    let token = node.plane.token_of_agent(&node.name);
    fs::write(node.path("try"), node.plane.kubeconfig(&token)).unwrap();
    // kubectl reads a status before it writes it, which the agent may not.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let settings = ClientSettings { kubeconfig: Some(node.path("try")) };
    let client = runtime.block_on(client::connect(&settings)).unwrap().client;
    let patch = |status: Value| {
        let api: Api<ResourceClaim> = Api::namespaced(client.clone(), "default");
        let merge = Patch::Merge(json!({"status": status}));
        let written = runtime.block_on(api.patch_status("data", &PatchParams::default(), &merge));
        written.err().map(|error| error.to_string())
    };
    // What an API server before 1.36 leaves to whoever may write a status.
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "as-before-1-36"}, "rules": [
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/binding"], "verbs": ["patch"]},
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/driver"], "verbs": ["arbitrary-node:patch"]}]});
    node.plane.must(&["create", "--filename", "-"], &role.to_string());
    let binds = ["create", "clusterrolebinding", "as-before-1-36", "--clusterrole=as-before-1-36"];
    node.plane.must(&[&binds[..], &["--serviceaccount=penstock:penstock-kubernetes"]].concat(), "");
    // Both take a moment to be in force.
    let deadline = Instant::now() + PATIENT;
    let pod = json!([{"resource": "pods", "name": "a", "uid": "1"}]);
    loop {
        let said = patch(json!({"reservedFor": pod})).unwrap_or_default();
        if said.contains("is not the agent's to write") {
            break;
        }
        assert!(Instant::now() < deadline, "{said}");
        thread::sleep(PAUSE);
    }
    assert_eq!(patch(json!({"devices": [told("another"), told("teller")]})), None);
    let other = json!({"driver": "sriov.penstock.dev", "pool": "another", "device": "net0-0"});
    for devices in [json!([told("teller")]), json!([other, told("teller")])] {
        let said = patch(json!({"devices": devices})).unwrap_or_default();
        assert!(said.contains("of devices of other nodes or drivers"), "{said}");
    }
}

fn idle() {
    let mut node = Node::new("idle", &large());
    node.start();
    node.until("published", |devices| devices.len() == 200);
    let versions = |node: &Node<'_>| -> Vec<Value> {
        node.slices().iter().map(|slice| slice["metadata"]["resourceVersion"].clone()).collect()
    };
    // Its last write may still be on its way.
    let deadline = Instant::now() + PATIENT;
    loop {
        let before = versions(&node);
        thread::sleep(Duration::from_secs(10));
        if versions(&node) == before {
            break;
        }
        assert!(Instant::now() < deadline, "{}", node.log());
    }
    let status = fs::read_to_string(format!("/proc/{}/status", node.agent.as_ref().unwrap().id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    eprintln!("an agent with 200 devices: {line} (not optimised)");
    let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    // The bar is 30 MB for the optimised program; this one carries more of itself.
    assert!(kilobytes < 50 << 10, "{line}");
}

fn api_server_away() {
    let mut node = Node::new("away", &igb());
    node.start();
    node.until("published", |devices| devices.len() == 7);
    node.plane.stop_api_server();
    // What changes meanwhile is published afterwards.
    node.scanned(&large());
    let told = |node: &Node<'_>, what: &str| node.log().lines().filter(|line| line.starts_with(what)).count();
    let all = ["cannot watch the slices", "cannot watch this Node", "cannot watch SriovMachines"];
    let deadline = Instant::now() + PATIENT;
    while all.iter().any(|what| told(&node, what) == 0) {
        assert!(Instant::now() < deadline, "{}", node.log());
        thread::sleep(PAUSE);
    }
    thread::sleep(Duration::from_secs(10));
    let once = all.iter().all(|what| told(&node, what) <= 2);
    assert!(once, "it is told once, not at each attempt: {}", node.log());
    node.plane.start_api_server();
    node.until("published anew", |devices| devices.len() == 200);
    assert!(node.log().contains("could publish the slices after"), "{}", node.log());
}

fn on_another_machine() {
    let mut node = Node::new("elsewhere", &igb());
    let booted = |node: &Node<'_>, boot: &str| {
        let info = json!({"status": {"nodeInfo": {"bootID": boot}}}).to_string();
        let patch = ["patch", "node", "elsewhere", "--subresource=status", "--type=merge", "--patch"];
        node.plane.must(&[&patch[..], &[&info]].concat(), "");
    };
    booted(&node, "run-of-another-machine");
    node.start();
    let deadline = Instant::now() + PATIENT;
    for words in ["the Node elsewhere is another machine", "functions for pods: 7"] {
        while !node.log().contains(words) {
            assert!(Instant::now() < deadline, "{words}: {}", node.log());
            thread::sleep(PAUSE);
        }
    }
    // One that published would have by then.
    thread::sleep(Duration::from_secs(3));
    assert_eq!(node.slices(), [json!(null); 0], "{}", node.log());
    // Kubelet runs here after all.
    booted(&node, fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim());
    node.until("published", |devices| devices.len() == 7);
    // What another machine publishes of its own stays.
    booted(&node, "run-of-another-machine");
    let moved = || node.log().matches("the Node elsewhere is another machine").count() == 2;
    while !moved() {
        assert!(Instant::now() < deadline, "{}", node.log());
        thread::sleep(PAUSE);
    }
    node.scanned(&large());
    while !node.log().contains("functions for pods: 200") {
        assert!(Instant::now() < deadline, "{}", node.log());
        thread::sleep(PAUSE);
    }
    thread::sleep(Duration::from_secs(3));
    assert_eq!(node.devices().map(|devices| devices.len()), Some(7), "{}", node.log());
}

fn node_made_anew() {
    let mut node = Node::new("anew", &igb());
    node.start();
    node.until("published", |devices| devices.len() == 7);
    node.plane.must(&["delete", "node", "anew"], "");
    node.make();
    // As the garbage collector does, which does not run here. The token went with the Node that it was bound to.
    let token = node.plane.token_of_agent(&node.name);
    fs::write(node.path("kubeconfig"), node.plane.kubeconfig(&token)).unwrap();
    node.plane.must(&["delete", "resourceslices", "--field-selector=spec.nodeName=anew", "--wait=false"], "");
    node.kill();
    node.start();
    node.until("published anew", |devices| devices.len() == 7);
    let uid = node.plane.get("/api/v1/nodes/anew")["metadata"]["uid"].clone();
    assert!(node.slices().iter().all(|slice| slice["metadata"]["ownerReferences"][0]["uid"] == uid));
    let _ = File::open(node.path("log")).unwrap();
}
