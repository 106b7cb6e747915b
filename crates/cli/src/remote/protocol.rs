//! The messages between two Penstocks over SSH: one JSON object a line, in both directions. Both ends are the same build, so the
//! messages have no version.

use std::{path::PathBuf, time::Duration};

use penstock_apply::history::RunId;
use penstock_model::text::Styled;
use serde::{Deserialize, Serialize};

use crate::settings::Widths;

/// How often each end sends [`Reply::Alive`] or [`Request::Alive`].
pub const HEARTBEAT: Duration = Duration::from_secs(5);

/// An end that has sent nothing for so long is taken for gone. Longer than a NIC needs to come back from a reset.
pub const TIMEOUT: Duration = Duration::from_secs(45);

/// The longest line that is read, in bytes. The inventory of a machine with 510 VFs takes less than 1 MiB.
pub const MAX_LINE: usize = 64 << 20;

/// A message from the Penstock on the other machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// What is going on now.
    Doing(String),
    /// A line for people.
    Say(String),
    /// A warning for people, without the label `warning:`.
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
    /// This run waits there to be confirmed.
    Waits(RunId),
    /// A heartbeat: sent when nothing else was sent for [`HEARTBEAT`].
    Alive,
    /// The last message: its exit status.
    Ended(u8),
}

/// A message from the user's Penstock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// The first message.
    Begin {
        /// The model that the arguments name.
        payload: Option<Box<Payload>>,
        /// How wide the user's text may be.
        widths: Widths,
    },
    /// The user has pressed Ctrl-C; only the first one counts.
    Interrupt,
    /// A heartbeat: sent every [`HEARTBEAT`].
    Alive,
}

/// A model with every file that it refers to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Payload {
    /// What the user calls the model.
    pub name: String,
    /// The text of the model.
    pub text: String,
    /// The directory on the user's machine that its relative paths start from.
    pub directory: PathBuf,
    /// The templates that it names.
    pub templates: Vec<TemplateFile>,
}

/// A template of the user's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TemplateFile {
    /// Its path as the model has it: relative to the model's directory, or absolute.
    pub path: String,
    /// The text of the template.
    pub text: String,
}

/// A message as it is sent: one line.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    // Serialisation fails only for a map whose keys are not text, and no message has one.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Puts requests together from the pieces in which they arrive.
#[derive(Debug, Default)]
pub struct Requests {
    /// The begin of a line whose end has not come.
    partial: Vec<u8>,
}

/// The stream of requests is no such stream: a line is not a request, or is longer than [`MAX_LINE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotARequest;

impl Requests {
    /// Takes the next bytes of the stream, and hands on each request that they complete.
    ///
    /// # Errors
    ///
    /// The first line that is not a request. What came before it has been handed on; nothing after it can be trusted.
    pub fn push(&mut self, bytes: &[u8], on_request: &mut dyn FnMut(Request)) -> Result<(), NotARequest> {
        let mut rest = bytes;
        while let Some(length) = rest.iter().position(|byte| *byte == b'\n') {
            let (end, next) = rest.split_at(length);
            self.keep(end)?;
            let request = serde_json::from_slice(&self.partial).map_err(|_| NotARequest)?;
            self.partial.clear();
            on_request(request);
            rest = &next[1..];
        }
        self.keep(rest)
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), NotARequest> {
        if self.partial.len() + bytes.len() > MAX_LINE {
            return Err(NotARequest);
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin() -> Request {
        let template = TemplateFile { path: "a.j2".to_owned(), text: "b".to_owned() };
        let payload = Payload {
            name: "m.yaml".to_owned(),
            text: "nics: {}\n".to_owned(),
            directory: PathBuf::from("/d"),
            templates: vec![template],
        };
        Request::Begin { payload: Some(Box::new(payload)), widths: Widths::default() }
    }

    #[test]
    fn a_message_is_one_line() {
        let failure = Reply::Failure { causes: vec!["a\nb".to_owned()], hints: Vec::new() };
        let bytes = encode(&failure);
        assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(serde_json::from_slice::<Reply>(&bytes).unwrap(), failure);
        assert_eq!(encode(&Reply::Alive), b"\"alive\"\n");
        assert_eq!(encode(&Request::Interrupt), b"\"interrupt\"\n");
    }

    #[test]
    fn requests_are_the_same_however_the_stream_is_cut() {
        let sent = [begin(), Request::Alive, Request::Interrupt];
        let stream: Vec<u8> = sent.iter().flat_map(encode).collect();
        for size in 1..=stream.len() {
            let (mut requests, mut received) = (Requests::default(), Vec::new());
            for piece in stream.chunks(size) {
                requests.push(piece, &mut |request| received.push(request)).unwrap();
            }
            assert_eq!(received, sent, "pieces of {size} bytes");
        }
    }

    #[test]
    fn nothing_after_a_line_that_is_no_request_is_handed_on() {
        let mut received = Vec::new();
        let stream = [encode(&Request::Alive), b"{\n".to_vec(), encode(&Request::Interrupt)].concat();
        let outcome = Requests::default().push(&stream, &mut |request| received.push(request));
        assert_eq!((outcome, received), (Err(NotARequest), vec![Request::Alive]));
    }

    #[test]
    fn a_line_without_an_end_is_refused_at_the_limit() {
        let mut requests = Requests::default();
        let piece = vec![b' '; MAX_LINE / 4];
        for _ in 0..4 {
            requests.push(&piece, &mut |_| panic!("a request of spaces")).unwrap();
        }
        assert_eq!(requests.push(b" ", &mut |_| panic!("a request of spaces")), Err(NotARequest));
    }
}
