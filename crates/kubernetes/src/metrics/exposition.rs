//! What the agent or the controller tells at one moment, as text that `prometheus-client` writes. Pure.

use std::{collections::BTreeMap, fmt};

use penstock_model::text::one_line;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text},
    metrics::{MetricType, histogram::Histogram},
    registry::{Registry, Unit},
};

use super::families::AgentFamily;
use crate::penstock::END_OF_METRICS;

/// So many characters of a label's value are kept, as `penstock metrics` keeps.
const LONGEST_LABEL: usize = 128;

/// The labels of a series; none is empty.
type SeriesLabels = Vec<(&'static str, String)>;

/// The value of a series.
#[derive(Debug)]
enum Sample {
    Number(i64),
    Distribution(Histogram),
}

/// Series by family, in the order in which families were first put in.
#[derive(Debug, Default)]
pub struct AgentExposition {
    families: Vec<&'static AgentFamily>,
    series: BTreeMap<&'static str, BTreeMap<SeriesLabels, Sample>>,
}

impl AgentExposition {
    /// Puts in a number; where a series of these labels is there already it is replaced.
    pub fn put(&mut self, family: &'static AgentFamily, labels: &[(&'static str, &str)], value: i64) {
        self.insert(family, labels, Sample::Number(value));
    }

    /// Puts in a histogram.
    pub fn distribution(
        &mut self,
        family: &'static AgentFamily,
        labels: &[(&'static str, &str)],
        histogram: &Histogram,
    ) {
        self.insert(family, labels, Sample::Distribution(histogram.clone()));
    }

    fn insert(&mut self, family: &'static AgentFamily, labels: &[(&'static str, &str)], sample: Sample) {
        debug_assert!(labels.iter().all(|(name, _)| family.labels.contains(name)), "{family:?}");
        let labels = labels.iter().map(|(name, value)| (*name, clean(value)));
        let labels = labels.filter(|(_, value)| !value.is_empty()).collect();
        if !self.series.contains_key(family.name) {
            self.families.push(family);
        }
        self.series.entry(family.name).or_default().insert(labels, sample);
    }

    /// All of it as OpenMetrics, after what `before` has, which is such text too.
    pub fn text_after(self, before: &str) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = before.strip_suffix(END_OF_METRICS).unwrap_or(before).to_owned();
        let written = text::encode(&mut text, &registry);
        // A string takes whatever is written to it.
        debug_assert!(written.is_ok(), "{written:?}");
        text
    }
}

impl Collector for AgentExposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &self.families {
            let unit = family.unit.map(|unit| Unit::Other(unit.to_owned()));
            let mut encoder =
                encoder.encode_descriptor(family.name, family.help, unit.as_ref(), family.kind)?;
            for (labels, sample) in &self.series[family.name] {
                match (family.kind, sample) {
                    (MetricType::Info, _) => encoder.encode_info(labels)?,
                    (MetricType::Counter, Sample::Number(number)) => {
                        let number = u64::try_from(*number).unwrap_or_default();
                        encoder.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(&number, None)?;
                    }
                    (_, Sample::Number(number)) => encoder.encode_family(labels)?.encode_gauge(number)?,
                    (_, Sample::Distribution(histogram)) => {
                        histogram.encode(encoder.encode_family(labels)?)?
                    }
                }
            }
        }
        Ok(())
    }
}

/// A label's value on one line, without what steers a terminal, and not longer than [`LONGEST_LABEL`].
fn clean(value: &str) -> String {
    let value = one_line(value);
    match value.char_indices().nth(LONGEST_LABEL) {
        None => value,
        Some((end, _)) => format!("{}…", &value[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::families::{AGENT_BUILD, CLAIM_INFO, CLAIM_PREPARE, CLAIMS, CLAIMS_TAKEN_BACK};
    use crate::penstock::is_whole;

    #[test]
    fn what_is_told_stands_after_the_machines_and_ends_once() {
        let mut all = AgentExposition::default();
        all.put(&AGENT_BUILD, &[("version", "1.0")], 1);
        all.put(&CLAIM_INFO, &[("claim", "a\"\n\\b"), ("pod", "")], 1);
        all.put(&CLAIM_INFO, &[("claim", &"x".repeat(200))], 1);
        all.put(&CLAIMS, &[("state", "waiting")], 0);
        all.put(&CLAIMS_TAKEN_BACK, &[], 3);
        let histogram = Histogram::new([0.5, 1.0]);
        histogram.observe(0.7);
        all.distribution(&CLAIM_PREPARE, &[("outcome", "prepared")], &histogram);
        let text = all.text_after("# HELP a b.\n# TYPE a gauge\na 1\n# EOF\n");
        assert!(is_whole(&text) && text.matches(END_OF_METRICS).count() == 1, "{text}");
        for line in [
            "a 1",
            "penstock_agent_build_info{version=\"1.0\"} 1",
            "penstock_claims{state=\"waiting\"} 0",
            "penstock_claims_taken_back_total 3",
            "# TYPE penstock_claim_prepare_duration_seconds histogram",
            "penstock_claim_prepare_duration_seconds_bucket{le=\"1.0\",outcome=\"prepared\"} 1",
            "penstock_claim_prepare_duration_seconds_count{outcome=\"prepared\"} 1",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
        let claims: Vec<&str> =
            text.lines().filter(|line| line.starts_with("penstock_claim_info{")).collect();
        assert!(claims.len() == 2 && claims.iter().all(|line| line.len() < 200), "{claims:?}");
        assert!(!text.contains("pod=\"\""), "{text}");
        assert!(!is_whole("a 1\n") && !is_whole("a 1\n# EO") && is_whole(END_OF_METRICS));
    }
}
