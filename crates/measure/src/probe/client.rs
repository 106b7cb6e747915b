//! The client: sends requests, and takes the answers in.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    io,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use penstock_host::datagrams::{self, Datagrams};
use penstock_model::measurement::Load;
use thiserror::Error;

use super::{
    GREETING, TIMEOUT,
    outcome::{LATE, Late, Outcome, VERSION},
    packet::{self, LEAST, MOST, Packet},
    plan,
    tally::Tally,
};

/// How long a greeting is waited for before the next one.
const BETWEEN_GREETINGS: Duration = Duration::from_millis(20);

/// Sleeps by which it is told how late this machine's timers are, and how long each is.
const SLEEPS: u32 = 20;
const SLEEP: Duration = Duration::from_millis(1);

/// The sender never waits longer than this without sleeping: on a machine with few CPUs it would take the peer's.
const LONGEST_MARGIN: Duration = Duration::from_micros(100);

/// Nor for more than this share of the time between requests.
const SHARE: f64 = 0.2;

/// Refusals that one request is sent again after: each tells of an earlier one.
const AGAIN: u32 = 4;

/// The state of a request in the list of their times: it was answered, or given up.
const SETTLED: u64 = u64::MAX;

/// What to send.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// The local address to send from; the kernel chooses the port.
    pub bind: IpAddr,
    /// The server's address and UDP port.
    pub to: SocketAddr,
    /// What decides when a request leaves.
    pub load: Load,
    /// Bytes of a message.
    pub size: u32,
    /// For how long.
    pub dwell: Duration,
    /// What an open loop's times are drawn from.
    pub seed: u64,
}

/// A task that cannot be carried out. What the network does is an outcome and no error.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// No message has this size.
    #[error("a message of {size} bytes cannot be sent: it has from {LEAST} to {MOST}")]
    Size {
        /// As asked for.
        size: u32,
    },
    /// In this time no request, or too many, would be sent at this rate.
    #[error("{rate} requests a second for {} s cannot be sent: from 1 to {} in all can", dwell.as_secs_f64(), plan::MOST)]
    Rate {
        /// As asked for.
        rate: u32,
        /// For how long.
        dwell: Duration,
    },
    /// The socket could not be opened, bound or connected.
    #[error("could not send from {bind} to {to}: {why}")]
    Socket {
        /// The local address to send from.
        bind: IpAddr,
        /// The server's address and UDP port.
        to: SocketAddr,
        /// Why; in the message's one line, which is all that is kept of a tool that failed.
        why: io::Error,
    },
}

/// Sends requests and takes the answers in.
///
/// # Errors
///
/// [`ProbeError::Size`] for a size that no request has, [`ProbeError::Rate`] for a rate that cannot be scheduled in the time,
/// [`ProbeError::Socket`] when there is no socket to send from.
pub fn run(task: &Task) -> Result<Outcome, ProbeError> {
    if !packet::SIZES.contains(&task.size) {
        return Err(ProbeError::Size { size: task.size });
    }
    let times = match task.load {
        Load::Closed => None,
        Load::Open { rate } => Some(
            plan::poisson(rate, task.dwell, task.seed).ok_or(ProbeError::Rate { rate, dwell: task.dwell })?,
        ),
    };
    let connect = || {
        let socket = Datagrams::open(SocketAddr::new(task.bind, 0))?;
        socket.connect(task.to)?;
        Ok(socket)
    };
    let socket = connect().map_err(|why| ProbeError::Socket { bind: task.bind, to: task.to, why })?;
    // Without it the requests only leave a little later, which is measured.
    let _ = datagrams::exact_timers();
    let mut sender = Sender::new(socket, task.size);
    let greeted = sender.greet();
    let margin = match (task.load, greeted) {
        (Load::Open { rate }, true) => sender.margin(rate),
        _ => Duration::ZERO,
    };
    let (begin, cpu) = (Instant::now(), datagrams::cpu_time().ok());
    let sent_for = match (times, greeted) {
        // Requests into nothing tell no more than the greetings.
        (_, false) => Duration::ZERO,
        (Some(times), true) => sender.open(times, task.dwell, margin),
        (None, true) => sender.closed(task.dwell),
    };
    let elapsed = begin.elapsed();
    let cpu = datagrams::cpu_time().ok().zip(cpu).map(|(end, begin)| end.saturating_sub(begin));
    let percent = |cpu: Duration| 100.0 * cpu.as_secs_f64() / elapsed.as_secs_f64().max(1e-9);
    Ok(sender.outcome(task, greeted, sent_for, margin, cpu.map_or(0.0, percent)))
}

/// What has come in.
enum Came {
    /// The answer to this request, of the size that was asked for.
    Answer(u64),
    /// Something else; there may be more.
    Other,
    /// No datagram is waiting.
    Nothing,
}

struct Sender {
    socket: Datagrams,
    session: u64,
    request: Vec<u8>,
    buffer: Vec<u8>,
    latencies: Tally,
    lateness: Tally,
    sent: u64,
    late: u64,
    overdue: u64,
    unsent: u64,
    failed: u64,
    refused: u64,
    duplicates: u64,
    foreign: u64,
    error: Option<io::Error>,
}

impl Sender {
    fn new(socket: Datagrams, size: u32) -> Sender {
        Sender {
            socket,
            // The keys of a hasher are the only random numbers that std has.
            session: RandomState::new().build_hasher().finish(),
            request: vec![0; size as usize],
            buffer: vec![0; size as usize + 1],
            latencies: Tally::new(),
            lateness: Tally::new(),
            sent: 0,
            late: 0,
            overdue: 0,
            unsent: 0,
            failed: 0,
            refused: 0,
            duplicates: 0,
            foreign: 0,
            error: None,
        }
    }

    /// Sends greetings until one is answered: then the server is there, neighbours are resolved and caches are warm. Says
    /// whether one was.
    fn greet(&mut self) -> bool {
        let give_up = Instant::now() + GREETING;
        while Instant::now() < give_up {
            let _ = self.hand_over(packet::GREETING);
            let next = Instant::now() + BETWEEN_GREETINGS;
            // Also when what comes is never an answer: the next greeting is due.
            while self.wait(next) && Instant::now() < next {
                if matches!(self.take(), Came::Answer(packet::GREETING)) {
                    return true;
                }
            }
            // An error of the socket wakes at once.
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        false
    }

    /// How long before a request's time the sender wakes up: how late most sleeps ended here, within bounds.
    fn margin(&self, rate: u32) -> Duration {
        let mut late = [Duration::ZERO; SLEEPS as usize];
        for slot in &mut late {
            let until = Instant::now() + SLEEP;
            while Instant::now() < until && matches!(self.socket.wait(until), Ok(false)) {}
            *slot = Instant::now().saturating_duration_since(until);
        }
        late.sort_unstable();
        let share = Duration::from_secs_f64(SHARE / f64::from(rate.max(1)));
        late[late.len() * 9 / 10].min(LONGEST_MARGIN).min(share)
    }

    /// The next when the last was answered or given up. Gives how long it sent.
    fn closed(&mut self, dwell: Duration) -> Duration {
        let begin = Instant::now();
        let end = begin + dwell;
        let mut number = 0;
        loop {
            let left = Instant::now();
            if left >= end {
                return left.duration_since(begin);
            }
            if self.hand_over(number).is_ok() {
                let give_up = left + TIMEOUT;
                loop {
                    match self.take() {
                        Came::Answer(answered) if answered == number => {
                            self.latencies.count(nanoseconds(left, Instant::now()));
                            break;
                        }
                        // Of a request that was given up, or one that was answered before.
                        Came::Answer(packet::GREETING) => {}
                        Came::Answer(answered) if answered < number => self.overdue_or_again(),
                        Came::Answer(_) => self.foreign += 1,
                        Came::Other => {}
                        Came::Nothing => {
                            self.wait(give_up);
                        }
                    }
                    if Instant::now() >= give_up {
                        break;
                    }
                }
            } else {
                // Whatever hinders it (no route, a full queue): not as fast as the CPU can ask.
                self.wait(Instant::now() + SLEEP);
            }
            number += 1;
        }
    }

    /// In a closed loop at most one answer for each request that was lost can be overdue.
    fn overdue_or_again(&mut self) {
        // The request that is out is not lost yet.
        if self.overdue + self.latencies.total() + 1 < self.sent {
            self.overdue += 1;
        } else {
            self.duplicates += 1;
        }
    }

    /// Each at its time. `times` are in nanoseconds from the start. Gives how long it sent.
    fn open(&mut self, mut times: Vec<u64>, dwell: Duration, margin: Duration) -> Duration {
        let begin = Instant::now() + SLEEP;
        let give_up = begin + dwell + TIMEOUT;
        let timeout = TIMEOUT.as_nanos() as u64;
        let (mut next, mut open) = (0, 0usize);
        let mut sent_until = begin + dwell;
        loop {
            let now = Instant::now();
            let mut due = give_up;
            if let Some(time) = times.get(next).copied() {
                let at = begin + Duration::from_nanos(time);
                if now >= at {
                    match self.hand_over(next as u64) {
                        Ok(()) => {
                            open += 1;
                            let late = nanoseconds(at, now);
                            self.lateness.count(late);
                            self.late += u64::from(late > LATE);
                        }
                        Err(()) => times[next] = SETTLED,
                    }
                    next += 1;
                    if next == times.len() {
                        sent_until = sent_until.max(Instant::now());
                    }
                    // Answers have their turn between two requests, also for a sender that lags behind.
                    due = now;
                } else {
                    due = at.checked_sub(margin).unwrap_or(at);
                }
            } else if open == 0 {
                break;
            }
            match self.take() {
                // Only what was sent can be answered: `next` bounds it.
                Came::Answer(number) => match usize::try_from(number).ok().filter(|at| *at < next) {
                    None => self.foreign += u64::from(number != packet::GREETING),
                    Some(at) if times[at] == SETTLED => self.duplicates += 1,
                    Some(at) => {
                        let latency = nanoseconds(begin, Instant::now()).saturating_sub(times[at]);
                        times[at] = SETTLED;
                        open -= 1;
                        if latency > timeout {
                            self.overdue += 1;
                        } else {
                            self.latencies.count(latency);
                        }
                    }
                },
                Came::Other => {}
                Came::Nothing if due > now => {
                    self.wait(due);
                }
                Came::Nothing => {}
            }
            // Somebody who never stops sending is no reason to go on.
            if now >= give_up {
                break;
            }
        }
        self.unsent = (times.len() - next) as u64;
        if self.unsent > 0 { begin.elapsed() } else { sent_until.duration_since(begin) }
    }

    /// Hands a request to the kernel.
    fn hand_over(&mut self, number: u64) -> Result<(), ()> {
        Packet { answer: false, session: self.session, number }.write(&mut self.request);
        let counts = number != packet::GREETING;
        for _ in 0..AGAIN {
            match self.socket.send(&self.request) {
                Ok(()) => {
                    self.sent += u64::from(counts);
                    return Ok(());
                }
                // What the network said of an earlier request; this one was not sent.
                Err(error) if tells_of_earlier(&error) => self.refused_by(error),
                Err(error) => {
                    self.error.get_or_insert(error);
                    break;
                }
            }
        }
        self.failed += u64::from(counts);
        Err(())
    }

    fn refused_by(&mut self, error: io::Error) {
        self.refused += 1;
        self.error.get_or_insert(error);
    }

    /// Takes one datagram in.
    fn take(&mut self) -> Came {
        match self.socket.receive(&mut self.buffer) {
            Ok(None) => Came::Nothing,
            Ok(Some((length, _))) => {
                let own = |packet: &Packet| packet.answer && packet.session == self.session;
                let bytes = self.buffer.get(..length).filter(|bytes| bytes.len() == self.request.len());
                match bytes.and_then(Packet::read).filter(own) {
                    Some(packet) => Came::Answer(packet.number),
                    None => {
                        self.foreign += 1;
                        Came::Other
                    }
                }
            }
            Err(error) => {
                self.refused_by(error);
                Came::Other
            }
        }
    }

    fn wait(&mut self, until: Instant) -> bool {
        self.socket.wait(until).unwrap_or_else(|error| {
            self.error.get_or_insert(error);
            false
        })
    }

    fn outcome(
        &self,
        task: &Task,
        greeted: bool,
        sent_for: Duration,
        margin: Duration,
        cpu_percent: f64,
    ) -> Outcome {
        let received = self.latencies.total();
        let seconds = sent_for.as_secs_f64();
        let lateness = self.lateness.histogram();
        let late = self.lateness.ends().map(|ends| {
            let quantile = |q| lateness.quantile(q).unwrap_or_default().min(ends.max_ns);
            let margin_ns = margin.as_nanos() as u64;
            let (p50_ns, p99_ns) = (quantile(0.5), quantile(0.99));
            Late { margin_ns, sends: self.late, p50_ns, p99_ns, max_ns: ends.max_ns }
        });
        Outcome {
            penstock_probe: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            load: task.load,
            size: task.size,
            seconds,
            requested_rate: match task.load {
                Load::Open { rate } => Some(f64::from(rate)),
                Load::Closed => None,
            },
            achieved_rate: if seconds > 0.0 { self.sent as f64 / seconds } else { 0.0 },
            greeted,
            sent: self.sent,
            received,
            lost: self.sent - received,
            overdue: self.overdue,
            unsent: self.unsent,
            failed: self.failed,
            refused: self.refused,
            duplicates: self.duplicates,
            foreign: self.foreign,
            error: self.error.as_ref().map(ToString::to_string),
            cpu_percent,
            late,
            latency: self.latencies.ends(),
            histogram: self.latencies.histogram(),
        }
    }
}

fn nanoseconds(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
}

/// Whether an error of a socket tells what became of an earlier datagram (`ip(7)`, `udp(7)`: ICMP errors).
fn tells_of_earlier(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
}
