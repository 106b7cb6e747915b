//! SR-IOV NICs on Kubernetes, by Dynamic Resource Allocation (`resource.k8s.io/v1`).
//!
//! - [`node`]: the agent of a node. It publishes the NICs' functions as ResourceSlices ([`devices`], [`slices`]), tells their health
//!   ([`health`], [`events`]), and serves kubelet ([`plugin`]), which has it prepare what claims were given ([`claim`]).
//! - [`host`]: how a pod becomes the agent of its node. [`image`] makes what such a pod runs.
//! - [`mod@attach`]: the hook that the container runtime runs before a container's first program: it moves a VF in, or the container fails.
//!   [`cdi`] is what the runtime reads of it.
//! - [`change`]: the agent's part of a roll-out: it plans, applies with a guard behind it, proves that the node still works, and confirms.
//! - [`controller`]: brings a model to nodes in waves, as [`rollout`] decides. [`machine`] has the objects that all this goes by.
//! - [`metrics`]: what agent and controller tell scrapers.
//! - [`manifests`]: what the cluster needs to know of them.
//!
//! Everything that is done to the machine is done by the `penstock` binary, which [`penstock`] runs.

#[cfg(test)]
mod any_json;
pub mod arguments;
pub mod attach;
pub mod cdi;
pub mod change;
pub mod claim;
pub mod client;
pub mod controller;
pub mod devices;
mod elf;
pub mod events;
pub mod health;
pub mod host;
pub mod identity;
pub mod image;
pub mod inventory;
pub mod log;
pub mod machine;
pub mod manifests;
pub mod metrics;
pub mod node;
pub mod pace;
pub mod penstock;
pub mod plugin;
pub mod protocol;
pub mod rollout;
pub mod runs;
pub mod slices;
