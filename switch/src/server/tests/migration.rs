//! Front ends that want to know what was written to their guests' memory, while frames cross.

use std::{
    fs::File,
    os::fd::{AsFd, AsRawFd},
};

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::{
    raw::{
        Events, PROTOCOL as PROTOCOL_FEATURES, Raw, SEND_RARP, SET_FEATURES, SET_LOG_BASE, SET_LOG_FD, longs,
    },
    *,
};
use crate::features::LOG_ALL;

/// `VHOST_USER_PROTOCOL_F_LOG_SHMFD`: the bits of written pages are shared memory.
const LOG_SHMFD: u64 = 1 << 1;
const PAGE: usize = 4096;
const ALL: usize = 0x12_0000;
/// Where the frames are that the guest sends.
const FRAMES: u64 = 0x8_0000;
/// Bytes of bits that are enough.
const BITS: u64 = (ALL / PAGE / 8 + 1) as u64;
const FEATURES: u64 = VERSION_1 | MERGEABLE | PROTOCOL;

/// A guest whose front end says everything itself.
struct Moved {
    raw: Raw,
    memory: GuestMemory,
    drivers: [Box<dyn Driver>; 2],
    buffers: BTreeMap<u16, u64>,
    events: [Events; 2],
    features: u64,
}

impl Moved {
    fn connect(socket: &Path, packed: bool) -> Moved {
        let memory = GuestMemory::file(ALL);
        let (drivers, buffers) = rings(&memory, packed, 0);
        let raw = Raw::connect(socket);
        let features = FEATURES | if packed { PACKED } else { 0 };
        raw.begin(features, PROTOCOL_FEATURES | LOG_SHMFD);
        raw.share(&memory);
        let events = [Events::new(), Events::new()];
        for (index, driver) in (0..).zip(&drivers) {
            let base = if packed { 0x8000 } else { 0 };
            raw.ring(index, &driver.layout(false), 0, base, &events[index as usize]);
            raw.enable(index, true);
        }
        Moved { raw, memory, drivers, buffers, events, features }
    }

    /// Has everything marked or nothing, as QEMU does it: the features first, then each ring.
    fn mark(&self, on: bool) {
        let features = self.features | if on { LOG_ALL } else { 0 };
        assert_eq!(self.raw.done(SET_FEATURES, &longs(&[features]), &[]), Some(true));
        for (index, driver) in (0..).zip(&self.drivers) {
            let layout = driver.layout(false);
            let at = on.then(|| layout.device - crate::driver::USER);
            self.raw.addresses(index, &layout, 0, at);
        }
        assert!(self.raw.lives());
    }

    fn take_log(&self, file: &File, offset: u64, size: u64) -> bool {
        self.raw.send(SET_LOG_BASE, &longs(&[size, offset]), &[file.as_raw_fd()]);
        self.raw.answer() == Some(longs(&[size, offset]))
    }

    fn send(&mut self, frame: &[u8]) {
        self.memory.write(FRAMES, &[&[0; 12], frame].concat());
        let chain = [(FRAMES, frame.len() as u32 + 12, false)];
        self.drivers[1].offer(&self.memory, &chain, Form::Chained).unwrap();
        self.events[1].kick.write(1).unwrap();
        let until = Instant::now() + TIMEOUT;
        while self.drivers[1].used(&self.memory).is_none() {
            assert!(Instant::now() < until, "the switch did not take the frame");
            thread::yield_now();
        }
    }

    /// The next frame; where it lay.
    fn receive(&mut self) -> (Vec<u8>, u64) {
        let until = Instant::now() + TIMEOUT;
        let (id, written) = loop {
            assert!(Instant::now() < until, "nothing came");
            match self.drivers[0].used(&self.memory) {
                Some(used) => break used,
                None => thread::yield_now(),
            }
        };
        let at = self.buffers.remove(&id).unwrap();
        let frame = self.memory.read(at + 12, written as usize - 12);
        let id = self.drivers[0].offer(&self.memory, &[(at, 2048, true)], Form::Chained).unwrap();
        self.buffers.insert(id, at);
        (frame, at)
    }

    /// Frames both ways with another guest.
    fn talk(&mut self, other: &mut Guest, count: usize) {
        for number in 0..count {
            let len = 60 + number * 7 % 1400;
            self.send(&frame(1, 0, len));
            assert_eq!(other.receive(), frame(1, 0, len));
            other.send(&frame(0, 1, len));
            assert_eq!(self.receive().0, frame(0, 1, len));
        }
    }
}

fn bits(size: u64) -> File {
    let file = File::from(memfd_create("bits", MFdFlags::empty()).unwrap());
    file.set_len(size).unwrap();
    file
}

/// The pages that are marked, whose marks are then taken away.
fn take(file: &File, offset: u64) -> Vec<usize> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; BITS as usize];
    file.read_exact_at(&mut bytes, offset).unwrap();
    file.write_all_at(&vec![0; BITS as usize], offset).unwrap();
    let marked = |page: &usize| bytes[page / 8] & 1 << (page % 8) != 0;
    (0..bytes.len() * 8).filter(marked).collect()
}

#[test]
fn what_is_written_is_marked_while_rings_run() {
    for packed in [false, true] {
        let (_directory, server, config) = rig(2);
        let sockets = [0, 1].map(|number| config.ports[&format!("NET0#{number}")].socket.clone());
        let mut moved = Moved::connect(&sockets[0], packed);
        let mut other = Guest::connect(&sockets[1], false);
        moved.talk(&mut other, 20);
        // The bits need not begin where their file does.
        let file = bits(BITS + 24);
        assert!(moved.take_log(&file, 24, BITS));
        moved.talk(&mut other, 20);
        assert!(take(&file, 24).is_empty(), "nobody asked for marks");
        moved.mark(true);
        for _ in 0..100 {
            take(&file, 24);
            let before = moved.memory.read(0, ALL);
            other.send(&frame(0, 1, 1400));
            let (_, at) = moved.receive();
            moved.send(&frame(1, 0, 1400));
            other.receive();
            // What it is asked next it does after that.
            assert!(moved.raw.lives());
            let after = moved.memory.read(0, ALL);
            let marked = take(&file, 24);
            let own = [FRAMES as usize / PAGE];
            for page in (0..ALL / PAGE).filter(|page| !own.contains(page)) {
                let changed = before[page * PAGE..][..PAGE] != after[page * PAGE..][..PAGE];
                assert!(!changed || marked.contains(&page), "page {page:#x}, marked {marked:x?}");
            }
            let at = at as usize / PAGE;
            let may = |page: usize| (at..=at + 1).contains(&page) || page >= RINGS[0] as usize / PAGE;
            assert!(marked.iter().all(|page| may(*page)), "{marked:x?}, written to {at:#x}");
        }
        // Other bits from now on, and then none.
        let more = bits(BITS);
        assert!(moved.take_log(&more, 0, BITS));
        take(&file, 24);
        moved.talk(&mut other, 5);
        assert!(take(&file, 24).is_empty());
        assert!(!take(&more, 0).is_empty());
        moved.mark(false);
        take(&more, 0);
        moved.talk(&mut other, 5);
        assert!(take(&more, 0).is_empty());
        // Where it stands: no frame was lost or came twice, and no ring began anew.
        let sent = 20 + 20 + 100 + 5 + 5;
        let [base, sending] = [0, 1].map(|index| moved.raw.base(index).unwrap() & 0x7fff);
        let place = if packed { sent % u32::from(ENTRIES) } else { sent };
        assert_eq!((base, sending), (place, place));
        let ports = server.ports().unwrap();
        assert_eq!(ports["NET0#0"].counters.received, u64::from(sent));
        assert!(ports["NET0#0"].counters.dropped_received.is_empty());
    }
}

#[test]
fn bits_that_cannot_be_end_their_connection_only() {
    let (_directory, server, config) = rig(3);
    let sockets = [0, 1, 2].map(|number| config.ports[&format!("NET0#{number}")].socket.clone());
    let mut guests = [1, 2].map(|number: usize| Guest::connect(&sockets[number], number == 1));
    let mut goes_on = || {
        for len in 60..70 {
            guests[0].send(&frame(2, 1, len));
            assert_eq!(guests[1].receive(), frame(2, 1, len));
        }
    };
    let file = bits(BITS);
    let enough = longs(&[BITS, 0]);
    let fd = file.as_raw_fd();
    type Case<'a> = (&'a str, u32, Vec<u8>, Vec<i32>);
    let cases: [Case<'_>; 8] = [
        ("too few for the memory", SET_LOG_BASE, longs(&[(ALL / PAGE / 8 - 1) as u64, 0]), vec![fd]),
        ("a file that is too short", SET_LOG_BASE, longs(&[BITS + 1, 0]), vec![fd]),
        ("an offset that is too far", SET_LOG_BASE, longs(&[BITS, 1]), vec![fd]),
        ("a size that wraps", SET_LOG_BASE, longs(&[u64::MAX, 2]), vec![fd]),
        ("no bits at all", SET_LOG_BASE, longs(&[0, 0]), vec![fd]),
        ("no file", SET_LOG_BASE, enough.clone(), vec![]),
        ("two files", SET_LOG_BASE, enough, vec![fd, fd]),
        ("nothing to tell of marks by", SET_LOG_FD, vec![], vec![]),
    ];
    for (what, request, body, files) in cases {
        let moved = Moved::connect(&sockets[0], false);
        moved.mark(true);
        moved.raw.send(request, &body, &files);
        assert_eq!(moved.raw.answer(), None, "{what}");
        goes_on();
    }
    // Who has not taken the feature that allows it.
    let raw = Raw::connect(&sockets[0]);
    raw.begin(FEATURES, PROTOCOL_FEATURES);
    raw.send(SET_LOG_BASE, &longs(&[BITS, 0]), &[fd]);
    assert_eq!(raw.answer(), None);
    goes_on();
    drop(server);
}

#[test]
fn marks_without_bits_and_bits_in_odd_places_harm_nobody() {
    let (_directory, server, config) = rig(2);
    let sockets = [0, 1].map(|number| config.ports[&format!("NET0#{number}")].socket.clone());
    let mut moved = Moved::connect(&sockets[0], true);
    let mut other = Guest::connect(&sockets[1], true);
    // Before there are bits, as QEMU does it when a guest starts again while it is moved.
    moved.mark(true);
    moved.talk(&mut other, 5);
    // In the guest's own memory, where nothing of it is.
    let own = moved.memory.description().1.try_clone().unwrap();
    assert!(moved.take_log(&own, 0x9_0000, BITS));
    moved.talk(&mut other, 5);
    assert!(!take(&own, 0x9_0000).is_empty());
    // A ring whose marks nobody has bits for.
    for at in [u64::MAX, u64::MAX - 100, 1 << 40] {
        for (index, driver) in (0..).zip(&moved.drivers) {
            moved.raw.addresses(index, &driver.layout(false), 0, Some(at));
        }
        moved.talk(&mut other, 5);
    }
    let event = Events::new();
    assert_eq!(moved.raw.done(SET_LOG_FD, &[], &[event.call.as_fd().as_raw_fd()]), Some(true));
    moved.talk(&mut other, 5);
    drop(server);
}

#[test]
fn bits_that_are_taken_away_end_their_port_only() {
    // As where memory is taken away.
    loom::model(|| ());
    crate::sigbus::install();
    let (_directory, server, config) = rig(3);
    let sockets = [0, 1, 2].map(|number| config.ports[&format!("NET0#{number}")].socket.clone());
    let mut moved = Moved::connect(&sockets[0], false);
    let mut guests = [1, 2].map(|number: usize| Guest::connect(&sockets[number], number == 1));
    let file = bits(BITS);
    assert!(moved.take_log(&file, 0, BITS));
    moved.mark(true);
    moved.talk(&mut guests[0], 5);
    file.set_len(0).unwrap();
    guests[0].send(&frame(0, 1, 100));
    let until = Instant::now() + TIMEOUT;
    while moved.raw.lives() {
        assert!(Instant::now() < until, "it goes on");
        guests[0].send(&frame(0, 1, 100));
    }
    assert!(server.ports().unwrap()["NET0#0"].broken.clone().unwrap().contains("taken away"));
    for len in 60..70 {
        guests[0].send(&frame(2, 1, len));
        assert_eq!(guests[1].receive(), frame(2, 1, len));
    }
}

/// A guest that does not say itself where it is now is announced by its front end; what is set for its port holds.
#[test]
fn a_guest_is_announced() {
    let (_directory, server, config) = rig(2);
    let sockets = [0, 1].map(|number| config.ports[&format!("NET0#{number}")].socket.clone());
    let moved = Moved::connect(&sockets[0], false);
    let mut other = Guest::connect(&sockets[1], true);
    for mac in [9, 0] {
        assert_eq!(moved.raw.done(SEND_RARP, &[2, 0, 0, 0, 0, mac, 0, 0], &[]), Some(true));
    }
    let mut announced = vec![0xff; 6];
    let own = [2, 0, 0, 0, 0, 0];
    announced.extend(own);
    announced.extend([0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
    announced.extend(own);
    announced.extend([0; 4]);
    announced.extend(own);
    announced.resize(60, 0);
    assert_eq!(other.receive(), announced);
    let ports = server.ports().unwrap();
    assert_eq!(ports["NET0#0"].counters.sent, 1);
    assert_eq!(ports["NET0#0"].counters.dropped_sent.get(&Dropped::SpoofedMac), Some(&1));
    moved.raw.send(SEND_RARP, &[2, 0, 0, 0, 0, 0], &[]);
    assert!(!moved.raw.lives());
}
