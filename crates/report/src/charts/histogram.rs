//! Latencies counted: latency on x, counts on y in powers of ten, a step line for each thing that is compared.
//!
//! The convention is OSADL's (its latency plots of real-time systems): rare long latencies are what matters, and on an even
//! y axis nobody would see them.

use penstock_model::measurement::Histogram;

use super::{
    plot::{BOTTOM, LEFT, Mark, Plot, Style, TOP, WIDTH},
    scale::{Scale, Spread},
};

/// Latencies of one thing.
pub(crate) struct Latencies<'a> {
    /// How it looks.
    pub style: Style,
    /// What it is called.
    pub name: String,
    /// What was counted, in nanoseconds.
    pub counted: &'a Histogram,
    /// The longest latency in words.
    pub longest: String,
}

/// How wide a latency chart's frame is.
pub(crate) const RIGHT: f64 = WIDTH - 18.0;
/// Columns of a histogram: wide enough that no bucket at the long end is wider than a column (a bucket is at most 1.6 % of
/// its latency wide), so that nothing falls between two.
const COLUMNS: usize = 60;

/// The axis of latencies in nanoseconds that all of them fit on: even where the longest is near to the rest, powers of ten
/// where it is far away.
pub(crate) fn axis<'a>(all: impl IntoIterator<Item = &'a Histogram>) -> Scale {
    let (mut least, mut greatest, mut middle) = (f64::INFINITY, 0f64, 0f64);
    for counted in all {
        let Some((first, ..)) = counted.buckets().next() else { continue };
        least = least.min(first as f64);
        greatest = greatest.max(counted.quantile(1.0).unwrap_or(0) as f64);
        middle = middle.max(counted.quantile(0.5).unwrap_or(0) as f64);
    }
    let far = greatest > middle * 8.0 || greatest > least * 60.0;
    if far {
        Scale::new(Spread::Decades, least.max(1.0) / 1.1, greatest * 1.1, LEFT, RIGHT)
    } else {
        Scale::from_zero(greatest * 1.04, LEFT, RIGHT)
    }
}

/// What is drawn, in words.
pub(super) fn described(all: &[Latencies<'_>]) -> String {
    let one = |one: &Latencies<'_>| {
        format!("{}: {} latencies, the longest {}", one.name, one.counted.total(), one.longest)
    };
    all.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// The histograms over each other.
pub(crate) fn plot(
    id: String,
    title: String,
    x_label: String,
    x: &Scale,
    latency: impl Fn(f64) -> String,
    all: &[Latencies<'_>],
) -> Plot {
    let columns: Vec<Vec<u64>> = all.iter().map(|one| columns(one.counted, x)).collect();
    let most = columns.iter().flatten().copied().max().unwrap_or(1).max(10);
    // One latency alone must be seen: the axis begins below 1.
    let y = Scale::new(Spread::Decades, 0.7, most as f64 * 1.3, BOTTOM, TOP);
    let mut plot = Plot::new(id, title, described(all), RIGHT);
    plot.x_axis(x_label, x, latency);
    plot.y_axis("latencies counted".to_owned(), &y, super::scale::counted);
    for (one, columns) in all.iter().zip(&columns) {
        let longest = one.counted.quantile(1.0).unwrap_or(0) as f64;
        let last = columns.iter().rev().find(|count| **count > 0).copied().unwrap_or(1);
        let mark = Mark {
            x: x.at(longest),
            y: y.at(last as f64),
            interval: None,
            title: format!("{}: the longest is {}", one.name, one.longest),
        };
        plot.drawn_line(one.style, steps(columns, &y), Some(mark));
    }
    plot
}

/// How many latencies fall into each column.
fn columns(counted: &Histogram, x: &Scale) -> Vec<u64> {
    let mut columns = vec![0u64; COLUMNS];
    for (low, high, count) in counted.buckets() {
        let at = x.at((low as f64 + high as f64) / 2.0);
        let column = ((at - LEFT) / (RIGHT - LEFT) * COLUMNS as f64) as usize;
        let column = &mut columns[column.min(COLUMNS - 1)];
        *column = column.saturating_add(count);
    }
    columns
}

/// The tops of the columns that have something, joined where they stand beside each other. Lines down to the axis would make
/// a fence of the many columns of a long tail.
fn steps(columns: &[u64], y: &Scale) -> String {
    let width = (RIGHT - LEFT) / COLUMNS as f64;
    let mut line = String::new();
    let mut beside = false;
    for (place, count) in columns.iter().enumerate() {
        let (x, top) = (LEFT + place as f64 * width, y.at(*count as f64));
        match (*count > 0, beside) {
            (false, _) => {}
            (true, false) => line += &format!("M{x:.1} {top:.1}H{:.1}", x + width),
            (true, true) => line += &format!("V{top:.1}H{:.1}", x + width),
        }
        beside = *count > 0;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_is_in_one_column() {
        let mut counted = Histogram::new();
        for latency in (10_000..90_000).step_by(7) {
            counted.record(latency, 3).unwrap();
        }
        let x = axis([&counted]);
        assert_eq!(columns(&counted, &x).iter().sum::<u64>(), counted.total());
        let columns_of = columns(&counted, &x);
        let filled: Vec<usize> = (0..COLUMNS).filter(|place| columns_of[*place] > 0).collect();
        let (first, last) = (filled[0], filled[filled.len() - 1]);
        assert_eq!(filled.len(), last - first + 1, "a column between is empty: it is narrower than a bucket");
        counted.record(50_000_000, 1).unwrap();
        let x = axis([&counted]);
        assert_eq!(columns(&counted, &x).iter().sum::<u64>(), counted.total());
    }
}
