//! The file by which programs in containers learn which devices they have (KEP-5304; `api/metadata` of
//! k8s.io/dynamic-resource-allocation v0.36.3): KubeVirt reads `pciBusID` from it.

use std::path::{Path, PathBuf};

use penstock_host::files::{self, FileError};
use serde_json::{Map, Value, json};

use super::{
    allocation::base,
    parameters::VfMode,
    state::{ClaimUid, PreparedClaim, PreparedDevice},
};

/// The directory in containers.
const INSIDE: &str = "/var/run/kubernetes.io/dra-device-attributes";

/// The directory of a claim's files on the host.
fn directory(state: &Path, uid: &ClaimUid) -> PathBuf {
    state.join("metadata").join(uid.as_str())
}

/// The file of a request on the host. A request's name is a DNS label.
pub fn path(state: &Path, uid: &ClaimUid, request: &str) -> PathBuf {
    directory(state, uid).join(format!("{request}.json"))
}

/// The file of a request in containers: by the pod's own name for a claim that was made from a template, else by the claim's name.
pub fn path_inside(claim: &PreparedClaim, request: &str) -> String {
    let of = match &claim.pod_claim {
        Some(name) => format!("resourceclaimtemplates/{name}"),
        None => format!("resourceclaims/{}", claim.name),
    };
    format!("{INSIDE}/{of}/{request}/{}-metadata.json", claim.driver)
}

/// What of a device's network is known before it is in the pod.
pub fn network_data(device: &PreparedDevice) -> Value {
    let mut data = Map::new();
    if device.mode == VfMode::Netdev {
        data.insert("interfaceName".to_owned(), json!(device.interface.as_str()));
    }
    if let Some(ips) = device.configuration.get("addresses") {
        data.insert("ips".to_owned(), ips.clone());
    }
    if let Some(mac) = device.mac {
        data.insert("hardwareAddress".to_owned(), json!(mac.to_string()));
    }
    Value::Object(data)
}

/// What the file of a request holds (`DeviceMetadata` of `metadata.resource.k8s.io/v1alpha1`).
fn document(claim: &PreparedClaim, request: &str) -> Value {
    let of = |device: &&PreparedDevice| device.requests.iter().any(|of| base(of) == request);
    let devices: Vec<&PreparedDevice> = claim.devices.iter().filter(of).collect();
    let name = devices.first().and_then(|device| device.requests.iter().find(|of| base(of) == request));
    let devices: Vec<Value> = devices
        .iter()
        .map(|device| {
            json!({
                "driver": claim.driver,
                "pool": device.pool,
                "name": device.device,
                "attributes": {"resource.kubernetes.io/pciBusID": {"string": device.function.to_string()}},
                "networkData": network_data(device),
            })
        })
        .collect();
    let mut all = json!({
        "kind": "DeviceMetadata",
        "apiVersion": "metadata.resource.k8s.io/v1alpha1",
        "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid, "generation": 1},
        "requests": [{"name": name, "devices": devices}],
    });
    if let Some(name) = &claim.pod_claim {
        all["podClaimName"] = json!(name);
    }
    all
}

/// Writes the files of a claim's requests. Programs of any user in containers may read them; the directories above are root's alone.
///
/// # Errors
///
/// When one cannot be written.
pub fn write(state: &Path, claim: &PreparedClaim) -> Result<(), FileError> {
    files::make_own_directory(state.join("metadata"))?;
    files::make_own_directory(directory(state, &claim.uid))?;
    for request in claim.devices.iter().flat_map(|device| &device.requests).map(|request| base(request)) {
        let text = format!("{}\n", document(claim, request));
        let path = path(state, &claim.uid, request);
        // A file that is mounted in a container stays the file that it is.
        if files::read_to_string(&path).is_ok_and(|there| there == text) {
            continue;
        }
        files::write_atomic_mode(path, text, 0o644)?;
    }
    Ok(())
}

/// Removes the files of a claim.
///
/// # Errors
///
/// When one cannot be removed.
pub fn remove(state: &Path, uid: &ClaimUid) -> Result<(), FileError> {
    files::remove_tree(directory(state, uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::state::tests::claim;

    #[test]
    fn the_file_is_as_the_kep_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        let mut claim = claim("uid-1", "net0-3");
        claim.devices[0].configuration["addresses"] = json!(["10.1.0.5/24"]);
        write(&state, &claim).unwrap();
        write(&state, &claim).unwrap();
        let text = files::read_to_string(path(&state, &claim.uid, "vf")).unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap(),
            json!({
                "kind": "DeviceMetadata",
                "apiVersion": "metadata.resource.k8s.io/v1alpha1",
                "metadata": {"name": "data", "namespace": "default", "uid": "uid-1", "generation": 1},
                "podClaimName": "nic",
                "requests": [{"name": "vf", "devices": [{
                    "driver": "sriov.penstock.dev", "pool": "node-1", "name": "net0-3",
                    "attributes": {"resource.kubernetes.io/pciBusID": {"string": "0000:01:10.0"}},
                    "networkData": {"interfaceName": "net1", "ips": ["10.1.0.5/24"], "hardwareAddress": "02:00:00:00:00:01"},
                }]}],
            })
        );
        claim.pod_claim = None;
        assert_eq!(
            path_inside(&claim, "vf"),
            "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/data/vf/sriov.penstock.dev-metadata.json"
        );
        remove(&state, &claim.uid).unwrap();
        remove(&state, &claim.uid).unwrap();
        assert!(!files::exists(path(&state, &claim.uid, "vf")));
    }
}
