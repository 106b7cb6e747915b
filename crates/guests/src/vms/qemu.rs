//! A VM's QEMU among the processes of this host.

use penstock_host::{Root, files, running::Running};
use penstock_model::GuestName;

use crate::state::PREFIX;

/// Where libvirt writes down the number of a VM's QEMU (`virPidFile`).
pub fn file(guest: &GuestName) -> String {
    format!("/run/libvirt/qemu/{PREFIX}{guest}.pid")
}

/// The QEMU of a VM, if one runs: the process whose number libvirt wrote down, if its arguments say that it is this VM's. A file that was
/// left behind can have another's number by now.
pub fn process(root: &Root, guest: &GuestName) -> Option<Running> {
    let id = files::read_to_string(root.path(file(guest))).ok()?.trim().parse().ok()?;
    let process = Running::find(root, id)?;
    // "-name guest=penstock-NAME,debug-threads=on"
    let words = files::read(root.path(format!("/proc/{id}/cmdline"))).ok()?;
    let name = format!("guest={PREFIX}{guest}");
    let own = |word: &[u8]| {
        word.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b',')
    };
    (words.split(|byte| *byte == 0).any(own) && process.is_alive_below(root)).then_some(process)
}
