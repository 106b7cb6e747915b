//! The SSH connection that Penstock was started from.
//!
//! `SSH_CONNECTION` tells it, unless `sudo` dropped it. Then the server's process is found among Penstock's ancestors, and
//! the connection among the sockets that it has open, which only root sees. Where neither tells, and nothing shows that
//! Penstock was started in another way, every connection to the SSH port is taken for the one.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::scan::reader::{Reader, quoted};

/// The port of SSH servers (RFC 4251, section 12).
const SSH: u16 = 22;
/// Processes between Penstock and the first one of the machine; more are no ancestry.
const DEEPEST: usize = 64;
/// More files than this no SSH server has open, and no VM's QEMU.
const FILES: usize = 4096;
/// Servers that a connection belongs to: OpenSSH's before and since 9.8, Dropbear's.
const SERVERS: [&str; 4] = ["sshd", "sshd-session", "sshd-auth", "dropbear"];
/// Programs that let others live on when a connection ends, and be looked at again from another one.
const MULTIPLEXERS: [&str; 7] = ["tmux", "screen", "zellij", "dtach", "abduco", "mosh-server", "dvtm"];
/// Programs at the start of a session on the machine's own console or screen.
const CONSOLES: [&str; 8] =
    ["login", "agetty", "getty", "gdm-session-wor", "sddm-helper", "lightdm", "xdm", "lxdm"];

/// What is known of how Penstock was started, and whom else it must be able to reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Started {
    /// `SSH_CONNECTION` (ssh(1), ENVIRONMENT): the address and port of the client, then those of the server.
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
    /// What tells it from others: one peer may have come to several addresses, which other interfaces hold.
    fn ends(&self) -> (IpAddr, Option<IpAddr>) {
        (self.peer, self.local)
    }
}

/// The connections that must live, and in words what is not known of that.
pub(super) fn connections(started: &Started, reader: &mut Reader<'_>) -> (Vec<Connection>, Option<String>) {
    let sockets = sockets(reader);
    let mut found = Vec::new();
    let mut port = SSH;
    let mut proven = false;
    if let Some(text) = &started.ssh_connection {
        match told(text) {
            Some((connection, at)) => {
                port = at;
                proven = true;
                found.push(connection);
            }
            None => reader.note(format!("SSH_CONNECTION is {}, which names no connection", quoted(text))),
        }
    }
    let ancestors = started.process.map(|process| ancestors(process, reader)).unwrap_or_default();
    let is = |names: &[&str]| ancestors.iter().find(|ancestor| names.contains(&ancestor.name.as_str()));
    // What a multiplexer keeps in its environment may be the connection of last week.
    let detached = is(&MULTIPLEXERS);
    let server = is(&SERVERS);
    if let Some(server) = server {
        let own = of_server(server.id, sockets.as_deref().unwrap_or_default(), reader);
        proven |= !own.is_empty();
        for connection in own {
            if !found.iter().any(|other: &Connection| other.ends() == connection.ends()) {
                found.push(connection);
            }
        }
    }
    if proven && detached.is_none() {
        return (found, None);
    }
    let elsewhere = server.is_none() && detached.is_none() && started.ssh_connection.is_none();
    if elsewhere && (is(&CONSOLES).is_some() || is_service(&ancestors, reader)) {
        return (found, None);
    }
    let why = match (server, detached, started.process) {
        (_, Some(program), _) => format!("it runs inside {}, which outlives connections", program.name),
        (Some(server), ..) => {
            format!("it was started over SSH, and which socket process {} has could not be seen", server.id)
        }
        (.., None) => "a recorded tree does not say it".to_owned(),
        _ => "no SSH server and no console is among its ancestors".to_owned(),
    };
    let why = format!("from where penstock was started is not known: {why}");
    let Some(sockets) = sockets else {
        return (found, Some(format!("{why}, and /proc/net/tcp could not be read")));
    };
    for socket in
        sockets.iter().filter(|socket| socket.established && (socket.port == SSH || socket.port == port))
    {
        let connection = Connection { own: false, ..socket.connection() };
        if !found.iter().any(|other| other.ends() == connection.ends()) {
            found.push(connection);
        }
    }
    // With one that may be it, the caution is to keep that; with none, that there is none elsewhere is not known.
    let unknown = found.is_empty().then(|| format!("{why}, and no connection to port {port} was found"));
    (found, unknown)
}

/// What `SSH_CONNECTION` tells, with the server's port.
fn told(text: &str) -> Option<(Connection, u16)> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [peer, _, local, port] = fields[..] else { return None };
    let (peer, interface) = match peer.split_once('%') {
        Some((peer, interface)) => (peer, Some(interface.to_owned())),
        None => (peer, None),
    };
    let local = local.split('%').next().and_then(|local| local.parse::<IpAddr>().ok());
    let peer = peer.parse::<IpAddr>().ok()?.to_canonical();
    Some((
        Connection { peer, local: local.map(|local| local.to_canonical()), interface, own: true },
        port.parse().ok()?,
    ))
}

/// A TCP socket of the network namespace.
struct Socket {
    local: IpAddr,
    port: u16,
    peer: IpAddr,
    established: bool,
    listening: bool,
    inode: u64,
}

impl Socket {
    fn connection(&self) -> Connection {
        Connection { peer: self.peer, local: Some(self.local), interface: None, own: true }
    }
}

/// All TCP sockets; `None` when no table could be read.
fn sockets(reader: &mut Reader<'_>) -> Option<Vec<Socket>> {
    let (four, six) = (reader.large_text("/proc/net/tcp"), reader.large_text("/proc/net/tcp6"));
    if four.is_none() && six.is_none() {
        return None;
    }
    let lines = |text: &'_ Option<String>| -> Vec<Socket> {
        text.iter().flat_map(|text| text.lines().skip(1)).filter_map(socket).collect()
    };
    let mut all = lines(&four);
    all.extend(lines(&six));
    Some(all)
}

/// `N: LOCAL:PORT PEER:PORT STATE ... UID TIMEOUT INODE ...` (`Documentation/networking/proc_net_tcp.rst`).
fn socket(line: &str) -> Option<Socket> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (local, port) = end(fields.get(1)?)?;
    let (peer, _) = end(fields.get(2)?)?;
    let state = *fields.get(3)?;
    Some(Socket {
        local,
        port,
        peer,
        established: state == "01",
        listening: state == "0A",
        inode: fields.get(9)?.parse().ok()?,
    })
}

/// `0100007F:0016`: the address in words of the machine's byte order, and the port.
fn end(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let address: IpAddr = match address.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (position, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(position * 8)?);
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some((address.to_canonical(), port))
}

/// A process that another one descends from.
struct Ancestor {
    id: u32,
    name: String,
    /// Whether it has a controlling terminal.
    terminal: bool,
}

/// A process and all that it descends from, itself first.
fn ancestors(process: u32, reader: &mut Reader<'_>) -> Vec<Ancestor> {
    let mut found: Vec<Ancestor> = Vec::new();
    let mut next = process;
    while next > 0 && found.len() < DEEPEST && !found.iter().any(|ancestor| ancestor.id == next) {
        let Some(stat) = reader.text(&format!("/proc/{next}/stat")) else { break };
        // The name, in parentheses, may itself hold blanks and parentheses.
        let Some((start, rest)) = stat.rsplit_once(')') else { break };
        let name = start.split_once('(').map_or("", |(_, name)| name);
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |at: usize| fields.get(at).and_then(|field| field.parse::<i64>().ok());
        // `tmux: server` and `screen` of GNU, which calls itself in capitals when it is detached.
        let name = name.split([':', ' ']).next().unwrap_or_default();
        let name = if name == "SCREEN" { "screen" } else { name };
        found.push(Ancestor {
            id: next,
            name: name.to_owned(),
            terminal: field(4).is_some_and(|terminal| terminal != 0),
        });
        next = field(1).and_then(|parent| u32::try_from(parent).ok()).unwrap_or(0);
    }
    found
}

/// Whether Penstock was started by the machine itself: it descends from its first process, has no terminal, and nobody
/// logged in on its way (`/proc/PID/loginuid`, which `pam_loginuid` sets and children inherit).
fn is_service(ancestors: &[Ancestor], reader: &mut Reader<'_>) -> bool {
    let [own, .., last] = ancestors else { return false };
    let nobody = reader.text(&format!("/proc/{}/loginuid", own.id)).as_deref() == Some("4294967295");
    nobody && last.id == 1 && !own.terminal
}

/// The connections of a server's process. A forwarded port is one too, but not to a port that somebody listens at.
fn of_server(process: u32, sockets: &[Socket], reader: &mut Reader<'_>) -> Vec<Connection> {
    let open: BTreeSet<u64> = open_files(process, reader)
        .iter()
        .filter_map(|file| file.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok())
        .collect();
    let own: Vec<&Socket> =
        sockets.iter().filter(|socket| socket.established && open.contains(&socket.inode)).collect();
    let served = |socket: &&&Socket| sockets.iter().any(|other| other.listening && other.port == socket.port);
    let at_server: Vec<&&Socket> = own.iter().filter(served).collect();
    if at_server.is_empty() {
        own.iter().map(|socket| socket.connection()).collect()
    } else {
        at_server.iter().map(|socket| socket.connection()).collect()
    }
}

/// What the open files of a process are called; none when who asks may not know.
pub(super) fn open_files(process: u32, reader: &mut Reader<'_>) -> Vec<String> {
    let directory = format!("/proc/{process}/fd");
    let mut numbers = reader.quiet_list(&directory);
    numbers.truncate(FILES);
    numbers.iter().filter_map(|number| reader.target(&format!("{directory}/{number}"))).collect()
}

/// The numbers of all processes.
pub(super) fn processes(reader: &mut Reader<'_>) -> Vec<u32> {
    reader.list("/proc").iter().filter_map(|name| name.parse().ok()).collect()
}

/// The name of a process.
pub(super) fn name_of(process: u32, reader: &mut Reader<'_>) -> Option<String> {
    reader.text(&format!("/proc/{process}/comm"))
}

/// The VM that a QEMU runs, as libvirt and others call it (`-name guest=NAME,...`).
pub(super) fn vm_of(process: u32, reader: &mut Reader<'_>) -> Option<String> {
    let line = reader.bytes(&format!("/proc/{process}/cmdline"), 4096)?;
    let line = String::from_utf8_lossy(&line);
    let mut words = line.split('\0');
    words.find(|word| *word == "-name")?;
    let name = words.next()?.split(',').find_map(|part| part.strip_prefix("guest="))?;
    Some(name.chars().filter(|c| !c.is_control()).take(80).collect())
}
