//! What our own frames look like: an Ethernet header, who made it, and what tells it from all others.

use penstock_model::Mac;

/// IEEE 802 Local Experimental Ethertype 1 (IEEE 802-2014, 9.2.4): never anybody's production traffic.
pub const ETHERTYPE: u16 = 0x88b5;

/// What a frame is part of.
pub type Kind = [u8; 8];

/// Of a run that one process does alone.
pub const REACH: Kind = *b"penstock";
/// Of a run that several agents do together.
pub const STATION: Kind = *b"penstati";

/// Of a load, which shows whether a rate is held.
pub const LOAD: Kind = *b"penstloa";

/// What tells a frame from all others of its kind.
pub type Payload = [u8; 20];

const KIND_AT: usize = 14;
const PAYLOAD_AT: usize = KIND_AT + size_of::<Kind>();
const END: usize = PAYLOAD_AT + size_of::<Payload>();
/// More than the least that Ethernet carries (60 without the checksum), so that no switch or driver pads it.
const LENGTH: usize = 64;

/// An Ethernet frame of 64 bytes: the header, the kind and the payload, then zeros.
pub fn frame(from: Mac, to: Mac, kind: Kind, payload: &Payload) -> [u8; LENGTH] {
    let mut frame = [0; LENGTH];
    frame[..6].copy_from_slice(&to.octets());
    frame[6..12].copy_from_slice(&from.octets());
    frame[12..KIND_AT].copy_from_slice(&ETHERTYPE.to_be_bytes());
    frame[KIND_AT..PAYLOAD_AT].copy_from_slice(&kind);
    frame[PAYLOAD_AT..END].copy_from_slice(payload);
    frame
}

/// What a frame of this kind carries; `None` for any other bytes.
pub fn read(bytes: &[u8], kind: Kind) -> Option<Payload> {
    let ours = bytes.get(12..KIND_AT)? == ETHERTYPE.to_be_bytes() && bytes.get(KIND_AT..PAYLOAD_AT)? == kind;
    let payload = bytes.get(PAYLOAD_AT..END)?.try_into().ok()?;
    ours.then_some(payload)
}
