//! Where programs are looked for.
//!
//! Root runs what it finds. So root takes programs only from directories in which nobody but root can put something, whatever `PATH`
//! says, and of those only programs that nobody but root can change, wherever links lead to them; what is passed over for that is
//! said where a program is missed. [`VARIABLE`] names other directories, which are taken as they are: sudo does not hand it on
//! (sudoers(5), `env_reset`).
//!
//! What is found is run by its whole path ([`super::Command`]): neither the kernel nor libc looks for it once more. A program that is named by
//! a path is taken as it is.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use crate::{files, packages};

/// Directories in the form of `PATH`, which root takes programs from instead of `PATH`, unchecked.
pub const VARIABLE: &str = "PENSTOCK_PATH";

/// Daemons and QEMU live in sbin, which an ordinary user's PATH leaves out on Debian.
const USUAL: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// What a distribution has there is no more than what it needs, and belongs to root.
const SYSTEM: [&str; 4] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];

/// A directory that is not there.
const NOWHERE: &str = "/nonexistent";

/// The directories that programs are looked for in, and those that are passed over.
#[derive(Debug)]
pub struct SearchPath {
    directories: Vec<PathBuf>,
    passed_over: Vec<PathBuf>,
    /// Who alone may change what is taken; `None`: anybody.
    users: Option<Vec<u32>>,
    /// What [`SearchPath::joined`] gives.
    joined: OnceLock<OsString>,
}

impl SearchPath {
    /// That of this process, as its environment and its user were at the first call.
    pub fn own() -> &'static SearchPath {
        static OWN: OnceLock<SearchPath> = OnceLock::new();
        OWN.get_or_init(|| {
            let named = named();
            let checked = named.is_none() && rules_the_machine();
            let path = named.or_else(|| env::var_os("PATH")).unwrap_or_else(|| "/usr/bin:/bin".into());
            SearchPath::of(&path, checked.then(|| vec![0]))
        })
    }

    fn of(path: &OsStr, users: Option<Vec<u32>>) -> SearchPath {
        let (mut directories, mut passed_over) = (Vec::new(), Vec::new());
        for directory in env::split_paths(path).chain(USUAL.map(PathBuf::from)) {
            let trusted = users.as_ref().is_none_or(|users| is_theirs_alone(&directory, users));
            let list = match directory.is_absolute() && trusted {
                true => &mut directories,
                false => &mut passed_over,
            };
            if !list.contains(&directory) {
                list.push(directory);
            }
        }
        SearchPath { directories, passed_over, users, joined: OnceLock::new() }
    }

    /// In the form of `PATH`, for a program that looks for others, and never empty. What of it others can change is said on standard
    /// error at the first call.
    pub fn joined(&self) -> &OsStr {
        self.joined.get_or_init(|| {
            let (joined, said) = self.for_scripts();
            said.iter().for_each(|line| crate::complain!("{line}"));
            joined
        })
    }

    /// What [`SearchPath::joined`] gives, and what is said with it. A shell takes the first program of a name. So a directory is left out in
    /// which that is one which Penstock's scripts call and others can change; but none of the [`SYSTEM`], without which no script does
    /// anything.
    fn for_scripts(&self) -> (OsString, Vec<String>) {
        const REMEDY: &str = "have that belong to root, and let nobody else write to it";
        let (mut kept, mut said) = (self.directories.clone(), Vec::new());
        let called: Vec<&str> =
            packages::rows().filter(packages::Row::is_of_scripts).map(|row| row.program).collect();
        let unsound = |kept: &[PathBuf]| -> Vec<(PathBuf, PathBuf)> {
            if self.users.is_none() {
                return Vec::new();
            }
            let firsts = called.iter().filter_map(|program| executables(kept, program).next());
            firsts.filter_map(|file| Some((self.changeable(&file)?, file))).collect()
        };
        let directory = |file: &Path| file.parent().map(Path::to_owned).unwrap_or_default();
        let may_go = |file: &Path| SYSTEM.iter().all(|system| directory(file) != Path::new(system));
        // Where one is left out, programs of others come first.
        while let Some((place, file)) = unsound(&kept).into_iter().find(|(_, file)| may_go(file)) {
            let out = directory(&file);
            said.push(format!(
                "others than root can change {}, and scripts that Penstock runs would take {}: they do not look in {} ({REMEDY})",
                place.display(),
                file.display(),
                out.display()
            ));
            kept.retain(|one| *one != out);
        }
        said.extend(unsound(&kept).into_iter().map(|(place, file)| {
            format!(
                "others than root can change {}, and scripts that Penstock runs take {} all the same: {REMEDY}",
                place.display(),
                file.display()
            )
        }));
        // Each comes from such a list, so that none has a colon in it.
        let joined = env::join_paths(&kept).unwrap_or_default();
        // A shell takes nothing for the directory that it is in.
        (if joined.is_empty() { NOWHERE.into() } else { joined }, said)
    }

    /// Where `program` is, if it is there, executable, and nobody else can change it.
    pub fn find(&self, program: impl AsRef<Path>) -> Option<PathBuf> {
        executables(&self.directories, program).find(|file| self.changeable(file).is_none())
    }

    /// What others can change of a program or of the way to it, if that matters.
    fn changeable(&self, file: &Path) -> Option<PathBuf> {
        let users = self.users.as_ref()?;
        files::writable_by_others(file, users).unwrap_or_else(|error| Some(error.path))
    }

    /// What to say of a program that is not found although it is there, since it or its directory is passed over; else nothing.
    pub fn why_not(&self, program: &str) -> String {
        if program.contains('/') {
            return String::new();
        }
        let refused = executables(&self.directories, program)
            .find_map(|file| self.changeable(&file).map(|place| (file, place)));
        if let Some((file, place)) = refused {
            return format!(
                " where root may take it from: {} is passed over, since others than root can change {} (have that belong to root, \
                 and let nobody else write to it; {VARIABLE} names directories whose programs are taken as they are)",
                file.display(),
                place.display()
            );
        }
        let Some(file) = executables(&self.passed_over, program).next() else { return String::new() };
        format!(
            " where root may take it from: {} is passed over, since others than root can write there, or it is no absolute path \
             ({VARIABLE} names directories that are taken as they are)",
            file.display()
        )
    }
}

/// The files of this name that can be run, in the order of the directories.
fn executables(directories: &[PathBuf], program: impl AsRef<Path>) -> impl Iterator<Item = PathBuf> {
    let files = directories.iter().map(move |directory| directory.join(program.as_ref()));
    files.filter(|file| executable(file))
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
    let Ok(data) = fs::metadata(directory) else { return false };
    // What is somebody else's stays in such a directory, and anybody can put more there.
    let shared = data.mode() & 0o1000 != 0 && data.mode() & 0o022 != 0;
    !shared && files::writable_by_others(directory, users).is_ok_and(|other| other.is_none())
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
        let users = [0, us];
        let of = |path: &OsStr| SearchPath::of(path, Some(users.to_vec()));
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let [open, below, good] = ["open", "open/below", "good"].map(|name| base.path().join(name));
        program(&open, 0o777);
        program(&below, 0o755);
        let path = env::join_paths([&open, &below, &PathBuf::from("."), &PathBuf::from("")]).unwrap();
        let found = of(&path);
        assert_eq!(found.find("planted"), None);
        assert!(found.why_not("planted").contains("is passed over"), "{}", found.why_not("planted"));
        assert_eq!(found.why_not("nothing"), "");

        let planted = program(&good, 0o755);
        let found = of(&env::join_paths([&open, &good]).unwrap());
        assert_eq!(found.find("planted"), Some(planted));
        assert!(!found.joined().to_string_lossy().contains("open"));
        assert!(!is_theirs_alone(&good, &[us.wrapping_add(1)]), "it is another user's");
        let link = base.path().join("link");
        std::os::unix::fs::symlink(&open, &link).unwrap();
        assert!(!is_theirs_alone(&link, &users), "where a link leads is what counts");
    }

    #[test]
    fn a_program_that_others_can_change_is_passed_over_and_that_is_said() {
        let base = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(base.path()).unwrap();
        let users = vec![0, fs::metadata(&base).unwrap().uid()];
        fs::set_permissions(&base, fs::Permissions::from_mode(0o755)).unwrap();
        let [first, second, open, sound] = ["first", "second", "open", "sound"].map(|name| base.join(name));
        let planted = program(&open, 0o777);
        let whole = program(&sound, 0o755);
        program(&first, 0o755);
        let last = program(&second, 0o755);
        let path = env::join_paths([&first, &second]).unwrap();
        let of = || SearchPath::of(&path, Some(users.clone()));
        let link = |target: &Path| {
            fs::remove_file(first.join("planted")).unwrap();
            std::os::unix::fs::symlink(target, first.join("planted")).unwrap();
        };
        let passed_over = |place: &Path| {
            assert_eq!(of().find("planted"), Some(last.clone()), "another one is taken");
            let alone = SearchPath::of(first.as_os_str(), Some(users.clone()));
            assert_eq!(alone.find("planted"), None);
            let why = alone.why_not("planted");
            let program = first.join("planted");
            let wanted = format!(
                "{} is passed over, since others than root can change {} ",
                program.display(),
                place.display()
            );
            assert!(why.contains(&wanted), "{why}");
            assert!(why.contains("have that belong to root") && why.contains(VARIABLE), "{why}");
        };
        // As /usr/bin/vi leads to /etc/alternatives/vi, and that to /usr/bin/vim.
        let alternative = base.join("alternative");
        std::os::unix::fs::symlink(&whole, &alternative).unwrap();
        for target in [whole.clone(), PathBuf::from("../sound/planted"), alternative] {
            link(&target);
            assert_eq!(of().find("planted"), Some(first.join("planted")), "{}", target.display());
        }
        link(&planted);
        passed_over(&open);
        // Where the link leads is good now; others choose where it leads at another time.
        let way = open.join("way");
        std::os::unix::fs::symlink(&sound, &way).unwrap();
        link(&way.join("planted"));
        passed_over(&open);
        fs::set_permissions(&whole, fs::Permissions::from_mode(0o777)).unwrap();
        link(&whole);
        passed_over(&whole);
        fs::remove_file(&whole).unwrap();
        assert_eq!(of().why_not("planted"), "", "a link to nothing is no program");
        // Nobody else is root here, but where root runs the test.
        if crate::process::is_root() {
            program(&sound, 0o755);
            std::os::unix::fs::chown(&whole, Some(65534), None).unwrap();
            passed_over(&whole);
            link(&last);
            std::os::unix::fs::lchown(first.join("planted"), Some(65534), None).unwrap();
            passed_over(&first.join("planted"));
        } else {
            penstock_testkit::skip::part("needs root");
        }
        // Who names the directories takes what is there, as does an ordinary user.
        link(&planted);
        assert_eq!(SearchPath::of(&path, None).find("planted"), Some(first.join("planted")));
    }

    #[test]
    fn a_shell_does_not_look_where_others_can_change_what_our_scripts_call() {
        let base = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(base.path()).unwrap();
        let users = vec![0, fs::metadata(&base).unwrap().uid()];
        fs::set_permissions(&base, fs::Permissions::from_mode(0o755)).unwrap();
        let [first, open] = ["first", "open"].map(|name| base.join(name));
        let planted = program(&open, 0o777);
        program(&first, 0o755);
        let looks_there = |users: Option<Vec<u32>>| {
            let path = SearchPath::of(first.as_os_str(), users);
            env::split_paths(path.joined()).any(|directory| directory == first)
        };
        // No script calls these: what builds Penstock, and what Penstock finds itself.
        for name in ["nobody-calls-it", "go", "git", "fio"] {
            std::os::unix::fs::symlink(&planted, first.join(name)).unwrap();
            assert!(looks_there(Some(users.clone())), "{name}");
            assert_eq!(
                SearchPath::of(first.as_os_str(), Some(users.clone())).for_scripts().1.len(),
                0,
                "{name}"
            );
        }
        std::os::unix::fs::symlink(&planted, first.join("ip")).unwrap();
        assert!(!looks_there(Some(users.clone())));
        assert!(looks_there(None));
        let (_, said) = SearchPath::of(first.as_os_str(), Some(users.clone())).for_scripts();
        let wanted = format!(
            "others than root can change {}, and scripts that Penstock runs would take {}: they do not look in {} ",
            open.display(),
            first.join("ip").display(),
            first.display()
        );
        assert!(matches!(&said[..], [line] if line.starts_with(&wanted)), "{said:?}");
        // A sound one of the same name that comes before it is the one that is taken.
        let sound = base.join("sound");
        let ip = program(&sound, 0o755);
        fs::rename(ip, sound.join("ip")).unwrap();
        let of = |path: &[&PathBuf]| {
            let path = SearchPath::of(&env::join_paths(path).unwrap(), Some(users.clone()));
            env::split_paths(path.joined()).collect::<Vec<_>>()
        };
        assert_eq!(of(&[&sound, &first])[..2], [sound.clone(), first.clone()]);
        assert!(!of(&[&first, &sound]).contains(&first));
    }

    #[test]
    fn a_shell_never_looks_in_the_directory_that_it_is_in() {
        let base = tempfile::tempdir().unwrap();
        let open = base.path().join("open");
        fs::create_dir(&open).unwrap();
        // Nobody is trusted, so that all are passed over.
        let none = SearchPath::of(open.as_os_str(), Some(Vec::new()));
        assert_eq!(none.joined(), NOWHERE);
        for path in ["", ".", ":", "bin:"] {
            let path = SearchPath::of(path.as_ref(), None);
            assert!(
                env::split_paths(path.joined()).all(|one| one.is_absolute()),
                "{}",
                path.joined().display()
            );
        }
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
        let twice = SearchPath::of("/usr/sbin:/usr/sbin".as_ref(), None);
        assert_eq!(twice.directories.iter().filter(|one| one.ends_with("usr/sbin")).count(), 1);
    }
}
