//! The command lines of netperf and iperf3, and of their servers. Pure.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    time::Duration,
};

use penstock_host::Command;
use penstock_model::measurement::{Direction, Load, Network, PathKind, Protocol, Tool};

use crate::{parse::netperf::SELECTORS, probe};

/// The least time that netperf and iperf3 run for, and the steps in which it is given: a second.
pub fn seconds(dwell: Duration) -> u64 {
    let whole = dwell.as_secs() + u64::from(dwell.subsec_nanos() > 0);
    whole.max(1)
}

/// One sample.
///
/// # Errors
/// In words, when the tool has no such test.
pub fn client(
    tool: Tool,
    network: &Network,
    from: Ipv4Addr,
    to: SocketAddrV4,
    dwell: Duration,
) -> Result<Command, String> {
    match tool {
        Tool::Netperf => netperf(network, from, to, dwell),
        Tool::Iperf3 => iperf3(network, from, to, dwell),
        Tool::Fio | Tool::Probe => Err(format!("{tool} is not started like this")),
    }
}

fn netperf(network: &Network, from: Ipv4Addr, to: SocketAddrV4, dwell: Duration) -> Result<Command, String> {
    let test = match (network.protocol, network.direction) {
        (Protocol::UdpStream, Direction::Forward) => "UDP_STREAM",
        (Protocol::TcpStream, Direction::Forward) => "TCP_STREAM",
        (Protocol::TcpStream, Direction::Reverse) => "TCP_MAERTS",
        (Protocol::UdpRr, Direction::Forward) => "UDP_RR",
        (Protocol::TcpRr, Direction::Forward) => "TCP_RR",
        (protocol, Direction::Reverse) => return Err(format!("netperf has no {protocol} in reverse")),
    };
    // `-c -C` count the CPU of both ends (from /proc/stat: no time is lost to calibration), `-j` keeps latencies.
    let command = netperf_to(from, to, test).args([
        "-l",
        &seconds(dwell).to_string(),
        "-c",
        "-C",
        "-j",
        "--",
        "-k",
        &SELECTORS.join(","),
    ]);
    let size = network.size.to_string();
    Ok(match network.protocol {
        // A receiver with less room than a datagram would cut it short, and count what it took.
        Protocol::UdpStream => {
            let command = command.args(["-m", &size, "-M", &size]);
            // A stream of datagrams is not routed otherwise (`SO_DONTROUTE`), so that it cannot leave by a route that was forgotten.
            if network.path == PathKind::VmBridgeNat { command.args(["-R", "1"]) } else { command }
        }
        Protocol::TcpStream => command.args(["-m", &size]),
        Protocol::UdpRr | Protocol::TcpRr => command.args(["-r", &format!("{size},{size}")]),
    })
}

fn netperf_to(from: Ipv4Addr, to: SocketAddrV4, test: &str) -> Command {
    let (local, remote, port) = (from.to_string(), to.ip().to_string(), to.port().to_string());
    Command::new("netperf").args(["-4", "-H", &remote, "-L", &local, "-p", &port, "-t", test])
}

fn iperf3(network: &Network, from: Ipv4Addr, to: SocketAddrV4, dwell: Duration) -> Result<Command, String> {
    let command = iperf3_to(from, to).args(["-J", "-t", &seconds(dwell).to_string()]);
    let command = command.args(["-l", &network.size.to_string()]);
    let command = match network.protocol {
        Protocol::TcpStream => command,
        // Without a rate it sends 1 Mbit/s.
        Protocol::UdpStream => command.args(["-u", "-b", "0"]),
        protocol => return Err(format!("iperf3 has no {protocol}")),
    };
    Ok(match network.direction {
        Direction::Forward => command,
        Direction::Reverse => command.arg("-R"),
    })
}

fn iperf3_to(from: Ipv4Addr, to: SocketAddrV4) -> Command {
    let (local, remote, port) = (from.to_string(), to.ip().to_string(), to.port().to_string());
    Command::new("iperf3").args(["-4", "-c", &remote, "-B", &local, "-p", &port])
}

/// A short exchange that shows whether the path answers at all.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The client's command.
    pub command: Command,
    /// Packets at least that go to the server.
    pub there: u64,
    /// Packets at least that come back.
    pub back: u64,
}

/// The exchange by this tool, if it has one. `own` is where this same program is at the client.
pub fn exchange(tool: Tool, from: Ipv4Addr, to: SocketAddrV4, own: Option<&str>) -> Option<Exchange> {
    match tool {
        // A negative length is a number of transactions.
        Tool::Netperf => {
            let command = netperf_to(from, to, "TCP_RR").args(["-l", "-100", "--", "-r", "1,1"]);
            Some(Exchange { command, there: 100, back: 100 })
        }
        // Datagrams, which no offload makes fewer of; some are lost when they come faster than they are read.
        Tool::Iperf3 => {
            let command = iperf3_to(from, to).args(["-u", "-b", "10M", "-l", "64", "-n", "12800"]);
            Some(Exchange { command, there: 100, back: 1 })
        }
        Tool::Probe => {
            let (load, dwell) = (Load::Open { rate: 500 }, Duration::from_millis(400));
            let command = probe::client_command(own?, from.into(), to.into(), load, 128, dwell, 0);
            Some(Exchange { command, there: 100, back: 100 })
        }
        Tool::Fio => None,
    }
}

/// The shortest that a tool can do by TCP, which each of its tests begins with; the probe greets its server by itself.
pub fn greeting(tool: Tool, from: Ipv4Addr, to: SocketAddrV4) -> Option<Command> {
    match tool {
        Tool::Netperf => exchange(tool, from, to, None).map(|exchange| exchange.command),
        Tool::Iperf3 => Some(iperf3_to(from, to).args(["-l", "1K", "-n", "1K"])),
        Tool::Probe | Tool::Fio => None,
    }
}

/// The server at this end. It stays in the foreground, and listens at one address alone: nobody else is served.
pub fn server(tool: Tool, at: SocketAddrV4) -> Option<Command> {
    let (address, port) = (at.ip().to_string(), at.port().to_string());
    match tool {
        Tool::Netperf => {
            let local = format!("{address},4");
            Some(Command::new("netserver").args(["-D", "-4", "-L", &local, "-p", &port]))
        }
        Tool::Iperf3 => Some(Command::new("iperf3").args(["-4", "-s", "-B", &address, "-p", &port])),
        Tool::Fio | Tool::Probe => None,
    }
}

/// The port that the server of a tool usually has.
pub fn usual_port(tool: Tool) -> u16 {
    match tool {
        Tool::Iperf3 => 5201,
        Tool::Netperf | Tool::Fio => 12865,
        Tool::Probe => 12965,
    }
}

/// The programs that a tool needs: the client's and the server's.
pub fn programs(tool: Tool) -> [&'static str; 2] {
    match tool {
        Tool::Netperf => ["netperf", "netserver"],
        Tool::Iperf3 => ["iperf3", "iperf3"],
        Tool::Fio => ["fio", "fio"],
        Tool::Probe => ["penstock", "penstock"],
    }
}

#[cfg(test)]
mod tests {
    use penstock_model::{
        measurement::{End, EndKind, PathKind},
        verdict::Vantage,
    };

    use super::*;

    fn line(tool: Tool, protocol: Protocol, direction: Direction, size: u32, dwell: u64) -> String {
        let end = End { place: Vantage::Host, kind: EndKind::Host, function: None };
        let path = PathKind::VfVfInside;
        let load = Load::Closed;
        let network = Network { protocol, path, client: end.clone(), server: end, size, direction, load };
        let to = SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 2), 12865);
        let from = Ipv4Addr::new(198, 18, 0, 1);
        match client(tool, &network, from, to, Duration::from_millis(dwell)) {
            Ok(command) => command.to_string().replace(&SELECTORS.join(","), "KEYS"),
            Err(why) => why,
        }
    }

    #[test]
    fn command_lines_are_as_a_person_would_type_them() {
        use Direction::{Forward, Reverse};
        use Protocol::{TcpRr, TcpStream, UdpRr, UdpStream};
        let lines = [
            line(Tool::Netperf, UdpStream, Forward, 1024, 1000),
            line(Tool::Netperf, TcpStream, Forward, 16384, 100),
            line(Tool::Netperf, TcpStream, Reverse, 128, 2000),
            line(Tool::Netperf, UdpRr, Forward, 128, 1500),
            line(Tool::Netperf, TcpRr, Forward, 128, 10_000),
            line(Tool::Netperf, UdpStream, Reverse, 128, 1000),
            line(Tool::Iperf3, TcpStream, Forward, 16384, 1000),
            line(Tool::Iperf3, TcpStream, Reverse, 16384, 1000),
            line(Tool::Iperf3, UdpStream, Forward, 1024, 1000),
            line(Tool::Iperf3, UdpRr, Forward, 1024, 1000),
            line(Tool::Fio, UdpRr, Forward, 1024, 1000),
        ];
        let netperf = "netperf -4 -H 198.18.0.2 -L 198.18.0.1 -p 12865 -t";
        let iperf3 = "iperf3 -4 -c 198.18.0.2 -B 198.18.0.1 -p 12865 -J -t";
        let wanted = [
            format!("{netperf} UDP_STREAM -l 1 -c -C -j -- -k KEYS -m 1024 -M 1024"),
            format!("{netperf} TCP_STREAM -l 1 -c -C -j -- -k KEYS -m 16384"),
            format!("{netperf} TCP_MAERTS -l 2 -c -C -j -- -k KEYS -m 128"),
            format!("{netperf} UDP_RR -l 2 -c -C -j -- -k KEYS -r 128,128"),
            format!("{netperf} TCP_RR -l 10 -c -C -j -- -k KEYS -r 128,128"),
            "netperf has no udp stream in reverse".to_owned(),
            format!("{iperf3} 1 -l 16384"),
            format!("{iperf3} 1 -l 16384 -R"),
            format!("{iperf3} 1 -l 1024 -u -b 0"),
            "iperf3 has no udp rr".to_owned(),
            "fio is not started like this".to_owned(),
        ];
        assert_eq!(lines, wanted);
    }

    #[test]
    fn a_server_listens_at_one_address() {
        let at = SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 2), 5202);
        let line = |tool| server(tool, at).map(|command| command.to_string());
        assert_eq!(line(Tool::Netperf).unwrap(), "netserver -D -4 -L 198.18.0.2,4 -p 5202");
        assert_eq!(line(Tool::Iperf3).unwrap(), "iperf3 -4 -s -B 198.18.0.2 -p 5202");
        assert_eq!(line(Tool::Fio), None);
    }
}
