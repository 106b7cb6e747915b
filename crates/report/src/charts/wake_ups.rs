//! Latencies of wake-ups: counted in microseconds, as the part that takes longer, and over time.
//!
//! The first follows OSADL's convention (its latency plots of real-time systems): latency evenly on x, counts in powers of ten on
//! y, a step line for each thing, its longest latency written beside it. What is past the end of the axis stands in a column of its
//! own at the right, so that no spike is out of sight.

use penstock_model::measurement::latency::Bins;

use super::{
    plot::{BOTTOM, LEFT, Mark, Plot, Style, TOP, WIDTH},
    scale::{Scale, Spread, counted},
};

/// How wide the frame is.
const RIGHT: f64 = WIDTH - 18.0;
/// Where the axis of latencies ends, and the column of what is longer stands.
const END: f64 = RIGHT - 34.0;
const LONGER: f64 = RIGHT - 22.0;
/// Columns of a histogram at most: each a pixel wide.
const COLUMNS: u32 = 370;
/// Columns of the chart over time at most.
const MOMENTS: usize = 240;

/// Wake-ups of one thing.
pub(crate) struct WakeUps {
    /// How it looks.
    pub style: Style,
    /// What it is called.
    pub name: String,
    /// What was counted.
    pub bins: Bins,
    /// The longest in microseconds.
    pub max: f64,
    /// The longest in words.
    pub longest: String,
    /// What was counted: "wake-ups", or "loops" of a thread that never sleeps.
    pub counted: &'static str,
}

/// One block of one thing, for the chart over time.
pub(crate) struct Moment {
    /// When it began and ended, in seconds.
    pub from: f64,
    /// When it ended.
    pub to: f64,
    /// Its longest latency in microseconds.
    pub max: f64,
    /// The same in words.
    pub longest: String,
}

/// The blocks of one thing.
pub(crate) struct Course {
    /// How it looks.
    pub style: Style,
    /// What it is called.
    pub name: String,
    /// Its blocks, in the order of time.
    pub moments: Vec<Moment>,
}

/// Where the axis of latencies ends in microseconds: at the longest of all where that is near to the rest, else where the most of
/// each is still told apart. The rest is in the column of what is longer.
pub(crate) fn end(all: &[WakeUps]) -> u32 {
    let longest = all.iter().map(|one| one.max).fold(0.0, f64::max);
    let limits = all.iter().filter(|one| one.bins.over() > 0).map(|one| one.bins.limit()).min();
    let limit = limits.unwrap_or(u32::MAX);
    // 1 in 1000 of the latest of them is within, three times over.
    let usual = all.iter().filter_map(|one| {
        let n = one.bins.total();
        one.bins.ranked(n - n / 1000).or(Some(one.bins.limit()))
    });
    let usual = usual.max().unwrap_or(0).saturating_mul(3).max(60);
    let wanted = if longest < f64::from(usual) * 1.5 { longest as u32 + 1 } else { usual };
    wanted.min(limit).max(10)
}

/// The histograms over each other, up to `end` microseconds.
pub(crate) fn histogram(id: String, label: String, end: u32, all: &[WakeUps]) -> Plot {
    let each = end.div_ceil(COLUMNS).max(1);
    let title = match each {
        1 => "How many woke how late, in bins of 1 µs".to_owned(),
        each => format!("How many woke how late, in bins of {each} µs"),
    };
    let x = Scale::new(Spread::Linear, 0.0, f64::from(end), LEFT, END);
    let columns: Vec<(Vec<u64>, u64)> = all.iter().map(|one| columns(&one.bins, end, each)).collect();
    let counts = || columns.iter().flat_map(|(columns, longer)| columns.iter().chain([longer])).copied();
    let most = counts().max().unwrap_or(1).max(10);
    // One wake-up alone must be seen: the axis begins below 1.
    let y = Scale::new(Spread::Decades, 0.7, most as f64 * 1.5, BOTTOM, TOP);
    let mut plot = Plot::new(id, title, described(all), RIGHT);
    plot.x_axis(label, &x, |value| format!("{value:.0}"));
    if columns.iter().any(|(_, longer)| *longer > 0) {
        plot.band(END + 4.0, RIGHT);
        plot.x_word(LONGER + 5.0, "longer");
    }
    let what = all.first().map_or("wake-ups", |one| one.counted);
    plot.y_axis(format!("{what} counted"), &y, counted);
    let mut flags = Vec::new();
    for (one, (columns, longer)) in all.iter().zip(&columns) {
        let mut line = steps(columns, &x, &y, each);
        let title = format!("{}: the longest is {}", one.name, one.longest);
        let at = if *longer > 0 {
            line += &format!("M{:.1} {:.1}H{:.1}", END + 6.0, y.at(*longer as f64), RIGHT - 2.0);
            (LONGER + 5.0, y.at(*longer as f64))
        } else {
            let last = columns.iter().rev().find(|count| **count > 0).copied().unwrap_or(1);
            (x.at(one.max), y.at(last as f64))
        };
        plot.drawn_line(one.style, line, Some(Mark { x: at.0, y: at.1, interval: None, title }));
        let text = match longer {
            0 => format!("max {}", one.longest),
            longer => format!("{} longer, max {}", counted(*longer as f64), one.longest),
        };
        flags.push((at.0, at.1, one.style, text));
    }
    plot.flags(flags);
    plot
}

/// How many wake-ups each column has, and how many are longer than the last.
fn columns(bins: &Bins, end: u32, each: u32) -> (Vec<u64>, u64) {
    let mut columns = vec![0u64; end.div_ceil(each) as usize];
    let mut longer = bins.over();
    for (bin, count) in bins.bins() {
        match columns.get_mut((bin / each) as usize).filter(|_| bin < end) {
            Some(column) => *column = column.saturating_add(count),
            None => longer = longer.saturating_add(count),
        }
    }
    (columns, longer)
}

/// The tops of the columns that have something, joined where they stand beside each other; one that stands alone goes down to the
/// axis, as a bin one pixel wide could not be seen otherwise.
fn steps(columns: &[u64], x: &Scale, y: &Scale, each: u32) -> String {
    let mut line = String::new();
    let at = |place: usize| x.at(place as f64 * f64::from(each));
    let filled =
        |place: Option<usize>| place.and_then(|place| columns.get(place)).is_some_and(|count| *count > 0);
    for (place, count) in columns.iter().enumerate() {
        if *count == 0 {
            continue;
        }
        let (from, to, top) = (at(place), at(place + 1), y.at(*count as f64));
        let (before, after) = (filled(place.checked_sub(1)), filled(Some(place + 1)));
        match (before, after) {
            (true, _) => line += &format!("V{top:.1}H{to:.1}"),
            (false, true) => line += &format!("M{from:.1} {BOTTOM}V{top:.1}H{to:.1}"),
            (false, false) => line += &format!("M{from:.1} {BOTTOM}V{top:.1}H{to:.1}V{BOTTOM}"),
        }
    }
    line
}

/// What is drawn, in words.
fn described(all: &[WakeUps]) -> String {
    let one = |one: &WakeUps| {
        format!("{}: {} {}, the longest {}", one.name, one.bins.total(), one.counted, one.longest)
    };
    all.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Which part woke later than so much, over each other: powers of ten on x where the longest is far from the rest.
pub(crate) fn ccdf(id: String, label: String, all: &[WakeUps], time: impl Fn(f64) -> String) -> Plot {
    let most = all.iter().map(|one| one.bins.total()).max().unwrap_or(1).max(10);
    let longest = all.iter().map(|one| one.max).fold(1.0, f64::max);
    let first = all.iter().filter_map(|one| one.bins.bins().next().map(|(bin, _)| f64::from(bin)));
    let least = first.fold(f64::INFINITY, f64::min).max(0.8);
    let middle = all.iter().filter_map(|one| one.bins.ranked(one.bins.total().div_ceil(2)));
    let far = longest > f64::from(middle.max().unwrap_or(0)) * 8.0;
    let x = match far {
        true => Scale::new(Spread::Decades, least / 1.1, longest * 1.15, LEFT, RIGHT - 12.0),
        false => Scale::from_zero(longest * 1.04, LEFT, RIGHT - 12.0),
    };
    // The longest of all stands at one of so many, on the frame's lower edge.
    let y = Scale::new(Spread::Decades, 0.8 / most as f64, 1.0, BOTTOM, TOP);
    let mut plot = Plot::new(id, "Which part woke later than that".to_owned(), described(all), RIGHT);
    plot.x_axis(label, &x, time);
    plot.y_axis("part that woke later".to_owned(), &y, part);
    for one in all {
        let total = one.bins.total();
        if total == 0 {
            continue;
        }
        let least = 1.0 / total as f64;
        let title = format!("{}: the longest of {total} is {}", one.name, one.longest);
        let mark = Mark { x: x.at(one.max), y: y.at(least), interval: None, title };
        let mut line = format!("M{:.1} {:.1}", x.at(0.0), y.at(1.0));
        let mut last = f64::NEG_INFINITY;
        // A bin's latencies are over when the next microsecond begins.
        for (bin, share) in one.bins.reaching() {
            let (here, down) = (x.at(f64::from(bin)), y.at(share));
            if here - last < 0.3 && share < 1.0 {
                continue;
            }
            line += &format!("H{here:.1}V{down:.1}");
            last = here;
        }
        if one.bins.over() > 0 {
            let (here, down) =
                (x.at(f64::from(one.bins.limit())), y.at(one.bins.over() as f64 / total as f64));
            // Nothing is known between the last bin and the longest but how many there are.
            line += &format!("H{here:.1}V{down:.1}");
        }
        line += &format!("H{:.1}V{:.1}", x.at(one.max), y.at(least));
        plot.drawn_line(one.style, line, Some(mark));
    }
    plot
}

/// A fraction in words that its reader counts in: "1/1k" is one of a thousand.
fn part(fraction: f64) -> String {
    match (1.0 / fraction).round() {
        1.0 => "all".to_owned(),
        few if few <= 10.0 => format!("1/{few:.0}"),
        many => format!("1/{}", counted(many)),
    }
}

/// The longest latency of each block over time; `loaded` are stretches of time in seconds during which something else ran.
pub(crate) fn over_time(
    id: String,
    x_label: String,
    y_label: String,
    all: &[Course],
    loaded: &[(f64, f64)],
    time: impl Fn(f64) -> String,
) -> Plot {
    let moments = || all.iter().flat_map(|course| &course.moments);
    let end = moments().map(|moment| moment.to).fold(0.0, f64::max);
    let least = moments().map(|moment| moment.max).fold(f64::INFINITY, f64::min).max(1.0);
    let most = moments().map(|moment| moment.max).fold(10.0, f64::max);
    let right = RIGHT;
    let unit = time_unit(end);
    let x = Scale::new(Spread::Linear, 0.0, end / unit.0, LEFT, right);
    let y = Scale::new(Spread::Decades, least / 1.3, most * 1.4, BOTTOM, TOP);
    let about = all.iter().map(|course| {
        let worst = course.moments.iter().max_by(|a, b| a.max.total_cmp(&b.max));
        let worst = worst.map(|worst| worst.longest.clone()).unwrap_or_default();
        format!("{}: {} blocks, the longest of any {worst}", course.name, course.moments.len())
    });
    let about = about.collect::<Vec<_>>().join("; ");
    let mut plot = Plot::new(id, "The longest of each block, over time".to_owned(), about, right);
    for (from, to) in loaded {
        plot.band(x.at(from / unit.0), x.at(to / unit.0));
    }
    plot.x_axis(format!("{x_label} ({})", unit.1), &x, crate::shown::trimmed);
    plot.y_axis(y_label, &y, time);
    for course in all {
        let each = course.moments.len().div_ceil(MOMENTS).max(1);
        let marks = course.moments.chunks(each).filter_map(|chunk| {
            let worst = chunk.iter().max_by(|a, b| a.max.total_cmp(&b.max))?;
            let middle = (worst.from + worst.to) / 2.0 / unit.0;
            let title = format!("{}: {}", course.name, worst.longest);
            Some(Mark { x: x.at(middle), y: y.at(worst.max), interval: None, title })
        });
        plot.marked_line(course.style, &[marks.collect()]);
    }
    plot
}

/// In what time is written on an axis that is so many seconds long.
fn time_unit(seconds: f64) -> (f64, &'static str) {
    match seconds {
        s if s >= 3.0 * 3600.0 => (3600.0, "h"),
        s if s >= 300.0 => (60.0, "min"),
        _ => (1.0, "s"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn one(counts: &[(u32, u64)], limit: u32, over: u64, max: f64) -> WakeUps {
        let counts: BTreeMap<u32, u64> = counts.iter().copied().collect();
        let total = counts.values().sum::<u64>() + over;
        let bins = Bins::new(counts, limit, total).unwrap();
        WakeUps {
            style: Style::new(0, 0),
            name: "x".into(),
            bins,
            max,
            longest: format!("{max} µs"),
            counted: "wake-ups",
        }
    }

    #[test]
    fn every_wake_up_is_in_one_column_or_beside_them() {
        let far = one(&[(3, 1000), (5, 40), (380, 1)], 400, 7, 12_345.0);
        for end in [4, 10, 381, 400] {
            for each in [1, 3] {
                let (columns, longer) = columns(&far.bins, end, each);
                assert_eq!(columns.iter().sum::<u64>() + longer, far.bins.total(), "{end} {each}");
            }
        }
    }

    #[test]
    fn the_axis_shows_what_is_usual_and_never_past_the_bins() {
        assert_eq!(end(&[one(&[(3, 100_000), (40, 1)], 400, 0, 40.0)]), 41);
        assert_eq!(end(&[one(&[(3, 100_000), (9000, 1)], 10_000, 0, 9000.0)]), 60);
        assert_eq!(end(&[one(&[(3, 1000)], 20, 5, 9000.0)]), 20);
        assert_eq!(end(&[]), 10);
        assert_eq!(end(&[one(&[], 400, 3, 500.0)]), 400);
    }
}
