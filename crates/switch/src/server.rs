//! A switch as it runs: its worker, its ports' sockets, and what may be changed meanwhile.

mod port;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::JoinHandle,
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use self::port::Listening;
use crate::{
    config::{Config, ConfigError, PortConfig},
    counters::{Counters, Dropped},
    engine::{Engine, Port},
    table::PortId,
    worker::{self, Handle},
};

/// Events that a listener may be behind before it misses some.
const BEHIND: usize = 1024;

/// Why the switch did not do something.
#[derive(Debug, Error)]
pub enum ServerError {
    /// The configuration makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A port's socket could not be had.
    #[error("the socket {path} of port {port} could not be had")]
    Socket {
        /// The port.
        port: String,
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// No thread or no descriptor.
    #[error("the switch could not be started")]
    Start(#[source] std::io::Error),
    /// There is no such port.
    #[error("there is no port {name}; there are {all}")]
    NoPort {
        /// The name.
        name: String,
        /// Those that there are.
        all: String,
    },
    /// What was to be set is nothing that a port has.
    #[error("{port} was not changed")]
    Attribute {
        /// The port.
        port: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The worker has ended.
    #[error("the switch has ended")]
    Ended,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// A guest came to a port.
    Connected {
        /// The port.
        port: String,
    },
    /// A guest left a port, or was sent away.
    Disconnected {
        /// The port.
        port: String,
        /// Why.
        why: String,
    },
    /// A port is there, with these settings.
    Set {
        /// The port.
        port: String,
        /// Its settings.
        settings: Box<PortConfig>,
    },
    /// A port is there no more.
    Removed {
        /// The port.
        port: String,
    },
    /// The listener was too slow, and missed some.
    Missed,
}

/// A port as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortState {
    /// What is set for it.
    pub settings: PortConfig,
    /// Whether a front end is connected.
    pub connected: bool,
    /// Pairs of rings that are served.
    pub pairs: usize,
    /// Why a ring is served no more.
    pub broken: Option<String>,
    /// What went through it.
    pub counters: Counted,
}

/// Counters with their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Counted {
    pub sent: u64,
    pub sent_bytes: u64,
    pub received: u64,
    pub received_bytes: u64,
    /// Frames of the guest's that were dropped, by reason.
    pub dropped_sent: BTreeMap<Dropped, u64>,
    /// Frames for the guest that were dropped, by reason.
    pub dropped_received: BTreeMap<Dropped, u64>,
}

impl From<&Counters> for Counted {
    fn from(counters: &Counters) -> Counted {
        let named = |counts: &[u64]| {
            Dropped::ALL
                .into_iter()
                .zip(counts)
                .filter(|(_, count)| **count > 0)
                .map(|(why, count)| (why, *count))
                .collect()
        };
        Counted {
            sent: counters.sent,
            sent_bytes: counters.sent_bytes,
            received: counters.received,
            received_bytes: counters.received_bytes,
            dropped_sent: named(&counters.dropped_sent),
            dropped_received: named(&counters.dropped_received),
        }
    }
}

/// Who wants to hear of events.
#[derive(Clone, Debug, Default)]
struct Listeners(Arc<Mutex<Vec<mpsc::SyncSender<Event>>>>);

impl Listeners {
    fn tell(&self, event: &Event) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|listener| match listener.try_send(event.clone()) {
            Ok(()) => true,
            Err(mpsc::TrySendError::Disconnected(_)) => false,
            // It finds out when it has read the rest that it was left behind.
            Err(mpsc::TrySendError::Full(_)) => false,
        });
    }
}

#[derive(Debug, Default)]
struct State {
    config: Config,
    ports: BTreeMap<String, Listening>,
}

/// A switch that runs.
#[derive(Debug)]
pub struct Server {
    handle: Handle,
    worker: Option<JoinHandle<Engine>>,
    state: Mutex<State>,
    listeners: Listeners,
}

impl Server {
    /// Starts a switch without ports.
    ///
    /// # Errors
    /// [`ServerError::Start`].
    pub fn start() -> Result<Server, ServerError> {
        let (handle, worker) = worker::start(Engine::default()).map_err(ServerError::Start)?;
        Ok(Server { handle, worker: Some(worker), state: Mutex::default(), listeners: Listeners::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the switch as `config` has it. Ports that do not change lose nothing; one whose socket changes is a new one.
    ///
    /// # Errors
    /// Nothing is changed when the configuration makes no sense or a socket cannot be had.
    pub fn apply(&self, config: &Config) -> Result<(), ServerError> {
        let settings = config.settings()?;
        let mut state = self.state();
        let stays = |name: &str, listening: &Listening| {
            config.ports.get(name).is_some_and(|port| port.socket == listening.path())
        };
        let mut new = BTreeMap::new();
        let taken: BTreeSet<PortId> = state.ports.values().map(Listening::id).collect();
        let mut free = (0..PortId::MAX).filter(|id| !taken.contains(id));
        for (name, port) in &config.ports {
            if state.ports.get(name).is_some_and(|listening| stays(name, listening)) {
                continue;
            }
            let id = free.next().ok_or(ServerError::Ended)?;
            let failed =
                |source| ServerError::Socket { port: name.clone(), path: port.socket.clone(), source };
            let listening = Listening::open(&port.socket, id).map_err(failed)?;
            new.insert(name.clone(), listening);
        }
        // From here on nothing fails but the worker.
        let gone: Vec<String> = state
            .ports
            .iter()
            .filter(|(name, port)| !stays(name, port))
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            if let Some(listening) = state.ports.remove(&name) {
                let id = listening.id();
                listening.close();
                self.handle.ask(move |engine| drop(engine.set_port(id, None))).ok_or(ServerError::Ended)?;
                self.listeners.tell(&Event::Removed { port: name });
            }
        }
        let loopback = config.loopback;
        self.handle.ask(move |engine| engine.set_loopback(loopback)).ok_or(ServerError::Ended)?;
        for (name, settings) in settings {
            let settings = Arc::new(settings);
            if let Some(mut listening) = new.remove(&name) {
                let id = listening.id();
                let port = Box::new(Port::new(settings));
                self.handle
                    .ask(move |engine| drop(engine.set_port(id, Some(port))))
                    .ok_or(ServerError::Ended)?;
                listening
                    .serve(&name, self.handle.clone(), self.listeners.clone())
                    .map_err(ServerError::Start)?;
                state.ports.insert(name.clone(), listening);
            } else if state.config.ports.get(&name) == config.ports.get(&name) {
                continue;
            } else if let Some(listening) = state.ports.get(&name) {
                let id = listening.id();
                self.handle.ask(move |engine| engine.set_settings(id, settings)).ok_or(ServerError::Ended)?;
            }
            if let Some(settings) = config.ports.get(&name) {
                self.listeners.tell(&Event::Set { port: name, settings: Box::new(settings.clone()) });
            }
        }
        state.config = config.clone();
        Ok(())
    }

    /// Changes some attributes of a port: those that `attributes` names, in the spelling of the configuration.
    ///
    /// # Errors
    /// Nothing is changed then.
    pub fn set(
        &self,
        name: &str,
        attributes: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<(), ServerError> {
        let mut config = self.config();
        let all = || config.ports.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let port = config
            .ports
            .get(name)
            .ok_or_else(|| ServerError::NoPort { name: name.to_owned(), all: all() })?;
        let failed = |source| ServerError::Attribute { port: name.to_owned(), source };
        let mut whole = serde_json::to_value(port).map_err(failed)?;
        if let Some(whole) = whole.as_object_mut() {
            whole.extend(attributes.clone());
        }
        let changed: PortConfig = serde_json::from_value(whole).map_err(failed)?;
        config.ports.insert(name.to_owned(), changed);
        self.apply(&config)
    }

    /// What is set.
    pub fn config(&self) -> Config {
        self.state().config.clone()
    }

    /// All ports as they are.
    pub fn ports(&self) -> Result<BTreeMap<String, PortState>, ServerError> {
        let state = self.state();
        let mut all = BTreeMap::new();
        for (name, listening) in &state.ports {
            let id = listening.id();
            let seen = self.handle.ask(move |engine| {
                engine
                    .port(id)
                    .map(|port| (port.counters, port.served(), port.broken.map(|error| error.to_string())))
            });
            let (counters, pairs, broken) = seen.ok_or(ServerError::Ended)?.unwrap_or_default();
            let found = PortState {
                settings: state.config.ports.get(name).cloned().unwrap_or_default(),
                connected: listening.is_connected(),
                pairs,
                broken,
                counters: Counted::from(&counters),
            };
            all.insert(name.clone(), found);
        }
        Ok(all)
    }

    /// Tells of events from now on.
    pub fn subscribe(&self) -> mpsc::Receiver<Event> {
        let (sender, receiver) = mpsc::sync_channel(BEHIND);
        self.listeners.0.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        receiver
    }
}

impl Server {
    /// Sends all guests away and takes the sockets away.
    pub fn close(&self) {
        let ports = std::mem::take(&mut self.state().ports);
        ports.into_values().for_each(Listening::close);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
        self.handle.end();
        if let Some(worker) = self.worker.take() {
            // A worker that panicked has said so already.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests;
