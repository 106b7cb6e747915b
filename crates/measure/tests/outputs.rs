//! Recorded outputs of the real tools are read; every beginning of one, and every odd one, is refused.
#![allow(clippy::disallowed_methods)]

use penstock_measure::{
    output::OutputError,
    parse::{Reading, fio, iperf3, netperf},
};
use penstock_model::measurement::{Direction, Metric, Mix, Protocol};
use proptest::prelude::*;

fn recorded(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/outputs/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn near(reading: &Reading, metric: Metric, value: f64) {
    let told = reading.values[&metric];
    assert!((told - value).abs() <= value * 1e-9, "{metric}: {told}, not {value}");
}

#[test]
fn netperf_tells_what_arrived_and_not_what_was_sent() {
    let udp = netperf::key_values(&recorded("netperf-2.7.1-udp-stream.txt"), Protocol::UdpStream).unwrap();
    near(&udp, Metric::Throughput, 1913.18e6);
    near(&udp, Metric::Sent, 1954.65e6);
    near(&udp, Metric::Loss, 1.0 - 1913.18 / 1954.65);
    near(&udp, Metric::LocalCpu, 81.08);
    assert!(!udp.values.contains_key(&Metric::P99), "the latency of a send call is none of the path");
    let tcp = netperf::key_values(&recorded("netperf-2.7.1-tcp-stream.txt"), Protocol::TcpStream).unwrap();
    near(&tcp, Metric::Throughput, 7723.40e6);
    assert!(!tcp.values.contains_key(&Metric::Loss));
    let back = netperf::key_values(&recorded("netperf-2.7.1-tcp-maerts.txt"), Protocol::TcpStream).unwrap();
    near(&back, Metric::Throughput, 21772.14e6);
    near(&back, Metric::Sent, 21776.46e6);
}

#[test]
fn netperf_tells_round_trips() {
    let udp = netperf::key_values(&recorded("netperf-2.7.1-udp-rr.txt"), Protocol::UdpRr).unwrap();
    near(&udp, Metric::Transactions, 35169.202);
    near(&udp, Metric::P50, 10.0);
    near(&udp, Metric::P99, 131.0);
    near(&udp, Metric::Max, 4196.0);
    assert!(netperf::key_values(&recorded("netperf-2.7.1-tcp-rr.txt"), Protocol::TcpRr).is_ok());
    let few = String::from_utf8(recorded("netperf-2.7.1-udp-rr.txt")).unwrap();
    let few = few.replace("TRANSACTION_RATE=35169.202", "TRANSACTION_RATE=500.000");
    let few = netperf::key_values(few.as_bytes(), Protocol::UdpRr).unwrap();
    assert!(!few.values.contains_key(&Metric::P99) && few.values.contains_key(&Metric::P90));
    assert_eq!(
        (few.withheld[0].metric, few.withheld[0].have, few.withheld[0].need),
        (Metric::P99, 500, 1000)
    );
}

#[test]
fn netperf_comma_separated_is_the_same() {
    let lines = String::from_utf8(recorded("netperf-2.7.1-udp-rr.txt")).unwrap();
    let values: Vec<(&str, &str)> = lines.lines().filter_map(|line| line.split_once('=')).collect();
    let (keys, fields): (Vec<&str>, Vec<&str>) = values.into_iter().unzip();
    let line = format!("OMNI Send|Recv TEST\n{}\n", fields.join(","));
    let read = netperf::comma_separated(line.as_bytes(), &keys, Protocol::UdpRr).unwrap();
    assert_eq!(read, netperf::key_values(lines.as_bytes(), Protocol::UdpRr).unwrap());
    let cut =
        netperf::comma_separated(&line.as_bytes()[..line.len() - 4], &keys, Protocol::UdpRr).unwrap_err();
    assert!(matches!(cut, OutputError::Malformed { .. }), "{cut}");
}

#[test]
fn netperf_refuses_what_is_not_what_was_asked_for() {
    let stream = String::from_utf8(recorded("netperf-2.7.1-udp-stream.txt")).unwrap();
    let read =
        |text: &str| netperf::key_values(text.as_bytes(), Protocol::UdpStream).unwrap_err().to_string();
    assert_eq!(read(""), "netperf printed nothing");
    assert_eq!(
        read("establish control: are you sure there is a netserver listening on 192.0.2.1 at port 12865?\n"),
        "netperf failed: establish control: are you sure there is a netserver listening on 192.0.2.1 at port 12865?"
    );
    assert_eq!(
        read(&stream.replace("10^6bits/s", "KBytes/s")),
        "netperf's output has THROUGHPUT_UNITS = KBytes/s, which cannot be"
    );
    assert_eq!(
        read(&stream.replace("REMOTE_RECV_THROUGHPUT=1913.18", "REMOTE_RECV_THROUGHPUT=-1.00")),
        "netperf's output has REMOTE_RECV_THROUGHPUT = -1.00, which cannot be"
    );
    assert_eq!(
        read(&stream.replace("REMOTE_RECV_THROUGHPUT=1913.18", "REMOTE_RECV_THROUGHPUT=0.00")),
        "netperf ran, but nothing arrived of the 1954650000 bit/s that were sent"
    );
    assert_eq!(
        read(&stream.replace("REMOTE_RECV_THROUGHPUT", "RECEIVED")),
        "netperf's output has no REMOTE_RECV_THROUGHPUT"
    );
    let other = netperf::key_values(stream.as_bytes(), Protocol::TcpStream).unwrap_err();
    assert_eq!(other.to_string(), "netperf's output has PROTOCOL = UDP, which cannot be");
}

#[test]
fn iperf3_tells_both_directions() {
    let (udp, tcp) = (Protocol::UdpStream, Protocol::TcpStream);
    let (there, back) = (Direction::Forward, Direction::Reverse);
    for (name, protocol, direction, throughput, loss) in [
        ("iperf3-3.18-tcp", tcp, there, 27948749615.95091, None),
        ("iperf3-3.18-tcp-reverse", tcp, back, 29600007575.886223, None),
        ("iperf3-3.18-udp", udp, there, 1271157054.163179, Some(79119.0 / 234650.0)),
        ("iperf3-3.18-udp-reverse", udp, back, 2304621220.794608, Some(9167.0 / 290766.0)),
        ("iperf3-3.12-tcp", tcp, there, 25301234118.301426, None),
        ("iperf3-3.12-udp", udp, there, 830257153.4559664, Some(147419.0 / 248780.0)),
        ("iperf3-3.12-udp-reverse", udp, back, 944315164.8483515, Some(91912.0 / 207186.0)),
    ] {
        let read = iperf3::json(&recorded(&format!("{name}.json")), protocol, direction).unwrap();
        near(&read, Metric::Throughput, throughput);
        assert_eq!(read.values.contains_key(&Metric::Loss), loss.is_some());
        if let Some(loss) = loss {
            near(&read, Metric::Loss, loss);
            assert!(read.values[&Metric::Jitter] > 0.0 && read.values[&Metric::Jitter] < 100.0);
        }
        assert!(read.values.contains_key(&Metric::LocalCpu) && read.values.contains_key(&Metric::RemoteCpu));
        assert!(read.version.unwrap().starts_with("iperf 3.1"));
        let other = if direction == there { back } else { there };
        let wrong =
            iperf3::json(&recorded(&format!("{name}.json")), protocol, other).unwrap_err().to_string();
        assert!(wrong.contains("start.test_start.reverse"), "{wrong}");
    }
}

#[test]
fn iperf3_says_why_it_failed() {
    let read = |name: &str| {
        let read = iperf3::json(&recorded(name), Protocol::TcpStream, Direction::Forward);
        read.unwrap_err().to_string()
    };
    assert_eq!(
        read("iperf3-3.12-refused.json"),
        "iperf3 failed: unable to connect to server: Connection refused"
    );
    assert!(read("iperf3-3.18-refused.json").contains("Connection refused"));
    assert!(read("iperf3-3.18-reset.json").contains("Connection reset by peer"));
    assert_eq!(
        read("iperf3-3.18-both-at-once.json"),
        "iperf3's output has start.test_start.bidir = 1, which cannot be"
    );
    let text = String::from_utf8(recorded("iperf3-3.18-udp.json")).unwrap();
    let read = |text: &str| {
        let read = iperf3::json(text.as_bytes(), Protocol::UdpStream, Direction::Forward);
        read.unwrap_err().to_string()
    };
    assert_eq!(
        read(&text.replace("iperf 3.18", "iperf 4.0")),
        "iperf3 of version \"iperf 4.0\" is not known here: iperf 3 is"
    );
    assert!(read(&text.replace("sum_received", "other")).contains("has no end.sum_received"));
    // Lost everything.
    let lost = text.replace("159263744", "0").replace("1271157054.163179", "0");
    assert!(read(&lost).contains("nothing arrived of the 1919109298 bit/s"), "{}", read(&lost));
}

#[test]
fn fio_tells_reads_writes_and_both() {
    let read = fio::json(&recorded("fio-3.33-read.json"), Mix::Read).unwrap();
    assert!(read.values[&Metric::Iops] > 0.0 && read.histogram.is_some());
    assert_eq!(read.version.as_deref(), Some("fio-3.33"));
    let written = fio::json(&recorded("fio-3.33-randwrite.json"), Mix::Write).unwrap();
    let (told, counted) = (written.values[&Metric::P99], written.histogram.as_ref().unwrap());
    let counted = counted.quantile(0.99).unwrap() as f64 / 1e3;
    assert!((told - counted).abs() < told / 50.0, "{told} {counted}");
    let both = fio::json(&recorded("fio-3.33-randrw.json"), Mix::Mixed).unwrap();
    near(&both, Metric::Iops, 18243.564356 + 18256.435644);
    near(&both, Metric::Bandwidth, 74725639.0 + 74778360.0);
    near(&both, Metric::Min, 1.993);
    near(&both, Metric::Max, 2667.174);
    assert_eq!(both.histogram.as_ref().unwrap().total(), 18426 + 18439);
    assert!(both.values.contains_key(&Metric::P999), "{:?}", both.withheld);
    let plain = fio::json(&recorded("fio-3.33-read-plain.json"), Mix::Read).unwrap();
    assert!(plain.histogram.is_none() && !plain.values.contains_key(&Metric::P99), "clat is not lat");
    assert!(plain.values.contains_key(&Metric::Mean));
}

#[test]
fn fio_says_why_it_failed() {
    let read = |name: &str, mix| fio::json(&recorded(name), mix).unwrap_err().to_string();
    assert_eq!(
        read("fio-3.33-no-file.json", Mix::Read),
        "fio failed: error 2: fio: pid=0, err=2/file:filesetup.c:174, func=open, error=No such file or directory"
    );
    let full = read("fio-3.33-disk-full.json", Mix::Write);
    assert!(full.starts_with("fio failed: error 28"), "{full}");
    assert_eq!(read("fio-3.33-read.json", Mix::Write), "fio ran, but nothing arrived");
    let text = String::from_utf8(recorded("fio-3.33-read.json")).unwrap();
    let read = |text: &str| fio::json(text.as_bytes(), Mix::Read).unwrap_err().to_string();
    assert!(read(&text.replace("fio-3.33", "fio-2.2")).contains("\"fio-2.2\" is not known here"));
    assert!(read("fio: engine io_uring not loadable\n").contains("engine io_uring not loadable"));
    assert!(read(&text.replacen("\"N\" : ", "\"N\" : 1", 9)).contains("its bins count"));
}

type Read = fn(&[u8]) -> Result<Reading, OutputError>;

const READERS: [(&str, Read); 4] = [
    ("netperf-2.7.1-udp-stream.txt", |output| netperf::key_values(output, Protocol::UdpStream)),
    ("netperf-2.7.1-udp-rr.txt", |output| netperf::key_values(output, Protocol::UdpRr)),
    ("iperf3-3.18-udp.json", |output| iperf3::json(output, Protocol::UdpStream, Direction::Forward)),
    ("fio-3.33-randrw.json", |output| fio::json(output, Mix::Mixed)),
];

#[test]
fn every_beginning_of_an_output_is_refused_or_says_the_same() {
    for (name, read) in READERS {
        let whole = recorded(name);
        let told = read(&whole).unwrap();
        let step = (whole.len() / 400).max(1);
        for end in (0..whole.len()).step_by(step) {
            // netperf's lines after the last that is needed may be missing: nothing that is told depends on them.
            if let Ok(part) = read(&whole[..end]) {
                assert_eq!(part, told, "{name}, cut at {end}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_disturbed_output_is_read_or_refused_and_tells_no_impossible_value(
        which in 0usize..4, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let (name, read) = READERS[which];
        let mut output = recorded(name);
        for (at, byte) in changes {
            let at = at.index(output.len());
            output[at] = byte;
        }
        if let Ok(reading) = read(&output) {
            prop_assert!(reading.values.values().all(|value| value.is_finite() && *value >= 0.0));
        }
    }
}
