//! What each CPU has: knobs, idle states, the driver of its frequency.

use std::collections::BTreeMap;

use penstock_model::inventory::tuning::{IdleState, Knob, Reading, Tuning};

use super::{CPUS, number, reading_of, word};
use crate::scan::reader::Reader;

/// More idle states than any driver has (`CPUIDLE_STATE_MAX`).
const STATES: usize = 10;
/// debugfs is only for root, and need not be mounted.
const DEBUG: &str = "/sys/kernel/debug/sched";

pub(super) fn of_cpus(cpus: &[u32], tuning: &mut Tuning, reader: &mut Reader<'_>) {
    for cpu in cpus {
        for knob in Knob::OF_CPU {
            let knob = knob(*cpu);
            let mut reading = reading_of(knob, reader);
            if matches!((knob, &reading), (Knob::FairServer(_), Reading::Absent)) && !reader.exists(DEBUG) {
                reading = Reading::Unreadable(format!("{DEBUG} is not there: debugfs is not mounted"));
            }
            tuning.knobs.insert(knob, reading);
        }
        let driver = reader.reading(&format!("{CPUS}/cpu{cpu}/cpufreq/scaling_driver"), word);
        if let Reading::Is(driver) = driver {
            tuning.frequency_drivers.insert(*cpu, driver);
        }
        let states = idle(*cpu, reader);
        if !states.is_empty() {
            tuning.idle.insert(*cpu, states);
        }
    }
}

/// The idle states of a CPU, the shallowest first; none where one of them cannot be judged.
pub(super) fn idle(cpu: u32, reader: &mut Reader<'_>) -> Vec<IdleState> {
    let directory = format!("{CPUS}/cpu{cpu}/cpuidle");
    let states = reader.numbered(&directory, "state").into_iter().take(STATES);
    let mut found = Vec::new();
    for state in states {
        let of = |file: &str| format!("{directory}/state{state}/{file}");
        // Without its name and its latency the deepest state of this CPU is not known; the reader has noted why.
        let Some(name) = reader.required(&of("name")) else { return Vec::new() };
        let Some(latency) = reader.required_value(&of("latency"), "number") else { return Vec::new() };
        found.push(IdleState {
            name,
            latency,
            disabled: reader.value::<u32>(&of("disable"), "number").is_some_and(|disabled| disabled != 0),
            usage: usage(cpu, state, reader).unwrap_or_default(),
        });
    }
    found
}

/// How often each idle state of a CPU was entered since the start, by its name; `None` where one could not be counted.
pub(super) fn idle_counts(cpu: u32, reader: &mut Reader<'_>) -> Option<BTreeMap<String, u64>> {
    let directory = format!("{CPUS}/cpu{cpu}/cpuidle");
    let states = match reader.listing(&directory) {
        Reading::Absent => return Some(BTreeMap::new()),
        Reading::Is(names) => names.into_iter().filter_map(|name| name.strip_prefix("state")?.parse().ok()),
        Reading::Denied | Reading::Unreadable(_) => return None,
    };
    let count = |state| {
        let name = reader.required(&format!("{directory}/state{state}/name"))?;
        Some((name, usage(cpu, state, reader)?))
    };
    states.take(STATES).map(count).collect()
}

/// How often a state was entered since the start.
fn usage(cpu: u32, state: u32, reader: &mut Reader<'_>) -> Option<u64> {
    let path = format!("{CPUS}/cpu{cpu}/cpuidle/state{state}/usage");
    reader.reading(&path, number).known().copied()
}
