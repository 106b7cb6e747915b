//! Memory of our own in a guest's place: where there are no files (Miri), and where whoever reads a byte too much is to be caught
//! (AddressSanitizer).

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    num::NonZeroUsize,
    ptr::NonNull,
    sync::Arc,
};

use super::{
    Description, Memory, MemoryError,
    region::{Mapping, Region},
};

fn layout(len: NonZeroUsize) -> Layout {
    // As a mapping has it, so that rings may lie anywhere in it.
    Layout::from_size_align(len.get(), 4096).expect("it is smaller than the address space")
}

unsafe fn free(start: NonNull<u8>, len: NonZeroUsize) {
    // SAFETY: the caller says that `memory` has made it.
    unsafe { dealloc(start.as_ptr(), layout(len)) };
}

/// Regions of nothing but zeroes. Their offsets are passed over.
///
/// # Errors
///
/// [`MemoryError::Wraps`] for a region without a size, and what [`Memory::of`] says of regions that do not go together.
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
