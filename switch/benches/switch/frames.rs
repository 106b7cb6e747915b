//! Frames of one size between two ports: rows `64`, `1518` and `testpmd`.

use serde_json::json;

use super::{
    choice::Choice,
    copying,
    format::Format,
    lane::{GuestKind, GuestLoad, Lane, Sample},
    report::{Bar, Report, Row, Spread},
    supervisor::Workshop,
    switches::Kind,
};

/// So many pairs are run with the same processes; then new ones have their memory elsewhere.
const TOGETHER: usize = 3;

/// A size, and what is wanted there.
struct Size {
    row: &'static str,
    bytes: usize,
    /// At least so many times the peer's frames, with guests that neither waits for.
    bar: f64,
    /// And with testpmd's.
    testpmd_bar: f64,
    /// At least this part of the copy limit.
    limit: Option<f64>,
}

const SIZES: [Size; 2] = [
    Size { row: "64", bytes: 64, bar: 2.0, testpmd_bar: 1.5, limit: None },
    Size { row: "1518", bytes: 1518, bar: 2.0, testpmd_bar: 1.7, limit: Some(0.9) },
];

/// A run of each, right after one another.
struct Pair {
    ours: Sample,
    peer: Sample,
    /// Copies in a second.
    copies: Option<f64>,
}

/// Measures them with every format of rings.
pub fn measure(choice: &Choice, workshop: &Workshop, report: &mut Report) {
    let prepared: Vec<&Size> = SIZES.iter().filter(|size| choice.wants(size.row)).collect();
    let all = if choice.wants("testpmd") { SIZES.iter().collect() } else { Vec::new() };
    for (guests, sizes) in [(GuestKind::Prepared, prepared), (GuestKind::Testpmd, all)] {
        if sizes.is_empty() {
            continue;
        }
        for format in Format::ALL {
            measure_with(guests, format, &sizes, choice.pairs, workshop, report);
        }
    }
}

fn measure_with(
    guests: GuestKind,
    format: Format,
    sizes: &[&Size],
    wanted: usize,
    workshop: &Workshop,
    report: &mut Report,
) {
    let mut pairs: Vec<Vec<Pair>> = sizes.iter().map(|_| Vec::new()).collect();
    for done in (0..wanted).step_by(TOGETHER) {
        let count = TOGETHER.min(wanted - done);
        report.attempt(&format!("{} ring", format.name()), workshop, |report| {
            run(sizes, (guests, format), count, workshop, report).map(|new| {
                pairs.iter_mut().zip(new).for_each(|(pairs, new)| pairs.extend(new));
            })
        });
    }
    for (size, pairs) in sizes.iter().zip(&pairs).filter(|(_, pairs)| !pairs.is_empty()) {
        tell(size, guests, format, pairs, report);
    }
}

/// Some pairs of each size with the same processes.
fn run(
    sizes: &[&Size],
    (guests, format): (GuestKind, Format),
    count: usize,
    workshop: &Workshop,
    report: &Report,
) -> Result<Vec<Vec<Pair>>, String> {
    let mut pairs: Vec<Vec<Pair>> = sizes.iter().map(|_| Vec::new()).collect();
    let mut ours = Lane::start(Kind::Ours { ports: 2 }, guests, format, workshop)?;
    let mut peer = Lane::start(Kind::Peer { segments: false }, guests, format, workshop)?;
    for turn in 0..count {
        for (size, pairs) in sizes.iter().zip(pairs.iter_mut()) {
            let ours_now =
                ours.run(size.bytes, report.clock).map_err(|failed| format!("penstock-switch: {failed}"))?;
            let peer_now =
                peer.run(size.bytes, report.clock).map_err(|failed| format!("Open vSwitch: {failed}"))?;
            let copies = size.limit.map(|_| copying::limit(size.bytes)).transpose()?;
            report.progress(&format!(
                "{} B, {} ring, {}: {:.2} against {:.2} Mpps",
                size.bytes,
                format.name(),
                turn + 1,
                ours_now.rate() / 1e6,
                peer_now.rate() / 1e6
            ));
            pairs.push(Pair { ours: ours_now, peer: peer_now, copies });
        }
    }
    Ok(pairs)
}

fn tell(size: &Size, guests: GuestKind, format: Format, pairs: &[Pair], report: &mut Report) {
    let of_whom = if guests == GuestKind::Testpmd { ", testpmd" } else { "" };
    let what = format!("{} B, {} ring{of_whom}", size.bytes, format.name());
    let of = |part: &dyn Fn(&Pair) -> f64| Spread::of(pairs.iter().map(part));
    let clock = report.clock.0;
    let (ours, peer) = (of(&|pair| pair.ours.rate() / 1e6), of(&|pair| pair.peer.rate() / 1e6));
    let cycles = |sample: &Sample| clock / sample.rate();
    let samples: Vec<_> = pairs
        .iter()
        .map(|pair| json!({"ours": pair.ours, "peer": pair.peer, "copies_per_second": pair.copies}))
        .collect();
    let load = |part: fn(&Pair) -> &Sample| {
        GuestLoad::told(&pairs.iter().map(|pair| part(pair).guests).collect::<Vec<_>>())
    };
    report.add(Row {
        what: what.clone(),
        ours: format!(
            "{:.2} Mpps, {:.0} cycles; {}",
            ours.median,
            of(&|pair| cycles(&pair.ours)).median,
            load(|pair| &pair.ours)
        ),
        other: format!(
            "OVS {:.2} Mpps, {:.0} cycles; {}",
            peer.median,
            of(&|pair| cycles(&pair.peer)).median,
            load(|pair| &pair.peer)
        ),
        value: of(&|pair| pair.ours.rate() / pair.peer.rate()),
        bar: Bar::AtLeast(if guests == GuestKind::Testpmd { size.testpmd_bar } else { size.bar }),
        samples: samples.into(),
    });
    if let Some(bar) = size.limit {
        let copies = of(&|pair| pair.copies.unwrap_or(f64::NAN) / 1e6);
        report.add(Row {
            what: format!("{what}, of the copy limit"),
            ours: format!("{:.1} Gbit/s", ours.median * size.bytes as f64 * 8.0 / 1e3),
            other: format!("one copy each: {:.2} M/s", copies.median),
            value: of(&|pair| pair.ours.rate() / pair.copies.unwrap_or(f64::NAN)),
            bar: Bar::AtLeast(bar),
            samples: json!([]),
        });
    }
}
