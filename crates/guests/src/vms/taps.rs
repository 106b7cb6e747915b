//! The taps of the NICs that VMs own with `path: tap`: one for each function, a port of the NIC's bridge; and those of igbs at an embedded
//! switch, which come and go with the switch. libvirt opens them (`managed='no'`)
//! and leaves them when the VM ends, so that they are made before it and removed after it.

use std::{collections::BTreeMap, time::Duration};

use penstock_host::{
    chain,
    tap::{self, TapReport},
};
use penstock_model::{DataPath, GuestName, InterfaceName, NicName, TenantNic, Uplink};
use penstock_plan::action::{GuestDefinition, GuestNic};

use super::{Vms, switch::port};
use crate::error::GuestError;

/// As many bytes as an igb's longest frame, which has its header among them (`MAX_JUMBO_FRAME_SIZE`,
/// `drivers/net/ethernet/intel/igb/e1000_defines.h`).
const LONGEST_FRAME: u32 = 9728;

/// The functions of a NIC by name, each with its tap.
fn wanted(guest: &GuestName, own: &GuestNic) -> Vec<(String, penstock_model::Mac)> {
    own.nic.functions().map(|(vf, mac, _)| (port(guest, &own.name, vf), mac)).collect()
}

/// The bridge that the taps of a NIC are ports of.
fn bridge(own: &GuestNic) -> Option<&InterfaceName> {
    match &own.nic.uplink {
        Some(Uplink::Interface(bridge)) if own.nic.path == DataPath::Tap => Some(bridge),
        _ => None,
    }
}

/// Those of `taps` that are of the NIC `nic` of `guest`, whatever functions it has by now.
fn of_nic<'a>(
    taps: &'a BTreeMap<String, TapReport>,
    guest: &GuestName,
    nic: &NicName,
) -> impl Iterator<Item = (&'a String, &'a TapReport)> {
    let pf = port(guest, nic, None);
    let vfs = format!("{pf}#");
    taps.iter().filter(move |(function, _)| **function == pf || function.starts_with(&vfs))
}

/// Why a NIC is not as it is to be at its taps; `None` when it is.
fn missing(taps: &BTreeMap<String, TapReport>, guest: &GuestName, own: &GuestNic) -> Option<String> {
    let bridge = bridge(own);
    wanted(guest, own).into_iter().find_map(|(function, mac)| match taps.get(&function) {
        None => Some(format!("{function} has no tap")),
        Some(tap) if tap.mac() != Some(mac) => Some(format!("the tap of {function} is {}", tap.name)),
        Some(tap) if tap.bridge.as_ref() != bridge => Some(match &tap.bridge {
            Some(other) => format!("{}, the tap of {function}, is a port of {other}", tap.name),
            None => format!("{}, the tap of {function}, is a port of no bridge", tap.name),
        }),
        Some(tap) if !tap.up => Some(format!("{}, the tap of {function}, is down", tap.name)),
        Some(_) => None,
    })
}

impl Vms {
    /// Makes the taps of a NIC of a VM that is defined and not there; those that are left over go first. After a failure there is none.
    ///
    /// # Errors
    /// When the VM is there or not defined with such a NIC, the bridge is not there, or a tap cannot be made.
    pub fn make_taps(&self, guest: &GuestName, nic: &NicName, timeout: Duration) -> Result<(), GuestError> {
        let _lock = self.state.lock(guest, timeout)?;
        self.not_there(guest)?;
        let own = self.own_nic(guest, nic)?;
        let Some(bridge) = bridge(&own) else {
            return Err(GuestError::NoTaps { guest: guest.clone(), nic: nic.clone() });
        };
        self.switch_unit(guest, nic).needs_tun()?;
        self.end_taps(guest, nic)?;
        for (function, mac) in wanted(guest, &own) {
            if let Err(error) = tap::make(&function, mac, own.nic.queues, bridge) {
                let _ = self.end_taps(guest, nic);
                return Err(GuestError::taps(guest, nic, error));
            }
        }
        Ok(())
    }

    /// Removes the taps of a NIC of a VM that is not there; already gone is success.
    ///
    /// # Errors
    /// When the VM is there, or a tap cannot be removed.
    pub fn remove_taps(&self, guest: &GuestName, nic: &NicName, timeout: Duration) -> Result<(), GuestError> {
        let _lock = self.state.lock(guest, timeout)?;
        self.not_there(guest)?;
        self.end_taps(guest, nic)
    }

    /// Whether this host can make the tap that is the port of an igb at its switch, and run the switch. Nothing is made or started.
    ///
    /// # Errors
    ///
    /// [`GuestError::NoTun`], [`GuestError::NoSystemd`], or [`GuestError::Taps`] when `tc` is not installed.
    pub fn makes_tap_of_switch(&self, guest: &GuestName, nic: &NicName) -> Result<(), GuestError> {
        let switch = self.switch_unit(guest, nic);
        switch.needs_tun()?;
        switch.needs_systemd()?;
        tap::makes_unheard().map_err(|error| GuestError::taps(guest, nic, error))
    }

    /// Makes the tap that is the port of an igb at its switch. The caller has the guest's lock.
    pub(super) fn make_tap_of_switch(&self, guest: &GuestName, own: &GuestNic) -> Result<(), GuestError> {
        for (function, mac) in wanted(guest, own) {
            tap::make_unheard(&function, mac, LONGEST_FRAME)
                .map_err(|error| GuestError::taps(guest, &own.name, error))?;
        }
        Ok(())
    }

    /// Removes the taps of a NIC of a VM that is not there; already gone is success.
    pub(super) fn end_taps(&self, guest: &GuestName, nic: &NicName) -> Result<(), GuestError> {
        let mut outcome = Ok(());
        for (tap, _) in self.left_taps(guest, nic)? {
            if let Err(error) = tap::remove(&tap) {
                outcome = outcome.and(Err(GuestError::taps(guest, nic, error)));
            }
        }
        outcome
    }

    /// The taps that there are of a NIC, each with the name of its function: those that were made, whatever functions the NIC has by now,
    /// and those of the functions that it is defined with that somebody only began to make.
    fn left_taps(
        &self,
        guest: &GuestName,
        nic: &NicName,
    ) -> Result<Vec<(InterfaceName, String)>, GuestError> {
        let taps = tap::taps().map_err(|error| GuestError::taps(guest, nic, error))?;
        let made = of_nic(&taps, guest, nic).map(|(function, tap)| (tap.name.clone(), function.clone()));
        let mut left: Vec<_> = made.collect();
        if let Some(own) = self.nic_of_definition(guest, nic)? {
            let begun = tap::begun().map_err(|error| GuestError::taps(guest, nic, error))?;
            let of_mac =
                wanted(guest, &own).into_iter().map(|(function, mac)| (TenantNic::tap(mac), function));
            left.extend(of_mac.filter(|(tap, _)| begun.contains(tap)));
        }
        Ok(left)
    }

    /// Whether there is no tap of a NIC; which there is, else.
    pub(super) fn no_taps(&self, guest: &GuestName, nic: &NicName) -> Result<Result<(), String>, GuestError> {
        let left = self.left_taps(guest, nic)?.into_iter().next();
        Ok(left.map_or(Ok(()), |(tap, function)| Err(format!("{tap}, the tap of {function}, is there"))))
    }

    /// Removes the taps that a definition had, before another takes its place.
    pub(super) fn end_taps_of(&self, definition: &GuestDefinition) -> Result<(), GuestError> {
        let mut at_taps = definition.nics.iter().filter(|own| own.nic.path == DataPath::Tap);
        at_taps.try_for_each(|own| self.end_taps(&definition.guest, &own.name))
    }

    /// Whether the taps of a NIC are there and ports of its bridge, or there is none of them; why not, else.
    pub(crate) fn taps_there(
        &self,
        guest: &GuestName,
        nic: &NicName,
        there: bool,
    ) -> Result<Result<(), String>, GuestError> {
        if !there {
            return self.no_taps(guest, nic);
        }
        let taps = tap::taps().map_err(|error| GuestError::taps(guest, nic, error))?;
        let own = self.own_nic(guest, nic)?;
        Ok(missing(&taps, guest, &own).map_or(Ok(()), Err))
    }

    /// Whether QEMU has each tap of a NIC open; why not, else.
    pub(super) fn taps_attached(guest: &GuestName, own: &GuestNic) -> Result<(), String> {
        let taps = tap::taps().map_err(|error| chain(&error))?;
        if let Some(why) = missing(&taps, guest, own) {
            return Err(why);
        }
        let idle = of_nic(&taps, guest, &own.name).find(|(_, tap)| !tap.attached);
        idle.map_or(Ok(()), |(function, tap)| {
            Err(format!("QEMU has not opened {}, the tap of {function}", tap.name))
        })
    }
}
