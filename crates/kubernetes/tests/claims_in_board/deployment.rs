//! The controller as a Deployment, in a cluster whose other nodes take no pods: it drains its own node as a whole and goes on, also where its pods
//! are made anew meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use penstock_kubernetes::identity::DRIFT;
use penstock_testkit::{
    cluster::until,
    trials::{Failed, Outcome},
};
use serde_json::{Value, json};

use super::{
    Bed, VFS, containers,
    image::{self, IMAGE},
    is_ready, list, pod, text,
};

const MACHINE: &str = "whole";
/// Keeps all pods from the second node: controllers heed no cordon.
const AWAY: &str = "example.org/away";
/// Of what pods have that a Deployment and a DaemonSet make.
const OTHERS: [&str; 2] = ["others", "on-each"];
const CONTROLLERS: &str = "app.kubernetes.io/component=controller";

/// Of a process: its user, what it may do, whether its calls are filtered; and whether its root file system is only read.
const CONFINED: &str = r#"sed -n -E 's/^(Uid|CapBnd|NoNewPrivs|Seccomp):\s+(\S+).*/\1 \2/p' /proc/PROCESS/status
awk '$5 == "/" {split($6, options, ","); print "root", options[1]}' /proc/PROCESS/mountinfo"#;

/// What the test has made in the cluster goes with this, also when it fails: the next one has a controller of its own, and pods on both nodes.
struct Cleared<'a>(&'a Bed);

impl Drop for Cleared<'_> {
    fn drop(&mut self) {
        let (second, timeout) = (self.0.cluster.node(2), format!("--timeout={}s", super::PATIENT.as_secs()));
        let [others, on_each] = OTHERS;
        for line in [
            &["delete", "sriovmachine", MACHINE][..],
            &["delete", "deployment", "penstock-controller", "--namespace=penstock", "--cascade=foreground"],
            &["delete", "poddisruptionbudget", others],
            &["delete", "deployment", others, "--cascade=foreground"],
            &["delete", "daemonset", on_each, "--cascade=foreground"],
            &["delete", "pod", "claimant"],
            &["uncordon", &self.0.node],
            &["taint", "node", &second, &format!("{AWAY}-")],
        ] {
            let more = ["--ignore-not-found", &timeout];
            let more = if line[0] == "delete" { &more[..] } else { &[] };
            let run = self.0.cluster.kubectl(&[line, more].concat());
            if run.status != 0 {
                eprintln!("{}", run.stderr);
            }
        }
    }
}

/// Pods with a label, by their UIDs.
fn pods(bed: &Bed, namespace: &str, label: &str) -> Result<BTreeMap<String, Value>, Failed> {
    let words = ["pods", &format!("--namespace={namespace}"), &format!("--selector={label}")];
    let pods = bed.cluster.get(&words)?;
    // One that was evicted may be there until it is gone from its node.
    let stays = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
    let items = list(&pods["items"]).iter().filter(stays);
    Ok(items.map(|pod| (text(&pod["metadata"]["uid"]), pod.clone())).collect())
}

fn controllers(bed: &Bed) -> Result<BTreeMap<String, Value>, Failed> {
    pods(bed, "penstock", CONTROLLERS)
}

fn others(bed: &Bed, name: &str) -> Result<BTreeMap<String, Value>, Failed> {
    pods(bed, "default", &format!("app={name}"))
}

fn uids(pods: &BTreeMap<String, Value>) -> BTreeSet<&String> {
    pods.keys().collect()
}

/// Until so many pods are there, each of them ready; they are on the first node.
fn await_ready(
    bed: &Bed,
    what: &str,
    count: usize,
    look: impl Fn() -> Result<BTreeMap<String, Value>, Failed>,
) -> Result<BTreeMap<String, Value>, Failed> {
    let mut seen = BTreeMap::new();
    until(what, || {
        seen = look()?;
        Ok(seen.len() == count && seen.values().all(is_ready))
    })?;
    let elsewhere = seen.values().find(|pod| pod["spec"]["nodeName"] != bed.node.as_str());
    assert!(elsewhere.is_none(), "{elsewhere:?}");
    Ok(seen)
}

/// The pod of these that has the Lease, by the name that stands there.
fn leader(bed: &Bed, pods: &BTreeMap<String, Value>) -> Result<Option<String>, Failed> {
    let lease = bed.cluster.get(&["leases", "--namespace=penstock"])?;
    let holder = text(&list(&lease["items"]).first().cloned().unwrap_or_default()["spec"]["holderIdentity"]);
    let names = pods.values().map(|pod| text(&pod["metadata"]["name"]));
    Ok(names.into_iter().find(|name| holder.starts_with(&format!("{name}_"))))
}

fn is_cordoned(bed: &Bed) -> Result<bool, Failed> {
    Ok(bed.cluster.get(&["node", &bed.node])?["spec"]["unschedulable"] == true)
}

/// The reason and the words of how far the machine is, of its present model.
fn progress(bed: &Bed) -> Result<(String, String), Failed> {
    let machine = bed.cluster.get(&["sriovmachine", MACHINE])?;
    let progressing = |condition: &&Value| {
        condition["type"] == "Progressing"
            && condition["observedGeneration"] == machine["metadata"]["generation"]
    };
    let found = list(&machine["status"]["conditions"]).iter().find(progressing).cloned().unwrap_or_default();
    Ok((text(&found["reason"]), text(&found["message"])))
}

fn until_progress(bed: &Bed, what: &str, holds: impl Fn(&str, &str) -> bool) -> Outcome {
    let mut last = (String::new(), String::new());
    let waited = until(what, || {
        last = progress(bed)?;
        Ok(holds(&last.0, &last.1))
    });
    waited.map(drop).map_err(|why| format!("{}; it says {last:?}", penstock_host::chain(&*why)).into())
}

/// Gives the first node a model in which no VF vanishes.
fn tell(bed: &Bed, spoofchk: &str) -> Outcome {
    let model = format!(
        "nics: {{NET0: {{match: {{bdf: \"0000:01:00.0\"}}, vfs: {VFS}, defaults: {{spoofchk: {spoofchk}}}}}}}\n"
    );
    let object = json!({
        "apiVersion": "penstock.dev/v1alpha1", "kind": "SriovMachine", "metadata": {"name": MACHINE},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": bed.node},
            "model": model,
            "rollout": {"confirmWithin": "5m"},
            "drain": {"mode": "node", "timeout": "30m"},
        },
    });
    bed.cluster.apply(&object.to_string())
}

/// A Deployment's pod, and a DaemonSet's on the first node.
fn make_others(bed: &Bed) -> Outcome {
    let [others, on_each] = OTHERS;
    let object = |kind: &str, name: &str, node: Value| {
        json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {
                        "nodeSelector": node, "terminationGracePeriodSeconds": 1,
                        "containers": [{"name": "main", "image": "localhost/penstock:1", "imagePullPolicy": "Never"}],
                    },
                },
            },
        })
    };
    let items = [
        object("Deployment", others, json!({})),
        object("DaemonSet", on_each, json!({"kubernetes.io/hostname": bed.node})),
    ];
    bed.cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string())
}

/// The controllers have asked for nothing that their role does not have: what is refused is said in their logs. Others are refused something
/// now and then, kubelet too (the API server's node authorizer, before it knows of a new pod).
fn were_refused_nothing(bed: &Bed) -> Outcome {
    let logs = "cat /var/log/pods/penstock_penstock-controller-*/controller/*.log";
    let said = bed.cluster.on(&bed.node, logs)?;
    assert!(!said.trim().is_empty(), "a controller says that it begins");
    let refused: Vec<&str> = said.lines().filter(|line| line.to_lowercase().contains("forbidden")).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    Ok(())
}

/// As the manifest says, kubelet and the container runtime have it run.
fn is_confined(bed: &Bed, controller: &Value) -> Outcome {
    let process = bed.process(&containers(controller)["controller"])?;
    let confined = bed.cluster.on(&bed.node, &CONFINED.replace("PROCESS", &process))?;
    let said: Vec<&str> = confined.lines().collect();
    let wanted = ["Uid 65532", "CapBnd 0000000000000000", "NoNewPrivs 1", "Seccomp 2", "root ro"];
    assert_eq!(said, wanted);
    Ok(())
}

pub fn drains_its_own_node(bed: &Bed) -> Outcome {
    let cluster = &bed.cluster;
    image::put(bed, &bed.node)?;
    let cleared = Cleared(bed);
    cluster.said(&["taint", "node", &cluster.node(2), &format!("{AWAY}=:NoSchedule")])?;
    cluster.apply(&image::manifests(bed, &["--controller", IMAGE])?)?;
    let own = await_ready(bed, "the controllers' pods are ready", 2, || controllers(bed))?;
    until("one of them has the Lease", || Ok(leader(bed, &own)?.is_some()))?;
    for controller in own.values() {
        is_confined(bed, controller)?;
    }

    make_others(bed)?;
    cluster.apply(&pod("claimant", "bare", &["main"]).to_string())?;
    bed.await_ready("claimant")?;
    let [name, on_each] = OTHERS;
    let before = await_ready(bed, "the Deployment's pod is ready", 1, || others(bed, name))?;
    let daemon = await_ready(bed, "the DaemonSet's pod is ready", 1, || others(bed, on_each))?;

    // All leave but those that would be back at once.
    tell(bed, "off")?;
    until_progress(bed, "the node has its model", |reason, _| reason == "Complete")?;
    let record = cluster.get(&["sriovnode", &bed.node])?;
    assert_eq!(record["status"]["result"]["outcome"], "Verified", "{record}");
    assert_eq!(cluster.kubectl(&["get", "pod", "claimant"]).status, 1, "the pod with a VF has left");
    until("the node takes pods again", || Ok(!is_cordoned(bed)?))?;
    let after = await_ready(bed, "the Deployment has another pod", 1, || others(bed, name))?;
    assert!(uids(&after).is_disjoint(&uids(&before)), "it was not evicted");
    assert_eq!(uids(&others(bed, on_each)?), uids(&daemon), "one of a DaemonSet stays");
    assert_eq!(uids(&controllers(bed)?), uids(&own), "controllers stay");
    were_refused_nothing(bed)?;

    // No controller is left in the middle of a drain.
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}});
    cluster.apply(&budget.to_string())?;
    tell(bed, "on")?;
    until_progress(bed, "the drain waits for the pod", |_, message| {
        message.contains(&format!("pod default/{name}-")) && message.contains("disruption budget")
    })?;
    assert!(is_cordoned(bed)?);
    let timeout = format!("--timeout={}s", super::PATIENT.as_secs());
    let them = format!("--selector={CONTROLLERS}");
    cluster.said(&["delete", "pods", "--namespace=penstock", &them, &timeout])?;
    let next = await_ready(bed, "other controllers are ready on the cordoned node", 2, || controllers(bed))?;
    assert!(uids(&next).is_disjoint(&uids(&own)));
    until("one of them has the Lease", || Ok(leader(bed, &next)?.is_some()))?;
    assert!(is_cordoned(bed)?, "the drain goes on");
    assert_eq!(uids(&others(bed, name)?), uids(&after), "the budget holds");
    cluster.said(&["delete", "poddisruptionbudget", name])?;
    until_progress(bed, "the node has its model", |reason, _| reason == "Complete")?;
    until("the node takes pods again", || Ok(!is_cordoned(bed)?))?;
    let last = await_ready(bed, "the Deployment has another pod", 1, || others(bed, name))?;
    assert!(uids(&last).is_disjoint(&uids(&after)), "it was not evicted");
    assert_eq!(uids(&controllers(bed)?), uids(&next), "controllers stay");

    were_refused_nothing(bed)?;
    drop(cleared);
    until("no VF has a taint", || {
        let tainted = |device: &Value| list(&device["taints"]).iter().any(|taint| taint["key"] == DRIFT);
        Ok(bed.slices_of(&bed.node, tainted)?.1 == 0)
    })?;
    bed.is_as_before()
}
