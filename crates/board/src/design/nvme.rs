//! The NVMe drive of a board: a PF with VFs, and namespaces (QEMU, `docs/system/devices/nvme.rst`).

use std::path::Path;

use penstock_host::files;
use penstock_model::composition::{Device, DeviceKind};

use crate::error::BoardError;

/// What one VF can have of queue pairs, that for administration among them, and of interrupt vectors.
const EACH: u16 = 3;
/// The PF's own pairs of queues for I/O, with an interrupt vector each and one for administration.
const OWN_QUEUES: u16 = 2;
/// The most namespaces that wait for VFs.
const MOST_NAMESPACES: u16 = 16;
/// The size in bytes of the PF's own namespace. What is written to it is forgotten.
const OWN: u64 = 1 << 30;
/// The size in bytes of each that waits for a VF. What is written to it is kept as long as the board.
const WAITING: u64 = 64 << 20;

/// An emulated NVMe drive. Namespace 1 is the PF's alone; those from 2 on are attached to no controller, one for each VF as far as they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoardDrive {
    /// How many VFs it can have.
    pub vfs: u16,
}

impl BoardDrive {
    /// The identifiers of the namespaces that are attached to nobody.
    fn waiting(self) -> impl Iterator<Item = u16> {
        (2..).take(self.vfs.min(MOST_NAMESPACES).into())
    }

    /// Makes the files that those are, in the board's directory. They take as much room as is written to them.
    ///
    /// # Errors
    ///
    /// [`BoardError::File`] when one cannot be made.
    pub fn furnish(self, directory: &Path) -> Result<(), BoardError> {
        for namespace in self.waiting() {
            let file = directory.join(file(namespace));
            drop(files::append(&file)?);
            files::lengthen(&file, WAITING)?;
        }
        Ok(())
    }

    /// QEMU's arguments for what is behind its namespaces.
    pub(super) fn backings(self) -> Vec<String> {
        let own = format!("driver=null-co,node-name={},size={OWN},read-zeroes=on", file(1));
        let waiting =
            self.waiting().map(file).map(|file| format!("driver=file,node-name={file},filename={file}"));
        std::iter::once(own).chain(waiting).flat_map(|backing| ["-blockdev".to_owned(), backing]).collect()
    }

    /// The controller and its namespaces, behind the root port `port`.
    pub(super) fn compose(self, port: &str, devices: &mut Vec<Device>) {
        devices.push(Device::new("nvme-subsystem", DeviceKind::NvmeSubsystem));
        let flexible = EACH * self.vfs;
        let mut controller = Device::new("nvme", DeviceKind::Nvme)
            .at(port, 0)
            .with("serial", "penstock0")
            .with("subsys", "nvme-subsystem")
            .with("max_ioqpairs", flexible + OWN_QUEUES)
            .with("msix_qsize", flexible + OWN_QUEUES + 1);
        if self.vfs > 0 {
            controller = controller
                .with("sriov_max_vfs", self.vfs)
                .with("sriov_vq_flexible", flexible)
                .with("sriov_vi_flexible", flexible)
                .with("sriov_max_vq_per_vf", EACH)
                .with("sriov_max_vi_per_vf", EACH);
        }
        devices.push(controller);
        let namespace = |number: u16| {
            Device::new(file(number), DeviceKind::NvmeNamespace)
                .with("drive", file(number))
                .with("bus", "nvme")
                .with("nsid", number)
        };
        // One that is shared is attached to every controller that comes.
        devices.push(namespace(1).with("shared", "off"));
        devices.extend(
            self.waiting().map(|number| namespace(number).with("shared", "on").with("detached", "on")),
        );
    }
}

fn file(namespace: u16) -> String {
    format!("namespace{namespace}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_vf_has_a_namespace_as_far_as_they_go() {
        let scratch = tempfile::tempdir().unwrap();
        BoardDrive { vfs: 2 }.furnish(scratch.path()).unwrap();
        let mut made = files::list(scratch.path()).unwrap();
        made.sort();
        assert_eq!(made, ["namespace2", "namespace3"]);
        assert_eq!(files::length(scratch.path().join("namespace2")).unwrap(), WAITING);
        assert_eq!(BoardDrive { vfs: 127 }.waiting().collect::<Vec<_>>(), (2..=17).collect::<Vec<_>>());
        assert_eq!(BoardDrive { vfs: 0 }.waiting().count(), 0);
    }
}
