//! A part of a file that a guest has shared, mapped here.

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

use super::limit::{Limit, MemoryError};
use crate::sigbus::Watched;

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
pub(super) struct Mapping {
    pub(super) start: NonNull<u8>,
    pub(super) len: NonZeroUsize,
    /// How it is given back.
    pub(super) free: unsafe fn(NonNull<u8>, NonZeroUsize),
    /// Not watched any more before it is given back: its addresses may be somebody else's right after.
    pub(super) watched: Option<Watched>,
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

/// A region that is mapped here. A copy is the same memory.
#[derive(Clone, Debug)]
pub(super) struct Region {
    pub(super) guest: u64,
    pub(super) user: u64,
    pub(super) size: u64,
    /// Where its first byte is in the mapping.
    pub(super) skip: usize,
    pub(super) mapping: Arc<Mapping>,
}

/// Who has handed a region over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Giver {
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
    pub(super) fn map(
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

    /// Bytes that are mapped for it, in whole pages.
    pub(super) fn mapped(&self) -> u64 {
        self.mapping.len.get() as u64
    }

    /// Whether a part of it was taken away.
    pub(super) fn is_lost(&self) -> bool {
        self.mapping.watched.as_ref().is_some_and(Watched::is_lost)
    }

    /// The bytes from `distance` on, at most `len` of them.
    #[inline]
    pub(super) fn span(&self, distance: u64, len: u32) -> Option<Span> {
        let left = self.size.checked_sub(distance).filter(|left| *left > 0)?;
        let len = u32::try_from(left).map_or(len, |left| left.min(len));
        // `distance` < `size`, and `skip` + `size` is at most the mapping's length.
        let at = self.skip.checked_add(usize::try_from(distance).ok()?)?;
        // SAFETY: `at` is below the mapping's length.
        Some(Span { start: unsafe { self.mapping.start.add(at) }, len })
    }
}

/// Whether it is shared memory (memfd, tmpfs) or huge pages: those alone have seals (`mm/memfd.c`), which the kernel says without asking
/// whoever serves the file. A fault in them waits for nobody but who punches a hole just there.
pub fn is_memory(fd: BorrowedFd<'_>) -> bool {
    fcntl(fd, FcntlArg::F_GET_SEALS).is_ok()
}

/// Whether it is the file of a VDUSE device's own pages (`drivers/vdpa/vdpa_user/iova_domain.c`, `vduse_domain_create`). The kernel makes
/// its name, and nobody else can give a file one like it: a path begins with `/`.
fn is_vduse_domain(fd: BorrowedFd<'_>) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    link.is_ok_and(|link| link.as_os_str() == "anon_inode:[vduse-domain]")
}
