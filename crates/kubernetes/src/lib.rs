//! SR-IOV NICs on Kubernetes, by Dynamic Resource Allocation (`resource.k8s.io/v1`).
//!
//! - [`node`]: the agent of a node. It publishes the NICs' functions as ResourceSlices ([`devices`], [`slices`]), tells their health
//!   ([`health`], [`events`]), and serves kubelet ([`plugin`]), which has it prepare what claims were given ([`claim`]).
//! - [`mod@attach`]: the hook that the container runtime runs before a container's first program: it moves a VF in, or the container fails.
//!   [`cdi`] is what the runtime reads of it.
//! - [`manifests`]: what the cluster needs to know of them.
//!
//! Everything that is done to the machine is done by the `penstock` binary, which [`penstock`] runs.

pub mod arguments;
pub mod attach;
pub mod cdi;
pub mod claim;
pub mod client;
pub mod devices;
pub mod events;
pub mod health;
pub mod identity;
pub mod inventory;
pub mod log;
pub mod manifests;
pub mod node;
pub mod pace;
pub mod penstock;
pub mod plugin;
pub mod protocol;
pub mod slices;
