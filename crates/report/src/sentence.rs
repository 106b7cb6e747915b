//! What a run came to, in one sentence.

use penstock_model::measurement::Told;

use crate::{Evidence, StepOutcome};

/// "Holds: 142 of 142 attributes seen as the model says." or what keeps it from that. What was measured follows: "3 of 3
/// expectations hold, 340 cells measured."
pub fn sentence(evidence: &Evidence) -> String {
    let seen = seen(evidence);
    if evidence.holds() {
        return format!("Holds: {}.", seen.join("; "));
    }
    let why = why(evidence).join(", ");
    let seen: Vec<String> = [why].into_iter().chain(seen).filter(|part| !part.is_empty()).collect();
    format!("Does not hold: {}.", seen.join("; "))
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
        let (measured, missing) = measurements.counts();
        let rulings = evidence.rulings().len();
        if rulings > 0 {
            let holding = evidence.told(Told::Holds);
            let (lines, hold) =
                if rulings == 1 { ("expectation", "holds") } else { ("expectations", "hold") };
            seen.push(format!("{holding} of {rulings} {lines} {hold}"));
        }
        match (measured, missing) {
            (0, _) => {}
            (1, 0) => seen.push("1 cell measured".to_owned()),
            (all, 0) => seen.push(format!("{all} cells measured")),
            (some, missing) => seen.push(format!("{some} of {} cells measured", some + missing)),
        }
    }
    if let Some(latency) = &evidence.latency {
        let holding = evidence.claims_told(Told::Holds);
        match latency.rulings.len() {
            0 => {}
            1 => seen.push(format!("{holding} of 1 claim about latencies holds")),
            all => seen.push(format!("{holding} of {all} claims about latencies hold")),
        }
        match latency.counts() {
            (0, _) => {}
            (all, 0) => seen.push(format!("latencies measured in {all} series")),
            (some, missing) => {
                seen.push(format!("latencies measured in {some} of {} series", some + missing));
            }
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
    } else if let Some(step) = evidence.steps.iter().find(|step| !step.outcome.holds()) {
        why.push(format!("step {} of the plan was {}", step.id, step.outcome.word()));
    }
    if counts.fail > 0 {
        why.push(format!("{} failed", counts.fail));
    }
    if counts.unknown > counts.hidden {
        why.push(format!("{} could not be seen", counts.unknown - counts.hidden));
    }
    if counts.unsupported > counts.excused() {
        why.push(format!("{} unsupported", counts.unsupported - counts.excused()));
    }
    let expectations =
        |count: usize| if count == 1 { "1 expectation".to_owned() } else { format!("{count} expectations") };
    match evidence.told(Told::DoesNotHold) {
        0 => {}
        1 => why.push("1 expectation does not hold".to_owned()),
        count => why.push(format!("{} do not hold", expectations(count))),
    }
    match evidence.told(Told::CannotBeTold) {
        0 => {}
        count => why.push(format!("{} cannot be told", expectations(count))),
    }
    for (told, words) in [(Told::DoesNotHold, "broken"), (Told::CannotBeTold, "not proven")] {
        match evidence.claims_told(told) {
            0 => {}
            1 => why.push(format!("1 claim about latencies is {words}")),
            count => why.push(format!("{count} claims about latencies are {words}")),
        }
    }
    if let Some(latency) = evidence.latency.as_ref().filter(|latency| latency.rulings.is_empty()) {
        match latency.counts() {
            (0, _) => why.push("no latencies were measured".to_owned()),
            (_, 0) => {}
            (_, missing) => why.push(format!("latencies of {missing} series are missing")),
        }
    }
    let measured = evidence.measurements.as_ref().map(|measurements| measurements.counts());
    match measured {
        Some((_, 1)) => why.push("1 cell is missing".to_owned()),
        Some((_, missing)) if missing > 0 => why.push(format!("{missing} cells are missing")),
        _ => {}
    }
    match evidence.run.exit {
        Some(status) if status != 0 && why.is_empty() => {
            why.push(format!("the run ended with exit status {status}"));
        }
        _ => {}
    }
    match measured {
        None if counts.total() == 0 && !evidence.has_more_than_verdicts() => {
            why.push("nothing was verified".to_owned())
        }
        Some((0, _)) if counts.total() == 0 => why.push("nothing was measured".to_owned()),
        _ => {}
    }
    why
}
