//! Devices: which ones the host uses itself, in a tree that stands for a machine; and, with a real container, what it can
//! do to a loop device that it is given. Also run on a board, whose control groups are of version 2 alone.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
    path::Path,
    process::{Command as Program, ExitCode},
    time::Duration,
};

use penstock_guests::{Containers, GuestError};
use penstock_host::{
    Command, Place, Root,
    device::{
        self,
        used::{by_host, conflict},
    },
};
use penstock_model::{Device, Guest, GuestName, Outcome};
use penstock_plan::action::GuestDefinition;
use penstock_testkit::{
    needs::{self, Lack},
    trials::Trials,
};

/// Of open(2).
const O_EXCL: i32 = 0o200;

const TIMEOUT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let lacking = trials.lacking("devices of containers", lacking);
    let plain: [(&str, fn()); 5] = [
        ("what_the_host_uses", what_the_host_uses),
        ("a_disk_is_used_when_a_part_of_it_is", used_in_part),
        ("ways_around_a_disk", ways_around),
        ("odd_tables_are_survived", odd_tables),
        ("what_is_no_device_is_refused", no_device),
    ];
    let real: [(&str, fn()); 3] = [
        ("a_device_inside_in_netns", device_inside),
        ("a_device_that_is_another_now_in_netns", another_now),
        ("a_device_that_the_host_uses_is_refused_in_netns", host_uses_it),
    ];
    trials.add(&None, plain);
    trials.add(&lacking, real);
    trials.run()
}

/// What is missing here to give a container a loop device.
fn lacking() -> Option<Lack> {
    needs::containers(&["losetup", "mkswap", "swapon"]).or_else(needs::loop_device)
}

/// A tree that stands for a machine with two disks: `sda` with the root file system and swap space, `sdb` with two
/// partitions, on the second of which lies an encrypted volume.
struct Machine(tempfile::TempDir);

const MOUNTS: &str = "22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw\n\
                      23 22 0:21 / /proc rw shared:2 - proc proc rw\n";

impl Machine {
    fn new() -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        machine.put("proc/self/mountinfo", MOUNTS);
        machine.put("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/dev/sda3  partition\t1\t0\t-2\n");
        let bus = "sys/devices/pci0000:00/0000:00:1f.2";
        for (disk, minor, parts) in [("sda", 0, 3), ("sdb", 16, 2)] {
            let scsi = format!("{bus}/{disk}-scsi");
            machine.disk(&format!("{scsi}/block/{disk}"), disk, &format!("8:{minor}"));
            for part in 1..=parts {
                let (name, directory) =
                    (format!("{disk}{part}"), format!("{scsi}/block/{disk}/{disk}{part}"));
                machine.disk(&directory, &name, &format!("8:{}", minor + part));
                machine.put(&format!("{directory}/partition"), "1\n");
            }
            // /dev/sg0 and /dev/sg1
            let generic = format!("{scsi}/scsi_generic/sg");
            machine.put(&format!("{generic}/dev"), "");
            machine.link(&format!("{generic}/device"), &scsi);
            machine.link(&format!("sys/dev/char/21:{}", minor / 16), &generic);
        }
        machine.disk("sys/devices/virtual/block/dm-0", "dm-0", "253:0");
        machine.put(&format!("{bus}/sdb-scsi/block/sdb/sdb2/holders/dm-0"), "");
        machine.link("dev/mapper/secret", "dev/dm-0");
        machine.put("sys/devices/virtual/misc/watchdog/dev", "10:130");
        machine.link("sys/dev/char/10:130", "sys/devices/virtual/misc/watchdog");
        machine
    }

    fn disk(&self, directory: &str, name: &str, number: &str) {
        self.put(&format!("{directory}/dev"), &format!("{number}\n"));
        self.link(&format!("sys/class/block/{name}"), directory);
        self.link(&format!("sys/dev/block/{number}"), directory);
        self.put(&format!("dev/{name}"), "");
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(self.0.path().join(target), path).unwrap();
    }

    fn mount(&self, line: &str) {
        self.put("proc/self/mountinfo", &format!("{MOUNTS}{line}\n"));
    }

    fn root(&self) -> Root {
        Root::at(self.0.path())
    }

    #[track_caller]
    fn block(&self, number: &str) -> Option<String> {
        self.conflict(true, number)
    }

    fn character(&self, number: &str) -> Option<String> {
        self.conflict(false, number)
    }

    fn conflict(&self, block: bool, number: &str) -> Option<String> {
        let (major, minor) = number.split_once(':').unwrap();
        let device = device::Device { block, major: major.parse().unwrap(), minor: minor.parse().unwrap() };
        conflict(&self.root(), device, &by_host(&self.root()))
    }
}

fn what_the_host_uses() {
    let machine = Machine::new();
    let used = by_host(&machine.root());
    let numbers: Vec<_> = used.keys().copied().collect();
    assert_eq!(numbers, [(8, 2), (8, 3)]);
    assert_eq!(used[&(8, 2)], "mounted on the host at /");
    assert_eq!(used[&(8, 3)], "the host's swap space");
    // btrfs shows no number of its own, and one of its devices.
    machine.mount("30 22 0:33 /@srv /srv rw - btrfs /dev/sdb1 rw");
    assert_eq!(by_host(&machine.root())[&(8, 17)], "mounted on the host at /srv");
    machine.put("sys/fs/btrfs/c0ffee/devices/sdb2", "");
    assert!(by_host(&machine.root())[&(8, 18)].contains("file system of the host"));
}

fn used_in_part() {
    let machine = Machine::new();
    for used in ["8:0", "8:2", "8:3"] {
        assert!(machine.block(used).is_some(), "{used}");
    }
    // Another partition of the same disk leads nowhere else.
    for free in ["8:1", "8:16", "8:17", "8:18", "253:0", "7:0"] {
        assert_eq!(machine.block(free), None, "{free}");
    }
    machine.mount("30 22 253:0 / /srv/data rw - ext4 /dev/mapper/secret rw");
    for used in ["8:16", "8:18", "253:0"] {
        assert!(machine.block(used).unwrap().contains("/srv/data"), "{used}");
    }
    assert_eq!(machine.block("8:17"), None);
}

fn ways_around() {
    let machine = Machine::new();
    assert!(machine.character("21:0").unwrap().contains("mounted on the host at /"));
    for memory in ["1:1", "1:2", "1:4"] {
        assert!(machine.character(memory).unwrap().contains("memory"), "{memory}");
    }
    for free in ["21:1", "10:130", "1:3", "4:64"] {
        assert_eq!(machine.character(free), None, "{free}");
    }
}

fn odd_tables() {
    let machine = Machine::new();
    // Holders in a ring, and lines that break off.
    machine.put("sys/devices/virtual/block/dm-0/holders/dm-0", "");
    assert_eq!(machine.block("253:0"), None);
    for odd in ["", "x", "1 2", "1 2 a:b / /", "1 2 8: / / - x", "1 2 :8 / / - ext4 /dev/ rw", " - "] {
        machine.put("proc/self/mountinfo", odd);
        machine.put("proc/swaps", odd);
        assert!(by_host(&machine.root()).is_empty(), "{odd:?}");
    }
}

fn guest(name: &str, devices: Vec<Device>) -> GuestDefinition {
    GuestDefinition { devices, ..GuestDefinition::bare(name.parse().unwrap()) }
}

fn device(path: &str, inside: &str, write: bool) -> Device {
    Device { path: path.to_owned(), inside: inside.to_owned(), write }
}

fn no_device() {
    use penstock_guests::containers::devices::resolve;
    let refused = |path: &str| {
        let guest = guest("a", vec![device("/dev/null", "/dev/x", true), device(path, "/dev/a", true)]);
        let error = resolve(&Root::system(), &guest).unwrap_err();
        assert!(error.hint().is_some());
        error.to_string()
    };
    assert!(refused("/dev/no-such-device").ends_with("/dev/no-such-device: there is no such device"));
    assert!(refused("/dev").ends_with("/dev is not a device"));
    assert!(refused("/proc/self/status").contains("is not a device"));
    if Path::new("/dev/mem").exists() {
        assert!(refused("/dev/mem").contains("memory"));
    }
    let links = tempfile::tempdir().unwrap();
    symlink("/dev/full", links.path().join("by-id")).unwrap();
    let path = links.path().join("by-id").to_str().unwrap().to_owned();
    let found = resolve(&Root::system(), &guest("a", vec![device(&path, "/dev/f", false)])).unwrap();
    assert_eq!(found[0].node, Path::new("/dev/full"));
    assert_eq!(found[0].device.to_string(), "c 1:7");
}

/// A loop device over a file of 8 MiB, and containers.
struct Bench {
    loop_device: String,
    containers: Containers,
    directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let directory = tempfile::tempdir().unwrap();
        // A container's root is an ordinary account of the host, and has to reach its own directory.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let file = directory.path().join("disk");
        fs::File::create(&file).unwrap().set_len(8 << 20).unwrap();
        let attached = Program::new("losetup").args(["--find", "--show"]).arg(&file).output().unwrap();
        assert!(attached.status.success(), "{}", String::from_utf8_lossy(&attached.stderr));
        let loop_device = String::from_utf8(attached.stdout).unwrap().trim().to_owned();
        let containers = Containers::new(Root::system(), directory.path().join("guests"))
            .keeping_ids_in(directory.path().join("ids"));
        Bench { loop_device, containers, directory }
    }

    /// A stable name for the loop device.
    fn stable(&self) -> String {
        let link = self.directory.path().join("by-id");
        if !link.exists() {
            symlink(&self.loop_device, &link).unwrap();
        }
        link.to_str().unwrap().to_owned()
    }

    fn start(&self, name: &str, devices: Vec<Device>) -> Result<(impl Place + use<>, Guest), GuestError> {
        let definition = guest(name, devices.clone());
        self.containers.define(&definition, TIMEOUT)?;
        self.containers.start(&definition.guest, TIMEOUT)?;
        let place = self.containers.place(&definition.guest).expect("it runs");
        Ok((place, Guest { devices, ..Guest::default() }))
    }

    fn seen(&self, name: &str, wanted: &Guest) -> Vec<(String, Outcome)> {
        let name: GuestName = name.parse().unwrap();
        let verdicts = self.containers.verdicts(&name, wanted);
        verdicts.into_iter().map(|verdict| (verdict.seen, verdict.outcome)).collect()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for guest in self.containers.found().unwrap_or_default().keys() {
            let _ = self.containers.stop(guest, TIMEOUT);
        }
        let _ = Program::new("losetup").args(["--detach", &self.loop_device]).status();
    }
}

fn shell(place: &impl Place, script: &str) -> (i32, String) {
    let output = place.run(&Command::new("sh").args(["-c", script])).unwrap();
    (output.status.code().unwrap_or(-1), output.text() + &output.errors())
}

fn device_inside() {
    let bench = Bench::new();
    let before = fs::metadata(&bench.loop_device).unwrap();
    let devices = vec![
        device(&bench.stable(), "/dev/disk/by-id/data", true),
        device(&bench.loop_device, "/dev/looked-at", false),
    ];
    // One device under two names is as writable as the more generous says: the group knows devices, not names.
    let (place, wanted) = bench.start("both", devices.clone()).unwrap();
    let seen = bench.seen("both", &wanted);
    assert!(seen[0].0.ends_with(": read and write") && seen[0].1 == Outcome::Pass, "{seen:?}");
    assert_eq!(seen[1].1, Outcome::Fail, "{seen:?}");
    let write = "dd if=/bin/sh of=/dev/disk/by-id/data bs=4096 count=4 conv=fsync,notrunc 2>&1 && \
                 cmp -n 16384 /bin/sh /dev/disk/by-id/data";
    assert_eq!(shell(&place, write).0, 0, "{}", shell(&place, write).1);
    // The host's node is not the container's to change.
    assert_ne!(shell(&place, "chmod 666 /dev/disk/by-id/data").0, 0);
    assert_ne!(shell(&place, "chown 1 /dev/disk/by-id/data").0, 0);
    let after = fs::metadata(&bench.loop_device).unwrap();
    assert_eq!((before.mode(), before.uid()), (after.mode(), after.uid()));
    let name: GuestName = "both".parse().unwrap();
    bench.containers.stop(&name, TIMEOUT).unwrap();
    assert!(bench.seen("both", &wanted).iter().all(|row| row.1 == Outcome::Unknown));

    let (place, wanted) = bench.start("reader", devices[1..].to_vec()).unwrap();
    let seen = bench.seen("reader", &wanted);
    assert!(seen[0].0.ends_with(": read only") && seen[0].1 == Outcome::Pass, "{seen:?}");
    assert_eq!(shell(&place, "head -c 4096 /dev/looked-at | wc -c").1.trim(), "4096");
    assert_ne!(shell(&place, "dd if=/dev/zero of=/dev/looked-at bs=512 count=1 conv=notrunc").0, 0);
    // What it was not given cannot be made, either.
    let node = format!("mknod /dev/mine b {} {}", before.rdev() >> 8 & 0xfff, before.rdev() & 0xff);
    assert_ne!(shell(&place, &node).0, 0);
    // Asked for more than it has, or for what it was not given.
    let more = Guest {
        devices: vec![
            device(&bench.loop_device, "/dev/looked-at", true),
            device("/dev/null", "/dev/other", true),
        ],
        ..Guest::default()
    };
    let seen = bench.seen("reader", &more);
    assert_eq!(seen[0].1, Outcome::Fail);
    assert_eq!(seen[1], ("nothing inside".to_owned(), Outcome::Fail));
}

fn another_now() {
    let bench = Bench::new();
    let stable = bench.stable();
    let (place, wanted) = bench.start("moved", vec![device(&stable, "/dev/data", true)]).unwrap();
    assert_eq!(bench.seen("moved", &wanted)[0].1, Outcome::Pass);
    // The stable name finds another device now, then none.
    fs::remove_file(&stable).unwrap();
    symlink("/dev/zero", &stable).unwrap();
    let (seen, outcome) = bench.seen("moved", &wanted)[0].clone();
    assert!(seen.ends_with("inside, c 1:5 on the host"), "{seen}");
    assert_eq!(outcome, Outcome::Fail);
    fs::remove_file(&stable).unwrap();
    assert_eq!(
        bench.seen("moved", &wanted)[0],
        ("on the host: there is no such device".to_owned(), Outcome::Fail)
    );
    // A guest that puts a link in the way of the look is looked at in its own root.
    let trap = "ln -s /dev/full /dev/trap && ln -s ../../../../proc/1/root/dev/full /dev/magic";
    assert_eq!(shell(&place, trap).0, 0);
    let trapped = |inside: &str| {
        let wanted = Guest { devices: vec![device("/dev/full", inside, true)], ..Guest::default() };
        bench.seen("moved", &wanted)[0].clone()
    };
    assert_eq!(trapped("/dev/trap"), ("c 1:7: read and write".to_owned(), Outcome::Pass));
    assert_ne!(trapped("/dev/magic").1, Outcome::Pass);
    // And nothing of the looks is left in its control group.
    let (_, names) = shell(&place, "cat /proc/[0-9]*/comm | sort -u");
    assert!(!names.contains("penstock") && !names.contains("devices"), "{names}");
}

fn host_uses_it() {
    let bench = Bench::new();
    let of_swap = |program: &str| {
        // Below the host's own swap space, which it would take over otherwise.
        let words: &[&str] = if program == "swapon" { &["--priority", "0"] } else { &[] };
        let output = Program::new(program).args(words).arg(&bench.loop_device).output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    };
    of_swap("mkswap");
    of_swap("swapon");
    let refused = bench.start("taker", vec![device(&bench.stable(), "/dev/data", false)]).err();
    of_swap("swapoff");
    let Some(error @ GuestError::DeviceInUse { .. }) = refused else {
        panic!("{refused:?}");
    };
    assert!(error.to_string().contains("the host's swap space"), "{error}");
    assert!(error.hint().unwrap().contains("lsblk"));
    // As who has mounted it where the host does not see it, or a pool.
    let holder = fs::OpenOptions::new().read(true).custom_flags(O_EXCL).open(&bench.loop_device).unwrap();
    let refused = bench.start("taker", vec![device(&bench.stable(), "/dev/data", false)]).err();
    let Some(error @ GuestError::DeviceInUse { .. }) = refused else {
        panic!("{refused:?}");
    };
    assert!(error.to_string().contains("held by the kernel"), "{error}");
    drop(holder);
    assert!(bench.start("taker", vec![device(&bench.stable(), "/dev/data", false)]).is_ok());
}
