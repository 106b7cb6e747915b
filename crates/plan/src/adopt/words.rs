//! What an adopted model says in comments.

use std::fmt::Write;

use penstock_model::{
    Bdf, GuestName,
    inventory::{NvmeController, Pf},
    text::counted,
    yaml::FlowMapping,
};

use super::{Adopted, Draft, Form, ImportInput, text};
use crate::{PlanError, drivers};

/// No comment is longer; a message of a person's is not either.
const LONGEST: usize = 400;
/// So many steps of what the whole NIC would change are named.
const NAMED: usize = 3;

/// A comment of one line. What it holds may come from a device or a guest.
fn comment(out: &mut String, indent: &str, text: &str) {
    let shown = |c: char| {
        if c.is_control() || matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}') { '?' } else { c }
    };
    let mut line: String = text.chars().take(LONGEST).map(shown).collect();
    if text.chars().nth(LONGEST).is_some() {
        line.push_str("...");
    }
    let _ = writeln!(out, "{indent}# {line}");
}

/// What stands above the model.
pub fn head(sight: &ImportInput<'_>, said: &[String]) -> String {
    let mut out = format!("{}\n", penstock_model::MODELINE);
    let host = sight.host.map(|host| format!(" {host}")).unwrap_or_default();
    let kernel = &sight.inventory.kernel.release;
    comment(
        &mut out,
        "",
        &format!(
            "The machine{host} (Linux {kernel}) as penstock found it. A plan of this file changes nothing there."
        ),
    );
    if !said.is_empty() {
        comment(&mut out, "", &format!("But for what others are told: {}", said.join("; ")));
    }
    out
}

/// What stands above a NIC.
pub fn above(adopted: &Adopted<'_>, sight: &ImportInput<'_>, out: &mut String) {
    let pf = adopted.pf;
    comment(out, "  ", &device(pf));
    if adopted.form == Form::WithoutAddresses {
        comment(out, "  ", &format!("Its addresses are left out: {}", adopted.instead.join("; ")));
    }
    if adopted.form == Form::External {
        let named = adopted.instead.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
        let more = adopted.instead.len().saturating_sub(NAMED);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        comment(
            out,
            "  ",
            &format!(
                "Left to whoever made it so. Without externally_managed a plan would change it: {named}{more}"
            ),
        );
        if let Some(found) = &pf.interface {
            let addresses: Vec<String> = found.addresses.iter().map(ToString::to_string).collect();
            let addresses =
                if addresses.is_empty() { String::new() } else { format!(", {}", addresses.join(", ")) };
            let up = if found.up { "up" } else { "down" };
            comment(out, "  ", &format!("interface {}, MTU {}, {up}{addresses}", found.name, found.mtu));
        }
    }
    let Some(sriov) = &pf.sriov else { return };
    for vf in &sriov.vfs {
        let Some(present) = &vf.present else { continue };
        let mut what: Vec<String> = Vec::new();
        let unsaid = adopted.form == Form::External
            || !sight.inventory.guests.values().any(|found| found.functions.contains(&vf.bdf));
        if unsaid {
            what.extend(present.driver.iter().map(|driver| format!("driver {driver}")));
            what.extend(
                present.interface.iter().map(|found| format!("interface {} {}", found.name, found.mac)),
            );
            let given = vf.given_mac().filter(|_| adopted.form == Form::External);
            what.extend(given.map(|mac| format!("mac {mac}")));
            if let Some(state) = &present.attributes {
                let own = text::not_default(pf, state);
                let own = FlowMapping::from(&own).into_entries();
                what.extend(own.into_iter().map(|word| word.replace(": ", " ")));
            }
        }
        let away = drivers::has_interface_elsewhere(pf, present);
        match sight.strangers.get(&vf.bdf) {
            Some(who) => what.push(format!("in use by {}", who.join(", "))),
            None if away
                && !sight.inventory.guests.values().any(|found| found.functions.contains(&vf.bdf)) =>
            {
                what.push("its interface is in another network namespace, it seems".to_owned());
            }
            None => {}
        }
        if let Some(chosen) = sight.inventory.chosen_drivers.get(&vf.bdf) {
            what.push(format!("driverctl has {chosen} for it"));
        }
        if !what.is_empty() {
            comment(out, "  ", &format!("{}#{} {}: {}", adopted.name, vf.index, vf.bdf, what.join(", ")));
        }
    }
}

fn device(pf: &Pf) -> String {
    let names = [&pf.identity.vendor_name, &pf.identity.device_name];
    let named: Vec<&str> = names.into_iter().flatten().map(String::as_str).collect();
    let driver = pf.driver.as_deref().unwrap_or("none");
    let most = pf.sriov.as_ref().map_or_else(
        || "no SR-IOV".to_owned(),
        |sriov| format!("at most {}", counted(usize::from(sriov.total_vfs), "VF")),
    );
    format!(
        "{}: {}, driver {driver}, {most}",
        pf.bdf,
        if named.is_empty() { "NIC".to_owned() } else { named.join(" ") }
    )
}

/// What stands below the model: all that it does not say.
pub fn tail(draft: &Draft<'_>, left_out: &[(Bdf, String)], apart: &[(&GuestName, String)], out: &mut String) {
    let inventory = draft.sight.inventory;
    for (bdf, why) in left_out {
        let what = if inventory.drive(*bdf).is_some() { "drive" } else { "NIC" };
        comment(out, "", &format!("The {what} {bdf} is left out: {why}"));
    }
    for (name, why) in apart {
        let functions =
            inventory.guests[*name].functions.iter().map(|function| match draft.name_of(*function) {
                Some((_, named)) => named.to_string(),
                None => draft
                    .drive_vf(*function)
                    .map_or_else(|| function.to_string(), |(_, named)| named.to_string()),
            });
        let functions: Vec<String> = functions.collect();
        let has =
            if functions.is_empty() { String::new() } else { format!(" (with {})", functions.join(", ")) };
        comment(out, "", &format!("The guest {name}{has} is left out: {why}"));
    }
    let named = |pf: &&Pf| !draft.nics.iter().any(|adopted| adopted.pf.bdf == pf.bdf);
    let without =
        inventory.pfs.iter().filter(named).filter(|pf| !left_out.iter().any(|(bdf, _)| *bdf == pf.bdf));
    for pf in without {
        let interface = pf.interface.as_ref().map_or("no interface", |found| found.name.as_str());
        comment(
            out,
            "",
            &format!("Not a NIC of a model, for it has no SR-IOV: {} ({interface})", device(pf)),
        );
    }
    let without_vfs = |found: &&NvmeController| found.sriov.as_ref().is_some_and(|sriov| sriov.num_vfs == 0);
    for controller in inventory.nvme.iter().filter(without_vfs) {
        comment(
            out,
            "",
            &format!(
                "An NVMe drive with SR-IOV and without VFs, which this model does not name: {}",
                controller.bdf
            ),
        );
    }
    for unknown in &inventory.unknown {
        comment(out, "", &format!("Not known: {unknown}"));
    }
}

/// Why there is no plan, in one line.
pub fn no_plan(error: &PlanError) -> String {
    match error {
        PlanError::Model(found) | PlanError::Files(found) | PlanError::UnsupportedAttributes(found) => {
            found.0.iter().map(|message| message.message.as_str()).collect::<Vec<_>>().join("; ")
        }
        other => other.to_string(),
    }
}
