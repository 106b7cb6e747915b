//! A guest's own partition, how it is scheduled, and where its interrupts go.

use std::collections::BTreeSet;

use penstock_model::{
    Bdf, CpuSet, Guest, GuestKind, GuestName, Scheduling, SchedulingPolicy,
    inventory::{
        FoundGuest,
        tuning::{Irq, Knob, Value},
    },
};
use serde::Deserialize;

use super::{RealtimeRequirements, Turn, guests, interrupts, named, tune};
use crate::{
    GuestAction, RealTimeAction,
    action::GuestDefinition,
    draft::{Effect, StepSpec},
    planner::Planner,
};

/// What must be so before a guest may start, or before a suspended VM may run.
pub fn needs_before_start(planner: &Planner<'_>, name: &GuestName) -> Vec<Effect> {
    let guest = planner.model.guests.get(name).filter(|guest| guest.realtime.is_some());
    let (Some(guest), Some(_)) = (guest, &planner.realtime) else { return Vec::new() };
    let cpus = guest.pin.iter().flat_map(|pin| pin.0.iter().copied().map(Effect::Cpu));
    [Effect::Quiet, Effect::Partition, Effect::Shares, Effect::Isolated(name.clone())]
        .into_iter()
        .chain(cpus)
        .collect()
}

/// Has the control group of a guest that is there be an isolated partition of its CPUs.
pub fn isolate(planner: &mut Planner<'_>, name: &GuestName, guest: &Guest, found: Option<&FoundGuest>) {
    let Some(pin) =
        wanted(planner, guest).filter(|_| planner.realtime.as_ref().is_some_and(|w| w.partitions))
    else {
        return;
    };
    if found.is_some_and(|found| found.isolated == pin) {
        return;
    }
    let otherwise = found.filter(|found| !found.isolated.0.is_empty() && !is_half_made(found, &pin));
    if let Some(found) = otherwise {
        planner.note(format!(
            "{name} runs with {} as its partition, and is to have {}: stop and start it",
            named(&found.isolated),
            named(&pin)
        ));
        return;
    }
    let action = |on| GuestAction::IsolateGuest { guest: name.clone(), cpus: pin.clone(), on }.into();
    planner.draft.push(StepSpec::new(
        action(true),
        Some(action(false)),
        vec![Effect::Running(name.clone()), Effect::Quiet, Effect::Partition],
        Effect::Isolated(name.clone()),
        format!("nothing but {name} is to run on {}", named(&pin)),
    ));
}

/// Whether the guest was given the CPUs `pin` at its start and only some of them are in a partition: a VM has one for each virtual
/// CPU, and what makes them may have been stopped between two. Its way back leaves none of them: half of it is of no use.
fn is_half_made(found: &FoundGuest, pin: &CpuSet) -> bool {
    let definition = found.definition.as_ref().and_then(|found| GuestDefinition::deserialize(found).ok());
    let given = definition.and_then(|definition| definition.pin);
    given.as_ref() == Some(pin) && found.isolated.0.is_subset(&pin.0)
}

/// Has the threads of a guest that is there be scheduled as the model says. A VM that is made anew has that from its
/// definition.
pub fn schedule(planner: &mut Planner<'_>, name: &GuestName, guest: &Guest, found: Option<&FoundGuest>) {
    let Some(realtime) = guest.realtime.as_ref().filter(|_| planner.realtime.is_some()) else { return };
    let to = realtime.scheduling;
    // What a new container's threads have, and those of whom nothing is known.
    let before = found.and_then(|found| found.scheduling).unwrap_or_default();
    if before == to {
        return;
    }
    let action = |scheduling| GuestAction::ScheduleGuest { guest: name.clone(), scheduling }.into();
    planner.draft.push(StepSpec::new(
        action(to),
        Some(action(before)),
        vec![Effect::Running(name.clone()), Effect::Isolated(name.clone())],
        Effect::Scheduled(name.clone()),
        match to.policy {
            SchedulingPolicy::Other => format!("{name} takes its turn like any other"),
            _ => format!("{name} is not to wait for ordinary threads"),
        },
    ));
}

fn wanted(planner: &Planner<'_>, guest: &Guest) -> Option<CpuSet> {
    planner.realtime.as_ref()?;
    guest.realtime.as_ref()?;
    guest.pin.clone()
}

/// Guests that run already: they are not started anew for it.
pub fn these_run<'a>(planner: &mut Planner<'a>, chosen: impl Iterator<Item = &'a GuestName>) {
    let inventory = planner.inventory;
    for name in chosen {
        let Some(found) = inventory.guests.get(name).filter(|found| found.running && !found.suspended) else {
            continue;
        };
        let Some(guest) = planner.model.guests.get(name) else { continue };
        planner.draft.on_behalf_of(Some(name));
        isolate(planner, name, guest, Some(found));
        schedule(planner, name, guest, Some(found));
    }
    planner.draft.on_behalf_of(None);
}

/// Sends the interrupts of guests' functions where the model says. Those of guests that say nothing go by the default mask.
pub fn place_interrupts(planner: &mut Planner<'_>, wishes: &RealtimeRequirements<'_>) {
    let (model, inventory) = (planner.model, planner.inventory);
    for (name, guest, _) in guests(model) {
        let Some(cpus) = guest.realtime.as_ref().and_then(|realtime| realtime.interrupts.clone()) else {
            continue;
        };
        let Some(functions) = planner.given.get(name).cloned().filter(|given| !given.is_empty()) else {
            continue;
        };
        planner.draft.on_behalf_of(Some(name));
        if inventory.guests.get(name).is_some_and(|found| found.running && !found.suspended) {
            move_those_that_are_there(planner, wishes, name, &functions, &cpus);
            continue;
        }
        // They go with the guest; until then, where the kernel would have put them by itself.
        let back = interrupts::default_mask(planner, wishes)
            .map(|cpus| RealTimeAction::PlaceInterrupts { functions: functions.clone(), cpus }.into());
        planner.draft.push(
            StepSpec::new(
                RealTimeAction::PlaceInterrupts { functions, cpus: cpus.clone() }.into(),
                back,
                vec![Effect::Ready(name.clone()), Effect::Isolated(name.clone()), Effect::Quiet],
                Effect::Interrupts(name.clone()),
                format!("the interrupts of {name}'s functions go to {}", named(&cpus)),
            )
            .best_effort(true),
        );
    }
}

/// Sends the interrupts of a guest that runs there, one by one: each has a place of its own to go back to.
fn move_those_that_are_there(
    planner: &mut Planner<'_>,
    wishes: &RealtimeRequirements<'_>,
    name: &GuestName,
    functions: &BTreeSet<Bdf>,
    cpus: &CpuSet,
) {
    let of = |irq: &Irq| irq.function.is_some_and(|own| functions.contains(&own));
    for (number, _) in wishes.tuning.irqs.iter().filter(|(_, irq)| of(irq)) {
        let turn = Turn {
            knob: Knob::IrqAffinity(*number),
            to: Value::Cpus(cpus.clone()),
            needs: vec![Effect::Isolated(name.clone())],
            makes: Effect::Interrupts(name.clone()),
            reason: format!("the interrupts of {name}'s functions go to {}", named(cpus)),
            best_effort: true,
        };
        tune(planner, wishes, turn);
    }
}

/// How the virtual CPUs of a VM are scheduled by its definition.
pub fn defined(guest: &Guest) -> Option<Scheduling> {
    let realtime = guest.realtime.as_ref().filter(|_| guest.kind == GuestKind::Vm)?;
    Some(realtime.scheduling)
}
