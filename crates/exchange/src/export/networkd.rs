//! systemd's `.link` files, with a section for each VF (systemd.link(5), `[SR-IOV]`; systemd 251 and newer), and `.network` files.

use std::fmt::Write;

use penstock_model::{LinkState, VfKey, VfValue};
use penstock_plan::{NicOnMachine, VfOnMachine};

use super::{ExportedFile, left_out::Omissions};

/// One file of links for each NIC, and one of addresses where the PF has some.
pub fn files(nics: &[NicOnMachine<'_>], left_out: &mut Omissions) -> Vec<ExportedFile> {
    let mut files = Vec::new();
    for nic in nics {
        left_out.vf_keys(nic, |key| word(key).is_some());
        left_out.no_vlan(nic, &nic.vfs.iter().collect::<Vec<_>>());
        let name = format!("10-penstock-{}", nic.name);
        files.push(ExportedFile { name: format!("{name}.link"), text: link(nic) });
        if !nic.nic.addresses.is_empty() {
            files.push(ExportedFile { name: format!("{name}.network"), text: network(nic) });
        }
    }
    files
}

/// Its word for a key of a VF.
pub fn word(key: VfKey) -> Option<&'static str> {
    Some(match key {
        VfKey::Mac => "MACAddress",
        VfKey::Vlan => "VLANId",
        VfKey::Qos => "QualityOfService",
        VfKey::VlanProto => "VLANProtocol",
        VfKey::Spoofchk => "MACSpoofCheck",
        VfKey::Trust => "Trust",
        VfKey::LinkState => "LinkState",
        // Rates, and whatever comes: it is told as left out.
        _ => return None,
    })
}

fn value(value: VfValue) -> String {
    match value {
        VfValue::Switch(true) | VfValue::Link(LinkState::Enable) => "yes".to_owned(),
        VfValue::Switch(false) | VfValue::Link(LinkState::Disable) => "no".to_owned(),
        other => other.plain(),
    }
}

/// The address that does not change; the PCI address where the driver reports none.
fn matching(nic: &NicOnMachine<'_>) -> String {
    match nic.pf.permanent_mac {
        Some(mac) => format!("[Match]\nPermanentMACAddress={mac}\nType=ether\n"),
        None => format!("[Match]\nPath=pci-{}\n", nic.pf.bdf),
    }
}

fn head(nic: &NicOnMachine<'_>) -> String {
    format!("# {} of a Penstock model, by `penstock export`.\n", nic.name)
}

fn link(nic: &NicOnMachine<'_>) -> String {
    let mut text = head(nic);
    let _ = write!(text, "{}\n[Link]\n", matching(nic));
    // The first file that matches is the only one that counts: what 99-default.link says of names is said again.
    let _ = match &nic.nic.interface {
        Some(name) => writeln!(text, "Name={name}"),
        None => writeln!(text, "NamePolicy=keep kernel database onboard slot path"),
    };
    text.push_str("AlternativeNamesPolicy=database onboard slot path mac\nMACAddressPolicy=persistent\n");
    if let Some(mtu) = nic.nic.mtu {
        let _ = writeln!(text, "MTUBytes={}", mtu.get());
    }
    let _ = writeln!(text, "SR-IOVVirtualFunctions={}", nic.nic.vfs);
    nic.vfs.iter().for_each(|vf| text.push_str(&section(vf)));
    text
}

fn section(vf: &VfOnMachine<'_>) -> String {
    let mut text = format!("\n[SR-IOV]\nVirtualFunction={}\n", vf.index);
    for (key, asked) in vf.settings.values() {
        // systemd takes VLANs from 1 on (`config_parse_sr_iov_uint32`).
        let is_no_vlan = key == VfKey::Vlan && vf.settings.vlan.is_some_and(|vlan| vlan.get() == 0);
        if let Some(word) = word(key).filter(|_| !is_no_vlan) {
            let _ = writeln!(text, "{word}={}", value(asked));
        }
    }
    text
}

fn network(nic: &NicOnMachine<'_>) -> String {
    let mut text = head(nic);
    let _ = write!(text, "{}\n[Network]\n", matching(nic));
    for address in &nic.nic.addresses {
        let _ = writeln!(text, "Address={address}");
    }
    text
}
