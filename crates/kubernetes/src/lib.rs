//! SR-IOV NICs on Kubernetes.
//!
//! - `node`: the agent of a node. It publishes the NICs' functions as ResourceSlices and prepares what claims were given.
//! - `attach`: the hook that the container runtime runs before a container's first program: it moves a VF in, or the container fails.
//! - `manifests`: what the cluster needs to know of them.
//!
//! [`plugin`] serves kubelet and calls [`claim`], which alone decides; [`cdi`] is what the container runtime reads of it, [`mod@attach`] what
//! it runs. VFs are set, moved and taken back by `penstock cni`, whose journal is the only record of that.

pub mod attach;
pub mod cdi;
pub mod claim;
pub mod devices;
pub mod health;
pub mod identity;
pub mod plugin;
pub mod protocol;
