//! Guests with an IOMMU: nothing of theirs is found but what the front end tells when it is asked.

use std::collections::BTreeSet;

use super::{
    raw::{Events, IOTLB, PROTOCOL as PROTOCOL_FEATURES, Raw, longs},
    *,
};
use crate::features::ACCESS_PLATFORM;

/// What is added to an address for the guest's devices.
const MOVED: u64 = 0x5_0000_0000;
/// Where the front end has the guest's memory.
const USER: u64 = 0x7f00_0000_0000;
const PAGE: u64 = 4096;

struct Translated {
    memory: GuestMemory,
    raw: Raw,
    back: std::os::unix::net::UnixStream,
    to_guest: Box<dyn Driver>,
    from_guest: Box<dyn Driver>,
    events: [Events; 2],
    buffers: BTreeMap<u16, u64>,
    /// Pages that the device was told of, and may not ask for again.
    known: BTreeSet<(u64, u8)>,
    misses: usize,
}

impl Translated {
    fn connect(socket: &Path, packed: bool) -> Translated {
        let memory = GuestMemory::file(0x12_0000);
        let ([to_guest, from_guest], buffers) = rings(&memory, packed, MOVED);
        let raw = Raw::connect(socket);
        let wanted = VERSION_1 | MERGEABLE | PROTOCOL | ACCESS_PLATFORM | if packed { PACKED } else { 0 };
        raw.begin(wanted, PROTOCOL_FEATURES);
        let back = raw.back();
        raw.share(&memory);
        let events = [Events::new(), Events::new()];
        for (index, driver) in [&to_guest, &from_guest].into_iter().enumerate() {
            let layout = driver.layout(false);
            let base = if packed { 0x8000 } else { 0 };
            raw.ring(index as u32, &layout, MOVED.wrapping_sub(USER), base, &events[index]);
            raw.enable(index as u32, true);
        }
        let known = BTreeSet::new();
        Translated { memory, raw, back, to_guest, from_guest, events, buffers, known, misses: 0 }
    }

    /// Answers what the device asks.
    fn answer(&mut self) {
        let mut message = [0; 44];
        while std::io::Read::read(&mut self.back, &mut message).is_ok_and(|read| read == 44) {
            assert_eq!(message[..4], 1_u32.to_ne_bytes());
            let at = u64::from_ne_bytes(message[12..20].try_into().unwrap());
            let perm = message[36];
            assert_eq!((at % PAGE, message[37]), (0, 1));
            assert!(self.known.insert((at, perm)), "{at:#x} was asked for again");
            self.misses += 1;
            self.update(at, perm);
        }
    }

    fn update(&mut self, at: u64, perm: u8) {
        assert_eq!(self.told(at, PAGE, at - MOVED + USER, [perm, 2]), Some(true));
    }

    fn told(&mut self, at: u64, size: u64, user: u64, kind: [u8; 2]) -> Option<bool> {
        self.raw.done(IOTLB, &[longs(&[at, size, user]), kind.to_vec(), vec![0; 6]].concat(), &[])
    }

    fn invalidate(&mut self, at: u64, size: u64) {
        self.known.retain(|(page, _)| *page + PAGE <= at || *page >= at + size);
        assert_eq!(self.told(at, size, 0, [0, 3]), Some(true));
    }

    fn offer(&mut self, at: u64, frame: &[u8]) {
        self.memory.write(at, &[&[0; 12], frame].concat());
        // In two pieces, so that a page may be missing in the middle.
        let chain = [(MOVED + at, 40, false), (MOVED + at + 40, frame.len() as u32 - 28, false)];
        self.from_guest.offer(&self.memory, &chain, Form::Chained).unwrap();
        self.events[1].kick.write(1).unwrap();
    }

    fn send(&mut self, at: u64, frame: &[u8]) {
        self.offer(at, frame);
        let until = Instant::now() + TIMEOUT;
        while self.from_guest.used(&self.memory).is_none() {
            assert!(Instant::now() < until, "the switch did not take the frame");
            self.answer();
            thread::yield_now();
        }
    }

    fn try_receive(&mut self) -> Option<Vec<u8>> {
        let (id, written) = self.to_guest.used(&self.memory)?;
        let at = self.buffers.remove(&id).unwrap();
        let frame = self.memory.read(at + 12, written as usize - 12);
        let id = self.to_guest.offer(&self.memory, &[(MOVED + at, 2048, true)], Form::Chained).unwrap();
        self.buffers.insert(id, at);
        Some(frame)
    }

    fn receive(&mut self) -> Vec<u8> {
        let until = Instant::now() + TIMEOUT;
        loop {
            self.answer();
            if let Some(frame) = self.try_receive() {
                return frame;
            }
            assert!(Instant::now() < until, "nothing came");
            thread::yield_now();
        }
    }
}

fn served(server: &Server, guests: &mut [Translated]) {
    let until = Instant::now() + TIMEOUT;
    while !server.ports().unwrap().values().all(|port| port.pairs == 1) {
        assert!(Instant::now() < until, "rings were not found");
        guests.iter_mut().for_each(Translated::answer);
    }
    // Empty buffers are asked for before there is a frame for them.
    for _ in 0..20 {
        guests.iter_mut().for_each(Translated::answer);
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn frames_cross_between_guests_with_iommus() {
    for packed in [false, true] {
        let (_directory, server, config) = rig(2);
        let mut guests =
            [0, 1].map(|number| Translated::connect(&config.ports[&format!("NET0#{number}")].socket, packed));
        served(&server, &mut guests);
        for round in 0..200_u64 {
            let len = 60 + round as usize * 4;
            let at = 0x8_0000 + round * 2000;
            guests[0].send(at, &frame(1, 0, len));
            assert_eq!(guests[1].receive(), frame(1, 0, len), "packed {packed}, round {round}");
            if round % 16 == 15 {
                // The buffers that wait for frames, the ring itself, everything.
                let (start, size) =
                    [(0, 0x2_0000), (RINGS[0], PAGE), (0, u64::MAX - MOVED)][round as usize % 3];
                guests[1].invalidate(MOVED + start, size);
                served(&server, &mut guests);
            }
        }
        assert!(guests[0].misses > 90, "{} misses", guests[0].misses);
        let ports = server.ports().unwrap();
        assert_eq!((ports["NET0#0"].counters.sent, ports["NET0#1"].counters.received), (200, 200));
        assert!(ports.values().all(|port| port.counters.dropped_received.is_empty()));
    }
}

/// While an answer is awaited nothing else waits; what was invalidated is not used any more.
#[test]
fn what_is_not_there_holds_nobody_up() {
    let (_directory, server, config) = rig(3);
    let sockets = [0, 1, 2].map(|number| config.ports[&format!("NET0#{number}")].socket.clone());
    let mut slow = Translated::connect(&sockets[0], false);
    served_one(&server, &mut slow);
    let mut others = [1, 2].map(|number: usize| Guest::connect(&sockets[number], number == 1));
    let began = Instant::now();
    slow.offer(0x8_0000, &frame(1, 0, 100));
    // Not for as long as the switch waits for an answer: then the frame would be lost.
    for round in (0..50).take_while(|round| *round == 0 || began.elapsed() < Duration::from_secs(1)) {
        others[1].send(&frame(1, 2, 60 + round));
        assert_eq!(others[0].receive(), frame(1, 2, 60 + round));
    }
    assert!(slow.from_guest.used(&slow.memory).is_none());
    let until = Instant::now() + TIMEOUT;
    while slow.from_guest.used(&slow.memory).is_none() {
        assert!(Instant::now() < until);
        slow.answer();
    }
    assert_eq!(others[0].receive(), frame(1, 0, 100));
    // The page is another's now.
    slow.invalidate(MOVED + 0x8_0000, PAGE);
    slow.memory.write(0x9_0000, &[&[0; 12][..], &frame(1, 0, 77)].concat());
    assert_eq!(slow.told(MOVED + 0x8_0000, PAGE, USER + 0x9_0000, [3, 2]), Some(true));
    slow.from_guest.offer(&slow.memory, &[(MOVED + 0x8_0000, 12 + 77, false)], Form::Chained).unwrap();
    slow.events[1].kick.write(1).unwrap();
    assert_eq!(others[0].receive(), frame(1, 0, 77));
}

fn served_one(server: &Server, guest: &mut Translated) {
    let until = Instant::now() + TIMEOUT;
    while server.ports().unwrap()["NET0#0"].pairs != 1 {
        assert!(Instant::now() < until, "rings were not found");
        guest.answer();
    }
}

/// An address that the front end has nothing for is one outside the guest's memory, once it was waited for; so is one that
/// may not be read.
#[test]
fn an_address_that_is_nowhere_is_given_up() {
    let (_directory, server, config) = rig(2);
    let sockets = [0, 1].map(|number| config.ports[&format!("NET0#{number}")].socket.clone());
    let mut guest = Translated::connect(&sockets[0], false);
    served_one(&server, &mut guest);
    let mut other = Guest::connect(&sockets[1], false);
    // It may be written, not read.
    guest.update(MOVED + 0x8_0000, 2);
    guest.known.insert((MOVED + 0x8_0000, 1));
    guest.offer(0x8_0000, &frame(1, 0, 100));
    let until = Instant::now() + TIMEOUT;
    let mut message = [0; 44];
    while std::io::Read::read(&mut guest.back, &mut message).is_err() {
        assert!(Instant::now() < until, "nobody asked");
    }
    guest.update(MOVED + 0x8_0000, 2);
    let until = Instant::now() + TIMEOUT;
    while guest.from_guest.used(&guest.memory).is_none() {
        assert!(Instant::now() < until, "it waits for ever");
        thread::sleep(Duration::from_millis(20));
        guest.events[1].kick.write(1).unwrap();
    }
    guest.send(0xa_0000, &frame(1, 0, 101));
    assert_eq!(other.receive(), frame(1, 0, 101));
    let ports = server.ports().unwrap();
    assert_eq!(ports["NET0#0"].counters.dropped_sent.get(&Dropped::BadChain), Some(&1));
    // Translations to what is not the guest's memory end the connection.
    assert_eq!(guest.told(MOVED, PAGE, USER + 0x12_0000 - 10, [3, 2]), Some(false));
    assert!(!guest.raw.lives());
}
