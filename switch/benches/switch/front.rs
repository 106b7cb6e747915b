//! A guest in this process: its memory, and a driver of a pair of split rings that polls. `testpmd` can neither be there 254 times,
//! nor send segments of TCP, nor say when a frame was sent.

use std::{
    fs::File,
    num::NonZeroUsize,
    os::{
        fd::{AsFd, AsRawFd},
        unix::net::UnixListener,
    },
    path::Path,
    ptr::NonNull,
    sync::atomic::{AtomicU16, Ordering, fence},
    thread,
    time::{Duration, Instant},
};

use nix::{
    libc::c_void,
    sys::{
        memfd::{MFdFlags, memfd_create},
        mman::{MapFlags, ProtFlags, mmap, munmap},
    },
};
use penstock_switch::features;
use vhost::{
    VhostBackend, VhostUserMemoryRegionInfo, VringConfigData,
    vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures},
};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// `struct virtio_net_hdr_v1`
pub const HEADER: usize = 12;
/// From one buffer to the next.
pub const BUFFER: usize = 4096;
/// A switch that comes to its guests does so within this.
const TIMEOUT: Duration = Duration::from_secs(10);
/// What a ring takes with 1,024 entries, the largest here, rounded up.
const RING: usize = 0x8000;
const HUGE_PAGE: usize = 2 << 20;

/// The memory of a guest.
struct Memory {
    start: NonNull<c_void>,
    length: NonZeroUsize,
    file: File,
}

// SAFETY: it is memory that others write to in any case.
unsafe impl Send for Memory {}

impl Memory {
    /// On huge pages if there is much of it.
    fn new(length: usize) -> Result<Memory, String> {
        let huge = length > 2 * HUGE_PAGE;
        let length = if huge { length.next_multiple_of(HUGE_PAGE) } else { length };
        let flags = if huge { MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_2MB } else { MFdFlags::empty() };
        let failed = |error: std::io::Error| format!("{length} bytes for a guest could not be had: {error}");
        let file = File::from(memfd_create("guest", flags).map_err(|errno| failed(errno.into()))?);
        file.set_len(length as u64).map_err(failed)?;
        let length = NonZeroUsize::new(length).ok_or("a guest without memory")?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, file.as_fd(), 0) };
        Ok(Memory { start: start.map_err(|errno| failed(errno.into()))?, length, file })
    }

    fn at<T>(&self, offset: usize) -> *mut T {
        assert!(offset + size_of::<T>() <= self.length.get() && offset.is_multiple_of(align_of::<T>()));
        // SAFETY: it is inside the mapping.
        unsafe { self.start.as_ptr().cast::<u8>().add(offset).cast() }
    }

    fn read<T: Copy>(&self, offset: usize) -> T {
        // SAFETY: `at` has checked the place, and what is read are numbers.
        unsafe { self.at::<T>(offset).read_volatile() }
    }

    fn write<T: Copy>(&self, offset: usize, value: T) {
        // SAFETY: `at` has checked the place.
        unsafe { self.at::<T>(offset).write_volatile(value) }
    }

    fn word(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: `at` has checked the place; the other side uses it as a word too.
        unsafe { AtomicU16::from_ptr(self.at(offset)) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, whole.
        let _ = unsafe { munmap(self.start, self.length.get()) };
    }
}

/// A split ring (virtio 1.2, 2.7), whose other side is asked for no calls.
struct Ring {
    at: usize,
    entries: u16,
    available: u16,
    seen: u16,
}

impl Ring {
    fn new(at: usize, entries: u16, memory: &Memory) -> Ring {
        let ring = Ring { at, entries, available: 0, seen: 0 };
        // VIRTQ_AVAIL_F_NO_INTERRUPT
        memory.write(ring.driver(), 1_u16);
        ring
    }

    fn driver(&self) -> usize {
        self.at + usize::from(self.entries) * 16
    }

    fn device(&self) -> usize {
        (self.driver() + 6 + usize::from(self.entries) * 2).next_multiple_of(4)
    }

    /// Writes descriptor `number`, which goes on at `next` if there is one. Addresses of the guest begin with 0.
    fn describe(&self, memory: &Memory, number: u16, at: usize, length: u32, write: bool, next: Option<u16>) {
        let place = self.at + usize::from(number) * 16;
        memory.write(place, at as u64);
        memory.write(place + 8, length);
        memory.write(place + 12, (u16::from(write) * 2) | u16::from(next.is_some()));
        memory.write(place + 14, next.unwrap_or(0));
    }

    /// Offers the chain that begins with `number`; it shows with [`Ring::publish`].
    fn offer(&mut self, memory: &Memory, number: u16) {
        let slot = usize::from(self.available % self.entries);
        memory.write(self.driver() + 4 + slot * 2, number);
        self.available = self.available.wrapping_add(1);
    }

    /// Shows what was offered, and says whether the other side wants to be kicked for it.
    fn publish(&self, memory: &Memory) -> bool {
        memory.word(self.driver() + 2).store(self.available, Ordering::Release);
        fence(Ordering::SeqCst);
        // VIRTQ_USED_F_NO_NOTIFY
        memory.word(self.device()).load(Ordering::Relaxed) & 1 == 0
    }

    /// How many chains were used that were not looked at.
    fn waiting(&self, memory: &Memory) -> u16 {
        memory.word(self.device() + 2).load(Ordering::Acquire).wrapping_sub(self.seen)
    }

    /// The next that was used, of those that wait: its number, and how much was written.
    fn used(&mut self, memory: &Memory) -> (u16, u32) {
        let place = self.device() + 4 + usize::from(self.seen % self.entries) * 8;
        self.seen = self.seen.wrapping_add(1);
        (memory.read::<u32>(place) as u16, memory.read(place + 4))
    }
}

/// A guest that is connected.
pub struct Front {
    // Before the memory, so that the switch lets go first.
    _front: Frontend,
    kicks: [EventFd; 2],
    _calls: [EventFd; 2],
    to_guest: Ring,
    from_guest: Ring,
    /// Chains of the sending ring that are free: each is at a place of its own.
    free: Vec<u16>,
    /// Descriptors and buffers in a chain.
    chain: u16,
    memory: Memory,
}

/// How a guest comes to its switch.
pub struct SwitchEndpoint<'a> {
    /// The socket.
    pub path: &'a Path,
    /// It makes the socket, and the switch comes.
    pub listens: bool,
    /// Entries of each ring.
    pub entries: u16,
    /// It knows whole segments of TCP, and sends them from so many buffers.
    pub buffers: u16,
}

impl Front {
    /// Connects one, with all its buffers offered.
    pub fn connect(way: &SwitchEndpoint<'_>) -> Result<Front, String> {
        let failed = |what: &str| {
            let path = way.path.display().to_string();
            let what = what.to_owned();
            move |error: vhost::Error| format!("a guest at {path}: {what}: {error}")
        };
        let entries = usize::from(way.entries);
        let memory = Memory::new(RING * 2 + entries * BUFFER * 2)?;
        let mut to_guest = Ring::new(0, way.entries, &memory);
        let from_guest = Ring::new(RING, way.entries, &memory);
        for number in 0..way.entries {
            to_guest.describe(&memory, number, to_buffer(number), BUFFER as u32, true, None);
            to_guest.offer(&memory, number);
        }
        to_guest.publish(&memory);
        let mut front = if way.listens { accept(way.path)? } else { connect(way.path)? };
        front.set_owner().map_err(failed("owner"))?;
        let offered = front.get_features().map_err(failed("features"))?;
        let mut wanted = features::VERSION_1 | features::MERGEABLE | features::PROTOCOL;
        if way.buffers > 1 {
            wanted |=
                features::CHECKSUM | features::GUEST_CHECKSUM | features::HOST_TSO4 | features::GUEST_TSO4;
        }
        if offered & wanted != wanted {
            return Err(format!("{} does not offer features {:#x}", way.path.display(), wanted & !offered));
        }
        let protocol =
            front.get_protocol_features().map_err(|error| format!("{}: {error}", way.path.display()))?;
        front
            .set_protocol_features(protocol & VhostUserProtocolFeatures::MQ)
            .map_err(|error| format!("{}: {error}", way.path.display()))?;
        front.set_features(wanted).map_err(failed("features"))?;
        let user = memory.start.as_ptr() as u64;
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: memory.length.get() as u64,
            userspace_addr: user,
            mmap_offset: 0,
            mmap_handle: memory.file.as_raw_fd(),
        };
        front.set_mem_table(&[region]).map_err(failed("memory"))?;
        let event = || EventFd::new(EFD_NONBLOCK).map_err(|error| error.to_string());
        let (kicks, calls) = ([event()?, event()?], [event()?, event()?]);
        for (index, (ring, (kick, call))) in
            [&to_guest, &from_guest].into_iter().zip(kicks.iter().zip(&calls)).enumerate()
        {
            let config = VringConfigData {
                queue_max_size: ring.entries,
                queue_size: ring.entries,
                flags: 0,
                desc_table_addr: user + ring.at as u64,
                used_ring_addr: user + ring.device() as u64,
                avail_ring_addr: user + ring.driver() as u64,
                log_addr: None,
            };
            front.set_vring_num(index, ring.entries).map_err(failed("ring size"))?;
            front.set_vring_addr(index, &config).map_err(failed("ring address"))?;
            front.set_vring_base(index, 0).map_err(failed("ring base"))?;
            front.set_vring_call(index, call).map_err(failed("call"))?;
            front.set_vring_kick(index, kick).map_err(failed("kick"))?;
            front
                .set_vring_enable(index, true)
                .map_err(|error| format!("{}: {error}", way.path.display()))?;
        }
        // Its answer comes after all that was said before.
        front.get_features().map_err(failed("features"))?;
        let chain = way.buffers.max(1);
        let free = (0..way.entries / chain).map(|number| number * chain).collect();
        Ok(Front { _front: front, kicks, _calls: calls, to_guest, from_guest, free, chain, memory })
    }

    fn source(&self, number: u16) -> usize {
        // Behind those of the receiving ring.
        to_buffer(self.to_guest.entries) + usize::from(number) * BUFFER
    }

    /// Writes `bytes` to the beginning of every buffer that it sends from: header and headers.
    pub fn prepare(&mut self, bytes: &[u8]) {
        for number in self.free.clone() {
            let at = self.source(number);
            bytes.iter().enumerate().for_each(|(offset, byte)| self.memory.write(at + offset, *byte));
        }
    }

    /// Takes back what was sent, and says how many can be.
    pub fn room(&mut self) -> usize {
        for _ in 0..self.from_guest.waiting(&self.memory) {
            let (number, _) = self.from_guest.used(&self.memory);
            self.free.push(number);
        }
        self.free.len()
    }

    /// Sends `length` bytes of what was prepared, header included, with `stamp` at `at`. It shows with [`Front::flush`].
    pub fn send(&mut self, length: usize, stamp: Option<(usize, u64)>) {
        let Some(head) = self.free.pop() else { return };
        if let Some((at, stamp)) = stamp {
            self.memory.write(self.source(head) + at, stamp);
        }
        let mut left = length;
        for number in head..head + self.chain {
            let part = left.min(BUFFER);
            left -= part;
            let next = (left > 0).then_some(number + 1);
            self.from_guest.describe(&self.memory, number, self.source(number), part as u32, false, next);
            if next.is_none() {
                break;
            }
        }
        self.from_guest.offer(&self.memory, head);
    }

    /// Shows what was sent.
    pub fn flush(&mut self) {
        if self.from_guest.publish(&self.memory) {
            self.kick(1);
        }
    }

    fn kick(&self, ring: usize) {
        // A counter that is full kicks as well.
        let _ = self.kicks.get(ring).map(|kick| kick.write(1));
    }

    /// Gives each buffer that came, as what was written to it and the number that stands `at` bytes behind its beginning, to
    /// `each`; offers them again.
    pub fn receive(&mut self, at: usize, mut each: impl FnMut(u32, u64)) -> u16 {
        let count = self.to_guest.waiting(&self.memory);
        for _ in 0..count {
            let (number, written) = self.to_guest.used(&self.memory);
            each(written, self.memory.read(to_buffer(number) + at));
            self.to_guest.offer(&self.memory, number);
        }
        if count > 0 && self.to_guest.publish(&self.memory) {
            self.kick(0);
        }
        count
    }
}

/// Where a buffer of the receiving ring is.
fn to_buffer(number: u16) -> usize {
    RING * 2 + usize::from(number) * BUFFER
}

fn connect(path: &Path) -> Result<Frontend, String> {
    let until = Instant::now() + TIMEOUT;
    loop {
        match Frontend::connect(path, 2) {
            Ok(front) => return Ok(front),
            Err(error) if Instant::now() > until => {
                return Err(format!("nobody is at {}: {error}", path.display()));
            }
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn accept(path: &Path) -> Result<Frontend, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let until = Instant::now() + TIMEOUT;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(failed)?;
                return Ok(Frontend::from_stream(stream, 2));
            }
            Err(error) if Instant::now() > until => return Err(failed(error)),
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}
