//! Real time: which CPUs are kept free of everything else, and how guests run on them.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::CpuSet;

/// What of the machine decides how late its guests wake. What is `None` is left as it is found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Realtime {
    /// CPUs that nothing else may use: those that the model names, and those of every guest with `realtime`.
    pub isolated: CpuSet,
    /// Who gets everything else: interrupts, workqueues, QEMU's own threads. `None`, the default: every CPU on line that is not
    /// isolated.
    pub housekeeping: Option<CpuSet>,
    /// The longest wake-up latency of idle states that isolated CPUs may use, in microseconds; 0: no idle state at all.
    pub wake_latency: Option<u32>,
    /// How the frequency of isolated CPUs is chosen.
    pub frequency: Option<Frequency>,
    /// Whether ordinary threads are kept a share of isolated CPUs that real-time threads use up: RT throttling and, from Linux
    /// 6.12 on, the fair server.
    pub throttling: Option<bool>,
    /// Whether isolated CPUs are without a periodic tick while one thread runs (`nohz_full`, `rcu_nocbs`). Only a new start
    /// of the kernel changes it.
    pub tickless: Option<bool>,
}

/// How a guest runs in real time on the CPUs that it is pinned to, which are its alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct GuestRealtime {
    /// How a VM's virtual CPUs, or all threads of a container, are scheduled. Default: FIFO with priority 1 for a VM, ordinary for a
    /// container.
    pub scheduling: Scheduling,
    /// CPUs that handle the interrupts of its functions. `None`, the default: those of housekeeping.
    pub interrupts: Option<CpuSet>,
    /// Ways of the last-level cache that are its alone. `None`, the default: it shares the cache with all.
    pub cache: Option<u32>,
    /// The most of the memory's bandwidth that it may use, in percent. `None`, the default: no limit.
    pub memory_bandwidth: Option<Percent>,
    /// As for the machine, for its CPUs: over what is said there.
    pub wake_latency: Option<u32>,
    /// As for the machine, for its CPUs: over what is said there.
    pub frequency: Option<Frequency>,
}

/// How threads are scheduled (`sched(7)`).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
pub struct Scheduling {
    /// The scheduling policy of the threads.
    pub policy: SchedulingPolicy,
    /// 1 to 99, the more the more urgent; 0 for the ordinary policy, which has none.
    pub priority: u32,
}

impl Scheduling {
    /// The highest priority.
    pub const MOST: u32 = 99;
}

impl fmt::Display for Scheduling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.policy {
            SchedulingPolicy::Other => f.write_str("other"),
            SchedulingPolicy::Fifo => write!(f, "fifo with priority {}", self.priority),
            SchedulingPolicy::Rr => write!(f, "rr with priority {}", self.priority),
        }
    }
}

/// Which of several threads a CPU runs (`sched(7)`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum SchedulingPolicy {
    /// `SCHED_OTHER`: each its share.
    #[default]
    Other,
    /// `SCHED_FIFO`: the most urgent one, for as long as it wants.
    Fifo,
    /// `SCHED_RR`: the same, but those of one priority take turns.
    Rr,
}

impl SchedulingPolicy {
    /// Its number (`include/uapi/linux/sched.h`).
    pub const fn number(self) -> u32 {
        match self {
            SchedulingPolicy::Other => 0,
            SchedulingPolicy::Fifo => 1,
            SchedulingPolicy::Rr => 2,
        }
    }
}

/// How the frequency of a CPU is chosen: by a governor of the kernel (`Documentation/admin-guide/pm/cpufreq.rst`), or
/// always this one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Frequency {
    /// A governor: `performance`.
    Governor(String),
    /// Least and most in kHz.
    Fixed(u64),
}

/// Text that is no frequency.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is neither a governor like `performance` nor a frequency like 2.4GHz")]
pub struct ParseFrequencyError(String);

/// Units of frequency in kHz.
const UNITS: [(&str, u64); 3] = [("kHz", 1), ("MHz", 1_000), ("GHz", 1_000_000)];
/// No CPU is faster, in kHz.
const FASTEST: u64 = 100_000_000;

impl FromStr for Frequency {
    type Err = ParseFrequencyError;

    fn from_str(text: &str) -> Result<Frequency, ParseFrequencyError> {
        let fail = || ParseFrequencyError(text.chars().take(40).collect());
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let (number, factor) = UNITS
                .into_iter()
                .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?.trim_end(), factor)))
                .ok_or_else(fail)?;
            return kilohertz(number, factor).map(Frequency::Fixed).ok_or_else(fail);
        }
        // `CPUFREQ_NAME_LEN` is 16 with the end (`include/linux/cpufreq.h`).
        let plain = |c: char| c.is_ascii_lowercase() || c == '_';
        let fits = (1..16).contains(&text.len()) && text.chars().all(plain);
        fits.then(|| Frequency::Governor(text.to_owned())).ok_or_else(fail)
    }
}

/// A decimal number of a unit, exactly.
fn kilohertz(number: &str, factor: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.len() <= 9 && text.bytes().all(|c| c.is_ascii_digit());
    if !digits(whole) || !digits(part) || whole.len() > 1 && whole.starts_with('0') {
        return None;
    }
    let scale = 10_u64.pow(u32::try_from(part.len()).ok()?);
    let part = part.parse::<u64>().ok()?.checked_mul(factor)?;
    let all = whole.parse::<u64>().ok()?.checked_mul(factor)?.checked_add(part / scale)?;
    (part % scale == 0 && (1..=FASTEST).contains(&all)).then_some(all)
}

impl fmt::Display for Frequency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Frequency::Governor(name) => f.write_str(name),
            Frequency::Fixed(khz) => {
                let (unit, factor) =
                    UNITS.into_iter().rev().find(|(_, factor)| khz >= factor).unwrap_or(UNITS[0]);
                let width = factor.ilog10() as usize;
                let part = format!("{:0width$}", khz % factor);
                match part.trim_end_matches('0') {
                    "" => write!(f, "{}{unit}", khz / factor),
                    part => write!(f, "{}.{part}{unit}", khz / factor),
                }
            }
        }
    }
}

crate::names::text_serde!(
    Frequency,
    "A governor of CPU frequencies, or a frequency.",
    "2.4GHz",
    "^((0|[1-9][0-9]{0,8})(\\.[0-9]{1,9})?\\s*(kHz|MHz|GHz)|[a-z_]{1,15})$"
);

/// A share of something, 1 to 100 percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percent(u8);

impl Percent {
    /// This share; `None` when it is none of 1 to 100.
    pub const fn new(percent: u8) -> Option<Percent> {
        if percent >= 1 && percent <= 100 { Some(Percent(percent)) } else { None }
    }

    /// The share in percent, 1 to 100.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// Text that is no share.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is no share like 40%: it goes from 1% to 100%")]
pub struct ParsePercentError(String);

impl FromStr for Percent {
    type Err = ParsePercentError;

    fn from_str(text: &str) -> Result<Percent, ParsePercentError> {
        let number = text.strip_suffix('%').map(str::trim_end);
        let plain = number.filter(|number| number.bytes().all(|c| c.is_ascii_digit()));
        let plain = plain.filter(|number| !number.starts_with('0'));
        let percent = plain.and_then(|number| number.parse().ok()).and_then(Percent::new);
        percent.ok_or_else(|| ParsePercentError(text.chars().take(40).collect()))
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

crate::names::text_serde!(Percent, "A share of something.", "40%", "^(100|[1-9][0-9]?)\\s*%$");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frequency_is_read_as_it_is_written() {
        for (text, khz) in
            [("2.4GHz", 2_400_000), ("800MHz", 800_000), ("1200000kHz", 1_200_000), ("2.4 GHz", 2_400_000)]
        {
            assert_eq!(text.parse(), Ok(Frequency::Fixed(khz)), "{text}");
        }
        for khz in [1, 999, 1_000, 1_500, 2_400_000, 2_400_001, 800_000] {
            assert_eq!(Frequency::Fixed(khz).to_string().parse(), Ok(Frequency::Fixed(khz)));
        }
        assert_eq!("schedutil".parse(), Ok(Frequency::Governor("schedutil".to_owned())));
        for odd in
            ["", "2.4", "0GHz", "GHz", "2..4GHz", "1e9kHz", "0.0000001kHz", "999999999GHz", "a/b", "Big"]
        {
            assert!(odd.parse::<Frequency>().is_err(), "{odd}");
        }
    }

    #[test]
    fn a_share_is_read_as_it_is_written() {
        assert_eq!("40%".parse(), Ok(Percent(40)));
        assert_eq!("100 %".parse(), Ok(Percent(100)));
        for odd in ["40", "0%", "101%", "-1%", "+4%", "%", "4.5%", "999999999999%"] {
            assert!(odd.parse::<Percent>().is_err(), "{odd}");
        }
    }
}
