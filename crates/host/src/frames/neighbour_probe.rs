//! Questions that are being asked, and who answered.
//!
//! An answer counts when it came in where its question went out from, from the MAC address that was asked, to the one that
//! asked. No number drawn at random can be in it, so what it proves is what its sender lets it prove: a guest may answer
//! what it never got, and another may answer in its place only where the NIC lets it use a MAC address that is not its
//! own (`spoofchk: off`). Of paths between two others no guest can make anything up.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, send},
};
use penstock_model::Mac;

use super::{
    FramesError,
    neighbour::{self, Answer},
};

/// Whether an interface that nobody of ours listens at answers: ARP for an IPv4 address, neighbour discovery for IPv6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourProbe {
    /// The position of the endpoint that asks.
    pub from: usize,
    /// The MAC address that is asked, and no other.
    pub to: Mac,
    /// The address that it is to have.
    pub address: IpAddr,
    /// Whether the answer is to come.
    pub awaited: bool,
}

/// What became of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// It was answered: a frame arrived there, and one came back.
    Answered,
    /// It was not, while the same MAC address answered another end's question.
    NotAnswered,
    /// That MAC address answered nobody.
    AnswersNobody,
    /// The question could not be sent, for this reason.
    SendFailed(String),
}

/// How often a question is asked again.
const EVERY: Duration = Duration::from_millis(300);

/// How much longer than for the first answer of a guest others are waited for: the questions were asked together.
const TOGETHER: Duration = Duration::from_millis(200);

/// Questions with a socket for each end and kind.
pub struct NeighbourProbes {
    pub sockets: Vec<OwnedFd>,
    /// By socket: the end that it is at.
    ends: Vec<usize>,
    questions: Vec<Open>,
    /// What an answer is recognised by: the end, whom it asked, the address.
    known: BTreeMap<(usize, Mac, IpAddr), Vec<usize>>,
    /// Who answered anybody, since when.
    alive: BTreeMap<Mac, Instant>,
    began: Instant,
    last: Option<Instant>,
}

struct Open {
    question: NeighbourProbe,
    own: Mac,
    frame: Vec<u8>,
    socket: usize,
    sent: u32,
    failed: Option<Errno>,
    answered: bool,
}

impl NeighbourProbes {
    /// Opens a socket with `open` for each end and ethertype of these questions; `own` is the MAC address of an end.
    ///
    /// # Errors
    ///
    /// The first error of `open`.
    pub fn open(
        questions: impl IntoIterator<Item = NeighbourProbe>,
        own: impl Fn(usize) -> Mac,
        mut open: impl FnMut(usize, u16) -> Result<OwnedFd, FramesError>,
    ) -> Result<NeighbourProbes, FramesError> {
        let mut neighbour_probe = NeighbourProbes {
            sockets: Vec::new(),
            ends: Vec::new(),
            questions: Vec::new(),
            known: BTreeMap::new(),
            alive: BTreeMap::new(),
            began: Instant::now(),
            last: None,
        };
        let mut opened: BTreeMap<(usize, u16), usize> = BTreeMap::new();
        for question in questions {
            let (from, ethertype) = (question.from, neighbour::ethertype(question.address));
            let socket = match opened.get(&(from, ethertype)) {
                Some(socket) => *socket,
                None => {
                    neighbour_probe.sockets.push(open(from, ethertype)?);
                    neighbour_probe.ends.push(from);
                    opened.insert((from, ethertype), neighbour_probe.ends.len() - 1);
                    neighbour_probe.ends.len() - 1
                }
            };
            let key = (from, question.to, question.address);
            neighbour_probe.known.entry(key).or_default().push(neighbour_probe.questions.len());
            neighbour_probe.questions.push(Open {
                own: own(from),
                frame: neighbour::question(own(from), question.to, question.address),
                socket,
                sent: 0,
                failed: None,
                answered: false,
                question,
            });
        }
        Ok(neighbour_probe)
    }

    /// How many questions there are.
    pub fn len(&self) -> usize {
        self.questions.len()
    }

    /// From when on the questions are to be asked again.
    pub fn due(&self) -> Instant {
        self.last.map_or(self.began, |last| last + EVERY)
    }

    /// Notes that all questions are being asked now.
    pub fn begin_round(&mut self) {
        self.last = Some(Instant::now());
    }

    /// Asks one question, unless it was answered; says whether it did.
    pub fn ask(&mut self, number: usize) -> bool {
        let open = &mut self.questions[number];
        if open.answered {
            return false;
        }
        match send(self.sockets[open.socket].as_raw_fd(), &open.frame, MsgFlags::MSG_DONTWAIT) {
            Ok(_) => open.sent = open.sent.saturating_add(1),
            Err(errno) => open.failed = Some(errno),
        }
        true
    }

    /// Takes in an answer that came in at a socket.
    pub fn hear(&mut self, socket: usize, answer: &Answer) {
        let key = (self.ends[socket], answer.from, answer.address);
        for number in self.known.get(&key).into_iter().flatten() {
            let open = &mut self.questions[*number];
            // Nobody answers before being asked.
            if open.sent > 0 && open.own == answer.to {
                open.answered = true;
                self.alive.entry(answer.from).or_insert_with(Instant::now);
            }
        }
    }

    /// Whether there is still something to wait for. `timeout` is how long an answer may take of one who answers others,
    /// and how long those that are not to come are waited for; `silence` how long one may take to answer anybody.
    pub fn waits(&self, timeout: Duration, silence: Duration) -> bool {
        let elapsed = self.began.elapsed();
        let over = |open: &Open| match self.alive.get(&open.question.to) {
            _ if open.answered => true,
            Some(since) => elapsed >= timeout && since.elapsed() >= TOGETHER,
            None if open.question.awaited => elapsed >= silence,
            None => elapsed >= timeout,
        };
        !self.questions.iter().all(over)
    }

    /// By question: how often it was asked, the last error of sending it, whether it was answered.
    pub fn tallies(&self) -> impl Iterator<Item = (u32, Option<Errno>, bool)> {
        self.questions.iter().map(|open| (open.sent, open.failed, open.answered))
    }

    /// What became of each question.
    pub fn outcomes(&self) -> Vec<ProbeResult> {
        let alive: BTreeSet<Mac> = self.alive.keys().copied().collect();
        let outcome = |open: &Open| match open.failed {
            _ if open.answered => ProbeResult::Answered,
            Some(errno) if open.sent == 0 => ProbeResult::SendFailed(errno.desc().to_owned()),
            _ if alive.contains(&open.question.to) => ProbeResult::NotAnswered,
            _ => ProbeResult::AnswersNobody,
        };
        self.questions.iter().map(outcome).collect()
    }
}
