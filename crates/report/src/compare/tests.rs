use penstock_model::{
    Outcome, Verdict, Verdicts,
    audit::{Audit, AuditOutcome, Layer, Row},
    measurement::{
        Estimate, Metric,
        run_comparison::{Change, Direction, Untold},
    },
    verdict::{Subject, Vantage},
};

use super::*;
use crate::{StepOutcome, StepRecord, evidence::Audits};

fn change(cell: &str, metric: Metric, ratio: f64, adjusted: f64) -> Change {
    let ratio = Estimate::new(ratio, ratio * 0.95, ratio * 1.05, 0.95).unwrap();
    let p = adjusted / 10.0;
    Change { cell: cell.into(), metric, a: 1e9, b: 1e9 * ratio.value(), n_a: 8, n_b: 6, ratio, p, adjusted }
}

fn cells() -> CellsComparison {
    let untold = |cell: &str| Untold { cell: cell.into(), why: "the guest <b>stopped</b>".into() };
    CellsComparison {
        confidence: 0.95,
        changes: vec![
            change("slow", Metric::Throughput, 0.5, 0.001),
            change("fast", Metric::Throughput, 1.5, 0.001),
            change("maybe", Metric::P99, 1.2, 0.4),
            change("same", Metric::Throughput, 1.0, 1.0),
        ],
        lost: vec![untold("lost|<script>")],
        found: vec![untold("found")],
        untold: vec![untold("untold")],
        missing: vec![untold("never")],
        only_a: vec!["old".into()],
        only_b: vec!["new".into()],
    }
}

fn evidence(id: &str) -> Evidence {
    let mut evidence = Evidence::default();
    evidence.run.id = id.into();
    evidence.hashes.inventory = Some("aa".into());
    evidence.hashes.model = Some("bb".into());
    evidence
}

#[test]
fn one_old_run_was_written_and_two_were() {
    let old = |id| Evidence { version: 1, ..evidence(id) };
    let note = |a: &Evidence, b: &Evidence| {
        let comparison = compare(a, b, None, Vec::new());
        comparison.notes.into_iter().find(|note| note.contains("older Penstock")).unwrap_or_default()
    };
    assert!(note(&old("1"), &evidence("2")).starts_with("A was written by"));
    assert!(note(&old("1"), &old("2")).starts_with("A and B were written by"));
    assert_eq!(note(&evidence("1"), &evidence("2")), "");
}

#[test]
fn a_link_whose_speed_is_not_told_is_compared_all_the_same() {
    let with = |speed: Option<u32>| {
        let end = r#"{"place": "host", "kind": "host", "function": "NET0"}"#;
        let end = serde_json::from_str(end).unwrap();
        let link = penstock_model::measurement::Link { end, speed, carrier: None };
        let measured = Measurements { links: vec![link], ..Measurements::default() };
        Evidence { measurements: Some(measured), ..evidence("1") }
    };
    let of = |a: Option<u32>, b: Option<u32>| {
        let facts = compare(&with(a), &with(b), None, Vec::new()).facts;
        let fact = facts.into_iter().find(|fact| fact.what == "link speeds").expect("it is a fact");
        (fact.a.unwrap_or_default(), fact.b.unwrap_or_default())
    };
    assert_eq!(of(Some(1000), None), ("host:NET0 1000 Mbit/s".into(), "host:NET0 not reported".into()));
    assert_eq!(of(None, None), ("host:NET0 not reported".into(), "host:NET0 not reported".into()));
}

fn verdict(outcome: Outcome, attribute: &str) -> Verdict {
    Verdict {
        subject: Subject::Machine,
        attribute: attribute.into(),
        item: None,
        vantage: Vantage::Host,
        wanted: "1".into(),
        seen: "2".into(),
        outcome,
        best_effort: true,
        out_of_sight: false,
        emulated: false,
    }
}

#[test]
fn every_rendering_shows_what_changed_and_what_is_missing() {
    let (a, b) = (evidence("first"), evidence("second"));
    let comparison = compare(&a, &b, Some(cells()), Vec::new());
    assert!(comparison.got_worse());
    let (page, text, short) = (html(&comparison), markdown(&comparison), summary(&comparison));
    for shown in [&page, &text, &short] {
        for word in ["B is worse than A", "slow", "0.500", "fast", "first", "second", "Holm"] {
            assert!(shown.contains(word), "{word} is not in {shown}");
        }
    }
    for shown in [&page, &text] {
        for word in ["maybe", "same", "found", "untold", "never", "old", "new"] {
            assert!(shown.contains(word), "{word} is not in {shown}");
        }
        assert!(!shown.contains("<script>") && !shown.contains("<b>stopped"), "{shown}");
    }
    assert!(short.contains("missing lost"), "{short}");
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("src="));
}

#[test]
fn a_ratio_that_may_be_chance_makes_nothing_worse() {
    let changes = vec![change("maybe", Metric::P99, 1.2, 0.4)];
    let only = CellsComparison { confidence: 0.95, changes, ..CellsComparison::default() };
    assert_eq!(only.changes[0].direction(), Direction::PerhapsWorse);
    let comparison = compare(&evidence("a"), &evidence("b"), Some(only), Vec::new());
    assert!(!comparison.got_worse());
    assert!(summary(&comparison).contains("Nothing got worse"));
}

#[test]
fn verdicts_turn() {
    let (mut a, mut b) = (evidence("a"), evidence("b"));
    let of = |all: &[(Outcome, &str)]| -> Verdicts {
        all.iter().map(|(outcome, attribute)| verdict(*outcome, attribute)).collect()
    };
    use Outcome::{Fail, Pass, Unknown, Unsupported};
    a.verdicts = of(&[
        (Pass, "mac"),
        (Fail, "vlan"),
        (Pass, "trust"),
        (Pass, "gone"),
        (Pass, "same"),
        (Unknown, "dark"),
        (Fail, "bad and gone"),
    ]);
    b.verdicts = of(&[
        (Fail, "mac"),
        (Pass, "vlan"),
        (Unsupported, "trust"),
        (Fail, "came bad"),
        (Pass, "came good"),
        (Pass, "same"),
        (Fail, "dark"),
    ]);
    let told = |a: &Evidence, b: &Evidence| -> Vec<(String, bool)> {
        let comparison = compare(a, b, None, Vec::new());
        comparison.verdicts.iter().map(|turn| (turn.what.clone(), turn.worse)).collect()
    };
    let from = |all: &[(&str, bool)]| -> Vec<(String, bool)> {
        all.iter().map(|(of, worse)| (format!("machine {of}, seen from host"), *worse)).collect()
    };
    // What was proven and is not any more is worse, also where the model allows that, and so is what nobody looked at.
    let worse = [("mac", true), ("trust", true), ("gone", true), ("dark", true), ("came bad", true)];
    let all = [&worse[..], &[("vlan", false), ("bad and gone", false), ("came good", false)]].concat();
    assert_eq!(told(&a, &b), from(&all));
    let comparison = compare(&a, &b, None, Vec::new());
    assert!(comparison.got_worse());
    assert!(markdown(&comparison).contains("unsupported, as the model allows"));

    // Of another model what only one run has is shown and not compared.
    let other =
        Evidence { hashes: crate::Hashes { model: Some("cc".into()), ..b.hashes.clone() }, ..b.clone() };
    let alone = told(&a, &other).into_iter().filter(|(_, worse)| *worse).collect::<Vec<_>>();
    assert_eq!(alone, from(&[("mac", true), ("trust", true), ("dark", true)]));
    assert_eq!(told(&a, &other).len(), all.len());

    b.verdicts = Verdicts::default();
    let comparison = compare(&a, &b, None, Vec::new());
    assert_eq!(
        comparison.verdicts.len(),
        a.verdicts.len(),
        "a run that verified nothing is no run where all is well"
    );
    assert!(comparison.got_worse());
}

#[test]
fn nothing_got_worse_is_said_only_where_everything_found_its_partner() {
    let mut a = evidence("a");
    a.verdicts = [verdict(Outcome::Pass, "mac")].into_iter().collect();
    let says_all = |a: &Evidence, b: &Evidence, cells: Option<CellsComparison>| {
        let comparison = compare(a, b, cells, Vec::new());
        assert!(!comparison.got_worse());
        let (page, text, short) = (html(&comparison), markdown(&comparison), summary(&comparison));
        let said = ["Nothing got worse", "Nothing that could be compared got worse"];
        let said = said.map(|said| [&page, &text, &short].map(|shown| shown.contains(said)));
        assert!(said == [[true; 3], [false; 3]] || said == [[false; 3], [true; 3]], "{short}");
        said[0][0]
    };
    assert!(says_all(&a, &a, None));
    let empty = || CellsComparison { confidence: 0.95, ..CellsComparison::default() };
    let untold = || vec![Untold { cell: "c".into(), why: "why".into() }];
    assert!(says_all(&a, &a, Some(empty())));
    assert!(
        says_all(&a, &a, Some(CellsComparison { missing: untold(), ..empty() })),
        "missing in both is the same"
    );
    assert!(says_all(&a, &a, Some(CellsComparison { found: untold(), ..empty() })));
    assert!(!says_all(&a, &a, Some(CellsComparison { untold: untold(), ..empty() })));
    assert!(!says_all(&a, &a, Some(CellsComparison { only_a: vec!["c".into()], ..empty() })));
    assert!(!says_all(&a, &a, Some(CellsComparison { only_b: vec!["c".into()], ..empty() })));

    let mut more = a.clone();
    more.verdicts = [verdict(Outcome::Pass, "mac"), verdict(Outcome::Pass, "new")].into_iter().collect();
    assert!(!says_all(&a, &more, None));
    let mut steps = a.clone();
    steps.steps = vec![step(StepOutcome::Done)];
    assert!(!says_all(&a, &steps, None) && !says_all(&steps, &a, None));
    assert!(says_all(&steps, &steps, None));
    let mut audited = a.clone();
    audited.audits = Some(Audits { before: Some(Audit::default()), after: None });
    assert!(!says_all(&a, &audited, None) && !says_all(&audited, &a, None));
    assert!(says_all(&audited, &audited, None));
    let mut interrupted = a.clone();
    interrupted.run.exit = Some(130);
    assert!(!says_all(&a, &interrupted, None));
}

fn step(outcome: StepOutcome) -> StepRecord {
    StepRecord { id: 1, what: "up".into(), why: "why".into(), took: None, outcome, detail: None }
}

#[test]
fn a_step_that_failed_a_rule_that_fails_and_a_run_that_holds_no_longer_are_worse() {
    let mut a = evidence("a");
    a.verdicts = [verdict(Outcome::Fail, "mac")].into_iter().collect();
    let worse = |a: &Evidence, b: &Evidence| -> Vec<String> {
        let turns = compare(a, b, None, Vec::new()).outcomes.into_iter();
        turns.filter(|turn| turn.worse).map(|turn| turn.what).collect()
    };
    let with = |outcome| Evidence { steps: vec![step(outcome)], ..a.clone() };
    assert_eq!(worse(&with(StepOutcome::Done), &with(StepOutcome::Failed)), ["step: up"]);
    assert_eq!(worse(&a, &with(StepOutcome::Undone)), ["step: up"], "also one that A did not have");
    assert_eq!(worse(&with(StepOutcome::Failed), &with(StepOutcome::Already)), [""; 0]);

    // Two rules of one subject, and one rule of two subjects.
    let row = |rule: &str, subject: &str, verdict: AuditOutcome| Row {
        rule: rule.into(),
        layer: Layer::Kernel,
        subject: subject.into(),
        verdict,
        read: "x".into(),
        wanted: "y".into(),
        why: "z".into(),
        price: None,
        change: None,
        ways: Vec::new(),
        source: "s".into(),
        needs_root: false,
    };
    let audited = |rows: Vec<Row>| {
        let audit = Audit { rows, ..Audit::default() };
        Evidence { audits: Some(Audits { before: Some(audit.clone()), after: Some(audit) }), ..a.clone() }
    };
    let good = || vec![row("r", "CPU 1", AuditOutcome::Pass), row("r", "CPU 2", AuditOutcome::Pass)];
    for (at, name) in [(0, "r of CPU 1"), (1, "r of CPU 2")] {
        for verdict in [AuditOutcome::Fail, AuditOutcome::Unknown, AuditOutcome::Conflict] {
            let mut rows = good();
            rows[at].verdict = verdict;
            let expected = ["before", "after"].map(|when| format!("audit {when}: {name}"));
            assert_eq!(worse(&audited(good()), &audited(rows)), expected);
        }
    }
    let holds = Evidence { verdicts: [verdict(Outcome::Pass, "mac")].into_iter().collect(), ..a.clone() };
    let ended = Evidence { run: crate::Run { exit: Some(5), ..holds.run.clone() }, ..holds.clone() };
    assert_eq!(worse(&holds, &ended), ["the run"]);
    assert!(compare(&holds, &ended, None, Vec::new()).got_worse());
}

#[test]
fn different_hardware_is_said() {
    let (a, mut b) = (evidence("a"), evidence("b"));
    assert_eq!(compare(&a, &b, None, Vec::new()).same_hardware(), Some(true));
    b.hashes.inventory = Some("cc".into());
    b.versions.kernel = Some("6.1".into());
    let comparison = compare(&a, &b, None, Vec::new());
    assert_eq!(comparison.same_hardware(), Some(false));
    assert!(comparison.notes[0].contains("different hardware"), "{:?}", comparison.notes);
    let kernel = comparison.facts.iter().find(|fact| fact.what == "kernel").unwrap();
    assert_eq!((kernel.same(), kernel.a.as_deref()), (None, None));
    assert!(summary(&comparison).contains("different: inventory"), "{}", summary(&comparison));
    assert!(markdown(&comparison).contains("| model | bb | bb | the same |"), "{}", markdown(&comparison));
}
