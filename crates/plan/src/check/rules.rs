//! What must be so before a step is taken.

use std::collections::HashMap;

use penstock_model::{
    Bdf, FunctionName, GuestKind, GuestName, Inventory, Mac, Model, NicName, VfAttribute, VfIndex,
    inventory::Pf,
};

use super::{
    drive, eswitch,
    excuse::excused,
    machine::{Machine, has_attribute, reports_attributes, tells_mac, vf_driver},
    realtime,
    step::{is_vm, loses},
};
use crate::{
    Action, BootAction, Direction, FileAction, FunctionAction, GuestAction, Plan, Step,
    action::GuestDefinition,
};

/// The driver of functions that VMs have.
pub const VFIO: &str = "vfio-pci";

/// What the plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// To make the machine what the model says.
    AsTheModelSays,
    /// Something else: a stop, a way back.
    Anything,
}

pub struct Rules<'a> {
    model: &'a Model,
    wanted: Wanted,
    /// Whether guests are waited for: a way back has no waits, and needs only that guests are there.
    waits: bool,
    /// The attributes that each VF is to have before a driver sees it.
    attributes: HashMap<Bdf, Vec<VfAttribute>>,
    /// The MAC address of each VF that it must have.
    macs: HashMap<Bdf, Mac>,
}

impl<'a> Rules<'a> {
    pub fn new(model: &'a Model, inventory: &Inventory, plan: &Plan, wanted: Wanted) -> Rules<'a> {
        let (attributes, macs) = match wanted {
            Wanted::AsTheModelSays => wanted_attributes(model, inventory, plan),
            Wanted::Anything => Default::default(),
        };
        let waits = |step: &Step| {
            matches!(
                step.action,
                Action::Guest(GuestAction::AwaitGuest { .. })
                    | Action::Function(FunctionAction::AwaitLink { .. })
            )
        };
        let waits = wanted == Wanted::AsTheModelSays || plan.steps.iter().any(waits);
        Rules { model, wanted, waits, attributes, macs }
    }

    /// Which rules a step breaks on the machine as it is.
    pub fn broken(&self, machine: &Machine, step: &Step) -> Vec<String> {
        let action = &step.action;
        let mut broken = match action {
            Action::Function(FunctionAction::SetAutoprobe { pf, .. }) => no_sriov(machine, *pf),
            Action::Function(FunctionAction::SetVfCount { pf, count }) => self.vf_count(machine, *pf, *count),
            Action::Function(FunctionAction::SetVfAttribute { pf, vf, attribute: set }) => {
                attribute(machine, *pf, *vf, set)
            }
            Action::Function(FunctionAction::SetDriver { function, driver, mac }) => {
                let mut broken = self.driver(machine, *function, driver.as_deref(), *mac);
                let chosen = machine.inventory.chosen_drivers.get(function);
                let for_guest = self.wanted == Wanted::AsTheModelSays && step.guest.is_some();
                if for_guest && driver.is_some() {
                    broken.extend(uninformed_managers(machine, *function));
                }
                if let (Some(chosen), Some(driver), true) = (chosen, driver, for_guest)
                    && chosen != driver
                {
                    broken
                        .push(format!("{function} is bound to {driver}, and driverctl has {chosen} for it"));
                }
                broken
            }
            Action::Function(FunctionAction::ResetFunction { function }) => reset(machine, *function),
            Action::Drive(action) => drive::broken(machine, action),
            Action::Function(FunctionAction::SetSwitchMode { pf, .. }) => on_host(machine, *pf),
            Action::Function(FunctionAction::SetEswitchMode { pf, mode }) => {
                eswitch::broken(machine, *pf, *mode)
            }
            Action::Guest(GuestAction::DefineGuest(definition)) => define(machine, definition),
            Action::Guest(GuestAction::UndefineGuest { guest }) => match machine.guest(guest) {
                None => vec![format!("guest {guest} is not defined")],
                Some(found) if found.running => vec![format!("guest {guest} still runs")],
                Some(_) => vec![],
            },
            Action::Guest(GuestAction::StartSwitch { guest, nic }) => self.start_switch(machine, guest, nic),
            Action::Guest(GuestAction::StopSwitch { guest, nic }) if machine.runs(guest) => {
                vec![format!("{guest} is there, and its {nic} is without a switch")]
            }
            Action::Guest(GuestAction::MakeTaps { guest, nic }) => make_taps(machine, guest, nic),
            Action::Guest(GuestAction::RemoveTaps { guest, nic }) if machine.runs(guest) => {
                vec![format!("{guest} is there, and its {nic} is without taps")]
            }
            Action::Guest(GuestAction::SetPortAttribute { guest, nic, vf, attribute }) => {
                set_port(machine, guest, nic, *vf, attribute)
            }
            Action::Guest(GuestAction::StartGuest { guest }) => self.start(machine, guest),
            Action::Guest(GuestAction::CreateGuest { guest }) => self.create(machine, guest),
            Action::Guest(GuestAction::ResumeGuest { guest }) => self.resume(machine, guest),
            Action::Guest(GuestAction::StopGuest { guest }) => self.stop(machine, guest),
            Action::Guest(GuestAction::SuspendGuest { guest }) if machine.suspended(guest) => {
                vec![format!("guest {guest} is suspended already")]
            }
            Action::Guest(GuestAction::SuspendGuest { guest }) => self.stop(machine, guest),
            Action::Guest(GuestAction::AwaitGuest { guest, .. })
                if !machine.runs(guest) || machine.suspended(guest) =>
            {
                vec![format!("{guest} is waited for and does not run")]
            }
            Action::Function(FunctionAction::AwaitLink { pf, .. }) => link(machine, *pf),
            Action::Function(FunctionAction::RestoreInterface { function, .. }) => {
                on_host(machine, *function)
            }
            Action::Function(
                FunctionAction::SetMac { .. }
                | FunctionAction::Rename { .. }
                | FunctionAction::SetMtu { .. }
                | FunctionAction::SetLink { .. }
                | FunctionAction::AddAddress { .. }
                | FunctionAction::RemoveAddress { .. },
            ) => interface(machine, action),
            // Real time has rules of its own, below.
            Action::RealTime(_)
            | Action::Guest(GuestAction::IsolateGuest { .. } | GuestAction::ScheduleGuest { .. }) => vec![],
            // They may be carried out on any machine, or the guards above have looked.
            Action::Function(FunctionAction::LeaveAlone { .. })
            | Action::Guest(
                GuestAction::StopSwitch { .. }
                | GuestAction::RemoveTaps { .. }
                | GuestAction::AwaitGuest { .. },
            )
            | Action::Boot(BootAction::EnableUnit { .. } | BootAction::SetBootArguments(_))
            | Action::File(FileAction::WriteFile { .. } | FileAction::RemoveFile { .. }) => vec![],
        };
        broken.extend(realtime::broken(machine, self.model, action, self.wanted == Wanted::AsTheModelSays));
        broken.extend(loses(machine, action));
        broken
    }

    fn vf_count(&self, machine: &Machine, pf: Bdf, count: u16) -> Vec<String> {
        let mut broken = vf_count(machine, pf, count);
        // On a way back, drivers that bind by themselves may be what was.
        let autoprobe = machine.sriov(pf).is_some_and(|sriov| sriov.autoprobe);
        if self.wanted == Wanted::AsTheModelSays && autoprobe && count > 0 {
            broken.push(format!("drivers would bind to the VFs of {pf} as they are made"));
        }
        broken
    }

    fn driver(
        &self,
        machine: &Machine,
        function: Bdf,
        driver: Option<&str>,
        mac: Option<Mac>,
    ) -> Vec<String> {
        let mut broken = exists(machine, function);
        if let Some(guest) = machine.user(function) {
            broken.push(format!("guest {guest} runs with {function}"));
        }
        let present = machine.driver(function);
        match (present, driver) {
            (None, None) => broken.push(format!("{function} has no driver to be unbound from")),
            (Some(present), Some(_)) => broken.push(format!("{function} is still bound to {present}")),
            _ => {}
        }
        if driver.is_none() {
            return broken;
        }
        let pf = machine.pf(function);
        let up_wanted = driver != Some(VFIO);
        if up_wanted && pf.and_then(|pf| pf.interface.as_ref()).is_some_and(|interface| !interface.up) {
            broken.push(format!("the PF of {function} is down"));
        }
        if let Some(holder) = pf.and_then(|pf| machine.user(pf.bdf)).filter(|_| up_wanted && self.waits)
            && !machine.is_ready(holder)
        {
            broken.push(format!(
                "{holder} has the PF of {function}, and no step waited until that has its link"
            ));
        }
        let wanted = self.macs.get(&function).filter(|_| up_wanted);
        if wanted.is_some_and(|wanted| mac != Some(*wanted)) {
            broken.push(format!(
                "no step checks whether {function} has the MAC address that its PF keeps for it"
            ));
        }
        broken.extend(self.lacking(machine, function));
        broken
    }

    fn start(&self, machine: &Machine, guest: &GuestName) -> Vec<String> {
        if machine.runs(guest) {
            return vec![format!("guest {guest} runs already")];
        }
        if machine.guest(guest).is_none() {
            return vec![format!("guest {guest} is not defined")];
        }
        let mut broken = Vec::new();
        if is_vm(machine, self.model, guest) {
            broken.push(format!("{guest} is a VM, and is created and resumed, not started"));
        }
        for function in machine.functions(guest) {
            if let Some(other) = machine.user(*function) {
                broken.push(format!("{function} is given to {guest}, but {other} runs with it"));
            } else if machine.interface(*function).is_none() {
                broken.push(format!("{function} has no interface that {guest} could get"));
            }
        }
        for nic in machine.nics(guest).iter().filter(|nic| !machine.switched(guest, nic)) {
            broken.push(format!(
                "{guest}/{nic} has no interface that {guest} could get: its switch does not run"
            ));
        }
        broken.extend(self.after(machine, guest));
        broken
    }

    /// Whether those that `guest` comes after are ready.
    fn after(&self, machine: &Machine, guest: &GuestName) -> Vec<String> {
        let after = self.model.guests.get(guest).into_iter().flat_map(|guest| &guest.after);
        after.filter_map(|before| self.unready(machine, guest, before)).collect()
    }

    fn unready(&self, machine: &Machine, guest: &GuestName, before: &GuestName) -> Option<String> {
        if !machine.runs(before) || (self.waits && machine.suspended(before)) {
            return Some(format!("{guest} starts after {before}, which does not run"));
        }
        let tells = self.model.guests.get(before).is_none_or(|before| {
            before.kind == GuestKind::Vm || before.functions.iter().any(|function| function.name.vf.is_none())
        });
        (self.waits && tells && !machine.is_ready(before))
            .then(|| format!("{guest} runs after {before}, and no step waited until that is ready"))
    }

    fn create(&self, machine: &Machine, guest: &GuestName) -> Vec<String> {
        if machine.runs(guest) {
            return vec![format!("guest {guest} is there already")];
        }
        if machine.guest(guest).is_none() {
            return vec![format!("guest {guest} is not defined")];
        }
        let mut broken = Vec::new();
        if !is_vm(machine, self.model, guest) {
            broken.push(format!("{guest} is a container, and is started, not created"));
        }
        for nic in &machine.nics(guest) {
            match machine.at_taps(guest, nic) {
                true if !machine.tapped(guest, nic) => {
                    broken.push(format!("{guest}/{nic} has no taps, which libvirt does not make"));
                }
                false if !machine.switched(guest, nic) => broken.push(format!(
                    "QEMU would wait for the embedded switch of {guest}/{nic}, which does not run"
                )),
                _ => {}
            }
        }
        for function in machine.functions(guest) {
            broken.extend(exists(machine, *function));
            if let Some(other) = machine.user(*function) {
                broken.push(format!("{function} is given to {guest}, but {other} runs with it"));
            }
            if machine.driver(*function) != Some(VFIO) {
                broken.push(format!("{function} is given to {guest} and is not bound to {VFIO}"));
            }
            broken.extend(self.lacking(machine, *function));
        }
        broken
    }

    fn resume(&self, machine: &Machine, guest: &GuestName) -> Vec<String> {
        if !machine.suspended(guest) {
            return vec![format!("guest {guest} is not suspended")];
        }
        if !self.waits {
            return Vec::new();
        }
        let mut broken = self.after(machine, guest);
        for pf in machine.functions(guest).iter().filter_map(|function| machine.pf(*function)) {
            match machine.user(pf.bdf) {
                Some(holder) => broken.extend(self.unready(machine, guest, holder)),
                None if machine.is_linked(pf.bdf, guest) => {}
                None => {
                    broken.push(format!("{guest} runs, and no step waited until {} has its link", pf.bdf))
                }
            }
        }
        broken
    }

    /// The switch of a NIC of a VM that is defined and not there, and whose uplink is up on the host.
    fn start_switch(&self, machine: &Machine, guest: &GuestName, nic: &NicName) -> Vec<String> {
        let mut broken = Vec::new();
        if machine.runs(guest) {
            broken.push(format!("guest {guest} is there already"));
        }
        if !machine.nics(guest).contains(nic) || machine.at_taps(guest, nic) {
            broken.push(format!("guest {guest} is not defined with a NIC {nic} at a switch"));
        }
        let definition = machine.definitions.get(guest);
        let found = definition.and_then(|definition| definition.nics.iter().find(|found| found.name == *nic));
        if let Some(uplink) = found.and_then(|found| found.uplink_at) {
            broken.extend(self.lacking(machine, uplink));
            broken.extend(on_host(machine, uplink));
            if machine.interface(uplink).is_some_and(|interface| !interface.up) {
                broken.push(format!("{uplink} is down, and the uplink of {guest}/{nic} leads there"));
            }
        }
        broken
    }

    /// The attributes that a VF is to have and does not have.
    fn lacking(&self, machine: &Machine, function: Bdf) -> Vec<String> {
        let state = machine.present(function).and_then(|present| present.attributes.as_ref());
        let (Some(state), Some(wanted)) = (state, self.attributes.get(&function)) else {
            return Vec::new();
        };
        wanted
            .iter()
            .filter(|attribute| !has_attribute(state, attribute))
            .map(|attribute| format!("{function} is given away before it has {attribute}"))
            .collect()
    }

    fn stop(&self, machine: &Machine, guest: &GuestName) -> Vec<String> {
        if !machine.runs(guest) {
            return vec![format!("guest {guest} does not run")];
        }
        let needing = self.model.guests.iter().filter(|(_, other)| other.after.contains(guest));
        needing
            .filter(|(name, _)| machine.runs(name) && !machine.suspended(name))
            .map(|(name, _)| format!("{name} needs {guest} and still runs"))
            .collect()
    }
}

/// What each VF is to have, and the MACs that are not best effort, from the model alone.
fn wanted_attributes(
    model: &Model,
    inventory: &Inventory,
    plan: &Plan,
) -> (HashMap<Bdf, Vec<VfAttribute>>, HashMap<Bdf, Mac>) {
    let (mut all, mut macs) = (HashMap::new(), HashMap::new());
    let owners = model.function_owners();
    for (name, nic) in &model.nics {
        let pf = plan.nics.get(name).and_then(|bdf| inventory.pf(*bdf));
        let sets = |pf: &&Pf| reports_attributes(pf) && !nic.externally_managed;
        let Some(pf) = pf.filter(sets) else {
            continue;
        };
        let base = pf.permanent_mac.or(nic.matching.mac);
        let seats = pf.sriov.iter().flat_map(|sriov| &sriov.vfs);
        for ((index, settings), seat) in model.vfs(name).zip(seats) {
            let mut settings = settings.clone();
            settings.mac = settings.mac.or_else(|| base.map(|base| Mac::derived(base, index)));
            let mut attributes = settings.attributes();
            attributes
                .retain(|attribute| !excused(model, &owners, inventory, pf.bdf, name, index, attribute));
            all.insert(seat.bdf, attributes);
            let function = FunctionName { nic: name.clone(), vf: Some(index) };
            let owner = owners.of(&function);
            let best_effort = owner.map_or(&nic.best_effort, |(_, function)| &function.best_effort);
            let required = owners.is_uplink(&function) || !best_effort.contains("mac");
            let told = |_: &Mac| tells_mac(pf);
            macs.extend(settings.mac.filter(told).filter(|_| required).map(|mac| (seat.bdf, mac)));
        }
    }
    (all, macs)
}

/// The managers of interfaces that would take a function for theirs.
fn uninformed_managers(machine: &Machine, function: Bdf) -> Vec<String> {
    let Some(pf) = machine.pf(function).map(|pf| pf.bdf) else { return Vec::new() };
    let knows = |told: &std::collections::BTreeMap<Bdf, std::collections::BTreeSet<Bdf>>| {
        told.get(&pf).is_some_and(|functions| functions.contains(&function))
    };
    let managers = machine.inventory.managers.iter().filter(|(_, told)| !knows(told));
    managers.map(|(manager, _)| format!("{manager} was not told to leave {function} alone")).collect()
}

fn no_sriov(machine: &Machine, pf: Bdf) -> Vec<String> {
    match machine.is_vf(pf).filter(|is_vf| !is_vf).and_then(|_| machine.sriov(pf)) {
        Some(_) => vec![],
        None => vec![format!("{pf} is no PF with SR-IOV")],
    }
}

fn vf_count(machine: &Machine, pf: Bdf, count: u16) -> Vec<String> {
    let mut broken = no_sriov(machine, pf);
    let Some(sriov) = machine.sriov(pf) else {
        return broken;
    };
    if sriov.num_vfs != 0 && count != 0 {
        broken.push(format!("{pf} has {} VFs: their number changes only through 0", sriov.num_vfs));
    }
    if count > sriov.total_vfs || usize::from(count) > sriov.vfs.len() {
        broken.push(format!("{pf} cannot have {count} VFs"));
    }
    let found = machine.pf(pf);
    let down = found.and_then(|found| found.interface.as_ref()).is_some_and(|interface| !interface.up);
    if down && count > 0 && found.is_some_and(|found| found.driver.as_deref() == Some("bnxt_en")) {
        broken.push(format!("bnxt_en makes no VFs while {pf} is down"));
    }
    let functions = std::iter::once(pf).chain(sriov.vfs.iter().map(|vf| vf.bdf));
    broken.extend(
        functions
            .filter_map(|function| machine.user(function).map(|guest| (function, guest)))
            .map(|(function, guest)| format!("guest {guest} runs with {function}")),
    );
    broken
}

fn attribute(machine: &Machine, pf: Bdf, index: VfIndex, set: &VfAttribute) -> Vec<String> {
    let mut broken = on_host(machine, pf);
    if machine.interface(pf).is_some_and(|interface| !interface.up) {
        broken.push(format!("{pf} is down"));
    }
    if !machine.pf(pf).is_some_and(reports_attributes) {
        broken.push(format!("the driver of {pf} keeps no attributes of VFs"));
    }
    let Some((vf, present)) = machine.vf(pf, index) else {
        broken.push(format!("{pf} has no vf {index}"));
        return broken;
    };
    if let Some(guest) = machine.user(vf.bdf) {
        // All else is the PF's driver's to do, and done under the guest.
        if matches!(set, VfAttribute::Mac(_)) {
            broken.push(format!("guest {guest} runs with {}, and would not see another MAC", vf.bdf));
        }
    } else if let Some(driver) = &present.driver
        && machine.pf(pf).is_some_and(tells_mac)
    {
        broken.push(format!("{} is bound to {driver}, which does not see what is set now", vf.bdf));
    }
    broken
}

/// The taps of a NIC of a VM that is defined and not there.
fn make_taps(machine: &Machine, guest: &GuestName, nic: &NicName) -> Vec<String> {
    let mut broken = Vec::new();
    if machine.runs(guest) {
        broken.push(format!("guest {guest} is there already"));
    }
    if !machine.nics(guest).contains(nic) || !machine.at_taps(guest, nic) {
        broken.push(format!("guest {guest} is not defined with a NIC {nic} at taps"));
    }
    broken
}

/// An attribute of a VM that is there, which its switch keeps: the address is QEMU's and cannot change while it runs.
fn set_port(
    machine: &Machine,
    guest: &GuestName,
    nic: &NicName,
    vf: Option<VfIndex>,
    attribute: &VfAttribute,
) -> Vec<String> {
    let mut broken = Vec::new();
    let function = FunctionName { nic: nic.clone(), vf };
    if !machine.runs(guest) {
        broken.push(format!("{guest} is not there, and its switch is not asked"));
    } else if machine.port(guest, nic, vf).is_none() {
        broken.push(format!("{guest}/{nic} is not known to have a port for {function}"));
    }
    if let VfAttribute::Mac(_) | VfAttribute::LinkState(_) = attribute {
        broken.push(format!("{attribute} of {guest}/{function} cannot change while {guest} is there"));
    }
    broken
}

fn reset(machine: &Machine, function: Bdf) -> Vec<String> {
    let mut broken = exists(machine, function);
    if let Some(guest) = machine.user(function) {
        broken.push(format!("guest {guest} runs with {function}"));
    } else if let Some(driver) = machine.driver(function) {
        broken.push(format!("{function} is still bound to {driver}"));
    }
    broken
}

fn define(machine: &Machine, definition: &GuestDefinition) -> Vec<String> {
    let guest = &definition.guest;
    let mut broken = Vec::new();
    if machine.runs(guest) {
        broken.push(format!("guest {guest} runs"));
    }
    for function in definition.host_functions() {
        broken.extend(exists(machine, function));
        let user = machine.user(function).filter(|other| *other != guest);
        let twice = user.or_else(|| machine.also_given_to(function, guest));
        if let Some(other) = twice {
            broken.push(format!("{function} is given to {guest} and to {other}"));
        }
    }
    broken
}

fn interface(machine: &Machine, action: &Action) -> Vec<String> {
    let (Action::Function(FunctionAction::SetMac { function, .. })
    | Action::Function(FunctionAction::Rename { function, .. })
    | Action::Function(FunctionAction::SetMtu { function, .. })
    | Action::Function(FunctionAction::SetLink { function, .. })
    | Action::Function(FunctionAction::AddAddress { function, .. })
    | Action::Function(FunctionAction::RemoveAddress { function, .. })) = action
    else {
        return Vec::new();
    };
    let Some(found) = machine.interface(*function) else {
        return on_host(machine, *function);
    };
    let wrong = match action {
        Action::Function(FunctionAction::Rename { to, .. }) if found.up => {
            Some(format!("it is up and cannot be renamed to {to}"))
        }
        Action::Function(FunctionAction::SetLink { direction, .. })
            if found.up == (*direction == Direction::Up) =>
        {
            Some("its link is that way already".to_owned())
        }
        Action::Function(FunctionAction::AddAddress { address, .. }) if found.addresses.contains(address) => {
            Some(format!("it has {address} already"))
        }
        Action::Function(FunctionAction::AddAddress { address, .. })
            if address.ip().is_ipv6() && !found.up =>
        {
            Some(format!("it is down and would not keep {address}"))
        }
        Action::Function(FunctionAction::RemoveAddress { address, .. })
            if !found.addresses.contains(address) =>
        {
            Some(format!("it does not have {address}"))
        }
        _ => None,
    };
    wrong.into_iter().map(|wrong| format!("the interface of {function}: {wrong}")).collect()
}

fn link(machine: &Machine, pf: Bdf) -> Vec<String> {
    let mut broken = on_host(machine, pf);
    if machine.interface(pf).is_some_and(|interface| !interface.up) {
        broken.push(format!("{pf} is down, and will not have a link"));
    }
    broken
}

fn exists(machine: &Machine, function: Bdf) -> Vec<String> {
    let there = machine.is_vf(function) == Some(false) || machine.present(function).is_some();
    if there { vec![] } else { vec![format!("{function} does not exist")] }
}

fn on_host(machine: &Machine, function: Bdf) -> Vec<String> {
    match (machine.interface(function), machine.user(function)) {
        (Some(_), _) => vec![],
        (None, Some(guest)) => vec![format!("the interface of {function} is inside {guest}")],
        (None, None) => vec![format!("{function} has no interface")],
    }
}

/// Whether `function` is bound to the network driver that its PF's VFs have.
pub fn bound_for_network(machine: &Machine, function: Bdf) -> bool {
    let wanted = machine.pf(function).and_then(|pf| pf.driver.as_deref()).and_then(vf_driver);
    wanted.is_some() && machine.driver(function) == wanted
}
