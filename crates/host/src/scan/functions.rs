//! PCI functions: which there are, what they are, and their IOMMU groups.

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::inventory::tuning::Reading;
use penstock_model::{
    Bdf, PcieRoot,
    inventory::{NvmeController, OtherFunction, PciIdentity, Pf, SwitchMode},
    pci::PciIds,
};

use super::{
    capability::{self, CONFIG_SPACE},
    interfaces::Interfaces,
    places::Slots,
    reader::Reader,
    sriov::{self, Room},
};

const DEVICES: &str = "/sys/bus/pci/devices";
pub(super) const IOMMU_GROUPS: &str = "/sys/kernel/iommu_groups";

/// An Ethernet controller of any programming interface (PCI Code and ID Assignment Specification, 1.3).
const ETHERNET: u32 = 0x0200;
/// An NVM Express I/O controller.
const NVME: u32 = 0x01_0802;

/// A PCI function that is no VF.
pub(super) struct Function {
    pub bdf: Bdf,
    /// Its directory in sysfs, below the scanned root.
    pub directory: String,
    class: u32,
}

impl Function {
    /// The directory of the function at `bdf`.
    pub fn directory_of(bdf: Bdf) -> String {
        format!("{DEVICES}/{bdf}")
    }

    /// Its configuration space, as much of it as can be read.
    fn config(&self, reader: &mut Reader<'_>) -> Option<Vec<u8>> {
        reader.bytes(&self.attribute("config"), CONFIG_SPACE)
    }

    /// One of its attributes.
    pub fn attribute(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }
}

/// The function at an address, if it is there.
pub(super) fn at(bdf: Bdf, reader: &mut Reader<'_>) -> Option<Function> {
    let directory = Function::directory_of(bdf);
    if !reader.exists(&directory) {
        return None;
    }
    let class = reader.hexadecimal(&format!("{directory}/class"), true)?;
    Some(Function { bdf, directory, class })
}

/// Every PCI function that is no VF, by address.
pub(super) fn find(reader: &mut Reader<'_>) -> Vec<Function> {
    if !reader.exists(DEVICES) {
        reader.note(format!("{DEVICES} is not there: this machine has no PCI bus, or sysfs is not mounted"));
        return Vec::new();
    }
    let mut functions = Vec::new();
    for name in reader.list(DEVICES) {
        let directory = format!("{DEVICES}/{name}");
        let bdf = name.parse::<Bdf>().ok().filter(|bdf| bdf.to_string() == name);
        let Some(bdf) = bdf else {
            reader.note(format!("{directory} has a name that is no PCI address"));
            continue;
        };
        if !reader.exists(&directory) {
            reader.note(format!("{directory} points to nothing"));
            continue;
        }
        if reader.link_name(&format!("{directory}/physfn")).is_some() {
            continue;
        }
        if let Some(class) = reader.hexadecimal(&format!("{directory}/class"), true) {
            functions.push(Function { bdf, directory, class });
        }
    }
    functions.sort_by_key(|function| function.bdf);
    functions
}

/// The Ethernet ones.
pub(super) fn pfs(
    functions: &[Function],
    slots: &Slots,
    room: &mut Room,
    reader: &mut Reader<'_>,
    interfaces: &mut Interfaces<'_>,
) -> Vec<Pf> {
    let ethernet = functions.iter().filter(|function| function.class >> 8 == ETHERNET);
    ethernet.map(|function| pf(function, slots, room, reader, interfaces)).collect()
}

/// One of them, without what its driver has to be asked for ([`super::ask_drivers`]).
pub(super) fn pf(
    function: &Function,
    slots: &Slots,
    room: &mut Room,
    reader: &mut Reader<'_>,
    interfaces: &mut Interfaces<'_>,
) -> Pf {
    let config = function.config(reader);
    let report = interfaces.of(&function.directory, function.bdf, reader);
    let mut sriov = sriov::sriov(function, config.as_deref(), room, reader, Some(interfaces));
    let mut switch_mode = SwitchMode::default();
    if let Some(report) = &report {
        switch_mode = interfaces.switch_mode(report, function.bdf, reader);
        if let Some(sriov) = &mut sriov {
            interfaces.fill_attributes(report, sriov, reader);
        }
    }
    if let Some(sriov) = &mut sriov {
        interfaces.fill_representors(function.bdf, sriov, reader);
    }
    let permanent = report
        .as_ref()
        .and_then(|report| report.permanent_mac.or(Some(report.interface.mac)).filter(|mac| !mac.is_zero()));
    Pf {
        bdf: function.bdf,
        identity: identity(function, config.as_deref(), slots, reader),
        driver: reader.link_name(&function.attribute("driver")),
        interface: report.map(|report| report.interface),
        permanent_mac: permanent,
        numa_node: numa_node(function, reader),
        iommu_group: iommu_group(&function.directory, reader),
        sriov,
        switch_mode,
        firmware: None,
        devlink: None,
    }
}

/// The NVMe controllers among them.
pub(super) fn nvme(
    functions: &[Function],
    slots: &Slots,
    room: &mut Room,
    reader: &mut Reader<'_>,
) -> Vec<NvmeController> {
    let controllers = functions.iter().filter(|function| function.class == NVME);
    controllers
        .map(|function| {
            let named = function.attribute("nvme");
            let name = reader.list(&named).into_iter().find(|name| name.starts_with("nvme"));
            let mut text = |attribute: &str| {
                let name = name.as_ref()?;
                reader.text(&format!("{named}/{name}/{attribute}")).filter(|text| !text.is_empty())
            };
            let (model, serial, firmware) = (text("model"), text("serial"), text("firmware_rev"));
            let config = function.config(reader);
            NvmeController {
                bdf: function.bdf,
                identity: identity(function, config.as_deref(), slots, reader),
                driver: reader.link_name(&function.attribute("driver")),
                name,
                model,
                serial,
                firmware,
                numa_node: numa_node(function, reader),
                iommu_group: iommu_group(&function.directory, reader),
                sriov: sriov::sriov(function, config.as_deref(), room, reader, None),
                virtualization: None,
            }
        })
        .collect()
}

fn identity(
    function: &Function,
    config: Option<&[u8]>,
    slots: &Slots,
    reader: &mut Reader<'_>,
) -> PciIdentity {
    let mut id = |name| reader.hexadecimal_id(&function.attribute(name), true);
    let mut identity = PciIdentity {
        ids: PciIds {
            vendor: id("vendor").unwrap_or_default(),
            device: id("device").unwrap_or_default(),
            subsystem_vendor: id("subsystem_vendor").unwrap_or_default(),
            subsystem: id("subsystem_device").unwrap_or_default(),
        },
        // What is wrong with the list of capabilities is said where SR-IOV is looked for in it.
        serial: config.and_then(|config| capability::serial(config).ok().flatten()),
        pcie_root: pcie_root(function, reader),
        ..PciIdentity::default()
    };
    slots.fill(function, &mut identity, reader);
    identity
}

/// The root complex: the first directory below `/sys/devices` on the way to the function.
fn pcie_root(function: &Function, reader: &Reader<'_>) -> Option<PcieRoot> {
    let directory = reader.canonical(&function.directory)?;
    directory.strip_prefix("/sys/devices/")?.split('/').next()?.parse().ok()
}

/// The NUMA node; the kernel writes -1 where firmware names none, and has no such file without `CONFIG_NUMA`.
fn numa_node(function: &Function, reader: &mut Reader<'_>) -> Option<u32> {
    let path = function.attribute("numa_node");
    let node: i64 = reader.value(&path, "number")?;
    let number = u32::try_from(node).ok();
    if number.is_none() && node != -1 {
        reader.note(format!("{path} holds {node}, which is no NUMA node"));
    }
    number
}

/// The number of the IOMMU group of the function in `directory`.
pub(super) fn iommu_group(directory: &str, reader: &mut Reader<'_>) -> Option<u32> {
    let path = format!("{directory}/iommu_group");
    let name = reader.link_name(&path)?;
    let number = name.parse().ok();
    if number.is_none() {
        reader.note(format!("{path} points to {name:?}, which is no number"));
    }
    number.filter(|number| !is_made_up(*number, reader))
}

/// Whether VFIO made the group where no IOMMU is (`drivers/vfio/group.c`, `vfio_noiommu_group_alloc`): nothing is translated or
/// kept apart, so that it is no IOMMU's group.
fn is_made_up(group: u32, reader: &mut Reader<'_>) -> bool {
    group_name(group, reader).known().is_some_and(|name| name == NO_IOMMU)
}

/// What a group is called by who made it; those of an IOMMU have no name.
pub(super) fn group_name(group: u32, reader: &mut Reader<'_>) -> Reading<String> {
    reader.reading(&format!("{IOMMU_GROUPS}/{group}/name"), |name| Ok(name.to_owned()))
}

/// The name of such a group.
pub(super) const NO_IOMMU: &str = "vfio-noiommu";

/// The members of `groups` that are neither Ethernet nor NVMe functions.
pub(super) fn others(
    functions: &[Function],
    groups: &BTreeMap<u32, Vec<Bdf>>,
    reader: &mut Reader<'_>,
) -> BTreeMap<Bdf, OtherFunction> {
    let members: BTreeSet<Bdf> = groups.values().flatten().copied().collect();
    let known = |function: &Function| function.class >> 8 == ETHERNET || function.class == NVME;
    let others = functions.iter().filter(|function| members.contains(&function.bdf) && !known(function));
    others
        .map(|function| {
            let driver = reader.link_name(&function.attribute("driver"));
            (function.bdf, OtherFunction { class: function.class, driver })
        })
        .collect()
}

/// Every IOMMU group with its members, without those that VFIO makes up where no IOMMU is.
pub(super) fn iommu_groups(reader: &mut Reader<'_>) -> BTreeMap<u32, Vec<Bdf>> {
    let mut groups = BTreeMap::new();
    for number in reader.numbered(IOMMU_GROUPS, "") {
        if is_made_up(number, reader) {
            continue;
        }
        let mut members = Vec::new();
        for name in reader.list(&format!("{IOMMU_GROUPS}/{number}/devices")) {
            match name.parse::<Bdf>() {
                Ok(bdf) => members.push(bdf),
                Err(_) => reader.note(format!(
                    "{IOMMU_GROUPS}/{number} has the member {name:?}, which is no PCI function"
                )),
            }
        }
        members.sort();
        groups.insert(number, members);
    }
    groups
}
