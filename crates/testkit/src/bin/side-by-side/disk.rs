//! Whether the disks have room for what tests write: on a full one they fail by the dozen, each with words of its own.

use std::{
    env, io,
    path::{Path, PathBuf},
};

use nix::sys::statvfs::statvfs;

/// What a run of all programs needs, in bytes, beside what is built: boards' disks and trees of packages of several programs at once.
pub const NEEDED: u64 = 5 << 30;

/// With less than this, in bytes, a test may fail for want of space alone.
const SHORT: u64 = 1 << 30;

/// One GiB.
pub const GIB: f64 = (1_u64 << 30) as f64;

/// The directories in which tests write, and the least space that each had.
pub struct Disk {
    directories: Vec<(PathBuf, Option<u64>)>,
    warned: bool,
}

impl Disk {
    /// That of temporary files, and the current directory, below which programs are built.
    pub fn of_this_machine() -> Disk {
        let directories = [env::temp_dir(), PathBuf::from(".")];
        Disk { directories: directories.map(|directory| (directory, None)).to_vec(), warned: false }
    }

    /// Looks at the space that ordinary users have there now.
    ///
    /// # Errors
    ///
    /// One has less than `needed` bytes, with what to do about it; the least is kept of all. A directory that cannot be looked at is not judged.
    pub fn look(&mut self, needed: u64) -> Result<(), String> {
        self.look_by(needed, |directory| {
            let it = statvfs(directory)?;
            Ok(it.blocks_available() * it.fragment_size())
        })
    }

    fn look_by(&mut self, needed: u64, free: impl Fn(&Path) -> io::Result<u64>) -> Result<(), String> {
        let mut full = Ok(());
        for (directory, least) in &mut self.directories {
            let Ok(now) = free(directory) else { continue };
            *least = Some(least.map_or(now, |least| least.min(now)));
            if now < needed && full.is_ok() {
                full = Err(format!(
                    "{} has {:.1} GiB left, and the tests write up to {:.1} GiB: make room (`make clean` removes what was built), or set \
                     TMPDIR to a directory of another disk",
                    directory.display(),
                    now as f64 / GIB,
                    needed as f64 / GIB
                ));
            }
        }
        full
    }

    /// Says once when a disk is nearly full: what fails from then on may fail for that.
    pub fn warn(&mut self) {
        if let Err(why) = self.look(SHORT)
            && !std::mem::replace(&mut self.warned, true)
        {
            eprintln!("warning: tests may fail from now on because the disk is full: {why}");
        }
    }

    /// Prints the least space that there was.
    pub fn tell(&self) {
        for (directory, least) in &self.directories {
            match least {
                Some(least) => {
                    println!("least space left in {}: {:.1} GiB", directory.display(), *least as f64 / GIB);
                }
                None => println!("space left in {}: could not be read", directory.display()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_with_too_little_space_is_named_and_the_least_is_kept() {
        let mut disk = Disk { directories: vec![("/tmp".into(), None)], warned: false };
        assert_eq!(disk.look_by(NEEDED, |_| Ok(NEEDED)), Ok(()));
        let why = disk.look_by(NEEDED, |_| Ok(NEEDED - (1 << 30))).unwrap_err();
        assert!(why.contains("/tmp has 4.0 GiB left"), "{why}");
        assert_eq!(disk.look_by(SHORT, |_| Ok(NEEDED)), Ok(()));
        assert_eq!(disk.directories, [("/tmp".into(), Some(NEEDED - (1 << 30)))]);
    }

    #[test]
    fn a_disk_that_cannot_be_looked_at_is_not_judged() {
        let mut disk = Disk { directories: vec![("/tmp".into(), None)], warned: false };
        assert_eq!(disk.look_by(NEEDED, |_| Err(io::ErrorKind::PermissionDenied.into())), Ok(()));
        assert_eq!(disk.directories, [("/tmp".into(), None)]);
    }

    #[test]
    fn the_space_of_this_machine_is_read() {
        let mut disk = Disk::of_this_machine();
        assert_eq!(disk.look(1), Ok(()));
        assert!(disk.directories.iter().all(|(_, least)| least.is_some_and(|least| least > 0)));
    }
}
