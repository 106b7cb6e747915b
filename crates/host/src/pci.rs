//! PCI functions through sysfs: drivers, VFs, resets (`Documentation/ABI/testing/sysfs-bus-pci`).

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::errno::Errno;
use penstock_model::{Bdf, VfIndex, text::counted};
use thiserror::Error;

use crate::{
    Command, InterfaceReport, Root,
    files::{self, FileError},
};

mod representor;
pub(crate) mod vfio;

pub use penstock_model::pci::{gives_interface, is_vfio, passes_through};
pub use representor::is_representor;
pub(crate) use representor::represented_vf;
pub use vfio::opened_by;

/// Whether a driver takes a function away from the host. `driver_override` is kept for it, so that nothing else takes the
/// function when it is probed again; for every other driver it is cleared again, since a forgotten one blocks all others.
fn keeps_override(driver: &str) -> bool {
    is_vfio(driver) || driver == "pci-stub"
}

/// One file for each device, called `BUS-DEVICE`, with the driver's name (`driverctl`, `save_override`).
pub(crate) const CHOSEN_DRIVERS: &str = "/etc/driverctl.d";

/// How long the kernel may take to load a driver's module.
const LOADING: Duration = Duration::from_secs(60);

/// One PCI function of a machine.
#[derive(Clone, Debug)]
pub struct PciFunction {
    root: Root,
    bdf: Bdf,
}

impl PciFunction {
    /// The function at `bdf` of the machine under `root`; it need not exist.
    pub fn new(root: &Root, bdf: Bdf) -> PciFunction {
        PciFunction { root: root.clone(), bdf }
    }

    /// Its PCI address.
    pub fn bdf(&self) -> Bdf {
        self.bdf
    }

    /// The directory that sysfs keeps for it.
    pub fn directory(&self) -> PathBuf {
        self.root.path(format!("/sys/bus/pci/devices/{}", self.bdf))
    }

    /// Whether it is there.
    pub fn exists(&self) -> bool {
        files::exists(self.directory())
    }

    /// The bound driver.
    ///
    /// # Errors
    ///
    /// [`PciError::File`] when sysfs cannot be read. A function that is not there has no driver.
    pub fn driver(&self) -> Result<Option<String>, PciError> {
        self.link("driver")
    }

    /// `driver_override`, when set.
    ///
    /// # Errors
    ///
    /// [`PciError::Missing`] when the function is not there, [`PciError::File`] when sysfs cannot be read.
    pub fn driver_override(&self) -> Result<Option<String>, PciError> {
        match self.read("driver_override") {
            // The kernel writes "(null)" for none.
            Ok(text) if text.is_empty() || text == "(null)" => Ok(None),
            Ok(text) => Ok(Some(text)),
            Err(PciError::Unsupported { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Binds `driver` and no other, or unbinds what is bound with `None`; already so is success.
    ///
    /// The driver is named to `driver_override` first: a VF whose PF has `sriov_drivers_autoprobe` off is bound to
    /// nothing else (`drivers/pci/pci-driver.c`, `pci_device_can_probe`). A driver that is not loaded is loaded.
    ///
    /// An override that somebody else has set stays where it names the driver that is bound, and wherever `driverctl` keeps
    /// it for good.
    ///
    /// # Errors
    ///
    /// [`PciError::Missing`] when the function is not there, [`PciError::Held`] when a process has it open through VFIO, or a VF of it,
    /// [`PciError::NotBound`] when the kernel did not bind the driver, [`PciError::Refused`] when a file of sysfs takes no
    /// write, [`PciError::File`] when one cannot be read.
    pub fn set_driver(&self, driver: Option<&str>) -> Result<(), PciError> {
        let bound = self.driver()?;
        let before = self.driver_override()?;
        if driver.is_some() && bound.as_deref() == driver {
            return self.settle_override(driver, before.as_deref());
        }
        if !self.exists() {
            return Err(PciError::Missing { function: self.bdf });
        }
        if let Some(bound) = bound {
            self.is_free()?;
            // They go with a PF's driver.
            self.vfs_are_free()?;
            self.unbind(&bound)?;
        }
        match driver {
            None => self.settle_override(None, before.as_deref()),
            Some(driver) => {
                let outcome = self.bind(driver);
                let settled = self.settle_override(outcome.is_ok().then_some(driver), before.as_deref());
                outcome.and(settled)
            }
        }
    }

    fn unbind(&self, bound: &str) -> Result<(), PciError> {
        let attempt = format!("unbind {bound} from {}", self.bdf);
        match self.write(&attempt, "driver/unbind", &self.bdf.to_string()) {
            // It went by itself meanwhile.
            Err(_) if self.driver()?.is_none() => Ok(()),
            outcome => outcome,
        }
    }

    fn bind(&self, driver: &str) -> Result<(), PciError> {
        if driver.contains('/') || driver.starts_with('.') || driver.is_empty() {
            return Err(PciError::NotBound {
                function: self.bdf,
                driver: driver.to_owned(),
                why: "that is no driver's name".to_owned(),
                hint: None,
            });
        }
        let of_driver = self.root.path(format!("/sys/bus/pci/drivers/{driver}"));
        let mut loading = None;
        if !files::exists(&of_driver) && self.root.is_system() {
            let load = Command::new("modprobe").arg("--").arg(driver);
            loading = load.deadline(LOADING).succeed().err();
        }
        let not_bound = |why: String, hint: Option<String>| PciError::NotBound {
            function: self.bdf,
            driver: driver.to_owned(),
            why,
            hint,
        };
        if !files::exists(&of_driver) {
            let why = match loading {
                Some(error) => format!("the driver is not loaded: {error}"),
                None => "the driver is not loaded".to_owned(),
            };
            return Err(not_bound(why, Some(format!("load it: modprobe {driver}"))));
        }
        let attempt = format!("bind {driver} to {}", self.bdf);
        self.write(&attempt, "driver_override", driver)?;
        let address = self.bdf.to_string();
        let probe = self.root.path("/sys/bus/pci/drivers_probe");
        write_to(&attempt, &probe, &address)?;
        if self.driver()?.as_deref() == Some(driver) {
            return Ok(());
        }
        // A probe that fails is not told through `drivers_probe`; `bind` returns its error number.
        let error = write_to(&attempt, &of_driver.join("bind"), &address).err();
        match self.driver()? {
            Some(bound) if bound == driver => Ok(()),
            Some(other) => Err(not_bound(format!("{other} took it"), None)),
            None => {
                let why = match error.as_ref().and_then(std::error::Error::source) {
                    Some(reason) => format!("its probe failed: {reason}"),
                    None => "its probe did not take the function".to_owned(),
                };
                let hint = if is_vfio(driver) {
                    "is the IOMMU on (intel_iommu=on or amd_iommu=on)? the kernel log (dmesg) says more"
                } else {
                    "the kernel log (dmesg) says more"
                };
                Err(not_bound(why, Some(hint.to_owned())))
            }
        }
    }

    /// Clears `driver_override` where it is ours, now that `driver` is bound; `before` is what it was when we came.
    fn settle_override(&self, driver: Option<&str>, before: Option<&str>) -> Result<(), PciError> {
        let Some(now) = self.driver_override()? else { return Ok(()) };
        let passes = keeps_override(&now);
        let kept = match driver {
            Some(driver) => (passes && now == driver) || (!passes && before == Some(driver)),
            None => false,
        };
        if kept || self.chosen_driver().as_ref() == Some(&now) {
            return Ok(());
        }
        self.clear_override()
    }

    /// Whether `driver_override` names `driver` and serves nobody: a run of ours that was killed while it bound that driver leaves it
    /// so. It serves a function that is bound to a driver that takes it away from the host, and one for which the operator has
    /// chosen that driver for good with `driverctl`. A function that is not there has none.
    ///
    /// # Errors
    ///
    /// [`PciError::File`] when sysfs cannot be read. Of a function that is not there it is `false`.
    pub fn has_idle_override(&self, driver: &str) -> Result<bool, PciError> {
        let now = match self.driver_override() {
            Err(PciError::Missing { .. }) => return Ok(false),
            now => now?,
        };
        let passed_through = keeps_override(driver) && self.driver()?.as_deref() == Some(driver);
        Ok(now.as_deref() == Some(driver) && !passed_through && self.chosen_driver() != now)
    }

    /// Sets `driver_override`, or clears it with `None`; what is bound stays bound.
    ///
    /// # Errors
    ///
    /// [`PciError::Missing`] when the function is not there, [`PciError::Refused`] when the file takes no write.
    pub fn set_override(&self, driver: Option<&str>) -> Result<(), PciError> {
        let Some(driver) = driver else { return self.clear_override() };
        self.write(&format!("set the driver override of {} to {driver}", self.bdf), "driver_override", driver)
    }

    /// Clears `driver_override`; what is bound stays bound.
    ///
    /// # Errors
    ///
    /// [`PciError::Missing`] when the function is not there, [`PciError::Refused`] when the file takes no write.
    pub fn clear_override(&self) -> Result<(), PciError> {
        let attempt = format!("clear the driver override of {}", self.bdf);
        self.write(&attempt, "driver_override", "\n")
    }

    /// The driver that the operator has chosen for it for good with `driverctl`.
    fn chosen_driver(&self) -> Option<String> {
        let read =
            |name: String| files::read_to_string(self.root.path(format!("{CHOSEN_DRIVERS}/{name}"))).ok();
        let text = read(format!("pci-{}", self.bdf)).or_else(|| read(self.bdf.to_string()))?;
        Some(text.trim().to_owned())
    }

    /// VFs that the driver allows (`sriov_totalvfs`); `None` without SR-IOV.
    ///
    /// # Errors
    ///
    /// [`PciError::Odd`] when the file holds no number, [`PciError::File`] when it cannot be read.
    pub fn total_vfs(&self) -> Result<Option<u16>, PciError> {
        self.optional_number("sriov_totalvfs")
    }

    /// VFs that exist (`sriov_numvfs`); 0 without SR-IOV.
    ///
    /// # Errors
    ///
    /// As [`total_vfs`](PciFunction::total_vfs).
    pub fn vf_count(&self) -> Result<u16, PciError> {
        Ok(self.optional_number("sriov_numvfs")?.unwrap_or(0))
    }

    /// Creates or removes VFs; that many already is success.
    ///
    /// Linux only takes 0 to N and N to 0 (`drivers/pci/pci-sysfs.c`, `sriov_numvfs_store`). From one number to another
    /// this goes through 0, which removes the VFs that exist, only when `through_zero` is set.
    ///
    /// # Errors
    ///
    /// [`PciError::Missing`] when the function is not there, [`PciError::Unsupported`] when it has no SR-IOV,
    /// [`PciError::Refused`] when other VFs exist and `through_zero` is off, or with the kernel's reason when the driver makes
    /// none, [`PciError::Held`] when a process has one of those through VFIO that would go, [`PciError::VfCount`] when it makes another
    /// number.
    pub fn set_vf_count(&self, count: u16, through_zero: bool) -> Result<(), PciError> {
        const FILE: &str = "sriov_numvfs";
        let present = match self.optional_number(FILE)? {
            Some(present) => present,
            None if !self.exists() => return Err(PciError::Missing { function: self.bdf }),
            None => {
                return Err(PciError::Unsupported {
                    attempt: format!("create VFs of {}", self.bdf),
                    path: self.directory().join(FILE),
                });
            }
        };
        if present == count {
            return Ok(());
        }
        let attempt = format!("change the VFs of {} from {present} to {count}", self.bdf);
        let through = present != 0 && count != 0;
        if through && !through_zero {
            return Err(PciError::Refused {
                attempt,
                path: self.directory().join(FILE),
                value: count.to_string(),
                hint: Some(
                    "Linux changes a number of VFs only through 0, which removes those that exist".to_owned(),
                ),
                source: Errno::EBUSY.into(),
            });
        }
        self.vfs_are_free()?;
        if through {
            self.write(&attempt, FILE, "0")?;
        }
        self.write(&attempt, FILE, &count.to_string())
            .map_err(|error| error.hinted(|errno| self.vf_count_hint(errno, count)))?;
        // Some drivers create fewer than asked for and call it success.
        match self.vf_count()? {
            now if now == count => Ok(()),
            now => Err(PciError::VfCount { function: self.bdf, wanted: count, now }),
        }
    }

    fn vf_count_hint(&self, errno: Errno, count: u16) -> Option<String> {
        let total = self.total_vfs().ok().flatten();
        Some(match errno {
            Errno::ERANGE => match total {
                Some(total) => format!("the device allows {} at most", counted(usize::from(total), "VF")),
                None => "the device allows fewer VFs".to_owned(),
            },
            Errno::ENOENT | Errno::ENOSYS => {
                let driver = self.driver().ok().flatten();
                match driver {
                    Some(driver) => format!("the driver {driver} cannot create VFs"),
                    None => "no driver is bound to the PF; only a driver can create VFs".to_owned(),
                }
            }
            Errno::ENOMEM | Errno::ENOSPC => format!(
                "the firmware has set aside too little room for {}: turn on SR-IOV (and ARI, \"above 4G decoding\") in its set-up, or boot with pci=realloc",
                counted(usize::from(count), "VF")
            ),
            Errno::EBUSY => "a VF is in use by a guest, or another program is changing the VFs".to_owned(),
            Errno::EINVAL => "the driver refuses this number; the kernel log (dmesg) says more".to_owned(),
            Errno::EACCES | Errno::EPERM => "run as root".to_owned(),
            _ => return None,
        })
    }

    /// Whether drivers bind to new VFs by themselves (`sriov_drivers_autoprobe`).
    ///
    /// # Errors
    ///
    /// [`PciError::Odd`] when the file holds neither 0 nor 1, [`PciError::Missing`] or [`PciError::Unsupported`] when there is
    /// none.
    pub fn autoprobe(&self) -> Result<bool, PciError> {
        match self.read("sriov_drivers_autoprobe")?.as_str() {
            "0" => Ok(false),
            "1" => Ok(true),
            other => Err(PciError::Odd {
                path: self.directory().join("sriov_drivers_autoprobe"),
                text: other.to_owned(),
            }),
        }
    }

    /// Sets whether drivers bind to new VFs by themselves.
    ///
    /// # Errors
    ///
    /// [`PciError::Missing`] or [`PciError::Unsupported`] when there is no such file, [`PciError::Refused`] when it takes no
    /// write.
    pub fn set_autoprobe(&self, on: bool) -> Result<(), PciError> {
        let attempt =
            format!("turn driver autoprobe of the VFs of {} {}", self.bdf, if on { "on" } else { "off" });
        self.write(&attempt, "sriov_drivers_autoprobe", if on { "1" } else { "0" })
    }

    /// Its VFs that exist, in index order (`virtfnN`).
    ///
    /// # Errors
    ///
    /// [`PciError::File`] when the function's directory cannot be read.
    pub fn virtual_functions(&self) -> Result<Vec<(VfIndex, Bdf)>, PciError> {
        let mut vfs = Vec::new();
        for name in self.names("")? {
            let index = name.strip_prefix("virtfn").and_then(|number| number.parse().ok());
            let Some(index) = index.and_then(VfIndex::new) else {
                continue;
            };
            if let Some(bdf) = self.link(&name)?.and_then(|target| target.parse().ok()) {
                vfs.push((index, bdf));
            }
        }
        vfs.sort();
        Ok(vfs)
    }

    /// Its VF of this index, if that exists (`virtfnN`).
    ///
    /// # Errors
    ///
    /// [`PciError::File`] when the link cannot be read.
    pub fn virtual_function(&self, index: VfIndex) -> Result<Option<Bdf>, PciError> {
        Ok(self.link(&format!("virtfn{index}"))?.and_then(|target| target.parse().ok()))
    }

    /// The PF that this VF belongs to; `None` for a function that is no VF.
    ///
    /// # Errors
    ///
    /// [`PciError::File`] when the link cannot be read.
    pub fn physical_function(&self) -> Result<Option<Bdf>, PciError> {
        Ok(self.link("physfn")?.and_then(|target| target.parse().ok()))
    }

    /// Resets it, by the first of its `reset_method`s (function level reset where it has that). It must not be in use.
    ///
    /// # Errors
    ///
    /// [`PciError::Held`] when a process has it open through VFIO, or a VF of it,
    /// [`PciError::Unsupported`] when it has no way to be reset, [`PciError::Refused`] with the kernel's reason when that
    /// fails.
    pub fn reset(&self) -> Result<(), PciError> {
        let attempt = format!("reset {}", self.bdf);
        self.is_free()?;
        self.vfs_are_free()?;
        self.write(&attempt, "reset", "1")
    }

    /// Its IOMMU group.
    ///
    /// # Errors
    ///
    /// [`PciError::File`] when the link cannot be read. Without an IOMMU it is `None`.
    pub fn iommu_group(&self) -> Result<Option<u32>, PciError> {
        Ok(self.link("iommu_group")?.and_then(|target| target.parse().ok()))
    }

    /// The other members of its IOMMU group: they go to a VM together with it, or not at all.
    pub fn iommu_neighbours(&self) -> Vec<Bdf> {
        let members = files::list(self.directory().join("iommu_group/devices")).unwrap_or_default();
        members.iter().filter_map(|name| name.parse().ok()).filter(|member| *member != self.bdf).collect()
    }

    /// The names of its interfaces that are in the namespace which this sysfs was mounted in: in its own directory, or
    /// in that of its virtio device.
    ///
    /// # Errors
    ///
    /// [`PciError::File`] when a directory of sysfs cannot be read. One that is not there has no names.
    pub fn interface_names(&self) -> Result<Vec<String>, PciError> {
        let mut names = self.names("net")?;
        // Looked for only where the function has none itself: that takes a list of all that sysfs has of it.
        if names.is_empty() {
            for device in self.virtio_devices()? {
                names.extend(self.names(&format!("{device}/net"))?);
            }
        }
        Ok(names)
    }

    /// The names by which an interface may call this function its device (`IFLA_PARENT_DEV_NAME`): its address, and
    /// that of its virtio device.
    ///
    /// # Errors
    ///
    /// [`PciError::File`] when the function's directory cannot be read.
    pub fn device_names(&self) -> Result<Vec<String>, PciError> {
        let mut names = vec![self.bdf.to_string()];
        names.extend(self.virtio_devices()?);
        Ok(names)
    }

    fn virtio_devices(&self) -> Result<Vec<String>, PciError> {
        let is_virtio = |name: &String| {
            name.strip_prefix("virtio")
                .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
        };
        Ok(self.names("")?.into_iter().filter(is_virtio).collect())
    }

    /// The names in a directory of the function; none when it is not there.
    fn names(&self, directory: &str) -> Result<Vec<String>, PciError> {
        match files::list(self.directory().join(directory)) {
            Ok(names) => Ok(names),
            Err(error) if error.is_missing() => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// The last part of where a link points; `None` when there is no such link.
    fn link(&self, name: &str) -> Result<Option<String>, PciError> {
        match files::read_link(self.directory().join(name)) {
            Ok(target) => Ok(target.file_name().map(|name| name.to_string_lossy().into_owned())),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn read(&self, name: &str) -> Result<String, PciError> {
        let path = self.directory().join(name);
        match files::read_to_string(&path) {
            Ok(text) => Ok(text.trim().to_owned()),
            Err(error) if error.is_missing() && self.exists() => {
                Err(PciError::Unsupported { attempt: format!("read {name} of {}", self.bdf), path })
            }
            Err(error) if error.is_missing() => Err(PciError::Missing { function: self.bdf }),
            Err(error) => Err(error.into()),
        }
    }

    fn optional_number(&self, name: &str) -> Result<Option<u16>, PciError> {
        match self.read(name) {
            Ok(text) => {
                text.parse().map(Some).map_err(|_| PciError::Odd { path: self.directory().join(name), text })
            }
            Err(PciError::Unsupported { .. } | PciError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&self, attempt: &str, name: &str, value: &str) -> Result<(), PciError> {
        match write_to(attempt, &self.directory().join(name), value) {
            Err(PciError::Unsupported { .. }) if !self.exists() => {
                Err(PciError::Missing { function: self.bdf })
            }
            outcome => outcome,
        }
    }
}

fn write_to(attempt: &str, path: &Path, value: &str) -> Result<(), PciError> {
    files::write_attribute(path, value).map_err(|error| {
        // ENOENT is also what some attributes answer: then the file is there.
        if error.is_missing() && !files::exists(path) {
            return PciError::Unsupported { attempt: attempt.to_owned(), path: path.to_owned() };
        }
        let denied = error.source.kind() == io::ErrorKind::PermissionDenied;
        PciError::Refused {
            attempt: attempt.to_owned(),
            path: path.to_owned(),
            value: value.to_owned(),
            hint: denied.then(|| "run as root".to_owned()),
            source: error.source,
        }
    })
}

/// The interface whose device is `function`, among reports of any namespace.
///
/// A device may have several interfaces: the representors that an embedded switch in switchdev mode shows for VFs have
/// the PF for their device too. They are passed over; of several others, the one with the lowest index counts.
pub fn interface_of(function: Bdf, reports: &[InterfaceReport], root: &Root) -> Option<InterfaceReport> {
    // A function that cannot be listed may still be known by its address alone.
    let names =
        PciFunction::new(root, function).device_names().unwrap_or_else(|_| vec![function.to_string()]);
    reports
        .iter()
        .filter(|report| report.device.as_ref().is_some_and(|device| names.contains(device)))
        .filter(|report| !report.port_name.as_deref().is_some_and(is_representor))
        .min_by_key(|report| report.index)
        .cloned()
}

/// The same among reports of the namespace whose `/sys` is below `root`: where neither the kernel nor the driver tells an interface's device,
/// the one of the name that sysfs has.
pub fn local_interface_of(
    function: Bdf,
    reports: &[InterfaceReport],
    root: &Root,
) -> Option<InterfaceReport> {
    interface_of(function, reports, root).or_else(|| {
        let names = PciFunction::new(root, function).interface_names().ok()?;
        let named =
            |report: &&InterfaceReport| names.iter().any(|name| name == report.interface.name.as_str());
        reports.iter().filter(|report| report.device.is_none()).find(named).cloned()
    })
}

/// The PCI function that a device is, or that a virtio device sits on.
pub fn function_of_device(root: &Root, device: &str) -> Option<Bdf> {
    if let Ok(bdf) = device.parse() {
        return Some(bdf);
    }
    // A device's name comes from the kernel; it is still no path.
    if !device.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let path = files::canonical(root.path(format!("/sys/bus/virtio/devices/{device}"))).ok()?;
    path.parent()?.file_name()?.to_str()?.parse().ok()
}

/// A PCI operation that failed.
#[derive(Debug, Error)]
pub enum PciError {
    /// There is no such function.
    #[error("there is no PCI function {function}")]
    Missing {
        /// The address at which there is none.
        function: Bdf,
    },
    /// The function, its driver or the kernel lacks this.
    #[error("could not {attempt}: it has no {}", path.display())]
    Unsupported {
        /// What was attempted.
        attempt: String,
        /// The file that is not there.
        path: PathBuf,
    },
    /// The kernel or the driver refused a write.
    #[error("could not {attempt}: {value:?} was refused by {}", path.display())]
    Refused {
        /// What was attempted.
        attempt: String,
        /// The file written to.
        path: PathBuf,
        /// What was written.
        value: String,
        /// What to do about it.
        hint: Option<String>,
        /// The error of the write, or `EBUSY` where no write was tried.
        #[source]
        source: io::Error,
    },
    /// Somebody has the function by VFIO: a VM that is not one of Penstock's guests, or a program like DPDK's.
    #[error("{function} is in use: {by} has opened it for VFIO")]
    Held {
        /// The function that is in use.
        function: Bdf,
        /// The processes that have opened its IOMMU group, each as `NAME (process ID)`, separated by commas.
        by: String,
    },
    /// The driver did not bind.
    #[error("could not bind {driver} to {function}: {why}")]
    NotBound {
        /// The function that was to be bound.
        function: Bdf,
        /// The driver that was to bind it.
        driver: String,
        /// Why, as far as it can be known.
        why: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The driver made another number of VFs.
    #[error("{function} was asked for {} and has {now}", counted(usize::from(*wanted), "VF"))]
    VfCount {
        /// The PF whose VFs were to be made.
        function: Bdf,
        /// As many as asked for.
        wanted: u16,
        /// As many as there are.
        now: u16,
    },
    /// A file holds what nobody expects there.
    #[error("{} holds {text:?}", path.display())]
    Odd {
        /// The path of the attribute's file in sysfs.
        path: PathBuf,
        /// The text that was read from it.
        text: String,
    },
    /// A file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
}

impl PciError {
    /// What to do about it, when that is known.
    pub fn hint(&self) -> Option<&str> {
        match self {
            PciError::Refused { hint, .. } | PciError::NotBound { hint, .. } => hint.as_deref(),
            PciError::Held { .. } => Some("end that program first, or give the guest another VF"),
            _ => None,
        }
    }

    /// Whether the function, its driver or the kernel cannot do this at all.
    pub fn is_unsupported(&self) -> bool {
        match self {
            PciError::Unsupported { .. } => true,
            PciError::Refused { source, .. } => {
                matches!(source.raw_os_error().map(Errno::from_raw), Some(Errno::EOPNOTSUPP | Errno::ENOTTY))
            }
            _ => false,
        }
    }

    fn hinted(mut self, with: impl FnOnce(Errno) -> Option<String>) -> PciError {
        if let PciError::Refused { hint, source, .. } = &mut self
            && let Some(errno) = source.raw_os_error()
        {
            *hint = with(Errno::from_raw(errno)).or(hint.take());
        }
        self
    }
}
