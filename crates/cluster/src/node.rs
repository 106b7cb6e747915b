//! What is done on a board so that it is a node.

use std::time::Duration;

use penstock_board::{Board, FILES_SERIAL, FORWARD_ADDRESS};
use penstock_host::{Command, Place};
use penstock_oci::Tar;

use crate::{config, error::ClusterError};

/// How long each thing on a node may take; a busy machine emulates slowly.
const DOING: Duration = Duration::from_secs(300);

/// Mounts the disk of the cluster's files, unpacks the node's own, leads pods to the API server, and has the disk's script do the rest. `$1`: the
/// disk's serial number, `$2`: where it is mounted, `$3`: the node's name, `$4`: the addresses of services, which need a route before they are
/// replaced, `$5`: any neighbour.
const PREPARE: &str = r#"set -e
disk=$(grep -lx "$1" /sys/block/vd*/serial)
disk=${disk%/serial}
mkdir -p "$2"
mount -t squashfs -o ro "/dev/${disk##*/}" "$2"
(umask 077; mkdir -p /etc/kubernetes)
tar -C / -xf -
nft -f /etc/kubernetes/services.nft
ip route replace "$4" via "$5"
exec "$2/prepare" "$3""#;

/// What a node is given.
pub struct NodeFiles<'a> {
    /// The node's name.
    pub name: &'a str,
    /// The certificate authority of the API server, PEM.
    pub ca: &'a str,
    /// The kubeconfig of its kubelet.
    pub kubeconfig: &'a str,
}

/// Makes a board a node up to containerd; kubelet does not run yet.
///
/// # Errors
///
/// [`ClusterError::Node`] when the board does not answer, or what is done on it fails.
pub fn prepare(board: &Board, files: &NodeFiles<'_>) -> Result<(), ClusterError> {
    let own = files.archive();
    let own_words = ["-c", PREPARE, "sh", FILES_SERIAL, config::ON_NODE, files.name];
    let command = Command::new("sh").args(own_words).args([config::SERVICES, FORWARD_ADDRESS]);
    run(board, files.name, command.input(own))
}

impl NodeFiles<'_> {
    /// The node's own files, to be unpacked at its root: one command takes less time than one for each.
    fn archive(&self) -> Vec<u8> {
        let mut archive = Tar::default();
        for directory in ["etc/kubernetes/pki", "etc/containerd", "etc/cni", "etc/cni/net.d"] {
            archive.directory(directory);
        }
        archive.file("etc/kubernetes/kubelet.yaml", 0o600, config::kubelet().as_bytes());
        archive.file("etc/kubernetes/kubelet.conf", 0o600, self.kubeconfig.as_bytes());
        archive.file("etc/kubernetes/pki/ca.crt", 0o644, self.ca.as_bytes());
        archive.file("etc/kubernetes/services.nft", 0o644, config::services().as_bytes());
        archive.file("etc/containerd/config.toml", 0o644, config::containerd().as_bytes());
        archive.file("etc/cni/net.d/10-pods.conflist", 0o644, config::network().as_bytes());
        archive.finish()
    }
}

/// Starts kubelet on a node, and while that takes its time, gives containerd the image.
///
/// # Errors
///
/// As [`prepare`].
pub fn start(board: &Board, name: &str) -> Result<(), ClusterError> {
    run(board, name, Command::new(config::KUBELET).arg("start"))?;
    let image = format!("{}/image.tar", config::ON_NODE);
    let import = ["--namespace", "k8s.io", "images", "import", &image];
    run(board, name, Command::new(config::CTR).args(import))
}

/// What kubelet on a node said last, if it has ended.
///
/// # Errors
///
/// [`ClusterError::Node`] when the board does not answer.
pub fn kubelet_ended(board: &Board, name: &str) -> Result<Option<String>, ClusterError> {
    let status = Command::new(config::KUBELET).arg("status").deadline(DOING);
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
