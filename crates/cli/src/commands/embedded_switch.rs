//! Being an embedded switch, for a board: the data path of one of its NICs.

use penstock_switch::{control::Rights, program};

use crate::{
    arguments::EmbeddedSwitch,
    failure::{Failure, Status},
};

/// Runs the switch until it is told to end, or until its guests have gone.
pub fn run(arguments: &EmbeddedSwitch) -> Result<Status, Failure> {
    let EmbeddedSwitch { config, control, until_left } = arguments;
    // Who is in the board reaches this socket, and no board has a way out.
    program::run(config, Some((control.as_path(), Rights::Attributes)), *until_left)
        .map_err(|why| Failure::new(Status::Missing, why))?;
    Ok(Status::Holds)
}
