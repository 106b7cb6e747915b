//! Frames between kernels: this host and the VMs on it, one agent each, all at once.
//!
//! A VM is reached by a command alone: it begins some time after it was asked for and ends some time before the answer is
//! there. So every agent keeps sending and listening for its whole window, and this host's own until the last VM's
//! answer. A frame that came in proves itself. One that did not proves something only if, whatever the delays were, the
//! sender surely sent while the receiver surely listened.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use penstock_host::{
    Command, Place, chain,
    frames::{
        Endpoint, NeighbourProbe, ProbeResult, Reach,
        agent::{self, Ask, Heard, LONGEST, ProbeReport, ProbeSocket, Send, Task},
    },
    interrupt,
};
use penstock_model::Mac;

/// A place under another kernel that frames are sent from and received in.
#[derive(Clone, Copy)]
pub struct Remote<'a> {
    /// Where the program that sends and receives is run.
    pub place: &'a dyn Place,
    /// This same program inside it.
    pub program: &'a str,
    /// How long a command there took from being asked for to being told, when one was run last.
    pub delay: Duration,
}

/// Where frames are sent from and received.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProbeEnd {
    /// The interface. Its namespace is of no meaning in a remote place.
    pub endpoint: Endpoint,
    /// The position of the remote place that it is in; `None` is under this host's kernel.
    pub remote: Option<usize>,
}

/// A pair of ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbePath {
    /// The position of the sender.
    pub from: usize,
    /// The position of the receiver.
    pub to: usize,
    /// Whether the frames are to arrive; then they are tried again while there is time.
    pub awaited: bool,
}

/// How often each frame is sent.
const EVERY: Duration = Duration::from_millis(150);

/// How long a frame may be under way on a slow machine.
const UNDER_WAY: Duration = Duration::from_millis(300);

/// How much longer a window is than the longest delay that was seen. Frames cross within milliseconds; what takes time
/// is that all get going, and that varies.
const SPARE: Duration = Duration::from_secs(2);

/// How much longer than its window a command inside may take to begin and to be heard of again.
const DELAY: Duration = Duration::from_secs(30);

/// So often the agents are put up: once, once with a window that fits the delays seen, and once more.
const ATTEMPTS: u32 = 3;

/// A longer answer is none: a VM's every word may be hostile.
const LONGEST_ANSWER: usize = 4 << 20;

/// What became of frames and questions; an error says why that cannot be said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeResults {
    /// What became of the frames of each path, in the order of the paths.
    pub frames: Vec<Result<Reach, String>>,
    /// What came of each question, in the order of the questions.
    pub answers: Vec<Result<ProbeResult, String>>,
}

/// Sends frames for all of `probe_paths` and asks `planned_probes`, whose [`NeighbourProbe::from`] is an end. What is not clear after
/// the first window is tried again with longer ones; what was awaited and did not arrive as long as `timeout` lasts.
pub fn reach(
    probe_ends: &[ProbeEnd],
    probe_paths: &[ProbePath],
    planned_probes: &[NeighbourProbe],
    remotes: &[Remote<'_>],
    timeout: Duration,
) -> ProbeResults {
    let began = Instant::now();
    let untried = || "not tried".to_owned();
    let mut probe_results = ProbeResults {
        frames: vec![Err(untried()); probe_paths.len()],
        answers: vec![Err(untried()); planned_probes.len()],
    };
    let mut open: Vec<usize> = (0..probe_paths.len()).collect();
    let mut unanswered: Vec<usize> = (0..planned_probes.len()).collect();
    // Two windows that are each told `delay` late surely meet for as long as they are longer than that.
    let window_for = |delay: Duration| (delay + SPARE).min(Duration::from_millis(LONGEST));
    let mut window = window_for(remotes.iter().map(|remote| remote.delay).max().unwrap_or_default());
    for attempt in 1..=ATTEMPTS {
        if (open.is_empty() && unanswered.is_empty()) || interrupt::pending() {
            break;
        }
        let tried: Vec<ProbePath> = open.iter().map(|at| probe_paths[*at]).collect();
        // Whoever is asked again is asked by all: silence says something beside an answer of the same window alone.
        let asked: BTreeSet<Mac> = unanswered.iter().map(|at| planned_probes[*at].to).collect();
        let asked: Vec<usize> =
            (0..planned_probes.len()).filter(|at| asked.contains(&planned_probes[*at].to)).collect();
        let asking: Vec<&NeighbourProbe> = asked.iter().map(|at| &planned_probes[*at]).collect();
        let round = match Round::draw(probe_ends, &tried, &asking, window) {
            Ok(round) => round,
            Err(why) => {
                open.iter().for_each(|at| probe_results.frames[*at] = Err(why.clone()));
                unanswered.iter().for_each(|at| probe_results.answers[*at] = Err(why.clone()));
                break;
            }
        };
        let answers = round.perform(probe_ends, remotes);
        let in_time = |awaited: bool| awaited && began.elapsed() < timeout;
        let mut again = Vec::new();
        for (number, at) in open.iter().enumerate() {
            let awaited = probe_paths[*at].awaited;
            let (outcome, settled) = match round.outcome(number, &answers) {
                Found::Arrived => (Ok(Reach::Arrived), true),
                Found::NotArrived => (Ok(Reach::NotArrived), !in_time(awaited)),
                Found::SendFailed(why) => (Ok(Reach::SendFailed(why)), !in_time(awaited)),
                Found::Unclear => (Err(UNCLEAR.to_owned()), false),
                Found::Lost(why) => (Err(why), true),
            };
            probe_results.frames[*at] = outcome;
            if !settled && attempt < ATTEMPTS {
                again.push(*at);
            }
        }
        open = again;
        let mut again = Vec::new();
        for (number, at) in asked.iter().enumerate().filter(|(_, at)| unanswered.contains(at)) {
            let outcome = round.asked(number, &answers);
            let settled = match &outcome {
                Ok(ProbeResult::NotAnswered | ProbeResult::SendFailed(_)) => {
                    !in_time(planned_probes[*at].awaited)
                }
                Ok(ProbeResult::Answered | ProbeResult::AnswersNobody) | Err(_) => true,
            };
            probe_results.answers[*at] = outcome;
            if !settled && attempt < ATTEMPTS {
                again.push(*at);
            }
        }
        unanswered = again;
        let delay = answers.values().flatten().map(Answer::delay).max().unwrap_or_default();
        window = window_for(delay).max(window);
    }
    probe_results
}

const UNTOLD: &str = "the question was not asked";

const UNCLEAR: &str = "nothing arrived, but the two may not have sent and listened at the same time";

/// What became of one frame.
enum Found {
    Arrived,
    NotArrived,
    SendFailed(String),
    /// Nothing came in, and nothing says that the receiver listened when the sender sent.
    Unclear,
    /// One of the two agents told nothing.
    Lost(String),
}

/// What an agent told, and between which times.
#[derive(Debug)]
struct Answer {
    asked: Instant,
    told: Instant,
    heard: Heard,
}

impl Answer {
    /// How long it listened: as it says, but no longer than it had.
    fn listened(&self) -> Duration {
        Duration::from_millis(self.heard.listened).min(self.told - self.asked)
    }

    /// What of the time until the answer was not spent listening.
    fn delay(&self) -> Duration {
        (self.told - self.asked) - self.listened()
    }

    /// From when to when it surely listened, wherever in its time the window was.
    fn surely(&self) -> (Instant, Instant) {
        (self.told - self.listened(), self.asked + self.listened())
    }
}

/// Whether `sender` surely sent at least once while `receiver` surely listened.
fn overlap(sender: &Answer, receiver: &Answer) -> bool {
    let (of_sender, of_receiver) = (sender.surely(), receiver.surely());
    let both = of_sender.1.min(of_receiver.1).checked_duration_since(of_sender.0.max(of_receiver.0));
    let gap = Duration::from_millis(sender.heard.gap);
    both.is_some_and(|both| both >= gap + UNDER_WAY)
}

/// The agent of an end: `None` is this host's.
type Site = Option<usize>;

/// What the agents told, each.
type Answers = BTreeMap<Site, Result<Answer, String>>;

fn answer_of<'a>(answers: &'a Answers, site: &Site) -> Result<&'a Answer, String> {
    match answers.get(site) {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(why)) => Err(why.clone()),
        None => Err("it was not asked".to_owned()),
    }
}

/// One window: what each agent does in it.
struct Round {
    tasks: BTreeMap<Site, Task>,
    /// By path: the sender's agent and the position of the frame in its task; the receiver's agent, the position
    /// of the stand there, and the frame's number.
    frames: Vec<(Site, usize, Site, u32, u64)>,
    /// By question: the agent that asks, the question's position in its task, who is asked.
    planned_probes: Vec<(Site, usize, Mac)>,
    /// By agent: the ends that are its stands.
    stands: BTreeMap<Site, Vec<usize>>,
}

impl Round {
    fn draw(
        probe_ends: &[ProbeEnd],
        probe_paths: &[ProbePath],
        planned_probes: &[&NeighbourProbe],
        window: Duration,
    ) -> Result<Round, String> {
        let numbers = agent::numbers(probe_paths.len()).map_err(|error| chain(&error))?;
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(LONGEST);
        let mut round = Round {
            tasks: BTreeMap::new(),
            frames: Vec::new(),
            planned_probes: Vec::new(),
            stands: BTreeMap::new(),
        };
        let stand = |round: &mut Round, probe_end: usize| {
            let ProbeEnd { endpoint, remote } = &probe_ends[probe_end];
            let task = round.tasks.entry(*remote).or_insert_with(|| Task {
                window: milliseconds(window),
                every: milliseconds(EVERY),
                ..Task::default()
            });
            let stands = round.stands.entry(*remote).or_default();
            let at = stands.iter().position(|at| *at == probe_end).unwrap_or_else(|| {
                stands.push(probe_end);
                task.stands.push(ProbeSocket { interface: endpoint.interface, mac: endpoint.mac });
                stands.len() - 1
            });
            at as u32
        };
        for (probe_path, number) in probe_paths.iter().zip(numbers) {
            let from = stand(&mut round, probe_path.from);
            let to = stand(&mut round, probe_path.to);
            let (sender, receiver) = (probe_ends[probe_path.from].remote, probe_ends[probe_path.to].remote);
            let mac = probe_ends[probe_path.to].endpoint.mac;
            let Some(task) = round.tasks.get_mut(&sender) else { continue };
            task.sends.push(Send(from, peer(&mut task.peers, mac), number));
            round.frames.push((sender, task.sends.len() - 1, receiver, to, number));
        }
        for question in planned_probes {
            let from = stand(&mut round, question.from);
            let site = probe_ends[question.from].remote;
            let Some(task) = round.tasks.get_mut(&site) else { continue };
            task.asks.push(Ask(from, peer(&mut task.peers, question.to), question.address));
            round.planned_probes.push((site, task.asks.len() - 1, question.to));
        }
        Ok(round)
    }

    /// Has every agent do its part, all at once.
    fn perform(&self, probe_ends: &[ProbeEnd], remotes: &[Remote<'_>]) -> Answers {
        let away: Vec<(usize, &Task)> =
            self.tasks.iter().filter_map(|(site, task)| Some(((*site)?, task))).collect();
        let left = AtomicUsize::new(away.len());
        let part = |remote: usize, task: &Task| {
            let _leaving = Leaving(&left);
            match remotes.get(remote) {
                Some(remote) => ask(remote, task),
                None => Err("there is no such place".to_owned()),
            }
        };
        let part = &part;
        thread::scope(|scope| {
            let asked: Vec<_> = away
                .iter()
                .map(|(remote, task)| (*remote, scope.spawn(move || part(*remote, task))))
                .collect();
            let mut answers = BTreeMap::new();
            if let Some(task) = self.tasks.get(&None) {
                answers.insert(None, self.here(probe_ends, task, &left));
            }
            for (remote, thread) in asked {
                let answer = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                answers.insert(Some(remote), answer);
            }
            answers
        })
    }

    /// This host's own part, until every other agent has told.
    fn here(&self, probe_ends: &[ProbeEnd], task: &Task, left: &AtomicUsize) -> Result<Answer, String> {
        let endpoints: Vec<Endpoint> =
            self.stands[&None].iter().map(|probe_end| probe_ends[*probe_end].endpoint.clone()).collect();
        let asked = Instant::now();
        let longest = Duration::from_millis(task.window) + 2 * DELAY;
        let done = || left.load(Ordering::Acquire) == 0 || interrupt::pending() || asked.elapsed() >= longest;
        let heard = agent::carry_out_at(&endpoints, task, done).map_err(|error| chain(&error))?;
        Ok(Answer { asked, told: Instant::now(), heard })
    }

    /// What became of a question.
    fn asked(&self, number: usize, answers: &Answers) -> Result<ProbeResult, String> {
        let of = |number: usize| {
            let (site, at, _) = self.planned_probes[number];
            let answer = answer_of(answers, &site)?;
            answer.heard.asked.get(at).copied().ok_or_else(|| UNTOLD.to_owned())
        };
        let (site, _, to) = self.planned_probes[number];
        match of(number)? {
            // Nobody answers before being asked.
            ProbeReport(1.., _, true) => Ok(ProbeResult::Answered),
            ProbeReport(0, Some(errno), _) => {
                Ok(ProbeResult::SendFailed(agent::error_text(errno).to_owned()))
            }
            ProbeReport(0, None, _) => Err(UNTOLD.to_owned()),
            ProbeReport(..) => {
                // What a VM says counts for its own paths alone: it cannot make another's silence mean something.
                let alive = |other: usize| {
                    let (at, _, asked) = self.planned_probes[other];
                    asked == to
                        && (at.is_none() || at == site)
                        && matches!(of(other), Ok(ProbeReport(1.., _, true)))
                };
                let alive = (0..self.planned_probes.len()).any(alive);
                Ok(if alive { ProbeResult::NotAnswered } else { ProbeResult::AnswersNobody })
            }
        }
    }

    fn outcome(&self, number: usize, answers: &Answers) -> Found {
        let (from, send, to, stand, nonce) = self.frames[number];
        let (sender, receiver) = match (answer_of(answers, &from), answer_of(answers, &to)) {
            (Ok(sender), Ok(receiver)) => (sender, receiver),
            (Err(why), _) | (_, Err(why)) => return Found::Lost(why),
        };
        if receiver.heard.arrived.contains(&(stand, nonce)) {
            return Found::Arrived;
        }
        match sender.heard.sent.get(send) {
            Some((0, Some(errno))) => Found::SendFailed(agent::error_text(*errno).to_owned()),
            Some((0, None)) | None => Found::Unclear,
            // An agent hears while it sends.
            Some(_) if from == to || overlap(sender, receiver) => Found::NotArrived,
            Some(_) => Found::Unclear,
        }
    }
}

/// The position of a peer, where it is put unless it is there.
fn peer(peers: &mut Vec<Mac>, mac: Mac) -> u32 {
    let at = peers.iter().position(|peer| *peer == mac).unwrap_or_else(|| {
        peers.push(mac);
        peers.len() - 1
    });
    at as u32
}

/// One agent fewer that has not told, however it ends.
struct Leaving<'a>(&'a AtomicUsize);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Has a place do its part by this same program there.
fn ask(remote: &Remote<'_>, task: &Task) -> Result<Answer, String> {
    let place = remote.place.describe();
    let input = serde_json::to_vec(task).map_err(|error| chain(&error))?;
    let command = Command::new(remote.program)
        .args(["inside", "frames"])
        .input(input)
        .deadline(Duration::from_millis(task.window) + DELAY);
    let asked = Instant::now();
    let output = remote.place.run(&command).map_err(|error| chain(&error))?;
    let told = Instant::now();
    if !output.status.success() {
        let said: String = output.errors().chars().filter(|c| !c.is_control()).take(200).collect();
        return Err(format!("no frames could be sent {place}: {said}"));
    }
    let heard = (output.stdout.len() <= LONGEST_ANSWER).then_some(&output.stdout);
    let heard = heard.and_then(|bytes| serde_json::from_slice::<Heard>(bytes).ok());
    match heard {
        Some(heard) if heard.sent.len() == task.sends.len() && heard.asked.len() == task.asks.len() => {
            Ok(Answer { asked, told, heard })
        }
        _ => Err(format!("the report {place} of its frames cannot be parsed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an agent told that was asked at `asked` ms and told at `told` ms.
    fn answer(start: Instant, asked: u64, told: u64, listened: u64, gap: u64) -> Answer {
        let at = |ms| start + Duration::from_millis(ms);
        let heard = Heard { listened, gap, ..Heard::default() };
        Answer { asked: at(asked), told: at(told), heard }
    }

    #[test]
    fn silence_proves_something_only_when_both_were_surely_at_it() {
        let start = Instant::now();
        // A host that begins at once, and a VM whose window of 3 s is somewhere in 4 s.
        let host = answer(start, 0, 4000, 4000, 160);
        let vm = answer(start, 0, 4000, 3000, 170);
        assert!(overlap(&host, &vm) && overlap(&vm, &host));
        // Asked at the same time, told late: the windows may lie apart.
        let slow = answer(start, 0, 5900, 3000, 170);
        assert!(!overlap(&vm, &slow) && !overlap(&slow, &vm));
        assert!(!overlap(&slow, &slow.again()), "even of two that are alike");
        // A sender that did not send for as long as both surely listened.
        let lazy = answer(start, 0, 4000, 3000, 1900);
        assert!(!overlap(&lazy, &host));
        assert!(overlap(&host, &lazy), "it listened all the same");
        // One that says that it listened for longer than it was there is not believed.
        let boast = answer(start, 0, 1000, 60_000, 10);
        assert_eq!(boast.listened(), Duration::from_millis(1000));
        assert!(!overlap(&answer(start, 1100, 4000, 2900, 10), &boast));
    }

    impl Answer {
        fn again(&self) -> Answer {
            Answer { asked: self.asked, told: self.told, heard: self.heard.clone() }
        }
    }
}
