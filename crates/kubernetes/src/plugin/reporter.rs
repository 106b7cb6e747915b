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

/// The plugin's answer where something has to be found out first that cannot be now (docs/cni.md).
const TRY_AGAIN: u64 = 11;

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
}

/// What is remembered of a claim that a container has come to.
#[derive(Debug)]
struct ReportedClaim {
    /// Its VFs as they were right before they were looked at last.
    seen: ClaimVfs,
    /// Its VFs as they were when they were first as they were given.
    given: ClaimVfs,
    /// What the API server was told of its devices, as far as this agent knows.
    devices: Option<Vec<AllocatedDeviceStatus>>,
    /// What of it is not as it was given.
    drifted: ClaimDrift,
    /// When it was looked at last.
    looked: Instant,
    changes: Bucket,
}

impl Default for ReportedClaim {
    fn default() -> ReportedClaim {
        ReportedClaim {
            seen: Vec::new(),
            given: Vec::new(),
            devices: None,
            drifted: ClaimDrift::new(),
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

/// The claims whose hooks have run since somebody looked.
#[derive(Debug, Default)]
struct Woken {
    claims: Mutex<BTreeSet<ClaimUid>>,
    notify: Notify,
}

impl Woken {
    fn add(&self, uid: ClaimUid) {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner).insert(uid);
        self.notify.notify_one();
    }

    fn take(&self) -> BTreeSet<ClaimUid> {
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
        Ok(Reporter { claims, api, node: node.to_owned(), drift, socket, path })
    }

    /// Tells of all claims that there are, and then of each whose hook has run, or whose VFs are otherwise than they were. It does not end.
    pub async fn report(&self) {
        let woken = Woken::default();
        tokio::select! {
            () = self.listen(&woken) => {}
            () = self.tell_all(&woken) => {}
        }
    }

    /// Hears hooks at any time: few datagrams wait in a socket (`net.unix.max_dgram_qlen`), and no hook waits for room.
    async fn listen(&self, woken: &Woken) {
        loop {
            let mut datagram = [0; 128];
            match self.socket.recv(&mut datagram).await {
                Ok(length) => {
                    if let Ok(uid) = String::from_utf8_lossy(&datagram[..length]).parse() {
                        woken.add(uid);
                    }
                }
                Err(error) => {
                    say(format!("could not read {}: {error}", self.path.display()));
                    time::sleep(AGAIN.1).await;
                }
            }
        }
    }

    async fn tell_all(&self, woken: &Woken) {
        let mut waiting = self.all().await.unwrap_or_default();
        let mut ran = PendingHooks::default();
        let mut told = ReportedClaims::new();
        let mut look = Instant::now() + poll::EVERY;
        // Those that are to be told of again, each when it is its time.
        let mut again: BTreeMap<ClaimUid, (Instant, Backoff)> = BTreeMap::new();
        loop {
            let now = Instant::now();
            ran.add(woken.take(), now);
            let of_hooks = ran.take(now);
            waiting.extend(of_hooks.iter().cloned());
            waiting.extend(again.iter().filter(|(_, (at, _))| *at <= now).map(|(uid, _)| uid.clone()));
            if now >= look && !told.is_empty() {
                waiting.append(&mut self.changed(&mut told).await);
                look = Instant::now() + poll::EVERY;
            }
            for uid in std::mem::take(&mut waiting) {
                if self.tell(&uid, &mut told, of_hooks.contains(&uid)).await {
                    again.remove(&uid);
                    continue;
                }
                let (at, backoff) = again.entry(uid).or_insert_with(|| (now, Backoff::new(AGAIN.0, AGAIN.1)));
                *at = Instant::now() + backoff.failed();
            }
            self.show(&told);
            let next = again.values().map(|(at, _)| *at).chain(ran.due());
            // Where no pod has anything nothing is looked at.
            match next.chain((!told.is_empty()).then_some(look)).min() {
                None => woken.notify.notified().await,
                Some(at) => drop(time::timeout_at(at, woken.notify.notified()).await),
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
                || poll::differs(&of.seen, now) && of.changes.take(std::time::Instant::now()).is_ok()
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

    /// Tells of one claim; whether that is done with. What was told already is told again only of a hook that has run.
    async fn tell(&self, uid: &ClaimUid, all: &mut ReportedClaims, hook_has_run: bool) -> bool {
        let (claims, of) = (self.claims.clone(), uid.clone());
        let given = all.get(uid).map(|told| told.given.clone()).unwrap_or_default();
        let looked = self.blocking(&format!("look at claim {uid}"), move || look(&claims, &of, given)).await;
        let ClaimLook { claim, outcomes, seen, given } = match looked {
            Some(Ok(Some(looked))) => looked,
            Some(Ok(None)) => {
                all.remove(uid);
                return true;
            }
            // What cannot be understood now cannot be later.
            Some(Err(StateError::Damaged { .. })) | None => return true,
            Some(Err(_)) => return false,
        };
        let is_told = outcomes.iter().any(|outcome| outcome.seen != DeviceInPod::Waits);
        let mut told = all.remove(uid).unwrap_or_default();
        // A pod that has ended may leave its VF in any way.
        let lives = |((_, outcome), now): &((&PreparedDevice, &DeviceOutcome), &Option<VfInPod>)| {
            now.is_some() || !matches!(outcome.seen, DeviceInPod::Differs { .. })
        };
        let of_pods = claim.devices.iter().zip(&outcomes).zip(&seen).filter(lives).map(|(of, _)| of);
        let of_pods: Vec<(&PreparedDevice, &DeviceOutcome)> = of_pods.collect();
        told.drifted = drifted(&of_pods, &told.drifted);
        (told.seen, told.given, told.looked) = (seen.clone(), given, Instant::now());
        let former = told.devices.clone();
        if is_told {
            all.insert(uid.clone(), told);
        }
        // Kubelet hears of it whatever the API server does.
        self.show(all);
        let unseen = outcomes.iter().find_map(|outcome| match &outcome.seen {
            DeviceInPod::Unknown { why } => Some(why),
            _ => None,
        });
        if let Some(why) = unseen {
            say(format!("claim {uid} could not all be looked at, and is again: {why}"));
        }
        let mut done = unseen.is_none();
        if is_told {
            let former = match former {
                None => self.former(&claim).await,
                former => former,
            };
            done &= former.is_some();
            let status = former.and_then(|of| Some((status::status(&claim, &outcomes, &of, &now())?, of)));
            if let Some((status, former)) = status
                && (hook_has_run || status::devices(&status) != former)
            {
                let answer = self.api.tell_claim(&claim.namespace, &claim.name, &status).await;
                let is_taken = answer.is_ok();
                if let Some(told) = all.get_mut(uid) {
                    told.devices = is_taken.then(|| status::devices(&status));
                }
                done &= self.settled(answer);
                for news in status::drift_news(&claim, &of_pods, &former).into_iter().filter(|_| is_taken) {
                    // Where so much is told that nobody comes to write it, the condition tells the state.
                    drop(self.drift.news.try_send(news));
                }
            }
        }
        let mut are_told = true;
        for event in status::events(&claim, &outcomes, &self.node, SystemTime::now()) {
            are_told &= self.settled(self.api.tell_event(&claim.namespace, &event).await);
        }
        if are_told && outcomes.iter().any(|outcome| outcome.refused.is_some()) {
            let claims = self.claims.clone();
            let (claim, outcomes) = (claim.clone(), outcomes.clone());
            let forget = move || forget_refusals(&claims, &claim, &outcomes);
            // One that stays is told once more.
            self.blocking(&format!("forget who was refused claim {uid}"), forget).await;
        }
        done && are_told
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

/// A claim, and what is seen of its devices.
struct ClaimLook {
    claim: PreparedClaim,
    outcomes: Vec<DeviceOutcome>,
    /// How its VFs were right before: what changes meanwhile differs from that the next time.
    seen: ClaimVfs,
    /// How they were when they were as they were given.
    given: ClaimVfs,
}

impl ClaimLook {
    /// Looks at a claim whose VFs were `given` as they were then.
    fn at(claims: &Claims, claim: PreparedClaim, given: ClaimVfs) -> Result<ClaimLook, StateError> {
        let records = claims.records(Some(&claim))?;
        let seen = VfPoll::new(&claims.settings.root).at(claims, &claim)?;
        let mut outcomes = outcomes(claims, &records, &claim)?;
        let mut was_given = given.into_iter();
        let mut given = Vec::new();
        for (now, outcome) in seen.iter().zip(&mut outcomes) {
            let before = was_given.next().flatten();
            let before = before.filter(|before| now.as_ref().is_none_or(|now| now.is_of(before)));
            if let DeviceInPod::Holds { .. } = outcome.seen {
                let changed = now.as_ref().zip(before.as_ref()).and_then(|(now, of)| now.changed_since(of));
                given.push(before.or_else(|| now.clone()));
                if let Some(why) = changed {
                    outcome.seen = DeviceInPod::Differs { why };
                }
            } else {
                given.push(before);
            }
        }
        Ok(ClaimLook { claim, outcomes, seen, given })
    }
}

/// A claim, and what is seen of its devices; `None` when it is not prepared any more.
fn look(claims: &Claims, uid: &ClaimUid, given: ClaimVfs) -> Result<Option<ClaimLook>, StateError> {
    let Some(claim) = claims.store()?.read(uid)? else { return Ok(None) };
    let records = claims.records(Some(&claim))?;
    let look = ClaimLook::at(claims, claim, given.clone())?;
    if !look.outcomes.iter().any(|outcome| matches!(outcome.seen, DeviceInPod::Differs { .. })) {
        return Ok(Some(look));
    }
    // A hook, or the claim's end, may be at it: kubelet asks for many ends as soon as the agent is there. It is looked at once more, alone.
    let lock = records.lock(uid, TURN)?;
    let claim = claims.store()?.read(uid)?;
    let looked = claim.map(|claim| ClaimLook::at(claims, claim, given)).transpose();
    records.unlock(uid, lock)?;
    looked
}

/// What of a claim is not as it was given, by device. Of what could not be looked at it is as `before`.
fn drifted(devices: &[(&PreparedDevice, &DeviceOutcome)], before: &ClaimDrift) -> ClaimDrift {
    let of = |(device, outcome): &(&PreparedDevice, &DeviceOutcome)| {
        let was_given = outcome.record.as_ref().is_some_and(|record| record.attached.is_some());
        let why = match &outcome.seen {
            DeviceInPod::Differs { why } => why.clone(),
            // What a pod had, and a container of it was not started with.
            DeviceInPod::Failed { why } if was_given => why.clone(),
            DeviceInPod::Unknown { .. } => before.get(&device.device)?.clone(),
            DeviceInPod::Failed { .. } | DeviceInPod::Holds { .. } | DeviceInPod::Waits => return None,
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
    if let Some(why) = &record.failure {
        return DeviceInPod::Failed { why: why.clone() };
    }
    let Some(given) = &record.attached else { return DeviceInPod::Waits };
    match claims.network_plugin().check(uid, device, &record.netns, given) {
        Ok(()) => {}
        Err(error @ CallError::Refused { code, .. }) if code != TRY_AGAIN => {
            return DeviceInPod::Differs { why: chain(&error) };
        }
        // It did not come to an answer: on a busy machine, or while the program is replaced.
        Err(error) => return DeviceInPod::Unknown { why: chain(&error) },
    }
    if device.mode == VfMode::Vfio {
        return DeviceInPod::Holds { addresses: Vec::new(), mac: device.mac.map(|mac| mac.to_string()) };
    }
    match inside(device, record) {
        Ok(seen) => seen,
        Err(why) => DeviceInPod::Differs { why },
    }
}

/// The interface as the pod has it.
fn inside(device: &PreparedDevice, record: &AttachRecord) -> Result<DeviceInPod, String> {
    let namespace = NetworkNamespace::open(&record.netns).map_err(|error| chain(&error))?;
    if namespace.identity().map_err(|error| chain(&error))? != record.namespace {
        return Err("the pod's network namespace is gone".to_owned());
    }
    let mut netlink = namespace.netlink().map_err(|error| chain(&error))?;
    let report = netlink.link_named(&device.interface).map_err(|error| chain(&error))?;
    let report = report.ok_or_else(|| format!("the pod has no interface {}", device.interface))?;
    let addresses = netlink.addresses_of(report.index).map_err(|error| chain(&error))?;
    let link_local = |ip: std::net::IpAddr| match ip {
        std::net::IpAddr::V4(ip) => ip.is_link_local(),
        std::net::IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let told =
        addresses.iter().filter(|address| !link_local(address.ip())).map(ToString::to_string).collect();
    Ok(DeviceInPod::Holds { addresses: told, mac: Some(report.interface.mac.to_string()) })
}

#[cfg(test)]
mod tests {
    use super::*;

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
