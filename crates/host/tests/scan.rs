//! Recorded machines in, inventories out. `UPDATE_GOLDEN=1` writes anew what is expected; read the difference.
#![allow(clippy::disallowed_methods)]

use std::{env, fs, io, os::unix::fs::symlink};

use penstock_host::{
    InterfaceReport, Links, Root,
    record::Recorder,
    scan,
    scan::{LinkError, ask_drivers},
    scan_system,
};
use penstock_model::{
    Bdf, ByteSize, InterfaceRoute, Inventory, LinkState, PortVlans, TxRate, VfIndex, VlanId, VlanQos,
    inventory::{EswitchMode, Interface, Representor, SwitchMode, VfState},
};
use penstock_testkit::sysfs;
use proptest::prelude::*;

fn scanned(machine: &str) -> Inventory {
    let tree = sysfs::machine(machine);
    scan(&Root::at(tree.path()), None)
}

/// Compares an inventory whole with the one that is kept, and a kept one with itself after a journey through JSON.
fn expect(name: &str, inventory: &Inventory) -> Result<(), String> {
    let path = sysfs::fixtures().join("inventory").join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(inventory).unwrap() + "\n";
    assert_eq!(&serde_json::from_str::<Inventory>(&text).unwrap(), inventory);
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, text).unwrap();
        return Ok(());
    }
    let kept = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let differs = kept.lines().zip(text.lines()).position(|(a, b)| a != b);
    match differs {
        None if kept == text => Ok(()),
        line => Err(format!("{}: differs from line {:?} on", path.display(), line.map(|line| line + 1))),
    }
}

#[test]
fn every_recorded_machine_is_read_as_it_always_was() {
    let machines = sysfs::machines();
    assert!(machines.len() >= 7, "{machines:?}");
    let wrong: Vec<String> =
        machines.iter().filter_map(|machine| expect(machine, &scanned(machine)).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn vf_2_of_the_published_x550_would_be_at_04_10_5() {
    let inventory = scanned("x550-two-port");
    let pf = inventory.pf("0000:04:00.1".parse().unwrap()).unwrap();
    let vfs = &pf.sriov.as_ref().unwrap().vfs;
    assert_eq!(vfs.len(), 64);
    assert_eq!(vfs[2].bdf.to_string(), "0000:04:10.5");
    // 04:00.1 + 0x80 + 63 x 2 is 04ff: the last VF that still has room on its PF's bus.
    assert_eq!(vfs[63].bdf.to_string(), "0000:04:1f.7");
    assert!(vfs.iter().all(|vf| vf.present.is_none()));
}

#[test]
fn an_older_kernels_vfs_are_found_through_the_capability() {
    let inventory = scanned("82576-seven-vfs");
    let sriov = inventory.pfs[0].sriov.as_ref().unwrap();
    assert_eq!((sriov.first_vf_offset, sriov.vf_stride, sriov.vf_device), (384, 2, 0x10ca));
    let vfio = sriov.vfs[3].present.as_ref().unwrap();
    assert_eq!(sriov.vfs[3].bdf.to_string(), "0000:02:10.6");
    assert_eq!(vfio.driver.as_deref(), Some("vfio-pci"));
    assert_eq!(vfio.driver_override.as_deref(), Some("vfio-pci"));
    assert_eq!(sriov.vfs[5].present.as_ref().unwrap().driver_override, None);
}

#[test]
fn memory_is_what_the_kernel_manages() {
    // 32768000 kB.
    assert_eq!(scanned("82599-two-port").memory, ByteSize(32_768_000 << 10));
    for (text, notes) in
        [("MemFree: 1 kB\n", 1), ("MemTotal: 99999999999999999999 kB\n", 1), ("MemTotal:\t7 kB", 0)]
    {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir(tree.path().join("proc")).unwrap();
        fs::write(tree.path().join("proc/meminfo"), text).unwrap();
        let inventory = scan(&Root::at(tree.path()), None);
        assert_eq!(inventory.memory, ByteSize(if notes == 0 { 7168 } else { 0 }), "{text}");
        let said = inventory.unknown.iter().filter(|note| note.contains("/proc/meminfo")).count();
        assert_eq!(said, notes, "{:?}", inventory.unknown);
    }
}

#[test]
fn who_else_is_in_a_group_is_known_by_class_and_driver() {
    let inventory = scanned("shared-iommu-group");
    let port = &inventory.others[&"0000:00:01.1".parse().unwrap()];
    assert_eq!((port.class, port.driver.as_deref()), (0x06_0400, Some("pcieport")));
    assert!(port.is_harmless_bridge());
    let known = |bdf| inventory.pf(bdf).is_some() || inventory.others.contains_key(&bdf);
    assert!(inventory.iommu_groups.values().flatten().all(|bdf| known(*bdf)));
}

#[test]
fn what_stands_upon_a_functions_interface_is_read() {
    let tree = penstock_testkit::sysfs::machine("82599-two-port");
    let interface = tree.path().join("sys/class/net/enp4s0f0");
    // As the kernel links them (`net/core/dev.c`, `netdev_adjacent_sysfs_add`); one is no name of an interface.
    for upper in ["upper_br0", "upper_enp4s0f0.7", "upper_", "lower_x", "uppermost"] {
        symlink("../../virtual/net/x", interface.join(upper)).unwrap();
    }
    let inventory = scan(&Root::recorded(tree.path()), None);
    let uppers: Vec<(&str, Vec<&str>)> = inventory
        .uppers
        .iter()
        .map(|(name, uppers)| (name.as_str(), uppers.iter().map(|upper| upper.as_str()).collect()))
        .collect();
    assert_eq!(uppers, [("enp4s0f0", vec!["br0", "enp4s0f0.7"])]);
}

#[test]
fn drivers_that_were_chosen_with_driverctl_are_read() {
    let tree = tempfile::tempdir().unwrap();
    let directory = tree.path().join("etc/driverctl.d");
    fs::create_dir_all(&directory).unwrap();
    for (name, text) in [
        ("pci-0000:02:10.0", "vfio-pci\n"),
        ("0000:02:10.2", "none"),
        ("pci-0000:02:10.4", ""),
        ("pci-0000:02:10.6", "../../evil\n"),
        ("pci-0000:02:11.0", "a\nb\n"),
        ("vmbus-1-2-3", "uio_hv_generic\n"),
        ("pci-nonsense", "vfio-pci\n"),
    ] {
        fs::write(directory.join(name), text).unwrap();
    }
    let inventory = scan(&Root::at(tree.path()), None);
    let chosen: Vec<String> =
        inventory.chosen_drivers.iter().map(|(bdf, driver)| format!("{bdf} {driver}")).collect();
    assert_eq!(chosen, ["0000:02:10.0 vfio-pci", "0000:02:10.2 none"]);
    let odd = inventory.unknown.iter().filter(|note| note.contains("driverctl.d")).count();
    assert_eq!(odd, 2, "{:?}", inventory.unknown);
}

#[test]
fn a_machine_without_pci_says_so() {
    let tree = tempfile::tempdir().unwrap();
    let inventory = scan(&Root::at(tree.path()), None);
    assert!(inventory.pfs.is_empty());
    assert!(inventory.unknown.iter().any(|text| text.contains("has no PCI bus")), "{:?}", inventory.unknown);
}

#[test]
fn this_machine_is_read_without_a_contradiction() {
    let inventory = scan_system();
    assert!(!inventory.kernel.release.is_empty());
    assert!(!inventory.cpus.online.0.is_empty());
    let json = serde_json::to_string(&inventory).unwrap();
    assert_eq!(serde_json::from_str::<Inventory>(&json).unwrap(), inventory);
}

/// Their answers may take as long as firmware is flashed.
#[test]
fn a_scan_asks_no_driver() {
    let recorder = std::sync::Arc::new(Recorder::default());
    let root = Root::system().recording(recorder.clone());
    let mut inventory = scan(&root, None);
    for pf in inventory.pfs.iter().chain(&scan_system().pfs) {
        assert_eq!((&pf.firmware, &pf.devlink), (&None, &None), "{}", pf.bdf);
    }
    let answers = || {
        let to = tempfile::tempdir().unwrap();
        recorder.write(to.path()).unwrap();
        to.path().join(".drivers.json").exists()
    };
    assert!(!answers());
    ask_drivers(&root, &mut inventory);
    assert_eq!(answers(), !inventory.pfs.is_empty());
}

/// Answers as netlink does on the recorded storage node, in the namespace that has the PFs and VF 0 of the first.
struct Kernel {
    vfs: bool,
}

impl Links for Kernel {
    fn interfaces(&mut self) -> Result<Vec<InterfaceReport>, LinkError> {
        let report = |index: u32, name: &str, device: &str, mac: &str| InterfaceReport {
            index,
            interface: Interface {
                name: name.parse().unwrap(),
                mac: mac.parse().unwrap(),
                mtu: 9000,
                up: true,
                carrier: Some(true),
                speed: None,
                addresses: vec!["10.20.31.2/24".parse().unwrap()],
                routes: Vec::new(),
                master: None,
                uppers: Vec::new(),
            },
            permanent_mac: (index < 10).then(|| "90:e2:ba:00:00:01".parse().unwrap()),
            device: Some(device.into()),
            kind: None,
            port_name: None,
            promiscuous: None,
            routes: None,
            master: None,
            lower: None,
        };
        Ok(vec![
            report(2, "enp4s0f0", "0000:04:00.0", "90:e2:ba:4d:10:20"),
            report(3, "renamed", "0000:04:00.1", "90:e2:ba:4d:10:24"),
            report(9, "renamed_rep", "0000:04:00.1", "90:e2:ba:4d:10:99"),
            report(10, "enp4s0f0v0", "0000:04:10.0", "02:00:00:00:01:00"),
        ]
        .into_iter()
        .map(|mut report| {
            if report.index == 9 {
                report.port_name = Some("pf1vf0".into());
            }
            report
        })
        .collect())
    }

    fn routes(&mut self) -> Result<Vec<(u32, InterfaceRoute)>, LinkError> {
        let gateway = |via: &str| via.parse().ok();
        let default = |via| InterfaceRoute::new("0.0.0.0/0".parse().unwrap(), gateway(via));
        // One of an interface that is no function's.
        Ok(vec![(2, default("10.20.31.1")), (77, default("192.0.2.1"))])
    }

    fn port_vlans(&mut self) -> Result<Vec<(u32, PortVlans)>, LinkError> {
        Ok(Vec::new())
    }

    fn vfs(&mut self, index: u32) -> Result<Vec<(VfIndex, VfState)>, LinkError> {
        if index != 2 || !self.vfs {
            return Err("could not list the VFs".into());
        }
        let state = |number: u16| VfState {
            mac: format!("02:00:00:00:01:{number:02x}").parse().unwrap(),
            vlan: VlanId::new(100).unwrap(),
            qos: VlanQos::new(3).unwrap(),
            spoofchk: Some(true),
            trust: Some(false),
            max_tx_rate: TxRate(1000),
            link_state: Some(LinkState::Auto),
            ..VfState::default()
        };
        Ok([0, 1, 8].map(|number| (VfIndex::new(number).unwrap(), state(number))).into())
    }

    fn switch_mode(&mut self, index: u32) -> Result<SwitchMode, LinkError> {
        match index {
            2 => Ok(SwitchMode::Veb),
            _ => Err(io::Error::from_raw_os_error(95).into()),
        }
    }
}

#[test]
fn netlink_adds_what_sysfs_does_not_know() {
    let tree = sysfs::machine("82599-two-port");
    let inventory = scan(&Root::at(tree.path()), Some(&mut Kernel { vfs: true }));
    expect("82599-two-port-with-netlink", &inventory).unwrap();
    let [first, second] = &inventory.pfs[..] else { panic!() };
    assert_eq!(first.permanent_mac.unwrap().to_string(), "90:e2:ba:00:00:01");
    assert_eq!(first.interface.as_ref().unwrap().speed, Some(10_000));
    let routes = &first.interface.as_ref().unwrap().routes;
    assert_eq!(routes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["default via 10.20.31.1"]);
    assert_eq!((first.switch_mode, second.switch_mode), (SwitchMode::Veb, SwitchMode::Switchdev));
    let attributes = |number: usize| {
        let vfs = &first.sriov.as_ref().unwrap().vfs;
        vfs[number].present.as_ref().unwrap().attributes.is_some()
    };
    assert!(attributes(0) && attributes(1) && !attributes(2));
    for said in ["could not list the VFs", "reports VF 8", "enp4s0f0v1 of 0000:04:10.2"] {
        assert!(inventory.unknown.iter().any(|text| text.contains(said)), "{said}: {:#?}", inventory.unknown);
    }
}

#[test]
fn what_drivers_answered_is_read_from_the_tree() {
    let inventory = scanned("mlx5-switchdev");
    let [pf] = &inventory.pfs[..] else { panic!("{:?}", inventory.pfs) };
    assert_eq!(pf.interface.as_ref().unwrap().name.as_str(), "ens1f0np0");
    assert_eq!(
        (pf.switch_mode, pf.firmware.as_deref()),
        (SwitchMode::Switchdev, Some("22.41.1000 (MT_0000000359)"))
    );
    let devlink = pf.devlink.as_ref().unwrap();
    assert_eq!(devlink.eswitch.unwrap().mode, EswitchMode::Switchdev);
    assert_eq!(devlink.versions.stored["fw"], "22.43.1014");
    assert!(devlink.health.iter().all(|reporter| reporter.healthy), "{:?}", devlink.health);

    let representor = |index: usize| {
        let representor =
            pf.sriov.as_ref().unwrap().vfs[index].present.as_ref().unwrap().representor.as_ref().unwrap();
        let Representor { interface, port, switch_id, master } = representor;
        assert_eq!(switch_id.as_deref(), Some("1c34da0003b8599c"));
        format!("{interface} {port} {}", master.as_ref().map_or("-", |name| name.as_str()))
    };
    assert_eq!(representor(0), "ens1f0npf0vf0 pf0vf0 br-vf");
    assert_eq!(representor(1), "ens1f0npf0vf1 pf0vf1 -");

    // The representors of port and PF stand for no VF.
    let inventory = scanned("nfp-switchdev");
    let pf = &inventory.pfs[0];
    assert_eq!(pf.interface.as_ref().unwrap().name.as_str(), "enp8s0");
    assert_eq!(pf.switch_mode, SwitchMode::Switchdev);
    let vf = pf.sriov.as_ref().unwrap().vfs[0].present.as_ref().unwrap();
    assert_eq!(vf.representor.as_ref().unwrap().interface.as_str(), "enp8s0npf0vf0");

    // Who recorded it was not root: that is said, and nothing is made up.
    let inventory = scanned("ice-without-root");
    let [pf] = &inventory.pfs[..] else { panic!("{:?}", inventory.pfs) };
    let devlink = pf.devlink.as_ref().unwrap();
    assert_eq!((devlink.eswitch, pf.switch_mode), (None, SwitchMode::Unreported));
    assert_eq!(devlink.versions.running["fw.mgmt"], "7.4.13");
    let said = |inventory: &Inventory, what: &str| inventory.unknown.iter().any(|note| note.contains(what));
    assert!(
        said(&inventory, "switches could not be read with devlink: not permitted"),
        "{:?}",
        inventory.unknown
    );

    // A tree without answers, and one whose answers make no sense.
    assert!(said(&scanned("x550-two-port"), "this tree has no answers of drivers"));
    let tree = sysfs::machine("mlx5-switchdev");
    for nonsense in
        ["", "7", "{\"pfs\": {\"\u{1b}\": {}}}", "{\"pfs\": {\"0000:08:00.0\": {\"devlink\": 3}}}"]
    {
        fs::write(tree.path().join(".drivers.json"), nonsense).unwrap();
        let inventory = scan(&Root::recorded(tree.path()), None);
        assert!(said(&inventory, "/.drivers.json makes no sense"), "{nonsense}: {:?}", inventory.unknown);
        // The representors tell the mode.
        assert_eq!(inventory.pfs[0].switch_mode, SwitchMode::Switchdev);
        assert_eq!(inventory.pfs[0].devlink, None);
    }
}

/// Some drivers keep the representors of all VFs that could be.
#[test]
fn representors_of_no_vfs_at_all_are_no_contradiction() {
    let tree = sysfs::machine("mlx5-switchdev");
    let function = tree.path().join("sys/devices/pci0000:00/0000:00:03.1/0000:08:00.0");
    let about = |inventory: &Inventory| {
        inventory.unknown.iter().filter(|note| note.contains("stands for VF")).cloned().collect::<Vec<_>>()
    };
    fs::remove_file(function.join("virtfn1")).unwrap();
    let inventory = scan(&Root::at(tree.path()), None);
    assert_eq!(
        about(&inventory),
        ["ens1f0npf0vf1 stands for VF 1 of 0000:08:00.0 (pf0vf1), which is not there"]
    );

    fs::remove_file(function.join("virtfn0")).unwrap();
    fs::write(function.join("sriov_numvfs"), "0").unwrap();
    let inventory = scan(&Root::at(tree.path()), None);
    assert!(about(&inventory).is_empty(), "{:?}", inventory.unknown);
    assert_eq!(inventory.pfs[0].switch_mode, SwitchMode::Switchdev);
}

/// Without VFs there are no representors, and devlink alone tells.
#[test]
fn switchdev_mode_is_known_without_representors() {
    let tree = sysfs::machine("ice-without-root");
    for (mode, seen) in [
        ("switchdev", SwitchMode::Switchdev),
        ("switchdev_inactive", SwitchMode::Switchdev),
        ("legacy", SwitchMode::Unreported),
    ] {
        let answers =
            format!(r#"{{"pfs": {{"0000:17:00.0": {{"devlink": {{"eswitch": {{"mode": "{mode}"}}}}}}}}}}"#);
        fs::write(tree.path().join(".drivers.json"), answers).unwrap();
        assert_eq!(scan(&Root::recorded(tree.path()), None).pfs[0].switch_mode, seen, "{mode}");
    }
}

/// A record of a record has the same answers.
#[test]
fn the_answers_of_drivers_are_recorded() {
    let tree = sysfs::machine("mlx5-switchdev");
    let recorder = std::sync::Arc::new(Recorder::default());
    let inventory = scan(&Root::recorded(tree.path()).recording(recorder.clone()), None);
    let to = tempfile::tempdir().unwrap();
    recorder.write(to.path()).unwrap();
    assert!(inventory.pfs[0].devlink.is_some());
    assert_eq!(scan(&Root::recorded(to.path()), None), inventory);
}

#[test]
fn what_is_asked_in_vain_is_said_once() {
    let inventory = scanned("broken");
    let mut seen = std::collections::BTreeSet::new();
    for text in &inventory.unknown {
        assert!(seen.insert(text), "twice: {text}");
        assert!(!text.contains(char::is_control), "{text:?}");
    }
}

/// Whatever a file of a PF's holds, a scan ends, keeps its VFs in index order and each on an address of its own segment.
#[test]
fn no_contents_break_a_scan() {
    let tree = sysfs::machine("x550-two-port");
    let function = tree.path().join("sys/devices/pci0000:00/0000:00:02.2/0000:04:00.1");
    let root = Root::at(tree.path());
    let attribute = prop::sample::select(vec![
        "config",
        "class",
        "vendor",
        "numa_node",
        "sriov_totalvfs",
        "sriov_numvfs",
        "sriov_offset",
        "sriov_stride",
        "sriov_vf_device",
        "sriov_drivers_autoprobe",
        "driver_override",
        "net/eth3/address",
        "net/eth3/mtu",
        "net/eth3/flags",
        "net/eth3/speed",
        "net/eth3/carrier",
    ]);
    let value = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        (0u16..).prop_map(|number| number.to_string().into_bytes()),
        "\\PC{0,20}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..4200),
    ];
    let changes = prop::collection::vec((attribute, value), 1..4);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(96));
    runner
        .run(&changes, |changes| {
            let before: Vec<_> = changes
                .iter()
                .map(|(name, value)| {
                    let path = function.join(name);
                    let kept = fs::read(&path).unwrap();
                    fs::write(&path, value).unwrap();
                    (path, kept)
                })
                .collect();
            let inventory = scan(&root, None);
            for (path, kept) in before.into_iter().rev() {
                fs::write(path, kept).unwrap();
            }
            for sriov in inventory.pfs.iter().filter_map(|pf| pf.sriov.as_ref()) {
                prop_assert!(sriov.vfs.len() <= usize::from(sriov.total_vfs));
                prop_assert!(sriov.vfs.is_sorted_by(|a, b| a.index < b.index));
                let mut addresses: Vec<Bdf> = sriov.vfs.iter().map(|vf| vf.bdf).collect();
                addresses.dedup();
                prop_assert_eq!(addresses.len(), sriov.vfs.len());
            }
            Ok(())
        })
        .unwrap();
}

/// Whatever is wrong with a tree's shape, a scan ends and what it says can be read back.
#[test]
fn no_shape_breaks_a_scan() {
    let records: Vec<String> = ["broken", "82576-seven-vfs", "nvme-sriov"]
        .map(|name| fs::read_to_string(sysfs::fixtures().join("sysfs").join(format!("{name}.tree"))).unwrap())
        .into();
    // Lines change places, are lost, or turn from files into directories, links to nothing and links to themselves.
    let change = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..5);
    let changes = (0..records.len(), prop::collection::vec(change, 1..12));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(64));
    let planted = std::cell::Cell::new(0);
    runner
        .run(&changes, |(record, changes)| {
            let mut lines: Vec<String> = records[record].lines().map(str::to_owned).collect();
            for (one, other, how) in changes {
                let (one, other) = (one.index(lines.len()), other.index(lines.len()));
                let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
                let (first, second) = (name(&lines[one]), name(&lines[other]));
                match how {
                    0 => lines.swap(one, other),
                    1 => lines[one] = format!("{first}/"),
                    2 => lines[one] = format!("{first} -> {second}"),
                    3 => lines[one] = format!("{first} -> {}", first.rsplit('/').next().unwrap_or_default()),
                    _ => lines[one].clear(),
                }
            }
            let directory = tempfile::tempdir().unwrap();
            if sysfs::plant(&lines.join("\n"), directory.path()).is_ok() {
                planted.set(planted.get() + 1);
                let inventory = scan(&Root::at(directory.path()), None);
                let json = serde_json::to_string(&inventory).unwrap();
                prop_assert_eq!(serde_json::from_str::<Inventory>(&json).unwrap(), inventory);
            }
            Ok(())
        })
        .unwrap();
    assert!(planted.get() >= 10, "only {} of 64 trees could be planted", planted.get());
}
