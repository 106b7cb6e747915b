//! Each rule's advice, followed on the recorded machine that has the fault: the rule has nothing to say then.
#![allow(clippy::disallowed_methods)]

use std::{collections::BTreeSet, path::Path};

use penstock_audit::{audit, rules};
use penstock_model::audit::{Audit, AuditOutcome, Remedy, Row};
use penstock_testkit::{
    advised::follow,
    tuned::{self, Fault, Machine},
};

fn complains(row: &Row) -> bool {
    matches!(row.verdict, AuditOutcome::Fail | AuditOutcome::Conflict)
}

fn judged(tree: &Path) -> Audit {
    audit(&tuned::inventory(tree), None)
}

/// What one rule says, but for what passes.
fn said(found: &Audit, rule: &str) -> Vec<String> {
    let rows = found.rows.iter().filter(|row| row.rule == rule);
    let rows = rows.filter(|row| !matches!(row.verdict, AuditOutcome::Pass | AuditOutcome::Recorded));
    rows.map(|row| format!("{} {}: {}", row.verdict, row.subject, row.read)).collect()
}

/// Follows the way of this number of each row, and gives what the rule says then; `None`: what is left to do by hand was not recorded.
fn followed(tree: &Path, fault: &Fault, rule: &str, ways: &[&Remedy]) -> Result<Option<Vec<String>>, String> {
    let mut followed = follow(tree, ways)?;
    let of_rule = |done: &&tuned::Done| done.rules.iter().any(|name| name == rule);
    let done = fault.done.iter().filter(of_rule).find(|done| done.always || followed.by_hand);
    match done {
        None if followed.by_hand => return Ok(None),
        None => {}
        Some(done) => {
            followed.plant(&done.changes).map_err(|error| error.to_string())?;
        }
    }
    Ok(Some(said(&judged(tree), rule)))
}

#[test]
fn advice_that_is_followed_makes_its_rule_pass() {
    let machine = Machine::new();
    let (mut wrong, mut proven) = (Vec::new(), BTreeSet::new());
    for fault in tuned::faults() {
        machine.with(&[&fault], |tree| {
            let found = judged(tree);
            let complaining: BTreeSet<&str> =
                found.rows.iter().filter(|row| complains(row)).map(|row| row.rule.as_str()).collect();
            for rule in complaining {
                let rows: Vec<&Row> =
                    found.rows.iter().filter(|row| row.rule == rule && complains(row)).collect();
                let most = rows.iter().map(|row| row.ways.len()).max().unwrap_or(0);
                for number in 0..most {
                    let ways: Vec<&Remedy> =
                        rows.iter().filter_map(|row| row.ways.get(number).or(row.ways.last())).collect();
                    let shown = || ways.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
                    match followed(tree, &fault, rule, &ways) {
                        Ok(Some(said)) if said.is_empty() => _ = proven.insert(rule.to_owned()),
                        Ok(Some(said)) => wrong.push(format!(
                            "{} ({}): after\n{}\n  {}",
                            rule,
                            fault.what,
                            shown(),
                            said.join("\n  ")
                        )),
                        Ok(None) => {}
                        Err(why) => wrong.push(format!("{} ({}): {why}", rule, fault.what)),
                    }
                }
                if rows.iter().any(|row| row.ways.is_empty()) {
                    wrong.push(format!("{rule} ({}) advises nothing", fault.what));
                }
            }
        });
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n\n"));
    let planted: BTreeSet<String> = tuned::faults().into_iter().flat_map(|fault| fault.rules).collect();
    let unproven: Vec<_> = planted.difference(&proven).collect();
    assert!(unproven.is_empty(), "no advice of these was proven (`-- RULE` in faults.txt): {unproven:?}");
    let rules: BTreeSet<String> = rules().map(|rule| rule.id.to_owned()).collect();
    assert!(planted.is_subset(&rules));
}
