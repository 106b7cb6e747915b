//! How much memory may be mapped, and why some was not.

use thiserror::Error;

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
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let unit = (bytes.max(1).ilog2() as usize / 10).min(UNITS.len() - 1);
    let value = bytes as f64 / (1_u64 << (10 * unit)) as f64;
    // In tenths, where there are some.
    let text = format!("{value:.1}");
    format!("{} {}", text.strip_suffix(".0").unwrap_or(&text), UNITS.get(unit).copied().unwrap_or_default())
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
