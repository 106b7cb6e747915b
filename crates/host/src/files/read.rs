//! Reading files of which nobody knows who made them.
//!
//! Whoever may write to a directory may put a FIFO, a device or a file without end where a plain file is looked for. What is
//! found (in run directories, records, state) is read only when it is a plain file, and only up to a length; what the user names
//! may be a pipe or a terminal, and is read until it ends, is too long, or an interrupt is pending.

use std::{
    fs::File,
    io::{self, Read},
    os::{
        fd::AsFd,
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

use super::{Result, on};
use crate::interrupt;

/// Nothing that Penstock reads as a whole is longer: 1 GiB.
pub const READ_LIMIT: usize = 1 << 30;

/// How often it is looked for an interrupt while waiting, in milliseconds.
const LOOK: u16 = 50;

/// The whole of a plain file, which is text and at most [`READ_LIMIT`] long.
///
/// # Errors
///
/// As [`read`], and for bytes that are no UTF-8.
pub fn read_to_string(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text");
    on("read", path, String::from_utf8(read(path)?).map_err(not_text))
}

/// The whole of a plain file, which is at most [`READ_LIMIT`] long.
///
/// # Errors
///
/// As [`read_whole`].
pub fn read(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    read_whole(path, READ_LIMIT)
}

/// The whole of a plain file; one that is longer than `limit` is an error, and so is what is no file.
///
/// # Errors
///
/// [`FileError`](super::FileError) when it is not there, is no plain file (a directory, a FIFO), is longer than `limit`, or
/// cannot be read.
pub fn read_whole(path: impl AsRef<Path>, limit: usize) -> Result<Vec<u8>> {
    let path = path.as_ref();
    let file = on("read", path, open_plain(path))?;
    // What says so at once is not read first.
    let long = file.metadata().is_ok_and(|data| data.len() > limit as u64);
    let (bytes, more) = if long { (Vec::new(), true) } else { on("read", path, up_to(file, limit))? };
    let too_long =
        || Err(io::Error::other(format!("it is longer than {limit} bytes, the most that is read")));
    on("read", path, if more { too_long() } else { Ok(bytes) })
}

/// At most `limit` bytes of a plain file from its start, and whether there is more.
///
/// # Errors
///
/// [`FileError`](super::FileError) when it is not there, is no plain file, or cannot be read.
pub fn read_at_most(path: impl AsRef<Path>, limit: usize) -> Result<(Vec<u8>, bool)> {
    let path = path.as_ref();
    on("read", path, open_plain(path).and_then(|file| up_to(file, limit)))
}

/// The same of a file that the user names: also a pipe (`<(...)`), a FIFO or a terminal, which are waited for. An interrupt ends
/// that ([`io::ErrorKind::Interrupted`]).
///
/// # Errors
///
/// [`FileError`](super::FileError) when it is not there or cannot be read, or an interrupt came while it was waited for.
pub fn read_named_by_user(path: impl AsRef<Path>, limit: usize) -> Result<(Vec<u8>, bool)> {
    let path = path.as_ref();
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let open = || File::options().read(true).custom_flags(flags.bits()).open(path);
    on("read", path, open().and_then(|file| up_to(Waiting(file), limit)))
}

/// The same of standard input.
///
/// # Errors
///
/// [`FileError`](super::FileError) when standard input is closed or cannot be read, or an interrupt came while it was waited
/// for.
pub fn read_standard_input(limit: usize) -> Result<(Vec<u8>, bool)> {
    let path = Path::new("<stdin>");
    let own = io::stdin().as_fd().try_clone_to_owned().map(File::from);
    on("read", path, own.and_then(|file| up_to(Waiting(file), limit)))
}

/// Opens a plain file to be read in pieces, by whoever bounds what he takes of it.
///
/// # Errors
///
/// [`FileError`](super::FileError) when it is not there, is no plain file, or cannot be read.
pub fn open(path: impl AsRef<Path>) -> Result<File> {
    let path = path.as_ref();
    on("open", path, open_plain(path))
}

/// Opens what is at `path` for reading if it is a plain file. Nothing else is opened at all, since to open a device can do
/// something to it, unless it is exchanged in that moment; then it is not waited for.
pub(crate) fn open_plain(path: &Path) -> io::Result<File> {
    plain(&std::fs::metadata(path)?)?;
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits()).open(path)?;
    plain(&file.metadata()?)?;
    Ok(file)
}

pub(super) fn plain(found: &std::fs::Metadata) -> io::Result<()> {
    let kind = found.file_type();
    let what = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => return Err(Errno::EISDIR.into()),
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(io::Error::other(format!("it is {what}, not a plain file")))
}

fn up_to(mut from: impl Read, limit: usize) -> io::Result<(Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    from.by_ref().take(limit as u64 + 1).read_to_end(&mut bytes)?;
    let more = bytes.len() > limit;
    bytes.truncate(limit);
    Ok((bytes, more))
}

/// Reads when there is something to read, until an interrupt is pending.
struct Waiting(File);

impl Read for Waiting {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if interrupt::pending() {
                // Of this kind `read_to_end` would begin again.
                return Err(io::Error::from(Errno::ECANCELED));
            }
            let mut ready = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            match poll(&mut ready, PollTimeout::from(LOOK)) {
                Ok(0) | Err(Errno::EINTR) => continue,
                Ok(_) => {}
                Err(errno) => return Err(errno.into()),
            }
            match self.0.read(into) {
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                read => return read,
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::{fs, io::Write, os::unix::fs::symlink, thread, time::Duration};

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    #[test]
    fn what_is_no_plain_file_is_neither_waited_for_nor_read() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for (name, what) in [("fifo", "a FIFO"), ("zero", "a device"), ("socket", "a socket")] {
            let path = at(name);
            let errors = [
                read(&path).unwrap_err(),
                read_to_string(&path).unwrap_err(),
                read_at_most(&path, 10).unwrap_err(),
                super::super::read_tail(&path, 10).unwrap_err(),
                super::super::copy(&path, at("copy")).unwrap_err(),
                super::super::append_from(&mut tempfile::tempfile().unwrap(), &path).unwrap_err(),
            ];
            for error in errors {
                assert_eq!(error.source.to_string(), format!("it is {what}, not a plain file"), "{error}");
            }
        }
        assert!(!at("copy").exists());
        assert_eq!(read(directory.path()).unwrap_err().source.raw_os_error(), Some(Errno::EISDIR as i32));
    }

    #[test]
    fn what_is_appended_to_is_a_plain_file_of_that_name() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("secret"), "untouched").unwrap();
        symlink(at("secret"), at("link")).unwrap();
        mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        let _reader =
            File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(at("fifo")).unwrap();
        for name in ["link", "fifo"] {
            assert!(super::super::append(at(name)).is_err(), "{name}");
        }
        super::super::append(at("secret")).unwrap().write_all(b".").unwrap();
        assert_eq!(fs::read_to_string(at("secret")).unwrap(), "untouched.");
    }

    #[test]
    fn a_file_that_is_too_long_is_an_error_and_not_in_memory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 40).unwrap();
        assert!(read_whole(file.path(), 4096).unwrap_err().source.to_string().contains("longer than 4096"));
        assert!(read_at_most(file.path(), 4096).unwrap().1);
        file.as_file().set_len(4096).unwrap();
        assert_eq!(read_whole(file.path(), 4096).unwrap().len(), 4096);
    }

    #[test]
    fn what_the_user_names_may_be_a_pipe_and_has_a_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let writer = path.clone();
        let writer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            let mut pipe = File::options().write(true).open(writer).unwrap();
            for word in ["in ", "two"] {
                pipe.write_all(word.as_bytes()).unwrap();
                thread::sleep(Duration::from_millis(100));
            }
        });
        assert_eq!(read_named_by_user(&path, 100).unwrap(), (b"in two".to_vec(), false));
        writer.join().unwrap();
        assert!(read_named_by_user("/dev/zero", 100).unwrap().1);
        fs::write(directory.path().join("file"), "text").unwrap();
        assert_eq!(read_named_by_user(directory.path().join("file"), 4).unwrap(), (b"text".to_vec(), false));
    }
}
