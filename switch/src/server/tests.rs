//! A switch that runs, and front ends of the `vhost` crate in front of guests of ours.

mod cables;
mod changes;
mod descriptors;
mod inside;
mod iommu;
mod killed;
mod listeners;
mod migration;
mod misuse;
mod raw;
mod traffic;
mod workers;

use std::{
    collections::BTreeMap,
    os::fd::AsRawFd,
    path::Path,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use vhost::{
    VhostBackend, VhostUserMemoryRegionInfo, VringConfigData,
    vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures},
};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::*;
use crate::{
    config::PortConfig,
    counters::Dropped,
    driver::{Driver, Form, GuestMemory, SplitDriver, driver_of},
    features::{EVENT_INDEX, MERGEABLE, PACKED, PROTOCOL, VERSION_1},
    socket::Access,
};

const ENTRIES: u16 = 64;
const RINGS: [u64; 2] = [0x10_0000, 0x11_0000];
const TIMEOUT: Duration = Duration::from_secs(20);

/// A guest behind a front end that nobody of ours wrote.
pub struct Guest {
    memory: GuestMemory,
    front: Frontend,
    to_guest: Box<dyn Driver>,
    from_guest: Box<dyn Driver>,
    kicks: [EventFd; 2],
    calls: [EventFd; 2],
    buffers: BTreeMap<u16, u64>,
}

/// Both rings of a guest, to it and from it, and the empty buffers that were offered, by their ids: where each lies in its memory. The
/// device sees it `moved` further up.
fn rings(memory: &GuestMemory, packed: bool, moved: u64) -> ([Box<dyn Driver>; 2], BTreeMap<u16, u64>) {
    let [mut to_guest, from_guest] = RINGS.map(|at| driver_of(packed, at, ENTRIES));
    let mut buffers = BTreeMap::new();
    for number in 0..u64::from(ENTRIES) {
        let at = number * 2048;
        let id = to_guest.offer(memory, &[(moved + at, 2048, true)], Form::Chained).unwrap();
        buffers.insert(id, at);
    }
    ([to_guest, from_guest], buffers)
}

impl Guest {
    fn connect(socket: &Path, packed: bool) -> Guest {
        Guest::connect_pair(socket, packed, 0)
    }

    /// One that uses this pair of rings and no other.
    fn connect_pair(socket: &Path, packed: bool, pair: usize) -> Guest {
        let memory = GuestMemory::file(0x12_0000);
        let ([to_guest, from_guest], buffers) = rings(&memory, packed, 0);
        let mut front = Frontend::connect(socket, pair as u64 * 2 + 2).unwrap();
        front.set_owner().unwrap();
        let offered = front.get_features().unwrap();
        let wanted = VERSION_1 | MERGEABLE | PROTOCOL | EVENT_INDEX | if packed { PACKED } else { 0 };
        assert_eq!(offered & wanted, wanted);
        let protocol = front.get_protocol_features().unwrap();
        assert!(protocol.contains(VhostUserProtocolFeatures::MQ));
        front.set_protocol_features(protocol & VhostUserProtocolFeatures::MQ).unwrap();
        front.set_features(wanted).unwrap();
        let (description, file) = memory.description();
        front
            .set_mem_table(&[VhostUserMemoryRegionInfo {
                guest_phys_addr: description.guest,
                memory_size: description.size,
                userspace_addr: description.user,
                mmap_offset: description.offset,
                mmap_handle: file.as_raw_fd(),
            }])
            .unwrap();
        let event = || EventFd::new(EFD_NONBLOCK).unwrap();
        let (kicks, calls) = ([event(), event()], [event(), event()]);
        for (index, driver) in [&to_guest, &from_guest].into_iter().enumerate() {
            let (layout, own, index) = (driver.layout(true), index, pair * 2 + index);
            front.set_vring_num(index, layout.entries).unwrap();
            let config = VringConfigData {
                queue_max_size: layout.entries,
                queue_size: layout.entries,
                flags: 0,
                desc_table_addr: layout.descriptors,
                used_ring_addr: layout.device,
                avail_ring_addr: layout.driver,
                log_addr: None,
            };
            front.set_vring_addr(index, &config).unwrap();
            front.set_vring_base(index, if packed { 0x8000 } else { 0 }).unwrap();
            front.set_vring_call(index, &calls[own]).unwrap();
            front.set_vring_kick(index, &kicks[own]).unwrap();
            front.set_vring_enable(index, true).unwrap();
        }
        // Its answer comes after all that was said before.
        front.get_features().unwrap();
        Guest { memory, front, to_guest, from_guest, kicks, calls, buffers }
    }

    fn send(&mut self, frame: &[u8]) {
        let at = 0x8_0000;
        self.memory.write(at, &[&[0; 12], frame].concat());
        let chain = [(at, frame.len() as u32 + 12, false)];
        self.from_guest.offer(&self.memory, &chain, Form::Chained).unwrap();
        if self.from_guest.kicks(&self.memory, true) {
            self.kicks[1].write(1).unwrap();
        }
        let until = Instant::now() + TIMEOUT;
        while self.from_guest.used(&self.memory).is_none() {
            assert!(Instant::now() < until, "the switch did not take the frame");
            thread::yield_now();
        }
    }

    /// All frames that have come so far.
    fn all(&mut self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while let Some((id, written)) = self.to_guest.used(&self.memory) {
            let at = self.buffers.remove(&id).unwrap();
            all.push(self.memory.read(at + 12, written as usize - 12));
            let id = self.to_guest.offer(&self.memory, &[(at, 2048, true)], Form::Chained).unwrap();
            self.buffers.insert(id, at);
        }
        all
    }

    /// The next frame, for which it asks to be woken.
    fn receive(&mut self) -> Vec<u8> {
        let until = Instant::now() + TIMEOUT;
        loop {
            self.to_guest.want_wake(&self.memory, true, true);
            if let Some((id, written)) = self.to_guest.used(&self.memory) {
                let at = self.buffers.remove(&id).unwrap();
                let frame = self.memory.read(at + 12, written as usize - 12);
                let id = self.to_guest.offer(&self.memory, &[(at, 2048, true)], Form::Chained).unwrap();
                self.buffers.insert(id, at);
                return frame;
            }
            // A call that does not come would be seen as slowness; it is counted.
            while self.calls[0].read().is_err() {
                assert!(Instant::now() < until, "nothing came");
                thread::yield_now();
            }
        }
    }
}

fn config(directory: &Path, count: u8) -> Config {
    let ports = (0..count).map(|number| {
        let socket = directory.join(format!("{number}.sock"));
        let mac = Some(format!("02:00:00:00:00:{number:02x}"));
        (format!("NET0#{number}"), PortConfig { socket, mac, spoofchk: true, ..PortConfig::default() })
    });
    Config { version: 1, loopback: true, ports: ports.collect(), ..Config::default() }
}

fn frame(to: u8, from: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5];
    frame.extend((14..len).map(|at| at as u8));
    frame
}

fn rig(count: u8) -> (TempDir, Server, Config) {
    rig_with(1, count)
}

/// A switch of so many workers, with so many ports.
fn rig_with(workers: usize, count: u8) -> (TempDir, Server, Config) {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), count);
    let server = Server::with_workers(workers).unwrap();
    server.apply(&config).unwrap();
    (directory, server, config)
}

#[test]
fn frames_cross_between_front_ends_of_either_format() {
    let (_directory, server, config) = rig(2);
    let mut guests =
        [0, 1].map(|number| Guest::connect(&config.ports[&format!("NET0#{number}")].socket, number == 1));
    for round in 0..300 {
        let len = 60 + round * 4;
        guests[0].send(&frame(1, 0, len));
        assert_eq!(guests[1].receive(), frame(1, 0, len), "round {round}");
        guests[1].send(&frame(0, 1, len));
        assert_eq!(guests[0].receive(), frame(0, 1, len), "round {round}");
    }
    let ports = server.ports().unwrap();
    assert_eq!((ports["NET0#0"].counters.sent, ports["NET0#0"].counters.received), (300, 300));
    assert!(ports["NET0#0"].connected && ports["NET0#0"].pairs == 1);
    // Where the ring stands is told when it is taken back: in the packed format with its wrap counter.
    assert_eq!(guests[0].front.get_vring_base(1).unwrap(), 300);
    assert_eq!(guests[1].front.get_vring_base(1).unwrap() & 0x7fff, 300 % 64);
}

#[test]
fn what_is_set_while_it_runs_holds_at_once() {
    let (_directory, server, config) = rig(2);
    let mut guests =
        [0, 1].map(|number| Guest::connect(&config.ports[&format!("NET0#{number}")].socket, false));
    let events = server.subscribe();
    guests[0].send(&frame(1, 9, 60));
    let off = serde_json::json!({"spoofchk": false});
    server.set("NET0#0", off.as_object().unwrap()).unwrap();
    guests[0].send(&frame(1, 9, 61));
    assert_eq!(guests[1].receive(), frame(1, 9, 61));
    let dropped = &server.ports().unwrap()["NET0#0"].counters.dropped_sent;
    assert_eq!(dropped.get(&Dropped::SpoofedMac), Some(&1));
    assert!(
        matches!(events.recv().unwrap(), Event::Set { port, settings } if port == "NET0#0" && !settings.spoofchk)
    );
    let odd = serde_json::json!({"spoofcheck": false});
    assert!(matches!(server.set("NET0#0", odd.as_object().unwrap()), Err(ServerError::Attribute { .. })));
    assert!(matches!(server.set("NET0#7", off.as_object().unwrap()), Err(ServerError::NoPort { .. })));
}

#[test]
fn a_reload_leaves_what_does_not_change_alone() {
    let (directory, server, mut config) = rig(3);
    let mut guests =
        [0, 1].map(|number| Guest::connect(&config.ports[&format!("NET0#{number}")].socket, true));
    config.ports.remove("NET0#2");
    let more = self::config(directory.path(), 5);
    config.ports.insert("NET0#4".to_owned(), more.ports["NET0#4"].clone());
    server.apply(&config).unwrap();
    assert!(!directory.path().join("2.sock").exists() && directory.path().join("4.sock").exists());
    guests[0].send(&frame(1, 0, 60));
    assert_eq!(guests[1].receive(), frame(1, 0, 60));
    let mut late = Guest::connect(&config.ports["NET0#4"].socket, false);
    late.send(&frame(0, 4, 60));
    assert_eq!(guests[0].receive(), frame(0, 4, 60));
    // Nothing is changed by what makes no sense.
    config.ports.get_mut("NET0#0").unwrap().mtu = Some(1);
    config.ports.remove("NET0#1");
    assert!(server.apply(&config).is_err());
    assert_eq!(server.ports().unwrap().len(), 3);
}

#[test]
fn who_goes_may_come_back() {
    let (_directory, server, config) = rig(2);
    let socket = |number: u8| config.ports[&format!("NET0#{number}")].socket.clone();
    let mut stays = Guest::connect(&socket(0), false);
    for round in 0..5 {
        let mut guest = Guest::connect(&socket(1), round % 2 == 0);
        guest.send(&frame(0, 1, 60 + round));
        assert_eq!(stays.receive(), frame(0, 1, 60 + round));
        drop(guest);
        let until = Instant::now() + TIMEOUT;
        while server.ports().unwrap()["NET0#1"].connected {
            assert!(Instant::now() < until);
            thread::yield_now();
        }
        // It is sent to nobody, and nobody is harmed.
        stays.send(&frame(1, 0, 60));
    }
    let port = &server.ports().unwrap()["NET0#1"];
    assert_eq!(port.counters.dropped_received.get(&Dropped::NoBuffers), Some(&5));
}

#[test]
fn a_socket_of_a_switch_that_died_is_taken_over_and_a_living_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), 1);
    let socket = &config.ports["NET0#0"].socket;
    drop(std::os::unix::net::UnixListener::bind(socket).unwrap());
    let server = Server::start().unwrap();
    server.apply(&config).unwrap();
    let other = Server::start().unwrap();
    assert!(matches!(other.apply(&config), Err(ServerError::Backend { .. })));
    drop(other);
    assert!(socket.exists());
    drop(server);
    assert!(!socket.exists());
}

/// As QEMU does when its guest resets a function: a ring is enabled, with the wish to be answered, before any feature was taken.
#[test]
fn a_ring_may_be_enabled_before_features_are_taken() {
    use std::io::{Read, Write};
    let (_directory, server, config) = rig(1);
    let mut stream = std::os::unix::net::UnixStream::connect(&config.ports["NET0#0"].socket).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut ask = |words: &[u32], answer: usize| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        stream.write_all(&bytes).unwrap();
        let mut read = vec![0; answer];
        stream.read_exact(&mut read).unwrap();
        read.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect::<Vec<_>>()
    };
    // GET_FEATURES, then SET_PROTOCOL_FEATURES with REPLY_ACK.
    assert_eq!(ask(&[1, 1, 0], 20)[0], 1);
    ask(&[16, 1, 8, 1 << 3, 0], 0);
    let enable = 18;
    assert_eq!(ask(&[enable, 1 | 1 << 3, 8, 0, 1], 20), [enable, 1 | 1 << 2, 8, 0, 0]);
    // The connection goes on.
    assert_eq!(ask(&[1, 1, 0], 20)[..3], [1, 1 | 1 << 2, 8]);
    assert!(server.ports().unwrap()["NET0#0"].connected);
}
