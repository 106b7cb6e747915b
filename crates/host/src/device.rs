//! Device nodes: which device a path names, also as a container sees it, and whether a control group may open it.

pub mod used;

use std::{
    fmt,
    fs::File,
    io,
    os::{
        fd::AsRawFd,
        unix::{
            fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
            process::CommandExt,
        },
    },
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    sys::{
        stat::{Mode, SFlag, major, makedev, minor, mknod},
        statvfs::{FsFlags, fstatvfs},
    },
    unistd::{AccessFlags, Gid, Uid, access, chown},
};

use crate::files::{FileError, Result, open_in_root};

/// What a device node stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device {
    /// Block, else character.
    pub block: bool,
    /// Its major number: the driver.
    pub major: u64,
    /// Its minor number: which of the driver's.
    pub minor: u64,
}

impl fmt::Display for Device {
    /// As the device control group writes it: `b 8:16`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}:{}", if self.block { 'b' } else { 'c' }, self.major, self.minor)
    }
}

fn device_of(data: &std::fs::Metadata) -> Option<Device> {
    let kind = data.file_type();
    let known = kind.is_block_device() || kind.is_char_device();
    let (major, minor) = (major(data.rdev()), minor(data.rdev()));
    known.then(|| Device { block: kind.is_block_device(), major, minor })
}

/// The device that `path` names after symbolic links; `None` when something else is there.
///
/// # Errors
///
/// Nothing is there, or it cannot be looked at.
pub fn at(path: impl AsRef<Path>) -> Result<Option<Device>> {
    let path = path.as_ref();
    match std::fs::metadata(path) {
        Ok(data) => Ok(device_of(&data)),
        Err(source) => Err(FileError { attempt: "look at", path: path.to_owned(), source }),
    }
}

/// The device that an open file is; `None` for anything else.
///
/// # Errors
///
/// The kernel's, when the open file cannot be looked at.
pub fn of_file(file: &File) -> io::Result<Option<Device>> {
    Ok(device_of(&file.metadata()?))
}

/// Makes a node of `device` at `path` that only the account with these ids may open.
///
/// # Errors
///
/// There is something already, or the caller may not make nodes there.
pub fn make_node(path: impl AsRef<Path>, device: Device, user: u32, group: u32) -> Result<()> {
    let path = path.as_ref();
    let kind = if device.block { SFlag::S_IFBLK } else { SFlag::S_IFCHR };
    let made = mknod(path, kind, Mode::S_IRUSR | Mode::S_IWUSR, makedev(device.major, device.minor))
        .and_then(|()| chown(path, Some(Uid::from_raw(user)), Some(Gid::from_raw(group))));
    made.map_err(|errno| FileError {
        attempt: "make a device node at",
        path: path.to_owned(),
        source: errno.into(),
    })
}

/// What is said of a block device that [`is_held`] where nothing more is known.
pub const HELD: &str = "held by the kernel: a volume group, an array or a pool has it, or somebody who does not see the host's mounts has mounted it";

/// How often a block device is tried that is held, and how long it is waited in between: who asks as well holds it for a moment.
const TRIES: u32 = 3;
const AGAIN: Duration = Duration::from_millis(20);

/// Whether the kernel uses a block device itself, in whatever namespace: a file system on it is mounted, it is swap space, or
/// another device is made of it (`open(2)`, `O_EXCL` of a block device). The same of its partitions, and of the disk that it is a partition
/// of (`block/bdev.c`, `bd_may_claim`). It is opened for reading, and closed again.
///
/// # Errors
///
/// It is gone, or cannot be opened.
pub fn is_held(path: impl AsRef<Path>) -> Result<bool> {
    let path = path.as_ref();
    let open = || std::fs::OpenOptions::new().read(true).custom_flags(OFlag::O_EXCL.bits()).open(path);
    for attempt in 1.. {
        match open() {
            Ok(_) => return Ok(false),
            Err(error) if error.raw_os_error() == Some(Errno::EBUSY as i32) => match attempt < TRIES {
                true => thread::sleep(AGAIN),
                false => return Ok(true),
            },
            Err(source) => return Err(FileError { attempt: "open", path: path.to_owned(), source }),
        }
    }
    Ok(true)
}

/// What lies at a path inside a container, held by a descriptor that can do nothing but be asked about: whatever the
/// container does to the path afterwards, the answers are about the same thing.
#[derive(Debug)]
pub struct Held(File);

/// Holds what a process whose root directory is `root` finds at `path`: symbolic links and `..` never lead out of
/// `root` (`openat2`, `RESOLVE_IN_ROOT`). Opens nothing, so that no driver is called.
///
/// # Errors
///
/// Nothing is there, or it cannot be looked at.
pub fn hold_in_root(root: impl AsRef<Path>, path: &str) -> Result<Held> {
    let root = root.as_ref();
    let hold = || Ok(Held(File::from(open_in_root(File::open(root)?, path, OFlag::O_PATH)?)));
    hold().map_err(|source| FileError {
        attempt: "look at",
        path: root.join(path.trim_start_matches('/')),
        source,
    })
}

/// What [`Held::may`] asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Opening for reading.
    Read,
    /// Opening for writing.
    Write,
}

impl Held {
    /// The device that it is; `None` for anything else.
    ///
    /// # Errors
    ///
    /// The kernel's, when the open file cannot be looked at.
    pub fn device(&self) -> io::Result<Option<Device>> {
        of_file(&self.0)
    }

    /// Whether root in the control group `group` may open it, as far as its permissions, its mount and the group's
    /// device rules say. It is asked with `access`(2), which calls the same checks as `open`(2) (`fs/namei.c`,
    /// `inode_permission`) and not the driver: to open a watchdog arms it, to open a tape rewinds it.
    ///
    /// A process of Penstock's own enters the group for it, and ends at once; nothing of the container runs.
    ///
    /// # Errors
    ///
    /// The group cannot be entered: it is gone, or has groups below it.
    pub fn may(&self, access_for: Access, group: &Path) -> io::Result<bool> {
        if fstatvfs(&self.0)?.flags().contains(FsFlags::ST_NODEV) {
            return Ok(false);
        }
        let procs = std::fs::OpenOptions::new().write(true).open(group.join("cgroup.procs"))?;
        let path = format!("/proc/self/fd/{}\0", self.0.as_raw_fd()).into_bytes();
        let mode = match access_for {
            Access::Read => AccessFlags::R_OK,
            Access::Write => AccessFlags::W_OK,
        };
        let judge = move || -> io::Result<()> {
            let path = std::ffi::CStr::from_bytes_with_nul(&path).map_err(|_| Errno::EINVAL)?;
            // "0" is whoever writes it (Documentation/admin-guide/cgroup-v2.rst).
            if let Err(errno) = nix::unistd::write(&procs, b"0") {
                // The answers below must stay apart from this.
                return Err(if denied(errno) { Errno::EBUSY } else { errno }.into());
            }
            access(path, mode)?;
            // It is not to become another program.
            Err(Errno::ECANCELED.into())
        };
        let mut command = Command::new("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        asks(&mut command, judge);
        match command.spawn() {
            Ok(mut child) => {
                let _ = child.kill();
                crate::process::reap(child);
                Err(io::Error::other("a directory was run as a program"))
            }
            Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::ECANCELED) => Ok(true),
                Some(errno) if denied(errno) => Ok(false),
                _ => Err(error),
            },
        }
    }
}

fn denied(errno: Errno) -> bool {
    matches!(errno, Errno::EACCES | Errno::EPERM | Errno::EROFS)
}

/// Has the command's process answer a question before it becomes the program.
#[allow(unsafe_code)]
fn asks(command: &mut Command, question: impl FnMut() -> io::Result<()> + Send + Sync + 'static) {
    // SAFETY: the only caller's closure makes two system calls, `write` and `access`, which are async-signal-safe, on
    // bytes that were prepared before the fork, and allocates nothing.
    unsafe {
        command.pre_exec(question);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_other_things() {
        let null = at("/dev/null").unwrap().unwrap();
        assert_eq!(null.to_string(), "c 1:3");
        assert_eq!(at("/dev").unwrap(), None);
        assert!(at("/dev/no-such-device").unwrap_err().is_missing());
    }

    #[test]
    fn links_stay_in_the_root() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("dev")).unwrap();
        for (name, target) in [("absolute", "/dev/null"), ("relative", "../../../../../../../dev/null")] {
            std::os::unix::fs::symlink(target, root.path().join("dev").join(name)).unwrap();
            let held = hold_in_root(root.path(), &format!("/dev/{name}"));
            assert!(held.unwrap_err().is_missing(), "{name}");
        }
        std::fs::write(root.path().join("dev/null"), "").unwrap();
        let held = hold_in_root(root.path(), "/dev/absolute").unwrap();
        assert_eq!(held.device().unwrap(), None, "it is a file of that root");
    }

    #[test]
    fn no_group_is_no_answer() {
        let held = hold_in_root("/", "/dev/null").unwrap();
        assert!(held.may(Access::Read, Path::new("/no/such/group")).is_err());
        // Not a group at all: what cannot be entered says nothing about the device.
        let file = tempfile::tempdir().unwrap();
        std::fs::write(file.path().join("cgroup.procs"), "").unwrap();
        let root_may = held.may(Access::Read, file.path());
        assert!(matches!(root_may, Ok(true)), "{root_may:?}");
        assert_eq!(std::fs::read(file.path().join("cgroup.procs")).unwrap(), b"0");
    }
}
