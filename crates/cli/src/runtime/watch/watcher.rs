//! What is seen of a machine, and what tells when it may be otherwise.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
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
use penstock_model::{
    Bdf, Diagnostics, FunctionName, GuestKind, GuestName, Inventory, Model, NicName, Verdict,
};
use penstock_verify::{
    GuestPlace, KernelObserver, Observer, Part, Scope, attributes,
    drift::{Change, Known},
    function_at,
};

use crate::{
    commands::verify,
    failure::Failure,
    model_file::ModelFile,
    runtime::machine::{
        Machine,
        incus::{IncusFunction, IncusFunctions, IncusUnseen, ModelAsRun, nics_of},
    },
    ui::printer::Printer,
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

/// What events concern.
#[derive(Debug, Default)]
pub struct Rechecks {
    /// What is looked at again at once.
    pub at_once: Recheck,
    /// What is not looked at again each time: a guest may make such events without end, and keep the kernel from telling of others.
    pub waits: Recheck,
}

/// What was judged, part by part.
type Judged = Vec<(Part, Vec<Verdict>)>;

/// What a look has brought.
#[derive(Default)]
pub struct SeenChanges {
    /// What is otherwise than it was.
    pub changes: Vec<Change>,
    /// Why not all of it could be looked at, if so.
    pub unseen: Option<Failure>,
    /// Why some of it was not looked at, if so: a later look tells.
    pub postponed: Option<String>,
    /// The NICs of the model that are not there, if everything was looked at.
    pub lost: Diagnostics,
    /// Whether what was looked at has to be looked at again in a while.
    pub again: bool,
}

/// What was known before a look, but for what was judged.
pub struct KnownBefore {
    of_incus: BTreeMap<GuestName, Running>,
    as_run: Option<Arc<Model>>,
    nics: IndexMap<NicName, Bdf>,
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

impl SeenChanges {
    /// Of a look that failed.
    pub fn nothing(failure: Failure) -> SeenChanges {
        SeenChanges { unseen: Some(failure), ..SeenChanges::default() }
    }
}

/// When something is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// As events of it come.
    AtOnce,
    /// After some time without.
    Later,
}

/// Whether Incus stopped or started some of its guests while something was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IncusStarts {
    /// It did not.
    None,
    /// A guest of Incus does not run, and events came. No operation tells of a start that Incus begins itself, at boot or when the guest
    /// reboots; its events do.
    Perhaps,
    /// It did, or does not say.
    Some,
}

/// A machine as it is seen, and was told of.
pub struct Watcher {
    pub machine: Machine,
    pub file: ModelFile,
    pub known: Known,
    pub poller: EventPoller<SourceName>,
    /// What cannot be listened to, and why; for whoever has not been told.
    pub unheard: Vec<String>,
    /// The guests that Incus was seen to run, and that Penstock has not defined since; each with its last process. They are left alone, also
    /// when they have stopped: what Penstock would do about that makes second ones.
    of_incus: BTreeMap<GuestName, Running>,
    /// The model as it was carried out when all of these ran.
    as_run: Option<Arc<Model>>,
    polled: BTreeSet<SourceName>,
    said: BTreeSet<String>,
    inventory: Inventory,
    nics: IndexMap<NicName, Bdf>,
    polls: BTreeMap<NicName, Poll>,
}

/// What of a NIC makes no event when it changes.
struct Poll {
    vfs: Option<VfGlance>,
    autoprobe: Option<bool>,
}

impl Watcher {
    /// Nothing is known yet.
    pub fn new(file: ModelFile, machine: Machine, of_incus: BTreeMap<GuestName, Running>) -> Watcher {
        Watcher {
            machine,
            file,
            known: Known::default(),
            poller: EventPoller::default(),
            unheard: Vec::new(),
            of_incus,
            as_run: None,
            polled: BTreeSet::new(),
            said: BTreeSet::new(),
            inventory: Inventory::default(),
            nics: IndexMap::new(),
            polls: BTreeMap::new(),
        }
    }

    /// Looks at everything. Listens first, so that what happens meanwhile is noticed.
    ///
    /// # Errors
    ///
    /// When the guests that are defined cannot be seen. What cannot be seen beside NICs and guests is in [`SeenChanges`].
    pub fn look(&mut self, timeout: Duration, printer: &mut Printer) -> Result<SeenChanges, Failure> {
        self.listen();
        let before = self.nics.clone();
        self.prime(before.keys().cloned().collect());
        self.inventory = self.machine.functions()?;
        // One that is not there does not keep the others from being looked at, and has a verdict.
        let (found, lost) = penstock_plan::resolve_what_is_there(&self.file.model, &self.inventory);
        self.nics = with_those_found(&self.file.model, before.clone(), found);
        let here = self.nics.iter().filter(|(name, pf)| before.get(*name) != Some(*pf));
        let new: Vec<NicName> = here.map(|(name, _)| name.clone()).collect();
        self.prime(new.clone());
        for name in new {
            // The inventory is older, and what it has is what is judged.
            let sriov = self.nics.get(&name).and_then(|pf| self.inventory.pf(*pf)?.sriov.as_ref());
            if let (Some(sriov), Some(poll)) = (sriov, self.polls.get_mut(&name)) {
                poll.autoprobe = Some(sriov.autoprobe);
            }
        }
        let (fresh, unseen_guests) = self.attributes(&Scope::whole(&self.file.model), When::Later, timeout);
        let mut changes = self.known.take(fresh);
        let left = self.left_to_incus(unseen_guests.incus.as_ref());
        let beside = verify::beside(&self.file, &self.machine, &self.inventory, &self.nics, &left, printer);
        let unseen = match beside {
            Ok(verdicts) => {
                changes.extend(self.known.take(vec![(Part::Rest, verdicts)]));
                None
            }
            Err(failure) => Some(failure),
        };
        Ok(SeenChanges { changes, unseen, postponed: unseen_guests.in_words(), lost, again: false })
    }

    /// Begins a look: what is known now, to be put back when it turns out that somebody changed the machine meanwhile.
    pub fn begin(&mut self) -> KnownBefore {
        self.known.begin();
        KnownBefore { of_incus: self.of_incus.clone(), as_run: self.as_run.clone(), nics: self.nics.clone() }
    }

    /// Forgets what was seen since.
    pub fn put_back(&mut self, before: KnownBefore) {
        self.known.put_back();
        let KnownBefore { of_incus, as_run, nics } = before;
        (self.of_incus, self.as_run, self.nics) = (of_incus, as_run, nics);
    }

    /// Looks at these NICs and guests.
    ///
    /// # Errors
    ///
    /// When the kernel's socket cannot be opened.
    pub fn look_at(&mut self, scope: &Scope, when: When) -> Result<SeenChanges, Failure> {
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
        let (fresh, unseen_guests) = self.attributes(scope, when, Duration::ZERO);
        let changes = self.known.take(fresh);
        let again = unseen_guests.starts == IncusStarts::Perhaps;
        Ok(SeenChanges { changes, postponed: unseen_guests.in_words(), again, ..SeenChanges::default() })
    }

    /// Judges these NICs and guests, as far as they are not left to Incus; and which guests were not looked at.
    fn attributes(&mut self, scope: &Scope, when: When, timeout: Duration) -> (Judged, UnseenGuests) {
        let mut guests = scope.guests.clone();
        let pfs = scope.nics.iter().map(|nic| FunctionName { nic: nic.clone(), vf: None });
        guests.extend(pfs.filter_map(|pf| Some(self.file.model.owner(&pf)?.0.clone())));
        let ours = self.machine.guests().definitions();
        let before = self.of_incus.len();
        self.of_incus.retain(|guest, _| !ours.contains_key(guest));
        if self.of_incus.len() < before {
            self.as_run = None;
        }
        let run = self.machine.as_run(&self.file.model, &self.inventory, &self.nics, &guests, &self.of_incus);
        let (judged, starts) = self.judged(&run, scope, when, timeout);
        let left = self.left_to_incus(run.incus_unseen.as_ref());
        (judged, UnseenGuests::of(run, &left, starts))
    }

    /// The model as it was carried out when all of its guests ran that Incus runs; as it is in the file where they never did.
    pub fn model(&self) -> &Model {
        self.as_run.as_deref().unwrap_or(&self.file.model)
    }

    /// The guests that are left to Incus: those that it was seen to run, and those that it may run.
    fn left_to_incus(&self, unseen: Option<&IncusUnseen>) -> BTreeSet<GuestName> {
        let may_run = unseen.into_iter().flat_map(|unseen| &unseen.may_run);
        self.of_incus.keys().chain(may_run).cloned().collect()
    }

    /// The guests that Incus was seen to run.
    pub fn of_incus(&self) -> BTreeSet<GuestName> {
        self.of_incus.keys().cloned().collect()
    }

    /// Judges these NICs and guests by `run`; and whether Incus stopped or started any of its guests meanwhile.
    fn judged(
        &mut self,
        run: &ModelAsRun,
        scope: &Scope,
        when: When,
        timeout: Duration,
    ) -> (Judged, IncusStarts) {
        self.of_incus.extend(run.of_incus.clone());
        let left = self.left_to_incus(run.incus_unseen.as_ref());
        let all_ran = left.iter().all(|guest| run.of_incus.contains_key(guest));
        // Without those that have stopped the NICs would be another's, and to apply the model would make second guests.
        let model = match self.as_run.as_deref() {
            Some(as_run) if !all_ran => as_run,
            _ => &run.model,
        };
        let mut scope = scope.clone();
        scope.guests.retain(|guest| !left.contains(guest));
        let observer = &mut KernelObserver::new();
        let (inventory, nics) = (&self.inventory, &self.nics);
        let mut fresh = attributes(model, inventory, nics, &run.places, observer, &scope, timeout);
        // One that was stopped or started meanwhile may have been seen as Incus gave its VFs back, or set them up.
        let settled =
            run.still_runs() && run.incus_unseen.is_none() && (all_ran || self.still_stopped(&left, run));
        let starts = match when {
            _ if !settled => IncusStarts::Some,
            When::AtOnce if !all_ran => IncusStarts::Perhaps,
            When::AtOnce | When::Later => IncusStarts::None,
        };
        if all_ran && settled {
            self.as_run = Some(Arc::new(run.model.clone()));
        } else {
            let theirs = IncusFunctions::of(model, left.iter().map(|guest| (guest, ())));
            let may_be_given = |verdict: &Verdict| {
                starts != IncusStarts::None && theirs.find(verdict) == Some(IncusFunction::Free(&()))
            };
            let before = self.known.verdicts().filter(|verdict| may_be_given(verdict));
            let before: BTreeMap<_, &Verdict> = before.map(|verdict| (verdict.key(), verdict)).collect();
            for (_, verdicts) in &mut fresh {
                verdicts.retain_mut(|verdict| {
                    if !may_be_given(verdict) {
                        return theirs.find(verdict) != Some(IncusFunction::OfGuest(&()));
                    }
                    // As it was last seen.
                    let was = before.get(&verdict.key());
                    was.map(|was| *verdict = Verdict::clone(was)).is_some()
                });
            }
        }
        fresh.extend(self.of_incus.keys().map(|guest| (Part::Guest(guest.clone()), Vec::new())));
        (fresh, starts)
    }

    /// Whether those guests that are left to Incus, and did not run as it was asked for `run`, neither run now nor are being started.
    fn still_stopped(&self, left: &BTreeSet<GuestName>, run: &ModelAsRun) -> bool {
        let stopped = left.iter().filter(|guest| !run.of_incus.contains_key(*guest));
        let now = self.machine.incus(stopped, &BTreeMap::new());
        now.running.is_empty() && now.unseen.is_none()
    }

    /// What the events concern.
    pub fn concerned(&mut self, events: &BTreeSet<(SourceName, Event)>) -> Rechecks {
        let Rechecks { mut at_once, mut waits } = Rechecks::default();
        for (name, event) in events {
            match (name, event) {
                (_, Event::Lost) => waits.whole = true,
                (name, Event::Broken(why)) => {
                    self.polled.remove(name);
                    at_once.broken.push(format!("what happens is not heard any more: {why}"));
                    at_once.whole = true;
                }
                (SourceName::End(guest, _), _) => {
                    self.forget(guest);
                    at_once.scope.join(Scope::of_guest(&self.file.model, guest));
                    at_once.scope.nics.extend(nics_of(&self.file.model, guest).cloned());
                }
                (SourceName::Inside(guest, _), _) => {
                    waits.scope.join(Scope::of_guest(&self.file.model, guest))
                }
                (_, Event::Interface(touched)) => {
                    let Some(device) = &touched.device else { continue };
                    let address = device.parse().ok().or_else(|| KernelObserver::new().function_of(device));
                    at_once.join(self.of_function(address, false));
                }
                (_, Event::Device(event)) => {
                    let came = matches!(event.action.as_str(), "add" | "bind");
                    at_once.join(self.of_function(event.function(), came));
                }
                (_, Event::Ended) => {}
            }
        }
        Rechecks { at_once, waits }
    }

    /// Stops listening to a guest that has ended: a socket inside keeps its network namespace, with the functions in there.
    fn forget(&mut self, ended: &GuestName) {
        let is_of = |name: &SourceName| matches!(name, SourceName::Inside(guest, _) | SourceName::End(guest, _) if guest == ended);
        self.polled.retain(|name| !is_of(name));
        self.poller.retain(|name| !is_of(name));
        let owned = self.file.model.guests.get(ended);
        for pf in
            owned.iter().flat_map(|guest| &guest.functions).filter(|function| function.name.vf.is_none())
        {
            self.polls.remove(&pf.name.nic);
        }
    }

    /// As [`Watcher::forget`], of all guests that have ended.
    pub fn forget_ended(&mut self) {
        let ended = |name: &SourceName| match name {
            SourceName::Inside(guest, process) | SourceName::End(guest, process) => {
                (!process.is_alive()).then(|| guest.clone())
            }
            SourceName::Host | SourceName::Devices => None,
        };
        let ended: BTreeSet<GuestName> = self.polled.iter().filter_map(ended).collect();
        ended.iter().for_each(|guest| self.forget(guest));
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
        !self.file.model.nics.keys().all(|name| self.nics.get(name).is_some_and(known))
    }

    /// Looks whether anything has changed that makes no event.
    pub fn poll(&mut self) -> Recheck {
        let mut recheck = Recheck::default();
        for (name, poll) in &mut self.polls {
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
            self.polls.insert(name, Poll { vfs, autoprobe: autoprobe(pf) });
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
                        self.unheard.push(told);
                    }
                }
            }
        }
    }
}

/// The guests that could not be looked at.
struct UnseenGuests {
    /// Those that Incus may run.
    incus: Option<IncusUnseen>,
    /// Others, each with why.
    others: Vec<(GuestName, String)>,
    /// Whether Incus stopped or started any of its guests meanwhile.
    starts: IncusStarts,
}

impl UnseenGuests {
    /// Those of `run`, whose guests that are `left` to Incus are not looked at.
    fn of(run: ModelAsRun, left: &BTreeSet<GuestName>, starts: IncusStarts) -> UnseenGuests {
        let looked_into = run.places.into_iter().filter(|(guest, _)| !left.contains(guest));
        let others = looked_into.filter_map(|(guest, place)| match place {
            GuestPlace::Unseen(why) => Some((guest, why)),
            _ => None,
        });
        UnseenGuests { incus: run.incus_unseen, others: others.collect(), starts }
    }

    fn in_words(&self) -> Option<String> {
        let incus = self.incus.as_ref();
        let incus = incus.map(|unseen| format!("which guests Incus runs is not known: {}", unseen.why));
        let incus = incus.or_else(|| {
            (self.starts == IncusStarts::Some)
                .then(|| "Incus stopped or started a guest meanwhile".to_owned())
        });
        let others = self.others.iter().map(|(guest, why)| format!("{guest} is not looked into: {why}"));
        let all: Vec<String> = incus.into_iter().chain(others).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// Where NICs are, some of which were found now. One that was not is taken to be where it was before, unless another is there. While one is
/// not found, those that the model leaves a choice stay where they were: one of them would be found in its place, or in the other's.
fn with_those_found(
    model: &Model,
    before: IndexMap<NicName, Bdf>,
    mut found: IndexMap<NicName, Bdf>,
) -> IndexMap<NicName, Bdf> {
    let is_exact = |name: &NicName| model.nics.get(name).is_some_and(|nic| nic.matching.is_exact());
    if before.keys().any(|name| !found.contains_key(name)) {
        let was =
            |name: &NicName, pf: &Bdf| before.contains_key(name) || before.values().any(|other| other == pf);
        found.retain(|name, pf| is_exact(name) || !was(name, pf));
    }
    let mut nics = before;
    nics.retain(|name, pf| !found.contains_key(name) && !found.values().any(|other| other == pf));
    nics.extend(found);
    nics
}

fn links(process: Option<u32>) -> Result<Option<EventSource>, String> {
    LinkEvents::open(process).map(|events| Some(EventSource::Links(events))).map_err(|error| chain(&error))
}

/// Whether the kernel looks for drivers of new VFs of a PF; `None` where it does not say.
fn autoprobe(pf: Bdf) -> Option<bool> {
    let said = files::read(Root::system().path(format!("/sys/bus/pci/devices/{pf}/sriov_drivers_autoprobe")));
    Some(!matches!(said.ok()?.trim_ascii(), b"0" | b"N"))
}

#[cfg(test)]
pub mod tests;
