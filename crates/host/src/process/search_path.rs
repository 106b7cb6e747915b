//! Where programs are looked for.
//!
//! Root runs what it finds. So root takes programs only from directories in which nobody but root can put something, whatever `PATH`
//! says; what is passed over for that is said where a program is missed. [`VARIABLE`] names other directories, which are taken
//! as they are: sudo does not hand it on (sudoers(5), `env_reset`).

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use crate::files;

/// Directories in the form of `PATH`, which root takes programs from instead of `PATH`, unchecked.
pub const VARIABLE: &str = "PENSTOCK_PATH";

/// Daemons and QEMU live in sbin, which an ordinary user's PATH leaves out on Debian.
const USUAL: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The directories that programs are looked for in, and those that are passed over.
#[derive(Debug, PartialEq, Eq)]
pub struct SearchPath {
    directories: Vec<PathBuf>,
    passed_over: Vec<PathBuf>,
}

impl SearchPath {
    /// That of this process, as its environment and its user were at the first call.
    pub fn own() -> &'static SearchPath {
        static OWN: OnceLock<SearchPath> = OnceLock::new();
        OWN.get_or_init(|| {
            let named = named();
            let checked = named.is_none() && rules_the_machine();
            let path = named.or_else(|| env::var_os("PATH")).unwrap_or_else(|| "/usr/bin:/bin".into());
            SearchPath::of(&path, |directory| !checked || is_theirs_alone(directory, &[0]))
        })
    }

    fn of(path: &OsStr, trusted: impl Fn(&Path) -> bool) -> SearchPath {
        let mut found = SearchPath { directories: Vec::new(), passed_over: Vec::new() };
        for directory in env::split_paths(path).chain(USUAL.map(PathBuf::from)) {
            let list = match directory.is_absolute() && trusted(&directory) {
                true => &mut found.directories,
                false => &mut found.passed_over,
            };
            if !list.contains(&directory) {
                list.push(directory);
            }
        }
        found
    }

    /// In the form of `PATH`, for a program that looks for others.
    pub fn joined(&self) -> OsString {
        // Each comes from such a list, so that none has a colon in it.
        env::join_paths(&self.directories).unwrap_or_default()
    }

    /// Where `program` is, if it is there and executable.
    pub fn find(&self, program: &str) -> Option<PathBuf> {
        self.directories.iter().map(|directory| directory.join(program)).find(|file| executable(file))
    }

    /// What to say of a program that is not found although it is in a directory which is passed over; else nothing.
    pub fn why_not(&self, program: &str) -> String {
        let mut there = self.passed_over.iter().map(|directory| directory.join(program));
        let Some(file) = there.find(|file| !program.contains('/') && executable(file)) else {
            return String::new();
        };
        format!(
            " where root may take it from: {} is passed over, since others than root can write there, or it is no absolute path \
             ({VARIABLE} names directories that are taken as they are)",
            file.display()
        )
    }
}

/// What [`VARIABLE`] says, if anything.
pub fn named() -> Option<OsString> {
    env::var_os(VARIABLE).filter(|named| !named.is_empty())
}

/// Those of the directories in `named`, which has the form of `PATH`, in which programs are looked for at each boot: without links on the
/// way, and each once. What is no absolute path means nothing then, and what is not there has no program: both are left out.
///
/// # Errors
///
/// The first in which others than these `users` can put a program, or in whose place they can put another directory.
pub fn lasting(named: &OsStr, users: &[u32]) -> Result<Vec<PathBuf>, PathBuf> {
    let mut lasting = Vec::new();
    for directory in env::split_paths(named).filter(|directory| directory.is_absolute()) {
        let Ok(real) = files::canonical(&directory) else { continue };
        if !is_theirs_alone(&real, users) {
            return Err(directory);
        }
        if !lasting.contains(&real) {
            lasting.push(real);
        }
    }
    Ok(lasting)
}

/// The option of systemd-run(1) that hands it on: a service has nothing of the environment of who has it started.
pub fn for_service() -> Option<OsString> {
    named().map(|named| handed_on(&named))
}

fn handed_on(named: &OsStr) -> OsString {
    let mut option = OsString::from(format!("--setenv={VARIABLE}="));
    option.push(named);
    option
}

/// Whether this is root of the machine, and not of a user namespace, to which all files of the real root belong to nobody.
fn rules_the_machine() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    super::is_root() && map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Whether nobody but these users can put something into a directory, nor put another directory in its place.
fn is_theirs_alone(directory: &Path, users: &[u32]) -> bool {
    // A directory that is not there has no program.
    let Ok(real) = files::canonical(directory) else { return false };
    let Ok(data) = fs::metadata(&real) else { return false };
    // What is somebody else's stays in such a directory, and anybody can put more there.
    let shared = data.mode() & 0o1000 != 0 && data.mode() & 0o022 != 0;
    !shared && files::writable_by_others(&real, users).is_ok_and(|other| other.is_none())
}

fn executable(file: &Path) -> bool {
    nix::unistd::access(file, nix::unistd::AccessFlags::X_OK).is_ok() && file.is_file()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn program(directory: &Path, mode: u32) -> PathBuf {
        fs::create_dir_all(directory).unwrap();
        fs::set_permissions(directory, fs::Permissions::from_mode(mode)).unwrap();
        let file = directory.join("planted");
        fs::write(&file, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        file
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_passed_over_and_that_is_said() {
        let base = tempfile::tempdir().unwrap();
        // Who runs the test stands for root, to whom what is above the test's directory belongs.
        let us = fs::metadata(base.path()).unwrap().uid();
        let is_ours = |directory: &Path| is_theirs_alone(directory, &[0, us]);
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let [open, below, good] = ["open", "open/below", "good"].map(|name| base.path().join(name));
        program(&open, 0o777);
        program(&below, 0o755);
        let path = env::join_paths([&open, &below, &PathBuf::from("."), &PathBuf::from("")]).unwrap();
        let found = SearchPath::of(&path, is_ours);
        assert_eq!(found.find("planted"), None);
        assert!(found.why_not("planted").contains("is passed over"), "{}", found.why_not("planted"));
        assert_eq!(found.why_not("nothing"), "");

        let planted = program(&good, 0o755);
        let found = SearchPath::of(&env::join_paths([&open, &good]).unwrap(), is_ours);
        assert_eq!(found.find("planted"), Some(planted));
        assert!(!found.joined().to_string_lossy().contains("open"));
        assert!(!is_theirs_alone(&good, &[us.wrapping_add(1)]), "it is another user's");
        let link = base.path().join("link");
        std::os::unix::fs::symlink(&open, &link).unwrap();
        assert!(!is_ours(&link), "where a link leads is what counts");
    }

    #[test]
    fn at_each_boot_programs_are_looked_for_where_nobody_else_can_put_one() {
        let base = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(base.path()).unwrap();
        let users = [0, fs::metadata(&base).unwrap().uid()];
        fs::set_permissions(&base, fs::Permissions::from_mode(0o755)).unwrap();
        let [good, open, shared, link] = ["good", "open", "shared", "link"].map(|name| base.join(name));
        for (directory, mode) in [(&good, 0o755), (&open, 0o777), (&shared, 0o1777)] {
            program(directory, mode);
        }
        std::os::unix::fs::symlink(&good, &link).unwrap();
        let (gone, relative, empty) = (base.join("gone"), PathBuf::from("bin"), PathBuf::new());
        let named = env::join_paths([&relative, &link, &empty, &gone, &good]).unwrap();
        assert_eq!(lasting(&named, &users), Ok(vec![good.clone()]));
        for others in [&open, &shared] {
            let named = env::join_paths([&good, others]).unwrap();
            assert_eq!(lasting(&named, &users).as_ref(), Err(others));
        }
    }

    #[test]
    fn a_service_looks_where_who_starts_it_does() {
        assert_eq!(handed_on("/opt/a b:/c".as_ref()), "--setenv=PENSTOCK_PATH=/opt/a b:/c");
    }

    #[test]
    fn a_directory_is_looked_in_once() {
        let twice = SearchPath::of("/usr/sbin:/usr/sbin".as_ref(), |_| true);
        assert_eq!(twice.directories.iter().filter(|one| one.ends_with("usr/sbin")).count(), 1);
    }
}
