//! What else of two runs came out differently: the runs as a whole, the steps of their plans, the rules of their audits.

use penstock_model::{
    audit::{Audit, AuditOutcome, Row},
    measurement::run_comparison::{Turn, pair},
};

use crate::{Evidence, StepRecord, sentence, sentence::INTERRUPTED};

/// What came out differently.
pub(super) fn turns(a: &Evidence, b: &Evidence) -> Vec<Turn> {
    let mut turns: Vec<Turn> = whole(a, b).into_iter().collect();
    turns.extend(steps(a, b));
    for ((when, a), (_, b)) in audits(a).into_iter().zip(audits(b)) {
        turns.extend(a.zip(b).into_iter().flat_map(|(a, b)| rows(when, a, b)));
    }
    turns.sort_by_key(|turn| !turn.worse);
    turns
}

/// The runs as a whole: one that holds no longer is worse, also for what is in none of the lists. One that Ctrl-C ended tells
/// nothing of the machine.
fn whole(a: &Evidence, b: &Evidence) -> Option<Turn> {
    let told = |run: &Evidence| {
        let exit = run.run.exit.map_or_else(String::new, |exit| format!(" (exit status {exit})"));
        format!("{}{exit}", sentence(run))
    };
    let worse = a.holds() && !b.holds() && b.run.exit != Some(INTERRUPTED);
    let differs = (a.holds(), a.run.exit) != (b.holds(), b.run.exit);
    differs.then(|| Turn { what: "the run".to_owned(), a: Some(told(a)), b: Some(told(b)), worse })
}

fn steps_of<'a>(a: &'a Evidence, b: &'a Evidence) -> Vec<(Option<&'a StepRecord>, Option<&'a StepRecord>)> {
    pair(&a.steps, &b.steps, |step| step.what.as_str())
}

/// The steps that went otherwise: a step that is there in B alone is of interest where it did not go through.
fn steps(a: &Evidence, b: &Evidence) -> Vec<Turn> {
    let told = |step: &StepRecord| step.outcome.word().to_owned();
    let held = |step: Option<&StepRecord>| step.is_none_or(|step| step.outcome.holds());
    let turned = |(of_a, of_b): (Option<&StepRecord>, Option<&StepRecord>)| {
        let what = &of_a.or(of_b)?.what;
        let differs = held(of_a) != held(of_b);
        let (a, b) = (of_a.map(told), of_b.map(told));
        differs.then(|| Turn { what: format!("step: {what}"), a, b, worse: !held(of_b) })
    };
    steps_of(a, b).into_iter().filter_map(turned).collect()
}

/// The audits of a run, by when they were made.
fn audits(run: &Evidence) -> [(&'static str, Option<&Audit>); 2] {
    let of = |audit: fn(&crate::evidence::Audits) -> Option<&Audit>| run.audits.as_ref().and_then(audit);
    [("before", of(|audits| audits.before.as_ref())), ("after", of(|audits| audits.after.as_ref()))]
}

/// The rules that came out otherwise. A rule that is not applied any more is told and no worse: it may be about something that
/// is not there any more.
fn rows(when: &str, a: &Audit, b: &Audit) -> Vec<Turn> {
    let good = |row: &Row| matches!(row.verdict, AuditOutcome::Pass | AuditOutcome::Recorded);
    let told = |row: &Row| format!("{}: {}", row.verdict, row.read);
    let turned = |(of_a, of_b): (Option<&Row>, Option<&Row>)| {
        let row = of_a.or(of_b)?;
        let differs = of_a.map(|row| row.verdict) != of_b.map(|row| row.verdict);
        let worse = of_a.zip(of_b).is_some_and(|(a, b)| good(a) && !good(b));
        let (a, b) = (of_a.map(told), of_b.map(told));
        let what = format!("audit {when}: {} of {}", row.rule, row.subject);
        differs.then_some(Turn { what, a, b, worse })
    };
    pair(&a.rows, &b.rows, |row| (row.rule.as_str(), row.subject.as_str()))
        .into_iter()
        .filter_map(turned)
        .collect()
}

/// What only one run has and no other list tells, in words.
pub(super) fn unpaired(a: &Evidence, b: &Evidence) -> Vec<String> {
    let mut unpaired = Vec::new();
    let steps = steps_of(a, b);
    let only = |count: usize, run: &str| match count {
        0 => None,
        1 => Some(format!("1 step of the plan is in {run} alone")),
        count => Some(format!("{count} steps of the plan are in {run} alone")),
    };
    unpaired.extend(only(steps.iter().filter(|(_, b)| b.is_none()).count(), "A"));
    unpaired.extend(only(steps.iter().filter(|(a, _)| a.is_none()).count(), "B"));
    for ((when, of_a), (_, of_b)) in audits(a).into_iter().zip(audits(b)) {
        match (of_a, of_b) {
            (Some(_), None) => unpaired.push(format!("the audit {when} is in A alone")),
            (None, Some(_)) => unpaired.push(format!("the audit {when} is in B alone")),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
    for (name, run) in [("A", a), ("B", b)] {
        if run.run.exit == Some(INTERRUPTED) {
            unpaired.push(format!("{name} was interrupted, and tells what it had until then"));
        }
    }
    unpaired
}
