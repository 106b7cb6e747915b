//! What a sample tells, in which unit, and which way is better.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Something that a sample tells.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// What arrived at the receiver, in bit/s. Not what was sent.
    Throughput,
    /// What the sender handed to its kernel, in bit/s. For showing loss only.
    Sent,
    /// Datagrams lost over datagrams sent, 0 to 1.
    Loss,
    /// Deviation of the datagrams' spacing (RFC 3550, 6.4.1), in microseconds.
    Jitter,
    /// Round trips (or I/O operations of a storage request-response) in 1/s.
    Transactions,
    /// I/O operations in 1/s.
    Iops,
    /// Storage bandwidth in byte/s.
    Bandwidth,
    /// Shortest latency in microseconds: of a round trip, or of an I/O operation from submission to completion.
    Min,
    /// Mean latency in microseconds.
    Mean,
    /// Standard deviation of the latency in microseconds.
    Stddev,
    /// Median latency in microseconds.
    P50,
    /// 90th percentile of the latency in microseconds.
    P90,
    /// 99th percentile of the latency in microseconds.
    P99,
    /// 99.9th percentile of the latency in microseconds.
    #[serde(rename = "p99.9")]
    P999,
    /// Longest latency in microseconds. One order statistic: it grows with the number of samples.
    Max,
    /// CPU time at the side that runs the client, in percent as the tool counts: netperf's is of all CPUs there, iperf3's and
    /// fio's is the program's own in percent of one CPU. Not to be compared between tools.
    LocalCpu,
    /// CPU time at the side that runs the server, counted as [`Metric::LocalCpu`].
    RemoteCpu,
    /// CPU time of all CPUs of the VM that a stream comes from or goes to, by its `/proc/stat` while the tool runs, in CPU seconds for
    /// each gigabit (10^9 bits of frames) that the far end's interface counts meanwhile. Of paths by a VM's own NIC.
    GuestCpuPerGbit,
    /// CPU time on the host of that VM's QEMU, its virtual CPUs among it, and of its NIC's switch, by their control groups while the stream
    /// arrives, counted as [`Metric::GuestCpuPerGbit`].
    HostCpuPerGbit,
    /// Instructions in the VM for each frame that the far end's interface counts, of UDP streams on a board whose clock counts
    /// instructions (`board.icount`): [`Metric::GuestCpuPerGbit`] without time in it.
    GuestInstructionsPerFrame,
    /// Instructions of the VM's QEMU, the VM's own among them, and of its NIC's switch, counted as
    /// [`Metric::GuestInstructionsPerFrame`].
    HostInstructionsPerFrame,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

/// In what a metric is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bits per second.
    BitPerSecond,
    /// Bytes per second.
    BytePerSecond,
    /// Events per second.
    PerSecond,
    /// Microseconds.
    Microseconds,
    /// Percent, 0 to 100.
    Percent,
    /// A plain fraction, 0 to 1.
    Fraction,
    /// CPU seconds for each gigabit.
    SecondsPerGigabit,
    /// Instructions for each frame.
    InstructionsPerFrame,
}

impl Metric {
    /// All of them.
    pub const ALL: [Metric; 21] = [
        Metric::Throughput,
        Metric::Sent,
        Metric::Loss,
        Metric::Jitter,
        Metric::Transactions,
        Metric::Iops,
        Metric::Bandwidth,
        Metric::Min,
        Metric::Mean,
        Metric::Stddev,
        Metric::P50,
        Metric::P90,
        Metric::P99,
        Metric::P999,
        Metric::Max,
        Metric::LocalCpu,
        Metric::RemoteCpu,
        Metric::GuestCpuPerGbit,
        Metric::HostCpuPerGbit,
        Metric::GuestInstructionsPerFrame,
        Metric::HostInstructionsPerFrame,
    ];

    /// Its name, as in JSON and in an `expect:` line.
    pub const fn name(self) -> &'static str {
        match self {
            Metric::Throughput => "throughput",
            Metric::Sent => "sent",
            Metric::Loss => "loss",
            Metric::Jitter => "jitter",
            Metric::Transactions => "transactions",
            Metric::Iops => "iops",
            Metric::Bandwidth => "bandwidth",
            Metric::Min => "min",
            Metric::Mean => "mean",
            Metric::Stddev => "stddev",
            Metric::P50 => "p50",
            Metric::P90 => "p90",
            Metric::P99 => "p99",
            Metric::P999 => "p99.9",
            Metric::Max => "max",
            Metric::LocalCpu => "local_cpu",
            Metric::RemoteCpu => "remote_cpu",
            Metric::GuestCpuPerGbit => "guest_cpu_per_gbit",
            Metric::HostCpuPerGbit => "host_cpu_per_gbit",
            Metric::GuestInstructionsPerFrame => "guest_instructions_per_frame",
            Metric::HostInstructionsPerFrame => "host_instructions_per_frame",
        }
    }

    /// Which way is better.
    pub const fn better(self) -> Better {
        match self {
            Metric::Throughput | Metric::Sent | Metric::Transactions | Metric::Iops | Metric::Bandwidth => {
                Better::Higher
            }
            _ => Better::Lower,
        }
    }

    /// In what it is counted.
    pub const fn unit(self) -> Unit {
        match self {
            Metric::Throughput | Metric::Sent => Unit::BitPerSecond,
            Metric::Bandwidth => Unit::BytePerSecond,
            Metric::Transactions | Metric::Iops => Unit::PerSecond,
            Metric::Loss => Unit::Fraction,
            Metric::LocalCpu | Metric::RemoteCpu => Unit::Percent,
            Metric::GuestCpuPerGbit | Metric::HostCpuPerGbit => Unit::SecondsPerGigabit,
            Metric::GuestInstructionsPerFrame | Metric::HostInstructionsPerFrame => {
                Unit::InstructionsPerFrame
            }
            _ => Unit::Microseconds,
        }
    }

    /// Which quantile of the latency it is, 0.99 for p99; `None` for what is no quantile. The ends are none: they are
    /// order statistics.
    pub const fn quantile(self) -> Option<f64> {
        match self {
            Metric::P50 => Some(0.5),
            Metric::P90 => Some(0.9),
            Metric::P99 => Some(0.99),
            Metric::P999 => Some(0.999),
            _ => None,
        }
    }

    /// Whether it is what a stream takes of CPUs, which is counted of paths by a VM's own NIC alone.
    pub const fn is_cost(self) -> bool {
        matches!(self.unit(), Unit::SecondsPerGigabit | Unit::InstructionsPerFrame)
    }

    /// Whether it tells of latency.
    pub const fn is_latency(self) -> bool {
        matches!(self.unit(), Unit::Microseconds) && !matches!(self, Metric::Jitter)
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Metric {
    type Err = ();

    fn from_str(text: &str) -> Result<Metric, ()> {
        Metric::ALL.into_iter().find(|metric| metric.name() == text).ok_or(())
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Unit::BitPerSecond => "bit/s",
            Unit::BytePerSecond => "B/s",
            Unit::PerSecond => "/s",
            Unit::Microseconds => "us",
            Unit::Percent => "%",
            Unit::Fraction => "",
            Unit::SecondsPerGigabit => "s/Gbit",
            Unit::InstructionsPerFrame => "insn/frame",
        })
    }
}

/// A value with a unit, as a person reads and writes it: `2Gbit/s`, `50us`, `3.5%`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Quantity {
    /// In the unit's own size: `2e9` for `2Gbit/s`.
    pub value: f64,
    /// The unit of the values.
    pub unit: Unit,
}

/// Units as they are written, the larger first where one is chosen for showing.
const WRITTEN: [(&str, f64, Unit); 24] = [
    ("Tbit/s", 1e12, Unit::BitPerSecond),
    ("Gbit/s", 1e9, Unit::BitPerSecond),
    ("Mbit/s", 1e6, Unit::BitPerSecond),
    ("kbit/s", 1e3, Unit::BitPerSecond),
    ("bit/s", 1.0, Unit::BitPerSecond),
    ("GB/s", 1e9, Unit::BytePerSecond),
    ("MB/s", 1e6, Unit::BytePerSecond),
    ("kB/s", 1e3, Unit::BytePerSecond),
    ("GiB/s", 1_073_741_824.0, Unit::BytePerSecond),
    ("MiB/s", 1_048_576.0, Unit::BytePerSecond),
    ("KiB/s", 1024.0, Unit::BytePerSecond),
    ("B/s", 1.0, Unit::BytePerSecond),
    ("M/s", 1e6, Unit::PerSecond),
    ("k/s", 1e3, Unit::PerSecond),
    ("/s", 1.0, Unit::PerSecond),
    ("s", 1e6, Unit::Microseconds),
    ("ms", 1e3, Unit::Microseconds),
    ("us", 1.0, Unit::Microseconds),
    ("ns", 1e-3, Unit::Microseconds),
    ("%", 1.0, Unit::Percent),
    ("s/Gbit", 1.0, Unit::SecondsPerGigabit),
    ("ms/Gbit", 1e-3, Unit::SecondsPerGigabit),
    ("kinsn/frame", 1e3, Unit::InstructionsPerFrame),
    ("insn/frame", 1.0, Unit::InstructionsPerFrame),
];

impl Quantity {
    /// The units that can be written, for messages.
    pub const UNITS: &'static str = "bit/s, kbit/s, Mbit/s, Gbit/s, B/s, MB/s, MiB/s, /s, k/s, ns, us, ms, s, %, s/Gbit, ms/Gbit, \
         insn/frame, kinsn/frame";

    /// Reads a number and a unit, with or without space between: `2 Gbit/s`. A number without a unit is a fraction. `None`
    /// when it is neither, negative or not finite.
    pub fn parse(text: &str) -> Option<Quantity> {
        let text = text.trim();
        let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let number: f64 = text[..end].parse().ok()?;
        let unit = text[end..].trim();
        let unit = unit.strip_prefix('µ').map(|rest| format!("u{rest}")).unwrap_or_else(|| unit.to_owned());
        let (factor, unit) = match unit.as_str() {
            "" => (1.0, Unit::Fraction),
            written => WRITTEN.into_iter().find(|(name, ..)| *name == written).map(|(_, f, u)| (f, u))?,
        };
        let value = number * factor;
        value.is_finite().then_some(Quantity { value, unit })
    }
}

impl fmt::Display for Quantity {
    /// Three significant digits or more, and the unit that leaves the number between 1 and 1000 where there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, factor) = WRITTEN
            .into_iter()
            .filter(|(name, _, unit)| *unit == self.unit && !name.contains("iB"))
            .map(|(name, factor, _)| (name, factor))
            .find(|(_, factor)| self.value.abs() >= *factor)
            .unwrap_or(match self.unit {
                Unit::Microseconds if self.value != 0.0 => ("ns", 1e-3),
                Unit::Microseconds => ("us", 1.0),
                Unit::BitPerSecond => ("bit/s", 1.0),
                Unit::BytePerSecond => ("B/s", 1.0),
                Unit::PerSecond => ("/s", 1.0),
                Unit::Percent => ("%", 1.0),
                Unit::Fraction => ("", 1.0),
                Unit::SecondsPerGigabit if self.value != 0.0 => ("ms/Gbit", 1e-3),
                Unit::SecondsPerGigabit => ("s/Gbit", 1.0),
                Unit::InstructionsPerFrame => ("insn/frame", 1.0),
            });
        let shown = self.value / factor;
        let digits = match shown.abs() {
            s if s >= 100.0 => 0,
            s if s >= 10.0 => 1,
            _ => 2,
        };
        write!(f, "{shown:.digits$}{name}")
    }
}
