//! What two Penstocks say to each other over SSH: one JSON object a line, in both directions. Both are the same build.

use std::{
    io::Write,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

use penstock_model::text::Styled;
use serde::{Deserialize, Serialize};

use crate::{model_file::Brought, settings::Widths};

/// How often each end says that it is alive.
pub const BEAT: Duration = Duration::from_secs(5);

/// An end that has said nothing for so long is taken for gone. Longer than a NIC needs to come back from a reset.
pub const PATIENCE: Duration = Duration::from_secs(45);

/// No line is longer: the inventory of a machine with 510 VFs takes less than 1 MiB.
pub const LINE: usize = 64 << 20;

/// What the Penstock on the other machine says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// What is going on now.
    Doing(String),
    /// A line of conversation.
    Say(String),
    /// A warning.
    Warn(String),
    /// What is wrong in a file, with its place.
    Explained(Styled),
    /// Why it failed.
    Failure {
        /// What went wrong, outermost first.
        causes: Vec<String>,
        /// What to do about it.
        hints: Vec<String>,
    },
    /// What it prints on standard output.
    Data(Styled),
    /// Nothing; it lives.
    Alive,
    /// The end: its exit status.
    Ended(u8),
}

/// What the Penstock of the user says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// The first line.
    Begin {
        /// What the arguments speak of.
        brought: Option<Box<Brought>>,
        /// How wide the user's text may be.
        widths: Widths,
    },
    /// Ctrl-C.
    Interrupt,
    /// Nothing; it lives.
    Alive,
}

/// A message as it travels.
pub fn line(message: &impl Serialize) -> Vec<u8> {
    // Only a map with keys that are no text could fail, and there is none.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

/// The way to the other Penstock. To say something never waits, whatever becomes of the connection.
#[derive(Clone)]
pub struct Wire(Sender<Said>);

impl Wire {
    /// Says everything on `out`, from a thread of its own, until [`Said::Ended`] or until that cannot be written any more;
    /// says so every now and then that it lives.
    pub fn to(mut out: impl Write + Send + 'static) -> (Wire, thread::JoinHandle<()>) {
        let (to, from) = channel();
        let writing = thread::spawn(move || {
            loop {
                let said = match from.recv_timeout(BEAT) {
                    Ok(said) => said,
                    Err(RecvTimeoutError::Timeout) => Said::Alive,
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                let written = out.write_all(&line(&said)).and_then(|()| out.flush());
                if written.is_err() || matches!(said, Said::Ended(_)) {
                    return;
                }
            }
        });
        (Wire(to), writing)
    }

    /// Says it. Nobody listening any more is no failure.
    pub fn say(&self, said: Said) {
        let _ = self.0.send(said);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_line() {
        let said = Said::Failure { causes: vec!["a\nb".to_owned()], hints: Vec::new() };
        let bytes = line(&said);
        assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(serde_json::from_slice::<Said>(&bytes).unwrap(), said);
        assert_eq!(line(&Said::Alive), b"\"alive\"\n");
        assert_eq!(line(&Asked::Interrupt), b"\"interrupt\"\n");
    }

    #[test]
    fn the_end_is_the_last_that_is_said() {
        let (reader, writer) = std::io::pipe().unwrap();
        let (wire, writing) = Wire::to(writer);
        wire.say(Said::Say("one".to_owned()));
        wire.say(Said::Ended(3));
        wire.say(Said::Say("nobody hears this".to_owned()));
        writing.join().unwrap();
        let heard = std::io::read_to_string(reader).unwrap();
        assert_eq!(heard, "{\"say\":\"one\"}\n{\"ended\":3}\n");
    }
}
