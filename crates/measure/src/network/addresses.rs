//! Addresses for the time of a run. Pure.

use std::net::Ipv4Addr;

/// The range that is set aside for measuring network devices (RFC 2544, C.2.2; RFC 6890): 198.18.0.0/15. No machine is
/// reached by it, so that nothing else is led astray by an address from it.
const FIRST: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const PREFIX: u8 = 15;

/// Prefix length of the network that two ends share.
pub const LENGTH: u8 = 30;

/// So many pairs of addresses, each two alone in a network, that lie in none of the networks `taken`; fewer when the range
/// is full. The same networks give the same addresses.
pub fn pairs(count: usize, taken: &[(Ipv4Addr, u8)]) -> Vec<[Ipv4Addr; 2]> {
    let taken: Vec<(u32, u32)> =
        taken.iter().filter(|(_, prefix)| *prefix >= PREFIX).map(|network| bounds(*network)).collect();
    let last = FIRST + (1 << (32 - PREFIX)) - 1;
    (FIRST..=last)
        .step_by(1 << (32 - LENGTH))
        .filter(|start| taken.iter().all(|(from, to)| *to < *start || *from > *start + 3))
        .map(|start| [Ipv4Addr::from(start + 1), Ipv4Addr::from(start + 2)])
        .take(count)
        .collect()
}

/// First and last address. A network that is wider than the range is not asked about: the narrower one is preferred to it.
fn bounds((address, prefix): (Ipv4Addr, u8)) -> (u32, u32) {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
    let start = u32::from(address) & mask;
    (start, start | !mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_keep_out_of_what_is_taken() {
        let plain = pairs(2, &[(address("10.0.0.0"), 8), (address("0.0.0.0"), 0), (address("198.0.0.0"), 8)]);
        assert_eq!(plain[0], [address("198.18.0.1"), address("198.18.0.2")]);
        assert_eq!(plain[1], [address("198.18.0.5"), address("198.18.0.6")]);
        let beside = pairs(2, &[(address("198.18.0.6"), 32), (address("198.18.0.8"), 29)]);
        assert_eq!(beside[0][0], address("198.18.0.1"));
        assert_eq!(beside[1][0], address("198.18.0.17"));
        let half = pairs(1, &[(address("198.18.3.4"), 16)]);
        assert_eq!(half[0][0], address("198.19.0.1"));
        assert!(pairs(1, &[(address("198.18.0.0"), 15)]).is_empty());
        let all = pairs(usize::MAX, &[]);
        assert_eq!(all.len(), 1 << 15);
        assert_eq!(all[all.len() - 1][1], address("198.19.255.254"));
    }
}
