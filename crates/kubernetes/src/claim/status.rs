//! What is told of a claim: the condition `Ready` and the network data of each device in `status.devices`, and Events of its pods. Pure.

use std::{
    fmt::Write,
    time::{Duration, SystemTime},
};

use k8s_openapi::api::resource::v1::AllocatedDeviceStatus;
use penstock_model::digest::sha256;
use serde_json::{Map, Value, json};

use super::{
    metadata,
    parameters::VfMode,
    state::{AttachRecord, PodReference, PodRefusal, PreparedClaim, PreparedDevice},
};

/// The type of the condition.
const READY: &str = "Ready";
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
    /// No container has come to it yet.
    Waits,
    /// The hook failed.
    Failed {
        /// Why.
        why: String,
    },
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

/// What is sent to the claim's `status` by server-side apply. `None` when there is nothing to tell yet. `former` is what was told of devices before
/// and is told again of those that could not be looked at: what an apply leaves out goes. `now` is a time in RFC 3339 for what the hook has not dated.
pub fn status(
    claim: &PreparedClaim,
    outcomes: &[DeviceOutcome],
    former: &[AllocatedDeviceStatus],
    now: &str,
) -> Option<Value> {
    let before = |device: &PreparedDevice| {
        let is_it = |told: &&AllocatedDeviceStatus| {
            (told.driver.as_str(), told.pool.as_str(), told.device.as_str())
                == (claim.driver.as_str(), device.pool.as_str(), device.device.as_str())
        };
        former.iter().find(is_it).and_then(|told| serde_json::to_value(told).ok())
    };
    let devices: Vec<Value> = claim
        .devices
        .iter()
        .zip(outcomes)
        .filter_map(|(device, outcome)| match outcome.seen {
            DeviceInPod::Unknown { .. } => before(device),
            _ => device_status(claim, device, outcome, now),
        })
        .collect();
    (!devices.is_empty()).then(|| {
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            // A claim that was made anew under the name is not told of this one.
            "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid},
            "status": {"devices": devices},
        })
    })
}

fn device_status(
    claim: &PreparedClaim,
    device: &PreparedDevice,
    outcome: &DeviceOutcome,
    now: &str,
) -> Option<Value> {
    let (holds, reason, message) = match &outcome.seen {
        DeviceInPod::Waits | DeviceInPod::Unknown { .. } => return None,
        DeviceInPod::Holds { .. } => ("True", "Attached", holding(device)),
        DeviceInPod::Differs { why } => {
            ("False", "Differs", format!("{} is not as it was given: {why}", device.device))
        }
        DeviceInPod::Failed { why } => {
            ("False", "AttachFailed", format!("{} could not be given to the pod: {why}", device.device))
        }
    };
    let at = outcome.record.as_ref().map_or(now, |record| record.at.as_str());
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
        if let (DeviceInPod::Failed { why }, Some(record)) = (&outcome.seen, &outcome.record) {
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
        let failed = [outcome(DeviceInPod::Failed { why: "there is no PCI function".repeat(100) })];
        let told = status(&claim, &failed, &[], "now").unwrap();
        let condition = &told["status"]["devices"][0]["conditions"][0];
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("AttachFailed")));
        assert!(condition["message"].as_str().unwrap().len() < 1024);
        let events = super::events(&claim, &failed, "node-1", soon());
        let name = |events: &[Value]| events[0]["metadata"]["name"].as_str().unwrap().to_owned();
        assert!(name(&events).starts_with("p-1.net0-3.20260101000."), "{}", name(&events));
        let later = |at: &str, why: &str| {
            let mut outcome = outcome(DeviceInPod::Failed { why: why.repeat(100) });
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
