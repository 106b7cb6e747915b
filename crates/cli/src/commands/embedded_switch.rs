//! Being an embedded switch, for a board: the data path of one of its NICs.

use std::{
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    thread,
    time::{Duration, Instant},
};

use penstock_host::{Command, interrupt, process};
use penstock_switch::program::{self, Run};

use crate::{
    arguments::EmbeddedSwitch,
    failure::{Failure, Status},
};

/// How often a switch is looked at, to see whether it has died.
const LOOK: Duration = Duration::from_millis(50);
/// A switch that has lived so long had begun to serve.
const STEADY: Duration = Duration::from_secs(2);
/// How long it may take to end when that is asked of it.
const ENDING: Duration = Duration::from_secs(2);
/// The longest pause before one that does not live is started again; the first is [`LOOK`].
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often in a row it is started without coming to serve.
const MOST: u32 = 20;

/// Runs the switch until it is told to end, or until its guests have gone.
///
/// # Errors
///
/// `Status::Failed` when the switch's configuration cannot be used, or its sockets not be opened.
pub fn run(arguments: &EmbeddedSwitch) -> Result<Status, Failure> {
    let EmbeddedSwitch { config, control, own, line, until_left, workers, again } = arguments;
    if *again {
        return keep_alive(arguments);
    }
    // Who is in a board reaches its socket; what may be done there, `allow` of the configuration says.
    let socket = Some(control.as_path());
    let (control, line) = if *own { (socket, line.as_deref()) } else { (None, socket) };
    program::run(&Run { config, control, line, until_left: *until_left, keep: true, workers: *workers })
        .map_err(|why| Failure::new(Status::Failed, why))?;
    Ok(Status::Holds)
}

/// Runs it in a process of its own, and another when that dies. The switch ends with this process.
fn keep_alive(arguments: &EmbeddedSwitch) -> Result<Status, Failure> {
    let EmbeddedSwitch { config, control, own, line, until_left, workers, again: _ } = arguments;
    let binary = process::own_program()?;
    let mut command = Command::new(binary).arg("embedded-switch").arg(config).arg("--control").arg(control);
    if *own {
        command = command.arg("--own");
    }
    if let Some(line) = line {
        command = command.arg("--line").arg(line);
    }
    if *until_left {
        command = command.arg("--until-left");
    }
    command = command.arg("--workers").arg(workers.to_string());
    let mut in_vain = 0;
    loop {
        let began = Instant::now();
        let mut switch = command.start_beside()?;
        let ended = loop {
            if let Some(status) = switch.ended() {
                break status;
            }
            if interrupt::pending() {
                switch.end(ENDING);
                return Ok(Status::Holds);
            }
            thread::sleep(LOOK);
        };
        if ended.success() {
            return Ok(Status::Holds);
        }
        let why = format!("the switch of {} ended with {}", config.display(), words(ended));
        in_vain = if began.elapsed() < STEADY { in_vain + 1 } else { 0 };
        // One that never was there is not mended by another. It has said itself what was wrong.
        if in_vain > MOST || in_vain == 1 && ended.signal().is_none() {
            return Err(Failure::new(Status::Failed, why));
        }
        penstock_host::complain!("{why}, and is started again");
        thread::sleep(LOOK.saturating_mul(1 << in_vain.min(10)).min(LONGEST_PAUSE));
    }
}

fn words(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, code) => format!("status {}", code.unwrap_or_default()),
    }
}
