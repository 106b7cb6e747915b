//! The steps that write the files that guests are told by. What is in them is the crate `render`'s.

#![allow(clippy::disallowed_methods, reason = "a test reads another crate's folder")]

use std::fs;

use penstock_model::{Inventory, Model, Source, Template};
use penstock_plan::{
    Action, FileAction, PlanError,
    check::{check, check_steps, simulate},
    plan, undo,
};
use penstock_render::paths;

fn published() -> Model {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../render/tests/generate/model.yaml");
    let source = Source::new("model.yaml", fs::read_to_string(path).unwrap());
    penstock_model::parse(&source).unwrap_or_else(|error| panic!("{}", error.render(&source, false))).model
}

/// The machine of the published model.
fn machine() -> Inventory {
    let text = include_str!("golden/xeon-d/inventory.json");
    serde_json::from_str(text).unwrap()
}

/// The published model as far as this machine runs it: containers.
fn containers() -> Model {
    let mut model = published();
    for guest in model.guests.values_mut() {
        guest.kind = penstock_model::GuestKind::Container;
        (guest.cpus, guest.memory, guest.pin, guest.exclusive) = (None, None, None, false);
    }
    model
}

#[test]
fn a_plan_writes_what_is_not_so_and_takes_it_back() {
    let (model, mut machine) = (containers(), machine());
    let first = plan(&model, &machine).unwrap();
    let writes = |plan: &penstock_plan::Plan| -> Vec<(usize, String)> {
        let steps = plan.steps.iter().enumerate();
        steps
            .filter_map(|(at, step)| match &step.action {
                Action::File(FileAction::WriteFile { path, .. }) => Some((at, path.clone())),
                _ => None,
            })
            .collect()
    };
    let written: Vec<String> = writes(&first).into_iter().map(|(_, path)| path).collect();
    assert_eq!(written, paths(&model));
    let first_guest = first.steps.iter().position(|step| step.action.guest().is_some()).unwrap();
    assert!(writes(&first).iter().all(|(at, _)| *at < first_guest), "before any guest");
    assert!(first.steps.iter().any(|step| step.reason == "rt-2 is told what its functions are"));
    assert_eq!(check(&model, &machine, &first), []);
    let mut forged = first.clone();
    forged.steps.iter_mut().for_each(|step| {
        if let Action::File(FileAction::WriteFile { text, .. }) = &mut step.action {
            text.push(' ');
        }
    });
    assert!(
        check(&model, &machine, &forged)
            .iter()
            .any(|finding| finding.message.contains("is not what is made for"))
    );
    let after = simulate(&machine, &first);
    assert_eq!(writes(&plan(&model, &after).unwrap()), [], "what is so gives no step");
    let back = undo(&first);
    assert_eq!(check_steps(&model, &after, &back), []);
    assert!(simulate(&after, &back).files.is_empty(), "what was not there is not there again");

    machine.files.insert(written[0].clone(), "by hand\n".to_owned());
    let over = plan(&model, &machine).unwrap();
    assert_eq!(check(&model, &machine, &over), []);
    assert_eq!(
        simulate(&simulate(&machine, &over), &undo(&over)).files,
        machine.files,
        "the old text comes back"
    );
}

#[test]
fn a_wrong_template_stops_the_plan() {
    let mut model = containers();
    model.guests["rt-2"].generate[0].template =
        Template::File { path: "t.j2".to_owned(), text: "{{ nothing }}".to_owned() };
    assert!(matches!(plan(&model, &machine()), Err(PlanError::Template(_))));
}
