//! Claims whose end kubelet never asks for: it lost its own record (`dra_manager_state`), the Node was made anew, or the call was lost while the
//! claim went. They would keep a VF for ever.
//!
//! Kubelet asks for a claim's end when the last pod of it has ended here, also for pods of which it only reads later that they are gone
//! (`reconcileLoop`, each 60 s). So a claim is taken back without it only where no pod can run with it:
//!
//! - The API server says that the claim is gone, has another UID, has nothing of this node any more, or is reserved for no pod. Kubelet itself
//!   starts no pod with such a claim (`IsReservedForPod`). Where the API server says nothing, nothing is taken back.
//! - It said so twice, with a time in between in which kubelet had its turn, and the second time while nothing can be prepared.
//! - Nobody lives in the network namespace that was given the VF: a pod that was deleted by force may run on. The number of a namespace that has
//!   ended is given to another one: who lives there and is of another pod, by its control group, does not count.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::resource::v1::ResourceClaim;
use penstock_host::{
    NetworkNamespace, chain,
    files::{self, Lock},
};
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
pub(crate) async fn blocking<T: Send + 'static, E: Send + 'static>(
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
            && let Some(process) = NetworkNamespace::inhabitants(record.namespace)?
                .find(|process| !is_of_another_pod(&groups_of(*process), claim))
        {
            return Ok(Some(process));
        }
    }
    claims.unprepare_locked(&claims.store()?, &claim.uid)?;
    records.remove(&claim.uid)?;
    Ok(None)
}

/// The control groups of a process, as the kernel lists them; empty of one that has ended.
fn groups_of(process: u32) -> String {
    files::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default()
}

/// Whether a process with these control groups is of a pod, and of none of the claim's. Of one whose groups name no pod nobody knows. They name
/// several where the whole node is in a pod of another cluster.
fn is_of_another_pod(groups: &str, claim: &PreparedClaim) -> bool {
    let mut pods = groups.split(['/', '\n']).filter_map(pod_of_group).peekable();
    pods.peek().is_some() && pods.all(|pod| !claim.pods.iter().any(|of| of.uid == pod))
}

/// The UID of the pod that kubelet has made a control group for: `kubepods-burstable-podUID.slice` with systemd, where each `-` of the UID is a
/// `_`, and the names of the groups above (`--cgroup-root`) come first; else `podUID` (`pkg/kubelet/cm/pod_container_manager_linux.go`).
fn pod_of_group(name: &str) -> Option<String> {
    let of_systemd = name.strip_suffix(".slice").filter(|name| name.contains("kubepods"));
    let uid = match of_systemd {
        Some(name) => name.rsplit_once("-pod")?.1,
        None => name.strip_prefix("pod")?,
    };
    // A UID, or the digest that a static pod has in its place.
    let plain = uid.len() >= 32 && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || b"-_".contains(&byte));
    plain.then(|| uid.replace('_', "-"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::state::{PodReference, tests::claim};

    #[test]
    fn who_lives_in_a_namespace_of_the_same_number_is_of_another_pod() {
        let (own, other) = ("0c5f4a1e-7f0d-4a56-9a50-1d2f3b4c5d6e", "7a9e1b30-1111-4222-8333-444455556666");
        let mut of = claim("u-1", "net0-0");
        of.pods = vec![PodReference { name: "pod".to_owned(), uid: own.to_owned() }];
        let systemd = |uid: &str| {
            let uid = uid.replace('-', "_");
            format!(
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice/cri-containerd-ab.scope\n"
            )
        };
        let guaranteed = |uid: &str| {
            format!("0::/kubepods.slice/kubepods-pod{}.slice/crio-ab.scope\n", uid.replace('-', "_"))
        };
        let cgroupfs = |uid: &str| format!("4:memory:/\n1:name=systemd:/kubepods/besteffort/pod{uid}/ab\n");
        for groups in [&systemd as &dyn Fn(&str) -> String, &guaranteed, &cgroupfs] {
            assert!(!is_of_another_pod(&groups(own), &of), "{}", groups(own));
            assert!(is_of_another_pod(&groups(other), &of), "{}", groups(other));
        }
        // A node that is a pod itself, of another cluster.
        let nested = |uid: &str| {
            let inner = format!("kubelet.slice/kubelet-kubepods-pod{}.slice", uid.replace('-', "_"));
            let outer = systemd("5d1c2b3a-9999-4888-8777-666655554444");
            format!("{}/{inner}/cri-containerd-cd.scope\n", outer.trim_end())
        };
        assert!(!is_of_another_pod(&nested(own), &of), "{}", nested(own));
        assert!(is_of_another_pod(&nested(other), &of), "{}", nested(other));
        // A static pod has a digest.
        assert!(is_of_another_pod("0::/kubepods/burstable/pod0123456789abcdef0123456789abcdef/ab\n", &of));
        for unknown in ["", "0::/user.slice/session-1.scope\n", "0::/podman/pod-x\n", "0::/kubepods.slice\n"]
        {
            assert!(!is_of_another_pod(unknown, &of), "{unknown}");
        }
    }
}
