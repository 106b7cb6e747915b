//! Guests that are VMs: an agent, a console, nothing; dead and suspended ones.

use penstock_model::{
    Outcome, Verdict,
    verdict::{Subject, Vantage},
};

use super::world::{GuestAnswer, MODEL, World, mac, world_of};

/// The model of the other tests with guest `a` as a VM that is looked into so, and a world that is like it.
fn vm(inside: &str, said: GuestAnswer) -> World {
    let model = MODEL.replacen("  a:\n", &format!("  a:\n    kind: vm\n    inside: {inside}\n"), 1);
    let mut world = world_of(&model);
    for vf in &mut world.inventory.pfs[0].sriov.as_mut().unwrap().vfs[..2] {
        vf.present.as_mut().unwrap().driver = Some("vfio-pci".to_owned());
    }
    world.said.insert("a".to_owned(), said);
    world
}

fn of_inside(verdict: &Verdict) -> bool {
    verdict.vantage == Vantage::Guest("a".parse().unwrap())
}

fn touches(verdict: &Verdict) -> bool {
    matches!(&verdict.subject, Subject::Path { from, to }
        if [from, to].iter().any(|end| ["NET0#0", "NET0#1"].contains(&&end.to_string()[..])))
        || (verdict.attribute == "spoofchk" && of_inside(verdict))
}

fn holds(world: &World) -> bool {
    world.verify().iter().all(Verdict::holds)
}

#[test]
fn a_vm_with_an_agent_is_seen_whole() {
    let world = vm("agent", GuestAnswer::Agent { program: true });
    assert_eq!(world.not_passed(), Vec::<String>::new());
    let verdicts = world.verify();
    let judged = |subject: &str, attribute: &str| {
        verdicts.iter().any(|v| v.subject.to_string() == subject && v.attribute == attribute)
    };
    for attribute in ["driver", "interface", "device", "mac", "up", "carrier", "addresses"] {
        assert!(judged("NET0#0", attribute), "{attribute}");
    }
    assert!(judged("NET0#0 -> NET0#2", "reach") && judged("NET0#1 -> NET0#0", "reach"));
    assert!(verdicts.iter().all(|verdict| !verdict.out_of_sight));

    let mut wrong = vm("agent", GuestAnswer::Agent { program: true });
    wrong.interface("a", "eth0").interface.mac = mac("02:ff:ff:ff:ff:ff");
    assert_eq!(wrong.not_passed(), ["NET0#0 mac: fail"]);
    let mut leaking = vm("agent", GuestAnswer::Agent { program: true });
    leaking.leaking.extend([("NET0#1", "NET0")]);
    assert_eq!(leaking.not_passed(), ["NET0#1 -> NET0 reach: fail"]);
    let mut bound = vm("agent", GuestAnswer::Agent { program: true });
    let vf = &mut bound.inventory.pfs[0].sriov.as_mut().unwrap().vfs[0];
    vf.present.as_mut().unwrap().driver = Some("igbvf".to_owned());
    assert_eq!(bound.not_passed(), ["NET0#0 driver: fail"]);
}

#[test]
fn frames_of_a_vm_without_penstock_inside_are_unknown_and_that_does_not_hold() {
    let world = vm("agent", GuestAnswer::Agent { program: false });
    let verdicts = world.verify();
    for verdict in &verdicts {
        let expected = if touches(verdict) { Outcome::Unknown } else { Outcome::Pass };
        assert_eq!(verdict.outcome, expected, "{verdict:?}");
        if touches(verdict) {
            assert!(verdict.seen.ends_with("there is an agent inside, and no penstock to send frames"));
            assert!(!verdict.holds());
        }
    }
}

/// Whether the one end is asked by the other: a function with an address in the guest that nobody looks into, and one
/// outside of it.
fn asked(verdict: &Verdict) -> bool {
    let Subject::Path { from, to } = &verdict.subject else { return false };
    let (from, to) = (from.to_string(), to.to_string());
    let inside = |end: &str| ["NET0#0", "NET0#1"].contains(&end);
    (from == "NET0#0" && !inside(&to)) || (to == "NET0#0" && !inside(&from))
}

fn path<'a>(verdicts: &'a [Verdict], subject: &str) -> &'a Verdict {
    verdicts.iter().find(|verdict| verdict.subject.to_string() == subject).unwrap()
}

#[test]
fn a_console_shows_the_table_of_nics_and_no_more() {
    let world = vm("console", GuestAnswer::Console);
    for verdict in world.verify() {
        let hidden = of_inside(&verdict) && ["device", "carrier"].contains(&&verdict.attribute[..]);
        if hidden || (touches(&verdict) && !asked(&verdict)) {
            assert_eq!((verdict.outcome, verdict.out_of_sight), (Outcome::Unknown, true), "{verdict:?}");
        } else {
            assert_eq!(
                (verdict.outcome, verdict.out_of_sight && asked(&verdict)),
                (Outcome::Pass, false),
                "{verdict:?}"
            );
        }
    }
    assert!(holds(&world));
    // What it does show is judged.
    for (attribute, change) in [
        ("mac", (|w| w.interface("a", "eth0").interface.mac = mac("02:ff:ff:ff:ff:ff")) as fn(&mut World)),
        ("up", |w| w.interface("a", "eth0").interface.up = false),
        ("addresses", |w| w.interface("a", "eth0").interface.addresses.clear()),
        ("interface", |w| w.interface("a", "eth0").interface.name = "net9".parse().unwrap()),
    ] {
        let mut world = vm("console", GuestAnswer::Console);
        change(&mut world);
        let mut fails = world.verify();
        // An interface that is down has no carrier either.
        fails.retain(|v| v.outcome == Outcome::Fail && v.attribute != "carrier");
        assert_eq!(fails.len(), 1, "{attribute}: {fails:?}");
        assert_eq!(fails[0].attribute, attribute);
        assert!(!holds(&world));
    }
}

#[test]
fn a_guest_that_nobody_looks_into_is_asked_from_where_frames_can_be_sent() {
    for (inside, said) in [("console", GuestAnswer::Console), ("none", GuestAnswer::Closed("nobody looks"))] {
        let verdicts = vm(inside, said.clone()).verify();
        let b = Vantage::Guest("b".parse().unwrap());
        for (subject, vantage, seen) in [
            ("NET0 -> NET0#0", Vantage::Host, "arrives: NET0#0 answers ARP"),
            ("NET0#0 -> NET0", Vantage::Host, "arrives: NET0#0 answers ARP"),
            ("NET0#2 -> NET0#0", b.clone(), "arrives: NET0#0 answers ARP"),
            ("NET0#0 -> NET0#2", b.clone(), "arrives: NET0#0 answers ARP"),
            ("NET0#3 -> NET0#0", b.clone(), "isolated: NET0#0 answers others' ARP, not NET0#3's"),
            ("NET0#0 -> NET0#3", b, "isolated: NET0#0 answers others' ARP, not NET0#3's"),
        ] {
            let verdict = path(&verdicts, subject);
            assert_eq!((&verdict.vantage, &verdict.seen[..]), (&vantage, seen), "{subject}");
            assert_eq!(verdict.outcome, Outcome::Pass);
        }

        // What should be answered and is not, while others are answered.
        let mut lost = vm(inside, said.clone());
        lost.lost.insert(("NET0#0", "NET0#2"));
        let verdicts = lost.verify();
        for subject in ["NET0#0 -> NET0#2", "NET0#2 -> NET0#0"] {
            let verdict = path(&verdicts, subject);
            assert_eq!(verdict.outcome, Outcome::Fail, "{verdict:?}");
            assert_eq!(
                verdict.seen,
                "nothing arrived there or back: NET0#0 answers others' ARP, not NET0#2's"
            );
        }
        assert_eq!(path(&verdicts, "NET0 -> NET0#0").outcome, Outcome::Pass);

        // What must not be answered, and is.
        let mut leaking = vm(inside, said.clone());
        leaking.leaking.extend([("NET0#3", "NET0#0"), ("NET0#0", "NET0#3")]);
        let verdicts = leaking.verify();
        for subject in ["NET0#3 -> NET0#0", "NET0#0 -> NET0#3"] {
            let verdict = path(&verdicts, subject);
            assert_eq!((verdict.outcome, &verdict.seen[..]), (Outcome::Fail, "arrives: NET0#0 answers ARP"));
        }

        // One that answers nobody proves nothing, and nobody is to blame for not looking.
        let mut mute = vm(inside, said.clone());
        mute.mute.insert("NET0#0");
        for verdict in mute.verify().iter().filter(|verdict| asked(verdict)) {
            assert_eq!((verdict.outcome, verdict.out_of_sight), (Outcome::Unknown, true), "{verdict:?}");
            assert_eq!(verdict.seen, "NET0#0 answers nobody's ARP for 10.0.0.10");
        }
        assert!(holds(&mute));

        // That no question could be asked is no doing of the guest's.
        let mut blind = vm(inside, said);
        blind.blind.insert(super::world::Source::Frames);
        for verdict in blind.verify().iter().filter(|verdict| asked(verdict)) {
            assert_eq!((verdict.outcome, verdict.out_of_sight), (Outcome::Unknown, false), "{verdict:?}");
        }
    }
}

#[test]
fn a_vm_with_penstock_inside_asks_too_and_ipv6_does_where_there_is_no_ipv4() {
    let model = MODEL
        .replacen("  a:\n", "  a:\n    kind: vm\n    inside: console\n", 1)
        .replacen("  b:\n", "  b:\n    kind: vm\n", 1)
        .replace("address: 10.0.0.10/24", "address: \"fd00::10/64\"");
    let mut world = world_of(&model);
    for vf in &mut world.inventory.pfs[0].sriov.as_mut().unwrap().vfs[..4] {
        vf.present.as_mut().unwrap().driver = Some("vfio-pci".to_owned());
    }
    world.interface("a", "eth0").interface.addresses = vec!["fd00::10/64".parse().unwrap()];
    world.said.insert("a".to_owned(), GuestAnswer::Console);
    world.said.insert("b".to_owned(), GuestAnswer::Agent { program: true });
    let verdicts = world.verify();
    let there = path(&verdicts, "NET0#2 -> NET0#0");
    assert_eq!(there.outcome, Outcome::Pass);
    assert_eq!(there.seen, "arrives: NET0#0 answers neighbour discovery");
    assert_eq!(there.vantage, Vantage::Guest("b".parse().unwrap()));
    // The host is answered too, so that this silence says something.
    assert_eq!(path(&verdicts, "NET0#3 -> NET0#0").outcome, Outcome::Pass);
    assert!(holds(&world));
    // Between two that nobody looks into nobody asks.
    assert_eq!(path(&verdicts, "NET0#0 -> NET0#1").outcome, Outcome::Unknown);
}

#[test]
fn a_console_that_told_nothing_does_not_hold() {
    let mut world = vm("console", GuestAnswer::Console);
    world.blind.insert(super::world::Source::GuestInterfaces);
    let verdicts = world.verify();
    let mac = verdicts.iter().find(|v| of_inside(v) && v.attribute == "mac").unwrap();
    assert_eq!((mac.outcome, mac.out_of_sight), (Outcome::Unknown, false));
    assert!(!holds(&world));
}

#[test]
fn where_nobody_can_look_what_shows_from_outside_is_judged_all_the_same() {
    let dark = || vm("none", GuestAnswer::Closed("the model says that nobody looks inside"));
    let world = dark();
    let verdicts = world.verify();
    for verdict in &verdicts {
        if of_inside(verdict) || (touches(verdict) && !asked(verdict)) {
            assert_eq!((verdict.outcome, verdict.out_of_sight), (Outcome::Unknown, true), "{verdict:?}");
        } else {
            assert_eq!((verdict.outcome, verdict.out_of_sight), (Outcome::Pass, false), "{verdict:?}");
        }
    }
    assert!(holds(&world));
    let from_outside = |subject: &str, attribute: &str| {
        let found = verdicts.iter().find(|v| {
            v.subject.to_string() == subject && v.attribute == attribute && v.vantage == Vantage::Host
        });
        assert_eq!(found.map(|verdict| verdict.outcome), Some(Outcome::Pass), "{subject} {attribute}");
    };
    from_outside("a", "running");
    from_outside("NET0#0", "mac");
    from_outside("NET0#0", "driver");

    let mut wrong = dark();
    wrong.vf(0).mac = mac("02:ff:ff:ff:ff:ff");
    assert!(!holds(&wrong));
    // The same silence of a guest that should answer does not hold.
    let silent = vm("agent", GuestAnswer::Closed("its agent does not answer"));
    assert!(!holds(&silent));
    assert!(silent.verify().iter().all(|v| v.outcome != Outcome::Fail));
}

#[test]
fn a_vm_that_died_or_is_suspended_fails_however_it_is_looked_into() {
    for inside in ["agent", "console", "none"] {
        for why in ["it died; its last words: Kernel panic - not syncing", "it is suspended"] {
            let world = vm(inside, GuestAnswer::NotRunning(why));
            let verdicts = world.verify();
            let running = verdicts.iter().find(|v| v.attribute == "running" && v.subject.to_string() == "a");
            let running = running.unwrap();
            assert_eq!((running.outcome, &running.seen[..]), (Outcome::Fail, why), "{inside}");
            assert!(!holds(&world));
        }
    }
}

#[test]
fn loopback_of_a_nic_whose_every_path_is_hidden_is_out_of_sight() {
    let model = "nics: {NET0: {vfs: 5, loopback: on}}\n\
                 guests: {a: {kind: vm, inside: none, functions: [NET0#0, NET0#1]}}\n";
    let mut world = world_of(model);
    for vf in &mut world.inventory.pfs[0].sriov.as_mut().unwrap().vfs {
        vf.present.as_mut().unwrap().driver = Some("vfio-pci".to_owned());
    }
    world.vf(1).mac = penstock_model::Mac::derived(mac(super::world::PF_MAC), super::world::index(1));
    world.said.insert("a".to_owned(), GuestAnswer::Closed("nobody looks"));
    let verdicts = world.verify();
    let loopback = verdicts.iter().find(|v| v.attribute == "loopback").unwrap();
    assert_eq!((loopback.outcome, loopback.out_of_sight), (Outcome::Unknown, true), "{loopback:?}");
}

/// Who asks must have had a link all the time.
#[test]
fn who_lost_his_carrier_while_he_asked_proves_nothing() {
    let mut world = vm("none", GuestAnswer::Closed("the model says so"));
    let outcome = |world: &World, subject: &str| {
        let verdicts = world.verify();
        verdicts.iter().find(|v| v.subject.to_string() == subject).unwrap().outcome
    };
    assert_eq!(outcome(&world, "NET0#3 -> NET0#0"), Outcome::Pass);
    world.later("b", "eth1").interface.carrier = Some(false);
    for subject in ["NET0#3 -> NET0#0", "NET0#0 -> NET0#3"] {
        assert_eq!(outcome(&world, subject), Outcome::Unknown, "{subject}");
    }
    assert_eq!(outcome(&world, "NET0#2 -> NET0#0"), Outcome::Pass);
}
