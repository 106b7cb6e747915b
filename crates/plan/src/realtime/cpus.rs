//! Idle states, frequencies and throttling of isolated CPUs.

use penstock_model::{
    Frequency,
    inventory::tuning::{Knob, Reading, Value},
};

use super::{RealtimeRequirements, Turn, guests, named, tune, version};
use crate::{draft::Effect, planner::Planner};

/// The first kernel with the fair server (`kernel/sched/deadline.c`, commit 5f6bd380c7bd).
const FAIR_SERVER: (u32, u32) = (6, 12);
/// What the fair server has of each second by default, in nanoseconds.
const FAIR_RUNTIME: i64 = 50_000_000;
/// What real-time threads have of each second by default, in microseconds.
const RT_RUNTIME: i64 = 950_000;

/// What of one CPU is wanted.
struct Wanted<'a> {
    wake_latency: Option<u32>,
    frequency: Option<&'a Frequency>,
    /// Whose it is, for reasons.
    whose: String,
}

pub fn steps(planner: &mut Planner<'_>, wishes: &RealtimeRequirements<'_>) {
    let model = planner.model;
    for cpu in &wishes.realtime.isolated.0 {
        let owner = guests(model).find(|(.., pin)| pin.0.contains(cpu));
        let of_guest = owner.and_then(|(_, guest, _)| guest.realtime.as_ref());
        let latency = of_guest.and_then(|guest| guest.wake_latency).or(wishes.realtime.wake_latency);
        let frequency = of_guest.and_then(|guest| guest.frequency.as_ref());
        let wanted = Wanted {
            wake_latency: latency,
            frequency: frequency.or(wishes.realtime.frequency.as_ref()),
            whose: owner.map_or_else(|| "it is isolated".to_owned(), |(name, ..)| format!("it is {name}'s")),
        };
        cpu_steps(planner, wishes, *cpu, &wanted);
    }
}

fn cpu_steps(planner: &mut Planner<'_>, wishes: &RealtimeRequirements<'_>, cpu: u32, wanted: &Wanted<'_>) {
    let whose = &wanted.whose;
    let mut set = |knob, to, reason| {
        // Least and most of a frequency come one after the other: the one never passes the other.
        let needs = vec![Effect::Cpu(cpu)];
        tune(planner, wishes, Turn { knob, to, needs, makes: Effect::Cpu(cpu), reason, best_effort: false });
    };
    match wanted.wake_latency {
        None => {}
        // 0 would be no limit (`drivers/base/power/sysfs.c`, `pm_qos_resume_latency_us_store`).
        Some(0) => set(
            Knob::ResumeLatency(cpu),
            Value::Word("n/a".to_owned()),
            format!("CPU {cpu} enters no idle state: {whose}"),
        ),
        Some(most) => set(
            Knob::ResumeLatency(cpu),
            Value::Number(i64::from(most)),
            format!("CPU {cpu} wakes within {most} microseconds: {whose}"),
        ),
    }
    match wanted.frequency {
        None => {}
        Some(Frequency::Governor(governor)) => set(
            Knob::Governor(cpu),
            Value::Word(governor.clone()),
            format!("what chooses the frequency of CPU {cpu}: {whose}"),
        ),
        Some(fixed @ Frequency::Fixed(khz)) => {
            let khz = i64::try_from(*khz).unwrap_or(i64::MAX);
            let most = match wishes.tuning.knobs.get(&Knob::MaxFrequency(cpu)) {
                Some(Reading::Is(Value::Number(most))) => *most,
                _ => i64::MAX,
            };
            let mut order = [Knob::MinFrequency(cpu), Knob::MaxFrequency(cpu)];
            if khz > most {
                order.reverse();
            }
            for knob in order {
                set(knob, Value::Number(khz), format!("CPU {cpu} runs at {fixed}: {whose}"));
            }
        }
    }
}

/// Whether ordinary threads are kept a share of each CPU.
pub fn throttling(planner: &mut Planner<'_>, wishes: &RealtimeRequirements<'_>) {
    let Some(wanted) = wishes.realtime.throttling else { return };
    let isolated = &wishes.realtime.isolated;
    let needs = || vec![Effect::Quiet, Effect::Partition];
    let (runtime, fair) = if wanted { (RT_RUNTIME, FAIR_RUNTIME) } else { (-1, 0) };
    let now = |knob| match wishes.tuning.knobs.get(&knob) {
        Some(Reading::Is(Value::Number(number))) => Some(*number),
        _ => None,
    };
    // Any share is one: only none is changed where one is wanted.
    let is_so = |knob, none: i64| now(knob).is_some_and(|number| wanted && number != none);
    if !is_so(Knob::RtRuntime, -1) {
        let reason = match wanted {
            true => "ordinary threads are kept a share of each CPU".to_owned(),
            false => format!("real-time threads may use up {}", named(isolated)),
        };
        let turn = Turn {
            knob: Knob::RtRuntime,
            to: Value::Number(runtime),
            needs: needs(),
            makes: Effect::Throttling,
            reason,
            best_effort: false,
        };
        tune(planner, wishes, turn);
    }
    let has_server = version(&planner.inventory.kernel.release).is_none_or(|seen| seen >= FAIR_SERVER);
    let mut unseen = Vec::new();
    for cpu in &isolated.0 {
        let knob = Knob::FairServer(*cpu);
        if now(knob).is_none() {
            unseen.push(*cpu);
            continue;
        }
        if is_so(knob, 0) {
            continue;
        }
        let reason = match wanted {
            true => format!("ordinary threads are kept a share of CPU {cpu}"),
            false => format!(
                "from Linux 6.12 on the fair server takes 50 ms of each second of CPU {cpu} from real-time threads as soon as an ordinary one wants to run there"
            ),
        };
        let to = Value::Number(fair);
        let turn = Turn { knob, to, needs: needs(), makes: Effect::Throttling, reason, best_effort: false };
        tune(planner, wishes, turn);
    }
    if has_server && !unseen.is_empty() {
        let why = match wishes.tuning.knobs.get(&Knob::FairServer(unseen[0])) {
            Some(Reading::Denied) => "nobody may read it here",
            Some(Reading::Unreadable(why)) => why,
            _ => {
                "there is no such file: is debugfs mounted at /sys/kernel/debug, and is this Linux 6.12 or later?"
            }
        };
        planner.note(format!(
            "whether the fair server interrupts {} is not known, and it is left alone: {}: {why}",
            named(&penstock_model::CpuSet(unseen.iter().copied().collect())),
            Knob::FairServer(unseen[0])
        ));
    }
}
