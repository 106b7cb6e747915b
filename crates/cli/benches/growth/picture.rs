//! The curves as pictures: one file for each kind of size, with time beside memory.

use std::{fs, path::Path};

use penstock_report::{LogChart, LogLine, drawing};

use super::{
    choice::Axis,
    curve::{Curve, Quantity},
};

/// Writes `growth-vfs.svg` and so on to `target/`, or to `docs/pictures/`.
pub fn draw(curves: &[Curve], docs: bool) {
    let folder = if docs { "docs/pictures" } else { "target" };
    let mut axes: Vec<Axis> = curves.iter().map(|curve| curve.axis).collect();
    axes.dedup();
    for axis in axes {
        let charts = Quantity::ALL.map(|quantity| {
            let shown = |curve: &&Curve| curve.axis == axis && curve.quantity == quantity;
            chart(axis, quantity, curves.iter().filter(shown))
        });
        let name = format!("{folder}/growth-{}.svg", axis.name());
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(&name);
        fs::write(path, drawing(&charts)).expect("the picture is written");
        println!("picture: {name}");
    }
}

fn chart<'a>(axis: Axis, quantity: Quantity, curves: impl Iterator<Item = &'a Curve>) -> LogChart {
    let mut lines: Vec<LogLine> = curves
        .map(|curve| LogLine { name: curve.subject.clone(), points: curve.least(), guide: false })
        .collect();
    if quantity == Quantity::CpuTime {
        lines.extend(as_the_size(&lines));
    }
    let (id, title, y_label) = match quantity {
        Quantity::CpuTime => ("time", "CPU time", "ms"),
        Quantity::Memory => ("memory", "Memory", "MB"),
    };
    LogChart {
        id: id.to_owned(),
        title: title.to_owned(),
        x_label: axis.label().to_owned(),
        y_label: y_label.to_owned(),
        lines,
    }
}

/// A line of slope 1 that ends below the end of the steepest, for comparison, over the part of the chart that it does not widen.
fn as_the_size(lines: &[LogLine]) -> Option<LogLine> {
    let points = || lines.iter().flat_map(|line| &line.points).filter(|(_, value)| *value > 0.0);
    let lowest = points().map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
    let ends = lines.iter().filter_map(|line| line.points.last());
    let (size, most) = ends.copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let end = most * 0.6;
    let begin = size * (lowest / end).max(1.0 / size);
    Some(LogLine {
        name: "as the size".to_owned(),
        points: vec![(begin, end * begin / size), (size, end)],
        guide: true,
    })
}
