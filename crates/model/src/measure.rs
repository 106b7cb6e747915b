//! What is measured beside the paths that the machine has: storage.

use serde::{Deserialize, Serialize};

use crate::{ByteSize, GuestName};

/// What is measured beside the paths that the machine has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Measure {
    /// Devices and directories that a guest is measured on, against the host. Default: none.
    pub storage: Vec<StorageTarget>,
}

/// A device or a directory, as a guest has it and as the host has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StorageTarget {
    /// The guest in which it is measured.
    pub guest: GuestName,
    /// Its path inside the guest, absolute: a block device, or a directory in which a file is made and removed.
    pub path: String,
    /// Its path on the host, absolute. `None`, the default: for a device of a container the device that it was given, for a
    /// directory of a container the same directory through the container's root; for a VM there is none.
    pub host: Option<String>,
    /// How much of it is read and written. Default: 64 MiB.
    pub size: ByteSize,
    /// Whether it is written to as well. What a device holds is lost then. Default: yes for a directory, no for a device,
    /// which is what a path below `/dev` is.
    pub write: bool,
}
