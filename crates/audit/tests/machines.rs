//! What every rule says of machines that differ: golden, so that a rule that is added has to be looked at on each of them.
#![allow(clippy::disallowed_methods)]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use penstock_audit::{audit, rules};
use penstock_model::audit::{Audit, AuditOutcome};
use penstock_testkit::{
    golden,
    tuned::{self, Machine},
};

/// Each rule in the order of the rules, with all that it says.
fn told(found: &Audit) -> BTreeMap<&'static str, String> {
    let of_rule = |rule: &'static str| {
        let rows = found.rows.iter().filter(|row| row.rule == rule);
        let rows = rows.map(|row| format!("{}: {}: {}", row.verdict, row.subject, row.read));
        let left = found.left_out.iter().filter(|left| left.rule == rule);
        let all: Vec<String> = rows.chain(left.map(|left| format!("left out: {}", left.why))).collect();
        assert!(!all.is_empty(), "{rule} says nothing");
        (rule, all.join("\n    "))
    };
    rules().map(|rule| of_rule(rule.id)).collect()
}

#[test]
fn every_rule_judges_other_machines_by_what_they_have() {
    let machine = Machine::new();
    let mut all = vec![told(&machine.changed(&[], |tree| audit(&tuned::inventory(tree), None)))];
    let mut only_tell: BTreeSet<&str> = rules().map(|rule| rule.id).collect();
    for case in tuned::cases("others") {
        let name = &case.verdicts[0].1;
        let found = machine.changed(&[&case.changes], |tree| audit(&tuned::inventory(tree), None));
        let told = told(&found);
        let mut text = format!("{}\n\n", case.what);
        for rule in rules() {
            text += &format!("{}\n    {}\n", rule.id, told[rule.id]);
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"));
        golden::compare(&path, &text);
        all.push(told);
    }
    // A rule that never complains has to tell machines apart at least.
    let planted: BTreeSet<String> = tuned::faults().into_iter().flat_map(|fault| fault.rules).collect();
    only_tell.retain(|rule| !planted.contains(*rule) && !NEED_A_MODEL.contains(rule));
    let same: Vec<&str> = only_tell
        .into_iter()
        .filter(|rule| all.iter().map(|told| &told[rule]).collect::<BTreeSet<_>>().len() < 2)
        .collect();
    assert!(same.is_empty(), "these say the same of every machine: {same:?}");
}

/// Rules that complain only of what a model asks for: see `what_a_model_asks_for_is_missed_and_found_again`.
const NEED_A_MODEL: [&str; 1] = ["huge-pages-too-few"];

#[test]
fn what_a_model_asks_for_is_missed_and_found_again() {
    use penstock_model::{Source, parse};
    use penstock_testkit::advised::follow;
    let text = "
nics: {NET0: {vfs: 1}}
guests:
  rt-3: {kind: vm, memory: 24GiB, pin: '1,9', realtime: on, emulator: '0,8', huge_pages: 1GiB, functions: [NET0#0]}
";
    let parsed = parse(&Source::new("m.yaml", text)).unwrap();
    let model = &parsed.model;
    Machine::new().changed(&[], |tree| {
        let rule = |found: &Audit| -> Vec<_> {
            found.rows.iter().filter(|row| row.rule == "huge-pages-too-few").cloned().collect()
        };
        let before = rule(&audit(&tuned::inventory(tree), Some(model)));
        assert_eq!((before.len(), before[0].verdict), (1, AuditOutcome::Conflict), "{before:?}");
        assert_eq!(before[0].ways.len(), 2);
        for way in &before[0].ways {
            let followed = follow(tree, &[way]).unwrap();
            let after = rule(&audit(&tuned::inventory(tree), Some(model)));
            assert_eq!((after[0].verdict, followed.by_hand), (AuditOutcome::Pass, false), "{way}: {after:?}");
        }
    });
}
