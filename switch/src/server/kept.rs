//! What outlives the process: the host's configuration and, beside it, what came from inside.

use std::{
    ffi::OsString,
    fs::{File, Permissions},
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, Write},
    os::unix::fs::{PermissionsExt, fchown},
    path::{Path, PathBuf},
};

use nix::{
    fcntl::OFlag,
    sys::stat::{FileStat, Mode, SFlag},
    unistd::Uid,
};
use serde::Serialize;

use super::inside::Inside;
use crate::{
    config::Config,
    held::{HeldName, kind},
};

/// As many links from a configuration's name to its file as Linux follows (`MAXSYMLINKS`).
const LINKS: usize = 40;

/// Where what is set is kept.
#[derive(Clone, Debug)]
pub(super) struct KeptInFiles {
    config: PathBuf,
    inside: PathBuf,
}

impl KeptInFiles {
    /// In the file `path`, or where a link of that name leads now: one that comes there later is replaced, and not followed, as is one
    /// that somebody else could have put there. What came from inside is kept beside `path`. What a switch that was killed has left of
    /// writing either is removed.
    ///
    /// # Errors
    /// A directory in which one of them is to be cannot be reached, or a link of somebody else's is on the way.
    pub fn at(path: &Path) -> io::Result<KeptInFiles> {
        let kept = KeptInFiles { config: led(path), inside: inside_of(path) };
        for file in [&kept.config, &kept.inside] {
            remove_parts(&HeldName::of(file)?);
        }
        Ok(kept)
    }

    /// Writes what the host has set, also for the case that the machine loses its power.
    pub fn keep_config(&self, config: &Config) {
        match write(&self.config, config, File::sync_all) {
            Err(error) => complain(&self.config, &error),
            Ok(held) => {
                if let Err(error) = held.sync_directory() {
                    complain!(
                        "what was set is in {}, and may be gone from there when the machine loses its power: \
                         its directory could not be written to the disk: {error}",
                        self.config.display()
                    );
                }
            }
        }
    }

    /// Writes what came from inside. Nobody waits for the disk: a guest can have that done as often as it likes, and what it has asked
    /// for lapses with the machine's power anyway.
    pub fn keep_inside(&self, inside: &Inside) {
        let written = match inside.is_empty() {
            true => match HeldName::of(&self.inside).and_then(|held| Ok(held.remove()?)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed,
            },
            false => write(&self.inside, inside, |_| Ok(())).map(drop),
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
    complain!("what was set could not be written to {}: {error}", path.display());
}

/// Where the links lead that begin at `path`, as far as they may be followed.
fn led(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let Some(target) = HeldName::of(&path).ok().and_then(|held| held.leads_to()) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    path
}

/// Writes something whole or not at all, under a name that nobody can foresee until it is: where others may write to the
/// directory, none of them can have put a link or a file of his there. `settle` comes before it has its own name.
fn write(
    path: &Path,
    what: &impl Serialize,
    settle: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<HeldName> {
    let held = HeldName::of(path)?;
    let mut name = held.name().to_owned();
    name.push(format!(".{:016x}{PART}", RandomState::new().build_hasher().finish()));
    let part = held.beside(name)?;
    let written = || {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        let mut file = File::from(part.open(flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
        if let Some(before) = ours(&held) {
            let _ = fchown(&file, Some(before.st_uid), Some(before.st_gid));
            file.set_permissions(Permissions::from_mode(before.st_mode & 0o7777))?;
        }
        file.write_all(&serde_json::to_vec_pretty(what)?)?;
        settle(&file)?;
        Ok(part.replace(&held)?)
    };
    match written() {
        Ok(()) => Ok(held),
        Err(error) => {
            let _ = part.remove();
            Err(error)
        }
    }
}

/// What a file's name ends with while it is written.
const PART: &str = ".part";

/// Removes what was begun of writing a file and never got its name: one switch writes it, and this is the one. What cannot be removed
/// takes room, and does no harm.
fn remove_parts(held: &HeldName) {
    let is_part = |name: &OsString| {
        let rest = name.to_str().zip(held.name().to_str()).and_then(|(name, own)| name.strip_prefix(own));
        let random = rest.and_then(|rest| rest.strip_prefix('.')?.strip_suffix(PART));
        random.is_some_and(|random| random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    for name in held.siblings().unwrap_or_default().into_iter().filter(is_part) {
        let _ = held.beside(name).map(|part| part.remove());
    }
}

/// The file whose owner, group and mode another that takes its place has, too. Any other is its owner's alone: who may write to the
/// directory could have put something there that many may read, and that he owns.
fn ours(held: &HeldName) -> Option<FileStat> {
    let there = held.look().ok()?;
    let is_ours = there.st_uid == 0 || there.st_uid == Uid::effective().as_raw();
    (kind(&there) == SFlag::S_IFREG && is_ours).then_some(there)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt, chown, symlink},
    };

    use super::*;
    use crate::held::tests::WriteAccess;

    fn mode(file: &Path) -> u32 {
        fs::symlink_metadata(file).unwrap().mode() & 0o7777
    }

    #[test]
    fn what_is_kept_stays_whose_it_was_and_where_a_link_leads() {
        let directory = tempfile::tempdir().unwrap();
        let [file, link] = ["switch.json", "link"].map(|name| directory.path().join(name));
        let config = Config { version: 1, ..Config::default() };
        KeptInFiles::at(&file).unwrap().keep_config(&config);
        assert_eq!(mode(&file), 0o600, "a new one is nobody else's to read");
        for wanted in [0o640, 0o644] {
            fs::set_permissions(&file, fs::Permissions::from_mode(wanted)).unwrap();
            KeptInFiles::at(&file).unwrap().keep_config(&config);
            assert_eq!(mode(&file), wanted);
        }
        symlink(&file, &link).unwrap();
        KeptInFiles::at(&link).unwrap().keep_config(&Config { loopback: true, ..config });
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
        let kept = KeptInFiles::at(&file).unwrap();
        assert_eq!(kept.config, file);
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
            penstock_testkit::skip::part("needs root");
            return;
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        chown(&file, Some(12345), Some(12345)).unwrap();
        kept.keep_config(&config);
        assert_eq!((mode(&file), fs::metadata(&file).unwrap().uid()), (0o600, 0), "it was somebody else's");
    }

    #[test]
    fn a_link_that_others_can_put_above_a_file_leads_a_switch_nowhere() {
        let config = Config { version: 1, ..Config::default() };
        let set = Inside { loopback: Some(true), ..Inside::default() };
        for access in WriteAccess::all() {
            let there = tempfile::tempdir().unwrap();
            let at = |name: &str| there.path().join(name);
            ["theirs", "victim"].iter().for_each(|name| fs::create_dir(at(name)).unwrap());
            fs::write(at("victim/switch.json.inside"), "precious").unwrap();
            fs::create_dir(at("theirs/way")).unwrap();
            let kept = KeptInFiles::at(&at("theirs/way/switch.json")).unwrap();
            fs::remove_dir(at("theirs/way")).unwrap();
            symlink(at("victim"), at("theirs/way")).unwrap();
            symlink(at("victim/switch.json"), at("theirs/switch.json")).unwrap();
            access.open(&at("theirs"), &[at("theirs/way"), at("theirs/switch.json")]);
            kept.keep_config(&config);
            kept.keep_inside(&set);
            kept.keep_inside(&Inside::default());
            // Who begins there is told.
            let refused = KeptInFiles::at(&at("theirs/way/switch.json")).unwrap_err().to_string();
            assert!(refused.contains("way is a symbolic link that others"), "{refused}");
            // Nor is one followed at its own name, if it was there from the beginning.
            KeptInFiles::at(&at("theirs/switch.json")).unwrap().keep_config(&config);
            assert_eq!(crate::program::read(&at("theirs/switch.json")).unwrap(), config);
            assert!(fs::symlink_metadata(at("theirs/switch.json")).unwrap().is_file());
            assert_eq!(fs::read(at("victim/switch.json.inside")).unwrap(), b"precious");
            assert_eq!(fs::read_dir(at("victim")).unwrap().count(), 1);
        }
    }

    #[test]
    fn what_a_killed_switch_has_begun_to_write_is_removed_by_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let others =
            ["switch.json", "switch.json.0123.part", "other.json.0123456789abcdef.part", "switch.json.part"];
        let left = ["switch.json.0123456789abcdef.part", "switch.json.inside.0123456789abcdef.part"];
        for name in others.iter().chain(&left) {
            fs::write(at(name), "").unwrap();
        }
        // What cannot be removed keeps nothing else from it.
        let stays = "switch.json.0000000000000000.part";
        fs::create_dir(at(stays)).unwrap();
        KeptInFiles::at(&at("switch.json")).unwrap();
        let mut there: Vec<OsString> =
            fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        there.sort();
        let mut wanted: Vec<OsString> = others.iter().chain([&stays]).map(OsString::from).collect();
        wanted.sort();
        assert_eq!(there, wanted);
    }
}
