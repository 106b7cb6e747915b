//! The plugin on machines made of namespaces: VFs are veth interfaces that a tree in the place of `/sys` calls VFs. This program is the
//! plugin, too, when a test starts it as a runtime does.
#![allow(clippy::disallowed_methods)]

#[path = "plugin/machine.rs"]
mod machine;
#[path = "plugin/process.rs"]
mod process;

use std::{env, fs, os::unix::fs::PermissionsExt, path::PathBuf, process::ExitCode, thread};

use machine::{Machine, VFS, configuration, interfaces, with_addresses};
use penstock_cni::{Plugin, journal::Step};
use penstock_host::{Root, scan::attachments::attachment};
use penstock_testkit::{namespace::Namespace, needs, trials::Trials};
use process::{Ended, ROOT, be_the_plugin, netns};
use serde_json::{Value, json};

fn main() -> ExitCode {
    if let Some(root) = env::var_os(ROOT) {
        return be_the_plugin(PathBuf::from(root), Plugin::system());
    }
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("network namespaces", needs::network_namespace);
    let missing = missing.or_else(|| trials.lacking("root", needs::root));
    let tests: [(&str, fn()); 16] = [
        ("a_vf_is_given_checked_and_taken_back_in_netns", a_vf_is_given_checked_and_taken_back),
        ("a_configuration_gives_mtu_addresses_and_routes_in_netns", a_configuration_gives_addresses),
        ("check_names_what_differs_in_netns", check_names_what_differs),
        ("a_plugin_killed_at_any_step_loses_nothing_in_netns", a_plugin_killed_at_any_step),
        ("two_adds_of_one_vf_give_it_once_in_netns", two_adds_of_one_vf),
        ("free_vfs_of_a_pf_are_given_once_each_in_netns", free_vfs_of_a_pf),
        ("an_add_that_fails_takes_all_back_in_netns", an_add_that_fails),
        ("a_del_needs_neither_namespace_nor_record_nor_vf_in_netns", a_del_needs_nothing),
        ("a_reboot_between_add_and_del_is_no_error_in_netns", a_reboot_in_between),
        ("gc_takes_back_what_is_not_named_in_netns", gc_takes_back),
        ("status_tells_whether_an_add_can_succeed_in_netns", status_tells),
        ("a_vf_that_the_host_uses_is_not_free_in_netns", a_vf_that_the_host_uses),
        ("a_vf_that_is_listened_to_is_not_given_in_netns", a_vf_that_is_listened_to),
        ("what_a_container_leaves_on_an_interface_goes_in_netns", what_a_container_leaves),
        ("neighbours_are_told_where_an_address_is_now_in_netns", neighbours_are_told),
        ("an_add_without_a_link_says_that_nobody_was_told_in_netns", an_add_without_a_link),
    ];
    trials.add(&missing, tests);
    trials.run()
}

fn a_vf_is_given_checked_and_taken_back() {
    let machine = Machine::new();
    let before = machine.vfs();
    let container = Namespace::new();
    let mut configuration = with_addresses();
    let added = machine.add("a", &container, &configuration);
    assert_eq!(
        added.document,
        json!({
            "cniVersion": "1.1.0",
            "interfaces": [{"name": "net1", "mac": "02:00:00:00:00:99", "mtu": 1400, "sandbox": netns(&container), "pciID": VFS[0]}],
            "ips": [
                {"interface": 0, "address": "10.1.0.5/24", "gateway": "10.1.0.1"},
                {"interface": 0, "address": "fd00::5/64"},
            ],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dns": {"nameservers": ["10.1.0.1"]},
        })
    );
    assert!(added.holds);
    let seen = container.run("ip address show net1");
    for words in ["10.1.0.5/24", "fd00::5/64", "02:00:00:00:00:99", "mtu 1400", ",UP"] {
        assert!(seen.contains(words), "{words}: {seen}");
    }
    assert!(container.run("ip route").contains("default via 10.1.0.1 dev net1"));
    // Who looks at the machine is told whose it is, by the record.
    let taker = || attachment(&Root::at(machine.directory.path()), VFS[0].parse().unwrap());
    assert_eq!(taker(), None, "its namespace is not there");
    let place = machine.path(&netns(&container)[1..]);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::write(place, "").unwrap();
    assert_eq!(taker().unwrap(), "container a (network data, penstock cni)");
    assert_eq!(machine.vfs().len(), 1, "the host has the other one alone");
    let mode = fs::metadata(machine.path("run/penstock/cni")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    configuration["prevResult"] = added.document;
    let checked = machine.call("CHECK", "a", Some(&netns(&container)), &configuration, None);
    assert!(checked.holds && checked.document.is_null(), "{checked:?}");
    assert!(machine.del("a", Some(&container), &configuration).holds);
    assert_eq!(machine.vfs(), before);
    assert!(!interfaces(&container).contains("net1"));
    assert_eq!(machine.records(), [""; 0]);
    assert_eq!(machine.ipam_log(), "ADD a\nCHECK a\nDEL a\n");
    assert!(machine.del("a", Some(&container), &configuration).holds, "once more is fine");
}

fn a_configuration_gives_addresses() {
    let machine = Machine::new();
    let before = machine.vfs();
    let container = Namespace::new();
    let mut configuration = configuration(json!({
        "mtu": 1300, "addresses": ["10.1.0.7/24", "fd00::7/64"], "routes": [{"dst": "10.9.0.0/16", "gw": "10.1.0.1"}],
    }));
    let added = machine.add("a", &container, &configuration);
    assert!(added.holds, "{added:?}");
    assert_eq!(added.document["interfaces"][0]["mtu"], 1300);
    assert_eq!(added.document["ips"][1], json!({"interface": 0, "address": "fd00::7/64"}));
    let seen = container.run("ip address show net1");
    for words in ["10.1.0.7/24", "fd00::7/64", "mtu 1300", ",UP"] {
        assert!(seen.contains(words), "{words}: {seen}");
    }
    assert!(container.run("ip route").contains("10.9.0.0/16 via 10.1.0.1 dev net1"));
    configuration["prevResult"] = added.document;
    let check = || machine.call("CHECK", "a", Some(&netns(&container)), &configuration, None);
    assert!(check().holds);
    container.run("ip address delete 10.1.0.7/24 dev net1");
    assert!(check().document["msg"].as_str().unwrap().contains("no address 10.1.0.7/24"));
    assert!(machine.del("a", Some(&container), &configuration).holds);
    assert_eq!(machine.vfs(), before);
    // What cannot be given is taken back as a whole.
    let mut wrong = configuration.clone();
    wrong["routes"] = json!([{"dst": "10.9.0.0/16", "gw": "192.0.2.1"}]);
    let added = machine.add("b", &container, &wrong);
    assert!(!added.holds, "a gateway that is in no network of the interface: {added:?}");
    assert_eq!((machine.vfs(), machine.records()), (before, Vec::new()));
}

fn check_names_what_differs() {
    let machine = Machine::new();
    let container = Namespace::new();
    let mut configuration = with_addresses();
    configuration["prevResult"] = machine.add("a", &container, &configuration).document;
    let check = || machine.call("CHECK", "a", Some(&netns(&container)), &configuration, None);
    assert!(check().holds);
    for (change, back, words) in [
        ("link set net1 mtu 1300", "link set net1 mtu 1400", "an MTU of 1300, not 1400"),
        (
            "link set net1 address 02:00:00:00:00:55",
            "link set net1 address 02:00:00:00:00:99",
            "02:00:00:00:00:55",
        ),
        ("address delete 10.1.0.5/24 dev net1", "address add 10.1.0.5/24 dev net1", "no address 10.1.0.5/24"),
        (
            "route replace default via 10.1.0.2 dev net1",
            "route replace default via 10.1.0.1 dev net1",
            "no route to 0.0.0.0/0",
        ),
        ("link set net1 name other", "link set other name net1", "no interface net1"),
    ] {
        container.batch("ip", &format!("{change}\n"));
        let checked = check();
        assert!(!checked.holds && checked.code() == 103, "{change}: {checked:?}");
        assert!(checked.document["msg"].as_str().unwrap().contains(words), "{change}: {checked:?}");
        container.batch("ip", &format!("{back}\n"));
        // An address that goes takes its routes along.
        container.batch("ip", "route replace default via 10.1.0.1 dev net1\n");
        assert!(check().holds, "{back}");
    }
    container.run("ip link set net1 down");
    assert!(check().document["msg"].as_str().unwrap().contains("net1 is down"));
    assert!(machine.del("a", Some(&container), &configuration).holds);
}

/// Killed when each step was written down, and before it was begun; and once in the middle of a release.
fn a_plugin_killed_at_any_step() {
    for step in Step::OF_ADD {
        let machine = Machine::new();
        let before = machine.vfs();
        let (container, other) = (Namespace::new(), Namespace::new());
        let configuration = with_addresses();
        machine.call("ADD", "a", Some(&netns(&container)), &configuration, Some(step));
        assert_eq!(machine.records().len(), 1, "{step:?}");
        // Its own DEL, which is killed as well, and sent again.
        machine.call("DEL", "a", Some(&netns(&container)), &configuration, Some(Step::Releasing));
        assert!(machine.del("a", Some(&container), &configuration).holds, "{step:?}");
        assert_eq!(machine.vfs(), before, "{step:?}");
        assert_eq!(machine.records(), [""; 0], "{step:?}");
        assert!(machine.ipam_log().ends_with("DEL a\n"), "{step:?}");
        // Nobody sends DEL: the next ADD cleans up, and what a container has whole is not taken from it.
        machine.call("ADD", "b", Some(&netns(&container)), &configuration, Some(step));
        let added = machine.add("c", &other, &configuration);
        if step == Step::Attached {
            assert_eq!((added.holds, added.code()), (false, 101), "{added:?}");
            assert!(machine.del("b", Some(&container), &configuration).holds);
            assert!(machine.add("c", &other, &configuration).holds);
        } else {
            assert!(added.holds, "{step:?}: {added:?}");
        }
        // Of a VF that is another's by now, the first container's DEL leaves everything.
        assert!(machine.del("b", Some(&container), &configuration).holds);
        assert!(interfaces(&other).contains("net1"), "{step:?}");
        assert!(machine.del("c", Some(&other), &configuration).holds);
        assert_eq!(machine.vfs(), before, "{step:?}");
        // The same container again, after its own ADD was killed.
        machine.call("ADD", "d", Some(&netns(&container)), &configuration, Some(step));
        if step != Step::Attached {
            assert!(machine.add("d", &container, &configuration).holds, "{step:?}");
        }
        assert!(machine.del("d", Some(&container), &configuration).holds);
        assert_eq!(machine.vfs(), before, "{step:?}");
    }
    // Without anything to set the move is the first step.
    let machine = Machine::new();
    let before = machine.vfs();
    let container = Namespace::new();
    let plain = configuration(json!({}));
    machine.call("ADD", "a", Some(&netns(&container)), &plain, Some(Step::Moving));
    assert_eq!(machine.records().len(), 1);
    assert_eq!(machine.vfs(), before);
    assert!(machine.add("b", &container, &plain).holds);
    assert!(machine.del("a", Some(&container), &plain).holds);
    assert!(interfaces(&container).contains("net1"));
    assert!(machine.del("b", Some(&container), &plain).holds);
    assert_eq!(machine.vfs(), before);
}

fn two_adds_of_one_vf() {
    let machine = Machine::new();
    let before = machine.vfs();
    for _ in 0..5 {
        let containers = [Namespace::new(), Namespace::new()];
        let names = ["a", "b"];
        let ended: Vec<Ended> = thread::scope(|scope| {
            let calls: Vec<_> = (0..2)
                .map(|n| (names[n], &containers[n], &machine))
                .map(|(name, container, machine)| {
                    scope.spawn(move || machine.add(name, container, &with_addresses()))
                })
                .collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        assert_eq!(ended.iter().filter(|ended| ended.holds).count(), 1, "{ended:?}");
        let refused = ended.iter().find(|ended| !ended.holds).unwrap();
        assert_eq!(refused.code(), 101, "{refused:?}");
        for (name, container) in names.iter().zip(&containers) {
            assert!(machine.del(name, Some(container), &with_addresses()).holds);
        }
        assert_eq!(machine.vfs(), before);
    }
}

fn free_vfs_of_a_pf() {
    let machine = Machine::new();
    let before = machine.vfs();
    for pf in ["pf0", "0000:01:00.0", "02:00:00:00:00:10"] {
        let configuration = configuration(json!({"deviceID": "", "pf": pf}));
        let containers = [Namespace::new(), Namespace::new(), Namespace::new()];
        let names = ["a", "b", "c"];
        let ended: Vec<Ended> = thread::scope(|scope| {
            let calls: Vec<_> = names
                .iter()
                .zip(&containers)
                .map(|(name, container)| (name, container, &machine, &configuration))
                .map(|(name, container, machine, all)| scope.spawn(move || machine.add(name, container, all)))
                .collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        let mut given: Vec<&str> =
            ended.iter().filter_map(|ended| ended.document["interfaces"][0]["pciID"].as_str()).collect();
        given.sort();
        assert_eq!(given, VFS, "{ended:?}");
        let refused: Vec<u64> = ended.iter().filter(|ended| !ended.holds).map(Ended::code).collect();
        assert_eq!(refused, [101]);
        for (name, container) in names.iter().zip(&containers) {
            assert!(machine.del(name, Some(container), &configuration).holds);
        }
        assert_eq!(machine.vfs(), before);
    }
    let one = configuration(json!({"deviceID": "", "pf": "pf0", "vfs": [1]}));
    let container = Namespace::new();
    let added = machine.add("a", &container, &one);
    assert_eq!(added.document["interfaces"][0]["pciID"], VFS[1]);
    assert!(machine.del("a", Some(&container), &one).holds);
}

fn an_add_that_fails() {
    let machine = Machine::new();
    let before = machine.vfs();
    let container = Namespace::new();
    // A PF that keeps no attributes says so, before anything is done.
    let vlan = machine.add("a", &container, &configuration(json!({"vlan": 100})));
    assert_eq!((vlan.holds, vlan.code()), (false, 102));
    assert!(vlan.document["msg"].as_str().unwrap().contains("vlan 100"), "{vlan:?}");
    // The IPAM plugin's own number and words, and everything back.
    fs::write(machine.path("bin/fails"), "").unwrap();
    let added = machine.add("a", &container, &with_addresses());
    assert_eq!(added.code(), 77);
    assert_eq!(added.document["msg"], "IPAM plugin addresses: ADD: no address left");
    assert_eq!(machine.ipam_log(), "ADD a\nDEL a\n");
    let missing = machine.add("a", &container, &configuration(json!({"ipam": {"type": "nobody"}})));
    assert_eq!(missing.code(), 104, "{missing:?}");
    // The name is taken.
    fs::remove_file(machine.path("bin/fails")).unwrap();
    container.run("ip link add net1 type veth peer name x");
    let taken = machine.add("a", &container, &with_addresses());
    assert_eq!(taken.code(), 4, "{taken:?}");
    // No such VF; a PF is none.
    for device in ["0000:09:00.0", "0000:01:00.0"] {
        assert_eq!(
            machine.add("a", &Namespace::new(), &configuration(json!({"deviceID": device}))).code(),
            100
        );
    }
    // Into the host itself.
    assert_eq!(machine.add("a", &machine.host, &with_addresses()).code(), 4);
    assert_eq!(machine.vfs(), before);
    assert_eq!(machine.records(), [""; 0]);
}

fn a_del_needs_nothing() {
    let machine = Machine::new();
    let before = machine.vfs();
    let configuration = with_addresses();
    // A namespace that the runtime does not name any more, and one that it names anew.
    let container = Namespace::new();
    assert!(machine.add("a", &container, &configuration).holds);
    assert!(machine.del("a", None, &configuration).holds);
    assert_eq!(machine.vfs(), before);
    // The container has renamed it, and changed it.
    assert!(machine.add("a", &container, &configuration).holds);
    container.batch("ip", "link set net1 mtu 1000 address 02:00:00:00:00:77\n");
    assert!(machine.del("a", Some(&container), &configuration).holds);
    assert_eq!(machine.vfs(), before);
    // The number of VFs was lowered.
    let machine = Machine::new();
    let container = Namespace::new();
    assert!(machine.add("a", &container, &configuration).holds);
    fs::remove_dir_all(machine.path("sys/bus/pci/devices").join(VFS[0])).unwrap();
    container.run("ip link delete net1");
    assert!(machine.del("a", Some(&container), &configuration).holds);
    assert_eq!(machine.records(), [""; 0]);
    // Nothing is written down, nothing was ever given.
    fs::remove_dir_all(machine.path("run")).unwrap();
    assert!(machine.del("z", None, &configuration).holds);
    assert!(machine.ipam_log().ends_with("DEL z\n"));
}

/// Namespaces and `/run` are gone, VFs are as new, and the runtime still knows its containers.
fn a_reboot_in_between() {
    let machine = Machine::new();
    let before = machine.vfs();
    let configuration = with_addresses();
    let container = Namespace::new();
    let was = netns(&container);
    assert!(machine.add("a", &container, &configuration).holds);
    // A veth interface ends with its namespace.
    drop(container);
    for _ in 0..500 {
        if !machine.host.run("ip -o link show").contains("wire0") {
            break;
        }
        thread::sleep(std::time::Duration::from_millis(20));
    }
    fs::remove_dir_all(machine.path("run")).unwrap();
    machine.host.batch(
        "ip",
        "link add vf0 address 02:00:00:00:00:20 type veth peer name wire0\n\
         link set wire0 up\nlink set vf0 up mtu 1400\n",
    );
    assert_eq!(machine.vfs(), before);
    // The VF is somebody else's before the DEL comes.
    let other = Namespace::new();
    assert!(machine.add("b", &other, &configuration).holds);
    assert!(machine.call("DEL", "a", Some(&was), &configuration, None).holds);
    assert!(machine.del("a", None, &configuration).holds);
    assert!(interfaces(&other).contains("net1"));
    assert!(machine.ipam_log().ends_with("DEL a\nDEL a\n"), "{}", machine.ipam_log());
    assert!(machine.del("b", Some(&other), &configuration).holds);
    assert_eq!(machine.vfs(), before);
    assert_eq!(machine.records(), [""; 0]);
}

fn gc_takes_back() {
    let machine = Machine::new();
    let before = machine.vfs();
    let (kept, lost) = (Namespace::new(), Namespace::new());
    let first = with_addresses();
    let mut second = with_addresses();
    second["deviceID"] = VFS[1].into();
    assert!(machine.add("kept", &kept, &first).holds);
    assert!(machine.add("lost", &lost, &second).holds);
    let gc = |more: Value| {
        let mut all = first.clone();
        for (key, value) in more.as_object().unwrap() {
            all[key] = value.clone();
        }
        machine.call("GC", "", None, &all, None)
    };
    assert_eq!(gc(json!({})).code(), 7, "nothing is taken back by mistake");
    let valid = json!([{"containerID": "kept", "ifname": "net1"}]);
    assert!(gc(json!({"name": "another", "cni.dev/valid-attachments": []})).holds, "another network's");
    assert!(interfaces(&lost).contains("net1"));
    let collected = gc(json!({"cni.dev/valid-attachments": valid}));
    assert!(collected.holds, "{collected:?}");
    assert!(interfaces(&kept).contains("net1") && !interfaces(&lost).contains("net1"));
    assert!(machine.ipam_log().contains("DEL lost\nGC "), "{}", machine.ipam_log());
    // Records that cannot be read: of nobody knows whom, of another network, and of this one.
    let record = |text: &str| fs::write(machine.path("run/penstock/cni/0000:01:10.2.json"), text).unwrap();
    let all = || gc(json!({"cni.dev/attachments": []}));
    for (text, code) in [
        ("", 0),
        (r#"{"format":9,"network":"other","container":"c"}"#, 0),
        (r#"{"format":2,"network":"other","cont"#, 0),
        (r#"{"format": 9, "network": "data", "container": "c"}"#, 5),
        (r#"{"format":2,"network":"data","cont"#, 5),
    ] {
        record(text);
        let collected = all();
        assert_eq!(collected.code(), code, "{text}: {collected:?}");
    }
    assert_eq!(machine.vfs(), before, "what can be read is taken back all the same");
    fs::remove_file(machine.path("run/penstock/cni/0000:01:10.2.json")).unwrap();
    assert!(all().holds);
    assert_eq!(machine.vfs(), before);
}

fn status_tells() {
    let machine = Machine::new();
    let status = |all: Value| machine.call("STATUS", "", None, &configuration(all), None).code();
    assert_eq!(status(json!({})), 0);
    assert_eq!(status(json!({"deviceID": "", "pf": "pf0"})), 0);
    assert_eq!(status(json!({"deviceID": "0000:09:00.0"})), 50);
    assert_eq!(status(json!({"deviceID": "", "pf": "pf9"})), 50);
    assert_eq!(status(json!({"vlan": 7})), 50, "this PF keeps no attributes");
    assert_eq!(status(json!({"deviceID": "", "pf": "pf0", "vfs": [9]})), 50);
    let containers = [Namespace::new(), Namespace::new()];
    let pf = configuration(json!({"deviceID": "", "pf": "pf0"}));
    assert!(machine.add("a", &containers[0], &pf).holds && machine.add("b", &containers[1], &pf).holds);
    assert_eq!(status(json!({"deviceID": "", "pf": "pf0"})), 50);
    fs::write(machine.path("bin/fails"), "").unwrap();
    assert_eq!(status(json!({"ipam": {"type": "addresses"}})), 77);
}

fn a_vf_that_the_host_uses() {
    let machine = Machine::new();
    machine.host.run("ip address add 192.0.2.1/24 dev vf0");
    let container = Namespace::new();
    let configuration = configuration(json!({"deviceID": "", "pf": "pf0"}));
    let added = machine.add("a", &container, &configuration);
    assert_eq!(added.document["interfaces"][0]["pciID"], VFS[1], "{added:?}");
    assert_eq!(machine.add("b", &Namespace::new(), &configuration).code(), 101);
    // One that is named is taken all the same, unless it is to be free.
    let named = |more| crate::configuration(more);
    let free = named(json!({"free": true}));
    let status = || machine.call("STATUS", "", None, &free, None);
    machine.host.batch("ip", "link add switch up type bridge\n");
    for use_it in [
        "address flush dev vf0\nlink set vf0 master switch",
        "link set vf0 nomaster\naddress add 192.0.2.1/24 dev vf0",
    ] {
        machine.host.batch("ip", &format!("{use_it}\n"));
        for (ended, code) in [(machine.add("b", &Namespace::new(), &free), 101), (status(), 50)] {
            assert_eq!(ended.code(), code, "{use_it}: {ended:?}");
            let said = ended.document["msg"].as_str().unwrap();
            assert!(said.contains("the host uses the interface vf0 of 0000:01:10.0"), "{said}");
        }
    }
    let container = Namespace::new();
    assert!(machine.add("b", &container, &named(json!({}))).holds);
    assert!(machine.del("b", Some(&container), &named(json!({}))).holds);
    machine.host.batch("ip", "address flush dev vf0\n");
    assert_eq!(status().code(), 0);
    assert!(machine.add("b", &container, &free).holds);
}

/// As the uplink of a switch, also when the configuration names it.
fn a_vf_that_is_listened_to() {
    let machine = Machine::new();
    machine.host.run("ip link set vf0 promisc on");
    let container = Namespace::new();
    let configuration = configuration(json!({}));
    let added = machine.add("a", &container, &configuration);
    assert_eq!(added.code(), 101, "{added:?}");
    assert!(
        added.document["msg"].as_str().unwrap().contains("vf0 of 0000:01:10.0 is promiscuous"),
        "{added:?}"
    );
    assert!(machine.host.run("ip link show vf0").contains("vf0"));
    machine.host.run("ip link set vf0 promisc off");
    assert!(machine.add("a", &container, &configuration).holds);
}

/// Flags, the link mode and alternative names, one of them the interface's own name in the host's namespace and one that another interface has.
fn what_a_container_leaves() {
    let machine = Machine::new();
    machine.host.batch(
        "ip",
        "link property add dev vf0 altname port-7\nlink property add dev vf1 altname port-8\n\
         link set vf0 allmulticast on\n",
    );
    let told = || {
        let told = machine.host.run("ip -d link show vf0");
        ["PROMISC", "ALLMULTI", "NOARP", "mode DORMANT", "port-7", "port-8", "altname vf0"]
            .map(|word| told.contains(word))
    };
    let before = (machine.vfs(), told());
    assert_eq!(before.1, [false, true, false, false, true, false, false]);
    let configuration = configuration(json!({}));
    let container = Namespace::new();
    let added = machine.add("a", &container, &configuration);
    assert!(added.holds, "{added:?}");
    container.batch(
        "ip",
        "link set net1 promisc on allmulticast off arp off mode dormant\n\
         link property del dev net1 altname port-7\nlink property add dev net1 altname port-8\n\
         link property add dev net1 altname vf0\n",
    );
    let deleted = machine.del("a", Some(&container), &configuration);
    assert!(deleted.holds, "{deleted:?}");
    assert_eq!((machine.vfs(), told()), before);
    assert!(machine.records().is_empty());
    assert!(machine.host.run("ip link show vf1").contains("altname port-8"));
    assert!(machine.add("b", &container, &configuration).holds, "the next one gets it");
}

/// A neighbour that has the addresses at another container's MAC address.
fn neighbours_are_told() {
    let machine = Machine::new();
    let container = Namespace::new();
    machine.host.batch(
        "ip",
        // A bridge with a port that stays up: entries go with an interface's link.
        "link add switch up type bridge\nlink set wire0 master switch\n\
         link add other up master switch type veth peer name end\nlink set end up\n\
         address add 10.1.0.1/24 dev switch\naddress add fd00::1/64 dev switch nodad\n\
         neighbour add 10.1.0.5 lladdr 02:00:00:00:00:77 dev switch nud reachable\n\
         neighbour add fd00::5 lladdr 02:00:00:00:00:77 dev switch nud reachable\n",
    );
    machine.host.ports_forward("switch");
    assert!(machine.add("a", &container, &with_addresses()).holds);
    for address in ["10.1.0.5", "fd00::5"] {
        let entry = || machine.host.run(&format!("ip neighbour show to {address} dev switch"));
        // Frames are taken in a moment later.
        let told = (0..100).any(|_| {
            thread::sleep(std::time::Duration::from_millis(20));
            entry().contains("02:00:00:00:00:99")
        });
        assert!(told, "{}", entry());
    }
}

fn an_add_without_a_link() {
    let machine = Machine::new();
    let container = Namespace::new();
    machine.host.run("ip link set wire0 down");
    let log = machine.path("log");
    let mut configuration = with_addresses();
    configuration["logFile"] = json!(log);
    configuration["logLevel"] = json!("warning");
    assert!(machine.add("a", &container, &configuration).holds);
    let said = fs::read_to_string(log).unwrap();
    assert!(
        said.contains(
            "neighbours are not told where the addresses of net1 are: net1 has no link after 200 ms"
        ),
        "{said}"
    );
    assert!(machine.del("a", Some(&container), &configuration).holds);
}
