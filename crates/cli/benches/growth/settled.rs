//! The plan for a machine that is as its model has it, and where it is known what each guest was defined as. No inventory that is written down
//! has that, so that this is planned by the bench itself and by no command line of `penstock`.

use std::{collections::BTreeMap, env, fs, process::exit};

use penstock_model::{GuestName, Inventory, Model, Source};
use penstock_plan::{Action, GuestAction, plan};
use serde_json::Value;

/// What such a process is started with.
pub const PLAN: &str = "plan-settled";

/// Plans for `settled.json` and `definitions.json` of this directory, and ends, if this is a process for that.
pub fn plan_if_asked() {
    if env::args().nth(1).is_none_or(|word| word != PLAN) {
        return;
    }
    let read = |name: &str| fs::read_to_string(name).expect("a file");
    let model = parsed(&read("model.yaml"));
    let mut inventory: Inventory = serde_json::from_str(&read("settled.json")).expect("an inventory");
    let mut definitions: BTreeMap<GuestName, Value> =
        serde_json::from_str(&read("definitions.json")).expect("definitions");
    for (guest, found) in &mut inventory.guests {
        found.definition = definitions.remove(guest);
        assert!(found.definition.is_some(), "{guest} was defined");
    }
    let plan = plan(&model, &inventory).expect("a plan");
    assert!(plan.steps.is_empty(), "nothing is to be done");
    exit(0);
}

/// What the guests of a model are defined as, on a machine that has none of them yet.
pub fn definitions(model: &str, inventory: &Inventory) -> BTreeMap<GuestName, Value> {
    let plan = plan(&parsed(model), inventory).expect("a plan");
    let definition = |action| match action {
        Action::Guest(GuestAction::DefineGuest(definition)) => {
            let value = serde_json::to_value(&definition).expect("a definition is JSON");
            Some((definition.guest, value))
        }
        _ => None,
    };
    plan.steps.into_iter().filter_map(|step| definition(step.action)).collect()
}

fn parsed(text: &str) -> Model {
    penstock_model::parse(&Source::new("model.yaml", text)).expect("a model").model
}
