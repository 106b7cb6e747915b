//! QEMU's devices as data, and how QEMU is told of each.

use std::fmt;

use crate::Mac;

/// What a device is, as far as the rules of composition care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// `intel-iommu`: the IOMMU; not a PCI device.
    Iommu,
    /// `pcie-root-port`: a PCI Express root port; its id names the bus behind it.
    RootPort,
    /// `virtio-blk-pci`: the root file system.
    Disk,
    /// `virtio-net-pci`: the management NIC, a PF, or a VF.
    VirtioNet,
    /// `virtio-serial-pci`: ports for bytes between the board and this machine.
    Serial,
    /// `virtserialport`: one of these ports; not a PCI device.
    SerialPort,
    /// `igb`: an Intel 82576 PF with its VFs inside.
    Igb,
    /// `nvme-subsys`; not a PCI device.
    NvmeSubsystem,
    /// `nvme`: a controller, a PF when `sriov_max_vfs` is given.
    Nvme,
    /// `nvme-ns`: a namespace; not a PCI device.
    NvmeNamespace,
}

impl DeviceKind {
    /// QEMU's name of the device.
    pub const fn driver(self) -> &'static str {
        match self {
            DeviceKind::Iommu => "intel-iommu",
            DeviceKind::RootPort => "pcie-root-port",
            DeviceKind::Disk => "virtio-blk-pci",
            DeviceKind::VirtioNet => "virtio-net-pci",
            DeviceKind::Serial => "virtio-serial-pci",
            DeviceKind::SerialPort => "virtserialport",
            DeviceKind::Igb => "igb",
            DeviceKind::NvmeSubsystem => "nvme-subsys",
            DeviceKind::Nvme => "nvme",
            DeviceKind::NvmeNamespace => "nvme-ns",
        }
    }

    /// Whether QEMU would load an option ROM for it unless told not to.
    const fn has_rom(self) -> bool {
        matches!(self, DeviceKind::VirtioNet | DeviceKind::Igb)
    }
}

/// The bus that every PCI device without another hangs from.
pub const ROOT_BUS: &str = "pcie.0";

/// Where a PCI device sits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusAddress {
    /// The bus: [`ROOT_BUS`], or the id of a root port.
    pub bus: String,
    /// Device and function as one number, as ARI counts: device x 8 + function.
    pub function: u16,
}

impl BusAddress {
    /// Function `function` of the bus `bus`.
    pub fn new(bus: impl Into<String>, function: u16) -> BusAddress {
        BusAddress { bus: bus.into(), function }
    }
}

/// One device of QEMU; displayed as the argument of `-device`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its id; QEMU 11.1 crashes on some devices without one after a composed PF.
    pub id: String,
    /// What it is.
    pub kind: DeviceKind,
    /// Where it sits; `None` for what is no PCI device.
    pub place: Option<BusAddress>,
    /// The PF that it is a VF of (`sriov-pf`), by id.
    pub pf: Option<String>,
    /// Its back end, by id.
    pub netdev: Option<String>,
    /// Its MAC address (`mac=`); `None`: the argument is left out.
    pub mac: Option<Mac>,
    /// Whether it has an option ROM.
    pub rom: bool,
    /// The properties that make up its BARs and capabilities; equal among the functions of one PF.
    pub properties: Vec<(&'static str, String)>,
}

impl Device {
    /// A device `id` with nothing but its kind.
    pub fn new(id: impl Into<String>, kind: DeviceKind) -> Device {
        Device {
            id: id.into(),
            kind,
            place: None,
            pf: None,
            netdev: None,
            mac: None,
            rom: false,
            properties: Vec::new(),
        }
    }

    /// At function `function` of `bus`.
    pub fn at(mut self, bus: impl Into<String>, function: u16) -> Device {
        self.place = Some(BusAddress::new(bus, function));
        self
    }

    /// Whether it is a PF whose VFs are made by the device itself.
    pub fn has_vfs(&self) -> bool {
        self.kind == DeviceKind::Igb || self.property("sriov_max_vfs").is_some()
    }

    /// What its property `name` is set to; `None`: the default.
    pub fn property(&self, name: &str) -> Option<&str> {
        self.properties.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// With one more property.
    pub fn with(mut self, name: &'static str, value: impl fmt::Display) -> Device {
        self.properties.push((name, value.to_string()));
        self
    }
}

impl fmt::Display for Device {
    /// As the argument of `-device`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},id={}", self.kind.driver(), self.id)?;
        if let Some(place) = &self.place {
            let (device, function) = (place.function >> 3, place.function & 7);
            write!(f, ",bus={},addr={device:x}.{function}", place.bus)?;
        }
        if let Some(netdev) = &self.netdev {
            write!(f, ",netdev={netdev}")?;
        }
        if let Some(mac) = self.mac {
            write!(f, ",mac={mac}")?;
        }
        if let Some(pf) = &self.pf {
            write!(f, ",sriov-pf={pf}")?;
        }
        for (name, value) in &self.properties {
            write!(f, ",{name}={value}")?;
        }
        if self.kind.has_rom() && !self.rom {
            f.write_str(",romfile=")?;
        }
        Ok(())
    }
}

/// Where the VFs of a composed PF are, in function numbers relative to the PF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VfLayout {
    /// First VF Offset.
    pub first: u16,
    /// VF Stride: the distance from one VF to the next (PCI Express Base Specification, SR-IOV Extended Capability).
    pub stride: u16,
}

impl VfLayout {
    /// The function numbers of one bus; a composed NIC has only its own.
    pub const FUNCTIONS: u16 = 256;

    /// The layout for `vfs` VFs of the PF at function 0: offset 0x80 and stride 2, as an X550 or an 82576 has them,
    /// while they fit, which is up to 64; beyond, every function after the PF.
    pub const fn for_vfs(vfs: u16) -> VfLayout {
        if vfs <= 64 { VfLayout { first: 0x80, stride: 2 } } else { VfLayout { first: 1, stride: 1 } }
    }

    /// The function number of VF `index`; `None` past the bus.
    pub fn function(self, index: u16) -> Option<u16> {
        let function = u32::from(self.first) + u32::from(index) * u32::from(self.stride);
        u16::try_from(function).ok().filter(|function| *function < VfLayout::FUNCTIONS)
    }
}
