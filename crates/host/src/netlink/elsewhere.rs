//! Interfaces of software that stand on one of another namespace: a macvlan that was moved away from what it was made upon.

use std::{
    collections::BTreeSet,
    fs,
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::MetadataExt,
    },
};

use netlink_packet_route::{
    link::{LinkAttribute, LinkExtentMask, LinkMessage},
    nsid::{NsidAttribute, NsidMessage},
};
use nix::libc;

use super::{
    Netlink, NetlinkError,
    link::{GET_LINK, LINK_HEADER, NEW_LINK},
    upper,
    wire::{self, Message},
};
use crate::{
    files::{self, FileError},
    namespace::NetworkNamespace,
};

/// Asks which number a namespace has in this one (`include/uapi/linux/rtnetlink.h`, `include/uapi/linux/net_namespace.h`).
const RTM_NEWNSID: u16 = 88;
const RTM_GETNSID: u16 = 90;
/// The length of `struct rtgenmsg` with what fills it up.
const HEADER: usize = 4;
const NETNSA_NSID: u16 = 1;

/// Where namespaces have names, as `ip netns` gives them.
const NAMED: &str = "/run/netns";

/// The interfaces of the namespace `home` that something in another stands on, by their index: `home` itself shows nothing of that, neither by
/// netlink nor in sysfs. The namespaces of all processes and those that `ip netns` has named are looked at; one that has neither, or that may not
/// be entered, stays unseen.
///
/// # Errors
///
/// When `home` cannot be told from others, or processes cannot be listed.
pub fn lowers_of_others(home: &NetworkNamespace) -> Result<BTreeSet<u32>, FileError> {
    let mut seen = BTreeSet::from([home.identity()?]);
    let processes = files::list("/proc")?.into_iter().filter(|name| name.parse::<u32>().is_ok());
    let named = files::list(NAMED).unwrap_or_default();
    let paths = processes.map(|id| format!("/proc/{id}/ns/net"));
    let paths = paths.chain(named.iter().map(|name| format!("{NAMED}/{name}")));
    let mut lowers = BTreeSet::new();
    for path in paths {
        // Most live where another one does, and need not be opened. One that has ended meanwhile lives nowhere.
        if !fs::metadata(&path).is_ok_and(|data| !seen.contains(&(data.dev(), data.ino()))) {
            continue;
        }
        let Ok(namespace) = NetworkNamespace::open(path) else { continue };
        if namespace.identity().is_ok_and(|identity| seen.insert(identity)) {
            let found = namespace.netlink().and_then(|mut netlink| netlink.lowers_in(home));
            lowers.extend(found.unwrap_or_default());
        }
    }
    Ok(lowers)
}

impl Netlink {
    /// The interfaces of another namespace that something in this one stands on, by their index there.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the kernel does not tell.
    pub fn lowers_in(&mut self, other: &NetworkNamespace) -> Result<BTreeSet<u32>, NetlinkError> {
        let mut body = LinkMessage::default();
        body.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let attempt = "list what stands on interfaces of other namespaces";
        let found = self.route.dump(attempt, GET_LINK, &body, lower_elsewhere)?;
        if found.is_empty() {
            return Ok(BTreeSet::new());
        }
        let number = self.number_of(other)?;
        let there = found.into_iter().filter(|(_, namespace)| Some(*namespace) == number);
        Ok(there.map(|(index, _)| index).collect())
    }

    /// The number by which links of this namespace name another; `None` where it has none yet.
    fn number_of(&mut self, other: &NetworkNamespace) -> Result<Option<u32>, NetlinkError> {
        let attempt = format!("ask for the number of {} in this namespace", other.path().display());
        let mut body = NsidMessage::default();
        body.attributes.push(NsidAttribute::Fd(other.as_fd().as_raw_fd().cast_unsigned()));
        let mut number = None;
        self.route.ask(&attempt, RTM_GETNSID, 0, &body, |message| number = nsid(message).or(number))?;
        Ok(number)
    }
}

/// What a link stands on, and in which other namespace.
fn lower_elsewhere(message: &Message<'_>) -> Option<(u32, u32)> {
    if message.kind != NEW_LINK || i32::from(*message.payload.first()?) != libc::AF_UNSPEC {
        return None;
    }
    let attributes = message.payload.get(LINK_HEADER..)?;
    let namespace = wire::u32_at(wire::attribute(attributes, upper::IFLA_LINK_NETNSID)?, 0)?;
    upper::stands_on(attributes).map(|index| (index, namespace))
}

fn nsid(message: &Message<'_>) -> Option<u32> {
    if message.kind != RTM_NEWNSID {
        return None;
    }
    let number = wire::u32_at(wire::attribute(message.payload.get(HEADER..)?, NETNSA_NSID)?, 0)?;
    // -1 is none.
    (number != u32::MAX).then_some(number)
}
