//! What decides how late threads wake, against what the model asks for. Pure: judged from what was read of the kernel anew.

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::{
    Bdf, CpuSet, Frequency, Guest, GuestKind, GuestName, Inventory, Model, Outcome, Realtime, Verdict,
    inventory::tuning::{Irq, Knob, Reading, Resctrl, Tuning, Value, VmThread},
    verdict::{Subject, Vantage},
};

use super::writer::{Unobserved, VerdictSheet, VerdictWriter};

/// What was seen of a guest for this.
#[derive(Clone, Debug)]
pub struct GuestObservation {
    /// Its threads: of a VM all of QEMU's; why they could not be looked at, else.
    pub threads: Result<Vec<VmThread>, String>,
    /// Its functions on this machine.
    pub functions: BTreeSet<Bdf>,
}

/// Compares what `model` says of real time with a machine: `isolated`, `housekeeping`, `wake_latency`, `frequency`, `throttling`,
/// `tickless` of the machine, and `partition`, `policy`, `threads`, `interrupts`, `cache`, `memory_bandwidth` of each guest with
/// `realtime`. Nothing is said of a model that has no word of it.
pub fn realtime(
    model: &Model,
    inventory: &Inventory,
    sights: &BTreeMap<GuestName, GuestObservation>,
) -> Vec<Verdict> {
    let Some(wanted) = &model.realtime else { return Vec::new() };
    let mut sheet = VerdictSheet::default();
    let nothing = BTreeSet::new();
    let unread = Tuning::default();
    let tuning = inventory.tuning.as_ref().unwrap_or(&unread);
    let mut page = sheet.page(Subject::Machine, Vantage::Host, &nothing);
    isolated(wanted, inventory, tuning, &mut page);
    housekeeping(model, wanted, tuning, sights, &mut page);
    throttling(wanted, inventory, tuning, &mut page);
    if wanted.tickless == Some(true) {
        let seen = known(&tuning.tickless, "nohz_full");
        covers("tickless", &wanted.isolated, seen, &mut page);
    }
    let owned: BTreeSet<u32> = owned(model).flat_map(|(_, pin)| pin.0.iter().copied()).collect();
    let nobodys = CpuSet(wanted.isolated.0.difference(&owned).copied().collect());
    cpus(&nobodys, wanted.wake_latency, wanted.frequency.as_ref(), tuning, &mut page);
    for (name, guest) in &model.guests {
        let (Some(realtime), Some(pin)) = (&guest.realtime, &guest.pin) else { continue };
        let mut page = sheet.page(Subject::Guest(name.clone()), Vantage::Host, &nothing);
        let unseen = GuestObservation { threads: Err("not observed".to_owned()), functions: BTreeSet::new() };
        let sight = sights.get(name).unwrap_or(&unseen);
        partition(pin, inventory, tuning, sight, &mut page);
        threads(guest, pin, sight, &mut page);
        if let Some(wanted) = &realtime.interrupts {
            interrupts(guest, wanted, tuning, sight, &mut page);
        }
        shares(guest, pin, tuning, &mut page);
        let latency = realtime.wake_latency.or(wanted.wake_latency);
        let frequency = realtime.frequency.as_ref().or(wanted.frequency.as_ref());
        cpus(pin, latency, frequency, tuning, &mut page);
    }
    sheet.verdicts
}

/// The guests with `realtime` and their CPUs.
fn owned(model: &Model) -> impl Iterator<Item = (&Guest, &CpuSet)> {
    model
        .guests
        .values()
        .filter(|guest| guest.realtime.is_some())
        .filter_map(|guest| Some((guest, guest.pin.as_ref()?)))
}

/// What was read; why it was not, else.
fn known<'a, T>(reading: &'a Reading<T>, what: &str) -> Result<&'a T, Unobserved> {
    match reading {
        Reading::Is(value) => Ok(value),
        Reading::Absent => Err(Unobserved::Unsupported(format!("this machine has no {what}"))),
        Reading::Denied => Err(Unobserved::Unknown(format!("{what} may not be read"))),
        Reading::Unreadable(why) => Err(Unobserved::Unknown(format!("{what}: {why}"))),
    }
}

/// What a knob holds.
fn held(tuning: &Tuning, knob: Knob) -> Result<&Value, Unobserved> {
    match tuning.knobs.get(&knob) {
        Some(reading) => known(reading, &knob.to_string()),
        None => Err(Unobserved::Unknown(format!("{knob} was not read"))),
    }
}

fn list(cpus: &BTreeSet<u32>) -> String {
    if cpus.is_empty() { "none".to_owned() } else { CpuSet(cpus.clone()).to_string() }
}

fn outcome(is: bool) -> Outcome {
    if is { Outcome::Pass } else { Outcome::Fail }
}

/// CPUs that have to be among those that were seen.
fn covers(attribute: &str, wanted: &CpuSet, seen: Result<&CpuSet, Unobserved>, page: &mut VerdictWriter<'_>) {
    match seen {
        Ok(seen) => page.put(attribute, wanted, list(&seen.0), outcome(wanted.0.is_subset(&seen.0))),
        Err(blind) => page.blind(attribute, wanted, blind),
    }
}

/// All CPUs that are in valid isolated partitions, or isolated since the kernel's start.
fn all_isolated(inventory: &Inventory, tuning: &Tuning) -> CpuSet {
    let of_partitions = tuning.cgroups.partitions.values().filter(|partition| partition.state == "isolated");
    let mut cpus: BTreeSet<u32> =
        of_partitions.flat_map(|partition| partition.effective.0.iter().copied()).collect();
    cpus.extend(tuning.cgroups.isolated.known().into_iter().flat_map(|cpus| cpus.0.iter().copied()));
    cpus.extend(inventory.cpus.isolated.0.iter().copied());
    CpuSet(cpus)
}

fn isolated(wanted: &Realtime, inventory: &Inventory, tuning: &Tuning, page: &mut VerdictWriter<'_>) {
    if wanted.isolated.0.is_empty() {
        return;
    }
    let seen = all_isolated(inventory, tuning);
    // CPUs that nobody could read of may be among them.
    let unread = match &tuning.cgroups.isolated {
        Reading::Denied | Reading::Unreadable(_) => {
            known(&tuning.cgroups.isolated, "cpuset.cpus.isolated").err()
        }
        Reading::Is(_) | Reading::Absent => half_read(&tuning.unread.partitions),
    };
    let missing = !wanted.isolated.0.is_subset(&seen.0);
    covers("isolated", &wanted.isolated, unread.filter(|_| missing).map_or(Ok(&seen), Err), page);
}

/// Why a list is not whole.
fn half_read(unread: &[String]) -> Option<Unobserved> {
    (!unread.is_empty()).then(|| Unobserved::Unknown(unread.join(", ")))
}

/// Interrupts that the kernel alone places: those of queues that belong to a CPU, and the timer's.
fn is_the_kernels(irq: &Irq) -> bool {
    irq.is_kernel_managed() || irq.users.iter().any(|user| user == "timer")
}

/// Whether it is known who has which interrupt.
fn irq_table(tuning: &Tuning) -> Result<(), Unobserved> {
    known(&tuning.irq_table, "/proc/interrupts").copied().map_err(|blind| match blind {
        Unobserved::Unsupported(why) => Unobserved::Unknown(why),
        blind => blind,
    })
}

/// Whether an interrupt's own mask keeps it away from these CPUs.
fn may_not_come_to(tuning: &Tuning, number: u32, cpus: &BTreeSet<u32>) -> bool {
    matches!(held(tuning, Knob::IrqAffinity(number)), Ok(Value::Cpus(mask)) if mask.0.is_disjoint(cpus))
}

/// Nothing that can be sent elsewhere comes to isolated CPUs: interrupts, but for those of guests' functions that the model sends
/// there, and work that is bound to no CPU.
fn housekeeping(
    model: &Model,
    wanted: &Realtime,
    tuning: &Tuning,
    sights: &BTreeMap<GuestName, GuestObservation>,
    page: &mut VerdictWriter<'_>,
) {
    let isolated = &wanted.isolated.0;
    if isolated.is_empty() {
        return;
    }
    let none = format!("none on {}", wanted.isolated);
    let sent: BTreeSet<Bdf> = model
        .guests
        .iter()
        .filter(|(_, guest)| guest.realtime.as_ref().is_some_and(|realtime| realtime.interrupts.is_some()))
        .filter_map(|(name, _)| sights.get(name))
        .flat_map(|sight| sight.functions.iter().copied())
        .collect();
    let (mut there, mut later) = (Vec::new(), Vec::new());
    let mut unread = None;
    for (number, irq) in tuning.irqs.iter().filter(|(_, irq)| !irq.users.is_empty() && !is_the_kernels(irq)) {
        if irq.function.is_some_and(|function| sent.contains(&function)) {
            continue;
        }
        match &irq.effective {
            Reading::Is(cpus) if cpus.0.is_disjoint(isolated) => {}
            // Some controllers move an interrupt when it comes the next time; one that has not come yet stays till then.
            Reading::Is(_) if may_not_come_to(tuning, *number, isolated) => {
                later.push(format!("{number} ({})", irq.users.join(", ")));
            }
            Reading::Is(cpus) => there.push(format!("{number} ({}) on {cpus}", irq.users.join(", "))),
            other => {
                let why = known(other, &format!("effective_affinity_list of {number}"));
                unread = unread.or(why.err());
            }
        }
    }
    // Without the table nobody is known to have asked for any of them.
    if let Err(blind) = irq_table(tuning) {
        unread = Some(blind);
    }
    match unread {
        _ if !there.is_empty() => page.put("interrupts", none, there.join(", "), Outcome::Fail),
        Some(blind) => page.blind("interrupts", none, blind),
        None if tuning.irqs.is_empty() => {
            page.blind("interrupts", none, Unobserved::Unknown("interrupts were not read".to_owned()));
        }
        None if later.is_empty() => page.put("interrupts", none.clone(), none, Outcome::Pass),
        None => {
            let seen = format!("{none}, but for {} until it comes the next time", later.join(", "));
            page.put("interrupts", none, seen, Outcome::Pass);
        }
    }
    for (attribute, knob) in
        [("default_smp_affinity", Knob::DefaultIrqAffinity), ("workqueues", Knob::Workqueues)]
    {
        let none = format!("none of {}", wanted.isolated);
        match held(tuning, knob) {
            Ok(Value::Cpus(cpus)) => {
                page.put(attribute, none, list(&cpus.0), outcome(cpus.0.is_disjoint(isolated)));
            }
            Ok(other) => page.put(attribute, none, other, Outcome::Fail),
            Err(blind) => page.blind(attribute, none, blind),
        }
    }
}

fn throttling(wanted: &Realtime, inventory: &Inventory, tuning: &Tuning, page: &mut VerdictWriter<'_>) {
    let Some(on) = wanted.throttling else { return };
    let told = |on: bool| if on { "on" } else { "off" };
    let put = |page: &mut VerdictWriter<'_>, attribute: &str, seen: Result<&Value, Unobserved>, off: i64| {
        match seen {
            Ok(Value::Number(number)) => {
                let is_on = *number != off;
                page.put(attribute, told(on), format!("{} ({number})", told(is_on)), outcome(is_on == on));
            }
            Ok(other) => page.put(attribute, told(on), other, Outcome::Fail),
            Err(blind) => page.blind(attribute, told(on), blind),
        }
    };
    put(page, "throttling", held(tuning, Knob::RtRuntime), -1);
    let mut numbers =
        inventory.kernel.release.split(|c: char| !c.is_ascii_digit()).map_while(|text| text.parse().ok());
    let release: (u32, u32) = (numbers.next().unwrap_or(u32::MAX), numbers.next().unwrap_or(0));
    // Before Linux 6.12 there is no such server.
    if release >= (6, 12) {
        for cpu in &wanted.isolated.0 {
            let seen = held(tuning, Knob::FairServer(*cpu)).map_err(|blind| match blind {
                Unobserved::Unsupported(why) => Unobserved::Unknown(format!("{why}; is debugfs mounted?")),
                blind => blind,
            });
            put(page, &format!("fair_server of CPU {cpu}"), seen, 0);
        }
    }
}

fn cpus(
    cpus: &CpuSet,
    latency: Option<u32>,
    frequency: Option<&Frequency>,
    tuning: &Tuning,
    page: &mut VerdictWriter<'_>,
) {
    let mut compare = |attribute: String, knob: Knob, wanted: Value| match held(tuning, knob) {
        Ok(seen) => page.put(&attribute, &wanted, seen, outcome(*seen == wanted)),
        Err(blind) => page.blind(&attribute, wanted, blind),
    };
    for cpu in &cpus.0 {
        if let Some(latency) = latency {
            // In this file 0 is no limit, and `n/a` no idle state.
            let wanted =
                if latency == 0 { Value::Word("n/a".to_owned()) } else { Value::Number(i64::from(latency)) };
            compare(format!("wake_latency of CPU {cpu}"), Knob::ResumeLatency(*cpu), wanted);
        }
        match frequency {
            None => {}
            Some(Frequency::Governor(name)) => {
                compare(format!("frequency of CPU {cpu}"), Knob::Governor(*cpu), Value::Word(name.clone()));
            }
            Some(Frequency::Fixed(khz)) => {
                let khz = Value::Number(i64::try_from(*khz).unwrap_or(i64::MAX));
                compare(format!("least frequency of CPU {cpu}"), Knob::MinFrequency(*cpu), khz.clone());
                compare(format!("most frequency of CPU {cpu}"), Knob::MaxFrequency(*cpu), khz);
            }
        }
    }
}

/// The guest's CPUs are in valid isolated partitions that have no other CPU: those are its alone. Where the CPUs are isolated since
/// the kernel's start there need be none.
fn partition(
    pin: &CpuSet,
    inventory: &Inventory,
    tuning: &Tuning,
    sight: &GuestObservation,
    page: &mut VerdictWriter<'_>,
) {
    let wanted = format!("isolated partition of {pin}");
    if let Err(why) = &sight.threads {
        return page.blind("partition", wanted, Unobserved::Unknown(why.clone()));
    }
    if pin.0.is_subset(&inventory.cpus.isolated.0) {
        return page.put("partition", wanted, "isolated since the kernel's start", Outcome::Pass);
    }
    let touching = tuning.cgroups.partitions.iter().filter(|(_, partition)| {
        [&partition.cpus, &partition.effective].iter().any(|cpus| !cpus.0.is_disjoint(&pin.0))
    });
    let mut covered = BTreeSet::new();
    let mut told = Vec::new();
    let mut all_ours = true;
    for (group, partition) in touching {
        told.push(format!("{group}: {} {}", partition.state, list(&partition.effective.0)));
        let valid = partition.state == "isolated" && partition.effective.0.is_subset(&pin.0);
        all_ours &= valid;
        if valid {
            covered.extend(partition.effective.0.iter().copied());
        }
    }
    // A group that could not be read may have the CPUs that are missing, or share those that are there.
    if let (true, Some(blind)) = (all_ours, half_read(&tuning.unread.partitions)) {
        return page.blind("partition", wanted, blind);
    }
    let told = if told.is_empty() { "no partition".to_owned() } else { told.join("; ") };
    page.put("partition", wanted, told, outcome(all_ours && covered == pin.0));
}

/// Every thread that counts runs on the guest's CPUs only, with the policy that is wanted.
fn threads(guest: &Guest, pin: &CpuSet, sight: &GuestObservation, page: &mut VerdictWriter<'_>) {
    let Some(realtime) = &guest.realtime else { return };
    let wanted = realtime.scheduling;
    let seen = match &sight.threads {
        Ok(threads) => threads,
        Err(why) => {
            page.blind("policy", wanted, Unobserved::Unknown(why.clone()));
            return page.blind("threads", format!("on {pin}"), Unobserved::Unknown(why.clone()));
        }
    };
    // QEMU's other threads are `emulator`'s, and run elsewhere.
    let counts = |thread: &&VmThread| guest.kind == GuestKind::Container || thread.name.starts_with("CPU ");
    let seen: Vec<&VmThread> = seen.iter().filter(counts).collect();
    if seen.is_empty() {
        let none = || Unobserved::Unknown("it has no thread that could be seen".to_owned());
        page.blind("policy", wanted, none());
        return page.blind("threads", format!("on {pin}"), none());
    }
    let is =
        |thread: &VmThread| thread.policy == wanted.policy.number() && thread.priority == wanted.priority;
    let told = |thread: &VmThread| {
        let policy = ["other", "fifo", "rr", "batch", "iso", "idle", "deadline"].get(thread.policy as usize);
        let policy = policy.map_or_else(|| format!("policy {}", thread.policy), |name| (*name).to_owned());
        let priority = if thread.priority > 0 { format!(" {}", thread.priority) } else { String::new() };
        format!("{}: {policy}{priority}", thread.name)
    };
    judge_each("policy", wanted.to_string(), &seen, is, told, page);
    let within = |thread: &VmThread| !thread.cpus.0.is_empty() && thread.cpus.0.is_subset(&pin.0);
    let told = |thread: &VmThread| format!("{}: {}", thread.name, list(&thread.cpus.0));
    judge_each("threads", format!("on {pin}"), &seen, within, told, page);
}

/// How many threads that are otherwise are named.
const NAMED: usize = 5;

fn judge_each(
    attribute: &str,
    wanted: String,
    seen: &[&VmThread],
    is: impl Fn(&VmThread) -> bool,
    told: impl Fn(&VmThread) -> String,
    page: &mut VerdictWriter<'_>,
) {
    let otherwise: Vec<String> =
        seen.iter().filter(|thread| !is(thread)).map(|thread| told(thread)).collect();
    if otherwise.is_empty() {
        return page.put(attribute, wanted.clone(), format!("{wanted}, all {}", seen.len()), Outcome::Pass);
    }
    let more = otherwise.len().saturating_sub(NAMED);
    let mut text = otherwise.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    page.put(attribute, wanted, text, Outcome::Fail);
}

/// Where the interrupts of a guest's functions are delivered in fact.
fn interrupts(
    guest: &Guest,
    wanted: &CpuSet,
    tuning: &Tuning,
    sight: &GuestObservation,
    page: &mut VerdictWriter<'_>,
) {
    let of = |irq: &&Irq| irq.function.is_some_and(|function| sight.functions.contains(&function));
    if let (false, Err(blind)) = (guest.functions.is_empty(), irq_table(tuning)) {
        return page.blind("interrupts", wanted, blind);
    }
    let mut seen = BTreeSet::new();
    for irq in tuning.irqs.values().filter(of).filter(|irq| !irq.users.is_empty()) {
        match known(&irq.effective, "effective_affinity_list") {
            Ok(cpus) => seen.extend(cpus.0.iter().copied()),
            Err(blind) => return page.blind("interrupts", wanted, blind),
        }
    }
    match seen.is_empty() {
        true if guest.functions.is_empty() => {}
        true if sight.functions.is_empty() => {
            let why = sight.threads.as_ref().err().map_or("nobody knows its functions", |why| why);
            page.blind("interrupts", wanted, Unobserved::Unknown(why.to_owned()));
        }
        true => page.blind(
            "interrupts",
            wanted,
            Unobserved::Unknown("its functions have asked for no interrupts yet".to_owned()),
        ),
        false => page.put("interrupts", wanted, list(&seen), outcome(seen.is_subset(&wanted.0))),
    }
}

/// The ways of the last-level cache that no other group has, and the share of memory bandwidth.
fn shares(guest: &Guest, pin: &CpuSet, tuning: &Tuning, page: &mut VerdictWriter<'_>) {
    let Some(realtime) = &guest.realtime else { return };
    // A group that could not be read may share what this one has.
    let resctrl = || match half_read(&tuning.unread.resctrl) {
        Some(blind) => Err(blind),
        None => known(&tuning.resctrl, "/sys/fs/resctrl"),
    };
    let group = |resctrl: &Resctrl| {
        let of = resctrl
            .groups
            .iter()
            .find(|(group, settings)| !group.is_empty() && pin.0.is_subset(&settings.cpus.0));
        of.map(|(group, settings)| (group.clone(), settings.clone()))
    };
    if let Some(ways) = realtime.cache {
        let wanted = format!("{ways} ways alone");
        match resctrl().map(|resctrl| (resctrl, group(resctrl))) {
            Err(blind) => page.blind("cache", wanted, blind),
            Ok((_, None)) => page.put("cache", wanted, format!("no group has the CPUs {pin}"), Outcome::Fail),
            Ok((resctrl, Some((own, settings)))) => {
                let is_cache = |resource: &String| resource.starts_with("L3") || resource.starts_with("L2");
                let last = if resctrl.masks.keys().any(|r| r.starts_with("L3")) { "L3" } else { "L2" };
                let mut least = None::<u32>;
                let mut shared = false;
                for (resource, domains) in
                    settings.schemata.iter().filter(|(r, _)| is_cache(r) && r.starts_with(last))
                {
                    for (domain, mask) in domains {
                        least = Some(least.unwrap_or(u32::MAX).min(mask.count_ones()));
                        shared |=
                            resctrl.groups.iter().filter(|(other, _)| **other != own).any(|(_, other)| {
                                let theirs =
                                    other.schemata.get(resource).and_then(|domains| domains.get(domain));
                                theirs.is_some_and(|theirs| theirs & mask != 0)
                            });
                    }
                }
                let alone = if shared { "shared with others" } else { "alone" };
                let seen = least.map_or("none".to_owned(), |least| format!("{least} ways {alone}"));
                page.put("cache", wanted, seen, outcome(least >= Some(ways) && !shared));
            }
        }
    }
    if let Some(share) = realtime.memory_bandwidth {
        match resctrl().map(group) {
            Err(blind) => page.blind("memory_bandwidth", share, blind),
            Ok(found) => {
                let shares =
                    found.and_then(|(_, settings)| settings.schemata.get("MB").cloned()).unwrap_or_default();
                let most = shares.values().max().copied();
                // What the CPU counts in steps is rounded up by the kernel.
                let step =
                    tuning.resctrl.known().and_then(|resctrl| resctrl.bandwidth).map_or(1, |(_, step)| step);
                let limit = u64::from(share.get()).div_ceil(u64::from(step.max(1))) * u64::from(step.max(1));
                let seen = most.map_or("no limit".to_owned(), |most| format!("{most}%"));
                page.put("memory_bandwidth", share, seen, outcome(most.is_some_and(|most| most <= limit)));
            }
        }
    }
}

#[cfg(test)]
mod tests;
