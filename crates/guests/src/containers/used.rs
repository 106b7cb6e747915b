//! Whether the host uses an interface that has come back from a container.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
};

use penstock_host::{InterfaceReport, Netlink, NetlinkError, NetworkNamespace, netlink::lowers_of_others};
use penstock_model::{Bdf, address::is_link_local};

use super::interfaces::Recognise;

/// Who makes routes that come by themselves, the kernel and router advertisements: `RTPROT_KERNEL`, `RTPROT_RA`
/// (`include/uapi/linux/rtnetlink.h`).
const BY_THEMSELVES: [u8; 2] = [2, 9];

/// Which use by the host keeps an interface from being taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unless {
    /// None: its container was ended just now, or is about to be started.
    Never,
    /// Something stands on it, or a lifeline of the host goes over it: a Penstock was starting or ending its container, some time ago, and has
    /// not seen that through. Addresses and routes may be what a network manager gave it meanwhile.
    StoodOn,
    /// Any: its container ended by itself, some time ago.
    Used,
}

/// What shows of the whole machine that its interfaces are used, looked for once, and only when it is asked for.
pub struct Uses<'a> {
    by: &'a dyn Recognise,
    lifelines: OnceCell<BTreeMap<Bdf, Vec<String>>>,
    others: OnceCell<BTreeSet<u32>>,
}

impl<'a> Uses<'a> {
    /// Of functions that are recognised so.
    pub fn of(by: &'a dyn Recognise) -> Uses<'a> {
        Uses { by, lifelines: OnceCell::new(), others: OnceCell::new() }
    }

    /// What shows that the interface `found` of `function` is not to be taken back, in words; empty when nothing does.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when interfaces, addresses or routes cannot be listed.
    pub fn signs(
        &self,
        netlink: &mut Netlink,
        function: Bdf,
        found: &InterfaceReport,
        unless: Unless,
    ) -> Result<Vec<String>, NetlinkError> {
        if unless == Unless::Never {
            return Ok(Vec::new());
        }
        let mut signs = stood_on(netlink, found)?;
        if self.others().contains(&found.index) {
            signs.push("an interface of another network namespace stands on it".to_owned());
        }
        if unless == Unless::Used {
            signs.extend(configured(netlink, found)?);
        }
        // An SSH connection may do with a link-local address.
        if signs.is_empty() {
            let lifelines = self.lifelines.get_or_init(|| self.by.lifelines());
            signs.extend(lifelines.get(&function).into_iter().flatten().cloned());
        }
        Ok(signs)
    }

    /// The interfaces that something in another network namespace stands on. Whatever cannot be looked into shows nothing.
    fn others(&self) -> &BTreeSet<u32> {
        self.others.get_or_init(|| {
            let others = NetworkNamespace::current().and_then(|home| lowers_of_others(&home));
            others.unwrap_or_default()
        })
    }
}

/// What stands on an interface or listens to all of it, in words; empty when nothing does.
fn stood_on(netlink: &mut Netlink, found: &InterfaceReport) -> Result<Vec<String>, NetlinkError> {
    let mut signs = Vec::new();
    let all = netlink.links()?;
    if let Some(master) = found.master {
        let name = all.iter().find(|other| other.index == master).map(|other| &other.interface.name);
        signs.push(format!("it is a port of {}", name.map_or("another", |name| name.as_str())));
    }
    let stands =
        |other: &&InterfaceReport| other.lower.as_ref().is_some_and(|lower| lower.index == found.index);
    signs.extend(all.iter().filter(stands).map(|upper| format!("{} stands on it", upper.interface.name)));
    // An embedded switch whose uplink it is. What was set by hand may be its container's.
    if found.promiscuous == Some(true) && !netlink.link_settings(found.index)?.promiscuous {
        signs.push("a program takes all its frames".to_owned());
    }
    Ok(signs)
}

/// The addresses and routes that show that the host uses an interface, in words; empty when none does.
///
/// That it is up shows nothing, nor what comes of that alone: udev and network managers bring up whatever appears, and then it has link-local
/// addresses, and addresses and routes of router advertisements and of the kernel's.
fn configured(netlink: &mut Netlink, found: &InterfaceReport) -> Result<Vec<String>, NetlinkError> {
    let mut addresses = netlink.configured_addresses(found.index)?;
    addresses.retain(|address| !is_link_local(address.ip()));
    let mut signs: Vec<String> =
        addresses.iter().map(|address| format!("it has the address {address}")).collect();
    let mut routes = netlink.routes_over(found.index)?;
    routes.retain(|route| {
        let by_itself = route.protocol.is_some_and(|by| BY_THEMSELVES.contains(&by));
        !by_itself && !is_link_local(route.destination.ip())
    });
    signs.extend(routes.iter().map(|route| format!("the route {route} goes over it")));
    Ok(signs)
}
