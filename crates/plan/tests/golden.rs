//! Each folder of `tests/golden` is a model and an inventory, and the complete text of the plan and of its way back, or
//! of the messages instead. `command.txt` says which guests are started or stopped; without it the model is planned as
//! a whole. `UPDATE_GOLDEN=1` writes the texts anew; read the difference before it is committed.

#![allow(clippy::disallowed_methods, reason = "a test reads its own folders")]

use std::{fs, path::Path};

use penstock_model::{Inventory, Model, Source};
use penstock_plan::{
    Plan, PlanError,
    check::{check, check_steps, simulate},
    plan, start, stop, undo,
};

/// Plans as `command` says, and has the plan and its way back judged.
fn answer(
    model: &Model,
    inventory: &Inventory,
    source: &Source,
    command: &str,
) -> Result<(String, String), String> {
    let mut words = command.split_whitespace();
    let verb = words.next();
    let guests: Vec<_> = words.map(|word| word.parse().unwrap()).collect();
    let planned = match verb {
        None => plan(model, inventory),
        Some("start") => start(model, inventory, &guests),
        Some("stop") => stop(model, inventory, &guests),
        Some(other) => panic!("{other} is no command"),
    };
    let planned: Plan = planned.map_err(|error| match error {
        PlanError::Model(messages) | PlanError::Files(messages) | PlanError::Lacking(messages) => {
            messages.render(source, false)
        }
        other => format!("{other}\n"),
    })?;
    let findings = match verb {
        None => check(model, inventory, &planned),
        Some(_) => check_steps(model, inventory, &planned),
    };
    assert_eq!(findings, [], "{planned}");
    let back = undo(&planned);
    let findings = check_steps(model, &simulate(inventory, &planned), &back);
    assert_eq!(findings, [], "{back}");
    Ok((planned.render(), back.render()))
}

/// Compares `text` with the file, or writes it; `None` wants no such file.
fn compare(file: &Path, text: Option<&str>, wrong: &mut String) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        match text {
            Some(text) => fs::write(file, text).unwrap(),
            None => drop(fs::remove_file(file)),
        }
    } else if fs::read_to_string(file).ok().as_deref() != text {
        let text = text.unwrap_or("should not be there");
        wrong.push_str(&format!("== {}\n{text}\n", file.display()));
    }
}

#[test]
fn every_folder_is_planned_as_it_was() {
    let mut cases = 0;
    let mut wrong = String::new();
    for case in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden")).unwrap() {
        let case = case.unwrap().path();
        let source = Source::new("model.yaml", fs::read_to_string(case.join("model.yaml")).unwrap());
        let model = penstock_model::parse(&source)
            .unwrap_or_else(|error| panic!("{}", error.render(&source, false)))
            .model;
        let inventory = fs::read(case.join("inventory.json")).unwrap();
        let inventory =
            serde_json::from_slice(&inventory).unwrap_or_else(|error| panic!("{}: {error}", case.display()));
        let command = fs::read_to_string(case.join("command.txt")).unwrap_or_default();
        let (planned, back, messages) = match answer(&model, &inventory, &source, &command) {
            Ok((planned, back)) => (Some(planned), Some(back), None),
            Err(messages) => (None, None, Some(messages)),
        };
        compare(&case.join("plan.txt"), planned.as_deref(), &mut wrong);
        compare(&case.join("undo.txt"), back.as_deref(), &mut wrong);
        compare(&case.join("messages.txt"), messages.as_deref(), &mut wrong);
        cases += 1;
    }
    assert!(cases > 34, "only {cases} cases were found");
    assert!(wrong.is_empty(), "these are not as expected; they are now:\n{wrong}");
}
