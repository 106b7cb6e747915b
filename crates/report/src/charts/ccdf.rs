//! How many latencies are longer than so much (the complementary cumulative distribution), in powers of ten.

use super::{
    histogram::{Latencies, RIGHT, described},
    plot::{BOTTOM, Mark, Plot, TOP},
    scale::{Scale, Spread},
};

/// The curves over each other.
pub(crate) fn plot(
    id: String,
    title: String,
    x_label: String,
    x: &Scale,
    latency: impl Fn(f64) -> String,
    all: &[Latencies<'_>],
) -> Plot {
    let most = all.iter().map(|one| one.counted.total()).max().unwrap_or(1).max(10);
    // The longest of all stands at one of so many, on the frame's lower edge.
    let y = Scale::new(Spread::Decades, 0.8 / most as f64, 1.0, BOTTOM, TOP);
    let mut plot = Plot::new(id, title, described(all), RIGHT);
    plot.x_axis(x_label, x, latency);
    plot.y_axis("part that takes longer".to_owned(), &y, part);
    for one in all {
        let total = one.counted.total();
        if total == 0 {
            continue;
        }
        let longest = one.counted.quantile(1.0).unwrap_or(0) as f64;
        let mark = Mark {
            x: x.at(longest),
            y: y.at(1.0 / total as f64),
            interval: None,
            title: format!("{}: the longest of {total} is {}", one.name, one.longest),
        };
        plot.drawn_line(one.style, curve(one, x, &y), Some(mark));
    }
    plot
}

/// A fraction in words that its reader counts in: "1 in 1,000" is one of a thousand.
fn part(fraction: f64) -> String {
    let one_in = (1.0 / fraction).round();
    match one_in {
        1.0 => "all".to_owned(),
        few if few <= 10.0 => format!("1 in {few:.0}"),
        many => format!("1 in {}", super::scale::counted(many)),
    }
}

/// A step at each latency where the curve falls by half a pixel or more.
fn curve(one: &Latencies<'_>, x: &Scale, y: &Scale) -> String {
    let mut line = String::new();
    let mut at = (f64::NEG_INFINITY, y.at(1.0));
    let least = 1.0 / one.counted.total() as f64;
    for (nanoseconds, longer) in one.counted.longer_than() {
        let (here, down) = (x.at(nanoseconds as f64), y.at(longer.max(least)));
        if line.is_empty() {
            line = format!("M{:.1} {:.1}", x.at(0.0), at.1);
        } else if here - at.0 < 1.0 && (down - at.1).abs() < 1.0 && longer > 0.0 {
            continue;
        }
        line += &format!("H{here:.1}V{down:.1}");
        at = (here, down);
    }
    line
}
