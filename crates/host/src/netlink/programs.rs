//! What somebody has put at interfaces for their packets to pass through: XDP programs (`IFLA_XDP`; `net/core/rtnetlink.c`,
//! `rtnl_xdp_fill`) and queueing disciplines with their filters (`net/sched/sch_api.c`).
//!
//! Programs at `tcx` hooks and `netkit` devices stand in neither: they are told by bpf(2) alone.

use netlink_packet_route::{
    link::{LinkAttribute, LinkExtentMask},
    tc::TcMessage,
};
use nix::libc;

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
/// How XDP programs are attached (`XDP_ATTACHED_*`), and by which attribute the number of each is told.
const ATTACHED: [(u8, &str, u16); 3] =
    [(1, "in the driver", 5), (2, "before the network stack", 6), (3, "on the NIC", 7)];
/// Several are, each in another way.
const ATTACHED_MULTI: u8 = 4;

impl Netlink {
    /// What somebody has put at each interface of the namespace, in words, with the interface's index.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the kernel does not list links or queueing disciplines.
    pub fn packet_programs(&mut self) -> Result<Vec<(u32, String)>, NetlinkError> {
        let attempt = "list the XDP programs of interfaces";
        let mut body = change(0);
        body.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let links = self.route.dump(attempt, GET_LINK, &body, |message| Some(xdp(message)))?;
        let attempt = "list the queueing disciplines of interfaces";
        let disciplines = self.route.dump(attempt, libc::RTM_GETQDISC, &TcMessage::default(), discipline)?;
        Ok(links.into_iter().flatten().chain(disciplines).collect())
    }
}

/// The XDP programs that a link message tells of.
fn xdp(message: &Message<'_>) -> Vec<(u32, String)> {
    let told = || {
        let index = wire::u32_at(message.payload, 4)?;
        let xdp = wire::attribute(message.payload.get(LINK_HEADER..)?, IFLA_XDP)?;
        let attached = *wire::attribute(xdp, IFLA_XDP_ATTACHED)?.first()?;
        let id = |attribute| wire::attribute(xdp, attribute).and_then(|value| wire::u32_at(value, 0));
        let ways = ATTACHED.iter().filter(|(way, ..)| attached == *way || attached == ATTACHED_MULTI);
        let all = ways.filter_map(|(way, place, own)| {
            let number = id(*own).or_else(|| id(IFLA_XDP_PROG_ID).filter(|_| attached == *way))?;
            Some((index, format!("an XDP program {place} (`bpftool prog show id {number}`)")))
        });
        Some(all.collect())
    };
    if message.kind == NEW_LINK { told().unwrap_or_default() } else { Vec::new() }
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

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = u16::try_from(value.len() + 4).unwrap().to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn xdp_programs_are_told_with_their_places() {
        let of = |attached: u8, programs: &[(u16, u32)]| {
            let mut nested = attribute(IFLA_XDP_ATTACHED, &[attached]);
            programs.iter().for_each(|(kind, id)| nested.extend(attribute(*kind, &id.to_ne_bytes())));
            let mut payload = vec![0; LINK_HEADER];
            payload[4..8].copy_from_slice(&7_u32.to_ne_bytes());
            payload.extend(attribute(IFLA_XDP, &nested));
            let message = Message { kind: NEW_LINK, flags: 0, sequence: 0, payload: &payload };
            xdp(&message).into_iter().map(|(index, what)| format!("{index}: {what}")).collect::<Vec<_>>()
        };
        assert_eq!(of(0, &[]), [""; 0]);
        let driver = "7: an XDP program in the driver (`bpftool prog show id 12`)";
        assert_eq!(of(1, &[(4, 12), (5, 12)]), [driver]);
        // Kernels before 4.19 have one number for all.
        assert_eq!(of(1, &[(4, 12)]), [driver]);
        let several = of(4, &[(5, 12), (7, 13)]);
        assert_eq!(several, [driver, "7: an XDP program on the NIC (`bpftool prog show id 13`)"]);
    }
}
