//! Name servers of containers: the file that stands at `/etc/resolv.conf` inside.
//!
//! With the default root it is copied there, in the place of the host's. Into a root of its own nothing is written: the file is mounted over
//! the one that is there, read-only, and gone when the container is.

use penstock_host::files;
use penstock_model::dns::RESOLV_CONF;
use penstock_plan::action::GuestDefinition;

use crate::error::GuestError;

/// What the file is called in the guest's directory.
pub const FILE: &str = "resolv.conf";

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
    let etc = format!("{root}/etc");
    let path = format!("{root}{RESOLV_CONF}");
    let why = if let Ok(to) = files::read_link(&etc) {
        format!("{etc} is a symbolic link to {}", to.display())
    } else if let Ok(to) = files::read_link(&path) {
        format!("it is a symbolic link to {}", to.display())
    } else if files::exists(format!("{path}/.")) {
        "it is a directory".to_owned()
    } else if !files::exists(&path) {
        "there is no such file".to_owned()
    } else {
        return Ok(());
    };
    Err(GuestError::NoDns { guest: definition.guest.clone(), path, why })
}
