//! Containers (LXC): define, start, stop, look inside.
//!
//! A container owns its functions' network interfaces while it runs (`lxc.net.N.type = phys`) and gives them back when
//! it stops. [`Containers`] carries out a plan's steps for guests; [`ContainerPlace`] is the inside of a running one,
//! for verification and measurement.
//!
//! What a container is kept from: with the default root, an overlay of the host's own, its root user has no
//! `CAP_SYS_ADMIN`, sees a read-only `/sys`, its own `/run`, `/tmp`, `/root` and `/home`, and no devices but null and its
//! like. It still reads the rest of the host's root file system, and shares the host's user ids and kernel: a container
//! is for software that is trusted not to attack the kernel; the rest belongs into a VM.

pub mod config;
pub mod containers;
pub mod error;
pub mod interfaces;
mod limits;
mod lxc;
pub mod place;
pub mod state;

pub use containers::{Containers, Status};
pub use error::ContainerError;
pub use interfaces::Recognise;
pub use place::ContainerPlace;
