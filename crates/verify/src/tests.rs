use std::collections::BTreeSet;

use penstock_model::{
    EndpointName, FreeDriver, LinkState, Outcome, TxRate, VlanId, VlanQos,
    verdict::{Subject, Vantage, VerdictKey},
};

use super::*;

mod eswitch;
mod leases;
mod names;
mod proofs;
mod tenants;
mod vms;
mod world;

use world::{MODEL, SOURCES, Source, World, mac, route, world, world_of};

#[test]
fn a_machine_that_is_as_the_model_wants_passes_whole() {
    let world = world();
    assert_eq!(world.not_passed(), Vec::<String>::new());
    let verdicts = world.verify();
    let judged: BTreeSet<String> =
        verdicts.iter().map(|verdict| format!("{} {}", verdict.subject, verdict.attribute)).collect();
    for expected in [
        "NET0 match",
        "NET0 vfs",
        "NET0 autoprobe",
        "NET0 loopback",
        "NET0 interface",
        "NET0 mtu",
        "NET0 up",
        "NET0 carrier",
        "NET0 addresses",
        "NET0#0 mac",
        "NET0#1 vlan",
        "NET0#3 qos",
        "NET0#3 spoofchk",
        "NET0#3 trust",
        "NET0#3 max_tx_rate",
        "NET0#3 link_state",
        "NET0#4 mac",
        "NET0#4 driver",
        "a running",
        "NET0#2 driver",
        "NET0#2 interface",
        "NET0#2 device",
        "NET0#2 addresses",
        "NET0#2 routes",
        "NET0#3 mtu",
        "NET0#2 up",
        "NET0#2 carrier",
        "NET0#0 -> NET0#2 reach",
        "NET0#1 -> NET0#3 reach",
        "NET0#1 -> NET0#2 reach",
        "NET0 -> NET0#0 reach",
        "NET0#3 -> NET0 reach",
    ] {
        assert!(judged.contains(expected), "{expected} is not judged: {judged:#?}");
    }
    let of_routes = verdicts.iter().filter(|verdict| verdict.attribute == "routes");
    let routes: Vec<&str> = of_routes.filter_map(|verdict| verdict.item.as_deref()).collect();
    assert_eq!(routes, ["default via 10.0.0.1", "10.9.0.0/16 via 10.0.0.254 metric 50"]);
    // The MAC of an owned VF has two witnesses.
    let vantages: Vec<Vantage> = verdicts
        .iter()
        .filter(|verdict| verdict.subject.to_string() == "NET0#0" && verdict.attribute == "mac")
        .map(|verdict| verdict.vantage.clone())
        .collect();
    assert_eq!(vantages, [Vantage::Host, Vantage::Guest("a".parse().unwrap())]);
    assert!(verdicts.iter().all(Verdict::holds));
}

/// One thing set wrong, and the verdicts that must not pass for it.
#[test]
fn whatever_is_changed_behind_the_tools_back_fails() {
    type Change = (&'static str, fn(&mut World), &'static [&'static str]);
    let changes: Vec<Change> = vec![
        ("MAC at the PF", |w| w.vf(0).mac = mac("02:ff:ff:ff:ff:ff"), &["NET0#0 mac: fail"]),
        ("MAC of a VF that nobody owns", |w| w.vf(4).mac = mac("02:ff:ff:ff:ff:ff"), &["NET0#4 mac: fail"]),
        (
            "MAC inside",
            |w| w.interface("a", "eth0").interface.mac = mac("02:ff:ff:ff:ff:ff"),
            &["NET0#0 mac: fail"],
        ),
        ("VLAN", |w| w.vf(1).vlan = VlanId::new(0).unwrap(), &["NET0#1 vlan: fail"]),
        ("priority", |w| w.vf(3).qos = VlanQos::new(0).unwrap(), &["NET0#3 qos: fail"]),
        ("spoofchk", |w| w.vf(3).spoofchk = Some(false), &["NET0#3 spoofchk: fail"]),
        ("spoofchk unreported", |w| w.vf(3).spoofchk = None, &["NET0#3 spoofchk: unsupported"]),
        ("trust", |w| w.vf(3).trust = Some(true), &["NET0#3 trust: fail"]),
        ("rate", |w| w.vf(3).max_tx_rate = TxRate(0), &["NET0#3 max_tx_rate: fail"]),
        ("link state", |w| w.vf(3).link_state = Some(LinkState::Auto), &["NET0#3 link_state: fail"]),
        ("MTU", |w| w.interface("b", "eth1").interface.mtu = 1500, &["NET0#3 mtu: fail"]),
        ("MTU of the PF", |w| w.interface("", "lan0").interface.mtu = 1500, &["NET0 mtu: fail"]),
        (
            "PF's name",
            |w| w.interface("", "lan0").interface.name = "eth9".parse().unwrap(),
            &["NET0 interface: fail"],
        ),
        (
            "address gone",
            |w| w.interface("b", "eth0").interface.addresses.truncate(1),
            &["NET0#2 addresses: fail"],
        ),
        (
            "routes gone",
            |w| w.interface("b", "eth0").routes = Some(vec![]),
            &["NET0#2 routes: fail", "NET0#2 routes: fail"],
        ),
        (
            "another gateway",
            |w| w.interface("b", "eth0").routes.as_mut().unwrap()[0] = route("0.0.0.0/0", "10.0.0.2", 0),
            &["NET0#2 routes: fail"],
        ),
        (
            "another metric",
            |w| w.interface("b", "eth0").routes.as_mut().unwrap()[1] = route("10.9.0.0/16", "10.0.0.254", 60),
            &["NET0#2 routes: fail"],
        ),
        (
            "routes that nobody tells",
            |w| w.interface("b", "eth0").routes = None,
            &["NET0#2 routes: unknown", "NET0#2 routes: unknown"],
        ),
        (
            "PF's address gone",
            |w| w.interface("", "lan0").interface.addresses.clear(),
            &["NET0 addresses: fail"],
        ),
        (
            "another prefix",
            |w| w.interface("a", "eth0").interface.addresses[0] = "10.0.0.10/16".parse().unwrap(),
            &["NET0#0 addresses: fail"],
        ),
        (
            "other name inside",
            |w| w.interface("a", "eth0").interface.name = "net9".parse().unwrap(),
            &["NET0#0 interface: fail"],
        ),
        (
            "no carrier",
            |w| w.interface("a", "eth0").interface.carrier = Some(false),
            // Nothing could have been delivered to it, and nothing from it: that it keeps apart from others is not proven.
            &[
                "NET0#0 carrier: fail",
                "NET0#0 -> NET0#1 reach: unknown",
                "NET0#0 -> NET0#3 reach: unknown",
                "NET0#1 -> NET0#0 reach: unknown",
                "NET0#3 -> NET0#0 reach: unknown",
            ],
        ),
        (
            "carrier unknown",
            |w| w.interface("a", "eth0").interface.carrier = None,
            &["NET0#0 carrier: unknown"],
        ),
        ("VF count", |w| w.inventory.pfs[0].sriov.as_mut().unwrap().num_vfs = 4, &["NET0 vfs: fail"]),
        (
            "autoprobe",
            |w| w.inventory.pfs[0].sriov.as_mut().unwrap().autoprobe = true,
            &["NET0 autoprobe: fail"],
        ),
        (
            "driver",
            |w| {
                let vf = &mut w.inventory.pfs[0].sriov.as_mut().unwrap().vfs[2];
                vf.present.as_mut().unwrap().driver = Some("vfio-pci".to_owned());
            },
            &["NET0#2 driver: fail"],
        ),
        (
            "a free VF without the driver that it has to have",
            |w| {
                w.model.nics[0].free_driver = Some(FreeDriver::Host);
                w.free_vf(|vf| vf.driver = Some("vfio-pci".to_owned()));
            },
            &["NET0#4 driver: fail"],
        ),
        (
            "a free VF that is not to be the host's",
            |w| w.model.nics[0].free_driver = Some(FreeDriver::VfioPci),
            &["NET0#4 driver: fail"],
        ),
        (
            "another NIC",
            |w| w.inventory.pfs[0].permanent_mac = Some(mac("0c:c4:7a:9a:61:eb")),
            &["NET0 match: fail"],
        ),
        (
            "VEPA",
            |w| w.sight.switch_mode = Ok(SwitchMode::Vepa),
            &["NET0 loopback: fail", "NET0#3 spoofchk: unknown"],
        ),
        (
            "a frame is lost",
            |w| w.lost.extend([("NET0#0", "NET0#2")]),
            &["NET0 loopback: fail", "NET0#0 -> NET0#2 reach: fail"],
        ),
        ("a frame leaks", |w| w.leaking.extend([("NET0#1", "NET0")]), &["NET0#1 -> NET0 reach: fail"]),
    ];
    for (what, change, expected) in changes {
        let mut world = world();
        change(&mut world);
        let seen = world.not_passed();
        if what == "another NIC" {
            // Derived MACs follow the PF's, so they fail with it.
            assert!(seen.contains(&"NET0 match: fail".to_owned()));
            continue;
        }
        assert_eq!(seen, expected, "{what}");
        assert!(!world.verify().iter().all(Verdict::holds), "{what}");
    }
}

#[test]
fn two_interfaces_that_swapped_names_both_fail() {
    let mut world = world();
    world.interface("a", "eth0").interface.name = "tmp".parse().unwrap();
    world.interface("a", "eth1").interface.name = "eth0".parse().unwrap();
    world.interface("a", "tmp").interface.name = "eth1".parse().unwrap();
    let seen = world.not_passed();
    for expected in ["NET0#0 device: fail", "NET0#0 mac: fail", "NET0#1 device: fail", "NET0#1 mac: fail"] {
        assert!(seen.contains(&expected.to_owned()), "{seen:?}");
    }
    let verdicts = world.verify();
    let device = verdicts.iter().find(|v| v.attribute == "device" && v.outcome == Outcome::Fail).unwrap();
    assert_eq!(device.wanted, "NET0#0 at 0000:04:10.0");
    assert_eq!(device.seen, "NET0#1 at 0000:04:10.2");
}

#[test]
fn a_missing_interface_fails_and_all_about_it_is_not_passed() {
    let mut world = world();
    let gone = world.inside.get_mut("b").unwrap().remove(0);
    world.inside.get_mut("").unwrap().push(gone);
    let verdicts = world.verify();
    let inside: Vec<_> = verdicts
        .iter()
        .filter(|v| v.subject.to_string() == "NET0#2" && v.vantage == Vantage::Guest("b".parse().unwrap()))
        .collect();
    assert!(inside.len() >= 6);
    for verdict in inside {
        assert_eq!(verdict.outcome, Outcome::Fail, "{verdict:?}");
    }
    let mac = verdicts.iter().rfind(|v| v.subject.to_string() == "NET0#2" && v.attribute == "mac").unwrap();
    assert_eq!(mac.seen, "its interface is on the host, called eth0");
    let path = verdicts.iter().find(|v| v.subject.to_string() == "NET0#0 -> NET0#2").unwrap();
    assert_eq!(path.outcome, Outcome::Unknown);
}

#[test]
fn a_guest_that_does_not_run_fails_and_hides_its_functions() {
    let mut world = world();
    world.stopped.insert("a".to_owned());
    for verdict in world.verify() {
        let about_a = matches!(&verdict.vantage, Vantage::Guest(guest) if guest.as_str() == "a")
            || matches!(&verdict.subject, Subject::Path { from, to }
                if [from, to].iter().any(|f| ["NET0#0", "NET0#1"].contains(&&f.to_string()[..])));
        if verdict.subject.to_string() == "a" {
            assert_eq!(verdict.outcome, Outcome::Fail);
        } else if about_a {
            assert_eq!(verdict.outcome, Outcome::Unknown, "{verdict:?}");
        } else {
            assert_eq!(verdict.outcome, Outcome::Pass, "{verdict:?}");
        }
    }
}

/// What must have been seen for a verdict to be a pass.
fn witnesses(verdict: &Verdict) -> Vec<Source> {
    use Source::{Frames, Guest, GuestInterfaces, GuestNamespace, HostInterfaces, VirtualFunctions};
    let attribute = &verdict.attribute[..];
    match (&verdict.subject, &verdict.vantage) {
        (Subject::Path { from, to }, _) => {
            let mut needed = vec![Frames];
            for function in [from, to] {
                let EndpointName::Function(function) = function else { panic!("{function}") };
                match function.vf {
                    None => needed.push(HostInterfaces),
                    Some(_) => needed.extend([VirtualFunctions, Guest, GuestInterfaces, GuestNamespace]),
                }
            }
            needed
        }
        (Subject::Nic(_), _) => match attribute {
            "match" | "autoprobe" => vec![],
            "vfs" => vec![VirtualFunctions],
            "loopback" => vec![Frames],
            _ => panic!("{verdict:?}"),
        },
        (Subject::Guest(_), _) => vec![Guest],
        // No part of a model that is made here; `tenant` has tests of its own.
        (Subject::Tenant(_) | Subject::Drive(_) | Subject::DriveVf(_), _) => panic!("{verdict:?}"),
        (Subject::Machine, _) => vec![Frames],
        // What a forged frame shows, received in another guest.
        (Subject::Function(_), Vantage::Guest(_)) if attribute == "spoofchk" => {
            vec![Frames, VirtualFunctions, Guest, GuestInterfaces, GuestNamespace]
        }
        (Subject::Function(_), Vantage::Guest(_)) if attribute == "device" => {
            vec![Guest, GuestInterfaces, VirtualFunctions]
        }
        (Subject::Function(_), Vantage::Guest(_)) => vec![Guest, GuestInterfaces],
        (Subject::Function(function), Vantage::Host) if attribute == "driver" => {
            // A VF that no guest owns is looked at anew, and may be with whoever took it.
            let free = function.vf.is_some_and(|vf| vf.get() == 4);
            if free { vec![Source::FreeVfs, VirtualFunctions] } else { vec![] }
        }
        (Subject::Function(function), Vantage::Host) if function.vf.is_none() => vec![HostInterfaces],
        (Subject::Function(_), Vantage::Host) => vec![HostInterfaces, Source::PfObservation],
    }
}

#[test]
fn nothing_passes_that_was_not_seen_and_nothing_is_left_out() {
    let keys = |verdicts: &[Verdict]| -> BTreeSet<VerdictKey> { verdicts.iter().map(Verdict::key).collect() };
    let whole = keys(&world().verify());
    for subset in 0..1u32 << SOURCES.len() {
        let mut world = world();
        world.blind =
            (0..).zip(SOURCES).filter(|(n, _)| subset & (1 << n) != 0).map(|(_, source)| source).collect();
        let verdicts = world.verify();
        for verdict in &verdicts {
            let unseen = witnesses(verdict).iter().any(|source| world.blind.contains(source));
            match verdict.outcome {
                Outcome::Pass => assert!(!unseen, "{:?}: {verdict:?}", world.blind),
                // Loopback is what the frames inside the NIC say, and these need all the rest.
                Outcome::Unknown if verdict.attribute == "loopback" => assert_ne!(subset, 0),
                Outcome::Unknown => assert!(unseen, "{:?}: {verdict:?}", world.blind),
                _ => panic!("nothing was changed, only hidden {:?}: {verdict:?}", world.blind),
            }
        }
        assert_eq!(keys(&verdicts), whole, "{:?}", world.blind);
    }
}

#[test]
fn a_silent_interface_that_is_down_is_no_proof_of_isolation() {
    let mut world = world();
    world.interface("a", "eth1").interface.up = false;
    let verdicts = world.verify();
    let path = |text: &str| verdicts.iter().find(|v| v.subject.to_string() == text).unwrap();
    assert_eq!(path("NET0#0 -> NET0#1").outcome, Outcome::Unknown);
    assert_eq!(path("NET0#1 -> NET0#3").outcome, Outcome::Unknown);
    assert_eq!(path("NET0#0 -> NET0#3").outcome, Outcome::Pass);
}

/// Without a carrier nothing can be delivered, whatever the switch does.
#[test]
fn a_silent_interface_without_a_carrier_is_no_proof_of_isolation() {
    let mut world = world();
    world.interface("a", "eth1").interface.carrier = Some(false);
    let verdicts = world.verify();
    let path = |text: &str| verdicts.iter().find(|v| v.subject.to_string() == text).unwrap();
    for unknown in ["NET0#0 -> NET0#1", "NET0#1 -> NET0#0"] {
        let verdict = path(unknown);
        assert_eq!(verdict.outcome, Outcome::Unknown, "{verdict:?}");
        assert!(verdict.seen.contains("NET0#1") && verdict.seen.contains("has no carrier"), "{verdict:?}");
    }
    assert_eq!(path("NET0#0 -> NET0#3").outcome, Outcome::Pass);
    // Loopback that is off is not proven by it either.
    let off = MODEL.replace("loopback: true", "loopback: false");
    let mut world = world_of(&off);
    let functions = ["NET0", "NET0#0", "NET0#1", "NET0#2", "NET0#3"];
    world.lost = functions.iter().flat_map(|a| functions.iter().map(|b| (*a, *b))).collect();
    for (place, name) in [("", "lan0"), ("a", "eth0"), ("a", "eth1"), ("b", "eth0"), ("b", "eth1")] {
        world.interface(place, name).interface.carrier = Some(false);
    }
    assert!(world.not_passed().contains(&"NET0 loopback: unknown".to_owned()), "{:?}", world.not_passed());
}

/// A link that is shown as down is what was asked for, at the end that it was asked for.
#[test]
fn a_disabled_link_isolates_its_own_end_alone() {
    let model = MODEL.replace("- {vf: NET0#0, address", "- {vf: NET0#0, link_state: disable, address");
    let disabled = |change: fn(&mut World)| {
        let mut world = world_of(&model);
        world.vf(0).link_state = Some(LinkState::Disable);
        let functions = ["NET0", "NET0#1", "NET0#2", "NET0#3"];
        world.lost = functions.iter().flat_map(|other| [("NET0#0", *other), (*other, "NET0#0")]).collect();
        world.interface("a", "eth0").interface.carrier = Some(false);
        change(&mut world);
        let verdicts = world.verify();
        move |text: &str| verdicts.iter().find(|v| v.subject.to_string() == text).unwrap().clone()
    };
    let path = disabled(|_| ());
    assert_eq!(path("NET0#0 -> NET0#2").outcome, Outcome::Pass);
    assert_eq!(path("NET0#2 -> NET0#0").outcome, Outcome::Pass);
    let path = disabled(|world| world.interface("b", "eth0").interface.carrier = Some(false));
    assert_eq!(path("NET0#0 -> NET0#2").outcome, Outcome::Unknown);
    // The disabled end says that its network is down; of the other end, or in other words, that proves nothing.
    const DOWN: &str = "Network is down";
    let path =
        disabled(|world| world.refused = [(("NET0#0", "NET0#2"), DOWN), (("NET0#2", "NET0#0"), DOWN)].into());
    assert_eq!(path("NET0#0 -> NET0#2").outcome, Outcome::Pass);
    assert_eq!(path("NET0#2 -> NET0#0").outcome, Outcome::Unknown);
    let path = disabled(|world| world.refused = [(("NET0#0", "NET0#2"), "No buffer space available")].into());
    assert_eq!(path("NET0#0 -> NET0#2").outcome, Outcome::Unknown);
}

/// virtio: the PF reports nothing of its VFs, interfaces name the virtio device, nothing keeps VLANs apart.
fn virtio(model: &str) -> World {
    let mut world = world_of(model);
    world.sight.vfs.clear();
    world.virtio = true;
    let pf = &mut world.inventory.pfs[0];
    pf.driver = Some("virtio-pci".to_owned());
    for vf in &mut pf.sriov.as_mut().unwrap().vfs {
        vf.present.as_mut().unwrap().driver = Some("virtio-pci".to_owned());
    }
    world.leaking = [("NET0#0", "NET0#1"), ("NET0#1", "NET0#0")].into();
    world
}

#[test]
fn a_nic_without_an_embedded_switch_says_so() {
    let seen = virtio(MODEL).not_passed();
    let expected: Vec<String> = [
        "NET0#1 vlan",
        "NET0#3 vlan",
        "NET0#3 qos",
        "NET0#3 spoofchk",
        "NET0#3 trust",
        "NET0#3 max_tx_rate",
        "NET0#3 link_state",
        "NET0#0 -> NET0#1 reach",
        "NET0#1 -> NET0#0 reach",
    ]
    .iter()
    .map(|what| format!("{what}: unsupported"))
    .collect();
    assert_eq!(seen, expected);

    let verdicts = virtio(MODEL).verify();
    assert!(!verdicts.iter().all(Verdict::holds));
    let reach = verdicts.iter().find(|v| v.subject.to_string() == "NET0#0 -> NET0#1").unwrap();
    assert_eq!(reach.seen, "arrives: virtio-pci functions have no embedded switch");
}

#[test]
fn what_the_model_calls_best_effort_may_be_unsupported_but_not_wrong() {
    let lenient = MODEL.replace(
        "    vfs: 5\n",
        "    vfs: 5\n    best_effort: [vlan, qos, spoofchk, trust, max_tx_rate, link_state]\n",
    );
    let world = virtio(&lenient);
    let verdicts = world.verify();
    assert!(verdicts.iter().any(|v| v.outcome == Outcome::Unsupported));
    assert!(verdicts.iter().all(Verdict::holds), "{:?}", world.not_passed());

    // A driver that has the attribute and holds another value is wrong all the same.
    let mut world = world_of(&lenient);
    world.vf(1).vlan = VlanId::new(200).unwrap();
    assert_eq!(world.not_passed(), ["NET0#1 vlan: fail"]);
    // A driver without a link state setting is reported by Linux as `auto`.
    let mut world = world_of(&lenient);
    world.vf(3).link_state = Some(LinkState::Auto);
    assert_eq!(world.not_passed(), ["NET0#3 link_state: unsupported"]);
    assert!(world.verify().iter().all(Verdict::holds));
}

#[test]
fn what_a_driver_was_seen_to_do_tells_unsupported_from_wrong() {
    use penstock_model::inventory::{Ability, Capabilities, Capability, Trial};
    let known = |world: &mut World, ability| {
        let mut driver = Capabilities::default();
        driver.learn(Capability::LinkState, Trial::new(ability));
        world.inventory.capabilities =
            world.inventory.pfs.iter().map(|pf| (pf.bdf, driver.clone())).collect();
    };
    let lenient = MODEL.replace("    vfs: 5\n", "    vfs: 5\n    best_effort: [link_state]\n");
    for (model, ability, outcome) in [
        (MODEL, Ability::Unsupported, "unsupported"),
        (MODEL, Ability::Ignored, "unsupported"),
        (MODEL, Ability::Untold, "fail"),
        (MODEL, Ability::Kept, "fail"),
        (&lenient, Ability::Unsupported, "unsupported"),
        // Linux's default, but of a driver that has the setting: somebody changed it.
        (&lenient, Ability::Kept, "fail"),
        (&lenient, Ability::Accepted, "fail"),
    ] {
        let mut world = world_of(model);
        known(&mut world, ability);
        assert_eq!(world.not_passed(), Vec::<String>::new(), "a pass is what was seen");
        world.vf(3).link_state = Some(LinkState::Auto);
        assert_eq!(world.not_passed(), [format!("NET0#3 link_state: {outcome}")], "{ability}");
        assert!(!world.verify().iter().all(Verdict::holds) || outcome == "unsupported");
    }
}

#[test]
fn loopback_off_is_proven_by_silence_or_said_to_be_unsupported() {
    let off = MODEL.replace("loopback: true", "loopback: false");
    let mut world = world_of(&off);
    let functions = ["NET0", "NET0#0", "NET0#1", "NET0#2", "NET0#3"];
    world.lost = functions.iter().flat_map(|a| functions.iter().map(|b| (*a, *b))).collect();
    assert_eq!(world.not_passed(), Vec::<String>::new());

    let seen = world_of(&off).not_passed();
    assert!(seen.contains(&"NET0 loopback: unsupported".to_owned()), "{seen:?}");
    assert!(seen.contains(&"NET0#0 -> NET0#2 reach: unsupported".to_owned()), "{seen:?}");
    assert!(seen.iter().all(|verdict| verdict.ends_with("unsupported")), "{seen:?}");

    let lenient = off.replace("    vfs: 5\n", "    vfs: 5\n    best_effort: [loopback]\n");
    assert!(world_of(&lenient).verify().iter().all(Verdict::holds));

    // With the knob reported as set, frames that pass are a failure.
    let mut world = world_of(&off);
    world.sight.switch_mode = Ok(SwitchMode::Vepa);
    assert!(world.not_passed().contains(&"NET0#0 -> NET0#2 reach: fail".to_owned()));
}

#[test]
fn a_mode_that_could_not_be_read_is_no_mode_that_the_driver_lacks() {
    let lenient = MODEL
        .replace("loopback: true", "loopback: false")
        .replace("    vfs: 5\n", "    vfs: 5\n    best_effort: [loopback]\n");
    let mut world = world_of(&lenient);
    world.sight.switch_mode = Err("the dump was cut off".to_owned());
    let seen = world.not_passed();
    assert!(seen.contains(&"NET0 loopback: fail".to_owned()), "{seen:?}");
    assert!(seen.contains(&"NET0#0 -> NET0#2 reach: fail".to_owned()), "{seen:?}");
    let verdicts = world.verify();
    let loopback = verdicts.iter().find(|verdict| verdict.attribute == "loopback").unwrap();
    assert!(loopback.seen.starts_with("the driver's mode could not be read (the dump was cut off)"));
}

#[test]
fn a_model_that_leaves_loopback_open_is_not_judged_on_it() {
    let open = MODEL.replace("    loopback: true\n", "");
    let mut world = world_of(&open);
    world.lost.insert(("NET0#0", "NET0#2"));
    assert_eq!(world.not_passed(), Vec::<String>::new());
    // Other VLANs stay apart whatever the switch does.
    world.leaking.insert(("NET0#0", "NET0#1"));
    assert_eq!(world.not_passed(), ["NET0#0 -> NET0#1 reach: fail"]);
}

#[test]
fn every_small_path_is_tried() {
    let world = world();
    world.verify();
    // And one from an address that is forged beside one that is not.
    assert_eq!(*world.tried.borrow(), 5 * 4 + 2);
}

#[test]
fn a_pf_that_a_container_owns_is_asked_inside_it() {
    let owned = MODEL
        .replace("    interface: lan0\n    addresses: [10.0.0.1/24]\n", "")
        .replace("guests:\n", "guests:\n  p:\n    functions: [{pf: NET0, address: 10.0.0.1/24}]\n");
    let mut world = world_of(&owned);
    let mut pf = world.inside.get_mut("").unwrap().remove(0);
    pf.interface.name = "eth0".parse().unwrap();
    world.inside.insert("p".to_owned(), vec![pf]);
    world.pf_namespace = Some(77);
    assert_eq!(world.not_passed(), Vec::<String>::new());
    let verdicts = world.verify();
    let vlan = verdicts.iter().find(|verdict| verdict.attribute == "vlan").unwrap();
    assert_eq!(vlan.vantage, Vantage::Guest("p".parse().unwrap()));

    world.interface("p", "eth0").interface.mtu = 1500;
    world.vf(0).mac = mac("02:ff:ff:ff:ff:ff");
    assert_eq!(world.not_passed(), ["NET0#0 mac: fail", "NET0 mtu: fail"]);

    // While its owner does not run, nothing is known of what the PF's driver keeps.
    world.stopped.insert("p".to_owned());
    let verdicts = world.verify();
    let vlan = verdicts.iter().find(|verdict| verdict.attribute == "vlan").unwrap();
    assert_eq!(vlan.outcome, Outcome::Unknown);
}

#[test]
fn a_large_machine_is_sampled_and_says_so() {
    let vfs = 80;
    let of = |guest: &str| {
        let functions: String = (0..vfs).map(|n| format!("      - NET0#{n}\n")).collect();
        let nics = format!("nics: {{NET0: {{vfs: {vfs}, loopback: on}}}}\n");
        world_of(&format!("{nics}guests:\n  a:\n{guest}    functions:\n{functions}"))
    };
    let sample = |world: World| {
        world.verify().into_iter().find(|verdict| verdict.subject == Subject::Machine).unwrap()
    };
    // Nobody can look into the VM that has them all: no path was tried, and nobody is to blame.
    let mut dark = of("    kind: vm\n    inside: none\n");
    dark.said.insert("a".to_owned(), world::GuestAnswer::Closed("nobody looks"));
    let hidden = sample(dark);
    assert_eq!((hidden.outcome, &hidden.seen[..]), (Outcome::Unknown, "0 of 6480 paths were tried"));
    assert!(hidden.out_of_sight && hidden.holds());
    let sampled = sample(of(""));
    assert_eq!(sampled.attribute, "reach");
    assert!(sampled.wanted.contains("of the 6480 paths"), "{}", sampled.wanted);
    // Most of these VFs do not exist in this world, so the sample was not tried whole.
    assert_eq!(sampled.outcome, Outcome::Unknown);
}

#[test]
fn a_free_vf_may_do_without_a_driver_where_none_is_asked_for() {
    let mut world = world();
    world.free_vf(|vf| vf.driver = None);
    assert_eq!(world.not_passed(), ["NET0#4 driver: unsupported"]);
    assert!(world.verify().iter().all(Verdict::holds));
    world.model.nics[0].free_driver = Some(FreeDriver::None);
    assert_eq!(world.not_passed(), Vec::<String>::new());
}

/// That nobody was seen to have it is no proof that somebody has.
#[test]
fn a_free_vf_without_an_interface_is_nobodys() {
    let with = |asked: Option<FreeDriver>, unseen: Option<&str>| {
        let mut world = world();
        world.model.nics[0].free_driver = asked;
        world.inside.get_mut("").unwrap().retain(|report| report.interface.name.as_str() != "lan0v4");
        world.free_vf(|vf| vf.unseen = unseen.map(str::to_owned));
        let verdicts = world.verify();
        let driver =
            verdicts.iter().find(|of| of.subject.to_string() == "NET0#4" && of.attribute == "driver");
        let driver = driver.unwrap();
        assert!(verdicts.iter().any(|of| of.subject.to_string() == "NET0#4" && of.attribute == "mac"));
        (driver.seen.clone(), driver.outcome)
    };
    let none = "igbvf; its driver made no interface".to_owned();
    assert_eq!(with(Some(FreeDriver::Host), None), (none.clone(), Outcome::Fail));
    assert_eq!(with(None, None), (none, Outcome::Unsupported));
    let (seen, outcome) = with(Some(FreeDriver::Host), Some("not permitted"));
    assert!(seen.contains("is not known: not permitted") && outcome == Outcome::Unknown, "{seen}");
}

#[test]
fn a_free_vf_that_somebody_has_taken_is_no_drift() {
    type Taken = (&'static str, fn(&mut World));
    let taken: [Taken; 3] = [
        ("container web-1", |w| w.free_vf(|vf| vf.taken_by = Some("container web-1".to_owned()))),
        ("another network namespace", |w| {
            w.inside.get_mut("").unwrap().retain(|report| report.interface.name.as_str() != "lan0v4");
            w.free_vf(|vf| vf.taken_by = Some("another network namespace".to_owned()));
        }),
        ("qemu (process 7)", |w| {
            w.free_vf(|vf| {
                *vf = FreeVf {
                    driver: Some("vfio-pci".to_owned()),
                    taken_by: Some("qemu (process 7)".to_owned()),
                    ..FreeVf::default()
                }
            });
        }),
    ];
    for (who, take) in taken {
        let mut world = world();
        world.model.nics[0].free_driver = Some(FreeDriver::Host);
        // What a plugin sets for its container.
        let state = world.vf(4);
        (state.vlan, state.mac) = (VlanId::new(300).unwrap(), mac("02:00:00:00:00:99"));
        take(&mut world);
        assert_eq!(world.not_passed(), Vec::<String>::new(), "{who}");
        let verdicts = world.verify();
        let driver = verdicts.iter().find(|of| of.subject.to_string() == "NET0#4").unwrap();
        assert!(driver.attribute == "driver" && driver.seen.contains(who), "{driver:?}");
    }
}
