//! The interfaces that an SSH connection needs: the one over which answers leave, and those that hold its address here.
//!
//! The two differ where one default route serves several ports: packets to the address of another port come in by that one.

use std::{collections::BTreeSet, net::IpAddr};

use penstock_model::inventory::{LifelineKind, LifelineSort, Lifelines};

use super::{
    Cannot, Started, add, followed, links, noted,
    routes::Ways,
    session::{self, Connection},
};
use crate::scan::reader::Reader;

/// Adds a lifeline for each connection that must live.
pub(super) fn connections(
    ways: &mut Ways<'_>,
    started: &Started,
    reader: &mut Reader<'_>,
    found: &mut Lifelines,
) {
    let sort = LifelineSort::Ssh;
    let here = ways.addresses().unwrap_or_else(|why| {
        found.cannot(sort, format!("which addresses this machine has is not known: {why}"));
        BTreeSet::new()
    });
    let (connections, unknown) = session::connections(started, &here, reader);
    unknown.into_iter().for_each(|why| found.cannot(sort, why));
    for connection in connections {
        let kind = LifelineKind::Ssh { peer: connection.peer.to_string(), own: connection.own };
        let mut needed = NeededInterfaces::default();
        needed.of(&connection, &kind, ways, reader);
        needed.lost.into_iter().for_each(|why| found.cannot(sort, why));
        let mut paths = Vec::new();
        for name in needed.interfaces {
            paths.extend(followed(&name, sort, reader, found));
        }
        add(found, kind, paths);
    }
    noted(sort, reader, found);
}

/// What one connection needs.
#[derive(Default)]
struct NeededInterfaces {
    interfaces: Vec<String>,
    /// In words, what is not known of it.
    lost: Vec<String>,
}

impl NeededInterfaces {
    fn of(
        &mut self,
        connection: &Connection,
        kind: &LifelineKind,
        ways: &mut Ways<'_>,
        reader: &mut Reader<'_>,
    ) {
        match &connection.interface {
            Some(interface) => self.add(interface.clone()),
            // Each link has such addresses, and a route to one tells nothing: both ends are at the interface that holds ours.
            None if is_link_local(connection.peer) => {
                if connection.local.is_none() || !ways.knows_holders() {
                    self.lost.push(format!("over which interface {kind} comes is not known"));
                }
            }
            None => self.way_back(connection, kind, ways, reader),
        }
        self.way_in(connection, kind, ways, reader);
    }

    fn add(&mut self, interface: String) {
        if !self.interfaces.contains(&interface) {
            self.interfaces.push(interface);
        }
    }

    /// Where every interface that holds our end is in a VRF, the routes of that one count, and no others while it has one.
    fn way_back(
        &mut self,
        connection: &Connection,
        kind: &LifelineKind,
        ways: &mut Ways<'_>,
        reader: &mut Reader<'_>,
    ) {
        let peer = connection.peer;
        // What cannot be asked of these is told with the way in.
        let holders = connection.local.and_then(|local| ways.holders(local).ok()?).unwrap_or_default();
        let mut outside = holders.is_empty();
        let mut vrfs = BTreeSet::new();
        for holder in holders {
            match holder.map(|name| ways.vrf_of(&name, reader)) {
                Ok(Ok(Some(vrf))) => {
                    vrfs.insert(vrf);
                }
                Ok(Ok(None)) | Err(_) => outside = true,
                Ok(Err(why)) => {
                    self.lost.push(format!("whether {kind} arrives in a VRF is not known: {why}"));
                    outside = true;
                }
            }
        }
        for vrf in vrfs {
            match ways.towards(peer, connection.local, Some(vrf)) {
                Ok(Some(name)) => self.add(name),
                Ok(None) => outside = true,
                Err(why) => self.lost.push(format!("the route to {peer} is not known: {why}")),
            }
        }
        if !outside {
            return;
        }
        match ways.towards(peer, connection.local, None) {
            Ok(Some(name)) => self.add(name),
            Ok(None) => self.lost.push(format!("there is no route to {peer}, where {kind} comes from")),
            Err(why) => self.lost.push(format!("the route to {peer} is not known: {why}")),
        }
    }

    /// The interfaces that hold this machine's end. A recorded tree does not tell them.
    fn way_in(
        &mut self,
        connection: &Connection,
        kind: &LifelineKind,
        ways: &mut Ways<'_>,
        reader: &mut Reader<'_>,
    ) {
        let Some(local) = connection.local else { return };
        // Other interfaces may hold it too, and have nothing to do with this connection.
        if connection.interface.is_some() && is_link_local(local) {
            return;
        }
        let holders = match ways.holders(local) {
            Ok(None) => return,
            Ok(Some(holders)) => holders,
            Err(why) => {
                self.lost.push(format!(
                    "which interface holds {local}, where {kind} arrives, is not known: {why}"
                ));
                return;
            }
        };
        if holders.is_empty() {
            self.lost.push(format!("no interface holds {local}, where {kind} arrives"));
        }
        for holder in holders {
            match holder {
                Ok(name) if links::is_loopback(&name, reader) => self.lost.push(format!(
                    "{name} holds {local}, where {kind} arrives, and over what that comes in is not known"
                )),
                Ok(name) => self.add(name),
                Err(index) => self.lost.push(format!(
                    "interface {index}, which has no name here, holds {local}, where {kind} arrives"
                )),
            }
        }
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}
