//! What is measured beside the paths that the machine has, as it is written.

use std::{convert::Infallible, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};

use crate::{ByteSize, GuestName, measurement::Expectation};

/// What is measured beside the paths that the machine has.
///
/// ```yaml
/// storage:
///   - {guest: osd-0, path: /var/tmp, size: 64MiB}
///   - {guest: osd-1, path: /dev/nvme0n1, write: on}
/// ```
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a mapping like {storage: [{guest: osd-0, path: /var/tmp}]}"
)]
#[schemars(rename = "Measure")]
pub(crate) struct MeasureDocument {
    /// Devices and directories that a guest is measured on, against the host. Default: none.
    pub storage: Vec<StorageEntry>,
}

/// A device or a directory that a guest is measured on.
#[derive(Debug, JsonSchema)]
#[schemars(untagged, inline)]
pub(crate) enum StorageEntry {
    /// `{guest: osd-0, path: /var/tmp}`.
    Settings(StorageDocument),
    /// An entry that was wrong and has been reported.
    #[schemars(skip)]
    Spoiled,
}

impl<'de> Deserialize<'de> for StorageEntry {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<StorageEntry, D::Error> {
        struct Entry;

        impl<'de> Visitor<'de> for Entry {
            type Value = StorageEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a guest and a path in it, like {guest: osd-0, path: /var/tmp}")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<StorageEntry, A::Error> {
                let document = StorageDocument::deserialize(MapAccessDeserializer::new(map))?;
                let missing = match (&document.guest, &document.path) {
                    (Some(_), Some(_)) => return Ok(StorageEntry::Settings(document)),
                    (None, _) => "this names no guest: it needs `guest`, like {guest: osd-0, path: /var/tmp}",
                    (_, None) => {
                        "this names nothing to measure: it needs `path`, a directory or a device in the guest"
                    }
                };
                Err(de::Error::custom(missing))
            }

            fn visit_none<E: de::Error>(self) -> Result<StorageEntry, E> {
                Ok(StorageEntry::Spoiled)
            }
        }

        from.deserialize_any(Entry)
    }
}

/// A device or a directory that a guest is measured on, against the same on the host.
///
/// ```yaml
/// {guest: osd-1, path: /dev/nvme0n1, host: /dev/nvme0n1, size: 64MiB, write: on}
/// ```
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a guest and a path in it, like {guest: osd-0, path: /var/tmp}"
)]
#[schemars(rename = "StorageTarget")]
pub(crate) struct StorageDocument {
    /// The guest. Must be given.
    pub guest: Option<GuestName>,
    /// Its absolute path inside the guest: a block device below `/dev`, or a directory in which a file is made and
    /// removed. Must be given.
    pub path: Option<String>,
    /// Its absolute path on the host. Default: of a container the device that it was given, or the same directory through
    /// its root; of a VM none, so that only the guest is measured.
    pub host: Option<String>,
    /// How much of it is read and written; a multiple of 128KiB. Default: 64MiB.
    pub size: Option<ByteSize>,
    /// Whether it is written to as well; what a device holds is lost then. Default: on for a directory, off for a device.
    pub write: Option<bool>,
}

/// What is to hold of the measurements: `vf-vf inside >= 0.8 x pf-pf`, `p99 <= 50us`.
// `None`: an entry that was wrong and has been reported.
#[derive(Debug, JsonSchema)]
#[schemars(with = "Expectation")]
pub(crate) struct ExpectLine(pub Option<String>);

impl FromStr for ExpectLine {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<ExpectLine, Infallible> {
        Ok(ExpectLine(Some(text.to_owned())))
    }
}

impl<'de> Deserialize<'de> for ExpectLine {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<ExpectLine, D::Error> {
        struct Line;

        impl Visitor<'_> for Line {
            type Value = ExpectLine;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a line like vf-vf inside >= 0.8 x pf-pf")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ExpectLine, E> {
                Ok(ExpectLine(Some(text.to_owned())))
            }

            fn visit_none<E: de::Error>(self) -> Result<ExpectLine, E> {
                Ok(ExpectLine(None))
            }
        }

        from.deserialize_any(Line)
    }
}
