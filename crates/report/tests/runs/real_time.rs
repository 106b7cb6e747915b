//! Runs that measured latencies of wake-ups, made up: the same ones each time. No figure here was measured anywhere.

use std::collections::BTreeMap;

use penstock_model::{
    audit::{Audit, AuditOutcome, Currency, Layer, LeftOut, Price, Row, Score, Unobservable},
    measurement::{
        Claim, Conclusion, EndKind, Estimate, ExpectationResult,
        latency::{
            Arm, Bins, Block, Comparison, Latency, Load, Power, Quantile, Series, Setting, Statistic,
            Stopped, Summary, TailBound, Tool, ToolVersion,
        },
    },
    verdict::Vantage,
};
use penstock_report::{Audits, Evidence};

use super::measured::estimate;

/// Numbers that look drawn (xorshift64*), the same each time.
struct Draw(u64);

impl Draw {
    fn part(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }
}

pub fn setting(place: &str, kind: EndKind, loaded: bool, arm: Arm) -> Setting {
    let place = match place {
        "host" => Vantage::Host,
        guest => Vantage::Guest(guest.parse().unwrap()),
    };
    let load = if loaded {
        Load::Hackbench { place: Vantage::Host, cpus: "0-1".parse().unwrap(), groups: 8 }
    } else {
        Load::Idle
    };
    Setting { place, kind, cpu: 2, ordinary: false, tool: Tool::Cyclictest, load, arm, power: Power::Held }
}

/// How such a thing wakes: usually after so many microseconds, and how heavy its tail is.
struct Shape {
    usual: f64,
    tail: f64,
    /// How likely a block has a storm.
    storm: f64,
}

fn shape(setting: &Setting) -> Shape {
    let (usual, tail) = match setting.kind {
        EndKind::Host => (3.0, 0.16),
        EndKind::Container => (3.3, 0.17),
        EndKind::Vm => (7.0, 0.22),
    };
    let loaded = setting.load.is_loaded();
    match (setting.arm, loaded) {
        (Arm::Untuned, true) => Shape { usual: usual * 3.0, tail: 0.5, storm: 0.3 },
        (Arm::Untuned, false) => Shape { usual: usual * 1.5, tail: 0.36, storm: 0.05 },
        (_, true) => Shape { usual: usual * 1.25, tail: tail * 1.2, storm: 0.02 },
        (_, false) => Shape { usual, tail, storm: 0.0 },
    }
}

/// A block of `cycles` wake-ups: the counts follow the shape, so that a hundred million cost no more than a hundred.
fn block(
    draw: &mut Draw,
    shape: &Shape,
    round: u32,
    start: f64,
    seconds: f64,
    cycles: u64,
    limit: u32,
) -> Block {
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    let (mut left, mut over, mut max) = (cycles, 0u64, 0.0f64);
    let storm = if draw.part() < shape.storm { 6.0 + 30.0 * draw.part() } else { 1.0 };
    let mut share = 0.6;
    let mut at = shape.usual;
    while left > 0 {
        let some = ((left as f64 * share).round() as u64).clamp(1, left);
        let latency = if some < 4 { at * (1.0 + (storm - 1.0) * draw.part()) } else { at }
            * (0.97 + 0.06 * draw.part());
        max = max.max(latency);
        match latency as u32 {
            bin if bin < limit => *counts.entry(bin).or_default() += some,
            _ => over += some,
        }
        left -= some;
        at *= 1.0 + shape.tail * (0.6 + 0.8 * draw.part());
        share = 0.45 + 0.2 * draw.part();
    }
    let mean = counts.iter().map(|(bin, count)| f64::from(*bin) * *count as f64).sum::<f64>() / cycles as f64;
    let min = counts.keys().next().map_or(max, |bin| f64::from(*bin));
    Block {
        round,
        start,
        seconds,
        counts: Bins::new(counts, limit, cycles).unwrap(),
        min: Some(min.floor()),
        mean: Some((mean * 100.0).round() / 100.0),
        max: Some(max.floor().max(min.floor())),
        spikes: Some(over + u64::from(max >= 100.0 && over == 0)),
        raw: Some(format!("raw/latency-{round:04}.json")),
        failed: None,
    }
}

/// What the blocks add up to; the intervals are made up, a tenth to each side.
fn summary(blocks: &[Block]) -> Option<Summary> {
    let counted: Vec<&Block> = blocks.iter().filter(|block| block.counts()).collect();
    let mut all = Bins::default();
    counted.iter().for_each(|block| all.merge(&block.counts).unwrap());
    let n = all.total();
    if n == 0 {
        return None;
    }
    let told = |value: f64| estimate(value, (value * 0.9).floor(), (value * 1.1).ceil());
    let percentiles = [Statistic::P50, Statistic::P90, Statistic::P99, Statistic::P999, Statistic::P9999];
    let mut quantiles: Vec<Quantile> = (percentiles.into_iter())
        .map(|statistic| {
            let beyond = statistic.beyond().unwrap();
            let least = (10.0 / beyond) as u64;
            let ranked = all.ranked(n - (n as f64 * beyond) as u64).filter(|_| n >= least);
            let why = match ranked {
                Some(_) if counted.len() < 6 => Some("an interval takes 6 blocks".to_owned()),
                Some(_) => None,
                None if n < least => Some(format!("it takes {least} wake-ups, and there are {n}")),
                None => Some(format!("it is longer than the histogram, which ends at {} us", all.limit())),
            };
            let value = ranked.filter(|_| counted.len() >= 6).map(|bin| told(bin.into()));
            Quantile { statistic, value, alone: ranked.filter(|_| value.is_none()).map(f64::from), why }
        })
        .collect();
    let mut maxima: Vec<f64> = counted.iter().filter_map(|block| block.max).collect();
    maxima.sort_by(f64::total_cmp);
    let (middle, max) = (maxima[maxima.len() / 2], maxima[maxima.len() - 1]);
    quantiles.push(Quantile {
        statistic: Statistic::BlockMax,
        value: (counted.len() >= 6).then(|| told(middle)),
        alone: (counted.len() < 6).then_some(middle),
        why: (counted.len() < 6).then(|| "an interval takes 6 blocks".to_owned()),
    });
    let spikes: u64 = counted.iter().filter_map(|block| block.spikes).sum();
    Some(Summary {
        n,
        blocks: counted.len() as u32,
        seconds: counted.iter().map(|block| block.seconds).sum(),
        min: counted.iter().filter_map(|block| block.min).min_by(f64::total_cmp),
        mean: counted[0].mean,
        max: Some(max),
        quantiles,
        bound: Some(TailBound {
            below: max + 1.0,
            confidence: 0.95,
            wake_ups: 2.995_732 / n as f64,
            blocks: (2.995_732 / counted.len() as f64).min(1.0),
        }),
        spikes: Some(spikes),
        spike_blocks: Some(counted.iter().filter(|block| block.spikes.is_some_and(|s| s > 0)).count() as u32),
    })
}

/// All these settings in turn, so many rounds, so many wake-ups a block.
fn series(settings: Vec<Setting>, rounds: u32, seconds: f64, cycles: u64, limit: u32) -> Vec<Series> {
    let mut draw = Draw(0x5eed_0f1a_7e9c_1e50);
    let mut all: Vec<Series> = settings.into_iter().map(Series::new).collect();
    let mut start = 0.0;
    for round in 0..rounds {
        // Loads last for half of the rounds each, as a run would have them.
        for one in &mut all {
            let of_shape = shape(&one.setting);
            one.blocks.push(block(&mut draw, &of_shape, round, start, seconds, cycles, limit));
            start += seconds + 0.4;
        }
    }
    for one in &mut all {
        one.summary = summary(&one.blocks);
    }
    all
}

fn compared(series: &[Series], base: &Setting, other: &Setting, statistic: Statistic) -> Option<Comparison> {
    let find = |setting: &Setting| series.iter().find(|series| series.setting == *setting);
    let value = |series: &Series| {
        let summary = series.summary.as_ref()?;
        match statistic {
            Statistic::Max => summary.max,
            other => summary.quantile(other)?.value.map(|value| value.value()),
        }
    };
    let (base, other) = (find(base)?, find(other)?);
    let ratio = value(other)? / value(base)?;
    Some(Comparison {
        base: base.id.clone(),
        other: other.id.clone(),
        statistic,
        ratio: Some(estimate(ratio, ratio * 0.82, ratio * 1.21)),
        null: Some(estimate(1.02, 0.93, 1.11)),
        pairs: base.blocks.len() as u32,
        why: None,
    })
}

fn row(rule: &str, layer: Layer, subject: &str, verdict: AuditOutcome, texts: [&str; 4]) -> Row {
    let [read, wanted, why, change] = texts.map(str::to_owned);
    Row {
        rule: rule.to_owned(),
        layer,
        subject: subject.to_owned(),
        verdict,
        read,
        wanted,
        why,
        price: None,
        ways: Vec::new(),
        change: (!change.is_empty()).then_some(change),
        source: "Documentation/admin-guide/cpu-isolation.rst".to_owned(),
        needs_root: false,
    }
}

/// An audit with one of each outcome.
pub fn audit(late_interrupt: bool) -> Audit {
    let mut rows = vec![
        row(
            "rt-kernel",
            Layer::Kernel,
            "machine",
            AuditOutcome::Pass,
            ["1", "1", "without it interrupts run for as long as they like", ""],
        ),
        row(
            "irqs-on-isolated",
            Layer::Interrupts,
            "CPUs 2-3",
            if late_interrupt { AuditOutcome::Conflict } else { AuditOutcome::Pass },
            [
                "irq 24 (nvme0q1) goes to CPU 2, which is kept free",
                "no interrupt but those of the guest's own functions",
                "isolation takes threads away and leaves interrupts, so that each of them delays the guest",
                "echo 0-1 > /proc/irq/24/smp_affinity_list",
            ],
        ),
        row(
            "fair-server",
            Layer::Scheduling,
            "CPU 2",
            AuditOutcome::Fail,
            [
                "50 ms of each second",
                "0 on a CPU of real-time threads, from Linux 6.12 on",
                "the fair server gives ordinary threads 5 % of the CPU, whatever sched_rt_runtime_us says",
                "realtime: {throttling: off}",
            ],
        ),
        row(
            "smi-count",
            Layer::Firmware,
            "machine",
            AuditOutcome::Unknown,
            [
                "reading MSR 0x34 takes root",
                "no system management interrupt while it was watched",
                "firmware takes all CPUs away",
                "",
            ],
        ),
        row(
            "timer-migration",
            Layer::Clock,
            "machine",
            AuditOutcome::Recorded,
            ["1", "measure it", "profiles disagree", ""],
        ),
    ];
    rows[2].price = Some(Price {
        currency: Currency::Safety,
        what: "a real-time thread that never sleeps hangs the CPU's ordinary threads for ever".to_owned(),
    });
    rows[3].needs_root = true;
    Audit {
        kernel: "6.12.57-rt".to_owned(),
        cpu: "made up".to_owned(),
        cpus: "2-3".parse().unwrap(),
        score: Score::of(&rows),
        rows,
        left_out: vec![LeftOut {
            rule: "cache-ways".to_owned(),
            why: "the CPU cannot share out its cache".to_owned(),
        }],
        blind: vec![Unobservable {
            what: "USB legacy emulation".to_owned(),
            why: "it makes system management interrupts".to_owned(),
            instead: "look into the firmware's set-up".to_owned(),
        }],
    }
}

fn frame(emulated: bool) -> Evidence {
    let mut evidence = super::small();
    evidence.machine.name = "rt-box".to_owned();
    evidence.machine.emulated = emulated;
    evidence.verdicts = Default::default();
    evidence.steps.clear();
    evidence.serial_log = None;
    evidence.run.command =
        ["penstock", "measure", "examples/realtime.yaml", "--latency"].map(str::to_owned).to_vec();
    evidence
}

fn known(emulated: bool) -> Latency {
    let tool = |tool: &str, place: &str, version: &str| ToolVersion {
        tool: tool.to_owned(),
        place: place.to_owned(),
        version: Some(version.to_owned()),
    };
    Latency {
        emulated,
        seed: 11,
        started: "2026-11-21T19:41:07Z".to_owned(),
        tools: vec![tool("cyclictest", "host", "V 2.70"), tool("hackbench", "host", "2.70")],
        stopped: Some(Stopped::TimeUp),
        notes: vec!["made up for the tests of this page: nothing here was measured".to_owned()],
        ..Latency::default()
    }
}

fn claim(series: &Series, told: Conclusion, late: u64, why: Option<&str>) -> Claim {
    let n = series.summary.as_ref().map_or(0, |summary| summary.n);
    let why = why.map(str::to_owned);
    Claim { n, late: Some(late), max: series.max(), why, ..Claim::new(&series.id, told) }
}

/// Host, container and VM, tuned and not, without load and with it; an audit before and after.
pub fn real_time(emulated: bool) -> Evidence {
    let mut settings = Vec::new();
    for loaded in [false, true] {
        settings.push(setting("host", EndKind::Host, loaded, Arm::Tuned));
        settings.push(setting("rt-2", EndKind::Container, loaded, Arm::Tuned));
        settings.push(setting("rt-vm", EndKind::Vm, loaded, Arm::Tuned));
        settings.push(setting("rt-2", EndKind::Container, loaded, Arm::Untuned));
        settings.push(setting("rt-2", EndKind::Container, loaded, Arm::Null));
    }
    let mut all = series(settings, 24, 10.0, 50_000, 400);
    let oslat = Setting { tool: Tool::Oslat, ..setting("rt-2", EndKind::Container, true, Arm::Tuned) };
    let mut missing = Series::new(oslat);
    missing.missing = Some("oslat is not in rt-2: install rt-tests there".to_owned());
    all.push(missing);
    let [tuned, untuned] =
        [Arm::Tuned, Arm::Untuned].map(|arm| setting("rt-2", EndKind::Container, true, arm));
    let (host, vm) =
        (setting("host", EndKind::Host, true, Arm::Tuned), setting("rt-vm", EndKind::Vm, true, Arm::Tuned));
    let pairs = [
        (&tuned, &untuned, Statistic::P9999),
        (&tuned, &untuned, Statistic::BlockMax),
        (&tuned, &untuned, Statistic::Max),
        (&host, &tuned, Statistic::P9999),
        (&host, &vm, Statistic::P9999),
    ];
    let mut comparisons: Vec<Comparison> = pairs
        .into_iter()
        .filter_map(|(base, other, statistic)| compared(&all, base, other, statistic))
        .collect();
    if let Some(last) = comparisons.last_mut() {
        last.null = Some(estimate(1.4, 1.2, 1.6));
    }
    let of = |setting: &Setting| all.iter().find(|series| series.setting == *setting).unwrap();
    let ratio = Claim {
        against: Some(of(&tuned).id.clone()),
        seen: Estimate::new(8.1, 6.6, 9.8, 0.95),
        ..Claim::new(&of(&untuned).id, Conclusion::CannotBeTold)
    };
    let rulings = vec![
        ExpectationResult::new(
            "latency rt-2 max < 400us loaded".parse().unwrap(),
            vec![claim(of(&tuned), Conclusion::Holds, 0, None)],
        ),
        ExpectationResult::new(
            "latency rt-vm max < 20us loaded".parse().unwrap(),
            vec![claim(of(&vm), Conclusion::DoesNotHold, 1_234, None)],
        ),
        ExpectationResult::new(
            "latency rt-2 untuned / tuned p99.99 >= 7x loaded".parse().unwrap(),
            vec![ratio],
        ),
    ];
    let mut evidence = frame(emulated);
    evidence.audits = Some(Audits { before: Some(audit(false)), after: Some(audit(true)) });
    evidence.latency =
        Some(Latency { seconds: 2496.0, series: all, comparisons, rulings, ..known(emulated) });
    evidence.run.exit = Some(1);
    evidence
}

/// One block of one wake-up, a series that failed, and nothing else.
pub fn tiny() -> Evidence {
    let mut all = series(vec![setting("host", EndKind::Host, false, Arm::Tuned)], 1, 0.1, 1, 400);
    let mut failed = Series::new(setting("rt-2", EndKind::Container, false, Arm::Tuned));
    failed.blocks.push(Block { failed: Some("cyclictest was killed".to_owned()), ..Block::default() });
    all.push(failed);
    let mut evidence = frame(false);
    evidence.latency =
        Some(Latency { seconds: 0.1, series: all, stopped: Some(Stopped::Interrupted), ..known(false) });
    evidence
}

/// A hundred million wake-ups of each of two arms, in blocks of a minute, with an overflow.
pub fn huge() -> Evidence {
    let settings = [Arm::Tuned, Arm::Untuned].map(|arm| setting("rt-2", EndKind::Container, true, arm));
    let all = series(settings.to_vec(), 720, 60.0, 150_000, 200);
    let mut evidence = frame(false);
    evidence.latency = Some(Latency { seconds: 86_976.0, series: all, ..known(false) });
    evidence
}
