//! An embedded switch of this host, asked at its control socket (`docs/switch.md`).

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use penstock_model::{
    Mac, VfAttribute,
    inventory::{PortCounters, VfState},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::wire::{Answer, Request, State};
use crate::NetlinkError;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// An answer longer than this is none.
const LONGEST: u64 = 4 << 20;

/// A port of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortReport {
    /// What is set for it.
    pub settings: VfState,
    /// Whether its front end is there: QEMU; at an uplink, the interface.
    pub connected: bool,
    /// Why it is not.
    pub unconnected: Option<String>,
    /// Whether its link is up.
    pub up: bool,
    /// Pairs of rings that the guest's driver has made; 0 while it has none.
    pub pairs: usize,
    /// Why a ring is served no more.
    pub broken: Option<String>,
    /// How far it may be set from inside, as the switch has it; `None`: not at all.
    pub allow: Option<Value>,
    /// The VLANs whose tags its frames may have, in the switch's words; `None`: all.
    pub trunk: Option<String>,
    /// Addresses of its own beside the first.
    pub more_macs: Vec<Mac>,
    /// What came from inside.
    pub inside: InsideReport,
    /// What went through it; `None` where the switch does not tell.
    pub counters: Option<PortCounters>,
}

/// What came from inside a VM to a port, as the switch tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct InsideReport {
    /// Attributes that were set from inside and are not as the host has them, in the words of the switch.
    pub set: BTreeMap<String, Value>,
    /// What the host has in their place.
    pub host: BTreeMap<String, Value>,
    /// Wishes of the guest's device that are not granted, in words.
    pub ungranted: Vec<String>,
    /// How many wishes were refused since the switch began, by reason.
    pub refused: BTreeMap<String, u64>,
}

impl PortReport {
    /// What the host has set, without what was set from inside; `None` where the switch's words for it make no sense.
    pub fn settings_of_host(&self) -> Option<VfState> {
        let mut settings = serde_json::to_value(&self.settings).ok()?;
        let known = settings.as_object_mut()?;
        for (key, value) in &self.inside.host {
            // An address is the one that may be none.
            let value = if value.is_null() { json!(Mac::new([0; 6])) } else { value.clone() };
            if let Some(known) = known.get_mut(key) {
                *known = value;
            }
        }
        serde_json::from_value(settings).ok()
    }
}

/// The ports of the switch whose control socket is `socket`, by name.
///
/// # Errors
///
/// When nobody serves the socket, or what answers makes no sense.
pub fn ports(socket: &Path) -> Result<BTreeMap<String, PortReport>, NetlinkError> {
    let attempt = format!("ask the embedded switch at {} for its ports", socket.display());
    Ok(state(socket, &attempt)?.ports())
}

/// Hands the switch what QEMU tells that the guest of a port asks of its device (`query-rx-filter`).
///
/// # Errors
///
/// As of [`ports`]; when the switch has no such port, or cannot read it.
pub fn set_filter(socket: &Path, port: &str, filter: Value) -> Result<(), NetlinkError> {
    let attempt = format!("tell the embedded switch at {} what {port} asks for", socket.display());
    ask(socket, &attempt, &Request::Filter { port: port.to_owned(), filter }).map(drop)
}

/// Sets an attribute of the port `port` of the switch whose control socket is `socket`.
///
/// # Errors
///
/// When nobody serves the socket, there is no such port, or the switch refuses.
pub fn set(socket: &Path, port: &str, attribute: &VfAttribute) -> Result<(), NetlinkError> {
    let attempt = format!("set {attribute} of {port} at the embedded switch at {}", socket.display());
    let mut attributes = state(socket, &attempt)?.attributes(port, std::iter::once(attribute));
    // Trust alone, as at its start: a VM's own wishes come from its QEMU.
    attributes.remove("promiscuous");
    ask(socket, &attempt, &Request::Set { port: port.to_owned(), attributes }).map(drop)
}

fn state(socket: &Path, attempt: &str) -> Result<State, NetlinkError> {
    let answer = ask(socket, attempt, &Request::Get)?;
    serde_json::from_value(answer)
        .map_err(|error| NetlinkError::Malformed { attempt: attempt.to_owned(), what: error.to_string() })
}

fn ask(socket: &Path, attempt: &str, request: &Request) -> Result<Value, NetlinkError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            NetlinkError::TimedOut { attempt: attempt.to_owned(), after: TIMEOUT }
        }
        _ => NetlinkError::Socket { attempt: attempt.to_owned(), source },
    };
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    stream.set_write_timeout(Some(TIMEOUT)).map_err(failed)?;
    // Nobody else has this connection, and an empty line first would be no request.
    stream.write_all(request.line(1).trim_start().as_bytes()).map_err(failed)?;
    let mut line = Vec::new();
    BufReader::new(stream.take(LONGEST)).read_until(b'\n', &mut line).map_err(failed)?;
    let answer: Answer = serde_json::from_slice(&line)
        .map_err(|error| NetlinkError::Malformed { attempt: attempt.to_owned(), what: error.to_string() })?;
    answer.into_result(attempt)
}

/// Whether somebody serves the control socket `socket`.
pub fn is_served(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn ports_are_read_as_a_switch_tells_of_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        assert!(!is_served(&path) && ports(&path).is_err());
        let listener = UnixListener::bind(&path).unwrap();
        let answer = concat!(
            r#"{"id":1,"ok":{"version":1,"loopback":true,"ports":{"a/net0#1":{"settings":{"mac":"02:00:00:00:00:01","#,
            r#""vlan":7,"qos":0,"vlan_proto":"802.1Q","spoofchk":true,"trust":false,"link_state":"auto","max_tx_rate":5,"#,
            r#""allow":{"mac":"own","vlan":"7-9"}},"inside":{"set":{"vlan":7},"host":{"vlan":9,"mac":null},"refused":{"trust":2}},"#,
            r#""connected":true,"up":true,"pairs":1,"broken":null,"counters":{"sent":3,"sent_bytes":180,"received":2,"#,
            r#""received_bytes":120,"dropped_sent":{"spoofed_mac":4},"dropped_received":{},"mirrored":0}}}}}"#,
            "\n"
        );
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = String::new();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            request
        });
        let ports = ports(&path).unwrap();
        assert_eq!(server.join().unwrap(), "{\"do\":\"get\",\"id\":1,\"version\":1}\n");
        let port = &ports["a/net0#1"];
        assert_eq!((port.settings.vlan.get(), port.settings.spoofchk, port.pairs), (7, Some(true), 1));
        assert!(port.connected && port.up && port.unconnected.is_none() && port.broken.is_none());
        assert_eq!(port.allow.as_ref().unwrap()["vlan"], "7-9");
        assert_eq!((&port.inside.set["vlan"], port.inside.refused["trust"]), (&Value::from(7), 2));
        let counters = port.counters.as_ref().unwrap().of_vf();
        assert_eq!((counters.tx_packets, counters.rx_bytes, counters.tx_dropped), (3, 120, Some(4)));
        assert_eq!((counters.rx_dropped, counters.broadcast), (Some(0), None));
        let host = port.settings_of_host().unwrap();
        assert_eq!((host.vlan.get(), host.mac.is_zero(), host.spoofchk), (9, true, Some(true)));
    }

    #[test]
    fn an_attribute_is_set_as_the_model_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let answers = [
                concat!(r#"{"id":1,"ok":{"version":1,"loopback":true,"ports":{}}}"#, "\n"),
                concat!(r#"{"id":1,"ok":{}}"#, "\n"),
                concat!(r#"{"id":1,"ok":{"version":1,"loopback":true,"ports":{}}}"#, "\n"),
                concat!(
                    r#"{"id":1,"error":{"text":"port net0: the tap t0 could not be had","causes":["ioctl","it is busy"]}}"#,
                    "\n"
                ),
            ];
            answers.map(|answer| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = String::new();
                BufReader::new(stream.try_clone().unwrap()).read_line(&mut request).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
                request
            })
        });
        set(&path, "a/net0#1", &VfAttribute::Trust(true)).unwrap();
        let error = set(&path, "a/net0#9", &VfAttribute::Spoofchk(true)).unwrap_err();
        let told = crate::chain(&error);
        assert!(told.contains("port net0: the tap t0 could not be had: ioctl: it is busy"), "{told}");
        let requests = server.join().unwrap();
        let asked: Value = serde_json::from_str(&requests[1]).unwrap();
        assert_eq!(asked["do"], "set");
        assert_eq!(asked["port"], "a/net0#1");
        assert_eq!(asked["attributes"], serde_json::json!({"trust": true}));
    }
}
