//! Has pods leave a node that is about to be changed.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{ResourceClaim, ResourceSlice},
};
use kube::{
    Api, Client, Error, ResourceExt,
    api::{EvictParams, ListParams},
};

use crate::{
    client::ApiError,
    log,
    machine::node::VanishingVf,
    rollout::{
        Drained,
        drain::{self, Holding, Leaving},
    },
};

/// How many pods are asked for at a time.
const PAGE: u32 = 100;

/// How many claims are asked for at a time: all of the cluster are, once nothing else is waited for.
const CLAIMS: u32 = 500;

/// Who leaves a node.
#[derive(Clone, Copy, Debug)]
pub enum Leavers<'a> {
    /// Pods with a claim on a VF that vanishes.
    Claimants,
    /// They, and all that do not belong to the node itself, but for those of controllers.
    All {
        /// The namespace of controllers.
        but_controllers_of: &'a str,
    },
}

/// Looks at the pods of a node, and evicts those that `who` says.
/// PodDisruptionBudgets hold.
///
/// # Errors
///
/// When the API server does not tell of the node's slices, pods or their claims. A pod that cannot be evicted is in the answer.
pub async fn look(
    client: &Client,
    node: &str,
    vanishing: &[VanishingVf],
    who: Leavers<'_>,
) -> Result<Drained, Error> {
    let fields = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let slices = Api::<ResourceSlice>::all(client.clone()).list(&fields).await?.items;
    let devices = drain::devices(node, &slices, vanishing);
    // While a device may be given to a new pod there is no end.
    let nothing = devices.vanishing.is_empty() && devices.absent.is_none();
    if devices.incomplete.is_some()
        || !devices.open.is_empty()
        || (nothing && matches!(who, Leavers::Claimants))
    {
        return Ok(drain::drained(&devices, &[]));
    }
    let mut leaving = Vec::new();
    let mut there = BTreeSet::new();
    let mut claims: BTreeMap<(String, String), Holding> = BTreeMap::new();
    let pods = Api::<Pod>::all(client.clone());
    let mut next: Option<String> = None;
    loop {
        let mut page = fields.clone().limit(PAGE);
        if let Some(token) = &next {
            page = page.continue_token(token);
        }
        let pods = pods.list(&page).await?;
        there.extend(pods.items.iter().filter_map(ResourceExt::uid));
        for pod in pods.items.iter().filter(|pod| drain::is_alive(pod)) {
            if matches!(who, Leavers::All { but_controllers_of } if drain::leaves_with_node(pod, but_controllers_of))
            {
                leaving.push(leave(client, pod, "its node is drained").await);
                continue;
            }
            match holds(client, pod, &devices, &mut claims).await? {
                Holding::Nothing => {}
                Holding::Vanishing => leaving.push(leave(client, pod, "it has a VF that vanishes").await),
                Holding::Unknown(driver) => leaving.push(Leaving {
                    pod: name_of(pod),
                    refused: Some(format!(
                        "it has a device of the driver {driver}, which has published nothing on this node: whether that vanishes is not known"
                    )),
                }),
            }
        }
        next = pods.metadata.continue_.filter(|token| !token.is_empty());
        if next.is_none() {
            break;
        }
    }
    if !leaving.is_empty() || nothing {
        return Ok(drain::drained(&devices, &leaving));
    }
    // After the pods: one that is bound in between is seen by its claim.
    let waiting = on_its_way(client, &devices, &there).await?;
    Ok(waiting.map_or_else(|| drain::drained(&devices, &leaving), Drained::Waiting))
}

/// What is told where [`look`] failed. The API server names the verb and the kind that it forbids.
pub fn not_seen(error: &ApiError) -> String {
    let hint = match error {
        ApiError::Refused { code: 403, .. } => {
            "; the access rules are of another version than this controller: `penstock-kubernetes manifests | kubectl apply -f -` with its own"
        }
        _ => "",
    };
    format!("its pods and their claims could not be looked at: {error}{hint}")
}

/// As [`drain::on_its_way`], of the first such claim of the cluster.
async fn on_its_way(
    client: &Client,
    devices: &drain::Devices,
    there: &BTreeSet<String>,
) -> Result<Option<String>, Error> {
    let claims = Api::<ResourceClaim>::all(client.clone());
    let mut page = ListParams::default().limit(CLAIMS);
    loop {
        let listed = claims.list(&page).await?;
        let waiting = listed.items.iter().find_map(|claim| drain::on_its_way(devices, claim, there));
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) if waiting.is_none() => page = page.continue_token(&token),
            _ => return Ok(waiting),
        }
    }
}

/// What of the devices a pod has.
async fn holds(
    client: &Client,
    pod: &Pod,
    devices: &drain::Devices,
    known: &mut BTreeMap<(String, String), Holding>,
) -> Result<Holding, Error> {
    let mut of_pod = Holding::Nothing;
    let namespace = pod.namespace().unwrap_or_default();
    for name in drain::claims_of(pod) {
        let key = (namespace.clone(), name.to_owned());
        let held = match known.get(&key) {
            Some(held) => held.clone(),
            None => {
                let claim =
                    Api::<ResourceClaim>::namespaced(client.clone(), &namespace).get_opt(name).await?;
                let held = claim.map_or(Holding::Nothing, |claim| devices.held_by(&claim));
                known.insert(key, held.clone());
                held
            }
        };
        match held {
            Holding::Nothing => {}
            Holding::Vanishing => return Ok(held),
            Holding::Unknown(_) => of_pod = held,
        }
    }
    Ok(of_pod)
}

fn name_of(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

/// Asks a pod to leave, unless it is at that already.
async fn leave(client: &Client, pod: &Pod, why: &str) -> Leaving {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let mut leaving = Leaving { pod: name_of(pod), refused: None };
    if pod.metadata.deletion_timestamp.is_some() {
        return leaving;
    }
    match Api::<Pod>::namespaced(client.clone(), &namespace).evict(&name, &EvictParams::default()).await {
        Ok(_) => log::say(format!("evicted {}: {why}", leaving.pod)),
        Err(Error::Api(status)) if status.code == 404 => {}
        Err(Error::Api(status)) => {
            let causes =
                status.details.iter().flat_map(|details| &details.causes).map(|cause| cause.message.as_str());
            let said: Vec<&str> = std::iter::once(status.message.as_str())
                .chain(causes)
                .filter(|text| !text.is_empty())
                .collect();
            leaving.refused = Some(said.join(" "));
        }
        Err(error) => leaving.refused = Some(error.to_string()),
    }
    leaving
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_rules_of_an_earlier_version_are_told_of() {
        let message =
            "resourceclaims.resource.k8s.io is forbidden: User \"c\" cannot list resource \"resourceclaims\"";
        let refused = |code| {
            let (message, reason) = (message.to_owned(), "Forbidden".to_owned());
            not_seen(&ApiError::Refused { message, reason, code })
        };
        let told = refused(403);
        assert!(
            told.contains(message) && told.contains("`penstock-kubernetes manifests | kubectl apply"),
            "{told}"
        );
        assert!(!refused(500).contains("manifests"), "{}", refused(500));
    }
}
