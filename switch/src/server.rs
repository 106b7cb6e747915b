//! A switch as it runs: its worker, its ports' sockets, and what may be changed meanwhile.

mod attached;
mod events;
mod filters;
mod inside;
mod kept;
mod link;
mod make;
mod outside;
mod port;
mod qemu;
mod vduse;
mod wishes;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use thiserror::Error;

use self::{
    attached::Attached,
    events::Listeners,
    filters::{Follower, RequestedFilters},
    inside::{Inside, Unmet, replaced, with},
    kept::{KeptInFiles, inside_of},
    link::Links,
};
pub use self::{
    events::{Counted, Event, PortState, Subscription},
    inside::{Granted, InsideState},
};
use crate::{
    allow::Refusal,
    causes::chain,
    config::{Config, ConfigError, PortBackend},
    counters::Counters,
    engine::{Engine, PortEvent},
    net::Mac,
    table::PortId,
    worker::{self, Handle},
};

/// How long ports that are given up may take to let go of their front ends, all together.
const LEAVE: Duration = Duration::from_secs(2);

/// Why the switch did not do something.
#[derive(Debug, Error)]
pub enum ServerError {
    /// The configuration makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// What several workers cannot do together.
    #[error(
        "port {port}: speed {speed}: an uplink's speed is shared by a switch of one worker, and this one has {workers}: start it with \
         --workers 1, or without a speed"
    )]
    SharedUplink {
        /// The uplink.
        port: String,
        /// Its speed in Mbit/s.
        speed: u32,
        /// How many workers there are.
        workers: usize,
    },
    /// What a port leads to could not be had.
    #[error("port {port}: the {backend} could not be had")]
    Backend {
        /// Name of the port.
        port: String,
        /// What it is.
        backend: PortBackend,
        /// What failed when its socket was made, its interface opened, or its access set.
        #[source]
        source: std::io::Error,
    },
    /// No thread or no descriptor.
    #[error("the switch could not be started")]
    Start(#[source] std::io::Error),
    /// No thread or no descriptor was left in the middle of a change.
    #[error("the change broke off and is partly in force: try it again, or set what was before")]
    Partly(#[source] std::io::Error),
    /// There is no such port.
    #[error("there is no port {name}; there are {all}")]
    NoPort {
        /// The name that no port has.
        name: String,
        /// Those that there are.
        all: String,
    },
    /// What was to be set is nothing that a port has.
    #[error("nothing was changed: {port}: {key} cannot be {value}")]
    Attribute {
        /// Name of the port that was to be changed.
        port: String,
        /// What was to be set.
        key: String,
        /// The value that the attribute cannot have.
        value: serde_json::Value,
        /// What is wrong with the value or the key.
        #[source]
        source: serde_json::Error,
    },
    /// Nothing of a port may be set from inside.
    #[error("nothing was changed: the host lets nothing of {port} be set from inside: it has no `allow`")]
    NoAllow {
        /// Name of the port without an `allow`.
        port: String,
    },
    /// It goes further than what is set from inside may.
    #[error("nothing was changed: {port}: {asked} goes further than the host allows from inside: {ceiling}")]
    Beyond {
        /// The port, or the switch.
        port: String,
        /// What was asked for.
        asked: String,
        /// How far it may go.
        ceiling: String,
    },
    /// Another port has the address.
    #[error("nothing was changed: {port}: another port has the address {mac} in one of its VLANs")]
    Taken {
        /// Name of the port that was to have the address.
        port: String,
        /// The address that another port has.
        mac: Mac,
    },
    /// The worker has ended.
    #[error("the switch has ended")]
    Ended,
}

impl ServerError {
    /// What is said where the change was the first: a switch that has not begun is to be started again, and nothing set back.
    pub(crate) fn at_start(self) -> ServerError {
        match self {
            ServerError::Partly(source) => ServerError::Start(source),
            other => other,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// What the host has set.
    config: Config,
    /// What was set from inside, and what guests ask of their devices.
    inside: Inside,
    /// Both together: what holds, also where a change broke off.
    effective: Config,
    /// What guests ask of their devices and is not granted.
    unmet: Unmet,
    /// How often something from inside was refused, by port.
    refused: BTreeMap<String, BTreeMap<Refusal, u64>>,
    /// Where what is set is written, too.
    kept: Option<KeptInFiles>,
    ports: BTreeMap<String, Attached>,
    /// The numbers of ports whose threads have not ended: what such a one still does must reach no other port.
    left_behind: BTreeSet<PortId>,
    /// Who follows what guests ask of their devices, by QEMU's monitor.
    followers: BTreeMap<PathBuf, Follower>,
}

/// A switch that runs.
#[derive(Debug)]
pub struct Server {
    handle: Handle,
    workers: Vec<JoinHandle<Engine>>,
    /// Hears what workers tell; ends with the last of them.
    news: Option<JoinHandle<()>>,
    state: Mutex<State>,
    listeners: Listeners,
    links: Links,
    /// Whose turn it is to change something.
    turn: Mutex<()>,
    /// Rings when a guest has reset its device, or asks something of it.
    bell: Mutex<Option<mpsc::Receiver<()>>>,
    /// What guests have asked of their devices since.
    asked: Arc<RequestedFilters>,
}

/// Attributes of a port with their values, in the spelling of the configuration.
pub type Attributes = serde_json::Map<String, serde_json::Value>;

impl Server {
    /// Starts a switch without ports, with one worker.
    ///
    /// # Errors
    /// [`ServerError::Start`].
    pub fn start() -> Result<Server, ServerError> {
        Server::with_workers(1)
    }

    /// Starts a switch without ports, with so many workers: at least one, at most [`worker::MOST_WORKERS`].
    ///
    /// # Errors
    /// [`ServerError::Start`].
    pub fn with_workers(count: usize) -> Result<Server, ServerError> {
        let (news, told) = mpsc::channel();
        let prepare = |engine: &mut Engine| engine.tell(news.clone());
        let (handle, workers) = worker::start(count, prepare).map_err(ServerError::Start)?;
        // The workers have the others.
        drop(news);
        let listeners = Listeners::default();
        let links = Links::new(handle.clone(), listeners.clone());
        let watched = links.clone();
        // It ends with the engine, which has the other end.
        let (ring, bell) = mpsc::channel();
        let asked = Arc::new(RequestedFilters::new(ring.clone()));
        let watch = move || {
            for news in told {
                match news {
                    PortEvent::Broken(id, why) => watched.broken(id, &why),
                    PortEvent::Reset => drop(ring.send(())),
                }
            }
        };
        let news = std::thread::Builder::new().name("news".to_owned()).stack_size(port::STACK);
        let news = Some(news.spawn(watch).map_err(ServerError::Start)?);
        let (state, turn, bell) = (Mutex::default(), Mutex::default(), Mutex::new(Some(bell)));
        Ok(Server { handle, workers, news, state, listeners, links, turn, bell, asked })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Two who change something at a time come one after the other. Who has the turn reads what is set: before, somebody else's change
    /// would be taken back.
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the switch as `config` has it. Ports that do not change lose nothing; one whose socket changes is a new one.
    ///
    /// # Errors
    /// Nothing is changed when the configuration makes no sense or a socket cannot be had, or given to others;
    /// [`ServerError::Partly`].
    pub fn apply(&self, config: &Config) -> Result<(), ServerError> {
        let _turn = self.turn();
        self.apply_now(config)
    }

    /// The same with what `read` gives, which is read when its turn has come: where the switch keeps what is set in what is read, it is
    /// not to lose what another has set since.
    ///
    /// # Errors
    /// In words: why it could not be read, or applied.
    pub fn reload(&self, read: impl FnOnce() -> Result<Config, String>) -> Result<(), String> {
        let _turn = self.turn();
        self.apply_now(&read()?).map_err(|error| chain(&error))
    }

    fn apply_now(&self, host: &Config) -> Result<(), ServerError> {
        // What the host says makes sense by itself, or not at all.
        host.settings()?;
        self.lapse()?;
        let (mut inside, before) = {
            let state = self.state();
            (state.inside.clone(), state.config.clone())
        };
        let dropped = inside.rebase(&before, host);
        self.commit(host, inside)?;
        replaced(&before, host).into_iter().for_each(|port| self.asked.forget(port));
        for (port, why) in dropped {
            self.listeners.tell(&Event::Lapsed { port, why });
        }
        Ok(())
    }

    /// Makes the switch as the host has it, with what came from inside on top.
    fn commit(&self, host: &Config, mut inside: Inside) -> Result<(), ServerError> {
        let over = inside.over(host)?;
        let mut unmet = inside.grant(host, &over);
        let mut effective = inside.granted_over(over.clone());
        let settings = match effective.settings() {
            Ok(settings) => settings,
            Err(why) => {
                // Whatever a guest asks for, its administrator goes on.
                let settings = over.settings()?;
                debug_assert!(false, "more was granted than a configuration may have: {why}");
                unmet = inside.grant_nothing(&why.to_string());
                effective = over;
                settings
            }
        };
        inside.note_guests(host);
        self.make(&effective, settings)?;
        self.remember(host, inside, effective, unmet);
        Ok(())
    }

    /// Notes what holds now, also where it outlives this process. Whoever calls it has the turn.
    fn remember(&self, host: &Config, inside: Inside, effective: Config, unmet: Unmet) {
        let mut state = self.state();
        let mut news = Vec::new();
        for (port, missing) in &unmet {
            let before = state.unmet.get(port);
            for (why, text) in missing.iter().filter(|new| !before.is_some_and(|all| all.contains(new))) {
                news.push(Event::Refused { port: port.clone(), why: *why, text: text.clone() });
            }
        }
        for event in &news {
            if let Event::Refused { port, why, .. } = event {
                *state.refused.entry(port.clone()).or_default().entry(*why).or_default() += 1;
            }
        }
        let kept = state.kept.clone();
        let config_changes = state.config != *host;
        let inside_changes = state.inside != inside;
        state.config = host.clone();
        state.inside = inside.clone();
        state.effective = effective;
        state.unmet = unmet;
        let ports: BTreeSet<String> = state.config.ports.keys().cloned().collect();
        state.refused.retain(|port, _| ports.contains(port));
        // The disk may take its time: whoever only looks does not wait for it.
        drop(state);
        if let Some(kept) = kept {
            if config_changes {
                kept.keep_config(host);
            }
            if inside_changes {
                kept.keep_inside(&inside);
            }
        }
        news.iter().for_each(|event| self.listeners.tell(event));
        self.links.refresh();
    }

    /// Has everything that is set from now on written to `path`, too, or to where a link of that name leads now, and what comes from
    /// inside apart from that, beside `path`.
    ///
    /// # Errors
    /// A directory in which one of them is to be cannot be reached, or a link of somebody else's is on the way.
    pub fn keep_in(&self, path: &Path) -> io::Result<()> {
        let _turn = self.turn();
        let kept = KeptInFiles::at(path)?;
        let inside = {
            let mut state = self.state();
            state.kept = Some(kept.clone());
            state.inside.clone()
        };
        kept.keep_inside(&inside);
        Ok(())
    }

    /// Begins with what a switch before this one, which kept its configuration in `path`, has been told from inside. It holds as far as
    /// the configuration that is applied next allows it. Comes before that.
    ///
    /// # Errors
    /// When what is there cannot be read; nothing of it holds then.
    pub fn begin_with(&self, path: &Path) -> io::Result<()> {
        self.state().inside = Inside::read(&inside_of(path))?.unwrap_or_default();
        Ok(())
    }

    /// Changes some attributes of a port: those that `attributes` names, in the spelling of the configuration.
    ///
    /// # Errors
    /// Nothing is changed then, but with [`ServerError::Partly`].
    pub fn set(&self, name: &str, attributes: &Attributes) -> Result<(), ServerError> {
        self.change(&BTreeMap::from([(name.to_owned(), attributes.clone())]))
    }

    /// Changes some attributes of some ports, all or none.
    ///
    /// # Errors
    /// Nothing is changed then, but with [`ServerError::Partly`].
    pub fn change(&self, changes: &BTreeMap<String, Attributes>) -> Result<(), ServerError> {
        let _turn = self.turn();
        let mut config = self.config();
        for (name, attributes) in changes {
            let all = || config.ports.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let port = config
                .ports
                .get(name)
                .ok_or_else(|| ServerError::NoPort { name: name.clone(), all: all() })?;
            let changed = with(name, port, attributes)?;
            config.ports.insert(name.clone(), changed);
        }
        self.apply_now(&config)
    }

    /// Keeps frames between ports inside (VEB), or has them go out to the uplink (VEPA).
    ///
    /// # Errors
    /// [`ServerError::Ended`], [`ServerError::Partly`].
    pub fn set_loopback(&self, on: bool) -> Result<(), ServerError> {
        let _turn = self.turn();
        self.apply_now(&Config { loopback: on, ..self.config() })
    }

    /// What the host has set.
    pub fn config(&self) -> Config {
        self.state().config.clone()
    }

    /// Whether frames between ports stay inside.
    pub fn loopback(&self) -> bool {
        self.state().effective.loopback
    }

    /// All ports as they are.
    ///
    /// # Errors
    ///
    /// [`ServerError::Ended`] when the switch has ended.
    pub fn ports(&self) -> Result<BTreeMap<String, PortState>, ServerError> {
        let state = self.state();
        let mut all = BTreeMap::new();
        for (name, attached) in &state.ports {
            let id = attached.id();
            let seen = self.handle.ask_each(|_| {
                move |engine: &mut Engine| {
                    engine.port(id).map(|port| {
                        let broken = port.why_broken().map(|error| error.to_string());
                        (port.counters, port.served(), broken, port.is_up())
                    })
                }
            });
            let (mut all_counters, mut pairs, mut broken, mut up) = (Counters::default(), 0, None, true);
            for seen in seen.ok_or(ServerError::Ended)? {
                let (counters, own, why, is_up) = seen.unwrap_or_default();
                all_counters += counters;
                pairs += own;
                broken = broken.or(why);
                up &= is_up;
            }
            let (connected, unconnected) = match attached {
                Attached::Guest(listening) => (listening.is_connected(), listening.refusal()),
                Attached::Outside(outside) => (outside.is_connected(), outside.why()),
                Attached::Vduse(vduse) => (vduse.is_connected(), vduse.why()),
            };
            let found = PortState {
                settings: state.effective.ports.get(name).cloned().unwrap_or_default(),
                inside: state.inside_of(name),
                unlearned: state.followers.values().find_map(|follower| follower.why(name)),
                connected,
                unconnected,
                up,
                untold: self.links.untold(id),
                pairs,
                broken,
                counters: Counted::from(&all_counters),
            };
            all.insert(name.clone(), found);
        }
        Ok(all)
    }

    /// Tells of events from now on.
    pub fn subscribe(&self) -> Subscription {
        self.listeners.subscribe()
    }

    /// How all is, as an event.
    ///
    /// # Errors
    ///
    /// As [`ports`](Server::ports).
    pub fn snapshot(&self) -> Result<Event, ServerError> {
        Ok(Event::Snapshot { loopback: self.loopback(), ports: self.ports()? })
    }
}

impl Server {
    /// Sends all guests away and takes the sockets away.
    pub fn close(&self) {
        self.state().followers.clear();
        let ports = std::mem::take(&mut self.state().ports);
        ports.values().for_each(Attached::end);
        let until = Instant::now() + LEAVE;
        for attached in ports.into_values() {
            // Who is left behind ends with the process.
            attached.close(until);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
        self.handle.end();
        for worker in self.workers.drain(..) {
            // One that panicked has said so already.
            let _ = worker.join();
        }
        if let Some(news) = self.news.take() {
            let _ = news.join();
        }
    }
}

#[cfg(test)]
mod tests;
