//! Carrying one connection of a board to a port of this machine's loopback.

use penstock_host::{files, relay};

use crate::{
    arguments::ForwardConnection,
    failure::{Failure, OrBadInput, Status},
};

/// Carries it until either side is gone.
///
/// # Errors
///
/// `Status::BadInput` when the file says no port; when it cannot be read, nobody listens at the port, or the connection breaks.
pub fn run(arguments: &ForwardConnection) -> Result<Status, Failure> {
    let port = files::read_to_string(&arguments.port)?;
    let port = port.trim().parse::<u16>();
    relay::to_loopback(port.or_bad_input()?)?;
    Ok(Status::Holds)
}
