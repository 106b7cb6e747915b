//! Devices of the host that a container may use.

use std::collections::HashSet;

use crate::{
    Device,
    diagnostic::{Diagnostic, Path},
    document::DeviceEntry,
};

/// What every container has in its own `/dev` (`lxc.container.conf(5)`, `lxc.autodev`).
const ITS_OWN: [&str; 9] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/console",
    "/dev/ptmx",
    "/dev/shm",
];

pub(super) fn build(entries: Vec<DeviceEntry>, path: &Path, messages: &mut Vec<Diagnostic>) -> Vec<Device> {
    let mut devices: Vec<Device> = Vec::new();
    let mut taken: HashSet<String> = HashSet::new();
    for (position, entry) in entries.into_iter().enumerate() {
        let path = path.join("devices").join(position);
        let (host, inside, write) = match entry {
            DeviceEntry::Spoiled => continue,
            DeviceEntry::Path(host) => (host, None, None),
            DeviceEntry::Settings(document) => match document.path {
                Some(host) => (host, document.inside, document.write),
                None => {
                    messages.push(
                        Diagnostic::error(path, "this names no device")
                            .with_hint("it needs `path`, like {path: /dev/ttyS1}"),
                    );
                    continue;
                }
            },
        };
        let device = Device {
            inside: inside.unwrap_or_else(|| host.clone()),
            path: host,
            write: write.unwrap_or(true),
        };
        let wrong = [&device.path, &device.inside].into_iter().find(|path| !is_device_path(path));
        if let Some(own) = ITS_OWN.iter().find(|own| **own == device.inside) {
            messages.push(
                Diagnostic::error(path, format!("a container has a {own} of its own"))
                    .with_hint("leave the device out, or give it another `inside`"),
            );
        } else if let Some(wrong) = wrong {
            let shown = crate::tree::shown(wrong);
            messages.push(
                Diagnostic::error(path, format!("{shown} is no path of a device"))
                    .with_hint("write it from the top, below /dev, without `..`; a stable name like /dev/disk/by-id/... survives renumbering"),
            );
        } else if !taken.insert(device.inside.clone()) {
            let text = format!("two devices would be {} inside", device.inside);
            messages.push(Diagnostic::error(path, text).with_hint("give one of them another `inside`"));
        } else {
            devices.push(device);
        }
    }
    devices
}

/// Whether it is below `/dev` and can stand in a line of LXC's configuration, where white space ends a word.
fn is_device_path(path: &str) -> bool {
    path.strip_prefix("/dev/").is_some_and(|rest| {
        !rest.is_empty()
            && !rest.split('/').any(|part| matches!(part, "" | "." | ".."))
            && !path.contains(|c: char| c.is_whitespace() || c.is_control() || c == '\\')
    })
}
