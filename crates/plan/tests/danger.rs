//! What plans would take away. Each folder of `tests/danger` is a case: `case.json` names a folder of `tests/golden`, what
//! is different on its machine, and actions where no planner would plan them; `dangers.txt` is all that is said of it.
//! `UPDATE_GOLDEN=1` writes the texts anew; read the difference before it is committed.

#![allow(clippy::disallowed_methods, reason = "a test reads its own folders")]

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::Path,
};

use penstock_model::{
    Bdf, Inventory, Model, Source,
    inventory::{Lifeline, LifelineKind, LifelinePath, LifelineSort, Lifelines, UnknownLifeline},
};
use penstock_plan::{
    Action, Danger, Direction, Effects, Fact, FunctionAction, GuestAction, Plan, Step, StepId, dangers,
    effects, overview, plan, start, stop, undo,
};
use proptest::prelude::*;
use serde_json::Value;
use support::{Size, machine};

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// Why this is a case.
    #[serde(rename = "why")]
    _why: String,
    /// The folder below `golden`.
    of: String,
    /// Values of the inventory by JSON pointer.
    #[serde(default)]
    set: BTreeMap<String, Value>,
    /// The actions, instead of those that would be planned.
    #[serde(default)]
    actions: Vec<Action>,
    /// Whether it is about the way back.
    #[serde(default)]
    undo: bool,
}

impl Case {
    fn plan(&self, model: &Model, inventory: &Inventory, command: &str) -> Plan {
        let mut words = command.split_whitespace();
        let verb = words.next();
        let guests: Vec<_> = words.map(|word| word.parse().unwrap()).collect();
        if !self.actions.is_empty() {
            let nics = penstock_plan::resolve(model, inventory).unwrap();
            return Plan {
                nics,
                steps: self.actions.iter().enumerate().map(step).collect(),
                ..Plan::default()
            };
        }
        let planned = match verb {
            None => plan(model, inventory),
            Some("start") => start(model, inventory, &guests),
            Some("stop") => stop(model, inventory, &guests),
            Some(other) => panic!("{other} is no command"),
        };
        let planned = planned.unwrap_or_else(|error| panic!("{error}"));
        if self.undo { undo(&planned) } else { planned }
    }
}

fn step((position, action): (usize, &Action)) -> Step {
    Step {
        id: StepId(position as u32 + 1),
        action: action.clone(),
        reason: String::new(),
        needs: vec![],
        inverse: None,
        postcondition: Fact::after(action),
        best_effort: false,
        guest: None,
    }
}

fn set(inventory: &mut Value, pointer: &str, value: &Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = inventory.pointer_mut(parent).unwrap_or_else(|| panic!("nothing at {parent}"));
    match parent {
        Value::Array(items) => items[key.parse::<usize>().unwrap()] = value.clone(),
        Value::Object(members) => drop(members.insert(key.replace("~1", "/"), value.clone())),
        other => panic!("{pointer} is in {other}"),
    }
}

fn told(plan: &Plan, dangers: &[Danger], effects: &Effects) -> String {
    let steps = |steps: &[StepId]| {
        let named = steps.iter().map(|id| {
            let step = plan.steps.iter().find(|step| step.id == *id).unwrap();
            format!("  step {id}: {}\n", step.action)
        });
        named.collect::<String>()
    };
    let mut text = String::new();
    for danger in dangers {
        let Danger { name, lost, way_round, functions, .. } = danger;
        let _ = writeln!(text, "{name}\n{}  lost: {lost}\n  way round: {way_round}", steps(&danger.steps));
        let functions: Vec<String> = functions.iter().map(ToString::to_string).collect();
        if !functions.is_empty() {
            let _ = writeln!(text, "  used: {}", functions.join(", "));
        }
    }
    if dangers.is_empty() {
        text.push_str("no danger\n");
    }
    for vf in &effects.vfs {
        let _ = write!(text, "gone: {} ({}) in step {}", vf.name, vf.function, vf.step);
        let _ = write!(text, ", driver {}", vf.driver.as_deref().unwrap_or("none"));
        let interface = vf.interface.as_ref().map(|interface| format!(", the host's {interface}"));
        let guest = vf.guest.as_ref().map(|guest| format!(", of {guest}"));
        let user = vf.user.as_ref().map(|user| format!(", used by {user}"));
        text.extend([interface, guest, user].into_iter().flatten());
        text.push('\n');
    }
    for guest in &effects.guests {
        let _ = writeln!(
            text,
            "{} is concerned\n{}  {}",
            guest.guest,
            steps(&guest.steps),
            guest.what.join("; ")
        );
    }
    text
}

#[test]
fn every_case_is_told_as_it_was() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let (mut cases, mut wrong) = (0, String::new());
    for case in fs::read_dir(folder.join("danger")).unwrap() {
        let path = case.unwrap().path();
        let case = fs::read(path.join("case.json")).unwrap();
        let case: Case =
            serde_json::from_slice(&case).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let golden = folder.join("golden").join(&case.of);
        let source = Source::new("model.yaml", fs::read_to_string(golden.join("model.yaml")).unwrap());
        let model = penstock_model::parse(&source).unwrap().model;
        let mut inventory: Value =
            serde_json::from_slice(&fs::read(golden.join("inventory.json")).unwrap()).unwrap();
        case.set.iter().for_each(|(pointer, value)| set(&mut inventory, pointer, value));
        let inventory: Inventory =
            serde_json::from_value(inventory).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let command = fs::read_to_string(golden.join("command.txt")).unwrap_or_default();
        let plan = case.plan(&model, &inventory, &command);
        let (found, effects) = (dangers(&plan, &inventory), effects(&plan, &inventory));
        let view = overview(&plan, &inventory, &found, None, None).to_string();
        let summary = view.lines().next().unwrap();
        let text = format!("{summary}\n{}", told(&plan, &found, &effects));
        let file = path.join("dangers.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&file, text).unwrap();
        } else if fs::read_to_string(&file).ok().as_deref() != Some(&text) {
            let _ = writeln!(wrong, "== {}\n{text}", file.display());
        }
        cases += 1;
    }
    assert!(cases >= 15, "only {cases} cases were found");
    assert!(wrong.is_empty(), "these are not as expected; they are now:\n{wrong}");
}

const SMALL: Size = Size { nics: 3, vfs: 5, guests: 4 };

/// A machine whose default route goes over `function`.
fn hanging_on(inventory: &Inventory, function: Bdf) -> Inventory {
    let lifeline = Lifeline {
        kind: LifelineKind::DefaultRoute { family: penstock_model::inventory::Family::V4, table: 254 },
        paths: vec![LifelinePath { names: vec!["br0".into(), "x".into()], function: Some(function) }],
    };
    let lifelines = Lifelines { found: vec![lifeline], ..Lifelines::default() };
    Inventory { lifelines: Some(lifelines), ..inventory.clone() }
}

/// Whether a step surely takes something from the interface of `pf`, judged here anew.
fn touches(plan: &Plan, inventory: &Inventory, pf: Bdf, action: &Action) -> bool {
    let enters = |guest: &penstock_model::GuestName| {
        plan.steps.iter().any(|step| match &step.action {
            Action::Guest(GuestAction::DefineGuest(definition)) => {
                definition.guest == *guest && definition.functions.iter().any(|own| own.function == pf)
            }
            _ => false,
        })
    };
    match action {
        Action::Function(FunctionAction::SetLink { function, direction: Direction::Down })
        | Action::Function(FunctionAction::Rename { function, .. })
        | Action::Function(FunctionAction::SetMtu { function, .. })
        | Action::Function(FunctionAction::SetMac { function, .. })
        | Action::Function(FunctionAction::RemoveAddress { function, .. })
        | Action::Function(FunctionAction::ResetFunction { function }) => *function == pf,
        Action::Function(FunctionAction::SetDriver { function, driver, .. }) => {
            *function == pf && inventory.pf(pf).is_some_and(|pf| pf.driver != *driver)
        }
        Action::Function(FunctionAction::SetVfCount { pf: of, .. }) => {
            *of == pf && inventory.pf(pf).is_some_and(|pf| pf.driver.as_deref() != Some("virtio-pci"))
        }
        Action::Function(FunctionAction::SetEswitchMode { pf: of, .. }) => *of == pf,
        Action::Guest(GuestAction::StartGuest { guest })
        | Action::Guest(GuestAction::CreateGuest { guest }) => enters(guest),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// No plan takes a lifeline away without a danger that names each step that does, and its way back neither.
    #[test]
    fn no_lifeline_is_taken_without_a_word(seed in any::<u64>()) {
        let (model, inventory) = machine(seed, &SMALL);
        let Ok(planned) = plan(&model, &inventory) else { return Ok(()) };
        for plan in [undo(&planned), planned] {
            for pf in &inventory.pfs {
                let inventory = hanging_on(&inventory, pf.bdf);
                let found = dangers(&plan, &inventory);
                let said: BTreeSet<StepId> = found
                    .iter()
                    .filter(|danger| danger.name.starts_with("default-route:"))
                    .flat_map(|danger| danger.steps.clone())
                    .collect();
                for step in plan.steps.iter().filter(|step| touches(&plan, &inventory, pf.bdf, &step.action)) {
                    prop_assert!(said.contains(&step.id), "{}: {}\n{found:#?}", step.id, step.action);
                }
                let names: BTreeSet<&str> = found.iter().map(|danger| danger.name.as_str()).collect();
                prop_assert_eq!(names.len(), found.len(), "each danger once");
                prop_assert!(found.iter().all(|danger| !danger.lost.is_empty() && !danger.way_round.is_empty()));
            }
        }
    }

    /// A function that no step names, nor its PF, is in no danger: whatever else the plan does.
    #[test]
    fn who_is_let_alone_is_in_no_danger(seed in any::<u64>()) {
        let (model, inventory) = machine(seed, &SMALL);
        let Ok(plan) = plan(&model, &inventory) else { return Ok(()) };
        let stranger: Bdf = "0000:7f:00.0".parse().unwrap();
        let before = dangers(&plan, &inventory);
        prop_assert_eq!(&before, &dangers(&plan, &hanging_on(&inventory, stranger)));
        for pf in &inventory.pfs {
            let text = pf.bdf.to_string();
            let mut own = vec![text];
            own.extend(pf.sriov.iter().flat_map(|sriov| &sriov.vfs).map(|vf| vf.bdf.to_string()));
            let named = |step: &Step| {
                let action = serde_json::to_string(&step.action).unwrap();
                own.iter().any(|text| action.contains(text))
            };
            if !plan.steps.iter().any(named) {
                prop_assert_eq!(&before, &dangers(&plan, &hanging_on(&inventory, pf.bdf)), "{}", pf.bdf);
            }
        }
    }

    /// What nobody could see is a danger of every interface that is up and is touched.
    #[test]
    fn unknown_is_not_none(seed in any::<u64>()) {
        let (model, mut inventory) = machine(seed, &SMALL);
        let Ok(plan) = plan(&model, &inventory) else { return Ok(()) };
        let unknown = UnknownLifeline { sort: LifelineSort::Ssh, why: "not observed".into() };
        inventory.lifelines = Some(Lifelines { unknown: vec![unknown], ..Lifelines::default() });
        let found = dangers(&plan, &inventory);
        for pf in &inventory.pfs {
            let interface = pf.interface.as_ref().unwrap();
            let harmed = plan.steps.iter().any(|step| touches(&plan, &inventory, pf.bdf, &step.action));
            let said = found.iter().any(|danger| danger.name == format!("unknown-ssh:{}", interface.name));
            if harmed && interface.up {
                prop_assert!(said, "{}: {found:#?}", pf.bdf);
            }
            if !interface.up {
                prop_assert!(!said);
            }
        }
    }
}
