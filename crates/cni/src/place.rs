//! The namespace of a container.

use std::{
    net::IpAddr,
    path::Path,
    time::{Duration, Instant},
};

use penstock_host::{
    InterfaceReport, Netlink, NetlinkError, NetworkNamespace, Root,
    files::{self, FileError},
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
    /// It was found by a process in it alone. The numbers of namespaces are used again: it may be another's that has the same.
    only_inhabited: bool,
}

/// The namespace whose file is `path`, if it is the one with this identity; `None` where there is no file, or that of another.
fn with_identity(path: &Path, identity: (u64, u64)) -> Result<Option<NetworkNamespace>, FileError> {
    match NetworkNamespace::open(path) {
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error),
        Ok(namespace) => Ok((namespace.identity()? == identity).then_some(namespace)),
    }
}

impl Container {
    /// Opens the namespace whose file `netns` is, and a netlink socket in it.
    ///
    /// # Errors
    ///
    /// When `netns` is no network namespace, or there is no netlink socket in it.
    pub fn open(netns: &Path) -> Result<Container, CniError> {
        let namespace = NetworkNamespace::open(netns)?;
        let netlink = namespace.netlink()?;
        Ok(Container { namespace, netlink, only_inhabited: false })
    }

    /// The namespace of a record, if it still lives: under the file that it had, under `other`, by which the runtime may know it now, or
    /// because a process is in it.
    ///
    /// # Errors
    ///
    /// [`CniError::TRY_AGAIN`] when that could not be found out: then nobody may say that it is gone.
    pub fn of(record: &Record, other: Option<&Path>) -> Result<Option<Container>, CniError> {
        let (Some(netns), Some(identity)) = (record.netns.as_deref(), record.namespace) else {
            return Ok(None);
        };
        let unknown = |error: CniError| {
            let text =
                format!("whether container {} still lives is not known: {}", record.container, error.text);
            CniError { code: CniError::TRY_AGAIN, text, ..error }
        };
        let found = || {
            for path in [Some(Path::new(netns)), other].into_iter().flatten() {
                if let Some(namespace) = with_identity(path, identity)? {
                    return Ok(Some((namespace, false)));
                }
            }
            let Some(process) = NetworkNamespace::inhabitant(identity)? else { return Ok(None) };
            let found = with_identity(Path::new(&format!("/proc/{process}/ns/net")), identity)?;
            Ok(found.map(|namespace| (namespace, true)))
        };
        let found = found().map_err(|error: FileError| unknown(error.into()))?;
        let opened = |(namespace, only_inhabited): (NetworkNamespace, bool)| {
            let netlink = namespace.netlink()?;
            Ok(Container { namespace, netlink, only_inhabited })
        };
        found.map(opened).transpose().map_err(|error: NetlinkError| unknown(error.into()))
    }

    /// The interface of a record's VF in here, whatever it is called now. Where the kernel does not tell the device of an
    /// interface, it is the one of the kind and of the index that it got here; or else of the name that was moved here.
    ///
    /// # Errors
    ///
    /// When the kernel does not list the interfaces in here.
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
            let is_it = match record.index {
                Some(index) => report.index == index,
                None => !self.only_inhabited && (*name == record.interface || *name == before.name),
            };
            is_it && report.device.is_none() && report.kind == before.kind
        };
        Ok(links.iter().find(moved).cloned())
    }

    /// Whether something in here has the name.
    ///
    /// # Errors
    ///
    /// When the kernel does not answer.
    pub fn has(&mut self, name: &InterfaceName) -> Result<bool, CniError> {
        Ok(self.netlink.link_named(name)?.is_some())
    }

    /// Brings the interface up and gives it the addresses and routes of a result.
    ///
    /// # Errors
    ///
    /// When the kernel refuses an address or route, or IPv6 cannot be turned on.
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
