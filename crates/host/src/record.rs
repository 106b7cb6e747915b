//! A tree of what was read of a machine, and of nothing else, so that it can be looked at again at a desk.
//!
//! Files are plain files with what was read of them, links are links, and a directory that was listed has empty entries
//! of all its names. What could not be read is in a list of its own ([`ERRORS`]), since whoever looks at the tree may be
//! root, or may not be.
//!
//! Links of a machine say what their owners like: any process chooses what its open files are called. So where they lead is noted when
//! they are read, and the tree is written of the notes alone: no link that leads out of it is made, and none is followed.
//!
//! The tree gives nobody what only root could read: its directories are for their owner alone (0700), and so are files that not
//! everybody could read where they were (0600). It holds them, since the audit judged them; whoever hands the tree on decides.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::{Component, Path, PathBuf},
    sync::Mutex,
};

use nix::{
    dir::{Dir, Type},
    errno::Errno,
    fcntl::AtFlags,
    sys::stat::{SFlag, fstatat},
};

use crate::files::{self, FileError, OwnDirectory};

/// In the tree: one line for each path that could not be read, the number of the error (errno(3)) before it.
pub const ERRORS: &str = ".errors";
/// No such list is longer: a path and its number for each CPU and interrupt of a large machine.
const ERRORS_LIMIT: usize = 4 << 20;
/// Directories of the tree are their owner's, and files that not everybody could read, too.
const PRIVATE_MODE: u32 = 0o600;
/// Other files of it.
const PUBLIC_MODE: u32 = 0o644;
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
    /// What is in an open directory, up to a limit.
    pub(crate) fn all(directory: OwnedFd, limit: usize) -> io::Result<Vec<Entry>> {
        let mut directory = Dir::from_fd(directory)?;
        let (mut all, mut unknown) = (Vec::new(), Vec::new());
        for entry in directory.iter() {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if all.len() == limit {
                break;
            }
            let kind = entry.file_type();
            if kind.is_none() {
                unknown.push((all.len(), name.to_owned()));
            }
            all.push(Entry {
                name: name.to_string_lossy().into_owned(),
                directory: kind == Some(Type::Directory),
                link: kind == Some(Type::Symlink),
            });
        }
        // Not every file system says it with the name.
        for (at, name) in unknown {
            let Ok(data) = fstatat(&directory, &*name, AtFlags::AT_SYMLINK_NOFOLLOW) else { continue };
            let kind = SFlag::from_bits_truncate(data.st_mode) & SFlag::S_IFMT;
            all[at].directory = kind == SFlag::S_IFDIR;
            all[at].link = kind == SFlag::S_IFLNK;
        }
        Ok(all)
    }
}

/// What one path of the tree is, without links on the way to it.
#[derive(Debug)]
enum RecordNode {
    Directory,
    /// It was seen to be there, and not looked into.
    Name,
    File {
        bytes: Vec<u8>,
        mode: u32,
    },
    /// A link, as it was read.
    Link(PathBuf),
}

/// What has been looked at, by paths below the root.
#[derive(Debug, Default)]
struct Notes {
    nodes: BTreeMap<PathBuf, RecordNode>,
    errors: BTreeMap<String, i32>,
}

impl Notes {
    /// Notes what is at a path. What was seen there first stays, since what is below it may be noted already.
    fn put(&mut self, at: Option<PathBuf>, node: RecordNode) {
        let Some(at) = at.filter(|at| !at.as_os_str().is_empty()) else { return };
        let replaced = match (self.nodes.get(&at), &node) {
            (None | Some(RecordNode::Name), _) | (Some(RecordNode::File { .. }), RecordNode::File { .. }) => {
                true
            }
            (Some(_), _) => false,
        };
        if replaced {
            self.nodes.insert(at, node);
        }
    }

    /// Where a path belongs in the tree, with the links and directories on the way noted. A link at its end is followed if `through` is
    /// set. `None` where it changed while it was looked at, or links lead in a circle.
    fn place(&mut self, root: &Path, path: &str, through: bool) -> Option<PathBuf> {
        let mut at = PathBuf::new();
        let mut rest = parts(Path::new(path));
        rest.reverse();
        let mut links = 0;
        while let Some(part) = rest.pop() {
            if part == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&part);
            let last = rest.is_empty();
            if last && !through {
                return Some(next);
            }
            if matches!(self.nodes.get(&next), None | Some(RecordNode::Name))
                && let Ok(target) = fs::read_link(root.join(&next))
            {
                self.put(Some(next.clone()), RecordNode::Link(target));
            }
            match self.nodes.get(&next) {
                Some(RecordNode::Link(target)) => {
                    links += 1;
                    if links > LINKS {
                        return None;
                    }
                    if target.is_absolute() {
                        at = PathBuf::new();
                    }
                    rest.extend(parts(target).into_iter().rev());
                    continue;
                }
                Some(RecordNode::File { .. }) if !last => return None,
                None | Some(RecordNode::Name) if !last => self.put(Some(next.clone()), RecordNode::Directory),
                _ => {}
            }
            at = next;
        }
        Some(at)
    }
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

    pub(crate) fn file(&self, root: &Path, path: &str, bytes: &[u8]) {
        let file = || RecordNode::File { bytes: bytes.to_owned(), mode: mode(root, path) };
        self.note(|seen| {
            let at = seen.place(root, path, true);
            seen.put(at, file());
        });
    }

    /// A file that the tree has and the machine does not, for everybody to read.
    pub(crate) fn added(&self, path: &str, bytes: &[u8]) {
        let file = RecordNode::File { bytes: bytes.to_owned(), mode: PUBLIC_MODE };
        self.note(|seen| seen.put(Some(path.trim_start_matches('/').into()), file));
    }

    pub(crate) fn directory(&self, root: &Path, path: &str, entries: &[Entry]) {
        self.note(|seen| {
            let at = seen.place(root, path, true);
            seen.put(at.clone(), RecordNode::Directory);
            let Some(at) = at.filter(|at| matches!(seen.nodes.get(at), Some(RecordNode::Directory))) else {
                return;
            };
            for entry in entries {
                let within = at.join(&entry.name);
                let node = match (entry.link, entry.directory) {
                    (false, true) => RecordNode::Directory,
                    (false, false) => RecordNode::Name,
                    (true, _) => match fs::read_link(root.join(&within)) {
                        Ok(target) => RecordNode::Link(target),
                        Err(_) => continue,
                    },
                };
                seen.put(Some(within), node);
            }
        });
    }

    pub(crate) fn there(&self, root: &Path, path: &str) {
        let directory = fs::metadata(root.join(path.trim_start_matches('/'))).is_ok_and(|data| data.is_dir());
        self.note(|seen| {
            let at = seen.place(root, path, true);
            seen.put(at, if directory { RecordNode::Directory } else { RecordNode::Name });
        });
    }

    pub(crate) fn link(&self, root: &Path, path: &str, target: &Path) {
        self.note(|seen| {
            let at = seen.place(root, path, false);
            seen.put(at, RecordNode::Link(target.to_owned()));
        });
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

    /// Writes the tree of what was looked at into the directory `to`, which is made, or is empty.
    ///
    /// # Errors
    ///
    /// `to` holds something already, is not this user's own, or something cannot be written there.
    pub fn write(&self, to: &Path) -> files::Result<Recorded> {
        // What comes into it is nobody else's to read or to exchange, from the first byte on, and whatever becomes of its name: who
        // owns a directory above it can change that.
        let held = files::hold_own_directory(to)?;
        if !files::list(held.path())?.is_empty() {
            let source = io::Error::other("it is not empty");
            return Err(FileError { attempt: "record into", path: to.to_owned(), source });
        }
        let seen = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut recorded = Recorded { files: 0, bytes: 0, private: 0, errors: seen.errors.len() };
        let mut above: Option<(&Path, OwnDirectory)> = None;
        for (at, node) in &seen.nodes {
            let failed = |source| FileError { attempt: "record into", path: to.join(at), source };
            let (Some(parent), Some(name)) = (at.parent(), at.file_name()) else { continue };
            let directory = match above.take().filter(|(of, _)| *of == parent) {
                Some((_, directory)) => directory,
                None => match held.directory(parent) {
                    Ok(directory) => directory,
                    Err(error) if is_unwritable(&error) => continue,
                    Err(error) => return Err(failed(error)),
                },
            };
            let made = match node {
                RecordNode::Directory => directory.directory(Path::new(name)).map(drop),
                RecordNode::Name => directory.make_file(name, b"", PRIVATE_MODE),
                RecordNode::File { bytes, mode } => directory.make_file(name, bytes, *mode),
                RecordNode::Link(target) => directory.make_link(name, &within(at, target)),
            };
            match (made, node) {
                (Ok(()), RecordNode::File { bytes, mode }) => {
                    recorded.files += 1;
                    recorded.bytes += bytes.len();
                    recorded.private += usize::from(*mode == PRIVATE_MODE);
                }
                (Err(error), _) if !is_unwritable(&error) => return Err(failed(error)),
                (Ok(()) | Err(_), _) => {}
            }
            above = Some((parent, directory));
        }
        let errors: String =
            seen.errors.iter().map(|(path, errno)| format!("{errno} {}\n", one_line(path))).collect();
        held.make_file(ERRORS.as_ref(), errors.as_bytes(), PRIVATE_MODE).map_err(|source| FileError {
            attempt: "record into",
            path: to.join(ERRORS),
            source,
        })?;
        Ok(recorded)
    }
}

/// Whether a name, or where a link leads, is none that this file system takes: it is longer with its odd bytes replaced, and that of an open
/// file may be as long as names can be.
fn is_unwritable(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::ENAMETOOLONG | Errno::EILSEQ))
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

/// Who may read the record of a file: everybody only if everybody may read the file. Groups are others where the tree is unpacked, and of
/// what is gone by now nobody knows.
fn mode(root: &Path, path: &str) -> u32 {
    let data = fs::metadata(root.join(path.trim_start_matches('/')));
    if data.is_ok_and(|data| data.mode() & 0o004 != 0) { PUBLIC_MODE } else { PRIVATE_MODE }
}

/// What the link at `at` of a tree is made to say so that it does not lead out of the tree: where that is possible, what it said.
fn within(at: &Path, target: &Path) -> PathBuf {
    let depth = at.components().count().saturating_sub(1);
    let climbs = |part: &Component<'_>| *part == Component::ParentDir;
    let up = target.components().take_while(climbs).count();
    // Behind a name, which may be that of a link, nobody can tell how far up `..` leads.
    if target.is_relative() && up <= depth && !target.components().skip(up).any(|part| climbs(&part)) {
        return target.to_owned();
    }
    let mut inner = at.parent().filter(|_| target.is_relative()).unwrap_or(Path::new("")).to_owned();
    for part in parts(target) {
        if part == ".." {
            inner.pop();
        } else {
            inner.push(part);
        }
    }
    let within: PathBuf = std::iter::repeat_n("..", depth).collect::<PathBuf>().join(inner);
    if within.as_os_str().is_empty() { ".".into() } else { within }
}

/// The parts of a path below the root, `..` among them.
fn parts(path: &Path) -> Vec<OsString> {
    let part = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_a_tree_lead_to_nothing_outside_of_it() {
        for (at, target, made) in [
            ("a/b/link", "../c", "../c"),
            ("a/b/link", "../../c", "../../c"),
            ("proc/7/fd/3", "socket:[12]", "socket:[12]"),
            ("proc/7/fd/3", "/dev/vfio/7", "../../../dev/vfio/7"),
            ("proc/7/fd/3", "../../../../../../etc/cron.d", "../../../etc/cron.d"),
            ("proc/7/fd/3", "x/../../../../../etc", "../../../etc"),
            ("proc/7/fd/3", "./../../../../etc", "../../../etc"),
            ("link", "../..", "."),
            ("link", "/", "."),
        ] {
            assert_eq!(within(Path::new(at), Path::new(target)), Path::new(made), "{at} -> {target}");
        }
    }
    #[test]
    fn a_name_that_cannot_be_written_keeps_nothing_else_from_it() {
        let machine = tempfile::tempdir().unwrap();
        let recorder = Recorder::default();
        // Of 100 bytes that are no UTF-8, which were replaced.
        let odd = "\u{fffd}".repeat(100);
        recorder.file(machine.path(), &format!("/{odd}"), b"lost");
        recorder.file(machine.path(), &format!("/{odd}x/below/file"), b"lost");
        recorder.file(machine.path(), "/a", b"kept");
        recorder.file(machine.path(), "/z/file", b"kept");
        let to = tempfile::tempdir().unwrap();
        let recorded = recorder.write(to.path()).unwrap();
        assert_eq!((recorded.files, recorded.bytes), (2, 8));
        for kept in ["a", "z/file"] {
            assert_eq!(files::read_to_string(to.path().join(kept)).unwrap(), "kept");
        }
    }
}
