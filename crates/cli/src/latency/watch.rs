//! Shows a run that goes on: what is measured now, and the longest of each series so far.

use std::time::{Duration, Instant};

use penstock_measure::{
    event::{BlockSample, Event},
    latency::wake_ups::RunOptions,
};

use crate::ui::printer::Printer;

/// Where nothing is redrawn, a line comes no more often than this.
const SELDOM: Duration = Duration::from_secs(10);

/// Shows a run.
pub struct Watch {
    budget: Option<f64>,
    emulated: bool,
    said: Option<Instant>,
}

impl Watch {
    /// Before anything was measured.
    pub fn new(options: &RunOptions) -> Watch {
        Watch { budget: options.budget, emulated: options.emulated, said: None }
    }

    /// Shows what happened.
    pub fn event(&mut self, event: &Event<BlockSample>, printer: &mut Printer) {
        let mark = if self.emulated { " (emulated)" } else { "" };
        match event {
            Event::Prepared { cells, missing: 0, .. } => printer.say(format!("{cells} series to measure")),
            Event::Prepared { cells, missing, .. } => {
                printer.say(format!("{cells} series to measure, {missing} cannot be"));
            }
            Event::Sampling { cell, round, at, .. } => {
                if let Some(budget) = self.budget.filter(|budget| *budget > 0.0) {
                    printer.fraction((at / budget).min(1.0));
                }
                if printer.canvas().is_some() {
                    printer.doing(format!("Round {}: {cell}", round + 1));
                }
            }
            Event::Sampled(BlockSample { series, n, max: Some(max), worst, .. }) => {
                let due = self.said.is_none_or(|said| said.elapsed() >= SELDOM);
                if due && printer.canvas().is_none() {
                    self.said = Some(Instant::now());
                    let worst = worst.unwrap_or(*max);
                    printer.say(format!(
                        "{series}: {n} wake-ups, the longest {max:.0} us{mark}, {worst:.0} us so far"
                    ));
                }
            }
            Event::Sampled(BlockSample { series, why, .. }) => {
                let why = why.as_deref().unwrap_or("it told no latency");
                printer.warn(format!("{series}: {why}"));
            }
            Event::Stopped { cell, why } => printer.say(format!("{cell}: {why}")),
            Event::Note(text) => printer.say(text),
        }
    }
}
