//! Name servers of containers: the file that stands at `/etc/resolv.conf` inside.
//!
//! With the default root it is copied there, in the place of the host's. Into a root of its own nothing is written: the file is mounted over
//! the one that is there, read-only, and gone when the container is.

use std::{fmt, fs, io, path::PathBuf};

use penstock_model::dns::RESOLV_CONF;
use penstock_plan::action::GuestDefinition;

use crate::error::GuestError;

/// What the file is called in the guest's directory.
pub const FILE: &str = "resolv.conf";

/// Why nothing can be mounted over the file of a root of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoResolverFile {
    /// There is none, in a directory that is one.
    Missing,
    /// It is a symbolic link to this, in a directory that is one.
    Link(PathBuf),
    /// Something else that is no file: LXC would wait for whoever writes into a pipe.
    Other,
    /// The root's directory of it is a symbolic link to this.
    LinkedDirectory {
        /// The directory.
        directory: String,
        /// Where it leads.
        to: PathBuf,
    },
    /// The root has no such directory.
    NoDirectory(String),
    /// It could not be looked at.
    Unseen(String),
}

impl fmt::Display for NoResolverFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoResolverFile::Missing => f.write_str("there is no such file"),
            NoResolverFile::Link(to) => write!(f, "it is a symbolic link to {}", to.display()),
            NoResolverFile::Other => f.write_str("it is no regular file"),
            NoResolverFile::LinkedDirectory { directory, to } => {
                write!(f, "{directory} is a symbolic link to {}", to.display())
            }
            NoResolverFile::NoDirectory(directory) => write!(f, "{directory} is no directory"),
            NoResolverFile::Unseen(why) => f.write_str(why),
        }
    }
}

/// The line of `fstab`(5) that mounts it over that of a root of its own. `directory` is the guest's, and needs no quoting.
pub fn entry(directory: &str) -> String {
    format!("{directory}/{FILE} {} none bind,ro 0 0", &RESOLV_CONF[1..])
}

/// Refuses a root of its own in which there is no file to be mounted over, before anything is started: LXC follows no symbolic links
/// (`open_without_symlink`), and where they lead inside is known inside alone.
///
/// # Errors
///
/// [`GuestError::NoDns`] with what is there instead.
pub fn check(definition: &GuestDefinition) -> Result<(), GuestError> {
    let (Some(root), Some(_)) = (&definition.root, &definition.dns) else { return Ok(()) };
    let root = root.trim_end_matches('/');
    match obstacle(root) {
        None => Ok(()),
        Some(why) => Err(GuestError::NoDns {
            guest: definition.guest.clone(),
            path: format!("{root}{RESOLV_CONF}"),
            why,
        }),
    }
}

/// What is in the way. Whoever is root in the container may have made any of it.
fn obstacle(root: &str) -> Option<NoResolverFile> {
    let unseen = |error: io::Error| NoResolverFile::Unseen(format!("it cannot be looked at: {error}"));
    let directory = format!("{root}/etc");
    match fs::symlink_metadata(&directory) {
        Ok(data) if data.is_dir() => {}
        Ok(data) if data.is_symlink() => {
            return Some(match fs::read_link(&directory) {
                Ok(to) => NoResolverFile::LinkedDirectory { directory, to },
                Err(error) => unseen(error),
            });
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Some(unseen(error)),
        _ => return Some(NoResolverFile::NoDirectory(directory)),
    }
    let path = format!("{root}{RESOLV_CONF}");
    match fs::symlink_metadata(&path) {
        Ok(data) if data.is_file() => None,
        Ok(data) if data.is_symlink() => Some(fs::read_link(&path).map_or_else(unseen, NoResolverFile::Link)),
        Ok(_) => Some(NoResolverFile::Other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(NoResolverFile::Missing),
        Err(error) => Some(unseen(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, path::Path};

    use nix::{sys::stat::Mode, unistd::mkfifo};
    use penstock_host::files;
    use penstock_model::Dns;

    use super::*;

    /// What a start says of a root, and what it advises.
    fn said(root: &Path) -> Option<(String, String)> {
        let definition = GuestDefinition {
            root: Some(root.to_str().unwrap().to_owned()),
            dns: Some(Dns { servers: vec!["192.0.2.53".parse().unwrap()], search: Vec::new() }),
            ..GuestDefinition::bare("box".parse().unwrap())
        };
        let error = check(&definition).err()?;
        Some((error.to_string(), error.hint().unwrap()))
    }

    /// A command is advised only where it changes nothing but the root's own file: the name of the root, and all in it, may be hostile.
    #[test]
    fn each_obstacle_has_advice_that_harms_nobody() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().join("my root");
        let (etc, file) = (root.join("etc"), root.join("etc/resolv.conf"));
        let quoted = format!("'{}'", file.display());
        let outside = scratch.path().join("outside");
        files::create_dir_all(&outside).unwrap();
        files::create_dir_all(&root).unwrap();
        files::write_atomic(outside.join("resolv.conf"), "the host's").unwrap();

        let harmless = |said: Option<(String, String)>, why: &str| {
            let (error, hint) = said.unwrap();
            assert!(error.contains(why), "{error}");
            assert!(!hint.contains("rm ") && !hint.contains("touch"), "{hint}");
            hint
        };
        let hint = harmless(said(&root), "my root/etc is no directory");
        assert!(hint.contains(&format!("make '{}' a directory", etc.display())), "{hint}");
        files::link(&outside, &etc).unwrap();
        let hint = harmless(said(&root), &format!("my root/etc is a symbolic link to {}", outside.display()));
        assert!(hint.contains(&format!("make '{}' a directory", etc.display())), "{hint}");
        files::remove_file(&etc).unwrap();
        files::write_atomic(&etc, "").unwrap();
        harmless(said(&root), "my root/etc is no directory");
        files::remove_file(&etc).unwrap();
        files::create_dir_all(&etc).unwrap();

        let (error, hint) = said(&root).unwrap();
        assert!(
            error.contains("there is no such file") && hint.contains(&format!("`touch {quoted}`")),
            "{error}: {hint}"
        );
        assert!(!hint.contains("rm "), "{hint}");
        files::link(outside.join("resolv.conf"), &file).unwrap();
        let (error, hint) = said(&root).unwrap();
        assert!(error.contains("it is a symbolic link to"), "{error}");
        assert!(hint.contains(&format!("`rm {quoted} && touch {quoted}`")), "{hint}");
        files::remove_file(&file).unwrap();

        mkfifo(&file, Mode::from_bits_truncate(0o644)).unwrap();
        harmless(said(&root), "it is no regular file");
        files::remove_file(&file).unwrap();
        drop(UnixListener::bind(&file).unwrap());
        harmless(said(&root), "it is no regular file");
        files::remove_file(&file).unwrap();
        files::create_dir_all(&file).unwrap();
        harmless(said(&root), "it is no regular file");
        files::remove_directory(&file).unwrap();

        files::write_atomic(&file, "nameserver 192.0.2.1\n").unwrap();
        assert_eq!(said(&root), None);
        assert_eq!(files::read(outside.join("resolv.conf")).unwrap(), b"the host's");
    }
}
