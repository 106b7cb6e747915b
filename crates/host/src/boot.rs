//! Which run of the kernel this is, how long it has lasted, and what the boot loader starts the next with.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use penstock_model::inventory::BootLoader;
use thiserror::Error;

use crate::{
    Command, ProcessError, Root,
    files::{self, FileError},
};

/// Reading a few small files takes `grubby` well below a second for each kernel.
const GRUBBY: Duration = Duration::from_secs(60);

/// Why the boot loader's entries are not known.
#[derive(Debug, Error)]
pub enum BootEntriesError {
    /// The menu could not be read.
    #[error(transparent)]
    Menu(#[from] FileError),
    /// The tool did not tell them.
    #[error(transparent)]
    Tool(#[from] ProcessError),
}

/// A call of a program of the machine under `root`: in a tree that is not the system's it is the tree's own, on its own files.
pub fn tool(root: &Root, program: &str) -> Command {
    match root.is_system() {
        true => Command::new(program),
        false => Command::new("chroot").arg(root.path("/")).arg(program),
    }
}

/// The kernel's command line of each entry of the boot loader. None where the entries do not have it: unified kernel images have
/// theirs inside.
///
/// # Errors
///
/// [`BootEntriesError`] where there is something to read, and it could not be.
pub fn entries(root: &Root, loader: &BootLoader) -> Result<Vec<String>, BootEntriesError> {
    match loader {
        BootLoader::Grub { menu, .. } => {
            let text = files::read_to_string(root.path(menu))?;
            Ok(starting(&text, &["linux", "linux16", "linuxefi"]))
        }
        BootLoader::Grubby => {
            let info = tool(root, "grubby").arg("--info=ALL").deadline(GRUBBY).succeed()?.text();
            Ok(of_grubby(&info))
        }
        BootLoader::KernelInstall | BootLoader::ProxmoxBootTool => Ok(of_systemd_boot(root)),
    }
}

/// The arguments of each entry that starts a kernel: of one that loads another loader `grubby` knows no arguments and no root, and gives
/// it none.
fn of_grubby(info: &str) -> Vec<String> {
    let mut entries = Vec::new();
    let (mut args, mut root) = (None, "");
    // Each begins with its number; one more ends the last.
    for line in info.lines().chain(["index="]) {
        match line.split_once('=').map(|(key, value)| (key, value.trim_matches('"'))) {
            Some(("index", _)) => {
                let ended: Option<&str> = args.take();
                entries.extend(ended.filter(|args| !args.is_empty() || !root.is_empty()).map(str::to_owned));
                root = "";
            }
            Some(("args", value)) => args = Some(value.trim()),
            Some(("root", value)) => root = value,
            _ => {}
        }
    }
    entries
}

/// The `options` of systemd-boot's entries (Boot Loader Specification, type 1).
fn of_systemd_boot(root: &Root) -> Vec<String> {
    let mut lines = Vec::new();
    for place in ["/boot", "/boot/efi", "/efi"] {
        let directory = format!("{place}/loader/entries");
        for name in files::list(root.path(&directory)).unwrap_or_default() {
            if name.ends_with(".conf") {
                let text = files::read_to_string(root.path(format!("{directory}/{name}")));
                lines.extend(starting(&text.unwrap_or_default(), &["options"]));
            }
        }
    }
    lines
}

/// The lines of `text` whose first word is one of these.
fn starting(text: &str, words: &[&str]) -> Vec<String> {
    let first = |line: &&str| line.split_ascii_whitespace().next().is_some_and(|word| words.contains(&word));
    text.lines().filter(first).map(str::to_owned).collect()
}

/// The kernel's name for this run of itself (`/proc/sys/kernel/random/boot_id`): another one after every reset. `None`
/// where it does not tell.
pub fn id(root: &Root) -> Option<String> {
    let text = files::read_to_string(root.path("/proc/sys/kernel/random/boot_id")).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// How long the kernel has run, time asleep included (`CLOCK_BOOTTIME`): nobody sets this clock, and every process reads the
/// same.
pub fn elapsed() -> Duration {
    // The clock is there since Linux 2.6.39, so that the default never comes about.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}

/// Whether systemd is what runs the services of this machine (sd_booted(3)), and this process sees the machine as it does:
/// in the same network and mount namespaces.
pub fn systemd_serves_us() -> bool {
    let root = Root::system();
    systemd_runs(&root) && is_shared(&root, "net") && is_shared(&root, "mnt")
}

/// What makes a service that `systemd-run` starts stay when somebody isolates a target (`systemctl isolate`, `rescue`, `emergency`), as the
/// scopes of VMs do; it ends when the machine goes down. Its dependencies are those that a service has by default (systemd.service(5)), but
/// for `Requires=sysinit.target`: `emergency` ends that, and all that requires it.
pub const STAYS_ON_ISOLATE: [&str; 5] = [
    "--property=IgnoreOnIsolate=yes",
    "--property=DefaultDependencies=no",
    "--property=After=sysinit.target basic.target",
    "--property=Conflicts=shutdown.target",
    "--property=Before=shutdown.target",
];

/// Whether systemd may end this process, and each that it starts, with a login's session (`KillUserProcesses=` in logind.conf(5)), although
/// it is the machine's own network that is changed: it is in the control group of a session or a user, and sees other files than systemd, so
/// that it cannot ask for a service of its own.
pub fn ends_with_its_session(root: &Root) -> bool {
    let group = files::read_to_string(root.path("/proc/self/cgroup")).unwrap_or_default();
    let of_session = |path: &str| {
        path.split('/')
            .any(|part| part == "user.slice" || part.starts_with("session-") && part.ends_with(".scope"))
    };
    // `0::` is the unified hierarchy; systemd's own stands beside version 1 (cgroups(7)).
    let lines = group.lines().filter_map(|line| {
        line.strip_prefix("0::").or(line.split_once(":name=systemd:").map(|(_, path)| path))
    });
    systemd_runs(root)
        && is_shared(root, "net")
        && !is_shared(root, "mnt")
        && lines.into_iter().any(of_session)
}

fn systemd_runs(root: &Root) -> bool {
    files::exists(root.path("/run/systemd/system"))
}

/// Whether this process is in the same namespace of this kind as the first.
fn is_shared(root: &Root, kind: &str) -> bool {
    let ours = files::read_link(root.path(format!("/proc/self/ns/{kind}")));
    let first = files::read_link(root.path(format!("/proc/1/ns/{kind}")));
    matches!((ours, first), (Ok(ours), Ok(first)) if ours == first)
}

/// Kinds of file systems that a server keeps, and the option of any other that systemd waits for the network for (systemd.mount(5)).
const OF_SERVERS: [&str; 10] =
    ["nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "afs"];
const NEEDS_NETWORK: &str = "_netdev";

/// Where `path` is mounted from, when systemd mounts that once the network is there. The file systems of `/` and `/usr` are mounted
/// before it begins. `None` too where nothing is known of mounts.
pub fn over_the_network(root: &Root, path: &str) -> Option<String> {
    let mounts = files::read_to_string(root.path("/proc/self/mountinfo")).ok()?;
    let fstab = files::read_to_string(root.path("/etc/fstab")).unwrap_or_default();
    // The last that is mounted over the longest way to it.
    let mount = mounts
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let place = left.split(' ').nth(4)?.replace("\\040", " ");
            let mut words = right.split(' ');
            Some((place, words.next()?, words.next()?))
        })
        .filter(|(place, ..)| std::path::Path::new(path).starts_with(place))
        .max_by_key(|(place, ..)| place.len());
    let (place, kind, source) = mount.filter(|(place, ..)| place != "/" && place != "/usr")?;
    let waits = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        words.get(1) == Some(&place.as_str())
            && words.get(3).is_some_and(|options| options.split(',').any(|option| option == NEEDS_NETWORK))
    };
    let remote = OF_SERVERS.contains(&kind) || fstab.lines().any(waits);
    remote.then(|| format!("{kind} from {source}, mounted at {place}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sees_other_files_than_systemd_in_a_session_ends_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let at = |path: &str| directory.path().join(path);
        for of in ["proc/1/ns", "proc/self/ns", "run/systemd/system"] {
            files::create_dir_all(at(of)).unwrap();
        }
        let link = |to: &str, path: &str| std::os::unix::fs::symlink(to, at(path)).unwrap();
        link("net:[1]", "proc/1/ns/net");
        link("net:[1]", "proc/self/ns/net");
        link("mnt:[1]", "proc/1/ns/mnt");
        link("mnt:[2]", "proc/self/ns/mnt");
        let root = Root::at(directory.path());
        let ends = |group: &str| {
            std::fs::write(at("proc/self/cgroup"), group).unwrap();
            ends_with_its_session(&root)
        };
        assert!(ends("0::/user.slice/user-1000.slice/session-3.scope\n"));
        assert!(ends("9:name=systemd:/user.slice/user-0.slice/session-c1.scope\n4:memory:/\n"));
        assert!(!ends("0::/system.slice/ssh.service\n"));
        assert!(!ends("4:memory:/user.slice\n0::/init.scope\n"));
        // Another network is not the machine's.
        std::fs::remove_file(at("proc/self/ns/net")).unwrap();
        link("net:[2]", "proc/self/ns/net");
        assert!(!ends("0::/user.slice/user-1000.slice/session-3.scope\n"));
    }

    #[test]
    fn what_comes_over_the_network_is_told_by_its_mount() {
        let directory = tempfile::tempdir().unwrap();
        for of in ["proc/self", "etc"] {
            files::create_dir_all(directory.path().join(of)).unwrap();
        }
        let mounts = "\
21 1 0:19 / / rw shared:1 - nfs4 server:/root rw
22 21 8:2 / /var rw shared:2 - ext4 /dev/sda2 rw
23 22 8:17 / /var/lib/penstock rw - ext4 /dev/sdb1 rw
24 21 0:41 / /opt/my\\040tools rw - nfs4 server:/tools rw
25 21 0:42 / /usr rw - nfs server:/usr rw
26 21 0:43 / /etc/penstock rw - tmpfs tmpfs rw
";
        let write = |path: &str, text: &str| std::fs::write(directory.path().join(path), text).unwrap();
        write("proc/self/mountinfo", mounts);
        write(
            "etc/fstab",
            "/dev/sdb1 /var/lib/penstock ext4 defaults,_netdev 0 2\n# /dev/x /var ext4 _netdev\n",
        );
        let root = Root::at(directory.path());
        let from = |path: &str| over_the_network(&root, path);
        let iscsi = "ext4 from /dev/sdb1, mounted at /var/lib/penstock";
        assert_eq!(from("/var/lib/penstock").as_deref(), Some(iscsi));
        let tools = from("/opt/my tools/bin/penstock");
        assert_eq!(tools.as_deref(), Some("nfs4 from server:/tools, mounted at /opt/my tools"));
        // What the initramfs has mounted is there.
        for path in ["/etc/penstock/model.yaml", "/usr/bin/penstock", "/opt/penstock", "/var/lib/other"] {
            assert_eq!(from(path), None, "{path}");
        }
    }

    #[test]
    fn of_entries_that_start_no_kernel_grubby_has_no_arguments() {
        let info = "\
index=0
kernel=\"/boot/vmlinuz-6.12\"
args=\"ro quiet iommu=pt\"
root=\"UUID=1\"
index=1
kernel=\"/boot/vmlinuz-6.11\"
args=\"\"
root=\"UUID=1\"
index=2
kernel=\"/EFI/Microsoft/Boot/bootmgfw.efi\"
args=\"\"
index=3
non linux entry
index=4
args=\"ro\"
";
        assert_eq!(of_grubby(info), ["ro quiet iommu=pt", "", "ro"]);
        assert_eq!(of_grubby(""), [""; 0]);
    }

    #[test]
    fn entries_of_each_loader_are_read_where_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = directory.path().join(path);
            files::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let root = Root::at(directory.path());
        let menu = "/boot/grub/grub.cfg".to_owned();
        let grub = BootLoader::Grub { refresh: Vec::new(), menu };
        assert!(entries(&root, &grub).is_err());
        write("boot/grub/grub.cfg", "menuentry {\n\tlinux /vmlinuz ro iommu=pt\n\tinitrd /initrd\n}\n");
        assert_eq!(entries(&root, &grub).unwrap(), ["\tlinux /vmlinuz ro iommu=pt"]);
        assert_eq!(entries(&root, &BootLoader::KernelInstall).unwrap(), [""; 0]);
        write("efi/loader/entries/a.conf", "title A\noptions root=UUID=1 quiet\nlinux /a\n");
        write("efi/loader/entries/a.conf.old", "options no\n");
        assert_eq!(entries(&root, &BootLoader::ProxmoxBootTool).unwrap(), ["options root=UUID=1 quiet"]);
    }

    #[test]
    fn the_clock_goes_on_and_the_boot_has_a_name() {
        let before = elapsed();
        assert!(before > Duration::ZERO);
        assert!(elapsed() >= before);
        assert_eq!(id(&Root::system()), id(&Root::system()));
        assert!(id(&Root::system()).is_some_and(|id| id.len() == 36));
    }
}
