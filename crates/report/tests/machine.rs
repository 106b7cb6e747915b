//! The picture's machine, from a model and an inventory.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use penstock_model::{
    Bdf, FunctionName, Inventory, Mac, NicName, Source, VfIndex, WantedEswitch,
    inventory::{Pf, Sriov, SwitchMode, Vf},
    parse,
};
use penstock_report::Machine;

const MODEL: &str = "machine: pair
nics:
  NET0: {vfs: 3, loopback: true}
  NET1: {match: {mac: \"0c:c4:7a:9a:61:eb\"}, vfs: 1, eswitch: switchdev}
guests:
  a: {functions: [NET0#2, {vf: NET1#0, mac: \"02:00:00:00:01:00\", address: 10.0.0.1/24}]}
board: {cables: [[NET0, NET1]]}
";

#[test]
fn a_machine_is_what_the_model_wants_and_the_inventory_knows() {
    let model = parse(&Source::new("pair.yaml", MODEL)).expect("the model is right").model;
    let pf: Bdf = "0000:04:00.1".parse().unwrap();
    let mac: Mac = "0c:c4:7a:9a:61:ea".parse().unwrap();
    let vfs = (0..7).map(|index| Vf {
        index: VfIndex::new(index).unwrap(),
        bdf: pf.of_vf(0x80, 2, index).unwrap(),
        present: None,
    });
    let inventory = Inventory {
        pfs: vec![Pf {
            bdf: pf,
            identity: Default::default(),
            driver: Some("igb".to_owned()),
            interface: None,
            permanent_mac: Some(mac),
            numa_node: None,
            iommu_group: None,
            sriov: Some(Sriov {
                total_vfs: 7,
                num_vfs: 0,
                autoprobe: true,
                first_vf_offset: 0x80,
                vf_stride: 2,
                vf_device: 0x10ca,
                vfs: vfs.collect(),
            }),
            switch_mode: SwitchMode::Veb,
            firmware: None,
            devlink: None,
        }],
        iommu_groups: BTreeMap::new(),
        ..Inventory::default()
    };
    // Only NET0 was found.
    let nics: IndexMap<NicName, Bdf> = [("NET0".parse().unwrap(), pf)].into_iter().collect();

    let machine = Machine::of(&model, &inventory, &nics, true);
    assert_eq!(machine.name, "pair");
    let [net0, net1] = machine.nics.as_slice() else { panic!("{:?}", machine.nics) };
    assert_eq!((net0.bdf, net0.mac, net0.driver.as_deref()), (Some(pf), Some(mac), Some("igb")));
    assert_eq!(net0.emulated_by.as_deref(), Some("igb"));
    assert_eq!(net0.vfs.len(), 3);
    // The published board: VF 2 of the PF at 04:00.1 is 04:10.5.
    assert_eq!(net0.vfs[2].bdf, "0000:04:10.5".parse().ok());
    assert_eq!(net0.vfs[2].mac, Some(Mac::derived(mac, VfIndex::new(2).unwrap())));
    assert_eq!((net1.bdf, net1.vfs[0].bdf), (None, None));
    assert_eq!(net1.vfs[0].mac, "02:00:00:00:01:00".parse().ok());
    assert_eq!((machine.nics[0].eswitch, net1.eswitch), (None, Some(WantedEswitch::Switchdev)));

    let owned: FunctionName = "NET1#0".parse().unwrap();
    assert_eq!(machine.owners()[&owned].as_str(), "a");
    assert_eq!(machine.guests[0].functions[1].interface.as_str(), "eth1");
    assert_eq!(machine.cables.len(), 1);
}
