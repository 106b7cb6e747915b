//! SR-IOV NICs as QEMU's devices, and the rules by which they are composed: of a board, and of a VM that owns such a NIC. Pure.

pub mod device;
mod rules;
pub mod tenant;

pub use device::{BusAddress, Device, DeviceKind, ROOT_BUS, VfLayout};
pub use rules::{Addressing, CompositionError, SLOT_FUNCTIONS, check};
