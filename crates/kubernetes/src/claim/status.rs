//! What is told of a claim: the condition `Ready` and the network data of each device in `status.devices`, and Events of its pods. Pure.

use std::{
    collections::BTreeSet,
    fmt::Write,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use k8s_openapi::{
    api::resource::v1::{AllocatedDeviceStatus, ResourceClaim},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use penstock_model::digest::sha256;
use serde_json::{Map, Value, json};

use super::{
    metadata,
    parameters::VfMode,
    state::{AttachRecord, PodReference, PodRefusal, PreparedClaim, PreparedDevice},
};
use crate::health::DriftEvent;

/// The type of the condition.
const READY: &str = "Ready";
/// Its reason while a device is not as it was given.
const DIFFERS: &str = "Differs";
/// Its reason while a claim is refused.
const NOT_PREPARED: &str = "NotPrepared";
/// So long after a pod was refused a device it is told so; a later one that is made for it is refused anew.
const REFUSED: Duration = Duration::from_secs(600);
/// An Event's message and a condition's may have no more characters (the API server refuses longer Events).
const LONGEST: usize = 1000;

/// What was seen of a device in a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceInPod {
    /// It is as it was given: looked at from inside the pod's network namespace, and at the PF.
    Holds {
        /// The IP addresses of the interface, with prefix lengths, as the pod has them now.
        addresses: Vec<String>,
        /// The MAC address of the interface.
        mac: Option<String>,
    },
    /// Something differs.
    Differs {
        /// What.
        why: String,
    },
    /// It could not be looked at, which is no word about it: what was told of it before stays.
    Unknown {
        /// Why not.
        why: String,
    },
    /// No container has it yet.
    Waits,
}

/// A device as the hook has left it, and as it was seen.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceOutcome {
    /// The hook's record.
    pub record: Option<AttachRecord>,
    /// What was seen.
    pub seen: DeviceInPod,
    /// The pod that was refused it last, since another one has it.
    pub refused: Option<PodRefusal>,
}

impl DeviceOutcome {
    /// Why the last hook failed. A pod that got it before may have it all the same.
    pub fn failure(&self) -> Option<&str> {
        self.record.as_ref()?.failure.as_deref()
    }
}

/// What is sent to the claim's `status` by server-side apply. `None` when there is nothing to tell yet. `former` is what was told of devices before
/// and is told again of those that could not be looked at: what an apply leaves out goes. `now` is a time in RFC 3339 for what the hook has not dated.
pub fn status(
    claim: &PreparedClaim,
    outcomes: &[DeviceOutcome],
    former: &[AllocatedDeviceStatus],
    now: &str,
) -> Option<Value> {
    let devices: Vec<Value> = claim
        .devices
        .iter()
        .zip(outcomes)
        .filter_map(|(device, outcome)| {
            let before = told_of(claim, device, former);
            match outcome.seen {
                DeviceInPod::Unknown { .. } if outcome.failure().is_none() => {
                    before.and_then(|told| serde_json::to_value(told).ok())
                }
                _ => device_status(claim, device, outcome, before, now),
            }
        })
        .collect();
    let (namespace, name, uid) = (claim.namespace.as_str(), claim.name.as_str(), claim.uid.as_str());
    (!devices.is_empty()).then(|| document((namespace, name, uid), &devices))
}

/// A claim's status with these devices. A claim that was made anew under the name is not told of this one.
fn document((namespace, name, uid): (&str, &str, &str), devices: &[Value]) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": uid},
        "status": {"devices": devices},
    })
}

/// The devices of what [`status`] gives, as the API server tells of them.
pub fn devices(status: &Value) -> Vec<AllocatedDeviceStatus> {
    serde_json::from_value(status["status"]["devices"].clone()).unwrap_or_default()
}

/// What was told of a device.
fn told_of<'a>(
    claim: &PreparedClaim,
    device: &PreparedDevice,
    former: &'a [AllocatedDeviceStatus],
) -> Option<&'a AllocatedDeviceStatus> {
    former.iter().find(|told| {
        (told.driver.as_str(), told.pool.as_str(), told.device.as_str())
            == (claim.driver.as_str(), device.pool.as_str(), device.device.as_str())
    })
}

/// The condition of a device as it was told.
fn ready(told: &AllocatedDeviceStatus) -> Option<&Condition> {
    told.conditions.iter().flatten().find(|condition| condition.type_ == READY)
}

/// What is news of these devices of a claim: that one is not as it was given any more, or is so again. `differing` are those that were seen to
/// differ, and is brought up to date. What `former`, the status as it was, has of one that is not among them was told by an agent before this one:
/// it is not told again, nor is its end where this agent has not seen it.
pub fn drift_news(
    claim: &PreparedClaim,
    devices: &[(&PreparedDevice, &DeviceOutcome)],
    former: &[AllocatedDeviceStatus],
    differing: &mut BTreeSet<String>,
) -> Vec<DriftEvent> {
    let news = |(device, outcome): &(&PreparedDevice, &DeviceOutcome)| {
        let name = &device.device;
        match &outcome.seen {
            DeviceInPod::Differs { why } if differing.insert(name.clone()) => {
                let before = told_of(claim, device, former).and_then(ready);
                let is_told = before.is_some_and(|before| before.reason == DIFFERS);
                let told = || format!("{name}, which a pod has, is not as it was given: {why}");
                (!is_told).then(|| DriftEvent::ClaimDrift(told()))
            }
            DeviceInPod::Holds { .. } if differing.remove(name) => {
                Some(DriftEvent::ClaimHoldsAgain(format!("{name}, which a pod has, is as it was given")))
            }
            _ => None,
        }
    };
    devices.iter().filter_map(news).collect()
}

/// What is sent to the status of a claim that could not be prepared: that none of its devices of this pool is ready, and why. `None` when that was told
/// already, or it has none.
pub fn refused(claim: &ResourceClaim, driver: &str, pool: &str, why: &str, now: &str) -> Option<Value> {
    let status = claim.status.as_ref()?;
    let results = status.allocation.as_ref()?.devices.as_ref()?.results.as_deref().unwrap_or_default();
    let told = status.devices.as_deref().unwrap_or_default();
    let mut is_news = false;
    let mut devices = Vec::new();
    for result in results.iter().filter(|result| result.driver == driver && result.pool == pool) {
        let message = clipped(&format!("{} could not be made ready for the pod: {why}", result.device));
        let is_it = |told: &&AllocatedDeviceStatus| {
            (&told.driver, &told.pool, &told.device) == (&result.driver, &result.pool, &result.device)
        };
        let before = told.iter().find(is_it).and_then(ready);
        is_news |= before.is_none_or(|of| (of.reason.as_str(), &of.message) != (NOT_PREPARED, &message));
        let since = before.filter(|before| before.status == "False");
        let since = since.map_or_else(|| json!(now), |before| json!(before.last_transition_time));
        devices.push(json!({
            "driver": driver,
            "pool": pool,
            "device": result.device,
            "conditions": [{
                "type": READY,
                "status": "False",
                "reason": NOT_PREPARED,
                "message": message,
                "lastTransitionTime": since,
            }],
        }));
    }
    is_news.then(|| document(identity(claim), &devices))
}

/// What takes back that a claim was refused; `None` when that was not told. Nothing is told of its devices then, until a container comes to them.
pub fn no_longer_refused(claim: &ResourceClaim, driver: &str, pool: &str) -> Option<Value> {
    let told = claim.status.as_ref()?.devices.as_deref().unwrap_or_default();
    let mut own = told.iter().filter(|told| told.driver == driver && told.pool == pool);
    let refused = |told: &AllocatedDeviceStatus| ready(told).is_some_and(|of| of.reason == NOT_PREPARED);
    own.any(refused).then(|| document(identity(claim), &[]))
}

/// Namespace, name and UID.
fn identity(claim: &ResourceClaim) -> (&str, &str, &str) {
    let metadata = &claim.metadata;
    let [namespace, name, uid] =
        [&metadata.namespace, &metadata.name, &metadata.uid].map(|text| text.as_deref().unwrap_or_default());
    (namespace, name, uid)
}

/// Since when a device is so: as long as was told; else since its hook ran, if that was later than what was told before, or since now.
fn since(before: Option<&Condition>, holds: &str, outcome: &DeviceOutcome, now: &str) -> Value {
    let hook = outcome.record.as_ref().map(|record| record.at.as_str());
    let Some(before) = before else {
        let of_hook = hook.filter(|_| !matches!(outcome.seen, DeviceInPod::Differs { .. }));
        return json!(of_hook.unwrap_or(now));
    };
    if before.status == holds {
        return json!(before.last_transition_time);
    }
    let is_later = |at: &&str| {
        let at = humantime::parse_rfc3339(at).ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let before = u64::try_from(before.last_transition_time.0.as_second()).unwrap_or_default();
        at.is_some_and(|at| at.as_secs() > before)
    };
    json!(hook.filter(is_later).unwrap_or(now))
}

fn device_status(
    claim: &PreparedClaim,
    device: &PreparedDevice,
    outcome: &DeviceOutcome,
    before: Option<&AllocatedDeviceStatus>,
    now: &str,
) -> Option<Value> {
    let (holds, reason, message) = match (outcome.failure(), &outcome.seen) {
        (Some(why), _) => {
            ("False", "AttachFailed", format!("{} could not be given to the pod: {why}", device.device))
        }
        (None, DeviceInPod::Waits | DeviceInPod::Unknown { .. }) => return None,
        (None, DeviceInPod::Holds { .. }) => ("True", "Attached", holding(device)),
        (None, DeviceInPod::Differs { why }) => {
            ("False", DIFFERS, format!("{} is not as it was given: {why}", device.device))
        }
    };
    let at = since(before.and_then(ready), holds, outcome, now);
    let mut told = json!({
        "driver": claim.driver,
        "pool": device.pool,
        "device": device.device,
        "conditions": [{
            "type": READY,
            "status": holds,
            "reason": reason,
            "message": clipped(&message),
            "lastTransitionTime": at,
        }],
    });
    if let DeviceInPod::Holds { addresses, mac } = &outcome.seen {
        told["networkData"] = network_data(device, addresses, mac.as_deref());
    }
    Some(told)
}

/// One sentence: where the VF is, and what of it was looked at.
fn holding(device: &PreparedDevice) -> String {
    let mut said = match device.mode {
        VfMode::Netdev => format!("{} is {} in the pod", device.function, device.interface),
        VfMode::Vfio => {
            format!("{} is the pod's, as VFIO group {}", device.function, device.group.unwrap_or_default())
        }
    };
    let keys = [
        ("mac", "MAC"),
        ("vlan", "VLAN"),
        ("spoofchk", "spoof check"),
        ("trust", "trust"),
        ("min_tx_rate", "min rate"),
        ("max_tx_rate", "max rate"),
        ("link_state", "link"),
        ("mtu", "MTU"),
    ];
    let mut list = Vec::new();
    for (key, word) in keys {
        match &device.configuration[key] {
            Value::Null => {}
            Value::String(text) => list.push(format!("{word} {text}")),
            other => list.push(format!("{word} {other}")),
        }
    }
    if !list.is_empty() {
        let _ = write!(said, " with {}", list.join(", "));
    }
    said += match device.mode {
        VfMode::Netdev => "; seen in the pod's network namespace and, as far as its driver tells, at the PF",
        VfMode::Vfio => "; seen at the PF, as far as its driver tells",
    };
    said
}

/// At most 16 addresses are allowed.
fn network_data(device: &PreparedDevice, addresses: &[String], mac: Option<&str>) -> Value {
    let mut data = match metadata::network_data(device) {
        Value::Object(data) => data,
        _ => Map::new(),
    };
    if !addresses.is_empty() {
        data.insert("ips".to_owned(), json!(addresses.iter().take(16).collect::<Vec<_>>()));
    }
    if let Some(mac) = mac {
        data.insert("hardwareAddress".to_owned(), json!(mac));
    }
    Value::Object(data)
}

fn clipped(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// The Events of the pods of a claim whose hook has failed, and of one that was refused what another has. Kubelet tries again and again: what fails in the same way in the same ten minutes of the
/// clock has one name, by which an Event that was told before is known. Numbers, of processes say, make no other way of it.
pub fn events(claim: &PreparedClaim, outcomes: &[DeviceOutcome], node: &str, now: SystemTime) -> Vec<Value> {
    let is_recent = |refusal: &&PodRefusal| {
        humantime::parse_rfc3339(&refusal.at)
            .is_ok_and(|at| now.duration_since(at).is_ok_and(|since| since < REFUSED))
    };
    let mut events = Vec::new();
    for (device, outcome) in claim.devices.iter().zip(outcomes) {
        if let (Some(why), Some(record)) = (outcome.failure(), &outcome.record) {
            let failed = |pod| event(claim, device, pod, not_given(claim, device, why), &record.at, node);
            events.extend(claim.pods.iter().map(failed));
        }
        if let Some(PodRefusal { pod: Some(pod), why, at, .. }) = outcome.refused.as_ref().filter(is_recent) {
            events.push(event(claim, device, pod, not_given(claim, device, why), at, node));
        }
    }
    events
}

/// The Events of a pod of which no container asks for these devices of its claim. `now` is in RFC 3339.
pub fn unused(claim: &PreparedClaim, pod: &PodReference, now: &str, node: &str) -> Vec<Value> {
    let told = |device: &PreparedDevice| {
        format!(
            "{} of claim {} is made ready for the pod, and no container has it: none names the claim in `resources.claims`",
            device.device, claim.name
        )
    };
    let of = |device| event(claim, device, pod, ("ClaimUnused", told(device)), now, node);
    claim.devices.iter().map(of).collect()
}

/// The Events of the pods of a claim that no pod should have any more, while one lives on with its VFs. `now` is in RFC 3339.
pub fn left_alone(claim: &PreparedClaim, why: &str, now: &str, node: &str) -> Vec<Value> {
    let told = |device: &PreparedDevice| {
        format!(
            "{} of claim {} stays with the pod until that ends, although {why}: nobody else can have it until then",
            device.device, claim.name
        )
    };
    let of = |device: &PreparedDevice| {
        let told = ("ClaimGone", told(device));
        claim.pods.iter().map(|pod| event(claim, device, pod, told.clone(), now, node)).collect::<Vec<_>>()
    };
    claim.devices.iter().flat_map(of).collect()
}

fn not_given(claim: &PreparedClaim, device: &PreparedDevice, why: &str) -> (&'static str, String) {
    (
        "AttachFailed",
        format!("{} of claim {} could not be given to the pod: {why}", device.device, claim.name),
    )
}

fn event(
    claim: &PreparedClaim,
    device: &PreparedDevice,
    pod: &PodReference,
    (reason, told): (&str, String),
    when: &str,
    node: &str,
) -> Value {
    // Year, month, day, hour and tens of minutes.
    let at: String = when.chars().filter(char::is_ascii_digit).take(11).collect();
    let message = clipped(&told);
    let way: String = told.chars().filter(|one| !one.is_ascii_digit()).collect();
    let what = &sha256(way)[..12];
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": format!("{}.{}.{at}.{what}", pod.uid, device.device),
            "namespace": claim.namespace,
        },
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "name": pod.name, "namespace": claim.namespace, "uid": pod.uid,
        },
        "type": "Warning",
        "reason": reason,
        "message": message,
        "source": {"component": claim.driver, "host": node},
        "firstTimestamp": when,
        "lastTimestamp": when,
        "count": 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::state::tests::claim;

    /// A moment after hooks have run.
    fn soon() -> SystemTime {
        humantime::parse_rfc3339("2026-01-01T00:00:02Z").unwrap()
    }

    fn outcome(seen: DeviceInPod) -> DeviceOutcome {
        let record = AttachRecord {
            format: AttachRecord::FORMAT,
            namespace: (4, 17),
            netns: "/proc/7/ns/net".into(),
            attached: None,
            failure: None,
            at: "2026-01-01T00:00:01Z".to_owned(),
        };
        DeviceOutcome { record: Some(record), seen, refused: None }
    }

    /// One whose hook has failed.
    fn failing(why: String) -> DeviceOutcome {
        let mut outcome = outcome(DeviceInPod::Waits);
        outcome.record.as_mut().unwrap().failure = Some(why);
        outcome
    }

    #[test]
    fn a_device_that_holds_is_ready_and_its_network_is_told() {
        let mut claim = claim("u-1", "net0-3");
        claim.devices[0].configuration["vlan"] = json!(100);
        claim.devices[0].configuration["spoofchk"] = json!("on");
        let seen = DeviceInPod::Holds {
            addresses: vec!["10.1.0.5/24".into()],
            mac: Some("02:00:00:00:00:01".into()),
        };
        let told = status(&claim, &[outcome(seen)], &[], "2026-01-01T00:00:09Z").unwrap();
        assert_eq!(
            told,
            json!({
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": "data", "namespace": "default", "uid": "u-1"},
                "status": {"devices": [{
                    "driver": "sriov.penstock.dev", "pool": "node-1", "device": "net0-3",
                    "conditions": [{
                        "type": "Ready", "status": "True", "reason": "Attached", "lastTransitionTime": "2026-01-01T00:00:01Z",
                        "message": "0000:01:10.0 is net1 in the pod with VLAN 100, spoof check on; seen in the pod's network namespace \
                                    and, as far as its driver tells, at the PF",
                    }],
                    "networkData": {"interfaceName": "net1", "ips": ["10.1.0.5/24"], "hardwareAddress": "02:00:00:00:00:01"},
                }]},
            })
        );
        assert_eq!(status(&claim, &[outcome(DeviceInPod::Waits)], &[], "now"), None);
    }

    #[test]
    fn of_a_device_that_could_not_be_looked_at_what_was_told_before_stays() {
        let mut claim = claim("u-1", "net0-3");
        let other = PreparedDevice { device: "net0-4".to_owned(), ..claim.devices[0].clone() };
        claim.devices.push(other);
        let holds = || outcome(DeviceInPod::Holds { addresses: Vec::new(), mac: None });
        let unknown = || outcome(DeviceInPod::Unknown { why: "the program is replaced".to_owned() });
        let both = status(&claim, &[holds(), holds()], &[], "now").unwrap();
        let former: Vec<AllocatedDeviceStatus> =
            serde_json::from_value(both["status"]["devices"].clone()).unwrap();
        let devices = |told: Value| told["status"]["devices"].as_array().unwrap().clone();
        let told = devices(status(&claim, &[holds(), unknown()], &former, "now").unwrap());
        assert_eq!(told, devices(both));
        // Of one that nothing was told of nothing is.
        let told = devices(status(&claim, &[unknown(), holds()], &[], "now").unwrap());
        assert_eq!(told.len(), 1);
        assert_eq!(told[0]["device"], "net0-4");
        assert_eq!(status(&claim, &[unknown(), unknown()], &[], "now"), None);
    }

    #[test]
    fn a_condition_keeps_its_time_until_it_is_another_and_what_changed_is_news_once() {
        let claim = claim("u-1", "net0-3");
        let holds = || outcome(DeviceInPod::Holds { addresses: Vec::new(), mac: None });
        let differs = |why: &str| outcome(DeviceInPod::Differs { why: why.to_owned() });
        let differing = std::cell::RefCell::new(BTreeSet::new());
        let told = |outcome: DeviceOutcome, former: &[AllocatedDeviceStatus], now: &str| {
            let outcomes = [outcome];
            let of = [(&claim.devices[0], &outcomes[0])];
            let news = drift_news(&claim, &of, former, &mut differing.borrow_mut());
            (devices(&status(&claim, &outcomes, former, now).unwrap()), news)
        };
        let at = |told: &[AllocatedDeviceStatus]| {
            let condition = json!(ready(&told[0]).unwrap());
            (condition["reason"].clone(), condition["lastTransitionTime"].clone())
        };
        let (given, news) = told(holds(), &[], "2026-01-01T01:00:00Z");
        assert_eq!(at(&given), (json!("Attached"), json!("2026-01-01T00:00:01Z")));
        assert_eq!(news, []);
        let (drifted, news) = told(differs("vlan 7"), &given, "2026-01-01T01:00:00Z");
        assert_eq!(at(&drifted), (json!("Differs"), json!("2026-01-01T01:00:00Z")));
        let words = "net0-3, which a pod has, is not as it was given: vlan 7";
        assert_eq!(news, [DriftEvent::ClaimDrift(words.to_owned())]);
        // The same, and another thing, later.
        assert_eq!(told(differs("vlan 7"), &drifted, "2026-01-01T02:00:00Z"), (drifted.clone(), Vec::new()));
        let (other, news) = told(differs("vlan 8"), &drifted, "2026-01-01T02:00:00Z");
        assert_eq!((at(&other), news), (at(&drifted), Vec::new()));
        let (again, news) = told(holds(), &drifted, "2026-01-01T03:00:00Z");
        assert_eq!(at(&again), (json!("Attached"), json!("2026-01-01T03:00:00Z")));
        assert!(matches!(news.as_slice(), [DriftEvent::ClaimHoldsAgain(_)]), "{news:?}");
        // A hook that has failed since says when.
        let mut failed = failing("no".to_owned());
        failed.record.as_mut().unwrap().at = "2026-01-01T03:30:00Z".to_owned();
        let (failed, _) = told(failed, &again, "2026-01-01T04:00:00Z");
        assert_eq!(at(&failed), (json!("AttachFailed"), json!("2026-01-01T03:30:00Z")));
        // An agent that finds it so when it starts knows no earlier time.
        let (found, news) = told(differs("vlan 7"), &[], "2026-01-01T05:00:00Z");
        assert_eq!((at(&found).1, news.len()), (json!("2026-01-01T05:00:00Z"), 1));
        // One that is started when it was told already tells its end, unless it was over before.
        differing.borrow_mut().clear();
        assert_eq!(told(differs("vlan 7"), &drifted, "2026-01-01T06:00:00Z").1, []);
        let (_, news) = told(holds(), &drifted, "2026-01-01T06:00:00Z");
        assert!(matches!(news.as_slice(), [DriftEvent::ClaimHoldsAgain(_)]), "{news:?}");
        assert_eq!(told(holds(), &drifted, "2026-01-01T06:00:00Z").1, []);
    }

    #[test]
    fn a_refusal_is_told_once_of_each_device_of_this_node_and_taken_back() {
        let result = |pool: &str, device: &str| json!({"driver": "d", "pool": pool, "device": device, "request": "vf"});
        let with = |devices: &[AllocatedDeviceStatus]| -> ResourceClaim {
            let results =
                [result("node-1", "net0-0"), result("node-1", "net0-1"), result("node-2", "net0-0")];
            serde_json::from_value(json!({
                "metadata": {"name": "c", "namespace": "n", "uid": "u"}, "spec": {},
                "status": {"allocation": {"devices": {"results": results}}, "devices": devices},
            }))
            .unwrap()
        };
        let refuse = |devices: &[AllocatedDeviceStatus], why: &str, now: &str| {
            refused(&with(devices), "d", "node-1", why, now)
        };
        let first = refuse(&[], "it is gone", "2026-01-01T00:00:01Z").unwrap();
        assert_eq!(first["metadata"], json!({"name": "c", "namespace": "n", "uid": "u"}));
        let told = devices(&first);
        assert_eq!(told.len(), 2);
        assert_eq!(
            first["status"]["devices"][1]["conditions"][0],
            json!({
                "type": "Ready", "status": "False", "reason": "NotPrepared", "lastTransitionTime": "2026-01-01T00:00:01Z",
                "message": "net0-1 could not be made ready for the pod: it is gone",
            })
        );
        assert_eq!(refuse(&told, "it is gone", "2026-01-01T00:00:09Z"), None);
        let other = refuse(&told, "another has it", "2026-01-01T00:00:09Z").unwrap();
        let condition = &other["status"]["devices"][0]["conditions"][0];
        assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:00:01Z");
        assert!(condition["message"].as_str().unwrap().ends_with("another has it"));
        assert_eq!(refused(&with(&[]), "d", "node-3", "no", "now"), None, "nothing of it is here");
        let back = no_longer_refused(&with(&told), "d", "node-1").unwrap();
        assert_eq!(back["status"]["devices"], json!([]));
        assert_eq!(no_longer_refused(&with(&[]), "d", "node-1"), None);
        assert_eq!(no_longer_refused(&with(&told), "d", "node-2"), None);
    }

    #[test]
    fn a_second_pod_that_is_refused_is_told_so_and_the_first_is_left_in_peace() {
        let claim = claim("u-1", "net0-3");
        let holds = || DeviceInPod::Holds { addresses: Vec::new(), mac: None };
        let refusal = |pod: Option<PodReference>| PodRefusal {
            format: PodRefusal::FORMAT,
            pod,
            why: "another pod of the claim has the VF".to_owned(),
            at: "2026-01-01T00:00:01Z".to_owned(),
        };
        let second = PodReference { name: "second".to_owned(), uid: "p-2".to_owned() };
        let refused = [DeviceOutcome { refused: Some(refusal(Some(second))), ..outcome(holds()) }];
        let told = status(&claim, &refused, &[], "now").unwrap();
        assert_eq!(told, status(&claim, &[outcome(holds())], &[], "now").unwrap());
        assert_eq!(told["status"]["devices"][0]["conditions"][0]["status"], "True");
        let events = super::events(&claim, &refused, "node-1", soon());
        assert_eq!(events.len(), 1);
        assert_eq!(events[0]["involvedObject"]["uid"], "p-2");
        assert!(events[0]["message"].as_str().unwrap().contains("another pod of the claim has the VF"));
        assert_eq!(super::events(&claim, &refused, "node-1", soon() + REFUSED), Vec::<Value>::new());
        let unnamed = [DeviceOutcome { refused: Some(refusal(None)), ..outcome(holds()) }];
        assert_eq!(super::events(&claim, &unnamed, "node-1", soon()), Vec::<Value>::new());
    }

    #[test]
    fn a_failure_is_a_condition_and_an_event() {
        let claim = claim("u-1", "net0-3");
        let failed = [failing("there is no PCI function".repeat(100))];
        let told = status(&claim, &failed, &[], "now").unwrap();
        let condition = &told["status"]["devices"][0]["conditions"][0];
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("AttachFailed")));
        assert!(condition["message"].as_str().unwrap().len() < 1024);
        let events = super::events(&claim, &failed, "node-1", soon());
        let name = |events: &[Value]| events[0]["metadata"]["name"].as_str().unwrap().to_owned();
        assert!(name(&events).starts_with("p-1.net0-3.20260101000."), "{}", name(&events));
        let later = |at: &str, why: &str| {
            let mut outcome = failing(why.repeat(100));
            outcome.record.as_mut().unwrap().at = at.to_owned();
            name(&super::events(&claim, &[outcome], "node-1", soon()))
        };
        assert_eq!(
            later("2026-01-01T00:09:59Z", "there is no PCI function"),
            name(&events),
            "it is known already"
        );
        assert_ne!(later("2026-01-01T00:10:00Z", "there is no PCI function"), name(&events));
        assert_ne!(later("2026-01-01T00:00:02Z", "another reason"), name(&events));
        let of_process =
            |number: u32| later("2026-01-01T00:00:02Z", &format!("crun with the number {number} has ended"));
        assert_eq!(of_process(999), of_process(1000));
        assert_eq!(events[0]["involvedObject"]["name"], "pod");
        assert!(events[0]["message"].as_str().unwrap().len() < 1024);
    }
}
