//! Nodes without a kubelet, each with its agent and a `penstock` that changes nothing, and a controller.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, OpenOptions},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime},
};

use penstock_model::Inventory;
use penstock_testkit::{api_socket::ApiSocket, control_plane::LocalControlPlane, script};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{PATIENT, PAUSE, PLANE, program};

/// The content types of patches.
pub const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// Nodes with their agents, and a controller.
pub struct Fleet {
    pub plane: MutexGuard<'static, LocalControlPlane>,
    pub name: String,
    pub directory: TempDir,
    pub nodes: Vec<String>,
    pub agents: BTreeMap<String, Child>,
    /// How often agents look at their machines without being told that something has changed, in seconds.
    pub rescan: u32,
    pub controller: Option<Child>,
    /// As the nodes' kubelets renew them.
    pub leases: Leases,
}

impl Fleet {
    /// `count` nodes, without agents and controller.
    pub fn new(name: &str, count: usize) -> Fleet {
        let plane = PLANE.get().expect("it was started").lock().unwrap_or_else(|broken| broken.into_inner());
        let directory = tempfile::tempdir().unwrap();
        let nodes: Vec<String> = (0..count).map(|index| format!("{name}-{index}")).collect();
        for node in &nodes {
            let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": {"fleet": name}}});
            let api = plane.api();
            api.must("POST", "/api/v1/nodes", Some(("application/json", &object)));
            let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": "",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
            api.must("PATCH", &format!("/api/v1/nodes/{node}/status"), Some((MERGE, &ready)));
            let at = directory.path().join(node);
            for folder in ["kubelet/plugins", "kubelet/plugins_registry", "cdi"] {
                fs::create_dir_all(at.join(folder)).unwrap();
            }
            script::write(at.join("penstock"), include_str!("penstock.sh"));
            fs::write(at.join("scan.json"), serde_json::to_vec(&recorded()).unwrap()).unwrap();
            fs::write(at.join("watch.jsonl"), format!("{}\n", json!({
                "kind": "watch", "version": 1, "time": "x", "event": "state", "holds": true, "counts": {}, "verdicts": [],
                "glance_every": 0.8, "unheard": []}))).unwrap();
            fs::write(at.join("kubeconfig"), plane.kubeconfig(&plane.token_of_agent(node))).unwrap();
        }
        let token = plane.must(&["create", "token", "penstock-controller", "--namespace=penstock"], "");
        fs::write(directory.path().join("kubeconfig"), plane.kubeconfig(token.trim())).unwrap();
        fs::write(directory.path().join("calls"), "").unwrap();
        let leases = Leases::renew(plane.api(), &nodes);
        Fleet {
            plane,
            name: name.to_owned(),
            directory,
            nodes,
            agents: BTreeMap::new(),
            rescan: 600,
            controller: None,
            leases,
        }
    }

    /// What agents and controller have said.
    pub fn said(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Waits for something.
    pub fn wait_for(&self, what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENT;
        while !holds() {
            assert!(Instant::now() < deadline, "{what}: {:#}", self.status());
            thread::sleep(PAUSE);
        }
    }

    /// With all agents and the controller.
    pub fn started(name: &str, count: usize) -> Fleet {
        let mut fleet = Fleet::new(name, count);
        fleet.nodes.clone().iter().for_each(|node| fleet.start_agent(node));
        fleet.start_controller();
        fleet
    }

    pub fn at(&self, node: &str, file: &str) -> PathBuf {
        self.directory.path().join(node).join(file)
    }

    pub fn log(&self) -> Stdio {
        OpenOptions::new().create(true).append(true).open(self.directory.path().join("log")).unwrap().into()
    }

    pub fn agent(&self, node: &str) -> Command {
        let mut command = program();
        command.args(["node", "--rescan", &self.rescan.to_string(), "--node", node]);
        for (option, name) in [
            ("--kubeconfig", "kubeconfig"),
            ("--penstock", "penstock"),
            ("--state", "state"),
            ("--run-directory", "hooks"),
            ("--kubelet-directory", "kubelet"),
            ("--cdi-directory", "cdi"),
        ] {
            command.arg(option).arg(self.at(node, name));
        }
        command.stdin(Stdio::null()).stdout(self.log()).stderr(self.log());
        command
    }

    pub fn start_agent(&mut self, node: &str) {
        // In a group of its own, with which what it started can be ended as systemd does.
        let agent = self.agent(node).process_group(0).spawn().unwrap();
        self.agents.insert(node.to_owned(), agent);
    }

    /// As systemd kills a service: all of its processes.
    pub fn kill_agent(&mut self, node: &str) {
        if let Some(mut agent) = self.agents.remove(node) {
            let group = format!("-{}", agent.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            let _ = agent.wait();
        }
    }

    pub fn start_controller(&mut self) {
        let mut command = program();
        command.arg("controller").arg("--kubeconfig").arg(self.directory.path().join("kubeconfig"));
        self.controller =
            Some(command.stdin(Stdio::null()).stdout(self.log()).stderr(self.log()).spawn().unwrap());
    }

    pub fn kill_controller(&mut self) {
        if let Some(mut controller) = self.controller.take() {
            let _ = controller.kill();
            let _ = controller.wait();
        }
    }

    /// The fleet's SriovMachine in the API.
    fn machine_path(&self) -> String {
        format!("/apis/penstock.dev/v1alpha1/sriovmachines/{}", self.name)
    }

    /// Makes the fleet's SriovMachine, or changes it.
    pub fn machine(&self, more: Value) {
        let mut spec = json!({
            "model": "nics: {NET0: {vfs: 4}}\n", "nodeSelector": {"fleet": self.name},
            "rollout": {"confirmWithin": "30s"}, "drain": {"timeout": "10s"},
        });
        merge(&mut spec, more);
        let object = json!({"apiVersion": "penstock.dev/v1alpha1", "kind": "SriovMachine", "metadata": {"name": self.name}, "spec": spec});
        let path = format!("{}?fieldManager=kubectl&force=true", self.machine_path());
        self.plane.api().must("PATCH", &path, Some((APPLY, &object)));
    }

    pub fn status(&self) -> Value {
        self.plane.api().find(&self.machine_path()).map_or(Value::Null, |object| object["status"].clone())
    }

    pub fn record(&self, node: &str) -> Value {
        self.plane.api().find(&format!("/apis/penstock.dev/v1alpha1/sriovnodes/{node}")).unwrap_or_default()
    }

    pub fn outcome(&self, node: &str) -> String {
        self.record(node)["status"]["result"]["outcome"].as_str().unwrap_or_default().to_owned()
    }

    pub fn until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENT;
        loop {
            let status = self.status();
            if wanted(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "{what}: {status:#}");
            thread::sleep(PAUSE);
        }
    }

    /// When changes began and ended, by node, in order.
    pub fn calls(&self) -> Vec<(String, String)> {
        let text = fs::read_to_string(self.directory.path().join("calls")).unwrap();
        let mut lines: Vec<(f64, String, String)> = text
            .lines()
            .map(|line| {
                let mut words = line.split(' ');
                let mut next = || words.next().unwrap().to_owned();
                (next().parse().unwrap(), next(), next())
            })
            .collect();
        lines.sort_by(|one, other| one.0.total_cmp(&other.0));
        lines.into_iter().map(|(_, node, what)| (node, what)).collect()
    }

    /// The most nodes that were between the begin of a change and its end at a time.
    pub fn most_at_a_time(&self) -> usize {
        let mut now = BTreeSet::new();
        let mut most = 0;
        for (node, what) in self.calls() {
            match what.as_str() {
                "begin" => drop(now.insert(node)),
                _ => drop(now.remove(&node)),
            }
            most = most.max(now.len());
        }
        most
    }

    /// Requests that changed a SriovNode or a SriovMachine, by resource, since the API server was started.
    pub fn writes(&self) -> BTreeMap<String, u64> {
        let text = self.plane.api().must("GET", "/metrics", None);
        let mut writes: BTreeMap<String, u64> = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
            let field = |name: &str| {
                line.split_once(&format!("{name}=\""))
                    .and_then(|(_, rest)| rest.split_once('"'))
                    .map(|(value, _)| value)
            };
            let is_write = matches!(field("verb"), Some("APPLY" | "PATCH" | "POST" | "PUT"));
            if let (true, Some(resource @ ("sriovnodes" | "sriovmachines"))) = (is_write, field("resource")) {
                *writes.entry(resource.to_owned()).or_default() +=
                    line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64;
            }
        }
        writes
    }

    /// The devices that a node publishes.
    pub fn devices(&self, node: &str) -> Vec<Value> {
        let path = format!("/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3D{node}");
        let slices = self.plane.get(&path);
        let devices = |slice: &Value| slice["spec"]["devices"].as_array().cloned().unwrap_or_default();
        slices["items"].as_array().unwrap().iter().flat_map(devices).collect()
    }

    /// The first VF of a node's NIC as the node publishes it.
    pub fn published_vf(&self, node: &str) -> Option<Value> {
        let is_first =
            |device: &Value| device["attributes"]["resource.kubernetes.io/pciBusID"]["string"] == self.vf();
        self.devices(node).into_iter().find(is_first)
    }

    /// Gives a node the label by which machines select the nodes of this fleet, with another value perhaps.
    pub fn label(&self, node: &str, value: &str) {
        let object = json!({"metadata": {"labels": {"fleet": value}}});
        let path = format!("/api/v1/nodes/{node}?fieldManager=kubectl");
        self.plane.api().must("PATCH", &path, Some((MERGE, &object)));
    }

    /// Waits until a node's SriovNode is as is wanted; the object.
    pub fn until_record(&self, node: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENT;
        loop {
            let record = self.record(node);
            if wanted(&record) {
                return record;
            }
            assert!(Instant::now() < deadline, "{what}: {record:#}");
            thread::sleep(PAUSE);
        }
    }

    /// Makes a claim that has the first VF of a node's NIC, and a pod with it on that node.
    pub fn pod_with_vf(&self, node: &str, pod: &str, owner: Value) {
        let deadline = Instant::now() + PATIENT;
        let device = loop {
            if let Some(device) = self.published_vf(node) {
                break device["name"].as_str().unwrap().to_owned();
            }
            assert!(Instant::now() < deadline, "no device: {:?}", self.devices(node));
            thread::sleep(PAUSE);
        };
        let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": pod, "namespace": "default"},
            "spec": {"devices": {"requests": [{"name": "vf", "exactly": {"deviceClassName": "vf.penstock.dev"}}]}}});
        let api = self.plane.api();
        let claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
        api.must("POST", claims, Some(("application/json", &claim)));
        let allocation = json!({"status": {"allocation": {"devices": {"results": [
            {"request": "vf", "driver": "sriov.penstock.dev", "pool": node, "device": device}]}}}});
        api.must("PATCH", &format!("{claims}/{pod}/status"), Some((MERGE, &allocation)));
        let mut object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "namespace": "default", "labels": {"app": pod}},
            "spec": {"nodeName": node, "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
                "resourceClaims": [{"name": "vf", "resourceClaimName": pod}],
                "containers": [{"name": "c", "image": "none", "resources": {"claims": [{"name": "vf"}]}}]}});
        if !owner.is_null() {
            object["metadata"]["ownerReferences"] = json!([owner]);
        }
        let pods = "/api/v1/namespaces/default/pods";
        api.must("POST", pods, Some(("application/json", &object)));
        let running =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        api.must("PATCH", &format!("{pods}/{pod}/status"), Some((MERGE, &running)));
    }

    /// The address of the first VF of the recorded machine.
    pub fn vf(&self) -> String {
        recorded().pfs[0].sriov.as_ref().unwrap().vfs[0].bdf.to_string()
    }

    /// Has a node's plan take its first VF away.
    pub fn takes_a_vf(&self, node: &str) {
        let plan = json!({"kind": "plan", "steps": [{}], "needs_reboot": false,
            "dangers": [{"name": "vfs-in-use:NET0", "steps": [1], "lost": "a pod has it", "way_round": "stop it", "functions": [self.vf()]}],
            "effects": {"guests": [], "vfs": [{"name": "NET0#0", "function": self.vf(), "step": 1}]}});
        fs::write(self.at(node, "plan.json"), plan.to_string()).unwrap();
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for node in self.nodes.clone() {
            self.kill_agent(&node);
        }
        self.kill_controller();
        self.leases.end();
        if thread::panicking() {
            eprintln!("agents and controller said:\n{}", self.said());
            for node in &self.nodes {
                eprintln!("{:#}", self.record(node));
            }
        }
        // What the next test counts is its own.
        let nodes = format!("/api/v1/nodes?labelSelector=fleet%3D{}", self.name);
        for path in [self.machine_path(), nodes] {
            let _ = self.plane.api().request("DELETE", &path, None);
        }
    }
}

pub fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

/// The recorded 82576 with seven VFs, of a machine that depends on none of them.
pub fn recorded() -> Inventory {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/fixtures/inventory/82576-seven-vfs.json");
    let mut inventory: Inventory = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    inventory.lifelines.get_or_insert_default();
    inventory
}

/// Now, as a `MicroTime` of Kubernetes: with six places behind the seconds.
fn micro_time() -> String {
    humantime::format_rfc3339_micros(SystemTime::now()).to_string()
}

/// Renews the Leases of nodes as their kubelets do, until it is ended.
pub struct Leases {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Leases {
    pub fn renew(api: ApiSocket, nodes: &[String]) -> Leases {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-node-lease"}});
        // It stays from test to test.
        let _ = api.request("POST", "/api/v1/namespaces", Some(("application/json", &namespace)));
        let ended = Arc::new(AtomicBool::new(false));
        let (nodes, until) = (nodes.to_vec(), ended.clone());
        let thread = thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                for node in &nodes {
                    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                        "metadata": {"name": node, "namespace": "kube-node-lease"},
                        "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": micro_time()}});
                    let path = format!(
                        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}?fieldManager=kubelet&force=true"
                    );
                    // The API server may be away: the next round tries again.
                    let _ = api.request("PATCH", &path, Some((APPLY, &lease)));
                }
                (0..20)
                    .take_while(|_| !until.load(Ordering::Relaxed))
                    .for_each(|_| thread::sleep(Duration::from_millis(100)));
            }
        });
        Leases { ended, thread: Some(thread) }
    }

    pub fn end(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub fn condition<'a>(status: &'a Value, kind: &str) -> (&'a str, &'a str) {
    let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == kind);
    found.map_or(("", ""), |found| {
        (found["reason"].as_str().unwrap_or(""), found["message"].as_str().unwrap_or(""))
    })
}
