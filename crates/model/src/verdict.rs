//! What was found when the model was compared with a machine: one verdict per attribute.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    ops::Deref,
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{DriveName, DriveVfName, EndpointName, FunctionName, GuestName, NicName, TenantFunctionName};

/// How one comparison came out.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
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
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// The machine as a whole.
    Machine,
    /// A NIC: VF count, embedded-switch mode.
    Nic(NicName),
    /// A function, wherever it is.
    Function(FunctionName),
    /// A function of a NIC that a VM owns.
    Tenant(TenantFunctionName),
    /// An NVMe drive: VF count.
    Drive(DriveName),
    /// A VF of a drive, and what its guest sees of it.
    #[serde(rename = "drive_vf")]
    DriveVf(DriveVfName),
    /// A guest: running, CPU and memory limits.
    Guest(GuestName),
    /// Whether frames sent by `from` arrive at `to`.
    Path {
        /// The function that sends.
        from: EndpointName,
        /// The function that receives.
        to: EndpointName,
    },
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Machine => f.write_str("machine"),
            Subject::Nic(nic) => nic.fmt(f),
            Subject::Function(function) => function.fmt(f),
            Subject::Tenant(function) => function.fmt(f),
            Subject::Drive(drive) => drive.fmt(f),
            Subject::DriveVf(vf) => vf.fmt(f),
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
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Verdict {
    /// What it is about.
    pub subject: Subject,
    /// The attribute, in the model's spelling where it has one: `mac`, `vlan`, `link_state`, `reach`...
    pub attribute: String,
    /// Which it is of several verdicts on this attribute of this subject: the address, the file, the kernel's argument; or
    /// [`BY_PF`], [`BY_FRAMES`]. `None` where there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    /// From where it was looked at.
    pub vantage: Vantage,
    /// What the model asks for.
    pub wanted: String,
    /// What was seen; for `unknown` and `unsupported`, why it could not be.
    pub seen: String,
    /// How wanted and seen compare.
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

/// [`Verdict::item`] of what the PF's driver keeps of a VF. The VF's own interface shows some of it again.
pub const BY_PF: &str = "by the PF";
/// [`Verdict::item`] of what frames show. The kernel tells some of it too.
pub const BY_FRAMES: &str = "by frames";

/// What tells a verdict from all others of its run, and what two runs are compared by. From where it was seen is no part of it:
/// that can change from run to run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VerdictKey {
    /// What the verdict is about ([`Verdict::subject`]).
    pub subject: Subject,
    /// The attribute in the model's spelling ([`Verdict::attribute`]).
    pub attribute: String,
    /// Which of several verdicts on the attribute; `None` where there is only one ([`Verdict::item`]).
    pub item: Option<String>,
}

/// `NET0#3 mac by the PF`, `rt-2 running`.
impl fmt::Display for VerdictKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.subject, self.attribute)?;
        match &self.item {
            Some(item) => write!(f, " {item}"),
            None => Ok(()),
        }
    }
}

/// Two verdicts of one run that have the same key: a comparison could not tell them apart.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "verdicts {first} and {second} are both \"{key}\", and no two verdicts of a run may have the same key"
)]
pub struct DuplicateVerdict {
    /// The key of both verdicts.
    pub key: VerdictKey,
    /// The position of the first, counted from 1.
    pub first: usize,
    /// The position of the second, counted from 1.
    pub second: usize,
}

/// The verdicts of a run. No two have the same key: it is checked when they are read, and made so when they are collected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "Vec<Verdict>")]
pub struct Verdicts(Vec<Verdict>);

impl Verdicts {
    /// Changes each of them. The keys are made each its own again.
    pub fn update(&mut self, change: impl FnMut(&mut Verdict)) {
        let mut verdicts = std::mem::take(&mut self.0);
        verdicts.iter_mut().for_each(change);
        *self = verdicts.into_iter().collect();
    }
}

/// Whoever gives two verdicts the same key has made a mistake, which must not cost a run its evidence: the later ones are
/// numbered (`(2)`), so that they are compared one by one in their order.
impl FromIterator<Verdict> for Verdicts {
    fn from_iter<I: IntoIterator<Item = Verdict>>(all: I) -> Verdicts {
        let mut taken: HashMap<VerdictKey, usize> = HashMap::new();
        let mut verdicts = Vec::new();
        for mut verdict in all {
            let first = verdict.key();
            while taken.contains_key(&verdict.key()) {
                let count = taken.entry(first.clone()).or_default();
                *count += 1;
                let item = first.item.as_ref().map_or_else(String::new, |item| format!("{item} "));
                verdict.item = Some(format!("{item}({})", *count + 1));
            }
            taken.insert(verdict.key(), 0);
            verdicts.push(verdict);
        }
        Verdicts(verdicts)
    }
}

impl TryFrom<Vec<Verdict>> for Verdicts {
    type Error = DuplicateVerdict;

    fn try_from(verdicts: Vec<Verdict>) -> Result<Verdicts, DuplicateVerdict> {
        let mut known: HashMap<VerdictKey, usize> = HashMap::new();
        for (at, verdict) in verdicts.iter().enumerate() {
            match known.entry(verdict.key()) {
                Entry::Vacant(free) => drop(free.insert(at + 1)),
                Entry::Occupied(first) => {
                    let (key, first) = (first.key().clone(), *first.get());
                    return Err(DuplicateVerdict { key, first, second: at + 1 });
                }
            }
        }
        Ok(Verdicts(verdicts))
    }
}

impl Deref for Verdicts {
    type Target = [Verdict];

    fn deref(&self) -> &[Verdict] {
        &self.0
    }
}

impl IntoIterator for Verdicts {
    type Item = Verdict;
    type IntoIter = std::vec::IntoIter<Verdict>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Verdicts {
    type Item = &'a Verdict;
    type IntoIter = std::slice::Iter<'a, Verdict>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl Verdict {
    /// What tells it from all others of its run.
    pub fn key(&self) -> VerdictKey {
        let Verdict { subject, attribute, item, .. } = self;
        VerdictKey { subject: subject.clone(), attribute: attribute.clone(), item: item.clone() }
    }

    /// The same verdict as one of several on its attribute.
    pub fn of_item(self, item: impl Into<String>) -> Verdict {
        Verdict { item: Some(item.into()), ..self }
    }

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
        Verdict {
            subject,
            attribute,
            item: None,
            vantage,
            wanted,
            seen,
            outcome,
            best_effort,
            out_of_sight,
            emulated,
        }
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
    use super::{Outcome, Subject, Vantage, Verdict, Verdicts};

    #[test]
    fn unknown_holds_only_where_nobody_can_look_and_unsupported_with_best_effort_or_emulated() {
        let holds = |outcome, best_effort, out_of_sight, emulated| {
            let (attribute, wanted, seen) = ("mac".to_owned(), "a".to_owned(), "b".to_owned());
            let (subject, vantage) = (Subject::Machine, Vantage::Host);
            Verdict {
                subject,
                attribute,
                item: None,
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

    fn verdict(attribute: &str) -> Verdict {
        Verdict::of_host(Subject::Machine, attribute, "a".to_owned(), Ok(("a".to_owned(), true)))
    }

    fn keys(verdicts: &Verdicts) -> Vec<String> {
        verdicts.iter().map(|verdict| verdict.key().to_string()).collect()
    }

    #[test]
    fn collected_verdicts_have_keys_of_their_own_whatever_was_collected() {
        let all = [
            verdict("x"),
            verdict("x").of_item("1"),
            verdict("x"),
            verdict("x").of_item("(2)"),
            verdict("x").of_item("1"),
            verdict("x"),
        ];
        let verdicts: Verdicts = all.into_iter().collect();
        let expected = [
            "machine x",
            "machine x 1",
            "machine x (2)",
            "machine x (2) (2)",
            "machine x 1 (2)",
            "machine x (3)",
        ];
        assert_eq!(keys(&verdicts), expected);
        let again: Verdicts = serde_json::from_str(&serde_json::to_string(&verdicts).unwrap()).unwrap();
        assert_eq!(again, verdicts);
        assert_eq!(verdicts.iter().cloned().collect::<Verdicts>(), verdicts, "it is done once");
    }

    #[test]
    fn two_verdicts_of_one_key_are_refused_with_their_places() {
        let text = serde_json::to_string(&[verdict("x"), verdict("y"), verdict("x")]).unwrap();
        let error = serde_json::from_str::<Verdicts>(&text).unwrap_err().to_string();
        assert!(error.contains("verdicts 1 and 3 are both \"machine x\""), "{error}");
        // From where something was seen does not make it another thing.
        let inside = Verdict { vantage: Vantage::Guest("g".parse().unwrap()), ..verdict("x") };
        assert!(Verdicts::try_from(vec![verdict("x"), inside]).is_err());
        assert!(Verdicts::try_from(vec![verdict("x"), verdict("x").of_item("10.0.0.1/24")]).is_ok());
    }
}
