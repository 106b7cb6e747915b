//! `penstock check MODEL...`: the files by themselves, and against a machine.

use std::path::Path;

use penstock_model::{DataPath, Emulation, Located, text::counted};
use penstock_render::GenerateError;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    arguments::{Check, Format, Subject},
    commands::plan,
    documents::Trouble,
    failure::{Failure, Status},
    model_file::{self, For},
    runtime::machine::Machine,
    settings::Settings,
    ui::printer::Printer,
};

mod github;
mod gitlab;
mod sarif;

/// What was found, file by file.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Checks {
    /// In the order in which they were named.
    pub files: Vec<Checked>,
    /// Of a single good model the same once more, as it was told before documents had versions.
    #[serde(flatten)]
    pub only: Option<Summary>,
}

/// What was found in one file.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Checked {
    /// Its name as it was given; `<stdin>` for `-`.
    pub file: String,
    /// The exit status that it alone would have.
    pub exit: u8,
    /// The name of that.
    pub status: &'static str,
    /// Errors and warnings in it.
    pub diagnostics: Vec<Located>,
    /// What went wrong besides, such as a file that cannot be read.
    pub errors: Vec<Trouble>,
    /// What is in it, of a good one.
    pub model: Option<Summary>,
    #[serde(skip)]
    ended: Status,
}

/// What is in a good model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Summary {
    /// The machine's name.
    pub machine: String,
    /// How many NICs.
    pub nics: usize,
    /// How many NVMe drives.
    #[serde(skip_serializing_if = "no_drives")]
    pub drives: usize,
    /// How many VFs, of NICs and of drives.
    pub vfs: u32,
    /// How many guests.
    pub guests: usize,
    /// How many steps the machine is away from it; `null` where it was not looked at.
    pub steps: Option<usize>,
}

fn no_drives(drives: &usize) -> bool {
    *drives == 0
}

/// Says whether the models can be used; everything that is wrong with them is told with its place.
///
/// # Errors
///
/// When standard output takes nothing. What is wrong with a model is in the document and the status.
pub fn run(arguments: &Check, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    let mut files = vec![one(&arguments.subject, arguments, settings, printer)];
    for model in &arguments.more {
        let subject = Subject { model: model.clone(), payload: None, ..arguments.subject.clone() };
        files.push(one(&subject, arguments, settings, printer));
    }
    let status = files.iter().map(|file| file.ended).max_by_key(|status| status.badness());
    let only = match &files[..] {
        [file] => file.model.clone(),
        _ => None,
    };
    let checks = Checks { files, only };
    match arguments.format {
        Format::Human | Format::Json => printer.answer(true, &checks, || in_words(&checks))?,
        Format::Sarif => printer.json(&sarif::log(&checks))?,
        Format::Github => printer.text(github::annotations(&checks))?,
        Format::Gitlab => printer.json(&gitlab::report(&checks))?,
    }
    Ok(status.unwrap_or(Status::Holds))
}

/// One file, whatever comes of it: one that is wrong keeps no other from being looked at.
fn one(subject: &Subject, arguments: &Check, settings: &Settings, printer: &mut Printer) -> Checked {
    let outcome = look(subject, arguments, settings, printer);
    let (ended, model) = match outcome {
        Ok(summary) => (Status::Holds, Some(summary)),
        Err(failure) => {
            printer.failure(&failure);
            (failure.status, None)
        }
    };
    let file = match &subject.payload {
        Some(payload) => payload.name.clone(),
        None if subject.model == Path::new("-") => model_file::STANDARD_INPUT.to_owned(),
        None => subject.model.display().to_string(),
    };
    Checked {
        file,
        exit: ended.code(),
        status: ended.name(),
        diagnostics: printer.take_diagnostics(),
        errors: printer.take_errors(),
        model,
        ended,
    }
}

fn look(
    subject: &Subject,
    arguments: &Check,
    settings: &Settings,
    printer: &mut Printer,
) -> Result<Summary, Failure> {
    let file = model_file::read_subject(
        subject,
        For::of(arguments.inventory.as_deref(), arguments.here, settings),
        printer,
    )?;
    let inventory = match (&arguments.inventory, arguments.here) {
        (Some(path), _) => Some(model_file::read_inventory(path)?),
        (None, true) => Some(Machine::here(settings).inventory_for(&file.model)?),
        (None, false) => None,
    };
    // A wrong template is seen without a machine too, unless a MAC address that is not known stands before it.
    match penstock_render::render(&file.model, None) {
        Ok(_) | Err(GenerateError::Unknown(_)) => {}
        Err(error) => return Err(model_file::explain_generate(&error, &file.source, printer)),
    }
    let nics = || file.model.guests.values().flat_map(|guest| guest.nics.values());
    let mut owned: Vec<Emulation> =
        nics().filter(|nic| !nic.is_of_container()).map(|nic| nic.emulation).collect();
    owned.dedup();
    if arguments.here && !owned.is_empty() {
        printer.doing("Trying whether QEMU composes SR-IOV NICs");
        Machine::here(settings).guests().vms().composes(&owned)?;
    }
    let first = |path: DataPath| {
        file.model.guests.iter().find_map(|(name, guest)| {
            let (nic, _) = guest.nics.iter().find(|(_, nic)| nic.path == path)?;
            Some((name, nic))
        })
    };
    if arguments.here
        && let Some((guest, nic)) = first(DataPath::VhostVdpa)
    {
        printer.doing("Trying whether the kernel makes network devices for VMs");
        Machine::here(settings).guests().vms().makes_devices(guest, nic)?;
    }
    if arguments.here
        && let Some((guest, nic)) = first(DataPath::VirtioVdpa)
    {
        printer.doing("Trying whether the kernel makes network devices for containers");
        Machine::here(settings).guests().containers().makes_nic(guest, nic)?;
    }
    if arguments.here
        && let Some((guest, nic)) = first(DataPath::SwitchTap)
    {
        Machine::here(settings).guests().vms().makes_tap_of_switch(guest, nic)?;
    }
    let planned = inventory.as_ref().map(|inventory| plan::make(&file, inventory, printer)).transpose()?;
    let of_nics = file.model.nics.values().map(|nic| u32::from(nic.vfs));
    let of_drives = file.model.drives.values().map(|drive| u32::from(drive.vfs));
    Ok(Summary {
        machine: file.model.machine.to_string(),
        nics: file.model.nics.len(),
        drives: file.model.drives.len(),
        vfs: of_nics.chain(of_drives).sum(),
        guests: file.model.guests.len(),
        steps: planned.as_ref().map(|plan| plan.steps.len()),
    })
}

fn in_words(checks: &Checks) -> String {
    let line = |checked: &Checked| {
        let Summary { nics, drives, vfs, guests, steps, .. } = checked.model.as_ref()?;
        let vfs = usize::try_from(*vfs).unwrap_or(usize::MAX);
        let (nics, vfs) = (counted(*nics, "NIC"), counted(vfs, "VF"));
        let drives = if *drives > 0 { format!(", {}", counted(*drives, "drive")) } else { String::new() };
        let guests = counted(*guests, "guest");
        let mut text = format!("{}: a good model of {nics}{drives}, {vfs}, {guests}", checked.file);
        if let Some(steps) = steps {
            text.push_str(&format!("; it fits the machine, {} away", counted(*steps, "step")));
        }
        Some(text + "\n")
    };
    checks.files.iter().filter_map(line).collect()
}
