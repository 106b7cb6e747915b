//! Cache and memory-bandwidth allocation (`Documentation/filesystems/resctrl.rst`).

use std::collections::BTreeMap;

use penstock_model::inventory::tuning::{Reading, Resctrl, ResctrlGroup};

use super::{cpu_list, number, why_unread, word};
use crate::{resctrl, scan::reader::Reader};

const RESCTRL: &str = "/sys/fs/resctrl";
/// No CPU has more classes of service.
const MOST_GROUPS: usize = 256;

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
    let Some(schemata) = resctrl::parsed(&text) else {
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

fn hexadecimal(text: &str) -> Result<u64, String> {
    let text = word(text)?;
    let digits = text.strip_prefix("0x").unwrap_or(&text);
    let value = u64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'));
    value.ok_or_else(|| format!("{} is no hexadecimal mask", crate::scan::reader::quoted(&text)))
}
