//! The steps that start guests: drivers, definitions, starts.

use std::collections::{BTreeSet, HashSet};

use penstock_model::{
    Allow, Bdf, DataPath, Emulation, Function, FunctionName, Guest, GuestKind, GuestName, TenantFunctionName,
    Uplink,
};

use crate::{
    FunctionAction, GuestAction,
    definition::define,
    draft::{Effect, StepSpec},
    drive::{self, WantedDrive, WantedDriveVf},
    drivers::VFIO,
    external, fits, lent, nic, outdated, overrides,
    planner::{Planner, vf_list, vf_name},
    realtime, tenant, uplink, vfs,
    waits::Waits,
    wanted::{WantedNic, WantedVf},
};

/// Where a function of the model is on this machine.
pub fn place<'n, 'a>(
    planner: &Planner<'_>,
    nics: &'n [WantedNic<'a>],
    function: &FunctionName,
) -> Option<(&'n WantedNic<'a>, Option<&'n WantedVf<'a>>)> {
    let nic = &nics[planner.model.nics.get_index_of(&function.nic)?];
    match function.vf {
        None => Some((nic, None)),
        Some(index) => Some((nic, Some(nic.vfs.get(usize::from(index.get()))?))),
    }
}

/// A guest that is to be started, with where its functions are on this machine.
pub struct Starting<'n, 'a> {
    pub name: &'a GuestName,
    pub guest: &'a Guest,
    pub functions: Vec<(&'n WantedNic<'a>, Option<&'n WantedVf<'a>>)>,
    /// The VFs of drives among what it owns.
    pub drives: Vec<(&'n WantedDrive<'a>, &'n WantedDriveVf<'a>)>,
    /// Whether it is a VM that is there already, suspended.
    pub suspended: bool,
}

impl<'n, 'a> Starting<'n, 'a> {
    /// Whether a PF is among its functions.
    pub fn owns_pf(&self) -> bool {
        self.functions.iter().any(|(_, vf)| vf.is_none())
    }

    pub fn is_vm(&self) -> bool {
        self.guest.kind == GuestKind::Vm
    }

    /// The VFs among its functions.
    pub fn vfs(&self) -> impl Iterator<Item = (&'n WantedNic<'a>, &'n WantedVf<'a>, &'a Function)> {
        let owned = self.functions.iter().zip(&self.guest.functions);
        owned.filter_map(|((nic, vf), function)| Some((*nic, (*vf)?, function)))
    }

    /// Where all that it owns is, functions of NICs first.
    pub fn addresses(&self) -> impl Iterator<Item = Bdf> {
        let of_drives = self.drives.iter().map(|(_, vf)| vf.found.bdf);
        self.functions.iter().map(|(nic, vf)| address(nic, *vf)).chain(of_drives)
    }

    /// What the model calls each of these, in the same order.
    fn names(&self) -> impl Iterator<Item = String> {
        let of_drives = self.drives.iter().map(|(_, vf)| vf.wanted.name.to_string());
        self.guest.functions.iter().map(|function| function.name.to_string()).chain(of_drives)
    }
}

fn address(nic: &WantedNic<'_>, vf: Option<&WantedVf<'_>>) -> Bdf {
    vf.map_or(nic.pf.bdf, |vf| vf.found.bdf)
}

/// Everything from the drivers of the guests' functions to their starts; the guests come in starting order.
///
/// A guest that owns a PF starts before the VFs of the guests behind it are bound: moving the PF's interface resets
/// them, and a driver that is bound by then takes seconds to find its way back. Whom nobody had to wait for comes back.
pub fn guest_steps<'a>(
    planner: &mut Planner<'a>,
    nics: &[WantedNic<'a>],
    drives: &[WantedDrive<'a>],
    guests: impl Iterator<Item = (&'a GuestName, &'a Guest)>,
) -> Waits<'a> {
    let guests: Vec<(&GuestName, &Guest)> = guests.collect();
    let starting: Vec<Starting<'_, 'a>> = guests
        .iter()
        .copied()
        .filter_map(|(name, guest)| starting(planner, (nics, drives), name, guest))
        .collect();
    external::usable(planner, &starting);
    lent::usable(planner, &starting);
    fits::check(planner, &starting);
    realtime::these_run(planner, guests.iter().map(|(name, _)| *name));
    let mut waits = Waits::new(planner, nics, &starting);
    for alike in starting.chunk_by(|one, next| one.owns_pf() == next.owns_pf()) {
        together(planner, nics, &mut waits, alike);
    }
    waits.rest(planner);
    planner.draft.on_behalf_of(None);
    waits
}

/// One kind of step for all of these guests before the next kind: steps that do not need one another then stand side
/// by side, and may be carried out so. VMs are created before anything is waited for: that takes long, and needs nobody.
fn together<'a>(
    planner: &mut Planner<'a>,
    nics: &[WantedNic<'a>],
    waits: &mut Waits<'a>,
    starting: &[Starting<'_, 'a>],
) {
    let fresh = || starting.iter().filter(|guest| !guest.suspended);
    drivers(planner, fresh(), |planner, guest, nic| guest.is_vm() || !waits.is_held(planner, nic));
    for guest in fresh() {
        planner.draft.on_behalf_of(Some(guest.name));
        guest.drives.iter().for_each(|(drive, vf)| drive::bind(planner, drive, vf));
    }
    fresh().filter(|guest| guest.is_vm()).for_each(|vm| macs_of_the_device(planner, vm));
    for guest in fresh() {
        let name = guest.name;
        let known = planner.inventory.guests.contains_key(name);
        let drives = guest.drives.iter().map(|(_, vf)| vf.found.bdf).collect();
        let definition = define(planner, name, guest.guest, &guest.functions, drives);
        planner.draft.on_behalf_of(Some(name));
        planner.draft.push(StepSpec::new(
            GuestAction::DefineGuest(definition).into(),
            (!known).then(|| GuestAction::UndefineGuest { guest: name.clone() }.into()),
            vec![Effect::Defined(name.clone())],
            Effect::Defined(name.clone()),
            format!("{name} owns {}", list(name, guest.guest)),
        ));
    }
    for guest in fresh().filter(|guest| guest.is_vm()) {
        planner.draft.on_behalf_of(Some(guest.name));
        uplink::prepare(planner, nics, guest);
        back_ends(planner, guest);
    }
    for guest in fresh().filter(|guest| guest.is_vm()) {
        planner.draft.on_behalf_of(Some(guest.name));
        create(planner, guest);
    }
    // Before it may run: a VM that is suspended has its threads and its control group, and wakes nobody.
    for guest in starting.iter().filter(|guest| guest.is_vm()) {
        planner.draft.on_behalf_of(Some(guest.name));
        let found = planner.inventory.guests.get(guest.name).filter(|_| guest.suspended);
        realtime::isolate(planner, guest.name, guest.guest, found);
        if guest.suspended {
            realtime::schedule(planner, guest.name, guest.guest, found);
        }
    }
    let mut held: Vec<&WantedNic<'a>> = Vec::new();
    for guest in fresh().filter(|guest| !guest.is_vm()) {
        planner.draft.on_behalf_of(Some(guest.name));
        ports(planner, guest);
    }
    let own = fresh().filter(|guest| !guest.is_vm() && !guest.guest.nics.is_empty());
    let own: Vec<&str> = own.map(|guest| guest.name.as_str()).collect();
    if !own.is_empty() {
        planner.note(format!(
            "the NICs of {} take the modules vduse and virtio_vdpa, which are loaded where they are not there, and stay",
            own.join(", ")
        ));
    }
    for guest in fresh().filter(|guest| !guest.is_vm()) {
        held.extend(guest.vfs().map(|(nic, ..)| nic).filter(|nic| waits.is_held(planner, nic)));
    }
    held.iter().for_each(|nic| waits.for_holder(planner, nic));
    drivers(planner, fresh(), |_, guest, nic| {
        !guest.is_vm() && held.iter().any(|held| held.name == nic.name)
    });
    waits.in_order(planner, starting, |planner, waits, ready| {
        for guest in ready.iter().filter(|guest| !guest.is_vm()) {
            planner.draft.on_behalf_of(Some(guest.name));
            for (nic, _) in guest.functions.iter().filter(|(_, vf)| vf.is_none()) {
                if nic.pf.interface.is_some() {
                    nic::release(planner, nic, guest.name.as_str());
                }
                disturbed(planner, nic, guest.name);
            }
            start(planner, guest);
            realtime::isolate(planner, guest.name, guest.guest, None);
            realtime::schedule(planner, guest.name, guest.guest, None);
        }
        let vms = || ready.iter().filter(|guest| guest.is_vm());
        vms().for_each(|vm| waits.for_links(planner, vm));
        vms().for_each(|vm| waits.resume(planner, vm));
    });
}

/// Gives the VFs that `chosen` picks, by their guest and their NIC, the drivers that their guests need, and then the MACs
/// that only their own interfaces can be given.
fn drivers<'n, 'a: 'n>(
    planner: &mut Planner<'a>,
    guests: impl Iterator<Item = &'n Starting<'n, 'a>> + Clone,
    chosen: impl Fn(&Planner<'a>, &Starting<'_, 'a>, &WantedNic<'a>) -> bool,
) {
    for guest in guests.clone() {
        planner.draft.on_behalf_of(Some(guest.name));
        for (nic, vf, function) in guest.vfs() {
            if chosen(planner, guest, nic) {
                bind(planner, nic, vf, guest, function);
            }
        }
    }
    for guest in guests.filter(|guest| !guest.is_vm()) {
        planner.draft.on_behalf_of(Some(guest.name));
        for (nic, vf, _) in guest.vfs() {
            if chosen(planner, guest, nic) {
                set_own_mac(planner, nic, vf, guest.name);
            }
        }
    }
}

/// Whether a guest is to be started; one that runs, or whose functions another runs with, is not.
fn starting<'n, 'a>(
    planner: &mut Planner<'a>,
    (nics, drives): (&'n [WantedNic<'a>], &'n [WantedDrive<'a>]),
    name: &'a GuestName,
    guest: &'a Guest,
) -> Option<Starting<'n, 'a>> {
    let functions: Vec<_> =
        guest.functions.iter().filter_map(|function| place(planner, nics, &function.name)).collect();
    let suspended = guest.kind == GuestKind::Vm && planner.suspended(name);
    let starting = Starting { name, guest, functions, drives: drive::owned(drives, guest), suspended };
    planner.given.insert(name.clone(), starting.addresses().collect());
    if planner.runs(name) {
        let addresses: Vec<Bdf> = starting.addresses().collect();
        let right = same_nics(planner, name, guest) && running(planner, name, &addresses, suspended);
        if right {
            uplink::live(planner, nics, name, guest);
            tenant::live(planner, name, guest);
            outdated::note(planner, &starting);
        }
        return (right && suspended).then_some(starting);
    }
    let mut free = true;
    for (bdf, function) in starting.addresses().zip(starting.names()) {
        if let Some(user) = planner.user(bdf) {
            free = false;
            planner.refuse(
                format!("{function} is to go to {name}, but guest {user} runs with it"),
                format!("stop it first: penstock stop MODEL {user}"),
            );
        }
    }
    free.then_some(starting)
}

/// A VM keeps the NICs of its own that it was made with.
fn same_nics(planner: &mut Planner<'_>, name: &GuestName, guest: &Guest) -> bool {
    let found = planner.inventory.guests.get(name).map(|found| &found.nics);
    let same = found.is_none_or(|found| found.iter().eq(guest.nics.keys().collect::<BTreeSet<_>>()));
    if !same {
        planner.refuse(
            format!("guest {name} runs with other NICs of its own than the model gives it"),
            format!("stop it first: penstock stop MODEL {name}"),
        );
    }
    same
}

/// A guest that is there is left alone, if it has what the model gives it; that is the answer.
fn running(planner: &mut Planner<'_>, name: &GuestName, wanted: &[Bdf], suspended: bool) -> bool {
    let found =
        planner.inventory.guests.get(name).map(|found| found.functions.as_slice()).unwrap_or_default();
    let set = |functions: &[Bdf]| functions.iter().copied().collect::<HashSet<_>>();
    let right = set(found) == set(wanted);
    if right && suspended {
        planner.note(format!("guest {name} is there, suspended, and is let run"));
    } else if right && planner.inventory.guests.get(name).is_some_and(|found| found.unfinished) {
        planner.note(format!("guest {name} runs already, and what was begun with it is finished"));
    } else if right {
        planner.note(format!("guest {name} runs already and is left alone"));
    } else {
        let texts = |functions: &[Bdf]| match functions {
            [] => "none".to_owned(),
            some => some.iter().map(Bdf::to_string).collect::<Vec<_>>().join(", "),
        };
        planner.refuse(
            format!("guest {name} runs with {}, but the model gives it {}", texts(found), texts(wanted)),
            format!("stop it first: penstock stop MODEL {name}"),
        );
    }
    right
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

/// Binds the VF's network driver, or VFIO for a VM, unless that is what has it.
fn bind(
    planner: &mut Planner<'_>,
    nic: &WantedNic<'_>,
    vf: &WantedVf<'_>,
    guest: &Starting<'_, '_>,
    function: &Function,
) {
    let Some(network) = nic.driver.map(|driver| driver.vf_driver) else { return };
    let driver = if guest.is_vm() { VFIO } else { network };
    let present = planner.bound(nic, vf).map(str::to_owned);
    let stale = present.as_deref() == Some(network) && external::is_stale(nic, vf);
    if present.as_deref() == Some(driver) && !stale {
        return;
    }
    let (name, who) = (guest.name, vf_name(nic.name, vf.index));
    if !overrides::allow(planner, nic, vf, driver, Some(name)) {
        return;
    }
    if let Some(other) = &present {
        let why = match other == driver {
            true => format!("the PF has given {who} a MAC since {other} was bound, which has not seen it"),
            false => format!("{name} uses {who} through {driver}, not {other}"),
        };
        vfs::unbind(planner, nic, vf, other, why);
    }
    let why = format!("{name} gets {who} as its {}", function.interface);
    if guest.is_vm() {
        planner.draft.push(vfs::binding_vfio(nic, vf, why));
    } else {
        vfs::bind(planner, nic, vf, network, why);
    }
}

/// Says whose MACs nobody can set: the PF's driver has no call for it, and VFIO gives the VF no interface.
fn macs_of_the_device(planner: &mut Planner<'_>, guest: &Starting<'_, '_>) {
    let mut nics: Vec<&WantedNic<'_>> = Vec::new();
    for (nic, ..) in guest.vfs().filter(|(nic, ..)| nic.driver.is_some_and(|driver| !driver.tells_mac)) {
        if !nics.iter().any(|other| other.name == nic.name) {
            nics.push(nic);
        }
    }
    for nic in nics {
        let indices: Vec<_> =
            guest.vfs().filter(|(of, ..)| of.name == nic.name).map(|(_, vf, _)| vf.index).collect();
        planner.note(format!(
            "{} gets {} with the MACs that the device gives them: driver {} keeps none for its VFs; verify compares them",
            guest.name,
            vf_list(nic.name, &indices),
            nic.pf.driver.as_deref().unwrap_or("none")
        ));
    }
}

/// Sets the MAC of the VF's own interface, where the PF's driver cannot.
pub fn set_own_mac(planner: &mut Planner<'_>, nic: &WantedNic<'_>, vf: &WantedVf<'_>, name: &GuestName) {
    if nic.nic.externally_managed {
        return;
    }
    let Some(driver) = nic.driver.filter(|driver| !driver.tells_mac) else { return };
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
    let why = match driver.sets_vf_attributes {
        true => "its device has a MAC of its own, whatever its PF's embedded switch was told".to_owned(),
        false => format!("driver {} cannot set its MAC at the PF", driver.name),
    };
    planner.draft.push(
        StepSpec::new(
            FunctionAction::SetMac { function: bdf, mac }.into(),
            interface.map(|interface| FunctionAction::SetMac { function: bdf, mac: interface.mac }.into()),
            vec![Effect::Driver(bdf)],
            Effect::Interface(bdf),
            format!("{who} belongs to {name}, and {why}"),
        )
        .best_effort(vf.best_effort.contains("mac")),
    );
}

fn list(name: &GuestName, guest: &Guest) -> String {
    let functions = guest.functions.iter().map(|function| function.name.to_string());
    let drives = guest.drives.iter().map(|owned| owned.name.to_string());
    let nics = guest.nics.keys().map(|nic| format!("{name}/{nic}"));
    let names: Vec<String> = functions.chain(drives).chain(nics).collect();
    if names.is_empty() { "no function".to_owned() } else { names.join(", ") }
}

fn start(planner: &mut Planner<'_>, guest: &Starting<'_, '_>) {
    let name = guest.name;
    let mut needs = vec![Effect::Defined(name.clone())];
    needs.extend(realtime::needs_before_start(planner, name));
    needs.extend(guest.guest.nics.keys().map(|nic| Effect::BackEnd(name.clone(), nic.clone())));
    needs.extend(
        guest
            .addresses()
            .flat_map(|bdf| [Effect::Driver(bdf), Effect::Attributes(bdf), Effect::Interface(bdf)]),
    );
    needs.extend(guest.guest.after.iter().cloned().map(Effect::Ready));
    needs.extend(
        guest
            .functions
            .iter()
            .filter_map(|(nic, _)| nic.owner)
            .map(|(owner, _)| Effect::Running(owner.clone())),
    );
    let after: Vec<&str> = guest.guest.after.iter().map(GuestName::as_str).collect();
    let why = if after.is_empty() {
        format!("{name} is to run")
    } else {
        format!("{name} is to run, after {}", after.join(", "))
    };
    planner.draft.push(StepSpec::new(
        GuestAction::StartGuest { guest: name.clone() }.into(),
        Some(GuestAction::StopGuest { guest: name.clone() }.into()),
        needs,
        Effect::Running(name.clone()),
        why,
    ));
}

/// Starts the embedded switches of the NICs that a VM owns, and makes the taps of those that have none. QEMU waits for a switch's
/// sockets when it is started, and opens its devices, and taps.
fn back_ends(planner: &mut Planner<'_>, guest: &Starting<'_, '_>) {
    let name = guest.name;
    for (nic, found) in &guest.guest.nics {
        let mut needs = vec![Effect::Defined(name.clone())];
        if found.path == DataPath::Tap {
            let bridge = found.uplink.as_ref().map_or_else(String::new, |uplink| format!(" {uplink}"));
            planner.draft.push(StepSpec::new(
                GuestAction::MakeTaps { guest: name.clone(), nic: nic.clone() }.into(),
                Some(GuestAction::RemoveTaps { guest: name.clone(), nic: nic.clone() }.into()),
                needs,
                Effect::BackEnd(name.clone(), nic.clone()),
                match found.emulation {
                    Emulation::Virtio => format!(
                        "{name}/{nic} and its {} have a tap each, a port of the bridge{bridge}",
                        vfs_in_words(found.vfs.len())
                    ),
                    Emulation::Igb => {
                        format!("{name}/{nic}, an igb, has a tap for all its functions, a port of the bridge{bridge}")
                    }
                },
            ));
            continue;
        }
        let leads = match &found.uplink {
            None => "leads nowhere else".to_owned(),
            Some(uplink) => format!("leads to {uplink}"),
        };
        if let Some(Uplink::Function(function)) = &found.uplink
            && let Some(at) = planner.address(function)
        {
            needs.extend([Effect::Interface(at), Effect::Driver(at), Effect::Attributes(at)]);
        }
        planner.draft.push(StepSpec::new(
            GuestAction::StartSwitch { guest: name.clone(), nic: nic.clone() }.into(),
            Some(GuestAction::StopSwitch { guest: name.clone(), nic: nic.clone() }.into()),
            needs,
            Effect::BackEnd(name.clone(), nic.clone()),
            match found.path {
                DataPath::SwitchTap => format!(
                    "{name}/{nic}, an igb, and all its VFs are one port of it, by a tap from which the host itself hears nothing; it {leads}"
                ),
                DataPath::VhostVdpa => {
                    format!("{name}/{nic} and its {} are ports of it, by vDPA devices; it {leads}", vfs_in_words(found.vfs.len()))
                }
                DataPath::Switch | DataPath::VirtioVdpa | DataPath::Tap => {
                    format!("{name}/{nic} and its {} are ports of it; it {leads}", vfs_in_words(found.vfs.len()))
                }
            },
        ));
    }
    if guest.guest.nics.values().any(|own| own.emulation == Emulation::Virtio) {
        planner.note(format!(
            "libvirt marks {name} as tainted (custom-device): it has no words for a VF of an emulated PF, which are given by <qemu:override>"
        ));
    }
    if !guest.guest.nics.is_empty() {
        let switched = guest.guest.nics.values().any(|own| own.path.maps_memory());
        let off = "the VFs of its NICs are off until it enables them";
        planner.note(match switched {
            true => format!("the embedded switches of {name} map all of its memory, as QEMU does; {off}"),
            false => format!("{name} can make VFs: {off}"),
        });
        ceilings(planner, name, guest.guest);
    }
}

/// Starts the embedded switches of the NICs that a container owns, each with a device of the host's kernel, whose interface the container
/// gets.
fn ports(planner: &mut Planner<'_>, guest: &Starting<'_, '_>) {
    let name = guest.name;
    for (nic, found) in &guest.guest.nics {
        let bridge = found.uplink.as_ref().map_or_else(String::new, |uplink| format!(" {uplink}"));
        planner.draft.push(StepSpec::new(
            GuestAction::StartSwitch { guest: name.clone(), nic: nic.clone() }.into(),
            Some(GuestAction::StopSwitch { guest: name.clone(), nic: nic.clone() }.into()),
            vec![Effect::Defined(name.clone())],
            Effect::BackEnd(name.clone(), nic.clone()),
            format!(
                "{name}/{nic} is a port of it, by a vDPA device; its uplink is a tap in the bridge{bridge}"
            ),
        ));
    }
}

/// Says how far a VM may go by itself at each function of its NICs, those that may go equally far together.
fn ceilings(planner: &mut Planner<'_>, name: &GuestName, guest: &Guest) {
    let mut any = false;
    for (nic, found) in &guest.nics {
        let mut all: Vec<(&Allow, Vec<String>)> = Vec::new();
        for (vf, ..) in found.functions() {
            let Some(allow) = found.allow(vf) else { continue };
            let function = FunctionName { nic: nic.clone(), vf };
            let function = TenantFunctionName { guest: name.clone(), function }.to_string();
            match all.iter_mut().find(|(other, _)| *other == allow) {
                Some((_, functions)) => functions.push(function),
                None => all.push((allow, vec![function])),
            }
        }
        if let (DataPath::SwitchTap, Some(allow)) = (found.path, &found.allow) {
            planner.note(format!(
                "the embedded switch of {name}/{nic} lets through, of whatever function it is: {allow}"
            ));
        }
        any |= !all.is_empty();
        for (allow, functions) in all {
            planner.note(format!("{name} may set by itself at {}: {allow}", functions.join(", ")));
        }
    }
    if any {
        planner.note(format!(
            "libvirt marks {name} as tainted (custom-monitor): its QEMU's monitor is asked what it asks of its devices"
        ));
    }
}

fn vfs_in_words(count: usize) -> String {
    format!("{count} VF{}", if count == 1 { "" } else { "s" })
}

/// Creates a VM suspended. It needs its functions and nobody else: what it waits for is waited for while it is there.
fn create(planner: &mut Planner<'_>, guest: &Starting<'_, '_>) {
    let name = guest.name;
    let mut needs = vec![Effect::Defined(name.clone())];
    needs.extend(
        guest
            .addresses()
            .flat_map(|bdf| [Effect::Driver(bdf), Effect::Attributes(bdf), Effect::Controller(bdf)]),
    );
    needs.extend(guest.guest.nics.keys().map(|nic| Effect::BackEnd(name.clone(), nic.clone())));
    planner.draft.push(StepSpec::new(
        GuestAction::CreateGuest { guest: name.clone() }.into(),
        Some(GuestAction::StopGuest { guest: name.clone() }.into()),
        needs,
        Effect::Running(name.clone()),
        format!("{name} is to be there with its functions before it may run"),
    ));
}
