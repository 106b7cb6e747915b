//! What a VM needs of the host, looked at before libvirt is asked: each thing that is missing has then one clear message.

use penstock_host::{PciFunction, Root, files};
use penstock_model::{Bdf, CpuSet, VM_MEMORY, pci::is_vfio};
use penstock_plan::action::GuestDefinition;

use super::domain;
use crate::{error::GuestError, state::State};

/// What QEMU takes beside the guest's memory, roughly, in bytes.
const OVERHEAD: u64 = 64 << 20;

/// Fails when the host has no KVM, or one of another processor than the VMs are written for (`domain.rs`).
///
/// # Errors
///
/// [`GuestError::OtherProcessor`], [`GuestError::NoKvm`].
pub fn kvm(root: &Root) -> Result<(), GuestError> {
    let processor = std::env::consts::ARCH;
    if processor != "x86_64" {
        return Err(GuestError::OtherProcessor { processor });
    }
    if files::exists(root.path("/dev/kvm")) { Ok(()) } else { Err(GuestError::NoKvm) }
}

/// Fails unless each of the guest's functions can be given to a VM: it is there, behind an IOMMU, bound to `vfio-pci`, in
/// a group with nobody else's device (`drivers/vfio/vfio_main.c`, "viable"), and not another guest's.
///
/// # Errors
///
/// The first that is in the way: [`GuestError::TooManyFunctions`], [`GuestError::InUse`], [`GuestError::NoFunction`],
/// [`GuestError::NoIommu`], [`GuestError::NotVfio`], [`GuestError::Held`], [`GuestError::NotViable`]; when a guest's state cannot be
/// read.
pub fn functions(root: &Root, state: &State, definition: &GuestDefinition) -> Result<(), GuestError> {
    let count = definition.host_functions().count();
    if count > domain::MOST_FUNCTIONS {
        return Err(GuestError::TooManyFunctions { guest: definition.guest.clone(), count });
    }
    for function in definition.host_functions() {
        let guest = definition.guest.clone();
        if let Some(by) = state.holder(function, &definition.guest)? {
            return Err(GuestError::InUse { guest, function, by });
        }
        let pci = PciFunction::new(root, function);
        if !pci.exists() {
            return Err(GuestError::NoFunction { guest, function });
        }
        // What sysfs does not tell is as good as not there: VFIO would say the same, later and with fewer words.
        let Some(group) = pci.iommu_group().ok().flatten() else {
            return Err(GuestError::NoIommu { guest, function });
        };
        let driver = pci.driver().ok().flatten();
        if driver.as_deref() != Some("vfio-pci") {
            return Err(GuestError::NotVfio { guest, function, driver });
        }
        let by = pci.held_by();
        if !by.is_empty() {
            return Err(GuestError::Held { guest, function, by: by.join(", ") });
        }
        let in_the_way: Vec<String> =
            pci.iommu_neighbours().into_iter().filter_map(|member| in_the_way(root, member)).collect();
        if !in_the_way.is_empty() {
            return Err(GuestError::NotViable { guest, function, group, others: in_the_way });
        }
    }
    Ok(())
}

/// A device that keeps its whole group from being used, with its driver. One without a driver does not, nor one that
/// belongs to VFIO or `pci-stub`, nor a port (`vfio_dev_viable`, `iommu_group_claim_dma_owner`).
fn in_the_way(root: &Root, member: Bdf) -> Option<String> {
    let driver = PciFunction::new(root, member).driver().ok().flatten()?;
    let harmless = is_vfio(&driver) || matches!(driver.as_str(), "pci-stub" | "pcieport" | "shpchp");
    (!harmless).then(|| format!("{member} (driver {driver})"))
}

/// Fails when the host has not enough memory for the guest, or not enough huge pages.
///
/// # Errors
///
/// [`GuestError::NoHugePages`], [`GuestError::NoMemory`].
pub fn memory(root: &Root, definition: &GuestDefinition) -> Result<(), GuestError> {
    let guest = definition.guest.clone();
    let wanted = definition.memory.unwrap_or(VM_MEMORY.0);
    if let Some(size) = definition.vm.as_ref().and_then(|vm| vm.huge_pages) {
        let pages = root.path(format!("/sys/kernel/mm/hugepages/hugepages-{}kB", size.0 / 1024));
        let free = files::read_to_string(pages.join("free_hugepages")).ok();
        let free = free.and_then(|text| text.trim().parse::<u64>().ok());
        let wanted = wanted.div_ceil(size.0.max(1));
        if free.is_none_or(|free| free < wanted) {
            return Err(GuestError::NoHugePages { guest, size, wanted, free });
        }
        return Ok(());
    }
    // "MemAvailable:   23456789 kB"
    let text = files::read_to_string(root.path("/proc/meminfo")).unwrap_or_default();
    let field = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let available = field.and_then(|field| field.trim().trim_end_matches(" kB").parse::<u64>().ok());
    match available.map(|kibibytes| kibibytes * 1024) {
        Some(available) if available < wanted + OVERHEAD => {
            Err(GuestError::NoMemory { guest, wanted, available })
        }
        // Where the kernel does not tell, QEMU finds out.
        _ => Ok(()),
    }
}

/// The host's CPUs for QEMU's own threads: what the model names, or of those that are online what no guest is pinned to.
/// `None` when there are none left, or the guest is not pinned.
///
/// # Errors
///
/// When the definition of a guest cannot be read.
pub fn emulator(
    root: &Root,
    state: &State,
    definition: &GuestDefinition,
) -> Result<Option<CpuSet>, GuestError> {
    if let Some(named) = definition.vm.as_ref().and_then(|vm| vm.emulator.clone()) {
        return Ok(Some(named));
    }
    if definition.pin.is_none() {
        return Ok(None);
    }
    let online = files::read_to_string(root.path("/sys/devices/system/cpu/online")).unwrap_or_default();
    let Ok(CpuSet(mut left)) = online.trim().parse::<CpuSet>() else { return Ok(None) };
    for guest in state.guests()? {
        let pinned = state.definition(&guest)?.and_then(|definition| definition.pin);
        left.retain(|cpu| !pinned.as_ref().is_some_and(|pin| pin.0.contains(cpu)));
    }
    left.retain(|cpu| !definition.pin.as_ref().is_some_and(|pin| pin.0.contains(cpu)));
    Ok((!left.is_empty()).then_some(CpuSet(left)))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn what_vfio_or_nobody_has_is_in_nobodys_way() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let member: Bdf = "0000:01:10.0".parse().unwrap();
        let device = tree.path().join(format!("sys/bus/pci/devices/{member}"));
        fs::create_dir_all(&device).unwrap();
        assert_eq!(in_the_way(&root, member), None);
        for driver in ["vfio-pci", "mlx5_vfio_pci", "pci-stub", "pcieport"] {
            symlink(format!("../../drivers/{driver}"), device.join("driver")).unwrap();
            assert_eq!(in_the_way(&root, member), None, "{driver}");
            fs::remove_file(device.join("driver")).unwrap();
        }
        symlink("../../drivers/igbvf", device.join("driver")).unwrap();
        assert_eq!(in_the_way(&root, member).as_deref(), Some("0000:01:10.0 (driver igbvf)"));
    }
}
