//! The user and group ids of the host that stand for a container's own: a range for each container, out of those that
//! `/etc/subuid` and `/etc/subgid` keep for root's containers (`subuid(5)`).
//!
//! No two containers share an id, so that what gets out of one is a stranger to the files and processes of the others. Which
//! range is whose follows from the container's name, and is written down in [`FILE`], so that it stays for good: files on disk
//! may belong to it. Where root has no range that is free, one is entered, so that neither `useradd` nor another container
//! manager gives its ids to somebody else.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use penstock_host::{
    Root,
    accounts::AccountsLock,
    files::{self, Lock},
};
use penstock_model::{GuestName, digest::sha256};

use crate::error::GuestError;

/// Which range is whose: a line `NAME:USER:GROUP` for each container, with its first ids.
pub const FILE: &str = "/var/lib/penstock/container-ids";

/// How many ids a container has: as many as two bytes count, with `nobody` among them.
pub const COUNT: u32 = 65_536;

/// For how many containers a range is entered, if as many ids are free.
const CONTAINERS: u64 = 1024;

/// The first id that is given when there is no range yet: above those that `useradd` gives to accounts (`login.defs(5)`,
/// `UID_MAX`, and its own ranges of subordinate ids from 100000 on).
const FIRST: u32 = 16 * COUNT;

/// No range ends above: larger ids are negative to some programs.
const LAST: u32 = 1 << 31;

/// How long another Penstock may take to enter a range.
const TIMEOUT: Duration = Duration::from_secs(10);

const PATHS: [&str; 2] = ["/etc/subuid", "/etc/subgid"];

/// The host's ids that stand for a container's 0; the [`COUNT`] from there on are its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The user id.
    pub user: u32,
    /// The group id.
    pub group: u32,
}

impl Ids {
    /// Whether `user` is one of the container's own.
    pub fn has_user(self, user: u32) -> bool {
        (self.user..self.user + COUNT).contains(&user)
    }

    fn firsts(self) -> [u32; 2] {
        [self.user, self.group]
    }
}

/// The ids of each container that was ever given any, as a file keeps them.
#[derive(Debug, Default)]
pub struct Assigned(Vec<(GuestName, Ids)>);

impl Assigned {
    /// Reads them; a file that is not there has none.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has a line that is none, or two containers with the same ids.
    pub fn read(file: &Path) -> Result<Assigned, GuestError> {
        let text = match files::read_to_string(file) {
            Err(error) if error.is_missing() => String::new(),
            read => read?,
        };
        Assigned::parse(&text).map_err(|(line, why)| none(format!("{}, line {line}: {why}", file.display())))
    }

    fn parse(text: &str) -> Result<Assigned, (usize, String)> {
        let mut all = Assigned::default();
        for (position, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
            let at = |why: String| (position + 1, why);
            let (guest, ids) =
                one(line).ok_or_else(|| at(format!("{line:?} is not NAME:FIRST-UID:FIRST-GID")))?;
            for (other, theirs) in &all.0 {
                let overlap = |(a, b): (u32, u32)| a.abs_diff(b) < COUNT;
                if *other == guest || ids.firsts().into_iter().zip(theirs.firsts()).any(overlap) {
                    return Err(at(format!("{guest} shares its name or its ids with {other}")));
                }
            }
            all.0.push((guest, ids));
        }
        Ok(all)
    }

    /// Those of one container.
    pub fn of(&self, guest: &GuestName) -> Option<Ids> {
        self.0.iter().find(|(name, _)| name == guest).map(|(_, ids)| *ids)
    }

    /// Which container a user id belongs to.
    pub fn holder(&self, user: u32) -> Option<&GuestName> {
        self.0.iter().find(|(_, ids)| ids.has_user(user)).map(|(name, _)| name)
    }

    /// Whether no container has any of the ids from `first` on: of users' (0) or groups' (1).
    fn is_free(&self, which: usize, first: u32) -> bool {
        self.0.iter().all(|(_, ids)| ids.firsts()[which].abs_diff(first) >= COUNT)
    }

    fn text(&self) -> String {
        let mut text =
            "# The first user and group id of the host that each container's root has; 65536 each.\n"
                .to_owned();
        for (guest, Ids { user, group }) in &self.0 {
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "{guest}:{user}:{group}");
        }
        text
    }
}

fn one(line: &str) -> Option<(GuestName, Ids)> {
    let mut fields = line.split(':');
    let (name, user, group) = (fields.next()?, fields.next()?, fields.next()?);
    let first = |text: &str| text.parse().ok().filter(|first| (1..=LAST - COUNT).contains(first));
    let ids = Ids { user: first(user)?, group: first(group)? };
    fields.next().is_none().then_some((name.parse().ok()?, ids))
}

fn none(why: String) -> GuestError {
    GuestError::NoIds { why }
}

/// The ids of a container on the machine below `root`, given to it when it has none; `file` is its [`FILE`]. Those that it has had and
/// that are root's no more, as on a machine that was installed anew around its disk, are entered again.
///
/// # Errors
///
/// A file cannot be read or written, none are left, or somebody else has some of those that the container has had.
pub fn of_container(root: &Root, file: &Path, guest: &GuestName) -> Result<Ids, GuestError> {
    let known =
        |assigned: &Assigned, texts: &[String; 2]| assigned.of(guest).filter(|ids| has_all(texts, *ids));
    if let Some(ids) = known(&Assigned::read(file)?, &read(root)?) {
        return Ok(ids);
    }
    if let Some(directory) = file.parent() {
        files::create_dir_all(directory)?;
    }
    let _lock = lock(file)?;
    remove_parts(root, file)?;
    let mut assigned = Assigned::read(file)?;
    let pick = |which: usize, assigned: &Assigned, texts: &[String; 2]| {
        slot(guest, &texts[which], |first| assigned.is_free(which, first))
    };
    let mut texts = read(root)?;
    let lacks = match assigned.of(guest) {
        Some(ids) => !has_all(&texts, ids),
        None => (0..2).any(|which| pick(which, &assigned, &texts).is_none()),
    };
    // `useradd` and its like enter ranges, too: what they have written meanwhile is read before anything is written.
    let _theirs = match lacks {
        false => None,
        true => {
            let lock = AccountsLock::of(root, &PATHS, TIMEOUT).map_err(|error| none(error.to_string()))?;
            texts = read(root)?;
            Some(lock)
        }
    };
    if let Some(ids) = assigned.of(guest) {
        enter_again(root, guest, ids, &texts).map_err(|why| none(format!("{why} ({})", file.display())))?;
        return Ok(ids);
    }
    if (0..2).any(|which| pick(which, &assigned, &texts).is_none()) {
        let full = || none(format!("no {COUNT} ids in a row are free"));
        let (first, count) = free(&texts).ok_or_else(full)?;
        for (which, path) in PATHS.iter().enumerate() {
            if pick(which, &assigned, &texts).is_none() {
                texts[which] = entered(&texts[which], first, count);
                write(root, path, &texts[which]).map_err(none)?;
            }
        }
    }
    let entered = || none("the range that was just entered is not there".to_owned());
    let [user, group] = [0, 1].map(|which| pick(which, &assigned, &texts).ok_or_else(entered));
    let ids = Ids { user: user?, group: group? };
    assigned.0.push((guest.clone(), ids));
    files::write_durable(file, assigned.text())?;
    Ok(ids)
}

/// Removes the halves of files that whoever was killed while giving ids away has left beside them. Nobody gives any away meanwhile.
///
/// # Errors
///
/// A directory cannot be read, one of them cannot be removed, or another Penstock has been giving ids away for too long.
pub fn tidy(root: &Root, file: &Path) -> Result<(), GuestError> {
    for path in written(root, file) {
        if files::has_parts(path)? {
            files::create_dir_all(file.parent().unwrap_or(Path::new("/")))?;
            let _lock = lock(file)?;
            return remove_parts(root, file);
        }
    }
    Ok(())
}

fn remove_parts(root: &Root, file: &Path) -> Result<(), GuestError> {
    Ok(written(root, file).iter().try_for_each(files::remove_parts)?)
}

/// All files that are written here.
fn written(root: &Root, file: &Path) -> [PathBuf; 5] {
    let [users, groups] = PATHS.map(|path| root.path(path));
    let [of_users, of_groups] = PATHS.map(|path| root.path(AccountsLock::beside(path)));
    [users, groups, of_users, of_groups, file.to_owned()]
}

fn lock(file: &Path) -> Result<Lock, GuestError> {
    let busy = || none("another penstock has been giving some away for 10 s".to_owned());
    Lock::exclusive_within(file.with_extension("lock"), TIMEOUT)?.ok_or_else(busy)
}

/// Has root the ids again that a container has had, unless somebody else has any of them in either file: then why not, and nothing is
/// written.
fn enter_again(root: &Root, guest: &GuestName, ids: Ids, texts: &[String; 2]) -> Result<(), String> {
    let lost = || {
        let all = PATHS.iter().zip(texts).zip(ids.firsts());
        all.filter(|((_, text), first)| !is_roots(text, *first))
            .map(|((path, text), first)| (path, text, first))
    };
    for (path, _, first) in lost() {
        for (where_, text) in PATHS.iter().zip(texts) {
            if let Some((owner, from, count)) = overlapping(text, first) {
                return Err(format!(
                    "{guest} has had {COUNT} ids from {first} on, which are not root's in {path} any more: {owner} has {count} from \
                     {from} on in {where_}"
                ));
            }
        }
    }
    lost().try_for_each(|(path, text, first)| write(root, path, &entered(text, first, COUNT)))
}

fn write(root: &Root, path: &str, text: &str) -> Result<(), String> {
    files::write_atomic_mode(root.path(path), text, 0o644)
        .map_err(|error| format!("{path} cannot be written: {}", error.source))
}

/// Whether root has all of these ids.
fn has_all(texts: &[String; 2], ids: Ids) -> bool {
    texts.iter().zip(ids.firsts()).all(|(text, first)| is_roots(text, first))
}

/// Whether root has the [`COUNT`] ids from `first` on, in one range.
fn is_roots(text: &str, first: u32) -> bool {
    of_root(text).any(|(from, until)| from <= first && first + COUNT <= until)
}

/// The first range of somebody else that has any of the [`COUNT`] ids from `first` on: whose, from where, how many.
fn overlapping(text: &str, first: u32) -> Option<(&str, u64, u64)> {
    let (first, until) = (u64::from(first), u64::from(first) + u64::from(COUNT));
    ranges(text)
        .find(|(owner, from, count)| !is_root(owner) && *from < until && first < from.saturating_add(*count))
}

fn is_root(owner: &str) -> bool {
    matches!(owner, "root" | "0")
}

fn read(root: &Root) -> Result<[String; 2], GuestError> {
    let [users, groups] = PATHS.map(|path| match files::read_to_string(root.path(path)) {
        Err(error) if error.is_missing() => Ok(String::new()),
        read => read,
    });
    Ok([users?, groups?])
}

/// The first id of a container: that of root's ranges which its name leads to, or the next that is free.
fn slot(guest: &GuestName, text: &str, is_free: impl Fn(u32) -> bool) -> Option<u32> {
    let firsts: Vec<u32> =
        of_root(text).flat_map(|(from, until)| (from..=until - COUNT).step_by(COUNT as usize)).collect();
    let digest = sha256(guest.as_str());
    // Sixteen hexadecimal digits are a `u64`.
    let number = u64::from_str_radix(digest.get(..16)?, 16).ok()?;
    let start = usize::try_from(number % u64::try_from(firsts.len()).ok()?.max(1)).ok()?;
    let (before, after) = firsts.split_at(start);
    after.iter().chain(before).copied().find(|first| is_free(*first))
}

/// The ranges of a file: whose, from where, how many. What is no range is passed over, as `newuidmap` does.
fn ranges(text: &str) -> impl Iterator<Item = (&str, u64, u64)> {
    text.lines().filter_map(|line| {
        let mut fields = line.trim().split(':');
        let (owner, first, count) = (fields.next()?, fields.next()?, fields.next()?);
        Some((owner, first.parse().ok()?, count.parse().ok()?))
    })
}

/// Root's ranges that are large enough for a container, up to [`LAST`]: from where, until where.
fn of_root(text: &str) -> impl Iterator<Item = (u32, u32)> {
    ranges(text).filter_map(|(owner, first, count)| {
        let until = first.saturating_add(count).min(u64::from(LAST));
        let (from, until) = (u32::try_from(first).ok()?, u32::try_from(until).ok()?);
        let fits = from > 0 && until.checked_sub(from)? >= COUNT;
        (is_root(owner) && fits).then_some((from, until))
    })
}

/// The first ids that no range of either file has, and how many: for [`CONTAINERS`], or half of that, down to one.
fn free(texts: &[String; 2]) -> Option<(u32, u32)> {
    let taken: Vec<(u64, u64)> = texts
        .iter()
        .flat_map(|text| ranges(text))
        .map(|(_, first, count)| (first, first.saturating_add(count)))
        .collect();
    let last = u64::from(LAST);
    let halves = std::iter::successors(Some(CONTAINERS), |n| Some(n / 2)).take_while(|n| *n > 0);
    halves.map(|containers| containers * u64::from(COUNT)).find_map(|count| {
        let fits = |first: &u64| taken.iter().all(|(from, until)| first + count <= *from || until <= first);
        let first = (u64::from(FIRST)..=last - count).step_by(COUNT as usize).find(fits)?;
        Some((u32::try_from(first).ok()?, u32::try_from(count).ok()?))
    })
}

/// The file with a range for root at its end.
fn entered(text: &str, first: u32, count: u32) -> String {
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{gap}root:{first}:{count}\n")
}

#[cfg(test)]
mod tests;
