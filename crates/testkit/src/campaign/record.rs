//! What a campaign has tried: one JSON object a line, written when a trial is over.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    path::Path,
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
    /// The fault.
    pub fault: Fault,
}

/// What came of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// Which.
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
    file: Option<File>,
}

impl Record {
    /// One that is forgotten.
    pub fn in_memory() -> Record {
        Record { ended: Vec::new(), file: None }
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
        Ok(Record { ended, file: Some(file) })
    }

    /// Whether this trial is over.
    pub fn has(&self, trial: &Trial) -> bool {
        self.ended.iter().any(|ended| ended.trial == *trial)
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

    /// All trials that are over.
    pub fn ended(&self) -> &[Ended] {
        &self.ended
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
