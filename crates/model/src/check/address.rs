//! Interface names and IP addresses.

use std::{collections::HashMap, fmt, net::IpAddr};

use indexmap::IndexMap;

use super::{Owned, Subject, container_nic::WrittenAddress};
use crate::{
    GuestKind, GuestName, InterfaceAddress, InterfaceName, Model, Mtu, NicName, Uplink, VlanId,
    diagnostic::{Diagnostic, Path},
};

/// The least MTU of a link with IPv6 (RFC 8200, section 5): with less, the kernel takes all its addresses from an interface.
const LEAST_MTU_OF_IPV6: u32 = 1280;

/// Interfaces' names, and addresses: `of_nics` are those of NICs that containers own.
pub(super) fn check(of_nics: &[WrittenAddress], subject: &mut Subject<'_>) {
    check_names(subject);
    check_addresses(of_nics, subject);
    for (name, nic) in &subject.model.nics {
        check_mtu(nic.mtu, &nic.addresses, &Path::of(["nics", name.as_str()]), subject.messages);
    }
    for owned in subject.owned {
        check_mtu(owned.function.mtu, &owned.function.addresses, &owned.path, subject.messages);
    }
}

/// Why no interface inside a container can be called so: what holds `ingress_rate` is (`penstock-guests`, `rates`).
pub(super) fn taken_name(name: &str) -> Option<String> {
    let position = name.strip_prefix("penstock-in")?;
    let taken = !position.is_empty() && position.bytes().all(|byte| byte.is_ascii_digit());
    taken.then(|| format!("{name} is what an interface inside is called that holds an `ingress_rate`"))
}

/// An MTU with which the kernel gives an interface no address of IPv6. Both stand at `path`.
pub(super) fn check_mtu(
    mtu: Option<Mtu>,
    addresses: &[InterfaceAddress],
    path: &Path,
    messages: &mut Vec<Diagnostic>,
) {
    let Some(mtu) = mtu.filter(|mtu| mtu.get() < LEAST_MTU_OF_IPV6) else { return };
    let Some(address) = addresses.iter().find(|address| address.ip().is_ipv6()) else { return };
    let text = format!(
        "with an MTU of {mtu} the interface cannot have {address}: IPv6 takes at least {LEAST_MTU_OF_IPV6}"
    );
    let hint = format!("write {LEAST_MTU_OF_IPV6} or more, or addresses of IPv4 alone");
    messages.push(Diagnostic::error(path.join("mtu"), text).with_hint(hint));
}

fn check_names(subject: &mut Subject<'_>) {
    let mut first: HashMap<(&GuestName, &InterfaceName), &Owned> = HashMap::new();
    for owned in subject.owned {
        let name = &owned.function.interface;
        if name.as_str() == "lo" {
            subject.messages.push(
                Diagnostic::error(owned.path.join("interface"), "every guest has an interface `lo` already")
                    .with_hint("choose another name"),
            );
        }
        let taken = taken_name(name.as_str()).filter(|_| owned.kind == GuestKind::Container);
        subject.messages.extend(taken.map(|why| {
            Diagnostic::error(owned.path.join("interface"), why).with_hint("choose another name")
        }));
        let Some(other) = first.get(&(&owned.guest, name)) else {
            first.insert((&owned.guest, name), owned);
            continue;
        };
        // The name that a hand wrote is the one to change.
        let (wrong, right) = if owned.named { (owned, *other) } else { (*other, owned) };
        let default = if right.named { "" } else { ", by its position" };
        subject.messages.push(
            Diagnostic::error(
                wrong.path.join("interface"),
                format!(
                    "{} has two interfaces called {name}: {} is called so too{default}",
                    owned.guest, right.function.name
                ),
            )
            .with_related(right.path.join("interface"), "the other one")
            .with_hint("names are `eth` and the position in the list, from eth0, unless given"),
        );
    }
    // The kernel would refuse the name on the host for the same reason.
    for (nic, wanted) in &subject.model.nics {
        if wanted.interface.as_ref().is_some_and(|name| name.as_str() == "lo") {
            subject.messages.push(
                Diagnostic::error(
                    Path::of(["nics", nic.as_str(), "interface"]),
                    "the host has an interface `lo` already",
                )
                .with_hint("choose another name"),
            );
        }
    }
}

/// An address and who has it.
struct Use<'a> {
    address: InterfaceAddress,
    path: &'a Path,
    network: Network<'a>,
    vlan: VlanId,
    guest: Option<&'a GuestName>,
}

/// What those with one have reach each other by, VLANs aside.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Network<'a> {
    /// A NIC, and those that cables join with it.
    Nic(&'a NicName),
    /// A bridge of the host.
    Bridge(&'a Uplink),
}

impl fmt::Display for Network<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Network::Nic(nic) => nic.fmt(f),
            Network::Bridge(bridge) => bridge.fmt(f),
        }
    }
}

impl Use<'_> {
    fn who(&self) -> &str {
        self.guest.map_or("the host", GuestName::as_str)
    }
}

fn check_addresses(of_nics: &[WrittenAddress], subject: &mut Subject<'_>) {
    let model = subject.model;
    let segments = segments(model);
    let host = subject.host.iter().flat_map(|host| {
        host.addresses.iter().map(|(address, path)| Use {
            address: *address,
            path,
            network: Network::Nic(&host.nic),
            vlan: VlanId::default(),
            guest: None,
        })
    });
    let guests = subject.owned.iter().flat_map(|owned| {
        owned.addresses.iter().map(|(address, path)| Use {
            address: *address,
            path,
            network: Network::Nic(&owned.function.name.nic),
            vlan: owned.function.settings.vlan.unwrap_or_default(),
            guest: Some(&owned.guest),
        })
    });
    let of_nics = of_nics.iter().filter_map(|written| {
        let nic = model.guests.get(&written.guest)?.nics.get(&written.nic)?;
        Some(Use {
            address: written.address,
            path: &written.path,
            // One without a bridge has been reported.
            network: Network::Bridge(nic.uplink.as_ref()?),
            vlan: nic.settings.vlan.unwrap_or_default(),
            guest: Some(&written.guest),
        })
    });
    let uses: Vec<Use<'_>> = host.chain(guests).chain(of_nics).collect();
    let mut in_place: HashMap<(IpAddr, Option<&GuestName>), &Use<'_>> = HashMap::new();
    let mut on_segment: HashMap<(IpAddr, Segment<'_>, VlanId), &Use<'_>> = HashMap::new();
    // At bridges, and not: two bridges of the host are two networks, unless something outside joins them.
    let mut on_vlan: HashMap<(IpAddr, VlanId, bool), &Use<'_>> = HashMap::new();
    for used in &uses {
        if let Some((why, hint)) = unusable(used.address) {
            subject.messages.push(
                Diagnostic::error(used.path.clone(), format!("{} {why}", used.address)).with_hint(hint),
            );
            continue;
        }
        let ip = used.address.ip();
        let at_bridge = matches!(used.network, Network::Bridge(_));
        let at_nic = on_vlan.get(&(ip, used.vlan, false));
        let elsewhere = at_nic.or_else(|| on_vlan.get(&(ip, used.vlan, true)).filter(|_| !at_bridge));
        let segment = match used.network {
            Network::Nic(nic) => {
                segments.get(nic).map_or(Segment::Other(used.network), |at| Segment::Cables(*at))
            }
            Network::Bridge(_) => Segment::Other(used.network),
        };
        if let Some(other) = in_place.get(&(ip, used.guest)) {
            subject.messages.push(
                Diagnostic::error(used.path.clone(), format!("{} has the address {ip} twice", used.who()))
                    .with_related(other.path.clone(), "first given here"),
            );
        } else if let Some(other) = on_segment.get(&(ip, segment, used.vlan)) {
            subject.messages.push(
                Diagnostic::error(
                    used.path.clone(),
                    format!("{} and {} have the address {ip} on the same network", other.who(), used.who()),
                )
                .with_related(other.path.clone(), "first given here")
                .with_hint("give one of them another address, or another `vlan`"),
            );
        } else if let Some(other) = elsewhere {
            subject.messages.push(
                Diagnostic::warning(
                    used.path.clone(),
                    format!(
                        "{} and {} have the address {ip}; that is good only while {} and {} are not on one network",
                        other.who(),
                        used.who(),
                        other.network,
                        used.network
                    ),
                )
                .with_related(other.path.clone(), "first given here"),
            );
        }
        in_place.entry((ip, used.guest)).or_insert(used);
        on_segment.entry((ip, segment, used.vlan)).or_insert(used);
        on_vlan.entry((ip, used.vlan, at_bridge)).or_insert(used);
    }
}

/// What shares a network for certain.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Segment<'a> {
    /// The NICs with this number.
    Cables(usize),
    /// Nobody else.
    Other(Network<'a>),
}

/// NICs that share a network for certain have the same number: those that cables join.
fn segments(model: &Model) -> IndexMap<&NicName, usize> {
    // Each NIC points to another of its network, or to itself.
    let mut towards: Vec<usize> = (0..model.nics.len()).collect();
    fn end(towards: &mut [usize], mut at: usize) -> usize {
        while towards[at] != at {
            towards[at] = towards[towards[at]];
            at = towards[at];
        }
        at
    }
    for [a, b] in &model.board.cables {
        if let (Some(a), Some(b)) = (model.nics.get_index_of(a), model.nics.get_index_of(b)) {
            let (a, b) = (end(&mut towards, a), end(&mut towards, b));
            towards[a] = b;
        }
    }
    let numbers: Vec<usize> = (0..towards.len()).map(|nic| end(&mut towards, nic)).collect();
    model.nics.keys().zip(numbers).collect()
}

/// Why no interface can have this address, and what to write instead.
fn unusable(address: InterfaceAddress) -> Option<(&'static str, &'static str)> {
    let ip = address.ip();
    let host = "give the address of one interface, with the length of its network";
    if ip.is_unspecified() || ip.is_multicast() {
        return Some(("is no address of an interface", host));
    }
    if ip.is_loopback() {
        return Some(("is a loopback address, which only `lo` has", host));
    }
    match ip {
        IpAddr::V4(ip) => {
            let hosts = u32::MAX.checked_shr(u32::from(address.prefix())).unwrap_or(0);
            let bits = u32::from(ip) & hosts;
            if address.prefix() == 0 {
                Some(("puts every address there is into its network", host))
            } else if address.prefix() > 30 {
                None
            } else if bits == 0 {
                Some(("is the address of the network itself", host))
            } else if bits == hosts {
                Some(("is the broadcast address of its network", host))
            } else {
                None
            }
        }
        IpAddr::V6(_) => {
            (address.prefix() == 0).then_some(("puts every address there is into its network", host))
        }
    }
}
