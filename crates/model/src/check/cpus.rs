//! Which of the host's CPUs guests run on, and which are one guest's alone.

use std::collections::HashMap;

use super::Subject;
use crate::{
    CpuSet, GuestKind, GuestName,
    diagnostic::{Diagnostic, Path},
    quantity::CpuList,
};

/// CPUs of all lists of one file together. A file of 1 MB could name billions.
const MOST_LISTED: u64 = 1 << 20;
/// The highest CPU number that Linux knows (`NR_CPUS` <= 8192).
const LAST_CPU: u32 = 8191;

/// Counts the CPUs that the lists of a file name.
#[derive(Default)]
pub(super) struct Lists {
    listed: u64,
}

impl Lists {
    /// The set that a list at `path` stands for.
    pub(super) fn expand(
        &mut self,
        list: Option<CpuList>,
        path: &Path,
        messages: &mut Vec<Diagnostic>,
    ) -> Option<CpuSet> {
        let list = list?;
        let before = self.listed;
        self.listed = before.saturating_add(list.len());
        if self.listed > MOST_LISTED {
            // The rest would all say the same.
            if before <= MOST_LISTED {
                let text = format!("the CPU lists up to here name more than {MOST_LISTED} CPUs");
                messages.push(
                    Diagnostic::error(path.clone(), text)
                        .with_hint("name only those that the guest is to run on"),
                );
            }
            return None;
        }
        let set = list.set();
        if set.0.is_empty() {
            messages.push(
                Diagnostic::error(path.clone(), "this names no CPU")
                    .with_hint("write CPUs like 2-3, or leave it out"),
            );
        } else if let Some(beyond) = set.0.range(LAST_CPU + 1..).next() {
            let text = format!("there is no CPU {beyond}: Linux knows 0 to {LAST_CPU}");
            messages.push(Diagnostic::error(path.clone(), text));
            return None;
        }
        Some(set)
    }
}

/// Numbers of CPUs against sets, `exclusive` without `pin`, and CPUs that are one guest's alone and another's too.
pub(super) fn check(subject: &mut Subject<'_>) {
    let model = subject.model;
    let at = |name: &GuestName, key: &str| Path::of(["guests", name.as_str(), key]);
    let mut alone: HashMap<u32, &GuestName> = HashMap::new();
    for (name, guest) in &model.guests {
        if super::full(subject.messages) {
            return;
        }
        let Some(pin) = &guest.pin else {
            // Of real time without `pin` there are words of its own.
            if guest.exclusive && guest.realtime.is_none() {
                subject.messages.push(
                    Diagnostic::error(
                        at(name, "exclusive"),
                        format!("{name} has no `pin`, so that there are no CPUs to be its alone"),
                    )
                    .at_key()
                    .with_hint("give it CPUs with `pin`, or leave `exclusive` out"),
                );
            }
            continue;
        };
        subject.messages.extend(guest.cpus.and_then(|cpus| against_pin(name, guest.kind, cpus, pin, &at)));
        if let Some(emulator) = guest.vm.emulator.as_ref().filter(|set| !set.0.is_disjoint(&pin.0)) {
            let both = CpuSet(emulator.0.intersection(&pin.0).copied().collect());
            subject.messages.push(
                Diagnostic::warning(
                    at(name, "emulator"),
                    format!("QEMU's own threads of {name} would interrupt its virtual CPUs on {both}"),
                )
                .with_related(at(name, "pin"), "its virtual CPUs")
                .with_hint("give `emulator` CPUs that no guest is pinned to"),
            );
        }
        if guest.exclusive {
            pin.0.iter().for_each(|cpu| {
                alone.entry(*cpu).or_insert(name);
            });
        }
    }
    for (name, guest) in &model.guests {
        let uses = [
            ("pin", "is pinned to", &guest.pin),
            ("emulator", "has QEMU's own threads on", &guest.vm.emulator),
        ];
        for (key, how, set) in uses {
            if super::full(subject.messages) {
                return;
            }
            let Some(set) = set else { continue };
            // One message a guest and key, however many CPUs.
            let taken = set.0.iter().find_map(|cpu| alone.get(cpu).filter(|owner| **owner != name));
            let Some(owner) = taken else { continue };
            let shared: CpuSet =
                CpuSet(set.0.iter().copied().filter(|cpu| alone.get(cpu) == Some(owner)).collect());
            let cpu = if shared.0.len() == 1 { "CPU" } else { "CPUs" };
            let is = if shared.0.len() == 1 { "is" } else { "are" };
            subject.messages.push(
                Diagnostic::error(
                    at(name, key),
                    format!("{name} {how} {cpu} {shared}, which {is} {owner}'s alone"),
                )
                .with_related(at(owner, "pin"), "taken here")
                .with_hint(match model.guests[*owner].realtime.is_some() {
                    true => "choose other CPUs: those of a guest that runs in real time are a partition"
                        .to_owned(),
                    false => format!("choose other CPUs, or take `exclusive` from {owner}"),
                }),
            );
        }
    }
}

fn against_pin(
    name: &GuestName,
    kind: GuestKind,
    cpus: u32,
    pin: &CpuSet,
    at: &impl Fn(&GuestName, &str) -> Path,
) -> Option<Diagnostic> {
    let pinned = pin.0.len();
    let wanted = usize::try_from(cpus).ok().filter(|cpus| *cpus > 0 && *cpus != pinned && pinned > 0)?;
    let found = match kind {
        GuestKind::Vm if wanted > pinned => Diagnostic::error(
            at(name, "cpus"),
            format!("{name} has {wanted} virtual CPUs, and `pin` has a CPU for {pinned} of them"),
        )
        .with_hint("each virtual CPU has a CPU of its own: give `pin` as many, or leave `cpus` out"),
        GuestKind::Vm => Diagnostic::warning(
            at(name, "cpus"),
            format!("{name} has virtual CPUs for {wanted} of the {pinned} CPUs that it is pinned to"),
        )
        .with_hint("leave `cpus` out: it is then as many as `pin` has"),
        GuestKind::Container if wanted > pinned => Diagnostic::warning(
            at(name, "cpus"),
            format!("{name} never uses {wanted} CPUs, since it is pinned to {pinned}"),
        )
        .with_hint("leave `cpus` out: `pin` limits it already"),
        GuestKind::Container => return None,
    };
    Some(found.with_related(at(name, "pin"), "pinned here"))
}
