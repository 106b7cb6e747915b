//! What the client prints: one JSON object.
//!
//! Times are nanoseconds. Version 1 has these keys, each always there and no other: those of [`Outcome`] and of what is in
//! it. `requested_rate` and `late` are `null` in a closed loop; `latency` is `null` when nothing was received, and
//! `histogram` is empty then.

use penstock_model::measurement::{Histogram, Load};
use serde::{Deserialize, Serialize};

/// The version of this form. It grows when a reader of the old form would misread the new one.
pub const VERSION: u32 = 1;

/// A request that leaves this much after its time counts as late, in nanoseconds.
pub const LATE: u64 = 100_000;

/// What a run of the client came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// The version of this form: [`VERSION`].
    pub penstock_probe: u32,
    /// This program's version.
    pub program: String,
    /// What decided when a request left.
    pub load: Load,
    /// Bytes of a request and of its answer.
    pub size: u32,
    /// How long requests were sent, in seconds.
    pub seconds: f64,
    /// How many a second were asked for.
    pub requested_rate: Option<f64>,
    /// How many a second were sent.
    pub achieved_rate: f64,
    /// Whether the server answered before the first request.
    pub greeted: bool,
    /// Requests that the kernel took.
    pub sent: u64,
    /// Requests that were answered in time. Only they are in the histogram.
    pub received: u64,
    /// Requests that were sent and not answered in time: `sent` - `received`.
    pub lost: u64,
    /// Requests that were answered too late; lost ones.
    pub overdue: u64,
    /// Requests whose time came when there was no time left to send them: the sender was too slow for the rate.
    pub unsent: u64,
    /// Requests that the kernel did not take.
    pub failed: u64,
    /// How often the kernel told that the other end, or a router, refused; greetings counted too.
    pub refused: u64,
    /// Answers that came a second time.
    pub duplicates: u64,
    /// Datagrams that are nobody's answer here.
    pub foreign: u64,
    /// What the kernel said first when it refused or did not take one.
    pub error: Option<String>,
    /// CPU time of the client while it sent, its system calls included, in percent of one CPU.
    pub cpu_percent: f64,
    /// The sender's own error.
    pub late: Option<Late>,
    /// Latencies of the requests that were received.
    pub latency: Option<Latency>,
    /// The same, counted.
    pub histogram: Histogram,
}

/// How late an open loop's requests left: the sender's own error, which is part of every latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Late {
    /// How long before a request's time the sender woke up, to wait out the rest without sleeping: how late this machine's
    /// timers mostly are, measured before the first request.
    pub margin_ns: u64,
    /// How many left more than [`LATE`] after their time.
    pub sends: u64,
    /// The median of how late requests left, in nanoseconds.
    pub p50_ns: u64,
    /// The 99th percentile of how late requests left, in nanoseconds.
    pub p99_ns: u64,
    /// How late the latest request left, in nanoseconds.
    pub max_ns: u64,
}

/// Latencies: from the time at which a request should have left (in a closed loop: when it left) to the time at which its
/// answer was in the client's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// The shortest latency, in nanoseconds.
    pub min_ns: u64,
    /// The mean latency, in whole nanoseconds, rounded down.
    pub mean_ns: u64,
    /// The longest latency, in nanoseconds.
    pub max_ns: u64,
}
