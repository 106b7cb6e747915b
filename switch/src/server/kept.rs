//! What outlives the process: the host's configuration and, beside it, what came from inside.

use std::{
    ffi::OsString,
    fs::{self, File, Metadata},
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, fchown},
    path::{Path, PathBuf},
};

use nix::unistd::Uid;
use serde::Serialize;

use super::inside::Inside;
use crate::config::Config;

/// Where what is set is kept.
#[derive(Clone, Debug)]
pub(super) struct KeptInFiles {
    config: PathBuf,
    inside: PathBuf,
}

impl KeptInFiles {
    /// In the file `path`, or where a link of that name leads now: one that comes there later is replaced, and not followed. What came
    /// from inside is kept beside `path`.
    pub fn at(path: &Path) -> KeptInFiles {
        let config = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        KeptInFiles { config, inside: inside_of(path) }
    }

    /// Writes what the host has set, also for the case that the machine loses its power.
    pub fn keep_config(&self, config: &Config) {
        let _ =
            write(&self.config, config, File::sync_all).inspect_err(|error| complain(&self.config, error));
    }

    /// Writes what came from inside. Nobody waits for the disk: a guest can have that done as often as it likes, and what it has asked
    /// for lapses with the machine's power anyway.
    pub fn keep_inside(&self, inside: &Inside) {
        let written = match inside.is_empty() {
            true => fs::remove_file(&self.inside).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            }),
            false => write(&self.inside, inside, |_| Ok(())),
        };
        let _ = written.inspect_err(|error| complain(&self.inside, error));
    }
}

/// Where what was set from inside is kept, beside the host's configuration.
pub(super) fn inside_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".inside");
    name.into()
}

/// It holds all the same: whoever sets something is not to take it for refused.
fn complain(path: &Path, error: &io::Error) {
    eprintln!("penstock-switch: what was set could not be written to {}: {error}", path.display());
}

/// Writes something whole or not at all, under a name that nobody can foresee until it is: where others may write to the
/// directory, none of them can have put a link or a file of his there. `settle` comes before it has its own name.
fn write(path: &Path, what: &impl Serialize, settle: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let mut part = OsString::from(path);
    part.push(format!(".{:016x}.part", RandomState::new().build_hasher().finish()));
    let written = || {
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&part)?;
        if let Some(before) = ours(path) {
            let _ = fchown(&file, Some(before.uid()), Some(before.gid()));
            file.set_permissions(before.permissions())?;
        }
        file.write_all(&serde_json::to_vec_pretty(what)?)?;
        settle(&file)?;
        fs::rename(&part, path)
    };
    written().inspect_err(|_| {
        let _ = fs::remove_file(&part);
    })
}

/// The file whose owner, group and mode another that takes its place has, too. Any other is its owner's alone: who may write to the
/// directory could have put something there that many may read, and that he owns.
fn ours(path: &Path) -> Option<Metadata> {
    let there = fs::symlink_metadata(path).ok()?;
    let is_ours = there.uid() == 0 || there.uid() == Uid::effective().as_raw();
    (there.is_file() && is_ours).then_some(there)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn mode(file: &Path) -> u32 {
        fs::symlink_metadata(file).unwrap().mode() & 0o7777
    }

    #[test]
    fn what_is_kept_stays_whose_it_was_and_where_a_link_leads() {
        let directory = tempfile::tempdir().unwrap();
        let [file, link] = ["switch.json", "link"].map(|name| directory.path().join(name));
        let config = Config { version: 1, ..Config::default() };
        KeptInFiles::at(&file).keep_config(&config);
        assert_eq!(mode(&file), 0o600, "a new one is nobody else's to read");
        for wanted in [0o640, 0o644] {
            fs::set_permissions(&file, fs::Permissions::from_mode(wanted)).unwrap();
            KeptInFiles::at(&file).keep_config(&config);
            assert_eq!(mode(&file), wanted);
        }
        symlink(&file, &link).unwrap();
        KeptInFiles::at(&link).keep_config(&Config { loopback: true, ..config });
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(crate::program::read(&file).unwrap().loopback);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "nothing is left beside them");
    }

    #[test]
    fn what_somebody_has_put_there_is_replaced_and_neither_followed_nor_taken_as_a_model() {
        let directory = tempfile::tempdir().unwrap();
        let [file, inside, precious] =
            ["switch.json", "switch.json.inside", "precious"].map(|name| directory.path().join(name));
        let config = Config { version: 1, ..Config::default() };
        let set = Inside { loopback: Some(true), ..Inside::default() };
        fs::write(&precious, "precious").unwrap();
        fs::set_permissions(&precious, fs::Permissions::from_mode(0o666)).unwrap();
        let kept = KeptInFiles::at(&file);
        for link in [&file, &inside] {
            symlink(&precious, link).unwrap();
        }
        kept.keep_config(&config);
        kept.keep_inside(&set);
        assert_eq!(fs::read(&precious).unwrap(), b"precious");
        assert_eq!((mode(&file), mode(&inside)), (0o600, 0o600));
        assert_eq!(crate::program::read(&file).unwrap(), config);
        assert_eq!(Inside::read(&inside).unwrap(), Some(set));
        if !Uid::effective().is_root() {
            return;
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        chown(&file, Some(12345), Some(12345)).unwrap();
        kept.keep_config(&config);
        assert_eq!((mode(&file), fs::metadata(&file).unwrap().uid()), (0o600, 0), "it was somebody else's");
    }
}
