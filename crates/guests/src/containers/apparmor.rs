//! The AppArmor profile of a container: LXC generates it from the container's configuration, and the program
//! `apparmor_parser` loads it before the container starts.

use penstock_host::{Root, files, process};
use penstock_model::{GuestName, Outcome};

use super::confinement;
use crate::state::PREFIX;

/// What a container's programs are confined by on a machine whose kernel has AppArmor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// A profile of its own, which LXC generates.
    Generated,
    /// None, since none can be loaded: why.
    Unconfined(&'static str),
}

impl Profile {
    /// What `lxc.apparmor.profile` is set to.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Generated => "generated",
            Profile::Unconfined(_) => "unconfined",
        }
    }
}

/// The profile for a container; `None` where the kernel has no AppArmor and LXC would only complain.
pub fn of_containers(root: &Root) -> Option<Profile> {
    let enabled = files::read_to_string(root.path("/sys/module/apparmor/parameters/enabled")).ok()?;
    if !enabled.starts_with('Y') {
        return None;
    }
    Some(if !files::exists(root.path("/sys/kernel/security/apparmor/.replace")) {
        Profile::Unconfined("/sys/kernel/security/apparmor/.replace is not there: securityfs is not mounted")
    } else if process::find("apparmor_parser").is_none() {
        Profile::Unconfined("the program apparmor_parser is not installed")
    } else {
        Profile::Generated
    })
}

/// Why containers that are started now run without a profile, although the kernel has AppArmor; `None` where they get one, and
/// where no kernel looks at it.
pub fn why_unconfined(root: &Root) -> Option<&'static str> {
    match of_containers(root)? {
        Profile::Generated => None,
        Profile::Unconfined(why) => Some(why),
    }
}

/// Rules for what else of `/proc` is mounted over, where LXC's own profile leaves off: they hold when a container with
/// CAP_SYS_ADMIN takes those mounts away.
pub fn rules() -> impl Iterator<Item = String> {
    let below = |path: &str| path.strip_prefix("proc/").unwrap_or(path).to_owned();
    let directories = confinement::EMPTY.map(|path| format!("deny @{{PROC}}/{}/** wklx,", below(path)));
    let files = confinement::NOTHING.map(|path| format!("deny @{{PROC}}/{} rwklx,", below(path)));
    directories.into_iter().chain(files)
}

/// Under which profile the container runs whose first process is `pid`: what is seen on the host and how good that is;
/// `None` where this machine has no AppArmor. Inside, `/proc/self/attr/current` says `unconfined`: LXC gives a container a
/// namespace of profiles, which is stacked on this one.
pub fn seen(root: &Root, guest: &GuestName, pid: &Result<u32, String>) -> Option<(String, Outcome)> {
    if let Profile::Unconfined(why) = of_containers(root)? {
        return Some((format!("none: {why}"), Outcome::Unsupported));
    }
    let label = pid.clone().and_then(|pid| {
        let own = [format!("/proc/{pid}/attr/apparmor/current"), format!("/proc/{pid}/attr/current")];
        let text = own.iter().find_map(|path| files::read_to_string(root.path(path)).ok());
        text.ok_or_else(|| "the kernel does not say".to_owned())
    });
    Some(match label {
        Err(why) => (why, Outcome::Unknown),
        Ok(label) => {
            let label = label.trim_matches(['\0', '\n', ' ']);
            let outcome = if is_own(label, guest) { Outcome::Pass } else { Outcome::Fail };
            (label.to_owned(), outcome)
        }
    })
}

/// Whether a label of `/proc/PID/attr/current` (`NAME (MODE)`) is that of this container's profile, and in force. LXC's name
/// for it is `lxc-CONTAINER_<PATH>`.
fn is_own(label: &str, guest: &GuestName) -> bool {
    label.starts_with(&format!("lxc-{PREFIX}{guest}_<")) && label.ends_with(" (enforce)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_containers_own_profile_in_force_counts() {
        let guest: GuestName = "box".parse().unwrap();
        for own in [
            "lxc-penstock-box_</run/penstock/guests> (enforce)",
            "lxc-penstock-box_</run/x>//&:lxc-penstock-box_<-run-x>:unconfined (enforce)",
        ] {
            assert!(is_own(own, &guest), "{own}");
        }
        for other in [
            "unconfined",
            "lxc-penstock-box_</run/penstock/guests> (complain)",
            "lxc-penstock-box2_</run/penstock/guests> (enforce)",
            "/usr/bin/lxc-start (enforce)",
        ] {
            assert!(!is_own(other, &guest), "{other}");
        }
    }

    #[test]
    fn a_profile_is_asked_for_only_where_it_can_be_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert_eq!((of_containers(&root), why_unconfined(&root)), (None, None));
        let parameters = directory.path().join("sys/module/apparmor/parameters");
        files::create_dir_all(&parameters).unwrap();
        files::write_atomic(parameters.join("enabled"), "N\n").unwrap();
        assert_eq!(of_containers(&root), None);
        files::write_atomic(parameters.join("enabled"), "Y\n").unwrap();
        let why = why_unconfined(&root).expect("no file takes profiles");
        assert!(why.contains("securityfs is not mounted"), "{why}");
    }
}
