//! A run on this machine, from its testbed to its measurements.

use std::time::{Duration, Instant};

use penstock_host::interrupt;
use penstock_measure::{
    cells::{Cells, RunOptions},
    engine::{self, Parts, Workload},
    event::Event,
    journal::Journal,
    matrix::Matrix,
    network::{self, NetworkTaker},
    record::Record,
    sampler::Sampler,
    samplers::Samplers,
    storage::{self, StorageTaker},
    testbed::Testbed,
};
use penstock_model::{Model, measurement::Measurements};

use super::RequestedRun;

/// How a run is made, from what was asked for.
pub fn options(asked: &RequestedRun) -> RunOptions {
    RunOptions {
        rules: asked.choice.rules,
        seed: asked.choice.seed,
        emulated: asked.emulated.is_some(),
        quick: asked.choice.quick,
        started: asked.started.clone(),
    }
}

/// Makes a run of a workload that begins now, and says whether Ctrl-C ended it. Whatever ends it, what was made for it is taken
/// back.
pub fn run<W: Workload>(
    workload: W,
    sampler: &mut dyn Sampler<W::Planned, W::Tool>,
    earlier: &[Record],
    journal: &mut dyn Journal,
    observe: &mut dyn FnMut(&Event<W::Sample>),
) -> (W::Measured, bool) {
    let began = Instant::now();
    let clock = || began.elapsed().as_secs_f64();
    let parts = Parts { earlier, sampler, journal, observe, clock: &clock, interrupted: &interrupt::pending };
    let measured = engine::run(workload, parts);
    (measured, interrupt::acknowledge())
}

/// Measures the network and storage.
pub fn perform(
    model: &Model,
    asked: &RequestedRun,
    matrix: &Matrix,
    testbed: &Testbed,
    earlier: &[Record],
    journal: &mut dyn Journal,
    observe: &mut dyn FnMut(&Event),
) -> (Measurements, bool) {
    let dwell = Duration::from_millis(u64::from(asked.choice.rules.dwell_ms));
    let network = network::Options { dwell, seed: asked.choice.seed, ..network::Options::default() };
    let mut network = NetworkTaker::new(testbed, network);
    let mut storage = StorageTaker::new(testbed, &storage::targets(model));
    let mut sampler = Samplers::new(&mut network, &mut storage);
    let options = options(asked);
    let cells = Cells::new(matrix, &options, &model.expect);
    let (mut measurements, interrupted) = run(cells, &mut sampler, earlier, journal, observe);
    if let Some(why) = &asked.emulated {
        measurements.notes.insert(0, format!("only ratios mean anything: {why}"));
    }
    (measurements, interrupted)
}
