//! What was found when the model was compared with a machine: one verdict per attribute.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{FunctionName, GuestName, NicName};

/// How one comparison came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It is as the model says; it was seen.
    Pass,
    /// It was seen, and it is otherwise.
    Fail,
    /// The driver or device says that it cannot do this.
    Unsupported,
    /// It could not be seen. Never counted as a pass; it lets the whole hold only where the model says that nobody can
    /// look.
    Unknown,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Outcome::Pass => "pass",
            Outcome::Fail => "fail",
            Outcome::Unsupported => "unsupported",
            Outcome::Unknown => "unknown",
        })
    }
}

/// What a verdict is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// The machine as a whole.
    Machine,
    /// A NIC: VF count, embedded-switch mode.
    Nic(NicName),
    /// A function, wherever it is.
    Function(FunctionName),
    /// A guest: running, CPU and memory limits.
    Guest(GuestName),
    /// Whether frames sent by `from` arrive at `to`.
    Path {
        /// The sender.
        from: FunctionName,
        /// The receiver.
        to: FunctionName,
    },
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Machine => f.write_str("machine"),
            Subject::Nic(nic) => nic.fmt(f),
            Subject::Function(function) => function.fmt(f),
            Subject::Guest(guest) => guest.fmt(f),
            Subject::Path { from, to } => write!(f, "{from} -> {to}"),
        }
    }
}

/// What [`Verdict::wanted`] (and, when it is so, [`Verdict::seen`]) says of a [`Subject::Path`] whose frames are to arrive.
pub const ARRIVES: &str = "arrives";
/// What [`Verdict::wanted`] (and, when it is so, [`Verdict::seen`]) says of a [`Subject::Path`] that no frame may take.
pub const ISOLATED: &str = "isolated";

/// From where an observation was made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vantage {
    /// The host's own namespaces.
    Host,
    /// Inside this guest.
    Guest(GuestName),
}

impl fmt::Display for Vantage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Vantage::Host => f.write_str("host"),
            Vantage::Guest(guest) => write!(f, "inside {guest}"),
        }
    }
}

/// One attribute of one subject, wanted and seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// What it is about.
    pub subject: Subject,
    /// The attribute, in the model's spelling where it has one: `mac`, `vlan`, `link_state`, `reach`...
    pub attribute: String,
    /// From where it was looked at.
    pub vantage: Vantage,
    /// What the model asks for.
    pub wanted: String,
    /// What was seen; for `unknown` and `unsupported`, why it could not be.
    pub seen: String,
    /// The comparison.
    pub outcome: Outcome,
    /// Whether the model says that this may be unsupported (`best_effort`).
    pub best_effort: bool,
    /// Whether the model says that nobody can look there (`inside: none`).
    #[serde(default)]
    pub out_of_sight: bool,
    /// Whether what cannot do it is a NIC that QEMU emulates, which takes what it is told and does nothing. That says
    /// nothing against the model: the real one does it.
    #[serde(default)]
    pub emulated: bool,
}

impl Verdict {
    /// What the host tells of `attribute`: what was seen and whether it is as wanted, or why it could not be seen.
    pub fn of_host(
        subject: Subject,
        attribute: &str,
        wanted: String,
        seen: Result<(String, bool), String>,
    ) -> Verdict {
        let (seen, outcome) = match seen {
            Ok((seen, true)) => (seen, Outcome::Pass),
            Ok((seen, false)) => (seen, Outcome::Fail),
            Err(why) => (why, Outcome::Unknown),
        };
        let attribute = attribute.to_owned();
        let vantage = Vantage::Host;
        let (best_effort, out_of_sight, emulated) = (false, false, false);
        Verdict { subject, attribute, vantage, wanted, seen, outcome, best_effort, out_of_sight, emulated }
    }

    /// Whether this verdict lets the whole hold: a pass; unsupported where the model says best effort, or by a NIC that is
    /// emulated; unknown where the model says that nobody can look.
    pub fn holds(&self) -> bool {
        match self.outcome {
            Outcome::Pass => true,
            Outcome::Unsupported => self.best_effort || self.emulated,
            Outcome::Unknown => self.out_of_sight,
            Outcome::Fail => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Subject, Vantage, Verdict};

    #[test]
    fn unknown_holds_only_where_nobody_can_look_and_unsupported_with_best_effort_or_emulated() {
        let holds = |outcome, best_effort, out_of_sight, emulated| {
            let (attribute, wanted, seen) = ("mac".to_owned(), "a".to_owned(), "b".to_owned());
            let (subject, vantage) = (Subject::Machine, Vantage::Host);
            Verdict {
                subject,
                attribute,
                vantage,
                wanted,
                seen,
                outcome,
                best_effort,
                out_of_sight,
                emulated,
            }
            .holds()
        };
        for bits in 0..8 {
            let [one, other, third] = [1, 2, 4].map(|bit| bits & bit != 0);
            assert!(holds(Outcome::Pass, one, other, third));
            assert!(!holds(Outcome::Fail, one, other, third));
            assert_eq!(holds(Outcome::Unsupported, one, other, third), one || third);
            assert_eq!(holds(Outcome::Unknown, one, other, third), other);
        }
    }
}
