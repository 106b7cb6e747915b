//! A snapshot as series, each with its labels and its value.

use std::collections::BTreeMap;

use penstock_model::{
    GuestKind, Outcome,
    inventory::{InterfaceCounters, PortCounters, VfCounters},
    text::metric_label,
};

use super::{
    Area, FunctionMetrics, GuestMetrics, GuestState, Identity, InterfaceMetrics, PortMetrics, RunsMetrics,
    Snapshot, VerificationMetrics, families,
    families::{FAMILIES, MetricFamily},
};

/// So many attributes have verdicts of their own; the others are counted together as [`OTHER`].
const ATTRIBUTES: usize = 64;
/// So many series tell what has drifted.
const DRIFTS: usize = 256;
/// So many reasons for which a port drops frames have a series of their own.
const REASONS: usize = 32;
/// What stands for all that have no series of their own.
const OTHER: &str = "other";

/// A series as a reader of the text has it.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSeries {
    /// Its name, with unit and ending.
    pub name: String,
    /// Its labels, in the order of their family.
    pub labels: Vec<(&'static str, String)>,
    /// The value of the series.
    pub value: f64,
}

/// All series of a snapshot, in the order in which they are written.
pub fn series(snapshot: &Snapshot) -> Vec<MetricSeries> {
    let samples = Exposition::of(snapshot);
    let of = |(family, all): (&MetricFamily, &BTreeMap<Labels, SeriesValue>)| {
        let one = |(labels, value): (&Labels, &SeriesValue)| {
            let value = match *value {
                SeriesValue::Count(count) => count as f64,
                SeriesValue::Number(number) => number,
            };
            MetricSeries { name: family.series(), labels: labels.clone(), value }
        };
        all.iter().map(one).collect::<Vec<_>>()
    };
    samples.families().flat_map(of).collect()
}

/// The labels of a series, in the order of their family; none is empty.
pub type Labels = Vec<(&'static str, String)>;

/// The value of a series, by its kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SeriesValue {
    /// A number of things.
    Count(u64),
    /// A number with a fraction, as seconds are.
    Number(f64),
}

/// The series of each family that has any, by the family's place. No two series of a family have the same labels.
#[derive(Debug, Default)]
pub struct Exposition(BTreeMap<usize, BTreeMap<Labels, SeriesValue>>);

impl Exposition {
    /// All that `snapshot` tells.
    pub fn of(snapshot: &Snapshot) -> Exposition {
        let mut samples = Exposition::default();
        samples.put(&families::BUILD, &[("version", &snapshot.build)], SeriesValue::Count(1));
        samples.put(&families::SCRAPE_DURATION, &[], SeriesValue::Number(snapshot.took));
        for area in Area::ALL {
            let errors = snapshot.unread.get(&area).copied().unwrap_or(0);
            samples.put(&families::SCRAPE_ERRORS, &[("what", area.name())], SeriesValue::Count(errors));
        }
        samples.put(&families::SCAN_NOTES, &[], count(snapshot.scan_notes));
        for function in &snapshot.functions {
            samples.function(function);
        }
        for (name, guest) in &snapshot.guests {
            samples.guest(name.as_str(), guest);
        }
        for port in &snapshot.ports {
            samples.port(port);
        }
        if let Some(runs) = &snapshot.runs {
            samples.runs(runs);
        }
        if let Some(verification) = &snapshot.verification {
            samples.verification(verification);
        }
        samples
    }

    /// The families that have series, with these.
    pub fn families(&self) -> impl Iterator<Item = (&'static MetricFamily, &BTreeMap<Labels, SeriesValue>)> {
        self.0.iter().filter_map(|(place, series)| Some((FAMILIES.get(*place)?, series)))
    }

    /// One series. Of two with the same labels the first stays.
    fn put(&mut self, family: &MetricFamily, labels: &[(&'static str, &str)], value: SeriesValue) {
        let Some(place) = FAMILIES.iter().position(|known| known == family) else { return };
        debug_assert!(labels.iter().all(|(name, _)| family.labels.contains(name)), "{family:?}: {labels:?}");
        // An empty label is one that is missing (Prometheus' data model).
        let labels = labels.iter().filter(|(_, value)| !value.is_empty());
        let labels = labels.map(|(name, value)| (*name, metric_label(value))).collect();
        self.0.entry(place).or_default().entry(labels).or_insert(value);
    }

    fn function(&mut self, function: &FunctionMetrics) {
        let identity = labels(&function.identity);
        let identity: Vec<(&'static str, &str)> =
            identity.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let group = function.iommu_group.map(|group| group.to_string()).unwrap_or_default();
        let mut info = identity.clone();
        let interface = function.interface.as_ref().map(|interface| interface.name.as_str());
        info.push(("interface", interface.unwrap_or_default()));
        info.push(("driver", function.driver.as_deref().unwrap_or_default()));
        info.push(("guest", function.guest.as_ref().map(|guest| guest.as_str()).unwrap_or_default()));
        info.push(("iommu_group", &group));
        self.put(&families::FUNCTION_INFO, &info, SeriesValue::Count(1));
        self.put(&families::FUNCTION_IN_IOMMU_GROUP, &identity, flag(function.iommu_group.is_some()));
        if let Some(pf) = &function.pf {
            self.put(&families::PF_VFS, &identity, SeriesValue::Count(pf.vfs.into()));
            self.put(&families::PF_VFS_MAX, &identity, SeriesValue::Count(pf.vfs_max.into()));
            if let Some(counts) = pf.counts_vfs {
                self.put(&families::PF_COUNTS_VFS, &identity, flag(counts));
            }
        }
        if let Some(interface) = &function.interface {
            self.interface(&identity, interface);
        }
        if let Some(counters) = &function.counters {
            self.vf(&identity, counters);
        }
    }

    fn interface(&mut self, identity: &[(&'static str, &str)], interface: &InterfaceMetrics) {
        self.put(&families::INTERFACE_UP, identity, flag(interface.up));
        if let Some(carrier) = interface.carrier {
            self.put(&families::INTERFACE_CARRIER, identity, flag(carrier));
        }
        if let Some(speed) = interface.speed {
            self.put(
                &families::INTERFACE_SPEED,
                identity,
                SeriesValue::Count(u64::from(speed) * 1_000_000 / 8),
            );
        }
        let Some(counters) = interface.counters else { return };
        let InterfaceCounters {
            rx_packets,
            tx_packets,
            rx_bytes,
            tx_bytes,
            rx_errors,
            tx_errors,
            rx_dropped,
            tx_dropped,
            multicast,
        } = counters;
        for (family, count) in [
            (&families::INTERFACE_RX_BYTES, rx_bytes),
            (&families::INTERFACE_TX_BYTES, tx_bytes),
            (&families::INTERFACE_RX_PACKETS, rx_packets),
            (&families::INTERFACE_TX_PACKETS, tx_packets),
            (&families::INTERFACE_RX_MULTICAST, multicast),
            (&families::INTERFACE_RX_DROPPED, rx_dropped),
            (&families::INTERFACE_TX_DROPPED, tx_dropped),
            (&families::INTERFACE_RX_ERRORS, rx_errors),
            (&families::INTERFACE_TX_ERRORS, tx_errors),
        ] {
            self.put(family, identity, SeriesValue::Count(count));
        }
    }

    fn vf(&mut self, identity: &[(&'static str, &str)], counters: &VfCounters) {
        let VfCounters {
            rx_packets,
            tx_packets,
            rx_bytes,
            tx_bytes,
            broadcast,
            multicast,
            rx_dropped,
            tx_dropped,
        } = *counters;
        for (family, count) in [
            (&families::VF_RX_BYTES, Some(rx_bytes)),
            (&families::VF_TX_BYTES, Some(tx_bytes)),
            (&families::VF_RX_PACKETS, Some(rx_packets)),
            (&families::VF_TX_PACKETS, Some(tx_packets)),
            (&families::VF_RX_BROADCAST, broadcast),
            (&families::VF_RX_MULTICAST, multicast),
            (&families::VF_RX_DROPPED, rx_dropped),
            (&families::VF_TX_DROPPED, tx_dropped),
        ] {
            if let Some(count) = count {
                self.put(family, identity, SeriesValue::Count(count));
            }
        }
    }

    fn guest(&mut self, name: &str, guest: &GuestMetrics) {
        let kind = match guest.kind {
            Some(GuestKind::Vm) => "vm",
            Some(GuestKind::Container) => "container",
            None => "",
        };
        self.put(&families::GUEST_INFO, &[("guest", name), ("kind", kind)], SeriesValue::Count(1));
        for state in GuestState::ALL {
            let labels = [("guest", name), ("state", state.name())];
            self.put(&families::GUEST_STATE, &labels, flag(guest.state == state));
        }
        if let Some(since) = guest.since {
            self.put(&families::GUEST_START, &[("guest", name)], SeriesValue::Count(since));
        }
    }

    fn port(&mut self, port: &PortMetrics) {
        let labels =
            [("guest", port.guest.as_str()), ("nic", port.nic.as_str()), ("port", port.port.as_str())];
        self.put(&families::PORT_CONNECTED, &labels, flag(port.connected));
        self.put(&families::PORT_UP, &labels, flag(port.up));
        let Some(counters) = &port.counters else { return };
        let PortCounters { sent, sent_bytes, received, received_bytes, dropped_sent, dropped_received } =
            counters;
        for (family, count) in [
            (&families::PORT_RX_BYTES, received_bytes),
            (&families::PORT_TX_BYTES, sent_bytes),
            (&families::PORT_RX_PACKETS, received),
            (&families::PORT_TX_PACKETS, sent),
        ] {
            self.put(family, &labels, SeriesValue::Count(*count));
        }
        for (family, dropped) in
            [(&families::PORT_RX_DROPPED, dropped_received), (&families::PORT_TX_DROPPED, dropped_sent)]
        {
            let reasons = dropped.iter().map(|(reason, count)| (reason.as_str(), *count));
            for (reason, count) in bounded(reasons, REASONS) {
                let labels = [labels[0], labels[1], labels[2], ("reason", reason)];
                self.put(family, &labels, SeriesValue::Count(count));
            }
        }
    }

    fn runs(&mut self, runs: &RunsMetrics) {
        let RunsMetrics { open, half_way, lapsed, damaged, confirm_until, last, in_progress } = runs;
        for (state, runs) in
            [("open", open), ("half_way", half_way), ("lapsed", lapsed), ("damaged", damaged)]
        {
            self.put(&families::RUNS, &[("state", state)], count(*runs));
        }
        if let Some(until) = confirm_until {
            self.put(&families::RUN_CONFIRM_UNTIL, &[], SeriesValue::Number(*until));
        }
        if let Some(last) = last {
            let run = last.id.to_string();
            let labels = [
                ("run", run.as_str()),
                ("purpose", last.purpose.as_str()),
                ("model", last.model.as_deref().unwrap_or_default()),
                ("outcome", last.outcome.name()),
            ];
            self.put(&families::LAST_RUN_INFO, &labels, SeriesValue::Count(1));
            if last.outcome != super::RunOutcome::Running {
                let done = last.outcome == super::RunOutcome::Done;
                self.put(&families::LAST_RUN_SUCCESS, &[], flag(done));
            }
            self.put(&families::LAST_RUN_START, &[], SeriesValue::Number(last.began));
            if let Some(ended) = last.ended {
                self.put(&families::LAST_RUN_END, &[], SeriesValue::Number(ended));
            }
        }
        self.put(&families::RUN_IN_PROGRESS, &[], flag(in_progress.is_some()));
        if let Some(progress) = in_progress {
            self.put(&families::RUN_STEPS, &[], count(progress.steps));
            self.put(&families::RUN_STEPS_DONE, &[], count(progress.done));
        }
    }

    fn verification(&mut self, verification: &VerificationMetrics) {
        let VerificationMetrics { holds, at, verdicts, drift } = verification;
        self.put(&families::VERIFY_HOLDS, &[], flag(*holds));
        self.put(&families::VERIFY_TIME, &[], SeriesValue::Number(*at));
        for outcome in [Outcome::Pass, Outcome::Fail, Outcome::Unsupported, Outcome::Unknown] {
            let of = |outcomes: &BTreeMap<Outcome, u64>| outcomes.get(&outcome).copied().unwrap_or(0);
            let counts = verdicts.iter().map(|(attribute, outcomes)| (attribute.as_str(), of(outcomes)));
            let name = outcome.to_string();
            for (attribute, count) in bounded(counts, ATTRIBUTES) {
                let labels = [("attribute", attribute), ("outcome", name.as_str())];
                self.put(&families::VERDICTS, &labels, SeriesValue::Count(count));
            }
        }
        for drifted in drift.iter().take(DRIFTS) {
            let labels = [("subject", drifted.subject.as_str()), ("attribute", drifted.attribute.as_str())];
            self.put(&families::DRIFT, &labels, SeriesValue::Count(1));
        }
        self.put(&families::DRIFTED, &[], count(drift.len()));
    }
}

/// The first `most` of them, and the sum of the others as [`OTHER`].
fn bounded<'a>(all: impl Iterator<Item = (&'a str, u64)>, most: usize) -> Vec<(&'a str, u64)> {
    let mut all: Vec<(&str, u64)> = all.collect();
    if all.len() > most {
        let others = all.split_off(most).iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
        all.push((OTHER, others));
    }
    all
}

fn labels(identity: &Identity) -> Labels {
    let text = |value: Option<String>| value.unwrap_or_default();
    vec![
        ("bdf", identity.bdf.to_string()),
        ("pf", identity.pf.to_string()),
        ("vf", text(identity.vf.map(|vf| vf.to_string()))),
        ("nic", text(identity.function.as_ref().map(|function| function.nic.to_string()))),
        ("function", text(identity.function.as_ref().map(ToString::to_string))),
    ]
}

fn flag(on: bool) -> SeriesValue {
    SeriesValue::Count(on.into())
}

fn count(count: usize) -> SeriesValue {
    SeriesValue::Count(count as u64)
}
