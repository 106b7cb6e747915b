//! Who reaches whom, as a matrix small enough to be looked at.

use std::collections::{BTreeSet, HashMap, HashSet};

use penstock_model::{
    EndpointName, GuestName, Outcome, Verdict, WantedEswitch,
    verdict::{ISOLATED, Subject},
};

use crate::{Evidence, Machine};

/// More rows than this, and the matrix is drawn by guest; more guests than this, and it is drawn by NIC.
const MOST_ENDS: usize = 32;

/// More NICs than this are left out: what is drawn of them grows with their square. No machine has so many.
const MOST_NICS: usize = 256;

/// What a row or column of the matrix stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// One function: a PF or a VF, of the machine or of a VM.
    Function,
    /// All functions of one guest, or of the host.
    Guest,
    /// All functions of one NIC.
    Nic,
}

/// One end of paths: a row and a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// Name of the function, guest or NIC; `host` for all functions of the host.
    pub(crate) name: String,
    /// Who owns it, as an index into the machine's guests; `None` for the host or a whole NIC.
    pub(crate) guest: Option<usize>,
}

/// The verdicts about the paths from one end to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) arrive: usize,
    pub(crate) isolated: usize,
    pub(crate) lost: usize,
    pub(crate) leaked: usize,
    pub(crate) unsupported: usize,
    pub(crate) unknown: usize,
    /// Not seen, and the model says that nobody can.
    pub(crate) hidden: usize,
}

impl Cell {
    /// How many verdicts there are, whatever they say.
    pub(crate) fn total(self) -> usize {
        self.arrive + self.isolated + self.lost + self.leaked + self.unsupported + self.unknown + self.hidden
    }

    /// Symbol, CSS class and words for the worst of it.
    pub(crate) fn mark(self) -> (&'static str, &'static str, &'static str) {
        if self.total() == 0 {
            ("", "none", "not judged")
        } else if self.leaked > 0 {
            ("!", "fail", "arrives and should not")
        } else if self.lost > 0 {
            ("✗", "fail", "should arrive and does not")
        } else if self.unknown > 0 {
            ("?", "unknown", "could not be seen")
        } else if self.unsupported > 0 {
            ("–", "unsupported", "unsupported")
        } else if self.hidden > 0 {
            ("?", "unsupported", "out of sight, as the model has it")
        } else if self.arrive > 0 && self.isolated > 0 {
            ("✓", "pass", "each arrives or is isolated as wanted")
        } else if self.arrive > 0 {
            ("✓", "pass", "arrives as wanted")
        } else {
            ("·", "isolated", "isolated as wanted")
        }
    }

    fn count(&mut self, verdict: &Verdict) {
        // A reason may follow the word.
        let apart = verdict.wanted.starts_with(ISOLATED);
        *match (verdict.outcome, apart) {
            (Outcome::Pass, false) => &mut self.arrive,
            (Outcome::Pass, true) => &mut self.isolated,
            (Outcome::Fail, false) => &mut self.lost,
            (Outcome::Fail, true) => &mut self.leaked,
            (Outcome::Unsupported, _) => &mut self.unsupported,
            (Outcome::Unknown, _) if verdict.out_of_sight => &mut self.hidden,
            (Outcome::Unknown, _) => &mut self.unknown,
        } += 1;
    }
}

/// Who reaches whom.
#[derive(Clone, Debug)]
pub(crate) struct Matrix<'a> {
    pub(crate) level: Level,
    pub(crate) ends: Vec<End>,
    /// How many ends are not in it.
    pub(crate) ends_left_out: usize,
    /// By row (from), then column (to).
    pub(crate) cells: Vec<Vec<Cell>>,
    /// The verdicts that do not hold.
    pub(crate) wrong: Vec<&'a Verdict>,
    /// How many paths were judged.
    pub(crate) total: usize,
    /// What an empty cell means, and why; `None` where there is none but those from an end to itself.
    pub(crate) not_judged: Option<String>,
}

/// The matrix of all path verdicts; `None` when there are none.
pub(crate) fn matrix(evidence: &Evidence) -> Option<Matrix<'_>> {
    let paths: Vec<(&EndpointName, &EndpointName, &Verdict)> = evidence
        .verdicts
        .iter()
        .filter_map(|verdict| match &verdict.subject {
            Subject::Path { from, to } => Some((from, to, verdict)),
            _ => None,
        })
        .collect();
    if paths.is_empty() {
        return None;
    }
    let guests: HashMap<&GuestName, usize> =
        (evidence.machine.guests.iter().map(|guest| &guest.name)).zip(0..).collect();
    let owners = evidence.machine.owners();
    let owner = |end: &EndpointName| {
        let guest = match end {
            EndpointName::Function(function) => owners.get(function).copied(),
            EndpointName::Tenant(function) => Some(&function.guest),
        };
        guest.and_then(|guest| guests.get(guest)).copied()
    };

    // Guest by guest, so that who belongs together stands together; what the host keeps comes last.
    let distinct: HashSet<&EndpointName> = paths.iter().flat_map(|(from, to, _)| [*from, *to]).collect();
    let mut functions: Vec<&EndpointName> = distinct.into_iter().collect();
    functions.sort_by_cached_key(|function| (owner(function).unwrap_or(usize::MAX), *function));

    let end = |level: Level, function: &EndpointName| match level {
        Level::Function => End { name: function.to_string(), guest: owner(function) },
        Level::Guest => End {
            name: owner(function)
                .and_then(|index| evidence.machine.guests.get(index))
                .map_or_else(|| "host".to_owned(), |guest| guest.name.to_string()),
            guest: owner(function),
        },
        Level::Nic => {
            let name = match function {
                EndpointName::Function(function) => function.nic.to_string(),
                EndpointName::Tenant(end) => format!("{}/{}", end.guest, end.function.nic),
            };
            End { name, guest: None }
        }
    };
    let ends_at = |level: Level| {
        let mut ends: Vec<End> = functions.iter().map(|function| end(level, function)).collect();
        if level == Level::Nic {
            ends.sort_by(|a, b| a.name.cmp(&b.name));
        }
        ends.dedup();
        ends
    };
    let (level, mut ends) = [Level::Function, Level::Guest]
        .into_iter()
        .map(|level| (level, ends_at(level)))
        .find(|(_, ends)| ends.len() <= MOST_ENDS)
        .unwrap_or_else(|| (Level::Nic, ends_at(Level::Nic)));
    let ends_left_out = ends.len().saturating_sub(MOST_NICS);
    ends.truncate(MOST_NICS);

    let place: HashMap<(&str, Option<usize>), usize> =
        (ends.iter().map(|end| (end.name.as_str(), end.guest))).zip(0..).collect();
    let place_of: HashMap<&EndpointName, usize> = functions
        .iter()
        .filter_map(|function| {
            let end = end(level, function);
            Some((*function, *place.get(&(end.name.as_str(), end.guest))?))
        })
        .collect();
    let mut cells = vec![vec![Cell::default(); ends.len()]; ends.len()];
    for (from, to, verdict) in &paths {
        if let (Some(row), Some(column)) = (place_of.get(from), place_of.get(to)) {
            cells[*row][*column].count(verdict);
        }
    }
    let not_judged = not_judged(evidence, level, &functions, &cells);
    Some(Matrix {
        level,
        ends,
        ends_left_out,
        cells,
        wrong: paths.iter().map(|(_, _, verdict)| *verdict).filter(|verdict| !verdict.holds()).collect(),
        total: paths.len(),
        not_judged,
    })
}

/// What an empty cell of the matrix means: the model says nothing of such a path. Where each row is a function it is known why.
fn not_judged(
    evidence: &Evidence,
    level: Level,
    functions: &[&EndpointName],
    cells: &[Vec<Cell>],
) -> Option<String> {
    let empty = cells.iter().enumerate().flat_map(|(from, row)| {
        row.iter()
            .enumerate()
            .filter(move |(to, cell)| from != *to && cell.total() == 0)
            .map(move |(to, _)| (from, to))
    });
    let mut some = false;
    let mut reasons = BTreeSet::new();
    for (from, to) in empty {
        some = true;
        if level == Level::Function
            && let (Some(from), Some(to)) = (functions.get(from), functions.get(to))
        {
            reasons.extend(left_open(&evidence.machine, from, to));
        }
    }
    let reasons: Vec<&str> = reasons.into_iter().collect();
    some.then(|| match reasons.is_empty() {
        true => "not judged".to_owned(),
        false => format!("not judged ({})", reasons.join(", ")),
    })
}

/// What the model leaves out, so that it does not say whether frames from one function arrive at another.
fn left_open(machine: &Machine, from: &EndpointName, to: &EndpointName) -> Option<&'static str> {
    let (EndpointName::Function(from), EndpointName::Function(to)) = (from, to) else { return None };
    if from.nic != to.nic {
        return machine.cables.is_empty().then_some("the model has no `cables`");
    }
    let nic = machine.nics.iter().find(|nic| nic.name == from.nic)?;
    let of_rules = nic.eswitch == Some(WantedEswitch::Switchdev);
    (nic.loopback.is_none() && !of_rules).then_some("`loopback` is left alone")
}
