//! One kernel's part in a run of frames that crosses kernels: a host and the VMs on it.
//!
//! Nobody can say "now" to all of them at once: a command takes its time to start inside a VM. So every agent sends
//! each of its frames again and again for its whole window, and listens meanwhile. What it heard, and how closely it
//! sent, lets whoever put the agents up say what silence means.
//!
//! Each frame carries a number drawn at random, which only its sender is told: an agent that names it has received it.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, send},
};
use penstock_model::Mac;
use serde::{Deserialize, Serialize};

use super::{
    Descriptors, Endpoint, FramesError, NeighbourProbe, NeighbourProbes, draw, neighbour, socket, wire,
};

/// What an agent is to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Where it sends and listens.
    pub stands: Vec<ProbeSocket>,
    /// The addresses that frames are sent to.
    pub peers: Vec<Mac>,
    /// What it sends, again and again.
    pub sends: Vec<Send>,
    /// What it asks, again and again until it is answered.
    #[serde(default)]
    pub asks: Vec<Ask>,
    /// How long it sends and listens, in milliseconds; at most [`LONGEST`].
    pub window: u64,
    /// How often it sends all of its frames, in milliseconds.
    pub every: u64,
}

/// An interface of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeSocket {
    /// Its index in its namespace.
    pub interface: u32,
    /// Its own address.
    pub mac: Mac,
}

/// A frame: position of the stand that sends it, position of the peer that it is for, its number. As an array in JSON: a
/// task goes into a VM as one argument of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Send(pub u32, pub u32, pub u64);

/// A question: position of the stand that asks, position of the peer that is asked, the address that it is to have; see
/// [`NeighbourProbe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask(pub u32, pub u32, pub IpAddr);

/// What became of a question: how often it was asked, the last error number (errno(3)), whether it was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeReport(pub u32, pub Option<i32>, pub bool);

/// What an agent tells afterwards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// The position of a stand and the number of a frame that came in there, each once.
    pub arrived: BTreeSet<(u32, u64)>,
    /// What became of [`Task::sends`], in their order: how often each was sent, and the last error number (errno(3)).
    pub sent: Vec<(u32, Option<i32>)>,
    /// What became of [`Task::asks`], in their order.
    #[serde(default)]
    pub asked: Vec<ProbeReport>,
    /// How long it sent and listened, in milliseconds.
    pub listened: u64,
    /// The longest that it did not send, in milliseconds.
    pub gap: u64,
}

/// The longest window, in milliseconds.
pub const LONGEST: u64 = 60_000;

/// More frames of our kind than this are not told of: somebody else is making them up.
const MOST_HEARD: usize = 1 << 16;

/// Frames sent between two looks at what came in, so that no queue fills while sending.
const BATCH: usize = 32;

/// Carries a task out in the calling thread's own network namespace, to the end of its window.
///
/// # Errors
///
/// [`FramesError`] when no socket can be made at a stand, or the task names what it does not have.
pub fn carry_out(task: &Task) -> Result<Heard, FramesError> {
    let open = |at: usize, ethertype: u16| {
        let stand = &task.stands[at];
        socket::open(stand.interface, ethertype).map_err(|(attempt, errno)| FramesError::Socket {
            attempt,
            label: stand.mac.to_string(),
            interface: stand.interface,
            source: errno.into(),
        })
    };
    let window = Duration::from_millis(task.window.min(LONGEST));
    let began = Instant::now();
    work(task, task.stands.len(), open, || began.elapsed() >= window)
}

/// Carries a task out at `endpoints`, which are its stands and may be in several namespaces, until `done` says so; that
/// is asked after each round.
///
/// # Errors
///
/// As [`carry_out`], and when a namespace cannot be entered.
pub fn carry_out_at(
    endpoints: &[Endpoint],
    task: &Task,
    done: impl FnMut() -> bool,
) -> Result<Heard, FramesError> {
    work(task, endpoints.len(), |at, ethertype| super::open(&endpoints[at], ethertype), done)
}

/// Carries out a task at `stands` stands, at which `open` opens a socket for an ethertype.
fn work(
    task: &Task,
    stands: usize,
    mut open: impl FnMut(usize, u16) -> Result<OwnedFd, FramesError>,
    mut done: impl FnMut() -> bool,
) -> Result<Heard, FramesError> {
    let stands = stands.min(task.stands.len());
    let _descriptors = Descriptors::for_files(stands + task.asks.len());
    let sends = task.sends.iter().map(|Send(stand, peer, _)| (stand, peer));
    let asks = task.asks.iter().map(|Ask(stand, peer, _)| (stand, peer));
    for (pair, (stand, peer)) in sends.enumerate().chain(asks.enumerate()) {
        let wrong = |endpoint: &u32, count: usize| FramesError::NoSuchEndpoint {
            pair,
            endpoint: *endpoint as usize,
            count,
        };
        if *stand as usize >= stands {
            return Err(wrong(stand, stands));
        }
        if *peer as usize >= task.peers.len() {
            return Err(wrong(peer, task.peers.len()));
        }
    }
    let sockets = (0..stands).map(|at| open(at, wire::ETHERTYPE)).collect::<Result<Vec<_>, _>>()?;
    let questions = task.asks.iter().map(|Ask(stand, peer, address)| NeighbourProbe {
        from: *stand as usize,
        to: task.peers[*peer as usize],
        address: *address,
        awaited: true,
    });
    let neighbour_probe = NeighbourProbes::open(questions, |at| task.stands[at].mac, open)?;
    let every = Duration::from_millis(task.every.clamp(10, LONGEST));
    let began = Instant::now();
    let mut agent = ProbeAgent {
        sockets,
        neighbour_probe,
        arrived: BTreeSet::new(),
        sent: vec![(0, None); task.sends.len()],
    };
    let (mut last, mut gap) = (began, Duration::ZERO);
    loop {
        let round = Instant::now();
        agent.send_round(task)?;
        gap = gap.max(round - last);
        last = round;
        let next = round + every;
        loop {
            agent.take_in(next)?;
            if Instant::now() >= next {
                break;
            }
        }
        if done() {
            break;
        }
    }
    let ended = Instant::now();
    gap = gap.max(ended - last);
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Ok(Heard {
        arrived: agent.arrived,
        sent: agent.sent,
        asked: agent
            .neighbour_probe
            .tallies()
            .map(|(sent, errno, answered)| ProbeReport(sent, errno.map(|errno| errno as i32), answered))
            .collect(),
        listened: milliseconds(ended - began),
        gap: milliseconds(gap),
    })
}

struct ProbeAgent {
    sockets: Vec<OwnedFd>,
    neighbour_probe: NeighbourProbes,
    arrived: BTreeSet<(u32, u64)>,
    sent: Vec<(u32, Option<i32>)>,
}

impl ProbeAgent {
    fn send_round(&mut self, task: &Task) -> Result<(), FramesError> {
        for (number, Send(stand, peer, nonce)) in task.sends.iter().enumerate() {
            let stand = *stand as usize;
            let mut payload = wire::Payload::default();
            payload[..8].copy_from_slice(&nonce.to_be_bytes());
            let frame =
                wire::frame(task.stands[stand].mac, task.peers[*peer as usize], wire::STATION, &payload);
            let sent = &mut self.sent[number];
            match send(self.sockets[stand].as_raw_fd(), &frame, MsgFlags::MSG_DONTWAIT) {
                Ok(_) => sent.0 = sent.0.saturating_add(1),
                Err(errno) => sent.1 = Some(errno as i32),
            }
            if (number + 1) % BATCH == 0 {
                self.take_in(Instant::now())?;
            }
        }
        let mut asked = 0;
        for number in 0..self.neighbour_probe.len() {
            asked += usize::from(self.neighbour_probe.ask(number));
            if asked == BATCH {
                asked = 0;
                self.take_in(Instant::now())?;
            }
        }
        Ok(())
    }

    fn take_in(&mut self, until: Instant) -> Result<(), FramesError> {
        let arrived = &mut self.arrived;
        let own = self.sockets.len();
        let mut answers = Vec::new();
        let sockets: Vec<&OwnedFd> = self.sockets.iter().chain(&self.neighbour_probe.sockets).collect();
        socket::take_in(&sockets, until, |at, bytes| {
            if let Some(at) = at.checked_sub(own) {
                answers.extend(neighbour::answer(bytes).map(|answer| (at, answer)));
                return;
            }
            let Some(payload) = wire::read(bytes, wire::STATION) else { return };
            let nonce = u64::from_be_bytes(payload[..8].try_into().unwrap_or_default());
            if arrived.len() < MOST_HEARD {
                arrived.insert((at as u32, nonce));
            }
        })
        .map_err(|errno| FramesError::System { attempt: "wait for frames", source: errno.into() })?;
        for (at, answer) in answers {
            self.neighbour_probe.hear(at, &answer);
        }
        Ok(())
    }
}

/// Numbers for `count` frames, which nobody can guess.
///
/// # Errors
///
/// [`FramesError`] when the kernel gives none.
pub fn numbers(count: usize) -> Result<Vec<u64>, FramesError> {
    let mut bytes = vec![0; count * 8];
    draw(&mut bytes)?;
    Ok(bytes.chunks_exact(8).map(|eight| u64::from_be_bytes(eight.try_into().unwrap_or_default())).collect())
}

/// What an error number says.
pub fn error_text(errno: i32) -> &'static str {
    Errno::from_raw(errno).desc()
}
