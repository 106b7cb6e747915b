//! A value against a size that doubles: a line and a shape for each thing that is compared, with intervals.

use super::{
    plot::{BOTTOM, HEIGHT, LEFT, Mark, Plot, Style, TOP, WIDTH},
    scale::{Scale, Spread},
};

/// A chart of values against sizes.
pub(crate) struct LineChart {
    /// What its own names within the page begin with.
    pub id: String,
    /// What it shows, in a few words.
    pub title: String,
    /// What is on the x axis.
    pub x_label: String,
    /// What is on the y axis, with its unit.
    pub y_label: String,
    /// The lines.
    pub lines: Vec<Line>,
    /// The greatest value of the y axis, for charts that are to be compared with each other; at least that of the lines.
    pub most: f64,
}

/// A line.
pub(crate) struct Line {
    /// How it looks.
    pub style: Style,
    /// What it is called.
    pub name: String,
    /// Its points, by size.
    pub points: Vec<LinePoint>,
}

/// A point of a line.
pub(crate) struct LinePoint {
    /// Its size.
    pub size: u32,
    /// Its value, in the unit of the y axis.
    pub value: f64,
    /// The interval of the value.
    pub interval: Option<(f64, f64)>,
    /// What there is to say about it.
    pub title: String,
}

/// Room for the lines' names.
const NAMES: f64 = 118.0;

impl LineChart {
    /// The greatest value, with its interval, of these lines.
    pub(crate) fn greatest<'a>(lines: impl IntoIterator<Item = &'a Line>) -> f64 {
        let points = lines.into_iter().flat_map(|line| &line.points);
        points
            .flat_map(|point| [point.value, point.interval.map_or(point.value, |(_, high)| high)])
            .filter(|value| value.is_finite())
            .fold(0.0, f64::max)
    }

    /// Draws it; the x axis shows `size` for each tick and the y axis `number`.
    pub(crate) fn plot(self, size: impl Fn(f64) -> String, number: impl Fn(f64) -> String) -> Plot {
        debug_assert!(BOTTOM < HEIGHT);
        let right = WIDTH - NAMES;
        let sizes =
            || self.lines.iter().flat_map(|line| &line.points).map(|point| f64::from(point.size.max(1)));
        let least = sizes().fold(f64::INFINITY, f64::min);
        let greatest = sizes().fold(1.0, f64::max);
        // One size alone stands in the middle.
        let (from, to) = if least < greatest { (least, greatest) } else { (least / 2.0, greatest * 2.0) };
        let x = Scale::new(Spread::Doublings, from, to, LEFT + 14.0, right - 14.0);
        let y = Scale::from_zero(self.most.max(LineChart::greatest(&self.lines)), BOTTOM, TOP);
        let about: Vec<String> = self.lines.iter().map(|line| about(line, &number)).collect();
        let about = format!("{}. {}", self.y_label, about.join("; "));
        let mut plot = Plot::new(self.id, self.title, about, right);
        plot.x_axis(self.x_label, &x, size);
        plot.y_axis(self.y_label, &y, number);
        let mut names = Vec::new();
        for line in &self.lines {
            let finite = line.points.iter().filter(|point| point.value.is_finite());
            let marks: Vec<Mark> = finite
                .map(|point| Mark {
                    x: x.at(f64::from(point.size)),
                    y: y.at(point.value),
                    interval: point.interval.map(|(low, high)| (y.at(low), y.at(high))),
                    title: point.title.clone(),
                })
                .collect();
            let Some(last) = marks.last() else { continue };
            names.push((last.y, line.style, line.name.clone()));
            plot.marked_line(line.style, &marks);
        }
        plot.names(right, names);
        plot
    }
}

/// A line in words, for those who do not see it.
fn about(line: &Line, number: impl Fn(f64) -> String) -> String {
    match line.points.as_slice() {
        [] => format!("{}: nothing", line.name),
        [only] => format!("{}: {}", line.name, number(only.value)),
        [first, .., last] => {
            format!("{}: from {} to {}", line.name, number(first.value), number(last.value))
        }
    }
}
