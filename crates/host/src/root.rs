//! Where a machine's file systems are looked for.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Component, Path, PathBuf},
    sync::{Arc, OnceLock},
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, readlinkat},
    sys::stat::Mode,
};

use crate::{
    files,
    record::{Entry, Recorder},
};

/// A directory with more entries than this is no directory of a kernel's.
pub(crate) const ENTRIES: usize = 100_000;

/// The directory that stands for `/`: the real one, or a fixture's, or a recorded tree. A value, never a global.
#[derive(Clone, Debug)]
pub struct Root {
    directory: PathBuf,
    /// The directory, once something in a tree that stands for a machine was looked at.
    held: Arc<OnceLock<OwnedFd>>,
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
        Root { directory: directory.into(), held: Arc::default(), recorder: None, errors: None }
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

    /// Opens what lies in a tree that stands for a machine, or a path to it. No link leads out of the tree: somebody else may have made
    /// it.
    fn open_in_tree(&self, path: &str, flags: OFlag) -> io::Result<OwnedFd> {
        let held = match self.held.get() {
            Some(held) => held,
            None => {
                let opened = File::open(&self.directory)?;
                self.held.get_or_init(|| opened.into())
            }
        };
        match files::open_in_root(held, path, flags) {
            Err(error) if files::lacks_openat2(&error) => {
                Ok(nix::fcntl::open(&self.path(path), flags | OFlag::O_CLOEXEC, Mode::empty())?)
            }
            opened => opened,
        }
    }

    /// At most `limit` bytes of a plain file, and whether there is more.
    pub(crate) fn read(&self, path: &str, limit: usize) -> io::Result<(Vec<u8>, bool)> {
        let outcome = self.failed(path).and_then(|()| self.read_file(path, limit));
        if let Some(recorder) = &self.recorder {
            match &outcome {
                Ok((bytes, _)) => recorder.file(&self.directory, path, bytes),
                Err(error) => recorder.failed(path, error),
            }
        }
        outcome
    }

    fn read_file(&self, path: &str, limit: usize) -> io::Result<(Vec<u8>, bool)> {
        if !self.is_system() {
            let mut bytes = files::read_opened(self.open_in_tree(path, OFlag::O_PATH)?, limit + 1)?;
            let more = bytes.len() > limit;
            bytes.truncate(limit);
            return Ok((bytes, more));
        }
        files::read_at_most(self.path(path), limit).map_err(|error| error.source)
    }

    /// Whether something is there, after symbolic links.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let there = match self.is_system() {
            true => files::exists(self.path(path)),
            false => self.open_in_tree(path, OFlag::O_PATH).is_ok(),
        };
        if let Some(recorder) = self.recorder.as_ref().filter(|_| there) {
            recorder.there(&self.directory, path);
        }
        there
    }

    /// What is in a directory, sorted by name: at most `limit` names, and which of more is left to chance.
    pub(crate) fn entries(&self, path: &str, limit: usize) -> io::Result<Vec<Entry>> {
        let list = || -> io::Result<Vec<Entry>> {
            self.failed(path)?;
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            let open = match self.is_system() {
                true => nix::fcntl::open(&self.path(path), flags, Mode::empty())?,
                false => self.open_in_tree(path, flags)?,
            };
            Entry::all(open, limit)
        };
        let mut outcome = list();
        if let Ok(entries) = &mut outcome {
            entries.sort();
        }
        if let Some(recorder) = &self.recorder {
            match &outcome {
                Ok(entries) => recorder.directory(&self.directory, path, entries),
                Err(error) => recorder.failed(path, error),
            }
        }
        outcome
    }

    /// Where a symbolic link points, as it is written.
    pub(crate) fn target(&self, path: &str) -> io::Result<PathBuf> {
        let read = || match self.is_system() {
            true => fs::read_link(self.path(path)),
            // What is no link has an error as readlink(2) has it.
            false => match readlinkat(self.open_in_tree(path, OFlag::O_PATH | OFlag::O_NOFOLLOW)?, "") {
                Err(Errno::ENOENT) => Err(Errno::EINVAL.into()),
                target => Ok(target?.into()),
            },
        };
        let outcome = self.failed(path).and_then(|()| read()).map(|target| self.as_recorded(path, target));
        if let Some(recorder) = &self.recorder {
            match &outcome {
                Ok(target) => recorder.link(&self.directory, path, target),
                Err(error) => recorder.failed(path, error),
            }
        }
        outcome
    }

    /// What a link of a recorded tree said on its machine: where it climbs exactly to the root it was absolute, or might have been.
    fn as_recorded(&self, path: &str, target: PathBuf) -> PathBuf {
        if self.errors.is_none() || target.is_absolute() {
            return target;
        }
        let up = target.components().take_while(|part| *part == Component::ParentDir).count();
        let parent = path.trim_end_matches('/').rsplit_once('/').map_or("/", |(parent, _)| parent);
        let depth = || Some(Path::new(&self.canonical_of(parent)?).components().count() - 1);
        match up > 0 && depth() == Some(up) {
            true => Path::new("/").join(target.components().skip(up).collect::<PathBuf>()),
            false => target,
        }
    }

    /// The path without symbolic links, if it is there and below the root.
    pub(crate) fn canonical(&self, path: &str) -> Option<String> {
        let canonical = self.canonical_of(path)?;
        if let Some(recorder) = &self.recorder {
            recorder.there(&self.directory, path);
        }
        Some(canonical)
    }

    fn canonical_of(&self, path: &str) -> Option<String> {
        if self.is_system() {
            return Some(files::canonical(self.path(path)).ok()?.to_str()?.to_owned());
        }
        // The kernel's own name of what is open.
        let name =
            |open: &dyn AsFd| files::read_link(format!("/proc/self/fd/{}", open.as_fd().as_raw_fd())).ok();
        let found = name(&self.open_in_tree(path, OFlag::O_PATH).ok()?)?;
        Some(format!("/{}", found.strip_prefix(name(self.held.get()?)?).ok()?.to_str()?))
    }

    /// Notes that a file holds `bytes`, where not all that was read of it is to be recorded, or it was read in another way.
    pub(crate) fn note(&self, path: &str, outcome: Result<&[u8], &io::Error>) {
        match (&self.recorder, outcome) {
            (Some(recorder), Ok(bytes)) => recorder.file(&self.directory, path, bytes),
            (Some(recorder), Err(error)) => recorder.failed(path, error),
            (None, _) => {}
        }
    }

    /// Has a recorder add a file that this machine does not have.
    pub(crate) fn add(&self, path: &str, bytes: &[u8]) {
        if let Some(recorder) = &self.recorder {
            recorder.added(path, bytes);
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

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_of_a_recorded_tree_says_what_it_said_on_its_machine() {
        let machine = tempfile::tempdir().unwrap();
        let at = |name: &str| machine.path().join(name);
        fs::create_dir_all(at("proc/7/fd")).unwrap();
        fs::create_dir_all(at("sys/class/net")).unwrap();
        fs::create_dir_all(at("sys/devices/eth0")).unwrap();
        symlink("/dev/vfio/7", at("proc/7/fd/3")).unwrap();
        symlink("socket:[12]", at("proc/7/fd/4")).unwrap();
        symlink("../../devices/eth0", at("sys/class/net/eth0")).unwrap();
        symlink("/sys/bus/pci", at("sys/devices/eth0/subsystem")).unwrap();
        let links = [
            ("/proc/7/fd/3", "/dev/vfio/7"),
            ("/proc/7/fd/4", "socket:[12]"),
            ("/sys/class/net/eth0", "../../devices/eth0"),
            ("/sys/class/net/eth0/subsystem", "/sys/bus/pci"),
        ];
        let recorder = Arc::new(Recorder::default());
        let root = Root::at(machine.path()).recording(recorder.clone());
        for (path, target) in links {
            assert_eq!(root.target(path).unwrap(), Path::new(target));
        }
        let to = tempfile::tempdir().unwrap();
        recorder.write(to.path()).unwrap();
        for (path, target) in links {
            assert_eq!(Root::recorded(to.path()).target(path).unwrap(), Path::new(target), "{path}");
        }
    }

    #[test]
    fn links_of_a_tree_lead_nobody_out_of_it() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("file"), "secret").unwrap();
        symlink("file", outside.path().join("link")).unwrap();
        let tree = tempfile::tempdir().unwrap();
        let at = |name: &str| tree.path().join(name);
        fs::create_dir_all(at("sys/real")).unwrap();
        symlink("../real", at("sys/real/loop")).unwrap();
        symlink(outside.path(), at("sys/out")).unwrap();
        let up = format!("{}{}", "../".repeat(40), outside.path().strip_prefix("/").unwrap().display());
        symlink(up, at("sys/up")).unwrap();
        let root = Root::at(tree.path());
        for out in ["/sys/out", "/sys/up"] {
            assert!(!root.exists(out) && root.canonical(out).is_none(), "{out}");
            assert!(root.entries(out, 10).is_err() && root.target(&format!("{out}/link")).is_err(), "{out}");
            assert!(root.target(out).is_ok(), "the link itself is of the tree");
        }
        // What is in the tree is found as before, also with more `..` than there are directories.
        for inside in ["/sys/real", "/sys/real/loop", "/../../sys/real"] {
            assert_eq!(root.canonical(inside).as_deref(), Some("/sys/real"));
            assert!(root.exists(inside));
            assert_eq!(root.entries(inside, 10).unwrap().len(), 1);
        }
        assert_eq!(root.canonical("/").as_deref(), Some("/"));
        assert_eq!(root.target("/sys/real/loop").unwrap(), Path::new("../real"));
        assert_eq!(root.target("/sys/real").unwrap_err().raw_os_error(), Some(Errno::EINVAL as i32));
        assert_eq!(root.target("/sys/none").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(root.entries("/sys", 2).unwrap().len(), 2, "no more than asked for");
    }
}
