//! What a machine's own life hangs on, followed down to the PCI functions: default routes, the SSH connection from which
//! Penstock was started, the root file system, swap space and other mounts.
//!
//! What cannot be found out is told as such and never taken for "there is none".

mod ancestry;
mod links;
mod loops;
mod origin;
mod processes;
mod programs;
mod routes;
mod session;
mod sockets;
mod ssh;
mod storage;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use penstock_model::{
    Bdf,
    inventory::{Lifeline, LifelineKind, LifelinePath, LifelineSort, Lifelines, UnknownLifeline},
    text::one_line,
};
use rustix::io::Errno;

pub use self::{
    origin::{ssh_connection, ssh_connection_as_told},
    session::Started,
};
use self::{routes::Ways, storage::BackingDevice};
use super::{LinkError, attachments::attachments, reader::Reader};
use crate::{
    Netlink, Root, chain,
    netlink::Route,
    pci::{is_vfio, vfio::nodes_of},
};

/// So many other mounts are looked into; a machine with more has them from few devices.
const MOUNTS: usize = 256;

/// What only netlink can tell of routes.
pub trait Routes {
    /// The routes of all tables that lead everywhere else.
    ///
    /// # Errors
    ///
    /// The lister's own, when routes cannot be listed.
    fn defaults(&mut self) -> Result<Vec<Route>, LinkError>;

    /// The index of the interface over which packets go to `peer`, sent from `from` and by who is bound to interface `over`, a VRF, say,
    /// where these are given.
    ///
    /// # Errors
    ///
    /// The lister's own, when the kernel cannot be asked. That it knows no way is `None`.
    fn towards(
        &mut self,
        peer: IpAddr,
        from: Option<IpAddr>,
        over: Option<u32>,
    ) -> Result<Option<u32>, LinkError>;

    /// Whether the interface of this index is a VRF, which has routes of its own.
    ///
    /// # Errors
    ///
    /// The lister's own, when the interface cannot be asked for.
    fn is_vrf(&mut self, index: u32) -> Result<bool, LinkError>;

    /// Every IP address of this machine with the index of the interface that holds it.
    ///
    /// # Errors
    ///
    /// The lister's own, when addresses cannot be listed.
    fn addresses(&mut self) -> Result<Vec<(u32, IpAddr)>, LinkError>;
}

impl Routes for Netlink {
    fn defaults(&mut self) -> Result<Vec<Route>, LinkError> {
        Ok(self.default_routes()?)
    }

    fn towards(
        &mut self,
        peer: IpAddr,
        from: Option<IpAddr>,
        over: Option<u32>,
    ) -> Result<Option<u32>, LinkError> {
        Ok(self.route_to(peer, from, over)?)
    }

    fn is_vrf(&mut self, index: u32) -> Result<bool, LinkError> {
        let link = self.link_at(index)?;
        Ok(link.is_some_and(|link| link.kind.as_deref() == Some("vrf")))
    }

    fn addresses(&mut self) -> Result<Vec<(u32, IpAddr)>, LinkError> {
        let all = Netlink::addresses(self)?;
        Ok(all.into_iter().map(|(index, address)| (index, address.ip())).collect())
    }
}

/// The lifelines of the machine whose file systems are under `root`, for a Penstock that was `started` so.
///
/// Without `routes`, as for a recorded tree, the main tables are read from `/proc/net/route` and `/proc/net/ipv6_route`.
pub fn lifelines(root: &Root, routes: Option<&mut dyn Routes>, started: &Started) -> Lifelines {
    let mut reader = Reader::new(root);
    let mut found = Lifelines::default();
    let mut ways = Ways::new(routes, &mut reader);
    default_routes(&mut ways, &mut reader, &mut found);
    ssh::connections(&mut ways, started, &mut reader, &mut found);
    peers(&mut ways, &started.peers, &mut reader, &mut found);
    file_systems(&mut ways, &mut reader, &mut found);
    (found.holders, found.unseen) = holders(&mut reader);
    for (function, who) in attachments(&mut reader) {
        found.holders.entry(function).or_default().push(who);
    }
    // Only names of processes are lost here, and who reads this asks for more than names.
    let _ = reader.take_notes();
    found
}

/// The lifelines of the machine that Penstock runs on.
pub fn lifelines_here(started: &Started) -> Lifelines {
    let root = Root::system();
    match Netlink::open() {
        Ok(mut netlink) => {
            let mut found = lifelines(&root, Some(&mut netlink), started);
            programs::packet_programs(&root, &mut netlink, &mut found);
            found
        }
        Err(error) => {
            let mut found = lifelines(&root, None, started);
            found.unseen_packet_programs.push(one_line(&chain(&error)));
            found.cannot(LifelineSort::DefaultRoute, chain(&error));
            found
        }
    }
}

/// Writing down what is not known.
trait Cannot {
    fn cannot(&mut self, sort: LifelineSort, why: impl Into<String>);
}

impl Cannot for Lifelines {
    fn cannot(&mut self, sort: LifelineSort, why: impl Into<String>) {
        let why = one_line(&why.into());
        let unknown = UnknownLifeline { sort, why };
        if !self.unknown.contains(&unknown) {
            self.unknown.push(unknown);
        }
    }
}

/// Adds a lifeline that takes these paths; those of one kind are one.
fn add(found: &mut Lifelines, kind: LifelineKind, paths: Vec<LifelinePath>) {
    let lifeline = match found.found.iter_mut().find(|lifeline| lifeline.kind == kind) {
        Some(lifeline) => lifeline,
        None => {
            found.found.push(Lifeline { kind, paths: Vec::new() });
            let last = found.found.len() - 1;
            &mut found.found[last]
        }
    };
    for path in paths {
        if !lifeline.paths.contains(&path) {
            lifeline.paths.push(path);
        }
    }
}

fn default_routes(ways: &mut Ways<'_>, reader: &mut Reader<'_>, found: &mut Lifelines) {
    let sort = LifelineSort::DefaultRoute;
    for (kind, interfaces) in ways.defaults(found) {
        let mut paths = Vec::new();
        for interface in interfaces {
            match interface {
                Ok(name) => paths.extend(followed(&name, sort, reader, found)),
                Err(index) => {
                    found.cannot(sort, format!("{kind} goes over interface {index}, which has no name here"))
                }
            }
        }
        add(found, kind, paths);
    }
    noted(sort, reader, found);
}

/// The paths from an interface down, with what could not be followed written down.
fn followed(
    name: &str,
    sort: LifelineSort,
    reader: &mut Reader<'_>,
    found: &mut Lifelines,
) -> Vec<LifelinePath> {
    let (paths, lost) = links::below(name, reader);
    lost.into_iter().for_each(|why| found.cannot(sort, why));
    paths
}

fn noted(sort: LifelineSort, reader: &mut Reader<'_>, found: &mut Lifelines) {
    reader.take_notes().into_iter().for_each(|note| found.cannot(sort, note));
}

/// The ways to machines that somebody named. One on this machine itself needs no hardware.
fn peers(ways: &mut Ways<'_>, peers: &[IpAddr], reader: &mut Reader<'_>, found: &mut Lifelines) {
    let sort = LifelineSort::Peer;
    for peer in peers.iter().map(IpAddr::to_canonical).filter(|peer| !peer.is_loopback()) {
        let paths = match ways.towards(peer, None, None) {
            Ok(Some(name)) => followed(&name, sort, reader, found),
            Ok(None) => {
                found.cannot(sort, format!("there is no route to {peer}"));
                Vec::new()
            }
            Err(why) => {
                found.cannot(sort, format!("the route to {peer} is not known: {why}"));
                Vec::new()
            }
        };
        add(found, LifelineKind::Peer { address: peer.to_string() }, paths);
    }
    noted(sort, reader, found);
}

/// Root, swap and what else is mounted.
fn file_systems(ways: &mut Ways<'_>, reader: &mut Reader<'_>, found: &mut Lifelines) {
    let Some(mounts) = storage::mounts(reader) else {
        for sort in [LifelineSort::Root, LifelineSort::Mount] {
            found.cannot(sort, "/proc/self/mountinfo could not be read");
        }
        let _ = reader.take_notes();
        swaps(&[], ways, reader, found);
        return;
    };
    // The last one is on top of the others.
    match mounts.iter().rfind(|mount| mount.at == "/") {
        None => found.cannot(LifelineSort::Root, "/proc/self/mountinfo has no file system at /"),
        Some(root) => {
            let devices = storage::devices(root, &mounts, reader);
            carried(LifelineKind::Root, devices, ways, reader, found);
        }
    }
    noted(LifelineSort::Root, reader, found);
    swaps(&mounts, ways, reader, found);
    others(&mounts, ways, reader, found);
}

fn swaps(mounts: &[storage::Mount], ways: &mut Ways<'_>, reader: &mut Reader<'_>, found: &mut Lifelines) {
    match storage::swaps(reader) {
        None => found.cannot(LifelineSort::Swap, "/proc/swaps could not be read"),
        Some(areas) => {
            for area in areas {
                let devices = storage::devices_of_swap(&area, mounts, reader);
                carried(LifelineKind::Swap { area }, devices, ways, reader, found);
            }
        }
    }
    noted(LifelineSort::Swap, reader, found);
}

/// Mounts beside the root: one for each set of functions, or the list would be long and say little.
fn others(mounts: &[storage::Mount], ways: &mut Ways<'_>, reader: &mut Reader<'_>, found: &mut Lifelines) {
    let mut sources = BTreeSet::new();
    let distinct = mounts.iter().filter(|mount| mount.at != "/" && mount.is_carried());
    let distinct: Vec<_> = distinct.filter(|mount| sources.insert(mount.device_key())).collect();
    if distinct.len() > MOUNTS {
        let text = format!("{} file systems are mounted; {MOUNTS} of them were looked into", distinct.len());
        found.cannot(LifelineSort::Mount, text);
    }
    for mount in distinct.into_iter().take(MOUNTS) {
        let devices = storage::devices(mount, mounts, reader);
        let mut alone = Lifelines::default();
        carried(LifelineKind::Mount { at: mount.at.clone() }, devices, ways, reader, &mut alone);
        alone.unknown.into_iter().for_each(|unknown| found.cannot(unknown.sort, unknown.why));
        for lifeline in alone.found {
            let functions = |lifeline: &Lifeline| -> BTreeSet<Option<Bdf>> {
                lifeline.paths.iter().map(|path| path.function).collect()
            };
            let own = functions(&lifeline);
            let told = found
                .found
                .iter()
                .any(|other| !other.kind.sort().is_of_the_network() && functions(other).is_superset(&own));
            if !told {
                found.found.push(lifeline);
            }
        }
    }
    noted(LifelineSort::Mount, reader, found);
}

/// Adds a lifeline for what these carry, with the way to a server that keeps it.
fn carried(
    kind: LifelineKind,
    devices: Result<Vec<BackingDevice>, String>,
    ways: &mut Ways<'_>,
    reader: &mut Reader<'_>,
    found: &mut Lifelines,
) {
    let sort = kind.sort();
    let devices = devices.unwrap_or_else(|why| {
        found.cannot(sort, format!("what carries {kind} is not known: {why}"));
        Vec::new()
    });
    let mut paths = Vec::new();
    for device in devices {
        match device {
            BackingDevice::Path(path) => paths.push(path),
            BackingDevice::Lost(why) => {
                found.cannot(sort, format!("what carries {kind} is not known: {why}"))
            }
            BackingDevice::Server { names, address } => match ways.towards(address, None, None) {
                Ok(Some(interface)) => {
                    for path in followed(&interface, sort, reader, found) {
                        let names = names.iter().cloned().chain(path.names).collect();
                        paths.push(LifelinePath { names, ..path });
                    }
                }
                Ok(None) => found.cannot(sort, format!("there is no route to {address}, which keeps {kind}")),
                Err(why) => found.cannot(sort, format!("the route to {address}, which keeps {kind}: {why}")),
            },
        }
    }
    // Of what is in memory, or of what nothing is known, there is nothing to tell.
    if !paths.is_empty() {
        add(found, kind, paths);
    }
}

/// Who has functions that are bound to VFIO open, by each function, and what came in the way of seeing it. Only root sees all processes'
/// files.
fn holders(reader: &mut Reader<'_>) -> (BTreeMap<Bdf, Vec<String>>, Vec<String>) {
    let mut nodes: BTreeMap<String, Vec<Bdf>> = BTreeMap::new();
    let drivers = reader.list("/sys/bus/pci/drivers");
    let bound: Vec<String> = drivers
        .iter()
        .filter(|driver| is_vfio(driver))
        .flat_map(|driver| reader.list(&format!("/sys/bus/pci/drivers/{driver}")))
        .collect();
    for bdf in bound.iter().filter_map(|name| name.parse::<Bdf>().ok()) {
        let directory = format!("/sys/bus/pci/devices/{bdf}");
        let group = reader.link_name(&format!("{directory}/iommu_group"));
        let devices = reader.quiet_list(&format!("{directory}/vfio-dev"));
        for node in nodes_of(group.as_deref(), &devices) {
            nodes.entry(node.to_string_lossy().into_owned()).or_default().push(bdf);
        }
    }
    let (mut holders, mut unseen) = (BTreeMap::<Bdf, Vec<String>>::new(), Vec::new());
    if nodes.is_empty() {
        return (holders, unseen);
    }
    let (mut hidden, mut why) = (0, None);
    for id in processes::processes(reader) {
        let open = match processes::open_files(id, reader) {
            Ok(open) => open,
            // It has ended.
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::SRCH)) => {
                continue;
            }
            Err(error) => {
                hidden += 1;
                why.get_or_insert(error);
                continue;
            }
        };
        // The node is gone, and what was opened by it is open.
        let open = open.iter().map(|path| path.strip_suffix(" (deleted)").unwrap_or(path));
        let functions: BTreeSet<Bdf> = open.filter_map(|path| nodes.get(path)).flatten().copied().collect();
        if functions.is_empty() {
            continue;
        }
        let name = processes::name_of(id, reader).unwrap_or_default();
        let vm = processes::vm_of(id, reader).map(|vm| format!(", VM {vm}")).unwrap_or_default();
        let account = processes::account_of(id, reader);
        for function in functions {
            holders.entry(function).or_default().push(format!("{name} (process {id}{vm}{account})"));
        }
    }
    if let Some(why) = why {
        unseen.push(format!(
            "the open files of {} could not be read: {why}",
            match hidden {
                1 => "a process".to_owned(),
                _ => format!("{hidden} processes"),
            }
        ));
    }
    (holders, unseen)
}
