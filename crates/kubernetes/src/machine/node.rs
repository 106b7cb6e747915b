//! `SriovNode`: how one node stands to its `SriovMachine`, and what it is told to do.
//!
//! The spec is the controller's alone: a node cannot tell itself to begin. The status is the agent's alone.

use std::fmt;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Span, StatusCondition, UtcTime, policy::hexadecimal};

/// The most VFs and dangers that a summary names; it says how many more there are.
pub const LONGEST_LIST: usize = 512;

/// The most bytes of a message in a status.
pub const LONGEST_MESSAGE: usize = 2048;

/// What one node is told to do.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "penstock.dev",
    version = "v1alpha1",
    kind = "SriovNode",
    plural = "sriovnodes",
    shortname = "srn",
    status = "SriovNodeStatus",
    derive = "PartialEq",
    doc = "How one node stands to its SriovMachine. The spec is the controller's, the status the agent's.",
    printcolumn = r#"{"name": "Machine", "type": "string", "jsonPath": ".status.plan.machine"}"#,
    printcolumn = r#"{"name": "Plan", "type": "string", "jsonPath": ".status.plan.outcome"}"#,
    printcolumn = r#"{"name": "Steps", "type": "integer", "jsonPath": ".status.plan.steps"}"#,
    printcolumn = r#"{"name": "Stage", "type": "string", "jsonPath": ".spec.change.stage"}"#,
    printcolumn = r#"{"name": "Result", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Applied\")].reason"}"#,
    printcolumn = r#"{"name": "Plan Says", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Planned\")].message", "priority": 1}"#,
    printcolumn = r#"{"name": "Result Says", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Applied\")].message", "priority": 1}"#
)]
#[serde(rename_all = "camelCase")]
pub struct SriovNodeSpec {
    /// The change that the node is to make, or made last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// The last change that was called off before it began, since the node could not be drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<Withdrawn>,
}

/// A change that a node is to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Which one it is: each change of a node has a higher number than those before. A result names it.
    #[schemars(range(min = 1))]
    pub number: u64,
    /// The `SriovMachine`'s hash that the node planned.
    #[schemars(length(min = 64, max = 64))]
    pub hash: String,
    /// The digest of the plan that the grant is for. The node does nothing when its plan has become another.
    #[schemars(length(min = 1, max = 64))]
    pub plan: String,
    /// What is to be done now.
    pub stage: Stage,
    /// Since when this stage lasts.
    pub since: UtcTime,
    /// The change is taken back unless it proves within this time that it holds.
    pub confirm_within: Span,
    /// Whether the node takes no new pods until the change has ended, and all its pods are evicted before (`drain.mode: node`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cordon: bool,
}

/// What is to be done for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Stage {
    /// The devices that vanish take no new claims, and the pods that have some are evicted.
    Drain,
    /// The node applies the model.
    Go,
}

/// A change that was called off before it began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Withdrawn {
    /// Which one it was.
    pub number: u64,
    /// The hash that it was for.
    pub hash: String,
    /// Why, in a sentence.
    pub reason: String,
    /// When.
    pub at: UtcTime,
}

/// How a node stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SriovNodeStatus {
    /// What the node planned last. None where no `SriovMachine` selects it, or several do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanSummary>,
    /// How the last change ended, or that there was nothing to change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<ChangeResult>,
    /// `Planned`, `Applied`, `Verified`, `RebootRequired`, `RolledBack`, of which `Applied` and `Verified` are of the model that the plan is for;
    /// `Drifted` where the node is watched; `SingleAgent` is false when an
    /// agent on another machine took itself for this node.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<StatusCondition>,
}

/// What a node would do to become what its `SriovMachine` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanSummary {
    /// The `SriovMachine`.
    pub machine: String,
    /// Its hash.
    pub hash: String,
    /// What in this summary a grant is for, as one digest: VFs, dangers, reboot. No longer than what a [`Change`] takes.
    #[schemars(length(max = 64))]
    pub digest: String,
    /// What came of it.
    pub outcome: PlanOutcome,
    /// How many steps it has.
    #[serde(default)]
    pub steps: u32,
    /// What it would take away, unless `allow` or a drain sees to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dangers: Vec<DangerSummary>,
    /// The VFs that vanish.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vanishing: Vec<VanishingVf>,
    /// Whether the model becomes true only after a reboot.
    #[serde(default)]
    pub reboot: bool,
    /// Why it is not `Planned`, or what an operator should know.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When it was made.
    pub at: UtcTime,
}

/// What came of planning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PlanOutcome {
    /// It can be carried out.
    Planned,
    /// It is refused as unsafe (exit status 3).
    Refused,
    /// The model is wrong, or not for this machine (2, 6), or something is missing there (4).
    Unfit,
    /// It becomes true only after a reboot, which is not done.
    RebootRequired,
    /// Planning failed.
    Failed,
}

/// A danger of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DangerSummary {
    /// Its name, as `allow` has it.
    pub name: String,
    /// What would be lost.
    pub lost: String,
}

/// A VF that vanishes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VanishingVf {
    /// Its name: `NET0#3`.
    pub name: String,
    /// Its PCI address, as a ResourceSlice has it in `resource.kubernetes.io/pciBusID`.
    pub address: String,
}

/// How a change ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangeResult {
    /// The number of the change; 0 when there was nothing to change. Far from where there is no next one, whatever a node says.
    #[schemars(range(max = 1_000_000_000_000_i64))]
    pub number: u64,
    /// The hash that it was for.
    pub hash: String,
    /// How it ended.
    pub outcome: Outcome,
    /// The number of Penstock's run on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u64>,
    /// The verdicts of `verify`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdicts: Option<VerdictCounts>,
    /// Why, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When.
    pub at: UtcTime,
}

/// How a change ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Outcome {
    /// The change is under way.
    Applying,
    /// The node is what the model says, was seen to be, and it was confirmed.
    Verified,
    /// It was not confirmed, and the node is as it was before.
    RolledBack,
    /// It failed or was refused, and nothing was changed.
    Failed,
    /// It failed, and what it did could not all be taken back.
    HalfWay,
    /// The node was started anew since, and is not what the model says any more.
    Lapsed,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Outcome::Applying => "Applying",
            Outcome::Verified => "Verified",
            Outcome::RolledBack => "RolledBack",
            Outcome::Failed => "Failed",
            Outcome::HalfWay => "HalfWay",
            Outcome::Lapsed => "Lapsed",
        })
    }
}

impl fmt::Display for PlanOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            PlanOutcome::Planned => "Planned",
            PlanOutcome::Refused => "Refused",
            PlanOutcome::Unfit => "Unfit",
            PlanOutcome::RebootRequired => "RebootRequired",
            PlanOutcome::Failed => "Failed",
        })
    }
}

impl Outcome {
    /// Whether the change has come to its end.
    pub fn is_end(self) -> bool {
        match self {
            Outcome::Applying => false,
            Outcome::Verified
            | Outcome::RolledBack
            | Outcome::Failed
            | Outcome::HalfWay
            | Outcome::Lapsed => true,
        }
    }

    /// Whether it ended badly.
    pub fn is_failure(self) -> bool {
        match self {
            Outcome::RolledBack | Outcome::Failed | Outcome::HalfWay => true,
            Outcome::Applying | Outcome::Verified | Outcome::Lapsed => false,
        }
    }
}

/// How many verdicts came out how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VerdictCounts {
    /// As the model says.
    pub pass: u32,
    /// Otherwise.
    pub fail: u32,
    /// The driver cannot.
    pub unsupported: u32,
    /// Could not be seen.
    pub unknown: u32,
}

impl PlanSummary {
    /// All of it was done: nothing is left to be.
    pub fn is_carried_out(&mut self) {
        self.steps = 0;
        self.dangers.clear();
        self.vanishing.clear();
        self.digest = PlanSummary::digest_of(&self.vanishing, &self.dangers, self.reboot);
    }

    /// The digest of what a grant is for: which VFs vanish, which dangers are left, and whether it takes a reboot.
    pub fn digest_of(vanishing: &[VanishingVf], dangers: &[DangerSummary], reboot: bool) -> String {
        let mut digest = Sha256::new();
        // Each word with its length before it, so that no two lists look alike.
        let mut part = |kind: &str, words: &[&str]| {
            digest.update(kind);
            for word in words {
                digest.update((word.len() as u64).to_le_bytes());
                digest.update(word);
            }
        };
        let mut vanishing: Vec<&VanishingVf> = vanishing.iter().collect();
        vanishing.sort();
        let mut dangers: Vec<&str> = dangers.iter().map(|danger| danger.name.as_str()).collect();
        dangers.sort_unstable();
        for vf in vanishing {
            part("vf", &[&vf.name, &vf.address]);
        }
        dangers.iter().for_each(|name| part("danger", &[name]));
        part("reboot", &[if reboot { "yes" } else { "no" }]);
        hexadecimal(&digest.finalize()[..8])
    }
}

impl SriovNodeSpec {
    /// The number that the next change of this node gets.
    pub fn next_number(&self, status: &SriovNodeStatus) -> u64 {
        let change = self.change.as_ref().map_or(0, |change| change.number);
        let withdrawn = self.withdrawn.as_ref().map_or(0, |withdrawn| withdrawn.number);
        let result = status.result.as_ref().map_or(0, |result| result.number);
        change.max(withdrawn).max(result).saturating_add(1)
    }

    /// Whether a change of this node has ended, as far as is written down: no sooner may what was done for it be taken back.
    pub fn has_ended(&self, status: &SriovNodeStatus, number: u64) -> bool {
        let called_off = self.withdrawn.as_ref().is_some_and(|withdrawn| withdrawn.number >= number);
        let reported = status.result.as_ref().is_some_and(|result| {
            result.number > number || (result.number == number && result.outcome.is_end())
        });
        called_off || reported
    }

    /// The change that the node is still to make or is making.
    pub fn open<'a>(&'a self, status: &SriovNodeStatus) -> Option<&'a Change> {
        let spent = |change: &&Change| {
            status.result.as_ref().is_some_and(|result| {
                result.number > change.number || (result.number == change.number && result.outcome.is_end())
            })
        };
        self.change.as_ref().filter(|change| !spent(change))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(number: u64, outcome: Outcome) -> SriovNodeStatus {
        let result = ChangeResult {
            number,
            hash: "h".to_owned(),
            outcome,
            run: None,
            verdicts: None,
            message: String::new(),
            at: UtcTime(1),
        };
        SriovNodeStatus { result: Some(result), ..SriovNodeStatus::default() }
    }

    #[test]
    fn a_change_is_open_until_its_result_says_that_it_ended() {
        let change = Change {
            number: 3,
            hash: "h".to_owned(),
            plan: "p".to_owned(),
            stage: Stage::Go,
            since: UtcTime(0),
            confirm_within: Span::seconds(60),
            cordon: false,
        };
        let spec = SriovNodeSpec { change: Some(change), withdrawn: None };
        assert!(spec.open(&SriovNodeStatus::default()).is_some());
        assert!(spec.open(&result(2, Outcome::Verified)).is_some());
        assert!(spec.open(&result(3, Outcome::Applying)).is_some());
        for outcome in
            [Outcome::Verified, Outcome::RolledBack, Outcome::Failed, Outcome::HalfWay, Outcome::Lapsed]
        {
            assert!(spec.open(&result(3, outcome)).is_none(), "{outcome}");
        }
        assert_eq!(spec.next_number(&result(3, Outcome::Verified)), 4);
        assert_eq!(spec.next_number(&result(7, Outcome::Verified)), 8);
    }

    #[test]
    fn a_digest_does_not_depend_on_an_order() {
        let vf = |name: &str| VanishingVf { name: name.to_owned(), address: format!("0000:{name}") };
        let danger = |name: &str| DangerSummary { name: name.to_owned(), lost: String::new() };
        let one = PlanSummary::digest_of(&[vf("a"), vf("b")], &[danger("x"), danger("y")], false);
        assert_eq!(one, PlanSummary::digest_of(&[vf("b"), vf("a")], &[danger("y"), danger("x")], false));
        assert_ne!(one, PlanSummary::digest_of(&[vf("a")], &[danger("x"), danger("y")], false));
        assert_ne!(one, PlanSummary::digest_of(&[vf("a"), vf("b")], &[danger("x")], false));
        assert_ne!(one, PlanSummary::digest_of(&[vf("a"), vf("b")], &[danger("x"), danger("y")], true));
    }
}
