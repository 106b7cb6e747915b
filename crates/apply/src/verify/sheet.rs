//! Verdicts as they are collected.

use std::{collections::BTreeSet, fmt::Display};

use penstock_model::{
    Outcome, Verdict,
    verdict::{Subject, Vantage},
};

/// Why something was not seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blind {
    /// It could not be looked at.
    Unknown(String),
    /// The driver or device has no such thing.
    Unsupported(String),
    /// It was looked for where it should be, and is not there.
    Absent(String),
}

/// The verdicts so far.
#[derive(Default)]
pub struct Sheet {
    pub verdicts: Vec<Verdict>,
}

/// Whose attributes are being judged, and from where.
pub struct Page<'a> {
    pub sheet: &'a mut Sheet,
    pub subject: Subject,
    pub vantage: Vantage,
    pub best_effort: &'a BTreeSet<String>,
}

impl Sheet {
    pub fn page<'a>(
        &'a mut self,
        subject: Subject,
        vantage: Vantage,
        best_effort: &'a BTreeSet<String>,
    ) -> Page<'a> {
        Page { sheet: self, subject, vantage, best_effort }
    }
}

impl Page<'_> {
    /// A verdict with every part given.
    pub fn put(&mut self, attribute: &str, wanted: impl Display, seen: impl Display, outcome: Outcome) {
        let verdict = Verdict {
            subject: self.subject.clone(),
            attribute: attribute.to_owned(),
            vantage: self.vantage.clone(),
            wanted: wanted.to_string(),
            seen: seen.to_string(),
            outcome,
            best_effort: self.best_effort.contains(attribute),
            out_of_sight: false,
        };
        self.sheet.verdicts.push(verdict);
    }

    /// Passes when what was seen is what is wanted.
    pub fn compare<T: PartialEq + Display>(&mut self, attribute: &str, wanted: T, seen: Result<T, Blind>) {
        match seen {
            Ok(seen) if seen == wanted => self.put(attribute, wanted, seen, Outcome::Pass),
            Ok(seen) => self.put(attribute, wanted, seen, Outcome::Fail),
            Err(blind) => self.blind(attribute, wanted, blind),
        }
    }

    /// As [`Page::compare`], for a value that the kernel reports as `default` also for a driver that knows nothing of
    /// it. Where the model allows the attribute to be unsupported, that default counts as such.
    pub fn compare_defaulted<T: PartialEq + Display>(
        &mut self,
        attribute: &str,
        wanted: T,
        default: T,
        seen: Result<T, Blind>,
    ) {
        match seen {
            Ok(seen) if seen != wanted && seen == default && self.best_effort.contains(attribute) => {
                let seen =
                    format!("{seen}, which is also what Linux reports for a driver that has no such setting");
                self.put(attribute, wanted, seen, Outcome::Unsupported);
            }
            seen => self.compare(attribute, wanted, seen),
        }
    }

    /// What was wanted and not seen.
    pub fn blind(&mut self, attribute: &str, wanted: impl Display, blind: Blind) {
        match blind {
            Blind::Unknown(why) => self.put(attribute, wanted, why, Outcome::Unknown),
            Blind::Unsupported(why) => self.put(attribute, wanted, why, Outcome::Unsupported),
            Blind::Absent(why) => self.put(attribute, wanted, why, Outcome::Fail),
        }
    }
}

/// `on` or `off`, as a model writes it.
pub fn on(set: bool) -> &'static str {
    if set { "on" } else { "off" }
}
