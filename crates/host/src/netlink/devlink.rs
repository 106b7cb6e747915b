//! devlink's generic netlink family (`include/uapi/linux/devlink.h`), as far as it tells of PCI devices: their embedded switches, versions
//! and health reporters.

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::{
    Bdf,
    inventory::{
        Devlink, DevlinkVersions, Eswitch, EswitchEncapMode, EswitchInlineMode, EswitchMode, HealthReporter,
    },
};

use super::{
    NetlinkError,
    generic::{GenericBody, GenericFamily, attributes},
    wire::{self, Message},
};
use crate::process;

const CMD_GET: u8 = 1;
/// What answers [`CMD_GET`].
const CMD_NEW: u8 = 3;
const CMD_ESWITCH_GET: u8 = 29;
const CMD_ESWITCH_SET: u8 = 30;
const CMD_INFO_GET: u8 = 51;
const CMD_HEALTH_REPORTER_GET: u8 = 52;

const ATTR_BUS_NAME: u16 = 1;
const ATTR_DEV_NAME: u16 = 2;
const ATTR_PORT_INDEX: u16 = 3;
const ATTR_ESWITCH_MODE: u16 = 25;
const ATTR_ESWITCH_INLINE_MODE: u16 = 26;
const ATTR_ESWITCH_ENCAP_MODE: u16 = 62;
const ATTR_INFO_VERSION_FIXED: u16 = 100;
const ATTR_INFO_VERSION_RUNNING: u16 = 101;
const ATTR_INFO_VERSION_STORED: u16 = 102;
const ATTR_INFO_VERSION_NAME: u16 = 103;
const ATTR_INFO_VERSION_VALUE: u16 = 104;
const ATTR_HEALTH_REPORTER: u16 = 114;
const ATTR_HEALTH_REPORTER_NAME: u16 = 115;
const ATTR_HEALTH_REPORTER_STATE: u16 = 116;
const ATTR_HEALTH_REPORTER_ERR_COUNT: u16 = 117;
const ATTR_HEALTH_REPORTER_RECOVER_COUNT: u16 = 118;

/// `DEVLINK_HEALTH_REPORTER_STATE_HEALTHY` (`include/net/devlink.h`).
const STATE_HEALTHY: u8 = 0;
/// The bus of what is looked at here; others are `auxiliary`, `netdevsim`...
const PCI: &str = "pci";

/// What one message tells of a PCI device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DevlinkPart {
    /// It is there.
    Device,
    /// Its embedded switch.
    Eswitch(Eswitch),
    /// The number of a mode of its embedded switch that is not known here.
    UnknownMode(u16),
    /// Its versions.
    Versions(DevlinkVersions),
    /// One of its health reporters.
    Health(HealthReporter),
}

/// What a message of devlink tells, and of which PCI device.
pub fn devlink_part(message: &Message<'_>) -> Option<(Bdf, DevlinkPart)> {
    let attributes = attributes(message)?;
    let text = |kind| wire::attribute(attributes, kind).map(wire::text);
    let device = text(ATTR_DEV_NAME).filter(|_| text(ATTR_BUS_NAME).as_deref() == Some(PCI))?.parse().ok()?;
    let part = match *message.payload.first()? {
        CMD_NEW => DevlinkPart::Device,
        CMD_ESWITCH_GET => eswitch(attributes)?,
        CMD_INFO_GET => DevlinkPart::Versions(versions(attributes)),
        CMD_HEALTH_REPORTER_GET => DevlinkPart::Health(reporter(attributes)?),
        _ => return None,
    };
    Some((device, part))
}

/// A command about one PCI device.
fn about(command: u8, device: Bdf) -> GenericBody {
    GenericBody::new(command)
        .with(ATTR_BUS_NAME, format!("{PCI}\0").as_bytes())
        .with(ATTR_DEV_NAME, format!("{device}\0").as_bytes())
}

/// What puts the embedded switch of a device into a mode.
pub(super) fn eswitch_setting(device: Bdf, mode: EswitchMode) -> GenericBody {
    let number: u16 = match mode {
        EswitchMode::Legacy => 0,
        EswitchMode::Switchdev => 1,
        EswitchMode::SwitchdevInactive => 2,
    };
    about(CMD_ESWITCH_SET, device).with(ATTR_ESWITCH_MODE, &number.to_ne_bytes())
}

/// `None`: the driver has no embedded switch.
fn eswitch(attributes: &[u8]) -> Option<DevlinkPart> {
    let byte = |kind| wire::attribute(attributes, kind)?.first().copied();
    let mode = match wire::u16_at(wire::attribute(attributes, ATTR_ESWITCH_MODE)?, 0)? {
        0 => EswitchMode::Legacy,
        1 => EswitchMode::Switchdev,
        2 => EswitchMode::SwitchdevInactive,
        other => return Some(DevlinkPart::UnknownMode(other)),
    };
    let inline_mode = byte(ATTR_ESWITCH_INLINE_MODE).and_then(|mode| match mode {
        0 => Some(EswitchInlineMode::None),
        1 => Some(EswitchInlineMode::Link),
        2 => Some(EswitchInlineMode::Network),
        3 => Some(EswitchInlineMode::Transport),
        _ => None,
    });
    let encap_mode = byte(ATTR_ESWITCH_ENCAP_MODE).and_then(|mode| match mode {
        0 => Some(EswitchEncapMode::None),
        1 => Some(EswitchEncapMode::Basic),
        _ => None,
    });
    Some(DevlinkPart::Eswitch(Eswitch { mode, inline_mode, encap_mode }))
}

fn versions(attributes: &[u8]) -> DevlinkVersions {
    let mut versions = DevlinkVersions::default();
    for (kind, version) in wire::attributes(attributes) {
        let of = match kind {
            ATTR_INFO_VERSION_FIXED => &mut versions.fixed,
            ATTR_INFO_VERSION_RUNNING => &mut versions.running,
            ATTR_INFO_VERSION_STORED => &mut versions.stored,
            _ => continue,
        };
        let text = |kind| wire::attribute(version, kind).map(plain);
        if let (Some(name), Some(value)) = (text(ATTR_INFO_VERSION_NAME), text(ATTR_INFO_VERSION_VALUE)) {
            of.insert(name, value);
        }
    }
    versions
}

fn reporter(attributes: &[u8]) -> Option<HealthReporter> {
    let reporter = wire::attribute(attributes, ATTR_HEALTH_REPORTER)?;
    let count = |kind| wire::attribute(reporter, kind).and_then(|value| wire::u64_at(value, 0));
    Some(HealthReporter {
        port: wire::attribute(attributes, ATTR_PORT_INDEX).and_then(|value| wire::u32_at(value, 0)),
        name: plain(wire::attribute(reporter, ATTR_HEALTH_REPORTER_NAME)?),
        healthy: *wire::attribute(reporter, ATTR_HEALTH_REPORTER_STATE)?.first()? == STATE_HEALTHY,
        errors: count(ATTR_HEALTH_REPORTER_ERR_COUNT).unwrap_or_default(),
        recoveries: count(ATTR_HEALTH_REPORTER_RECOVER_COUNT).unwrap_or_default(),
    })
}

/// A driver's text, without what would break a line.
fn plain(value: &[u8]) -> String {
    wire::text(value).trim().chars().filter(|c| !c.is_control()).collect()
}

/// Whether the answer to a command is that there is nothing to tell.
///
/// On older kernels `mlx5_core` answers EPERM for a function that does not manage the embedded switch, such as a VF in a VM or the
/// host's PF of a BlueField; by itself the kernel answers that to who may not administer networks.
fn tells_nothing(error: &NetlinkError, command: u8, may_administer: bool) -> bool {
    match error {
        // The device has gone meanwhile.
        NetlinkError::NoSuchInterface { .. } | NetlinkError::Unsupported { .. } => true,
        NetlinkError::NotPermitted { .. } => command == CMD_ESWITCH_GET && may_administer,
        _ => false,
    }
}

/// devlink in one network namespace, and the PCI devices that it has there.
#[derive(Debug)]
pub struct DevlinkSocket {
    family: GenericFamily,
    number: u16,
    devices: BTreeSet<Bdf>,
}

impl DevlinkSocket {
    /// A socket in the calling thread's namespace; `Ok(None)` where the kernel has no devlink, or no generic netlink.
    ///
    /// What is asked over it waits for as long as the kernel, or a driver, holds the lock of a device (`devl_lock`), and no signal ends
    /// that: while firmware is flashed, the device is reloaded, or the driver recovers it.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when no socket can be opened, or devices cannot be listed.
    pub fn open() -> Result<Option<DevlinkSocket>, NetlinkError> {
        let Some((mut family, number)) = connect()? else { return Ok(None) };
        let devices =
            family.dump("list devlink's devices", number, &GenericBody::new(CMD_GET), |message| {
                devlink_part(message).map(|(device, _)| device)
            })?;
        Ok(Some(DevlinkSocket { family, number, devices: devices.into_iter().collect() }))
    }

    /// Whether devlink has this device.
    pub fn has(&self, device: Bdf) -> bool {
        self.devices.contains(&device)
    }

    /// The health reporters of all devices. Empty where the kernel has none (before Linux 5.1).
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when they cannot be listed.
    pub fn health(&mut self) -> Result<BTreeMap<Bdf, Vec<HealthReporter>>, NetlinkError> {
        let body = GenericBody::new(CMD_HEALTH_REPORTER_GET);
        let listed = self.family.dump("list devlink's health reporters", self.number, &body, devlink_part);
        let listed = match listed {
            Err(error) if error.is_unsupported() => Vec::new(),
            listed => listed?,
        };
        let mut health: BTreeMap<Bdf, Vec<HealthReporter>> = BTreeMap::new();
        for (device, part) in listed {
            if let DevlinkPart::Health(reporter) = part {
                health.entry(device).or_default().push(reporter);
            }
        }
        health.values_mut().for_each(|reporters| reporters.sort());
        Ok(health)
    }

    /// The embedded switch and the versions of one device, without its health reporters, and why something of them is not known. What its
    /// driver has no call for is left out and no error.
    pub fn read(&mut self, device: Bdf) -> (Devlink, Vec<NetlinkError>) {
        let (mut devlink, mut errors) = (Devlink::default(), Vec::new());
        let may_administer = process::may_administer_networks();
        // The kernel gives the former to root alone (`GENL_ADMIN_PERM`).
        for (what, command) in [(MODE, CMD_ESWITCH_GET), ("the versions", CMD_INFO_GET)] {
            let asked = ask(&mut self.family, self.number, device, what, command, |part| match part {
                DevlinkPart::Eswitch(eswitch) => devlink.eswitch = Some(eswitch),
                DevlinkPart::Versions(versions) => devlink.versions = versions,
                _ => {}
            });
            match asked {
                Ok(true) => {}
                Ok(false) => devlink.no_modes |= command == CMD_ESWITCH_GET && may_administer,
                Err(error) => errors.push(error),
            }
        }
        (devlink, errors)
    }
}

/// What a mode is called where it is asked for.
const MODE: &str = "the mode of the embedded switch";

/// Asks for `what` of one device, by this command; `Ok(false)` where its driver has no call for that, or devlink does not have the device.
fn ask(
    family: &mut GenericFamily,
    number: u16,
    device: Bdf,
    what: &str,
    command: u8,
    mut each: impl FnMut(DevlinkPart),
) -> Result<bool, NetlinkError> {
    let attempt = format!("read {what} of {device} with devlink");
    let mut unknown = None;
    let asked =
        family.ask(&attempt, number, &about(command, device), |message| match devlink_part(message) {
            Some((_, DevlinkPart::UnknownMode(mode))) => unknown = Some(mode),
            Some((_, part)) => each(part),
            None => {}
        });
    match (asked, unknown) {
        (Err(error), _) if tells_nothing(&error, command, process::may_administer_networks()) => Ok(false),
        (Err(error), _) => Err(error),
        (Ok(()), Some(mode)) => {
            Err(NetlinkError::Malformed { attempt, what: format!("mode {mode} is none that is known here") })
        }
        (Ok(()), None) => Ok(true),
    }
}

/// devlink's family and its number; `Ok(None)` where the kernel has no devlink, or no generic netlink. No device is asked for it.
fn connect() -> Result<Option<(GenericFamily, u16)>, NetlinkError> {
    let mut family = match GenericFamily::open("devlink") {
        Err(error) if error.is_without_protocol() => return Ok(None),
        opened => opened?,
    };
    Ok(family.number()?.map(|number| (family, number)))
}

/// The embedded switch of one device; `Ok(None)` where its driver has no modes of it, or devlink does not have the device. No other device
/// is asked: to list them all takes the lock of each (`devlink_nl_inst_iter_dumpit`), and another NIC's may be held for minutes.
///
/// # Errors
///
/// [`NetlinkError`] when the kernel or the driver does not tell: it takes CAP_NET_ADMIN.
pub fn eswitch_of(device: Bdf) -> Result<Option<Eswitch>, NetlinkError> {
    let Some((mut family, number)) = connect()? else { return Ok(None) };
    let mut found = None;
    ask(&mut family, number, device, MODE, CMD_ESWITCH_GET, |part| {
        if let DevlinkPart::Eswitch(eswitch) = part {
            found = Some(eswitch);
        }
    })?;
    Ok(found)
}

/// Puts the embedded switch of one device into a mode, unless `is_given_up` directly before the kernel is asked. Drivers
/// take seconds for it; what they say to a refusal is in the error.
///
/// # Errors
///
/// [`NetlinkError`] when the kernel or the driver refuses.
pub fn set_eswitch_mode(
    device: Bdf,
    mode: EswitchMode,
    is_given_up: impl FnOnce() -> bool,
) -> Result<(), NetlinkError> {
    let attempt = format!("put the embedded switch of {device} into {mode} mode with devlink");
    let Some((mut family, number)) = connect()? else {
        return Err(NetlinkError::Unsupported {
            attempt,
            detail: Some("this kernel has no devlink".to_owned()),
        });
    };
    if is_given_up() {
        return Ok(());
    }
    let set = family.ask(&attempt, number, &eswitch_setting(device, mode), |_| {});
    set.map_err(|error| lack(error, process::may_administer_networks()))
}

/// An answer to a setting by which a driver says that it cannot, as that. Before Linux 6.4 `bnxt_en` has EPERM for a PF without VFs
/// (`bnxt/bnxt_vfr.c`, `bnxt_dl_eswitch_mode_set`); by itself the kernel has that for who may not.
fn lack(error: NetlinkError, may_administer: bool) -> NetlinkError {
    let with = |detail: Option<String>, else_said: &str| Some(detail.unwrap_or_else(|| else_said.to_owned()));
    match error {
        NetlinkError::NoSuchInterface { attempt } => {
            NetlinkError::Unsupported { attempt, detail: with(None, "devlink does not have the device") }
        }
        NetlinkError::NotPermitted { attempt, detail } if may_administer => NetlinkError::Unsupported {
            attempt,
            detail: with(
                detail,
                "the driver answers root EPERM; of some it takes a newer kernel without VFs",
            ),
        },
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::{super::socket::socket_error, *};

    #[test]
    fn what_a_driver_refuses_root_is_no_lack_of_rights() {
        let nothing = |errno, command, may_administer| {
            tells_nothing(&NetlinkError::answered("read", errno, None), command, may_administer)
        };
        // As `mlx5_eswitch_check` answers where the function is no manager of the switch.
        assert!(nothing(Errno::EPERM, CMD_ESWITCH_GET, true));
        assert!(!nothing(Errno::EPERM, CMD_ESWITCH_GET, false));
        assert!(!nothing(Errno::EPERM, CMD_INFO_GET, true));
        for command in [CMD_ESWITCH_GET, CMD_INFO_GET] {
            assert!(nothing(Errno::EOPNOTSUPP, command, false) && nothing(Errno::ENODEV, command, false));
            assert!(!nothing(Errno::EIO, command, true));
        }
    }

    #[test]
    fn what_a_driver_answers_root_to_a_setting_is_a_lack() {
        let told =
            |errno, may_administer| lack(NetlinkError::answered("set it", errno, None), may_administer);
        // `bnxt_en` before Linux 6.4, without VFs.
        let words = told(Errno::EPERM, true).to_string();
        assert!(told(Errno::EPERM, true).is_unsupported() && words.contains("EPERM"), "{words}");
        assert!(told(Errno::EPERM, false).is_not_permitted());
        // A handle that devlink does not have.
        let words = told(Errno::ENODEV, true).to_string();
        assert!(words.contains("devlink does not have the device"), "{words}");
        assert!(!told(Errno::EINVAL, true).is_unsupported());
    }

    #[test]
    fn a_kernel_without_generic_netlink_has_no_devlink() {
        let opening = |errno: Errno| socket_error("open", errno.into());
        assert!(opening(Errno::EPROTONOSUPPORT).is_without_protocol());
        assert!(opening(Errno::EAFNOSUPPORT).is_without_protocol());
        assert!(!opening(Errno::EMFILE).is_without_protocol());
        assert!(!NetlinkError::answered("open", Errno::EPROTONOSUPPORT, None).is_without_protocol());
    }
}
