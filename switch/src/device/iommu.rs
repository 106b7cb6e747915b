//! A device whose guest has an IOMMU: what its rings see, and what the front end says of it.

use std::sync::Arc;

use vhost::vhost_user::{Error, Result};

use super::Device;
use crate::{
    engine::Engine,
    features::{ACCESS_PLATFORM, PACKED},
    iotlb::{Access, IotlbMessage, View},
    memory::Memory,
};

impl Device {
    /// The memory as ring `index` sees it.
    pub(super) fn memory_of(&self, index: u32) -> Memory {
        if self.features & ACCESS_PLATFORM == 0 {
            return self.memory.clone();
        }
        let access = if index.is_multiple_of(2) { Access::WRITE } else { Access::READ };
        self.memory.through(View::new(Arc::clone(&self.table), Arc::clone(&self.questions), access))
    }

    /// Takes note of what a front end says of translations. When it returns, the data path goes by it.
    pub(super) fn told(&mut self, told: IotlbMessage) -> Result<()> {
        if self.features & ACCESS_PLATFORM == 0 {
            return Err(Error::InvalidOperation("no IOMMU was negotiated"));
        }
        match told {
            IotlbMessage::Update(range) => {
                // One byte less than its size; neither sum wraps, as was seen when it was read.
                if !self.memory.has(range.user, range.last - range.first + 1) {
                    return Err(Error::InvalidParam);
                }
                self.table = Arc::new(self.table.with(range));
                self.tables_changed()?;
                self.questions.answered(&self.table, range.first, range.last);
            }
            IotlbMessage::Invalidate(first, last) => {
                let packed = self.features & PACKED != 0;
                let lost = (0..).zip(&self.rings).filter(|(_, ring)| ring.touches(packed, first, last));
                let lost: Vec<u32> = lost.map(|(index, _)| index).collect();
                // Guests that take everything away do it in dozens of messages, most of them for nothing.
                if lost.is_empty() && !self.table.touches(first, last) {
                    return Ok(());
                }
                self.table = Arc::new(self.table.without(first, last));
                for index in lost {
                    self.stop(index)?;
                }
                self.tables_changed()?;
            }
        }
        // Rings that waited to be found, or were lost.
        (0..self.rings.len() as u32).try_for_each(|index| self.start(index))
    }

    /// Has all rings that run go by the translations that are known now.
    fn tables_changed(&self) -> Result<()> {
        let (port, table) = (self.port, Arc::clone(&self.table));
        let changed = self.handle.ask_each(|_| {
            let table = Arc::clone(&table);
            move |engine: &mut Engine| {
                let pairs = engine.port_mut(port).map(|port| port.pairs.iter_mut());
                for pair in pairs.into_iter().flatten() {
                    if let Some(receiving) = &mut pair.to_guest {
                        receiving.set_table(&table);
                    }
                    if let Some(sending) = &mut pair.from_guest {
                        sending.ring.set_table(&table);
                    }
                }
                // What waited is looked at soon.
                engine.wake_all();
            }
        });
        changed.map(drop).ok_or(Error::BackendInternalError)
    }
}
