//! What a machine shows at one moment as metrics: data here, text by [`render`]. Pure.
//!
//! What is not known is left out, and counted under its [`Area`]: a zero is a zero that somebody has counted. Each series of a
//! function bears what it is known by for good ([`Identity`]); what changes while it lives (interface, driver, owner) is told by
//! `penstock_function_info` alone, so that no counter begins anew when a VF moves.

mod exposition;
mod families;
mod text;

use std::collections::BTreeMap;

use penstock_model::{
    Bdf, FunctionName, GuestKind, GuestName, InterfaceName, NicName, Outcome, Verdict, VfIndex,
    inventory::{InterfaceCounters, PortCounters, VfCounters},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    exposition::{MetricSeries, series},
    families::{FAMILIES, Kind, MetricFamily, table},
    text::{TextFormat, render},
};

/// A machine at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Snapshot {
    /// The version of the Penstock that looked.
    pub build: String,
    /// PFs with SR-IOV and their VFs that exist, each PF before its VFs.
    pub functions: Vec<FunctionMetrics>,
    /// The guests that are defined, or are about to be.
    pub guests: BTreeMap<GuestName, GuestMetrics>,
    /// The ports of the embedded switches of NICs that VMs own.
    pub ports: Vec<PortMetrics>,
    /// The runs that changed the machine; `None` where they could not be read.
    pub runs: Option<RunsMetrics>,
    /// What was found when a model was compared with the machine; `None` where nobody did.
    pub verification: Option<VerificationMetrics>,
    /// What the scan could not read, or found to make no sense: so many notes as `penstock scan` prints.
    pub scan_notes: usize,
    /// How often something could not be read, by what it was. An area that is left out was read.
    pub unread: BTreeMap<Area, u64>,
    /// How long it took to look, in seconds.
    pub took: f64,
}

/// What can fail to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Area {
    /// Counters of the host's interfaces.
    Interfaces,
    /// What PFs' drivers, or embedded switches, count for VFs.
    VfCounters,
    /// How guests are.
    Guests,
    /// Interfaces inside containers.
    GuestInterfaces,
    /// Ports of the embedded switches of NICs that VMs own.
    SwitchPorts,
    /// The runs that changed the machine.
    Runs,
    /// Which PF a NIC of the model is.
    Model,
    /// The verdicts of `--verify`.
    Verification,
}

impl Area {
    /// All of them.
    pub const ALL: [Area; 8] = [
        Area::Interfaces,
        Area::VfCounters,
        Area::Guests,
        Area::GuestInterfaces,
        Area::SwitchPorts,
        Area::Runs,
        Area::Model,
        Area::Verification,
    ];

    /// The value of the label `what`.
    pub fn name(self) -> &'static str {
        match self {
            Area::Interfaces => "interfaces",
            Area::VfCounters => "vf_counters",
            Area::Guests => "guests",
            Area::GuestInterfaces => "guest_interfaces",
            Area::SwitchPorts => "switch_ports",
            Area::Runs => "runs",
            Area::Model => "model",
            Area::Verification => "verification",
        }
    }
}

/// What a function is known by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct Identity {
    /// Its PCI address.
    pub bdf: Bdf,
    /// The PCI address of its PF, which may be itself.
    pub pf: Bdf,
    /// Its index, of a VF.
    pub vf: Option<VfIndex>,
    /// Its name in the model, where one was given that has it.
    pub function: Option<FunctionName>,
}

/// What is counted of a function.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FunctionMetrics {
    /// What it is known by.
    pub identity: Identity,
    /// The bound driver.
    pub driver: Option<String>,
    /// The guest that owns it.
    pub guest: Option<GuestName>,
    /// Its IOMMU group.
    pub iommu_group: Option<u32>,
    /// Its interface, where it is in a namespace that was looked into: the host's, or a container's.
    pub interface: Option<InterfaceMetrics>,
    /// What its PF counts for it, of a VF. `None`: not read, or not known to be counted ([`PfMetrics::counts_vfs`]).
    pub counters: Option<VfCounters>,
    /// What only a PF has.
    pub pf: Option<PfMetrics>,
}

/// What only a PF has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PfMetrics {
    /// VFs that exist.
    pub vfs: u16,
    /// VFs that its driver allows.
    pub vfs_max: u16,
    /// Whether its driver was seen to count for its VFs. `false`: all that it tells is zero, as drivers tell that count nothing. `None`:
    /// there are no VFs, or it could not be asked.
    pub counts_vfs: Option<bool>,
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InterfaceMetrics {
    /// Its name in its namespace.
    pub name: InterfaceName,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether it has a carrier; `None` while it is down.
    pub carrier: Option<bool>,
    /// Its speed in Mbit/s, where the driver knows one.
    pub speed: Option<u32>,
    /// What went through it; `None` where the kernel did not tell.
    pub counters: Option<InterfaceCounters>,
}

/// How a guest is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GuestState {
    /// It runs.
    Running,
    /// It is to run, and something is waited for.
    Waiting,
    /// It is a VM that is there and does not run.
    Suspended,
    /// It was not started, or was stopped.
    Stopped,
    /// It was started, nobody stopped it, and it is gone.
    Died,
}

impl GuestState {
    /// All of them.
    pub const ALL: [GuestState; 5] = [
        GuestState::Running,
        GuestState::Waiting,
        GuestState::Suspended,
        GuestState::Stopped,
        GuestState::Died,
    ];

    /// The value of the label `state`.
    pub fn name(self) -> &'static str {
        match self {
            GuestState::Running => "running",
            GuestState::Waiting => "waiting",
            GuestState::Suspended => "suspended",
            GuestState::Stopped => "stopped",
            GuestState::Died => "died",
        }
    }
}

/// What is told of a guest.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GuestMetrics {
    /// VM or container; `None` for one that is not defined yet.
    pub kind: Option<GuestKind>,
    /// How it is.
    pub state: GuestState,
    /// When it was started, in seconds since 1970, while it is there.
    pub since: Option<u64>,
}

/// A port of the embedded switch of a NIC that a VM owns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PortMetrics {
    /// The guest that owns the NIC.
    pub guest: GuestName,
    /// The name of the NIC in that guest.
    pub nic: NicName,
    /// The port as the switch calls it: `node-1/net0#2`, or its uplink.
    pub port: String,
    /// Whether what it leads to is there: QEMU, or the uplink's interface.
    pub connected: bool,
    /// Whether its link is up.
    pub up: bool,
    /// What went through it; `None` where the switch does not tell.
    pub counters: Option<PortCounters>,
}

/// The runs that changed a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct RunsMetrics {
    /// Runs that wait to be confirmed.
    pub open: usize,
    /// Runs that left the machine half-way.
    pub half_way: usize,
    /// Runs that nobody had confirmed when the machine was reset, and that left something.
    pub lapsed: usize,
    /// Runs of which something cannot be read any more.
    pub damaged: usize,
    /// When the first of the open runs is taken back unless it is confirmed, in seconds since 1970; `None` while none waits, or while
    /// it still goes on.
    pub confirm_until: Option<f64>,
    /// The run that was begun last.
    pub last: Option<RunMetrics>,
    /// What is being carried out.
    pub in_progress: Option<ProgressMetrics>,
}

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// It goes on.
    Running,
    /// It did what it was to do.
    Done,
    /// It ended with an error.
    Failed,
    /// Whoever did it is gone, and left no outcome.
    CutOff,
}

impl RunOutcome {
    /// The value of the label `outcome`.
    pub fn name(self) -> &'static str {
        match self {
            RunOutcome::Running => "running",
            RunOutcome::Done => "done",
            RunOutcome::Failed => "failed",
            RunOutcome::CutOff => "cut_off",
        }
    }
}

/// What is told of a run.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunMetrics {
    /// The number of the run.
    pub id: u32,
    /// What it was for: `apply`, `stop`, `persist`, `undo`.
    pub purpose: String,
    /// The model's file, as it was named.
    pub model: Option<String>,
    /// What became of it.
    pub outcome: RunOutcome,
    /// When it began, in seconds since 1970.
    pub began: f64,
    /// When it ended, in seconds since 1970.
    pub ended: Option<f64>,
}

/// How far a run is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProgressMetrics {
    /// Steps of its plan.
    pub steps: usize,
    /// Those that have come out one way or the other.
    pub done: usize,
}

/// What a model asks for, compared with the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct VerificationMetrics {
    /// Whether every verdict holds.
    pub holds: bool,
    /// When it was compared, in seconds since 1970.
    pub at: f64,
    /// How many verdicts there are, by attribute and outcome.
    pub verdicts: BTreeMap<String, BTreeMap<Outcome, u64>>,
    /// What does not hold, by subject and attribute.
    pub drift: Vec<DriftMetrics>,
}

/// Something that is not as the model has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct DriftMetrics {
    /// What it is about, as verdicts name it: `NET0#3`, `rt-2`.
    pub subject: String,
    /// The attribute that is judged.
    pub attribute: String,
}

impl VerificationMetrics {
    /// What these verdicts come to, which were given at `at` (seconds since 1970).
    pub fn of(verdicts: &[Verdict], at: f64) -> VerificationMetrics {
        let mut all =
            VerificationMetrics { holds: !verdicts.is_empty(), at, ..VerificationMetrics::default() };
        for verdict in verdicts {
            let outcomes = all.verdicts.entry(verdict.attribute.clone()).or_default();
            *outcomes.entry(verdict.outcome).or_default() += 1;
            if !verdict.holds() {
                all.holds = false;
                let (subject, attribute) = (verdict.subject.to_string(), verdict.attribute.clone());
                all.drift.push(DriftMetrics { subject, attribute });
            }
        }
        all.drift.sort();
        all.drift.dedup();
        all
    }
}
