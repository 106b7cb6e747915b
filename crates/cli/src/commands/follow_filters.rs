//! Handing an embedded switch what a VM asks of its devices, for as long as the switch is there.

use penstock_guests::vms::{Builtin, Vms};
use penstock_host::Root;

use crate::{
    arguments::FollowFilters,
    failure::{Failure, Status},
};

/// Follows them until it is killed.
///
/// # Errors
///
/// When the VM is defined with no such NIC.
pub fn run(arguments: &FollowFilters) -> Result<Status, Failure> {
    let FollowFilters { state, guest, nic } = arguments;
    Vms::new(Root::system(), state.clone(), Builtin::default()).follow_filters(guest, nic)?;
    Ok(Status::Holds)
}
