//! Files of the kernel that hold one value each and decide how late a thread wakes.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::CpuSet;

/// A file of the kernel that holds one value. As text it is the file's path, without the root that it was read below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Knob {
    /// The CPUs that an interrupt may be delivered to (`Documentation/core-api/irq/irq-affinity.rst`).
    IrqAffinity(u32),
    /// The CPUs that interrupts which are requested from now on may be delivered to.
    DefaultIrqAffinity,
    /// The CPUs of unbound workqueues (`Documentation/core-api/workqueue.rst`).
    Workqueues,
    /// The CPUs of the unbound workqueue that writes dirty pages back.
    WritebackWorkqueue,
    /// The longest wake-up latency of idle states that a CPU may use, in microseconds
    /// (`Documentation/admin-guide/pm/cpuidle.rst`). Beware: `0` is no limit, `n/a` is no idle state at all.
    ResumeLatency(u32),
    /// What chooses a CPU's frequency (`Documentation/admin-guide/pm/cpufreq.rst`).
    Governor(u32),
    /// The least that may be chosen, in kHz.
    MinFrequency(u32),
    /// The most that may be chosen, in kHz.
    MaxFrequency(u32),
    /// Of each `sched_rt_period_us`, what real-time threads may use; -1: all (`Documentation/scheduler/sched-rt-group.rst`).
    RtRuntime,
    /// What the fair server takes for ordinary threads on a CPU of each of its periods, in nanoseconds (Linux 6.12 on,
    /// `kernel/sched/debug.c`). In debugfs: for root alone.
    FairServer(u32),
    /// Seconds between two updates of the statistics of virtual memory, which interrupt each CPU.
    StatInterval,
    /// Whether a watchdog interrupts each CPU by a performance counter.
    NmiWatchdog,
    /// Whether a timer and a thread on each CPU look for soft lockups (`Documentation/admin-guide/sysctl/kernel.rst`).
    SoftWatchdog,
    /// The CPUs that both watchdogs look at.
    WatchdogCpus,
    /// Of what `sched_rt_runtime_us` is a part, in microseconds.
    RtPeriod,
    /// Whether nobody may hurry an RCU grace period (`Documentation/RCU/`, `kernel/ksysfs.c`): it overrides the next.
    RcuNormal,
    /// Whether every RCU grace period hurries.
    RcuExpedited,
    /// Whether timers move to CPUs that are awake.
    TimerMigration,
    /// Whether pages are unmapped to find out who uses them (`kernel.numa_balancing`).
    NumaBalancing,
    /// Whether pages with the same content are merged (`/sys/kernel/mm/ksm/run`): 0, 1, or 2 for taken apart again.
    Ksm,
    /// Transparent huge pages: the word in brackets.
    TransparentHugePages,
}

/// What a knob holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// A set of CPUs.
    Cpus(CpuSet),
    /// A number that the kernel takes.
    Number(i64),
    /// A word that the kernel takes.
    Word(String),
}

/// How a knob's value is written in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A list of CPU ranges: `0-3,8`.
    CpuList,
    /// `0000010f`, in groups of 32 bits with commas between them (`lib/bitmap-str.c`, `bitmap_parse_user`).
    CpuMask,
    Number,
    Word,
    /// A number, or `n/a`.
    NumberOrWord,
    /// The word in brackets among others: `always [madvise] never`.
    Chosen,
}

impl Knob {
    /// All that a machine has one of.
    pub const OF_MACHINE: [Knob; 15] = [
        Knob::DefaultIrqAffinity,
        Knob::Workqueues,
        Knob::WritebackWorkqueue,
        Knob::RtRuntime,
        Knob::StatInterval,
        Knob::NmiWatchdog,
        Knob::SoftWatchdog,
        Knob::WatchdogCpus,
        Knob::RtPeriod,
        Knob::RcuNormal,
        Knob::RcuExpedited,
        Knob::TimerMigration,
        Knob::NumaBalancing,
        Knob::Ksm,
        Knob::TransparentHugePages,
    ];

    /// All that each CPU has one of.
    pub const OF_CPU: [fn(u32) -> Knob; 5] =
        [Knob::ResumeLatency, Knob::Governor, Knob::MinFrequency, Knob::MaxFrequency, Knob::FairServer];

    fn form(self) -> Form {
        match self {
            Knob::IrqAffinity(_) | Knob::WatchdogCpus => Form::CpuList,
            Knob::DefaultIrqAffinity | Knob::Workqueues | Knob::WritebackWorkqueue => Form::CpuMask,
            Knob::ResumeLatency(_) => Form::NumberOrWord,
            Knob::Governor(_) => Form::Word,
            Knob::TransparentHugePages => Form::Chosen,
            Knob::MinFrequency(_)
            | Knob::MaxFrequency(_)
            | Knob::RtRuntime
            | Knob::FairServer(_)
            | Knob::StatInterval
            | Knob::NmiWatchdog
            | Knob::SoftWatchdog
            | Knob::RtPeriod
            | Knob::RcuNormal
            | Knob::RcuExpedited
            | Knob::TimerMigration
            | Knob::NumaBalancing
            | Knob::Ksm => Form::Number,
        }
    }

    /// The value that a text of the file stands for.
    ///
    /// # Errors
    ///
    /// [`ParseValueError`] with the knob and the text's first 100 characters, when it is not of the knob's form.
    pub fn read(self, text: &str) -> Result<Value, ParseValueError> {
        let text = text.trim();
        let fail = || ParseValueError { knob: self, text: text.chars().take(100).collect() };
        let number = || text.parse().map(Value::Number).ok();
        match self.form() {
            Form::CpuList => text.parse().ok().map(Value::Cpus),
            Form::CpuMask => mask(text).map(Value::Cpus),
            Form::Number => number(),
            Form::Word => word(text),
            Form::NumberOrWord => number().or_else(|| word(text)),
            Form::Chosen => text.split_once('[').and_then(|(_, rest)| word(rest.split_once(']')?.0)),
        }
        .ok_or_else(fail)
    }

    /// The text that writes `value` to the file.
    pub fn written(self, value: &Value) -> String {
        match (self.form(), value) {
            (Form::CpuMask, Value::Cpus(cpus)) => written_mask(cpus),
            (_, value) => value.to_string(),
        }
    }
}

fn word(text: &str) -> Option<Value> {
    let plain = |character: char| character.is_ascii_alphanumeric() || "_-/".contains(character);
    let fits = !text.is_empty() && text.len() <= 64 && text.chars().all(plain);
    fits.then(|| Value::Word(text.to_owned()))
}

/// Groups of the mask, the last one first.
fn mask(text: &str) -> Option<CpuSet> {
    let mut cpus = CpuSet::default();
    if text.is_empty() || text.len() > 9 * 2048 {
        return None;
    }
    for (group, digits) in (0_u32..).zip(text.split(',').rev()) {
        let bits = u32::from_str_radix(digits, 16).ok()?;
        cpus.0.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| group * 32 + bit));
    }
    Some(cpus)
}

fn written_mask(cpus: &CpuSet) -> String {
    let groups = cpus.0.last().map_or(1, |last| last / 32 + 1);
    let group = |number: u32| {
        cpus.0.range(number * 32..(number + 1) * 32).fold(0_u32, |bits, cpu| bits | 1 << (cpu % 32))
    };
    let texts: Vec<String> = (0..groups).rev().map(|number| format!("{:08x}", group(number))).collect();
    texts.join(",")
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Cpus(cpus) => cpus.fmt(f),
            Value::Number(number) => number.fmt(f),
            Value::Word(word) => f.write_str(word),
        }
    }
}

/// Text that a knob never holds.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{knob} holds {text:?}, which cannot be parsed")]
pub struct ParseValueError {
    /// The knob whose file holds the text.
    pub knob: Knob,
    /// The beginning of the text.
    pub text: String,
}

/// A path that is no knob's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is no file of one value that Penstock knows")]
pub struct ParseKnobError(String);

const CPU: &str = "/sys/devices/system/cpu/cpu";
const IRQ: &str = "/proc/irq/";
const FAIR: &str = "/sys/kernel/debug/sched/fair_server/cpu";

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Knob::IrqAffinity(irq) => write!(f, "{IRQ}{irq}/smp_affinity_list"),
            Knob::DefaultIrqAffinity => f.write_str("/proc/irq/default_smp_affinity"),
            Knob::Workqueues => f.write_str("/sys/devices/virtual/workqueue/cpumask"),
            Knob::WritebackWorkqueue => f.write_str("/sys/bus/workqueue/devices/writeback/cpumask"),
            Knob::ResumeLatency(cpu) => write!(f, "{CPU}{cpu}/power/pm_qos_resume_latency_us"),
            Knob::Governor(cpu) => write!(f, "{CPU}{cpu}/cpufreq/scaling_governor"),
            Knob::MinFrequency(cpu) => write!(f, "{CPU}{cpu}/cpufreq/scaling_min_freq"),
            Knob::MaxFrequency(cpu) => write!(f, "{CPU}{cpu}/cpufreq/scaling_max_freq"),
            Knob::RtRuntime => f.write_str("/proc/sys/kernel/sched_rt_runtime_us"),
            Knob::FairServer(cpu) => write!(f, "{FAIR}{cpu}/runtime"),
            Knob::StatInterval => f.write_str("/proc/sys/vm/stat_interval"),
            Knob::NmiWatchdog => f.write_str("/proc/sys/kernel/nmi_watchdog"),
            Knob::SoftWatchdog => f.write_str("/proc/sys/kernel/soft_watchdog"),
            Knob::WatchdogCpus => f.write_str("/proc/sys/kernel/watchdog_cpumask"),
            Knob::RtPeriod => f.write_str("/proc/sys/kernel/sched_rt_period_us"),
            Knob::RcuNormal => f.write_str("/sys/kernel/rcu_normal"),
            Knob::RcuExpedited => f.write_str("/sys/kernel/rcu_expedited"),
            Knob::TimerMigration => f.write_str("/proc/sys/kernel/timer_migration"),
            Knob::NumaBalancing => f.write_str("/proc/sys/kernel/numa_balancing"),
            Knob::Ksm => f.write_str("/sys/kernel/mm/ksm/run"),
            Knob::TransparentHugePages => f.write_str("/sys/kernel/mm/transparent_hugepage/enabled"),
        }
    }
}

impl FromStr for Knob {
    type Err = ParseKnobError;

    fn from_str(path: &str) -> Result<Knob, ParseKnobError> {
        let of_machine = || Knob::OF_MACHINE.into_iter().find(|knob| knob.to_string() == path);
        // The number decides which path it must be; what stands around it is compared whole.
        let numbered =
            |prefix: &str| -> Option<u32> { path.strip_prefix(prefix)?.split('/').next()?.parse().ok() };
        let of_irq = || numbered(IRQ).map(Knob::IrqAffinity);
        let of_cpu = |prefix| {
            let cpu = numbered(prefix)?;
            Knob::OF_CPU.into_iter().map(|knob| knob(cpu)).find(|knob| knob.to_string() == path)
        };
        of_machine()
            .or_else(of_irq)
            .or_else(|| of_cpu(CPU))
            .or_else(|| of_cpu(FAIR))
            .filter(|knob| knob.to_string() == path)
            .ok_or_else(|| ParseKnobError(path.to_owned()))
    }
}

/// The path that it is written to, as text.
impl schemars::JsonSchema for Knob {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Knob".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string"})
    }
}

impl Serialize for Knob {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Knob {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Knob, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knob_is_its_path() {
        let numbered = Knob::OF_CPU.into_iter().flat_map(|knob| [knob(0), knob(127)]);
        for knob in Knob::OF_MACHINE.into_iter().chain(numbered).chain([Knob::IrqAffinity(35)]) {
            assert_eq!(knob.to_string().parse(), Ok(knob));
        }
        for other in ["/proc/irq/35/smp_affinity", "/proc/irq//smp_affinity_list", "/etc/passwd", ""] {
            assert!(other.parse::<Knob>().is_err(), "{other}");
        }
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let cpus: CpuSet = "0-3,33,64".parse().unwrap();
        let mask = Knob::DefaultIrqAffinity.written(&Value::Cpus(cpus.clone()));
        assert_eq!(mask, "00000001,00000002,0000000f");
        assert_eq!(Knob::DefaultIrqAffinity.read(&mask), Ok(Value::Cpus(cpus)));
        // The kernel leaves out what is 0 in front.
        assert_eq!(Knob::Workqueues.read("3\n"), Ok(Value::Cpus("0-1".parse().unwrap())));
        assert_eq!(Knob::ResumeLatency(2).read("n/a\n"), Ok(Value::Word("n/a".to_owned())));
        assert_eq!(Knob::ResumeLatency(2).read("0\n"), Ok(Value::Number(0)));
        assert_eq!(Knob::RtRuntime.read("-1\n"), Ok(Value::Number(-1)));
        let pages = Knob::TransparentHugePages.read("always [madvise] never\n");
        assert_eq!(pages, Ok(Value::Word("madvise".to_owned())));
        for odd in ["", "x", "1 2"] {
            assert!(Knob::RtRuntime.read(odd).is_err(), "{odd}");
            assert!(Knob::DefaultIrqAffinity.read(odd).is_err(), "{odd}");
        }
    }
}
