//! What comes from inside while the switch runs: wishes over the line, resets of devices, and what guests ask of them.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, PoisonError},
    thread,
};

use super::{
    Attributes, Event, InsideState, PortState, Server, ServerError, State,
    inside::{Learned, with},
    port::STACK,
};
use crate::{allow::Refusal, causes::chain, rx_filter::Filter};

impl State {
    /// What is told of a port.
    pub(super) fn inside_of(&self, name: &str) -> InsideState {
        let set = self.inside.ports.get(name).cloned().unwrap_or_default();
        let host = self.config.ports.get(name).and_then(|port| serde_json::to_value(port).ok());
        let of_host =
            |key: &String| host.as_ref().and_then(|host| host.get(key)).cloned().unwrap_or_default();
        InsideState {
            host: set.keys().map(|key| (key.clone(), of_host(key))).collect(),
            set,
            granted: self.inside.filters.get(name).map(|learned| learned.granted.clone()).unwrap_or_default(),
            ungranted: self.unmet.get(name).into_iter().flatten().map(|(_, text)| text.clone()).collect(),
            refused: self.refused.get(name).cloned().unwrap_or_default(),
        }
    }
}

impl Server {
    /// Has what guests do to their devices followed for as long as the switch is there, in a thread of its own.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn attend(self: &Arc<Self>) -> Result<(), ServerError> {
        let bell = self.bell.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(bell) = bell else { return Ok(()) };
        let server = Arc::downgrade(self);
        let work = move || {
            // It ends with the switch, whose engine has the other end.
            for () in bell {
                let Some(server) = server.upgrade() else { return };
                if let Err(error) = server.follow_up() {
                    complain!("what guests have done to their devices had no effect: {}", chain(&error));
                }
            }
        };
        let spawned = thread::Builder::new().name("inside".to_owned()).stack_size(STACK).spawn(work);
        spawned.map(drop).map_err(ServerError::Start)
    }

    /// Does what follows from what guests have done to their devices since. What fails for one port keeps no other from its own: the first
    /// failure is given back at the end.
    fn follow_up(&self) -> Result<(), ServerError> {
        let lapsed = {
            let _turn = self.turn();
            self.lapse()
        };
        let asked = self.asked.take().into_iter();
        let followed = asked.map(|(port, filter)| match self.set_filter(&port, Some(filter)) {
            // It is gone since.
            Err(ServerError::NoPort { .. }) => Ok(()),
            other => other,
        });
        followed.fold(lapsed, Result::and)
    }

    /// Takes back what lapses with the devices that were reset since. Whoever calls it has the turn.
    pub(super) fn lapse(&self) -> Result<(), ServerError> {
        let reset = self.handle.ask(|engine| engine.take_resets()).ok_or(ServerError::Ended)?;
        if reset.is_empty() {
            return Ok(());
        }
        let (host, mut inside, reset) = {
            let state = self.state();
            let named = state.ports.iter().filter(|(_, attached)| reset.contains(&attached.id()));
            let reset: Vec<String> = named.map(|(name, _)| name.clone()).collect();
            (state.config.clone(), state.inside.clone(), reset)
        };
        let before = inside.clone();
        // A device forgets what its driver has asked of it, and QEMU does not tell that.
        for name in &reset {
            inside.filters.remove(name);
            self.asked.forget(name);
            self.state().followers.values().for_each(|follower| follower.again(name));
        }
        let mut lapsed = Vec::new();
        if let Some(pf) = host.pf.as_ref().filter(|pf| reset.contains(pf)) {
            lapsed.extend(std::mem::take(&mut inside.ports).into_keys());
            if inside.loopback.take().is_some() && !lapsed.contains(pf) {
                lapsed.push(pf.clone());
            }
        }
        if inside == before {
            return Ok(());
        }
        self.commit(&host, inside)?;
        let pf = host.pf.unwrap_or_default();
        for port in lapsed {
            self.listeners.tell(&Event::Lapsed { port, why: format!("the device of {pf} was reset") });
        }
        Ok(())
    }

    /// Changes some attributes of some ports, all or none, for who is in a machine behind them: as far as their ceilings allow, and until
    /// the PF's device is reset.
    ///
    /// # Errors
    /// Nothing is changed then, but with [`ServerError::Partly`]; what was refused is counted.
    pub fn change_from_inside(&self, changes: &BTreeMap<String, Attributes>) -> Result<(), ServerError> {
        let _turn = self.turn();
        self.lapse()?;
        let (host, mut inside) = {
            let state = self.state();
            (state.config.clone(), state.inside.clone())
        };
        for (name, attributes) in changes {
            let Some(port) = host.ports.get(name) else {
                let visible = host.ports.keys().filter(|name| host.ceiling(name).is_some());
                let all = visible.map(String::as_str).collect::<Vec<_>>().join(", ");
                return Err(ServerError::NoPort { name: name.clone(), all });
            };
            if host.ceiling(name).is_none() {
                let error = ServerError::NoAllow { port: name.clone() };
                return Err(self.refused(name, Refusal::NoAllow, error));
            }
            let set = inside.ports.entry(name.clone()).or_default();
            set.extend(attributes.clone());
            let changed =
                with(name, port, set).map_err(|error| self.refused(name, Refusal::Invalid, error))?;
            // What is as the host has it is the host's.
            let as_set = serde_json::to_value(port).unwrap_or_default();
            let changed = serde_json::to_value(&changed).unwrap_or_default();
            set.retain(|key, value| {
                if let Some(read) = changed.get(key.as_str()) {
                    *value = read.clone();
                }
                changed.get(key.as_str()) != as_set.get(key.as_str())
            });
        }
        inside.ports.retain(|_, attributes| !attributes.is_empty());
        for name in changes.keys() {
            inside.judge(&host, name).map_err(|(why, error)| self.refused(name, why, error))?;
        }
        self.commit(&host, inside)
    }

    /// As [`Server::set_loopback`], for who is in a machine behind the ports.
    ///
    /// # Errors
    /// Where the host does not allow it; [`ServerError::Ended`], [`ServerError::Partly`].
    pub fn set_loopback_from_inside(&self, on: bool) -> Result<(), ServerError> {
        let _turn = self.turn();
        self.lapse()?;
        let (host, mut inside) = {
            let state = self.state();
            (state.config.clone(), state.inside.clone())
        };
        if !host.allow.as_ref().is_some_and(|allow| allow.loopback) && on != host.loopback {
            let ceiling = "its `allow` has no loopback".to_owned();
            let error = ServerError::Beyond {
                port: "the switch".to_owned(),
                asked: format!("loopback {on}"),
                ceiling,
            };
            let Some(pf) = &host.pf else { return Err(error) };
            return Err(self.refused(pf, Refusal::Loopback, error));
        }
        inside.loopback = Some(on).filter(|on| *on != host.loopback);
        self.commit(&host, inside)
    }

    /// Says what the guest of a port asks of its device, of which is granted what the port's ceiling allows; with `None` it asks for
    /// nothing. That holds until its device is reset.
    ///
    /// # Errors
    /// [`ServerError::NoPort`], [`ServerError::Ended`], [`ServerError::Partly`].
    pub fn set_filter(&self, name: &str, filter: Option<Filter>) -> Result<(), ServerError> {
        let _turn = self.turn();
        self.lapse()?;
        let (host, mut inside) = {
            let state = self.state();
            (state.config.clone(), state.inside.clone())
        };
        if !host.ports.contains_key(name) {
            let all = host.ports.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(ServerError::NoPort { name: name.to_owned(), all });
        }
        match filter {
            Some(filter) => {
                let learned = inside.filters.entry(name.to_owned()).or_insert_with(Learned::default);
                if learned.filter == filter {
                    return Ok(());
                }
                learned.filter = filter;
            }
            None => drop(inside.filters.remove(name)),
        }
        self.commit(&host, inside)
    }

    /// Takes away what a port's settings and state tell of the host, and the ports that are none of the inside's business.
    pub fn veil(&self, ports: &mut BTreeMap<String, PortState>) {
        let host = self.config();
        ports.retain(|name, _| host.ceiling(name).is_some());
        for port in ports.values_mut() {
            let settings = &mut port.settings;
            settings.socket = PathBuf::new();
            (settings.access, settings.tap, settings.packet, settings.cable) = (None, None, None, None);
            settings.vduse = None;
            (settings.qemu, settings.filter, settings.mirror, settings.max_memory) = (None, None, None, None);
            (port.unconnected, port.untold, port.unlearned) = (None, None, None);
        }
    }

    /// Counts a wish for what cannot be set from inside.
    pub(crate) fn denied(&self, name: &str, text: &str) {
        let text = text.to_owned();
        self.count(name, Refusal::Denied, text);
    }

    /// Counts something from inside that was refused, and tells who listens.
    fn refused(&self, name: &str, why: Refusal, error: ServerError) -> ServerError {
        let behind = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        self.count(name, why, format!("{error}{}", behind.unwrap_or_default()));
        error
    }

    fn count(&self, name: &str, why: Refusal, text: String) {
        {
            let mut state = self.state();
            if !state.config.ports.contains_key(name) {
                return;
            }
            *state.refused.entry(name.to_owned()).or_default().entry(why).or_default() += 1;
        }
        self.listeners.tell(&Event::Refused { port: name.to_owned(), why, text: shortened(text) });
    }
}

/// Characters that are told of why something from inside was refused, which has what the guest wrote in it.
const MOST_TOLD: usize = 400;

/// The beginning of a text that a guest may have made as long as it likes.
fn shortened(text: String) -> String {
    match text.char_indices().nth(MOST_TOLD) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
