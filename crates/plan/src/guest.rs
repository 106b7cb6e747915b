//! The steps that start guests.

use std::collections::HashSet;

use penstock_model::{Bdf, Function, Guest, GuestKind, GuestName, Root};

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

/// A guest that is to be started, with where its functions are on this machine.
struct Starting<'n, 'a> {
    name: &'a GuestName,
    guest: &'a Guest,
    functions: Vec<(&'n WantedNic<'a>, Option<&'n WantedVf<'a>>)>,
    addresses: Vec<Bdf>,
}

impl<'n, 'a> Starting<'n, 'a> {
    /// Whether a PF is among its functions.
    fn owns_pf(&self) -> bool {
        self.functions.iter().any(|(_, vf)| vf.is_none())
    }

    /// The VFs among its functions.
    fn vfs(&self) -> impl Iterator<Item = (&'n WantedNic<'a>, &'n WantedVf<'a>, &'a Function)> {
        let owned = self.functions.iter().zip(&self.guest.functions);
        owned.filter_map(|((nic, vf), function)| Some((*nic, (*vf)?, function)))
    }
}

/// Everything from the drivers of the guests' functions to their starts; the guests come in starting order.
///
/// A guest that owns a PF starts before the VFs of the guests behind it are bound: moving the PF's interface resets
/// them, and a driver that is bound by then takes seconds to find its way back.
pub fn guest_steps<'a>(
    planner: &mut Planner<'a>,
    nics: &[WantedNic<'a>],
    guests: impl Iterator<Item = (&'a GuestName, &'a Guest)>,
) {
    let starting: Vec<Starting<'_, 'a>> =
        guests.filter_map(|(name, guest)| starting(planner, nics, name, guest)).collect();
    starting.chunk_by(|one, next| one.owns_pf() == next.owns_pf()).for_each(|alike| together(planner, alike));
}

/// One kind of step for all of these guests before the next kind: steps that do not need one another then stand side
/// by side, and may be carried out so.
fn together<'a>(planner: &mut Planner<'a>, starting: &[Starting<'_, 'a>]) {
    for guest in starting {
        guest.vfs().for_each(|(nic, vf, function)| bind(planner, nic, vf, guest.name, function));
    }
    for guest in starting {
        guest.vfs().for_each(|(nic, vf, _)| set_own_mac(planner, nic, vf, guest.name));
    }
    for Starting { name, guest, addresses, .. } in starting {
        let name = *name;
        let known = planner.inventory.guests.contains_key(name);
        planner.draft.push(Sketch::new(
            Action::DefineGuest(define(name, guest, addresses)),
            (!known).then(|| Action::UndefineGuest { guest: name.clone() }),
            vec![Made::Defined(name.clone())],
            Made::Defined(name.clone()),
            format!("{name} owns {}", list(guest)),
        ));
    }
    for Starting { name, guest, functions, addresses } in starting {
        for (nic, _) in functions.iter().filter(|(_, vf)| vf.is_none()) {
            if let Some(found) = &nic.pf.interface {
                nic::release(planner, nic, found, name.as_str());
            }
            disturbed(planner, nic, name);
        }
        start(planner, name, guest, functions, addresses);
    }
}

/// Whether a guest is to be started; one that runs, or whose functions another runs with, is not.
fn starting<'n, 'a>(
    planner: &mut Planner<'a>,
    nics: &'n [WantedNic<'a>],
    name: &'a GuestName,
    guest: &'a Guest,
) -> Option<Starting<'n, 'a>> {
    let functions: Vec<_> =
        guest.functions.iter().filter_map(|function| place(planner, nics, function)).collect();
    let addresses: Vec<Bdf> =
        functions.iter().map(|(nic, vf)| vf.map_or(nic.pf.bdf, |vf| vf.found.bdf)).collect();
    if planner.runs(name) {
        running(planner, name, &addresses);
        return None;
    }
    let mut free = true;
    for (bdf, function) in addresses.iter().zip(&guest.functions) {
        if let Some(user) = planner.user(*bdf) {
            free = false;
            planner.refuse(
                format!("{} is to go to {name}, but guest {user} runs with it", function.name),
                format!("stop it first: penstock stop {user}"),
            );
        }
    }
    free.then_some(Starting { name, guest, functions, addresses })
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

/// Binds the VF's network driver, unless that is what has it.
fn bind(
    planner: &mut Planner<'_>,
    nic: &WantedNic<'_>,
    vf: &WantedVf<'_>,
    name: &GuestName,
    function: &Function,
) {
    let Some(driver) = nic.driver else { return };
    let present = planner.bound(nic, vf).map(str::to_owned);
    if present.as_deref() == Some(driver.vf_driver) {
        return;
    }
    let who = vf_name(nic.name, vf.index);
    if let Some(other) = &present {
        let why = format!("{name} uses {who} through {}, not {other}", driver.vf_driver);
        vfs::unbind(planner, nic, vf, other, why);
    }
    let why = format!("{name} gets {who} as its {}", function.interface);
    vfs::bind(planner, nic, vf, driver.vf_driver, why);
}

/// Sets the MAC of the VF's own interface, where the PF's driver cannot.
fn set_own_mac(planner: &mut Planner<'_>, nic: &WantedNic<'_>, vf: &WantedVf<'_>, name: &GuestName) {
    let Some(driver) = nic.driver.filter(|driver| !driver.sets_vf_attributes) else { return };
    let who = vf_name(nic.name, vf.index);
    let Some(mac) = vf.settings.mac else {
        planner.note(format!("the MAC of {} is not known, so that of {who} is left as it is", nic.name));
        return;
    };
    // An interface that is there now stays, and keeps its address, only if its driver does.
    let stays = nic.present(vf).filter(|present| present.driver.as_deref() == Some(driver.vf_driver));
    let interface = stays.and_then(|present| present.interface.as_ref());
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
        pin: guest.pin.clone(),
        root: match &guest.root {
            Root::Overlay => None,
            Root::Directory(directory) => Some(directory.clone()),
        },
        init: guest.init.clone(),
        devices: guest.devices.clone(),
        vm: (guest.kind == GuestKind::Vm).then(|| guest.vm.clone()),
        functions: guest
            .functions
            .iter()
            .zip(addresses)
            .map(|(function, bdf)| GuestFunction {
                function: *bdf,
                interface: function.interface.clone(),
                addresses: function.addresses.clone(),
                mtu: function.mtu,
                mac: function.settings.mac,
                egress_rate: function.egress_rate,
                ingress_rate: function.ingress_rate,
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
