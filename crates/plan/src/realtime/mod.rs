//! Real time: the steps that keep CPUs free of everything else, and have guests run on them.
//!
//! The order of a plan, and why:
//!
//! 1. A partition of ours with other CPUs goes: they may be anybody's now. Then interrupts and workqueues leave the isolated CPUs,
//!    the default mask first: what the steps behind it make (VFs, their drivers) asks for its interrupts under that mask. They
//!    leave before there is a partition, as the kernel takes unbound workqueues off a partition by itself, and the way back
//!    could not tell what was there before.
//! 2. The partition of CPUs that no guest owns, idle states, frequencies, cache and memory bandwidth: all that a guest is to find when
//!    it runs. The default group of resctrl gives ways away before another group has them, so that they are never two's.
//! 3. The NICs and the guests, as without real time. A VM's partition is made while it is suspended, a container's as soon as it
//!    runs: before that neither has a control group. Threads are given their priority inside the partition, where they can starve
//!    nobody else.
//! 4. Interrupts of a guest's functions, once it is ready: before that its driver has asked for none.
//! 5. Throttling last: while anything of this can still go wrong, a thread that spins cannot take a CPU for good.
//!
//! The way back is the opposite order.

mod cpus;
mod fits;
mod guests;
mod interrupts;
mod partitions;
mod shares;

use std::collections::BTreeSet;

use penstock_model::{
    CpuSet, Guest, GuestName, Inventory, Model, Realtime,
    inventory::tuning::{CgroupVersion, Knob, Reading, Tuning, Value},
};

use crate::{
    RealTimeAction,
    action::named,
    draft::{Effect, StepSpec},
    planner::Planner,
};

pub use guests::{defined, isolate, needs_before_start, schedule, these_run};
pub use partitions::{PARTITION, why_none as why_no_partitions};
pub use shares::{group_of, remove_group};

/// What real time asks of this machine.
#[derive(Clone, Debug)]
pub struct RealtimeRequirements<'a> {
    /// The model's words.
    pub realtime: &'a Realtime,
    /// What is set now.
    pub tuning: &'a Tuning,
    /// Who gets everything else.
    pub housekeeping: CpuSet,
    /// Whether partitions can be made here. If not, all CPUs that need one are isolated since the kernel's start.
    pub partitions: bool,
}

/// CPUs that get everything else: those that the model says, as far as they are on line.
pub fn housekeeping(realtime: &Realtime, inventory: &Inventory) -> CpuSet {
    let online = &inventory.cpus.online.0;
    let cpus = match &realtime.housekeeping {
        Some(cpus) => online.intersection(&cpus.0).copied().collect(),
        None => online.difference(&realtime.isolated.0).copied().collect(),
    };
    CpuSet(cpus)
}

/// What has to be so of the guests that run in real time, with their CPUs.
pub fn guests(model: &Model) -> impl Iterator<Item = (&GuestName, &Guest, &CpuSet)> {
    model.guests.iter().filter_map(|(name, guest)| {
        guest.realtime.as_ref()?;
        Some((name, guest, guest.pin.as_ref()?))
    })
}

/// The CPUs of `cpus` that are not isolated since the kernel's start.
fn not_since_start(inventory: &Inventory, cpus: &CpuSet) -> CpuSet {
    CpuSet(cpus.0.difference(&inventory.cpus.isolated.0).copied().collect())
}

/// Finds out what real time asks of the machine, and says what stands against it. Everything of it is left alone when the
/// model has no word of it.
pub fn begin(planner: &mut Planner<'_>) {
    let (model, inventory) = (planner.model, planner.inventory);
    let Some(realtime) = &model.realtime else { return };
    let Some(tuning) = &inventory.tuning else {
        planner.lack(
            "the model has `realtime`, and this inventory does not say what the machine has set now"
                .to_owned(),
            "plan on the machine itself: penstock plan MODEL, there or with --host".to_owned(),
        );
        return;
    };
    let housekeeping = housekeeping(realtime, inventory);
    fits::check(planner, realtime, tuning, &housekeeping);
    let partitions = partitions::possible(planner, realtime, tuning);
    planner.realtime = Some(RealtimeRequirements { realtime, tuning, housekeeping, partitions });
}

/// The steps before the NICs' and the guests'.
pub fn before_all(planner: &mut Planner<'_>) {
    let Some(wishes) = planner.realtime.clone() else { return };
    partitions::remove_stale(planner, &wishes);
    interrupts::steps(planner, &wishes);
    partitions::steps(planner, &wishes);
    cpus::steps(planner, &wishes);
}

/// What each guest is to have of caches and of memory bandwidth; behind [`before_all`].
pub fn share_out(planner: &mut Planner<'_>) {
    let Some(wishes) = planner.realtime.clone() else { return };
    shares::steps(planner, &wishes);
}

/// The steps after all others.
pub fn after_all(planner: &mut Planner<'_>) {
    let Some(wishes) = planner.realtime.clone() else { return };
    guests::place_interrupts(planner, &wishes);
    planner.draft.on_behalf_of(None);
    throttle(planner);
}

/// Throttling alone, the last of all.
pub fn throttle(planner: &mut Planner<'_>) {
    let Some(wishes) = planner.realtime.clone() else { return };
    cpus::throttling(planner, &wishes);
}

/// How one knob comes to its value.
struct Turn {
    knob: Knob,
    to: Value,
    needs: Vec<Effect>,
    makes: Effect,
    reason: String,
    best_effort: bool,
}

/// Has a knob hold a value, if it does not. One that could not be read is told of and left alone: there would be no way back.
fn tune(planner: &mut Planner<'_>, wishes: &RealtimeRequirements<'_>, turn: Turn) {
    let Turn { knob, to, needs, makes, reason, best_effort } = turn;
    let before = match wishes.tuning.knobs.get(&knob) {
        Some(Reading::Is(before)) => before.clone(),
        other => {
            let why = match other {
                None => "it was not read",
                // What this machine does not have at all was told once.
                Some(Reading::Absent) if is_said_once(knob) => return,
                Some(Reading::Absent) => "it is not there",
                Some(Reading::Denied) => "it may not be read",
                Some(Reading::Unreadable(why)) => why,
                Some(Reading::Is(_)) => return,
            };
            let text = format!("{knob} is left alone, and is to be {to}: {why}");
            planner.note(text);
            return;
        }
    };
    if before == to {
        return;
    }
    let function = match knob {
        Knob::IrqAffinity(number) => wishes.tuning.irqs.get(&number).and_then(|irq| irq.function),
        _ => None,
    };
    let inverse = RealTimeAction::Tune { knob, to: before, function }.into();
    let action = RealTimeAction::Tune { knob, to, function }.into();
    let sketch = StepSpec::new(action, Some(inverse), needs, makes, reason);
    planner.draft.push(sketch.best_effort(best_effort));
}

/// Whether it is said once for all CPUs that a knob is not there.
fn is_said_once(knob: Knob) -> bool {
    matches!(knob, Knob::Governor(_) | Knob::MinFrequency(_) | Knob::MaxFrequency(_))
}

/// Whether control groups are of version 2 with the controller of CPU sets.
fn has_cpusets(tuning: &Tuning) -> bool {
    tuning.cgroups.version == CgroupVersion::V2 && tuning.cgroups.controllers.contains("cpuset")
}

/// Major and minor number of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// All of these sets together.
fn union<'a>(sets: impl Iterator<Item = &'a CpuSet>) -> BTreeSet<u32> {
    sets.flat_map(|set| set.0.iter().copied()).collect()
}
