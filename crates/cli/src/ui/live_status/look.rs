//! One look at the machine: what `status` and `metrics` tell, and the rates since the look before.

use std::sync::Arc;

use penstock_host::{boot, chain};
use penstock_report::metrics::{Snapshot, VerificationMetrics};

use super::rates::Rates;
use crate::{
    commands::status::{self, GuestsAndRuns, StatusDocument},
    metrics::{self, CountedSnapshot},
    model_file::ModelFile,
    runtime::machine::{Machine, run_states::RunStates},
    settings::Settings,
    ui::printer::Printer,
};

/// What was seen.
#[derive(Debug)]
pub struct MachineLook {
    /// How long there was to confirm a run, in milliseconds; below 0 of one that is being taken back.
    pub to_confirm: Option<i64>,
    /// What `status` tells, as far as it could be seen; or why it cannot.
    pub status: Result<StatusDocument, String>,
    /// Why it is not known how guests are, if so.
    pub guests_unseen: Option<String>,
    /// Why it is not known how runs stand, if so.
    pub runs_unseen: Option<String>,
    /// What `metrics` tells, without verdicts.
    pub snapshot: Snapshot,
    /// What went through functions and ports since the look before.
    pub rates: Rates,
    /// What could not be seen, and why.
    pub unseen: Vec<String>,
}

/// Looks at this machine, again and again.
pub struct Looker {
    settings: Settings,
    file: Option<Arc<ModelFile>>,
    before: Option<CountedSnapshot>,
}

impl Looker {
    /// By the names of this model, where there is one.
    pub fn new(settings: &Settings, file: Option<Arc<ModelFile>>) -> Looker {
        Looker { settings: settings.clone(), file, before: None }
    }

    /// Looks.
    pub fn look(&mut self) -> MachineLook {
        let machine = Machine::here(&self.settings);
        let mut printer = Printer::keeping(&self.settings);
        let seen = GuestsAndRuns::look(&machine);
        let guests_unseen = seen.guests.as_ref().err().map(|error| chain(error));
        let runs_unseen = seen.runs.as_ref().err().map(|error| chain(error));
        let guests = seen.guests.as_ref().map(|(guests, _)| guests.clone()).unwrap_or_default();
        let none = RunStates::default();
        let runs = seen.runs.as_ref().unwrap_or(&none);
        let status =
            status::document(&machine, guests, runs, &mut printer).map_err(|failure| failure.in_one_line());
        let counted = metrics::snapshot_with(&machine, &seen, self.file.as_deref(), false, &mut printer);
        let rates = self.before.as_ref().map(|before| Rates::between(before, &counted));
        let snapshot = counted.snapshot.clone();
        self.before = Some(counted);
        let mut unseen = printer.take_kept();
        for why in guests_unseen.iter().chain(&runs_unseen) {
            // That is said where the guests or the runs would be.
            unseen.retain(|unseen| !unseen.ends_with(why.as_str()));
        }
        unseen.sort();
        unseen.dedup();
        MachineLook {
            to_confirm: runs.to_confirm(boot::elapsed()),
            status,
            guests_unseen,
            runs_unseen,
            snapshot,
            rates: rates.unwrap_or_default(),
            unseen,
        }
    }
}

/// Whether the machine is as the model has it, as `metrics --verify` tells: without frames.
///
/// # Errors
///
/// Why nothing could be compared.
pub fn compare(settings: &Settings, file: &ModelFile) -> Result<VerificationMetrics, String> {
    let mut printer = Printer::keeping(settings);
    let snapshot = metrics::snapshot(&Machine::here(settings), Some(file), true, &mut printer);
    snapshot.verification.ok_or_else(|| printer.take_kept().join("; "))
}
