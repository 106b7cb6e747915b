//! Directories into which `make test` has unpacked Debian packages, for tests that run what is not installed
//! (scripts/unpack-packages, scripts/unpack-of-boards).

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::needs::Lack;

/// containerd, its command, runc, and the plugins of the CNI project.
pub const CONTAINERD: &str = "PENSTOCK_CONTAINERD_TREE";
/// Incus, with what of the release that boards run they have not.
pub const INCUS: &str = "PENSTOCK_INCUS_TREE";
/// GRUB's own tools.
pub const GRUB: &str = "PENSTOCK_GRUB_TREE";
/// The driver of libvirt for networks, which boards have not.
pub const LIBVIRT: &str = "PENSTOCK_LIBVIRT_TREE";
/// netplan, with what of the release that boards run they have not.
pub const NETPLAN: &str = "PENSTOCK_NETPLAN_TREE";
/// Open vSwitch, with the libraries that it needs.
pub const OPEN_VSWITCH: &str = "PENSTOCK_OPENVSWITCH_TREE";
/// podman, conmon, netavark, and the libraries of these that boards have not.
pub const PODMAN: &str = "PENSTOCK_PODMAN_TREE";
/// TuneD, of which no test needs more than what reads profiles.
pub const TUNED: &str = "PENSTOCK_TUNED_TREE";
/// `virsh` with libvirt's test driver, libvirt's schemas and `xmllint`, with the libraries that they need.
pub const VIRSH: &str = "PENSTOCK_VIRSH_TREE";

/// The directory that an environment variable names; an empty path where it is not set.
pub fn tree(variable: &str) -> PathBuf {
    env::var_os(variable).map(PathBuf::from).unwrap_or_default()
}

/// Why one of these files of a tree cannot be used, if so. That it could not be downloaded is nothing to fail for.
pub fn lacking(variable: &str, files: &[&str]) -> Option<Lack> {
    let tree = tree(variable);
    let missing = files.iter().find(|file| !tree.join(file).exists())?;
    Some(why(variable, &tree, missing))
}

/// Why a file of a tree is missing.
pub fn why(variable: &str, tree: &Path, missing: &str) -> Lack {
    let mut failed = tree.as_os_str().to_owned();
    failed.push(".failed");
    match fs::read_to_string(failed) {
        Ok(why) => Lack::Machine(format!("there is no {missing}: {}", why.trim())),
        Err(_) => Lack::Installable(format!(
            "there is no {missing} in the directory that {variable} names: `make test` unpacks it"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_downloaded_is_no_failure_and_what_was_not_asked_for_is_one() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("grub");
        assert!(matches!(why(GRUB, &tree, "usr/sbin/update-grub"), Lack::Installable(_)));
        fs::write(directory.path().join("grub.failed"), "grub2-common were not unpacked: no route to host\n")
            .unwrap();
        let Lack::Machine(said) = why(GRUB, &tree, "usr/sbin/update-grub") else { panic!("it fails") };
        assert_eq!(
            said,
            "there is no usr/sbin/update-grub: grub2-common were not unpacked: no route to host"
        );
    }
}
