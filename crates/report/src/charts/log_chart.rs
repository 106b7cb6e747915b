//! Values against sizes, both by powers, where a straight line is a power of the size: drawn as a file of its own.

use serde::Serialize;

use super::{
    plot::{BOTTOM, HEIGHT, LEFT, Mark, Plot, Style, TOP, WIDTH, path},
    scale::{Scale, Spread},
};
use crate::templates::render;

/// A chart with logarithmic axes.
#[derive(Clone, Debug, PartialEq)]
pub struct LogChart {
    /// What its own names within the file begin with.
    pub id: String,
    /// What it shows, in a few words.
    pub title: String,
    /// What is on the x axis.
    pub x_label: String,
    /// What is on the y axis, with its unit.
    pub y_label: String,
    /// The lines, in the order in which they are drawn.
    pub lines: Vec<LogLine>,
}

/// A line of a [`LogChart`].
#[derive(Clone, Debug, PartialEq)]
pub struct LogLine {
    /// What it is called.
    pub name: String,
    /// Sizes with their values, in the order of the sizes. What is not above zero has no place on such an axis, and is left out.
    pub points: Vec<(f64, f64)>,
    /// Whether it only shows a direction: it is dashed and has no marks.
    pub guide: bool,
}

/// Room for the lines' names.
const NAMES: f64 = 150.0;
/// Room for the title above each chart.
const TITLE: u32 = 34;

/// A chart and its place in the file.
#[derive(Serialize)]
struct Panel {
    x: u32,
    width: u32,
    height: u32,
    plot: Plot,
}

/// What the template draws.
#[derive(Serialize)]
struct Drawing {
    width: u32,
    height: u32,
    top: u32,
    panels: Vec<Panel>,
}

/// The charts beside each other as an SVG file, which has its own colours for light and dark.
pub fn drawing(charts: &[LogChart]) -> String {
    let (width, height) = (WIDTH as u32, HEIGHT as u32);
    let panels = (0..).step_by(WIDTH as usize).zip(charts);
    let panels: Vec<Panel> =
        panels.map(|(x, chart)| Panel { x, width, height, plot: chart.plot() }).collect();
    let all = panels.len() as u32 * width;
    render("drawing.svg", &Drawing { width: all, height: TITLE + height, top: TITLE, panels })
}

impl LogLine {
    fn shown(&self) -> impl Iterator<Item = (f64, f64)> {
        let shown = |(size, value): &(f64, f64)| *size > 0.0 && *value > 0.0 && value.is_finite();
        self.points.iter().copied().filter(shown)
    }
}

impl LogChart {
    fn plot(&self) -> Plot {
        let right = WIDTH - NAMES;
        let points = || self.lines.iter().flat_map(LogLine::shown);
        let ends = |part: fn((f64, f64)) -> f64| {
            let values = || points().map(part);
            let least = values().fold(f64::INFINITY, f64::min);
            (if least.is_finite() { least } else { 1.0 }, values().fold(1e-9, f64::max))
        };
        let (x, y) = (ends(|(size, _)| size), ends(|(_, value)| value));
        let x = Scale::new(Spread::Doublings, x.0, x.1, LEFT + 14.0, right - 14.0);
        // Less than a decade has hardly a tick of its own.
        let spread = if y.1 < y.0 * 10.0 { Spread::Doublings } else { Spread::Decades };
        let y = Scale::new(spread, y.0, y.1, BOTTOM - 10.0, TOP + 6.0);
        let about: Vec<String> = self.lines.iter().filter(|line| !line.guide).map(in_words).collect();
        let about = format!("{}. {}", self.y_label, about.join("; "));
        let mut plot = Plot::new(self.id.clone(), self.title.clone(), about, right);
        plot.x_axis(self.x_label.clone(), &x, number);
        plot.y_axis(self.y_label.clone(), &y, number);
        let mut names = Vec::new();
        for (place, line) in self.lines.iter().enumerate() {
            let style = if line.guide { Style::new(0, 2) } else { Style::new(place, 0) };
            let at = |(size, value): (f64, f64)| (x.at(size), y.at(value));
            let Some(end) = line.shown().last() else { continue };
            names.push((at(end).1, style, line.name.clone()));
            if line.guide {
                plot.drawn_line(style, path(line.shown().map(at)), None);
                continue;
            }
            let mark = |point: (f64, f64)| {
                let (x, y) = at(point);
                let title = format!("{}, {}: {}", line.name, number(point.0), number(point.1));
                Mark { x, y, interval: None, title }
            };
            plot.marked_line(style, &[line.shown().map(mark).collect()]);
        }
        plot.names(right, names);
        plot
    }
}

/// A line in words, for those who do not see it.
fn in_words(line: &LogLine) -> String {
    let points: Vec<(f64, f64)> = line.shown().collect();
    match points.as_slice() {
        [] => format!("{}: nothing", line.name),
        [only] => format!("{}: {}", line.name, number(only.1)),
        [first, .., last] => format!("{}: from {} to {}", line.name, number(first.1), number(last.1)),
    }
}

/// Three digits at least of a number, without a fraction that says nothing.
fn number(value: f64) -> String {
    let text = match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 1.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(lines: Vec<LogLine>) -> LogChart {
        let text = |text: &str| text.to_owned();
        LogChart {
            id: text("t"),
            title: text("Time"),
            x_label: text("VFs"),
            y_label: text("ms of <CPU>"),
            lines,
        }
    }

    fn line(name: &str, points: &[(f64, f64)], guide: bool) -> LogLine {
        LogLine { name: name.to_owned(), points: points.to_vec(), guide }
    }

    /// Where the marks of a line are drawn: the ends of its path, in pixels.
    fn ends(svg: &str) -> Vec<(f64, f64)> {
        let document = roxmltree::Document::parse(svg).unwrap();
        let lines = document.descendants().filter(|node| node.attribute("class") == Some("line"));
        let place = |text: &str| text.split_once(' ').map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()));
        lines.flat_map(|line| line.attribute("d").unwrap().split(['M', 'L']).filter_map(place)).collect()
    }

    #[test]
    fn a_value_that_grows_as_its_size_is_a_straight_line() {
        let points: Vec<(f64, f64)> =
            (0..=12).map(|power| (f64::from(1 << power), f64::from(3 << power))).collect();
        let drawn = ends(&drawing(&[chart(vec![line("plan", &points, false)])]));
        assert_eq!(drawn.len(), 13);
        let slope = |of: &[(f64, f64)]| (of[1].1 - of[0].1) / (of[1].0 - of[0].0);
        assert!(slope(&drawn) < 0.0, "more is higher: {drawn:?}");
        for pair in drawn.windows(2) {
            assert!((slope(pair) - slope(&drawn)).abs() < 0.02, "{drawn:?}");
        }
    }

    #[test]
    fn charts_stand_beside_each_other_in_a_file_of_their_own() {
        let time = chart(vec![
            line("a <b>", &[(1.0, 2.0), (4.0, 8.0)], false),
            line("as the size", &[(1.0, 1.0)], true),
        ]);
        let svg =
            drawing(&[time.clone(), LogChart { id: "m".to_owned(), title: "Memory".to_owned(), ..time }]);
        let document = roxmltree::Document::parse(&svg).expect("well-formed");
        assert_eq!(document.root_element().attribute("viewBox"), Some("0 0 960 334"));
        assert_eq!(document.descendants().filter(|node| node.attribute("class") == Some("plot")).count(), 2);
        assert!(
            svg.contains("prefers-color-scheme: dark")
                && svg.contains("a &lt;b&gt;")
                && !svg.contains("a <b>")
        );
        assert!(svg.contains("<desc id=\"m-d\">ms of &lt;CPU&gt;. a &lt;b&gt;: from 2 to 8</desc>"), "{svg}");
    }

    #[test]
    fn what_has_no_place_on_a_logarithmic_axis_is_left_out() {
        let odd = [(0.0, 1.0), (1.0, 0.0), (2.0, f64::NAN), (4.0, -1.0), (8.0, 5.0)];
        let svg = drawing(&[chart(vec![line("odd", &odd, false), line("none", &[], false)])]);
        assert_eq!(ends(&svg).len(), 1);
        roxmltree::Document::parse(&drawing(&[])).expect("well-formed");
    }
}
