//! A port as a vDPA device of this machine's own kernel (VDUSE, `Documentation/userspace-api/vduse.rst` and
//! `drivers/vdpa/vdpa_user/vduse_dev.c` in the kernel's sources): what the kernel says of the driver's memory and rings, and what it is
//! told. With the driver `virtio_vdpa` the machine, or a container on it, has a virtio-net interface; with `vhost_vdpa` a QEMU has the
//! device.

pub mod bus;
mod uapi;

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::{errno::Errno, libc};
use thiserror::Error;

use self::uapi::{NAME, Request, Response};
use crate::{
    eventfd::Notify,
    memory::{Description, Rights},
    ring::Layout,
};

/// What makes and destroys devices.
const CONTROL: &str = "/dev/vduse/control";
/// Bytes of a network device's configuration (`struct virtio_net_config`), as the kernel asks for it.
pub const CONFIGURATION: usize = 24;
/// Rings of a device: one pair.
pub const RINGS: u32 = 2;
/// Entries of a ring at most. Whole segments in all of them fit into the kernel's bounce buffers (64 MiB) several times.
const ENTRIES: u16 = 256;
/// The most regions that a device is asked about.
const MOST_REGIONS: usize = 4096;

/// What the kernel refused.
#[derive(Debug, Error)]
#[error("{tried}{hint}")]
pub struct VduseError {
    /// What was attempted, with its values.
    tried: String,
    /// What may be done; empty where the kernel's word says all.
    hint: &'static str,
    #[source]
    errno: Errno,
}

impl VduseError {
    /// `tried` could not be done.
    pub(crate) fn new(tried: impl Into<String>, errno: Errno) -> VduseError {
        let hint = match errno {
            Errno::EPERM | Errno::EACCES => " (that takes CAP_NET_ADMIN)",
            Errno::ENOENT => " (the module is not loaded: modprobe vduse)",
            _ => "",
        };
        VduseError { tried: tried.into(), hint, errno }
    }

    /// `tried` could not be done.
    pub(crate) fn io(tried: impl Into<String>, error: &std::io::Error) -> VduseError {
        VduseError::new(tried, error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
    }
}

impl From<VduseError> for std::io::Error {
    fn from(error: VduseError) -> std::io::Error {
        std::io::Error::new(std::io::Error::from(error.errno).kind(), error)
    }
}

/// What makes and destroys devices, opened.
#[derive(Debug)]
pub struct VduseControl(File);

fn name_of(name: &str) -> [u8; NAME] {
    let mut bytes = [0; NAME];
    // The last one stays a zero.
    for (to, from) in bytes.iter_mut().take(NAME - 1).zip(name.bytes()) {
        *to = from;
    }
    bytes
}

impl VduseControl {
    /// Opens it.
    ///
    /// # Errors
    /// [`VduseError`] when the module is not loaded or knows no version 0 of its interface, or this process may not.
    pub fn open() -> Result<VduseControl, VduseError> {
        let tried = || format!("{CONTROL} could not be opened");
        let file = OpenOptions::new().read(true).write(true).open(CONTROL);
        let file = file.map_err(|error| VduseError::io(tried(), &error))?;
        let version = uapi::VERSION;
        // SAFETY: this request reads a number of 64 bits.
        unsafe { uapi::set_api_version(file.as_raw_fd(), &raw const version) }
            .map_err(|errno| VduseError::new(format!("{CONTROL} does not know version 0 of VDUSE"), errno))?;
        Ok(VduseControl(file))
    }

    /// Makes the network device `name`, which offers `features` and has this configuration, and opens it.
    ///
    /// # Errors
    /// [`VduseError`] with the kernel's reason.
    pub fn create(
        &self,
        name: &str,
        features: u64,
        configuration: [u8; CONFIGURATION],
    ) -> Result<Device, VduseError> {
        #[repr(C)]
        struct Whole {
            head: uapi::DeviceConfig,
            configuration: [u8; CONFIGURATION],
        }
        let head = uapi::DeviceConfig {
            name: name_of(name),
            vendor: 0,
            device: uapi::NETWORK,
            features,
            queues: RINGS,
            alignment: 4096,
            reserved: [0; 13],
            config_size: CONFIGURATION as u32,
        };
        let whole = Whole { head, configuration };
        let tried = || format!("the VDUSE device {name} could not be made");
        // SAFETY: the kernel reads the head, and as many bytes behind it as that says.
        unsafe { uapi::create_device(self.0.as_raw_fd(), (&raw const whole).cast()) }
            .map_err(|errno| VduseError::new(tried(), errno))?;
        let device = Device::open(name)?;
        for index in 0..RINGS {
            let queue = uapi::QueueConfig { index, most: ENTRIES, ..uapi::QueueConfig::default() };
            // SAFETY: this request reads such a structure.
            unsafe { uapi::set_up_queue(device.file.as_raw_fd(), &raw const queue) }.map_err(|errno| {
                VduseError::new(format!("ring {index} of {name} could not be set up"), errno)
            })?;
        }
        Ok(device)
    }

    /// Destroys a device that is neither on the bus nor open; one that is not there is passed over.
    ///
    /// # Errors
    /// [`VduseError`] with the kernel's reason.
    pub fn destroy(&self, name: &str) -> Result<(), VduseError> {
        let bytes = name_of(name);
        // SAFETY: this request reads a name.
        match unsafe { uapi::destroy_device(self.0.as_raw_fd(), &raw const bytes) } {
            Ok(_) => Ok(()),
            // `vduse_destroy_dev` has no such device.
            Err(Errno::EINVAL) if !Device::path(name).exists() => Ok(()),
            Err(errno) => {
                Err(VduseError::new(format!("the VDUSE device {name} could not be destroyed"), errno))
            }
        }
    }
}

/// What the kernel asks of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Where a ring stands.
    State(u32),
    /// The device's status is to be this.
    Status(u8),
    /// The driver's memory has changed.
    Memory,
    /// Something of a later interface.
    Unknown(u32),
}

/// A request that waits for its answer.
#[derive(Debug)]
pub struct KernelRequest {
    id: u32,
    /// What is asked.
    pub kind: RequestKind,
}

/// A ring as the kernel has it.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// Where it is; the addresses are the driver's.
    pub layout: Layout,
    /// Whether its driver has it in use.
    pub ready: bool,
}

/// A device, opened.
#[derive(Debug)]
pub struct Device {
    name: String,
    file: File,
}

impl Device {
    /// The character device of the VDUSE device `name`.
    pub fn path(name: &str) -> PathBuf {
        Path::new("/dev/vduse").join(name)
    }

    /// Opens a device that is there.
    ///
    /// # Errors
    /// [`VduseError`] with the kernel's reason.
    pub fn open(name: &str) -> Result<Device, VduseError> {
        let path = Device::path(name);
        let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&path);
        let file = opened.map_err(|error| {
            let why = match error.raw_os_error() {
                Some(libc::EBUSY) => "another program has it open",
                _ => "it could not be opened",
            };
            VduseError::io(format!("{}: {why}", path.display()), &error)
        })?;
        Ok(Device { name: name.to_owned(), file })
    }

    fn failed(&self, what: &str) -> impl FnOnce(Errno) -> VduseError {
        let tried = format!("VDUSE device {}: {what}", self.name);
        move |errno| VduseError::new(tried, errno)
    }

    /// What the kernel asks, if it asks something.
    ///
    /// # Errors
    /// [`VduseError`] with the kernel's reason.
    pub fn request(&self) -> Result<Option<KernelRequest>, VduseError> {
        let mut bytes = [0; size_of::<Request>()];
        match (&self.file).read(&mut bytes) {
            Ok(len) if len == bytes.len() => {}
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => {
                return Ok(None);
            }
            Err(error) => {
                return Err(VduseError::io(format!("{}: no message could be read", self.name), &error));
            }
            Ok(_) => return Err(self.failed("a message is too short")(Errno::EBADMSG)),
        }
        // SAFETY: it is plain numbers, and the bytes are as many.
        let request: Request = unsafe { std::mem::transmute(bytes) };
        let [first, ..] = request.body;
        let kind = match request.kind {
            uapi::GET_VQ_STATE => RequestKind::State(first),
            uapi::SET_STATUS => RequestKind::Status(first.to_ne_bytes()[0]),
            uapi::UPDATE_IOTLB => RequestKind::Memory,
            other => RequestKind::Unknown(other),
        };
        Ok(Some(KernelRequest { id: request.id, kind }))
    }

    /// Answers: it was done, or it was not. `state` is where the ring stands that was asked about.
    ///
    /// # Errors
    /// [`VduseError`] with the kernel's reason.
    pub fn answer(&self, request: &KernelRequest, done: bool, state: u16) -> Result<(), VduseError> {
        let mut body = [0; 32];
        if let (RequestKind::State(index), [first, second, ..]) = (request.kind, &mut body) {
            *first = index;
            let [low, high] = state.to_ne_bytes();
            *second = u32::from_ne_bytes([low, high, 0, 0]);
        }
        let response = Response { id: request.id, result: u32::from(!done), reserved: [0; 4], body };
        // SAFETY: it is plain numbers without room between them, and the bytes are as many.
        let bytes: [u8; size_of::<Response>()] = unsafe { std::mem::transmute(response) };
        (&self.file).write_all(&bytes).map_err(|error| {
            VduseError::io(format!("{}: a message could not be answered", self.name), &error)
        })
    }

    /// The features that the driver has taken.
    ///
    /// # Errors
    /// [`VduseError`] with the kernel's reason.
    pub fn features(&self) -> Result<u64, VduseError> {
        let mut features = 0;
        // SAFETY: this request writes a number of 64 bits.
        unsafe { uapi::get_features(self.file.as_raw_fd(), &raw mut features) }
            .map_err(self.failed("it does not say what the driver has taken"))?;
        Ok(features)
    }

    /// Gives it this configuration.
    ///
    /// # Errors
    /// [`VduseError`] with the kernel's reason.
    pub fn set_configuration(&self, configuration: [u8; CONFIGURATION]) -> Result<(), VduseError> {
        #[repr(C)]
        struct Whole {
            head: uapi::ConfigData,
            configuration: [u8; CONFIGURATION],
        }
        let head = uapi::ConfigData { offset: 0, length: CONFIGURATION as u32 };
        let whole = Whole { head, configuration };
        // SAFETY: the kernel reads the head, and as many bytes behind it as that says.
        unsafe { uapi::set_config(self.file.as_raw_fd(), (&raw const whole).cast()) }
            .map_err(self.failed("its configuration could not be set"))?;
        Ok(())
    }

    /// Has the driver look at the configuration; says whether there is a driver that is ready for that (`DRIVER_OK`).
    pub fn has_driver(&self) -> bool {
        // SAFETY: this request takes nothing.
        unsafe { uapi::inject_config_irq(self.file.as_raw_fd()) }.is_ok()
    }

    /// A ring as it is.
    ///
    /// # Errors
    /// [`VduseError`] with the kernel's reason.
    pub fn queue(&self, index: u32, event_index: bool) -> Result<Queue, VduseError> {
        let mut info = uapi::QueueInfo { index, ..uapi::QueueInfo::default() };
        // SAFETY: this request reads and writes such a structure.
        unsafe { uapi::queue_info(self.file.as_raw_fd(), &raw mut info) }
            .map_err(self.failed(&format!("it does not say where ring {index} is")))?;
        let layout = Layout {
            // One that is too large is refused as one of no entries.
            entries: u16::try_from(info.entries).unwrap_or(0),
            descriptors: info.descriptors,
            driver: info.driver,
            device: info.device,
            event_index,
        };
        Ok(Queue { layout, ready: info.ready != 0 })
    }

    /// Has this eventfd signalled when the driver kicks a ring.
    ///
    /// # Errors
    /// [`VduseError`] with the kernel's reason.
    pub fn set_kick(&self, index: u32, event: BorrowedFd<'_>) -> Result<(), VduseError> {
        let event = uapi::QueueEvent { index, fd: event.as_raw_fd() };
        // SAFETY: this request reads such a structure.
        unsafe { uapi::set_queue_kick(self.file.as_raw_fd(), &raw const event) }
            .map_err(self.failed(&format!("kicks of ring {index} could not be heard")))?;
        Ok(())
    }

    /// The driver's memory, as far as it may be read.
    ///
    /// # Errors
    /// [`VduseError`] with the kernel's reason.
    pub fn regions(&self) -> Result<Vec<(Description, File, Rights)>, VduseError> {
        let mut all = Vec::new();
        let mut from = 0;
        for _ in 0..MOST_REGIONS {
            let mut entry = uapi::IotlbEntry { start: from, last: u64::MAX, ..uapi::IotlbEntry::default() };
            // SAFETY: this request reads and writes such a structure.
            let file = match unsafe { uapi::iotlb_get_fd(self.file.as_raw_fd(), &raw mut entry) } {
                // SAFETY: the kernel has made this descriptor for us.
                Ok(fd) => unsafe { File::from_raw_fd(fd) },
                // There is no other one.
                Err(Errno::EINVAL) => break,
                Err(errno) => {
                    return Err(self.failed(&format!("its memory from {from:#x} on is not known"))(errno));
                }
            };
            let rights = match entry.permission {
                uapi::READ_ONLY => Some(Rights::Read),
                uapi::READ_WRITE => Some(Rights::Both),
                // What may only be written cannot be mapped, and nobody has such.
                _ => None,
            };
            let size = entry.last.wrapping_sub(entry.start).wrapping_add(1);
            let at = entry.start;
            if let Some(rights) = rights {
                all.push((Description { guest: at, user: at, size, offset: entry.offset }, file, rights));
            }
            match entry.last.checked_add(1) {
                Some(next) if next > from => from = next,
                _ => break,
            }
        }
        Ok(all)
    }

    /// What wakes the driver for a ring.
    pub fn interrupt(self: &Arc<Device>, index: u32) -> Interrupt {
        Interrupt { device: Arc::clone(self), index }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// What wakes the driver of a device for one of its rings.
#[derive(Debug)]
pub struct Interrupt {
    device: Arc<Device>,
    index: u32,
}

impl Notify for Interrupt {
    /// Has the kernel call the driver, on a thread of its own (`vduse_dev_queue_irq_work`). A device without a driver needs no call.
    fn signal(&self) {
        // SAFETY: this request reads a number of 32 bits.
        let _ = unsafe { uapi::inject_queue_irq(self.device.file.as_raw_fd(), &raw const self.index) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_sizes() {
        assert_eq!(size_of::<uapi::DeviceConfig>(), 336);
        assert_eq!(size_of::<uapi::IotlbEntry>(), 32);
        assert_eq!(size_of::<uapi::QueueConfig>(), 32);
        assert_eq!(size_of::<uapi::QueueInfo>(), 48);
        assert_eq!((size_of::<Request>(), size_of::<Response>()), (152, 152));
    }

    #[test]
    fn a_name_ends_with_a_zero_however_long_it_is() {
        assert_eq!(name_of("pen0").get(..5), Some(&b"pen0\0"[..]));
        assert_eq!(name_of(&"x".repeat(300)).last(), Some(&0));
    }
}
