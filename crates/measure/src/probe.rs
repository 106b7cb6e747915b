//! The latency probe: Penstock's own sender of UDP requests, and the reflector that answers them.
//!
//! In a *closed loop* a request leaves when the one before it was answered, so that one slow answer keeps back all those
//! that would have met the same delay: it is counted once (coordinated omission, Gil Tene). In an *open loop* requests
//! leave at times that are drawn before the first of them, whatever became of the others, and a latency counts from the
//! time at which the request *should* have left: a stall is seen by every request that falls into it.
//!
//! - [`packet`]: what is sent. [`plan`]: when. [`client`] and [`server`]: the two ends. [`outcome`]: what the client prints,
//!   which [`crate::parse::probe`] reads.
//!
//! Both ends are hidden verbs of this program: `penstock inside probe` and `penstock inside reflect`.

pub mod client;
pub mod outcome;
pub mod packet;
pub mod plan;
pub mod server;
mod tally;

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use penstock_host::{Command, Place};
use penstock_model::measurement::Load;

/// How long a request may take, from the time at which it should have left. An answer after that counts as none, in both
/// loops and for the first request as for the last.
pub const TIMEOUT: Duration = Duration::from_secs(1);

/// How long the client waits for the server's first sign of life.
pub const GREETING: Duration = Duration::from_secs(3);

/// The reflector, listening at an address for `seconds`; it ends by itself then, with status 0.
pub fn server_command(program: &str, bind: IpAddr, port: u16, seconds: u32) -> Command {
    Command::new(program)
        .args(["inside", "reflect"])
        .args(["--bind", &bind.to_string()])
        .args(["--port", &port.to_string()])
        .args(["--seconds", &seconds.to_string()])
        // It ends by itself; this is for a machine on which it does not.
        .deadline(Duration::from_secs(u64::from(seconds) + 10))
}

/// The client, sending from an address to the reflector's for `dwell` with messages of `size` bytes (at least
/// [`packet::LEAST`], at most [`packet::MOST`]: others are a bad usage). It waits for the server for [`GREETING`] first, and
/// for the last answers at most [`TIMEOUT`]. The times of an open loop are drawn from `seed`: with one seed for all samples they
/// would all leave at the same times.
pub fn client_command(
    program: &str,
    bind: IpAddr,
    to: SocketAddr,
    load: Load,
    size: u32,
    dwell: Duration,
    seed: u64,
) -> Command {
    let command = Command::new(program)
        .args(["inside", "probe"])
        .args(["--bind", &bind.to_string()])
        .args(["--to", &to.to_string()])
        .args(["--size", &size.to_string()])
        .args(["--dwell-ms", &dwell.as_millis().to_string()])
        .deadline(dwell + GREETING + TIMEOUT * 2 + Duration::from_secs(15));
    match load {
        Load::Closed => command,
        Load::Open { rate } => command.args(["--rate", &rate.to_string(), "--seed", &seed.to_string()]),
    }
}

/// Where to run a command of this program so that its sockets are in `place`, and the command to run there.
///
/// A VM runs its own copy. A container may not see the host's program, whose path can lie below a directory that is hidden
/// from it: there the host's program is run on the host, in the container's network namespace, and so neither within the
/// container's share of the processors nor on its CPUs. `program` is where this program is on the host; `build` makes the
/// command for a program's path.
///
/// # Errors
///
/// The place has stopped, or is a VM that has no copy of this program.
pub fn in_place<'a>(
    place: &'a dyn Place,
    host: &'a dyn Place,
    program: &str,
    build: impl FnOnce(&str) -> Command,
) -> Result<(&'a dyn Place, Command), String> {
    if let Some(own) = place.own_program() {
        return Ok((place, build(own)));
    }
    match place.namespace() {
        Ok(None) => Ok((place, build(program))),
        Ok(Some(process)) => Ok((host, in_namespace(process, &build(program)))),
        Err(error) => Err(format!("this program is not {}: {error}", place.describe())),
    }
}

/// The command, in the network namespace of a process.
fn in_namespace(process: u32, command: &Command) -> Command {
    let mut entering = Command::new("nsenter")
        .arg(format!("--net=/proc/{process}/ns/net"))
        .arg("--")
        .arg(command.program())
        .args(command.arguments())
        .input(command.standard_input());
    for (name, value) in command.environment() {
        entering = entering.env(name, value);
    }
    match command.time_allowed() {
        Some(deadline) => entering.deadline(deadline),
        None => entering,
    }
}
