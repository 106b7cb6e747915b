//! The container network plugin, as the Container Network Interface has it (CNI specification 1.1.0): a runtime starts it with an
//! environment and a configuration, and it gives a container a VF of a NIC of this machine, checks it, and takes it back.
//!
//! - [`call`] and [`config`]: what a runtime asks for; [`document`]: what it is answered. Pure.
//! - [`journal`]: which VF is whose, written down before anything is changed, in `/run`.
//! - [`vf`]: one VF: where it is, what it is set to, how it is set.
//! - [`plugin`]: the verbs. `choose`: which VF an ADD takes. `release`: how one comes back. `bind`: a VF for a program instead of an interface.
//!   [`ipam`] hands each on to the plugin that gives addresses; [`compare`] is what CHECK holds.
//!
//! A configuration of the SR-IOV plugin of the Kubernetes network plumbing group works as it is.

mod bind;
pub mod call;
mod check;
mod choose;
pub mod compare;
pub mod config;
pub mod document;
mod gc;
mod ipam;
pub mod journal;
mod log;
mod place;
pub mod plugin;
mod release;
mod status;
mod version;
pub mod vf;

pub use call::{Call, Verb};
pub use config::Configuration;
pub use document::CniError;
pub use plugin::Plugin;
