//! The vDPA devices of the NICs that VMs own with `path: vdpa`: one for each function, a port of the NIC's embedded switch, which makes it and
//! takes it away. libvirt opens the character device that `vhost_vdpa` makes of it, and hands it to QEMU.
//!
//! They are there before QEMU and go after it: who closes such a device waits for the switch to answer, up to the 30 seconds of
//! `msg_timeout`, and nobody takes one off the bus that is open (`vhost_vdpa_remove`, `drivers/vhost/vdpa.c`).

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use penstock_host::{
    chain,
    embedded::PortReport,
    vdpa::{self, VdpaDriver},
};
use penstock_model::{DataPath, GuestName, NicName, TenantNic};
use penstock_plan::action::GuestNic;

use super::{
    Vms,
    switch::{self, SwitchUnit},
};
use crate::error::GuestError;

impl Vms {
    /// Whether this host can make the vDPA devices of the NIC `nic` that `guest` owns, and give them to QEMU: its kernel has the modules, or
    /// could load them, this process may make devices, and AppArmor lets QEMU use them. Nothing is loaded, made or started.
    ///
    /// # Errors
    ///
    /// [`GuestError::NoVdpa`] with the first that the kernel lacks; [`GuestError::Libvirt`] when libvirt does not tell how it confines
    /// QEMU; [`GuestError::NoVdpaRule`]; [`GuestError::NoSystemd`].
    pub fn makes_devices(&self, guest: &GuestName, nic: &NicName) -> Result<(), GuestError> {
        vdpa::available(&self.root, VdpaDriver::Vhost)
            .map_err(|source| GuestError::NoVdpa { guest: guest.clone(), source })?;
        self.lets_qemu_have_devices(guest)?;
        self.switch_unit(guest, nic).needs_systemd()
    }

    /// The character device of each function of a NIC, the PF's first.
    pub(super) fn devices(&self, guest: &GuestName, own: &GuestNic) -> Result<Vec<PathBuf>, GuestError> {
        let of = |(vf, mac, _)| {
            let device = TenantNic::vdpa_device(mac);
            vdpa::character_device(&self.root, &device).ok_or_else(|| {
                let port = switch::port(guest, &own.name, vf);
                let switch = self.switch_unit(guest, &own.name);
                switch.failed(&format!("has made no device for {port}: {device} has none"), Vec::new())
            })
        };
        own.nic.functions().map(of).collect()
    }

    /// Waits until `vhost_vdpa` has each device of a NIC; when that takes longer than it may, the switch is ended.
    pub(super) fn await_devices(
        &self,
        switch: &SwitchUnit<'_>,
        own: &GuestNic,
        timeout: Duration,
    ) -> Result<(), GuestError> {
        switch.until(timeout, "has no devices for its ports", || {
            let absent = own.nic.functions().find(|(_, mac, _)| {
                vdpa::character_device(&self.root, &TenantNic::vdpa_device(*mac)).is_none()
            });
            let Some((vf, ..)) = absent else { return Ok(true) };
            let name = switch::port(switch.guest, switch.nic, vf);
            let why = self.switch_ports(switch.guest, switch.nic)?.remove(&name);
            Err(why.and_then(|port| port.unconnected).unwrap_or_else(|| format!("{name} has none yet")))
        })
    }

    /// Fails when a device of a NIC is still there whose switch has ended.
    pub(super) fn has_left_no_device(
        &self,
        switch: &SwitchUnit<'_>,
        own: &GuestNic,
    ) -> Result<(), GuestError> {
        match own.nic.path {
            DataPath::VhostVdpa => switch.has_left_no_device(own.nic.functions().map(|(_, mac, _)| mac)),
            DataPath::Switch | DataPath::SwitchTap | DataPath::Tap | DataPath::VirtioVdpa => Ok(()),
        }
    }

    /// Has the ports of a NIC say whether QEMU has their devices open. The switch itself sees a driver alone, which the VM has at a VF only
    /// when it has enabled that.
    pub(super) fn see_devices(
        &self,
        guest: &GuestName,
        own: &GuestNic,
        ports: &mut BTreeMap<String, PortReport>,
    ) {
        let opened = match self.process(guest) {
            Ok(Some(qemu)) => vdpa::opened_by(&self.root, qemu.id).map_err(|error| chain(&error)),
            Ok(None) => Err(format!("{guest} is not there")),
            Err(error) => Err(chain(&error)),
        };
        for (vf, mac, _) in own.nic.functions() {
            let Some(port) = ports.get_mut(&switch::port(guest, &own.name, vf)) else { continue };
            let device = vdpa::character_device(&self.root, &TenantNic::vdpa_device(mac));
            let why = match (device, &opened) {
                // The switch says why there is none.
                (None, _) => port.unconnected.clone(),
                (Some(_), Err(why)) => Some(why.clone()),
                (Some(device), Ok(opened)) if opened.contains(&device) => {
                    // The VM's driver has it, and the switch does not serve it.
                    if port.connected
                        && let Some(why) = port.unconnected.take()
                    {
                        port.broken.get_or_insert(why);
                    }
                    (port.connected, port.unconnected) = (true, None);
                    continue;
                }
                (Some(device), Ok(_)) => Some(format!("QEMU has not opened {}", device.display())),
            };
            (port.connected, port.unconnected) = (false, why);
        }
    }
}
