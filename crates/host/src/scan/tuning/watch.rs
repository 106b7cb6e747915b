//! What goes on while somebody watches: the difference between two looks.

use std::{
    collections::{BTreeMap, BTreeSet},
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
    interrupts: Reading<Counts>,
    soft: Reading<Counts>,
    idle: BTreeMap<u32, BTreeMap<String, u64>>,
    /// CPUs that have a state which could not be counted.
    idle_unread: BTreeSet<u32>,
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
    let mut after = Look::at(&cpus, &mut reader);
    // A CPU that has come or gone meanwhile was not counted at both ends either.
    let mut idle_unread: BTreeSet<u32> = &before.idle_unread | &after.idle_unread;
    idle_unread
        .extend(cpus.iter().filter(|cpu| before.idle.contains_key(cpu) != after.idle.contains_key(cpu)));
    after.idle.retain(|cpu, _| !idle_unread.contains(cpu));
    Watched {
        milliseconds: u64::try_from(milliseconds).unwrap_or(u64::MAX),
        interrupts: came(before.interrupts, after.interrupts),
        soft_interrupts: came(before.soft, after.soft),
        idle: difference(&before.idle, after.idle),
        idle_unread: CpuSet(idle_unread),
        smi: smis.end(),
    }
}

impl Look {
    fn at(cpus: &[u32], reader: &mut Reader<'_>) -> Look {
        let (mut idle, mut idle_unread) = (BTreeMap::new(), BTreeSet::new());
        for cpu in cpus {
            match cpu::idle_counts(*cpu, reader) {
                Some(counts) if counts.is_empty() => {}
                Some(counts) => _ = idle.insert(*cpu, counts),
                None => _ = idle_unread.insert(*cpu),
            }
        }
        let (interrupts, soft) = (table("/proc/interrupts", reader), table("/proc/softirqs", reader));
        Look { interrupts, soft, idle, idle_unread }
    }
}

fn table(path: &str, reader: &mut Reader<'_>) -> Reading<Counts> {
    let counts = |table: Table| table.lines.into_iter().map(|line| (line.label, line.counts)).collect();
    Table::read(path, reader).map(counts)
}

/// What came between two looks, where both could be made: of one alone nothing can be said.
fn came(before: Reading<Counts>, after: Reading<Counts>) -> Reading<Counts> {
    match (before, after) {
        (Reading::Is(before), Reading::Is(after)) => Reading::Is(difference(&before, after)),
        (Reading::Is(_), unread) | (unread, _) => unread,
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
        let came = BTreeMap::from([("9".to_owned(), BTreeMap::from([(1, 3)]))]);
        assert_eq!(watched.interrupts, Reading::Is(came));
        assert_eq!((watched.smi, watched.soft_interrupts), (Reading::Absent, Reading::Absent));
    }

    #[test]
    fn what_was_counted_at_one_end_alone_is_not_known() {
        let tree = tempfile::tempdir().unwrap();
        let states =
            ["1", "2"].map(|cpu| tree.path().join(format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state0")));
        std::fs::create_dir_all(tree.path().join("proc")).unwrap();
        for state in &states {
            std::fs::create_dir_all(state).unwrap();
            for (file, text) in [("name", "C6"), ("latency", "133"), ("disable", "0"), ("usage", "50")] {
                std::fs::write(state.join(file), text).unwrap();
            }
        }
        std::fs::write(states[1].join("usage"), "many").unwrap();
        let interrupts = tree.path().join("proc/interrupts");
        let soft = tree.path().join("proc/softirqs");
        std::fs::write(&interrupts, "no table\n").unwrap();
        std::fs::write(&soft, "CPU0 CPU1\nTIMER: 1 2\n").unwrap();
        let looked = std::cell::Cell::new(false);
        let watched =
            watch(&Root::at(tree.path()), &"0-2".parse().unwrap(), Duration::from_secs(600), || {
                std::fs::write(&interrupts, "CPU0 CPU1\n9: 1000 2000 IO-APIC 9-edge acpi\n").unwrap();
                std::fs::write(&soft, "no table\n").unwrap();
                std::fs::write(states[0].join("usage"), "57").unwrap();
                std::fs::write(states[1].join("usage"), "50").unwrap();
                looked.replace(true)
            });
        for (unread, path) in
            [(&watched.interrupts, "/proc/interrupts"), (&watched.soft_interrupts, "/proc/softirqs")]
        {
            assert_eq!(*unread, Reading::Unreadable(format!("{path}: its first line names no CPU")));
        }
        assert_eq!(watched.idle, BTreeMap::from([(1, BTreeMap::from([("C6".to_owned(), 7)]))]));
        assert_eq!(watched.idle_unread, "2".parse().unwrap());
    }
}
