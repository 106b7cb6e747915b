//! NICs whose VFs somebody else makes: what has to be there before guests get them. Nothing of such a NIC is changed.

use penstock_model::{Mac, Path, text::counted};

use crate::{
    drivers,
    error::error,
    guest::Starting,
    planner::{Planner, vf_name},
    wanted::{WantedNic, WantedVf},
};

/// Says so when there are fewer VFs than the model uses: nobody here makes them.
pub fn vfs_are_there(planner: &mut Planner<'_>, nic: &WantedNic<'_>) {
    let Some(sriov) = nic.sriov() else { return };
    let (name, pf, wanted) = (nic.name, nic.pf.bdf, nic.nic.vfs);
    if nic.vfs.iter().all(|vf| vf.found.present.is_some()) && sriov.num_vfs >= wanted {
        return;
    }
    planner.messages.0.push(error(
        Path::of(["nics", name.as_str(), "vfs"]),
        format!(
            "{name} is to have {}, and {pf} has {}; it is externally managed, so that penstock makes none",
            counted(usize::from(wanted), "VF"),
            sriov.num_vfs
        ),
        Some(format!(
            "have whoever manages it make {wanted} (at the end, somebody writes that to /sys/bus/pci/devices/{pf}/sriov_numvfs); or remove `externally_managed`"
        )),
    ));
}

/// Says what stands in the way of guests that are to start with such VFs.
pub fn usable(planner: &mut Planner<'_>, starting: &[Starting<'_, '_>]) {
    for guest in starting.iter().filter(|guest| !guest.suspended) {
        for (nic, vf, function) in guest.vfs().filter(|(nic, ..)| nic.nic.externally_managed) {
            up(planner, nic);
            free(planner, nic, vf, guest);
            let Some(wanted) = function.settings.mac else { continue };
            if let Some(seen) = seen_mac(nic, vf).filter(|seen| *seen != wanted) {
                let position = guest.guest.functions.iter().position(|other| other.name == function.name);
                let path = Path::of(["guests", guest.name.as_str(), "functions"]);
                planner.messages.0.push(error(
                    path.join(position.unwrap_or_default()).join("mac"),
                    format!(
                        "{} has the MAC {seen}, not {wanted}; {} is externally managed, so that penstock does not set it",
                        vf_name(nic.name, vf.index),
                        nic.name
                    ),
                    Some("have whoever manages the NIC set it, or leave `mac` out".to_owned()),
                ));
            }
        }
    }
}

/// A VF that needs no other driver and that somebody has all the same: no step would show it before the guest starts.
fn free(planner: &mut Planner<'_>, nic: &WantedNic<'_>, vf: &WantedVf<'_>, guest: &Starting<'_, '_>) {
    let Some(present) = nic.present(vf) else { return };
    let away = !guest.is_vm() && drivers::has_interface_elsewhere(nic.pf, present);
    let lifelines = planner.inventory.lifelines.as_ref();
    let holders = lifelines.and_then(|found| found.holders.get(&vf.found.bdf)).filter(|_| guest.is_vm());
    let who = match holders {
        Some(holders) => holders.join(", "),
        None if away && planner.user(vf.found.bdf).is_none() => {
            "another network namespace, it seems (its interface is not here)".to_owned()
        }
        None => return,
    };
    if planner.user(vf.found.bdf).is_none() {
        let what = vf_name(nic.name, vf.index);
        planner.refuse(
            format!("{what} is to go to {}, and is in use by {who}", guest.name),
            format!("stop who uses it, or give {} another VF", guest.name),
        );
    }
}

/// A PF that is down keeps its VFs without a link, and some VF drivers from binding.
fn up(planner: &mut Planner<'_>, nic: &WantedNic<'_>) {
    if planner.user(nic.pf.bdf).is_some() {
        return;
    }
    let (name, pf) = (nic.name, nic.pf.bdf);
    match &nic.pf.interface {
        Some(found) if found.up => {}
        Some(found) => planner.lack(
            format!("{name}'s interface {} is down, and its VFs need it up; it is externally managed, so that penstock leaves it down", found.name),
            format!("have whoever manages it bring it up: ip link set {} up", found.name),
        ),
        None => planner.lack(
            format!("{name} is {pf}, which has no network interface here, and its VFs need that up"),
            "have whoever manages it bring its interface back".to_owned(),
        ),
    }
}

/// Whether the interface of a VF that somebody else made has another MAC than its PF gave it since: a bound driver sees that
/// only when it is bound anew, and the PF may drop what it sends until then.
pub fn is_stale(nic: &WantedNic<'_>, vf: &WantedVf<'_>) -> bool {
    let own = nic.present(vf).and_then(|present| present.interface.as_ref()).map(|interface| interface.mac);
    let given = vf.found.given_mac().filter(|_| nic.nic.externally_managed);
    given.zip(own).is_some_and(|(given, own)| given != own)
}

/// The MAC that a VF has, as far as it will keep it in a guest.
fn seen_mac(nic: &WantedNic<'_>, vf: &WantedVf<'_>) -> Option<Mac> {
    let own = || {
        let present = nic.present(vf)?;
        let network = nic.driver.map(|driver| driver.vf_driver);
        let stays = present.driver.as_deref() == network;
        present.interface.as_ref().filter(|_| stays).map(|interface| interface.mac)
    };
    vf.found.given_mac().or_else(own)
}
