//! What is seen of a machine, and what tells when it may be otherwise.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use indexmap::IndexMap;
use penstock_host::{
    Netlink, Root, chain,
    events::{Event, EventPoller, EventSource, ProcessEnd},
    files, interface_of,
    netlink::{LinkEvents, VfGlance},
    running::Running,
    scan::scan_pf,
    uevent::DeviceEvents,
};
use penstock_model::{Bdf, FunctionName, GuestKind, GuestName, Inventory, NicName};
use penstock_verify::{
    GuestPlace, KernelObserver, Observer, Part, Scope, attributes,
    drift::{Change, Known},
    function_at,
};

use crate::{
    commands::verify,
    failure::Failure,
    machine::Machine,
    model_file::{self, ModelFile},
    printer::Printer,
};

/// What is polled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceName {
    /// The host's interfaces.
    Host,
    /// The machine's devices.
    Devices,
    /// A container's interfaces, and the process that they were found by.
    Inside(GuestName, Running),
    /// The end of a guest's process.
    End(GuestName, Running),
}

/// What there is to look at again.
#[derive(Debug, Default)]
pub struct Recheck {
    /// These NICs and guests.
    pub scope: Scope,
    /// Whether to look at the whole machine: events were lost, or a missing PF may have come.
    pub whole: bool,
    /// What is not heard any more, and why.
    pub broken: Vec<String>,
}

impl Recheck {
    /// Whether there is nothing.
    pub fn is_nothing(&self) -> bool {
        self.scope.is_empty() && !self.whole && self.broken.is_empty()
    }

    /// This and that.
    pub fn join(&mut self, other: Recheck) {
        self.scope.join(other.scope);
        self.whole |= other.whole;
        self.broken.extend(other.broken);
    }
}

/// A machine as it is seen, and was told of.
pub struct Watcher {
    pub machine: Machine,
    pub file: ModelFile,
    pub known: Known,
    pub poller: EventPoller<SourceName>,
    /// What cannot be listened to, and why; for whoever has not been told.
    pub deaf: Vec<String>,
    /// How long it took to look at everything.
    pub took: Duration,
    polled: BTreeSet<SourceName>,
    said: BTreeSet<String>,
    inventory: Inventory,
    nics: IndexMap<NicName, Bdf>,
    glances: BTreeMap<NicName, Poll>,
}

/// What of a NIC makes no event when it changes.
struct Poll {
    vfs: Option<VfGlance>,
    autoprobe: Option<Vec<u8>>,
}

impl Watcher {
    /// Nothing is known yet.
    pub fn new(file: ModelFile, machine: Machine) -> Watcher {
        Watcher {
            machine,
            file,
            known: Known::default(),
            poller: EventPoller::default(),
            deaf: Vec::new(),
            took: Duration::ZERO,
            polled: BTreeSet::new(),
            said: BTreeSet::new(),
            inventory: Inventory::default(),
            nics: IndexMap::new(),
            glances: BTreeMap::new(),
        }
    }

    /// Looks at everything. Listens first, so that what happens meanwhile is noticed.
    pub fn look(&mut self, timeout: Duration, printer: &mut Printer) -> Result<Vec<Change>, Failure> {
        let began = Instant::now();
        self.listen();
        let inventory = self.machine.functions()?;
        match penstock_plan::resolve(&self.file.model, &inventory) {
            Ok(nics) => self.nics = nics,
            Err(found) if self.nics.is_empty() => {
                return Err(model_file::does_not_fit(&found, &self.file.source, printer));
            }
            // A PF that was there is not: that is for the verdicts to say, of the place where it was.
            Err(_) => {}
        }
        self.inventory = inventory;
        let names: Vec<NicName> = self.nics.keys().cloned().collect();
        self.prime(names);
        let mut fresh = self.attributes(&Scope::whole(&self.file.model), timeout);
        let beside = verify::beside(&self.file, &self.machine, &self.inventory, &self.nics, printer)?;
        fresh.push((Part::Rest, beside));
        self.took = began.elapsed().saturating_sub(timeout);
        Ok(self.known.take(fresh))
    }

    /// Looks at these NICs and guests.
    pub fn look_at(&mut self, scope: &Scope) -> Result<Vec<Change>, Failure> {
        self.prime(scope.nics.iter().cloned().collect());
        let root = Root::system();
        let mut netlink = Netlink::open()?;
        for name in &scope.nics {
            let Some(bdf) = self.nics.get(name).copied() else { continue };
            let before = self.inventory.pf(bdf).and_then(|pf| pf.permanent_mac);
            self.inventory.pfs.retain(|pf| pf.bdf != bdf);
            if let Some(mut pf) = scan_pf(&root, Some(&mut netlink), bdf) {
                // The interface of a PF that a guest owns is in there.
                if self.file.model.owner(&FunctionName { nic: name.clone(), vf: None }).is_some() {
                    pf.permanent_mac = pf.permanent_mac.or(before);
                }
                self.inventory.pfs.push(pf);
            }
        }
        let fresh = self.attributes(scope, Duration::ZERO);
        Ok(self.known.take(fresh))
    }

    fn attributes(&self, scope: &Scope, timeout: Duration) -> Vec<(Part, Vec<penstock_model::Verdict>)> {
        let mut guests = scope.guests.clone();
        let pfs = scope.nics.iter().map(|nic| FunctionName { nic: nic.clone(), vf: None });
        guests.extend(pfs.filter_map(|pf| Some(self.file.model.owner(&pf)?.0.clone())));
        let places: BTreeMap<GuestName, GuestPlace> = self.machine.own_places(&guests);
        let observer = &mut KernelObserver::new();
        attributes(&self.file.model, &self.inventory, &self.nics, &places, observer, scope, timeout)
    }

    /// What the events concern.
    pub fn concerned(&mut self, events: &BTreeSet<(SourceName, Event)>) -> Recheck {
        let mut recheck = Recheck::default();
        for (name, event) in events {
            match (name, event) {
                (_, Event::Lost) => recheck.whole = true,
                (name, Event::Broken(why)) => {
                    self.polled.remove(name);
                    recheck.broken.push(format!("what happens is not heard any more: {why}"));
                    recheck.whole = true;
                }
                (name @ SourceName::End(guest, _), _) => {
                    self.polled.remove(name);
                    recheck.scope.join(Scope::of_guest(&self.file.model, guest));
                    let owned = self.file.model.guests.get(guest);
                    for function in owned.iter().flat_map(|guest| &guest.functions) {
                        recheck.scope.nics.insert(function.name.nic.clone());
                    }
                }
                (SourceName::Inside(guest, _), _) => {
                    recheck.scope.join(Scope::of_guest(&self.file.model, guest))
                }
                (_, Event::Interface(touched)) => {
                    let Some(device) = &touched.device else { continue };
                    let address = device.parse().ok().or_else(|| KernelObserver::new().function_of(device));
                    recheck.join(self.of_function(address, false));
                }
                (_, Event::Device(event)) => {
                    let came = matches!(event.action.as_str(), "add" | "bind");
                    recheck.join(self.of_function(event.function(), came));
                }
                (_, Event::Ended) => {}
            }
        }
        recheck
    }

    fn of_function(&self, address: Option<Bdf>, came: bool) -> Recheck {
        let Some(address) = address else { return Recheck::default() };
        match function_at(&self.file.model, &self.inventory, &self.nics, address) {
            Some(function) => {
                Recheck { scope: Scope::of_function(&self.file.model, &function), ..Recheck::default() }
            }
            // It may be the PF that is missing, in another place.
            None => Recheck { whole: came && self.is_missing_a_pf(), ..Recheck::default() },
        }
    }

    fn is_missing_a_pf(&self) -> bool {
        let known = |bdf: &Bdf| self.inventory.pf(*bdf).is_some_and(|pf| pf.permanent_mac.is_some());
        !self.nics.values().all(known)
    }

    /// Looks whether anything has changed that makes no event.
    pub fn poll(&mut self) -> Recheck {
        let mut recheck = Recheck::default();
        for (name, poll) in &mut self.glances {
            // A PF that cannot be asked any more has gone, which is an event.
            let vfs = poll.vfs.as_mut().is_some_and(|vfs| vfs.differs().unwrap_or(false));
            let autoprobe = self.nics.get(name).and_then(|pf| autoprobe(*pf));
            if vfs {
                recheck.scope.join(Scope::of_nic(&self.file.model, name));
            }
            if autoprobe != poll.autoprobe {
                recheck.scope.nics.insert(name.clone());
                poll.autoprobe = autoprobe;
            }
        }
        recheck
    }

    /// Remembers how these NICs are now.
    fn prime(&mut self, names: Vec<NicName>) {
        for name in names {
            let Some(pf) = self.nics.get(&name).copied() else { continue };
            let namespace = self.owner_of(&name);
            let vfs = self.vfs_of(namespace, pf).unwrap_or_default();
            self.glances.insert(name, Poll { vfs, autoprobe: autoprobe(pf) });
        }
    }

    /// The process of the guest that owns a NIC's PF.
    fn owner_of(&self, name: &NicName) -> Option<u32> {
        let pf = FunctionName { nic: name.clone(), vf: None };
        let (owner, _) = self.file.model.owner(&pf)?;
        self.polled.iter().find_map(|name| match name {
            SourceName::Inside(guest, process) if guest == owner => Some(process.id),
            _ => None,
        })
    }

    fn vfs_of(
        &self,
        namespace: Option<u32>,
        pf: Bdf,
    ) -> Result<Option<VfGlance>, penstock_host::NetlinkError> {
        let mut netlink = match namespace {
            Some(pid) => Netlink::in_namespace_of(pid)?,
            None => Netlink::open()?,
        };
        let Some(report) = interface_of(pf, &netlink.interfaces()?, &Root::system()) else {
            return Ok(None);
        };
        let mut poll = VfGlance::open(namespace, report.index)?;
        poll.differs()?;
        Ok(Some(poll))
    }

    /// Listens to all that there is to listen to now.
    fn listen(&mut self) {
        let mut wanted = BTreeSet::from([SourceName::Host, SourceName::Devices]);
        let status = self.machine.guests().seen().unwrap_or_default();
        for (name, status) in status.iter().filter(|(name, _)| self.file.model.guests.contains_key(*name)) {
            let Some(process) = status.pid.and_then(Running::of) else { continue };
            wanted.insert(SourceName::End(name.clone(), process));
            if status.kind == GuestKind::Container {
                wanted.insert(SourceName::Inside(name.clone(), process));
            }
        }
        self.polled.retain(|name| wanted.contains(name));
        self.poller.retain(|name| wanted.contains(name));
        for name in wanted {
            if self.polled.contains(&name) {
                continue;
            }
            let (source, what) = match &name {
                SourceName::Host => (links(None), "the host's interfaces".to_owned()),
                SourceName::Devices => {
                    let source = DeviceEvents::open().map(|events| Some(EventSource::Devices(events)));
                    (source.map_err(|error| error.to_string()), "devices and drivers".to_owned())
                }
                SourceName::Inside(guest, process) => {
                    (links(Some(process.id)), format!("interfaces inside {guest}"))
                }
                SourceName::End(guest, process) => {
                    let source = ProcessEnd::of(*process).map(|end| end.map(EventSource::End));
                    (source.map_err(|error| error.to_string()), format!("the end of {guest}"))
                }
            };
            match source {
                Ok(Some(source)) => {
                    self.poller.add(name.clone(), source);
                    self.polled.insert(name);
                }
                Ok(None) => {}
                Err(why) => {
                    let told = format!("{what}: changes are only seen now and then: {why}");
                    if self.said.insert(told.clone()) {
                        self.deaf.push(told);
                    }
                }
            }
        }
    }
}

fn links(process: Option<u32>) -> Result<Option<EventSource>, String> {
    LinkEvents::open(process).map(|events| Some(EventSource::Links(events))).map_err(|error| chain(&error))
}

/// What the kernel does with new VFs of a PF.
fn autoprobe(pf: Bdf) -> Option<Vec<u8>> {
    files::read(Root::system().path(format!("/sys/bus/pci/devices/{pf}/sriov_drivers_autoprobe"))).ok()
}
