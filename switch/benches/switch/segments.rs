//! Segments of TCP of 64 KiB between two ports: row `segments`. A guest whose switch does not take them cuts them itself.

use std::time::Duration;

use serde_json::json;

use super::{
    choice::Choice,
    flow::{Flow, Passed, Shape},
    front::{BUFFER, HEADER},
    packets,
    report::{Bar, Report, Row, Spread},
    supervisor::Workshop,
    switches::Kind,
};

/// For so long.
const RUN: Duration = Duration::from_millis(500);
/// What a frame carries.
const PIECE: usize = 1460;
/// What a segment carries: as many as go into a datagram of 64 KiB.
const WHOLE: usize = PIECE * 44;
/// Ethernet, IPv4 and TCP.
const HEADERS: usize = 54;
/// Protocol number of TCP.
const TCP: u8 = 6;

/// Measures them against a peer that passes them on, and against one that does not.
pub fn measure(choice: &Choice, workshop: &Workshop, report: &mut Report) {
    if choice.wants("segments") {
        report.attempt("segments", workshop, |report| compare(choice.pairs, workshop, report));
    }
}

/// A frame of TCP with so much in it; more than a piece is to be cut on the way.
fn shape(payload: usize) -> Shape {
    let mut header = [0; HEADER];
    let segment = payload > PIECE;
    if segment {
        // VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_TCPV4, and where the checksum begins and goes.
        header[..2].copy_from_slice(&[1, 1]);
        for (at, value) in [(2, HEADERS), (4, PIECE), (6, 34), (8, 16)] {
            header[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
        }
    }
    let below = packets::headers(0, 1, TCP, payload + 20);
    let mut tcp = [0_u8; 20];
    // From and to port 5201; no options, an acknowledgement.
    tcp[..4].copy_from_slice(&[0x14, 0x51, 0x14, 0x51]);
    tcp[12..16].copy_from_slice(&[0x50, 0x10, 0xff, 0xff]);
    let pseudo = [&below[26..34], &[0, TCP], &(payload as u16 + 20).to_be_bytes()].concat();
    tcp[16..18].copy_from_slice(&packets::sum(&pseudo).to_be_bytes());
    let beginning = [&header[..], &below, &tcp].concat();
    let length = HEADER + HEADERS + payload;
    Shape { beginning, length, buffers: if segment { length.div_ceil(BUFFER) as u16 } else { 1 } }
}

/// Gbit of payload in a second of the switch's CPU.
fn rate(passed: &Passed, payload: usize) -> f64 {
    let part = payload as f64 / (payload + HEADERS + HEADER) as f64;
    passed.bytes as f64 * part * 8.0 / 1e9 / passed.core_seconds
}

fn compare(pairs: usize, workshop: &Workshop, report: &mut Report) -> Result<(), String> {
    let clock = report.clock;
    let mut ours = Flow::start(Kind::Ours { ports: 2 }, shape(WHOLE), workshop)?;
    let mut whole = Flow::start(Kind::Peer { segments: true }, shape(WHOLE), workshop)?;
    let mut cut = Flow::start(Kind::Peer { segments: false }, shape(PIECE), workshop)?;
    let mut samples = Vec::new();
    for turn in 0..pairs {
        let run = |flow: &mut Flow, payload| Ok::<_, String>(rate(&flow.run(RUN, None, clock)?, payload));
        let sample = [run(&mut ours, WHOLE)?, run(&mut whole, WHOLE)?, run(&mut cut, PIECE)?];
        let [first, second, third] = sample;
        report.progress(&format!(
            "segments, {}: {first:.1} against {second:.1} and {third:.1} Gbit/s",
            turn + 1
        ));
        samples.push(sample);
    }
    let of = |part: &dyn Fn(&[f64; 3]) -> f64| Spread::of(samples.iter().map(part));
    for (index, what) in [(1, "TSO on"), (2, "TSO off: its guests cut them")] {
        report.add(Row {
            what: format!("64 KiB segments, split ring, {what}"),
            ours: format!("{:.1} Gbit/s", of(&|sample| sample[0]).median),
            other: format!("OVS {:.1} Gbit/s", of(&|sample| sample[index]).median),
            value: of(&|sample| sample[0] / sample[index]),
            bar: Bar::AtLeast(2.0),
            samples: json!(
                samples
                    .iter()
                    .map(|sample| json!({"ours": sample[0], "peer": sample[index]}))
                    .collect::<Vec<_>>()
            ),
        });
    }
    Ok(())
}
