//! Shows a run that goes on: redrawn in place on a terminal, a plain line now and then elsewhere.

use std::time::{Duration, Instant};

use penstock_measure::{event::Event, matrix::Matrix};
use penstock_model::measurement::Rules;

use crate::ui::{live::Live, printer::Printer};

/// Where nothing is redrawn, a line comes no more often than this.
const SELDOM: Duration = Duration::from_secs(10);

/// Shows a run.
pub struct Watch {
    live: Live,
    said: Instant,
}

impl Watch {
    /// Before anything was measured.
    pub fn new(matrix: &Matrix, rules: &Rules, emulated: bool) -> Watch {
        Watch { live: Live::new(matrix, rules, emulated), said: Instant::now() }
    }

    /// Shows what happened.
    pub fn event(&mut self, event: &Event, printer: &mut Printer) {
        let line = self.live.tell(event);
        match printer.canvas() {
            Some(canvas) => {
                if let (Event::Note(_) | Event::Prepared { .. }, Some(line)) = (event, line) {
                    printer.say(line);
                }
                printer.picture(&self.live.picture(canvas));
            }
            None => match (event, line) {
                (_, Some(line)) => {
                    self.said = Instant::now();
                    printer.say(line);
                }
                (Event::Sampling { .. }, None) if self.said.elapsed() >= SELDOM => {
                    self.said = Instant::now();
                    printer.say(self.live.line());
                }
                _ => {}
            },
        }
    }
}
