//! A machine as far as a plan can change it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use penstock_model::{
    Bdf, DataPath, GuestName, Inventory, Mac, NicName, VfAttribute, VfIndex,
    inventory::{
        EswitchMode, FoundGuest, Interface, NvmeController, NvmeVirtualization, Pf, PresentVf, Sriov,
        SwitchMode, Vf, VfState,
    },
};

use super::{
    drive, eswitch,
    interface::{change, lose, new_interface, restore},
    realtime,
};
use crate::{
    Action, BootAction, FileAction, FunctionAction, GuestAction, RealTimeAction, Step,
    action::GuestDefinition,
};

/// Where a function is in the inventory.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    pub pf: usize,
    pub vf: Option<usize>,
}

/// The simulated machine.
pub struct Machine {
    pub inventory: Inventory,
    seats: HashMap<Bdf, Seat>,
    /// The same of drives.
    drives: HashMap<Bdf, Seat>,
    /// Interfaces that went into guests in this plan, with the PF's permanent MAC.
    inside: HashMap<Bdf, (Interface, Option<Mac>)>,
    /// Definitions written in this plan.
    pub definitions: HashMap<GuestName, GuestDefinition>,
    /// The embedded switches of VMs' NICs that run.
    switches: HashSet<(GuestName, NicName)>,
    /// The VMs' NICs whose functions have their taps.
    taps: HashSet<(GuestName, NicName)>,
    /// Functions of guests that are defined, as far as known.
    owned: HashMap<GuestName, Vec<Bdf>>,
    /// Which guests that were defined in this plan have which function.
    defined: HashMap<Bdf, BTreeSet<GuestName>>,
    /// Which running guest has which function, or has it as an uplink.
    users: HashMap<Bdf, GuestName>,
    /// PFs whose VFs were made, and functions that were bound, in this plan.
    touched: HashSet<Bdf>,
    /// Guests that were waited for until they were ready.
    ready: HashSet<GuestName>,
    /// PFs whose link was waited for, and for which guest.
    linked: HashSet<(Bdf, Option<GuestName>)>,
    /// PFs whose embedded switch came back to legacy mode in this plan.
    came_back: HashSet<Bdf>,
    /// Functions of which the way back restores how the host used their interface.
    restored: HashSet<Bdf>,
}

impl Machine {
    pub fn new(inventory: &Inventory) -> Machine {
        let mut seats = HashMap::new();
        for (pf, function) in inventory.pfs.iter().enumerate() {
            seats.insert(function.bdf, Seat { pf, vf: None });
            for (vf, function) in function.sriov.iter().flat_map(|sriov| &sriov.vfs).enumerate() {
                seats.insert(function.bdf, Seat { pf, vf: Some(vf) });
            }
        }
        let mut drives = HashMap::new();
        for (pf, drive) in inventory.nvme.iter().enumerate() {
            drives.insert(drive.bdf, Seat { pf, vf: None });
            for (vf, function) in drive.sriov.iter().flat_map(|sriov| &sriov.vfs).enumerate() {
                drives.insert(function.bdf, Seat { pf, vf: Some(vf) });
            }
        }
        let running = || inventory.guests.iter().filter(|(_, found)| found.running);
        Machine {
            seats,
            drives,
            inside: HashMap::new(),
            definitions: HashMap::new(),
            switches: running()
                .flat_map(|(guest, found)| {
                    found.nics.difference(&found.taps).map(|nic| (guest.clone(), nic.clone()))
                })
                .collect(),
            taps: running()
                .flat_map(|(guest, found)| found.taps.iter().map(|nic| (guest.clone(), nic.clone())))
                .collect(),
            defined: HashMap::new(),
            owned: running().map(|(guest, found)| (guest.clone(), found.functions.clone())).collect(),
            users: running()
                .flat_map(|(guest, found)| {
                    let all = found.functions.iter().chain(&found.uplinks);
                    all.map(move |bdf| (*bdf, guest.clone()))
                })
                .collect(),
            touched: HashSet::new(),
            ready: HashSet::new(),
            linked: HashSet::new(),
            came_back: HashSet::new(),
            restored: HashSet::new(),
            inventory: inventory.clone(),
        }
    }

    pub fn seat(&self, function: Bdf) -> Option<Seat> {
        self.seats.get(&function).copied()
    }

    /// The PF at `pf`, or the PF of the VF at `pf`.
    pub fn pf(&self, function: Bdf) -> Option<&Pf> {
        self.inventory.pfs.get(self.seat(function)?.pf)
    }

    pub fn sriov(&self, pf: Bdf) -> Option<&Sriov> {
        match self.drive(pf) {
            Some(drive) => drive.sriov.as_ref(),
            None => self.pf(pf)?.sriov.as_ref(),
        }
    }

    /// Whether it is a PF, of a NIC or of a drive, or a VF of one; `None` for what is neither.
    pub fn is_vf(&self, function: Bdf) -> Option<bool> {
        let seat = self.seats.get(&function).or_else(|| self.drives.get(&function))?;
        Some(seat.vf.is_some())
    }

    /// The drive at `function`, or that of the VF at `function`.
    pub fn drive(&self, function: Bdf) -> Option<&NvmeController> {
        self.inventory.nvme.get(self.drives.get(&function)?.pf)
    }

    /// What the drive says of its VFs by now.
    fn virtualization_slot(&mut self, drive: Bdf) -> Option<&mut NvmeVirtualization> {
        let seat = self.drives.get(&drive)?;
        self.inventory.nvme.get_mut(seat.pf)?.virtualization.as_mut()
    }

    /// VF `index` of `pf`, if it exists now.
    pub fn vf(&self, pf: Bdf, index: VfIndex) -> Option<(&Vf, &PresentVf)> {
        let vf = self.sriov(pf)?.vfs.get(usize::from(index.get()))?;
        Some((vf, vf.present.as_ref()?))
    }

    /// The VF at `function`, if it exists now.
    pub fn present(&self, function: Bdf) -> Option<&PresentVf> {
        let seat = self.seats.get(&function).or_else(|| self.drives.get(&function))?;
        self.sriov(function)?.vfs.get(seat.vf?)?.present.as_ref()
    }

    /// The driver of a function that exists.
    pub fn driver(&self, function: Bdf) -> Option<&str> {
        if self.is_vf(function)? {
            return self.present(function)?.driver.as_deref();
        }
        match self.drive(function) {
            Some(drive) => drive.driver.as_deref(),
            None => self.pf(function)?.driver.as_deref(),
        }
    }

    /// The interface of a function, if it is on the host.
    pub fn interface(&self, function: Bdf) -> Option<&Interface> {
        match self.seat(function)?.vf {
            None => self.pf(function)?.interface.as_ref(),
            Some(_) => self.present(function)?.interface.as_ref(),
        }
    }

    /// The interface that a function took into a guest in this plan.
    pub fn taken(&self, function: Bdf) -> Option<&Interface> {
        self.inside.get(&function).map(|(interface, _)| interface)
    }

    /// The running guest that has `function`, or has it as an uplink.
    pub fn user(&self, function: Bdf) -> Option<&GuestName> {
        self.users.get(&function)
    }

    pub fn guest(&self, guest: &GuestName) -> Option<&FoundGuest> {
        self.inventory.guests.get(guest)
    }

    /// Whether a guest is there, running or suspended.
    pub fn runs(&self, guest: &GuestName) -> bool {
        self.guest(guest).is_some_and(|found| found.running)
    }

    /// What the embedded switch of a NIC that a guest owns has for a VF, as far as it tells; or, with `None`, for the one function of a
    /// container's.
    pub fn port(&self, guest: &GuestName, nic: &NicName, vf: Option<VfIndex>) -> Option<&VfState> {
        self.guest(guest)?.ports.get(nic)?.get(vf.map_or(0, |vf| usize::from(vf.get())))
    }

    /// Whether a guest is there and suspended.
    pub fn suspended(&self, guest: &GuestName) -> bool {
        self.guest(guest).is_some_and(|found| found.running && found.suspended)
    }

    /// Whether a guest was waited for in this plan until it was ready.
    pub fn is_ready(&self, guest: &GuestName) -> bool {
        self.ready.contains(guest)
    }

    /// Whether the link of `pf` was waited for in this plan, for `guest`.
    pub fn is_linked(&self, pf: Bdf, guest: &GuestName) -> bool {
        self.linked.contains(&(pf, Some(guest.clone())))
    }

    /// Takes a step.
    pub fn take(&mut self, step: &Step) {
        if let Action::Function(FunctionAction::AwaitLink { pf, .. }) = &step.action {
            self.linked.insert((*pf, step.guest.clone()));
        }
        self.act(&step.action);
    }

    /// Whether the VFs of `pf` were made in this plan.
    pub fn made_here(&self, pf: Bdf) -> bool {
        self.touched.contains(&pf)
    }

    /// Whether the embedded switch of `pf` came back to legacy mode in this plan.
    pub fn came_back(&self, pf: Bdf) -> bool {
        self.came_back.contains(&pf)
    }

    /// Whether `function` was bound in this plan.
    pub fn bound_here(&self, function: Bdf) -> bool {
        self.touched.contains(&function)
    }

    /// Whether the way back restores how the host uses the interface of `function` now.
    pub fn is_restored(&self, function: Bdf) -> bool {
        self.restored.contains(&function)
    }

    /// A guest other than `guest` that was defined in this plan with `function`.
    pub fn also_given_to(&self, function: Bdf, guest: &GuestName) -> Option<&GuestName> {
        self.defined.get(&function)?.iter().find(|other| *other != guest)
    }

    /// The functions of a guest that is defined, as far as known.
    pub fn functions(&self, guest: &GuestName) -> &[Bdf] {
        self.owned.get(guest).map(Vec::as_slice).unwrap_or_default()
    }

    /// The NICs that a VM owns: as it was defined in this plan, else as it was found.
    pub fn nics(&self, guest: &GuestName) -> Vec<NicName> {
        match self.definitions.get(guest) {
            Some(definition) => definition.nics.iter().map(|nic| nic.name.clone()).collect(),
            None => self.guest(guest).map(|found| found.nics.iter().cloned().collect()).unwrap_or_default(),
        }
    }

    /// The same, those of them that have taps, and those that are vDPA devices.
    fn own_nics(&self, guest: &GuestName) -> (BTreeSet<NicName>, BTreeSet<NicName>, BTreeSet<NicName>) {
        let nics: BTreeSet<NicName> = self.nics(guest).into_iter().collect();
        let taps = nics.iter().filter(|nic| self.at_taps(guest, nic)).cloned().collect();
        let vdpa = match self.definitions.get(guest) {
            Some(definition) => {
                let of_vm = definition.nics.iter().filter(|own| own.nic.path == DataPath::VhostVdpa);
                of_vm.map(|own| own.name.clone()).collect()
            }
            None => self.guest(guest).map(|found| found.vdpa.clone()).unwrap_or_default(),
        };
        (nics, taps, vdpa)
    }

    /// Whether the functions of a NIC that a VM owns are to have taps: as it was defined in this plan, else as it was found.
    pub fn at_taps(&self, guest: &GuestName, nic: &NicName) -> bool {
        match self.definitions.get(guest) {
            Some(definition) => {
                definition.nics.iter().any(|own| own.name == *nic && own.nic.path == DataPath::Tap)
            }
            None => self.guest(guest).is_some_and(|found| found.taps.contains(nic)),
        }
    }

    /// Whether the functions of a VM's NIC have their taps.
    pub fn tapped(&self, guest: &GuestName, nic: &NicName) -> bool {
        self.taps.contains(&(guest.clone(), nic.clone()))
    }

    /// Whether the embedded switch of a VM's NIC runs.
    pub fn switched(&self, guest: &GuestName, nic: &NicName) -> bool {
        self.switches.contains(&(guest.clone(), nic.clone()))
    }

    fn interface_slot(&mut self, function: Bdf) -> Option<&mut Option<Interface>> {
        let Seat { pf, vf } = self.seat(function)?;
        let pf = self.inventory.pfs.get_mut(pf)?;
        match vf {
            None => Some(&mut pf.interface),
            Some(vf) => Some(&mut pf.sriov.as_mut()?.vfs.get_mut(vf)?.present.as_mut()?.interface),
        }
    }

    fn sriov_slot(&mut self, pf: Bdf) -> Option<&mut Sriov> {
        if let Some(seat) = self.drives.get(&pf) {
            return self.inventory.nvme.get_mut(seat.pf)?.sriov.as_mut();
        }
        let seat = self.seat(pf)?;
        self.inventory.pfs.get_mut(seat.pf)?.sriov.as_mut()
    }

    fn present_slot(&mut self, function: Bdf) -> Option<&mut PresentVf> {
        let vf = self.seats.get(&function).or_else(|| self.drives.get(&function))?.vf?;
        self.sriov_slot(function)?.vfs.get_mut(vf)?.present.as_mut()
    }

    /// Does what it can of `action`; what is impossible changes nothing, and the rules have said so.
    pub fn act(&mut self, action: &Action) {
        match action {
            Action::Function(FunctionAction::LeaveAlone { manager, pf, functions }) => {
                let told = self.inventory.managers.entry(*manager).or_default();
                match functions.is_empty() {
                    true => drop(told.remove(pf)),
                    false => drop(told.insert(*pf, functions.clone())),
                }
            }
            Action::Function(FunctionAction::SetAutoprobe { pf, on }) => {
                if let Some(sriov) = self.sriov_slot(*pf) {
                    sriov.autoprobe = *on;
                }
            }
            Action::Function(FunctionAction::SetVfCount { pf, count }) => self.set_vf_count(*pf, *count),
            Action::Function(FunctionAction::SetVfAttribute { pf, vf, attribute }) => {
                let vf =
                    self.sriov(*pf).and_then(|sriov| sriov.vfs.get(usize::from(vf.get()))).map(|vf| vf.bdf);
                if let Some(present) = vf.and_then(|vf| self.present_slot(vf)) {
                    present.attributes.get_or_insert_default().set(attribute);
                }
            }
            Action::Function(FunctionAction::SetDriver { function, driver, .. }) => {
                self.set_driver(*function, driver.as_deref())
            }
            Action::Function(FunctionAction::ResetFunction { .. }) => {}
            Action::Drive(action) => {
                let virtualization = self.virtualization_slot(action.drive());
                if let Some(virtualization) = virtualization {
                    drive::act(virtualization, action);
                }
            }
            Action::Function(FunctionAction::SetSwitchMode { pf, mode }) => {
                if let Some(pf) = self.seat(*pf).and_then(|seat| self.inventory.pfs.get_mut(seat.pf)) {
                    pf.switch_mode = *mode;
                }
            }
            Action::Function(FunctionAction::SetEswitchMode { pf, mode }) => {
                if let Some(pf) = self.seat(*pf).and_then(|seat| self.inventory.pfs.get_mut(seat.pf)) {
                    eswitch::act(pf, *mode);
                }
                if *mode == EswitchMode::Legacy {
                    self.came_back.insert(*pf);
                }
            }
            Action::Guest(GuestAction::DefineGuest(definition)) => {
                let guest = &definition.guest;
                self.forget(guest);
                for function in definition.host_functions() {
                    self.defined.entry(function).or_default().insert(guest.clone());
                }
                self.owned.insert(guest.clone(), definition.host_functions().collect());
                self.definitions.insert(definition.guest.clone(), definition.clone());
                self.inventory.guests.entry(definition.guest.clone()).or_default();
            }
            Action::Guest(GuestAction::UndefineGuest { guest }) => {
                self.forget(guest);
                self.owned.remove(guest);
                self.definitions.remove(guest);
                self.inventory.guests.remove(guest);
            }
            Action::Guest(GuestAction::StartSwitch { guest, nic }) => {
                self.switches.insert((guest.clone(), nic.clone()));
            }
            Action::Guest(GuestAction::StopSwitch { guest, nic }) => {
                self.switches.remove(&(guest.clone(), nic.clone()));
            }
            Action::Guest(GuestAction::MakeTaps { guest, nic }) => {
                self.taps.insert((guest.clone(), nic.clone()));
            }
            Action::Guest(GuestAction::RemoveTaps { guest, nic }) => {
                self.taps.remove(&(guest.clone(), nic.clone()));
            }
            Action::Guest(GuestAction::SetPortAttribute { guest, nic, vf, attribute }) => {
                let ports = self.inventory.guests.get_mut(guest).and_then(|found| found.ports.get_mut(nic));
                let at = vf.map_or(0, |vf| usize::from(vf.get()));
                if let Some(state) = ports.and_then(|ports| ports.get_mut(at)) {
                    state.set(attribute);
                }
            }
            Action::Guest(GuestAction::StartGuest { guest }) => self.start(guest),
            Action::Guest(GuestAction::StopGuest { guest }) => self.stop(guest),
            Action::Guest(GuestAction::CreateGuest { guest }) => {
                self.start(guest);
                self.suspend(guest, true);
            }
            Action::Guest(GuestAction::ResumeGuest { guest }) => self.suspend(guest, false),
            Action::Guest(GuestAction::SuspendGuest { guest }) => self.suspend(guest, true),
            Action::Guest(GuestAction::AwaitGuest { guest, .. }) => {
                self.ready.insert(guest.clone());
                if let Some(found) = self.inventory.guests.get_mut(guest) {
                    found.not_awaited = false;
                    found.unfinished = false;
                }
            }
            Action::Function(FunctionAction::AwaitLink { .. }) => {}
            Action::File(FileAction::WriteFile { path, text }) => {
                self.inventory.files.insert(path.clone(), text.clone());
            }
            Action::File(FileAction::RemoveFile { path }) => {
                self.inventory.files.remove(path);
            }
            // No part of what a model says of a machine.
            Action::Boot(BootAction::EnableUnit { .. }) | Action::Boot(BootAction::SetBootArguments(_)) => {}
            Action::RealTime(RealTimeAction::Tune { .. })
            | Action::RealTime(RealTimeAction::MakePartition { .. })
            | Action::RealTime(RealTimeAction::RemovePartition { .. })
            | Action::Guest(GuestAction::IsolateGuest { .. })
            | Action::Guest(GuestAction::ScheduleGuest { .. })
            | Action::RealTime(RealTimeAction::PlaceInterrupts { .. })
            | Action::RealTime(RealTimeAction::MakeResctrlGroup { .. })
            | Action::RealTime(RealTimeAction::RemoveResctrlGroup { .. })
            | Action::RealTime(RealTimeAction::SetSchemata { .. }) => {
                realtime::act(&mut self.inventory, action)
            }
            Action::Function(FunctionAction::RestoreInterface { function, setup }) => {
                self.restored.insert(*function);
                if let Some(Some(interface)) = self.interface_slot(*function) {
                    restore(interface, setup);
                }
            }
            Action::Function(FunctionAction::SetMac { function, .. })
            | Action::Function(FunctionAction::Rename { function, .. })
            | Action::Function(FunctionAction::SetMtu { function, .. })
            | Action::Function(FunctionAction::SetLink { function, .. })
            | Action::Function(FunctionAction::AddAddress { function, .. })
            | Action::Function(FunctionAction::RemoveAddress { function, .. }) => {
                if let Some(Some(interface)) = self.interface_slot(*function) {
                    change(interface, action);
                }
            }
        }
    }

    /// Takes a definition of this plan back, as far as it says who has what.
    fn forget(&mut self, guest: &GuestName) {
        let functions = self.definitions.get(guest).into_iter().flat_map(GuestDefinition::host_functions);
        for function in functions {
            if let Some(guests) = self.defined.get_mut(&function) {
                guests.remove(guest);
            }
        }
    }

    fn set_vf_count(&mut self, pf: Bdf, count: u16) {
        self.touched.insert(pf);
        let reports = self.pf(pf).is_some_and(reports_attributes);
        let Some(sriov) = self.sriov_slot(pf) else { return };
        let autoprobe = sriov.autoprobe;
        sriov.num_vfs = count;
        let mut born = Vec::new();
        for (index, vf) in sriov.vfs.iter_mut().enumerate() {
            if index >= usize::from(count) {
                vf.present = None;
            } else if vf.present.is_none() {
                let attributes = reports.then(VfState::default);
                vf.present = Some(PresentVf { attributes, ..PresentVf::default() });
                born.push(vf.bdf);
            }
        }
        if let Some(virtualization) = self.virtualization_slot(pf) {
            drive::remade(virtualization);
        }
        let driver = self.driver(pf).and_then(vf_driver);
        if let (true, Some(driver)) = (autoprobe, driver) {
            born.into_iter().for_each(|vf| self.set_driver(vf, Some(driver)));
        }
    }

    fn set_driver(&mut self, function: Bdf, driver: Option<&str>) {
        self.touched.insert(function);
        let network = self.pf(function).and_then(|pf| pf.driver.as_deref()).and_then(vf_driver);
        let told = self.pf(function).is_some_and(tells_mac);
        let kept = self.present(function).and_then(|present| present.attributes.as_ref());
        let admin = kept.filter(|_| told).map(|state| state.mac);
        if let Some(present) = self.present_slot(function) {
            present.driver = driver.map(str::to_owned);
            present.interface =
                (driver.is_some() && driver == network).then(|| new_interface(function, admin)).flatten();
        }
    }

    /// Whether the driver that `function` has gives it an interface.
    fn drives_network(&self, function: Bdf) -> bool {
        let network = self.pf(function).and_then(|pf| pf.driver.as_deref()).and_then(vf_driver);
        let is_vf = self.seat(function).is_some_and(|seat| seat.vf.is_some());
        !is_vf || (network.is_some() && self.driver(function) == network)
    }

    fn start(&mut self, guest: &GuestName) {
        let functions = self.functions(guest).to_vec();
        for function in &functions {
            let taken = self.interface_slot(*function).and_then(Option::take);
            let seat = self.seat(*function);
            // The permanent MAC is read through the interface, which the host sees no more.
            let permanent = seat
                .filter(|seat| seat.vf.is_none())
                .and_then(|seat| self.inventory.pfs.get_mut(seat.pf)?.permanent_mac.take());
            if let Some(interface) = taken {
                self.inside.insert(*function, (interface, permanent));
            }
            self.users.insert(*function, guest.clone());
        }
        let uplinks = self.uplinks(guest);
        self.users.extend(uplinks.iter().map(|uplink| (*uplink, guest.clone())));
        let home_drivers = self.home_drivers(guest);
        let (nics, taps, vdpa) = self.own_nics(guest);
        let defined = self.definitions.get(guest);
        let scheduling = defined.and_then(|definition| definition.scheduling);
        let definition = match defined {
            Some(defined) => defined.as_found(),
            None => self.guest(guest).and_then(|found| found.definition.clone()),
        };
        let found = FoundGuest {
            running: true,
            not_awaited: true,
            functions,
            home_drivers,
            nics,
            taps,
            vdpa,
            uplinks,
            scheduling,
            definition,
            ..FoundGuest::default()
        };
        self.inventory.guests.insert(guest.clone(), found);
    }

    fn suspend(&mut self, guest: &GuestName, suspended: bool) {
        if let Some(found) = self.inventory.guests.get_mut(guest) {
            found.suspended = suspended;
        }
    }

    fn stop(&mut self, guest: &GuestName) {
        self.ready.remove(guest);
        for uplink in self.uplinks(guest) {
            self.users.remove(&uplink);
        }
        for function in self.functions(guest).to_vec() {
            self.users.remove(&function);
            let admin = self.present(function).and_then(|present| present.attributes.as_ref()).map(|s| s.mac);
            let back = match self.inside.remove(&function) {
                Some((mut interface, permanent)) => {
                    if let Some(seat) = self.seat(function).filter(|seat| seat.vf.is_none()) {
                        self.inventory.pfs[seat.pf].permanent_mac = permanent;
                    }
                    lose(&mut interface);
                    Some(interface)
                }
                None if self.drives_network(function) => new_interface(function, admin),
                None => None,
            };
            if let Some(slot) = self.interface_slot(function) {
                *slot = back;
            }
        }
        let home_drivers = self.home_drivers(guest);
        let (nics, taps, vdpa) = self.own_nics(guest);
        self.inventory
            .guests
            .insert(guest.clone(), FoundGuest { home_drivers, nics, taps, vdpa, ..FoundGuest::default() });
    }

    /// The VFs that stay on the host as uplinks of a guest's NICs: as it was defined in this plan, else as it was found.
    fn uplinks(&self, guest: &GuestName) -> BTreeSet<Bdf> {
        match self.definitions.get(guest) {
            Some(definition) => {
                let vfs = definition.nics.iter().filter(|own| own.nic.uplink_settings.is_some());
                vfs.filter_map(|own| own.uplink_at).collect()
            }
            None => self.guest(guest).map(|found| found.uplinks.clone()).unwrap_or_default(),
        }
    }

    /// The drivers that go back to a guest's functions: as it was defined in this plan, else as it was found.
    fn home_drivers(&self, guest: &GuestName) -> BTreeMap<Bdf, String> {
        match self.definitions.get(guest) {
            Some(definition) => {
                let functions = definition.functions.iter();
                functions.filter_map(|owned| Some((owned.function, owned.home_driver.clone()?))).collect()
            }
            None => self.guest(guest).map(|found| found.home_drivers.clone()).unwrap_or_default(),
        }
    }
}

/// Whether a state has an attribute at its value.
pub fn has_attribute(state: &VfState, attribute: &VfAttribute) -> bool {
    let mut same = state.clone();
    same.set(attribute);
    same == *state
}

/// The network driver of the VFs of a PF driver.
pub fn vf_driver(pf_driver: &str) -> Option<&'static str> {
    Some(match pf_driver {
        "igb" => "igbvf",
        "ixgbe" => "ixgbevf",
        "i40e" | "ice" => "iavf",
        "mlx4_core" => "mlx4_core",
        "mlx5_core" => "mlx5_core",
        "bnxt_en" => "bnxt_en",
        "be2net" => "be2net",
        "virtio-pci" => "virtio-pci",
        _ => return None,
    })
}

/// Whether attributes of a PF's VFs are kept: by its driver, or for a virtio PF by an embedded switch, whose mode is known then.
pub fn reports_attributes(pf: &Pf) -> bool {
    pf.driver.as_deref().is_some_and(|driver| driver != VIRTIO) || pf.switch_mode != SwitchMode::Unreported
}

/// Whether a VF's interface has the address that is kept for the VF.
pub fn tells_mac(pf: &Pf) -> bool {
    pf.driver.as_deref().is_some_and(|driver| driver != VIRTIO)
}

/// A virtio device's driver.
const VIRTIO: &str = "virtio-pci";
