//! The namespace of a container.

use std::{
    net::IpAddr,
    path::Path,
    time::{Duration, Instant},
};

use penstock_host::{
    InterfaceReport, Netlink, NetlinkError, NetworkNamespace, Root, files,
    frames::{self, Endpoint},
};
use penstock_model::InterfaceName;

use crate::{
    document::{Attached, CniError},
    journal::Record,
};

/// How long an ADD waits for a link before it gives announcements up.
const LINK: Duration = Duration::from_millis(200);

/// A container's namespace, and a socket in it.
#[derive(Debug)]
pub struct Container {
    pub namespace: NetworkNamespace,
    pub netlink: Netlink,
}

impl Container {
    /// Opens the namespace whose file `netns` is, and a netlink socket in it.
    pub fn open(netns: &Path) -> Result<Container, CniError> {
        let namespace = NetworkNamespace::open(netns)?;
        let netlink = namespace.netlink()?;
        Ok(Container { namespace, netlink })
    }

    /// The namespace of a record, if it still lives under the name that it had.
    pub fn of(record: &Record) -> Option<Container> {
        let container = Container::open(Path::new(record.netns.as_deref()?)).ok()?;
        (container.namespace.identity().ok()? == record.namespace?).then_some(container)
    }

    /// The interface of a record's VF in here, whatever it is called now. Where the kernel does not tell the device of an
    /// interface, it is the one of the name and of the kind that was moved here.
    pub fn interface_of(
        &mut self,
        root: &Root,
        record: &Record,
    ) -> Result<Option<InterfaceReport>, CniError> {
        let links = self.netlink.links()?;
        if let Some(found) = penstock_host::interface_of(record.function, &links, root) {
            return Ok(Some(found));
        }
        let Some(before) = &record.before.interface else { return Ok(None) };
        let moved = |report: &&InterfaceReport| {
            let name = &report.interface.name;
            report.device.is_none()
                && report.kind == before.kind
                && (*name == record.interface || *name == before.name)
        };
        Ok(links.iter().find(moved).cloned())
    }

    /// Whether something in here has the name.
    pub fn has(&mut self, name: &InterfaceName) -> Result<bool, CniError> {
        Ok(self.netlink.link_named(name)?.is_some())
    }

    /// Brings the interface up and gives it the addresses and routes of a result.
    pub fn configure(
        &mut self,
        index: u32,
        name: &InterfaceName,
        place: usize,
        attached: &Attached,
    ) -> Result<(), CniError> {
        if attached.addresses_of(place).any(|address| address.address.ip().is_ipv6()) {
            // Runtimes turn IPv6 off in a new namespace until somebody has an address of it.
            let path = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
            let write = || match files::exists(&path) {
                true => files::write_attribute(&path, "0"),
                false => Ok(()),
            };
            self.namespace.within(write)??;
        }
        for address in attached.addresses_of(place) {
            self.netlink.add_address(index, address.address)?;
        }
        for route in attached.kernel_routes() {
            self.netlink.add_route(index, &route)?;
        }
        Ok(())
    }

    /// Tells the neighbours of the addresses that the interface has by a result: an address may have been another
    /// container's a moment ago, and be at its MAC address in their tables. Without a link within [`LINK`] nobody would hear it.
    ///
    /// # Errors
    ///
    /// Why it was not told. The container has its addresses all the same.
    pub fn announce(
        &mut self,
        index: u32,
        name: &InterfaceName,
        place: usize,
        attached: &Attached,
    ) -> Result<(), String> {
        let addresses: Vec<IpAddr> =
            attached.addresses_of(place).map(|address| address.address.ip()).collect();
        if addresses.is_empty() {
            return Ok(());
        }
        let linked = |reports: &[InterfaceReport]| {
            let report = reports.iter().find(|report| report.index == index)?;
            (report.interface.carrier == Some(true)).then_some(report.interface.mac)
        };
        let attempt = format!("see the link of {name}");
        let mac =
            self.netlink.wait_for(&attempt, Instant::now() + LINK, linked).map_err(|error| match error {
                NetlinkError::TimedOut { .. } => format!("{name} has no link after {} ms", LINK.as_millis()),
                error => penstock_host::chain(&error),
            })?;
        let endpoint = Endpoint { label: name.to_string(), namespace: None, interface: index, mac };
        let told = self.namespace.within(|| frames::announce(&endpoint, &addresses));
        told.map_err(|error| penstock_host::chain(&error))?.map_err(|error| penstock_host::chain(&error))
    }
}
