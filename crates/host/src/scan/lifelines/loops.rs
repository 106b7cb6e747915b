//! Connections to the SSH server that come from this machine itself: `ssh localhost`, the end of a reverse tunnel (`ssh -R`), a
//! program that hands connections on. Whoever sits behind one comes over another connection.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    processes::{name_of, processes},
    sockets::{Socket, inodes},
};
use crate::scan::reader::Reader;

/// SSH clients: OpenSSH's and Dropbear's.
const CLIENTS: [&str; 2] = ["ssh", "dbclient"];

/// The sockets of all SSH clients, over one of which a reverse tunnel may go, and in words which of `looped` is held by something
/// else, that may have its own ways.
pub(super) fn behind(
    looped: &[&Socket],
    sockets: &[Socket],
    reader: &mut Reader<'_>,
) -> (BTreeSet<u64>, Vec<String>) {
    let other_end = |socket: &Socket| {
        sockets.iter().find(|other| {
            (other.local, other.port, other.peer, other.peer_port)
                == (socket.peer, socket.peer_port, socket.local, socket.port)
        })
    };
    let mut clients = BTreeSet::new();
    let mut others: BTreeMap<u64, String> = BTreeMap::new();
    let ends: Vec<Option<u64>> = looped.iter().map(|socket| Some(other_end(socket)?.inode)).collect();
    for process in processes(reader) {
        let open = inodes(process, reader);
        if open.is_empty() {
            continue;
        }
        let name = name_of(process, reader).unwrap_or_default();
        if CLIENTS.contains(&name.as_str()) {
            clients.extend(open);
        } else {
            for end in ends.iter().flatten().filter(|end| open.contains(end)) {
                others.insert(*end, format!("{name} (process {process})"));
            }
        }
    }
    let mut unknown = Vec::new();
    for (socket, end) in looped.iter().zip(ends) {
        if end.is_some_and(|end| clients.contains(&end)) {
            continue;
        }
        let who = end.and_then(|end| others.get(&end));
        let who = who.map_or("a process that could not be seen", String::as_str);
        unknown.push(format!(
            "{who} is at the other end of the SSH connection from port {} of {}, and over what it is used is not known",
            socket.peer_port, socket.peer
        ));
    }
    (clients, unknown)
}
