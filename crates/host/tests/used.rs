//! What block devices are used for, read of planted trees.
#![allow(clippy::disallowed_methods)]

use std::{fs, os::unix::fs::symlink};

use penstock_host::{Root, device::used::by_anybody, nvme::NamespaceDevice};
use penstock_testkit::sysfs;

/// A namespace with a partition, two volumes, and a process in a mount namespace of its own.
const MACHINE: &str = r"
[/sys/devices/nvme0n1]
dev = 259:0
nvme0n1p1/dev = 259:1
nvme0n1p1/partition = 1
[/sys/devices/virtual/block]
dm-0/dev = 253:0
dm-0/dm/name = vg-data
md127/dev = 9:127
loop3/dev = 7:3
[/sys/class/block]
nvme0n1 -> ../../devices/nvme0n1
nvme0n1p1 -> ../../devices/nvme0n1/nvme0n1p1
dm-0 -> ../../devices/virtual/block/dm-0
md127 -> ../../devices/virtual/block/md127
loop3 -> ../../devices/virtual/block/loop3
[/sys/dev/block]
259:0 -> ../../devices/nvme0n1
259:1 -> ../../devices/nvme0n1/nvme0n1p1
253:0 -> ../../devices/virtual/block/dm-0
[/dev]
nvme0n1 = x
nvme0n1p1 = x
[/proc]
self/ns/mnt -> mnt:[1]
self/mountinfo = 22 1 8:2 / / rw - ext4 /dev/sda2 rw
41/ns/mnt -> mnt:[1]
41/comm = init
41/mountinfo = 22 1 8:2 / / rw - ext4 /dev/sda2 rw
42/ns/mnt -> mnt:[2]
42/comm = postgres
";

fn signs(more: &str) -> Option<String> {
    signs_on(&format!("{MACHINE}{more}"))
}

fn signs_on(machine: &str) -> Option<String> {
    let tree = tempfile::tempdir().unwrap();
    sysfs::plant(machine, tree.path()).unwrap();
    // Nothing that is opened may be a device: this one is waited for.
    let node = tree.path().join("dev/nvme0n1");
    fs::remove_file(&node).unwrap();
    nix::unistd::mkfifo(&node, nix::sys::stat::Mode::S_IRWXU).unwrap();
    symlink("nvme0n1", tree.path().join("dev/alias")).unwrap();
    let root = Root::at(tree.path());
    let device = NamespaceDevice { namespace: 1, controller: 0, name: "nvme0n1".to_owned() };
    device.signs(&root, &by_anybody(&root))
}

#[test]
fn signs_of_use_are_read_without_opening_the_device() {
    assert_eq!(signs(""), None);
    for (more, why) in [
        ("/sys/devices/nvme0n1/holders/dm-0 -> ../../virtual/block/dm-0", "a part of vg-data"),
        ("/sys/devices/nvme0n1/nvme0n1p1/holders/md127 -> ../../../virtual/block/md127", "a part of md127"),
        ("/proc/swaps <<END\nFilename\n/dev/nvme0n1p1 partition 1 0 -2\nEND", "the host's swap space"),
        (
            "/proc/42/mountinfo = 30 1 259:1 / /var/lib/data rw - xfs /dev/x rw",
            "mounted at /var/lib/data by postgres (process 42)",
        ),
        ("/sys/fs/ext4/nvme0n1p1/", "mounted: a file system of ext4"),
        ("/sys/fs/xfs/nvme0n1/", "mounted: a file system of xfs"),
        (
            "/sys/fs/f2fs/dm-0/\n/sys/devices/nvme0n1/holders/dm-0 -> ../../virtual/block/dm-0",
            "mounted: a file system of f2fs",
        ),
        ("/sys/fs/btrfs/0123/devices/nvme0n1p1/", "part of a file system of the host"),
        ("/sys/devices/virtual/block/loop3/loop/backing_file = /dev/alias", "behind loop3"),
        (
            "/run/udev/data/b259:1 = E:ID_FS_TYPE=zfs_member\n/proc/spl/kstat/zfs/tank/state = ONLINE",
            "it looks like a member of a ZFS pool, of which this machine has one",
        ),
    ] {
        assert_eq!(signs(&format!("{more}\n")).as_deref(), Some(why), "{more}");
    }
    // What a container calls its mount points reaches a terminal.
    let odd = signs("/proc/42/mountinfo = 30 1 259:1 / /data\\x1b[2J rw - xfs /dev/x rw\n").unwrap();
    assert!(odd.starts_with("mounted at /data") && !odd.contains(char::is_control), "{odd:?}");
    // What is only written on a disk may be what a guest wrote there.
    for kind in ["ext4", "LVM2_member", "linux_raid_member", "zfs_member"] {
        assert_eq!(signs(&format!("/run/udev/data/b259:0 = E:ID_FS_TYPE={kind}\n")), None, "{kind}");
    }
    assert_eq!(signs("/proc/42/mountinfo = 30 1 259:7 / /x rw - xfs /dev/x rw\n"), None);
}

/// What a mount is called anybody can choose who has a namespace of his own, and of FUSE also on the host.
#[test]
fn the_name_of_a_mount_is_believed_where_only_root_can_give_it() {
    let own_table = "self/mountinfo = 22 1 8:2 / / rw - ext4 /dev/sda2 rw\n";
    assert!(MACHINE.contains(own_table));
    let mount = |of: &str, kind: &str, source: &str| {
        let line = format!("{of}/mountinfo = 30 1 0:50 / /mnt rw - {kind} {source} rw\n");
        match of {
            "self" => signs_on(&MACHINE.replace(own_table, &line)),
            _ => signs(&line),
        }
    };
    let (own, theirs) = ("mounted on the host at /mnt", "mounted at /mnt by postgres (process 42)");
    for (of, kind, source, why) in [
        ("42", "tmpfs", "/dev/nvme0n1", None),
        ("42", "fuse.sshfs", "/dev/nvme0n1", None),
        ("42", "fuse.btrfs", "/dev/nvme0n1", None),
        ("42", "btrfs", "/dev/nvme0n1", Some(theirs)),
        ("42", "bcachefs", "/dev/sdz:/dev/nvme0n1p1", Some(theirs)),
        ("self", "fuse", "/dev/nvme0n1", None),
        ("self", "fuse.sshfs", "/dev/nvme0n1", None),
        ("self", "btrfs", "/dev/nvme0n1", Some(own)),
        ("self", "zonefs", "/dev/nvme0n1p1", Some(own)),
    ] {
        assert_eq!(mount(of, kind, source).as_deref(), why, "{of} {kind} {source}");
    }
}
