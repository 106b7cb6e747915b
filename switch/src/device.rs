//! A port as a vhost-user device: what a front end says of its guest's memory and rings, carried to the worker.
//!
//! Protocol: QEMU, `docs/interop/vhost-user.rst`. The messages themselves are the `vhost` crate's, but for those of an IOMMU.

mod described;
mod descriptors;
mod iommu;
mod message;
mod migration;
mod session;

use std::{
    fs::File,
    os::{fd::AsFd, unix::net::UnixStream},
    sync::Arc,
};

use vhost::{
    VhostUserMemoryRegionBase,
    vhost_user::{
        Error, GpuBackend, Result, VhostUserBackendReqHandlerMut, VhostUserProtocolFeatures,
        message::{
            VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
            VhostUserLog, VhostUserMemoryRegion, VhostUserShMemConfig, VhostUserSharedMsg,
            VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
        },
    },
};

pub(crate) use self::descriptors::leave;
pub use self::session::{Ended, serve};
use self::{described::Described, message::Message};
use crate::{
    causes::chain,
    channel::Channel,
    dirty::Log,
    engine::{Engine, GivenRing},
    eventfd::{Eventfd, Notify},
    features::{self, EVENT_INDEX, IN_ORDER, LOG_ALL, PACKED},
    inflight::{self, Inflight},
    iotlb::{IotlbMessage, Questions, Table},
    memory::{Description, Limit, Memory},
    net::Mac,
    ring::{MOST_ENTRIES, Packed, Ring, Split},
    table::PortId,
    worker::{Handle, Kick},
};

/// `VHOST_USER_SET_LOG_FD`: an eventfd for written pages. It is taken and never signalled.
const SET_LOG_FD: u32 = 7;
/// `VHOST_USER_SET_VRING_ENABLE`. The crate takes it only after features were set; QEMU sends it before that, too.
const SET_VRING_ENABLE: u32 = 18;
/// `VHOST_USER_SEND_RARP`: announce the guest's address after a migration.
const SEND_RARP: u32 = 19;
/// `VHOST_USER_NET_SET_MTU`: the MTU that the guest is to have, in bytes. One above the port's is refused.
const NET_SET_MTU: u32 = 20;
/// `VHOST_USER_SET_BACKEND_REQ_FD`: the socket of the [`Channel`] back to the front end.
const SET_BACKEND_REQ_FD: u32 = 21;
/// `VHOST_USER_IOTLB_MSG`: the front end adds or takes away a translation ([`IotlbMessage`]).
const IOTLB: u32 = 22;

/// Pairs of rings that a guest may have.
const MOST_PAIRS: usize = 16;

/// The device of one connection.
#[derive(Debug)]
pub struct Device {
    handle: Handle,
    port: PortId,
    features: u64,
    memory: Memory,
    rings: Vec<Described>,
    /// The way back to the front end.
    channel: Channel,
    /// Translations that it has told.
    table: Arc<Table>,
    questions: Arc<Questions>,
    protocol: VhostUserProtocolFeatures,
    /// What the front end keeps for the case that this process dies.
    inflight: Option<Inflight>,
    /// Where it wants to find what was written to its guest's memory.
    log: Option<Log>,
    /// Why it is sent away.
    refusal: Option<String>,
}

impl Device {
    /// A device for a port that nobody is connected to.
    pub fn new(handle: Handle, port: PortId) -> Device {
        let channel = Channel::default();
        Device {
            handle,
            port,
            features: 0,
            memory: Memory::default(),
            rings: Vec::new(),
            table: Arc::default(),
            questions: Arc::new(Questions::new(channel.clone())),
            channel,
            protocol: VhostUserProtocolFeatures::empty(),
            inflight: None,
            log: None,
            refusal: None,
        }
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
        let in_order = self.features & IN_ORDER != 0;
        // Without protocol features every ring is enabled from its start.
        let enabled = self.features & features::PROTOCOL == 0;
        let (memory, port) = (self.memory_of(index), self.port);
        let (inflight, marks) = (self.inflight.clone(), self.marks_of(index));
        let found = self.ring(index)?;
        if found.runs || !found.addressed || found.kick.is_none() || !(found.enabled || enabled) {
            return Ok(());
        }
        let layout = found.layout(event_index);
        // All that is missing is asked for at once.
        layout.look_up(&memory, packed);
        let ring = match packed {
            true => Packed::new(&memory, &layout, found.base).map(Ring::Packed),
            false => Split::new(&memory, &layout, found.base).map(Ring::Split),
        };
        let mut ring = match ring {
            Ok(ring) => ring,
            // The front end was asked where it is, and tries again when it knows.
            Err(_) if memory.take_missed() => return Ok(()),
            Err(_) => return Err(Error::InvalidParam),
        };
        ring.set_marks(marks);
        if let Some(note) = inflight.and_then(|inflight| inflight.note(index, layout.entries, packed)) {
            ring.keep(note).map_err(|_| Error::InvalidParam)?;
        }
        let (call, err) = (found.call.clone(), found.err.clone());
        found.runs = true;
        if in_order && !index.is_multiple_of(2) {
            ring.tell_last_only();
        }
        let started = self.handle.put_ring(port, index, negotiated, GivenRing { ring, call, err });
        started.ok_or(Error::BackendInternalError)
    }

    /// Takes ring `index` back from the worker.
    fn stop(&mut self, index: u32) -> Result<()> {
        let port = self.port;
        let found = self.ring(index)?;
        if !std::mem::take(&mut found.runs) {
            return Ok(());
        }
        let base = self.handle.take_ring(port, index).ok_or(Error::BackendInternalError)?;
        if let Some(base) = base {
            self.ring(index)?.base = base;
        }
        Ok(())
    }

    /// Does what a message says that the crate does not know.
    fn handle(&mut self, request: u32, message: &mut Message) -> Result<()> {
        match request {
            SET_BACKEND_REQ_FD => {
                let [_] = message.files.as_slice() else { return Err(Error::IncorrectFds) };
                self.channel.set(message.files.pop().map(UnixStream::from));
                if self.protocol.contains(VhostUserProtocolFeatures::CONFIG) {
                    let (port, channel) = (self.port, self.channel.clone());
                    self.handle
                        .ask(move |engine| Some(engine.port_mut(port)?.channel.insert(channel).clone()));
                }
                Ok(())
            }
            // It is asked for what was marked when it wants to know.
            SET_LOG_FD => match message.files.as_slice() {
                [_] => Ok(()),
                _ => Err(Error::IncorrectFds),
            },
            SET_VRING_ENABLE => {
                let [a, b, c, d, e, f, g, h] = body_of(message)?;
                let on = match u32::from_ne_bytes([e, f, g, h]) {
                    0 => false,
                    1 => true,
                    _ => return Err(Error::InvalidParam),
                };
                self.set_vring_enable(u32::from_ne_bytes([a, b, c, d]), on)
            }
            SEND_RARP => {
                let [mac @ .., _, _] = body_of(message)?;
                let port = self.port;
                let done = self.handle.ask(move |engine| engine.announce(port, Mac::new(mac)));
                done.ok_or(Error::BackendInternalError)
            }
            NET_SET_MTU => {
                let wanted = u64::from_ne_bytes(body_of(message)?);
                let port = self.port;
                let most = self.handle.ask(move |engine| engine.port(port).map(|port| port.settings().mtu));
                let most = most.flatten().ok_or(Error::BackendInternalError)?;
                if wanted <= u64::from(most) { Ok(()) } else { Err(Error::InvalidParam) }
            }
            _ => self.told(IotlbMessage::read(&message.body).ok_or(Error::InvalidMessage)?),
        }
    }

    /// What may be mapped at the port.
    fn limit(&self) -> Result<Limit> {
        let port = self.port;
        let limit = self.handle.ask(move |engine| engine.port(port).map(|port| port.settings().memory));
        limit.flatten().ok_or(Error::BackendInternalError)
    }

    /// Bytes that are mapped beside the guest's memory.
    fn notes(&self) -> u64 {
        let inflight = self.inflight.as_ref().map_or(0, Inflight::mapped);
        inflight + self.log.as_ref().map_or(0, Log::mapped)
    }

    /// What somebody waits on for a word from the switch.
    fn eventfd(&self, fd: Option<File>) -> Result<Option<Arc<dyn Notify>>> {
        let taken = fd.map(|fd| Eventfd::new(self.handle.signals(), fd.into())).transpose();
        let taken = taken.map_err(|_| Error::IncorrectFds)?;
        Ok(taken.map(|eventfd| Arc::new(eventfd) as Arc<dyn Notify>))
    }

    /// Says why the front end is sent away, where an error of the protocol's says too little.
    fn refuse(&mut self, why: &dyn std::error::Error) -> Error {
        self.refusal = Some(chain(why));
        Error::InvalidParam
    }

    /// Ends what is noted of ring `index`: where it stands, the front end is told or does not want to know.
    fn end_note(&self, index: u32) {
        let packed = self.features & PACKED != 0;
        let entries = self.rings.get(index as usize).map_or(0, |ring| ring.entries);
        let note = self.inflight.as_ref().and_then(|inflight| inflight.note(index, entries, packed));
        if let Some(note) = note {
            note.end();
        }
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
        self.handle.ask_each(|_| move |engine: &mut Engine| engine.take_rings(port));
    }

    /// Has the data path send the front end away when it cannot go on.
    fn plug(&self, connection: Option<Arc<UnixStream>>) {
        let port = self.port;
        self.handle.ask_each(|_| {
            let connection = connection.clone();
            move |engine: &mut Engine| {
                if let Some(port) = engine.port_mut(port) {
                    if connection.is_some() {
                        // What was wrong with the one before is its own business.
                        port.broken = None;
                    }
                    port.connection = connection;
                    port.channel = None;
                }
            }
        });
    }
}

/// A body of eight bytes.
fn body_of(message: &Message) -> Result<[u8; 8]> {
    message.body.as_slice().try_into().map_err(|_| Error::InvalidMessage)
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
        let all = 0..self.rings.len() as u32;
        for index in all.clone() {
            self.stop(index)?;
        }
        all.for_each(|index| self.end_note(index));
        self.unplug();
        self.features = 0;
        let port = self.port;
        self.handle.ask(move |engine| engine.note_reset(port)).ok_or(Error::BackendInternalError)
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(features::OFFERED)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !features::OFFERED != 0 {
            return Err(Error::FeatureMismatch);
        }
        if (self.features ^ features) == LOG_ALL {
            self.features = features;
            return self.marks_changed();
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
        let limit = self.limit()?.beside(self.notes());
        let memory = Memory::map(&parts, limit).map_err(|error| self.refuse(&error))?;
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
        flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        log: u64,
    ) -> Result<()> {
        let ring = self.ring(index)?;
        ring.marked_at = flags.contains(VhostUserVringAddrFlags::VHOST_VRING_F_LOG).then_some(log);
        if ring.runs && (ring.descriptors, ring.driver, ring.device) == (descriptor, available, used) {
            return self.marks_changed();
        }
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
        self.end_note(index);
        let ring = self.ring(index)?;
        // It runs again only when it was kicked off again.
        ring.kick = None;
        Ok(VhostUserVringState::new(index, ring.base))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let index = u32::from(index);
        let handle = self.handle.clone();
        let Some(fd) = fd else {
            // Whoever sleeps would never look at it again.
            self.refusal = Some(format!(
                "VHOST_USER_SET_VRING_KICK (12) says that the driver of ring {index} never kicks: the switch polls no ring"
            ));
            return Err(Error::InvalidParam);
        };
        // The worker asks it whether there is something, and must not wait for the answer.
        if !handle.signals().is_event(fd.as_fd()) {
            return Err(Error::IncorrectFds);
        }
        let kick = Kick::of_ring(&handle, index, fd.into());
        self.ring(index)?.kick = Some(kick.map_err(|errno| Error::SocketError(errno.into()))?);
        self.start(index)
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let index = u32::from(index);
        let call = self.eventfd(fd)?;
        self.stop(index)?;
        self.ring(index)?.call = call;
        self.start(index)
    }

    fn set_vring_err(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let index = u32::from(index);
        let err = self.eventfd(fd)?;
        self.stop(index)?;
        self.ring(index)?.err = err;
        self.start(index)
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::LOG_SHMFD
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::RARP
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::MTU
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::RESET_DEVICE)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        // What most of them allow, the crate asks about itself.
        self.protocol = VhostUserProtocolFeatures::from_bits_truncate(features);
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        // Of pairs, as front ends of network devices take it (QEMU, DPDK's virtio-user).
        Ok(MOST_PAIRS as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.ring(index)?.enabled = enable;
        if enable { self.start(index) } else { self.stop(index) }
    }

    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let port = self.port;
        let whole = self
            .handle
            .ask(move |engine| engine.port(port).map(|port| port.configuration(MOST_PAIRS as u16)));
        let whole = whole.flatten().ok_or(Error::BackendInternalError)?;
        // What is beyond it belongs to features that are not offered.
        let all = whole.into_iter().chain(std::iter::repeat(0));
        Ok(all.skip(offset as usize).take(size as usize).collect())
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

    fn get_inflight_fd(&mut self, wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let (rings, entries) = (wanted.num_queues, wanted.queue_size);
        if usize::from(rings) > MOST_PAIRS * 2 || entries > MOST_ENTRIES {
            return Err(Error::InvalidParam);
        }
        // The packed format's entries are longer; whether it is that one may not have been said yet.
        let packed = self.features == 0 || self.features & PACKED != 0;
        let (file, size) = inflight::create(rings, entries, packed).map_err(Error::SocketError)?;
        Ok((VhostUserInflight::new(size, 0, rings, entries), file))
    }

    fn set_inflight_fd(&mut self, given: &VhostUserInflight, file: File) -> Result<()> {
        let VhostUserInflight { mmap_size, mmap_offset, num_queues, queue_size } = *given;
        let others = self.memory.mapped() + self.log.as_ref().map_or(0, Log::mapped);
        let limit = self.limit()?.beside(others);
        let inflight = Inflight::map(file, mmap_offset, mmap_size, num_queues, queue_size, limit);
        let inflight = inflight.map_err(|error| self.refuse(&error))?;
        self.while_stopped(|device| {
            device.inflight = Some(inflight);
            Ok(())
        })
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(self.limit()?.regions as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        let limit = self.limit()?.beside(self.notes());
        let memory = self.memory.with(&description(region), &file, limit);
        let memory = memory.map_err(|error| self.refuse(&error))?;
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

    fn set_log_base(&mut self, given: &VhostUserLog, file: File) -> Result<()> {
        self.take_log(file, given.mmap_offset, given.mmap_size)
    }
}
