//! What models need at the start of a machine, and what is done for it: `boot/CASE/` with the model, a machine, and the needs
//! and changes as a person reads them.
#![allow(clippy::disallowed_methods)]

use std::{collections::BTreeSet, fmt::Write, fs, path::Path, time::Duration};

use penstock_model::{
    Inventory, Model, Source,
    inventory::{BootLoader, BootSetup},
};
use penstock_plan::{
    Action, BootAction,
    action::{BootArguments, BootFile, has_words},
    boot::{BootNeeds, after_reboot, entries_have, is_on},
    boot_needs, check,
    persist::{ARGUMENTS, KERNEL_COMMAND_LINE, Persisted, Wanted, after, is_for_the_start, persist},
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
    let (program, waits) = ("/usr/local/bin/penstock", Duration::from_secs(100));
    persist(&Wanted { model, text, program, search_path: None, options, needs, waits, cut_off: None }, setup)
}

/// The same after a run that was cut off and had found these words.
fn go_on(model: &Model, text: &str, needs: &BootNeeds, setup: &BootSetup, found: &[String]) -> Persisted {
    let (program, waits) = ("/usr/local/bin/penstock", Duration::from_secs(100));
    let (search_path, cut_off) = (None, Some(found));
    persist(&Wanted { model, text, program, search_path, options: &[], needs, waits, cut_off }, setup)
}

/// An entry after a call of `grubby`, as `update_args` of grubby-bls has it: words are taken away, then each that is added takes the place
/// of one with its key.
fn grubby<'a>(entry: &str, told: impl Iterator<Item = &'a String>) -> String {
    let mut words: Vec<String> = entry.split_ascii_whitespace().map(str::to_owned).collect();
    let key = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
    for option in told {
        if let Some(gone) = option.strip_prefix("--remove-args=") {
            words.retain(|word| !gone.split(' ').any(|gone| gone == word));
        }
        for word in option.strip_prefix("--args=").into_iter().flat_map(|args| args.split(' ')) {
            words.retain(|other| key(other) != key(word));
            words.push(word.to_owned());
        }
    }
    words.join(" ")
}

/// The machine after `plan` was carried out.
fn carried_out(setup: &BootSetup, plan: &penstock_plan::Plan) -> BootSetup {
    let mut after = BootSetup { files: after(&setup.files, plan), ..setup.clone() };
    for step in &plan.steps {
        if let Action::Boot(BootAction::EnableUnit { unit, on }) = &step.action {
            let changed = if *on { after.enabled.insert(unit.clone()) } else { after.enabled.remove(unit) };
            assert!(changed, "{unit} was so already");
        }
        if let Action::Boot(BootAction::SetBootArguments(arguments)) = &step.action {
            let (mut texts, path) = (after.files.clone(), arguments.file.as_ref().map(|file| &file.path));
            let line = path.and_then(|path| texts.remove(path)).unwrap_or_default();
            // Where nobody has said what the entries are, nothing is known of them afterwards.
            let known = !after.entries.is_empty();
            match arguments.loader {
                BootLoader::Grubby => {
                    let told = arguments.commands();
                    after.entries.iter_mut().for_each(|entry| *entry = grubby(entry, told.iter().flatten()));
                }
                BootLoader::Grub { .. } if known => {
                    after.entries = vec![format!("quiet {}", arguments.words.join(" "))];
                }
                _ if known => after.entries = vec![line],
                _ => {}
            }
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
        entries: Vec::new(),
    })
}

/// Entries of somebody's, with words of keys that are ours too.
fn entries() -> impl Strategy<Value = Vec<String>> {
    let word = prop_oneof![
        Just("quiet"),
        Just("intel_iommu=on"),
        Just("intel_iommu=off"),
        Just("iommu=pt"),
        Just("hugepagesz=1G hugepages=2"),
        Just("hugepagesz=2M hugepages=64"),
        Just("pci=noaer"),
    ];
    let words = prop::collection::vec(word, 0..4);
    prop::collection::vec(words.prop_map(|words| format!("root=/dev/sda1 {}", words.join(" "))), 1..4)
}

fn sorted(line: &str) -> Vec<&str> {
    let mut words: Vec<&str> = line.split_ascii_whitespace().collect();
    words.sort();
    words
}

proptest! {
    /// What somebody has in the entries of `grubby` stays there, in between and after the way back, and nothing of ours does, but what
    /// somebody had in a part of them.
    #[test]
    fn words_of_others_stay_in_entries_that_grubby_keeps(entries in entries(), pools in 0..3_usize, one_word in any::<bool>()) {
        let pages = ["", ", memory: 2GiB, huge_pages: 1GiB", ", memory: 1GiB, huge_pages: 2MiB"];
        let guests: String = (1..=pools).map(|n| format!("  g{n}: {{kind: vm{}}}\n", pages[n])).collect();
        let text = format!("nics: {{NET0: }}\nguests:\n  a: {{kind: vm, functions: [NET0#0]}}\n{guests}");
        let model = model(&text);
        let inventory = inventory(&json!({"cpus": {"model": "Intel(R) Xeon(R)"}, "iommu_groups": "off"}));
        let mut needs = boot_needs(&model, &inventory);
        if one_word {
            needs.needs.truncate(1);
        }
        let before = BootSetup { loader: Some(BootLoader::Grubby), systemd: true, entries, ..BootSetup::default() };
        let made = make(&model, &text, &[], &needs, &before);
        let there = carried_out(&before, &made.plan);
        for (entry, was) in there.entries.iter().zip(&before.entries) {
            for word in was.split_ascii_whitespace() {
                prop_assert!(sorted(entry).contains(&word), "{word} is gone: {was} -> {entry}");
            }
            for words in needs.arguments().iter().filter(|words| !made.by_hand.contains(words)) {
                prop_assert!(is_on(entry, words), "{words} is not in {entry}");
            }
        }
        let again = make(&model, &text, &[], &needs, &there);
        prop_assert_eq!((again.plan.steps.len(), again.by_hand), (0, made.by_hand));
        let back = carried_out(&there, &undo(&made.plan));
        for (entry, was) in back.entries.iter().zip(&before.entries) {
            for word in was.split_ascii_whitespace() {
                prop_assert!(sorted(entry).contains(&word), "{word} is gone: {was} -> {entry}");
            }
            for word in entry.split_ascii_whitespace() {
                let somebodys = before.entries.iter().any(|entry| entry.split_ascii_whitespace().any(|had| had == word));
                prop_assert!(somebodys, "{word} of ours is left: {was} -> {entry}");
            }
        }
        prop_assert_eq!(back.files, before.files);
    }

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

/// A model that needs `intel_iommu=on` and `iommu=pt`, and what it needs of a machine without them.
fn two_words() -> (Model, String, BootNeeds) {
    let text = "nics: {NET0: }\nguests:\n  a: {kind: vm, functions: [NET0#0]}\n".to_owned();
    let inventory = inventory(&json!({"cpus": {"model": "Intel(R) Xeon(R)"}, "iommu_groups": "off"}));
    let model = model(&text);
    let needs = boot_needs(&model, &inventory);
    assert_eq!(needs.arguments(), ["intel_iommu=on", "iommu=pt"]);
    (model, text, needs)
}

#[test]
fn a_word_that_the_administrator_had_stays_when_another_model_does_without() {
    let (model, text, needs) = two_words();
    let before = setup(
        &json!({"loader": "kernel_install", "files": {KERNEL_COMMAND_LINE: "root=UUID=1 iommu=pt ro\n"}}),
    );
    let there = carried_out(&before, &make(&model, &text, &[], &needs, &before).plan);
    assert_eq!(there.files[KERNEL_COMMAND_LINE], "root=UUID=1 iommu=pt ro intel_iommu=on\n");
    assert_eq!(there.files[ARGUMENTS], "intel_iommu=on\n");
    // The same in other words is not said once more.
    let options = "nics: {NET0: {vfs: 1}}\n";
    let machine = json!({"kernel": {"command_line": "pci=noaer,realloc"}});
    let needs = boot_needs(&self::model(options), &inventory(&machine));
    assert_eq!(needs.arguments(), ["pci=realloc"]);
    for loader in ["kernel_install", "grubby"] {
        let line = "root=UUID=1 pci=noaer,realloc\n";
        let before =
            setup(&json!({"loader": loader, "entries": [line], "files": {KERNEL_COMMAND_LINE: line}}));
        let made = make(&self::model(options), options, &[], &needs, &before);
        assert_eq!(made.by_hand, [""; 0], "{loader}");
        assert_eq!(carried_out(&before, &made.plan).files.get(ARGUMENTS), None, "{loader}");
    }
    let bare = "nics: {NET0: }\n";
    let (model, needs) = (self::model(bare), BootNeeds::default());
    let after = carried_out(&there, &make(&model, bare, &[], &needs, &there).plan);
    assert_eq!(after.files[KERNEL_COMMAND_LINE], "root=UUID=1 iommu=pt ro\n");
}

#[test]
fn words_for_one_start_do_not_become_those_of_each() {
    let (model, text, needs) = two_words();
    let line = "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro penstock=off single systemd.unit=rescue.target init=/bin/sh rd.break S 1 emergency quiet";
    let before = setup(&json!({"loader": "kernel_install", "command_line": line}));
    let there = carried_out(&before, &make(&model, &text, &[], &needs, &before).plan);
    assert_eq!(there.files[KERNEL_COMMAND_LINE], "root=/dev/sda1 ro quiet intel_iommu=on iommu=pt\n");
    for (words, last) in [
        ("init=/usr/lib/systemd/systemd", true),
        ("rdinit=/linuxrc", true),
        ("systemd.unit=multi-user.target", true),
        ("rd.systemd.unit=emergency.target", false),
        ("systemd.unit=rescue", false),
        ("init=/usr/bin/bash", false),
        ("rdinit=/bin/busybox sh", false),
    ] {
        let before = setup(&json!({"loader": "kernel_install", "command_line": format!("ro {words}")}));
        let there = carried_out(&before, &make(&model, &text, &[], &needs, &before).plan);
        let kept = if last { format!("ro {words}") } else { "ro".to_owned() };
        assert_eq!(there.files[KERNEL_COMMAND_LINE], format!("{kept} intel_iommu=on iommu=pt\n"));
    }
}

#[test]
fn a_run_that_was_cut_off_before_the_loaders_tool_is_gone_on_with() {
    let (model, text, needs) = two_words();
    let menu = json!({"grub": {"refresh": ["update-grub"], "menu": "/boot/grub/grub.cfg"}});
    for loader in [menu, json!("kernel_install"), json!("proxmox_boot_tool"), json!("grubby")] {
        let before = setup(&json!({"loader": loader, "entries": ["quiet"], "command_line": "quiet"}));
        let whole = make(&model, &text, &[], &needs, &before);
        // All files are written, and the entries are as they were.
        let cut_off = BootSetup { entries: before.entries.clone(), ..carried_out(&before, &whole.plan) };
        let rest = make(&model, &text, &[], &needs, &cut_off);
        assert_eq!(rest.plan.steps.len(), 1, "{loader}");
        let there = carried_out(&cut_off, &rest.plan);
        assert!(there.entries.iter().all(|entry| is_on(entry, "intel_iommu=on iommu=pt")), "{loader}");
        assert!(make(&model, &text, &[], &needs, &there).plan.steps.is_empty(), "{loader}");
        // Where the entries do not tell, the run that was cut off does.
        let blind = BootSetup { entries: Vec::new(), ..cut_off };
        assert!(make(&model, &text, &[], &needs, &blind).plan.steps.is_empty(), "{loader}");
        let rest = go_on(&model, &text, &needs, &blind, &[]);
        assert_eq!(rest.plan.steps.len(), usize::from(loader != "grubby"), "{loader}");
    }
}

/// A model whose VM has so many huge pages of 1 GiB, and what it needs.
fn pages(pages: u32) -> (Model, String, BootNeeds) {
    let huge = if pages > 0 { format!(", memory: {pages}GiB, huge_pages: 1GiB") } else { String::new() };
    let text = format!("nics: {{NET0: }}\nguests:\n  a: {{kind: vm{huge}}}\n");
    let model = model(&text);
    let needs = boot_needs(&model, &inventory(&json!({"huge_pages": []})));
    assert_eq!(needs.arguments().len(), usize::from(pages > 0));
    (model, text, needs)
}

/// A model that needs `pci=realloc`, and what it needs.
fn realloc() -> (Model, &'static str, BootNeeds) {
    let text = "nics: {NET0: {vfs: 1}}\n";
    let needs = boot_needs(&model(text), &inventory(&json!({"kernel": {"command_line": "pci=realloc"}})));
    assert_eq!(needs.arguments(), ["pci=realloc"]);
    (model(text), text, needs)
}

fn every_loader() -> [Value; 4] {
    let menu = json!({"grub": {"refresh": ["update-grub"], "menu": "/boot/grub/grub.cfg"}});
    [menu, json!("kernel_install"), json!("proxmox_boot_tool"), json!("grubby")]
}

/// What of a plan is told the boot loader: what there is, and what there was.
fn told(plan: &penstock_plan::Plan) -> Option<&BootArguments> {
    plan.steps.iter().find_map(|step| match &step.action {
        Action::Boot(BootAction::SetBootArguments(arguments)) => Some(arguments),
        _ => None,
    })
}

#[test]
fn a_run_that_was_cut_off_before_the_loader_was_told_of_other_words_is_gone_on_with() {
    let (model, text, needs) = pages(4);
    for loader in every_loader() {
        let bare = setup(&json!({"loader": loader, "entries": ["quiet"], "command_line": "quiet"}));
        let before = carried_out(&bare, &make(&model, &text, &[], &needs, &bare).plan);
        assert!(is_on(&before.entries[0], "hugepagesz=1G hugepages=4"), "{loader}");
        for pages in [8, 0] {
            let (model, text, needs) = self::pages(pages);
            let whole = make(&model, &text, &[], &needs, &before).plan;
            let found = told(&whole).unwrap().before.clone();
            let mut begun = whole.clone();
            begun.steps.retain(|step| !matches!(step.action, Action::Boot(BootAction::SetBootArguments(_))));
            let cut_off = carried_out(&before, &begun);
            let rest = go_on(&model, &text, &needs, &cut_off, &found).plan;
            let there = carried_out(&cut_off, &rest);
            assert_eq!(there, carried_out(&before, &whole), "{loader}, {pages}");
            assert!(make(&model, &text, &[], &needs, &there).plan.steps.is_empty(), "{loader}, {pages}");
        }
        // Back to what it was before the run that was cut off.
        let mut cut_off = before.clone();
        cut_off.files.insert(ARGUMENTS.to_owned(), "hugepagesz=1G hugepages=8\n".to_owned());
        let rest = go_on(&model, &text, &needs, &cut_off, &["hugepagesz=1G hugepages=4".to_owned()]).plan;
        assert_eq!(carried_out(&cut_off, &rest), before, "{loader}");
    }
}

#[test]
fn words_of_ours_stay_until_a_person_has_replaced_them() {
    let text = "nics: {NET0: }\nguests:\n  a: {kind: vm, memory: 3GiB, huge_pages: 1GiB}\n  b: {kind: vm, memory: 512MiB, huge_pages: 2MiB}\n";
    let (model, ours) = (model(text), "hugepagesz=1G hugepages=2");
    let needs = boot_needs(&model, &inventory(&json!({"huge_pages": []})));
    let before = setup(
        &json!({"loader": "grubby", "entries": [format!("ro {ours}")], "files": {ARGUMENTS: format!("{ours}\n")}}),
    );
    let made = make(&model, text, &[], &needs, &before);
    assert_eq!((made.by_hand.len(), told(&made.plan)), (2, None));
    let mut there = carried_out(&before, &made.plan);
    assert_eq!(there.files[ARGUMENTS], format!("{ours}\n"));
    // What shares a word with somebody's is not taken from it; what is gone is nobody's.
    let by_hand = "hugepagesz=2M hugepages=256 hugepagesz=1G hugepages=3";
    there.entries = vec![format!("ro {by_hand} {ours}")];
    let made = make(&model, text, &[], &needs, &there);
    assert_eq!((made.by_hand.len(), told(&made.plan)), (0, None));
    there.entries = vec![format!("ro {by_hand}")];
    let made = make(&model, text, &[], &needs, &there);
    assert_eq!((made.by_hand.len(), told(&made.plan)), (0, None));
    assert_eq!(carried_out(&there, &made.plan).files.get(ARGUMENTS), None);
}

#[test]
fn words_of_ours_that_go_do_not_count_as_those_that_come() {
    let (model, text, needs) = realloc();
    let both = "pci=realloc,assign-busses";
    for loader in every_loader() {
        let line = format!("ro {both}");
        let files = json!({ARGUMENTS: format!("{both}\n"), KERNEL_COMMAND_LINE: format!("{line}\n")});
        let before = setup(&json!({"loader": loader, "entries": [line], "files": files}));
        let there = carried_out(&before, &make(&model, text, &[], &needs, &before).plan);
        assert!(has_words(&there.entries[0], "pci=realloc"), "{loader}: {:?}", there.entries);
        assert!(!has_words(&there.entries[0], both), "{loader}: {:?}", there.entries);
    }
}

#[test]
fn what_somebody_has_added_to_a_word_of_ours_stays() {
    let (model, text, needs) = realloc();
    let line = "ro pci=realloc,nocrs";
    let before =
        setup(&json!({"loader": "grubby", "entries": [line], "files": {ARGUMENTS: "pci=realloc\n"}}));
    assert_eq!(told(&make(&model, text, &[], &needs, &before).plan), None);
    let (model, text, needs) = pages(0);
    assert_eq!(told(&make(&model, &text, &[], &needs, &before).plan), None);
}

#[test]
fn to_take_back_that_all_entries_have_a_word_leaves_it_to_those_that_had_it() {
    let (model, text, needs) = two_words();
    let entries = ["ro intel_iommu=on iommu=pt", "ro"];
    let files = json!({ARGUMENTS: "intel_iommu=on\niommu=pt\n"});
    let before = setup(&json!({"loader": "grubby", "entries": entries, "files": files}));
    let made = make(&model, &text, &[], &needs, &before);
    let there = carried_out(&before, &made.plan);
    assert!(there.entries.iter().all(|entry| is_on(entry, "intel_iommu=on iommu=pt")));
    let back = carried_out(&there, &undo(&made.plan));
    assert!(is_on(&back.entries[0], "intel_iommu=on iommu=pt"), "{:?}", back.entries);
}

#[test]
fn a_loader_is_told_only_what_is_proven_afterwards() {
    let (model, text, needs) = two_words();
    let words = "intel_iommu=on iommu=pt";
    // Somebody's word that the tool does not bring to the entries is not tried again and again.
    let before = setup(
        &json!({"loader": "kernel_install", "entries": ["quiet"], "files": {KERNEL_COMMAND_LINE: format!("quiet {words}\n")}}),
    );
    assert_eq!(told(&make(&model, &text, &[], &needs, &before).plan), None);
    let entries = [words.to_owned(), "quiet".to_owned()];
    assert!(!entries_have(&BootLoader::Grubby, &entries, "iommu=pt"));
    assert!(entries_have(&BootLoader::Grubby, &entries[..1], "iommu=pt"));
    assert!(entries_have(&BootLoader::KernelInstall, &entries, "iommu=pt"));
    assert!(!entries_have(&BootLoader::KernelInstall, &entries[1..], "iommu=pt"));
}

#[test]
fn a_larger_pool_of_somebodys_is_enough() {
    let (model, text, needs) = pages(4);
    let line = "ro hugepagesz=1G hugepages=8";
    for loader in ["grubby", "kernel_install"] {
        let before =
            setup(&json!({"loader": loader, "entries": [line], "files": {KERNEL_COMMAND_LINE: line}}));
        let made = make(&model, &text, &[], &needs, &before);
        assert_eq!((made.by_hand, told(&made.plan)), (Vec::new(), None), "{loader}");
    }
}

#[test]
fn a_word_that_the_running_kernel_alone_has_is_ours() {
    let (model, text, needs) = two_words();
    for (entry, ours) in
        [("root=/dev/sda1", "intel_iommu=on\niommu=pt\n"), ("root=/dev/sda1 iommu=pt", "intel_iommu=on\n")]
    {
        let line = "root=/dev/sda1 iommu=pt";
        let before = setup(&json!({"loader": "kernel_install", "entries": [entry], "command_line": line}));
        let there = carried_out(&before, &make(&model, &text, &[], &needs, &before).plan);
        assert_eq!(there.files[ARGUMENTS], ours, "{entry}");
        assert_eq!(there.files[KERNEL_COMMAND_LINE], "root=/dev/sda1 iommu=pt intel_iommu=on\n");
    }
}

#[test]
fn a_plan_of_a_version_that_did_not_record_a_file_is_told_from_one_that_found_none() {
    let over = |json: Value| serde_json::from_value::<BootFile>(json).unwrap().over;
    assert_eq!(over(json!({"path": "/a", "text": "b"})), None);
    assert_eq!(over(json!({"path": "/a", "text": "b", "over": null})), Some(None));
    assert_eq!(over(json!({"path": "/a", "text": "b", "over": "c"})), Some(Some("c".to_owned())));
    for over in [None, Some(None), Some(Some("c".to_owned()))] {
        let file = BootFile { path: "/a".to_owned(), text: None, over };
        let read: BootFile = serde_json::from_value(serde_json::to_value(&file).unwrap()).unwrap();
        assert_eq!(read, file);
    }
}

#[test]
fn a_pool_is_there_only_as_the_kernel_takes_it() {
    let pool = "hugepagesz=1G hugepages=4";
    for (line, live) in [
        ("quiet hugepagesz=1G hugepages=4", true),
        ("hugepagesz=2M hugepages=8 hugepagesz=1G hugepages=4", true),
        ("hugepagesz=1G hugepages=8 hugepagesz=2M hugepages=4", true),
        ("hugepagesz=1G hugepages=2 hugepagesz=2M hugepages=4", false),
        ("hugepagesz=1G hugepages=2 hugepagesz=1G hugepages=4", false),
        ("hugepagesz=1024M hugepages=2 hugepagesz=1G hugepages=4", false),
        ("hugepages=4 hugepagesz=1G", false),
    ] {
        assert_eq!(is_on(line, pool), live, "{line}");
    }
    assert!(is_on("pci=noaer,realloc pci=assign-busses", "pci=realloc,assign-busses"));
    assert!(!is_on("pci=reallocate", "pci=realloc"));
}

#[test]
fn a_driver_in_the_initramfs_is_told_of_vfs_too() {
    let mut inventory = inventory(&json!({}));
    inventory.pfs[0].driver = Some("mlx4_core".to_owned());
    let bdf = inventory.pfs[0].bdf;
    let model = model(&format!("nics: {{NET0: {{match: {{bdf: \"{bdf}\"}}, vfs: 4}}}}\n"));
    let needs = boot_needs(&model, &inventory);
    assert_eq!(needs.arguments(), ["mlx4_core.num_vfs=4 mlx4_core.probe_vf=0"]);
    assert_eq!(needs.missing().count(), 2);
    inventory.pfs[0].sriov.as_mut().unwrap().num_vfs = 4;
    let needs = boot_needs(&model, &inventory);
    assert_eq!((needs.arguments().len(), needs.missing().count()), (1, 0));
    assert!(needs.needs.iter().all(|need| need.live));
}

#[test]
fn a_list_of_somebodys_that_the_kernel_keeps_to_is_told_of() {
    let model = model("nics: {NET0: }\nrealtime: {isolated: 2-3, tickless: on}\n");
    for (line, told) in [
        ("quiet", vec![]),
        ("nohz_full=1", vec!["nohz_full"]),
        ("nohz_full=1 isolcpus=managed_irq,1", vec!["nohz_full", "isolcpus"]),
        ("nohz_full=2-3", vec![]),
    ] {
        let inventory = inventory(&json!({"kernel": {"command_line": line, "release": "6.12.1"}}));
        let notes = boot_needs(&model, &inventory).notes;
        let keys: Vec<&str> = ["nohz_full", "isolcpus"]
            .into_iter()
            .filter(|key| notes.iter().any(|note| note.contains(&format!("takes another {key}= only"))))
            .collect();
        assert_eq!(keys, told, "{line}: {notes:?}");
    }
}

#[test]
fn programs_are_looked_for_at_boot_where_they_are_now() {
    let text = "nics: {NET0: }\nguests:\n  a: {}\n";
    let (model, needs) = (model(text), BootNeeds::default());
    for (search_path, line) in [
        ("/opt/lxc/bin:/opt/bin", "+Environment=PENSTOCK_PATH=/opt/lxc/bin:/opt/bin\n"),
        ("/opt/my 5% tools", "+Environment=\"PENSTOCK_PATH=/opt/my 5%% tools\"\n"),
        ("/opt/bob's", "+Environment=\"PENSTOCK_PATH=/opt/bob's\"\n"),
        ("/opt/a\tb;$c", "+Environment=\"PENSTOCK_PATH=/opt/a\tb;$c\"\n"),
    ] {
        let program = "/usr/bin/penstock";
        let search_path = Some(search_path);
        let (options, waits, cut_off) = (&[][..], Duration::ZERO, None);
        let wanted =
            Wanted { model: &model, text, program, search_path, options, needs: &needs, waits, cut_off };
        let shown = persist(&wanted, &setup(&json!({}))).shown;
        assert_eq!(shown.matches(line).count(), 2, "{shown}");
    }
    let shown = make(&model, text, &[], &needs, &setup(&json!({}))).shown;
    assert!(!shown.contains("Environment"), "{shown}");
}

#[test]
fn resctrl_is_mounted_at_boot_where_guests_have_shares_of_it() {
    for (realtime, mounted) in
        [("cache: 2", true), ("memory_bandwidth: 40%", true), ("wake_latency: 10", false)]
    {
        let text = format!("nics: {{NET0: }}\nguests:\n  a: {{pin: 1, realtime: {{{realtime}}}}}\n");
        let made = make(&model(&text), &text, &[], &BootNeeds::default(), &setup(&json!({})));
        assert_eq!(made.shown.contains("mount -t resctrl resctrl /sys/fs/resctrl"), mounted, "{realtime}");
    }
}
