//! What the traffic of a pair crosses: the interfaces of both ends, and the bridges that are made for it.

use std::net::Ipv4Addr;

use penstock_host::{Command, Output, PlaceError, chain};
use penstock_model::{
    EndpointName, Mac, Mtu,
    measurement::{End, EndKind, PathKind},
    verdict::Vantage,
};

use super::{
    NetworkTaker, Route,
    bridge::{self, Bridge, Uplink},
    container::{SampleContainer, takes_interface},
    ends::{self, Pair},
    lease::TestLink,
    veth::Veth,
};

/// What the traffic of a pair crosses.
#[derive(Clone, Debug)]
pub(super) struct TestPath {
    /// The interfaces of both ends, the client's first, with their MAC addresses.
    pub interfaces: [(String, Mac); 2],
    /// What a bridge has to have while it is used.
    pub uplink: Option<Uplink>,
    /// The container in a VM that the client is in.
    pub container: Option<SampleContainer>,
}

impl NetworkTaker {
    /// What the traffic of a pair will cross; a bridge is made for it, of this number. `addresses` are the pair's own, and those for a network
    /// behind NAT.
    pub(super) fn test_path(
        &mut self,
        pair: &Pair,
        bridges: usize,
        addresses: [[Ipv4Addr; 2]; 2],
    ) -> Result<TestPath, String> {
        for end in pair.ends() {
            let survey = self.survey(&end.place)?;
            if !survey.programs.contains("ip") {
                let place = self.sites[&end.place].place.describe();
                return Err(format!("iproute2 is not installed {place}: its program ip sets the addresses"));
            }
        }
        match pair.path {
            PathKind::Bridge => self.bridge(pair, bridges),
            PathKind::BridgeAcross => self.bridge_across(pair, bridges),
            PathKind::VethVeth => self.bridge_like_nics(pair, bridges),
            PathKind::VethHost => self.veth(pair, bridges),
            path if path.is_from_container_in_vm() => self.container(pair, addresses),
            _ => {
                let interfaces = [self.interface(&pair.client)?, self.far_end(pair)?.0];
                Ok(TestPath { interfaces, uplink: None, container: None })
            }
        }
    }

    fn interface(&self, end: &End) -> Result<(String, Mac), String> {
        ends::interface(&self.testbed, end, self.survey(&end.place)?)
    }

    /// The server's interface, and its MTU.
    fn far_end(&self, pair: &Pair) -> Result<((String, Mac), Mtu), String> {
        if let Some(nic) = pair.port().filter(|_| pair.is_at_bridge(&pair.server)) {
            return Ok((self.end_of_bridge(pair)?, self.testbed.bridge(nic)?.mtu));
        }
        let function = pair.server.function.as_ref();
        let function = function.ok_or_else(|| format!("{} has no function", pair.server))?;
        Ok((self.interface(&pair.server)?, self.testbed.function_interface(function)?.mtu))
    }

    /// The host's end of the bridge that the client's NIC leads to.
    fn end_of_bridge(&self, pair: &Pair) -> Result<(String, Mac), String> {
        let nic = pair.port().ok_or_else(|| format!("{} leads to no bridge", pair.client))?;
        ends::bridge(&self.testbed, nic, self.survey(&Vantage::Host)?)
    }

    /// Makes a bridge between the two places with frames as large as between the NICs in whose place it stands. It is a bridge of the run's
    /// own: in the host's a container would be outside its VLAN, and past its spoof check.
    fn bridge_like_nics(&mut self, pair: &Pair, number: usize) -> Result<TestPath, String> {
        let mut mtu = None;
        for end in pair.ends() {
            let nic = end.function.as_ref().ok_or_else(|| format!("{end} has no NIC"))?;
            let own = self.testbed.function_interface(nic)?.mtu;
            mtu = Some(mtu.map_or(own, |other| own.min(other)));
        }
        let processes = [self.process(&pair.client)?, self.process(&pair.server)?];
        let bridge = Bridge::between(number, &self.mark, processes);
        self.in_bridge(mtu.into_iter().fold(bridge, Bridge::with_mtu), pair)
    }

    /// Makes a veth in the bridge of the host that the NIC in whose place it stands leads to.
    fn veth(&mut self, pair: &Pair, number: usize) -> Result<TestPath, String> {
        let (bridge, mac) = self.end_of_bridge(pair)?;
        let nic = pair.port().ok_or_else(|| format!("{} leads to no bridge", pair.client))?;
        let of_bridge = self.testbed.bridge(nic)?.mtu;
        let veth = Veth {
            number,
            alias: bridge::alias(&self.mark),
            process: self.process(&pair.client)?,
            bridge: bridge.clone(),
            of_bridge,
            // Frames are as large as those of the NIC.
            mtu: self.testbed.function_interface(nic)?.mtu.min(of_bridge),
        };
        self.make(vec![veth.made()], &veth.make(), pair)?;
        let interfaces = [(veth.inside(), veth.mac()), (bridge, mac)];
        Ok(TestPath { interfaces, uplink: None, container: None })
    }

    /// A process in the network namespace of an end.
    fn process(&self, end: &End) -> Result<u32, String> {
        match self.testbed.place(&end.place)?.namespace() {
            Ok(Some(process)) => Ok(process),
            Ok(None) => Err("an end of a bridge is on the host itself".to_owned()),
            Err(error) => Err(chain(&error)),
        }
    }

    /// Makes a bridge between the two places.
    fn bridge(&mut self, pair: &Pair, number: usize) -> Result<TestPath, String> {
        let processes = [self.process(&pair.client)?, self.process(&pair.server)?];
        self.in_bridge(Bridge::between(number, &self.mark, processes), pair)
    }

    fn in_bridge(&mut self, bridge: Bridge, pair: &Pair) -> Result<TestPath, String> {
        self.make(bridge.made(), &bridge.make(), pair)?;
        let interfaces = [0, 1].map(|side| (bridge.inside(side), bridge.mac(side)));
        Ok(TestPath { interfaces, uplink: None, container: None })
    }

    /// Makes a bridge that will join a guest with the cable.
    fn bridge_across(&mut self, pair: &Pair, number: usize) -> Result<TestPath, String> {
        let near = usize::from(pair.is_veth(&pair.server));
        let (veth, far) = (pair.ends()[near], pair.ends()[1 - near]);
        let pf = veth.function.as_ref().ok_or_else(|| format!("the bridge of {veth} has no uplink"))?;
        let far_end = self.interface(far)?;
        let far_mtu =
            far.function.as_ref().and_then(|f| self.testbed.function_interface(f).ok()).map(|s| s.mtu);
        let (interface, _) = self.interface(&on_host(pf))?;
        let function_interface = self.testbed.function_interface(pf)?;
        if function_interface.in_use {
            return Err(format!(
                "{pf} is in use on the host: {interface} has addresses or routes, or is part of something, and is not put \
                 into a bridge"
            ));
        }
        let mtu = far_mtu.map_or(function_interface.mtu, |far| far.min(function_interface.mtu));
        let bridge = Bridge::uplinked(number, &self.mark, self.process(veth)?, &interface, mtu);
        self.make(bridge.made(), &bridge.make(), pair)?;
        let mut interfaces = [(bridge.inside(0), bridge.mac(0)), far_end];
        if near == 1 {
            interfaces.reverse();
        }
        Ok(TestPath { interfaces, uplink: bridge.uplink().cloned(), container: None })
    }

    /// Decides on the container in the VM that a pair's client will be in during each sample.
    fn container(&mut self, pair: &Pair, [outer, inner]: [[Ipv4Addr; 2]; 2]) -> Result<TestPath, String> {
        let (device, device_mac) = self.interface(&pair.client)?;
        let (far, far_mtu) = self.far_end(pair)?;
        let function =
            pair.client.function.as_ref().ok_or_else(|| format!("{} has no function", pair.client))?;
        let own = self.testbed.function_interface(function)?;
        let mtu = own.mtu.min(far_mtu);
        // The others leave the interface as it is.
        if own.in_use && takes_interface(pair.path) {
            return Err(format!(
                "{} is in use: {device} has addresses there, and is left alone",
                pair.client
            ));
        }
        let translated = pair.path == PathKind::VmBridgeNat;
        let needed: &[(&str, &str)] = match pair.path {
            PathKind::VmBridgeNat => &[("nft", "nftables")],
            // Without ping the first frames of a sample would pay for the flows.
            PathKind::VmOvs => &[("ovs-vsctl", "openvswitch-switch"), ("ping", "iputils-ping")],
            _ => &[],
        };
        for (program, package) in needed {
            if !self.survey(&pair.client.place)?.programs.contains(*program) {
                let place = self.sites[&pair.client.place].place.describe();
                return Err(format!(
                    "{program} is not installed {place}: install the package {package} there"
                ));
            }
        }
        let alias = SampleContainer::alias(&self.mark);
        let site = self.sites.get_mut(&pair.client.place).ok_or("its VM is not there")?;
        let container = SampleContainer {
            number: site.lease.containers.len(),
            alias,
            path: pair.path,
            device,
            device_mac,
            mtu,
            outer,
            far: far.1,
            inner: translated.then_some(inner),
        };
        site.lease.containers.push(container.clone());
        let interfaces = [(container.interface(), container.mac()), far];
        Ok(TestPath { interfaces, uplink: None, container: Some(container) })
    }

    fn make(&mut self, links: Vec<TestLink>, make: &Command, pair: &Pair) -> Result<(), String> {
        self.survey(&Vantage::Host)?;
        let host = self.sites.get_mut(&Vantage::Host).ok_or("the host is not there")?;
        // Removed at the end also when they are only half made.
        host.will_make(links);
        self.on_host(make).map_err(|why| {
            let what = if pair.path == PathKind::VethHost { "veth" } else { "bridge" };
            format!("no {what} could be made between {} and {}: {why}", pair.client, pair.server)
        })
    }

    fn on_host(&self, command: &Command) -> Result<(), String> {
        let host = self.sites.get(&Vantage::Host).ok_or("the host is not there")?;
        host.run(command).and_then(succeeded)
    }

    /// Does something while the bridge of a pair has its uplink. When it cannot be given back it goes with the bridge, at
    /// the end.
    pub(super) fn joined<T>(
        &mut self,
        route: &Route,
        what: impl FnOnce(&mut NetworkTaker) -> Result<T, String>,
    ) -> Result<T, String> {
        let Some(uplink) = &route.uplink else { return what(self) };
        let interface = &uplink.interface;
        let joined = self.on_host(&uplink.join());
        joined.map_err(|why| format!("{interface} could not be put into a bridge: {why}"))?;
        let done = what(self);
        let given_back = self.on_host(&uplink.leave());
        let done = done?;
        given_back.map_err(|why| format!("{interface} could not be taken out of a bridge: {why}"))?;
        Ok(done)
    }

    /// Runs a command of the client's: where its path has a container, in that, which is there for the command alone.
    ///
    /// # Errors
    /// In words, when the container could not be made, or not be taken back.
    pub(super) fn run_as_client(
        &self,
        route: &Route,
        command: &Command,
    ) -> Result<Result<Output, PlaceError>, String> {
        let client = &self.sites[&route.client.place];
        let Some(container) = &route.container else { return Ok(client.place.run(command)) };
        let place = client.place.describe();
        let failed =
            |output: &Output| container.failure(output.status.code(), &last_words(&output.errors()), &place);
        let ended = client.place.run(&container.around(command));
        match &ended {
            Ok(output) => failed(output).map_or(Ok(()), Err)?,
            // What was started in a guest outlives the command that started it there, and keeps the namespace.
            Err(_) => {
                let _ = client.run(&client.lease.end_clients());
                if let Some(why) = client.run(&container.leave()).ok().as_ref().and_then(failed) {
                    return Err(why);
                }
            }
        }
        Ok(ended)
    }
}

/// The PF of the host's that a bridge has as uplink, as an end.
pub(super) fn on_host(pf: &EndpointName) -> End {
    End { place: Vantage::Host, kind: EndKind::Host, function: Some(pf.clone()) }
}

fn succeeded(output: Output) -> Result<(), String> {
    if output.status.success() {
        return Ok(());
    }
    Err(said(&output))
}

/// What a command said last on its standard error, or how it ended where it said nothing.
pub(super) fn said(output: &Output) -> String {
    let said = last_words(&output.errors());
    if said.is_empty() { output.status.to_string() } else { said }
}

/// The last line, which says why.
fn last_words(text: &str) -> String {
    // After it `ip -batch` only says which line of its input it was.
    let says = |line: &&str| !line.is_empty() && !line.starts_with("Command failed -:");
    let line = text.lines().map(str::trim).rfind(says).unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).take(300).collect()
}
