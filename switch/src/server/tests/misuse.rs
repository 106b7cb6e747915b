//! Front ends that do what they should not, while others go on.

use std::os::fd::AsRawFd;

use super::{
    raw::{
        Events, GET_FEATURES, PROTOCOL as PROTOCOL_FEATURES, Raw, SET_FEATURES, SET_MEM_TABLE,
        SET_VRING_ADDR, SET_VRING_KICK, SET_VRING_NUM, longs,
    },
    *,
};

/// Two guests between whom frames go, and a third that is misused.
pub struct Rig {
    pub server: Server,
    pub socket: std::path::PathBuf,
    pub guests: [Guest; 2],
    pub sent: usize,
    _directory: TempDir,
}

impl Rig {
    pub fn new() -> Rig {
        let (directory, server, config) = rig(3);
        let socket = |number: u8| config.ports[&format!("NET0#{number}")].socket.clone();
        let guests = [0, 1].map(|number| Guest::connect(&socket(number), number == 1));
        Rig { _directory: directory, server, socket: socket(2), guests, sent: 0 }
    }

    /// Frames still cross between the others, all of them.
    pub fn goes_on(&mut self) {
        for _ in 0..10 {
            self.sent += 1;
            let frame = frame(1, 0, 60 + self.sent % 1000);
            self.guests[0].send(&frame);
            assert_eq!(self.guests[1].receive(), frame);
        }
        let port = &self.server.ports().unwrap()["NET0#1"];
        assert_eq!(port.counters.received as usize, self.sent);
        assert!(port.counters.dropped_received.is_empty());
    }

    /// A front end at the third port.
    pub fn third(&self) -> Raw {
        let raw = Raw::connect(&self.socket);
        raw.begin(VERSION_1 | MERGEABLE | PROTOCOL, PROTOCOL_FEATURES);
        raw
    }

    fn ends(&mut self, raw: &Raw) {
        assert!(!raw.lives());
        self.goes_on();
        // Its place is free again.
        assert!(self.third().lives());
    }
}

/// A third guest's memory, with its rings told of.
pub fn set_up(raw: &Raw) -> (GuestMemory, [SplitDriver; 2], [Events; 2]) {
    let memory = GuestMemory::file(0x12_0000);
    let drivers = RINGS.map(|at| SplitDriver::new(at, ENTRIES));
    let events = [Events::new(), Events::new()];
    raw.share(&memory);
    for (index, driver) in drivers.iter().enumerate() {
        raw.ring(index as u32, &driver.layout(false), 0, 0, &events[index]);
        raw.enable(index as u32, true);
    }
    (memory, drivers, events)
}

#[test]
fn memory_that_is_taken_away_ends_its_port_only() {
    // Another test's models bring a handler of their own, once; ours goes in front of it.
    loom::model(|| ());
    crate::sigbus::install();
    let mut rig = Rig::new();
    for (round, frames) in [(0, true), (1, false), (2, true)] {
        let raw = rig.third();
        let (memory, [mut to_guest, mut from_guest], events) = set_up(&raw);
        assert!(raw.lives());
        for number in 0..20 {
            to_guest.offer(&memory, &[(number * 2048, 2048, true)], Form::Chained).unwrap();
        }
        memory.write(0x8_0000, &[&[0; 12][..], &frame(9, 2, 1000)].concat());
        from_guest.offer(&memory, &[(0x8_0000, 1012, false)], Form::Chained).unwrap();
        // Not the rings' pages, or everything.
        memory.description().1.set_len(if round == 0 { 0x7_0000 } else { 0 }).unwrap();
        if frames {
            events[1].kick.write(1).unwrap();
        } else {
            rig.guests[0].send(&frame(2, 0, 100));
        }
        let until = Instant::now() + TIMEOUT;
        while raw.lives() {
            // Somebody must touch it.
            rig.guests[0].send(&frame(2, 0, 100));
            let _ = events[1].kick.write(1);
            assert!(Instant::now() < until, "round {round}: it goes on");
        }
        assert_eq!(events[1].err.read().unwrap(), 1, "round {round}");
        let broken = rig.server.ports().unwrap()["NET0#2"].broken.clone().unwrap();
        assert!(broken.contains("taken away"), "{broken}");
        std::mem::forget(memory);
        rig.goes_on();
    }
}

/// What is wrong, and a message: request, flags, body, descriptors.
type Case = (&'static str, u32, u32, Vec<u8>, Vec<i32>);

#[test]
fn messages_that_make_no_sense_end_their_connection_only() {
    let mut rig = Rig::new();
    let memory = GuestMemory::file(0x1_0000);
    let fd = memory.description().1.as_raw_fd();
    let table = |count: u32, size: u64| {
        let mut body = [count.to_ne_bytes(), [0; 4]].concat();
        (0..count).for_each(|at| body.extend(longs(&[u64::from(at) << 40, size, 1 << 30, 0])));
        body
    };
    let cases: Vec<Case> = vec![
        ("no such message", 999, 1, vec![], vec![]),
        ("no such version", GET_FEATURES, 2, vec![], vec![]),
        ("a reply", GET_FEATURES, 5, vec![], vec![]),
        ("a body where there is none", GET_FEATURES, 1, vec![0; 8], vec![]),
        ("a body that is too short", SET_FEATURES, 1, vec![0; 4], vec![]),
        ("features that are not offered", SET_FEATURES, 1, longs(&[1 << 60]), vec![]),
        ("memory without a file", SET_MEM_TABLE, 1, table(1, 0x1000), vec![]),
        ("more files than regions", SET_MEM_TABLE, 1, table(1, 0x1000), vec![fd, fd]),
        ("fewer files than regions", SET_MEM_TABLE, 1, table(2, 0x1000), vec![fd]),
        ("regions beyond their file", SET_MEM_TABLE, 1, table(1, 0x2_0000), vec![fd]),
        ("regions without bytes", SET_MEM_TABLE, 1, table(1, 0), vec![fd]),
        ("more regions than it brings", SET_MEM_TABLE, 1, [[9, 0, 0, 0], [0; 4]].concat(), vec![fd]),
        ("a file where there is none", SET_FEATURES, 1, longs(&[VERSION_1]), vec![fd]),
        ("a kick without a file", SET_VRING_KICK, 1, longs(&[0]), vec![]),
        ("a kick that is no event", SET_VRING_KICK, 1, longs(&[0]), vec![fd]),
        ("a ring that cannot be", SET_VRING_NUM, 1, [[40, 0, 0, 0], [64, 0, 0, 0]].concat(), vec![]),
        ("a ring that is too long", SET_VRING_NUM, 1, [[0; 4], [0, 0, 1, 0]].concat(), vec![]),
        ("a way back without a socket", 21, 1, vec![], vec![]),
        ("two ways back", 21, 1, vec![], vec![fd, fd]),
        ("translations without an IOMMU", 22, 1, vec![0; 32], vec![]),
        ("translations that are cut off", 22, 1, vec![0; 20], vec![]),
        ("neither on nor off", 18, 1, [[0; 4], [2, 0, 0, 0]].concat(), vec![]),
        ("a body that is too long", 22, 1, vec![0; 5000], vec![]),
    ];
    for (what, request, flags, body, files) in cases {
        let raw = rig.third();
        let _ = raw.send_with(request, flags, &body, &files);
        assert!(!raw.lives(), "{what}");
        rig.goes_on();
    }
    assert!(rig.third().lives());
}

#[test]
fn rings_that_cannot_be_end_their_connection_only() {
    let mut rig = Rig::new();
    let memory = GuestMemory::file(0x12_0000);
    let good = SplitDriver::new(RINGS[0], ENTRIES).layout(false);
    let odd = [
        crate::ring::Layout { entries: 0, ..good },
        crate::ring::Layout { entries: 3, ..good },
        crate::ring::Layout { entries: 32768, ..good },
        crate::ring::Layout { descriptors: good.descriptors + 8, ..good },
        crate::ring::Layout { driver: 0, ..good },
        crate::ring::Layout { device: u64::MAX - 8, ..good },
    ];
    for layout in odd {
        let raw = rig.third();
        raw.share(&memory);
        let events = Events::new();
        raw.enable(0, true);
        raw.ring(0, &layout, 0, 0, &events);
        rig.ends(&raw);
    }
    // Before there is memory.
    let raw = rig.third();
    raw.enable(0, true);
    let events = Events::new();
    raw.ring(0, &good, 0, 0, &events);
    rig.ends(&raw);
    // An address of which only a part is in the message.
    let raw = rig.third();
    raw.send(SET_VRING_ADDR, &[0; 39], &[]);
    rig.ends(&raw);
}

#[test]
fn who_stops_in_the_middle_of_a_message_holds_nobody_up() {
    let mut rig = Rig::new();
    for half in [&[1, 0, 0, 0, 1][..], &[5, 0, 0, 0, 1, 0, 0, 0, 40, 0, 0, 0, 1, 0]] {
        let raw = rig.third();
        std::io::Write::write_all(&mut &raw.stream, half).unwrap();
        rig.goes_on();
        let settings = serde_json::json!({"max_tx_rate": 100});
        rig.server.set("NET0#2", settings.as_object().unwrap()).unwrap();
        drop(raw);
        assert!(rig.third().lives());
    }
}

#[test]
fn memory_that_is_removed_stops_the_rings_in_it() {
    let mut rig = Rig::new();
    let raw = rig.third();
    let (memory, [_, mut from_guest], events) = set_up(&raw);
    memory.write(0x8_0000, &[&[0; 12][..], &frame(1, 2, 100)].concat());
    from_guest.offer(&memory, &[(0x8_0000, 112, false)], Form::Chained).unwrap();
    events[1].kick.write(1).unwrap();
    assert_eq!(rig.guests[1].receive(), frame(1, 2, 100));
    rig.sent += 1;
    // Another file at the same place: the rings are there, and empty.
    let other = GuestMemory::file(0x12_0000);
    assert_eq!(raw.base(1), Some(1));
    raw.share(&other);
    from_guest.offer(&memory, &[(0x8_0000, 112, false)], Form::Chained).unwrap();
    events[1].kick.write(1).unwrap();
    assert!(raw.lives());
    rig.goes_on();
    assert!(from_guest.used(&memory).is_some() && from_guest.used(&memory).is_none());
}

#[test]
fn nobody_waits_for_a_guest_that_is_not_woken_any_more() {
    use std::os::fd::AsFd;
    let mut rig = Rig::new();
    let raw = rig.third();
    let memory = GuestMemory::file(0x12_0000);
    let mut driver = SplitDriver::new(RINGS[1], ENTRIES);
    let events = Events::new();
    // One more, and who writes to it has to wait.
    events.call.write(u64::MAX - 1).unwrap();
    nix::fcntl::fcntl(events.call.as_fd(), nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::empty()))
        .unwrap();
    raw.share(&memory);
    raw.ring(1, &driver.layout(false), 0, 0, &events);
    raw.enable(1, true);
    memory.write(0x8_0000, &[&[0; 12][..], &frame(1, 2, 100)].concat());
    driver.offer(&memory, &[(0x8_0000, 112, false)], Form::Chained).unwrap();
    events.kick.write(1).unwrap();
    assert_eq!(rig.guests[1].receive(), frame(1, 2, 100));
    rig.sent += 1;
    rig.goes_on();
}

#[test]
fn a_ring_that_breaks_says_so() {
    let mut rig = Rig::new();
    let raw = rig.third();
    let (memory, [to_guest, from_guest], events) = set_up(&raw);
    assert!(raw.lives());
    memory.word(from_guest.driver_at() + 2).store(1000, std::sync::atomic::Ordering::Release);
    events[1].kick.write(1).unwrap();
    let until = Instant::now() + TIMEOUT;
    while events[1].err.read().is_err() {
        assert!(Instant::now() < until);
    }
    memory.word(to_guest.driver_at() + 2).store(1000, std::sync::atomic::Ordering::Release);
    rig.guests[0].send(&frame(2, 0, 60));
    while events[0].err.read().is_err() {
        assert!(Instant::now() < until);
    }
    assert!(rig.server.ports().unwrap()["NET0#2"].broken.is_some());
    assert!(raw.lives());
    rig.goes_on();
}

#[test]
fn without_protocol_features_rings_are_enabled_from_the_start() {
    let mut rig = Rig::new();
    let raw = Raw::connect(&rig.socket);
    raw.send(super::raw::SET_OWNER, &[], &[]);
    raw.send(SET_FEATURES, &longs(&[VERSION_1 | MERGEABLE]), &[]);
    let memory = GuestMemory::file(0x12_0000);
    raw.share(&memory);
    let mut driver = SplitDriver::new(RINGS[1], ENTRIES);
    let events = Events::new();
    memory.write(0x8_0000, &[&[0; 12][..], &frame(1, 2, 100)].concat());
    driver.offer(&memory, &[(0x8_0000, 112, false)], Form::Chained).unwrap();
    raw.ring(1, &driver.layout(false), 0, 0, &events);
    assert_eq!(rig.guests[1].receive(), frame(1, 2, 100));
    rig.sent += 1;
    rig.goes_on();
}
