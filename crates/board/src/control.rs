//! QEMU's control socket (QMP): one JSON object a line.

use std::{
    io::{BufRead, BufReader, ErrorKind, Write},
    os::unix::net::UnixStream,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::error::BoardError;

/// How often QEMU is asked for what no event tells of.
const PAUSE: Duration = Duration::from_millis(5);

/// A connection to a QEMU's control socket.
#[derive(Debug)]
pub struct Control {
    reader: BufReader<UnixStream>,
    deadline: Instant,
    /// What has come of a message.
    begun: Vec<u8>,
    /// How many commands were sent. Each has its number, and so has its answer, which may come when nobody waits for it any more.
    sent: u64,
}

impl Control {
    /// Connects and leaves the negotiation behind. Everything on this connection must be done by `deadline`.
    ///
    /// # Errors
    ///
    /// [`BoardError::Socket`] when there is nobody at the socket; as [`Control::ask`] when QEMU does not greet or negotiate.
    pub fn connect(socket: &Path, deadline: Instant) -> Result<Control, BoardError> {
        let failed = |source| BoardError::Socket { attempt: "connect to QEMU's control socket", source };
        let stream = UnixStream::connect(socket).map_err(failed)?;
        let mut control = Control { reader: BufReader::new(stream), deadline, begun: Vec::new(), sent: 0 };
        control.next("greet", |message| message.get("QMP").is_some())?;
        control.ask("negotiate", "qmp_capabilities", Value::Null)?;
        Ok(control)
    }

    /// Everything that is done from now on must be done by `deadline`.
    pub fn allow_until(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    /// Has it report how a migration goes.
    ///
    /// # Errors
    ///
    /// As [`Control::ask`].
    pub fn watch_migration(&mut self) -> Result<(), BoardError> {
        let on = json!({"capabilities": [{"capability": "events", "state": true}]});
        self.ask("report on migration", "migrate-set-capabilities", on)?;
        Ok(())
    }

    /// Sends a command and gives what it returned.
    ///
    /// # Errors
    ///
    /// [`BoardError::Control`] with QEMU's reason when it refuses, and when it has ended or does not answer by the deadline;
    /// [`BoardError::Socket`] when the connection breaks.
    pub fn ask(
        &mut self,
        attempt: &'static str,
        command: &str,
        arguments: Value,
    ) -> Result<Value, BoardError> {
        self.sent += 1;
        let id = self.sent;
        let mut message = json!({"execute": command, "id": id});
        if !arguments.is_null() {
            message["arguments"] = arguments;
        }
        let line = format!("{message}\n");
        let written = self.reader.get_mut().write_all(line.as_bytes());
        written.map_err(|source| BoardError::Socket { attempt: "write to QEMU's control socket", source })?;
        let answer = self.next(attempt, |message| message["id"] == id)?;
        match answer.get("error") {
            None => Ok(answer["return"].clone()),
            Some(error) => Err(BoardError::Control {
                attempt,
                why: error["desc"].as_str().unwrap_or("no reason given").to_owned(),
            }),
        }
    }

    /// Lets the machine run. QEMU reports a migration as completed a moment before it has cleaned up after it, and
    /// refuses until it has; no event tells of that.
    ///
    /// # Errors
    ///
    /// As [`Control::ask`]; also when it is not done with a migration by the deadline.
    pub fn let_run(&mut self) -> Result<(), BoardError> {
        loop {
            match self.ask("let the board run", "cont", Value::Null) {
                Err(BoardError::Control { why, .. }) if why.contains("not finalized") => {
                    if Instant::now() >= self.deadline {
                        return Err(BoardError::Control { attempt: "let the board run", why });
                    }
                    thread::sleep(PAUSE);
                }
                outcome => return outcome.map(drop),
            }
        }
    }

    /// Waits until a migration, outward or inward, has ended well.
    ///
    /// # Errors
    ///
    /// [`BoardError::Control`] with QEMU's reason when it failed; as [`Control::ask`].
    pub fn await_migration(&mut self, attempt: &'static str) -> Result<(), BoardError> {
        let ended = |message: &Value| {
            message["event"] == "MIGRATION"
                && matches!(message["data"]["status"].as_str(), Some("completed" | "failed" | "cancelled"))
        };
        let event = self.next(attempt, ended)?;
        if event["data"]["status"] == "completed" {
            return Ok(());
        }
        let info = self.ask(attempt, "query-migrate", Value::Null)?;
        Err(BoardError::Control {
            attempt,
            why: info["error-desc"].as_str().unwrap_or("it failed").to_owned(),
        })
    }

    /// Ends an outward migration however far it is, and waits until QEMU is done with it.
    ///
    /// # Errors
    ///
    /// As [`Control::ask`].
    pub fn cancel_migration(&mut self) -> Result<(), BoardError> {
        let attempt = "give up saving the board";
        self.ask(attempt, "migrate_cancel", Value::Null)?;
        loop {
            let info = self.ask(attempt, "query-migrate", Value::Null)?;
            match info["status"].as_str() {
                // Of none that was begun nothing is told.
                None | Some("none" | "completed" | "failed" | "cancelled") => return Ok(()),
                // Whether an event of it is still to come cannot be told.
                Some(_) => thread::sleep(PAUSE),
            }
        }
    }

    /// The next message that `wanted` picks; others are passed over.
    fn next(&mut self, attempt: &'static str, wanted: impl Fn(&Value) -> bool) -> Result<Value, BoardError> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(BoardError::Control { attempt, why: "it gave no answer in time".to_owned() });
            }
            let failed = |source| BoardError::Socket { attempt: "read from QEMU's control socket", source };
            let timeout = Some(left.max(Duration::from_millis(1)));
            self.reader.get_ref().set_read_timeout(timeout).map_err(failed)?;
            match self.reader.read_until(b'\n', &mut self.begun) {
                Ok(_) if !self.begun.ends_with(b"\n") => {
                    return Err(BoardError::Control { attempt, why: "QEMU has ended".to_owned() });
                }
                Ok(_) => {}
                // What has come of a message by then stays.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed(error)),
            }
            // QEMU writes one object a line; a line that is none is no answer to anything.
            let message: Value = serde_json::from_slice(&std::mem::take(&mut self.begun)).unwrap_or_default();
            if wanted(&message) {
                return Ok(message);
            }
        }
    }
}
