//! The containers of this host (LXC).
//!
//! A container owns its functions' network interfaces while it runs (`lxc.net.N.type = phys`) and gives them back when
//! it stops. [`Containers`] starts and stops them; [`ContainerPlace`] is the inside of a running one,
//! for verification and measurement.
//!
//! What a container is kept from: its root is an ordinary account of the host (a user namespace), unless the model says
//! `privileged: on`; it keeps few capabilities, gains none, and has a system call filter (`confinement`). With the default
//! root it sees programs and libraries of the host, read-only, and nothing else of its files; a read-only `/sys`, and no
//! devices but null and its like and those that the model gives it. It shares the host's kernel: software that may attack
//! the kernel belongs into a VM. What all of this comes to is proven by `proofs`.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use penstock_host::{Netlink, Root, chain, files, running::Running};
use penstock_model::{Bdf, Guest, GuestKind, GuestName, InterfaceName, Verdict, inventory::FoundGuest};
use penstock_plan::action::{GuestDefinition, GuestFunction};

use self::{
    config::Config,
    devices::Granted,
    interfaces::{AfterContainer, Interfaces},
    used::Unless,
};
use crate::{
    error::GuestError,
    state::{Lent, Started, State, this_boot},
    status::Status,
    words::last_lines,
};

pub mod apparmor;
pub mod config;
mod confinement;
pub mod devices;
mod dhcp;
pub mod dns;
mod finish;
pub mod ids;
mod interfaces;
mod interrupts;
mod limits;
pub(crate) mod lxc;
pub mod nics;
mod place;
mod proofs;
pub mod rates;
mod ready;
mod routes;
pub mod start_script;
mod used;
mod vfs;

pub use interfaces::Recognise;
pub use place::ContainerPlace;

/// How long a first process of the model's own has to end when it is asked to, before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// How long the idle first process has; it needs milliseconds.
const IDLE_GRACE: Duration = Duration::from_secs(1);

/// How long functions have to come back after a start that failed, or a container that ended by itself.
const BACK: Duration = Duration::from_secs(3);

/// How long LXC may take, beside that, for each function that it takes down: a driver of a VF that its PF does not answer waits for
/// a second at each of its questions (igbvf: `e1000_reset_hw_vf`, its VLANs, its multicast list).
const DOWN: Duration = Duration::from_secs(4);

/// How many last lines of its console are told of a container that died.
const LINES: usize = 10;

/// The containers of this host that Penstock looks after.
#[derive(Clone, Debug)]
pub struct Containers {
    root: Root,
    state: State,
    interfaces: Interfaces,
    /// Which ids of the host are whose ([`ids::FILE`]).
    ids: PathBuf,
}

impl Containers {
    /// The containers whose state lies in the directory `state`: by default `/run/penstock/guests`, whose contents go
    /// with the machine's power, as its containers do. `root` is where `/proc` and `/sys` are looked for.
    pub fn new(root: Root, state: PathBuf) -> Containers {
        let (interfaces, ids) = (Interfaces::of(root.clone()), root.path(ids::FILE));
        Containers { interfaces, state: State::new(state), ids, root }
    }

    /// The same with another way to tell a function's interface from others, for tests without SR-IOV.
    pub fn recognising(self, by: Arc<dyn Recognise>) -> Containers {
        Containers { interfaces: Interfaces::by(by), ..self }
    }

    /// The same with another file that says which ids of the host are whose, for tests that leave nothing behind.
    pub fn keeping_ids_in(self, file: PathBuf) -> Containers {
        Containers { ids: file, ..self }
    }

    /// The guests that are defined here, whether they run, and the functions that they own while they do. The functions of one that has
    /// just ended, by itself or because its start failed, are on their way back to the host; they are waited for, so that a scan of the
    /// host that is made after this finds them, and not "in another network namespace".
    ///
    /// # Errors
    ///
    /// As [`status`](Containers::status).
    pub fn found(&self) -> Result<BTreeMap<GuestName, FoundGuest>, GuestError> {
        let mut definitions = BTreeMap::new();
        for guest in self.state.guests()? {
            let definition = self.state.definition(&guest)?;
            definitions.extend(definition.map(|definition| (guest, definition)));
        }
        let status = self.status()?;
        let mut in_use = BTreeMap::new();
        for (guest, _) in status.iter().filter(|(_, status)| status.pid.is_none()) {
            self.await_return(guest)?;
            in_use.insert(guest.clone(), self.in_use(guest)?);
        }
        let status = status.into_iter().map(|(guest, status)| {
            let definition = definitions.remove(&guest);
            let found = definition.as_ref().and_then(GuestDefinition::as_found);
            let nics = definition.map(|definition| definition.nics).unwrap_or_default();
            let running = status.pid.is_some();
            let found = FoundGuest {
                ports: nics.iter().filter(|_| running).filter_map(|own| self.port_of(&guest, own)).collect(),
                nics: nics.into_iter().map(|own| own.name).collect(),
                running,
                suspended: false,
                unfinished: status.unfinished,
                not_awaited: status.not_awaited,
                functions: status.functions.iter().map(|owned| owned.function).collect(),
                home_drivers: status.home_drivers(),
                in_use: in_use.remove(&guest).unwrap_or_default(),
                definition: found,
                ..FoundGuest::default()
            };
            (guest, found)
        });
        Ok(status.collect())
    }

    /// How each defined guest is.
    ///
    /// # Errors
    ///
    /// [`GuestError::State`] or [`GuestError::Garbled`] when a file of its state cannot be read or makes no sense.
    pub fn status(&self) -> Result<BTreeMap<GuestName, Status>, GuestError> {
        let mut all = BTreeMap::new();
        for guest in self.state.guests()? {
            // It can be removed between the two looks.
            let Some(definition) = self.state.definition(&guest)?.filter(|found| found.vm.is_none()) else {
                continue;
            };
            let init = self.running(&guest)?;
            let started = self.state.started(&guest)?;
            let last_words = || last_lines(&self.console_log(&guest), LINES);
            let status = Status::seen(GuestKind::Container, init, started, definition.functions, last_words);
            all.insert(guest, status);
        }
        Ok(all)
    }

    /// What a guest was defined as.
    ///
    /// # Errors
    ///
    /// [`GuestError::State`] or [`GuestError::Garbled`] when a file of its state cannot be read or makes no sense.
    pub fn definition(&self, guest: &GuestName) -> Result<Option<GuestDefinition>, GuestError> {
        self.state.definition(guest)
    }

    /// The inside of a guest; `None` when it does not run or that cannot be told.
    pub fn place(&self, guest: &GuestName) -> Option<ContainerPlace> {
        let init = self.running(guest).ok().flatten()?;
        Some(ContainerPlace::new(self.root.clone(), self.state.clone(), guest.clone(), init))
    }

    /// A shell inside a guest, for [`penstock_host::Command::run_attached`] on a person's terminal; `None` when the guest
    /// does not run.
    pub fn shell(&self, guest: &GuestName) -> Option<penstock_host::Command> {
        self.running(guest).ok().flatten()?;
        let attach = lxc::command("lxc-attach", &self.state, guest);
        Some(attach.args(["--clear-env", "--keep-var=TERM", "--", "/bin/sh"]))
    }

    /// What the guest's first process has written to its console since the last start, or before the last one ended.
    pub fn console_log(&self, guest: &GuestName) -> PathBuf {
        self.state.file(guest, "console.log")
    }

    /// One verdict for each limit, pin, rate and device that the model asks of this container, re-read from the kernel.
    pub fn verdicts(&self, guest: &GuestName, wanted: &Guest) -> Vec<Verdict> {
        self.while_it_runs(guest, |init| self.verdicts_of(init, guest, wanted))
    }

    /// One verdict for each fence around this container (`proofs`): what the kernel says, and what a shell inside gets when
    /// it tries.
    pub fn fences(&self, guest: &GuestName, wanted: &Guest) -> Vec<Verdict> {
        self.while_it_runs(guest, |init| {
            let pid = init.map(|init| init.id).ok_or_else(|| "the guest does not run".to_owned());
            let place = init
                .map(|init| ContainerPlace::new(self.root.clone(), self.state.clone(), guest.clone(), init));
            proofs::verdicts(&self.root, guest, &pid, place.as_ref(), wanted)
        })
    }

    fn while_it_runs(
        &self,
        guest: &GuestName,
        verdicts: impl Fn(Option<Running>) -> Vec<Verdict>,
    ) -> Vec<Verdict> {
        let init = self.running(guest).ok().flatten();
        let seen = verdicts(init);
        // What ended meanwhile has told nothing: its number can be another process's by now.
        match init {
            Some(init) if !init.is_alive_below(&self.root) => verdicts(None),
            _ => seen,
        }
    }

    fn verdicts_of(&self, init: Option<Running>, guest: &GuestName, wanted: &Guest) -> Vec<Verdict> {
        let pid = init.map(|init| init.id).ok_or_else(|| "the guest does not run".to_owned());
        let mut verdicts = limits::verdicts(&self.root, guest, pid.clone(), wanted);
        verdicts.extend(devices::verdicts(&self.root, guest, pid.clone(), &wanted.devices));
        let (definition, interfaces) = (OnceCell::new(), OnceCell::new());
        let interface_of = |position: usize| {
            let definition = definition.get_or_init(|| self.state.definition(guest).ok().flatten());
            let owned = definition.as_ref().and_then(|definition| definition.functions.get(position));
            let owned = owned.ok_or_else(|| "the guest is not defined with it".to_owned())?;
            let interfaces = interfaces.get_or_init(|| {
                let pid = pid.clone()?;
                let inside = Netlink::in_namespace_of(pid).and_then(|mut netlink| netlink.interfaces());
                inside.map_err(|error| error.to_string())
            });
            let found = self.interfaces.find(owned.function, interfaces.as_ref().map_err(String::clone)?);
            found.map(|found| found.interface.name).ok_or_else(|| "its interface is not inside".to_owned())
        };
        verdicts.extend(rates::verdicts(&wanted.functions, pid.clone(), interface_of));
        verdicts
    }

    /// Defines a guest, or defines it anew.
    ///
    /// # Errors
    ///
    /// [`GuestError::Running`] when it runs as something else, [`GuestError::Config`] for a root that LXC cannot have,
    /// [`GuestError::Busy`] when another Penstock is at work on it for longer than `timeout`, [`GuestError::State`] when it
    /// cannot be written down.
    pub fn define(&self, definition: &GuestDefinition, timeout: Duration) -> Result<(), GuestError> {
        let guest = &definition.guest;
        if let Some(root) = &definition.root {
            config::fit_root(root)?;
        }
        let _lock = self.state.lock(guest, timeout)?;
        if self.running(guest)?.is_some() && self.state.definition(guest)?.as_ref() != Some(definition) {
            return Err(GuestError::Running { guest: guest.clone() });
        }
        self.state.define(definition)
    }

    /// Removes a guest's definition; already gone is success.
    ///
    /// # Errors
    ///
    /// [`GuestError::Running`] while it runs, [`GuestError::Busy`] when another Penstock is at work on it for longer than
    /// `timeout`, [`GuestError::NotBack`] when a function of an earlier start does not come back.
    pub fn undefine(&self, guest: &GuestName, timeout: Duration) -> Result<(), GuestError> {
        let _lock = self.state.lock(guest, timeout)?;
        self.put_interrupts_back(guest)?;
        if self.running(guest)?.is_some() {
            return Err(GuestError::Running { guest: guest.clone() });
        }
        // One that ended by itself, with the interface of a PF: nobody else brings that up, as a plan does after a stop.
        let after = AfterContainer { up_again: true, unless: self.unless(guest)? };
        self.give_back(guest, after, timeout.min(BACK))?;
        // They are made before the note that something was lent.
        self.remove_nodes(guest);
        ids::tidy(&self.root, &self.ids)?;
        self.state.forget(guest)
    }

    /// Starts a defined guest and waits until it runs with its functions' interfaces inside; already running is
    /// success. After a failure the functions are back on the host. One whose start nobody has finished is given what it lacks, and runs on
    /// after a failure.
    ///
    /// # Errors
    ///
    /// [`GuestError::Undefined`], [`GuestError::Busy`], and [`GuestError`] for all that it lacks here: LXC, its root, a device,
    /// limits, rates, an interface of a function; [`GuestError::Ended`] when its first process ends at once.
    pub fn start(&self, guest: &GuestName, timeout: Duration) -> Result<(), GuestError> {
        let deadline = Instant::now() + timeout;
        let _lock = self.state.lock(guest, timeout)?;
        self.put_interrupts_back(guest)?;
        let definition =
            self.state.definition(guest)?.ok_or_else(|| GuestError::Undefined { guest: guest.clone() })?;
        if let Some(init) = self.running(guest)? {
            return self.finish_running(&definition, init, deadline);
        }
        self.check(&definition)?;
        let devices = devices::resolve(&self.root, &definition)?;
        self.give_back(guest, AfterContainer::DOWN, timeout.min(BACK))?;
        let lent = self.resolve(&definition)?;
        let nics = self.nic_interfaces(&definition)?;
        self.prepare(&definition, &lent, &nics, &devices)?;
        let started = Started {
            boot: this_boot(&self.root)?,
            since: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            functions: lent,
            init: None,
            not_awaited: true,
            made_again: false,
            groups: Vec::new(),
            ending: false,
        };
        // Written before anything leaves the host, so that it can be found again whatever happens.
        self.state.keep_started(guest, &started)?;
        let launched = self.beside_workqueues(&definition, || self.launch(&definition, deadline));
        let outcome = launched.and_then(|init| {
            self.ask_for_leases(&definition, init, deadline)?;
            self.note_running(guest, started, init)
        });
        outcome.map_err(|error| self.abandon(guest, error))
    }

    /// Stops a guest and waits until its functions are back on the host, down and without addresses; already stopped is
    /// success. Of one that ended by itself, an interface that the host uses by now is left as it is.
    ///
    /// # Errors
    ///
    /// [`GuestError::Busy`] when another Penstock is at work on it for longer than `timeout`, [`GuestError::Unstoppable`] when
    /// its first process does not end, [`GuestError::NotBack`] when a function does not come back.
    pub fn stop(&self, guest: &GuestName, timeout: Duration) -> Result<(), GuestError> {
        let deadline = Instant::now() + timeout;
        let _lock = self.state.lock(guest, timeout)?;
        let interrupts = self.put_interrupts_back(guest);
        let definition = self.state.definition(guest)?;
        let after = match self.running(guest)? {
            Some(_) => AfterContainer::DOWN,
            None => AfterContainer { up_again: false, unless: self.unless(guest)? },
        };
        if after == AfterContainer::DOWN {
            // That it cannot be written down, on a full disk, say, keeps nobody from the interfaces.
            let _ = self.state.keep_ending(guest, true);
        }
        let end = || self.end(guest, definition.as_ref(), timeout);
        let ended = match &definition {
            Some(definition) => self.beside_workqueues(definition, end),
            None => end(),
        };
        ended.inspect_err(|_| {
            // It runs on, and may end by itself later.
            let _ = self.state.keep_ending(guest, false);
        })?;
        let left = deadline.saturating_duration_since(Instant::now());
        self.give_back(guest, after, left.max(BACK)).and(interrupts)
    }

    /// Ends its processes, and LXC's own.
    fn end(
        &self,
        guest: &GuestName,
        definition: Option<&GuestDefinition>,
        timeout: Duration,
    ) -> Result<(), GuestError> {
        let init = self.running(guest)?;
        let monitor = lxc::monitor(&self.root, &self.state, guest);
        let mut groups = self.state.started(guest)?.map(|started| started.groups).unwrap_or_default();
        groups.extend(monitor.iter().flat_map(|monitor| lxc::groups(&self.root, monitor.id)));
        if let Some(init) = init {
            let idle = definition.is_some_and(|definition| definition.init.is_empty());
            let grace = (timeout / 2).min(if idle { IDLE_GRACE } else { GRACE });
            let asked = lxc::stop(&self.state, guest, grace);
            if init.is_alive_below(&self.root) {
                // LXC's own process for this container has died, or is stuck: the container must not outlive it.
                init.kill(BACK);
            }
            if init.is_alive_below(&self.root) {
                return Err(match asked {
                    Err(source) => self.failed(guest, source),
                    Ok(()) => GuestError::Unstoppable { pid: init.id },
                });
            }
        }
        self.end_monitor(guest, definition);
        // A process of LXC's that was killed, by whomever, has left them.
        groups.iter().for_each(|group| lxc::remove_group(group));
        Ok(())
    }

    /// Waits for LXC's own process of a container that has ended. One that is stuck is killed: it holds the container's interfaces,
    /// and the name for the next start.
    fn end_monitor(&self, guest: &GuestName, definition: Option<&GuestDefinition>) {
        let Some(monitor) = lxc::monitor(&self.root, &self.state, guest) else { return };
        let functions = definition.map_or(0, |found| found.functions.len() + found.nics.len());
        // It takes the interfaces down one after the other.
        let until = Instant::now() + time_to_return(functions);
        while monitor.is_alive_below(&self.root) {
            if Instant::now() > until {
                monitor.kill(BACK);
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether a container runs.
    pub(crate) fn runs(&self, guest: &GuestName) -> Result<bool, GuestError> {
        Ok(self.running(guest)?.is_some())
    }

    /// The first process of a running container.
    pub(crate) fn first_process(&self, guest: &GuestName) -> Result<Option<Running>, GuestError> {
        self.running(guest)
    }

    fn died(&self, guest: &GuestName) -> GuestError {
        GuestError::Died { guest: guest.clone(), said: lxc::last_words(&self.state, guest) }
    }

    /// The guest's first process, if it runs.
    fn running(&self, guest: &GuestName) -> Result<Option<Running>, GuestError> {
        let Some(started) = self.state.started(guest)? else {
            return Ok(None);
        };
        if !started.is_of_this_boot(&self.root)? {
            return Ok(None);
        }
        if let Some(init) = started.init {
            return Ok(init.is_alive_below(&self.root).then_some(init));
        }
        // Whoever started it did not live to note its first process; LXC knows. It may still be at the start, and not answer yet.
        let until = Instant::now() + BACK;
        loop {
            let pid = lxc::init_of(&self.state, guest).map_err(|source| self.failed(guest, source))?;
            let found = pid.and_then(|pid| Running::find(&self.root, pid));
            let is_settled = found.is_some() || lxc::monitor(&self.root, &self.state, guest).is_none();
            if is_settled || Instant::now() > until {
                return Ok(found);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// What can be known to be wrong before anything is started.
    fn check(&self, definition: &GuestDefinition) -> Result<(), GuestError> {
        if let Some(program) = lxc::missing() {
            return Err(GuestError::NoLxc { program: program.to_owned() });
        }
        if let Some(root) = &definition.root
            && !files::exists(format!("{root}/."))
        {
            return Err(GuestError::NoRoot { guest: definition.guest.clone(), path: root.clone() });
        }
        if let Some(root) = &definition.root {
            config::not_the_hosts(root)?;
        }
        limits::check(&self.root, definition)?;
        rates::check(definition)?;
        routes::check(definition)?;
        dns::check(definition)?;
        dhcp::check(definition)
    }

    /// Each function's interface on the host.
    fn resolve(&self, definition: &GuestDefinition) -> Result<Vec<Lent>, GuestError> {
        let reports = self.interfaces.on_host()?;
        let lend = |owned: &GuestFunction| match self.interfaces.find(owned.function, &reports) {
            Some(found) => {
                vfs::check_mac(&self.root, owned, &found)?;
                self.interfaces.lend(owned.function, found)
            }
            None => Err(GuestError::NoInterface {
                guest: definition.guest.clone(),
                function: owned.function,
                why: self.why_not_here(owned.function, &definition.guest),
            }),
        };
        definition.functions.iter().map(lend).collect()
    }

    fn why_not_here(&self, function: Bdf, wanting: &GuestName) -> String {
        match self.state.holder(function, wanting) {
            Ok(Some(owner)) => format!("guest {owner} has it"),
            _ if !self.interfaces.exists(function) => "there is no such function".to_owned(),
            _ => "no network driver is bound to it, or its interface is in another namespace".to_owned(),
        }
    }

    /// Writes what LXC reads.
    fn prepare(
        &self,
        definition: &GuestDefinition,
        lent: &[Lent],
        nics: &[InterfaceName],
        devices: &[Granted],
    ) -> Result<(), GuestError> {
        let guest = &definition.guest;
        let names: Vec<InterfaceName> = lent.iter().map(|lent| lent.name.clone()).collect();
        let directory = self.state.of(guest);
        let ids = match definition.privileged {
            true => None,
            false => Some(ids::of_container(&self.root, &self.ids, guest)?),
        };
        let root = match &definition.root {
            Some(root) => PathBuf::from(root),
            None => self.state.file(guest, "root"),
        };
        files::create_dir_all(self.state.file(guest, "root"))?;
        let mut map_root = false;
        if let Some(ids) = ids {
            for path in [&directory, &self.state.file(guest, "root")] {
                files::set_mode(path, 0o755)?;
            }
            if let Some(path) = files::closed_to(&root, ids.user)? {
                return Err(GuestError::Closed { guest: guest.clone(), path });
            }
            let owner = files::owner(&root)?;
            map_root = definition.root.is_some() && !ids.has_user(owner);
            let assigned = ids::Assigned::read(&self.ids)?;
            if map_root && let Some(holder) = assigned.holder(owner) {
                let (guest, holder) = (guest.clone(), holder.clone());
                return Err(GuestError::OthersRoot { guest, path: root, owner, holder, ids });
            }
        }
        let devices = &devices::nodes(guest, devices, ids)?;
        let config = Config {
            definition,
            interfaces: &names,
            nics,
            devices,
            directory: &directory,
            ids,
            raise_limits: self.may_raise_limits()?,
            map_root,
            apparmor: apparmor::of_containers(&self.root),
        };
        let text = config::render(&config)?;
        let mtus: Vec<u32> = lent.iter().map(|lent| lent.mtu).collect();
        let start_script = config::start_script(&config, &mtus)?;
        files::write_atomic_mode(
            self.state.file(guest, confinement::FILTER),
            confinement::filter(definition.privileged, definition.root.is_some()),
            0o600,
        )?;
        if let Some(script) = config::root_script(&config)? {
            // Its own root reads it, and it says nothing that is secret.
            files::write_atomic_mode(self.state.file(guest, confinement::ROOT_SCRIPT), script, 0o644)?;
        }
        match &definition.dns {
            Some(dns) => {
                files::write_atomic_mode(self.state.file(guest, dns::FILE), dns.resolv_conf(), 0o644)?
            }
            None => files::remove_file(self.state.file(guest, dns::FILE))?,
        }
        for log in [lxc::LOG, "console.log", "console.log.1", start_script::LOG] {
            files::remove_file(self.state.file(guest, log))?;
        }
        if let Some(script) = start_script {
            files::write_atomic_mode(self.state.file(guest, start_script::SCRIPT), script, 0o600)?;
        }
        Ok(files::write_atomic_mode(self.state.file(guest, "config"), text, 0o600)?)
    }

    /// Whether this process may raise the resource limits of others.
    fn may_raise_limits(&self) -> Result<bool, GuestError> {
        const CAP_SYS_RESOURCE: u32 = 24;
        let status = files::read_to_string(self.root.path("/proc/self/status"))?;
        let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let held = held.and_then(|held| u64::from_str_radix(held.trim(), 16).ok());
        Ok(held.is_some_and(|held| held >> CAP_SYS_RESOURCE & 1 == 1))
    }

    /// Has LXC start it, and looks whether it really runs with its interfaces inside.
    fn launch(&self, definition: &GuestDefinition, deadline: Instant) -> Result<Running, GuestError> {
        let guest = &definition.guest;
        let init = config::init(definition);
        let timeout = deadline.saturating_duration_since(Instant::now());
        lxc::start(&self.state, guest, &init, timeout).map_err(|source| {
            let log = files::read_at_most(self.state.file(guest, start_script::LOG), 64 << 10);
            let failure = |log: Vec<u8>| start_script::failure(guest, &String::from_utf8_lossy(&log));
            log.ok().and_then(|(log, _)| failure(log)).unwrap_or_else(|| self.failed(guest, source))
        })?;
        let found = lxc::init_of(&self.state, guest)
            .map_err(|source| self.failed(guest, source))?
            .and_then(|pid| Running::find(&self.root, pid))
            .ok_or_else(|| self.ended(definition))?;
        self.prove_inside(definition, found, deadline)?;
        Ok(found)
    }

    /// Ends what is left of a start that failed; the error, with what could not be put right.
    fn abandon(&self, guest: &GuestName, error: GuestError) -> GuestError {
        // Should it not come back in time, what it has by then is not the host's for that.
        let _ = self.state.keep_ending(guest, true);
        // With a lease's client its programs have been at work for a while.
        let grace = if matches!(error, GuestError::NoLease { .. }) { GRACE } else { Duration::ZERO };
        let stopped = lxc::stop(&self.state, guest, grace).err().map(|error| chain(&error));
        let back = self.give_back(guest, AfterContainer::DOWN, BACK).err().map(|error| chain(&error));
        error.then(stopped.into_iter().chain(back).collect())
    }

    /// Waits until the interfaces of a container that has ended are on the host.
    fn await_return(&self, guest: &GuestName) -> Result<(), GuestError> {
        match self.state.started(guest)? {
            Some(started) if started.is_of_this_boot(&self.root)? => {
                self.interfaces.await_return(&started.functions, time_to_return(started.functions.len()))
            }
            _ => Ok(()),
        }
    }

    /// Whether a guest's functions have left the host with this start of it. LXC opens its log before all else: without one it was never
    /// asked, no interface has left the host, and what they have is the host's own. So is what they have since the machine was switched on.
    fn have_left(&self, guest: &GuestName, started: &Started) -> Result<bool, GuestError> {
        let was_asked = started.init.is_some() || files::exists(self.state.file(guest, lxc::LOG));
        Ok(was_asked && started.is_of_this_boot(&self.root)?)
    }

    /// Which use by the host keeps the interfaces of a container that does not run from being taken back.
    fn unless(&self, guest: &GuestName) -> Result<Unless, GuestError> {
        let is_halfway = self.state.started(guest)?.is_some_and(|started| started.is_halfway());
        Ok(if is_halfway { Unless::StoodOn } else { Unless::Used })
    }

    /// The functions that a container which does not run was lent, and that are not taken back since the host uses them.
    fn in_use(&self, guest: &GuestName) -> Result<BTreeSet<Bdf>, GuestError> {
        match self.state.started(guest)? {
            Some(started) if self.have_left(guest, &started)? => {
                self.interfaces.in_use(&started.functions, self.unless(guest)?)
            }
            Some(_) | None => Ok(BTreeSet::new()),
        }
    }

    /// Waits until all that a guest was lent is back, goes on past those that are not, and forgets the loan when none is
    /// missing.
    fn give_back(
        &self,
        guest: &GuestName,
        after: AfterContainer,
        timeout: Duration,
    ) -> Result<(), GuestError> {
        let Some(started) = self.state.started(guest)? else {
            return Ok(());
        };
        let definition = self.state.definition(guest).ok().flatten();
        // It may have ended by itself.
        self.end_monitor(guest, definition.as_ref());
        started.groups.iter().for_each(|group| lxc::remove_group(group));
        let owned = definition.map(|definition| definition.functions).unwrap_or_default();
        let deadline = Instant::now() + timeout;
        let mut outcome = Ok(());
        let have_left = self.have_left(guest, &started)?;
        let uses = self.interfaces.uses();
        for lent in started.functions.iter().filter(|_| have_left) {
            let left = deadline.saturating_duration_since(Instant::now());
            let owned = owned.iter().find(|owned| owned.function == lent.function);
            outcome = outcome.and(self.interfaces.take_back(lent, owned, after, &uses, left));
        }
        self.remove_nodes(guest);
        outcome.and_then(|()| self.state.forget_started(guest))
    }

    /// Nodes that are left over do no harm: nobody but root reaches them.
    fn remove_nodes(&self, guest: &GuestName) {
        let _ = devices::remove_nodes(guest);
    }

    fn failed(&self, guest: &GuestName, source: penstock_host::ProcessError) -> GuestError {
        GuestError::Lxc { log: lxc::last_words(&self.state, guest), source }
    }
}

/// How long this many functions may take to be the host's again after their container has ended.
fn time_to_return(functions: usize) -> Duration {
    BACK + DOWN * u32::try_from(functions).unwrap_or(u32::MAX)
}
