//! What was measured, as the templates name it: one view for the page, of which Markdown and the terminal show parts.

mod cells;
mod family;
mod finding;
mod heat;
mod latency;
pub(crate) mod markdown;
mod missing;
mod penalties;
mod published;
mod rulings;
pub(crate) mod sizes;
pub(crate) mod terminal;
mod when;

use std::collections::HashMap;

use penstock_model::measurement::{Cell, Counts, Measurements, Metric};
use serde::Serialize;

use self::family::Family;
use crate::shown::{self, Shown};
use crate::{
    Evidence,
    charts::{HeatMap, Key, Plot},
    printable::one_line,
    section::Section,
};

/// No more columns than this in one table.
const MOST_COLUMNS: usize = 64;

/// Everything that the templates of the measurements name.
#[derive(Serialize)]
pub(crate) struct View {
    #[serde(flatten)]
    section: Section,
    quick: bool,
    measured: String,
    missing_count: usize,
    not_reached: usize,
    heat: Vec<HeatMap>,
    sizes: Vec<sizes::SizeCharts>,
    latency: latency::LatencyView,
    penalties: penalties::PenaltyView,
    published: Option<published::PublishedView>,
    missing: Vec<missing::Reason>,
    failed: Vec<missing::Reason>,
    tables: Vec<cells::CellTable>,
    when: when::When,
}

/// What all parts of the view are made from.
pub(crate) struct Source<'a> {
    /// The evidence of the whole run.
    pub evidence: &'a Evidence,
    /// What was measured.
    pub measurements: &'a Measurements,
    /// The cells in families.
    pub families: Vec<Family<'a>>,
    /// How numbers are shown.
    pub shown: Shown,
    by_id: HashMap<&'a str, usize>,
}

impl<'a> Source<'a> {
    /// `None` when nothing was to be measured.
    pub(crate) fn of(evidence: &'a Evidence) -> Option<Source<'a>> {
        let measurements = evidence.measurements.as_ref()?;
        let cells = measurements.cells.iter().enumerate();
        Some(Source {
            evidence,
            measurements,
            families: family::families(measurements),
            shown: Shown::new(measurements.emulated),
            by_id: cells.rev().map(|(place, cell)| (cell.id.as_str(), place)).collect(),
        })
    }

    /// The cell at a position that a family told.
    pub(crate) fn cell(&self, place: usize) -> &'a Cell {
        &self.measurements.cells[place]
    }

    /// The cell of this name.
    pub(crate) fn named(&self, id: &str) -> Option<&'a Cell> {
        self.by_id.get(id).map(|place| self.cell(*place))
    }

    /// What a cell is called; its bare name where there is no such cell.
    pub(crate) fn label(&self, id: &str) -> String {
        self.named(id).map_or_else(|| one_line(id), family::label)
    }
}

/// Where on the page the row of a cell is.
fn anchor(place: usize) -> String {
    format!("c{place}")
}

/// A metric in words.
fn metric_word(metric: Metric) -> &'static str {
    match metric {
        Metric::Throughput => "received throughput",
        Metric::Sent => "sent",
        Metric::Loss => "lost",
        Metric::Jitter => "jitter",
        Metric::Transactions => "round trips a second",
        Metric::Iops => "operations a second",
        Metric::Bandwidth => "bandwidth",
        Metric::Min => "shortest",
        Metric::Mean => "mean",
        Metric::Stddev => "std. deviation",
        Metric::P50 => "median latency (p50)",
        Metric::P90 => "p90",
        Metric::P99 => "p99",
        Metric::P999 => "p99.9",
        Metric::Max => "longest",
        Metric::LocalCpu => "CPU of the client",
        Metric::RemoteCpu => "CPU of the server",
        Metric::GuestCpuPerGbit => "CPU time of the VM per Gbit",
        Metric::HostCpuPerGbit => "CPU time of the host per Gbit",
        Metric::GuestInstructionsPerFrame => "instructions of the VM per frame",
        Metric::HostInstructionsPerFrame => "instructions of the host per frame",
    }
}

/// The measurements of a run; `None` when nothing was to be measured.
pub(crate) fn view(evidence: &Evidence) -> Option<View> {
    let source = Source::of(evidence)?;
    let measurements = source.measurements;
    let Counts { measured, missing, not_reached } = measurements.counts();
    Some(View {
        section: Section::new(
            &source,
            measurements.emulated,
            finding::findings(&source),
            &measurements.notes,
            &measurements.rulings,
            measurements.rules.confidence,
        ),
        quick: measurements.quick,
        measured: shown::many(measured, "cell"),
        missing_count: missing,
        not_reached,
        heat: heat::maps(&source),
        sizes: sizes::charts(&source),
        latency: latency::view(&source),
        penalties: penalties::view(&source),
        published: published::view(&source),
        missing: missing::cells(&source),
        failed: missing::samples(&source),
        tables: cells::tables(&source),
        when: when::when(&source),
    })
}

/// The lines of charts, and the charts that share them.
#[derive(Serialize)]
pub(crate) struct Charts {
    /// What the lines are.
    pub keys: Vec<Key>,
    /// The charts, whose lines `keys` explains.
    pub plots: Vec<Plot>,
}
