//! Claims on this node: what they ask for, what was made ready for them, and how it is taken back.
//!
//! - [`parameters`]: what a claim asks of a VF. [`allocation`]: which devices it was given. [`ceiling`]: how far its class lets it go.
//!   All pure.
//! - [`state`]: what is prepared, below `/var/lib`; how far the hook has come, below `/run`, where it ends with the kernel's run, as VFs do.
//! - [`network_plugin`]: calls of `penstock cni`, which alone touches VFs.
//! - [`mac`]: who has a MAC address already. [`containers`]: which containers of a pod ask for a claim's devices.
//! - [`programs`]: claims name the programs that there are.
//! - [`prepare`] and [`unprepare`]: what kubelet asks for. [`metadata`]: the file that containers read.
//! - [`status`]: what is told of it on the claim.

pub mod allocation;
pub mod ceiling;
pub mod containers;
pub mod mac;
pub mod metadata;
pub mod network_plugin;
pub mod parameters;
pub mod prepare;
pub mod programs;
pub mod state;
pub mod status;
pub mod unprepare;

pub use prepare::{CallerWaits, ClaimSettings, Claims};
pub use state::{ClaimUid, StateError, held, held_functions, held_when_nothing_is_prepared};
