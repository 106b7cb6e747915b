//! The ways that packets take: from netlink, or from `/proc/net` for a tree that was recorded.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use penstock_model::inventory::{Family, LifelineKind, LifelineSort, Lifelines};

use super::{Cannot, Routes};
use crate::{chain, netlink::Route, scan::reader::Reader};

const CLASS: &str = "/sys/class/net";
/// `RT_TABLE_MAIN`, the only one that `/proc/net/route` shows.
const MAIN: u32 = 254;
/// `RTF_UP` and `RTF_REJECT` (`include/uapi/linux/route.h`).
const UP: u32 = 1;
const REJECT: u32 = 0x200;

/// A route as `/proc/net` has it.
struct Recorded {
    to: IpAddr,
    prefix: u8,
    metric: u32,
    interface: String,
}

/// An interface by its name, or by its index when that has no name here.
pub(super) type Found = Result<String, u32>;

/// Asks for ways.
pub(super) struct Ways<'a> {
    netlink: Option<&'a mut dyn Routes>,
    /// Names by index.
    names: BTreeMap<u32, String>,
    /// The addresses of this machine with the indices of their interfaces, once they were asked for.
    addresses: Option<Result<Vec<(u32, IpAddr)>, String>>,
    recorded: Option<Vec<Recorded>>,
}

impl<'a> Ways<'a> {
    pub fn new(netlink: Option<&'a mut dyn Routes>, reader: &mut Reader<'_>) -> Ways<'a> {
        let mut names = BTreeMap::new();
        for name in reader.list(CLASS) {
            if let Some(index) = reader.value(&format!("{CLASS}/{name}/ifindex"), "index of an interface") {
                names.insert(index, name);
            }
        }
        let recorded = if netlink.is_none() { recorded(reader) } else { None };
        Ways { netlink, names, addresses: None, recorded }
    }

    /// Each default route with the interfaces that it leads over.
    pub fn defaults(&mut self, found: &mut Lifelines) -> Vec<(LifelineKind, Vec<Found>)> {
        let sort = LifelineSort::DefaultRoute;
        let Some(netlink) = &mut self.netlink else {
            let Some(recorded) = &self.recorded else {
                found.cannot(sort, "netlink was not asked, and /proc/net/route could not be read");
                return Vec::new();
            };
            found.cannot(
                sort,
                "netlink was not asked: routes of other tables than the main one are not known",
            );
            let defaults = recorded.iter().filter(|route| route.prefix <= 1);
            return defaults
                .map(|route| {
                    let family = if route.to.is_ipv4() { Family::V4 } else { Family::V6 };
                    let kind = LifelineKind::DefaultRoute { family, table: MAIN };
                    (kind, vec![Ok(route.interface.clone())])
                })
                .collect();
        };
        let routes = netlink.defaults().unwrap_or_else(|error| {
            found.cannot(sort, format!("netlink did not list the routes: {}", chain(&*error)));
            Vec::new()
        });
        routes
            .into_iter()
            .map(|Route { family, table, interfaces, .. }| {
                let kind = LifelineKind::DefaultRoute { family, table };
                if interfaces.is_empty() {
                    found.cannot(sort, format!("{kind} names no interface"));
                }
                let named = |index| self.names.get(&index).cloned().ok_or(index);
                (kind, interfaces.into_iter().map(named).collect())
            })
            .collect()
    }

    /// The interface over which packets go to `peer`, by the routes of the VRF `over` where one is given; `Ok(None)` where no route leads
    /// there, as in a recorded tree whose table is empty.
    ///
    /// # Errors
    ///
    /// In words: the kernel could not be asked, or the interface has no name here; where nobody is asked, that no recorded table of routes
    /// could be read.
    pub fn towards(
        &mut self,
        peer: IpAddr,
        from: Option<IpAddr>,
        over: Option<u32>,
    ) -> Result<Option<String>, String> {
        if let Some(netlink) = &mut self.netlink {
            let mut answer = netlink.towards(peer, from, over).map_err(|error| chain(&*error))?;
            if answer.is_none() && from.is_some() {
                answer = netlink.towards(peer, None, over).map_err(|error| chain(&*error))?;
            }
            let Some(index) = answer else { return Ok(None) };
            let name = self.names.get(&index).cloned();
            return name
                .map(Some)
                .ok_or_else(|| format!("it goes over interface {index}, which has no name here"));
        }
        let Some(recorded) = &self.recorded else {
            return Err("netlink was not asked, and /proc/net/route could not be read".to_owned());
        };
        let fitting = recorded.iter().filter(|route| covers(route.to, route.prefix, peer));
        let best = fitting.max_by_key(|route| (route.prefix, u32::MAX - route.metric));
        Ok(best.map(|route| route.interface.clone()))
    }

    /// The VRF that an interface is or is in: its master, and no master of that (`net/l3mdev/l3mdev.c`,
    /// `l3mdev_master_ifindex_rcu`).
    ///
    /// # Errors
    ///
    /// In words: the kernel could not be asked.
    pub fn vrf_of(&mut self, name: &str, reader: &mut Reader<'_>) -> Result<Option<u32>, String> {
        let Some(netlink) = &mut self.netlink else { return Ok(None) };
        let master = reader.link_name(&format!("{CLASS}/{name}/master"));
        for candidate in [Some(name), master.as_deref()].into_iter().flatten() {
            let index = self.names.iter().find(|(_, name)| *name == candidate).map(|(index, _)| *index);
            if let Some(index) = index
                && netlink.is_vrf(index).map_err(|error| chain(&*error))?
            {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Whether anybody can be asked who holds an address.
    pub fn knows_holders(&self) -> bool {
        self.netlink.is_some()
    }

    /// The addresses of this machine; none for a recorded tree, which does not say them.
    ///
    /// # Errors
    ///
    /// As [`Ways::holders`].
    pub fn addresses(&mut self) -> Result<BTreeSet<IpAddr>, String> {
        let all = self.held()?.unwrap_or_default();
        Ok(all.iter().map(|(_, address)| *address).collect())
    }

    /// The interfaces that hold an address; `Ok(None)` for a recorded tree, which does not say it.
    ///
    /// # Errors
    ///
    /// In words: the kernel could not be asked for the addresses.
    pub fn holders(&mut self, address: IpAddr) -> Result<Option<Vec<Found>>, String> {
        let Some(all) = self.held()? else { return Ok(None) };
        let holders: Vec<u32> =
            all.iter().filter(|(_, held)| *held == address).map(|(index, _)| *index).collect();
        let named = |index: u32| self.names.get(&index).cloned().ok_or(index);
        Ok(Some(holders.into_iter().map(named).collect()))
    }

    fn held(&mut self) -> Result<Option<&[(u32, IpAddr)]>, String> {
        let Some(netlink) = &mut self.netlink else { return Ok(None) };
        let all = self
            .addresses
            .get_or_insert_with(|| netlink.addresses().map_err(|error| chain(&*error)))
            .as_ref()
            .map_err(Clone::clone)?;
        Ok(Some(all))
    }
}

fn covers(network: IpAddr, prefix: u8, address: IpAddr) -> bool {
    let same = |differing: u128, bits: u32| {
        let left = bits.saturating_sub(u32::from(prefix));
        left >= 128 || differing >> left == 0
    };
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            same(u128::from(network.to_bits() ^ address.to_bits()), 32)
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => same(network.to_bits() ^ address.to_bits(), 128),
        _ => false,
    }
}

/// Both tables; `None` when neither is there.
fn recorded(reader: &mut Reader<'_>) -> Option<Vec<Recorded>> {
    let (four, six) = (reader.large_text("/proc/net/route"), reader.large_text("/proc/net/ipv6_route"));
    if four.is_none() && six.is_none() {
        return None;
    }
    let mut found: Vec<Recorded> =
        four.iter().flat_map(|text| text.lines().skip(1)).filter_map(of_ipv4).collect();
    found.extend(six.iter().flat_map(|text| text.lines()).filter_map(of_ipv6));
    Some(found)
}

/// `Iface Destination Gateway Flags RefCnt Use Metric Mask ...`, addresses in the machine's byte order
/// (`net/ipv4/fib_trie.c`, `fib_route_seq_show`).
fn of_ipv4(line: &str) -> Option<Recorded> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let hexadecimal = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok();
    let flags = hexadecimal(3)?;
    (flags & UP != 0 && flags & REJECT == 0).then_some(())?;
    Some(Recorded {
        to: Ipv4Addr::from(hexadecimal(1)?.to_ne_bytes()).into(),
        prefix: u32::from_be_bytes(hexadecimal(7)?.to_ne_bytes()).leading_ones() as u8,
        metric: fields.get(6)?.parse().ok()?,
        interface: (*fields.first()?).to_owned(),
    })
}

/// `destination length source length next-hop metric references use flags interface` (`net/ipv6/ip6_fib.c`,
/// `ipv6_route_native_seq_show`).
fn of_ipv6(line: &str) -> Option<Recorded> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let hexadecimal = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok();
    let flags = hexadecimal(8)?;
    let interface = *fields.get(9)?;
    (flags & UP != 0 && flags & REJECT == 0 && interface != "lo").then_some(())?;
    let destination = fields.first().filter(|digits| digits.len() == 32)?;
    Some(Recorded {
        to: Ipv6Addr::from(u128::from_str_radix(destination, 16).ok()?).into(),
        prefix: u8::try_from(hexadecimal(1)?).ok()?,
        metric: hexadecimal(5)?,
        interface: interface.to_owned(),
    })
}
