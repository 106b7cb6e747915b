//! What the agent says while it runs: lines on standard error, which systemd keeps.

use std::io::Write;

use penstock_model::text::one_line;

/// Says something in one line. Nobody listening is no reason to stop.
pub fn say(text: impl AsRef<str>) {
    let line = format!("{}\n", one_line(text.as_ref()));
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// A trouble that may last: told when it begins, when its words change, and when it is over.
#[derive(Debug)]
pub struct LastingTrouble {
    what: &'static str,
    why: Option<String>,
    times: u64,
}

impl LastingTrouble {
    /// None so far; `what` cannot be done while there is one.
    pub fn new(what: &'static str) -> LastingTrouble {
        LastingTrouble { what, why: None, times: 0 }
    }

    /// What came of trying it once more: it is over, or met; what it gave where it was done.
    pub fn tried<T, E: std::error::Error + 'static>(&mut self, outcome: Result<T, E>) -> Option<T> {
        match outcome {
            Ok(given) => {
                self.end();
                Some(given)
            }
            Err(error) => {
                self.meet(&error);
                None
            }
        }
    }

    /// It could not be done, again or for the first time.
    pub fn meet(&mut self, why: &(dyn std::error::Error + 'static)) {
        self.meet_words(penstock_host::chain(why));
    }

    /// The same, in words.
    pub fn meet_words(&mut self, why: String) {
        self.times += 1;
        if self.why.as_ref() != Some(&why) {
            say(format!("cannot {}: {why}; trying again until it works", self.what));
            self.why = Some(why);
        }
    }

    /// It could be done.
    pub fn end(&mut self) {
        if self.why.take().is_some() {
            let attempts = if self.times == 1 { "attempt" } else { "attempts" };
            say(format!("could {} after {} failed {attempts}", self.what, self.times));
        }
        self.times = 0;
    }
}
