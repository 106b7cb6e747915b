//! What is measured, and how: as it was asked for, and as a run that goes on later needs it again.

use std::{path::Path, time::SystemTime};

use penstock_measure::latency::{
    settings::{Layout, Spread, Wanted, settings},
    wake_ups::RunOptions,
};
use penstock_model::{
    CpuSet, Model,
    digest::sha256,
    measurement::latency::{Latency, LatencyExpectation, Setting, Tool},
};
use serde::{Deserialize, Serialize};

use crate::{
    arguments::{Tuning, Waking},
    bench::Requested,
    failure::{Failure, Status},
    model_file::ModelFile,
};

/// How long a block is, in milliseconds: 50000 wake-ups.
const FULL_BLOCK: u32 = 10_000;
/// In a quick run.
const QUICK_BLOCK: u32 = 5_000;
/// How sure intervals and bounds are.
const CONFIDENCE: f64 = 0.95;

/// What is measured, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Only what shows each place.
    pub quick: bool,
    /// The order, the length of a block, and when it ends.
    pub options: RunOptions,
    /// With which tools.
    pub tools: Vec<Tool>,
    /// Where the load runs.
    pub spread: Spread,
    /// These CPUs instead of those that the model isolates.
    pub cpus: Option<CpuSet>,
    /// What is to be proven beside the model's own lines.
    pub prove: Vec<LatencyExpectation>,
}

/// A run as it was asked for, kept beside its blocks: with it, it can be taken up again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestedRun {
    /// Version of Penstock.
    pub penstock: String,
    /// SHA-256 of the model file.
    pub model: String,
    /// What is measured.
    pub choice: Choice,
    /// The machine's CPUs as they were.
    pub online: CpuSet,
}

impl Choice {
    /// What the command line asks for; whether the machine is emulated is found out later.
    pub fn new(quick: bool, waking: &Waking, tuning: &Tuning, now: SystemTime) -> Choice {
        let usual = if quick { QUICK_BLOCK } else { FULL_BLOCK };
        Choice {
            quick,
            options: RunOptions {
                seed: tuning.seed_at(now),
                spike: Latency::default().spike,
                confidence: CONFIDENCE,
                block_ms: tuning.dwell.map_or(usual, |dwell| dwell.as_millis() as u32),
                budget: tuning.budget(quick),
                rounds: None,
                against: waking.against.is_some(),
                emulated: false,
                stand_ins: Vec::new(),
                started: humantime::format_rfc3339_seconds(now).to_string(),
            },
            tools: if waking.tools.is_empty() {
                vec![Tool::Cyclictest, Tool::Oslat, Tool::Timerlat, Tool::Hwlat]
            } else {
                waking.tools.clone()
            },
            spread: waking.load.unwrap_or_default(),
            cpus: waking.cpus.clone(),
            prove: waking.prove.clone(),
        }
    }

    /// What there is to measure.
    pub fn settings(&self, layout: &Layout) -> Vec<Setting> {
        let wanted = Wanted {
            // Who names tools wants them.
            quick: self.quick,
            tools: self.tools.clone(),
            against: self.options.against,
            spread: self.spread,
        };
        settings(layout, &wanted)
    }

    /// What is to hold: of the command line and of the model.
    pub fn claims(&self, model: &Model) -> Vec<LatencyExpectation> {
        self.prove.iter().chain(&model.expect_latency).cloned().collect()
    }
}

impl Requested for RequestedRun {
    const FILE: &'static str = "latency.json";

    fn model(&self) -> &str {
        &self.model
    }
}

impl RequestedRun {
    /// A run of this model.
    pub fn new(file: &ModelFile, choice: Choice, online: CpuSet) -> RequestedRun {
        let penstock = env!("CARGO_PKG_VERSION").to_owned();
        RequestedRun { penstock, model: sha256(&file.source.text), choice, online }
    }

    /// Refuses to go on with the run, which is in `directory`, on another machine.
    ///
    /// # Errors
    ///
    /// `Status::Refused` when this machine has other CPUs, or only one of the two is emulated.
    pub fn of_such_a_machine(
        &self,
        online: &CpuSet,
        emulated: bool,
        directory: &Path,
    ) -> Result<(), Failure> {
        if self.online == *online && self.choice.options.emulated == emulated {
            return Ok(());
        }
        let text = format!(
            "the run in {} is of another machine: it had the CPUs {}{}, and this one has {online}{}",
            directory.display(),
            self.online,
            if self.choice.options.emulated { ", emulated" } else { "" },
            if emulated { ", emulated" } else { "" },
        );
        Err(Failure::new(Status::Refused, text).hint("measure this machine in a new run"))
    }
}
