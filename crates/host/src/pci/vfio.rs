//! Whether somebody has a function through VFIO. The kernel knows; `/proc` only helps to name whom.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nix::errno::Errno;
use penstock_model::Bdf;

use super::{PciError, PciFunction, is_vfio};
use crate::{
    Root,
    files::{self, OpenedAs},
    process,
    running::{holders, holders_of},
};

/// How long a group may be held by somebody whom `/proc` does not name before that counts: another Penstock that asks the same, or a process
/// that is just ending. That of a VM gives back the VM's memory first, page by page, which takes seconds on a slow machine, and has no
/// descriptors in `/proc` by then.
const PASSING: Duration = Duration::from_secs(10);
/// How long it is waited before the kernel is asked again.
const AGAIN: Duration = Duration::from_millis(10);

impl PciFunction {
    /// Who has the function through VFIO, each as `NAME (process ID)`; empty when nobody has. While somebody does, unbinding it from
    /// `vfio-pci` waits in the kernel for ever (`drivers/vfio/vfio_main.c`, `vfio_unregister_group_dev`).
    ///
    /// The kernel is asked: `/dev/vfio/GROUP` can be open once, and an open device, a mapping of it or a descriptor on its way through a
    /// socket keep it open (`drivers/vfio/group.c`, `vfio_group_fops_open`: `EBUSY`). A holder that `/proc` does not name is told in
    /// words. Whoever opens the group at the very moment finds it busy; who only watches asks [`PciFunction::opened_by`].
    pub fn held_by(&self) -> Vec<String> {
        self.held(&|node| files::try_open_device(node), PASSING)
    }

    /// The processes whose descriptors name the function's IOMMU group (`/dev/vfio/GROUP`) or its VFIO device, each as `NAME (process
    /// ID)`, as far as this user may see. It disturbs nobody, and misses who has only an open device or a mapping.
    pub fn opened_by(&self) -> Vec<String> {
        holders(&self.root, &self.vfio_nodes())
    }

    /// The files by which it may be opened, while it is bound to a driver of VFIO.
    fn vfio_nodes(&self) -> Vec<PathBuf> {
        let Some(group) = self.vfio_group() else { return Vec::new() };
        let devices = files::list(self.directory().join("vfio-dev")).unwrap_or_default();
        nodes_of(Some(&group), &devices)
    }

    /// That nobody has it through VFIO.
    pub(super) fn is_free(&self) -> Result<(), PciError> {
        match self.held_by() {
            by if by.is_empty() => Ok(()),
            by => Err(PciError::Held { function: self.bdf, by: by.join(", ") }),
        }
    }

    /// That nobody has one of its VFs through VFIO: while somebody does, removing the VFs waits in the kernel as unbinding does.
    pub(super) fn vfs_are_free(&self) -> Result<(), PciError> {
        for (_, vf) in self.virtual_functions()? {
            PciFunction::new(&self.root, vf).is_free()?;
        }
        Ok(())
    }

    /// The number of its IOMMU group, while it is bound to a driver of VFIO.
    fn vfio_group(&self) -> Option<String> {
        let bound = self.driver().ok()?.is_some_and(|driver| is_vfio(&driver));
        self.link("iommu_group").ok()?.filter(|_| bound)
    }

    fn held(&self, open: &dyn Fn(&Path) -> io::Result<OpenedAs>, passing: Duration) -> Vec<String> {
        let Some(group) = self.vfio_group() else { return Vec::new() };
        let nodes = nodes(&group).map(|path| self.root.path(path));
        let node = nodes.iter().find(|node| files::exists(node)).unwrap_or(&nodes[0]);
        let deadline = Instant::now() + passing;
        loop {
            let error = match open(node) {
                Ok(OpenedAs::Device) => return Vec::new(),
                // A fixture's: no kernel stands behind it.
                Ok(OpenedAs::Other) => return self.opened_by(),
                Err(error) => error,
            };
            let by = self.opened_by();
            if !by.is_empty() {
                return by;
            }
            match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::EBUSY) if Instant::now() < deadline => thread::sleep(AGAIN),
                Some(Errno::EBUSY) => {
                    return vec![format!("a process that /proc does not name (IOMMU group {group} is busy)")];
                }
                // Without groups (only `/dev/vfio/devices`), or just unbound.
                Some(Errno::ENOENT | Errno::ENODEV | Errno::ENXIO) => return Vec::new(),
                // Who may not open it may not unbind the function either.
                Some(Errno::EACCES | Errno::EPERM) if !process::is_root() => return Vec::new(),
                _ => {
                    let node = node.display();
                    return vec![format!(
                        "nobody knows which process, since {node} cannot be opened: {error}"
                    )];
                }
            }
        }
    }
}

/// As [`PciFunction::opened_by`] of many functions, in one look at all processes; those that nobody has open are left out.
pub fn opened_by(root: &Root, functions: &BTreeSet<Bdf>) -> BTreeMap<Bdf, Vec<String>> {
    // Functions of one group share its file.
    let mut of_nodes: HashMap<PathBuf, usize> = HashMap::new();
    let mut sharing: Vec<Vec<Bdf>> = Vec::new();
    for function in functions {
        for node in PciFunction::new(root, *function).vfio_nodes() {
            let at = *of_nodes.entry(node).or_insert_with(|| {
                sharing.push(Vec::new());
                sharing.len() - 1
            });
            sharing[at].push(*function);
        }
    }
    let mut found: BTreeMap<Bdf, Vec<String>> = BTreeMap::new();
    for (at, who) in holders_of(root, &of_nodes) {
        for function in &sharing[at] {
            let known = found.entry(*function).or_default();
            let new: Vec<String> = who.iter().filter(|who| !known.contains(who)).cloned().collect();
            known.extend(new);
        }
    }
    found
}

/// The files by which a function of this IOMMU group may be opened, whose VFIO devices (`vfio-dev`) are called so: with iommufd the device has
/// one of its own (`drivers/vfio/device_cdev.c`).
pub(crate) fn nodes_of(group: Option<&str>, devices: &[String]) -> Vec<PathBuf> {
    let devices = devices.iter().map(|device| Path::new("/dev/vfio/devices").join(device));
    group.into_iter().flat_map(nodes).chain(devices).collect()
}

/// The files that a group may have: the second is that of one without an IOMMU (`enable_unsafe_noiommu_mode`).
fn nodes(group: &str) -> [PathBuf; 2] {
    [format!("/dev/vfio/{group}"), format!("/dev/vfio/noiommu-{group}")].map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, fs, os::unix::fs::symlink};

    use super::*;

    const VF: &str = "0000:01:10.0";
    const SHORT: Duration = Duration::from_millis(20);

    /// A machine with a function of group 7, which has this driver.
    fn machine(driver: &str) -> (tempfile::TempDir, PciFunction) {
        let tree = tempfile::tempdir().unwrap();
        let directory = tree.path().join("sys/bus/pci/devices").join(VF);
        fs::create_dir_all(&directory).unwrap();
        symlink(format!("../../drivers/{driver}"), directory.join("driver")).unwrap();
        symlink("../../../../kernel/iommu_groups/7", directory.join("iommu_group")).unwrap();
        let function = PciFunction::new(&Root::at(tree.path()), VF.parse().unwrap());
        (tree, function)
    }

    /// Adds the process `id` with one open file.
    fn process(tree: &Path, id: u32, open: &str) {
        let directory = tree.join(format!("proc/{id}"));
        fs::create_dir_all(directory.join("fd")).unwrap();
        fs::write(directory.join("comm"), "testpmd\n").unwrap();
        symlink(open, directory.join("fd/3")).unwrap();
    }

    fn answers(errno: Errno) -> impl Fn(&Path) -> io::Result<OpenedAs> {
        move |_| Err(errno.into())
    }

    #[test]
    fn the_kernel_says_whether_a_function_is_held_and_proc_by_whom() {
        let (tree, function) = machine("vfio-pci");
        process(tree.path(), 11, "anon_inode:[vfio-device]");
        let held = function.held(&answers(Errno::EBUSY), SHORT);
        assert_eq!(held, ["a process that /proc does not name (IOMMU group 7 is busy)"]);
        process(tree.path(), 12, "/dev/vfio/7 (deleted)");
        assert_eq!(function.held(&answers(Errno::EBUSY), SHORT), ["testpmd (process 12)"]);
        process(tree.path(), 13, "/dev/vfio/77");
        assert_eq!(function.held(&answers(Errno::EBUSY), SHORT), ["testpmd (process 12)"]);
        assert!(function.held(&|_| Ok(OpenedAs::Device), SHORT).is_empty(), "it could be opened");
    }

    #[test]
    fn what_cannot_be_asked_is_not_taken_for_free() {
        let (tree, function) = machine("vfio-pci");
        let held = function.held(&answers(Errno::EMFILE), SHORT);
        assert!(held[0].contains("/dev/vfio/7 cannot be opened"), "{held:?}");
        assert!(function.held(&answers(Errno::ENOENT), SHORT).is_empty());
        fs::create_dir_all(function.directory().join("vfio-dev/vfio3")).unwrap();
        process(tree.path(), 12, "/dev/vfio/devices/vfio3");
        assert_eq!(function.held(&answers(Errno::ENOENT), SHORT), ["testpmd (process 12)"]);
    }

    #[test]
    fn who_has_which_of_many_functions_is_seen_in_one_look() {
        let (tree, function) = machine("vfio-pci");
        let other: Bdf = "0000:01:10.2".parse().unwrap();
        let directory = tree.path().join(format!("sys/bus/pci/devices/{other}"));
        fs::create_dir_all(directory.join("vfio-dev/vfio4")).unwrap();
        symlink("../../drivers/vfio-pci", directory.join("driver")).unwrap();
        symlink("../../../../kernel/iommu_groups/8", directory.join("iommu_group")).unwrap();
        let free: Bdf = "0000:01:10.4".parse().unwrap();
        process(tree.path(), 12, "/dev/vfio/7 (deleted)");
        process(tree.path(), 13, "/dev/vfio/devices/vfio4");
        process(tree.path(), 14, "/dev/vfio/8");
        let found = opened_by(&Root::at(tree.path()), &[function.bdf(), other, free].into());
        assert_eq!(found[&function.bdf()], ["testpmd (process 12)"]);
        let mut both = found[&other].clone();
        both.sort();
        assert_eq!(both, ["testpmd (process 13)", "testpmd (process 14)"]);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn a_function_of_a_vfio_driver_for_some_devices_is_asked_for_too() {
        let (tree, function) = machine("mlx5_vfio_pci");
        process(tree.path(), 12, "/dev/vfio/7 (deleted)");
        assert_eq!(function.opened_by(), ["testpmd (process 12)"]);
        assert_eq!(function.held(&answers(Errno::EBUSY), SHORT), ["testpmd (process 12)"]);
    }

    #[test]
    fn one_who_is_just_ending_holds_nothing() {
        let (_tree, function) = machine("vfio-pci");
        let asked = Cell::new(0);
        let ends = |_: &Path| {
            asked.set(asked.get() + 1);
            if asked.get() < 3 { Err(Errno::EBUSY.into()) } else { Ok(OpenedAs::Device) }
        };
        assert!(function.held(&ends, PASSING).is_empty());
        assert_eq!(asked.get(), 3);
    }

    #[test]
    fn only_a_function_of_vfio_is_asked_for() {
        let (_tree, function) = machine("igbvf");
        assert!(function.held(&|_| panic!("a group of others is let alone"), SHORT).is_empty());
    }
}
