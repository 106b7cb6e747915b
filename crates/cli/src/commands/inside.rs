//! `penstock inside`: what this program does inside a guest for the Penstock on the host. Nobody types it.

use std::{
    io::{self, Read},
    time::Duration,
};

use penstock_apply::{Eyes, KernelEyes};
use penstock_host::{Here, InterfaceReport, Place, frames::station};
use penstock_measure::probe::{
    client::{self, ProbeError, Task},
    server,
};
use penstock_model::measurement::Load;

use crate::{
    arguments::Inside,
    failure::{Failure, OrFail, Status},
};

/// A longer task is none.
const LONGEST_TASK: u64 = 8 << 20;

/// Does what was asked for and prints it as JSON, whatever the settings.
pub fn run(arguments: &Inside) -> Result<Status, Failure> {
    match arguments {
        Inside::Interfaces => print(&interfaces()?),
        Inside::Frames => {
            let mut bytes = Vec::new();
            io::stdin().take(LONGEST_TASK).read_to_end(&mut bytes).or_fail(Status::BadInput)?;
            let task: station::Task = serde_json::from_slice(&bytes).or_fail(Status::BadInput)?;
            print(&station::carry_out(&task).or_fail(Status::Missing)?)
        }
        Inside::Probe { bind, to, rate, size, dwell_ms, seed } => {
            let load = rate.map_or(Load::Closed, |rate| Load::Open { rate });
            let dwell = Duration::from_millis((*dwell_ms).into());
            let task = Task { bind: *bind, to: *to, load, size: *size, dwell, seed: *seed };
            print(&client::run(&task).map_err(|error| {
                let status = match error {
                    ProbeError::Socket { .. } => Status::Missing,
                    ProbeError::Size { .. } | ProbeError::Rate { .. } => Status::BadInput,
                };
                Failure::new(status, error)
            })?)
        }
        Inside::Reflect { bind, port, seconds } => {
            let duration = Duration::from_secs((*seconds).into());
            server::reflect(*bind, *port, duration).or_fail(Status::Missing)?;
            Ok(Status::Holds)
        }
    }
}

fn print(value: &impl serde::Serialize) -> Result<Status, Failure> {
    serde_json::to_writer(io::stdout().lock(), value).or_fail(Status::Missing)?;
    Ok(Status::Holds)
}

/// The interfaces here, each with the address of its PCI function: the host knows nothing of this kernel's virtio devices.
fn interfaces() -> Result<Vec<InterfaceReport>, Failure> {
    let mut eyes = KernelEyes::new();
    let mut reports = Here::default().interfaces().or_fail(Status::Missing)?;
    for report in &mut reports {
        if let Some(function) = report.device.as_deref().and_then(|device| eyes.function_of(device)) {
            report.device = Some(function.to_string());
        }
    }
    Ok(reports)
}
