//! Guests that run and were started with another state, which this one does not know of. What is theirs has the same names whatever the
//! state: a VM's domain, and of both kinds taps, devices and the units of switches.

use std::path::PathBuf;

use penstock_host::{Root, process::quoted_where_needed, running::Running};
use penstock_model::GuestName;

use crate::{
    containers::lxc,
    error::GuestError,
    state::{PREFIX, State},
    vms::qemu,
};

/// Fails when a VM of this name runs. The caller has seen that it is not this state's.
///
/// # Errors
///
/// [`GuestError::Elsewhere`].
pub(crate) fn no_vm(root: &Root, state: &State, guest: &GuestName) -> Result<(), GuestError> {
    let Some(qemu) = qemu::process(root, guest) else { return Ok(()) };
    let end = format!("virsh -c qemu:///system destroy {PREFIX}{guest}");
    Err(found(state, guest, qemu, qemu::state_of(root, guest), end))
}

/// Fails when a guest of this name runs, a VM or a container. The caller has seen that it is not this state's.
///
/// # Errors
///
/// [`GuestError::Elsewhere`].
pub(crate) fn no_guest(root: &Root, state: &State, guest: &GuestName) -> Result<(), GuestError> {
    no_vm(root, state, guest)?;
    let Some((monitor, path)) = lxc::monitors(root, guest).find(|(_, path)| !state.is_in(path)) else {
        return Ok(());
    };
    let end = format!("lxc-stop -P {} -n {PREFIX}{guest}", quoted_where_needed(&path.to_string_lossy()));
    Err(found(state, guest, monitor, Some(path), end))
}

fn found(state: &State, guest: &GuestName, process: Running, of: Option<PathBuf>, end: String) -> GuestError {
    let of = of.map(|of| if state.is_in(&of) { state.directory().to_owned() } else { of });
    let state = state.directory().to_owned();
    GuestError::Elsewhere { guest: guest.clone(), pid: process.id, state, of, end }
}
