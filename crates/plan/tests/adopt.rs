//! A machine read into a model: the file is a good model, and its plan on that machine is empty.

#![allow(clippy::disallowed_methods, reason = "a test reads its own folders")]

mod external;
mod support;

use std::{collections::BTreeMap, fs, path::Path};

use external::handed_over;
use penstock_model::{Boot, GuestKind, GuestName, Inventory, Model, Source};
use penstock_plan::{
    Action, FunctionAction, GuestAction,
    action::GuestDefinition,
    adopt::{ImportInput, adopt},
    check::{check, simulate},
    plan,
};
use proptest::prelude::*;
use support::{Dice, Size, machine};

/// The file, its model, and that the plan of it is empty.
fn adopted(
    inventory: &Inventory,
    definitions: &BTreeMap<GuestName, GuestDefinition>,
) -> Option<(String, Model)> {
    let strangers = BTreeMap::new();
    let sight = ImportInput { host: Some("xeon-d"), inventory, definitions, strangers: &strangers };
    let text = adopt(sight)?;
    let source = Source::new("machine.yaml", text.clone());
    let model = penstock_model::parse(&source)
        .unwrap_or_else(|error| panic!("{text}{}", error.render(&source, false)))
        .model;
    let made = plan(&model, inventory).unwrap_or_else(|error| panic!("{text}{error}"));
    // What managers of interfaces were told stays behind where guests died, or were not started yet; then the file says so.
    let said = made
        .steps
        .iter()
        .filter(|step| matches!(step.action, Action::Function(FunctionAction::LeaveAlone { .. })))
        .count();
    assert_eq!(made.steps.len(), said, "{text}{made}");
    assert_eq!(text.contains("# But for what others are told"), said > 0, "{text}");
    assert_eq!(check(&model, inventory, &made), [], "{text}");
    assert_eq!(model.machine, "xeon-d");
    Some((text, model))
}

fn read(path: &Path) -> Inventory {
    serde_json::from_slice(&fs::read(path).unwrap())
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_recorded_machine_is_read_into_a_model_that_changes_nothing() {
    let mut cases = 0;
    let golden = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden")).unwrap();
    let folders = golden.map(|case| case.unwrap().path().join("inventory.json"));
    let recorded =
        fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../testkit/fixtures/inventory")).unwrap();
    let files = recorded
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"));
    for path in folders.chain(files) {
        let inventory = read(&path);
        match adopted(&inventory, &BTreeMap::new()) {
            Some((text, model)) => {
                assert!(model.nics.len() <= inventory.pfs.len(), "{text}");
                cases += 1;
            }
            None => assert!(inventory.pfs.is_empty(), "{}", path.display()),
        }
    }
    assert!(cases > 40, "only {cases} machines were read");
}

/// The whole text for a machine whose VFs somebody made by hand, and for one that Penstock made: read it in a review.
#[test]
fn the_file_is_as_it_was() {
    for name in ["external-applied", "already-applied"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
        let (text, _) = adopted(&read(&folder.join("inventory.json")), &BTreeMap::new()).unwrap();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/adopted").join(format!("{name}.yaml"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&file, &text).unwrap();
        }
        assert_eq!(text, fs::read_to_string(&file).unwrap_or_default(), "{}", file.display());
    }
}

const SMALL: Size = Size { nics: 3, vfs: 5, guests: 4 };

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_machine_is_read_into_a_model_that_changes_nothing(seed: u64, outside: bool) {
        let (mut model, mut inventory) = machine(seed, &SMALL);
        if outside {
            handed_over(&mut model, &mut inventory);
        }
        adopted(&inventory, &BTreeMap::new()).unwrap();
        let made = plan(&model, &inventory).unwrap();
        // Half-way too: whatever state a machine is left in.
        let steps = Dice(seed).below(made.steps.len() as u64 + 1) as usize;
        let mut half = made.clone();
        half.steps.truncate(steps);
        adopted(&simulate(&inventory, &half), &BTreeMap::new()).unwrap();

        // What Penstock made is read back as it was made.
        let after = simulate(&inventory, &made);
        let definitions: BTreeMap<GuestName, GuestDefinition> = made
            .steps
            .iter()
            .filter_map(|step| match &step.action {
                Action::Guest(GuestAction::DefineGuest(definition)) => Some((definition.guest.clone(), definition.clone())),
                _ => None,
            })
            .collect();
        let (text, read) = adopted(&after, &definitions).unwrap();
        prop_assert_eq!(plan(&read, &after).unwrap().steps, vec![], "{}", text);
        for (name, nic) in &model.nics {
            let found = read.nics.iter().find(|(found, _)| {
                plan(&read, &after).unwrap().nics[*found] == made.nics[name]
            });
            let (_, found) = found.unwrap_or_else(|| panic!("{name} is missing in {text}"));
            if nic.externally_managed {
                let known = inventory.pf(made.nics[name]).unwrap().sriov.as_ref().unwrap().num_vfs;
                prop_assert_eq!(found.vfs, known);
            } else {
                prop_assert!(!found.externally_managed, "{}", text);
                prop_assert_eq!(found.vfs, nic.vfs);
            }
        }
        for (name, guest) in &model.guests {
            let found = &read.guests.get(name).unwrap_or_else(|| panic!("{name} is missing in {text}"));
            prop_assert_eq!(found.kind, guest.kind);
            prop_assert_eq!(found.functions.len(), guest.functions.len(), "{}", text);
            let inside = |guest: &penstock_model::Guest| {
                let inside = guest.functions.iter().map(|function| (function.interface.clone(), function.addresses.clone(), function.routes.clone(), function.dhcp));
                inside.collect::<Vec<_>>()
            };
            prop_assert_eq!(inside(found), inside(guest));
            // What it boots sets its resolver up by itself, and of files that are made nothing is known.
            let by_itself = guest.kind == GuestKind::Vm && guest.vm.boot != Boot::Builtin;
            prop_assert_eq!(&found.dns, &guest.dns.clone().filter(|_| !by_itself));
        }
    }

    /// Whatever the kernel calls an interface, and a driver calls itself, is quoted and read back.
    #[test]
    fn hostile_names_are_quoted(name in "[!-~]{1,15}", driver in "\\PC{0,30}") {
        let Ok(name) = name.parse::<penstock_model::InterfaceName>() else { return Ok(()) };
        let (_, mut inventory) = machine(7, &Size { nics: 1, vfs: 2, guests: 1 });
        let pf = &mut inventory.pfs[0];
        pf.sriov.as_mut().unwrap().num_vfs = 0;
        pf.sriov.as_mut().unwrap().vfs.iter_mut().for_each(|vf| vf.present = None);
        let interface = pf.interface.as_mut().unwrap();
        (interface.name, interface.up) = (name.clone(), true);
        let known = pf.driver.clone();
        let (_, model) = adopted(&inventory, &BTreeMap::new()).unwrap();
        prop_assert_eq!(model.nics["NET0"].interface.as_ref(), Some(&name));
        inventory.pfs[0].driver = Some(driver).filter(|driver| Some(driver) != known.as_ref());
        inventory.unknown.push("a\nguests: {}\r\u{85}x: #\u{2028}y".to_owned());
        adopted(&inventory, &BTreeMap::new()).unwrap();
    }
}
