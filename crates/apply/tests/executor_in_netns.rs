//! The host's steps on a real interface: a veth pair in a namespace of its own stands for a PF's. `ip` is the witness.
#![allow(clippy::disallowed_methods)]

use std::{fs, os::unix::fs::symlink, path::Path, process::ExitCode, thread, time::Duration};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};
use penstock_apply::{
    ApplyError, HostExecutor, Options,
    journal::{Ending, Entry},
    run,
};
use penstock_host::{Command, Netlink, Root};
use penstock_model::{
    Bdf, InterfaceAddress, InterfaceName, Mac, Mtu, VfAttribute, VfIndex,
    inventory::{Interface, Master, Upper},
};
use penstock_plan::{
    Action, Direction, Execute, ExecuteError, Executors, Fact, FunctionAction, InterfaceSetup, Observe, Plan,
    Step, StepId,
};
use penstock_testkit::{needs, trials::Trials};

type Check = fn(&Path);

const PF: &str = "0000:04:00.0";

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("network namespaces", needs::network_namespace);
    let checks: [(&str, Check); 7] = [
        ("steps_are_carried_out_and_proven_in_netns", steps_are_carried_out),
        ("a_step_that_fails_leaves_all_as_before_in_netns", a_failure_leaves_all_as_before),
        ("an_interface_is_renamed_in_netns", an_interface_is_renamed),
        ("a_link_is_waited_for_in_netns", a_link_is_waited_for),
        ("what_goes_with_an_interface_comes_back_in_netns", what_goes_with_it_comes_back),
        ("an_interface_that_somebody_set_up_anew_is_left_so_in_netns", what_somebody_set_up_stays),
        ("a_port_of_a_bridge_is_one_again_in_netns", |root| a_port_is_one_again(root, "bridge")),
    ];
    trials.add(&missing, checks.map(|(name, check)| (name, move || alone(check))));
    let no_bond = missing.clone().or_else(|| trials.lacking("bonds", || needs::link_of_kind("bond")));
    let check: Check = |root| a_port_is_one_again(root, "bond");
    trials.add(&no_bond, [("a_port_of_a_bond_is_one_again_in_netns", move || alone(check))]);
    let no_vlan = missing.or_else(|| trials.lacking("VLANs", needs::vlans));
    let checks: [(&str, Check); 2] = [
        ("a_port_of_a_bridge_that_filters_vlans_has_its_vlans_again_in_netns", a_port_has_its_vlans_again),
        ("the_interface_of_a_vlan_comes_back_in_netns", the_interface_of_a_vlan_comes_back),
    ];
    trials.add(&no_vlan, checks.map(|(name, check)| (name, move || alone(check))));
    trials.run()
}

/// Runs `check` in new namespaces, with a tree whose `/sys/class/net` is the namespace's own and whose one PCI function
/// has the interface `pf0`, one end of a cable.
fn alone(check: Check) {
    let work = move || {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).unwrap();
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path();
        for directory in ["real", "sys/class"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        mount(Some("sysfs"), &root.join("real"), Some("sysfs"), MsFlags::MS_RDONLY, none).unwrap();
        symlink(root.join("real/class/net"), root.join("sys/class/net")).unwrap();
        fs::create_dir_all(net(root)).unwrap();
        has_interface(root, "pf0");
        ip("link add pf0 type veth peer name peer");
        check(root);
        nix::mount::umount(&root.join("real")).unwrap();
    };
    thread::spawn(work).join().unwrap();
}

fn net(root: &Path) -> std::path::PathBuf {
    root.join(format!("sys/bus/pci/devices/{PF}/net"))
}

/// Has the function's own directory show its interface, as the kernel does in a real tree.
fn has_interface(root: &Path, name: &str) {
    symlink(root.join("real/class/net").join(name), net(root).join(name)).unwrap();
}

fn ip(line: &str) -> String {
    Command::new("ip").args(line.split(' ')).succeed().expect(line).text()
}

fn pf() -> Bdf {
    PF.parse().unwrap()
}

fn mtu(bytes: u32) -> Mtu {
    Mtu::new(bytes).unwrap()
}

fn plan(steps: Vec<(Action, Option<Action>, Fact)>) -> Plan {
    let steps = (1..).zip(steps).map(|(n, (action, inverse, postcondition))| Step {
        id: StepId(n),
        action,
        reason: "a test".to_owned(),
        needs: Vec::new(),
        inverse,
        postcondition,
        best_effort: false,
        guest: None,
    });
    Plan { steps: steps.collect(), ..Plan::default() }
}

fn steps() -> Vec<(Action, Option<Action>, Fact)> {
    let function = pf();
    let before: Mac = ip("-br link show pf0").split_whitespace().nth(2).unwrap().parse().unwrap();
    let mac: Mac = "02:00:00:00:01:04".parse().unwrap();
    let address: InterfaceAddress = "10.20.31.204/24".parse().unwrap();
    let other: InterfaceAddress = "fd00::4/64".parse().unwrap();
    let has = |address| Fact::HasAddress { function, address };
    let add = |address| FunctionAction::AddAddress { function, address }.into();
    let remove = |address| Some(FunctionAction::RemoveAddress { function, address }.into());
    let vf = VfIndex::new(0).unwrap();
    let attribute = VfAttribute::Mac(mac);
    let up = Direction::Up;
    vec![
        (
            FunctionAction::SetMtu { function, mtu: mtu(9000) }.into(),
            Some(FunctionAction::SetMtu { function, mtu: mtu(1500) }.into()),
            Fact::MtuIs { function, mtu: mtu(9000) },
        ),
        (
            FunctionAction::SetMac { function, mac }.into(),
            Some(FunctionAction::SetMac { function, mac: before }.into()),
            Fact::Mac { function, mac },
        ),
        (
            FunctionAction::SetLink { function, direction: up }.into(),
            Some(FunctionAction::SetLink { function, direction: Direction::Down }.into()),
            Fact::Link { function, direction: up },
        ),
        (add(address), remove(address), has(address)),
        (add(other), remove(other), has(other)),
        // A veth has no VFs: its driver says that it cannot.
        (
            FunctionAction::SetVfAttribute { pf: function, vf, attribute }.into(),
            None,
            Fact::VfAttribute { pf: function, vf, attribute },
        ),
    ]
}

fn options() -> Options<'static> {
    Options { deadline: Duration::from_secs(5), ..Options::default() }
}

fn steps_are_carried_out(root: &Path) {
    let mut executor = HostExecutor::new(Root::at(root)).unwrap();
    let applied =
        run(&plan(steps()), &mut Executors::of_host(&mut executor), &mut Vec::new(), &mut (), &options())
            .unwrap();
    let endings: Vec<Ending> = applied.steps.iter().map(|step| step.outcome).collect();
    assert_eq!(endings[..5], [Ending::Done; 5]);
    assert_eq!(endings[5..], [Ending::Unsupported], "{:?}", applied.steps[5]);
    let seen = ip("addr show pf0");
    for expected in ["mtu 9000", "02:00:00:00:01:04", "UP", "inet 10.20.31.204/24", "inet6 fd00::4/64"] {
        assert!(seen.contains(expected), "{expected} is not in {seen}");
    }
    // Each fact holds afterwards, and the opposite does not.
    let removed = Fact::LacksAddress { function: pf(), address: "10.20.31.204/24".parse().unwrap() };
    assert!(executor.holds(&removed).unwrap().is_err());
}

fn a_failure_leaves_all_as_before(root: &Path) {
    // The first time that an interface comes up the kernel gives it a queueing discipline, for good.
    ip("link set pf0 up");
    ip("link set pf0 down");
    let before = ip("addr show pf0");
    let mut all = steps();
    let function: Bdf = "0000:09:00.0".parse().unwrap();
    let direction = Direction::Up;
    // There is no such function.
    all.push((
        FunctionAction::SetLink { function, direction }.into(),
        None,
        Fact::Link { function, direction },
    ));
    let mut executor = HostExecutor::new(Root::at(root)).unwrap();
    let mut journal: Vec<Entry> = Vec::new();
    let outcome = run(&plan(all), &mut Executors::of_host(&mut executor), &mut journal, &mut (), &options());
    let Err(ApplyError::RolledBack { step, undone, not_undone, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(step, StepId(7));
    assert_eq!(undone, [5, 4, 3, 2, 1].map(StepId));
    assert_eq!(not_undone, []);
    assert_eq!(ip("addr show pf0"), before);
    assert_eq!(journal.last(), Some(&Entry::End { applied: false }));
}

fn a_link_is_waited_for(root: &Path) {
    let mut executor = HostExecutor::new(Root::at(root)).unwrap();
    ip("link set pf0 up");
    let wait = FunctionAction::AwaitLink { pf: pf(), within: 1 };
    let Err(ExecuteError::Unsupported(why)) = executor.execute(&wait, Duration::from_secs(5)) else {
        panic!("the other end is down, so there is no link to see")
    };
    assert_eq!(why, "carrier of pf0 is 0 after 1 s; is its cable in?");
    ip("link set peer up");
    executor.execute(&wait, Duration::from_secs(5)).unwrap();
    assert_eq!(executor.holds(&Fact::LinkUp { pf: pf() }).unwrap(), Ok(()));
}

fn an_interface_is_renamed(root: &Path) {
    let function = pf();
    let to: InterfaceName = "lan0".parse().unwrap();
    let mut executor = HostExecutor::new(Root::at(root)).unwrap();
    let fact = Fact::Name { function, name: to.clone() };
    assert_eq!(executor.holds(&fact).unwrap(), Err("it is called pf0".to_owned()));
    executor.execute(&FunctionAction::Rename { function, to }, Duration::from_secs(5)).unwrap();
    assert!(ip("link show lan0").contains("lan0"));
    fs::remove_file(net(root).join("pf0")).unwrap();
    has_interface(root, "lan0");
    assert_eq!(executor.holds(&fact).unwrap(), Ok(()));
}

/// Sets `pf0` up as a host uses it.
fn set_up() {
    ip("link set peer up");
    ip("link set pf0 up");
    for line in [
        "address add 192.0.2.7/24 dev pf0",
        "address add 192.0.2.8/24 dev pf0",
        "address add fd00::7/64 dev pf0 nodad",
        "route add default via 192.0.2.1 dev pf0 metric 100 proto dhcp src 192.0.2.8 mtu 1400",
        "route add 198.51.100.0/24 via 192.0.2.2 dev pf0 table 100",
        "route add 203.0.113.0/24 via 10.9.9.9 dev pf0 onlink advmss 1200",
        "route add fd01::/48 via fd00::1 dev pf0",
    ] {
        ip(line);
    }
}

/// How the host uses `pf0`, as a scan tells.
fn setup() -> InterfaceSetup {
    let mut netlink = Netlink::open().unwrap();
    let all = netlink.links_with_addresses().unwrap();
    let report = all.into_iter().find(|report| report.interface.name.as_str() == "pf0").unwrap();
    let addresses = report.interface.addresses;
    let local = |address: &InterfaceAddress| address.to_string().starts_with("fe80");
    let routes = netlink.configured_routes().unwrap();
    let setup = InterfaceSetup {
        name: Some(report.interface.name),
        mtu: Mtu::new(report.interface.mtu),
        up: report.interface.up,
        master: None,
        addresses: addresses.into_iter().filter(|address| !local(address)).collect(),
        routes: routes
            .into_iter()
            .filter(|(over, _)| *over == report.index)
            .map(|(_, route)| route)
            .collect(),
        vlans: Vec::new(),
    };
    assert_eq!((setup.addresses.len(), setup.routes.len()), (3, 4), "{setup:?}");
    setup
}

/// Addresses and routes, of IPv6 without those that the kernel makes when it sees a carrier.
fn used() -> String {
    let routes = [
        "-4 route show table all",
        "-6 route show table all proto static",
        "-6 route show table all proto boot",
    ];
    let all = ["-4 address show pf0", "-6 address show pf0 scope global"].into_iter().chain(routes);
    let lines: String = all.map(ip).collect();
    let mut lines: Vec<&str> = lines.lines().map(str::trim).collect();
    // The kernel lists routes in the order in which they were added.
    lines.sort_unstable();
    lines.join("\n")
}

fn what_goes_with_it_comes_back(root: &Path) {
    set_up();
    let (function, setup, before) = (pf(), setup(), used());
    let restore = || FunctionAction::RestoreInterface { function, setup: setup.clone() }.into();
    let is = Fact::InterfaceIs { function, setup: setup.clone() };
    let link = |direction| FunctionAction::SetLink { function, direction }.into();
    let down = Fact::Link { function, direction: Direction::Down };
    let gone: Bdf = "0000:09:00.0".parse().unwrap();
    let never = FunctionAction::SetLink { function: gone, direction: Direction::Up };
    let steps = vec![
        (restore(), Some(restore()), is.clone()),
        (link(Direction::Down), Some(link(Direction::Up)), down),
        // There is no such function.
        (never.into(), None, Fact::Link { function: gone, direction: Direction::Up }),
    ];
    let mut executor = HostExecutor::new(Root::at(root)).unwrap();
    let mut journal: Vec<Entry> = Vec::new();
    let outcome =
        run(&plan(steps), &mut Executors::of_host(&mut executor), &mut journal, &mut (), &options());
    let Err(ApplyError::RolledBack { not_undone, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(not_undone, []);
    assert_eq!(used(), before);

    // As after its driver was bound anew: nothing is left of it.
    ip("link set pf0 down");
    ip("address flush dev pf0");
    ip("link set pf0 mtu 1400");
    assert_ne!(executor.holds(&is).unwrap(), Ok(()));
    restore_all(&mut executor, &setup);
    assert_eq!(used(), before);
}

/// Brings back how the host used the interface; all of it is so then, or left as somebody has set it up.
fn restore_all(executor: &mut HostExecutor, setup: &InterfaceSetup) {
    let (function, setup) = (pf(), setup.clone());
    let action = FunctionAction::RestoreInterface { function, setup: setup.clone() };
    executor.execute(&action, Duration::from_secs(5)).unwrap();
    assert_eq!(executor.holds(&Fact::InterfaceIs { function, setup }).unwrap(), Ok(()));
}

fn a_port_is_one_again(root: &Path, kind: &str) {
    ip(&format!("link add old type {kind}"));
    ip("link add new type bridge");
    let function = pf();
    let master = Master { name: "old".parse().unwrap(), kind: None, filters_vlans: false, vlans: None };
    let setup = InterfaceSetup { up: true, master: Some(master), ..InterfaceSetup::default() };
    let is = Fact::InterfaceIs { function, setup: setup.clone() };
    let mut executor = HostExecutor::new(Root::at(root)).unwrap();
    // It is up, as one whose driver was bound anew may be: a bond takes no such port.
    ip("link set pf0 up");
    assert_eq!(executor.holds(&is).unwrap(), Err("it is no port of old".to_owned()));
    let mut restore = || {
        restore_all(&mut executor, &setup);
        ip("link show pf0")
    };
    let link = restore();
    assert!(link.contains("master old") && link.contains("UP"), "{link}");
    // Somebody has made it a port of another meanwhile.
    ip("link set pf0 nomaster");
    ip("link set pf0 master new");
    assert!(restore().contains("master new"));
    ip("link set pf0 nomaster");
    // What is gone has no ports.
    ip("link delete old");
    assert!(!restore().contains("master"));
}

fn a_port_has_its_vlans_again(root: &Path) {
    ip("link add bridge0 type bridge vlan_filtering 1");
    ip("link set pf0 master bridge0");
    let bridge = |line: &str| Command::new("bridge").args(line.split(' ')).succeed().expect(line).text();
    for line in ["add dev pf0 vid 2-4094", "del dev pf0 vid 1", "add dev pf0 vid 7 pvid untagged"] {
        bridge(&format!("vlan {line}"));
    }
    let before = bridge("vlan show dev pf0");
    let mut netlink = Netlink::open().unwrap();
    let port = netlink.link_named(&"pf0".parse().unwrap()).unwrap().unwrap().index;
    let vlans =
        netlink.port_vlans().unwrap().into_iter().find_map(|(of, vlans)| (of == port).then_some(vlans));
    let master =
        Master { name: "bridge0".parse().unwrap(), kind: Some("bridge".into()), filters_vlans: true, vlans };
    let (function, setup) = (pf(), InterfaceSetup { master: Some(master), ..InterfaceSetup::default() });
    assert_eq!(setup.to_string(), "a port of bridge0 (VLANs 2-6,8-4094, untagged 7, PVID 7)");
    let is = Fact::InterfaceIs { function, setup: setup.clone() };
    let mut executor = HostExecutor::new(Root::at(root)).unwrap();
    assert_eq!(executor.holds(&is).unwrap(), Ok(()));
    let mut restore = || {
        restore_all(&mut executor, &setup);
        bridge("vlan show dev pf0")
    };
    // What left the bridge, and what was made its port when Penstock was killed.
    ip("link set pf0 nomaster");
    assert_eq!(restore(), before);
    ip("link set pf0 nomaster");
    ip("link set pf0 master bridge0");
    assert_eq!(restore(), before);
    // Somebody has put the port into VLANs of their own meanwhile.
    ip("link set pf0 nomaster");
    ip("link set pf0 master bridge0");
    bridge("vlan add dev pf0 vid 30");
    let theirs = bridge("vlan show dev pf0");
    assert_eq!(restore(), theirs);
    ip("link set pf0 nomaster");
    ip("link set pf0 master bridge0");
    assert_ne!(executor.holds(&is).unwrap(), Ok(()));
}

/// The interface of this name as a scan tells of it, with what stands on it.
fn scanned(netlink: &mut Netlink, name: &str) -> Interface {
    let all = netlink.links_with_addresses().unwrap();
    let report = all.into_iter().find(|report| report.interface.name.as_str() == name).unwrap();
    let routes = netlink.configured_routes().unwrap().into_iter();
    let routes = routes.filter(|(over, _)| *over == report.index).map(|(_, route)| route).collect();
    let links = netlink.links().unwrap().into_iter();
    let uppers = links.filter_map(|upper| {
        let lower = upper.lower.filter(|lower| lower.index == report.index)?;
        let interface = scanned(netlink, upper.interface.name.as_str());
        Some(Upper { kind: upper.kind?, vlan: lower.vlan, interface })
    });
    let uppers = uppers.collect();
    let master = report.master.map(|index| {
        let master = netlink.link_at(index).unwrap().unwrap();
        Master { name: master.interface.name, kind: master.kind, filters_vlans: false, vlans: None }
    });
    Interface { routes, uppers, master, ..report.interface }
}

fn the_interface_of_a_vlan_comes_back(root: &Path) {
    ip("link set peer up");
    ip("link set pf0 up");
    ip("link add bridge0 type bridge");
    for line in [
        "link add link pf0 name office type vlan id 100 egress-qos-map 1:5 ingress-qos-map 3:2",
        "link set office mtu 1400 address 02:00:00:00:00:64 up",
        "address add 198.18.0.7/24 dev office",
        "address add fd07::7/64 dev office nodad",
        "route add 198.51.200.0/24 via 198.18.0.1 dev office",
        // One VLAN in another, a port of a bridge.
        "link add link office name inner type vlan protocol 802.1ad id 5 loose_binding on",
        "link set inner up master bridge0",
    ] {
        ip(line);
    }
    let shown = || -> String {
        let links = ["office", "inner"].map(|name| {
            let link = ip(&format!("-d -o link show {name}"));
            let words: Vec<&str> = link.split_whitespace().collect();
            let after = |word: &'static str| words.iter().skip_while(move |it| **it != word).copied();
            let mtu = after("mtu").nth(1).unwrap();
            let vlan: Vec<&str> = after("vlan").take_while(|it| *it != "addrgenmode").collect();
            let vlan = vlan.join(" ");
            let [mac, master] = ["link/ether", "master"].map(|it| after(it).nth(1).unwrap_or("none"));
            format!("{name} {mtu} {vlan} {mac} {master} {}\n", link.contains(",UP"))
        });
        let rest = ["-4 address show office", "-6 address show office scope global", "route show dev office"]
            .map(|line| ip(line).lines().filter(|line| !line.contains(": ")).collect::<Vec<_>>().join("\n"));
        links.into_iter().chain(rest).collect()
    };
    let before = shown();
    assert!(
        before.contains("id 100") && before.contains("1:5") && before.contains("198.51.200.0/24"),
        "{before}"
    );
    let function = pf();
    let setup =
        InterfaceSetup { up: true, ..InterfaceSetup::used(&scanned(&mut Netlink::open().unwrap(), "pf0")) };
    let told = setup.to_string();
    assert!(told.contains("office (VLAN 100: up, MTU 1400, 198.18.0.7/24"), "{told}");
    assert!(told.contains("inner (VLAN 5 of 802.1ad: up, MTU 1400, a port of bridge0)"), "{told}");
    let is = Fact::InterfaceIs { function, setup: setup.clone() };
    let mut executor = HostExecutor::new(Root::at(root)).unwrap();
    assert_eq!(executor.holds(&is).unwrap(), Ok(()));
    let mut restore = || restore_all(&mut executor, &setup);
    // What stood on it is gone with the driver.
    ip("link delete office");
    restore();
    assert_eq!(shown(), before);
    // It was down only, and the VLAN with it.
    ip("link set pf0 down");
    restore();
    assert_eq!(shown(), before);
    // Somebody has given its name to another.
    ip("link delete office");
    ip("link add office type bridge");
    restore();
    assert!(!ip("-d link show office").contains("vlan protocol"));
    assert!(Command::new("ip").args(["link", "show", "inner"]).succeed().is_err());
}

fn what_somebody_set_up_stays(root: &Path) {
    set_up();
    let setup = setup();
    ip("link set pf0 down");
    ip("address flush dev pf0");
    ip("link set pf0 up");
    ip("address add 10.0.0.9/8 dev pf0");
    let mut executor = HostExecutor::new(Root::at(root)).unwrap();
    restore_all(&mut executor, &setup);
    let seen = used();
    assert!(seen.contains("10.0.0.9/8") && !seen.contains("192.0.2."), "{seen}");
    // Nobody has set it up for IPv6.
    assert!(seen.contains("fd00::7/64") && seen.contains("fd01::/48 via fd00::1"), "{seen}");
}
