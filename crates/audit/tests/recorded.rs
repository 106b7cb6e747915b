//! Recorded machines: one that is tuned as well as can be, and the same with planted faults.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeSet;

use penstock_audit::audit;
use penstock_model::audit::{Audit, Judgement};
use penstock_testkit::tuned;

fn complaints(found: &Audit) -> BTreeSet<String> {
    let wrong = |verdict| matches!(verdict, Judgement::Fail | Judgement::Conflict);
    found.rows.iter().filter(|row| wrong(row.verdict)).map(|row| row.rule.clone()).collect()
}

fn shown(found: &Audit) -> String {
    let rows = found.rows.iter().filter(|row| row.verdict != Judgement::Pass);
    rows.map(|row| format!("{} {}: {}: {}\n", row.rule, row.verdict, row.subject, row.read)).collect()
}

#[test]
fn nothing_is_wrong_with_the_well_tuned_machine() {
    let tree = tuned::machine([]);
    let inventory = tuned::inventory(tree.path());
    assert_eq!(inventory.unknown, [""; 0]);
    let found = audit(&inventory, None);
    assert_eq!(complaints(&found), BTreeSet::new(), "{}", shown(&found));
    assert!(found.score.pass >= 60, "{:?}", found.score);
    assert_eq!(found.score.unknown, 0, "{}", shown(&found));
}
