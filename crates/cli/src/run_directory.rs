//! The directory that a run leaves.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::SystemTime,
};

use penstock_host::files;
use penstock_report::Evidence;

use crate::failure::{Failure, OrFail, Status};

/// A new directory for one run: `evidence.json`, `report.html`, `report.md`, `model.yaml`, `serial.log`, and what was
/// brought out of the machine: `consoles/GUEST.log`.
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
        files::create_dir_all(&path).or_fail(Status::Missing)?;
        if !files::list(&path).or_fail(Status::Missing)?.is_empty() {
            let text = format!("the run directory {} is not empty", path.display());
            return Err(Failure::new(Status::BadInput, text).hint("name another with --output"));
        }
        Ok(RunDirectory { path })
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
                files::create_dir_all(directory).or_fail(Status::Missing)?;
            }
            files::write_atomic(path, bytes).or_fail(Status::Missing)?;
        }
        Ok(())
    }

    /// Writes the evidence and its renderings, each file whole or not at all.
    pub fn keep(&self, evidence: &Evidence) -> Result<(), Failure> {
        let keep =
            |name: &str, text: &str| files::write_atomic(self.path.join(name), text).or_fail(Status::Missing);
        keep("model.yaml", &evidence.model.text)?;
        keep("serial.log", evidence.serial_log.as_deref().unwrap_or_default())?;
        keep("evidence.json", &evidence.json())?;
        keep("report.md", &penstock_report::markdown(evidence))?;
        keep("report.html", &penstock_report::html(evidence))
    }
}
