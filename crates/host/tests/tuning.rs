//! What decides how late a thread wakes, read of a tree; recorded, and read again of the record.
#![allow(clippy::disallowed_methods)]

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use penstock_host::{
    Root,
    record::{ERRORS, Recorder},
    scan::{
        lifelines::{Started, lifelines},
        scan,
        tuning::{container_threads, of_vm, tuning},
    },
};
use penstock_model::{
    ByteSize, CpuSet,
    inventory::tuning::{CgroupVersion, Knob, Reading, Tuning, Value, VmThread},
};
use penstock_testkit::sysfs;

fn tree() -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    sysfs::plant(include_str!("machines/tuned.tree"), tree.path()).unwrap();
    tree
}

fn look(root: &Root) -> (Tuning, Vec<String>) {
    let inventory = scan(root, None);
    tuning(root, &inventory)
}

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

#[test]
fn every_knob_is_read_and_none_is_taken_for_its_default() {
    let tree = tree();
    let (found, _) = look(&Root::at(tree.path()));
    let knob = |knob: Knob| found.knobs.get(&knob).cloned().unwrap_or_else(|| panic!("{knob} was not read"));
    let number = |number| Reading::Is(Value::Number(number));
    assert_eq!(knob(Knob::RtRuntime), number(-1));
    assert_eq!(knob(Knob::NmiWatchdog), number(0));
    assert_eq!(knob(Knob::Workqueues), Reading::Is(Value::Cpus(cpus("0-1"))));
    assert_eq!(knob(Knob::DefaultIrqAffinity), Reading::Is(Value::Cpus(cpus("0-1"))));
    assert_eq!(knob(Knob::TransparentHugePages), Reading::Is(Value::Word("never".to_owned())));
    assert_eq!(knob(Knob::TimerMigration), Reading::Absent);
    let Reading::Unreadable(why) = knob(Knob::StatInterval) else { panic!("{:?}", knob(Knob::StatInterval)) };
    assert!(why.contains("/proc/sys/vm/stat_interval") && why.contains("many"), "{why}");
    assert_eq!(knob(Knob::ResumeLatency(2)), Reading::Is(Value::Word("n/a".to_owned())));
    assert_eq!(knob(Knob::ResumeLatency(3)), number(0));
    assert_eq!(knob(Knob::MinFrequency(2)), number(2_400_000));
    assert_eq!(knob(Knob::Governor(3)), Reading::Absent);
    assert_eq!(knob(Knob::FairServer(2)), number(0));
    assert_eq!(knob(Knob::FairServer(3)), number(50_000_000));
    assert_eq!(knob(Knob::FairServer(0)), Reading::Absent);
    // Without debugfs nothing is known of the fair server, however old the kernel is.
    fs::remove_dir_all(tree.path().join("sys/kernel/debug")).unwrap();
    let (found, _) = look(&Root::at(tree.path()));
    assert!(matches!(found.knobs[&Knob::FairServer(2)], Reading::Unreadable(_)));
}

#[test]
fn interrupts_idle_states_and_clocks() {
    let tree = tree();
    let (found, _) = look(&Root::at(tree.path()));
    let irq = &found.irqs[&35];
    assert_eq!(irq.users, ["eth0-TxRx-0", "eth0"]);
    assert_eq!(irq.effective, Reading::Is(cpus("1")));
    assert_eq!(irq.counts, [(1, 7), (3, 2)].into());
    assert_eq!(irq.function, Some("0000:04:00.0".parse().unwrap()));
    assert_eq!(found.knobs[&Knob::IrqAffinity(35)], Reading::Is(Value::Cpus(cpus("0-1"))));
    assert_eq!((found.irqs[&36].users.len(), &found.irqs[&36].effective), (0, &Reading::Absent));
    assert_eq!(found.irqs.len(), 3, "what is no device's is no device interrupt");
    let states = &found.idle[&2];
    assert_eq!(
        (states[1].name.as_str(), states[1].latency, states[1].disabled, states[1].usage),
        ("C6", 133, true, 3)
    );
    assert!(!states[0].disabled && !found.idle.contains_key(&3));
    assert_eq!(found.idle_driver, Reading::Is("intel_idle".to_owned()));
    assert_eq!(found.turbo, Reading::Is(false));
    assert_eq!(found.tickless, Reading::Is(CpuSet::default()));
    assert_eq!(found.workqueues_isolated, Reading::Is(cpus("2-3")));
    assert_eq!(found.clock_source, Reading::Is("tsc".to_owned()));
    assert_eq!(found.cpu_flags, ["constant_tsc", "cat_l3", "mba"].map(str::to_owned).into());
    assert_eq!(found.frequency_drivers, [(2, "intel_pstate".to_owned())].into());
}

#[test]
fn partitions_and_classes_of_service() {
    let tree = tree();
    let (found, notes) = look(&Root::at(tree.path()));
    assert_eq!(found.cgroups.version, CgroupVersion::V2);
    assert_eq!(found.cgroups.isolated, Reading::Is(cpus("2")));
    // `user.slice` does not hand the cpuset on: what is in there is no partition.
    let names: Vec<&str> = found.cgroups.partitions.keys().map(String::as_str).collect();
    assert_eq!(names, ["broken", "machine.slice/rt-2"]);
    let partition = &found.cgroups.partitions["machine.slice/rt-2"];
    assert_eq!((partition.state.as_str(), &partition.exclusive), ("isolated", &cpus("2")));
    assert!(found.cgroups.partitions["broken"].state.starts_with("isolated invalid ("));
    let resctrl = found.resctrl.known().unwrap();
    assert_eq!((resctrl.masks["L3"], resctrl.shareable["L3"], resctrl.least_bits["L3"]), (0xfff, 0xc00, 1));
    assert_eq!((resctrl.most_groups, resctrl.bandwidth), (Some(8), Some((10, 10))));
    assert_eq!(resctrl.groups.keys().map(String::as_str).collect::<Vec<_>>(), ["", "rt-2"]);
    assert_eq!(resctrl.groups["rt-2"].schemata["L3"], [(0, 0xf), (1, 0xfff)].into());
    assert_eq!(resctrl.groups["rt-2"].schemata["MB"][&0], 40);
    assert!(notes.iter().any(|note| note.contains("odd/schemata")), "{notes:?}");
    fs::remove_file(tree.path().join("sys/fs/resctrl/schemata")).unwrap();
    fs::remove_file(tree.path().join("sys/fs/cgroup/cgroup.controllers")).unwrap();
    fs::create_dir(tree.path().join("sys/fs/cgroup/cpuset")).unwrap();
    let (found, _) = look(&Root::at(tree.path()));
    assert_eq!((found.resctrl, found.cgroups.version), (Reading::Absent, CgroupVersion::V1));
}

#[test]
fn a_vm_with_its_threads_and_programs() {
    let tree = tree();
    let (found, _) = look(&Root::at(tree.path()));
    assert_eq!(found.programs, ["irqbalance", "power-profiles-daemon"].map(str::to_owned).into());
    assert!(!found.processes_hidden);
    let vm = &found.vms[&50];
    assert_eq!((vm.name.as_str(), vm.locked_kib, vm.huge_pages), ("penstock-rt-2", Some(262_144), true));
    assert_eq!(vm.functions, BTreeSet::from(["0000:04:10.0".parse().unwrap()]));
    let vcpu = &vm.threads[&52];
    assert_eq!(
        (vcpu.name.as_str(), &vcpu.cpus, vcpu.policy, vcpu.priority),
        ("CPU 0/KVM", &cpus("2"), 1, 80)
    );
    assert_eq!(vm.threads[&60].name, "vhost-50");
    assert_eq!(vm.threads.len(), 3);
    // Who sees only his own processes knows nothing of others'.
    fs::remove_dir_all(tree.path().join("proc/1")).unwrap();
    assert!(look(&Root::at(tree.path())).0.processes_hidden);
}

#[test]
fn links_weaknesses_modules_and_what_the_kernel_said() {
    let tree = tree();
    let (found, _) = look(&Root::at(tree.path()));
    let link = &found.links[&"0000:04:00.0".parse().unwrap()];
    // The slot above does 5 GT/s on 8 lanes, the function 8 GT/s on 4.
    assert_eq!((link.speed.as_str(), link.most_speed.as_str()), ("2.5 GT/s PCIe", "5.0 GT/s PCIe"));
    assert_eq!((link.width, link.most_width), (4, 4));
    assert_eq!(found.vulnerabilities["meltdown"], Reading::Is("Mitigation: PTI".to_owned()));
    assert_eq!(found.parameters["kvm.halt_poll_ns"], Reading::Is("0".to_owned()));
    let words = ["splash", "kthread_cpus=0-1"].map(str::to_owned).to_vec();
    assert_eq!(found.unknown_parameters, Reading::Is(words));
    assert_eq!((found.selinux_enforcing, found.selinux_cache), (Reading::Is(true), Reading::Is(512)));
    assert_eq!(found.node_huge_pages[&0][0].size, ByteSize(2 << 20));
    let log = tree.path().join("dev/kmsg");
    fs::write(&log, "6,0,0,-;Linux version 6.12\n").unwrap();
    assert_eq!(look(&Root::at(tree.path())).0.unknown_parameters, Reading::Is(Vec::new()));
    // A log that was written over may have said it.
    fs::write(&log, "6,900,0,-;br0: port 1 entered blocking state\n").unwrap();
    assert!(matches!(look(&Root::at(tree.path())).0.unknown_parameters, Reading::Unreadable(_)));
    fs::remove_file(&log).unwrap();
    assert_eq!(look(&Root::at(tree.path())).0.unknown_parameters, Reading::Absent);
}

/// All files of a tree, by path within it.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut rest = vec![directory.to_owned()];
    while let Some(directory) = rest.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let data = fs::symlink_metadata(&path).unwrap();
            if data.is_dir() {
                rest.push(path);
            } else if data.is_file() {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn a_record_says_what_the_machine_said_and_holds_nothing_else() {
    let tree = tree();
    fs::create_dir_all(tree.path().join("etc")).unwrap();
    fs::write(tree.path().join("etc/shadow"), "secret").unwrap();
    // What may not be read there may not be read here: here root may read everything.
    let errors = "13 /sys/kernel/debug/sched/fair_server/cpu2/runtime\n22 /sys/fs/selinux/enforce\n";
    fs::write(tree.path().join(ERRORS), errors).unwrap();
    let recorder = Arc::new(Recorder::default());
    let root = Root::recorded(tree.path()).recording(recorder.clone());
    let (before, notes) = look(&root);
    assert_eq!(before.knobs[&Knob::FairServer(2)], Reading::Denied);
    assert!(matches!(before.selinux_enforcing, Reading::Unreadable(_)));
    let to = tempfile::tempdir().unwrap();
    let recorded = recorder.write(to.path()).unwrap();
    assert_eq!(recorded.errors, 2);
    let (after, again) = look(&Root::recorded(to.path()));
    assert_eq!(serde_json::to_value(&after).unwrap(), serde_json::to_value(&before).unwrap());
    assert_eq!(again, notes);
    assert_eq!(scan(&Root::recorded(to.path()), None), scan(&Root::recorded(tree.path()), None));
    for path in files(to.path()) {
        let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
        for secret in ["secret", "SerialNumber", "password", "kworker"] {
            assert!(!text.contains(secret), "{} holds {secret}", path.display());
        }
    }
    assert!(!to.path().join("etc/shadow").exists());
    // Nothing is mixed with what is there.
    let error = recorder.write(to.path()).unwrap_err();
    assert!(error.source.to_string().contains("not empty"), "{error:?}");
}

#[test]
fn a_record_gives_nobody_what_only_root_could_read() {
    let tree = tree();
    let secret = "sys/kernel/debug/sched/fair_server/cpu2/runtime";
    add(tree.path(), secret, b"950000000\n");
    fs::set_permissions(tree.path().join(secret), Permissions::from_mode(0o400)).unwrap();
    let recorder = Arc::new(Recorder::default());
    drop(look(&Root::at(tree.path()).recording(recorder.clone())));
    // Somebody's who foresaw the name, and everybody's: nothing is written to either.
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
    let to = home.path().join("record");
    fs::create_dir(&to).unwrap();
    fs::set_permissions(&to, Permissions::from_mode(0o777)).unwrap();
    assert!(recorder.write(&to).is_err());
    if nix::unistd::geteuid().is_root() {
        fs::set_permissions(&to, Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(&to, Some(65534), None).unwrap();
        assert!(recorder.write(&to).is_err());
    } else {
        penstock_testkit::skip::part("needs root");
    }
    fs::remove_dir(&to).unwrap();
    let recorded = recorder.write(&to).unwrap();
    assert_eq!(recorded.private, 1, "{recorded:?}");
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&to.join(secret)), 0o600);
    assert_eq!(mode(&to), 0o700);
    assert_eq!(mode(&to.join("proc/cmdline")), 0o644, "everybody could read it");
    for above in to.join(secret).ancestors().skip(1).take_while(|above| above.starts_with(&to)) {
        assert_eq!(mode(above), 0o700, "{}", above.display());
    }
    // What the attacker did: read it as somebody else, here also without the directories in the way.
    if nix::unistd::geteuid().is_root() {
        for above in to.join(secret).ancestors().skip(1).take_while(|above| above.starts_with(&to)) {
            fs::set_permissions(above, Permissions::from_mode(0o755)).unwrap();
        }
        fs::set_permissions(to.join("proc"), Permissions::from_mode(0o755)).unwrap();
        let read = |path: &str| as_nobody(|| fs::read(to.join(path)));
        assert!(read("proc/cmdline").is_ok());
        assert_eq!(read(secret).unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    }
}

/// Does something with files as another user, in this thread alone (`setfsuid(2)`).
fn as_nobody<T>(act: impl FnOnce() -> T) -> T {
    let (group, user) = (setfsgid(Gid::from_raw(65534)), setfsuid(Uid::from_raw(65534)));
    let outcome = act();
    setfsuid(user);
    setfsgid(group);
    outcome
}

#[test]
fn links_of_a_record_stay_in_it() {
    let tree = tree();
    // As some systems have it: a link with an absolute path.
    let aside = tree.path().join("sys/module/kvm");
    fs::rename(&aside, tree.path().join("kvm")).unwrap();
    symlink("/kvm", &aside).unwrap();
    let recorder = Arc::new(Recorder::default());
    let root = Root::at(tree.path()).recording(recorder.clone());
    // Absolute links of a tree lead to within the tree, not to this machine's files.
    drop(look(&root));
    let to = tempfile::tempdir().unwrap();
    recorder.write(to.path()).unwrap();
    let link = to.path().join("sys/module/kvm");
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("../../kvm"));
    assert!(fs::canonicalize(&link).is_ok_and(|real| real.starts_with(to.path())));
    // Somebody else's tree may link to files of whoever looks at it: they are not read.
    let theirs = tempfile::tempdir().unwrap();
    let secret = theirs.path().join("secret");
    fs::write(&secret, "1\n").unwrap();
    let file = tree.path().join("sys/fs/selinux/enforce");
    fs::remove_file(&file).unwrap();
    symlink(&secret, &file).unwrap();
    assert_eq!(look(&Root::at(tree.path())).0.selinux_enforcing, Reading::Absent);
}

/// Any process chooses what its open files are called, and exchanges them while they are looked at.
#[test]
fn an_open_file_leads_the_record_nowhere() {
    let tree = tree();
    let victim = tempfile::tempdir().unwrap();
    let outside = victim.path().canonicalize().unwrap();
    let up = format!("{}{}", "../".repeat(40), outside.strip_prefix("/").unwrap().display());
    // Somebody has a function through VFIO, so that all processes are looked at.
    let bound = tree.path().join("sys/bus/pci/drivers/vfio-pci/0000:04:10.0");
    fs::create_dir_all(bound.parent().unwrap()).unwrap();
    symlink("../../../../devices/x/0000:04:10.0", bound).unwrap();
    let function = tree.path().join("sys/bus/pci/devices/0000:04:10.0");
    fs::create_dir_all(&function).unwrap();
    symlink("../../kernel/iommu_groups/7", function.join("iommu_group")).unwrap();
    let fd = tree.path().join("proc/777/fd");
    fs::create_dir_all(&fd).unwrap();
    add(tree.path(), "/proc/777/comm", b"evil\n");
    for (name, target) in
        [("3", up.clone()), ("4", format!("{up}/new")), ("5", outside.display().to_string())]
    {
        symlink(target, fd.join(name)).unwrap();
    }
    // A file system in user space that says it comes from there.
    add(
        tree.path(),
        "/proc/self/mountinfo",
        format!("30 1 0:50 / / rw - fuse.evil /dev/../{up}/made rw\n31 1 0:51 / /mnt rw - fuse.evil /dev/{up}/made rw\n")
            .as_bytes(),
    );
    let recorder = Arc::new(Recorder::default());
    let root = Root::at(tree.path()).recording(recorder.clone());
    drop(lifelines(&root, None, &Started::default()));
    // What was a link when it was read is a directory of links now, and the other way round.
    fs::remove_file(fd.join("3")).unwrap();
    fs::create_dir(fd.join("3")).unwrap();
    symlink(&outside, fd.join("3/inner")).unwrap();
    let to = tempfile::tempdir().unwrap();
    recorder.write(to.path()).unwrap();
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "something was made outside of the record");
    for name in ["3", "4", "5"] {
        let target = fs::read_link(to.path().join("proc/777/fd").join(name)).unwrap();
        let climbs = target.components().take_while(|part| *part == Component::ParentDir).count();
        let later = target.components().skip(climbs).all(|part| matches!(part, Component::Normal(_)));
        assert!(target.is_relative() && climbs <= 3 && later, "{}", target.display());
    }
}

/// Adds a file to a tree.
fn add(tree: &Path, path: &str, bytes: &[u8]) {
    let file = tree.join(path.trim_start_matches('/'));
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, bytes).unwrap();
}

#[test]
fn how_the_kernel_was_built_is_read_of_its_own_copy_and_of_the_distributions() {
    let tree = tree();
    let root = Root::at(tree.path());
    assert_eq!(look(&root).0.build, Reading::Absent);
    let release = fs::read_to_string(tree.path().join("proc/sys/kernel/osrelease")).unwrap();
    add(
        tree.path(),
        &format!("/boot/config-{}", release.trim()),
        b"CONFIG_RT_GROUP_SCHED=y\nCONFIG_SECRET=y\n",
    );
    let set = |name: &str| Reading::Is([(name.to_owned(), "y".to_owned())].into());
    assert_eq!(look(&root).0.build, set("RT_GROUP_SCHED"));
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, b"CONFIG_NO_HZ_FULL=y\n# CONFIG_PREEMPT_RT is not set\n").unwrap();
    add(tree.path(), "/proc/config.gz", &packed.finish().unwrap());
    assert_eq!(look(&root).0.build, set("NO_HZ_FULL"));
    // A record has the lines that were asked for, and is read as the file was.
    let recorder = Arc::new(Recorder::default());
    drop(look(&Root::at(tree.path()).recording(recorder.clone())));
    let to = tempfile::tempdir().unwrap();
    recorder.write(to.path()).unwrap();
    assert_eq!(look(&Root::recorded(to.path())).0.build, set("NO_HZ_FULL"));
    add(tree.path(), "/proc/config.gz", b"\x1f\x8bnonsense");
    assert!(matches!(look(&root).0.build, Reading::Unreadable(_)));
}

#[test]
fn of_an_environment_only_what_irqbalance_was_told_is_read_and_recorded() {
    let tree = tree();
    let id = (1..1000).find(|id| {
        fs::read_to_string(tree.path().join(format!("proc/{id}/comm")))
            .is_ok_and(|name| name == "irqbalance\n")
    });
    let path = format!("/proc/{}/environ", id.unwrap());
    add(tree.path(), &path, b"PASSWORD=secret\0IRQBALANCE_BANNED_CPULIST=2-3\0");
    let unit = "[Service]\nEnvironment='IRQBALANCE_BANNED_CPUS=4' OTHER=secret\n";
    add(tree.path(), "/etc/systemd/system/irqbalance.service.d/a.conf", unit.as_bytes());
    add(
        tree.path(),
        "/etc/default/irqbalance",
        b"# IRQBALANCE_BANNED_CPULIST=9\nIRQBALANCE_BANNED_CPULIST=\"1\"\nTOKEN=secret\n",
    );
    let recorder = Arc::new(Recorder::default());
    let told = look(&Root::at(tree.path()).recording(recorder.clone())).0.irqbalance.unwrap();
    let variable = |name: &str, value: &str| (format!("IRQBALANCE_BANNED_{name}"), value.to_owned());
    assert_eq!(told.environment, Reading::Is([variable("CPULIST", "2-3")].into()));
    assert_eq!(told.settings, [variable("CPULIST", "1"), variable("CPUS", "4")].into());
    assert_eq!(told.file.as_deref(), Some("/etc/default/irqbalance"));
    let to = tempfile::tempdir().unwrap();
    recorder.write(to.path()).unwrap();
    for file in files(to.path()) {
        assert!(!String::from_utf8_lossy(&fs::read(&file).unwrap()).contains("secret"), "{}", file.display());
    }
    assert_eq!(look(&Root::recorded(to.path())).0.irqbalance, Some(told));
}

#[test]
fn what_was_listed_and_could_not_be_read_is_told() {
    let tree = tree();
    let errors = "13 /proc/50/task/52/status\n13 /sys/fs/cgroup/broken/cpuset.cpus\n13 /sys/fs/resctrl/rt-2/schemata\n13 /proc/cmdline\n";
    fs::write(tree.path().join(ERRORS), errors).unwrap();
    let found = look(&Root::recorded(tree.path())).0;
    assert_eq!((found.unread.processes.len(), found.unread.partitions.len()), (1, 1), "{:?}", found.unread);
    assert!(found.unread.resctrl.iter().any(|why| why.contains("rt-2/schemata")), "{:?}", found.unread);
    assert_eq!(found.command_line, Reading::Denied);
}

/// Anybody can call a process what he likes.
#[test]
fn a_process_is_believed_what_it_is_called_if_it_is_roots_or_libvirts() {
    let of_users = |[real, user, saved]: [u32; 3], accounts: &[(&str, &[u8])]| {
        let tree = tree();
        for (path, text) in accounts {
            add(tree.path(), path, text);
        }
        let status = tree.path().join("proc/50/status");
        let text = fs::read_to_string(&status).unwrap();
        let of_accounts = format!("Uid:\t{real}\t{user}\t{saved}\t{user}\n");
        fs::write(&status, format!("{text}{of_accounts}")).unwrap();
        add(tree.path(), "/proc/40/status", of_accounts.as_bytes());
        add(tree.path(), "/proc/39/comm", b"bystander\n");
        add(tree.path(), "/proc/39/status", of_accounts.as_bytes());
        let recorder = Arc::new(Recorder::default());
        let (found, notes) = look(&Root::at(tree.path()).recording(recorder.clone()));
        let told = notes.iter().any(|note| note.contains("called as QEMU is"));
        assert_eq!(told, !found.vms.contains_key(&50), "{notes:?}");
        let to = tempfile::tempdir().unwrap();
        recorder.write(to.path()).unwrap();
        assert_eq!(look(&Root::recorded(to.path())).0, found);
        assert!(!fs::read_to_string(to.path().join("etc/passwd")).unwrap_or_default().contains("somebody"));
        assert!(!to.path().join("proc/39/status").exists(), "a bystander is nobody's business");
        (found.vms.contains_key(&50), found.irqbalance.is_some())
    };
    let of_user = |user: u32, accounts: &[(&str, &[u8])]| of_users([user; 3], accounts);
    let passwd: (&str, &[u8]) =
        ("/etc/passwd", b"root:x:0:0::/:/bin/sh\nsomebody:x:1000:1000::/:/bin/sh\nlibvirt-qemu:x:64055:108::/:/bin/sh\nvm:x:77:7::/:/bin/sh\n");
    let configured: (&str, &[u8]) = ("/etc/libvirt/qemu.conf", b"#user = \"somebody\"\n  user = \"vm\"\n");
    assert_eq!(of_user(0, &[]), (true, true));
    assert_eq!(of_user(1000, &[]), (false, false));
    assert_eq!(of_user(1000, &[passwd, configured]), (false, false));
    assert_eq!(of_user(64055, &[passwd]), (true, false));
    assert_eq!(of_user(77, &[passwd]), (false, false));
    assert_eq!(of_user(77, &[passwd, configured]), (true, false));
    // A set-user-ID program that somebody has given the name.
    assert_eq!(of_users([1000, 0, 0], &[passwd]), (false, false));
    assert_eq!(of_users([0, 0, 1000], &[passwd]), (false, false));
    assert_eq!(of_users([64055, 64055, 0], &[passwd]), (true, false));
}

#[test]
fn a_threads_name_may_hold_anything() {
    let tree = tree();
    let status = fs::read(tree.path().join("proc/50/task/52/status")).unwrap();
    let mut stat = fs::read(tree.path().join("proc/50/task/52/stat")).unwrap();
    let name = stat.iter().position(|byte| *byte == b'(').unwrap() + 1;
    stat.splice(name..name + 2, *b"\xff\n");
    add(tree.path(), "/proc/90/comm", b"qemu-x\n");
    add(tree.path(), "/proc/90/cmdline", b"qemu-x\0");
    add(tree.path(), "/proc/90/status", &status);
    add(tree.path(), "/proc/90/task/91/comm", b"\xff\x1b[m\n");
    add(tree.path(), "/proc/90/task/91/status", &status);
    add(tree.path(), "/proc/90/task/91/stat", &stat);
    let found = look(&Root::at(tree.path())).0;
    assert_eq!(found.unread.processes, Vec::<String>::new());
    let thread = &found.vms[&90].threads[&91];
    assert_eq!(thread.name, "\u{fffd}\u{fffd}[m");
    assert_eq!(thread.cpus, found.vms[&50].threads[&52].cpus);
}

#[test]
fn what_is_not_known_of_a_vm_begins_with_its_process() {
    for (path, whole) in [("/proc/50/task/52/stat", false), ("/proc/60/stat", true)] {
        let tree = tree();
        fs::write(tree.path().join(ERRORS), format!("13 {path}\n")).unwrap();
        let unread = look(&Root::recorded(tree.path())).0.unread.processes;
        let [why] = unread.as_slice() else { panic!("{unread:?}") };
        assert!(why.starts_with(&of_vm(50)) && why.contains(path), "{why}");
        assert_eq!(why.contains("is not wholly known"), whole, "{why}");
    }
}

#[test]
fn groups_that_vfio_made_up_are_no_iommus() {
    let tree = tree();
    add(tree.path(), "/sys/kernel/iommu_groups/0/name", b"vfio-noiommu\n");
    add(tree.path(), "/sys/kernel/iommu_groups/0/devices/0000:04:00.0", b"");
    add(tree.path(), "/sys/kernel/iommu_groups/7/devices/0000:05:00.0", b"");
    let root = Root::at(tree.path());
    let groups: Vec<u32> = scan(&root, None).iommu_groups.into_keys().collect();
    assert_eq!(groups, [7]);
    assert_eq!(look(&root).0.groups_without_iommu, Reading::Is([0].into()));
}

#[test]
fn cpusets_of_version_1_isolate_what_no_group_balances() {
    let tree = tree();
    fs::remove_dir_all(tree.path().join("sys/fs/cgroup")).unwrap();
    let group = |name: &str, cpus: &str, balances: &str| {
        let group = format!("/sys/fs/cgroup/cpuset/{name}");
        add(tree.path(), &format!("{group}/cpuset.cpus"), cpus.as_bytes());
        add(tree.path(), &format!("{group}/cpuset.sched_load_balance"), balances.as_bytes());
    };
    let unbalanced = || look(&Root::at(tree.path())).0.cgroups.unbalanced;
    group("", "0-3\n", "1\n");
    group("rt", "2-3\n", "0\n");
    assert_eq!(unbalanced(), Reading::Is(CpuSet::default()), "the root balances all");
    group("", "0-3\n", "0\n");
    group("machine", "0-1\n", "1\n");
    group("rt/one", "3\n", "1\n");
    assert_eq!(unbalanced(), Reading::Is(cpus("2")));
}

#[test]
fn a_container_whose_threads_are_not_all_known_has_none_that_are() {
    let tree = tree();
    let process = |id: u32, name: &str, cpus: &str| {
        let directory = tree.path().join(format!("proc/{id}"));
        let task = directory.join(format!("task/{id}"));
        fs::create_dir_all(&task).unwrap();
        fs::write(directory.join("cgroup"), "0::/lxc.payload.web/init.scope\n").unwrap();
        fs::write(task.join("comm"), format!("{name}\n")).unwrap();
        fs::write(task.join("status"), format!("Cpus_allowed_list:\t{cpus}\n")).unwrap();
        let fields = vec!["0"; 36].join(" ");
        fs::write(task.join("stat"), format!("{id} ({name}) S {fields} 80 1 0\n")).unwrap();
    };
    process(700, "init", "2");
    process(701, "sh", "2-3");
    let threads = || container_threads(&Root::recorded(tree.path()), 700);
    let names = |threads: Vec<VmThread>| threads.into_iter().map(|thread| thread.name).collect::<Vec<_>>();
    assert_eq!(threads().map(names), Ok(vec!["init".to_owned(), "sh".to_owned()]));
    for (error, why) in [
        ("13 /proc/701/cgroup", "/proc/701/cgroup may not be read by who looked"),
        ("13 /proc/701/task", "/proc/701/task may not be read by who looked"),
        ("13 /proc/701/task/701/comm", "/proc/701/task/701/comm may not be read by who looked"),
        ("13 /proc/701/task/701/stat", "/proc/701/task/701/stat may not be read by who looked"),
    ] {
        fs::write(tree.path().join(ERRORS), format!("{error}\n")).unwrap();
        assert_eq!(threads(), Err(why.to_owned()), "{error}");
    }
    // One that has ended meanwhile has no threads (ESRCH).
    fs::write(tree.path().join(ERRORS), "3 /proc/701/cgroup\n").unwrap();
    assert_eq!(threads().map(names), Ok(vec!["init".to_owned()]));
    assert!(container_threads(&Root::recorded(tree.path()), 799).is_err());
}
