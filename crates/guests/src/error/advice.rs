//! What to do about what could not be done with a guest.

use penstock_host::{chain, process::quoted_where_needed, vdpa::VdpaError};
use penstock_plan::ExecuteError;

use super::GuestError;
use crate::{
    containers::{dns::NoResolverFile, ids::Ids},
    vms::{VirshError, apparmor},
};

impl GuestError {
    /// What to do about it, when that is known.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            GuestError::NotPutRight { error, .. } => return error.hint(),
            GuestError::Realtime { source, .. } => source.hint()?.to_owned(),
            GuestError::NoComposition { .. } => {
                "it takes libvirt 8.2 and QEMU 10.2 (Debian 13: qemu-system-x86 from trixie-backports)".to_owned()
            }
            GuestError::Elsewhere { guest, state, of: Some(of), end, .. } if of == state => format!(
                "it was started with this state, where somebody has removed the record of that: `penstock stop MODEL {guest}` ends it where it is \
                 defined there still, and this everywhere: {end}"
            ),
            GuestError::Elsewhere { of, end, .. } => {
                let known = of.as_deref().map(|of| of.parent().filter(|_| of.ends_with("guests")).unwrap_or(of));
                let with = match known {
                    Some(of) => format!("PENSTOCK_STATE={}, which", quoted_where_needed(&of.to_string_lossy())),
                    None => "the PENSTOCK_STATE that".to_owned(),
                };
                format!(
                    "run Penstock with {with} it was started with (sudo does not pass it on); where that directory or what it knew of \
                     the guest is gone, end it: {end}"
                )
            }
            GuestError::NoSystemd { .. } => "run Penstock where systemd is the first process".to_owned(),
            GuestError::NoVdpa { source: VdpaError::Closed(_), .. } => "run Penstock as root".to_owned(),
            GuestError::NoVdpa { .. } => {
                "it takes Linux 5.15 with VDUSE, and virtio_vdpa for containers, vhost_vdpa for VMs (Debian has all three as modules: \
                 modprobe -a vduse virtio_vdpa vhost_vdpa)"
                    .to_owned()
            }
            GuestError::NoVdpaRule { .. } => format!(
                "let them: {}; each VM has the rule from its next start on. Or write `path: switch`",
                apparmor::to_add(apparmor::RULE)
            ),
            GuestError::NoTun { .. } => "load the kernel's driver: modprobe tun".to_owned(),
            GuestError::NoLxc { .. } => "install LXC (Debian: apt-get install lxc)".to_owned(),
            GuestError::Lxc { log, .. } if log.iter().any(|line| line.contains("idmapped mount")) => {
                "the file system of its `root` cannot be mounted with other ids (an overlay cannot, tmpfs can from Linux 6.3 \
                 on): put it on one that can, or give its files to the container's ids (chown -R), which stand in \
                 /var/lib/penstock/container-ids"
                    .to_owned()
            }
            GuestError::NoIds { .. } => {
                "enter one by hand (usermod --add-subuids 1048576-1114111 --add-subgids 1048576-1114111 root), remove the lines \
                 of containers that are gone for good from /var/lib/penstock/container-ids, or write `privileged: on` for \
                 the container"
                    .to_owned()
            }
            GuestError::OthersRoot { path, ids: Ids { user, group }, .. } => {
                format!("give it to this one (chown -R {user}:{group} {}), or use another directory", path.display())
            }
            GuestError::Closed { path, .. } => {
                format!("let others pass through it (chmod o+x {})", path.display())
            }
            GuestError::NoRoot { .. } => "make the directory, or leave `root` out of the model".to_owned(),
            GuestError::NoLimits { what: "pin", why, .. } if why.contains("online") => {
                "bring the others online (/sys/devices/system/cpu/cpuN/online), or pin it to CPUs that are".to_owned()
            }
            GuestError::NoLimits { what, .. } => format!(
                "boot with cgroup v2 alone (systemd.unified_cgroup_hierarchy=1), or leave `{what}` out of the model"
            ),
            GuestError::NoRate { what, .. } => {
                let kernel = match what.as_str() {
                    "ingress_rate" => "sch_tbf, sch_ingress, cls_matchall or cls_u32, act_mirred and ifb",
                    _ => "sch_tbf",
                };
                format!(
                    "it takes the host's programs nsenter (util-linux), tc and ip (iproute2) and the kernel's modules \
                     {kernel}; or leave `{what}` out of the model, and use the VF's own `max_tx_rate` where it has one"
                )
            }
            GuestError::NoRoute { .. } => "it takes the host's programs nsenter (util-linux) and ip (iproute2), and an address of the \
                interface in the gateway's network; IPv6 takes a kernel that has it"
                .to_owned(),
            GuestError::NoLease { interface, .. } => format!(
                "`address: dhcp` of {interface} takes a client and ip inside: udhcpc (Debian: udhcpc or busybox), \
                 dhcpcd (dhcpcd-base) or dhclient (isc-dhcp-client), and iproute2; or write an `address`"
            ),
            GuestError::NoDns { path, why, .. } => format!(
                "Penstock writes nothing into a root of its own, and mounts a file over one that is there: {}; or leave `dns` out of the model and \
                 let the root set its resolver up",
                to_have_a_file(path, why)
            ),
            GuestError::NoDevice { path, .. } => {
                format!("see `ls -lL {path}`, and `ls -l /dev/disk/by-id` for names that survive renumbering")
            }
            GuestError::DeviceInUse { .. } => {
                "give it a disk or partition that the host does not use (`lsblk`), or free this one first: `umount` or `swapoff`; \
                 what the host has made of what is written on it goes with `kpartx -d`, `vgchange -an` or `mdadm --stop`"
                    .to_owned()
            }
            GuestError::NoInterface { function, .. } => {
                format!("see `ls -l /sys/bus/pci/devices/{function}/driver /sys/bus/pci/devices/{function}/net`")
            }
            GuestError::Netlink(error) => error.hint()?.to_owned(),
            GuestError::Libvirt { source: VirshError::Missing, .. } => {
                "install libvirt (Debian: apt-get install libvirt-daemon-system libvirt-clients)".to_owned()
            }
            GuestError::Libvirt { source: VirshError::Silent { .. }, .. } => {
                "see whether its daemon runs: systemctl status libvirtd virtqemud; VMs that run go on without it"
                    .to_owned()
            }
            GuestError::OtherProcessor { .. } => {
                "leave its VMs out of the model: containers run on this processor, too".to_owned()
            }
            GuestError::NoKvm => {
                "switch virtualisation on in the firmware's settings, then `modprobe kvm_intel` or `modprobe kvm_amd`"
                    .to_owned()
            }
            GuestError::NoBuiltin { .. } => {
                "make them with `penstock board image`, or give the guest a kernel or a disk of its own".to_owned()
            }
            GuestError::NoFile { .. } => "put it there, or correct the model's `boot`".to_owned(),
            GuestError::WrongMac { .. } => {
                "apply the model again, which binds the VF anew; and see whether something else sets its address (udev's MACAddressPolicy, NetworkManager)".to_owned()
            }
            GuestError::NoLink { function, .. } => format!(
                "see what its driver says: dmesg | grep {function}; and whether its PF lets it have a link: ip -d link show"
            ),
            GuestError::InUse { by, .. } => format!("stop it first: penstock stop MODEL {by}"),
            GuestError::NoIommu { .. } => "switch VT-d or AMD-Vi on in the firmware's settings, and boot with \
                                           intel_iommu=on (AMD: on by default)"
                .to_owned(),
            GuestError::NotVfio { function, .. } => {
                format!("see `ls -l /sys/bus/pci/devices/{function}/driver`; `penstock apply` binds it")
            }
            GuestError::Held { .. } => "end that program first, or give the guest another VF".to_owned(),
            GuestError::NotViable { .. } => {
                "unbind the others' drivers, put the NIC into a slot with ACS, or use another NIC".to_owned()
            }
            GuestError::NoMemory { .. } => "stop other guests, or give it less `memory`".to_owned(),
            GuestError::NoHugePages { size, wanted, free: Some(_), .. } => format!(
                "reserve them: echo {wanted} >/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages, or more where \
                 others use some; early, before memory is in pieces",
                size.0 / 1024
            ),
            GuestError::NoHugePages { .. } => "see `ls /sys/kernel/mm/hugepages` for the sizes".to_owned(),
            GuestError::NotMade { said } => return hint_for_qemu(said),
            GuestError::Died { guest, .. } => {
                format!("give its functions back with `penstock stop MODEL {guest}`; its whole console: penstock console {guest}")
            }
            _ => return None,
        })
    }

    /// The same for `apply`, which was doing `attempt`.
    pub fn into_carry_error(self, attempt: &str) -> ExecuteError {
        let kind = match &self {
            GuestError::NotPutRight { error, .. } => error,
            other => other,
        };
        match (kind, self.hint()) {
            (
                GuestError::Elsewhere { .. }
                | GuestError::NoLxc { .. }
                | GuestError::NoSystemd { .. }
                | GuestError::NoTun { .. }
                | GuestError::NoVdpa { .. }
                | GuestError::NoVdpaRule { .. }
                | GuestError::NoComposition { .. }
                | GuestError::Lxc { .. }
                | GuestError::NoIds { .. }
                | GuestError::OthersRoot { .. }
                | GuestError::Closed { .. }
                | GuestError::NoRoot { .. }
                | GuestError::NoLimits { .. }
                | GuestError::NoRate { .. }
                | GuestError::NoRoute { .. }
                | GuestError::NoLease { .. }
                | GuestError::NoDns { .. }
                | GuestError::NoDevice { .. }
                | GuestError::DeviceInUse { .. }
                | GuestError::NoInterface { .. }
                | GuestError::Libvirt { source: VirshError::Missing | VirshError::Silent { .. }, .. }
                | GuestError::NoKvm
                | GuestError::OtherProcessor { .. }
                | GuestError::NoBuiltin { .. }
                | GuestError::NoFile { .. }
                | GuestError::NoIommu { .. }
                | GuestError::NotVfio { .. }
                | GuestError::NotViable { .. }
                | GuestError::Held { .. }
                | GuestError::NoMemory { .. }
                | GuestError::NotMade { .. }
                | GuestError::NoHugePages { .. }
                | GuestError::Realtime { .. },
                Some(hint),
            ) => ExecuteError::Missing { what: format!("could not {attempt}: {}", chain(&self)), hint },
            _ => ExecuteError::Failed { attempt: format!("could not {attempt}"), source: Box::new(self) },
        }
    }
}

/// How a root comes to have a file at this path. A command is only told where nothing on the way to the file leads out of the root, and it
/// removes nothing but a link.
fn to_have_a_file(path: &str, why: &NoResolverFile) -> String {
    let path = quoted_where_needed(path);
    match why {
        NoResolverFile::Missing => format!("`touch {path}` makes it"),
        NoResolverFile::Link(_) => format!("`rm {path} && touch {path}` makes it"),
        NoResolverFile::Other | NoResolverFile::Unseen(_) => format!("make {path} a regular file"),
        NoResolverFile::LinkedDirectory { directory, .. } | NoResolverFile::NoDirectory(directory) => {
            let directory = quoted_where_needed(directory);
            format!("make {directory} a directory of its own, with a regular file resolv.conf in it")
        }
    }
}

/// What to do about what QEMU or libvirt said, when that is known.
fn hint_for_qemu(said: &[String]) -> Option<String> {
    let says = |words: &str| said.iter().any(|line| line.contains(words));
    Some(if says("Device or resource busy") || says("is in use by") {
        "another program or VM uses one of its functions: see `fuser -v /dev/vfio/*` and `virsh list`"
            .to_owned()
    } else if says("sriov-pf") {
        "a VM that owns an SR-IOV NIC needs QEMU 10.2 or later: `penstock check MODEL --here` tries it"
            .to_owned()
    } else if says("not viable") {
        "others in a function's IOMMU group are used by the host: `penstock check --here` names them"
            .to_owned()
    } else if says("Cannot allocate memory") || says("cannot set up guest memory") {
        "stop other guests, or give it less `memory`; locked memory and functions need all of it in RAM"
            .to_owned()
    } else if says("failed to resize memfd") && says("Permission denied") {
        // The kernel's log: operation="truncate" name="/".
        format!(
            "AppArmor keeps QEMU from huge pages that a switch shares, which have the name `/` there: {}; or leave out `huge_pages`",
            apparmor::to_add("/ rw,")
        )
    } else if says("Permission denied") {
        "libvirt runs QEMU as another user, who must be able to read every file that the VM boots and every directory \
         on the way to it"
            .to_owned()
    } else {
        return None;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_that_apparmor_refuses_have_advice() {
        let line = "qemu-system-x86_64: failed to resize memfd to 536870912: Permission denied".to_owned();
        let hint = GuestError::NotMade { said: vec![line] }.hint().unwrap();
        assert!(hint.contains("AppArmor") && hint.contains("echo '/ rw,'"), "{hint}");
    }

    #[test]
    fn what_could_not_be_put_right_is_told_of_every_failure() {
        let guest = || "a".parse().unwrap();
        let failed = GuestError::NoDevice { guest: guest(), path: "/dev/x".into(), why: "it is gone".into() };
        let (plain, hint) = (failed.to_string(), failed.hint());
        let failed = failed.then(Vec::new());
        assert_eq!(failed.to_string(), plain);
        let failed = failed.then(vec!["the monitor lives".to_owned(), "eth1 is not back".to_owned()]);
        assert_eq!(failed.to_string(), format!("{plain}; then: the monitor lives; then: eth1 is not back"));
        assert_eq!(failed.hint(), hint);
        assert!(matches!(failed.into_carry_error("start guest a"), ExecuteError::Missing { .. }));
        let log = GuestError::Ended { init: "/bin/x".into(), log: vec!["x: died".into()] };
        assert!(
            log.then(vec!["eth1 is not back".to_owned()])
                .to_string()
                .ends_with("x: died\n  then: eth1 is not back")
        );
    }

    #[test]
    fn a_root_that_cannot_be_mounted_with_other_ids_has_advice() {
        let failed = |line: &str| GuestError::Lxc {
            log: vec!["lxc: Failed to prepare rootfs".to_owned(), line.to_owned()],
            source: penstock_host::Command::new("sh").args(["-c", "exit 1"]).succeed().unwrap_err(),
        };
        // As LXC 6.0.4 said it of a directory on an overlay.
        let known = failed("lxc: Invalid argument - Failed to create detached idmapped mount");
        let ExecuteError::Missing { hint, .. } = known.into_carry_error("start guest own") else {
            panic!("it is known what is missing");
        };
        assert!(hint.contains("cannot be mounted with other ids") && hint.contains("chown"), "{hint}");
        let other = failed("lxc: Failed to initialize LSM").into_carry_error("start guest own");
        assert!(matches!(other, ExecuteError::Failed { .. }), "{other}");
    }
}
