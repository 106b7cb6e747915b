//! Each folder of `tests/golden` is a model and an inventory, and what a person reads of the plan (`overview.txt`, in 80
//! columns), all of its steps (`plan.txt`) and those of its way back, or the messages instead. `command.txt` says which guests are started or stopped; without it the model is planned as
//! a whole. `UPDATE_GOLDEN=1` writes the texts anew; read the difference before it is committed.

#![allow(clippy::disallowed_methods, reason = "a test reads its own folders")]

use std::{fs, path::Path};

use penstock_model::{Inventory, Model, Source, text::columns};
use penstock_plan::{
    Action, FunctionAction, GuestAction, Plan, PlanError, WayBack, boot_needs,
    check::{check, check_steps, simulate},
    dangers, overview, plan, start, stop, undo, way_back,
};

/// What is said of a plan.
struct Rendered {
    overview: String,
    steps: String,
    back: String,
}

/// Plans as `command` says, and has the plan and its way back judged.
fn answer(model: &Model, inventory: &Inventory, source: &Source, command: &str) -> Result<Rendered, String> {
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
        PlanError::Model(messages)
        | PlanError::Files(messages)
        | PlanError::UnsupportedAttributes(messages) => messages.render(source, false),
        other => {
            let ways = other.ways_round();
            assert!(ways.iter().all(|way| !way.is_empty()), "{other}");
            let line = |way: &String| format!("help: {way}\n");
            format!("{other}\n{}", ways.iter().map(line).collect::<String>())
        }
    })?;
    let findings = match verb {
        None => check(model, inventory, &planned),
        Some(_) => check_steps(model, inventory, &planned),
    };
    assert_eq!(findings, [], "{planned}");
    let back = undo(&planned);
    let findings = check_steps(model, &simulate(inventory, &planned), &back);
    assert_eq!(findings, [], "{back}");
    can_be_taken_back(&planned);
    let boot = verb.is_none().then(|| boot_needs(model, inventory));
    let dangers = dangers(&planned, inventory);
    for width in [Some(80), Some(200), None] {
        let view = overview(&planned, inventory, &dangers, boot.as_ref(), width);
        let plain = view.to_string();
        assert!(
            plain.lines().all(|line| columns(line) <= width.unwrap_or(usize::MAX)),
            "{width:?}:\n{plain}"
        );
        assert!(plain.lines().all(|line| line == line.trim_end()), "{plain:?}");
        assert_eq!(penstock_model::text::printable(&view.shown(true)), plain, "colours are only added");
    }
    Ok(Rendered {
        overview: overview(&planned, inventory, &dangers, boot.as_ref(), Some(80)).to_string(),
        steps: planned.steps_in_words(inventory, None).to_string(),
        back: back.steps_in_words(inventory, None).to_string(),
    })
}

/// A step without an inverse goes with one that has an inverse and comes before it, or changes nothing that anybody misses.
fn can_be_taken_back(plan: &Plan) {
    for step in &plan.steps {
        match way_back(plan, step) {
            WayBack::Inverse(_) => {}
            WayBack::With(id, _) => {
                let with = plan.steps.iter().find(|other| other.id == id).expect("it is a step of this plan");
                assert!(with.inverse.is_some() && with.id < step.id, "step {} with {id}\n{plan}", step.id);
            }
            WayBack::None(why) => {
                let harmless = matches!(
                    step.action,
                    Action::Function(FunctionAction::ResetFunction { .. })
                        | Action::Guest(GuestAction::DefineGuest(_))
                        | Action::Function(FunctionAction::AwaitLink { .. })
                        | Action::Guest(GuestAction::AwaitGuest { .. })
                );
                assert!(harmless || why.contains("not"), "step {} has no way back: {why}\n{plan}", step.id);
                assert_ne!(why, "nothing takes it back", "step {}\n{plan}", step.id);
            }
        }
    }
}

/// Words that begin with a capital letter and are no abbreviation, within a sentence.
const NAMES: [&str; 5] = ["Linux", "NetworkManager", "Mbit", "GiB", "MiB"];

/// Names of Rust's variants (`Veb`) that have got into a text.
fn names_of_rust(text: &str) -> Vec<&str> {
    let words = text.lines().flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric()).skip(1));
    let is_name = |word: &&str| {
        let mut letters = word.chars();
        let first = letters.next().is_some_and(|first| first.is_ascii_uppercase());
        // `VFs`, `IPv6` and `PCIe` are abbreviations.
        first && letters.next().is_some_and(|second| second.is_ascii_lowercase())
    };
    words.filter(is_name).filter(|word| !NAMES.contains(word)).collect()
}

#[test]
fn names_of_rust_are_found() {
    assert_eq!(names_of_rust("4. x: mode Veb for VFs of Linux with IPv6\n a SetLink"), ["Veb", "SetLink"]);
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
        let (told, messages) = match answer(&model, &inventory, &source, &command) {
            Ok(told) => (Some(told), None),
            Err(messages) => (None, Some(messages)),
        };
        let texts = [
            ("overview.txt", told.as_ref().map(|told| told.overview.as_str())),
            ("plan.txt", told.as_ref().map(|told| told.steps.as_str())),
            ("undo.txt", told.as_ref().map(|told| told.back.as_str())),
        ];
        for (name, text) in texts {
            compare(&case.join(name), text, &mut wrong);
            assert_eq!(names_of_rust(text.unwrap_or_default()), [""; 0], "{}", case.join(name).display());
        }
        compare(&case.join("messages.txt"), messages.as_deref(), &mut wrong);
        cases += 1;
    }
    assert!(cases > 34, "only {cases} cases were found");
    assert!(wrong.is_empty(), "these are not as expected; they are now:\n{wrong}");
}
