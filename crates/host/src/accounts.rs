//! Names of this machine's own users and groups (passwd(5), group(5)).
//!
//! The files are read rather than the C library asked: a static binary cannot load the library's modules for networked
//! accounts, and the accounts that matter here are local ones.

mod lock;

pub use self::lock::{AccountsLock, AccountsLockError};
use crate::{files, root::Root};

/// The number of a group.
pub fn group(root: &Root, name: &str) -> Option<u32> {
    let text = files::read_to_string(root.path("/etc/group")).ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
    })
}

/// The name of a user.
pub fn user(root: &Root, number: u32) -> Option<String> {
    let text = files::read_to_string(root.path("/etc/passwd")).ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then(|| name.to_owned())
    })
}

/// The user of whom a process is by its `/proc/ID/status`, in words to be added to what it is called: `, user mara`, `, user 1001` of one
/// without a name here, and nothing of root's own.
pub(crate) fn of_process(root: &Root, status: &str) -> String {
    let real = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next());
    match real.and_then(|number| number.parse().ok()) {
        None | Some(0) => String::new(),
        Some(number) => {
            format!(", user {}", user(root, number).unwrap_or_else(|| number.to_string()))
        }
    }
}

/// The name of the user that this process acts as, or the number of one without a name.
pub fn this_user() -> String {
    let number = nix::unistd::geteuid().as_raw();
    user(&Root::system(), number).unwrap_or_else(|| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_name_and_number() {
        let directory = tempfile::tempdir().unwrap();
        files::create_dir_all(directory.path().join("etc")).unwrap();
        let root = Root::at(directory.path());
        assert_eq!(group(&root, "penstock-console"), None);
        let groups = "root:x:0:\n# torn\npenstock-consoles:x:7:\npenstock-console:x:998:console\nbad:x:no:\n";
        files::write_atomic(root.path("/etc/group"), groups).unwrap();
        files::write_atomic(root.path("/etc/passwd"), "root:x:0:0::/root:/bin/sh\nconsole:*:997:998::/:\n")
            .unwrap();
        assert_eq!(group(&root, "penstock-console"), Some(998));
        assert_eq!(group(&root, "bad"), None);
        assert_eq!(user(&root, 997).as_deref(), Some("console"));
        assert_eq!(user(&root, 998), None);
    }
}
