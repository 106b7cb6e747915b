//! A VM's QEMU among the processes of this host.

use penstock_host::{Root, files, running::Running};
use penstock_model::GuestName;

use super::Vms;
use crate::{error::GuestError, state::PREFIX};

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

impl Vms {
    /// Fails when the VM is there: what it runs with is not touched meanwhile.
    pub(super) fn not_there(&self, guest: &GuestName) -> Result<(), GuestError> {
        match self.process(guest)? {
            Some(_) => Err(GuestError::Running { guest: guest.clone() }),
            None => self.not_elsewhere(guest),
        }
    }

    /// Fails when a QEMU is there as this VM, whose start is not noted in this state. The names of domains, taps and units are the
    /// same whatever the state.
    pub(super) fn not_elsewhere(&self, guest: &GuestName) -> Result<(), GuestError> {
        process(&self.root, guest).map_or(Ok(()), |process| {
            Err(GuestError::Elsewhere {
                guest: guest.clone(),
                pid: process.id,
                state: self.state.directory().to_owned(),
                end: format!("virsh -c qemu:///system destroy {PREFIX}{guest}"),
            })
        })
    }
}
