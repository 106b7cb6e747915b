//! SR-IOV NICs on Kubernetes.
//!
//! - `node`: the agent of a node. It publishes the NICs' functions as ResourceSlices and prepares what claims were given.
//! - `attach`: the hook that the container runtime runs before a container's first program: it moves a VF in, or the container fails.
//! - `controller`: brings models to nodes in waves.
//! - `manifests`: what the cluster needs to know of them.

pub mod machine;
pub mod rollout;
