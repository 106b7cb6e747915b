//! NICs that VMs own which are emulated Intel 82576 (`emulation: igb`). The device has all of its VFs and one back end, so that the host
//! sees one function; what its VFs are like is the VM's to say (`ip link set ... vf`), as on hardware. Where the back end is a port of an
//! embedded switch, `allow` says what the frames of all its functions may have.

use super::nic;
use crate::{
    Allow, AllowedMacs, DataPath, Emulation, GuestName,
    diagnostic::{Diagnostic, Path},
    document::TenantNicDocument,
};

/// What of the NIC at `path` would never have an effect. Takes it out of the document, so that nobody else speaks of it.
pub(super) fn check(
    guest: &GuestName,
    document: &mut TenantNicDocument,
    data_path: DataPath,
    path: &Path,
    messages: &mut Vec<Diagnostic>,
) {
    let most = Emulation::Igb.most_vfs();
    if let Some(vfs) = document.vfs.filter(|vfs| *vfs != most) {
        let text = format!("an emulated igb has {most} VFs, and QEMU cannot make it with {vfs}");
        let hint = format!("write `vfs: {most}`, or leave it out: {guest} makes as many as it wants");
        messages.push(Diagnostic::error(path.join("vfs"), text).with_hint(hint));
    }
    if data_path == DataPath::VhostVdpa {
        let text = "QEMU gives no igb a vDPA device: vhost-vdpa is for virtio alone";
        messages.push(Diagnostic::error(path.join("emulation"), text).with_hint(
            "write `path: switch`, or `path: tap` with a bridge of the host as `uplink`; or `emulation: virtio`",
        ));
    }
    if !std::mem::take(&mut document.functions).is_empty() {
        let text = format!("what the VFs of an igb have is {guest}'s to say, by `ip link set ... vf`");
        messages.push(
            Diagnostic::error(path.join("functions"), text)
                .at_key()
                .with_hint("leave it out; or write `emulation: virtio`"),
        );
    }
    if document.queues.take().is_some_and(|queues| queues != 1) {
        let text = "an emulated igb has one pair of queues to its back end";
        messages.push(Diagnostic::error(path.join("queues"), text).at_key().with_hint("leave it out"));
    }
    if data_path == DataPath::SwitchTap {
        let settings = document.settings();
        nic::check_vlan(&settings, &settings, path, messages);
        if let Some(allow) = &document.allow {
            check_allow(guest, document, allow, &path.join("allow"), messages);
        }
    } else if document.allow.take().is_some() {
        let text = "`allow` bounds what goes through an embedded switch, and this igb is connected to none";
        messages.push(
            Diagnostic::error(path.join("allow"), text)
                .at_key()
                .with_hint("leave it out; or write `path: switch`"),
        );
    }
}

/// What of a ceiling would hold nothing back, since the switch sees frames and not what the VM asks of its NIC.
fn check_allow(
    guest: &GuestName,
    document: &TenantNicDocument,
    allow: &Allow,
    path: &Path,
    messages: &mut Vec<Diagnostic>,
) {
    let usual = Allow::default();
    let asked = [
        ("more_macs", allow.more_macs != usual.more_macs),
        ("qos", allow.qos != usual.qos),
        ("vlan_proto", allow.vlan_proto != usual.vlan_proto),
        ("spoofchk", allow.spoofchk != usual.spoofchk),
        ("trust", allow.trust != usual.trust),
        ("promiscuous", allow.promiscuous != usual.promiscuous),
        ("loopback", allow.loopback != usual.loopback),
    ];
    for (key, _) in asked.into_iter().filter(|(_, given)| *given) {
        let text = format!(
            "the switch of an igb is not told what {guest} sets inside, so that `{key}` would have no effect"
        );
        messages.push(Diagnostic::error(path.join(key), text).at_key().with_hint(
            "leave it out: `vlan`, `mac` and `max_tx_rate` bound frames; or write `emulation: virtio`",
        ));
    }
    let checked = document.spoofchk == Some(true);
    let at = path.join("mac");
    match &allow.mac {
        AllowedMacs::These(_) if !checked => {
            let text =
                "these addresses hold no others back: without `spoofchk: on` frames from any address pass";
            messages
                .push(Diagnostic::error(at, text).at_key().with_hint("write `spoofchk: on` beside `allow`"));
        }
        AllowedMacs::Any if checked => {
            let text = "any address is allowed, and `spoofchk: on` drops frames from all but the PF's";
            messages.push(
                Diagnostic::error(at, text)
                    .at_key()
                    .with_hint("leave `spoofchk` out; or list the addresses that the functions may have"),
            );
        }
        AllowedMacs::Own | AllowedMacs::Any | AllowedMacs::These(_) => {}
    }
    let tagged = document.vlan.is_some_and(|vlan| vlan.get() != 0);
    if tagged && allow.vlan.is_some() {
        let text =
            format!("all frames of {guest} get the tag of the NIC's `vlan`: it has no choice of VLANs");
        messages.push(Diagnostic::error(path.join("vlan"), text).at_key().with_hint("write one of the two"));
    }
}
