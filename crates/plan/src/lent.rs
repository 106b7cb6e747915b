//! NICs whose PF a guest runs with. What the PF's driver keeps for their VFs is set through its interface, which is in that guest: it can be
//! looked at, and nobody sets it.

use penstock_model::{GuestName, VfAttribute, VfIndex};

use crate::{
    guest::Starting,
    planner::{Planner, vf_list, vf_name},
    unsupported::UnsupportedAttributes,
    vfs,
    wanted::{WantedNic, WantedVf},
};

/// Says what the VFs of a NIC lack whose PF is with `guest`, and of which of them nobody knows.
pub fn attributes<'v>(
    planner: &mut Planner<'_>,
    nic: &WantedNic<'_>,
    guest: &GuestName,
    vfs: impl Iterator<Item = &'v WantedVf<'v>>,
) {
    let mut unknown: Vec<VfIndex> = Vec::new();
    let mut lacking = UnsupportedAttributes::default();
    for vf in vfs {
        if planner.user(vf.found.bdf).is_some() {
            continue;
        }
        let Some(state) = nic.present(vf).and_then(|present| present.attributes.as_ref()) else {
            unknown.push(vf.index);
            continue;
        };
        let who = vf_name(nic.name, vf.index);
        let missing = vfs::missing(planner, nic, vf, Some(state), &mut lacking);
        if !missing.is_empty() {
            let texts: Vec<String> = missing.iter().map(VfAttribute::to_string).collect();
            planner.note(format!(
                "{who} is left as it is while guest {guest} runs with {}; still to set: {}",
                nic.name,
                texts.join(", ")
            ));
        }
    }
    lacking.tell(planner, nic);
    if !unknown.is_empty() {
        planner.note(format!(
            "{guest} runs with {}: attributes of {} are neither read nor set",
            nic.name,
            vf_list(nic.name, &unknown)
        ));
    }
}

/// Refuses to start guests with VFs of such NICs that are not as the model wants them.
pub fn usable(planner: &mut Planner<'_>, starting: &[Starting<'_, '_>]) {
    for guest in starting.iter().filter(|guest| !guest.suspended) {
        for (nic, vf, _) in guest.vfs().filter(|(nic, ..)| !nic.nic.externally_managed) {
            let Some(owner) = planner.user(nic.pf.bdf) else { continue };
            let Some(lacks) = lacks(planner, nic, vf, guest.is_vm()) else { continue };
            planner.refuse(
                format!(
                    "{} is to go to {}, and {lacks}; that is set through {}, which guest {owner} runs with",
                    vf_name(nic.name, vf.index),
                    guest.name,
                    nic.name
                ),
                format!("stop it first: penstock stop MODEL {owner}"),
            );
        }
    }
}

/// Whether the driver of a VF finds the address that the model wants when it is bound, although nobody can set that now: the PF keeps it, as
/// was seen, or the driver learns nothing of its PF.
pub fn has_its_address(nic: &WantedNic<'_>, vf: &WantedVf<'_>) -> bool {
    let kept = nic.present(vf).and_then(|present| present.attributes.as_ref()).map(|state| state.mac);
    vfs::address(nic, vf).is_none_or(|wanted| kept == Some(wanted))
}

/// What a VF lacks that it has to have before a guest gets it. Of a VM's that nobody has looked at nothing: VFIO shows no address, and a note
/// says so.
fn lacks(planner: &Planner<'_>, nic: &WantedNic<'_>, vf: &WantedVf<'_>, is_vm: bool) -> Option<String> {
    let present = nic.present(vf)?;
    let state = present.attributes.as_ref();
    let mut missing: Vec<String> = Vec::new();
    if state.is_some() && nic.driver.is_some_and(|driver| driver.sets_vf_attributes) {
        let wanted = vfs::missing(planner, nic, vf, state, &mut UnsupportedAttributes::default());
        let required = wanted.iter().filter(|attribute| !vf.may_fail(attribute));
        missing.extend(required.map(VfAttribute::to_string));
    }
    // A container gets the interface that is there, or that its driver makes with what the PF keeps.
    if let (Some(mac), false) = (vfs::address(nic, vf), is_vm) {
        match &present.interface {
            Some(interface) if interface.mac != mac => missing.push(format!("mac {mac} at its interface")),
            None if state.is_none() => return Some(format!("it is not known whether it has mac {mac}")),
            Some(_) | None => {}
        }
    }
    (!missing.is_empty()).then(|| format!("still lacks {}", missing.join(", ")))
}
