//! Programs that configure network interfaces as they appear are told to leave those of guests alone.

use std::collections::BTreeSet;

use penstock_model::{Bdf, GuestName};

use crate::{
    FunctionAction,
    draft::{Effect, StepSpec},
    planner::Planner,
    wanted::WantedNic,
};

/// Tells each manager that runs here which functions of a NIC belong to guests that run or are to run, unless it knows and has
/// read it: before there are any of them.
pub fn tell(planner: &mut Planner<'_>, nic: &WantedNic<'_>, starts: impl Fn(&GuestName) -> bool) {
    let pf = nic.pf.bdf;
    let vfs = nic.vfs.iter().filter_map(|vf| Some((vf.found.bdf, vf.owner?)));
    let all = vfs.chain(nic.owner.map(|(guest, _)| (pf, guest)));
    let theirs = all.filter(|(_, guest)| starts(guest) || planner.runs(guest));
    let functions: BTreeSet<Bdf> = theirs.map(|(function, _)| function).collect();
    say(planner, nic, &functions);
}

/// Takes back what managers were told of functions that come back from `guest`: before they have a driver again.
pub fn take_back(
    planner: &mut Planner<'_>,
    nics: &[WantedNic<'_>],
    returned: &BTreeSet<Bdf>,
    guest: &GuestName,
) {
    for nic in nics {
        let pf = nic.pf.bdf;
        let left: Vec<BTreeSet<Bdf>> = planner
            .told
            .iter()
            .filter(|((_, at), functions)| *at == pf && !functions.is_disjoint(returned))
            .map(|(_, functions)| functions.difference(returned).copied().collect())
            .collect();
        // All managers were told the same.
        if let Some(left) = left.first() {
            planner.draft.on_behalf_of(Some(guest));
            say(planner, nic, left);
        }
    }
}

fn say(planner: &mut Planner<'_>, nic: &WantedNic<'_>, functions: &BTreeSet<Bdf>) {
    let pf = nic.pf.bdf;
    for manager in planner.inventory.managers.keys().copied() {
        let before = planner.told.get(&(manager, pf)).cloned().unwrap_or_default();
        let unread = planner.unread.remove(&(manager, pf));
        if before == *functions && !unread {
            continue;
        }
        let why = match functions.is_subset(&before) {
            true if before == *functions => {
                format!("an earlier run was stopped before {manager} had read what it wrote")
            }
            true => format!("functions of {} are no longer a guest's", nic.name),
            false => format!(
                "{manager} would configure functions of {} on the host that belong to guests, when they appear or come back",
                nic.name
            ),
        };
        let told = |functions: &BTreeSet<Bdf>| {
            FunctionAction::LeaveAlone { manager, pf, functions: functions.clone() }.into()
        };
        planner.told.insert((manager, pf), functions.clone());
        planner.draft.push(
            StepSpec::new(
                told(functions),
                Some(told(&before)),
                vec![Effect::LeftAlone(manager, pf)],
                Effect::LeftAlone(manager, pf),
                why,
            )
            .best_effort(true),
        );
    }
}
