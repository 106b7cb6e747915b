//! Which namespaces the VFs of a drive get, and what stands against them: two who write to one destroy its data.

use std::collections::HashSet;

use penstock_model::inventory::{NvmeVirtualization, SecondaryController};

use super::{Seat, WantedDrive, WantedDriveVf, taker};
use crate::planner::{Planner, vf_name};

/// Namespaces to attach to a VF's controller (`true`) or to detach from it.
pub type NamespaceChanges = Vec<(u32, bool)>;

/// The namespaces of a drive and its VFs; `seat` says what the plan does with a VF that a guest owns.
pub struct Namespaces<'n, 'a, S> {
    pub drive: &'n WantedDrive<'a>,
    pub virtualization: &'n NvmeVirtualization,
    pub seat: S,
}

impl<S: Fn(&Planner<'_>, &WantedDriveVf<'_>) -> Seat> Namespaces<'_, '_, S> {
    /// What is to change for a VF. What stands against its namespaces is said.
    pub fn changes(
        &self,
        planner: &mut Planner<'_>,
        vf: &WantedDriveVf<'_>,
        before: &SecondaryController,
    ) -> NamespaceChanges {
        let name = self.drive.name;
        let who = vf_name(name, vf.index);
        let attached = |namespace: u32| {
            let found = self.virtualization.namespaces.get(&namespace);
            found.is_some_and(|found| found.controllers.contains(&before.controller))
        };
        let all = self.virtualization.namespaces.keys().copied();
        let has: Vec<u32> = all.filter(|namespace| attached(*namespace)).collect();
        let wanted = &vf.wanted.namespaces;
        for namespace in wanted.iter().filter(|wanted| !self.virtualization.namespaces.contains_key(wanted)) {
            let there: Vec<String> = self.virtualization.namespaces.keys().map(u32::to_string).collect();
            planner.lack(
                format!("{who} is to have namespace {namespace} of {name}, which does not exist"),
                match there.is_empty() {
                    true => "make it first: nvme create-ns; Penstock makes and deletes none".to_owned(),
                    false => format!(
                        "there are {}; nvme create-ns makes more: Penstock makes and deletes none",
                        there.join(", ")
                    ),
                },
            );
        }
        let gets: Vec<u32> = if wanted.is_empty() { has.clone() } else { wanted.iter().copied().collect() };
        for namespace in gets {
            self.check(planner, vf, &who, namespace, before);
        }
        if wanted.is_empty() {
            match has[..] {
                [] => planner.note(format!(
                    "{who} has no namespace, and {} sees no disk behind it: `namespaces` gives it some",
                    vf.guest
                )),
                _ => planner.note(format!("{who} has what is attached to it: {}", namespaces(&has))),
            }
            return Vec::new();
        }
        let missing =
            wanted.iter().copied().filter(|wanted| !has.contains(wanted)).map(|namespace| (namespace, true));
        let other =
            has.iter().copied().filter(|has| !wanted.contains(has)).map(|namespace| (namespace, false));
        let changes: NamespaceChanges = other.chain(missing).collect();
        if !changes.is_empty() && !self.virtualization.attaches_namespaces {
            planner.lack(
                format!("{name} cannot attach namespaces to a controller or detach them, which {who} needs"),
                format!(
                    "leave `namespaces` out: {who} then has {}",
                    if has.is_empty() { "none".to_owned() } else { namespaces(&has) }
                ),
            );
            return Vec::new();
        }
        changes
    }

    /// Refuses a namespace that somebody else writes to.
    fn check(
        &self,
        planner: &mut Planner<'_>,
        vf: &WantedDriveVf<'_>,
        who: &str,
        namespace: u32,
        own: &SecondaryController,
    ) {
        let Some(found) = self.virtualization.namespaces.get(&namespace) else { return };
        let name = self.drive.name;
        let device = found.device.as_deref().map(|device| format!(" ({device})")).unwrap_or_default();
        if let Some(used) = &found.used {
            planner.refuse(
                format!(
                    "{who} would give namespace {namespace} of {name}{device} to {}, and this host uses it: {used}. Two who write to one disk destroy its data",
                    vf.guest
                ),
                "give the guest a namespace that nothing uses, by `namespaces`".to_owned(),
            );
        } else if device.len() > 1 && found.controllers.contains(&self.virtualization.controller) {
            planner.note(format!(
                "this host sees namespace {namespace} of {name}{device} as well, which {} gets: whoever mounts it here destroys the guest's data",
                vf.guest
            ));
        }
        let elsewhere: HashSet<u16> =
            found.controllers.iter().copied().filter(|controller| *controller != own.controller).collect();
        if !found.shared && !elsewhere.is_empty() && !found.controllers.contains(&own.controller) {
            let controllers: Vec<String> = elsewhere.iter().map(u16::to_string).collect();
            planner.refuse(
                format!(
                    "namespace {namespace} of {name} is private, and attached to the controller {}: {who} cannot have it too",
                    controllers.join(", ")
                ),
                self.detaching(namespace, &controllers.join(",")),
            );
            return;
        }
        // A VF that is left as it is gets nothing.
        if (self.seat)(planner, vf) == Seat::Taken && !found.controllers.contains(&own.controller) {
            return;
        }
        let others = self.virtualization.secondary.iter().filter(|other| other.controller != own.controller);
        for other in others.filter(|other| found.controllers.contains(&other.controller)) {
            self.conflict(planner, vf, who, namespace, other);
        }
    }

    /// Refuses a namespace that the controller of `other`, another VF, has as well and keeps.
    fn conflict(
        &self,
        planner: &mut Planner<'_>,
        vf: &WantedDriveVf<'_>,
        who: &str,
        namespace: u32,
        other: &SecondaryController,
    ) {
        let drive = self.drive;
        let owned = drive.vfs.iter().find(|owned| owned.index == other.vf);
        // One that says which it has is freed of all others, if anything is done to it.
        let freed = |owned: &WantedDriveVf<'_>| {
            let listed = &owned.wanted.namespaces;
            !listed.is_empty() && !listed.contains(&namespace)
        };
        if let Some(owned) = owned.filter(|owned| (self.seat)(planner, owned) == Seat::Changed) {
            // Of two that keep what they have one is told of; one that says which it has is told of itself.
            let told_of_the_other = vf.wanted.namespaces.is_empty()
                && (!owned.wanted.namespaces.is_empty() || owned.index > vf.index);
            if freed(owned) || told_of_the_other {
                return;
            }
        }
        let there = drive.found.sriov.as_ref().and_then(|sriov| sriov.vf(other.vf)).map(|vf| vf.bdf);
        let taker = there.and_then(|there| taker(planner, there, drive.remakes()));
        let running = there.and_then(|there| planner.user(there));
        let (of, way_round) = match (owned, taker, running) {
            (_, _, Some(guest)) => (
                format!(", with which guest {guest} runs"),
                format!("stop it first: penstock stop MODEL {guest}"),
            ),
            (_, Some(taker), None) => (
                format!(", in use by {taker}"),
                format!("stop who uses it, or give {} another namespace", vf.guest),
            ),
            (Some(owned), None, None) if freed(owned) => (
                format!(", which {} owns", owned.guest),
                "have it detached there first: penstock apply".to_owned(),
            ),
            (Some(owned), None, None) => (
                format!(", which {} owns", owned.guest),
                "say which each of them has, by `namespaces`".to_owned(),
            ),
            (None, None, None) => (
                ", which no guest of the model owns".to_owned(),
                self.detaching(namespace, &other.controller.to_string()),
            ),
        };
        planner.refuse(
            format!(
                "namespace {namespace} of {} is attached to {}{of}, and {who} is to have it for {}: two who write to one disk destroy its data",
                drive.name,
                vf_name(drive.name, other.vf),
                vf.guest
            ),
            way_round,
        );
    }

    fn detaching(&self, namespace: u32, controllers: &str) -> String {
        let device = self.drive.found.name.as_deref().unwrap_or("nvmeN");
        format!(
            "detach it there first, when nothing uses it: nvme detach-ns /dev/{device} -n {namespace} -c {controllers}"
        )
    }
}

/// `namespace 2`, `namespaces 2, 3`.
fn namespaces(all: &[u32]) -> String {
    let texts: Vec<String> = all.iter().map(u32::to_string).collect();
    format!("{} {}", if all.len() == 1 { "namespace" } else { "namespaces" }, texts.join(", "))
}
