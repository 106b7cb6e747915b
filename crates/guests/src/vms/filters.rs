//! What a VM asks of its network devices by ordinary means (its own address, promiscuous mode, VLANs), handed to the switch of one of its
//! NICs, which grants what the model allows. QEMU tells it on its monitor, which is libvirt's.
//!
//! A process of its own does that for as long as the switch is there. It keeps nothing: QEMU is asked for all that holds, and
//! what the switch has already does no harm.

use std::{
    collections::BTreeMap,
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use penstock_host::{chain, embedded::control};
use penstock_model::{GuestName, NicName, composition::tenant::alias};
use penstock_plan::action::GuestDefinition;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Vms,
    switch::{control_socket, port},
};
use crate::error::GuestError;

/// The event by which QEMU tells that a guest has asked for something; it comes once until QEMU is asked for what (`qapi/net.json`).
const CHANGED: &str = "NIC_RX_FILTER_CHANGED";
/// How often it is looked at whether the VM is there, and what failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How often QEMU is asked without an event: one may come between the end of one listener and the begin of the next.
const ANYWAY: Duration = Duration::from_secs(30);
/// The shortest pause between two questions, and the longest that it grows to while a guest changes its filters without end.
const PACE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];
/// How long libvirt and QEMU may take for an answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What `query-rx-filter` answers.
#[derive(Deserialize)]
struct Answer {
    #[serde(default, rename = "return")]
    filters: Vec<Value>,
    #[serde(default)]
    error: Option<Value>,
}

/// The ports of the NIC `nic` of a VM by the names of QEMU's devices.
fn devices(definition: &GuestDefinition, nic: &NicName) -> BTreeMap<String, String> {
    let nics = definition.nics.iter().enumerate().filter(|(_, own)| own.name == *nic);
    let functions = nics.flat_map(|(at, own)| own.nic.functions().map(move |(vf, ..)| (at, vf)));
    functions.map(|(at, vf)| (alias(at, vf), port(&definition.guest, nic, vf))).collect()
}

/// The filters of these devices, by port, of what QEMU answers; why there are none, else.
fn read(answer: &[u8], devices: &BTreeMap<String, String>) -> Result<Vec<(String, Value)>, String> {
    let answer: Answer =
        serde_json::from_slice(answer).map_err(|error| format!("this is no answer: {error}"))?;
    if let Some(error) = answer.error {
        return Err(format!("QEMU answers {error}"));
    }
    let of = |filter: Value| {
        let port = devices.get(filter.get("name")?.as_str()?)?.clone();
        Some((port, filter))
    };
    Ok(answer.filters.into_iter().filter_map(of).collect())
}

/// The ports of which QEMU answers, of these devices.
#[cfg(feature = "fuzzing")]
pub fn read_answer(answer: &[u8], devices: &BTreeMap<String, String>) -> Vec<String> {
    read(answer, devices).unwrap_or_default().into_iter().map(|(port, _)| port).collect()
}

impl Vms {
    /// Follows what the guest asks of the devices of one of its NICs, and hands it to their switch. It ends by failing alone.
    ///
    /// # Errors
    ///
    /// When the VM is defined with no such NIC, and once the VM is not defined any more or its definition cannot be read.
    pub fn follow_filters(&self, guest: &GuestName, nic: &NicName) -> Result<(), GuestError> {
        self.own_nic(guest, nic)?;
        let mut told = None;
        loop {
            let definition = self.defined(guest)?;
            let devices = devices(&definition, nic);
            if matches!(self.process(guest), Ok(Some(_))) {
                let why = self.follow(guest, nic, &devices);
                // The same failure each second is worth one line.
                if told.as_ref() != Some(&why) {
                    penstock_host::complain!(
                        "what {guest} asks of {nic} is not followed, and is tried again: {why}"
                    );
                    told = Some(why);
                }
            }
            thread::sleep(AGAIN);
        }
    }

    /// Follows it until that fails; why it did.
    fn follow(&self, guest: &GuestName, nic: &NicName, devices: &BTreeMap<String, String>) -> String {
        let command = match self.virsh.monitor_events(guest, CHANGED) {
            Ok(command) => command,
            Err(error) => return chain(&error),
        };
        let (sender, events) = mpsc::channel();
        let listener = thread::spawn(move || {
            let heard = command.stream(&mut |_| {
                let _ = sender.send(());
            });
            match heard {
                Ok(output) => format!("virsh listens no more: {}", output.errors().trim()),
                Err(error) => chain(&error),
            }
        });
        let socket = control_socket(&self.state, guest, nic);
        let mut pace = PACE[0];
        let mut asked: Option<Instant> = None;
        let mut failed = None;
        loop {
            let wait = if failed.is_some() { AGAIN } else { ANYWAY };
            let heard = match asked {
                None => true,
                Some(asked) => match next(&events, wait.saturating_sub(asked.elapsed())) {
                    Some(heard) => heard,
                    None => return listener.join().unwrap_or_else(|_| "its listener died".to_owned()),
                },
            };
            // While they keep coming, each question costs the host more than the guest.
            pace = if heard { (pace * 2).min(PACE[1]) } else { PACE[0] };
            if asked.is_some() && heard {
                thread::sleep(pace);
                events.try_iter().for_each(drop);
            }
            asked = Some(Instant::now());
            let outcome = self.hand_over(guest, devices, &socket);
            if let Err(why) = &outcome
                && failed.as_ref() != Some(why)
            {
                penstock_host::complain!("what {guest} asks of {nic} did not come to its switch: {why}");
            }
            failed = outcome.err();
        }
    }

    /// Asks QEMU what its devices were asked for, and tells the switch.
    fn hand_over(
        &self,
        guest: &GuestName,
        devices: &BTreeMap<String, String>,
        socket: &std::path::Path,
    ) -> Result<(), String> {
        let question = json!({"execute": "query-rx-filter"});
        let answer = self.virsh.ask_monitor(guest, &question, TIMEOUT).map_err(|error| chain(&error))?;
        for (port, filter) in read(&answer, devices)? {
            control::set_filter(socket, &port, filter).map_err(|error| chain(&error))?;
        }
        Ok(())
    }
}

/// Waits for an event for so long: whether one came; `None` when none can come any more.
fn next(events: &Receiver<()>, wait: Duration) -> Option<bool> {
    match events.recv_timeout(wait) {
        Ok(()) => Some(true),
        Err(RecvTimeoutError::Timeout) => Some(false),
        Err(RecvTimeoutError::Disconnected) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_those_of_the_devices_of_one_nic() {
        let devices: BTreeMap<String, String> = [("ua-nic0", "a/net0"), ("ua-nic0-vf1", "a/net0#1")]
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .into();
        let answer = br#"{"return":[{"name":"ua-nic1","promiscuous":true},{"name":"ua-nic0-vf1","promiscuous":true},{}],"id":"libvirt-9"}"#;
        let read_ = read(answer, &devices).unwrap();
        assert_eq!(read_, [("a/net0#1".to_owned(), json!({"name": "ua-nic0-vf1", "promiscuous": true}))]);
        let error =
            read(br#"{"id":"1","error":{"class":"GenericError","desc":"no"}}"#, &devices).unwrap_err();
        assert!(error.contains("GenericError"), "{error}");
        assert!(read(b"", &devices).is_err());
    }
}
