//! What only frames show of spoof checks and rates.

use std::time::Duration;

use penstock_host::InterfaceReport;
use penstock_model::{
    FreeDriver, FunctionName, Outcome, TxRate, Verdict, inventory::SwitchMode, pci::PciIds,
};

use super::world::{self, GuestAnswer, MODEL, Source, World, mac, parse, world, world_of};
use crate::{Barrier, Expectation, LINK_OF_PROOF, awaited, reach};

/// The verdicts of an attribute that frames decided, as `subject (vantage): outcome, seen`.
fn proofs(verdicts: &[Verdict], attribute: &str) -> Vec<String> {
    (verdicts.iter())
        .filter(|verdict| {
            verdict.attribute == attribute
                && (verdict.wanted.contains("arrive") || verdict.wanted.contains("frames"))
        })
        .map(|verdict| {
            let Verdict { subject, vantage, outcome, seen, .. } = verdict;
            let held = if verdict.holds() { "" } else { ", does not hold" };
            format!("{subject} ({vantage}): {outcome}, {seen}{held}")
        })
        .collect()
}

fn imitated(world: &mut World) {
    world.inventory.pfs[0].identity.ids =
        PciIds { vendor: 0x8086, device: 0x10c9, subsystem_vendor: 0x1af4, subsystem: 0x1100 };
}

#[test]
fn a_spoof_check_passes_when_the_forged_frame_alone_is_lost() {
    let seen = proofs(&world().verify(), "spoofchk");
    assert_eq!(seen, ["NET0#3 (inside a): pass, it does not, and one from its own address does"]);
}

#[test]
fn a_forged_frame_that_arrives_fails_though_the_driver_reports_the_check() {
    let mut world = world();
    world.forging.insert("NET0#3");
    let verdicts = world.verify();
    assert_eq!(
        proofs(&verdicts, "spoofchk"),
        ["NET0#3 (inside a): fail, the forged frame arrives, does not hold"]
    );
    // The driver itself sees nothing wrong.
    let told = verdicts.iter().find(|verdict| verdict.attribute == "spoofchk" && verdict.wanted == "on");
    assert_eq!(told.map(|verdict| verdict.outcome), Some(Outcome::Pass));
}

#[test]
fn a_nic_that_is_emulated_and_pretends_is_told_of_and_held_against_nobody() {
    let mut world = world();
    world.forging.insert("NET0#3");
    imitated(&mut world);
    let verdicts = world.verify();
    assert_eq!(
        proofs(&verdicts, "spoofchk"),
        [
            "NET0#3 (inside a): unsupported, accepted, and not enforced by this emulated NIC: the forged frame arrives"
        ]
    );
    assert!(verdicts.iter().all(Verdict::holds));
    // One that does it is seen to.
    world.forging.clear();
    assert!(proofs(&world.verify(), "spoofchk")[0].contains("pass"));
}

#[test]
fn a_check_that_is_to_be_off_lets_frames_of_other_addresses_pass() {
    let mut world = world_of(&super::MODEL.replace("spoofchk: on", "spoofchk: off"));
    world.vf(3).spoofchk = Some(false);
    let fails = "NET0#3 (inside a): fail, it does not, and one from its own address does, does not hold";
    assert_eq!(proofs(&world.verify(), "spoofchk"), [fails]);
    world.forging.insert("NET0#3");
    assert_eq!(proofs(&world.verify(), "spoofchk"), ["NET0#3 (inside a): pass, it arrives"]);
}

#[test]
fn silence_proves_nothing_where_no_other_frame_arrives() {
    let mut world = world();
    world.lost.insert(("NET0#3", "NET0#1"));
    let seen = proofs(&world.verify(), "spoofchk");
    let why = "not even a frame from its own address arrives";
    assert_eq!(seen, [format!("NET0#3 (inside a): unknown, {why}, does not hold")]);
    // It arrived before, and not beside the forged one.
    world.lost.clear();
    world.fading.insert(("NET0#3", "NET0#1"));
    let seen = proofs(&world.verify(), "spoofchk");
    let why = "not even a frame from its own address arrives beside it";
    assert_eq!(seen, [format!("NET0#3 (inside a): unknown, {why}, does not hold")]);
    let mut world = self::world();
    world.blind.insert(Source::Frames);
    let seen = proofs(&world.verify(), "spoofchk");
    assert!(seen.len() == 1 && seen[0].contains("unknown") && seen[0].ends_with("does not hold"), "{seen:?}");
}

#[test]
fn forged_frames_go_only_where_the_model_has_frames_pass_inside_the_nic() {
    for model in [
        super::MODEL.replace("loopback: true", "loopback: off"),
        super::MODEL.replace("    loopback: true\n", ""),
        super::MODEL.replace("vlan: 100, qos", "vlan: 101, qos"),
    ] {
        let mut world = world_of(&model);
        // Would be seen, if any were sent.
        world.forging.insert("NET0#3");
        assert_eq!(proofs(&world.verify_with(true), "spoofchk"), [""; 0]);
        assert_eq!(*world.loads.borrow(), 0);
    }
}

#[test]
fn nothing_is_forged_where_nobody_knows_whether_frames_leave_the_nic() {
    let mut world = world();
    world.forging.insert("NET0#3");
    for (mode, why) in [
        (Ok(SwitchMode::Vepa), "the NIC sends every frame out (VEPA), and a forged one is not to get there"),
        (Err("cut off".to_owned()), "whether the NIC sends every frame out is not known (cut off)"),
    ] {
        world.sight.switch_mode = mode;
        let expected = format!("NET0#3 (inside a): unknown, not tried: {why}, does not hold");
        assert_eq!(proofs(&world.verify(), "spoofchk"), [expected]);
    }
}

#[test]
fn what_the_driver_lacks_is_told_once() {
    let mut world = world();
    world.vf(3).spoofchk = None;
    world.forging.insert("NET0#3");
    assert_eq!(proofs(&world.verify(), "spoofchk"), [""; 0]);
    world.sight.vfs.clear();
    assert_eq!(proofs(&world.verify_with(true), "max_tx_rate"), [""; 0]);
    assert_eq!(*world.loads.borrow(), 0);
}

#[test]
fn forged_frames_are_sent_from_inside_a_vm_that_can() {
    let mut world = world_of(&super::MODEL.replace("  b:\n", "  b:\n    kind: vm\n"));
    world.said.insert("b".to_owned(), GuestAnswer::Agent { program: true });
    assert_eq!(
        proofs(&world.verify_with(true), "spoofchk"),
        ["NET0#3 (inside a): pass, it does not, and one from its own address does"]
    );
    world.forging.insert("NET0#3");
    assert!(proofs(&world.verify(), "spoofchk")[0].contains("fail, the forged frame arrives"));
    // No load is sent from there.
    let seen = proofs(&world.verify_with(true), "max_tx_rate");
    assert_eq!(seen, ["NET0#3 (inside a): unknown, frames are sent or received inside a VM"]);
    assert_eq!(*world.loads.borrow(), 0);
}

#[test]
fn a_rate_is_tried_only_when_a_load_is_asked_for() {
    let world = world();
    assert_eq!(proofs(&world.verify(), "max_tx_rate"), [""; 0]);
    assert_eq!(*world.loads.borrow(), 0);
    let seen = proofs(&world.verify_with(true), "max_tx_rate");
    assert_eq!(seen, ["NET0#3 (inside a): pass, 100.0 Mbit/s arrive"]);
    assert_eq!(*world.loads.borrow(), 1);
}

#[test]
fn more_than_the_rate_fails_and_less_proves_nothing() {
    let mut world = world();
    world.speed = 13_500_000;
    let fails = "NET0#3 (inside a): fail, 108.0 Mbit/s arrive, does not hold";
    assert_eq!(proofs(&world.verify_with(true), "max_tx_rate"), [fails]);
    imitated(&mut world);
    let pretends = "NET0#3 (inside a): unsupported, accepted, and not enforced by this emulated NIC: 108.0 Mbit/s arrive";
    assert_eq!(proofs(&world.verify_with(true), "max_tx_rate"), [pretends]);
    world.speed = 6_250_000;
    let seen = proofs(&world.verify_with(true), "max_tx_rate");
    assert_eq!(
        seen,
        [
            "NET0#3 (inside a): unknown, the limit was not reached: 50.0 Mbit/s is all that got through from here, and \
             nothing is proven above that"
        ]
    );
    assert_eq!(*world.loads.borrow(), 4, "it is tried once more");
    // The driver may well report another rate than the one that is wanted: what arrives is held against the model.
    world.vf(3).max_tx_rate = TxRate(0);
    assert!(!world.verify_with(true).iter().all(Verdict::holds));
}

/// A driver registers its interface a while after it has the VF, and after the host's interfaces were listed.
#[test]
fn an_interface_of_a_free_vf_that_comes_late_is_seen() {
    let mut world = world();
    world.model.nics[0].free_driver = Some(FreeDriver::Host);
    world.inside.get_mut("").unwrap().retain(|report| report.interface.name.as_str() != "lan0v4");
    world.free_vf(|vf| vf.interfaces = vec!["lan0v4".to_owned()]);
    *world.late.borrow_mut() = 3;
    world.timeout = Duration::from_secs(60);
    let verdicts = world.verify();
    let driver = verdicts.iter().find(|of| of.subject.to_string() == "NET0#4" && of.attribute == "driver");
    assert_eq!(driver.unwrap().outcome, Outcome::Pass, "{driver:?}");
    assert_eq!(*world.late.borrow(), 0);
}

/// An end without a carrier proves that nothing arrives where that is what keeps frames from it; others are waited for, not for long.
#[test]
fn an_end_without_a_carrier_proves_its_own_barrier_alone() {
    let model = MODEL.replace("- {vf: NET0#0, address", "- {vf: NET0#0, link_state: disable, address");
    let model = parse(&model);
    let owners = model.function_owners();
    let [disabled, tagged, other]: [FunctionName; 3] =
        ["NET0#0", "NET0#1", "NET0#2"].map(|name| name.parse().unwrap());
    for (end, barrier, proves) in [
        (&disabled, Barrier::LinkDisabled, true),
        (&other, Barrier::LinkDisabled, false),
        (&other, Barrier::NotCabled, true),
        (&disabled, Barrier::NotCabled, true),
        (&tagged, Barrier::Vlan, false),
        (&other, Barrier::LoopbackOff, false),
    ] {
        assert_eq!(reach::is_proof(&owners, end, barrier), proves, "{end}");
    }
    let tried = [(&disabled, &other, Barrier::LinkDisabled), (&tagged, &disabled, Barrier::NotCabled)];
    let tried = tried.map(|(from, to, barrier)| reach::Path {
        from: from.clone(),
        to: to.clone(),
        expectation: Expectation::Isolated(barrier),
    });
    let paths = reach::Paths { tried: tried.into() };
    assert_eq!(paths.parted(&owners).collect::<Vec<_>>(), [&other]);
    let whole = Duration::from_secs(30);
    let waits = awaited(&[&tagged].into(), paths.parted(&owners), whole);
    assert_eq!(waits, [(&tagged, whole), (&other, LINK_OF_PROOF)].into());
    // Who is to be reached has the whole time, whatever else is asked of him.
    assert_eq!(awaited(&[&other].into(), [&other], whole), [(&other, whole)].into());
}

/// The outcome of a path, and what was seen.
fn path(world: &World, subject: &str) -> (Outcome, String) {
    let verdicts = world.verify();
    let of = verdicts.iter().find(|verdict| verdict.subject.to_string() == subject).unwrap();
    (of.outcome, of.seen.clone())
}

#[test]
fn silence_proves_nothing_where_an_end_was_lost_meanwhile() {
    type Change = fn(&mut World);
    let changes: [(&str, Change); 4] = [
        ("its interface eth1 lost its carrier", |w| w.later("a", "eth1").interface.carrier = Some(false)),
        ("its interface eth1 went down", |w| w.later("a", "eth1").interface.up = false),
        ("its interface eth1 went away", |w| w.later("a", "eth1").index += 100),
        ("it cannot be seen", |w| drop(w.later.insert("a".to_owned(), None))),
    ];
    for (why, change) in changes {
        let mut world = world();
        change(&mut world);
        for isolated in ["NET0#1 -> NET0#2", "NET0#2 -> NET0#1"] {
            let (outcome, seen) = path(&world, isolated);
            assert!(seen.starts_with("NET0#1: ") && seen.contains(why), "{isolated}: {seen}");
            assert_eq!(outcome, Outcome::Unknown, "{isolated}: {seen}");
        }
        assert_eq!(path(&world, "NET0#3 -> NET0#2").0, Outcome::Pass, "{why}");
        // What has arrived has arrived.
        assert_eq!(path(&world, "NET0#1 -> NET0#3").0, Outcome::Pass, "{why}");
        world.lost.extend([("NET0#1", "NET0#3"), ("NET0#2", "NET0")]);
        assert_eq!(path(&world, "NET0#1 -> NET0#3").0, Outcome::Unknown, "{why}");
        assert_eq!(path(&world, "NET0#2 -> NET0").0, Outcome::Fail, "{why}");
    }
    let mut world = world();
    world.later("", "lan0").interface.carrier = Some(false);
    assert_eq!(path(&world, "NET0#1 -> NET0").0, Outcome::Unknown, "an end on the host");
    // Where frames are to arrive, a link that was down before is why they do not.
    world.interface("", "lan0").interface.carrier = Some(false);
    world.lost.insert(("NET0#2", "NET0"));
    assert_eq!(path(&world, "NET0#2 -> NET0").0, Outcome::Fail);
}

/// The link that is to be down may go down late.
#[test]
fn a_carrier_that_is_lost_proves_the_barrier_that_it_is() {
    let model = MODEL.replace("- {vf: NET0#0, address", "- {vf: NET0#0, link_state: disable, address");
    let mut world = world_of(&model);
    let functions = ["NET0", "NET0#1", "NET0#2", "NET0#3"];
    world.lost = functions.iter().flat_map(|other| [("NET0#0", *other), (*other, "NET0#0")]).collect();
    world.later("a", "eth0").interface.carrier = Some(false);
    assert_eq!(path(&world, "NET0#0 -> NET0#2").0, Outcome::Pass);
    world.later("b", "eth0").interface.carrier = Some(false);
    assert_eq!(path(&world, "NET0#0 -> NET0#2").0, Outcome::Unknown);
}

/// A PF has the device of its representors, too; and a function may have several interfaces.
#[test]
fn a_functions_interface_is_the_first_that_is_its_own() {
    let mut world = world();
    let pf = world::bdf("04:00.0");
    let other = |number, name| world::report(number, name, mac("02:ee:ee:ee:ee:ee"), pf, &[]);
    let host = world.inside.get_mut("").unwrap();
    host.insert(0, InterfaceReport { port_name: Some("pf0vf3".to_owned()), ..other(30, "rep3") });
    host.push(other(31, "lan9"));
    assert_eq!(world.not_passed(), Vec::<String>::new());
}

/// What is reported of VFs is found by their indices, also where not all are reported.
#[test]
fn a_vf_that_the_driver_does_not_report_is_no_other_one() {
    let mut world = world();
    world.sight.vfs.remove(1);
    let not_passed = world.not_passed();
    assert!(
        !not_passed.is_empty() && not_passed.iter().all(|of| of.starts_with("NET0#1 ")),
        "{not_passed:?}"
    );
}

/// A network plugin restores the VF and then removes its record, as soon as the PF was asked.
#[test]
fn a_vf_that_is_given_back_once_its_pf_was_asked_is_no_drift() {
    let world = || {
        let mut world = world();
        world.vf(4).mac = mac("02:ff:ff:ff:ff:ff");
        world
    };
    assert_eq!(world().not_passed(), ["NET0#4 mac: fail"]);
    for takes in ["before", "after"] {
        let mut world = world();
        match takes {
            "before" => *world.leaving.borrow_mut() = Some("container web-1"),
            _ => world.free_vf(|vf| vf.taken_by = Some("container web-1".to_owned())),
        }
        let verdicts = world.verify();
        let of_vf: Vec<String> = verdicts
            .iter()
            .filter(|verdict| verdict.subject.to_string() == "NET0#4")
            .map(|verdict| format!("{} {}: {}", verdict.outcome, verdict.attribute, verdict.seen))
            .collect();
        assert_eq!(of_vf, ["pass driver: igbvf; in use by container web-1"], "{takes}");
    }
}

/// VFs are made while others are looked at: what was said at another time is not held against those that are there.
#[test]
fn vfs_are_counted_at_one_time() {
    let world = |listed: u16, said: &[u16]| {
        let mut world = world();
        world.inventory.pfs[0].sriov.as_mut().unwrap().num_vfs = listed;
        *world.said_vfs.borrow_mut() = said.to_vec();
        world
    };
    assert_eq!(world(0, &[5]).not_passed(), Vec::<String>::new(), "the inventory is from before");
    assert_eq!(world(5, &[3]).not_passed(), Vec::<String>::new(), "they were just being made");
    let odd = world(5, &[3, 4]).verify();
    let vfs = odd.iter().find(|verdict| verdict.attribute == "vfs").unwrap();
    assert_eq!((vfs.outcome, &vfs.seen[..]), (Outcome::Fail, "sriov_numvfs says 4, and 5 exist"));
}
