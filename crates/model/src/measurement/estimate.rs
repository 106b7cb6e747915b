//! A value with its interval.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A value with its interval. All three are finite, and `low <= value <= high`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "Raw")]
pub struct Estimate {
    value: f64,
    low: f64,
    high: f64,
    confidence: f64,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Raw {
    value: f64,
    low: f64,
    high: f64,
    confidence: f64,
}

impl TryFrom<Raw> for Estimate {
    type Error = String;

    fn try_from(raw: Raw) -> Result<Estimate, String> {
        Estimate::new(raw.value, raw.low, raw.high, raw.confidence)
            .ok_or_else(|| format!("{} is not between {} and {}", raw.value, raw.low, raw.high))
    }
}

impl Estimate {
    /// `value` between `low` and `high`, which hold the true value with this confidence (0.95). `None` when one of them is
    /// not finite, they are out of order, or the confidence is not between 0 and 1. A bootstrap interval that leaves its
    /// own value out is widened by the caller.
    pub fn new(value: f64, low: f64, high: f64, confidence: f64) -> Option<Estimate> {
        let finite = value.is_finite() && low.is_finite() && high.is_finite();
        let ordered = low <= value && value <= high;
        (finite && ordered && confidence > 0.0 && confidence < 1.0).then_some(Estimate {
            value,
            low,
            high,
            confidence,
        })
    }

    /// The value: a median, or a ratio of medians.
    pub fn value(&self) -> f64 {
        self.value
    }

    /// The lower end of the interval.
    pub fn low(&self) -> f64 {
        self.low
    }

    /// The upper end of the interval.
    pub fn high(&self) -> f64 {
        self.high
    }

    /// How often an interval made like this holds the true value.
    pub fn confidence(&self) -> f64 {
        self.confidence
    }

    /// Whether the interval holds `value`.
    pub fn spans(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// The farther end's distance over the value; `None` when the value is 0.
    pub fn relative_half_width(&self) -> Option<f64> {
        let width = (self.high - self.value).max(self.value - self.low) / self.value.abs();
        width.is_finite().then_some(width)
    }

    /// The same through a function that keeps the order.
    pub(super) fn map_increasing(&self, f: impl Fn(f64) -> f64) -> Estimate {
        Estimate { value: f(self.value), low: f(self.low), high: f(self.high), confidence: self.confidence }
    }

    /// The same through a function that turns the order around.
    pub(super) fn map_decreasing(&self, f: impl Fn(f64) -> f64) -> Estimate {
        Estimate { value: f(self.value), low: f(self.high), high: f(self.low), confidence: self.confidence }
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match f.precision() {
            Some(digits) => {
                write!(f, "{:.digits$} [{:.digits$}, {:.digits$}]", self.value, self.low, self.high)
            }
            None => write!(f, "{} [{}, {}]", self.value, self.low, self.high),
        }
    }
}
