//! What of a model is measured, and how: as it was asked for, and as a run that goes on later needs it again.

use std::{path::Path, time::SystemTime};

use penstock_measure::{
    matrix::{self, Matrix, Options},
    storage,
};
use penstock_model::{
    Model,
    digest::sha256,
    measurement::{PathKind, Protocol, Rules},
};
use serde::{Deserialize, Serialize};

use super::Requested;
use crate::{
    arguments::{Only, Tuning},
    failure::{Failure, Status},
    model_file::ModelFile,
};

/// Why only ratios of a rehearsal mean anything.
pub const ON_A_BOARD: &str = "the board is emulated";

/// What of a model is measured, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Whether only the quick subset of the matrix.
    pub quick: bool,
    /// What the order of the samples and the bootstrap are drawn from.
    pub seed: u64,
    /// When measuring a cell stops.
    pub rules: Rules,
    /// The network alone, or storage alone.
    pub only: Option<Only>,
    /// These paths alone; all of them when none is named.
    pub paths: Vec<PathKind>,
    /// These protocols alone; all of them when none is named.
    pub protocols: Vec<Protocol>,
}

/// A run as it was asked for, kept beside its samples: with it, it can be taken up again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestedRun {
    /// Version of Penstock.
    pub penstock: String,
    /// SHA-256 of the model file.
    pub model: String,
    /// When it began, in RFC 3339 text.
    pub started: String,
    /// Why only ratios of it mean anything; `None` for a real machine.
    pub emulated: Option<String>,
    /// What is measured.
    pub choice: Choice,
}

impl RequestedRun {
    /// A run of this model that begins at `now`.
    pub fn new(file: &ModelFile, choice: Choice, emulated: Option<String>, now: SystemTime) -> RequestedRun {
        RequestedRun {
            penstock: env!("CARGO_PKG_VERSION").to_owned(),
            model: sha256(&file.source.text),
            started: humantime::format_rfc3339_seconds(now).to_string(),
            emulated,
            choice,
        }
    }
}

impl Choice {
    /// What the command line asks for.
    pub fn new(quick: bool, tuning: &Tuning, now: SystemTime) -> Choice {
        let default = Rules::default();
        let dwell_ms = tuning.dwell.map_or(default.dwell_ms, |dwell| dwell.as_millis() as u32);
        let half_width = tuning.half_width.unwrap_or(default.half_width);
        let maximum = tuning.samples.unwrap_or(default.maximum);
        Choice {
            quick,
            seed: tuning.seed_at(now),
            rules: Rules { budget: tuning.budget(quick), dwell_ms, half_width, maximum, ..default },
            only: tuning.only,
            paths: tuning.paths.clone(),
            protocols: tuning.protocols.clone(),
        }
    }

    /// The same as arguments of `penstock measure`.
    pub fn arguments(&self) -> Vec<String> {
        let mut words = vec![
            format!("--seed={}", self.seed),
            format!("--dwell={}ms", self.rules.dwell_ms),
            format!("--half-width={}", self.rules.half_width),
            format!("--samples={}", self.rules.maximum),
            match self.rules.budget {
                Some(budget) => format!("--time-limit={}ms", (budget * 1e3).round().max(1.0)),
                None => "--time-limit=none".to_owned(),
            },
        ];
        words.extend(self.quick.then(|| "--quick".to_owned()));
        words.extend(self.only.map(|only| match only {
            Only::Network => "--only=network".to_owned(),
            Only::Storage => "--only=storage".to_owned(),
        }));
        let name = |text: String| text.replace(' ', "-");
        words.extend(self.paths.iter().map(|path| format!("--path={}", name(path.to_string()))));
        words.extend(self.protocols.iter().map(|one| format!("--protocol={}", name(one.to_string()))));
        words
    }

    /// What there is to measure of a model, and what of it was not asked for.
    pub fn matrix(&self, model: &Model) -> Matrix {
        let full = Options::full();
        let all = matrix::join(matrix::network(model, &full), storage::matrix(model, false, full.null));
        self.asked(model).out_of(&all)
    }

    fn asked(&self, model: &Model) -> Matrix {
        let mut options = if self.quick { Options::quick() } else { Options::full() };
        if !self.paths.is_empty() {
            options.paths = self.paths.clone();
        }
        if !self.protocols.is_empty() {
            options.protocols = self.protocols.clone();
        }
        // Who names them is to have all of them.
        options.few_of_vms &= self.paths.is_empty() && self.protocols.is_empty();
        let network = || matrix::network(model, &options);
        let storage = || storage::matrix(model, self.quick, options.null);
        match self.only {
            Some(Only::Network) => network(),
            Some(Only::Storage) => storage(),
            // Who names paths or protocols asks for the network alone.
            None if !self.paths.is_empty() || !self.protocols.is_empty() => network(),
            None => matrix::join(network(), storage()),
        }
    }
}

impl Requested for RequestedRun {
    const FILE: &'static str = "run.json";

    fn model(&self) -> &str {
        &self.model
    }
}

impl RequestedRun {
    /// Refuses to go on with the run, which is in `directory`, on the other kind of machine: `emulated` says why of this one
    /// only ratios mean anything. A rehearsal's samples and those of the real machine in one median would be of neither.
    ///
    /// # Errors
    ///
    /// `Status::Refused` when one of the two machines is emulated and the other is real.
    pub fn of_such_a_machine(&self, emulated: Option<&str>, directory: &Path) -> Result<(), Failure> {
        let directory = directory.display();
        match (&self.emulated, emulated) {
            (Some(_), Some(_)) | (None, None) => Ok(()),
            (Some(why), None) => Err(Failure::new(
                Status::Refused,
                format!("the run in {directory} is not of this machine: {why}, and this one is real"),
            )
            .hint(
                "measure this machine in a new run; if it is an emulated board too, say so with --emulated",
            )),
            (None, Some(why)) => Err(Failure::new(
                Status::Refused,
                format!("the run in {directory} is of a real machine, and this is none: {why}"),
            )
            .hint("measure it in a new run")),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::{Arguments, Measure, Verb};

    fn measure(words: &[&str]) -> Measure {
        let words = [&["penstock", "measure", "m.yaml"], words].concat();
        match Arguments::try_parse_from(words).unwrap().verb {
            Verb::Measure(measure) => measure,
            other => panic!("{other:?}"),
        }
    }

    fn choice(words: &[&str]) -> Choice {
        let measure = measure(words);
        Choice::new(measure.quick, &measure.tuning, SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn defaults() {
        let full = choice(&[]);
        assert_eq!(
            (full.rules.budget, full.rules.dwell_ms, full.rules.half_width),
            (Some(720.0), 1000, 0.05)
        );
        assert_eq!(full.rules.maximum, 30);
        assert_eq!(choice(&["--quick"]).rules.budget, Some(120.0));
        assert_eq!(choice(&["--time-limit", "none"]).rules.budget, None);
    }

    #[test]
    fn what_was_asked_for_is_asked_for_again_inside_a_board() {
        for words in [
            &[][..],
            &["--quick", "--seed", "7", "--dwell", "1500ms", "--time-limit", "90s", "--samples", "6"],
            &["--half-width", "2%"],
            &[
                "--time-limit",
                "none",
                "--only",
                "network",
                "--path",
                "vf-vf inside,bridge",
                "--protocol=udp-rr",
            ],
        ] {
            let first = choice(words);
            let again = first.arguments();
            let again: Vec<&str> = again.iter().map(String::as_str).collect();
            assert_eq!(choice(&again), first, "{words:?}");
        }
    }

    #[test]
    fn what_a_run_was_is_read_again_and_another_model_refused() {
        let directory = tempfile::tempdir().unwrap();
        let asked = RequestedRun {
            penstock: "0".into(),
            model: "aa".into(),
            started: "2026-01-01T00:00:00Z".into(),
            emulated: None,
            choice: choice(&["--quick"]),
        };
        asked.keep(directory.path()).unwrap();
        assert_eq!(RequestedRun::of(directory.path(), "aa").unwrap(), asked);
        let refused = RequestedRun::of(directory.path(), "bb").unwrap_err();
        assert_eq!(refused.status, Status::Refused);

        let here = |asked: &RequestedRun, emulated| asked.of_such_a_machine(emulated, directory.path());
        let rehearsed = RequestedRun { emulated: Some("the board is emulated".into()), ..asked.clone() };
        assert!(here(&asked, None).is_ok() && here(&rehearsed, Some("NET0 is a virtio device")).is_ok());
        assert_eq!(here(&asked, Some("NET0 is a virtio device")).unwrap_err().status, Status::Refused);
        assert_eq!(here(&rehearsed, None).unwrap_err().status, Status::Refused);
    }
}
