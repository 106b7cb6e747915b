//! One file of netplan (netplan's reference, "Properties for SR-IOV devices"): an entry for each PF, and for each VF with an address or a
//! VLAN of its own.

use std::{collections::BTreeSet, fmt::Write};

use penstock_model::{FreeDriver, InterfaceName, Mac, Model, VfIndex, VfKey};
use penstock_plan::{NicOnMachine, VfOnMachine};

use super::{
    ExportedFile, is_of_a_vm,
    left_out::{Omissions, ranges},
    single_quoted,
};
use crate::vf_names;

/// The most VFs that netplan makes of a PF (`set_numvfs_for_pf` in its `sriov.py`).
const MOST_VFS: u16 = 256;

/// One file with all NICs.
pub fn files(model: &Model, nics: &[NicOnMachine<'_>], left_out: &mut Omissions) -> Vec<ExportedFile> {
    let mut file = File { ids: nics.iter().map(|nic| nic.name.to_string()).collect(), ..File::default() };
    for nic in nics {
        if nic.nic.vfs > MOST_VFS {
            left_out.nic(
                nic.name,
                format!("{} VFs are more than netplan makes: at most {MOST_VFS}", nic.nic.vfs),
            );
            continue;
        }
        if nic.pf.permanent_mac.is_none() && nic.pf.interface.is_none() {
            left_out.nic(
                nic.name,
                "its PF has neither an address nor an interface by which netplan would find it",
            );
            continue;
        }
        file.nic(model, nic, left_out);
    }
    if file.ethernets.is_empty() {
        return Vec::new();
    }
    let mut text = format!(
        "# By `penstock export`. netplan reads it from /etc/netplan, as root's alone (mode 600).\nnetwork:\n  version: 2\n  ethernets:\n{}",
        file.ethernets
    );
    if !file.vlans.is_empty() {
        let _ = write!(text, "  vlans:\n{}", file.vlans);
    }
    vec![ExportedFile { name: "90-penstock.yaml".to_owned(), text }]
}

/// What has been written so far.
#[derive(Default)]
struct File {
    ids: BTreeSet<String>,
    ethernets: String,
    vlans: String,
}

impl File {
    fn nic(&mut self, model: &Model, nic: &NicOnMachine<'_>, left_out: &mut Omissions) {
        let name = nic.name;
        left_out.vf_keys(nic, |key| matches!(key, VfKey::Mac | VfKey::Vlan));
        let _ = writeln!(self.ethernets, "    '{name}':\n      match: {{{}}}", matching(nic));
        // Of a PF that is found by its address netplan wants to know the name too, for who waits until it is there.
        let known = nic.pf.interface.as_ref().map(|interface| &interface.name);
        if let Some(interface) = nic.nic.interface.as_ref().or(known) {
            let _ = writeln!(self.ethernets, "      set-name: {}", single_quoted(interface.as_str()));
        }
        let _ = writeln!(self.ethernets, "      virtual-function-count: {}", nic.nic.vfs);
        if let Some(eswitch) = nic.nic.eswitch {
            let _ = writeln!(self.ethernets, "      embedded-switch-mode: {}", eswitch.name());
        }
        if let Some(mtu) = nic.nic.mtu {
            let _ = writeln!(self.ethernets, "      mtu: {}", mtu.get());
        }
        if !nic.nic.addresses.is_empty() {
            self.ethernets.push_str("      addresses:\n");
        }
        for address in &nic.nic.addresses {
            let _ = writeln!(self.ethernets, "        - '{address}'");
        }
        // Of each reason the VFs that it is about.
        let (mut nameless, mut without_interface) = (Vec::new(), Vec::new());
        for vf in &nic.vfs {
            let tag = vf.settings.vlan.map(|vlan| vlan.get()).filter(|vlan| *vlan != 0);
            let mac = vf.settings.mac.filter(|_| keeps_its_interface(model, nic, vf));
            if mac.is_none() && vf.settings.mac.is_some() {
                without_interface.push(vf.index);
            }
            if mac.is_none() && tag.is_none() {
                continue;
            }
            match interface(nic, vf.index) {
                Some(interface) => self.vf(nic, vf, &interface, mac, tag),
                None => nameless.push(vf.index),
            }
        }
        let mut told = |what: &str, vfs: &[VfIndex], why: &str| {
            if !vfs.is_empty() {
                left_out.nic(name, format!("{what} of VF {}: {why}", ranges(vfs).join(", ")));
            }
        };
        told(
            "`mac` and `vlan`",
            &nameless,
            "netplan knows a VF by its interface's name, which is not known before the VF is there",
        );
        told(
            "`mac`",
            &without_interface,
            "netplan sets it at the VF's interface, and with `vfio-pci` or without a driver it has none",
        );
        left_out.no_vlan(nic, &nic.vfs.iter().collect::<Vec<_>>());
    }

    fn vf(
        &mut self,
        nic: &NicOnMachine<'_>,
        vf: &VfOnMachine<'_>,
        interface: &InterfaceName,
        mac: Option<Mac>,
        tag: Option<u16>,
    ) {
        let id = self.id(format!("{}-vf{}", nic.name, vf.index));
        // Nobody waits for an interface that a guest may have, and the host has no address there.
        let _ = write!(
            self.ethernets,
            "    '{id}':\n      match: {{name: {}}}\n      link: '{}'\n      optional: true\n      link-local: []\n",
            single_quoted(interface.as_str()),
            nic.name
        );
        if let Some(mac) = mac {
            let _ = writeln!(self.ethernets, "      macaddress: '{mac}'");
        }
        if let Some(tag) = tag {
            let filter = self.id(format!("{id}-vlan"));
            let _ = write!(
                self.vlans,
                "    '{filter}':\n      renderer: sriov\n      id: {tag}\n      link: '{id}'\n"
            );
        }
    }

    /// A name for an entry that no other has.
    fn id(&mut self, mut name: String) -> String {
        while !self.ids.insert(name.clone()) {
            name.push('_');
        }
        name
    }
}

fn matching(nic: &NicOnMachine<'_>) -> String {
    match (nic.pf.permanent_mac, &nic.pf.interface) {
        (Some(mac), _) => format!("macaddress: '{mac}'"),
        (None, Some(interface)) => format!("name: {}", single_quoted(interface.name.as_str())),
        (None, None) => String::new(),
    }
}

/// Whether a VF is an interface of the host, or of a container.
fn keeps_its_interface(model: &Model, nic: &NicOnMachine<'_>, vf: &VfOnMachine<'_>) -> bool {
    match vf.owner {
        Some(_) => !is_of_a_vm(model, nic, vf),
        None => matches!(nic.nic.free_driver, None | Some(FreeDriver::Host)),
    }
}

/// The name of a VF's interface: the one that it has, or the one that systemd will give it.
fn interface(nic: &NicOnMachine<'_>, index: VfIndex) -> Option<InterfaceName> {
    let vfs = nic.pf.sriov.iter().flat_map(|sriov| &sriov.vfs);
    let there = vfs.filter(|vf| vf.index == index).find_map(|vf| vf.present.as_ref()?.interface.as_ref());
    match there {
        Some(interface) => Some(interface.name.clone()),
        None => vf_names::of_vf(&nic.pf.interface.as_ref()?.name, index),
    }
}
