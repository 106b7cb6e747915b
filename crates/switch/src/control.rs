//! The control protocol: JSON, one request and one answer a line, on a unix socket. Who may open the socket may do everything.
//!
//! A request is a line; what has no end, or is too long, is no request, and its sender is left.
//!
//! `{"version": 1, "do": "get"}` is answered by `{"ok": {...}}`, or by `{"error": "...", "causes": [...]}`. After `subscribe` the
//! switch sends an event a line until the connection ends.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    os::{
        fd::AsFd,
        unix::{
            fs::PermissionsExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::RecvTimeoutError,
    },
    thread,
    time::Duration,
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};

use crate::{
    config::{Config, VERSION},
    server::{Attributes, Event, Server},
};

/// The longest request: a configuration of some thousand ports.
const LONGEST: u64 = 4 << 20;
/// Connections at a time.
const MOST: usize = 32;
/// Who does not take its answer within this is left.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who listens is looked for so often when there is nothing to tell.
const LOOK: Duration = Duration::from_secs(2);

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`].
    pub version: u32,
    /// What is to be done.
    #[serde(flatten)]
    pub wish: Wish,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
pub enum Wish {
    /// Say what is set and how the ports are.
    Get,
    /// Change attributes of a port.
    Set {
        /// The port.
        port: String,
        /// Attributes in the configuration's spelling.
        attributes: Attributes,
    },
    /// Change attributes of several ports, all or none.
    Change {
        /// Attributes by port.
        ports: BTreeMap<String, Attributes>,
    },
    /// Become what this says. Ports that do not change lose nothing.
    Reload {
        /// All of it.
        config: Config,
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

/// Serves the protocol on `path` in threads of its own, for as long as the process lives. The socket is its owner's alone.
///
/// # Errors
/// When the socket cannot be had.
pub fn serve(path: &Path, server: Arc<Server>) -> io::Result<()> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse && UnixStream::connect(path).is_err() => {
            fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        outcome => outcome?,
    };
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    let open = Arc::new(AtomicUsize::new(0));
    thread::Builder::new().name("control".to_owned()).spawn(move || {
        for stream in listener.incoming().filter_map(Result::ok) {
            if open.fetch_add(1, Ordering::AcqRel) >= MOST {
                open.fetch_sub(1, Ordering::AcqRel);
                let text = format!("there are {MOST} connections to this switch already");
                let _ = stream.set_nonblocking(true);
                let _ = send(&stream, &Answer::Error { text, causes: Vec::new() });
                continue;
            }
            let (server, open) = (Arc::clone(&server), Arc::clone(&open));
            let spawned = thread::Builder::new().name("control".to_owned()).spawn({
                let open = Arc::clone(&open);
                move || {
                    // A connection that breaks is its owner's business.
                    let _ = converse(&stream, &server);
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

pub(crate) fn converse(stream: &UnixStream, server: &Server) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        lines.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            if line.len() as u64 == LONGEST {
                let text = format!("the request is longer than {LONGEST} bytes");
                return send(stream, &Answer::Error { text, causes: Vec::new() });
            }
            // Half a request: whoever sent it is gone, and may have meant something else.
            return Ok(());
        }
        let request = read(&line);
        if let Ok(Wish::Subscribe) = request {
            return tell(stream, server);
        }
        let answer = request.and_then(|wish| answer(wish, server)).unwrap_or_else(|failed| failed);
        send(stream, &answer)?;
    }
}

/// Tells what happens, for as long as somebody listens.
fn tell(stream: &UnixStream, server: &Server) -> io::Result<()> {
    // From here on nothing is missed; what is told twice does no harm.
    let events = server.subscribe();
    let snapshot = || server.snapshot().map_err(io::Error::other);
    send(stream, &Answer::Ok(serde_json::Value::Null))?;
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

pub(crate) fn read(line: &[u8]) -> Result<Wish, Answer> {
    let request: Request = serde_json::from_slice(line).map_err(|error| Answer::failed(&error))?;
    if request.version > VERSION {
        let text = format!("this is version {} of the protocol; {VERSION} is known here", request.version);
        return Err(Answer::Error { text, causes: Vec::new() });
    }
    Ok(request.wish)
}

fn answer(wish: Wish, server: &Server) -> Result<Answer, Answer> {
    let failed = |error: crate::server::ServerError| Answer::failed(&error);
    match wish {
        Wish::Get => {
            let ports = server.ports().map_err(failed)?;
            let state =
                serde_json::json!({"version": VERSION, "loopback": server.config().loopback, "ports": ports});
            Ok(Answer::Ok(state))
        }
        Wish::Set { port, attributes } => {
            server.set(&port, &attributes).map_err(failed)?;
            Ok(Answer::Ok(serde_json::Value::Null))
        }
        Wish::Change { ports } => {
            server.change(&ports).map_err(failed)?;
            Ok(Answer::Ok(serde_json::Value::Null))
        }
        Wish::Reload { config } => {
            server.apply(&config).map_err(failed)?;
            Ok(Answer::Ok(serde_json::Value::Null))
        }
        Wish::Subscribe => Ok(Answer::Ok(serde_json::Value::Null)),
    }
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
    send(&stream, &Request { version: VERSION, wish })?;
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
        assert_eq!(read(br#"{"version": 1, "do": "get"}"#).unwrap(), Wish::Get);
        let set =
            read(br#"{"version": 1, "do": "set", "port": "NET0#0", "attributes": {"vlan": 7}}"#).unwrap();
        assert!(matches!(set, Wish::Set { port, attributes } if port == "NET0#0" && attributes["vlan"] == 7));
        for (line, told) in [
            (&br#"{"version": 2, "do": "get"}"#[..], "version 2"),
            (br#"{"version": 1, "do": "forget"}"#, "unknown variant"),
            (br#"{"do": "get"}"#, "version"),
            (b"{", "EOF"),
        ] {
            let Err(Answer::Error { text, .. }) = read(line) else { panic!("{line:?} was taken") };
            assert!(text.contains(told), "{text}");
        }
    }
}
