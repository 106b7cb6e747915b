//! Opening what lies below a directory as a process whose root directory that is would: for trees that somebody hostile writes to.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::Path,
    sync::OnceLock,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, openat2},
};

use super::{Result, on};

/// Opens `path` below `root`: symbolic links and `..` never lead out of it (`openat2`, `RESOLVE_IN_ROOT`, Linux 5.6).
pub(crate) fn open_in_root(root: impl AsFd, path: impl AsRef<Path>, flags: OFlag) -> io::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    // The kernel answers EAGAIN when something was renamed or mounted meanwhile and it cannot be sure.
    for _ in 0..16 {
        match openat2(&root, path.as_ref(), how) {
            Err(Errno::EAGAIN) => {}
            opened => return Ok(opened?),
        }
    }
    Err(Errno::EAGAIN.into())
}

/// Whether an error of [`open_in_root`] is that there is no `openat2` here: the kernel is older than Linux 5.6, or a filter of system calls that
/// does not know it says that it is not permitted (seccomp(2), as containers had it for years). That is tried once.
pub(crate) fn lacks_openat2(error: &io::Error) -> bool {
    static REFUSED: OnceLock<bool> = OnceLock::new();
    let is = |error: &io::Error, errno: Errno| error.raw_os_error() == Some(errno as i32);
    let refused = || {
        let tried = File::open("/").and_then(|root| open_in_root(root, ".", OFlag::O_PATH));
        tried.is_err_and(|error| is(&error, Errno::EPERM))
    };
    is(error, Errno::ENOSYS) || (is(error, Errno::EPERM) && *REFUSED.get_or_init(refused))
}

/// At most `limit` bytes of what was opened as a path (`O_PATH`), if that is a regular file. Only then is it opened for reading: to open
/// a device can already do something to it.
pub(crate) fn read_opened(found: OwnedFd, limit: usize) -> io::Result<Vec<u8>> {
    let found = File::from(found);
    if !found.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits())
        .open(format!("/proc/self/fd/{}", found.as_raw_fd()))?;
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, limit as u64), &mut bytes)?;
    Ok(bytes)
}

/// At most `limit` bytes of the regular file `path` as a process whose root directory is `root` would see it: symbolic
/// links and `..` in `path` never lead out of `root` (`openat2`, `RESOLVE_IN_ROOT`, Linux 5.6). For trees that somebody
/// hostile writes to; a FIFO or device there is refused instead of waited for.
///
/// # Errors
///
/// [`FileError`] when it is not there, is no regular file, leads over a link that the kernel does not follow, or cannot be
/// read.
pub fn read_in_root(root: impl AsRef<Path>, path: &str, limit: usize) -> Result<Vec<u8>> {
    let root = root.as_ref();
    let read = || read_opened(open_in_root(File::open(root)?, path, OFlag::O_PATH)?, limit);
    on("read", &root.join(path.trim_start_matches('/')), read())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_permitted_is_no_call_that_is_not_there() {
        assert!(lacks_openat2(&Errno::ENOSYS.into()));
        assert!(!lacks_openat2(&Errno::ENOENT.into()));
        let root = File::open("/").unwrap();
        let there = open_in_root(&root, ".", OFlag::O_PATH);
        let refused = there.is_err_and(|error| error.raw_os_error() == Some(Errno::EPERM as i32));
        assert_eq!(lacks_openat2(&Errno::EPERM.into()), refused);
    }
}
