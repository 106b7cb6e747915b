//! What the embedded switch of a VM's NIC is told: its ports, and how far its VM may go.

use std::path::PathBuf;

use penstock_host::vdpa::VdpaDriver;
use penstock_model::{
    Allow, DataPath, GuestName, InterfaceName, TenantNic, VfAttributeKind, VfIndex, VfSettings,
};
use penstock_plan::action::GuestNic;
use serde_json::{Value, json};

use super::port;

/// The version of a switch's configuration.
pub(crate) const VERSION: u32 = 1;

/// What a switch is told: its ports are the NIC's functions, and QEMU's user alone may come to their sockets, or QEMU is given their vDPA
/// devices or their tap, which are root's alone; the uplink leads to the interface `uplink`.
pub fn configuration(
    guest: &GuestName,
    own: &GuestNic,
    sockets: &[(Option<VfIndex>, PathBuf)],
    qemu_user: Option<u32>,
    uplink: Option<&InterfaceName>,
) -> Value {
    let mut ports = serde_json::Map::new();
    let access = |user: u32| json!({"mode": "0600", "owner": user.to_string()});
    for ((vf, mac, settings), (_, socket)) in own.nic.functions().zip(sockets) {
        let allow = own.nic.allow(vf);
        let mut told = json!({
            "mac": mac.to_string(),
            // The interfaces decide how long a frame may be, as behind any NIC's switch.
            "mtu": u16::MAX,
            // Without a VLAN of its own it is in none: which ones the VM may ask for, `allow` says.
            "trunk": own.nic.trunk(),
        });
        match own.nic.path {
            DataPath::VhostVdpa => {
                told["vduse"] =
                    json!({"name": TenantNic::vdpa_device(mac), "driver": VdpaDriver::Vhost.name()});
            }
            DataPath::SwitchTap => {
                told["packet"] = json!(TenantNic::tap(mac));
                told["more_macs"] = json!(own.nic.more_macs());
            }
            DataPath::Switch | DataPath::Tap | DataPath::VirtioVdpa => {
                told["socket"] = json!(socket);
                if let Some(user) = qemu_user {
                    told["access"] = access(user);
                }
            }
        }
        if vf.is_none() {
            // It gets what nobody has the address of: it may have a bridge on top, or VFs of which the switch does not know.
            told["default"] = true.into();
        }
        if vf.is_some() || own.nic.is_one_port() {
            set(&mut told, &settings);
        } else if let Some(rate) = settings.max_tx_rate {
            told["max_tx_rate"] = rate.0.into();
        }
        if let Some(allow) = allow {
            told["allow"] = json!(Allow { loopback: false, ..allow.clone() });
        }
        ports.insert(port(guest, &own.name, vf), told);
    }
    if let Some(interface) = uplink {
        let name = TenantNic::uplink_port(guest, &own.name);
        ports.insert(name, json!({"packet": interface, "uplink": true, "mtu": u16::MAX}));
    }
    let mut told = json!({"version": VERSION, "loopback": true, "ports": ports});
    if own.nic.allows() {
        told["pf"] = port(guest, &own.name, None).into();
        // Each port has a ceiling of its own; of the switch there is one thing to ask for.
        if own.nic.allow.as_ref().is_some_and(|allow| allow.loopback) {
            told["allow"] = json!({"loopback": true});
        }
        if let Some(user) = qemu_user {
            told["line"] = access(user);
        }
    }
    told
}

/// What the model sets for a function, in the switch's words, which are the model's.
pub(crate) fn set(told: &mut Value, settings: &VfSettings) {
    let tagged = settings.vlan.is_some();
    for key in TenantNic::switch_keys().filter(|key| tagged || key.kind() != VfAttributeKind::Vlan) {
        told[key.name()] = json!(settings.get(key).unwrap_or(key.unset()));
    }
}

#[cfg(test)]
mod tests;
