//! Which pods have to go before a node is changed: those with a claim on a VF that vanishes, of DaemonSets too; with `drain.mode: node` also all
//! others but static ones and those of DaemonSets and controllers.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{ResourceClaim, ResourceSlice},
};

use super::Drained;
use crate::{
    identity::{DRIVER, VANISHING},
    machine::{manifests::CONTROLLER, node::VanishingVf},
};

/// The attribute of a device that has its PCI address.
const ADDRESS: &str = "resource.kubernetes.io/pciBusID";

/// An attribute that only devices of this driver have, whatever it is called in a cluster.
const OF_OURS: &str = "pfPciAddress";

/// A device as a claim names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device {
    /// The driver.
    pub driver: String,
    /// The pool.
    pub pool: String,
    /// Its name in the pool.
    pub name: String,
}

/// The devices of a node that vanish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    /// All of them.
    pub vanishing: BTreeSet<Device>,
    /// Those that a new claim could still be given.
    pub open: BTreeSet<Device>,
    /// A pool whose slices are not all there, in words: what vanishes is not known then.
    pub incomplete: Option<String>,
    /// Where something vanishes and this driver has published nothing: the pool, and who has published something. Kubelet removes slices at its
    /// start, under pods that go on.
    pub absent: Option<AbsentPool>,
}

/// A pool of which nothing is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsentPool {
    /// Its name, which is the node's.
    pub pool: String,
    /// The drivers that have published something on the node.
    pub others: BTreeSet<String>,
}

/// What of that which vanishes a claim has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holding {
    /// Nothing.
    Nothing,
    /// One of the devices.
    Vanishing,
    /// A device of this driver, of which nobody knows whether it vanishes.
    Unknown(String),
}

/// Finds the devices in a node's slices. `pods` may use them until they are tainted and nobody has them.
pub fn devices(node: &str, slices: &[ResourceSlice], vanishing: &[VanishingVf]) -> Devices {
    let addresses: BTreeSet<&str> = vanishing.iter().map(|vf| vf.address.as_str()).collect();
    // Of each pool only what its newest generation says.
    let mut newest: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for slice in slices {
        let generation = newest.entry((&slice.spec.driver, &slice.spec.pool.name)).or_default();
        *generation = slice.spec.pool.generation.max(*generation);
    }
    let mut found = if addresses.is_empty() { Devices::default() } else { published(node, slices, &newest) };
    for slice in slices {
        let spec = &slice.spec;
        if newest.get(&(spec.driver.as_str(), spec.pool.name.as_str())) != Some(&spec.pool.generation) {
            continue;
        }
        for device in spec.devices.iter().flatten() {
            let address = device
                .attributes
                .as_ref()
                .and_then(|all| all.get(ADDRESS))
                .and_then(|value| value.string.as_deref());
            if !address.is_some_and(|address| addresses.contains(address)) {
                continue;
            }
            let named = Device {
                driver: spec.driver.clone(),
                pool: spec.pool.name.clone(),
                name: device.name.clone(),
            };
            let closed = device.taints.iter().flatten().any(|taint| {
                taint.key == VANISHING && ["NoSchedule", "NoExecute"].contains(&taint.effect.as_str())
            });
            if !closed {
                found.open.insert(named.clone());
            }
            found.vanishing.insert(named);
        }
    }
    found
}

/// The claims of a pod, by name in its namespace. A claim that was not made yet has no name.
pub fn claims_of(pod: &Pod) -> BTreeSet<&str> {
    let listed = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    let made = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
    let extended = pod.status.iter().filter_map(|status| status.extended_resource_claim_status.as_ref());
    listed
        .filter_map(|claim| claim.resource_claim_name.as_deref())
        .chain(made.filter_map(|claim| claim.resource_claim_name.as_deref()))
        .chain(extended.map(|claim| claim.resource_claim_name.as_str()))
        .collect()
}

/// Whether a pod still runs or may run: one that has ended holds no device.
pub fn is_alive(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

/// A static pod, which kubelet makes from a file, is shown with this annotation (`kubernetesConfigMirrorAnnotationKey`).
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Whether a pod leaves a node that is drained as a whole: a static one would be made anew there, and so would one of a DaemonSet, which heeds no
/// cordon. Those of controllers, which run in `namespace` under their own service account, are made anew there, too: their Deployment tolerates the
/// cordon, since where they can be nowhere else nobody would be left to end it.
pub fn leaves_with_node(pod: &Pod, namespace: &str) -> bool {
    let is_static = pod.metadata.annotations.iter().flatten().any(|(key, _)| key == MIRROR);
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let of_daemon_set = owners.any(|owner| {
        owner.controller == Some(true) && owner.kind == "DaemonSet" && owner.api_version.starts_with("apps/")
    });
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
    let is_controller = account == Some(CONTROLLER) && pod.metadata.namespace.as_deref() == Some(namespace);
    !is_static && !of_daemon_set && !is_controller
}

impl Devices {
    /// What of that which vanishes a claim was given.
    pub fn held_by(&self, claim: &ResourceClaim) -> Holding {
        let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
        let results = allocation
            .and_then(|allocation| allocation.devices.as_ref())
            .and_then(|devices| devices.results.as_ref());
        let mut holding = Holding::Nothing;
        for result in results.into_iter().flatten() {
            let device = Device {
                driver: result.driver.clone(),
                pool: result.pool.clone(),
                name: result.device.clone(),
            };
            // Without slices the name of a device says nothing: any of the pool may be one that vanishes.
            let absent = self.absent.as_ref().filter(|absent| absent.pool == device.pool);
            if self.vanishing.contains(&device) || absent.is_some() && device.driver == DRIVER {
                return Holding::Vanishing;
            }
            if absent.is_some_and(|absent| !absent.others.contains(&device.driver)) {
                holding = Holding::Unknown(device.driver);
            }
        }
        holding
    }
}

/// Why a node is not drained yet, for a claim that has something which vanishes and is reserved for whom is none of the pods that are `there`, by
/// their UIDs: the scheduler writes what it allocates on the claim before it binds the pod to the node. What is reserved for nobody no pod starts with.
pub fn on_its_way(devices: &Devices, claim: &ResourceClaim, there: &BTreeSet<String>) -> Option<String> {
    let reserved =
        claim.status.as_ref().and_then(|status| status.reserved_for.as_deref()).unwrap_or_default();
    let consumer = reserved.iter().find(|consumer| !there.contains(&consumer.uid))?;
    if devices.held_by(claim) == Holding::Nothing {
        return None;
    }
    let of = |name: &Option<String>| name.clone().unwrap_or_default();
    let (namespace, name) = (of(&claim.metadata.namespace), of(&claim.metadata.name));
    Some(format!(
        "the claim {namespace}/{name} has a VF that vanishes for {namespace}/{}, which is not on the node yet, or not gone from the claim",
        consumer.name
    ))
}

/// How far what this driver has published on a node is all there.
fn published(node: &str, slices: &[ResourceSlice], newest: &BTreeMap<(&str, &str), i64>) -> Devices {
    let is_ours = |slice: &&ResourceSlice| {
        let mut devices = slice.spec.devices.iter().flatten();
        slice.spec.driver == DRIVER
            || devices.any(|device| device.attributes.as_ref().is_some_and(|all| all.contains_key(OF_OURS)))
    };
    let pools: BTreeSet<(&str, &str)> = slices
        .iter()
        .filter(is_ours)
        .map(|slice| (slice.spec.driver.as_str(), slice.spec.pool.name.as_str()))
        .collect();
    let incomplete = pools.iter().find_map(|pool| {
        let of_pool = slices.iter().filter(|slice| {
            (slice.spec.driver.as_str(), slice.spec.pool.name.as_str()) == *pool
                && newest.get(pool) == Some(&slice.spec.pool.generation)
        });
        let counts: Vec<i64> = of_pool.map(|slice| slice.spec.pool.resource_slice_count).collect();
        let whole = counts.iter().all(|count| usize::try_from(*count) == Ok(counts.len()));
        (!whole).then(|| {
            let of = counts.iter().max().copied().unwrap_or_default();
            format!("of the ResourceSlices of the pool {} only {} of {of} are there", pool.1, counts.len())
        })
    });
    let absent = pools.is_empty().then(|| AbsentPool {
        pool: node.to_owned(),
        others: slices.iter().map(|slice| slice.spec.driver.clone()).collect(),
    });
    Devices { incomplete, absent, ..Devices::default() }
}

/// A pod that has to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// `namespace/name`.
    pub pod: String,
    /// What its eviction was answered with, when it was refused: a PodDisruptionBudget, for one.
    pub refused: Option<String>,
}

/// How far a node is drained.
pub fn drained(devices: &Devices, leaving: &[Leaving]) -> Drained {
    if let Some(why) = &devices.incomplete {
        return Drained::Waiting(why.clone());
    }
    if !devices.open.is_empty() {
        let names: Vec<&str> = devices.open.iter().take(5).map(|device| device.name.as_str()).collect();
        return Drained::Waiting(format!(
            "{} devices that vanish have no taint {VANISHING} yet ({}...)",
            devices.open.len(),
            names.join(", ")
        ));
    }
    // The one that nobody lets go is worth more words than those that are on their way.
    match leaving.iter().find(|pod| pod.refused.is_some()).or(leaving.first()) {
        None => Drained::Clear,
        Some(Leaving { pod, refused: Some(why) }) => {
            Drained::Waiting(format!("pod {pod} may not be evicted: {why}"))
        }
        Some(Leaving { pod, refused: None }) => Drained::Waiting(format!(
            "{} pods that have to leave have not ended yet, {pod} among them",
            leaving.len()
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn devices(slices: &[ResourceSlice], vanishing: &[VanishingVf]) -> Devices {
        super::devices("n", slices, vanishing)
    }

    fn slice(generation: i64, tainted: bool) -> ResourceSlice {
        let taints = if tainted { json!([{"key": VANISHING, "effect": "NoSchedule"}]) } else { json!([]) };
        let device = |name: &str, address: &str, taints| json!({"name": name, "attributes": {ADDRESS: {"string": address}}, "taints": taints});
        serde_json::from_value(json!({"metadata": {"name": "s"}, "spec": {
            "driver": "sriov.penstock.dev", "nodeName": "n", "pool": {"name": "n", "generation": generation, "resourceSliceCount": 1},
            "devices": [device("net0-0", "0000:01:10.0", taints), device("net1-0", "0000:02:10.0", json!([]))],
        }}))
        .unwrap()
    }

    fn vanishing() -> Vec<VanishingVf> {
        vec![VanishingVf { name: "NET0#0".to_owned(), address: "0000:01:10.0".to_owned() }]
    }

    #[test]
    fn a_device_is_open_until_the_newest_slices_say_otherwise() {
        let found = devices(&[slice(1, false)], &vanishing());
        assert_eq!((found.vanishing.len(), found.open.len()), (1, 1));
        assert!(matches!(drained(&found, &[]), Drained::Waiting(why) if why.contains("no taint")));
        // An old slice that was not removed yet does not count.
        let found = devices(&[slice(1, false), slice(2, true)], &vanishing());
        assert_eq!((found.vanishing.len(), found.open.len()), (1, 0));
        assert_eq!(drained(&found, &[]), Drained::Clear);
        assert_eq!(devices(&[], &[]), Devices::default());
    }

    #[test]
    fn a_pod_is_found_by_the_devices_of_its_claims() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}]},
            "spec": {"containers": [], "resourceClaims": [{"name": "a", "resourceClaimName": "own"}, {"name": "b", "resourceClaimTemplateName": "t"}]},
            "status": {"phase": "Running", "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "p-b-x"}],
                "extendedResourceClaimStatus": {"resourceClaimName": "p-ext", "requestMappings": []}},
        }))
        .unwrap();
        assert_eq!(claims_of(&pod), BTreeSet::from(["own", "p-b-x", "p-ext"]));
        assert!(is_alive(&pod));
        let claim = |device: &str| -> ResourceClaim {
            serde_json::from_value(
                json!({"metadata": {}, "spec": {}, "status": {"allocation": {"devices": {"results": [
                {"request": "r", "driver": "sriov.penstock.dev", "pool": "n", "device": device}]}}}}),
            )
            .unwrap()
        };
        let found = devices(&[slice(1, true)], &vanishing());
        assert_eq!(found.held_by(&claim("net0-0")), Holding::Vanishing);
        assert_eq!(found.held_by(&claim("net1-0")), Holding::Nothing);
        // Kubelet has removed the slices: any device of the pool may vanish.
        assert_eq!(devices(&[], &vanishing()).held_by(&claim("net1-0")), Holding::Vanishing);
        assert_eq!(devices(&[], &[]).held_by(&claim("net1-0")), Holding::Nothing);
        let elsewhere = super::devices("other", &[], &vanishing());
        assert_eq!(elsewhere.held_by(&claim("net1-0")), Holding::Nothing, "a pool of another node");
    }

    #[test]
    fn what_was_allocated_for_a_pod_that_is_not_bound_yet_is_waited_for() {
        let claim = |device: &str, reserved: serde_json::Value| -> ResourceClaim {
            serde_json::from_value(
                json!({"metadata": {"namespace": "a", "name": "c"}, "spec": {}, "status": {
                "reservedFor": reserved,
                "allocation": {"devices": {"results": [
                    {"request": "r", "driver": "sriov.penstock.dev", "pool": "n", "device": device}]}}}}),
            )
            .unwrap()
        };
        let pod = |uid: &str| json!({"resource": "pods", "name": format!("of-{uid}"), "uid": uid});
        let found = devices(&[slice(1, true)], &vanishing());
        let there = BTreeSet::from(["u-1".to_owned()]);
        let waits = |claim: &ResourceClaim| on_its_way(&found, claim, &there);
        let told = waits(&claim("net0-0", json!([pod("u-1"), pod("u-2")]))).unwrap();
        assert!(
            told.starts_with("the claim a/c has a VF that vanishes for a/of-u-2, which is not on"),
            "{told}"
        );
        // Its pod is looked at by itself.
        assert_eq!(waits(&claim("net0-0", json!([pod("u-1")]))), None);
        assert_eq!(waits(&claim("net1-0", json!([pod("u-2")]))), None, "it does not vanish");
        assert_eq!(waits(&claim("net0-0", json!([]))), None, "of a pod that has ended");
        // Kubelet has removed the slices: any device of the pool may vanish.
        let absent = devices(&[], &vanishing());
        assert!(on_its_way(&absent, &claim("net1-0", json!([pod("u-2")])), &there).is_some());
    }

    #[test]
    fn a_driver_of_another_name_is_known_by_its_devices_and_missed_when_it_has_published_nothing() {
        let claim: ResourceClaim =
            serde_json::from_value(json!({"metadata": {}, "spec": {}, "status": {"allocation": {"devices": {
            "results": [{"request": "r", "driver": "gpu.example.org", "pool": "n", "device": "gpu-0"}]}}}}))
            .unwrap();
        let foreign = |count: i64| -> ResourceSlice {
            serde_json::from_value(json!({"metadata": {}, "spec": {"driver": "gpu.example.org", "nodeName": "n",
                "pool": {"name": "n", "generation": 1, "resourceSliceCount": count}, "devices": [{"name": "gpu-0"}]}}))
            .unwrap()
        };
        // Another driver's trouble holds nobody up, and its pods stay where they are.
        let found = devices(&[foreign(2), slice(1, true)], &vanishing());
        assert_eq!((found.incomplete.clone(), found.held_by(&claim)), (None, Holding::Nothing));
        assert_eq!(devices(&[foreign(2)], &vanishing()).held_by(&claim), Holding::Nothing);
        assert_eq!(
            devices(&[], &vanishing()).held_by(&claim),
            Holding::Unknown("gpu.example.org".to_owned())
        );
        let mut ours = foreign(2);
        ours.spec.devices.as_mut().unwrap()[0].attributes =
            Some([(OF_OURS.to_owned(), k8s_openapi::api::resource::v1::DeviceAttribute::default())].into());
        assert!(devices(&[ours], &vanishing()).incomplete.is_some());
    }

    proptest::proptest! {
        /// Slices are written one by one, and removed in any order.
        #[test]
        fn a_pool_that_is_not_all_there_is_not_drained(count in 1..5_usize, there in proptest::collection::vec(0..2_i64, 0..5)) {
            let slices: Vec<ResourceSlice> = there.iter().take(count).map(|generation| {
                let mut slice = slice(*generation, true);
                slice.spec.pool.resource_slice_count = count as i64;
                slice
            }).collect();
            let newest = slices.iter().map(|slice| slice.spec.pool.generation).max();
            let of_newest = slices.iter().filter(|slice| Some(slice.spec.pool.generation) == newest).count();
            let found = devices(&slices, &vanishing());
            match drained(&found, &[]) {
                Drained::Clear => proptest::prop_assert!(of_newest == count || slices.is_empty() && found.absent.is_some()),
                Drained::Waiting(why) => proptest::prop_assert!(of_newest < count && why.contains("are there"), "{why}"),
            }
        }
    }

    #[test]
    fn all_leave_a_drained_node_but_static_pods_and_those_of_daemon_sets_and_controllers() {
        let of = |metadata: serde_json::Value, account: &str| -> Pod {
            let spec = json!({"containers": [], "serviceAccountName": account});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let pod = |metadata| of(metadata, "default");
        let owner = |kind: &str, controller: bool| {
            json!({"ownerReferences": [
            {"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u", "controller": controller}]})
        };
        let leaves = |pod: Pod| leaves_with_node(&pod, "penstock");
        assert!(leaves(pod(json!({}))));
        assert!(leaves(pod(owner("ReplicaSet", true))));
        assert!(!leaves(pod(owner("DaemonSet", true))));
        assert!(leaves(pod(owner("DaemonSet", false))), "one that only names a DaemonSet");
        assert!(!leaves(pod(json!({"annotations": {MIRROR: "hash"}}))));
        // The one that decides and the one that waits, also where none of them is the controller that drains.
        assert!(!leaves(of(json!({"namespace": "penstock"}), "penstock-controller")));
        assert!(
            leaves(of(json!({"namespace": "another"}), "penstock-controller")),
            "an account of that name"
        );
        assert!(leaves(of(json!({"namespace": "penstock"}), "penstock-kubernetes")));
    }

    #[test]
    fn the_pod_that_may_not_go_is_named() {
        let found = devices(&[slice(1, true)], &vanishing());
        let leaving = |pod: &str, refused: Option<&str>| Leaving {
            pod: pod.to_owned(),
            refused: refused.map(str::to_owned),
        };
        let said = drained(
            &found,
            &[leaving("a/b", None), leaving("c/d", Some("the disruption budget pdb needs 1 healthy pods"))],
        );
        assert_eq!(
            said,
            Drained::Waiting(
                "pod c/d may not be evicted: the disruption budget pdb needs 1 healthy pods".to_owned()
            )
        );
    }
}
