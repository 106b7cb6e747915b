//! Vendors' and devices' names from the PCI id database (`pci.ids`, in its text form).

use std::collections::{BTreeMap, BTreeSet};

/// A vendor id and a device id.
pub type Ids = (u16, u16);

/// What the database calls one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The vendor's name, at most 200 characters; `None` where the database has none.
    pub vendor: Option<String>,
    /// The device's name, at most 200 characters; `None` where the database has none.
    pub device: Option<String>,
}

/// The names of the `wanted` devices in the database's text. Lines that follow no known form are passed over: the
/// database only decorates.
pub fn look_up(database: &str, wanted: &BTreeSet<Ids>) -> BTreeMap<Ids, Names> {
    let mut found: BTreeMap<Ids, Names> = BTreeMap::new();
    let mut vendor: Option<u16> = None;
    for line in database.lines() {
        // "8086  Intel Corporation", then for its devices "\t15ad  Ethernet ...", then for subsystems two tabs.
        if line.starts_with("\t\t") || line.starts_with('#') || line.is_empty() {
            continue;
        }
        let (is_device, entry) = line.strip_prefix('\t').map_or((false, line), |rest| (true, rest));
        let named = named(entry);
        if !is_device {
            // A line like "C 02  Network controller" starts a list of something else and so ends the vendor's.
            vendor = named.as_ref().map(|(id, _)| *id);
        }
        let (Some(vendor), Some((id, name))) = (vendor, named) else {
            continue;
        };
        if is_device {
            if wanted.contains(&(vendor, id)) {
                found.entry((vendor, id)).or_default().device = Some(name);
            }
        } else {
            for ids in wanted.range((vendor, 0)..=(vendor, u16::MAX)) {
                found.entry(*ids).or_default().vendor = Some(name.clone());
            }
        }
    }
    found
}

/// The id and the name of one entry.
fn named(entry: &str) -> Option<(u16, String)> {
    let (id, name) = entry.split_at_checked(4)?;
    let id = id.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u16::from_str_radix(id, 16).ok())??;
    let name: String = name.strip_prefix("  ")?.trim().chars().take(200).collect();
    (!name.is_empty() && !name.contains(char::is_control)).then_some((id, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_vendors_and_devices_and_stops_at_classes() {
        let text = "# c\n8086  Intel Corporation\n\t15ad  Ethernet X552\n\t\t15d9 0a01  Board\n\
            zzzz  Nobody\n\t15ae  Lost\nC 02  Network controller\n\t00  Ethernet\n\t10ed  Not a device\n8087";
        let wanted = BTreeSet::from([(0x8086, 0x15ad), (0x8086, 0x10ed), (0x8086, 0x15ae)]);
        let found = look_up(text, &wanted);
        let names = |device: Option<&str>| Names {
            vendor: Some("Intel Corporation".into()),
            device: device.map(str::to_owned),
        };
        assert_eq!(found[&(0x8086, 0x15ad)], names(Some("Ethernet X552")));
        assert_eq!(found[&(0x8086, 0x10ed)], names(None));
        assert_eq!(found[&(0x8086, 0x15ae)], names(None));
    }
}
