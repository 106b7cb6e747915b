//! What is done on a board so that it is a node.

use std::time::Duration;

use penstock_board::{Board, FILES_SERIAL};
use penstock_host::{Command, Place};

use crate::{config, error::ClusterError};

/// How long each thing on a node may take; a busy machine emulates slowly.
const DOING: Duration = Duration::from_secs(300);

/// Mounts the disk of the cluster's files. `$1`: its serial number, `$2`: where.
const MOUNT: &str = r#"set -e
disk=$(grep -lx "$1" /sys/block/vd*/serial)
disk=${disk%/serial}
mkdir -p "$2"
mount -t squashfs -o ro "/dev/${disk##*/}" "$2""#;

/// What a node is given.
pub struct NodeFiles<'a> {
    /// The node's name.
    pub name: &'a str,
    /// The certificate authority of the API server, PEM.
    pub ca: &'a str,
    /// The kubeconfig of its kubelet.
    pub kubeconfig: &'a str,
}

/// Makes a board a node up to containerd, with the container image; kubelet does not run yet.
pub fn prepare(board: &Board, files: &NodeFiles<'_>) -> Result<(), ClusterError> {
    let name = files.name;
    run(board, name, Command::new("sh").args(["-c", MOUNT, "sh", FILES_SERIAL, config::ON_NODE]))?;
    let directories = ["/etc/kubernetes/pki", "/etc/cni/net.d", "/etc/containerd"];
    run(board, name, Command::new("mkdir").arg("-p").args(directories))?;
    run(board, name, Command::new("chmod").args(["700", "/etc/kubernetes"]))?;
    let texts = [
        ("/etc/kubernetes/kubelet.yaml", config::kubelet(), 0o600),
        ("/etc/kubernetes/kubelet.conf", files.kubeconfig.to_owned(), 0o600),
        ("/etc/kubernetes/pki/ca.crt", files.ca.to_owned(), 0o644),
        ("/etc/containerd/config.toml", config::containerd(), 0o644),
        ("/etc/cni/net.d/10-pods.conflist", config::network(), 0o644),
    ];
    for (path, text, mode) in texts {
        board.write(path, text.as_bytes(), mode)?;
    }
    run(board, name, Command::new(format!("{}/prepare", config::ON_NODE)).arg(name))
}

/// Starts kubelet on a node.
pub fn start(board: &Board, name: &str) -> Result<(), ClusterError> {
    run(board, name, Command::new(format!("{}/kubelet", config::ON_NODE)).arg("start"))
}

/// What kubelet on a node said last, if it has ended.
pub fn kubelet_ended(board: &Board, name: &str) -> Result<Option<String>, ClusterError> {
    let status = Command::new(format!("{}/kubelet", config::ON_NODE)).arg("status").deadline(DOING);
    let output = board.run(&status).map_err(|source| ClusterError::Node { node: name.to_owned(), source })?;
    Ok((!output.status.success()).then(|| log(board)))
}

/// The end of kubelet's log, and the message of a panic, whose end only says where it was.
pub fn log(board: &Board) -> String {
    let script = "grep -m 1 '^panic:' \"$1\"; tail -n 12 \"$1\"";
    let command =
        Command::new("sh").args(["-c", script, "sh", "/var/log/kubernetes/kubelet.log"]).deadline(DOING);
    match board.run(&command) {
        Ok(output) => output.text(),
        Err(error) => error.to_string(),
    }
}

fn run(board: &Board, node: &str, command: Command) -> Result<(), ClusterError> {
    let failed = |source| ClusterError::Node { node: node.to_owned(), source };
    let output = board.run(&command.deadline(DOING)).map_err(failed)?;
    let place = board.describe();
    output
        .succeeded()
        .map(drop)
        .map_err(|source| failed(penstock_host::PlaceError::Process { place, source }))
}
