//! What whoever has an agent's token cannot do with the records of roll-outs, and with that of the controller not with Nodes: the API server judges it.

use std::{thread, time::Instant};

use penstock_testkit::api_socket::{ApiAnswer, ApiSocket};
use serde_json::{Value, json};

use super::{
    PATIENT, PAUSE,
    fleet::{Fleet, MERGE},
};

const NODE: &str = "/api/v1/nodes/cordoned-0";

/// A change to which nobody but the controller may tell a node.
fn change() -> Value {
    json!({"change": {"confirmWithin": "30s", "hash": "a".repeat(64), "number": 1, "plan": "p", "since": "2026-01-01T00:00:00Z", "stage": "Go"}})
}

pub fn own_record_alone() {
    let fleet = Fleet::new("fenced", 2);
    let plane = &fleet.plane;
    let unbound = plane.must(&["create", "token", "penstock-kubernetes", "--namespace=penstock"], "");
    let (_own, own) = plane.api_as("fenced-own", &plane.token_of_agent("fenced-0"));
    let (_unbound, unbound) = plane.api_as("fenced-unbound", unbound.trim());
    let records = "/apis/penstock.dev/v1alpha1/sriovnodes";
    let create = |api: &ApiSocket, node: &str, spec: Value| {
        let object = json!({"apiVersion": "penstock.dev/v1alpha1", "kind": "SriovNode", "metadata": {"name": node}, "spec": spec});
        api.request("POST", records, Some(("application/json", &object))).unwrap()
    };
    // A policy takes a moment to be in force.
    let deadline = Instant::now() + PATIENT;
    let refused = loop {
        let answer = create(&own, "fenced-1", json!({}));
        if !answer.is_success() {
            break answer;
        }
        assert!(Instant::now() < deadline, "the record of another node is taken");
        plane.api().must("DELETE", &format!("{records}/fenced-1"), None);
        thread::sleep(PAUSE);
    };
    let of_its_own = "an agent writes the SriovNode of the Node alone that its token is bound to";
    said(&refused, &format!("{of_its_own}: fenced-0"));
    said(&create(&unbound, "fenced-0", json!({})), &format!("{of_its_own}: none"));
    said(&create(&own, "fenced-0", change()), "an agent makes a SriovNode without a spec");
    assert!(create(&own, "fenced-0", json!({})).is_success());

    assert!(create(&plane.api(), "fenced-1", json!({})).is_success());
    let patch = |api: &ApiSocket, of: &str, body: &Value| {
        api.request("PATCH", &format!("{records}/{of}"), Some((MERGE, body))).unwrap()
    };
    let status = json!({"status": {"conditions": []}});
    said(&patch(&own, "fenced-1/status", &status), of_its_own);
    said(&patch(&unbound, "fenced-0/status", &status), of_its_own);
    let taken = patch(&own, "fenced-0/status", &status);
    assert!(taken.is_success(), "{taken:?}");
    // Its role does not let it do these at all.
    said(&patch(&own, "fenced-0", &json!({"spec": change()})), "cannot patch resource");
    said(&own.request("DELETE", &format!("{records}/fenced-1"), None).unwrap(), "cannot delete resource");
    assert!(fleet.record("fenced-0")["spec"]["change"].is_null(), "{}", fleet.record("fenced-0"));
    // What no agent asks for it does not get either.
    let leases =
        |namespace: &str| format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/fenced-0");
    for path in [
        leases("penstock"),
        format!("{records}/fenced-0"),
        "/apis/resource.k8s.io/v1/resourceslices/of-anybody".to_owned(),
    ] {
        said(&own.request("GET", &path, None).unwrap(), "cannot get resource");
    }
    let own_lease = own.request("GET", &leases("kube-node-lease"), None).unwrap();
    assert_ne!(own_lease.status, 403, "{own_lease:?}");
}

/// It lets the controller cordon a Node, and no more.
pub fn cordons_alone() {
    let fleet = Fleet::new("cordoned", 1);
    let token = fleet.plane.must(&["create", "token", "penstock-controller", "--namespace=penstock"], "");
    let (_own, own) = fleet.plane.api_as("fenced-controller", token.trim());
    let patch = |body: Value| own.request("PATCH", NODE, Some((MERGE, &body))).unwrap();
    let annotated = |key: &str, value: Value| patch(json!({"metadata": {"annotations": {key: value}}}));
    // A policy takes a moment to be in force.
    let deadline = Instant::now() + PATIENT;
    let refused = loop {
        let answer = patch(json!({"metadata": {"labels": {"fleet": "another"}}}));
        if !answer.is_success() {
            break answer;
        }
        assert!(Instant::now() < deadline, "a label is written");
        thread::sleep(PAUSE);
    };
    said(&refused, "writes neither labels nor finalizers nor owners of a Node");
    let taint = json!([{"key": "a", "effect": "NoExecute"}]);
    said(&patch(json!({"spec": {"taints": taint}})), "and nothing else of its spec");
    said(&patch(json!({"spec": {"providerID": "another://machine"}})), "and nothing else of its spec");
    said(&annotated("a", json!("b")), "writes no annotation of a Node but penstock.dev/cordoned-for-change");
    // What others wrote stays, too.
    let others = json!({"metadata": {"annotations": {"a": "b"}, "finalizers": ["a.example.org/b"]}, "spec": {"taints": taint}});
    fleet.plane.api().must("PATCH", NODE, Some((MERGE, &others)));
    said(&annotated("a", Value::Null), "writes no annotation");
    said(&patch(json!({"metadata": {"finalizers": null}})), "neither labels nor finalizers");
    said(&patch(json!({"spec": {"taints": null}})), "and nothing else of its spec");
    for (number, unschedulable) in [(json!("7"), json!(true)), (Value::Null, Value::Null)] {
        let answer = patch(json!({"metadata": {"annotations": {"penstock.dev/cordoned-for-change": number}},
            "spec": {"unschedulable": unschedulable}}));
        assert!(answer.is_success(), "{answer:?}");
    }
    let none = json!({"metadata": {"finalizers": null}});
    fleet.plane.api().must("PATCH", NODE, Some((MERGE, &none)));
}

/// The API server has refused, and said why.
fn said(answer: &ApiAnswer, why: &str) {
    assert!(!answer.is_success() && answer.text.contains(why), "{why}: {answer:?}");
}
