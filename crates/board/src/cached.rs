//! What is made once and kept in the cache: it has its name when it is whole, and no one else makes it meanwhile.

use std::{
    io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use penstock_host::{
    files::{self, FileError, Lock},
    interrupt,
};

use crate::{
    error::BoardError,
    progress::{Listener, Progress},
};

/// What `look` finds in `directory`; where that is nothing, after `make` has made it in another directory, which gets that name. Of two
/// Penstocks that make it, the second waits for the first. The directory above must be there.
///
/// # Errors
///
/// What `look` and `make` say, [`BoardError::Interrupted`] while another makes it, [`BoardError::File`]. Nothing is left then.
pub fn once<T, E: From<BoardError>>(
    directory: &Path,
    listener: Listener<'_>,
    look: impl Fn() -> Result<Option<T>, E>,
    make: impl FnOnce(&Path, Listener<'_>) -> Result<(), E>,
) -> Result<T, E> {
    if let Some(found) = look()? {
        return Ok(found);
    }
    let _lock = lock(&directory.with_extension("lock"), listener)?;
    if let Some(found) = look()? {
        return Ok(found);
    }
    let part = Part::new(directory.with_extension("part"))?;
    make(&part.0, listener)?;
    part.name(directory)?;
    look()?.ok_or_else(|| {
        let what = "it is not there although it was just made".to_owned();
        BoardError::Damaged { directory: directory.to_owned(), what }.into()
    })
}

/// The lock `path`, waited for until it is ours or an interrupt comes.
///
/// # Errors
///
/// [`BoardError::Interrupted`], [`BoardError::File`] when the file cannot be made or locked.
pub fn lock(path: &Path, listener: Listener<'_>) -> Result<Lock, BoardError> {
    let mut told = false;
    loop {
        if let Some(lock) = Lock::try_exclusive(path)? {
            return Ok(lock);
        }
        if !told {
            listener(Progress::Phase("Waiting for another penstock that makes the same".to_owned()));
            told = true;
        }
        if interrupt::pending() {
            return Err(BoardError::Interrupted { doing: "waiting for another penstock" });
        }
        // flock(2) has no event that can be waited for together with an interrupt.
        thread::sleep(Duration::from_millis(200));
    }
}

/// A directory in which something is made; removed unless it gets its final name.
struct Part(PathBuf);

impl Part {
    fn new(directory: PathBuf) -> Result<Part, BoardError> {
        // Whoever left it was killed: its lock is ours now.
        files::remove_tree(&directory)?;
        files::create_dir_all(&directory)?;
        Ok(Part(directory))
    }

    /// Gives it its name once all that is in it is on disk: a power cut leaves no name to half of it.
    fn name(self, directory: &Path) -> Result<(), BoardError> {
        sync(&self.0)?;
        // What has the name and was not taken for it.
        files::remove_tree(directory)?;
        files::rename(&self.0, directory)?;
        Ok(directory.parent().map_or(Ok(()), files::sync_directory)?)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = files::remove_tree(&self.0);
    }
}

/// Has all that is in a directory on disk.
fn sync(directory: &Path) -> files::Result<()> {
    for name in files::list(directory)? {
        let path = directory.join(name);
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            sync(&path)?;
            continue;
        }
        let failed = |source: io::Error| FileError { attempt: "sync", path: path.clone(), source };
        files::open(&path)?.sync_all().map_err(failed)?;
    }
    files::sync_directory(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_whole_or_not_there() {
        let there = tempfile::tempdir().unwrap();
        let directory = there.path().join("it");
        let file = directory.join("tree/file");
        let look = || Ok::<_, BoardError>(files::length(&file).ok().filter(|length| *length > 0));
        let write = |at: &Path| -> Result<(), BoardError> {
            files::create_dir_all(at.join("tree"))?;
            files::link("nowhere", at.join("link"))?;
            Ok(files::write_atomic(at.join("tree/file"), "all of it")?)
        };
        let failed = once(&directory, &mut |_| {}, look, |at, _| {
            write(at)?;
            Err(BoardError::NoSwitch)
        });
        assert!(matches!(failed, Err(BoardError::NoSwitch)));
        assert_eq!(files::list(there.path()).unwrap(), ["it.lock"]);
        // What a power cut has left: a name, and nothing behind it.
        files::create_dir_all(file.parent().unwrap()).unwrap();
        files::write_atomic(&file, "").unwrap();
        files::write_atomic(directory.join("other"), "").unwrap();
        assert_eq!(once(&directory, &mut |_| {}, look, |at, _| write(at)).unwrap(), 9);
        assert_eq!(files::list(&directory).unwrap(), ["link", "tree"]);
        let again = once(&directory, &mut |_| {}, look, |_, _| panic!("it is there"));
        assert_eq!(again.unwrap(), 9);
    }
}
