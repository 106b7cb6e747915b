//! The table.

use super::curve::{Curve, Quantity};

/// What grows with a larger exponent is worth a look.
const STRAIGHT: f64 = 1.15;

/// Prints it.
pub fn print(curves: &[Curve]) {
    let points = curves.iter().flat_map(|curve| &curve.points);
    let samples = points.map(|point| point.samples.len()).max().unwrap_or(0);
    println!(
        "The least of {samples}. Exponents are of what is more than at the least size: 1 is a straight line.\n"
    );
    println!("| by | what | least size | largest size | exponent, last three doublings | last doubling |");
    println!("|---|---|---|---|---|---|");
    for curve in curves {
        let points = curve.least();
        let (Some(first), Some(last)) = (points.first(), points.last()) else { continue };
        let unit = curve.quantity.unit();
        let shown = |(size, value): &(f64, f64)| format!("{}: {} {unit}", size, number(*value));
        let what = match curve.quantity {
            Quantity::CpuTime => curve.subject.clone(),
            Quantity::Memory => format!("{}, memory", curve.subject),
        };
        let (three, one) = match curve.exponents() {
            None => ("hardly grows".to_owned(), String::new()),
            Some(found) => {
                let steep = found.last_three > STRAIGHT || found.last > STRAIGHT;
                (
                    format!("{:.2}", found.last_three),
                    format!("{:.2}{}", found.last, if steep { " **steep**" } else { "" }),
                )
            }
        };
        let by = curve.axis.name();
        println!("| {by} | {what} | {} | {} | {three} | {one} |", shown(first), shown(last));
    }
}

fn number(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}
