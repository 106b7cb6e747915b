//! The steps of a NIC as a whole: autoprobe, the mode of its embedded switch, the number of VFs, the PF's interface, loopback.

use penstock_model::{
    Bdf, Mtu, Nic, NicMatch, NicName, Path,
    inventory::{Ability, Capability, Interface, SwitchMode},
};

use crate::{
    Action, Direction, FunctionAction,
    count::{self, WantedVfCount},
    draft::{Effect, StepSpec},
    error::error,
    eswitch, external,
    nics::lasting_match,
    planner::Planner,
    resolve::room,
    wanted::WantedNic,
};

/// All steps of a NIC but its VFs' attributes.
pub fn nic_steps(planner: &mut Planner<'_>, nic: &WantedNic<'_>) {
    if nic.nic.externally_managed {
        return external::vfs_are_there(planner, nic);
    }
    eswitch::judge(planner, nic);
    eswitch::loopback_before(planner, nic);
    eswitch::without_sriov(planner, nic);
    if nic.driver.is_some_and(|driver| driver.up_before_vfs) {
        interface_steps(planner, nic);
        vf_count(planner, nic);
    } else {
        vf_count(planner, nic);
        interface_steps(planner, nic);
    }
    switch_mode(planner, nic);
}

fn vf_count(planner: &mut Planner<'_>, nic: &WantedNic<'_>) {
    let Some(sriov) = nic.sriov() else { return };
    count::set(
        planner,
        WantedVfCount {
            name: nic.name.as_str(),
            pf: nic.pf.bdf,
            sriov,
            wanted: nic.nic.vfs,
            before_drivers: "its attributes are set",
            eswitch: nic.eswitch_change(),
        },
    );
}

/// The steps of a NIC's PF interface: name, MTU, MAC, up, addresses.
pub fn interface_steps(planner: &mut Planner<'_>, nic: &WantedNic<'_>) {
    let (name, pf) = (nic.name, nic.pf.bdf);
    if planner.user(pf).is_some() {
        return;
    }
    let Some(found) = &nic.pf.interface else {
        let driver = nic.pf.driver.as_deref().unwrap_or("none");
        planner.messages.0.push(error(
            Path::of(["nics", name.as_str(), "match"]),
            format!("{name} is {pf} with driver {driver}, which has no network interface here"),
            Some("bind its network driver, or bring its interface back from where it was moved".to_owned()),
        ));
        return;
    };
    let mut up = found.up;
    let best_effort = |word: &str| nic.nic.best_effort.contains(word);
    if let Some(wanted) = nic.nic.interface.as_ref().filter(|wanted| **wanted != found.name) {
        if !may_rename(planner, nic, found) {
            return;
        }
        if up {
            take_down(planner, pf, "an interface is renamed while it is down");
            up = false;
        }
        step(
            planner,
            pf,
            FunctionAction::Rename { function: pf, to: wanted.clone() }.into(),
            Some(FunctionAction::Rename { function: pf, to: found.name.clone() }.into()),
            format!("{name}'s interface {} is to be called {wanted}", found.name),
            best_effort("interface"),
        );
    }
    if let Some(mtu) = nic.nic.mtu.filter(|mtu| mtu.get() != found.mtu) {
        step(
            planner,
            pf,
            FunctionAction::SetMtu { function: pf, mtu }.into(),
            Mtu::new(found.mtu).map(|mtu| FunctionAction::SetMtu { function: pf, mtu }.into()),
            format!("{name}'s MTU is to be {mtu}"),
            best_effort("mtu"),
        );
    }
    if let Some((guest, function)) = nic.owner
        && let Some(mac) = function.settings.mac.filter(|mac| *mac != found.mac)
    {
        step(
            planner,
            pf,
            FunctionAction::SetMac { function: pf, mac }.into(),
            Some(FunctionAction::SetMac { function: pf, mac: found.mac }.into()),
            format!("{guest} owns {name} with this MAC"),
            function.best_effort.contains("mac"),
        );
    }
    if !up {
        bring_up(planner, pf, format!("{name} carries its VFs only while it is up"));
    }
    for address in nic.nic.addresses.iter().filter(|address| !found.addresses.contains(address)) {
        step(
            planner,
            pf,
            FunctionAction::AddAddress { function: pf, address: *address }.into(),
            Some(FunctionAction::RemoveAddress { function: pf, address: *address }.into()),
            format!("{name} is to have it on the host"),
            best_effort("addresses"),
        );
    }
}

/// Whether the name that is wanted is free, and no guest that runs would lose its link.
fn may_rename(planner: &mut Planner<'_>, nic: &WantedNic<'_>, found: &Interface) -> bool {
    let name = nic.name;
    let Some(wanted) = &nic.nic.interface else {
        return true;
    };
    let holder = planner.inventory.pfs.iter().find_map(|other| {
        let own = other.interface.as_ref().filter(|own| own.name == *wanted).map(|_| other.bdf);
        let of_vf = || {
            other.sriov.iter().flat_map(|sriov| &sriov.vfs).find_map(|vf| {
                let interface = vf.present.as_ref()?.interface.as_ref()?;
                (interface.name == *wanted).then_some(vf.bdf)
            })
        };
        own.or_else(of_vf)
    });
    if let Some(holder) = holder {
        let message = format!("{name}'s interface cannot be called {wanted}: that of {holder} is");
        let (message, hint) = match selected_by_name(planner, nic, holder) {
            Some(exact) => (
                format!(
                    "{message}, and {name} is {} ({}), since no exact `match` says otherwise",
                    nic.pf.bdf, found.name
                ),
                format!(
                    "`interface` gives a name and selects no PF: write `{exact}` if {holder} is meant, or choose another name"
                ),
            ),
            None => (message, "choose another name, or rename that one first".to_owned()),
        };
        let path = Path::of(["nics", name.as_str(), "interface"]);
        planner.messages.0.push(error(path, message, Some(hint)));
        return false;
    }
    let mut free = true;
    let guests: Vec<_> = nic.vfs.iter().filter_map(|vf| planner.user(vf.found.bdf)).collect();
    for guest in guests.into_iter().filter(|_| found.up) {
        free = false;
        planner.refuse(
            format!(
                "{name}'s interface would be taken down to call it {wanted} while guest {guest} runs with its VFs"
            ),
            format!("stop it first: penstock stop MODEL {guest}"),
        );
    }
    free
}

/// What to write for a NIC that was given a PF for want of an exact `match`, if the PF `holder`, which has the name that the NIC's
/// interface is to get, may be the one that is meant: it fits, and no other NIC names it. Other tools select by the name.
fn selected_by_name(planner: &Planner<'_>, nic: &WantedNic<'_>, holder: Bdf) -> Option<String> {
    let pf = planner.inventory.pf(holder)?;
    let named = |(name, other): (&NicName, &Nic)| {
        other.matching.is_exact() && planner.resolved.get(name) == Some(&holder)
    };
    let fits = nic.nic.matching.holds_for(pf, false) && nic.nic.vfs <= room(pf);
    if nic.nic.matching.is_exact() || !fits || planner.model.nics.iter().any(named) {
        return None;
    }
    let NicMatch { mac, bdf, .. } = lasting_match(pf, planner.inventory);
    let parts = [mac.map(|mac| format!("mac: \"{mac}\"")), bdf.map(|bdf| format!("bdf: \"{bdf}\""))];
    Some(format!("match: {{{}}}", parts.into_iter().flatten().collect::<Vec<_>>().join(", ")))
}

/// Takes a PF's interface down.
fn take_down(planner: &mut Planner<'_>, pf: Bdf, why: &str) {
    step(
        planner,
        pf,
        FunctionAction::SetLink { function: pf, direction: Direction::Down }.into(),
        Some(FunctionAction::SetLink { function: pf, direction: Direction::Up }.into()),
        why.to_owned(),
        false,
    );
}

/// Takes a PF's interface down that goes into a guest, so that it is up again after it has come back.
pub fn release(planner: &mut Planner<'_>, nic: &WantedNic<'_>, guest: &str) {
    let pf = nic.pf.bdf;
    // All that is set through the PF comes before it leaves, and on the way back after it has come back.
    let mut needs = vec![Effect::Vfs(pf), Effect::Interface(pf)];
    needs.extend(
        nic.vfs.iter().flat_map(|vf| [Effect::Attributes(vf.found.bdf), Effect::Driver(vf.found.bdf)]),
    );
    planner.draft.push(StepSpec::new(
        FunctionAction::SetLink { function: pf, direction: Direction::Down }.into(),
        Some(FunctionAction::SetLink { function: pf, direction: Direction::Up }.into()),
        needs,
        Effect::Interface(pf),
        format!("{}'s interface goes into {guest}, and Linux takes it down on the way", nic.name),
    ));
}

/// Brings a PF's interface up.
pub fn bring_up(planner: &mut Planner<'_>, pf: Bdf, why: String) {
    step(
        planner,
        pf,
        FunctionAction::SetLink { function: pf, direction: Direction::Up }.into(),
        Some(FunctionAction::SetLink { function: pf, direction: Direction::Down }.into()),
        why,
        false,
    );
}

fn switch_mode(planner: &mut Planner<'_>, nic: &WantedNic<'_>) {
    let (name, pf) = (nic.name, nic.pf.bdf);
    let Some(loopback) = nic.nic.loopback else { return };
    if planner.user(pf).is_some() {
        return;
    }
    let mode = if loopback { SwitchMode::Veb } else { SwitchMode::Vepa };
    let set = if loopback { "on" } else { "off" };
    let driver = nic.pf.driver.as_deref().unwrap_or("none");
    let inverse = match nic.pf.switch_mode {
        present if present == mode && !nic.remakes() => return,
        // What it has in legacy mode nobody knows yet.
        SwitchMode::Switchdev if nic.eswitch_change().is_some() => None,
        SwitchMode::Switchdev => {
            planner.note(format!(
                "{name} is in switchdev mode: the host's forwarding rules decide on loopback, which is not set"
            ));
            return;
        }
        // Some drivers report a mode only while there are VFs.
        SwitchMode::Unreported if nic.nic.vfs > 0 && sets_switch_mode(planner, nic) => None,
        SwitchMode::Unreported => {
            planner.note(format!(
                "driver {driver} has no VEB/VEPA knob: loopback of {name} is left as it has it"
            ));
            return;
        }
        present => Some(FunctionAction::SetSwitchMode { pf, mode: present }.into()),
    };
    planner.draft.push(
        StepSpec::new(
            FunctionAction::SetSwitchMode { pf, mode }.into(),
            inverse,
            vec![Effect::Vfs(pf), Effect::Interface(pf)],
            Effect::Interface(pf),
            format!("loopback of {name} is to be {set}"),
        )
        .best_effort(nic.nic.best_effort.contains("loopback")),
    );
}

/// Whether the driver sets the embedded switch's mode: as it was seen to, or else as it is known to be written.
fn sets_switch_mode(planner: &Planner<'_>, nic: &WantedNic<'_>) -> bool {
    let known = planner.inventory.capabilities.get(&nic.pf.bdf);
    match known.and_then(|known| known.trials.get(&Capability::Loopback)).map(|trial| trial.ability) {
        Some(Ability::Accepted | Ability::Kept) => true,
        Some(Ability::Ignored | Ability::Unsupported) => false,
        None | Some(Ability::Untold) => nic.driver.is_some_and(|driver| driver.sets_switch_mode),
    }
}

/// A step of a PF's interface. They follow on each other; what the VFs' number does to the interface comes first.
fn step(
    planner: &mut Planner<'_>,
    pf: Bdf,
    action: Action,
    inverse: Option<Action>,
    reason: String,
    best_effort: bool,
) {
    let needs = vec![Effect::Vfs(pf), Effect::Interface(pf)];
    let sketch = StepSpec::new(action, inverse, needs, Effect::Interface(pf), reason);
    planner.draft.push(sketch.best_effort(best_effort));
}

/// Brings a PF's interface up that came back from a guest.
pub fn back_up(planner: &mut Planner<'_>, nic: &WantedNic<'_>, guest: &penstock_model::GuestName) {
    let function = nic.pf.bdf;
    planner.draft.push(StepSpec::new(
        FunctionAction::SetLink { function, direction: Direction::Up }.into(),
        Some(FunctionAction::SetLink { function, direction: Direction::Down }.into()),
        vec![Effect::Running(guest.clone())],
        Effect::Interface(function),
        format!("{}'s interface comes back from {guest} down, and its VFs need it up", nic.name),
    ));
}
