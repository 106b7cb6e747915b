//! The TCP sockets of this network namespace, and whose they are.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::processes::open_files;
use crate::scan::reader::Reader;

/// A TCP socket of the network namespace.
pub(super) struct Socket {
    pub local: IpAddr,
    pub port: u16,
    pub peer: IpAddr,
    pub peer_port: u16,
    pub established: bool,
    pub listening: bool,
    pub inode: u64,
}

/// All TCP sockets; `None` when no table could be read.
pub(super) fn sockets(reader: &mut Reader<'_>) -> Option<Vec<Socket>> {
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
    let (peer, peer_port) = end(fields.get(2)?)?;
    let state = *fields.get(3)?;
    Some(Socket {
        local,
        port,
        peer,
        peer_port,
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

/// The inodes of the sockets that a process has open; none when who asks may not know.
pub(super) fn inodes(process: u32, reader: &mut Reader<'_>) -> BTreeSet<u64> {
    open_files(process, reader)
        .unwrap_or_default()
        .iter()
        .filter_map(|file| file.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok())
        .collect()
}
