//! Proof that frames pass between interfaces, on the link layer: no IP, no routes, no neighbour tables.
//!
//! Every pair is tried at once. A frame counts when it comes in at the interface that it was sent to, with the number of
//! its pair and the number drawn at random for this run.
//!
//! An interface that nobody of ours listens at, as in a guest that nobody can look into, can still be asked for its
//! addresses: see [`NeighbourProbe`]. [`announce`] tells neighbours of addresses.

use std::{
    fs::File,
    io::{self, Read},
    net::IpAddr,
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, send},
};
use penstock_model::Mac;
use thiserror::Error;

use crate::{
    descriptors::Descriptors,
    namespace::{NamespaceError, within},
};

pub mod agent;
mod load;
mod neighbour;
mod neighbour_probe;
mod socket;
mod wire;

pub use load::{Carried, load};
use neighbour::Answer;
use neighbour_probe::NeighbourProbes;
pub use neighbour_probe::{NeighbourProbe, ProbeResult};

/// An interface that frames are sent from and received at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    Arrived,
    /// Frames were sent and none arrived.
    NotArrived,
    /// None could be sent, for this reason.
    SendFailed(String),
}

impl Reach {
    /// Whether nothing could be sent because the sender's network is down (`ENETDOWN`).
    pub fn is_down(&self) -> bool {
        matches!(self, Reach::SendFailed(why) if why == Errno::ENETDOWN.desc())
    }
}

/// Why nothing could be tried.
#[derive(Debug, Error)]
pub enum FramesError {
    /// The namespace of an endpoint could not be entered.
    #[error("could not reach the interface of {label}")]
    Namespace {
        /// The endpoint's label.
        label: String,
        /// Why its network namespace could not be entered.
        #[source]
        source: NamespaceError,
    },
    /// No socket could be made at an endpoint's interface.
    #[error("could not {attempt} at interface {interface} of {label}")]
    Socket {
        /// What was attempted.
        attempt: &'static str,
        /// The endpoint's label, or its MAC address.
        label: String,
        /// The index of its interface in its network namespace.
        interface: u32,
        /// Why: `EPERM` without `CAP_NET_RAW`, `ENODEV` when it is gone.
        #[source]
        source: io::Error,
    },
    /// A pair or a question names an endpoint that was not given.
    #[error("pair {pair} names endpoint {endpoint} of {count}")]
    NoSuchEndpoint {
        /// The position of the pair or question.
        pair: usize,
        /// The position of the endpoint, from 0.
        endpoint: usize,
        /// How many there are.
        count: usize,
    },
    /// The kernel could not be waited for, or gave no random number.
    #[error("could not {attempt}")]
    System {
        /// What was attempted.
        attempt: &'static str,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// Bytes of the number that is drawn for a run.
const NONCE: usize = 16;

/// How often a pair is tried, the last time early enough for the frame to arrive.
const ROUNDS: u32 = 6;
/// Frames sent between two looks at what came in, so that no queue fills while sending.
const BATCH: usize = 32;
/// How often is looked whether a question is given up.
const LOOK: Duration = Duration::from_millis(50);

/// Sends frames between each pair (from, to) of `endpoints` and says which arrived, after at most about `timeout`.
///
/// A frame that the NIC untagged into metadata counts: what is asked is whether it came in, not how it was dressed.
///
/// # Errors
///
/// [`FramesError`] when a namespace is gone or may not be entered, a socket cannot be opened at an interface (it takes
/// `CAP_NET_RAW`), or a pair names an endpoint that was not given.
pub fn reach(
    endpoints: &[Endpoint],
    pairs: &[(usize, usize)],
    timeout: Duration,
) -> Result<Vec<Reach>, FramesError> {
    reach_and_ask(endpoints, pairs, &[], ProbeTimeouts { arrival: timeout, silence: timeout })
        .map(|(reached, _)| reached)
}

/// Tells the neighbours of an interface that these addresses are at its MAC address now, so that whoever knew one elsewhere sends
/// there at once. A frame each, which may be lost like any; without a link it is.
///
/// # Errors
///
/// [`FramesError`] when one could not be sent.
pub fn announce(endpoint: &Endpoint, addresses: &[IpAddr]) -> Result<(), FramesError> {
    for address in addresses {
        let socket = open(endpoint, neighbour::ethertype(*address))?;
        let frame = neighbour::announcement(endpoint.mac, *address);
        send(socket.as_raw_fd(), &frame, MsgFlags::MSG_DONTWAIT).map_err(|errno| FramesError::Socket {
            attempt: "send an announcement",
            label: endpoint.label.clone(),
            interface: endpoint.interface,
            source: errno.into(),
        })?;
    }
    Ok(())
}

/// How long is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeTimeouts {
    /// A frame, and the answer of an interface that answers others; also what is not to come.
    pub arrival: Duration,
    /// The first answer of an interface, which may be one that answers nobody.
    pub silence: Duration,
}

/// As [`reach`], and asks `questions` meanwhile. It ends when all frames and all answers are there.
///
/// # Errors
///
/// [`FramesError`] when nothing could be tried.
pub fn reach_and_ask(
    endpoints: &[Endpoint],
    pairs: &[(usize, usize)],
    questions: &[NeighbourProbe],
    timeout: ProbeTimeouts,
) -> Result<(Vec<Reach>, Vec<ProbeResult>), FramesError> {
    let named = pairs.iter().map(|(from, to)| [*from, *to]);
    let neighbour_probe = questions.iter().map(|question| [question.from; 2]);
    for (pair, ends) in named.enumerate().chain(neighbour_probe.enumerate()) {
        if let Some(endpoint) = ends.into_iter().find(|end| *end >= endpoints.len()) {
            return Err(FramesError::NoSuchEndpoint { pair, endpoint, count: endpoints.len() });
        }
    }
    let mut nonce = [0; NONCE];
    draw(&mut nonce)?;
    let _descriptors = Descriptors::for_files(endpoints.len() + questions.len());
    let own = |endpoint: &Endpoint| open(endpoint, wire::ETHERTYPE);
    let sockets = match pairs {
        [] => Vec::new(),
        _ => endpoints.iter().map(own).collect::<Result<Vec<_>, _>>()?,
    };
    let neighbour_probe = NeighbourProbes::open(
        questions.iter().cloned(),
        |end| endpoints[end].mac,
        |end, ethertype| open(&endpoints[end], ethertype),
    )?;
    let mut run = Run {
        endpoints,
        pairs,
        sockets,
        neighbour_probe,
        nonce,
        states: vec![State::default(); pairs.len()],
        open: pairs.len(),
    };
    run.run(timeout)?;
    Ok((run.states.into_iter().map(State::outcome).collect(), run.neighbour_probe.outcomes()))
}

#[derive(Clone, Copy, Default)]
struct State {
    sent: bool,
    arrived: bool,
    failed: Option<Errno>,
}

impl State {
    fn outcome(self) -> Reach {
        match (self.sent, self.arrived, self.failed) {
            (true, true, _) => Reach::Arrived,
            (false, _, Some(errno)) => Reach::SendFailed(errno.desc().to_owned()),
            _ => Reach::NotArrived,
        }
    }
}

struct Run<'a> {
    endpoints: &'a [Endpoint],
    pairs: &'a [(usize, usize)],
    sockets: Vec<OwnedFd>,
    neighbour_probe: NeighbourProbes,
    nonce: [u8; NONCE],
    states: Vec<State>,
    /// Pairs of which nothing has arrived yet.
    open: usize,
}

impl Run<'_> {
    fn run(&mut self, timeout: ProbeTimeouts) -> Result<(), FramesError> {
        let slot = timeout.arrival / ROUNDS;
        let mut deadline = Instant::now() + timeout.arrival;
        for round in 0..ROUNDS {
            // The first round is always sent whole and given its time, however long a slow machine takes to send it.
            let end = (round > 0).then_some(deadline);
            self.send_round(end)?;
            deadline = deadline.max(Instant::now() + if round == 0 { slot * 2 } else { Duration::ZERO });
            let next = if round + 1 == ROUNDS { deadline } else { (Instant::now() + slot).min(deadline) };
            while self.waits(timeout) && Instant::now() < next {
                self.listen(timeout, next)?;
            }
            if !self.waits(timeout) || Instant::now() >= deadline {
                break;
            }
        }
        // What came while this process had no turn, for longer than it was to wait: no look was left for it.
        let mut before = usize::MAX;
        while self.open > 0 && self.open < before {
            before = self.open;
            self.take_in(Instant::now())?;
        }
        // One that has answered nobody yet may be given longer than what is not to come.
        while self.neighbour_probe.waits(timeout.arrival, timeout.silence) {
            self.listen(timeout, Instant::now() + timeout.silence)?;
        }
        Ok(())
    }

    fn waits(&self, timeout: ProbeTimeouts) -> bool {
        self.open > 0 || self.neighbour_probe.waits(timeout.arrival, timeout.silence)
    }

    /// Listens until something came in, or until `next` at the longest, and asks again what is due.
    fn listen(&mut self, timeout: ProbeTimeouts, next: Instant) -> Result<(), FramesError> {
        if !self.neighbour_probe.waits(timeout.arrival, timeout.silence) {
            return self.take_in(next);
        }
        if Instant::now() >= self.neighbour_probe.due() {
            self.ask_all()?;
        }
        // Not for longer than until somebody may have to be given up.
        self.take_in(next.min(self.neighbour_probe.due()).min(Instant::now() + LOOK))
    }

    fn ask_all(&mut self) -> Result<(), FramesError> {
        self.neighbour_probe.begin_round();
        let mut sent = 0;
        for number in 0..self.neighbour_probe.len() {
            sent += usize::from(self.neighbour_probe.ask(number));
            if sent == BATCH {
                sent = 0;
                self.take_in(Instant::now())?;
            }
        }
        Ok(())
    }

    /// Sends one frame for each pair of which nothing has arrived.
    fn send_round(&mut self, end: Option<Instant>) -> Result<(), FramesError> {
        let mut sent = 0;
        for number in 0..self.pairs.len() {
            if self.states[number].arrived {
                continue;
            }
            let (from, to) = self.pairs[number];
            let payload = payload(&self.nonce, number as u32);
            let frame = wire::frame(self.endpoints[from].mac, self.endpoints[to].mac, wire::REACH, &payload);
            let before = Instant::now();
            match send(self.sockets[from].as_raw_fd(), &frame, MsgFlags::MSG_DONTWAIT) {
                Ok(_) => self.states[number].sent = true,
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
        let (mut came, mut answers) = (Vec::new(), Vec::new());
        let own = self.sockets.len();
        let sockets: Vec<&OwnedFd> = self.sockets.iter().chain(&self.neighbour_probe.sockets).collect();
        socket::take_in(&sockets, until, |at, bytes| match at.checked_sub(own) {
            None => came.extend(wire::read(bytes, wire::REACH).map(|payload| (at, payload))),
            Some(at) => answers.extend(neighbour::answer(bytes).map(|answer: Answer| (at, answer))),
        })
        .map_err(|errno| FramesError::System { attempt: "wait for frames", source: errno.into() })?;
        for (at, payload) in came {
            self.arrived(at, &payload);
        }
        for (at, answer) in answers {
            self.neighbour_probe.hear(at, &answer);
        }
        Ok(())
    }

    fn arrived(&mut self, at: usize, payload: &wire::Payload) {
        let Some(number) = pair_of(payload, &self.nonce) else {
            return;
        };
        let number = number as usize;
        if self.pairs.get(number).is_none_or(|(_, to)| *to != at) {
            return;
        }
        let state = &mut self.states[number];
        if !state.arrived {
            state.arrived = true;
            self.open -= 1;
        }
    }
}

/// Fills `bytes` with what nobody can guess.
fn draw(bytes: &mut [u8]) -> Result<(), FramesError> {
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(bytes))
        .map_err(|source| FramesError::System { attempt: "draw a random number", source })
}

/// The number drawn for a run, then that of the pair.
fn payload(nonce: &[u8; NONCE], pair: u32) -> wire::Payload {
    let mut payload = wire::Payload::default();
    payload[..NONCE].copy_from_slice(nonce);
    payload[NONCE..].copy_from_slice(&pair.to_be_bytes());
    payload
}

/// The number of the pair that a frame of this run belongs to.
fn pair_of(payload: &wire::Payload, nonce: &[u8; NONCE]) -> Option<u32> {
    let (run, pair) = payload.split_at(NONCE);
    (run == nonce).then(|| u32::from_be_bytes(pair.try_into().unwrap_or_default()))
}

fn open(endpoint: &Endpoint, ethertype: u16) -> Result<OwnedFd, FramesError> {
    within(endpoint.namespace, || socket::open(endpoint.interface, ethertype))
        .map_err(|source| FramesError::Namespace { label: endpoint.label.clone(), source })?
        .map_err(|(attempt, errno)| FramesError::Socket {
            attempt,
            label: endpoint.label.clone(),
            interface: endpoint.interface,
            source: errno.into(),
        })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    /// As where the machine has no turn for this process from when it has sent until its time is over.
    #[test]
    fn what_has_come_when_the_time_is_over_has_arrived() {
        let (one, other) = UnixDatagram::pair().unwrap();
        let endpoints = [0, 1].map(|number| Endpoint {
            label: number.to_string(),
            namespace: None,
            interface: 1,
            mac: Mac::new([2, 0, 0, 0, 0, number]),
        });
        let mut run = Run {
            endpoints: &endpoints,
            pairs: &[(0, 1); 7],
            sockets: vec![one.into(), other.into()],
            neighbour_probe: NeighbourProbes::open([], |_| unreachable!(), |_, _| unreachable!()).unwrap(),
            nonce: [7; NONCE],
            states: vec![State::default(); 7],
            open: 7,
        };
        run.run(ProbeTimeouts { arrival: Duration::ZERO, silence: Duration::ZERO }).unwrap();
        assert_eq!(run.open, 0);
        assert!(run.states.iter().all(|state| state.outcome() == Reach::Arrived));
    }
}
