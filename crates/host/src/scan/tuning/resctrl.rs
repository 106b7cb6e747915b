//! Cache and memory-bandwidth allocation (`Documentation/filesystems/resctrl.rst`).

use std::collections::BTreeMap;

use penstock_model::inventory::tuning::{Reading, Resctrl, ResctrlGroup};

use super::{cpu_list, number, why_unread, word};
use crate::scan::reader::Reader;

const RESCTRL: &str = "/sys/fs/resctrl";
/// No CPU has more classes of service.
const MOST_GROUPS: usize = 256;
/// Domains and resources of one group: caches of a machine with hundreds of sockets.
const MOST_MASKS: usize = 4096;

pub(super) fn resctrl(reader: &mut Reader<'_>, unread: &mut Vec<String>) -> Reading<Resctrl> {
    // The directory is there wherever the CPU could; this file only where it is mounted.
    let default = match group("", reader, unread) {
        Reading::Is(group) => group,
        Reading::Absent => return Reading::Absent,
        Reading::Denied => return Reading::Denied,
        Reading::Unreadable(why) => return Reading::Unreadable(why),
    };
    let mut found = Resctrl { groups: BTreeMap::from([(String::new(), default)]), ..Resctrl::default() };
    for resource in reader.directories(&format!("{RESCTRL}/info")).into_iter().take(64) {
        let of = |file: &str| format!("{RESCTRL}/info/{resource}/{file}");
        if let Reading::Is(mask) = reader.reading(&of("cbm_mask"), hexadecimal) {
            found.masks.insert(resource.clone(), mask);
        }
        let shareable = reader.reading(&of("shareable_bits"), hexadecimal);
        unread.extend(why_unread(&of("shareable_bits"), &shareable));
        if let Reading::Is(mask) = shareable {
            found.shareable.insert(resource.clone(), mask);
        }
        if let Reading::Is(bits) = reader.reading(&of("min_cbm_bits"), number) {
            found.least_bits.insert(resource.clone(), bits);
        }
        if let Reading::Is(most) = reader.reading(&of("num_closids"), number::<u32>) {
            found.most_groups = Some(found.most_groups.map_or(most, |other| other.min(most)));
        }
        if resource == "MB" {
            let least = reader.reading(&of("min_bandwidth"), number);
            let step = reader.reading(&of("bandwidth_gran"), number);
            if let (Reading::Is(least), Reading::Is(step)) = (least, step) {
                found.bandwidth = Some((least, step));
            }
        }
    }
    for name in reader.directories(RESCTRL).into_iter().take(MOST_GROUPS) {
        if ["info", "mon_groups", "mon_data"].contains(&name.as_str()) {
            continue;
        }
        let read = group(&format!("/{name}"), reader, unread);
        unread.extend(why_unread(&format!("{RESCTRL}/{name}/schemata"), &read));
        match read {
            Reading::Is(group) => _ = found.groups.insert(name, group),
            Reading::Unreadable(why) => reader.note(why),
            // Taken away meanwhile.
            Reading::Absent | Reading::Denied => {}
        }
    }
    Reading::Is(found)
}

fn group(path: &str, reader: &mut Reader<'_>, unread: &mut Vec<String>) -> Reading<ResctrlGroup> {
    let file = format!("{RESCTRL}{path}/schemata");
    let text = match reader.lines(&file) {
        Reading::Is(text) => text,
        Reading::Absent => return Reading::Absent,
        Reading::Denied => return Reading::Denied,
        Reading::Unreadable(why) => return Reading::Unreadable(why),
    };
    let Some(schemata) = schemata(&text) else {
        return Reading::Unreadable(format!(
            "{file} holds {}, which is no schemata",
            crate::scan::reader::quoted(&text)
        ));
    };
    let list = format!("{RESCTRL}{path}/cpus_list");
    let cpus = reader.reading(&list, cpu_list);
    unread.extend(why_unread(&list, &cpus));
    let cpus = cpus.known().cloned().unwrap_or_default();
    Reading::Is(ResctrlGroup { cpus, schemata })
}

/// `    L3:0=fffff;1=3` and `    MB:0=100;1=40`, a line a resource: masks in hexadecimal, bandwidth in decimal. `None`: it is
/// none.
pub fn schemata(text: &str) -> Option<BTreeMap<String, BTreeMap<u32, u64>>> {
    let mut schemata = BTreeMap::new();
    let mut masks = 0;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (resource, domains) = line.split_once(':')?;
        let resource = resource.trim();
        if resource.is_empty() || resource.len() > 16 || !resource.chars().all(|c| c.is_ascii_alphanumeric())
        {
            return None;
        }
        let mask = |text: &str| {
            if resource.contains("MB") { text.parse().ok() } else { hexadecimal(text).ok() }
        };
        let mut of = BTreeMap::new();
        for domain in domains.split(';').map(str::trim).filter(|domain| !domain.is_empty()) {
            let (number, value) = domain.split_once('=')?;
            of.insert(number.trim().parse().ok()?, mask(value.trim())?);
            masks += 1;
            if masks > MOST_MASKS {
                return None;
            }
        }
        schemata.insert(resource.to_owned(), of);
    }
    Some(schemata)
}

fn hexadecimal(text: &str) -> Result<u64, String> {
    let text = word(text)?;
    let digits = text.strip_prefix("0x").unwrap_or(&text);
    let value = u64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'));
    value.ok_or_else(|| format!("{} is no hexadecimal mask", crate::scan::reader::quoted(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemata_are_read_as_the_kernel_prints_them() {
        let found = schemata("    L3:0=fffff;1=3\n    MB:0= 40;1=100\nL2:\n").unwrap();
        assert_eq!(found["L3"], [(0, 0xfffff), (1, 3)].into());
        assert_eq!(found["MB"], [(0, 40), (1, 100)].into());
        assert_eq!(found["L2"], BTreeMap::new());
        for odd in ["L3", "L3:0", "L3:0=x", "L3:x=1", ":0=1", "L3:0=+1", "L\u{1b}3:0=1"] {
            assert_eq!(schemata(odd), None, "{odd:?}");
        }
    }
}
