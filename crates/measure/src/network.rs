//! Samples between two ends: netperf and iperf3, started in the guests, with a server at the other end.
//!
//! Each pair of ends gets two addresses of its own from the range that is set aside for this, and each knows the other's MAC
//! address beforehand; before the first sample a short exchange proves that the traffic crosses the two interfaces that are
//! meant. All of it is taken back at the end, and goes by itself when Penstock is killed.

mod addresses;
mod bridge;
mod command;
mod ends;
mod lease;
mod proof;
mod site;
mod survey;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddrV4,
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use penstock_host::{Command, Output, chain, interrupt};
use penstock_model::{
    Mac,
    measurement::{End, EndKind, Link, Network, PathKind, Tool, ToolVersion},
    verdict::Vantage,
};

use self::{
    bridge::Bridge,
    ends::{Pair, Post},
    lease::{Address, MARK, Server},
    proof::Exchanged,
    site::Site,
    survey::Survey,
};
use crate::{
    matrix::Planned,
    probe::{self, packet},
    record::RawOutput,
    scene::Scene,
    taker::{Preparation, Taker},
};

/// What may differ from run to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long a sample will be.
    pub dwell: Duration,
    /// How long a place is lent addresses and servers at a time: what a Penstock that is killed leaves for at most.
    pub lease: Duration,
    /// How much longer than its dwell a sample may take.
    pub patience: Duration,
    /// How long a server has until it listens.
    pub start: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            dwell: Duration::from_secs(1),
            lease: Duration::from_secs(30 * 60),
            patience: Duration::from_secs(30),
            start: Duration::from_secs(10),
        }
    }
}

/// Takes samples between two ends.
pub struct NetworkTaker {
    scene: Scene,
    options: Options,
    mark: String,
    sites: BTreeMap<Vantage, Site>,
    routes: BTreeMap<Pair, Route>,
}

/// A pair of ends, ready.
#[derive(Clone, Debug)]
struct Route {
    client: Post,
    server: Post,
    /// The positions of both addresses in what their places are lent.
    addresses: [usize; 2],
    /// The servers of the tools.
    servers: BTreeMap<Tool, Serving>,
    /// Whose lease it needs besides its ends'.
    beside: Option<Vantage>,
}

/// A server of a pair.
#[derive(Clone, Debug)]
struct Serving {
    /// Who runs it: the server's place, or the host for it.
    site: Vantage,
    /// Its position in what that one is lent.
    position: usize,
    /// Where it listens.
    at: SocketAddrV4,
}

/// Who runs this same program for a place.
struct Runner {
    /// The place itself, or the host.
    site: Vantage,
    /// The process whose network namespace it is run in.
    namespace: Option<u32>,
}

impl NetworkTaker {
    /// Nothing is touched before [`Taker::prepare`].
    pub fn new(scene: &Scene, options: Options) -> NetworkTaker {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mark = format!("{}-{}", std::process::id(), since.as_nanos());
        NetworkTaker { scene: scene.clone(), options, mark, sites: BTreeMap::new(), routes: BTreeMap::new() }
    }

    /// Looks at every place of these pairs, at all of them at once.
    fn look(&mut self, wanted: &[(Pair, BTreeSet<Tool>)]) {
        let mut interfaces: BTreeMap<Vantage, (EndKind, BTreeSet<String>)> = BTreeMap::new();
        for (pair, _) in wanted {
            for end in pair.ends() {
                let station = end.function.as_ref().and_then(|function| self.scene.station(function).ok());
                let (_, names) = interfaces.entry(end.place.clone()).or_insert((end.kind, BTreeSet::new()));
                names.extend(station.map(|station| station.interface.to_string()));
            }
        }
        // It makes bridges, and runs this program for containers that do not have it.
        if !wanted.is_empty() {
            interfaces.entry(Vantage::Host).or_insert((EndKind::Host, BTreeSet::new()));
        }
        for (number, (vantage, (kind, _))) in interfaces.iter().enumerate() {
            if let Ok(place) = self.scene.place(vantage) {
                let site = Site::new(Arc::clone(place), *kind, format!("{}.{number}", self.mark));
                self.sites.insert(vantage.clone(), site);
            }
        }
        let (program, interfaces) = (&self.scene.program, &interfaces);
        thread::scope(|scope| {
            for (vantage, site) in &mut self.sites {
                scope.spawn(move || site.look(&interfaces[vantage].1, program));
            }
        });
    }

    fn survey(&self, vantage: &Vantage) -> Result<&Survey, String> {
        match self.sites.get(vantage) {
            Some(site) => site.survey.as_ref().map_err(Clone::clone),
            None => Err(self.scene.place(vantage).err().unwrap_or_else(|| format!("{vantage} is not there"))),
        }
    }

    /// The links and the tools as they were found, and what the reader should know of them.
    fn tell(&self, wanted: &[(Pair, BTreeSet<Tool>)], preparation: &mut Preparation) {
        let mut uses: BTreeMap<&Vantage, BTreeSet<Tool>> = BTreeMap::new();
        for (pair, tools) in wanted {
            let mut speeds = Vec::new();
            for end in pair.ends() {
                uses.entry(&end.place).or_default().extend(tools);
                let link = self.link(end);
                speeds.extend(link.as_ref().and_then(|link| link.speed));
                if let Some(link) = link.filter(|link| preparation.links.iter().all(|l| l.end != link.end)) {
                    preparation.links.push(link);
                }
            }
            if let [one, other] = speeds[..]
                && one != other
                && pair.path.has_wire()
            {
                let Pair { path, client, server } = pair;
                preparation.notes.push(format!(
                    "the links of {path} differ: {client} runs at {one} Mbit/s, {server} at {other} Mbit/s"
                ));
            }
        }
        for (vantage, tools) in uses {
            let (Some(site), Ok(survey)) = (self.sites.get(vantage), self.survey(vantage)) else { continue };
            for tool in tools {
                let version = match tool {
                    Tool::Netperf => survey.netperf.clone(),
                    Tool::Iperf3 => survey.iperf3.clone(),
                    Tool::Fio => None,
                    Tool::Probe => {
                        survey.programs.contains("penstock").then(|| env!("CARGO_PKG_VERSION").to_owned())
                    }
                };
                preparation.tools.push(ToolVersion { tool, place: site.place.describe(), version });
            }
        }
        let seconds = command::seconds(self.options.dwell);
        let dwell = self.options.dwell;
        if !wanted.is_empty() && dwell != Duration::from_secs(seconds) {
            let dwell = dwell.as_secs_f64();
            preparation
                .notes
                .push(format!("netperf and iperf3 count in whole seconds: {dwell} s became {seconds} s"));
        }
    }

    fn link(&self, end: &End) -> Option<Link> {
        let station = self.scene.station(end.function.as_ref()?).ok()?;
        let seen = self.survey(&end.place).ok().and_then(|s| s.links.get(station.interface.as_str()));
        let speed = seen.and_then(|state| state.speed).or(station.speed);
        let carrier = seen.and_then(|state| state.carrier).or(station.carrier);
        Some(Link { end: end.clone(), speed, carrier })
    }

    /// The interfaces of both ends.
    fn interfaces(&mut self, pair: &Pair, bridges: usize) -> Result<[(String, Mac); 2], String> {
        for end in pair.ends() {
            let survey = self.survey(&end.place)?;
            if !survey.programs.contains("ip") {
                let place = self.sites[&end.place].place.describe();
                return Err(format!("iproute2 is not installed {place}: its program ip sets the addresses"));
            }
        }
        if pair.path == PathKind::Bridge {
            return self.bridge(pair, bridges);
        }
        let interface = |end: &End| ends::interface(&self.scene, end, self.survey(&end.place)?);
        Ok([interface(&pair.client)?, interface(&pair.server)?])
    }

    /// Makes a bridge between the two places.
    fn bridge(&mut self, pair: &Pair, number: usize) -> Result<[(String, Mac); 2], String> {
        let process = |end: &End| match self.scene.place(&end.place)?.namespace() {
            Ok(Some(process)) => Ok(process),
            Ok(None) => Err("an end of a bridge is on the host itself".to_owned()),
            Err(error) => Err(chain(&error)),
        };
        let processes = [process(&pair.client)?, process(&pair.server)?];
        self.survey(&Vantage::Host)?;
        let host = self.sites.get_mut(&Vantage::Host).ok_or("the host is not there")?;
        let bridge = Bridge::new(number, &self.mark, processes);
        // Removed at the end also when it is only half made.
        host.will_make(bridge.made());
        let made = host
            .run(&bridge.make())
            .and_then(|output| output.succeeded().map_err(|e| last_words(&chain(&e))));
        made.map_err(|why| {
            format!("no bridge could be made between {} and {}: {why}", pair.client, pair.server)
        })?;
        Ok([0, 1].map(|side| (bridge.inside(side), bridge.mac(side))))
    }

    /// Decides on addresses and servers of a pair, and has its places be lent them.
    fn route(
        &mut self,
        (pair, tools): (&Pair, &BTreeSet<Tool>),
        addresses: [std::net::Ipv4Addr; 2],
        interfaces: [(String, Mac); 2],
    ) -> Route {
        let fresh = pair.path == PathKind::Bridge;
        let macs = [interfaces[0].1, interfaces[1].1];
        let post = |side: usize| {
            let end = pair.ends()[side];
            let (interface, mac) = interfaces[side].clone();
            let (place, name) = (end.place.clone(), ends::called(&self.scene, end));
            Post { place, name, interface, mac, address: addresses[side] }
        };
        let posts = [post(0), post(1)];
        let positions = [0, 1].map(|side| {
            let lent =
                &mut self.sites.get_mut(&posts[side].place).expect("its interface was seen").lease.addresses;
            let (interface, own) = (posts[side].interface.clone(), addresses[side]);
            let (peer, peer_mac) = (addresses[1 - side], macs[1 - side]);
            lent.push(Address { interface, fresh, own, peer, peer_mac });
            lent.len() - 1
        });
        let [client, server] = posts;
        let mut servers = BTreeMap::new();
        for tool in tools {
            if self.lacks(*tool, pair).is_some() {
                continue;
            }
            let Some(site) = self.sites.get(&server.place) else { continue };
            let ports = site.survey.as_ref().map(|survey| &survey.ports);
            let free = |port: &u16| ports.as_ref().is_ok_and(|ports| !ports.contains(port));
            let Some(port) = (command::usual_port(*tool)..).find(free) else { continue };
            let at = SocketAddrV4::new(server.address, port);
            let Ok((runner, command)) = self.server(*tool, &server.place, at) else { continue };
            let Some(site) = self.sites.get_mut(&runner.site) else { continue };
            let udp = *tool == Tool::Probe;
            site.lease.servers.push(Server { command, at, udp, namespace: runner.namespace });
            let position = site.lease.servers.len() - 1;
            servers.insert(*tool, Serving { site: runner.site, position, at });
        }
        let helped = servers.values().any(|serving| serving.site != server.place);
        let beside = (fresh || helped).then_some(Vantage::Host);
        Route { client, server, addresses: positions, servers, beside }
    }

    /// Who runs this same program for a place.
    fn runner(&self, vantage: &Vantage) -> Result<Runner, String> {
        if self.survey(vantage)?.programs.contains("penstock") {
            return Ok(Runner { site: vantage.clone(), namespace: None });
        }
        let place = &self.sites[vantage].place;
        let missing =
            format!("this program is not {}: put it there as {}", place.describe(), self.scene.program);
        match place.namespace() {
            Ok(Some(process)) if self.survey(&Vantage::Host)?.programs.contains("penstock") => {
                Ok(Runner { site: Vantage::Host, namespace: Some(process) })
            }
            _ => Err(missing),
        }
    }

    /// A command of this same program for a place, as its runner runs it.
    fn own(
        &self,
        vantage: &Vantage,
        build: impl FnOnce(&str) -> Command,
    ) -> Result<(Runner, Command), String> {
        let runner = self.runner(vantage)?;
        let (site, program) = (&self.sites[vantage], &self.scene.program);
        if runner.namespace.is_none() {
            return Ok((runner, build(site.own_program(program))));
        }
        let host = self.scene.place(&Vantage::Host)?;
        let (_, command) = probe::in_place(&*site.place, &**host, program, build)?;
        Ok((runner, command))
    }

    /// The server of a tool, and who runs it.
    fn server(&self, tool: Tool, vantage: &Vantage, at: SocketAddrV4) -> Result<(Runner, Command), String> {
        if tool == Tool::Probe {
            let seconds = u32::try_from(self.options.lease.as_secs()).unwrap_or(u32::MAX / 8);
            let seconds = seconds.saturating_mul(4).saturating_add(3600);
            let build = |program: &str| probe::server_command(program, (*at.ip()).into(), at.port(), seconds);
            return self.own(vantage, build);
        }
        let command = command::server(tool, at).ok_or_else(|| format!("{tool} has no server"))?;
        Ok((Runner { site: vantage.clone(), namespace: None }, command))
    }

    /// Why a tool cannot be used between two ends, if so.
    fn lacks(&self, tool: Tool, pair: &Pair) -> Option<String> {
        for (end, program) in pair.ends().into_iter().zip(command::programs(tool)) {
            if tool == Tool::Probe {
                if let Err(why) = self.runner(&end.place) {
                    return Some(why);
                }
                continue;
            }
            let survey = match self.survey(&end.place) {
                Ok(survey) => survey,
                Err(why) => return Some(why),
            };
            if !survey.programs.contains(program) {
                let place = self.sites[&end.place].place.describe();
                return Some(format!("{program} is not installed {place}: install the package {tool} there"));
            }
        }
        None
    }

    /// Lends every place what it is to have, all at once.
    fn grant(&mut self) -> BTreeMap<Vantage, String> {
        let Options { lease, start, .. } = self.options;
        thread::scope(|scope| {
            let granting: Vec<_> = self
                .sites
                .iter_mut()
                .map(|(vantage, site)| (vantage.clone(), scope.spawn(move || site.grant(lease, start))))
                .collect();
            let failed = granting.into_iter().filter_map(|(vantage, thread)| {
                let granted = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                Some((vantage, granted.err()?))
            });
            failed.collect()
        })
    }

    /// Whether both ends have what they were to be lent, but for the servers.
    fn lent(&self, route: &Route) -> Result<(), String> {
        for (post, position) in [&route.client, &route.server].into_iter().zip(route.addresses) {
            if let Some(said) = self.sites[&post.place].granted.failed.get(&position) {
                return Err(format!("{} could not be given the address {}: {said}", post.name, post.address));
            }
        }
        Ok(())
    }

    /// Where the server of a tool listens.
    fn listening(&self, route: &Route, tool: Tool) -> Result<SocketAddrV4, String> {
        let place = self.sites[&route.server.place].place.describe();
        let Some(Serving { site, position, at }) = route.servers.get(&tool) else {
            return Err(format!("{tool} has no server {place}"));
        };
        if self.sites[site].granted.listening.contains(position) {
            return Ok(*at);
        }
        let ([_, program], seconds) = (command::programs(tool), self.options.start.as_secs());
        Err(format!("{program} does not listen {place} at {at} after {seconds} s: try it there by hand"))
    }

    /// Proves that what goes from one end to the other crosses the two interfaces that are meant.
    fn prove(&self, route: &Route) -> Result<(), String> {
        self.lent(route)?;
        let answering = [Tool::Netperf, Tool::Iperf3, Tool::Probe].into_iter().find_map(|tool| {
            let at = self.listening(route, tool).ok()?;
            let own = self.runner(&route.client.place).ok().filter(|runner| runner.namespace.is_none());
            let own = own.map(|_| self.sites[&route.client.place].own_program(&self.scene.program));
            command::exchange(tool, route.client.address, at, own)
        });
        // Without a server there is nothing to prove: each tool says for itself what it lacks.
        let Some(exchange) = answering else { return Ok(()) };
        let (client, server) = (&self.sites[&route.client.place], &self.sites[&route.server.place]);
        let text = |output: Output| proof::read(&output.text());
        let before = server.run(&proof::before(&route.server)).map(text)?.before;
        let uncounted = || format!("the counters of {} could not be read", route.server.name);
        let before = before.ok_or_else(uncounted)?;
        let patience = self.options.patience;
        let asked =
            proof::exchange(&route.client, &route.server, &exchange, &client.lease.client_mark(), patience);
        let told = match client.place.run(&asked) {
            Ok(output) => text(output),
            Err(error) if site::timed_out(&error) => {
                let _ = client.run(&client.lease.end_clients());
                let (from, to) = (&route.client.name, &route.server.name);
                let seconds = patience.as_secs();
                return Err(format!(
                    "{from} gets no answer from {to} within {seconds} s: the path may be down"
                ));
            }
            Err(error) => return Err(chain(&error)),
        };
        let after = if told.failed.is_none() {
            server
                .run(&proof::after(&route.server, &exchange, before))
                .map(text)?
                .after
                .ok_or_else(uncounted)?
        } else {
            before
        };
        let name = |post: &Post| (post.name.clone(), post.interface.clone());
        let (from, to) = (name(&route.client), name(&route.server));
        let (client, server) = ((&*from.0, &*from.1), (&*to.0, &*to.1));
        Exchanged { exchange: &exchange, client, server, told, counted: (before, after) }.judge()
    }

    /// The command of a sample, and who runs it.
    fn sample(
        &self,
        tool: Tool,
        network: &Network,
        route: &Route,
        dwell: Duration,
    ) -> Result<(Vantage, Command), String> {
        let at = self.listening(route, tool)?;
        let from = route.client.address;
        if tool != Tool::Probe {
            return Ok((route.client.place.clone(), command::client(tool, network, from, at, dwell)?));
        }
        let Network { load, size, .. } = *network;
        if !(packet::LEAST..=packet::MOST).contains(&size) {
            let (least, most) = (packet::LEAST, packet::MOST);
            return Err(format!("the probe sends {least} to {most} bytes, not {size}"));
        }
        let build = |program: &str| probe::client_command(program, from.into(), at.into(), load, size, dwell);
        let (runner, command) = self.own(&route.client.place, build)?;
        Ok((runner.site, command))
    }

    /// Runs a sample's command.
    fn run(
        &mut self,
        route: &Route,
        (runner, command): &(Vantage, Command),
        allowed: Duration,
    ) -> Result<Output, String> {
        let site = &self.sites[runner];
        let marked = command.clone().env(MARK, site.lease.client_mark()).deadline(allowed);
        let error = match site.place.run(&marked) {
            Ok(output) => return Ok(output),
            Err(error) => error,
        };
        let why = if site::timed_out(&error) {
            // What was started in a guest outlives the command that started it there.
            let _ = site.run(&site.lease.end_clients());
            let (program, place) = (command.program().to_string_lossy(), site.place.describe());
            let (to, seconds) = (&route.server.name, allowed.as_secs());
            format!("{program} {place} had no end within {seconds} s: {to} may have stopped answering")
        } else {
            chain(&error)
        };
        self.distrust(route);
        Err(why)
    }

    /// Has the servers of a pair be started anew before the next sample: they may hang, or wait for a client that is gone.
    fn distrust(&mut self, route: &Route) {
        for site in route.servers.values().map(|serving| &serving.site) {
            self.sites.get_mut(site).map(Site::distrust);
        }
    }

    fn renew(&mut self, route: &Route, needed: Duration) -> Result<(), String> {
        let Options { lease, start, .. } = self.options;
        for vantage in [Some(&route.client.place), Some(&route.server.place), route.beside.as_ref()] {
            if let Some(site) = vantage.and_then(|vantage| self.sites.get_mut(vantage)) {
                site.renew(needed, lease, start)?;
            }
        }
        self.lent(route)
    }
}

impl Taker for NetworkTaker {
    fn prepare(&mut self, cells: &[Planned]) -> Preparation {
        let wanted = ends::pairs(cells);
        let mut preparation = Preparation::default();
        self.look(&wanted);
        self.tell(&wanted, &mut preparation);
        let surveys = self.sites.values().filter_map(|site| site.survey.as_ref().ok());
        let taken: Vec<_> = surveys.flat_map(|survey| survey.networks.iter().copied()).collect();
        let mut addresses = addresses::pairs(wanted.len(), &taken).into_iter();
        let mut failed: BTreeMap<Pair, String> = BTreeMap::new();
        let mut bridges = 0;
        for (pair, tools) in &wanted {
            let interfaces = self.interfaces(pair, bridges);
            bridges += usize::from(pair.path == PathKind::Bridge);
            match interfaces.and_then(|interfaces| {
                let full = "no addresses of 198.18.0.0/15 are free".to_owned();
                Ok((interfaces, addresses.next().ok_or(full)?))
            }) {
                Ok((interfaces, addresses)) => {
                    let route = self.route((pair, tools), addresses, interfaces);
                    self.routes.insert(pair.clone(), route);
                }
                Err(why) => drop(failed.insert(pair.clone(), why)),
            }
        }
        let unreached = self.grant();
        for (pair, route) in &self.routes {
            let ends = [&route.client.place, &route.server.place];
            let unreached = ends.into_iter().chain(&route.beside).find_map(|place| unreached.get(place));
            let proven = unreached.map_or_else(|| self.prove(route), |why| Err(why.clone()));
            if let Err(why) = proven {
                failed.insert(pair.clone(), why);
            }
        }
        for cell in cells {
            let Some(network) = ends::network(cell) else { continue };
            let pair = Pair::of(network);
            let tool = cell.measurement.tool;
            let why = failed.get(&pair).cloned().or_else(|| self.lacks(tool, &pair)).or_else(|| {
                let route = &self.routes[&pair];
                self.sample(tool, network, route, self.options.dwell).err()
            });
            preparation.missing.extend(why.map(|why| (cell.id.clone(), why)));
        }
        preparation
    }

    fn take(&mut self, cell: &Planned, dwell: Duration) -> Result<RawOutput, String> {
        let network = ends::network(cell).ok_or_else(|| format!("{} is not of the network", cell.id))?;
        let pair = Pair::of(network);
        let unprepared = || format!("{} was not made ready", cell.id);
        let route = self.routes.get(&pair).ok_or_else(unprepared)?.clone();
        let tool = cell.measurement.tool;
        let allowed = Duration::from_secs(command::seconds(dwell)) + self.options.patience;
        self.renew(&route, allowed)?;
        let mut sample = self.sample(tool, network, &route, dwell)?;
        let mut output = self.run(&route, &sample, allowed)?;
        if failed(tool, &output) && !interrupt::pending() {
            // Its server may be gone, or hang: one that is started anew tells whether that was all.
            self.distrust(&route);
            self.renew(&route, allowed)?;
            sample = self.sample(tool, network, &route, dwell)?;
            output = self.run(&route, &sample, allowed)?;
        }
        if output.truncated {
            return Err(format!("{tool} printed more than is kept"));
        }
        Ok(RawOutput {
            place: self.sites[&sample.0].place.describe(),
            command: sample.1.to_string(),
            status: output.status.code(),
            stdout: output.text(),
            stderr: output.errors(),
        })
    }

    fn finish(&mut self) -> Vec<String> {
        self.routes.clear();
        // An interrupt ends commands; those that give things back are to run all the same.
        let interrupted = interrupt::acknowledge();
        let mut sites = std::mem::take(&mut self.sites);
        let complaints = thread::scope(|scope| {
            let revoking: Vec<_> = sites.values_mut().map(|site| scope.spawn(|| site.revoke())).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, Vec<String>>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            revoking.into_iter().flat_map(join).collect()
        });
        if interrupted {
            interrupt::watched().store(true, Ordering::Relaxed);
        }
        complaints
    }
}

impl Drop for NetworkTaker {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Whether a tool says that it failed. iperf3 does so with the status of success (before its version 3.17).
fn failed(tool: Tool, output: &Output) -> bool {
    !output.status.success() || (tool == Tool::Iperf3 && output.text().contains("\"error\":"))
}

/// The last line, which says why.
fn last_words(text: &str) -> String {
    // After it `ip -batch` only says which line of its input it was.
    let says = |line: &&str| !line.is_empty() && !line.starts_with("Command failed -:");
    let line = text.lines().map(str::trim).rfind(says).unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).take(300).collect()
}
