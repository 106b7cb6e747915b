#![allow(clippy::disallowed_methods)]

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use penstock_model::{LinkState, Mac, Mtu, TxRate, VfAttribute, VlanId, VlanProtocol, VlanQos};
use tempfile::TempDir;

use super::*;
const PF: &str = "0000:04:00.0";

/// A tree with one PF of two VFs, of which the first is bound.
struct Tree(TempDir);

impl Tree {
    fn new() -> Tree {
        let tree = Tree(tempfile::tempdir().unwrap());
        for directory in ["0000:04:00.0/net/lan0", "0000:04:10.0", "0000:04:10.2"] {
            fs::create_dir_all(tree.device(directory)).unwrap();
        }
        fs::create_dir_all(tree.path("sys/class/net/lan0")).unwrap();
        for (file, text) in [
            ("0000:04:00.0/sriov_numvfs", "2\n"),
            ("0000:04:00.0/sriov_totalvfs", "7\n"),
            ("0000:04:00.0/sriov_drivers_autoprobe", "1\n"),
        ] {
            fs::write(tree.device(file), text).unwrap();
        }
        for (file, text) in
            [("ifindex", "7\n"), ("address", "0c:c4:7a:9a:61:ea\n"), ("mtu", "1500\n"), ("flags", "0x1003\n")]
        {
            fs::write(tree.path(&format!("sys/class/net/lan0/{file}")), text).unwrap();
        }
        fs::write(tree.device("0000:04:00.0/net/lan0/ifindex"), "7\n").unwrap();
        symlink("../0000:04:10.0", tree.device("0000:04:00.0/virtfn0")).unwrap();
        symlink("../0000:04:10.2", tree.device("0000:04:00.0/virtfn1")).unwrap();
        symlink("../../../bus/pci/drivers/vfio-pci", tree.device("0000:04:10.0/driver")).unwrap();
        tree
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn device(&self, path: &str) -> PathBuf {
        self.path("sys/bus/pci/devices").join(path)
    }

    fn executor(&self) -> HostExecutor {
        HostExecutor::new(Root::at(self.0.path())).unwrap()
    }

    fn holds(&self, fact: Fact) -> bool {
        self.executor().holds(&fact).unwrap().is_ok()
    }
}

fn bdf(text: &str) -> Bdf {
    text.parse().unwrap()
}

#[test]
fn facts_are_what_the_files_say() {
    let tree = Tree::new();
    let pf = bdf(PF);
    let mtu = |bytes| Fact::MtuIs { function: pf, mtu: Mtu::new(bytes).unwrap() };
    let mac = |text: &str| Fact::Mac { function: pf, mac: text.parse().unwrap() };
    let name = |text: &str| Fact::Name { function: pf, name: text.parse().unwrap() };
    let link = |direction| Fact::Link { function: pf, direction };
    let driver = |function: &str, driver: Option<&str>| Fact::Driver {
        function: bdf(function),
        driver: driver.map(str::to_owned),
        mac: None,
    };
    for (fact, so) in [
        (Fact::Autoprobe { pf, on: true }, true),
        (Fact::Autoprobe { pf, on: false }, false),
        (Fact::VfCount { pf, count: 2 }, true),
        (Fact::VfCount { pf, count: 3 }, false),
        (mtu(1500), true),
        (mtu(9000), false),
        (mac("0c:c4:7a:9a:61:ea"), true),
        (mac("0c:c4:7a:9a:61:eb"), false),
        (name("lan0"), true),
        (name("lan1"), false),
        (link(Direction::Up), true),
        (link(Direction::Down), false),
        (driver("0000:04:10.0", Some("vfio-pci")), true),
        (driver("0000:04:10.0", Some("igbvf")), false),
        (driver("0000:04:10.0", None), false),
        (driver("0000:04:10.2", None), true),
    ] {
        assert_eq!(tree.holds(fact.clone()), so, "{fact}");
    }
}

#[test]
fn a_count_whose_vfs_do_not_exist_is_not_so() {
    let tree = Tree::new();
    fs::remove_file(tree.device("0000:04:00.0/virtfn1")).unwrap();
    let seen = tree.executor().holds(&Fact::VfCount { pf: bdf(PF), count: 2 }).unwrap();
    assert_eq!(seen, Err("sriov_numvfs is 2 and 1 exist: VF 1 has not come".to_owned()));
    fs::write(tree.device("0000:04:00.0/sriov_numvfs"), "20\n").unwrap();
    let seen = tree.executor().holds(&Fact::VfCount { pf: bdf(PF), count: 20 }).unwrap().unwrap_err();
    assert!(
        seen.contains("20 and 1 exist: VF 1, 2, 3") && seen.ends_with("16 and 3 more have not come"),
        "{seen}"
    );
}

/// A kernel that cannot be told to leave VFs alone binds them, and the drivers' probes may go on when the file says that all are there.
#[test]
fn vfs_that_the_kernel_binds_are_waited_for_with_their_interfaces() {
    let tree = Tree::new();
    symlink("../../drivers/igbvf", tree.device("0000:04:10.2/driver")).unwrap();
    symlink("../0000:04:00.0", tree.device("0000:04:10.2/physfn")).unwrap();
    // Whether it is waited: then the interface comes, and udev has loaded what it had to.
    let waits = |present: &str| {
        fs::write(tree.device("0000:04:00.0/sriov_numvfs"), present).unwrap();
        let mut executor = tree.executor();
        executor.pause = |root| {
            fs::create_dir_all(root.path("/sys/bus/pci/devices/0000:04:10.2/net/eth3")).unwrap();
            let _ = fs::remove_file(root.path("/run/udev/queue"));
        };
        let action = FunctionAction::SetVfCount { pf: bdf(PF), count: 2 };
        executor.execute(&action, Duration::from_secs(60)).unwrap();
        fs::remove_dir(tree.device("0000:04:10.2/net/eth3")).is_ok()
    };
    assert!(waits("0\n"));
    assert!(!waits("2\n"), "nothing was changed");
    fs::remove_file(tree.device("0000:04:00.0/sriov_drivers_autoprobe")).unwrap();
    assert!(waits("0\n"), "without the knob");
    // Its driver is still to be loaded.
    fs::remove_file(tree.device("0000:04:10.2/driver")).unwrap();
    assert!(!waits("0\n"));
    fs::create_dir_all(tree.path("run/udev")).unwrap();
    fs::write(tree.path("run/udev/queue"), "").unwrap();
    assert!(waits("0\n"));
    symlink("../../drivers/igbvf", tree.device("0000:04:10.2/driver")).unwrap();
    // One that is left alone has none to wait for.
    fs::write(tree.device("0000:04:00.0/sriov_drivers_autoprobe"), "0\n").unwrap();
    assert!(!waits("0\n"));
}

#[test]
fn a_number_of_vfs_is_the_kernels_own_whichever_of_them_can_be_seen() {
    let tree = Tree::new();
    fs::remove_file(tree.device("0000:04:00.0/virtfn1")).unwrap();
    let mut executor = tree.executor();
    assert_eq!((executor.vf_count(bdf(PF)), executor.vf_count(bdf("0000:05:00.0"))), (Some(2), None));
    symlink("../0000:04:00.0", tree.device("0000:04:10.0/physfn")).unwrap();
    assert_eq!((executor.pf_of(bdf("0000:04:10.0")), executor.pf_of(bdf(PF))), (Some(bdf(PF)), None));
    // Refused before anything is written: Linux takes no number over another.
    let other = FunctionAction::SetVfCount { pf: bdf(PF), count: 5 };
    let refused = executor.execute(&other, Duration::from_secs(1));
    assert!(matches!(refused, Err(ExecuteError::Refused { .. })), "{refused:?}");
}

#[test]
fn a_file_is_what_it_holds_and_nothing_beside_it() {
    let tree = Tree::new();
    let mut executor = tree.executor();
    fs::create_dir_all(tree.path("etc/directory")).unwrap();
    for (file, text) in [("etc/a", "one"), ("etc/a.ab12cd.part", "half")] {
        fs::write(tree.path(file), text).unwrap();
    }
    for (path, text, is) in [
        ("/etc/a", Some("one"), Some(true)),
        ("/etc/a", Some("two"), Some(false)),
        ("/etc/a", None, Some(false)),
        ("/etc/b", Some("one"), Some(false)),
        ("/etc/b", None, Some(true)),
        ("/etc/directory", Some("one"), None),
    ] {
        assert_eq!(executor.file_is(path, text), is, "{path} {text:?}");
    }
}

#[test]
fn a_network_driver_without_an_interface_is_not_yet_bound_in_full() {
    let tree = Tree::new();
    symlink("../../../bus/pci/drivers/igbvf", tree.device("0000:04:10.2/driver")).unwrap();
    let fact = Fact::Driver { function: bdf("0000:04:10.2"), driver: Some("igbvf".to_owned()), mac: None };
    assert!(!tree.holds(fact.clone()));
    // virtio keeps the interface one directory further down.
    fs::create_dir_all(tree.device("0000:04:10.2/virtio3/net/eth3")).unwrap();
    fs::create_dir_all(tree.path("sys/class/net/eth3")).unwrap();
    fs::write(tree.device("0000:04:10.2/virtio3/net/eth3/ifindex"), "9\n").unwrap();
    assert!(tree.holds(fact));
    // Nor with an address of its driver's own, where its PF keeps another.
    fs::write(tree.path("sys/class/net/eth3/address"), "02:00:00:00:00:01\n").unwrap();
    let with = |mac: &str| Fact::Driver {
        function: bdf("0000:04:10.2"),
        driver: Some("igbvf".to_owned()),
        mac: Some(mac.parse().unwrap()),
    };
    assert!(tree.holds(with("02:00:00:00:00:01")));
    let seen = tree.executor().holds(&with("02:00:00:00:00:02")).unwrap();
    assert_eq!(seen, Err("address of eth3 is 02:00:00:00:00:01".to_owned()));
}

#[test]
fn an_interface_is_the_functions_own_though_another_has_its_name_by_now() {
    let tree = Tree::new();
    fs::write(tree.path("sys/class/net/lan0/ifindex"), "8\n").unwrap();
    assert_eq!(tree.executor().find(bdf(PF)).unwrap().map(|found| found.index), Some(7));
}

#[test]
fn a_driver_that_keeps_an_address_of_its_own_is_bound_anew_until_the_deadline() {
    let tree = Tree::new();
    fs::create_dir_all(tree.path("sys/bus/pci/drivers/igbvf")).unwrap();
    symlink("../../drivers/igbvf", tree.device("0000:04:10.2/driver")).unwrap();
    fs::write(tree.path("sys/bus/pci/drivers/igbvf/unbind"), "").unwrap();
    fs::create_dir_all(tree.device("0000:04:10.2/net/eth3")).unwrap();
    fs::create_dir_all(tree.path("sys/class/net/eth3")).unwrap();
    fs::write(tree.device("0000:04:10.2/net/eth3/ifindex"), "9\n").unwrap();
    fs::write(tree.path("sys/class/net/eth3/address"), "02:00:00:00:00:01\n").unwrap();
    let bind = |mac: &str| {
        let mac = Some(mac.parse().unwrap());
        let function = bdf("0000:04:10.2");
        let action = FunctionAction::SetDriver { function, driver: Some("igbvf".to_owned()), mac };
        tree.executor().execute(&action, Duration::from_millis(300))
    };
    bind("02:00:00:00:00:01").unwrap();
    let unbound = || fs::read_to_string(tree.path("sys/bus/pci/drivers/igbvf/unbind")).unwrap();
    assert_eq!(unbound(), "");
    let text = penstock_host::chain(&bind("02:00:00:00:00:02").unwrap_err());
    assert_eq!(unbound().trim(), "0000:04:10.2", "{text}");
    assert!(
        text.contains("and address of eth3 is 02:00:00:00:00:01: its PF did not tell it 02:00:00:00:00:02"),
        "{text}"
    );
}

#[test]
fn of_a_function_that_is_gone_only_the_negative_holds() {
    let tree = Tree::new();
    let gone = bdf("0000:09:00.0");
    for (fact, so) in [
        (Fact::VfCount { pf: gone, count: 0 }, true),
        (Fact::VfCount { pf: gone, count: 2 }, false),
        (Fact::Driver { function: gone, driver: None, mac: None }, true),
        (Fact::Driver { function: gone, driver: Some("igb".to_owned()), mac: None }, false),
        (Fact::Link { function: gone, direction: Direction::Down }, true),
        (Fact::Link { function: gone, direction: Direction::Up }, false),
        (Fact::LacksAddress { function: gone, address: "10.0.0.1/24".parse().unwrap() }, true),
    ] {
        assert_eq!(tree.holds(fact.clone()), so, "{fact}");
    }
    // Nor is giving back what is gone an error.
    let second = Duration::from_secs(1);
    let unbind = FunctionAction::SetDriver { function: gone, driver: None, mac: None };
    tree.executor().execute(&unbind, second).unwrap();
    let bind = FunctionAction::SetDriver { function: gone, driver: Some("igbvf".to_owned()), mac: None };
    assert!(tree.executor().execute(&bind, second).is_err());
}

#[test]
fn a_kernel_without_the_knob_is_unsupported() {
    let tree = Tree::new();
    let second = Duration::from_secs(1);
    let off = FunctionAction::SetAutoprobe { pf: bdf(PF), on: false };
    tree.executor().execute(&off, second).unwrap();
    assert!(tree.holds(Fact::Autoprobe { pf: bdf(PF), on: false }));
    fs::remove_file(tree.device("0000:04:00.0/sriov_drivers_autoprobe")).unwrap();
    let outcome = tree.executor().execute(&off, second);
    assert!(matches!(outcome, Err(ExecuteError::Unsupported(_))), "{outcome:?}");
}

#[test]
fn a_function_without_an_interface_fails_in_words() {
    let tree = Tree::new();
    let up = FunctionAction::SetLink { function: bdf("0000:04:10.2"), direction: Direction::Up };
    let error = tree.executor().execute(&up, Duration::from_secs(1)).unwrap_err();
    let text = penstock_host::chain(&error);
    assert_eq!(text, "0000:04:10.2 cannot be changed: it has no network interface on the host");
}

#[test]
fn many_functions_are_bound_side_by_side_and_answered_in_order() {
    let tree = Tree::new();
    let functions: Vec<Bdf> = (0..11).map(|n| bdf(&format!("0000:09:00.{}", n % 8))).collect();
    let there = [0, 5, 10];
    let actions: Vec<FunctionAction> = functions
        .iter()
        .enumerate()
        .map(|(n, function)| FunctionAction::SetDriver {
            // Unbinding what is not there or has no driver works; binding what is not there does not.
            function: *function,
            driver: (!there.contains(&n)).then(|| "vfio-pci".to_owned()),
            mac: None,
        })
        .collect();
    let outcomes = tree.executor().execute_all(&actions.iter().collect::<Vec<_>>(), Duration::from_secs(1));
    let worked: Vec<usize> = (0..outcomes.len()).filter(|n| outcomes[*n].is_ok()).collect();
    assert_eq!((outcomes.len(), &worked[..]), (11, &there[..]));
}

#[test]
fn attributes_are_compared_with_what_the_driver_reports() {
    let vf = VfIndex::new(1).unwrap();
    let mac: Mac = "02:00:00:00:00:01".parse().unwrap();
    let vlan = |id, qos, protocol| VfAttribute::Vlan {
        id: VlanId::new(id).unwrap(),
        qos: VlanQos::new(qos).unwrap(),
        protocol,
    };
    let state = VfState {
        mac,
        vlan: VlanId::new(100).unwrap(),
        qos: VlanQos::new(3).unwrap(),
        trust: Some(true),
        max_tx_rate: TxRate(100),
        link_state: Some(LinkState::Auto),
        ..VfState::default()
    };
    let vfs = [(vf, state)];
    let rate = |max| VfAttribute::Rate { min: TxRate(0), max: TxRate(max) };
    for (attribute, so) in [
        (VfAttribute::Mac(mac), Some(true)),
        (VfAttribute::Mac("02:00:00:00:00:02".parse().unwrap()), Some(false)),
        (vlan(100, 3, VlanProtocol::Dot1q), Some(true)),
        (vlan(100, 0, VlanProtocol::Dot1q), Some(false)),
        (vlan(100, 3, VlanProtocol::Dot1ad), Some(false)),
        (vlan(0, 0, VlanProtocol::Dot1q), Some(false)),
        (VfAttribute::Spoofchk(true), None),
        (VfAttribute::Trust(true), Some(true)),
        (VfAttribute::Trust(false), Some(false)),
        (rate(100), Some(true)),
        (rate(0), Some(false)),
        (VfAttribute::LinkState(LinkState::Auto), Some(true)),
        (VfAttribute::LinkState(LinkState::Disable), Some(false)),
    ] {
        let seen = match facts::judge(&vfs, vf, &attribute) {
            Ok(seen) => Some(seen.is_ok()),
            Err(ExecuteError::Unsupported(_)) => None,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(seen, so, "{attribute}");
    }
    // virtio reports no VF at all; another driver not this one.
    let mac = VfAttribute::Mac(mac);
    assert!(matches!(facts::judge(&[], vf, &mac), Err(ExecuteError::Unsupported(_))));
    assert!(matches!(facts::judge(&vfs, VfIndex::new(2).unwrap(), &mac), Ok(Err(_))));
}

/// Half a file of whoever was killed while writing it: its step, and the way back from it, have that to remove still.
#[test]
fn a_file_is_not_as_it_should_be_beside_half_of_one() {
    let tree = Tree::new();
    let path = "/etc/unit".to_owned();
    let part = |writer: u32| tree.path(&format!("etc/unit.{writer}.0123456789abcdef.part"));
    let write = FileAction::WriteFile { path: path.clone(), text: "new".to_owned() };
    let remove = FileAction::RemoveFile { path };
    fs::create_dir_all(tree.path("etc")).unwrap();
    for action in [write, remove] {
        tree.executor().execute(&action, Duration::from_secs(1)).unwrap();
        // No process has that number; the first one lives, and goes on.
        for (writer, so) in [(4_194_305, false), (1, true)] {
            fs::write(part(writer), "ne").unwrap();
            assert_eq!(tree.holds(action.after()), so, "{action}, {writer}");
            tree.executor().execute(&action, Duration::from_secs(1)).unwrap();
            assert!(tree.holds(action.after()), "{action}, {writer}");
        }
        assert!(!part(4_194_305).exists() && part(1).exists());
    }
}

#[test]
fn the_command_line_is_not_as_it_should_be_beside_half_a_file() {
    use penstock_model::inventory::BootLoader;
    use penstock_plan::action::{BootArguments, BootFile};
    let tree = Tree::new();
    fs::create_dir_all(tree.path("etc/kernel")).unwrap();
    let mut over = None;
    for text in [Some("quiet".to_owned()), None] {
        let next = text.clone();
        let arguments = BootArguments {
            // Without a kernel it has nothing to run.
            loader: BootLoader::KernelInstall,
            file: Some(BootFile { path: "/etc/kernel/words".to_owned(), text, over: Some(over.take()) }),
            words: vec![],
            before: vec![],
        };
        let action = BootAction::SetBootArguments(arguments);
        tree.executor().execute(&action, Duration::from_secs(1)).unwrap();
        assert!(tree.holds(action.after()), "{action}");
        let part = tree.path("etc/kernel/words.4194305.0123456789abcdef.part");
        fs::write(&part, "qui").unwrap();
        assert!(!tree.holds(action.after()), "{action}");
        tree.executor().execute(&action, Duration::from_secs(1)).unwrap();
        assert!(tree.holds(action.after()) && !part.exists(), "{action}");
        over = next;
    }
    assert!(!tree.path("etc/kernel/words").exists());
}

#[test]
fn what_an_older_version_did_to_the_command_line_is_taken_back_as_that_would_have() {
    use penstock_model::inventory::BootLoader;
    use penstock_plan::action::{BootArguments, BootFile};
    let tree = Tree::new();
    fs::create_dir_all(tree.path("etc/kernel")).unwrap();
    for before in [Some("root=UUID=1 ro\n".to_owned()), None] {
        fs::write(tree.path("etc/kernel/cmdline"), "root=UUID=1 ro iommu=pt\n").unwrap();
        let back = BootAction::SetBootArguments(BootArguments {
            loader: BootLoader::KernelInstall,
            file: Some(BootFile { path: "/etc/kernel/cmdline".to_owned(), text: before.clone(), over: None }),
            words: vec![],
            before: vec!["iommu=pt".to_owned()],
        });
        assert!(!tree.holds(back.after()));
        tree.executor().execute(&back, Duration::from_secs(1)).unwrap();
        assert_eq!(fs::read_to_string(tree.path("etc/kernel/cmdline")).ok(), before);
        assert!(tree.holds(back.after()));
    }
}

#[test]
fn what_others_have_written_to_the_command_line_since_stays() {
    use penstock_model::inventory::BootLoader;
    use penstock_plan::action::{BootArguments, BootFile};
    let tree = Tree::new();
    let path = "/etc/kernel/cmdline".to_owned();
    fs::create_dir_all(tree.path("etc/kernel")).unwrap();
    let ours = "root=UUID=1 ro iommu=pt hugepagesz=1G hugepages=4\n";
    // The way back of a run that had found a file, and of one that had found none.
    for before in [Some("root=UUID=1  ro\n".to_owned()), None] {
        let back = BootArguments {
            loader: BootLoader::KernelInstall,
            file: Some(BootFile {
                path: path.clone(),
                text: before.clone(),
                over: Some(Some(ours.to_owned())),
            }),
            words: vec![],
            before: vec!["iommu=pt".to_owned(), "hugepagesz=1G hugepages=4".to_owned()],
        };
        let back = BootAction::SetBootArguments(back);
        let now = || fs::read_to_string(tree.path("etc/kernel/cmdline")).ok();
        for (present, after) in [
            (ours, before.as_deref()),
            // The disk has another name since, and somebody has a pool of their own.
            (
                "root=UUID=2 ro iommu=pt hugepagesz=2M hugepages=4 hugepagesz=1G hugepages=4 quiet\n",
                Some("root=UUID=2 ro hugepagesz=2M hugepages=4 quiet\n"),
            ),
        ] {
            fs::write(tree.path("etc/kernel/cmdline"), present).unwrap();
            assert!(!tree.holds(back.after()), "{present}");
            tree.executor().execute(&back, Duration::from_secs(1)).unwrap();
            assert_eq!(now().as_deref(), after, "{present}");
            assert!(tree.holds(back.after()), "{present}");
        }
    }
}

/// What `networkctl reload` was to follow.
#[test]
fn a_manager_that_has_not_read_its_file_is_not_told() {
    let tree = Tree::new();
    let pf = bdf(PF);
    for functions in [&["0000:04:10.0"][..], &[]] {
        let functions = functions.iter().map(|text| bdf(text)).collect();
        let action = FunctionAction::LeaveAlone {
            manager: penstock_model::inventory::Manager::Networkd,
            pf,
            functions,
        };
        tree.executor().execute(&action, Duration::from_secs(1)).unwrap();
        assert!(tree.holds(action.after()), "{action}");
        fs::write(tree.path("run/systemd/network/00-00-penstock-0000-04-00.0.network.unread"), "").unwrap();
        let seen = tree.executor().holds(&action.after()).unwrap();
        assert_eq!(seen, Err("it has not read its file".to_owned()), "{action}");
        tree.executor().execute(&action, Duration::from_secs(1)).unwrap();
        assert!(tree.holds(action.after()), "{action}");
    }
}

mod taken;
