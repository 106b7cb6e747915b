use penstock_model::measurement::{
    Conclusion, EndKind,
    latency::{Arm, Bins, Block, Load, Power, Series, Setting, Statistic, Stopped, Tool},
};
use penstock_model::verdict::Vantage;
use proptest::prelude::*;

use super::{super::Random, *};

fn block(round: u32, counts: &[(u32, u64)], limit: u32, over: u64, max: f64) -> Block {
    let total = counts.iter().map(|(_, count)| count).sum::<u64>() + over;
    Block {
        round,
        start: f64::from(round) * 10.0,
        seconds: 10.0,
        counts: Bins::new(counts.iter().copied().collect(), limit, total).unwrap(),
        min: Some(1.0),
        mean: Some(3.0),
        max: Some(max),
        spikes: Some(over + u64::from(max >= 100.0 && over == 0)),
        ..Block::default()
    }
}

fn series(arm: Arm, blocks: Vec<Block>) -> Series {
    let setting = Setting {
        place: Vantage::Guest("rt-2".parse().unwrap()),
        kind: EndKind::Container,
        cpu: 2,
        tool: Tool::Cyclictest,
        load: Load::Idle,
        arm,
        power: Power::Held,
        ordinary: false,
    };
    let mut series = Series::new(setting);
    series.summary = summarise(&blocks, 0.95, 7).unwrap();
    series.blocks = blocks;
    series
}

/// Blocks of 20000 wake-ups around `usual` microseconds with a tail, none past 200 times that.
fn drawn(arm: Arm, usual: u32, blocks: u32, seed: u64) -> Series {
    let mut random = Random::new(seed);
    let blocks = (0..blocks).map(|round| {
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..20_000 {
            let tail = (1.0 / random.unit().max(1e-9)).powf(0.4).min(200.0);
            *counts.entry((f64::from(usual) * tail) as u32).or_insert(0u64) += 1;
        }
        let max = *counts.keys().next_back().unwrap();
        let counts: Vec<(u32, u64)> = counts.into_iter().collect();
        block(round, &counts, 200 * usual + 1, 0, f64::from(max))
    });
    series(arm, blocks.collect())
}

#[test]
fn the_rule_of_three() {
    // Hanley and Lippman-Hand, "If nothing goes wrong, is everything all right?", JAMA 249 (1983): exact 95 % bounds.
    for (n, bound) in [(10, 0.2589), (50, 0.0582), (100, 0.0295), (1000, 0.00299)] {
        assert!((rule_of_three(n, 0.95) - bound).abs() < 1e-4, "{n}: {}", rule_of_three(n, 0.95));
    }
    assert!((rule_of_three(100_000_000, 0.95) / 2.9957e-8 - 1.0).abs() < 1e-4);
    assert_eq!(rule_of_three(0, 0.95), 1.0);
    // 299 for one in a hundred: the sample size of discovery sampling.
    assert_eq!((needed(0.01, 0.95), needed(1e-5, 0.95)), (299, 299_572));
}

#[test]
fn without_a_late_one_the_test_is_the_rule_of_three_with_the_price_of_looking_for_more() {
    // A percentile may have late ones, so its test looks for other shares too and needs somewhat more.
    let n =
        (1..).map(|step| step * 1000).find(|n| test(*n, 0, 1e-4, 0.95, 1.0) == Conclusion::Holds).unwrap();
    assert!((29_957..60_000).contains(&n), "{n}");
    assert_eq!(test(10_000, 100, 1e-4, 0.95, 1.0), Conclusion::DoesNotHold);
    assert_eq!(test(100_000, 10, 1e-4, 0.95, 1.0), Conclusion::CannotBeTold);
    assert_eq!(test(0, 0, 1e-4, 0.95, 1.0), Conclusion::CannotBeTold);
    assert_eq!(test(10_000, 100, 1e-4, 0.95, 100.0), Conclusion::CannotBeTold, "one storm");
}

#[test]
fn looking_after_every_block_does_not_cheat() {
    // The truth is just not good enough, or just good enough; every run is looked at 200 times and stops at the first answer.
    let share = 0.01;
    let wrong = |truth: f64, answer: Conclusion| {
        (0..400u64)
            .filter(|run| {
                let mut random = Random::new(*run);
                let (mut n, mut late) = (0, 0);
                (0..200).any(|_| {
                    late += (0..100).filter(|_| random.unit() < truth).count() as u64;
                    n += 100;
                    test(n, late, share, 0.95, 1.0) == answer
                })
            })
            .count()
    };
    // 5 % of 400 are 20; three standard deviations more are 33.
    let (held, broken) = (wrong(share, Conclusion::Holds), wrong(share * 0.999, Conclusion::DoesNotHold));
    assert!(held <= 33 && broken <= 33, "{held} {broken}");
    // It is no test that never answers.
    assert!(wrong(share / 4.0, Conclusion::Holds) > 390 && wrong(share * 4.0, Conclusion::DoesNotHold) > 390);
}

#[test]
fn what_comes_together_counts_less() {
    let even: Vec<(u64, u64)> = (0..50).map(|n| (1000, 2 + n % 2)).collect();
    assert_eq!(design_effect(&even), 1.0);
    let mut storm = vec![(1000, 0); 49];
    storm.push((1000, 100));
    assert!(design_effect(&storm) > 50.0);
    assert_eq!(design_effect(&[(1000, 5)]), 1.0);
}

#[test]
fn percentiles_are_told_where_there_are_enough() {
    let few = summarise(&[block(0, &[(3, 500), (9, 499)], 400, 0, 9.0)], 0.95, 1).unwrap().unwrap();
    let p50 = few.quantile(Statistic::P50).unwrap();
    assert_eq!((p50.value, p50.alone), (None, Some(3.0)), "one block has no interval");
    let p99 = few.quantile(Statistic::P99).unwrap();
    assert!(p99.alone.is_none() && p99.why.as_ref().unwrap().contains("1000 wake-ups, and there are 999"));

    let blocks: Vec<Block> = (0..10)
        .map(|round| block(round, &[(3, 9_989), (50, 10)], 400, 1, 700.0 + f64::from(round)))
        .collect();
    let many = summarise(&blocks, 0.95, 1).unwrap().unwrap();
    assert_eq!((many.n, many.blocks, many.max), (100_000, 10, Some(709.0)));
    let told = |statistic| many.quantile(statistic).unwrap();
    assert_eq!(told(Statistic::P999).value.unwrap().value(), 50.0);
    // Ten of a hundred thousand are over the end, so p99.99 is the last within, and drawn again it is one time here, one time there.
    assert_eq!(told(Statistic::P9999).value.map(|p| p.value()).or(told(Statistic::P9999).alone), Some(50.0));
    assert!(told(Statistic::P99999).why.as_ref().unwrap().contains("1000000"));
    assert!(told(Statistic::BlockMax).value.unwrap().spans(704.5));
    assert_eq!((many.spikes, many.spike_blocks), (Some(10), Some(10)));
    assert_eq!(many.spike_blocks_per_minute(), Some(6.0));
    let bound = many.bound.unwrap();
    assert_eq!(bound.below, 710.0);
    assert!((bound.wake_ups - 2.9957e-5).abs() < 1e-8 && (bound.blocks - 0.2589).abs() < 1e-4);
    assert!(summarise(&[], 0.95, 1).unwrap().is_none());
}

#[test]
fn a_percentile_past_the_histogram_is_withheld() {
    let blocks: Vec<Block> = (0..8).map(|round| block(round, &[(3, 900)], 400, 100, 999.0)).collect();
    let summary = summarise(&blocks, 0.95, 1).unwrap().unwrap();
    let p99 = summary.quantile(Statistic::P99).unwrap();
    assert!(p99.value.is_none() && p99.why.as_ref().unwrap().contains("ends at 400 us"));
    assert!(summary.quantile(Statistic::P50).unwrap().value.is_some());
}

#[test]
fn a_known_ratio_comes_out() {
    let (tuned, null, untuned) =
        (drawn(Arm::Tuned, 10, 12, 1), drawn(Arm::Null, 10, 12, 2), drawn(Arm::Untuned, 50, 12, 3));
    for statistic in [Statistic::P50, Statistic::P99, Statistic::P9999, Statistic::BlockMax] {
        let found = compare(&tuned, &untuned, Some(&null), statistic, 0.95, 5);
        let ratio = found.ratio.unwrap_or_else(|| panic!("{statistic}: {found:?}"));
        assert!(ratio.spans(5.0) && (3.5..7.0).contains(&ratio.value()), "{statistic}: {ratio:?}");
        assert_eq!((found.null_holds(), found.pairs), (Some(true), 12), "{statistic}: {found:?}");
    }
    let claim = |text: &str| text.parse().unwrap();
    let all = [tuned, null, untuned];
    let judged = |text: &str| judge(&claim(text), &all, 0.95, 5);
    assert_eq!(judged("latency untuned / tuned p99 >= 3x").told, Conclusion::Holds);
    assert_eq!(judged("latency untuned / tuned p99 >= 20x").told, Conclusion::DoesNotHold);
    assert_eq!(
        judged("latency host / rt-2 p99 <= 2x").told,
        Conclusion::CannotBeTold,
        "no host was measured"
    );
    assert_eq!(judged("latency rt-2 p90 < 100us").told, Conclusion::Holds);
    assert_eq!(judged("latency rt-2 p50 < 11us").told, Conclusion::DoesNotHold);
    // 240000 wake-ups prove one in 100000 not yet, and one in 10000 well.
    assert_eq!(judged("latency rt-2 max < 2500us").told, Conclusion::CannotBeTold);
    assert_eq!(judged("latency rt-2 max < 2500us except 1e-4").told, Conclusion::Holds);
    let broken = judged("latency rt-2 max < 100us");
    assert_eq!((broken.told, broken.claims.len()), (Conclusion::DoesNotHold, 1));
    assert!(broken.claims[0].late.unwrap() > 0);

    assert_eq!(decided(&[]), None);
    assert_eq!(decided(&[judged("latency rt-2 max < 100us")]), Some(Stopped::Broken));
    let proven = judged("latency rt-2 max < 2500us except 1e-4");
    assert_eq!(decided(std::slice::from_ref(&proven)), Some(Stopped::Proven));
    assert_eq!(decided(&[proven, judged("latency untuned / tuned p99 >= 3x")]), None);
}

/// A ratio is worth nothing where the same measured twice differs.
#[test]
fn a_ratio_is_not_judged_whose_control_differs_from_itself() {
    let all = [drawn(Arm::Tuned, 10, 12, 1), drawn(Arm::Null, 50, 12, 2), drawn(Arm::Untuned, 50, 12, 3)];
    for line in ["latency untuned / tuned p99 >= 3x", "latency untuned / tuned p99 >= 20x"] {
        let doubted = judge(&line.parse().unwrap(), &all, 0.95, 5);
        assert_eq!(doubted.told, Conclusion::CannotBeTold, "{line}");
        let claim = &doubted.claims[0];
        assert!(claim.why.as_ref().unwrap().contains("differs from itself"), "{claim:?}");
        assert!(claim.seen.is_some(), "{claim:?}");
    }
}

/// Millions of turns of a loop prove no more than the seconds that they took.
#[test]
fn loops_are_no_wake_ups() {
    let blocks = |n: u32| (0..n).map(|round| block(round, &[(1, 50_000_000)], 400, 0, 3.0)).collect();
    let all = |n: u32| {
        let mut series = series(Arm::Tuned, blocks(n));
        series.setting.tool = Tool::Oslat;
        [series]
    };
    let judged = |text: &str, n: u32| judge(&text.parse().unwrap(), &all(n), 0.95, 5);
    let few = judged("latency rt-2 max < 10us oslat", 12);
    assert_eq!(few.told, Conclusion::CannotBeTold);
    let why = few.claims[0].why.as_ref().unwrap();
    assert!(why.starts_with("in 120 s nothing was late; ") && why.contains("; 179 s more"), "{why}");
    assert_eq!(judged("latency rt-2 max < 10us oslat", 30).told, Conclusion::Holds);
    assert_eq!(judged("latency rt-2 max < 10us oslat except 1e-5", 72).told, Conclusion::CannotBeTold);
    assert_eq!(judged("latency rt-2 max < 10us oslat except 1e-2", 12).told, Conclusion::CannotBeTold);
    assert_eq!(judged("latency rt-2 max < 10us oslat except 1e-2", 30).told, Conclusion::Holds);
    assert_eq!(judged("latency rt-2 max < 3us oslat", 30).told, Conclusion::DoesNotHold);
    let share = judged("latency rt-2 p99 < 10us oslat", 30);
    assert_eq!(share.told, Conclusion::CannotBeTold);
    assert!(share.claims[0].why.as_ref().unwrap().contains("oslat counts no wake-ups"), "{share:?}");
}

#[test]
fn too_few_blocks_make_no_ratio() {
    let found =
        compare(&drawn(Arm::Tuned, 10, 5, 1), &drawn(Arm::Untuned, 20, 5, 2), None, Statistic::P99, 0.95, 1);
    assert!(found.ratio.is_none() && found.why.unwrap().contains("6 pairs"));
    let zero = series(Arm::Tuned, (0..8).map(|round| block(round, &[(0, 5000)], 400, 0, 0.0)).collect());
    let found = compare(&zero, &drawn(Arm::Untuned, 20, 8, 2), None, Statistic::P50, 0.95, 1);
    assert!(found.ratio.is_none() && found.why.unwrap().contains("below one microsecond"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_summary_is_in_order_and_needs_no_order_of_its_input(
        counts in prop::collection::vec(prop::collection::btree_map(0u32..300, 1u64..5000, 1..20), 1..20),
        over in 0u64..3, seed in any::<u64>(),
    ) {
        let blocks: Vec<Block> = counts.iter().enumerate().map(|(round, counts)| {
            let counts: Vec<(u32, u64)> = counts.iter().map(|(bin, count)| (*bin, *count)).collect();
            block(round as u32, &counts, 300, over, if over > 0 { 400.0 } else { f64::from(counts.last().unwrap().0) })
        }).collect();
        let summary = summarise(&blocks, 0.95, seed).unwrap().unwrap();
        let values: Vec<f64> = (summary.quantiles.iter())
            .filter(|quantile| quantile.statistic.beyond().is_some())
            .filter_map(|quantile| quantile.value.map(|value| value.value()).or(quantile.alone))
            .collect();
        prop_assert!(values.is_sorted());
        prop_assert!(values.last().is_none_or(|last| *last <= summary.max.unwrap()));
        for quantile in &summary.quantiles {
            prop_assert!(quantile.value.is_some() || quantile.why.is_some());
        }
        // The percentile itself, by counting.
        if let Some(p50) = summary.quantile(Statistic::P50).and_then(|q| q.value.map(|v| v.value()).or(q.alone)) {
            let all: Vec<u64> = blocks.iter().flat_map(|block| block.counts.bins()).filter(|(bin, _)| f64::from(*bin) > p50).map(|(_, n)| n).collect();
            let beyond = all.iter().sum::<u64>() + blocks.iter().map(|block| block.counts.over()).sum::<u64>();
            prop_assert!(beyond * 2 <= summary.n);
        }
        let mut turned = blocks;
        turned.reverse();
        let again = summarise(&turned, 0.95, seed).unwrap().unwrap();
        prop_assert_eq!((again.n, again.max, again.bound), (summary.n, summary.max, summary.bound));
    }

    #[test]
    fn more_wake_ups_make_a_bound_tighter_and_more_late_ones_never_prove_it(
        n in 1u64..10_000_000, more in 1u64..1000, late in 0u64..50,
    ) {
        prop_assert!(rule_of_three(n + more, 0.95) < rule_of_three(n, 0.95));
        if test(n, late, 1e-4, 0.95, 1.0) == Conclusion::DoesNotHold {
            prop_assert_ne!(test(n, late + 1, 1e-4, 0.95, 1.0), Conclusion::Holds);
        }
        if test(n, late + 1, 1e-4, 0.95, 1.0) == Conclusion::Holds {
            prop_assert_eq!(test(n, late, 1e-4, 0.95, 1.0), Conclusion::Holds);
        }
    }
}
