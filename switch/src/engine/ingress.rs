//! Whether a port may send a frame, and which VLAN it is then in.

use super::{Frame, Source};
use crate::{
    counters::Dropped,
    net::{Mac, OLD_TAGGED, TAGGED, Tag, is_tag},
    settings::{Settings, TagKind},
};

const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const ICMPV6: u8 = 58;

/// A VLAN, and the tag that a frame has in it.
type InVlan = (u16, Option<(Tag, u16)>);

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
    (frame.vlan, frame.tag) = vlan(settings, frame)?;
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

/// The VLAN of a frame, and the tag that it has inside.
#[inline(always)]
fn vlan(settings: &Settings, frame: &Frame<'_>) -> Result<InVlan, Dropped> {
    let ethernet = &frame.ethernet;
    let allowed = match (&settings.vlan, ethernet.tag) {
        (_, Some(tag)) => return tagged(settings, frame, tag),
        // A tag that is not read as one here may be one to who receives it.
        (Some(own), None) if ethernet.kind != OLD_TAGGED || own.kind == TagKind::Provider => {
            Some((own.tag.vlan, Some((own.tag, own.kind.on_wire()))))
        }
        (None, None) if ethernet.kind != OLD_TAGGED || settings.trunk.is_unbounded() => {
            settings.trunk.has(0).then_some((0, None))
        }
        _ => None,
    };
    allowed.ok_or(Dropped::ForeignVlan)
}

/// The same of a frame with this tag, inside which another may not lead further than the port may go: who takes the first off for
/// its priority, or as a port VLAN's, has the frame in the VLAN of the second.
#[inline(never)]
fn tagged(settings: &Settings, frame: &Frame<'_>, (tag, kind): (Tag, u16)) -> Result<InVlan, Dropped> {
    // Whoever completes a checksum inside the tag makes another one of it.
    if frame.virtio.checksum.is_some_and(|sum| usize::from(sum.start) < frame.ethernet.size()) {
        return Err(Dropped::BadHeader);
    }
    if is_tag(frame.ethernet.kind) && (tag.vlan == 0 || !settings.trunk.is_unbounded()) {
        return Err(Dropped::ForeignVlan);
    }
    let allowed = match &settings.vlan {
        // A tag without a VLAN gives way to the port VLAN's, whose priority is the host's to choose.
        Some(own) if (tag.vlan, kind, own.kind) == (0, TAGGED, TagKind::Customer) => {
            Some((own.tag.vlan, Some((own.tag, own.kind.on_wire()))))
        }
        Some(_) => None,
        None => settings.trunk.has(tag.vlan).then_some((tag.vlan, Some((tag, kind)))),
    };
    allowed.ok_or(Dropped::ForeignVlan)
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
