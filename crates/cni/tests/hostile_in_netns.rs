//! The plugin on machines made of namespaces, where containers, other plugins and a full disk do what they should not. This program is the
//! plugin, too, when a test starts it as a runtime does.
#![allow(clippy::disallowed_methods)]

#[path = "plugin/inhabitant.rs"]
mod inhabitant;
#[path = "plugin/machine.rs"]
mod machine;
#[path = "plugin/process.rs"]
mod process;

use std::{
    collections::BTreeSet,
    env,
    ffi::OsStr,
    fs,
    io::Write,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::PathBuf,
    process::{Command, ExitCode},
    thread,
    time::Duration,
};

use inhabitant::Inhabitant;
use machine::{Machine, VFS, configuration, interfaces, with_addresses};
use penstock_cni::{Plugin, journal::Step};
use penstock_host::{
    NetworkNamespace,
    files::{FileError, Lock},
    netlink::lowers_of_others,
};
use penstock_testkit::{namespace::Namespace, needs, trials::Trials};
use process::{Ended, ROOT, be_the_plugin, netns};
use serde_json::{Value, json};

fn main() -> ExitCode {
    if let Some(root) = env::var_os(ROOT) {
        return be_the_plugin(PathBuf::from(root), Plugin { lowers_of_others: counted, ..Plugin::system() });
    }
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("network namespaces", needs::network_namespace);
    let missing = missing.or_else(|| trials.lacking("root", needs::root));
    let tests: [(&str, fn()); 9] = [
        ("a_container_cannot_hide_a_vf_behind_a_name_in_netns", a_name_that_is_none),
        ("a_name_of_any_bytes_keeps_no_vf_in_netns", a_name_of_any_bytes),
        ("a_namespace_that_cannot_be_looked_at_is_not_gone_in_netns", a_namespace_that_cannot_be_looked_at),
        ("networks_of_one_container_are_told_apart_in_netns", networks_of_one_container),
        ("a_record_that_cannot_be_read_blocks_its_vf_alone_in_netns", a_record_that_cannot_be_read),
        ("status_counts_what_an_add_would_take_in_netns", status_counts),
        ("a_result_follows_that_of_other_plugins_in_netns", a_result_follows),
        ("an_ipam_plugin_that_gives_nothing_is_an_error_in_netns", an_ipam_plugin_that_gives_nothing),
        ("the_last_vf_is_waited_for_in_netns", the_last_vf),
    ];
    trials.add(&missing, tests);
    let no_mounts = missing.clone().or_else(|| trials.lacking("mounts", mounts));
    trials.add(&no_mounts, [("a_full_disk_keeps_no_vf_in_netns", a_full_disk as fn())]);
    let macvlans =
        || needs::refused(penstock_host::Command::new("unshare").args(["--net", "sh", "-c", MACVLAN]));
    let missing = missing.or_else(|| trials.lacking("macvlans", macvlans));
    let tests: [(&str, fn()); 2] = [
        ("a_vf_with_something_upon_it_is_not_free_in_netns", something_upon_it),
        ("processes_are_looked_at_once_for_all_vfs_in_netns", looked_at_once),
    ];
    trials.add(&missing, tests);
    trials.run()
}

/// Makes one.
const MACVLAN: &str = "ip link add v1 type veth peer name v2 && ip link add m1 link v1 type macvlan";

/// Why no file system can be mounted here, if so.
fn mounts() -> Option<needs::Lack> {
    let mount = ["--mount", "mount", "-t", "tmpfs", "tmpfs", "/tmp"];
    needs::programs(&["mount", "umount"])
        .or_else(|| needs::refused(penstock_host::Command::new("unshare").args(mount)))
}

/// Writes down that all processes are looked at.
fn counted(home: &NetworkNamespace) -> Result<BTreeSet<u32>, FileError> {
    let looks = PathBuf::from(env::var_os(ROOT).unwrap()).join("looks");
    let mut looks = fs::OpenOptions::new().create(true).append(true).open(looks).unwrap();
    writeln!(looks, "one").unwrap();
    lowers_of_others(home)
}

fn of_pf(more: Value) -> Value {
    process::with(configuration(json!({"deviceID": "", "pf": "pf0"})), more)
}

/// By netlink any name but the few that the kernel refuses.
fn a_name_that_is_none() {
    for name in ["-x", "\u{e9}", "index9"] {
        let machine = Machine::new();
        let before = machine.vfs();
        let container = Namespace::new();
        let configuration = configuration(json!({}));
        assert!(machine.add("a", &container, &configuration).holds);
        container.batch("ip", &format!("link set dev net1 name {name}\n"));
        assert!(interfaces(&container).contains(name));
        // It is not the next one's while the container has it.
        assert_eq!(machine.add("b", &Namespace::new(), &configuration).code(), 101, "{name}");
        assert!(machine.del("a", Some(&container), &configuration).holds);
        assert_eq!((machine.vfs(), machine.records()), (before, Vec::new()), "{name}");
    }
}

/// An alternative name that is no text, one that steers a terminal, and as many that no request has room for all.
fn a_name_of_any_bytes() {
    let machine = Machine::new();
    let before = machine.vfs();
    let container = Namespace::new();
    let configuration = configuration(json!({}));
    assert!(machine.add("a", &container, &configuration).holds);
    let names: [&[u8]; 3] = [b"\xff", b"a\\xff", b"\x1b[2J"];
    for name in names {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", netns(&container)));
        command
            .args(["ip", "link", "property", "add", "dev", "net1", "altname"])
            .arg(OsStr::from_bytes(name));
        assert!(command.status().unwrap().success(), "{name:?}");
    }
    let long = "x".repeat(120);
    let lines = (0..480).map(|n| format!("link property add dev net1 altname {long}{n}\n"));
    container.batch("ip", &lines.collect::<String>());
    assert!(machine.del("a", Some(&container), &configuration).holds);
    assert_eq!((machine.vfs(), machine.records()), (before, Vec::new()));
    assert!(!machine.host.run("ip link show vf0").contains("altname"));
}

fn a_namespace_that_cannot_be_looked_at() {
    let machine = Machine::new();
    let before = machine.vfs();
    let (container, other) = (Namespace::new(), Namespace::new());
    let configuration = configuration(json!({}));
    let file = machine.path("netns");
    let is = |target: &str| {
        let _ = fs::remove_file(&file);
        symlink(target, &file).unwrap();
    };
    let named = file.to_str().unwrap();
    is(&netns(&container));
    assert!(machine.call("ADD", "a", Some(named), &configuration, None).holds);
    let record = || {
        let text = fs::read_to_string(machine.path("run/penstock/cni").join(format!("{}.json", VFS[0])));
        serde_json::from_str::<Value>(&text.unwrap()).unwrap()
    };
    let whole = record();
    let kept = || {
        assert_eq!(record(), whole, "nothing is written down");
        assert!(interfaces(&container).contains("net1"));
    };
    // It leads to itself: nobody knows what is there.
    is(named);
    let refused = machine.add("b", &other, &configuration);
    assert_eq!(refused.code(), 11, "{refused:?}");
    assert!(
        refused.document["msg"].as_str().unwrap().contains("container a still lives is not known"),
        "{refused:?}"
    );
    let refused = machine.add("b", &other, &of_pf(json!({"vfs": [0]})));
    assert_eq!(refused.code(), 11, "{refused:?}");
    kept();
    // Its file is gone, and somebody lives there.
    fs::remove_file(&file).unwrap();
    let inhabitant = Inhabitant::of(&container);
    let refused = machine.add("b", &other, &configuration);
    assert_eq!(refused.code(), 101, "{refused:?}");
    kept();
    // Nobody lives there, and the VF has not come back yet.
    drop(inhabitant);
    let refused = machine.add("b", &other, &configuration);
    assert_eq!(refused.code(), 11, "{refused:?}");
    kept();
    // Its own end, while somebody still lives there.
    let _inhabitant = Inhabitant::of(&container);
    assert!(machine.call("DEL", "a", Some(named), &configuration, None).holds);
    assert_eq!((machine.vfs(), machine.records()), (before, Vec::new()));
}

/// Of one interface's name.
fn networks_of_one_container() {
    let machine = Machine::new();
    let before = machine.vfs();
    let container = Namespace::new();
    let first = configuration(json!({}));
    let second = configuration(json!({"name": "other", "deviceID": VFS[1]}));
    assert!(machine.add("a", &container, &first).holds);
    assert_eq!(machine.add("a", &container, &second).code(), 4, "the name is taken");
    assert!(machine.del("a", Some(&container), &second).holds);
    assert!(interfaces(&container).contains("net1"), "it is the first one's");
    let valid = json!([{"containerID": "a", "ifname": "net1"}]);
    let collect = process::with(second, json!({"cni.dev/valid-attachments": null}));
    assert!(machine.call("GC", "", None, &collect, None).holds);
    let collect = process::with(first.clone(), json!({"cni.dev/valid-attachments": valid}));
    assert!(machine.call("GC", "", None, &collect, None).holds);
    assert!(interfaces(&container).contains("net1"));
    // What Go writes of no attachments.
    let collect =
        process::with(first, json!({"cni.dev/valid-attachments": null, "cni.dev/attachments": null}));
    assert!(machine.call("GC", "", None, &collect, None).holds);
    assert_eq!((machine.vfs(), machine.records()), (before, Vec::new()));
}

fn a_record_that_cannot_be_read() {
    let machine = Machine::new();
    let (container, other) = (Namespace::new(), Namespace::new());
    let own = configuration(json!({}));
    let directory = machine.path("run/penstock/cni");
    assert!(machine.add("a", &container, &own).holds);
    assert!(machine.del("a", Some(&container), &own).holds);
    let broken = directory.join(format!("{}.json", VFS[1]));
    fs::write(&broken, "{").unwrap();
    // The other VF is given and taken back, named or not.
    for configuration in [own.clone(), of_pf(json!({}))] {
        let added = machine.add("a", &container, &configuration);
        assert_eq!(added.document["interfaces"][0]["pciID"], VFS[0], "{added:?}");
        assert_eq!(machine.add("b", &other, &of_pf(json!({}))).code(), 101);
        assert!(machine.del("a", Some(&container), &configuration).holds);
        assert_eq!(machine.records(), [format!("{}.json", VFS[1])]);
    }
    let named = configuration(json!({"deviceID": VFS[1]}));
    let refused = machine.add("a", &container, &named);
    assert_eq!(refused.code(), 5, "{refused:?}");
    assert_eq!(machine.call("STATUS", "", None, &of_pf(json!({"vfs": [1]})), None).code(), 50);
    assert_eq!(machine.call("STATUS", "", None, &of_pf(json!({})), None).code(), 0);
    // An end succeeds, whosever the record is.
    assert!(machine.del("z", None, &own).holds);
    assert!(machine.del("a", Some(&container), &named).holds);
}

fn status_counts() {
    let machine = Machine::new();
    let (first, second) = (Namespace::new(), Namespace::new());
    let configuration = of_pf(json!({}));
    let status = || machine.call("STATUS", "", None, &configuration, None).code();
    assert!(
        machine.add("a", &first, &configuration).holds && machine.add("b", &second, &configuration).holds
    );
    assert_eq!(status(), 50);
    // A container that has lost its VF.
    first.run(&format!("ip link set net1 netns {} name vf0", machine.host.id));
    assert_eq!(status(), 0);
    assert!(machine.add("c", &first, &configuration).holds);
    assert_eq!(status(), 50);
    // An ADD that was killed.
    assert!(machine.del("c", Some(&first), &configuration).holds);
    machine.call("ADD", "c", Some(&netns(&first)), &configuration, Some(Step::Configuring));
    assert_eq!(status(), 0);
    assert!(machine.add("d", &Namespace::new(), &configuration).holds);
}

fn a_result_follows() {
    let machine = Machine::new();
    let container = Namespace::new();
    container.batch(
        "ip",
        "link add eth0 up type veth peer name x\nlink set x up\naddress add 10.7.0.5/24 dev eth0\n",
    );
    let previous = json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "eth0", "sandbox": netns(&container)}],
        "ips": [{"interface": 0, "address": "10.7.0.5/24", "gateway": "10.7.0.1"}, {"address": "10.8.0.5/24"}],
        "routes": [{"dst": "10.99.0.0/16", "gw": "10.7.0.1"}],
        "dns": {"nameservers": ["10.7.0.1"]},
    });
    let configuration = process::with(with_addresses(), json!({"prevResult": previous}));
    let added = machine.add("a", &container, &configuration);
    assert!(added.holds, "{added:?}");
    let whole = &added.document;
    assert_eq!(whole["interfaces"][0], previous["interfaces"][0]);
    assert_eq!(whole["interfaces"][1]["name"], "net1");
    assert_eq!(whole["ips"].as_array().unwrap().len(), 4);
    assert_eq!(whole["ips"][1], previous["ips"][1]);
    assert_eq!(whole["ips"][2], json!({"interface": 1, "address": "10.1.0.5/24", "gateway": "10.1.0.1"}));
    assert_eq!(whole["routes"], json!([{"dst": "10.99.0.0/16", "gw": "10.7.0.1"}, {"dst": "0.0.0.0/0"}]));
    assert_eq!(whole["dns"], json!({"nameservers": ["10.1.0.1"]}));
    assert!(container.run("ip route").contains("default via 10.1.0.1 dev net1"), "its own gateway");
    // What others gave is not held against the VF, and what it was given is.
    let after = process::with(configuration, json!({"prevResult": whole}));
    let check = || machine.call("CHECK", "a", Some(&netns(&container)), &after, None);
    let checked = check();
    assert!(checked.holds, "{checked:?}");
    container.run("ip address delete 10.1.0.5/24 dev net1");
    let checked = check();
    assert!(checked.document["msg"].as_str().unwrap().contains("no address 10.1.0.5/24"), "{checked:?}");
    assert!(machine.del("a", Some(&container), &after).holds);
}

/// A file system of its own for records, gone with the test.
struct Small(PathBuf);

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn a_full_disk() {
    let machine = Machine::new();
    let before = machine.vfs();
    let container = Namespace::new();
    let run = machine.path("run");
    fs::create_dir_all(&run).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(&run).status();
    assert!(mounted.unwrap().success());
    let _small = Small(run.clone());
    assert!(machine.add("a", &container, &with_addresses()).holds);
    // Somebody else's file takes all that is left.
    let full = fs::write(run.join("full"), vec![0; 1 << 20]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    assert!(machine.del("a", Some(&container), &with_addresses()).holds);
    assert_eq!((machine.vfs(), machine.records()), (before, Vec::new()));
    assert_eq!(
        machine.add("b", &container, &with_addresses()).code(),
        5,
        "what cannot be written down is not given"
    );
}

fn an_ipam_plugin_that_gives_nothing() {
    let machine = Machine::new();
    let before = machine.vfs();
    let container = Namespace::new();
    let ipam = machine.path("bin/addresses");
    let script = fs::read_to_string(&ipam).unwrap();
    let (start, _) = script.split_once("[ \"$CNI_COMMAND\" != ADD ]").unwrap();
    for answer in ["{\"cniVersion\": \"1.0.0\", \"ips\": []}", "{}"] {
        fs::write(&ipam, format!("{start}echo '{answer}'\n")).unwrap();
        let added = machine.add("a", &container, &with_addresses());
        assert_eq!(added.code(), 104, "{answer}: {added:?}");
        assert_eq!(added.document["msg"], "the IPAM plugin addresses gave no address");
        assert_eq!((machine.vfs(), machine.records()), (before.clone(), Vec::new()));
    }
    assert!(machine.ipam_log().ends_with("ADD a\nDEL a\n"), "{}", machine.ipam_log());
    // What another program says is one line of the log.
    let words = "echo '{\"code\": 7, \"msg\": \"no\\n2026 info: all is well\"}'; exit 1";
    fs::write(&ipam, format!("{start}{words}\n")).unwrap();
    let log = machine.path("log");
    let logged = process::with(with_addresses(), json!({"logFile": log}));
    assert!(!machine.add("a", &container, &logged).holds);
    let said = fs::read_to_string(log).unwrap();
    assert!(
        !said.is_empty() && said.lines().all(|line| line.contains(": penstock-cni: data of a: ")),
        "{said}"
    );
}

/// While another call is at it.
fn the_last_vf() {
    let machine = Machine::new();
    let containers = [Namespace::new(), Namespace::new(), Namespace::new()];
    let configuration = of_pf(json!({}));
    assert!(machine.add("a", &containers[0], &configuration).holds);
    let path = machine.path("run/penstock/cni").join(format!("{}.lock", VFS[1]));
    let lock = Lock::exclusive_within(path, Duration::from_secs(9)).unwrap().unwrap();
    let added: Ended = thread::scope(|scope| {
        let call = scope.spawn(|| machine.add("b", &containers[1], &configuration));
        thread::sleep(Duration::from_millis(500));
        assert!(!call.is_finished(), "it waits");
        drop(lock);
        call.join().unwrap()
    });
    assert_eq!(added.document["interfaces"][0]["pciID"], VFS[1], "{added:?}");
    assert_eq!(machine.add("c", &containers[2], &configuration).code(), 101);
}

fn something_upon_it() {
    let machine = Machine::new();
    machine.host.run("ip link add above link vf0 type macvlan");
    let container = Namespace::new();
    let first = of_pf(json!({"vfs": [0]}));
    assert_eq!(machine.call("STATUS", "", None, &first, None).code(), 50);
    let added = machine.add("a", &container, &of_pf(json!({})));
    assert_eq!(added.document["interfaces"][0]["pciID"], VFS[1], "{added:?}");
    assert_eq!(machine.add("b", &Namespace::new(), &first).code(), 101);
    machine.host.run("ip link delete above");
    assert_eq!(machine.call("STATUS", "", None, &first, None).code(), 0);
    // It is a container's.
    let other = Namespace::new();
    let _inhabitant = Inhabitant::of(&other);
    machine.host.run("ip link add above link vf0 type macvlan");
    machine.host.run(&format!("ip link set above netns {}", other.id));
    assert_eq!(machine.call("STATUS", "", None, &first, None).code(), 50);
    assert_eq!(machine.add("b", &Namespace::new(), &first).code(), 101);
    other.run("ip link delete above");
    assert_eq!(machine.call("STATUS", "", None, &first, None).code(), 0);
    // As sysfs has it.
    let class = machine.path("sys/class/net/vf0");
    fs::create_dir_all(&class).unwrap();
    symlink("../above", class.join("upper_above")).unwrap();
    assert_eq!(machine.call("STATUS", "", None, &first, None).code(), 50);
}

/// Where something of a container stands upon each.
fn looked_at_once() {
    let machine = Machine::new();
    let other = Namespace::new();
    let _inhabitant = Inhabitant::of(&other);
    for index in 0..VFS.len() {
        machine.host.run(&format!("ip link add above{index} link vf{index} type macvlan"));
        machine.host.run(&format!("ip link set above{index} netns {}", other.id));
    }
    let looks = || {
        let looks = machine.path("looks");
        let count = fs::read_to_string(&looks).unwrap().lines().count();
        fs::remove_file(looks).unwrap();
        count
    };
    assert_eq!(machine.call("STATUS", "", None, &of_pf(json!({})), None).code(), 50);
    assert_eq!(looks(), 1);
    assert_eq!(machine.add("a", &Namespace::new(), &of_pf(json!({}))).code(), 101);
    assert_eq!(looks(), 1);
}
