//! What became of a claim's devices is told on the claim: hooks wake this, it looks into the pod, and tells the API server. What pods have is
//! looked at each second besides (`poll.rs`), and told anew when it is not as it was given any more, or is so again.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use k8s_openapi::api::resource::v1::AllocatedDeviceStatus;
use penstock_host::{NetworkNamespace, chain, files};
use penstock_model::address::is_link_local;
use serde_json::Value;
use tokio::{
    net::UnixDatagram,
    sync::{Notify, mpsc, watch},
    task,
    time::{self, Instant},
};

use super::{
    ServeError,
    claim_api::{ClaimApi, ClaimApiError},
    poll::{self, ClaimVfs, VfInPod, VfPoll},
};
use crate::{
    attach::now,
    claim::{
        ClaimUid, Claims,
        network_plugin::CallError,
        parameters::VfMode,
        prepare::TURN,
        state::{AttachRecord, AttachStore, PreparedClaim, PreparedDevice, SOCKET, StateError},
        status::{self, DeviceInPod, DeviceOutcome},
    },
    health::{ClaimDrift, DriftEvent},
    log::say,
    pace::{Backoff, Bucket},
};

/// The plugin's answers where the VF is gone or something is not as it was given (docs/cni.md). By its others nobody knows.
const DIFFERS: [u64; 2] = [100, 103];

/// How long after a failure it is tried again, at first and at most.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Where containers are started, more are soon: what their hooks leave is looked at when none has run for so long...
const QUIET: Duration = Duration::from_millis(250);

/// ...or so long after the first. A look starts a program, and would take the processor from a hook that somebody waits for.
const LONGEST: Duration = Duration::from_secs(3);

/// A VF that changes all the time is looked at so often at once, and then once in so long: each time the cluster's store is written to.
const CHANGES: (u32, Duration) = (10, Duration::from_secs(10));

/// While a VF is not as it was given all of it is compared so often: an address or a route that is back makes it differ from the second before in
/// nothing that is looked at each time.
const DIFFERING: Duration = Duration::from_secs(10);

/// Whom the agent tells of what pods have.
#[derive(Clone, Debug)]
pub struct ClaimDriftReport {
    /// Gets what is not as it was given now.
    pub now: watch::Sender<Arc<ClaimDrift>>,
    /// Gets what has come to be so, or to be over.
    pub news: mpsc::Sender<DriftEvent>,
}

/// Tells what became of claims.
#[derive(Debug)]
pub struct Reporter<C> {
    claims: Claims,
    api: Arc<C>,
    node: String,
    drift: ClaimDriftReport,
    socket: UnixDatagram,
    path: PathBuf,
    woken: Arc<WokenClaims>,
}

/// The VFs of a claim in the past.
#[derive(Clone, Debug, Default)]
struct FormerVfs {
    /// As they were right before they were looked at last: what changes meanwhile differs from that the next time.
    seen: ClaimVfs,
    /// As they were when they were first as they were given.
    given: ClaimVfs,
}

/// What is remembered of a claim that a container has come to.
#[derive(Debug)]
struct ReportedClaim {
    vfs: FormerVfs,
    /// What the API server was told of its devices, as far as this agent knows, or has refused for good.
    devices: Option<Vec<AllocatedDeviceStatus>>,
    /// What of it is not as it was given.
    drifted: ClaimDrift,
    /// The devices that were told to differ, and not to be as they were given again.
    differing: BTreeSet<String>,
    /// The Events that pods were told last.
    events: Vec<Value>,
    /// When it was looked at last.
    looked: Instant,
    changes: Bucket,
}

impl Default for ReportedClaim {
    fn default() -> ReportedClaim {
        ReportedClaim {
            vfs: FormerVfs::default(),
            devices: None,
            drifted: ClaimDrift::new(),
            differing: BTreeSet::new(),
            events: Vec::new(),
            looked: Instant::now(),
            changes: Bucket::new(CHANGES.0, CHANGES.1, std::time::Instant::now()),
        }
    }
}

type ReportedClaims = BTreeMap<ClaimUid, ReportedClaim>;

/// Claims whose hooks have run, until no more hooks do.
#[derive(Debug, Default)]
struct PendingHooks {
    claims: BTreeSet<ClaimUid>,
    /// When the first and the last were heard.
    heard: Option<(Instant, Instant)>,
}

impl PendingHooks {
    fn add(&mut self, mut claims: BTreeSet<ClaimUid>, now: Instant) {
        if !claims.is_empty() {
            self.claims.append(&mut claims);
            self.heard = Some((self.heard.map_or(now, |(first, _)| first), now));
        }
    }

    /// When they are to be looked at.
    fn due(&self) -> Option<Instant> {
        self.heard.map(|(first, last)| (last + QUIET).min(first + LONGEST))
    }

    /// All of them when it is time, else none.
    fn take(&mut self, now: Instant) -> BTreeSet<ClaimUid> {
        if self.due().is_none_or(|due| now < due) {
            return BTreeSet::new();
        }
        self.heard = None;
        std::mem::take(&mut self.claims)
    }
}

/// The claims that are to be told of since somebody looked, and whether something else was told of them.
#[derive(Debug, Default)]
pub(super) struct WokenClaims {
    claims: Mutex<BTreeMap<ClaimUid, bool>>,
    notify: Notify,
}

impl WokenClaims {
    /// A hook has run for this claim, or somebody else than the reporter has told of it: it is told anew.
    pub(super) fn add(&self, uid: ClaimUid, told_otherwise: bool) {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        *claims.entry(uid).or_default() |= told_otherwise;
        self.notify.notify_one();
    }

    fn take(&self) -> BTreeMap<ClaimUid, bool> {
        std::mem::take(&mut self.claims.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<C: ClaimApi> Reporter<C> {
    /// Opens the socket on which hooks tell that they have run.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn open(
        claims: Claims,
        api: Arc<C>,
        node: &str,
        drift: ClaimDriftReport,
    ) -> Result<Reporter<C>, ServeError> {
        let run = &claims.settings.run;
        AttachStore::open(run)?;
        let path = run.join(SOCKET);
        files::remove_file(&path)?;
        let socket =
            UnixDatagram::bind(&path).map_err(|source| ServeError::Listen { path: path.clone(), source })?;
        files::set_mode(&path, 0o600)?;
        let woken = Arc::default();
        Ok(Reporter { claims, api, node: node.to_owned(), drift, socket, path, woken })
    }

    /// Where it is said that a claim is to be told of.
    pub(super) fn woken(&self) -> Arc<WokenClaims> {
        self.woken.clone()
    }

    /// Tells of all claims that there are, and then of each whose hook has run, or whose VFs are otherwise than they were. It does not end.
    pub async fn report(&self) {
        tokio::select! {
            () = self.listen() => {}
            () = self.tell_all() => {}
        }
    }

    /// Hears hooks at any time: few datagrams wait in a socket (`net.unix.max_dgram_qlen`), and no hook waits for room.
    async fn listen(&self) {
        loop {
            let mut datagram = [0; 128];
            match self.socket.recv(&mut datagram).await {
                Ok(length) => {
                    if let Ok(uid) = String::from_utf8_lossy(&datagram[..length]).parse() {
                        self.woken.add(uid, false);
                    }
                }
                Err(error) => {
                    say(format!("could not read {}: {error}", self.path.display()));
                    time::sleep(AGAIN.1).await;
                }
            }
        }
    }

    async fn tell_all(&self) {
        let mut waiting = self.all().await.unwrap_or_default();
        let mut ran = PendingHooks::default();
        let mut told = ReportedClaims::new();
        let mut poll = Instant::now();
        // Those that are to be told of again, each when it is its time.
        let mut again: BTreeMap<ClaimUid, (Instant, Backoff)> = BTreeMap::new();
        loop {
            let now = Instant::now();
            let woken = self.woken.take();
            for (uid, _) in woken.iter().filter(|(_, told_otherwise)| **told_otherwise) {
                told.entry(uid.clone()).and_modify(|of| of.devices = None);
            }
            ran.add(woken.into_keys().collect(), now);
            let of_hooks = ran.take(now);
            waiting.extend(of_hooks.iter().cloned());
            waiting.extend(again.iter().filter(|(_, (at, _))| *at <= now).map(|(uid, _)| uid.clone()));
            if now >= poll && !told.is_empty() {
                waiting.append(&mut self.changed(&mut told).await);
                poll = Instant::now() + poll::pause(now.elapsed());
            }
            let mut looks = Vec::new();
            for uid in std::mem::take(&mut waiting) {
                let look = self.look(&uid, &mut told).await;
                // Kubelet hears of it whatever the API server does, which is told when all were looked at.
                self.show(&told);
                looks.push((uid, look));
            }
            self.show(&told);
            for (uid, look) in looks {
                let done = match look {
                    Ok(Some(look)) => self.tell(look, &mut told, of_hooks.contains(&uid)).await,
                    Ok(None) => true,
                    Err(LookAgain) => false,
                };
                if done {
                    again.remove(&uid);
                    continue;
                }
                let (at, backoff) = again.entry(uid).or_insert_with(|| (now, Backoff::new(AGAIN.0, AGAIN.1)));
                *at = Instant::now() + backoff.failed();
            }
            let next = again.values().map(|(at, _)| *at).chain(ran.due());
            // Where no pod has anything nothing is looked at.
            match next.chain((!told.is_empty()).then_some(poll)).min() {
                None => self.woken.notify.notified().await,
                Some(at) => drop(time::timeout_at(at, self.woken.notify.notified()).await),
            }
        }
    }

    /// The claims whose VFs are otherwise than when they were looked at. Those that are prepared no more are forgotten.
    async fn changed(&self, told: &mut ReportedClaims) -> BTreeSet<ClaimUid> {
        let (claims, of) = (self.claims.clone(), told.keys().cloned().collect::<Vec<_>>());
        let looked = self.blocking("look at what pods have", move || poll::all(&claims, of)).await;
        let Some(Ok(seen)) = looked else { return BTreeSet::new() };
        told.retain(|uid, _| seen.contains_key(uid));
        let mut changed = BTreeSet::new();
        for (uid, of) in told.iter_mut() {
            let Some(now) = seen.get(uid) else { continue };
            let is_due = !of.drifted.is_empty() && of.looked.elapsed() >= DIFFERING;
            let still_differs = is_due && now.iter().any(Option::is_some);
            if still_differs
                || poll::differs(&of.vfs.seen, now) && of.changes.take(std::time::Instant::now()).is_ok()
            {
                changed.insert(uid.clone());
            }
        }
        changed
    }

    /// Tells the rest of the agent what is not as it was given.
    fn show(&self, told: &ReportedClaims) {
        let all: ClaimDrift = told.values().flat_map(|of| of.drifted.clone()).collect();
        self.drift.now.send_if_modified(|before| {
            let differs = **before != all;
            if differs {
                *before = Arc::new(all);
            }
            differs
        });
    }

    /// By their files' names: one that cannot be read keeps no other from being told of.
    async fn all(&self) -> Option<BTreeSet<ClaimUid>> {
        let claims = self.claims.clone();
        let listed = self.blocking("list what is prepared", move || claims.store()?.uids()).await?;
        Some(listed.ok()?.into_iter().collect())
    }

    /// What comes of work that waits for files and programs; what fails is said. `None` when its thread is gone.
    async fn blocking<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce() -> Result<T, StateError> + Send + 'static,
    ) -> Option<Result<T, StateError>> {
        let done = task::spawn_blocking(work).await;
        match &done {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => say(format!("could not {what}: {}", chain(error))),
            Err(error) => say(format!("could not {what}: {error}")),
        }
        done.ok()
    }

    /// Looks at one claim, and takes note of what is not as it was given. `None` when there is nothing to tell of it.
    async fn look(&self, uid: &ClaimUid, all: &mut ReportedClaims) -> Result<Option<ClaimLook>, LookAgain> {
        let (claims, of) = (self.claims.clone(), uid.clone());
        let former = all.get(uid).map(|told| told.vfs.clone()).unwrap_or_default();
        let looked =
            self.blocking(&format!("look at claim {uid}"), move || look(&claims, &of, &former)).await;
        let look = match looked {
            Some(Ok(Some(look))) => look,
            Some(Ok(None)) => {
                all.remove(uid);
                return Ok(None);
            }
            // What cannot be understood now cannot be later.
            Some(Err(StateError::Damaged { .. })) | None => return Ok(None),
            Some(Err(_)) => return Err(LookAgain),
        };
        if look.is_told() {
            let told = all.entry(uid.clone()).or_default();
            told.drifted = drifted(&look.of_pods(), &told.drifted);
            (told.vfs, told.looked) = (look.vfs.clone(), Instant::now());
        } else {
            all.remove(uid);
        }
        Ok(Some(look))
    }

    /// Tells of one claim; whether that is done with. What was told already is told again only of a hook that has run.
    async fn tell(&self, look: ClaimLook, all: &mut ReportedClaims, hook_has_run: bool) -> bool {
        let (claim, outcomes) = (&look.claim, &look.outcomes);
        let uid = &claim.uid;
        let unseen = outcomes.iter().find_map(|outcome| match &outcome.seen {
            DeviceInPod::Unknown { why } => Some(why),
            _ => None,
        });
        if let Some(why) = unseen {
            say(format!("claim {uid} could not all be looked at, and is again: {why}"));
        }
        let mut done = unseen.is_none();
        if let Some(told) = all.get_mut(uid) {
            let former = match told.devices.clone() {
                None => self.former(claim).await,
                former => former,
            };
            match former {
                Some(former) => done &= self.tell_devices(&look, told, &former, hook_has_run).await,
                None => done = false,
            }
        }
        let mut are_told = true;
        let events = status::events(claim, outcomes, &self.node, SystemTime::now());
        if all.get(uid).is_none_or(|told| told.events != events) {
            for event in &events {
                are_told &= self.settled(self.api.tell_event(&claim.namespace, event).await);
            }
        }
        if let Some(told) = all.get_mut(uid).filter(|_| are_told) {
            told.events = events;
        }
        if are_told && outcomes.iter().any(|outcome| outcome.refused.is_some()) {
            let claims = self.claims.clone();
            let ClaimLook { claim, outcomes, .. } = look;
            let what = format!("forget who was refused claim {}", claim.uid);
            // One that stays is told once more.
            self.blocking(&what, move || forget_refusals(&claims, &claim, &outcomes)).await;
        }
        done && are_told
    }

    /// Tells of the devices of a claim, of which `former` was told before; whether that is done with.
    async fn tell_devices(
        &self,
        look: &ClaimLook,
        told: &mut ReportedClaim,
        former: &[AllocatedDeviceStatus],
        hook_has_run: bool,
    ) -> bool {
        for news in status::drift_news(&look.claim, &look.of_pods(), former, &mut told.differing) {
            // Where so much is told that nobody comes to write it, the condition tells the state.
            drop(self.drift.news.try_send(news));
        }
        let claim = &look.claim;
        let Some(status) = status::status(claim, &look.outcomes, former, &now()) else { return true };
        if !hook_has_run && status::devices(&status) == former {
            return true;
        }
        let settled = self.settled(self.api.tell_claim(&claim.namespace, &claim.name, &status).await);
        // What is refused for good would be each time.
        told.devices = settled.then(|| status::devices(&status));
        settled
    }

    /// What was told of the devices of a claim that are this agent's; `None` where the API server does not say.
    async fn former(&self, claim: &PreparedClaim) -> Option<Vec<AllocatedDeviceStatus>> {
        match self.api.claim(&claim.namespace, &claim.name).await {
            Ok(there) => {
                let same = there.filter(|there| there.metadata.uid.as_deref() == Some(claim.uid.as_str()));
                let mut told = same.and_then(|there| there.status?.devices).unwrap_or_default();
                let own = |pool: &str| claim.devices.iter().any(|device| device.pool == pool);
                told.retain(|told| told.driver == claim.driver && own(&told.pool));
                Some(told)
            }
            Err(error) => {
                say(chain(&error));
                None
            }
        }
    }

    /// Whether something need not be told again.
    fn settled(&self, told: Result<(), ClaimApiError>) -> bool {
        let Err(error) = told else { return true };
        let settled = error.is_final();
        say(format!("{}{}", chain(&error), if settled { "" } else { "; it is tried again" }));
        settled
    }
}

impl<C> Drop for Reporter<C> {
    fn drop(&mut self) {
        // The next agent removes it too.
        let _ = files::remove_file(&self.path);
    }
}

/// A claim could not be looked at, and may be later.
struct LookAgain;

/// A claim, and what is seen of its devices.
struct ClaimLook {
    claim: PreparedClaim,
    outcomes: Vec<DeviceOutcome>,
    vfs: FormerVfs,
}

impl ClaimLook {
    /// Looks at a claim whose VFs were as `former` says.
    fn at(claims: &Claims, claim: PreparedClaim, former: &FormerVfs) -> Result<ClaimLook, StateError> {
        let records = claims.records(Some(&claim))?;
        let seen = VfPoll::new(&claims.settings.root).at(claims, &claim)?;
        let mut outcomes = outcomes(claims, &records, &claim)?;
        let mut given = Vec::new();
        for (position, (now, outcome)) in seen.iter().zip(&mut outcomes).enumerate() {
            let of = |vfs: &ClaimVfs| vfs.get(position).cloned().flatten();
            given.push(compared(outcome, now.as_ref(), of(&former.seen), of(&former.given)));
        }
        Ok(ClaimLook { claim, outcomes, vfs: FormerVfs { seen, given } })
    }

    /// Whether a container has come to a device, so that there is something to tell.
    fn is_told(&self) -> bool {
        let is_told =
            |outcome: &DeviceOutcome| outcome.failure().is_some() || outcome.seen != DeviceInPod::Waits;
        self.outcomes.iter().any(is_told)
    }

    /// Its devices, without those that a pod which has ended may have left in any way.
    fn of_pods(&self) -> Vec<(&PreparedDevice, &DeviceOutcome)> {
        let lives = |((_, outcome), now): &((&PreparedDevice, &DeviceOutcome), &Option<VfInPod>)| {
            now.is_some() || !matches!(outcome.seen, DeviceInPod::Differs { .. })
        };
        self.claim
            .devices
            .iter()
            .zip(&self.outcomes)
            .zip(&self.vfs.seen)
            .filter(lives)
            .map(|(of, _)| of)
            .collect()
    }
}

/// Compares a VF with what it was when it was `given`, and brings what was seen of it up to date; how it was given. `last` is how it was seen before.
fn compared(
    outcome: &mut DeviceOutcome,
    now: Option<&VfInPod>,
    last: Option<VfInPod>,
    given: Option<VfInPod>,
) -> Option<VfInPod> {
    let given = given.filter(|given| given.is_known_at_pf() && now.is_none_or(|now| now.is_of(given)));
    let (Some(now), Some(before)) = (now, &given) else {
        let holds = matches!(outcome.seen, DeviceInPod::Holds { .. });
        return given.or_else(|| now.filter(|_| holds).cloned());
    };
    let was_silent = last.is_some_and(|last| last.is_of(now) && !last.is_known_at_pf());
    match &outcome.seen {
        DeviceInPod::Holds { .. } | DeviceInPod::Unknown { .. } => {
            if let Some(why) = now.changed_since(before) {
                outcome.seen = DeviceInPod::Differs { why };
            }
        }
        // Where the PF tells nothing in one moment nobody knows yet.
        DeviceInPod::Differs { why } if !now.is_known_at_pf() && !was_silent => {
            outcome.seen = DeviceInPod::Unknown { why: why.clone() };
        }
        DeviceInPod::Differs { .. } | DeviceInPod::Waits => {}
    }
    given
}

/// A claim, and what is seen of its devices; `None` when it is not prepared any more.
fn look(claims: &Claims, uid: &ClaimUid, former: &FormerVfs) -> Result<Option<ClaimLook>, StateError> {
    let Some(claim) = claims.store()?.read(uid)? else { return Ok(None) };
    let records = claims.records(Some(&claim))?;
    let look = ClaimLook::at(claims, claim, former)?;
    if !look.outcomes.iter().any(|outcome| matches!(outcome.seen, DeviceInPod::Differs { .. })) {
        return Ok(Some(look));
    }
    // A hook, or the claim's end, may be at it: kubelet asks for many ends as soon as the agent is there. It is looked at once more, alone.
    let lock = records.lock(uid, TURN)?;
    let claim = claims.store()?.read(uid)?;
    let looked = claim.map(|claim| ClaimLook::at(claims, claim, former)).transpose();
    records.unlock(uid, lock)?;
    looked
}

/// What of a claim is not as it was given, by device. Of what could not be looked at it is as `before`.
fn drifted(devices: &[(&PreparedDevice, &DeviceOutcome)], before: &ClaimDrift) -> ClaimDrift {
    let of = |(device, outcome): &(&PreparedDevice, &DeviceOutcome)| {
        let why = match &outcome.seen {
            DeviceInPod::Differs { why } => why.clone(),
            DeviceInPod::Unknown { .. } => before.get(&device.device)?.clone(),
            DeviceInPod::Holds { .. } | DeviceInPod::Waits => return None,
        };
        Some((device.device.clone(), why))
    };
    devices.iter().filter_map(of).collect()
}

fn outcomes(
    claims: &Claims,
    records: &AttachStore,
    claim: &PreparedClaim,
) -> Result<Vec<DeviceOutcome>, StateError> {
    let outcome = |device: &PreparedDevice| {
        let record = records.read(&claim.uid, &device.device)?;
        let seen =
            record.as_ref().map_or(DeviceInPod::Waits, |record| seen(claims, &claim.uid, device, record));
        let refused = records.refusal(&claim.uid, &device.device)?;
        Ok(DeviceOutcome { record, seen, refused })
    };
    claim.devices.iter().map(outcome).collect()
}

/// Forgets the refusals that were told, or are too old to be, unless there is a newer one.
fn forget_refusals(
    claims: &Claims,
    claim: &PreparedClaim,
    outcomes: &[DeviceOutcome],
) -> Result<(), StateError> {
    let records = claims.records(Some(claim))?;
    let lock = records.lock(&claim.uid, AGAIN.0)?;
    for (device, outcome) in claim.devices.iter().zip(outcomes) {
        if outcome.refused.is_some() && records.refusal(&claim.uid, &device.device)? == outcome.refused {
            records.write_refusal(&claim.uid, &device.device, None)?;
        }
    }
    records.unlock(&claim.uid, lock)
}

/// What is seen of a device in the pod.
fn seen(claims: &Claims, uid: &ClaimUid, device: &PreparedDevice, record: &AttachRecord) -> DeviceInPod {
    let Some(given) = &record.attached else { return DeviceInPod::Waits };
    let checked = claims.network_plugin().check(uid, device, &record.netns, given);
    match &checked {
        Err(error @ CallError::Refused { code, .. }) if DIFFERS.contains(code) => {
            return DeviceInPod::Differs { why: chain(error) };
        }
        // It did not come to an answer: on a busy machine, or while the program is replaced.
        Err(error) if !error.is_answer() => return DeviceInPod::Unknown { why: chain(error) },
        Ok(()) | Err(_) => {}
    }
    let inside = match device.mode {
        VfMode::Netdev => inside(device, record),
        VfMode::Vfio => {
            Ok(DeviceInPod::Holds { addresses: Vec::new(), mac: device.mac.map(|mac| mac.to_string()) })
        }
    };
    match (inside, checked) {
        (Ok(differs @ DeviceInPod::Differs { .. }), _) => differs,
        // It could not be looked at as a whole, which is no word about it.
        (_, Err(error)) => DeviceInPod::Unknown { why: chain(&error) },
        (Ok(seen), Ok(())) => seen,
        (Err(why), Ok(())) => DeviceInPod::Unknown { why },
    }
}

/// The interface as the pod has it; why it could not be looked at.
fn inside(device: &PreparedDevice, record: &AttachRecord) -> Result<DeviceInPod, String> {
    let gone = || Ok(DeviceInPod::Differs { why: "the pod's network namespace is gone".to_owned() });
    let namespace = match NetworkNamespace::open(&record.netns) {
        Ok(namespace) => namespace,
        Err(error) if error.is_missing() => return gone(),
        Err(error) => return Err(chain(&error)),
    };
    if namespace.identity().map_err(|error| chain(&error))? != record.namespace {
        return gone();
    }
    let mut netlink = namespace.netlink().map_err(|error| chain(&error))?;
    let report = netlink.link_named(&device.interface).map_err(|error| chain(&error))?;
    let Some(report) = report else {
        return Ok(DeviceInPod::Differs { why: format!("the pod has no interface {}", device.interface) });
    };
    let addresses = netlink.addresses_of(report.index).map_err(|error| chain(&error))?;
    let told =
        addresses.iter().filter(|address| !is_link_local(address.ip())).map(ToString::to_string).collect();
    Ok(DeviceInPod::Holds { addresses: told, mac: Some(report.interface.mac.to_string()) })
}

#[cfg(test)]
mod tests {
    use penstock_model::{VlanId, inventory::VfState};

    use super::{
        super::poll::tests::{silent, vf},
        *,
    };

    fn outcome(seen: DeviceInPod) -> DeviceOutcome {
        DeviceOutcome { record: None, seen, refused: None }
    }

    #[test]
    fn a_pf_that_is_silent_for_one_moment_makes_no_drift_and_is_no_measure() {
        let given = vf(VfMode::Netdev, VfState::default());
        let differs = DeviceInPod::Differs { why: "the PF tells nothing of the VF".to_owned() };
        let holds = DeviceInPod::Holds { addresses: Vec::new(), mac: None };
        let compare = |seen: &DeviceInPod, now: &VfInPod, last: &VfInPod, given: &VfInPod| {
            let mut outcome = outcome(seen.clone());
            let given = compared(&mut outcome, Some(now), Some(last.clone()), Some(given.clone()));
            (outcome.seen, given)
        };
        let (seen, kept) = compare(&differs, &silent(), &given, &given);
        assert!(matches!(seen, DeviceInPod::Unknown { .. }), "{seen:?}");
        assert_eq!(kept, Some(given.clone()));
        assert_eq!(compare(&differs, &silent(), &silent(), &given), (differs.clone(), Some(given.clone())));
        // What could not be seen when it was given is as it is seen first.
        let vlan = vf(VfMode::Netdev, VfState { vlan: VlanId::new(7).unwrap(), ..VfState::default() });
        assert_eq!(compare(&holds, &vlan, &silent(), &silent()), (holds.clone(), Some(vlan.clone())));
        assert!(matches!(compare(&holds, &vlan, &given, &given), (DeviceInPod::Differs { .. }, Some(_))));
        // Another pod, whose namespace has the number of the former one's.
        let other = vlan.in_namespace_of("/run/netns/b");
        assert_eq!(compare(&holds, &other, &given, &given), (holds.clone(), Some(other.clone())));
    }

    #[test]
    fn what_hooks_leave_is_looked_at_when_no_more_hooks_run_and_not_too_late() {
        let start = Instant::now();
        let claim = |uid: &str| BTreeSet::from([uid.parse::<ClaimUid>().unwrap()]);
        let mut ran = PendingHooks::default();
        ran.add(BTreeSet::new(), start);
        assert_eq!((ran.due(), ran.take(start + LONGEST)), (None, BTreeSet::new()));
        ran.add(claim("a"), start);
        ran.add(claim("b"), start + QUIET / 2);
        assert_eq!(ran.due(), Some(start + QUIET / 2 + QUIET));
        assert_eq!(ran.take(start + QUIET), BTreeSet::new());
        assert_eq!(ran.take(start + QUIET * 2).len(), 2);
        assert_eq!(ran.due(), None);
        // One after the other, all the time.
        let mut now = start;
        while now < start + LONGEST {
            ran.add(claim("a"), now);
            assert_eq!(ran.take(now), BTreeSet::new());
            now += QUIET / 2;
        }
        assert_eq!((ran.due(), ran.take(now)), (Some(start + LONGEST), claim("a")));
    }
}
