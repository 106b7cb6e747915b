//! Claims whose end kubelet never asks for: it lost its own record (`dra_manager_state`), the Node was made anew, or the call was lost while the
//! claim went. They would keep a VF for ever.
//!
//! Kubelet asks for a claim's end when the last pod of it has ended here, also for pods of which it only reads later that they are gone
//! (`reconcileLoop`, each 60 s). So a claim is taken back without it only where no pod can run with it:
//!
//! - The API server says that the claim is gone, has another UID, has nothing of this node any more, or is reserved for no pod. Kubelet itself
//!   starts no pod with such a claim (`IsReservedForPod`). Where the API server says nothing, nothing is taken back.
//! - It said so twice, with a time in between in which kubelet had its turn, and the second time while nothing can be prepared.
//! - Nobody lives in the network namespace that was given the VF: a pod that was deleted by force may run on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::resource::v1::ResourceClaim;
use penstock_host::{NetworkNamespace, chain, files::Lock};
use tokio::{task, time};

use super::claim_api::ClaimApi;
use crate::{
    attach::now,
    claim::{
        ClaimUid, Claims, StateError, prepare::TURN, state::PreparedClaim, status, unprepare::UnprepareError,
    },
    log::{LastingTrouble, say},
    metrics::ClaimTimings,
};

/// How long it is waited for a call that prepares a claim.
const LOCK: Duration = Duration::from_secs(30);

/// When it is looked for such claims.
#[derive(Clone, Copy, Debug)]
pub struct OrphanSettings {
    /// So often.
    pub every: Duration,
    /// So long after a claim was found to be one it is looked at again, and taken back.
    pub grace: Duration,
}

impl Default for OrphanSettings {
    fn default() -> OrphanSettings {
        OrphanSettings { every: Duration::from_secs(600), grace: Duration::from_secs(150) }
    }
}

/// Takes back claims that kubelet has forgotten.
#[derive(Debug)]
pub struct Orphans<C> {
    claims: Claims,
    api: Arc<C>,
    node: String,
    settings: OrphanSettings,
    timings: ClaimTimings,
    /// Since when no pod can run with a claim, as it was prepared then.
    found: BTreeMap<ClaimUid, (Instant, PreparedClaim)>,
    /// The claims whose pods were told that they have what nobody should.
    told: BTreeSet<ClaimUid>,
    silent: LastingTrouble,
    unreadable: LastingTrouble,
}

impl<C: ClaimApi> Orphans<C> {
    /// None is known yet, of the claims of this node.
    pub fn new(
        claims: Claims,
        api: Arc<C>,
        node: &str,
        settings: OrphanSettings,
        timings: ClaimTimings,
    ) -> Orphans<C> {
        Orphans {
            claims,
            api,
            node: node.to_owned(),
            settings,
            timings,
            found: BTreeMap::new(),
            told: BTreeSet::new(),
            silent: LastingTrouble::new("ask whether prepared claims are needed"),
            unreadable: LastingTrouble::new("look for claims that kubelet has forgotten"),
        }
    }

    /// Looks at once and then again and again. It does not end.
    pub async fn watch(mut self) {
        loop {
            self.look().await;
            let wait = if self.found.is_empty() { self.settings.every } else { self.settings.grace };
            time::sleep(wait).await;
        }
    }

    async fn look(&mut self) {
        let claims = self.claims.clone();
        let prepared = blocking(move || claims.store()?.all()).await;
        let Some(prepared) = self.unreadable.tried(prepared) else { return };
        self.found.retain(|uid, (_, was)| prepared.iter().any(|claim| claim.uid == *uid && claim == was));
        self.told.retain(|uid| prepared.iter().any(|claim| claim.uid == *uid));
        for claim in prepared {
            match self.why_not_needed(&claim).await {
                Ok(None) => drop(self.found.remove(&claim.uid)),
                Ok(Some(_)) => {
                    let since = self.found.get(&claim.uid).map(|(since, _)| *since);
                    match since {
                        Some(since) if since.elapsed() >= self.settings.grace => self.end(&claim).await,
                        Some(_) => {}
                        None => drop(self.found.insert(claim.uid.clone(), (Instant::now(), claim))),
                    }
                }
                // What it says later counts; until then nothing does.
                Err(why) => return self.silent.meet_words(why),
            }
            self.silent.end();
        }
    }

    /// Why no pod can run with a claim, as the API server has it; `None` when one can.
    async fn why_not_needed(&self, claim: &PreparedClaim) -> Result<Option<String>, String> {
        match self.api.claim(&claim.namespace, &claim.name).await {
            Ok(there) => Ok(why_not_needed(there.as_ref(), claim)),
            Err(error) => Err(chain(&error)),
        }
    }

    /// Takes a claim back, if it still is as it was, and nobody needs it.
    async fn end(&mut self, claim: &PreparedClaim) {
        let called = format!("claim {}/{} ({})", claim.namespace, claim.name, claim.uid);
        // From here on nothing is prepared: what was before is there to be read, what comes later finds nothing and begins anew.
        let (claims, of) = (self.claims.clone(), claim.clone());
        let held = match blocking(move || hold(&claims, &of)).await {
            Ok(Some(held)) => held,
            Ok(None) => return drop(self.found.remove(&claim.uid)),
            Err(error) => return say(format!("{called} cannot be taken back: {}", chain(&error))),
        };
        let why = match self.why_not_needed(claim).await {
            Ok(Some(why)) => why,
            Ok(None) => return drop(self.found.remove(&claim.uid)),
            Err(why) => return self.silent.meet_words(why),
        };
        let (claims, of) = (self.claims.clone(), claim.clone());
        match blocking(move || take_back(&claims, &of, held)).await {
            Ok(None) => {
                self.found.remove(&claim.uid);
                self.timings.taken_back();
                say(format!("{called} was taken back: {why}, and kubelet did not ask for it"));
            }
            Ok(Some(process)) => {
                // It is looked at again as if for the first time.
                self.found.remove(&claim.uid);
                if !self.told.insert(claim.uid.clone()) {
                    return;
                }
                say(format!(
                    "{called} is left alone: {why}, but process {process} lives in the network namespace that has its VF"
                ));
                for event in status::left_alone(claim, &why, &now(), &self.node) {
                    if let Err(error) = self.api.tell_event(&claim.namespace, &event).await {
                        say(chain(&error));
                        // Once more the next time.
                        self.told.remove(&claim.uid);
                    }
                }
            }
            Err(error) => say(format!("{called} cannot be taken back: {}", chain(&error))),
        }
    }
}

/// Runs what waits for files and programs on a thread that may.
async fn blocking<T: Send + 'static, E: Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    match task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Everything ends.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Keeps claims from being prepared; `None` when this one is not as it was any more.
fn hold(claims: &Claims, claim: &PreparedClaim) -> Result<Option<Lock>, StateError> {
    let store = claims.store()?;
    let lock = store.lock(LOCK)?;
    Ok((store.read(&claim.uid)?.as_ref() == Some(claim)).then_some(lock))
}

/// Takes it back, unless somebody lives where its VFs are: that process then.
fn take_back(claims: &Claims, claim: &PreparedClaim, _held: Lock) -> Result<Option<u32>, UnprepareError> {
    let records = claims.records(Some(claim))?;
    // Other claims wait meanwhile; this one is looked at again.
    let _lock = records.lock(&claim.uid, TURN)?;
    for device in &claim.devices {
        if let Some(record) = records.read(&claim.uid, &device.device)?
            && let Some(process) = NetworkNamespace::inhabitant(record.namespace)?
        {
            return Ok(Some(process));
        }
    }
    claims.unprepare_locked(&claims.store()?, &claim.uid)?;
    records.remove(&claim.uid)?;
    Ok(None)
}

/// Why no pod can run with what was prepared, when the claim of its name is this one; `None` when one can.
fn why_not_needed(there: Option<&ResourceClaim>, prepared: &PreparedClaim) -> Option<String> {
    let Some(there) = there else { return Some("the claim is gone".to_owned()) };
    let uid = there.metadata.uid.as_deref().unwrap_or_default();
    if uid != prepared.uid.as_str() {
        return Some(format!("the claim of that name is another one now ({uid})"));
    }
    let status = there.status.as_ref();
    let results = status.and_then(|status| status.allocation.as_ref()?.devices.as_ref()?.results.as_ref());
    let is_ours = results.into_iter().flatten().any(|result| {
        result.driver == prepared.driver
            && prepared.devices.iter().any(|of| of.pool == result.pool && of.device == result.device)
    });
    if !is_ours {
        return Some("it has nothing of this node any more".to_owned());
    }
    let reserved = status.and_then(|status| status.reserved_for.as_ref());
    reserved.is_none_or(Vec::is_empty).then(|| "it is reserved for no pod".to_owned())
}
