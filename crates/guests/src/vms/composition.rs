//! Whether libvirt and its QEMU can give a VM an SR-IOV NIC, found out by trying.

use std::time::Duration;

use penstock_host::{Command, chain};
use penstock_model::Emulation;

use super::Vms;
use crate::error::GuestError;

/// How long libvirt may take; it asks its QEMU once for all that it can.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How long QEMU may take to tell of a device.
const MOMENT: Duration = Duration::from_secs(60);

/// A domain with an override. Not of an interface: libvirt leaves those out of a command line that it only shows
/// (`qemuConnectDomainXMLToNative`).
const SAMPLE: &str = "<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>\
    <name>penstock-composition</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>\
    <os><type arch='x86_64' machine='q35'>hvm</type></os><devices><controller type='usb' model='none'/>\
    <rng model='virtio'><backend model='random'>/dev/urandom</backend><alias name='ua-tried'/></rng>\
    <memballoon model='none'/></devices><qemu:override><qemu:device alias='ua-tried'><qemu:frontend>\
    <qemu:property name='max-bytes' type='unsigned' value='12345'/></qemu:frontend></qemu:device>\
    </qemu:override></domain>";
/// What the override comes to on a command line.
const OVERRIDDEN: &str = "12345";

impl Vms {
    /// Has libvirt make the command line of a VM with an override, and QEMU tell of the device that each of `wanted` is; nothing is
    /// started.
    ///
    /// # Errors
    ///
    /// When one of them cannot, or cannot be asked.
    pub fn composes(&self, wanted: &[Emulation]) -> Result<(), GuestError> {
        let native = self.virsh.native(SAMPLE, TIMEOUT);
        let native =
            native.map_err(|source| self.libvirt("make the command line of a VM".to_owned(), source))?;
        let no = |why: String| Err(GuestError::NoComposition { why });
        if wanted.contains(&Emulation::Virtio) && !native.contains(OVERRIDDEN) {
            return no("libvirt leaves out what <qemu:override> says".to_owned());
        }
        // Variables of the environment stand before the program.
        let program = native.split_whitespace().find(|word| word.starts_with('/'));
        let Some(emulator) = program else {
            return no("libvirt does not say which QEMU it runs".to_owned());
        };
        for emulation in wanted {
            let (device, sign, lacks) = match emulation {
                Emulation::Virtio => ("virtio-net-pci,help", "sriov-pf=", "no `sriov-pf` for virtio-net-pci"),
                Emulation::Igb => ("igb,help", "netdev=", "no device igb"),
            };
            match Command::new(emulator).args(["-device", device]).deadline(MOMENT).run() {
                Ok(told) if told.text().contains(sign) => {}
                Ok(_) => return no(format!("{emulator} has {lacks}")),
                Err(error) => {
                    return no(format!("{emulator} does not tell of its devices: {}", chain(&error)));
                }
            }
        }
        Ok(())
    }
}
