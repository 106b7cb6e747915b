//! What other users put in root's way: only root can make files of theirs.
#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, lchown, symlink},
    path::Path,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use penstock_host::files;
use penstock_testkit::{needs, trials::Trials};

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("other users", needs::root);
    let tests: [(&str, fn()); 2] = [
        ("a_link_of_another_user_above_a_file_leads_nobody_elsewhere_as_root", a_link_of_another_user),
        ("a_link_that_comes_and_goes_leads_nobody_elsewhere_as_root", a_link_that_comes_and_goes),
    ];
    trials.add(&missing, tests);
    trials.run()
}

/// An account of nobody here.
const NOBODY: u32 = 65534;

/// `theirs`, a directory of another user's with a link `way` of his, and `victim`, to which that leads, and where root has
/// a file and a directory.
fn trap() -> tempfile::TempDir {
    let there = tempfile::tempdir().unwrap();
    let at = |name: &str| there.path().join(name);
    fs::create_dir(at("theirs")).unwrap();
    fs::create_dir_all(at("victim/directory")).unwrap();
    fs::write(at("victim/file"), "untouched").unwrap();
    fs::set_permissions(at("victim/file"), Permissions::from_mode(0o640)).unwrap();
    symlink(at("victim"), at("theirs/way")).unwrap();
    lchown(at("theirs/way"), Some(NOBODY), Some(NOBODY)).unwrap();
    lchown(at("theirs"), Some(NOBODY), Some(NOBODY)).unwrap();
    there
}

fn untouched(there: &Path) {
    assert_eq!(files::list(there.join("victim")).unwrap(), ["directory", "file"]);
    assert_eq!(files::list(there.join("victim/directory")).unwrap(), [""; 0]);
    assert_eq!(fs::read_to_string(there.join("victim/file")).unwrap(), "untouched");
    assert_eq!(fs::metadata(there.join("victim/file")).unwrap().permissions().mode() & 0o777, 0o640);
}

fn a_link_of_another_user() {
    let there = trap();
    let way = there.path().join("theirs/way");
    let own = there.path().join("own");
    fs::write(&own, "own").unwrap();
    let new = way.join("new");
    let outcomes: Vec<(&str, files::Result<()>)> = vec![
        ("write_atomic", files::write_atomic(&new, "x")),
        ("write_atomic over", files::write_atomic(way.join("file"), "x")),
        ("write_durable", files::write_durable(&new, "x")),
        ("create_durable", files::create_durable(&new, "x").map(drop)),
        ("create_dir_all", files::create_dir_all(&new)),
        ("create_dir_all below", files::create_dir_all(way.join("directory/new"))),
        ("make_own_directory", files::make_own_directory(&new)),
        ("append", files::append(way.join("file")).map(drop)),
        ("copy", files::copy(&own, &new).map(drop)),
        ("rename", files::rename(&own, &new)),
        ("rename from", files::rename(way.join("file"), there.path().join("stolen"))),
        ("link", files::link("/nowhere", &new)),
        ("hard_link", files::hard_link(&own, &new)),
        ("hard_link of", files::hard_link(way.join("file"), there.path().join("stolen"))),
        ("allocate", files::allocate(&new, 10)),
        ("lock", files::Lock::try_exclusive(way.join("file")).map(drop)),
        ("set_mode", files::set_mode(way.join("file"), 0o666)),
        ("share", files::share(way.join("file"), NOBODY, 0o666)),
        ("remove_file", files::remove_file(way.join("file"))),
        ("remove_durable", files::remove_durable(way.join("file"))),
        ("remove_directory", files::remove_directory(way.join("directory"))),
        ("remove_tree", files::remove_tree(way.join("directory"))),
    ];
    for (name, outcome) in outcomes {
        let error = penstock_host::chain(&outcome.expect_err(name));
        let wanted =
            format!("{} is a symbolic link that belongs to user {NOBODY}, and not followed", way.display());
        assert!(error.contains(&wanted), "{name}: {error}");
    }
    untouched(there.path());
    // What is his own directory is his own to have written to.
    files::write_atomic(there.path().join("theirs/new"), "x").unwrap();
    // The link itself can be removed, and nothing behind it goes.
    files::remove_tree(&way).unwrap();
    assert!(way.symlink_metadata().is_err());
    untouched(there.path());
}

fn a_link_that_comes_and_goes() {
    let there = trap();
    let at = |name: &str| there.path().join("theirs").join(name);
    fs::create_dir(at("run")).unwrap();
    let done = AtomicBool::new(false);
    let (mut written, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        // The owner of the directory exchanges his directory and his link, as fast as he can.
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                renameat2(AT_FDCWD, &at("run"), AT_FDCWD, &at("way"), RenameFlags::RENAME_EXCHANGE).unwrap();
            }
        });
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline && (written < 200 || refused < 200) {
            let made = files::create_dir_all(at("run/sub"))
                .and_then(|()| files::allocate(at("run/sub/file"), 1))
                .and_then(|()| files::set_mode(at("run/sub/file"), 0o644))
                .and_then(|()| files::remove_tree(at("run/sub")));
            *(if made.is_ok() { &mut written } else { &mut refused }) += 1;
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(written > 0 && refused > 0, "{written} written, {refused} refused");
    untouched(there.path());
}
