//! The control protocol: JSON, one request and one answer a line, on a unix socket. Who may open the socket may do everything.
//!
//! A request is a line; what has no end, or is too long, is no request, and its sender is left.
//!
//! `{"version": 1, "do": "get"}` is answered by `{"ok": {...}}`, or by `{"error": {"text": "...", "causes": [...]}}`. A request may
//! have an `id`, which its answer then has, too: for who shares a connection with others that may have left in the middle of
//! theirs, as on a serial line. After `subscribe` the switch sends an event a line until the connection ends.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Read, Write},
    os::{
        fd::AsFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::RecvTimeoutError,
    },
    thread,
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::SockType,
};
use serde::{Deserialize, Serialize};

use crate::{
    config::{Config, PortConfig, VERSION},
    rx_filter::Filter,
    server::{Attributes, Event, Server, ServerError},
    socket::{self, Access},
};

/// The longest request of who may do everything, a configuration of some thousand ports, in bytes.
const LONGEST: u64 = 4 << 20;
/// The longest request from inside, in bytes: what it sets is kept, and told to whoever listens.
const LONGEST_INSIDE: u64 = 64 << 10;
/// Connections at a time.
const MOST: usize = 32;
/// Who does not take its answer within this is left.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Who listens is looked for so often when there is nothing to tell.
const LOOK: Duration = Duration::from_secs(2);

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The version of the protocol; any other than [`VERSION`] is refused.
    pub version: u32,
    /// What the answer is known by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// What is to be done.
    #[serde(flatten)]
    pub wish: Wish,
}

/// An answer with what it is known by.
#[derive(Serialize)]
struct Known {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(flatten)]
    answer: Answer,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Wish {
    /// Say what is set and how the ports are.
    Get,
    /// Change attributes of a port.
    Set {
        /// Name of the port that changes.
        port: String,
        /// Attributes in the configuration's spelling.
        attributes: Attributes,
    },
    /// Change attributes of several ports, all or none.
    Change {
        /// Attributes by port.
        ports: BTreeMap<String, Attributes>,
    },
    /// Keep frames between ports inside, or not.
    Loopback {
        /// Whether they stay inside (VEB).
        on: bool,
    },
    /// Become what this says. Ports that do not change lose nothing.
    Reload {
        /// All of it.
        config: Config,
    },
    /// Say what the guest of a port asks of its device: for who follows QEMU's `NIC_RX_FILTER_CHANGED` in the switch's place.
    Filter {
        /// Name of the port whose guest asks.
        port: String,
        /// What `query-rx-filter` tells of the device, as QEMU has it; `null`: nothing is asked for any more.
        filter: serde_json::Value,
    },
    /// Tell what happens.
    Subscribe,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It was done; what was asked for, if anything.
    Ok(serde_json::Value),
    /// It was not done: why, and why that.
    Error {
        /// In one sentence.
        text: String,
        /// What lies behind it.
        causes: Vec<String>,
    },
}

impl Answer {
    fn failed(error: &dyn std::error::Error) -> Answer {
        let mut causes = Vec::new();
        let mut next = error.source();
        while let Some(cause) = next {
            causes.push(cause.to_string());
            next = cause.source();
        }
        Answer::Error { text: error.to_string(), causes }
    }
}

/// What who is connected may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Every request, with all attributes.
    All,
    /// What the administrator of a PF may, with [`PortConfig::ATTRIBUTES`]: look at those ports that have an `allow`, and set what that allows; not say where ports
    /// lead to. For who is in a machine behind the switch, and may be hostile.
    Attributes,
}

impl Rights {
    /// Bytes of the longest request.
    fn longest(self) -> u64 {
        match self {
            Rights::All => LONGEST,
            Rights::Attributes => LONGEST_INSIDE,
        }
    }

    fn allow(self, wish: Wish) -> Result<Wish, Answer> {
        let denied = |what: &str| {
            let text = format!("{what} is not to be had on this socket");
            Err(Answer::Error { text, causes: Vec::new() })
        };
        let ports: Vec<&Attributes> = match &wish {
            _ if self == Rights::All => return Ok(wish),
            Wish::Reload { .. } => return denied("reload"),
            Wish::Filter { .. } => return denied("filter"),
            // A serial line would be nothing else from then on.
            Wish::Subscribe => return denied("subscribe"),
            Wish::Set { attributes, .. } => vec![attributes],
            Wish::Change { ports } => ports.values().collect(),
            Wish::Get | Wish::Loopback { .. } => Vec::new(),
        };
        let mut keys = ports.iter().flat_map(|attributes| attributes.keys());
        match keys.find(|key| !PortConfig::ATTRIBUTES.contains(&key.as_str())) {
            Some(other) => denied(other),
            None => Ok(wish),
        }
    }
}

/// Serves the protocol on `path` in threads of its own, for as long as the process lives, for those who have `access`.
///
/// # Errors
/// When the socket cannot be had.
pub fn serve(path: &Path, server: Arc<Server>, rights: Rights, access: Access) -> io::Result<()> {
    let listener =
        UnixListener::from(socket::listen_for_bytes_on(path, SockType::Stream, MOST as i32, access)?);
    // There is a thread that does nothing but wait for who comes.
    listener.set_nonblocking(false)?;
    let open = Arc::new(AtomicUsize::new(0));
    let entrance = Arc::new(Entrance::new(rights));
    thread::Builder::new().name("control".to_owned()).spawn(move || {
        for stream in listener.incoming().filter_map(Result::ok) {
            if open.fetch_add(1, Ordering::AcqRel) >= MOST {
                open.fetch_sub(1, Ordering::AcqRel);
                let text = format!("there are {MOST} connections to this switch already");
                let _ = stream.set_nonblocking(true);
                let _ = send(&stream, &Answer::Error { text, causes: Vec::new() });
                continue;
            }
            let (server, open, entrance) = (Arc::clone(&server), Arc::clone(&open), Arc::clone(&entrance));
            let spawned = thread::Builder::new().name("control".to_owned()).spawn({
                let open = Arc::clone(&open);
                move || {
                    // A connection that breaks is its owner's business.
                    let _ = converse(&stream, &server, &entrance);
                    open.fetch_sub(1, Ordering::AcqRel);
                }
            });
            if spawned.is_err() {
                open.fetch_sub(1, Ordering::AcqRel);
            }
        }
    })?;
    Ok(())
}

/// A socket of the protocol, whatever connection comes through it.
#[derive(Debug)]
pub(crate) struct Entrance {
    rights: Rights,
    pace: Mutex<Pace>,
}

impl Entrance {
    pub fn new(rights: Rights) -> Entrance {
        Entrance { rights, pace: Mutex::new(Pace::new()) }
    }

    /// Holds back who asks without end, however many connections that takes.
    fn wait_for_turn(&self, wish: &Wish) {
        if self.rights != Rights::All {
            self.pace.lock().unwrap_or_else(PoisonError::into_inner).take(wish);
        }
    }
}

pub(crate) fn converse(stream: &UnixStream, server: &Server, entrance: &Entrance) -> io::Result<()> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut lines = BufReader::new(stream);
    let rights = entrance.rights;
    let longest = rights.longest();
    loop {
        let mut line = Vec::new();
        lines.by_ref().take(longest).read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            if line.len() as u64 == longest {
                let text = format!("the request is longer than {longest} bytes");
                return send(stream, &Answer::Error { text, causes: Vec::new() });
            }
            // Half a request: whoever sent it is gone, and may have meant something else.
            return Ok(());
        }
        let (id, request) = read(&line);
        if let (Ok(Wish::Subscribe), Rights::All) = (&request, rights) {
            return tell(stream, server, id);
        }
        let answer = request
            .and_then(|wish| {
                entrance.wait_for_turn(&wish);
                rights.allow(wish.clone()).inspect_err(|denied| note(&wish, denied, server))
            })
            .and_then(|wish| answer(wish, server, rights))
            .unwrap_or_else(|failed| failed);
        send(stream, &Known { id, answer })?;
    }
}

/// Requests from inside that are answered as fast as they come, and how long it takes until one more is: each has the data path do
/// something.
const BURST: u32 = 1024;
const EACH: Duration = Duration::from_millis(5);

/// Holds back who asks without end.
#[derive(Debug)]
struct Pace {
    left: u32,
    since: Instant,
}

impl Pace {
    fn new() -> Pace {
        Pace { left: BURST, since: Instant::now() }
    }

    /// Waits until there are as many as a wish is.
    fn take(&mut self, wish: &Wish) {
        // Several ports in one request are several requests.
        let cost = match wish {
            Wish::Change { ports } => (ports.len() as u32).clamp(1, BURST),
            _ => 1,
        };
        self.refill();
        while self.left < cost {
            thread::sleep(EACH.saturating_mul(cost - self.left));
            self.refill();
        }
        self.left -= cost;
    }

    fn refill(&mut self) {
        let more = (self.since.elapsed().as_nanos() / EACH.as_nanos()).min(u128::from(BURST)) as u32;
        if more > 0 {
            self.left = self.left.saturating_add(more).min(BURST);
            self.since = Instant::now();
        }
    }
}

/// Counts a wish that is not to be had at all, at the ports that it names.
fn note(wish: &Wish, denied: &Answer, server: &Server) {
    let ports: Vec<&String> = match wish {
        Wish::Set { port, .. } | Wish::Filter { port, .. } => vec![port],
        Wish::Change { ports } => ports.keys().collect(),
        _ => Vec::new(),
    };
    let Answer::Error { text, .. } = denied else { return };
    ports.into_iter().for_each(|port| server.denied(port, text));
}

/// Tells what happens, for as long as somebody listens.
fn tell(stream: &UnixStream, server: &Server, id: Option<u64>) -> io::Result<()> {
    // From here on nothing is missed; what is told twice does no harm.
    let events = server.subscribe();
    let snapshot = || server.snapshot().map_err(io::Error::other);
    send(stream, &Known { id, answer: Answer::Ok(serde_json::Value::Null) })?;
    send(stream, &snapshot()?)?;
    loop {
        match events.recv_timeout(LOOK) {
            Ok(event) => send(stream, &event)?,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) if is_gone(stream) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        // What it has is older than what it has missed: that comes first.
        if events.has_missed() {
            events.try_iter().try_for_each(|event| send(stream, &event))?;
            send(stream, &Event::Missed)?;
            send(stream, &snapshot()?)?;
        }
    }
}

/// Whether who listened has hung up.
fn is_gone(stream: &UnixStream) -> bool {
    let mut looked = [PollFd::new(stream.as_fd(), PollFlags::empty())];
    poll(&mut looked, PollTimeout::ZERO).is_ok_and(|count| count > 0)
}

pub(crate) fn read(line: &[u8]) -> (Option<u64>, Result<Wish, Answer>) {
    match serde_json::from_slice(line) {
        Ok(Request { version, id, .. }) if version != VERSION => {
            let text = format!("this is version {version} of the protocol; {VERSION} is known here");
            (id, Err(Answer::Error { text, causes: Vec::new() }))
        }
        Ok(Request { id, wish, .. }) => (id, Ok(wish)),
        Err(error) => (None, Err(Answer::failed(&error))),
    }
}

fn answer(wish: Wish, server: &Server, rights: Rights) -> Result<Answer, Answer> {
    let failed = |error: ServerError| Answer::failed(&error);
    let done = match (wish, rights) {
        (Wish::Get, _) => {
            let mut ports = server.ports().map_err(failed)?;
            if rights == Rights::Attributes {
                server.veil(&mut ports);
            }
            let state =
                serde_json::json!({"version": VERSION, "loopback": server.loopback(), "ports": ports});
            return Ok(Answer::Ok(state));
        }
        (Wish::Set { port, attributes }, Rights::All) => server.set(&port, &attributes),
        (Wish::Set { port, attributes }, Rights::Attributes) => {
            server.change_from_inside(&BTreeMap::from([(port, attributes)]))
        }
        (Wish::Change { ports }, Rights::All) => server.change(&ports),
        (Wish::Change { ports }, Rights::Attributes) => server.change_from_inside(&ports),
        (Wish::Loopback { on }, Rights::All) => server.set_loopback(on),
        (Wish::Loopback { on }, Rights::Attributes) => server.set_loopback_from_inside(on),
        (Wish::Reload { config }, _) => server.apply(&config),
        (Wish::Filter { port, filter }, _) => {
            let filter = (!filter.is_null()).then(|| Filter::read(&filter)).transpose();
            let filter = filter.map_err(|text| Answer::Error { text, causes: Vec::new() })?;
            server.set_filter(&port, filter)
        }
        (Wish::Subscribe, _) => Ok(()),
    };
    done.map(|()| Answer::Ok(serde_json::Value::Null)).map_err(failed)
}

fn send(mut stream: &UnixStream, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Asks a switch, and waits for its answer.
///
/// # Errors
/// When nobody listens on `path`, or the answer is none.
pub fn ask(path: &Path, wish: Wish) -> io::Result<(Answer, BufReader<UnixStream>)> {
    let stream = UnixStream::connect(path)?;
    send(&stream, &Request { version: VERSION, id: None, wish })?;
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    lines.read_line(&mut line)?;
    Ok((serde_json::from_str(&line)?, lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_it_says() {
        assert_eq!(read(br#"{"version": 1, "do": "get"}"#), (None, Ok(Wish::Get)));
        let known = read(br#"{"version": 1, "id": 7, "do": "loopback", "on": false}"#);
        assert_eq!(known, (Some(7), Ok(Wish::Loopback { on: false })));
        let answer = Known { id: Some(7), answer: Answer::Ok(true.into()) };
        assert_eq!(serde_json::to_string(&answer).unwrap(), r#"{"id":7,"ok":true}"#);
        let set =
            read(br#"{"version": 1, "do": "set", "port": "NET0#0", "attributes": {"vlan": 7}}"#).1.unwrap();
        assert!(
            matches!(&set, Wish::Set { port, attributes } if port == "NET0#0" && attributes["vlan"] == 7)
        );
        let moved =
            read(br#"{"version": 1, "do": "set", "port": "a", "attributes": {"packet": "eth0"}}"#).1.unwrap();
        assert!(
            matches!(Rights::Attributes.allow(moved.clone()), Err(Answer::Error { text, .. }) if text.contains("packet"))
        );
        assert_eq!(Rights::All.allow(moved.clone()), Ok(moved));
        for wish in [Wish::Get, set] {
            assert_eq!(Rights::Attributes.allow(wish.clone()), Ok(wish));
        }
        let filter = Wish::Filter { port: "a".to_owned(), filter: serde_json::Value::Null };
        for wish in [Wish::Reload { config: Config::default() }, filter, Wish::Subscribe] {
            assert!(Rights::Attributes.allow(wish).is_err());
        }
        for (line, told) in [
            (&br#"{"version": 2, "do": "get"}"#[..], "version 2"),
            (br#"{"version": 0, "do": "get"}"#, "version 0"),
            (br#"{"version": 1, "do": "forget"}"#, "unknown variant"),
            (br#"{"do": "get"}"#, "version"),
            (b"{", "EOF"),
        ] {
            let Err(Answer::Error { text, .. }) = read(line).1 else { panic!("{line:?} was taken") };
            assert!(text.contains(told), "{text}");
        }
    }
}
