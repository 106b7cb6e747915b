//! How the run went: the steps of the plan, and where the time went.

use std::time::Duration;

use serde::Serialize;

use super::verdicts::Mark;
use crate::{Evidence, StepOutcome, StepRecord, printable::one_line, seconds};

/// No more steps that went through than this are listed.
const MOST_STEPS: usize = 1_000;

#[derive(Serialize)]
pub(super) struct Steps {
    open: bool,
    about: String,
    rows: Vec<StepRow>,
    left_out: usize,
}

#[derive(Serialize)]
pub(super) struct StepRow {
    id: u32,
    what: String,
    why: String,
    time: String,
    mark: Mark,
    detail: String,
}

#[derive(Serialize)]
pub(super) struct Times {
    total: String,
    bars: Vec<Bar>,
}

#[derive(Serialize)]
struct Bar {
    name: String,
    time: String,
    /// Where it begins and how long it is, in percent of the whole.
    start: String,
    width: String,
    share: String,
    rest: bool,
}

pub(super) fn steps(evidence: &Evidence) -> Option<Steps> {
    if evidence.steps.is_empty() {
        return None;
    }
    let mut through = 0;
    let rows: Vec<StepRow> = evidence
        .steps
        .iter()
        .filter(|step| {
            through += usize::from(step.outcome.holds());
            !step.outcome.holds() || through <= MOST_STEPS
        })
        .map(step_row)
        .collect();
    let bad = evidence.steps.iter().filter(|step| !step.outcome.holds()).count();
    let total: Duration =
        evidence.steps.iter().filter_map(|step| step.took).fold(Duration::ZERO, Duration::saturating_add);
    let went = match bad {
        0 => "all went through".to_owned(),
        bad => format!("{bad} did not go through"),
    };
    Some(Steps {
        open: bad > 0,
        about: format!("{} steps, {went}, {}", evidence.steps.len(), seconds::text(total)),
        left_out: evidence.steps.len() - rows.len(),
        rows,
    })
}

pub(super) fn step_row(step: &StepRecord) -> StepRow {
    let (symbol, class) = match step.outcome {
        StepOutcome::Done | StepOutcome::Already => ("✓", "pass"),
        StepOutcome::Unsupported => ("–", "unsupported"),
        StepOutcome::Skipped => ("·", "unknown"),
        StepOutcome::Undone => ("↩", "unknown"),
        StepOutcome::Failed => ("✗", "fail"),
    };
    StepRow {
        id: step.id,
        what: one_line(&step.what),
        why: one_line(&step.why),
        time: step.took.map(seconds::text).unwrap_or_default(),
        mark: Mark { symbol, word: step.outcome.word(), class },
        detail: step.detail.as_deref().map(one_line).unwrap_or_default(),
    }
}

pub(super) fn times(evidence: &Evidence) -> Option<Times> {
    if evidence.phases.is_empty() {
        return None;
    }
    let sum = evidence.phases.iter().map(|phase| phase.took).fold(Duration::ZERO, Duration::saturating_add);
    // Phases may overlap the clock's end by a little; the longer of both is the whole.
    let whole = sum.max(evidence.run.took);
    let rest = whole.saturating_sub(sum);
    let mut before = Duration::ZERO;
    let percent = |part: Duration| match whole.as_secs_f64() {
        0.0 => 0.0,
        seconds => part.as_secs_f64() * 100.0 / seconds,
    };
    let mut bar = |name: String, took: Duration, rest: bool| {
        let bar = Bar {
            name,
            time: seconds::text(took),
            start: format!("{:.2}", percent(before)),
            width: format!("{:.2}", percent(took)),
            share: format!("{:.0} %", percent(took)),
            rest,
        };
        before = before.saturating_add(took);
        bar
    };
    let mut bars: Vec<Bar> =
        evidence.phases.iter().map(|phase| bar(one_line(&phase.name), phase.took, false)).collect();
    if percent(rest) >= 1.0 {
        bars.push(bar("everything else".to_owned(), rest, true));
    }
    Some(Times { total: seconds::text(whole), bars })
}
