//! A run on this machine, from its testbed to what is told.

use std::time::{Duration, Instant};

use penstock_host::{Root, interrupt};
use penstock_measure::{
    journal::Journal,
    latency::{
        machine::{LatencyTaker, Toggle},
        run::{self, Event},
        settings::Layout,
    },
    record::Record,
    testbed::Testbed,
};
use penstock_model::{
    Model,
    measurement::latency::{Latency, Tool},
};

use super::RequestedRun;

/// How long hwlatdetect looks, before all blocks of a full run.
const FIRMWARE: Duration = Duration::from_secs(10);

/// Measures, and says whether Ctrl-C ended it. Whatever ends it, the machine is as it was found.
#[allow(clippy::too_many_arguments, reason = "each is another part of the program, and they meet only here")]
pub fn perform(
    model: &Model,
    asked: &RequestedRun,
    layout: &Layout,
    testbed: &Testbed,
    root: &Root,
    toggle: &mut dyn Toggle,
    earlier: &[Record],
    journal: &mut dyn Journal,
    observe: &mut dyn FnMut(&Event),
) -> (Latency, bool) {
    let began = Instant::now();
    let choice = &asked.choice;
    let firmware = (!choice.quick && choice.tools.contains(&Tool::Hwlat)).then_some(FIRMWARE);
    let mut sampler = LatencyTaker::new(testbed, root.clone(), layout.clone(), toggle, firmware);
    let latency = run::run(
        &choice.settings(layout),
        &choice.options,
        &choice.claims(model),
        earlier,
        &mut sampler,
        journal,
        observe,
        &|| began.elapsed().as_secs_f64(),
        &interrupt::pending,
    );
    (latency, interrupt::acknowledge())
}
