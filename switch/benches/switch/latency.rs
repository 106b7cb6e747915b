//! How long a frame is under way at half load: row `latency`.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::{
    choice::Choice,
    flow::{Flow, Passed, Shape},
    front::HEADER,
    packets::addresses,
    processes::Clock,
    report::{Bar, Report, Row, Spread},
    supervisor::Workshop,
    switches::Kind,
};

/// For so long as many frames as possible are sent, to find out what half of that is.
const FULL: Duration = Duration::from_millis(200);
/// For so long half as many.
const HALF: Duration = Duration::from_millis(500);

/// A run at half load: microseconds, and the part of the frames that did not come.
#[derive(Serialize)]
struct Sample {
    p50: f64,
    p99: f64,
    lost: f64,
}

/// Both with so many frames in a second.
#[derive(Serialize)]
struct Pair {
    rate: f64,
    ours: Sample,
    peer: Sample,
}

/// Measures it with split rings, in one direction, both switches with the same load: half of what the slower one passes on.
pub fn measure(choice: &Choice, workshop: &Workshop, report: &mut Report) {
    if choice.wants("latency") {
        report.attempt("latency", workshop, |report| compare(choice.pairs, workshop, report));
    }
}

fn shape() -> Shape {
    let header = [0; HEADER];
    // A local experiment's (IEEE 802).
    let kind = [0x88, 0xb5];
    let beginning = [&header[..], &addresses(0, 1), &kind, &[0; 50]].concat();
    Shape { length: beginning.len(), beginning, buffers: 1 }
}

fn compare(pairs: usize, workshop: &Workshop, report: &mut Report) -> Result<(), String> {
    let clock = report.clock;
    let mut ours = Flow::start(Kind::Ours { ports: 2 }, shape(), workshop)?;
    let mut peer = Flow::start(Kind::Peer { segments: false }, shape(), workshop)?;
    let full = |flow: &mut Flow| -> Result<f64, String> {
        let passed = flow.run(FULL, None, clock)?;
        Ok(passed.buffers as f64 / passed.seconds)
    };
    let mut samples = Vec::new();
    for turn in 0..pairs {
        // The machine is not as fast at all times.
        let rate = full(&mut ours)?.min(full(&mut peer)?) / 2.0;
        let pair = Pair {
            rate,
            ours: sample(ours.run(HALF, Some(rate), clock)?, clock)?,
            peer: sample(peer.run(HALF, Some(rate), clock)?, clock)?,
        };
        report.progress(&format!(
            "latency at {:.2} Mpps, {}: p99 {:.1} against {:.1} us",
            rate / 1e6,
            turn + 1,
            pair.ours.p99,
            pair.peer.p99
        ));
        samples.push(pair);
    }
    let of = |part: &dyn Fn(&Pair) -> f64| Spread::of(samples.iter().map(part));
    let told = |name: &str, which: fn(&Pair) -> &Sample| {
        let median = |part: fn(&Sample) -> f64| of(&|pair| part(which(pair))).median;
        let (p50, p99) = (median(|sample| sample.p50), median(|sample| sample.p99));
        let lost = median(|sample| sample.lost);
        let lost = if lost > 0.0 { format!(", {:.2} % lost", lost * 100.0) } else { String::new() };
        format!("{name}{p99:.1} us (median {p50:.1}){lost}")
    };
    let rate = of(&|pair| pair.rate / 1e6).median;
    report.add(Row {
        what: "99th percentile one-way latency, 64 B, split ring, at half of what is lossless".to_owned(),
        ours: format!("{}, at {rate:.2} Mpps", told("", |pair| &pair.ours)),
        other: told("OVS ", |pair| &pair.peer),
        value: of(&|pair| pair.ours.p99 / pair.peer.p99),
        bar: Bar::AtMost(1.0),
        samples: json!(samples),
    });
    Ok(())
}

fn sample(mut passed: Passed, clock: Clock) -> Result<Sample, String> {
    passed.delays.sort_unstable();
    let at = |part: f64| {
        let place = (passed.delays.len() as f64 * part) as usize;
        passed.delays.get(place).map(|cycles| f64::from(*cycles) / clock.0 * 1e6)
    };
    let few = || format!("only {} of {} frames came", passed.delays.len(), passed.sent);
    let lost = 1.0 - (passed.delays.len() as f64 / passed.sent as f64).min(1.0);
    Ok(Sample { p50: at(0.5).ok_or_else(few)?, p99: at(0.99).ok_or_else(few)?, lost })
}
