//! Interrupts and workqueues leave the isolated CPUs.

use penstock_model::{
    CpuSet,
    inventory::tuning::{Irq, Knob, Reading, Value},
};

use super::{RealtimeRequirements, Turn, named, tune};
use crate::{draft::Effect, planner::Planner};

/// Programs that move interrupts about by themselves.
const MOVERS: [&str; 1] = ["irqbalance"];

pub fn steps(planner: &mut Planner<'_>, wishes: &RealtimeRequirements<'_>) {
    let isolated = &wishes.realtime.isolated;
    if isolated.0.is_empty() && wishes.realtime.housekeeping.is_none() {
        return;
    }
    let masks = [
        (Knob::DefaultIrqAffinity, "interrupts that are asked for from now on"),
        (Knob::Workqueues, "work that is bound to no CPU"),
        (Knob::WritebackWorkqueue, "writing dirty pages back"),
    ];
    for (knob, what) in masks {
        // Before its first partition a kernel without the file has nothing that it could be written to.
        let Some(Reading::Is(Value::Cpus(now))) = wishes.tuning.knobs.get(&knob) else {
            if knob != Knob::WritebackWorkqueue {
                let text = format!("{knob} could not be read: {what} may come to {}", named(isolated));
                planner.note(text);
            }
            continue;
        };
        turn(planner, wishes, knob, now, format!("{what}: on the CPUs of housekeeping"), false);
    }
    if let Reading::Denied | Reading::Unreadable(_) = &wishes.tuning.irq_table {
        planner.note(format!(
            "/proc/interrupts could not be read: interrupts that somebody has may come to {}",
            named(isolated)
        ));
    }
    let mut stuck = Vec::new();
    for (number, irq) in &wishes.tuning.irqs {
        // The affinity of one that nobody has is set anew when it is asked for.
        if irq.users.is_empty() {
            continue;
        }
        if asked_for(planner, irq) {
            continue;
        }
        let knob = Knob::IrqAffinity(*number);
        let Some(Reading::Is(Value::Cpus(now))) = wishes.tuning.knobs.get(&knob) else { continue };
        let users = irq.users.join(", ");
        if irq.is_kernel_managed() || irq.users.iter().any(|user| user == "timer") {
            let there = irq.effective.known().is_some_and(|cpus| !cpus.0.is_disjoint(&isolated.0));
            if there {
                stuck.push(format!("{number} ({users})"));
            }
            continue;
        }
        turn(planner, wishes, knob, now, format!("{users} does not interrupt {}", named(isolated)), true);
    }
    if !stuck.is_empty() {
        planner.note(format!(
            "{} that the kernel places itself may come to {}: {}; `tickless: on` has `apply --persist` put isolcpus=managed_irq on the kernel's command line, which keeps them away after a reboot",
            if stuck.len() == 1 { "an interrupt" } else { "interrupts" },
            named(isolated),
            stuck.join(", ")
        ));
    }
    for program in MOVERS.iter().filter(|program| wishes.tuning.programs.contains(**program)) {
        planner.note(format!(
            "{program} runs and may move interrupts back to {}: stop it, or tell it of them (IRQBALANCE_BANNED_CPULIST={isolated})",
            named(isolated)
        ));
    }
}

/// Takes a mask down to the CPUs of housekeeping.
fn turn(
    planner: &mut Planner<'_>,
    wishes: &RealtimeRequirements<'_>,
    knob: Knob,
    now: &CpuSet,
    reason: String,
    best_effort: bool,
) {
    let to = Value::Cpus(narrowed(planner, wishes, now));
    let needs = vec![Effect::Partition];
    tune(planner, wishes, Turn { knob, to, needs, makes: Effect::Quiet, reason, best_effort });
}

/// What a mask comes to.
fn narrowed(planner: &Planner<'_>, wishes: &RealtimeRequirements<'_>, now: &CpuSet) -> CpuSet {
    let online = &planner.inventory.cpus.online.0;
    let keep = &wishes.housekeeping.0;
    // A mask may have CPUs that are not there, or not on line: only those count that could be interrupted.
    let stays = now.0.iter().filter(|cpu| online.contains(cpu)).all(|cpu| keep.contains(cpu))
        && now.0.is_disjoint(&wishes.realtime.isolated.0);
    if stays {
        return now.clone();
    }
    let left: CpuSet = CpuSet(now.0.intersection(keep).copied().collect());
    if left.0.is_empty() { wishes.housekeeping.clone() } else { left }
}

/// Where interrupts go, from this plan on, that nobody places; `None` where that is not known.
pub fn default_mask(planner: &Planner<'_>, wishes: &RealtimeRequirements<'_>) -> Option<CpuSet> {
    match wishes.tuning.knobs.get(&Knob::DefaultIrqAffinity) {
        Some(Reading::Is(Value::Cpus(now))) => Some(narrowed(planner, wishes, now)),
        _ => None,
    }
}

/// Whether an interrupt is of a function whose guest says itself where its interrupts go.
fn asked_for(planner: &Planner<'_>, irq: &Irq) -> bool {
    let user = irq.function.and_then(|function| planner.user(function));
    let guest = user.and_then(|name| planner.model.guests.get(name));
    guest.and_then(|guest| guest.realtime.as_ref()).is_some_and(|realtime| realtime.interrupts.is_some())
}
