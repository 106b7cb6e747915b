//! systemd's `.link` files with `[SR-IOV]` sections (systemd.link(5)), and the `.network` files of the same PFs (systemd.network(5)).

use std::collections::BTreeMap;

use penstock_model::{Bdf, InterfaceAddress, InterfaceName, VfCount, VfIndex, VfKey, VfSettings};

use super::{
    Found,
    foreign::{ForeignFields, ForeignNode},
    nic::{ForeignNic, PfSelector},
};
use crate::export::networkd::word;

/// The section of a VF, which comes once for each.
pub const OF_A_VF: &str = "SR-IOV";

/// The NICs of these files. A file is a NIC's when it makes VFs or has a word for one; another gives addresses to one of these.
pub fn read<'a>(roots: &[ForeignNode<'a>]) -> Found<'a> {
    let has_vfs = |root: &ForeignNode<'a>| {
        root.entries().iter().any(|(section, node)| {
            *section == OF_A_VF
                || *section == "Link"
                    && node.entries().iter().any(|(key, _)| *key == "SR-IOVVirtualFunctions")
        })
    };
    let (of_nics, others): (Vec<_>, Vec<_>) = roots.iter().partition(|root| has_vfs(root));
    let mut found = Found::default();
    let mut by_selector = BTreeMap::new();
    for root in of_nics {
        let mut file = root.fields();
        let selector = selector(&mut file);
        by_selector.insert(selector.clone(), found.nics.len());
        found.nics.push(nic(root, file, selector));
    }
    for root in others {
        let mut file = root.fields();
        let selector = selector(&mut file);
        match by_selector.get(&selector).and_then(|at| found.nics.get_mut(*at)) {
            Some(nic) => addresses(&mut file, nic),
            None => {
                file.forget();
                root.left_out("this file is left out: it makes no VFs, and no file here that does has the same `[Match]`");
            }
        }
    }
    found
}

fn selector(file: &mut ForeignFields<'_>) -> PfSelector {
    let Some(matching) = file.take("Match") else { return PfSelector::default() };
    let mut fields = matching.fields();
    let mut selector = PfSelector::default();
    if let Some(kind) = fields.take_last("Type").filter(|kind| kind.text() != Some("ether")) {
        kind.left_out("`Type` is left out: a NIC is `ether`");
    }
    for key in ["PermanentMACAddress", "MACAddress"] {
        if let Some(mac) = fields.take_last(key) {
            selector.mac = selector.mac.or(mac.value());
        }
    }
    for key in ["OriginalName", "Name"] {
        if let Some(name) = fields.take_last(key) {
            match name.text().is_some_and(|text| text.contains(['*', '?', '[', '!', ' '])) {
                true => {
                    name.left_out(format!("`{key}` is left out: it is a pattern, and a NIC is one device"))
                }
                false => selector.name = name.value::<InterfaceName>(),
            }
        }
    }
    if let Some(path) = fields.take_last("Path") {
        match path.text().and_then(|text| text.strip_prefix("pci-")?.parse::<Bdf>().ok()) {
            Some(bdf) => selector.bdf = Some(bdf),
            None => path.left_out("`Path` is left out: it is no single PCI address like pci-0000:01:00.0"),
        }
    }
    selector.driver = fields.take_last("Driver").and_then(|node| node.value());
    selector
}

fn nic<'a>(root: &ForeignNode<'a>, mut file: ForeignFields<'a>, selector: PfSelector) -> ForeignNic<'a> {
    let mut nic = ForeignNic::new(selector.label(), selector, root.clone());
    if let Some(link) = file.take("Link") {
        let mut link = link.fields();
        if let Some(name) = link.take_last("Name").and_then(|node| node.value::<InterfaceName>()) {
            nic.name = name.to_string();
            nic.interface = Some(name);
        }
        nic.mtu = link.take_last("MTUBytes").and_then(|node| node.value());
        let count = link.take_last("SR-IOVVirtualFunctions").and_then(|node| node.value::<VfCount>());
        nic.vfs = count.map(|count| count.get());
    }
    for section in file.take_all(OF_A_VF) {
        function(&section, &mut nic);
    }
    addresses(&mut file, &mut nic);
    nic
}

fn function(at: &ForeignNode<'_>, nic: &mut ForeignNic<'_>) {
    let mut fields = at.fields();
    let Some(index) = fields.take_last("VirtualFunction").and_then(|node| node.value::<VfIndex>()) else {
        return at.error("a section [SR-IOV] has a `VirtualFunction`");
    };
    let mut settings = VfSettings::default();
    for key in VfKey::ALL {
        let Some(node) = word(*key).and_then(|word| fields.take_last(word)) else { continue };
        let said = match (key, node.text()) {
            (VfKey::Vlan, Some(text)) if text.parse::<u32>() == Ok(0) => {
                node.left_out(
                    "`VLANId` is left out: systemd takes VLANs from 1 on, and passes over this one",
                );
                None
            }
            (VfKey::LinkState, Some("auto")) => node.setting(*key),
            (VfKey::LinkState, _) => {
                node.switch().and_then(|up| node.setting_as(*key, if up { "enable" } else { "disable" }))
            }
            _ => node.setting(*key),
        };
        settings = settings.or(&said.unwrap_or_default());
    }
    nic.add(index, &settings, at);
}

/// `Address=` of `[Network]`, any number of times.
fn addresses(file: &mut ForeignFields<'_>, nic: &mut ForeignNic<'_>) {
    if let Some(section) = file.take("Network") {
        let mut fields = section.fields();
        for address in fields.take_all("Address") {
            // Nothing takes back what came before it.
            match address.is_null() {
                true => nic.addresses.clear(),
                false => nic.addresses.extend(address.value::<InterfaceAddress>()),
            }
        }
    }
}
