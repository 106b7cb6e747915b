//! The functions that a node publishes.

use std::{collections::BTreeMap, fmt};

use penstock_model::{Bdf, VfIndex};

/// The name of a device in a ResourceSlice, a DNS label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceName(String);

impl DeviceName {
    /// This name, as it is.
    pub fn new(name: impl Into<String>) -> DeviceName {
        DeviceName(name.into())
    }
}

impl AsRef<str> for DeviceName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for DeviceName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A function that this node publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The device's name.
    pub name: DeviceName,
    /// The NIC.
    pub nic: String,
    /// The PF's PCI address.
    pub pf: Bdf,
    /// The VF's index; `None` is the PF itself.
    pub vf: Option<VfIndex>,
    /// The PCI address.
    pub bdf: Bdf,
    /// The bound driver.
    pub driver: Option<String>,
}

/// All that a node publishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    /// By name.
    pub functions: BTreeMap<DeviceName, Function>,
}

impl Devices {
    /// The function of a device.
    pub fn get(&self, name: &str) -> Option<&Function> {
        self.functions.get(name)
    }
}
