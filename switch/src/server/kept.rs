//! What outlives the process: the host's configuration and, beside it, what came from inside.

use std::{
    ffi::OsString,
    fs::{self, File},
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, fchown},
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::inside::Inside;

/// Has something kept in the file `path`, or where a link of that name leads, also when the machine loses its power.
pub(super) fn keep(path: &Path, what: &impl Serialize) -> io::Result<()> {
    write(path, what, File::sync_all)
}

/// Where what was set from inside is kept, beside the host's configuration.
pub(super) fn inside_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".inside");
    name.into()
}

/// Writes what came from inside beside the host's configuration in `path`. Nobody waits for the disk: a guest can have that done as often
/// as it likes, and what it has asked for lapses with the machine's power anyway.
pub(super) fn keep_inside(path: &Path, inside: &Inside) {
    let apart = inside_of(path);
    let written = match inside.is_empty() {
        true => fs::remove_file(&apart).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        }),
        false => write(&apart, inside, |_| Ok(())),
    };
    let _ = written.inspect_err(|error| complain(&apart, error));
}

/// It holds all the same: whoever sets something is not to take it for refused.
pub(super) fn complain(path: &Path, error: &io::Error) {
    eprintln!("penstock-switch: what was set could not be written to {}: {error}", path.display());
}

/// Writes something whole or not at all, under a name that nobody can foresee until it is: where others may write to the
/// directory, none of them can have put a link or a file of his there. `settle` comes before it has its own name.
fn write(path: &Path, what: &impl Serialize, settle: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    // A link stays one.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut part = path.clone().into_os_string();
    part.push(format!(".{:016x}.part", RandomState::new().build_hasher().finish()));
    let written = || {
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&part)?;
        // Whose it was, and who may read it, as before; a new one is its owner's alone.
        if let Ok(before) = fs::metadata(&path) {
            let _ = fchown(&file, Some(before.uid()), Some(before.gid()));
            file.set_permissions(before.permissions())?;
        }
        file.write_all(&serde_json::to_vec_pretty(what)?)?;
        settle(&file)?;
        fs::rename(&part, &path)
    };
    written().inspect_err(|_| {
        let _ = fs::remove_file(&part);
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::config::Config;

    #[test]
    fn what_is_kept_stays_whose_it_was_and_where_a_link_leads() {
        let directory = tempfile::tempdir().unwrap();
        let [file, link] = ["switch.json", "link"].map(|name| directory.path().join(name));
        let config = Config { version: 1, ..Config::default() };
        keep(&file, &config).unwrap();
        let mode = || fs::metadata(&file).unwrap().mode() & 0o7777;
        assert_eq!(mode(), 0o600, "a new one is nobody else's to read");
        for wanted in [0o640, 0o644] {
            fs::set_permissions(&file, fs::Permissions::from_mode(wanted)).unwrap();
            keep(&file, &config).unwrap();
            assert_eq!(mode(), wanted);
        }
        symlink(&file, &link).unwrap();
        keep(&link, &Config { loopback: true, ..config }).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(crate::program::read(&file).unwrap().loopback);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "nothing is left beside them");
    }
}
