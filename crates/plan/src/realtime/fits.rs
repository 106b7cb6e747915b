//! Whether what real time asks of CPUs fits the machine.

use penstock_model::{
    CpuSet, Frequency, Path, Realtime,
    inventory::tuning::{Knob, Reading, Tuning},
};

use super::{guests, named};
use crate::{error::error, planner::Planner};

/// Governors that drivers which choose by themselves have, and no others (`drivers/cpufreq/intel_pstate.c`,
/// `drivers/cpufreq/amd-pstate.c`).
const OF_ITS_OWN: [&str; 2] = ["performance", "powersave"];

pub fn check(planner: &mut Planner<'_>, realtime: &Realtime, tuning: &Tuning, housekeeping: &CpuSet) {
    there(planner, realtime);
    keeps_house(planner, realtime, housekeeping);
    siblings(planner, realtime);
    nodes(planner);
    frequencies(planner, realtime, tuning);
    idle(planner, realtime, tuning);
    let isolated = &realtime.isolated;
    if realtime.tickless == Some(true)
        && tuning.tickless.known().is_none_or(|now| !isolated.0.is_subset(&now.0))
    {
        planner.note(format!(
            "{} without a tick only after a new start of the kernel: penstock apply --persist puts nohz_full={isolated} on its command line, then reboot",
            if isolated.0.len() == 1 { format!("CPU {isolated} is") } else { format!("CPUs {isolated} are") }
        ));
    }
}

/// CPUs that the model names and the machine does not have. Those of `pin` are looked at with the guests.
fn there(planner: &mut Planner<'_>, realtime: &Realtime) {
    let online = &planner.inventory.cpus.online;
    if online.0.is_empty() {
        return;
    }
    let mut found = Vec::new();
    let mut look = |path: Path, what: &str, cpus: &CpuSet| {
        let missing = CpuSet(cpus.0.difference(&online.0).copied().collect());
        if !missing.0.is_empty() {
            let is = if missing.0.len() == 1 { "is" } else { "are" };
            let text = format!("{} {is} {what}, and {is} not here", named(&missing));
            found.push(error(path, text, Some(format!("this machine has the CPUs {online}"))));
        }
    };
    let pinned = super::union(guests(planner.model).map(|(.., pin)| pin));
    let written = CpuSet(realtime.isolated.0.difference(&pinned).copied().collect());
    look(Path::of(["realtime", "isolated"]), "to be isolated", &written);
    if let Some(cpus) = &realtime.housekeeping {
        look(Path::of(["realtime", "housekeeping"]), "to keep house", cpus);
    }
    for (name, guest, _) in guests(planner.model) {
        let path = Path::of(["guests", name.as_str(), "realtime", "interrupts"]);
        if let Some(cpus) = guest.realtime.as_ref().and_then(|realtime| realtime.interrupts.as_ref()) {
            look(path, "to handle interrupts", cpus);
        }
    }
    planner.messages.0.extend(found);
}

/// Somebody has to do the rest of the machine's work.
fn keeps_house(planner: &mut Planner<'_>, realtime: &Realtime, housekeeping: &CpuSet) {
    let online = &planner.inventory.cpus.online;
    if !housekeeping.0.is_empty() || online.0.is_empty() {
        return;
    }
    let (path, text) = match &realtime.housekeeping {
        Some(cpus) => (
            Path::of(["realtime", "housekeeping"]),
            format!(
                "none of the CPUs {cpus} is here, so that nobody is left for interrupts and all other work"
            ),
        ),
        None => {
            let path = match guests(planner.model).next() {
                Some((name, ..)) => Path::of(["guests", name.as_str(), "pin"]),
                None => Path::of(["realtime", "isolated"]),
            };
            (
                path,
                format!(
                    "each of the CPUs {online} is isolated, and none is left for interrupts and all other work"
                ),
            )
        }
    };
    let hint = "isolate fewer: the kernel, sshd and QEMU's own threads need a CPU too".to_owned();
    planner.messages.0.push(error(path, text, Some(hint)));
}

/// Two threads of one core share nearly all of it.
fn siblings(planner: &mut Planner<'_>, realtime: &Realtime) {
    let (model, inventory) = (planner.model, planner.inventory);
    for core in inventory.cpus.siblings.iter().filter(|core| core.0.len() > 1) {
        let mut users = guests(model).filter(|(.., pin)| !pin.0.is_disjoint(&core.0));
        let first = users.next();
        let other = model.guests.iter().find(|(name, guest)| {
            let pin = guest.pin.as_ref();
            first.is_some_and(|(own, ..)| own != *name) && pin.is_some_and(|pin| !pin.0.is_disjoint(&core.0))
        });
        match (first, other) {
            (Some((one, ..)), Some((two, _))) => planner.messages.0.push(error(
                Path::of(["guests", two.as_str(), "pin"]),
                format!("{one} and {two} would share a core: CPUs {core} are its two threads, and what the one does delays the other"),
                Some("give both threads of a core to one guest, or switch SMT off (nosmt)".to_owned()),
            )),
            (Some((one, _, pin)), None) if !core.0.is_subset(&pin.0) => {
                let idle: CpuSet = CpuSet(core.0.difference(&pin.0).copied().collect());
                // One that is isolated and nobody's has nothing to do.
                if !idle.0.is_subset(&realtime.isolated.0) {
                    planner.note(format!(
                        "{one} runs on one thread of the core {core}, and {} of the host on the other: what runs there delays it; isolate both, or pin {one} to both",
                        named(&idle)
                    ));
                }
            }
            (None, _) if !core.0.is_disjoint(&realtime.isolated.0) && !core.0.is_subset(&realtime.isolated.0) => {
                let half: CpuSet = CpuSet(core.0.intersection(&realtime.isolated.0).copied().collect());
                planner.note(format!(
                    "{} shares its core with {}, which {} not isolated: what runs there delays it",
                    named(&half),
                    CpuSet(core.0.difference(&half.0).copied().collect()),
                    if core.0.len() - half.0.len() == 1 { "is" } else { "are" }
                ));
            }
            _ => {}
        }
    }
}

/// Memory and registers of another node are farther away.
fn nodes(planner: &mut Planner<'_>) {
    let (model, inventory) = (planner.model, planner.inventory);
    for (name, guest, pin) in guests(model) {
        let on: Vec<u32> = inventory
            .cpus
            .nodes
            .iter()
            .filter(|(_, cpus)| !cpus.0.is_disjoint(&pin.0))
            .map(|(node, _)| *node)
            .collect();
        if on.len() > 1 {
            planner.note(format!(
                "{name} runs on CPUs of {} NUMA nodes: what one of them writes, another reads from farther away",
                on.len()
            ));
        }
        let mut told = Vec::new();
        for function in &guest.functions {
            let nic = &function.name.nic;
            let pf = planner.resolved.get(nic).and_then(|bdf| inventory.pf(*bdf));
            let Some(node) =
                pf.and_then(|pf| pf.numa_node).filter(|node| !on.is_empty() && !on.contains(node))
            else {
                continue;
            };
            if !told.contains(&nic) {
                told.push(nic);
                planner.note(format!(
                    "{nic} is on NUMA node {node} and {name} runs on node {}: each frame crosses between them",
                    on[0]
                ));
            }
        }
    }
}

/// Frequencies that the machine lets nobody choose.
fn frequencies(planner: &mut Planner<'_>, realtime: &Realtime, tuning: &Tuning) {
    let of_guests = guests(planner.model).filter_map(|(name, guest, pin)| {
        let frequency = guest.realtime.as_ref()?.frequency.as_ref()?;
        Some((Path::of(["guests", name.as_str(), "realtime", "frequency"]), frequency, pin))
    });
    let of_machine = realtime
        .frequency
        .as_ref()
        .map(|frequency| (Path::of(["realtime", "frequency"]), frequency, &realtime.isolated));
    let mut found = Vec::new();
    for (path, frequency, cpus) in of_machine.into_iter().chain(of_guests) {
        let without: CpuSet = CpuSet(
            cpus.0
                .iter()
                .copied()
                .filter(|cpu| {
                    let knob = match frequency {
                        Frequency::Governor(_) => Knob::Governor(*cpu),
                        Frequency::Fixed(_) => Knob::MaxFrequency(*cpu),
                    };
                    matches!(tuning.knobs.get(&knob), Some(Reading::Absent))
                })
                .collect(),
        );
        if !without.0.is_empty() {
            planner.note(format!(
                "nobody can choose the frequency of {}: there is no cpufreq; {path} is passed over (a virtual machine has none, and on a real one the firmware keeps it to itself)",
                named(&without)
            ));
            continue;
        }
        let Frequency::Governor(governor) = frequency else { continue };
        let own = cpus.0.iter().find_map(|cpu| {
            let driver = tuning.frequency_drivers.get(cpu)?;
            let own = driver == "intel_pstate" || driver == "amd-pstate-epp";
            (own && !OF_ITS_OWN.contains(&governor.as_str())).then_some(driver)
        });
        if let Some(driver) = own {
            found.push(error(
                path,
                format!("the driver {driver} has no governor `{governor}`"),
                Some("write `performance`, or `powersave`".to_owned()),
            ));
        }
    }
    for program in RETUNERS.iter().filter(|program| tuning.programs.contains(**program)) {
        let asked = realtime.frequency.is_some()
            || guests(planner.model).any(|(_, guest, _)| {
                guest.realtime.as_ref().is_some_and(|realtime| realtime.frequency.is_some())
            });
        if asked {
            planner.note(format!(
                "{program} runs and may set frequencies again, at each start and whenever its profile changes: stop it, or give it a profile that leaves them as the model says"
            ));
        }
    }
    planner.messages.0.extend(found);
}

/// Programs that set frequencies by themselves.
const RETUNERS: [&str; 8] = [
    "auto-cpufreq",
    "cpufreqd",
    "intel_lpmd",
    "power-profiles-daemon",
    "throttled",
    "tlp",
    "tuned",
    "tuned-ppd",
];

/// Idle states that the machine lets nobody limit.
fn idle(planner: &mut Planner<'_>, realtime: &Realtime, tuning: &Tuning) {
    let asked = realtime.wake_latency.is_some()
        || guests(planner.model).any(|(_, guest, _)| {
            guest.realtime.as_ref().is_some_and(|realtime| realtime.wake_latency.is_some())
        });
    if asked && tuning.idle.is_empty() && tuning.idle_driver.known().is_none_or(|driver| driver == "none") {
        planner.note(
            "nothing here enters idle states through cpuidle (a virtual machine's CPUs halt): `wake_latency` is written and limits nothing",
        );
    }
}
