//! An embedded switch: what stands in a NIC with SR-IOV between the PF, its VFs and the uplink, as a program. Its ports are
//! vhost-user devices, so that a frame goes from one guest's memory to another's in one copy.
//!
//! - [`memory`]: the memory of a guest, as it has shared it.
//! - [`ring`]: virtqueues, split and packed, seen from the device's side.
//!
//! Guests are hostile. Whatever a ring, a descriptor or a header says is checked before it is used, and read once: what a
//! guest changes afterwards changes nothing here but the bytes of its own frame. Nothing on the data path panics, allocates,
//! locks or calls the kernel for a frame.
#![allow(
    clippy::disallowed_methods,
    reason = "it knows nothing of the rest, and the only files that it has are its sockets"
)]
#![allow(unsafe_code, reason = "guests share their memory, and the rings in it")]
#![cfg_attr(
    not(any(test, feature = "fuzzing")),
    warn(
        clippy::indexing_slicing,
        clippy::string_slice,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        reason = "whatever a guest does, nothing here may end for it"
    )
)]

#[macro_use]
mod complaint;

pub mod allow;
pub mod arguments;
mod busy_poll;
mod causes;
pub mod channel;
pub mod config;
pub mod control;
pub mod copy;
pub mod counters;
pub mod device;
pub mod dirty;
#[cfg(any(test, feature = "fuzzing"))]
#[cfg_attr(feature = "fuzzing", allow(dead_code, reason = "tests use the rest"))]
mod driver;
pub mod engine;
pub mod eventfd;
pub mod features;
mod held;
#[cfg(any(test, feature = "fuzzing"))]
pub mod hostile;
pub mod inflight;
pub mod iotlb;
pub mod memory;
#[cfg(test)]
mod modelled;
pub mod net;
pub mod offload;
pub mod outside;
mod passed;
pub mod program;
pub mod ring;
pub mod rx_filter;
pub mod server;
pub mod settings;
mod sigbus;
pub mod socket;
pub mod status;
pub mod table;
pub mod vduse;
pub mod worker;
