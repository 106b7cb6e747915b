//! Files of Debian packages of the board's release, for what is put into boards beside their image.

use std::{path::Path, time::Duration};

use penstock_host::{Command, ProcessError, debian, process};

use crate::{error::BoardError, image::read_failure, recipe, rootless};

/// How long fetching them may take.
const TIMEOUT: Duration = Duration::from_secs(900);

/// Whether [`unpack`] can be done here by this user; takes a moment.
///
/// # Errors
///
/// [`BoardError::Lacking`] with all that is not there, [`BoardError::Process`] when that could not be found out.
pub fn check() -> Result<(), BoardError> {
    rootless::check()
}

/// Fetches packages of the board's release with all that they depend on, unpacks them without installing them, and runs the shell script
/// `hook` on the tree: `$1` is the tree's directory there. What the script puts into `/out` of the tree is then in `out` of the directory
/// `work`, which must be there. The mirror is the one that the board image comes from.
///
/// # Errors
///
/// [`BoardError::Lacking`] or [`BoardError::Missing`] when this user can unpack none, [`BoardError::NoSpace`], [`BoardError::Download`] or
/// [`BoardError::Build`] when it fails, [`BoardError::Interrupted`].
pub fn unpack(packages: &[&str], hook: &str, work: &Path) -> Result<(), BoardError> {
    rootless::check()?;
    let mut command = Command::new("mmdebstrap")
        .env("LC_ALL", "C.UTF-8")
        .arg(if process::is_root() { "--mode=root" } else { "--mode=unshare" })
        .args(["--variant=extract", "--architectures=amd64", "--format=null"])
        .arg("--aptopt=Apt::Install-Recommends \"false\"")
        .arg("--aptopt=Acquire::Languages \"none\"")
        .arg("--aptopt=Acquire::Retries \"3\"")
        .arg(format!("--include={}", packages.join(",")))
        .arg(format!("--extract-hook={hook}"))
        .arg(format!("--extract-hook=copy-out /out {}", process::quoted(&work.to_string_lossy())))
        .arg(recipe::SUITE)
        .arg("-");
    if let Some(mirror) = debian::mirror() {
        command = command.arg(mirror);
    }
    match command.deadline(TIMEOUT).farewell(rootless::FAREWELL).succeed() {
        Ok(_) => Ok(()),
        Err(ProcessError::Failed { errors, .. }) => Err(read_failure(&errors)),
        Err(ProcessError::Interrupted { .. }) => {
            Err(BoardError::Interrupted { doing: "fetching packages for the board" })
        }
        Err(error) => Err(error.into()),
    }
}
