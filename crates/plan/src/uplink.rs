//! VFs that the embedded switches of VMs' NICs lead to. They stay on the host: bound to the host's driver and up, before the switch
//! starts, which makes them promiscuous.

use penstock_model::{Bdf, FunctionName, Guest, GuestName};

use crate::{
    Direction, FunctionAction,
    draft::{Effect, StepSpec},
    drivers::VfPromiscuity,
    guest::{Starting, place, set_own_mac},
    overrides,
    planner::{Planner, vf_name},
    vfs,
    wanted::{WantedNic, WantedVf},
};

/// The VFs that are uplinks of a guest's NICs.
fn functions(guest: &Guest) -> impl Iterator<Item = &FunctionName> {
    guest.nics.values().filter_map(|own| own.uplink_vf()).map(|(function, _)| function)
}

/// Where the uplinks of a guest's NICs are, as far as they are VFs.
pub fn addresses(planner: &Planner<'_>, guest: &Guest) -> Vec<Bdf> {
    functions(guest).filter_map(|function| planner.address(function)).collect()
}

/// Makes the uplinks of a VM that is to be started ready for its switches.
pub fn prepare<'a>(planner: &mut Planner<'a>, nics: &[WantedNic<'a>], guest: &Starting<'_, 'a>) {
    for function in functions(guest.guest) {
        let Some((nic, Some(vf))) = place(planner, nics, function) else { continue };
        if !may_be_one(planner, nic, vf, guest.name) {
            continue;
        }
        bind(planner, nic, vf, guest.name);
        set_own_mac(planner, nic, vf, guest.name);
        let interface = planner.bound(nic, vf).and_then(|_| nic.present(vf)?.interface.as_ref());
        if !interface.is_some_and(|interface| interface.up) {
            bring_up(
                planner,
                vf,
                format!(
                    "{} carries frames of {} only while it is up",
                    vf_name(nic.name, vf.index),
                    guest.name
                ),
            );
        }
    }
}

/// Brings the uplinks of a VM that is there up again. One that has lost its interface is not the one that the switch is at.
pub fn live(planner: &mut Planner<'_>, nics: &[WantedNic<'_>], name: &GuestName, guest: &Guest) {
    planner.draft.on_behalf_of(Some(name));
    for function in functions(guest) {
        let Some((nic, Some(vf))) = place(planner, nics, function) else { continue };
        // Which is refused where the number of VFs changes.
        if nic.remakes() {
            continue;
        }
        match nic.present(vf).and_then(|present| present.interface.as_ref()) {
            Some(interface) if interface.up => {}
            Some(_) => bring_up(planner, vf, format!("{name} is there, and {function} is its uplink")),
            None => planner.refuse(
                format!("{name} runs, and its uplink {function} has no interface on the host any more"),
                format!("stop it first: penstock stop MODEL {name}"),
            ),
        }
    }
    planner.draft.on_behalf_of(None);
}

/// Whether the driver of a VF's PF lets it carry frames for other addresses than its own.
fn may_be_one(planner: &mut Planner<'_>, nic: &WantedNic<'_>, vf: &WantedVf<'_>, name: &GuestName) -> bool {
    let Some(driver) = nic.driver else { return false };
    let who = vf_name(nic.name, vf.index).to_string();
    let to_the_pf = format!("lead the uplink to the PF, `uplink: {}`", nic.name);
    if !driver.sets_vf_attributes {
        planner.lack(
            format!(
                "{who} is to be an uplink of {name}, and driver {} can set neither trust nor spoofchk for it",
                driver.name
            ),
            to_the_pf,
        );
        return false;
    }
    match driver.vf_promiscuity {
        VfPromiscuity::Lacking => {
            planner.lack(
                format!(
                    "{who} is to be an uplink of {name}, and its driver {} has no promiscuous mode: it would get frames for its own \
                     address alone",
                    driver.vf_driver
                ),
                to_the_pf,
            );
            return false;
        }
        VfPromiscuity::TrustAnd(what) => planner.note(format!(
            "{who} is an uplink of {name}: for frames to the addresses inside, driver {} also needs {what}; verify tells whether they come",
            driver.name
        )),
        VfPromiscuity::Trust => {}
    }
    true
}

/// Gives a VF the host's driver, unless it has it.
fn bind(planner: &mut Planner<'_>, nic: &WantedNic<'_>, vf: &WantedVf<'_>, name: &GuestName) {
    let Some(network) = nic.driver.map(|driver| driver.vf_driver) else { return };
    let present = planner.bound(nic, vf).map(str::to_owned);
    if present.as_deref() == Some(network) || !overrides::allow(planner, nic, vf, network, Some(name)) {
        return;
    }
    let who = vf_name(nic.name, vf.index);
    if let Some(other) = &present {
        vfs::unbind(
            planner,
            nic,
            vf,
            other,
            format!("{who} is an uplink of {name}, which the host needs an interface for"),
        );
    }
    vfs::bind(planner, nic, vf, network, format!("{who} is an uplink of {name}, and stays on the host"));
}

fn bring_up(planner: &mut Planner<'_>, vf: &WantedVf<'_>, why: String) {
    let function = vf.found.bdf;
    planner.draft.push(StepSpec::new(
        FunctionAction::SetLink { function, direction: Direction::Up }.into(),
        Some(FunctionAction::SetLink { function, direction: Direction::Down }.into()),
        vec![Effect::Driver(function), Effect::Attributes(function), Effect::Interface(function)],
        Effect::Interface(function),
        why,
    ));
}
