//! What should have been measured and was not, by the reason.

use std::collections::BTreeMap;

use penstock_model::measurement::{CutShort, SampleResult, Status};
use serde::Serialize;

use super::{Source, anchor, family::label, shown};
use crate::printable::{clip, one_line};

/// No more cells than this are named for one reason, and no more reasons than this.
const MOST_NAMED: usize = 12;
const MOST_REASONS: usize = 40;

/// A reason, and what it is the reason of.
#[derive(Serialize)]
pub(crate) struct Reason {
    /// The reason on one line, cut short; or how many other reasons are not listed.
    pub(super) why: String,
    /// How many cells or samples it concerns, with the noun.
    pub(super) count: String,
    cells: Vec<Named>,
    left_out: usize,
}

#[derive(Serialize)]
struct Named {
    name: String,
    target: String,
}

/// The cells that are missing because something is wrong: not those that the run's end left out, which its sentence tells.
pub(crate) fn faults(source: &Source<'_>) -> Vec<Reason> {
    missing(source, |cut_short| cut_short.is_none())
}

/// The cells that have no value, for whatever reason.
pub(crate) fn cells(source: &Source<'_>) -> Vec<Reason> {
    missing(source, |_| true)
}

fn missing(source: &Source<'_>, which: fn(Option<CutShort>) -> bool) -> Vec<Reason> {
    let mut reasons: BTreeMap<&str, Vec<(usize, usize)>> = BTreeMap::new();
    for (place, cell) in source.measurements.cells.iter().enumerate() {
        match &cell.status {
            Status::Missing { why, cut_short } if which(*cut_short) => {
                reasons.entry(why).or_default().push((place, 1));
            }
            Status::Missing { .. } | Status::Measured(_) => {}
        }
    }
    listed(source, reasons, "cell")
}

/// The samples that failed of cells that were measured nevertheless.
pub(crate) fn samples(source: &Source<'_>) -> Vec<Reason> {
    let mut reasons: BTreeMap<&str, Vec<(usize, usize)>> = BTreeMap::new();
    for (place, cell) in source.measurements.cells.iter().enumerate() {
        for sample in cell.measured().into_iter().flat_map(|measured| &measured.samples) {
            let SampleResult::Missing(why) = &sample.taken else { continue };
            let places = reasons.entry(why).or_default();
            match places.last_mut() {
                Some((last, times)) if *last == place => *times += 1,
                _ => places.push((place, 1)),
            }
        }
    }
    listed(source, reasons, "sample")
}

fn listed(source: &Source<'_>, reasons: BTreeMap<&str, Vec<(usize, usize)>>, of: &str) -> Vec<Reason> {
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, places)| std::cmp::Reverse(places.len()));
    let rest = reasons.split_off(reasons.len().min(MOST_REASONS));
    let total = |places: &[(usize, usize)]| places.iter().map(|(_, times)| times).sum::<usize>();
    let mut listed: Vec<Reason> = reasons
        .into_iter()
        .map(|(why, places)| Reason {
            why: clip(&one_line(why), 400),
            count: shown::many(total(&places), of),
            left_out: places.len().saturating_sub(MOST_NAMED),
            cells: (places.iter().take(MOST_NAMED))
                .map(|(place, times)| {
                    let times = if *times > 1 { format!(" ({times} times)") } else { String::new() };
                    Named { name: format!("{}{times}", label(source.cell(*place))), target: anchor(*place) }
                })
                .collect(),
        })
        .collect();
    if !rest.is_empty() {
        let all: usize = rest.iter().map(|(_, places)| total(places)).sum();
        listed.push(Reason {
            why: format!("{}, which evidence.json names", shown::many(rest.len(), "other reason")),
            count: shown::many(all, of),
            cells: Vec::new(),
            left_out: 0,
        });
    }
    listed
}
