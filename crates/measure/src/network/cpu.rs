//! The CPU time that a stream from inside a VM costs, by the kernels' own counters: in the VM `/proc/stat` while the tool runs, on the host the
//! control groups of QEMU and of the NIC's switch while frames arrive. The bits are those that the far end's interface counts in the same
//! interval, so that nothing that is counted on one side alone is divided by what was counted elsewhere.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use penstock_host::{Command, Output, Place};
use penstock_model::measurement::Direction;

use crate::record::{CpuTime, SampleCpu};

/// How often the host's counters are read: a sample of a second has twenty, and a board is not kept from its work.
const PAUSE: Duration = Duration::from_millis(50);

/// Less than this between two readings is what a connection is set up with, and no stream.
const STREAM: u64 = 16 << 10;

/// More of a file is not read.
const LIMIT: usize = 1 << 20;

/// What the VM's shell says before its counters.
const SAID: &str = "penstock-cpu ";

/// Microseconds of a tick: `USER_HZ` of `/proc/stat` is 100 on every architecture that Penstock runs on
/// (`include/uapi/asm-generic/param.h`).
const TICK: u64 = 10_000;

/// What is read on the host during a sample.
pub struct CpuCounters {
    /// The host.
    pub host: Arc<dyn Place>,
    /// `cpu.stat` of each control group that the VM's frames are carried by; or why that is not known.
    pub groups: Result<Vec<String>, String>,
    /// `net/dev` of the network namespace that the far end is in.
    pub devices: String,
    /// The far end's interface there.
    pub interface: String,
    /// Which way the stream goes, from the VM.
    pub direction: Direction,
    /// How long an instruction takes, in nanoseconds, where the machine's clock counts instructions.
    pub instruction: Option<u32>,
}

/// What was read at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counted {
    /// Frames at the far end, in the stream's direction, since it was made.
    arrived: Traffic,
    /// Of each group microseconds of CPU time since it was made; `None` where one could not be read.
    cpu: Option<Vec<u64>>,
}

/// What an interface has counted, or counted between two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Traffic {
    bytes: u64,
    frames: u64,
}

impl Traffic {
    /// It, with the CPU time that it took.
    fn counted(self, microseconds: u64) -> CpuTime {
        CpuTime::Counted { microseconds, bits: self.bytes.saturating_mul(8), frames: self.frames }
    }
}

impl CpuCounters {
    fn read(&self) -> Result<Counted, String> {
        let text = |path: &str| {
            let bytes = self.host.read(path, LIMIT).map_err(|error| penstock_host::chain(&error))?;
            Ok::<_, String>(String::from_utf8_lossy(&bytes).into_owned())
        };
        let arrived = traffic(&text(&self.devices)?, &self.interface, self.direction)
            .ok_or_else(|| format!("{} has no counters of {}", self.devices, self.interface))?;
        let cpu = self
            .groups
            .as_ref()
            .ok()
            .and_then(|groups| groups.iter().map(|group| usage(&text(group).ok()?)).collect());
        Ok(Counted { arrived, cpu })
    }

    /// Runs `what`, and reads the counters meanwhile.
    pub fn during<T>(&self, what: impl FnOnce() -> T) -> (T, SampleCpu) {
        let done = AtomicBool::new(false);
        let (ended, readings) = thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut readings = vec![self.read()];
                while !done.load(Ordering::Acquire) {
                    thread::sleep(PAUSE);
                    readings.push(self.read());
                }
                readings.into_iter().collect::<Result<Vec<Counted>, String>>()
            });
            let ended = what();
            done.store(true, Ordering::Release);
            (ended, reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let cpu = match readings {
            Ok(readings) => SampleCpu {
                guest: whole(&readings),
                host: self.streamed(&readings),
                instruction: self.instruction,
            },
            Err(why) => SampleCpu::not_seen(&why),
        };
        (ended, cpu)
    }

    fn streamed(&self, readings: &[Counted]) -> CpuTime {
        match &self.groups {
            Ok(_) => streamed(readings),
            Err(why) => CpuTime::NotSeen(why.clone()),
        }
    }
}

/// What arrived between two readings.
///
/// # Errors
///
/// In words, when that cannot be told by the counter, or is nothing.
fn arrived(readings: &[Counted]) -> Result<Traffic, String> {
    let anew = |pair: &[Counted]| {
        let [before, after] = [pair[0].arrived, pair[1].arrived];
        after.bytes < before.bytes || after.frames < before.frames
    };
    if readings.windows(2).any(anew) {
        return Err("the far end's interface began to count anew during the sample".to_owned());
    }
    match readings {
        [first, .., last] if last.arrived.bytes > first.arrived.bytes => Ok(Traffic {
            bytes: last.arrived.bytes - first.arrived.bytes,
            frames: last.arrived.frames - first.arrived.frames,
        }),
        _ => Err("nothing arrived that could be counted".to_owned()),
    }
}

/// All that arrived, whose CPU time the VM tells ([`guest`]).
fn whole(readings: &[Counted]) -> CpuTime {
    match arrived(readings) {
        Ok(traffic) => traffic.counted(0),
        Err(why) => CpuTime::NotSeen(why),
    }
}

/// The CPU time of all groups between the first and the last reading; `None` where one of them began to count anew meanwhile, as a
/// group does that was made anew.
fn spent(readings: &[Vec<u64>]) -> Option<u64> {
    let mut all = 0_u64;
    for pair in readings.windows(2) {
        for (before, after) in pair[0].iter().zip(&pair[1]) {
            all = all.checked_add(after.checked_sub(*before)?)?;
        }
    }
    Some(all)
}

/// The CPU time between the reading before the first in which the stream arrived and the last such one.
fn streamed(readings: &[Counted]) -> CpuTime {
    let arrives = |pair: &[Counted]| pair[1].arrived.bytes.saturating_sub(pair[0].arrived.bytes) >= STREAM;
    let pairs = || readings.windows(2);
    let (Some(first), Some(last)) = (pairs().position(arrives), pairs().rposition(arrives)) else {
        return CpuTime::NotSeen("nothing arrived that could be counted".to_owned());
    };
    let readings = &readings[first..=last + 1];
    let groups: Option<Vec<Vec<u64>>> = readings.iter().map(|reading| reading.cpu.clone()).collect();
    let Some(groups) = groups else {
        return CpuTime::NotSeen(
            "cpu.stat of a control group could not be read, or has no usage_usec".to_owned(),
        );
    };
    match (arrived(readings), spent(&groups)) {
        (Ok(traffic), Some(microseconds)) => traffic.counted(microseconds),
        (Ok(_), None) => CpuTime::NotSeen("a control group was made anew during the sample".to_owned()),
        (Err(why), _) => CpuTime::NotSeen(why),
    }
}

/// The same command in the VM, with the CPU time of its kernel around it on standard error.
pub fn counted(command: &Command) -> Command {
    let script = format!(
        "a=; b=; {{ read -r a </proc/stat; }} 2>/dev/null\n\"$@\"\ns=$?\n{{ read -r b </proc/stat; }} 2>/dev/null\n\
         echo \"{SAID}$a|$b\" >&2\nexit $s\n"
    );
    let mut counted = Command::new("sh")
        .args(["-c", &script, "sh"])
        .arg(command.program())
        .args(command.arguments())
        .input(command.standard_input());
    for (name, value) in command.environment() {
        counted = counted.env(name, value);
    }
    match command.time_allowed() {
        Some(deadline) => counted.deadline(deadline),
        None => counted,
    }
}

/// Takes what the VM's kernel counted out of the output of [`counted`].
pub fn take(output: &mut Output, cpu: &mut SampleCpu) {
    let text = output.errors();
    let (told, rest): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with(SAID));
    cpu.guest = guest(told.last().copied(), &cpu.guest);
    output.stderr = rest.iter().flat_map(|line| [*line, "\n"]).collect::<String>().into_bytes();
}

/// The CPU time in the VM, of a line of [`counted`], for the bits in `arrived`.
fn guest(line: Option<&str>, arrived: &CpuTime) -> CpuTime {
    let CpuTime::Counted { bits, frames, .. } = *arrived else { return arrived.clone() };
    let both = line.and_then(|line| line.strip_prefix(SAID)).and_then(|line| line.split_once('|'));
    let busy = both.and_then(|(before, after)| busy(after)?.checked_sub(busy(before)?));
    match busy {
        Some(microseconds) => CpuTime::Counted { microseconds, bits, frames },
        None => CpuTime::NotSeen("/proc/stat of the VM could not be read".to_owned()),
    }
}

/// Microseconds that all CPUs were busy, by the first line of `/proc/stat` (`Documentation/filesystems/proc.rst`): `user`, `nice`, `system`,
/// `irq` and `softirq`. What the hypervisor took (`steal`) is the host's.
fn busy(line: &str) -> Option<u64> {
    let mut words = line.split_whitespace();
    if words.next() != Some("cpu") {
        return None;
    }
    let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = ticks[..] else { return None };
    [user, nice, system, irq, softirq].into_iter().try_fold(0_u64, u64::checked_add)?.checked_mul(TICK)
}

/// Microseconds, by a control group's `cpu.stat` (`Documentation/admin-guide/cgroup-v2.rst`).
fn usage(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("usage_usec "))?.trim().parse().ok()
}

/// What an interface counted, received or sent, by `/proc/net/dev` (`net/core/net-procfs.c`).
fn traffic(text: &str, interface: &str, direction: Direction) -> Option<Traffic> {
    let of = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        (name.trim() == interface).then(|| rest.to_owned())
    };
    let line = text.lines().find_map(of)?;
    let column = match direction {
        Direction::Forward => 0,
        Direction::Reverse => 8,
    };
    let mut words = line.split_whitespace().skip(column);
    let [bytes, frames] = [words.next()?, words.next()?];
    Some(Traffic { bytes: bytes.parse().ok()?, frames: frames.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: [&str; 2] = ["cpu  100 0 50 1000 10 1 9 7 0 0", "cpu  150 2 100 1010 10 2 20 90 0 0"];

    #[test]
    fn the_vms_cpu_time_is_told_by_its_kernel() {
        let line = format!("{SAID}{}|{}", STAT[0], STAT[1]);
        let arrived = CpuTime::Counted { microseconds: 0, bits: 8_000_000, frames: 1_000 };
        let told = guest(Some(&line), &arrived);
        // 50 + 2 + 50 + 1 + 11 ticks; waiting and what the hypervisor took do not count.
        assert_eq!(told, CpuTime::Counted { microseconds: 1_140_000, bits: 8_000_000, frames: 1_000 });
        assert_eq!(told.per_gigabit(), Some(1.14 / 0.008));
        assert_eq!(told.instructions_per_frame(8), Some(142_500.0), "of 8 ns each");
        for line in [None, Some("penstock-cpu |"), Some("penstock-cpu cpu 1 2|cpu 3 4"), Some("x")] {
            assert!(matches!(guest(line, &arrived), CpuTime::NotSeen(_)), "{line:?}");
        }
        let backwards = format!("{SAID}{}|{}", STAT[1], STAT[0]);
        assert!(matches!(guest(Some(&backwards), &arrived), CpuTime::NotSeen(_)));
        assert_eq!(
            CpuTime::Counted { microseconds: 5, bits: 0, frames: 0 }.per_gigabit(),
            None,
            "never a division by 0"
        );
    }

    #[test]
    fn the_hosts_cpu_time_is_of_the_time_in_which_the_stream_arrives() {
        let read = |bytes, cpu| {
            let arrived = Traffic { bytes, frames: bytes / 100 };
            Counted { arrived, cpu: Some(vec![cpu, 7]) }
        };
        let mut readings = vec![
            read(0, 1_000),
            read(500, 9_000), // A connection is set up, and a container is made.
            read(500, 20_000),
            read(100_500, 30_000),
            read(200_500, 41_000),
            read(200_900, 99_000),
        ];
        assert_eq!(
            streamed(&readings),
            CpuTime::Counted { microseconds: 21_000, bits: 1_600_000, frames: 2_000 }
        );
        readings[4].cpu = None;
        assert!(matches!(streamed(&readings), CpuTime::NotSeen(why) if why.contains("cpu.stat")));
        readings[4].cpu = Some(vec![3, 7]);
        assert!(matches!(streamed(&readings), CpuTime::NotSeen(why) if why.contains("made anew")));
        // One that was made anew hides behind what another used meanwhile.
        readings[4].cpu = Some(vec![90_000, 0]);
        assert!(matches!(streamed(&readings), CpuTime::NotSeen(why) if why.contains("made anew")));
        readings[4].cpu = Some(vec![41_000, 7]);
        // The far end's driver was reset, or its interface renamed.
        readings[4].arrived.bytes = 10;
        readings[5].arrived.bytes = 90_010;
        for told in [streamed(&readings), whole(&readings)] {
            assert!(matches!(told, CpuTime::NotSeen(why) if why.contains("count anew")));
        }
        assert!(matches!(whole(&readings[1..3]), CpuTime::NotSeen(why) if why.contains("nothing arrived")));
        assert!(matches!(streamed(&readings[..3]), CpuTime::NotSeen(why) if why.contains("nothing arrived")));
        assert!(matches!(streamed(&[]), CpuTime::NotSeen(_)));
    }

    #[test]
    fn counters_of_the_kernel_are_read() {
        assert_eq!(usage("usage_usec 1234\nuser_usec 1000\nsystem_usec 234\n"), Some(1234));
        assert_eq!(usage("user_usec 1000\n"), None);
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets\n    lo:  10 1 0 0 0 0 0 0 10 1 0 0 0 0 0 0\n\
                    eth10:  77 1 0 0 0 0 0 0 88 1 0 0 0 0 0 0\n  eth1:123 1 0 0 0 0 0 0 456 1 0 0 0 0 0 0\n";
        let read = |interface, direction| traffic(text, interface, direction);
        assert_eq!(read("eth1", Direction::Forward), Some(Traffic { bytes: 123, frames: 1 }));
        assert_eq!(read("eth1", Direction::Reverse), Some(Traffic { bytes: 456, frames: 1 }));
        assert_eq!(read("eth2", Direction::Forward), None);
    }
}
