//! The directory that a run leaves.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::SystemTime,
};

use penstock_host::files::{self, FileError};
use penstock_report::Evidence;

use crate::failure::{Failure, Status};

/// The directory of one run: `evidence.json`, `report.html`, `report.md`, `model.yaml`, `serial.log`, what was brought out of
/// the machine: `consoles/GUEST.log`, `generated/`; and of a run that measures what it was asked for and every sample with
/// the tool's own output, as soon as it was taken: `run.json`, `samples.jsonl`.
pub struct RunDirectory {
    path: PathBuf,
}

impl RunDirectory {
    /// Creates `wanted`, or `runs/MACHINE-TIME` here. One that has something in it is refused: evidence is not
    /// written over.
    pub fn create(wanted: Option<&Path>, machine: &str, now: SystemTime) -> Result<RunDirectory, Failure> {
        let path = match wanted {
            Some(path) => path.to_owned(),
            None => {
                let time = humantime::format_rfc3339_seconds(now).to_string().replace([':', '-'], "");
                Path::new("runs").join(format!("{machine}-{time}"))
            }
        };
        files::create_dir_all(&path)?;
        if !files::list(&path)?.is_empty() {
            let text = format!("the run directory {} is not empty", path.display());
            return Err(Failure::new(Status::BadInput, text).hint("name another with --output"));
        }
        Ok(RunDirectory { path })
    }

    /// The directory of an earlier run that goes on.
    pub fn of_earlier(path: &Path) -> RunDirectory {
        RunDirectory { path: path.to_owned() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The run's name.
    pub fn id(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Keeps what was brought out of the machine, each file at its path in here.
    pub fn keep_files(&self, all: &BTreeMap<String, Vec<u8>>) -> Result<(), Failure> {
        for (name, bytes) in all {
            let path = self.path.join(name);
            if let Some(directory) = path.parent() {
                files::create_dir_all(directory)?;
            }
            files::write_atomic(path, bytes)?;
        }
        Ok(())
    }

    /// Writes the evidence and its renderings, each file whole or not at all. What cannot be written, on a full disk, keeps
    /// nothing else from being tried.
    pub fn keep(&self, evidence: &Evidence) -> Result<(), Failure> {
        // The evidence first: all others can be made from it.
        type Render = fn(&Evidence) -> String;
        let renderings: [(&str, Render); 5] = [
            ("evidence.json", |evidence| evidence.json()),
            ("model.yaml", |evidence| evidence.model.text.clone()),
            ("serial.log", |evidence| evidence.serial_log.clone().unwrap_or_default()),
            ("report.md", penstock_report::markdown),
            ("report.html", penstock_report::html),
        ];
        let mut failures: Vec<(&str, FileError)> = Vec::new();
        for (name, render) in renderings {
            let written = files::write_atomic(self.path.join(name), render(evidence));
            failures.extend(written.err().map(|error| (name, error)));
        }
        let lost: Vec<&str> = failures.iter().map(|(name, _)| *name).collect();
        let hint = format!("not kept: {}; all else is in {}", lost.join(", "), self.path.display());
        match failures.into_iter().next() {
            None => Ok(()),
            Some((_, error)) => Err(Failure::from(error).hint(hint)),
        }
    }
}
