//! What befalls machines, the API server and its store in the middle of roll-outs.

use std::{
    fs,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use penstock_testkit::{api_socket::ApiAnswer, control_plane::LocalControlPlane};
use serde_json::{Value, json};

use super::{
    PATIENT, PAUSE, condition,
    fleet::{Fleet, MERGE},
};

/// Longer than the Leases of a node (40 s) and of the controller (15 s), and than the shortest time to confirm within (30 s).
const AWAY: Duration = Duration::from_secs(45);

/// One node before its change had a run, one in the middle, and one whose change was confirmed and not told of.
pub fn reset_in_the_middle() {
    let mut fleet = Fleet::started("reset", 3);
    for (node, file) in [("reset-0", "applying"), ("reset-1", "begin"), ("reset-2", "applying")] {
        fs::write(fleet.at(node, file), "600").unwrap();
    }
    let rollout = json!({"maxUnavailable": 3, "canary": 3, "stopAfterFailures": 2, "confirmWithin": "2m"});
    fleet.machine(json!({"rollout": rollout}));
    let progress = |fleet: &Fleet, node: &str| -> Value {
        let text = fs::read_to_string(fleet.at(node, "state/rollout/progress.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    };
    fleet.wait_for("all have begun", || {
        let has_run = |node: &str| fleet.calls().iter().any(|(of, _)| of == node);
        fleet.nodes.iter().all(|node| progress(&fleet, node)["attempts"] == 1)
            && has_run("reset-0")
            && has_run("reset-2")
    });

    for (node, phase) in [("reset-0", Some("lapsed")), ("reset-1", None), ("reset-2", Some("applied"))] {
        fleet.kill_agent(node);
        if let Ok(guard) = fs::read_to_string(fleet.at(node, "guard.process")) {
            let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", guard.trim())]).status();
        }
        // What it began, it began in another run of the kernel.
        let mut progress = progress(&fleet, node);
        progress["boot"] = json!("the-one-before");
        fs::write(fleet.at(node, "state/rollout/progress.json"), progress.to_string()).unwrap();
        if let Some(phase) = phase {
            fs::write(fleet.at(node, "phase"), phase).unwrap();
        }
        for file in ["applying", "begin"] {
            let _ = fs::remove_file(fleet.at(node, file));
        }
        fleet.start_agent(node);
    }

    let status = fleet.until("two have it", |status| status["ready"] == 2 && status["failed"] == 1);
    let why = "this node was started anew before the change was confirmed";
    assert_eq!(condition(&status, "Degraded"), ("NodeFailed", format!("reset-0: {why}").as_str()));
    assert_eq!(condition(&fleet.record("reset-0")["status"], "RolledBack"), ("RolledBack", why));
    let said = fleet.said();
    for why in [
        "this node was started anew before anything was changed",
        "confirmed, and then this node was started anew",
    ] {
        assert!(said.contains(&format!("Lapsed, {why}")), "{why}: {said}");
    }
    let of = |node: &str| -> Vec<String> {
        fleet.calls().into_iter().filter(|(of, _)| of == node).map(|(_, what)| what).collect()
    };
    assert_eq!(of("reset-0"), ["begin", "undone"]);
    assert_eq!(of("reset-1"), ["begin", "confirmed"], "it was told again");
    assert_eq!(of("reset-2"), ["begin"], "what was confirmed is not taken back");
}

/// The cluster believes that all nodes have the model before last, and gives versions of objects anew that agents and the controller know.
pub fn etcd_restored() {
    let fleet = Fleet::started("restored", 2);
    let all_have = |model: &str, count: usize| {
        fleet.until(&format!("all have {model}"), |status| {
            let hash = &status["hash"];
            let has = |node: &String| {
                let result = &fleet.record(node)["status"]["result"];
                let applied = fs::read_to_string(fleet.at(node, "applied.yaml")).unwrap_or_default();
                applied.contains(model) && result["outcome"] == "Verified" && result["hash"] == *hash
            };
            status["ready"] == 2 && fleet.nodes.iter().all(has) && confirmed(&fleet) == count
        })
    };
    let tell = |vfs: u32| {
        fleet.machine(
            json!({"rollout": {"maxUnavailable": 2}, "model": format!("nics: {{NET0: {{vfs: {vfs}}}}}\n")}),
        );
    };
    tell(4);
    all_have("vfs: 4", 2);
    fleet.plane.keep_etcd();
    tell(5);
    all_have("vfs: 5", 4);
    // The versions that were given since are not all given again while this test lasts.
    for count in 0..500 {
        let object = json!({"metadata": {"annotations": {"count": count.to_string()}}});
        fleet.plane.api().must("PATCH", "/api/v1/namespaces/default", Some((MERGE, &object)));
    }
    let version = |fleet: &Fleet| -> u64 {
        let object = fleet.plane.get("/api/v1/namespaces/default");
        object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
    };
    let before = version(&fleet);

    fleet.plane.restore_etcd();
    assert!(version(&fleet) < before, "the cluster has gone back");
    all_have("vfs: 4", 6);
    let sentence = "the cluster has gone back to what it was earlier: ";
    assert!(fleet.said().matches(sentence).count() >= fleet.nodes.len(), "{}", fleet.said());
    tell(3);
    all_have("vfs: 3", 8);
    for node in &fleet.nodes {
        assert_eq!(fleet.devices(node).len(), 7, "its slices are there");
    }
}

/// How many changes were confirmed.
fn confirmed(fleet: &Fleet) -> usize {
    fleet.calls().iter().filter(|(_, what)| what == "confirmed").count()
}

/// The guard has decided, and nobody holds a Lease any more, when the API server comes back.
pub fn api_server_away_for_long() {
    let fleet = Fleet::started("gone", 2);
    // It has proven nothing when the API server goes.
    for node in &fleet.nodes {
        fs::write(fleet.at(node, "verify.exit"), "1").unwrap();
    }
    fleet.machine(json!({}));
    fleet.wait_for("one begins", || !fleet.calls().is_empty());
    let since = Instant::now();
    fleet.plane.stop_api_server();
    for node in &fleet.nodes {
        fs::remove_file(fleet.at(node, "verify.exit")).unwrap();
    }
    let lost = "this controller lost the Lease, and decides nothing";
    fleet.wait_for("the node takes it back by itself", || {
        fleet.calls().iter().any(|(_, what)| what == "back")
    });
    fleet.wait_for("the controller decides nothing", || fleet.said().contains(lost));
    thread::sleep(AWAY.saturating_sub(since.elapsed()));
    fleet.plane.start_api_server();

    let status = fleet.until("the wave stops", |status| condition(status, "Progressing").0 == "Stopped");
    let calls = fleet.calls();
    let (node, _) = &calls[0];
    assert_eq!(calls, [(node.clone(), "begin".to_owned()), (node.clone(), "back".to_owned())]);
    assert_eq!(fleet.outcome(node), "RolledBack");
    // It was said once, not each time that something was not tried.
    let said = fleet.said();
    assert!(said.matches("could write what was decided").count() <= 2, "{said}");
    let (_, message) = condition(&status, "Degraded");
    assert!(
        message.starts_with(&format!(
            "{node}: not confirmed, and taken back by the node itself: asked the API server at "
        )),
        "{message}"
    );
    for node in &fleet.nodes {
        assert_eq!(fleet.devices(node).len(), 7, "its slices are there");
    }
}

/// Where the kind `SriovMachine` is the one of a newer version.
struct NewerKind<'a>(&'a LocalControlPlane);

impl NewerKind<'_> {
    fn patch(&self, operation: Value) -> ApiAnswer {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/sriovmachines.penstock.dev";
        let body = json!([operation]);
        self.0.api().request("PATCH", path, Some(("application/json-patch+json", &body))).unwrap()
    }

    /// With a key that this controller does not know.
    fn install(plane: &LocalControlPlane) -> NewerKind<'_> {
        let kind = NewerKind(plane);
        let answer = kind.patch(json!({"op": "add", "path": SOAK, "value": {"type": "string"}}));
        assert!(answer.is_success(), "{answer:?}");
        kind
    }
}

impl Drop for NewerKind<'_> {
    fn drop(&mut self) {
        let answer = self.patch(json!({"op": "remove", "path": SOAK}));
        if !answer.is_success() {
            eprintln!("the kind keeps the key of a newer version: {answer:?}");
        }
    }
}

const SOAK: &str =
    "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/rollout/properties/soak";

pub fn newer_kind() {
    let fleet = Fleet::started("newer", 1);
    let _kind = NewerKind::install(&fleet.plane);
    // It takes a moment until it is in force; before, the key is taken out of what is written.
    let trial = json!({"apiVersion": "penstock.dev/v1alpha1", "kind": "SriovMachine", "metadata": {"name": "trial"},
        "spec": {"model": "nics: {}\n", "nodeSelector": {"no": "node"}, "rollout": {"soak": "10m"}}});
    let deadline = Instant::now() + PATIENT;
    loop {
        let path = "/apis/penstock.dev/v1alpha1/sriovmachines?dryRun=All";
        let answer = fleet.plane.api().request("POST", path, Some(("application/json", &trial))).unwrap();
        if answer.is_success() && answer.text.contains("soak") {
            break;
        }
        assert!(Instant::now() < deadline, "{answer:?}");
        thread::sleep(PAUSE);
    }
    fleet.machine(json!({"rollout": {"soak": "10m"}}));
    let status = fleet.until("it says so", |status| condition(status, "Degraded").0 == "Unreadable");
    let (_, message) = condition(&status, "Degraded");
    assert!(message.contains("unknown field `soak`") && message.contains("newer version"), "{message}");
    // It would have begun by now.
    thread::sleep(Duration::from_secs(3));
    assert!(
        fleet.calls().is_empty() && fleet.record("newer-0")["status"]["plan"].is_null(),
        "no node is changed"
    );
    fleet.machine(json!({}));
    fleet.until("it has the model without that key", |status| status["ready"] == 1);
}
