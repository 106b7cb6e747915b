//! What holds of every machine, and the documentation of the rules.
#![allow(clippy::disallowed_methods)]

use std::{collections::BTreeSet, path::Path};

use penstock_audit::{Release, audit, rules};
use penstock_model::{
    CpuSet, Inventory, Source,
    audit::{AuditOutcome, Score},
    inventory::{
        Cpus,
        tuning::{CgroupVersion, IdleState, Irq, Knob, Reading, Tuning, Value},
    },
    parse,
};
use penstock_testkit::{golden, tuned};
use proptest::prelude::*;

/// Rules whose pass rests on what the inventory has beside its tuning, or on a word that is not on the command line.
const NEED_NO_FILE: [&str; 9] = [
    "boot-contradictory-parameters",
    "boot-parameters-of-other-kernels",
    "boot-repeated-parameters",
    "boot-unknown-parameters",
    "iommu",
    "machine-checks",
    "mitigations-off",
    "no-housekeeping",
    "rt-kernel",
];

#[test]
fn nobody_looked_is_unknown_throughout() {
    let found = audit(&Inventory::default(), None);
    assert_eq!(found.rows.len(), rules().count());
    assert!(found.rows.iter().all(|row| row.verdict == AuditOutcome::Unknown));
    assert_eq!(found.score, Score { unknown: found.rows.len(), ..Score::of(&found.rows) });
    assert_eq!(found.score.percent, 0);
    assert!(!found.holds());
}

/// Everything of the well-tuned machine's tuning denied, or absent.
fn darkened(inventory: &Inventory, denied: bool) -> Inventory {
    fn all<T>(reading: &mut Reading<T>, denied: bool) {
        *reading = if denied { Reading::Denied } else { Reading::Unreadable("no".to_owned()) };
    }
    let mut dark = inventory.clone();
    let tuning = dark.tuning.as_mut().unwrap();
    tuning.knobs.values_mut().for_each(|reading| all(reading, denied));
    tuning.irqs.values_mut().for_each(|irq| all(&mut irq.effective, denied));
    tuning.parameters.values_mut().for_each(|reading| all(reading, denied));
    all(&mut tuning.idle_driver, denied);
    all(&mut tuning.turbo, denied);
    all(&mut tuning.tickless, denied);
    all(&mut tuning.workqueues_isolated, denied);
    all(&mut tuning.cgroups.isolated, denied);
    all(&mut tuning.resctrl, denied);
    all(&mut tuning.clock_source, denied);
    all(&mut tuning.smt, denied);
    all(&mut tuning.selinux_enforcing, denied);
    all(&mut tuning.selinux_cache, denied);
    all(&mut tuning.security_modules, denied);
    all(&mut tuning.unknown_parameters, denied);
    tuning.cgroups.version = CgroupVersion::Unknown;
    tuning.cgroups.partitions.clear();
    tuning.cpu_flags.clear();
    tuning.vulnerabilities.clear();
    tuning.idle.clear();
    tuning.vms.clear();
    tuning.links.clear();
    tuning.processes_hidden = true;
    dark.cpus.isolated = "1-3,5-7,9-11,13-15".parse().unwrap();
    dark
}

#[test]
fn what_could_not_be_read_never_passes() {
    let inventory = tuned::Machine::new().with(&[], tuned::inventory);
    for denied in [true, false] {
        let found = audit(&darkened(&inventory, denied), None);
        // What is known beside the files: the command line, the topology and the IOMMU's groups.
        let also = [
            "housekeeping-on-another-node",
            "irqaffinity-at-boot",
            "irqaffinity-overlaps-isolated",
            "boot-cpus-not-online",
            "rcu-offload-differs-from-tickless",
            "smt-siblings-split",
            "soft-lockup-watchdog",
            "interrupt-remapping",
        ];
        let passed: BTreeSet<&str> = found
            .rows
            .iter()
            .filter(|row| row.verdict == AuditOutcome::Pass)
            .map(|row| row.rule.as_str())
            .filter(|rule| !NEED_NO_FILE.contains(rule) && !also.contains(rule))
            .collect();
        assert_eq!(passed, BTreeSet::new());
        assert!(found.score.unknown >= 25, "{:?}", found.score);
    }
}

#[test]
fn four_rows_of_five_need_no_root() {
    let inventory = tuned::Machine::new().with(&[], tuned::inventory);
    let found = audit(&inventory, None);
    assert!(found.score.without_root * 100 >= found.rows.len() * 80, "{:?}", found.score);
}

#[test]
fn a_model_asks_only_for_what_it_needs() {
    let inventory = tuned::Machine::new().with(&[], tuned::inventory);
    let audited = |text: &str| audit(&inventory, Some(&parse(&Source::new("m.yaml", text)).unwrap().model));
    let plain = audited("nics: {NET0: {vfs: 1}}\nguests: {a: {functions: [NET0#0]}}\n");
    let asked =
        |found: &penstock_model::audit::Audit, rule: &str| found.rows.iter().any(|row| row.rule == rule);
    for rule in ["governor", "rt-throttling", "tickless", "isolated-cpus", "vcpu-policy", "cache-allocation"]
    {
        assert!(!asked(&plain, rule), "{rule}");
    }
    for rule in ["mitigations-off", "iommu", "pci-link", "access-control"] {
        assert!(asked(&plain, rule), "{rule}");
    }
    let text = "
nics: {NET0: {vfs: 1}}
realtime: {frequency: performance, wake_latency: 0, throttling: off, tickless: on}
guests:
  rt-1: {kind: vm, pin: '1,9', realtime: on, emulator: '0,8', locked_memory: on, functions: [NET0#0]}
  rt-3: {kind: vm, pin: '4', realtime: {cache: 4}, functions: []}
";
    let found = audited(text);
    assert_eq!(found.cpus, "1,4,9".parse().unwrap());
    let of = |rule: &str| -> Vec<(AuditOutcome, String)> {
        let rows = found.rows.iter().filter(|row| row.rule == rule);
        rows.map(|row| (row.verdict, row.read.clone())).collect()
    };
    // CPU 4 is housekeeping here: the model wants it free.
    assert_eq!(of("isolated-cpus")[0].0, AuditOutcome::Fail);
    assert_eq!(of("default-irqs-on-isolated")[0].0, AuditOutcome::Conflict);
    assert_eq!(of("wake-latency-zero")[0].0, AuditOutcome::Conflict);
    assert_eq!(of("governor").len(), 3);
    // penstock-rt-1 runs and is judged; penstock-rt-2 is no guest of the model.
    assert_eq!(of("vcpu-policy").len(), 1);
}

#[test]
fn the_documentation_lists_every_rule_as_it_is() {
    let mut text = String::from(
        "# The rules of the audit\n\n\
         Made from the rules themselves (`UPDATE_GOLDEN=1 cargo test -p penstock-audit`); [audit.md](audit.md) says how to use them.\n",
    );
    let mut layer = String::new();
    let mut ids = BTreeSet::new();
    for rule in rules() {
        assert!(ids.insert(rule.id), "{} is there twice", rule.id);
        let plain = |text: &str| !text.is_empty() && !text.contains("  ") && !text.ends_with('.');
        assert!(plain(rule.what) && plain(rule.why) && plain(rule.source), "{}", rule.id);
        assert!(
            rule.id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
            "{}",
            rule.id
        );
        if layer != rule.layer.to_string() {
            layer = rule.layer.to_string();
            text += &format!("\n## {layer}\n");
        }
        text +=
            &format!("\n**`{}`**{}: {}.\n", rule.id, if rule.needs_root { " (root)" } else { "" }, rule.what);
        text += &format!("*Why:* {}. ", rule.why);
        if let Some((currency, what)) = rule.price {
            text += &format!("*Price ({currency}):* {what}. ");
        }
        text += &format!("*From:* {}.\n", rule.source);
    }
    golden::compare(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/audit-rules.md"), &text);
}

fn cpus() -> impl Strategy<Value = CpuSet> {
    prop::collection::btree_set(0_u32..20, 0..6).prop_map(CpuSet)
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::Number),
        cpus().prop_map(Value::Cpus),
        "[a-z/0-9]{1,8}".prop_map(Value::Word)
    ]
}

fn reading<T: Clone + std::fmt::Debug>(of: impl Strategy<Value = T>) -> impl Strategy<Value = Reading<T>> {
    prop_oneof![
        4 => of.prop_map(Reading::Is),
        1 => Just(Reading::Absent),
        1 => Just(Reading::Denied),
        1 => Just(Reading::Unreadable("odd".to_owned()))
    ]
}

fn knob() -> impl Strategy<Value = Knob> {
    prop_oneof![
        (0..Knob::OF_MACHINE.len()).prop_map(|n| Knob::OF_MACHINE[n]),
        (0..Knob::OF_CPU.len(), 0_u32..20).prop_map(|(n, cpu)| Knob::OF_CPU[n](cpu)),
        (0_u32..80).prop_map(Knob::IrqAffinity)
    ]
}

const WORDS: &str = "(isolcpus|nohz_full|rcu_nocbs|irqaffinity|idle|tsc|mitigations|intel_pstate|intel_idle.max_cstate|nosmt|x)(=(off|poll|[0-9N,-]{0,6}|all|managed_irq,[0-9]))?";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_machine_makes_it_panic_and_a_score_adds_up(
        knobs in prop::collection::btree_map(knob(), reading(value()), 0..40),
        effective in prop::collection::btree_map(0_u32..80, reading(cpus()), 0..8),
        latencies in prop::collection::btree_map(0_u32..20, prop::collection::vec(any::<u64>(), 0..4), 0..8),
        sets in prop::collection::vec(cpus(), 4),
        line in prop::collection::vec(WORDS, 0..6),
        release in "[0-9.]{0,6}|6.12.1",
        tuned_besides in any::<bool>(),
    ) {
        let mut inventory = Inventory::default();
        inventory.kernel.release = release;
        inventory.kernel.command_line = line.join(" ");
        inventory.cpus = Cpus {
            online: sets[0].clone(),
            isolated: sets[1].clone(),
            siblings: sets[2..].to_vec(),
            nodes: [(0, sets[2].clone()), (7, sets[3].clone())].into(),
            ..Cpus::default()
        };
        let mut tuning = if tuned_besides { WELL_TUNED.clone() } else { Tuning::default() };
        tuning.knobs.extend(knobs);
        tuning.irqs.extend(effective.into_iter().map(|(number, effective)| {
            (number, Irq { users: vec!["nvme0q1".to_owned()], effective, ..Irq::default() })
        }));
        tuning.idle.extend(latencies.into_iter().map(|(cpu, latencies)| {
            let state = |latency| IdleState { name: "C".to_owned(), latency, ..IdleState::default() };
            (cpu, latencies.into_iter().map(state).collect())
        }));
        inventory.tuning = Some(tuning);
        let found = audit(&inventory, None);
        prop_assert_eq!(found.score, Score::of(&found.rows));
        let score = found.score;
        prop_assert_eq!(score.pass + score.fail + score.unknown + score.conflict + score.recorded, found.rows.len());
        prop_assert!(found.rows.iter().all(|row| !row.read.is_empty() && !row.subject.is_empty() && !row.wanted.is_empty()));
        // Whoever is told that something is wrong is told what to do about it.
        let told = |verdict| matches!(verdict, AuditOutcome::Fail | AuditOutcome::Conflict);
        prop_assert!(found.rows.iter().all(|row| !told(row.verdict) || row.change.is_some()));
        let json = serde_json::to_string(&found).unwrap();
        prop_assert_eq!(serde_json::from_str::<penstock_model::audit::Audit>(&json).unwrap(), found);
    }

    #[test]
    fn any_text_is_a_release_or_none(text in ".{0,20}") {
        if let Ok(release) = text.parse::<Release>() {
            prop_assert!(text.starts_with(&release.major.to_string()) || text.starts_with('0') || text.starts_with('+'));
        }
    }
}

static WELL_TUNED: std::sync::LazyLock<Tuning> =
    std::sync::LazyLock::new(|| tuned::Machine::new().with(&[], tuned::inventory).tuning.unwrap());
