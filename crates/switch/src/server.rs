//! A switch as it runs: its worker, its ports' sockets, and what may be changed meanwhile.

mod link;
mod outside;
mod port;
mod qemu;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use self::{link::Links, outside::Outside, port::Listening};
use crate::{
    config::{Cable, Config, ConfigError, MirrorDirection, Place, PortConfig},
    counters::{Counters, Dropped},
    engine::{Engine, Mirror, Port},
    settings::{LinkState, Settings},
    socket::{self, Access},
    table::PortId,
    worker::{self, Handle},
};

/// How long ports that are given up may take to let go of their front ends, all together.
const LEAVE: Duration = Duration::from_secs(2);
/// Events that a listener may be behind before it misses some.
const BEHIND: usize = 1024;

/// Why the switch did not do something.
#[derive(Debug, Error)]
pub enum ServerError {
    /// The configuration makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// What a port leads to could not be had.
    #[error("port {port}: the {place} could not be had")]
    Place {
        /// The port.
        port: String,
        /// What it is.
        place: Place,
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
    #[error("nothing was changed: {port}: {key} cannot be {value}")]
    Attribute {
        /// The port.
        port: String,
        /// What was to be set.
        key: String,
        /// To what.
        value: serde_json::Value,
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
    /// How all is: what comes before everything else, and after [`Event::Missed`]. An event that comes after it may be told by it
    /// already.
    Snapshot {
        /// Whether frames between ports stay inside.
        loopback: bool,
        /// All ports.
        ports: BTreeMap<String, PortState>,
    },
    /// Frames between ports stay inside from now on, or go out.
    Loopback {
        /// Whether they stay.
        on: bool,
    },
    /// One of a port's rings is served no more, since what its guest wrote into it cannot be.
    Broken {
        /// The port.
        port: String,
        /// What is wrong.
        why: String,
    },
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
    /// A port's link went up or down.
    Link {
        /// The port.
        port: String,
        /// Whether it is up now.
        up: bool,
    },
    /// A port is there no more.
    Removed {
        /// The port.
        port: String,
    },
    /// The listener was too slow, and missed some. What it has missed is in the snapshot that follows.
    Missed,
}

/// A port as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortState {
    /// What is set for it.
    pub settings: PortConfig,
    /// Whether a front end is connected; at a port that is no guest's: whether there is another side.
    pub connected: bool,
    /// Why there is none: why the last was sent away, at a guest's port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconnected: Option<String>,
    /// Whether its link is up.
    #[serde(default)]
    pub up: bool,
    /// Why its QEMU does not know of its link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untold: Option<String>,
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
    /// Copies of others' frames that it got.
    #[serde(default)]
    pub mirrored: u64,
    #[serde(default)]
    pub mirrored_bytes: u64,
    /// Copies for it that were dropped, by reason.
    #[serde(default)]
    pub dropped_mirrored: BTreeMap<Dropped, u64>,
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
            mirrored: counters.mirrored,
            mirrored_bytes: counters.mirrored_bytes,
            dropped_mirrored: named(&counters.dropped_mirrored),
        }
    }
}

/// Who wants to hear of events.
#[derive(Clone, Debug, Default)]
struct Listeners(Arc<Mutex<Vec<Listener>>>);

#[derive(Debug)]
struct Listener {
    sender: mpsc::SyncSender<Event>,
    missed: Arc<AtomicBool>,
}

impl Listeners {
    fn tell(&self, event: &Event) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|listener| match listener.sender.try_send(event.clone()) {
            Ok(()) => true,
            Err(mpsc::TrySendError::Disconnected(_)) => false,
            Err(mpsc::TrySendError::Full(_)) => {
                listener.missed.store(true, Ordering::Release);
                true
            }
        });
    }
}

/// Events, from when it was had.
#[derive(Debug)]
pub struct Subscription {
    events: mpsc::Receiver<Event>,
    missed: Arc<AtomicBool>,
}

impl Subscription {
    /// Whether there were more events than this listener took, and some are lost; that is told once.
    pub fn has_missed(&self) -> bool {
        self.missed.swap(false, Ordering::AcqRel)
    }
}

impl std::ops::Deref for Subscription {
    type Target = mpsc::Receiver<Event>;

    fn deref(&self) -> &mpsc::Receiver<Event> {
        &self.events
    }
}

/// What keeps a port connected.
#[derive(Debug)]
enum Attached {
    Guest(Listening),
    Outside(Outside),
}

impl Attached {
    fn open(place: &Place, id: PortId, settings: &Settings, access: Access) -> std::io::Result<Attached> {
        match place {
            Place::Guest(path) => Listening::open(path, id, access).map(Attached::Guest),
            outside => {
                Outside::open(outside, id, settings, is_enabled(settings), access).map(Attached::Outside)
            }
        }
    }

    /// Lets others come to its socket, if it has one, than before.
    fn set_access(&self, access: Access) -> std::io::Result<()> {
        match self {
            Attached::Guest(listening) => socket::set_access(listening.path(), access),
            Attached::Outside(outside) => match outside.place() {
                Place::Cable(Cable::Listen(path) | Cable::Qemu(path)) => socket::set_access(path, access),
                _ => Ok(()),
            },
        }
    }

    fn serve(&mut self, name: &str, settings: &Settings, links: Links) -> std::io::Result<()> {
        match self {
            Attached::Guest(listening) => listening.serve(name, links),
            Attached::Outside(outside) => outside.serve(name, settings.mtu, links),
        }
    }

    fn id(&self) -> PortId {
        match self {
            Attached::Guest(listening) => listening.id(),
            Attached::Outside(outside) => outside.id(),
        }
    }

    fn is_at(&self, place: &Place) -> bool {
        match (self, place) {
            (Attached::Guest(listening), Place::Guest(path)) => listening.path() == path,
            (Attached::Outside(outside), place) => outside.place() == place,
            _ => false,
        }
    }

    /// Has it let go of its other side.
    fn end(&self) {
        match self {
            Attached::Guest(listening) => listening.end(),
            Attached::Outside(outside) => outside.end(),
        }
    }

    /// Waits until it has, but not longer than `until`.
    fn close(self, until: Instant) {
        match self {
            Attached::Guest(listening) => listening.close(until),
            Attached::Outside(outside) => outside.close(until),
        }
    }
}

fn is_enabled(settings: &Settings) -> bool {
    settings.link_state != LinkState::Disable
}

#[derive(Debug, Default)]
struct State {
    config: Config,
    /// Where what is set is written, too.
    kept: Option<PathBuf>,
    ports: BTreeMap<String, Attached>,
}

/// Who watches whom, by number.
fn mirrors(config: &Config, ports: &BTreeMap<String, Attached>) -> Vec<Mirror> {
    let id = |name: &String| ports.get(name).map(Attached::id);
    let all = config.ports.iter().filter_map(|(name, port)| {
        let mirror = port.mirror.as_ref()?;
        Some(Mirror {
            port: id(name)?,
            of: mirror.ports.iter().filter_map(id).collect(),
            sent: mirror.direction != MirrorDirection::Rx,
            received: mirror.direction != MirrorDirection::Tx,
        })
    });
    all.collect()
}

/// Writes a configuration whole or not at all, under a name that nobody can foresee until it is: where others may write to the
/// directory, none of them can have put a link or a file of his there.
fn keep(path: &Path, config: &Config) -> io::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{:016x}.part", RandomState::new().build_hasher().finish()));
    let write = || {
        fs::File::create_new(&part)?.write_all(&serde_json::to_vec_pretty(config)?)?;
        fs::rename(&part, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&part);
    })
}

/// A switch that runs.
#[derive(Debug)]
pub struct Server {
    handle: Handle,
    worker: Option<JoinHandle<Engine>>,
    state: Mutex<State>,
    listeners: Listeners,
    links: Links,
    /// Whose turn it is to change something.
    turn: Mutex<()>,
}

/// Attributes of a port with their values, in the spelling of the configuration.
pub type Attributes = serde_json::Map<String, serde_json::Value>;

impl Server {
    /// Starts a switch without ports.
    ///
    /// # Errors
    /// [`ServerError::Start`].
    pub fn start() -> Result<Server, ServerError> {
        let (news, told) = mpsc::channel();
        let mut engine = Engine::default();
        engine.tell_of_broken(news);
        let (handle, worker) = worker::start(engine).map_err(ServerError::Start)?;
        let listeners = Listeners::default();
        let links = Links::new(handle.clone(), listeners.clone());
        let watched = links.clone();
        // It ends with the engine, which has the other end.
        let watch = move || told.into_iter().for_each(|(id, why)| watched.broken(id, &why));
        std::thread::Builder::new()
            .name("news".to_owned())
            .stack_size(port::STACK)
            .spawn(watch)
            .map_err(ServerError::Start)?;
        let (state, turn) = (Mutex::default(), Mutex::default());
        Ok(Server { handle, worker: Some(worker), state, listeners, links, turn })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the switch as `config` has it. Ports that do not change lose nothing; one whose socket changes is a new one.
    ///
    /// # Errors
    /// Nothing is changed when the configuration makes no sense or a socket cannot be had.
    pub fn apply(&self, config: &Config) -> Result<(), ServerError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.apply_now(config)
    }

    fn apply_now(&self, config: &Config) -> Result<(), ServerError> {
        let settings = config.settings()?;
        let places = config.ports.iter().map(|(name, port)| Ok((name.clone(), port.place(name)?)));
        let places: BTreeMap<String, Place> = places.collect::<Result<_, ConfigError>>()?;
        let accesses = config.ports.iter().map(|(name, port)| Ok((name.clone(), port.access(name)?)));
        let accesses: BTreeMap<String, Access> = accesses.collect::<Result<_, ConfigError>>()?;
        let access = |name: &str| accesses.get(name).copied().unwrap_or_default();
        config.control_access()?;
        let mut state = self.state();
        let stays =
            |name: &str, attached: &Attached| places.get(name).is_some_and(|place| attached.is_at(place));
        let mut new = BTreeMap::new();
        let taken: BTreeSet<PortId> = state.ports.values().map(Attached::id).collect();
        let mut free = (0..PortId::MAX).filter(|id| !taken.contains(id));
        for (name, settings) in &settings {
            if state.ports.get(name).is_some_and(|attached| stays(name, attached)) {
                continue;
            }
            let id = free.next().ok_or(ServerError::Ended)?;
            let Some(place) = places.get(name) else { continue };
            let failed = |source| ServerError::Place { port: name.clone(), place: place.clone(), source };
            let attached = Attached::open(place, id, settings, access(name)).map_err(failed)?;
            new.insert(name.clone(), attached);
        }
        // From here on nothing fails but the worker.
        let gone: Vec<String> = state
            .ports
            .iter()
            .filter(|(name, port)| !stays(name, port))
            .map(|(name, _)| name.clone())
            .collect();
        gone.iter().filter_map(|name| state.ports.get(name)).for_each(Attached::end);
        let until = Instant::now() + LEAVE;
        for name in gone {
            if let Some(attached) = state.ports.remove(&name) {
                let id = attached.id();
                self.links.remove(id);
                attached.close(until);
                self.handle.ask(move |engine| drop(engine.set_port(id, None))).ok_or(ServerError::Ended)?;
                self.listeners.tell(&Event::Removed { port: name });
            }
        }
        let loopback = config.loopback;
        if loopback != state.config.loopback {
            self.listeners.tell(&Event::Loopback { on: loopback });
        }
        self.handle.ask(move |engine| engine.set_loopback(loopback)).ok_or(ServerError::Ended)?;
        for (name, settings) in settings {
            let settings = Arc::new(settings);
            if let Some(mut attached) = new.remove(&name) {
                let id = attached.id();
                let port = Box::new(Port::new(Arc::clone(&settings)));
                let leads_out = matches!(attached, Attached::Outside(_));
                self.handle
                    .ask(move |engine| {
                        drop(engine.set_port(id, Some(port)));
                        // Whoever is on its other side comes later.
                        engine.set_carrier(id, !leads_out);
                    })
                    .ok_or(ServerError::Ended)?;
                self.links.put(id, &name);
                attached.serve(&name, &settings, self.links.clone()).map_err(ServerError::Start)?;
                state.ports.insert(name.clone(), attached);
            } else if state.config.ports.get(&name) == config.ports.get(&name) {
                // Its part of the memory follows from all ports.
                if let Some(id) = state.ports.get(&name).map(Attached::id) {
                    let memory = settings.memory;
                    self.handle.ask(move |engine| engine.set_memory(id, memory)).ok_or(ServerError::Ended)?;
                }
                continue;
            } else if let Some(attached) = state.ports.get(&name) {
                if let Attached::Outside(outside) = attached {
                    outside.set_enabled(is_enabled(&settings));
                    outside.set_macs(&settings.macs);
                }
                let before = state.config.ports.get(&name).and_then(|port| port.access(&name).ok());
                if before != Some(access(&name))
                    && let Some(place) = places.get(&name)
                {
                    let failed =
                        |source| ServerError::Place { port: name.clone(), place: place.clone(), source };
                    attached.set_access(access(&name)).map_err(failed)?;
                }
                let id = attached.id();
                self.handle.ask(move |engine| engine.set_settings(id, settings)).ok_or(ServerError::Ended)?;
            }
            if let Some(settings) = config.ports.get(&name) {
                self.listeners.tell(&Event::Set { port: name, settings: Box::new(settings.clone()) });
            }
        }
        let mirrors = mirrors(config, &state.ports);
        self.handle.ask(move |engine| engine.set_mirrors(mirrors)).ok_or(ServerError::Ended)?;
        for (name, attached) in &state.ports {
            let qemu = config.ports.get(name).and_then(|port| port.qemu.as_ref());
            self.links.set_qemu(attached.id(), qemu).map_err(ServerError::Start)?;
        }
        state.config = config.clone();
        if let Some(path) = &state.kept
            && let Err(error) = keep(path, config)
        {
            // It holds all the same: whoever sets something is not to take it for refused.
            eprintln!("penstock-switch: what was set could not be written to {}: {error}", path.display());
        }
        self.links.refresh();
        Ok(())
    }

    /// Has everything that is set from now on written to `path`, too.
    pub fn keep_in(&self, path: &Path) {
        self.state().kept = Some(path.to_owned());
    }

    /// Changes some attributes of a port: those that `attributes` names, in the spelling of the configuration.
    ///
    /// # Errors
    /// Nothing is changed then.
    pub fn set(&self, name: &str, attributes: &Attributes) -> Result<(), ServerError> {
        self.change(&BTreeMap::from([(name.to_owned(), attributes.clone())]))
    }

    /// Changes some attributes of some ports, all or none.
    ///
    /// # Errors
    /// Nothing is changed then.
    pub fn change(&self, changes: &BTreeMap<String, Attributes>) -> Result<(), ServerError> {
        // Two who change something at a time come one after the other, so that neither takes the other's back.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut config = self.config();
        for (name, attributes) in changes {
            let all = || config.ports.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let port = config
                .ports
                .get(name)
                .ok_or_else(|| ServerError::NoPort { name: name.clone(), all: all() })?;
            let mut changed = port.clone();
            for (key, value) in attributes {
                let failed = |source| ServerError::Attribute {
                    port: name.clone(),
                    key: key.clone(),
                    value: value.clone(),
                    source,
                };
                let mut whole = serde_json::to_value(&changed).map_err(failed)?;
                if let Some(whole) = whole.as_object_mut() {
                    whole.insert(key.clone(), value.clone());
                }
                changed = serde_json::from_value(whole).map_err(failed)?;
            }
            config.ports.insert(name.clone(), changed);
        }
        self.apply_now(&config)
    }

    /// Keeps frames between ports inside (VEB), or has them go out to the uplink (VEPA).
    ///
    /// # Errors
    /// [`ServerError::Ended`].
    pub fn set_loopback(&self, on: bool) -> Result<(), ServerError> {
        self.apply(&Config { loopback: on, ..self.config() })
    }

    /// What is set.
    pub fn config(&self) -> Config {
        self.state().config.clone()
    }

    /// All ports as they are.
    pub fn ports(&self) -> Result<BTreeMap<String, PortState>, ServerError> {
        let state = self.state();
        let mut all = BTreeMap::new();
        for (name, attached) in &state.ports {
            let id = attached.id();
            let seen = self.handle.ask(move |engine| {
                engine.port(id).map(|port| {
                    let broken = port.why_broken().map(|error| error.to_string());
                    (port.counters, port.served(), broken, port.is_up())
                })
            });
            let (counters, pairs, broken, up) = seen.ok_or(ServerError::Ended)?.unwrap_or_default();
            let (connected, unconnected) = match attached {
                Attached::Guest(listening) => (listening.is_connected(), listening.refusal()),
                Attached::Outside(outside) => (outside.is_connected(), outside.why()),
            };
            let found = PortState {
                settings: state.config.ports.get(name).cloned().unwrap_or_default(),
                connected,
                unconnected,
                up,
                untold: self.links.untold(id),
                pairs,
                broken,
                counters: Counted::from(&counters),
            };
            all.insert(name.clone(), found);
        }
        Ok(all)
    }

    /// Tells of events from now on.
    pub fn subscribe(&self) -> Subscription {
        let (sender, events) = mpsc::sync_channel(BEHIND);
        let missed = Arc::new(AtomicBool::new(false));
        let listener = Listener { sender, missed: Arc::clone(&missed) };
        self.listeners.0.lock().unwrap_or_else(PoisonError::into_inner).push(listener);
        Subscription { events, missed }
    }

    /// How all is, as an event.
    pub fn snapshot(&self) -> Result<Event, ServerError> {
        Ok(Event::Snapshot { loopback: self.config().loopback, ports: self.ports()? })
    }
}

impl Server {
    /// Sends all guests away and takes the sockets away.
    pub fn close(&self) {
        let ports = std::mem::take(&mut self.state().ports);
        ports.values().for_each(Attached::end);
        let until = Instant::now() + LEAVE;
        ports.into_values().for_each(|attached| attached.close(until));
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
