//! NICs that VMs own whose functions are taps of a Linux bridge (`path: tap`): a bridge forwards frames and keeps nothing of what a PF
//! keeps for its VFs, so that what it cannot keep is refused where it is written.

use indexmap::IndexMap;

use crate::{
    DataPath, Emulation, InterfaceName, Nic, NicName, Uplink, VfKey,
    diagnostic::{Diagnostic, Path},
    document::{DataPathEntry, TenantNicDocument, TenantVfDocument, UplinkEntry},
};

/// What is to be done about an attribute that a bridge does not keep.
const KEPT_BY_SWITCHES: &str = "leave it out; or write `path: switch`, whose embedded switch holds it";

/// What carries the frames of the NIC at `path`.
pub(super) fn data_path(
    document: &TenantNicDocument,
    path: &Path,
    messages: &mut Vec<Diagnostic>,
) -> DataPath {
    match document.path {
        None | Some(DataPathEntry::Switch) if document.emulation == Some(Emulation::Igb) => {
            DataPath::SwitchTap
        }
        None | Some(DataPathEntry::Switch) => DataPath::Switch,
        Some(DataPathEntry::Tap) => DataPath::Tap,
        Some(DataPathEntry::Vdpa) => DataPath::VhostVdpa,
        Some(DataPathEntry::User) => {
            let text = "QEMU's user network is for boards alone: behind its address translation no function of a NIC can be reached";
            messages.push(
                Diagnostic::error(path.join("path"), text)
                    .with_hint("write `path: switch`, or `path: tap` with a bridge of the host as `uplink`"),
            );
            DataPath::Switch
        }
    }
}

/// The bridge that the taps of the NIC at `path` are ports of, or that the embedded switch of a container's NIC leads to.
pub(super) fn bridge(
    entry: Option<UplinkEntry>,
    nics: &IndexMap<NicName, Nic>,
    data_path: DataPath,
    path: &Path,
    messages: &mut Vec<Diagnostic>,
) -> Option<Uplink> {
    let (who, otherwise) = match data_path {
        DataPath::VirtioVdpa => ("the switch of a container's NIC is a port", ""),
        DataPath::Tap | DataPath::Switch | DataPath::SwitchTap | DataPath::VhostVdpa => {
            ("taps are ports", "; or write `path: switch`")
        }
    };
    let Some(entry) = entry else {
        let text = format!("{who} of a Linux bridge of the host, and nothing says of which");
        let (error, hint) = match data_path {
            DataPath::VirtioVdpa => (Diagnostic::error(path.clone(), text).at_key(), ""),
            DataPath::Tap | DataPath::Switch | DataPath::SwitchTap | DataPath::VhostVdpa => {
                (Diagnostic::error(path.join("path"), text), "; or `path: switch`, which needs none")
            }
        };
        messages.push(error.with_hint(format!("write `uplink: br0`, a bridge that is there{hint}")));
        return None;
    };
    let written = matches!(entry, UplinkEntry::Settings(_));
    let name = entry.function()?;
    let of_model = name.vf.is_some() || nics.contains_key(&name.nic);
    match name.nic.as_str().parse::<InterfaceName>() {
        Ok(interface) if !written && !of_model => Some(Uplink::Interface(interface)),
        _ => {
            let text = format!("{who} of a Linux bridge of the host, and {name} is none");
            let at = path.join("uplink");
            let at = if written { at.join("vf") } else { at };
            messages.push(Diagnostic::error(at, text).with_hint(format!(
                "make its interface a port of a bridge, and write that, like `uplink: br0`{otherwise}"
            )));
            None
        }
    }
}

/// A bridge keeps nothing that is written for a VF; its address is QEMU's.
pub(super) fn check_vf(document: &TenantVfDocument, path: &Path, messages: &mut Vec<Diagnostic>) {
    for (key, value) in document.settings().values() {
        let why = match key {
            // The first is QEMU's; the others are refused with a switch, too, and said there.
            VfKey::Mac | VfKey::MinTxRate | VfKey::LinkState => continue,
            VfKey::Trust => "a bridge knows no trust: a VF at a tap may use any address",
            _ if value == key.unset() => continue,
            VfKey::Spoofchk => "a bridge takes frames from any address of a tap",
            VfKey::Vlan => "no VLAN is set for a tap",
            VfKey::Qos => "no VLAN is set for a tap, whose tag could have a priority",
            VfKey::VlanProto => "no VLAN is set for a tap, whose tag could have a protocol",
            _ => "a bridge does not keep it",
        };
        let key = key.name();
        let error =
            Diagnostic::error(path.join(key), format!("`{key}` would not hold with `path: tap`: {why}"));
        messages.push(error.at_key().with_hint(KEPT_BY_SWITCHES));
    }
    if document.allow.is_some() {
        refuse_allow(path, messages);
    }
}

/// A VM at taps asks nobody.
pub(super) fn refuse_allow(path: &Path, messages: &mut Vec<Diagnostic>) {
    let text = "`allow` bounds what a VM asks of its embedded switch, and with `path: tap` it has none";
    messages.push(Diagnostic::error(path.join("allow"), text).at_key().with_hint(KEPT_BY_SWITCHES));
}
