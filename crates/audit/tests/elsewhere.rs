//! Kernels of other distributions and versions, judged by what they have and not by their number; and what nobody may read.
#![allow(clippy::disallowed_methods)]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use penstock_audit::audit;
use penstock_model::audit::{Audit, AuditOutcome};
use penstock_testkit::{
    sysfs,
    tuned::{self, Machine},
};

fn judged(tree: &Path) -> Audit {
    audit(&tuned::inventory(tree), None)
}

/// The worst of what each rule says, as the cases spell it.
fn verdicts(found: &Audit) -> BTreeMap<&str, &'static str> {
    let rank = |verdict| match verdict {
        AuditOutcome::Pass => (0, "pass"),
        AuditOutcome::Recorded => (1, "recorded"),
        AuditOutcome::Unknown => (2, "unknown"),
        AuditOutcome::Fail => (3, "fail"),
        AuditOutcome::Conflict => (4, "conflict"),
    };
    let mut worst: BTreeMap<&str, (u8, &str)> = BTreeMap::new();
    for row in &found.rows {
        let seen = worst.entry(&row.rule).or_insert((0, "pass"));
        *seen = (*seen).max(rank(row.verdict));
    }
    let left = found.left_out.iter().map(|left| (left.rule.as_str(), "left-out"));
    worst.into_iter().map(|(rule, (_, verdict))| (rule, verdict)).chain(left).collect()
}

fn shown(found: &Audit, rule: &str) -> String {
    let rows = found.rows.iter().filter(|row| row.rule == rule);
    let left = found.left_out.iter().filter(|left| left.rule == rule);
    let rows = rows.map(|row| format!("{}: {}", row.verdict, row.read));
    rows.chain(left.map(|left| format!("left out: {}", left.why))).collect::<Vec<_>>().join("; ")
}

#[test]
fn what_looks_wrong_and_is_not_is_told_apart() {
    let machine = Machine::new();
    let mut wrong = Vec::new();
    for case in tuned::cases("sound") {
        machine.changed(&[&case.changes], |tree| {
            let found = judged(tree);
            let verdicts = verdicts(&found);
            for (rule, wanted) in &case.verdicts {
                let is = verdicts.get(rule.as_str()).copied();
                if is != Some(wanted) {
                    wrong.push(format!(
                        "{}: {rule} is {is:?}, not {wanted}: {}",
                        case.what,
                        shown(&found, rule)
                    ));
                }
            }
        });
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Releases as distributions write them.
const RELEASES: [&str; 7] = [
    "4.18.0-553.el8_10.x86_64",
    "5.14.0-611.el9.x86_64+rt",
    "5.15.0-1032-realtime",
    "6.1.0-28-rt-amd64",
    "6.8.0-60-lowlatency",
    "6.17.2-1-rt",
    "9.9.9",
];

#[test]
fn no_number_of_a_kernel_turns_a_verdict_round() {
    let machine = Machine::new();
    let mut wrong = Vec::new();
    let faults = tuned::faults();
    let changes = faults.iter().map(|fault| (&fault.what, &fault.changes));
    let sound = ("the well-tuned machine".to_owned(), String::new());
    for (what, changes) in changes.chain([(&sound.0, &sound.1)]) {
        // These are about a number.
        if changes.contains("osrelease") {
            continue;
        }
        machine.changed(&[changes], |tree| {
            let mut inventory = tuned::inventory(tree);
            let before = audit(&inventory, None);
            let is = verdicts(&before);
            for release in RELEASES {
                inventory.kernel.release = release.to_owned();
                let after = audit(&inventory, None);
                for (rule, now) in verdicts(&after) {
                    let was = is[rule];
                    let right = |verdict| matches!(verdict, "pass" | "recorded" | "left-out");
                    let wrong_way = |verdict| matches!(verdict, "fail" | "conflict");
                    if (right(was) && wrong_way(now)) || (wrong_way(was) && right(now)) {
                        wrong.push(format!(
                            "{what}: {rule} was {was} and is {now} on {release}: {}",
                            shown(&after, rule)
                        ));
                    }
                }
            }
        });
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_fault_that_may_not_be_read_is_never_a_pass() {
    let machine = Machine::new();
    let mut wrong = Vec::new();
    for fault in tuned::faults() {
        // What was watched was read at once; processes and groups are listed before they are read.
        let planted: Vec<&str> = fault.changes.lines().filter(|line| !line.starts_with("- ")).collect();
        let files =
            sysfs::paths(&planted.join("\n")).unwrap_or_else(|error| panic!("{}: {error}", fault.what));
        // Which CPUs are in partitions is known from these as well, where the root of the groups does not say.
        let elsewhere = |path: &str| path.starts_with('.') || path == "sys/fs/cgroup/cpuset.cpus.isolated";
        let files: Vec<String> = files.into_iter().filter(|path| !elsewhere(path)).collect();
        let errors: String = files.iter().map(|path| format!("13 /{path}\\n")).collect();
        if files.is_empty() {
            continue;
        }
        let (mut complained, mut denied) = (BTreeSet::new(), BTreeMap::new());
        machine.changed(&[&fault.changes], |tree| {
            let found = judged(tree);
            let is =
                verdicts(&found).into_iter().filter(|(_, verdict)| matches!(*verdict, "fail" | "conflict"));
            complained = is.map(|(rule, _)| rule.to_owned()).collect();
        });
        machine.changed(&[&fault.changes, &format!("/.errors = {errors}")], |tree| {
            let found = judged(tree);
            denied = verdicts(&found)
                .into_iter()
                .map(|(rule, verdict)| (rule.to_owned(), (verdict, shown(&found, rule))))
                .collect();
        });
        for rule in complained {
            if let Some(("pass", said)) = denied.get(&rule) {
                wrong.push(format!("{}: {rule} passes without {}: {said}", fault.what, files.join(", ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
