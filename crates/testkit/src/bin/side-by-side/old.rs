//! Removes test programs of earlier builds. Cargo never does, each holds all that it is linked with, and a build after a change of
//! dependencies leaves some 3 GB: they fill a disk within days.

use std::{
    collections::HashSet,
    fs::{self, Metadata},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    time::{Duration, SystemTime},
};

use penstock_testkit::programs::Program;

/// Programs younger than this may be those of a build of one package, which has others.
const OLD: Duration = Duration::from_secs(24 * 60 * 60);

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// How many programs.
    pub programs: usize,
    /// How much room they took, in bytes.
    pub bytes: u64,
}

/// Removes what is beside these programs, is none of them, and is [`OLD`]. One that cannot be looked at or removed stays.
pub fn remove(programs: &[Program], now: SystemTime) -> Removed {
    let current: HashSet<&Path> = programs.iter().map(|program| program.executable.as_path()).collect();
    let directories: HashSet<&Path> = current.iter().filter_map(|executable| executable.parent()).collect();
    let mut removed = Removed::default();
    for directory in directories {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(metadata) = entry.metadata() else { continue };
            if !current.contains(path.as_path())
                && is_old_program(&path, &metadata, now)
                && take(&path).is_ok()
            {
                removed.programs += 1;
                removed.bytes += metadata.blocks() * 512;
            }
        }
    }
    removed
}

/// Whether a file is a program with a hash behind its name, that nothing else links to, and that was not built lately. What a package's
/// binary is called has a link without the hash.
fn is_old_program(path: &Path, metadata: &Metadata, now: SystemTime) -> bool {
    let hash =
        path.file_name().and_then(|name| name.to_str()).and_then(|name| Some(name.rsplit_once('-')?.1));
    metadata.is_file()
        && metadata.nlink() == 1
        && metadata.permissions().mode() & 0o100 != 0
        && hash.is_some_and(|hash| hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
        && metadata.modified().is_ok_and(|built| now.duration_since(built).is_ok_and(|age| age > OLD))
}

/// Removes a program with its list of sources.
fn take(path: &Path) -> io::Result<()> {
    fs::remove_file(path)?;
    match fs::remove_file(path.with_extension("d")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_programs_go_and_nothing_else_does() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, mode: u32| {
            let path = directory.path().join(name);
            fs::write(&path, "program").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let current = file("golden-0123456789abcdef", 0o755);
        let old = file("golden-fedcba9876543210", 0o755);
        let list = file("golden-fedcba9876543210.d", 0o644);
        let kept = [
            file("libgolden-0123456789abcdef.rlib", 0o644),
            file("libmacros-0123456789abcdef.so", 0o755),
            file("golden", 0o755),
            file("notes-0123456789abcdef", 0o644),
        ];
        let linked = file("penstock-0123456789abcdef", 0o755);
        fs::hard_link(&linked, directory.path().join("penstock")).unwrap();
        let program = Program {
            package: "a".to_owned(),
            name: "golden".to_owned(),
            source: "tests/golden.rs".into(),
            directory: directory.path().to_owned(),
            executable: current.clone(),
        };
        let programs = std::slice::from_ref(&program);
        assert_eq!(remove(programs, SystemTime::now()).programs, 0, "they are new");
        let removed = remove(programs, SystemTime::now() + 2 * OLD);
        assert!(removed.programs == 1 && removed.bytes > 0, "{removed:?}");
        assert!(!old.exists() && !list.exists());
        assert!(kept.iter().chain([&current, &linked]).all(|file| file.exists()));
    }
}
