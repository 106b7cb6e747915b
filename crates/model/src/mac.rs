//! Ethernet MAC addresses, and the ones that Penstock derives for virtual functions.

use std::{fmt, str::FromStr};

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::vf::VfIndex;

/// A 48-bit Ethernet MAC address. The default is zero, which is none.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac([u8; 6]);

impl Mac {
    /// The address with these octets, in transmission order.
    pub const fn new(octets: [u8; 6]) -> Mac {
        Mac(octets)
    }

    /// The octets, in transmission order.
    pub const fn octets(self) -> [u8; 6] {
        self.0
    }

    /// Whether the group bit is set: a multicast or broadcast address, which no function can own.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether all octets are zero, which the kernel and drivers read as "none".
    pub fn is_zero(self) -> bool {
        self.0 == [0; 6]
    }

    /// Whether the address is locally administered (U/L bit set, IEEE 802-2014, 8.2).
    pub const fn is_local(self) -> bool {
        self.0[0] & 2 != 0
    }

    /// The address of VF `index` of the PF whose permanent address is `pf`, when the model gives none.
    ///
    /// Locally administered and unicast. The last octet is the low byte of the index, so that a reader of a packet
    /// dump knows the VF; octets 2 to 5 are the first four of the SHA-256 of the PF's six, so that neighbouring PFs
    /// (…:ea and …:eb) never meet; the six free bits of the first octet are the high bits of the index. **This is
    /// part of the file format: it never changes**, or guests would change their address under an upgrade.
    pub fn derived(pf: Mac, index: VfIndex) -> Mac {
        let hash = Sha256::digest(pf.0);
        let [high, low] = index.get().to_be_bytes();
        Mac([(high << 2) | 2, hash[0], hash[1], hash[2], hash[3], low])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is not a MAC address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not a MAC address like 02:00:00:00:01:04")]
pub struct ParseMacError(String);

impl FromStr for Mac {
    type Err = ParseMacError;

    /// Reads six two-digit hexadecimal octets separated by `:` or `-`, in either case.
    fn from_str(text: &str) -> Result<Mac, ParseMacError> {
        let fail = || ParseMacError(text.to_owned());
        let mut octets = [0; 6];
        let mut fields = text.split(if text.contains('-') { '-' } else { ':' });
        for octet in &mut octets {
            let field = fields.next().ok_or_else(fail)?;
            if field.len() != 2 || !field.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(fail());
            }
            *octet = u8::from_str_radix(field, 16).map_err(|_| fail())?;
        }
        fields.next().is_none().then_some(Mac(octets)).ok_or_else(fail)
    }
}

crate::names::text_serde!(
    Mac,
    "An Ethernet MAC address.",
    "02:00:00:00:01:04",
    "^[0-9A-Fa-f]{2}((:[0-9A-Fa-f]{2}){5}|(-[0-9A-Fa-f]{2}){5})$"
);

#[cfg(test)]
mod tests {
    use super::*;

    /// The format's promise: these never change.
    #[test]
    fn derived_addresses_are_what_they_always_were() {
        let pf: Mac = "0c:c4:7a:9a:61:ea".parse().unwrap();
        let next: Mac = "0C-C4-7A-9A-61-EB".parse().unwrap();
        let seen: Vec<String> = [(pf, 0), (pf, 3), (pf, 300), (next, 3)]
            .map(|(pf, n)| Mac::derived(pf, VfIndex::new(n).unwrap()).to_string())
            .into();
        assert_eq!(
            seen,
            ["02:c8:59:e0:4d:00", "02:c8:59:e0:4d:03", "06:c8:59:e0:4d:2c", "02:88:3d:0c:e3:03"]
        );
    }
}
