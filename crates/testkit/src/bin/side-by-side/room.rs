//! Whether the machine has room for one more program.
//!
//! Programs that boot kernels or serve API servers wait for one another much of the time, and how much depends on the machine. So as many are
//! run as there are CPUs, and one more each time that CPUs are seen idle and memory is left.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

/// How long CPUs are looked at before another one is given a place: what was begun last is to be seen in it.
const LOOK: Duration = Duration::from_secs(3);

/// How much of all CPUs' time has to have been idle for one place more.
const IDLE: f64 = 0.2;

/// With less than this there is one place less.
const BUSY: f64 = 0.03;

/// How many run beside as many as there are CPUs, at most.
const MOST_BESIDE: usize = 4;

/// More of them than this at once, without a look at what is idle, need more memory than a small machine has: each may have a board.
const MOST_AT_ONCE: usize = 4;

/// What has to be available for one more, in bytes: the largest board with its VMs takes some 4 GB.
const MEMORY: u64 = 5 << 30;

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
        let cpus = thread::available_parallelism().map_or(1, usize::from).min(MOST_AT_ONCE);
        Room { cpus, places: cpus, since: Instant::now(), ticks: ticks() }
    }

    /// How many programs with boards may run at once: an emulated VM has to be ready within the time that a real one may take, and with
    /// three boards of two VMs on two CPUs none was (26 November 2026; with two boards all were).
    pub fn boards(&self) -> usize {
        self.cpus
    }

    /// Whether one more program may begin beside so many.
    pub fn for_one_more(&mut self, running: usize) -> bool {
        if self.since.elapsed() >= LOOK {
            let (before, now) = (self.ticks, ticks());
            (self.since, self.ticks) = (Instant::now(), now);
            let idle = before.zip(now).map_or(0.0, |(before, now)| idle(before, now));
            self.places = places(self.places, self.cpus, running, idle, available().unwrap_or(0));
        }
        running < self.places
    }
}

/// How many places there are from now on. As long as one of those that there are is empty, nobody knows what one more would take.
fn places(places: usize, cpus: usize, running: usize, idle: f64, available: u64) -> usize {
    if available < MEMORY {
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
        assert_eq!(places(2, 2, 2, 0.3, memory), 3);
        assert_eq!(places(3, 2, 2, 0.3, memory), 3, "one is empty");
        assert_eq!(places(3, 2, 3, 0.1, memory), 3);
        assert_eq!(places(3, 2, 3, 0.0, memory), 2, "CPUs are busy");
        assert_eq!(places(2, 2, 2, 0.0, memory), 2, "one for each CPU");
        assert_eq!(places(6, 2, 6, 0.9, memory), 6, "there are many already");
        assert_eq!(places(4, 2, 4, 0.9, 1 << 30), 2, "memory is short");
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
        let mut room = Room { cpus: 2, places: 2, since: Instant::now(), ticks: ticks() };
        assert!(room.for_one_more(0) && room.for_one_more(1));
        assert!(!room.for_one_more(2), "nothing was looked at yet");
    }
}
