//! Proof that frames pass between interfaces, on the link layer: no IP, no routes, no neighbour tables.
//!
//! Every pair is tried at once. A frame counts when it comes in at the interface that it was sent to, with the number of
//! its pair and the number drawn at random for this run.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{
        AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike, bind, recv, send, setsockopt,
        socket, sockopt,
    },
};
use penstock_model::Mac;
use thiserror::Error;

use crate::namespace::{NamespaceError, within};

/// An interface that frames are sent from and received at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// What to call it in messages.
    pub label: String,
    /// A process that lives in its network namespace; `None` is the calling thread's own.
    pub namespace: Option<u32>,
    /// Its index in that namespace.
    pub interface: u32,
    /// Its MAC address.
    pub mac: Mac,
}

/// What became of one pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// A frame arrived.
    Arrived {
        /// How long after the first one was sent.
        after: Duration,
    },
    /// Frames were sent and none arrived.
    NotArrived,
    /// None could be sent, for this reason.
    SendFailed(String),
}

/// Why nothing could be tried.
#[derive(Debug, Error)]
pub enum FramesError {
    /// The namespace of an endpoint could not be entered.
    #[error("could not reach the interface of {label}")]
    Namespace {
        /// The endpoint.
        label: String,
        /// Why.
        #[source]
        source: NamespaceError,
    },
    /// No socket could be made at an endpoint's interface.
    #[error("could not {attempt} at interface {interface} of {label}")]
    Socket {
        /// What was attempted.
        attempt: &'static str,
        /// The endpoint.
        label: String,
        /// Its index.
        interface: u32,
        /// Why: `EPERM` without `CAP_NET_RAW`, `ENODEV` when it is gone.
        #[source]
        source: io::Error,
    },
    /// A pair names an endpoint that was not given.
    #[error("pair {pair} names endpoint {endpoint} of {count}")]
    NoSuchEndpoint {
        /// The pair's position.
        pair: usize,
        /// The endpoint's.
        endpoint: usize,
        /// How many there are.
        count: usize,
    },
    /// The kernel could not be waited for, or gave no random number.
    #[error("could not {attempt}")]
    System {
        /// What was attempted.
        attempt: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// IEEE 802 Local Experimental Ethertype 1 (IEEE 802-2014, 9.2.4): never anybody's production traffic.
const ETHERTYPE: u16 = 0x88b5;
const MAGIC: [u8; 8] = *b"penstock";
const NONCE: usize = 16;
const NONCE_AT: usize = 14 + MAGIC.len();
const PAIR_AT: usize = NONCE_AT + NONCE;
/// More than the least that Ethernet carries (60 without the checksum), so that no switch or driver pads it.
const LENGTH: usize = 64;

/// How often a pair is tried, the last time early enough for the frame to arrive.
const ROUNDS: u32 = 6;
/// Frames sent between two looks at what came in, so that no queue fills while sending.
const BATCH: usize = 32;
/// Frames read from one endpoint before the next one's turn.
const TURN: usize = 256;
/// Room for frames that came in and were not read yet, in bytes as the kernel counts them (about 800 for one).
const RECEIVE_BUFFER: usize = 4 << 20;

/// Sends frames between each pair (from, to) of `endpoints` and says which arrived, after at most about `patience`.
///
/// A frame that the NIC untagged into metadata counts: what is asked is whether it came in, not how it was dressed.
pub fn reach(
    endpoints: &[Endpoint],
    pairs: &[(usize, usize)],
    patience: Duration,
) -> Result<Vec<Reach>, FramesError> {
    for (pair, (from, to)) in pairs.iter().enumerate() {
        if let Some(endpoint) = [*from, *to].into_iter().find(|e| *e >= endpoints.len()) {
            return Err(FramesError::NoSuchEndpoint { pair, endpoint, count: endpoints.len() });
        }
    }
    let mut nonce = [0; NONCE];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut nonce))
        .map_err(|source| FramesError::System { attempt: "draw a random number", source })?;
    let sockets = endpoints.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let mut run = Run {
        endpoints,
        pairs,
        sockets,
        nonce,
        states: vec![State::default(); pairs.len()],
        open: pairs.len(),
    };
    run.run(patience)?;
    Ok(run.states.into_iter().map(State::outcome).collect())
}

#[derive(Clone, Copy, Default)]
struct State {
    sent: Option<Instant>,
    arrived: Option<Instant>,
    failed: Option<Errno>,
}

impl State {
    fn outcome(self) -> Reach {
        match (self.sent, self.arrived, self.failed) {
            (Some(sent), Some(arrived), _) => Reach::Arrived { after: arrived - sent },
            (None, _, Some(errno)) => Reach::SendFailed(errno.desc().to_owned()),
            _ => Reach::NotArrived,
        }
    }
}

struct Run<'a> {
    endpoints: &'a [Endpoint],
    pairs: &'a [(usize, usize)],
    sockets: Vec<OwnedFd>,
    nonce: [u8; NONCE],
    states: Vec<State>,
    /// Pairs of which nothing has arrived yet.
    open: usize,
}

impl Run<'_> {
    fn run(&mut self, patience: Duration) -> Result<(), FramesError> {
        let slot = patience / ROUNDS;
        let mut deadline = Instant::now() + patience;
        for round in 0..ROUNDS {
            // The first round is always sent whole and given its time, however long a slow machine takes to send it.
            let end = (round > 0).then_some(deadline);
            self.send_round(end)?;
            deadline = deadline.max(Instant::now() + if round == 0 { slot * 2 } else { Duration::ZERO });
            let next = if round + 1 == ROUNDS { deadline } else { (Instant::now() + slot).min(deadline) };
            while self.open > 0 && Instant::now() < next {
                self.take_in(next)?;
            }
            if self.open == 0 || Instant::now() >= deadline {
                break;
            }
        }
        Ok(())
    }

    /// Sends one frame for each pair of which nothing has arrived.
    fn send_round(&mut self, end: Option<Instant>) -> Result<(), FramesError> {
        let mut sent = 0;
        for number in 0..self.pairs.len() {
            if self.states[number].arrived.is_some() {
                continue;
            }
            let (from, to) = self.pairs[number];
            let frame = frame(self.endpoints[from].mac, self.endpoints[to].mac, &self.nonce, number as u32);
            let before = Instant::now();
            match send(self.sockets[from].as_raw_fd(), &frame, MsgFlags::MSG_DONTWAIT) {
                Ok(_) => {
                    self.states[number].sent.get_or_insert(before);
                }
                Err(errno) => self.states[number].failed = Some(errno),
            }
            sent += 1;
            if sent % BATCH == 0 {
                self.take_in(before)?;
                if end.is_some_and(|end| before >= end) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Takes in what has come, waiting for the first frame until `until`.
    fn take_in(&mut self, until: Instant) -> Result<(), FramesError> {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = match left.is_zero() {
            true => PollTimeout::ZERO,
            false => PollTimeout::try_from(left + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX),
        };
        let ready: Vec<usize> = {
            let mut polled: Vec<PollFd<'_>> =
                self.sockets.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
            match poll(&mut polled, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => {
                    return Err(FramesError::System { attempt: "wait for frames", source: errno.into() });
                }
            }
            let is_ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
            (0..polled.len()).filter(|at| is_ready(&polled[*at])).collect()
        };
        let mut buffer = [0; 2048];
        for at in ready {
            for _ in 0..TURN {
                match recv(self.sockets[at].as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                    Ok(length) => self.arrived(at, &buffer[..length]),
                    // Nothing more; or the interface went down, which is told once.
                    Err(_) => break,
                }
            }
        }
        Ok(())
    }

    fn arrived(&mut self, at: usize, bytes: &[u8]) {
        let Some(number) = pair_of(bytes, &self.nonce) else {
            return;
        };
        let number = number as usize;
        if self.pairs.get(number).is_none_or(|(_, to)| *to != at) {
            return;
        }
        let state = &mut self.states[number];
        if state.arrived.is_none() {
            state.arrived = Some(Instant::now());
            self.open -= 1;
        }
    }
}

fn frame(from: Mac, to: Mac, nonce: &[u8; NONCE], pair: u32) -> [u8; LENGTH] {
    let mut frame = [0; LENGTH];
    frame[..6].copy_from_slice(&to.octets());
    frame[6..12].copy_from_slice(&from.octets());
    frame[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
    frame[14..NONCE_AT].copy_from_slice(&MAGIC);
    frame[NONCE_AT..PAIR_AT].copy_from_slice(nonce);
    frame[PAIR_AT..PAIR_AT + 4].copy_from_slice(&pair.to_be_bytes());
    frame
}

/// The number of the pair that a frame of this run belongs to.
fn pair_of(bytes: &[u8], nonce: &[u8; NONCE]) -> Option<u32> {
    let ours = bytes.get(12..14)? == ETHERTYPE.to_be_bytes()
        && bytes.get(14..NONCE_AT)? == MAGIC
        && bytes.get(NONCE_AT..PAIR_AT)? == nonce;
    let pair = bytes.get(PAIR_AT..PAIR_AT + 4)?.try_into().ok()?;
    ours.then(|| u32::from_be_bytes(pair))
}

fn open(endpoint: &Endpoint) -> Result<OwnedFd, FramesError> {
    within(endpoint.namespace, || open_here(endpoint.interface))
        .map_err(|source| FramesError::Namespace { label: endpoint.label.clone(), source })?
        .map_err(|(attempt, errno)| FramesError::Socket {
            attempt,
            label: endpoint.label.clone(),
            interface: endpoint.interface,
            source: errno.into(),
        })
}

fn open_here(interface: u32) -> Result<OwnedFd, (&'static str, Errno)> {
    // With protocol 0 it receives nothing until it is bound: no frame of another interface slips in.
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None)
        .map_err(|errno| ("make a packet socket", errno))?;
    ignore_outgoing(&socket).map_err(|errno| ("leave own frames out", errno))?;
    // More than the system's limit needs CAP_NET_ADMIN; with less, a slow machine loses frames and they are sent again.
    let _ = setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER)
        .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER));
    bind(socket.as_raw_fd(), &link_address(interface)).map_err(|errno| ("listen", errno))?;
    Ok(socket)
}

/// Keeps what this host sends through the interface out of what the socket receives (Linux 4.20).
#[allow(unsafe_code)]
fn ignore_outgoing(socket: &OwnedFd) -> Result<(), Errno> {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open, and the option's value is an int that outlives the call, with its true size.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_IGNORE_OUTGOING,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    Errno::result(outcome).map(drop)
}

/// The address of all frames of our kind at an interface.
#[allow(unsafe_code)]
fn link_address(interface: u32) -> LinkAddr {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: ETHERTYPE.to_be(),
        sll_ifindex: interface.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` is a whole `sockaddr_ll` of that length, with its own family; `from_raw` copies it.
    unsafe { LinkAddr::from_raw((&raw const address).cast(), Some(length)) }
        .expect("a sockaddr_ll with the family AF_PACKET is a link address")
}
