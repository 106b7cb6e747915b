//! What a node says of its plan and its change.

use serde_json::Value;

use super::verbs::Answer;
use crate::machine::{
    ConditionStatus, SriovNodeStatus, StatusCondition, UtcTime,
    condition::shortened,
    node::{
        ChangeResult, DangerSummary, LONGEST_LIST, LONGEST_MESSAGE, Outcome, PlanOutcome, PlanSummary,
        VanishingVf,
    },
    policy::{DrainMode, SriovMachineSpec},
};

/// The dangers that a drain takes care of: VFs that pods use.
const RESOLVED_BY_DRAIN: &str = "vfs-in-use:";

/// Another run is at work: there is no plan for now.
const BUSY: i32 = 9;

/// Reads what `plan` answered. `None`: another run is at work, and it has to be asked again.
pub fn plan(
    answer: &Answer,
    machine: &str,
    spec: &SriovMachineSpec,
    hash: &str,
    now: UtcTime,
) -> Option<PlanSummary> {
    let document = &answer.document;
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let text =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let drains = spec.drain.mode != DrainMode::None;
    let mut dangers: Vec<DangerSummary> = list(document.get("dangers"))
        .iter()
        .map(|danger| DangerSummary {
            name: text(danger, "name"),
            lost: shortened(&text(danger, "lost"), LONGEST_MESSAGE),
        })
        .filter(|danger| !(drains && danger.name.starts_with(RESOLVED_BY_DRAIN)))
        .collect();
    let vanishing: Vec<VanishingVf> = list(document.get("effects").and_then(|effects| effects.get("vfs")))
        .iter()
        .map(|vf| VanishingVf { name: text(vf, "name"), address: text(vf, "function") })
        .collect();
    let reboot = document.get("needs_reboot").and_then(Value::as_bool).unwrap_or(false);
    let refused: Vec<&DangerSummary> =
        dangers.iter().filter(|danger| !spec.allow.contains(&danger.name)).collect();
    let (mut outcome, mut message) = match answer.exit {
        BUSY => return None,
        _ if reboot => {
            let words = "this model becomes true only after a reboot, and a roll-out reboots no node: `penstock apply --persist` and a \
                         reboot on the node do it";
            (PlanOutcome::RebootRequired, words.to_owned())
        }
        0 | 10 => (PlanOutcome::Planned, String::new()),
        3 => match refused.as_slice() {
            // Nothing is left that a drain does not see to; or it was refused for another reason than a danger.
            [] if document
                .get("dangers")
                .is_some_and(|dangers| dangers.as_array().is_some_and(|all| !all.is_empty())) =>
            {
                (PlanOutcome::Planned, String::new())
            }
            [] => (PlanOutcome::Refused, answer.why()),
            all => {
                let names: Vec<&str> = all.iter().map(|danger| danger.name.as_str()).collect();
                let words = format!(
                    "{}: {}; spec.allow names what may be done all the same: {}",
                    all[0].name,
                    all[0].lost,
                    names.join(", ")
                );
                (PlanOutcome::Refused, words)
            }
        },
        2 | 4 | 6 => (PlanOutcome::Unfit, answer.why()),
        _ => (PlanOutcome::Failed, answer.why()),
    };
    if outcome == PlanOutcome::Planned && vanishing.len() > LONGEST_LIST {
        // A drain that does not know all VFs would leave pods without theirs.
        outcome = PlanOutcome::Failed;
        message = format!(
            "{} VFs vanish, more than the {LONGEST_LIST} that can be told: change the model in smaller parts",
            vanishing.len()
        );
    }
    let digest = PlanSummary::digest_of(&vanishing, &dangers, reboot);
    dangers.truncate(LONGEST_LIST);
    Some(PlanSummary {
        machine: machine.to_owned(),
        hash: hash.to_owned(),
        digest,
        outcome,
        steps: document.get("steps").and_then(Value::as_array).map_or(0, Vec::len) as u32,
        dangers,
        vanishing: vanishing.into_iter().take(LONGEST_LIST).collect(),
        reboot,
        message: shortened(&message, LONGEST_MESSAGE),
        at: now,
    })
}

/// Whether two plans say the same, whenever they were made.
pub fn same_plan(one: &PlanSummary, other: &PlanSummary) -> bool {
    PlanSummary { at: other.at, ..one.clone() } == *other
}

/// The status of a node that has no plan, for this reason.
pub fn unplanned(
    result: Option<ChangeResult>,
    before: &SriovNodeStatus,
    reason: &str,
    why: &str,
    now: UtcTime,
) -> SriovNodeStatus {
    let mut status = status(None, result, before, now);
    let planned = StatusCondition::new("Planned", false, reason, why, now).after(&before.conditions);
    status.conditions.insert(0, planned);
    status
}

/// The status with its conditions, which follow from the plan and the result.
pub fn status(
    plan: Option<PlanSummary>,
    result: Option<ChangeResult>,
    before: &SriovNodeStatus,
    now: UtcTime,
) -> SriovNodeStatus {
    let mut conditions = Vec::new();
    let mut tell = |kind: &str, status: ConditionStatus, reason: &str, message: &str| {
        conditions.push(StatusCondition::new(kind, status, reason, message, now).after(&before.conditions));
    };
    if let Some(plan) = &plan {
        let reason = plan.outcome.to_string();
        let message = match plan.outcome {
            PlanOutcome::Planned => {
                format!(
                    "{} steps, {} VFs vanish, {} dangers",
                    plan.steps,
                    plan.vanishing.len(),
                    plan.dangers.len()
                )
            }
            _ => plan.message.clone(),
        };
        tell("Planned", (plan.outcome == PlanOutcome::Planned).into(), &reason, &message);
        let words = if plan.reboot { plan.message.as_str() } else { "" };
        tell("RebootRequired", plan.reboot.into(), if plan.reboot { "Reboot" } else { "NoReboot" }, words);
    }
    if let Some(result) = &result {
        tell_result(result, plan.as_ref(), &mut tell);
    }
    SriovNodeStatus { plan, result, conditions }
}

/// The conditions that follow from the last change. Where the node's model is another one since, it is not applied and nothing was verified,
/// whatever came of the change.
fn tell_result(
    result: &ChangeResult,
    plan: Option<&PlanSummary>,
    tell: &mut impl FnMut(&str, ConditionStatus, &str, &str),
) {
    let outcome = result.outcome.to_string();
    let says = |words: &str| if words.is_empty() { String::new() } else { format!(", {words}") };
    if result.outcome.is_end() && plan.is_some_and(|plan| plan.hash != result.hash) {
        let words = format!("the last change was for another model: {outcome}{}", says(&result.message));
        tell("Applied", ConditionStatus::False, "AnotherModel", &words);
        tell("Verified", ConditionStatus::False, "AnotherModel", &words);
    } else {
        let applied = match result.outcome {
            Outcome::Verified => ConditionStatus::True,
            Outcome::Applying | Outcome::HalfWay => ConditionStatus::Unknown,
            Outcome::RolledBack | Outcome::Failed | Outcome::Lapsed => ConditionStatus::False,
        };
        tell("Applied", applied, &outcome, &result.message);
        let verified = result.outcome == Outcome::Verified;
        let counts = result.verdicts.map_or_else(String::new, |counts| {
            format!(
                "{} pass, {} fail, {} unsupported, {} unknown",
                counts.pass, counts.fail, counts.unsupported, counts.unknown
            )
        });
        tell("Verified", verified.into(), &outcome, if verified { &counts } else { &result.message });
    }
    let rolled_back = result.outcome == Outcome::RolledBack;
    tell("RolledBack", rolled_back.into(), &outcome, if rolled_back { &result.message } else { "" });
}
