//! `penstock inside`: what this program does inside a VM for the Penstock on the host. Nobody types it.

use std::io::{self, Read};

use penstock_apply::{Eyes, KernelEyes};
use penstock_host::{
    Here, InterfaceReport, Place,
    frames::station::{self, Task},
};

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
            let task: Task = serde_json::from_slice(&bytes).or_fail(Status::BadInput)?;
            print(&station::carry_out(&task).or_fail(Status::Missing)?)
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
