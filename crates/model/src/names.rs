//! Names that a model gives to NICs, guests and network interfaces, each checked once when read.

use std::{borrow::Borrow, fmt, str::FromStr};

use thiserror::Error;

/// What the machine itself is called where a place is named: a guest's cells would have the same ids as its own.
pub(crate) const RESERVED_GUEST_NAME: &str = "host";

/// The kinds of scalars as which YAML may read text that nobody quoted: `7`, `1e3`, `true`.
pub(crate) const SCALARS: [&str; 3] = ["string", "number", "boolean"];

/// Serialises a type as the text that its `Display` writes and its `FromStr` reads, and describes it so in the schema: all that
/// matches its pattern and is of these types. The pattern takes whatever `FromStr` takes.
macro_rules! text_serde {
    ($name:ident, $about:literal, $example:literal, $pattern:expr) => {
        crate::names::text_serde!($name, $about, $example, $pattern, ["string"]);
    };
    ($name:ident, $about:literal, $example:literal, $pattern:expr, $types:expr) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<$name, D::Error> {
                let text = <std::borrow::Cow<'_, str>>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": $types, "pattern": $pattern, "description": $about, "examples": [$example]
                })
            }
        }
    };
}
pub(crate) use text_serde;

/// A name that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is no {kind} name: {why}")]
pub struct NameError {
    text: String,
    kind: &'static str,
    why: &'static str,
}

/// Declares a name: text that passes `$check`, which returns why it does not.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $example:literal, $pattern:expr, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<$name, NameError> {
                let check: fn(&str) -> Option<&'static str> = $check;
                match check(text) {
                    None => Ok($name(text.to_owned())),
                    Some(why) => Err(NameError { text: text.to_owned(), kind: $kind, why }),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        // `Hash`, `Eq` and `Ord` are those of the text, as `Borrow` demands; a map can then be asked with a `&str`.
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        text_serde!($name, $kind, $example, $pattern, SCALARS);
    };
}

/// What [`word`] takes.
const WORD: &str = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,47}$";

/// Why `text` cannot name a thing that becomes part of file names, command lines and container names.
fn word(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        Some("it is empty")
    } else if text.len() > 48 {
        Some("it is longer than 48 characters")
    } else if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        Some("it must start with a letter or a digit")
    } else if !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
        Some("only letters, digits, '-', '_' and '.' may stand in it")
    } else {
        None
    }
}

name! {
    /// The name of a machine in a model.
    MachineName, "machine", "xeon-d", WORD, word
}
name! {
    /// The name of a NIC in a model: `NET0`, `NET1`, or what the user calls it.
    NicName, "NIC", "NET0", WORD, word
}
name! {
    /// The name of an NVMe drive in a model: `SSD0`, or what the user calls it.
    DriveName, "drive", "SSD0", WORD, word
}
name! {
    /// The name of a guest in a model; the container or VM that runs it is called `penstock-NAME`.
    GuestName, "guest", "linux-2", WORD, word
}
name! {
    /// The name of a network interface, as the kernel allows it (`net/core/dev.c`, `dev_valid_name`): at most 15
    /// bytes, no `/`, `:` or white space, not `.` or `..`. Penstock also refuses non-ASCII and a leading `-`.
    InterfaceName, "network interface", "eth0", "^(?![-]|\\.{1,2}$)[!-$&-.0-9;-~]{1,15}$", |text| {
        if text.is_empty() {
            Some("it is empty")
        } else if text.len() > 15 {
            Some("the kernel allows 15 characters")
        } else if text == "." || text == ".." || text.starts_with('-') {
            Some("it must not start with '-' or be '.' or '..'")
        } else if !text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'/' | b':' | b'%')) {
            Some("'/', ':', '%', white space and non-ASCII characters are not allowed")
        } else {
            None
        }
    }
}
name! {
    /// What firmware calls the place of a device: a slot by its number or name, as `/sys/bus/pci/slots` has it
    /// (`drivers/pci/slot.c`), or an onboard device by its label (`drivers/pci/pci-label.c`). At most 64 bytes without control
    /// characters and without white space at its ends.
    SlotName, "slot", "3", "^[^\\u0000-\\u001f\\u007f-\\u009f]{1,64}$", |text| {
        if text.is_empty() {
            Some("it is empty")
        } else if text.len() > 64 {
            Some("it is longer than 64 bytes")
        } else if text.contains(char::is_control) || text.trim() != text {
            Some("control characters, and white space at its ends, are not allowed")
        } else {
            None
        }
    }
}
