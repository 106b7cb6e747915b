//! Which verdicts of two runs came out differently.

use penstock_model::{
    Outcome, Verdict,
    measurement::run_comparison::{Turn, pair},
};

use super::same_model;
use crate::Evidence;

/// How far a verdict is from having been seen as the model says: 0 is a pass. One that is not there is one that is not known.
fn rank(verdict: Option<&Verdict>) -> u8 {
    match verdict {
        None => 2,
        Some(verdict) => match (verdict.outcome, verdict.holds()) {
            (Outcome::Pass, _) => 0,
            (Outcome::Unsupported | Outcome::Unknown, true) => 1,
            (Outcome::Unsupported | Outcome::Unknown, false) => 2,
            (Outcome::Fail, _) => 3,
        },
    }
}

/// The verdicts that came out differently, and those that only one run has, the worse ones first. What passed and does not
/// now is worse, also where the model allows that: it is not proven any more. One that B has not is one that is not known any
/// more, unless the model is another one.
pub(super) fn turns(a: &Evidence, b: &Evidence) -> Vec<Turn> {
    let same_model = same_model(a, b);
    let told = |verdict: &Verdict| match verdict.holds() {
        true if verdict.outcome == Outcome::Pass => verdict.outcome.to_string(),
        true => format!("{}, as the model allows", verdict.outcome),
        false => format!("{}: wanted {}, seen {}", verdict.outcome, verdict.wanted, verdict.seen),
    };
    let mut turns = Vec::new();
    for (of_a, of_b) in paired(a, b) {
        let Some(what) = of_a.or(of_b).map(name) else { continue };
        let same = of_a.zip(of_b).is_some_and(|(a, b)| (a.outcome, a.holds()) == (b.outcome, b.holds()));
        if same {
            continue;
        }
        let counts = (of_a.is_some() && of_b.is_some()) || same_model;
        let worse = counts && rank(of_b) > rank(of_a);
        turns.push(Turn { what, a: of_a.map(told), b: of_b.map(told), worse });
    }
    turns.sort_by_key(|turn| !turn.worse);
    turns
}

/// What both are about: by their keys, where both runs have them.
fn paired<'a>(a: &'a Evidence, b: &'a Evidence) -> Vec<(Option<&'a Verdict>, Option<&'a Verdict>)> {
    if a.has_keys() && b.has_keys() {
        return pair(&a.verdicts, &b.verdicts, Verdict::key);
    }
    let keyless = |verdict: &'a Verdict| {
        let Verdict { subject, attribute, vantage, wanted, .. } = verdict;
        (subject, attribute, vantage, wanted)
    };
    pair(&a.verdicts, &b.verdicts, keyless)
}

fn name(verdict: &Verdict) -> String {
    format!("{}, seen from {}", verdict.key(), verdict.vantage)
}
