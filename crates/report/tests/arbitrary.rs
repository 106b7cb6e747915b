//! Whatever the evidence, it renders, it reads back, and it keeps to its bounds.

mod runs;

use std::time::Duration;

use penstock_model::{
    FunctionName, GuestKind, Mac, Outcome, Verdict, VfIndex, WantedEswitch,
    measurement::{
        Cell, Claim, Comparison, Conclusion, CutShort, Direction, End, EndKind, Estimate, ExpectationResult,
        Histogram, Load, Measured, Measurement, Measurements, Metric, Mix, Network, PathKind, Pattern,
        Protocol, Rules, Sample, SampleResult, Status, StopReason, Storage, Subject as Measures,
        Summary as CellSummary, Tool, ToolVersion, Withheld,
        latency::{
            self, Arm, Bins, Block, Latency, Power, Quantile, Series, Setting, Statistic, Summary, TailBound,
        },
    },
    verdict::{ARRIVES, ISOLATED, Subject, Vantage},
};
use penstock_report::{
    Evidence, LatencyFormat, Machine, MachineFunction, MachineGuest, MachineNic, MachineVf, Phase,
    StepOutcome, StepRecord, html, latency_files, markdown, sentence, summary,
};
use proptest::{collection::vec, option, prelude::*};

/// Text as a guest could send it. None has a `NaN` in it, so that one on a page is a number that was not caught.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,40}",
        "[\\x00-\\x7f]{0,40}",
        Just("<script>\"'&`|\u{1b}[2J\u{202e}".to_owned()),
        Just(ARRIVES.to_owned()),
        Just(ISOLATED.to_owned()),
    ]
    .prop_map(|text| text.replace("NaN", "nan"))
}

/// The name of a NIC or a guest. None has a `NaN` in it, which a page must not have from a number.
fn name() -> impl Strategy<Value = String> {
    "[A-Za-z0-9][A-Za-z0-9._-]{0,47}|NET[01]".prop_filter("a NaN", |name| !name.contains("NaN"))
}

fn function() -> impl Strategy<Value = FunctionName> {
    (name(), option::of(0u16..300))
        .prop_map(|(nic, vf)| FunctionName { nic: nic.parse().unwrap(), vf: vf.and_then(VfIndex::new) })
}

fn took() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        any::<u32>().prop_map(|millis| Duration::from_millis(millis.into())),
        // Longer ones would lose nanoseconds in a double.
        any::<u32>().prop_map(|seconds| Duration::from_secs(seconds.into())),
    ]
}

fn nic() -> impl Strategy<Value = MachineNic> {
    (
        "NET[0-3]|[A-Za-z0-9][A-Za-z0-9._-]{0,47}",
        option::of(text()),
        option::of(text()),
        any::<Option<bool>>(),
        0u16..270,
    )
        .prop_map(|(name, driver, emulated_by, loopback, vfs)| MachineNic {
            name: name.parse().unwrap(),
            bdf: "0000:04:00.1".parse().ok(),
            mac: Some(Mac::new([2, 0, 0, 0, 0, 1])),
            driver,
            emulated_by,
            loopback,
            eswitch: loopback.is_none().then_some(WantedEswitch::Switchdev),
            // Gaps and repeated names are for the picture to survive.
            vfs: (0..vfs)
                .map(|index| MachineVf { index: VfIndex::new(index).unwrap(), bdf: None, mac: None })
                .collect(),
        })
}

fn guest() -> impl Strategy<Value = MachineGuest> {
    let owned =
        (function(), "[!-.0-9;-~&&[^%:/-]]{3,15}").prop_map(|(function, interface)| MachineFunction {
            function,
            interface: interface.parse().unwrap(),
            addresses: "fd00::4/64".parse().into_iter().collect(),
        });
    (name(), any::<bool>(), vec(owned, 0..12)).prop_map(|(name, vm, functions)| MachineGuest {
        name: name.parse().unwrap(),
        kind: if vm { GuestKind::Vm } else { GuestKind::Container },
        functions,
        nics: Default::default(),
    })
}

fn verdict() -> impl Strategy<Value = Verdict> {
    let subject = prop_oneof![
        Just(Subject::Machine),
        function().prop_map(|function| Subject::Nic(function.nic)),
        function().prop_map(Subject::Function),
        Just(Subject::Guest("g".parse().unwrap())),
        (function(), function()).prop_map(|(from, to)| Subject::Path { from: from.into(), to: to.into() }),
    ];
    let outcome = prop_oneof![
        Just(Outcome::Pass),
        Just(Outcome::Fail),
        Just(Outcome::Unsupported),
        Just(Outcome::Unknown)
    ];
    (subject, text(), any::<bool>(), text(), text(), outcome, any::<(bool, bool, bool)>()).prop_map(
        |(subject, attribute, inside, wanted, seen, outcome, (best_effort, out_of_sight, emulated))| {
            Verdict {
                subject,
                attribute,
                item: None,
                vantage: if inside { Vantage::Guest("g".parse().unwrap()) } else { Vantage::Host },
                wanted,
                seen,
                outcome,
                best_effort,
                out_of_sight,
                emulated,
            }
        },
    )
}

fn step() -> impl Strategy<Value = StepRecord> {
    use StepOutcome::{Already, Done, Failed, Skipped, Undone, Unsupported};
    let outcome = prop::sample::select(vec![Done, Already, Unsupported, Skipped, Undone, Failed]);
    (any::<u32>(), text(), text(), option::of(took()), outcome, option::of(text())).prop_map(
        |(id, what, why, took, outcome, detail)| StepRecord { id, what, why, took, outcome, detail },
    )
}

fn evidence() -> impl Strategy<Value = Evidence> {
    let machine =
        (text(), any::<bool>(), vec(nic(), 0..4), vec(guest(), 0..60), vec((0usize..4, 0usize..4), 0..12))
            .prop_map(|(name, emulated, nics, guests, cables)| {
                let name_of = |place: usize| nics.get(place).map(|nic: &MachineNic| nic.name.clone());
                let cables =
                    cables.into_iter().filter_map(|(a, b)| Some([name_of(a)?, name_of(b)?])).collect();
                Machine { name, emulated, cables, nics, guests }
            });
    let phases = vec((text(), took()).prop_map(|(name, took)| Phase { name, took }), 0..6);
    (
        machine,
        vec(verdict(), 0..80),
        vec(step(), 0..20),
        phases,
        vec(text(), 0..40),
        option::of(text()),
        any::<Option<u8>>(),
        took(),
    )
        .prop_map(|(machine, verdicts, steps, phases, notes, serial_log, exit, took)| {
            let mut evidence = Evidence {
                machine,
                verdicts: verdicts.into_iter().collect(),
                steps,
                phases,
                notes,
                serial_log,
                ..runs::small()
            };
            evidence.run.exit = exit;
            evidence.run.took = took;
            evidence
        })
}

/// Numbers as no tool should tell them, and as all do.
fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => 0.0..1e10f64,
        1 => any::<f64>(),
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
        1 => Just(0.0),
    ]
}

fn estimate() -> impl Strategy<Value = Option<Estimate>> {
    (number(), 0.0..1.0f64).prop_map(|(value, part)| {
        let width = value.abs() * part;
        Estimate::new(value, value - width, value + width, 0.95)
    })
}

fn measurement() -> impl Strategy<Value = Measurement> {
    use EndKind::{Container, Host, Vm};
    let kind = || prop::sample::select(vec![Host, Container, Vm]);
    let end = move || {
        (any::<bool>(), kind(), option::of(function())).prop_map(|(inside, kind, function)| {
            let place = if inside { Vantage::Guest("g".parse().unwrap()) } else { Vantage::Host };
            End { place, kind, function: function.map(Into::into) }
        })
    };
    let protocol = prop::sample::select(Protocol::ALL.to_vec());
    let path = prop::sample::select(PathKind::ALL.to_vec());
    let size = || prop_oneof![Just(0u32), Just(128), Just(16384), any::<u32>()];
    let network = (protocol, path, end(), end(), size(), any::<bool>(), option::of(any::<u32>())).prop_map(
        |(protocol, path, client, server, size, reverse, rate)| {
            let direction = if reverse { Direction::Reverse } else { Direction::Forward };
            let load = rate.map_or(Load::Closed, |rate| Load::Open { rate });
            Measures::Network(Network { protocol, path, client, server, size, direction, load })
        },
    );
    let storage = (any::<bool>(), kind(), text(), any::<bool>(), size(), any::<(u32, u32)>()).prop_map(
        |(inside, kind, target, random, block, (depth, jobs))| {
            let place = if inside { Vantage::Guest("g".parse().unwrap()) } else { Vantage::Host };
            let pattern = if random { Pattern::Random } else { Pattern::Sequential };
            Measures::Storage(Storage { place, kind, target, pattern, mix: Mix::Mixed, block, depth, jobs })
        },
    );
    let tool = prop::sample::select(vec![Tool::Netperf, Tool::Iperf3, Tool::Fio, Tool::Probe]);
    (tool, prop_oneof![3 => network.boxed(), 1 => storage.boxed()])
        .prop_map(|(tool, subject)| Measurement { tool, subject })
}

fn cell() -> impl Strategy<Value = Cell> {
    let metric = || prop::sample::select(Metric::ALL.to_vec());
    let taken = prop_oneof![
        vec((metric(), number()), 0..4).prop_map(|values| SampleResult::Values(values.into_iter().collect())),
        text().prop_map(SampleResult::Missing),
    ];
    let sample = (number(), number(), any::<bool>(), taken).prop_map(|(at, seconds, warm_up, taken)| {
        Sample { at, seconds, position: 0, round: 0, warm_up, taken }
    });
    let summary = (metric(), number(), estimate(), number(), number()).prop_map(
        |(metric, median, interval, min, max)| CellSummary { metric, n: 3, median, interval, min, max },
    );
    let withheld = (metric(), any::<u64>(), any::<u64>()).prop_map(|(metric, have, need)| Withheld {
        metric,
        have,
        need,
    });
    let histogram = vec((any::<u64>(), 0u64..1 << 40), 0..12).prop_map(|latencies| {
        let mut histogram = Histogram::new();
        latencies.into_iter().for_each(|(latency, times)| histogram.record(latency, times).unwrap());
        histogram
    });
    let measured = (vec(sample, 0..5), vec(summary, 0..5), vec(withheld, 0..3), option::of(histogram))
        .prop_map(|(samples, summaries, withheld, histogram)| {
            let stop = StopReason::TimeUp;
            Status::Measured(Box::new(Measured { samples, summaries, withheld, histogram, stop }))
        });
    let status = prop_oneof![3 => measured.boxed(), 1 => (text(), any::<Option<bool>>()).prop_map(|(why, up)| Status::Missing { why, cut_short: up.map(|up| if up { CutShort::TimeUp } else { CutShort::Interrupted }) }).boxed()];
    // Some names come twice, which the model forbids and a file may have.
    ("[a-f]|<b>", measurement(), any::<bool>(), status).prop_map(|(id, measurement, null, status)| Cell {
        id,
        measurement,
        null,
        status,
    })
}

fn measurements() -> impl Strategy<Value = Measurements> {
    let metric = || prop::sample::select(Metric::ALL.to_vec());
    let comparison = ("[a-g]", "[a-g]", metric(), estimate(), estimate(), option::of(text())).prop_map(
        |(base, other, metric, ratio, null, why)| Comparison {
            base,
            other,
            metric,
            ratio,
            null,
            pairs: 1,
            why,
        },
    );
    let told = || {
        prop::sample::select(vec![
            Conclusion::Holds,
            Conclusion::NotAsked,
            Conclusion::NotMeasured,
            Conclusion::CannotBeTold,
            Conclusion::DoesNotHold,
        ])
    };
    let claim = ("[a-g]", option::of("[a-g]"), metric(), estimate(), told(), option::of(text())).prop_map(
        |(cell, against, metric, seen, told, why)| Claim {
            against,
            metric: Some(metric),
            seen,
            why,
            ..Claim::new(cell, told)
        },
    );
    let lines = vec!["vf-vf inside >= 0.8 x pf-pf", "p99 <= 50us", "random read >= 0.9 x host"];
    let ruling = (prop::sample::select(lines), vec(claim, 0..4))
        .prop_map(|(line, claims)| ExpectationResult::new(line.parse().unwrap(), claims));
    let tool = (text(), option::of(text())).prop_map(|(place, version)| ToolVersion {
        tool: Tool::Fio,
        place,
        version,
    });
    let parts =
        (vec(cell(), 0..14), vec(comparison, 0..8), vec(ruling, 0..4), vec(tool, 0..3), vec(text(), 0..3));
    (parts, any::<(bool, bool)>(), number(), number(), option::of(number())).prop_map(
        |((cells, comparisons, rulings, tools, notes), (emulated, quick), seconds, half_width, budget)| {
            let rules = Rules { half_width, budget, ..Rules::default() };
            let known = Measurements { emulated, quick, seconds, rules, tools, ..Measurements::default() };
            Measurements { cells, comparisons, rulings, notes, ..known }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn whatever_was_measured_it_renders(measurements in measurements(), verified in any::<bool>()) {
        let mut evidence = Evidence { measurements: Some(measurements), ..runs::small() };
        if !verified {
            evidence.verdicts = Default::default();
        }
        let page = html(&evidence);
        prop_assert!(page.trim_end().ends_with("</html>"));
        for forbidden in ["<script", "<b>&", "\u{1b}", "\u{202e}", "\0", "NaN"] {
            prop_assert!(!page.contains(forbidden), "the page contains {forbidden:?}");
        }
        let drawn = page.split(" d=\"").skip(1).filter_map(|rest| rest.split('"').next());
        for path in drawn {
            prop_assert!(!path.contains("inf"), "a line goes to infinity: {path}");
        }
        for (open, close) in [("<table", "</table>"), ("<details", "</details>"), ("<svg", "</svg>"), ("<ul", "</ul>")] {
            let opened = page.matches(&format!("{open} ")).count() + page.matches(&format!("{open}>")).count();
            prop_assert_eq!(opened, page.matches(close).count(), "{} and {} do not match", open, close);
        }
        let said = sentence(&evidence);
        let heads = ["Holds: ", "Stopped as asked after ", "Does not hold: ", "Not shown: ", "Interrupted after "];
        let head = heads.iter().position(|head| said.starts_with(head));
        prop_assert!(head.is_some_and(|head| (head < 2) == evidence.holds()), "{}", said);
        let class = if evidence.holds() { "pass" } else if head == Some(2) { "fail" } else { "unknown" };
        let banner = format!("class=\"banner {class}\"");
        prop_assert!(page.contains(&banner), "{} has no {}", said, banner);
        let text = summary(&evidence);
        prop_assert!(text.lines().count() <= 25, "{} lines", text.lines().count());
        prop_assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
        let markdown = markdown(&evidence);
        prop_assert!(!markdown.split("## Serial console").next().unwrap_or_default().contains("<script"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happened_it_renders_and_reads_back(evidence in evidence()) {
        let page = html(&evidence);
        prop_assert!(page.ends_with("</html>") || page.ends_with("</html>\n"));
        for forbidden in ["<script", "\u{1b}", "\u{202e}", "\0"] {
            prop_assert!(!page.contains(forbidden), "the page contains {forbidden:?}");
        }
        for (open, close) in [("<table", "</table>"), ("<details", "</details>"), ("<svg", "</svg>"), ("<g", "</g>")] {
            let opened = page.matches(&format!("{open} ")).count() + page.matches(&format!("{open}>")).count();
            prop_assert_eq!(opened, page.matches(close).count(), "{} and {} do not match", open, close);
        }
        let said = sentence(&evidence);
        let heads = ["Holds: ", "Stopped as asked after ", "Does not hold: ", "Not shown: ", "Interrupted after "];
        let head = heads.iter().position(|head| said.starts_with(head));
        prop_assert!(head.is_some_and(|head| (head < 2) == evidence.holds()), "{}", said);
        let class = if evidence.holds() { "pass" } else if head == Some(2) { "fail" } else { "unknown" };
        let banner = format!("class=\"banner {class}\"");
        prop_assert!(page.contains(&banner), "{} has no {}", said, banner);

        let text = summary(&evidence);
        prop_assert!(text.lines().count() <= 25, "{} lines", text.lines().count());
        prop_assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
        // Inside the fence of the serial console it is text.
        let markdown = markdown(&evidence);
        let outside = markdown.split("## Serial console").next().unwrap_or_default();
        prop_assert!(!outside.contains("<script"));

        let grouped: usize = evidence.groups().iter().map(|group| group.verdicts.len()).sum();
        prop_assert_eq!(grouped, evidence.verdicts.len());
        prop_assert_eq!(evidence.counts().total(), evidence.verdicts.len());
        prop_assert_eq!(Evidence::from_json(&evidence.json()).unwrap(), evidence);
    }
}

/// Latencies of whatever kind: blocks with any numbers, series that are named twice, comparisons of what is not there.
fn latency() -> impl Strategy<Value = Latency> {
    let told = || {
        prop::sample::select(vec![
            Conclusion::Holds,
            Conclusion::NotAsked,
            Conclusion::NotMeasured,
            Conclusion::CannotBeTold,
            Conclusion::DoesNotHold,
        ])
    };
    let bins = (prop::collection::btree_map(0u32..600, 0u64..1 << 40, 0..9), 600u32..700, 0u64..1 << 30);
    let bins = bins.prop_map(|(counts, limit, over)| {
        let total = counts.values().sum::<u64>() + over;
        Bins::new(counts, limit, total).unwrap()
    });
    let block = (number(), number(), bins, option::of(number()), option::of(text())).prop_map(
        |(start, seconds, counts, max, failed)| Block {
            start,
            seconds,
            counts,
            max,
            mean: max,
            spikes: Some(3),
            failed,
            ..Block::default()
        },
    );
    let statistic = || prop::sample::select(Statistic::ALL.to_vec());
    let quantile = (statistic(), estimate(), option::of(number()), option::of(text()))
        .prop_map(|(statistic, value, alone, why)| Quantile { statistic, value, alone, why });
    let summary = (vec(quantile, 0..5), number(), option::of(number()), any::<(u64, u32)>()).prop_map(
        |(quantiles, seconds, max, (n, blocks))| Summary {
            n,
            blocks,
            seconds,
            min: max,
            mean: max,
            max,
            quantiles,
            bound: max.map(|below| TailBound { below, confidence: 0.95, wake_ups: seconds, blocks: seconds }),
            spikes: Some(n),
            spike_blocks: Some(blocks),
        },
    );
    let arm = prop::sample::select(vec![Arm::Tuned, Arm::Untuned, Arm::Null]);
    let setting = (arm, prop::sample::select(latency::Tool::ALL.to_vec()), any::<(bool, bool, bool)>())
        .prop_map(|(arm, tool, (inside, loaded, ordinary))| Setting {
            place: if inside { Vantage::Guest("g".parse().unwrap()) } else { Vantage::Host },
            kind: if inside { EndKind::Vm } else { EndKind::Host },
            cpu: 2,
            ordinary,
            tool,
            load: if loaded {
                latency::Load::Hackbench { place: Vantage::Host, cpus: "0-1".parse().unwrap(), groups: 8 }
            } else {
                latency::Load::Idle
            },
            arm,
            power: Power::System,
        });
    let series = (setting, vec(block, 0..5), option::of(summary), option::of(text()), "[a-f]").prop_map(
        |(setting, blocks, summary, missing, id)| {
            let cut_short = missing.as_ref().filter(|why| why.len() % 2 == 0).map(|_| CutShort::TimeUp);
            Series { id, setting, blocks, summary, missing, cut_short }
        },
    );
    let comparison = ("[a-g]", "[a-g]", statistic(), estimate(), estimate(), option::of(text())).prop_map(
        |(base, other, statistic, ratio, null, why)| latency::Comparison {
            base,
            other,
            statistic,
            ratio,
            null,
            pairs: 1,
            why,
        },
    );
    let finding =
        ("[a-g]", option::of("[a-g]"), estimate(), option::of(number()), told(), option::of(text()))
            .prop_map(|(series, against, seen, max, told, why)| Claim {
                against,
                seen,
                n: 5,
                max,
                why,
                ..Claim::new(series, told)
            });
    let lines = vec!["latency g max < 9us", "latency untuned / tuned p99 >= 2x"];
    let ruling = (prop::sample::select(lines), vec(finding, 0..4))
        .prop_map(|(line, findings)| ExpectationResult::new(line.parse().unwrap(), findings));
    let parts = (vec(series, 0..12), vec(comparison, 0..5), vec(ruling, 0..4), vec(text(), 0..3));
    (parts, any::<bool>(), number(), text()).prop_map(
        |((series, comparisons, rulings, notes), emulated, seconds, started)| Latency {
            emulated,
            seconds,
            started,
            series,
            comparisons,
            rulings,
            notes,
            ..Latency::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn whatever_woke_late_it_renders(latency in latency(), verified in any::<bool>()) {
        let mut evidence = Evidence { latency: Some(latency), ..runs::small() };
        if !verified {
            evidence.verdicts = Default::default();
        }
        for format in [LatencyFormat::Cyclictest, LatencyFormat::Rteval] {
            for (name, text) in latency_files(evidence.latency.as_ref().unwrap(), format).files {
                prop_assert!(!name.contains('/') && !name.starts_with('.'), "{name}");
                if format == LatencyFormat::Rteval {
                    let read = roxmltree::Document::parse(&text);
                    prop_assert!(read.is_ok(), "{:?}: {text}", read.err());
                }
            }
        }
        let page = html(&evidence);
        prop_assert!(page.trim_end().ends_with("</html>"));
        for forbidden in ["<script", "<b>&", "\u{1b}", "\u{202e}", "\0", "NaN"] {
            prop_assert!(!page.contains(forbidden), "the page contains {forbidden:?}");
        }
        let drawn = page.split(" d=\"").skip(1).filter_map(|rest| rest.split('"').next());
        for path in drawn {
            prop_assert!(!path.contains("inf"), "a line goes to infinity: {path}");
        }
        for (open, close) in [("<table", "</table>"), ("<details", "</details>"), ("<svg", "</svg>"), ("<ul", "</ul>"), ("<div", "</div>")] {
            let opened = page.matches(&format!("{open} ")).count() + page.matches(&format!("{open}>")).count();
            prop_assert_eq!(opened, page.matches(close).count(), "{} and {} do not match", open, close);
        }
        let said = sentence(&evidence);
        let heads = ["Holds: ", "Stopped as asked after ", "Does not hold: ", "Not shown: ", "Interrupted after "];
        let head = heads.iter().position(|head| said.starts_with(head));
        prop_assert!(head.is_some_and(|head| (head < 2) == evidence.holds()), "{}", said);
        let class = if evidence.holds() { "pass" } else if head == Some(2) { "fail" } else { "unknown" };
        let banner = format!("class=\"banner {class}\"");
        prop_assert!(page.contains(&banner), "{} has no {}", said, banner);
        let text = summary(&evidence);
        prop_assert!(text.lines().count() <= 25, "{} lines", text.lines().count());
        prop_assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
        prop_assert!(!markdown(&evidence).contains("<script"));
    }
}
