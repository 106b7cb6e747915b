//! Names in directories that are reached without being led elsewhere, and held.
//!
//! Whoever owns a directory on the way to a socket or a file can put a symbolic link there, at any time: a switch of root's would make
//! and remove things wherever the link leads. So each part of a path is opened by itself (`openat(2)`, `O_NOFOLLOW`), and a link is
//! followed only where both it and its directory belong to root or to who runs the switch, and nobody else can exchange it. What is done
//! then is done in the directory that was found, whatever becomes of its name.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Component, Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlinkat, renameat},
    sys::stat::{FileStat, Mode, SFlag, fstat, fstatat},
    unistd::{Uid, UnlinkatFlags, unlinkat},
};

/// As many links on the way to a file as Linux follows (`MAXSYMLINKS`).
const LINKS: usize = 40;

/// How a part of a path is opened: neither read nor written, and only if it is a directory.
const STEP: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Where something is or will be: a directory that is held, and a name in it.
#[derive(Debug)]
pub(crate) struct HeldName {
    directory: OwnedFd,
    name: OsString,
}

impl HeldName {
    /// Holds the directory that `path` is in.
    ///
    /// # Errors
    /// It is not there, may not be entered, or a link of somebody else's is on the way.
    pub fn of(path: &Path) -> io::Result<HeldName> {
        let name = path.file_name().ok_or(Errno::EISDIR)?.to_owned();
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        Ok(HeldName { directory: directory(above.unwrap_or(Path::new(".")))?, name })
    }

    /// A path that leads to the name in the directory that is held, for as long as this lives (`proc_pid_fd(5)`).
    pub fn path(&self) -> PathBuf {
        self.directory_path().join(&self.name)
    }

    fn directory_path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.directory.as_raw_fd()).into()
    }

    /// Opens what has the name; never through a link.
    ///
    /// # Errors
    ///
    /// What the kernel says; `ELOOP` for a link.
    pub fn open(&self, flags: OFlag, mode: Mode) -> nix::Result<OwnedFd> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        openat(&self.directory, self.name.as_os_str(), flags, mode)
    }

    /// What has the name, which may be a link.
    ///
    /// # Errors
    ///
    /// What the kernel says: `ENOENT` when nothing has the name.
    pub fn look(&self) -> nix::Result<FileStat> {
        fstatat(&self.directory, self.name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW)
    }

    /// Removes what has the name.
    ///
    /// # Errors
    ///
    /// What the kernel says: `ENOENT` when nothing has the name.
    pub fn remove(&self) -> nix::Result<()> {
        unlinkat(&self.directory, self.name.as_os_str(), UnlinkatFlags::NoRemoveDir)
    }

    /// Another name in the same directory.
    ///
    /// # Errors
    ///
    /// When no more files can be open.
    pub fn beside(&self, name: OsString) -> io::Result<HeldName> {
        Ok(HeldName { directory: self.directory.try_clone()?, name })
    }

    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Gives it the name of another in the same directory, which is gone then.
    ///
    /// # Errors
    ///
    /// What the kernel says; both are as they were then.
    pub fn replace(&self, other: &HeldName) -> nix::Result<()> {
        renameat(&self.directory, self.name.as_os_str(), &other.directory, other.name.as_os_str())
    }

    /// Has the names in its directory reach the disk.
    ///
    /// # Errors
    ///
    /// What the kernel says of the directory or its disk.
    pub fn sync_directory(&self) -> io::Result<()> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        File::from(openat(&self.directory, ".", flags, Mode::empty())?).sync_all()
    }

    /// The names in its directory.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read.
    pub fn siblings(&self) -> io::Result<Vec<OsString>> {
        fs::read_dir(self.directory_path())?.map(|entry| Ok(entry?.file_name())).collect()
    }

    /// Where it leads, if it is a link that may be followed.
    pub fn leads_to(&self) -> Option<PathBuf> {
        target(self.directory.as_fd(), &self.name).ok()
    }
}

pub(crate) fn kind(data: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(data.st_mode) & SFlag::S_IFMT
}

/// The directory `path`, reached without being led elsewhere.
fn directory(path: &Path) -> io::Result<OwnedFd> {
    let root_of = |path: &Path| {
        let start = if path.is_absolute() { "/" } else { "." };
        openat(AT_FDCWD, start, STEP, Mode::empty())
    };
    let mut held = root_of(path)?;
    // Parts that are still to go, the next one last.
    let mut rest: Vec<OsString> = parts(path).rev().collect();
    let mut links = 0;
    while let Some(part) = rest.pop() {
        match openat(&held, part.as_os_str(), STEP, Mode::empty()) {
            Ok(next) => held = next,
            Err(Errno::ENOTDIR | Errno::ELOOP) => {
                links += 1;
                if links > LINKS {
                    return Err(Errno::ELOOP.into());
                }
                let target = target(held.as_fd(), &part)?;
                if target.is_absolute() {
                    held = root_of(&target)?;
                }
                rest.extend(parts(&target).rev());
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(held)
}

/// The parts of a path that are to be gone through.
fn parts(path: &Path) -> impl DoubleEndedIterator<Item = OsString> + '_ {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}

/// Where a link leads that may be followed.
fn target(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<PathBuf> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let link = openat(directory, name, flags, Mode::empty())?;
    let (of_link, above) = (fstat(&link)?, fstat(directory)?);
    if kind(&of_link) != SFlag::S_IFLNK {
        return Err(Errno::ENOTDIR.into());
    }
    if !is_trusted(&of_link, &above) {
        let text = format!(
            "{} is a symbolic link that others than root and this user can change, and not followed",
            name.display()
        );
        return Err(io::Error::other(text));
    }
    Ok(readlinkat(&link, "")?.into())
}

/// Whether a link in a directory is root's or ours alone.
fn is_trusted(link: &FileStat, above: &FileStat) -> bool {
    // In a user namespace the real root's files belong to nobody, as `/` does.
    let root = fs::metadata("/").map_or(0, |data| data.uid());
    let us = Uid::effective().as_raw();
    let ours = |user: u32| user == 0 || user == root || user == us;
    let (owner, group) = (above.st_uid, above.st_gid);
    let is_own = || {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        owner == us && is_own_group(owner, group, &read("/etc/passwd"), &read("/etc/group"))
    };
    ours(link.st_uid) && ours(owner) && !is_open_unless(above.st_mode, owner, group, is_own)
}

/// Debian's group for who may install below /usr/local: its members can become root at will (base-passwd, users-and-groups).
const STAFF: u32 = 50;

/// Whether others than its owner may write to what has this mode, owner and group. A directory with the sticky bit lets nobody replace what
/// is somebody else's. A group whose number is its owner's has nobody else in it (the private groups of useradd(8)), nor has
/// one of which somebody knows that it is his own.
fn is_open_unless(mode: u32, owner: u32, group: u32, is_own: impl Fn() -> bool) -> bool {
    let is_directory = mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits();
    let by_group = mode & 0o020 != 0 && ![0, STAFF, owner].contains(&group) && !is_own();
    (mode & 0o002 != 0 || by_group) && !(is_directory && mode & 0o1000 != 0)
}

/// Whether a group is the one of this user's own, as these files tell (passwd(5), group(5)): it is his first one, has his name, and nobody
/// else is in it.
fn is_own_group(user: u32, group: u32, passwd: &str, groups: &str) -> bool {
    let number = |text: Option<&&str>| text.and_then(|text| text.parse::<u32>().ok());
    let users: Vec<Vec<&str>> = passwd.lines().map(|line| line.split(':').collect()).collect();
    let of_group = |line: &&Vec<&str>| number(line.get(3)) == Some(group);
    let mut firsts = users.iter().filter(of_group);
    let (Some(first), None) = (firsts.next(), firsts.next()) else { return false };
    let name = first.first().copied().unwrap_or_default();
    let mut named = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let of_number = |line: &Vec<&str>| number(line.get(2)) == Some(group);
    let is_his = |line: Vec<&str>| {
        let mut members = line.get(3).copied().unwrap_or_default().split(',').filter(|one| !one.is_empty());
        line.first() == Some(&name) && members.all(|member| member == name)
    };
    number(first.get(2)) == Some(user) && !name.is_empty() && named.find(of_number).is_some_and(is_his)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    use super::*;

    /// How others can put a link into a directory.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum WriteAccess {
        /// Everybody may write there.
        Everybody,
        /// Its group may.
        Group,
        /// It is another user's, with all that is in it.
        Owner,
    }

    /// An account and a group of nobody here.
    const NOBODY: u32 = 65534;

    impl WriteAccess {
        /// Those that can be made here: only root gives things to others.
        pub(crate) fn all() -> &'static [WriteAccess] {
            match Uid::effective().is_root() {
                true => &[WriteAccess::Everybody, WriteAccess::Group, WriteAccess::Owner],
                false => &[WriteAccess::Everybody],
            }
        }

        pub(crate) fn open(self, directory: &Path, links: &[PathBuf]) {
            let mode = |mode: u32| fs::set_permissions(directory, fs::Permissions::from_mode(mode)).unwrap();
            let give = |path: &Path, user: Option<u32>| lchown(path, user, Some(NOBODY)).unwrap();
            match self {
                WriteAccess::Everybody => mode(0o777),
                WriteAccess::Group => {
                    give(directory, None);
                    mode(0o775);
                }
                WriteAccess::Owner => {
                    links.iter().for_each(|link| give(link, Some(NOBODY)));
                    give(directory, Some(NOBODY));
                }
            }
        }
    }

    /// As for Penstock's own files.
    #[test]
    fn who_may_write_is_as_the_table_says() {
        let table = include_str!("../../crates/host/src/files/who_may_write.txt");
        for case in table.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = case.split_whitespace().collect();
            let [mode, owner, group, own, told] = words[..] else { panic!("{case}") };
            let mode = u32::from_str_radix(mode, 8).unwrap();
            let open = is_open_unless(mode, owner.parse().unwrap(), group.parse().unwrap(), || own == "own");
            assert_eq!(open, told == "open", "{case}");
        }
    }

    #[test]
    fn a_group_is_ones_own_if_it_has_his_name_and_nobody_else() {
        let passwd = "mara:x:1001:1002::/home/mara:/bin/sh\n";
        assert!(is_own_group(1001, 1002, passwd, "mara:x:1002:mara\n"));
        for groups in ["", "mara:x:1002:jan\n", "staff:x:1002:\n", "mara:x:1004:\n"] {
            assert!(!is_own_group(1001, 1002, passwd, groups), "{groups}");
        }
        let two = format!("{passwd}kim:x:1004:1002::/:/bin/sh\n");
        assert!(!is_own_group(1001, 1002, &two, "mara:x:1002:\n"), "another user has it, too");
    }

    #[test]
    fn a_link_is_followed_where_nobody_else_can_put_one() {
        let there = tempfile::tempdir().unwrap();
        let at = |name: &str| there.path().join(name);
        fs::create_dir_all(at("real/deep")).unwrap();
        fs::create_dir(at("links")).unwrap();
        for (target, name) in [
            (PathBuf::from("../real"), "relative"),
            (at("real"), "absolute"),
            (at("links/absolute/../real/deep/.."), "chain"),
            (PathBuf::from("circle"), "circle"),
            (PathBuf::from("nothing"), "dangling"),
        ] {
            symlink(target, at("links").join(name)).unwrap();
        }
        let held = |name: &str| HeldName::of(&at("links").join(name).join("deep/file"));
        let real = fs::metadata(at("real/deep")).unwrap();
        for name in ["relative", "absolute", "chain"] {
            let found = fs::metadata(held(name).unwrap().directory_path()).unwrap();
            assert_eq!((found.dev(), found.ino()), (real.dev(), real.ino()), "{name}");
        }
        assert_eq!(held("circle").unwrap_err().raw_os_error(), Some(Errno::ELOOP as i32));
        assert_eq!(held("dangling").unwrap_err().kind(), io::ErrorKind::NotFound);
        // Nobody can rename in such a directory what is somebody else's.
        fs::set_permissions(at("links"), fs::Permissions::from_mode(0o1777)).unwrap();
        held("absolute").unwrap();
        for access in WriteAccess::all() {
            access.open(&at("links"), &[]);
            let refused = held("absolute").unwrap_err().to_string();
            assert!(refused.contains("absolute is a symbolic link that others"), "{access:?}: {refused}");
        }
    }
}
