//! What tunes the host for real time: the kernel's knobs, CPUs, interrupts and cache.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use penstock_model::{
    Bdf, CpuSet,
    inventory::tuning::{Knob, ResctrlGroup, Value},
};
use serde::{Deserialize, Serialize};

use super::{GoesWith, NoInverse, named};
use crate::{Fact, names::Names};

/// One write that tunes the host for real time; the host's executor carries it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum RealTimeAction {
    /// Write a file of the kernel that holds one value. That of an interrupt is this function's where one is named: once its driver has
    /// given it back, its number may be another's, and there is nothing left to write.
    Tune {
        knob: Knob,
        to: Value,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        function: Option<Bdf>,
    },
    /// Make a control group of ours, below the root of the groups, that is an isolated partition of these CPUs: nobody's
    /// threads are in it.
    MakePartition { group: String, cpus: CpuSet },
    /// Remove such a group; its CPUs are everybody's again.
    RemovePartition { group: String, cpus: CpuSet },
    /// Have all interrupts that these functions have now delivered to these CPUs. They are looked up when it is carried out: a
    /// VF has none before its driver opens it, and VFIO has none before the VM's driver wants some.
    PlaceInterrupts { functions: BTreeSet<Bdf>, cpus: CpuSet },
    /// Make a group of resctrl with these CPUs and these shares (`Documentation/filesystems/resctrl.rst`).
    MakeResctrlGroup { group: String, settings: ResctrlGroup },
    /// Remove such a group: its CPUs are the default group's again.
    RemoveResctrlGroup { group: String, settings: ResctrlGroup },
    /// Write shares of a group of resctrl, of the resources that are named; the empty name is the default group.
    SetSchemata { group: String, schemata: Schemata },
}

/// Capacity masks, or percents for `MB`, by resource of resctrl and domain.
pub type Schemata = BTreeMap<String, BTreeMap<u32, u64>>;

impl RealTimeAction {
    /// What is true after it.
    pub fn after(&self) -> Fact {
        match self.clone() {
            Self::Tune { knob, to, .. } => Fact::KnobIs { knob, value: to },
            Self::MakePartition { group, cpus } => Fact::Partition { group, cpus },
            Self::RemovePartition { group, .. } => Fact::NoPartition { group },
            Self::PlaceInterrupts { functions, cpus } => Fact::InterruptsAt { functions, cpus },
            Self::MakeResctrlGroup { group, settings } => Fact::ResctrlGroupIs { group, settings },
            Self::RemoveResctrlGroup { group, .. } => Fact::NoResctrlGroup { group },
            Self::SetSchemata { group, schemata } => Fact::SchemataAre { group, schemata },
        }
    }

    pub(super) fn is_setting(&self) -> bool {
        match self {
            // What one of them does not do makes no other senseless, and `verify` tells.
            Self::Tune { .. } | Self::PlaceInterrupts { .. } => true,
            // Who asked for CPUs or cache ways of its own is not to run without them.
            Self::MakePartition { .. }
            | Self::RemovePartition { .. }
            | Self::MakeResctrlGroup { .. }
            | Self::RemoveResctrlGroup { .. }
            | Self::SetSchemata { .. } => false,
        }
    }

    pub(super) fn no_inverse(&self) -> NoInverse {
        match self {
            Self::PlaceInterrupts { .. } => NoInverse::new(
                "where they went is not known; the kernel places them anew with the next driver",
            )
            .unless(GoesWith::Guest, "they are given back with the guest's functions"),
            Self::Tune { .. }
            | Self::MakePartition { .. }
            | Self::RemovePartition { .. }
            | Self::MakeResctrlGroup { .. }
            | Self::RemoveResctrlGroup { .. }
            | Self::SetSchemata { .. } => NoInverse::unexpected(),
        }
    }

    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, names: &Names) -> fmt::Result {
        match self {
            Self::Tune { knob, to, .. } => write!(f, "{knob} = {to}"),
            Self::MakePartition { group, cpus } => {
                write!(f, "control group {group}: isolated partition of {}", named(cpus))
            }
            Self::RemovePartition { group, cpus } => {
                write!(f, "control group {group}: remove it, with its partition of {}", named(cpus))
            }
            Self::PlaceInterrupts { functions, cpus } => {
                write!(f, "interrupts of {}: to {}", names.listed(functions), named(cpus))
            }
            Self::MakeResctrlGroup { group, settings } => {
                let ResctrlGroup { cpus, schemata } = settings;
                write!(f, "resctrl group {group}: {} with {}", named(cpus), Shares(schemata))
            }
            Self::RemoveResctrlGroup { group, .. } => write!(f, "resctrl group {group}: remove it"),
            Self::SetSchemata { group, schemata } => {
                write!(f, "{}: {}", resctrl_group(group), Shares(schemata))
            }
        }
    }
}

/// A group of resctrl in words.
pub(crate) fn resctrl_group(name: &str) -> String {
    if name.is_empty() { "resctrl's default group".to_owned() } else { format!("resctrl group {name}") }
}

/// Shares as `schemata` has them: `L3:0=ff0;1=ff0 MB:0=40`.
pub(crate) struct Shares<'a>(pub &'a Schemata);

impl fmt::Display for Shares<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (resource, domains)) in self.0.iter().enumerate() {
            let share = |(domain, share): (&u32, &u64)| match resource.as_str() {
                "MB" => format!("{domain}={share}"),
                _ => format!("{domain}={share:x}"),
            };
            let domains: Vec<String> = domains.iter().map(share).collect();
            write!(f, "{}{resource}:{}", if n == 0 { "" } else { " " }, domains.join(";"))?;
        }
        Ok(())
    }
}
