//! What a run was and was made with, as names and values.

use crate::{Evidence, printable::one_line, seconds};

/// What a run was and was made with, as names and values; what is not known is left out.
pub(crate) fn rows(evidence: &Evidence) -> Vec<(&'static str, String)> {
    let (run, versions, hashes) = (&evidence.run, &evidence.versions, &evidence.hashes);
    let accelerator = versions.accelerator.as_ref().map(|chosen| match chosen.why.as_str() {
        "" => chosen.name.clone(),
        why => format!("{}: {why}", chosen.name),
    });
    let penstock = match &versions.commit {
        Some(commit) => format!("{} ({commit})", versions.penstock),
        None => versions.penstock.clone(),
    };
    [
        ("run", Some(run.id.clone())),
        ("started", Some(run.started.clone())),
        ("took", Some(seconds::text(run.took))),
        ("command", Some(run.command.join(" "))),
        ("exit status", run.exit.map(|status| status.to_string())),
        ("Penstock", Some(penstock)),
        ("kernel", versions.kernel.clone()),
        ("QEMU", versions.qemu.clone()),
        ("accelerator", accelerator),
        ("model", Some(evidence.model.name.clone())),
        ("SHA-256 of the model", hashes.model.clone()),
        ("SHA-256 of the image", hashes.image.clone()),
        ("SHA-256 of the binary", hashes.binary.clone()),
        ("SHA-256 of the inventory", hashes.inventory.clone()),
    ]
    .into_iter()
    .filter_map(|(what, value)| Some((what, one_line(&value?))))
    .filter(|(_, value)| !value.is_empty())
    .collect()
}
