//! Sizes, MTUs and sets of CPUs.

use std::{collections::BTreeSet, fmt, str::FromStr};

use thiserror::Error;

/// A number of bytes, written with a binary unit: `256MiB`, `1GiB`, `4096`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = UNITS
            .into_iter()
            .find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor))
            .unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

/// Text that is no size.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not a size like 256MiB, 1GiB or a number of bytes")]
pub struct ParseSizeError(String);

impl FromStr for ByteSize {
    type Err = ParseSizeError;

    /// Reads a whole number and a unit: B, KiB, MiB, GiB, TiB, or K, M, G, T with the same binary meaning.
    fn from_str(text: &str) -> Result<ByteSize, ParseSizeError> {
        let fail = || ParseSizeError(text.to_owned());
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = text[..digits].parse().map_err(|_| fail())?;
        let unit = text[digits..].trim();
        let factor = UNITS
            .into_iter()
            .find(|(name, factor)| {
                unit == *name || (*factor > 1 && unit == &name[..1]) || (*factor == 1 && unit.is_empty())
            })
            .map(|(_, factor)| factor)
            .ok_or_else(fail)?;
        number.checked_mul(factor).map(ByteSize).ok_or_else(fail)
    }
}

crate::names::text_serde!(ByteSize, "A size in bytes with a binary unit.", "256MiB");

/// A set of CPU numbers in the kernel's list format, `0-3,8` (`lib/bitmap-str.c`, `bitmap_parselist`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuSet(pub BTreeSet<u32>);

/// CPU numbers above this are refused, so that no text can ask for unbounded memory (Linux: `NR_CPUS` <= 8192).
const MAX_CPU: u32 = 65_535;

/// Text that is no CPU list.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not a CPU list like 0-3,8")]
pub struct ParseCpuSetError(String);

impl FromStr for CpuSet {
    type Err = ParseCpuSetError;

    fn from_str(text: &str) -> Result<CpuSet, ParseCpuSetError> {
        text.parse().map(|list: CpuList| list.set())
    }
}

/// A [`CpuSet`] as it is written: a few characters may stand for 65536 CPUs, so that a file may hold more of them than
/// would fit into memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuList(Vec<(u32, u32)>);

impl CpuList {
    /// At most how many CPUs are in it.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    /// The CPUs.
    pub fn set(&self) -> CpuSet {
        CpuSet(self.0.iter().flat_map(|(first, last)| *first..=*last).collect())
    }
}

impl FromStr for CpuList {
    type Err = ParseCpuSetError;

    fn from_str(text: &str) -> Result<CpuList, ParseCpuSetError> {
        let fail = || ParseCpuSetError(text.to_owned());
        let number = |field: &str| field.parse::<u32>().ok().filter(|cpu| *cpu <= MAX_CPU).ok_or_else(fail);
        let ranges = text.trim().split(',').filter(|range| !range.is_empty());
        let ranges = ranges.map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (number(first)?, number(last)?);
            if first > last { Err(fail()) } else { Ok((first, last)) }
        });
        ranges.collect::<Result<Vec<_>, _>>().map(CpuList)
    }
}

impl<'de> serde::Deserialize<'de> for CpuList {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<CpuList, D::Error> {
        let text = <std::borrow::Cow<'_, str>>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            if first == last {
                write!(f, "{separator}{first}")?
            } else {
                write!(f, "{separator}{first}-{last}")?
            }
            separator = ",";
        }
        Ok(())
    }
}

impl serde::Serialize for CpuSet {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for CpuSet {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<CpuSet, D::Error> {
        CpuList::deserialize(from).map(|list| list.set())
    }
}

impl schemars::JsonSchema for CpuSet {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CpuSet".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        // One CPU may be written as the number that it is.
        schemars::json_schema!({
            "type": ["string", "integer"],
            "minimum": 0,
            "description": "A set of CPUs in the kernel's list format.",
            "examples": ["0-3,8"]
        })
    }
}

/// A maximum transmission unit in bytes, 68 (IPv4's least, RFC 791) to 65535.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct Mtu(#[schemars(range(min = 68, max = 65535))] u32);

impl Mtu {
    /// The MTU `bytes`; `None` when it is out of range.
    pub const fn new(bytes: u32) -> Option<Mtu> {
        if bytes >= 68 && bytes <= 65_535 { Some(Mtu(bytes)) } else { None }
    }

    /// The number of bytes.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> serde::Deserialize<'de> for Mtu {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Mtu, D::Error> {
        let bytes = u64::deserialize(from)?;
        u32::try_from(bytes)
            .ok()
            .and_then(Mtu::new)
            .ok_or_else(|| serde::de::Error::custom(format!("{bytes} is no MTU: it goes from 68 to 65535")))
    }
}
