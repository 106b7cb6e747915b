//! vDPA devices of the host's kernel that a program of the host serves (VDUSE, `Documentation/userspace-api/vduse.rst`): with the driver
//! `virtio_vdpa` a network interface each, for the host or a container; with `vhost_vdpa` a character device, for a QEMU. Whoever serves
//! them makes them and puts them on the bus; here is what they need of the kernel, and what comes of one.

use std::{collections::BTreeSet, fs::OpenOptions, io, path::PathBuf, time::Duration};

use penstock_model::InterfaceName;
use thiserror::Error;

use crate::{Command, ProcessError, Root, files};

/// The module that makes such devices.
const VDUSE: &str = "vduse";
/// What the names of character devices begin with (`vhost_vdpa_probe`, `drivers/vhost/vdpa.c`).
const CHARACTER: &str = "vhost-vdpa-";
/// What makes and destroys devices.
const CONTROL: &str = "/dev/vduse/control";
/// Where drivers of the vdpa bus are.
const DRIVERS: &str = "/sys/bus/vdpa/drivers";
/// How long a module may take.
const LOADING: Duration = Duration::from_secs(30);

/// What the kernel lacks for network devices that a program serves.
#[derive(Debug, Error)]
pub enum VdpaError {
    /// A module is not loaded, and cannot be.
    #[error("this kernel has no module {module}, or it cannot be loaded")]
    NoModule {
        /// The name of the module.
        module: &'static str,
        /// What modprobe said.
        #[source]
        source: ProcessError,
    },
    /// The module is loaded, and what it makes is not there.
    #[error("{module} was loaded, and there is no {}", path.display())]
    NotThere {
        /// The name of the module.
        module: &'static str,
        /// The file that it makes.
        path: PathBuf,
    },
    /// Devices may not be made.
    #[error("{CONTROL} cannot be opened for writing")]
    Closed(#[source] io::Error),
}

/// The drivers of the vdpa bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VdpaDriver {
    /// It makes a virtio device of one: a network interface.
    Virtio,
    /// It makes a character device of one, for a QEMU.
    Vhost,
}

impl VdpaDriver {
    /// What the kernel calls it, on the vdpa bus and as a module.
    pub fn name(self) -> &'static str {
        match self {
            VdpaDriver::Virtio => "virtio_vdpa",
            VdpaDriver::Vhost => "vhost_vdpa",
        }
    }
}

/// What each module makes that is there once it is loaded, or built in.
fn makes(root: &Root, driver: VdpaDriver) -> [(&'static str, PathBuf); 2] {
    [(VDUSE, root.path(CONTROL)), (driver.name(), root.path(DRIVERS).join(driver.name()))]
}

/// Whether this kernel has what such devices with this driver take, or could load it, and this process may make them. Nothing is loaded.
///
/// # Errors
///
/// [`VdpaError`] for the first that is missing.
pub fn available(root: &Root, driver: VdpaDriver) -> Result<(), VdpaError> {
    for (module, path) in makes(root, driver) {
        if !files::exists(&path) {
            let tried = Command::new("modprobe").args(["--dry-run", "--", module]).deadline(LOADING);
            tried.succeed().map_err(|source| VdpaError::NoModule { module, source })?;
        }
    }
    let control = root.path(CONTROL);
    if files::exists(&control) {
        OpenOptions::new().read(true).write(true).open(&control).map_err(VdpaError::Closed)?;
    }
    Ok(())
}

/// Loads what such devices with this driver take, where it is not there.
///
/// # Errors
///
/// [`VdpaError`] for the first that cannot be had.
pub fn load(root: &Root, driver: VdpaDriver) -> Result<(), VdpaError> {
    for (module, path) in makes(root, driver) {
        if files::exists(&path) {
            continue;
        }
        let load = Command::new("modprobe").args(["--", module]).deadline(LOADING);
        load.succeed().map_err(|source| VdpaError::NoModule { module, source })?;
        if !files::exists(&path) {
            return Err(VdpaError::NotThere { module, path });
        }
    }
    Ok(())
}

/// Whether there is a device of this name on the vdpa bus.
pub fn exists(root: &Root, device: &str) -> bool {
    files::exists(root.path("/sys/bus/vdpa/devices").join(device))
}

/// The interface that `virtio_vdpa` has made of a device; `None` while there is none in the network namespace whose `/sys` this is, as
/// when a container has it.
pub fn interface(root: &Root, device: &str) -> Option<InterfaceName> {
    let directory = root.path("/sys/bus/vdpa/devices").join(device);
    let children = files::list(&directory).ok()?;
    let interfaces = children
        .iter()
        .filter(|child| child.starts_with("virtio"))
        .filter_map(|child| files::list(directory.join(child).join("net")).ok());
    interfaces.flatten().find_map(|name| name.parse().ok())
}

/// The character device that `vhost_vdpa` has made of a device: `/dev/vhost-vdpa-N`; `None` while that has not got it. The number is the
/// lowest that is free, so that one that goes is another device's soon after.
pub fn character_device(root: &Root, device: &str) -> Option<PathBuf> {
    let children = files::list(root.path("/sys/bus/vdpa/devices").join(device)).ok()?;
    let name = children.into_iter().find(|child| child.starts_with(CHARACTER))?;
    Some(PathBuf::from("/dev").join(name))
}

/// The character devices of `vhost_vdpa` that a process has open.
///
/// # Errors
///
/// The kernel's reason when its descriptors cannot be listed: it is gone, or another user's.
pub fn opened_by(root: &Root, process: u32) -> files::Result<BTreeSet<PathBuf>> {
    let directory = root.path(format!("/proc/{process}/fd"));
    let links = files::list(&directory)?;
    // One that was closed meanwhile leads nowhere.
    let leads = links.iter().filter_map(|link| files::read_link(directory.join(link)).ok());
    let is_such =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(CHARACTER));
    Ok(leads.filter(is_such).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_of_a_device_is_found_below_its_virtio_device() {
        let scratch = tempfile::tempdir().unwrap();
        let root = Root::at(scratch.path());
        let device = scratch.path().join("sys/bus/vdpa/devices/penstock-020000000101");
        assert!(!exists(&root, "penstock-020000000101"));
        for directory in ["power", "virtio3/power", "virtio3/net/eth2"] {
            files::create_dir_all(device.join(directory)).unwrap();
        }
        assert!(exists(&root, "penstock-020000000101"));
        assert_eq!(interface(&root, "penstock-020000000101"), Some("eth2".parse().unwrap()));
        assert_eq!(interface(&root, "penstock-020000000102"), None);
        // A container has it.
        files::remove_tree(device.join("virtio3/net/eth2")).unwrap();
        assert_eq!(interface(&root, "penstock-020000000101"), None);
    }

    #[test]
    fn who_has_the_character_device_of_a_device_open_is_told_by_the_processs_descriptors() {
        let scratch = tempfile::tempdir().unwrap();
        let root = Root::at(scratch.path());
        let device = scratch.path().join("sys/bus/vdpa/devices/penstock-020000000101");
        files::create_dir_all(device.join("power")).unwrap();
        assert_eq!(character_device(&root, "penstock-020000000101"), None);
        files::create_dir_all(device.join("vhost-vdpa-3/power")).unwrap();
        let path = PathBuf::from("/dev/vhost-vdpa-3");
        assert_eq!(character_device(&root, "penstock-020000000101").as_ref(), Some(&path));

        assert!(opened_by(&root, 7).is_err());
        let descriptors = scratch.path().join("proc/7/fd");
        files::create_dir_all(&descriptors).unwrap();
        for (number, leads) in [("1", "/dev/null"), ("8", "/dev/vhost-vdpa-3"), ("27", "/dev/vhost-vdpa-3")] {
            std::os::unix::fs::symlink(leads, descriptors.join(number)).unwrap();
        }
        assert_eq!(opened_by(&root, 7).unwrap(), [path].into());
    }
}
