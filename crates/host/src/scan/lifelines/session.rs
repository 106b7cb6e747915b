//! The SSH connection that Penstock was started from.
//!
//! `SSH_CONNECTION` tells it, unless `sudo` dropped it. Then the server's process is found among Penstock's ancestors, and
//! the connection among the sockets that it has open, which only root sees. Where neither tells, and nothing shows that
//! Penstock was started in another way, every connection to the SSH port is taken for the one. A connection from this machine
//! itself tells nothing: whoever sits behind it came over another one. Nor does a variable whose connection is not seen to live:
//! programs outlive connections and hand on what they were started with. One that lives tells it only below an SSH server: whoever
//! comes to an editor's server today may come over another connection than the first one, which is still open somewhere.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    ancestry::{ancestors, console, is_service},
    loops::behind,
    sockets::{Socket, inodes, sockets},
};
use crate::scan::reader::{Reader, quoted};

/// The port of SSH servers (RFC 4251, section 12).
const SSH: u16 = 22;
/// Servers that a connection belongs to: OpenSSH's before and since 9.8, Dropbear's.
pub(super) const SERVERS: [&str; 4] = ["sshd", "sshd-session", "sshd-auth", "dropbear"];
/// Programs that let others live on when a connection ends, and be looked at again from another one.
pub(super) const MULTIPLEXERS: [&str; 7] =
    ["tmux", "screen", "zellij", "dtach", "abduco", "mosh-server", "dvtm"];

/// What is known of how Penstock was started, and whom else it must be able to reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Started {
    /// `SSH_CONNECTION` (ssh(1), ENVIRONMENT): the address and port of the client, then those of the server. Of this very process
    /// [`Started::here`] finds it also where it was kept from it.
    pub ssh_connection: Option<String>,
    /// Penstock's process; `None` for a tree that was recorded elsewhere.
    pub process: Option<u32>,
    /// Machines that have to be reached beside whoever started it.
    pub peers: Vec<IpAddr>,
}

/// An SSH connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Connection {
    pub peer: IpAddr,
    /// This machine's end.
    pub local: Option<IpAddr>,
    /// The interface, where an address says it (`fe80::1%eth0`).
    pub interface: Option<String>,
    /// Whether Penstock was started from it.
    pub own: bool,
}

impl Connection {
    fn of(socket: &Socket, own: bool) -> Connection {
        Connection { peer: socket.peer, local: Some(socket.local), interface: None, own }
    }

    /// What tells it from others: one peer may have come to several addresses, which other interfaces hold.
    fn ends(&self) -> (IpAddr, Option<IpAddr>) {
        (self.peer, self.local)
    }
}

/// The connections that must live, and in words what is not known of that. `here` are the addresses of this machine.
pub(super) fn connections(
    started: &Started,
    here: &BTreeSet<IpAddr>,
    reader: &mut Reader<'_>,
) -> (Vec<Connection>, Vec<String>) {
    let sockets = sockets(reader);
    // Who comes from this machine itself came to it over another connection.
    let inside = |address: IpAddr| address.is_loopback() || here.contains(&address);
    let mut found = Vec::new();
    // The variable's, where it is not seen to live: kept too, and no reason to think that one was found.
    let mut stale: Option<Connection> = None;
    let mut ports = BTreeSet::from([SSH]);
    let (mut proven, mut looped) = (false, false);
    if let Some(text) = &started.ssh_connection {
        match parse_variable(text) {
            Some(SshVariable { connection, port, .. }) => {
                ports.insert(port);
                looped = inside(connection.peer);
                let lives = sockets.as_deref().is_some_and(|sockets| lives(text, sockets));
                proven = lives && !looped;
                let named = (!looped).then_some(Connection { own: lives, ..connection });
                if lives { found.extend(named) } else { stale = named }
            }
            None => reader.note(format!("SSH_CONNECTION is {}, which names no connection", quoted(text))),
        }
    }
    let ancestors = started.process.map(|process| ancestors(process, reader)).unwrap_or_default();
    let is = |names: &[&str]| ancestors.iter().find(|ancestor| names.contains(&ancestor.name.as_str()));
    // What a multiplexer keeps in its environment may be the connection of last week.
    let detached = is(&MULTIPLEXERS);
    let server = is(&SERVERS);
    // Whoever told it the variable is above it no more: its connection may be open still, and nobody at its other end. A recorded tree
    // does not show who is above.
    let orphan = server.is_none() && !ancestors.is_empty();
    if let Some(server) = server {
        let own = of_server(server.id, sockets.as_deref().unwrap_or_default(), reader);
        let (inner, outer): (Vec<&Socket>, Vec<&Socket>) =
            own.into_iter().partition(|socket| inside(socket.peer));
        // Beside the connection itself these are ports that it forwards.
        if outer.is_empty() {
            looped |= !inner.is_empty();
            ports.extend(inner.iter().map(|socket| socket.port));
        }
        proven |= !outer.is_empty() && !looped;
        ports.extend(outer.iter().map(|socket| socket.port));
        outer.iter().for_each(|socket| keep(&mut found, Connection::of(socket, !looped)));
    }
    if proven && detached.is_none() && !orphan {
        stale.into_iter().for_each(|stale| keep(&mut found, stale));
        return (found, Vec::new());
    }
    let elsewhere = server.is_none() && detached.is_none() && started.ssh_connection.is_none();
    let console = if elsewhere { console(&ancestors, reader) } else { None };
    let alone = match &console {
        Some(local) => local.is_ok(),
        None => elsewhere && is_service(&ancestors, reader),
    };
    if alone {
        return (found, Vec::new());
    }
    let served = console.and_then(Result::err);
    let why = match (server, detached, started.process) {
        (_, Some(program), _) => format!("it runs inside {}, which outlives connections", program.name),
        _ if looped => "it was started over SSH from this machine itself".to_owned(),
        _ if stale.is_some() => match &sockets {
            Some(_) => "SSH_CONNECTION names a connection that is not among those of this machine".to_owned(),
            None => "whether the connection that SSH_CONNECTION names lives could not be seen".to_owned(),
        },
        (Some(server), ..) => {
            format!("it was started over SSH, and which socket process {} has could not be seen", server.id)
        }
        (.., None) => "a recorded tree does not say it".to_owned(),
        _ => {
            served.clone().unwrap_or_else(|| "no SSH server and no console is among its ancestors".to_owned())
        }
    };
    let why = format!("from where penstock was started is not known: {why}");
    let Some(sockets) = sockets else {
        stale.into_iter().for_each(|stale| keep(&mut found, stale));
        return (found, vec![format!("{why}, and /proc/net/tcp could not be read")]);
    };
    let at_server = sockets.iter().filter(|socket| socket.established && ports.contains(&socket.port));
    let (inner, outer): (Vec<&Socket>, Vec<&Socket>) = at_server.partition(|socket| inside(socket.peer));
    outer.iter().for_each(|socket| keep(&mut found, Connection::of(socket, false)));
    // It may be served over another way than SSH, whatever SSH connections there are.
    let mut unknown = Vec::from_iter(served.map(|_| why.clone()));
    if looped && detached.is_none() && inner.is_empty() {
        unknown.push(format!("{why}, and its connection could not be seen"));
    }
    if !inner.is_empty() {
        let (clients, others) = behind(&inner, &sockets, reader);
        let tunnels = sockets.iter().filter(|socket| socket.established && clients.contains(&socket.inode));
        let tunnels = tunnels.filter(|socket| !inside(socket.peer));
        tunnels.for_each(|socket| keep(&mut found, Connection::of(socket, false)));
        unknown.extend(others);
    }
    // With one that may be it, the caution is to keep that; with none that lives, that there is none elsewhere is not known. Nor is it
    // where others live alone, and nothing shows that whoever had the variable's is behind one of them.
    let lost = |stale: &&Connection| {
        server.is_none() && detached.is_none() && found.iter().all(|other| other.peer != stale.peer)
    };
    if found.is_empty() {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        unknown.push(format!("{why}, and no connection to port {} was found", ports.join(" or ")));
    } else if let Some(stale) = stale.as_ref().filter(lost) {
        unknown.push(format!("{why}, and no other one from {} was found", stale.peer));
    }
    stale.into_iter().for_each(|stale| keep(&mut found, stale));
    (found, unknown)
}

fn keep(found: &mut Vec<Connection>, connection: Connection) {
    if !found.iter().any(|other| other.ends() == connection.ends()) {
        found.push(connection);
    }
}

/// What `SSH_CONNECTION` tells.
struct SshVariable {
    connection: Connection,
    peer_port: u16,
    /// The server's.
    port: u16,
}

fn parse_variable(text: &str) -> Option<SshVariable> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [peer, peer_port, local, port] = fields[..] else { return None };
    let (peer, interface) = match peer.split_once('%') {
        Some((peer, interface)) => (peer, Some(interface.to_owned())),
        None => (peer, None),
    };
    let local = local.split('%').next().and_then(|local| local.parse::<IpAddr>().ok());
    let peer = peer.parse::<IpAddr>().ok()?.to_canonical();
    Some(SshVariable {
        connection: Connection { peer, local: local.map(|local| local.to_canonical()), interface, own: true },
        // 0 is no port of a connection.
        peer_port: peer_port.parse().unwrap_or(0),
        port: port.parse().ok()?,
    })
}

/// Whether the connection that `SSH_CONNECTION` names is among those that are established.
pub(super) fn lives(text: &str, sockets: &[Socket]) -> bool {
    let Some(SshVariable { connection, peer_port, port }) = parse_variable(text) else { return false };
    sockets.iter().any(|socket| {
        socket.established
            && (socket.peer, socket.peer_port, socket.port) == (connection.peer, peer_port, port)
            && Some(socket.local) == connection.local
    })
}

/// The connections of a server's process. A forwarded port is one too, but not to a port that somebody listens at.
pub(super) fn of_server<'a>(process: u32, sockets: &'a [Socket], reader: &mut Reader<'_>) -> Vec<&'a Socket> {
    let open = inodes(process, reader);
    let own: Vec<&Socket> =
        sockets.iter().filter(|socket| socket.established && open.contains(&socket.inode)).collect();
    let served = |socket: &&Socket| sockets.iter().any(|other| other.listening && other.port == socket.port);
    let at_server: Vec<&Socket> = own.iter().copied().filter(served).collect();
    if at_server.is_empty() { own } else { at_server }
}
