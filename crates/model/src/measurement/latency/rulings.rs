//! The keys that rulings have in the JSON of latencies, which are others than in that of cells.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::{ExpectationResult, LatencyExpectation};
use crate::measurement::{Claim, Conclusion, Estimate};

/// What a line came out as.
#[derive(Serialize, JsonSchema)]
pub(super) struct ClaimResult<'a> {
    /// The line of `expect` that is judged.
    claim: &'a LatencyExpectation,
    /// The worst of its findings; without any it cannot be told.
    told: Conclusion,
    /// One for each series or pair of series that it means.
    findings: Vec<Finding<'a>>,
}

/// A line for one series, or for one pair of series.
#[derive(Serialize, JsonSchema)]
struct Finding<'a> {
    /// The series of the left side.
    series: &'a str,
    /// The series that it is compared with, for a ratio.
    #[schemars(default)]
    against: Option<&'a str>,
    /// What was seen, with its interval: the ratio, or the statistic in microseconds. `None` where nothing could be told, and for a
    /// maximum, which has no interval.
    #[schemars(default)]
    seen: Option<&'a Estimate>,
    /// How many latencies there were; 0 for a ratio.
    #[schemars(default)]
    n: u64,
    /// How many of them were too late; `None` where the histogram ends before that, and for a ratio.
    #[schemars(default)]
    late: Option<u64>,
    /// The longest of them in microseconds.
    #[schemars(default)]
    max: Option<f64>,
    /// What it came out as.
    told: Conclusion,
    /// Why it cannot be told, and how much more it would take; or of what it does not speak.
    #[schemars(default)]
    why: Option<&'a str>,
}

impl<'a> From<&'a Claim> for Finding<'a> {
    fn from(claim: &'a Claim) -> Finding<'a> {
        Finding {
            series: &claim.cell,
            against: claim.against.as_deref(),
            seen: claim.seen.as_ref(),
            n: claim.n,
            late: claim.late,
            max: claim.max,
            told: claim.told,
            why: claim.why.as_deref(),
        }
    }
}

/// Writes rulings with these keys.
pub(super) fn serialize<S: Serializer>(
    rulings: &[ExpectationResult<LatencyExpectation>],
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_seq(rulings.iter().map(|ruling| ClaimResult {
        claim: &ruling.expectation,
        told: ruling.told,
        findings: ruling.claims.iter().map(Finding::from).collect(),
    }))
}
