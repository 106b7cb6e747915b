//! Whether the machine is at the end what the model says.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
};

use penstock_model::{
    Bdf, DataPath, FreeDriver, FunctionName, FunctionOwners, Guest, GuestKind, GuestName, Inventory, Mac,
    Model, Nic, NicName, SlotName, Uplink, VfAttribute, VfIndex,
    inventory::{Interface, Pf, PresentVf, SwitchMode, Upper},
    pci::gives_interface,
};
use penstock_render::{FoundMachine, render};

use super::{
    Finding,
    definition::defined,
    drive, eswitch,
    excuse::excused,
    external,
    machine::{Machine, has_attribute, reports_attributes, vf_driver},
    realtime,
    rules::{VFIO, bound_for_network},
};
use crate::{
    Action, FileAction, Plan,
    action::{GuestDefinition, GuestNic},
};

/// Adds what is not as the model says.
pub fn judge(
    model: &Model,
    inventory: &Inventory,
    plan: &Plan,
    machine: &Machine,
    findings: &mut Vec<Finding>,
) {
    let mut owners: HashMap<&FunctionName, &GuestName> = HashMap::new();
    for (guest, owner) in &model.guests {
        owners.extend(owner.functions.iter().map(|function| (&function.name, guest)));
    }
    owners.extend(model.uplink_vfs().map(|uplink| (uplink.function, uplink.guest)));
    let judge = Judge { model, inventory, plan, machine, owners, functions: model.function_owners() };
    let mut messages = Vec::new();
    let mut seen = HashSet::new();
    for (name, nic) in &model.nics {
        let bdf = plan.nics.get(name).copied();
        let Some(pf) = bdf.and_then(|bdf| machine.pf(bdf).filter(|pf| pf.bdf == bdf)) else {
            messages.push(format!("{name} is no PF of this machine"));
            continue;
        };
        if !seen.insert(pf.bdf) {
            messages.push(format!("{name} is {}, which another NIC is already", pf.bdf));
        }
        messages.extend(judge.device(name, nic, pf));
        messages.extend(judge.interface(name, nic, pf));
        messages.extend(judge.vfs(name, pf));
    }
    for (name, guest) in &model.guests {
        messages.extend(judge.guest(name, guest));
    }
    messages.extend(drive::judge(model, plan, machine, |guest| judge.ran(guest)));
    messages.extend(judge.files());
    messages.extend(judge.managers());
    messages.extend(realtime::judge(model, plan, machine));
    findings.extend(messages.into_iter().map(|message| Finding { step: None, message }));
}

struct Judge<'a> {
    model: &'a Model,
    inventory: &'a Inventory,
    plan: &'a Plan,
    machine: &'a Machine,
    /// The guests that own functions, or have them as uplinks.
    owners: HashMap<&'a FunctionName, &'a GuestName>,
    /// The same, those that own them alone.
    functions: FunctionOwners<'a>,
}

impl Judge<'_> {
    /// Whether a guest ran before the plan: it is taken as it was.
    fn ran(&self, guest: &GuestName) -> bool {
        self.inventory.guests.get(guest).is_some_and(|found| found.running)
    }

    /// Whether a function was inside a guest before the plan.
    fn was_used(&self, function: Bdf) -> bool {
        self.inventory.guests.values().any(|found| found.running && found.functions.contains(&function))
    }

    fn device(&self, name: &NicName, nic: &Nic, pf: &Pf) -> Vec<String> {
        let mut wrong = Vec::new();
        let before = self.inventory.pf(pf.bdf).unwrap_or(pf);
        let wanted = &nic.matching;
        if wanted.bdf.is_some_and(|bdf| bdf != pf.bdf) {
            wrong.push(format!(
                "{name} was found at {}, which is not the PCI address that it matches",
                pf.bdf
            ));
        }
        if let (Some(wanted), Some(mac)) = (wanted.mac, before.permanent_mac)
            && wanted != mac
        {
            wrong.push(format!("{name} was found with MAC {mac}, but it matches {wanted}"));
        }
        if wanted.serial.is_some() && wanted.serial != before.identity.serial {
            wrong.push(format!("{name} was found with another serial number than it matches"));
        }
        if let Some(slot) = &wanted.slot {
            let onboard = before.identity.onboard.map(|number| format!("onboard{number}"));
            let places = [&before.identity.slot, &before.identity.label].into_iter().flatten();
            if !places.map(SlotName::as_str).chain(onboard.as_deref()).any(|place| place == slot.as_str()) {
                wrong.push(format!("{name} was not found in the slot {slot}, which it matches"));
            }
        }
        if wanted.port.is_some_and(|port| port != before.bdf.function()) {
            wrong.push(format!("{name} was found at another port than it matches"));
        }
        if wanted.driver.is_some() && wanted.driver != before.driver {
            wrong.push(format!("{name} was found with another driver than it matches"));
        }
        let (count, autoprobe) =
            pf.sriov.as_ref().map_or((0, false), |sriov| (sriov.num_vfs, sriov.autoprobe));
        if nic.externally_managed {
            wrong.extend(external::changed(name, nic, before, pf));
            return wrong;
        }
        if count != nic.vfs {
            wrong.push(format!("{name} has {count} VFs, and is to have {}", nic.vfs));
        }
        if autoprobe && nic.vfs > 0 {
            wrong.push(format!("driver autoprobe of {name} is on"));
        }
        if let Some(loopback) = nic.loopback {
            let otherwise = if loopback { SwitchMode::Vepa } else { SwitchMode::Veb };
            if pf.switch_mode == otherwise && !self.was_used(pf.bdf) {
                wrong.push(format!("the embedded switch of {name} is in {otherwise} mode"));
            }
        }
        wrong.extend(eswitch::wrong(name, nic, before, pf).filter(|_| !self.was_used(pf.bdf)));
        wrong
    }

    fn interface(&self, name: &NicName, nic: &Nic, pf: &Pf) -> Vec<String> {
        if self.was_used(pf.bdf) || nic.externally_managed {
            return Vec::new();
        }
        let own = FunctionName { nic: name.clone(), vf: None };
        let owner = self.owners.get(&own);
        let Some(found) = self.machine.taken(pf.bdf).or(pf.interface.as_ref()) else {
            return vec![format!("{name} has no interface")];
        };
        let mut wrong = Vec::new();
        if let Some(wanted) = nic.interface.as_ref().filter(|wanted| **wanted != found.name) {
            wrong.push(format!("{name}'s interface is called {}, not {wanted}", found.name));
        }
        if let Some(wanted) = nic.mtu.filter(|wanted| wanted.get() != found.mtu) {
            wrong.push(format!("{name}'s MTU is {}, not {wanted}", found.mtu));
        }
        if let Some(guest) = owner {
            let function = self.model.guests[*guest].functions.iter().find(|function| function.name == own);
            if let Some(mac) =
                function.and_then(|function| function.settings.mac).filter(|mac| *mac != found.mac)
            {
                wrong.push(format!("{name}'s MAC is {}, not {mac}", found.mac));
            }
            return wrong;
        }
        if !found.up {
            wrong.push(format!("{name}'s interface is down"));
        }
        // Nothing is to be lost: what was there before still is.
        let before = self.inventory.pf(pf.bdf).and_then(|pf| pf.interface.as_ref());
        let kept = before.into_iter().flat_map(|before| &before.addresses);
        for address in nic.addresses.iter().chain(kept) {
            if !found.addresses.contains(address) {
                wrong.push(format!("{name}'s interface lacks {address}"));
            }
        }
        wrong.extend(before.and_then(|before| route_lost(name, before, found)));
        wrong
    }

    fn vfs(&self, name: &NicName, pf: &Pf) -> Vec<String> {
        let mut wrong = Vec::new();
        let external = self.model.nics[name].externally_managed;
        let keeps = reports_attributes(pf) && !self.was_used(pf.bdf) && !external;
        let before = self.inventory.pf(pf.bdf);
        let base = before.and_then(|pf| pf.permanent_mac).or(self.model.nics[name].matching.mac);
        for (index, settings) in self.model.vfs(name) {
            let Some((vf, present)) = self.machine.vf(pf.bdf, index) else {
                wrong.push(format!("there is no {name}#{index}"));
                continue;
            };
            let function = FunctionName { nic: name.clone(), vf: Some(index) };
            let owner = self.owners.get(&function).copied();
            let uplink = self.functions.is_uplink(&function);
            if owner.is_some_and(|guest| self.ran(guest))
                || self.machine.user(vf.bdf).is_some_and(|user| self.ran(user))
            {
                continue;
            }
            let mut settings = settings.clone();
            let derived = || base.filter(|_| !external).map(|base| Mac::derived(base, index));
            settings.mac = settings.mac.or_else(derived);
            if let (Some(guest), true) = (owner, uplink) {
                wrong.extend(self.uplink(name, index, vf.bdf, guest, settings.mac));
            } else if let Some(guest) = owner {
                let to_vm = self.model.guests[guest].kind == GuestKind::Vm;
                let bound = match to_vm {
                    true => present.driver.as_deref() == Some(VFIO),
                    false => bound_for_network(self.machine, vf.bdf),
                };
                if !bound {
                    wrong.push(format!(
                        "{name}#{index} belongs to {guest} and is bound to {}",
                        present.driver.as_deref().unwrap_or("no driver")
                    ));
                }
                let inside = self.machine.taken(vf.bdf).map(|interface| interface.mac);
                if !to_vm && settings.mac.is_some() && !external && inside != settings.mac {
                    wrong.push(format!("{guest} got {name}#{index} with another MAC than the model wants"));
                }
            }
            // While its embedded switch changes its mode a PF has no VFs.
            let kept = before
                .filter(|before| external || eswitch::mode(before) == eswitch::mode(pf))
                .and_then(|pf| pf.sriov.as_ref())
                .filter(|sriov| external || sriov.num_vfs == self.model.nics[name].vfs);
            let had = kept.and_then(|sriov| sriov.vfs.get(usize::from(index.get()))?.present.as_ref());
            let in_use = had.is_some_and(|had| self.in_use(pf, vf.bdf, had));
            if owner.is_none() && !self.drives_free(name, pf, vf.bdf, had, present, in_use) {
                wrong.push(format!(
                    "{name}#{index} belongs to no guest, had the driver {} and is left with {}",
                    had.and_then(|had| had.driver.as_deref()).unwrap_or("none"),
                    present.driver.as_deref().unwrap_or("none")
                ));
            }
            let were_there = had.and_then(|had| had.interface.as_ref());
            if let (Some(before), Some(now), None) =
                (were_there, &present.interface, owner.filter(|_| !uplink))
            {
                wrong.extend(setup_lost(&format!("{name}#{index}"), before, now));
            }
            if !keeps || (owner.is_none() && in_use) {
                continue;
            }
            for attribute in settings.attributes() {
                let has = present.attributes.as_ref().is_some_and(|state| has_attribute(state, &attribute));
                if !has
                    && !excused(self.model, &self.functions, self.inventory, pf.bdf, name, index, &attribute)
                {
                    wrong.push(format!("{name}#{index} does not have {attribute}"));
                }
            }
        }
        wrong
    }

    /// What is wrong with the interface of a VF that is an uplink of a guest.
    fn uplink(
        &self,
        nic: &NicName,
        index: VfIndex,
        vf: Bdf,
        guest: &GuestName,
        mac: Option<Mac>,
    ) -> Option<String> {
        let is = format!("{nic}#{index} is an uplink of {guest} and");
        let Some(interface) = self.machine.interface(vf).filter(|_| bound_for_network(self.machine, vf))
        else {
            return Some(format!("{is} has no interface on the host"));
        };
        if !interface.up {
            return Some(format!("{is} is down"));
        }
        mac.filter(|mac| interface.mac != *mac).map(|mac| format!("{is} has {}, not {mac}", interface.mac))
    }

    /// Whether a VF that no guest owns was somebody else's before the plan.
    fn in_use(&self, pf: &Pf, function: Bdf, had: &PresentVf) -> bool {
        let network = pf.driver.as_deref().and_then(vf_driver);
        // What a driver gives its functions that nobody here knows is not known either.
        let drives = |driver: &str| network.map_or_else(|| gives_interface(driver), |known| driver == known);
        let elsewhere = had.driver.as_deref().is_some_and(drives) && had.interface.is_none();
        let lifelines = self.inventory.lifelines.as_ref();
        elsewhere || lifelines.is_some_and(|found| found.holders.contains_key(&function))
    }

    /// Whether a VF that no guest owns has the driver that it is to have. What somebody uses or has chosen is left as it is, and so
    /// is what is there already, unless the model asks for another.
    fn drives_free(
        &self,
        name: &NicName,
        pf: &Pf,
        function: Bdf,
        had: Option<&PresentVf>,
        now: &PresentVf,
        in_use: bool,
    ) -> bool {
        let had_driver = had.and_then(|had| had.driver.as_ref());
        let same = now.driver.as_ref() == had_driver;
        let nic = &self.model.nics[name];
        let network = || pf.driver.as_deref().and_then(vf_driver);
        let wanted = match nic.free_driver {
            _ if nic.externally_managed || in_use => return same,
            Some(FreeDriver::None) => return same,
            None if had_driver.is_some() => return same,
            Some(FreeDriver::VfioPci) => Some(VFIO),
            None | Some(FreeDriver::Host) => network(),
        };
        let chosen = self.inventory.chosen_drivers.contains_key(&function)
            || had.is_some_and(|had| had.driver_override.is_some());
        now.driver.as_deref() == wanted || (same && (self.was_used(pf.bdf) || chosen))
    }

    fn guest(&self, name: &GuestName, guest: &Guest) -> Vec<String> {
        let wanted: Option<Vec<Bdf>> =
            guest.functions.iter().map(|function| self.address(&function.name)).collect();
        let Some(wanted) = wanted else {
            return vec![format!("{name} owns a function that is not here")];
        };
        let mut wrong = Vec::new();
        if !self.machine.runs(name) || self.machine.suspended(name) {
            wrong.push(format!("guest {name} does not run"));
        }
        let ran = self.ran(name) && !self.inventory.guests.get(name).is_some_and(|found| found.suspended);
        let tells = guest.kind == GuestKind::Vm || guest.functions.iter().any(|of| of.name.vf.is_none());
        if tells && !ran && !self.machine.is_ready(name) {
            wrong.push(format!("no step waits until guest {name} is ready"));
        }
        let mut has = self.machine.functions(name).to_vec();
        let mut should = wanted.clone();
        should.extend(
            guest.drives.iter().filter_map(|owned| drive::address(self.plan, self.machine, &owned.name)),
        );
        has.sort_unstable();
        should.sort_unstable();
        if has != should {
            wrong.push(format!("guest {name} has other functions than the model gives it"));
        }
        match self.machine.definitions.get(name) {
            Some(definition) => {
                wrong.extend(defined(self.model, self.inventory, guest, definition));
                wrong.extend(self.given(name, guest, &wanted, definition));
                wrong.extend(definition.nics.iter().filter_map(|own| self.switched(name, own)));
            }
            None if self.ran(name) => wrong.extend(self.ports(name, guest)),
            None => wrong.push(format!("guest {name} was not defined")),
        }
        wrong
    }

    /// Whether what can change while a VM is there is as the model says, at the switches that tell.
    fn ports(&self, name: &GuestName, guest: &Guest) -> Vec<String> {
        let mut wrong = Vec::new();
        for (nic, own) in &guest.nics {
            for (vf, _, settings) in own.functions() {
                // Of the PF of a VM's NIC there is nothing to set.
                if vf.is_none() && !own.is_of_container() {
                    continue;
                }
                let Some(state) = self.machine.port(name, nic, vf) else { continue };
                let attributes = settings.attributes();
                let live = attributes
                    .iter()
                    .filter(|of| !matches!(of, VfAttribute::Mac(_) | VfAttribute::LinkState(_)));
                wrong.extend(live.filter(|of| !has_attribute(state, of)).map(|of| {
                    let function = FunctionName { nic: nic.clone(), vf };
                    format!("{name}/{function} does not have {of}")
                }));
            }
        }
        wrong
    }

    /// What is wrong with a NIC that a VM owns: where its uplink leads to, and whether its switch runs or its taps are there.
    fn switched(&self, name: &GuestName, own: &GuestNic) -> Option<String> {
        let leads = match &own.nic.uplink {
            Some(Uplink::Function(function)) => self.address(function),
            _ => None,
        };
        if own.uplink_at != leads {
            return Some(format!("the uplink of {name}/{} leads elsewhere than the model says", own.name));
        }
        match own.nic.path {
            DataPath::Switch | DataPath::SwitchTap | DataPath::VirtioVdpa | DataPath::VhostVdpa => {
                (!self.machine.switched(name, &own.name))
                    .then(|| format!("the embedded switch of {name}/{} does not run", own.name))
            }
            DataPath::Tap => (!self.machine.tapped(name, &own.name))
                .then(|| format!("the functions of {name}/{} have no taps", own.name)),
        }
    }

    /// Whether those who configure interfaces were told of all functions of guests, and of no others.
    fn managers(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (manager, told) in &self.machine.inventory.managers {
            for (name, pf) in &self.plan.nics {
                let owned = self.owners.keys().filter(|function| function.nic == *name);
                let wanted: BTreeSet<Bdf> = owned.filter_map(|function| self.address(function)).collect();
                if told.get(pf).cloned().unwrap_or_default() != wanted {
                    wrong.push(format!(
                        "{manager} is not told to leave the guests' functions of {name} alone"
                    ));
                }
            }
        }
        wrong
    }

    /// Whether every file that is to be made is there as it is rendered, and no other was touched.
    fn files(&self) -> Vec<String> {
        let found = FoundMachine { inventory: self.inventory, nics: &self.plan.nics };
        let files = match render(self.model, Some(found)) {
            Ok(files) => files,
            Err(error) => return vec![error.to_string()],
        };
        let stale =
            files.iter().filter(|file| self.machine.inventory.files.get(&file.path) != Some(&file.text));
        let mut wrong: Vec<String> =
            stale.map(|file| format!("{} is not what is made for {}", file.path, file.guest)).collect();
        for step in &self.plan.steps {
            if let Action::File(FileAction::WriteFile { path, .. })
            | Action::File(FileAction::RemoveFile { path }) = &step.action
                && files.iter().all(|file| file.path != *path)
            {
                wrong.push(format!("{path} is touched, and the model does not name it"));
            }
        }
        wrong
    }

    /// Whether a definition hands the functions over as the model says.
    fn given(
        &self,
        name: &GuestName,
        guest: &Guest,
        wanted: &[Bdf],
        definition: &GuestDefinition,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        if definition.functions.len() != wanted.len() {
            wrong.push(format!("guest {name} is defined with {} functions", definition.functions.len()));
        }
        for ((bdf, model), got) in wanted.iter().zip(&guest.functions).zip(&definition.functions) {
            let before = self.plan.nics.get(&model.name.nic).and_then(|pf| self.inventory.pf(*pf));
            let base = before.and_then(|pf| pf.permanent_mac).or(self
                .model
                .nics
                .get(&model.name.nic)
                .and_then(|nic| nic.matching.mac));
            let outside = self.model.nics.get(&model.name.nic).is_some_and(|nic| nic.externally_managed);
            let derived = || match outside {
                true => external::given_mac(before?, *bdf),
                false => Some(Mac::derived(base?, model.name.vf?)),
            };
            let home = before.filter(|_| outside).and_then(|pf| external::driver(pf, *bdf));
            // One that was defined before may have had the function before.
            let comes_home = self.inventory.guests.contains_key(name) || got.home_driver.as_deref() == home;
            let same = comes_home
                && got.function == *bdf
                && got.interface == model.interface
                && got.addresses == model.addresses
                && got.mtu == model.mtu
                && got.mac == model.settings.mac.or_else(derived)
                && (got.egress_rate, got.ingress_rate) == (model.egress_rate, model.ingress_rate);
            if !same {
                wrong.push(format!("guest {name} does not get {} as the model says", model.name));
            }
        }
        wrong
    }

    fn address(&self, function: &FunctionName) -> Option<Bdf> {
        let pf = *self.plan.nics.get(&function.nic)?;
        match function.vf {
            None => Some(pf),
            Some(index) => Some(self.machine.vf(pf, index)?.0.bdf),
        }
    }
}

/// What an interface that is the host's before and after a plan has lost: all of it stays, whatever was done to its function.
fn setup_lost(name: &str, before: &Interface, now: &Interface) -> Option<String> {
    if before.up && !now.up {
        return Some(format!("{name}'s interface was up, and is down"));
    }
    if before.up && before.name != now.name {
        return Some(format!("{name}'s interface was called {}, and is called {}", before.name, now.name));
    }
    let master = before.master.as_ref().filter(|master| master.takes_ports() && now.master.is_none());
    if let Some(master) = master {
        return Some(format!("{name}'s interface was a port of {}, and is none", master.name));
    }
    let lost =
        before.addresses.iter().find(|address| !address.is_kernel_made() && !now.addresses.contains(address));
    let address = lost.map(|address| format!("{name}'s interface has lost {address}"));
    address.or_else(|| route_lost(name, before, now))
}

/// A route that was over an interface, and is no more, or what was so of a VLAN's interface on it.
fn route_lost(name: impl fmt::Display, before: &Interface, now: &Interface) -> Option<String> {
    let lost = before.routes.iter().find(|route| !now.routes.contains(route));
    let route = lost.map(|route| format!("{name}'s interface has lost the route {route}"));
    route.or_else(|| before.uppers.iter().find_map(|upper| vlan_lost(upper, now)))
}

/// What the interface of a VLAN has lost, which stood on another.
fn vlan_lost(upper: &Upper, lower: &Interface) -> Option<String> {
    let (tag, before) = (upper.vlan.as_ref()?, &upper.interface);
    match lower.uppers.iter().find(|other| other.is_of(tag)) {
        None => Some(format!("{} is gone, the interface of {tag}", before.name)),
        Some(now) => setup_lost(before.name.as_str(), before, &now.interface),
    }
}
