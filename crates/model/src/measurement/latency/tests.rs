use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    measurement::{Claim, Conclusion, EndKind},
    verdict::Vantage,
};

fn setting(place: &str, arm: Arm, load: Load) -> Setting {
    let (place, kind) = match place {
        "host" => (Vantage::Host, EndKind::Host),
        guest => (Vantage::Guest(guest.parse().unwrap()), EndKind::Container),
    };
    Setting { place, kind, cpu: 2, ordinary: false, tool: Tool::Cyclictest, load, arm, power: Power::Held }
}

fn hackbench() -> Load {
    Load::Hackbench { place: Vantage::Host, cpus: "0-1".parse().unwrap(), groups: 8 }
}

fn claim(text: &str) -> LatencyExpectation {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn bins(counts: &[(u32, u64)], limit: u32, total: u64) -> Bins {
    Bins::new(counts.iter().copied().collect(), limit, total).unwrap()
}

#[test]
fn the_overflow_is_what_the_bins_lack() {
    // Figures of cyclictest 2.4: 14985 cycles, of which the bins hold 14951.
    let counted = bins(&[(3, 14_000), (9, 951)], 400, 14_985);
    assert_eq!((counted.over(), counted.total()), (34, 14_985));
    assert_eq!(counted.at_least(400), Some(34));
    assert_eq!(counted.at_least(401), None, "nobody knows");
    assert_eq!(counted.at_least(9), Some(985));
    assert_eq!(
        (counted.ranked(14_000), counted.ranked(14_001), counted.ranked(14_952)),
        (Some(3), Some(9), None)
    );
    assert!(Bins::new(BTreeMap::from([(400, 1)]), 400, 1).is_err());
    assert!(Bins::new(BTreeMap::from([(1, 5)]), 400, 4).is_err());
}

#[test]
fn histograms_with_different_ends_are_added_only_where_nothing_is_guessed() {
    let (short, long) = (bins(&[(3, 5)], 10, 5), bins(&[(20, 1)], 100, 3));
    let mut both = short.clone();
    both.merge(&long).unwrap();
    assert_eq!((both.limit(), both.over(), both.total()), (100, 2, 8));
    let mut over = bins(&[(3, 5)], 10, 6);
    assert!(over.clone().merge(&long).is_err());
    over.merge(&bins(&[(9, 1)], 100, 2)).unwrap();
    assert_eq!((over.limit(), over.over(), over.total()), (10, 2, 8));
}

#[test]
fn lines_say_what_they_mean() {
    let one = claim("latency rt-2 max < 100us");
    assert_eq!(*one.limit(), Limit::Below { late: 100, except: 1e-5 });
    let [tuned, untuned] = [Arm::Tuned, Arm::Untuned]
        .map(|arm| [Load::Idle, hackbench()].map(|load| setting("rt-2", arm, load)));
    assert!(tuned.iter().all(|one_of| one.left().matches(one_of)));
    assert!(!untuned.iter().any(|one_of| one.left().matches(one_of)));
    assert!(!one.left().matches(&setting("host", Arm::Tuned, Load::Idle)));

    let two = claim("latency rt-2 p99.99 <= 50 us loaded");
    assert_eq!(*two.limit(), Limit::Below { late: 51, except: 1e-4 });
    assert!(two.left().matches(&tuned[1]) && !two.left().matches(&tuned[0]));
    assert_eq!(
        *claim("latency in host max < 1ms except 1e-6").limit(),
        Limit::Below { late: 1000, except: 1e-6 }
    );
    // Seconds, and no wake-ups, wherever the tool stands.
    for (line, share) in [
        ("latency oslat rt-2 max < 10us", 1e-2),
        ("latency rt-2 max < 10us oslat", 1e-2),
        ("latency host max < 10us hwlat", 1e-2),
        ("latency rt-2 max < 10us oslat except 1e-3", 1e-3),
        ("latency rt-2 max < 10us timerlat", 1e-5),
    ] {
        assert_eq!(*claim(line).limit(), Limit::Below { late: 10, except: share }, "{line}");
    }

    let ratio = claim("latency untuned / tuned p99.99 >= 10x");
    assert!(ratio.pairs(&untuned[1], &tuned[1]) && ratio.pairs(&untuned[0], &tuned[0]));
    assert!(!ratio.pairs(&untuned[1], &tuned[0]), "loads differ");
    assert!(!ratio.pairs(&tuned[1], &untuned[1]));
    assert!(!ratio.pairs(&untuned[1], &setting("host", Arm::Tuned, hackbench())));

    let places = claim("latency rt-2 / host max <= 1.5 x idle");
    assert!(places.pairs(&tuned[0], &setting("host", Arm::Tuned, Load::Idle)));
    assert!(!places.pairs(&tuned[1], &setting("host", Arm::Tuned, hackbench())));
    let told: LatencyExpectation = serde_json::from_str("\"latency rt-2 max < 100us\"").unwrap();
    assert_eq!(told, one);
}

#[test]
fn what_makes_no_claim_is_said() {
    for (line, part) in [
        ("latency rt-2 max", "no comparison"),
        ("latency rt-2 < 100us", "which latency"),
        ("latency rt-2 max > 100us", "stay below"),
        ("latency rt-2 max < 100.5us", "whole microseconds"),
        ("latency rt-2 max < 0us", "whole microseconds"),
        ("latency rt-2 max < 10x", "two sides"),
        ("latency untuned / tuned max >= 100us", "factor"),
        ("latency untuned / tuned max > 10x", ">= and <="),
        ("latency tuned / tuned max >= 10x", "same series"),
        ("latency / tuned max >= 10x", "empty"),
        ("latency rt-2 max < 100us except", "which share"),
        ("latency rt-2 max < 100us except 2", "no share"),
        ("latency rt-2 p99 < 100us except 1e-6", "says itself"),
        ("latency rt-2 mean < 100us", "max or a percentile"),
        ("latency rt-2 rt-3 max < 100us", "contradicts"),
        ("latency rt-2 max < 100us laoded", "did you mean \"loaded\""),
        ("latency rt-2 tunde max < 100us", "did you mean \"tuned\""),
        ("latency rt-2 idle max < 100us loaded", "contradicts"),
        ("latency rt-2 p99.5 < 100us", "none of"),
        ("latency rt-2 max < 100Mbit/s", "not in bit/s"),
        ("latency rt-2 max < 1us < 2us", "second comparison"),
        ("latency rt-2 max <", "nothing stands after"),
        ("latency r?2 max < 5us", "guest name"),
        ("max < 5us", "begins with"),
    ] {
        let error = line.parse::<LatencyExpectation>().expect_err(line);
        assert!(error.why().contains(part), "{line}: {}", error.why());
        assert!(error.at().end <= line.len(), "{line}");
    }
}

#[test]
fn a_run_holds_when_its_claims_do() {
    let mut latency = Latency::default();
    assert!(!latency.holds(), "nothing was measured");
    let mut series = Series::new(setting("host", Arm::Tuned, Load::Idle));
    assert_eq!(series.id, "cyclictest host cpu2 idle tuned held");
    series.blocks.push(Block { counts: bins(&[(3, 5)], 10, 5), max: Some(3.0), ..Block::default() });
    series.blocks.push(Block { failed: Some("killed".into()), max: Some(90.0), ..Block::default() });
    assert_eq!((series.max(), series.bins().unwrap().total()), (Some(3.0), 5));
    latency.series.push(series);
    assert!(latency.holds());
    latency.rulings.push(ExpectationResult::new(claim("latency host max < 9us"), Vec::new()));
    assert_eq!(latency.rulings[0].told, Conclusion::CannotBeTold);
    assert!(!latency.holds());
    let text = serde_json::to_string(&latency).unwrap();
    assert_eq!(serde_json::from_str::<Latency>(&text).unwrap(), latency);
}

#[test]
fn rulings_keep_the_keys_that_they_have_in_kept_runs() {
    let seen = Claim { n: 9, late: Some(1), max: Some(12.0), ..Claim::new("s", Conclusion::DoesNotHold) };
    let rulings = vec![ExpectationResult::new(claim("latency host max < 9us"), vec![seen])];
    let latency = Latency { rulings, ..Latency::default() };
    let json = serde_json::to_value(&latency).unwrap();
    let kept = serde_json::json!([{
        "claim": "latency host max < 9us", "told": "does_not_hold",
        "findings": [{
            "series": "s", "against": null, "seen": null, "n": 9, "late": 1, "max": 12.0, "told": "does_not_hold", "why": null
        }]
    }]);
    assert_eq!(json["rulings"], kept);
    assert_eq!(serde_json::from_value::<Latency>(json).unwrap(), latency);
    // A run of the first version that had less to say.
    let short = r#"{"rulings": [{"claim": "latency host max < 9us", "told": "holds",
        "findings": [{"series": "s", "told": "holds"}]}]}"#;
    let claims = serde_json::from_str::<Latency>(short).unwrap().rulings.remove(0).claims;
    assert_eq!(claims, [Claim::new("s", Conclusion::Holds)]);
}

proptest! {
    #[test]
    fn no_text_is_read_in_a_panic(text in "(latency )?[a-z0-9<>=./ µ≥x-]{0,60}") {
        match text.parse::<LatencyExpectation>() {
            Ok(claim) => prop_assert_eq!(claim.to_string().parse::<LatencyExpectation>().unwrap(), claim),
            Err(error) => prop_assert!(error.at().end <= text.len() && text.get(error.at()).is_some()),
        }
    }

    #[test]
    fn adding_keeps_every_latency(
        a in prop::collection::btree_map(0u32..50, 0u64..1000, 0..20),
        b in prop::collection::btree_map(0u32..50, 0u64..1000, 0..20),
        over in (0u64..5, 0u64..5), bin in 0u32..50,
    ) {
        let make = |counts: &BTreeMap<u32, u64>, over| {
            Bins::new(counts.clone(), 50, counts.values().sum::<u64>() + over).unwrap()
        };
        let (one, other) = (make(&a, over.0), make(&b, over.1));
        let mut both = one.clone();
        both.merge(&other).unwrap();
        prop_assert_eq!(both.total(), one.total() + other.total());
        prop_assert_eq!(both.at_least(bin), Some(one.at_least(bin).unwrap() + other.at_least(bin).unwrap()));
        let text = serde_json::to_string(&both).unwrap();
        prop_assert_eq!(serde_json::from_str::<Bins>(&text).unwrap(), both);
    }
}
