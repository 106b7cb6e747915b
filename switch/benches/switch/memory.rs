//! The memory of a guest in this process, which its switch maps.

use std::{
    fs::File,
    num::NonZeroUsize,
    os::fd::{AsFd, AsRawFd},
    ptr::NonNull,
    sync::atomic::AtomicU16,
};

use nix::{
    libc::c_void,
    sys::{
        memfd::{MFdFlags, memfd_create},
        mman::{MapFlags, ProtFlags, mmap, munmap},
    },
};
use penstock_switch::memory::{Description, Limit};
use vhost::VhostUserMemoryRegionInfo;

const HUGE_PAGE: usize = 2 << 20;

/// The memory of a guest.
pub struct Memory {
    start: NonNull<c_void>,
    length: NonZeroUsize,
    file: File,
}

// SAFETY: it is memory that others write to in any case.
unsafe impl Send for Memory {}

impl Memory {
    /// On huge pages if there is much of it.
    pub fn new(length: usize) -> Result<Memory, String> {
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

    /// The place `offset` bytes behind its beginning.
    pub fn at<T>(&self, offset: usize) -> *mut T {
        assert!(offset + size_of::<T>() <= self.length.get() && offset.is_multiple_of(align_of::<T>()));
        // SAFETY: it is inside the mapping.
        unsafe { self.start.as_ptr().cast::<u8>().add(offset).cast() }
    }

    /// What stands there.
    pub fn read<T: Copy>(&self, offset: usize) -> T {
        // SAFETY: `at` has checked the place, and what is read are numbers.
        unsafe { self.at::<T>(offset).read_volatile() }
    }

    /// Writes it there.
    pub fn write<T: Copy>(&self, offset: usize, value: T) {
        // SAFETY: `at` has checked the place.
        unsafe { self.at::<T>(offset).write_volatile(value) }
    }

    /// The word there.
    pub fn word(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: `at` has checked the place; the other side uses it as a word too.
        unsafe { AtomicU16::from_ptr(self.at(offset)) }
    }
}

impl Memory {
    /// It as the only region of a guest whose addresses begin with 0.
    pub fn region(&self) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: self.length.get() as u64,
            userspace_addr: self.address(0),
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }
    }

    /// The same memory as a switch in this process has it, whose addresses begin with 0.
    pub fn mapped_again(&self) -> Result<penstock_switch::memory::Memory, String> {
        let file = self.file.try_clone().map_err(|error| error.to_string())?;
        let description = Description { guest: 0, user: 0, size: self.length.get() as u64, offset: 0 };
        penstock_switch::memory::Memory::map(&[(description, file)], Limit::DEFAULT)
            .map_err(|error| error.to_string())
    }

    /// The address here of what is at `offset`.
    pub fn address(&self, offset: usize) -> u64 {
        self.start.as_ptr() as u64 + offset as u64
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, whole.
        let _ = unsafe { munmap(self.start, self.length.get()) };
    }
}
