//! Who has which address: exact matches, in a cache line each.

use crate::net::Mac;

/// A port's number.
pub type PortId = u16;

const NOBODY: PortId = PortId::MAX;

/// An address and the port that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    mac: u64,
    port: PortId,
}

const EMPTY: Entry = Entry { mac: 0, port: NOBODY };

/// Addresses and the ports that have them; several ports may have one address, in different VLANs. Made anew whenever
/// settings change, which is rare; only looked up, and added to, in between.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// Open addressing; a power of two, at most half full, so that every search ends at an empty entry.
    entries: Vec<Entry>,
    /// How many entries are used.
    used: usize,
}

impl Default for Table {
    fn default() -> Table {
        Table { entries: vec![EMPTY; 2], used: 0 }
    }
}

impl Table {
    /// The table of these addresses.
    pub fn new(addresses: &[(Mac, PortId)]) -> Table {
        let mut table = Table { entries: vec![EMPTY; size_for(addresses.len())], used: 0 };
        addresses.iter().for_each(|(mac, port)| table.put(*mac, *port));
        table
    }

    /// Adds addresses of a port behind all others; `false`: there is no room for them, and the table has to be made anew.
    pub fn add(&mut self, macs: &[Mac], port: PortId) -> bool {
        let fits = size_for(self.used + macs.len()) <= self.entries.len();
        if fits {
            macs.iter().for_each(|mac| self.put(*mac, port));
        }
        fits
    }

    /// Puts an address into an empty entry, of which there is one.
    fn put(&mut self, mac: Mac, port: PortId) {
        let mut at = self.place(mac);
        let last = self.entries.len() - 1;
        while let Some(entry) = self.entries.get_mut(at) {
            if entry.port == NOBODY {
                *entry = Entry { mac: mac.bits(), port };
                self.used += 1;
                break;
            }
            at = (at + 1) & last;
        }
    }

    #[inline]
    fn place(&self, mac: Mac) -> usize {
        // Addresses of one NIC differ in their low bits; the product spreads them (Knuth, 6.4).
        let mixed = mac.bits().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize & (self.entries.len() - 1)
    }

    /// The first port that has this address and for which `fits` holds.
    #[inline]
    pub fn find(&self, mac: Mac, mut fits: impl FnMut(PortId) -> bool) -> Option<PortId> {
        let mut at = self.place(mac);
        loop {
            let entry = self.entries.get(at)?;
            if entry.port == NOBODY {
                return None;
            }
            if entry.mac == mac.bits() && fits(entry.port) {
                return Some(entry.port);
            }
            at = (at + 1) & (self.entries.len() - 1);
        }
    }
}

/// How many entries a table of so many addresses has.
fn size_for(addresses: usize) -> usize {
    (addresses * 4).max(2).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_and_no_other() {
        let mac = |number: u32| {
            let [a, b, c, d] = number.to_be_bytes();
            Mac::new([2, 0, a, b, c, d])
        };
        let addresses: Vec<(Mac, PortId)> = (0..1000).map(|number| (mac(number), number as u16)).collect();
        let table = Table::new(&addresses);
        for (mac, port) in &addresses {
            assert_eq!(table.find(*mac, |_| true), Some(*port));
        }
        assert_eq!(table.find(mac(1000), |_| true), None);
        assert_eq!(Table::default().find(mac(0), |_| true), None);
    }

    #[test]
    fn one_address_in_two_vlans() {
        let mac = Mac::new([2, 0, 0, 0, 0, 1]);
        let table = Table::new(&[(mac, 3), (mac, 4)]);
        assert_eq!(table.find(mac, |port| port == 4), Some(4));
        assert_eq!(table.find(mac, |port| port == 3), Some(3));
        assert_eq!(table.find(mac, |_| false), None);
    }
}
