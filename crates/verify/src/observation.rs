//! All that is to be compared with the model, looked at once.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    thread,
    time::{Duration, Instant},
};

use indexmap::IndexMap;
use penstock_host::{InterfaceReport, Place, chain, pci};
use penstock_model::{
    Bdf, FreeDriver, FunctionName, FunctionOwners, GuestName, Inventory, Mac, Model, NicName, inventory::Pf,
    verdict::Vantage,
};

use super::{FreeVf, GuestPlace, Observer, PfObservation, Scope, writer::Unobserved};

/// Everything that was seen, from every vantage.
pub struct Observation<'a> {
    pub model: &'a Model,
    /// Who has which function of the model.
    pub owners: FunctionOwners<'a>,
    pub inventory: &'a Inventory,
    pub nics: &'a IndexMap<NicName, Bdf>,
    places: &'a BTreeMap<GuestName, GuestPlace>,
    host: Home,
    guests: BTreeMap<&'a GuestName, Result<Home, GuestUnobserved>>,
    /// Every function of the model that exists, and where.
    addresses: BTreeMap<FunctionName, Bdf>,
    /// The first function at each of these addresses.
    names: HashMap<Bdf, FunctionName>,
    /// How many VFs each NIC says that it has, and how many of it there are; why they could not be listed, else.
    said: BTreeMap<&'a NicName, Result<(u16, usize), String>>,
    /// The function behind a device of another bus.
    behind: BTreeMap<String, Option<Bdf>>,
    sights: BTreeMap<&'a NicName, Result<PfObservation, String>>,
    /// The VFs that no guest owns.
    free: BTreeMap<FunctionName, Result<FreeVf, String>>,
}

/// A network namespace that functions live in.
pub struct Home {
    pub vantage: Vantage,
    /// A process that lives there; `None` is our own namespace. An error where it is under another kernel.
    pub namespace: Result<Option<u32>, String>,
    /// Where this same program is there, when it is under another kernel.
    pub program: Option<String>,
    /// How long it took to look.
    pub took: Duration,
    pub interfaces: Result<Vec<InterfaceReport>, String>,
    /// Where among the interfaces each function's own is: the first whose device it is, and that does not stand for one of its VFs.
    by_function: HashMap<Bdf, usize>,
    /// Where the first of each name is.
    by_name: HashMap<String, usize>,
}

impl Home {
    /// A home whose functions are not known yet.
    fn of(
        vantage: Vantage,
        namespace: Result<Option<u32>, String>,
        interfaces: Result<Vec<InterfaceReport>, String>,
    ) -> Home {
        let (by_function, by_name) = (HashMap::new(), HashMap::new());
        Home { vantage, namespace, program: None, took: Duration::ZERO, interfaces, by_function, by_name }
    }

    /// Notes where among the interfaces each is, by what is `behind` their devices and by name.
    fn number(&mut self, behind: &BTreeMap<String, Option<Bdf>>) {
        self.by_function.clear();
        self.by_name.clear();
        for (at, report) in self.interfaces.iter().flatten().enumerate() {
            self.by_name.entry(report.interface.name.to_string()).or_insert(at);
            // Representors: `pf0vf3`, `c1pf0vf3`.
            let stands_for_another = report.port_name.as_deref().is_some_and(pci::is_representor);
            let function = report.device.as_ref().and_then(|device| *behind.get(device)?);
            if let Some(function) = function.filter(|_| !stands_for_another) {
                self.by_function.entry(function).or_insert(at);
            }
        }
    }

    /// The interface of the function at this address, where that is here.
    fn interface_of(&self, address: Bdf) -> Option<&InterfaceReport> {
        self.interfaces.as_ref().ok()?.get(*self.by_function.get(&address)?)
    }

    /// The interface of this name.
    pub fn named(&self, name: &str) -> Option<&InterfaceReport> {
        self.interfaces.as_ref().ok()?.get(*self.by_name.get(name)?)
    }
}

/// A guest whose inside was not seen.
#[derive(Clone)]
pub enum GuestUnobserved {
    /// It does not run.
    NotRunning(String),
    /// It runs, and nobody can look inside.
    Closed(String),
    /// Whether it runs could not be found out.
    Unseen(String),
}

impl GuestUnobserved {
    pub fn why(&self) -> String {
        match self {
            GuestUnobserved::NotRunning(why) => format!("the guest does not run: {why}"),
            GuestUnobserved::Closed(why) | GuestUnobserved::Unseen(why) => why.clone(),
        }
    }
}

/// Between two looks at links that are coming up. The kernel's event would come from as many namespaces as there are
/// guests; a look costs one dump in each.
const INTERVAL: Duration = Duration::from_millis(50);

impl<'a> Observation<'a> {
    /// Looks at all that `scope` needs, until those of `awaited` in it that are up have a carrier or have had their time, and free VFs that are
    /// to be the host's have an interface or `timeout` is over.
    #[expect(clippy::too_many_arguments, reason = "all that can be looked at, and how")]
    pub fn look(
        model: &'a Model,
        inventory: &'a Inventory,
        nics: &'a IndexMap<NicName, Bdf>,
        places: &'a BTreeMap<GuestName, GuestPlace>,
        observer: &mut dyn Observer,
        scope: &Scope,
        awaited: &BTreeMap<&FunctionName, Duration>,
        timeout: Duration,
    ) -> Observation<'a> {
        let mut observation = Observation {
            model,
            owners: model.function_owners(),
            inventory,
            nics,
            places,
            host: Home::of(Vantage::Host, Ok(None), Err("not looked at".to_owned())),
            guests: BTreeMap::new(),
            addresses: BTreeMap::new(),
            names: HashMap::new(),
            said: BTreeMap::new(),
            behind: BTreeMap::new(),
            sights: BTreeMap::new(),
            free: BTreeMap::new(),
        };
        let of_guests = |name: &&GuestName| scope.guests.contains(*name) || owns_pf(model, name, scope);
        let guests: BTreeSet<&GuestName> = model.guests.keys().filter(of_guests).collect();
        let functions = guests.iter().flat_map(|name| &model.guests[*name].functions);
        let of_functions: BTreeSet<&NicName> = functions.map(|function| &function.name.nic).collect();
        for name in model.nics.keys() {
            if scope.nics.contains(name) || of_functions.contains(name) {
                observation.find_functions(name, observer);
            }
        }
        // Of several at one address the first stays.
        let names = observation.addresses.iter().rev();
        observation.names = names.map(|(function, address)| (*address, function.clone())).collect();
        observation.look_at_host(observer);
        observation.look_at_guests(guests, observer);
        let began = Instant::now();
        loop {
            let gone = began.elapsed();
            let coming_up = |function: &&FunctionName| {
                observation
                    .interface(function)
                    .is_ok_and(|report| report.interface.up && report.interface.carrier == Some(false))
            };
            let in_time = awaited.iter().filter(|(_, time)| gone < **time).map(|(function, _)| *function);
            let functions: Vec<&FunctionName> = in_time.filter(coming_up).collect();
            if functions.is_empty() {
                break;
            }
            thread::sleep(INTERVAL.min(timeout));
            let owned =
                functions.iter().map(|function| observation.owners.of(function).map(|(guest, _)| guest));
            let owners: Vec<Option<&GuestName>> = owned.collect();
            if owners.contains(&None) {
                observation.look_at_host(observer);
            }
            observation.look_at_guests(owners.into_iter().flatten().collect(), observer);
        }
        let free = observation.free_functions(scope);
        // Network plugins go on meanwhile: who has given a VF back once its PF was asked may have set what the PF tells.
        let given = free.iter().filter(|(vf, _)| !observation.owners.is_uplink(vf)).map(|(_, vf)| *vf);
        let given = given.collect();
        let taken = taken(&given, observer);
        for name in model.nics.keys().filter(|name| scope.nics.contains(*name)) {
            let pf = pf_of(name);
            let seen = match (observation.home(&pf), observation.interface(&pf)) {
                (Ok(home), Ok(report)) => match &home.namespace {
                    Ok(namespace) => observer.pf(*namespace, report.index),
                    Err(why) => Err(why.clone()),
                },
                (Err(dark), _) => Err(dark.why()),
                (
                    _,
                    Err(Unobserved::Absent(why) | Unobserved::Unknown(why) | Unobserved::Unsupported(why)),
                ) => Err(why),
            };
            observation.sights.insert(name, seen);
        }
        observation.look_at_free(free, taken, observer, timeout.saturating_sub(began.elapsed()));
        observation
    }

    fn find_functions(&mut self, name: &'a NicName, observer: &mut dyn Observer) {
        let Some(pf) = self.nics.get(name) else { return };
        self.addresses.insert(pf_of(name), *pf);
        let mut seen = observer.virtual_functions(*pf);
        // They may just have been made or removed.
        if seen.as_ref().is_ok_and(|(said, vfs)| usize::from(*said) != vfs.len()) {
            seen = observer.virtual_functions(*pf);
        }
        let said = seen.map(|(said, vfs)| {
            let count = vfs.len();
            self.addresses.extend(vfs.into_iter().map(|(index, bdf)| {
                let vf = FunctionName { nic: name.clone(), vf: Some(index) };
                (vf, bdf)
            }));
            (said, count)
        });
        self.said.insert(name, said);
    }

    /// The VFs in `scope` that no guest owns, with their addresses.
    fn free_functions(&self, scope: &Scope) -> BTreeMap<FunctionName, Bdf> {
        let own = self
            .model
            .nics
            .iter()
            .filter(|(name, nic)| scope.nics.contains(*name) && !nic.externally_managed);
        let vfs = own.flat_map(|(name, _)| {
            let vfs = self.model.vfs(name);
            vfs.map(|(index, _)| FunctionName { nic: name.clone(), vf: Some(index) })
        });
        vfs.filter(|vf| self.owners.of(vf).is_none())
            .filter_map(|vf| self.addresses.get(&vf).map(|address| (vf, *address)))
            .collect()
    }

    /// Looks at those of `free` that are not among `seen`. A driver may register its interface a while after it has the VF, as that of
    /// Intel's adaptive VFs.
    fn look_at_free(
        &mut self,
        free: BTreeMap<FunctionName, Bdf>,
        mut seen: BTreeMap<Bdf, Result<FreeVf, String>>,
        observer: &mut dyn Observer,
        timeout: Duration,
    ) {
        let began = Instant::now();
        let unseen: BTreeSet<Bdf> =
            free.values().copied().filter(|address| !seen.contains_key(address)).collect();
        if !unseen.is_empty() {
            seen.extend(observer.free_vfs(&unseen));
        }
        let awaited = |vf: &FunctionName| self.model.nics[&vf.nic].free_driver == Some(FreeDriver::Host);
        let awaited: BTreeSet<Bdf> =
            free.iter().filter(|(vf, _)| awaited(vf)).map(|(_, address)| *address).collect();
        loop {
            let late = |(address, vf): (&Bdf, &Result<FreeVf, String>)| {
                let is_late = |vf: &FreeVf| vf.lacks_interface() && vf.unseen.is_none();
                let late = vf.as_ref().is_ok_and(is_late) && awaited.contains(address);
                late.then_some(*address)
            };
            let late: BTreeSet<Bdf> = seen.iter().filter_map(late).collect();
            if late.is_empty() || began.elapsed() >= timeout {
                break;
            }
            thread::sleep(INTERVAL.min(timeout));
            seen.extend(observer.free_vfs(&late));
        }
        self.free = free.into_iter().filter_map(|(vf, address)| Some((vf, seen.remove(&address)?))).collect();
    }

    fn look_at_host(&mut self, observer: &mut dyn Observer) {
        self.host.interfaces = observer.interfaces();
        self.trace_devices(observer);
    }

    fn look_at_guests(&mut self, names: BTreeSet<&'a GuestName>, observer: &mut dyn Observer) {
        let seen = self.look_into_guests(names);
        self.guests.extend(seen);
        self.trace_devices(observer);
    }

    /// Looks into these guests, all at once: a VM takes its time to answer.
    pub fn look_into_guests<'n>(
        &self,
        names: BTreeSet<&'n GuestName>,
    ) -> Vec<(&'n GuestName, Result<Home, GuestUnobserved>)> {
        let places = self.places;
        thread::scope(|scope| {
            let looking: Vec<_> = names
                .into_iter()
                .map(|name| (name, scope.spawn(move || look_into(name, places.get(name)))))
                .collect();
            let seen = looking.into_iter().map(|(name, thread)| {
                let seen = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                (name, seen)
            });
            seen.collect()
        })
    }

    fn trace_devices(&mut self, observer: &mut dyn Observer) {
        let homes = self.guests.values().flatten().chain([&self.host]);
        let devices: BTreeSet<String> = homes
            .filter_map(|home| home.interfaces.as_ref().ok())
            .flatten()
            .filter_map(|report| report.device.clone())
            .collect();
        for device in devices {
            // Looked up once: a device keeps its function.
            self.behind
                .entry(device)
                .or_insert_with_key(|device| device.parse().ok().or_else(|| observer.function_of(device)));
        }
        let homes = self.guests.values_mut().flatten().chain([&mut self.host]);
        homes.for_each(|home| home.number(&self.behind));
    }

    /// The place that a guest's inside is, when it was there to be looked into.
    pub fn place(&self, guest: &GuestName) -> Option<&'a dyn Place> {
        match self.places.get(guest) {
            Some(GuestPlace::Running(place)) => Some(&**place),
            _ => None,
        }
    }

    /// The PF of a NIC, when it was found.
    pub fn pf(&self, nic: &NicName) -> Option<&'a Pf> {
        self.inventory.pf(*self.nics.get(nic)?)
    }

    /// What the driver of a NIC's PF tells.
    ///
    /// # Errors
    ///
    /// In words, why it was not looked at.
    pub fn sight(&self, nic: &NicName) -> Result<&PfObservation, String> {
        match self.sights.get(nic) {
            Some(Ok(sight)) => Ok(sight),
            Some(Err(why)) => Err(why.clone()),
            None => Err("not looked at".to_owned()),
        }
    }

    /// A VF that no guest owns.
    ///
    /// # Errors
    ///
    /// [`Unobserved`] when it was not looked at, or is not there.
    pub fn free_vf(&self, function: &FunctionName) -> Result<&FreeVf, Unobserved> {
        match self.free.get(function) {
            Some(seen) => seen.as_ref().map_err(|why| Unobserved::Unknown(why.clone())),
            None => {
                Err(self.address(function).err().unwrap_or(Unobserved::Unknown("not looked at".to_owned())))
            }
        }
    }

    /// The address that a function has.
    ///
    /// # Errors
    ///
    /// [`Unobserved::Absent`] when there is no such function, [`Unobserved::Unknown`] when its NIC could not be looked at.
    pub fn address(&self, function: &FunctionName) -> Result<Bdf, Unobserved> {
        self.addresses.get(function).copied().ok_or_else(|| match self.said.get(&function.nic) {
            Some(Err(why)) => Unobserved::Unknown(why.clone()),
            Some(Ok(_)) | None => Unobserved::Absent(format!("there is no {function}")),
        })
    }

    /// How many VFs a NIC says that it has, and how many of it there are.
    ///
    /// # Errors
    ///
    /// [`Unobserved::Unknown`] when the NIC could not be looked at.
    pub fn vf_count(&self, nic: &NicName) -> Result<(u16, usize), Unobserved> {
        self.said.get(nic).cloned().unwrap_or(Ok((0, 0))).map_err(Unobserved::Unknown)
    }

    /// The function at an address, as the model names it, with the address.
    pub fn name_of(&self, address: Bdf) -> String {
        match self.names.get(&address) {
            Some(function) => format!("{function} at {address}"),
            None => address.to_string(),
        }
    }

    /// A guest's inside.
    ///
    /// # Errors
    ///
    /// [`GuestUnobserved`] when the guest could not be looked into, or nobody tried.
    pub fn inside(&self, guest: &GuestName) -> Result<&Home, GuestUnobserved> {
        match self.guests.get(guest) {
            Some(seen) => seen.as_ref().map_err(Clone::clone),
            None => Err(GuestUnobserved::Unseen("not observed".to_owned())),
        }
    }

    /// Every interface that was seen, wherever it is.
    pub fn reports(&self) -> impl Iterator<Item = &InterfaceReport> {
        let homes = self.guests.values().flatten().chain([&self.host]);
        homes.filter_map(|home| home.interfaces.as_ref().ok()).flatten()
    }

    /// From where this function is seen: its owner's place, or the host.
    pub fn vantage_of(&self, function: &FunctionName) -> Vantage {
        self.owners.of(function).map_or(Vantage::Host, |(guest, _)| Vantage::Guest(guest.clone()))
    }

    /// Where a function is to live: in its owner, or on the host.
    ///
    /// # Errors
    ///
    /// As [`Observation::inside`], of the guest that owns it.
    pub fn home(&self, function: &FunctionName) -> Result<&Home, GuestUnobserved> {
        match self.owners.of(function) {
            Some((guest, _)) => self.inside(guest),
            None => Ok(&self.host),
        }
    }

    /// The function behind an interface, as far as can be seen.
    pub fn behind(&self, report: &InterfaceReport) -> Option<Bdf> {
        self.behind.get(report.device.as_ref()?).copied().flatten()
    }

    /// A function's interface, where the function is to live: the one whose device the function is.
    ///
    /// # Errors
    ///
    /// [`Unobserved::Unknown`] when where it is to live could not be looked into, [`Unobserved::Absent`] when the function is not there
    /// or has no interface there.
    pub fn interface(&self, function: &FunctionName) -> Result<&InterfaceReport, Unobserved> {
        let home = self.home(function).map_err(|dark| Unobserved::Unknown(dark.why()))?;
        home.interfaces.as_ref().map_err(|why| Unobserved::Unknown(why.clone()))?;
        let address = self.address(function)?;
        let found = home.interface_of(address);
        found.ok_or_else(|| Unobserved::Absent(self.elsewhere(address, &home.vantage)))
    }

    /// Where else the interface of the function at `address` is.
    fn elsewhere(&self, address: Bdf, not_in: &Vantage) -> String {
        let homes = self.guests.values().flatten().chain([&self.host]);
        for home in homes.filter(|home| home.vantage != *not_in) {
            if let Some(report) = home.interface_of(address) {
                let place = match &home.vantage {
                    Vantage::Host => "on the host".to_owned(),
                    inside => inside.to_string(),
                };
                return format!("its interface is {place}, called {}", report.interface.name);
            }
        }
        format!("{address} has no interface in any place that was looked at")
    }

    /// The MAC address that a VF is to have: the one given, else the one derived.
    pub fn wanted_mac(&self, nic: &NicName, vf: penstock_model::VfIndex, given: Option<Mac>) -> Option<Mac> {
        let pf = self.pf(nic).and_then(|pf| pf.permanent_mac);
        self.model.nics.get(nic)?.vf_mac(given, pf, vf)
    }
}

/// Those of `free` that somebody has.
fn taken(free: &BTreeSet<Bdf>, observer: &mut dyn Observer) -> BTreeMap<Bdf, Result<FreeVf, String>> {
    if free.is_empty() {
        return BTreeMap::new();
    }
    let mut seen = observer.free_vfs(free);
    seen.retain(|_, vf| vf.as_ref().is_ok_and(|vf| vf.taken_by.is_some()));
    seen
}

fn look_into(name: &GuestName, place: Option<&GuestPlace>) -> Result<Home, GuestUnobserved> {
    let began = Instant::now();
    match place {
        Some(GuestPlace::Running(place)) => {
            let namespace = place.namespace().map_err(|error| chain(&error));
            let interfaces = place.interfaces().map_err(|error| chain(&error));
            let home = Home::of(Vantage::Guest(name.clone()), namespace, interfaces);
            Ok(Home { program: place.own_program().map(str::to_owned), took: began.elapsed(), ..home })
        }
        Some(GuestPlace::Closed(why)) => Err(GuestUnobserved::Closed(why.clone())),
        Some(GuestPlace::NotRunning(why)) => Err(GuestUnobserved::NotRunning(why.clone())),
        Some(GuestPlace::Unseen(why)) => Err(GuestUnobserved::Unseen(why.clone())),
        None => Err(GuestUnobserved::Unseen("not observed".to_owned())),
    }
}

/// Whether a guest owns the PF of a NIC in `scope`.
fn owns_pf(model: &Model, guest: &GuestName, scope: &Scope) -> bool {
    let functions = &model.guests[guest].functions;
    functions.iter().any(|function| function.name.vf.is_none() && scope.nics.contains(&function.name.nic))
}

/// The PF of a NIC as a function.
pub fn pf_of(nic: &NicName) -> FunctionName {
    FunctionName { nic: nic.clone(), vf: None }
}
