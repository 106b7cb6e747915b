//! The vdpa bus: devices are put on it and taken off it over generic netlink (`include/uapi/linux/vdpa.h`), and given to a driver over
//! sysfs (`drivers/vdpa/vdpa.c`). All of it may wait for whoever serves the device, who therefore never calls it.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
    ParseableParametrized,
};
use netlink_packet_generic::{
    GenlFamily, GenlHeader, GenlMessage,
    ctrl::{GenlCtrl, GenlCtrlCmd, nlas::GenlCtrlAttrs},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};
use nix::{errno::Errno, libc};

use super::VduseError;
use crate::config::VduseDriver;

/// The only management device of VDUSE.
const MANAGEMENT: &str = "vduse";
/// `VDPA_CMD_DEV_NEW`.
const NEW: u8 = 3;
/// `VDPA_CMD_DEV_DEL`.
const DELETE: u8 = 4;
/// `VDPA_ATTR_MGMTDEV_DEV_NAME`.
const MANAGEMENT_NAME: u16 = 2;
/// `VDPA_ATTR_DEV_NAME`.
const NAME: u16 = 4;
/// How long a program that has a device open may take to let go of it. Shorter than a port has to go (`server/vduse.rs`).
const LETTING_GO: Duration = Duration::from_secs(5);
/// How often it is looked at whether it has.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes of an answer, which repeats the request.
const ROOM: usize = 16 << 10;

/// A request of the `vdpa` family.
#[derive(Clone, Debug)]
struct Vdpa {
    command: u8,
    attributes: Vec<DefaultNla>,
}

impl GenlFamily for Vdpa {
    fn family_name() -> &'static str {
        "vdpa"
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        1
    }
}

impl Emitable for Vdpa {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Vdpa {
    fn parse_with_param(_: &[u8], header: GenlHeader) -> Result<Vdpa, DecodeError> {
        // Neither request is answered with more than whether it was done.
        Ok(Vdpa { command: header.cmd, attributes: Vec::new() })
    }
}

/// Sends a request, and gives what answers it to `read` until that has what it wants, or the kernel says that all is done.
fn ask<T, R>(message: GenlMessage<T>, mut read: impl FnMut(T) -> Option<R>) -> io::Result<Option<R>>
where
    T: GenlFamily + Emitable + ParseableParametrized<[u8], GenlHeader> + std::fmt::Debug,
{
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut message = NetlinkMessage::from(message);
    message.header.flags = NLM_F_REQUEST | NLM_F_ACK;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let odd = |error| io::Error::new(io::ErrorKind::InvalidData, format!("{error}"));
    let mut found = None;
    loop {
        let mut room = Vec::with_capacity(ROOM);
        socket.recv(&mut room, 0)?;
        let mut left = room.as_slice();
        while !left.is_empty() {
            let answer = NetlinkMessage::<GenlMessage<T>>::deserialize(left).map_err(odd)?;
            let len = (answer.header.length as usize).next_multiple_of(4);
            match answer.payload {
                NetlinkPayload::Error(error) => match error.code {
                    None => return Ok(found),
                    Some(_) => return Err(error.to_io()),
                },
                NetlinkPayload::InnerMessage(inner) => found = found.or(read(inner.payload)),
                _ => {}
            }
            left = left.get(len.max(1)..).unwrap_or_default();
        }
    }
}

/// The number of the `vdpa` family.
fn family() -> io::Result<u16> {
    let nlas = vec![GenlCtrlAttrs::FamilyName(Vdpa::family_name().to_owned())];
    let request = GenlMessage::from_payload(GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas });
    let number = ask(request, |answer| {
        answer.nlas.into_iter().find_map(|attribute| match attribute {
            GenlCtrlAttrs::FamilyId(number) => Some(number),
            _ => None,
        })
    })?;
    number.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
}

fn request(command: u8, names: &[(u16, &str)]) -> io::Result<()> {
    let attribute =
        |(kind, text): &(u16, &str)| DefaultNla::new(*kind, text.bytes().chain(std::iter::once(0)).collect());
    let vdpa = Vdpa { command, attributes: names.iter().map(attribute).collect() };
    let mut message = GenlMessage::from_payload(vdpa);
    message.set_resolved_family_id(family()?);
    ask(message, |_| None::<()>).map(|_| ())
}

fn entry(name: &str) -> PathBuf {
    Path::new("/sys/bus/vdpa/devices").join(name)
}

/// Whether there is a device of this name on the bus.
pub fn has(name: &str) -> bool {
    entry(name).exists()
}

/// Puts a VDUSE device on the bus, where its driver takes it at once. It must be served meanwhile.
///
/// # Errors
/// [`VduseError`] with the kernel's reason.
pub fn add(name: &str) -> Result<(), VduseError> {
    request(NEW, &[(MANAGEMENT_NAME, MANAGEMENT), (NAME, name)]).map_err(|error| {
        let tried = format!("the VDUSE device {name} could not be put on the vdpa bus");
        VduseError::new(tried, Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
    })
}

/// The file of `vhost_vdpa` by which a program has a device open, if one has: only one may (`vhost_vdpa_open`).
///
/// # Errors
/// [`VduseError`] when the file is there and cannot be opened for another reason: a program may have it open then.
fn held(name: &str) -> Result<Option<PathBuf>, VduseError> {
    let files = match fs::read_dir(entry(name)) {
        Ok(files) => files,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot_tell(name, &entry(name), &error)),
    };
    for file in files {
        let file = file.map_err(|error| cannot_tell(name, &entry(name), &error))?.file_name();
        if !file.to_string_lossy().starts_with("vhost-vdpa-") {
            continue;
        }
        let path = Path::new("/dev").join(file);
        match fs::OpenOptions::new().read(true).write(true).open(&path) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Ok(Some(path)),
            // A program opens it by its node in `/dev`: what has none yet, or none any more, is nobody's.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENXIO | libc::ENODEV)) => {
            }
            Err(error) => return Err(cannot_tell(name, &path, &error)),
            Ok(_) => {}
        }
    }
    Ok(None)
}

fn cannot_tell(name: &str, path: &Path, error: &std::io::Error) -> VduseError {
    let path = path.display();
    let tried = format!("whether a program has the vDPA device {name} open cannot be told by {path}");
    VduseError::new(tried, Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
}

/// The file by which a program has a device open still, after a while: one that ends at the same time, as all do when a machine is shut
/// down, lets go of it only while it is served.
fn still_held(name: &str) -> Result<Option<PathBuf>, VduseError> {
    let until = Instant::now() + LETTING_GO;
    loop {
        let held = held(name)?;
        if held.is_none() || Instant::now() >= until {
            return Ok(held);
        }
        thread::sleep(LOOK);
    }
}

/// Takes a device off the bus, from whatever driver has it. It must be served meanwhile. One that a QEMU has open and does not let go of
/// within five seconds stays, since the kernel would wait until that ends.
///
/// # Errors
/// [`VduseError`] with who has it open, that this cannot be told, or the kernel's reason.
pub fn delete(name: &str) -> Result<(), VduseError> {
    if let Some(path) = still_held(name)? {
        let path = path.display();
        let tried = format!(
            "the vDPA device {name} stays on the bus, since a program has {path} open: end that, then `vdpa dev del {name}`"
        );
        return Err(VduseError::new(tried, Errno::EBUSY));
    }
    request(DELETE, &[(NAME, name)]).map_err(|error| {
        let tried = format!("the vDPA device {name} could not be taken off the bus");
        VduseError::new(tried, Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
    })
}

/// The driver that has a device.
fn driver_of(name: &str) -> Option<String> {
    let driver = fs::read_link(entry(name).join("driver")).ok()?;
    Some(driver.file_name()?.to_string_lossy().into_owned())
}

/// Has a device that is on the bus taken by this driver, from any other. One that is not there yet takes it when it is loaded.
///
/// # Errors
/// [`VduseError`] when the driver is not there or does not take it, or a program has the device open by the other one.
pub fn bind(name: &str, driver: VduseDriver) -> Result<(), VduseError> {
    let driver = driver.name();
    let write = |path: &Path, text: &str| {
        fs::write(path, text).map_err(|error| {
            let tried = format!("{text} could not be written to {}", path.display());
            VduseError::new(tried, Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
        })
    };
    write(&entry(name).join("driver_override"), driver)?;
    let before = driver_of(name);
    if before.as_deref() == Some(driver) {
        return Ok(());
    }
    if let Some(path) = held(name)? {
        let tried = format!("a program has the vDPA device {name} open as {}: end that", path.display());
        return Err(VduseError::new(tried, Errno::EBUSY));
    }
    if before.is_some() {
        write(&entry(name).join("driver/unbind"), name)?;
    }
    if !Path::new("/sys/bus/vdpa/drivers").join(driver).exists() {
        let tried =
            format!("the driver {driver} for the vDPA device {name} is not loaded: modprobe {driver}");
        return Err(VduseError::new(tried, Errno::ENODEV));
    }
    write(Path::new("/sys/bus/vdpa/drivers_probe"), name)?;
    match driver_of(name) {
        Some(now) if now == driver => Ok(()),
        _ => {
            let tried =
                format!("the driver {driver} did not take the vDPA device {name}; `dmesg` may say why");
            Err(VduseError::new(tried, Errno::ENODEV))
        }
    }
}
