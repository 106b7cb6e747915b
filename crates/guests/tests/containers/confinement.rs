//! What keeps a container in: what it may not do, and how each fence is seen.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    process::Command as Program,
};

use penstock_host::{Place, scratch::Directory};
use penstock_model::{Guest, Outcome};
use penstock_plan::action::GuestDefinition;

use crate::bench::{Bench, shell, small_root};

pub fn may_not() {
    let bench = Bench::new();
    let place = bench.start(&bench.guest("linux-", 0));
    for attempt in [
        "mount -o remount,rw /sys",
        "mount -t tmpfs none /mnt",
        "mount -t devtmpfs none /mnt",
        "mknod /etc/disk b 8 0",
        "echo 60 > /proc/sys/kernel/panic",
        "dmesg",
    ] {
        let (status, said) = shell(&place, attempt);
        assert_ne!(status, 0, "{attempt}: {said}");
    }
    // What is too dangerous to try: include/uapi/linux/capability.h has the numbers.
    let (_, held) = shell(&place, "sed -n 's/^CapBnd:[[:space:]]*//p' /proc/self/status");
    let held = u64::from_str_radix(held.trim(), 16).unwrap();
    let lost = [("dac_read_search", 2), ("sys_module", 16), ("sys_rawio", 17), ("sys_admin", 21)];
    for (name, bit) in lost.into_iter().chain([("sys_boot", 22), ("sys_time", 25), ("mknod", 27)]) {
        assert_eq!(held >> bit & 1, 0, "{name}");
    }
    for (name, bit) in [("net_admin", 12), ("net_raw", 13), ("ipc_lock", 14), ("sys_nice", 23)] {
        assert_eq!(held >> bit & 1, 1, "{name} is what measurements need");
    }
    assert_eq!(shell(&place, "ls -A /root /home /tmp | grep -v ':$' | grep .").1, "");
    let (_, sockets) = shell(&place, "find /run -type s");
    assert_eq!(sockets, "", "the host's sockets are out of reach");
    assert_eq!(shell(&place, "ip link set eth0 mtu 1300 && echo x > /dev/null"), (0, String::new()));
}

/// What is seen of each fence, `ITEM: SEEN`, and whether it is as it should be. AppArmor is not this machine's everywhere.
fn seen(bench: &Bench, definition: &GuestDefinition, wanted: &Guest) -> Vec<(String, bool)> {
    let verdicts = bench.containers.fences(&definition.guest, wanted);
    verdicts
        .into_iter()
        .filter(|verdict| verdict.item.as_deref() != Some("AppArmor"))
        .map(|verdict| {
            let name = verdict.item.unwrap_or(verdict.attribute);
            (format!("{name}: {}", verdict.seen), verdict.outcome == Outcome::Pass)
        })
        .collect()
}

pub fn fences() {
    let bench = Bench::new();
    let definition = bench.guest("fenced-", 0);
    let privileged = Guest { privileged: true, ..Guest::default() };
    assert!(seen(&bench, &definition, &Guest::default()).iter().all(|(_, holds)| !holds), "it does not run");
    bench.start(&definition);
    let rows = seen(&bench, &definition, &Guest::default());
    assert_eq!(rows.len(), 6, "{rows:?}");
    assert!(rows.iter().all(|(_, holds)| *holds), "{rows:?}");
    assert!(rows[0].0.starts_with("privileged: off: its root is user "), "{rows:?}");
    assert_eq!(rows[4].0, "files of the host: none could be opened");
    assert_eq!(rows[5].0, "user namespaces: refused");
    // Wanted otherwise than it was started.
    let rows = seen(&bench, &definition, &privileged);
    assert_eq!(
        rows.iter().map(|(_, holds)| *holds).collect::<Vec<_>>(),
        [false, true, true, true, true, true]
    );
    bench.stop(&definition);

    let open = GuestDefinition { privileged: true, ..definition };
    let place = bench.start(&open);
    let rows = seen(&bench, &open, &privileged);
    assert!(rows.iter().all(|(_, holds)| *holds), "{rows:?}");
    assert_eq!(
        seen(&bench, &open, &Guest::default())[0],
        ("privileged: on: its root is the host's".to_owned(), false)
    );
    assert_ne!(shell(&place, "cat /etc/shadow").0, 0);
    assert_eq!(shell(&place, "cat /proc/self/uid_map | tr -s ' '").1.trim(), "0 0 4294967295");
    bench.stop(&open);

    let root = small_root();
    let own = root.path().to_str().unwrap().to_owned();
    let of_its_own = Guest { root: penstock_model::Root::Directory(own.clone()), ..Guest::default() };
    let own = GuestDefinition { root: Some(own), ..bench.guest("fenced-", 0) };
    bench.start(&own);
    let rows = seen(&bench, &own, &of_its_own);
    assert!(rows.iter().all(|(_, holds)| *holds), "{rows:?}");
    // A list of capabilities that is too long for the default root.
    let rows = seen(&bench, &own, &Guest::default());
    assert!(!rows[1].1 && rows[1].0.contains("are too many"), "{rows:?}");
    bench.stop(&own);
}

/// As the host does for measurements: in a file system of a user namespace nothing can belong to the host's root.
pub fn makes_files() {
    let bench = Bench::new();
    let definition = bench.guest("files-", 0);
    let place = bench.start(&definition);
    let root = format!("/proc/{}/root", place.namespace().unwrap().unwrap());
    let file = Directory::in_root(&root, "/var/tmp").unwrap().make("made").unwrap();
    file.fill(4096, |bytes| bytes.fill(7)).unwrap();
    assert_eq!(shell(&place, "stat -c '%u %s' /var/tmp/made && rm /var/tmp/made").1, "0 4096\n");
    // Files elsewhere belong to whoever makes them, as ever.
    let here = tempfile::tempdir().unwrap();
    let file = Directory::in_root("/", here.path().to_str().unwrap()).unwrap().make("made").unwrap();
    assert_eq!(fs::metadata(here.path().join("made")).unwrap().uid(), 0);
    file.remove().unwrap();
    bench.stop(&definition);
}

/// Neither with a `root` of its own is one made, nor with the old call, nor beside another namespace; a privileged container with such
/// a `root` makes them.
pub fn makes_namespaces() {
    let bench = Bench::new();
    let root = small_root();
    let path = root.path().to_str().unwrap().to_owned();
    let attempts = ["unshare -U /bin/sh -c :", "unshare -r /bin/sh -c :", "unshare -U -m -p -f /bin/sh -c :"];
    for definition in
        [bench.guest("nested-", 0), GuestDefinition { root: Some(path.clone()), ..bench.guest("nested-", 0) }]
    {
        let place = bench.start(&definition);
        for attempt in attempts {
            let (status, said) = shell(&place, attempt);
            assert_ne!(status, 0, "{attempt}: {said}");
            assert!(said.contains("Operation not permitted"), "{attempt}: {said}");
        }
        // Threads and processes are made as ever.
        assert_eq!(shell(&place, "(echo a | cat) && /bin/sleep 0").1, "a\n");
        bench.stop(&definition);
    }
    let open = GuestDefinition { privileged: true, root: Some(path.clone()), ..bench.guest("nested-", 0) };
    let place = bench.start(&open);
    assert_eq!(shell(&place, attempts[0]), (0, String::new()));
    let root = penstock_model::Root::Directory(path);
    let confined = Guest { root: root.clone(), ..Guest::default() };
    let rows = seen(&bench, &open, &confined);
    assert!(rows.contains(&("user namespaces: one was made".to_owned(), false)), "{rows:?}");
    let rows = seen(&bench, &open, &Guest { privileged: true, ..confined });
    assert!(rows.iter().all(|(_, holds)| *holds), "{rows:?}");
    assert!(rows.iter().all(|(seen, _)| !seen.starts_with("user namespaces")), "{rows:?}");
    bench.stop(&open);
}

/// The root of each container, with the host's files in reach (`nsenter` into nothing but its user namespace), in a directory
/// where anybody may write.
pub fn ids() {
    let bench = Bench::new();
    let shared = tempfile::tempdir().unwrap();
    fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let file = shared.path().join("of-one");
    let [one, two] = [bench.guest("one-", 0), bench.guest("two-", 1)];
    let as_root_of = |definition: &GuestDefinition, line: &str| {
        let place = bench.containers.place(&definition.guest).expect("it runs");
        let pid = place.pid().to_string();
        let output = Program::new("nsenter")
            .args(["-t", &pid, "-U", "-S", "0", "-G", "0", "/bin/sh", "-c", line])
            .env("FILE", &file)
            .output()
            .unwrap();
        output.status.success()
    };
    bench.start(&one);
    bench.start(&two);
    assert!(as_root_of(&one, "umask 077; echo secret >\"$FILE\" && cat \"$FILE\" && test -O \"$FILE\""));
    for attempt in
        ["cat \"$FILE\"", "echo x >>\"$FILE\"", "chmod 666 \"$FILE\"", "rm -f \"$FILE\"", "test -O \"$FILE\""]
    {
        assert!(!as_root_of(&two, attempt), "the other container's root: {attempt}");
    }
    let owner = fs::metadata(&file).unwrap().uid();
    // The same ids at the next start.
    bench.stop(&one);
    bench.start(&one);
    assert!(as_root_of(&one, "cat \"$FILE\" && test -O \"$FILE\""));
    // A root directory of another container's is no use to it.
    let root = small_root();
    assert!(
        Program::new("chown")
            .args(["-R", &format!("{owner}:{owner}")])
            .arg(root.path())
            .status()
            .unwrap()
            .success()
    );
    bench.stop(&two);
    let taken = GuestDefinition { root: Some(root.path().to_str().unwrap().to_owned()), ..two };
    let why = bench.refused(&taken);
    assert!(
        why.contains(&format!("belongs to user {owner} of the host, which is an id of guest one-")),
        "{why}"
    );
    bench.stop(&one);
}
