//! Makes the ports as a configuration has them: first all that may be refused, and then what holds at once. Where that breaks off all the
//! same it is noted what has come of it, so that the next change sets the rest.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use super::{
    Event, LEAVE, Server, ServerError, State,
    attached::{Attached, is_enabled},
    filters,
};
use crate::{
    config::{Config, ConfigError, MirrorDirection, PortBackend, QemuFilter},
    engine::{Engine, Mirror, Port},
    settings::Settings,
    socket::{self, Access},
    table::PortId,
};

/// Ports that are opened and not at their places yet. Those that never come there let go of what they have.
#[derive(Default)]
struct OpenedPorts(BTreeMap<String, Attached>);

impl Drop for OpenedPorts {
    fn drop(&mut self) {
        for attached in std::mem::take(&mut self.0).into_values() {
            attached.close(Instant::now());
        }
    }
}

/// Sockets to which others may come than before, each with who that was. They are put back unless all of them are had.
#[derive(Default)]
struct Admitted(Vec<(PathBuf, Access)>);

impl Admitted {
    fn admit(&mut self, socket: &Path, access: Access) -> io::Result<()> {
        self.0.push((socket.to_owned(), socket::access_of(socket)?));
        socket::set_access(socket, access)
    }

    fn stay(mut self) {
        self.0.clear();
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        for (socket, before) in &self.0 {
            // What has failed is told already.
            let _ = socket::set_access(socket, *before);
        }
    }
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

/// The devices of each monitor whose guests' wishes are followed, with their ports.
fn followed(config: &Config) -> BTreeMap<PathBuf, BTreeMap<String, String>> {
    let mut wanted: BTreeMap<PathBuf, BTreeMap<String, String>> = BTreeMap::new();
    for (name, port) in &config.ports {
        if let Some(QemuFilter { monitor, device }) = &port.filter {
            wanted.entry(monitor.clone()).or_default().insert(device.clone(), name.clone());
        }
    }
    wanted
}

/// What a configuration says of its ports, looked at before anything is changed.
pub(super) struct WantedPorts {
    settings: BTreeMap<String, Settings>,
    backends: BTreeMap<String, PortBackend>,
    accesses: BTreeMap<String, Access>,
}

impl WantedPorts {
    /// Reads what it says of them.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for the first port whose backend or access is wrong, or for the access of the control socket or the line.
    pub fn new(config: &Config, settings: BTreeMap<String, Settings>) -> Result<WantedPorts, ConfigError> {
        let backends = config.ports.iter().map(|(name, port)| Ok((name.clone(), port.backend(name)?)));
        let backends = backends.collect::<Result<_, ConfigError>>()?;
        let accesses = config.ports.iter().map(|(name, port)| Ok((name.clone(), port.access(name)?)));
        let accesses = accesses.collect::<Result<_, ConfigError>>()?;
        config.control_access()?;
        config.line_access()?;
        Ok(WantedPorts { settings, backends, accesses })
    }

    fn access(&self, name: &str) -> Access {
        self.accesses.get(name).copied().unwrap_or_default()
    }

    fn has(&self, name: &str, attached: &Attached) -> bool {
        self.backends.get(name).is_some_and(|backend| attached.is_at(backend))
    }

    /// Opens the ports that are not there.
    fn open(&self, state: &State) -> Result<OpenedPorts, ServerError> {
        let mut new = OpenedPorts::default();
        let taken: BTreeSet<PortId> =
            state.ports.values().map(Attached::id).chain(state.left_behind.iter().copied()).collect();
        let mut free = (0..PortId::MAX).filter(|id| !taken.contains(id));
        for (name, settings) in &self.settings {
            if state.ports.get(name).is_some_and(|attached| self.has(name, attached)) {
                continue;
            }
            let id = free.next().ok_or(ServerError::Ended)?;
            let Some(backend) = self.backends.get(name) else { continue };
            let attached = Attached::open(backend, id, settings, self.access(name))
                .map_err(|source| not_had(name, backend, source))?;
            new.0.insert(name.clone(), attached);
        }
        Ok(new)
    }

    /// Lets others come to the sockets of ports that stay, where it says so, and gives back what holds then.
    ///
    /// # Errors
    ///
    /// When the mode or owner of a socket cannot be set; those that were set before are set back.
    pub fn admit(&self, config: &Config, state: &State) -> Result<Config, ServerError> {
        let mut made = state.effective.clone();
        let mut admitted = Admitted::default();
        for (name, attached) in &state.ports {
            let before = state.effective.ports.get(name).and_then(|port| port.access(name).ok());
            let Some(backend) = self.backends.get(name).filter(|backend| attached.is_at(backend)) else {
                continue;
            };
            if let Some(socket) = attached.socket().filter(|_| before != Some(self.access(name))) {
                admitted.admit(socket, self.access(name)).map_err(|source| not_had(name, backend, source))?;
            }
            if let (Some(port), Some(wanted)) = (made.ports.get_mut(name), config.ports.get(name)) {
                port.access.clone_from(&wanted.access);
            }
        }
        admitted.stay();
        Ok(made)
    }
}

fn not_had(port: &str, backend: &PortBackend, source: io::Error) -> ServerError {
    ServerError::Backend { port: port.to_owned(), backend: backend.clone(), source }
}

impl Server {
    /// Makes the ports so, with the settings that the configuration gives.
    pub(super) fn make(
        &self,
        config: &Config,
        settings: BTreeMap<String, Settings>,
    ) -> Result<(), ServerError> {
        let workers = self.handle.workers();
        if let Some((port, settings)) = config.ports.iter().find(|(_, port)| workers > 1 && port.speed > 0) {
            let speed = settings.speed;
            return Err(ServerError::SharedUplink { port: port.clone(), speed, workers });
        }
        let wanted = WantedPorts::new(config, settings)?;
        let mut state = self.state();
        let new = wanted.open(&state)?;
        let mut made = wanted.admit(config, &state)?;
        // From here on nothing fails but the workers, and where neither thread nor descriptor is to be had.
        self.make_ports(config, &wanted, new, &mut state, &mut made).inspect_err(|_| state.effective = made)
    }

    /// Does what is decided, and notes in `made` what has come of it.
    fn make_ports(
        &self,
        config: &Config,
        wanted: &WantedPorts,
        mut new: OpenedPorts,
        state: &mut State,
        made: &mut Config,
    ) -> Result<(), ServerError> {
        self.remove_all_but(wanted, state, made)?;
        let loopback = config.loopback;
        if loopback != state.effective.loopback {
            self.listeners.tell(&Event::Loopback { on: loopback });
        }
        self.each(move |engine| engine.set_loopback(loopback))?;
        made.loopback = loopback;
        let mut same = Vec::new();
        for (name, settings) in &wanted.settings {
            let Some(port) = config.ports.get(name) else { continue };
            if let Some(attached) = new.0.remove(name) {
                let attached = self.put(name, settings, attached)?;
                state.ports.insert(name.clone(), attached);
            } else if state.effective.ports.get(name) == Some(port) {
                // Its part of the memory follows from all ports.
                same.extend(state.ports.get(name).map(|attached| (attached.id(), settings.memory)));
                continue;
            } else if let Some(attached) = state.ports.get(name) {
                self.set_settings(attached, settings)?;
            }
            made.ports.insert(name.clone(), port.clone());
            self.listeners.tell(&Event::Set { port: name.clone(), settings: Box::new(port.clone()) });
        }
        let mirrors = mirrors(config, &state.ports);
        let finish = |_| {
            let (same, mirrors) = (same.clone(), mirrors.clone());
            move |engine: &mut Engine| {
                same.into_iter().for_each(|(id, memory)| engine.set_memory(id, memory));
                engine.set_mirrors(mirrors);
            }
        };
        self.handle.change_each(finish).ok_or(ServerError::Ended)?;
        for (name, attached) in &state.ports {
            let qemu = config.ports.get(name).and_then(|port| port.qemu.as_ref());
            self.links.set_qemu(attached.id(), qemu).map_err(ServerError::Partly)?;
        }
        filters::follow(&mut state.followers, followed(config), &self.asked).map_err(ServerError::Partly)
    }

    fn each(&self, change: impl FnOnce(&mut Engine) + Copy + Send + 'static) -> Result<(), ServerError> {
        self.handle.change_each(|_| change).map(drop).ok_or(ServerError::Ended)
    }

    /// Takes away the ports that are wanted no more, or elsewhere.
    pub(super) fn remove_all_but(
        &self,
        wanted: &WantedPorts,
        state: &mut State,
        made: &mut Config,
    ) -> Result<(), ServerError> {
        let gone: Vec<String> = state
            .ports
            .iter()
            .filter(|(name, port)| !wanted.has(name, port))
            .map(|(name, _)| name.clone())
            .collect();
        gone.iter().filter_map(|name| state.ports.get(name)).for_each(Attached::end);
        let until = Instant::now() + LEAVE;
        for name in &gone {
            if let Some(attached) = state.ports.remove(name) {
                made.ports.remove(name);
                let id = attached.id();
                self.links.remove(id);
                if !attached.close(until) {
                    state.left_behind.insert(id);
                }
                self.each(move |engine| drop(engine.set_port(id, None)))?;
                self.listeners.tell(&Event::Removed { port: name.clone() });
            }
        }
        if gone.is_empty() {
            return Ok(());
        }
        // Their numbers are others' next, who are not to be watched, nor to watch, in their place.
        let mirrors = mirrors(made, &state.ports);
        let forget = |_| {
            let mirrors = mirrors.clone();
            move |engine: &mut Engine| engine.set_mirrors(mirrors)
        };
        self.handle.change_each(forget).map(drop).ok_or(ServerError::Ended)
    }

    /// Puts a new port at its place and has it served; there is none after a failure.
    pub(super) fn put(
        &self,
        name: &str,
        settings: &Settings,
        mut attached: Attached,
    ) -> Result<Attached, ServerError> {
        let id = attached.id();
        let settings = Arc::new(settings.clone());
        let mut ports = Port::for_each_worker(&settings, self.handle.workers()).into_iter();
        let leads_out = matches!(attached, Attached::Outside(_));
        let put = |_| {
            let port = ports.next().map(Box::new);
            move |engine: &mut Engine| {
                drop(engine.set_port(id, port));
                // Whoever is on its other side comes later.
                engine.set_carrier(id, !leads_out);
            }
        };
        self.handle.change_each(put).ok_or(ServerError::Ended)?;
        self.links.put(id, name);
        if let Err(source) = attached.serve(name, &settings, self.links.clone()) {
            self.links.remove(id);
            attached.close(Instant::now());
            self.each(move |engine| drop(engine.set_port(id, None)))?;
            return Err(ServerError::Partly(source));
        }
        Ok(attached)
    }

    fn set_settings(&self, attached: &Attached, settings: &Settings) -> Result<(), ServerError> {
        if let Attached::Outside(outside) = attached {
            outside.set_enabled(is_enabled(settings));
            outside.set_macs(&settings.macs);
        }
        let id = attached.id();
        let set = |_| {
            // Each has its own: counting who uses them would keep the workers busy with each other.
            let settings = Arc::new(settings.clone());
            move |engine: &mut Engine| engine.set_settings(id, settings)
        };
        self.handle.change_each(set).map(drop).ok_or(ServerError::Ended)
    }
}
