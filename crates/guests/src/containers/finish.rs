//! What a start comes to when LXC has done its part: proof of what is inside, and the note that the container runs. Whoever died in
//! between has left a container that runs without either, and perhaps an interface that was down at that moment: the next start, or whoever
//! waits for it, goes on from there.

use std::{
    thread,
    time::{Duration, Instant},
};

use penstock_host::{InterfaceReport, Netlink, interrupt, running::Running};
use penstock_model::{GuestName, InterfaceAddress, InterfaceRoute};
use penstock_plan::action::GuestDefinition;

use super::{Containers, config, lxc, routes};
use crate::{console, error::GuestError, state::Started};

/// How often it is looked at whether LXC has done its part.
const LOOK: Duration = Duration::from_millis(20);

impl Containers {
    /// What of a container that runs nobody has finished, its start or its end, in words; `None` when there is nothing.
    ///
    /// # Errors
    ///
    /// As [`status`](Containers::status).
    pub(crate) fn unfinished(&self, guest: &GuestName) -> Result<Option<&'static str>, GuestError> {
        match self.state.started(guest)?.filter(Started::is_halfway) {
            Some(started) if self.runs(guest)? => Ok(Some(match started.init {
                None => "its start was not finished",
                Some(_) => "it runs, and whoever was ending it died",
            })),
            Some(_) | None => Ok(None),
        }
    }

    /// Finishes the start of a container that runs, where nobody has, and gives up its end.
    pub(super) fn finish(&self, guest: &GuestName, timeout: Duration) -> Result<(), GuestError> {
        if self.unfinished(guest)?.is_none() {
            return Ok(());
        }
        let deadline = Instant::now() + timeout;
        let _lock = self.state.lock(guest, timeout)?;
        let definition = self.state.definition(guest)?;
        match (definition, self.running(guest)?) {
            (Some(definition), Some(init)) => self.finish_running(&definition, init, deadline),
            _ => Ok(()),
        }
    }

    /// The same of the container with this first process, whose lock the caller has. What its interfaces lack of what the definition gives
    /// them is put back before it is proven. Whoever was ending it has died, or the container outlived that: it may end by itself later.
    pub(super) fn finish_running(
        &self,
        definition: &GuestDefinition,
        init: Running,
        deadline: Instant,
    ) -> Result<(), GuestError> {
        let guest = &definition.guest;
        self.state.keep_ending(guest, false)?;
        let Some(started) = self.state.started(guest)?.filter(|started| started.init.is_none()) else {
            return Ok(());
        };
        self.await_lxc(guest, init, deadline)?;
        self.beside_workqueues(definition, || {
            self.put_back_inside(definition, init)?;
            self.prove_inside(definition, init, deadline)
        })?;
        self.ask_for_leases(definition, init, deadline)?;
        self.note_running(guest, started, init)
    }

    /// Notes that a container runs that has all that it is to have.
    pub(super) fn note_running(
        &self,
        guest: &GuestName,
        started: Started,
        init: Running,
    ) -> Result<(), GuestError> {
        let groups = lxc::groups(&self.root, init.id);
        self.state.keep_started(guest, &Started { init: Some(init), groups, ..started })?;
        Ok(console::share(&self.state.of(guest))?)
    }

    /// Looks whether a container really runs with its interfaces inside, as they are to be.
    pub(super) fn prove_inside(
        &self,
        definition: &GuestDefinition,
        init: Running,
        deadline: Instant,
    ) -> Result<(), GuestError> {
        let guest = &definition.guest;
        // LXC has named and addressed them before it ran the first process, so there is nothing to wait for.
        let inside = Netlink::in_namespace_of(init.id).and_then(|mut netlink| netlink.interfaces());
        if !init.is_alive_below(&self.root) {
            return Err(self.ended(definition));
        }
        let inside: Vec<InterfaceReport> = inside?;
        for owned in &definition.functions {
            let there = self
                .interfaces
                .find(owned.function, &inside)
                .is_some_and(|report| report.interface.name == owned.interface);
            if !there {
                return Err(GuestError::NotInside {
                    function: owned.function,
                    interface: owned.interface.clone(),
                    log: lxc::last_words(&self.state, guest),
                });
            }
        }
        self.prove_nics(definition, &inside)?;
        self.prove_vfs(definition, init, deadline)
    }

    /// Its first process has ended at once.
    pub(super) fn ended(&self, definition: &GuestDefinition) -> GuestError {
        let log = lxc::last_words(&self.state, &definition.guest);
        GuestError::Ended { init: config::init(definition).join(" "), log }
    }

    /// Waits until LXC, which nobody waited for, has run the first process: until then it is at the interfaces itself.
    fn await_lxc(&self, guest: &GuestName, init: Running, deadline: Instant) -> Result<(), GuestError> {
        loop {
            let is_done = lxc::is_running(&self.state, guest).map_err(|source| self.failed(guest, source))?;
            if is_done
                || !init.is_alive_below(&self.root)
                || Instant::now() >= deadline
                || interrupt::pending()
            {
                return Ok(());
            }
            thread::sleep(LOOK);
        }
    }

    /// Brings the interfaces inside up, with all addresses and routes of the definition.
    fn put_back_inside(&self, definition: &GuestDefinition, init: Running) -> Result<(), GuestError> {
        let mut inside = Netlink::in_namespace_of(init.id)?;
        let reports = inside.interfaces()?;
        let functions = definition.functions.iter().map(|owned| {
            let found = self.interfaces.find(owned.function, &reports);
            (found, &owned.addresses, &owned.routes)
        });
        let nics = definition.nics.iter().map(|own| {
            let named = |report: &&InterfaceReport| report.interface.name.as_str() == own.name.as_str();
            (reports.iter().find(named).cloned(), &own.nic.addresses, &own.nic.routes)
        });
        for (found, addresses, routes) in functions.chain(nics) {
            // One that is not inside is told by the proof.
            let Some(found) = found else { continue };
            self.put_back(&definition.guest, &mut inside, init, &found, (addresses, routes))?;
        }
        Ok(())
    }

    /// Brings an interface inside up, with these addresses and routes.
    pub(super) fn put_back(
        &self,
        guest: &GuestName,
        inside: &mut Netlink,
        init: Running,
        found: &InterfaceReport,
        (addresses, routes): (&[InterfaceAddress], &[InterfaceRoute]),
    ) -> Result<(), GuestError> {
        if !found.interface.up {
            inside.set_up(found.index, true)?;
        }
        for address in addresses.iter().filter(|address| !found.interface.addresses.contains(address)) {
            inside.add_address(found.index, *address)?;
        }
        routes::put_back(guest, inside, init.id, found, routes)
    }
}
