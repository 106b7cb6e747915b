//! The SR-IOV capability of a PF: the VFs that it has and those that it could have.

use std::collections::BTreeMap;

use penstock_model::{
    Bdf, VfIndex,
    inventory::{PresentVf, Sriov, Vf},
    text::counted,
};

use super::{
    capability::{self, CapabilityError, SriovCapability},
    functions::{Function, iommu_group},
    interfaces::Interfaces,
    reader::Reader,
};

/// For how many VFs that do not exist there is room in an inventory. All functions of a PCI domain are 65536 at most, and a
/// machine with more than a few domains has them for other things.
pub(super) struct Room(u32);

impl Default for Room {
    fn default() -> Room {
        Room(1 << 17)
    }
}

/// The SR-IOV capability of `function`, whose configuration space is `config`; `interfaces` is given where VFs may have network interfaces.
pub(super) fn sriov(
    function: &Function,
    config: Option<&[u8]>,
    room: &mut Room,
    reader: &mut Reader<'_>,
    interfaces: Option<&mut Interfaces<'_>>,
) -> Option<Sriov> {
    let capability = config.map_or(Ok(None), capability::sriov);
    if !reader.exists(&function.attribute("sriov_totalvfs")) {
        without_attributes(function, &capability, reader);
        return None;
    }
    let mut registers =
        Registers { function, capability: capability.as_ref().ok().copied().flatten(), missing: Vec::new() };
    let links = virtfn_links(function, reader);
    let total_vfs = registers.total(reader)?;
    let present = u16::try_from(links.len()).unwrap_or(u16::MAX);
    let num_vfs = registers.number(reader, "sriov_numvfs", 10, |c| c.num_vfs, Some(present))?;
    if num_vfs != present {
        reader.note(format!(
            "{} says {num_vfs}, but there are {present} virtfn links beside it",
            function.attribute("sriov_numvfs")
        ));
    }
    let first_vf_offset = registers.number(reader, "sriov_offset", 10, |c| c.first_vf_offset, None);
    let vf_stride = registers.number(reader, "sriov_stride", 10, |c| c.vf_stride, None);
    let vf_device = registers.number(reader, "sriov_vf_device", 16, |c| c.vf_device, None);
    if !registers.missing.is_empty() {
        let missing = registers.missing.join(", ");
        let why = why_none(config.is_some(), &capability);
        reader.note(format!("{missing} of {} could not be found out: {why}", function.directory));
    }
    let mut sriov = Sriov {
        total_vfs,
        num_vfs,
        autoprobe: autoprobe(function, reader),
        first_vf_offset: first_vf_offset.unwrap_or_default(),
        vf_stride: vf_stride.unwrap_or_default(),
        vf_device: vf_device.unwrap_or_default(),
        vfs: Vec::new(),
    };
    sriov.vfs = vfs(function, &sriov, links, room, reader, interfaces);
    Some(sriov)
}

/// Says so when the hardware has SR-IOV and the kernel does not offer it.
fn without_attributes(
    function: &Function,
    capability: &Result<Option<SriovCapability>, CapabilityError>,
    reader: &mut Reader<'_>,
) {
    match capability {
        Ok(Some(found)) => reader.note(format!(
            "{} has an SR-IOV capability with {}, but the kernel offers no sriov_totalvfs: it lacks \
             CONFIG_PCI_IOV, or firmware left too little room for the VFs",
            function.bdf,
            counted(usize::from(found.total_vfs), "VF")
        )),
        // That the extended part is missing says nothing: the kernel looked, and it offers no SR-IOV.
        Ok(None) | Err(CapabilityError::Truncated(_)) => {}
        Err(error) => reader.note(format!("{}: {error}", function.attribute("config"))),
    }
}

fn why_none(readable: bool, capability: &Result<Option<SriovCapability>, CapabilityError>) -> String {
    match capability {
        _ if !readable => "no attribute tells, and config cannot be read".into(),
        Ok(_) => "no attribute tells, and config has no SR-IOV capability".into(),
        Err(error) => format!("no attribute tells, and of config {error}"),
    }
}

/// The two sources of one capability: sysfs attributes and, for what an older kernel lacks, configuration space.
struct Registers<'a> {
    function: &'a Function,
    capability: Option<SriovCapability>,
    /// What neither told.
    missing: Vec<&'static str>,
}

impl Registers<'_> {
    /// TotalVFs as the driver allows it, which may be fewer than the hardware has and never more.
    fn total(&mut self, reader: &mut Reader<'_>) -> Option<u16> {
        let hardware = self.capability.map(|capability| capability.total_vfs);
        // Not compared for equality: `pci_sriov_set_totalvfs` lets a driver allow fewer.
        let total = self.read(reader, "sriov_totalvfs", 10).or(hardware);
        match (total, hardware) {
            (Some(total), Some(hardware)) if total > hardware => reader.note(format!(
                "{} says {total}, but the capability in config has only {hardware}",
                self.function.attribute("sriov_totalvfs")
            )),
            _ => {}
        }
        total
    }

    /// One register from its attribute, compared with configuration space, or from there when there is no attribute.
    /// `fallback` is what else tells it.
    fn number(
        &mut self,
        reader: &mut Reader<'_>,
        name: &'static str,
        radix: u32,
        register: impl Fn(&SriovCapability) -> u16,
        fallback: Option<u16>,
    ) -> Option<u16> {
        let attribute = self.function.attribute(name);
        let hardware = self.capability.as_ref().map(register);
        match (self.read(reader, name, radix), hardware) {
            (Some(said), Some(hardware)) => {
                if said != hardware {
                    reader.note(format!(
                        "{attribute} says {said:#x}, but the capability in config {hardware:#x}; the former is taken"
                    ));
                }
                Some(said)
            }
            (Some(said), None) => Some(said),
            (None, Some(hardware)) => Some(hardware),
            (None, None) => {
                if fallback.is_none() {
                    self.missing.push(name);
                }
                fallback
            }
        }
    }

    fn read(&self, reader: &mut Reader<'_>, name: &str, radix: u32) -> Option<u16> {
        let path = self.function.attribute(name);
        if radix == 16 {
            reader.hexadecimal_id(&path, false)
        } else {
            reader.value(&path, "number from 0 to 65535")
        }
    }
}

/// Whether drivers bind to new VFs; before Linux 4.15 there was no such attribute and they always did.
fn autoprobe(function: &Function, reader: &mut Reader<'_>) -> bool {
    let path = function.attribute("sriov_drivers_autoprobe");
    match reader.text(&path).as_deref() {
        Some("0" | "N") => false,
        None | Some("1" | "Y") => true,
        Some(_) => {
            reader.note(format!("{path} is neither 0 nor 1; 1, the kernel's default, is taken"));
            true
        }
    }
}

/// Where each `virtfnN` points.
fn virtfn_links(function: &Function, reader: &mut Reader<'_>) -> BTreeMap<u16, Bdf> {
    let mut links = BTreeMap::new();
    for number in reader.numbered(&function.directory, "virtfn") {
        let path = function.attribute(&format!("virtfn{number}"));
        let Ok(index) = u16::try_from(number) else {
            reader.note(format!("{path} has a number that no VF can have"));
            continue;
        };
        match reader.link_name(&path).map(|name| (name.parse::<Bdf>(), name)) {
            Some((Ok(bdf), _)) => {
                links.insert(index, bdf);
            }
            Some((Err(_), name)) => {
                reader.note(format!("{path} points to {name:?}, which is no PCI address"));
            }
            None => {}
        }
    }
    links
}

fn vfs(
    function: &Function,
    sriov: &Sriov,
    links: BTreeMap<u16, Bdf>,
    room: &mut Room,
    reader: &mut Reader<'_>,
    mut interfaces: Option<&mut Interfaces<'_>>,
) -> Vec<Vf> {
    let mut vfs = Vec::new();
    // Each register alone decides nothing: an offset of 0 would put VF 0 on its PF, a stride of 0 all VFs on one.
    let computable = sriov.first_vf_offset != 0 && (sriov.vf_stride != 0 || sriov.total_vfs <= 1);
    if !computable && sriov.total_vfs > 0 {
        reader.note(format!(
            "where the VFs of {} would be is not known: first-VF offset {:#x}, stride {}",
            function.bdf, sriov.first_vf_offset, sriov.vf_stride
        ));
    }
    if let Some(last) = links.keys().next_back().filter(|last| **last >= sriov.total_vfs) {
        reader.note(format!(
            "{} is there, but sriov_totalvfs says {}; it was left out",
            function.attribute(&format!("virtfn{last}")),
            sriov.total_vfs
        ));
    }
    let (mut without_address, mut without_room) = (0, 0);
    for number in 0..sriov.total_vfs {
        let Some(index) = VfIndex::new(number) else {
            reader.note(format!(
                "{} could have {}; those past {} were left out",
                function.bdf,
                counted(usize::from(sriov.total_vfs), "VF"),
                VfIndex::MAX
            ));
            break;
        };
        let computed =
            computable.then(|| function.bdf.of_vf(sriov.first_vf_offset, sriov.vf_stride, number)).flatten();
        let linked = links.get(&number).copied();
        if let (Some(linked), Some(computed)) = (linked, computed)
            && linked != computed
        {
            reader.note(format!(
                "{} points to {linked}, but offset {:#x} and stride {} make it {computed}; the link is believed",
                function.attribute(&format!("virtfn{number}")),
                sriov.first_vf_offset,
                sriov.vf_stride
            ));
        }
        let Some(bdf) = linked.or(computed) else {
            without_address += 1;
            continue;
        };
        if linked.is_none() {
            let Some(left) = room.0.checked_sub(1) else {
                without_room += 1;
                continue;
            };
            room.0 = left;
        }
        let present =
            linked.and_then(|bdf| present(function, number, bdf, reader, interfaces.as_deref_mut()));
        vfs.push(Vf { index, bdf, present });
    }
    if computable && without_address > 0 {
        reader.note(format!(
            "{without_address} of the {} of {} would lie past the last bus of its domain and cannot exist",
            counted(usize::from(sriov.total_vfs), "VF"),
            function.bdf
        ));
    }
    if without_room > 0 {
        reader.note(format!(
            "{without_room} VFs that {} could have were left out: with those of other PFs they are more than PCI has room for",
            function.bdf
        ));
    }
    note_bridge(function, &vfs, reader);
    vfs
}

/// Says so when the bridge above has too few buses for all VFs: the kernel then refuses the later ones ("bus out of
/// range", `drivers/pci/iov.c`, `sriov_enable`).
fn note_bridge(function: &Function, vfs: &[Vf], reader: &mut Reader<'_>) {
    // The directory is a link into the tree of devices, where a function's parent is its bridge.
    let path = function.attribute("../subordinate_bus_number");
    let Some(last) = reader.value::<u8>(&path, "bus number") else {
        return;
    };
    if let Some(vf) = vfs.iter().find(|vf| vf.bdf.bus() > last) {
        reader.note(format!(
            "VF {} of {} would be at {}, but the bridge above ends at bus {last:02x}: the kernel refuses it and those \
             after it",
            vf.index, function.bdf, vf.bdf
        ));
    }
}

fn present(
    function: &Function,
    number: u16,
    bdf: Bdf,
    reader: &mut Reader<'_>,
    interfaces: Option<&mut Interfaces<'_>>,
) -> Option<PresentVf> {
    let directory = Function::directory_of(bdf);
    if !reader.exists(&directory) {
        reader.note(format!(
            "{} points to {bdf}, but {directory} is not there",
            function.attribute(&format!("virtfn{number}"))
        ));
        return None;
    }
    // The kernel prints a missing override as C's null string (`drivers/pci/pci-sysfs.c`, `driver_override_show`).
    let driver_override = reader
        .text(&format!("{directory}/driver_override"))
        .filter(|text| !text.is_empty() && text != "(null)");
    Some(PresentVf {
        driver: reader.link_name(&format!("{directory}/driver")),
        driver_override,
        interface: interfaces
            .and_then(|interfaces| interfaces.of(&directory, bdf, reader))
            .map(|report| report.interface),
        iommu_group: iommu_group(&directory, reader),
        attributes: None,
        representor: None,
    })
}
