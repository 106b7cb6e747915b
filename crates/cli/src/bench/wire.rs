//! What the Penstock inside a board tells the one outside while it measures: one JSON object a line.

use std::io::Write;

use penstock_measure::{
    event::{BlockSample, Event},
    record::Record,
};
use penstock_model::{
    Verdicts,
    measurement::{Measurements, latency::Latency},
};
use serde::{Deserialize, Serialize};

/// One line of standard output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// While network paths and storage are measured, something happened.
    Event(Event),
    /// A sample was taken.
    Record(Record),
    /// What was seen of the machine before anything was measured.
    Verdicts(Verdicts),
    /// The end: all that came of it.
    Measured(Box<Measurements>),
    /// While latencies are measured, something happened.
    Waking(Event<BlockSample>),
    /// The end of that: all that came of it.
    Woken(Box<Latency>),
}

impl Line {
    /// Writes it to standard output. A reader that went away is somebody else's trouble: the run is recorded there.
    pub fn tell(&self) {
        // Only a map with keys that are no text could fail, and there is none.
        let Ok(mut line) = serde_json::to_vec(self) else { return };
        line.push(b'\n');
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }

    /// Reads it; `None` for a line that is none of these.
    pub fn read(text: &str) -> Option<Line> {
        serde_json::from_str(text).ok()
    }
}
