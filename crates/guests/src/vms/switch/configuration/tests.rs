use std::collections::BTreeMap;

use penstock_model::{Emulation, Mac, TxRate, Uplink, VlanId};

use super::*;
use crate::{
    state::State,
    vms::switch::{line_socket, sockets},
};

fn own() -> GuestNic {
    let mac = |text: &str| text.parse::<Mac>().unwrap();
    let vf = |text: &str| VfSettings { mac: Some(mac(text)), ..VfSettings::default() };
    let second = VfSettings { vlan: VlanId::new(100), spoofchk: Some(true), ..vf("02:00:00:00:00:02") };
    GuestNic {
        name: "net0".parse().unwrap(),
        nic: TenantNic {
            emulation: Emulation::Virtio,
            mac: mac("02:00:00:00:00:00"),
            vfs: vec![vf("02:00:00:00:00:01"), second],
            settings: VfSettings::default(),
            addresses: Vec::new(),
            routes: Vec::new(),
            dhcp: false,
            mtu: None,
            path: DataPath::Switch,
            uplink: Some(Uplink::Interface("eth0".parse().unwrap())),
            uplink_settings: None,
            queues: 1,
            workers: 1,
            allow: None,
            vf_allow: BTreeMap::new(),
        },
        uplink_at: None,
    }
}

#[test]
fn a_switch_is_told_of_each_function_and_of_its_uplink() {
    let state = State::new("/run/penstock/guests".into());
    let guest: GuestName = "node-1".parse().unwrap();
    let own = own();
    let sockets = sockets(&state, &guest, &own);
    let uplink = "eth0".parse().unwrap();
    let told = configuration(&guest, &own, &sockets, Some(64055), Some(&uplink));
    let common = json!({"mtu": 65535, "access": {"mode": "0600", "owner": "64055"}});
    let with = |more: Value| {
        let mut all = common.clone();
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let directory = "/run/penstock/guests/penstock-node-1/switch-net0";
    let wanted = json!({"version": 1, "loopback": true, "ports": {
        "node-1/net0": with(json!({
            "socket": format!("{directory}/pf"), "mac": "02:00:00:00:00:00", "trunk": "0", "default": true
        })),
        "node-1/net0#0": with(json!({
            "socket": format!("{directory}/0"), "mac": "02:00:00:00:00:01", "trunk": "0",
            "spoofchk": false, "trust": false, "max_tx_rate": 0
        })),
        "node-1/net0#1": with(json!({
            "socket": format!("{directory}/1"), "mac": "02:00:00:00:00:02", "trunk": "0", "vlan": 100, "qos": 0,
            "vlan_proto": "802.1Q", "spoofchk": true, "trust": false, "max_tx_rate": 0
        })),
        "node-1/net0 uplink": {"packet": "eth0", "uplink": true, "mtu": 65535},
    }});
    assert_eq!(told, wanted);
}

#[test]
fn a_switch_by_vdpa_devices_has_no_sockets_and_the_same_attributes() {
    let state = State::new("/run/penstock/guests".into());
    let guest: GuestName = "node-1".parse().unwrap();
    let mut own = own();
    let sockets = sockets(&state, &guest, &own);
    let at_sockets = configuration(&guest, &own, &sockets, Some(64055), None);
    own.nic.path = DataPath::VhostVdpa;
    let by_devices = configuration(&guest, &own, &sockets, Some(64055), None);
    let mut wanted = at_sockets.clone();
    for (port, device) in [
        ("node-1/net0", "penstock-020000000000"),
        ("node-1/net0#0", "penstock-020000000001"),
        ("node-1/net0#1", "penstock-020000000002"),
    ] {
        let port = wanted["ports"][port].as_object_mut().unwrap();
        assert!(port.remove("socket").is_some() && port.remove("access").is_some());
        port.insert("vduse".to_owned(), json!({"name": device, "driver": "vhost_vdpa"}));
    }
    assert_eq!(by_devices, wanted);
}

#[test]
fn the_switch_of_an_igb_has_one_port_at_a_tap_and_no_line() {
    let state = State::new("/run/penstock/guests".into());
    let guest: GuestName = "node-1".parse().unwrap();
    let mut own = own();
    own.nic.emulation = Emulation::Igb;
    own.nic.path = DataPath::SwitchTap;
    own.nic.vfs.clear();
    let sockets = sockets(&state, &guest, &own);
    let uplink = "eth0".parse().unwrap();
    let ports =
        |own: &GuestNic| configuration(&guest, own, &sockets, Some(64055), Some(&uplink))["ports"].clone();
    let plain = json!({"packet": "tap020000000000", "mac": "02:00:00:00:00:00", "more_macs": [], "mtu": 65535,
        "default": true, "trunk": "0", "spoofchk": false, "trust": false, "max_tx_rate": 0});
    let out = json!({"packet": "eth0", "uplink": true, "mtu": 65535});
    assert_eq!(ports(&own), json!({"node-1/net0": plain, "node-1/net0 uplink": out}));

    own.nic.settings.spoofchk = Some(true);
    let macs = penstock_model::AllowedMacs::These(vec!["02:00:00:00:00:05".parse().unwrap()]);
    let vlan = Some("100-101".parse().unwrap());
    own.nic.allow = Some(Allow { mac: macs, vlan, max_tx_rate: Some(TxRate(1000)), ..Allow::default() });
    let told = configuration(&guest, &own, &sockets, Some(64055), Some(&uplink));
    let port = &told["ports"]["node-1/net0"];
    assert_eq!(port["more_macs"], json!(["02:00:00:00:00:05"]));
    assert_eq!((&port["trunk"], &port["spoofchk"]), (&json!("0,100-101"), &json!(true)));
    assert_eq!(port["max_tx_rate"], 1000);
    // Nobody inside is asked, so that nobody inside can set anything.
    for key in ["allow", "pf", "line"] {
        assert!(told.get(key).is_none() && port.get(key).is_none(), "{key} in {told}");
    }
    assert_eq!(line_socket(&state, &guest, &own), None);
}

#[test]
fn a_switch_is_told_how_far_its_vm_may_go() {
    let state = State::new("/run/penstock/guests".into());
    let guest: GuestName = "node-1".parse().unwrap();
    let mut own = own();
    assert_eq!(line_socket(&state, &guest, &own), None);
    let vlan = Some("100-199".parse().unwrap());
    own.nic.allow = Some(Allow { vlan, max_tx_rate: Some(TxRate(1000)), loopback: true, ..Allow::default() });
    own.nic.vf_allow = [(VfIndex::new(1).unwrap(), Allow { trust: true, ..Allow::default() })].into();
    let sockets = sockets(&state, &guest, &own);
    let told = configuration(&guest, &own, &sockets, Some(64055), None);
    assert_eq!(told["pf"], "node-1/net0");
    assert_eq!(told["line"], json!({"mode": "0600", "owner": "64055"}));
    assert_eq!(told["allow"], json!({"loopback": true}));
    let of = |port: &str| told["ports"][port].clone();
    let nic = json!({"mac": "own", "more_macs": 0, "vlan": "100-199", "vlan_proto": false, "max_tx_rate": 1000,
        "spoofchk": true, "trust": false, "promiscuous": false, "loopback": false});
    assert_eq!(of("node-1/net0")["allow"], nic);
    assert_eq!(of("node-1/net0#0")["allow"], nic);
    // Without a VLAN of its own, it is in none; and it has the limit from the start.
    assert_eq!(of("node-1/net0#0")["trunk"], "0");
    assert_eq!(of("node-1/net0#0")["max_tx_rate"], 1000);
    assert_eq!(of("node-1/net0#1")["allow"]["trust"], true);
    let line = line_socket(&state, &guest, &own).unwrap();
    assert!(line.ends_with("penstock-node-1/switch-net0/line"), "{}", line.display());
}
