use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::verdict::Vantage;

fn network(path: PathKind, protocol: Protocol, size: u32) -> Measurement {
    let end = |place: &str, function: &str| End {
        place: Vantage::Guest(place.parse().unwrap()),
        kind: EndKind::Container,
        function: Some(function.parse().unwrap()),
    };
    let (client, server) = (end("a", "NET0#0"), end("b", "NET0#1"));
    let (direction, load) = (Direction::Forward, Load::Closed);
    let subject = Subject::Network(Network { protocol, path, client, server, size, direction, load });
    Measurement { tool: Tool::Netperf, subject }
}

fn estimate(value: f64, low: f64, high: f64) -> Estimate {
    Estimate::new(value, low, high, 0.95).unwrap()
}

fn expectation(text: &str) -> Expectation {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn everything_goes_through_json_and_back() {
    let sample = |values: SampleResult| Sample {
        at: 1.5,
        seconds: 1.0,
        position: 7,
        round: 2,
        warm_up: false,
        taken: values,
    };
    let mut histogram = Histogram::new();
    histogram.record(12_345, 6).unwrap();
    let measured = Measured {
        samples: vec![
            sample(SampleResult::Values(BTreeMap::from([(Metric::Throughput, 2e9), (Metric::P999, 50.25)]))),
            sample(SampleResult::Missing("the peer is gone".into())),
        ],
        summaries: vec![Summary {
            metric: Metric::Throughput,
            n: 1,
            median: 2e9,
            interval: Some(estimate(2e9, 1.9e9, 2.1e9)),
            min: 2e9,
            max: 2e9,
        }],
        withheld: vec![Withheld { metric: Metric::P999, have: 6, need: 10_000 }],
        histogram: Some(histogram),
        stop: StopReason::TightEnough,
    };
    let cell = |id: &str, status: Status| Cell {
        id: id.into(),
        measurement: network(PathKind::VfVfInside, Protocol::UdpStream, 1024),
        null: false,
        status,
    };
    let storage = Storage {
        place: Vantage::Host,
        kind: EndKind::Host,
        target: "/dev/nvme0n1".into(),
        pattern: Pattern::Random,
        mix: Mix::Mixed,
        block: 4096,
        depth: 8,
        jobs: 2,
    };
    let mut disk = cell("disk", Status::missing("no fio"));
    disk.measurement = Measurement { tool: Tool::Fio, subject: Subject::Storage(storage) };
    let lines = ["vf-vf inside >= 0.8 x pf-pf", "p99 <= 50us"];
    let measurements = Measurements {
        cells: vec![cell("one", Status::Measured(Box::new(measured))), disk],
        comparisons: vec![Comparison {
            base: "one".into(),
            other: "two".into(),
            metric: Metric::P99,
            ratio: Some(estimate(1.1, 1.0, 1.2)),
            null: None,
            pairs: 9,
            why: None,
        }],
        rulings: lines.map(|line| ExpectationResult::new(expectation(line), Vec::new())).to_vec(),
        ..Measurements::default()
    };
    let json = serde_json::to_string(&measurements).unwrap();
    assert_eq!(serde_json::from_str::<Measurements>(&json).unwrap(), measurements);
    assert!(json.contains(r#""p99.9":50.25"#), "{json}");
    assert!(json.contains(r#""missing":"the peer is gone""#), "{json}");
    assert_eq!(measurements.counts(), Counts { measured: 1, missing: 1, not_reached: 0 });
    assert!(!measurements.holds(), "its lines cannot be told");
    let all_that_was_measured = measurements.cells[..1].to_vec();
    let with = |cells: &[Cell], told: &[Conclusion]| {
        let ruling = |told: &Conclusion| ExpectationResult { told: *told, ..measurements.rulings[0].clone() };
        let rulings = told.iter().map(ruling).collect();
        Measurements { cells: cells.to_vec(), rulings, ..Measurements::default() }.holds()
    };
    assert!(with(&measurements.cells, &[Conclusion::Holds]), "the lines decide, whatever else is missing");
    assert!(!with(&all_that_was_measured, &[Conclusion::Holds, Conclusion::DoesNotHold]));
    assert!(!with(&measurements.cells, &[]) && with(&all_that_was_measured, &[]) && !with(&[], &[]));
    assert_eq!(measurements.cell("one").unwrap().measured().unwrap().values(Metric::Throughput).count(), 1);
}

#[test]
fn a_penalty_is_positive_where_the_other_is_worse() {
    let comparison = |metric, ratio| Comparison {
        base: "host".into(),
        other: "guest".into(),
        metric,
        ratio: Some(ratio),
        null: None,
        pairs: 6,
        why: None,
    };
    let slower = comparison(Metric::Throughput, estimate(0.8, 0.7, 0.9)).penalty().unwrap();
    assert!((slower.value() - 20.0).abs() < 1e-9 && (slower.low() - 10.0).abs() < 1e-9, "{slower:?}");
    assert!((slower.high() - 30.0).abs() < 1e-9);
    let later = comparison(Metric::P99, estimate(1.5, 1.25, 2.0)).penalty().unwrap();
    assert_eq!((later.value(), later.low(), later.high()), (50.0, 25.0, 100.0));
    assert!(comparison(Metric::P99, estimate(1.0, 0.9, 1.1)).spans_none());
}

#[test]
fn an_estimate_is_finite_and_in_order() {
    assert_eq!(Estimate::new(1.0, 2.0, 3.0, 0.95), None);
    assert_eq!(Estimate::new(f64::NAN, 0.0, 1.0, 0.95), None);
    assert_eq!(Estimate::new(1.0, 0.0, f64::INFINITY, 0.95), None);
    assert!(serde_json::from_str::<Estimate>(r#"{"value":5,"low":6,"high":7,"confidence":0.95}"#).is_err());
    assert_eq!(format!("{:.2}", estimate(1.0, 0.5, 1.25)), "1.00 [0.50, 1.25]");
    assert_eq!(estimate(10.0, 9.0, 12.0).relative_half_width(), Some(0.2));
    assert_eq!(estimate(0.0, 0.0, 1.0).relative_half_width(), None);
}

#[test]
fn lines_mean_what_they_say() {
    let inside = expectation("vf-vf inside >= 0.8 x pf-pf");
    assert_eq!(inside.metric(), Metric::Throughput);
    let (vf, pf) = (PathKind::VfVfInside, PathKind::PfPf);
    let udp = Protocol::UdpStream;
    assert!(inside.pairs(&network(vf, udp, 128), &network(pf, udp, 128)));
    assert!(!inside.pairs(&network(vf, udp, 128), &network(pf, udp, 256)), "other size");
    assert!(!inside.pairs(&network(vf, udp, 128), &network(pf, Protocol::TcpStream, 128)), "other protocol");
    assert!(!inside.pairs(&network(pf, udp, 128), &network(vf, udp, 128)), "the other way around");
    assert!(!inside.pairs(&network(vf, Protocol::UdpRr, 128), &network(pf, Protocol::UdpRr, 128)), "rr");

    let latency = expectation("p99 <= 50us");
    assert!(latency.left().matches(&network(pf, Protocol::TcpRr, 1)));
    assert!(!latency.left().matches(&network(pf, udp, 128)));
    assert_eq!(latency.bound(), &Bound::Value(Quantity { value: 50.0, unit: Unit::Microseconds }));

    let across = expectation("udp vf-vf across 1KiB >= 2Gbit/s");
    assert_eq!(across.bound(), &Bound::Value(Quantity { value: 2e9, unit: Unit::BitPerSecond }));
    assert!(across.left().matches(&network(PathKind::VfVfAcross, udp, 1024)));
    assert!(!across.left().matches(&network(PathKind::VfVfAcross, udp, 2048)));
    assert!(!across.left().matches(&network(PathKind::VfVfAcross, Protocol::TcpStream, 1024)));

    assert_eq!(expectation("random read 4KiB guest >= 0.9 x host").metric(), Metric::Iops);
    assert_eq!(
        expectation("pf-pf loss <= 1%").bound(),
        &Bound::Value(Quantity { value: 0.01, unit: Unit::Fraction })
    );
    assert_eq!(expectation("p99 in rt-2 <= 2x pf-pf").metric(), Metric::P99);
    let grown = expectation("pf-pf 16KiB >= 3 × 128B");
    assert!(grown.pairs(&network(pf, udp, 16384), &network(pf, udp, 128)));
}

#[test]
fn the_bridge_is_compared_between_the_same_guests() {
    let line = expectation("vf-vf inside >= 1.5 x bridge");
    let mut bridge = network(PathKind::Bridge, Protocol::UdpStream, 128);
    let inside = network(PathKind::VfVfInside, Protocol::UdpStream, 128);
    assert!(line.pairs(&inside, &bridge));
    let across = network(PathKind::BridgeAcross, Protocol::UdpStream, 128);
    assert!(!line.pairs(&inside, &across), "another bridge");
    let over = expectation("vf-vf across udp >= 1.5 x bridge across 128B");
    assert!(over.pairs(&network(PathKind::VfVfAcross, Protocol::UdpStream, 128), &across));
    assert!(!over.pairs(&network(PathKind::VfVfAcross, Protocol::UdpStream, 128), &bridge));
    assert_eq!(expectation("bridge across >= 0.3 x bridge").left().path, Some(PathKind::BridgeAcross));
    assert_eq!(PathKind::BridgeAcross.to_string(), "bridge across");
    let own = expectation("vm vf >= 0.9 x vm pf");
    let of = |path| network(path, Protocol::UdpStream, 128);
    let nat = expectation("udp vm vf >= 1.2 x vm bridge nat");
    assert!(
        nat.pairs(&of(PathKind::VmVf), &of(PathKind::VmBridgeNat))
            && !nat.pairs(&of(PathKind::VmVf), &of(PathKind::VmBridge))
    );
    for path in PathKind::ALL {
        assert_eq!(expectation(&format!("{path} >= 1Gbit/s")).left().path, Some(path));
    }
    assert!(
        own.pairs(&of(PathKind::VmVf), &of(PathKind::VmPf))
            && !own.pairs(&of(PathKind::VmPf), &of(PathKind::VmVf))
    );
    assert!("vm >= 1Gbit/s".parse::<Expectation>().unwrap_err().to_string().contains("vm ipvlan or vm pf"));
    let port = expectation("tcp port-port >= 0.5 x veth-veth");
    let tcp = |path| network(path, Protocol::TcpStream, 128);
    assert!(port.pairs(&tcp(PathKind::PortPort), &tcp(PathKind::VethVeth)));
    assert!(!port.pairs(&tcp(PathKind::PortHost), &tcp(PathKind::VethHost)), "another path");
    assert!(
        !PathKind::Bridge.is_baseline_of(PathKind::PortPort),
        "what a port replaces is in its own bridge"
    );
    let Subject::Network(ends) = &mut bridge.subject else { unreachable!() };
    ends.server.place = Vantage::Guest("c".parse().unwrap());
    assert!(!line.pairs(&inside, &bridge));
}

#[test]
fn the_interval_counts_against_the_claim() {
    let least = expectation("vf-vf inside >= 0.8 x pf-pf");
    assert_eq!(least.judge(&estimate(0.9, 0.8, 1.0)), Conclusion::Holds);
    assert_eq!(least.judge(&estimate(0.9, 0.79, 1.0)), Conclusion::CannotBeTold);
    assert_eq!(least.judge(&estimate(0.7, 0.6, 0.79)), Conclusion::DoesNotHold);
    let most = expectation("p99 <= 50us");
    assert_eq!(most.judge(&estimate(40.0, 30.0, 50.0)), Conclusion::Holds);
    assert_eq!(most.judge(&estimate(40.0, 30.0, 51.0)), Conclusion::CannotBeTold);
    assert_eq!(most.judge(&estimate(60.0, 51.0, 70.0)), Conclusion::DoesNotHold);
}

#[test]
fn a_ruling_is_as_bad_as_its_worst_claim_and_nothing_is_not_enough() {
    let claim = |told| Claim { metric: Some(Metric::P99), ..Claim::new("one", told) };
    let ruling = |told: &[Conclusion]| {
        ExpectationResult::new(expectation("p99 <= 50us"), told.iter().map(|told| claim(*told)).collect())
            .told
    };
    assert_eq!(ruling(&[]), Conclusion::CannotBeTold);
    assert_eq!(ruling(&[Conclusion::Holds, Conclusion::Holds]), Conclusion::Holds);
    assert_eq!(ruling(&[Conclusion::Holds, Conclusion::CannotBeTold]), Conclusion::CannotBeTold);
    assert_eq!(
        ruling(&[Conclusion::CannotBeTold, Conclusion::DoesNotHold, Conclusion::Holds]),
        Conclusion::DoesNotHold
    );
}

#[test]
fn lines_that_cannot_be_read_say_why_and_where() {
    for (line, why, at) in [
        ("", "it has no comparison: >= or <=", ""),
        (
            "pf-pf > 1Gbit/s",
            "the comparisons are >= and <=, and in a line that begins with `latency` < too",
            ">",
        ),
        (
            "pf-pf == 1Gbit/s",
            "the comparisons are >= and <=, and in a line that begins with `latency` < too",
            "=",
        ),
        (
            "vf-vf-inside >= 1Gbit/s",
            "\"vf-vf-inside\" is written in two words here: vf-vf inside",
            "vf-vf-inside",
        ),
        (">= 1Gbit/s", "nothing stands before >=", ">="),
        ("pf-pf >=", "nothing stands after >=", ">="),
        ("pf-pf >= 1Gbit/s <= 2Gbit/s", "there is a second comparison; one line makes one claim", "<"),
        (
            "vf-vf >= 1Gbit/s",
            "vf-vf needs to know which: vf-vf across (two NICs and the cable) or vf-vf inside (one NIC)",
            "vf-vf",
        ),
        ("pf-fp >= 1Gbit/s", "\"pf-fp\" means nothing here; did you mean \"pf-pf\"?", "pf-fp"),
        (
            "thruput pf-pf >= 1Gbit/s",
            "\"thruput\" means nothing here; did you mean \"throughput\"?",
            "thruput",
        ),
        ("xyzzy pf-pf >= 1Gbit/s", "\"xyzzy\" is no path, protocol, size or metric", "xyzzy"),
        ("udp tcp >= 1Gbit/s", "\"tcp\" contradicts or repeats an earlier word", "tcp"),
        ("pf-pf <= 50us", "which latency: p50, p90, p99, p99.9, max, mean?", "pf-pf <= 50us"),
        ("pf-pf >= 2GB/s", "network throughput is written in bit/s, for example 2Gbit/s", "pf-pf >= 2GB/s"),
        ("p99 <= 2Gbit/s", "p99 is counted in us, not in bit/s", "2Gbit/s"),
        ("p99 <= 50", "p99 is written with a unit, for example 1us", "50"),
        (
            "tcp stream port-port host_cpu_per_gbit <= 1s/Gbit",
            "host_cpu_per_gbit is measured on paths of a VM's own NIC only, and port-port is not one",
            "tcp stream port-port host_cpu_per_gbit <= 1s/Gbit",
        ),
        ("p99 stream <= 50us", "p99 is measured by request and response (rr) only", "p99 stream <= 50us"),
        (
            "udp rr loss <= 1%",
            "loss is measured by a stream, and by round trips in an open loop (rr open), only",
            "udp rr loss <= 1%",
        ),
        ("vf-vf inside >= pf-pf", "a comparison with \"pf-pf\" needs a factor: 1 x pf-pf", "pf-pf"),
        ("vf-vf inside >= 0 x pf-pf", "\"0\" is no factor above 0, like 0.8", "0"),
        ("vf-vf inside >= 0.8 x", "nothing stands after the x", "0.8 x"),
        ("p99 >= 0.8 x p50 pf-pf", "p99 cannot be compared with p50", "0.8 x p50 pf-pf"),
        ("pf-pf >= 0.8 x pf-pf", "both sides mean the same cells", "0.8 x pf-pf"),
        ("pf-pf 1XiB >= 1Gbit/s", "\"1XiB\" is not a size like 256MiB, 1GiB or a number of bytes", "1XiB"),
        ("pf-pf read >= 1Gbit/s", "it names both the network and storage", "pf-pf read "),
        ("p99 in <= 5us", "in which guest?", "in"),
    ] {
        let error = line.parse::<Expectation>().unwrap_err();
        assert_eq!(error.why(), why, "{line}");
        assert_eq!(&line[error.at()], at, "{line}");
    }
    let error = "pf-pf >= 3parsecs".parse::<Expectation>().unwrap_err();
    assert!(error.why().contains("neither a number with a unit (bit/s, kbit/s"), "{error}");
}

/// An open loop sends whatever was not answered, and tells what was lost.
#[test]
fn what_an_open_loop_loses_can_be_asked_for() {
    for line in ["udp rr open loss <= 1%", "open loss <= 1%"] {
        let line = expectation(line);
        assert_eq!(line.metric(), Metric::Loss);
        let measurement = |open: Load, protocol| {
            let mut measurement = network(PathKind::GuestHost, protocol, 128);
            if let Subject::Network(Network { load, .. }) = &mut measurement.subject {
                *load = open;
            }
            measurement
        };
        assert!(line.left().matches(&measurement(Load::Open { rate: 500 }, Protocol::UdpRr)), "{line}");
        assert!(!line.left().matches(&measurement(Load::Closed, Protocol::UdpRr)), "{line}");
        assert!(!line.left().matches(&measurement(Load::Closed, Protocol::UdpStream)), "{line}");
    }
}

#[test]
fn quantities_are_read_and_shown() {
    for (text, value, unit, shown) in [
        ("2Gbit/s", 2e9, Unit::BitPerSecond, "2.00Gbit/s"),
        ("2874.1 Mbit/s", 2.8741e9, Unit::BitPerSecond, "2.87Gbit/s"),
        ("50us", 50.0, Unit::Microseconds, "50.0us"),
        ("50µs", 50.0, Unit::Microseconds, "50.0us"),
        ("1.5ms", 1500.0, Unit::Microseconds, "1.50ms"),
        ("250ns", 0.25, Unit::Microseconds, "250ns"),
        ("1MiB/s", 1_048_576.0, Unit::BytePerSecond, "1.05MB/s"),
        ("12k/s", 12_000.0, Unit::PerSecond, "12.0k/s"),
        ("0.5%", 0.5, Unit::Percent, "0.50%"),
        ("0s", 0.0, Unit::Microseconds, "0.00us"),
        ("1.5s/Gbit", 1.5, Unit::SecondsPerGigabit, "1.50s/Gbit"),
        ("20 ms/Gbit", 0.02, Unit::SecondsPerGigabit, "20.0ms/Gbit"),
        ("12.3kinsn/frame", 12_300.0, Unit::InstructionsPerFrame, "12.3kinsn/frame"),
    ] {
        let quantity = Quantity::parse(text).unwrap_or_else(|| panic!("{text}"));
        assert!((quantity.value - value).abs() <= value * 1e-12 && quantity.unit == unit, "{quantity:?}");
        assert_eq!(quantity.to_string(), shown, "{text}");
    }
    for text in ["", "us", "-1us", "1e400us", "1..2us", "inf", "nan", "1parsec"] {
        assert_eq!(Quantity::parse(text), None, "{text}");
    }
}

#[test]
fn metrics_have_one_name_everywhere() {
    for metric in Metric::ALL {
        assert_eq!(metric.name().parse(), Ok(metric));
        assert_eq!(serde_json::to_string(&metric).unwrap(), format!("\"{metric}\""));
    }
}

proptest! {
    #[test]
    fn a_bucket_holds_its_latency_and_is_narrow(nanoseconds in any::<u64>()) {
        let (low, high) = Histogram::ends(Histogram::bucket(nanoseconds));
        prop_assert!(low <= nanoseconds && nanoseconds <= high);
        prop_assert!((high - low) as f64 <= low as f64 / 64.0);
    }

    #[test]
    fn a_histogram_counts_all_and_its_quantiles_bound_the_exact_ones(
        mut values in prop::collection::vec(0u64..1 << 40, 1..200), q in 0.0f64..=1.0,
    ) {
        let mut histogram = Histogram::new();
        for value in &values {
            histogram.record(*value, 1).unwrap();
        }
        values.sort();
        let exact = values[((q * values.len() as f64).ceil() as usize).max(1) - 1];
        let told = histogram.quantile(q).unwrap();
        prop_assert!(told >= exact && told as f64 <= exact as f64 * (1.0 + 1.0 / 64.0) + 1.0);
        prop_assert_eq!(histogram.total(), values.len() as u64);
        let points: Vec<_> = histogram.longer_than().collect();
        prop_assert!(points.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 > w[1].1));
        prop_assert_eq!(points.last().unwrap().1, 0.0);
        let json = serde_json::to_string(&histogram).unwrap();
        prop_assert_eq!(serde_json::from_str::<Histogram>(&json).unwrap(), histogram);
    }

    #[test]
    fn any_line_is_read_or_refused_with_a_place_inside_it(line in "[ -~µ≥×]{0,60}") {
        if let Err(error) = line.parse::<Expectation>() {
            prop_assert!(line.get(error.at()).is_some(), "{:?}", error.at());
        }
    }

    #[test]
    fn a_line_goes_through_its_text(
        words in prop::sample::subsequence(vec!["udp", "pf-pf", "1KiB", "p99", "in rt-2", "open"], 1..6),
    ) {
        let line = format!("{} <= 2 x vf-vf across", words.join(" "));
        let read: Expectation = line.parse().unwrap();
        prop_assert_eq!(read.to_string().parse::<Expectation>().unwrap(), read);
    }
}

#[test]
fn hostile_histograms_are_refused() {
    assert!(serde_json::from_str::<Histogram>(r#"{"4000":1}"#).is_err());
    assert!(serde_json::from_str::<Histogram>(r#"{"1":18446744073709551615,"2":1}"#).is_err());
    assert_eq!(serde_json::from_str::<Histogram>(r#"{"1":0}"#).unwrap(), Histogram::new());
    let mut full = Histogram::new();
    full.record(1, u64::MAX).unwrap();
    assert_eq!(full.record(1, 1), Err(HistogramError::Overflow));
    assert_eq!(Histogram::new().quantile(0.5), None);
}
