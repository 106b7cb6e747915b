//! How a guest of this process comes to its switch: as a front end of vhost-user with a pair of rings.

use std::{
    os::unix::net::UnixListener,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use penstock_switch::features;
use vhost::{
    VhostBackend, VringConfigData,
    vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures},
};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::memory::Memory;

/// A switch that comes to its guests does so within this.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The ring of empty buffers for frames to the guest, as virtio counts them.
pub const TO_GUEST: usize = 0;
/// The ring of frames from it.
pub const FROM_GUEST: usize = 1;

/// Where a guest finds its switch.
#[derive(Clone, Copy, Debug)]
pub struct SwitchEndpoint<'a> {
    /// The socket.
    pub path: &'a Path,
    /// It makes the socket, and the switch comes.
    pub listens: bool,
}

/// The parts of a ring, as offsets into the guest's memory.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// The descriptors.
    pub descriptors: usize,
    /// What the driver writes: the available ring, or its event suppression.
    pub driver: usize,
    /// What the device writes: the used ring, or its event suppression.
    pub device: usize,
    /// Where it begins: the next entry, and in the highest bit the wrap counter of a packed one.
    pub base: u16,
}

/// A guest's connection, which its switch lets go of when this goes.
pub struct Connection {
    _front: Frontend,
    kicks: [EventFd; 2],
    _calls: [EventFd; 2],
}

impl Connection {
    /// Connects a guest that wants these features of virtio, and no others but [`features::PROTOCOL`].
    ///
    /// # Errors
    /// When nobody is there within ten seconds, or the switch refuses something: what, and where.
    pub fn open(
        endpoint: SwitchEndpoint<'_>,
        wanted: u64,
        memory: &Memory,
        entries: u16,
        rings: [Parts; 2],
    ) -> Result<Connection, String> {
        let failed = |what: &str| {
            let path = endpoint.path.display().to_string();
            let what = what.to_owned();
            move |error: vhost::Error| format!("a guest at {path}: {what}: {error}")
        };
        let refused = |error| format!("{}: {error}", endpoint.path.display());
        let mut front = if endpoint.listens { accept(endpoint.path)? } else { connect(endpoint.path)? };
        front.set_owner().map_err(failed("owner"))?;
        let offered = front.get_features().map_err(failed("features"))?;
        let wanted = wanted | features::PROTOCOL;
        if offered & wanted != wanted {
            let missing = wanted & !offered;
            return Err(format!("{} does not offer features {missing:#x}", endpoint.path.display()));
        }
        let protocol = front.get_protocol_features().map_err(refused)?;
        front.set_protocol_features(protocol & VhostUserProtocolFeatures::MQ).map_err(refused)?;
        front.set_features(wanted).map_err(failed("features"))?;
        front.set_mem_table(&[memory.region()]).map_err(failed("memory"))?;
        let event = || EventFd::new(EFD_NONBLOCK).map_err(|error| error.to_string());
        let (kicks, calls) = ([event()?, event()?], [event()?, event()?]);
        for (index, (ring, (kick, call))) in rings.iter().zip(kicks.iter().zip(&calls)).enumerate() {
            let config = VringConfigData {
                queue_max_size: entries,
                queue_size: entries,
                flags: 0,
                desc_table_addr: memory.address(ring.descriptors),
                used_ring_addr: memory.address(ring.device),
                avail_ring_addr: memory.address(ring.driver),
                log_addr: None,
            };
            front.set_vring_num(index, entries).map_err(failed("ring size"))?;
            front.set_vring_addr(index, &config).map_err(failed("ring address"))?;
            front.set_vring_base(index, ring.base).map_err(failed("ring base"))?;
            front.set_vring_call(index, call).map_err(failed("call"))?;
            front.set_vring_kick(index, kick).map_err(failed("kick"))?;
            front.set_vring_enable(index, true).map_err(refused)?;
        }
        // Its answer comes after all that was said before.
        front.get_features().map_err(failed("features"))?;
        Ok(Connection { _front: front, kicks, _calls: calls })
    }

    /// Tells the switch that there is something in a ring.
    pub fn kick(&self, ring: usize) {
        // A counter that is full kicks as well.
        let _ = self.kicks.get(ring).map(|kick| kick.write(1));
    }
}

fn connect(path: &Path) -> Result<Frontend, String> {
    let until = Instant::now() + TIMEOUT;
    loop {
        match Frontend::connect(path, 2) {
            Ok(front) => return Ok(front),
            Err(error) if Instant::now() > until => {
                return Err(format!("nobody is at {}: {error}", path.display()));
            }
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn accept(path: &Path) -> Result<Frontend, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let until = Instant::now() + TIMEOUT;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(failed)?;
                return Ok(Frontend::from_stream(stream, 2));
            }
            Err(error) if Instant::now() > until => return Err(failed(error)),
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}
