//! What came of a campaign, as a table of Markdown.

use std::{collections::BTreeMap, fmt::Write};

use super::{
    fault::{Fault, Over},
    record::Ended,
};

/// For each model and run how many steps met a fault: tried, and wrong in bold. Below it what was wrong, and what was not tried.
pub fn table(ended: &[Ended]) -> String {
    let mut rows: BTreeMap<(&str, Over), Vec<&Ended>> = BTreeMap::new();
    for one in ended {
        rows.entry((&one.trial.model, one.trial.over)).or_default().push(one);
    }
    let mut text = String::from("| model | run | steps |");
    for fault in Fault::ALL {
        let _ = write!(text, " {} |", fault.name());
    }
    text.push_str(" tried | wrong |\n|---|---|---|");
    text.push_str(&"---|".repeat(Fault::ALL.len() + 2));
    text.push('\n');
    for ((model, over), trials) in &rows {
        let mut steps: Vec<u32> = trials.iter().map(|one| one.trial.step).collect();
        steps.sort_unstable();
        steps.dedup();
        let _ = write!(text, "| {model} | {} | {} |", over.name(), steps.len());
        for fault in Fault::ALL {
            let _ =
                write!(text, " {} |", counts(trials.iter().copied().filter(|one| one.trial.fault == fault)));
        }
        let (tried, wrong) = sums(trials.iter().copied());
        let _ = writeln!(text, " {tried} | {wrong} |");
    }
    let (tried, wrong) = sums(ended.iter());
    let _ = writeln!(text, "\n{tried} trials, {wrong} wrong.");
    for one in ended.iter().filter(|one| !one.wrong.is_empty()) {
        let (trial, over) = (&one.trial, one.trial.over.name());
        let _ = writeln!(
            text,
            "\nWRONG: {}, {over}, step {} ({}), {}:",
            trial.model,
            trial.step,
            trial.action,
            trial.fault.name()
        );
        for wrong in &one.wrong {
            let _ = writeln!(text, "  {wrong}");
        }
    }
    let mut not_tried: BTreeMap<String, u32> = BTreeMap::new();
    for (one, why) in ended.iter().filter_map(|one| Some((one, one.not_tried.as_ref()?))) {
        *not_tried.entry(format!("{}, {}: {why}", one.trial.model, one.trial.fault.name())).or_default() += 1;
    }
    if !not_tried.is_empty() {
        text.push_str("\nNot tried:\n");
        for (why, count) in not_tried {
            let _ = writeln!(text, "- {count} x {why}");
        }
    }
    text
}

fn sums<'a>(trials: impl Iterator<Item = &'a Ended>) -> (usize, usize) {
    let tried: Vec<&Ended> = trials.filter(|one| one.not_tried.is_none()).collect();
    (tried.len(), tried.iter().filter(|one| !one.wrong.is_empty()).count())
}

fn counts<'a>(trials: impl Iterator<Item = &'a Ended>) -> String {
    match sums(trials) {
        (0, _) => "-".to_owned(),
        (tried, 0) => tried.to_string(),
        (tried, wrong) => format!("{tried}, **{wrong} wrong**"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::record::Trial;

    #[test]
    fn what_is_wrong_and_what_was_not_tried_stand_in_the_table() {
        let one = |step, fault, wrong: &[&str], not_tried: Option<&str>| Ended {
            trial: Trial { model: "m".into(), over: Over::Undo, step, action: "set_link".into(), fault },
            wrong: wrong.iter().map(ToString::to_string).collect(),
            notes: Vec::new(),
            not_tried: not_tried.map(str::to_owned),
            seconds: 1.0,
        };
        let text = table(&[
            one(1, Fault::Middle, &[], None),
            one(2, Fault::Middle, &["/links/eth0: up"], None),
            one(2, Fault::Fail, &[], Some("it only waits")),
        ]);
        assert!(
            text.contains("| m | undo | 2 | - | 2, **1 wrong** | - | - | - | - | - | - | 2 | 1 |"),
            "{text}"
        );
        assert!(text.contains("2 trials, 1 wrong."), "{text}");
        assert!(text.contains("WRONG: m, undo, step 2 (set_link), middle:\n  /links/eth0: up"), "{text}");
        assert!(text.contains("- 1 x m, fail: it only waits"), "{text}");
    }
}
