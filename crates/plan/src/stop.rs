//! The steps that stop guests and give their functions back.

use penstock_model::{Bdf, Guest, GuestKind, GuestName, Mac, NicName, VfIndex};

use crate::{
    FunctionAction, GuestAction,
    definition::define,
    draft::{Effect, StepSpec},
    drive::{self, WantedDrive},
    guest::place,
    managers, nic,
    planner::{Planner, vf_name},
    realtime, uplink, vfs,
    wanted::WantedNic,
};

/// Stops a guest, resets every VF that it had, and removes its definition. A PF's interface comes back to the host and
/// is brought up, as its VFs need it. `dependents` stop before.
pub fn stop_steps(
    planner: &mut Planner<'_>,
    (nics, drives): (&[WantedNic<'_>], &[WantedDrive<'_>]),
    name: &GuestName,
    guest: &Guest,
    dependents: &[&GuestName],
) {
    let Some(found) = planner.inventory.guests.get(name) else {
        planner.note(format!("guest {name} is not defined here"));
        return;
    };
    planner.draft.on_behalf_of(Some(name));
    if found.running {
        // On the way back a VM is there again, suspended: the next start lets it run when its waits are over.
        let inverse = match guest.kind {
            GuestKind::Container => GuestAction::StartGuest { guest: name.clone() }.into(),
            GuestKind::Vm => GuestAction::CreateGuest { guest: name.clone() }.into(),
        };
        let mut needs: Vec<Effect> =
            dependents.iter().map(|dependent| Effect::Running((*dependent).clone())).collect();
        // A PF's VFs are given back before the PF, so that on the way back they find it up again.
        let pfs = nics.iter().filter(|nic| found.functions.contains(&nic.pf.bdf));
        let vfs = pfs.flat_map(|nic| &nic.vfs).map(|vf| vf.found.bdf);
        needs.extend(vfs.map(Effect::Driver));
        planner.draft.push(StepSpec::new(
            GuestAction::StopGuest { guest: name.clone() }.into(),
            Some(inverse),
            needs,
            Effect::Running(name.clone()),
            format!("{name} is to stop"),
        ));
    } else {
        planner.note(format!("guest {name} does not run; what it left is taken away"));
    }
    let own: Vec<NicName> = found.nics.iter().cloned().collect();
    for nic in &own {
        let (guest, nic) = (name.clone(), nic.clone());
        let taps = found.taps.contains(&nic);
        let (action, inverse) = match taps {
            false => (
                GuestAction::StopSwitch { guest: guest.clone(), nic: nic.clone() }.into(),
                GuestAction::StartSwitch { guest, nic: nic.clone() }.into(),
            ),
            true => (
                GuestAction::RemoveTaps { guest: guest.clone(), nic: nic.clone() }.into(),
                GuestAction::MakeTaps { guest, nic: nic.clone() }.into(),
            ),
        };
        planner.draft.push(StepSpec::new(
            action,
            Some(inverse),
            vec![Effect::Running(name.clone())],
            Effect::BackEnd(name.clone(), nic),
            format!("nobody but {name} uses {}", if taps { "them" } else { "it" }),
        ));
    }
    realtime::remove_group(planner, name);
    let of_drives = drive::owned(drives, guest);
    let is_drive = |bdf: Bdf| of_drives.iter().any(|(_, vf)| vf.found.bdf == bdf);
    let mut returned = owned(planner, nics, guest, found.running.then_some(&found.functions[..]));
    returned.retain(|owned| !is_drive(owned.bdf));
    leave_in_use(planner, nics, name, &mut returned);
    for function in &returned {
        give_back(planner, nics, name, function);
    }
    // What another guest runs with is that one's.
    let theirs =
        of_drives.iter().filter(|(_, vf)| planner.user(vf.found.bdf).is_none_or(|user| user == name));
    let to_give: Vec<_> = theirs.copied().collect();
    for (drive, vf) in to_give {
        let driver = drive.driver(vf).map(|driver| (driver.to_owned(), None));
        come_back(planner, vf.guest, vf.found.bdf, &vf_name(drive.name, vf.index), driver);
    }
    // While they have no driver nobody can take them, and when they have one again everybody may.
    let addresses = returned.iter().map(|owned| owned.bdf).chain(uplink::addresses(planner, guest)).collect();
    managers::take_back(planner, nics, &addresses, name);
    for function in &returned {
        bind_home(planner, nics, name, function);
    }
    let functions: Vec<_> =
        guest.functions.iter().filter_map(|function| place(planner, nics, &function.name)).collect();
    let addresses = of_drives.iter().map(|(_, vf)| vf.found.bdf).collect();
    let definition = define(planner, name, guest, &functions, addresses);
    let mut needs = vec![Effect::Running(name.clone())];
    needs.extend(own.into_iter().map(|nic| Effect::BackEnd(name.clone(), nic)));
    planner.draft.push(StepSpec::new(
        GuestAction::UndefineGuest { guest: name.clone() }.into(),
        Some(GuestAction::DefineGuest(definition).into()),
        needs,
        Effect::Defined(name.clone()),
        format!("{name} is to leave nothing behind"),
    ));
    planner.draft.on_behalf_of(None);
}

/// A function that a guest has or had.
struct Owned {
    bdf: Bdf,
    /// Index into the NICs; `None` for a function that is on no NIC of the model.
    nic: Option<usize>,
    vf: Option<VfIndex>,
    /// The driver that it will have when the guest has stopped.
    driver: Option<String>,
}

/// What a running guest has; for one that does not run, those of its VFs that no other guest runs with.
fn owned(
    planner: &Planner<'_>,
    nics: &[WantedNic<'_>],
    guest: &Guest,
    running: Option<&[Bdf]>,
) -> Vec<Owned> {
    let of_model = guest.functions.iter().filter_map(|function| place(planner, nics, &function.name));
    let of_model = of_model.map(|(nic, vf)| vf.map_or(nic.pf.bdf, |vf| vf.found.bdf));
    let addresses: Vec<Bdf> = match running {
        Some(functions) => functions.to_vec(),
        None => of_model.filter(|bdf| planner.user(*bdf).is_none()).collect(),
    };
    addresses
        .into_iter()
        .filter_map(|bdf| {
            let found = nics.iter().enumerate().find_map(|(index, nic)| {
                if nic.pf.bdf == bdf {
                    return Some((index, None, nic.pf.driver.clone()));
                }
                // Addresses of VFs are sorted by index, but nothing here may rely on it: a device decides.
                let vf = nic.sriov()?.vfs.iter().find(|vf| vf.bdf == bdf)?;
                Some((index, Some(vf.index), vf.present.as_ref()?.driver.clone()))
            });
            match found {
                Some((nic, vf, driver)) => Some(Owned { bdf, nic: Some(nic), vf, driver }),
                // A running guest has it although no NIC of the model does: it is given back all the same.
                None if running.is_some() => Some(Owned { bdf, nic: None, vf: None, driver: None }),
                None => None,
            }
        })
        .collect()
}

/// What the host uses since the guest ended by itself is the host's: it is left as it is.
fn leave_in_use(
    planner: &mut Planner<'_>,
    nics: &[WantedNic<'_>],
    name: &GuestName,
    returned: &mut Vec<Owned>,
) {
    let in_use = planner.inventory.guests.get(name).map(|found| found.in_use.clone()).unwrap_or_default();
    for left in returned.extract_if(.., |owned| in_use.contains(&owned.bdf)) {
        let who = match (left.nic.map(|index| nics[index].name), left.vf) {
            (Some(nic), Some(vf)) => vf_name(nic, vf),
            (Some(nic), None) => nic.to_string(),
            (None, _) => left.bdf.to_string(),
        };
        planner.note(format!("{who} is in use on this host since {name} ended, and stays as it is"));
    }
}

fn give_back(planner: &mut Planner<'_>, nics: &[WantedNic<'_>], name: &GuestName, owned: &Owned) {
    let function = owned.bdf;
    let Some(nic) = owned.nic.map(|index| &nics[index]) else {
        planner.note(format!("{function} comes back from {name} as it is: it is on no NIC of the model"));
        return;
    };
    let Some(index) = owned.vf else {
        if planner.user(function) == Some(name) {
            nic::back_up(planner, nic, name);
        }
        return;
    };
    let driver = owned.driver.as_ref().map(|driver| (driver.clone(), given(nic, index, driver)));
    come_back(planner, name, function, &vf_name(nic.name, index), driver);
}

/// A VF comes back from its guest, which has stopped: without the driver that it has, if any, and reset. On the way back that
/// driver has it again, with this address for its interface.
fn come_back(
    planner: &mut Planner<'_>,
    guest: &GuestName,
    function: Bdf,
    who: &str,
    driver: Option<(String, Option<Mac>)>,
) {
    let needs = || vec![Effect::Running(guest.clone()), Effect::Driver(function)];
    if let Some((driver, mac)) = driver {
        planner.draft.push(StepSpec::new(
            FunctionAction::SetDriver { function, driver: None, mac: None }.into(),
            Some(FunctionAction::SetDriver { function, driver: Some(driver), mac }.into()),
            needs(),
            Effect::Driver(function),
            format!("{who} comes back from {guest}; a function is reset without a driver"),
        ));
    }
    planner.draft.push(StepSpec::new(
        FunctionAction::ResetFunction { function }.into(),
        None,
        needs(),
        Effect::Driver(function),
        format!("nothing of {guest} is to reach the next owner of {who}"),
    ));
}

/// The address that a VF's driver learns from the PF when it is bound again.
fn given(nic: &WantedNic<'_>, index: VfIndex, driver: &str) -> Option<Mac> {
    vfs::given(nic, nic.vfs.get(usize::from(index.get()))?, driver)
}

/// Gives a VF that somebody else made the driver back that it had.
fn bind_home(planner: &mut Planner<'_>, nics: &[WantedNic<'_>], name: &GuestName, owned: &Owned) {
    let function = owned.bdf;
    let (Some(nic), Some(index)) = (owned.nic.map(|index| &nics[index]), owned.vf) else { return };
    let who = vf_name(nic.name, index);
    let home = planner.inventory.guests.get(name).and_then(|found| found.home_drivers.get(&function));
    if let Some(driver) = home.filter(|_| nic.nic.externally_managed) {
        planner.draft.push(StepSpec::new(
            FunctionAction::SetDriver {
                function,
                driver: Some(driver.clone()),
                mac: given(nic, index, driver),
            }
            .into(),
            Some(FunctionAction::SetDriver { function, driver: None, mac: None }.into()),
            vec![Effect::Running(name.clone()), Effect::Driver(function)],
            Effect::Driver(function),
            format!("{who} had it before {name}; {} is externally managed", nic.name),
        ));
    }
}
