//! A port as a vhost-user device: what a front end says of its guest's memory and rings, carried to the worker.
//!
//! Protocol: QEMU, `docs/interop/vhost-user.rst`. The messages themselves are the `vhost` crate's.

use std::{
    fs::File,
    os::fd::OwnedFd,
    sync::{Arc, Mutex},
};

use vhost::{
    VhostUserMemoryRegionBase,
    vhost_user::{
        BackendReqHandler, Error, GpuBackend, Result, VhostUserBackendReqHandlerMut,
        VhostUserProtocolFeatures,
        message::{
            VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
            VhostUserLog, VhostUserMemoryRegion, VhostUserShMemConfig, VhostUserSharedMsg,
            VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
        },
    },
};

use crate::{
    engine::{Pair, Receiving, Sending},
    features::{self, EVENT_INDEX, PACKED},
    memory::{Description, MOST_REGIONS, Memory},
    ring::{Layout, Packed, Ring, Split},
    table::PortId,
    worker::{Handle, Kick},
};

/// Pairs of rings that a guest may have.
const MOST_PAIRS: usize = 16;

/// A ring as the front end describes it.
#[derive(Debug, Default)]
struct Described {
    entries: u16,
    descriptors: u64,
    driver: u64,
    device: u64,
    addressed: bool,
    base: u32,
    call: Option<OwnedFd>,
    /// What wakes the worker; `Some(None)`: the driver says that it never kicks.
    kick: Option<Option<Kick>>,
    enabled: bool,
    /// Whether it is with the worker.
    runs: bool,
}

/// The device of one connection.
#[derive(Debug)]
pub struct Device {
    handle: Handle,
    port: PortId,
    features: u64,
    memory: Memory,
    rings: Vec<Described>,
}

impl Device {
    /// A device for a port that nobody is connected to.
    pub fn new(handle: Handle, port: PortId) -> Device {
        Device { handle, port, features: 0, memory: Memory::default(), rings: Vec::new() }
    }

    fn ring(&mut self, index: u32) -> Result<&mut Described> {
        let index = usize::try_from(index).map_err(|_| Error::InvalidParam)?;
        if index >= MOST_PAIRS * 2 {
            return Err(Error::InvalidParam);
        }
        if self.rings.len() <= index {
            self.rings.resize_with(index + 1, Described::default);
        }
        self.rings.get_mut(index).ok_or(Error::InvalidParam)
    }

    /// Has the worker serve ring `index`, as soon as everything is known of it.
    fn start(&mut self, index: u32) -> Result<()> {
        let negotiated = features::negotiated(self.features);
        let (packed, event_index) = (self.features & PACKED != 0, self.features & EVENT_INDEX != 0);
        // Without protocol features every ring is enabled from its start.
        let enabled = self.features & features::PROTOCOL == 0;
        let (memory, port) = (self.memory.clone(), self.port);
        let found = self.ring(index)?;
        if found.runs || !found.addressed || found.kick.is_none() || !(found.enabled || enabled) {
            return Ok(());
        }
        let layout = Layout {
            entries: found.entries,
            descriptors: found.descriptors,
            driver: found.driver,
            device: found.device,
            event_index,
        };
        let ring = match packed {
            true => Packed::new(&memory, &layout, found.base).map(Ring::Packed),
            false => Split::new(&memory, &layout, found.base).map(Ring::Split),
        };
        let mut ring = ring.map_err(|_| Error::InvalidParam)?;
        let call = found.call.as_ref().map(OwnedFd::try_clone).transpose().map_err(Error::SocketError)?;
        found.runs = true;
        let pair = (index / 2) as usize;
        let to_guest = index.is_multiple_of(2);
        let started = self.handle.ask(move |engine| {
            let Some(port) = engine.port_mut(port) else { return };
            port.negotiated = negotiated;
            if port.pairs.len() <= pair {
                port.pairs.resize_with(pair + 1, Pair::default);
            }
            // Empty buffers are looked for when there is something to put into them.
            ring.ask_for_kicks(false);
            if let Some(place) = port.pairs.get_mut(pair) {
                match to_guest {
                    true => place.to_guest = Some(Receiving::new(ring, call)),
                    false => place.from_guest = Some(Sending { ring, call }),
                }
            }
            engine.rings_changed();
        });
        started.ok_or(Error::BackendInternalError)
    }

    /// Takes ring `index` back from the worker.
    fn stop(&mut self, index: u32) -> Result<()> {
        let port = self.port;
        let found = self.ring(index)?;
        if !std::mem::take(&mut found.runs) {
            return Ok(());
        }
        let pair = (index / 2) as usize;
        let stopped = self.handle.ask(move |engine| {
            let pair = engine.port_mut(port)?.pairs.get_mut(pair)?;
            let ring = match index % 2 {
                0 => pair.to_guest.take()?.stop(),
                _ => pair.from_guest.take()?.ring,
            };
            let base = ring.base();
            engine.rings_changed();
            Some(base)
        });
        let base = stopped.ok_or(Error::BackendInternalError)?;
        if let Some(base) = base {
            self.ring(index)?.base = base;
        }
        Ok(())
    }

    /// Takes all rings back, has `change` done, and starts them again where they stood.
    fn while_stopped(&mut self, change: impl FnOnce(&mut Device) -> Result<()>) -> Result<()> {
        let all = 0..self.rings.len() as u32;
        for index in all.clone() {
            self.stop(index)?;
        }
        change(self)?;
        all.into_iter().try_for_each(|index| self.start(index))
    }

    /// Takes all rings back for good: the front end is gone.
    pub fn unplug(&mut self) {
        for index in 0..self.rings.len() as u32 {
            let _ = self.stop(index);
        }
        self.rings.clear();
        let port = self.port;
        self.handle.ask(move |engine| {
            if let Some(port) = engine.port_mut(port) {
                port.pairs.clear();
            }
            engine.rings_changed();
        });
    }
}

fn description(region: &VhostUserMemoryRegion) -> Description {
    Description {
        guest: region.guest_phys_addr,
        user: region.user_addr,
        size: region.memory_size,
        offset: region.mmap_offset,
    }
}

impl VhostUserBackendReqHandlerMut for Device {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.unplug();
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        self.unplug();
        self.features = 0;
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(features::OFFERED)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !features::OFFERED != 0 {
            return Err(Error::FeatureMismatch);
        }
        self.while_stopped(|device| {
            device.features = features;
            Ok(())
        })
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        let parts: Vec<(Description, File)> = regions.iter().map(description).zip(files).collect();
        let memory = Memory::map(&parts).map_err(|_| Error::InvalidParam)?;
        self.while_stopped(|device| {
            device.memory = memory;
            Ok(())
        })?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let entries = u16::try_from(num).map_err(|_| Error::InvalidParam)?;
        self.stop(index)?;
        self.ring(index)?.entries = entries;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        self.stop(index)?;
        let ring = self.ring(index)?;
        (ring.descriptors, ring.driver, ring.device) = (descriptor, available, used);
        ring.addressed = true;
        self.start(index)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.stop(index)?;
        self.ring(index)?.base = base;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.stop(index)?;
        let ring = self.ring(index)?;
        // It runs again only when it was kicked off again.
        ring.kick = None;
        Ok(VhostUserVringState::new(index, ring.base))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let index = u32::from(index);
        let handle = self.handle.clone();
        let kick = fd.map(|fd| Kick::new(&handle, fd.into())).transpose();
        let kick = kick.map_err(|errno| Error::SocketError(errno.into()))?;
        self.ring(index)?.kick = Some(kick);
        self.start(index)
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let index = u32::from(index);
        self.stop(index)?;
        self.ring(index)?.call = fd.map(OwnedFd::from);
        self.start(index)
    }

    fn set_vring_err(&mut self, _index: u8, _fd: Option<File>) -> Result<()> {
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
            | VhostUserProtocolFeatures::RESET_DEVICE)
    }

    fn set_protocol_features(&mut self, _: u64) -> Result<()> {
        // What each of them allows, the crate asks about itself.
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(MOST_PAIRS as u64 * 2)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.ring(index)?.enabled = enable;
        if enable { self.start(index) } else { self.stop(index) }
    }

    fn get_config(&mut self, _: u32, _: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        Err(Error::InvalidOperation("the front end has a network device's configuration"))
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        Err(Error::InvalidOperation("the front end has a network device's configuration"))
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        Err(Error::InvalidOperation("this is no graphics device"))
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidOperation("there are no shared objects"))
    }

    fn get_inflight_fd(&mut self, _: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        Err(Error::InvalidOperation("nothing is ever in flight"))
    }

    fn set_inflight_fd(&mut self, _: &VhostUserInflight, _: File) -> Result<()> {
        Err(Error::InvalidOperation("nothing is ever in flight"))
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(MOST_REGIONS as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        let memory = self.memory.with(&description(region), &file).map_err(|_| Error::InvalidParam)?;
        self.while_stopped(|device| {
            device.memory = memory;
            Ok(())
        })?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let memory = self.memory.without(region.guest_phys_addr, region.memory_size);
        let memory = memory.ok_or(Error::InvalidParam)?;
        self.while_stopped(|device| {
            device.memory = memory;
            Ok(())
        })
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        Err(Error::InvalidOperation("a port has no state to be moved"))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("a port has no state to be moved"))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Error::InvalidOperation("a port has no memory of its own"))
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        Err(Error::InvalidOperation("memory that is written to is not recorded"))
    }
}

/// Serves one front end until it is gone, or says what cannot be.
pub fn serve(stream: std::os::unix::net::UnixStream, handle: Handle, port: PortId) -> Error {
    let device = Arc::new(Mutex::new(Device::new(handle, port)));
    let mut requests = BackendReqHandler::from_stream(stream, Arc::clone(&device));
    loop {
        if let Err(error) = requests.handle_request() {
            device.lock().unwrap_or_else(std::sync::PoisonError::into_inner).unplug();
            return error;
        }
    }
}
