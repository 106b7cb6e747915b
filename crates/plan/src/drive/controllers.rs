//! The steps of the controllers of a drive's VFs.
//!
//! What one gets another may have, so that all give up what is not to stay with them before any is given something: queues and interrupts
//! of a controller that goes off line are free, and a namespace is detached before it is attached elsewhere. Each comes on line when all
//! have what they are to have, and so the way back has the same order. Each step knows what its controller has before it, and so the way back
//! may begin after any of them.

use penstock_model::{GuestName, inventory::SecondaryController};

use super::{
    DRIVER, Seat, WantedDrive, WantedDriveVf,
    namespaces::{NamespaceChanges, Namespaces},
    shares::shares,
    unbind,
};
use crate::{
    ControllerResources, DriveAction,
    draft::{Effect, StepSpec},
    planner::{Planner, vf_name},
};

/// What is done to all controllers of a drive before what comes next.
#[derive(Clone, Copy)]
enum Phase {
    GiveUp,
    Give,
    BringOnLine,
}

/// What is to be done to the controller of one VF.
struct ControllerChange<'n, 'a> {
    vf: &'n WantedDriveVf<'a>,
    who: String,
    online: bool,
    had: ControllerResources,
    share: ControllerResources,
    namespaces: NamespaceChanges,
}

/// The steps of the controllers of those VFs whose guests `chosen` picks.
pub fn controller_steps<'a>(
    planner: &mut Planner<'a>,
    drive: &WantedDrive<'a>,
    chosen: impl Fn(&GuestName) -> bool,
) {
    if drive.vfs.is_empty() {
        return;
    }
    let (name, bdf) = (drive.name, drive.found.bdf);
    if drive.found.driver.as_deref() != Some(DRIVER) {
        let driver = drive.found.driver.as_deref().unwrap_or("none");
        planner.lack(
            format!(
                "{name} ({bdf}) has the driver {driver}, and its VFs get what they need through {DRIVER}"
            ),
            format!("bind {DRIVER} to it: echo {bdf} > /sys/bus/pci/drivers/{DRIVER}/bind"),
        );
        return;
    }
    let Some(virtualization) = &drive.found.virtualization else {
        planner.refuse(
            format!("what {name} ({bdf}) has for its VFs is not known: the drive was not asked"),
            "plan as root, who alone may ask it; `penstock scan` says why it was not".to_owned(),
        );
        return;
    };
    let seat = |planner: &Planner<'_>, vf: &WantedDriveVf<'_>| match () {
        () if drive.taker(planner, vf).is_some() => Seat::Taken,
        () if chosen(vf.guest) => Seat::Changed,
        () => Seat::Left,
    };
    let Some(shares) = shares(planner, drive, virtualization, seat) else { return };
    let namespaces = Namespaces { drive, virtualization, seat: &seat };
    let mut changes = Vec::new();
    for (vf, share) in drive.vfs.iter().zip(shares).filter(|(vf, _)| chosen(vf.guest)) {
        let who = vf_name(name, vf.index);
        let Some(before) = virtualization.of_vf(vf.index) else {
            planner.lack(
                format!("{name} ({bdf}) does not say that its VF {} has a controller", vf.index),
                "give the guest another VF; `penstock scan` lists those that have one".to_owned(),
            );
            continue;
        };
        let namespaces = namespaces.changes(planner, vf, before);
        changes.extend(change(planner, drive, vf, who, before, share, namespaces));
    }
    changes.iter().for_each(|change| change.give_up(planner, drive));
    changes.iter().for_each(|change| change.give(planner, drive));
    changes.iter().for_each(|change| change.bring_on_line(planner, drive));
}

/// What is to be done to the controller of a VF; nothing while somebody has it.
fn change<'n, 'a>(
    planner: &mut Planner<'_>,
    drive: &WantedDrive<'a>,
    vf: &'n WantedDriveVf<'a>,
    who: String,
    before: &SecondaryController,
    share: ControllerResources,
    namespaces: NamespaceChanges,
) -> Option<ControllerChange<'n, 'a>> {
    let had = drive.had(before);
    // A VF that goes takes its controller off line.
    let online = before.online && !drive.remakes();
    if let Some(user) = planner.user(vf.found.bdf) {
        let queues = vf.wanted.queues.is_some_and(|wanted| had.queues != wanted.saturating_add(1));
        if !online || queues || !namespaces.is_empty() {
            planner.note(format!("{who} is left as it is while guest {user} runs with it; it has {}", had));
        }
        return None;
    }
    if let Some(taker) = drive.taker(planner, vf) {
        planner.refuse(
            format!("{who} is to go to {}, and is in use by {taker}", vf.guest),
            format!("stop who uses it, or give {} another VF", vf.guest),
        );
        return None;
    }
    Some(ControllerChange { vf, who, online, had, share, namespaces })
}

impl ControllerChange<'_, '_> {
    /// Nobody uses what changes, and what is not to stay is given up.
    fn give_up(&self, planner: &mut Planner<'_>, drive: &WantedDrive<'_>) {
        let Self { vf, who, had, share, .. } = self;
        let changed = had != share;
        if changed || !self.namespaces.is_empty() || !self.online {
            unbind(planner, drive, vf);
        }
        if self.online && changed {
            let why = format!("{who} gets other queues, which it can only off line");
            let line = |online, with| self.line(drive, online, with);
            self.push(
                planner,
                (drive, Phase::GiveUp),
                line(false, ControllerResources::NONE),
                line(true, *had),
                why,
            );
        }
        let least = had.least(*share);
        if !self.online && least != *had {
            let why = format!("{who} holds more than it is to have");
            self.push(
                planner,
                (drive, Phase::GiveUp),
                self.resources(drive, least),
                self.resources(drive, *had),
                why,
            );
        }
        for namespace in self.namespaces.iter().filter(|(_, attached)| !attached).map(|(it, _)| *it) {
            let why = format!("{who} is to have no namespaces but {}'s", vf.guest);
            let set = |attached| self.namespace(drive, namespace, attached);
            self.push(planner, (drive, Phase::GiveUp), set(false), set(true), why);
        }
    }

    /// It is given what it lacks.
    fn give(&self, planner: &mut Planner<'_>, drive: &WantedDrive<'_>) {
        let Self { vf, who, had, share, .. } = self;
        let has = match self.online {
            true if had != share => ControllerResources::NONE,
            true => *had,
            false => had.least(*share),
        };
        if has != *share {
            let why = format!("{who} belongs to {}", vf.guest);
            self.push(
                planner,
                (drive, Phase::Give),
                self.resources(drive, *share),
                self.resources(drive, has),
                why,
            );
        }
        for namespace in self.namespaces.iter().filter(|(_, attached)| *attached).map(|(it, _)| *it) {
            let why = format!("{} is to have namespace {namespace} behind {who}", vf.guest);
            let set = |attached| self.namespace(drive, namespace, attached);
            self.push(planner, (drive, Phase::Give), set(true), set(false), why);
        }
    }

    fn bring_on_line(&self, planner: &mut Planner<'_>, drive: &WantedDrive<'_>) {
        if !self.online || self.had != self.share {
            let why = format!("{} answers no driver before", self.who);
            self.push(
                planner,
                (drive, Phase::BringOnLine),
                self.line(drive, true, self.share),
                self.line(drive, false, self.share),
                why,
            );
        }
    }

    fn line(&self, drive: &WantedDrive<'_>, online: bool, with: ControllerResources) -> DriveAction {
        DriveAction::SetVfOnline { drive: drive.found.bdf, vf: self.vf.index, online, with: Some(with) }
    }

    fn resources(&self, drive: &WantedDrive<'_>, share: ControllerResources) -> DriveAction {
        let ControllerResources { queues, interrupts } = share;
        DriveAction::SetVfResources { drive: drive.found.bdf, vf: self.vf.index, queues, interrupts }
    }

    fn namespace(&self, drive: &WantedDrive<'_>, namespace: u32, attached: bool) -> DriveAction {
        DriveAction::AttachNamespace { drive: drive.found.bdf, vf: self.vf.index, namespace, attached }
    }

    fn push(
        &self,
        planner: &mut Planner<'_>,
        (drive, phase): (&WantedDrive<'_>, Phase),
        action: DriveAction,
        inverse: DriveAction,
        why: String,
    ) {
        let (pf, function) = (drive.found.bdf, self.vf.found.bdf);
        // One after the other for each; among them, whoever is given something needs all that was given up.
        let own = [Effect::Vfs(pf), Effect::Driver(function), Effect::Controller(function)];
        let (of_others, also): (&[Effect], _) = match phase {
            Phase::GiveUp => (&[], Some(Effect::GivenUp(pf))),
            Phase::Give => (&[Effect::GivenUp(pf)], Some(Effect::Given(pf))),
            Phase::BringOnLine => (&[Effect::GivenUp(pf), Effect::Given(pf)], None),
        };
        let needs = own.into_iter().chain(of_others.iter().cloned()).collect();
        let step =
            StepSpec::new(action.into(), Some(inverse.into()), needs, Effect::Controller(function), why);
        planner.draft.push(step.also(also));
    }
}
