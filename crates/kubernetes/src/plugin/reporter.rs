//! What became of a claim's devices is told on the claim: hooks wake this, it looks into the pod, and tells the API server. Nothing is polled:
//! without hooks nothing is looked at.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use penstock_host::{NetworkNamespace, chain, files};
use tokio::{net::UnixDatagram, task, time};

use super::{
    ServeError,
    claim_api::{ClaimApi, ClaimApiError},
};
use crate::{
    attach::now,
    claim::{
        ClaimUid, Claims,
        parameters::VfMode,
        state::{AttachRecord, AttachStore, PreparedClaim, PreparedDevice, SOCKET, StateError},
        status::{self, DeviceInPod, DeviceOutcome},
    },
    log::say,
    pace::Backoff,
};

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
        let mut waiting = self.all().await;
        let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
        loop {
            let mut failed = BTreeSet::new();
            for uid in std::mem::take(&mut waiting) {
                if !self.tell(&uid).await {
                    failed.insert(uid);
                }
            }
            let delay = match failed.is_empty() {
                true => {
                    backoff.succeeded();
                    AGAIN.0
                }
                false => backoff.failed(),
            };
            waiting.extend(failed);
            let mut datagram = [0; 128];
            let woken = async {
                let received = self.socket.recv(&mut datagram).await;
                received.map(|length| String::from_utf8_lossy(&datagram[..length]).into_owned())
            };
            let woken = match waiting.is_empty() {
                true => Ok(woken.await),
                false => time::timeout(delay, woken).await,
            };
            match woken {
                Ok(Ok(uid)) => waiting.extend(uid.parse::<ClaimUid>()),
                Ok(Err(error)) => {
                    say(format!("could not read {}: {error}", self.path.display()));
                    time::sleep(AGAIN.1).await;
                }
                // It is time to try again.
                Err(_) => {}
            }
        }
    }

    async fn all(&self) -> BTreeSet<ClaimUid> {
        let claims = self.claims.clone();
        let read = move || claims.store().and_then(|store| store.all());
        match task::spawn_blocking(read).await {
            Ok(Ok(claims)) => claims.into_iter().map(|claim| claim.uid).collect(),
            Ok(Err(error)) => {
                say(format!("could not read what is prepared: {}", chain(&error)));
                BTreeSet::new()
            }
            Err(error) => {
                say(format!("could not read what is prepared: {error}"));
                BTreeSet::new()
            }
        }
    }

    /// Tells of one claim; whether that is done with.
    async fn tell(&self, uid: &ClaimUid) -> bool {
        let (claims, of) = (self.claims.clone(), uid.clone());
        let looked = match task::spawn_blocking(move || look(&claims, &of)).await {
            Ok(Ok(looked)) => looked,
            Ok(Err(error)) => {
                say(format!("could not look at claim {uid}: {}", chain(&error)));
                return true;
            }
            Err(error) => {
                say(format!("could not look at claim {uid}: {error}"));
                return true;
            }
        };
        let Some((claim, outcomes)) = looked else { return true };
        let mut done = true;
        if let Some(told) = status::status(&claim, &outcomes, &now()) {
            done &= self.settled(self.api.tell_claim(&claim.namespace, &claim.name, &told).await);
        }
        for event in status::events(&claim, &outcomes, &self.node) {
            done &= self.settled(self.api.tell_event(&claim.namespace, &event).await);
        }
        done
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
    let records = AttachStore::open(&claims.settings.run)?;
    let mut outcomes = Vec::new();
    for device in &claim.devices {
        let record = records.read(uid, &device.device)?;
        let seen = record.as_ref().map_or(DeviceInPod::Waits, |record| seen(claims, uid, device, record));
        let refused = records.refusal(uid, &device.device)?;
        outcomes.push(DeviceOutcome { record, seen, refused });
    }
    Ok(Some((claim, outcomes)))
}

/// What is seen of a device in the pod.
fn seen(claims: &Claims, uid: &ClaimUid, device: &PreparedDevice, record: &AttachRecord) -> DeviceInPod {
    if let Some(why) = &record.failure {
        return DeviceInPod::Failed { why: why.clone() };
    }
    let Some(given) = &record.attached else { return DeviceInPod::Waits };
    if let Err(error) = claims.network_plugin().check(uid, device, &record.netns, given) {
        return DeviceInPod::Differs { why: chain(&error) };
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
