//! The formats of guests' rings that are measured.

/// How a guest and its switch hand over buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Split rings, mergeable buffers.
    Split,
    /// Packed rings, mergeable buffers.
    Packed,
    /// Packed rings, each frame in one buffer. `dpdk-testpmd` reads and writes these with vector instructions where the processor has
    /// AVX-512.
    PackedSingle,
}

impl Format {
    /// All, in the order of the table.
    pub const ALL: [Format; 3] = [Format::Split, Format::Packed, Format::PackedSingle];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Format::Split => "split",
            Format::Packed => "packed",
            Format::PackedSingle => "packed single-buffer",
        }
    }
}
