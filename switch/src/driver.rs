//! The other side of a ring: a driver, for tests. Nothing of it is shared with the device's side.

pub mod guest;
pub mod request;

use std::{collections::VecDeque, fs::File, os::fd::AsFd, ptr::NonNull, sync::atomic::Ordering};

use nix::sys::{
    memfd::{MFdFlags, memfd_create},
    mman::{MapFlags, ProtFlags, mmap, munmap},
};

use crate::{
    memory::{self, Description, Memory},
    ring::{
        Layout,
        atomics::{Word, fence},
    },
};

/// What the front end's own addresses begin with.
pub const USER: u64 = 0x7f00_0000_0000;

/// A guest's memory: a file mapped a second time, or the very bytes that the device has.
pub struct GuestMemory {
    start: NonNull<u8>,
    len: usize,
    of: Of,
}

enum Of {
    File(File),
    Ours(Memory),
}

// SAFETY: it is memory that others write to in any case.
unsafe impl Send for GuestMemory {}
// SAFETY: as above.
unsafe impl Sync for GuestMemory {}

impl GuestMemory {
    /// A file as real guests have it, but where there is none (Miri) or nobody would see who goes beyond its end (sanitizers).
    pub fn new(len: usize) -> GuestMemory {
        match cfg!(any(miri, feature = "fuzzing", penstock_sanitized)) {
            true => GuestMemory::ours(len),
            false => GuestMemory::file(len),
        }
    }

    /// Bytes of our own: both sides have the same addresses.
    pub fn ours(len: usize) -> GuestMemory {
        let all = Description { guest: 0, user: USER, size: len as u64, offset: 0 };
        let memory = memory::owned::memory(&[all]).unwrap();
        GuestMemory { start: memory.guest(0, len as u32).unwrap().start, len, of: Of::Ours(memory) }
    }

    /// The same memory for another thread.
    pub fn again(&self) -> GuestMemory {
        match &self.of {
            Of::File(_) => panic!("only bytes of our own have owners that share them"),
            Of::Ours(memory) => {
                GuestMemory { start: self.start, len: self.len, of: Of::Ours(memory.clone()) }
            }
        }
    }

    /// A file, mapped.
    pub fn file(len: usize) -> GuestMemory {
        let file = File::from(memfd_create("guest", MFdFlags::empty()).unwrap());
        file.set_len(len as u64).unwrap();
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let whole = len.try_into().unwrap();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { mmap(None, whole, protection, MapFlags::MAP_SHARED, file.as_fd(), 0) };
        GuestMemory { start: start.unwrap().cast(), len, of: Of::File(file) }
    }

    /// How a front end describes it.
    pub fn description(&self) -> (Description, &File) {
        let Of::File(file) = &self.of else { panic!("this memory is no file's") };
        (Description { guest: 0, user: USER, size: self.len as u64, offset: 0 }, file)
    }

    /// The same memory as the device gets it.
    pub fn shared(&self) -> Memory {
        if let Of::Ours(memory) = &self.of {
            return memory.clone();
        }
        let (description, file) = self.description();
        Memory::map(&[(description, file.try_clone().unwrap())], memory::Limit::DEFAULT).unwrap()
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        assert!(at as usize + bytes.len() <= self.len);
        // SAFETY: it is inside the mapping.
        unsafe {
            self.start.add(at as usize).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len())
        }
    }

    pub fn read(&self, at: u64, len: usize) -> Vec<u8> {
        assert!(at as usize + len <= self.len);
        let mut bytes = vec![0; len];
        // SAFETY: it is inside the mapping.
        unsafe {
            self.start.add(at as usize).copy_to_nonoverlapping(NonNull::from(&mut bytes[..]).cast(), len)
        }
        bytes
    }

    pub fn word(&self, at: u64) -> &Word {
        assert!(at as usize + 2 <= self.len && at.is_multiple_of(2));
        // SAFETY: it is inside the mapping and aligned.
        unsafe { Word::from_ptr(self.start.add(at as usize).cast().as_ptr()) }
    }
}

impl Drop for GuestMemory {
    fn drop(&mut self) {
        if let Of::File(_) = self.of {
            // SAFETY: the mapping is ours, whole.
            unsafe { munmap(self.start.cast(), self.len).unwrap() };
        }
    }
}

/// A buffer: address, length, whether the device writes to it.
pub type Buffer = (u64, u32, bool);

/// How the driver writes a chain down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Chained,
    /// In a table at this address.
    Table(u64),
}

/// A driver of either format.
pub trait Driver: Send {
    fn layout(&self, event_index: bool) -> Layout;
    /// Makes a chain available; `None` when there is no room. Says its id.
    fn offer(&mut self, memory: &GuestMemory, chain: &[Buffer], form: Form) -> Option<u16>;
    /// The next chain that was used: its id and how many bytes were written.
    fn used(&mut self, memory: &GuestMemory) -> Option<(u16, u32)>;
    /// Has the device wake it for the next used chain, or not at all.
    fn want_wake(&mut self, memory: &GuestMemory, on: bool, event_index: bool);
    /// Whether the device wants a kick for what was offered since the last call.
    fn kicks(&mut self, memory: &GuestMemory, event_index: bool) -> bool;
}

/// A driver of this format, whose ring is at `at`.
pub fn driver_of(packed: bool, at: u64, entries: u16) -> Box<dyn Driver> {
    match packed {
        true => Box::new(PackedDriver::new(at, entries)),
        false => Box::new(SplitDriver::new(at, entries)),
    }
}

fn descriptor(address: u64, len: u32, a: u16, b: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    bytes[8..12].copy_from_slice(&len.to_le_bytes());
    bytes[12..14].copy_from_slice(&a.to_le_bytes());
    bytes[14..].copy_from_slice(&b.to_le_bytes());
    bytes
}

/// Writes a table: with `next` for the split format, without for the packed one.
fn table(memory: &GuestMemory, at: u64, chain: &[Buffer], split: bool) {
    for (number, (address, len, write)) in chain.iter().enumerate() {
        let mut flags = u16::from(*write) * 2;
        let last = number + 1 == chain.len();
        if split && !last {
            flags |= 1;
        }
        let bytes = match split {
            true => descriptor(*address, *len, flags, number as u16 + 1),
            false => descriptor(*address, *len, 0, flags),
        };
        memory.write(at + number as u64 * 16, &bytes);
    }
}

/// A driver of the split format.
pub struct SplitDriver {
    at: u64,
    entries: u16,
    free: VecDeque<u16>,
    /// The descriptors of each chain that is out, by its head.
    out: Vec<Vec<u16>>,
    available: u16,
    told: u16,
    seen: u16,
    /// When the device may tell of the last of a batch alone.
    in_order: Option<InOrder>,
}

/// What a driver keeps to know which chains the last of a batch stands for (2.7.10, 2.8.9).
#[derive(Default)]
struct InOrder {
    /// Chains that are out, in the order in which they were offered.
    out: VecDeque<u16>,
    /// The last of a batch that is not yet all collected.
    last: Option<u16>,
}

impl InOrder {
    /// The next chain of the batch whose last one `told` says.
    fn next(&mut self, told: impl FnOnce() -> u16) -> u16 {
        let last = *self.last.get_or_insert_with(told);
        let id = self.out.pop_front().expect("a chain is out");
        if id == last {
            self.last = None;
        }
        id
    }
}

impl SplitDriver {
    pub fn in_order(self) -> SplitDriver {
        SplitDriver { in_order: Some(InOrder::default()), ..self }
    }

    pub fn new(at: u64, entries: u16) -> SplitDriver {
        let free = (0..entries).collect();
        SplitDriver {
            at,
            entries,
            free,
            out: vec![Vec::new(); entries.into()],
            available: 0,
            told: 0,
            seen: 0,
            in_order: None,
        }
    }

    pub fn driver_at(&self) -> u64 {
        self.at + u64::from(self.entries) * 16
    }

    pub fn device_at(&self) -> u64 {
        (self.driver_at() + 6 + u64::from(self.entries) * 2).next_multiple_of(4)
    }
}

impl Driver for SplitDriver {
    fn layout(&self, event_index: bool) -> Layout {
        Layout {
            entries: self.entries,
            descriptors: USER + self.at,
            driver: USER + self.driver_at(),
            device: USER + self.device_at(),
            event_index,
        }
    }

    fn offer(&mut self, memory: &GuestMemory, chain: &[Buffer], form: Form) -> Option<u16> {
        let wanted = if form == Form::Chained { chain.len() } else { 1 };
        if self.free.len() < wanted {
            return None;
        }
        let numbers: Vec<u16> = self.free.drain(..wanted).collect();
        match form {
            Form::Chained => {
                for (position, (address, len, write)) in chain.iter().enumerate() {
                    let next = numbers.get(position + 1);
                    let flags = (u16::from(*write) * 2) | u16::from(next.is_some());
                    let bytes = descriptor(*address, *len, flags, next.copied().unwrap_or(0));
                    memory.write(self.at + u64::from(numbers[position]) * 16, &bytes);
                }
            }
            Form::Table(at) => {
                table(memory, at, chain, true);
                let bytes = descriptor(at, chain.len() as u32 * 16, 4, 0);
                memory.write(self.at + u64::from(numbers[0]) * 16, &bytes);
            }
        }
        let head = numbers[0];
        let entry = self.driver_at() + 4 + u64::from(self.available % self.entries) * 2;
        memory.word(entry).store(head, Ordering::Relaxed);
        self.available = self.available.wrapping_add(1);
        memory.word(self.driver_at() + 2).store(self.available, Ordering::Release);
        self.out[usize::from(head)] = numbers;
        if let Some(order) = &mut self.in_order {
            order.out.push_back(head);
        }
        Some(head)
    }

    fn used(&mut self, memory: &GuestMemory) -> Option<(u16, u32)> {
        if memory.word(self.device_at() + 2).load(Ordering::Acquire) == self.seen {
            return None;
        }
        let entry = memory.read(self.device_at() + 4 + u64::from(self.seen % self.entries) * 8, 8);
        self.seen = self.seen.wrapping_add(1);
        let mut id = u32::from_le_bytes(entry[..4].try_into().unwrap()) as u16;
        let mut written = u32::from_le_bytes(entry[4..].try_into().unwrap());
        if let Some(order) = &mut self.in_order {
            (id, written) = (order.next(|| id), 0);
        }
        let numbers = std::mem::take(&mut self.out[usize::from(id)]);
        assert!(!numbers.is_empty(), "chain {id} was not out");
        self.free.extend(numbers);
        Some((id, written))
    }

    fn want_wake(&mut self, memory: &GuestMemory, on: bool, event_index: bool) {
        if event_index {
            let event = if on { self.seen } else { self.seen.wrapping_sub(1) };
            memory.word(self.driver_at() + 4 + u64::from(self.entries) * 2).store(event, Ordering::Relaxed);
        } else {
            memory.word(self.driver_at()).store(u16::from(!on), Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    fn kicks(&mut self, memory: &GuestMemory, event_index: bool) -> bool {
        fence(Ordering::SeqCst);
        let (new, old) = (self.available, self.told);
        self.told = new;
        if event_index {
            let event = memory.word(self.device_at() + 4 + u64::from(self.entries) * 8);
            let event = event.load(Ordering::Relaxed);
            return new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old);
        }
        new != old && memory.word(self.device_at()).load(Ordering::Relaxed) & 1 == 0
    }
}

/// A driver of the packed format.
pub struct PackedDriver {
    at: u64,
    entries: u16,
    next: u16,
    wrap: bool,
    used: u16,
    used_wrap: bool,
    room: u16,
    free: VecDeque<u16>,
    /// How many descriptors each chain that is out takes, by its id.
    out: Vec<u16>,
    offered: bool,
    /// When the device may tell of the last of a batch alone.
    in_order: Option<InOrder>,
}

impl PackedDriver {
    pub fn in_order(self) -> PackedDriver {
        PackedDriver { in_order: Some(InOrder::default()), ..self }
    }

    pub fn new(at: u64, entries: u16) -> PackedDriver {
        PackedDriver {
            at,
            entries,
            next: 0,
            wrap: true,
            used: 0,
            used_wrap: true,
            room: entries,
            free: (0..entries).collect(),
            out: vec![0; entries.into()],
            offered: false,
            in_order: None,
        }
    }

    pub fn driver_at(&self) -> u64 {
        self.at + u64::from(self.entries) * 16
    }
}

impl Driver for PackedDriver {
    fn layout(&self, event_index: bool) -> Layout {
        Layout {
            entries: self.entries,
            descriptors: USER + self.at,
            driver: USER + self.driver_at(),
            device: USER + self.driver_at() + 4,
            event_index,
        }
    }

    fn offer(&mut self, memory: &GuestMemory, chain: &[Buffer], form: Form) -> Option<u16> {
        let wanted = if form == Form::Chained { chain.len() as u16 } else { 1 };
        if self.room < wanted || self.free.is_empty() {
            return None;
        }
        let id = self.free.pop_front().unwrap();
        let indirect = match form {
            Form::Chained => None,
            Form::Table(at) => {
                table(memory, at, chain, false);
                Some([(at, chain.len() as u32 * 16, false)])
            }
        };
        let shown: &[Buffer] = indirect.as_ref().map_or(chain, |one| one);
        let mut first = None;
        for (position, (address, len, write)) in shown.iter().enumerate() {
            let mut flags = if self.wrap { 1 << 7 } else { 1 << 15 };
            flags |= (u16::from(*write) * 2) | u16::from(position + 1 < shown.len());
            flags |= if indirect.is_some() { 4 } else { 0 };
            let slot = self.at + u64::from(self.next) * 16;
            memory.write(slot, &descriptor(*address, *len, id, 0)[..14]);
            match first {
                None => first = Some((slot + 14, flags)),
                Some(_) => memory.word(slot + 14).store(flags, Ordering::Relaxed),
            }
            self.next += 1;
            if self.next == self.entries {
                self.next = 0;
                self.wrap = !self.wrap;
            }
        }
        let (at, flags) = first.unwrap();
        memory.word(at).store(flags, Ordering::Release);
        self.out[usize::from(id)] = wanted;
        self.room -= wanted;
        if let Some(order) = &mut self.in_order {
            order.out.push_back(id);
        }
        self.offered = true;
        Some(id)
    }

    fn used(&mut self, memory: &GuestMemory) -> Option<(u16, u32)> {
        let slot = self.at + u64::from(self.used) * 16;
        let flags = memory.word(slot + 14).load(Ordering::Acquire);
        let (available, used) = (flags & 1 << 7 != 0, flags & 1 << 15 != 0);
        let amid = self.in_order.as_ref().is_some_and(|order| order.last.is_some());
        if !amid && (available != used || used != self.used_wrap) {
            return None;
        }
        let bytes = memory.read(slot, 16);
        let mut written = u32::from_le_bytes(bytes[8..12].try_into().unwrap());
        let mut id = u16::from_le_bytes(bytes[12..14].try_into().unwrap());
        if let Some(order) = &mut self.in_order {
            (id, written) = (order.next(|| id), 0);
        }
        let taken = std::mem::take(&mut self.out[usize::from(id)]);
        assert!(taken > 0, "chain {id} was not out");
        self.room += taken;
        self.free.push_back(id);
        self.used += taken;
        if self.used >= self.entries {
            self.used -= self.entries;
            self.used_wrap = !self.used_wrap;
        }
        Some((id, written))
    }

    fn want_wake(&mut self, memory: &GuestMemory, on: bool, event_index: bool) {
        // What is not to be waited for is behind: whoever took it for what is awaited would wake nobody.
        let (at, wrap) = match (on, self.used.checked_sub(1)) {
            (true, _) => (self.used, self.used_wrap),
            (false, Some(before)) => (before, self.used_wrap),
            (false, None) => (self.entries - 1, !self.used_wrap),
        };
        memory.word(self.driver_at()).store(at | u16::from(wrap) << 15, Ordering::Relaxed);
        let flags = match (on, event_index) {
            (false, _) => 1,
            (true, false) => 0,
            (true, true) => 2,
        };
        memory.word(self.driver_at() + 2).store(flags, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    fn kicks(&mut self, memory: &GuestMemory, _: bool) -> bool {
        fence(Ordering::SeqCst);
        let offered = std::mem::take(&mut self.offered);
        offered && memory.word(self.driver_at() + 4 + 2).load(Ordering::Relaxed) & 3 != 1
    }
}
