//! A value against a size that doubles: a line and a shape for each thing that is compared, with intervals.

use super::{
    plot::{BOTTOM, LEFT, Mark, Plot, Style, TOP, WIDTH},
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
    /// The lines, in the order in which they are drawn.
    pub lines: Vec<Line>,
    /// The greatest value of the y axis, for charts that are to be compared with each other; at least that of the lines.
    pub most: f64,
}

/// A line of the chart: the values of one thing at several sizes.
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
    /// The message or block size that it is for, in bytes.
    pub size: u32,
    /// Its value, in the unit of the y axis; `None` where it should be and is missing.
    pub value: Option<f64>,
    /// The interval of the value.
    pub interval: Option<(f64, f64)>,
    /// What there is to say about it.
    pub title: String,
}

/// Room for the lines' names.
const NAMES: f64 = 126.0;

impl LineChart {
    /// The greatest value, with its interval, of these lines.
    pub(crate) fn greatest<'a>(lines: impl IntoIterator<Item = &'a Line>) -> f64 {
        let points = lines.into_iter().flat_map(|line| &line.points);
        points
            .flat_map(|point| [point.value, point.interval.map(|(_, high)| high)])
            .flatten()
            .filter(|value| value.is_finite())
            .fold(0.0, f64::max)
    }

    /// Draws it; the x axis shows `size` for each tick and the y axis `number`.
    pub(crate) fn plot(self, size: impl Fn(f64) -> String, number: impl Fn(f64) -> String) -> Plot {
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
            // What is missing interrupts the line: nobody knows what it is there.
            let mut pieces: Vec<Vec<Mark>> = vec![Vec::new()];
            for point in &line.points {
                let at = x.at(f64::from(point.size));
                match (point.value.filter(|value| value.is_finite()), pieces.last_mut()) {
                    (Some(value), Some(piece)) => piece.push(Mark {
                        x: at,
                        y: y.at(value),
                        interval: point.interval.map(|(low, high)| (y.at(low), y.at(high))),
                        title: point.title.clone(),
                    }),
                    _ => {
                        plot.missing(line.style, at, point.title.clone());
                        pieces.push(Vec::new());
                    }
                }
            }
            let Some(last) = pieces.iter().flatten().last() else { continue };
            names.push((last.y, line.style, line.name.clone()));
            plot.marked_line(line.style, &pieces);
        }
        plot.names(right, names);
        plot
    }
}

/// A line in words, for those who do not see it.
fn about(line: &Line, number: impl Fn(f64) -> String) -> String {
    let values: Vec<f64> = line.points.iter().filter_map(|point| point.value).collect();
    let missing = match line.points.len() - values.len() {
        0 => String::new(),
        missing => format!(", {missing} missing"),
    };
    match values.as_slice() {
        [] => format!("{}: nothing{missing}", line.name),
        [only] => format!("{}: {}{missing}", line.name, number(*only)),
        [first, .., last] => {
            format!("{}: from {} to {}{missing}", line.name, number(*first), number(*last))
        }
    }
}
