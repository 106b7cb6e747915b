//! A place that takes part in a run: what it has, and what it is lent.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use penstock_host::{Command, Output, Place, PlaceError, ProcessError, chain};
use penstock_model::measurement::EndKind;

use super::{
    lease::{Granted, Lease, TestLink},
    survey::{self, Survey},
};

/// A place that takes part in a run.
pub struct Site {
    /// Where its commands run.
    pub place: Arc<dyn Place>,
    /// What it has; or why it could not be looked at.
    pub survey: Result<Survey, String>,
    /// What it is lent.
    pub lease: Lease,
    /// What of it is there.
    pub granted: Granted,
    /// Until when; `None`: it was never lent, or has to be lent anew.
    until: Option<Instant>,
    /// Whether it was seen to have booted since it was looked at.
    booted: bool,
    /// Whether it is a VM: another kernel, of which one cannot tell whether it is gone or only silent.
    vm: bool,
    touched: bool,
}

impl Site {
    /// A place that nothing is known of yet.
    pub fn new(place: Arc<dyn Place>, kind: EndKind, mark: String) -> Site {
        let lease = Lease { mark, ..Lease::default() };
        let survey = Err(format!("what is {} was not surveyed", place.describe()));
        Site {
            place,
            survey,
            lease,
            granted: Granted::default(),
            until: None,
            booted: false,
            vm: kind == EndKind::Vm,
            touched: false,
        }
    }

    /// Where this same program is there, when it is on the host at `program`.
    pub fn own_program<'a>(&'a self, program: &'a str) -> &'a str {
        self.place.own_program().unwrap_or(program)
    }

    /// Looks at it.
    pub fn look(&mut self, interfaces: &BTreeSet<String>, program: &str) {
        let command =
            survey::command(interfaces, self.own_program(program)).deadline(Duration::from_secs(60));
        self.survey = self.run(&command).map(|output| survey::read(&output.text()));
    }

    /// Runs a command there to its end, with words for a person when it cannot be.
    ///
    /// # Errors
    ///
    /// In words, why the command could not be run. One that fails is an output.
    pub fn run(&self, command: &Command) -> Result<Output, String> {
        self.place.run(command).map_err(|error| chain(&error))
    }

    /// Lends it what it is to have, anew when it had it.
    ///
    /// # Errors
    /// In words, when the place cannot be reached.
    pub fn grant(&mut self, lasting: Duration, timeout: Duration) -> Result<(), String> {
        if self.lease.is_empty() {
            return Ok(());
        }
        let from = Instant::now();
        self.until = None;
        let again = std::mem::replace(&mut self.touched, true);
        let output = self.run(&self.lease.grant(lasting, timeout, again))?;
        self.granted = Lease::read(&output);
        if let (Ok(Survey { boot: Some(seen), .. }), Some(boot)) = (&self.survey, &self.granted.boot) {
            self.booted |= seen != boot;
        }
        self.until = Some(from + lasting);
        Ok(())
    }

    /// Sees to it that what it is lent lasts for `needed`.
    ///
    /// # Errors
    /// As [`Site::grant`].
    pub fn renew(&mut self, needed: Duration, lasting: Duration, timeout: Duration) -> Result<(), String> {
        if self.until.is_some_and(|until| until >= Instant::now() + needed) {
            return Ok(());
        }
        self.grant(lasting.max(needed * 4), timeout)
    }

    /// Has links be removed at the end that are about to be made there.
    pub fn will_make(&mut self, links: Vec<TestLink>) {
        self.lease.links.extend(links);
        self.touched = true;
    }

    /// What is to be said of a place that booted while it was measured; `None` of one that did not.
    pub fn booted(&self) -> Option<String> {
        let place = self.place.describe();
        self.booted.then(|| {
            format!("the kernel {place} has booted since the run began: what was set there by hand, such as sriov_numvfs, is gone")
        })
    }

    /// Has it lent anew before the next sample: its servers may hang.
    pub fn distrust(&mut self) {
        self.until = None;
    }

    /// Takes back what it was lent. What could not be taken back is told.
    pub fn revoke(&mut self) -> Vec<String> {
        if !std::mem::take(&mut self.touched) {
            return Vec::new();
        }
        self.until = None;
        let place = self.place.describe();
        match self.place.run(&self.lease.revoke()) {
            Ok(output) => {
                let told = |(what, why): (String, String)| {
                    let why = if why.is_empty() { why } else { format!(": {why}") };
                    format!("{what} could not be taken away {place}{why}")
                };
                Lease::left(&output).into_iter().map(told).collect()
            }
            // A place under this kernel that is gone took all of it along.
            Err(PlaceError::Gone { .. }) if !self.vm => Vec::new(),
            Err(error) => vec![format!(
                "what was lent {place} for the run could not be taken back, and goes by itself: {}",
                chain(&error)
            )],
        }
    }
}

/// Whether a command was ended because its time was up.
pub fn timed_out(error: &PlaceError) -> bool {
    matches!(error, PlaceError::Process { source: ProcessError::TimedOut { .. }, .. })
}
