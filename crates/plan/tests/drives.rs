//! VFs of a drive whose queues and namespaces go from one to another, and who must not lose or share them.

#![allow(clippy::disallowed_methods, reason = "a test reads its own folders")]

use std::{collections::BTreeMap, fs};

use penstock_model::{
    Bdf, Inventory, Model, Source,
    inventory::{FoundGuest, Lifelines, NvmeVirtualization},
};
use penstock_plan::{
    Action, ControllerResources, DriveAction, FunctionAction, Plan, PlanError, Step,
    check::{check, check_steps, simulate},
    dangers, in_use, plan, start, undo,
};

const VFS: [&str; 2] = ["0000:01:00.1", "0000:01:00.2"];

/// A drive with two VFs, each with the queue pairs and the namespaces that are given here.
fn machine(vfs: [(u16, &[u32]); 2]) -> Inventory {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/drives-otherwise/inventory.json");
    let mut inventory: Inventory = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let told = told(&mut inventory);
    (told.queues.most, told.interrupts.most) = (4, 4);
    told.namespaces.values_mut().for_each(|namespace| namespace.controllers.clear());
    for (secondary, (queues, namespaces)) in told.secondary.iter_mut().zip(vfs) {
        (secondary.queues, secondary.interrupts, secondary.online) = (queues, queues, queues > 0);
        for namespace in namespaces {
            told.namespaces.get_mut(namespace).unwrap().controllers.insert(secondary.controller);
        }
    }
    inventory
}

fn told(inventory: &mut Inventory) -> &mut NvmeVirtualization {
    inventory.nvme[0].virtualization.as_mut().unwrap()
}

fn runs(inventory: &mut Inventory, guest: &str, vf: usize) {
    let found = FoundGuest { running: true, functions: vec![bdf(vf)], ..FoundGuest::default() };
    inventory.guests.insert(guest.parse().unwrap(), found);
}

fn is_bound(inventory: &mut Inventory, vf: usize, driver: &str) {
    let sriov = inventory.nvme[0].sriov.as_mut().unwrap();
    sriov.vfs[vf].present.as_mut().unwrap().driver = Some(driver.to_owned());
}

fn is_held(inventory: &mut Inventory, vf: usize) {
    let holders = BTreeMap::from([(bdf(vf), vec!["spdk_tgt (process 77)".to_owned()])]);
    inventory.lifelines = Some(Lifelines { holders, ..Lifelines::default() });
}

fn bdf(vf: usize) -> Bdf {
    VFS[vf].parse().unwrap()
}

/// A model with these guests, each with what it has of `drives`.
fn model(guests: &[(&str, &str)]) -> Model {
    let guests: String =
        guests.iter().map(|(name, drive)| format!("  {name}: {{kind: vm, drives: [{drive}]}}\n")).collect();
    let text =
        format!("machine: nvme\ndrives:\n  SSD0: {{match: {{serial: SSD0}}, vfs: 2}}\nguests:\n{guests}");
    let source = Source::new("model.yaml", text);
    penstock_model::parse(&source).unwrap_or_else(|error| panic!("{}", error.render(&source, false))).model
}

/// The plan, which passes its check, and whose way back leads back.
fn planned(model: &Model, inventory: &Inventory) -> Plan {
    let made = plan(model, inventory).unwrap();
    assert_eq!(check(model, inventory, &made), [], "{made}");
    let after = simulate(inventory, &made);
    let back = undo(&made);
    assert_eq!(check_steps(model, &after, &back), [], "{back}");
    assert_eq!(plan(model, &after).unwrap().steps, [], "{made}");
    assert_eq!(simulate(&after, &back).nvme, inventory.nvme, "{back}");
    leads_back_from_everywhere(model, inventory, &made);
    made
}

/// Why there is no plan.
fn refused(made: Result<Plan, PlanError>) -> Vec<String> {
    match made {
        Err(PlanError::Refused(all)) => all.into_iter().map(|refusal| refusal.what).collect(),
        Ok(made) => panic!("{made}"),
        Err(error) => panic!("{error}"),
    }
}

const OWN: [(&str, &str); 2] =
    [("db-0", "{vf: SSD0#0, namespaces: [2]}"), ("db-1", "{vf: SSD0#1, namespaces: [3]}")];
const EXCHANGED: [(&str, &str); 2] =
    [("db-0", "{vf: SSD0#0, namespaces: [3]}"), ("db-1", "{vf: SSD0#1, namespaces: [2]}")];

#[test]
fn a_namespace_stays_with_the_guest_that_runs_with_it() {
    let mut inventory = machine([(3, &[2]), (3, &[3])]);
    runs(&mut inventory, "db-1", 1);
    assert_eq!(
        refused(plan(&model(&EXCHANGED), &inventory)),
        [
            "namespace 3 of SSD0 is attached to SSD0#1, with which guest db-1 runs, and SSD0#0 is to have it for db-0: two who write to one disk destroy its data"
        ]
    );
    // Both run, and nothing changes.
    runs(&mut inventory, "db-0", 0);
    assert_eq!(plan(&model(&EXCHANGED), &inventory).unwrap().steps, []);
    assert!(!plan(&model(&OWN), &machine([(3, &[2]), (3, &[3])])).unwrap().steps.is_empty());
}

#[test]
fn namespaces_are_exchanged_when_all_were_detached() {
    let made = planned(&model(&EXCHANGED), &machine([(3, &[2]), (3, &[3])]));
    let order = made.steps.iter().filter_map(|step| match step.action {
        Action::Drive(DriveAction::AttachNamespace { attached, .. }) => Some(attached),
        _ => None,
    });
    assert_eq!(order.collect::<Vec<_>>(), [false, false, true, true], "{made}");
}

#[test]
fn a_namespace_of_a_vf_that_no_guest_of_the_model_owns_is_refused() {
    let alone = model(&EXCHANGED[..1]);
    let mut inventory = machine([(3, &[2]), (3, &[3])]);
    let start = "namespace 3 of SSD0 is attached to SSD0#1, ";
    let end = ", and SSD0#0 is to have it for db-0: two who write to one disk destroy its data";
    let of = |inventory: &Inventory| {
        let all = refused(plan(&alone, inventory));
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].strip_prefix(start).unwrap().strip_suffix(end).unwrap().to_owned()
    };
    assert_eq!(of(&inventory), "which no guest of the model owns");
    is_held(&mut inventory, 1);
    assert_eq!(of(&inventory), "in use by spdk_tgt (process 77)");
    runs(&mut inventory, "of-yesterday", 1);
    assert_eq!(of(&inventory), "with which guest of-yesterday runs");
}

#[test]
fn of_two_vfs_with_one_namespace_one_is_told_of_whichever_lists_it() {
    for (listed, other) in [(0, 1), (1, 0)] {
        let guests =
            [("db-0", format!("{{vf: SSD0#{listed}, namespaces: [2]}}")), ("db-1", format!("SSD0#{other}"))];
        let guests = guests.each_ref().map(|(name, drive)| (*name, drive.as_str()));
        let mut namespaces: [&[u32]; 2] = [&[], &[]];
        namespaces[other] = &[2];
        for both in [false, true] {
            if both {
                namespaces[listed] = &[2];
            }
            let all = refused(plan(&model(&guests), &machine(namespaces.map(|all| (3, all)))));
            let expected = format!(
                "namespace 2 of SSD0 is attached to SSD0#{other}, which db-1 owns, and SSD0#{listed} is to have it for db-0: two who write to one disk destroy its data"
            );
            assert_eq!(all, [expected]);
        }
    }
    // Neither lists it.
    let neither = model(&[("db-0", "SSD0#0"), ("db-1", "SSD0#1")]);
    let inventory = machine([(3, &[2]), (3, &[2])]);
    assert_eq!(refused(plan(&neither, &inventory)).len(), 1);
    for guest in ["db-0", "db-1"] {
        assert_eq!(refused(start(&neither, &inventory, &[guest.parse().unwrap()])).len(), 1, "{guest}");
    }
}

#[test]
fn a_start_leaves_the_namespaces_of_other_guests() {
    let all =
        refused(start(&model(&EXCHANGED), &machine([(3, &[2]), (3, &[3])]), &["db-0".parse().unwrap()]));
    assert!(all.len() == 1 && all[0].contains("is attached to SSD0#1, which db-1 owns"), "{all:?}");
}

fn with_queues(of: [u16; 2]) -> Model {
    let drive = |vf: usize| format!("{{vf: SSD0#{vf}, namespaces: [{}], queues: {}}}", vf + 2, of[vf]);
    model(&[("db-0", &drive(0)), ("db-1", &drive(1))])
}

/// What a drive says after these steps. It refuses what is more than there is, and a controller that goes off line loses what it had.
fn play(inventory: &Inventory, steps: &[Step]) -> NvmeVirtualization {
    let mut told = inventory.nvme[0].virtualization.clone().unwrap();
    for step in steps {
        let Action::Drive(action) = &step.action else { continue };
        let own = told.secondary.iter_mut().find(|secondary| secondary.vf == action.vf()).unwrap();
        match *action {
            DriveAction::SetVfOnline { online, with, .. } => {
                if !online {
                    (own.queues, own.interrupts) = (0, 0);
                }
                if let Some(with) = with {
                    assert!(!own.online || !online, "{}", step.id);
                    (own.queues, own.interrupts) = (with.queues, with.interrupts);
                }
                own.online = online;
                assert!(!online || own.queues >= 2 && own.interrupts >= 1, "{}", step.id);
            }
            DriveAction::SetVfResources { queues, interrupts, .. } => {
                assert!(!own.online, "{}", step.id);
                (own.queues, own.interrupts) = (queues, interrupts);
            }
            DriveAction::AttachNamespace { namespace, attached, .. } => {
                let own = own.controller;
                let controllers = &mut told.namespaces.get_mut(&namespace).unwrap().controllers;
                assert!(if attached { controllers.insert(own) } else { controllers.remove(&own) });
            }
        }
        let held = told.secondary.iter().fold((0, 0), |(queues, interrupts), secondary| {
            (queues + u32::from(secondary.queues), interrupts + u32::from(secondary.interrupts))
        });
        assert!(held.0 <= told.queues.total && held.1 <= told.interrupts.total, "step {}: {held:?}", step.id);
    }
    told
}

/// The way back leads back after any of the steps, as the drive and the checker have it.
fn leads_back_from_everywhere(model: &Model, inventory: &Inventory, made: &Plan) {
    for steps in 0..=made.steps.len() {
        let begun = Plan { steps: made.steps[..steps].to_vec(), ..made.clone() };
        let back = undo(&begun);
        let between = simulate(inventory, &begun);
        assert_eq!(between.nvme[0].virtualization.as_ref(), Some(&play(inventory, &begun.steps)), "{begun}");
        assert_eq!(check_steps(model, &between, &back), [], "after {steps} steps of\n{made}\n{back}");
        assert_eq!(simulate(&between, &back).nvme, inventory.nvme, "after {steps} steps of\n{made}\n{back}");
        assert_eq!(Some(play(&between, &back.steps)), inventory.nvme[0].virtualization, "{back}");
    }
}

#[test]
fn queues_are_given_when_those_who_had_them_have_given_them_up() {
    for of in [[3, 1], [1, 3]] {
        let model = with_queues(of);
        let online = machine([(of[1] + 1, &[2]), (of[0] + 1, &[3])]);
        // Off line they hold them as well.
        let mut offline = online.clone();
        told(&mut offline).secondary.iter_mut().for_each(|secondary| secondary.online = false);
        for inventory in [online, offline] {
            planned(&model, &inventory);
        }
    }
}

#[test]
fn controllers_that_only_come_on_line_have_their_queues_when_they_are_off_line_again() {
    let mut inventory = machine([(3, &[2]), (3, &[3])]);
    told(&mut inventory).secondary.iter_mut().for_each(|secondary| secondary.online = false);
    let made = planned(&model(&OWN), &inventory);
    let given = |step: &Step| matches!(step.action, Action::Drive(DriveAction::SetVfResources { .. }));
    assert!(!made.steps.iter().any(given), "{made}");
}

#[test]
fn a_controller_that_goes_off_line_is_known_by_what_it_had() {
    let inventory = machine([(4, &[2]), (2, &[3])]);
    let made = planned(&with_queues([1, 3]), &inventory);
    let back = made.steps.iter().find_map(|step| match (&step.action, &step.inverse) {
        (Action::Drive(DriveAction::SetVfOnline { online: false, .. }), Some(Action::Drive(inverse))) => {
            Some(inverse.clone())
        }
        _ => None,
    });
    let told = inventory.nvme[0].virtualization.as_ref().unwrap();
    let with = Some(ControllerResources { queues: 4, interrupts: 4 });
    assert_eq!(
        back,
        Some(DriveAction::SetVfOnline {
            drive: inventory.nvme[0].bdf,
            vf: told.secondary[0].vf,
            online: true,
            with
        })
    );
}

#[test]
fn what_a_running_guest_holds_is_not_given_to_another() {
    let mut inventory = machine([(2, &[2]), (4, &[3])]);
    runs(&mut inventory, "db-1", 1);
    let made = plan(&with_queues([3, 1]), &inventory);
    let Err(PlanError::Unsupported(all)) = made else { panic!("{made:?}") };
    assert!(all[0].what.contains("need 8 pairs of queues"), "{}", all[0].what);
    // The other gets what is left.
    let mut inventory = machine([(0, &[2]), (4, &[3])]);
    runs(&mut inventory, "db-1", 1);
    let made = plan(&model(&OWN), &inventory).unwrap();
    let given = made.steps.iter().find_map(|step| match step.action {
        Action::Drive(DriveAction::SetVfResources { queues, .. }) => Some(queues),
        _ => None,
    });
    assert_eq!(given, Some(2), "{made}");
}

#[test]
fn a_driver_of_the_host_lets_go_before_its_controller_changes() {
    let mut inventory = machine([(2, &[2]), (4, &[3])]);
    is_bound(&mut inventory, 0, "nvme");
    let made = planned(&with_queues([3, 1]), &inventory);
    let unbound = made.steps.iter().position(|step| {
        matches!(&step.action, Action::Function(FunctionAction::SetDriver { function, driver: None, .. }) if *function == bdf(0))
    });
    let changed = made
        .steps
        .iter()
        .position(|step| matches!(&step.action, Action::Drive(action) if action.vf().get() == 0));
    assert!(unbound.unwrap() < changed.unwrap(), "{made}");
    let undone: Vec<_> = undo(&made).steps.into_iter().map(|step| step.action).collect();
    let bound = undone.iter().rposition(|action| matches!(action, Action::Function(FunctionAction::SetDriver { driver: Some(driver), .. }) if driver == "nvme"));
    let changed =
        undone.iter().rposition(|action| matches!(action, Action::Drive(action) if action.vf().get() == 0));
    assert!(bound.unwrap() > changed.unwrap(), "{made}");
}

#[test]
fn a_vf_that_somebody_has_open_is_refused_and_in_danger() {
    let inventory = machine([(2, &[2]), (4, &[2])]);
    let model = with_queues([3, 1]);
    let made = plan(&model, &inventory).unwrap();
    let mut held = inventory.clone();
    is_held(&mut held, 0);
    assert_eq!(
        refused(plan(&model, &held)),
        ["SSD0#0 is to go to db-0, and is in use by spdk_tgt (process 77)"]
    );
    // Whoever opened it since.
    let found = dangers(&made, &held);
    let danger = found.iter().find(|danger| danger.name == "vfs-in-use:SSD0").expect("it is in danger");
    assert!(danger.lost.contains("the controller of SSD0#0 would go off line"), "{}", danger.lost);
    assert!(danger.functions.contains(&bdf(0)));
    assert_eq!(in_use(&made, &held), [bdf(0)].into());
    assert!(in_use(&made, &inventory).is_empty());
    is_held(&mut held, 1);
    let found = dangers(&made, &held);
    assert!(found.iter().any(|danger| danger.lost.contains("SSD0#1 would lose namespace 2")), "{found:?}");
}
