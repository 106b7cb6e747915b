//! `penstock inside`: what this program does inside a guest for the Penstock on the host. Nobody types it.

use std::{
    io::{self, Read},
    time::Duration,
};

use penstock_host::{InterfaceReport, Netlink, frames::agent};
use penstock_measure::probe::{
    client::{self, Task},
    server,
};
use penstock_model::measurement::Load;
use penstock_verify::{KernelObserver, Observer};

use crate::{
    arguments::Inside,
    failure::{Failure, OrBadInput, Status},
};

/// A longer task is none.
const LONGEST_TASK: u64 = 8 << 20;

/// Does what was asked for and prints it as JSON, whatever the settings.
///
/// # Errors
///
/// `Status::BadInput` for a task that is none; when an interface, a frame or a datagram cannot be looked at, sent or received.
pub fn run(arguments: &Inside) -> Result<Status, Failure> {
    match arguments {
        Inside::Interfaces => print(&interfaces()?),
        Inside::Frames => {
            let mut bytes = Vec::new();
            io::stdin().take(LONGEST_TASK).read_to_end(&mut bytes).or_bad_input()?;
            let task: agent::Task = serde_json::from_slice(&bytes).or_bad_input()?;
            print(&agent::carry_out(&task)?)
        }
        Inside::Probe { bind, to, rate, size, dwell_ms, seed } => {
            let load = rate.map_or(Load::Closed, |rate| Load::Open { rate });
            let dwell = Duration::from_millis((*dwell_ms).into());
            let task = Task { bind: *bind, to: *to, load, size: *size, dwell, seed: *seed };
            print(&client::run(&task)?)
        }
        Inside::Reflect { bind, port, seconds } => {
            let duration = Duration::from_secs((*seconds).into());
            server::reflect(*bind, *port, duration)?;
            Ok(Status::Holds)
        }
    }
}

fn print(value: &impl serde::Serialize) -> Result<Status, Failure> {
    serde_json::to_writer(io::stdout().lock(), value)?;
    Ok(Status::Holds)
}

/// The interfaces here, each with the address of its PCI function: the host knows nothing of this kernel's virtio devices.
fn interfaces() -> Result<Vec<InterfaceReport>, Failure> {
    let mut observer = KernelObserver::new();
    let mut reports = Netlink::open()?.routed_interfaces()?;
    for report in &mut reports {
        if let Some(function) = report.device.as_deref().and_then(|device| observer.function_of(device)) {
            report.device = Some(function.to_string());
        }
    }
    Ok(reports)
}
