//! One thing that was measured at several sizes, and how it grows.

use serde::{Deserialize, Serialize};

use super::choice::Axis;

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// User and system time, in milliseconds.
    CpuTime,
    /// Resident memory, in MB: at its peak, but for a switch that goes on running.
    Memory,
}

impl Quantity {
    pub const ALL: [Quantity; 2] = [Quantity::CpuTime, Quantity::Memory];

    /// Its unit.
    pub fn unit(self) -> &'static str {
        match self {
            Quantity::CpuTime => "ms",
            Quantity::Memory => "MB",
        }
    }
}

/// A curve.
pub struct Curve {
    pub axis: Axis,
    /// What was run.
    pub subject: String,
    pub quantity: Quantity,
    /// By size.
    pub points: Vec<Point>,
}

/// All samples of one size.
#[derive(Debug, Serialize, Deserialize)]
pub struct Point {
    pub size: u32,
    pub samples: Vec<f64>,
}

/// What grows by less than this part of what it is at the least size has no exponent that means anything.
const FLAT: f64 = 0.5;

/// The exponents of a curve, where 1 is a straight line: those of what it has more than at the least size, since a process takes some
/// milliseconds and megabytes whatever it is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exponents {
    /// Over the last three doublings, by least squares.
    pub last_three: f64,
    /// Over the last doubling.
    pub last: f64,
}

impl Curve {
    /// The least sample of each size: whatever else a machine does only adds to it.
    pub fn least(&self) -> Vec<(f64, f64)> {
        let least = |samples: &[f64]| samples.iter().copied().fold(f64::INFINITY, f64::min);
        self.points.iter().map(|point| (f64::from(point.size), least(&point.samples))).collect()
    }

    /// How it grows at its end; `None` where it hardly does.
    pub fn exponents(&self) -> Option<Exponents> {
        exponents(&self.least())
    }
}

fn exponents(points: &[(f64, f64)]) -> Option<Exponents> {
    let (_, base) = *points.first()?;
    let (_, end) = *points.last()?;
    if end - base < base * FLAT || points.len() < 5 {
        return None;
    }
    let added = |(size, value): &(f64, f64)| (size.ln(), (value - base).max(1e-6).ln());
    let last: Vec<(f64, f64)> = points[points.len() - 4..].iter().map(added).collect();
    Some(Exponents { last_three: slope(&last), last: slope(&last[2..]) })
}

/// The slope of the line with the least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let mean = |part: fn(&(f64, f64)) -> f64| points.iter().map(part).sum::<f64>() / points.len() as f64;
    let (x, y) = (mean(|(x, _)| *x), mean(|(_, y)| *y));
    let above: f64 = points.iter().map(|(at, value)| (at - x) * (value - y)).sum();
    above / points.iter().map(|(at, _)| (at - x).powi(2)).sum::<f64>()
}
