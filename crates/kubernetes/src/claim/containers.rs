//! Whether the containers of a pod ask for a claim. Kubelet has a claim prepared that a pod names, also where no container does. Pure.

use k8s_openapi::api::core::v1::Pod;

use super::state::PreparedClaim;

/// Whether a pod names a claim, and none of its containers does. One that asks for some of the claim's requests leaves others to other pods, as
/// those of a shared claim do. A claim that the pod does not name, as one that was made for its extended resources, is no concern of this:
/// the pod's status has its containers.
pub fn is_unused(pod: &Pod, claim: &PreparedClaim) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let made = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_deref());
    let made_as =
        |name: &str| made.into_iter().flatten().find(|of| of.name == name)?.resource_claim_name.as_ref();
    let named = spec.resource_claims.iter().flatten();
    let names: Vec<&str> = named
        .filter(|of| of.resource_claim_name.as_ref().or_else(|| made_as(&of.name)) == Some(&claim.name))
        .map(|of| of.name.as_str())
        .collect();
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let mut asked =
        containers.filter_map(|container| container.resources.as_ref()?.claims.as_ref()).flatten();
    !names.is_empty() && !asked.any(|of| names.contains(&of.name.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::claim::state::tests::claim;

    #[test]
    fn a_claim_that_no_container_asks_for_is_told() {
        let claim = claim("u-1", "net0-3");
        let unused = |containers: Value, init: Value, names: Value| {
            let container = |claims: &Value| json!({"name": "c", "resources": {"claims": claims}});
            let all = |claims: &Value| claims.as_array().unwrap().iter().map(container).collect::<Vec<_>>();
            let pod: Pod = serde_json::from_value(json!({
                "spec": {"containers": all(&containers), "initContainers": all(&init), "resourceClaims": [names]},
                "status": {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "data"}]},
            }))
            .unwrap();
            is_unused(&pod, &claim)
        };
        let own = || json!({"name": "nic", "resourceClaimName": "data"});
        let made = || json!({"name": "made", "resourceClaimTemplateName": "t"});
        assert!(unused(json!([[]]), json!([]), own()));
        assert!(!unused(json!([[], [{"name": "nic"}]]), json!([]), own()));
        assert!(!unused(json!([[]]), json!([[{"name": "nic", "request": "vf"}]]), own()));
        let other = json!([[{"name": "nic", "request": "other"}]]);
        assert!(!unused(other, json!([]), own()), "another pod has the rest of a shared claim");
        assert!(unused(json!([[{"name": "other"}]]), json!([]), made()));
        assert!(!unused(json!([[{"name": "made"}]]), json!([]), made()));
        let another = json!({"name": "nic", "resourceClaimName": "another"});
        assert!(!unused(json!([[]]), json!([]), another), "it is none of the pod's");
    }
}
