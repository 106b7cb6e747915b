//! PCI addresses, and the arithmetic by which a physical function places its virtual functions.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A routing id: bus, device and function as the 16 bits that travel in a PCI Express packet
/// (PCI Express Base Specification, 2.2.4.2). With ARI, device and function are one 8-bit function number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoutingId(pub u16);

impl RoutingId {
    /// The routing id of virtual function `index` (from 0) of the physical function at `self`.
    ///
    /// The specification counts VFs from 1 and says PF + First VF Offset + (n - 1) x VF Stride, modulo 2^16
    /// (PCI Express Base Specification, 9.2.1.2); the sum carries into the bus number, which is how 64 VFs of a
    /// PF on bus 4 reach bus 5. `None` when it leaves the segment's 16 bits: Linux refuses such a VF
    /// (`drivers/pci/iov.c`, `pci_iov_virtfn_bus`).
    pub fn of_vf(self, first_vf_offset: u16, vf_stride: u16, index: u16) -> Option<RoutingId> {
        let id = u32::from(self.0) + u32::from(first_vf_offset) + u32::from(vf_stride) * u32::from(index);
        u16::try_from(id).ok().map(RoutingId)
    }
}

/// A PCI address, `dddd:bb:dd.f`: domain, bus, device, function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bdf {
    domain: u32,
    id: RoutingId,
}

impl Bdf {
    /// The address of `id` in PCI domain (segment) `domain`.
    pub const fn new(domain: u32, id: RoutingId) -> Bdf {
        Bdf { domain, id }
    }

    /// The PCI domain. Wider than 16 bits because Hyper-V and VMD make up large ones.
    pub const fn domain(self) -> u32 {
        self.domain
    }

    /// Bus, device and function as one routing id.
    pub const fn routing_id(self) -> RoutingId {
        self.id
    }

    /// The bus number.
    pub const fn bus(self) -> u8 {
        (self.id.0 >> 8) as u8
    }

    /// The device (slot) number, 0 to 31.
    pub const fn device(self) -> u8 {
        (self.id.0 as u8) >> 3
    }

    /// The function number, 0 to 7.
    pub const fn function(self) -> u8 {
        self.id.0 as u8 & 7
    }

    /// The address that VF `index` of this physical function has or would get; see [`RoutingId::of_vf`].
    pub fn of_vf(self, first_vf_offset: u16, vf_stride: u16, index: u16) -> Option<Bdf> {
        let id = self.id.of_vf(first_vf_offset, vf_stride, index)?;
        Some(Bdf { id, ..self })
    }
}

impl fmt::Display for Bdf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{}", self.domain, self.bus(), self.device(), self.function())
    }
}

impl fmt::Debug for Bdf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is not a PCI address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not a PCI address like 0000:04:00.1")]
pub struct ParseBdfError(String);

impl FromStr for Bdf {
    type Err = ParseBdfError;

    /// Reads `dddd:bb:dd.f`, or `bb:dd.f` for domain 0 as `lspci` prints it.
    fn from_str(text: &str) -> Result<Bdf, ParseBdfError> {
        let fail = || ParseBdfError(text.to_owned());
        let hex = |field: &str, widths: std::ops::RangeInclusive<usize>, limit: u32| {
            (widths.contains(&field.len()) && field.bytes().all(|b| b.is_ascii_hexdigit()))
                .then(|| u32::from_str_radix(field, 16).ok())
                .flatten()
                .filter(|value| *value <= limit)
                .ok_or_else(fail)
        };
        let (address, function) = text.rsplit_once('.').ok_or_else(fail)?;
        let mut fields = address.rsplit(':');
        let device = hex(fields.next().ok_or_else(fail)?, 1..=2, 31)?;
        let bus = hex(fields.next().ok_or_else(fail)?, 1..=2, 255)?;
        let domain = fields.next().map_or(Ok(0), |field| hex(field, 4..=8, u32::MAX))?;
        if fields.next().is_some() {
            return Err(fail());
        }
        let function = hex(function, 1..=1, 7)?;
        Ok(Bdf { domain, id: RoutingId((bus << 8 | device << 3 | function) as u16) })
    }
}

crate::names::text_serde!(
    Bdf,
    "A PCI address: domain, bus, device and function in hexadecimal.",
    "0000:04:00.1",
    "^([0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{1,2}:[01]?[0-9A-Fa-f]\\.[0-7]$"
);

/// The root complex that a function is below, as the kernel names its directory in sysfs: `pci0000:00`
/// (`drivers/pci/probe.c`, `pci_register_host_bridge`). It is what Kubernetes calls `resource.kubernetes.io/pcieRoot`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PcieRoot {
    /// The PCI domain.
    pub domain: u32,
    /// The first bus of it.
    pub bus: u8,
}

impl fmt::Display for PcieRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pci{:04x}:{:02x}", self.domain, self.bus)
    }
}

impl fmt::Debug for PcieRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is no root complex.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is no PCIe root like pci0000:00")]
pub struct ParsePcieRootError(String);

impl FromStr for PcieRoot {
    type Err = ParsePcieRootError;

    /// Reads `pcidddd:bb`, the domain in 4 to 8 digits.
    fn from_str(text: &str) -> Result<PcieRoot, ParsePcieRootError> {
        let read = || {
            let (domain, bus) = text.strip_prefix("pci")?.split_once(':')?;
            let is_hex = |field: &str| field.bytes().all(|byte| byte.is_ascii_hexdigit());
            ((4..=8).contains(&domain.len()) && bus.len() == 2 && is_hex(domain) && is_hex(bus))
                .then_some(())?;
            let domain = u32::from_str_radix(domain, 16).ok()?;
            Some(PcieRoot { domain, bus: u8::from_str_radix(bus, 16).ok()? })
        };
        read().ok_or_else(|| ParsePcieRootError(text.to_owned()))
    }
}

crate::names::text_serde!(
    PcieRoot,
    "A PCIe root complex, as its directory in sysfs is called.",
    "pci0000:00",
    "^pci[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}$"
);

/// A device's serial number: the EUI-64 of the Device Serial Number extended capability (PCI Express Base Specification,
/// 7.9.3). All functions of a device have the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SerialNumber(pub u64);

impl fmt::Display for SerialNumber {
    /// As `lspci` prints it: eight bytes in hexadecimal, the highest first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.to_be_bytes().map(|byte| format!("{byte:02x}"));
        f.pad(&bytes.join("-"))
    }
}

impl fmt::Debug for SerialNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is no serial number.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is no serial number like 00-1b-21-ff-ff-8a-3c-44")]
pub struct ParseSerialNumberError(String);

impl FromStr for SerialNumber {
    type Err = ParseSerialNumberError;

    /// Reads eight bytes in hexadecimal, joined by `-` or `:` or by nothing.
    fn from_str(text: &str) -> Result<SerialNumber, ParseSerialNumberError> {
        let fail = || ParseSerialNumberError(text.to_owned());
        let joint = if text.contains('-') { "-" } else { ":" };
        let digits: String = match text.split(joint).collect::<Vec<_>>()[..] {
            [all] if all.len() == 16 => all.to_owned(),
            ref bytes if bytes.len() == 8 && bytes.iter().all(|byte| byte.len() == 2) => bytes.concat(),
            _ => return Err(fail()),
        };
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(fail());
        }
        u64::from_str_radix(&digits, 16).map(SerialNumber).map_err(|_| fail())
    }
}

crate::names::text_serde!(
    SerialNumber,
    "A PCI device serial number: eight bytes in hexadecimal, the highest first.",
    "00-1b-21-ff-ff-8a-3c-44",
    "^([0-9A-Fa-f]{16}|[0-9A-Fa-f]{2}((-[0-9A-Fa-f]{2}){7}|(:[0-9A-Fa-f]{2}){7}))$",
    // Sixteen digits are a number to YAML.
    ["string", "number"]
);

/// The four numbers by which the PCI configuration header names a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PciIds {
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Subsystem vendor id.
    pub subsystem_vendor: u16,
    /// Subsystem id.
    pub subsystem: u16,
}

/// Whether a driver makes no network interface of the functions that it has: it hands them to VMs and to programs.
pub fn passes_through(driver: &str) -> bool {
    is_vfio(driver) || matches!(driver, "pci-stub" | "igb_uio") || driver.starts_with("uio")
}

/// Whether a driver gives functions to VFIO: `vfio-pci`, or one for some devices that stands on the same core (`vfio_pci_core_register_device`) and
/// can move what they hold, such as `mlx5_vfio_pci`. All of Linux end so (`drivers/vfio/pci`, `drivers/gpu/drm/xe`).
pub fn is_vfio(driver: &str) -> bool {
    driver.ends_with("vfio-pci") || driver.ends_with("vfio_pci")
}

/// Whether a driver gives a function of a NIC a network interface: not one that hands it on, and not that of NVMe drives.
pub fn gives_interface(driver: &str) -> bool {
    !passes_through(driver) && driver != "nvme"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_of_vfio_for_some_devices_hands_functions_on_as_vfio_pci_does() {
        for driver in ["vfio-pci", "mlx5_vfio_pci", "hisi_acc_vfio_pci", "pds_vfio_pci", "xe-vfio-pci"] {
            assert!(is_vfio(driver) && passes_through(driver) && !gives_interface(driver), "{driver}");
        }
        for driver in ["pci-stub", "uio_pci_generic", "mlx5_core", "vfio-pci-core-test", ""] {
            assert!(!is_vfio(driver), "{driver}");
        }
    }

    #[test]
    fn a_vf_of_the_published_x550_board_lands_where_it_did() {
        let pf: Bdf = "0000:04:00.1".parse().unwrap();
        assert_eq!(pf.of_vf(0x80, 2, 2).unwrap().to_string(), "0000:04:10.5");
    }

    #[test]
    fn the_offset_carries_into_the_bus() {
        let pf: Bdf = "04:00.0".parse().unwrap();
        assert_eq!(pf.of_vf(0x80, 2, 63).unwrap().to_string(), "0000:04:1f.6");
        assert_eq!(pf.of_vf(0x80, 2, 64).unwrap().to_string(), "0000:05:00.0");
    }

    #[test]
    fn past_the_last_bus_there_is_no_vf() {
        let pf: Bdf = "ff:00.0".parse().unwrap();
        assert_eq!(pf.of_vf(0x80, 2, 64), None);
    }

    #[test]
    fn a_serial_number_is_read_as_it_is_written_anywhere() {
        let wanted = SerialNumber(0x001b_21ff_ff8a_3c44);
        for text in ["00-1b-21-ff-ff-8a-3c-44", "00:1B:21:FF:FF:8A:3C:44", "001b21ffff8a3c44"] {
            assert_eq!(text.parse(), Ok(wanted), "{text}");
        }
        assert_eq!(wanted.to_string(), "00-1b-21-ff-ff-8a-3c-44");
        for text in
            ["", "-", "00-1b-21-ff-ff-8a-3c", "00-1b-21-ff-ff-8a-3c-4", "0-01b-21-ff-ff-8a-3c-44", "MT2021X1"]
        {
            assert!(text.parse::<SerialNumber>().is_err(), "{text:?}");
        }
        assert!("+01b21ffff8a3c44".parse::<SerialNumber>().is_err());
        assert!("00-1b-21-ff-ff-8a-3c-é".parse::<SerialNumber>().is_err());
    }

    #[test]
    fn text_that_is_no_address_is_refused() {
        for text in
            ["", "04:00", "04:00.8", "04:20.0", "1:2:3:4.0", "+4:00.0", "0000:04:00.", "zz:00.0", "00:4:00.0"]
        {
            assert!(text.parse::<Bdf>().is_err(), "{text:?}");
        }
    }
}
