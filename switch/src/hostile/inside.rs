//! Lines from inside, and what a guest has QEMU tell of its device.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::OnceLock,
    thread,
};

use serde_json::{Value, json};

use super::Input;
use crate::{
    config::{Config, PortConfig},
    control::{self, Rights},
    rx_filter::Filter,
    server::Server,
    settings::LinkState,
};

/// Lines of one connection.
const LINES: usize = 24;
/// Addresses that a port with a ceiling may have beside its own.
const MAY: [&str; 2] = ["02:00:00:00:00:55", "02:00:00:00:00:66"];

/// A PF and a VF with a ceiling, and a neighbour without.
fn config() -> Config {
    let allow =
        json!({"mac": MAY, "more_macs": 1, "vlan": "0,100-102", "max_tx_rate": 1000, "link_state": "auto"});
    // No interface is called that: what a port leads to is not looked for here, and no file is made.
    let port = |number: u8, more: Value| {
        let mac = format!("02:00:00:00:00:{number:02x}");
        let mut port = json!({"cable": {"connect": format!("/nonexistent/{number}")}, "mac": mac, "trunk": "0",
            "max_tx_rate": 10});
        for (key, value) in more.as_object().into_iter().flatten() {
            port[key] = value.clone();
        }
        port
    };
    let ports = json!({
        "NET0": port(1, json!({"allow": allow})),
        "NET0#0": port(2, json!({"allow": allow, "spoofchk": true, "trust": true})),
        "other": port(3, json!({"vlan": 7})),
    });
    serde_json::from_value(json!({"version": 1, "pf": "NET0", "ports": ports})).expect("it makes sense")
}

/// Whether a port is within what [`config`] allows, found by looking at its text alone.
fn is_within(port: &PortConfig, host: &PortConfig) {
    let own = host.mac.clone().unwrap_or_default();
    let all: Vec<String> = port.mac.iter().chain(&port.more_macs).map(|mac| mac.to_lowercase()).collect();
    assert!(all.iter().all(|mac| *mac == own || MAY.contains(&mac.as_str())), "{all:?}");
    assert!(all.iter().collect::<BTreeSet<_>>().len() == all.len() && all.len() <= 3, "{all:?}");
    let vlans: Vec<u16> = match (port.vlan, port.trunk.as_deref()) {
        (0, None) => panic!("it is in all VLANs"),
        (0, Some(trunk)) => trunk
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .flat_map(|part| {
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                let number = |text: &str| text.trim().parse().expect("a VLAN");
                number(first)..=number(last)
            })
            .collect(),
        (own, _) => vec![own],
    };
    assert!(vlans.iter().all(|vlan| [0, 100, 101, 102].contains(vlan)), "{vlans:?}");
    assert!((1..=1000).contains(&port.max_tx_rate) && port.min_tx_rate == 0 && port.qos == 0);
    assert_ne!(port.link_state, LinkState::Enable);
    assert!(port.spoofchk || !host.spoofchk);
    assert!(!port.promiscuous && (!port.trust || host.trust));
    assert!(port.mtu.unwrap_or(1500) <= 1500 && !port.default && !port.uplink);
    assert_eq!((&port.cable, &port.vlan_proto, &port.allow), (&host.cable, &host.vlan_proto, &host.allow));
}

/// A switch for all runs: one takes threads, and none changes what the host has set.
fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let server = Server::start().expect("a thread can be had");
        server.apply(&config()).expect("it makes sense");
        server
    })
}

/// A wish made of bytes, which gets further than bytes alone.
fn wish(input: &mut Input<'_>) -> Value {
    let keys = [PortConfig::ATTRIBUTES, &["default", "allow", "cable"]].concat();
    let key = input.one(&keys);
    let mac =
        |input: &mut Input<'_>| format!("02:00:00:00:00:{:02x}", input.one(&[1, 2, 3, 0x55, 0x66, 0xFF_u8]));
    let value = match input.byte() % 7 {
        0 => json!(input.coin()),
        1 => json!(input.one(&[0, 7, 100, 101, 102, 103, 1000, 1001, 1500, 4094, 4095, -1])),
        2 => json!(mac(input).to_uppercase()),
        3 => json!([mac(input), mac(input)]),
        4 => json!(input.one(&[
            "0",
            "0,100-102",
            "100-103",
            "",
            "auto",
            "enable",
            "disable",
            "802.1ad",
            " 1 - 2 "
        ])),
        5 => Value::Null,
        _ => json!({"trust": true}),
    };
    let port = input.one(&["NET0", "NET0#0", "other", "nobody"]);
    json!({"version": 1, "do": "set", "port": port, "attributes": {key: value}})
}

/// What QEMU tells of a device, made of bytes.
fn told(input: &mut Input<'_>) -> Value {
    let mac = |input: &mut Input<'_>| {
        json!(format!("02:00:00:00:00:{:02x}", input.one(&[0, 1, 2, 3, 0x55, 0x66_u8])))
    };
    let count = usize::from(input.byte());
    let table: Vec<Value> = (0..count).map(|_| mac(input)).collect();
    let vlans: Vec<u16> = (0..usize::from(input.byte() % 32)).map(|_| input.word()).collect();
    json!({"main-mac": mac(input), "promiscuous": input.coin(), "vlan": input.one(&["normal", "none", "all"]),
        "unicast": input.one(&["normal", "all"]), "unicast-table": table, "vlan-table": vlans})
}

/// These bytes as lines from inside, as wishes, and as what QEMU tells.
///
/// # Panics
/// When a line gets no answer, when a port goes further than its ceiling, or what the host has set is not as it was.
pub fn inside(bytes: &[u8]) {
    let host = config();
    let server = server();
    // Two tests at a time would see each other's wishes; that harms nothing that is looked at here.
    thread::scope(|scope| {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair of sockets can be had");
        let answerer = scope
            .spawn(move || control::converse(&theirs, server, &control::Entrance::new(Rights::Attributes)));
        let mut answers = BufReader::new(ours.try_clone().expect("a descriptor can be had"));
        let mut input = Input::new(bytes);
        for _ in 0..LINES {
            if input.is_empty() {
                break;
            }
            let line = match input.byte() % 4 {
                0 => {
                    let count = usize::from(input.byte());
                    let line: Vec<u8> =
                        input.bytes(count).iter().copied().filter(|byte| *byte != b'\n').collect();
                    line
                }
                1 | 2 => wish(&mut input).to_string().into_bytes(),
                _ => {
                    let told = told(&mut input);
                    let told =
                        if input.coin() { Filter::read(&told) } else { Filter::read(&input.byte().into()) };
                    if let Ok(filter) = told {
                        server
                            .set_filter(input.one(&["NET0", "NET0#0", "other"]), Some(filter))
                            .expect("there it is");
                    }
                    continue;
                }
            };
            ours.write_all(&[&line[..], b"\n"].concat()).expect("the connection stands");
            let mut answer = String::new();
            answers.read_line(&mut answer).expect("an answer");
            let answer: Value = serde_json::from_str(&answer).expect("an answer that is one");
            assert!(answer.get("ok").is_some() != answer.get("error").is_some(), "{answer}");
            assert!(!answer.to_string().contains("/nonexistent"), "it tells of the host: {answer}");
        }
        let _ = ours.shutdown(Shutdown::Both);
        // As with the control socket: a scope does not wait for its threads' ends.
        let _ = answerer.join().expect("the thread ends without a panic");
        assert_eq!(server.config(), host);
        let ports = server.ports().expect("the switch runs");
        for name in ["NET0", "NET0#0"] {
            is_within(&ports[name].settings, &host.ports[name]);
        }
        assert_eq!(ports["other"].settings, host.ports["other"], "a port without a ceiling");
    });
}
