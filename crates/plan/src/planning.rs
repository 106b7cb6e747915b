//! The plans that there are: all of a model, the start and the stop of guests, and the way back.

use std::collections::{BTreeSet, HashSet};

use penstock_model::{Guest, GuestName, Inventory, Mac, Model, VfAttribute};

use crate::{
    Action, Fact, FunctionAction, GuestAction, Plan, PlanError, Step, StepId, count, drive, eswitch,
    external, files, free, guest, managers, nic, order, planner::Planner, realtime, stop::stop_steps, vfs,
    waits::Waits,
};

/// What to do where a PF has another number of VFs than its guests need.
const MAKE_FIRST: &str = "make them first: penstock apply";

/// Plans all that it takes to make the machine of `inventory` what `model` says: each NIC's VFs and PF interface, the
/// attributes of every VF, then the guests, each after those that it needs. What is already so gives no step.
///
/// # Errors
///
/// [`PlanError`]; nothing is decided later.
pub fn plan(model: &Model, inventory: &Inventory) -> Result<Plan, PlanError> {
    let (mut planner, nics) = Planner::new(model, inventory)?;
    realtime::begin(&mut planner);
    realtime::before_all(&mut planner);
    realtime::share_out(&mut planner);
    nics.iter().for_each(|nic| managers::tell(&mut planner, nic, |_| true));
    nics.iter().for_each(|nic| nic::nic_steps(&mut planner, nic));
    nics.iter().for_each(|nic| vfs::attribute_steps(&mut planner, nic, |_| true));
    let drives = drive::wanted(model, inventory, &planner.drives);
    drives.iter().for_each(|drive| drive::drive_steps(&mut planner, drive));
    files::file_steps(&mut planner)?;
    let mut waits = guest::guest_steps(&mut planner, &nics, &drives, in_starting_order(model));
    nics.iter().for_each(|nic| free::driver_steps(&mut planner, &mut waits, nic));
    realtime::after_all(&mut planner);
    strangers(&mut planner);
    planner.finish()
}

/// Plans what [`plan`] has for nobody's sake: NICs, VFs, drives, and what real time asks of the machine as a whole. For the start of a
/// machine, whose guests are planned for later, so that what stands against one of them stands in the way of guests alone. The same
/// is so of real time and of guests' files: where these cannot be planned they are left out, and a note says why.
///
/// # Errors
///
/// [`PlanError`] when the NICs and drives alone cannot be as the model says.
pub fn plan_without_guests(model: &Model, inventory: &Inventory) -> Result<Plan, PlanError> {
    before_guests(model, inventory, true).or_else(|why| {
        let mut bare = before_guests(model, inventory, false)?;
        bare.notes.push(format!("real time and guests' files are left for later: {}", why.in_one_line()));
        Ok(bare)
    })
}

/// `all`: with real time and guests' files.
fn before_guests(model: &Model, inventory: &Inventory, all: bool) -> Result<Plan, PlanError> {
    let (mut planner, nics) = Planner::new(model, inventory)?;
    if all {
        realtime::begin(&mut planner);
        realtime::before_all(&mut planner);
    }
    nics.iter().for_each(|nic| managers::tell(&mut planner, nic, |_| true));
    nics.iter().for_each(|nic| nic::nic_steps(&mut planner, nic));
    nics.iter().for_each(|nic| vfs::attribute_steps(&mut planner, nic, |_| true));
    let drives = drive::wanted(model, inventory, &planner.drives);
    drives.iter().for_each(|drive| drive::drive_steps(&mut planner, drive));
    if all {
        files::file_steps(&mut planner)?;
    }
    let mut waits = Waits::for_nobody();
    nics.iter().for_each(|nic| free::driver_steps(&mut planner, &mut waits, nic));
    realtime::throttle(&mut planner);
    planner.finish()
}

/// The model's guests in the order in which they start.
fn in_starting_order(model: &Model) -> impl Iterator<Item = (&GuestName, &Guest)> {
    order::start_order(model).into_iter().filter_map(|index| model.guests.get_index(index))
}

/// Plans the start of the `chosen` guests, and of those that they need by `after`; of all when none is chosen. The
/// machine must have its VFs already, as [`plan`] makes them.
///
/// # Errors
///
/// [`PlanError`]; a NIC without its VFs is refused with the advice to apply the model.
pub fn start(model: &Model, inventory: &Inventory, chosen: &[GuestName]) -> Result<Plan, PlanError> {
    known(model, chosen)?;
    let (mut planner, nics) = Planner::new(model, inventory)?;
    // Guests that run in real time need all that the machine does for it.
    realtime::begin(&mut planner);
    realtime::before_all(&mut planner);
    realtime::share_out(&mut planner);
    let starting = order::with_needed(model, chosen);
    let starts = |name: Option<&GuestName>| name.is_some_and(|name| starting.contains(name));
    for nic in &nics {
        let used = starts(nic.owner.map(|(name, _)| name)) || nic.vfs.iter().any(|vf| starts(vf.owner));
        if !used {
            continue;
        }
        managers::tell(&mut planner, nic, |guest| starting.contains(guest));
        if nic.nic.externally_managed {
            external::vfs_are_there(&mut planner, nic);
            continue;
        }
        if let Some((other, hint)) = eswitch::is_other(nic) {
            planner.refuse(other, hint);
            continue;
        }
        if nic.remakes() {
            planner.refuse(count::is_other(nic.name, nic.sriov(), nic.nic.vfs), MAKE_FIRST.to_owned());
            continue;
        }
        nic::interface_steps(&mut planner, nic);
        vfs::attribute_steps(&mut planner, nic, |vf| starts(vf.owner));
    }
    let drives = drive::wanted(model, inventory, &planner.drives);
    for drive in drives.iter().filter(|drive| drive.vfs.iter().any(|vf| starting.contains(vf.guest))) {
        match drive.remakes() {
            true => planner.refuse(
                count::is_other(drive.name, drive.found.sriov.as_ref(), drive.drive.vfs),
                MAKE_FIRST.to_owned(),
            ),
            false => drive::controller_steps(&mut planner, drive, |guest| starting.contains(guest)),
        }
    }
    let chosen = in_starting_order(model).filter(|(name, _)| starting.contains(*name));
    guest::guest_steps(&mut planner, &nics, &drives, chosen);
    realtime::after_all(&mut planner);
    planner.finish()
}

/// Plans the stop of the `chosen` guests, and of those that need them by `after`; of all when none is chosen. Every VF
/// is given back without a driver and reset; the NICs stay as they are.
///
/// # Errors
///
/// [`PlanError`] when the model does not fit the machine or does not have a guest.
pub fn stop(model: &Model, inventory: &Inventory, chosen: &[GuestName]) -> Result<Plan, PlanError> {
    known(model, chosen)?;
    let (mut planner, nics) = Planner::new(model, inventory)?;
    let drives = drive::wanted(model, inventory, &planner.drives);
    let stopping = order::with_dependents(model, chosen);
    for (name, guest) in
        order::start_order(model).into_iter().rev().filter_map(|index| model.guests.get_index(index))
    {
        if !stopping.contains(name) {
            continue;
        }
        if !chosen.is_empty() && !chosen.contains(name) && planner.runs(name) {
            planner.note(format!("{name} stops too: it needs a guest that is to stop"));
        }
        let dependents: Vec<&GuestName> = model
            .guests
            .iter()
            .filter(|(_, other)| other.after.contains(name))
            .map(|(other, _)| other)
            .collect();
        stop_steps(&mut planner, (&nics, &drives), name, guest, &dependents);
    }
    planner.finish()
}

fn known(model: &Model, chosen: &[GuestName]) -> Result<(), PlanError> {
    match chosen.iter().find(|name| !model.guests.contains_key(*name)) {
        None => Ok(()),
        Some(guest) => Err(PlanError::NoSuchGuest {
            guest: guest.clone(),
            known: model.guests.keys().cloned().collect(),
        }),
    }
}

/// Says which guests are here that the model does not have.
fn strangers(planner: &mut Planner<'_>) {
    let names: Vec<&GuestName> =
        planner.inventory.guests.keys().filter(|name| !planner.model.guests.contains_key(*name)).collect();
    for name in names {
        planner.note(format!("guest {name} is defined here but not in the model; it is left alone"));
    }
}

/// The way back from all of `plan`: the inverses of its steps, last first. A step without an inverse is passed over.
pub fn undo(plan: &Plan) -> Plan {
    let position = |id: StepId| plan.steps.iter().position(|step| step.id == id);
    // In a finished plan ids are positions, so that the search above is for damaged ones only.
    let place = |id: StepId| {
        let guess = (id.0 as usize).wrapping_sub(1);
        if plan.steps.get(guess).is_some_and(|step| step.id == id) { Some(guess) } else { position(id) }
    };
    let mut needed_by: Vec<Vec<usize>> = vec![Vec::new(); plan.steps.len()];
    for (at, step) in plan.steps.iter().enumerate() {
        step.needs.iter().filter_map(|need| place(*need)).for_each(|need| needed_by[need].push(at));
    }
    // For each step: what must be taken back before what it needed is; its own inverse, or those of its dependents.
    let mut before: Vec<BTreeSet<StepId>> = vec![BTreeSet::new(); plan.steps.len()];
    let mut steps: Vec<Step> = Vec::new();
    for (at, step) in plan.steps.iter().enumerate().rev() {
        let needs: BTreeSet<StepId> =
            needed_by[at].iter().flat_map(|dependent| before[*dependent].iter().copied()).collect();
        let Some(action) = step.inverse.clone() else {
            before[at] = needs;
            continue;
        };
        let id = StepId(u32::try_from(steps.len() + 1).unwrap_or(u32::MAX));
        before[at] = BTreeSet::from([id]);
        steps.push(Step {
            id,
            postcondition: Fact::after(&action),
            // An embedded switch whose mode was best effort and came to nothing is in the mode before; one that was changed has to come back.
            best_effort: (step.best_effort && !action.sets_eswitch_mode()) || clears_mac(&action),
            action,
            reason: format!("takes back step {}: {}", step.id, step.reason),
            needs: needs.into_iter().collect(),
            inverse: Some(step.action.clone()),
            guest: step.guest.clone(),
        });
    }
    let mut notes = Vec::new();
    let kept: HashSet<StepId> =
        plan.steps.iter().filter(|step| step.inverse.is_none()).map(|step| step.id).collect();
    if !kept.is_empty() {
        notes.push(format!("{} of {} steps need no way back or have none", kept.len(), plan.steps.len()));
    }
    for step in &steps {
        if let (
            Action::Guest(GuestAction::CreateGuest { guest }),
            Some(Action::Guest(GuestAction::StopGuest { .. })),
        ) = (&step.action, &step.inverse)
        {
            notes.push(format!(
                "{guest} is there again, suspended: penstock start {guest} lets it run once all is proven"
            ));
        }
    }
    Plan { nics: plan.nics.clone(), drives: plan.drives.clone(), steps, notes }
}

/// Whether an action takes a VF's administrative MAC away again, which some drivers refuse.
fn clears_mac(action: &Action) -> bool {
    matches!(action, Action::Function(FunctionAction::SetVfAttribute { attribute: VfAttribute::Mac(mac), .. }) if *mac == Mac::new([0; 6]))
}
