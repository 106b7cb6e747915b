//! The file as it is written. Each type's documentation is also what `penstock schema` says of it.

mod address;
mod dns;
mod drive;
mod measure;
mod realtime;
mod route;
mod schema;
mod tenant;

use std::{fmt, marker::PhantomData, str::FromStr};

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer, value::SeqAccessDeserializer},
};

use crate::{
    BoardKernel, ByteSize, CpuSet, DiskFormat, DriveName, Emulation, Firmware, FreeDriver, FunctionName,
    GuestKind, GuestName, Inside, InterfaceAddress, InterfaceName, LinkState, Mac, Mtu, NicMatch, NicName,
    TxRate, VfCount, VfSettings, VlanId, VlanProtocol, VlanQos, WantedEswitch,
    names::MachineName,
    quantity::CpuList,
    vf::table::{document_with_vf_keys, vf_attributes},
};

pub(crate) use address::GuestAddress;
pub(crate) use dns::DnsDocument;
pub(crate) use drive::{DriveDocument, GuestDriveEntry};
pub(crate) use measure::{ExpectLine, MeasureDocument, StorageEntry};
pub use schema::{MODELINE, schema};

pub(crate) use route::{HopAddress, RouteDocument, RouteTarget};

pub(crate) use realtime::{GuestRealtimeDocument, GuestRealtimeEntry, RealtimeDocument};
pub(crate) use tenant::{DataPathEntry, TenantNicDocument, TenantVfDocument, UplinkEntry};

/// A machine with SR-IOV NICs, its guests, and which functions each guest owns.
///
/// ```yaml
/// machine: xeon-d
/// nics:
///   NET0: {match: {mac: "0c:c4:7a:9a:61:ea"}, vfs: 7, loopback: on}
/// guests:
///   linux-2: {kind: container, functions: [NET0#4]}
/// ```
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a model: `nics` and `guests`")]
#[schemars(rename = "Model")]
pub(crate) struct ModelDocument {
    /// The machine's name. Default: the file's name without its ending.
    pub machine: Option<MachineName>,
    /// The NICs, by the names that the rest of the file calls them.
    pub nics: IndexMap<NicName, NicDocument>,
    /// NVMe drives with SR-IOV, by the names that the rest of the file calls them. Default: none.
    pub drives: IndexMap<DriveName, DriveDocument>,
    /// The VMs and containers, by name.
    pub guests: IndexMap<GuestName, GuestDocument>,
    /// What of the machine decides how late its guests wake. Default: nothing of it is touched, but for guests with `realtime`.
    pub realtime: Option<RealtimeDocument>,
    /// What is measured beside the paths that the machine has. Default: nothing.
    pub measure: MeasureDocument,
    /// What is to hold of the measurements: a line, or a list of them. Default: nothing.
    pub expect: Option<OneOrMany<ExpectLine>>,
    /// What only a rehearsal needs. Default: derived from the rest.
    pub board: BoardDocument,
}

/// A NIC: one PF with its VFs. All of it has defaults; `NET0:` with nothing behind it is a NIC.
///
/// ```yaml
/// NET0:
///   match: {mac: "0c:c4:7a:9a:61:ea"}
///   vfs: 7
///   loopback: on
///   defaults: {spoofchk: on, trust: off}
///   best_effort: [link_state]
/// ```
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a NIC: a mapping like {vfs: 7}")]
#[schemars(rename = "Nic")]
pub(crate) struct NicDocument {
    /// Which device it is. Default: any PF with room for the VFs that no other NIC claims more exactly.
    #[serde(rename = "match")]
    pub matching: NicMatch,
    /// How many VFs it has. Default: one more than the highest index that a guest uses.
    /// Also read as `numVfs` and `virtual-function-count`.
    #[serde(alias = "numVfs", alias = "virtual-function-count")]
    pub vfs: Option<VfCount>,
    /// Whether somebody else makes its VFs and sets their attributes: they are used and nothing of the NIC is changed.
    /// Default: no. Also read as `externallyManaged`.
    #[serde(alias = "externallyManaged")]
    pub externally_managed: Option<bool>,
    /// Whether its functions reach each other inside the NIC (VEB) or not (VEPA). Default: left as the driver has it.
    pub loopback: Option<bool>,
    /// The mode of its embedded switch: `legacy`, or `switchdev`, where each VF has a representor on the host and the host's rules say
    /// where frames go. Default: left as it is. Also read as `eSwitchMode` and `embedded-switch-mode`.
    #[serde(alias = "eSwitchMode", alias = "embedded-switch-mode")]
    pub eswitch: Option<WantedEswitch>,
    /// MTU of the PF. Default: left alone.
    pub mtu: Option<Mtu>,
    /// The name that the PF's interface gets on the host: it renames, and selects no PF, which `match` does. Default: left alone.
    pub interface: Option<InterfaceName>,
    /// An IP address of the PF's interface on the host, or a list of them; the same as `addresses`.
    pub address: Option<OneOrMany<InterfaceAddress>>,
    /// IP addresses of the PF's interface on the host. Default: none are added or removed.
    pub addresses: Option<OneOrMany<InterfaceAddress>>,
    /// What each VF of the NIC gets unless its own entry says otherwise. No `mac`: VFs cannot share one.
    pub defaults: VfSettings,
    /// What becomes of its VFs that no guest owns. Default: they are bound to the host's network driver, where they have none
    /// and as far as it can be bound.
    pub free: FreeDocument,
    /// Attributes of the NIC and its functions that may turn out unsupported without the whole failing.
    pub best_effort: Vec<String>,
}

/// What becomes of VFs that no guest owns.
///
/// ```yaml
/// free: {driver: vfio-pci}
/// ```
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a rule for VFs that no guest owns: a mapping like {driver: vfio-pci}"
)]
#[schemars(rename = "Free")]
pub(crate) struct FreeDocument {
    /// Their driver: `host`, the network driver that the host has for them; `vfio-pci`; or `none`, which binds none and leaves those
    /// that have one. Default: `host`, for those that have none, and no failure where that cannot be bound.
    pub driver: Option<FreeDriver>,
}

/// A VM or a container.
///
/// ```yaml
/// rt-2:
///   kind: vm
///   cpus: 1
///   memory: 256MiB
///   functions: [NET0#0, {vf: NET1#4, vlan: 100, address: 10.20.31.204/24}]
/// ```
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a guest: a mapping like {functions: [NET0#0]}")]
#[schemars(rename = "Guest")]
pub(crate) struct GuestDocument {
    /// `vm` or `container`. Default: container.
    pub kind: Option<GuestKind>,
    /// Number of CPUs. Default: for a VM as many as `pin` has, without it 1; for a container no limit.
    #[schemars(range(min = 1, max = 8192))]
    pub cpus: Option<u32>,
    /// Memory. Default: 256MiB for a VM; for a container no limit.
    pub memory: Option<ByteSize>,
    /// The host's CPUs that it runs on, like `2-3`: a VM's virtual CPUs one each, in ascending order. Default: any that
    /// are not another guest's alone.
    #[schemars(with = "Option<CpuSet>")]
    pub pin: Option<CpuList>,
    /// Whether no other guest may run on the CPUs of `pin`. Default: no.
    pub exclusive: Option<bool>,
    /// Whether it runs in real time: `on`, or a mapping that says how. The CPUs of `pin` are then an isolated partition that is
    /// its alone. Default: off.
    pub realtime: Option<GuestRealtimeEntry>,
    /// The functions that it owns. The first is `eth0` inside it, and so on, unless named.
    pub functions: Vec<FunctionEntry>,
    /// The VFs of NVMe drives that a VM owns, like `[SSD0#0]`. Default: none.
    pub drives: Vec<GuestDriveEntry>,
    /// SR-IOV NICs that a VM owns itself, by name: QEMU emulates each, and an embedded switch of the host carries its frames. Default:
    /// none.
    pub nics: IndexMap<NicName, TenantNicDocument>,
    /// How programs in it resolve names: its `/etc/resolv.conf`. A VM that does not boot `builtin` sets it up itself, by a file of
    /// `generate`. Default: a container without a `root` has a copy of the host's, and others what their root has.
    pub dns: Option<DnsDocument>,
    /// Guests that must be ready before this one starts.
    pub after: Vec<GuestName>,
    /// A container's root file system: `overlay`, programs and libraries of the host under a layer in memory, or an absolute directory.
    /// Default: overlay.
    pub root: Option<String>,
    /// A container's first process and its arguments, as a list or as a line of words. Default: an idle process that reaps children.
    pub init: Option<OneOrMany<String>>,
    /// Whether a container runs without a user namespace, so that its root is the host's. Default: no.
    pub privileged: Option<bool>,
    /// Block and character devices of the host that a container may use. Default: none.
    pub devices: Vec<DeviceEntry>,
    /// What a VM boots: `builtin`, `{kernel: PATH, initramfs: PATH}`, or `{disk: PATH, format: qcow2}`. Default: builtin.
    pub boot: Option<BootEntry>,
    /// A VM's kernel command line, after `console=ttyS0`. Default: nothing more.
    pub command_line: Option<String>,
    /// A VM's firmware: `bios` or `uefi`. Default: bios.
    pub firmware: Option<Firmware>,
    /// The host's CPUs for a VM's own QEMU threads, like `0`. Default: for a pinned VM, those that no guest is pinned to.
    #[schemars(with = "Option<CpuSet>")]
    pub emulator: Option<CpuList>,
    /// Whether all of a VM's memory stays in RAM. Default: no.
    pub locked_memory: Option<bool>,
    /// The size of the huge pages that a VM's memory is made of, like `2MiB`. Default: no huge pages.
    pub huge_pages: Option<ByteSize>,
    /// How a VM is looked into: `agent`, `console` or `none`. Default: agent.
    pub inside: Option<Inside>,
    /// Seconds that a VM may take until it is ready. Default: 120.
    #[schemars(range(min = 1, max = 86400))]
    pub ready_within: Option<u32>,
    /// Files that are made for it from this model. Default: none.
    pub generate: Vec<GenerateDocument>,
}

/// A device of the host that a container may use: only its path, or a mapping.
#[derive(Debug, JsonSchema)]
#[schemars(untagged, rename = "DeviceEntry")]
pub(crate) enum DeviceEntry {
    /// `/dev/disk/by-id/nvme-x`.
    Path(String),
    /// `{path: /dev/ttyS1, inside: /dev/ttyS0, write: off}`.
    Settings(DeviceDocument),
    /// An entry that was wrong and has been reported.
    #[schemars(skip)]
    Spoiled,
}

impl<'de> Deserialize<'de> for DeviceEntry {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<DeviceEntry, D::Error> {
        struct Entry;

        impl<'de> Visitor<'de> for Entry {
            type Value = DeviceEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a device like /dev/ttyS1 or {path: /dev/ttyS1, inside: /dev/ttyS0}")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<DeviceEntry, E> {
                Ok(DeviceEntry::Path(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DeviceEntry, A::Error> {
                DeviceDocument::deserialize(MapAccessDeserializer::new(map)).map(DeviceEntry::Settings)
            }

            fn visit_none<E: de::Error>(self) -> Result<DeviceEntry, E> {
                Ok(DeviceEntry::Spoiled)
            }
        }

        from.deserialize_any(Entry)
    }
}

/// A device of the host that a container may use.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a device like {path: /dev/ttyS1}")]
#[schemars(rename = "Device")]
pub(crate) struct DeviceDocument {
    /// Its path on the host, below `/dev`. Must be given.
    pub path: Option<String>,
    /// Its path inside. Default: the same.
    pub inside: Option<String>,
    /// Whether the container may write to it. Default: yes.
    pub write: Option<bool>,
}

/// What a VM boots: `builtin`, or a mapping.
#[derive(Debug, JsonSchema)]
#[schemars(untagged, rename = "BootEntry")]
pub(crate) enum BootEntry {
    /// `builtin`.
    Named(BootName),
    /// `{kernel: /boot/vmlinuz}` or `{disk: /srv/guest.qcow2}`.
    Settings(BootDocument),
}

/// What a VM boots, by name.
#[derive(Clone, Copy, Debug, JsonSchema)]
#[schemars(rename_all = "lowercase")]
pub(crate) enum BootName {
    /// The small Linux that Penstock makes.
    Builtin,
}

impl<'de> Deserialize<'de> for BootEntry {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<BootEntry, D::Error> {
        struct Entry;

        impl<'de> Visitor<'de> for Entry {
            type Value = BootEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`builtin`, {kernel: PATH} or {disk: PATH}")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<BootEntry, E> {
                match text {
                    "builtin" => Ok(BootEntry::Named(BootName::Builtin)),
                    _ => Err(E::custom(
                        "this is nothing to boot: write `builtin`, {kernel: PATH} or {disk: PATH}",
                    )),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<BootEntry, A::Error> {
                BootDocument::deserialize(MapAccessDeserializer::new(map)).map(BootEntry::Settings)
            }
        }

        from.deserialize_any(Entry)
    }
}

/// What a VM boots: a kernel of the host's file system, or a disk image.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "{kernel: PATH} or {disk: PATH}")]
#[schemars(rename = "Boot")]
pub(crate) struct BootDocument {
    /// Path of a kernel.
    pub kernel: Option<String>,
    /// Path of its initramfs. Default: none.
    pub initramfs: Option<String>,
    /// Path of a disk image, or of a block device that the host does not use. The VM writes to it.
    pub disk: Option<String>,
    /// The disk image's format: `raw` or `qcow2`. Default: raw.
    pub format: Option<DiskFormat>,
}

/// A file that is made for a guest from the model.
///
/// ```yaml
/// {template: c-header, to: generated/rt-2/nic_table.h}
/// ```
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a file like {template: c-header, to: nic_table.h}")]
#[schemars(rename = "Generate")]
pub(crate) struct GenerateDocument {
    /// `c-header`, `networkd`, `json`, or the path of a template of your own, which has a `/` or a `.` in it.
    pub template: Option<String>,
    /// Where it goes, relative to the model's directory. For `networkd` a directory.
    pub to: Option<String>,
}

/// A function that a guest owns: only its name, or a mapping with its attributes.
#[derive(Debug, JsonSchema)]
#[schemars(untagged, rename = "FunctionEntry")]
pub(crate) enum FunctionEntry {
    /// `NET0#3`, or `NET0` for the PF.
    Name(FunctionName),
    /// `{vf: NET0#3, vlan: 100}`.
    Settings(Box<FunctionDocument>),
    /// An entry that was wrong and has been reported.
    #[schemars(skip)]
    Spoiled,
}

impl<'de> Deserialize<'de> for FunctionEntry {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<FunctionEntry, D::Error> {
        struct Entry;

        impl<'de> Visitor<'de> for Entry {
            type Value = FunctionEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a function like NET0#3 or {vf: NET0#3, vlan: 100}")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<FunctionEntry, E> {
                text.parse().map(FunctionEntry::Name).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FunctionEntry, A::Error> {
                let document = FunctionDocument::deserialize(MapAccessDeserializer::new(map))?;
                match (&document.vf, &document.pf) {
                    (None, None) => Err(de::Error::custom(
                        "this names no function: it needs `vf`, like {vf: NET0#3}, or `pf`, like {pf: NET0}",
                    )),
                    (Some(_), Some(_)) => Err(de::Error::custom(
                        "this names two functions: give `vf` or `pf`, and each function its own entry",
                    )),
                    _ => Ok(FunctionEntry::Settings(Box::new(document))),
                }
            }

            fn visit_none<E: de::Error>(self) -> Result<FunctionEntry, E> {
                Ok(FunctionEntry::Spoiled)
            }
        }

        from.deserialize_any(Entry)
    }
}

vf_attributes! { document_with_vf_keys {
    function
    /// A function that a guest owns, with its attributes. What is left out comes from the NIC's `defaults`.
    ///
    /// ```yaml
    /// {vf: NET1#4, mac: "02:00:00:00:01:04", vlan: 100, address: 10.20.31.204/24}
    /// ```
    #[derive(Debug, Default, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default, expecting = "a function like {vf: NET0#3, vlan: 100}")]
    #[schemars(rename = "Function")]
    pub(crate) struct FunctionDocument {
        /// The VF, like `NET0#3`. Either this or `pf` must be given.
        pub vf: Option<FunctionName>,
        /// The PF, like `NET0`. Only a container can own the PF of a NIC that has VFs.
        pub pf: Option<FunctionName>,
    } {
        /// The interface's name inside the guest. Default: `eth` and the position in the list. Also read as `name`.
        #[serde(alias = "name")]
        pub interface: Option<InterfaceName>,
        /// An IP address inside the guest, `dhcp` for one of IPv4 that a client inside asks for, or a list of them; the same as `addresses`.
        pub address: Option<OneOrMany<GuestAddress>>,
        /// IP addresses inside the guest, and `dhcp`.
        pub addresses: Option<OneOrMany<GuestAddress>>,
        /// The gateway of the guest's default route over it, or one of IPv4 and one of IPv6. Default: no such route.
        pub gateway: Option<OneOrMany<HopAddress>>,
        /// Other routes over it inside the guest.
        pub routes: Vec<RouteDocument>,
        /// MTU inside the guest. Default: left alone.
        pub mtu: Option<Mtu>,
        /// The most that a container may send through it, in Mbit/s, held by tc where the VF has no `max_tx_rate`.
        #[serde(alias = "egressRate", alias = "egress-rate")]
        pub egress_rate: Option<TxRate>,
        /// The most that a container may receive through it, in Mbit/s, held by tc.
        #[serde(alias = "ingressRate", alias = "ingress-rate")]
        pub ingress_rate: Option<TxRate>,
        /// Attributes of the function that may turn out unsupported; the NIC's are added.
        pub best_effort: Vec<String>,
        /// Attributes that this function must have all the same, of those that are best effort for its NIC. What nothing is said of
        /// is required anyway.
        pub required: Vec<String>,
    }
} }

/// What only a rehearsal needs.
///
/// ```yaml
/// board:
///   cables: [[NET0, NET1]]
///   emulation: {NET0: virtio}
/// ```
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a board: a mapping like {cables: [[NET0, NET1]]}")]
#[schemars(rename = "Board")]
pub(crate) struct BoardDocument {
    /// Pairs of NICs whose uplinks are joined. Default: none.
    pub cables: Vec<[NicName; 2]>,
    /// CPUs of the board. Default: 2, or 4 when it has more than 64 VFs or to do with real time, or as many as the model
    /// names, up to 32.
    #[schemars(range(min = 1, max = 8192))]
    pub cpus: Option<u32>,
    /// Its kernel: `standard` or `realtime`, the same with PREEMPT_RT, which runs no VMs on a board. Default: realtime
    /// for a model that says anything of real time and has no VM, else standard.
    pub kernel: Option<BoardKernel>,
    /// Memory of the board. Default: derived from guests and VFs.
    pub memory: Option<ByteSize>,
    /// What stands for each NIC. Default: igb up to 7 VFs, virtio beyond.
    pub emulation: IndexMap<NicName, Emulation>,
    /// Whether there is an IOMMU. Default: on, unless it has more than 64 VFs and no VM: QEMU keeps an address space
    /// for each function behind an IOMMU, and takes minutes with hundreds of them.
    pub iommu: Option<bool>,
    /// VFs of an emulated NVMe controller. Default: no such controller.
    #[schemars(range(min = 1, max = 127))]
    pub nvme_vfs: Option<u16>,
    /// Whether the board's clock counts instructions, so that `measure` tells how many a frame takes (QEMU's `-icount`). It
    /// has one CPU then. Default: off.
    pub icount: Option<bool>,
}

/// One value, or a list of them.
#[derive(Debug, Default, JsonSchema)]
#[schemars(with = "OneOrManySchema<T>")]
pub(crate) struct OneOrMany<T: JsonSchema> {
    /// The values, in the file's order.
    pub values: Vec<T>,
    /// Whether they were written as a list.
    pub list: bool,
}

#[derive(JsonSchema)]
#[schemars(untagged, inline)]
#[allow(dead_code, reason = "only its schema is used")]
enum OneOrManySchema<T> {
    One(T),
    Many(Vec<T>),
}

impl<'de, T: JsonSchema + Deserialize<'de> + FromStr> Deserialize<'de> for OneOrMany<T>
where
    T::Err: fmt::Display,
{
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<OneOrMany<T>, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: JsonSchema + Deserialize<'de> + FromStr> Visitor<'de> for Either<T>
        where
            T::Err: fmt::Display,
        {
            type Value = OneOrMany<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one value or a list of them")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<OneOrMany<T>, E> {
                let one = text.parse().map_err(E::custom)?;
                Ok(OneOrMany { values: vec![one], list: false })
            }

            fn visit_unit<E: de::Error>(self) -> Result<OneOrMany<T>, E> {
                Ok(OneOrMany { values: Vec::new(), list: true })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<OneOrMany<T>, A::Error> {
                let values = Vec::deserialize(SeqAccessDeserializer::new(items))?;
                Ok(OneOrMany { values, list: true })
            }
        }

        from.deserialize_any(Either(PhantomData))
    }
}
