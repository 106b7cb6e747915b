//! Random models and inventories that fit each other.

mod drives;

use std::collections::BTreeSet;

use indexmap::IndexMap;
use penstock_model::{
    Bdf, Board, Boot, ByteSize, CpuSet, DiskFormat, Dns, FreeDriver, Function, FunctionName, Guest,
    GuestKind, GuestName, Inside, InterfaceAddress, InterfaceRoute, Inventory, LinkState, Mac, Measure,
    Model, Mtu, Nic, NicMatch, NicName, PortVlans, RoutingId, SerialNumber, TxRate, VfIndex, VfSettings,
    VlanId, VlanProtocol, WantedEswitch,
    inventory::{
        Devlink, Eswitch, EswitchMode, Interface, Manager, Master, Pf, PresentVf, Sriov, SwitchMode, Upper,
        Vf, VfState, VlanTag,
    },
};

/// SplitMix64: a whole machine out of one number, so that a failing one is named by it.
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn some<T>(&mut self, times: u64, value: T) -> Option<T> {
        self.once_in(times).then_some(value)
    }
}

const DRIVERS: [(&str, &str); 5] = [
    ("igb", "igbvf"),
    ("ixgbe", "ixgbevf"),
    ("i40e", "iavf"),
    ("bnxt_en", "bnxt_en"),
    ("virtio-pci", "virtio-pci"),
];

fn mac(kind: u8, nic: usize, vf: u16) -> Mac {
    let [high, low] = vf.to_be_bytes();
    Mac::new([kind, 0x1b, 0x21, nic as u8, high, low])
}

fn route(to: &str, via: &str) -> InterfaceRoute {
    InterfaceRoute::new(to.parse().unwrap(), Some(via.parse().unwrap()))
}

fn interface(dice: &mut Dice, name: String, mac: Mac) -> Interface {
    let up = dice.once_in(2);
    let mut addresses = Vec::new();
    for address in ["192.0.2.1/24", "2001:db8::1/64", "fe80::1/64"] {
        // A down interface has no IPv6 addresses.
        if dice.once_in(3) && (up || address.starts_with("192")) {
            addresses.push(address.parse().unwrap());
        }
    }
    let ways = [("0.0.0.0/0", "192.0.2.254"), ("2001:db8:1::/48", "2001:db8::fe")];
    let has = |via: &str| {
        addresses.iter().any(|address: &InterfaceAddress| address.ip().is_ipv4() != via.contains(':'))
    };
    let routes = match up && dice.once_in(2) {
        true => ways.iter().filter(|(_, via)| has(via)).map(|(to, via)| route(to, via)).collect(),
        false => Vec::new(),
    };
    let uppers = match dice.once_in(4) {
        true => vec![vlan_interface(dice, &name, mac, up)],
        false => Vec::new(),
    };
    let filters = dice.once_in(2);
    let vlans = || PortVlans {
        tagged: "2-4094".parse().unwrap(),
        untagged: [1].into_iter().collect(),
        pvid: Some(1),
    };
    let master = |(name, kind): (&str, &str)| Master {
        name: name.parse().unwrap(),
        kind: Some(kind.to_owned()),
        filters_vlans: filters && kind == "bridge",
        vlans: (filters && kind == "bridge").then(vlans),
    };
    let masters = [("br0", "bridge"), ("bond0", "bond"), ("ovs-system", "openvswitch")];
    Interface {
        name: name.parse().unwrap(),
        mac,
        mtu: 1500,
        up,
        carrier: None,
        speed: None,
        addresses,
        routes,
        master: dice.once_in(4).then(|| master(masters[dice.below(3) as usize])),
        uppers,
    }
}

/// The interface of a VLAN over one that may be up.
fn vlan_interface(dice: &mut Dice, lower: &str, below: Mac, up: bool) -> Upper {
    let vlan = VlanTag {
        id: 7,
        protocol: VlanProtocol::Dot1q,
        flags: 1,
        ingress_qos: Vec::new(),
        egress_qos: vec![(1, 5)],
    };
    let interface = Interface {
        name: format!("{lower}.7").parse().unwrap(),
        mac: if dice.once_in(3) { Mac::new([2, 0, 0, 0, 0, 7]) } else { below },
        mtu: if dice.once_in(2) { 1496 } else { 1500 },
        up,
        carrier: None,
        speed: None,
        addresses: vec!["198.51.100.1/24".parse().unwrap()],
        routes: up.then(|| route("203.0.113.0/24", "198.51.100.254")).into_iter().collect(),
        master: None,
        uppers: Vec::new(),
    };
    Upper { kind: "vlan".to_owned(), vlan: Some(vlan), interface }
}

fn state(dice: &mut Dice) -> VfState {
    VfState {
        mac: if dice.once_in(2) {
            Mac::new([0; 6])
        } else {
            Mac::new([6, 5, 4, dice.below(256) as u8, dice.below(256) as u8, dice.below(256) as u8])
        },
        vlan: VlanId::new(dice.below(3) as u16).unwrap(),
        spoofchk: dice.some(2, true),
        trust: dice.some(2, false),
        max_tx_rate: TxRate(dice.below(2) as u32 * 100),
        link_state: dice.some(2, LinkState::Auto),
        ..VfState::default()
    }
}

fn eswitch(dice: &mut Dice) -> WantedEswitch {
    if dice.once_in(2) { WantedEswitch::Switchdev } else { WantedEswitch::Legacy }
}

fn pf(dice: &mut Dice, nic: usize, total: u16) -> Pf {
    let (driver, vf_driver) = DRIVERS[dice.below(5) as usize];
    let bdf = Bdf::new(0, RoutingId(0x0400 + 0x1000 * nic as u16));
    let num_vfs = if dice.once_in(2) { dice.below(u64::from(total) + 1) as u16 } else { 0 };
    // Its functions may be ports of an embedded switch of ours.
    let switched = driver == "virtio-pci" && dice.once_in(2);
    let attributes = driver != "virtio-pci" || switched;
    let vfs = (0..total)
        .map(|index| Vf {
            index: VfIndex::new(index).unwrap(),
            bdf: bdf.of_vf(0x80, 2, index).unwrap(),
            present: (index < num_vfs).then(|| {
                let driver = if dice.once_in(3) { "vfio-pci" } else { vf_driver };
                let bound = dice.some(2, driver);
                let own = (bound == Some(vf_driver))
                    .then(|| interface(dice, format!("v{nic}x{index}"), mac(0x0e, nic, index)));
                PresentVf {
                    driver: bound.map(str::to_owned),
                    interface: own,
                    attributes: attributes.then(|| state(dice)),
                    ..PresentVf::default()
                }
            }),
        })
        .collect();
    let mode = (driver == "bnxt_en").then(|| eswitch(dice).mode());
    let of_switch = mode.map(|mode| Eswitch { mode, inline_mode: None, encap_mode: None });
    Pf {
        bdf,
        identity: Default::default(),
        driver: Some(driver.to_owned()),
        interface: Some(interface(dice, format!("p{nic}"), mac(0, nic, 0))),
        permanent_mac: Some(mac(0, nic, 0)),
        numa_node: None,
        iommu_group: None,
        sriov: Some(Sriov {
            total_vfs: total,
            num_vfs,
            autoprobe: dice.once_in(2),
            first_vf_offset: 0x80,
            vf_stride: 2,
            vf_device: 0,
            vfs,
        }),
        switch_mode: match driver {
            _ if mode == Some(EswitchMode::Switchdev) => SwitchMode::Switchdev,
            "ixgbe" | "bnxt_en" => {
                [SwitchMode::Veb, SwitchMode::Vepa, SwitchMode::Unreported][dice.below(3) as usize]
            }
            _ if switched => [SwitchMode::Veb, SwitchMode::Vepa][dice.below(2) as usize],
            _ => SwitchMode::Unreported,
        },
        firmware: None,
        devlink: of_switch.map(|eswitch| Devlink { eswitch: Some(eswitch), ..Devlink::default() }),
    }
}

fn settings(dice: &mut Dice, mac: Option<Mac>) -> VfSettings {
    VfSettings {
        mac,
        vlan: dice.some(3, VlanId::new(100).unwrap()),
        spoofchk: dice.some(3, true),
        trust: dice.some(3, true),
        max_tx_rate: dice.some(3, TxRate(100)),
        link_state: dice.some(3, LinkState::Enable),
        ..VfSettings::default()
    }
}

/// How many of what.
pub struct Size {
    pub nics: usize,
    pub vfs: u16,
    pub guests: usize,
}

/// A machine with a model that fits it.
pub fn machine(seed: u64, size: &Size) -> (Model, Inventory) {
    let dice = &mut Dice(seed);
    let mut inventory = Inventory::default();
    let mut model = Model {
        machine: "m".into(),
        nics: IndexMap::new(),
        drives: IndexMap::new(),
        guests: IndexMap::new(),
        realtime: None,
        measure: Measure::default(),
        expect: Vec::new(),
        expect_latency: Vec::new(),
        board: Board::default(),
    };
    inventory.cpus.online = CpuSet((0..8).collect());
    inventory.memory = ByteSize(1 << 40);
    inventory.iommu_groups.insert(0, vec![]);
    let mut functions = Vec::new();
    for index in 0..size.nics {
        let mut pf = pf(dice, index, size.vfs);
        pf.identity.serial = dice.some(2, SerialNumber(index as u64 / 2 + 1));
        pf.identity.slot = dice.some(2, format!("{}", index / 2 + 1).parse().unwrap());
        let name: NicName = format!("NET{index}").parse().unwrap();
        let vfs = if dice.once_in(3) { size.vfs } else { dice.below(u64::from(size.vfs) + 1) as u16 };
        let owned_pf = dice.once_in(3);
        functions.extend(owned_pf.then(|| FunctionName { nic: name.clone(), vf: None }));
        functions.extend((0..vfs).map(|vf| FunctionName { nic: name.clone(), vf: VfIndex::new(vf) }));
        // Of the drivers here it has modes of its embedded switch; without it loopback is whose it was.
        let wanted = eswitch(dice);
        let eswitch = dice.some(2, wanted).filter(|_| pf.devlink.is_some());
        let loopback = dice.some(2, dice.0 & 1 == 0);
        let loopback = loopback.filter(|_| eswitch != Some(WantedEswitch::Switchdev));
        let nic = Nic {
            matching: NicMatch {
                mac: dice.some(2, pf.permanent_mac.unwrap()),
                serial: pf.identity.serial.filter(|_| dice.once_in(2)),
                slot: pf.identity.slot.clone().filter(|_| dice.once_in(2)),
                port: dice.some(2, pf.bdf.function()),
                bdf: Some(pf.bdf),
                driver: dice.some(2, pf.driver.clone().unwrap()),
            },
            vfs,
            externally_managed: false,
            loopback,
            eswitch,
            mtu: dice.some(2, Mtu::new(9000).unwrap()),
            interface: dice.some(2, format!("lan{index}").parse().unwrap()),
            addresses: if owned_pf {
                vec![]
            } else {
                dice.some(2, "2001:db8::1/64".parse().unwrap()).into_iter().collect()
            },
            vf_defaults: settings(dice, None),
            free_driver: match dice.below(5) {
                0 => Some(FreeDriver::Host),
                1 => Some(FreeDriver::VfioPci),
                2 => Some(FreeDriver::None),
                _ => None,
            },
            best_effort: BTreeSet::new(),
        };
        inventory.pfs.push(pf);
        model.nics.insert(name, nic);
    }
    if dice.once_in(2) {
        inventory.managers = Manager::ALL.into_iter().map(|manager| (manager, Default::default())).collect();
    }
    let names: Vec<GuestName> = (0..size.guests).map(|index| format!("g{index}").parse().unwrap()).collect();
    for name in &names {
        let kind = if dice.once_in(2) { GuestKind::Vm } else { GuestKind::Container };
        let mut guest = Guest { kind, cpus: dice.some(2, 2), ..Guest::default() };
        // Two CPUs each of eight, of which the last four are for whoever says that they are its alone.
        let position = model.guests.len() as u32;
        if dice.once_in(2) && position < 4 {
            guest.exclusive = position < 2 && dice.once_in(2);
            let first = if guest.exclusive { 4 + 2 * position } else { dice.below(3) as u32 };
            guest.pin = Some(CpuSet((first..first + 2).collect()));
        }
        guest.vm.ready_within = 60;
        if dice.once_in(3) {
            guest.vm.boot = Boot::Disk { path: format!("/srv/{name}.img"), format: DiskFormat::Raw };
        }
        guest.vm.inside = [Inside::Agent, Inside::Console, Inside::None][dice.below(3) as usize];
        guest.vm.emulator = dice.some(4, CpuSet((0..2).collect()));
        let search = dice.some(2, "lab.example").into_iter().map(|domain| domain.parse().unwrap()).collect();
        let servers = ["192.0.2.53", "2001:db8::53"].map(|server| server.parse().unwrap()).to_vec();
        guest.dns = dice.some(4, Dns { servers, search });
        model.guests.insert(name.clone(), guest);
    }
    for name in functions {
        // One in four belongs to nobody.
        let owner = dice.below(size.guests as u64 * 4 / 3 + 1) as usize;
        let Some(guest) = names.get(owner).and_then(|owner| model.guests.get_mut(owner)) else {
            // Somebody else may have taken it into another network namespace.
            let pf = &mut inventory.pfs[name.nic.as_str()[3..].parse::<usize>().unwrap()];
            let vfs = pf.sriov.iter_mut().flat_map(|sriov| &mut sriov.vfs);
            let present = vfs.filter(|vf| Some(vf.index) == name.vf).find_map(|vf| vf.present.as_mut());
            if let Some(present) = present.filter(|_| dice.once_in(4)) {
                present.interface = None;
            }
            continue;
        };
        if name.vf.is_none() {
            // Only a container can own a PF.
            guest.kind = GuestKind::Container;
        }
        let nic = name.nic.as_str()[3..].parse().unwrap();
        let given = dice.some(3, mac(2, nic, name.vf.map_or(0x100, VfIndex::get)));
        let of_vf = settings(dice, given).or(&model.nics[&name.nic].vf_defaults);
        guest.functions.push(Function {
            settings: if name.vf.is_some() {
                of_vf
            } else {
                VfSettings { mac: given, ..VfSettings::default() }
            },
            name,
            interface: format!("eth{}", guest.functions.len()).parse().unwrap(),
            addresses: vec![],
            // The second function of each guest has two.
            routes: [("::/0", Some("fe80::1"), None), ("fd00:1::/64", None, Some(100))]
                .map(|(to, via, priority)| {
                    let via = via.map(|via: &str| via.parse().unwrap());
                    InterfaceRoute { priority, ..InterfaceRoute::new(to.parse().unwrap(), via) }
                })
                .into_iter()
                .filter(|_| guest.functions.len() == 1)
                .collect(),
            dhcp: guest.kind == GuestKind::Container && guest.functions.len() == 2,
            mtu: None,
            egress_rate: None,
            ingress_rate: None,
            best_effort: BTreeSet::new(),
        });
    }
    drives::add(dice, &names, &mut model, &mut inventory);
    // Any later guest may need any earlier one of a shuffled list: no cycle, and not the file's order.
    let mut shuffled = names.clone();
    for index in (1..shuffled.len()).rev() {
        shuffled.swap(index, dice.below(index as u64 + 1) as usize);
    }
    for later in 1..shuffled.len() {
        if dice.once_in(2) {
            let earlier = shuffled[dice.below(later as u64) as usize].clone();
            model.guests[&shuffled[later]].after.push(earlier);
        }
    }
    (model, inventory)
}
