//! Whether the machine has room for one more program.
//!
//! Programs wait for one another much of the time, and how much depends on the machine. So some are begun at once, and one more each time that
//! CPUs are seen idle and memory is left; while CPUs are busy, there are as many as CPUs. How soon, and how much memory, depends on what the next
//! one does ([`Kind`]).

use std::{
    fs, thread,
    time::{Duration, Instant},
};

/// How much of all CPUs' time has to have been idle for one place more.
const IDLE: f64 = 0.2;

/// With less than this there is one place less.
const BUSY: f64 = 0.03;

/// How many run beside as many as there are CPUs, at most. Many tests say how long something takes at most.
const MOST_BESIDE: usize = 4;

/// More CPUs than this are not counted: what is begun at once, without a look at what is idle, would need more memory than a small machine
/// has.
const MOST_CPUS: usize = 4;

/// What a program does, and with it what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It may boot a kernel.
    Boots,
    /// It boots nothing: tests of functions, golden files, namespaces.
    BootsNothing,
}

impl Kind {
    /// What has to be available for one more than there are CPUs, in bytes. The largest board with its VMs takes some 4 GB; of the others the
    /// documentation's examples take most, as compilers do.
    fn memory(self) -> u64 {
        match self {
            Kind::Boots => 5 << 30,
            Kind::BootsNothing => 1 << 30,
        }
    }

    /// How long CPUs are looked at before another one is given a place: what was begun last is to be seen in it.
    fn look(self) -> Duration {
        match self {
            Kind::Boots => Duration::from_secs(3),
            Kind::BootsNothing => Duration::from_secs(2),
        }
    }
}

/// What CPUs have done since the kernel's start, in clock ticks of all of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    all: u64,
}

/// Looks at the machine from time to time.
pub struct Room {
    cpus: usize,
    places: usize,
    since: Instant,
    ticks: Option<Ticks>,
}

impl Room {
    /// Of this machine.
    pub fn of_this_machine() -> Room {
        let cpus = thread::available_parallelism().map_or(1, usize::from).min(MOST_CPUS);
        Room { cpus, places: cpus, since: Instant::now(), ticks: ticks() }
    }

    /// How many programs with boards may run at once: an emulated VM has to be ready within the time that a real one may take, and with
    /// three boards of two VMs on two CPUs none was (26 November 2026; with two boards all were).
    pub fn boards(&self) -> usize {
        self.cpus
    }

    /// Whether one more program of a kind may begin beside so many.
    pub fn for_one_more(&mut self, kind: Kind, running: usize) -> bool {
        if self.since.elapsed() >= kind.look() {
            let (before, now) = (self.ticks, ticks());
            (self.since, self.ticks) = (Instant::now(), now);
            let idle = before.zip(now).map_or(0.0, |(before, now)| idle(before, now));
            self.places = places(self.places, self.cpus, kind, running, idle, available().unwrap_or(0));
        }
        // A place may have been given when the next one was to boot nothing.
        running < self.places && (running < self.cpus || available().unwrap_or(0) >= kind.memory())
    }
}

/// How many places there are from now on. As long as one of those that there are is empty, nobody knows what one more would take.
fn places(places: usize, cpus: usize, kind: Kind, running: usize, idle: f64, available: u64) -> usize {
    if available < kind.memory() {
        cpus
    } else if idle >= IDLE && running >= places {
        (places + 1).min(cpus + MOST_BESIDE)
    } else if idle < BUSY {
        (places - 1).max(cpus)
    } else {
        places
    }
}

/// Which part of the time between was idle, 0 to 1.
fn idle(before: Ticks, now: Ticks) -> f64 {
    let all = now.all.saturating_sub(before.all);
    if all == 0 { 0.0 } else { now.idle.saturating_sub(before.idle) as f64 / all as f64 }
}

/// `None` where the kernel does not tell: then no more are begun than there are CPUs.
fn ticks() -> Option<Ticks> {
    read_ticks(&fs::read_to_string("/proc/stat").ok()?)
}

/// The first line of /proc/stat: `cpu`, then user, nice, system, idle, iowait, irq, softirq, steal, and two that user and nice hold already (proc_stat(5)).
/// Who waits for a disk leaves the CPU to others as an idle one does.
fn read_ticks(stat: &str) -> Option<Ticks> {
    let words = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = words.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    Some(Ticks { idle: fields.get(3)? + fields.get(4)?, all: fields.iter().sum() })
}

/// The memory that programs can have without swapping, in bytes (`MemAvailable`, proc_meminfo(5)).
fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_more_places_while_cpus_are_idle_and_memory_is_left() {
        let memory = 8 << 30;
        let boots = |now, running, idle, memory| places(now, 2, Kind::Boots, running, idle, memory);
        assert_eq!(boots(2, 2, 0.3, memory), 3);
        assert_eq!(boots(3, 2, 0.3, memory), 3, "one is empty");
        assert_eq!(boots(3, 3, 0.1, memory), 3);
        assert_eq!(boots(3, 3, 0.0, memory), 2, "CPUs are busy");
        assert_eq!(boots(2, 2, 0.0, memory), 2, "one for each CPU");
        assert_eq!(boots(6, 6, 0.9, memory), 6, "there are many already");
        assert_eq!(boots(4, 4, 0.9, 1 << 30), 2, "memory is short");
    }

    #[test]
    fn programs_that_boot_nothing_need_less_memory() {
        let quiet = |now, running, idle, memory| places(now, 2, Kind::BootsNothing, running, idle, memory);
        assert_eq!(quiet(4, 4, 0.9, 2 << 30), 5);
        assert_eq!(quiet(6, 6, 0.9, 2 << 30), 6, "there are many already");
        assert_eq!(quiet(4, 4, 0.0, 2 << 30), 3, "CPUs are busy");
        assert_eq!(quiet(4, 4, 0.9, 1 << 29), 2, "memory is short");
    }

    #[test]
    fn what_is_idle_is_read_from_the_kernel() {
        let read = |text| read_ticks(text).unwrap();
        let before = read("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 1 1 1\n");
        assert_eq!(before, Ticks { idle: 850, all: 1000 });
        let now = read("cpu  150 0 100 880 70 0 0 0 0 0\n");
        assert!((idle(before, now) - 0.5).abs() < 1e-9);
        assert!(idle(now, now).abs() < 1e-9, "no time has passed");
        assert_eq!(read_ticks("cpu0 1 2 3\n"), None);
        assert_eq!(read_ticks("cpu 1 2\n"), None);
        assert!(ticks().is_some() && available().is_some(), "this kernel tells both");
    }

    #[test]
    fn as_many_as_there_are_cpus_begin_at_once() {
        for kind in [Kind::Boots, Kind::BootsNothing] {
            // Not to be looked at within this test.
            let since = Instant::now() + Duration::from_secs(3600);
            let mut room = Room { cpus: 2, places: 2, since, ticks: ticks() };
            assert!(room.for_one_more(kind, 0) && room.for_one_more(kind, 1));
            assert!(!room.for_one_more(kind, 2), "nothing was looked at yet");
        }
    }
}
