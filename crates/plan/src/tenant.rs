//! What changes of the NICs of a guest that is there: their switches keep most attributes, and take others at any time.

use penstock_model::{
    DataPath, FunctionName, Guest, GuestName, NicName, TenantNic, VfAttribute, VfIndex, inventory::VfState,
    text::counted,
};

use crate::{
    GuestAction,
    draft::{Effect, StepSpec},
    planner::Planner,
};

/// Sets what the model asks for and the switches of a guest that is there have otherwise. As of a host's VFs, what the model leaves out is
/// left as it is.
pub fn live(planner: &mut Planner<'_>, name: &GuestName, guest: &Guest) {
    planner.draft.on_behalf_of(Some(name));
    for (nic, own) in &guest.nics {
        let Some(found) = planner.inventory.guests.get(name) else { continue };
        let had = match own.is_of_container() {
            true => DataPath::VirtioVdpa,
            false if found.switch_taps.contains(nic) => DataPath::SwitchTap,
            false if found.taps.contains(nic) => DataPath::Tap,
            false if found.vdpa.contains(nic) => DataPath::VhostVdpa,
            false => DataPath::Switch,
        };
        // One that it runs without comes with its next start, as what it has instead goes with its next stop.
        if found.nics.contains(nic) && had != own.path {
            let words = |path| match path {
                DataPath::Tap => "taps",
                DataPath::Switch | DataPath::VirtioVdpa => "an embedded switch",
                DataPath::SwitchTap => "an igb at an embedded switch",
                DataPath::VhostVdpa => "vDPA devices",
            };
            planner.note(format!(
                "{name} runs with {} at {nic}, and the model gives it {}: that comes with its next stop and start",
                words(had),
                words(own.path)
            ));
            continue;
        }
        if own.path == DataPath::Tap {
            continue;
        }
        match found.ports.get(nic).cloned() {
            Some(ports) => of_nic(planner, name, nic, own, &ports),
            None if own.is_one_port() => planner.note(format!(
                "the embedded switch of {name}/{nic} does not tell what is set for it, which is left as it is"
            )),
            None => planner.note(format!(
                "the embedded switch of {name}/{nic} does not tell what is set for its VFs, which are left as they are"
            )),
        }
    }
    planner.draft.on_behalf_of(None);
}

fn of_nic(planner: &mut Planner<'_>, name: &GuestName, nic: &NicName, own: &TenantNic, ports: &[VfState]) {
    // It has no VFs for the switch, and one port.
    let one = own.is_one_port();
    if !one && ports.len() != own.vfs.len() {
        planner.note(format!(
            "{name} runs with {} of {nic}, and the model gives it {}: that comes with its next stop and start",
            counted(ports.len(), "VF"),
            own.vfs.len()
        ));
    }
    for ((vf, _, settings), state) in own.functions().filter(|(vf, ..)| one || vf.is_some()).zip(ports) {
        let missing = |attribute: &VfAttribute| state.attribute(attribute.kind()) != Some(*attribute);
        for attribute in settings.attributes().into_iter().filter(missing) {
            set(planner, (name, nic, vf), state, attribute);
        }
    }
}

fn set(
    planner: &mut Planner<'_>,
    (guest, nic, vf): (&GuestName, &NicName, Option<VfIndex>),
    state: &VfState,
    attribute: VfAttribute,
) {
    if let VfAttribute::Mac(_) | VfAttribute::LinkState(_) = attribute {
        planner.note(format!(
            "{guest}/{} is left as it is while {guest} is there; still to set: {attribute}, which comes with its next stop and start",
            FunctionName { nic: nic.clone(), vf }
        ));
        return;
    }
    let of = |attribute| {
        GuestAction::SetPortAttribute { guest: guest.clone(), nic: nic.clone(), vf, attribute }.into()
    };
    planner.draft.push(StepSpec::new(
        of(attribute),
        state.attribute(attribute.kind()).map(of),
        vec![],
        Effect::BackEnd(guest.clone(), nic.clone()),
        format!("{guest} is there, and its embedded switch takes it at once"),
    ));
}
