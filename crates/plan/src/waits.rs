//! What is waited for before a guest may run, and in which order guests run.

use std::{collections::HashSet, time::Duration};

use indexmap::IndexMap;
use penstock_model::{Guest, GuestKind, GuestName, Inside, Inventory, Model, inventory::Cpus};

use crate::{
    FunctionAction, GuestAction,
    draft::{Effect, StepSpec},
    guest::Starting,
    planner::{Planner, vf_list},
    realtime,
    wanted::WantedNic,
};

/// Seconds within which a PF has its link. Autonegotiation of 10GBASE-T takes up to five.
const LINK_WITHIN: u32 = 15;

/// Seconds within which a start is finished that nobody has finished: a VF may take a minute to have its link.
const FINISHED_WITHIN: u32 = 75;

/// How one guest is waited for.
struct Wait {
    within: u32,
    best_effort: bool,
    reason: String,
    /// Whether it is waited for though no other guest needs it: this plan starts it, or whoever started it did not live to wait.
    in_any_case: bool,
}

/// The waits that are still to come.
pub struct Waits<'a> {
    /// How guests are waited for that have something to wait for and were not yet waited for.
    open: IndexMap<&'a GuestName, Wait>,
    /// Guests that run by now, whether ready or not.
    runs: HashSet<&'a GuestName>,
    /// Guests of this plan that do not run by now.
    to_come: HashSet<&'a GuestName>,
}

impl<'a> Waits<'a> {
    pub fn new(planner: &Planner<'a>, nics: &[WantedNic<'a>], starting: &[Starting<'_, 'a>]) -> Waits<'a> {
        let to_come: HashSet<&GuestName> = starting.iter().map(|guest| guest.name).collect();
        let here = planner.inventory.guests.iter().filter(|(_, found)| found.running && !found.suspended);
        let runs: HashSet<&GuestName> = here.map(|(name, _)| name).collect();
        let mut open = IndexMap::new();
        for (name, guest) in &planner.model.guests {
            let in_any_case = to_come.contains(name)
                || planner.inventory.guests.get(name).is_some_and(|found| found.not_awaited);
            if to_come.contains(name) || runs.contains(name) {
                let wait = wait_for(planner.inventory, nics, name, guest, in_any_case);
                open.extend(wait.map(|wait| (name, wait)));
            }
        }
        // A PF may be inside a guest that the model does not have.
        for nic in nics {
            if let Some(user) =
                planner.user(nic.pf.bdf).filter(|user| !planner.model.guests.contains_key(*user))
            {
                open.insert(user, link_inside(user, &[nic], false));
            }
        }
        Waits { open, runs, to_come }
    }

    /// Waits for nobody.
    pub fn for_nobody() -> Waits<'a> {
        Waits { open: IndexMap::new(), runs: HashSet::new(), to_come: HashSet::new() }
    }

    /// Hands `guests` to `run`, each after those that it needs and after these were waited for; those that can run side
    /// by side at once. `guests` are in starting order.
    pub fn in_order(
        &mut self,
        planner: &mut Planner<'a>,
        guests: &[Starting<'_, 'a>],
        run: impl Fn(&mut Planner<'a>, &Waits<'a>, &[&Starting<'_, 'a>]),
    ) {
        // Whoever owns a PF keeps its place: where it stands among other owners is not by chance.
        let in_turn = guests.iter().any(Starting::owns_pf);
        let mut left: Vec<&Starting<'_, 'a>> = guests.iter().collect();
        while !left.is_empty() {
            let may_come = |guest: &Starting<'_, 'a>| {
                guest.guest.after.iter().all(|before| !self.to_come.contains(before))
            };
            let ready = |guest: &Starting<'_, 'a>| {
                may_come(guest)
                    && self.needed(planner, guest).iter().all(|name| !self.open.contains_key(name))
            };
            let now: Vec<&Starting<'_, 'a>> = if in_turn {
                left.iter().copied().take(1).filter(|guest| ready(guest)).collect()
            } else {
                left.iter().copied().filter(|guest| ready(guest)).collect()
            };
            if now.is_empty() {
                // Only a cycle could leave nobody here, and that is an error of the model.
                let Some(next) = left.iter().copied().find(|guest| may_come(guest)) else { return };
                for name in self.needed(planner, next) {
                    self.wait(planner, name);
                }
                continue;
            }
            run(planner, self, &now);
            for guest in &now {
                self.to_come.remove(guest.name);
                self.runs.insert(guest.name);
            }
            left.retain(|guest| !now.iter().any(|other| other.name == guest.name));
        }
    }

    /// Waits for everybody who was started and whom nobody waited for.
    pub fn rest(&mut self, planner: &mut Planner<'a>) {
        let names: Vec<&GuestName> =
            self.open.iter().filter(|(_, wait)| wait.in_any_case).map(|(name, _)| *name).collect();
        names.into_iter().for_each(|name| self.wait(planner, name));
    }

    /// The guests that must be ready before this one may run, of those that run by now: its `after`, and for a VM those
    /// that have a PF of its functions.
    fn needed(&self, planner: &Planner<'a>, guest: &Starting<'_, 'a>) -> Vec<&'a GuestName> {
        let mut needed: Vec<&GuestName> = guest.guest.after.iter().collect();
        if guest.is_vm() {
            needed.extend(guest.vfs().filter_map(|(nic, ..)| self.holder(planner, nic)));
        }
        let mut seen = HashSet::new();
        needed.retain(|name| self.runs.contains(*name) && seen.insert(*name));
        needed
    }

    /// Waits until the guest that has the PF's interface by now, if one has, is ready: until it has brought the PF up, a VF's
    /// driver gets no answer from it.
    pub fn for_holder(&mut self, planner: &mut Planner<'a>, nic: &WantedNic<'a>) {
        if let Some(holder) = self.holder(planner, nic) {
            self.wait(planner, holder);
        }
    }

    /// Whether a guest has the PF's interface by now.
    pub fn is_held(&self, planner: &Planner<'a>, nic: &WantedNic<'a>) -> bool {
        self.holder(planner, nic).is_some()
    }

    /// The guest that has the PF's interface by now.
    fn holder(&self, planner: &Planner<'a>, nic: &WantedNic<'a>) -> Option<&'a GuestName> {
        let owner = nic.owner.map(|(owner, _)| owner).filter(|owner| self.runs.contains(*owner));
        planner.user(nic.pf.bdf).or(owner)
    }

    fn wait(&mut self, planner: &mut Planner<'a>, name: &GuestName) {
        let Some(wait) = self.open.shift_remove(name) else { return };
        planner.draft.on_behalf_of(Some(name));
        planner.draft.push(
            StepSpec::new(
                GuestAction::AwaitGuest { guest: name.clone(), within: wait.within }.into(),
                None,
                vec![Effect::Running(name.clone())],
                Effect::Ready(name.clone()),
                wait.reason,
            )
            .best_effort(wait.best_effort),
        );
    }

    /// The NICs of a VM's functions whose PF is on the host, with its functions there.
    fn on_host<'g>(
        &self,
        planner: &Planner<'a>,
        guest: &Starting<'g, 'a>,
    ) -> Vec<(&'g WantedNic<'a>, String)> {
        let mut nics: Vec<(&WantedNic<'a>, Vec<_>)> = Vec::new();
        for (nic, vf, _) in guest.vfs().filter(|(nic, ..)| self.holder(planner, nic).is_none()) {
            match nics.iter_mut().find(|(other, _)| other.name == nic.name) {
                Some((_, indices)) => indices.push(vf.index),
                None => nics.push((nic, vec![vf.index])),
            }
        }
        nics.into_iter().map(|(nic, indices)| (nic, vf_list(nic.name, &indices))).collect()
    }

    /// Waits for the links of a VM's PFs that are on the host.
    pub fn for_links(&self, planner: &mut Planner<'a>, guest: &Starting<'_, 'a>) {
        planner.draft.on_behalf_of(Some(guest.name));
        for (nic, functions) in self.on_host(planner, guest) {
            let pf = nic.pf.bdf;
            planner.draft.push(
                StepSpec::new(
                    FunctionAction::AwaitLink { pf, within: LINK_WITHIN }.into(),
                    None,
                    vec![Effect::Vfs(pf), Effect::Interface(pf)],
                    Effect::Linked(pf, guest.name.clone()),
                    format!(
                        "{} uses {functions}, and without a link of {} it would run for nothing",
                        guest.name, nic.name
                    ),
                )
                .best_effort(nic.nic.best_effort.contains(LINK)),
            );
        }
    }

    /// Lets a VM run.
    pub fn resume(&self, planner: &mut Planner<'a>, guest: &Starting<'_, 'a>) {
        let name = guest.name;
        planner.draft.on_behalf_of(Some(name));
        let mut needs = vec![Effect::Running(name.clone())];
        needs.extend(realtime::needs_before_start(planner, name));
        let mut proven = Vec::new();
        for (nic, _) in self.on_host(planner, guest) {
            needs.push(Effect::Linked(nic.pf.bdf, name.clone()));
            proven.push(format!("{} has its link", nic.name));
        }
        for other in self.needed(planner, guest) {
            needs.push(Effect::Ready(other.clone()));
            proven.push(format!("{other} is ready"));
        }
        let why = match proven.split_last() {
            None => format!("{name} is to run, and waits for nobody"),
            Some((last, [])) => format!("{name} runs once {last}"),
            Some((last, rest)) => format!("{name} runs once {} and {last}", rest.join(", ")),
        };
        planner.draft.push(StepSpec::new(
            GuestAction::ResumeGuest { guest: name.clone() }.into(),
            Some(GuestAction::SuspendGuest { guest: name.clone() }.into()),
            needs,
            Effect::Running(name.clone()),
            why,
        ));
    }
}

/// The model's word for a PF's link in `best_effort`.
const LINK: &str = "link";

/// How many times as long a VM has to be ready where the processor is emulated: the VM's own is emulated by that one.
const EMULATED: u32 = 5;

/// Not for this alone does a VM have longer than so many seconds.
const LONGEST_EMULATED: u32 = 600;

/// The seconds that a VM has until it is ready.
fn ready_within(cpus: &Cpus, asked: u32) -> u32 {
    match cpus.are_emulated() {
        true => asked.saturating_mul(EMULATED).min(LONGEST_EMULATED).max(asked),
        false => asked,
    }
}

/// How long VMs may be waited for in all where each begins when the one before is ready: what a run of the plan may take beside its work.
pub fn longest_waits(model: &Model, inventory: &Inventory) -> Duration {
    let vms = model.guests.values().filter(|guest| guest.kind == GuestKind::Vm);
    let seconds = vms.map(|vm| u64::from(ready_within(&inventory.cpus, vm.vm.ready_within)));
    Duration::from_secs(seconds.sum())
}

/// How a guest is waited for; `None` for one that is ready as soon as it runs.
fn wait_for(
    inventory: &Inventory,
    nics: &[WantedNic<'_>],
    name: &GuestName,
    guest: &Guest,
    in_any_case: bool,
) -> Option<Wait> {
    if guest.kind == GuestKind::Vm {
        let reason = match guest.vm.inside {
            Inside::Agent => format!("{name} is ready when its agent answers"),
            Inside::Console => format!("{name} is ready when it says so on its console"),
            Inside::None => {
                format!("nobody can look into {name}: that it runs is all that can be waited for")
            }
        };
        let within = ready_within(&inventory.cpus, guest.vm.ready_within);
        return Some(Wait { within, best_effort: false, reason, in_any_case });
    }
    let own = |nic: &&WantedNic<'_>| nic.owner.is_some_and(|(owner, _)| owner == name);
    let pfs: Vec<&WantedNic<'_>> = nics.iter().filter(own).collect();
    let wait = (!pfs.is_empty()).then(|| link_inside(name, &pfs, in_any_case));
    if !inventory.guests.get(name).is_some_and(|found| found.running && found.unfinished) {
        return wait;
    }
    // What it lacks it is given while it is waited for.
    Some(Wait {
        within: FINISHED_WITHIN,
        best_effort: wait.is_some_and(|wait| wait.best_effort),
        reason: format!("whoever started {name}, or was stopping it, died before that was done"),
        in_any_case: true,
    })
}

/// How a container is waited for that has these PFs.
fn link_inside(name: &GuestName, pfs: &[&WantedNic<'_>], in_any_case: bool) -> Wait {
    let names: Vec<&str> = pfs.iter().map(|nic| nic.name.as_str()).collect();
    let links = if names.len() == 1 { "has its link" } else { "have their links" };
    Wait {
        within: LINK_WITHIN,
        best_effort: pfs.iter().all(|nic| nic.nic.best_effort.contains(LINK)),
        reason: format!("{name} is ready when {} {links} inside it", names.join(" and ")),
        in_any_case,
    }
}

#[cfg(test)]
mod tests {
    use penstock_model::{Source, inventory::FoundGuest, parse};

    use super::*;

    #[test]
    fn a_vm_has_longer_where_the_processor_is_emulated_but_not_for_ever() {
        let of = |model: &str| Cpus { model: model.to_owned(), ..Cpus::default() };
        let (real, emulated) = (of("Intel(R) Xeon(R) D-1541"), of("QEMU TCG CPU version 2.5+"));
        for (asked, here, there) in [(1, 1, 5), (120, 120, 600), (300, 300, 600), (3600, 3600, 3600)] {
            assert_eq!((ready_within(&real, asked), ready_within(&emulated, asked)), (here, there));
        }
    }

    /// A container without a PF is ready as soon as it runs, unless whoever started it did not live to finish that.
    #[test]
    fn a_container_whose_start_was_not_finished_is_waited_for() {
        let text = "machine: m\nnics: {NET0: {vfs: 1}}\nguests:\n  a: {functions: [NET0#0]}\n";
        let model = parse(&Source::new("m.yaml", text)).unwrap().model;
        let (name, guest) = model.guests.first().unwrap();
        let mut inventory = Inventory::default();
        let found = FoundGuest { running: true, not_awaited: true, ..FoundGuest::default() };
        inventory.guests.insert(name.clone(), found.clone());
        assert!(wait_for(&inventory, &[], name, guest, true).is_none());
        inventory.guests.insert(name.clone(), FoundGuest { unfinished: true, ..found });
        let wait = wait_for(&inventory, &[], name, guest, false).unwrap();
        assert!(wait.in_any_case && !wait.best_effort);
        assert_eq!(wait.reason, "whoever started a, or was stopping it, died before that was done");
        assert_eq!(wait.within, FINISHED_WITHIN);
    }

    #[test]
    fn vms_are_waited_for_longer_on_an_emulated_processor_and_containers_are_not_counted() {
        let text = "machine: m\nnics: {NET0: {vfs: 3}}\nguests:\n  a: {functions: [NET0#0]}\n  b: {kind: vm, ready_within: 30, functions: [NET0#1]}\n  \
                    c: {kind: vm, ready_within: 200, functions: [NET0#2]}\n";
        let model = parse(&Source::new("m.yaml", text)).unwrap().model;
        let mut inventory = Inventory::default();
        assert_eq!(longest_waits(&model, &inventory), Duration::from_secs(30 + 200));
        inventory.cpus.model = "QEMU TCG CPU version 2.5+".to_owned();
        assert_eq!(longest_waits(&model, &inventory), Duration::from_secs(5 * 30 + 600));
    }
}
