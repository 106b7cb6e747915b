//! What drives answer to Identify (NVM Express Base Specification 2.0, 5.17.2; NVM Command Set Specification 1.0, 4.1.5.1). The bytes come
//! from outside: they are believed only as far as they make sense.

use std::collections::BTreeSet;

use penstock_model::{
    ByteSize, VfIndex,
    inventory::{FlexibleResources, SecondaryController},
};
use thiserror::Error;

/// The length of an answer, in bytes.
pub const LENGTH: usize = 4096;
/// An answer.
pub type IdentifyData = [u8; LENGTH];

/// Bytes of a header and of an entry in the Secondary Controller List.
const ENTRY: usize = 32;
/// The most entries that one answer holds.
const MOST_SECONDARY: usize = LENGTH / ENTRY - 1;
/// The most identifiers in a Controller List, after their number.
pub(super) const MOST_CONTROLLERS: usize = LENGTH / 2 - 1;
/// The most identifiers in a Namespace List.
pub(super) const MOST_NAMESPACES: usize = LENGTH / 4;

/// An answer that contradicts the specification.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MalformedIdentify {
    /// More entries than an answer holds.
    #[error("the {list} says that it has {said} entries, and {most} fit in it")]
    TooLong {
        /// The list.
        list: &'static str,
        /// How many it says.
        said: usize,
        /// How many it can have.
        most: usize,
    },
    /// Identifiers that do not rise.
    #[error("the {list} has {next} where a number above {before} should be")]
    Unordered {
        /// The list.
        list: &'static str,
        /// The number before.
        before: u32,
        /// The number that is no higher.
        next: u32,
    },
    /// A VF that no PF can have.
    #[error("the secondary controller {controller} is said to be VF number {number}, which no PF can have")]
    NoSuchVf {
        /// The controller's identifier.
        controller: u16,
        /// Its VFN.
        number: u16,
    },
    /// A namespace whose size is no number of bytes.
    #[error("{blocks} blocks of 2^{shift} bytes are no size of a namespace")]
    NoSize {
        /// NSZE.
        blocks: u64,
        /// LBADS.
        shift: u8,
    },
}

/// What a controller says of itself (CNS 01h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerIdentity {
    /// Its identifier (CNTLID).
    pub controller: u16,
    /// Whether it manages and attaches namespaces (OACS bit 3).
    pub attaches_namespaces: bool,
    /// Whether it gives resources to VFs (OACS bit 7).
    pub manages_virtualization: bool,
}

/// Identify Controller.
pub fn controller(bytes: &IdentifyData) -> ControllerIdentity {
    let oacs = u16_at(bytes, 256);
    ControllerIdentity {
        controller: u16_at(bytes, 78),
        attaches_namespaces: oacs & 1 << 3 != 0,
        manages_virtualization: oacs & 1 << 7 != 0,
    }
}

/// Primary Controller Capabilities (CNS 14h): queues, then interrupt vectors. A drive that moves one of them not at all (CRT) has none.
pub fn primary_capabilities(bytes: &IdentifyData) -> (FlexibleResources, FlexibleResources) {
    let of = |bit: u8, at: usize| {
        if bytes[4] & 1 << bit == 0 {
            return FlexibleResources::default();
        }
        FlexibleResources {
            total: u32_at(bytes, at),
            held_by_pf: u16_at(bytes, at + 8),
            most: u16_at(bytes, at + 12),
        }
    };
    (of(0, 32), of(1, 64))
}

/// One answer of the Secondary Controller List (CNS 15h).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecondaryList {
    /// Those that are VFs.
    pub vfs: Vec<SecondaryController>,
    /// Where the next answer begins, when there is more.
    pub next: Option<u16>,
}

/// Secondary Controller List.
///
/// # Errors
///
/// [`MalformedIdentify`]: more entries than fit, identifiers that do not rise, a VF that no PF can have.
pub fn secondary_list(bytes: &IdentifyData) -> Result<SecondaryList, MalformedIdentify> {
    let list = "secondary controller list";
    let said = usize::from(bytes[0]);
    if said > MOST_SECONDARY {
        return Err(MalformedIdentify::TooLong { list, said, most: MOST_SECONDARY });
    }
    let mut vfs = Vec::new();
    let mut last = None;
    for entry in bytes[ENTRY..].chunks_exact(ENTRY).take(said) {
        let controller = u16_at(entry, 0);
        rises(list, last.map(u32::from), controller.into())?;
        last = Some(controller);
        // 0: a secondary controller that is no VF.
        let Some(index) = u16_at(entry, 8).checked_sub(1) else { continue };
        let vf = VfIndex::new(index);
        let vf = vf.ok_or(MalformedIdentify::NoSuchVf { controller, number: index + 1 })?;
        vfs.push(SecondaryController {
            vf,
            controller,
            online: entry[4] & 1 != 0,
            queues: u16_at(entry, 10),
            interrupts: u16_at(entry, 12),
        });
    }
    let next = last.filter(|_| said == MOST_SECONDARY).and_then(|last| last.checked_add(1));
    Ok(SecondaryList { vfs, next })
}

/// A Controller List (CNS 12h, 13h): identifiers that rise.
///
/// # Errors
///
/// [`MalformedIdentify`]: more entries than fit, or identifiers that do not rise.
pub fn controller_list(bytes: &IdentifyData) -> Result<BTreeSet<u16>, MalformedIdentify> {
    let list = "list of controllers";
    let said = usize::from(u16_at(bytes, 0));
    if said > MOST_CONTROLLERS {
        return Err(MalformedIdentify::TooLong { list, said, most: MOST_CONTROLLERS });
    }
    let mut controllers = BTreeSet::new();
    for entry in bytes[2..].chunks_exact(2).take(said) {
        let controller = u16_at(entry, 0);
        rises(list, controllers.last().copied().map(u32::from), controller.into())?;
        controllers.insert(controller);
    }
    Ok(controllers)
}

/// The Controller List that Namespace Attachment is given, with one controller in it.
pub(super) fn list_of(controller: u16) -> IdentifyData {
    let mut bytes = [0; LENGTH];
    bytes[..2].copy_from_slice(&1u16.to_le_bytes());
    bytes[2..4].copy_from_slice(&controller.to_le_bytes());
    bytes
}

/// A Namespace List (CNS 02h, 10h) of the identifiers above `after`: they rise, and end at the first 0.
///
/// # Errors
///
/// [`MalformedIdentify`]: identifiers that do not rise.
pub fn namespace_list(bytes: &IdentifyData, after: u32) -> Result<Vec<u32>, MalformedIdentify> {
    let mut namespaces = Vec::new();
    for entry in bytes.chunks_exact(4) {
        let namespace = u32_at(entry, 0);
        if namespace == 0 {
            break;
        }
        rises("list of namespaces", Some(namespaces.last().copied().unwrap_or(after)), namespace)?;
        namespaces.push(namespace);
    }
    Ok(namespaces)
}

/// What a namespace is (CNS 00h, 11h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceIdentity {
    /// Its size: NSZE blocks of the length that FLBAS picks.
    pub size: ByteSize,
    /// Whether several controllers may have it at once (NMIC bit 0).
    pub shared: bool,
}

/// Identify Namespace. `None`: the identifier is no namespace's, which is answered with zeros.
///
/// # Errors
///
/// [`MalformedIdentify::NoSize`].
pub fn namespace(bytes: &IdentifyData) -> Result<Option<NamespaceIdentity>, MalformedIdentify> {
    let blocks = u64_at(bytes, 0);
    if blocks == 0 {
        return Ok(None);
    }
    // Bits 6:5 are the upper ones; they are 0 where there are no more than 16 formats.
    let format = usize::from(bytes[26] & 0xf | (bytes[26] >> 1 & 0x30));
    let shift = bytes[128 + 4 * format + 2];
    // A block has at least 512 bytes.
    let length = (9..64).contains(&shift).then(|| 1u64 << shift);
    let size = length.and_then(|length| blocks.checked_mul(length));
    let size = size.ok_or(MalformedIdentify::NoSize { blocks, shift })?;
    Ok(Some(NamespaceIdentity { size: ByteSize(size), shared: bytes[30] & 1 != 0 }))
}

fn rises(list: &'static str, before: Option<u32>, next: u32) -> Result<(), MalformedIdentify> {
    match before {
        Some(before) if next <= before => Err(MalformedIdentify::Unordered { list, before, next }),
        _ => Ok(()),
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests;
