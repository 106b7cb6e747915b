//! What keeps a container's root from being the host's, as LXC is told it.
//!
//! Four fences stand one behind the other. A **user namespace** (unless the model says `privileged: on`) makes its root an
//! ordinary account of the host, so that capabilities count only for what belongs to the container. What **capabilities** it
//! keeps even there is a list. A **system call filter** refuses what concerns the whole machine. Files of `/proc` through
//! which hardware is reached are **mounted over**. Each holds without the others, and the last three are all that a
//! privileged container has.

use std::{collections::BTreeMap, fmt::Write};

use crate::containers::{
    dns,
    ids::{COUNT, Ids},
};

/// What the system call filter is called in the guest's directory.
pub const FILTER: &str = "seccomp";

/// What every container is refused, in LXC's language (`lxc.container.conf(5)`, version 2).
///
/// The first five are those of LXC's own `common.seccomp`; the others act on the whole machine, too, and capabilities
/// alone refuse them otherwise. Forced unmounts are refused.
const REFUSED: &str = "\
2
denylist
reject_force_umount
[all]
kexec_load errno 1
open_by_handle_at errno 1
init_module errno 1
finit_module errno 1
delete_module errno 1
kexec_file_load errno 1
iopl errno 1
ioperm errno 1
swapon errno 1
swapoff errno 1
acct errno 1
settimeofday errno 1
clock_settime errno 1
";

/// No user namespaces inside, in which any program has all capabilities and with them much more of the kernel in reach:
/// `CLONE_NEWUSER` (0x10000000), as Docker's default profile has it. A filter cannot see what `clone3` is asked for; without
/// it programs call `clone` (`ENOSYS`).
const NO_NAMESPACES: &str = "\
clone errno 1 [0,268435456,SCMP_CMP_MASKED_EQ,268435456]
unshare errno 1 [0,268435456,SCMP_CMP_MASKED_EQ,268435456]
clone3 errno 38
";

/// The system call filter of a container.
pub fn filter(privileged: bool, own_root: bool) -> String {
    match makes_namespaces(privileged, own_root) {
        true => REFUSED.to_owned(),
        false => format!("{REFUSED}{NO_NAMESPACES}"),
    }
}

/// Whether programs inside may make user namespaces: only where root inside has CAP_SYS_ADMIN over the host as it is.
pub fn makes_namespaces(privileged: bool, own_root: bool) -> bool {
    privileged && own_root
}

/// The capabilities of a container with the default root, as `lxc.cap.keep` names them, and their numbers
/// (`include/uapi/linux/capability.h`). Interfaces, raw sockets, locked memory and priorities are what containers with VFs
/// and their measurements need; none of them mounts, loads, traces or reaches hardware.
pub const KEPT: [(&str, u8); 17] = [
    ("chown", 0),
    ("dac_override", 1),
    ("fowner", 3),
    ("fsetid", 4),
    ("kill", 5),
    ("setgid", 6),
    ("setuid", 7),
    ("setpcap", 8),
    ("net_bind_service", 10),
    ("net_broadcast", 11),
    ("net_admin", 12),
    ("net_raw", 13),
    ("ipc_lock", 14),
    ("ipc_owner", 15),
    ("sys_chroot", 18),
    ("sys_nice", 23),
    ("sys_resource", 24),
];

/// What the root of a container with a root directory of its own may never do: open files by handle, load modules, reach
/// I/O ports and raw memory, restart or replace the kernel, set the clock, make device nodes, change mandatory access
/// control, read the kernel's log. An init of its own, systemd above all, needs most of the others.
pub const NEVER: [(&str, u8); 9] = [
    ("dac_read_search", 2),
    ("sys_module", 16),
    ("sys_rawio", 17),
    ("sys_boot", 22),
    ("sys_time", 25),
    ("mknod", 27),
    ("mac_override", 32),
    ("mac_admin", 33),
    ("syslog", 34),
];

/// Directories of `/proc` through which hardware and interrupts are reached: empty and read-only inside.
pub const EMPTY: [&str; 5] = ["proc/acpi", "proc/bus", "proc/driver", "proc/irq", "proc/scsi"];

/// Files of `/proc` that show or change the whole machine: `/dev/null` inside.
pub const NOTHING: [&str; 6] =
    ["proc/kcore", "proc/keys", "proc/kmsg", "proc/latency_stats", "proc/sched_debug", "proc/timer_list"];

/// Resource limits that stand for `CAP_SYS_NICE` and `CAP_IPC_LOCK`, which do not count in a user namespace: real-time
/// priorities, niceness and locked memory, as a container's root has always had them.
const LIMITS: [(&str, &str); 3] = [("rtprio", "99"), ("nice", "40"), ("memlock", "unlimited")];

/// Gives each key of LXC's configuration that confines a container to `set`. `ids`: the host's that stand for its own, `None`
/// for a privileged one. `raise_limits`: whoever starts it may give it [`LIMITS`]. `own_root`: it has a root directory of its own.
pub fn keys(
    directory: &str,
    ids: Option<Ids>,
    raise_limits: bool,
    own_root: bool,
    mut set: impl FnMut(&str, &str),
) {
    if let Some(ids) = ids {
        set("lxc.idmap", &format!("u 0 {} {COUNT}", ids.user));
        set("lxc.idmap", &format!("g 0 {} {COUNT}", ids.group));
        for (limit, value) in LIMITS.iter().filter(|_| raise_limits) {
            set(&format!("lxc.prlimit.{limit}"), value);
        }
    }
    if own_root {
        set("lxc.cap.drop", &names(&NEVER));
    } else {
        set("lxc.cap.keep", &names(&KEPT));
    }
    // A privileged container with an init of its own is the one that may need programs with more rights than it has.
    if gains_nothing(ids.is_none(), own_root) {
        set("lxc.no_new_privs", "1");
    }
    set("lxc.seccomp.profile", &format!("{directory}/{FILTER}"));
    // After `/proc` itself, which `lxc.mount.auto` mounts, and only where this kernel has them.
    for path in EMPTY {
        set(
            "lxc.mount.entry",
            &format!("tmpfs {path} tmpfs ro,nosuid,nodev,noexec,mode=555,size=4k,optional 0 0"),
        );
    }
    for path in NOTHING {
        set("lxc.mount.entry", &format!("/dev/null {path} none bind,ro,optional 0 0"));
    }
}

/// Whether no program inside may have more rights than who runs it (`no_new_privs`).
pub fn gains_nothing(privileged: bool, own_root: bool) -> bool {
    !(privileged && own_root)
}

fn names(capabilities: &[(&str, u8)]) -> String {
    let names: Vec<&str> = capabilities.iter().map(|(name, _)| *name).collect();
    names.join(" ")
}

/// The capabilities that a container may have at the most, as the mask of `/proc/PID/status`.
pub fn most_capabilities(own_root: bool) -> u64 {
    let mask = |capabilities: &[(&str, u8)]| capabilities.iter().fold(0, |mask, (_, bit)| mask | 1 << bit);
    if own_root { !mask(&NEVER) } else { mask(&KEPT) }
}

/// What the script that makes the default root is called in the guest's directory.
pub const ROOT_SCRIPT: &str = "root.sh";

/// Directories with programs and libraries, which are mounted read-only. A symbolic link (`/bin` on most machines) stays one.
const PROGRAMS: [&str; 9] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt", "nix"];

/// Files of `/etc` that programs and libraries want, and which everybody may read. They are copied.
const FILES: [&str; 28] = [
    "bash.bashrc",
    "bindresvport.blacklist",
    "debian_version",
    "ethertypes",
    "gai.conf",
    "host.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "libaudit.conf",
    "locale.alias",
    "locale.conf",
    "localtime",
    "login.defs",
    "mime.types",
    "netconfig",
    "networks",
    "nsswitch.conf",
    "os-release",
    "pki/tls/openssl.cnf",
    "profile",
    "protocols",
    "resolv.conf",
    "rpc",
    "services",
    "shells",
    "ssl/openssl.cnf",
    "timezone",
];

/// Directories of `/etc` of the same kind: certificates without their keys, alternatives, the linker's.
const DIRECTORIES: [&str; 10] = [
    "alternatives",
    "crypto-policies",
    "iproute2",
    "ld.so.conf.d",
    "libibverbs.d",
    "pki/ca-trust",
    "pki/tls/certs",
    "skel",
    "ssl/certs",
    "terminfo",
];

/// Paths by the directory that they are in, in order; that of a bare name is empty.
fn by_directory<'a>(paths: &[&'a str]) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for path in paths {
        let (within, name) = path.rsplit_once('/').unwrap_or(("", path));
        all.entry(within).or_default().push(name);
    }
    all
}

/// The script that makes the default root at `{directory}/root`, of which `size` may be written. LXC runs it in the
/// container's own mount namespace and as its own root, so that all of it is gone when the container is, however it ends. `dns`: it
/// has a `resolv.conf` of its own there, in the place of the host's.
///
/// What is not named here does not exist inside: no accounts and keys of the host, no `/var`, `/root`, `/home` and `/srv`.
pub fn root_script(directory: &str, guest: &str, size: &str, dns: bool) -> String {
    let mut text = format!(
        "#!/bin/sh\n\
         # The root of container {guest}: the host's programs and libraries, and nothing else of it.\n\
         set -eu\n\
         PATH=/usr/sbin:/usr/bin:/sbin:/bin\n\
         umask 022\n\
         mount -t tmpfs -o nosuid,nodev,mode=755,size={size} penstock {directory}/root\n\
         cd {directory}/root\n\
         mkdir dev etc home media mnt proc root run srv sys tmp var var/cache var/lib var/log var/tmp\n\
         chmod 700 root\n\
         chmod 1777 tmp var/tmp\n\
         ln -s ../run var/run\n\
         ln -s ../run/lock var/lock\n"
    );
    // Writing to a `String` cannot fail.
    let _ = writeln!(
        text,
        "for name in {}; do\n\
         \x20   if [ -L \"/$name\" ]; then\n\
         \x20       cp -P \"/$name\" \"$name\"\n\
         \x20   elif [ -d \"/$name\" ]; then\n\
         \x20       mkdir \"$name\"\n\
         \x20       mount --rbind \"/$name\" \"$name\"\n\
         \x20   fi\n\
         done",
        PROGRAMS.join(" ")
    );
    // A file system of its own below /usr stays writable when only what lies over it is mounted read-only.
    let _ = writeln!(
        text,
        "here=$(pwd -P)\n\
         while read -r _ _ _ _ at _; do\n\
         \x20   case $at in\n\
         \x20   \"$here\"/*) mount -o remount,bind,ro,nosuid,nodev \"$(printf '%b' \"$at\")\" ;;\n\
         \x20   esac\n\
         done </proc/self/mountinfo"
    );
    // What its root cannot read is left out: it is not for everybody. One `cp` a directory: a process for each file was most of the
    // time that a container took to start.
    for (paths, is, copy) in [(FILES.as_slice(), "-f", "cp -L"), (DIRECTORIES.as_slice(), "-d", "cp -RH")] {
        for (within, names) in by_directory(paths) {
            let etc = if within.is_empty() { "etc".to_owned() } else { format!("etc/{within}") };
            let _ = writeln!(
                text,
                "set --\n\
                 for name in {}; do [ ! {is} \"/{etc}/$name\" ] || set -- \"$@\" \"/{etc}/$name\"; done\n\
                 [ $# = 0 ] || {{ mkdir -p {etc}; {copy} \"$@\" {etc}/ 2>/dev/null || :; }}",
                names.join(" ")
            );
        }
    }
    let _ = writeln!(
        text,
        "echo {guest} >etc/hostname\n\
         printf '127.0.0.1 localhost {guest}\\n::1 localhost\\n' >etc/hosts\n\
         printf 'root:x:0:0:root:/root:/bin/sh\\nnobody:x:65534:65534:nobody:/:/bin/false\\n' >etc/passwd\n\
         printf 'root:x:0:\\ntty:x:5:\\nnogroup:x:65534:\\n' >etc/group\n\
         ln -s /proc/self/mounts etc/mtab"
    );
    if dns {
        let _ = writeln!(text, "rm -f etc/{0}\ncp {directory}/{0} etc/{0}", dns::FILE);
    }
    text
}
