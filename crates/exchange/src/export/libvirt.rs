//! libvirt's XML: a pool of each PF's VFs that no guest owns, as a network (libvirt's "Network XML format", `<forward mode='hostdev'>`), an
//! interface for each VF that a VM owns ("Domain XML format", `<interface type='hostdev'>`), for `virsh attach-device`, and a domain for each VM.

mod domain;

use std::fmt::Write;

use penstock_model::{Bdf, Inventory, Model, VfIndex, VfKey};
use penstock_plan::{NicOnMachine, VfOnMachine};

use super::{
    ExportedFile, is_of_a_vm,
    left_out::{Omissions, ranges},
};

/// A file for each of the NICs with VFs that no guest owns, one for each VF of a VM, and one for each VM, which may own functions of `managed` ones too.
pub fn files(
    model: &Model,
    inventory: &Inventory,
    nics: &[NicOnMachine<'_>],
    managed: &[NicOnMachine<'_>],
    left_out: &mut Omissions,
) -> Vec<ExportedFile> {
    let mut files = Vec::new();
    for nic in nics {
        left_out
            .nic(nic.name, format!("`vfs: {}`: libvirt makes no VFs; they have to be there", nic.nic.vfs));
        left_out.pf_keys(nic);
        let free: Vec<&VfOnMachine<'_>> = nic.vfs.iter().filter(|vf| vf.owner.is_none()).collect();
        if !free.is_empty() {
            files.push(ExportedFile {
                name: format!("penstock-{}.network.xml", nic.name),
                text: network(nic, &free, left_out),
            });
        }
        let (mut of_vms, mut of_others) = (Vec::new(), Vec::new());
        for vf in nic.vfs.iter().filter(|vf| vf.owner.is_some()) {
            match is_of_a_vm(model, nic, vf) {
                true => of_vms.push(vf),
                false => of_others.push(vf.index),
            }
        }
        files.extend(of_vms.iter().map(|vf| ExportedFile {
            name: format!("penstock-{}-vf{}.interface.xml", nic.name, vf.index),
            text: device(vf),
        }));
        left_out.vf_keys_of(nic, &of_vms, |key| matches!(key, VfKey::Mac | VfKey::Vlan));
        if !of_others.is_empty() {
            let vfs = ranges(&of_others).join(", ");
            left_out.nic(nic.name, format!("VF {vfs}: they are no VM's, and libvirt gives VFs to VMs"));
        }
    }
    let all: Vec<&NicOnMachine<'_>> = nics.iter().chain(managed).collect();
    files.extend(domain::files(model, inventory, &all, left_out));
    files
}

/// The pool of a NIC's free VFs. What it says of VLANs is said of each.
fn network(nic: &NicOnMachine<'_>, free: &[&VfOnMachine<'_>], left_out: &mut Omissions) -> String {
    let vlan = free[0].settings.vlan;
    let alike = free.iter().all(|vf| vf.settings.vlan == vlan);
    left_out.vf_keys_of(nic, free, |key| key == VfKey::Mac || alike && key == VfKey::Vlan);
    let free: Vec<VfIndex> = free.iter().map(|vf| vf.index).collect();
    left_out.nic(
        nic.name,
        format!(
            "`mac` of VF {}: libvirt gives a VF of a pool the address of the VM's interface",
            ranges(&free).join(", ")
        ),
    );
    let mut text = format!(
        "<!-- By `penstock export`: virsh net-define FILE -->\n<network>\n  <name>penstock-{}</name>\n  <forward mode='hostdev' managed='yes'>\n",
        nic.name
    );
    for vf in nic.vfs.iter().filter(|vf| vf.owner.is_none()) {
        let _ = writeln!(text, "    {}", address(vf.bdf));
    }
    text.push_str("  </forward>\n");
    if let Some(vlan) = vlan.filter(|_| alike) {
        let _ = write!(text, "  <vlan>\n    <tag id='{vlan}'/>\n  </vlan>\n");
    }
    text.push_str("</network>\n");
    text
}

/// An interface as a file of its own.
fn device(vf: &VfOnMachine<'_>) -> String {
    let mut text = "<!-- By `penstock export`: virsh attach-device DOMAIN FILE -->\n".to_owned();
    for (depth, line) in interface(vf) {
        let _ = writeln!(text, "{:depth$}{line}", "", depth = depth * 2);
    }
    text
}

/// The lines of an interface that is a VF, each with its depth.
fn interface(vf: &VfOnMachine<'_>) -> Vec<(usize, String)> {
    let line = |depth: usize, text: &str| (depth, text.to_owned());
    let mut lines = vec![
        line(0, "<interface type='hostdev' managed='yes'>"),
        line(1, "<source>"),
        (2, address(vf.bdf)),
        line(1, "</source>"),
    ];
    lines.extend(vf.settings.mac.map(|mac| (1, format!("<mac address='{mac}'/>"))));
    if let Some(vlan) = vf.settings.vlan {
        lines.extend([line(1, "<vlan>"), (2, format!("<tag id='{vlan}'/>")), line(1, "</vlan>")]);
    }
    lines.push(line(0, "</interface>"));
    lines
}

fn address(bdf: Bdf) -> String {
    format!("<address type='pci' {}/>", place(bdf))
}

/// A PCI address in attributes.
fn place(bdf: Bdf) -> String {
    format!(
        "domain='0x{:04x}' bus='0x{:02x}' slot='0x{:02x}' function='0x{:x}'",
        bdf.domain(),
        bdf.bus(),
        bdf.device(),
        bdf.function()
    )
}
