//! The record of a run, made so that whoever finds it after a crash knows what may have been written.
//!
//! One JSON object a line. An `intent` reaches the disk before the write that it announces; that a step is begun, and what
//! came of it, is written as it happens and reaches the disk with the next intent at the latest. So after a crash every
//! step that may have touched the machine has its intent here, with the inverse that takes it back. When only Penstock
//! was killed, what it wrote is all there: an intent that was not begun did not happen, one that was begun and has no
//! outcome may have. When the machine went down with it, the last lines may be lost; what its steps did is gone by itself
//! then, but for files.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use penstock_host::files::{self, FileError};
use penstock_plan::{Action, StepId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

mod catch_up;
mod changes;

pub use catch_up::CatchUpJournal;
pub use changes::{ChangesJournal, says_the_same};

/// The version of the journal's form; a reader refuses a newer one.
pub const JOURNAL_VERSION: u32 = 3;

/// No file of a run's record is longer, in bytes: it is read as a whole, and takes some times its length of memory.
pub(crate) const RECORD_LIMIT: usize = 64 << 20;

/// But for its journal, in bytes, which tells of each step of its plan several times: what it does, what takes it back, and that it was taken
/// back. More than a run's reserve has room for.
pub(crate) const JOURNAL_LIMIT: usize = 9 * RECORD_LIMIT;

/// One line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "entry", rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "entries are written at once, never kept in numbers")]
pub enum Entry {
    /// A run starts.
    Begin {
        /// [`JOURNAL_VERSION`] of the writer.
        version: u32,
        /// How many steps its plan has.
        steps: usize,
    },
    /// A step is about to be carried out.
    Intent {
        /// The step that was announced.
        step: StepId,
        /// What it does.
        action: Action,
        /// What takes it back.
        inverse: Option<Action>,
    },
    /// Steps that were announced are carried out from now on.
    Begun {
        /// The steps that were begun together.
        steps: Vec<StepId>,
    },
    /// What came of a step.
    Outcome {
        /// The step that ended.
        step: StepId,
        /// How it came out.
        outcome: Ending,
        /// The error, or what the driver said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
    /// A step is about to be taken back by `action`.
    Undo {
        /// The step that is taken back.
        step: StepId,
        /// The action that takes it back.
        action: Action,
    },
    /// What came of taking a step back.
    Undone {
        /// The step that was taken back.
        step: StepId,
        /// Why it could not be; `None` when it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// What somebody else has made of it since, where that was left alone: nothing of the run is there to be taken back, now or
        /// later. To a reader of before it is a step that was taken back, which comes to the same.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        anothers: Option<String>,
    },
    /// The run ended by itself. A journal without this line was cut off.
    End {
        /// Whether the machine is as the plan wants it.
        applied: bool,
    },
}

/// How a step came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Carried out, and its postcondition was read back.
    Done,
    /// The driver or device cannot do it; passed over.
    Unsupported,
    /// It failed, or its postcondition did not come true.
    Failed,
    /// Not attempted, because it belongs to a guest that failed, or needs something of it, or because a step before it failed.
    LeftOut,
}

/// Where entries go.
pub trait Journal {
    /// Records `entries` in order. With `sync` they, and all before them, are on disk when this returns.
    ///
    /// # Errors
    ///
    /// [`JournalError`] when they cannot be written, or with `sync` not be synced. Part of them may be in the journal.
    fn record(&mut self, entries: &[Entry], sync: bool) -> Result<(), JournalError>;

    /// How long what is recorded is now, whoever recorded it: another number once anybody has. `None` where that is not known.
    fn length(&self) -> Option<u64> {
        None
    }
}

/// A journal could not be kept or read.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The file could not be opened or read.
    #[error("the journal cannot be used")]
    File(#[from] FileError),
    /// A line could not be written.
    #[error("could not write to the journal {}", path.display())]
    Write {
        /// The path of the journal.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A line before the last is not an entry.
    #[error("line {line} of the journal {} is damaged", path.display())]
    Damaged {
        /// The path of the journal.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// Why the line is not an entry.
        #[source]
        source: serde_json::Error,
    },
    /// A newer Penstock wrote it.
    #[error(
        "the journal {} has version {version}; this Penstock reads up to {JOURNAL_VERSION}",
        path.display()
    )]
    Newer {
        /// The path of the journal.
        path: PathBuf,
        /// The [`JOURNAL_VERSION`] of the Penstock that wrote it.
        version: u32,
    },
}

/// A journal in a file.
#[derive(Debug)]
pub struct FileJournal {
    path: PathBuf,
    file: File,
    /// How many of its bytes are whole entries.
    length: u64,
}

impl FileJournal {
    /// Opens the journal at `path` for appending, creating it. A last line that was cut off is taken away first, so that
    /// what follows does not become part of it.
    ///
    /// # Errors
    ///
    /// [`JournalError::File`] when it cannot be opened or read, [`JournalError::Write`] when its cut-off end cannot be taken
    /// away.
    pub fn open(path: impl Into<PathBuf>) -> Result<FileJournal, JournalError> {
        let path = path.into();
        let file = files::append(&path)?;
        let bytes = files::read_whole(&path, JOURNAL_LIMIT)?;
        if bytes.is_empty()
            && let Some(directory) = path.parent()
        {
            files::sync_directory(directory)?;
        }
        let whole = whole_lines(&bytes);
        if whole < bytes.len() {
            file.set_len(whole as u64)
                .map_err(|source| JournalError::Write { path: path.clone(), source })?;
        }
        Ok(FileJournal { path, file, length: whole as u64 })
    }
}

impl Journal for FileJournal {
    fn record(&mut self, entries: &[Entry], sync: bool) -> Result<(), JournalError> {
        append(&mut self.file, &mut self.length, entries, sync)
            .map_err(|source| JournalError::Write { path: self.path.clone(), source })
    }
}

/// Appends entries to a file that has `length` bytes of whole ones, all of them or none: what a full disk cut off is taken
/// away again, so that the next entry does not become part of it.
fn append(file: &mut File, length: &mut u64, entries: &[Entry], sync: bool) -> io::Result<()> {
    let mut lines = Vec::new();
    for entry in entries {
        serde_json::to_writer(&mut lines, entry)?;
        lines.push(b'\n');
    }
    // Also before: after an earlier failure, cutting back may have failed as well.
    if file.metadata()?.len() != *length {
        file.set_len(*length)?;
    }
    let written = file.write_all(&lines).and_then(|()| if sync { file.sync_data() } else { Ok(()) });
    match written {
        Ok(()) => *length += lines.len() as u64,
        Err(_) => drop(file.set_len(*length)),
    }
    written
}

/// A journal in memory, for a run that nobody has to take up again.
impl Journal for Vec<Entry> {
    fn record(&mut self, entries: &[Entry], _: bool) -> Result<(), JournalError> {
        self.extend_from_slice(entries);
        Ok(())
    }
}

/// How many bytes make whole lines.
fn whole_lines(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1)
}

/// The entries of the journal at `path`. A last line that was cut off is left out: what it announced was not yet begun.
///
/// # Errors
///
/// See [`read_past_damage`], which gives what can be read all the same.
pub fn read(path: impl AsRef<Path>) -> Result<Vec<Entry>, JournalError> {
    match read_past_damage(path) {
        (entries, None) => Ok(entries),
        (_, Some(damage)) => Err(damage),
    }
}

/// The entries of the journal at `path` that can be read, and the first thing that is wrong with it: it cannot be read at all, has
/// lines that are no entries, or is of a newer Penstock (of which nothing is relied on).
pub fn read_past_damage(path: impl AsRef<Path>) -> (Vec<Entry>, Option<JournalError>) {
    let path = path.as_ref();
    let bytes = match files::read_whole(path, JOURNAL_LIMIT) {
        Ok(bytes) => bytes,
        Err(error) => return (Vec::new(), Some(error.into())),
    };
    let (mut entries, mut damage) = (Vec::new(), None);
    let whole = whole_lines(&bytes);
    for (number, line) in bytes[..whole].split_inclusive(|b| *b == b'\n').enumerate() {
        match serde_json::from_slice(line) {
            Ok(Entry::Begin { version, .. }) if version > JOURNAL_VERSION => {
                return (Vec::new(), Some(JournalError::Newer { path: path.to_owned(), version }));
            }
            Ok(entry) => entries.push(entry),
            Err(source) if damage.is_none() => {
                damage = Some(JournalError::Damaged { path: path.to_owned(), line: number + 1, source });
            }
            // Told of by the first.
            Err(_) => {}
        }
    }
    (entries, damage)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use penstock_plan::FunctionAction;

    use super::*;

    fn entries() -> Vec<Entry> {
        let pf = "0000:04:00.0".parse().unwrap();
        vec![
            Entry::Begin { version: 1, steps: 1 },
            Entry::Intent {
                step: StepId(1),
                action: FunctionAction::SetVfCount { pf, count: 2 }.into(),
                inverse: Some(FunctionAction::SetVfCount { pf, count: 0 }.into()),
            },
            Entry::Outcome { step: StepId(1), outcome: Ending::Done, detail: None },
            Entry::End { applied: true },
        ]
    }

    #[test]
    fn a_journal_cut_off_at_any_byte_reads_as_the_entries_that_were_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let mut journal = FileJournal::open(&path).unwrap();
        journal.record(&entries()[..2], true).unwrap();
        journal.record(&entries()[2..], false).unwrap();
        assert_eq!(read(&path).unwrap(), entries());

        let whole = files::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let read = read(&path).unwrap();
            let lines = whole[..length].iter().filter(|b| **b == b'\n').count();
            assert_eq!(read, entries()[..lines], "cut at {length}");
        }
    }

    #[test]
    fn a_journal_that_was_cut_off_is_continued_after_its_last_whole_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        FileJournal::open(&path).unwrap().record(&entries()[..2], true).unwrap();
        let length = files::length(&path).unwrap() as usize;
        let bytes = files::read(&path).unwrap();
        std::fs::write(&path, &bytes[..length - 3]).unwrap();
        FileJournal::open(&path).unwrap().record(&entries()[1..], true).unwrap();
        assert_eq!(read(&path).unwrap(), entries());
    }

    #[test]
    fn an_entry_that_a_full_disk_cut_off_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let mut journal = FileJournal::open(&path).unwrap();
        journal.record(&entries()[..2], true).unwrap();
        let whole = files::length(&path).unwrap();
        // What a write leaves that got 5 bytes onto the disk before it failed, and could not be cut back then either.
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"ent").unwrap();
        journal.record(&entries()[2..], true).unwrap();
        assert_eq!(read(&path).unwrap(), entries());
        assert!(files::length(&path).unwrap() > whole);
    }

    #[test]
    fn a_write_that_fails_is_cut_back_to_the_last_whole_entry() {
        // /dev/full answers each write with ENOSPC and has no length to set: the error is told, and the count stays.
        let mut full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut length = 0;
        let error = append(&mut full, &mut length, &entries(), false).unwrap_err();
        assert_eq!((error.kind(), length), (io::ErrorKind::StorageFull, 0));
    }

    #[test]
    fn what_is_somebody_elses_by_now_is_told_apart_and_is_taken_back_to_readers_of_before() {
        let of_before = r#"{"entry":"undone","step":1}"#;
        let taken_back = Entry::Undone { step: StepId(1), error: None, anothers: None };
        assert_eq!(serde_json::from_str::<Entry>(of_before).unwrap(), taken_back);
        assert_eq!(serde_json::to_string(&taken_back).unwrap(), of_before);
        let left = Entry::Undone { step: StepId(1), error: None, anothers: Some("it has 8 VFs".to_owned()) };
        let text = serde_json::to_value(&left).unwrap();
        assert_eq!(text.get("error"), None, "that alone is what they look at");
        assert_eq!(serde_json::from_value::<Entry>(text).unwrap(), left);
    }

    #[test]
    fn damage_in_the_middle_and_a_newer_version_are_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        files::write_atomic(&path, "{\"entry\":\"begin\",\"version\":1,\"steps\":1}\nnonsense\n").unwrap();
        assert!(matches!(read(&path), Err(JournalError::Damaged { line: 2, .. })));
        files::write_atomic(&path, "{\"entry\":\"begin\",\"version\":99,\"steps\":1}\n").unwrap();
        assert!(matches!(read(&path), Err(JournalError::Newer { version: 99, .. })));
    }
}
