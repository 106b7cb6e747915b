//! Guests: VMs and containers, what each is made of, and what it owns.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ByteSize, CpuSet, Dns, FunctionName, GuestDrive, GuestName, GuestRealtime, InterfaceAddress,
    InterfaceName, InterfaceRoute, Mtu, NicName, TenantNic, TxRate, VfSettings,
};

/// A VM or a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Guest {
    /// VM or container. Default: container.
    pub kind: GuestKind,
    /// CPUs. Default: for a VM as many as `pin` has, without it 1; for a container no limit.
    pub cpus: Option<u32>,
    /// Memory. Default: 256 MiB for a VM; for a container no limit.
    pub memory: Option<ByteSize>,
    /// The host's CPUs that it runs on: of a VM with as many virtual CPUs each on one of them, in ascending order; of a
    /// container all of its processes on any of them. `None`, the default: any CPU that is not another guest's alone.
    pub pin: Option<CpuSet>,
    /// Whether no other guest may run on the CPUs of `pin`. Default: no.
    pub exclusive: bool,
    /// How it runs in real time on the CPUs of `pin`, which are then its alone. `None`, the default: it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realtime: Option<GuestRealtime>,
    /// The functions that it owns, in order: its first is `eth0` unless named.
    pub functions: Vec<Function>,
    /// The VFs of drives that it owns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drives: Vec<GuestDrive>,
    /// SR-IOV NICs that a VM owns, by the names that it calls them. Default: none.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub nics: IndexMap<NicName, TenantNic>,
    /// How programs in it resolve names. `None`: as its root has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<Dns>,
    /// Guests that must be ready before this one starts.
    pub after: Vec<GuestName>,
    /// A container's root file system.
    pub root: Root,
    /// A container's first process and its arguments. Default: an idle process that reaps children.
    pub init: Vec<String>,
    /// Whether a container runs without a user namespace: its root is then the host's. Default: no.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub privileged: bool,
    /// Block and character devices of the host that a container may use. Default: none.
    pub devices: Vec<Device>,
    /// What only a VM has; of no meaning for a container.
    pub vm: Vm,
    /// Files that are made for it from this model.
    pub generate: Vec<Generate>,
}

impl Guest {
    /// Whether Penstock gives it its name servers at its start. Another VM sets its resolver up by itself.
    pub fn starts_with_dns(&self) -> bool {
        self.kind == GuestKind::Container || self.vm.boot == Boot::Builtin
    }

    /// How much memory it gets as a VM, in bytes.
    pub fn vm_memory(&self) -> u64 {
        self.memory.unwrap_or(VM_MEMORY).0
    }

    /// What a container opens that has no user namespace, to stand behind `root in NAME is root of the host:`; `None` for
    /// other guests.
    pub fn opens(&self) -> Option<&'static str> {
        if !self.privileged || self.kind != GuestKind::Container {
            return None;
        }
        Some(match self.root {
            Root::Overlay => {
                "it reads what only root may read below /usr and /opt, and nothing but dropped capabilities, a system call \
                 filter and mounts over /proc keeps it from the rest"
            }
            Root::Directory(_) => {
                "it has CAP_SYS_ADMIN over the host, and can mount /proc/sys writable and have the host run programs \
                 (core_pattern) where AppArmor does not forbid that; programs in it can make user namespaces"
            }
        })
    }
}

/// What needs `privileged: on`, and what does not.
pub const NEEDS_PRIVILEGES: &str = "PFs, VFs, `devices`, rates, limits and real time work without it; only NVMe and SCSI \
                                    commands past the block layer, mounts of block devices and user namespaces inside need it";

/// What kind of guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GuestKind {
    /// Run by libvirt with VFs through VFIO.
    Vm,
    /// Run by LXC with VFs as physical interfaces.
    #[default]
    Container,
}

/// A container's root file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Root {
    /// Programs and libraries of the host, read-only, and the rest in memory, gone when the container stops.
    #[default]
    Overlay,
    /// This directory, absolute; what the container writes stays.
    Directory(String),
}

/// A device of the host that a container may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Device {
    /// Its path on the host, absolute, below `/dev`; a stable one (`/dev/disk/by-id/...`) survives renumbering.
    pub path: String,
    /// Its path inside. Default: the same.
    pub inside: String,
    /// Whether the container may write to it. Default: yes.
    pub write: bool,
}

/// What only a VM has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Vm {
    /// What it boots.
    pub boot: Boot,
    /// Kernel command line, after what Penstock gives (`console=ttyS0`). Only with a kernel.
    pub command_line: Option<String>,
    /// Firmware. Default: BIOS.
    pub firmware: Firmware,
    /// The host's CPUs for QEMU's own threads. Default: those that no guest is pinned to, when this guest is pinned.
    pub emulator: Option<CpuSet>,
    /// Whether all of its memory stays in RAM (`mlock`). Memory that a function reaches by DMA is locked in any case.
    pub locked_memory: bool,
    /// Whether its memory is made of huge pages of this size. Default: no.
    pub huge_pages: Option<ByteSize>,
    /// How it is looked into, and how it tells that it is up.
    pub inside: Inside,
    /// Seconds that it may take from its start until it is ready. Default: 120.
    pub ready_within: u32,
}

/// Memory of a VM that the model says nothing of.
pub const VM_MEMORY: ByteSize = ByteSize(256 << 20);

/// The most functions and VFs of drives that a VM can own: eight on each slot of its root bus that is left to them.
pub const MOST_VM_FUNCTIONS: usize = 208;

/// Seconds that a VM may take to be ready, unless the model says otherwise.
pub const READY_WITHIN: u32 = 120;

/// What a VM boots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Boot {
    /// The small Linux that Penstock makes.
    #[default]
    Builtin,
    /// A kernel, with or without an initramfs; absolute paths on the host.
    Kernel {
        /// The path of the kernel on the host.
        kernel: String,
        /// The path of the initramfs on the host.
        initramfs: Option<String>,
    },
    /// A disk image on the host, raw or qcow2; the VM writes to it.
    Disk {
        /// The absolute path of the image.
        path: String,
        /// The format of the image.
        format: DiskFormat,
    },
}

/// Format of a disk image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiskFormat {
    /// The bytes of the disk.
    #[default]
    Raw,
    /// QEMU's copy-on-write format.
    Qcow2,
}

/// A VM's firmware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Firmware {
    /// SeaBIOS, which QEMU brings.
    #[default]
    Bios,
    /// UEFI, the build that libvirt finds.
    Uefi,
}

/// How a VM is looked into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Inside {
    /// By the QEMU guest agent; it is ready when the agent answers.
    #[default]
    Agent,
    /// By what it prints on its serial console: one line for each NIC, then that it is ready (docs/console.md). For an
    /// RTOS.
    Console,
    /// Not at all: it is ready when it runs, and what only its inside could show is `unknown`.
    None,
}

/// A file that is made for a guest from the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Generate {
    /// What makes it.
    pub template: Template,
    /// Where it goes: a path relative to the model's directory, or absolute. A template that makes several files
    /// (`networkd`) takes it as a directory.
    pub to: String,
}

/// What makes a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Template {
    /// A C header with the guest's NIC table and MAC list.
    CHeader,
    /// systemd-networkd's `.link` and `.network` units, two for each function.
    Networkd,
    /// A table in JSON.
    Json,
    /// A template of the user's own (MiniJinja).
    File {
        /// Its path as the model has it, relative to the model's directory or absolute.
        path: String,
        /// Its text. Empty until it has been read: reading is not this crate's.
        text: String,
    },
}

/// A function as a guest owns it.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Function {
    /// Which PF or VF.
    pub name: FunctionName,
    /// What the PF's driver keeps for a VF: the function's own words over the NIC's `vf_defaults`. Empty for a PF
    /// but for `mac`, which a PF may have too.
    pub settings: VfSettings,
    /// The interface's name inside the guest. Default: `eth` and the position in the list.
    pub interface: InterfaceName,
    /// IP addresses inside the guest.
    pub addresses: Vec<InterfaceAddress>,
    /// Routes over it inside the guest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<InterfaceRoute>,
    /// Whether a DHCP client inside the guest asks for an address of IPv4.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dhcp: bool,
    /// MTU inside the guest. `None`: left alone.
    pub mtu: Option<Mtu>,
    /// The most that the guest may send, in Mbit/s, held by the kernel (tc) at the interface. `None`: no limit.
    pub egress_rate: Option<TxRate>,
    /// The most that the guest may receive, in Mbit/s, held by the kernel (tc) at the interface. `None`: no limit.
    pub ingress_rate: Option<TxRate>,
    /// Attributes, in the model's spelling, that may turn out unsupported; the NIC's are included.
    pub best_effort: BTreeSet<String>,
}
