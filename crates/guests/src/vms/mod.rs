//! The VMs of this host (libvirt).
//!
//! A VM gets its functions through VFIO: they are bound to `vfio-pci` before it is made and stay so when it is gone, so
//! that nothing of them ever has to come back. It is made suspended, and let run when all that it needs has been proven.
//! Its domain is transient: libvirt forgets it when it ends.
//!
//! Whether a VM is there is known from its QEMU process, without libvirt: libvirt's daemon may die and QEMU goes on.
//! Whether it is suspended only libvirt knows; when that does not answer, nothing is guessed.
//!
//! VMs are kept from the host by KVM and the IOMMU. What they say (agent, console) may be hostile.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use penstock_host::{Place, Root, chain, files, interrupt, running::Running};
use penstock_model::{Boot, DataPath, GuestKind, GuestName, Inside, NicName, Vm, inventory::FoundGuest};
use penstock_plan::action::{GuestDefinition, GuestNic};

use self::{place::report_of, qemu::kill, virsh::Virsh};
use crate::{
    console,
    error::GuestError,
    state::{PREFIX, Started, State, this_boot},
    status::{Condition, Status},
    words::last_lines,
};

pub mod agent;
pub(crate) mod apparmor;
mod base64;
mod builtin;
mod composition;
pub mod console_report;
mod devices;
pub mod domain;
mod filters;
mod identity;
pub mod kernel_routes;
mod needs;
mod place;
mod prepare;
pub mod qemu;
pub mod switch;
pub mod taps;
mod virsh;

pub use builtin::Builtin;
pub use domain::MOST_FUNCTIONS;
pub use place::{ConsolePlace, VmPlace, addresses};
pub use virsh::VirshError;

#[cfg(feature = "fuzzing")]
pub(crate) use {filters::read_answer as read_filters, virsh::read_answers as read_virsh};

/// How long libvirt has for what takes it a moment.
const MOMENT: Duration = Duration::from_secs(15);

/// How long a guest has to end when it is asked to, before it is ended.
const GRACE: Duration = Duration::from_secs(15);

/// How long a builtin guest has: it keeps nothing that could be lost.
const BUILTIN_GRACE: Duration = Duration::from_secs(4);

/// How many last lines of a log an error carries.
const LINES: usize = 10;

/// What is of no matter in libvirt's log of a QEMU.
const CHATTER: [&str; 5] =
    ["char device redirected", ": starting up", "warning:", " is tainted: ", "shutting down, reason=failed"];

/// How often a console is looked at for what a guest says there.
const GLANCE: Duration = Duration::from_millis(50);

/// How often an agent is asked whether it is there by now.
const ASK: Duration = Duration::from_millis(500);

/// After how long the agent of a guest that has not said on its console that it is ready is asked all the same.
const ASK_ANYWAY: Duration = Duration::from_secs(5);

/// The VMs of this host that Penstock looks after.
#[derive(Clone, Debug)]
pub struct Vms {
    root: Root,
    state: State,
    builtin: Builtin,
    virsh: Virsh,
}

impl Vms {
    /// The VMs whose state lies in the directory `state`; `root` is where `/proc`, `/sys` and libvirt's files are looked
    /// for.
    pub fn new(root: Root, state: PathBuf, builtin: Builtin) -> Vms {
        Vms { root, state: State::new(state), builtin, virsh: Virsh::default() }
    }

    /// The same with this program in the place of `virsh`, for tests.
    pub fn through(self, virsh: PathBuf) -> Vms {
        Vms { virsh: Virsh::through(virsh), ..self }
    }

    /// The guests that are defined here, whether they are there or suspended, and their functions.
    ///
    /// # Errors
    ///
    /// As [`status`](Vms::status).
    pub fn found(&self) -> Result<BTreeMap<GuestName, FoundGuest>, GuestError> {
        let mut definitions = BTreeMap::new();
        for guest in self.state.guests()? {
            let definition = self.definition(&guest)?;
            definitions.extend(definition.map(|definition| (guest, definition)));
        }
        let found = self.status()?.into_iter().map(|(guest, status)| {
            let definition = definitions.remove(&guest);
            let found = definition.as_ref().and_then(GuestDefinition::as_found);
            let (own, drives) =
                definition.map(|definition| (definition.nics, definition.drives)).unwrap_or_default();
            let running = status.pid.is_some();
            let uplinks = own.iter().filter(|_| running).filter_map(GuestNic::uplink_vf).collect();
            let by = |path: DataPath| -> BTreeSet<NicName> {
                own.iter().filter(|own| own.nic.path == path).map(|own| own.name.clone()).collect()
            };
            let ports = own.iter().filter(|own| running && own.nic.path.has_switch());
            let ports = ports.filter_map(|own| Some((own.name.clone(), self.vf_ports(&guest, own)?)));
            let found = FoundGuest {
                ports: ports.collect(),
                running,
                suspended: status.condition == Condition::Suspended,
                not_awaited: status.not_awaited,
                functions: status.functions.iter().map(|owned| owned.function).chain(drives).collect(),
                home_drivers: status.home_drivers(),
                nics: own.iter().map(|own| own.name.clone()).collect(),
                taps: by(DataPath::Tap),
                vdpa: by(DataPath::VhostVdpa),
                switch_taps: by(DataPath::SwitchTap),
                uplinks,
                definition: found,
                ..FoundGuest::default()
            };
            (guest, found)
        });
        Ok(found.collect())
    }

    /// How each defined VM is, but for whether it is suspended, which only libvirt knows.
    ///
    /// # Errors
    ///
    /// [`GuestError::State`] or [`GuestError::Garbled`] when a file of its state cannot be read or makes no sense.
    pub fn seen(&self) -> Result<BTreeMap<GuestName, Status>, GuestError> {
        let mut all = BTreeMap::new();
        for guest in self.state.guests()? {
            // It can be removed between the two looks.
            let Some(definition) = self.state.definition(&guest)?.filter(|found| found.vm.is_some()) else {
                continue;
            };
            let (process, started) = (self.process(&guest)?, self.state.started(&guest)?);
            let last_words = || self.console(&guest);
            let status = Status::seen(GuestKind::Vm, process, started, definition.functions, last_words);
            all.insert(guest, status);
        }
        Ok(all)
    }

    /// How each defined VM is. Fails when one is there and libvirt cannot be asked whether it is suspended.
    ///
    /// # Errors
    ///
    /// [`GuestError::State`] or [`GuestError::Garbled`] when a file of its state cannot be read or makes no sense;
    /// [`GuestError::Libvirt`] when a VM is there and libvirt does not answer.
    pub fn status(&self) -> Result<BTreeMap<GuestName, Status>, GuestError> {
        let mut all = self.seen()?;
        if all.values().any(|status| status.pid.is_some()) {
            let suspended = self.suspended()?;
            for (_, status) in
                all.iter_mut().filter(|(guest, status)| status.pid.is_some() && suspended.contains(*guest))
            {
                status.condition = Condition::Suspended;
            }
        }
        Ok(all)
    }

    /// What a guest was defined as, if it is a VM.
    ///
    /// # Errors
    ///
    /// [`GuestError::State`] or [`GuestError::Garbled`] when a file of its state cannot be read or makes no sense.
    pub fn definition(&self, guest: &GuestName) -> Result<Option<GuestDefinition>, GuestError> {
        Ok(self.state.definition(guest)?.filter(|definition| definition.vm.is_some()))
    }

    /// The inside of a guest; why it cannot be looked into, else.
    ///
    /// # Errors
    ///
    /// In words: it does not run, is suspended, has nothing to be looked into by, or its agent does not answer.
    pub fn place(&self, guest: &GuestName) -> Result<Box<dyn Place>, String> {
        let known = || -> Result<_, GuestError> { Ok((self.definition(guest)?, self.process(guest)?)) };
        let (definition, process) = known().map_err(|error| chain(&error))?;
        let (Some(definition), Some(process)) = (definition, process) else {
            return Err("it does not run".to_owned());
        };
        match inside(&definition) {
            Inside::None => {
                self.runs(guest)?;
                Err("it has nothing to be looked into by (`inside: none`)".to_owned())
            }
            Inside::Console => {
                self.runs(guest)?;
                Ok(Box::new(ConsolePlace { state: self.state.clone(), definition }))
            }
            Inside::Agent => {
                let place = self.agent(definition, process);
                // Only when it does not answer is it asked why.
                place.ping(MOMENT).or_else(|error| {
                    self.runs(guest)?;
                    Err(format!("its agent does not answer: {}", chain(&error)))
                })?;
                Ok(Box::new(place))
            }
        }
    }

    fn runs(&self, guest: &GuestName) -> Result<(), String> {
        let suspended = self.suspended().map_err(|error| chain(&error))?;
        if suspended.contains(guest) { Err("it is suspended".to_owned()) } else { Ok(()) }
    }

    fn agent(&self, definition: GuestDefinition, process: Running) -> VmPlace {
        VmPlace { root: self.root.clone(), virsh: self.virsh.clone(), definition, process }
    }

    /// What the guest has written to its console since its last start.
    pub fn console_log(&self, guest: &GuestName) -> PathBuf {
        self.state.file(guest, "console.log")
    }

    /// Defines a VM, or defines it anew.
    ///
    /// # Errors
    ///
    /// [`GuestError::Running`] when it is there as something else, [`GuestError::Elsewhere`] when it was started with another
    /// state, [`GuestError::Busy`] when another Penstock is at work on it for longer than `timeout`, [`GuestError::State`] when it
    /// cannot be written down.
    pub fn define(&self, definition: &GuestDefinition, timeout: Duration) -> Result<(), GuestError> {
        let guest = &definition.guest;
        let _lock = self.state.lock(guest, timeout)?;
        let before = self.state.definition(guest)?;
        if before.as_ref() != Some(definition) {
            self.not_there(guest)?;
            // A VM that has ended by itself has left them, and another definition may not know of them.
            if let Some(before) = &before {
                self.end_taps_of(before)?;
                self.end_switches_of(before)?;
            }
        }
        self.not_elsewhere(guest)?;
        self.state.define(definition)
    }

    /// Removes a VM's definition; already gone is success.
    ///
    /// # Errors
    ///
    /// [`GuestError::Running`] while it is there, [`GuestError::Elsewhere`] while one is there that was started with another state,
    /// [`GuestError::Busy`] when another Penstock is at work on it for longer than `timeout`, [`GuestError::Libvirt`] when libvirt may be
    /// making it still and does not answer.
    pub fn undefine(&self, guest: &GuestName, timeout: Duration) -> Result<(), GuestError> {
        let _lock = self.state.lock(guest, timeout)?;
        if self.process(guest)?.is_some() {
            return Err(GuestError::Running { guest: guest.clone() });
        }
        self.not_elsewhere(guest)?;
        self.end_what_is_begun(guest, timeout)?;
        self.state.forget(guest)
    }

    /// Makes a defined VM, suspended; one that is there already is left as it is. After a failure nothing is there.
    ///
    /// # Errors
    ///
    /// [`GuestError::Undefined`], [`GuestError::Busy`], [`GuestError::Elsewhere`] when a VM of this name was started with another
    /// state, which runs on, and [`GuestError`] for all that it lacks here: KVM, libvirt, memory,
    /// huge pages, a file to boot, a function that is bound to `vfio-pci` in a viable IOMMU group; [`GuestError::NotMade`] with
    /// what QEMU said.
    pub fn create(&self, guest: &GuestName, timeout: Duration) -> Result<(), GuestError> {
        let deadline = Instant::now() + timeout;
        let _lock = self.state.lock(guest, timeout)?;
        let definition = self.defined(guest)?;
        if let Some(process) = self.process(guest)? {
            return self.note_process(guest, process);
        }
        self.not_elsewhere(guest)?;
        let begun = self.end_what_is_begun(guest, timeout)?;
        self.check(&definition)?;
        self.prepare(&definition)?;
        let started = Started {
            boot: this_boot(&self.root)?,
            since: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            functions: Vec::new(),
            init: None,
            not_awaited: true,
            made_again: false,
            groups: Vec::new(),
            ending: false,
        };
        // Written before libvirt is asked, so that it can be found again whatever happens.
        self.state.keep_started(guest, &started)?;
        let left = deadline.saturating_duration_since(Instant::now());
        let made = self.virsh.create(&self.state.file(guest, "domain.xml"), left);
        let outcome = match made {
            Ok(()) => match qemu::process(&self.root, guest) {
                Some(process) => self.note_process(guest, process),
                None => Err(GuestError::NotMade { said: self.qemu_log(guest) }),
            },
            Err(refused @ VirshError::Refused { .. }) => {
                let made = GuestError::NotMade { said: self.qemu_said(guest, refused.said()) };
                // It made none: one that is there, or that it is at, is of whoever was quicker, and is not ended. That may only be a Penstock of
                // this state where that was killed while libvirt was at it. What libvirt's daemon says is in its own language.
                let elsewhere = self.not_elsewhere(guest);
                if elsewhere.is_err() || (!begun && self.virsh.knows(guest, MOMENT).unwrap_or(false)) {
                    self.state.forget_started(guest)?;
                    return Err(elsewhere.err().unwrap_or(made));
                }
                Err(made)
            }
            Err(source) => Err(self.libvirt(format!("have VM {guest} made"), source)),
        };
        outcome.inspect_err(|_| self.abandon(guest))
    }

    /// Notes a VM's QEMU, and has its console be for those who may see it, unless that is done: whoever had it made may have died before.
    fn note_process(&self, guest: &GuestName, process: Running) -> Result<(), GuestError> {
        match self.state.started(guest)? {
            Some(started) if started.init.is_none() => {
                self.state.keep_started(guest, &Started { init: Some(process), ..started })?;
                Ok(console::share(&self.state.of(guest))?)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Lets a VM run that is there; already running is success.
    ///
    /// # Errors
    ///
    /// [`GuestError::Undefined`], [`GuestError::NotThere`] or [`GuestError::Died`] when there is no such VM,
    /// [`GuestError::Busy`], [`GuestError::Libvirt`] when libvirt does not let it run.
    pub fn resume(&self, guest: &GuestName, timeout: Duration) -> Result<(), GuestError> {
        let _lock = self.state.lock(guest, timeout)?;
        self.defined(guest)?;
        self.alive(guest)?;
        let outcome = self.virsh.resume(guest, timeout.min(MOMENT));
        outcome.map_err(|source| {
            self.alive(guest).err().unwrap_or_else(|| self.libvirt(format!("let VM {guest} run"), source))
        })
    }

    /// Suspends a VM; already suspended is success.
    ///
    /// # Errors
    ///
    /// As [`resume`](Vms::resume).
    pub fn suspend(&self, guest: &GuestName, timeout: Duration) -> Result<(), GuestError> {
        let _lock = self.state.lock(guest, timeout)?;
        self.defined(guest)?;
        self.alive(guest)?;
        let outcome = self.virsh.suspend(guest, timeout.min(MOMENT));
        outcome.map_err(|source| {
            self.alive(guest).err().unwrap_or_else(|| self.libvirt(format!("suspend VM {guest}"), source))
        })
    }

    /// Asks a VM to end, waits, then ends it; already gone is success. Does not need libvirt.
    ///
    /// # Errors
    ///
    /// [`GuestError::Elsewhere`] when one is there that was started with another state, which runs on with its functions,
    /// [`GuestError::Busy`] when another Penstock is at work on it for longer than `timeout`, [`GuestError::Unstoppable`] when QEMU does
    /// not end.
    pub fn stop(&self, guest: &GuestName, timeout: Duration) -> Result<(), GuestError> {
        let _lock = self.state.lock(guest, timeout)?;
        if let Some(process) = self.process(guest)? {
            let asked = match self.definition(guest)? {
                Some(definition) => self.ask_to_end(&definition, process, timeout),
                None => Ok(()),
            };
            if process.is_alive_below(&self.root) && !matches!(asked, Err(VirshError::Silent { .. })) {
                // What libvirt says to it is of no matter: the process is what counts.
                let _ = self.virsh.destroy(guest, timeout.min(MOMENT));
            }
            if process.is_alive_below(&self.root) {
                kill(process)?;
            }
        } else {
            self.end_what_is_begun(guest, timeout)?;
        }
        if self.state.started(guest)?.is_some() {
            self.state.forget_started(guest)?;
        }
        self.not_elsewhere(guest)
    }

    /// Waits until a running VM is ready: its agent answers, or it said so on its console, or there is nothing to wait for.
    ///
    /// # Errors
    ///
    /// [`GuestError::NotReady`] after `timeout`, with what it lacks and its last lines; [`GuestError::Died`] when it ends
    /// meanwhile.
    pub fn await_ready(&self, guest: &GuestName, timeout: Duration) -> Result<(), GuestError> {
        let started = Instant::now();
        let definition = self.defined(guest)?;
        let mut process = self.alive(guest)?;
        self.note_process(guest, process)?;
        let builtin = vm(&definition).boot == Boot::Builtin;
        let mut place = self.agent(definition.clone(), process);
        let mut asked: Option<Instant> = None;
        let mut again = false;
        let mut why = "it has not said on its console that it is ready".to_owned();
        loop {
            if !process.is_alive_below(&self.root) {
                return Err(self.died(guest));
            }
            match inside(&definition) {
                Inside::None => return Ok(()),
                Inside::Console => {
                    if report_of(&self.console_log(guest)).is_some() {
                        return Ok(());
                    }
                }
                Inside::Agent => {
                    // A builtin guest starts its agent before it says that it is ready, and the agent may answer a moment later:
                    // until then to look at a file costs nothing.
                    let worth = || {
                        !builtin
                            || report_of(&self.console_log(guest)).is_some()
                            || asked.unwrap_or(started).elapsed() >= ASK_ANYWAY
                    };
                    if asked.is_none_or(|asked| asked.elapsed() >= ASK) && worth() {
                        match place.ping(Duration::from_secs(3)) {
                            Ok(()) => return Ok(()),
                            Err(error) => why = format!("its agent does not answer: {}", chain(&error)),
                        }
                        asked = Some(Instant::now());
                    }
                }
            }
            // The builtin guest has nothing to lose before its first word. Nested in an emulated processor, about one start
            // in fifty hangs in the kernel's first seconds: a timer interrupt comes while interrupts are off. A reset does
            // not bring such a one back.
            if builtin && !again && started.elapsed() >= timeout * 2 / 5 && self.is_silent(guest) {
                again = true;
                process = self.make_again(guest, process, timeout)?;
                place = self.agent(definition.clone(), process);
            }
            if started.elapsed() >= timeout || interrupt::pending() {
                return Err(GuestError::NotReady {
                    guest: guest.clone(),
                    after: started.elapsed(),
                    why,
                    console: self.console(guest),
                });
            }
            thread::sleep(GLANCE);
        }
    }

    /// Ends a VM at once, makes it anew and lets it run. `penstock status` tells of it.
    fn make_again(
        &self,
        guest: &GuestName,
        process: Running,
        timeout: Duration,
    ) -> Result<Running, GuestError> {
        self.end_what_is_made(guest, MOMENT)?;
        // While it is still on its way out it would pass for one that is there.
        kill(process)?;
        self.create(guest, timeout)?;
        self.state.keep_made_again(guest)?;
        self.resume(guest, timeout)?;
        self.alive(guest)
    }

    /// Whether a builtin guest has not begun to say anything.
    fn is_silent(&self, guest: &GuestName) -> bool {
        files::read_to_string(self.console_log(guest)).is_ok_and(|said| !said.contains("penstock-guest:"))
    }

    /// Whether a VM is ready now; why not, else.
    pub(crate) fn ready(&self, guest: &GuestName) -> Result<Result<(), String>, GuestError> {
        let Some(definition) = self.definition(guest)? else {
            return Ok(Err("it is not defined".to_owned()));
        };
        let Some(process) = self.process(guest)? else {
            return Ok(Err("it does not run".to_owned()));
        };
        Ok(match inside(&definition) {
            Inside::None => Ok(()),
            Inside::Console if report_of(&self.console_log(guest)).is_some() => Ok(()),
            Inside::Console => Err("it has not said on its console that it is ready".to_owned()),
            Inside::Agent => self
                .agent(definition, process)
                .ping(MOMENT)
                .map_err(|error| format!("its agent does not answer: {}", chain(&error))),
        })
    }

    /// The VMs that are there and suspended.
    pub(crate) fn suspended(&self) -> Result<BTreeSet<GuestName>, GuestError> {
        let suspended = self.virsh.suspended(MOMENT);
        let suspended =
            suspended.map_err(|source| self.libvirt("ask which VMs are suspended".to_owned(), source))?;
        Ok(suspended.into_iter().collect())
    }

    /// The guest's QEMU, if it is there.
    pub(crate) fn process(&self, guest: &GuestName) -> Result<Option<Running>, GuestError> {
        let Some(started) = self.state.started(guest)? else {
            // Somebody may have removed the record of its start.
            return Ok(self.proven_qemu(guest));
        };
        if !started.is_of_this_boot(&self.root)? {
            return Ok(None);
        }
        match started.init {
            Some(init) => Ok(init.is_alive_below(&self.root).then_some(init)),
            // Whoever had it made did not live to note its process; libvirt did. One of another state may have taken its name since.
            None => Ok(self.own_qemu(guest)),
        }
    }

    fn defined(&self, guest: &GuestName) -> Result<GuestDefinition, GuestError> {
        self.definition(guest)?.ok_or_else(|| GuestError::Undefined { guest: guest.clone() })
    }

    fn alive(&self, guest: &GuestName) -> Result<Running, GuestError> {
        if let Some(process) = self.process(guest)? {
            return Ok(process);
        }
        Err(match self.state.started(guest)? {
            Some(_) => self.died(guest),
            None => GuestError::NotThere { guest: guest.clone() },
        })
    }

    fn died(&self, guest: &GuestName) -> GuestError {
        let labelled = |label: &str, lines: Vec<String>| -> Vec<String> {
            lines.into_iter().map(|line| format!("{label}: {line}")).collect()
        };
        let said = [labelled("qemu", self.qemu_log(guest)), labelled("console", self.console(guest))];
        GuestError::Died { guest: guest.clone(), said: said.concat() }
    }

    fn libvirt(&self, attempt: String, source: VirshError) -> GuestError {
        GuestError::Libvirt { attempt, source }
    }

    /// What can be known to be wrong before libvirt is asked.
    fn check(&self, definition: &GuestDefinition) -> Result<(), GuestError> {
        if !self.virsh.is_there() {
            let attempt = format!("have VM {} made", definition.guest);
            return Err(self.libvirt(attempt, VirshError::Missing));
        }
        needs::kvm(&self.root)?;
        needs::functions(&self.root, &self.state, definition)?;
        needs::memory(&self.root, definition)
    }

    /// Ends what is left of a creation that failed.
    fn abandon(&self, guest: &GuestName) {
        if self.end_what_is_made(guest, MOMENT).is_ok() {
            let _ = self.state.forget_started(guest);
        }
    }

    /// Asks a guest to end, and waits a while. An error when libvirt does not do even that.
    fn ask_to_end(
        &self,
        definition: &GuestDefinition,
        process: Running,
        timeout: Duration,
    ) -> Result<(), VirshError> {
        let guest = &definition.guest;
        if self.virsh.suspended(MOMENT)?.contains(guest) {
            // It does not hear.
            return Ok(());
        }
        let builtin = vm(definition).boot == Boot::Builtin;
        let grace = (timeout / 2).min(if builtin { BUILTIN_GRACE } else { GRACE });
        let deadline = Instant::now() + grace;
        // The agent first; where it does not answer, the power button.
        let mut asked = Ok(());
        for by_agent in [true, false] {
            if !by_agent || inside(definition) == Inside::Agent {
                asked = self.virsh.shutdown(guest, by_agent, grace.max(Duration::from_secs(1)));
                if asked.is_ok() {
                    break;
                }
            }
        }
        while asked.is_ok()
            && process.is_alive_below(&self.root)
            && Instant::now() < deadline
            && !interrupt::pending()
        {
            thread::sleep(Duration::from_millis(20));
        }
        asked
    }

    /// What libvirt said of why a VM was not made, and what QEMU did.
    fn qemu_said(&self, guest: &GuestName, said: &[String]) -> Vec<String> {
        let mut said: Vec<String> = said
            .iter()
            .filter(|line| !line.starts_with("Failed to create domain"))
            // libvirt passes on whatever QEMU said first, which may be a warning about something else.
            .map(|line| match line.split_once(": qemu-system-") {
                Some((libvirt, qemu)) if qemu.contains(" warning: ") => libvirt.to_owned(),
                _ => line.clone(),
            })
            .collect();
        for line in self.qemu_log(guest) {
            if !said.iter().any(|known| known.contains(&line)) {
                said.push(format!("qemu: {line}"));
            }
        }
        said
    }

    /// The last lines of libvirt's log of this QEMU that are QEMU's own, of its last start.
    fn qemu_log(&self, guest: &GuestName) -> Vec<String> {
        let log = self.root.path(format!("/var/log/libvirt/qemu/{PREFIX}{guest}.log"));
        let lines = last_lines(&log, 200);
        // libvirt writes the whole command line at each start: its last line has "-msg timestamp=on".
        let start = lines.iter().rposition(|line| line.contains("-msg timestamp=on")).map_or(0, |at| at + 1);
        let own: Vec<String> = lines[start..]
            .iter()
            .filter(|line| !CHATTER.iter().any(|words| line.contains(words)))
            .cloned()
            .collect();
        own[own.len().saturating_sub(LINES)..].to_vec()
    }

    fn console(&self, guest: &GuestName) -> Vec<String> {
        last_lines(&self.console_log(guest), LINES)
    }
}

fn vm(definition: &GuestDefinition) -> Vm {
    definition.vm.clone().unwrap_or_default()
}

fn inside(definition: &GuestDefinition) -> Inside {
    definition.vm.as_ref().map_or(Inside::None, |vm| vm.inside)
}
