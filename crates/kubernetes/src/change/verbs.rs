//! The verbs of `penstock` that a change takes, and how their answers are read (docs/json.md, docs/exit-status.md).

use std::{net::IpAddr, path::Path, time::Duration};

use penstock_host::Command;
use serde_json::Value;

use crate::{
    machine::node::VerdictCounts,
    penstock::{Penstock, PenstockError, errors},
};

/// A plan of a machine with some hundred VFs takes seconds; a lock of another run is waited for besides.
const PLAN: Duration = Duration::from_secs(300);

/// `apply` ends by itself; this is for one that does not. Its guard calls it hung before.
const APPLY: Duration = Duration::from_secs(3600);

/// `verify` waits for links and frames, each 10 s at most.
const VERIFY: Duration = Duration::from_secs(300);

/// Verbs that read or write a few files.
const SHORT: Duration = Duration::from_secs(60);

/// What a verb answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its exit status.
    pub exit: i32,
    /// Its document; null where it printed none.
    pub document: Value,
    /// What it said on standard error.
    said: String,
}

impl Answer {
    /// An answer that nobody gave.
    #[cfg(test)]
    pub fn new(exit: i32, document: Value) -> Answer {
        Answer { exit, document, said: String::new() }
    }

    /// What went wrong, in one line.
    pub fn why(&self) -> String {
        let line = |said: &str| said.split_whitespace().collect::<Vec<_>>().join(" ");
        match errors(&self.document) {
            Some(said) => line(&said),
            None => format!("penstock ended with {}: {}", self.exit, line(&self.said)),
        }
    }
}

/// `penstock`, for a change.
#[derive(Clone, Debug)]
pub struct Verbs {
    penstock: Penstock,
}

impl Verbs {
    /// By this binary.
    pub fn new(penstock: Penstock) -> Verbs {
        Verbs { penstock }
    }

    fn command(&self) -> Command {
        let penstock = self.penstock.path();
        Command::new(penstock)
    }

    /// `plan MODEL`, with the ways to `peers` among what the machine depends on.
    ///
    /// # Errors
    ///
    /// [`PenstockError`] when it cannot be run, does not end in time, or is killed by a signal. What it refuses or fails with is an
    /// [`Answer`].
    pub async fn plan(
        &self,
        model: &Path,
        allow: &[String],
        peers: &[IpAddr],
    ) -> Result<Answer, PenstockError> {
        let mut command = self.command().arg("plan").arg(model);
        command = with(command, allow, peers);
        run(command.deadline(PLAN)).await
    }

    /// `apply MODEL --confirm-within TIME`.
    ///
    /// # Errors
    ///
    /// As [`Verbs::plan`].
    pub async fn apply(
        &self,
        model: &Path,
        within: Duration,
        allow: &[String],
        peers: &[IpAddr],
    ) -> Result<Answer, PenstockError> {
        let within = format!("{}s", within.as_secs());
        let command = self.command().arg("apply").arg(model).args(["--confirm-within", &within]);
        run(with(command, allow, peers).deadline(APPLY)).await
    }

    /// `verify MODEL`.
    ///
    /// # Errors
    ///
    /// As [`Verbs::plan`].
    pub async fn verify(&self, model: &Path) -> Result<Answer, PenstockError> {
        run(self.command().arg("verify").arg(model).deadline(VERIFY)).await
    }

    /// `confirm RUN`.
    ///
    /// # Errors
    ///
    /// As [`Verbs::plan`].
    pub async fn confirm(&self, number: u64) -> Result<Answer, PenstockError> {
        run(self.command().arg("confirm").arg(number.to_string()).deadline(SHORT)).await
    }

    /// `undo RUN`.
    ///
    /// # Errors
    ///
    /// As [`Verbs::plan`].
    pub async fn undo(&self, number: u64) -> Result<Answer, PenstockError> {
        run(self.command().arg("undo").arg(number.to_string()).deadline(APPLY)).await
    }
}

fn with(mut command: Command, allow: &[String], peers: &[IpAddr]) -> Command {
    // One word each: a name that begins with a dash is no option.
    command = command.args(allow.iter().map(|name| format!("--allow={name}")));
    command.args(peers.iter().map(|peer| format!("--peer={peer}")))
}

async fn run(command: Command) -> Result<Answer, PenstockError> {
    let command = command.arg("--json");
    let text = command.to_string();
    let output = tokio::task::spawn_blocking(move || command.run()).await;
    let output = output.map_err(|_| PenstockError::Lost(text.clone()))??;
    let Some(exit) = output.status.code() else {
        let why = output.errors();
        return Err(PenstockError::Failed { command: text, status: output.status.to_string(), why });
    };
    let document = serde_json::from_slice(&output.stdout).unwrap_or_default();
    Ok(Answer { exit, document, said: output.errors() })
}

/// How the verdicts of `verify` came out, and the first that does not hold.
pub fn verdicts(document: &Value) -> (VerdictCounts, Option<String>) {
    let mut counts = VerdictCounts::default();
    let mut first = None;
    for verdict in document.get("verdicts").and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| verdict.get(key).and_then(Value::as_str).unwrap_or("?");
        let flag = |key: &str| verdict.get(key).and_then(Value::as_bool).unwrap_or(false);
        let excused = match text("outcome") {
            "pass" => {
                counts.pass += 1;
                true
            }
            "fail" => {
                counts.fail += 1;
                false
            }
            "unsupported" => {
                counts.unsupported += 1;
                flag("best_effort") || flag("emulated")
            }
            // An outcome that this program does not know was not seen to be a pass.
            _ => {
                counts.unknown += 1;
                flag("out_of_sight")
            }
        };
        if !excused && first.is_none() {
            let subject = verdict.get("subject").map_or_else(String::new, |subject| match subject.as_str() {
                Some(subject) => subject.to_owned(),
                None => subject.to_string(),
            });
            first = Some(format!(
                "{subject} {}: wanted {}, seen {}",
                text("attribute"),
                text("wanted"),
                text("seen")
            ));
        }
    }
    (counts, first)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn verdicts_are_counted_and_the_first_bad_one_is_told() {
        let verdict = |outcome: &str| json!({"subject": "NET0#1", "attribute": "vlan", "wanted": "100", "seen": "none", "outcome": outcome, "best_effort": outcome == "unsupported"});
        let document =
            json!({"verdicts": [verdict("pass"), verdict("unsupported"), verdict("fail"), verdict("new")]});
        let (counts, first) = verdicts(&document);
        assert_eq!(counts, VerdictCounts { pass: 1, fail: 1, unsupported: 1, unknown: 1 });
        assert_eq!(first.unwrap(), "NET0#1 vlan: wanted 100, seen none");
        assert_eq!(verdicts(&json!(null)), (VerdictCounts::default(), None));
    }
}
