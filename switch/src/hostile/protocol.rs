//! A front end that sends whatever it likes, with whatever descriptors, and a guest behind it.

use std::{
    fs::File,
    io::{IoSlice, Read},
    net::Shutdown,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    sync::{Arc, Mutex, OnceLock, PoisonError},
    thread::{self, JoinHandle},
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        eventfd::{EfdFlags, EventFd},
        socket::{ControlMessage, MsgFlags, sendmsg},
    },
};

use super::{Input, neighbours::Neighbours};
use crate::{
    device,
    driver::{Driver, Form, GuestMemory, USER, driver_of, request},
    engine::{Engine, Negotiated, Port},
    features::{self, PACKED, PROTOCOL},
    net::Mac,
    settings::Settings,
    table::PortId,
    worker::{self, Handle},
};

/// The most that is done.
const STEPS: usize = 100;
/// Connections that one guest may make.
const CONNECTIONS: usize = 4;
/// The hostile port.
const HOSTILE: PortId = 0;
/// Where the rings are in the guest's memory, and how long that is.
const RINGS: [u64; 2] = [0x8000, 0x9000];
const ALL: usize = 0x1_0000;
const ENTRIES: u16 = 16;

/// The switch, which lives on from one guest to the next, and those who have nothing to do with it.
struct Rig {
    handle: Handle,
    neighbours: Arc<Mutex<Neighbours>>,
}

fn rig() -> &'static Rig {
    static RIG: OnceLock<Rig> = OnceLock::new();
    RIG.get_or_init(|| {
        // Rings of every second pair are the other worker's.
        let (handle, _) = worker::start(2, |_| ()).expect("two threads can be had");
        put_port(&handle);
        let plug = |engine: &mut Engine| Neighbours::plug(engine, HOSTILE + 1, false, Negotiated::default());
        let neighbours = Arc::new(Mutex::new(handle.ask(plug).expect("the worker runs")));
        handle.ask_each(|worker| {
            let neighbours = Arc::clone(&neighbours);
            move |engine: &mut Engine| {
                if worker > 0 {
                    neighbours.lock().unwrap_or_else(PoisonError::into_inner).note(engine);
                }
            }
        });
        Rig { handle, neighbours }
    })
}

/// Puts the hostile port anew; says how many pairs of rings the one before had at each worker.
fn put_port(handle: &Handle) -> Vec<Option<usize>> {
    let put = |_| {
        |engine: &mut Engine| {
            let port = Port::new(Arc::new(settings()));
            engine.set_port(HOSTILE, Some(Box::new(port))).map(|port| port.pairs.len())
        }
    };
    handle.change_each(put).expect("the workers run")
}

fn settings() -> Settings {
    Settings { macs: vec![Mac::new([2, 0, 0, 0, 0, HOSTILE as u8])], ..Settings::default() }
}

/// The guest behind the front end, and all that it may hand over.
struct Guest {
    memory: GuestMemory,
    other: File,
    events: [EventFd; 3],
    null: OwnedFd,
    drivers: [Box<dyn Driver>; 2],
    packed: bool,
    features: u64,
}

/// A connection, at whose other end the switch is.
struct Front {
    stream: UnixStream,
    served: Option<JoinHandle<()>>,
}

impl Front {
    fn connect(handle: &Handle) -> Front {
        let (stream, other) = UnixStream::pair().expect("a pair of sockets can be had");
        stream.set_nonblocking(true).expect("a socket");
        let handle = handle.clone();
        let serve = move || drop(device::serve(other, handle, HOSTILE));
        let served = thread::Builder::new().stack_size(256 << 10).spawn(serve).expect("a thread can be had");
        Front { stream, served: Some(served) }
    }

    /// Sends bytes and descriptors; says whether anybody is there.
    fn send(&self, bytes: &[u8], fds: &[RawFd]) -> bool {
        let rights = [ControlMessage::ScmRights(fds)];
        let with = if fds.is_empty() { &[][..] } else { &rights };
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        let part = [IoSlice::new(bytes)];
        sendmsg::<()>(self.stream.as_raw_fd(), &part, with, flags, None).is_ok()
    }

    /// Reads what was answered; says whether anybody is there.
    fn drain(&self) -> bool {
        let mut answer = [0; 4096];
        loop {
            match (&self.stream).read(&mut answer) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Waits until all that was sent before has come to something.
    fn wait(&self) -> bool {
        self.drain();
        if !self.send(&message(request::GET_FEATURES, 1, &[]), &[]) {
            return false;
        }
        let mut awaited = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
        // What is in front of it may have made the switch wait for bytes that do not come.
        let _ = poll(&mut awaited, PollTimeout::from(30_u8));
        self.drain()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(served) = self.served.take() {
            served.join().expect("the port's thread ends by itself");
        }
    }
}

fn message(request: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(12 + payload.len());
    for number in [request, flags, payload.len() as u32] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(payload);
    bytes
}

fn wides(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn longs(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn drivers(packed: bool) -> [Box<dyn Driver>; 2] {
    RINGS.map(|at| driver_of(packed, at, ENTRIES))
}

impl Guest {
    fn new() -> Guest {
        let event = || EventFd::from_flags(EfdFlags::EFD_NONBLOCK).expect("a descriptor can be had");
        let other = GuestMemory::file(0x1000);
        Guest {
            memory: GuestMemory::file(ALL),
            other: other.description().1.try_clone().expect("a descriptor can be had"),
            events: [event(), event(), event()],
            null: File::open("/dev/null").expect("it is there").into(),
            drivers: drivers(false),
            packed: false,
            features: 0,
        }
    }

    fn fd(&self, which: u8) -> RawFd {
        match which % 8 {
            0 | 1 => self.memory.description().1.as_raw_fd(),
            2 => self.other.as_raw_fd(),
            3 => self.null.as_raw_fd(),
            event => self.events[usize::from(event) % 3].as_raw_fd(),
        }
    }

    fn region(&self) -> [u64; 4] {
        [0, ALL as u64, USER, 0]
    }

    /// All that a front end says of a guest with one pair of rings, as it should be.
    fn set_up(&mut self, front: &Front, input: &mut Input<'_>) -> bool {
        let bits = input.byte();
        self.packed = bits & 1 != 0;
        self.features = features::OFFERED;
        for (bit, feature) in
            [(1, PACKED), (2, PROTOCOL), (4, features::EVENT_INDEX), (8, features::MERGEABLE)]
        {
            if bits & bit == 0 {
                self.features &= !feature;
            }
        }
        if bits & 16 == 0 {
            self.features &= !(1 << 33);
        }
        self.drivers = drivers(self.packed);
        let memory = self.memory.description().1.as_raw_fd();
        let table = [longs(&[1, 0]), wides(&self.region())].concat();
        let mut there = front.send(&message(request::SET_OWNER, 1, &[]), &[])
            && front.send(&message(request::SET_FEATURES, 1, &wides(&[self.features])), &[])
            && front.send(&message(request::SET_PROTOCOL_FEATURES, 1, &wides(&[0x1_ffff & !(1 << 16)])), &[])
            && front.send(&message(request::SET_MEM_TABLE, 1, &table), &[memory]);
        for index in 0..2_u32 {
            let layout = self.drivers[index as usize].layout(self.features & features::EVENT_INDEX != 0);
            let number = u64::from(index);
            let base = if self.packed { 0x8000 } else { 0 };
            let addresses =
                [longs(&[index, 0]), wides(&[layout.descriptors, layout.device, layout.driver, 0])];
            let (kick, call) = (self.events[0].as_raw_fd(), self.events[1].as_raw_fd());
            there = there
                && front.send(&message(request::SET_VRING_NUM, 1, &longs(&[index, ENTRIES.into()])), &[])
                && front.send(&message(request::SET_VRING_BASE, 1, &longs(&[index, base])), &[])
                && front.send(&message(request::SET_VRING_ADDR, 1, &addresses.concat()), &[])
                && front.send(&message(request::SET_VRING_CALL, 1, &wides(&[number])), &[call])
                && front.send(&message(request::SET_VRING_KICK, 1, &wides(&[number])), &[kick])
                && front.send(&message(request::SET_VRING_ENABLE, 1, &longs(&[index, 1])), &[]);
        }
        there
    }

    fn number(&self, input: &mut Input<'_>) -> u64 {
        match input.byte() % 8 {
            0 => input.wide(),
            1 => u64::from(input.long()),
            2 => USER + u64::from(input.word()),
            3 => USER + RINGS[0] + u64::from(input.byte()) * 16,
            4 => u64::from(input.word()) << 12,
            5 => ALL as u64,
            6 => u64::MAX - u64::from(input.byte()),
            _ => u64::from(input.byte()),
        }
    }

    fn index(input: &mut Input<'_>) -> u32 {
        let index = input.byte();
        if index < 200 { u32::from(index % 4) } else { input.long() }
    }

    /// One message, with what belongs to it or something else.
    fn say(&self, front: &Front, input: &mut Input<'_>) -> bool {
        use request::*;
        let mut code = u32::from(input.byte()) % LAST;
        // Those that change something come more often.
        if input.coin() {
            code = input.one(&[
                SET_MEM_TABLE,
                SET_VRING_NUM,
                SET_VRING_ADDR,
                SET_VRING_BASE,
                GET_VRING_BASE,
                SET_VRING_KICK,
                SET_VRING_CALL,
                SET_VRING_ENABLE,
                ADD_MEM_REG,
                REM_MEM_REG,
                SET_FEATURES,
                IOTLB,
                GET_INFLIGHT,
                SET_INFLIGHT,
                SET_LOG_BASE,
                SET_LOG_FD,
            ]);
        }
        let mut wanted = 0;
        let region = |input: &mut Input<'_>| match input.coin() {
            true => self.region(),
            false => [0; 4].map(|_| self.number(input)),
        };
        let mut payload = match code {
            SET_FEATURES => match input.coin() {
                true => wides(&[self.features & !(1 << (input.byte() % 64))]),
                false => wides(&[input.wide()]),
            },
            SET_PROTOCOL_FEATURES => wides(&[self.number(input)]),
            SET_MEM_TABLE => {
                let count = input.byte() % 10;
                wanted = count;
                let regions = (0..count).flat_map(|_| wides(&region(input)));
                let regions: Vec<u8> = regions.collect();
                [longs(&[u32::from(count), 0]), regions].concat()
            }
            ADD_MEM_REG | REM_MEM_REG => {
                wanted = u8::from(code == ADD_MEM_REG);
                [wides(&[0]), wides(&region(input))].concat()
            }
            SET_VRING_NUM | SET_VRING_BASE | GET_VRING_BASE | SET_VRING_ENABLE => {
                let index = Guest::index(input);
                longs(&[index, if input.coin() { u32::from(input.byte()) } else { input.long() }])
            }
            SET_VRING_ADDR => {
                let numbers = [0; 4].map(|_| self.number(input));
                [longs(&[Guest::index(input), input.long()]), wides(&numbers)].concat()
            }
            SET_VRING_KICK | SET_VRING_CALL | SET_VRING_ERR => {
                let index = Guest::index(input);
                wanted = u8::from(!input.byte().is_multiple_of(4));
                wides(&[u64::from(index) | if wanted == 0 { 0x100 } else { 0 }])
            }
            IOTLB => {
                let numbers = [0; 3].map(|_| self.number(input));
                [wides(&numbers), vec![input.byte() % 4, input.byte() % 8, 0, 0, 0, 0, 0, 0]].concat()
            }
            SET_LOG_BASE => {
                wanted = 1;
                wides(&[self.number(input), self.number(input)])
            }
            SET_LOG_FD => {
                wanted = 1;
                Vec::new()
            }
            GET_INFLIGHT | SET_INFLIGHT => {
                wanted = u8::from(code == SET_INFLIGHT);
                let sizes = [self.number(input), self.number(input)];
                [wides(&sizes), longs(&[input.long()])].concat()
            }
            _ => {
                let count = usize::from(input.byte());
                input.bytes(count).to_vec()
            }
        };
        let odd = input.byte();
        if odd & 15 == 1 {
            payload.truncate(usize::from(input.byte()));
        }
        if odd & 15 == 2 {
            payload.extend(input.bytes(8));
        }
        let flags = match odd >> 4 {
            0 => input.long(),
            1..=7 => 1,
            _ => 1 | 1 << 3,
        };
        let mut bytes = message(code, flags, &payload);
        if odd & 15 == 3 {
            bytes[8..12].copy_from_slice(&input.long().to_le_bytes());
        }
        let count = if odd & 15 == 4 { input.byte() % 40 } else { wanted };
        let fds: Vec<RawFd> = (0..count).map(|_| self.fd(input.byte())).collect();
        front.send(&bytes, &fds)
    }

    /// Changes what it has handed over: flags, counters, sizes. The first event is its own to write to, and stays as it is.
    fn change(&self, input: &mut Input<'_>) {
        let event = &self.events[1 + usize::from(input.byte()) % 2];
        match input.byte() % 3 {
            0 => {
                let _ = fcntl(event.as_fd(), FcntlArg::F_SETFL(OFlag::empty()));
            }
            1 => {
                let _ = fcntl(event.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
                let _ = event.write(u64::MAX - 1);
                let _ = fcntl(event.as_fd(), FcntlArg::F_SETFL(OFlag::empty()));
            }
            _ => {
                let _ = self.other.set_len(u64::from(input.word()));
            }
        }
    }

    /// Writes into memory what a driver would not, or sends a frame, or offers a buffer.
    fn act(&mut self, input: &mut Input<'_>) {
        let at = u64::from(input.word()) % (ALL as u64 - 0x100);
        match input.byte() % 4 {
            0 => self.memory.write(at, input.bytes(32)),
            1 => {
                let _ = self.drivers[0].offer(&self.memory, &[(at, 0x100, true)], Form::Chained);
            }
            2 => self.change(input),
            _ => {
                let mut frame = vec![0; 12];
                frame.extend([2, 0, 0, 0, 0, input.byte() % 4, 2, 0, 0, 0, 0, 0, 0x88, 0xb5]);
                frame.extend(input.bytes(64));
                let at = at % (RINGS[0] - 0x100);
                self.memory.write(at, &frame);
                let _ =
                    self.drivers[1].offer(&self.memory, &[(at, frame.len() as u32, false)], Form::Chained);
            }
        }
        let _ = self.events[0].write(1);
    }
}

/// The messages, the memory and the frames that these bytes say, and then traffic between others.
///
/// # Panics
/// When somebody else loses something, or something of the guest stays behind.
pub fn protocol(bytes: &[u8]) {
    let rig = rig();
    let mut neighbours = rig.neighbours.lock().unwrap_or_else(PoisonError::into_inner);
    let mut input = Input::new(bytes);
    let mut guest = Guest::new();
    let mut front = Front::connect(&rig.handle);
    let mut connections = 1;
    let round = || {
        let once = |engine: &mut Engine| {
            engine.wake_all();
            engine.round(0)
        };
        rig.handle.ask_each(|_| once).expect("the workers run");
        // What the other has handed over.
        rig.handle.ask(once).expect("the worker runs");
    };
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let there = match input.byte() % 10 {
            0 | 1 => guest.set_up(&front, &mut input),
            2..=4 => guest.say(&front, &mut input),
            5..=7 => {
                guest.act(&mut input);
                true
            }
            8 => {
                let there = front.wait();
                round();
                there
            }
            _ => {
                let count = usize::from(input.byte());
                let bytes = input.bytes(count);
                let fds: Vec<RawFd> = (0..input.byte() % 4).map(|_| guest.fd(input.byte())).collect();
                bytes.is_empty() || front.send(bytes, &fds)
            }
        };
        if !there || !front.drain() {
            if connections == CONNECTIONS {
                break;
            }
            connections += 1;
            drop(std::mem::replace(&mut front, Front::connect(&rig.handle)));
        }
    }
    front.wait();
    round();
    drop(front);
    assert_eq!(put_port(&rig.handle), [Some(0), Some(0)], "rings of a guest that has gone");
    neighbours.send();
    round();
    neighbours.received();
    neighbours.listened();
}
