//! Latencies of wake-ups as other programs keep them: the histogram that cyclictest prints, of which OSADL's latency plots are made, and the
//! summary of rteval.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use penstock_model::measurement::latency::{Bins, Latency, Series, Setting};
use serde::Serialize;

use crate::{printable::one_line, templates::render};

/// How latencies are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LatencyFormat {
    /// As `cyclictest --histogram` of rt-tests prints them: a line for each microsecond, a column for each CPU.
    Cyclictest,
    /// `summary.xml` of rteval, with the statistics that it makes of a histogram.
    Rteval,
}

/// Latencies in files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyFiles {
    /// A file for all CPUs that were measured alike, each with its name and its text.
    pub files: Vec<(String, String)>,
    /// What is in no file, a sentence each.
    pub left_out: Vec<String>,
}

/// In a histogram whose last bin with a count is below this many microseconds every line is written, as cyclictest does it.
const EVERY_LINE: u32 = 100_000;

/// No histogram has more counts than this, a line's times its columns': an evidence from elsewhere may have as many CPUs as lines. Lines
/// without a count are left out first.
const MOST_COUNTS: usize = 1 << 24;

/// The series that differ in nothing but their CPU, with their CPUs' latencies.
struct Alike<'a> {
    setting: &'a Setting,
    cpus: BTreeMap<u32, Cpu<'a>>,
}

/// The latencies of one CPU.
struct Cpu<'a> {
    bins: Bins,
    series: &'a Series,
}

/// Writes the latencies of tools that count wake-ups; others count something else.
pub fn latency_files(latency: &Latency, format: LatencyFormat) -> LatencyFiles {
    let mut written = LatencyFiles::default();
    let mut all: BTreeMap<String, Alike<'_>> = BTreeMap::new();
    for series in &latency.series {
        let setting = &series.setting;
        if !setting.tool.wakes() {
            written.left_out.push(format!("{}: {} does not count wake-ups", series.id, setting.tool));
            continue;
        }
        let bins = match series.bins() {
            Ok(bins) if !bins.is_empty() => bins,
            Ok(_) => {
                written.left_out.push(format!("{}: nothing was measured", series.id));
                continue;
            }
            Err(error) => {
                written.left_out.push(format!("{}: {error}", series.id));
                continue;
            }
        };
        // What differs in more than the CPU has another name.
        let name = Setting { cpu: 0, ..setting.clone() }.id().replace(" cpu0", "").replace(' ', "-");
        let alike = all.entry(name).or_insert_with(|| Alike { setting, cpus: BTreeMap::new() });
        if alike.cpus.insert(setting.cpu, Cpu { bins, series }).is_some() {
            written.left_out.push(format!("{}: there are two of this name", series.id));
        }
    }
    for (name, alike) in all {
        let (extension, text) = match format {
            LatencyFormat::Cyclictest => match alike.histogram(latency.emulated) {
                Ok(text) => ("hist", text),
                Err(why) => {
                    written.left_out.push(format!("{name}: {why}"));
                    continue;
                }
            },
            LatencyFormat::Rteval => ("xml", alike.summary(latency, &mut written.left_out)),
        };
        written.files.push((format!("{name}.{extension}"), text));
    }
    written
}

impl Cpu<'_> {
    fn min(&self) -> u64 {
        let told = self.series.counted().filter_map(|block| block.min).min_by(f64::total_cmp);
        told.map_or_else(|| self.bins.bins().next().map_or(0, |(bin, _)| u64::from(bin)), |min| min as u64)
    }

    /// As the tool told it, else of the bins.
    fn mean(&self) -> f64 {
        let blocks: Vec<(f64, f64)> = self
            .series
            .counted()
            .filter_map(|block| Some((block.mean?, block.counts.total() as f64)))
            .collect();
        let weight: f64 = blocks.iter().map(|(_, weight)| weight).sum();
        match blocks.len() == self.series.counted().count() && weight > 0.0 {
            true => blocks.iter().map(|(mean, weight)| mean * weight).sum::<f64>() / weight,
            false => Moments::of(&self.bins).mean,
        }
    }

    /// As the tool told it, else the last bin; at least the end of the histogram where one was longer.
    fn max(&self) -> u64 {
        let last = self.bins.bins().next_back().map_or(0, |(bin, _)| u64::from(bin));
        let last = if self.bins.over() > 0 { u64::from(self.bins.limit()) } else { last };
        self.series.max().map_or(last, |max| max as u64)
    }
}

impl Alike<'_> {
    fn description(&self, emulated: bool) -> String {
        let Setting { tool, load, arm, power, .. } = self.setting;
        let cpus: Vec<String> = self.cpus.keys().map(u32::to_string).collect();
        format!(
            "{tool} on {}, CPU {}, load: {load}, {arm}, sleep states {power}; by penstock{}",
            self.setting.name(),
            cpus.join(","),
            if emulated { "; on an emulated board: of no machine" } else { "" }
        )
    }

    fn histogram(&self, emulated: bool) -> Result<String, String> {
        let (mut lines, cpus) = (BTreeSet::new(), self.cpus.len());
        for cpu in self.cpus.values() {
            lines.extend(cpu.bins.bins().map(|(bin, _)| bin));
            if lines.len().saturating_mul(cpus) > MOST_COUNTS {
                return Err(format!("the latencies of {cpus} CPUs make more than {MOST_COUNTS} counts"));
            }
        }
        let last = lines.last().copied().filter(|last| *last < EVERY_LINE);
        let every = last.filter(|last| (*last as usize + 1).saturating_mul(cpus) <= MOST_COUNTS);
        lines.extend(0..every.unwrap_or_default());
        let mut rows: BTreeMap<u32, Vec<u64>> = lines.into_iter().map(|bin| (bin, vec![0; cpus])).collect();
        for (column, cpu) in self.cpus.values().enumerate() {
            for (bin, count) in cpu.bins.bins() {
                if let Some(counts) = rows.get_mut(&bin) {
                    counts[column] = count;
                }
            }
        }
        let mut out = format!("# {}\n# Histogram\n", self.description(emulated));
        for (bin, counts) in rows {
            let counts: Vec<String> = counts.iter().map(|count| format!("{count:06}")).collect();
            let _ = writeln!(out, "{bin:06} {}", counts.join("\t"));
        }
        let line = |out: &mut String, name: &str, width: usize, value: &dyn Fn(&Cpu<'_>) -> u64| {
            let values: Vec<String> =
                self.cpus.values().map(|cpu| format!("{:0width$}", value(cpu))).collect();
            let _ = writeln!(out, "# {name}: {}", values.join(" "));
        };
        line(&mut out, "Total", 9, &|cpu| cpu.bins.total() - cpu.bins.over());
        line(&mut out, "Min Latencies", 5, &|cpu| cpu.min());
        line(&mut out, "Avg Latencies", 5, &|cpu| cpu.mean() as u64);
        line(&mut out, "Max Latencies", 5, &|cpu| cpu.max());
        line(&mut out, "Histogram Overflows", 5, &|cpu| cpu.bins.over());
        Ok(out)
    }

    fn summary(&self, latency: &Latency, left_out: &mut Vec<String>) -> String {
        let mut system = Bins::default();
        for cpu in self.cpus.values() {
            if let Err(error) = system.merge(&cpu.bins) {
                left_out
                    .push(format!("all CPUs of {} together: {error}", self.description(latency.emulated)));
                system = Bins::default();
                break;
            }
        }
        let longest = self.cpus.values().map(Cpu::max).max().unwrap_or_default();
        let shortest = self.cpus.values().map(Cpu::min).min().unwrap_or_default();
        let mut parts = vec![Part::new(None, &system, shortest, longest)];
        parts.extend(self.cpus.iter().map(|(cpu, of)| Part::new(Some(*cpu), &of.bins, of.min(), of.max())));
        let seconds = latency.seconds.clamp(0.0, 1e9) as u64;
        let started = one_line(&latency.started);
        let (date, time) = started.split_once('T').unwrap_or((&started, ""));
        let fields = Summary {
            penstock: env!("CARGO_PKG_VERSION"),
            days: seconds / 86_400,
            hours: seconds / 3600 % 24,
            minutes: seconds / 60 % 60,
            seconds: seconds % 60,
            date,
            time: time.split(['.', 'Z', '+']).next().unwrap_or_default(),
            loads: u32::from(self.setting.load.is_loaded()),
            tool: self.setting.tool.name(),
            description: self.description(latency.emulated),
            parts,
        };
        render("rteval.xml", &fields)
    }
}

/// What the template names.
#[derive(Serialize)]
struct Summary<'a> {
    penstock: &'static str,
    days: u64,
    hours: u64,
    minutes: u64,
    seconds: u64,
    date: &'a str,
    time: &'a str,
    loads: u32,
    tool: &'static str,
    description: String,
    parts: Vec<Part>,
}

/// One CPU, or all of them (`RunData.MakeReport` of rteval).
#[derive(Serialize)]
struct Part {
    cpu: Option<u32>,
    samples: u64,
    rows: Vec<(&'static str, String)>,
    buckets: Vec<(u32, u64)>,
}

impl Part {
    fn new(cpu: Option<u32>, bins: &Bins, min: u64, max: u64) -> Part {
        let moments = Moments::of(bins);
        let mut rows = Vec::new();
        let binned = bins.total() - bins.over();
        if binned > 0 {
            let median = bins.ranked(bins.total().div_ceil(2)).map_or(u64::from(bins.limit()), u64::from);
            let mode = bins.bins().max_by_key(|(bin, count)| (*count, std::cmp::Reverse(*bin)));
            rows = vec![
                ("minimum", min.to_string()),
                ("maximum", max.to_string()),
                ("median", median.to_string()),
                ("mode", mode.map_or(0, |(bin, _)| bin).to_string()),
                ("range", max.saturating_sub(min).to_string()),
                ("mean", format!("{:.6}", moments.mean)),
                ("mean_absolute_deviation", format!("{:.6}", moments.absolute)),
                ("standard_deviation", format!("{:.6}", moments.standard)),
            ];
        }
        Part { cpu, samples: bins.total(), rows, buckets: bins.bins().collect() }
    }
}

/// Of the latencies that have a bin, each as long as its bin says.
#[derive(Default)]
struct Moments {
    mean: f64,
    absolute: f64,
    standard: f64,
}

impl Moments {
    fn of(bins: &Bins) -> Moments {
        let total = (bins.total() - bins.over()) as f64;
        if total == 0.0 {
            return Moments::default();
        }
        let sum = |value: &dyn Fn(f64) -> f64| {
            bins.bins().map(|(bin, count)| value(f64::from(bin)) * count as f64).sum::<f64>() / total
        };
        let mean = sum(&|bin| bin);
        Moments {
            mean,
            absolute: sum(&|bin| (bin - mean).abs()),
            standard: sum(&|bin| (bin - mean).powi(2)).sqrt(),
        }
    }
}
