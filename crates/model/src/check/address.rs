//! Interface names and IP addresses.

use std::{collections::HashMap, net::IpAddr};

use indexmap::IndexMap;

use super::{Owned, Subject};
use crate::{
    GuestName, InterfaceAddress, InterfaceName, Model, NicName, VlanId,
    diagnostic::{Diagnostic, Path},
};

pub(super) fn check(subject: &mut Subject<'_>) {
    check_names(subject);
    check_addresses(subject);
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
    nic: &'a NicName,
    vlan: VlanId,
    guest: Option<&'a GuestName>,
}

impl Use<'_> {
    fn who(&self) -> &str {
        self.guest.map_or("the host", GuestName::as_str)
    }
}

fn check_addresses(subject: &mut Subject<'_>) {
    let segments = segments(subject.model);
    let host = subject.host.iter().flat_map(|host| {
        host.addresses.iter().map(|(address, path)| Use {
            address: *address,
            path,
            nic: &host.nic,
            vlan: VlanId::default(),
            guest: None,
        })
    });
    let guests = subject.owned.iter().flat_map(|owned| {
        owned.addresses.iter().map(|(address, path)| Use {
            address: *address,
            path,
            nic: &owned.function.name.nic,
            vlan: owned.function.settings.vlan.unwrap_or_default(),
            guest: Some(&owned.guest),
        })
    });
    let uses: Vec<Use<'_>> = host.chain(guests).collect();
    let mut in_place: HashMap<(IpAddr, Option<&GuestName>), &Use<'_>> = HashMap::new();
    let mut on_segment: HashMap<(IpAddr, Option<usize>, VlanId), &Use<'_>> = HashMap::new();
    let mut on_vlan: HashMap<(IpAddr, VlanId), &Use<'_>> = HashMap::new();
    for used in &uses {
        if let Some((why, hint)) = unusable(used.address) {
            subject.messages.push(
                Diagnostic::error(used.path.clone(), format!("{} {why}", used.address)).with_hint(hint),
            );
            continue;
        }
        let ip = used.address.ip();
        let segment = segments.get(used.nic).copied();
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
        } else if let Some(other) = on_vlan.get(&(ip, used.vlan)) {
            subject.messages.push(
                Diagnostic::warning(
                    used.path.clone(),
                    format!(
                        "{} and {} have the address {ip}; that is good only while {} and {} are not on one network",
                        other.who(),
                        used.who(),
                        other.nic,
                        used.nic
                    ),
                )
                .with_related(other.path.clone(), "first given here"),
            );
        }
        in_place.entry((ip, used.guest)).or_insert(used);
        on_segment.entry((ip, segment, used.vlan)).or_insert(used);
        on_vlan.entry((ip, used.vlan)).or_insert(used);
    }
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
