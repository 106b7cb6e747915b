//! NICs that VMs own whose functions are vDPA devices of the host's kernel (`path: vdpa`). An embedded switch keeps their attributes; what
//! the kernel does not hand on to it is refused where it is written.

use crate::{
    diagnostic::{Diagnostic, Path},
    document::{TenantNicDocument, TenantVfDocument},
};

/// What is to be done about what the switch would have to be told.
const TOLD_BY_QEMU: &str = "leave it out; or write `path: switch`, where QEMU tells the switch";

/// What of the NIC at `path` would not hold. Takes it out of the document, so that nobody else speaks of it.
pub(super) fn check(document: &mut TenantNicDocument, path: &Path, messages: &mut Vec<Diagnostic>) {
    if document.allow.take().is_some() {
        refuse_allow(path, messages);
    }
    if document.queues.is_some_and(|queues| queues != 1) {
        document.queues = None;
        let text = "the kernel gives a vDPA device of VDUSE one pair of queues";
        let error = Diagnostic::error(path.join("queues"), text).at_key();
        messages.push(error.with_hint("leave it out; or write `path: switch`"));
    }
}

/// What of the VF at `path` would not hold.
pub(super) fn check_vf(document: &mut TenantVfDocument, path: &Path, messages: &mut Vec<Diagnostic>) {
    if document.settings().trust == Some(true) {
        let text = "`trust` would not hold with `path: vdpa`: the kernel does not tell the switch which addresses a VF asks for";
        messages.push(Diagnostic::error(path.join("trust"), text).at_key().with_hint(TOLD_BY_QEMU));
    }
    if document.allow.take().is_some() {
        refuse_allow(path, messages);
    }
}

fn refuse_allow(path: &Path, messages: &mut Vec<Diagnostic>) {
    let text = "`allow` bounds what a VM asks of its embedded switch, and with `path: vdpa` the kernel does not hand that on";
    messages.push(Diagnostic::error(path.join("allow"), text).at_key().with_hint(TOLD_BY_QEMU));
}
