//! Files that are written whole or not at all.
//!
//! A file is written under a name of its own in its directory, which is held open meanwhile, then renamed. That name is
//! new (`O_EXCL`) and no link (`O_NOFOLLOW`): whoever may write to the directory cannot lead the writer, who may be root,
//! to another file, nor have the bytes written to one that he keeps open.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, Write},
    os::{fd::AsFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, openat, renameat},
    sys::stat::Mode,
    unistd::{UnlinkatFlags, linkat, unlinkat},
};

use super::{Held, Result, list, on, remove_file, sync_directory};
use crate::running::Running;

/// Writes a file whole or not at all: to a temporary beside it, synced, then renamed over it. A link at `path` is replaced,
/// not followed. Readable for all; see [`write_atomic_mode`].
///
/// # Errors
///
/// [`FileError`](super::FileError) when its directory is not there or may not be written, or the disk is full; `path` is then
/// as it was.
pub fn write_atomic(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<()> {
    write_atomic_mode(path, bytes, 0o644)
}

/// As [`write_atomic`], with these permissions from the first byte on, whatever the umask says.
///
/// # Errors
///
/// As [`write_atomic`].
pub fn write_atomic_mode(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>, mode: u32) -> Result<()> {
    let path = path.as_ref();
    on("write", path, Held::of(path).and_then(|held| write_at(held, bytes.as_ref(), mode)))
}

/// As [`write_atomic_mode`], of bytes that are never in memory as a whole: `write` is given the open file, which gets its name when that
/// has succeeded.
///
/// # Errors
///
/// As [`write_atomic`], and what `write` said.
pub fn write_atomic_with<T>(
    path: impl AsRef<Path>,
    mode: u32,
    write: impl FnOnce(&mut File) -> io::Result<T>,
) -> Result<T> {
    let path = path.as_ref();
    let written = || {
        let (part, told) = Part::write(Held::of(path)?, mode, write)?;
        part.replace()?;
        Ok(told)
    };
    on("write", path, written())
}

/// As [`write_atomic_mode`], where the directory is found already.
pub(super) fn write_at(held: Held, bytes: &[u8], mode: u32) -> io::Result<()> {
    Part::write(held, mode, |file| file.write_all(bytes))?.0.replace()
}

/// As [`write_atomic`], and on disk under its name when this returns: the directory is synced too.
///
/// # Errors
///
/// As [`write_atomic`]; and when the directory cannot be synced, with the file written but perhaps not yet on disk.
pub fn write_durable(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<()> {
    let path = path.as_ref();
    write_atomic(path, bytes)?;
    path.parent().map_or(Ok(()), sync_directory)
}

/// Makes a file with these contents, whole and on disk, unless there is one: of several that try, one succeeds. `Ok(false)`
/// when it was there.
///
/// # Errors
///
/// As [`write_durable`], but for a file that is there already.
pub fn create_durable(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<bool> {
    let path = path.as_ref();
    let whole = |file: &mut File| file.write_all(bytes.as_ref());
    let write = Held::of(path).and_then(|held| Part::write(held, 0o644, whole));
    match write.and_then(|(part, ())| part.create()) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        created => {
            on("create", path, created)?;
            path.parent().map_or(Ok(()), sync_directory)?;
            Ok(true)
        }
    }
}

/// As [`remove_file`], and gone on disk when this returns.
///
/// # Errors
///
/// As [`remove_file`]; and when the directory cannot be synced, with the file removed but perhaps not yet on disk.
pub fn remove_durable(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    remove_file(path)?;
    match path.parent().map_or(Ok(()), sync_directory) {
        // Without its directory it is gone as well.
        Err(error) if error.is_missing() => Ok(()),
        synced => synced,
    }
}

/// Removes what processes that are gone have left of writing this file ([`write_atomic`]).
///
/// # Errors
///
/// [`FileError`](super::FileError) when the directory cannot be read, or one of them cannot be removed.
pub fn remove_parts(path: impl AsRef<Path>) -> Result<()> {
    parts_left(path.as_ref())?.iter().try_for_each(remove_file)
}

/// Whether there is anything that [`remove_parts`] would remove.
///
/// # Errors
///
/// [`FileError`](super::FileError) when the directory cannot be read.
pub fn has_parts(path: impl AsRef<Path>) -> Result<bool> {
    Ok(!parts_left(path.as_ref())?.is_empty())
}

/// What nobody goes on writing.
fn parts_left(path: &Path) -> Result<Vec<PathBuf>> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str()))
    else {
        return Ok(Vec::new());
    };
    let names = match list(directory) {
        Err(error) if error.is_missing() => return Ok(Vec::new()),
        names => names?,
    };
    let is_left = |part: &String| {
        let rest = part.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')?.strip_suffix(".part"));
        // Older versions left out the random part.
        let writer = rest.and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
        writer.is_some_and(|writer| writer == std::process::id() || Running::of(writer).is_none())
    };
    Ok(names.into_iter().filter(is_left).map(|part| directory.join(part)).collect())
}

/// Copies what is left of a file, and its permissions.
pub(super) fn copy(from: &mut File, to: &Path) -> io::Result<u64> {
    let mode = from.metadata()?.permissions().mode() & 0o7777;
    let (part, mut file) = Part::of(Held::of(to)?)?;
    let copied = io::copy(from, &mut file)?;
    file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    part.replace()?;
    Ok(copied)
}

/// A file that is written and has no name of its own yet; removed when it is dropped without getting one.
struct Part {
    held: Held,
    /// `NAME.PROCESS.RANDOM.part`; see [`remove_parts`].
    part: OsString,
}

impl Part {
    /// Of its owner alone until it is given other permissions.
    fn of(held: Held) -> io::Result<(Part, File)> {
        let (file, part) = create_new(&held, &held.name)?;
        Ok((Part { held, part }, file))
    }

    fn write<T>(
        held: Held,
        mode: u32,
        write: impl FnOnce(&mut File) -> io::Result<T>,
    ) -> io::Result<(Part, T)> {
        let (part, mut file) = Part::of(held)?;
        // What it is to be read by is set before there is anything to read.
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        let told = write(&mut file)?;
        file.sync_all()?;
        Ok((part, told))
    }

    /// Gives it its name; what had it is gone.
    fn replace(self) -> io::Result<()> {
        Ok(renameat(&self.held, self.part.as_os_str(), &self.held, self.held.name.as_os_str())?)
    }

    /// Gives it its name if nothing has it. A link, unlike a rename, never replaces what is there.
    fn create(self) -> io::Result<()> {
        let (part, name) = (self.part.as_os_str(), self.held.name.as_os_str());
        Ok(linkat(&self.held, part, &self.held, name, AtFlags::empty())?)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // After a rename it is gone already.
        let _ = unlinkat(&self.held, self.part.as_os_str(), UnlinkatFlags::NoRemoveDir);
    }
}

/// Makes a new file beside `name`, under a name that nobody can foresee.
fn create_new(directory: &impl AsFd, name: &OsStr) -> io::Result<(File, OsString)> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut attempts = 16;
    loop {
        let mut part = name.to_owned();
        part.push(format!(
            ".{}.{:016x}.part",
            std::process::id(),
            RandomState::new().build_hasher().finish()
        ));
        attempts -= 1;
        match openat(directory, part.as_os_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR) {
            Err(Errno::EEXIST) if attempts > 0 => {}
            opened => return Ok((File::from(opened?), part)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_link_at_the_name_is_replaced_and_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (secret, path) = (directory.path().join("secret"), directory.path().join("file"));
        fs::write(&secret, "untouched").unwrap();
        symlink(&secret, &path).unwrap();
        write_atomic(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&secret).unwrap(), "untouched");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
    }

    #[test]
    fn a_link_that_waits_for_the_temporary_file_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (secret, path) = (directory.path().join("secret"), directory.path().join("file"));
        fs::write(&secret, "untouched").unwrap();
        // The name that was used before it was random, as the owner of the directory could foresee it.
        symlink(&secret, directory.path().join(format!("file.{}.part", std::process::id()))).unwrap();
        write_atomic(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&secret).unwrap(), "untouched");
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn a_name_that_is_taken_is_never_opened() {
        let directory = tempfile::tempdir().unwrap();
        let held = Held::of(&directory.path().join("file")).unwrap();
        let (_, first) = create_new(&held, OsStr::new("file")).unwrap();
        let (_, second) = create_new(&held, OsStr::new("file")).unwrap();
        assert_ne!(first, second);
    }

    #[test]
    fn nothing_is_left_of_a_write_that_fails() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("name")).unwrap();
        assert!(write_atomic(directory.path().join("name"), "over a directory").is_err());
        assert!(!create_durable(directory.path().join("name"), "it is there").unwrap());
        assert_eq!(list(directory.path()).unwrap(), ["name"]);
    }

    #[test]
    fn nothing_is_left_of_a_stream_that_breaks_off() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        write_atomic(&path, "before").unwrap();
        let broken = write_atomic_with(&path, 0o600, |file| -> io::Result<()> {
            file.write_all(b"half")?;
            Err(io::Error::other("the rest does not come"))
        });
        assert!(broken.unwrap_err().to_string().contains("write"));
        assert_eq!(list(directory.path()).unwrap(), ["file"]);
        assert_eq!(fs::read(&path).unwrap(), b"before");
        assert_eq!(write_atomic_with(&path, 0o750, |file| file.write(b"after")).unwrap(), 5);
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"after".to_vec(), 0o750));
    }

    #[test]
    fn the_permissions_are_as_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for bits in [0o600, 0o644, 0o755] {
            write_atomic_mode(&path, "text", bits).unwrap();
            assert_eq!(mode(&path), bits);
        }
    }

    #[test]
    fn what_dead_writers_left_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let alive = format!("file.1.{:016x}.part", 7);
        // One that was killed and that its parent has not waited for yet.
        let mut killed = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        killed.kill().unwrap();
        while Running::of(killed.id()).is_some() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let ended = format!("file.{}.{:016x}.part", killed.id(), 7);
        for name in
            ["file.4194305.0123456789abcdef.part", "file.4194305.part", &alive, &ended, "other.4194305.part"]
        {
            fs::write(directory.path().join(name), "").unwrap();
        }
        assert!(has_parts(directory.path().join("file")).unwrap());
        remove_parts(directory.path().join("file")).unwrap();
        assert!(!has_parts(directory.path().join("file")).unwrap(), "one who lives goes on with its own");
        killed.wait().unwrap();
        assert_eq!(list(directory.path()).unwrap(), [alive.as_str(), "other.4194305.part"]);
    }
}
