//! Boards and embedded switches do not know each other; here is who holds one against the other.

#![allow(clippy::disallowed_methods)]

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::Path,
    sync::Arc,
};

use penstock_board::Design;
use penstock_guests::{state::State, vms::switch};
use penstock_host::embedded::{self, Answer, Request};
use penstock_model::{
    LinkState, Source, TxRate, VfAttribute, VfIndex, VlanId, VlanProtocol, VlanQos,
    inventory::{PortCounters, SwitchMode},
};
use penstock_plan::action::GuestNic;
use penstock_switch::{
    config::{Cable, Config},
    control::Rights,
    server::Server,
};

fn design(text: &str) -> Design {
    let model =
        penstock_model::parse(&Source::new("test.yaml", text)).expect("the test's model is good").model;
    Design::from_model(&model, None).expect("the test's board can be composed")
}

#[test]
fn what_a_board_tells_its_switches_is_what_they_understand() {
    let text = "nics: {NET0: {vfs: 255}, NET1: {vfs: 1}, NET2: {vfs: 2}}\n\
                board: {emulation: {NET2: virtio}, cables: [[NET1, NET2]]}";
    let design = design(text);
    let all: Vec<Config> = design
        .switches
        .iter()
        .map(|switch| serde_json::from_value(switch.configuration()).expect("a switch can read it"))
        .collect();
    let ports: Vec<usize> = all.iter().map(|config| config.ports.len()).collect();
    assert_eq!(ports, [256, 4], "an igb has a switch of its own");
    for (config, nic) in all.iter().zip([&design.nics[0], &design.nics[2]]) {
        let settings = config.settings().expect("it makes sense");
        let pf = &settings[nic.name.as_str()];
        assert_eq!(pf.macs[0].to_string(), nic.mac.to_string());
        assert!(settings.contains_key(&format!("{}#{}", nic.name, nic.total_vfs - 1)));
    }
    // Each port is where QEMU looks for it.
    let arguments = design.arguments().join(" ");
    for port in all.iter().flat_map(|config| config.ports.values()) {
        let path = match &port.cable {
            Some(Cable::Qemu(path)) => path,
            Some(other) => panic!("{other:?} leads to no igb"),
            None => &port.socket,
        };
        assert!(arguments.contains(&format!("path={},", path.display())), "{}", path.display());
    }
}

#[test]
fn what_a_vms_switch_is_told_is_what_it_understands() {
    let text = "nics: {NET0: {vfs: 1}}\nguests: {a: {kind: vm, nics: {net0: {vfs: 3, allow: {vlan: 100-199, max_tx_rate: 1000, loopback: on}, functions: {\
                1: {vlan: 7, allow: {mac: any, more_macs: 4, qos: 5, vlan_proto: on, spoofchk: off, trust: on, promiscuous: on}},\
                2: {allow: {mac: [\"02:00:00:00:00:05\"]}}}}}}}";
    let model =
        penstock_model::parse(&Source::new("test.yaml", text)).expect("the test's model is good").model;
    let (guest, found) = model.guests.first().expect("there is one");
    let (name, nic) = found.nics.first().expect("it has one");
    let own = GuestNic { name: name.clone(), nic: nic.clone(), uplink_at: None };
    let sockets = switch::sockets(&State::new("/run/penstock/guests".into()), guest, &own);
    let told =
        switch::configuration(guest, &own, &sockets, Some(64055), Some(&"eth0".parse().expect("a name")));
    let config: Config = serde_json::from_value(told).expect("a switch can read it");
    config.settings().expect("it makes sense");
    config.line_access().expect("so does who may come to the line");
    assert_eq!(config.pf.as_deref(), Some("a/net0"));
    for (port, may) in [("a/net0", true), ("a/net0#0", true), ("a/net0#1", true), ("a/net0 uplink", false)] {
        assert_eq!(config.ceiling(port).is_some(), may, "{port}");
    }
    assert!(config.ceiling("a/net0#1").is_some_and(|ceiling| ceiling.is_promiscuous()));
}

#[test]
fn a_cable_has_two_ends() {
    let text = "nics: {NET0: {vfs: 1}, NET1: {vfs: 1}, NET2: {vfs: 1}}\n\
                board: {emulation: {NET0: virtio, NET1: virtio, NET2: virtio}, cables: [[NET2, NET0]]}";
    let design = design(text);
    let uplinks = design.switches.iter().map(|switch| {
        let config: Config = serde_json::from_value(switch.configuration()).expect("a switch can read it");
        config.ports.into_values().find(|port| port.uplink).and_then(|port| port.cable)
    });
    let [first, none, last] = uplinks.collect::<Vec<_>>().try_into().expect("three switches");
    let (Some(Cable::Listen(awaited)), None, Some(Cable::Connect(sought))) = (first, none, last) else {
        panic!("the cable's ends do not fit");
    };
    assert_eq!(awaited, sought);
}

/// One request to a switch in the words of `penstock_host`, and its answer read by it.
fn ask(control: &Path, request: &Request) -> Answer {
    let mut stream = UnixStream::connect(control).unwrap();
    // Somebody else was killed in the middle of a request: what the switch says to that is not ours.
    stream.write_all(b"{\"version\": 1, \"do\"").unwrap();
    stream.write_all(request.line(77).as_bytes()).unwrap();
    let mut lines =
        BufReader::new(stream).lines().map(|line| serde_json::from_str::<Answer>(&line.unwrap()).unwrap());
    let refused = lines.next().unwrap();
    assert!(refused.id.is_none() && refused.error.is_some());
    let answer = lines.next().unwrap();
    assert_eq!(answer.id, Some(77));
    answer
}

#[test]
fn a_switch_does_what_it_is_asked_over_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let socket = |name: &str| directory.path().join(name);
    let port = |name: &str, mac: &str| serde_json::json!({"socket": socket(name), "mac": mac});
    let allow = serde_json::json!({"mac": "any", "vlan": "0-4094", "qos": 7, "vlan_proto": true, "trust": true, "promiscuous": true,
        "loopback": true});
    let config = serde_json::json!({"version": 1, "pf": "NET0", "allow": allow, "ports": {
        "NET0": port("pf", "02:00:00:00:00:01"),
        "NET0#0": port("0", "02:00:00:00:00:02"),
        "NET0#10": port("10", "02:00:00:00:00:03"),
    }});
    let server = Arc::new(Server::start().unwrap());
    server.apply(&serde_json::from_value(config).unwrap()).unwrap();
    let control = socket("control");
    let access = penstock_switch::socket::Access::default();
    penstock_switch::control::serve(&control, Arc::clone(&server), Rights::Attributes, access).unwrap();
    let state =
        || serde_json::from_value::<embedded::State>(ask(&control, &Request::Get).ok.unwrap()).unwrap();
    let vf = |index| VfIndex::new(index).unwrap();

    let before = state();
    assert_eq!(before.vfs().iter().map(|(index, _)| *index).collect::<Vec<_>>(), [vf(0), vf(10)]);
    assert_eq!((before.port(vf(10)).as_deref(), before.port(vf(1))), (Some("NET0#10"), None));
    let nothing = PortCounters::default().of_vf();
    assert_eq!(before.counters(), [(vf(0), nothing), (vf(10), nothing)], "a switch counts in these words");
    let mac = "02:00:00:00:00:99".parse().unwrap();
    let wanted = [
        VfAttribute::Mac(mac),
        VfAttribute::Vlan {
            id: VlanId::new(100).unwrap(),
            qos: VlanQos::new(3).unwrap(),
            protocol: VlanProtocol::Dot1ad,
        },
        VfAttribute::Spoofchk(true),
        VfAttribute::Trust(true),
        VfAttribute::Rate { min: TxRate(0), max: TxRate(250) },
        VfAttribute::LinkState(LinkState::Disable),
    ];
    let attributes = before.attributes("NET0#10", wanted.iter());
    let answer = ask(&control, &Request::Set { port: "NET0#10".to_owned(), attributes });
    assert!(answer.error.is_none(), "{answer:?}");
    let (_, seen) = state().vfs().remove(1);
    assert_eq!((seen.mac, seen.vlan.get(), seen.qos.get()), (mac, 100, 3));
    assert_eq!((seen.vlan_proto, seen.spoofchk, seen.trust), (VlanProtocol::Dot1ad, Some(true), Some(true)));
    assert_eq!((seen.max_tx_rate, seen.link_state), (TxRate(250), Some(LinkState::Disable)));

    assert_eq!(state().mode(), SwitchMode::Veb);
    ask(&control, &Request::Loopback { on: false });
    assert_eq!(state().mode(), SwitchMode::Vepa);
    let set = |port: &str, value| Request::Set {
        port: port.to_owned(),
        attributes: [("vlan".to_owned(), serde_json::Value::from(value))].into_iter().collect(),
    };
    for (request, told) in [(set("NET0#3", 1), "no port NET0#3"), (set("NET0#0", 4095), "`vlan` 4095")] {
        let why = ask(&control, &request).error.unwrap();
        assert!(why.text.contains(told), "{why:?}");
    }
}

#[test]
fn an_attribute_of_a_vms_nic_is_set_while_the_vm_is_there() {
    use penstock_guests::{state::State, vms::switch};
    use penstock_host::embedded::control;

    let text = "nics: {NET0: {}}\nguests: {n: {kind: vm, nics: {net0: {vfs: 2, mac: \"02:00:00:00:01:00\", functions: {1: {vlan: 100, trust: on}}}}}}";
    let model =
        penstock_model::parse(&Source::new("test.yaml", text)).expect("the test's model is good").model;
    let directory = tempfile::tempdir().unwrap();
    let state = State::new(directory.path().to_owned());
    let (guest, found) = model.guests.first().unwrap();
    let (name, nic) = found.nics.first().unwrap();
    let own = penstock_plan::action::GuestNic { name: name.clone(), nic: nic.clone(), uplink_at: None };
    let sockets = switch::sockets(&state, guest, &own);
    std::fs::create_dir_all(sockets[0].1.parent().unwrap()).unwrap();
    let config = switch::configuration(guest, &own, &sockets, None, None);
    let server = Arc::new(Server::start().unwrap());
    server.apply(&serde_json::from_value(config).unwrap()).unwrap();
    let control = switch::control_socket(&state, guest, name);
    let access = penstock_switch::socket::Access::default();
    penstock_switch::control::serve(&control, Arc::clone(&server), Rights::All, access).unwrap();

    let before = control::ports(&control).unwrap().remove("n/net0#1").unwrap().settings;
    assert_eq!((before.vlan.get(), before.trust), (100, Some(true)));
    let vlan = |id| VfAttribute::Vlan {
        id: VlanId::new(id).unwrap(),
        qos: VlanQos::new(3).unwrap(),
        protocol: VlanProtocol::Dot1q,
    };
    let all = [
        vlan(200),
        VfAttribute::Spoofchk(true),
        VfAttribute::Trust(false),
        VfAttribute::Rate { min: TxRate(0), max: TxRate(250) },
    ];
    for attribute in &all {
        control::set(&control, "n/net0#1", attribute).unwrap();
    }
    let mut wanted = before.clone();
    all.iter().for_each(|attribute| wanted.set(attribute));
    let ports = control::ports(&control).unwrap();
    assert_eq!(ports["n/net0#1"].settings, wanted);
    assert_eq!(ports["n/net0#0"].settings.vlan.get(), 0, "its neighbour is left as it is");
    // The way back.
    for attribute in before.attributes() {
        control::set(&control, "n/net0#1", &attribute).unwrap();
    }
    assert_eq!(control::ports(&control).unwrap()["n/net0#1"].settings, before);
    assert!(control::set(&control, "n/net0#7", &vlan(1)).is_err());
}
