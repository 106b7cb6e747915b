//! What somebody has put at interfaces for their packets to pass through: XDP programs (`IFLA_XDP`; `net/core/rtnetlink.c`,
//! `rtnl_xdp_fill`) and queueing disciplines with their filters (`net/sched/sch_api.c`).
//!
//! Programs at `tcx` hooks stand in neither: [`crate::bpf`] has them.

use std::fmt;

use netlink_packet_route::{
    link::{LinkAttribute, LinkExtentMask, LinkXdp},
    tc::TcMessage,
};
use nix::{errno::Errno, libc};

use super::{
    Netlink, NetlinkError,
    link::{GET_LINK, LINK_HEADER, NEW_LINK, change},
    wire::{self, Message},
};

/// The length of `struct tcmsg` (`include/uapi/linux/rtnetlink.h`).
const TC_HEADER: usize = 20;
const TCA_KIND: u16 = 1;

/// `include/uapi/linux/if_link.h`.
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
/// A way in which an XDP program is attached.
#[derive(Debug, PartialEq, Eq)]
struct Way {
    /// `XDP_ATTACHED_*`.
    attached: u8,
    place: &'static str,
    /// The attribute that tells the program's number.
    number: u16,
    /// The flag that names the way (`XDP_FLAGS_*_MODE`), and the word of ip-link(8).
    flag: u32,
    word: &'static str,
}

const WAYS: [Way; 3] = [
    Way { attached: 1, place: "in the driver", number: 5, flag: 1 << 2, word: "xdpdrv" },
    Way { attached: 2, place: "before the network stack", number: 6, flag: 1 << 1, word: "xdpgeneric" },
    Way { attached: 3, place: "on the NIC", number: 7, flag: 1 << 3, word: "xdpoffload" },
];
/// `IFLA_XDP_FD` of no program: what is there is taken off.
const NO_PROGRAM: i32 = -1;
const ATTACHED_NONE: u8 = 0;
/// Several are, each in another way.
const ATTACHED_MULTI: u8 = 4;

/// An XDP program at an interface. It shows itself in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpProgram {
    what: String,
    /// Its number, which no other program has while it is loaded, where the kernel tells it.
    pub number: Option<u32>,
    /// `None` for one of a way that is not known, which cannot be taken off.
    way: Option<&'static Way>,
}

impl XdpProgram {
    /// The command that takes it off the interface `name`.
    pub fn removal(&self, name: &str) -> String {
        format!("ip link set dev {name} {} off", self.way.map_or("xdp", |way| way.word))
    }
}

impl fmt::Display for XdpProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Netlink {
    /// The XDP programs at each interface of the namespace, in words, with the interface's index.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the kernel does not list links.
    pub fn xdp_programs(&mut self) -> Result<Vec<(u32, String)>, NetlinkError> {
        let mut body = change(0);
        body.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let attempt = "list the XDP programs of interfaces";
        let links = self.route.dump(attempt, GET_LINK, &body, |message| Some(xdp(message)))?;
        Ok(links.into_iter().flatten().map(|(index, program)| (index, program.what)).collect())
    }

    /// The XDP programs at one interface.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the interface is gone.
    pub fn xdp_programs_at(&mut self, index: u32) -> Result<Vec<XdpProgram>, NetlinkError> {
        let mut found = Vec::new();
        let attempt = format!("look for XDP programs at interface {index}");
        self.route.ask(&attempt, GET_LINK, 0, &change(index), |message: &Message<'_>| {
            found.extend(xdp(message).into_iter().map(|(_, program)| program));
        })?;
        Ok(found)
    }

    /// Takes an XDP program of an interface off it, but not one that a process holds there itself (`bpf_link`): it goes with it.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the interface is gone or may not be changed (`CAP_NET_ADMIN`), or the kernel leaves the program there.
    pub fn remove_xdp(&mut self, index: u32, program: &XdpProgram) -> Result<(), NetlinkError> {
        let attempt = format!("take {program} off interface {index}");
        let Some(way) = program.way else {
            return Err(NetlinkError::answered(&attempt, Errno::EOPNOTSUPP, None));
        };
        let mut body = change(index);
        body.attributes.push(LinkAttribute::Xdp(vec![LinkXdp::Fd(NO_PROGRAM), LinkXdp::Flags(way.flag)]));
        self.set_link(&attempt, &body)
    }

    /// The queueing disciplines that somebody has made at each interface of the namespace, in words, with the interface's index. A kernel
    /// that has none (without `CONFIG_NET_SCHED`) does not know the question.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the kernel has queueing disciplines and does not list them.
    pub fn queueing_disciplines(&mut self) -> Result<Vec<(u32, String)>, NetlinkError> {
        let attempt = "list the queueing disciplines of interfaces";
        none_without(self.route.dump(attempt, libc::RTM_GETQDISC, &TcMessage::default(), discipline))
    }
}

/// What was listed; nothing where the kernel has no such thing at all.
fn none_without<T>(listed: Result<Vec<T>, NetlinkError>) -> Result<Vec<T>, NetlinkError> {
    match listed {
        Err(NetlinkError::Unsupported { .. }) => Ok(Vec::new()),
        listed => listed,
    }
}

/// The XDP programs that a link message tells of, each with the interface's index.
fn xdp(message: &Message<'_>) -> Vec<(u32, XdpProgram)> {
    let told = || {
        let index = wire::u32_at(message.payload, 4)?;
        let xdp = wire::attribute(message.payload.get(LINK_HEADER..)?, IFLA_XDP)?;
        let attached = *wire::attribute(xdp, IFLA_XDP_ATTACHED)?.first()?;
        Some((index, xdp, attached))
    };
    let Some((index, xdp, attached)) = told().filter(|_| message.kind == NEW_LINK) else { return Vec::new() };
    let id = |attribute| wire::attribute(xdp, attribute).and_then(|value| wire::u32_at(value, 0));
    let programs = WAYS.iter().filter_map(|way| {
        let alone = attached == way.attached;
        let number = id(way.number).or_else(|| id(IFLA_XDP_PROG_ID).filter(|_| alone));
        let known = number.map(|number| format!(" (`bpftool prog show id {number}`)")).unwrap_or_default();
        let what = format!("an XDP program {}{known}", way.place);
        let is_there = alone || attached == ATTACHED_MULTI && number.is_some();
        is_there.then_some((index, XdpProgram { what, number, way: Some(way) }))
    });
    let mut programs: Vec<(u32, XdpProgram)> = programs.collect();
    if programs.is_empty() && attached != ATTACHED_NONE {
        let what = format!("an XDP program, attached in a way that is not known (XDP_ATTACHED {attached})");
        programs.push((index, XdpProgram { what, number: None, way: None }));
    }
    programs
}

/// A queueing discipline that somebody has made: those that the kernel makes by itself have no handle (`qdisc_create_dflt`).
fn discipline(message: &Message<'_>) -> Option<(u32, String)> {
    if message.kind != libc::RTM_NEWQDISC {
        return None;
    }
    let (index, handle) = (wire::u32_at(message.payload, 4)?, wire::u32_at(message.payload, 8)?);
    let kind = wire::text(wire::attribute(message.payload.get(TC_HEADER..)?, TCA_KIND)?);
    let filters = matches!(kind.as_str(), "clsact" | "ingress");
    let what = if filters { "the place of tc's filters" } else { "a queueing discipline of tc" };
    (handle != 0).then(|| (index, format!("{what} ({kind})")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::generic::GenericBody;

    #[test]
    fn xdp_programs_are_told_with_their_places() {
        let of = |attached: u8, programs: &[(u16, u32)]| {
            let mut nested = GenericBody::attribute(IFLA_XDP_ATTACHED, &[attached]);
            programs
                .iter()
                .for_each(|(kind, id)| nested.extend(GenericBody::attribute(*kind, &id.to_ne_bytes())));
            let mut payload = vec![0; LINK_HEADER];
            payload[4..8].copy_from_slice(&7_u32.to_ne_bytes());
            payload.extend(GenericBody::attribute(IFLA_XDP, &nested));
            let message = Message { kind: NEW_LINK, flags: 0, sequence: 0, payload: &payload };
            xdp(&message)
                .into_iter()
                .map(|(index, program)| format!("{index}: {program}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(0, &[]), [""; 0]);
        let driver = "7: an XDP program in the driver (`bpftool prog show id 12`)";
        assert_eq!(of(1, &[(4, 12), (5, 12)]), [driver]);
        // Kernels before 4.19 have one number for all.
        assert_eq!(of(1, &[(4, 12)]), [driver]);
        // One that has no number is there all the same, and so is one of a way that was invented since.
        assert_eq!(of(2, &[]), ["7: an XDP program before the network stack"]);
        let unknown = "7: an XDP program, attached in a way that is not known";
        assert_eq!(of(4, &[]), [format!("{unknown} (XDP_ATTACHED 4)")]);
        assert_eq!(of(5, &[(8, 12)]), [format!("{unknown} (XDP_ATTACHED 5)")]);
        let several = of(4, &[(5, 12), (7, 13)]);
        assert_eq!(several, [driver, "7: an XDP program on the NIC (`bpftool prog show id 13`)"]);
    }

    #[test]
    fn a_kernel_without_queueing_disciplines_has_none() {
        let refused = |errno| none_without::<()>(Err(NetlinkError::answered("list them", errno, None)));
        assert!(refused(Errno::EOPNOTSUPP).unwrap().is_empty());
        assert!(refused(Errno::EPERM).is_err() && refused(Errno::EINVAL).is_err());
    }
}
