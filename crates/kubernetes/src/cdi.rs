//! What the container runtime is told to do for a claim's containers: a file of the Container Device Interface (CDI 0.5.0), which containerd
//! 1.7, CRI-O and podman read. Unknown fields make the whole file invalid, so that it has no others. Pure, but for writing.

use std::path::{Path, PathBuf};

use penstock_host::files;
use serde::Serialize;

use crate::claim::{
    allocation::base,
    metadata,
    parameters::VfMode,
    state::{ClaimUid, PreparedClaim, PreparedDevice},
};

/// Where runtimes look for files.
pub const DIRECTORY: &str = "/var/run/cdi";
/// How long the hook may take, in seconds: a VF's driver that is bound anew has 10 s for its interface, on a machine that may be emulated.
pub const HOOK_TIMEOUT: u32 = 60;
/// The version of the file's form.
const VERSION: &str = "0.5.0";

/// A file of the Container Device Interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CdiFile {
    cdi_version: &'static str,
    kind: String,
    devices: Vec<CdiDevice>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct CdiDevice {
    name: String,
    container_edits: CdiEdits,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct CdiEdits {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    env: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    device_nodes: Vec<CdiDeviceNode>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mounts: Vec<CdiMount>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hooks: Vec<CdiHook>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct CdiDeviceNode {
    path: String,
    permissions: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct CdiMount {
    host_path: PathBuf,
    container_path: String,
    options: [&'static str; 2],
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct CdiHook {
    hook_name: &'static str,
    path: PathBuf,
    args: Vec<String>,
    timeout: u32,
}

/// What devices of a driver are, to the runtime: `DRIVER/vf`.
fn kind(driver: &str) -> String {
    format!("{driver}/vf")
}

/// The file of a claim. The hook is run for each container that has the device: the first one gets it, for later ones it is looked at.
pub fn file(claim: &PreparedClaim, program: &Path, state: &Path) -> CdiFile {
    let mut devices: Vec<CdiDevice> =
        claim.devices.iter().map(|of| device(claim, of, program, state)).collect();
    for request in requests(claim) {
        let mount = CdiMount {
            host_path: metadata::path(state, &claim.uid, request),
            container_path: metadata::path_inside(claim, request),
            options: ["ro", "bind"],
        };
        devices.push(CdiDevice {
            name: metadata_name(&claim.uid, request),
            container_edits: CdiEdits { mounts: vec![mount], ..CdiEdits::default() },
        });
    }
    CdiFile { cdi_version: VERSION, kind: kind(&claim.driver), devices }
}

fn device(claim: &PreparedClaim, device: &PreparedDevice, program: &Path, state: &Path) -> CdiDevice {
    let mut args = vec![
        program.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        "attach".to_owned(),
        "--claim".to_owned(),
        claim.uid.to_string(),
        "--device".to_owned(),
        device.device.clone(),
    ];
    args.extend(["--driver".to_owned(), claim.driver.clone()]);
    args.extend(["--state".to_owned(), state.display().to_string()]);
    let node = |path: String| CdiDeviceNode { path, permissions: "rw" };
    let device_nodes = match (device.mode, device.group) {
        (VfMode::Vfio, Some(group)) => {
            vec![node("/dev/vfio/vfio".to_owned()), node(format!("/dev/vfio/{group}"))]
        }
        (VfMode::Vfio, None) | (VfMode::Netdev, _) => Vec::new(),
    };
    let hook = CdiHook { hook_name: "createRuntime", path: program.to_owned(), args, timeout: HOOK_TIMEOUT };
    CdiDevice {
        name: name(&claim.uid, &device.device),
        container_edits: CdiEdits { device_nodes, hooks: vec![hook], ..CdiEdits::default() },
    }
}

/// The claim's requests, without what tells alternatives apart, once each.
fn requests(claim: &PreparedClaim) -> Vec<&str> {
    let mut all = Vec::new();
    for request in claim.devices.iter().flat_map(|device| &device.requests) {
        if !all.contains(&base(request)) {
            all.push(base(request));
        }
    }
    all
}

/// A device's name in the file. Runtimes remember names, so that none is ever used for another claim.
fn name(uid: &ClaimUid, device: &str) -> String {
    format!("{uid}-{device}")
}

fn metadata_name(uid: &ClaimUid, request: &str) -> String {
    format!("{uid}_metadata_{request}")
}

/// The qualified names of what a device's containers are to have. The file of a request's metadata goes with its first device.
pub fn identifiers(claim: &PreparedClaim, device: &PreparedDevice) -> Vec<String> {
    let kind = kind(&claim.driver);
    let mut all = vec![format!("{kind}={}", name(&claim.uid, &device.device))];
    for request in device.requests.iter().map(|request| base(request)) {
        let first = claim.devices.iter().find(|of| of.requests.iter().any(|of| base(of) == request));
        if first.is_some_and(|first| first.device == device.device) {
            all.push(format!("{kind}={}", metadata_name(&claim.uid, request)));
        }
    }
    all
}

/// Where the file of a claim is.
pub fn path(directory: &Path, driver: &str, uid: &ClaimUid) -> PathBuf {
    directory.join(format!("{driver}-{uid}.json"))
}

/// Writes a claim's file whole or not at all; one that is so already is left alone.
///
/// # Errors
///
/// When it cannot be written.
pub fn write(
    directory: &Path,
    claim: &PreparedClaim,
    program: &Path,
    state: &Path,
) -> Result<(), files::FileError> {
    files::create_dir_all(directory)?;
    let text = serde_json::to_string_pretty(&file(claim, program, state)).unwrap_or_default();
    let path = path(directory, &claim.driver, &claim.uid);
    if files::read_to_string(&path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    files::write_atomic_mode(path, text, 0o600)
}

/// Removes a claim's file, and what a writer that was killed has left of it.
///
/// # Errors
///
/// When it cannot be removed.
pub fn remove(directory: &Path, driver: &str, uid: &ClaimUid) -> Result<(), files::FileError> {
    if !files::exists(directory) {
        return Ok(());
    }
    files::remove_file(path(directory, driver, uid))?;
    files::remove_parts(path(directory, driver, uid))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::claim::state::tests::claim;

    #[test]
    fn a_file_has_a_hook_for_each_device_and_a_mount_for_each_request() {
        let mut claim = claim("uid-1", "net0-3");
        let mut vfio = claim.devices[0].clone();
        vfio.device = "net0-4".to_owned();
        vfio.requests = vec!["vf/fast".to_owned()];
        (vfio.mode, vfio.group) = (VfMode::Vfio, Some(17));
        claim.devices.push(vfio);
        let program = Path::new("/usr/local/bin/penstock-kubernetes");
        let state = Path::new("/var/lib/penstock/kubernetes");
        let hook = |device: &str| {
            json!([{
                "hookName": "createRuntime", "path": "/usr/local/bin/penstock-kubernetes", "timeout": 60,
                "args": ["penstock-kubernetes", "attach", "--claim", "uid-1", "--device", device, "--driver", "sriov.penstock.dev",
                    "--state", "/var/lib/penstock/kubernetes"],
            }])
        };
        assert_eq!(
            serde_json::to_value(file(&claim, program, state)).unwrap(),
            json!({
                "cdiVersion": "0.5.0",
                "kind": "sriov.penstock.dev/vf",
                "devices": [
                    {"name": "uid-1-net0-3", "containerEdits": {"hooks": hook("net0-3")}},
                    {"name": "uid-1-net0-4", "containerEdits": {
                        "deviceNodes": [
                            {"path": "/dev/vfio/vfio", "permissions": "rw"}, {"path": "/dev/vfio/17", "permissions": "rw"},
                        ],
                        "hooks": hook("net0-4"),
                    }},
                    {"name": "uid-1_metadata_vf", "containerEdits": {"mounts": [{
                        "hostPath": "/var/lib/penstock/kubernetes/metadata/uid-1/vf.json",
                        "containerPath": "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/nic/vf/sriov.penstock.dev-metadata.json",
                        "options": ["ro", "bind"],
                    }]}},
                ],
            })
        );
        assert_eq!(
            identifiers(&claim, &claim.devices[0]),
            ["sriov.penstock.dev/vf=uid-1-net0-3", "sriov.penstock.dev/vf=uid-1_metadata_vf"]
        );
        assert_eq!(identifiers(&claim, &claim.devices[1]), ["sriov.penstock.dev/vf=uid-1-net0-4"]);
    }
}
