//! Which driver a PF has: by name, version, firmware and device, since each of these may change what it can do.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, AsRawFd},
};

use nix::{
    errno::Errno,
    libc,
    sys::socket::{AddressFamily, SockFlag, SockType, socket},
};
use penstock_model::{
    Bdf,
    inventory::{DriverIdentity, Pf},
    pci::PciIds,
};

use crate::{PciFunction, Root, files};

/// `ETHTOOL_GDRVINFO` and its struct (`include/uapi/linux/ethtool.h`).
const ETHTOOL_GDRVINFO: u32 = 3;
/// The ioctl that carries ethtool's commands (`include/uapi/linux/sockios.h`).
const SIOCETHTOOL: libc::c_ulong = 0x8946;
/// `ETHTOOL_BUSINFO_LEN`, `ETHTOOL_FWVERS_LEN` and the others.
const TEXT: usize = 32;

#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; TEXT],
    version: [u8; TEXT],
    firmware: [u8; TEXT],
    bus: [u8; TEXT],
    expansion_rom: [u8; TEXT],
    reserved: [u8; 12],
    counts: [u32; 5],
}

/// The driver of the PF at `pf`; `None` when it has none, or no interface in the namespace of the calling thread.
///
/// The version is what the driver tells; one that comes with the kernel tells nothing or the kernel's release, which is then
/// taken.
pub fn identity(root: &Root, pf: Bdf) -> Option<DriverIdentity> {
    let function = PciFunction::new(root, pf);
    let driver = function.driver().ok().flatten()?;
    let names = function.interface_names().ok()?;
    let number = |file: &str| {
        let text = files::read_to_string(function.directory().join(file)).ok()?;
        u16::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
    };
    let ids = PciIds { vendor: number("vendor")?, device: number("device")?, ..PciIds::default() };
    known(&driver, names.first()?, ids, &release(root))
}

/// As [`identity`], of a PF that was scanned already; `release` is the kernel's.
pub fn identity_of(pf: &Pf, release: &str) -> Option<DriverIdentity> {
    let interface = pf.interface.as_ref()?;
    known(pf.driver.as_ref()?, interface.name.as_str(), pf.identity.ids, release)
}

fn known(driver: &str, interface: &str, ids: PciIds, release: &str) -> Option<DriverIdentity> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).ok()?;
    let info = ask(&socket, interface).ok()?;
    let version = text(&info.version);
    Some(DriverIdentity {
        driver: driver.to_owned(),
        version: if version.is_empty() || version == "N/A" { release.to_owned() } else { version },
        firmware: firmware_of(&info).unwrap_or_default(),
        device: format!("{:04x}:{:04x}", ids.vendor, ids.device),
    })
}

/// The version of the firmware below an interface in the namespace of the calling thread, as its driver has it for `ethtool -i`; `None` where
/// it names none.
pub(crate) fn firmware(interface: &str) -> Option<String> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).ok()?;
    firmware_of(&ask(&socket, interface).ok()?)
}

fn firmware_of(info: &DriverInfo) -> Option<String> {
    // What a driver without firmware says.
    Some(text(&info.firmware)).filter(|firmware| !firmware.is_empty() && firmware != "N/A")
}

fn release(root: &Root) -> String {
    let text = files::read_to_string(root.path("/proc/sys/kernel/osrelease")).unwrap_or_default();
    text.trim().to_owned()
}

/// A text of the driver's without its end, and without what would break a line.
fn text(bytes: &[u8; TEXT]) -> String {
    let text = CStr::from_bytes_until_nul(bytes).map_or(&bytes[..], CStr::to_bytes);
    let text = String::from_utf8_lossy(text);
    text.trim().chars().filter(|c| !c.is_control()).collect()
}

/// The PCI function that an interface's driver says it drives, of an interface in the namespace of `socket`, which may be of any kind.
pub(crate) fn function_of(socket: &impl AsFd, interface: &str) -> Option<Bdf> {
    text(&ask(socket, interface).ok()?.bus).parse().ok()
}

#[allow(unsafe_code)]
fn ask(socket: &impl AsFd, interface: &str) -> io::Result<DriverInfo> {
    let mut info = DriverInfo {
        command: ETHTOOL_GDRVINFO,
        driver: [0; TEXT],
        version: [0; TEXT],
        firmware: [0; TEXT],
        bus: [0; TEXT],
        expansion_rom: [0; TEXT],
        reserved: [0; 12],
        counts: [0; 5],
    };
    let mut name = [0; libc::IFNAMSIZ];
    // The last byte stays 0.
    for (to, from) in name[..libc::IFNAMSIZ - 1].iter_mut().zip(interface.bytes()) {
        *to = from.cast_signed() as libc::c_char;
    }
    let mut request = libc::ifreq {
        ifr_name: name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: (&raw mut info).cast() },
    };
    // SAFETY: the descriptor is open; `request` is a whole `ifreq` whose data points to a whole `struct ethtool_drvinfo`,
    // which both outlive the call; the kernel writes into that and nowhere else.
    let outcome = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    Errno::result(outcome)?;
    Ok(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_struct_is_as_long_as_the_kernels() {
        assert_eq!(size_of::<DriverInfo>(), 196);
    }

    /// What a kernel before 5.14 does not say of an interface its driver says.
    #[test]
    fn a_driver_names_its_function() {
        let socket =
            socket(AddressFamily::Netlink, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).unwrap();
        for name in files::list("/sys/class/net").unwrap_or_default() {
            let Ok(device) = files::canonical(format!("/sys/class/net/{name}/device")) else { continue };
            // The function itself, or a virtio device directly on it: what hangs on a function in another way, on USB or as a subfunction,
            // its driver may call otherwise.
            let named = |path: &std::path::Path| path.file_name()?.to_str()?.parse::<Bdf>().ok();
            let is_virtio =
                files::canonical(device.join("subsystem")).is_ok_and(|bus| bus.ends_with("virtio"));
            let on = device.parent().filter(|_| is_virtio).and_then(named);
            let function = named(&device).or(on);
            if function.is_some() {
                assert_eq!(function_of(&socket, &name), function, "{name}");
            }
        }
        assert_eq!(function_of(&socket, "lo"), None);
    }

    #[test]
    fn a_text_ends_where_the_driver_ends_it() {
        let mut bytes = [0; TEXT];
        bytes[..9].copy_from_slice(b" 3.0\n-0\0x");
        assert_eq!(text(&bytes), "3.0-0");
        assert_eq!(text(&[b'a'; TEXT]), "a".repeat(TEXT));
    }

    #[test]
    fn an_interface_that_is_not_there_has_no_driver() {
        let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).unwrap();
        assert!(ask(&socket, "penstock-none-such-name-at-all").is_err());
    }
}
