//! What goes on while somebody watches: the difference between two looks.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use penstock_model::{
    CpuSet,
    inventory::tuning::{Reading, Watched},
};

use super::{MOST_CPUS, cpu, interrupts::Table, smi::Smis};
use crate::{Root, scan::reader::Reader};

/// How often it is looked whether to stop.
const STEP: Duration = Duration::from_millis(50);

/// Counts by name and CPU.
type Counts = BTreeMap<String, BTreeMap<u32, u64>>;

/// One look at everything that counts.
struct Look {
    interrupts: Counts,
    soft: Counts,
    idle: BTreeMap<u32, BTreeMap<String, u64>>,
}

/// Watches the machine with these CPUs for so long, or until `stop` says so: with what was seen until then.
pub fn watch(root: &Root, cpus: &CpuSet, lasting: Duration, mut stop: impl FnMut() -> bool) -> Watched {
    let mut reader = Reader::new(root);
    let cpus: Vec<u32> = cpus.0.iter().copied().take(MOST_CPUS).collect();
    let smis = Smis::begin(root, cpus.iter().copied(), &mut reader);
    let before = Look::at(&cpus, &mut reader);
    let begun = Instant::now();
    while begun.elapsed() < lasting && !stop() {
        std::thread::sleep(STEP.min(lasting.saturating_sub(begun.elapsed())));
    }
    let milliseconds = begun.elapsed().as_millis();
    let after = Look::at(&cpus, &mut reader);
    Watched {
        milliseconds: u64::try_from(milliseconds).unwrap_or(u64::MAX),
        interrupts: difference(&before.interrupts, after.interrupts),
        soft_interrupts: difference(&before.soft, after.soft),
        idle: difference(&before.idle, after.idle),
        smi: smis.end(),
    }
}

impl Look {
    fn at(cpus: &[u32], reader: &mut Reader<'_>) -> Look {
        let idle = cpus.iter().map(|cpu| {
            let states = cpu::idle(*cpu, reader).into_iter().map(|state| (state.name, state.usage));
            (*cpu, states.collect::<BTreeMap<_, _>>())
        });
        let idle = idle.filter(|(_, states)| !states.is_empty()).collect();
        Look { interrupts: table("/proc/interrupts", reader), soft: table("/proc/softirqs", reader), idle }
    }
}

fn table(path: &str, reader: &mut Reader<'_>) -> Counts {
    match reader.lines(path) {
        Reading::Is(text) => {
            let lines = Table::parse(&text).lines.into_iter();
            lines.map(|line| (line.label, line.counts)).collect()
        }
        _ => Counts::new(),
    }
}

/// What came to `before`, by the same two names; what did not move is left out. A count that went back (a CPU that was taken off
/// line meanwhile) did not move.
fn difference<A: Ord, B: Ord>(
    before: &BTreeMap<A, BTreeMap<B, u64>>,
    after: BTreeMap<A, BTreeMap<B, u64>>,
) -> BTreeMap<A, BTreeMap<B, u64>> {
    let mut moved = BTreeMap::new();
    for (one, counts) in after {
        let earlier = before.get(&one);
        let counts = counts.into_iter().filter_map(|(two, count)| {
            let was = earlier.and_then(|earlier| earlier.get(&two)).copied().unwrap_or_default();
            Some((two, count.checked_sub(was).filter(|more| *more > 0)?))
        });
        let counts: BTreeMap<B, u64> = counts.collect();
        if !counts.is_empty() {
            moved.insert(one, counts);
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_moved_is_told() {
        let before =
            BTreeMap::from([("LOC", BTreeMap::from([(0, 10), (1, 7)])), ("35", BTreeMap::from([(0, 3)]))]);
        let after = BTreeMap::from([
            ("LOC", BTreeMap::from([(0, 15), (1, 7), (2, 4)])),
            ("35", BTreeMap::from([(0, 3)])),
            ("36", BTreeMap::from([(1, 1)])),
        ]);
        let moved = difference(&before, after);
        assert_eq!(
            moved,
            BTreeMap::from([("LOC", BTreeMap::from([(0, 5), (2, 4)])), ("36", BTreeMap::from([(1, 1)])),])
        );
        // A counter that began anew.
        assert_eq!(difference(&before, BTreeMap::from([("35", BTreeMap::from([(0, 1)]))])), BTreeMap::new());
    }

    #[test]
    fn a_machine_is_watched_until_somebody_says_stop() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tree.path().join("proc")).unwrap();
        let file = tree.path().join("proc/interrupts");
        std::fs::write(&file, "  CPU0 CPU1\n 9: 1 2 IO-APIC 9-edge acpi\n").unwrap();
        let looks = std::cell::Cell::new(0);
        let watched =
            watch(&Root::at(tree.path()), &"0-1".parse().unwrap(), Duration::from_secs(600), || {
                looks.set(looks.get() + 1);
                std::fs::write(&file, "  CPU0 CPU1\n 9: 1 5 IO-APIC 9-edge acpi\n").unwrap();
                looks.get() > 1
            });
        assert!(watched.milliseconds < 60_000, "{}", watched.milliseconds);
        assert_eq!(watched.interrupts, BTreeMap::from([("9".to_owned(), BTreeMap::from([(1, 3)]))]));
        assert_eq!((watched.smi, watched.soft_interrupts.len()), (Reading::Absent, 0));
    }
}
