//! A device whose front end takes its guest elsewhere: what was written to its memory is marked meanwhile.

use std::{fs::File, sync::Arc};

use vhost::vhost_user::{Error, Result};

use super::Device;
use crate::{
    dirty::{self, Log, Marking, Marks},
    engine::Engine,
    features::{ACCESS_PLATFORM, LOG_ALL},
    inflight::Inflight,
};

impl Device {
    /// The marks that ring `index` makes.
    pub(super) fn marks_of(&self, index: u32) -> Marking {
        let log = self.log.clone()?;
        let at = self.rings.get(index as usize)?.marked_at;
        let buffers = self.features & LOG_ALL != 0;
        let ring = at.map(|at| match self.features & ACCESS_PLATFORM {
            0 => dirty::Device::At(at),
            _ => dirty::Device::Found,
        });
        let memory = self.memory.places();
        (buffers || ring.is_some()).then(|| Arc::new(Marks { log, memory, buffers, ring }))
    }

    /// Takes other bits than before. When it returns, nothing is marked in those any more.
    pub(super) fn take_log(&mut self, file: File, offset: u64, size: u64) -> Result<()> {
        let others = self.memory.mapped() + self.inflight.as_ref().map_or(0, Inflight::mapped);
        let limit = self.limit()?.beside(others);
        let log = Log::map(file, offset, size, limit).map_err(|error| self.refuse(&error))?;
        // What has no bit would be lost. Memory that comes later is the front end's business: it may have them ready before, or
        // mean to send others.
        if !log.covers(&self.memory) {
            return Err(Error::InvalidParam);
        }
        let before = self.log.replace(log);
        let changed = self.marks_changed();
        // Its memory is given back here, and not by the worker.
        drop(before);
        changed
    }

    /// Has all rings that run make the marks that are wanted now. They go on meanwhile.
    pub(super) fn marks_changed(&self) -> Result<()> {
        let all: Vec<Marking> = (0..self.rings.len() as u32).map(|index| self.marks_of(index)).collect();
        let port = self.port;
        let changed = self.handle.ask_each(|_| {
            let all = all.clone();
            move |engine: &mut Engine| {
                let pairs = engine.port_mut(port).map(|port| port.pairs.iter_mut());
                for (pair, marks) in pairs.into_iter().flatten().zip(all.chunks(2)) {
                    if let (Some(receiving), Some(marks)) = (&mut pair.to_guest, marks.first()) {
                        receiving.set_marks(marks.clone());
                    }
                    if let (Some(sending), Some(marks)) = (&mut pair.from_guest, marks.get(1)) {
                        sending.ring.set_marks(marks.clone());
                    }
                }
            }
        });
        changed.map(drop).ok_or(Error::BackendInternalError)
    }
}
