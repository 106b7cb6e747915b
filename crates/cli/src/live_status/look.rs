//! One look at the machine: what `status` and `metrics` tell, and the rates since the look before.

use std::{sync::Arc, time::Instant};

use penstock_host::chain;
use penstock_report::metrics::{Snapshot, VerificationMetrics};

use super::rates::Rates;
use crate::{
    commands::status::{self, StatusDocument},
    machine::Machine,
    metrics,
    model_file::ModelFile,
    printer::Printer,
    progress,
    settings::Settings,
};

/// What was seen.
#[derive(Debug)]
pub struct MachineLook {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// What `status` tells, or why it cannot.
    pub status: Result<StatusDocument, String>,
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
    before: Option<(Instant, Snapshot)>,
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
        let guests = status::guests(&machine);
        let status = match &guests {
            Ok((guests, _)) => status::document(&machine, guests.clone(), &mut printer)
                .map_err(|failure| failure.in_one_line()),
            Err(error) => Err(chain(error)),
        };
        let counted = Instant::now();
        let snapshot = metrics::snapshot_with(&machine, guests, self.file.as_deref(), false, &mut printer);
        let before = self.before.replace((counted, snapshot.clone()));
        let rates = before.map(|(then, before)| {
            Rates::between(&before, &snapshot, counted.duration_since(then).as_secs_f64())
        });
        let mut unseen = printer.take_kept();
        if let Err(why) = &status {
            // That is said where the guests would be.
            unseen.retain(|unseen| !unseen.ends_with(why.as_str()));
        }
        unseen.sort();
        unseen.dedup();
        MachineLook { at: progress::now(), status, snapshot, rates: rates.unwrap_or_default(), unseen }
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
