//! Recorded machines: one that is tuned as well as can be, and the same with planted faults.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeSet;

use penstock_audit::audit;
use penstock_model::audit::{Audit, AuditOutcome};
use penstock_testkit::tuned::{self, Fault, Machine};

fn complaints(found: &Audit) -> BTreeSet<String> {
    let wrong = |verdict| matches!(verdict, AuditOutcome::Fail | AuditOutcome::Conflict);
    found.rows.iter().filter(|row| wrong(row.verdict)).map(|row| row.rule.clone()).collect()
}

fn shown(found: &Audit) -> String {
    let rows = found.rows.iter().filter(|row| row.verdict != AuditOutcome::Pass);
    rows.map(|row| format!("{} {}: {}: {}\n", row.rule, row.verdict, row.subject, row.read)).collect()
}

#[test]
fn nothing_is_wrong_with_the_well_tuned_machine() {
    let inventory = Machine::new().with(&[], tuned::inventory);
    // A tree has no kernel to ask; all else was read.
    let asked = ["netlink was not asked: ", "this tree has no answers of drivers: "];
    let is_of_the_kernel = |note: &String| asked.iter().any(|words| note.starts_with(words));
    assert!(inventory.unknown.iter().all(is_of_the_kernel), "{:?}", inventory.unknown);
    let found = audit(&inventory, None);
    assert_eq!(complaints(&found), BTreeSet::new(), "{}", shown(&found));
    assert!(found.score.pass >= 60, "{:?}", found.score);
    assert_eq!(found.score.unknown, 0, "{}", shown(&found));
}

fn complaints_about(faults: &[&Fault], machine: &Machine) -> (BTreeSet<String>, Audit) {
    let found = audit(&machine.with(faults, tuned::inventory), None);
    (complaints(&found), found)
}

#[test]
fn each_planted_fault_is_found_by_name_and_nothing_else_is() {
    let mut wrong = Vec::new();
    let machine = Machine::new();
    for fault in tuned::faults() {
        let (complaints, found) = complaints_about(&[&fault], &machine);
        found.rows.iter().filter_map(|row| row.change.as_deref()).for_each(keeps_protections);
        let planted: BTreeSet<String> = fault.rules.iter().cloned().collect();
        if complaints != planted {
            let missing: Vec<_> = planted.difference(&complaints).collect();
            let others: Vec<_> = complaints.difference(&planted).collect();
            wrong.push(format!("{}: missing {missing:?}, not planted {others:?}", fault.what));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// No advice switches a protection off.
fn keeps_protections(change: &str) {
    for off in
        ["mitigations=off", "mce=off", "selinux=0", "nx_huge_pages=0", "setenforce 0", "spectre_v2=off"]
    {
        let taken_out = format!("without {off}");
        assert!(!change.contains(off) || change.contains(&taken_out), "{change}");
    }
}

#[test]
fn every_fault_of_the_mis_tuned_machine_is_found_and_nothing_else_is() {
    let faults = tuned::faults();
    let together: Vec<&Fault> = faults.iter().filter(|fault| fault.together).collect();
    let planted: BTreeSet<String> = together.iter().flat_map(|fault| fault.rules.iter().cloned()).collect();
    let (complaints, found) = complaints_about(&together, &Machine::new());
    assert_eq!(complaints, planted, "{}", shown(&found));
    // As many as the audit promises to find at least.
    let conflicts = found.rows.iter().filter(|row| row.verdict == AuditOutcome::Conflict);
    let contradictions: BTreeSet<&str> = conflicts.map(|row| row.rule.as_str()).collect();
    assert!(contradictions.len() >= 25, "{}: {contradictions:?}", contradictions.len());
}

/// Rules that only tell, and those whose input only a model gives.
const NEVER_COMPLAIN: [&str; 17] = [
    "cache-allocation",
    "emulated-machine",
    "frequency-range",
    "huge-pages-too-few",
    "idle-driver",
    "idle-poll",
    "iommu-passthrough",
    "isolation-at-boot",
    "kvm-halt-polling",
    "programs-that-retune",
    "rcu-offload-polls",
    "rcu-settings",
    "skew-tick",
    "smt",
    "starvation-guard",
    "timer-migration",
    "turbo",
];

#[test]
fn no_rule_is_dead() {
    let planted: BTreeSet<String> = tuned::faults().into_iter().flat_map(|fault| fault.rules).collect();
    let ids: BTreeSet<String> = penstock_audit::rules().map(|rule| rule.id.to_owned()).collect();
    let stray: Vec<_> = planted.difference(&ids).collect();
    assert!(stray.is_empty(), "no rule is called {stray:?}");
    let quiet: Vec<_> =
        ids.difference(&planted).filter(|id| !NEVER_COMPLAIN.contains(&id.as_str())).collect();
    assert!(quiet.is_empty(), "no fault has {quiet:?} complain");
}
