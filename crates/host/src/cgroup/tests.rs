//! On a tree of files: what is written, in which order, and what is taken for done. What the kernel makes of it is seen on
//! boards.

use super::*;

struct Tree {
    _directory: tempfile::TempDir,
    root: Root,
}

impl Tree {
    fn new() -> Tree {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let tree = Tree { _directory: directory, root };
        tree.write("", "cgroup.controllers", "cpuset cpu memory\n");
        tree.write("", "cgroup.procs", "");
        tree.write("", SUBTREE, "cpuset cpu\n");
        tree
    }

    fn write(&self, group: &str, file: &str, text: &str) {
        let path = self.root.path(format!("{MOUNT}{group}/{file}"));
        files::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn group(&self, group: &str, cpus: &str) {
        for (file, text) in [
            ("cgroup.procs", ""),
            ("cgroup.threads", ""),
            (SUBTREE, ""),
            (CPUS, cpus),
            (EFFECTIVE, cpus),
            (EXCLUSIVE, ""),
            (PARTITION, "member"),
        ] {
            self.write(group, file, &format!("{text}\n"));
        }
    }

    fn text(&self, group: &str, file: &str) -> String {
        let text = files::read_to_string(self.root.path(format!("{MOUNT}{group}/{file}"))).unwrap();
        text.trim().to_owned()
    }

    fn groups(&self) -> Cgroups {
        Cgroups::of(&self.root).unwrap()
    }
}

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn one(group: &str, set: &str) -> BTreeMap<String, CpuSet> {
    [(group.to_owned(), cpus(set))].into()
}

const VM: &str = "/machine.slice/machine-qemu\\x2d1.scope/libvirt/vcpu0";

fn vm(tree: &Tree) {
    for group in [
        "/machine.slice",
        "/machine.slice/machine-qemu\\x2d1.scope",
        "/machine.slice/machine-qemu\\x2d1.scope/libvirt",
    ] {
        tree.group(group, "");
    }
    tree.group(VM, "3");
}

#[test]
fn machines_without_partitions_say_why() {
    let error = Cgroups::of(&Root::at("/nowhere")).unwrap_err();
    assert!(error.is_unsupported() && error.hint().is_some(), "{error}");
    let tree = Tree::new();
    tree.write("", "cgroup.controllers", "cpu memory\n");
    assert!(matches!(Cgroups::of(&tree.root), Err(CgroupError::NoCpuset)));
    let tree = Tree::new();
    // Linux before 6.7: no claims, so that only what is right below the root can be one.
    vm(&tree);
    files::remove_file(tree.root.path(format!("{MOUNT}/machine.slice/{EXCLUSIVE}"))).unwrap();
    let error = tree.groups().isolate(&one(VM, "3")).unwrap_err();
    assert!(matches!(error, CgroupError::TooOld { needs: "6.7", .. }), "{error}");
    assert_eq!(tree.text(VM, PARTITION), "member");
}

#[test]
fn right_below_the_root_nothing_is_claimed() {
    let tree = Tree::new();
    tree.group("/lxc.payload.penstock-rt", "2-3");
    let groups = tree.groups();
    groups.isolate(&one("/lxc.payload.penstock-rt", "2-3")).unwrap();
    assert_eq!(tree.text("/lxc.payload.penstock-rt", PARTITION), "isolated");
    assert_eq!(tree.text("/lxc.payload.penstock-rt", EXCLUSIVE), "");
    assert_eq!(groups.isolated("/lxc.payload.penstock-rt").unwrap(), Some(cpus("2-3")));
}

#[test]
fn each_group_on_the_way_claims_and_gives_back() {
    let tree = Tree::new();
    vm(&tree);
    tree.group("/machine.slice/other.scope", "");
    tree.write("/machine.slice/other.scope", EXCLUSIVE, "1\n");
    tree.write("/machine.slice/other.scope", PARTITION, "root\n");
    tree.write("/machine.slice", EXCLUSIVE, "1\n");
    let groups = tree.groups();
    groups.isolate(&one(VM, "3")).unwrap();
    let claims = |group: &str| tree.text(group, EXCLUSIVE);
    let way: Vec<&str> = above(VM).collect();
    assert_eq!(way.iter().map(|group| claims(group)).collect::<Vec<_>>(), ["1,3", "3", "3"]);
    assert_eq!((claims(VM), tree.text(VM, PARTITION)), ("3".to_owned(), "isolated".to_owned()));
    assert_eq!(groups.leftovers(&cpus("3")), None);
    groups.release([&VM.to_owned()], &cpus("3")).unwrap();
    assert_eq!(tree.text(VM, PARTITION), "member");
    assert_eq!(way.iter().map(|group| claims(group)).collect::<Vec<_>>(), ["1", "", ""]);
}

#[test]
fn claims_of_a_vm_that_is_gone_are_found() {
    let tree = Tree::new();
    tree.group("/machine", "");
    tree.write("/machine", EXCLUSIVE, "2-3\n");
    let groups = tree.groups();
    assert_eq!(groups.leftovers(&cpus("3")).as_deref(), Some("/machine"));
    assert_eq!(groups.leftovers(&cpus("0-1")), None);
    groups.release([], &cpus("3")).unwrap();
    assert_eq!(tree.text("/machine", EXCLUSIVE), "2");
    assert_eq!(groups.leftovers(&cpus("3")), None);
}

#[test]
fn a_group_that_goes_while_it_is_looked_at_claims_nothing() {
    let tree = Tree::new();
    for group in ["/machine", "/machine/going"] {
        tree.group(group, "");
        tree.write(group, EXCLUSIVE, "2-3\n");
    }
    // The file was read, and then the group was removed with all its other files.
    std::fs::remove_file(tree.root.path(format!("{MOUNT}/machine/going/{PARTITION}"))).unwrap();
    assert_eq!(
        tree.groups().disclaim("/machine/going", &cpus("3"), 0).unwrap_err().to_string(),
        CgroupError::NoCpuset.to_string()
    );
    std::fs::remove_file(tree.root.path(format!("{MOUNT}/machine/going/cgroup.procs"))).unwrap();
    assert_eq!(tree.groups().disclaim("/machine/going", &cpus("3"), 0).unwrap(), CpuSet::default());
    std::fs::remove_file(tree.root.path(format!("{MOUNT}/machine/cgroup.procs"))).unwrap();
    std::fs::remove_file(tree.root.path(format!("{MOUNT}/machine/{PARTITION}"))).unwrap();
    tree.groups().release([], &cpus("3")).unwrap();
}

#[test]
fn what_is_invalid_is_a_failure_with_its_reason() {
    let tree = Tree::new();
    tree.group("/lxc.payload.a", "2-3");
    tree.group("/batch.slice", "3");
    // What was written is not what reads back, as when the kernel calls it invalid: a file that takes any text and tells its own.
    let partition = tree.root.path(format!("{MOUNT}/lxc.payload.a/{PARTITION}"));
    files::remove_file(&partition).unwrap();
    std::os::unix::fs::symlink("/proc/self/sched", partition).unwrap();
    let error = tree.groups().isolate(&one("/lxc.payload.a", "2-3")).unwrap_err();
    let CgroupError::Invalid { others, .. } = &error else { panic!("{error}") };
    assert_eq!(others[..], ["/batch.slice"]);
    assert!(error.hint().is_some());
}

#[test]
fn two_groups_cannot_have_one_cpu() {
    let tree = Tree::new();
    tree.group("/machine", "");
    tree.group("/machine/vcpu0", "2-3");
    tree.group("/machine/vcpu1", "2-3");
    let both =
        [("/machine/vcpu0".to_owned(), cpus("2-3")), ("/machine/vcpu1".to_owned(), cpus("2-3"))].into();
    assert!(matches!(tree.groups().isolate(&both), Err(CgroupError::Shared { .. })));
    assert_eq!(tree.text("/machine", EXCLUSIVE), "", "nothing was written");
}

#[test]
fn a_partition_of_an_attempt_before_stays_when_the_next_one_fails() {
    let tree = Tree::new();
    for (group, cpus) in [("/machine", ""), ("/machine/vcpu0", "2"), ("/machine/vcpu1", "3")] {
        tree.group(group, cpus);
    }
    let groups = tree.groups();
    groups.isolate(&one("/machine/vcpu0", "2")).unwrap();
    files::remove_file(tree.root.path(format!("{MOUNT}/machine/vcpu1/{EXCLUSIVE}"))).unwrap();
    let both = [("/machine/vcpu0".to_owned(), cpus("2")), ("/machine/vcpu1".to_owned(), cpus("3"))].into();
    groups.isolate(&both).unwrap_err();
    assert_eq!(tree.text("/machine/vcpu0", PARTITION), "isolated");
    assert_eq!(tree.text("/machine", EXCLUSIVE), "2", "what failed claims nothing");
    tree.write("/machine/vcpu1", EXCLUSIVE, "");
    groups.isolate(&both).unwrap();
    assert_eq!(tree.text("/machine/vcpu1", PARTITION), "isolated");
    assert_eq!(tree.text("/machine", EXCLUSIVE), "2-3");
}

#[test]
fn threads_of_a_group_are_those_below_it_too() {
    let tree = Tree::new();
    tree.group("/a", "");
    tree.write("/a", "cgroup.threads", "1\n2\n");
    tree.group("/a/b", "");
    tree.write("/a/b", "cgroup.threads", "3\n");
    let mut threads = tree.groups().threads("/a");
    threads.sort_unstable();
    assert_eq!(threads, [1, 2, 3]);
}
