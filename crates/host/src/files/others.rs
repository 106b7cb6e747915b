//! What others than some users can change.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use nix::{errno::Errno, sys::stat::SFlag, unistd::geteuid};

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
/// pam_umask(8) leaves it the right to write. So is, for what is ours, the group that has our name and nobody else in it: its number may
/// be another.
pub(super) fn is_open(mode: u32, owner: u32, group: u32) -> bool {
    is_open_unless(mode, owner, group, || {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        owner == geteuid().as_raw() && is_own_group(owner, group, &read("/etc/passwd"), &read("/etc/group"))
    })
}

/// The same, where somebody else knows whether the group is the owner's own.
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
mod tests {
    use super::*;

    /// The same table holds for the switch, which has no part of this crate.
    #[test]
    fn who_may_write_is_as_the_table_says() {
        let cases = include_str!("who_may_write.txt").lines().filter(|line| !line.starts_with('#'));
        for case in cases {
            let words: Vec<&str> = case.split_whitespace().collect();
            let [mode, owner, group, own, told] = words[..] else { panic!("{case}") };
            let mode = u32::from_str_radix(mode, 8).unwrap();
            let open = is_open_unless(mode, owner.parse().unwrap(), group.parse().unwrap(), || own == "own");
            assert_eq!(open, told == "open", "{case}");
        }
    }

    #[test]
    fn a_group_is_ones_own_if_it_has_his_name_and_nobody_else() {
        let passwd =
            "root:x:0:0::/root:/bin/sh\nmara:x:1001:1002::/home/mara:/bin/sh\njan:x:1003:100::/:/bin/sh\n";
        let own = |groups: &str| is_own_group(1001, 1002, passwd, groups);
        assert!(own("users:x:100:\nmara:x:1002:\n") && own("mara:x:1002:mara\n"));
        for groups in ["", "mara:x:1002:jan\n", "mara:x:1002:mara,jan\n", "staff:x:1002:\n", "mara:x:1004:\n"]
        {
            assert!(!own(groups), "{groups}");
        }
        assert!(!is_own_group(1003, 1002, passwd, "mara:x:1002:\n"), "it is another user's");
        let two = format!("{passwd}kim:x:1004:1002::/:/bin/sh\n");
        assert!(!is_own_group(1001, 1002, &two, "mara:x:1002:\n"), "another user has it, too");
        assert!(!is_own_group(1001, 1002, "", "mara:x:1002:\n"));
    }
}
