//! Who has a MAC address already, at the PF and in the VLAN in which it is asked for. Two with one address at one switch are sent each other's
//! frames. Another PF may lead to another network, and a bond has one address at two of them.

use std::collections::BTreeSet;

use penstock_host::{InterfaceReport, Netlink, NetlinkError, Root, VfBackend, local_interface_of};
use penstock_model::{Bdf, Mac, VfIndex, inventory::VfState};

use super::{
    prepare::called,
    state::{PreparedClaim, PreparedDevice},
};
use crate::devices::{Devices, PublishedFunction};

/// Who may have an address that a device of a claim is to have.
pub struct MacNeighbours<'a> {
    /// The directory below which the machine is read.
    pub root: &'a Root,
    /// The devices of this node.
    pub devices: &'a Devices,
    /// The claim, with those of its devices that are decided.
    pub claim: &'a PreparedClaim,
    /// The other claims that are prepared.
    pub others: &'a [PreparedClaim],
}

impl MacNeighbours<'_> {
    /// Who has an address that is asked for `device`, in words. What the kernel does not tell is not known.
    pub fn holder(&self, mac: Mac, device: &PreparedDevice) -> Option<String> {
        let own = self.devices.get(&device.device)?;
        let now = PfNow::read(self.root, own.pf, self.devices).unwrap_or_default();
        self.holder_with(mac, device, own, &now)
    }

    fn holder_with(
        &self,
        mac: Mac,
        device: &PreparedDevice,
        own: &PublishedFunction,
        now: &PfNow,
    ) -> Option<String> {
        // What a claim does not set stays as it is.
        let vlan_of = |of: &PreparedDevice, function: &PublishedFunction| {
            of.configuration["vlan"].as_u64().unwrap_or_else(|| now.vlan(function.vf))
        };
        let vlan = vlan_of(device, own);
        let collides = |of: &&PreparedDevice| {
            let there = self.devices.get(&of.device).filter(|there| there.pf == own.pf);
            of.mac == Some(mac) && there.is_some_and(|there| vlan_of(of, there) == vlan)
        };
        if let Some(other) = self.claim.devices.iter().find(collides) {
            return Some(format!("{} of the same claim", other.device));
        }
        if let Some(other) = self.others.iter().find(|other| other.devices.iter().any(|of| collides(&of))) {
            return Some(called(other, self.claim));
        }
        let nic = self.devices.nics.get(&own.pf).filter(|nic| vlan == 0 && nic.mac == Some(mac));
        if let Some(nic) = nic {
            return Some(format!("the NIC {}", nic.name));
        }
        let through = now.through_but(own.vf);
        let is_it = |report: &&InterfaceReport| {
            report.interface.mac == mac && through.contains(&(report.index, vlan))
        };
        if let Some(report) = now.links.iter().find(is_it) {
            return Some(format!("the interface {} of the host", report.interface.name));
        }
        let mut vfs = now.vfs.iter();
        let (vf, _) =
            vfs.find(|(vf, state)| *vf != own.vf && state.mac == mac && u64::from(state.vlan.get()) == vlan)?;
        Some(format!("VF {vf} of {}", own.nic))
    }
}

/// What the host has of a PF.
#[derive(Default)]
struct PfNow {
    links: Vec<InterfaceReport>,
    /// The PF's interface, by its index.
    interface: Option<u32>,
    /// Those of its VFs that are on the host.
    of_vfs: Vec<(VfIndex, u32)>,
    /// The VFs as the PF has them.
    vfs: Vec<(VfIndex, VfState)>,
}

impl PfNow {
    fn read(root: &Root, pf: Bdf, devices: &Devices) -> Result<PfNow, NetlinkError> {
        let mut netlink = Netlink::open()?;
        let links = netlink.links()?;
        let index = |function| local_interface_of(function, &links, root).map(|report| report.index);
        let interface = index(pf);
        let of_pf = devices.functions.values().filter(|of| of.pf == pf);
        let of_vfs = of_pf.filter_map(|of| Some((of.vf, index(of.bdf)?))).collect();
        let vfs = |index| VfBackend::of(root, &mut netlink, index)?.vfs();
        let vfs = interface.map(vfs).transpose().ok().flatten().unwrap_or_default();
        Ok(PfNow { links, interface, of_vfs, vfs })
    }

    /// A VF's port VLAN; 0 is none.
    fn vlan(&self, vf: VfIndex) -> u64 {
        let state = self.vfs.iter().find(|(of, _)| *of == vf);
        state.map_or(0, |(_, state)| state.vlan.get().into())
    }

    /// The interfaces of the host whose frames go through the PF, by their indices, and the VLAN in which they do: the PF's, those of its VFs but
    /// `own`, what stands on one of them, and what it is a port of.
    fn through_but(&self, own: VfIndex) -> BTreeSet<(u32, u64)> {
        let of_others = self.of_vfs.iter().filter(|(vf, _)| *vf != own);
        let mut waiting: Vec<(u32, u64)> = of_others
            .map(|(vf, index)| (*index, self.vlan(*vf)))
            .chain(self.interface.map(|pf| (pf, 0)))
            .collect();
        let mut through = BTreeSet::new();
        while let Some((index, vlan)) = waiting.pop() {
            if !through.insert((index, vlan)) {
                continue;
            }
            for link in &self.links {
                if link.index == index {
                    waiting.extend(link.master.map(|master| (master, vlan)));
                }
                if let Some(lower) = link.lower.as_ref().filter(|lower| lower.index == index) {
                    waiting.push((link.index, lower.vlan.as_ref().map_or(vlan, |tag| tag.id.into())));
                }
            }
        }
        through
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use penstock_model::{VlanId, inventory::VlanTag};
    use serde_json::{Value, json};

    use super::*;
    use crate::{claim::state::tests::claim, devices::KnownNic, identity::DeviceName};

    /// Two VFs at each of two PFs.
    fn devices() -> Devices {
        let mut all = Devices::default();
        for (pf, nic) in [("0000:01:00.0", "net0"), ("0000:02:00.0", "net1")] {
            let pf: Bdf = pf.parse().unwrap();
            let mac = format!("02:00:00:00:00:f{}", all.nics.len()).parse().ok();
            all.nics.insert(pf, KnownNic { name: nic.to_owned(), in_model: None, mac });
            for vf in 0..2 {
                let name: DeviceName = serde_json::from_value(json!(format!("{nic}-{vf}"))).unwrap();
                let function = PublishedFunction {
                    name: name.clone(),
                    nic: nic.to_owned(),
                    label: nic.to_owned(),
                    attributes: BTreeMap::new(),
                    in_use: None,
                    pf,
                    vf: VfIndex::new(vf).unwrap(),
                    bdf: format!("{}:{vf}0.0", &pf.to_string()[..7]).parse().unwrap(),
                    driver: None,
                };
                all.functions.insert(name, function);
            }
        }
        all
    }

    fn prepared(uid: &str, device: &str, mac: Mac, vlan: Option<u16>) -> PreparedClaim {
        let mut claim = claim(uid, device);
        claim.devices[0].mac = Some(mac);
        claim.devices[0].configuration = vlan.map_or_else(|| json!({}), |vlan| json!({"vlan": vlan}));
        claim
    }

    fn link(index: u32, name: &str, mac: &str, more: Value) -> InterfaceReport {
        let mut report = json!({
            "index": index,
            "interface": {"name": name, "mac": mac, "mtu": 1500, "up": true, "addresses": []},
        });
        report.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(report).unwrap()
    }

    #[test]
    fn an_address_is_looked_for_at_its_pf_and_in_its_vlan() {
        let devices = devices();
        let [first, second] = [0, 1].map(|vf| VfIndex::new(vf).unwrap());
        let now = PfNow {
            links: vec![
                link(1, "pf0", "02:00:00:00:00:01", json!({"master": 4})),
                link(2, "vf0", "02:00:00:00:00:02", json!({})),
                link(3, "vf1", "02:00:00:00:00:03", json!({})),
                link(4, "br0", "02:00:00:00:00:04", json!({})),
                link(5, "br0.100", "02:00:00:00:00:05", json!({"lower": {"index": 4, "vlan": tag(100)}})),
                link(6, "other", "02:00:00:00:00:06", json!({})),
            ],
            interface: Some(1),
            of_vfs: vec![(first, 2), (second, 3)],
            vfs: vec![vf(first, 2, 0), vf(second, 8, 7)],
        };
        let root = Root::at("/nowhere");
        let other = [
            prepared("u-2", "net0-1", "02:00:00:00:00:0a".parse().unwrap(), Some(100)),
            PreparedClaim {
                namespace: "tenant".to_owned(),
                ..prepared("u-3", "net0-1", "02:00:00:00:00:0b".parse().unwrap(), None)
            },
        ];
        let holder = |last: &str, device: &str, vlan: Option<u16>, same: Option<&str>| {
            let mac = format!("02:00:00:00:00:{last}").parse().unwrap();
            let device = prepared("u-1", device, mac, vlan).devices.remove(0);
            let mut claim = prepared("u-1", same.unwrap_or("net0-1"), mac, vlan);
            if same.is_none() {
                claim.devices.clear();
            }
            let neighbours = MacNeighbours { root: &root, devices: &devices, claim: &claim, others: &other };
            neighbours.holder_with(mac, &device, devices.get(&device.device).unwrap(), &now)
        };
        let of = |last: &str, vlan: Option<u16>| holder(last, "net0-0", vlan, None);
        let some = |who: &str| Some(who.to_owned());
        for (last, vlan, who) in [
            ("f0", None, some("the NIC net0")),
            ("f0", Some(100), None),
            ("f1", None, None),
            ("01", None, some("the interface pf0 of the host")),
            ("01", Some(7), None),
            ("02", None, None),
            ("03", Some(7), some("the interface vf1 of the host")),
            ("03", None, None),
            ("04", None, some("the interface br0 of the host")),
            ("05", Some(100), some("the interface br0.100 of the host")),
            ("05", None, None),
            ("06", None, None),
            ("08", Some(7), some("VF 1 of net0")),
            ("08", Some(8), None),
            ("0a", Some(100), some("claim default/data (u-2)")),
            ("0a", None, None),
            ("0b", Some(7), some("a claim of another namespace")),
            ("0b", None, None),
        ] {
            assert_eq!(of(last, vlan), who, "{last} {vlan:?}");
        }
        assert_eq!(holder("0a", "net1-0", Some(100), None), None, "at another PF");
        assert_eq!(holder("0c", "net0-0", None, Some("net1-0")), None, "for a bond");
        assert_eq!(holder("0c", "net0-0", Some(9), Some("net0-1")), some("net0-1 of the same claim"));
    }

    fn tag(id: u16) -> VlanTag {
        serde_json::from_value(json!({"id": id, "protocol": "802.1Q", "flags": 1})).unwrap()
    }

    fn vf(index: VfIndex, mac: u8, vlan: u16) -> (VfIndex, VfState) {
        let (mac, vlan) = (Mac::new([2, 0, 0, 0, 0, mac]), VlanId::new(vlan).unwrap());
        (index, VfState { mac, vlan, ..VfState::default() })
    }
}
