//! What the frames of this process' guests look like: Ethernet, IPv4, and what is in it.

/// Ethernet addresses from guest `from` to guest `to`, as [`super::testpmd::mac`] gives them.
pub fn addresses(from: u8, to: u8) -> [u8; 12] {
    [2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from]
}

/// An Ethernet header from guest `from` to guest `to`, and that of an IPv4 datagram with so many bytes in it.
pub fn headers(from: u8, to: u8, protocol: u8, payload: usize) -> [u8; 34] {
    let length = (payload + 20) as u16;
    let mut ip = [0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1 + from, 10, 0, 0, 1 + to];
    ip[2..4].copy_from_slice(&length.to_be_bytes());
    let checksum = !sum(&ip);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut all = [0; 34];
    all[..12].copy_from_slice(&addresses(from, to));
    all[12..14].copy_from_slice(&[8, 0]);
    all[14..].copy_from_slice(&ip);
    all
}

/// The Internet's sum (RFC 1071), not complemented.
pub fn sum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
