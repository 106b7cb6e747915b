//! What a file says of NVMe drives, and of the VFs of drives that guests own.

use std::fmt;

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};

use crate::{DriveMatch, DriveVfName, VfCount};

/// An NVMe drive with SR-IOV: one PF with its VFs. All of it has defaults; `SSD0:` with nothing behind it is a drive.
///
/// ```yaml
/// SSD0:
///   match: {serial: S6EUNX0R123456}
///   vfs: 4
///   queues: 2
/// ```
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a drive: a mapping like {vfs: 4}")]
#[schemars(rename = "Drive")]
pub(crate) struct DriveDocument {
    /// Which drive it is. Default: any NVMe drive with room for the VFs that no other drive claims more exactly.
    #[serde(rename = "match")]
    pub matching: DriveMatch,
    /// How many VFs it has. Default: one more than the highest index that a guest uses.
    pub vfs: Option<VfCount>,
    /// Pairs of I/O queues of each VF that a guest owns. Default: a VF that has some keeps them; else the same for all, at most one for each
    /// CPU of the guest.
    #[schemars(range(min = 1, max = 65534))]
    pub queues: Option<u16>,
}

/// A VF of a drive that a guest owns: only its name, or a mapping.
#[derive(Debug, JsonSchema)]
#[schemars(untagged, rename = "GuestDriveEntry")]
pub(crate) enum GuestDriveEntry {
    /// `SSD0#3`.
    Name(DriveVfName),
    /// `{vf: SSD0#3, namespaces: [2]}`.
    Settings(GuestDriveDocument),
    /// An entry that was wrong and has been reported.
    #[schemars(skip)]
    Spoiled,
}

impl GuestDriveEntry {
    /// The VF that it names; `None` of one that was wrong.
    pub fn name(&self) -> Option<&DriveVfName> {
        match self {
            GuestDriveEntry::Name(name) => Some(name),
            GuestDriveEntry::Settings(document) => document.vf.as_ref(),
            GuestDriveEntry::Spoiled => None,
        }
    }
}

impl<'de> Deserialize<'de> for GuestDriveEntry {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<GuestDriveEntry, D::Error> {
        struct Entry;

        impl<'de> Visitor<'de> for Entry {
            type Value = GuestDriveEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a VF of a drive like SSD0#3 or {vf: SSD0#3, namespaces: [2]}")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<GuestDriveEntry, E> {
                text.parse().map(GuestDriveEntry::Name).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<GuestDriveEntry, A::Error> {
                let document = GuestDriveDocument::deserialize(MapAccessDeserializer::new(map))?;
                match document.vf {
                    Some(_) => Ok(GuestDriveEntry::Settings(document)),
                    None => Err(de::Error::custom(
                        "this names no VF of a drive: it needs `vf`, like {vf: SSD0#3}",
                    )),
                }
            }

            fn visit_none<E: de::Error>(self) -> Result<GuestDriveEntry, E> {
                Ok(GuestDriveEntry::Spoiled)
            }
        }

        from.deserialize_any(Entry)
    }
}

/// A VF of a drive that a guest owns.
///
/// ```yaml
/// {vf: SSD0#1, namespaces: [2], queues: 4}
/// ```
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a VF of a drive like {vf: SSD0#3, namespaces: [2]}")]
#[schemars(rename = "GuestDrive")]
pub(crate) struct GuestDriveDocument {
    /// The VF, like `SSD0#3`. Must be given.
    pub vf: Option<DriveVfName>,
    /// The namespaces that it has, by identifier (NSID), and no others. Default: those that are attached to it.
    #[schemars(inner(range(min = 1, max = 4_294_967_294_u32)))]
    pub namespaces: Vec<u32>,
    /// Pairs of I/O queues. Default: what the drive says.
    #[schemars(range(min = 1, max = 65534))]
    pub queues: Option<u16>,
}
