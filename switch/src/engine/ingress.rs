//! Whether a port may send a frame, and which VLAN it is then in.

use super::{Frame, Source};
use crate::{
    counters::Dropped,
    net::{OLD_TAGGED, TAGGED, Tag, is_tag},
    settings::{Settings, TagKind},
};

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
