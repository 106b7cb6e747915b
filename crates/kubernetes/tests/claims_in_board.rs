//! Pods with VFs, as a cluster has them: kubelet, containerd and crun on a board whose igb NIC has VFs, and the agent beside them, set up as
//! docs/kubernetes.md says; the controller's pods, whose node is drained; and a roll-out that cuts a node off. All tests share one cluster of two
//! nodes; pods are on the first. With `PENSTOCK_PODS=100` the one that kills the agent makes as many pods as that says.
#![allow(clippy::disallowed_methods)]

#[path = "claims_in_board/daemon_set.rs"]
mod daemon_set;
#[path = "claims_in_board/deployment.rs"]
mod deployment;
#[path = "claims_in_board/drift.rs"]
mod drift;
#[path = "claims_in_board/image.rs"]
mod image;
#[path = "claims_in_board/rollout.rs"]
mod rollout;

use std::{
    env,
    path::PathBuf,
    process::{Command, ExitCode},
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

use penstock_host::chain;
use penstock_testkit::{
    binary::{self, Run},
    board::caught,
    cluster::{self, PATIENT, TestCluster, until},
    needs,
    trials::{Failed, Outcome, Trials},
};
use serde_json::{Value, json};

/// Pods have VFs of the first NIC; a VF of the second, whose uplink leads to the third, carries a node's way to the API server in the roll-out.
const MODEL: &str = "machine: MACHINE\nnics: {NET0: {vfs: 7, defaults: {spoofchk: on}}, NET1: {vfs: 1}, NET2: {vfs: 0}}\n\
    board: {emulation: {NET0: igb, NET1: virtio, NET2: igb}, cables: [[NET1, NET2]]}\n";
/// How many pods have VFs at once.
const VFS: usize = 7;
/// How many pods the last test makes; else as many as fit into [`CYCLES`].
const PODS: &str = "PENSTOCK_PODS";
const CYCLES: Duration = Duration::from_secs(60);
/// How often the agent is killed meanwhile, at least.
const KILLS: usize = 3;
/// How long slices are away where nothing else runs is at most 5 s (docs/kubernetes.md); here two CPUs emulate two others.
const SLICES_BACK: Duration = Duration::from_secs(60);
/// The status with which a container ends that was started without its interface.
const WITHOUT: i64 = 77;
const MAC: &str = "02:00:00:00:cc:01";
/// That of a VF that a program drives.
const PROGRAM_MAC: &str = "02:00:00:00:cc:02";
/// Opens the VFIO group that the container has, and keeps it open.
const PROGRAM: &str = "for group in /dev/vfio/[0-9]*; do exec 3<>$group || exit 77; done; exec sleep 1000000";

/// How the agent reaches the API server: as the service account, by a token in a file.
const KUBECONFIG: &str = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
    "clusters": [{"name": "c", "cluster": {"server": "https://10.0.2.100:6443", "certificate-authority": "/etc/kubernetes/pki/ca.crt"}}],
    "users": [{"name": "agent", "user": {"tokenFile": "/etc/penstock/kubernetes.token"}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "agent"}}]}"#;

/// The agent, started again whenever it ends, as its unit has it.
const SUPERVISOR: &str = r#"#!/bin/sh
while :; do
    /usr/local/bin/penstock-kubernetes node --node "$(hostname)" --kubeconfig /etc/penstock/kubernetes.kubeconfig \
        --model /root/model.yaml >>/var/log/agent.log 2>&1 &
    echo $! >/run/agent.number.new
    mv /run/agent.number.new /run/agent.number
    wait $!
    echo "it ended with $?" >>/var/log/agent.log
    sleep 0.2
done
"#;

/// Kills the agent again and again, after times of which some are too short for it to do anything, and some as long as kubelet waits until it
/// asks again: these begin when the agent has its socket, and are longer by the time that it took for that, which is more than all of
/// them where a board is slow.
const KILLER: &str = r#"#!/bin/sh
while :; do
    for pause in 9 0.3 22 1 31 2 15 0.7; do
        case $pause in 9 | 22 | 31 | 15)
            begun=$(date +%s)
            while [ -e /run/killing ]; do
                set -- /var/lib/kubelet/plugins_registry/*.sock
                [ "$1" -nt /run/agent.number ] && break
                sleep 0.2
            done
            sleep $(($(date +%s) - begun)) ;;
        esac
        sleep $pause
        [ -e /run/killing ] || exit 0
        read -r number </run/agent.number
        kill -KILL "$number" && echo "$number" >>/run/killed
    done
done
"#;

/// The agent: what Cargo has built, or what `PENSTOCK_KUBERNETES` names, an optimised one perhaps.
fn program() -> PathBuf {
    env::var_os("PENSTOCK_KUBERNETES")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_penstock-kubernetes")), PathBuf::from)
}

/// All that must be as before when no pod has a VF: VFs at their PF, their drivers and interfaces.
const STATE: &str = r#"pf=/sys/bus/pci/devices/0000:01:00.0
ip link show $(ls $pf/net) | grep ' vf '
for vf in $pf/virtfn*; do
    d=$(ls -d $vf/net/*); echo $(basename $(readlink -f $vf)) $(basename $(readlink $vf/driver)) $(cat $vf/driver_override) ${d##*/} $(cat $d/address $d/mtu $d/flags)
done"#;

/// What is left of claims on the node.
const LEFT: &str = r#"ls /var/lib/penstock/kubernetes/claims /var/lib/penstock/kubernetes/metadata /var/run/cdi /run/penstock/kubernetes /run/penstock/cni 2>/dev/null |
    grep -vE '^(/|$)|^agent.sock$|^prepare.lock$|^0000:.*[.]lock$'; true"#;

type Check = fn(&Bed) -> Outcome;

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    trials.one_at_a_time();
    let missing = trials.lacking("pods", || needs::board().or_else(cluster::lacking));
    let tests: [(&str, Check); 10] = [
        ("slices_come_back_when_kubelet_was_restarted_in_board", slices_come_back),
        ("a_change_of_a_free_vf_is_a_taint_until_it_is_mended_in_board", drift::is_told),
        ("a_pod_has_its_vf_as_its_claim_says_in_board", a_pod_has_its_vf),
        ("a_program_drives_the_vf_of_its_claim_and_no_other_in_board", a_program_drives_its_vf),
        ("a_pod_with_the_hosts_network_is_refused_in_board", host_network_is_refused),
        ("a_container_whose_vf_was_stolen_does_not_start_in_board", a_stolen_vf),
        ("no_pod_runs_without_its_vf_while_the_agent_is_killed_in_board", no_pod_runs_without),
        ("a_daemon_set_runs_the_agent_in_board", daemon_set::runs_the_agent),
        ("a_deployment_of_the_controller_drains_its_own_node_in_board", deployment::drains_its_own_node),
        ("a_model_that_cuts_the_way_to_the_api_server_is_taken_back_in_board", rollout::cut_off),
    ];
    let bed: Arc<OnceLock<Result<Bed, String>>> = Arc::default();
    let shared = tests.map(|(name, test)| {
        let bed = Arc::clone(&bed);
        let run = move || match bed.get_or_init(|| Bed::up().map_err(|error| chain(&*error))) {
            Ok(bed) => caught(|| test(bed))
                .map_err(|why| Failed::from(format!("{}\n{}", chain(&*why), bed.what_was_said()))),
            Err(why) => Err(why.clone().into()),
        };
        (name, run)
    });
    trials.add(&missing, shared);
    trials.run()
}

/// A cluster of two nodes, with the agent on the first.
struct Bed {
    cluster: TestCluster,
    /// The first node.
    node: String,
    /// How the cluster is entered from here.
    kubeconfig: PathBuf,
    /// [`STATE`] of the node before any pod.
    before: Snapshot,
}

/// What must be as before.
#[derive(Debug, PartialEq)]
struct Snapshot {
    state: String,
    pfs: Vec<Value>,
}

impl Bed {
    fn up() -> Result<Bed, Failed> {
        let cluster = TestCluster::new("pods", MODEL)?;
        let (document, _) = cluster.up(&["--nodes", "2"])?;
        let node = cluster.node(1);
        cluster.said(&["label", "node", &node, "example.org/vfs=on"])?;
        let manifests: Run =
            Command::new(env!("CARGO_BIN_EXE_penstock-kubernetes")).arg("manifests").output()?.into();
        manifests.ended_with(0)?;
        cluster.apply(&manifests.stdout)?;
        install(&cluster, &node)?;
        cluster.write_on(&node, "/root/killer", KILLER)?;
        let kubeconfig = text(&document["cluster"]["kubeconfig"]).into();
        let bed = Bed { before: snapshot(&cluster, &node)?, cluster, node, kubeconfig };
        bed.begin(&bed.node, "supervisor")?;
        until("the agent publishes the VFs", || Ok(bed.slices()?.1 == VFS))?;
        until("the service account of pods is there", || {
            Ok(bed.cluster.kubectl(&["get", "serviceaccount", "default"]).status == 0)
        })?;
        bed.cluster.apply(&templates().to_string())?;
        Ok(bed)
    }

    /// Starts a script of a node that goes on by itself.
    fn begin(&self, node: &str, script: &str) -> Outcome {
        let line = format!("setsid sh /root/{script} </dev/null >/dev/null 2>&1 &");
        self.cluster.on(node, &line).map(drop)
    }

    /// The UIDs of the first node's slices, and how many VFs of the first NIC they publish.
    fn slices(&self) -> Result<(Vec<String>, usize), Failed> {
        self.slices_of(&self.node, |device| device["attributes"]["nic"]["string"] == "NET0")
    }

    /// The UIDs of a node's slices, and how many devices they have of those that are looked for.
    fn slices_of(&self, node: &str, wanted: impl Fn(&Value) -> bool) -> Result<(Vec<String>, usize), Failed> {
        let of_node = format!("--field-selector=spec.nodeName={node}");
        let slices = self.cluster.get(&["resourceslices", &of_node])?;
        let uids = list(&slices["items"]).iter().map(|slice| text(&slice["metadata"]["uid"])).collect();
        let devices = list(&slices["items"]).iter().flat_map(|slice| list(&slice["spec"]["devices"]));
        Ok((uids, devices.filter(|device| wanted(device)).count()))
    }

    fn pod(&self, name: &str) -> Result<Value, Failed> {
        self.cluster.get(&["pod", name])
    }

    fn await_ready(&self, pod: &str) -> Outcome {
        until(&format!("pod {pod} is ready"), || Ok(is_ready(&self.pod(pod)?))).map(drop)
    }

    /// Deletes a pod, and waits until nothing of its claims is left, and the VFs are as they were.
    fn delete(&self, pod: &str) -> Outcome {
        self.cluster.said(&["delete", "pod", pod, &format!("--timeout={}s", PATIENT.as_secs())])?;
        self.is_as_before()
    }

    fn is_as_before(&self) -> Outcome {
        until("claims have gone with their pods", || {
            Ok(list(&self.cluster.get(&["resourceclaims"])?["items"]).is_empty())
        })?;
        let left = self.cluster.on(&self.node, LEFT)?;
        assert_eq!(left, "", "files of claims are left");
        assert_eq!(snapshot(&self.cluster, &self.node)?, self.before);
        Ok(())
    }

    /// The process of a container, by the container's identity.
    fn process(&self, container: &str) -> Result<String, Failed> {
        let tasks = self.cluster.on(&self.node, "ctr -n k8s.io tasks list")?;
        let line = tasks.lines().find(|line| line.starts_with(container));
        let process = line.and_then(|line| line.split_whitespace().nth(1));
        process.map(str::to_owned).ok_or_else(|| format!("no task {container}: {tasks}").into())
    }

    fn kill(&self, container: &str) -> Outcome {
        self.cluster.on(&self.node, &format!("ctr -n k8s.io tasks kill -s SIGKILL {container}")).map(drop)
    }

    /// The sandbox of a container.
    fn sandbox(&self, container: &str) -> Result<String, Failed> {
        let said = self.cluster.on(&self.node, &format!("ctr -n k8s.io containers info {container}"))?;
        let info: Value = serde_json::from_str(&said)?;
        Ok(text(&info["Spec"]["annotations"]["io.kubernetes.cri.sandbox-id"]))
    }

    /// What is said of a pod in Events.
    fn events(&self, pod: &str) -> Result<String, Failed> {
        let events =
            self.cluster.get(&["events", "--field-selector", &format!("involvedObject.name={pod}")])?;
        let said = list(&events["items"]).iter().map(|event| text(&event["message"]));
        Ok(said.collect::<Vec<_>>().join("\n"))
    }

    /// For whoever reads why a test failed.
    fn what_was_said(&self) -> String {
        let log = "tail -n 40 /var/log/agent.log; ip link; ls -R /run/penstock /var/lib/penstock/kubernetes /var/run/cdi";
        let node = self.cluster.on(&self.node, log).unwrap_or_else(|error| chain(&*error));
        let events = self.cluster.kubectl(&["get", "events,pods,resourceclaims"]);
        format!("the node:\n{node}\nthe cluster:\n{}{}", events.stdout, events.stderr)
    }

    /// Both containers see the interface, and the PF has what was asked for.
    fn holds(&self, pod: &Value) -> Outcome {
        for container in containers(pod).values() {
            let process = self.process(container)?;
            let seen = format!("nsenter --net=/proc/{process}/ns/net ip address show data");
            let seen = self.cluster.on(&self.node, &seen)?;
            for words in [MAC, "10.20.30.5/24", ",UP"] {
                assert!(seen.contains(words), "{words}: {seen}");
            }
        }
        let pf = self.cluster.on(&self.node, STATE_OF_PF)?;
        let of_vf = pf.lines().find(|line| line.contains(MAC)).unwrap_or_default();
        for words in ["vlan 100", "spoof checking on", "max_tx_rate 100Mbps"] {
            assert!(of_vf.contains(words), "{words}: {pf}");
        }
        Ok(())
    }

    /// A program in a container reads which device it has; `vf` is the device's name.
    fn reads_its_metadata(&self, container: &str, vf: &str) -> Outcome {
        let file = format!("{METADATA}/resourceclaimtemplates/nic/vf/sriov.penstock.dev-metadata.json");
        let read = format!("ctr -n k8s.io tasks exec --exec-id metadata {container} cat {file}");
        let metadata: Value = serde_json::from_str(&self.cluster.on(&self.node, &read)?)?;
        assert_eq!((&metadata["kind"], &metadata["podClaimName"]), (&json!("DeviceMetadata"), &json!("nic")));
        let device = &metadata["requests"][0]["devices"][0];
        assert_eq!((&metadata["requests"][0]["name"], &device["name"]), (&json!("vf"), &json!(vf)));
        let (_, index) = vf.rsplit_once('-').unwrap_or_default();
        let link = format!("basename $(readlink /sys/bus/pci/devices/0000:01:00.0/virtfn{index})");
        let address = self.cluster.on(&self.node, &link)?;
        assert_eq!(device["attributes"]["resource.kubernetes.io/pciBusID"]["string"], address.trim());
        let network = json!({"interfaceName": "data", "ips": ["10.20.30.5/24"], "hardwareAddress": MAC});
        assert_eq!(device["networkData"], network);
        Ok(())
    }
}

/// Where containers find which devices they have (KEP-5304).
const METADATA: &str = "/var/run/kubernetes.io/dra-device-attributes";

const STATE_OF_PF: &str = "ip link show $(ls /sys/bus/pci/devices/0000:01:00.0/net)";

/// Makes a node's VFs.
fn make_vfs(cluster: &TestCluster, node: &str) -> Outcome {
    let pfs = "for pf in /sys/bus/pci/drivers/igb/*/net/*; do ip link set ${pf##*/} up; done";
    cluster.on(node, &format!("{pfs}; penstock apply /root/model.yaml")).map(drop)
}

/// Makes a node's VFs, and puts the agent there, with a token of its service account that is bound to the node. It does not run yet.
fn install(cluster: &TestCluster, node: &str) -> Outcome {
    make_vfs(cluster, node)?;
    let bound = ["--bound-object-kind", "Node", "--bound-object-name", node];
    let token = ["create", "token", "penstock-kubernetes", "--namespace", "penstock"];
    let token = cluster.said(&[&token[..], &bound].concat())?;
    cluster.write_on(node, "/etc/penstock/kubernetes.token", &token)?;
    cluster.write_on(node, "/etc/penstock/kubernetes.kubeconfig", KUBECONFIG)?;
    let put = "cat > /usr/local/bin/penstock-kubernetes; chmod 755 /usr/local/bin/penstock-kubernetes";
    let stripped = cluster.at().join("penstock-kubernetes");
    binary::strip(&program(), &stripped)?;
    cluster.on_with(node, put, &stripped)?;
    cluster.write_on(node, "/root/supervisor", SUPERVISOR)
}

fn snapshot(cluster: &TestCluster, node: &str) -> Result<Snapshot, Failed> {
    let scan: Value = serde_json::from_str(&cluster.on(node, "penstock scan --json")?)?;
    let pfs = list(&scan["pfs"]).iter().filter(|pf| !pf["sriov"].is_null()).cloned().collect();
    Ok(Snapshot { state: cluster.on(node, STATE)?, pfs })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn is_ready(pod: &Value) -> bool {
    let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    list(&pod["status"]["conditions"]).iter().any(ready)
}

/// The identities of a pod's containers that run, by their names.
fn containers(pod: &Value) -> std::collections::BTreeMap<String, String> {
    let running = list(&pod["status"]["containerStatuses"]).iter().filter(|one| one["ready"] == true);
    let identity = |one: &Value| text(&one["containerID"]).trim_start_matches("containerd://").to_owned();
    running.map(|one| (text(&one["name"]), identity(one))).collect()
}

/// How often a container of this pod ended as one that was started without its interface, and how often one could not be started.
fn ended(pod: &Value) -> (usize, usize) {
    let of = |name: &str| {
        let ends = list(&pod["status"]["containerStatuses"])
            .iter()
            .flat_map(|one| [one["state"]["terminated"].clone(), one["lastState"]["terminated"].clone()]);
        ends.filter(|end| match name {
            "without" => end["exitCode"] == WITHOUT,
            _ => end["reason"] == "StartError",
        })
        .count()
    };
    (of("without"), of("start"))
}

/// What claims are made from: one whose VF is told how to be, and one that takes a VF as it is.
fn templates() -> Value {
    let template_of = |name: &str, attribute: &str, parameters: Value| {
        let expression = format!(r#"device.attributes["sriov.penstock.dev"].{attribute}"#);
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name},
            "spec": {"spec": {"devices": {
                "requests": [{"name": "vf", "exactly": {"deviceClassName": "vf.penstock.dev", "selectors": [{"cel": {"expression": expression}}]}}],
                "config": [{"opaque": {"driver": "sriov.penstock.dev", "parameters": parameters}}],
            }}},
        })
    };
    let template = |name: &str, parameters| template_of(name, r#"nic == "NET0""#, parameters);
    let data = json!({"interface": "data", "mac": MAC, "vlan": 100, "spoofchk": true, "max_tx_rate": 100,
        "addresses": ["10.20.30.5/24"]});
    let program = json!({"mode": "vfio", "mac": PROGRAM_MAC, "vlan": 200});
    let items = [
        template("data", data),
        template("bare", json!({"interface": "data"})),
        template("program", program),
        template("program-bare", json!({"mode": "vfio"})),
        // Where no model says what NICs are called.
        template_of("igb", r#"pfDriver == "igb""#, json!({"interface": "data"})),
    ];
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// A pod whose containers look for their interface before anything else.
fn pod(name: &str, template: &str, containers: &[&str]) -> Value {
    let line = format!("[ -e /sys/class/net/data ] || exit {WITHOUT}; exec sleep 1000000");
    pod_of(name, template, containers, &line)
}

fn pod_of(name: &str, template: &str, containers: &[&str], line: &str) -> Value {
    let containers: Vec<Value> = containers
        .iter()
        .map(|name| {
            json!({
                "name": name, "image": "localhost/penstock:1", "imagePullPolicy": "Never",
                "command": ["/bin/sh", "-c", line], "resources": {"claims": [{"name": "nic"}]},
            })
        })
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            // Where VFs are.
            "nodeSelector": {"example.org/vfs": "on"},
            "terminationGracePeriodSeconds": 1,
            "resourceClaims": [{"name": "nic", "resourceClaimTemplateName": template}],
            "containers": containers,
        },
    })
}

fn slices_come_back(bed: &Bed) -> Outcome {
    let (before, _) = bed.slices()?;
    bed.cluster.on(&bed.node, "/opt/kubernetes/kubelet restart")?;
    // kubelet removes them when it has begun, and they are other ones then.
    let (mut gone, began) = (None, Instant::now());
    loop {
        let (now, vfs) = bed.slices()?;
        if before.iter().any(|uid| !now.contains(uid)) {
            gone.get_or_insert_with(Instant::now);
        }
        if !before.iter().any(|uid| now.contains(uid)) && vfs == VFS {
            break;
        }
        if began.elapsed() > PATIENT {
            return Err("the slices were not removed and published anew".into());
        }
        thread::sleep(Duration::from_millis(100));
    }
    let away = gone.map(|gone| gone.elapsed()).unwrap_or_default();
    eprintln!("slices were back {:.1} s after kubelet had removed them", away.as_secs_f64());
    assert!(away < SLICES_BACK, "{away:?}");
    Ok(())
}

fn a_pod_has_its_vf(bed: &Bed) -> Outcome {
    bed.cluster.apply(&pod("one", "data", &["first", "second"]).to_string())?;
    bed.await_ready("one")?;
    let first = bed.pod("one")?;
    bed.holds(&first)?;
    let mut told = Value::Null;
    until("the claim says that the pod has its VF", || {
        let claims = bed.cluster.get(&["resourceclaims"])?;
        told = claims["items"][0]["status"]["devices"][0].clone();
        let device = &told;
        let network = &device["networkData"];
        let ready = &device["conditions"][0];
        Ok(ready["type"] == "Ready"
            && ready["status"] == "True"
            && network["hardwareAddress"] == MAC
            && network["interfaceName"] == "data"
            && network["ips"] == json!(["10.20.30.5/24"]))
    })?;
    let sentence = text(&told["conditions"][0]["message"]);
    for words in [MAC, "VLAN 100", "spoof check on", "max rate 100"] {
        assert!(sentence.contains(words), "{words}: {sentence}");
    }
    for container in containers(&first).values() {
        bed.reads_its_metadata(container, &text(&told["device"]))?;
    }
    until("kubelet says that the containers' devices are healthy", || {
        let pod = bed.pod("one")?;
        let statuses = list(&pod["status"]["containerStatuses"]).to_vec();
        let healthy = |status: &Value| {
            let of_claim =
                list(&status["allocatedResourcesStatus"]).iter().find(|of| of["name"] == "claim:nic");
            let resources = of_claim.map(|of| list(&of["resources"])).unwrap_or_default();
            resources.len() == 1 && resources[0]["health"] == "Healthy"
        };
        Ok(statuses.len() == 2 && statuses.iter().all(healthy))
    })?;

    // A container is started again, and the other one goes on.
    let before = containers(&first);
    bed.kill(&before["first"])?;
    let again = |pod: &Value, names: &[&str]| {
        let now = containers(pod);
        let new = names.iter().all(|name| now.get(*name).is_some_and(|now| *now != before[*name]));
        new && now.len() == 2
    };
    until("the container is started again", || Ok(again(&bed.pod("one")?, &["first"])))?;
    let second = bed.pod("one")?;
    assert_eq!(containers(&second)["second"], before["second"]);
    bed.holds(&second)?;

    // The sandbox is made anew, with another network namespace.
    let sandbox = bed.sandbox(&before["second"])?;
    bed.kill(&sandbox)?;
    until("the sandbox and all containers are made anew", || {
        Ok(again(&bed.pod("one")?, &["first", "second"]))
    })?;
    let third = bed.pod("one")?;
    assert_ne!(bed.sandbox(&containers(&third)["second"])?, sandbox);
    bed.holds(&third)?;
    assert_eq!(ended(&third).0, 0, "a container ran without its interface: {third}");
    bed.delete("one")
}

fn a_program_drives_its_vf(bed: &Bed) -> Outcome {
    let pods = [
        pod_of("program", "program", &["main"], PROGRAM),
        pod_of("other", "program-bare", &["main"], PROGRAM),
    ];
    bed.cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": pods}).to_string())?;
    let mut groups = Vec::new();
    for name in ["program", "other"] {
        bed.await_ready(name)?;
        let container = containers(&bed.pod(name)?)["main"].clone();
        let process = bed.process(&container)?;
        // It has its group open, and there is no other in its container.
        let group = bed.cluster.on(&bed.node, &format!("readlink /proc/{process}/fd/3"))?.trim().to_owned();
        let nodes = bed.cluster.on(&bed.node, &format!("ls /proc/{process}/root/dev/vfio"))?;
        let wanted = ["vfio", group.trim_start_matches("/dev/vfio/")];
        let mut nodes: Vec<&str> = nodes.split_whitespace().collect();
        nodes.sort_by_key(|name| *name != "vfio");
        assert_eq!(nodes, wanted, "{name}");
        let of_group = "for f in /sys/kernel/iommu_groups/GROUP/devices/*; do echo $(basename $f) $(basename $(readlink $f/driver)); done";
        let members = bed.cluster.on(&bed.node, &of_group.replace("GROUP", wanted[1]))?;
        assert!(members.lines().count() == 1 && members.trim().ends_with(" vfio-pci"), "{members}");
        groups.push((process, group));
    }
    assert_ne!(groups[0].1, groups[1].1);
    // A node of the other's group may not be opened, by whomever it is made.
    let process = &groups[0].0;
    let make =
        format!("set -- $(stat -c '%t %T' {}); mknod /proc/{process}/root/other c 0x$1 0x$2", groups[1].1);
    bed.cluster.on(&bed.node, &make)?;
    let container = containers(&bed.pod("program")?)["main"].clone();
    let open =
        format!("ctr -n k8s.io tasks exec --exec-id try {container} sh -c 'exec 4<>/other' 2>&1; true");
    let said = bed.cluster.on(&bed.node, &open)?;
    assert!(said.contains("not permitted"), "{said}");

    let pf = bed.cluster.on(&bed.node, STATE_OF_PF)?;
    let of_vf = pf.lines().find(|line| line.contains(PROGRAM_MAC)).unwrap_or_default();
    assert!(of_vf.contains("vlan 200"), "{pf}");
    until("the claim says that the program has its VF", || {
        let claims = bed.cluster.get(&["resourceclaims"])?;
        let ready = |claim: &Value| claim["status"]["devices"][0]["conditions"][0]["status"] == "True";
        Ok(list(&claims["items"]).iter().filter(|claim| ready(claim)).count() == 2)
    })?;
    // The second one goes while the first has its VF.
    let timeout = format!("--timeout={}s", PATIENT.as_secs());
    bed.cluster.said(&["delete", "pod", "other", &timeout])?;
    let driver = format!("readlink /proc/{process}/fd/3");
    assert_eq!(bed.cluster.on(&bed.node, &driver)?.trim(), groups[0].1);
    bed.delete("program")
}

fn host_network_is_refused(bed: &Bed) -> Outcome {
    let mut hosts = pod("hosts", "bare", &["main"]);
    hosts["spec"]["hostNetwork"] = json!(true);
    bed.cluster.apply(&hosts.to_string())?;
    until("an Event says that it is refused", || Ok(bed.events("hosts")?.contains("has hostNetwork")))?;
    let hosts = bed.pod("hosts")?;
    assert!(containers(&hosts).is_empty() && hosts["status"]["phase"] == "Pending", "{hosts}");
    bed.delete("hosts")
}

fn a_stolen_vf(bed: &Bed) -> Outcome {
    bed.cluster.apply(&pod("robbed", "bare", &["main"]).to_string())?;
    bed.await_ready("robbed")?;
    let container = containers(&bed.pod("robbed")?)["main"].clone();
    let process = bed.process(&container)?;
    let steal = format!("nsenter --net=/proc/{process}/ns/net ip link set data netns 1 name stolen");
    bed.cluster.on(&bed.node, &steal)?;
    bed.kill(&container)?;
    until("an Event says why it does not start", || {
        Ok(bed.events("robbed")?.contains("the container has no interface data"))
    })?;
    let robbed = bed.pod("robbed")?;
    assert!(containers(&robbed).is_empty(), "{robbed}");
    assert_eq!(ended(&robbed).0, 0, "it ran without its interface: {robbed}");
    bed.delete("robbed")
}

fn no_pod_runs_without(bed: &Bed) -> Outcome {
    let wanted: Option<usize> = env::var(PODS).ok().map(|pods| pods.parse()).transpose()?;
    bed.cluster.on(&bed.node, "touch /run/killing; : > /run/killed")?;
    bed.begin(&bed.node, "killer")?;
    let began = Instant::now();
    let (mut made, mut slowest, mut not_started) = (0, Duration::ZERO, 0);
    let kills =
        || -> Result<usize, Failed> { Ok(bed.cluster.on(&bed.node, "sort -u /run/killed")?.lines().count()) };
    while match wanted {
        Some(wanted) => made < wanted,
        None => began.elapsed() < CYCLES || kills()? < KILLS,
    } {
        let round = VFS.min(wanted.map_or(VFS, |wanted| wanted - made));
        let names: Vec<String> = (made..made + round).map(|number| format!("cycle-{number}")).collect();
        let pods: Vec<Value> = names.iter().map(|name| pod(name, "bare", &["main"])).collect();
        bed.cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": pods}).to_string())?;
        let mut seen = Vec::new();
        let took = until("pods are ready while the agent is killed", || {
            seen = list(&bed.cluster.get(&["pods"])?["items"]).to_vec();
            let without = seen.iter().map(ended).filter(|(without, _)| *without > 0).count();
            match without {
                0 => Ok(seen.len() == round && seen.iter().all(is_ready)),
                _ => Err(format!("{without} pods ran without their VF: {}", json!(seen)).into()),
            }
        })?;
        not_started += seen.iter().map(|pod| ended(pod).1).sum::<usize>();
        slowest = slowest.max(took);
        made += round;
        let timeout = format!("--timeout={}s", PATIENT.as_secs());
        bed.cluster.said(&[&["delete", "pods", "--all"][..], &[&timeout]].concat())?;
        eprintln!("{made} pods after {:.0} s", began.elapsed().as_secs_f64());
    }
    let whole = began.elapsed();
    bed.cluster.on(&bed.node, "rm /run/killing")?;
    let kills = kills()?;
    eprintln!(
        "{made} pods in {:.0} s, the agent killed {kills} times: 0 ran without their VF; hooks that failed: {not_started}; slowest until ready: {:.0} s",
        whole.as_secs_f64(),
        slowest.as_secs_f64()
    );
    assert!(kills >= KILLS, "other processes each time: {kills}");
    bed.is_as_before()
}
