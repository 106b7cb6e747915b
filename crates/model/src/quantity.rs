//! Sizes, MTUs and sets of CPUs.

use std::{collections::BTreeSet, fmt, iter, marker::PhantomData, ops::RangeInclusive, str::FromStr};

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
pub enum ParseSizeError {
    /// Nothing like a number with a unit.
    #[error("{0:?} is not a size like 256MiB, 1GiB or a number of bytes")]
    NoSize(String),
    /// A unit that some count by thousands and some by 1024.
    #[error("{text:?} is {binary} to some and {decimal} bytes to others: write one of the two")]
    Ambiguous {
        /// What was written.
        text: String,
        /// The same with a binary unit.
        binary: String,
        /// Bytes, counted by thousands.
        decimal: u128,
    },
    /// More than 64 bits can count.
    #[error("{0:?} is more than a size can be: at most 16777215TiB")]
    TooLarge(String),
    /// A number that begins with a 0.
    #[error("{0:?} begins with a 0: write the number without it")]
    LeadingZero(String),
}

impl FromStr for ByteSize {
    type Err = ParseSizeError;

    /// Reads a whole number and a unit: B, KiB, MiB, GiB or TiB. A number alone counts bytes.
    fn from_str(text: &str) -> Result<ByteSize, ParseSizeError> {
        let (number, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
        let unit = unit.trim();
        if number.is_empty() {
            return Err(ParseSizeError::NoSize(text.to_owned()));
        }
        if number.len() > 1 && number.starts_with('0') {
            return Err(ParseSizeError::LeadingZero(text.to_owned()));
        }
        let known =
            UNITS.into_iter().find(|(name, factor)| unit == *name || (*factor == 1 && unit.is_empty()));
        let Some((_, factor)) = known else {
            let letter = unit.strip_suffix(['B', 'b']).unwrap_or(unit);
            let powers = [4, 3, 2, 1].map(|power| 1000_u128.pow(power));
            let meant =
                UNITS.into_iter().zip(powers).find(|((unit, _), _)| letter.eq_ignore_ascii_case(&unit[..1]));
            let decimal = |power| number.parse::<u128>().ok()?.checked_mul(power);
            return Err(match meant.and_then(|((unit, _), power)| Some((unit, decimal(power)?))) {
                Some((unit, decimal)) => ParseSizeError::Ambiguous {
                    text: text.to_owned(),
                    binary: format!("{number}{unit}"),
                    decimal,
                },
                None => ParseSizeError::NoSize(text.to_owned()),
            });
        };
        let size = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
        size.map(ByteSize).ok_or_else(|| ParseSizeError::TooLarge(text.to_owned()))
    }
}

crate::names::text_serde!(
    ByteSize,
    "A size in bytes with a binary unit.",
    "256MiB",
    "^(0|[1-9][0-9]{0,19})\\s*(B|KiB|MiB|GiB|TiB)?\\s*$",
    ["string", "integer"]
);

/// A set of CPU numbers in the kernel's list format, `0-3,8` (`lib/bitmap-str.c`, `bitmap_parselist`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuSet(pub BTreeSet<u32>);

/// CPU numbers above this are refused, so that no text can ask for unbounded memory (Linux: `NR_CPUS` <= 8192).
const MAX_CPU: u32 = 65_535;

/// Text that is no CPU list.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not a CPU list like 0-3,8: {why}")]
pub struct ParseCpuSetError {
    text: String,
    why: String,
}

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

    /// The list as a set, one entry for each CPU.
    pub fn set(&self) -> CpuSet {
        CpuSet(self.0.iter().flat_map(|(first, last)| *first..=*last).collect())
    }
}

impl FromStr for CpuList {
    type Err = ParseCpuSetError;

    fn from_str(text: &str) -> Result<CpuList, ParseCpuSetError> {
        let fail = |why: String| ParseCpuSetError { text: text.to_owned(), why };
        read_ranges(text, "CPU", MAX_CPU).map(CpuList).map_err(fail)
    }
}

/// Reads a list like `0-3,8` of numbers of a `what` up to `most`; why it is none, else.
pub(crate) fn read_ranges(text: &str, what: &str, most: u32) -> Result<Vec<(u32, u32)>, String> {
    let number = |field: &str| {
        if field.is_empty() || !field.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!("{field:?} is no number of a {what}"));
        }
        // Octal for some, decimal for others.
        if field.len() > 1 && field.starts_with('0') {
            return Err(format!("{field} begins with a 0"));
        }
        let number = field.parse::<u32>().ok().filter(|number| *number <= most);
        number.ok_or_else(|| format!("{field} is past {most}"))
    };
    let ranges = text.trim().split(',').filter(|range| !range.is_empty());
    let ranges = ranges.map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (number(first)?, number(last)?);
        if first > last { Err(format!("{range} goes backwards")) } else { Ok((first, last)) }
    });
    ranges.collect()
}

/// Numbers in order as the ranges that they make up, each with its first and last.
pub(crate) fn ranges(numbers: impl IntoIterator<Item = u32>) -> impl Iterator<Item = (u32, u32)> {
    let mut numbers = numbers.into_iter().peekable();
    iter::from_fn(move || {
        let first = numbers.next()?;
        let mut last = first;
        while let Some(next) = numbers.next_if_eq(&(last + 1)) {
            last = next;
        }
        Some((first, last))
    })
}

/// Writes numbers as such a list.
pub(crate) fn write_ranges(
    numbers: impl IntoIterator<Item = u32>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let mut separator = "";
    for (first, last) in ranges(numbers) {
        if first == last {
            write!(f, "{separator}{first}")?
        } else {
            write!(f, "{separator}{first}-{last}")?
        }
        separator = ",";
    }
    Ok(())
}

/// A list of numbers in a file: text, a number, or a list of such: `2-3,8`, `[2, 3, 8]`.
pub(crate) trait NumberList:
    Default + FromStr<Err: fmt::Display> + serde::de::DeserializeOwned
{
    /// What is expected, for errors.
    const EXPECTED: &'static str;

    /// One more item of a list.
    fn join(&mut self, more: Self);
}

/// Reads a [`NumberList`].
pub(crate) fn number_list<'de, D: serde::Deserializer<'de>, T: NumberList>(from: D) -> Result<T, D::Error> {
    struct List<T>(PhantomData<T>);

    impl<'de, T: NumberList> serde::de::Visitor<'de> for List<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(T::EXPECTED)
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }

        fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
            self.visit_str(&number.to_string())
        }

        /// An item of a list that was wrong and has been reported.
        fn visit_none<E: serde::de::Error>(self) -> Result<T, E> {
            Ok(T::default())
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<T, A::Error> {
            let mut list = T::default();
            while let Some(item) = items.next_element()? {
                list.join(item);
            }
            Ok(list)
        }
    }

    from.deserialize_any(List(PhantomData))
}

impl NumberList for CpuList {
    const EXPECTED: &'static str = "a CPU list like 0-3,8 or [0, 8]";

    fn join(&mut self, more: CpuList) {
        self.0.extend(more.0);
    }
}

impl<'de> serde::Deserialize<'de> for CpuList {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<CpuList, D::Error> {
        number_list(from)
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_ranges(self.0.iter().copied(), f)
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
        let text = "^\\s*((0|[1-9][0-9]{0,4})(-(0|[1-9][0-9]{0,4}))?)?(,((0|[1-9][0-9]{0,4})(-(0|[1-9][0-9]{0,4}))?)?)*\\s*$";
        // One CPU may be written as the number that it is.
        schemars::json_schema!({
            "type": ["string", "integer", "array"],
            "minimum": 0,
            "maximum": MAX_CPU,
            "pattern": text,
            "items": { "type": ["string", "integer"], "minimum": 0, "maximum": MAX_CPU, "pattern": text },
            "description": "A set of CPUs in the kernel's list format, or a list of such.",
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
        let bytes = ranged(from, "MTU", 68..=65_535)?;
        let mtu = u32::try_from(bytes).ok().and_then(Mtu::new);
        mtu.ok_or_else(|| serde::de::Error::custom("it is out of range"))
    }
}

/// Reads a whole number in `range`; the error tells the range of a `what`.
pub(crate) fn ranged<'de, D: serde::Deserializer<'de>>(
    from: D,
    what: &'static str,
    range: RangeInclusive<u64>,
) -> Result<u64, D::Error> {
    struct Ranged {
        what: &'static str,
        range: RangeInclusive<u64>,
    }

    impl Ranged {
        fn check<E: serde::de::Error>(
            &self,
            value: impl Copy + fmt::Display + TryInto<u64>,
        ) -> Result<u64, E> {
            let inside = value.try_into().ok().filter(|value| self.range.contains(value));
            inside.ok_or_else(|| E::custom(format!("{value} is no {}", self as &dyn serde::de::Expected)))
        }
    }

    impl serde::de::Visitor<'_> for Ranged {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}: it goes from {} to {}", self.what, self.range.start(), self.range.end())
        }

        fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<u64, E> {
            self.check(value)
        }

        fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<u64, E> {
            self.check(value)
        }
    }

    from.deserialize_u64(Ranged { what, range })
}
