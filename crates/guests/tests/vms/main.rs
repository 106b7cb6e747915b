//! VMs with a script in the place of `virsh`: it notes how it is called, starts processes that look like QEMU, and plays
//! the answers of libvirt and of guests. Real ones run in the tests that need a board.
#![allow(clippy::disallowed_methods)]

mod host;
mod inside;
mod libvirt;
mod life;
mod needs;
mod vdpa;
