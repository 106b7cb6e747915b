//! Leases of IPv4 inside guests, which a DHCP client there asks for (RFC 2131).

use std::net::Ipv4Addr;

use crate::InterfaceAddress;

/// The metric of the default route of the first lease of a guest, as systemd-networkd has it (`DHCP_ROUTE_METRIC`): a route that the model
/// gives without a metric comes first.
const METRIC: u32 = 1024;

/// The metric of the default route that the lease at this position, from 0, of all leases of a guest brings.
pub fn metric(position: usize) -> u32 {
    METRIC + u32::try_from(position).unwrap_or(u32::MAX - METRIC)
}

/// What the client of a container notes of the lease of an interface: a file inside.
pub fn lease_file(interface: &str) -> String {
    format!("/run/penstock-dhcp/lease.{interface}")
}

/// Where the process id of the client of this interface stands, as it is inside.
pub fn pid_file(interface: &str) -> String {
    format!("/run/penstock-dhcp/pid.{interface}")
}

/// What the client of this interface has said: a file inside.
pub fn log_file(interface: &str) -> String {
    format!("/run/penstock-dhcp/log.{interface}")
}

/// The clients that are known, in the order in which they are looked for, and what may be one of them.
pub const CLIENTS: [&str; 4] = ["udhcpc", "dhcpcd", "dhclient", "busybox"];

/// No more than this of a file inside is read: each is one line.
const LIMIT: usize = 4096;

/// So much is read of a command line: that of the shell that is about to become the client has all that it runs.
const COMMAND_LINE: usize = 64 << 10;

/// The lease of an interface as it is noted, of what reads files inside.
pub fn noted(read: impl Fn(&str, usize) -> Option<Vec<u8>>, interface: &str) -> Option<DhcpLease> {
    DhcpLease::read(&String::from_utf8_lossy(&read(&lease_file(interface), LIMIT)?))
}

/// Whether the client of an interface runs. A process that has ended has no command line, also where nobody has waited for it.
pub fn client_runs(read: impl Fn(&str, usize) -> Option<Vec<u8>>, interface: &str) -> bool {
    let pid = read(&pid_file(interface), LIMIT).unwrap_or_default();
    let Ok(pid) = String::from_utf8_lossy(&pid).trim().parse::<u32>() else { return false };
    let line = read(&format!("/proc/{pid}/cmdline"), COMMAND_LINE).unwrap_or_default();
    let line = String::from_utf8_lossy(&line);
    CLIENTS.iter().any(|client| line.contains(client))
}

/// A lease as it is noted. Whoever is root inside may have written it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DhcpLease {
    /// The program that asks for it.
    pub client: &'static str,
    /// The address with its network.
    pub address: InterfaceAddress,
    /// The router of its default route, also where the kernel has refused it; none where the answer had none that could be used.
    pub router: Option<Ipv4Addr>,
}

impl DhcpLease {
    /// Reads the first line that begins with `lease`; `None` where it makes no sense.
    pub fn read(text: &str) -> Option<DhcpLease> {
        let words = text.lines().find_map(|line| line.strip_prefix("lease "))?;
        let words: Vec<&str> = words.split(' ').collect();
        let &[client, address, router] = &words[..] else { return None };
        let client = CLIENTS.into_iter().find(|name| *name == client)?;
        let (ip, length) = address.split_once('/')?;
        // A root may have noted a mask.
        let length = match length.parse::<Ipv4Addr>() {
            Ok(mask) => {
                let mask = u32::from(mask);
                (mask.leading_ones() == mask.count_ones()).then_some(u8::try_from(mask.count_ones()).ok()?)?
            }
            Err(_) => length.parse().ok()?,
        };
        let ip: Ipv4Addr = ip.parse().ok()?;
        let router = match router {
            "none" => None,
            router => Some(router.parse().ok()?),
        };
        Some(DhcpLease { client, address: InterfaceAddress::new(ip.into(), length)?, router })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_has_ended_does_not_run() {
        let runs = |pid: &str, line: &[u8]| {
            let read = |path: &str, _: usize| match path {
                "/run/penstock-dhcp/pid.eth0" => Some(pid.as_bytes().to_vec()),
                "/proc/77/cmdline" => Some(line.to_vec()),
                _ => None,
            };
            client_runs(read, "eth0")
        };
        assert!(runs("77\n", b"busybox\0udhcpc\0-f\0"));
        assert!(runs("77\n", b"dhcpcd: eth0 [ip4]\0"));
        // A zombie, another with its number, one that is gone, and what is no number.
        assert!(!runs("77\n", b"") && !runs("77\n", b"sleep\0") && !runs("78\n", b"udhcpc"));
        assert!(!runs("", b"udhcpc") && !runs("../77", b"udhcpc"));
    }

    #[test]
    fn leases_are_read() {
        let lease = |text: &str| DhcpLease::read(text);
        let first = lease("lease udhcpc 192.0.2.57/24 192.0.2.1\n").unwrap();
        assert_eq!((first.client, first.address.to_string().as_str()), ("udhcpc", "192.0.2.57/24"));
        assert_eq!(first.router, Some(Ipv4Addr::new(192, 0, 2, 1)));
        let masked = lease("noise\nlease dhclient 192.0.2.57/255.255.255.0 none\n").unwrap();
        assert_eq!((masked.address, masked.router), (first.address, None));
        for text in [
            "",
            "lease",
            "lease sh 192.0.2.57/24 none",
            "lease udhcpc 192.0.2.57 none",
            "lease udhcpc 192.0.2.57/33 none",
            "lease dhclient 192.0.2.57/255.0.255.0 none",
            "lease udhcpc 192.0.2.57/24 \u{1b}[2J",
            "lease udhcpc fd00::1/64 none",
            "lease udhcpc 192.0.2.57/24 192.0.2.1 more",
        ] {
            assert_eq!(lease(text), None, "{text:?}");
        }
        assert_eq!((metric(0), metric(1)), (1024, 1025));
    }
}
