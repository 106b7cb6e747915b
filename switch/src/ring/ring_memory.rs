//! What a ring of either format stands on.

use std::sync::Arc;

use crate::{dirty::Marking, iotlb::Table, memory::Memory};

/// The memory of a ring and of its buffers, and what is known of it.
#[derive(Debug)]
pub struct RingMemory {
    /// Keeps what the ring's pointers point into.
    pub memory: Memory,
    /// Whether the last look ended at a chain whose addresses are not known yet.
    pub waits: bool,
    /// The marks that are made of what is written.
    pub marks: Marking,
}

impl RingMemory {
    /// Nobody wants to know yet what is written.
    pub fn new(memory: &Memory) -> RingMemory {
        RingMemory { memory: memory.clone(), waits: false, marks: None }
    }

    /// Replaces the translations; whoever waits for one looks again.
    pub fn set_table(&mut self, table: &Arc<Table>) {
        self.memory.set_table(table);
        self.waits = false;
    }
}
