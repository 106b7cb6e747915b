//! The framing of netlink: messages in a datagram, attributes in a message (`include/uapi/linux/netlink.h`).
//!
//! Everything here takes bytes as they come and never panics on them.

use netlink_packet_core::{NlaBuffer, NlasIterator};
use nix::errno::Errno;

/// An error, or with the number 0 an acknowledgement.
pub const NLMSG_ERROR: u16 = 2;
/// The end of a dump.
pub const NLMSG_DONE: u16 = 3;
/// A message was lost.
pub const NLMSG_OVERRUN: u16 = 4;

/// The message is a request.
pub const NLM_F_REQUEST: u16 = 1;
/// Answer even when all is well.
pub const NLM_F_ACK: u16 = 4;
/// What was dumped changed meanwhile.
pub const NLM_F_DUMP_INTR: u16 = 0x10;
/// Answer with all objects, not with one (`NLM_F_ROOT` and `NLM_F_MATCH`).
pub const NLM_F_DUMP: u16 = 0x300;
/// Fail if it exists.
pub const NLM_F_EXCL: u16 = 0x200;
/// Make it if it does not exist.
pub const NLM_F_CREATE: u16 = 0x400;
/// In an error message: the request is not repeated after its header.
const NLM_F_CAPPED: u16 = 0x100;
/// In an error message: attributes follow.
const NLM_F_ACK_TLVS: u16 = 0x200;

/// In an attribute's kind: it holds attributes.
pub const NLA_F_NESTED: u16 = 0x8000;

const HEADER: usize = 16;
const NLMSGERR_ATTR_MSG: u16 = 1;

/// One message of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its kind (`nlmsg_type`).
    pub kind: u16,
    /// Its flags (`nlmsg_flags`), whose meaning depends on the kind.
    pub flags: u16,
    /// The number of the request that it answers; 0 for an event.
    pub sequence: u32,
    /// What follows the header.
    pub payload: &'a [u8],
}

/// The bytes of a request.
pub fn request(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let length = (HEADER + payload.len()) as u32;
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(payload);
    bytes
}

/// The messages of a datagram; ends at the first whose length is impossible, with an error.
pub fn messages(datagram: &[u8]) -> impl Iterator<Item = Result<Message<'_>, String>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let length = u32_at(rest, 0).unwrap_or(0) as usize;
        if length < HEADER || length > rest.len() {
            let what = format!("a message of {length} bytes in {} left of a datagram", rest.len());
            rest = &[];
            return Some(Err(what));
        }
        let message = Message {
            kind: u16_at(rest, 4)?,
            flags: u16_at(rest, 6)?,
            sequence: u32_at(rest, 8)?,
            payload: &rest[HEADER..length],
        };
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Ok(message))
    })
}

/// What the kernel has for itself for what is not supported (`include/linux/errno.h`), and drivers let out: `bnxt_en` for a firmware that is
/// too old for a mode of the embedded switch.
const ENOTSUPP: i32 = 524;

/// What an error or done message says: the error number (`None`: no error) and the kernel's own words.
pub fn verdict(message: &Message<'_>) -> (Option<Errno>, Option<String>) {
    let code = i32_at(message.payload, 0).unwrap_or(0);
    let attributes_at = if message.kind == NLMSG_DONE {
        4
    } else if message.flags & NLM_F_CAPPED != 0 {
        4 + HEADER
    } else {
        let repeated = u32_at(message.payload, 4).unwrap_or(0) as usize;
        4_usize.saturating_add(repeated.checked_next_multiple_of(4).unwrap_or(usize::MAX))
    };
    let words = (message.flags & NLM_F_ACK_TLVS != 0)
        .then(|| message.payload.get(attributes_at..))
        .flatten()
        .and_then(|bytes| {
            attributes(bytes).find(|(kind, _)| *kind == NLMSGERR_ATTR_MSG).map(|(_, value)| text(value))
        });
    let errno = match code.checked_abs().unwrap_or(i32::MAX) {
        0 => None,
        ENOTSUPP => Some(Errno::EOPNOTSUPP),
        code => Some(Errno::from_raw(code)),
    };
    (errno, words)
}

/// The attributes in `bytes`, as kind and value; ends at the first whose length is impossible.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(bytes).map_while(|attribute| {
        let attribute: NlaBuffer<&[u8]> = attribute.ok()?;
        let kind = attribute.kind();
        let length = attribute.length() as usize;
        attribute.into_inner().get(4..length).map(|value| (kind, value))
    })
}

/// The value of the first attribute of this kind.
pub fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find_map(|(kind, value)| (kind == wanted).then_some(value))
}

/// A string attribute, without the zero that ends it.
pub fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

/// The number at `offset`, in the machine's byte order.
pub fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    let field = bytes.get(offset..offset.checked_add(2)?)?;
    Some(u16::from_ne_bytes(field.try_into().ok()?))
}

/// The number at `offset`, in the machine's byte order.
pub fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let field = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_ne_bytes(field.try_into().ok()?))
}

/// The number at `offset`, in the machine's byte order.
pub fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let field = bytes.get(offset..offset.checked_add(8)?)?;
    Some(u64::from_ne_bytes(field.try_into().ok()?))
}

fn i32_at(bytes: &[u8], offset: usize) -> Option<i32> {
    u32_at(bytes, offset).map(u32::cast_signed)
}
