//! What others than some users can change.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use nix::{errno::Errno, sys::stat::SFlag};

use super::{
    Result,
    held::{LINKS, parts},
    on,
};

/// Debian's group for who may install below /usr/local: its members can become root at will (base-passwd, users-and-groups).
const STAFF: u32 = 50;

/// What somebody else than these `users` can change of what is at `path`, or of the way to it: the first on the way that another user
/// owns or may write to. Symbolic links are gone through one by one, so that the directories that they are in and lead through
/// count, too. `path` is absolute.
///
/// # Errors
///
/// [`FileError`](super::FileError) when something on the way cannot be looked at, or its links form a circle.
pub fn writable_by_others(path: impl AsRef<Path>, users: &[u32]) -> Result<Option<PathBuf>> {
    let path = path.as_ref();
    let mut place = PathBuf::from("/");
    // Parts that are still to go, the next one last.
    let mut rest: Vec<OsString> = parts(path).rev().collect();
    let mut links = 0;
    loop {
        let data = on("look at", &place, fs::symlink_metadata(&place))?;
        // Everybody may write to a link by its mode, and nobody can.
        let is_link = data.is_symlink();
        if !users.contains(&data.uid()) || !is_link && is_open(data.mode(), data.uid(), data.gid()) {
            return Ok(Some(place));
        }
        if is_link {
            links += 1;
            if links > LINKS {
                return on("resolve", path, Err(Errno::ELOOP.into()));
            }
            let target = on("read the link", &place, fs::read_link(&place))?;
            place = match target.is_absolute() {
                true => PathBuf::from("/"),
                false => place.parent().unwrap_or(Path::new("/")).to_owned(),
            };
            rest.extend(parts(&target).rev());
        }
        match rest.pop() {
            None => return Ok(None),
            Some(part) if part == ".." => drop(place.pop()),
            Some(part) => place.push(part),
        }
    }
}

/// Whether others than its owner may write to what has this mode, owner and group. A directory with the sticky bit lets nobody replace what
/// is somebody else's. A group whose number is the owner's is taken for his alone: useradd(8) gives each user such a group, and
/// pam_umask(8) leaves it the right to write.
pub(super) fn is_open(mode: u32, owner: u32, group: u32) -> bool {
    let is_directory = mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits();
    let by_group = mode & 0o020 != 0 && ![0, STAFF, owner].contains(&group);
    (mode & 0o002 != 0 || by_group) && !(is_directory && mode & 0o1000 != 0)
}
