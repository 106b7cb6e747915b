//! What ran when and with what, and how to do it again.

use penstock_model::measurement::{Protocol, SampleResult};
use serde::Serialize;

use super::{
    Source,
    family::{Kind, capital},
    shown::{self, count},
};
use crate::printable::one_line;

/// Columns of the strip: samples that begin within the same one are drawn as one.
const COLUMNS: usize = 240;
/// The strip's lanes in pixels, in a picture 960 wide.
const LEFT: usize = 190;
const WIDTH: usize = 720;
const LANE: usize = 22;

/// The course of the measurements.
#[derive(Serialize)]
pub(crate) struct When {
    about: String,
    height: usize,
    lanes: Vec<Lane>,
    ticks: Vec<TimeTick>,
    tools: Vec<ToolRow>,
    links: Vec<LinkRow>,
    rules: Vec<(&'static str, String)>,
    command: String,
}

#[derive(Default, Serialize)]
struct Lane {
    name: String,
    y: usize,
    samples: String,
    /// Where samples were taken, warmed up, and failed: rectangles as paths.
    counted: String,
    warm_up: String,
    failed: String,
}

#[derive(Serialize)]
struct TimeTick {
    x: usize,
    text: String,
}

#[derive(Serialize)]
struct ToolRow {
    tool: String,
    versions: String,
    places: String,
}

#[derive(Serialize)]
struct LinkRow {
    end: String,
    speed: String,
    carrier: &'static str,
}

pub(crate) fn when(source: &Source<'_>) -> When {
    let measurements = source.measurements;
    let cells = || measurements.cells.iter().filter_map(|cell| Some((cell, cell.measured()?)));
    let samples = || cells().flat_map(|(_, measured)| &measured.samples);
    let ends = samples().map(|sample| sample.at + sample.seconds).chain([measurements.seconds]);
    let span = ends.filter(|end| end.is_finite()).fold(0.0, f64::max).max(1e-3);
    let names = ["UDP stream", "TCP stream", "UDP request-response", "TCP request-response", "storage"];
    let mut lanes = Vec::new();
    for name in names {
        let mut columns = [(false, false, false); COLUMNS];
        let mut number = 0;
        for (cell, measured) in cells() {
            let of = match super::family::kind(&cell.measurement) {
                Kind::Network(Protocol::UdpStream) => names[0],
                Kind::Network(Protocol::TcpStream) => names[1],
                Kind::Network(Protocol::UdpRr) => names[2],
                Kind::Network(Protocol::TcpRr) => names[3],
                Kind::Storage(..) => names[4],
            };
            if of != name {
                continue;
            }
            for sample in &measured.samples {
                number += 1;
                let column = |at: f64| ((at / span * COLUMNS as f64) as usize).min(COLUMNS - 1);
                let (first, last) = (column(sample.at), column(sample.at + sample.seconds.max(0.0)));
                for column in &mut columns[first..=last.max(first)] {
                    match (&sample.taken, sample.warm_up) {
                        (SampleResult::Missing(_), _) => column.2 = true,
                        (_, true) => column.1 = true,
                        _ => column.0 = true,
                    }
                }
            }
        }
        if number > 0 {
            let y = lanes.len() * LANE + 4;
            lanes.push(Lane {
                name: capital(name),
                y: y + 12,
                samples: count(number as u64),
                counted: runs(&columns, y, 14, |column| column.0),
                warm_up: runs(&columns, y + 11, 5, |column| column.1),
                failed: runs(&columns, y, 6, |column| column.2),
            });
        }
    }
    let all = samples().count();
    let warm_up = samples().filter(|sample| sample.warm_up).count();
    let failed = samples().filter(|sample| matches!(sample.taken, SampleResult::Missing(_))).count();
    let (warm_up, failed) = (count(warm_up as u64), count(failed as u64));
    When {
        about: format!(
            "{} in {}; {warm_up} of them warm-up, {failed} failed.",
            shown::many(all, "sample"),
            duration(measurements.seconds)
        ),
        height: lanes.len() * LANE + 28,
        lanes,
        ticks: ticks(span),
        tools: tools(source),
        links: links(source),
        rules: rules(source),
        command: one_line(&source.evidence.run.command.join(" ")),
    }
}

/// Rectangles over the columns that `is` holds for, those beside each other as one.
fn runs<T>(columns: &[T], y: usize, height: usize, is: impl Fn(&T) -> bool) -> String {
    let x = |column: usize| LEFT + column * WIDTH / COLUMNS;
    let mut path = String::new();
    let mut from = None;
    for at in 0..=columns.len() {
        match (columns.get(at).is_some_and(&is), from) {
            (true, None) => from = Some(at),
            (false, Some(start)) => {
                let width = x(at) - x(start);
                path += &format!("M{} {y}h{width}v{height}h-{width}z", x(start));
                from = None;
            }
            _ => {}
        }
    }
    path
}

/// Ticks at round times, at most eight.
fn ticks(span: f64) -> Vec<TimeTick> {
    const ROUND: [u32; 16] =
        [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200];
    let step = ROUND.into_iter().map(f64::from).find(|step| span / step <= 8.0).unwrap_or(span / 4.0);
    let text = |seconds: f64| match seconds as u64 {
        0 => "0".to_owned(),
        s if s < 60 || s % 60 != 0 => format!("{s} s"),
        s if s < 3_600 || s % 3_600 != 0 => format!("{} min", s / 60),
        s => format!("{} h", s / 3_600),
    };
    (0..9)
        .map(|number| f64::from(number) * step)
        .take_while(|at| *at <= span)
        .map(|at| TimeTick { x: LEFT + (at / span * WIDTH as f64) as usize, text: text(at) })
        .collect()
}

/// Seconds for people; what is no time is said to be none.
pub(crate) fn duration(seconds: f64) -> String {
    std::time::Duration::try_from_secs_f64(seconds).map_or_else(
        |_| "an unknown time".to_owned(),
        |took| match seconds {
            s if s < 60.0 && s.fract() == 0.0 => format!("{s:.0} s"),
            _ => crate::seconds::text(took),
        },
    )
}

/// The tools by version: in most runs one version is in all places.
fn tools(source: &Source<'_>) -> Vec<ToolRow> {
    let mut rows: Vec<(String, String, Vec<String>)> = Vec::new();
    for tool in &source.measurements.tools {
        let version =
            tool.version.as_deref().map_or_else(|| "missing, or tells no version".to_owned(), one_line);
        let name = tool.tool.to_string();
        match rows.iter_mut().find(|row| (&row.0, &row.1) == (&name, &version)) {
            Some((.., places)) => places.push(one_line(&tool.place)),
            None => rows.push((name, version, vec![one_line(&tool.place)])),
        }
    }
    let row =
        |(tool, versions, places): (_, _, Vec<String>)| ToolRow { tool, versions, places: places.join(", ") };
    rows.into_iter().map(row).collect()
}

fn links(source: &Source<'_>) -> Vec<LinkRow> {
    let links = source.measurements.links.iter();
    links
        .map(|link| LinkRow {
            end: link.end.to_string(),
            speed: link.speed.map_or_else(
                || "the driver tells none".to_owned(),
                |speed| {
                    source
                        .shown
                        .value(f64::from(speed) * 1e6, penstock_model::measurement::Unit::BitPerSecond)
                },
            ),
            carrier: match link.carrier {
                Some(true) => "has carrier",
                Some(false) => "no carrier",
                None => "not known",
            },
        })
        .collect()
}

fn rules(source: &Source<'_>) -> Vec<(&'static str, String)> {
    let (measurements, rules) = (source.measurements, &source.measurements.rules);
    let half = shown::trimmed(rules.half_width * 100.0);
    vec![
        ("started", one_line(&measurements.started)),
        ("took", duration(measurements.seconds)),
        (
            "asked for",
            if measurements.quick { "the quick subset".to_owned() } else { "the full matrix".to_owned() },
        ),
        ("length of a sample", duration(f64::from(rules.dwell_ms) / 1e3)),
        ("warm-up of a cell", format!("{}, not counted", shown::many(rules.warm_up as usize, "sample"))),
        (
            "a cell stops",
            format!(
                "when its {} interval is within ±{half} % after {} samples, or after {}",
                crate::section::confidence(measurements.rules.confidence),
                rules.minimum,
                rules.maximum
            ),
        ),
        (
            "the run stops",
            rules.budget.map_or_else(
                || "when every cell did".to_owned(),
                |s| format!("after {} at most", duration(s)),
            ),
        ),
        ("seed", measurements.seed.to_string()),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .collect()
}
