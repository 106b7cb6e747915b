//! A Kubernetes cluster to try things on, without a network: etcd and the control plane run on this machine's loopback, kubelet and
//! containerd on boards.
//!
//! - [`ClusterProgram`]: etcd, the control plane, kubelet, kubectl and kwok as one program, built once from their Go modules.
//! - [`NodeDisk`]: what a node has beside the board's image, as a disk that is only read; made once.
//! - [`Cluster`]: one that runs.
//!
//! The versions are those of `go/go.mod`. docs/cluster.md is the page for users.

mod cluster;
mod config;
mod control_plane;
mod error;
mod image;
mod kept;
mod node;
mod node_disk;
mod program;

pub use cluster::{Cluster, ClusterOptions, fit};
pub use error::ClusterError;
pub use kept::{KeptCluster, KeptNode, KeptProgram};
pub use node_disk::NodeDisk;
pub use program::{ClusterProgram, VERSION};
