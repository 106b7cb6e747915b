//! netplan's YAML (netplan's reference, "Properties for SR-IOV devices"): PFs with `virtual-function-count`, VFs with `link`, and
//! `vlans` with `renderer: sriov`.

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::{InterfaceName, Inventory, VfCount, VfIndex, VfKey, VfSettings, yaml::shown};

use super::{
    Found,
    foreign::{ForeignFields, ForeignNode},
    inside,
    nic::{ForeignNic, PfSelector},
};
use crate::vf_names;

/// What netplan says of a VF's interface, which stays the host's: a guest of a model that has it would take the VF away from the host.
const OF_THE_HOST: [&str; 8] =
    ["dhcp4", "dhcp6", "addresses", "mtu", "nameservers", "routes", "gateway4", "gateway6"];

/// The NICs of these documents.
pub fn read<'a>(roots: &[ForeignNode<'a>], machine: Option<&Inventory>) -> Found<'a> {
    let mut found = Found::default();
    for root in roots {
        let mut fields = root.fields();
        let Some(network) = fields.take("network") else {
            root.error("this is no file of netplan: it has no `network`");
            continue;
        };
        found.nics.extend(File::default().read(network.fields(), machine));
    }
    found
}

/// What has been read of a file so far.
#[derive(Default)]
struct File<'a> {
    /// NICs by their id.
    pfs: BTreeMap<&'a str, ForeignNic<'a>>,
    /// Of each VF's id its PF's, and its index.
    vfs: BTreeMap<&'a str, (&'a str, VfIndex)>,
}

impl<'a> File<'a> {
    fn read(mut self, mut network: ForeignFields<'a>, machine: Option<&Inventory>) -> Vec<ForeignNic<'a>> {
        if let Some(version) = network.take("version").filter(|version| version.text() != Some("2")) {
            version.error("netplan's files have version 2");
        }
        let ethernets: Vec<_> = network.take("ethernets").iter().flat_map(ForeignNode::entries).collect();
        let key = |node: &ForeignNode<'a>, key: &str| {
            let all = if node.is_null() { Vec::new() } else { node.entries() };
            all.into_iter().find(|(found, value)| *found == key && !value.is_null()).map(|(_, value)| value)
        };
        let linked: BTreeSet<&str> =
            ethernets.iter().filter_map(|(_, node)| key(node, "link")?.text()).collect();
        for (id, node) in &ethernets {
            let is_vf = key(node, "link").is_some();
            if !is_vf && (key(node, "virtual-function-count").is_some() || linked.contains(*id)) {
                self.pfs.insert(id, pf(id, node));
            } else if !is_vf {
                node.left_out(
                    "this interface is left out: it has no `virtual-function-count` and no VF's `link`, and a model has NICs with VFs alone",
                );
            }
        }
        for (id, node) in ethernets.iter().filter(|(_, node)| key(node, "link").is_some()) {
            self.vf(id, node, machine);
        }
        for (_, node) in network.take("vlans").iter().flat_map(ForeignNode::entries) {
            self.vlan(&node);
        }
        // In the file's order.
        ethernets.iter().filter_map(|(id, _)| self.pfs.remove(id)).collect()
    }

    fn vf(&mut self, id: &'a str, node: &ForeignNode<'a>, machine: Option<&Inventory>) {
        let mut fields = node.fields();
        let Some(link) = fields.take("link") else { return };
        let name = match fields.take("match") {
            Some(matching) => matching.fields().value("name"),
            None => id.parse::<InterfaceName>().ok(),
        };
        let Some((pf, nic)) = link.text().and_then(|pf| Some((pf, self.pfs.get_mut(pf)?))) else {
            fields.forget();
            let pf = shown(link.text().unwrap_or_default());
            return link.left_out_with_hint(
                format!("this VF is left out: its PF {pf} is not among the `ethernets` of this file"),
                "`netplan get` prints what all files say together",
            );
        };
        let Some(index) = name.as_ref().and_then(|name| vf_index(name, nic, machine)) else {
            fields.forget();
            return node.left_out_with_hint(
                "this VF is left out: netplan knows VFs by the names of their interfaces, and which of its PF's it is was not found",
                "give an `--inventory` in which the VF is there, or write its attributes into the model by its index",
            );
        };
        let mut settings = VfSettings::default();
        if let Some(mac) = fields.take("macaddress").and_then(|node| node.setting(VfKey::Mac)) {
            settings = mac;
        }
        nic.add(index, &settings, node);
        for key in OF_THE_HOST {
            fields.left_out(key, "the host has it at this VF, and what a model gives a VF is inside a guest");
        }
        self.vfs.insert(id, (pf, index));
    }

    fn vlan(&mut self, node: &ForeignNode<'a>) {
        let is_filter = !node.is_null()
            && node.entries().iter().any(|(key, value)| *key == "renderer" && value.text() == Some("sriov"));
        if !is_filter {
            return node.left_out("this VLAN is left out: it is an interface of the host, and not a VF's port VLAN (`renderer: sriov`)");
        }
        let mut fields = node.fields();
        fields.take("renderer");
        let vlan = fields.take("id").and_then(|id| id.setting(VfKey::Vlan));
        let link = fields.take("link");
        let vf = link.as_ref().and_then(ForeignNode::text).and_then(|id| self.vfs.get(id));
        let nic = vf.and_then(|(pf, index)| Some((self.pfs.get_mut(pf)?, *index)));
        match (vlan, nic) {
            (Some(vlan), Some((nic, index))) => nic.add(index, &vlan, node),
            (None, _) => node.error("a VLAN has an `id`"),
            (_, None) => node.left_out("this VLAN is left out: its `link` is no VF that was found"),
        }
    }
}

fn pf<'a>(id: &'a str, node: &ForeignNode<'a>) -> ForeignNic<'a> {
    let mut fields = node.fields();
    let selector = match fields.take("match") {
        Some(matching) => selector(&matching),
        None => {
            let name = id.parse::<InterfaceName>().map_err(|why| node.error(why.to_string())).ok();
            PfSelector { name, ..PfSelector::default() }
        }
    };
    let mut nic = ForeignNic::new(id, selector, node.clone());
    nic.interface = fields.value("set-name");
    nic.mtu = fields.value("mtu");
    nic.eswitch = fields.value("embedded-switch-mode");
    nic.vfs = fields.value::<VfCount>("virtual-function-count").map(|count| count.get());
    nic.addresses = inside::addresses(&mut fields);
    nic
}

fn selector(at: &ForeignNode<'_>) -> PfSelector {
    let mut fields = at.fields();
    let mut selector = PfSelector { mac: fields.value("macaddress"), ..PfSelector::default() };
    if let Some(name) = fields.take("name") {
        match name.text().is_some_and(|text| text.contains(['*', '?', '['])) {
            true => name.left_out("`name` is left out: it is a pattern, and a NIC is one device"),
            false => selector.name = name.value(),
        }
    }
    if let Some(driver) = fields.take("driver") {
        match driver.text().filter(|text| !text.contains(['*', '?', '['])) {
            Some(text) => selector.driver = Some(text.to_owned()),
            None => {
                driver.left_out("`driver` is left out: it is a list or a pattern, and a NIC has one driver")
            }
        }
    }
    selector
}

/// Which VF of its PF an interface is: as the machine has it, or by its name, which systemd makes of the PF's
/// (systemd.net-naming-scheme(7), `v`).
fn vf_index(name: &InterfaceName, nic: &ForeignNic<'_>, machine: Option<&Inventory>) -> Option<VfIndex> {
    let pfs = || machine.iter().flat_map(|machine| &machine.pfs).filter(|pf| nic.selector.holds_for(pf));
    let known = pfs().filter_map(|pf| pf.sriov.as_ref()).flat_map(|sriov| &sriov.vfs).find(|vf| {
        let interface = vf.present.as_ref().and_then(|present| present.interface.as_ref());
        interface.is_some_and(|interface| interface.name == *name)
    });
    if let Some(vf) = known {
        return Some(vf.index);
    }
    let own = [
        Some(nic.name.as_str()),
        nic.interface.as_ref().map(InterfaceName::as_str),
        nic.selector.name.as_ref().map(InterfaceName::as_str),
    ];
    let there = pfs().filter_map(|pf| Some(pf.interface.as_ref()?.name.as_str()));
    own.into_iter().flatten().chain(there).find_map(|pf| vf_names::index(name, pf))
}
