//! Fixtures, and the harness for tests that need more than a compiler. Development only.
//!
//! A test that cannot run on a machine is reported as ignored, with the reason on standard error; it never passes.
#![allow(clippy::disallowed_methods)]

pub mod advised;
pub mod api_socket;
pub mod binary;
pub mod board;
pub mod campaign;
pub mod cluster;
pub mod control_plane;
pub mod crash;
pub mod golden;
pub mod grub;
pub mod json;
pub mod memory;
pub mod models;
pub mod namespace;
pub mod needs;
pub mod page;
pub mod programs;
pub mod samples;
pub mod script;
pub mod skip;
pub mod switch_line;
pub mod sysfs;
pub mod tree;
pub mod trials;
pub mod tuned;
pub mod unpacked;
pub mod xdp;
