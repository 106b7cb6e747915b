//! `penstock status`: the guests of this machine.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use penstock_guests::Status as GuestStatus;
use penstock_model::GuestName;

use crate::{
    failure::{Failure, OrFail, Status},
    machine::Machine,
    printer::Printer,
    settings::Settings,
};

/// Prints one line a guest: whether it runs, for how long, and which functions it has.
pub fn run(settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    let guests = Machine::here(settings).containers().status().or_fail(Status::Missing)?;
    printer.data(&guests, || table(&guests, SystemTime::now()))?;
    Ok(Status::Holds)
}

fn table(guests: &BTreeMap<GuestName, GuestStatus>, now: SystemTime) -> String {
    if guests.is_empty() {
        return "No guests are defined on this machine.".to_owned();
    }
    let line = |(name, status): (&GuestName, &GuestStatus)| {
        let state = match (status.pid, status.since) {
            (Some(pid), Some(since)) => format!("running for {} (pid {pid})", age(since, now)),
            (Some(pid), None) => format!("running (pid {pid})"),
            (None, _) => "stopped".to_owned(),
        };
        let functions: Vec<String> =
            status.functions.iter().map(|owned| format!("{}={}", owned.interface, owned.function)).collect();
        format!("{name:<16} {state:<32} {}\n", functions.join(" "))
    };
    guests.iter().map(line).collect()
}

/// How long ago `since`, in seconds after the epoch, was.
fn age(since: u64, now: SystemTime) -> String {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    humantime::format_duration(Duration::from_secs(now.saturating_sub(since))).to_string()
}
