//! A QEMU machine with SR-IOV devices: composition rules, image, boot, snapshot.
//!
//! - [`Design`]: from a model to devices, purely, by the rules of composition that the model has.
//! - [`Image`]: the Debian tree that every board runs, made once.
//! - [`Board`]: one that runs. It is a [`Place`](penstock_host::Place) like any other.

mod accelerator;
mod board;
mod cache;
pub mod cached;
mod complaints;
mod control;
pub mod design;
mod disk;
mod emulator;
mod error;
mod failed;
mod forward;
mod image;
mod interfaces;
mod kept;
mod kernel;
mod log;
mod machine;
mod netdev;
mod origin;
mod place;
mod program;
mod progress;
mod recipe;
mod rootless;
mod saved;
mod shell;
mod switch;
pub mod tree;

pub use accelerator::Accelerator;
pub use board::{Board, UpOptions};
pub use cache::Cache;
pub use design::{BoardNic, Design, DesignError};
pub use disk::Lasting;
pub use emulator::Emulator;
pub use error::BoardError;
pub use forward::{ADDRESS as FORWARD_ADDRESS, Forward, PORT as FORWARD_PORT};
pub use image::{Image, PackedError, Proof, ProofError};
pub use kept::KeptBoard;
pub use kernel::KernelChoice;
pub use machine::{FILES_SERIAL, SETTLED};
pub use netdev::{End, Netdev};
pub use progress::{Listener, Progress};
pub use rootless::Lack;
pub use switch::Switch;
