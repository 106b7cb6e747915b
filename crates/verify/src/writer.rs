//! Verdicts as they are collected.

use std::{collections::BTreeSet, fmt::Display};

use penstock_model::{
    Guest, GuestKind, Outcome, Verdict, VfKey,
    guest::Inside,
    inventory::{Capabilities, Capability, Trial},
    verdict::{Subject, Vantage},
};

/// Why something was not seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unobserved {
    /// It could not be looked at.
    Unknown(String),
    /// The driver or device has no such thing.
    Unsupported(String),
    /// It was looked for where it should be, and is not there.
    Absent(String),
}

impl Unobserved {
    /// What it comes to, with the reason.
    pub fn outcome(self) -> (String, Outcome) {
        match self {
            Unobserved::Unknown(why) => (why, Outcome::Unknown),
            Unobserved::Unsupported(why) => (why, Outcome::Unsupported),
            Unobserved::Absent(why) => (why, Outcome::Fail),
        }
    }
}

/// The verdicts so far.
#[derive(Default)]
pub struct VerdictSheet {
    pub verdicts: Vec<Verdict>,
}

/// Whose attributes are being judged, and from where.
pub struct VerdictWriter<'a> {
    pub sheet: &'a mut VerdictSheet,
    pub subject: Subject,
    /// What tells these attributes from the same ones of another page ([`Verdict::item`]).
    pub item: Option<&'static str>,
    pub vantage: Vantage,
    pub best_effort: &'a BTreeSet<String>,
    /// The attributes that nobody can see from here, as the model has it.
    pub hidden: Hidden,
    /// What is known of the PF's driver.
    pub known: Option<&'a Capabilities>,
    /// Whether the NIC that cannot do it is emulated.
    pub emulated: bool,
}

/// Which attributes a guest hides, by the model's `inside`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hidden {
    /// None: what was not seen should have been.
    #[default]
    Nothing,
    /// What the table of NICs that a guest prints on its console does not hold.
    AllButTable,
    /// All that only its inside could show.
    All,
}

impl Hidden {
    /// How a guest of the model is hidden from who looks inside.
    pub fn inside(guest: &Guest) -> Hidden {
        match (guest.kind, guest.vm.inside) {
            (GuestKind::Container, _) | (GuestKind::Vm, Inside::Agent) => Hidden::Nothing,
            (GuestKind::Vm, Inside::Console) => Hidden::AllButTable,
            (GuestKind::Vm, Inside::None) => Hidden::All,
        }
    }

    /// Whether the attribute is hidden.
    pub fn hides(self, attribute: &str) -> bool {
        match self {
            Hidden::Nothing => false,
            Hidden::AllButTable => ["device", "carrier", "reach", "routes", "dns"].contains(&attribute),
            Hidden::All => true,
        }
    }
}

impl VerdictSheet {
    pub fn page<'a>(
        &'a mut self,
        subject: Subject,
        vantage: Vantage,
        best_effort: &'a BTreeSet<String>,
    ) -> VerdictWriter<'a> {
        VerdictWriter {
            sheet: self,
            subject,
            item: None,
            vantage,
            best_effort,
            hidden: Hidden::Nothing,
            known: None,
            emulated: false,
        }
    }
}

/// What came of trying the driver with an attribute.
fn trials<'a>(known: Option<&'a Capabilities>, attribute: &str) -> impl Iterator<Item = &'a Trial> {
    let capabilities = VfKey::named(attribute).map_or(&[][..], Capability::needed_for);
    capabilities.iter().filter_map(move |of| known?.trials.get(of))
}

/// Why the driver cannot have set an attribute, as it was seen to.
pub fn lack(known: Option<&Capabilities>, attribute: &str) -> Option<String> {
    trials(known, attribute).find(|trial| trial.ability.is_lacking()).map(Trial::to_string)
}

impl<'a> VerdictWriter<'a> {
    /// The same page, with what is known of the PF's driver.
    pub fn knowing(self, known: Option<&'a Capabilities>) -> Self {
        VerdictWriter { known, ..self }
    }

    /// The same page of what only one of several witnesses shows.
    pub fn shown(self, by: &'static str) -> Self {
        VerdictWriter { item: Some(by), ..self }
    }

    /// The same page of a NIC that is emulated.
    pub fn emulated(self) -> Self {
        VerdictWriter { emulated: true, ..self }
    }

    /// The same page of what the model hides.
    pub fn hiding(self, hidden: Hidden) -> Self {
        VerdictWriter { hidden, ..self }
    }

    /// A verdict with every part given.
    pub fn put(&mut self, attribute: &str, wanted: impl Display, seen: impl Display, outcome: Outcome) {
        self.put_item(attribute, self.item.map(str::to_owned), wanted, seen, outcome);
    }

    /// One of several verdicts on an attribute: that of this `item`.
    pub fn put_item(
        &mut self,
        attribute: &str,
        item: Option<String>,
        wanted: impl Display,
        seen: impl Display,
        outcome: Outcome,
    ) {
        let verdict = Verdict {
            subject: self.subject.clone(),
            attribute: attribute.to_owned(),
            item,
            vantage: self.vantage.clone(),
            wanted: wanted.to_string(),
            seen: seen.to_string(),
            outcome,
            best_effort: self.best_effort.contains(attribute),
            out_of_sight: self.hidden.hides(attribute),
            emulated: self.emulated && outcome == Outcome::Unsupported,
        };
        self.sheet.verdicts.push(verdict);
    }

    /// Passes when what was seen is what is wanted.
    pub fn compare<T: PartialEq + Display>(
        &mut self,
        attribute: &str,
        wanted: T,
        seen: Result<T, Unobserved>,
    ) {
        match seen {
            Ok(seen) if seen == wanted => self.put(attribute, wanted, seen, Outcome::Pass),
            Ok(seen) => match lack(self.known, attribute) {
                Some(why) => {
                    let seen = format!("{seen}; the driver was tried ({why})");
                    self.put(attribute, wanted, seen, Outcome::Unsupported);
                }
                None => self.put(attribute, wanted, seen, Outcome::Fail),
            },
            Err(blind) => self.blind(attribute, wanted, blind),
        }
    }

    /// As [`VerdictWriter::compare`], for a value that the kernel reports as `default` also for a driver that knows nothing of
    /// it. Where the model allows the attribute to be unsupported, that default counts as such, unless the driver was seen to
    /// have it.
    pub fn compare_defaulted<T: PartialEq + Display>(
        &mut self,
        attribute: &str,
        wanted: T,
        default: T,
        seen: Result<T, Unobserved>,
    ) {
        match seen {
            Ok(seen)
                if seen != wanted
                    && seen == default
                    && self.best_effort.contains(attribute)
                    && !trials(self.known, attribute).any(|trial| trial.ability.is_had()) =>
            {
                let seen =
                    format!("{seen}, which is also what Linux reports for a driver that has no such setting");
                self.put(attribute, wanted, seen, Outcome::Unsupported);
            }
            seen => self.compare(attribute, wanted, seen),
        }
    }

    /// What was wanted and not seen.
    pub fn blind(&mut self, attribute: &str, wanted: impl Display, blind: Unobserved) {
        let (why, outcome) = blind.outcome();
        self.put(attribute, wanted, why, outcome);
    }
}

/// `on` or `off`, as a model writes it.
pub fn on(set: bool) -> &'static str {
    if set { "on" } else { "off" }
}
