//! A tree of what was read of a machine, and of nothing else, so that it can be looked at again at a desk.
//!
//! Files are plain files with what was read of them, links are links, and a directory that was listed has empty entries
//! of all its names. What could not be read is in a list of its own ([`ERRORS`]), since whoever looks at the tree may be
//! root, or may not be.
//!
//! The tree gives nobody what only root could read: its directories are for their owner alone (0700), and so are files that not
//! everybody could read where they were (0600). It holds them, since the audit judged them; whoever hands the tree on decides.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, DirBuilder, DirEntry, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Component, Path, PathBuf},
    sync::Mutex,
};

use nix::fcntl::OFlag;

use crate::files::{self, FileError};

/// In the tree: one line for each path that could not be read, the number of the error (errno(3)) before it.
pub const ERRORS: &str = ".errors";
/// No such list is longer: a path and its number for each CPU and interrupt of a large machine.
const ERRORS_LIMIT: usize = 4 << 20;
/// Directories of the tree are their owner's.
const DIRECTORY_MODE: u32 = 0o700;
/// Files that not everybody could read, too.
const PRIVATE_MODE: u32 = 0o600;
/// As many links on the way to a file as Linux follows (`MAXSYMLINKS`).
const LINKS: usize = 40;

/// Something in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Its file name, without the directory; bytes that are no UTF-8 are replaced.
    pub name: String,
    /// Whether it is a directory itself, not a link to one.
    pub directory: bool,
    /// Whether it is a symbolic link.
    pub link: bool,
}

impl Entry {
    pub(crate) fn of(entry: &DirEntry) -> Entry {
        let kind = entry.file_type().ok();
        Entry {
            name: entry.file_name().to_string_lossy().into_owned(),
            directory: kind.is_some_and(|kind| kind.is_dir()),
            link: kind.is_some_and(|kind| kind.is_symlink()),
        }
    }
}

/// What has been looked at.
#[derive(Debug, Default)]
struct Notes {
    files: BTreeMap<String, Vec<u8>>,
    directories: BTreeMap<String, Vec<Entry>>,
    there: BTreeSet<String>,
    links: BTreeSet<String>,
    errors: BTreeMap<String, i32>,
}

/// Notes what is looked at below a root ([`Root::recording`](crate::Root::recording)).
#[derive(Debug, Default)]
pub struct Recorder(Mutex<Notes>);

/// What a tree has come to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Files with something in them.
    pub files: usize,
    /// Bytes of them.
    pub bytes: usize,
    /// Of the files: those that not everybody may read on this machine.
    pub private: usize,
    /// Paths that could not be read.
    pub errors: usize,
}

impl Recorder {
    fn note(&self, note: impl FnOnce(&mut Notes)) {
        // Whoever panicked while noting left what was noted before.
        let mut seen = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        note(&mut seen);
    }

    pub(crate) fn file(&self, path: &str, bytes: &[u8]) {
        self.note(|seen| drop(seen.files.insert(path.to_owned(), bytes.to_owned())));
    }

    pub(crate) fn directory(&self, path: &str, entries: &[Entry]) {
        self.note(|seen| drop(seen.directories.insert(path.to_owned(), entries.to_owned())));
    }

    pub(crate) fn there(&self, path: &str) {
        self.note(|seen| _ = seen.there.insert(path.to_owned()));
    }

    pub(crate) fn link(&self, path: &str) {
        self.note(|seen| _ = seen.links.insert(path.to_owned()));
    }

    pub(crate) fn failed(&self, path: &str, error: &io::Error) {
        // What is not there is not in the tree either.
        if error.kind() == io::ErrorKind::NotFound {
            return;
        }
        if let Some(errno) = error.raw_os_error() {
            self.note(|seen| _ = seen.errors.insert(path.to_owned(), errno));
        }
    }

    /// Writes the tree of what was looked at below `from` into the directory `to`, which is made, or is empty.
    ///
    /// # Errors
    ///
    /// `to` holds something already, is not this user's own, or something cannot be written there.
    pub fn write(&self, from: &Path, to: &Path) -> files::Result<Recorded> {
        // What comes into it is nobody else's to read or to exchange, from the first byte on.
        let held = files::hold_own_directory(to)?;
        if !files::list(to)?.is_empty() {
            let source = io::Error::other("it is not empty");
            return Err(FileError { attempt: "record into", path: to.to_owned(), source });
        }
        // Whatever becomes of its name: who owns a directory above it can change that.
        let to = &held.path();
        let seen = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let tree = Tree { from, to };
        let mut private = 0;
        for (path, bytes) in &seen.files {
            let place = tree.place(path)?;
            if let Some(parent) = place.parent() {
                make_directories(parent)?;
            }
            let mode = tree.mode(path);
            private += usize::from(mode == PRIVATE_MODE);
            new_file(&place, bytes, mode)?;
        }
        for path in &seen.links {
            tree.place(path)?;
        }
        for (path, entries) in &seen.directories {
            let place = tree.place(path)?;
            make_directories(&place)?;
            for entry in entries {
                tree.name(path, &place, entry)?;
            }
        }
        for path in &seen.there {
            let place = tree.place(path)?;
            match fs::metadata(from.join(path.trim_start_matches('/'))) {
                Ok(data) if data.is_dir() => make_directories(&place)?,
                _ => empty_file(&place)?,
            }
        }
        let errors: String =
            seen.errors.iter().map(|(path, errno)| format!("{errno} {}\n", one_line(path))).collect();
        new_file(&to.join(ERRORS), errors.as_bytes(), PRIVATE_MODE)?;
        Ok(Recorded {
            files: seen.files.len(),
            bytes: seen.files.values().map(Vec::len).sum(),
            private,
            errors: seen.errors.len(),
        })
    }
}

/// The list of what could not be read, as a recorded tree has it; empty for a tree that has none.
pub(crate) fn errors(tree: &Path) -> BTreeMap<String, i32> {
    let Ok(bytes) = files::read_in_root(tree, ERRORS, ERRORS_LIMIT) else { return BTreeMap::new() };
    let text = String::from_utf8_lossy(&bytes);
    let entry = |line: &str| {
        let (errno, path) = line.split_once(' ')?;
        Some((path.to_owned(), errno.parse().ok().filter(|errno| *errno > 0)?))
    };
    text.lines().filter_map(entry).collect()
}

fn one_line(path: &str) -> String {
    path.replace('\n', "?")
}

struct Tree<'a> {
    from: &'a Path,
    to: &'a Path,
}

impl Tree<'_> {
    /// Who may read the record of a file: everybody only if everybody may read the file. Groups are others where the tree is
    /// unpacked, and of what is gone by now nobody knows.
    fn mode(&self, path: &str) -> u32 {
        let data = fs::metadata(self.from.join(path.trim_start_matches('/')));
        if data.is_ok_and(|data| data.mode() & 0o004 != 0) { 0o644 } else { PRIVATE_MODE }
    }

    /// Where a path's file belongs in the tree, with the links on the way to it made.
    fn place(&self, path: &str) -> files::Result<PathBuf> {
        let mut at = PathBuf::new();
        let mut rest: Vec<String> = parts(Path::new(path));
        rest.reverse();
        let mut links = 0;
        while let Some(part) = rest.pop() {
            if part == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&part);
            match fs::read_link(self.from.join(&next)) {
                Ok(target) if links < LINKS => {
                    links += 1;
                    self.link(&next, &target)?;
                    if target.is_absolute() {
                        at = PathBuf::new();
                    }
                    rest.extend(parts(&target).into_iter().rev());
                }
                _ => at = next,
            }
        }
        Ok(self.to.join(at))
    }

    /// Makes the link `at`, so that it stays within the tree.
    fn link(&self, at: &Path, target: &Path) -> files::Result<()> {
        let path = self.to.join(at);
        if let Some(parent) = path.parent() {
            make_directories(parent)?;
        }
        let up = at.components().count().saturating_sub(1);
        let relative = match target.strip_prefix("/") {
            Ok(inner) => std::iter::repeat_n("..", up).collect::<PathBuf>().join(inner),
            Err(_) => target.to_owned(),
        };
        match std::os::unix::fs::symlink(&relative, &path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(FileError { attempt: "make the link", path, source: error })
            }
            _ => Ok(()),
        }
    }

    /// Makes something of this name in a directory that was listed.
    fn name(&self, path: &str, place: &Path, entry: &Entry) -> files::Result<()> {
        let at = place.join(&entry.name);
        if fs::symlink_metadata(&at).is_ok() {
            return Ok(());
        }
        if entry.link {
            let within = place.strip_prefix(self.to).unwrap_or(place).join(&entry.name);
            let target = fs::read_link(self.from.join(path.trim_start_matches('/')).join(&entry.name));
            return target.map_or(Ok(()), |target| self.link(&within, &target));
        }
        if entry.directory { make_directories(&at) } else { empty_file(&at) }
    }
}

/// The parts of a path below the root, `..` among them.
fn parts(path: &Path) -> Vec<String> {
    let part = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        Component::ParentDir => Some("..".to_owned()),
        _ => None,
    };
    path.components().filter_map(part).collect()
}

fn empty_file(path: &Path) -> files::Result<()> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_directories(parent)?;
    }
    new_file(path, b"", PRIVATE_MODE)
}

/// Makes a directory of the tree and those above it; already there is success.
fn make_directories(path: &Path) -> files::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path);
    made.map_err(|source| FileError { attempt: "create the directory", path: path.to_owned(), source })
}

/// Makes a file of the tree. It may be there: several paths can lead to one file.
fn new_file(path: &Path, bytes: &[u8], mode: u32) -> files::Result<()> {
    let mut how = OpenOptions::new();
    how.write(true).create(true).truncate(true).mode(mode).custom_flags(OFlag::O_NOFOLLOW.bits());
    let write = || how.open(path)?.write_all(bytes);
    write().map_err(|source| FileError { attempt: "write", path: path.to_owned(), source })
}
