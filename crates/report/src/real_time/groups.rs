//! Charts: for each tool and power setting the loads beside each other, and the longest of each block over time.

use penstock_model::measurement::latency::{Arm, Load, Power, Series, Setting, Tool};
use serde::Serialize;

use super::{Source, arm, place, power, short};
use crate::{
    charts::{
        Key, Plot, Style,
        wake_ups::{self, Course, Moment, WakeUps},
    },
    measurements::sizes::latency,
    shown,
};

/// No more lines than this in one chart.
const MOST_LINES: usize = 8;
/// No more groups of charts than this.
const MOST_GROUPS: usize = 8;

/// The charts of one tool with one power setting.
#[derive(Serialize)]
pub(super) struct Group {
    title: String,
    about: &'static str,
    open: bool,
    loads: Vec<LoadCharts>,
    course: Option<Plot>,
    shaded: bool,
    keys: Vec<Key>,
    left_out: usize,
}

/// The charts of one load.
#[derive(Serialize)]
struct LoadCharts {
    title: String,
    plots: Vec<Plot>,
    keys: Vec<Key>,
    left_out: usize,
    /// What could not be drawn, and why.
    broken: Vec<String>,
}

/// At most so many groups, and how many more there are.
pub(super) fn groups(source: &Source<'_>) -> (Vec<Group>, usize) {
    let mut kinds: Vec<(Tool, Power)> = Vec::new();
    for series in source.latency.series.iter().filter(|series| series.is_measured()) {
        let kind = (series.setting.tool, series.setting.power);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds.sort_by_key(|(tool, _)| *tool);
    let left_out = kinds.len().saturating_sub(MOST_GROUPS);
    let groups = kinds.into_iter().take(MOST_GROUPS).enumerate();
    (groups.map(|(number, kind)| group(source, number, kind)).collect(), left_out)
}

/// What a tool's numbers are of.
fn about(tool: Tool) -> &'static str {
    match tool {
        Tool::Cyclictest => "how late a thread woke from a timer",
        Tool::Timerlat => "how late the kernel's own tracing thread woke from a timer",
        Tool::Oslat => {
            "for how long a thread that only looks at the clock was kept from it; these are no wake-ups"
        }
        Tool::Hwlat => "for how long nothing ran even with interrupts off: hardware and firmware",
    }
}

/// Each line of a group has one look in all its charts: the colour by the place, the dash by the arm.
fn style(lines: &[&Setting], setting: &Setting) -> Style {
    let position = |key: &dyn Fn(&Setting) -> String| {
        let mut seen: Vec<String> = Vec::new();
        for line in lines {
            let key = key(line);
            if !seen.contains(&key) {
                seen.push(key);
            }
        }
        seen.iter().position(|one| *one == key(setting)).unwrap_or(0)
    };
    // The untuned machine is another thing altogether and gets a colour of its own.
    let colour = position(&|setting| format!("{} {} {}", place(setting), setting.cpu, arm(setting)));
    Style::new(
        colour + 1,
        match setting.arm {
            Arm::Null => 2,
            _ if setting.ordinary => 1,
            _ => 0,
        },
    )
}

/// The same over time, where loads are beside each other: what ran without load is hollow.
fn moving(lines: &[&Setting], setting: &Setting) -> Style {
    let style = style(lines, setting);
    let mixed = lines.iter().any(|one| one.load.is_loaded() != setting.load.is_loaded());
    if mixed && !setting.load.is_loaded() { Style::new(style.colour, 3) } else { style }
}

/// A line over time.
fn moving_name(setting: &Setting) -> String {
    format!("{}, {}", short(setting), if setting.load.is_loaded() { "loaded" } else { "idle" })
}

fn group(source: &Source<'_>, number: usize, (tool, power_of): (Tool, Power)) -> Group {
    let all: Vec<&Series> = (source.latency.series.iter())
        .filter(|series| series.is_measured())
        .filter(|series| (series.setting.tool, series.setting.power) == (tool, power_of))
        .collect();
    let settings: Vec<&Setting> = all.iter().map(|series| &series.setting).collect();
    let mut loads: Vec<&Load> = Vec::new();
    for setting in &settings {
        if !loads.contains(&&setting.load) {
            loads.push(&setting.load);
        }
    }
    loads.sort_by_key(|load| load.is_loaded());
    let charts = loads.iter().enumerate().map(|(place, load)| {
        let of: Vec<&Series> = all.iter().copied().filter(|series| series.setting.load == **load).collect();
        load_charts(source, &format!("wake-{number}-{place}"), load, &of, &settings)
    });
    let charts: Vec<LoadCharts> = charts.collect();
    let courses: Vec<(Style, &&Series)> =
        all.iter().take(2 * MOST_LINES).map(|series| (moving(&settings, &series.setting), series)).collect();
    let loaded = stretches(&all);
    let mixed = all.iter().any(|series| !series.setting.load.is_loaded()) && !loaded.is_empty();
    Group {
        title: format!("{tool}, {}", power(power_of)),
        about: about(tool),
        open: number == 0,
        loads: charts,
        course: over_time(
            source,
            format!("wake-{number}-course"),
            &courses,
            if mixed { &loaded } else { &[] },
        ),
        shaded: mixed,
        keys: keys(source, &courses),
        left_out: all.len().saturating_sub(2 * MOST_LINES),
    }
}

/// The lines of the chart over time, each look once.
fn keys(source: &Source<'_>, courses: &[(Style, &&Series)]) -> Vec<Key> {
    let mut keys: Vec<(Style, String, f64)> = Vec::new();
    for (style, series) in courses {
        let (name, max) = (moving_name(&series.setting), series.max().unwrap_or(0.0));
        match keys.iter_mut().find(|(_, known, _)| *known == name) {
            Some((.., worst)) => *worst = worst.max(max),
            None => keys.push((*style, name, max)),
        }
    }
    keys.into_iter()
        .map(|(style, name, max)| Key::new(style, name, format!("longest {}", source.time(max))))
        .collect()
}

fn load_charts(
    source: &Source<'_>,
    id: &str,
    load: &Load,
    all: &[&Series],
    settings: &[&Setting],
) -> LoadCharts {
    let mut lines = Vec::new();
    let mut broken = Vec::new();
    for series in all.iter().take(MOST_LINES) {
        match series.bins() {
            Ok(bins) => {
                // A tool tells the longest to the digit; else it is at least in the last bin.
                let binned = bins.bins().next_back().map_or(0, |(bin, _)| bin);
                let max =
                    series.max().unwrap_or(f64::from(if bins.over() > 0 { bins.limit() } else { binned }));
                lines.push(WakeUps {
                    style: style(settings, &series.setting),
                    name: short(&series.setting),
                    bins,
                    max,
                    longest: source.time(max),
                    counted: if series.setting.tool.wakes() { "wake-ups" } else { "loops" },
                });
            }
            Err(error) => broken.push(format!("{}: {error}", short(&series.setting))),
        }
    }
    let mark = source.shown.mark();
    let end = wake_ups::end(&lines);
    let plots = if lines.is_empty() {
        Vec::new()
    } else {
        vec![
            wake_ups::histogram(format!("{id}-h"), format!("latency in µs{mark}"), end, &lines),
            wake_ups::ccdf(format!("{id}-c"), format!("latency{mark}"), &lines, time),
        ]
    };
    let key = |line: &WakeUps| {
        let (total, counted, longest) = (shown::count(line.bins.total()), line.counted, &line.longest);
        let detail = format!("{total} {counted}, longest {longest}");
        Key::new(line.style, line.name.clone(), detail)
    };
    LoadCharts {
        title: match load {
            Load::Idle => "Without load".to_owned(),
            loaded => format!("With {loaded}"),
        },
        keys: lines.iter().map(key).collect(),
        plots,
        left_out: all.len().saturating_sub(MOST_LINES),
        broken,
    }
}

/// A latency in microseconds beside an axis.
fn time(microseconds: f64) -> String {
    latency(microseconds * 1e3)
}

/// Stretches of time during which a load ran, in seconds; blocks that touch are one.
fn stretches(all: &[&Series]) -> Vec<(f64, f64)> {
    let loaded = all.iter().filter(|series| series.setting.load.is_loaded());
    let blocks = loaded.flat_map(|series| series.counted());
    let mut spans: Vec<(f64, f64)> = blocks.map(|block| (block.start, block.start + block.seconds)).collect();
    spans.retain(|(from, to)| from.is_finite() && to.is_finite());
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let end = all.iter().flat_map(|series| series.counted()).map(|block| block.start).fold(0.0, f64::max);
    // What is apart by less than anybody sees is together.
    let apart = end / 300.0;
    let mut together: Vec<(f64, f64)> = Vec::new();
    for (from, to) in spans {
        match together.last_mut() {
            Some((_, last)) if from <= *last + apart => *last = last.max(to),
            _ => together.push((from, to)),
        }
    }
    together
}

fn over_time(
    source: &Source<'_>,
    id: String,
    all: &[(Style, &&Series)],
    loaded: &[(f64, f64)],
) -> Option<Plot> {
    let courses: Vec<Course> = (all.iter())
        .map(|(style, series)| Course {
            style: *style,
            name: moving_name(&series.setting),
            moments: series
                .counted()
                .filter_map(|block| {
                    let max = block.max?;
                    let to = block.start + block.seconds;
                    (block.start.is_finite() && to.is_finite()).then(|| Moment {
                        from: block.start,
                        to,
                        max,
                        longest: source.time(max),
                    })
                })
                .collect(),
        })
        .filter(|course| !course.moments.is_empty())
        .collect();
    if courses.is_empty() {
        return None;
    }
    let label = format!("longest{}", source.shown.mark());
    Some(wake_ups::over_time(id, "since the start".to_owned(), label, &courses, loaded, time))
}
