//! The links of all ports, as they were told last: who wants to know hears when one goes up or down.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::{Event, Listeners};
use crate::{ring::RingError, table::PortId, worker::Handle};

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
        let known = Known { port: port.to_owned(), up: None };
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(id, known);
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
            // That a new port's is up goes without saying.
            if before.unwrap_or(true) != up {
                self.listeners.tell(&Event::Link { port: link.port.clone(), up });
            }
        }
    }
}
