//! The metric families that are told beside those of `penstock metrics`, named after the same conventions (docs/metrics.md). `penstock_drift`
//! and `penstock_drifted_attributes` are families of `penstock metrics --verify` too: the agent does not ask for these, since it watches all
//! the time, and tells them itself under the same names with the same labels.

use prometheus_client::metrics::MetricType;

/// A metric family.
#[derive(Debug)]
pub struct AgentFamily {
    /// Its name, without unit and ending.
    pub name: &'static str,
    /// What sort it is.
    pub kind: MetricType,
    /// Its unit, which its name has too.
    pub unit: Option<&'static str>,
    /// The labels that its series may have. One whose value is empty is left out.
    pub labels: &'static [&'static str],
    /// What it tells, in one sentence.
    pub help: &'static str,
}

macro_rules! families {
    ($list:ident: $(#[$doc:meta])*; $($key:ident: $kind:ident $name:literal $(in $unit:literal)?, $labels:expr, $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $key: AgentFamily = AgentFamily {
                name: concat!("penstock_", $name),
                kind: MetricType::$kind,
                unit: families!(@unit $($unit)?),
                labels: $labels,
                help: $help,
            };
        )*
        $(#[$doc])*
        pub static $list: &[AgentFamily] = &[$($key),*];
    };
    (@unit) => { None };
    (@unit $unit:literal) => { Some($unit) };
}

families! {
    AGENT: /** What the agent of a node tells, in the order in which it is written. */;
    AGENT_BUILD: Info "agent_build", &["version", "driver", "node"], "The agent, its driver's name and its Node.";
    AGENT_SCRAPE_ERRORS: Gauge "agent_scrape_errors", &["what"], "Whether something could not be read in this scrape, by what it was; its metrics are then missing.";
    PUBLISHED_DEVICES: Gauge "published_devices", &[], "Devices that are for pods, as the machine was seen last; missing before it was.";
    PUBLISHED_CURRENT: Gauge "published_current", &[], "Whether these are all that the machine has; 0 while it cannot be looked at, or a run goes on or is not confirmed, so that new ones wait.";
    SLICES_GENERATION: Gauge "slices_generation", &[], "The generation of the node's pool of ResourceSlices; missing before the API server has told it.";
    SLICES_CURRENT: Gauge "slices_current", &[], "Whether the API server was seen to have the slices that it should have.";
    CLAIM_INFO: Info "claim", &["bdf", "nic", "vf", "device", "namespace", "pod", "claim"], "A device that is prepared for a claim; without pod where the claim is reserved for several.";
    CLAIMS: Gauge "claims", &["state"], "Claims: prepared and waiting for a container, attached, or failed; refused, where kubelet still asks for one that could not be prepared; unreadable, where what is written down of it cannot be read.";
    CLAIM_PREPARE: Histogram "claim_prepare_duration" in "seconds", &["outcome"], "How long kubelet's calls to prepare a claim took since the agent was started.";
    CLAIM_UNPREPARE: Histogram "claim_unprepare_duration" in "seconds", &["outcome"], "How long kubelet's calls to unprepare a claim took since the agent was started.";
    CLAIMS_TAKEN_BACK: Counter "claims_taken_back", &[], "Claims that the agent took back by itself, since kubelet did not ask for it.";
    DRIFT: Gauge "drift", &["subject", "attribute"], "1 for what is not as the model has it.";
    DRIFTED: Gauge "drifted_attributes", &[], "How many attributes are not as the model has them, also those that penstock_drift has no room for.";
}

families! {
    CONTROLLER: /** What the controller tells. */;
    CONTROLLER_LEADS: Gauge "controller_leads", &[], "Whether this controller holds the Lease, and decides.";
    ROLLOUT_NODES: Gauge "rollout_nodes", &["machine", "state"], "Nodes of a SriovMachine: matched, planned, updated, ready, unavailable, failed or refused.";
    ROLLOUT_CONDITION: Gauge "rollout_condition", &["machine", "condition", "reason"], "Whether a condition of a SriovMachine is true.";
}

impl AgentFamily {
    /// The name that its series have; those of a histogram have endings of their own.
    pub fn series(&self) -> String {
        let unit = self.unit.map(|unit| format!("_{unit}")).unwrap_or_default();
        format!("{}{unit}{}", self.name, self.sort().1)
    }

    /// Its type in OpenMetrics, and the ending of its series.
    fn sort(&self) -> (&'static str, &'static str) {
        match self.kind {
            MetricType::Counter => ("counter", "_total"),
            MetricType::Gauge => ("gauge", ""),
            MetricType::Histogram => ("histogram", ""),
            MetricType::Info => ("info", "_info"),
            MetricType::Unknown => ("unknown", ""),
        }
    }
}

/// Families as a table of Markdown, for docs/metrics.md.
pub fn table(families: &[AgentFamily]) -> String {
    let mut table = "| metric | type | labels | it tells |\n|---|---|---|---|\n".to_owned();
    for family in families {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let (kind, _) = family.sort();
        table += &format!("| `{}` | {kind} | {} | {} |\n", family.series(), labels.join(" "), family.help);
    }
    table
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use super::*;

    #[test]
    fn the_page_of_metrics_has_them_and_no_name_is_for_two_things() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        penstock_testkit::golden::compare_part(&page, "agent-metrics", &table(AGENT));
        penstock_testkit::golden::compare_part(&page, "controller-metrics", &table(CONTROLLER));
        // The table of `penstock metrics` is made from its own families.
        let text = std::fs::read_to_string(page).unwrap();
        let machine = text.split("<!-- made: metrics -->").nth(1).unwrap();
        let machine = machine.split("<!-- end: metrics -->").next().unwrap();
        let rows: BTreeSet<&str> = machine.lines().collect();
        let mut seen = BTreeSet::new();
        for family in AGENT.iter().chain(CONTROLLER) {
            assert!(seen.insert(family.series()), "{family:?}");
            let own = table(std::slice::from_ref(family));
            let row = own.lines().last().unwrap();
            let shared = [DRIFT.name, DRIFTED.name].contains(&family.name);
            let named = machine.contains(&format!("`{}`", family.series()));
            assert_eq!((rows.contains(row), named), (shared, shared), "{row}");
        }
    }
}
