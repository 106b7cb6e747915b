//! Devices as ResourceSlices. Pure: devices and taints in, slices out ([`publish`] writes them).
//!
//! The limits are those of `resource.k8s.io/v1` (types.go): 64 devices where one has taints, for which all of ours leave room, so that a taint
//! never moves a device to another slice.

pub mod publish;

use std::collections::BTreeMap;

use k8s_openapi::{
    api::resource::v1::{
        Device, DeviceAttribute, DeviceTaint, ResourcePool, ResourceSlice, ResourceSliceSpec,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use penstock_model::digest::sha256;

use crate::{
    devices::{Attribute, Devices, PublishedFunction},
    identity::{DeviceName, DriverName, IN_USE, NodeName},
};

/// Devices in a slice (`ResourceSliceMaxDevicesWithTaintsOrConsumesCounters`).
const DEVICES: usize = 64;
/// The longest name of an object.
const NAME_LIMIT: usize = 253;

/// A reason not to give a device to a new claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    /// Its key: [`DRIFT`](crate::identity::DRIFT), [`VANISHING`](crate::identity::VANISHING) or [`IN_USE`].
    pub key: &'static str,
    /// Which attribute drifted, where it fits a label's value.
    pub value: Option<String>,
}

/// Taints by device.
pub type Taints = BTreeMap<DeviceName, Vec<Taint>>;

/// Whose slices they are.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The driver.
    pub driver: DriverName,
    /// The node, which is the pool's name too.
    pub node: NodeName,
    /// The UID of the Node object: its slices go with it.
    pub node_uid: String,
}

/// The slices of a node: devices by NIC and index. Their generation is 0 and to be filled in.
pub fn slices(owner: &Owner, devices: &Devices, drift: &Taints) -> Vec<ResourceSlice> {
    let functions = devices.in_order();
    let chunks = functions.chunks(DEVICES);
    let count = i64::try_from(chunks.len()).unwrap_or(i64::MAX);
    let slice = |(position, functions): (usize, &[&PublishedFunction])| {
        let devices = functions.iter().map(|function| device(function, drift));
        let mut spec = ResourceSliceSpec { devices: Some(devices.collect()), ..empty(owner) };
        spec.pool.resource_slice_count = count;
        ResourceSlice { metadata: metadata(owner, &format!("devices-{position}")), spec }
    };
    chunks.enumerate().map(slice).collect()
}

fn empty(owner: &Owner) -> ResourceSliceSpec {
    ResourceSliceSpec {
        driver: owner.driver.to_string(),
        node_name: Some(owner.node.to_string()),
        pool: ResourcePool { name: owner.node.to_string(), generation: 0, resource_slice_count: 0 },
        ..ResourceSliceSpec::default()
    }
}

/// A slice's name says whose it is, so that an agent that was killed finds what it wrote.
fn metadata(owner: &Owner, name: &str) -> ObjectMeta {
    let Owner { driver, node, node_uid } = owner;
    let whole = format!("{node}-{driver}-{name}");
    let name = match whole.len() <= NAME_LIMIT {
        true => whole,
        false => format!("{}-{driver}-{name}", &sha256(node.as_str())[..32]),
    };
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.to_string(),
        uid: node_uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    ObjectMeta { name: Some(name), owner_references: Some(vec![owner]), ..ObjectMeta::default() }
}

fn device(function: &PublishedFunction, drift: &Taints) -> Device {
    let attributes = function.attributes.iter().map(|(name, value)| (name.clone(), attribute(value)));
    let in_use = function.in_use.is_some().then_some(Taint { key: IN_USE, value: None });
    let taints: Vec<DeviceTaint> =
        drift.get(&function.name).into_iter().flatten().cloned().chain(in_use).map(taint).collect();
    Device {
        name: function.name.to_string(),
        attributes: Some(attributes.collect()),
        taints: (!taints.is_empty()).then_some(taints),
        ..Device::default()
    }
}

fn taint(taint: Taint) -> DeviceTaint {
    DeviceTaint {
        key: taint.key.to_owned(),
        value: taint.value,
        effect: "NoSchedule".to_owned(),
        time_added: None,
    }
}

fn attribute(value: &Attribute) -> DeviceAttribute {
    match value {
        Attribute::Text(text) => DeviceAttribute { string: Some(text.clone()), ..DeviceAttribute::default() },
        Attribute::Number(number) => DeviceAttribute { int: Some(*number), ..DeviceAttribute::default() },
        Attribute::Flag(flag) => DeviceAttribute { bool: Some(*flag), ..DeviceAttribute::default() },
    }
}

#[cfg(test)]
pub(crate) mod tests;
