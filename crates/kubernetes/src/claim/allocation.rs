//! Which devices a claim was given here, and with which parameters. Pure.

use k8s_openapi::api::resource::v1::{DeviceAllocationConfiguration, ResourceClaim};
use thiserror::Error;

use super::{
    parameters::{ParametersError, VfParameters},
    state::{ClaimUid, PodReference, StateError},
};
use crate::identity::is_label;

/// By this annotation a claim that was made from a template names the pod's own name for it (`PodResourceClaimAnnotation`).
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";

/// A device that a claim was given.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocatedDevice {
    /// The request that it was given for: `REQUEST`, or `REQUEST/SUBREQUEST`.
    pub request: String,
    /// The pool that it is in.
    pub pool: String,
    /// Its name.
    pub device: String,
    /// What the claim asks of it, its class's parameters included.
    pub parameters: VfParameters,
}

/// A claim that the scheduler has given devices of this driver.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocatedClaim {
    /// The claim's UID.
    pub uid: ClaimUid,
    /// The claim's namespace.
    pub namespace: String,
    /// The claim's name.
    pub name: String,
    /// The name by which the pod's specification knows a claim that was made from a template.
    pub pod_claim: Option<String>,
    /// The pods that may use it.
    pub pods: Vec<PodReference>,
    /// Its devices of this driver, in the order of the allocation.
    pub devices: Vec<AllocatedDevice>,
}

/// Why a claim's allocation cannot be carried out here.
#[derive(Debug, Error)]
pub enum AllocationError {
    /// The claim of that name is another one.
    #[error(
        "claim {namespace}/{name} has the UID {seen:?} now, not {wanted:?}: it was deleted and made anew"
    )]
    OtherClaim {
        /// The claim's namespace.
        namespace: String,
        /// The claim's name.
        name: String,
        /// The UID that kubelet asked for.
        wanted: String,
        /// The UID that the API server tells.
        seen: String,
    },
    /// Nothing was given to it.
    #[error(
        "claim {namespace}/{name} has no allocation: the scheduler has given it nothing, or has taken it back"
    )]
    NotAllocated {
        /// The claim's namespace.
        namespace: String,
        /// The claim's name.
        name: String,
    },
    /// A device is another node's.
    #[error("device {device} is in the pool {pool:?}, and this node's is {own:?}")]
    OtherPool {
        /// The device.
        device: String,
        /// Its pool.
        pool: String,
        /// This node's pool.
        own: String,
    },
    /// A device may be in use by another claim at the same time.
    #[error("device {device} was asked for with adminAccess: a VF has one user at a time")]
    AdminAccess {
        /// The device.
        device: String,
    },
    /// A device is shared with other claims.
    #[error("device {device} was given in part (share {share:?}): a VF is given whole")]
    Shared {
        /// The device.
        device: String,
        /// The identifier of the share.
        share: String,
    },
    /// Something else than a pod has the claim.
    #[error("claim {namespace}/{name} is reserved for {resource} {consumer}, and only pods are understood")]
    NoPod {
        /// The claim's namespace.
        namespace: String,
        /// The claim's name.
        name: String,
        /// The kind of the consumer, in the plural as the API has it.
        resource: String,
        /// The consumer's name.
        consumer: String,
    },
    /// The parameters are wrong.
    #[error("{source_of} of device {device}: {error}")]
    Parameters {
        /// Whose parameters: the claim's or the class's.
        source_of: &'static str,
        /// The device.
        device: String,
        /// What is wrong with them.
        error: ParametersError,
    },
    /// The UID is none.
    #[error(transparent)]
    Uid(#[from] StateError),
}

/// What of a claim is this driver's on this node.
///
/// # Errors
///
/// When it is another claim by now, was given nothing, or what it was given or asks for cannot be had.
pub fn allocated(
    claim: &ResourceClaim,
    uid: &ClaimUid,
    driver: &str,
    pool: &str,
) -> Result<AllocatedClaim, AllocationError> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name) = (text(&claim.metadata.namespace), text(&claim.metadata.name));
    let seen = text(&claim.metadata.uid);
    if seen != uid.as_str() {
        return Err(AllocationError::OtherClaim { namespace, name, wanted: uid.to_string(), seen });
    }
    let status = claim.status.as_ref();
    let Some(allocation) = status.and_then(|status| status.allocation.as_ref()?.devices.as_ref()) else {
        return Err(AllocationError::NotAllocated { namespace, name });
    };
    let mut pods = Vec::new();
    for consumer in status.and_then(|status| status.reserved_for.as_ref()).into_iter().flatten() {
        if consumer.resource != "pods" || consumer.api_group.as_deref().is_some_and(|group| !group.is_empty())
        {
            let (resource, consumer) = (consumer.resource.clone(), consumer.name.clone());
            return Err(AllocationError::NoPod { namespace, name, resource, consumer });
        }
        pods.push(PodReference { name: consumer.name.clone(), uid: consumer.uid.clone() });
    }
    let configurations = allocation.config.as_deref().unwrap_or_default();
    let mut devices = Vec::new();
    for result in allocation.results.iter().flatten().filter(|result| result.driver == driver) {
        let device = result.device.clone();
        if result.pool != pool {
            let (pool, own) = (result.pool.clone(), pool.to_owned());
            return Err(AllocationError::OtherPool { device, pool, own });
        }
        if result.admin_access == Some(true) {
            return Err(AllocationError::AdminAccess { device });
        }
        if let Some(share) = &result.share_id {
            return Err(AllocationError::Shared { device, share: share.clone() });
        }
        let parameters = parameters(configurations, driver, &result.request, &device)?;
        devices.push(AllocatedDevice {
            request: result.request.clone(),
            pool: result.pool.clone(),
            device,
            parameters,
        });
    }
    let annotations = claim.metadata.annotations.as_ref();
    // Whoever makes a claim by hand writes annotations too, and this one becomes part of a path in the container.
    let pod_claim = annotations.and_then(|all| all.get(POD_CLAIM)).filter(|name| is_label(name)).cloned();
    Ok(AllocatedClaim { uid: uid.clone(), namespace, name, pod_claim, pods, devices })
}

/// The parameters of a request's device: those of the claim, as far as its class lets it go, come before those of its class, the later of
/// each before the earlier.
fn parameters(
    configurations: &[DeviceAllocationConfiguration],
    driver: &str,
    request: &str,
    device: &str,
) -> Result<VfParameters, AllocationError> {
    const CLAIM: &str = "the claim's parameters";
    let wrong =
        |source_of, error| AllocationError::Parameters { source_of, device: device.to_owned(), error };
    let of = |source: &str, source_of: &'static str| -> Result<VfParameters, AllocationError> {
        let mut together = VfParameters::default();
        for configuration in configurations.iter().filter(|of| of.source == source) {
            let opaque = configuration.opaque.as_ref().filter(|opaque| opaque.driver == driver);
            let requests = configuration.requests.as_deref().unwrap_or_default();
            let meant = requests.is_empty() || requests.iter().any(|of| of == request || of == base(request));
            let Some(opaque) = opaque.filter(|_| meant) else { continue };
            let read = VfParameters::read(&opaque.parameters.0);
            together = read.map_err(|error| wrong(source_of, error))?.or(together);
        }
        Ok(together)
    };
    let class = of("FromClass", "the parameters of the DeviceClass")?;
    let claim = of("FromClaim", CLAIM)?;
    claim.within(&class).map_err(|error| wrong(CLAIM, error))?;
    claim.or(class).checked().map_err(|error| wrong("the parameters", error))
}

/// A request without the name of the one among its alternatives (`BaseRequestRef`).
pub fn base(request: &str) -> &str {
    request.split_once('/').map_or(request, |(base, _)| base)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(status: Value) -> ResourceClaim {
        serde_json::from_value(json!({
            "metadata": {"name": "c", "namespace": "n", "uid": "u-1", "annotations": {POD_CLAIM: "nic"}},
            "spec": {},
            "status": status,
        }))
        .unwrap()
    }

    fn read(status: Value) -> Result<AllocatedClaim, AllocationError> {
        allocated(&claim(status), &"u-1".parse().unwrap(), "d", "node")
    }

    fn result(more: Value) -> Value {
        let mut all = json!({"driver": "d", "pool": "node", "device": "net0-1", "request": "vf"});
        for (key, value) in more.as_object().unwrap() {
            all[key] = value.clone();
        }
        all
    }

    #[test]
    fn parameters_come_from_class_and_claim_by_request() {
        let config = |source: &str, requests: Value, driver: &str, parameters: Value| json!({"source": source, "requests": requests, "opaque": {"driver": driver, "parameters": parameters}});
        let read = read(json!({
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "p-1"}],
            "allocation": {"devices": {
                "results": [
                    result(json!({})), result(json!({"request": "a/b", "device": "net0-2"})),
                    result(json!({"driver": "other", "pool": "elsewhere"})),
                ],
                "config": [
                    config("FromClaim", json!(["vf"]), "d", json!({"vlan": 100})),
                    config("FromClaim", json!(["a"]), "d", json!({"vlan": 200})),
                    config("FromClass", json!([]), "d", json!({"vlan": 7, "trust": true, "allow": ["vlan"]})),
                    config("FromClaim", json!([]), "other", json!({"anything": 1})),
                ],
            }},
        }))
        .unwrap();
        let seen: Vec<_> = read
            .devices
            .iter()
            .map(|of| {
                (of.device.as_str(), of.parameters.settings.vlan.unwrap().get(), of.parameters.settings.trust)
            })
            .collect();
        assert_eq!(seen, [("net0-1", 100, Some(true)), ("net0-2", 200, Some(true))]);
        assert_eq!(read.pod_claim.as_deref(), Some("nic"));
        assert_eq!(read.pods, [PodReference { name: "p".into(), uid: "p-1".into() }]);
    }

    #[test]
    fn what_cannot_be_carried_out_is_said() {
        let given = |result: Value| json!({"allocation": {"devices": {"results": [result]}}});
        for (status, words) in [
            (json!({}), "has no allocation"),
            (given(result(json!({"pool": "other"}))), "is in the pool \"other\""),
            (given(result(json!({"adminAccess": true}))), "adminAccess"),
            (given(result(json!({"shareID": "s"}))), "given in part"),
            (
                json!({"reservedFor": [{"resource": "jobs", "apiGroup": "batch", "name": "j", "uid": "1"}], "allocation": {"devices": {}}}),
                "only pods are understood",
            ),
            (
                json!({"allocation": {"devices": {"results": [result(json!({}))], "config": [
                    {"source": "FromClass", "opaque": {"driver": "d", "parameters": {"vlna": 1}}}]}}}),
                "the parameters of the DeviceClass of device net0-1: the parameters have the unknown key \"vlna\"",
            ),
            (
                json!({"allocation": {"devices": {"results": [result(json!({}))], "config": [
                    {"source": "FromClaim", "opaque": {"driver": "d", "parameters": {"trust": true}}}]}}}),
                "the claim's parameters of device net0-1: trust may not be on",
            ),
        ] {
            let error = read(status.clone()).unwrap_err().to_string();
            assert!(error.contains(words), "{status}: {error}");
        }
        let other = allocated(&claim(json!({})), &"u-2".parse().unwrap(), "d", "node").unwrap_err();
        assert!(other.to_string().contains("made anew"), "{other}");
    }
}
