//! What devlink tells of a PF, as a person reads it.

use std::collections::BTreeMap;

use penstock_model::{
    inventory::{Devlink, HealthReporter},
    text::{counted, one_line as plain},
};

use crate::ui::paragraphs::Paragraphs;

/// The embedded switch, the versions and the health reporters, a line each.
pub(super) fn details(devlink: &Devlink, out: &mut Paragraphs) {
    if let Some(eswitch) = devlink.eswitch {
        let mut text = format!("eswitch mode {}", eswitch.mode);
        text += &eswitch.inline_mode.map(|mode| format!(", inline mode {mode}")).unwrap_or_default();
        text += &eswitch.encap_mode.map(|mode| format!(", encap mode {mode}")).unwrap_or_default();
        out.wrapped("    ", &text);
    }
    let versions = &devlink.versions;
    // What is in the flash and runs is told once.
    let does_not_run = |(name, version): &(&String, &String)| versions.running.get(*name) != Some(*version);
    let other: BTreeMap<_, _> = versions.stored.iter().filter(does_not_run).collect();
    for (what, all) in [
        ("fixed", versions.fixed.iter().collect()),
        ("running", versions.running.iter().collect()),
        ("stored", other),
    ] {
        if !all.is_empty() {
            let all: Vec<String> = all.iter().map(|(name, version)| format!("{name} {version}")).collect();
            out.wrapped("    ", &plain(&format!("versions, {what}: {}", all.join(", "))));
        }
    }
    if !devlink.health.is_empty() {
        let (well, ill): (Vec<_>, Vec<_>) =
            devlink.health.iter().partition(|reporter| reporter.healthy && reporter.errors == 0);
        let mut parts: Vec<String> = ill.into_iter().map(state).collect();
        if !well.is_empty() {
            let names: Vec<String> = well.into_iter().map(name).collect();
            parts.push(format!("{} healthy", names.join(", ")));
        }
        out.wrapped("    ", &plain(&format!("health: {}", parts.join("; "))));
    }
}

fn name(reporter: &HealthReporter) -> String {
    let port = reporter.port.map(|port| format!(" of port {port}")).unwrap_or_default();
    format!("{}{port}", reporter.name)
}

/// Of a reporter that has seen errors.
fn state(reporter: &HealthReporter) -> String {
    let now = if reporter.healthy { "healthy again" } else { "in error" };
    let errors = counted(usize::try_from(reporter.errors).unwrap_or(usize::MAX), "error");
    format!("{} {now}, {errors}, recovered from {}", name(reporter), reporter.recoveries)
}
