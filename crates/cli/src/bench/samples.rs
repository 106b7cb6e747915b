//! The samples of a run as they were, in its directory: `samples.jsonl`, one JSON line a record, each on disk before the
//! next sample is taken.

use std::{fs::File, path::Path};

use penstock_host::files;
use penstock_measure::{
    journal::{self, Journal, JsonLines},
    record::Record,
};

use crate::{
    failure::{Failure, OrBadInput},
    runtime::kept_run::RUN_FILE_LIMIT,
};

/// The file's name in a run directory.
pub const SAMPLES: &str = "samples.jsonl";

/// The file that records are appended to.
pub struct Samples {
    lines: JsonLines<File>,
    /// The file, as messages call it.
    name: String,
}

/// The records of the run in `directory`, and its file to append to; made when there is none. A last line that was cut
/// off, by a power cut or a full disk, is taken away.
///
/// # Errors
///
/// As [`open_file`].
pub fn open(directory: &Path) -> Result<(Vec<Record>, Samples), Failure> {
    open_file(&directory.join(SAMPLES))
}

/// The same of any file of records.
///
/// # Errors
///
/// `Status::BadInput` for a line that is no record; when the file cannot be read, is larger than a run's file may be, or cannot be
/// opened to append to it.
pub fn open_file(path: &Path) -> Result<(Vec<Record>, Samples), Failure> {
    let mut records = Vec::new();
    if files::exists(path) {
        let text = files::read_whole(path, RUN_FILE_LIMIT)?;
        let whole = journal::whole(&text);
        records = journal::read_records(whole).or_bad_input().map_err(|failure| {
            failure.hint(format!("{} is written by `penstock measure` alone", path.display()))
        })?;
        if whole.len() != text.len() {
            files::write_atomic(path, whole)?;
        }
    }
    let name = path.file_name().map_or_else(|| path.to_string_lossy(), |name| name.to_string_lossy());
    Ok((records, Samples { lines: JsonLines(files::append(path)?), name: name.into_owned() }))
}

impl Journal for Samples {
    fn append(&mut self, record: &Record) -> Result<(), String> {
        let written = self.lines.append(record);
        let kept = written.and_then(|()| self.lines.0.sync_data().map_err(|error| error.to_string()));
        kept.map_err(|error| format!("could not write {}: {error}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use penstock_measure::record::RecordOutcome;

    use super::*;
    use crate::failure::Status;

    fn record(position: u32) -> Record {
        Record {
            cell: "c".into(),
            position,
            round: 0,
            warm_up: true,
            at: 0.5,
            seconds: 1.0,
            outcome: RecordOutcome::Failed("two\nlines".into()),
        }
    }

    #[test]
    fn records_come_back_and_a_line_that_was_cut_off_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let (records, mut samples) = open(directory.path()).unwrap();
        assert_eq!(records, []);
        samples.append(&record(0)).unwrap();
        samples.lines.0.write_all(b"{\"cell\": \"half").unwrap();
        let (records, mut samples) = open(directory.path()).unwrap();
        assert_eq!(records, [record(0)]);
        samples.append(&record(1)).unwrap();
        assert_eq!(open(directory.path()).unwrap().0, [record(0), record(1)]);
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        files::write_atomic(directory.path().join(SAMPLES), "hello\n").unwrap();
        let failure = open(directory.path()).err().unwrap();
        assert_eq!(failure.status, Status::BadInput);
        assert!(failure.error.unwrap().to_string().contains("line 1"), "it says where");
    }

    #[allow(clippy::disallowed_methods)]
    #[test]
    fn a_full_disk_is_said() {
        let lines = JsonLines(File::options().write(true).open("/dev/full").unwrap());
        let mut samples = Samples { lines, name: SAMPLES.to_owned() };
        let said = samples.append(&record(0)).unwrap_err();
        assert!(said.contains("samples.jsonl") && said.contains("space"), "{said}");
    }
}
