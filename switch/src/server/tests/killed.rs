//! A switch that is killed in the middle of traffic and started again: its guests go on where they were.

use std::{
    fs::File,
    io::IoSliceMut,
    os::fd::{AsRawFd, FromRawFd, RawFd},
    process::{Child, Command, Stdio},
};

use nix::{
    cmsg_space,
    sys::{
        signal::{Signal, kill},
        socket::{ControlMessageOwned, MsgFlags, recvmsg},
    },
    unistd::Pid,
};

use super::{
    raw::{Events, GET_INFLIGHT, PROTOCOL as PROTOCOL_FEATURES, Raw, SET_INFLIGHT, longs},
    *,
};

/// Says to a process of these tests that it is to be a switch, and where.
const DIRECTORY: &str = "PENSTOCK_SWITCH_TEST_DIRECTORY";
/// The feature that allows `VHOST_USER_GET_INFLIGHT_FD` and `VHOST_USER_SET_INFLIGHT_FD`.
const INFLIGHT: u64 = 1 << 12;

/// Nothing, unless this process was started to be killed.
#[test]
fn a_switch_to_be_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let server = Server::start().unwrap();
    server.apply(&config(Path::new(&directory), 2)).unwrap();
    thread::sleep(Duration::from_secs(600));
}

/// A process that is a switch, and is killed when this goes.
struct Switch(Child);

impl Switch {
    fn start(directory: &Path) -> Switch {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "server::tests::killed::a_switch_to_be_killed"])
            .env(DIRECTORY, directory)
            .stdout(Stdio::null())
            .spawn();
        Switch(child.unwrap())
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        kill(Pid::from_raw(self.0.id() as i32), Signal::SIGKILL).unwrap();
        self.0.wait().unwrap();
    }
}

fn connect(socket: &Path) -> Raw {
    let until = Instant::now() + TIMEOUT;
    while std::os::unix::net::UnixStream::connect(socket).is_err() {
        assert!(Instant::now() < until, "no switch at {}", socket.display());
        thread::sleep(Duration::from_millis(5));
    }
    // The one before is gone; its place is this one's now.
    Raw::connect(socket)
}

/// Asks for the file, as a front end does when it comes for the first time.
fn inflight(raw: &Raw) -> (Vec<u8>, File) {
    let wanted = [longs(&[0, 0]), vec![2, 0, ENTRIES as u8, 0, 0, 0, 0, 0]].concat();
    raw.send(GET_INFLIGHT, &wanted, &[]);
    let mut bytes = [0; 12 + 24];
    let mut room = cmsg_space!([RawFd; 1]);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_WAITALL;
    let received = recvmsg::<()>(raw.stream.as_raw_fd(), &mut parts, Some(&mut room), flags).unwrap();
    let Some(ControlMessageOwned::ScmRights(files)) = received.cmsgs().unwrap().next() else {
        panic!("no file came")
    };
    // SAFETY: the kernel has just made it.
    let file = unsafe { File::from_raw_fd(files[0]) };
    (bytes[12..].to_vec(), file)
}

struct Survivor {
    memory: GuestMemory,
    packed: bool,
    to_guest: Box<dyn Driver>,
    from_guest: Box<dyn Driver>,
    events: [Events; 2],
    buffers: BTreeMap<u16, u64>,
    /// Frames that were offered and not seen as sent.
    out: BTreeMap<u16, u64>,
    sent: u64,
    received: u64,
    raw: Raw,
    kept: (Vec<u8>, File),
}

impl Survivor {
    fn connect(socket: &Path, packed: bool) -> Survivor {
        let memory = GuestMemory::file(0x12_0000);
        let ([to_guest, from_guest], buffers) = rings(&memory, packed, 0);
        let raw = connect(socket);
        raw.begin(Survivor::features(packed), PROTOCOL_FEATURES | INFLIGHT);
        let kept = inflight(&raw);
        let (events, out) = ([Events::new(), Events::new()], BTreeMap::new());
        let survivor = Survivor {
            memory,
            packed,
            to_guest,
            from_guest,
            events,
            buffers,
            out,
            sent: 0,
            received: 0,
            raw,
            kept,
        };
        survivor.set_up();
        survivor
    }

    fn features(packed: bool) -> u64 {
        VERSION_1 | MERGEABLE | PROTOCOL | if packed { PACKED } else { 0 }
    }

    fn again(&mut self, socket: &Path) {
        self.raw = connect(socket);
        self.raw.begin(Survivor::features(self.packed), PROTOCOL_FEATURES | INFLIGHT);
        self.set_up();
    }

    /// What it says of where its rings stand is always that of the beginning: it does not know better.
    fn set_up(&self) {
        self.raw.send(SET_INFLIGHT, &self.kept.0, &[self.kept.1.as_raw_fd()]);
        self.raw.share(&self.memory);
        for (index, driver) in [&self.to_guest, &self.from_guest].into_iter().enumerate() {
            let base = if self.packed { 0x8000 } else { 0 };
            self.raw.ring(index as u32, &driver.layout(false), 0, base, &self.events[index]);
            self.raw.enable(index as u32, true);
        }
        assert!(self.raw.lives());
    }

    fn offer(&mut self, to: u8, from: u8) {
        let at = 0x8_0000 + (self.sent % 64) * 256;
        let frame = [&frame(to, from, 60)[..14], &self.sent.to_le_bytes(), &[0; 40]].concat();
        // One or two descriptors, so that packed positions are no multiples of anything.
        let len = frame.len() as u32 + 12;
        let whole = [(at, len, false)];
        let parts = [(at, 12, false), (at + 12, len - 12, false)];
        if self.out.values().any(|other| *other == at) {
            return;
        }
        self.memory.write(at, &[&[0; 12], &frame[..]].concat());
        let chain: &[_] = if self.sent.is_multiple_of(3) { &parts } else { &whole };
        if let Some(id) = self.from_guest.offer(&self.memory, chain, Form::Chained) {
            self.out.insert(id, at);
            self.sent += 1;
            let _ = self.events[1].kick.write(1);
        }
    }

    fn collect(&mut self) {
        // The driver of these tests panics when a chain comes back that is not out.
        while let Some((id, _)) = self.from_guest.used(&self.memory) {
            self.out.remove(&id).unwrap();
        }
        while let Some((id, written)) = self.to_guest.used(&self.memory) {
            let at = self.buffers.remove(&id).unwrap();
            assert_eq!(written, 12 + 62);
            self.received += 1;
            let id = self.to_guest.offer(&self.memory, &[(at, 2048, true)], Form::Chained).unwrap();
            self.buffers.insert(id, at);
        }
    }
}

#[test]
fn who_is_killed_in_the_middle_of_traffic_goes_on_where_it_was() {
    for packed in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path(), 2);
        let sockets = [0, 1].map(|number| config.ports[&format!("NET0#{number}")].socket.clone());
        let mut switch = Switch::start(directory.path());
        let mut sender = Survivor::connect(&sockets[0], packed);
        let mut receiver = Survivor::connect(&sockets[1], packed);
        for life in 0..6_u64 {
            // Some of them are killed with full rings, some with empty ones.
            let until = Instant::now() + Duration::from_millis(20 + life * 7);
            let before = receiver.received;
            while Instant::now() < until || receiver.received < before + 100 {
                assert!(Instant::now() < until + TIMEOUT, "packed {packed}, life {life}: nothing comes");
                for _ in 0..=life {
                    sender.offer(1, 0);
                }
                sender.collect();
                receiver.collect();
            }
            (0..30).for_each(|_| sender.offer(1, 0));
            drop(switch);
            switch = Switch::start(directory.path());
            receiver.again(&sockets[1]);
            sender.again(&sockets[0]);
        }
        let until = Instant::now() + TIMEOUT;
        while !sender.out.is_empty() {
            assert!(Instant::now() < until, "packed {packed}: {} chains never came back", sender.out.len());
            sender.collect();
            receiver.collect();
        }
        // All buffers are there: three times as many frames as fit into them go through.
        let (sent, received) = (sender.sent, receiver.received);
        while receiver.received < received + 3 * u64::from(ENTRIES) {
            assert!(Instant::now() < until + TIMEOUT, "packed {packed}: buffers are missing");
            if sender.out.is_empty() && sender.sent - sent <= receiver.received - received {
                sender.offer(1, 0);
            }
            sender.collect();
            receiver.collect();
        }
        assert_eq!(receiver.buffers.len(), usize::from(ENTRIES));
        drop(switch);
    }
}

/// Rings that are switched off and on, taken back and given again, and memory that is shared anew, in the middle of traffic:
/// what waits in the sender's ring goes on from where it stood.
#[test]
fn who_stops_for_a_while_loses_nothing() {
    for packed in [false, true] {
        let (_directory, server, config) = rig(2);
        let sockets = [0, 1].map(|number| config.ports[&format!("NET0#{number}")].socket.clone());
        let mut sender = Survivor::connect(&sockets[0], packed);
        let mut receiver = Survivor::connect(&sockets[1], packed);
        for round in 0..120 {
            (0..20).for_each(|_| sender.offer(1, 0));
            match round % 4 {
                0 => {
                    sender.raw.enable(1, false);
                    sender.raw.enable(1, true);
                }
                1 => {
                    let base = sender.raw.base(1).unwrap();
                    sender.raw.ring(1, &sender.from_guest.layout(false), 0, base, &sender.events[1]);
                }
                2 => sender.raw.share(&sender.memory),
                _ => sender.again(&sockets[0]),
            }
            sender.collect();
            receiver.collect();
        }
        let until = Instant::now() + TIMEOUT;
        while receiver.received < sender.sent || !sender.out.is_empty() {
            let left = (receiver.received, sender.sent, sender.out.len());
            assert!(Instant::now() < until, "packed {packed}: {left:?}");
            sender.collect();
            receiver.collect();
        }
        assert_eq!(receiver.received, sender.sent);
        let ports = server.ports().unwrap();
        assert!(ports["NET0#1"].counters.dropped_received.is_empty());
        assert!(ports["NET0#0"].counters.dropped_sent.is_empty());
    }
}

/// What another back end has marked comes back empty, once, and before anything else.
#[test]
fn what_another_back_end_left_comes_back() {
    let (_directory, server, config) = rig(2);
    let mut other = Guest::connect(&config.ports["NET0#1"].socket, false);
    let memory = GuestMemory::file(0x12_0000);
    let mut driver = SplitDriver::new(RINGS[1], ENTRIES);
    memory.write(0x8_0000, &[&[0; 12][..], &frame(1, 0, 100)].concat());
    let ids: Vec<u16> =
        (0..6).map(|_| driver.offer(&memory, &[(0x8_0000, 112, false)], Form::Chained).unwrap()).collect();
    let raw = Raw::connect(&config.ports["NET0#0"].socket);
    raw.begin(Survivor::features(false), PROTOCOL_FEATURES | INFLIGHT);
    let (body, file) = inflight(&raw);
    // The first three were taken: the second shows as used, but its mark is still there; the others are marked.
    let region = (16 + 16 * usize::from(ENTRIES)).next_multiple_of(64);
    let write = |at: usize, bytes: &[u8]| {
        std::os::unix::fs::FileExt::write_all_at(&file, bytes, (region + at) as u64).unwrap();
    };
    write(8, &[1, 0, ENTRIES as u8, 0]);
    write(12, &ids[1].to_le_bytes());
    for (id, counter) in [(ids[2], 2_u64), (ids[0], 3), (ids[1], 1)] {
        write(16 + 16 * usize::from(id), &[1]);
        write(16 + 16 * usize::from(id) + 8, &counter.to_le_bytes());
    }
    let device_at = driver.device_at();
    memory.write(device_at + 4, &[u32::from(ids[1]).to_le_bytes(), [0; 4]].concat());
    memory.word(device_at + 2).store(1, std::sync::atomic::Ordering::Release);
    raw.send(SET_INFLIGHT, &body, &[file.as_raw_fd()]);
    raw.share(&memory);
    let events = Events::new();
    raw.ring(1, &driver.layout(false), 0, 1, &events);
    raw.enable(1, true);
    for _ in 0..3 {
        assert_eq!(other.receive(), frame(1, 0, 100));
    }
    assert!(raw.lives());
    let until = Instant::now() + TIMEOUT;
    let mut back = Vec::new();
    while back.len() < 6 {
        assert!(Instant::now() < until);
        back.extend(driver.used(&memory).map(|(id, _)| id));
    }
    assert_eq!(back, [ids[1], ids[2], ids[0], ids[3], ids[4], ids[5]]);
    assert_eq!(server.ports().unwrap()["NET0#0"].counters.sent, 3);
    // Told properly where it stands, it goes on from what it is told.
    assert_eq!(raw.base(1), Some(6));
    let mut version = [9; 2];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut version, region as u64 + 8).unwrap();
    assert_eq!(version, [0, 0]);
}
