//! Which of the host's block devices the namespaces of a drive are.

use std::collections::BTreeMap;

use penstock_model::Bdf;

use crate::{
    Root,
    device::{self, used},
    files::{self, FileError},
};

/// A block device of the host that is a namespace, over one controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceDevice {
    /// The namespace (NSID).
    pub namespace: u32,
    /// The controller over which the host has it (CNTLID).
    pub controller: u16,
    /// The kernel's name for it: `nvme0n1`.
    pub name: String,
}

impl NamespaceDevice {
    /// What anybody on this host uses it for, by signs that are read without opening it: somebody who is just about to mount it is not kept
    /// from that. `used` is what [`used::by_anybody`] gave.
    pub fn signs(&self, root: &Root, used: &BTreeMap<(u64, u64), String>) -> Option<String> {
        used::signs(root, &self.name, used)
    }

    /// What the host uses it for, partitions and volumes upon it included: `mounted on the host at /var`. `used` is what
    /// [`used::by_host`] gave.
    pub fn used(&self, root: &Root, used: &BTreeMap<(u64, u64), String>) -> Option<String> {
        used::purpose_of(root, &self.name, used)
    }

    /// As [`NamespaceDevice::used`]; where nothing of that is known, the kernel is asked whether anybody has it ([`device::is_held`]), which
    /// is for the moment before it is given away.
    ///
    /// # Errors
    ///
    /// The device cannot be opened.
    pub fn held(
        &self,
        root: &Root,
        used: &BTreeMap<(u64, u64), String>,
    ) -> Result<Option<String>, FileError> {
        if let Some(why) = self.used(root, used) {
            return Ok(Some(why));
        }
        let node = root.path(format!("/dev/{}", self.name));
        // One that is just going has no node any more.
        let held = files::exists(&node) && device::is_held(&node)?;
        Ok(held.then(|| device::HELD.to_owned()))
    }
}

/// Those of the drive whose PF is at `bdf`: over the PF first, then over its VFs.
pub(super) fn namespace_devices(root: &Root, bdf: Bdf) -> Vec<NamespaceDevice> {
    let directory = root.path(format!("/sys/bus/pci/devices/{bdf}"));
    let entries = files::list(&directory).unwrap_or_default();
    let mut vfs: Vec<(u16, String)> = entries
        .into_iter()
        .filter_map(|name| Some((name.strip_prefix("virtfn")?.parse().ok()?, name)))
        .collect();
    vfs.sort();
    let functions =
        std::iter::once(directory.clone()).chain(vfs.into_iter().map(|(_, name)| directory.join(name)));
    let mut found = Vec::new();
    for nvme in functions.map(|function| function.join("nvme")) {
        for controller in files::list(&nvme).unwrap_or_default() {
            let directory = nvme.join(&controller);
            let number = |path: &str| files::read_to_string(directory.join(path)).ok()?.trim().parse().ok();
            let Some(id) = number("cntlid").and_then(|id: u32| u16::try_from(id).ok()) else { continue };
            let mut names = files::list(&directory).unwrap_or_default();
            names.sort();
            for entry in names {
                let Some(name) = block_device(&entry) else { continue };
                if let Some(namespace) = number(&format!("{entry}/nsid")) {
                    found.push(NamespaceDevice { namespace, controller: id, name });
                }
            }
        }
    }
    found
}

/// Whether a name is a controller's: `nvme0`.
pub(super) fn is_controller(name: &str) -> bool {
    name.strip_prefix("nvme").is_some_and(is_number)
}

/// The block device that a controller's entry stands for: `nvme0n1` itself, or the one that all paths to a namespace share for one of them,
/// `nvme0c1n1` (`nvme_mpath_set_disk_name`, `drivers/nvme/host/multipath.c`).
fn block_device(entry: &str) -> Option<String> {
    let (controller, head) = entry.strip_prefix("nvme")?.split_once('n')?;
    let subsystem = match controller.split_once('c') {
        Some((subsystem, path)) if is_number(path) => subsystem,
        Some(_) => return None,
        None => controller,
    };
    (is_number(subsystem) && is_number(head)).then(|| format!("nvme{subsystem}n{head}"))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_controller_are_block_devices_or_not() {
        for (entry, device) in [
            ("nvme0n1", Some("nvme0n1")),
            ("nvme0c12n3", Some("nvme0n3")),
            ("ng0n1", None),
            ("nvme0", None),
            ("nvme0cn1", None),
            ("nvme0n", None),
            ("hwmon1", None),
        ] {
            assert_eq!(block_device(entry).as_deref(), device, "{entry}");
        }
        assert!(is_controller("nvme10") && !is_controller("nvme") && !is_controller("nvme0n1"));
    }

    #[test]
    fn namespaces_are_found_over_the_pf_and_over_vfs() {
        let scratch = tempfile::tempdir().unwrap();
        let root = Root::at(scratch.path());
        let devices = scratch.path().join("sys/bus/pci/devices");
        let plant = |path: &str, text: &str| {
            let path = devices.join(path);
            files::create_dir_all(path.parent().unwrap()).unwrap();
            files::write_atomic(path, text).unwrap();
        };
        plant("0000:01:00.0/nvme/nvme0/cntlid", "0\n");
        plant("0000:01:00.0/nvme/nvme0/nvme0c0n1/nsid", "1\n");
        plant("0000:01:00.1/nvme/nvme1/cntlid", "1\n");
        plant("0000:01:00.1/nvme/nvme1/nvme0c1n2/nsid", "7\n");
        plant("0000:01:00.1/nvme/nvme1/ng0n2/nsid", "7\n");
        files::link("../0000:01:00.1", devices.join("0000:01:00.0/virtfn0")).unwrap();
        let found = namespace_devices(&root, "01:00.0".parse().unwrap());
        let device =
            |namespace, controller, name: &str| NamespaceDevice { namespace, controller, name: name.into() };
        assert_eq!(found, [device(1, 0, "nvme0n1"), device(7, 1, "nvme0n2")]);
        assert_eq!(found[0].used(&root, &BTreeMap::new()), None, "it has no number");
        assert_eq!(found[0].held(&root, &BTreeMap::new()).unwrap(), None, "it has no node");
    }
}
