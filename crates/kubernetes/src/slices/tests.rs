//! Golden files (`tests/golden/slices`), the API's limits under whatever inventory, and names that stay.

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::{
    Bdf, Inventory, Mac, NicName, VfIndex,
    inventory::{
        Interface, Lifeline, LifelineKind, LifelinePath, LifelineSort, Lifelines, Pf, PresentVf, Sriov,
        SwitchMode, UnknownLifeline, Vf,
    },
    pci::RoutingId,
};
use proptest::prelude::*;

use super::*;
use crate::{
    devices::{Input, KnownNics},
    identity::{DRIFT, is_label},
};

pub(crate) fn owner() -> Owner {
    Owner {
        driver: crate::identity::DRIVER.parse().unwrap(),
        node: "node-1".parse().unwrap(),
        node_uid: "6a5b1c52-0000-4000-8000-000000000001".to_owned(),
    }
}

fn mac(nic: u8) -> Mac {
    Mac::new([0x0c, 0xc4, 0x7a, 0x9a, 0x62, nic])
}

fn interface(name: &str, nic: u8) -> Interface {
    Interface {
        name: name.parse().unwrap(),
        mac: mac(nic),
        mtu: 1500,
        up: true,
        carrier: Some(true),
        speed: Some(10_000),
        addresses: Vec::new(),
        routes: Vec::new(),
        master: None,
        uppers: Vec::new(),
    }
}

/// A PF on bus `bus` with `vfs` VFs, all of them there.
pub(crate) fn pf(nic: u8, bus: u8, vfs: u16) -> Pf {
    let bdf = Bdf::new(0, RoutingId(u16::from(bus) << 8));
    let vf = |index: u16| Vf {
        index: VfIndex::new(index).unwrap(),
        bdf: bdf.of_vf(0x80, 1, index).unwrap(),
        present: Some(PresentVf { iommu_group: Some(u32::from(index) + 10), ..PresentVf::default() }),
    };
    Pf {
        bdf,
        identity: penstock_model::inventory::PciIdentity {
            pcie_root: Some("pci0000:00".parse().unwrap()),
            ..Default::default()
        },
        driver: Some("ixgbe".to_owned()),
        interface: Some(interface(&format!("ens{nic}"), nic)),
        permanent_mac: Some(mac(nic)),
        numa_node: Some(0),
        iommu_group: None,
        sriov: Some(Sriov {
            total_vfs: vfs,
            num_vfs: vfs,
            autoprobe: false,
            first_vf_offset: 0x80,
            vf_stride: 1,
            vf_device: 0x1565,
            vfs: (0..vfs).map(vf).collect(),
        }),
        switch_mode: SwitchMode::Veb,
        firmware: None,
        devlink: None,
    }
}

pub(crate) fn machine(pfs: Vec<Pf>) -> Inventory {
    let nics = pfs.iter().enumerate();
    let nics = nics.map(|(nic, pf)| (format!("NET{nic}").parse::<NicName>().unwrap(), pf.bdf)).collect();
    Inventory { version: 1, pfs, nics, lifelines: Some(Lifelines::default()), ..Inventory::default() }
}

pub(crate) fn devices(inventory: &Inventory) -> Devices {
    let (held, known) = (BTreeSet::new(), KnownNics::new());
    Devices::of(Input { inventory, model: None, held: &held, known: &known, previous: None, unsettled: None })
}

fn with_model(inventory: &Inventory, text: &str) -> Devices {
    let source = penstock_model::Source::new("m.yaml", text);
    let model = penstock_model::parse(&source).unwrap().model;
    let (held, known) = (BTreeSet::new(), KnownNics::new());
    Devices::of(Input {
        inventory,
        model: Some(&model),
        held: &held,
        known: &known,
        previous: None,
        unsettled: None,
    })
}

fn names(devices: &Devices) -> Vec<&str> {
    devices.in_order().iter().map(|function| function.name.as_str()).collect()
}

fn why<'a>(devices: &'a Devices, name: &str) -> &'a str {
    &devices.withheld.iter().find(|withheld| withheld.name.as_str() == name).unwrap().why
}

/// What the API server checks of slices, as far as it concerns ours (`pkg/apis/resource/validation`).
fn check(slices: &[ResourceSlice]) {
    let mut names = BTreeSet::new();
    for slice in slices {
        let spec = &slice.spec;
        assert!(slice.metadata.name.as_ref().unwrap().len() <= 253);
        assert!(names.insert(slice.metadata.name.clone()), "two slices have one name");
        assert_eq!(spec.pool.resource_slice_count, slices.len() as i64);
        assert!(spec.devices.is_some() && spec.shared_counters.is_none());
    }
    let mut devices = BTreeSet::new();
    let mut attributes: BTreeSet<BTreeSet<&String>> = BTreeSet::new();
    for slice in slices {
        let found = slice.spec.devices.iter().flatten();
        assert!(found.clone().count() <= 64);
        for device in found {
            assert!(is_label(&device.name), "{}", device.name);
            assert!(devices.insert(&device.name), "{} twice", device.name);
            let own = device.attributes.as_ref().unwrap();
            assert!(own.len() <= 32);
            for (name, value) in own {
                let (domain, plain) = name.rsplit_once('/').unwrap_or(("", name));
                assert!(plain.len() <= 32 && plain.bytes().all(|b| b.is_ascii_alphanumeric()), "{name}");
                assert!(domain.len() <= 63);
                assert!(value.string.as_ref().is_none_or(|text| text.chars().count() <= 64), "{value:?}");
                let kinds = [value.string.is_some(), value.int.is_some(), value.bool.is_some()];
                assert_eq!(kinds.iter().filter(|kind| **kind).count(), 1, "{name}");
            }
            let always = own.keys().filter(|name| !name.ends_with("/numaNode"));
            attributes.insert(always.collect());
            assert!(device.taints.as_ref().is_none_or(|taints| !taints.is_empty() && taints.len() <= 16));
        }
    }
    assert!(attributes.len() <= 1, "every attribute is on every device: {attributes:?}");
}

#[test]
fn two_hundred_vfs_are_four_slices_and_their_pf_is_no_device() {
    let devices = devices(&machine(vec![pf(0, 1, 200)]));
    let found = slices(&owner(), &devices, &Taints::new());
    check(&found);
    let counts: Vec<usize> =
        found.iter().map(|slice| slice.spec.devices.as_ref().map_or(0, Vec::len)).collect();
    assert_eq!(counts, [64, 64, 64, 8]);
}

#[test]
fn a_taint_stays_with_its_device_and_moves_no_other() {
    let devices = devices(&machine(vec![pf(0, 1, 130)]));
    let plain = slices(&owner(), &devices, &Taints::new());
    let name = devices.get("net0-70").unwrap().name.clone();
    let taints = Taints::from([(name, vec![Taint { key: DRIFT, value: Some("vlan".to_owned()) }])]);
    let tainted = slices(&owner(), &devices, &taints);
    check(&tainted);
    let changed: Vec<usize> = (0..plain.len()).filter(|at| plain[*at] != tainted[*at]).collect();
    assert_eq!(changed, [1]);
    let device =
        tainted[1].spec.devices.as_ref().unwrap().iter().find(|device| device.taints.is_some()).unwrap();
    let taint = &device.taints.as_ref().unwrap()[0];
    assert_eq!(
        (device.name.as_str(), taint.key.as_str(), taint.effect.as_str()),
        ("net0-70", DRIFT, "NoSchedule")
    );
}

#[test]
fn names_survive_renumbering_with_and_without_a_model() {
    let (before, after) = (machine(vec![pf(0, 1, 3), pf(1, 2, 3)]), machine(vec![pf(0, 7, 3), pf(1, 9, 3)]));
    assert_eq!(names(&devices(&before)), names(&devices(&after)));
    let without = |mut inventory: Inventory| {
        inventory.nics.clear();
        devices(&inventory)
    };
    let (before, after) = (without(before), without(after));
    assert_eq!(names(&before), names(&after));
    assert_eq!(names(&before)[0], "mac-0cc47a9a6200-0");
    assert_ne!(before.get("mac-0cc47a9a6200-0").unwrap().bdf, after.get("mac-0cc47a9a6200-0").unwrap().bdf);
}

#[test]
fn nics_whose_names_are_one_label_get_names_of_their_own() {
    let mut inventory = machine(vec![pf(0, 1, 1), pf(1, 2, 1), pf(2, 3, 1)]);
    let bdfs: Vec<Bdf> = inventory.pfs.iter().map(|pf| pf.bdf).collect();
    let all = ["Net_0", "net.0", "x"].into_iter().map(|name| name.parse().unwrap()).zip(bdfs);
    inventory.nics = all.collect();
    let found = devices(&inventory);
    let names = names(&found);
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 3, "{names:?}");
    assert!(names.iter().all(|name| is_label(name)) && names.contains(&"x-0"), "{names:?}");
}

#[test]
fn a_lifeline_is_never_published_and_the_vfs_of_one_are() {
    let mut inventory = machine(vec![pf(0, 1, 2), pf(1, 2, 2)]);
    let through = |function: Bdf, kind| Lifeline {
        kind,
        paths: vec![LifelinePath { names: vec!["br0".to_owned()], function: Some(function) }],
    };
    let vf = inventory.pfs[1].sriov.as_ref().unwrap().vfs[1].bdf;
    let peer = LifelineKind::Peer { address: "10.0.0.1".to_owned() };
    inventory.lifelines.as_mut().unwrap().found =
        vec![through(inventory.pfs[0].bdf, LifelineKind::Root), through(vf, peer)];
    let found = devices(&inventory);
    assert_eq!(names(&found), ["net0-0", "net0-1", "net1-0"]);
    assert!(why(&found, "net1-1").contains("the way to 10.0.0.1"), "{:?}", found.withheld);
}

#[test]
fn what_may_be_a_lifeline_is_not_published() {
    let mut inventory = machine(vec![pf(0, 1, 1)]);
    let unknown = UnknownLifeline { sort: LifelineSort::DefaultRoute, why: "no netlink".to_owned() };
    inventory.lifelines.as_mut().unwrap().unknown = vec![unknown];
    assert_eq!(
        names(&devices(&inventory)),
        ["net0-0"],
        "a VF without an interface carries nothing of the host"
    );
    let vf = |inventory: &mut Inventory, up: bool| {
        let present = inventory.pfs[0].sriov.as_mut().unwrap().vfs[0].present.as_mut().unwrap();
        present.interface = Some(Interface { up, ..interface("v0", 9) });
    };
    vf(&mut inventory, true);
    assert!(names(&devices(&inventory)).is_empty());
    inventory.lifelines = None;
    assert!(names(&devices(&inventory)).is_empty());
    vf(&mut inventory, false);
    assert_eq!(names(&devices(&inventory)), ["net0-0"]);
}

#[test]
fn what_the_host_uses_is_not_published() {
    let mut inventory = machine(vec![pf(0, 1, 2), pf(1, 2, 2)]);
    let mut has = |nic: usize, vf: usize, name: &str, address: &str| {
        let present = inventory.pfs[nic].sriov.as_mut().unwrap().vfs[vf].present.as_mut().unwrap();
        let addresses = vec![address.parse().unwrap()];
        present.interface = Some(Interface { addresses, ..interface(name, 9) });
    };
    has(0, 0, "v0", "10.0.0.5/24");
    has(0, 1, "v1", "fe80::1/64");
    has(1, 0, "v2", "fe80::2/64");
    let uppers = BTreeSet::from(["br0".parse().unwrap()]);
    inventory.uppers = BTreeMap::from([("v2".parse().unwrap(), uppers)]);
    let found = devices(&inventory);
    assert_eq!(names(&found), ["net0-1", "net1-1"]);
    assert!(why(&found, "net0-0").contains("10.0.0.5/24") && why(&found, "net1-0").contains("br0"));
}

#[test]
fn what_guests_of_the_model_own_is_not_published() {
    let inventory = machine(vec![pf(0, 1, 3), pf(1, 2, 2), pf(2, 3, 1)]);
    let model = "nics: {NET0: {vfs: 3}, NET1: {vfs: 2}, NET2: {vfs: 1, externally_managed: true}}\n\
                 guests: {a: {functions: [NET0#1]}}\n";
    let found = with_model(&inventory, model);
    assert_eq!(names(&found), ["net0-0", "net0-2", "net1-0", "net1-1"]);
    assert!(why(&found, "net0-1").contains("the guest a") && why(&found, "net2-0").contains("somebody else"));
}

#[test]
fn who_has_a_vf_now_is_a_taint_of_it_and_a_claim_of_ours_is_none() {
    let mut inventory = machine(vec![pf(0, 1, 3)]);
    let vfs = &mut inventory.pfs[0].sriov.as_mut().unwrap().vfs;
    vfs[0].present.as_mut().unwrap().driver = Some("vfio-pci".to_owned());
    vfs[1].present.as_mut().unwrap().driver = Some("ixgbevf".to_owned());
    let first = vfs[0].bdf;
    inventory.lifelines.as_mut().unwrap().holders = BTreeMap::from([(first, vec!["qemu (12)".to_owned()])]);
    let found = devices(&inventory);
    let used = |devices: &Devices| -> Vec<String> {
        devices
            .in_order()
            .iter()
            .filter(|function| function.in_use.is_some())
            .map(|f| f.name.to_string())
            .collect()
    };
    assert_eq!(used(&found), ["net0-0", "net0-1"]);
    check(&slices(&owner(), &found, &Taints::new()));
    let held = BTreeSet::from(["net0-0".to_owned(), "net0-1".to_owned()]);
    let known = KnownNics::new();
    let now = Input {
        inventory: &inventory,
        model: None,
        held: &held,
        known: &known,
        previous: None,
        unsettled: None,
    };
    assert!(used(&Devices::of(now)).is_empty());
}

#[test]
fn a_pod_that_has_a_function_changes_no_slice() {
    let inventory = machine(vec![pf(0, 1, 2)]);
    let before = devices(&inventory);
    let held = BTreeSet::from(["net0-1".to_owned()]);
    let mut away = inventory.clone();
    let present = away.pfs[0].sriov.as_mut().unwrap().vfs[1].present.as_mut().unwrap();
    (present.driver, present.iommu_group) = (Some("vfio-pci".to_owned()), Some(99));
    let now = Input {
        inventory: &away,
        model: None,
        held: &held,
        known: &before.nics,
        previous: Some(&before),
        unsettled: None,
    };
    let after = Devices::of(now);
    assert_eq!(slices(&owner(), &before, &Taints::new()), slices(&owner(), &after, &Taints::new()));
    // A container has the PF's interface: an agent that begins anew knows the NIC by what it has written down.
    let mut away = inventory.clone();
    (away.pfs[0].interface, away.pfs[0].permanent_mac) = (None, None);
    away.nics.clear();
    let now = Input { inventory: &away, previous: None, ..now };
    assert_eq!(names(&Devices::of(now)), names(&before));
}

#[test]
fn a_machine_without_functions_has_no_slices() {
    assert!(slices(&owner(), &devices(&Inventory::default()), &Taints::new()).is_empty());
}

#[test]
fn a_node_with_a_long_name_has_slices_with_names_that_are_taken() {
    let long = ["a".repeat(60), "b".repeat(60), "c".repeat(60), "d".repeat(60)].join(".");
    let owner = Owner { node: long.parse().unwrap(), ..owner() };
    check(&slices(&owner, &devices(&machine(vec![pf(0, 1, 2)])), &Taints::new()));
}

/// The recorded machines of the test kit, each as the slices that it has.
#[test]
fn recorded_machines_have_the_slices_of_their_golden_files() {
    let at = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/fixtures/inventory");
    let mut seen = 0;
    for name in penstock_host::files::list(&at).unwrap() {
        let Some(name) = name.strip_suffix(".json") else { continue };
        let text = penstock_host::files::read_to_string(at.join(format!("{name}.json"))).unwrap();
        let mut inventory: Inventory = serde_json::from_str(&text).unwrap();
        inventory.lifelines.get_or_insert_default();
        let devices = devices(&inventory);
        let slices = slices(&owner(), &devices, &Taints::new());
        check(&slices);
        let withheld: BTreeMap<&str, &str> =
            devices.withheld.iter().map(|one| (one.name.as_str(), one.why.as_str())).collect();
        let found = serde_json::json!({"slices": slices, "withheld": withheld});
        let text = format!("{}\n", serde_json::to_string_pretty(&found).unwrap());
        let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/slices");
        penstock_testkit::golden::compare(&golden.join(format!("{name}.json")), &text);
        seen += 1;
    }
    assert!(seen >= 6);
}

prop_compose! {
    fn any_pf()(nic in 0u8..4, bus in 1u8..200, vfs in 0u16..256, up: bool, held: bool, named: bool, driver in ".{0,80}") -> Pf {
        let mut pf = pf(nic, bus, vfs);
        pf.interface.as_mut().unwrap().up = up;
        pf.driver = Some(driver.clone());
        if held { pf.interface = None; }
        if !named { pf.permanent_mac = None; }
        for (at, vf) in pf.sriov.as_mut().unwrap().vfs.iter_mut().enumerate() {
            match at % 3 { 0 => vf.present = None, 1 => vf.present.as_mut().unwrap().driver = Some(driver.clone()), _ => {} }
        }
        pf
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn slices_keep_the_limits_of_the_api_whatever_the_machine(
        pfs in proptest::collection::vec(any_pf(), 0..24),
        names in proptest::collection::vec("[A-Za-z0-9][A-Za-z0-9_.-]{0,47}", 24),
        in_model in 0usize..24, drifted in 0usize..300,
    ) {
        let mut seen = BTreeSet::new();
        let pfs: Vec<Pf> = pfs.into_iter().filter(|pf| seen.insert(pf.bdf)).collect();
        let mut inventory = machine(pfs);
        let bdfs = inventory.pfs.iter().take(in_model).map(|pf| pf.bdf);
        inventory.nics = names.iter().map(|name| name.parse().unwrap()).zip(bdfs).collect();
        let devices = devices(&inventory);
        let taints = devices.functions.keys().take(drifted)
            .map(|name| (name.clone(), vec![Taint { key: DRIFT, value: None }])).collect();
        check(&slices(&owner(), &devices, &taints));
    }
}
