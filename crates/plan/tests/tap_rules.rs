//! That the checker of plans knows by itself what taps are for: plans that go about them wrongly are found out.
#![allow(clippy::disallowed_methods, reason = "a test reads its own folders")]

use std::path::Path;

use penstock_model::{Inventory, Model, Source};
use penstock_plan::{Action, GuestAction, Plan, StepId, check::check, plan};

/// The model and the machine of a golden folder, and the plan from the one to the other.
fn planned(folder: &str) -> (Model, Inventory, Plan) {
    let read = |file: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(folder).join(file);
        std::fs::read_to_string(path).unwrap()
    };
    let model = penstock_model::parse(&Source::new("model.yaml", read("model.yaml"))).unwrap().model;
    let inventory: Inventory = serde_json::from_str(&read("inventory.json")).unwrap();
    let made = plan(&model, &inventory).unwrap();
    assert_eq!(check(&model, &inventory, &made), []);
    (model, inventory, made)
}

/// The step that makes the taps of a NIC of node-1.
fn make(plan: &Plan, nic: &str) -> usize {
    let is = |action: &Action| matches!(action, Action::Guest(GuestAction::MakeTaps { guest, nic: of }) if guest.as_str() == "node-1" && of.as_str() == nic);
    plan.steps.iter().position(|step| is(&step.action)).unwrap()
}

fn findings(model: &Model, inventory: &Inventory, plan: &Plan) -> String {
    check(model, inventory, plan).iter().map(|finding| format!("{finding}\n")).collect()
}

#[test]
fn a_vm_is_not_made_before_its_taps() {
    let (model, inventory, mut made) = planned("tenant-taps");
    let gone: StepId = made.steps.remove(make(&made, "net0")).id;
    for step in &mut made.steps {
        step.needs.retain(|need| *need != gone);
    }
    let found = findings(&model, &inventory, &made);
    assert!(found.contains("node-1/net0 has no taps"), "{found}");
}

#[test]
fn a_nic_at_taps_gets_no_switch() {
    let (model, inventory, mut made) = planned("tenant-taps");
    let at = make(&made, "net1");
    let (guest, nic) = ("node-1".parse().unwrap(), "net1".parse().unwrap());
    made.steps[at].action = GuestAction::StartSwitch { guest, nic }.into();
    let found = findings(&model, &inventory, &made);
    assert!(found.contains("not defined with a NIC net1 at a switch"), "{found}");
}

#[test]
fn taps_have_a_way_back() {
    let (model, inventory, mut made) = planned("tenant-taps");
    let at = make(&made, "net0");
    made.steps[at].inverse = None;
    assert_ne!(findings(&model, &inventory, &made), "");
}
