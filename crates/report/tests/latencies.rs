//! Latencies of wake-ups in the forms of other programs.

mod runs;

use penstock_model::measurement::latency::{Bins, Block, Latency, Series, Tool};
use penstock_report::{LatencyFormat, latency_files};

/// A series of a CPU with these counts by microsecond, of a histogram that ends at 10 us, and so many longer ones.
fn series(tool: Tool, cpu: u32, counts: &[(u32, u64)], over: u64, max: Option<f64>) -> Series {
    let all: u64 = counts.iter().map(|(_, count)| count).sum();
    let bins = Bins::new(counts.iter().copied().collect(), 10, all + over).unwrap();
    let mut setting = runs::real_time::real_time(false).latency.unwrap().series[0].setting.clone();
    (setting.tool, setting.cpu) = (tool, cpu);
    let block = Block { seconds: 1.0, counts: bins, max, ..Block::default() };
    Series { blocks: vec![block], ..Series::new(setting) }
}

fn latency() -> Latency {
    Latency {
        started: "2026-11-21T19:41:07Z".to_owned(),
        seconds: 93_784.0,
        series: vec![
            series(Tool::Cyclictest, 3, &[(1, 10), (2, 30), (4, 10)], 0, Some(4.0)),
            series(Tool::Cyclictest, 2, &[(2, 5)], 1, Some(42.0)),
            series(Tool::Oslat, 2, &[(1, 1)], 0, None),
            series(Tool::Timerlat, 2, &[(3, 7)], 0, None),
            series(Tool::Cyclictest, 4, &[], 0, None),
        ],
        ..Latency::default()
    }
}

#[test]
fn a_histogram_is_written_as_cyclictest_does() {
    let written = latency_files(&latency(), LatencyFormat::Cyclictest);
    let names: Vec<&str> = written.files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["cyclictest-host-idle-tuned-held.hist", "timerlat-host-idle-tuned-held.hist"]);
    let (first, rest) = written.files[0].1.split_once('\n').unwrap();
    assert!(first.starts_with("# cyclictest on host, CPU 2,3, load: idle, tuned"), "{first}");
    assert_eq!(
        rest,
        "# Histogram\n000000 000000\t000000\n000001 000000\t000010\n000002 000005\t000030\n000003 000000\t000000\n\
         000004 000000\t000010\n# Total: 000000005 000000050\n# Min Latencies: 00002 00001\n# Avg Latencies: 00002 00002\n\
         # Max Latencies: 00042 00004\n# Histogram Overflows: 00001 00000\n"
    );
    let left_out = written.left_out.join("\n");
    assert!(
        left_out.contains("oslat does not count wake-ups") && left_out.contains("nothing was measured"),
        "{left_out}"
    );
}

#[test]
fn a_summary_has_the_statistics_of_rteval() {
    let written = latency_files(&latency(), LatencyFormat::Rteval);
    let (name, text) = &written.files[0];
    assert_eq!(name, "cyclictest-host-idle-tuned-held.xml");
    let document = roxmltree::Document::parse(text).unwrap();
    let find = |name: &'static str| document.descendants().filter(move |node| node.has_tag_name(name));
    let info = find("run_info").next().unwrap();
    let lasted = ["days", "hours", "minutes", "seconds"].map(|unit| info.attribute(unit).unwrap());
    assert_eq!(lasted, ["1", "2", "3", "4"]);
    assert_eq!(find("time").next().unwrap().text(), Some("19:41:07"));
    let cores: Vec<_> = find("core").collect();
    assert_eq!(cores.iter().map(|core| core.attribute("id").unwrap()).collect::<Vec<_>>(), ["2", "3"]);
    let of =
        |name: &str| cores[1].descendants().find(|node| node.has_tag_name(name)).unwrap().text().unwrap();
    let all = ["samples", "minimum", "maximum", "median", "mode", "range", "mean", "mean_absolute_deviation"]
        .map(of);
    assert_eq!(all, ["50", "1", "4", "2", "2", "3", "2.200000", "0.720000"]);
    let deviation: f64 = of("standard_deviation").parse().unwrap();
    assert!((deviation - 0.96_f64.sqrt()).abs() < 1e-6, "{deviation}");
    let buckets = cores[1].descendants().filter(|node| node.has_tag_name("bucket"));
    let buckets: Vec<_> = buckets
        .map(|bucket| (bucket.attribute("index").unwrap(), bucket.attribute("value").unwrap()))
        .collect();
    assert_eq!(buckets, [("1", "10"), ("2", "30"), ("4", "10")]);
    // Also the one that was longer than the histogram is one of all.
    assert_eq!(find("samples").next().unwrap().text(), Some("56"));
}

#[test]
fn latencies_of_an_emulated_board_are_marked() {
    let emulated = Latency { emulated: true, ..latency() };
    for format in [LatencyFormat::Cyclictest, LatencyFormat::Rteval] {
        assert!(
            latency_files(&emulated, format).files.iter().all(|(_, text)| text.contains("emulated board"))
        );
        assert!(latency_files(&latency(), format).files.iter().all(|(_, text)| !text.contains("emulated")));
    }
}

/// A bin of hours has no line for each microsecond before it.
#[test]
fn a_long_latency_makes_no_long_file() {
    let mut long = latency();
    long.series[0].blocks[0].counts = Bins::new([(4_000_000_000, 1)].into(), u32::MAX, 1).unwrap();
    long.series.truncate(1);
    let text = &latency_files(&long, LatencyFormat::Cyclictest).files[0].1;
    assert!(text.contains("\n4000000000 000001\n") && text.lines().count() == 8, "{text}");
}

#[test]
fn a_histogram_that_no_memory_holds_is_left_out() {
    let cpus = 0..5_000;
    let one = |cpu: u32| {
        let bins = Bins::new([(cpu, 1)].into(), 1 << 20, 1).unwrap();
        let mut series = series(Tool::Cyclictest, cpu, &[(1, 1)], 0, None);
        series.blocks[0].counts = bins;
        series
    };
    let latency = Latency { series: cpus.map(one).collect(), ..latency() };
    let written = latency_files(&latency, LatencyFormat::Cyclictest);
    assert!(written.files.is_empty());
    let [why] = &written.left_out[..] else { panic!("{:?}", written.left_out) };
    assert!(why.contains("the latencies of 5000 CPUs make more than"), "{why}");
    let far = Latency { series: latency.series.into_iter().take(300).collect(), ..Latency::default() };
    let mut far = far;
    let bins = Bins::new([(99_999, 1)].into(), 1 << 20, 1).unwrap();
    far.series[0].blocks[0].counts = bins;
    let written = latency_files(&far, LatencyFormat::Cyclictest);
    let lines = written.files[0].1.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(lines, 300, "each line with a count, and none without");
}
