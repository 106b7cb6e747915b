//! Samples between two ends: netperf and iperf3, started in the guests, with a server at the other end.
//!
//! Each pair of ends gets two addresses of its own from the range that is set aside for this, and each knows the other's MAC
//! address beforehand; before the first sample a short exchange proves that the traffic crosses the two interfaces that are
//! meant. All of it is taken back at the end, and goes by itself when Penstock is killed.

mod addresses;
mod bridge;
mod command;
mod container;
mod cpu;
mod ends;
pub(crate) mod lease;
mod open_vswitch;
mod proof;
mod prove;
mod scout;
mod site;
mod survey;
mod test_path;
mod tools;
mod veth;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddrV4},
    sync::Arc,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use penstock_host::{Command, Output, chain, interrupt};
use penstock_model::{
    measurement::{Network, PathKind, Tool},
    verdict::Vantage,
};
use penstock_statistics::Random;

pub use self::bridge::is_of_a_run;
use self::{
    bridge::Uplink,
    container::SampleContainer,
    cpu::CpuCounters,
    ends::{AddressedEnd, Pair},
    lease::{Address, MARK, Server},
    site::Site,
    test_path::TestPath,
};
use crate::{
    matrix::Planned,
    probe::{self, packet},
    record::{CpuTime, RawOutput, SampleCpu},
    sampler::{Failure, Preparation, Sampler},
    testbed::Testbed,
};

/// What may differ from run to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long a sample will be.
    pub dwell: Duration,
    /// How long a place is lent addresses and servers at a time: what a Penstock that is killed leaves for at most.
    pub lease: Duration,
    /// How much longer than its dwell a sample may take.
    pub timeout: Duration,
    /// How long a server has until it listens.
    pub start: Duration,
    /// What is drawn in a sample is drawn from this, its cell and its round.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            dwell: Duration::from_secs(1),
            lease: Duration::from_secs(30 * 60),
            timeout: Duration::from_secs(20),
            start: Duration::from_secs(10),
            seed: 0,
        }
    }
}

/// Takes samples between two ends.
pub struct NetworkTaker {
    testbed: Testbed,
    options: Options,
    mark: String,
    sites: BTreeMap<Vantage, Site>,
    routes: BTreeMap<Pair, Route>,
    /// Pairs whose last sample had no end, by the client's address: the next one waits for nothing before the path is seen to
    /// answer.
    silent: BTreeSet<Ipv4Addr>,
    /// The round of the samples that are taken.
    round: u32,
    /// How many samples were taken a second time.
    again: u32,
    /// What of CPU time could not be seen, in words, for the reader.
    unseen: BTreeSet<String>,
}

/// A pair of ends, ready.
#[derive(Clone, Debug)]
struct Route {
    client: AddressedEnd,
    server: AddressedEnd,
    /// The positions of both addresses in what their places are lent; none of what comes with a container.
    addresses: [Option<usize>; 2],
    /// The servers of the tools.
    servers: BTreeMap<Tool, Serving>,
    /// Whose lease it needs besides its ends'.
    beside: Option<Vantage>,
    /// What its bridge has to have while it is used.
    uplink: Option<Uplink>,
    /// The container in a VM that its client is in during each of its commands.
    container: Option<SampleContainer>,
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

impl NetworkTaker {
    /// Nothing is touched before [`Sampler::prepare`].
    pub fn new(testbed: &Testbed, options: Options) -> NetworkTaker {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mark = format!("{}-{}", std::process::id(), since.as_nanos());
        NetworkTaker {
            testbed: testbed.clone(),
            options,
            mark,
            sites: BTreeMap::new(),
            routes: BTreeMap::new(),
            silent: BTreeSet::new(),
            round: 0,
            again: 0,
            unseen: BTreeSet::new(),
        }
    }

    /// Decides on addresses and servers of a pair, and has its places be lent them.
    fn route(
        &mut self,
        (pair, tools): (&Pair, &BTreeSet<Tool>),
        addresses: [Ipv4Addr; 2],
        TestPath { interfaces, uplink, container }: TestPath,
    ) -> Route {
        let macs = [container.as_ref().map_or(interfaces[0].1, SampleContainer::outer_mac), interfaces[1].1];
        let own = [container.as_ref().map_or(addresses[0], SampleContainer::address), addresses[1]];
        let addressed_end = |side: usize| {
            let end = pair.ends()[side];
            let (interface, mac) = interfaces[side].clone();
            let (place, name) = (end.place.clone(), ends::called(&self.testbed, pair, end));
            AddressedEnd { place, name, interface, mac, address: own[side] }
        };
        let addressed_ends = [addressed_end(0), addressed_end(1)];
        let positions = [0, 1].map(|side| {
            if side == 0 && container.is_some() {
                return None;
            }
            let lent = &mut self
                .sites
                .get_mut(&addressed_ends[side].place)
                .expect("its interface was seen")
                .lease
                .addresses;
            let (interface, own) = (addressed_ends[side].interface.clone(), addresses[side]);
            let (peer, peer_mac) = (addresses[1 - side], macs[1 - side]);
            let fresh = pair.is_veth(pair.ends()[side]);
            lent.push(Address { interface, fresh, own, peer, peer_mac });
            Some(lent.len() - 1)
        });
        let [client, server] = addressed_ends;
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
        let beside = (pair.makes_links() || helped).then_some(Vantage::Host);
        Route { client, server, addresses: positions, servers, beside, uplink, container }
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
        for (addressed_end, position) in [&route.client, &route.server].into_iter().zip(route.addresses) {
            let site = &self.sites[&addressed_end.place];
            if let Some(said) = position.and_then(|position| site.granted.failed.get(&position)) {
                let booted = site.booted().map(|booted| format!("; {booted}")).unwrap_or_default();
                let (name, address) = (&addressed_end.name, addressed_end.address);
                return Err(format!("{name} could not be given the address {address}: {said}{booted}"));
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
        let why = match self.sites[site].granted.said.get(position) {
            Some(said) if said.is_empty() => "it ends at once, and does not say why".to_owned(),
            Some(said) => format!("it says: {said}"),
            None => format!("it did not within {seconds} s, try it there by hand"),
        };
        Err(format!("{program} does not listen {place} at {at}: {why}"))
    }

    /// The command of a sample, and who runs it.
    fn sample(
        &self,
        cell: &Planned,
        network: &Network,
        route: &Route,
        dwell: Duration,
    ) -> Result<(Vantage, Command), String> {
        let tool = cell.measurement.tool;
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
        let seed = Random::for_purpose(self.options.seed, &format!("{} {}", cell.id, self.round)).draw();
        let build =
            |program: &str| probe::client_command(program, from.into(), at.into(), load, size, dwell, seed);
        let (runner, command) = self.own(&route.client.place, build)?;
        Ok((runner.site, command))
    }

    /// Runs a sample's command, and counts the CPU time of a stream by a VM's own NIC.
    fn run(
        &mut self,
        route: &Route,
        (runner, command): &(Vantage, Command),
        network: &Network,
        allowed: Duration,
    ) -> Result<(Output, Option<SampleCpu>), String> {
        let site = &self.sites[runner];
        let marked = command.clone().env(MARK, site.lease.client_mark()).deadline(allowed);
        let counters = self.counters(route, network);
        let ended = match &counters {
            Some(Err(why)) => {
                let ended = self.run_as_client(route, &marked)?;
                ended.map(|output| (output, Some(SampleCpu::not_seen(why))))
            }
            Some(Ok(counters)) => {
                let (ended, mut cpu) = counters.during(|| self.run_as_client(route, &cpu::counted(&marked)));
                ended?.map(|mut output| {
                    cpu::take(&mut output, &mut cpu);
                    (output, Some(cpu))
                })
            }
            None if *runner == route.client.place => {
                self.run_as_client(route, &marked)?.map(|output| (output, None))
            }
            None => site.place.run(&marked).map(|output| (output, None)),
        };
        let error = match ended {
            Ok((output, cpu)) => {
                for (whose, time) in cpu.iter().flat_map(|cpu| [("VM", &cpu.guest), ("host", &cpu.host)]) {
                    if let CpuTime::NotSeen(why) = time {
                        let path = network.path;
                        self.unseen
                            .insert(format!("the CPU time of the {whose} is not seen over {path}: {why}"));
                    }
                }
                return Ok((output, cpu));
            }
            Err(error) => error,
        };
        let site = &self.sites[runner];
        let why = if site::timed_out(&error) {
            // What was started in a guest outlives the command that started it there.
            let _ = site.run(&site.lease.end_clients());
            let (program, place) = (command.program().to_string_lossy(), site.place.describe());
            let (to, seconds) = (&route.server.name, allowed.as_secs());
            self.silent.insert(route.client.address);
            format!("{program} {place} had no end within {seconds} s: {to} may have stopped answering")
        } else {
            chain(&error)
        };
        self.distrust(route);
        Err(why)
    }

    /// What is counted during a sample: of a stream by a VM's own NIC. Why that cannot be, where it is one.
    fn counters(&self, route: &Route, network: &Network) -> Option<Result<CpuCounters, String>> {
        (network.path.is_of_vm_nic() && network.protocol.is_stream())
            .then(|| self.counters_of_stream(route, network))
    }

    fn counters_of_stream(&self, route: &Route, network: &Network) -> Result<CpuCounters, String> {
        let host = Arc::clone(self.testbed.place(&Vantage::Host)?);
        let unknown = || Err(format!("the control groups of {} were not read", route.client.place));
        let groups = self.testbed.vm_groups.get(&route.client.place).cloned().unwrap_or_else(unknown);
        // What is in the same network namespace as a process of the host's is counted there.
        let process = self.testbed.place(&route.server.place)?.namespace().map_err(|error| chain(&error))?;
        let devices =
            process.map_or_else(|| "/proc/net/dev".to_owned(), |process| format!("/proc/{process}/net/dev"));
        let (interface, direction) = (route.server.interface.clone(), network.direction);
        let instruction = self.testbed.instruction;
        Ok(CpuCounters { host, groups, devices, interface, direction, instruction })
    }

    /// Has both ends of a pair be lent all anew before the next sample: a server may hang, or wait for a client that is gone;
    /// and a link that was down for a moment has forgotten the other end's MAC address, which nobody is to be asked for.
    fn distrust(&mut self, route: &Route) {
        let ends = [&route.client.place, &route.server.place];
        for site in ends.into_iter().chain(route.servers.values().map(|serving| &serving.site)) {
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

    /// Takes a sample, a second time with a new server when the first fails.
    fn sampled(
        &mut self,
        cell: &Planned,
        network: &Network,
        route: &Route,
        dwell: Duration,
    ) -> Result<RawOutput, String> {
        let tool = cell.measurement.tool;
        let allowed = Duration::from_secs(command::seconds(dwell)) + self.options.timeout;
        self.renew(route, allowed)?;
        if self.silent.contains(&route.client.address) {
            self.answers(tool, route).inspect_err(|_| self.distrust(route))?;
            self.silent.remove(&route.client.address);
        }
        let mut sample = self.sample(cell, network, route, dwell)?;
        let (mut output, mut cpu) = self.run(route, &sample, network, allowed)?;
        if failed(tool, &output) && !interrupt::pending() {
            // Its server may be gone, or hang: one that is started anew tells whether that was all.
            self.distrust(route);
            self.renew(route, allowed)?;
            sample = self.sample(cell, network, route, dwell)?;
            (output, cpu) = self.run(route, &sample, network, allowed)?;
            if failed(tool, &output) {
                self.distrust(route);
            } else {
                self.again += 1;
            }
        }
        if output.truncated {
            return Err(format!("{tool} printed more than is kept"));
        }
        let place = self.sites[&sample.0].place.describe();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(RawOutput { cpu, ..RawOutput::of(place, &sample.1, &output, text) })
    }
}

impl Sampler for NetworkTaker {
    fn prepare(&mut self, cells: &[Planned]) -> Preparation {
        let wanted = ends::pairs(cells);
        let mut preparation = Preparation::default();
        self.look(&wanted);
        self.tell(&wanted, &mut preparation);
        let surveys = self.sites.values().filter_map(|site| site.survey.as_ref().ok());
        let taken: Vec<_> = surveys.flat_map(|survey| survey.networks.iter().copied()).collect();
        let mut addresses = addresses::pairs(wanted.len() * 2, &taken).into_iter();
        let mut failed: BTreeMap<Pair, String> = BTreeMap::new();
        let mut bridges = 0;
        for (pair, tools) in &wanted {
            let mut free =
                || addresses.next().ok_or_else(|| "no addresses of 198.18.0.0/15 are free".to_owned());
            let behind_nat = pair.path == PathKind::VmBridgeNat;
            let test_path = free().and_then(|own| {
                let inner = if behind_nat { free()? } else { own };
                Ok((self.test_path(pair, bridges, [own, inner])?, own))
            });
            bridges += usize::from(pair.makes_links());
            match test_path {
                Ok((test_path, addresses)) => {
                    let route = self.route((pair, tools), addresses, test_path);
                    self.routes.insert(pair.clone(), route);
                }
                Err(why) => drop(failed.insert(pair.clone(), why)),
            }
        }
        let unreached = self.grant();
        for (pair, route) in self.routes.clone() {
            let ends = [&route.client.place, &route.server.place];
            let unreached = ends.into_iter().chain(&route.beside).find_map(|place| unreached.get(place));
            let proven = match unreached {
                Some(why) => Err(why.clone()),
                None => self.joined(&route, |sampler| sampler.prove(&route)),
            };
            if let Err(why) = proven {
                failed.insert(pair, why);
            }
        }
        for cell in cells {
            let Some(network) = cell.measurement.network() else { continue };
            let pair = Pair::of(network);
            let tool = cell.measurement.tool;
            let why = failed.get(&pair).cloned().or_else(|| self.lacks(tool, &pair)).or_else(|| {
                let route = &self.routes[&pair];
                self.sample(cell, network, route, self.options.dwell).err()
            });
            preparation.missing.extend(why.map(|why| (cell.id.clone(), why)));
        }
        preparation
    }

    fn enter_round(&mut self, round: u32) {
        self.round = round;
    }

    fn take(&mut self, cell: &Planned, dwell: Duration) -> Result<RawOutput, Failure> {
        let network =
            cell.measurement.network().ok_or_else(|| format!("{} is not of the network", cell.id))?;
        let pair = Pair::of(network);
        let unprepared = || format!("{} was not made ready", cell.id);
        let route = self.routes.get(&pair).ok_or_else(unprepared)?.clone();
        Ok(self.joined(&route, |sampler| sampler.sampled(cell, network, &route, dwell))?)
    }

    fn finish(&mut self) -> Vec<String> {
        self.routes.clear();
        let mut sites = std::mem::take(&mut self.sites);
        let mut complaints: Vec<String> = sites.values().filter_map(Site::booted).collect();
        complaints.extend(std::mem::take(&mut self.unseen));
        complaints.extend(match std::mem::take(&mut self.again) {
            0 => None,
            1 => Some("1 sample was taken again: its tool failed the first time".to_owned()),
            n => Some(format!("{n} samples were taken again: their tools failed the first time")),
        });
        // An interrupt ends commands; those that give things back are to run all the same.
        interrupt::set_aside(|| {
            thread::scope(|scope| {
                let revoking: Vec<_> = sites.values_mut().map(|site| scope.spawn(|| site.revoke())).collect();
                let join = |thread: thread::ScopedJoinHandle<'_, Vec<String>>| {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                };
                complaints.extend(revoking.into_iter().flat_map(join));
            });
        });
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
