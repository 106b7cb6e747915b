//! Whether a port may send a frame, and which VLAN it is then in.

use super::{Frame, Source};
use crate::{
    counters::Dropped,
    net::{Mac, TAGGED, Tag},
    settings::{Settings, TagKind},
};

const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const ICMPV6: u8 = 58;

/// Puts the frame into its VLAN, or says why it may not be sent.
#[inline(always)]
pub(super) fn admit(source: &Source, frame: &mut Frame<'_>) -> Result<(), Dropped> {
    let settings = &*source.settings;
    let from = frame.ethernet.from;
    if from.is_group() || from.is_zero() {
        return Err(Dropped::SpoofedMac);
    }
    if settings.spoofchk && !settings.macs.contains(&from) {
        return Err(Dropped::SpoofedMac);
    }
    (frame.vlan, frame.tag) = vlan(settings, frame.ethernet.tag).ok_or(Dropped::ForeignVlan)?;
    // Its own tag comes on top of what the MTU allows (IEEE 802.3, 3.2.7).
    let whole = frame.rest <= u32::from(settings.mtu);
    if !whole && frame.virtio.segment == 0 {
        return Err(Dropped::TooLong);
    }
    if frame.virtio.segment > settings.mtu {
        return Err(Dropped::TooLong);
    }
    if settings.arp_check && !neighbour_is_own(settings, frame) {
        return Err(Dropped::SpoofedNeighbour);
    }
    Ok(())
}

/// The VLAN of a frame with this tag, and the tag that it has inside.
#[inline(always)]
fn vlan(settings: &Settings, tag: Option<(Tag, u16)>) -> Option<(u16, Option<(Tag, u16)>)> {
    match (&settings.vlan, tag) {
        (Some(own), None) => Some((own.tag.vlan, Some((own.tag, own.kind.on_wire())))),
        // A priority without a VLAN is kept in the port VLAN's tag.
        (Some(own), Some((Tag { vlan: 0, priority }, TAGGED))) if own.kind == TagKind::Customer => {
            Some((own.tag.vlan, Some((Tag { priority, ..own.tag }, own.kind.on_wire()))))
        }
        (Some(_), Some(_)) => None,
        (None, None) => settings.trunk.has(0).then_some((0, None)),
        (None, Some((tag, kind))) => settings.trunk.has(tag.vlan).then_some((tag.vlan, Some((tag, kind)))),
    }
}

/// Whether what ARP or neighbour discovery say of the sender is one of its addresses. Other frames say nothing of it.
#[inline(never)]
fn neighbour_is_own(settings: &Settings, frame: &Frame<'_>) -> bool {
    let own =
        |octets: Option<&[u8; 6]>| octets.is_none_or(|octets| settings.macs.contains(&Mac::new(*octets)));
    let mut bytes = [0_u8; 128];
    let mut payload = frame.payload;
    let wanted = bytes.len().min(frame.rest as usize);
    let Some(bytes) = bytes.get_mut(..wanted) else { return false };
    if payload.read(bytes) < wanted {
        return false;
    }
    match frame.ethernet.kind {
        // The sender's hardware address (RFC 826).
        ARP => bytes.get(8..).and_then(|rest| rest.first_chunk()).is_some_and(|octets| own(Some(octets))),
        IPV6 if bytes.get(6) == Some(&ICMPV6) => own(link_layer_option(bytes)),
        _ => true,
    }
}

/// The address in the option of a neighbour solicitation (source) or advertisement (target), as RFC 4861, 4.3 and 4.4, have it.
fn link_layer_option(packet: &[u8]) -> Option<&[u8; 6]> {
    let wanted = match packet.get(40)? {
        // Router solicitation, router advertisement, neighbour solicitation.
        133..=135 => 1,
        136 => 2,
        _ => return None,
    };
    let mut options = match packet.get(40)? {
        133 => packet.get(48..)?,
        134 => packet.get(56..)?,
        _ => packet.get(64..)?,
    };
    loop {
        let [kind, units] = *options.first_chunk()?;
        if kind == wanted {
            return options.get(2..)?.first_chunk();
        }
        // A length of 0 is no option (4.6).
        options = options.get(usize::from(units).max(1) * 8..)?;
    }
}
