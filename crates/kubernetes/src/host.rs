//! The agent of a pod, on the pod's node: it has to see the machine, the container runtime runs its hook from there, and what it starts has to
//! outlive the pod. So a pod of the DaemonSet puts the programs onto the node, goes into the node's namespaces, and becomes the agent there.
//!
//! Only the control group stays the pod's, with which kubelet ends it. A change's guard runs in a unit of its own where the node has systemd.

use std::{
    convert::Infallible,
    env,
    path::{Path, PathBuf},
};

use penstock_host::{
    Command, ProcessError,
    files::{self, FileError},
    namespace::{self, NamespaceError},
};
use serde_json::{Value, json};
use thiserror::Error;

use crate::{arguments::HostAgent, identity::is_label};

/// A program is no larger.
pub const PROGRAM_LIMIT: usize = 512 << 20;

/// The way to the API server, beside the programs. It names files of the pod's volume, and holds no secret.
const KUBECONFIG: &str = "kubeconfig";

/// Why the agent did not come to the node.
#[derive(Debug, Error)]
pub enum HostError {
    /// The pod's UID can be no directory's name.
    #[error("{0:?} is no UID of a pod: the manifest gives metadata.uid")]
    Uid(String),
    /// There is no API server.
    #[error(
        "it is not known where the API server is: kubelet gives KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT to pods where the cluster \
         has the service `kubernetes`; else give --server"
    )]
    NoServer,
    /// The first process is one of the pod.
    #[error("the first process is in the same namespaces as this one: the pod needs `hostPID: true`")]
    OwnProcesses,
    /// The node's namespaces cannot be entered.
    #[error("cannot enter the node's namespaces: the pod has to be privileged")]
    Namespaces(#[source] NamespaceError),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// This program cannot find out where it is.
    #[error("cannot find out where this program is")]
    Program(#[source] std::io::Error),
    /// The agent cannot be started.
    #[error("cannot start the agent on the node")]
    Start(#[from] ProcessError),
}

/// Goes to the node and becomes its agent.
///
/// # Errors
///
/// When it cannot; what was copied until then stays.
pub fn run(arguments: HostAgent) -> Result<Infallible, HostError> {
    if !is_label(&arguments.pod) || !is_label(&arguments.token_volume) {
        return Err(HostError::Uid(arguments.pod));
    }
    let server = arguments.server.clone().or_else(|| in_cluster(|name| env::var(name).ok()));
    let server = server.ok_or(HostError::NoServer)?;
    let own = env::current_exe().map_err(HostError::Program)?;
    // All that is the pod's is read before it is left.
    let programs = [
        ("penstock-kubernetes", files::read_whole(own, PROGRAM_LIMIT)?),
        ("penstock", files::read_whole(&arguments.penstock, PROGRAM_LIMIT)?),
    ];

    if namespace::shares_mounts_of_first().map_err(HostError::Namespaces)? {
        return Err(HostError::OwnProcesses);
    }
    namespace::enter_first().map_err(HostError::Namespaces)?;

    let directory = arguments.directory.join("bin");
    files::create_dir_all(&directory)?;
    for (name, bytes) in &programs {
        let path = directory.join(name);
        // A container runtime may be running the one that is there: it is replaced, and only where it differs.
        let there = files::read_whole(&path, PROGRAM_LIMIT);
        if there.ok().as_ref() != Some(bytes) {
            files::write_atomic_mode(&path, bytes, 0o755)?;
        }
    }
    let volume = token_volume(&arguments.kubelet_directory, &arguments.pod, &arguments.token_volume);
    let kubeconfig = arguments.directory.join(KUBECONFIG);
    files::write_atomic_mode(&kubeconfig, kubeconfig_of(&server, &volume).to_string(), 0o600)?;
    let command = Command::new(directory.join("penstock-kubernetes"))
        .args(["node", "--kubeconfig"])
        .arg(&kubeconfig)
        .arg("--penstock")
        .arg(directory.join("penstock"))
        .arg("--kubelet-directory")
        .arg(&arguments.kubelet_directory)
        .args(&arguments.node);
    Ok(command.replace_this_process()?)
}

/// Where the API server is, as kubelet tells pods.
fn in_cluster(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
    Some(if host.contains(':') {
        format!("https://[{host}]:{port}")
    } else {
        format!("https://{host}:{port}")
    })
}

/// Where kubelet keeps a projected volume of a pod (`pkg/volume/projected`).
fn token_volume(kubelet: &Path, pod: &str, volume: &str) -> PathBuf {
    kubelet.join("pods").join(pod).join("volumes/kubernetes.io~projected").join(volume)
}

/// A kubeconfig with the token and the certificate of a volume; JSON, which is YAML too.
fn kubeconfig_of(server: &str, volume: &Path) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "pod",
        "clusters": [{"name": "cluster", "cluster": {"server": server, "certificate-authority": volume.join("ca.crt")}}],
        "users": [{"name": "agent", "user": {"tokenFile": volume.join("token")}}],
        "contexts": [{"name": "pod", "context": {"cluster": "cluster", "user": "agent"}}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_where_kubelet_keeps_and_renews_it() {
        let volume = token_volume(Path::new("/var/lib/kubelet"), "u-1", "token");
        let config = kubeconfig_of("https://10.0.0.1:6443", &volume);
        assert_eq!(
            config["users"][0]["user"]["tokenFile"],
            "/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~projected/token/token"
        );
        let read: kube::config::Kubeconfig = serde_json::from_value(config).unwrap();
        assert_eq!(
            read.clusters[0].cluster.as_ref().unwrap().server.as_deref(),
            Some("https://10.0.0.1:6443")
        );
    }

    #[test]
    fn kubelet_tells_pods_where_the_api_server_is() {
        let of = |host: &'static str| {
            in_cluster(|name| Some(if name.ends_with("HOST") { host } else { "443" }.to_owned()))
        };
        assert_eq!(of("10.96.0.1").as_deref(), Some("https://10.96.0.1:443"));
        assert_eq!(of("fd00::1").as_deref(), Some("https://[fd00::1]:443"));
        assert_eq!(in_cluster(|_| None), None);
    }
}
