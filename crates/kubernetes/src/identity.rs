//! Names that the cluster knows: the driver's, the node's, the devices'.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The driver's name unless another is given: what slices, claims and device classes say.
pub const DRIVER: &str = "sriov.penstock.dev";

/// Where the agent keeps what it has to remember, unless told otherwise.
pub const STATE: &str = "/var/lib/penstock/kubernetes";

/// The taint of a device that is not as the model says.
pub const DRIFT: &str = "penstock.dev/drift";

/// The taint of a device that somebody else than a claim uses now.
pub const IN_USE: &str = "penstock.dev/in-use";

/// The taint of a device that a change of the machine is about to take away.
pub const VANISHING: &str = "penstock.dev/rollout";

/// The annotation of a Node that a controller has cordoned: the number of the change.
pub const CORDONED: &str = "penstock.dev/cordoned-for-change";

/// Text that is no name of its kind.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{text:?} is no {kind}: expected at most {longest} small letters, digits, `-` and `.`, with a letter or digit at both ends of each part"
)]
pub struct ObjectNameError {
    text: String,
    kind: &'static str,
    longest: usize,
}

/// Whether `text` is a DNS label (RFC 1123, 2.1; `IsDNS1123Label` in apimachinery).
pub fn is_label(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

/// Whether `text` is a DNS subdomain (`IsDNS1123Subdomain` in apimachinery).
pub fn is_subdomain(text: &str, longest: usize) -> bool {
    // Its parts may be longer than those of the DNS: apimachinery bounds the whole alone.
    let part = |part: &str| {
        let edge = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let bytes = part.as_bytes();
        edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    };
    text.len() <= longest && text.split('.').all(part)
}

macro_rules! subdomain {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $longest:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = ObjectNameError;

            fn from_str(text: &str) -> Result<$name, ObjectNameError> {
                match is_subdomain(text, $longest) {
                    true => Ok($name(text.to_owned())),
                    false => Err(ObjectNameError { text: text.to_owned(), kind: $kind, longest: $longest }),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

subdomain!(
    /// The name of a driver: a DNS subdomain of at most 63 characters (`resource.k8s.io/v1`, ResourceSliceSpec).
    DriverName,
    "name of a driver",
    63
);
subdomain!(
    /// The name of a Node, or of another object that a DNS subdomain names.
    NodeName,
    "name of an object",
    253
);

/// The name of a device in its pool, a DNS label: `net0-3` is VF 3 of the NIC `net0`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceName(String);

impl DeviceName {
    /// That of a VF of the NIC whose label is `nic`.
    pub(crate) fn of(nic: &str, vf: penstock_model::VfIndex) -> DeviceName {
        DeviceName(format!("{nic}-{}", vf.get()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for DeviceName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for DeviceName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_the_api_server_takes() {
        for good in ["sriov.penstock.dev", "a", "node-1", "0.a-b.c"] {
            assert_eq!(good.parse::<DriverName>().unwrap().as_str(), good);
        }
        let long = "a".repeat(64);
        for bad in ["", ".", "a.", "-a", "a-", "A", "a_b", "a..b", "a/b", "é", "a\n", long.as_str()] {
            assert!(bad.parse::<DriverName>().is_err(), "{bad:?}");
        }
        assert!(long.parse::<NodeName>().is_ok());
        let error = "A".parse::<DriverName>().unwrap_err().to_string();
        assert!(error.starts_with("\"A\" is no name of a driver"), "{error}");
    }
}
