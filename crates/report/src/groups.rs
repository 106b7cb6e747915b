//! Verdicts counted, and grouped by what they are about.

use std::{cmp::Reverse, collections::HashMap, fmt};

use penstock_model::{
    DriveName, GuestName, NicName, Outcome, Verdict,
    verdict::{Subject, Vantage},
};

use crate::Evidence;

/// How many verdicts came out how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Seen, and as the model says.
    pub pass: usize,
    /// Seen, and otherwise.
    pub fail: usize,
    /// The driver or device cannot do it.
    pub unsupported: usize,
    /// Could not be seen.
    pub unknown: usize,
    /// How many of the unsupported ones the model allows (`best_effort`).
    pub allowed: usize,
    /// How many other unsupported ones are a NIC's that is emulated and only pretends.
    pub pretended: usize,
    /// How many of the unknown ones nobody could see, as the model has it (`inside`).
    pub hidden: usize,
}

impl Counts {
    /// Counts `verdicts` by outcome.
    pub fn of<'a>(verdicts: impl IntoIterator<Item = &'a Verdict>) -> Counts {
        let mut counts = Counts::default();
        for verdict in verdicts {
            match verdict.outcome {
                Outcome::Pass => counts.pass += 1,
                Outcome::Fail => counts.fail += 1,
                Outcome::Unknown => {
                    counts.unknown += 1;
                    counts.hidden += usize::from(verdict.out_of_sight);
                }
                Outcome::Unsupported => {
                    counts.unsupported += 1;
                    counts.allowed += usize::from(verdict.best_effort);
                    counts.pretended += usize::from(verdict.emulated && !verdict.best_effort);
                }
            }
        }
        counts
    }

    /// All of them.
    pub fn total(self) -> usize {
        self.pass + self.fail + self.unsupported + self.unknown
    }

    /// How many of the unsupported ones keep nothing from holding.
    pub fn excused(self) -> usize {
        self.allowed + self.pretended
    }

    /// Whether none of them keeps the whole from holding.
    pub fn hold(self) -> bool {
        self.fail == 0 && self.unknown == self.hidden && self.unsupported == self.excused()
    }
}

/// `3 fail, 1 unknown, 20 pass`: what there is, the worst first.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            (self.fail, "fail"),
            (self.unknown, "unknown"),
            (self.unsupported, "unsupported"),
            (self.pass, "pass"),
        ];
        let mut separator = "";
        for (count, word) in all.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{separator}{count} {word}")?;
            separator = ", ";
        }
        if separator.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

/// What a group of verdicts is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupName {
    /// The machine as a whole.
    Machine,
    /// A NIC, and those of its functions that no guest owns.
    Nic(NicName),
    /// A guest and the functions that it owns.
    Guest(GuestName),
    /// An NVMe drive, and its VFs whoever owns them.
    Drive(DriveName),
    /// Which functions reach which.
    Paths,
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupName::Machine => f.write_str("machine"),
            GroupName::Nic(nic) => nic.fmt(f),
            GroupName::Guest(guest) => guest.fmt(f),
            GroupName::Drive(drive) => drive.fmt(f),
            GroupName::Paths => f.pad("reachability"),
        }
    }
}

/// Verdicts about one thing.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// What they are about.
    pub name: GroupName,
    /// How many came out how.
    pub counts: Counts,
    /// The verdicts: subject by subject, those that do not hold first.
    pub verdicts: Vec<&'a Verdict>,
}

/// The groups of the evidence's verdicts: those that do not hold first, else machine, NICs, guests, reachability.
pub(crate) fn of(evidence: &Evidence) -> Vec<Group<'_>> {
    let owners = evidence.machine.owners();
    let mut members: HashMap<GroupName, Vec<&Verdict>> = HashMap::new();
    for verdict in &evidence.verdicts {
        let name = match &verdict.subject {
            Subject::Machine => GroupName::Machine,
            Subject::Nic(nic) => GroupName::Nic(nic.clone()),
            Subject::Tenant(function) => GroupName::Guest(function.guest.clone()),
            Subject::Guest(guest) => GroupName::Guest(guest.clone()),
            Subject::Drive(drive) => GroupName::Drive(drive.clone()),
            Subject::DriveVf(vf) => GroupName::Drive(vf.drive.clone()),
            Subject::Path { .. } => GroupName::Paths,
            Subject::Function(function) => match (owners.get(function), &verdict.vantage) {
                (Some(owner), _) => GroupName::Guest((*owner).clone()),
                (None, Vantage::Guest(guest)) => GroupName::Guest(guest.clone()),
                (None, Vantage::Host) => GroupName::Nic(function.nic.clone()),
            },
        };
        members.entry(name).or_default().push(verdict);
    }
    let mut groups: Vec<Group<'_>> = members
        .into_iter()
        .map(|(name, verdicts)| Group {
            name,
            counts: Counts::of(verdicts.iter().copied()),
            verdicts: worst_subject_first(verdicts),
        })
        .collect();
    let nic_place: HashMap<_, _> = (evidence.machine.nics.iter().map(|nic| &nic.name)).zip(0..).collect();
    let guest_place: HashMap<_, _> =
        (evidence.machine.guests.iter().map(|guest| &guest.name)).zip(0..).collect();
    groups.sort_by_cached_key(|group| {
        let place = match &group.name {
            GroupName::Machine => (0, 0),
            GroupName::Nic(nic) => (1, *nic_place.get(nic).unwrap_or(&usize::MAX)),
            GroupName::Guest(guest) => (2, *guest_place.get(guest).unwrap_or(&usize::MAX)),
            GroupName::Drive(_) => (3, 0),
            GroupName::Paths => (4, 0),
        };
        (group.counts.hold(), place, group.name.clone())
    });
    groups
}

/// Keeps the verdicts of one subject together; what does not hold comes first, among subjects and within one.
fn worst_subject_first(verdicts: Vec<&Verdict>) -> Vec<&Verdict> {
    let mut subjects: HashMap<&Subject, usize> = HashMap::new();
    for verdict in &verdicts {
        *subjects.entry(&verdict.subject).or_default() += usize::from(!verdict.holds());
    }
    let rank = |subject: &Subject| match subject {
        Subject::Machine => 0,
        Subject::Nic(_) | Subject::Drive(_) | Subject::Guest(_) => 1,
        Subject::Function(_) | Subject::DriveVf(_) | Subject::Tenant(_) => 2,
        Subject::Path { .. } => 3,
    };
    let mut sorted = verdicts;
    sorted.sort_by_cached_key(|verdict| {
        let verdict: &Verdict = verdict;
        let subject = &verdict.subject;
        let bad = subjects.get(subject).is_some_and(|bad| *bad > 0);
        (Reverse(bad), rank(subject), subject, verdict.holds())
    });
    sorted
}
