//! What a guest that is there was defined with, and the model says otherwise by now: it is told, and comes with the guest's next start.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{action::GuestDefinition, definition::define, guest::Starting, planner::Planner};

/// What of a definition is not compared. Parts of it are compared by themselves.
const WHOLE: [&str; 6] = ["guest", "functions", "drives", "nics", "vm", "scheduling"];
/// Of a VM: how long it is waited for is no part of it.
const VM: [&str; 1] = ["ready_within"];
/// Of a function: what the machine decides.
const FUNCTION: [&str; 3] = ["function", "mac_is_kept", "home_driver"];
/// Of a NIC of its own: what is set while the guest is there, or told where that is done (`tenant`, `uplink`).
const NIC: [&str; 4] = ["vfs", "settings", "path", "uplink_settings"];

/// Says what of the model the guest `starting`, which is there, will have after its next start only.
pub fn note<'a>(planner: &mut Planner<'a>, starting: &Starting<'_, 'a>) {
    let name = starting.name;
    let found = planner.inventory.guests.get(name).and_then(|found| found.definition.as_ref());
    let Some(found) = found.filter(|_| starting.functions.len() == starting.guest.functions.len()) else {
        return;
    };
    let Ok(found) = GuestDefinition::deserialize(found) else {
        planner.note(format!(
            "guest {name} was defined by another version: what the model has changed of it since is not told"
        ));
        return;
    };
    let drives = starting.drives.iter().map(|(_, vf)| vf.found.bdf).collect();
    let wanted = define(planner, name, starting.guest, &starting.functions, drives);
    let mut what = differing(&found, &wanted, &WHOLE);
    what.extend(differing(&found.vm, &wanted.vm, &VM));
    for (wanted, function) in wanted.functions.iter().zip(&starting.guest.functions) {
        let found = found.functions.iter().find(|found| found.function == wanted.function);
        let mut keys = differing(&found, &Some(wanted), &FUNCTION);
        // What a VF has without being asked for it can be seen before it is the guest's only.
        keys.retain(|key| key != "mac" || function.settings.mac.is_some());
        what.extend(keys.iter().map(|key| format!("{key} of {}", function.name)));
    }
    for wanted in &wanted.nics {
        let found = found.nics.iter().find(|found| found.name == wanted.name);
        let keys = differing(&found.map(|found| &found.nic), &Some(&wanted.nic), &NIC);
        what.extend(keys.iter().map(|key| format!("{key} of {name}/{}", wanted.name)));
    }
    if !what.is_empty() {
        planner.note(format!(
            "guest {name} runs with another {} than the model gives it by now: that comes with its next stop and start",
            what.join(", ")
        ));
    }
}

/// The keys whose values are not the same in both, but for those `left_out`.
fn differing<T: Serialize>(found: &T, wanted: &T, left_out: &[&str]) -> Vec<String> {
    let values = |of: &T| match serde_json::to_value(of) {
        Ok(Value::Object(values)) => values,
        _ => serde_json::Map::new(),
    };
    let (found, wanted) = (values(found), values(wanted));
    let keys: BTreeSet<&String> = found.keys().chain(wanted.keys()).collect();
    let differ = keys.into_iter().filter(|key| found.get(*key) != wanted.get(*key));
    differ.filter(|key| !left_out.contains(&key.as_str())).cloned().collect()
}
