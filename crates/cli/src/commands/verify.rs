//! `penstock verify MODEL`: re-reads kernel and guests, one verdict per attribute.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use indexmap::IndexMap;
use penstock_host::process;
use penstock_model::{
    Bdf, GuestName, Inventory, NicName, Outcome, Verdict, Verdicts,
    verdict::{Subject, Vantage},
};
use penstock_render::FoundMachine;
use penstock_verify::{Effort, GuestPlace, KernelObserver, drives, tenant_nics, verify};
use serde::{Deserialize, Serialize};

use crate::{
    arguments::Verify,
    failure::{Failure, Status},
    model_file::{self, For, ModelFile},
    runtime::{machine::Machine, persisted, watch},
    settings::Settings,
    ui::printer::Printer,
};

/// What `--json` prints.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Verified {
    /// Whether every verdict holds.
    pub holds: bool,
    /// All of them.
    pub verdicts: Verdicts,
}

/// Looks at everything that the model asks for, and says what was seen.
///
/// # Errors
///
/// For a model that is wrong, when the machine or its guests cannot be looked at, and when standard output takes nothing. A NIC that is not
/// there has a verdict. With `--watch` as [`watch::run`].
pub fn run(arguments: &Verify, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    if arguments.watch {
        return watch::run(arguments, settings, printer);
    }
    let file = model_file::read_subject(&arguments.subject, For::Here(settings), printer)?;
    let machine = Machine::here(settings);
    let effort = Effort { timeout: arguments.timeout, load: arguments.load };
    printer.doing("Looking at this machine");
    let before = machine.before_a_look();
    let inventory = machine.inventory_with_tuning(&file.model)?;
    let (nics, lost) = penstock_plan::resolve_what_is_there(&file.model, &inventory);
    if !lost.0.is_empty() {
        // One that is not there does not keep the others from being looked at.
        drop(model_file::explain(&lost, &file.source, printer));
    }
    let Seen { verdicts, .. } = compare(&file, &machine, inventory, nics, effort, printer)?;
    printer.done();
    if machine.was_changed(&before) {
        printer.warn("this machine was changed while it was looked at: what follows may be how it was half-way; verify it again");
    }
    let holds = !verdicts.is_empty() && verdicts.iter().all(Verdict::holds);
    let verified = Verified { holds, verdicts };
    printer.answer(holds, &verified, || {
        let unseen = unseen_inside(&verified.verdicts, process::is_root());
        table(&verified.verdicts, arguments.verbose)
            + &unseen.map(|unseen| format!("\n{unseen}")).unwrap_or_default()
    })?;
    Ok(if holds { Status::Holds } else { Status::DoesNotHold })
}

/// What was seen, and what it was seen with.
pub struct Seen {
    /// The machine's inventory.
    pub inventory: Inventory,
    /// The PF of each NIC.
    pub nics: IndexMap<NicName, Bdf>,
    /// Where each guest of the model can be looked into.
    pub places: BTreeMap<GuestName, GuestPlace>,
    /// What is to be said of all of it.
    pub verdicts: Verdicts,
}

/// Looks at everything that the model asks for, on a machine that has all of its NICs.
///
/// # Errors
///
/// As [`run`], and for a NIC that is not there.
pub fn look(
    file: &ModelFile,
    machine: &Machine,
    timeout: Duration,
    printer: &mut Printer,
) -> Result<Seen, Failure> {
    printer.doing("Looking at this machine");
    let inventory = machine.inventory_with_tuning(&file.model)?;
    let nics = penstock_plan::resolve(&file.model, &inventory)
        .map_err(|found| model_file::does_not_fit(&found, &file.source, printer))?;
    compare(file, machine, inventory, nics, Effort { timeout, load: false }, printer)
}

/// Looks at everything that the model asks for, its NICs being `nics`.
fn compare(
    file: &ModelFile,
    machine: &Machine,
    inventory: Inventory,
    nics: IndexMap<NicName, Bdf>,
    effort: Effort,
    printer: &mut Printer,
) -> Result<Seen, Failure> {
    printer.doing("Looking inside the guests");
    let switches = machine.tenant_switches(&file.model);
    let run = machine.as_run(&file.model, &inventory, &nics, file.model.guests.keys(), &BTreeMap::new());
    run.notes.iter().for_each(|note| printer.say(format!("note: {note}")));
    let observer = &mut KernelObserver::new();
    let mut verdicts = verify(&run.model, &inventory, &nics, &run.places, &switches, observer, effort);
    run.without_unsettled(&mut verdicts);
    verdicts.extend(beside(file, machine, &inventory, &nics, &run.left_to_incus(), printer)?);
    Ok(Seen { inventory, nics, places: run.places, verdicts: verdicts.into_iter().collect() })
}

/// Looks at what is neither a NIC nor a guest's function: limits, placement, real time, generated files. Of the guests that are `left` to
/// whoever else runs them nothing is judged but the files.
///
/// # Errors
///
/// When a template cannot be rendered, or what is done at boot cannot be read.
pub fn beside(
    file: &ModelFile,
    machine: &Machine,
    inventory: &Inventory,
    nics: &IndexMap<NicName, Bdf>,
    left: &BTreeSet<GuestName>,
    printer: &mut Printer,
) -> Result<Vec<Verdict>, Failure> {
    let mut verdicts = machine.limits(&file.model);
    verdicts.extend(machine.placement(&file.model, inventory));
    verdicts.extend(tenant_nics(
        &file.model,
        &machine.tenant_switches(&file.model),
        &machine.tenant_taps(&file.model),
    ));
    if !file.model.drives.is_empty() {
        // One that is not found has a verdict that says so.
        let (found, _) = penstock_plan::resolve_drives(&file.model, inventory);
        verdicts.extend(drives(&file.model, inventory, &found, &machine.places(&file.model)));
    }
    verdicts.extend(machine.realtime(&file.model, inventory));
    verdicts.retain(|verdict| !guest_of(verdict).is_some_and(|guest| left.contains(guest)));
    let generated = penstock_render::verdicts(&file.model, FoundMachine { inventory, nics }, |path| {
        machine.generated(path)
    });
    verdicts.extend(generated.map_err(|error| model_file::explain_generate(&error, &file.source, printer))?);
    verdicts.extend(persisted::verdicts(machine, file)?);
    Ok(verdicts)
}

/// The guest that a verdict is about, or that was looked into for it.
fn guest_of(verdict: &Verdict) -> Option<&GuestName> {
    match (&verdict.subject, &verdict.vantage) {
        (Subject::Guest(guest), _) | (_, Vantage::Guest(guest)) => Some(guest),
        (Subject::Tenant(function), _) => Some(&function.guest),
        _ => None,
    }
}

/// "18 unknown: looking inside guests needs root": what keeps an ordinary user from more; `None` where that is not the reason.
fn unseen_inside(verdicts: &[Verdict], is_root: bool) -> Option<String> {
    let is_inside = |verdict: &&Verdict| {
        verdict.outcome == Outcome::Unknown && !verdict.out_of_sight && guest_of(verdict).is_some()
    };
    let unseen = verdicts.iter().filter(is_inside).count();
    (!is_root && unseen > 0).then(|| format!("{unseen} unknown: looking inside guests needs root"))
}

/// Every verdict that does not hold in full, then the count of each outcome.
pub fn table(verdicts: &[Verdict], verbose: bool) -> String {
    let mut text = String::new();
    for verdict in verdicts.iter().filter(|verdict| verbose || verdict.outcome != Outcome::Pass) {
        text.push_str(&format!(
            "{:<12} {} {} ({}): wanted {}, seen {}{}\n",
            verdict.outcome,
            verdict.subject,
            verdict.attribute,
            verdict.vantage,
            verdict.wanted,
            verdict.seen,
            match verdict.outcome {
                Outcome::Unsupported if verdict.best_effort => " (best effort)",
                Outcome::Unsupported if verdict.emulated => " (emulated)",
                Outcome::Unknown if verdict.out_of_sight => " (out of sight)",
                _ => "",
            },
        ));
    }
    let count = |outcome| verdicts.iter().filter(|verdict| verdict.outcome == outcome).count();
    let all = [Outcome::Pass, Outcome::Fail, Outcome::Unsupported, Outcome::Unknown];
    let counts: Vec<String> = all.map(|outcome| format!("{} {outcome}", count(outcome))).into();
    text.push_str(&counts.join(", "));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_user_is_told_once_what_looking_into_guests_needs() {
        let of = |outcome, out_of_sight| {
            let subject = Subject::Guest("web".parse().unwrap());
            let seen = Err("a shell inside could not be run: Permission denied".to_owned());
            let verdict = Verdict::of_host(subject, "confinement", "out of reach".to_owned(), seen);
            Verdict { outcome, out_of_sight, ..verdict }
        };
        let all = [
            of(Outcome::Unknown, false),
            of(Outcome::Unknown, false),
            of(Outcome::Unknown, true),
            of(Outcome::Pass, false),
        ];
        let wanted = "2 unknown: looking inside guests needs root";
        assert_eq!(unseen_inside(&all, false).as_deref(), Some(wanted));
        assert_eq!(unseen_inside(&all, true), None);
        assert_eq!(unseen_inside(&all[2..], false), None);
    }
}
