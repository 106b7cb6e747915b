//! Which cells, and what of them, one side of an `expect:` line means.

use std::fmt;

use super::{
    Measurement, Metric, Subject,
    cell::{self, EndKind, Load, Mix, Network, PathKind, Pattern, Storage},
};
use crate::{ByteSize, GuestName, verdict::Vantage};

/// Which cells one side of an `expect:` line means. What is `None` is left open: every cell that has the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// `pf-pf`, `vf-vf across`, `vf-vf inside`, `guest-host`, `bridge`, `bridge across`, and those that begin
    /// with `vm`.
    pub path: Option<PathKind>,
    /// `udp` (true) or `tcp` (false).
    pub udp: Option<bool>,
    /// `stream` (true) or `rr` (false).
    pub stream: Option<bool>,
    /// `open` (true) or `closed` (false) loop.
    pub open: Option<bool>,
    /// `sequential` or `random`.
    pub pattern: Option<Pattern>,
    /// `read`, `write` or `mixed`.
    pub mix: Option<Mix>,
    /// Storage on the `host` (true) or in a `guest` (false).
    pub host: Option<bool>,
    /// Message or block size.
    pub size: Option<ByteSize>,
    /// `in NAME`: at least one end is in this guest.
    pub guest: Option<GuestName>,
    /// What of them.
    pub metric: Option<Metric>,
}

impl Selector {
    /// Whether it names something of storage only.
    pub fn says_storage(&self) -> bool {
        let metric = matches!(self.metric, Some(Metric::Iops | Metric::Bandwidth));
        self.pattern.is_some() || self.mix.is_some() || self.host.is_some() || metric
    }

    /// Whether it names something of the network only.
    pub fn says_network(&self) -> bool {
        let metric = matches!(
            self.metric,
            Some(
                Metric::Throughput
                    | Metric::Sent
                    | Metric::Loss
                    | Metric::Jitter
                    | Metric::Transactions
                    | Metric::GuestCpuPerGbit
                    | Metric::HostCpuPerGbit
                    | Metric::GuestInstructionsPerFrame
                    | Metric::HostInstructionsPerFrame
            )
        );
        let words = [self.udp, self.stream, self.open].iter().any(Option::is_some);
        self.path.is_some() || words || metric
    }

    /// Whether it means this measurement. The metric counts: latency is told by request and response, throughput by
    /// streams.
    pub fn matches(&self, measurement: &Measurement) -> bool {
        match &measurement.subject {
            Subject::Network(network) => !self.says_storage() && self.matches_network(network),
            Subject::Storage(storage) => !self.says_network() && self.matches_storage(storage),
        }
    }

    fn matches_network(&self, network: &Network) -> bool {
        let stream = self.stream.or_else(|| self.metric.and_then(|metric| of_streams(metric, self.open)));
        let guests = [&network.client, &network.server].map(|end| cell::guest_of(&end.place));
        self.path.is_none_or(|path| path == network.path)
            && (network.path.is_of_vm_nic() || !self.metric.is_some_and(Metric::is_cost))
            && self.udp.is_none_or(|udp| udp == network.protocol.is_udp())
            && stream.is_none_or(|stream| stream == network.protocol.is_stream())
            && self.open.is_none_or(|open| open == matches!(network.load, Load::Open { .. }))
            && self.size.is_none_or(|size| size.0 == u64::from(network.size))
            && self.guest.as_ref().is_none_or(|guest| guests.contains(&Some(guest)))
    }

    fn matches_storage(&self, storage: &Storage) -> bool {
        self.pattern.is_none_or(|pattern| pattern == storage.pattern)
            && self.mix.is_none_or(|mix| mix == storage.mix)
            && self.host.is_none_or(|host| host == (storage.kind == EndKind::Host))
            && self.size.is_none_or(|size| size.0 == u64::from(storage.block))
            && self.guest.as_ref().is_none_or(|guest| storage.place == Vantage::Guest(guest.clone()))
    }
}

/// Whether a metric is told by streams (true), by request and response (false), or by both. What is lost an open loop tells too.
fn of_streams(metric: Metric, open: Option<bool>) -> Option<bool> {
    match metric {
        Metric::Loss => Some(open != Some(true)),
        Metric::Throughput
        | Metric::Sent
        | Metric::Jitter
        | Metric::GuestCpuPerGbit
        | Metric::HostCpuPerGbit
        | Metric::GuestInstructionsPerFrame
        | Metric::HostInstructionsPerFrame => Some(true),
        Metric::LocalCpu | Metric::RemoteCpu => None,
        _ => Some(false),
    }
}

/// Whether two measurements differ in nothing but where they were made: the ones that a ratio may be made of. `size`:
/// whether the sizes must be the same too.
pub(super) fn comparable(one: &Measurement, other: &Measurement, size: bool) -> bool {
    let alike = match (&one.subject, &other.subject) {
        (Subject::Network(a), Subject::Network(b)) => {
            let path = a.path.is_bridge() || b.path.is_bridge();
            let places = |n: &Network| {
                let mut places = [n.client.place.clone(), n.server.place.clone()];
                places.sort();
                places
            };
            // The bridge is the baseline of the same two guests, not of others.
            (!path || places(a) == places(b))
                && a.protocol == b.protocol
                && a.direction == b.direction
                && a.load == b.load
                && (!size || a.size == b.size)
        }
        (Subject::Storage(a), Subject::Storage(b)) => {
            let what = |s: &Storage| (s.target.clone(), s.pattern, s.mix, s.depth, s.jobs);
            what(a) == what(b) && (!size || a.block == b.block)
        }
        _ => false,
    };
    alike && one.tool == other.tool
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let either = |value: Option<bool>, yes: &str, no: &str| {
            value.map(|value| if value { yes.to_owned() } else { no.to_owned() })
        };
        let words = [
            either(self.udp, "udp", "tcp"),
            either(self.stream, "stream", "rr"),
            either(self.open, "open", "closed"),
            self.path.map(|path| path.to_string()),
            either(self.host, "host", "guest"),
            self.pattern.map(|pattern| pattern.to_string()),
            self.mix.map(|mix| mix.to_string()),
            self.size.map(|size| size.to_string()),
            self.guest.as_ref().map(|guest| format!("in {guest}")),
            self.metric.map(|metric| metric.to_string()),
        ];
        f.write_str(&words.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}
