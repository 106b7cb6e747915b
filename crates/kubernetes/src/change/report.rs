//! What a node says of its plan and its change.

use std::collections::BTreeSet;

use penstock_model::{Bdf, machine::same_on_each_machine};
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

/// How the names of dangers begin that somebody uses VFs. A drain takes care of it where pods of claims use them, and nobody else does.
pub const VFS_IN_USE: &str = "vfs-in-use:";

/// Another run is at work: there is no plan for now.
const BUSY: i32 = 9;

/// Reads what `plan` answered. `None`: another run is at work, and it has to be asked again. `held` are the functions of prepared claims.
pub fn plan(
    answer: &Answer,
    held: &BTreeSet<Bdf>,
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
    let resolved = |danger: &Value| drains && is_of_claims(danger, held);
    let mut dangers: Vec<DangerSummary> = list(document.get("dangers"))
        .iter()
        .filter(|danger| !resolved(danger))
        .map(|danger| DangerSummary {
            name: text(danger, "name"),
            lost: shortened(&text(danger, "lost"), LONGEST_MESSAGE),
        })
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
    if outcome == PlanOutcome::Planned {
        message = same_addresses(&spec.model);
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

/// What is told instead of a plan where the model itself keeps it from being one for this node.
pub fn unfit(why: &str, machine: &str, hash: &str, now: UtcTime) -> PlanSummary {
    PlanSummary {
        machine: machine.to_owned(),
        hash: hash.to_owned(),
        digest: PlanSummary::digest_of(&[], &[], false),
        outcome: PlanOutcome::Unfit,
        steps: 0,
        dangers: Vec::new(),
        vanishing: Vec::new(),
        reboot: false,
        message: shortened(why, LONGEST_MESSAGE),
        at: now,
    }
}

/// What an operator should know of guests' NICs that have one address on every node with the model; empty where none does.
fn same_addresses(model: &str) -> String {
    let names = same_on_each_machine(model);
    let Some(first) = names.first() else { return String::new() };
    let which = match names.len() {
        1 => format!("{first} has"),
        more => format!("{first} and {} more NICs of guests have", more - 1),
    };
    format!(
        "{which} the same MAC address on each node with this model: for several nodes leave `machine` and `mac` out of it, and addresses rest on \
         the node's name"
    )
}

/// Whether a danger is that VFs are in use, all of them by prepared claims: their pods leave before anything is done. A `penstock` that does not say
/// which VFs these are leaves the danger what it is.
fn is_of_claims(danger: &Value, held: &BTreeSet<Bdf>) -> bool {
    let name = danger.get("name").and_then(Value::as_str).unwrap_or_default();
    let functions = danger.get("functions").and_then(Value::as_array).filter(|all| !all.is_empty());
    name.starts_with(VFS_IN_USE)
        && functions.is_some_and(|all| {
            let of_claim = |function: &Value| {
                function.as_str()?.parse().ok().map(|function: Bdf| held.contains(&function))
            };
            all.iter().all(|function| of_claim(function) == Some(true))
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
                let says =
                    if plan.message.is_empty() { String::new() } else { format!("; {}", plan.message) };
                format!(
                    "{} steps, {} VFs vanish, {} dangers{says}",
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn planned(drain: &str, held: &[&str], functions: Option<&[&str]>) -> PlanSummary {
        let spec = json!({"model": "m", "nodeSelector": {"a": "b"}, "drain": {"mode": drain}});
        let mut danger = json!({"name": "vfs-in-use:NET0", "steps": [1], "lost": "NET0#3 is in use by qemu", "way_round": "stop it"});
        if let Some(functions) = functions {
            danger["functions"] = json!(functions);
        }
        let answer = Answer::new(3, json!({"kind": "plan", "steps": [{}], "dangers": [danger]}));
        let held = held.iter().map(|function| function.parse().unwrap()).collect();
        plan(&answer, &held, "m", &serde_json::from_value(spec).unwrap(), "h", UtcTime(1)).unwrap()
    }

    #[test]
    fn a_plan_tells_of_addresses_that_every_node_with_the_model_has() {
        let of = |model: &str| {
            let spec = json!({"model": model, "nodeSelector": {"a": "b"}});
            let answer = Answer::new(0, json!({"kind": "plan", "steps": [], "dangers": []}));
            let spec = serde_json::from_value(spec).unwrap();
            let plan = plan(&answer, &BTreeSet::new(), "m", &spec, "h", UtcTime(1)).unwrap();
            assert_eq!(plan.outcome, PlanOutcome::Planned);
            status(Some(plan), None, &SriovNodeStatus::default(), UtcTime(1)).conditions[0].message.clone()
        };
        let guests = "guests: {a: {nics: {net0: {uplink: br0}}}}\n";
        assert_eq!(of(guests), "0 steps, 0 VFs vanish, 0 dangers");
        let told = of(&format!("machine: m\n{guests}"));
        assert!(told.contains("; a/net0 has the same MAC address on each node with this model"), "{told}");
    }

    #[test]
    fn a_drain_sees_to_vfs_of_claims_and_of_nobody_else() {
        let (pod, other) = ("0000:01:10.0", "0000:01:10.6");
        for drain in ["claims", "node"] {
            assert_eq!(planned(drain, &[pod], Some(&[pod])).outcome, PlanOutcome::Planned);
            for (held, functions) in [
                (vec![], Some(&[pod][..])),
                (vec![pod], Some(&[pod, other][..])),
                (vec![pod], Some(&[][..])),
                (vec![pod], None),
            ] {
                let plan = planned(drain, &held, functions);
                assert_eq!(plan.outcome, PlanOutcome::Refused, "{drain} {held:?} {functions:?}");
                assert!(plan.message.contains("is in use by qemu"), "{}", plan.message);
            }
        }
        assert_eq!(planned("none", &[pod], Some(&[pod])).outcome, PlanOutcome::Refused);
    }
}
