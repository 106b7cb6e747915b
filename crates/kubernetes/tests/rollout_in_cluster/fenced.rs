//! What whoever has an agent's token cannot do with the records of roll-outs: the API server judges it.

use std::{fs, thread, time::Instant};

use penstock_host::process::Output;
use serde_json::{Value, json};

use super::{PATIENT, PAUSE, fleet::Fleet};

/// A change to which nobody but the controller may tell a node.
fn change() -> Value {
    json!({"change": {"confirmWithin": "30s", "hash": "a".repeat(64), "number": 1, "plan": "p", "since": "2026-01-01T00:00:00Z", "stage": "Go"}})
}

pub fn own_record_alone() {
    let fleet = Fleet::new("fenced", 2);
    let plane = &fleet.plane;
    let own = plane.token_of_agent("fenced-0");
    let unbound = plane.must(&["create", "token", "penstock-kubernetes", "--namespace=penstock"], "");
    let kubectl = |token: &str, arguments: &[&str], input: &str| -> Output {
        let path = fleet.at("fenced-0", "try");
        fs::write(&path, plane.kubeconfig(token)).unwrap();
        let config = format!("--kubeconfig={}", path.display());
        let words: Vec<&str> = arguments.iter().copied().chain([config.as_str()]).collect();
        plane.kubectl_with(&words, input)
    };
    let create = |token: &str, node: &str, spec: Value| {
        let object = json!({"apiVersion": "penstock.dev/v1alpha1", "kind": "SriovNode", "metadata": {"name": node}, "spec": spec});
        kubectl(token, &["create", "--filename", "-"], &object.to_string())
    };
    // A policy takes a moment to be in force.
    let deadline = Instant::now() + PATIENT;
    let refused = loop {
        let output = create(&own, "fenced-1", json!({}));
        if !output.status.success() {
            break output.errors();
        }
        assert!(Instant::now() < deadline, "the record of another node is taken");
        plane.must(&["delete", "sriovnode", "fenced-1"], "");
        thread::sleep(PAUSE);
    };
    let of_its_own = "an agent writes the SriovNode of the Node alone that its token is bound to";
    assert!(refused.contains(&format!("{of_its_own}: fenced-0")), "{refused}");
    let output = create(unbound.trim(), "fenced-0", json!({}));
    assert!(output.errors().contains(&format!("{of_its_own}: none")), "{}", output.errors());
    let output = create(&own, "fenced-0", change());
    assert!(output.errors().contains("an agent makes a SriovNode without a spec"), "{}", output.errors());

    let output = create(&own, "fenced-0", json!({}));
    assert!(output.status.success(), "{}", output.errors());
    let object = json!({"apiVersion": "penstock.dev/v1alpha1", "kind": "SriovNode", "metadata": {"name": "fenced-1"}, "spec": {}});
    plane.must(&["create", "--filename", "-"], &object.to_string());
    let patch = |token: &str, node: &str, more: &[&str], patch: Value| {
        let text = patch.to_string();
        let words: Vec<&str> = ["patch", "sriovnode", node, "--type=merge", "--patch", &text]
            .into_iter()
            .chain(more.iter().copied())
            .collect();
        kubectl(token, &words, "")
    };
    let status = json!({"status": {"conditions": []}});
    let output = patch(&own, "fenced-1", &["--subresource=status"], status.clone());
    assert!(output.errors().contains(of_its_own), "{}", output.errors());
    let output = patch(unbound.trim(), "fenced-0", &["--subresource=status"], status.clone());
    assert!(output.errors().contains(of_its_own), "{}", output.errors());
    let output = patch(&own, "fenced-0", &["--subresource=status"], status);
    assert!(output.status.success(), "{}", output.errors());
    // By its role alone.
    let output = patch(&own, "fenced-0", &[], json!({"spec": change()}));
    assert!(output.errors().contains("Forbidden"), "{}", output.errors());
    let output = kubectl(&own, &["delete", "sriovnode", "fenced-1"], "");
    assert!(output.errors().contains("Forbidden"), "{}", output.errors());
    assert!(fleet.record("fenced-0")["spec"]["change"].is_null(), "{}", fleet.record("fenced-0"));
}
