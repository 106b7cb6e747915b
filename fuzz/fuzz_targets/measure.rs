//! Any bytes as the output of netperf, iperf3, fio, the latency probe, cyclictest, oslat, timerlat, hwlatdetect and hackbench,
//! as a datagram of the probe, as an `expect:` line, as recorded samples and as measurements.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_measure::{
    journal::{Journal, JsonLines, read_records, whole},
    latency::{
        command::nameless,
        parse::{LatencyOutput, cyclictest, hackbench, hwlatdetect, oslat, timerlat},
    },
    output::OutputError,
    parse::{Reading, fio, iperf3, netperf, probe},
    probe::packet::{LEAST, Packet},
};
use penstock_model::measurement::{Direction, Expectation, Histogram, Load, Measurements, Mix, Protocol};

/// What is told is a number, and nothing that was lost is told as a 0.
fn check(read: Result<Reading, OutputError>) {
    let Ok(reading) = read else { return };
    assert!(!reading.values.is_empty());
    assert!(reading.values.values().all(|value| value.is_finite() && *value >= 0.0));
    if let Some(throughput) = reading.values.get(&penstock_model::measurement::Metric::Throughput) {
        assert!(*throughput > 0.0);
    }
}

/// A histogram has something in it, and its overflow is not lost.
fn check_latencies(told: Option<LatencyOutput>) {
    let Some(told) = told else { return };
    assert!(told.counts.total() > 0 && told.min.is_finite() && told.max.is_finite());
    assert!(told.counts.over() == 0 || told.max >= f64::from(told.counts.limit()));
}

fuzz_target!(|bytes: &[u8]| {
    for limit in [0, 32, 400, 100_000] {
        check_latencies(cyclictest::json(bytes, limit).ok());
        check_latencies(oslat::json(bytes, limit).ok());
        let both = timerlat::histogram(bytes, limit).ok();
        check_latencies(both.as_ref().map(|both| both.interrupt.clone()));
        check_latencies(both.map(|both| both.thread));
    }
    let _ = (hackbench::times(bytes), hwlatdetect::summary(bytes));
    nameless(&String::from_utf8_lossy(bytes));
    for protocol in Protocol::ALL {
        check(netperf::key_values(bytes, protocol));
        check(netperf::comma_separated(bytes, &netperf::SELECTORS, protocol));
    }
    for protocol in [Protocol::UdpStream, Protocol::TcpStream] {
        for direction in [Direction::Forward, Direction::Reverse] {
            check(iperf3::json(bytes, protocol, direction));
        }
    }
    for mix in [Mix::Read, Mix::Write, Mix::Mixed] {
        check(fio::json(bytes, mix));
    }
    for load in [Load::Closed, Load::Open { rate: 500 }] {
        check(probe::json(bytes, load, 128));
    }
    if let Some(packet) = Packet::read(bytes) {
        let mut written = [0; LEAST as usize];
        packet.write(&mut written);
        assert_eq!(written, bytes[..LEAST as usize]);
    }
    if let Ok(records) = read_records(bytes) {
        // What was read is written and read as the same, with a line that was cut off behind it.
        let mut lines = JsonLines(Vec::new());
        records.iter().for_each(|record| lines.append(record).expect("memory takes any line"));
        lines.0.extend_from_slice(b"{\"cell\":");
        assert_eq!(read_records(&lines.0).map(|records| records.len()), Ok(records.len()));
    }
    assert!(bytes.starts_with(whole(bytes)));
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match text.parse::<Expectation>() {
        Ok(read) => assert_eq!(read.to_string().parse::<Expectation>().as_ref(), Ok(&read)),
        Err(error) => assert!(text.get(error.at()).is_some()),
    }
    let _ = serde_json::from_str::<Measurements>(text);
    if let Ok(histogram) = serde_json::from_str::<Histogram>(text) {
        let counted: u64 = histogram.buckets().map(|(_, _, count)| count).sum();
        assert_eq!(counted, histogram.total());
        assert_eq!(histogram.longer_than().count(), histogram.buckets().count());
    }
});
