//! What a run came to, in one sentence.

use std::time::Duration;

use penstock_model::measurement::{Conclusion, Counts, CutShort};

use crate::{Evidence, StepOutcome, StepRecord, seconds};

/// "Holds: 142 of 142 attributes seen as the model says." or what keeps it from that. What was measured follows: "3 of 3
/// expectations hold, 340 cells measured." A run that was ended before it was through, and has found nothing wrong, says that first:
/// "Stopped as asked after 5 min: 12 of 116 cells measured.", "Interrupted after 6.3 s: nothing was verified."
pub fn sentence(evidence: &Evidence) -> String {
    let (seen, why, open) = (seen(evidence), why(evidence), open(evidence));
    let stopped = stopped(evidence);
    let head = match (&stopped, why.is_empty()) {
        (None, _) if evidence.holds() => "Holds".to_owned(),
        (Some((CutShort::TimeUp, took)), _) if evidence.holds() => format!("Stopped as asked after {took}"),
        (Some((CutShort::Interrupted, took)), true) => format!("Interrupted after {took}"),
        (_, true) => "Not shown".to_owned(),
        (_, false) => "Does not hold".to_owned(),
    };
    let stopped = stopped.and_then(|(cut_short, took)| match cut_short {
        _ if head.ends_with(&took) => None,
        CutShort::TimeUp => Some(format!("stopped as asked after {took}")),
        CutShort::Interrupted => Some(format!("interrupted after {took}")),
    });
    let first = [[why, open].concat().join(", "), stopped.unwrap_or_default()];
    let parts: Vec<String> = first.into_iter().chain(seen).filter(|part| !part.is_empty()).collect();
    format!("{head}: {}.", parts.join("; "))
}

/// The exit status of a run that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// Whether Ctrl-C ended the run: what it did not come to is then no fault of the machine.
fn interrupted(evidence: &Evidence) -> bool {
    evidence.run.exit == Some(INTERRUPTED)
}

/// What ended a run before it was through, where that is no fault of the machine; and after how long.
fn stopped(evidence: &Evidence) -> Option<(CutShort, String)> {
    let measured = evidence.measurements.as_ref();
    let latency = evidence.latency.as_ref();
    if interrupted(evidence) {
        let of_measuring = measured.map(|run| run.seconds).into_iter().chain(latency.map(|run| run.seconds));
        let took = if evidence.measures() { of_measuring.sum() } else { evidence.run.took.as_secs_f64() };
        return Some((CutShort::Interrupted, text(took)));
    }
    // The time that was asked for, where it is known, and not what taking everything back took beside.
    let of_cells = measured.filter(|run| run.cut_short().is_some());
    let of_cells = of_cells.map(|run| run.rules.budget.unwrap_or(run.seconds));
    let took = of_cells.or(latency.map(|run| run.seconds)).unwrap_or_default();
    evidence.cut_short().map(|cut_short| (cut_short, text(took)))
}

fn text(seconds: f64) -> String {
    let text = seconds::text(Duration::try_from_secs_f64(seconds).unwrap_or_default());
    text.strip_suffix(" 00 s").unwrap_or(&text).to_owned()
}

/// What was not shown because the run was over; nothing that is wrong.
fn open(evidence: &Evidence) -> Vec<String> {
    let mut open = Vec::new();
    if interrupted(evidence) {
        open.extend(step_not_through(evidence).map(step_words));
        open.extend(unseen(evidence));
        let audits = evidence.audits.as_ref();
        let audited = audits.is_some_and(|audits| audits.before.is_some() || audits.after.is_some());
        if evidence.counts().total() == 0 && !evidence.measures() && !audited {
            open.push("nothing was verified".to_owned());
        }
    }
    match evidence.expectations_with(Conclusion::NotMeasured) {
        0 => {}
        1 => open.push("1 expectation was not measured".to_owned()),
        count => open.push(format!("{count} expectations were not measured")),
    }
    match evidence.claims_with(Conclusion::NotMeasured) {
        0 => {}
        1 => open.push("1 claim about latencies was not measured".to_owned()),
        count => open.push(format!("{count} claims about latencies were not measured")),
    }
    let none = |counts: Counts| counts.measured == 0 && counts.not_reached > 0;
    if evidence.measurements.as_ref().is_some_and(|run| none(run.counts())) {
        open.push("no cell was measured".to_owned());
    }
    if evidence.latency.as_ref().is_some_and(|run| none(run.counts())) {
        open.push("no latencies were measured".to_owned());
    }
    open
}

/// The first step that was not reached, or was taken back.
fn step_not_through(evidence: &Evidence) -> Option<&StepRecord> {
    evidence.steps.iter().find(|step| !step.outcome.holds() && step.outcome != StepOutcome::Failed)
}

fn step_words(step: &StepRecord) -> String {
    format!("step {} of the plan was {}", step.id, step.outcome.word())
}

/// How much could not be seen and should have been.
fn unseen(evidence: &Evidence) -> Option<String> {
    let counts = evidence.counts();
    (counts.unknown > counts.hidden).then(|| format!("{} could not be seen", counts.unknown - counts.hidden))
}

/// What was seen and measured.
fn seen(evidence: &Evidence) -> Vec<String> {
    let mut seen = Vec::new();
    let counts = evidence.counts();
    if counts.total() > 0 {
        let mut attributes =
            format!("{} of {} attributes seen as the model says", counts.pass, counts.total());
        if evidence.holds() && counts.allowed > 0 {
            attributes += &format!(", {} unsupported where the model says best effort", counts.allowed);
        }
        if evidence.holds() && counts.pretended > 0 {
            attributes += &format!(", {} that an emulated NIC only pretends", counts.pretended);
        }
        if evidence.holds() && counts.hidden > 0 {
            attributes += &format!(", {} out of sight where the model says so", counts.hidden);
        }
        seen.push(attributes);
    }
    if let Some(measurements) = &evidence.measurements {
        let counts = measurements.counts();
        let not_asked = evidence.expectations_with(Conclusion::NotAsked);
        let rulings = evidence.rulings().len() - not_asked;
        if rulings > 0 {
            let holding = evidence.expectations_with(Conclusion::Holds);
            let (lines, hold) =
                if rulings == 1 { ("expectation", "holds") } else { ("expectations", "hold") };
            seen.push(format!("{holding} of {rulings} {lines} {hold}"));
        }
        match not_asked {
            0 => {}
            1 => seen.push("1 expectation was not asked for".to_owned()),
            some => seen.push(format!("{some} expectations were not asked for")),
        }
        match (counts.measured, counts.total()) {
            (0, _) => {}
            (1, 1) => seen.push("1 cell measured".to_owned()),
            (all, total) if all == total => seen.push(format!("{all} cells measured")),
            (some, total) => seen.push(format!("{some} of {total} cells measured")),
        }
    }
    if let Some(latency) = &evidence.latency {
        let holding = evidence.claims_with(Conclusion::Holds);
        match latency.rulings.len() {
            0 => {}
            1 => seen.push(format!("{holding} of 1 claim about latencies holds")),
            all => seen.push(format!("{holding} of {all} claims about latencies hold")),
        }
        let counts = latency.counts();
        match (counts.measured, counts.total()) {
            (0, _) => {}
            (all, total) if all == total => seen.push(format!("latencies measured in {all} series")),
            (some, total) => seen.push(format!("latencies measured in {some} of {total} series")),
        }
    }
    seen
}

/// What keeps it from holding, the gravest first.
fn why(evidence: &Evidence) -> Vec<String> {
    let counts = evidence.counts();
    let mut why = Vec::new();
    if let Some(step) = evidence.steps.iter().find(|step| step.outcome == StepOutcome::Failed) {
        why.push(format!("step {} of the plan failed", step.id));
    } else if !interrupted(evidence) {
        why.extend(step_not_through(evidence).map(step_words));
    }
    if counts.fail > 0 {
        why.push(format!("{} failed", counts.fail));
    }
    if !interrupted(evidence) {
        why.extend(unseen(evidence));
    }
    if counts.unsupported > counts.excused() {
        why.push(format!("{} unsupported", counts.unsupported - counts.excused()));
    }
    let expectations =
        |count: usize| if count == 1 { "1 expectation".to_owned() } else { format!("{count} expectations") };
    match evidence.expectations_with(Conclusion::DoesNotHold) {
        0 => {}
        1 => why.push("1 expectation does not hold".to_owned()),
        count => why.push(format!("{} do not hold", expectations(count))),
    }
    match evidence.expectations_with(Conclusion::CannotBeTold) {
        0 => {}
        count => why.push(format!("{} cannot be told", expectations(count))),
    }
    for (told, words) in [(Conclusion::DoesNotHold, "broken"), (Conclusion::CannotBeTold, "not proven")] {
        match evidence.claims_with(told) {
            0 => {}
            1 => why.push(format!("1 claim about latencies is {words}")),
            count => why.push(format!("{count} claims about latencies are {words}")),
        }
    }
    if let Some(latency) = evidence.latency.as_ref().filter(|latency| latency.rulings.is_empty()) {
        match latency.counts() {
            Counts { measured: 0, not_reached: 0, .. } => why.push("no latencies were measured".to_owned()),
            Counts { missing: 0, .. } => {}
            Counts { missing, .. } => why.push(format!("latencies of {missing} series are missing")),
        }
    }
    let measured = evidence.measurements.as_ref().map(|measurements| measurements.counts());
    match measured.map(|counts| counts.missing) {
        None | Some(0) => {}
        Some(1) => why.push("1 cell is missing".to_owned()),
        Some(missing) => why.push(format!("{missing} cells are missing")),
    }
    let explained = !why.is_empty() || !open(evidence).is_empty();
    match evidence.run.exit {
        None | Some(0 | INTERRUPTED) => {}
        Some(_) if explained => {}
        Some(status) => why.push(format!("the run ended with exit status {status}")),
    }
    match measured {
        None if counts.total() == 0 && !evidence.has_more_than_verdicts() && !interrupted(evidence) => {
            why.push("nothing was verified".to_owned())
        }
        Some(Counts { measured: 0, not_reached: 0, .. }) if counts.total() == 0 => {
            why.push("nothing was measured".to_owned());
        }
        _ => {}
    }
    why
}
