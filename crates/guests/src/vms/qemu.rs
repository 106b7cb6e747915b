//! A VM's QEMU among the processes of this host.

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use penstock_host::{Root, files, running::Running};
use penstock_model::{GuestName, domain::unescape};

use super::{MOMENT, VirshError, Vms};
use crate::{
    elsewhere,
    error::GuestError,
    state::{CONSOLE, PREFIX},
};

/// How long QEMU has to be gone once it is killed: it gives the guest's memory back, and functions are reset.
const GONE: Duration = Duration::from_secs(10);

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

/// The directory of the state that the VM which is there was started with. libvirt keeps what a VM was made of beside its number, from before
/// QEMU runs until it has ended (`qemuProcessLaunch`, `qemuProcessRemoveDomainStatus`), and its console is served in the state. `None` where
/// libvirt has no such file, or this user may not read it.
pub fn state_of(root: &Root, guest: &GuestName) -> Option<PathBuf> {
    let made_of = files::read_to_string(root.path(format!("/run/libvirt/qemu/{PREFIX}{guest}.xml"))).ok()?;
    let (before, _) = made_of.split_once(&format!("/{PREFIX}{guest}/{CONSOLE}'"))?;
    Some(unescape(before.rsplit_once('\'')?.1).into())
}

impl Vms {
    /// Whether the VM that is there was started with another state, as far as libvirt tells.
    pub(super) fn is_of_another(&self, guest: &GuestName) -> bool {
        state_of(&self.root, guest).is_some_and(|of| !self.state.is_in(&of))
    }

    /// The QEMU that is there and was not started with another state, as far as libvirt tells.
    pub(super) fn own_qemu(&self, guest: &GuestName) -> Option<Running> {
        process(&self.root, guest).filter(|_| !self.is_of_another(guest))
    }

    /// The QEMU that is there and was started with this state: libvirt says so.
    pub(super) fn proven_qemu(&self, guest: &GuestName) -> Option<Running> {
        let is_own = || state_of(&self.root, guest).is_some_and(|of| self.state.is_in(&of));
        process(&self.root, guest).filter(|_| is_own())
    }

    /// Fails when the guest is there, be it started with another state, or a container there: what it runs with is not touched meanwhile.
    pub(super) fn not_there(&self, guest: &GuestName) -> Result<(), GuestError> {
        match self.process(guest)? {
            Some(_) if self.state.started(guest)?.is_some() => {
                Err(GuestError::Running { guest: guest.clone() })
            }
            _ => elsewhere::no_guest(&self.root, &self.state, guest),
        }
    }

    /// Fails when the VM is there and was started with another state.
    pub(crate) fn not_elsewhere(&self, guest: &GuestName) -> Result<(), GuestError> {
        match self.process(guest)? {
            Some(_) => Ok(()),
            None => elsewhere::no_vm(&self.root, &self.state, guest),
        }
    }

    /// Ends a VM without a process that whoever had it made did not live to see: libvirt may be at it still. Whether one was begun.
    pub(super) fn end_what_is_begun(&self, guest: &GuestName, timeout: Duration) -> Result<bool, GuestError> {
        match self.state.started(guest)? {
            Some(started) if started.init.is_none() && started.is_of_this_boot(&self.root)? => {
                self.end_what_is_made(guest, timeout.min(MOMENT)).map(|()| true)
            }
            Some(_) | None => Ok(false),
        }
    }

    /// Ends a VM of which it is not known how far libvirt has come with it. libvirt that does not answer is given
    /// `timeout` to come back; what is there of QEMU by then is killed.
    pub(super) fn end_what_is_made(&self, guest: &GuestName, timeout: Duration) -> Result<(), GuestError> {
        let deadline = Instant::now() + timeout;
        loop {
            if self.is_of_another(guest) {
                return Ok(());
            }
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
            let outcome = self.virsh.destroy(guest, left);
            if let Some(process) = self.own_qemu(guest) {
                kill(process)?;
            }
            match outcome {
                // A daemon that is not there has nothing in hand.
                Err(source) if source.is_unreached() => return Ok(()),
                Err(source @ VirshError::Silent { .. }) if Instant::now() >= deadline => {
                    return Err(self.libvirt(format!("see whether VM {guest} is being made"), source));
                }
                Err(VirshError::Silent { .. }) => thread::sleep(Duration::from_millis(200)),
                // Its process is what counts.
                _ => return Ok(()),
            }
        }
    }
}

/// Kills a QEMU, and waits until it is gone.
pub(super) fn kill(process: Running) -> Result<(), GuestError> {
    if process.kill(GONE) { Ok(()) } else { Err(GuestError::Unstoppable { pid: process.id }) }
}
