//! Where a machine's file systems are looked for.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::errno::Errno;

use crate::{
    files,
    record::{Entry, Recorder},
};

/// The directory that stands for `/`: the real one, or a fixture's, or a recorded tree. A value, never a global.
#[derive(Clone, Debug)]
pub struct Root {
    directory: PathBuf,
    /// Notes what is looked at.
    recorder: Option<Arc<Recorder>>,
    /// What could not be read where the tree was recorded, and the error that the kernel gave.
    errors: Option<Arc<BTreeMap<String, i32>>>,
}

impl PartialEq for Root {
    fn eq(&self, other: &Root) -> bool {
        self.directory == other.directory
    }
}

impl Eq for Root {}

impl Root {
    /// The machine that Penstock runs on.
    pub fn system() -> Root {
        Root::at("/")
    }

    /// A tree that stands for a machine.
    pub fn at(directory: impl Into<PathBuf>) -> Root {
        Root { directory: directory.into(), recorder: None, errors: None }
    }

    /// A tree that was recorded of a machine: what could not be read there cannot be read here, for the same reason.
    pub fn recorded(directory: impl Into<PathBuf>) -> Root {
        let root = Root::at(directory);
        let errors = crate::record::errors(&root.directory);
        Root { errors: Some(Arc::new(errors)), ..root }
    }

    /// The same, with what is looked at noted by `recorder`.
    pub fn recording(self, recorder: Arc<Recorder>) -> Root {
        Root { recorder: Some(recorder), ..self }
    }

    /// Whether this is the machine that Penstock runs on; only then is there a kernel to ask.
    pub fn is_system(&self) -> bool {
        self.directory == Path::new("/")
    }

    /// The path `absolute` under this root: `root.path("/sys/bus/pci")`.
    pub fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let absolute = absolute.as_ref();
        self.directory.join(absolute.strip_prefix("/").unwrap_or(absolute))
    }

    /// At most `limit` bytes of a plain file, and whether there is more. In a tree that stands for a machine no link leads
    /// out of it: somebody else may have made it.
    pub(crate) fn read(&self, path: &str, limit: usize) -> io::Result<(Vec<u8>, bool)> {
        let outcome = self.failed(path).and_then(|()| self.read_file(path, limit));
        if let Some(recorder) = &self.recorder {
            match &outcome {
                Ok((bytes, _)) => recorder.file(path, bytes),
                Err(error) => recorder.failed(path, error),
            }
        }
        outcome
    }

    fn read_file(&self, path: &str, limit: usize) -> io::Result<(Vec<u8>, bool)> {
        if !self.is_system() {
            match files::read_in_root(&self.directory, path, limit + 1) {
                Ok(mut bytes) => {
                    let more = bytes.len() > limit;
                    bytes.truncate(limit);
                    return Ok((bytes, more));
                }
                // A kernel before Linux 5.6.
                Err(error) if error.source.raw_os_error() == Some(Errno::ENOSYS as i32) => {}
                Err(error) => return Err(error.source),
            }
        }
        let real = self.path(path);
        // A pipe would be waited for without end, so only what is a plain file is opened.
        if !fs::metadata(&real)?.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        files::read_at_most(&real, limit).map_err(|error| error.source)
    }

    /// Whether something is there, after symbolic links.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let there = files::exists(self.path(path));
        if let Some(recorder) = self.recorder.as_ref().filter(|_| there) {
            recorder.there(path);
        }
        there
    }

    /// What is in a directory, sorted by name.
    pub(crate) fn entries(&self, path: &str) -> io::Result<Vec<Entry>> {
        let list = || -> io::Result<Vec<Entry>> {
            self.failed(path)?;
            fs::read_dir(self.path(path))?.map(|entry| Ok(Entry::of(&entry?))).collect()
        };
        let mut outcome = list();
        if let Ok(entries) = &mut outcome {
            entries.sort();
        }
        if let Some(recorder) = &self.recorder {
            match &outcome {
                Ok(entries) => recorder.directory(path, entries),
                Err(error) => recorder.failed(path, error),
            }
        }
        outcome
    }

    /// Where a symbolic link points, as it is written.
    pub(crate) fn target(&self, path: &str) -> io::Result<PathBuf> {
        let outcome = self.failed(path).and_then(|()| fs::read_link(self.path(path)));
        if let Some(recorder) = &self.recorder {
            match &outcome {
                Ok(_) => recorder.link(path),
                Err(error) => recorder.failed(path, error),
            }
        }
        outcome
    }

    /// The path without symbolic links, if it is there and below the root.
    pub(crate) fn canonical(&self, path: &str) -> Option<String> {
        let root = files::canonical(&self.directory).ok()?;
        let real = files::canonical(self.path(path)).ok()?;
        let canonical = format!("/{}", real.strip_prefix(root).ok()?.to_str()?);
        if let Some(recorder) = &self.recorder {
            recorder.there(path);
        }
        Some(canonical)
    }

    /// Notes that a file holds `bytes`, where not all that was read of it is to be recorded, or it was read in another way.
    pub(crate) fn note(&self, path: &str, outcome: Result<&[u8], &io::Error>) {
        match (&self.recorder, outcome) {
            (Some(recorder), Ok(bytes)) => recorder.file(path, bytes),
            (Some(recorder), Err(error)) => recorder.failed(path, error),
            (None, _) => {}
        }
    }

    /// The same without the recorder: for what only a part of is to be recorded.
    pub(crate) fn unnoted(&self) -> Root {
        Root { recorder: None, ..self.clone() }
    }

    /// The error that this path had where the tree was recorded.
    pub(crate) fn failed(&self, path: &str) -> io::Result<()> {
        let error = self.errors.as_ref().and_then(|errors| errors.get(path));
        error.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(*errno)))
    }
}

impl Default for Root {
    fn default() -> Root {
        Root::system()
    }
}
