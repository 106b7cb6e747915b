//! The memory that a guest has shared: regions of files, mapped here.
//!
//! A guest may write to it at any time, also while it is read here. Bytes of frames are copied as they are found; what is
//! decided on is read once, into memory that is not shared.

mod limit;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod owned;
mod region;
#[cfg(test)]
pub(crate) mod tests;

use std::{fs::File, ptr::NonNull, sync::Arc};

use self::region::{Giver, Region};
pub use self::{
    limit::{Limit, MOST_REGIONS, MemoryError},
    region::{Description, Rights, Span, is_memory},
};
use crate::iotlb::{Access, Found, Table, View};

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
            taken += region.mapped();
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
            taken += region.mapped();
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

fn mapped(regions: &[Region]) -> u64 {
    regions.iter().map(Region::mapped).sum()
}

fn is_lost(regions: &[Region]) -> bool {
    regions.iter().any(Region::is_lost)
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
