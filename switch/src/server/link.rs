//! The links of all ports, as they were told last: who wants to know hears when one goes up or down.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use nix::sys::eventfd::EventFd;

use super::{Event, Listeners, qemu::Teller};
use crate::{channel::Channel, config::Qemu, ring::RingError, table::PortId, worker::Handle};

/// The links of all ports. A clone is the same.
#[derive(Clone, Debug)]
pub(super) struct Links {
    handle: Handle,
    listeners: Listeners,
    known: Arc<Mutex<BTreeMap<PortId, Known>>>,
}

/// A port's link.
#[derive(Debug)]
struct Known {
    port: String,
    up: Option<bool>,
    /// The QEMU that is told.
    teller: Option<Teller>,
    /// What rings for the thread of a VDUSE device.
    bell: Option<Arc<EventFd>>,
}

impl Links {
    pub fn new(handle: Handle, listeners: Listeners) -> Links {
        Links { handle, listeners, known: Arc::default() }
    }

    /// Has the worker do something.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Tells who listens.
    pub fn tell(&self, event: &Event) {
        self.listeners.tell(event);
    }

    /// There is a port more.
    pub fn put(&self, id: PortId, port: &str) {
        let known = Known { port: port.to_owned(), up: None, teller: None, bell: None };
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(id, known);
    }

    /// Has this QEMU told of a port's link, or nobody.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub fn set_qemu(&self, id: PortId, qemu: Option<&Qemu>) -> io::Result<()> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(link) = known.get_mut(&id) else { return Ok(()) };
        if link.teller.as_ref().map(|teller| &teller.qemu) != qemu {
            link.teller = qemu.cloned().map(Teller::new).transpose()?;
            if let (Some(teller), Some(up)) = (&link.teller, link.up) {
                teller.set(up);
            }
        }
        Ok(())
    }

    /// Has this ring whenever a port's link goes up or down.
    pub fn set_bell(&self, id: PortId, bell: Arc<EventFd>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = known.get_mut(&id) {
            link.bell = Some(bell);
        }
    }

    /// A front end has come to a port.
    pub fn front_end_came(&self, id: PortId) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(teller) = known.get(&id).and_then(|link| link.teller.as_ref()) {
            teller.repeat();
        }
    }

    /// Why the QEMU of a port does not know of its link.
    pub fn untold(&self, id: PortId) -> Option<String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&id)?.teller.as_ref()?.why()
    }

    /// There is a port less.
    pub fn remove(&self, id: PortId) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// Tells that a ring of a port is served no more.
    pub fn broken(&self, id: PortId, why: &RingError) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = known.get(&id) {
            self.listeners.tell(&Event::Broken { port: link.port.clone(), why: why.to_string() });
        }
    }

    /// Looks at all links, and tells of those that are not as they were.
    pub fn refresh(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for (id, up) in self.handle.ask(|engine| engine.links()).unwrap_or_default() {
            let Some(link) = known.get_mut(&id) else { continue };
            let before = link.up.replace(up);
            if before == Some(up) {
                continue;
            }
            if let Some(teller) = &link.teller {
                teller.set(up);
            }
            if let Some(bell) = &link.bell {
                let _ = bell.write(1);
            }
            // That a new port's is up goes without saying.
            if before.unwrap_or(true) != up {
                self.listeners.tell(&Event::Link { port: link.port.clone(), up });
                // A front end that has it from us asks again.
                let channel = self.handle.ask(move |engine| engine.port(id)?.channel.clone()).flatten();
                channel.map(|channel| channel.send(Channel::CONFIG_CHANGE, &[]));
            }
        }
    }
}
