//! Frames of NICs that VMs own.

use penstock_model::{Outcome, Verdict, VlanId, verdict::Subject};

use super::super::tenant::tests::port;
use super::world::{GuestAnswer, MODEL, Source, World, bdf, mac, report, vf_mac, world_of};

const TENANT: &str = r#"
  node:
    kind: vm
    nics:
      net0:
        vfs: 3
        uplink: br0
        mac: "02:00:00:00:00:10"
        functions: {0: {mac: "02:00:00:00:00:11"}, 1: {mac: "02:00:00:00:00:12", vlan: 100}}
"#;

/// A world with a VM whose PF and first two VFs are up. A bridge that the VM has made has the PF's address.
fn node() -> World {
    let mut world = world_of(&format!("{}{TENANT}", MODEL.trim_end()));
    let inside = [("br0", "10"), ("net0", "10"), ("eth1", "11"), ("eth2", "12")];
    let reports = inside.into_iter().zip(2..).map(|((name, last), number)| {
        let mut report = report(number, name, mac(&format!("02:00:00:00:00:{last}")), bdf("01:00.0"), &[]);
        report.device = None;
        report.kind = (name == "br0").then(|| "bridge".to_owned());
        report
    });
    world.inside.insert("node".to_owned(), reports.collect());
    world.said.insert("node".to_owned(), GuestAnswer::Agent { program: true });
    world
}

fn paths(world: &World) -> Vec<String> {
    let verdicts = world.verify();
    let of_node = |verdict: &&Verdict| {
        matches!(&verdict.subject, Subject::Path { .. }) && verdict.subject.to_string().contains("node/")
    };
    let line = |verdict: &Verdict| format!("{} {}: {}", verdict.outcome, verdict.subject, verdict.seen);
    verdicts.iter().filter(of_node).map(line).collect()
}

#[test]
fn what_is_up_inside_reaches_what_shares_its_switch_and_vlan() {
    assert_eq!(
        paths(&node()),
        [
            "pass node/net0 -> node/net0#0: arrives",
            "pass node/net0 -> node/net0#1: isolated",
            "pass node/net0#0 -> node/net0: arrives",
            "pass node/net0#0 -> node/net0#1: isolated",
            "pass node/net0#1 -> node/net0: isolated",
            "pass node/net0#1 -> node/net0#0: isolated",
        ]
    );
    let mut wrong = node();
    wrong.lost.extend([("node/net0", "node/net0#0")]);
    wrong.leaking.extend([("node/net0#1", "node/net0")]);
    let lines = paths(&wrong);
    assert_eq!(lines.iter().filter(|line| !line.starts_with("pass ")).count(), 2, "{lines:#?}");
    assert!(lines.contains(&"fail node/net0 -> node/net0#0: nothing arrived".to_owned()), "{lines:#?}");
    assert!(lines.contains(&"fail node/net0#1 -> node/net0: arrives".to_owned()), "{lines:#?}");
}

#[test]
fn a_vlan_that_the_vm_has_set_is_the_one_that_counts() {
    let mut moved = node();
    let mut port = port("02:00:00:00:00:11", 1);
    port.settings.vlan = VlanId::new(150).unwrap();
    port.inside.set.insert("vlan".to_owned(), 150.into());
    let ports = [("node/net0#0".to_owned(), port.clone()), ("node/net0 uplink".to_owned(), port)];
    moved.switches.insert(("node".parse().unwrap(), "net0".parse().unwrap()), Ok(ports.into()));
    assert!(paths(&moved).contains(&"fail node/net0 -> node/net0#0: arrives".to_owned()));
    moved.lost.extend([("node/net0", "node/net0#0"), ("node/net0#0", "node/net0")]);
    let lines = paths(&moved);
    assert!(lines.iter().all(|line| line.starts_with("pass ")) && lines.len() == 6, "{lines:#?}");
}

#[test]
fn what_a_vm_has_down_or_given_away_is_its_own_business() {
    let mut down = node();
    down.interface("node", "eth1").interface.up = false;
    down.inside.get_mut("node").unwrap().retain(|report| report.interface.name.as_str() != "eth2");
    assert_eq!(paths(&down), Vec::<String>::new());
    let unseen = down.verify().into_iter().filter(|verdict| verdict.subject.to_string().contains("node/"));
    assert_eq!(unseen.count(), 0);
}

#[test]
fn silence_of_a_function_without_a_carrier_proves_nothing() {
    let mut silent = node();
    silent.interface("node", "eth2").interface.carrier = Some(false);
    let lines = paths(&silent);
    let unknown: Vec<&String> = lines.iter().filter(|line| line.starts_with("unknown ")).collect();
    assert_eq!(unknown.len(), 4, "each way to and from node/net0#1: {lines:#?}");
    assert!(
        unknown.iter().all(|line| line.contains("node/net0#1: its interface eth2 has no carrier")),
        "{unknown:#?}"
    );
    assert_eq!(lines.iter().filter(|line| line.starts_with("pass ")).count(), 2, "{lines:#?}");
}

#[test]
fn silence_of_a_function_that_lost_its_carrier_meanwhile_proves_nothing() {
    let mut silent = node();
    silent.later("node", "eth2").interface.carrier = Some(false);
    silent.lost.extend([("node/net0", "node/net0#0")]);
    let lines = paths(&silent);
    let unknown: Vec<&String> = lines.iter().filter(|line| line.starts_with("unknown ")).collect();
    assert_eq!(unknown.len(), 4, "each way to and from node/net0#1: {lines:#?}");
    assert!(
        unknown.iter().all(|line| line.contains("node/net0#1: its interface eth2 lost its carrier")),
        "{unknown:#?}"
    );
    assert!(lines.contains(&"fail node/net0 -> node/net0#0: nothing arrived".to_owned()), "{lines:#?}");
    silent.later("node", "eth1").interface.up = false;
    let lines = paths(&silent);
    assert!(
        lines.iter().any(|line| line.starts_with("unknown node/net0 -> node/net0#0: node/net0#0: its")),
        "{lines:#?}"
    );
}

/// What is said of the frames of each function of the VM's NIC, and whether it holds.
fn frames(world: &World) -> Vec<String> {
    let of_node =
        |verdict: &&Verdict| verdict.attribute == "reach" && matches!(&verdict.subject, Subject::Tenant(_));
    let line = |verdict: &Verdict| {
        let holds = if verdict.holds() { "holds" } else { "does not hold" };
        format!("{} {}: {}; {holds}", verdict.outcome, verdict.subject, verdict.seen)
    };
    world.verify().iter().filter(of_node).map(line).collect()
}

#[test]
fn functions_of_a_vm_that_could_not_be_looked_at_are_unknown_and_not_left_out() {
    let dark = |text: &str, answer: GuestAnswer| {
        let mut dark = node();
        dark.model = super::world::parse(&format!("{}{text}", MODEL.trim_end()));
        dark.said.insert("node".to_owned(), answer);
        assert_eq!(paths(&dark), Vec::<String>::new());
        frames(&dark)
    };
    let all = |why: &str| ["", "#0", "#1", "#2"].map(|vf| format!("unknown node/net0{vf}: {why}"));
    let agent = |answer| dark(TENANT, answer);
    // The third VF is not there.
    assert_eq!(
        agent(GuestAnswer::Agent { program: false }),
        all("there is an agent inside, and no penstock to send frames; does not hold")[..3]
    );
    assert_eq!(agent(GuestAnswer::Closed("its agent is away")), all("its agent is away; does not hold"));
    assert_eq!(
        agent(GuestAnswer::NotRunning("it crashed")),
        all("the guest does not run: it crashed; does not hold")
    );
    let hidden = TENANT.replace("kind: vm\n", "kind: vm\n    inside: none\n");
    assert_eq!(dark(&hidden, GuestAnswer::Closed("nobody looks")), all("nobody looks; holds"));
    // Nor are they where all but they can be seen.
    let mut blind = node();
    blind.blind.insert(Source::GuestInterfaces);
    assert_eq!(frames(&blind).len(), 4, "{:#?}", frames(&blind));
}

#[test]
fn paths_to_functions_of_the_host_that_could_not_be_looked_at_are_unknown() {
    let cabled = TENANT.replace("uplink: br0", "uplink: NET1");
    let model = format!(
        "{}{cabled}\nboard:\n  cables: [[NET0, NET1]]\n",
        MODEL.trim_end().replace("guests:\n", "  NET1: {match: {mac: \"0c:c4:7a:9a:61:eb\"}}\nguests:\n")
    );
    let mut world = node();
    world.model = super::world::parse(&model);
    let touching = |world: &World| -> Vec<String> {
        paths(world).into_iter().filter(|line| line.contains("NET0")).collect()
    };
    let whole = touching(&world);
    assert!(whole.iter().all(|line| !line.starts_with("unknown ")) && !whole.is_empty(), "{whole:#?}");
    world.blind.insert(Source::HostInterfaces);
    let blind = touching(&world);
    assert_eq!(blind.len(), whole.len(), "{blind:#?}");
    let of_pf = |line: &&String| line.contains("NET0 ") || line.contains("NET0:");
    assert!(blind.iter().filter(of_pf).all(|line| line.starts_with("unknown ")), "{blind:#?}");
    assert!(blind.iter().filter(of_pf).count() > 0);
}

#[test]
fn frames_that_could_not_be_tried_are_unknown() {
    let mut blind = node();
    blind.blind.insert(Source::Frames);
    let outcomes = blind.verify().into_iter().filter(|verdict| verdict.subject.to_string().contains("node/"));
    assert_eq!(outcomes.map(|verdict| verdict.outcome).collect::<Vec<_>>(), [Outcome::Unknown; 6]);
}

/// What is said of the VF `NET0#4`, the uplink of a VM's NIC, after `change`.
fn of_uplink(change: impl FnOnce(&mut World)) -> Vec<String> {
    let tenant = TENANT
        .replace("uplink: br0", "uplink: {vf: NET0#4, trust: on, spoofchk: off}")
        .replace(", vlan: 100", "");
    let mut world = world_of(&format!("{}{tenant}", MODEL.trim_end()));
    world.said.insert("node".to_owned(), GuestAnswer::Closed("it is not looked into"));
    let (_, state) = &mut world.sight.vfs[4];
    (state.trust, state.spoofchk) = (Some(true), Some(false));
    world.interface("", "lan0v4").promiscuous = Some(true);
    change(&mut world);
    let of_vf = |verdict: &&Verdict| verdict.subject.to_string() == "NET0#4";
    let line = |verdict: &Verdict| format!("{} {}: {}", verdict.outcome, verdict.attribute, verdict.seen);
    world.verify().iter().filter(of_vf).map(line).collect()
}

#[test]
fn a_vf_that_is_an_uplink_has_all_that_it_needs() {
    let mac = vf_mac(4);
    let mac = format!("pass mac: {mac}");
    let all = [
        "pass driver: igbvf",
        "pass up: up",
        "pass carrier: carrier",
        "pass promiscuous: on",
        &mac,
        "pass spoofchk: off",
        "pass trust: on",
    ];
    assert_eq!(of_uplink(|_| ()), all);
    let with = |change: &dyn Fn(&mut World), line: &str| {
        let lines = of_uplink(change);
        assert!(lines.contains(&line.to_owned()), "{line} in {lines:#?}");
        let wrong = lines.iter().filter(|line| !line.starts_with("pass ")).count();
        assert_eq!(wrong, 1, "{lines:#?}");
    };
    with(&|world| world.interface("", "lan0v4").promiscuous = Some(false), "fail promiscuous: off");
    with(
        &|world| world.interface("", "lan0v4").promiscuous = None,
        "unknown promiscuous: the kernel does not tell it",
    );
    with(&|world| world.interface("", "lan0v4").interface.carrier = Some(false), "fail carrier: no carrier");
    with(&|world| world.sight.vfs[4].1.trust = Some(false), "fail trust: off");
    with(&|world| world.sight.vfs[4].1.spoofchk = Some(true), "fail spoofchk: on");
    with(&|world| world.free_vf(|vf| vf.driver = Some("vfio-pci".to_owned())), "fail driver: vfio-pci");
    let taken = "container c (penstock cni)";
    with(
        &|world| world.free_vf(|vf| vf.taken_by = Some(taken.to_owned())),
        &format!("fail driver: igbvf; in use by {taken}"),
    );
}
