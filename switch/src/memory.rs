//! The memory that a guest has shared: regions of files, mapped here.
//!
//! A guest may write to it at any time, also while it is read here. Bytes of frames are copied as they are found; what is
//! decided on is read once, into memory that is not shared.

use std::{
    fs::File,
    num::NonZeroUsize,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::fs::MetadataExt,
    },
    ptr::NonNull,
    sync::Arc,
};

use nix::{
    fcntl::{FcntlArg, fcntl},
    sys::mman::{MapFlags, ProtFlags, mmap, munmap},
};
use thiserror::Error;

use crate::{
    iotlb::{Access, Found, Table, View},
    sigbus::Watched,
};

/// Regions that a guest may have. QEMU has at most 512 slots of memory (`KVM_USER_MEM_SLOTS` is 32,764).
pub const MOST_REGIONS: usize = 509;

/// What may be mapped of a front end's at a time, so that room is left for its neighbours: a process has 128 TiB of addresses, and
/// files without contents of any size cost who hands them over nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Bytes, in whole pages of the files.
    pub bytes: u64,
    /// Regions, each of which is a mapping; of those a process has some 65,000 (`vm.max_map_count`).
    pub regions: usize,
}

impl Limit {
    /// As much as may be where nobody has set anything.
    pub const DEFAULT: Limit = Limit { bytes: 1 << 40, regions: MOST_REGIONS };

    /// What is left of it beside so many bytes.
    pub fn beside(self, bytes: u64) -> Limit {
        Limit { bytes: self.bytes.saturating_sub(bytes), ..self }
    }
}

/// Bytes for people: in the largest unit of which there are some.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let unit = (bytes.max(1).ilog2() as usize / 10).min(UNITS.len() - 1);
    let value = bytes as f64 / (1_u64 << (10 * unit)) as f64;
    // In tenths, where there are some.
    let text = format!("{value:.1}");
    format!("{} {}", text.strip_suffix(".0").unwrap_or(&text), UNITS.get(unit).copied().unwrap_or_default())
}

/// Bytes of a guest's memory that lie together here.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The first of them.
    pub start: NonNull<u8>,
    /// How many bytes it has; 0 for none.
    pub len: u32,
}

impl Span {
    /// A span without bytes.
    pub const NONE: Span = Span { start: NonNull::dangling(), len: 0 };
}

/// A file's part, mapped for reading and writing until it is dropped.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    len: NonZeroUsize,
    /// How it is given back.
    free: unsafe fn(NonNull<u8>, NonZeroUsize),
    /// Not watched any more before it is given back: its addresses may be somebody else's right after.
    watched: Option<Watched>,
}

// SAFETY: a mapping is memory that others write to in any case; who reads or writes through it takes that into account.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.watched = None;
        // SAFETY: the range is a mapping of ours, whole, and nobody has a pointer into it once its last owner is gone.
        unsafe { (self.free)(self.start, self.len) };
    }
}

unsafe fn unmap(start: NonNull<u8>, len: NonZeroUsize) {
    // SAFETY: the caller says that it is a mapping.
    let _ = unsafe { munmap(start.cast(), len.get()) };
}

/// A region as the front end describes it (vhost-user protocol, "Memory region description").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Where the guest sees it.
    pub guest: u64,
    /// Where the front end has it itself; ring addresses are given so.
    pub user: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Where it begins in its file.
    pub offset: u64,
}

/// Why memory was not taken.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// A region with nothing in it, or which goes around the end of the address space.
    #[error("region at {guest:#x} of {size:#x} bytes from {offset:#x} of its file does not fit into 64 bits")]
    Wraps {
        /// Where the guest sees the region.
        guest: u64,
        /// Size of the region in bytes.
        size: u64,
        /// Where the region begins in its file, in bytes.
        offset: u64,
    },
    /// Two regions that claim the same addresses.
    #[error("the regions at {first:#x} and {second:#x} overlap")]
    Overlap {
        /// The lower one.
        first: u64,
        /// Where the guest sees the higher region.
        second: u64,
    },
    /// More regions than the port may have.
    #[error(
        "its front end would share {regions} regions of memory; {most} are the most that this port may have"
    )]
    TooMany {
        /// How many regions the front end would share.
        regions: usize,
        /// The most regions that the port may have ([`Limit::regions`]).
        most: usize,
    },
    /// More bytes than the port may have.
    #[error(
        "its front end would share {} of memory, and `max_memory` of this port leaves {} for that: set that key (in MiB) higher in the switch's configuration for a guest as large",
        size(*.asked),
        size(*.most)
    )]
    TooMuch {
        /// Bytes that would be mapped: a region with all before it, or all regions.
        asked: u64,
        /// The most bytes that may be mapped ([`Limit::bytes`]).
        most: u64,
    },
    /// The file is shorter than the region.
    #[error("region at {guest:#x} ends at {end:#x} of its file, which has {len:#x} bytes")]
    BeyondFile {
        /// Where the guest sees the region.
        guest: u64,
        /// Where it ends in the file.
        end: u64,
        /// The file's length.
        len: u64,
    },
    /// A fault in it would wait for whoever serves the file: a disk, or another program.
    #[error(
        "region at {guest:#x} is no shared memory: its file must be a memfd, or be on tmpfs or hugetlbfs \
         (QEMU: -object memory-backend-memfd)"
    )]
    NotMemory {
        /// Where the guest sees the region.
        guest: u64,
    },
    /// The kernel would not map it.
    #[error("region at {guest:#x} could not be mapped")]
    NotMapped {
        /// Where the guest sees the region.
        guest: u64,
        /// The kernel's error, from asking for the file's size or from mapping it.
        #[source]
        source: std::io::Error,
    },
}

#[derive(Clone, Debug)]
struct Region {
    guest: u64,
    user: u64,
    size: u64,
    /// Where its first byte is in the mapping.
    skip: usize,
    mapping: Arc<Mapping>,
}

/// Who has handed a region over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Giver {
    /// A front end, of whose file nothing is taken for granted.
    FrontEnd,
    /// The kernel, for a VDUSE device.
    Kernel(Rights),
}

/// What a VDUSE device may do with a region (`perm` of `struct vduse_iotlb_entry`, `include/uapi/linux/vduse.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Read it. What is written all the same is written into a copy of our own, and does not come to the driver.
    Read,
    /// Read it and write to it.
    Both,
}

impl Region {
    /// Maps a region beside `taken` bytes that are mapped already.
    fn map(
        description: &Description,
        file: &File,
        giver: Giver,
        taken: u64,
        limit: Limit,
    ) -> Result<Region, MemoryError> {
        let Description { guest, user, size, offset } = *description;
        let wraps = || MemoryError::Wraps { guest, size, offset };
        let end = offset.checked_add(size).filter(|end| *end > offset).ok_or_else(wraps)?;
        if guest.checked_add(size).is_none() || user.checked_add(size).is_none() {
            return Err(wraps());
        }
        // Before anything else is asked of it.
        let is_domain = giver != Giver::FrontEnd && is_vduse_domain(file.as_fd());
        if !is_domain && !is_memory(file.as_fd()) {
            return Err(MemoryError::NotMemory { guest });
        }
        let failed = |source| MemoryError::NotMapped { guest, source };
        let metadata = file.metadata().map_err(failed)?;
        let len = metadata.len();
        // A domain has pages at the addresses of its regions, and no length.
        if len < end && !is_domain {
            return Err(MemoryError::BeyondFile { guest, end, len });
        }
        // In whole pages of the file, which may be huge (`st_blksize` is their size): no part of one is mapped.
        let page = metadata.blksize().max(1);
        let first = offset - offset % page;
        let whole = end.checked_next_multiple_of(page).ok_or_else(wraps)? - first;
        let asked = taken.saturating_add(whole);
        if asked > limit.bytes {
            return Err(MemoryError::TooMuch { asked, most: limit.bytes });
        }
        let whole = usize::try_from(whole).ok().and_then(NonZeroUsize::new).ok_or_else(wraps)?;
        let skip = usize::try_from(offset - first).map_err(|_| wraps())?;
        let first = i64::try_from(first).map_err(|_| wraps())?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let sharing = match giver {
            Giver::FrontEnd | Giver::Kernel(Rights::Both) => MapFlags::MAP_SHARED,
            Giver::Kernel(Rights::Read) => MapFlags::MAP_PRIVATE,
        };
        let flags = sharing | MapFlags::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that is there.
        let start = unsafe { mmap(None, whole, protection, flags, file.as_fd(), first) };
        let start: NonNull<u8> = start.map_err(|errno| failed(errno.into()))?.cast();
        let watched = Some(Watched::new(start.addr().get(), whole.get()));
        let mapping = Arc::new(Mapping { start, len: whole, free: unmap, watched });
        Ok(Region { guest, user, size, skip, mapping })
    }

    /// The bytes from `distance` on, at most `len` of them.
    fn span(&self, distance: u64, len: u32) -> Option<Span> {
        let left = self.size.checked_sub(distance).filter(|left| *left > 0)?;
        let len = u32::try_from(left).map_or(len, |left| left.min(len));
        // `distance` < `size`, and `skip` + `size` is at most the mapping's length.
        let at = self.skip.checked_add(usize::try_from(distance).ok()?)?;
        // SAFETY: `at` is below the mapping's length.
        Some(Span { start: unsafe { self.mapping.start.add(at) }, len })
    }
}

/// The memory of one guest. A copy is the same memory.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// By address, without overlap.
    regions: Arc<[Region]>,
    /// What the guest's addresses go through first, when it has an IOMMU.
    view: Option<View>,
    /// The largest region, to be tried first; of no size where addresses are translated.
    main: Main,
}

/// A region with all that is needed to find an address in it. It is as good as its [`Memory`] lasts.
#[derive(Clone, Copy, Debug)]
pub struct Main {
    guest: u64,
    size: u64,
    start: NonNull<u8>,
}

// SAFETY: it is memory that others write to in any case; `Memory` keeps it mapped.
unsafe impl Send for Main {}
// SAFETY: as above.
unsafe impl Sync for Main {}

impl Default for Main {
    fn default() -> Main {
        Main { guest: 0, size: 0, start: NonNull::dangling() }
    }
}

impl Main {
    fn of(regions: &[Region]) -> Main {
        let largest = regions.iter().max_by_key(|region| region.size);
        let main = largest.and_then(|region| {
            let start = region.span(0, 1)?.start;
            Some(Main { guest: region.guest, size: region.size, start })
        });
        main.unwrap_or_default()
    }

    #[inline]
    fn span(&self, at: u64, len: u32) -> Option<Span> {
        let distance = at.wrapping_sub(self.guest);
        let left = self.size.checked_sub(distance)?;
        // SAFETY: `distance` is at most the region's size, which is mapped from `start` on.
        (left >= u64::from(len)).then(|| Span { start: unsafe { self.start.add(distance as usize) }, len })
    }

    /// The `len` bytes at the guest's address `at`, when it is as simple as that: all of them here, and some.
    #[inline(always)]
    pub fn whole(&self, at: u64, len: u32) -> Option<Span> {
        self.span(at, len).filter(|_| len > 0)
    }
}

impl Memory {
    /// Maps what a front end has described, and nothing else.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] when there are more regions or bytes than `limit`, regions wrap or overlap, one is longer than its file,
    /// or the kernel does not map it. Nothing stays mapped then.
    pub fn map(parts: &[(Description, File)], limit: Limit) -> Result<Memory, MemoryError> {
        if parts.len() > limit.regions {
            return Err(MemoryError::TooMany { regions: parts.len(), most: limit.regions });
        }
        // What they say is known before the first of them is mapped.
        let sizes = parts.iter().filter(|(region, _)| region.offset.checked_add(region.size).is_some());
        let asked = sizes.fold(0_u64, |all, (region, _)| all.saturating_add(region.size));
        if asked > limit.bytes {
            return Err(MemoryError::TooMuch { asked, most: limit.bytes });
        }
        let mut taken = 0;
        let regions = parts.iter().map(|(description, file)| {
            let region = Region::map(description, file, Giver::FrontEnd, taken, limit)?;
            taken += region.mapping.len.get() as u64;
            Ok(region)
        });
        Memory::of(regions.collect::<Result<_, _>>()?)
    }

    /// Maps what the kernel gives a VDUSE device, whose addresses are the driver's.
    ///
    /// # Errors
    ///
    /// As [`map`](Memory::map), but that a file may be of the kernel's own bounce buffers.
    pub fn of_kernel(parts: &[(Description, File, Rights)], limit: Limit) -> Result<Memory, MemoryError> {
        if parts.len() > limit.regions {
            return Err(MemoryError::TooMany { regions: parts.len(), most: limit.regions });
        }
        let mut taken = 0;
        let regions = parts.iter().map(|(description, file, rights)| {
            let region = Region::map(description, file, Giver::Kernel(*rights), taken, limit)?;
            taken += region.mapping.len.get() as u64;
            Ok(region)
        });
        Memory::of(regions.collect::<Result<_, _>>()?)
    }

    /// With a region more.
    ///
    /// # Errors
    ///
    /// As [`map`](Memory::map), for all regions together.
    pub fn with(&self, description: &Description, file: &File, limit: Limit) -> Result<Memory, MemoryError> {
        let regions = self.regions.len() + 1;
        if regions > limit.regions {
            return Err(MemoryError::TooMany { regions, most: limit.regions });
        }
        let more = Region::map(description, file, Giver::FrontEnd, self.mapped(), limit)?;
        Memory::of(self.regions.iter().cloned().chain([more]).collect())
    }

    /// Bytes that are mapped for it.
    pub fn mapped(&self) -> u64 {
        mapped(&self.regions)
    }

    /// Without the region that begins at `guest` and has `size` bytes.
    pub fn without(&self, guest: u64, size: u64) -> Option<Memory> {
        let is_it = |region: &Region| region.guest == guest && region.size == size;
        let others = || self.regions.iter().filter(|region| !is_it(region)).cloned();
        self.regions.iter().any(is_it).then(|| Memory::made_of(others().collect()))
    }

    fn of(mut regions: Vec<Region>) -> Result<Memory, MemoryError> {
        regions.sort_by_key(|region| region.guest);
        // Neither sum wraps: `Region::map` has seen to it.
        let apart = |a: &Region, b: &Region| a.guest + a.size <= b.guest;
        for pair in regions.windows(2) {
            if let [first, second] = pair
                && !apart(first, second)
            {
                return Err(MemoryError::Overlap { first: first.guest, second: second.guest });
            }
        }
        Ok(Memory::made_of(regions))
    }

    /// Of regions in their order, without overlap.
    fn made_of(regions: Vec<Region>) -> Memory {
        Memory { main: Main::of(&regions), regions: regions.into(), view: None }
    }

    /// The same memory as a guest with an IOMMU sees it: all addresses, also those of rings, are translated first.
    pub fn through(&self, view: View) -> Memory {
        Memory { view: Some(view), main: Main::default(), ..self.clone() }
    }

    /// The last address of the guest's that is in it.
    pub fn last(&self) -> Option<u64> {
        // None is empty, and none wraps.
        self.regions.last().map(|region| region.guest + (region.size - 1))
    }

    /// Where it is, whatever stands in front of it.
    pub fn places(&self) -> Places {
        Places(Arc::clone(&self.regions))
    }

    /// Whether a part of it was taken away: its file was made shorter, or there was no huge page for it.
    pub fn is_lost(&self) -> bool {
        is_lost(&self.regions)
    }

    /// Whether addresses are translated.
    #[inline]
    pub fn is_translated(&self) -> bool {
        self.view.is_some()
    }

    /// Replaces the translations, where there are some.
    pub fn set_table(&mut self, table: &Arc<Table>) {
        if let Some(view) = &mut self.view {
            view.set_table(Arc::clone(table));
        }
    }

    /// Whether an address was not found since the last call only because its translation is not known yet.
    #[cold]
    pub fn take_missed(&self) -> bool {
        self.view.as_ref().is_some_and(View::take_missed)
    }

    /// The bytes at the guest's address `at`, at most `len`: fewer where a region or a translation ends.
    #[inline]
    pub fn guest(&self, at: u64, len: u32) -> Option<Span> {
        // Guests have one large region, and then some small ones.
        self.main.span(at, len).or_else(|| self.elsewhere(at, len))
    }

    /// The largest region; of no size where addresses are translated.
    #[inline]
    pub fn main(&self) -> Main {
        self.main
    }

    /// The same for what is not whole in the largest region.
    fn elsewhere(&self, at: u64, len: u32) -> Option<Span> {
        if let Some(view) = &self.view {
            return self.translated(view, at, len, view.access());
        }
        self.regions.iter().find_map(|region| region.span(at.checked_sub(region.guest)?, len))
    }

    /// As [`Memory::guest`], to be read whatever the ring does with its buffers: a table of descriptors.
    fn readable(&self, at: u64, len: u32) -> Option<Span> {
        match &self.view {
            Some(view) => self.translated(view, at, len, Access::READ),
            None => self.guest(at, len),
        }
    }

    #[inline(never)]
    fn translated(&self, view: &View, at: u64, len: u32, access: Access) -> Option<Span> {
        let Found::At(user, behind) = view.find(at, access) else { return None };
        self.front(user, u32::try_from(behind).map_or(len, |behind| len.min(behind.saturating_add(1))))
    }

    /// The bytes at the front end's own address `at`, at most `len`.
    fn front(&self, at: u64, len: u32) -> Option<Span> {
        self.regions.iter().find_map(|region| region.span(at.checked_sub(region.user)?, len))
    }

    /// Whether all that lies from `at` on is in the memory, as the front end has it.
    pub fn has(&self, mut at: u64, mut len: u64) -> bool {
        while len > 0 {
            let Some(span) = self.front(at, u32::try_from(len).unwrap_or(u32::MAX)) else { return false };
            // Neither wraps: a region does not.
            at += u64::from(span.len);
            len -= u64::from(span.len);
        }
        true
    }

    /// `len` bytes of a ring that lie together here. `at` is the front end's own address, or, when addresses are translated, the
    /// guest's; it must be a multiple of `alignment`.
    pub fn ring(&self, at: u64, len: usize, alignment: usize) -> Option<NonNull<u8>> {
        let len = u32::try_from(len).ok()?;
        let first = match &self.view {
            Some(view) => self.translated(view, at, len, Access::BOTH)?,
            None => self.front(at, len)?,
        };
        let mut have = first.len;
        // Pages that the guest sees together may be apart here.
        while let Some(view) = &self.view
            && have < len
        {
            let next = self.translated(view, at.checked_add(u64::from(have))?, len - have, Access::BOTH)?;
            // SAFETY: it is at most one behind a mapping.
            if unsafe { first.start.add(have as usize) } != next.start {
                return None;
            }
            have += next.len;
        }
        (have == len && first.start.addr().get().is_multiple_of(alignment)).then_some(first.start)
    }
}

/// Whether it is shared memory (memfd, tmpfs) or huge pages: those alone have seals (`mm/memfd.c`), which the kernel says without asking
/// whoever serves the file. A fault in them waits for nobody.
pub fn is_memory(fd: BorrowedFd<'_>) -> bool {
    fcntl(fd, FcntlArg::F_GET_SEALS).is_ok()
}

/// Whether it is the file of a VDUSE device's own pages (`drivers/vdpa/vdpa_user/iova_domain.c`, `vduse_domain_create`). The kernel makes
/// its name, and nobody else can give a file one like it: a path begins with `/`.
fn is_vduse_domain(fd: BorrowedFd<'_>) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    link.is_ok_and(|link| link.as_os_str() == "anon_inode:[vduse-domain]")
}

fn mapped(regions: &[Region]) -> u64 {
    regions.iter().map(|region| region.mapping.len.get() as u64).sum()
}

fn is_lost(regions: &[Region]) -> bool {
    let lost = |region: &Region| region.mapping.watched.as_ref().is_some_and(Watched::is_lost);
    regions.iter().any(lost)
}

/// Where a guest's memory is here, to find its addresses by that. It stays mapped for as long as this lives.
#[derive(Clone, Debug)]
pub struct Places(Arc<[Region]>);

impl Places {
    /// The guest's address of a byte that is mapped here, as the memory table has it, and how many of its region begin there.
    pub fn physical(&self, at: NonNull<u8>) -> Option<(u64, usize)> {
        self.0.iter().find_map(|region| {
            let first = region.mapping.start.addr().get() + region.skip;
            let distance = at.addr().get().checked_sub(first)?;
            let left = usize::try_from(region.size).ok()?.checked_sub(distance).filter(|left| *left > 0)?;
            Some((region.guest + distance as u64, left))
        })
    }

    /// Bytes that are mapped for it, as [`Memory::mapped`] counts them.
    pub fn mapped(&self) -> u64 {
        mapped(&self.0)
    }

    /// Whether a part of it was taken away, as [`Memory::is_lost`] says.
    pub fn is_lost(&self) -> bool {
        is_lost(&self.0)
    }
}

/// Reads the bytes at the guest's address `at`, once. `None` when they are not all there.
pub fn read(memory: &Memory, mut at: u64, into: &mut [u8]) -> Option<()> {
    let mut left = into;
    while !left.is_empty() {
        let span = memory.readable(at, u32::try_from(left.len()).unwrap_or(u32::MAX))?;
        let (part, rest) = left.split_at_mut_checked(span.len as usize)?;
        // SAFETY: the span is `part`'s length of mapped memory; a guest that writes to it meanwhile gets a mixture read.
        unsafe { span.start.copy_to_nonoverlapping(NonNull::from(&mut *part).cast(), part.len()) };
        at = at.checked_add(u64::from(span.len))?;
        left = rest;
    }
    Some(())
}

/// Memory of our own in a guest's place: where there are no files (Miri), and where whoever reads a byte too much is to be
/// caught (AddressSanitizer).
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod owned {
    use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

    use super::*;

    fn layout(len: NonZeroUsize) -> Layout {
        // As a mapping has it, so that rings may lie anywhere in it.
        Layout::from_size_align(len.get(), 4096).expect("it is smaller than the address space")
    }

    unsafe fn free(start: NonNull<u8>, len: NonZeroUsize) {
        // SAFETY: the caller says that `memory` has made it.
        unsafe { dealloc(start.as_ptr(), layout(len)) };
    }

    /// Regions of nothing but zeroes. Their offsets are passed over.
    pub fn memory(parts: &[Description]) -> Result<Memory, MemoryError> {
        let regions = parts.iter().map(|description| {
            let Description { guest, user, size, offset } = *description;
            let wraps = || MemoryError::Wraps { guest, size, offset };
            let len = usize::try_from(size).ok().and_then(NonZeroUsize::new).ok_or_else(wraps)?;
            let layout = layout(len);
            // SAFETY: it has a size.
            let start =
                NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
            Ok(Region {
                guest,
                user,
                size,
                skip: 0,
                mapping: Arc::new(Mapping { start, len, free, watched: None }),
            })
        });
        Memory::of(regions.collect::<Result<_, _>>()?)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;

    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    /// A file of this many bytes that count up.
    pub fn file(len: usize) -> File {
        let mut file = File::from(memfd_create("guest", MFdFlags::empty()).unwrap());
        let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
        file.write_all(&bytes).unwrap();
        file
    }

    fn described(guest: u64, size: u64, offset: u64) -> Description {
        Description { guest, user: guest + 0x7000_0000_0000, size, offset }
    }

    #[test]
    fn an_address_is_found_with_as_much_as_its_region_has() {
        let parts =
            [(described(0x1_0000, 0x2000, 0x1000), file(0x3000)), (described(0, 0x1000, 0), file(0x1000))];
        let memory = Memory::map(&parts, Limit::DEFAULT).unwrap();
        let span = memory.guest(0x1_1ffe, 100).unwrap();
        assert_eq!(span.len, 2);
        // SAFETY: the span is two bytes of the file, which counts up.
        assert_eq!(unsafe { span.start.read() }, 0x2ffe_u32 as u8);
        assert_eq!(memory.guest(0, 100).unwrap().len, 100);
        for nowhere in [0x1000, 0xffff, 0x1_2000, u64::MAX] {
            assert!(memory.guest(nowhere, 1).is_none(), "{nowhere:#x}");
        }
        assert!(memory.ring(0x7000_0001_0000, 0x2000, 16).is_some());
        assert!(memory.ring(0x7000_0001_0008, 0x10, 16).is_none(), "not aligned");
        assert!(memory.ring(0x7000_0001_0010, 0x2000, 16).is_none(), "too long");
    }

    #[test]
    fn what_the_kernel_gives_to_be_read_alone_does_not_change_by_what_is_written() {
        let file = file(0x2000);
        let region = |at| Description { guest: at, user: at, size: 0x1000, offset: at };
        let parts = [
            (region(0), file.try_clone().unwrap(), Rights::Read),
            (region(0x1000), file.try_clone().unwrap(), Rights::Both),
        ];
        let memory = Memory::of_kernel(&parts, Limit::DEFAULT).unwrap();
        for at in [0x10, 0x1010] {
            let span = memory.guest(at, 1).unwrap();
            // SAFETY: the span is a byte of the mapping.
            unsafe {
                assert_eq!(span.start.read(), 0x10);
                span.start.write(0xee);
            }
        }
        let mut bytes = [0; 2];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes[..1], 0x10).unwrap();
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes[1..], 0x1010).unwrap();
        assert_eq!(bytes, [0x10, 0xee]);
        let disk = tempfile::tempfile_in("/proc/self/cwd").unwrap();
        let parts = [(region(0), disk, Rights::Both)];
        assert!(matches!(
            Memory::of_kernel(&parts, Limit::DEFAULT),
            Err(MemoryError::NotMemory { .. } | MemoryError::BeyondFile { .. })
        ));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let one = |description| Memory::map(&[(description, file(0x1000))], Limit::DEFAULT);
        assert!(matches!(one(described(0, 0, 0)), Err(MemoryError::Wraps { .. })));
        assert!(matches!(one(described(0, u64::MAX, 1)), Err(MemoryError::Wraps { .. })));
        assert!(matches!(one(described(0x1000, 0x1001, 0)), Err(MemoryError::BeyondFile { .. })));
        let wrapping = Description { guest: u64::MAX - 10, user: 0, size: 0x1000, offset: 0 };
        assert!(matches!(one(wrapping), Err(MemoryError::Wraps { .. })));
        let two = [(described(0, 0x1000, 0), file(0x1000)), (described(0xfff, 0x1000, 0), file(0x1000))];
        assert!(matches!(Memory::map(&two, Limit::DEFAULT), Err(MemoryError::Overlap { .. })));
    }

    #[test]
    fn only_what_is_given_is_mapped_and_counted() {
        let sparse = |len: u64| {
            let file = File::from(memfd_create("sparse", MFdFlags::empty()).unwrap());
            file.set_len(len).unwrap();
            file
        };
        let limit = Limit { bytes: 0x3000, regions: 3 };
        // Far inside a file of 32 TiB.
        let at = |guest, offset, size| (described(guest, size, offset), sparse(1 << 45));
        let far = (1 << 44) + 0x800;
        let memory = Memory::map(&[at(0, far, 0x1000)], limit).unwrap();
        assert_eq!(memory.mapped(), 0x2000, "it begins and ends within pages");
        let start = memory.guest(0, 1).unwrap().start;
        assert_eq!(start.addr().get() % 4096, 0x800);
        // SAFETY: the region has as many bytes.
        unsafe { start.add(0xfff).write(7) };
        let too_much = memory.with(&described(0x1000, 0x1001, 0), &sparse(1 << 45), limit).unwrap_err();
        assert!(matches!(too_much, MemoryError::TooMuch { asked: 0x4000, most: 0x3000 }), "{too_much}");
        assert_eq!(
            too_much.to_string(),
            "its front end would share 16 KiB of memory, and `max_memory` of this port leaves 12 KiB for that: set \
             that key (in MiB) higher in the switch's configuration for a guest as large"
        );
        let more = memory.with(&described(0x1000, 0x1000, 0), &sparse(0x1000), limit).unwrap();
        assert_eq!(more.mapped(), 0x3000);
        assert!(more.with(&described(0x2000, 1, 0), &sparse(0x1000), limit).is_err());
        for parts in [
            vec![at(0, 0, 1 << 45)],
            vec![at(0, 0, 0x2000), at(0x2000, 0, 0x1001)],
            vec![at(0, 0, u64::MAX >> 1), at(1 << 63, 0, u64::MAX >> 1)],
        ] {
            assert!(matches!(Memory::map(&parts, limit), Err(MemoryError::TooMuch { .. })));
        }
        let many: Vec<_> = (0..4).map(|at| (described(at << 12, 1, 0), sparse(1))).collect();
        assert!(matches!(Memory::map(&many, limit), Err(MemoryError::TooMany { regions: 4, most: 3 })));
        assert_eq!([size(1), size(1536), size(3 << 40)], ["1 bytes", "1.5 KiB", "3 TiB"]);
    }

    #[test]
    fn regions_come_and_go() {
        let memory = Memory::default().with(&described(0, 0x1000, 0), &file(0x1000), Limit::DEFAULT).unwrap();
        let more = memory.with(&described(0x1000, 0x1000, 0), &file(0x1000), Limit::DEFAULT).unwrap();
        assert!(memory.guest(0x1000, 1).is_none());
        assert!(more.guest(0x1000, 1).is_some());
        let less = more.without(0, 0x1000).unwrap();
        assert!(less.guest(0, 1).is_none() && less.guest(0x1000, 1).is_some());
        assert!(less.without(0, 0x1000).is_none());
    }
}
