//! A journal that is written when it can be.

use std::{cell::RefCell, path::PathBuf, rc::Rc};

use penstock_host::files;

use super::{Entry, FileJournal, Journal, JournalError};

/// A journal in a file that keeps in memory what cannot be written now, and writes it before whatever comes next. For a way
/// back, which goes on when nothing can be recorded. All clones are one journal.
#[derive(Clone, Debug)]
pub struct CatchUpJournal(Rc<RefCell<Inner>>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    file: Option<FileJournal>,
    pending: Vec<Entry>,
}

impl CatchUpJournal {
    /// The journal at `path`, which is opened when there is something to write.
    pub fn new(path: impl Into<PathBuf>) -> CatchUpJournal {
        CatchUpJournal(Rc::new(RefCell::new(Inner { path: path.into(), file: None, pending: Vec::new() })))
    }

    /// A journal that nobody can read later: for what could not be given a place on the disk.
    pub fn nowhere() -> CatchUpJournal {
        CatchUpJournal::new("")
    }

    /// Forgets what could not be written: before a new attempt, which tells all of it again. Whoever else has written to the journal since the
    /// last keeps that.
    pub fn forget(&self) {
        let mut inner = self.0.borrow_mut();
        inner.pending.clear();
        inner.file = None;
    }

    /// Writes what could not be written before; it is on disk then.
    ///
    /// # Errors
    ///
    /// It still cannot be, and is kept.
    pub fn catch_up(&self) -> Result<(), JournalError> {
        self.0.borrow_mut().write(true)
    }
}

impl Inner {
    fn write(&mut self, sync: bool) -> Result<(), JournalError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(FileJournal::open(&self.path)?),
        };
        if let Err(error) = file.record(&self.pending, sync) {
            // Others may write before that is tried again: how long the file was says nothing then.
            self.file = None;
            return Err(error);
        }
        self.pending.clear();
        Ok(())
    }
}

impl Journal for CatchUpJournal {
    fn record(&mut self, entries: &[Entry], sync: bool) -> Result<(), JournalError> {
        let mut inner = self.0.borrow_mut();
        inner.pending.extend_from_slice(entries);
        inner.write(sync)
    }

    fn length(&self) -> Option<u64> {
        files::length(&self.0.borrow().path).ok()
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::fs::File;

    use penstock_plan::StepId;

    use super::*;
    use crate::journal::read;

    #[test]
    fn what_could_not_be_written_comes_first_when_it_can() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("there/journal");
        let entry = |step| Entry::Undone { step: StepId(step), error: None, anothers: None };
        let mut journal = CatchUpJournal::new(&path);
        assert!(journal.record(&[entry(1)], true).is_err());
        assert!(journal.clone().record(&[entry(2)], false).is_err());
        assert!(journal.catch_up().is_err());
        std::fs::create_dir(directory.path().join("there")).unwrap();
        journal.record(&[entry(3)], false).unwrap();
        journal.catch_up().unwrap();
        assert_eq!(read(&path).unwrap(), [entry(1), entry(2), entry(3)]);
    }

    #[test]
    fn what_somebody_else_has_written_between_two_attempts_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let entry = |step| Entry::Undone { step: StepId(step), error: None, anothers: None };
        let mut journal = CatchUpJournal::new(&path);
        journal.record(&[entry(1)], true).unwrap();
        FileJournal::open(&path).unwrap().record(&[entry(2)], true).unwrap();
        journal.forget();
        journal.record(&[entry(3)], true).unwrap();
        assert_eq!(read(&path).unwrap(), [entry(1), entry(2), entry(3)]);
    }

    /// The disk is full; whoever frees it calls `penstock undo` before what is left is written.
    #[test]
    fn what_somebody_else_has_written_since_a_write_failed_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let entry = |step| Entry::Undone { step: StepId(step), error: None, anothers: None };
        let mut journal = CatchUpJournal::new(&path);
        let held_is = |journal: &CatchUpJournal, file: File| {
            if let Some(held) = &mut journal.0.borrow_mut().file {
                held.file = file;
            }
        };
        journal.record(&[entry(1)], true).unwrap();
        // Nothing can be written to it.
        held_is(&journal, File::open(&path).unwrap());
        assert!(journal.record(&[entry(2)], true).is_err());
        held_is(&journal, files::append(&path).unwrap());
        FileJournal::open(&path).unwrap().record(&[entry(3)], true).unwrap();
        journal.catch_up().unwrap();
        assert_eq!(read(&path).unwrap(), [entry(1), entry(3), entry(2)]);
    }
}
