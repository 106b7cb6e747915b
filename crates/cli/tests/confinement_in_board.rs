//! What a container's root can do to the host, tried for real: every way out that is tried has to work for the host's root,
//! and to fail inside.
#![allow(clippy::disallowed_methods)]

use std::{fs, path::Path, process::ExitCode};

use penstock_testkit::{
    binary::Run,
    board::{KeptBoard, own_name},
    json,
    trials::{self, Outcome},
};
use serde_json::Value;

fn main() -> ExitCode {
    trials::on_boards(&[
        ("a_container_does_not_get_out_in_board", does_not_get_out),
        ("apparmor_holds_what_nothing_else_does_in_board", apparmor),
        ("partitions_limits_and_consoles_work_in_a_user_namespace_in_board", partitions),
    ])
}

/// Ways to the host's files and hardware, as a shell tries them: each ends with 0 for the host's root. What they would write
/// is there already, so that the host stays as it is.
const WAYS: [(&str, &str); 11] = [
    ("reads the host's accounts", "grep -q '^sshd:' /etc/shadow /etc/passwd"),
    ("reads the host's files", "test -e /var/lib/dpkg && test -e /root/the-hosts"),
    (
        "sends an interrupt to other CPUs",
        "for file in /proc/irq/*/smp_affinity; do mask=$(cat $file) && echo $mask >$file && exit 0; done; exit 1",
    ),
    (
        "writes PCI configuration space",
        // The latency timer, which PCI Express ignores.
        "for file in /proc/bus/pci/*/*.0; do \
         dd if=/dev/zero of=$file bs=1 count=1 seek=13 conv=notrunc 2>/dev/null && exit 0; done; exit 1",
    ),
    ("opens the kernel's memory", "test $(head -c 4 /proc/kcore 2>/dev/null | wc -c) = 4"),
    (
        "has the host run a program",
        "mount -o remount,rw /proc/sys 2>/dev/null; pattern=$(cat /proc/sys/kernel/core_pattern) && \
         echo \"$pattern\" >/proc/sys/kernel/core_pattern",
    ),
    ("makes a device node", "rm -f /dev/escape; mknod /dev/escape b 254 0 && rm /dev/escape"),
    (
        "makes the host's functions",
        "for file in /sys/bus/pci/devices/*/reset; do ( : >>$file ) 2>/dev/null && exit 0; done; exit 1",
    ),
    ("calls the host's kernel", "echo h >/proc/sysrq-trigger"),
    ("makes a user namespace", "unshare -U true"),
    ("mounts the host's disk", "mkdir -p /tmp/m && mount -t squashfs -o ro /dev/vda /tmp/m && umount /tmp/m"),
];

fn does_not_get_out() -> Outcome {
    let name = own_name("confined");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/confinement/machine.yaml");
    let model = fs::read_to_string(path)?.replace("MACHINE", &name);
    let board = KeptBoard::up(&name, &model)?;
    board
        .shell("modprobe loop; truncate -s 8M /run/disk && losetup /dev/loop0 /run/disk && touch /root/the-hosts")
        .ended_with(0)?;
    small_root(&board)?;
    let apply = board.inside(["penstock", "apply", board.model()]);
    apply.ended_with(0)?;
    assert!(apply.stderr.contains("root in tool is root of the host"), "{}", apply.stderr);
    for (what, way) in WAYS {
        let host = board.shell(way);
        assert_eq!(host.status, 0, "the host's own root {what}: {}{}", host.stdout, host.stderr);
        for guest in ["box", "own", "tool", "owner"] {
            let tried = inside(&board, guest, way);
            assert_ne!(tried.status, 0, "{guest} {what}: {}{}", tried.stdout, tried.stderr);
        }
    }
    confined(&board)?;
    works(&board)?;
    // And all of it is proven by `verify`, by name.
    let verify = board.inside(["penstock", "verify", "--json", board.model()]);
    verify.ended_with(0)?;
    let verdicts = fences(&json::read(&verify.stdout)?);
    for guest in ["box", "own", "tool", "owner", "neighbor"] {
        for fence in [
            "capabilities",
            "system calls",
            "no new privileges",
            "AppArmor",
            "files of the host",
            "user namespaces",
        ] {
            let wanted = format!("{guest} {fence} pass");
            assert!(verdicts.contains(&wanted), "{wanted} is not among {verdicts:#?}");
        }
    }
    // A mount over a file of /proc is gone: AppArmor holds. What is not as it should be is said.
    let opened = "nsenter -t $(lxc-info -P /run/penstock/guests -n penstock-tool -p -H) -m umount /proc/irq";
    board.shell(opened).ended_with(0)?;
    inside(&board, "tool", "ls /proc/irq/default_smp_affinity && echo x >/etc/shadow").ended_with(0)?;
    owner_of_a_pf(&board)?;
    let verify = board.inside(["penstock", "verify", board.model()]);
    verify.ended_with(1)?;
    assert!(verify.stdout.contains("it reads /etc/shadow"), "{}", verify.stdout);
    assert!(!verify.stdout.contains("writes /proc/irq"), "{}", verify.stdout);
    assert!(verify.stdout.contains("seen 02:00:00:00:01:01"), "{}", verify.stdout);
    board.inside(["penstock", "stop", board.model()]).ended_with(0)?;
    // The board's own root is an overlay, which cannot be mounted with other ids.
    board.shell("cp -a /run/roots/own /srv/own").ended_with(0)?;
    board.write("/root/overlay.yaml", &model.replace("/run/roots/own", "/srv/own")).ended_with(0)?;
    let apply = board.inside(["penstock", "apply", "/root/overlay.yaml"]);
    apply.ended_with(1)?;
    assert!(apply.stderr.contains("idmapped mount"), "{}", apply.stderr);
    let ids = "$(sed -n 's/^own:\\([0-9]*:[0-9]*\\)$/\\1/p' /var/lib/penstock/container-ids)";
    board.shell(&format!("chown -R {ids} /srv/own")).ended_with(0)?;
    board.inside(["penstock", "apply", "/root/overlay.yaml"]).ended_with(0)?;
    board.inside(["penstock", "stop", "/root/overlay.yaml"]).ended_with(0)?;
    let left = board.shell("ls -A /dev/penstock; ls /sys/bus/pci/devices/*/virtfn0/net");
    assert!(!left.stdout.contains("box"), "no node is left: {}", left.stdout);
    Ok(())
}

/// A root directory with busybox and nothing else, on a file system that can be mounted with other ids.
fn small_root(board: &KeptBoard) -> Outcome {
    board
        .shell(
            "mkdir -p /run/roots/own && cd /run/roots/own && mkdir -p bin dev etc proc sys tmp run && cp /bin/busybox bin/ && \
             for name in sh sleep cat echo test mount umount mknod rm mkdir dd head wc grep ip touch id unshare true; \
             do ln -s busybox bin/$name; done",
        )
        .ended_with(0)?;
    Ok(())
}

/// What only AppArmor keeps from the root of a privileged container with a root directory of its own, which may mount: the
/// files below what Penstock mounts over `/proc`, and writable settings of the kernel. They are written with what they hold.
const MOUNTED_AWAY: [(&str, &str); 3] = [
    (
        "writes where interrupts go",
        "umount /proc/irq; mask=$(cat /proc/irq/default_smp_affinity) && echo $mask >/proc/irq/default_smp_affinity",
    ),
    ("calls the kernel", "umount /proc/sysrq-trigger; echo h >/proc/sysrq-trigger"),
    (
        "has the host run a program",
        "mount -o remount,rw /proc/sys; pattern=$(cat /proc/sys/kernel/core_pattern) && \
         echo \"$pattern\" >/proc/sys/kernel/core_pattern",
    ),
];

fn apparmor() -> Outcome {
    let name = own_name("apparmor");
    let model = format!(
        "machine: {name}\nnics: {{NET0: {{vfs: 1}}}}\nguests:\n  open:\n    privileged: on\n    root: /run/roots/own\n    \
         init: [/bin/sh, -c, \"while :; do sleep 1000; done\"]\n"
    );
    let board = KeptBoard::up(&name, &model)?;
    small_root(&board)?;
    let applied = board.inside(["penstock", "apply", board.model()]);
    applied.ended_with(0)?;
    assert!(!applied.stderr.contains("without an AppArmor profile"), "{}", applied.stderr);
    for (what, way) in MOUNTED_AWAY {
        let tried = inside(&board, "open", way);
        assert_ne!(tried.status, 0, "it {what}: {}{}", tried.stdout, tried.stderr);
    }
    let verify = board.inside(["penstock", "verify", "--json", board.model()]);
    let verdicts = fences(&json::read(&verify.stdout)?);
    assert!(verdicts.contains(&"open AppArmor pass".to_owned()), "{verdicts:#?}");
    // The same where no program loads profiles: all of them work, and the missing fence is said.
    board.inside(["penstock", "stop", board.model()]).ended_with(0)?;
    let left = board.shell("cat /sys/kernel/security/apparmor/profiles");
    assert_eq!(left.stdout, "", "a profile goes with its container");
    board.shell("mv /usr/sbin/apparmor_parser /root").ended_with(0)?;
    let applied = board.inside(["penstock", "apply", board.model()]);
    applied.ended_with(0)?;
    let said = "without an AppArmor profile: the program apparmor_parser is not installed";
    assert!(applied.stderr.contains(said), "{}", applied.stderr);
    for (what, way) in MOUNTED_AWAY {
        let tried = inside(&board, "open", way);
        assert_eq!(tried.status, 0, "without AppArmor it {what}: {}{}", tried.stdout, tried.stderr);
    }
    let verify = board.inside(["penstock", "verify", "--json", board.model()]);
    let verdicts = fences(&json::read(&verify.stdout)?);
    assert!(verdicts.contains(&"open AppArmor unsupported".to_owned()), "{verdicts:#?}");
    Ok(())
}

/// Real time in a partition of CPUs, memory, a VF with a rate, and a console that is read and written, with the default root and
/// with one of its own: each where root inside is an ordinary account of the host.
fn partitions() -> Outcome {
    let name = own_name("partitions");
    let echo = r#"[/bin/sh, -c, "while read line; do echo got $line; done; sleep 100000"]"#;
    let functions = |vf: u32| format!("[{{vf: NET0#{vf}, egress_rate: 50, address: 192.0.2.{}/24}}]", vf + 1);
    let realtime = "memory: 64MiB, realtime: {policy: fifo, priority: 5}";
    let model = format!(
        "machine: {name}\nnics: {{NET0: {{vfs: 2, loopback: on}}}}\nrealtime: {{isolated: 2-3}}\nguests:\n  \
         rt: {{pin: 2, {realtime}, functions: {}, init: {echo}}}\n  \
         own: {{root: /run/roots/own, pin: 3, {realtime}, functions: {}, init: {echo}}}\nboard: {{cpus: 4}}\n",
        functions(0),
        functions(1)
    );
    let board = KeptBoard::up(&name, &model)?;
    small_root(&board)?;
    board.inside(["penstock", "apply", board.model()]).ended_with(0)?;
    for (guest, cpu) in [("rt", "2"), ("own", "3")] {
        let group = format!("/sys/fs/cgroup/lxc.payload.penstock-{guest}");
        for (line, wanted) in [
            (format!("cat {group}/cpuset.cpus.partition"), "isolated"),
            (format!("cat {group}/cpuset.cpus.effective"), cpu),
            (format!("cat {group}/memory.max"), "67108864"),
        ] {
            assert_eq!(board.shell(&line).stdout.trim(), wanted, "{guest}: {line}");
        }
        let seen = inside(&board, guest, "cat /proc/self/uid_map; grep Cpus_allowed_list /proc/self/status");
        let words: Vec<&str> = seen.stdout.split_whitespace().collect();
        assert!(words[0] == "0" && words[1] != "0", "{guest}: {}", seen.stdout);
        assert_eq!(words.last(), Some(&cpu), "{guest}: {}", seen.stdout);
        let policy =
            board.shell(&format!("chrt -p $(lxc-info -P /run/penstock/guests -n penstock-{guest} -p -H)"));
        assert!(policy.stdout.contains("SCHED_FIFO") && policy.stdout.contains(": 5"), "{}", policy.stdout);
        // It has no more memory than it was given, and outlives who wanted more.
        let more = inside(&board, guest, "dd if=/dev/zero of=/dev/null bs=100M count=1");
        assert_ne!(more.status, 0, "{guest}: {}", more.stdout);
        let killed = board.shell(&format!("grep '^oom_kill ' {group}/memory.events"));
        assert!(!killed.stdout.trim().ends_with(" 0"), "{guest}: {} {}", killed.stdout, more.stdout);
        // A line that is written to its console comes back.
        let console = format!(
            "rm -f /tmp/console; (sleep 2; printf 'hello\\r'; for try in $(seq 200); do grep -q 'got hello' /tmp/console && break; sleep 0.1; done) | \
             timeout 60 penstock console {guest} --lines 0 > /tmp/console; cat /tmp/console"
        );
        let said = board.shell(&console);
        assert!(said.stdout.contains("got hello"), "{guest}: {} {}", said.stdout, said.stderr);
    }
    // The VF of the one reaches that of the other.
    inside(&board, "rt", "ping -c 1 -w 30 192.0.2.2").ended_with(0)?;
    let verify = board.inside(["penstock", "verify", board.model()]);
    let wrong: Vec<&str> = verify.stdout.lines().filter(|line| line.starts_with("fail")).collect();
    assert!(wrong.is_empty() && verify.stdout.contains(" pass, "), "{wrong:?} {}", verify.stderr);
    board.inside(["penstock", "undo"]).ended_with(0)?;
    let left =
        board.shell("ls -d /sys/fs/cgroup/lxc.payload.penstock-*; cat /sys/fs/cgroup/cpuset.cpus.isolated");
    assert_eq!(left.stdout.trim(), "");
    Ok(())
}

/// Runs a line of shell as the root of a container.
fn inside(board: &KeptBoard, guest: &str, line: &str) -> Run {
    let line = line.replace('\'', "'\\''");
    board.shell(&format!(
        "lxc-attach -P /run/penstock/guests -n penstock-{guest} --clear-env -- /bin/sh -c '{line}'"
    ))
}

/// The fences as the kernel shows them inside.
fn confined(board: &KeptBoard) -> Outcome {
    let mut users = Vec::new();
    for (guest, user_namespace) in [("box", true), ("own", true), ("owner", true), ("tool", false)] {
        let seen = inside(board, guest, "cat /proc/self/uid_map /proc/self/status");
        seen.ended_with(0)?;
        let map: Vec<&str> = seen.stdout.lines().next().unwrap_or_default().split_whitespace().collect();
        assert_eq!(map.first().copied(), Some("0"), "{guest}: {map:?}");
        assert_eq!(map.get(1).copied() != Some("0"), user_namespace, "{guest}: {map:?}");
        users.push(map.get(1).copied().unwrap_or_default().to_owned());
        assert!(seen.stdout.contains("NoNewPrivs:\t1"), "{guest}: {}", seen.stdout);
        assert!(seen.stdout.contains("Seccomp:\t2"), "{guest}: {}", seen.stdout);
    }
    users.sort_unstable();
    users.dedup();
    assert_eq!(users.len(), 4, "each has ids of its own: {users:?}");
    others_files(board)?;
    Ok(())
}

/// What one container's root left where anybody may write is closed to the root of the other, should both get there.
fn others_files(board: &KeptBoard) -> Outcome {
    let as_root_of = |guest: &str, line: &str| {
        board.shell(&format!(
            "nsenter -t $(lxc-info -P /run/penstock/guests -n penstock-{guest} -p -H) -U -S 0 -G 0 /bin/sh -c '{line}'"
        ))
    };
    as_root_of("box", "umask 077; echo secret >/tmp/of-box && cat /tmp/of-box").ended_with(0)?;
    for line in ["cat /tmp/of-box", "echo x >>/tmp/of-box", "rm -f /tmp/of-box", "chown 0 /tmp/of-box"] {
        for guest in ["own", "owner"] {
            assert_ne!(as_root_of(guest, line).status, 0, "{guest}: {line}");
        }
    }
    Ok(())
}

/// What a confined container still does: limits, rates, its device, files that stay, real-time priorities, pings, programs.
fn works(board: &KeptBoard) -> Outcome {
    for (guest, line) in [
        ("box", "ping -c 1 -w 30 192.0.2.12"),
        ("box", "chrt -f 50 true"),
        ("box", "dd if=/dev/zero of=/dev/loop0 bs=4096 count=1 conv=notrunc,fsync"),
        ("box", "fio --name=a --filename=/var/tmp/a --size=1M --rw=write --ioengine=psync"),
        ("box", "netserver -p 12899"),
        ("own", "echo kept >/etc/kept && test $(id -u) = 0"),
        ("tool", "ping -c 1 -w 30 192.0.2.11"),
        ("neighbor", "ping -c 1 -w 30 198.51.100.1"),
    ] {
        let run = inside(board, guest, line);
        assert_eq!(run.status, 0, "{guest}: {line}: {}{}", run.stdout, run.stderr);
    }
    // Files in a root directory of its own belong to whom they belonged.
    let owner = board.shell("stat -c %u:%g /run/roots/own/etc/kept");
    assert_eq!(owner.stdout.trim(), "0:0");
    Ok(())
}

/// Who owns a PF is the master of its VFs: so it is documented (docs/containers.md), with and without a user namespace.
fn owner_of_a_pf(board: &KeptBoard) -> Outcome {
    inside(board, "owner", "ip link set eth0 vf 1 mac 02:00:00:00:01:01").ended_with(0)?;
    // And of no other's: those are not in its namespace.
    let other = inside(board, "box", "ip link set eth0 vf 1 mac 02:00:00:00:01:02");
    assert_ne!(other.status, 0, "{}", other.stderr);
    Ok(())
}

/// The fences of each guest as `GUEST FENCE OUTCOME`.
fn fences(document: &Value) -> Vec<String> {
    let all = document["verdicts"].as_array().cloned().unwrap_or_default();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    all.iter()
        .filter(|verdict| verdict["attribute"] == "confinement")
        .map(|verdict| {
            let guest = word(&verdict["subject"]["guest"]);
            format!("{guest} {} {}", word(&verdict["item"]), word(&verdict["outcome"]))
        })
        .collect()
}
