//! A file made in a directory that somebody hostile writes to, and held: whatever becomes of its name, what is read and
//! written through it is this file.

use std::{
    fs::File,
    io::{self, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, openat},
    sys::{stat::Mode, statvfs::fstatvfs},
    unistd::{Gid, Uid, UnlinkatFlags, setfsgid, setfsuid, unlinkat},
};

use crate::{
    files::{FileError, Result, open_in_root},
    interrupt,
};

/// How much is written at once.
const PART: usize = 128 << 10;

/// A directory as a process with another root sees it, held.
#[derive(Debug)]
pub struct Directory {
    held: OwnedFd,
    shown: PathBuf,
}

impl Directory {
    /// The directory `path` as a process whose root directory is `root` sees it: symbolic links and `..` never lead out of
    /// `root` (`openat2`, `RESOLVE_IN_ROOT`).
    ///
    /// # Errors
    ///
    /// It is not there, or is no directory.
    pub fn in_root(root: impl AsRef<Path>, path: &str) -> Result<Directory> {
        let root = root.as_ref();
        let shown = root.join(path.trim_start_matches('/'));
        let hold = || open_in_root(File::open(root)?, path, OFlag::O_PATH | OFlag::O_DIRECTORY);
        match hold() {
            Ok(held) => Ok(Directory { held, shown }),
            Err(source) => Err(FileError { attempt: "look at", path: shown, source }),
        }
    }

    /// Whether both are the same directory.
    pub fn is(&self, other: &Directory) -> bool {
        match (self.identity(), other.identity()) {
            (Ok(own), Ok(other)) => own == other,
            _ => false,
        }
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        let data = File::from(self.held.try_clone()?).metadata()?;
        Ok((data.dev(), data.ino()))
    }

    /// Bytes free for an ordinary user on its file system.
    ///
    /// # Errors
    ///
    /// [`FileError`] when the file system does not say.
    pub fn free_space(&self) -> Result<u64> {
        match fstatvfs(&self.held) {
            Ok(stat) => Ok(stat.blocks_available() * stat.fragment_size()),
            Err(errno) => Err(self.failed("ask for the free space of", errno)),
        }
    }

    /// Makes an empty file in it, of this name, and holds it. What has the name already is removed first, if it is no
    /// directory: `name` must be one that nobody but the caller gives.
    ///
    /// # Errors
    ///
    /// It cannot be made: the file system is full or read-only, or somebody makes the same name again and again.
    pub fn make(self, name: &str) -> Result<Scratch> {
        for _ in 0..4 {
            // Never one that is there already, and never through a link: nobody else can have put this file there.
            let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let make = || openat(&self.held, name, flags, Mode::S_IRUSR | Mode::S_IWUSR);
            let made = match make() {
                // Nobody's files can be the caller's there: it is a file system, or a mount, of a user namespace.
                Err(Errno::EOVERFLOW) => self.as_its_owner(make)?,
                made => made,
            };
            match made {
                Ok(file) => return Ok(Scratch { file, directory: self, name: name.to_owned() }),
                Err(Errno::EEXIST) => self.remove(name)?,
                Err(errno) => return Err(self.failed("make a file in", errno)),
            }
        }
        Err(self.failed("make a file in", Errno::EEXIST))
    }

    /// Does something with files as the account that the directory belongs to, in this thread alone (`setfsuid(2)`).
    fn as_its_owner<T>(&self, act: impl FnOnce() -> T) -> Result<T> {
        let data = self.held.try_clone().and_then(|held| File::from(held).metadata());
        let data =
            data.map_err(|source| FileError { attempt: "look at", path: self.shown.clone(), source })?;
        // The group first: the account may not change it.
        let group = setfsgid(Gid::from_raw(data.gid()));
        let user = setfsuid(Uid::from_raw(data.uid()));
        let outcome = act();
        setfsuid(user);
        setfsgid(group);
        Ok(outcome)
    }

    fn remove(&self, name: &str) -> Result<()> {
        match unlinkat(&self.held, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(self.failed("remove a file of", errno)),
        }
    }

    fn failed(&self, attempt: &'static str, errno: Errno) -> FileError {
        FileError { attempt, path: self.shown.clone(), source: errno.into() }
    }
}

/// A file that was made in a [`Directory`]. It stays there until [`Scratch::remove`].
#[derive(Debug)]
pub struct Scratch {
    file: OwnedFd,
    directory: Directory,
    name: String,
}

impl Scratch {
    /// A path by which programs on this host open this very file, for as long as this value lives: it leads to the file and
    /// not through any directory (`proc_pid_fd(5)`).
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Where it was made.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Writes `size` bytes to it, a part after the other as `next` makes them, until they are on the medium. An interrupt ends
    /// it.
    ///
    /// # Errors
    ///
    /// The file system is full, or fails.
    pub fn fill(&self, size: u64, mut next: impl FnMut(&mut [u8])) -> Result<()> {
        let mut part = vec![0; PART];
        let mut write = || -> io::Result<()> {
            let mut file = File::from(self.file.try_clone()?);
            let mut left = size;
            while left > 0 {
                if interrupt::pending() {
                    return Err(io::Error::other("interrupted"));
                }
                let length = left.min(PART as u64);
                let bytes = &mut part[..length as usize];
                next(bytes);
                file.write_all(bytes)?;
                left -= length;
            }
            file.sync_all()
        };
        write().map_err(|source| FileError {
            attempt: "fill the file",
            path: self.directory.shown.join(&self.name),
            source,
        })
    }

    /// Removes what has its name in its directory; already gone is success.
    ///
    /// # Errors
    ///
    /// [`FileError`] when something of it cannot be removed.
    pub fn remove(self) -> Result<()> {
        self.directory.remove(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn what_is_put_in_its_place_is_not_reached() {
        let root = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("victim"), "kept").unwrap();
        fs::create_dir(root.path().join("data")).unwrap();
        // A link that waits for the file to be made.
        let name = root.path().join("data/scratch");
        symlink(outside.path().join("victim"), &name).unwrap();
        let directory = Directory::in_root(root.path(), "/data").unwrap();
        let scratch = directory.make("scratch").unwrap();
        assert!(name.symlink_metadata().unwrap().is_file());
        // And one that is put there afterwards.
        fs::remove_file(&name).unwrap();
        symlink(outside.path().join("victim"), &name).unwrap();
        fs::write(scratch.path(), "written").unwrap();
        assert_eq!(fs::read(scratch.path()).unwrap(), b"written");
        scratch.remove().unwrap();
        assert!(name.symlink_metadata().is_err());
        assert_eq!(fs::read(outside.path().join("victim")).unwrap(), b"kept");
    }

    #[test]
    fn directories_stay_in_the_root() {
        let root = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        symlink(outside.path(), root.path().join("away")).unwrap();
        let away = Directory::in_root(root.path(), "/away");
        assert!(away.unwrap_err().is_missing(), "inside the root there is no such directory");
        fs::write(root.path().join("file"), "").unwrap();
        assert!(Directory::in_root(root.path(), "/file").is_err());
        let up = Directory::in_root(root.path(), "/../..").unwrap();
        assert!(up.is(&Directory::in_root(root.path(), "/").unwrap()));
        assert!(!up.is(&Directory::in_root(outside.path(), "/").unwrap()));
        assert!(up.free_space().unwrap() > 0);
    }
}
