//! What became of a claim's devices is told on the claim: hooks wake this, it looks into the pod, and tells the API server. Nothing is polled:
//! without hooks nothing is looked at.

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
    sync::Notify,
    task,
    time::{self, Instant},
};

use super::{
    ServeError,
    claim_api::{ClaimApi, ClaimApiError},
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
    log::say,
    pace::Backoff,
};

/// The plugin's answer where something has to be found out first that cannot be now (docs/cni.md).
const TRY_AGAIN: u64 = 11;

/// How long after a failure it is tried again, at first and at most.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Tells what became of claims.
#[derive(Debug)]
pub struct Reporter<C> {
    claims: Claims,
    api: Arc<C>,
    node: String,
    socket: UnixDatagram,
    path: PathBuf,
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
    pub fn open(claims: Claims, api: Arc<C>, node: &str) -> Result<Reporter<C>, ServeError> {
        let run = &claims.settings.run;
        AttachStore::open(run)?;
        let path = run.join(SOCKET);
        files::remove_file(&path)?;
        let socket =
            UnixDatagram::bind(&path).map_err(|source| ServeError::Listen { path: path.clone(), source })?;
        files::set_mode(&path, 0o600)?;
        Ok(Reporter { claims, api, node: node.to_owned(), socket, path })
    }

    /// Tells of all claims that there are, and then of each whose hook has run. It does not end.
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
        // Those that are to be told of again, each when it is its time.
        let mut again: BTreeMap<ClaimUid, (Instant, Backoff)> = BTreeMap::new();
        loop {
            waiting.append(&mut woken.take());
            let now = Instant::now();
            waiting.extend(again.iter().filter(|(_, (at, _))| *at <= now).map(|(uid, _)| uid.clone()));
            for uid in std::mem::take(&mut waiting) {
                if self.tell(&uid).await {
                    again.remove(&uid);
                    continue;
                }
                let (at, backoff) = again.entry(uid).or_insert_with(|| (now, Backoff::new(AGAIN.0, AGAIN.1)));
                *at = Instant::now() + backoff.failed();
            }
            match again.values().map(|(at, _)| *at).min() {
                None => woken.notify.notified().await,
                Some(at) => drop(time::timeout_at(at, woken.notify.notified()).await),
            }
        }
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

    /// Tells of one claim; whether that is done with.
    async fn tell(&self, uid: &ClaimUid) -> bool {
        let (claims, of) = (self.claims.clone(), uid.clone());
        let looked = self.blocking(&format!("look at claim {uid}"), move || look(&claims, &of)).await;
        let (claim, outcomes) = match looked {
            Some(Ok(Some(looked))) => looked,
            // What cannot be understood now cannot be later.
            Some(Ok(None) | Err(StateError::Damaged { .. })) | None => return true,
            Some(Err(_)) => return false,
        };
        let unseen = outcomes.iter().find_map(|outcome| match &outcome.seen {
            DeviceInPod::Unknown { why } => Some(why),
            _ => None,
        });
        let mut done = unseen.is_none();
        // Of what could not be looked at what was told before stays.
        let former = match unseen {
            None => Some(Vec::new()),
            Some(why) => {
                say(format!("claim {uid} could not all be looked at, and is again: {why}"));
                self.former(&claim).await
            }
        };
        if let Some(told) = former.and_then(|former| status::status(&claim, &outcomes, &former, &now())) {
            done &= self.settled(self.api.tell_claim(&claim.namespace, &claim.name, &told).await);
        }
        let mut are_told = true;
        for event in status::events(&claim, &outcomes, &self.node, SystemTime::now()) {
            are_told &= self.settled(self.api.tell_event(&claim.namespace, &event).await);
        }
        if are_told && outcomes.iter().any(|outcome| outcome.refused.is_some()) {
            let claims = self.claims.clone();
            let forget = move || forget_refusals(&claims, &claim, &outcomes);
            // One that stays is told once more.
            self.blocking(&format!("forget who was refused claim {uid}"), forget).await;
        }
        done && are_told
    }

    /// What was told of the devices of a claim; `None` where the API server does not say.
    async fn former(&self, claim: &PreparedClaim) -> Option<Vec<AllocatedDeviceStatus>> {
        match self.api.claim(&claim.namespace, &claim.name).await {
            Ok(there) => {
                let same = there.filter(|there| there.metadata.uid.as_deref() == Some(claim.uid.as_str()));
                Some(same.and_then(|there| there.status?.devices).unwrap_or_default())
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

/// A claim, and what is seen of its devices; `None` when it is not prepared any more.
fn look(claims: &Claims, uid: &ClaimUid) -> Result<Option<(PreparedClaim, Vec<DeviceOutcome>)>, StateError> {
    let Some(claim) = claims.store()?.read(uid)? else { return Ok(None) };
    let records = claims.records(Some(&claim))?;
    let outcomes = outcomes(claims, &records, &claim)?;
    if !outcomes.iter().any(|outcome| matches!(outcome.seen, DeviceInPod::Differs { .. })) {
        return Ok(Some((claim, outcomes)));
    }
    // A hook, or the claim's end, may be at it: kubelet asks for many ends as soon as the agent is there. It is looked at once more, alone.
    let lock = records.lock(uid, TURN)?;
    let claim = claims.store()?.read(uid)?;
    let looked = claim.map(|claim| Ok((self::outcomes(claims, &records, &claim)?, claim))).transpose();
    records.unlock(uid, lock)?;
    looked.map(|looked| looked.map(|(outcomes, claim)| (claim, outcomes)))
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
