//! What a run came to, in one sentence.

use crate::{Evidence, StepOutcome};

/// "Holds: 142 of 142 attributes seen as the model says." or what keeps it from that.
pub fn sentence(evidence: &Evidence) -> String {
    let counts = evidence.counts();
    let seen = format!("{} of {} attributes seen as the model says", counts.pass, counts.total());
    if evidence.holds() {
        let mut holds = format!("Holds: {seen}");
        if counts.allowed > 0 {
            holds += &format!(", {} unsupported where the model says best effort", counts.allowed);
        }
        if counts.hidden > 0 {
            holds += &format!(", {} out of sight where the model says so", counts.hidden);
        }
        return holds + ".";
    }
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
    if counts.unsupported > counts.allowed {
        why.push(format!("{} unsupported", counts.unsupported - counts.allowed));
    }
    match evidence.run.exit {
        Some(status) if status != 0 && why.is_empty() => {
            why.push(format!("the run ended with exit status {status}"));
        }
        _ => {}
    }
    if counts.total() == 0 {
        why.push("nothing was verified".to_owned());
        format!("Does not hold: {}.", why.join(", "))
    } else {
        format!("Does not hold: {}; {seen}.", why.join(", "))
    }
}
