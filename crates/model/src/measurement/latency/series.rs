//! One thing that is measured over and over.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Bins, BinsError, Block, Summary};
use crate::{
    CpuSet, GuestName,
    measurement::{CutShort, EndKind},
    verdict::Vantage,
};

/// One setting, with all its blocks and what they add up to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Series {
    /// Its name, unique in a run and the same in the next run of the same model: [`Setting::id`].
    pub id: String,
    /// What was measured.
    pub setting: Setting,
    /// Its blocks, in the order of time.
    #[serde(default)]
    pub blocks: Vec<Block>,
    /// What they add up to; `None` without a block that counts.
    #[serde(default)]
    pub summary: Option<Summary>,
    /// Why there is nothing.
    #[serde(default)]
    pub missing: Option<String>,
    /// Whether there is nothing because the run was over: no fault of the machine. `None`: for any other reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_short: Option<CutShort>,
}

impl Series {
    /// A series without blocks.
    pub fn new(setting: Setting) -> Series {
        Series {
            id: setting.id(),
            setting,
            blocks: Vec::new(),
            summary: None,
            missing: None,
            cut_short: None,
        }
    }

    /// The blocks whose latencies count.
    pub fn counted(&self) -> impl Iterator<Item = &Block> + '_ {
        self.blocks.iter().filter(|block| block.counts())
    }

    /// Whether anything was measured.
    pub fn is_measured(&self) -> bool {
        self.counted().next().is_some()
    }

    /// All blocks' latencies together.
    ///
    /// # Errors
    /// When the blocks' histograms end at different places and cannot be put together.
    pub fn bins(&self) -> Result<Bins, BinsError> {
        self.counted().try_fold(Bins::default(), |mut bins, block| {
            bins.merge(&block.counts)?;
            Ok(bins)
        })
    }

    /// The longest latency of all blocks in microseconds.
    pub fn max(&self) -> Option<f64> {
        self.counted().filter_map(|block| block.max).max_by(f64::total_cmp)
    }
}

/// What is measured: everything that two series can differ in.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Setting {
    /// Where the tool runs.
    pub place: Vantage,
    /// What kind of place that is.
    pub kind: EndKind,
    /// On which CPU of the host; inside a VM, the CPU that carries its virtual one.
    pub cpu: u32,
    /// Whether the CPU is an ordinary one, which others use as well, measured for contrast: no claim is about it.
    #[serde(default)]
    pub ordinary: bool,
    /// The tool that measures it.
    pub tool: Tool,
    /// What else runs meanwhile.
    pub load: Load,
    /// How the machine is set up.
    pub arm: Arm,
    /// Who decides how deep CPUs sleep.
    pub power: Power,
}

impl Setting {
    /// Its name: unique in a run, and the same in the next run of the same model.
    pub fn id(&self) -> String {
        let load = if self.load.is_loaded() { "loaded" } else { "idle" };
        format!("{} {} cpu{} {load} {} {}", self.tool, self.name(), self.cpu, self.arm, self.power)
    }

    /// The place's name: the guest's, or `host`.
    pub fn name(&self) -> &str {
        match &self.place {
            Vantage::Host => "host",
            Vantage::Guest(guest) => guest.as_str(),
        }
    }

    /// The guest; `None` on the host.
    pub fn guest(&self) -> Option<&GuestName> {
        match &self.place {
            Vantage::Host => None,
            Vantage::Guest(guest) => Some(guest),
        }
    }

    /// Whether the two differ in the arm at most.
    pub fn is_arm_of(&self, other: &Setting) -> bool {
        self == &Setting { arm: self.arm, ..other.clone() }
    }
}

/// What measures.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Tool {
    /// cyclictest of rt-tests: how late a thread wakes from a timer.
    Cyclictest,
    /// oslat of rt-tests: how long a thread that only looks at the clock was kept from it.
    Oslat,
    /// The kernel's timerlat tracer, or `rtla timerlat`: how late its thread wakes from a timer.
    Timerlat,
    /// The kernel's hwlat tracer: how long even with interrupts off nothing was done, which is hardware and firmware.
    Hwlat,
}

impl Tool {
    /// All of them.
    pub const ALL: [Tool; 4] = [Tool::Cyclictest, Tool::Oslat, Tool::Timerlat, Tool::Hwlat];

    /// Its name in JSON and in an `expect:` line: `cyclictest`, `oslat`, `timerlat` or `hwlat`.
    pub const fn name(self) -> &'static str {
        match self {
            Tool::Cyclictest => "cyclictest",
            Tool::Oslat => "oslat",
            Tool::Timerlat => "timerlat",
            Tool::Hwlat => "hwlat",
        }
    }

    /// Whether it counts wake-ups, and not interruptions of a thread that never sleeps.
    pub const fn wakes(self) -> bool {
        matches!(self, Tool::Cyclictest | Tool::Timerlat)
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What else runs meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// Nothing that Penstock started.
    Idle,
    /// hackbench, over and over.
    Hackbench {
        /// Where it runs.
        place: Vantage,
        /// On which CPUs of that place.
        cpus: CpuSet,
        /// Groups of 20 senders and 20 receivers (`-g`).
        groups: u32,
    },
}

impl Load {
    /// Whether something runs.
    pub fn is_loaded(&self) -> bool {
        *self != Load::Idle
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Load::Idle => f.write_str("idle"),
            Load::Hackbench { place: Vantage::Host, cpus, groups } => {
                write!(f, "hackbench -g {groups} on CPU {cpus} of the host")
            }
            Load::Hackbench { place: Vantage::Guest(guest), cpus, groups } => {
                write!(f, "hackbench -g {groups} on CPU {cpus} inside {guest}")
            }
        }
    }
}

/// How the machine is set up.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    /// As the model's `realtime` has it.
    Tuned,
    /// As it was before.
    Untuned,
    /// Tuned once more, as if it were another arm: compared with [`Arm::Tuned`] it shows what the order of the blocks alone does
    /// (A/A).
    Null,
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Arm::Tuned => "tuned",
            Arm::Untuned => "untuned",
            Arm::Null => "null",
        })
    }
}

/// Who decides how deep CPUs sleep while the tool runs.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Power {
    /// The tool, which holds `/dev/cpu_dma_latency` at 0 (cyclictest's default). That flatters the machine: an application
    /// does not do it.
    Held,
    /// The machine, as it does when nobody measures (`--default-system`).
    System,
}

impl fmt::Display for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Power::Held => "held",
            Power::System => "system",
        })
    }
}
