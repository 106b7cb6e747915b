//! The evidence of a run at its beginning: what is known before anything was done.

use std::{env, time::SystemTime};

use penstock_host::{files, process};
use penstock_model::{Guest, GuestName, Inventory, Model, NEEDS_PRIVILEGES, digest::sha256};
use penstock_report::{Evidence, machine::Machine};

use crate::{failure::Failure, model_file::ModelFile, version};

/// The evidence of a run of `file` that begins at `now`.
pub fn begun(file: &ModelFile, id: String, now: SystemTime, emulated: bool) -> Evidence {
    let mut evidence = Evidence::default();
    evidence.run.id = id;
    evidence.run.started = humantime::format_rfc3339_seconds(now).to_string();
    evidence.run.command = env::args().collect();
    evidence.versions.penstock = env!("CARGO_PKG_VERSION").to_owned();
    evidence.versions.commit = version::commit().map(str::to_owned);
    evidence.model.name = file.source.name.clone();
    evidence.model.text = file.source.text.clone();
    evidence.hashes.model = Some(sha256(&file.source.text));
    evidence.notes = privileged(&file.model);
    evidence.machine = Machine::of(&file.model, &Inventory::default(), &Default::default(), emulated);
    evidence
}

/// What each privileged container opens, a line each.
fn privileged(model: &Model) -> Vec<String> {
    let opens = |(name, guest): (&GuestName, &Guest)| {
        let opens = guest.opens()?;
        Some(format!(
            "{name} is privileged. Root in it is root of the host: {opens}. What that is needed for: {NEEDS_PRIVILEGES}."
        ))
    };
    model.guests.iter().filter_map(opens).collect()
}

/// The hash of this binary.
///
/// # Errors
///
/// When the program's own file cannot be read.
pub fn binary() -> Result<String, Failure> {
    Ok(sha256(&files::read(process::OWN_PROGRAM)?))
}

/// Takes in what is known of the machine.
///
/// # Errors
///
/// When the inventory has no form in JSON.
pub fn scanned(evidence: &mut Evidence, inventory: &Inventory) -> Result<(), Failure> {
    let bytes = serde_json::to_vec(inventory)?;
    evidence.hashes.inventory = Some(sha256(&bytes));
    evidence.versions.kernel = Some(inventory.kernel.release.clone());
    evidence.notes.extend(inventory.unknown.iter().cloned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_privileged_container_has_a_line_that_says_what_it_opens() {
        let text = "nics: {A: }\nguests:\n  plain: {}\n  tool: {privileged: on}\n  whole: {root: /srv/whole, privileged: on}\n";
        let model = penstock_model::parse(&penstock_model::Source::new("m.yaml", text)).unwrap().model;
        let lines = privileged(&model);
        let [tool, whole] = lines.as_slice() else { panic!("{lines:?}") };
        assert!(
            tool.starts_with("tool is privileged. Root in it is root of the host: it reads what"),
            "{tool}"
        );
        assert!(whole.contains("CAP_SYS_ADMIN over the host") && whole.contains("NVMe"), "{whole}");
    }
}
