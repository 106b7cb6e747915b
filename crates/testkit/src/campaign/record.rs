//! What a campaign has tried: one JSON object a line, written when a trial is over.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::fault::{Fault, Over};

/// One step and one fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// The model's name.
    pub model: String,
    /// The run that meets the fault.
    pub over: Over,
    /// The number of the step in that run's plan.
    pub step: u32,
    /// What kind of action the step is.
    pub action: String,
    /// The fault that the run meets at that step.
    pub fault: Fault,
}

/// What came of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// The trial that has ended.
    #[serde(flatten)]
    pub trial: Trial,
    /// What was not as it has to be; nothing when all was.
    pub wrong: Vec<String>,
    /// How the run ended, and what of it failed.
    pub notes: Vec<String>,
    /// Why it could not be tried, if so.
    pub not_tried: Option<String>,
    /// How long it took.
    pub seconds: f64,
}

/// The record of a campaign.
#[derive(Debug)]
pub struct Record {
    ended: Vec<Ended>,
    earlier: Vec<Ended>,
    file: Option<File>,
    path: Option<PathBuf>,
}

impl Record {
    /// One that is forgotten.
    pub fn in_memory() -> Record {
        Record { ended: Vec::new(), earlier: Vec::new(), file: None, path: None }
    }

    /// The record in this file, made when it is not there. A last line that was cut off is left out, and tried again.
    ///
    /// # Errors
    ///
    /// When it cannot be read, a line before the last is damaged, or it cannot be written.
    pub fn open(path: &Path) -> Result<Record, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = if path.exists() {
            fs::read_to_string(path).map_err(|error| failed(&error))?
        } else {
            String::new()
        };
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let lines = text[..whole].lines().map(serde_json::from_str);
        let ended: Vec<Ended> = lines.collect::<Result<_, _>>().map_err(|error| failed(&error))?;
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(|error| failed(&error))?;
        file.set_len(whole as u64).map_err(|error| failed(&error))?;
        Ok(Record { ended, earlier: Vec::new(), file: Some(file), path: Some(path.to_owned()) })
    }

    /// Takes in what lies beside it, the records of other builds: what was right with one of them is not tried again.
    ///
    /// # Errors
    ///
    /// When one of them cannot be read.
    pub fn with_other_builds(&mut self) -> Result<(), String> {
        let Some(path) = &self.path else { return Ok(()) };
        let directory = path.parent().unwrap_or(Path::new("."));
        let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
        for entry in fs::read_dir(directory).map_err(failed)? {
            let other = entry.map_err(failed)?.path();
            if other.extension().is_some_and(|extension| extension == "jsonl") && other != *path {
                self.earlier.extend(Record::open(&other)?.ended);
            }
        }
        Ok(())
    }

    /// Whether this trial is over.
    pub fn has(&self, trial: &Trial) -> bool {
        let mut earlier = self.earlier.iter().filter(|ended| ended.wrong.is_empty());
        self.ended.iter().any(|ended| ended.trial == *trial) || earlier.any(|ended| ended.trial == *trial)
    }

    /// Where it is kept beside the record what each step of a model changes; nowhere for a record that is forgotten.
    pub fn steps_of(&self, model: &str) -> Option<PathBuf> {
        Some(self.path.as_ref()?.with_extension(format!("{model}.json")))
    }

    /// Adds a trial.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn add(&mut self, ended: &Ended) -> Result<(), String> {
        if let Some(file) = &mut self.file {
            let line = serde_json::to_string(ended).map_err(|error| error.to_string())?;
            writeln!(file, "{line}").and_then(|()| file.sync_data()).map_err(|error| error.to_string())?;
        }
        self.ended.push(ended.clone());
        Ok(())
    }

    /// The trials of this build that are over.
    pub fn ended(&self) -> &[Ended] {
        &self.ended
    }

    /// Those of the other builds that were taken in, and of this one.
    pub fn of_all_builds(&self) -> Vec<Ended> {
        self.earlier.iter().chain(&self.ended).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(step: u32) -> Ended {
        let trial = Trial {
            model: "m".into(),
            over: Over::Apply,
            step,
            action: "set_link".into(),
            fault: Fault::Middle,
        };
        Ended { trial, wrong: Vec::new(), notes: Vec::new(), not_tried: None, seconds: 1.0 }
    }

    #[test]
    fn what_was_right_with_another_build_is_not_tried_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut other = Record::open(&directory.path().join("a.jsonl")).unwrap();
        other.add(&ended(1)).unwrap();
        other.add(&Ended { wrong: vec!["/links".into()], ..ended(2) }).unwrap();
        let mut record = Record::open(&directory.path().join("b.jsonl")).unwrap();
        assert!(!record.has(&ended(1).trial));
        record.with_other_builds().unwrap();
        assert!(record.has(&ended(1).trial) && !record.has(&ended(2).trial));
        assert_eq!((record.ended().len(), record.of_all_builds().len()), (0, 2));
    }

    #[test]
    fn a_record_that_was_cut_off_goes_on_after_its_last_whole_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record.jsonl");
        let mut record = Record::open(&path).unwrap();
        record.add(&ended(1)).unwrap();
        record.add(&ended(2)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 9]).unwrap();
        let mut record = Record::open(&path).unwrap();
        assert!(record.has(&ended(1).trial) && !record.has(&ended(2).trial));
        record.add(&ended(3)).unwrap();
        assert_eq!(Record::open(&path).unwrap().ended(), [ended(1), ended(3)]);
    }
}
