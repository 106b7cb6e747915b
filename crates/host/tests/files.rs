//! Reading in a tree that somebody hostile writes to.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use penstock_host::files::{Lock, read_in_root};

/// A directory `jail` whose owner tries to lead a reader to `secret` beside it.
fn jail() -> (tempfile::TempDir, std::path::PathBuf) {
    let outside = tempfile::tempdir().unwrap();
    let jail = outside.path().join("jail");
    fs::create_dir_all(jail.join("etc")).unwrap();
    fs::write(outside.path().join("secret"), "outside").unwrap();
    (outside, jail)
}

#[test]
fn a_file_is_read_up_to_the_limit() {
    let (_outside, jail) = jail();
    fs::write(jail.join("etc/hostname"), "linux-2\n").unwrap();
    assert_eq!(read_in_root(&jail, "/etc/hostname", 100).unwrap(), b"linux-2\n");
    assert_eq!(read_in_root(&jail, "etc/hostname", 5).unwrap(), b"linux");
}

#[test]
fn links_stay_inside() {
    let (outside, jail) = jail();
    fs::write(jail.join("secret"), "inside").unwrap();
    symlink(outside.path().join("secret"), jail.join("absolute")).unwrap();
    symlink("../../../secret", jail.join("etc/relative")).unwrap();
    symlink("/", jail.join("etc/root")).unwrap();
    // The absolute link names a path that does not exist below the jail; the others end at the jail's own file.
    assert!(read_in_root(&jail, "/absolute", 100).unwrap_err().is_missing());
    assert_eq!(read_in_root(&jail, "/etc/relative", 100).unwrap(), b"inside");
    assert_eq!(read_in_root(&jail, "/etc/root/secret", 100).unwrap(), b"inside");
    assert_eq!(read_in_root(&jail, "/../../secret", 100).unwrap(), b"inside");
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    let (_outside, jail) = jail();
    nix::unistd::mkfifo(&jail.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    symlink("/etc", jail.join("directory")).unwrap();
    for path in ["/fifo", "/directory"] {
        let error = read_in_root(&jail, path, 100).unwrap_err();
        assert!(error.source.to_string().contains("not a regular file"), "{error:?}");
    }
    // A link of /proc leads to wherever a process of the host is: never followed.
    let error = read_in_root(Path::new("/proc/self"), "/cwd/Cargo.toml", 100).unwrap_err();
    assert_eq!(error.source.raw_os_error(), Some(nix::libc::ELOOP));
}

#[test]
fn a_lock_can_be_opened_by_its_owner_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lock");
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    drop(Lock::try_exclusive(&path).unwrap().unwrap());
    assert_eq!(mode(), 0o600);
    // One of an older version is mended; one that is shared with a group on purpose stays so.
    for (before, after) in [(0o644, 0o600), (0o606, 0o600), (0o660, 0o660)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(before)).unwrap();
        drop(Lock::exclusive(&path).unwrap());
        assert_eq!(mode(), after, "was {before:o}");
    }
}

#[test]
fn a_lock_is_not_taken_through_a_link() {
    let directory = tempfile::tempdir().unwrap();
    let (target, path) = (directory.path().join("target"), directory.path().join("lock"));
    symlink(&target, &path).unwrap();
    assert!(Lock::try_exclusive(&path).is_err());
    assert!(!target.exists());
}
