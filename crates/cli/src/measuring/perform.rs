//! A run on this machine, from its scene to its measurements.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use penstock_host::interrupt;
use penstock_measure::{
    event::Event,
    journal::Journal,
    matrix::{Matrix, Planned},
    network::{self, NetworkTaker},
    record::{RawOutput, Record},
    run::{self, RunOptions},
    scene::Scene,
    storage::{self, StorageTaker},
    taker::{Preparation, Taker},
    takers::Takers,
};
use penstock_model::{Model, measurement::Measurements};

use super::Asked;

/// How a run is made, from what was asked for.
pub fn options(asked: &Asked) -> RunOptions {
    RunOptions {
        rules: asked.choice.rules,
        seed: asked.choice.seed,
        emulated: asked.emulated.is_some(),
        quick: asked.choice.quick,
        started: asked.started.clone(),
    }
}

/// Measures, and says whether Ctrl-C ended it. Whatever ends it, what was made for it is taken back.
pub fn perform(
    model: &Model,
    asked: &Asked,
    matrix: &Matrix,
    scene: &Scene,
    earlier: &[Record],
    journal: &mut dyn Journal,
    observe: &mut dyn FnMut(&Event),
) -> (Measurements, bool) {
    let began = Instant::now();
    let ended = Cell::new(false);
    let dwell = Duration::from_millis(u64::from(asked.choice.rules.dwell_ms));
    let mut network = NetworkTaker::new(scene, network::Options { dwell, ..network::Options::default() });
    let mut storage = StorageTaker::new(scene, &storage::targets(model));
    let mut both = Takers::new(&mut network, &mut storage);
    let mut taker = Orderly { taker: &mut both, interrupted: &ended };
    let interrupted = || {
        ended.set(ended.get() || interrupt::pending());
        ended.get()
    };
    let mut measurements = run::run(
        matrix,
        &options(asked),
        &model.expect,
        earlier,
        &mut taker,
        journal,
        observe,
        &|| began.elapsed().as_secs_f64(),
        &interrupted,
    );
    if let Some(why) = &asked.emulated {
        measurements.notes.insert(0, format!("only ratios mean anything: {why}"));
    }
    (measurements, ended.get())
}

/// A taker whose clean-up is not ended by the Ctrl-C that ended the run: commands are killed while one is pending.
struct Orderly<'a> {
    taker: &'a mut dyn Taker,
    interrupted: &'a Cell<bool>,
}

impl Taker for Orderly<'_> {
    fn prepare(&mut self, cells: &[Planned]) -> Preparation {
        self.taker.prepare(cells)
    }

    fn take(&mut self, cell: &Planned, dwell: Duration) -> Result<RawOutput, String> {
        self.taker.take(cell, dwell)
    }

    fn finish(&mut self) -> Vec<String> {
        let pending = interrupt::acknowledge();
        self.interrupted.set(self.interrupted.get() || pending);
        self.taker.finish()
    }
}
