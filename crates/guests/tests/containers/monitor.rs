//! LXC's own process beside a container, which starts it and waits for its end.

use std::{fs, sync::atomic::Ordering};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use penstock_host::Place;

use crate::bench::Bench;

/// LXC's own process beside the container of this first process.
pub fn monitor_of(init: u32) -> Pid {
    let status = fs::read_to_string(format!("/proc/{init}/status")).unwrap();
    let monitor = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
    let monitor: i32 = monitor.trim().parse().unwrap();
    assert!(monitor > 1, "the parent is LXC's own process");
    Pid::from_raw(monitor)
}

/// The control groups of LXC's own process and of its container that there are, in all hierarchies.
pub fn groups_of(monitor: Pid) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{monitor}/cgroup")).unwrap();
    let name = text.split("lxc.monitor.").nth(1).unwrap().lines().next().unwrap();
    let find = ["/sys/fs/cgroup", "-type", "d", "-name", &format!("lxc.*.{name}")].map(str::to_owned);
    let found = std::process::Command::new("find").args(find).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    for sort in ["monitor", "payload"] {
        assert!(found.iter().any(|group| group.contains(sort)), "{found:?}");
    }
    found
}

pub fn assert_gone(groups: &[String]) {
    let left: Vec<_> = groups.iter().filter(|group| fs::exists(group).unwrap()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// It outlives the container's first process, and here it is slower than anybody waits.
pub fn leaves_no_process() {
    let bench = Bench::new();
    let definition = bench.guest("linux-", 0);
    let monitor = monitor_of(bench.start(&definition).namespace().unwrap().unwrap());
    let groups = groups_of(monitor);
    kill(monitor, Signal::SIGSTOP).unwrap();
    // An end of a veth pair ends with the namespace, where a VF comes back.
    bench.by.exist.store(false, Ordering::Relaxed);
    bench.stop(&definition);
    let stat = fs::read_to_string(format!("/proc/{monitor}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    assert_gone(&groups);
}

pub fn dies() {
    let bench = Bench::new();
    let definition = bench.guest("linux-", 0);
    let place = bench.start(&definition);
    let pid = place.namespace().unwrap().unwrap();
    let monitor = monitor_of(pid);
    let groups = groups_of(monitor);
    bench.by.exist.store(false, Ordering::Relaxed);
    kill(monitor, Signal::SIGKILL).unwrap();
    bench.stop(&definition);
    assert!(!bench.runs(&definition));
    assert_gone(&groups);
    // Whoever adopted it may be slow to reap it.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
}
