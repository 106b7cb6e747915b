//! The user and group ids of the host that stand for a container's own: a range that `/etc/subuid` and `/etc/subgid` keep
//! for root's containers (`subuid(5)`).
//!
//! One range serves all of Penstock's containers; their mount, process and network namespaces keep them apart. A range that
//! is there already is used. Where there is none, one is entered, so that neither `useradd` nor another container manager
//! gives its ids to somebody else; it stays there, like a system account, since files may belong to it from then on.

use std::time::Duration;

use penstock_host::{
    Root,
    files::{self, Lock},
};

use crate::{error::GuestError, state::State};

/// How many ids a container has: as many as two bytes count, with `nobody` among them.
pub const COUNT: u32 = 65_536;

/// The first id that is given when there is no range yet: above those that `useradd` gives to accounts (`login.defs(5)`,
/// `UID_MAX`, and its own ranges of subordinate ids from 100000 on).
const FIRST: u32 = 16 * COUNT;

/// No range ends above: larger ids are negative to some programs.
const LAST: u32 = 1 << 31;

/// How long another Penstock may take to enter a range.
const PATIENCE: Duration = Duration::from_secs(10);

/// The host's ids that stand for a container's 0; the [`COUNT`] from there on are its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The user id.
    pub user: u32,
    /// The group id.
    pub group: u32,
}

/// The range of root's containers on the machine below `root`, entered when it is missing.
///
/// # Errors
///
/// A file cannot be read or written, has a line that is no range, or has none left.
pub fn of_containers(root: &Root, state: &State) -> Result<Ids, GuestError> {
    let paths = ["/etc/subuid", "/etc/subgid"];
    let read = || -> Result<[String; 2], GuestError> {
        let [users, groups] = paths.map(|path| match files::read_to_string(root.path(path)) {
            Err(error) if error.is_missing() => Ok(String::new()),
            read => read,
        });
        Ok([users?, groups?])
    };
    let known = |texts: &[String; 2]| Some(Ids { user: of_root(&texts[0])?, group: of_root(&texts[1])? });
    if let Some(ids) = known(&read()?) {
        return Ok(ids);
    }
    files::create_dir_all(state.directory())?;
    let lock = state.directory().join("ids.lock");
    let busy = || GuestError::NoIds { why: "another penstock has been entering one for 10 s".to_owned() };
    let _lock = Lock::exclusive_within(lock, PATIENCE)?.ok_or_else(busy)?;
    let texts = read()?;
    if let Some(ids) = known(&texts) {
        return Ok(ids);
    }
    let none = || GuestError::NoIds { why: format!("no {COUNT} ids in a row are free") };
    let free = free(&texts).ok_or_else(none)?;
    let mut firsts = [free; 2];
    for ((path, text), first) in paths.iter().zip(&texts).zip(&mut firsts) {
        match of_root(text) {
            Some(known) => *first = known,
            None => {
                files::write_atomic_mode(root.path(path), entered(text, free), 0o644).map_err(|error| {
                    GuestError::NoIds { why: format!("{path} cannot be written: {}", error.source) }
                })?
            }
        }
    }
    let [user, group] = firsts;
    Ok(Ids { user, group })
}

/// The ranges of a file: whose, from where, how many. What is no range is passed over, as `newuidmap` does.
fn ranges(text: &str) -> impl Iterator<Item = (&str, u64, u64)> {
    text.lines().filter_map(|line| {
        let mut fields = line.trim().split(':');
        let (owner, first, count) = (fields.next()?, fields.next()?, fields.next()?);
        Some((owner, first.parse().ok()?, count.parse().ok()?))
    })
}

/// The first id of a range of root's that is large enough.
fn of_root(text: &str) -> Option<u32> {
    ranges(text)
        .find(|(owner, first, count)| {
            matches!(*owner, "root" | "0")
                && *first > 0
                && *count >= u64::from(COUNT)
                && first + u64::from(COUNT) <= u64::from(LAST)
        })
        .and_then(|(_, first, _)| u32::try_from(first).ok())
}

/// The first id from which on no range of either file has one.
fn free(texts: &[String; 2]) -> Option<u32> {
    let taken: Vec<(u64, u64)> = texts
        .iter()
        .flat_map(|text| ranges(text))
        .map(|(_, first, count)| (first, first.saturating_add(count)))
        .collect();
    let fits = |first: &u64| {
        let end = first + u64::from(COUNT);
        taken.iter().all(|(from, until)| end <= *from || *until <= *first)
    };
    (u64::from(FIRST)..=u64::from(LAST - COUNT))
        .step_by(COUNT as usize)
        .find(fits)
        .and_then(|first| u32::try_from(first).ok())
}

/// The file with a range for root at its end.
fn entered(text: &str, first: u32) -> String {
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{gap}root:{first}:{COUNT}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with these two files, and what its containers are given; the files as they are then.
    fn given(users: &str, groups: &str) -> (Result<Ids, GuestError>, [String; 2]) {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join("etc").join(name);
        files::create_dir_all(directory.path().join("etc")).unwrap();
        files::write_atomic(at("subuid"), users).unwrap();
        files::write_atomic(at("subgid"), groups).unwrap();
        let (root, state) = (Root::at(directory.path()), State::new(directory.path().join("state")));
        let ids = of_containers(&root, &state);
        if let Ok(ids) = ids {
            assert_eq!(of_containers(&root, &state).unwrap(), ids, "the second time finds the first's");
        }
        (ids, ["subuid", "subgid"].map(|name| files::read_to_string(at(name)).unwrap()))
    }

    #[test]
    fn a_range_of_roots_is_used_and_the_files_stay() {
        let (users, groups) = ("me:100000:65536\nroot:1000000:1000000000\n", "0:2000000:65536\n");
        let (ids, files) = given(users, groups);
        assert_eq!(ids.unwrap(), Ids { user: 1_000_000, group: 2_000_000 });
        assert_eq!(files, [users, groups]);
    }

    #[test]
    fn a_missing_range_is_entered_where_nobody_has_one() {
        let (ids, files) = given("", "");
        assert_eq!(ids.unwrap(), Ids { user: FIRST, group: FIRST });
        assert_eq!(files, ["root:1048576:65536\n", "root:1048576:65536\n"]);
        // Others' ranges in either file, one that is too small, and a last line without its end.
        let (ids, files) = given("me:1048576:65536\nroot:500000:100", "me:1114112:1");
        assert_eq!(ids.unwrap(), Ids { user: 1_179_648, group: 1_179_648 });
        assert_eq!(
            files,
            ["me:1048576:65536\nroot:500000:100\nroot:1179648:65536\n", "me:1114112:1\nroot:1179648:65536\n"]
        );
    }

    #[test]
    fn the_hosts_root_is_never_among_them() {
        for hostile in ["root:0:65536\n", "root:4294967295:65536\n", "root:-1:65536\n", "root:x:y\n"] {
            let (ids, _) = given(hostile, hostile);
            assert!(ids.is_ok_and(|ids| ids.user >= FIRST && ids.group >= FIRST), "{hostile}");
        }
    }

    #[test]
    fn full_files_are_said() {
        let (ids, _) = given("me:100000:4294967295\n", "");
        assert!(ids.unwrap_err().to_string().contains("no 65536 ids in a row are free"));
    }
}
