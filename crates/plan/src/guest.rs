//! The steps that start guests.

use std::collections::HashSet;

use penstock_model::{Bdf, Function, Guest, GuestName, Root};

use crate::{
    Action,
    action::{GuestDefinition, GuestFunction},
    draft::{Made, Sketch},
    nic,
    planner::{Planner, vf_name},
    vfs,
    wanted::{WantedNic, WantedVf},
};

/// Where a function of the model is on this machine.
pub fn place<'n, 'a>(
    planner: &Planner<'_>,
    nics: &'n [WantedNic<'a>],
    function: &Function,
) -> Option<(&'n WantedNic<'a>, Option<&'n WantedVf<'a>>)> {
    let nic = &nics[planner.model.nics.get_index_of(&function.name.nic)?];
    match function.name.vf {
        None => Some((nic, None)),
        Some(index) => Some((nic, Some(nic.vfs.get(usize::from(index.get()))?))),
    }
}

/// Everything from the drivers of a guest's functions to its start.
pub fn guest_steps<'a>(
    planner: &mut Planner<'a>,
    nics: &[WantedNic<'a>],
    name: &'a GuestName,
    guest: &'a Guest,
) {
    let functions: Vec<_> =
        guest.functions.iter().filter_map(|function| place(planner, nics, function)).collect();
    let addresses: Vec<Bdf> =
        functions.iter().map(|(nic, vf)| vf.map_or(nic.pf.bdf, |vf| vf.found.bdf)).collect();
    if planner.runs(name) {
        running(planner, name, &addresses);
        return;
    }
    let mut free = true;
    for ((_, bdf), function) in functions.iter().zip(&addresses).zip(&guest.functions) {
        if let Some(user) = planner.user(*bdf) {
            free = false;
            planner.refuse(
                format!("{} is to go to {name}, but guest {user} runs with it", function.name),
                format!("stop it first: penstock stop {user}"),
            );
        }
    }
    if !free {
        return;
    }
    for ((nic, vf), function) in functions.iter().zip(&guest.functions) {
        if let Some(vf) = vf {
            bind(planner, nic, vf, name, function);
        }
    }
    let definition = define(name, guest, &addresses);
    let known = planner.inventory.guests.contains_key(name);
    let functions_text = list(guest);
    planner.draft.push(Sketch::new(
        Action::DefineGuest(definition),
        (!known).then(|| Action::UndefineGuest { guest: name.clone() }),
        vec![Made::Defined(name.clone())],
        Made::Defined(name.clone()),
        format!("{name} owns {functions_text}"),
    ));
    for (nic, _) in functions.iter().filter(|(_, vf)| vf.is_none()) {
        if let Some(found) = &nic.pf.interface {
            nic::release(planner, nic, found, name.as_str());
        }
        disturbed(planner, nic, name);
    }
    start(planner, name, guest, &functions, &addresses);
}

/// A guest that runs is left alone, if it runs with what the model gives it.
fn running(planner: &mut Planner<'_>, name: &GuestName, wanted: &[Bdf]) {
    let found =
        planner.inventory.guests.get(name).map(|found| found.functions.as_slice()).unwrap_or_default();
    let set = |functions: &[Bdf]| functions.iter().copied().collect::<HashSet<_>>();
    if set(found) == set(wanted) {
        planner.note(format!("guest {name} runs already and is left alone"));
    } else {
        let texts = |functions: &[Bdf]| match functions {
            [] => "none".to_owned(),
            some => some.iter().map(Bdf::to_string).collect::<Vec<_>>().join(", "),
        };
        planner.refuse(
            format!("guest {name} runs with {}, but the model gives it {}", texts(found), texts(wanted)),
            format!("stop it first: penstock stop {name}"),
        );
    }
}

/// Moving a PF's interface takes the links of its VFs down for a moment; whoever runs with them should know.
fn disturbed(planner: &mut Planner<'_>, nic: &WantedNic<'_>, name: &GuestName) {
    let mut users: Vec<&GuestName> = nic.vfs.iter().filter_map(|vf| planner.user(vf.found.bdf)).collect();
    users.sort();
    users.dedup();
    for user in users {
        planner.note(format!(
            "starting {name} moves {}'s interface, which resets the VFs that guest {user} runs with",
            nic.name
        ));
    }
}

fn bind(
    planner: &mut Planner<'_>,
    nic: &WantedNic<'_>,
    vf: &WantedVf<'_>,
    name: &GuestName,
    function: &Function,
) {
    let Some(driver) = nic.driver else { return };
    let who = vf_name(nic.name, vf.index);
    let present = planner.bound(nic, vf).map(str::to_owned);
    let mut interface = None;
    if present.as_deref() == Some(driver.vf_driver) {
        interface = nic.present(vf).and_then(|present| present.interface.as_ref());
    } else {
        if let Some(other) = &present {
            let why = format!("{name} uses {who} through {}, not {other}", driver.vf_driver);
            vfs::unbind(planner, nic, vf, other, why);
        }
        let why = format!("{name} gets {who} as its {}", function.interface);
        vfs::bind(planner, nic, vf, driver.vf_driver, why);
    }
    if driver.sets_vf_attributes {
        return;
    }
    let Some(mac) = vf.settings.mac else {
        planner.note(format!("the MAC of {} is not known, so that of {who} is left as it is", nic.name));
        return;
    };
    if interface.is_some_and(|interface| interface.mac == mac) {
        return;
    }
    let bdf = vf.found.bdf;
    planner.draft.push(
        Sketch::new(
            Action::SetMac { function: bdf, mac },
            interface.map(|interface| Action::SetMac { function: bdf, mac: interface.mac }),
            vec![Made::Driver(bdf)],
            Made::Interface(bdf),
            format!("{who} belongs to {name}, and driver {} cannot set its MAC at the PF", driver.name),
        )
        .best_effort(vf.best_effort.contains("mac")),
    );
}

/// A guest's definition with its functions at `addresses`.
pub fn define(name: &GuestName, guest: &Guest, addresses: &[Bdf]) -> GuestDefinition {
    GuestDefinition {
        guest: name.clone(),
        cpus: guest.cpus,
        memory: guest.memory.map(|size| size.0),
        root: match &guest.root {
            Root::Overlay => None,
            Root::Directory(directory) => Some(directory.clone()),
        },
        init: guest.init.clone(),
        functions: guest
            .functions
            .iter()
            .zip(addresses)
            .map(|(function, bdf)| GuestFunction {
                function: *bdf,
                interface: function.interface.clone(),
                addresses: function.addresses.clone(),
                mtu: function.mtu,
            })
            .collect(),
    }
}

fn list(guest: &Guest) -> String {
    let names: Vec<String> = guest.functions.iter().map(|function| function.name.to_string()).collect();
    if names.is_empty() { "no function".to_owned() } else { names.join(", ") }
}

fn start(
    planner: &mut Planner<'_>,
    name: &GuestName,
    guest: &Guest,
    functions: &[(&WantedNic<'_>, Option<&WantedVf<'_>>)],
    addresses: &[Bdf],
) {
    let mut needs = vec![Made::Defined(name.clone())];
    needs.extend(
        addresses.iter().flat_map(|bdf| [Made::Driver(*bdf), Made::Attributes(*bdf), Made::Interface(*bdf)]),
    );
    needs.extend(guest.after.iter().cloned().map(Made::Running));
    needs.extend(
        functions.iter().filter_map(|(nic, _)| nic.owner).map(|(owner, _)| Made::Running(owner.clone())),
    );
    let after: Vec<&str> = guest.after.iter().map(GuestName::as_str).collect();
    let why = if after.is_empty() {
        format!("{name} is to run")
    } else {
        format!("{name} is to run, after {}", after.join(", "))
    };
    planner.draft.push(Sketch::new(
        Action::StartGuest { guest: name.clone() },
        Some(Action::StopGuest { guest: name.clone() }),
        needs,
        Made::Running(name.clone()),
        why,
    ));
}
