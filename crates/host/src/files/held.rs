//! Directories that are reached without being led elsewhere, and held.
//!
//! Whoever owns a directory on the way to a file can put a symbolic link there, at any time: root who is told to write below it
//! would write wherever the link leads. So each part of a path is opened by itself, from a directory that is held
//! (`openat(2)`, `O_NOFOLLOW`), and a link is followed only where both it and its directory belong to root or to the user of
//! this process, and nobody else can exchange it. What is made, renamed and removed is then so in the directory that was found, whatever
//! becomes of its name. Works with every kernel: `openat2` could only refuse all links.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, Permissions},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
    path::{Component, Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlinkat},
    sys::{
        stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat},
        statfs::{PROC_SUPER_MAGIC, fstatfs},
    },
    unistd::{Uid, UnlinkatFlags, geteuid, symlinkat, unlinkat},
};

use super::others::is_open;

/// As many links on the way to a file as Linux follows (`MAXSYMLINKS`).
pub(super) const LINKS: usize = 40;

/// How a part of a path is opened: neither read nor written, and only if it is a directory.
const STEP: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Where something is or will be: a directory that is held, and a name in it.
#[derive(Debug)]
pub(super) struct Held {
    directory: OwnedFd,
    /// One part of a path; neither `.` nor `..`.
    pub name: OsString,
}

impl Held {
    /// Holds the directory that `path` is in.
    ///
    /// # Errors
    ///
    /// `EISDIR` for a path without a name in the end; what the kernel says of a directory on the way that cannot be opened.
    pub fn of(path: &Path) -> io::Result<Held> {
        let name = path.file_name().ok_or(Errno::EISDIR)?.to_owned();
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        Ok(Held { directory: directory(above.unwrap_or(Path::new(".")), None)?, name })
    }

    /// Opens what has the name; never through a link.
    ///
    /// # Errors
    ///
    /// What the kernel says; for a link, that links are not followed.
    pub fn open(&self, flags: OFlag, mode: u32) -> io::Result<File> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        match openat(self, self.name.as_os_str(), flags, Mode::from_bits_truncate(mode)) {
            // What the kernel says of a link here would be taken for a circle of links.
            Err(Errno::ELOOP) => Err(io::Error::other("it is a symbolic link, which is not followed")),
            opened => Ok(File::from(opened?)),
        }
    }

    /// What the kernel knows of what has the name, which may be a link.
    ///
    /// # Errors
    ///
    /// What the kernel says: `ENOENT` when nothing has the name.
    pub fn look(&self) -> nix::Result<FileStat> {
        fstatat(self, self.name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW)
    }

    /// A path that leads to the name in the directory that is held, for as long as this lives (`proc_pid_fd(5)`).
    pub fn path(&self) -> PathBuf {
        path_of(self.as_fd()).join(&self.name)
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// A path that leads to what is open.
fn path_of(open: BorrowedFd<'_>) -> PathBuf {
    format!("/proc/self/fd/{}", open.as_raw_fd()).into()
}

/// The directory `path`, reached without being led elsewhere. What is missing of it is made with the mode `make`.
pub(super) fn directory(path: &Path, make: Option<u32>) -> io::Result<OwnedFd> {
    // Parts that are still to go, the next one last, and whether a link named them.
    let mut rest: Vec<(OsString, bool)> = Vec::new();
    let mut walk = Walk::from(path)?;
    rest.extend(parts(path).rev().map(|part| (part, false)));
    let mut links = 0;
    while let Some((part, of_link)) = rest.pop() {
        let mut attempts = 16;
        loop {
            attempts -= 1;
            match openat(&walk.held, part.as_os_str(), STEP, Mode::empty()) {
                Ok(next) => walk.enter(next, &part),
                // A link that leads to nothing is not to lead to something by that.
                Err(Errno::ENOENT) if !of_link && attempts > 0 => {
                    let mode = Mode::from_bits_truncate(make.ok_or(Errno::ENOENT)?);
                    match mkdirat(&walk.held, part.as_os_str(), mode) {
                        Ok(()) | Err(Errno::EEXIST) => continue,
                        Err(errno) => return Err(errno.into()),
                    }
                }
                Err(Errno::ENOTDIR | Errno::ELOOP) => match walk.follow(&part)? {
                    _ if links == LINKS => return Err(Errno::ELOOP.into()),
                    Leaf::Target(target) => {
                        links += 1;
                        if target.is_absolute() {
                            walk = Walk::from(&target)?;
                        }
                        rest.extend(parts(&target).rev().map(|part| (part, true)));
                    }
                    Leaf::Directory if attempts > 0 => continue,
                    Leaf::Directory => return Err(Errno::EAGAIN.into()),
                    Leaf::Entered => links += 1,
                },
                Err(errno) => return Err(errno.into()),
            }
            break;
        }
    }
    Ok(walk.held)
}

/// The parts of a path that are to be gone through.
pub(super) fn parts(path: &Path) -> impl DoubleEndedIterator<Item = OsString> + '_ {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}

/// Where a walk has come to.
struct Walk {
    held: OwnedFd,
    /// The path that has been walked so far, for messages; empty at the working directory.
    shown: PathBuf,
}

/// What was at a part of a path that is no directory.
enum Leaf {
    /// A link that may be followed.
    Target(PathBuf),
    /// One of procfs, which the kernel has followed: what it reads as need not be a path.
    Entered,
    /// A directory has come there meanwhile.
    Directory,
}

impl Walk {
    fn from(path: &Path) -> io::Result<Walk> {
        let start = Path::new(if path.is_absolute() { "/" } else { "." });
        let shown = if path.is_absolute() { start.to_owned() } else { PathBuf::new() };
        Ok(Walk { held: openat(AT_FDCWD, start, STEP, Mode::empty())?, shown })
    }

    fn enter(&mut self, next: OwnedFd, part: &OsStr) {
        self.held = next;
        self.shown.push(part);
    }

    /// Looks at what is no directory; a link that is not to be followed is an error.
    fn follow(&mut self, part: &OsStr) -> io::Result<Leaf> {
        let link =
            openat(&self.held, part, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
        let (of_link, above) = (fstat(&link)?, fstat(&self.held)?);
        match kind(&of_link) {
            SFlag::S_IFLNK => {}
            SFlag::S_IFDIR => return Ok(Leaf::Directory),
            _ => return Err(Errno::ENOTDIR.into()),
        }
        if let Some(why) = distrust(&of_link, &above) {
            let text = format!(
                "{} is a symbolic link {why}, and not followed; name the directory itself in which it is to be, or move the link",
                self.shown.join(part).display()
            );
            return Err(io::Error::other(text));
        }
        if fstatfs(&self.held)?.filesystem_type() == PROC_SUPER_MAGIC {
            let next = openat(
                &self.held,
                part,
                OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
                Mode::empty(),
            )?;
            self.enter(next, part);
            return Ok(Leaf::Entered);
        }
        Ok(Leaf::Target(readlinkat(&link, "")?.into()))
    }
}

fn kind(data: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(data.st_mode) & SFlag::S_IFMT
}

/// Why a link in a directory is not followed; `None` when it may be.
fn distrust(link: &FileStat, above: &FileStat) -> Option<String> {
    let us = geteuid();
    let trusted = |user: u32| {
        // In a user namespace the real root's files belong to nobody, as `/` does.
        let owner = || fs::metadata("/").map(|data| std::os::unix::fs::MetadataExt::uid(&data));
        user == 0 || Uid::from_raw(user) == us || owner().is_ok_and(|owner| owner == user)
    };
    let others = is_open(above.st_mode, above.st_uid, above.st_gid);
    match () {
        () if !trusted(link.st_uid) => Some(format!("that belongs to user {}", link.st_uid)),
        () if !trusted(above.st_uid) => Some(format!("in a directory that belongs to user {}", above.st_uid)),
        () if others && above.st_mode & 0o002 != 0 => {
            Some("in a directory to which everybody may write".to_owned())
        }
        () if others => Some(format!("in a directory to which group {} may write", above.st_gid)),
        () => None,
    }
}

/// Has the names in the directory `path` reach the disk.
pub(super) fn sync(path: &Path) -> io::Result<()> {
    let held = directory(path, None)?;
    let readable =
        openat(&held, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    File::from(readable).sync_all()
}

/// Sets the permission bits of what is at `path`; through no link.
pub(super) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    set_mode_of(Held::of(path)?.open(OFlag::O_PATH, 0)?.as_fd(), mode)
}

/// Sets the permission bits of what is open, if only as a path (`O_PATH`).
pub(super) fn set_mode_of(open: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    if kind(&fstat(open)?) == SFlag::S_IFLNK {
        return Err(io::Error::other("it is a symbolic link, which is not followed"));
    }
    fs::set_permissions(path_of(open), Permissions::from_mode(mode))
}

/// Removes what is at `path`, with everything below it; a link is removed itself.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    let held = Held::of(path)?;
    held.look()?;
    match fs::remove_dir_all(held.path()) {
        // Not because it is gone, but because there is no procfs to find it by.
        Err(error) if error.kind() == io::ErrorKind::NotFound && held.look().is_ok() => {
            Err(io::Error::other("/proc is not mounted"))
        }
        removed => removed,
    }
}

/// A directory of this user alone, held: whatever becomes of its name, what is made through [`OwnDirectory::path`] is in it.
#[derive(Debug)]
pub struct OwnDirectory(OwnedFd);

impl OwnDirectory {
    pub(super) fn at(path: &Path) -> io::Result<OwnDirectory> {
        let held = Held::of(path)?;
        // Whatever it is: the caller looks at it.
        Ok(OwnDirectory(held.open(OFlag::O_PATH, 0)?.into()))
    }

    /// A path that leads to it, for as long as this lives.
    pub fn path(&self) -> PathBuf {
        path_of(self.0.as_fd())
    }

    /// Writes a file in it whole or not at all, as [`super::write_atomic_mode`] does, and need not find the directory for it.
    ///
    /// # Errors
    ///
    /// [`FileError`](super::FileError) when `name` is no name of a file, or it cannot be written; it is then as it was.
    pub fn write_atomic_mode(&self, name: &str, bytes: impl AsRef<[u8]>, mode: u32) -> super::Result<()> {
        let write = || super::atomic::write_at(self.holding(name)?, bytes.as_ref(), mode);
        super::on("write", &self.path().join(name), write())
    }

    /// Removes a file in it; already gone is success.
    ///
    /// # Errors
    ///
    /// [`FileError`](super::FileError) when `name` is no name of a file, or it may not be removed.
    pub fn remove_file(&self, name: &str) -> super::Result<()> {
        let remove =
            || Ok(unlinkat(&self.0, self.holding(name)?.name.as_os_str(), UnlinkatFlags::NoRemoveDir)?);
        super::on("remove", &self.path().join(name), super::gone_is_fine(remove()))
    }

    /// The directory `path` below it, made where it is missing, for this user alone. No link is followed.
    pub(crate) fn directory(&self, path: &Path) -> io::Result<OwnDirectory> {
        let mut held = self.0.try_clone()?;
        for part in parts(path) {
            match mkdirat(&held, part.as_os_str(), Mode::S_IRWXU) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            held = openat(&held, part.as_os_str(), STEP, Mode::empty())?;
        }
        Ok(OwnDirectory(held))
    }

    /// Makes a file in it, which must not be there yet.
    pub(crate) fn make_file(&self, name: &OsStr, bytes: &[u8], mode: u32) -> io::Result<()> {
        let held = Held { directory: self.0.try_clone()?, name: name.to_owned() };
        let mut file = held.open(OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL, mode)?;
        io::Write::write_all(&mut file, bytes)
    }

    /// Makes a symbolic link in it, which must not be there yet.
    pub(crate) fn make_link(&self, name: &OsStr, target: &Path) -> io::Result<()> {
        Ok(symlinkat(target, &self.0, name)?)
    }

    /// A name in it.
    fn holding(&self, name: &str) -> io::Result<Held> {
        match Path::new(name).components().next() {
            Some(Component::Normal(only)) if only == name => {
                Ok(Held { directory: self.0.try_clone()?, name: only.to_owned() })
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }

    pub(super) fn data(&self) -> io::Result<FileStat> {
        Ok(fstat(&self.0)?)
    }

    pub(super) fn set_mode(&self, mode: u32) -> io::Result<()> {
        set_mode_of(self.0.as_fd(), mode)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::super as files;
    use super::*;

    /// An account of nobody here.
    const NOBODY: u32 = 65534;

    #[test]
    fn a_link_is_followed_where_nobody_else_can_put_one() {
        let there = tempfile::tempdir().unwrap();
        let at = |name: &str| there.path().join(name);
        fs::create_dir_all(at("real/deep")).unwrap();
        fs::create_dir(at("links")).unwrap();
        symlink("../real", at("links/relative")).unwrap();
        symlink(at("real"), at("links/absolute")).unwrap();
        symlink(at("links/absolute/../real/deep/.."), at("links/chain")).unwrap();
        for name in ["relative", "absolute", "chain"] {
            let directory = at("links").join(name);
            files::create_dir_all(directory.join("deep/made")).unwrap();
            files::write_atomic(directory.join("deep/made").join(name), name).unwrap();
            assert_eq!(fs::read_to_string(at("real/deep/made").join(name)).unwrap(), name);
        }
        let mode = |mode: u32| fs::set_permissions(at("links"), Permissions::from_mode(mode)).unwrap();
        let write = || files::write_atomic(at("links/absolute/file"), "x");
        mode(0o777);
        let error = crate::chain(&write().unwrap_err());
        assert!(error.contains("in a directory to which everybody may write"), "{error}");
        // Nobody can rename there what is somebody else's.
        mode(0o1777);
        write().unwrap();
        if geteuid().is_root() {
            // A link of root's that somebody has got into his directory.
            lchown(at("links"), Some(NOBODY), None).unwrap();
            let error = crate::chain(&write().unwrap_err());
            assert!(error.contains("in a directory that belongs to user 65534"), "{error}");
            lchown(at("links"), Some(0), None).unwrap();
            // A group that may write there: one with others in it, and those of root and of who may become root.
            let group = |group: u32| lchown(at("links"), None, Some(group)).unwrap();
            for (number, bits, is_followed) in [
                (NOBODY, 0o775, false),
                (NOBODY, 0o1775, true),
                (NOBODY, 0o755, true),
                (0, 0o775, true),
                (50, 0o775, true),
            ] {
                group(number);
                mode(bits);
                let outcome = write().map_err(|error| crate::chain(&error));
                assert_eq!(outcome.is_ok(), is_followed, "{number} {bits:o}: {outcome:?}");
                let told = outcome.err().is_none_or(|error| error.contains("to which group 65534 may write"));
                assert!(told, "{number} {bits:o}");
            }
            group(0);
        } else {
            penstock_testkit::skip::part("needs root");
        }
        // Links that lead to nothing, nowhere and in circles.
        symlink("nothing", at("links/dangling")).unwrap();
        symlink("circle", at("links/circle")).unwrap();
        assert!(files::create_dir_all(at("links/dangling/new")).unwrap_err().is_missing());
        assert!(!at("links/nothing").exists());
        let error = files::create_dir_all(at("links/circle/new")).unwrap_err();
        assert_eq!(error.source.raw_os_error(), Some(Errno::ELOOP as i32));
        let error = files::create_dir_all(at("real/deep/made/chain")).unwrap_err();
        assert_eq!(error.source.raw_os_error(), Some(Errno::ENOTDIR as i32));
        // What the kernel itself has for a directory that is open.
        let open = File::open(at("real")).unwrap();
        files::write_atomic(format!("/proc/self/fd/{}/by-number", open.as_raw_fd()), "x").unwrap();
        assert!(at("real/by-number").exists());
    }

    #[test]
    fn what_is_made_in_a_directory_that_is_held_stays_in_it() {
        let there = tempfile::tempdir().unwrap();
        let at = |name: &str| there.path().join(name);
        fs::create_dir(at("victim")).unwrap();
        let held = files::hold_own_directory(at("own")).unwrap();
        fs::rename(at("own"), at("away")).unwrap();
        symlink("victim", at("own")).unwrap();
        fs::write(held.path().join("file"), "x").unwrap();
        assert_eq!(files::list(at("away")).unwrap(), ["file"]);
        held.write_atomic_mode("other", "x", 0o600).unwrap();
        assert_eq!(files::list(at("away")).unwrap(), ["file", "other"]);
        assert_eq!(fs::metadata(at("away/other")).unwrap().permissions().mode() & 0o777, 0o600);
        for _ in 0..2 {
            held.remove_file("other").unwrap();
        }
        assert_eq!(files::list(at("away")).unwrap(), ["file"]);
        for name in ["", ".", "..", "../file", "deep/file", "/file"] {
            assert!(held.write_atomic_mode(name, "x", 0o600).is_err(), "{name}");
            assert!(held.remove_file(name).is_err(), "{name}");
        }
        assert_eq!(files::list(at("victim")).unwrap(), [""; 0]);
        let error = crate::chain(&files::hold_own_directory(at("own")).unwrap_err());
        assert!(error.contains("it is a symbolic link"), "{error}");
        assert!(files::set_mode(at("own"), 0o777).is_err());
    }
}
