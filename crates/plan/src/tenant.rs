//! What changes of the NICs of a VM that is there: their switches keep most attributes, and take others at any time.

use penstock_model::{
    Guest, GuestName, NicName, TenantNic, VfAttribute, VfIndex, inventory::VfState, text::counted,
};

use crate::{
    Action,
    draft::{Effect, StepSpec},
    planner::Planner,
    vfs::reported,
};

/// Sets what the model asks for and the switches of a VM that is there have otherwise. As of a host's VFs, what the model leaves out is
/// left as it is.
pub fn live(planner: &mut Planner<'_>, name: &GuestName, guest: &Guest) {
    planner.draft.on_behalf_of(Some(name));
    for (nic, own) in &guest.nics {
        let found = planner.inventory.guests.get(name).and_then(|found| found.ports.get(nic));
        match found.cloned() {
            Some(ports) => of_nic(planner, name, nic, own, &ports),
            None => planner.note(format!(
                "the embedded switch of {name}/{nic} does not tell what is set for its VFs, which are left as they are"
            )),
        }
    }
    planner.draft.on_behalf_of(None);
}

fn of_nic(planner: &mut Planner<'_>, name: &GuestName, nic: &NicName, own: &TenantNic, ports: &[VfState]) {
    if ports.len() != own.vfs.len() {
        planner.note(format!(
            "{name} runs with {} of {nic}, and the model gives it {}: that comes with its next stop and start",
            counted(ports.len(), "VF"),
            own.vfs.len()
        ));
    }
    for ((vf, _, settings), state) in
        own.functions().filter_map(|(vf, mac, settings)| Some((vf?, mac, settings))).zip(ports)
    {
        let missing = |attribute: &VfAttribute| reported(state, attribute) != Some(*attribute);
        for attribute in settings.attributes().into_iter().filter(missing) {
            set(planner, (name, nic, vf), state, attribute);
        }
    }
}

fn set(
    planner: &mut Planner<'_>,
    (guest, nic, vf): (&GuestName, &NicName, VfIndex),
    state: &VfState,
    attribute: VfAttribute,
) {
    if let VfAttribute::Mac(_) | VfAttribute::LinkState(_) = attribute {
        planner.note(format!(
            "{guest}/{nic}#{vf} is left as it is while {guest} is there; still to set: {attribute}, which comes with its next stop and start"
        ));
        return;
    }
    let of = |attribute| Action::SetPortAttribute { guest: guest.clone(), nic: nic.clone(), vf, attribute };
    planner.draft.push(StepSpec::new(
        of(attribute),
        reported(state, &attribute).map(of),
        vec![],
        Effect::Switch(guest.clone(), nic.clone()),
        format!("{guest} is there, and its embedded switch takes it at once"),
    ));
}
