//! Which devices of a claim the containers of a pod ask for. Kubelet has a claim prepared that a pod names, also where no container does. Pure.

use k8s_openapi::api::core::v1::Pod;

use super::{
    allocation::base,
    state::{PreparedClaim, PreparedDevice},
};

/// The devices of a claim that no container of the pod asks for. None of a claim that the pod does not name, as one that was made for its
/// extended resources: the pod's status has its containers.
pub fn unused<'a>(pod: &Pod, claim: &'a PreparedClaim) -> Vec<&'a PreparedDevice> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let made = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_deref());
    let made_as =
        |name: &str| made.into_iter().flatten().find(|of| of.name == name)?.resource_claim_name.as_ref();
    let named = spec.resource_claims.iter().flatten();
    let names: Vec<&str> = named
        .filter(|of| of.resource_claim_name.as_ref().or_else(|| made_as(&of.name)) == Some(&claim.name))
        .map(|of| of.name.as_str())
        .collect();
    if names.is_empty() {
        return Vec::new();
    }
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let asked: Vec<_> = containers
        .filter_map(|container| container.resources.as_ref()?.claims.as_ref())
        .flatten()
        .filter(|of| names.contains(&of.name.as_str()))
        .collect();
    let is_for =
        |device: &PreparedDevice, request: &String| device.requests.iter().any(|of| base(of) == request);
    let unused = |device: &&PreparedDevice| {
        !asked.iter().any(|of| of.request.as_ref().is_none_or(|request| is_for(device, request)))
    };
    claim.devices.iter().filter(unused).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::claim::state::tests::claim;

    #[test]
    fn a_device_that_no_container_asks_for_is_told() {
        let mut claim = claim("u-1", "net0-3");
        claim.devices[0].requests = vec!["vf/fast".to_owned()];
        let unused = |containers: Value, init: Value, names: Value| {
            let container = |claims: &Value| json!({"name": "c", "resources": {"claims": claims}});
            let all = |claims: &Value| claims.as_array().unwrap().iter().map(container).collect::<Vec<_>>();
            let pod: Pod = serde_json::from_value(json!({
                "spec": {"containers": all(&containers), "initContainers": all(&init), "resourceClaims": [names]},
                "status": {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "data"}]},
            }))
            .unwrap();
            super::unused(&pod, &claim).len()
        };
        let own = || json!({"name": "nic", "resourceClaimName": "data"});
        let made = || json!({"name": "made", "resourceClaimTemplateName": "t"});
        assert_eq!(unused(json!([[]]), json!([]), own()), 1);
        assert_eq!(unused(json!([[], [{"name": "nic"}]]), json!([]), own()), 0);
        assert_eq!(unused(json!([[]]), json!([[{"name": "nic", "request": "vf"}]]), own()), 0);
        assert_eq!(unused(json!([[{"name": "nic", "request": "other"}]]), json!([]), own()), 1);
        assert_eq!(unused(json!([[{"name": "other"}]]), json!([]), made()), 1);
        assert_eq!(unused(json!([[{"name": "made"}]]), json!([]), made()), 0);
        let another = json!({"name": "nic", "resourceClaimName": "another"});
        assert_eq!(unused(json!([[]]), json!([]), another), 0, "it is none of the pod's");
    }
}
