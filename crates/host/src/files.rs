//! Files and directories, with errors that say what was attempted and on which path.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::AsFd,
        unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime},
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, FallocateFlags, Flock, FlockArg, OFlag, renameat},
    sys::stat,
    unistd::{UnlinkatFlags, fchownat, linkat, symlinkat, unlinkat},
};
use thiserror::Error;

mod atomic;
mod held;
mod in_root;
mod others;
mod read;

pub use atomic::{
    create_durable, has_parts, remove_durable, remove_parts, write_atomic, write_atomic_mode,
    write_atomic_with, write_durable,
};

pub use held::OwnDirectory;

use held::Held;

pub use in_root::read_in_root;
pub(crate) use in_root::{lacks_openat2, open_in_root, read_opened};

pub use others::writable_by_others;

pub(crate) use read::open_plain;

pub use read::{
    READ_LIMIT, open, read, read_at_most, read_named_by_user, read_standard_input, read_to_string, read_whole,
};

/// A file operation that failed.
#[derive(Debug, Error)]
#[error("could not {attempt} {}", path.display())]
pub struct FileError {
    /// The verb: "read", "write"...
    pub attempt: &'static str,
    /// The file or directory that it was attempted on.
    pub path: PathBuf,
    /// The error of the operating system.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// Whether the file or directory is not there.
    pub fn is_missing(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }

    /// Whether it is a drive with no disk in it.
    pub fn is_without_medium(&self) -> bool {
        let errno = self.source.raw_os_error().map(Errno::from_raw);
        matches!(errno, Some(Errno::ENOMEDIUM | Errno::ENXIO))
    }

    /// Whether this user may not do that there, since it is not permitted or is [another user's](own_directory), or nobody may: its file system is
    /// read-only.
    pub fn is_denied(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
    }

    /// Whether symbolic links on the way to it lead in a circle, or are too many.
    pub fn leads_in_a_circle(&self) -> bool {
        self.source.raw_os_error().map(Errno::from_raw) == Some(Errno::ELOOP)
    }

    /// Whether what is there could not be looked at: it is not permitted, or the file system failed.
    pub fn is_unreadable(&self) -> bool {
        let errno = self.source.raw_os_error().map(Errno::from_raw);
        matches!(errno, Some(Errno::EACCES | Errno::EPERM | Errno::EIO | Errno::ESTALE))
    }
}

/// The outcome of a file operation.
pub type Result<T> = std::result::Result<T, FileError>;

fn on<T>(attempt: &'static str, path: &Path, outcome: io::Result<T>) -> Result<T> {
    outcome.map_err(|source| FileError { attempt, path: path.to_owned(), source })
}

/// What [`try_open_device`] has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenedAs {
    /// A character device.
    Device,
    /// Something else, like a fixture's file.
    Other,
}

/// Opens a device for reading and writing and closes it again: whether its driver lets that happen. No link is followed.
///
/// # Errors
///
/// The driver's error, as `EBUSY` of one that can be open once; `ENOENT` where there is none.
pub fn try_open_device(path: impl AsRef<Path>) -> io::Result<OpenedAs> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NOCTTY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags.bits()).open(path)?;
    let is_device = std::os::unix::fs::FileTypeExt::is_char_device(&file.metadata()?.file_type());
    Ok(if is_device { OpenedAs::Device } else { OpenedAs::Other })
}

/// Writes a kernel attribute or an existing file in one `write` call; never creates it. What a fixture's file held is gone, as it
/// is with the kernel's.
///
/// # Errors
///
/// [`FileError`] when there is no such file, when it may not be written, or when the kernel refuses the value: its error then
/// says why.
pub fn write_attribute(path: impl AsRef<Path>, value: &str) -> Result<()> {
    let path = path.as_ref();
    let write = || OpenOptions::new().write(true).truncate(true).open(path)?.write_all(value.as_bytes());
    on("write", path, write())
}

/// Has the names in a directory reach the disk.
///
/// # Errors
///
/// [`FileError`] when it is no directory that can be opened, or its file system cannot be synced.
pub fn sync_directory(path: impl AsRef<Path>) -> Result<()> {
    on("sync the directory", path.as_ref(), held::sync(path.as_ref()))
}

/// Creates a directory and its parents; already there is success. As with all that is made, renamed and removed here, links of
/// other users on the way are not followed.
///
/// # Errors
///
/// [`FileError`] when something else than a directory is in the way, a link of another user is, or the file system refuses.
pub fn create_dir_all(path: impl AsRef<Path>) -> Result<()> {
    on("create the directory", path.as_ref(), held::directory(path.as_ref(), Some(0o777)).map(drop))
}

/// Removes a file; already gone is success.
///
/// # Errors
///
/// [`FileError`] when it is a directory, or may not be removed.
pub fn remove_file(path: impl AsRef<Path>) -> Result<()> {
    on("remove", path.as_ref(), gone_is_fine(unlink(path.as_ref(), UnlinkatFlags::NoRemoveDir)))
}

/// Removes an empty directory; one that is already gone is fine.
///
/// # Errors
///
/// [`FileError`] when it is not empty, is no directory, or may not be removed.
pub fn remove_directory(path: impl AsRef<Path>) -> Result<()> {
    on("remove", path.as_ref(), gone_is_fine(unlink(path.as_ref(), UnlinkatFlags::RemoveDir)))
}

/// Removes a directory and everything below it; already gone is success.
///
/// # Errors
///
/// [`FileError`] at the first entry that cannot be removed; what was removed before it is gone.
pub fn remove_tree(path: impl AsRef<Path>) -> Result<()> {
    on("remove", path.as_ref(), gone_is_fine(held::remove_tree(path.as_ref())))
}

fn unlink(path: &Path, what: UnlinkatFlags) -> io::Result<()> {
    let held = Held::of(path)?;
    Ok(unlinkat(&held, held.name.as_os_str(), what)?)
}

fn gone_is_fine(outcome: io::Result<()>) -> io::Result<()> {
    outcome.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// Renames within one file system.
///
/// # Errors
///
/// [`FileError`], named by `from`, when it is not there, `to` is on another file system, or either directory may not be
/// changed.
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
    let rename = || -> io::Result<()> {
        let (old, new) = (Held::of(from.as_ref())?, Held::of(to.as_ref())?);
        Ok(renameat(&old, old.name.as_os_str(), &new, new.name.as_os_str())?)
    };
    on("rename", from.as_ref(), rename())
}

/// Copies a plain file's contents and permissions; what was at `to` is replaced when all of it is there.
///
/// # Errors
///
/// [`FileError`], named by `from`, when it is no plain file, cannot be read, or `to` cannot be written. `to` is then as it was.
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
    let from = from.as_ref();
    on("copy", from, read::open_plain(from).and_then(|mut file| atomic::copy(&mut file, to.as_ref())))
}

/// So many bytes of a file are read at once where they go through this process.
const COPIED_AT_ONCE: usize = 256 << 10;

/// Appends the contents of `from` to an open file and says how many bytes they were; they never are in memory as a
/// whole.
///
/// # Errors
///
/// [`FileError`], named by `from`, when it is no plain file, cannot be read, or `to` takes no more. Part of it may be in `to`.
pub fn append_from(to: &mut File, from: impl AsRef<Path>) -> Result<u64> {
    let from = from.as_ref();
    let mut source = on("read", from, read::open_plain(from))?;
    // The kernel copies nothing by itself to a file that is opened to be appended to (copy_file_range(2), sendfile(2)).
    on("copy", from, io::copy(&mut io::BufReader::with_capacity(COPIED_AT_ONCE, &mut source), to))
}

/// At most the last `limit` bytes of a file.
///
/// # Errors
///
/// [`FileError`] when it is no plain file, or cannot be read.
pub fn read_tail(path: impl AsRef<Path>, limit: usize) -> Result<Vec<u8>> {
    let path = path.as_ref();
    let read = || -> io::Result<Vec<u8>> {
        let mut file = read::open_plain(path)?;
        let length = file.metadata()?.len();
        io::Seek::seek(&mut file, io::SeekFrom::Start(length.saturating_sub(limit as u64)))?;
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(file, limit as u64), &mut bytes)?;
        Ok(bytes)
    };
    on("read", path, read())
}

/// Sets the permission bits of a file or directory; a link is refused.
///
/// # Errors
///
/// [`FileError`] when it is not there, is a link, or belongs to somebody else.
pub fn set_mode(path: impl AsRef<Path>, mode: u32) -> Result<()> {
    on("set the permissions of", path.as_ref(), held::set_mode(path.as_ref(), mode))
}

/// Hands a file or directory to a group by its number and sets its permission bits; a link is refused.
///
/// # Errors
///
/// [`FileError`] when it is not there, is a link, or this process may not give it to `group`.
pub fn share(path: impl AsRef<Path>, group: u32, mode: u32) -> Result<()> {
    let share = || -> io::Result<()> {
        let file = Held::of(path.as_ref())?.open(OFlag::O_PATH, 0)?;
        fchownat(&file, "", None, Some(group.into()), AtFlags::AT_EMPTY_PATH)?;
        held::set_mode_of(file.as_fd(), mode)
    };
    on("change the group and permissions of", path.as_ref(), share())
}

/// Whether something is there, after symbolic links.
pub fn exists(path: impl AsRef<Path>) -> bool {
    path.as_ref().exists()
}

/// Whether both are there and are one, after symbolic links and mounts.
pub fn is_same(one: impl AsRef<Path>, other: impl AsRef<Path>) -> bool {
    let place = |path: &Path| fs::metadata(path).map(|data| (data.dev(), data.ino())).ok();
    place(one.as_ref()).is_some_and(|one| place(other.as_ref()) == Some(one))
}

/// The length of a file in bytes.
///
/// # Errors
///
/// [`FileError`] when it is not there or may not be looked at.
pub fn length(path: impl AsRef<Path>) -> Result<u64> {
    on("look at", path.as_ref(), fs::metadata(&path)).map(|data| data.len())
}

/// The names in a directory, sorted. A directory that is not there is an error; see [`FileError::is_missing`].
///
/// # Errors
///
/// [`FileError`] when it is no directory or cannot be read.
pub fn list(path: impl AsRef<Path>) -> Result<Vec<String>> {
    let path = path.as_ref();
    let names = || -> io::Result<Vec<String>> {
        fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    };
    let mut names = on("list", path, names())?;
    names.sort();
    Ok(names)
}

/// Where a symbolic link points, as it is written.
///
/// # Errors
///
/// [`FileError`] when it is not there or is no link.
pub fn read_link(path: impl AsRef<Path>) -> Result<PathBuf> {
    on("read the link", path.as_ref(), fs::read_link(&path))
}

/// Gives a file another name on the same file system; of a link it is the link that gets one.
///
/// # Errors
///
/// [`FileError`] when something is at `path` already, the file is not there, or the directory may not be written.
pub fn hard_link(file: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
    let make = || -> io::Result<()> {
        let (old, new) = (Held::of(file.as_ref())?, Held::of(path.as_ref())?);
        Ok(linkat(&old, old.name.as_os_str(), &new, new.name.as_os_str(), AtFlags::empty())?)
    };
    on("make the hard link", path.as_ref(), make())
}

/// Makes a symbolic link, and has it reach the disk; one that points there already is success.
///
/// # Errors
///
/// [`FileError`] when something else is at `path`, or its directory may not be written.
pub fn link(target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let make = || -> io::Result<()> {
        let held = Held::of(path)?;
        Ok(symlinkat(target.as_ref(), &held, held.name.as_os_str())?)
    };
    match make() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if fs::read_link(path).is_ok_and(|seen| seen == target.as_ref()) {
                return Ok(());
            }
            on("make the link", path, Err(error))
        }
        made => {
            on("make the link", path, made)?;
            path.parent().map_or(Ok(()), sync_directory)
        }
    }
}

/// The first directory above `path` that the account `user`, which is in no group, may not pass through, as far as permission
/// bits tell it.
///
/// # Errors
///
/// [`FileError`] when `path` is not there, or something on the way cannot be looked at.
pub fn closed_to(path: impl AsRef<Path>, user: u32) -> Result<Option<PathBuf>> {
    let path = canonical(path)?;
    let above: Vec<&Path> = path.ancestors().skip(1).collect();
    for place in above.into_iter().rev() {
        let data = on("look at", place, fs::metadata(place))?;
        let pass = if data.uid() == user { 0o100 } else { 0o001 };
        if data.mode() & pass == 0 {
            return Ok(Some(place.to_owned()));
        }
    }
    Ok(None)
}

/// The number of the account that what is at `path` belongs to, after symbolic links.
///
/// # Errors
///
/// [`FileError`] when it is not there or may not be looked at.
pub fn owner(path: impl AsRef<Path>) -> Result<u32> {
    on("look at", path.as_ref(), fs::metadata(&path)).map(|data| data.uid())
}

/// The path with every symbolic link resolved.
///
/// # Errors
///
/// [`FileError`] when a part of it is not there, may not be entered, or its links form a circle.
pub fn canonical(path: impl AsRef<Path>) -> Result<PathBuf> {
    on("resolve", path.as_ref(), fs::canonicalize(&path))
}

/// Opens a plain file for appending, creating it. A link is not followed, and a FIFO not waited for: whoever may write to the
/// directory may have put it there.
///
/// # Errors
///
/// [`FileError`] when it is a link or no plain file, or may not be opened.
pub fn append(path: impl AsRef<Path>) -> Result<File> {
    let path = path.as_ref();
    let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let open = || {
        let file = Held::of(path)?.open(flags, 0o666)?;
        read::plain(&file.metadata()?)?;
        Ok(file)
    };
    on("open", path, open())
}

/// The directory `path`, held, if it is there. It must be this user's own: no link, owned by the user of this process, and nobody
/// else may write to it. What lies in it is believed then.
///
/// # Errors
///
/// [`FileError`] when it is there and is a link, is no directory, belongs to another user, or others may write to it.
pub fn own_directory(path: impl AsRef<Path>) -> Result<Option<OwnDirectory>> {
    let path = path.as_ref();
    let hold = || -> io::Result<Option<OwnDirectory>> {
        let held = match OwnDirectory::at(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            held => held?,
        };
        is_own(&held.data()?)?;
        Ok(Some(held))
    };
    on("trust", path, hold())
}

fn is_own(data: &stat::FileStat) -> io::Result<()> {
    let us = nix::unistd::geteuid().as_raw();
    let kind = stat::SFlag::from_bits_truncate(data.st_mode) & stat::SFlag::S_IFMT;
    let why = match () {
        () if kind == stat::SFlag::S_IFLNK => "it is a symbolic link".to_owned(),
        () if kind != stat::SFlag::S_IFDIR => "it is no directory".to_owned(),
        () if data.st_uid != us => {
            let why = format!("it belongs to user {}, and this is user {us}", data.st_uid);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        () if data.st_mode & 0o022 != 0 => "others than its owner may write to it".to_owned(),
        () => return Ok(()),
    };
    Err(io::Error::other(why))
}

/// Makes the directory `path`, and those above it, for this user alone (0700); one that is there must be
/// [its own](own_directory).
///
/// # Errors
///
/// [`FileError`] when it cannot be made, or what is there is not [its own](own_directory).
pub fn make_own_directory(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    path.parent().map_or(Ok(()), create_dir_all)?;
    let make = || -> io::Result<()> {
        let held = Held::of(path)?;
        match stat::mkdirat(&held, held.name.as_os_str(), stat::Mode::S_IRWXU) {
            Err(Errno::EEXIST) => Ok(()),
            made => Ok(made?),
        }
    };
    on("create the directory", path, make())?;
    own_directory(path).map(drop)
}

/// As [`make_own_directory`], for this user alone also where it was there already, and held.
///
/// # Errors
///
/// As [`make_own_directory`], and [`FileError`] when its permissions cannot be set.
pub fn hold_own_directory(path: impl AsRef<Path>) -> Result<OwnDirectory> {
    let path = path.as_ref();
    make_own_directory(path)?;
    let Some(held) = own_directory(path)? else {
        return on("trust", path, Err(Errno::ENOENT.into()));
    };
    on("trust", path, held.set_mode(0o700))?;
    Ok(held)
}

/// Makes a file of `length` bytes that are taken from the disk now, replacing what is there.
///
/// # Errors
///
/// [`FileError`] when it is no plain file, or the disk is full or refuses. Part of its room may then be taken.
pub fn allocate(path: impl AsRef<Path>, length: u64) -> Result<()> {
    let path = path.as_ref();
    let allocate = || -> io::Result<()> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let mut file = Held::of(path)?.open(flags, 0o600)?;
        read::plain(&file.metadata()?)?;
        match nix::fcntl::fallocate(&file, FallocateFlags::empty(), 0, length as i64) {
            // Not every file system can.
            Err(Errno::EOPNOTSUPP) => drop(io::copy(&mut io::repeat(0).take(length), &mut file)?),
            allocated => allocated?,
        }
        file.sync_all()
    };
    on("take the room of", path, allocate())
}

/// Makes a plain file `length` bytes long; what is new of it reads as zeros and takes no room.
///
/// # Errors
///
/// [`FileError`] when it is not there, is no plain file, or the file system holds no file of that length.
pub fn lengthen(path: impl AsRef<Path>, length: u64) -> Result<()> {
    let path = path.as_ref();
    let lengthen = || -> io::Result<()> {
        let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let file = Held::of(path)?.open(flags, 0)?;
        read::plain(&file.metadata()?)?;
        file.set_len(length)
    };
    on("lengthen", path, lengthen())
}

/// Bytes free for an ordinary user on the file system that holds `path`.
///
/// # Errors
///
/// [`FileError`] when `path` is not there, or its file system does not say.
pub fn free_space(path: impl AsRef<Path>) -> Result<u64> {
    let path = path.as_ref();
    let stat = nix::sys::statvfs::statvfs(path).map_err(io::Error::from);
    on("ask for the free space of", path, stat).map(|stat| stat.blocks_available() * stat.fragment_size())
}

/// What changes whenever a file is written or replaced: its inode, time of modification and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(u64, i64, i64, u64);

impl Stamp {
    /// Whether what has this stamp was last changed longer ago than `age`, by this machine's clock.
    pub fn is_older_than(&self, age: Duration) -> bool {
        let Stamp(_, seconds, nanoseconds, _) = *self;
        let since = |at: SystemTime| SystemTime::now().duration_since(at).is_ok_and(|since| since > age);
        match (u64::try_from(seconds), u32::try_from(nanoseconds)) {
            (Ok(seconds), Ok(nanoseconds)) => {
                SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds)).is_some_and(since)
            }
            // Before 1970.
            _ => false,
        }
    }
}

/// The stamp of a file or a directory; `None` where there is none to be seen.
pub fn stamp(path: impl AsRef<Path>) -> Option<Stamp> {
    let metadata = fs::metadata(path).ok()?;
    Some(Stamp(metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), metadata.len()))
}

/// An exclusive lock on a file, held until dropped; also dropped by the kernel when the process dies. The file is made for
/// its owner alone (0600), and one that others may open is taken from them: who can open a lock can hold it.
#[derive(Debug)]
pub struct Lock(Flock<File>);

impl Lock {
    /// Takes the lock alone, waiting this long for whoever has it; `None` when that was not long enough.
    ///
    /// # Errors
    ///
    /// [`FileError`] when the file cannot be made or opened, or locks do not work on its file system.
    pub fn exclusive_within(path: impl AsRef<Path>, timeout: Duration) -> Result<Option<Lock>> {
        let path = path.as_ref();
        let deadline = Instant::now() + timeout;
        loop {
            let lock = Lock::try_exclusive(path)?;
            if lock.is_some() || Instant::now() >= deadline {
                return Ok(lock);
            }
            // Polled, because a lock that is waited for in the kernel cannot be given up at a deadline.
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Takes the lock on `path`, creating the file; `Ok(None)` when another process holds it.
    ///
    /// # Errors
    ///
    /// As [`exclusive_within`](Lock::exclusive_within).
    pub fn try_exclusive(path: impl AsRef<Path>) -> Result<Option<Lock>> {
        Lock::take(path.as_ref(), FlockArg::LockExclusiveNonblock)
    }

    /// Takes the lock on `path`, waiting for whoever holds it.
    ///
    /// # Errors
    ///
    /// As [`exclusive_within`](Lock::exclusive_within).
    pub fn exclusive(path: impl AsRef<Path>) -> Result<Lock> {
        let path = path.as_ref();
        let missing =
            || FileError { attempt: "lock", path: path.to_owned(), source: io::Error::other("it is held") };
        Lock::take(path, FlockArg::LockExclusive)?.ok_or_else(missing)
    }

    /// The process that holds the lock on `path`, as the kernel lists it (`/proc/locks`, proc(5)): the lock itself is not
    /// touched, so that nobody who takes it meanwhile is kept from it. 0 where the process is not to be seen from here.
    /// `noted` is the process that the file names as its holder: some file systems list another device than they show.
    pub fn holder(path: impl AsRef<Path>, noted: Option<u32>) -> Option<u32> {
        let metadata = fs::metadata(path).ok()?;
        let (major, minor) = (stat::major(metadata.dev()), stat::minor(metadata.dev()));
        let device = format!("{major:02x}:{minor:02x}");
        let locks = fs::read_to_string("/proc/locks").ok()?;
        locks.lines().find_map(|line| {
            // `1: FLOCK  ADVISORY  WRITE 1234 00:19:5678 0 EOF`; a line with `->` waits.
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, "FLOCK", _, "WRITE", process, file, ..] = words[..] else { return None };
            let (on, inode) = file.rsplit_once(':')?;
            let process = process.parse().unwrap_or(0);
            let held = inode.parse() == Ok(metadata.ino()) && (on == device || Some(process) == noted);
            held.then_some(process)
        })
    }

    /// Writes into the locked file who holds it, for others to read.
    ///
    /// # Errors
    ///
    /// The kernel's, when the file cannot be written: a full disk. The lock is held all the same.
    pub fn note(&mut self, text: &str) -> io::Result<()> {
        let mut file: &File = &self.0;
        file.set_len(0)?;
        io::Seek::seek(&mut file, io::SeekFrom::Start(0))?;
        file.write_all(text.as_bytes())
    }

    /// Whether the file that is locked is still the one at `path`.
    pub fn is_at(&self, path: impl AsRef<Path>) -> bool {
        match (self.0.metadata(), fs::metadata(path)) {
            (Ok(locked), Ok(there)) => (locked.dev(), locked.ino()) == (there.dev(), there.ino()),
            _ => false,
        }
    }

    fn take(path: &Path, how: FlockArg) -> Result<Option<Lock>> {
        let open = || {
            let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
            let file = Held::of(path)?.open(flags, 0o600)?;
            read::plain(&file.metadata()?)?;
            // Whoever may open a file, if only for reading, may lock it (flock(2)) and so stop everybody else. Files that
            // are shared with a group on purpose keep their group.
            let mode = file.metadata()?.permissions().mode();
            if mode & 0o007 != 0 {
                file.set_permissions(fs::Permissions::from_mode(0o600))?;
            }
            Ok(file)
        };
        let file = on("open the lock", path, open())?;
        match Flock::lock(file, how) {
            Ok(lock) => Ok(Some(Lock(lock))),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, errno)) => on("lock", path, Err(errno.into())),
        }
    }
}
