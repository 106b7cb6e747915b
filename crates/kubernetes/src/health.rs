//! Whether devices are as the model has them.

use std::{collections::BTreeMap, time::SystemTime};

use crate::devices::DeviceName;

/// How a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// As the model has it.
    Healthy,
    /// Not as the model has it.
    Unhealthy,
    /// Not known.
    Unknown,
}

/// The health of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceHealth {
    /// How it is.
    pub condition: Condition,
    /// Why, at most 1,024 bytes; empty when healthy.
    pub message: String,
    /// Since when.
    pub since: SystemTime,
}

/// The health of all devices.
pub type HealthReport = BTreeMap<DeviceName, DeviceHealth>;
