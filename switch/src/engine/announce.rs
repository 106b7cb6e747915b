//! What is said in place of a guest that goes on elsewhere and does not say it itself.

use super::{Engine, Sent, deliver};
use crate::{
    net::{Mac, VIRTIO_HEADER},
    table::PortId,
};

/// Bytes of the frame: the shortest that Ethernet has, without its checksum.
const LEN: usize = 60;

impl Engine {
    /// Sends, as if the guest had, a reverse ARP request for `mac` to everybody: who learns where addresses are learns it from that.
    /// What is set for the port holds for it, too.
    pub fn announce(&mut self, id: PortId, mac: Mac) {
        let Some(source) = self.source(id, 0) else { return };
        let [_, _, own @ ..] = mac.bits().to_be_bytes();
        // Ethernet and IPv4 addresses of 6 and 4 bytes, request (RFC 903).
        const REQUEST: [u8; 10] = [0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3];
        let header = usize::from(source.header);
        let fields = [&[0xff; 6][..], &own, &REQUEST, &own, &[0; 4], &own];
        let mut bytes = [0; VIRTIO_HEADER + LEN];
        let places = bytes.iter_mut().skip(header);
        for (place, byte) in places.zip(fields.into_iter().flatten()) {
            *place = *byte;
        }
        let whole = bytes.get(..header + LEN).unwrap_or(&bytes);
        let mut sent = Sent::default();
        self.forward(&source, &[deliver::span(whole)], whole.len() as u32, &mut sent);
        self.publish_touched();
        self.sent(id, &sent);
    }
}
