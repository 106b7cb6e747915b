//! A run directory as an earlier run left it.

use std::path::{Path, PathBuf};

use penstock_host::files;
use penstock_model::measurement::{MEASUREMENT_VERSION, latency::LATENCY_VERSION};
use penstock_report::{Evidence, ReadError};

use crate::failure::{Failure, OrBadInput, Status};

/// The file that makes a directory that of a run.
pub const EVIDENCE: &str = "evidence.json";
/// No file of a run is longer, in bytes.
pub const RUN_FILE_LIMIT: usize = 256 << 20;
/// Nor is its evidence, which is read as a whole.
const EVIDENCE_LIMIT: usize = 64 << 20;
/// Directories within directories that are looked into.
const DEEPEST: usize = 8;

/// Why [`KeptRun::read`] would not read this evidence, in words, where it is too large for that.
pub fn why_not_read(json: &str) -> Option<String> {
    if json.len() > EVIDENCE_LIMIT {
        return Some(format!(
            "it has {} MiB, and at most {} are read",
            json.len() >> 20,
            EVIDENCE_LIMIT >> 20
        ));
    }
    Evidence::check_extent(json).err().map(|error| error.to_string())
}

/// A run that has been.
pub struct KeptRun {
    directory: PathBuf,
    evidence: Evidence,
}

impl KeptRun {
    /// Reads the evidence in this run directory; its `evidence.json` may be named too.
    ///
    /// # Errors
    ///
    /// `Status::BadInput` when the file cannot be read, is too large, no evidence, or of a newer version.
    pub fn read(path: &Path) -> Result<KeptRun, Failure> {
        let (directory, file) = if path.file_name().is_some_and(|name| name == EVIDENCE) {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            (parent.unwrap_or(Path::new(".")).to_owned(), path.to_owned())
        } else {
            (path.to_owned(), path.join(EVIDENCE))
        };
        let bytes = files::read_whole(&file, EVIDENCE_LIMIT).map_err(|error| {
            let missing = error.is_missing();
            let failure = Failure::new(Status::BadInput, error);
            match (missing, files::exists(&directory)) {
                (false, _) => failure,
                (true, true) => failure.hint(format!(
                    "{} has no {EVIDENCE}: it is no run directory, or its run was ended before it wrote one",
                    directory.display()
                )),
                (true, false) => failure.hint("name a run directory, like runs/MACHINE-TIME"),
            }
        })?;
        let text = String::from_utf8(bytes).map_err(|_| {
            Failure::new(Status::BadInput, format!("{} is not UTF-8 text", file.display()))
                .hint("evidence.json is written by Penstock; was it edited?")
        })?;
        let evidence = Evidence::from_json(&text).map_err(|error| {
            let hint = match &error {
                ReadError::Newer { .. } | ReadError::TooMuch { .. } => None,
                ReadError::Repeated { .. } => Some("evidence.json is written by Penstock; was it edited?"),
                ReadError::Form(source) if source.is_eof() => {
                    Some("the file ends too early: was the disk full?")
                }
                ReadError::Form(_) => Some("evidence.json is written by Penstock; was it edited?"),
            };
            Failure::new(Status::BadInput, UnreadableFile { file: file.clone(), source: error })
                .hints(hint.map(str::to_owned))
        })?;
        if let Some(measurements) = &evidence.measurements
            && measurements.version > MEASUREMENT_VERSION
        {
            let text = format!(
                "the measurements in {} have version {}, and this Penstock reads up to {MEASUREMENT_VERSION}: use a newer Penstock",
                file.display(),
                measurements.version
            );
            return Err(Failure::new(Status::BadInput, text));
        }
        if let Some(latency) = &evidence.latency
            && latency.version > LATENCY_VERSION
        {
            let text = format!(
                "the latencies in {} have version {}, and this Penstock reads up to {LATENCY_VERSION}: use a newer Penstock",
                file.display(),
                latency.version
            );
            return Err(Failure::new(Status::BadInput, text));
        }
        Ok(KeptRun { directory, evidence })
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The run's evidence, as it was read from the directory.
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// What is below the directory, each as its path in there, in the order of the names. Links are not followed.
    ///
    /// # Errors
    ///
    /// When a directory cannot be listed.
    pub fn files(&self) -> Result<KeptFiles, Failure> {
        let mut found = KeptFiles::default();
        below(&self.directory, Path::new(""), DEEPEST, &mut found)?;
        Ok(found)
    }
}

/// What is below a run's directory.
#[derive(Debug, Default)]
pub struct KeptFiles {
    /// The files.
    pub files: Vec<PathBuf>,
    /// Directories that lie so deep within others that they were not looked into.
    pub too_deep: Vec<PathBuf>,
}

fn below(root: &Path, at: &Path, depth: usize, found: &mut KeptFiles) -> Result<(), Failure> {
    let mut names = files::list(root.join(at)).or_bad_input()?;
    names.sort();
    for name in names {
        let path = at.join(name);
        let whole = root.join(&path);
        if files::read_link(&whole).is_ok() {
            continue;
        }
        match files::list(&whole) {
            Ok(_) if depth > 0 => below(root, &path, depth - 1, found)?,
            Ok(_) => found.too_deep.push(path),
            Err(_) => found.files.push(path),
        }
    }
    Ok(())
}

/// A file of a run that is not what it should be.
#[derive(Debug)]
pub struct UnreadableFile {
    /// The file.
    pub file: PathBuf,
    /// What it is not.
    pub source: ReadError,
}

impl std::fmt::Display for UnreadableFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "could not read {}", self.file.display())
    }
}

impl std::error::Error for UnreadableFile {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
