//! Verdicts as the templates name them: in groups, and who reaches whom.

use penstock_model::{
    Outcome, Verdict,
    verdict::{Subject, Vantage},
};
use serde::Serialize;

use crate::{
    Evidence, Group, GroupName, picture,
    printable::one_line,
    reach::{self, Level},
};

/// No more verdicts than this that hold are listed in one group, nor more of those that do not.
const MOST_ROWS: usize = 500;
/// No more wrong paths than this are listed.
const MOST_WRONG_PATHS: usize = 200;

/// An outcome in a symbol, a word and a class.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Mark {
    pub(super) symbol: &'static str,
    pub(super) word: &'static str,
    pub(super) class: &'static str,
}

impl Mark {
    pub(super) fn of(outcome: Outcome) -> Mark {
        let (symbol, word) = match outcome {
            Outcome::Pass => ("✓", "pass"),
            Outcome::Fail => ("✗", "fail"),
            Outcome::Unsupported => ("–", "unsupported"),
            Outcome::Unknown => ("?", "unknown"),
        };
        Mark { symbol, word, class: word }
    }
}

#[derive(Serialize)]
pub(super) struct VerdictRow {
    subject: String,
    attribute: String,
    wanted: String,
    seen: String,
    vantage: String,
    mark: Mark,
    best_effort: bool,
    out_of_sight: bool,
    emulated: bool,
}

#[derive(Serialize)]
pub(super) struct GroupView {
    name: String,
    about: &'static str,
    colour: String,
    holds: bool,
    counts: String,
    subjects: Vec<SubjectRows>,
    left_out: usize,
}

#[derive(Serialize)]
struct SubjectRows {
    subject: String,
    rows: Vec<VerdictRow>,
}

#[derive(Serialize)]
pub(super) struct Reach {
    by: &'static str,
    counted: bool,
    total: usize,
    ends: Vec<ReachEnd>,
    ends_left_out: usize,
    rows: Vec<ReachRow>,
    not_judged: Option<String>,
    wrong: Vec<VerdictRow>,
    wrong_left_out: usize,
}

#[derive(Serialize)]
struct ReachEnd {
    name: String,
    colour: String,
    owner: String,
}

#[derive(Serialize)]
struct ReachRow {
    end: usize,
    cells: Vec<ReachCell>,
}

#[derive(Serialize)]
struct ReachCell {
    symbol: &'static str,
    class: &'static str,
    words: &'static str,
    count: usize,
}

pub(super) fn row(verdict: &Verdict) -> VerdictRow {
    VerdictRow {
        subject: subject(&verdict.subject),
        attribute: one_line(&verdict.attribute),
        wanted: one_line(&verdict.wanted),
        seen: one_line(&verdict.seen),
        vantage: match &verdict.vantage {
            Vantage::Host => "the host".to_owned(),
            inside => inside.to_string(),
        },
        mark: Mark::of(verdict.outcome),
        best_effort: verdict.best_effort,
        out_of_sight: verdict.out_of_sight,
        emulated: verdict.emulated,
    }
}

fn subject(subject: &Subject) -> String {
    match subject {
        Subject::Path { from, to } => format!("{from} → {to}"),
        other => other.to_string(),
    }
}

pub(super) fn group_view(evidence: &Evidence, group: &Group<'_>) -> GroupView {
    let guest = match &group.name {
        GroupName::Guest(name) => evidence.machine.guests.iter().position(|guest| guest.name == *name),
        _ => None,
    };
    let mut subjects: Vec<SubjectRows> = Vec::new();
    let (mut good, mut bad) = (0, 0);
    for verdict in &group.verdicts {
        let so_far = if verdict.holds() { &mut good } else { &mut bad };
        *so_far += 1;
        if *so_far > MOST_ROWS {
            continue;
        }
        let name = subject(&verdict.subject);
        match subjects.last_mut() {
            Some(last) if last.subject == name => last.rows.push(row(verdict)),
            _ => subjects.push(SubjectRows { subject: name, rows: vec![row(verdict)] }),
        }
    }
    let shown: usize = subjects.iter().map(|subject| subject.rows.len()).sum();
    GroupView {
        name: group.name.to_string(),
        about: match &group.name {
            GroupName::Machine => "the machine as a whole",
            GroupName::Nic(_) => "NIC, PF and VFs that no guest owns",
            GroupName::Guest(_) => "guest and its functions",
            GroupName::Drive(_) => "an NVMe drive with its VFs",
            GroupName::Paths => "which functions reach which",
        },
        colour: guest.map(picture::colour).unwrap_or_default(),
        holds: group.counts.hold(),
        counts: group.counts.to_string(),
        subjects,
        left_out: group.verdicts.len() - shown,
    }
}

pub(super) fn reach_view(evidence: &Evidence) -> Option<Reach> {
    let matrix = reach::matrix(evidence)?;
    let owner = |index: Option<usize>| {
        let guest = index.and_then(|index| evidence.machine.guests.get(index));
        match matrix.level {
            Level::Function => guest.map_or_else(|| "host".to_owned(), |guest| guest.name.to_string()),
            Level::Guest | Level::Nic => String::new(),
        }
    };
    let rows = matrix.cells.iter().enumerate().map(|(end, cells)| ReachRow {
        end,
        cells: cells
            .iter()
            .map(|cell| {
                let (symbol, class, words) = cell.mark();
                ReachCell { symbol, class, words, count: cell.total() }
            })
            .collect(),
    });
    Some(Reach {
        by: match matrix.level {
            Level::Function => "function",
            Level::Guest => "guest",
            Level::Nic => "NIC",
        },
        counted: matrix.level != Level::Function,
        total: matrix.total,
        rows: rows.collect(),
        ends: matrix
            .ends
            .iter()
            .map(|end| ReachEnd {
                name: end.name.clone(),
                colour: end.guest.map(picture::colour).unwrap_or_default(),
                owner: owner(end.guest),
            })
            .collect(),
        ends_left_out: matrix.ends_left_out,
        not_judged: matrix.not_judged.map(|words| words.replace('`', "")),
        wrong: matrix.wrong.iter().take(MOST_WRONG_PATHS).map(|verdict| row(verdict)).collect(),
        wrong_left_out: matrix.wrong.len().saturating_sub(MOST_WRONG_PATHS),
    })
}
