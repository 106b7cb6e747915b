//! What came of each machine, and of all of them.

use std::collections::BTreeMap;

use penstock_apply::history::RunId;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{hosts::Host, session::Over};
use crate::failure::Status;

/// What came of one machine.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The machine as it was named on the command line.
    pub host: Host,
    /// How it ended; `None` when it was not begun.
    pub over: Option<Over>,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// What the Penstock there printed, in as many parts as it did.
    pub data: Vec<String>,
    /// Why it failed, whoever said it.
    pub error: Vec<String>,
    /// What went wrong here with what it printed, however it ended there.
    pub lost: Option<Status>,
    /// The run that waits there to be confirmed.
    pub waits: Option<RunId>,
}

impl Outcome {
    /// The exit status.
    pub fn status(&self) -> Option<Status> {
        let there = self.over.as_ref().map(|over| over.status)?;
        Some(self.lost.map_or(there, |lost| there.worse(lost)))
    }

    /// The same in a few words.
    fn what(&self) -> &'static str {
        let Some(over) = &self.over else { return "not begun" };
        over.what.unwrap_or(over.status.words())
    }
}

/// The one exit status of all of them: the worst. A machine that was not begun counts as `interrupted` where that is why; else the one
/// after which none was begun counts.
pub fn worst(outcomes: &[Outcome], interrupted: bool) -> Status {
    let not_begun = interrupted.then_some(Status::Interrupted);
    outcomes.iter().filter_map(|outcome| outcome.status().or(not_begun)).fold(Status::Holds, Status::worse)
}

/// A line for each machine.
pub fn table(outcomes: &[Outcome]) -> String {
    let longest = outcomes.iter().map(|outcome| outcome.host.as_str().len()).max().unwrap_or(0).max(4);
    let mut text = format!("{:<longest$}  {:<20}  exit  seconds\n", "host", "outcome");
    for outcome in outcomes {
        let exit = outcome.status().map_or("-".to_owned(), |status| status.code().to_string());
        text += &format!(
            "{:<longest$}  {:<20}  {exit:>4}  {:>7.1}\n",
            outcome.host,
            outcome.what(),
            outcome.seconds
        );
    }
    text
}

/// What came of several machines, as a document.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Hosts {
    /// Each machine under its name.
    pub hosts: BTreeMap<String, OneHost>,
}

/// What came of one machine, as data.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OneHost {
    /// In one or two words.
    pub outcome: &'static str,
    /// Its exit status; `null` when it was not begun.
    pub exit: Option<u8>,
    /// How long it took.
    pub seconds: f64,
    /// Why it failed, outermost first.
    pub error: Vec<String>,
    /// The document that the Penstock there made; `null` when none came.
    pub data: Option<Value>,
}

/// What came of all of them, as data.
pub fn document(outcomes: &[Outcome]) -> Hosts {
    let one = |outcome: &Outcome| OneHost {
        outcome: outcome.what(),
        exit: outcome.status().map(Status::code),
        seconds: outcome.seconds,
        error: outcome.error.clone(),
        // A run has one document.
        data: outcome.data.last().and_then(|text| serde_json::from_str(text).ok()),
    };
    Hosts { hosts: outcomes.iter().map(|outcome| (outcome.host.to_string(), one(outcome))).collect() }
}

/// JSON from a machine, as it is printed here. It stays what it is: no control character can stand in it but as white
/// space, or inside a text, where it can be written otherwise.
///
/// # Errors
///
/// In words, when `text` is no JSON.
pub fn shown(text: &str) -> Result<String, String> {
    serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(|error| error.to_string())?;
    let escape = |c: char| match c {
        '\n' | '\r' | '\t' => c.to_string(),
        c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    Ok(text.chars().map(escape).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::remote::trouble::Trouble;

    fn outcome(host: &str, status: Option<Status>) -> Outcome {
        let over = status.map(|status| Over { status, what: None, trouble: None });
        Outcome {
            host: host.parse().unwrap(),
            over,
            seconds: 1.25,
            data: Vec::new(),
            error: Vec::new(),
            lost: None,
            waits: None,
        }
    }

    #[test]
    fn the_worst_status_is_that_of_all() {
        let of =
            |all: &[Status]| worst(&all.iter().map(|one| outcome("a", Some(*one))).collect::<Vec<_>>(), true);
        assert_eq!(of(&[Status::Holds, Status::Holds]), Status::Holds);
        assert_eq!(of(&[Status::Refused, Status::DoesNotHold, Status::BadInput]), Status::DoesNotHold);
        assert_eq!(of(&[Status::RolledBack, Status::Missing, Status::DoesNotHold]), Status::RolledBack);
        assert_eq!(of(&[Status::RolledBack, Status::Failed, Status::HalfWay]), Status::HalfWay);
        assert_eq!(of(&[Status::WouldChange, Status::Holds]), Status::WouldChange);
        assert_eq!(of(&[Status::RolledBack, Status::Refused]), Status::RolledBack);
        assert_eq!(of(&[Status::Missing, Status::Interrupted]), Status::Interrupted);
        let rest =
            [outcome("a", Some(Status::Holds)), outcome("b", None), outcome("c", Some(Status::Refused))];
        assert_eq!(worst(&rest, false), Status::Refused, "it is why no further one was begun");
        assert_eq!(worst(&rest[..2], true), Status::Interrupted, "somebody waits for the second");
    }

    #[test]
    fn each_machine_has_a_line() {
        let mut lost = outcome("root@node-10", Some(Status::Missing));
        lost.over.as_mut().unwrap().what = Some("lost");
        let text = table(&[outcome("a", Some(Status::Holds)), lost, outcome("c", None)]);
        assert_eq!(
            text,
            "host          outcome               exit  seconds\n\
             a             holds                    0      1.2\n\
             root@node-10  lost                     4      1.2\n\
             c             not begun                -      1.2\n"
        );
    }

    #[test]
    fn each_machine_has_an_entry() {
        let mut good = outcome("a", Some(Status::Holds));
        good.data = vec!["{\"n\": 1}".to_owned()];
        let mut bad = outcome("b", Some(Status::Missing));
        bad.over.as_mut().unwrap().trouble = Some(Trouble::new("no"));
        bad.error = vec!["no".to_owned()];
        let value = serde_json::to_value(document(&[good, bad])).unwrap();
        let value = &value["hosts"];
        assert_eq!(
            value["a"],
            json!({"outcome": "holds", "exit": 0, "seconds": 1.25, "error": [], "data": {"n": 1}})
        );
        assert_eq!(value["b"]["error"], json!(["no"]));
        assert_eq!(value["b"]["data"], Value::Null);
    }

    #[test]
    fn nothing_that_a_machine_prints_moves_a_terminal() {
        assert_eq!(shown("{\"a\":\n\"x\u{9b}31m\u{7f}\"}").unwrap(), "{\"a\":\n\"x\\u009b31m\\u007f\"}");
        assert!(shown("{\"a\": \"\u{1b}[31m\"}").is_err(), "that is no JSON");
        assert!(shown("oops").is_err());
    }
}
