//! What is planned while a machine is started, when much of it is not there yet and nobody's guest is to hold all others up.
#![allow(clippy::disallowed_methods, reason = "a test reads its own folders")]

use std::{fs, path::PathBuf};

use penstock_model::{Inventory, Model, Source, inventory::tuning::Reading};
use penstock_plan::{
    Action, FunctionAction, Plan, RealTimeAction, check::check_steps, modes_not_known, not_there_yet, plan,
    plan_without_guests,
};

fn parsed(text: &str) -> Model {
    let source = Source::new("model.yaml", text);
    penstock_model::parse(&source).unwrap_or_else(|error| panic!("{}", error.render(&source, false))).model
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden")).join(name)
}

fn case(name: &str) -> (Model, Inventory) {
    let model = parsed(&fs::read_to_string(folder(name).join("model.yaml")).unwrap());
    (model, serde_json::from_slice(&fs::read(folder(name).join("inventory.json")).unwrap()).unwrap())
}

fn makes_vfs(plan: &Plan) -> bool {
    let makes = |action: &Action| matches!(action, Action::Function(FunctionAction::SetVfCount { .. }));
    plan.steps.iter().any(|step| makes(&step.action))
}

#[test]
fn whatever_can_be_planned_can_be_without_guests_too() {
    let mut cases = 0;
    for entry in fs::read_dir(folder("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let (model, inventory) = case(&name);
        let Ok(whole) = plan(&model, &inventory) else { continue };
        let early = plan_without_guests(&model, &inventory).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(early.steps.iter().all(|step| step.guest.is_none()), "{name}\n{early}");
        assert_eq!(check_steps(&model, &inventory, &early), [], "{name}\n{early}");
        assert_eq!(makes_vfs(&early), makes_vfs(&whole), "{name}\n{early}");
        cases += 1;
    }
    assert!(cases > 30, "{cases}");
}

#[test]
fn what_stands_against_a_guest_keeps_no_vfs_away() {
    for (name, why) in [
        ("realtime-no-resctrl", None),
        ("realtime-too-many-ways", None),
        ("realtime-siblings-of-two", Some("would share a core")),
        ("realtime-no-such-cpus", Some("CPU")),
    ] {
        let text = fs::read_to_string(folder(name).join("model.yaml")).unwrap();
        let model = parsed(&text.replace("{NET0: }", "{NET0: {vfs: 2}}"));
        let (_, mut inventory) = case(name);
        for pf in &mut inventory.pfs {
            if let Some(sriov) = &mut pf.sriov {
                sriov.num_vfs = 0;
                sriov.vfs.iter_mut().for_each(|vf| vf.present = None);
            }
        }
        assert!(plan(&model, &inventory).is_err(), "{name}");
        let early = plan_without_guests(&model, &inventory).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(makes_vfs(&early), "{name}\n{early}");
        let notes = early.notes.join("\n");
        assert_eq!(notes.contains("are left for later"), why.is_some(), "{name}: {notes}");
        assert!(notes.contains(why.unwrap_or_default()), "{name}: {notes}");
    }
}

#[test]
fn shares_are_for_when_guests_start() {
    let (model, inventory) = case("realtime-both");
    let shares = |plan: &Plan| {
        let of_guests = |action: &Action| {
            matches!(
                action,
                Action::RealTime(
                    RealTimeAction::MakeResctrlGroup { .. } | RealTimeAction::SetSchemata { .. }
                )
            )
        };
        plan.steps.iter().filter(|step| of_guests(&step.action)).count()
    };
    assert!(shares(&plan(&model, &inventory).unwrap()) > 0);
    assert_eq!(shares(&plan_without_guests(&model, &inventory).unwrap()), 0);
}

#[test]
fn a_nic_is_waited_for_until_it_has_its_driver_and_its_interface() {
    let (_, whole) = case("vm");
    let bdf = whole.pfs[0].bdf;
    let model =
        |guests: &str| parsed(&format!("nics:\n  NET0: {{match: {{bdf: \"{bdf}\"}}, vfs: 2}}\n{guests}"));
    let plain = model("");
    let lacking = |model: &Model, change: &dyn Fn(&mut Inventory)| {
        let mut inventory = whole.clone();
        change(&mut inventory);
        not_there_yet(model, &inventory)
    };
    assert_eq!(lacking(&plain, &|_| {}), [""; 0]);
    let no_interface = |inventory: &mut Inventory| inventory.pfs[0].interface = None;
    let no_driver = |inventory: &mut Inventory| {
        inventory.pfs[0].driver = None;
        inventory.pfs[0].interface = None;
    };
    assert_eq!(lacking(&plain, &no_interface), [format!("NET0 ({bdf}) has no network interface of igb")]);
    assert_eq!(lacking(&plain, &no_driver), [format!("NET0 ({bdf}) has no driver")]);
    let nothing = lacking(&plain, &|inventory| inventory.pfs.clear());
    assert!(nothing[0].starts_with("nics.NET0.match: no PF of this machine has"), "{nothing:?}");
    // What others make is not for us to wait for.
    let external =
        parsed(&format!("nics:\n  NET0: {{match: {{bdf: \"{bdf}\"}}, vfs: 2, externally_managed: true}}\n"));
    assert_eq!(lacking(&external, &no_driver), [""; 0]);
    let of_a_container = parsed(&format!(
        "nics:\n  NET0: {{match: {{bdf: \"{bdf}\"}}}}\nguests:\n  a: {{kind: container, functions: [NET0]}}\n"
    ));
    assert_eq!(lacking(&of_a_container, &no_interface).len(), 1);
}

#[test]
fn a_drive_is_waited_for_until_it_answers() {
    let (model, mut inventory) = case("drives");
    assert_eq!(not_there_yet(&model, &inventory), [""; 0]);
    let first = inventory.nvme[0].bdf;
    inventory.nvme[0].driver = None;
    inventory.nvme[0].name = None;
    let lacking = not_there_yet(&model, &inventory);
    assert!(
        lacking.iter().any(|what| what.contains(&format!("{first}) does not answer through nvme"))),
        "{lacking:?}"
    );
    inventory.nvme.clear();
    assert!(!not_there_yet(&model, &inventory).is_empty());
}

#[test]
fn a_share_of_bandwidth_is_refused_where_it_is_no_percentage() {
    let (model, whole) = case("realtime-both");
    let refused = |change: &dyn Fn(&mut Inventory)| {
        let mut inventory = whole.clone();
        change(&mut inventory);
        plan(&model, &inventory).err().map(|error| error.in_one_line())
    };
    assert_eq!(refused(&|_| {}), None);
    let epyc = refused(&|inventory| inventory.cpus.model = "AMD EPYC 9354".to_owned());
    assert!(epyc.clone().unwrap().contains("in eighths of a GB/s"), "{epyc:?}");
    let in_megabytes = refused(&|inventory| {
        let Some(tuning) = &mut inventory.tuning else { return };
        let Reading::Is(resctrl) = &mut tuning.resctrl else { return };
        for share in resctrl.groups.get_mut("").unwrap().schemata.get_mut("MB").unwrap().values_mut() {
            *share = u64::from(u32::MAX);
        }
    });
    assert!(in_megabytes.clone().unwrap().contains("mba_MBps"), "{in_megabytes:?}");
}

#[test]
fn a_mode_of_an_embedded_switch_is_waited_for_until_devlink_tells_it() {
    let waited_for = |name: &str| {
        let (model, inventory) = case(name);
        assert_eq!(not_there_yet(&model, &inventory), [""; 0], "{name}");
        modes_not_known(&model, &inventory)
    };
    for known in ["eswitch", "eswitch-of-no-firmware", "eswitch-without-best-effort"] {
        assert_eq!(waited_for(known), [""; 0], "{known}");
    }
    let unknown = waited_for("eswitch-unanswered");
    assert!(unknown.len() == 1 && unknown[0].contains("within 5.0 s"), "{unknown:?}");
    // Its driver is there, and its devlink not yet.
    let early = waited_for("eswitch-tells-none");
    assert!(early.len() == 1 && early[0].contains("tells none now"), "{early:?}");
    assert_eq!(waited_for("eswitch-without").len(), 1);
}
