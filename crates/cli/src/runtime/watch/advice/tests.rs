use penstock_model::{Outcome, Source};

use super::*;

/// `box` and `other` have VFs of NET0, whose PF is the host's, and the NIC of `node` has one as its uplink; `edge` has the PF of NET1, and `leaf` a VF of it; NET2 is somebody else's.
const MODEL: &str = "
nics:
  NET0: {vfs: 4, loopback: on}
  NET1: {vfs: 2}
  NET2: {vfs: 1, externally_managed: true}
guests:
  box: {functions: [NET0#0]}
  other: {functions: [NET0#1]}
  edge: {functions: [NET1]}
  leaf: {functions: [NET1#0]}
  guest: {functions: [NET2#0]}
  disk: {kind: vm, boot: {disk: /srv/disk.img}, functions: [NET0#3], dns: {servers: 192.0.2.53}, generate: [{template: networkd, to: disk}]}
  node: {kind: vm, nics: {net0: {vfs: 1, uplink: {vf: NET0#2, trust: on, spoofchk: off}}}}
";

fn subject(text: &str) -> Subject {
    match text {
        "machine" => Subject::Machine,
        _ if text.starts_with("NET") && text.contains(['#', '.']) => {
            Subject::Function(text.trim_end_matches('.').parse().unwrap())
        }
        _ if text.starts_with("NET") => Subject::Nic(text.parse().unwrap()),
        _ => Subject::Guest(text.parse().unwrap()),
    }
}

/// A verdict of `ABOUT ATTRIBUTE (VANTAGE)`; a PF as a function is written `NET0.`.
fn verdict(about: &str) -> Verdict {
    let (rest, vantage) = about.strip_suffix(')').and_then(|about| about.split_once(" (")).unwrap();
    let (about, attribute) = rest.split_once(' ').unwrap();
    let seen = Err("it is otherwise".to_owned());
    let verdict = Verdict::of_host(subject(about), attribute, "so".to_owned(), seen);
    let vantage = match vantage.strip_prefix("inside ") {
        Some(guest) => Vantage::Guest(guest.parse().unwrap()),
        None => Vantage::Host,
    };
    Verdict { vantage, outcome: Outcome::Fail, ..verdict }
}

/// What is advised while these guests run; the links of the PFs in `down` are down, and those in `dark` are up without a link.
fn advised(about: &str, running: &str, down: &str, dark: &str) -> String {
    let model = penstock_model::parse(&Source::new("m.yaml", MODEL)).expect("the test's model is good").model;
    let running = running.split_whitespace().map(|name| name.parse().unwrap()).collect();
    let is_in = |list: &str, nic: &NicName| list.split_whitespace().any(|name| name == nic.as_str());
    let known = Known {
        model: &model,
        owners: &model.function_owners(),
        of_incus: &BTreeSet::new(),
        running: &running,
        is_up: &|nic| !is_in(down, nic),
        is_linked: &|nic| !is_in(down, nic) && !is_in(dark, nic),
    };
    known.advice(&verdict(about)).words(&"m.yaml", "")
}

const APPLY: &str = "penstock apply m.yaml";

fn restart(guests: &str) -> String {
    format!("penstock stop m.yaml {guests} && {APPLY}")
}

const ALL: &str = "box other edge leaf guest";

#[test]
fn what_incus_runs_is_not_put_right_by_a_second_guest() {
    let model = penstock_model::parse(&Source::new("m.yaml", MODEL)).unwrap().model;
    let of_incus = ["box".parse().unwrap()].into();
    let running = ["box".parse().unwrap(), "other".parse().unwrap()].into();
    let yes = &|_: &NicName| true;
    let owners = &model.function_owners();
    let known =
        Known { model: &model, owners, of_incus: &of_incus, running: &running, is_up: yes, is_linked: yes };
    let advised = |about: &str| known.advice(&verdict(about)).words(&"m.yaml", "");
    let own = advised("NET0#0 mac (host)");
    assert!(own.contains("`incus restart box`") && !own.contains("apply"), "{own}");
    // What mends the others is a command that makes no second `box` and does not stop it.
    for (about, mend) in [
        ("NET0#1 vlan (host)", APPLY.to_owned()),
        ("NET0#1 mac (host)", restart("other")),
        ("NET0 vfs (host)", restart("other")),
        ("machine kernel argument (host)", format!("{APPLY} --persist, and reboot")),
    ] {
        assert_eq!(advised(about), format!("with a model without box, which Incus runs: {mend}"), "{about}");
    }
}

#[test]
fn each_kind_of_drift_has_the_advice_that_works() {
    // What each of them needs is shown on a board: `cargo test -p penstock-cli --test watch_in_board`.
    let table: &[(&str, &str, String)] = &[
        ("box running (host)", "other edge leaf guest", APPLY.to_owned()),
        ("box cpus (host)", ALL, restart("box")),
        ("box pin (host)", ALL, restart("box")),
        ("box dns (inside box)", ALL, restart("box")),
        ("box dns (inside box)", "other", APPLY.to_owned()),
        ("node dns (inside node)", "node", restart("node")),
        ("box policy (host)", ALL, APPLY.to_owned()),
        ("box partition (host)", ALL, restart("box")),
        ("box generate (host)", ALL, APPLY.to_owned()),
        ("box interrupts (host)", ALL, APPLY.to_owned()),
        ("machine throttling (host)", ALL, APPLY.to_owned()),
        ("machine kernel argument (host)", ALL, format!("{APPLY} --persist, and reboot")),
        // What a PF keeps for a VF is set under the guest that runs with it, but for what the VF's driver sees only once.
        ("NET0#0 spoofchk (host)", ALL, APPLY.to_owned()),
        ("NET0#0 vlan (host)", ALL, APPLY.to_owned()),
        ("NET0#0 mac (host)", ALL, restart("box")),
        ("NET0#0 mac (host)", "other", APPLY.to_owned()),
        ("NET0#0 driver (host)", ALL, restart("box")),
        ("NET0#2 mac (host)", ALL, APPLY.to_owned()),
        // An uplink is put right under the VM that runs, but for the interface that its switch is at.
        ("NET0#2 trust (host)", "node", APPLY.to_owned()),
        ("NET0#2 up (host)", "node", APPLY.to_owned()),
        ("NET0#2 driver (host)", "node", restart("node")),
        ("NET0#2 mac (host)", "node", restart("node")),
        ("NET0#2 promiscuous (host)", "node", restart("node")),
        // Inside a guest that runs, and what holds it there.
        ("NET0#0 mac (inside box)", ALL, restart("box")),
        ("NET0#0 mtu (inside box)", ALL, restart("box")),
        ("NET0#0 up (inside box)", ALL, restart("box")),
        ("NET0#0 addresses (inside box)", ALL, restart("box")),
        ("NET0#0 carrier (inside box)", ALL, restart("box")),
        ("NET0#0 egress_rate (host)", ALL, restart("box")),
        // A PF on the host, and one that a guest has.
        ("NET0. mtu (host)", ALL, APPLY.to_owned()),
        ("NET0. up (host)", ALL, APPLY.to_owned()),
        ("NET1. mtu (inside edge)", ALL, restart("edge leaf")),
        ("edge memory (host)", ALL, restart("edge leaf")),
        ("edge memory (host)", "edge", restart("edge")),
        ("NET1#0 vlan (inside edge)", ALL, restart("edge leaf")),
        ("NET1#1 mac (inside edge)", ALL, restart("edge leaf")),
        ("NET0 loopback (host)", ALL, APPLY.to_owned()),
        ("NET1 loopback (host)", ALL, restart("edge leaf")),
        // The number of VFs is changed under nobody.
        ("NET0 vfs (host)", ALL, restart("box other")),
        ("NET0 vfs (host)", "edge leaf", APPLY.to_owned()),
        ("NET0 autoprobe (host)", ALL, APPLY.to_owned()),
    ];
    for (about, running, expected) in table {
        assert_eq!(&advised(about, running, "", ""), expected, "{about}, while {running} run");
    }
}

#[test]
fn a_link_is_brought_back_where_it_was_lost() {
    let cable = "the PF of NET0 is up and has no link: see its cable, and what is at its other end";
    for about in ["NET0#0 carrier (inside box)", "NET0. carrier (host)"] {
        assert_eq!(advised(about, ALL, "NET0", ""), APPLY, "{about}: its PF is down");
        assert_eq!(advised(about, ALL, "", "NET0"), cable, "{about}");
    }
    // Nobody on the host brings up what a guest has.
    assert_eq!(advised("NET1#0 carrier (inside leaf)", ALL, "NET1", ""), restart("leaf"));
}

#[test]
fn nobody_is_told_to_apply_what_is_left_alone() {
    for about in [
        "NET2#0 vlan (host)",
        "NET2#0 mac (host)",
        "NET2 vfs (host)",
        "NET2. up (host)",
        "NET2 loopback (host)",
    ] {
        let words = advised(about, ALL, "", "");
        assert!(words.starts_with("NET2 is externally managed"), "{about}: {words}");
    }
    let own = advised("disk dns (inside disk)", "disk", "", "");
    assert!(own.starts_with("disk boots a system of its own") && !own.contains("penstock"), "{own}");
    assert_eq!(advised("NET2#0 mtu (inside guest)", ALL, "", ""), restart("guest"));
    let gone = advised("NET0 match (host)", ALL, "", "");
    assert!(gone.starts_with("no command brings the PF of NET0 back"), "{gone}");
}

#[test]
fn the_words_of_a_command_are_those_of_this_one() {
    let restart = Advice::Restart(["box".parse().unwrap()].into());
    let nics = " --nic NET0=0c:c4:7a:9a:61:ea";
    assert_eq!(
        restart.words(&"/etc/m.yaml", nics),
        format!("penstock stop /etc/m.yaml box{nics} && penstock apply /etc/m.yaml{nics}")
    );
}
