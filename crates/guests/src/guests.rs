//! All guests of this host, VMs and containers alike.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use penstock_host::{Place, Root, interrupt};
use penstock_model::{FunctionName, GuestName, inventory::FoundGuest};
use penstock_plan::{Execute, ExecuteError, Fact, GuestAction, Observe, action::GuestDefinition};

use crate::{
    containers::Containers,
    error::GuestError,
    realtime::{self, There},
    state::State,
    status::Status,
    vms::{Builtin, Vms},
};

/// How many guests are started or stopped side by side. Most of a start is waiting: for the kernel to move an interface,
/// for programs to be read.
const SIDE_BY_SIDE: usize = 8;

/// The guests of this host that Penstock looks after.
#[derive(Clone, Debug)]
pub struct Guests {
    root: Root,
    state: State,
    containers: Containers,
    vms: Vms,
    /// What would take back what was refused before anything was changed, since a guest of that name was started with another state: there is
    /// nothing to take back, and what looks like it is that guest's.
    refused: Arc<Mutex<Vec<GuestAction>>>,
}

impl Guests {
    /// The guests whose state lies in the directory `state`: by default `/run/penstock/guests`, whose contents go with
    /// the machine's power, as the guests do. `root` is where `/proc` and `/sys` are looked for, `builtin` where what VMs
    /// boot that are given nothing else.
    pub fn new(root: Root, state: PathBuf, builtin: Builtin) -> Guests {
        Guests {
            containers: Containers::new(root.clone(), state.clone()),
            vms: Vms::new(root.clone(), state.clone(), builtin),
            state: State::new(state),
            root,
            refused: Arc::default(),
        }
    }

    /// These containers and VMs, which share the directory `state`; for tests.
    pub fn of(state: PathBuf, containers: Containers, vms: Vms) -> Guests {
        Guests { root: Root::system(), state: State::new(state), containers, vms, refused: Arc::default() }
    }

    /// The containers among these guests.
    pub fn containers(&self) -> &Containers {
        &self.containers
    }

    /// The VMs among these guests.
    pub fn vms(&self) -> &Vms {
        &self.vms
    }

    /// The guests that are defined here, whether they run or are suspended, and the functions that they own while they
    /// do. Fails when a VM is there and libvirt cannot be asked whether it is suspended.
    ///
    /// # Errors
    ///
    /// [`GuestError::State`] or [`GuestError::Garbled`] when a file of its state cannot be read or makes no sense;
    /// [`GuestError::Libvirt`] when it does not answer.
    pub fn found(&self) -> Result<BTreeMap<GuestName, FoundGuest>, GuestError> {
        let mut all = self.containers.found()?;
        all.extend(self.vms.found()?);
        for (guest, found) in all.iter_mut().filter(|(_, found)| found.running) {
            if let Some(there) = self.there(guest)? {
                found.isolated = realtime::isolated(&self.root, there);
                found.scheduling = realtime::scheduling(&self.root, there);
            }
        }
        Ok(all)
    }

    /// A guest as it is there, running or suspended.
    fn there<'a>(&self, guest: &'a GuestName) -> Result<Option<There<'a>>, GuestError> {
        if self.is_vm(guest)? {
            return Ok(self.vms.process(guest)?.map(|qemu| There::Vm(qemu.id)));
        }
        Ok(self.containers.first_process(guest)?.map(|init| There::Container(guest, init.id)))
    }

    /// How the guests that are defined here are defined; one whose definition cannot be read is left out.
    pub fn definitions(&self) -> BTreeMap<GuestName, GuestDefinition> {
        let names = self.state.guests().unwrap_or_default();
        names
            .into_iter()
            .filter_map(|name| Some((name.clone(), self.state.definition(&name).ok()??)))
            .collect()
    }

    /// How each defined guest is. Fails as [`found`](Guests::found) does.
    ///
    /// # Errors
    ///
    /// As [`found`](Guests::found).
    pub fn status(&self) -> Result<BTreeMap<GuestName, Status>, GuestError> {
        let mut all = self.containers.status()?;
        all.extend(self.vms.status()?);
        Ok(all)
    }

    /// How each defined guest is, but for whether a VM is suspended, which only libvirt knows.
    ///
    /// # Errors
    ///
    /// [`GuestError::State`] or [`GuestError::Garbled`] when a file of its state cannot be read or makes no sense.
    pub fn seen(&self) -> Result<BTreeMap<GuestName, Status>, GuestError> {
        let mut all = self.containers.status()?;
        all.extend(self.vms.seen()?);
        Ok(all)
    }

    /// The inside of a guest; why it cannot be looked into, else: it does not run, is suspended, has nothing to be looked
    /// into by, or its agent does not answer.
    ///
    /// # Errors
    ///
    /// In words, why it cannot be looked into.
    pub fn place(&self, guest: &GuestName) -> Result<Box<dyn Place>, String> {
        if self.is_vm(guest).map_err(|error| error.to_string())? {
            return self.vms.place(guest);
        }
        match self.containers.place(guest) {
            Some(place) => Ok(Box::new(place)),
            None => Err("it does not run".to_owned()),
        }
    }

    /// What a guest has written to its console since its last start, from the first byte.
    pub fn console_log(&self, guest: &GuestName) -> PathBuf {
        self.state.file(guest, "console.log")
    }

    fn is_vm(&self, guest: &GuestName) -> Result<bool, GuestError> {
        Ok(self.state.definition(guest)?.is_some_and(|definition| definition.vm.is_some()))
    }

    fn act(&self, action: &GuestAction, timeout: Duration) -> Result<(), ExecuteError> {
        let attempt = attempt(action);
        let outcome = self.try_to(action, timeout);
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let inverse = inverse(action);
        refused.retain(|before| Some(before) != inverse.as_ref());
        if matches!(outcome, Err(GuestError::Elsewhere { .. })) {
            refused.extend(inverse);
        }
        outcome.map_err(|error| error.into_carry_error(&attempt))
    }

    /// Whether what this action takes back was refused.
    fn was_refused(&self, inverse: &GuestAction) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.contains(inverse)
    }

    fn try_to(&self, action: &GuestAction, timeout: Duration) -> Result<(), GuestError> {
        match action {
            GuestAction::DefineGuest(definition) => {
                let (guest, vm) = (&definition.guest, definition.vm.is_some());
                let defined = self.state.definition(guest)?;
                if vm {
                    // Before what it was goes.
                    self.vms.not_elsewhere(guest)?;
                }
                if defined.is_some_and(|defined| defined.vm.is_some() != vm) {
                    // It was of the other kind: nothing of that is to stay.
                    self.undefine(guest, timeout)?;
                }
                if vm {
                    self.vms.define(definition, timeout)
                } else {
                    self.containers.define(definition, timeout)
                }
            }
            GuestAction::UndefineGuest { guest } => self.undefine(guest, timeout),
            GuestAction::StartSwitch { guest, nic } if self.is_vm(guest)? => {
                self.vms.start_switch(guest, nic, timeout)
            }
            GuestAction::StartSwitch { guest, nic } => self.containers.start_switch(guest, nic, timeout),
            GuestAction::StopSwitch { guest, nic } if self.is_vm(guest)? => {
                self.vms.stop_switch(guest, nic, timeout)
            }
            GuestAction::StopSwitch { guest, nic } => self.containers.stop_switch(guest, nic, timeout),
            GuestAction::MakeTaps { guest, nic } => self.vms.make_taps(guest, nic, timeout),
            GuestAction::RemoveTaps { guest, nic } => self.vms.remove_taps(guest, nic, timeout),
            GuestAction::SetPortAttribute { guest, nic, vf, attribute } => {
                self.vms.set_port(guest, nic, *vf, attribute, timeout)
            }
            GuestAction::StartGuest { guest } => {
                self.only(false, guest, "is started with StartGuest")?;
                self.containers.start(guest, timeout)
            }
            GuestAction::CreateGuest { guest } => {
                self.only(true, guest, "is not made suspended")?;
                self.vms.create(guest, timeout)
            }
            GuestAction::ResumeGuest { guest } => {
                self.only(true, guest, "is not resumed")?;
                self.vms.resume(guest, timeout)
            }
            GuestAction::SuspendGuest { guest } => {
                self.only(true, guest, "is not suspended")?;
                self.vms.suspend(guest, timeout)
            }
            GuestAction::StopGuest { guest } if self.is_vm(guest)? => {
                let stopped = self.vms.stop(guest, timeout);
                // A partition goes with the guest; what was claimed for it above its groups does not.
                let pin = self.state.definition(guest)?.and_then(|definition| definition.pin);
                if let (Ok(()), Some(pin)) = (&stopped, pin) {
                    realtime::release(&self.root, None, &pin)
                        .map_err(|source| GuestError::Realtime { guest: guest.clone(), source })?;
                }
                stopped
            }
            GuestAction::StopGuest { guest } => self.containers.stop(guest, timeout),
            GuestAction::AwaitGuest { guest, within } => {
                let timeout = Duration::from_secs(u64::from(*within)).min(timeout);
                let outcome = match self.is_vm(guest)? {
                    true => self.vms.await_ready(guest, timeout),
                    false => self.containers.await_ready(guest, timeout),
                };
                // One that had its time was waited for, too: the link of a PF may be best effort.
                if matches!(outcome, Ok(()) | Err(GuestError::NotReady { .. })) && !interrupt::pending() {
                    self.state.keep_awaited(guest)?;
                }
                outcome
            }
            GuestAction::IsolateGuest { guest, cpus, on } => {
                let there = self.there(guest)?;
                if self.is_vm(guest)? {
                    // What looks like left of its partition is the other's.
                    self.vms.not_elsewhere(guest)?;
                }
                let done = match there {
                    Some(there) if *on => realtime::isolate(&self.root, there, cpus),
                    None if *on => return Err(GuestError::NotThere { guest: guest.clone() }),
                    there => realtime::release(&self.root, there, cpus),
                };
                done.map_err(|source| GuestError::Realtime { guest: guest.clone(), source })
            }
            GuestAction::ScheduleGuest { guest, scheduling } => {
                let there =
                    self.there(guest)?.ok_or_else(|| GuestError::NotThere { guest: guest.clone() })?;
                realtime::schedule(&self.root, there, *scheduling)
                    .map_err(|source| GuestError::Realtime { guest: guest.clone(), source })
            }
        }
    }

    fn undefine(&self, guest: &GuestName, timeout: Duration) -> Result<(), GuestError> {
        if self.is_vm(guest)? {
            self.vms.undefine(guest, timeout)
        } else {
            self.containers.undefine(guest, timeout)
        }
    }

    fn only(&self, vm: bool, guest: &GuestName, what: &'static str) -> Result<(), GuestError> {
        let is = self.is_vm(guest)?;
        if is == vm || self.state.definition(guest)?.is_none() {
            return Ok(());
        }
        let kind = if is { "VM" } else { "container" };
        Err(GuestError::WrongKind { guest: guest.clone(), kind, what })
    }

    /// Whether a guest was started in this boot and not stopped since, whether or not it is there: a container's functions were not taken
    /// back, or libvirt may be making a VM still.
    fn has_left_something(&self, guest: &GuestName) -> Result<bool, GuestError> {
        match self.state.started(guest)? {
            Some(started) => started.is_of_this_boot(&self.root),
            None => Ok(false),
        }
    }

    fn look(&self, fact: &Fact) -> Result<Result<(), String>, GuestError> {
        let (wanted, is, what) = match fact {
            // Whoever was killed while it defined or removed a guest has left a directory without a definition: that goes as well.
            Fact::GuestDefined { guest, defined: false } => (false, self.state.has_any(guest), "defined"),
            Fact::GuestDefined { guest, defined: true } => {
                (true, self.state.definition(guest)?.is_some(), "defined")
            }
            Fact::GuestRunning { guest, .. } if self.containers.has_moved_interrupts(guest)? => {
                return Ok(Err("interrupts of its PFs are not back where they were".to_owned()));
            }
            Fact::GuestRunning { guest, running } => {
                let is_vm = self.is_vm(guest)?;
                let there =
                    if is_vm { self.vms.process(guest)?.is_some() } else { self.containers.runs(guest)? };
                if is_vm && there && *running && self.vms.suspended()?.contains(guest) {
                    return Ok(Err("it is suspended".to_owned()));
                }
                if !is_vm
                    && *running
                    && let Some(unfinished) = self.containers.unfinished(guest)?
                {
                    return Ok(Err(unfinished.to_owned()));
                }
                if is_vm
                    && !*running
                    && let Err(elsewhere) = self.vms.not_elsewhere(guest)
                {
                    return Ok(Err(elsewhere.to_string()));
                }
                if !there && !*running && self.has_left_something(guest)? {
                    return Ok(Err("it does not run, and its start was not taken back".to_owned()));
                }
                (*running, there, "running")
            }
            Fact::SwitchRunning { guest, nic, running } if self.is_vm(guest)? => {
                return self.vms.switch_runs(guest, nic, *running);
            }
            Fact::SwitchRunning { guest, nic, running } => {
                return self.containers.switch_runs(guest, nic, *running);
            }
            Fact::TapsThere { guest, nic, there } => return self.vms.taps_there(guest, nic, *there),
            Fact::PortAttribute { guest, nic, vf, attribute } => {
                return Ok(self.vms.port_has(guest, nic, *vf, attribute));
            }
            Fact::GuestSuspended { guest } => {
                let there = self.is_vm(guest)? && self.vms.process(guest)?.is_some();
                if let (true, Err(why)) = (there, self.vms.ports_connected(guest)?) {
                    return Ok(Err(why));
                }
                (true, there && self.vms.suspended()?.contains(guest), "suspended")
            }
            Fact::GuestIsolated { guest, cpus, on } => {
                return Ok(realtime::is_isolated(&self.root, self.there(guest)?, cpus, *on));
            }
            Fact::GuestScheduled { guest, scheduling } => {
                let seen = self.there(guest)?.map(|there| realtime::scheduled(&self.root, there));
                return Ok(match seen {
                    None => Err("it is not there".to_owned()),
                    Some(Some(seen)) if seen == realtime::numbers(*scheduling) => Ok(()),
                    Some(Some(seen)) => Err(format!("it is scheduled as {seen}")),
                    Some(None) => Err("its threads are not all scheduled alike".to_owned()),
                });
            }
            Fact::GuestReady { guest } if self.is_vm(guest)? => return self.vms.ready(guest),
            Fact::GuestReady { guest } => return self.containers.ready(guest),
            _ => return Ok(Err("it is nothing about guests".to_owned())),
        };
        if wanted == is {
            return Ok(Ok(()));
        }
        Ok(Err(format!("it is {}{what}", if is { "" } else { "not " })))
    }
}

/// What takes back what an action makes that can be refused since the guest was started with another state.
fn inverse(action: &GuestAction) -> Option<GuestAction> {
    Some(match action {
        GuestAction::DefineGuest(definition) => {
            GuestAction::UndefineGuest { guest: definition.guest.clone() }
        }
        GuestAction::CreateGuest { guest } => GuestAction::StopGuest { guest: guest.clone() },
        GuestAction::MakeTaps { guest, nic } => {
            GuestAction::RemoveTaps { guest: guest.clone(), nic: nic.clone() }
        }
        GuestAction::StartSwitch { guest, nic } => {
            GuestAction::StopSwitch { guest: guest.clone(), nic: nic.clone() }
        }
        _ => return None,
    })
}

/// What was attempted, for messages.
fn attempt(action: &GuestAction) -> String {
    match action {
        GuestAction::DefineGuest(definition) => format!("define guest {}", definition.guest),
        GuestAction::UndefineGuest { guest } => format!("remove the definition of guest {guest}"),
        GuestAction::StartSwitch { guest, nic } => format!("start the embedded switch of {guest}/{nic}"),
        GuestAction::StopSwitch { guest, nic } => format!("stop the embedded switch of {guest}/{nic}"),
        GuestAction::MakeTaps { guest, nic } => format!("make the taps of {guest}/{nic}"),
        GuestAction::RemoveTaps { guest, nic } => format!("remove the taps of {guest}/{nic}"),
        GuestAction::SetPortAttribute { guest, nic, vf, attribute } => {
            format!("set {attribute} of {guest}/{}", FunctionName { nic: nic.clone(), vf: *vf })
        }
        GuestAction::StartGuest { guest } => format!("start guest {guest}"),
        GuestAction::CreateGuest { guest } => format!("make VM {guest}"),
        GuestAction::ResumeGuest { guest } => format!("let VM {guest} run"),
        GuestAction::SuspendGuest { guest } => format!("suspend VM {guest}"),
        GuestAction::StopGuest { guest } => format!("stop guest {guest}"),
        GuestAction::AwaitGuest { guest, .. } => format!("see guest {guest} ready"),
        GuestAction::IsolateGuest { guest, cpus, on: true } => {
            format!("give guest {guest} the CPUs {cpus} alone")
        }
        GuestAction::IsolateGuest { guest, cpus, on: false } => {
            format!("take the CPUs {cpus} from guest {guest} alone")
        }
        GuestAction::ScheduleGuest { guest, scheduling } => format!("schedule guest {guest} as {scheduling}"),
    }
}

impl Execute<GuestAction> for Guests {
    fn execute(&mut self, action: &GuestAction, deadline: Duration) -> Result<(), ExecuteError> {
        self.act(action, deadline)
    }

    fn execute_all(&mut self, actions: &[&GuestAction], deadline: Duration) -> Vec<Result<(), ExecuteError>> {
        side_by_side(actions, |action| self.act(action, deadline))
    }

    /// A guest that is not there has taken along how it ran: a VM that failed to be made again, say, or one that somebody has stopped. Nor is
    /// there anything of what was refused.
    fn is_gone(&mut self, action: &GuestAction) -> bool {
        if self.was_refused(action) {
            return true;
        }
        match action {
            GuestAction::SuspendGuest { guest }
            | GuestAction::ResumeGuest { guest }
            | GuestAction::ScheduleGuest { guest, .. }
            | GuestAction::IsolateGuest { guest, on: true, .. } => matches!(self.there(guest), Ok(None)),
            // A switch alone that does not answer may be on its way back, with what was set.
            GuestAction::SetPortAttribute { guest, nic, .. } => {
                matches!(self.there(guest), Ok(None)) && !self.vms.switch_is_served(guest, nic)
            }
            GuestAction::DefineGuest(_)
            | GuestAction::UndefineGuest { .. }
            | GuestAction::StartSwitch { .. }
            | GuestAction::StopSwitch { .. }
            | GuestAction::MakeTaps { .. }
            | GuestAction::RemoveTaps { .. }
            | GuestAction::StartGuest { .. }
            | GuestAction::CreateGuest { .. }
            | GuestAction::AwaitGuest { .. }
            | GuestAction::StopGuest { .. }
            | GuestAction::IsolateGuest { on: false, .. } => false,
        }
    }
}

impl Observe for Guests {
    fn holds(&mut self, fact: &Fact) -> Result<Result<(), String>, ExecuteError> {
        self.look(fact).map_err(|error| error.into_carry_error(&format!("see whether {fact}")))
    }
}

/// Does actions that do not need one another at once, a few at a time, up to the first that fails for another reason than
/// being unsupported. The answers are in order.
fn side_by_side(
    actions: &[&GuestAction],
    act: impl Fn(&GuestAction) -> Result<(), ExecuteError> + Sync,
) -> Vec<Result<(), ExecuteError>> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        let mut answers = Vec::new();
        // Taken in order and each to its end, so that what was attempted is always the first so many.
        while !failed.load(Ordering::Acquire) {
            let position = next.fetch_add(1, Ordering::AcqRel);
            let Some(action) = actions.get(position) else {
                break;
            };
            let answer = act(action);
            if matches!(&answer, Err(error) if !matches!(error, ExecuteError::Unsupported(_))) {
                failed.store(true, Ordering::Release);
            }
            answers.push((position, answer));
        }
        answers
    };
    let mut answers = thread::scope(|scope| {
        let workers: Vec<_> = (0..SIDE_BY_SIDE.min(actions.len())).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| match worker.join() {
            Ok(answers) => answers,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.flatten().collect::<Vec<_>>()
    });
    answers.sort_by_key(|(position, _)| *position);
    answers.into_iter().map(|(_, answer)| answer).collect()
}
