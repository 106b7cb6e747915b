//! Lines and marks in a frame with two axes: what all charts but the heat map are made of.

use std::fmt::Write;

use serde::Serialize;

use super::scale::{Scale, Tick};

/// The size of a chart in pixels of its own; the page shrinks it to the room there is.
pub(crate) const WIDTH: f64 = 480.0;
pub(crate) const HEIGHT: f64 = 300.0;
/// The frame within it. What is right of it is for the lines' names.
pub(crate) const LEFT: f64 = 58.0;
pub(crate) const TOP: f64 = 14.0;
pub(crate) const BOTTOM: f64 = 252.0;

/// How many colours with their shapes there are, and how many ways to draw a line; the style sheet has as many.
pub(crate) const COLOURS: usize = 7;
const DASHES: usize = 4;

/// How a line looks: never by colour alone, each colour has its own shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Style {
    /// Which colour and shape.
    pub colour: usize,
    /// Solid, dashed, dotted...
    pub dash: usize,
}

impl Style {
    /// The colour and shape at `colour`, drawn in the way at `dash`; both begin again where there are no more.
    pub(crate) fn new(colour: usize, dash: usize) -> Style {
        Style { colour: colour % COLOURS, dash: dash % DASHES }
    }

    fn class(self) -> String {
        format!("k{} d{}", self.colour, self.dash)
    }

    /// The shape around a point.
    fn marker(self, x: f64, y: f64) -> String {
        match self.colour {
            // Circle, square, triangle, diamond, cross, triangle upside down, bar.
            0 => format!("M{:.1} {y:.1}a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", x - 4.0),
            1 => format!("M{:.1} {:.1}h7v7h-7z", x - 3.5, y - 3.5),
            2 => format!("M{x:.1} {:.1}l4.6 8h-9.2z", y - 5.2),
            3 => format!("M{x:.1} {:.1}l5 5l-5 5l-5-5z", y - 5.0),
            4 => format!("M{:.1} {:.1}l3 3l3-3l2 2l-3 3l3 3l-2 2l-3-3l-3 3l-2-2l3-3l-3-3z", x - 3.0, y - 5.0),
            5 => format!("M{x:.1} {:.1}l4.6-8h-9.2z", y + 5.2),
            _ => format!("M{:.1} {:.1}h10v4h-10z", x - 5.0, y - 2.0),
        }
    }
}

/// What a line is called: for the list beside charts that share their lines.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Key {
    class: String,
    marker: String,
    /// The line's name.
    pub name: String,
    /// What there is to say about it.
    pub detail: String,
}

impl Key {
    pub(crate) fn new(style: Style, name: String, detail: String) -> Key {
        Key { class: style.class(), marker: style.marker(15.0, 7.0), name, detail }
    }
}

/// A chart as the template draws it; places and lengths are pixels, as text.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Plot {
    /// What its own names within the page begin with.
    id: String,
    title: String,
    about: String,
    width: String,
    height: String,
    left: String,
    right: String,
    middle: String,
    top: String,
    bottom: String,
    x_label: String,
    y_label: String,
    x_ticks: Vec<Label>,
    y_ticks: Vec<Label>,
    series: Vec<Series>,
    labels: Vec<Label>,
    /// Where something is missing; the text says why.
    unknown: Vec<Label>,
    /// Stretches of the x axis that stand out, behind everything.
    bands: Vec<Band>,
    /// From words down to the point that they speak of, whose place is the text.
    poles: Vec<Label>,
}

#[derive(Clone, Debug, Serialize)]
struct Band {
    x: String,
    width: String,
    height: String,
}

#[derive(Clone, Debug, Serialize)]
struct Label {
    x: String,
    y: String,
    text: String,
    class: String,
}

#[derive(Clone, Debug, Serialize)]
struct Series {
    class: String,
    line: String,
    whiskers: String,
    points: Vec<Point>,
}

#[derive(Clone, Debug, Serialize)]
struct Point {
    marker: String,
    title: String,
}

/// A point of a line, in pixels.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub x: f64,
    pub y: f64,
    /// The ends of its interval.
    pub interval: Option<(f64, f64)>,
    /// What there is to say about it.
    pub title: String,
}

impl Plot {
    /// An empty frame that ends at `right`.
    pub(crate) fn new(id: String, title: String, about: String, right: f64) -> Plot {
        Plot {
            id,
            title,
            about,
            width: short(WIDTH),
            height: short(HEIGHT),
            left: short(LEFT),
            right: short(right),
            middle: short((LEFT + right) / 2.0),
            top: short(TOP),
            bottom: short(BOTTOM),
            ..Plot::default()
        }
    }

    /// The axis below.
    pub(crate) fn x_axis(&mut self, label: String, scale: &Scale, text: impl Fn(f64) -> String) {
        self.x_label = label;
        let mut free = f64::NEG_INFINITY;
        for Tick { value, at } in scale.ticks() {
            let text = text(value);
            // A number that would stand on its neighbour is left out; the line stays.
            let half = text.chars().count() as f64 * 3.7;
            let text = if at - half < free { String::new() } else { text };
            if !text.is_empty() {
                free = at + half + 4.0;
            }
            self.x_ticks.push(Label { x: short(at), y: short(BOTTOM), text, class: String::new() });
        }
    }

    /// The axis at the left.
    pub(crate) fn y_axis(&mut self, label: String, scale: &Scale, text: impl Fn(f64) -> String) {
        self.y_label = label;
        self.y_ticks = (scale.ticks().into_iter())
            .map(|Tick { value, at }| Label {
                x: short(LEFT),
                y: short(at),
                text: text(value),
                class: String::new(),
            })
            .collect();
    }

    /// A stretch of the x axis that stands out, in pixels.
    pub(crate) fn band(&mut self, from: f64, to: f64) {
        let (x, width) = (short(from), short((to - from).max(0.5)));
        self.bands.push(Band { x, width, height: short(BOTTOM - TOP) });
    }

    /// A word below the x axis, in place of a number.
    pub(crate) fn x_word(&mut self, at: f64, text: &str) {
        let room = text.chars().count() as f64 * 3.7 + 16.0;
        for tick in &mut self.x_ticks {
            // A number that would stand on the word is left out.
            if tick.x.parse::<f64>().is_ok_and(|x| (x - at).abs() < room) {
                tick.text.clear();
            }
        }
        let (x, y) = (short(at), short(BOTTOM));
        self.x_ticks.push(Label { x, y, text: text.to_owned(), class: String::new() });
    }

    /// Words on poles that stand at points: the farther right, the lower, so that no words stand on another's pole.
    pub(crate) fn flags(&mut self, mut flags: Vec<(f64, f64, Style, String)>) {
        flags.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (place, (x, y, style, text)) in flags.into_iter().enumerate() {
            let top = TOP + 12.0 + place as f64 * 15.0;
            let wide = text.chars().count() as f64 * 7.0;
            let left = x + wide > WIDTH;
            let class = format!("flag k{}{}", style.colour, if left { " end" } else { "" });
            self.poles.push(Label { x: short(x), y: short(top - 9.0), text: short(y), class: class.clone() });
            let at = if left { x - 6.0 } else { x + 6.0 };
            self.labels.push(Label { x: short(at), y: short(top), text, class });
        }
    }

    /// A line through marks, interrupted between its pieces.
    pub(crate) fn marked_line(&mut self, style: Style, pieces: &[Vec<Mark>]) {
        let mut whiskers = String::new();
        let marks = || pieces.iter().flatten();
        for mark in marks() {
            if let Some((low, high)) = mark.interval.filter(|(low, high)| (high - low).abs() > 1.0) {
                let (x, low, high) = (mark.x, low.max(high), high.min(low));
                // Writing to a string cannot fail.
                let _ = write!(
                    whiskers,
                    "M{x:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h6M{:.1} {high:.1}h6",
                    x - 3.0,
                    x - 3.0
                );
            }
        }
        let marker = |mark: &Mark| Point { marker: style.marker(mark.x, mark.y), title: mark.title.clone() };
        self.series.push(Series {
            class: style.class(),
            line: pieces.iter().map(|piece| path(piece.iter().map(|mark| (mark.x, mark.y)))).collect(),
            whiskers,
            points: marks().map(marker).collect(),
        });
    }

    /// A question mark above the x axis where a value should be, over those that stand there already.
    pub(crate) fn missing(&mut self, style: Style, x: f64, title: String) {
        let x = short(x);
        let beneath = self.unknown.iter().filter(|label| label.x == x).count();
        let y = short(BOTTOM - 5.0 - beneath as f64 * 13.0);
        self.unknown.push(Label { x, y, text: title, class: format!("k{}", style.colour) });
    }

    /// A line of its own shape, with one mark where there is something to point at.
    pub(crate) fn drawn_line(&mut self, style: Style, line: String, mark: Option<Mark>) {
        let points = mark.map(|mark| Point { marker: style.marker(mark.x, mark.y), title: mark.title });
        self.series.push(Series {
            class: style.class(),
            line,
            whiskers: String::new(),
            points: points.into_iter().collect(),
        });
    }

    /// The lines' names at their right ends, moved apart where they would stand on each other.
    pub(crate) fn names(&mut self, right: f64, mut names: Vec<(f64, Style, String)>) {
        const APART: f64 = 14.0;
        names.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut places: Vec<f64> = Vec::new();
        for (wanted, ..) in &names {
            let free = places.last().map_or(TOP, |last| last + APART);
            places.push(wanted.max(free));
        }
        // What was pushed out below goes up again, and takes its neighbours along.
        let mut free = BOTTOM + 4.0;
        for place in places.iter_mut().rev() {
            *place = place.min(free);
            free = *place - APART;
        }
        for (place, (_, style, text)) in places.into_iter().zip(names) {
            self.labels.push(Label {
                x: short(right + 8.0),
                y: short(place + 4.0),
                text,
                class: format!("k{}", style.colour),
            });
        }
    }
}

/// A line through points, straight from one to the next.
pub(crate) fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (place, (x, y)) in points.enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(path, "{}{x:.1} {y:.1}", if place == 0 { 'M' } else { 'L' });
    }
    path
}

/// A length without a fraction that nobody sees.
fn short(length: f64) -> String {
    let text = format!("{length:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}
