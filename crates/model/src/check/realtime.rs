//! Real time: who is isolated, who keeps house, how guests are scheduled.

use std::collections::BTreeSet;

use super::{Subject, cpus};
use crate::{
    CpuSet, Guest, GuestKind, GuestRealtime, Realtime, Scheduling, SchedulingPolicy,
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
    kind: GuestKind,
    lists: &mut cpus::Lists,
    path: &Path,
    messages: &mut Vec<Diagnostic>,
) -> Option<GuestRealtime> {
    let path = path.join("realtime");
    let document = match entry? {
        GuestRealtimeEntry::Spoiled | GuestRealtimeEntry::Set(false) => return None,
        GuestRealtimeEntry::Set(true) => GuestRealtimeDocument::default(),
        GuestRealtimeEntry::Settings(document) => document,
    };
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
        let text = format!("{latency} microseconds are no latency of an idle state");
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

/// Who is isolated and who keeps house, against each other and against the guests.
pub(super) fn check(subject: &mut Subject<'_>) {
    let model = subject.model;
    for (name, guest) in &model.guests {
        if super::full(subject.messages) {
            return;
        }
        if guest.realtime.is_some() && guest.pin.is_none() {
            let text = format!("{name} runs in real time and has no `pin`: which CPUs are to be its alone?");
            let wrong = Diagnostic::error(Path::of(["guests", name.as_str(), "realtime"]), text).at_key();
            subject.messages.push(
                wrong.with_hint("give it CPUs with `pin`, as many as it has threads that must not wait"),
            );
        }
    }
}
