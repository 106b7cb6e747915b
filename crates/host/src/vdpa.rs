//! vDPA devices of the host's kernel that a program of the host serves (VDUSE, `Documentation/userspace-api/vduse.rst`), with the driver
//! `virtio_vdpa`: a network interface each, for the host or a container. Whoever serves them makes them and puts them on the bus; here is
//! what they need of the kernel, and what interface comes of one.

use std::{fs::OpenOptions, io, path::PathBuf, time::Duration};

use penstock_model::InterfaceName;
use thiserror::Error;

use crate::{Command, ProcessError, Root, files};

/// The module that makes such devices.
const VDUSE: &str = "vduse";
/// The driver of the vdpa bus that makes a virtio device of one.
const VIRTIO_VDPA: &str = "virtio_vdpa";
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

/// What each module makes that is there once it is loaded, or built in.
fn makes(root: &Root) -> [(&'static str, PathBuf); 2] {
    [(VDUSE, root.path(CONTROL)), (VIRTIO_VDPA, root.path(DRIVERS).join(VIRTIO_VDPA))]
}

/// Whether this kernel has what such devices take, or could load it, and this process may make them. Nothing is loaded.
///
/// # Errors
///
/// [`VdpaError`] for the first that is missing.
pub fn available(root: &Root) -> Result<(), VdpaError> {
    for (module, path) in makes(root) {
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

/// Loads what such devices take, where it is not there.
///
/// # Errors
///
/// [`VdpaError`] for the first that cannot be had.
pub fn load(root: &Root) -> Result<(), VdpaError> {
    for (module, path) in makes(root) {
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

/// Whether udev has done with an interface: it may give it another name until then. So it is where there is no udev.
pub fn is_settled(root: &Root, index: u32) -> bool {
    !files::exists(root.path("/run/udev/control"))
        || files::exists(root.path(format!("/run/udev/data/n{index}")))
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
}
