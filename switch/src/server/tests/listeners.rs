//! Who controls the switch, who listens to it, and front ends that ask for the device's configuration.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
};

use serde_json::{Value, json};
use vhost::vhost_user::message::VhostUserConfigFlags;

use super::*;
use crate::control;

/// A connection to the control socket of a switch with two ports.
struct Client {
    lines: BufReader<UnixStream>,
}

impl Client {
    fn to(path: &Path) -> Client {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Client { lines: BufReader::new(stream) }
    }

    fn say(&self, text: &str) {
        self.lines.get_ref().write_all(text.as_bytes()).unwrap();
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    fn ask(&mut self, request: &Value) -> Value {
        self.say(&format!("{request}\n"));
        self.hear()
    }
}

fn controlled() -> (TempDir, Arc<Server>, std::path::PathBuf) {
    let (directory, server, _) = rig(2);
    let (server, path) = (Arc::new(server), directory.path().join("control"));
    control::serve(&path, Arc::clone(&server), control::Rights::All, Access::default()).unwrap();
    (directory, server, path)
}

#[test]
fn what_is_no_request_harms_nobody() {
    let (_directory, server, path) = controlled();
    let before = server.config();
    let mut client = Client::to(&path);
    client.say("\u{0}nonsense\n");
    assert!(client.hear()["error"]["text"].is_string());
    client.say("[]\n{}\n");
    assert!(client.hear()["error"].is_object() && client.hear()["error"].is_object());
    // Half a request is none, even when it could be one.
    client.say(r#"{"version": 1, "do": "set", "port": "NET0#0", "attributes": {"vlan": 7}}"#);
    client.lines.get_ref().shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    client.lines.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
    // A request without an end.
    let endless = Client::to(&path);
    let flood = vec![b' '; 1 << 20];
    let mut sent = 0;
    while endless.lines.get_ref().write_all(&flood).is_ok() {
        sent += flood.len();
        assert!(sent < 64 << 20, "it takes whatever comes");
    }
    assert_eq!(server.config(), before);
    let state = Client::to(&path).ask(&json!({"version": 1, "do": "get"}));
    assert!(state["ok"]["ports"]["NET0#0"].is_object());
}

#[test]
fn several_ports_are_changed_or_none() {
    let (_directory, server, path) = controlled();
    let mut client = Client::to(&path);
    let mut change = |ports: Value| client.ask(&json!({"version": 1, "do": "change", "ports": ports}));
    assert_eq!(change(json!({"NET0#0": {"vlan": 7}, "NET0#1": {"vlan": 7, "qos": 3}})), json!({"ok": null}));
    let set = server.config();
    assert_eq!((set.ports["NET0#0"].vlan, set.ports["NET0#1"].qos), (7, 3));
    for (ports, told) in [
        (json!({"NET0#0": {"vlan": 8}, "NET0#1": {"vlan": "many"}}), r#"NET0#1: vlan cannot be "many""#),
        (json!({"NET0#0": {"vlan": 8}, "NET0#1": {"spoofcheck": true}}), "NET0#1: spoofcheck cannot be true"),
        (json!({"NET0#0": {"vlan": 8}, "NET0#9": {"vlan": 8}}), "there is no port NET0#9"),
        (json!({"NET0#0": {"vlan": 8}, "NET0#1": {"mtu": 9}}), "NET0#1: MTU 9"),
    ] {
        let answer = change(ports);
        let text = answer["error"]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(text.contains(told), "{text}");
    }
    assert_eq!(server.config(), set);
}

#[test]
fn who_watches_hears_how_all_is_and_what_happens() {
    let (_directory, server, path) = controlled();
    let mut client = Client::to(&path);
    assert_eq!(client.ask(&json!({"version": 1, "do": "subscribe"})), json!({"ok": null}));
    let snapshot = client.hear();
    assert_eq!((&snapshot["event"], &snapshot["loopback"]), (&json!("snapshot"), &json!(true)));
    assert_eq!(snapshot["ports"]["NET0#1"]["up"], true);
    server.set("NET0#1", json!({"link_state": "disable"}).as_object().unwrap()).unwrap();
    assert_eq!(client.hear()["settings"]["link_state"], "disable");
    assert_eq!(client.hear(), json!({"event": "link", "port": "NET0#1", "up": false}));
    let mut guest = Guest::connect(&server.config().ports["NET0#0"].socket, false);
    assert_eq!(client.hear(), json!({"event": "connected", "port": "NET0#0"}));
    guest.front.set_vring_enable(0, true).unwrap();
    drop(guest);
    assert_eq!(client.hear()["event"], "disconnected");
    // More than a listener can be behind, while it does not read.
    for number in 0..4000 {
        server.listeners.tell(&Event::Removed { port: format!("{number:0500}") });
    }
    let mut heard = 0;
    let after = loop {
        let event = client.hear();
        if event["event"] == "missed" {
            break client.hear();
        }
        assert_eq!(event["event"], "removed");
        heard += 1;
    };
    assert!(heard < 4000, "nothing was missed");
    assert_eq!((&after["event"], &after["ports"]["NET0#1"]["up"]), (&json!("snapshot"), &json!(false)));
    server.set("NET0#1", json!({"link_state": "auto"}).as_object().unwrap()).unwrap();
    while client.hear() != json!({"event": "link", "port": "NET0#1", "up": true}) {}
}

#[test]
fn a_front_end_that_asks_has_the_configuration_and_hears_of_changes() {
    let (_directory, server, config) = rig(2);
    let mut front = Frontend::connect(&config.ports["NET0#1"].socket, 2).unwrap();
    front.set_owner().unwrap();
    front.get_features().unwrap();
    let wanted = VhostUserProtocolFeatures::CONFIG | VhostUserProtocolFeatures::BACKEND_REQ;
    let offered = front.get_protocol_features().unwrap();
    assert!(offered.contains(wanted));
    front.set_protocol_features(wanted).unwrap();
    let read = |front: &mut Frontend| {
        let (_, bytes) = front.get_config(0, 12, VhostUserConfigFlags::WRITABLE, &[0; 12]).unwrap();
        bytes
    };
    // Its address, up, 16 pairs of rings, its MTU (5.1.4).
    assert_eq!(read(&mut front), [2, 0, 0, 0, 0, 1, 1, 0, 16, 0, 0xdc, 5]);
    let (ours, theirs) = UnixStream::pair().unwrap();
    front.set_backend_request_fd(&theirs).unwrap();
    // Its answer comes after that was taken.
    front.get_features().unwrap();
    server.set("NET0#1", json!({"link_state": "disable"}).as_object().unwrap()).unwrap();
    let mut message = [0; 12];
    (&ours).read_exact(&mut message).unwrap();
    assert_eq!(message, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(read(&mut front)[6..8], [0, 0]);
}
