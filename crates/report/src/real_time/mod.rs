//! How late threads woke, as the templates name it: one view for the page, of which Markdown and the terminal show parts.

mod finding;
mod groups;
pub(crate) mod markdown;
mod rulings;
mod tables;
pub(crate) mod terminal;

use penstock_model::{
    measurement::{
        Counts, Unit,
        latency::{Arm, Latency, Power, Series, Setting},
    },
    verdict::Vantage,
};
use serde::Serialize;

use crate::{
    Evidence,
    printable::one_line,
    section::{self, Section},
    shown::{self, Shown},
};

/// Everything that the template names.
#[derive(Serialize)]
pub(crate) struct View {
    #[serde(flatten)]
    section: Section,
    lead: String,
    groups: Vec<groups::Group>,
    groups_left_out: usize,
    table: tables::SeriesTable,
    comparisons: Vec<tables::ComparisonRow>,
    comparisons_left_out: usize,
    doubtful: usize,
    missing: Vec<(String, String)>,
    failed: usize,
    facts: Vec<(&'static str, String)>,
}

/// What all parts of the view are made from.
pub(crate) struct Source<'a> {
    /// What was measured.
    pub latency: &'a Latency,
    /// How numbers are shown.
    pub shown: Shown,
}

impl<'a> Source<'a> {
    /// `None` when no latencies were to be measured.
    pub(crate) fn of(evidence: &'a Evidence) -> Option<Source<'a>> {
        let latency = evidence.latency.as_ref()?;
        Some(Source { latency, shown: Shown::new(latency.emulated) })
    }

    /// Microseconds with a unit that fits.
    pub(crate) fn time(&self, microseconds: f64) -> String {
        self.shown.value(microseconds, Unit::Microseconds)
    }

    /// What a series is called; its bare name where there is no such series.
    pub(crate) fn label(&self, id: &str) -> String {
        self.latency.series(id).map_or_else(|| one_line(id), |series| label(&series.setting))
    }
}

/// The latencies of a run; `None` when none were to be measured.
pub(crate) fn view(evidence: &Evidence) -> Option<View> {
    let source = Source::of(evidence)?;
    let latency = source.latency;
    let (groups, groups_left_out) = groups::groups(&source);
    let missing = latency.series.iter().filter(|series| !series.is_measured());
    let (comparisons, comparisons_left_out) = tables::comparisons(&source);
    Some(View {
        section: Section::new(
            &source,
            latency.emulated,
            finding::findings(&source),
            &latency.notes,
            &latency.rulings,
            latency.confidence,
        ),
        lead: lead(latency),
        groups,
        groups_left_out,
        table: tables::series(&source),
        doubtful: latency.comparisons.iter().filter(|one| one.null_holds() == Some(false)).count(),
        comparisons,
        comparisons_left_out,
        missing: missing.map(|series| (label(&series.setting), why_missing(series))).collect(),
        failed: latency
            .series
            .iter()
            .flat_map(|series| &series.blocks)
            .filter(|b| b.failed.is_some())
            .count(),
        facts: facts(latency),
    })
}

/// Why a series has nothing.
fn why_missing(series: &Series) -> String {
    let failed = || series.blocks.iter().find_map(|block| block.failed.clone());
    let why = series.missing.clone().or_else(failed);
    one_line(&why.unwrap_or_else(|| "it was not reached".to_owned()))
}

/// How much was measured, and why it ended.
pub(crate) fn lead(latency: &Latency) -> String {
    let blocks: usize = latency.series.iter().map(|series| series.counted().count()).sum();
    let wakes = latency.series.iter().filter(|series| series.setting.tool.wakes());
    let cycles: u64 = wakes.flat_map(Series::counted).map(|block| block.counts.total()).sum();
    let Counts { measured, missing, not_reached } = latency.counts();
    let mut text = format!(
        "{} wake-ups in {} of {}",
        shown::count(cycles),
        shown::many(blocks, "block"),
        shown::many(measured, "series").replace("seriess", "series"),
    );
    if missing > 0 {
        let have = if missing == 1 { "has" } else { "have" };
        text += &format!("; {missing} of {} series {have} none", measured + missing + not_reached);
    }
    if not_reached > 0 {
        let were = if not_reached == 1 { "was" } else { "were" };
        text += &format!("; {not_reached} of {} {were} not reached", measured + missing + not_reached);
    }
    let took =
        crate::seconds::text(std::time::Duration::try_from_secs_f64(latency.seconds).unwrap_or_default());
    text += &format!("; {took} in all");
    if let Some(stopped) = latency.stopped {
        text += &format!(". It ended because: {stopped}");
    }
    text + "."
}

fn facts(latency: &Latency) -> Vec<(&'static str, String)> {
    let tools = latency.tools.iter().map(|tool| {
        let version = tool.version.as_deref().unwrap_or("missing, or tells no version");
        format!("{} {}, {}", one_line(&tool.tool), one_line(version), one_line(&tool.place))
    });
    vec![
        ("Tools", tools.collect::<Vec<_>>().join("\n")),
        ("A spike", format!("{} µs or longer", latency.spike)),
        ("Confidence", section::confidence(latency.confidence)),
        ("Seed", latency.seed.to_string()),
        ("Started", one_line(&latency.started)),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .collect()
}

/// The place in words: `rt-2 (container)`.
fn place(setting: &Setting) -> String {
    match &setting.place {
        Vantage::Host => "host".to_owned(),
        Vantage::Guest(guest) => {
            format!("{guest} ({})", if setting.kind.to_string() == "vm" { "VM" } else { "container" })
        }
    }
}

/// How the machine was set up, in words.
fn arm(setting: &Setting) -> &'static str {
    match (setting.arm, setting.ordinary) {
        (Arm::Tuned, false) => "tuned",
        (Arm::Tuned, true) => "ordinary CPU",
        (Arm::Untuned, false) => "untuned",
        (Arm::Untuned, true) => "untuned, ordinary CPU",
        (Arm::Null, _) => "tuned, again (A/A)",
    }
}

/// Who decides how deep CPUs sleep, in words.
fn power(power: Power) -> &'static str {
    match power {
        Power::Held => "idle states held off by the tool",
        Power::System => "idle states as the machine has them",
    }
}

/// A series among those of the same tool, load and power setting.
fn short(setting: &Setting) -> String {
    format!("{}, {}", place(setting), arm(setting))
}

/// A series in full.
fn label(setting: &Setting) -> String {
    let load = if setting.load.is_loaded() { "loaded" } else { "idle" };
    format!(
        "{} on {} CPU {}, {}, {load}, {}",
        setting.tool,
        place(setting),
        setting.cpu,
        arm(setting),
        setting.power
    )
}
