use penstock_model::{
    Outcome,
    measurement::{
        Estimate, Metric,
        across::{Change, Direction, Untold},
    },
    verdict::{Subject, Vantage},
};

use super::*;

fn change(cell: &str, metric: Metric, ratio: f64, adjusted: f64) -> Change {
    let ratio = Estimate::new(ratio, ratio * 0.95, ratio * 1.05, 0.95).unwrap();
    let p = adjusted / 10.0;
    Change { cell: cell.into(), metric, a: 1e9, b: 1e9 * ratio.value(), n_a: 8, n_b: 6, ratio, p, adjusted }
}

fn cells() -> CellsAcross {
    let untold = |cell: &str| Untold { cell: cell.into(), why: "the guest <b>stopped</b>".into() };
    CellsAcross {
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

fn verdict(outcome: Outcome, attribute: &str) -> Verdict {
    Verdict {
        subject: Subject::Machine,
        attribute: attribute.into(),
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
    let across = compare(&a, &b, Some(cells()), Vec::new());
    assert!(across.got_worse());
    let (page, text, short) = (html(&across), markdown(&across), summary(&across));
    for shown in [&page, &text, &short] {
        for word in ["B is worse than A", "slow", "0.500", "fast", "first", "second", "Holm"] {
            assert!(shown.contains(word), "{word} is not in {shown}");
        }
    }
    for shown in [&page, &text] {
        for word in ["maybe", "same", "found", "untold", "old", "new"] {
            assert!(shown.contains(word), "{word} is not in {shown}");
        }
        assert!(!shown.contains("<script>") && !shown.contains("<b>stopped"), "{shown}");
    }
    assert!(short.contains("missing lost"), "{short}");
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("src="));
}

#[test]
fn a_ratio_that_may_be_chance_makes_nothing_worse() {
    let mut only = CellsAcross { changes: vec![change("maybe", Metric::P99, 1.2, 0.4)], ..cells() };
    only.lost.clear();
    assert_eq!(only.changes[0].direction(), Direction::PerhapsWorse);
    let across = compare(&evidence("a"), &evidence("b"), Some(only), Vec::new());
    assert!(!across.got_worse());
    assert!(summary(&across).contains("Nothing got worse"));
}

#[test]
fn verdicts_turn() {
    let (mut a, mut b) = (evidence("a"), evidence("b"));
    a.verdicts = vec![
        verdict(Outcome::Pass, "mac"),
        verdict(Outcome::Fail, "vlan"),
        verdict(Outcome::Pass, "trust"),
        verdict(Outcome::Pass, "gone"),
        verdict(Outcome::Pass, "same"),
    ];
    b.verdicts = vec![
        verdict(Outcome::Fail, "mac"),
        verdict(Outcome::Pass, "vlan"),
        verdict(Outcome::Unsupported, "trust"),
        verdict(Outcome::Fail, "came"),
        verdict(Outcome::Pass, "same"),
    ];
    let across = compare(&a, &b, None, Vec::new());
    let told: Vec<(&str, bool)> =
        across.verdicts.iter().map(|turn| (turn.what.as_str(), turn.worse)).collect();
    let from = |attribute: &str| format!("machine {attribute}, seen from host");
    let expected = [("mac", true), ("vlan", false), ("trust", false), ("gone", false), ("came", false)]
        .map(|(a, w)| (from(a), w));
    assert_eq!(told, expected.each_ref().map(|(a, w)| (a.as_str(), *w)));
    assert!(across.got_worse());
    assert!(markdown(&across).contains("unsupported, as the model allows"));
    b.verdicts.clear();
    assert!(compare(&a, &b, None, Vec::new()).verdicts.is_empty());
}

#[test]
fn different_hardware_is_said() {
    let (a, mut b) = (evidence("a"), evidence("b"));
    assert_eq!(compare(&a, &b, None, Vec::new()).same_hardware(), Some(true));
    b.hashes.inventory = Some("cc".into());
    b.versions.kernel = Some("6.1".into());
    let across = compare(&a, &b, None, Vec::new());
    assert_eq!(across.same_hardware(), Some(false));
    assert!(across.notes[0].contains("different hardware"), "{:?}", across.notes);
    let kernel = across.facts.iter().find(|fact| fact.what == "kernel").unwrap();
    assert_eq!((kernel.same(), kernel.a.as_deref()), (None, None));
    assert!(summary(&across).contains("different: inventory"), "{}", summary(&across));
    assert!(markdown(&across).contains("| model | bb | bb | the same |"), "{}", markdown(&across));
}
