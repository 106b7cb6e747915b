//! What there is to measure on a machine. Pure.

use penstock_model::{
    CpuSet, GuestName,
    measurement::{
        EndKind,
        latency::{Arm, Load, Power, Setting, Tool},
    },
    verdict::Vantage,
};

/// The machine's CPUs and who is on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// CPUs that nothing else may use.
    pub isolated: CpuSet,
    /// Who does everything else: the load runs here.
    pub housekeeping: CpuSet,
    /// All CPUs that are on line.
    pub online: CpuSet,
    /// Guests that run in real time.
    pub guests: Vec<GuestSeat>,
}

/// A guest that runs in real time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestSeat {
    /// The guest's name in the model.
    pub name: GuestName,
    /// Container or VM.
    pub kind: EndKind,
    /// The host's CPUs that it is pinned to.
    pub pin: CpuSet,
}

/// A CPU that is measured in the place of others.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StandIn {
    /// Where it is measured.
    pub place: Vantage,
    /// The CPU, by the host's number.
    pub measured: u32,
    /// The others, of which nothing is told.
    pub others: CpuSet,
}

impl std::fmt::Display for StandIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { measured, others, .. } = self;
        let plural = if others.0.len() == 1 { "" } else { "s" };
        write!(f, "CPU {measured} alone was measured, not CPU{plural} {others}")
    }
}

/// What of it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Only what shows each place under load, and the isolated CPU without.
    pub quick: bool,
    /// With which tools; cyclictest alone when `quick`.
    pub tools: Vec<Tool>,
    /// Whether the untuned machine is measured too.
    pub against: bool,
    /// Where the load runs.
    pub spread: Spread,
}

/// Where the load runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spread {
    /// On the CPUs of housekeeping, which it is bound to, in all arms.
    #[default]
    Others,
    /// Wherever the machine lets it: it is bound to nothing, and only what is tuned keeps it off the isolated CPUs.
    Anywhere,
}

/// hackbench's groups, of 40 processes each, for each CPU that is loaded.
const GROUPS_FOR_A_CPU: u32 = 1;
/// And not more: what comes after is memory, not work.
const MOST_GROUPS: u32 = 8;

impl Layout {
    /// The CPU on which the host itself is measured: an isolated one that no guest has, else the first.
    pub fn measured(&self) -> Option<u32> {
        let taken = |cpu: &&u32| self.guests.iter().any(|guest| guest.pin.0.contains(cpu));
        let free = self.isolated.0.iter().find(|cpu| !taken(cpu));
        free.or_else(|| self.isolated.0.first()).copied()
    }

    /// Which CPUs are measured in the place of others: on the host one stands for all that no guest has, and in a guest the first
    /// of its own.
    pub fn stand_ins(&self) -> Vec<StandIn> {
        let guests = CpuSet(self.guests.iter().flat_map(|guest| guest.pin.0.iter().copied()).collect());
        let host = self.measured().map(|measured| {
            let free = self.isolated.0.difference(&guests.0);
            (Vantage::Host, measured, free.copied().collect::<std::collections::BTreeSet<u32>>())
        });
        let guests = self.guests.iter().filter_map(|guest| {
            let pin = guest.pin.0.clone();
            Some((Vantage::Guest(guest.name.clone()), pin.first().copied()?, pin))
        });
        let all = host.into_iter().chain(guests).map(|(place, measured, mut others)| {
            others.remove(&measured);
            StandIn { place, measured, others: CpuSet(others) }
        });
        all.filter(|one| !one.others.0.is_empty()).collect()
    }

    /// An ordinary CPU to measure beside it: the last of housekeeping, since the first often has the clock's work.
    pub fn ordinary(&self) -> Option<u32> {
        self.housekeeping.0.iter().rev().find(|cpu| !self.isolated.0.contains(cpu)).copied()
    }

    /// hackbench on the host: a group for each housekeeping CPU, at least 1 and at most `MOST_GROUPS`.
    pub fn load(&self, spread: Spread) -> Load {
        let cpus = match spread {
            Spread::Others => self.housekeeping.clone(),
            Spread::Anywhere => self.online.clone(),
        };
        let loaded = u32::try_from(self.housekeeping.0.len()).unwrap_or(MOST_GROUPS);
        let groups = loaded.saturating_mul(GROUPS_FOR_A_CPU).clamp(1, MOST_GROUPS);
        Load::Hackbench { place: Vantage::Host, cpus, groups }
    }
}

/// All settings, of each the arms that it is measured in. What only flatters is never alone: `Power::Held` has its
/// `Power::System` beside it.
pub fn settings(layout: &Layout, wanted: &Wanted) -> Vec<Setting> {
    let Some(isolated) = layout.measured() else { return Vec::new() };
    let loaded = layout.load(wanted.spread);
    let host = |cpu, tool, load: &Load, power| Setting {
        place: Vantage::Host,
        kind: EndKind::Host,
        cpu,
        ordinary: Some(cpu) == layout.ordinary(),
        tool,
        load: load.clone(),
        arm: Arm::Tuned,
        power,
    };
    let has = |tool| wanted.tools.contains(&tool) && (!wanted.quick || tool == Tool::Cyclictest);
    let mut all = Vec::new();
    if has(Tool::Cyclictest) {
        all.push(host(isolated, Tool::Cyclictest, &loaded, Power::System));
        all.push(host(isolated, Tool::Cyclictest, &Load::Idle, Power::System));
        if !wanted.quick {
            all.push(host(isolated, Tool::Cyclictest, &loaded, Power::Held));
            all.push(host(isolated, Tool::Cyclictest, &Load::Idle, Power::Held));
        }
        if let Some(ordinary) = layout.ordinary() {
            all.push(host(ordinary, Tool::Cyclictest, &loaded, Power::System));
            all.extend((!wanted.quick).then(|| host(ordinary, Tool::Cyclictest, &Load::Idle, Power::System)));
        }
    }
    for tool in [Tool::Oslat, Tool::Timerlat].into_iter().filter(|tool| has(*tool)) {
        all.push(host(isolated, tool, &loaded, Power::System));
    }
    for guest in &layout.guests {
        let Some(cpu) = guest.pin.0.first().copied() else { continue };
        let inside = |tool, load: &Load| Setting {
            place: Vantage::Guest(guest.name.clone()),
            kind: guest.kind,
            ordinary: false,
            ..host(cpu, tool, load, Power::System)
        };
        if has(Tool::Cyclictest) {
            all.push(inside(Tool::Cyclictest, &loaded));
            all.extend((!wanted.quick).then(|| inside(Tool::Cyclictest, &Load::Idle)));
        }
        // Its own clock may hide from a guest that it did not run; a loop that only looks at the clock shows more of it.
        all.extend(has(Tool::Oslat).then(|| inside(Tool::Oslat, &loaded)));
    }
    if !wanted.against {
        return all;
    }
    let in_arms = |setting: Setting| {
        let arms: &[Arm] = match (setting.tool, setting.power, &setting.place) {
            _ if setting.ordinary => &[Arm::Tuned],
            (Tool::Cyclictest, Power::System, Vantage::Host) => &[Arm::Tuned, Arm::Null, Arm::Untuned],
            (Tool::Cyclictest, Power::System, Vantage::Guest(_)) => &[Arm::Tuned, Arm::Untuned],
            _ => &[Arm::Tuned],
        };
        arms.iter().map(move |arm| Setting { arm: *arm, ..setting.clone() }).collect::<Vec<_>>()
    };
    all.into_iter().flat_map(in_arms).collect()
}
