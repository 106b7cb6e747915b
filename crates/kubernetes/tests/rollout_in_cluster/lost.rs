//! What goes, or ceases to hold, while a roll-out goes on.

use std::fs;

use serde_json::json;

use super::fleet::Fleet;

/// The agent makes its `SriovNode` anew and says there how the change ended, and the others follow.
pub fn removed_record() {
    let fleet = Fleet::started("lost", 2);
    fs::write(fleet.at("lost-0", "applying"), "4").unwrap();
    fleet.machine(json!({"drain": {"mode": "node"}, "rollout": {"confirmWithin": "2m"}}));
    let applying = |record: &serde_json::Value| record["status"]["result"]["outcome"] == "Applying";
    fleet.until_record("lost-0", "it is changed", applying);
    let path = "/apis/penstock.dev/v1alpha1/sriovnodes/lost-0";
    fleet.plane.api().must("DELETE", path, None);
    let told = fleet
        .until_record("lost-0", "it is told", |record| record["status"]["result"]["outcome"] == "Verified");
    assert_eq!(told["metadata"]["ownerReferences"][0]["name"], "lost-0");
    fleet.until("all have it", |status| status["ready"] == 2 && status["failed"] == 0);
    let taken =
        |node: &str| fleet.plane.get(&format!("/api/v1/nodes/{node}"))["spec"]["unschedulable"] == true;
    let deadline = std::time::Instant::now() + super::PATIENT;
    while taken("lost-0") || taken("lost-1") {
        assert!(std::time::Instant::now() < deadline, "a node stays cordoned");
        std::thread::sleep(super::PAUSE);
    }
}

pub fn paused_before_it_began() {
    let fleet = Fleet::started("unbegun", 1);
    fleet.machine(json!({"rollout": {"pause": true}}));
    fleet.until("it has planned", |status| status["planned"] == 1);
    // Another run is at work, so that the agent does not begin.
    fs::write(fleet.at("unbegun-0", "plan.exit"), "9").unwrap();
    fleet.machine(json!({"rollout": {"pause": false}}));
    let told = |record: &serde_json::Value| record["spec"]["change"]["stage"] == "Go";
    fleet.until_record("unbegun-0", "it is told to go", told);
    fleet.machine(json!({"rollout": {"pause": true}}));
    let called_off = |record: &serde_json::Value| record["spec"]["change"].is_null();
    fleet.until_record("unbegun-0", "it is told no more", called_off);
    fs::remove_file(fleet.at("unbegun-0", "plan.exit")).unwrap();
    // An agent asks again after 15 s.
    std::thread::sleep(std::time::Duration::from_secs(17));
    assert!(fleet.calls().is_empty(), "{:?}", fleet.calls());
    fleet.machine(json!({"rollout": {"pause": false}}));
    fleet.until("it has the model", |status| status["ready"] == 1 && status["failed"] == 0);
}

pub fn acquitted() {
    let fleet = Fleet::started("acquitted", 1);
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let info = json!({"status": {"nodeInfo": {"bootID": boot.trim()}}});
    let node = "/api/v1/nodes/acquitted-0/status";
    fleet.plane.api().must("PATCH", node, Some(("application/merge-patch+json", &info)));
    fleet.machine(json!({"rollout": {"pause": true}}));
    fleet.until("it has planned", |status| status["planned"] == 1);
    let message = format!("the Node's kernel was started as the-one-before, the agent's as {}", boot.trim());
    let said = json!({"apiVersion": "penstock.dev/v1alpha1", "kind": "SriovNode", "metadata": {"name": "acquitted-0"},
        "status": {"conditions": [{"type": "SingleAgent", "status": "False", "reason": "AnotherMachine", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let path = "/apis/penstock.dev/v1alpha1/sriovnodes/acquitted-0/status?fieldManager=penstock-agent-elsewhere&force=true";
    let told = fleet.plane.api().must("PATCH", path, Some(("application/apply-patch+yaml", &said)));
    assert!(told.contains("SingleAgent"), "{told}");
    let acquitted = |record: &serde_json::Value| !record["status"].to_string().contains("SingleAgent");
    let record = fleet.until_record("acquitted-0", "it is taken back", acquitted);
    assert!(record["status"].to_string().contains("Planned"), "{record:#}");
}
