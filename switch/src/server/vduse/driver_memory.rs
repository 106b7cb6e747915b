//! The memory of a device's driver, kept mapped by the device's own thread for as long as the worker has a ring in it. The worker, which may
//! be the last but one to let go of it, never unmaps it: that takes a while.

use std::fs::File;

use crate::memory::{Description, Limit, Memory, MemoryError, Rights};

/// What the kernel has given, and where it is mapped.
#[derive(Debug)]
pub(super) struct DriverMemory {
    regions: Vec<(Description, Rights)>,
    pub memory: Memory,
}

impl DriverMemory {
    /// Memory for one ring beside that of the `others`, of the same device: the same mapping, where it is the same memory.
    ///
    /// # Errors
    /// As [`Memory::of_kernel`]. What others have counts.
    pub fn map<'a>(
        parts: &[(Description, File, Rights)],
        others: impl Iterator<Item = &'a DriverMemory>,
        limit: Limit,
    ) -> Result<DriverMemory, MemoryError> {
        let regions: Vec<_> = parts.iter().map(|(region, _, rights)| (*region, *rights)).collect();
        let mut taken = 0;
        for other in others {
            // Who has it given away takes all rings back first, so that these are the same files.
            if other.regions == regions && !other.memory.is_lost() {
                return Ok(DriverMemory { regions, memory: other.memory.clone() });
            }
            taken += other.memory.mapped();
        }
        let memory = Memory::of_kernel(parts, limit.beside(taken))?;
        Ok(DriverMemory { regions, memory })
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    const NAME: &str = "penstock-test-driver-memory";

    /// How often it is mapped here.
    fn mappings() -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.contains(NAME)).count()
    }

    #[test]
    fn both_rings_have_one_mapping_which_the_last_of_both_takes_away() {
        let file = File::from(memfd_create(NAME, MFdFlags::MFD_CLOEXEC).unwrap());
        file.set_len(0x2000).unwrap();
        let part = |size| {
            let region = Description { guest: 0, user: 0, size, offset: 0 };
            (region, file.try_clone().unwrap(), Rights::Both)
        };
        // For one of them.
        let limit = Limit { bytes: 0x2000, ..Limit::DEFAULT };
        let first = DriverMemory::map(&[part(0x2000)], [].iter(), limit).unwrap();
        let second = DriverMemory::map(&[part(0x2000)], [&first].into_iter(), limit).unwrap();
        assert_eq!(mappings(), 1);
        // What is another one counts beside the first.
        let other = DriverMemory::map(&[part(0x1000)], [&first].into_iter(), limit);
        assert!(matches!(other, Err(MemoryError::TooMuch { .. })), "{other:?}");
        // Who has a ring in it takes nothing away.
        let with_worker = second.memory.clone();
        drop((first, with_worker));
        assert_eq!(mappings(), 1);
        drop(second);
        assert_eq!(mappings(), 0);
    }
}
