//! Real time: who is isolated, who keeps house, how guests are scheduled.

use std::collections::{BTreeSet, HashMap};

use super::{Subject, cpus};
use crate::{
    CpuSet, Frequency, Guest, GuestKind, GuestName, GuestRealtime, Realtime, Scheduling, SchedulingPolicy,
    decode::nearest,
    diagnostic::{Diagnostic, Path},
    document::{GuestRealtimeDocument, GuestRealtimeEntry, RealtimeDocument},
};

/// The priority of who says nothing of it: above every ordinary thread, below the kernel's own.
const PRIORITY: u32 = 1;
/// The longest latency that the kernel takes (`PM_QOS_RESUME_LATENCY_NO_CONSTRAINT` is `S32_MAX`).
const MOST_LATENCY: u32 = i32::MAX as u32 - 1;
/// Bits of the widest capacity mask that resctrl takes (`fs/resctrl/ctrlmondata.c`).
const MOST_WAYS: u32 = 32;

/// What the file says of one guest; `None` when it does not run in real time.
pub(super) fn build_guest(
    entry: Option<GuestRealtimeEntry>,
    exclusive: Option<bool>,
    kind: GuestKind,
    lists: &mut cpus::Lists,
    path: &Path,
    messages: &mut Vec<Diagnostic>,
) -> Option<GuestRealtime> {
    let of_guest = path;
    let path = path.join("realtime");
    let document = match entry? {
        GuestRealtimeEntry::Spoiled | GuestRealtimeEntry::Set(false) => return None,
        GuestRealtimeEntry::Set(true) => GuestRealtimeDocument::default(),
        GuestRealtimeEntry::Settings(document) => document,
    };
    if exclusive == Some(false) {
        let text = "the CPUs of a guest that runs in real time are a partition, and nobody else's";
        let wrong = Diagnostic::error(of_guest.join("exclusive"), text);
        messages.push(wrong.with_hint("leave `exclusive` out, or `realtime`"));
    }
    let interrupts = lists.expand(document.interrupts, &path.join("interrupts"), messages);
    check_latency(document.wake_latency, &path, messages);
    if let Some(ways) = document.cache.filter(|ways| !(1..=MOST_WAYS).contains(ways)) {
        let text = format!("{ways} is no number of cache ways: it goes from 1 to {MOST_WAYS}");
        let wrong = Diagnostic::error(path.join("cache"), text);
        messages.push(wrong.with_hint("leave it out to share the cache with all"));
    }
    Some(GuestRealtime {
        scheduling: scheduling(document.policy, document.priority, kind, &path, messages),
        interrupts,
        cache: document.cache,
        memory_bandwidth: document.memory_bandwidth,
        wake_latency: document.wake_latency,
        frequency: document.frequency,
    })
}

fn scheduling(
    policy: Option<SchedulingPolicy>,
    priority: Option<u32>,
    kind: GuestKind,
    path: &Path,
    messages: &mut Vec<Diagnostic>,
) -> Scheduling {
    let policy = policy.unwrap_or(match kind {
        GuestKind::Vm => SchedulingPolicy::Fifo,
        GuestKind::Container => SchedulingPolicy::Other,
    });
    if policy == SchedulingPolicy::Other {
        if priority.is_some() {
            let text = "threads of the policy `other` have no real-time priority";
            let wrong = Diagnostic::error(path.join("priority"), text).at_key();
            messages.push(wrong.with_hint("write `policy: fifo`, or leave `priority` out"));
        }
        return Scheduling::default();
    }
    let priority = priority.unwrap_or(PRIORITY);
    if !(1..=Scheduling::MOST).contains(&priority) {
        let text = format!("{priority} is no real-time priority: it goes from 1 to {}", Scheduling::MOST);
        messages.push(Diagnostic::error(path.join("priority"), text));
    } else if priority == Scheduling::MOST {
        let text = "at priority 99 it competes with the kernel's own threads that stop and move others";
        let wrong = Diagnostic::warning(path.join("priority"), text);
        messages.push(wrong.with_hint("98 is above everything that people start, and safe"));
    }
    Scheduling { policy, priority }
}

fn check_latency(latency: Option<u32>, path: &Path, messages: &mut Vec<Diagnostic>) {
    if let Some(latency) = latency.filter(|latency| *latency > MOST_LATENCY) {
        let text = format!(
            "{latency} microseconds are no latency of an idle state: it goes from 0 to {MOST_LATENCY}"
        );
        messages.push(
            Diagnostic::error(path.join("wake_latency"), text)
                .with_hint("leave it out for no limit; 0 is no idle state at all"),
        );
    }
}

/// What holds of the machine: as the file says, and for the guests that run in real time. `None` when there is nothing of it.
pub(super) fn build<'a>(
    document: Option<RealtimeDocument>,
    guests: impl Iterator<Item = &'a Guest>,
    lists: &mut cpus::Lists,
    messages: &mut Vec<Diagnostic>,
) -> Option<Realtime> {
    let pins = guests.filter(|guest| guest.realtime.is_some()).filter_map(|guest| guest.pin.as_ref());
    let of_guests: BTreeSet<u32> = pins.flat_map(|pin| pin.0.iter().copied()).collect();
    let path = Path::of(["realtime"]);
    let document = match document {
        Some(document) => document,
        None if of_guests.is_empty() => return None,
        None => RealtimeDocument::default(),
    };
    let written = lists.expand(document.isolated, &path.join("isolated"), messages);
    let housekeeping = lists.expand(document.housekeeping, &path.join("housekeeping"), messages);
    check_latency(document.wake_latency, &path, messages);
    let isolated = written.unwrap_or_default().0.into_iter().chain(of_guests).collect();
    Some(Realtime {
        isolated: CpuSet(isolated),
        housekeeping,
        wake_latency: document.wake_latency,
        frequency: document.frequency,
        throttling: document.throttling,
        tickless: document.tickless,
    })
}

/// Governors that Linux has (`drivers/cpufreq/`).
const GOVERNORS: [&str; 6] =
    ["performance", "schedutil", "ondemand", "conservative", "powersave", "userspace"];

/// Who is isolated and who keeps house, against each other and against the guests.
pub(super) fn check(subject: &mut Subject<'_>) {
    let model = subject.model;
    let mut owners: HashMap<u32, &GuestName> = HashMap::new();
    for (name, guest) in model.guests.iter().filter(|(_, guest)| guest.realtime.is_some()) {
        for cpu in guest.pin.iter().flat_map(|pin| &pin.0) {
            owners.entry(*cpu).or_insert(name);
        }
    }
    // A guest that runs in real time has its CPUs to itself, too.
    let mut alone: HashMap<u32, &GuestName> = HashMap::new();
    for (name, guest) in model.guests.iter().filter(|(_, guest)| guest.exclusive) {
        for cpu in guest.pin.iter().flat_map(|pin| &pin.0) {
            alone.entry(*cpu).or_insert(name);
        }
    }
    let isolated = model.realtime.iter().flat_map(|realtime| realtime.isolated.0.iter().copied());
    let nobodys = CpuSet(isolated.filter(|cpu| !owners.contains_key(cpu)).collect());
    let owner = |cpus: &CpuSet| cpus.0.iter().find_map(|cpu| owners.get(cpu).copied());
    for (name, guest) in &model.guests {
        if super::full(subject.messages) {
            return;
        }
        if let Some(realtime) = &guest.realtime {
            let path = Path::of(["guests", name.as_str(), "realtime"]);
            subject.messages.extend(governor(realtime.frequency.as_ref(), &path));
            subject.messages.extend(unpinned(name, guest, &path));
            subject.messages.extend(swapped(name, guest, &path));
        }
        subject.messages.extend(intrudes(name, guest, &nobodys));
        subject.messages.extend(interrupted(name, guest, &alone));
    }
    let Some(realtime) = &model.realtime else { return };
    let path = Path::of(["realtime"]);
    subject.messages.extend(governor(realtime.frequency.as_ref(), &path));
    if let Some(both) = shared(realtime.housekeeping.as_ref(), &realtime.isolated) {
        let at = match owner(&both) {
            Some(owner) => Path::of(["guests", owner.as_str(), "pin"]),
            None => path.join("isolated"),
        };
        let text = format!("{} would keep house and {} isolated", cpus_named(&both), are(&both));
        subject.messages.push(
            Diagnostic::error(path.join("housekeeping"), text)
                .with_related(at, "isolated here")
                .with_hint("leave `housekeeping` out: it is then every CPU that is not isolated"),
        );
    }
    if realtime.isolated.0.is_empty() {
        let text = "this is for isolated CPUs, and there are none";
        let wrong = Diagnostic::warning(path, text).at_key();
        subject
            .messages
            .push(wrong.with_hint("name them with `isolated`, or give guests `realtime` and `pin`"));
    } else if realtime.isolated.0.contains(&0) {
        let at = match owner(&CpuSet([0].into())) {
            Some(owner) => Path::of(["guests", owner.as_str(), "pin"]),
            None => path.join("isolated"),
        };
        let text = "CPU 0 is to be isolated, and the kernel does work there that it does nowhere else";
        let wrong = Diagnostic::warning(at, text);
        subject.messages.push(wrong.with_hint("isolate another, and leave CPU 0 to housekeeping"));
    }
}

/// A governor that Linux does not have.
fn governor(frequency: Option<&Frequency>, path: &Path) -> Option<Diagnostic> {
    let Some(Frequency::Governor(name)) = frequency else { return None };
    if GOVERNORS.contains(&name.as_str()) {
        return None;
    }
    let hint = match nearest(name, GOVERNORS) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("write one of {}, or a frequency like 2.4GHz", GOVERNORS.join(", ")),
    };
    let text = format!("Linux has no governor `{name}`");
    Some(Diagnostic::error(path.join("frequency"), text).with_hint(hint))
}

fn unpinned(name: &GuestName, guest: &Guest, path: &Path) -> Option<Diagnostic> {
    if guest.pin.is_some() {
        return None;
    }
    let text = format!("{name} runs in real time and has no `pin`: which CPUs are to be its alone?");
    let wrong = Diagnostic::error(path.clone(), text).at_key();
    Some(wrong.with_hint("give it CPUs with `pin`: for a VM one for each virtual CPU"))
}

/// A page that has to be read from the swap first takes milliseconds. What a function reaches by DMA stays in RAM anyway.
fn swapped(name: &GuestName, guest: &Guest, path: &Path) -> Option<Diagnostic> {
    let locked = guest.vm.locked_memory || guest.vm.huge_pages.is_some() || !guest.functions.is_empty();
    if guest.kind == GuestKind::Container || locked {
        return None;
    }
    let text = format!("the memory of {name} may be swapped out, and it would wait for it");
    Some(Diagnostic::warning(path.clone(), text).at_key().with_hint("write `locked_memory: on`"))
}

/// A guest on CPUs that are isolated and no guest's.
fn intrudes(name: &GuestName, guest: &Guest, nobodys: &CpuSet) -> Option<Diagnostic> {
    let uses = [("pin", &guest.pin), ("emulator", &guest.vm.emulator)];
    let (key, both) = uses
        .into_iter()
        .filter(|(key, _)| *key != "pin" || guest.realtime.is_none())
        .find_map(|(key, set)| Some((key, shared(set.as_ref(), nobodys)?)))?;
    let text = match key {
        "pin" => format!("{name} is pinned to {}, which {} isolated", cpus_named(&both), are(&both)),
        _ => format!(
            "QEMU's own threads of {name} are to run on {}, which {} isolated",
            cpus_named(&both),
            are(&both)
        ),
    };
    Some(
        Diagnostic::error(Path::of(["guests", name.as_str(), key]), text)
            .with_related(Path::of(["realtime", "isolated"]), "isolated here")
            .with_hint(match key {
                "pin" => "give it `realtime` too, or other CPUs",
                _ => "give it CPUs of housekeeping, or leave it out",
            }),
    )
}

/// Interrupts of one guest on CPUs that are another's alone, or that are its own. An isolated CPU that is no guest's may be there for them.
fn interrupted(name: &GuestName, guest: &Guest, alone: &HashMap<u32, &GuestName>) -> Option<Diagnostic> {
    let interrupts = guest.realtime.as_ref()?.interrupts.as_ref()?;
    let path = Path::of(["guests", name.as_str(), "realtime", "interrupts"]);
    let owner = |cpu: &u32| alone.get(cpu).copied().filter(|owner| *owner != name);
    if let Some(other) = interrupts.0.iter().find_map(owner) {
        let both = CpuSet(interrupts.0.iter().copied().filter(|cpu| owner(cpu) == Some(other)).collect());
        let text = format!(
            "the interrupts of {name} would go to {}, which {} {other}'s alone",
            cpus_named(&both),
            are(&both)
        );
        return Some(
            Diagnostic::error(path, text)
                .with_related(Path::of(["guests", other.as_str(), "pin"]), "taken here")
                .with_hint("give them a CPU of housekeeping, or leave `interrupts` out"),
        );
    }
    let own = shared(guest.pin.as_ref(), interrupts)?;
    let text = format!("the interrupts of {name}'s functions would interrupt it on {}", cpus_named(&own));
    Some(
        Diagnostic::warning(path, text)
            .with_hint("leave `interrupts` out: the CPUs of housekeeping then handle them"),
    )
}

/// The CPUs that are in both, if any are.
fn shared(one: Option<&CpuSet>, other: &CpuSet) -> Option<CpuSet> {
    let both = CpuSet(one?.0.intersection(&other.0).copied().collect());
    (!both.0.is_empty()).then_some(both)
}

fn cpus_named(cpus: &CpuSet) -> String {
    if cpus.0.len() == 1 { format!("CPU {cpus}") } else { format!("CPUs {cpus}") }
}

fn are(cpus: &CpuSet) -> &'static str {
    if cpus.0.len() == 1 { "is" } else { "are" }
}
