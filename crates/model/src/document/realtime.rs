//! Real time as it is written.

use std::fmt;

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};

use crate::{CpuSet, Frequency, SchedulingPolicy, decode::boolean, quantity::CpuList, realtime::Percent};

/// What of the machine decides how late its guests wake. What is left out is left as it is found.
///
/// ```yaml
/// realtime: {isolated: 2-3, wake_latency: 0, frequency: performance, throttling: off}
/// ```
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a mapping like {isolated: 2-3, wake_latency: 0}")]
#[schemars(rename = "Realtime")]
pub(crate) struct RealtimeDocument {
    /// CPUs that nothing else may use, like `2-3`. Default: those of every guest with `realtime`.
    #[schemars(with = "Option<CpuSet>")]
    pub isolated: Option<CpuList>,
    /// CPUs that get everything else: interrupts, workqueues, QEMU's own threads. Default: every CPU on line that is not
    /// isolated.
    #[schemars(with = "Option<CpuSet>")]
    pub housekeeping: Option<CpuList>,
    /// The longest wake-up latency of idle states that isolated CPUs may use, in microseconds; 0: no idle state at all.
    /// Default: left alone.
    #[schemars(range(max = 2147483646))]
    pub wake_latency: Option<u32>,
    /// How the frequency of isolated CPUs is chosen: a governor like `performance`, or a frequency like `2.4GHz` that is least
    /// and most. Default: left alone.
    pub frequency: Option<Frequency>,
    /// `off`: real-time threads may use up isolated CPUs; no share is kept for ordinary ones (RT throttling, and the fair server
    /// of Linux 6.12 and later). Default: left alone.
    pub throttling: Option<bool>,
    /// Whether isolated CPUs are without a periodic tick while one thread runs (`nohz_full`, `rcu_nocbs`). Needs a new start
    /// of the kernel. Default: left alone.
    pub tickless: Option<bool>,
}

/// Whether a guest runs in real time: `on` or `off`, or a mapping that says how.
#[derive(Debug, JsonSchema)]
#[schemars(untagged, rename = "GuestRealtimeEntry")]
pub(crate) enum GuestRealtimeEntry {
    /// `on`.
    Set(bool),
    /// `{policy: fifo, priority: 80}`.
    Settings(GuestRealtimeDocument),
    /// An entry that was wrong and has been reported.
    #[schemars(skip)]
    Spoiled,
}

impl<'de> Deserialize<'de> for GuestRealtimeEntry {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<GuestRealtimeEntry, D::Error> {
        struct Entry;

        impl<'de> Visitor<'de> for Entry {
            type Value = GuestRealtimeEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`on`, `off` or a mapping like {policy: fifo, priority: 80}")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<GuestRealtimeEntry, E> {
                match boolean(text) {
                    Some(set) => Ok(GuestRealtimeEntry::Set(set)),
                    None => Err(E::custom(
                        "this says nothing of real time: write `on`, `off` or {policy: fifo, priority: 80}",
                    )),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<GuestRealtimeEntry, A::Error> {
                GuestRealtimeDocument::deserialize(MapAccessDeserializer::new(map))
                    .map(GuestRealtimeEntry::Settings)
            }

            fn visit_none<E: de::Error>(self) -> Result<GuestRealtimeEntry, E> {
                Ok(GuestRealtimeEntry::Spoiled)
            }
        }

        from.deserialize_any(Entry)
    }
}

/// How a guest runs in real time on the CPUs that it is pinned to.
///
/// ```yaml
/// {policy: fifo, priority: 80, cache: 4}
/// ```
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a mapping like {policy: fifo, priority: 80}")]
#[schemars(rename = "GuestRealtime")]
pub(crate) struct GuestRealtimeDocument {
    /// `fifo`, `rr` or `other`. Default: fifo for a VM's virtual CPUs, other for a container.
    pub policy: Option<SchedulingPolicy>,
    /// The priority of fifo and rr. Default: 1.
    #[schemars(range(min = 1, max = 99))]
    pub priority: Option<u32>,
    /// CPUs that handle the interrupts of its functions, like `1`. Default: those of housekeeping.
    #[schemars(with = "Option<CpuSet>")]
    pub interrupts: Option<CpuList>,
    /// Ways of the last-level cache that are its alone (resctrl). Default: none.
    #[schemars(range(min = 1, max = 32))]
    pub cache: Option<u32>,
    /// The most of the memory's bandwidth that it may use, like `40%` (resctrl). Default: no limit.
    pub memory_bandwidth: Option<Percent>,
    /// `wake_latency` for its CPUs. Default: the machine's.
    #[schemars(range(max = 2147483646))]
    pub wake_latency: Option<u32>,
    /// `frequency` for its CPUs. Default: the machine's.
    pub frequency: Option<Frequency>,
}
