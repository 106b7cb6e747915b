//! The mode of the embedded switch.

use penstock_model::{
    Outcome,
    inventory::{Devlink, Eswitch, EswitchMode},
};

use super::world::{MODEL, World, world_of};

/// The machine of these tests under a model that wants this mode, of which devlink told this.
fn machine(wanted: &str, devlink: Option<Devlink>) -> World {
    let mut world = world_of(&MODEL.replace("loopback: true", wanted));
    world.inventory.pfs[0].devlink = devlink;
    world.inventory.pfs[0].driver = Some("ice".to_owned());
    world
}

/// What comes of it: the outcome, and what was seen.
fn judged(world: &World) -> (Outcome, String) {
    let verdicts = world.verify();
    let mut of_mode = verdicts.iter().filter(|verdict| verdict.attribute == "eswitch");
    let verdict = of_mode.next().expect("there is a verdict");
    assert!(of_mode.next().is_none() && verdict.subject.to_string() == "NET0");
    (verdict.outcome, verdict.seen.clone())
}

fn told(mode: EswitchMode) -> Option<Devlink> {
    let eswitch = Eswitch { mode, inline_mode: None, encap_mode: None };
    Some(Devlink { eswitch: Some(eswitch), ..Devlink::default() })
}

#[test]
fn the_mode_that_devlink_told_is_the_one_that_is_wanted_or_not() {
    use EswitchMode::{Legacy, Switchdev, SwitchdevInactive};
    for (wanted, is, outcome) in [
        ("eswitch: legacy", Legacy, Outcome::Pass),
        ("eswitch: legacy", Switchdev, Outcome::Fail),
        ("eswitch: switchdev", Switchdev, Outcome::Pass),
        ("eswitch: switchdev", Legacy, Outcome::Fail),
        ("eswitch: switchdev", SwitchdevInactive, Outcome::Fail),
    ] {
        assert_eq!(judged(&machine(wanted, told(is))), (outcome, is.to_string()), "{wanted}");
    }
    let verdicts = machine("loopback: true", told(Switchdev)).verify();
    assert!(verdicts.iter().all(|verdict| verdict.attribute != "eswitch"), "nobody wants one");
}

#[test]
fn what_could_not_be_asked_is_not_known() {
    let (outcome, seen) = judged(&machine("eswitch: legacy", None));
    assert_eq!((outcome, &seen[..]), (Outcome::Unknown, "devlink was not asked for it"));
    let late =
        Devlink { unread: Some("no answer within 5.0 s".to_owned()), ..told(EswitchMode::Legacy).unwrap() };
    let (outcome, seen) = judged(&machine("eswitch: legacy", Some(late)));
    assert_eq!((outcome, &seen[..]), (Outcome::Unknown, "no answer within 5.0 s"));
    // Best effort is about what a driver lacks.
    let lenient = machine("eswitch: legacy\n    best_effort: [eswitch]", None);
    let verdicts = lenient.verify();
    let of_mode = verdicts.iter().find(|verdict| verdict.attribute == "eswitch").unwrap();
    assert!(!of_mode.holds(), "{of_mode:?}");
}

#[test]
fn a_driver_without_modes_is_as_legacy_is() {
    // igb has none, whoever asks; what another has is known when root has asked.
    for (driver, no_modes) in [("igb", false), ("octeontx2", true)] {
        let with = |wanted: &str| {
            let mut world = machine(wanted, Some(Devlink { no_modes, ..Devlink::default() }));
            world.inventory.pfs[0].driver = Some(driver.to_owned());
            world
        };
        let (outcome, seen) = judged(&with("eswitch: legacy"));
        assert_eq!(outcome, Outcome::Pass);
        assert_eq!(seen, format!("driver {driver} has no modes of the embedded switch"));
        assert_eq!(judged(&with("eswitch: switchdev")).0, Outcome::Unsupported);
    }
    let mut lenient = machine("eswitch: switchdev\n    best_effort: [eswitch]", None);
    lenient.inventory.pfs[0].driver = Some("igb".to_owned());
    let verdicts = lenient.verify();
    assert!(verdicts.iter().find(|verdict| verdict.attribute == "eswitch").unwrap().holds());
}

#[test]
fn who_is_not_told_whether_there_are_modes_does_not_know_it() {
    let with = |driver: &str, no_modes| {
        let mut world = machine("eswitch: legacy", Some(Devlink { no_modes, ..Devlink::default() }));
        world.inventory.pfs[0].driver = Some(driver.to_owned());
        judged(&world)
    };
    // A scan without root.
    assert_eq!(with("octeontx2", false).0, Outcome::Unknown);
    // mlx5_core before Linux 6.0, without VFs.
    let (outcome, seen) = with("mlx5_core", true);
    assert!(outcome == Outcome::Unknown && seen.contains("tells none now"), "{seen}");
}
