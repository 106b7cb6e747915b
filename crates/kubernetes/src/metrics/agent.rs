//! Where the agent has its metrics from: `penstock metrics` for the machine, files for claims, and what its parts know. What is not known is
//! left out, and said to be missing.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::watch;

use super::{
    exposition::AgentExposition,
    families::{
        AGENT_BUILD, AGENT_SCRAPE_ERRORS, CLAIM_INFO, CLAIM_PREPARE, CLAIM_UNPREPARE, CLAIMS,
        CLAIMS_TAKEN_BACK, DRIFT, DRIFTED, PUBLISHED_CURRENT, PUBLISHED_DEVICES, SLICES_CURRENT,
        SLICES_GENERATION,
    },
};
use crate::{
    claim::{
        StateError,
        state::{AttachStore, ClaimStore, PreparedClaim},
    },
    devices::Devices,
    health::Drift,
    log::LastingTrouble,
    penstock::Penstock,
};

/// How long `penstock metrics` may take: a scraper waits for 10 s unless it is told otherwise.
const MACHINE: Duration = Duration::from_secs(8);

/// So many series tell what has drifted, as in `penstock metrics`.
const DRIFTS: usize = 256;

/// The bounds of the buckets of durations, in seconds. Kubelet waits for 45 s.
const BUCKETS: [f64; 12] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 45.0];

/// Kubelet repeats a call that failed after some seconds, and at least each two minutes (`pod_workers.go`): a claim for which it has not called
/// for so long is not waited for any more.
const REPEATED: Duration = Duration::from_secs(180);

/// How long kubelet's calls took, which claims wait for their call to succeed, and what was taken back without one, since the agent was started.
/// Clones count together.
#[derive(Clone, Debug)]
pub struct ClaimTimings {
    prepare: [Histogram; 2],
    unprepare: [Histogram; 2],
    /// When a call to prepare a claim failed last, by its UID; of claims that were not prepared since.
    refused: Arc<Mutex<BTreeMap<String, Instant>>>,
    taken_back: Arc<AtomicU64>,
}

impl Default for ClaimTimings {
    fn default() -> ClaimTimings {
        let pair = || [Histogram::new(BUCKETS), Histogram::new(BUCKETS)];
        ClaimTimings {
            prepare: pair(),
            unprepare: pair(),
            refused: Arc::default(),
            taken_back: Arc::default(),
        }
    }
}

impl ClaimTimings {
    /// A call to prepare a claim has ended.
    pub fn prepared(&self, uid: &str, took: Duration, done: bool) {
        self.prepare[usize::from(!done)].observe(took.as_secs_f64());
        let mut refused = self.still_refused();
        if done {
            refused.remove(uid);
        } else {
            refused.insert(uid.to_owned(), Instant::now());
        }
    }

    /// How many claims wait for a call that succeeds, after one that did not.
    pub fn refused(&self) -> usize {
        self.still_refused().len()
    }

    /// Without those that are not waited for any more.
    fn still_refused(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        refused.retain(|_, at| now.duration_since(*at) < REPEATED);
        refused
    }

    /// A call to unprepare a claim has ended.
    pub fn unprepared(&self, uid: &str, took: Duration, done: bool) {
        self.still_refused().remove(uid);
        self.unprepare[usize::from(!done)].observe(took.as_secs_f64());
    }

    /// A claim was taken back without a call.
    pub fn taken_back(&self) {
        self.taken_back.fetch_add(1, Ordering::Relaxed);
    }

    fn put(&self, all: &mut AgentExposition) {
        for (family, pair, done) in
            [(&CLAIM_PREPARE, &self.prepare, "prepared"), (&CLAIM_UNPREPARE, &self.unprepare, "unprepared")]
        {
            for (histogram, outcome) in pair.iter().zip([done, "failed"]) {
                all.distribution(family, &[("outcome", outcome)], histogram);
            }
        }
        let taken_back = self.taken_back.load(Ordering::Relaxed);
        all.put(&CLAIMS_TAKEN_BACK, &[], i64::try_from(taken_back).unwrap_or(i64::MAX));
    }
}

/// How far slices are published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SliceProgress {
    /// The pool's generation.
    pub generation: i64,
    /// Whether the API server has what it should have.
    pub current: bool,
}

/// Where the agent has its metrics from.
pub struct AgentSources {
    /// `penstock`.
    pub penstock: Penstock,
    /// The driver's name.
    pub driver: String,
    /// The Node's name.
    pub node: String,
    /// The agent's directory.
    pub state: PathBuf,
    /// The model's file, where there is one.
    pub model: watch::Receiver<Option<PathBuf>>,
    /// The devices; `None` before the machine was seen.
    pub devices: watch::Receiver<Option<Arc<Devices>>>,
    /// Whether they are what the last look at the machine saw.
    pub current: watch::Receiver<bool>,
    /// What has drifted.
    pub drift: watch::Receiver<Drift>,
    /// How far slices are published; `None` before that is known.
    pub slices: watch::Receiver<Option<SliceProgress>>,
    /// How long calls took.
    pub timings: ClaimTimings,
    /// What is said where the machine cannot be read.
    pub of_machine: LastingTrouble,
    /// What is said where claims cannot be read.
    pub of_claims: LastingTrouble,
}

impl AgentSources {
    /// All of it, as OpenMetrics text. Blocks for as long as `penstock metrics` takes, 8 s at most.
    pub fn text(&mut self) -> String {
        let mut all = AgentExposition::default();
        let build = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("driver", self.driver.as_str()),
            ("node", self.node.as_str()),
        ];
        all.put(&AGENT_BUILD, &build, 1);
        let model = self.model.borrow().clone();
        let machine = self.of_machine.tried(self.penstock.metrics(model.as_deref(), MACHINE));
        all.put(&AGENT_SCRAPE_ERRORS, &[("what", "machine")], i64::from(machine.is_none()));
        let devices = self.devices.borrow().clone();
        let claims = self.claims();
        let unread = claims.as_ref().is_none_or(|claims| claims.unreadable > 0);
        all.put(&AGENT_SCRAPE_ERRORS, &[("what", "claims")], i64::from(unread));
        if let Some(devices) = &devices {
            all.put(&PUBLISHED_DEVICES, &[], devices.functions.len() as i64);
        }
        all.put(&PUBLISHED_CURRENT, &[], i64::from(*self.current.borrow()));
        if let Some(slices) = *self.slices.borrow() {
            all.put(&SLICES_GENERATION, &[], slices.generation);
            all.put(&SLICES_CURRENT, &[], i64::from(slices.current));
        }
        if let Some(claims) = &claims {
            put_claims(&mut all, claims, devices.as_deref());
            all.put(&CLAIMS, &[("state", "refused")], self.timings.refused() as i64);
        }
        self.timings.put(&mut all);
        if let Some(drifted) = self.drift.borrow().drifted() {
            for (subject, attribute) in drifted.iter().take(DRIFTS) {
                all.put(&DRIFT, &[("subject", subject.as_str()), ("attribute", attribute.as_str())], 1);
            }
            all.put(&DRIFTED, &[], drifted.len() as i64);
        }
        all.text_after(machine.as_deref().unwrap_or_default())
    }

    /// What is written down of claims; one that cannot be read is counted, and said.
    fn claims(&mut self) -> Option<ClaimsRead> {
        match ClaimsRead::of(&self.state) {
            Ok((claims, None)) => {
                self.of_claims.end();
                Some(claims)
            }
            Ok((claims, Some(error))) => {
                self.of_claims.meet(&error);
                Some(claims)
            }
            Err(error) => {
                self.of_claims.meet(&error);
                None
            }
        }
    }
}

/// How far a prepared claim has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ClaimState {
    /// All its devices are in a pod.
    Attached,
    /// No container has come to one of them yet.
    Waiting,
    /// The hook failed with one of them.
    Failed,
}

impl ClaimState {
    const ALL: [(ClaimState, &str); 3] = [
        (ClaimState::Waiting, "waiting"),
        (ClaimState::Attached, "attached"),
        (ClaimState::Failed, "failed"),
    ];

    /// A claim with how far it has come, by the hook's records.
    fn of(claim: PreparedClaim) -> Result<(PreparedClaim, ClaimState), StateError> {
        let records = AttachStore::open(&claim.run)?;
        let mut worst = ClaimState::Attached;
        for device in &claim.devices {
            let state = match records.read(&claim.uid, &device.device)? {
                Some(record) if record.failure.is_some() => ClaimState::Failed,
                Some(record) if record.attached.is_some() => ClaimState::Attached,
                Some(_) | None => ClaimState::Waiting,
            };
            worst = worst.max(state);
        }
        Ok((claim, worst))
    }
}

/// The claims that are prepared.
#[derive(Default)]
struct ClaimsRead {
    known: Vec<(PreparedClaim, ClaimState)>,
    /// How many others there are, of which something cannot be read.
    unreadable: usize,
}

impl ClaimsRead {
    /// What is written down of them, and what was wrong with the first that cannot be read.
    fn of(state: &Path) -> Result<(ClaimsRead, Option<StateError>), StateError> {
        let (mut read, mut wrong) = (ClaimsRead::default(), None);
        let Some(store) = ClaimStore::existing(state)? else { return Ok((read, wrong)) };
        for uid in store.uids()? {
            match store.read(&uid).and_then(|claim| claim.map(ClaimState::of).transpose()) {
                Ok(claim) => read.known.extend(claim),
                Err(error) => {
                    read.unreadable += 1;
                    wrong.get_or_insert(error);
                }
            }
        }
        Ok((read, wrong))
    }
}

fn put_claims(all: &mut AgentExposition, claims: &ClaimsRead, devices: Option<&Devices>) {
    for (claim, _) in &claims.known {
        // A series each for several pods would have a join by `bdf` fail, and which of them has the VF is not known.
        let pod = match claim.pods.as_slice() {
            [pod] => pod.name.as_str(),
            _ => "",
        };
        for device in &claim.devices {
            let published = devices.and_then(|devices| devices.functions.get(device.device.as_str()));
            let vf = published.map(|of| of.vf.to_string()).unwrap_or_default();
            let labels = [
                ("bdf", device.function.to_string()),
                ("nic", published.map(|of| of.nic.clone()).unwrap_or_default()),
                ("vf", vf),
                ("device", device.device.clone()),
                ("namespace", claim.namespace.clone()),
                ("pod", pod.to_owned()),
                ("claim", claim.name.clone()),
            ];
            all.put(&CLAIM_INFO, &labels.each_ref().map(|(name, value)| (*name, value.as_str())), 1);
        }
    }
    for (state, name) in ClaimState::ALL {
        let count = claims.known.iter().filter(|(_, of)| *of == state).count();
        all.put(&CLAIMS, &[("state", name)], count as i64);
    }
    all.put(&CLAIMS, &[("state", "unreadable")], claims.unreadable as i64);
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::claim::state::tests::claim;

    #[test]
    fn a_claim_that_cannot_be_read_is_counted_beside_the_others() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        let store = ClaimStore::open(directory.path()).unwrap();
        for uid in ["a", "b", "c"] {
            store.write(&PreparedClaim { run: run.clone(), ..claim(uid, "net0-0") }).unwrap();
        }
        std::fs::write(directory.path().join("claims/a.json"), "{").unwrap();
        std::fs::write(run_file(&run, "b.net0-0.json"), "{").unwrap();
        let (read, wrong) = ClaimsRead::of(directory.path()).unwrap();
        assert!(wrong.unwrap().to_string().contains("a.json"));
        let mut all = AgentExposition::default();
        put_claims(&mut all, &read, None);
        let text = all.text_after("");
        for (state, count) in [("unreadable", 2), ("waiting", 1), ("attached", 0)] {
            assert!(text.contains(&format!("penstock_claims{{state=\"{state}\"}} {count}\n")), "{text}");
        }
    }

    fn run_file(run: &Path, name: &str) -> PathBuf {
        AttachStore::open(run).unwrap();
        run.join(name)
    }

    #[test]
    fn a_claim_counts_as_refused_until_it_is_prepared_or_given_up() {
        let timings = ClaimTimings::default();
        let call = Duration::from_millis(7);
        for uid in ["a", "b", "c", "a"] {
            timings.prepared(uid, call, false);
        }
        assert_eq!(timings.refused(), 3);
        timings.prepared("a", call, true);
        timings.unprepared("b", call, true);
        assert_eq!(timings.refused(), 1);
        let long_ago = Instant::now().checked_sub(REPEATED).expect("the machine runs for longer");
        timings.refused.lock().unwrap().insert("c".to_owned(), long_ago);
        assert_eq!(timings.refused(), 0);
    }
}
