//! nmstate's desired state: interfaces of type `ethernet` with `ethernet.sr-iov` (nmstate's documentation, "SR-IOV").

use penstock_model::{InterfaceAddress, InterfaceName, VfCount, VfIndex, VfKey, VfSettings};

use super::{
    Found,
    foreign::{ForeignFields, ForeignNode},
    nic::{ForeignNic, PfSelector},
};
use crate::export::nmstate::word;

/// The NICs of these documents.
pub fn read<'a>(roots: &[ForeignNode<'a>]) -> Found<'a> {
    let mut found = Found::default();
    for root in roots {
        let mut fields = root.fields();
        // kubernetes-nmstate has the state in an object.
        if let Some(spec) = fields.take("spec") {
            ["apiVersion", "kind", "metadata", "status"].into_iter().for_each(|key| drop(fields.take(key)));
            let mut spec = spec.fields();
            spec.left_out("nodeSelector", "a model is of one machine");
            if let Some(state) = spec.take("desiredState") {
                interfaces(state.fields(), &mut found);
            }
        } else {
            interfaces(fields, &mut found);
        }
    }
    found
}

fn interfaces<'a>(mut state: ForeignFields<'a>, found: &mut Found<'a>) {
    for at in state.take("interfaces").iter().flat_map(ForeignNode::items) {
        found.nics.extend(interface(&at));
    }
}

/// An interface that is a NIC with VFs; what else it is, is left out as a whole.
fn interface<'a>(at: &ForeignNode<'a>) -> Option<ForeignNic<'a>> {
    let has_vfs = at.entries().iter().any(|(key, value)| {
        *key == "ethernet"
            && !value.is_null()
            && value.entries().iter().any(|(key, value)| *key == "sr-iov" && !value.is_null())
    });
    if !has_vfs {
        at.left_out(
            "this interface is left out: it has no `ethernet.sr-iov`, and a model has NICs with VFs alone",
        );
        return None;
    }
    let mut fields = at.fields();
    let Some(name) = fields.take("name") else {
        at.error("an interface needs a `name`");
        return None;
    };
    let label = name.text().unwrap_or_default().to_owned();
    if let Some(state) = fields.take("state").filter(|state| state.text() != Some("up")) {
        state.left_out("`state` is left out: a model has each NIC up");
    }
    if let Some(kind) = fields.take("type").filter(|kind| kind.text() != Some("ethernet")) {
        kind.error("an interface with `ethernet.sr-iov` has the type `ethernet`");
    }
    let mut nic = ForeignNic::new(label, selector(&name, &mut fields), at.clone());
    nic.mtu = fields.value("mtu");
    for family in ["ipv4", "ipv6"] {
        if let Some(node) = fields.take(family) {
            addresses(&node, &mut nic);
        }
    }
    let mut ethernet = fields.take("ethernet")?.fields();
    let mut sriov = ethernet.take("sr-iov")?.fields();
    nic.vfs = sriov.value::<VfCount>("total-vfs").map(|count| count.get());
    for vf in sriov.take("vfs").iter().flat_map(ForeignNode::items) {
        function(&vf, &mut nic);
    }
    Some(nic)
}

fn selector(name: &ForeignNode<'_>, fields: &mut ForeignFields<'_>) -> PfSelector {
    let by_name = || PfSelector { name: name.value::<InterfaceName>(), ..PfSelector::default() };
    let Some(by) = fields.take("identifier") else { return by_name() };
    match by.text() {
        Some("mac-address") => PfSelector { mac: fields.value("mac-address"), ..PfSelector::default() },
        Some("pci-address") => PfSelector { bdf: fields.value("pci-address"), ..PfSelector::default() },
        Some("name") => by_name(),
        _ => {
            by.error("an identifier is `name`, `mac-address` or `pci-address`");
            by_name()
        }
    }
}

/// Addresses that are given; not those that a server hands out.
fn addresses(at: &ForeignNode<'_>, nic: &mut ForeignNic<'_>) {
    let mut fields = at.fields();
    let enabled = fields.take("enabled").and_then(|node| node.switch());
    if enabled == Some(false) {
        at.left_out("that it is off is left out: a model adds addresses and removes none");
        fields.take("address");
        return;
    }
    for address in fields.take("address").iter().flat_map(ForeignNode::items) {
        let mut parts = address.fields();
        let (ip, prefix) = (parts.value("ip"), parts.value("prefix-length"));
        match ip.zip(prefix).map(|(ip, prefix)| InterfaceAddress::new(ip, prefix)) {
            Some(Some(good)) => nic.addresses.push(good),
            Some(None) => address.error("the prefix is longer than the address"),
            None => address.error("an address has `ip` and `prefix-length`"),
        }
    }
}

fn function(at: &ForeignNode<'_>, nic: &mut ForeignNic<'_>) {
    let mut fields = at.fields();
    let Some(index) = fields.value::<VfIndex>("id") else {
        at.error("a VF has an `id`");
        return;
    };
    let mut settings = VfSettings::default();
    for key in VfKey::ALL {
        let said = word(*key).and_then(|word| fields.take(word)).and_then(|node| node.setting(*key));
        settings = settings.or(&said.unwrap_or_default());
    }
    nic.add(index, &settings, at);
}
