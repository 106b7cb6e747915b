//! Which pods leave a node before it is changed, and what comes of those that nobody lets go.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    PATIENT, PAUSE, condition,
    fleet::{Fleet, MERGE, merge},
};

pub fn budget() {
    let fleet = Fleet::started("budget", 1);
    fleet.pod_with_vf("budget-0", "held", Value::Null);
    hold(&fleet, "held");
    fleet.takes_a_vf("budget-0");
    fleet.machine(json!({}));
    let status = fleet.until("it is called off", |status| status["failed"] == 1);
    let (_, message) = condition(&status, "Degraded");
    assert!(
        message.starts_with("budget-0: not drained within 10s: pod default/held may not be evicted: "),
        "{message}"
    );
    assert!(message.ends_with("the node is as it was"), "{message}");
    assert!(fleet.calls().is_empty());
    assert_eq!(status["unavailable"], 0);
    fleet.plane.must(&["delete", "pod,pdb,resourceclaim", "held", "--force", "--grace-period=0"], "");
    // Its devices are open for claims again.
    let deadline = Instant::now() + PATIENT;
    while fleet
        .plane
        .get("/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3Dbudget-0")
        .to_string()
        .contains("penstock.dev/rollout")
    {
        assert!(Instant::now() < deadline, "the taint stays");
        thread::sleep(PAUSE);
    }
}

pub fn daemon_set() {
    let fleet = Fleet::started("daemon", 1);
    let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "00000000-0000-0000-0000-000000000001", "controller": true});
    fleet.pod_with_vf("daemon-0", "of-daemon-set", owner);
    fleet.takes_a_vf("daemon-0");
    fleet.machine(json!({"drain": {"timeout": "5m"}}));
    let deadline = Instant::now() + PATIENT;
    // There is no kubelet that ends it.
    loop {
        let pod = fleet.plane.get("/api/v1/namespaces/default/pods/of-daemon-set");
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            break;
        }
        assert!(fleet.calls().is_empty(), "the node was changed while the pod has its VF");
        assert!(Instant::now() < deadline, "not evicted: {pod:#}");
        thread::sleep(PAUSE);
    }
    thread::sleep(Duration::from_secs(3));
    assert!(fleet.calls().is_empty(), "the node was changed before the pod was gone");
    let slices = fleet
        .plane
        .get("/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3Ddaemon-0")
        .to_string();
    assert!(slices.contains("penstock.dev/rollout"), "{slices}");
    fleet.plane.must(&["delete", "pod", "of-daemon-set", "--force", "--grace-period=0"], "");
    fleet.until("it has the model", |status| status["ready"] == 1);
    fleet.plane.must(&["delete", "resourceclaim", "of-daemon-set"], "");
}

/// `drain.mode: node`: cordoned, all pods evicted but static ones and those of DaemonSets and of the controller, changed, and uncordoned.
pub fn whole_node() {
    let fleet = Fleet::started("whole", 1);
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "00000000-0000-0000-0000-000000000001", "controller": true}]);
    let pods = [
        ("whole-other", json!({})),
        ("whole-daemon", json!({"metadata": {"ownerReferences": owner}})),
        ("whole-static", json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "hash"}}})),
        (
            "whole-controller",
            json!({"metadata": {"namespace": "penstock"}, "spec": {"serviceAccountName": "penstock-controller"}}),
        ),
    ];
    for (name, more) in &pods {
        let mut object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": "whole-0", "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "c", "image": "none"}]}});
        merge(&mut object, more.clone());
        fleet.plane.must(&["create", "--filename", "-"], &object.to_string());
    }
    let leaves = |name: &str| {
        let namespace = if name == "whole-controller" { "penstock" } else { "default" };
        let pod = fleet.plane.get(&format!("/api/v1/namespaces/{namespace}/pods/{name}"));
        !pod["metadata"]["deletionTimestamp"].is_null()
    };
    let node = || fleet.plane.get("/api/v1/nodes/whole-0");
    fleet.machine(json!({"drain": {"mode": "node", "timeout": "5m"}}));
    let deadline = Instant::now() + PATIENT;
    while !leaves("whole-other") {
        assert!(Instant::now() < deadline, "{:#}", fleet.status());
        thread::sleep(PAUSE);
    }
    // There is no kubelet that ends it: the node waits, and takes no other pod.
    assert_eq!(node()["spec"]["unschedulable"], true);
    let status = fleet.until("it says which pod it waits for", |status| {
        condition(status, "Progressing").1.contains("default/whole-other among them")
    });
    assert_eq!(status["unavailable"], 1);
    assert!(fleet.calls().is_empty() && !leaves("whole-daemon") && !leaves("whole-static"));
    assert!(!leaves("whole-controller"), "where no other node takes it, nobody would end the cordon");
    fleet.plane.must(&["delete", "pod", "whole-other", "--force", "--grace-period=0"], "");
    fleet.until("it has the model", |status| status["ready"] == 1);
    takes_pods_again(&fleet, "whole-0");
    fleet.plane.must(&["delete", "pod", "whole-daemon", "whole-static", "--force", "--grace-period=0"], "");
    let own = ["delete", "pod", "whole-controller", "--namespace=penstock", "--force", "--grace-period=0"];
    fleet.plane.must(&own, "");
}

/// A node that is drained as a whole takes pods again when its change has been called off.
pub fn budget_of_whole_node() {
    let fleet = Fleet::started("unyielding", 1);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kept", "namespace": "default", "labels": {"app": "kept"}},
        "spec": {"nodeName": "unyielding-0", "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "none"}]}});
    fleet.plane.must(&["create", "--filename", "-"], &pod.to_string());
    let running =
        json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let status = "/api/v1/namespaces/default/pods/kept/status";
    fleet.plane.api().must("PATCH", status, Some((MERGE, &running)));
    hold(&fleet, "kept");
    fleet.machine(json!({"drain": {"mode": "node"}}));
    let status = fleet.until("it is called off", |status| status["failed"] == 1);
    let (_, message) = condition(&status, "Degraded");
    assert!(
        message.starts_with("unyielding-0: not drained within 10s: pod default/kept may not be evicted: ")
            && message.ends_with("the node is as it was"),
        "{message}"
    );
    assert!(fleet.calls().is_empty(), "the node was changed under the pod");
    takes_pods_again(&fleet, "unyielding-0");
    let pod = fleet.plane.get("/api/v1/namespaces/default/pods/kept");
    assert!(pod["metadata"]["deletionTimestamp"].is_null(), "{pod:#}");
    fleet.plane.must(&["delete", "pod,pdb", "kept", "--force", "--grace-period=0"], "");
}

/// Makes a budget of the pods with this label. Nobody fills in its status here: it never yields.
fn hold(fleet: &Fleet, app: &str) {
    let pdb = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": app, "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}});
    fleet.plane.must(&["create", "--filename", "-"], &pdb.to_string());
}

/// Until a node is not cordoned any more.
fn takes_pods_again(fleet: &Fleet, node: &str) {
    let path = format!("/api/v1/nodes/{node}");
    let deadline = Instant::now() + PATIENT;
    let mut node = fleet.plane.get(&path);
    while node["spec"]["unschedulable"] == true {
        assert!(Instant::now() < deadline, "{node:#}");
        thread::sleep(PAUSE);
        node = fleet.plane.get(&path);
    }
    assert!(!node["metadata"]["annotations"].to_string().contains("penstock.dev/cordoned"), "{node:#}");
}
