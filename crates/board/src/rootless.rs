//! What making a board image needs of the machine and of the user, looked at before anything long is begun.
//!
//! An ordinary user's packages are unpacked in a user namespace, in which a range of the user's subordinate ids (subuid(5)) stands
//! for the accounts of the tree. Whether that works is tried with mmdebstrap's own way into such a namespace; why it does not is
//! read from the files and settings that decide it (`Documentation/admin-guide/sysctl/user.rst` and, of Debian's kernel and of
//! AppArmor, `kernel.unprivileged_userns_clone` and `kernel.apparmor_restrict_unprivileged_userns`).

use std::{fmt, path::PathBuf, time::Duration};

use penstock_host::{
    Command, Root, accounts, files, packages,
    process::{self, search_path::SearchPath},
};

use crate::error::BoardError;

/// How many accounts the tree has: Debian's `nobody` is 65534.
const ACCOUNTS: u64 = 65536;
/// Where ranges begin that nobody has asked for yet (`SUB_UID_MIN` of login.defs(5)).
const FIRST: u64 = 100_000;
/// How long a way into a user namespace may take; it takes a tenth of a second.
const DEADLINE: Duration = Duration::from_secs(20);
/// How long mmdebstrap may take to unmount and remove its tree when it is asked to end; it took 1 s.
pub const FAREWELL: Duration = Duration::from_secs(20);

/// Something that is not there, and how to get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// What is not there.
    what: String,
    /// What to do about it.
    remedy: String,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.remedy)
    }
}

/// What makes an image and reaches a board, and what an ordinary user needs besides.
const PROGRAMS: [&str; 5] = ["mmdebstrap", "sqfstar", "sha256sum", "ssh", "ssh-keygen"];
const FOR_USERS: [&str; 2] = ["newuidmap", "newgidmap"];

/// Whether a board image can be made here by this user.
///
/// # Errors
///
/// [`BoardError::Lacking`] with all that is not there, [`BoardError::Process`] when that could not be found out.
pub fn check() -> Result<(), BoardError> {
    let mut lacks = without(&PROGRAMS, process::find);
    if !process::is_root() {
        lacks.extend(without(&FOR_USERS, process::find));
        let (root, user) = (Root::system(), accounts::this_user());
        let ranges = ranges(&root, &user);
        let whole = lacks.is_empty() && ranges.is_empty();
        lacks.extend(ranges);
        let tried = match whole {
            true => enter()?,
            false => Err("it was not tried".to_owned()),
        };
        if let Err(why) = tried {
            lacks.extend(switched_off(&root));
            if lacks.is_empty() {
                lacks.push(Lack {
                    what: format!("no user namespace can be made by {user} ({why})"),
                    remedy: "let root make the image, or look at user_namespaces(7) for what forbids it"
                        .to_owned(),
                });
            }
        }
    }
    if lacks.is_empty() { Ok(()) } else { Err(BoardError::Lacking { lacks }) }
}

fn without(programs: &[&str], find: impl Fn(&str) -> Option<PathBuf>) -> Vec<Lack> {
    let missing = programs.iter().filter(|program| find(program).is_none());
    let lacks = missing.map(|program| Lack {
        what: format!("{program} is not installed{}", SearchPath::own().why_not(program)),
        remedy: packages::row(program).map_or_else(
            || format!("look for the package that has {program}"),
            |row| format!("sudo apt-get install {}", row.package),
        ),
    });
    lacks.collect()
}

/// Goes into a user namespace and out again as mmdebstrap does; what it said when it could not.
fn enter() -> Result<Result<(), String>, BoardError> {
    let output = Command::new("mmdebstrap").args(["--unshare-helper", "true"]).deadline(DEADLINE).run()?;
    if output.status.success() {
        return Ok(Ok(()));
    }
    let said = output.errors();
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it did not say why");
    Ok(Err(format!("mmdebstrap: {}", last.trim().trim_start_matches("E: "))))
}

/// The settings that keep ordinary users from making user namespaces.
fn switched_off(root: &Root) -> Vec<Lack> {
    let setting = |name: &str| {
        let file = root.path(format!("/proc/sys/{}", name.replace('.', "/")));
        // One that this kernel has not forbids nothing.
        files::read_to_string(file).ok().map(|text| text.trim().to_owned())
    };
    let mut lacks = Vec::new();
    for (name, wanted) in [("kernel.unprivileged_userns_clone", "1"), ("user.max_user_namespaces", "15000")] {
        if setting(name).as_deref() == Some("0") {
            lacks.push(Lack {
                what: format!("user namespaces are switched off here for ordinary users, {name} is 0"),
                remedy: format!("sudo sysctl {name}={wanted}"),
            });
        }
    }
    let restricted = "kernel.apparmor_restrict_unprivileged_userns";
    if setting(restricted).as_deref() == Some("1") && !files::exists(root.path("/etc/apparmor.d/mmdebstrap"))
    {
        lacks.push(Lack {
            what: format!(
                "AppArmor lets only programs with a profile use user namespaces, {restricted} is 1, and mmdebstrap has none"
            ),
            remedy: format!("sudo sysctl {restricted}=0"),
        });
    }
    lacks
}

/// A line of `/etc/subuid` or `/etc/subgid`.
struct Range<'a> {
    owner: &'a str,
    first: u64,
    count: u64,
}

/// Which ranges of subordinate ids the user has not, or has too short.
fn ranges(root: &Root, user: &str) -> Vec<Lack> {
    let mut lacks = Vec::new();
    for (file, what, option) in
        [("/etc/subuid", "user", "--add-subuids"), ("/etc/subgid", "group", "--add-subgids")]
    {
        // One that is not there has no ranges.
        let text = files::read_to_string(root.path(file)).unwrap_or_default();
        let all: Vec<Range<'_>> = text.lines().filter_map(range).collect();
        // mmdebstrap takes the first one.
        let own = all.iter().find(|range| range.owner == user).map(|range| range.count);
        if own.is_some_and(|count| count >= ACCOUNTS) {
            continue;
        }
        let free = all.iter().map(|range| range.first.saturating_add(range.count)).fold(FIRST, u64::max);
        let has = match own {
            None => "no".to_owned(),
            Some(count) => format!("{count} instead of {ACCOUNTS}"),
        };
        lacks.push(Lack {
            what: format!("{user} has {has} subordinate {what} ids in {file}"),
            remedy: match own {
                None => format!("sudo usermod {option} {free}-{} {user}", free.saturating_add(ACCOUNTS - 1)),
                Some(_) => format!("make the third field of its line {ACCOUNTS} or more"),
            },
        });
    }
    lacks
}

fn range(line: &str) -> Option<Range<'_>> {
    let mut fields = line.trim().split(':');
    let (owner, first, count) = (fields.next()?, fields.next()?, fields.next()?);
    Some(Range { owner, first: first.parse().ok()?, count: count.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root directory with these files.
    fn tree(all: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in all {
            let file = directory.path().join(path);
            files::create_dir_all(file.parent().unwrap()).unwrap();
            files::write_atomic(file, text).unwrap();
        }
        let root = Root::at(directory.path());
        (directory, root)
    }

    fn lines(lacks: &[Lack]) -> Vec<String> {
        lacks.iter().map(Lack::to_string).collect()
    }

    #[test]
    fn programs_that_are_not_there_are_named_with_their_packages() {
        let lacks = without(&FOR_USERS, |program| (program == "newgidmap").then(|| "/x".into()));
        assert_eq!(lines(&lacks), ["newuidmap is not installed: sudo apt-get install uidmap"]);
    }

    #[test]
    fn ranges_that_are_not_there_are_asked_for_behind_those_that_are() {
        let (_directory, root) = tree(&[("etc/subuid", "other:100000:65536\nodd\n"), ("etc/subgid", "")]);
        assert_eq!(
            lines(&ranges(&root, "me")),
            [
                "me has no subordinate user ids in /etc/subuid: sudo usermod --add-subuids 165536-231071 me",
                "me has no subordinate group ids in /etc/subgid: sudo usermod --add-subgids 100000-165535 me",
            ]
        );
        let (_directory, root) =
            tree(&[("etc/subuid", "me:100000:65536\n"), ("etc/subgid", "me:100000:1000\n")]);
        assert_eq!(
            lines(&ranges(&root, "me")),
            [
                "me has 1000 instead of 65536 subordinate group ids in /etc/subgid: make the third field of its line 65536 or more"
            ]
        );
        let (_directory, root) = tree(&[]);
        assert_eq!(ranges(&root, "me").len(), 2, "files that are not there have no ranges");
    }

    #[test]
    fn each_setting_that_switches_user_namespaces_off_is_a_line() {
        const CLONE: &str = "proc/sys/kernel/unprivileged_userns_clone";
        const MOST: &str = "proc/sys/user/max_user_namespaces";
        const RESTRICTED: &str = "proc/sys/kernel/apparmor_restrict_unprivileged_userns";
        type Case = (&'static [(&'static str, &'static str)], &'static [&'static str]);
        let cases: [Case; 5] = [
            (&[(CLONE, "1\n"), (MOST, "96365\n"), (RESTRICTED, "0\n")], &[]),
            (
                &[(CLONE, "0\n"), (MOST, "1\n")],
                &[
                    "user namespaces are switched off here for ordinary users, kernel.unprivileged_userns_clone is 0: \
                   sudo sysctl kernel.unprivileged_userns_clone=1",
                ],
            ),
            (
                &[(MOST, "0\n")],
                &[
                    "user namespaces are switched off here for ordinary users, user.max_user_namespaces is 0: \
                   sudo sysctl user.max_user_namespaces=15000",
                ],
            ),
            (
                &[(RESTRICTED, "1\n")],
                &["AppArmor lets only programs with a profile use user namespaces, \
                   kernel.apparmor_restrict_unprivileged_userns is 1, and mmdebstrap has none: \
                   sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"],
            ),
            (&[(RESTRICTED, "1\n"), ("etc/apparmor.d/mmdebstrap", "")], &[]),
        ];
        for (given, expected) in cases {
            let (_directory, root) = tree(given);
            assert_eq!(lines(&switched_off(&root)), expected, "{given:?}");
        }
    }
}
