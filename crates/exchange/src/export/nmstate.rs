//! nmstate's desired state: `ethernet.sr-iov` of each PF's interface (nmstate's documentation, "SR-IOV"; `SrIovConfig` of its library).

use std::fmt::Write;

use penstock_model::{Mac, VfKey, VfValue};
use penstock_plan::{NicOnMachine, VfOnMachine};

use super::{ExportedFile, left_out::Omissions, single_quoted};

/// One file with all NICs.
pub fn files(nics: &[NicOnMachine<'_>], left_out: &mut Omissions) -> Vec<ExportedFile> {
    let mut text = "# By `penstock export`: nmstatectl apply FILE\ninterfaces:\n".to_owned();
    let mut any = false;
    for nic in nics {
        let known = nic.pf.interface.as_ref().map(|interface| &interface.name);
        let Some(name) = nic.nic.interface.as_ref().or(known) else {
            left_out.nic(nic.name, "its PF has no interface, by whose name or address nmstate would find it");
            continue;
        };
        if nic.nic.interface.as_ref().is_some_and(|wanted| known.is_some_and(|is| is != wanted)) {
            left_out.nic_key(nic.name, "interface");
        }
        left_out.vf_keys(nic, |key| word(key).is_some());
        any = true;
        interface(&mut text, nic, name.as_str());
    }
    if !any {
        return Vec::new();
    }
    vec![ExportedFile { name: "penstock.nmstate.yaml".to_owned(), text }]
}

/// Its word for a key of a VF.
pub fn word(key: VfKey) -> Option<&'static str> {
    Some(match key {
        VfKey::Mac => "mac-address",
        VfKey::Vlan => "vlan-id",
        VfKey::Qos => "qos",
        VfKey::VlanProto => "vlan-proto",
        VfKey::Spoofchk => "spoof-check",
        VfKey::Trust => "trust",
        VfKey::MinTxRate => "min-tx-rate",
        VfKey::MaxTxRate => "max-tx-rate",
        // The link state, and whatever comes: it is told as left out.
        _ => return None,
    })
}

fn value(value: VfValue) -> String {
    match value {
        VfValue::Mac(mac) => quoted(mac),
        VfValue::Switch(on) => on.to_string(),
        VfValue::Protocol(protocol) => format!("'{}'", protocol.to_string().to_lowercase()),
        other => other.plain(),
    }
}

/// As nmstate prints it. Digits and colons alone are a number in base 60 to some readers of YAML.
fn quoted(mac: Mac) -> String {
    format!("'{}'", mac.to_string().to_uppercase())
}

fn interface(text: &mut String, nic: &NicOnMachine<'_>, name: &str) {
    let _ = write!(text, "  - name: {}\n    type: ethernet\n    state: up\n", single_quoted(name));
    if let Some(mac) = nic.pf.permanent_mac {
        let _ = write!(text, "    identifier: mac-address\n    mac-address: {}\n", quoted(mac));
    }
    if let Some(mtu) = nic.nic.mtu {
        let _ = writeln!(text, "    mtu: {}", mtu.get());
    }
    let _ = write!(text, "    ethernet:\n      sr-iov:\n        total-vfs: {}\n", nic.nic.vfs);
    if !nic.vfs.is_empty() {
        text.push_str("        vfs:\n");
    }
    nic.vfs.iter().for_each(|vf| function(text, vf));
    for (family, is) in [("ipv4", true), ("ipv6", false)] {
        let addresses: Vec<_> =
            nic.nic.addresses.iter().filter(|address| address.ip().is_ipv4() == is).collect();
        if !addresses.is_empty() {
            let _ = write!(text, "    {family}:\n      enabled: true\n      address:\n");
        }
        for address in addresses {
            let _ = write!(
                text,
                "        - ip: '{}'\n          prefix-length: {}\n",
                address.ip(),
                address.prefix()
            );
        }
    }
}

fn function(text: &mut String, vf: &VfOnMachine<'_>) {
    let _ = writeln!(text, "          - id: {}", vf.index);
    for (key, asked) in vf.settings.values() {
        if let Some(word) = word(key) {
            let _ = writeln!(text, "            {word}: {}", value(asked));
        }
    }
}
