//! What the controllers of a drive's VFs get of its queues and interrupts.

use penstock_model::{
    VfIndex,
    inventory::{FlexibleResources, NvmeVirtualization, SecondaryController},
    text::counted,
};

use super::{Seat, WantedDrive, WantedDriveVf};
use crate::{
    ControllerResources,
    action::io_queues,
    definition::vcpus,
    planner::{Planner, vf_name},
};

impl WantedDrive<'_> {
    /// What the controller of a VF has once the VFs are those that are wanted: one that goes off line loses all.
    pub fn had(&self, controller: &SecondaryController) -> ControllerResources {
        match self.remakes() {
            true => ControllerResources::NONE,
            false => ControllerResources::of(controller),
        }
    }
}

/// How the queues or the interrupts of a drive are shared out.
struct Pot {
    /// For all VFs that guests own.
    free: u32,
    /// For each of these, when all get the same.
    equal: u16,
}

impl Pot {
    /// `owned` VFs have `free` together, and `rest` of them what the others leave of it, who have `taken`.
    fn new(of: FlexibleResources, held: u32, owned: u32, taken: u32, rest: u32) -> Pot {
        let free = of.total.saturating_sub(u32::from(of.held_by_pf)).saturating_sub(held);
        let equal = (free / owned.max(1)).min(free.saturating_sub(taken) / rest.max(1));
        Pot { free, equal: u16::try_from(equal).unwrap_or(u16::MAX).min(of.most) }
    }
}

/// What each VF that a guest owns gets of the drive's queues and interrupts; `None` where there is not enough, which is said. A VF that
/// is not changed counts with what it has.
pub fn shares(
    planner: &mut Planner<'_>,
    drive: &WantedDrive<'_>,
    virtualization: &NvmeVirtualization,
    seat: impl Fn(&Planner<'_>, &WantedDriveVf<'_>) -> Seat,
) -> Option<Vec<ControllerResources>> {
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let is_owned = |index: VfIndex| drive.vfs.iter().any(|vf| vf.index == index);
    let others = virtualization.secondary.iter().filter(|other| !is_owned(other.vf));
    let (held, held_interrupts) = others.fold((0, 0), |(queues, interrupts), other| {
        (queues + u32::from(other.queues), interrupts + u32::from(other.interrupts))
    });
    // Those that keep what they have: as far as the model says nothing else, or for as long as somebody runs with them.
    let kept = |planner: &Planner<'_>, vf: &WantedDriveVf<'_>| {
        let had = drive.had(virtualization.of_vf(vf.index)?);
        let queues =
            vf.wanted.queues.map_or(had.queues >= 2, |wanted| had.queues == wanted.saturating_add(1));
        let suffices = queues && had.interrupts >= 1;
        (suffices || seat(planner, vf) == Seat::Taken).then_some(had)
    };
    let kept: Vec<Option<ControllerResources>> = drive.vfs.iter().map(|vf| kept(planner, vf)).collect();
    let (mut taken, mut taken_interrupts, mut open) = (0, 0, 0);
    for (vf, kept) in drive.vfs.iter().zip(&kept) {
        match (kept, vf.wanted.queues) {
            (Some(kept), _) => {
                taken += u32::from(kept.queues);
                taken_interrupts += u32::from(kept.interrupts);
            }
            (None, Some(pairs)) => taken += u32::from(pairs) + 1,
            (None, None) => open += 1,
        }
    }
    let owned = count(drive.vfs.len());
    let changed = count(kept.iter().filter(|kept| kept.is_none()).count());
    let queues = Pot::new(virtualization.queues, held, owned, taken, open);
    let interrupts = Pot::new(virtualization.interrupts, held_interrupts, owned, taken_interrupts, changed);
    let mut all = Vec::new();
    let (mut sum, mut sum_of_interrupts) = (0_u32, 0_u32);
    for (vf, kept) in drive.vfs.iter().zip(kept) {
        let share = match kept {
            Some(kept) => kept,
            None => share(planner, drive, vf, (virtualization.queues.most, &queues, &interrupts))?,
        };
        let had = virtualization.of_vf(vf.index).map(|had| drive.had(had));
        // What is not asked for now stays with it, and what it lacks is to be left for it.
        let counted = match seat(planner, vf) {
            Seat::Left => had.map_or(share, |had| had.most(share)),
            Seat::Taken | Seat::Changed => share,
        };
        sum += u32::from(counted.queues);
        let least = if kept.is_some() { 0 } else { 1 };
        sum_of_interrupts += u32::from(counted.interrupts).max(least);
        all.push(share);
    }
    let sums = [("pairs of queues", sum, queues.free), ("interrupts", sum_of_interrupts, interrupts.free)];
    for (what, sum, free) in sums {
        if sum > free {
            planner.lack(
                format!(
                    "the VFs of {} that guests own need {sum} {what}, counted with those for administration, and the drive has {free} for them",
                    drive.name,
                ),
                "lower `queues`, or give fewer VFs to guests; `penstock scan` says what its PF and other VFs hold".to_owned(),
            );
            return None;
        }
    }
    Some(all)
}

/// What a VF gets that has not what it is to have; `None` where no VF can have so much, which is said.
fn share(
    planner: &mut Planner<'_>,
    drive: &WantedDrive<'_>,
    vf: &WantedDriveVf<'_>,
    (most, queues, interrupts): (u16, &Pot, &Pot),
) -> Option<ControllerResources> {
    let cpus = planner.model.guests.get(vf.guest).map_or(1, vcpus);
    let cpus = u16::try_from(cpus).unwrap_or(u16::MAX);
    let equally = || queues.equal.saturating_sub(1).clamp(1, cpus.max(1));
    let pairs = vf.wanted.queues.unwrap_or_else(equally);
    let queues = pairs.saturating_add(1);
    let share = ControllerResources { queues, interrupts: interrupts.equal.min(queues) };
    let who = vf_name(drive.name, vf.index);
    if share.queues > most {
        planner.lack(
            format!(
                "{who} is to have {}, and {} gives a VF at most {}",
                io_queues(pairs),
                drive.name,
                most.saturating_sub(1)
            ),
            "lower `queues`".to_owned(),
        );
        return None;
    }
    if share.interrupts < share.queues {
        planner.note(format!(
            "{who} has {} for its {} and those for administration, which share",
            counted(usize::from(share.interrupts), "interrupt"),
            io_queues(pairs)
        ));
    }
    Some(share)
}
