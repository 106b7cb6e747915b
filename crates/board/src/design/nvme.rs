//! The NVMe drives of a board: PFs with VFs, and namespaces (QEMU, `docs/system/devices/nvme.rst`).

use std::{collections::BTreeSet, path::Path};

use penstock_host::files;
use penstock_model::{
    DriveMatch, Model,
    composition::{Device, DeviceKind},
};

use super::DesignError;
use crate::error::BoardError;

/// What one VF can have at least of queue pairs, that for administration among them, and of interrupt vectors.
const EACH: u16 = 3;
/// The PF's own pairs of queues for I/O, with an interrupt vector each and one for administration.
const OWN_QUEUES: u16 = 2;
/// The most namespaces that wait for VFs, but for those that the model names.
const MOST_NAMESPACES: u16 = 16;
/// The size in bytes of the PF's own namespace. What is written to it is forgotten.
const OWN: u64 = 1 << 30;
/// The size in bytes of each that waits for a VF. What is written to it is kept as long as the board.
const WAITING: u64 = 64 << 20;
/// The namespace that is the PF's alone, unless the model gives it to a guest.
const OF_PF: u32 = 1;
/// The longest serial number (NVM Express Base Specification 2.0, figure 275, SN).
const SERIAL: usize = 20;

/// The most VFs that QEMU's controller takes (`sriov_max_vfs`).
const MOST_VFS: u16 = 127;

/// What keeps a board from having the drives of `model`.
pub(super) fn errors(model: &Model) -> impl Iterator<Item = DesignError> {
    model.drives.iter().flat_map(|(name, drive)| {
        let by_serial = DriveMatch { serial: drive.matching.serial.clone(), ..DriveMatch::default() };
        let by_place = drive.matching != by_serial;
        let words = drive.matching.words().join(" and ");
        let by_place = by_place.then(|| DesignError::DriveByPlace { drive: name.clone(), words });
        let (wanted, limit) = (drive.vfs, MOST_VFS);
        let many =
            (wanted > limit).then(|| DesignError::TooManyDriveVfs { drive: name.clone(), wanted, limit });
        by_place.into_iter().chain(many)
    })
}

/// An emulated NVMe drive. Namespace 1 is the PF's alone; the others are attached to no controller: one for each VF as far as they go, and
/// those that the model names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardDrive {
    /// Which one of the board it is, from 0.
    pub number: usize,
    /// Its serial number.
    pub serial: String,
    /// How many VFs it can have.
    pub vfs: u16,
    /// What each of them can have of queue pairs and of interrupt vectors.
    each: u16,
    /// The namespaces that wait for VFs.
    waiting: BTreeSet<u32>,
}

impl BoardDrive {
    /// The drives of a board for `model`: one for each of its own, and one more where the board is to have one that the model does not name.
    pub fn all(model: &Model) -> Vec<BoardDrive> {
        let of_model = model.drives.iter().map(|(name, drive)| {
            let guests = || model.guests.values().flat_map(|guest| &guest.drives);
            let owned = guests().filter(|owned| owned.name.drive == *name);
            let queues = owned.clone().filter_map(|owned| owned.queues).max().unwrap_or(0);
            // A drive that a model knows by nothing is known by its name.
            let serial = drive.matching.serial.clone().unwrap_or_else(|| name.to_string());
            let named = owned.flat_map(|owned| owned.namespaces.iter().copied());
            BoardDrive::new(serial, drive.vfs).with(queues.saturating_add(1), named)
        });
        let more = model.board.nvme_vfs.map(|vfs| BoardDrive::new("penstock0".to_owned(), vfs));
        let numbered = |(number, drive)| BoardDrive { number, ..drive };
        of_model.chain(more).enumerate().map(numbered).collect()
    }

    fn new(mut serial: String, vfs: u16) -> BoardDrive {
        let whole = (0..=SERIAL.min(serial.len())).rev().find(|at| serial.is_char_boundary(*at));
        serial.truncate(whole.unwrap_or(0));
        let waiting = (OF_PF + 1..).take(vfs.min(MOST_NAMESPACES).into()).collect();
        BoardDrive { number: 0, serial, vfs, each: EACH, waiting }
    }

    fn with(self, each: u16, namespaces: impl Iterator<Item = u32>) -> BoardDrive {
        let waiting = self.waiting.into_iter().chain(namespaces).collect();
        BoardDrive { each: self.each.max(each), waiting, ..self }
    }

    /// Makes the files that those are, in the board's directory. They take as much room as is written to them.
    ///
    /// # Errors
    ///
    /// [`BoardError::File`] when one cannot be made.
    pub fn furnish(&self, directory: &Path) -> Result<(), BoardError> {
        for namespace in &self.waiting {
            let file = directory.join(self.namespace(*namespace));
            drop(files::append(&file)?);
            files::lengthen(&file, WAITING)?;
        }
        Ok(())
    }

    /// QEMU's arguments for what is behind its namespaces.
    pub(super) fn backings(&self) -> Vec<String> {
        let own = || format!("driver=null-co,node-name={},size={OWN},read-zeroes=on", self.namespace(OF_PF));
        let own = (!self.waiting.contains(&OF_PF)).then(own);
        let file = |namespace: &u32| {
            let file = self.namespace(*namespace);
            format!("driver=file,node-name={file},filename={file}")
        };
        let all = own.into_iter().chain(self.waiting.iter().map(file));
        all.flat_map(|backing| ["-blockdev".to_owned(), backing]).collect()
    }

    /// The controller and its namespaces, behind the root port `port`.
    pub(super) fn compose(&self, port: &str, devices: &mut Vec<Device>) {
        let (id, subsystem) = (self.id(), format!("{}-subsystem", self.id()));
        devices.push(Device::new(subsystem.as_str(), DeviceKind::NvmeSubsystem));
        let flexible = self.each.saturating_mul(self.vfs);
        let mut controller = Device::new(id.as_str(), DeviceKind::Nvme)
            .at(port, 0)
            .with("serial", &self.serial)
            .with("subsys", subsystem)
            .with("max_ioqpairs", flexible.saturating_add(OWN_QUEUES))
            .with("msix_qsize", flexible.saturating_add(OWN_QUEUES + 1));
        if self.vfs > 0 {
            controller = controller
                .with("sriov_max_vfs", self.vfs)
                .with("sriov_vq_flexible", flexible)
                .with("sriov_vi_flexible", flexible)
                .with("sriov_max_vq_per_vf", self.each)
                .with("sriov_max_vi_per_vf", self.each);
        }
        devices.push(controller);
        let namespace = |number: u32| {
            Device::new(self.namespace(number), DeviceKind::NvmeNamespace)
                .with("drive", self.namespace(number))
                .with("bus", &id)
                .with("nsid", number)
        };
        // One that is shared is attached to every controller that comes.
        if !self.waiting.contains(&OF_PF) {
            devices.push(namespace(OF_PF).with("shared", "off"));
        }
        let waiting = self.waiting.iter();
        devices.extend(waiting.map(|number| namespace(*number).with("shared", "on").with("detached", "on")));
    }

    fn id(&self) -> String {
        format!("nvme{}", self.number)
    }

    fn namespace(&self, number: u32) -> String {
        format!("{}-namespace{number}", self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_vf_has_a_namespace_as_far_as_they_go() {
        let scratch = tempfile::tempdir().unwrap();
        let drive = |vfs| BoardDrive::new("a serial number that is too long".to_owned(), vfs);
        drive(2).furnish(scratch.path()).unwrap();
        let mut made = files::list(scratch.path()).unwrap();
        made.sort();
        assert_eq!(made, ["nvme0-namespace2", "nvme0-namespace3"]);
        assert_eq!(files::length(scratch.path().join("nvme0-namespace2")).unwrap(), WAITING);
        assert_eq!(drive(127).waiting, (2..=17).collect());
        assert_eq!(drive(0).waiting.len(), 0);
        assert_eq!(drive(0).serial, "a serial number that");
    }

    #[test]
    fn a_board_has_the_drives_of_its_model_with_the_namespaces_and_queues_that_guests_are_to_have() {
        let text = "drives: {a: {match: {serial: S6}, vfs: 2}, b: {vfs: 1}}\n\
                    guests: {vm: {kind: vm, drives: [{vf: a#0, namespaces: [1, 40], queues: 5}]}}\n\
                    board: {nvme_vfs: 1}\n";
        let model = penstock_model::parse(&penstock_model::Source::new("m.yaml", text)).unwrap().model;
        let all = BoardDrive::all(&model);
        let serials: Vec<&str> = all.iter().map(|drive| drive.serial.as_str()).collect();
        assert_eq!(serials, ["S6", "b", "penstock0"]);
        assert_eq!((all[0].each, all[1].each), (6, EACH));
        assert_eq!(all[0].waiting, [1, 2, 3, 40].into());
        assert!(!all[0].backings().join(" ").contains("null-co"));
        assert_eq!(all[2].id(), "nvme2");
    }
}
