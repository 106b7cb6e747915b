//! MetricSeries as text, which `prometheus-client` writes.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text, text},
    metrics::MetricType,
    registry::{Registry, Unit},
};

use super::{
    Snapshot,
    exposition::{Exposition, Labels, SeriesValue},
    families::Kind,
};

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// OpenMetrics 1.0: types `info`, lines `# UNIT`, and `# EOF` at the end.
    OpenMetrics,
    /// Prometheus' text format 0.0.4, which is all that node_exporter's textfile collector reads (`expfmt.TextParser`). It takes
    /// `# UNIT` and `# EOF` for comments, but refuses a file with the type `info`; and since OpenMetrics states a counter's type without
    /// `_total`, it would take counters for untyped.
    Prometheus,
}

/// The text of a snapshot, which ends in a newline.
pub fn render(snapshot: &Snapshot, format: TextFormat) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Exposition::of(snapshot)));
    let mut written = String::new();
    let outcome = match format {
        TextFormat::OpenMetrics => text::encode(&mut written, &registry),
        TextFormat::Prometheus => prometheus_text::encode(&mut written, &registry),
    };
    // A string takes whatever is written to it.
    debug_assert!(outcome.is_ok(), "{outcome:?}");
    written
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (family, series) in self.families() {
            let unit = family.unit.map(|unit| Unit::Other(unit.to_owned()));
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Info => MetricType::Info,
            };
            let mut encoder = encoder.encode_descriptor(family.name, family.help, unit.as_ref(), kind)?;
            for (labels, value) in series {
                one(&mut encoder, family.kind, labels, *value)?;
            }
        }
        Ok(())
    }
}

/// Writes one series.
fn one(encoder: &mut MetricEncoder<'_>, kind: Kind, labels: &Labels, value: SeriesValue) -> fmt::Result {
    match (kind, value) {
        (Kind::Info, _) => encoder.encode_info(labels),
        (Kind::Counter, SeriesValue::Count(count)) => {
            encoder.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)
        }
        (Kind::Counter, SeriesValue::Number(number)) => {
            encoder.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(&number, None)
        }
        // A gauge may be below zero, so that it has one bit less.
        (Kind::Gauge, SeriesValue::Count(count)) => {
            encoder.encode_family(labels)?.encode_gauge(&i64::try_from(count).unwrap_or(i64::MAX))
        }
        (Kind::Gauge, SeriesValue::Number(number)) => encoder.encode_family(labels)?.encode_gauge(&number),
    }
}
