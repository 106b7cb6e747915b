//! An embedded switch of this host, asked at its control socket (`docs/switch.md`).

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use penstock_model::inventory::VfState;

use super::{
    refused,
    wire::{Answer, Request, State},
};
use crate::NetlinkError;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
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
}

/// The ports of the switch whose control socket is `socket`, by name.
///
/// # Errors
///
/// When nobody serves the socket, or what answers makes no sense.
pub fn ports(socket: &Path) -> Result<BTreeMap<String, PortReport>, NetlinkError> {
    let attempt = format!("ask the embedded switch at {} for its ports", socket.display());
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            NetlinkError::TimedOut { attempt: attempt.clone(), after: PATIENCE }
        }
        _ => NetlinkError::Socket { attempt: attempt.clone(), source },
    };
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
    // Nobody else has this connection, and an empty line first would be no request.
    stream.write_all(Request::Get.line(1).trim_start().as_bytes()).map_err(failed)?;
    let mut line = Vec::new();
    BufReader::new(stream.take(LONGEST)).read_until(b'\n', &mut line).map_err(failed)?;
    let malformed = |what: String| NetlinkError::Malformed { attempt: attempt.clone(), what };
    let answer: Answer = serde_json::from_slice(&line).map_err(|error| malformed(error.to_string()))?;
    if let Some(why) = answer.error {
        return Err(refused(&attempt, &why.text));
    }
    let state: State = serde_json::from_value(answer.ok.unwrap_or_default())
        .map_err(|error| malformed(error.to_string()))?;
    Ok(state.ports())
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
            r#""vlan":7,"qos":0,"vlan_proto":"802.1Q","spoofchk":true,"trust":false,"link_state":"auto","max_tx_rate":5},"#,
            r#""connected":true,"up":true,"pairs":1,"broken":null,"counters":{}}}}}"#,
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
    }
}
