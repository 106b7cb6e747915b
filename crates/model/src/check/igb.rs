//! NICs that VMs own which are emulated Intel 82576 (`emulation: igb`). The device has all of its VFs and one back end, so that the host
//! sees one function; what its VFs are like is the VM's to say (`ip link set ... vf`), as on hardware.

use crate::{
    DataPath, Emulation, GuestName,
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
    if let Some(vfs) = document.vfs.filter(|vfs| vfs.get() != most) {
        let text = format!("an emulated igb has {most} VFs, and QEMU cannot make it with {}", vfs.get());
        let hint = format!("write `vfs: {most}`, or leave it out: {guest} makes as many as it wants");
        messages.push(Diagnostic::error(path.join("vfs"), text).with_hint(hint));
    }
    let virtio_alone = match data_path {
        DataPath::Switch => Some("vhost-user"),
        DataPath::VhostVdpa => Some("vhost-vdpa"),
        DataPath::Tap | DataPath::VirtioVdpa => None,
    };
    if let Some(back_end) = virtio_alone {
        let text = format!("QEMU connects an igb to no embedded switch: {back_end} is for virtio alone");
        messages
            .push(Diagnostic::error(path.join("emulation"), text).with_hint(
                "write `path: tap` with a bridge of the host as `uplink`; or `emulation: virtio`",
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
    if document.allow.take().is_some() {
        let text = "`allow` bounds what a VM asks of its embedded switch, and an igb is connected to none";
        messages.push(
            Diagnostic::error(path.join("allow"), text)
                .at_key()
                .with_hint("leave it out; or write `emulation: virtio`"),
        );
    }
    if document.queues.take().is_some_and(|queues| queues != 1) {
        let text = "an emulated igb has one pair of queues to its back end";
        messages.push(Diagnostic::error(path.join("queues"), text).at_key().with_hint("leave it out"));
    }
}
