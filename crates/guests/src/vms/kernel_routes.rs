//! Routes as a Linux guest's `/proc/net/route` and `/proc/net/ipv6_route` have them (`net/ipv4/fib_trie.c`, `fib_route_seq_show`;
//! `net/ipv6/ip6_fib.c`, `ipv6_route_native_seq_show`): what an agent that runs commands can be asked for in any guest. Of IPv4 they
//! have the main table alone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use penstock_model::{InterfaceAddress, InterfaceRoute};

/// Prints both tables, each behind a line that says which ([`read`]), and no more than [`MOST`] lines of either: a router's table may have a
/// million.
pub const SCRIPT: &str =
    "echo = ipv4; head -n 2000 /proc/net/route; echo = ipv6; head -n 2000 /proc/net/ipv6_route";

/// What the table of IPv4 comes behind.
pub const BEGIN: &str = "= ipv4\n";

/// Of a table with so many lines nobody knows what comes behind them.
const MOST: usize = 2000;

/// The route leads over a gateway (`RTF_GATEWAY`, `include/uapi/linux/route.h`).
const GATEWAY: u32 = 0x2;
/// What is sent there is refused (`RTF_REJECT`).
const REJECT: u32 = 0x200;
/// The guest's own address (`RTF_LOCAL`, `include/uapi/linux/ipv6_route.h`).
const LOCAL: u32 = 0x8000_0000;

/// The unicast routes of the tables that [`SCRIPT`] printed, each with the name of its interface; `None` where the guest printed none, or
/// one that goes on. A guest may write what it likes: lines that make no sense are left out.
pub fn read(text: &str) -> Option<Vec<(String, InterfaceRoute)>> {
    let (_, ipv4) = text.split_once(BEGIN)?;
    let (ipv4, ipv6) = ipv4.split_once("= ipv6\n").unwrap_or((ipv4, ""));
    if [ipv4, ipv6].iter().any(|table| table.lines().nth(MOST - 1).is_some()) {
        return None;
    }
    // The first line is there in a kernel without a route, too.
    let mut lines = ipv4.lines();
    lines.next().filter(|line| line.starts_with("Iface"))?;
    Some(lines.filter_map(of_ipv4).chain(ipv6.lines().filter_map(of_ipv6)).collect())
}

/// `eth0 00000000 0100000A 0003 0 0 100 00000000 0 0 0`: addresses are numbers of the guest's byte order, that of the host.
fn of_ipv4(line: &str) -> Option<(String, InterfaceRoute)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let &[interface, destination, gateway, flags, _, _, metric, mask, ..] = &words[..] else { return None };
    let address = |text: &str| Some(Ipv4Addr::from(u32::from_str_radix(text, 16).ok()?.to_ne_bytes()));
    let flags = u32::from_str_radix(flags, 16).ok()?;
    let mask = u32::from(address(mask)?);
    if flags & REJECT != 0 || mask.leading_ones() != mask.count_ones() {
        return None;
    }
    let destination =
        InterfaceAddress::new(IpAddr::V4(address(destination)?), u8::try_from(mask.count_ones()).ok()?)?;
    let gateway = address(gateway)?;
    let gateway = (flags & GATEWAY != 0).then_some(IpAddr::V4(gateway));
    let route = InterfaceRoute { priority: metric.parse().ok(), ..InterfaceRoute::new(destination, gateway) };
    Some((interface.to_owned(), route))
}

/// Destination, its length, source, its length, next hop, metric, two counters, flags, interface; all but the last hexadecimal.
fn of_ipv6(line: &str) -> Option<(String, InterfaceRoute)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let &[destination, length, _, _, gateway, metric, _, _, flags, interface] = &words[..] else {
        return None;
    };
    let address = |text: &str| Some(Ipv6Addr::from(u128::from_str_radix(text, 16).ok()?));
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let (to, flags) = (address(destination)?, number(flags)?);
    if flags & (REJECT | LOCAL) != 0 || to.is_multicast() || interface == "lo" {
        return None;
    }
    let destination = InterfaceAddress::new(IpAddr::V6(to), u8::from_str_radix(length, 16).ok()?)?;
    let gateway = address(gateway)?;
    let gateway = (flags & GATEWAY != 0).then_some(IpAddr::V6(gateway));
    let route = InterfaceRoute { priority: number(metric), ..InterfaceRoute::new(destination, gateway) };
    Some((interface.to_owned(), route))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a VM with Debian 13 printed them.
    const TABLES: &str = "2 lines before\n= ipv4\n\
        Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT                                                       \n\
        eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0                                                                               \n\
        eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0                                                                               \n\
        eth1\t006433C6\tFE0200C0\t0003\t0\t0\t200\t00FFFFFF\t0\t0\t0                                                                             \n\
        = ipv6\n\
        20010db8000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0\n\
        00000000000000000000000000000000 00 00000000000000000000000000000000 00 20010db8000000000000000000000001 00000400 00000001 00000000 00000003     eth0\n\
        20010db8000000000000000000000007 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 00000002 00000000 80200001     eth0\n\
        ff000000000000000000000000000000 08 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000002 00000000 00000001     eth0\n\
        00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n";

    #[test]
    fn tables_of_a_guest_are_read() {
        let routes = read(TABLES).unwrap();
        let texts: Vec<String> = routes
            .iter()
            .map(|(interface, route)| format!("{interface} {route} {}", route.priority.unwrap_or_default()))
            .collect();
        assert_eq!(
            texts,
            [
                "eth0 default via 192.0.2.1 0",
                "eth0 192.0.2.0/24 0",
                "eth1 198.51.100.0/24 via 192.0.2.254 200",
                "eth0 2001:db8::/64 256",
                "eth0 default via 2001:db8::1 1024",
            ]
        );
    }

    #[test]
    fn a_guest_that_prints_no_table_is_no_guest_without_routes() {
        for text in [
            "",
            "eth0 2 1500\n",
            "= ipv4\n",
            "= ipv4\n= ipv6\n",
            "= ipv4\ncat: /proc/net/route: No such file\n",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
        assert_eq!(read("= ipv4\nIface\tDestination\n= ipv6\n"), Some(vec![]));
        assert!(SCRIPT.matches(&format!("head -n {MOST} ")).count() == 2, "{SCRIPT}");
        let long = "eth0 00000000 010200C0 0003 0 0 7 00000000 0 0 0\n".repeat(MOST);
        assert_eq!(read(&format!("= ipv4\nIface\n{long}= ipv6\n")), None, "what was cut is not told");
    }

    #[test]
    fn what_makes_no_sense_is_left_out() {
        for line in [
            "eth0 0 0 0003 0 0 0 FF00FF00",
            "eth0 x 0 0003 0 0 0 0",
            "eth0",
            "eth0 00000000 00000000 0201 0 0 0 00000000 0 0 0",
            "eth0 100000000 0 1 0 0 0 0",
        ] {
            let text = format!("= ipv4\nIface\n{line}\n= ipv6\n{line}\n0 81 0 0 0 0 0 0 1 eth0\n");
            assert_eq!(read(&text), Some(vec![]), "{line:?}");
        }
    }
}
