//! A run on this machine, from its testbed to what is told.

use std::time::Duration;

use penstock_host::Root;
use penstock_measure::{
    event::{BlockSample, Event},
    journal::Journal,
    latency::{
        machine::{LatencyTaker, Toggle},
        settings::Layout,
        wake_ups::WakeUps,
    },
    record::Record,
    testbed::Testbed,
};
use penstock_model::{
    Model,
    measurement::latency::{Latency, Tool},
};

use super::RequestedRun;
use crate::bench::perform;

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
    observe: &mut dyn FnMut(&Event<BlockSample>),
) -> (Latency, bool) {
    let choice = &asked.choice;
    let firmware = (!choice.quick && choice.tools.contains(&Tool::Hwlat)).then_some(FIRMWARE);
    let mut sampler = LatencyTaker::new(testbed, root.clone(), layout.clone(), toggle, firmware);
    let (settings, claims) = (choice.settings(layout), choice.claims(model));
    let wake_ups = WakeUps::new(&settings, &choice.options, &claims);
    perform::run(wake_ups, &mut sampler, earlier, journal, observe)
}
