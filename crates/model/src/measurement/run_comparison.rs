//! Two runs compared, B with A. Data only.
//!
//! Cells are the same when they have the same name. Each is compared by the ratio of its medians, B over A, with an interval
//! that takes the samples of the two runs as independent. With hundreds of cells some intervals leave 1 out by chance alone:
//! one in twenty at a confidence of 95 %. So each ratio also has a p-value, corrected for the number of ratios (Holm), and
//! only what stays after that counts as changed.
//!
//! Everything of either run is in one of the lists, or is the same in both: what has no partner in the other run is told.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

use serde::{Deserialize, Serialize};

use super::{Better, Estimate, Metric};

/// Two runs compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunComparison {
    /// The run that counts as 1.
    pub a: RunName,
    /// The run that is compared with it.
    pub b: RunName,
    /// What the runs were made with and of.
    pub facts: Vec<Fact>,
    /// What was measured; `None` when neither run measured anything.
    pub cells: Option<CellsComparison>,
    /// The model's `expect:` lines that came out differently, or that only one run has.
    pub rulings: Vec<Turn>,
    /// Verdicts that came out differently, or that only one run has.
    pub verdicts: Vec<Turn>,
    /// What else came out differently: the run as a whole, steps of the plan, rules of the audits.
    #[serde(default)]
    pub outcomes: Vec<Turn>,
    /// What else only one run has, in words.
    #[serde(default)]
    pub unpaired: Vec<String>,
    /// What the reader should know beside.
    pub notes: Vec<String>,
}

/// Which run it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunName {
    /// Its name, as its directory is called.
    pub id: String,
    /// When it started, in RFC 3339 text.
    pub started: String,
}

/// One thing that the runs were made with: a file by its hash, a version, a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Fact {
    /// What: "model", "kernel".
    pub what: String,
    /// In A; `None` where the run does not tell.
    pub a: Option<String>,
    /// In B; `None` where the run does not tell.
    pub b: Option<String>,
    /// Whether it is about the hardware: where it differs, this compares two machines.
    #[serde(default)]
    pub hardware: bool,
}

impl Fact {
    /// Whether both are the same; `None` when one of them is not known.
    pub fn same(&self) -> Option<bool> {
        Some(self.a.as_ref()? == self.b.as_ref()?)
    }
}

/// A verdict, an `expect:` line or an outcome that came out differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Turn {
    /// The verdict, line or outcome, by its name.
    pub what: String,
    /// In A; `None` where A has none.
    pub a: Option<String>,
    /// In B; `None` where B has none.
    pub b: Option<String>,
    /// Whether B is worse.
    pub worse: bool,
}

impl Turn {
    /// Whether both runs have it.
    pub fn is_paired(&self) -> bool {
        self.a.is_some() && self.b.is_some()
    }
}

/// What two runs have, paired by `key`: everything of `a` in its order, then what only `b` has. Several of one key are paired
/// in their order.
pub fn pair<'a, T, K: Eq + Hash>(
    a: &'a [T],
    b: &'a [T],
    key: impl Fn(&'a T) -> K,
) -> Vec<(Option<&'a T>, Option<&'a T>)> {
    let mut waiting: HashMap<K, VecDeque<usize>> = HashMap::new();
    for (at, one) in b.iter().enumerate() {
        waiting.entry(key(one)).or_default().push_back(at);
    }
    let mut taken = vec![false; b.len()];
    let mut pairs: Vec<(Option<&T>, Option<&T>)> = Vec::with_capacity(a.len());
    for one in a {
        let other = waiting.get_mut(&key(one)).and_then(VecDeque::pop_front);
        if let Some(at) = other {
            taken[at] = true;
        }
        pairs.push((Some(one), other.map(|at| &b[at])));
    }
    pairs.extend(b.iter().zip(taken).filter(|(_, taken)| !taken).map(|(one, _)| (None, Some(one))));
    pairs
}

/// The cells of two runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CellsComparison {
    /// Confidence of every interval, and of all that is told together, for example 0.95.
    pub confidence: f64,
    /// What could be compared, in A's order.
    pub changes: Vec<Change>,
    /// Cells that were measured in A and are missing in B.
    pub lost: Vec<Untold>,
    /// Cells that are missing in A and were measured in B.
    pub found: Vec<Untold>,
    /// Cells of both that cannot be compared.
    pub untold: Vec<Untold>,
    /// Cells that are missing in both.
    #[serde(default)]
    pub missing: Vec<Untold>,
    /// Cells that only A has.
    pub only_a: Vec<String>,
    /// Cells that only B has.
    pub only_b: Vec<String>,
}

/// One metric of a cell in both runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Change {
    /// The id of the cell ([`super::Cell::id`]).
    pub cell: String,
    /// The metric that is compared.
    pub metric: Metric,
    /// A's median, in the metric's unit.
    pub a: f64,
    /// The median of run B.
    pub b: f64,
    /// A's samples, warm-up not counted.
    pub n_a: u32,
    /// How many samples run B has.
    pub n_b: u32,
    /// B's median over A's.
    pub ratio: Estimate,
    /// How often two runs of the same would differ by as much or more.
    pub p: f64,
    /// The same, corrected for the number of ratios that were looked at (Holm).
    pub adjusted: f64,
}

/// What a [`Change`] comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// B is worse, also after the correction.
    Worse,
    /// B is better, also after the correction.
    Better,
    /// B's interval is on the worse side, which with so many cells may be chance.
    PerhapsWorse,
    /// B's interval is on the better side, which with so many cells may be chance.
    PerhapsBetter,
    /// The interval holds 1.
    Same,
}

impl Change {
    /// What it comes to.
    pub fn direction(&self) -> Direction {
        if self.ratio.spans(1.0) {
            return Direction::Same;
        }
        let better = (self.ratio.value() > 1.0) == (self.metric.better() == Better::Higher);
        match (better, self.adjusted <= 1.0 - self.ratio.confidence()) {
            (true, true) => Direction::Better,
            (true, false) => Direction::PerhapsBetter,
            (false, true) => Direction::Worse,
            (false, false) => Direction::PerhapsWorse,
        }
    }
}

/// A cell about which nothing can be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Untold {
    /// The id of the cell ([`super::Cell::id`]).
    pub cell: String,
    /// Why nothing can be told, in words.
    pub why: String,
}

impl CellsComparison {
    /// How many changes come to this.
    pub fn count(&self, direction: Direction) -> usize {
        self.changes.iter().filter(|change| change.direction() == direction).count()
    }

    /// Whether everything in both runs found its partner and could be compared, or is missing in both.
    pub fn is_paired(&self) -> bool {
        let CellsComparison {
            confidence: _,
            changes: _,
            lost: _,
            found: _,
            missing: _,
            untold,
            only_a,
            only_b,
        } = self;
        untold.is_empty() && only_a.is_empty() && only_b.is_empty()
    }

    /// How many intervals would leave 1 out by chance alone if nothing had changed.
    pub fn by_chance(&self) -> f64 {
        self.changes.len() as f64 * (1.0 - self.confidence)
    }
}

impl RunComparison {
    /// Whether something is worse in B: a ratio, also after the correction; a cell that is missing now; an `expect:` line; a
    /// verdict; the run as a whole, a step of its plan, a rule of its audits.
    pub fn got_worse(&self) -> bool {
        let cells = self
            .cells
            .as_ref()
            .is_some_and(|cells| cells.count(Direction::Worse) > 0 || !cells.lost.is_empty());
        cells || self.turns().any(|turn| turn.worse)
    }

    /// Whether everything in both runs was compared. Only then does "nothing got worse" say all.
    pub fn is_paired(&self) -> bool {
        self.unpaired.is_empty()
            && self.turns().all(Turn::is_paired)
            && self.cells.as_ref().is_none_or(CellsComparison::is_paired)
    }

    /// All that came out differently beside what was measured.
    pub fn turns(&self) -> impl Iterator<Item = &Turn> {
        self.outcomes.iter().chain(&self.rulings).chain(&self.verdicts)
    }

    /// Whether both runs were on the same hardware, as far as is known; `None` when nothing is known.
    pub fn same_hardware(&self) -> Option<bool> {
        let known: Vec<bool> =
            self.facts.iter().filter(|fact| fact.hardware).filter_map(Fact::same).collect();
        (!known.is_empty()).then(|| known.into_iter().all(|same| same))
    }
}
