//! What only a new start of the machine changes, and what its start is made of.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::Bdf;

/// What this run of the kernel found when it was started, and what it cannot change any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BootFacts {
    /// The IOMMU that the firmware describes, whether or not the kernel uses it. `None`: it describes none.
    pub iommu: Option<IommuKind>,
    /// Whether the host's own DMA bypasses the IOMMU; `None` where the kernel does not tell (before Linux 5.11), or the
    /// IOMMU is off.
    pub passthrough: Option<bool>,
    /// Whether VFIO gives functions away although interrupts are not kept apart
    /// (`vfio_iommu_type1 allow_unsafe_interrupts`).
    pub unsafe_interrupts: bool,
    /// PFs of which the kernel has said that there is no room for their VFs' BARs.
    pub without_room: BTreeSet<Bdf>,
    /// PFs of which the kernel has said that their VFs' bus numbers are not theirs.
    pub without_bus: BTreeSet<Bdf>,
}

/// Who made an IOMMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IommuKind {
    /// VT-d (the ACPI table `DMAR`).
    Intel,
    /// AMD-Vi (`IVRS`).
    Amd,
    /// SMMU (`IORT`).
    Arm,
}

/// What must be known of a machine to have something done at its next start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BootSetup {
    /// What puts words on the kernel's command line; `None` where no tool is found that Penstock knows.
    pub loader: Option<BootLoader>,
    /// Whether systemd starts this machine's services.
    pub systemd: bool,
    /// The text of the files that Penstock may write, by absolute path; one that is not there is left out.
    pub files: BTreeMap<String, String>,
    /// The units of ours that are started at boot.
    pub enabled: BTreeSet<String>,
    /// `/proc/cmdline`.
    pub command_line: String,
    /// The command line of each entry of the boot loader; empty where they are not known.
    #[serde(default)]
    pub entries: Vec<String>,
}

/// A tool of the distribution that merges words into the kernel's command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BootLoader {
    /// GRUB as Debian and Ubuntu have it: `/etc/default/grub.d/*.cfg` are read by `grub-mkconfig`.
    Grub {
        /// What makes the menu anew: `update-grub`, or `grub-mkconfig -o ...`.
        refresh: Vec<String>,
        /// The menu that this makes.
        menu: String,
    },
    /// `grubby`, as Fedora and RHEL have it: the entries of the Boot Loader Specification are its own, and there is no
    /// directory of drop-ins (RHEL's handbook, "Configuring kernel command-line parameters").
    Grubby,
    /// systemd-boot: `/etc/kernel/cmdline` is read by `kernel-install` (kernel-install(8)).
    KernelInstall,
    /// systemd-boot as Proxmox VE has it: `/etc/kernel/cmdline` is read by `proxmox-boot-tool`.
    ProxmoxBootTool,
}
