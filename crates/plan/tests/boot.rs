//! What models need at the start of a machine, and what is done for it: `boot/CASE/` with the model, a machine, and the needs
//! and changes as a person reads them.
#![allow(clippy::disallowed_methods)]

use std::{collections::BTreeSet, fmt::Write, fs, path::Path};

use penstock_model::{Inventory, Model, Source, inventory::BootSetup};
use penstock_plan::{
    Action, BootAction,
    boot::{BootNeeds, after_reboot},
    boot_needs, check,
    persist::{Persisted, Wanted, after, is_for_the_start, persist},
    plan, undo,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// `patch` laid over `value` (RFC 7396).
fn lay_over(value: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    for (key, patch) in patch {
        match patch {
            Value::Null => drop(value.as_object_mut().unwrap().remove(key)),
            patch => lay_over(&mut value[key], patch),
        }
    }
}

fn model(text: &str) -> Model {
    let source = Source::new("model.yaml", text);
    let parsed = penstock_model::parse(&source);
    parsed.unwrap_or_else(|error| panic!("{}", error.render(&source, false))).model
}

/// The machine of the golden folder `vm` with `patch` laid over it.
fn inventory(patch: &Value) -> Inventory {
    let base = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/vm/inventory.json"));
    let mut value: Value = serde_json::from_str(&base.unwrap()).unwrap();
    lay_over(&mut value, patch);
    if value["iommu_groups"] == "off" {
        value["iommu_groups"] = json!({});
    }
    serde_json::from_value(value).unwrap()
}

fn setup(patch: &Value) -> BootSetup {
    let mut value = serde_json::to_value(BootSetup { systemd: true, ..BootSetup::default() }).unwrap();
    lay_over(&mut value, patch);
    serde_json::from_value(value).unwrap()
}

fn make(model: &Model, text: &str, options: &[String], needs: &BootNeeds, setup: &BootSetup) -> Persisted {
    let wanted = Wanted { model, text, program: "/usr/local/bin/penstock", options, needs };
    persist(&wanted, setup)
}

/// The machine after `plan` was carried out.
fn carried_out(setup: &BootSetup, plan: &penstock_plan::Plan) -> BootSetup {
    let mut after = BootSetup { files: after(&setup.files, plan), ..setup.clone() };
    for step in &plan.steps {
        if let Action::Boot(BootAction::EnableUnit { unit, on }) = &step.action {
            let changed = if *on { after.enabled.insert(unit.clone()) } else { after.enabled.remove(unit) };
            assert!(changed, "{unit} was so already");
        }
    }
    after
}

/// Twice is once, and the way back leads back, also through the boot loader's tools.
fn proven(model: &Model, text: &str, options: &[String], needs: &BootNeeds, before: &BootSetup) -> Persisted {
    let made = make(model, text, options, needs, before);
    assert!(made.plan.steps.is_empty() || is_for_the_start(&made.plan));
    let there = carried_out(before, &made.plan);
    let again = make(model, text, options, needs, &there);
    assert_eq!((again.plan.steps.len(), again.shown.as_str()), (0, ""), "the second time something is done");
    let back = undo(&made.plan);
    assert_eq!(carried_out(&there, &back), *before, "the way back leads elsewhere");
    // What is told a tool is taken back from it.
    let words = |plan: &penstock_plan::Plan| -> Vec<(Vec<String>, Vec<String>)> {
        let of = |step: &penstock_plan::Step| match &step.action {
            Action::Boot(BootAction::SetBootArguments(arguments)) => {
                Some((arguments.before.clone(), arguments.words.clone()))
            }
            _ => None,
        };
        plan.steps.iter().filter_map(of).collect()
    };
    let there_and_back: Vec<_> = words(&back).into_iter().map(|(before, after)| (after, before)).collect();
    assert_eq!(words(&made.plan), there_and_back);
    made
}

fn in_words(needs: &BootNeeds) -> String {
    let mut text = String::new();
    for need in &needs.needs {
        let state = match (need.live, need.reboot) {
            (true, _) => "live",
            (false, true) => "needs a reboot",
            (false, false) => "not live",
        };
        let _ = writeln!(text, "{}: {state} ({}): {}", need.setting, need.lines.join(", "), need.reason);
    }
    for note in &needs.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn compare(file: &Path, text: &str, wrong: &mut String) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(file, text).unwrap();
    } else if fs::read_to_string(file).ok().as_deref() != Some(text) {
        let _ = writeln!(wrong, "== {}\n{text}", file.display());
    }
}

#[test]
fn every_machine_is_started_as_it_was() {
    let (mut cases, mut wrong) = (0, String::new());
    for case in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/boot")).unwrap() {
        let case = case.unwrap().path();
        let text = fs::read_to_string(case.join("model.yaml")).unwrap();
        let machine: Value = serde_json::from_slice(&fs::read(case.join("machine.json")).unwrap()).unwrap();
        let model = model(&text);
        let inventory = inventory(machine.get("inventory").unwrap_or(&json!({})));
        let needs = boot_needs(&model, &inventory);
        compare(&case.join("needs.txt"), &in_words(&needs), &mut wrong);
        let options: Vec<String> = serde_json::from_value(machine["options"].clone()).unwrap_or_default();
        let made =
            proven(&model, &text, &options, &needs, &setup(machine.get("setup").unwrap_or(&json!({}))));
        let by_hand = made.by_hand.iter().map(|words| format!("by hand: {words}\n")).collect::<String>();
        compare(&case.join("changes.txt"), &(made.shown + &by_hand), &mut wrong);
        // What only a reboot brings is there after it: then the model can be planned.
        let later = after_reboot(&inventory, &needs);
        if needs.notes.is_empty() {
            let planned =
                plan(&model, &later).unwrap_or_else(|error| panic!("{}: {error:?}", case.display()));
            assert_eq!(check(&model, &later, &planned), []);
        }
        cases += 1;
    }
    assert!(cases >= 9, "only {cases} cases were found");
    assert!(wrong.is_empty(), "these are not as expected; they are now:\n{wrong}");
}

/// Any file that may be there before, with any text.
fn files() -> impl Strategy<Value = BootSetup> {
    let loader = prop_oneof![
        Just(Value::Null),
        Just(json!({"grub": {"refresh": ["update-grub"], "menu": "/boot/grub/grub.cfg"}})),
        Just(json!("grubby")),
        Just(json!("kernel_install")),
        Just(json!("proxmox_boot_tool")),
    ];
    let paths = prop::sample::subsequence(penstock_plan::persist::paths(), 0..=9);
    let text = "([a-z_]{1,6}(=[a-z]{1,4})?[ \n]){0,6}|intel_iommu=on\niommu=pt\n|quiet iommu=pt  ro";
    let texts = prop::collection::vec(text, 9);
    let enabled = prop::sample::subsequence(vec!["penstock-nics.service", "penstock-guests.service"], 0..=2);
    (loader, paths, texts, enabled).prop_map(|(loader, paths, texts, enabled)| BootSetup {
        loader: serde_json::from_value(loader).unwrap(),
        systemd: true,
        files: paths.into_iter().zip(texts).collect(),
        enabled: enabled.into_iter().map(str::to_owned).collect::<BTreeSet<String>>(),
        command_line: "BOOT_IMAGE=/vmlinuz root=/dev/sda1 quiet".to_owned(),
    })
}

proptest! {
    /// Whatever was there, it is there again after the way back, and to do it twice is to do it once.
    #[test]
    fn what_is_installed_can_be_taken_away(before in files(), vm in any::<bool>(), pages in 0_u64..9) {
        let memory = if pages > 0 { format!(", memory: {pages}GiB, huge_pages: 1GiB") } else { String::new() };
        let kind = if vm { format!("kind: vm, functions: [NET0#0]{memory}") } else { "functions: [NET0#0]".to_owned() };
        let text = format!("nics: {{NET0: }}\nguests:\n  a: {{{kind}}}\n");
        let model = model(&text);
        let inventory = inventory(&json!({"cpus": {"model": "Intel(R) Xeon(R)"}, "iommu_groups": "off"}));
        let needs = boot_needs(&model, &inventory);
        prop_assert_eq!(needs.missing().count() > 0, vm);
        proven(&model, &text, &[], &needs, &before);
    }
}
