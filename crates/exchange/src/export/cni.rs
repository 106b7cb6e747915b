//! Configuration lists of CNI, one for each NIC with VFs that no guest owns: `penstock-cni` gives a container any of them (docs/cni.md). They are for
//! `/etc/cni/net.d`.
//!
//! What the PF keeps for each VF stays as Penstock has set it: the plugin sets no attribute that a configuration does not name.

use penstock_model::{FreeDriver, Inventory, NicMatch};
use penstock_plan::{NicOnMachine, lasting_match};

use super::{ExportedFile, free_vfs, left_out::Omissions};

/// The files, in the order of the NICs.
pub fn files(
    nics: &[NicOnMachine<'_>],
    inventory: &Inventory,
    left_out: &mut Omissions,
) -> Vec<ExportedFile> {
    nics.iter().filter_map(|nic| file(nic, inventory, left_out)).collect()
}

/// Nothing for a NIC all of whose VFs are guests'.
fn file(nic: &NicOnMachine<'_>, inventory: &Inventory, left_out: &mut Omissions) -> Option<ExportedFile> {
    let (free, driver) = free_vfs(nic, "a CNI plugin", left_out)?;
    let free: Vec<String> = free.iter().map(ToString::to_string).collect();
    // An address that several PFs have names none of them.
    let pf = match lasting_match(nic.pf, inventory) {
        NicMatch { mac: Some(mac), bdf: None, .. } => mac.to_string(),
        _ => nic.pf.bdf.to_string(),
    };
    // Names of NICs, MAC addresses and PCI addresses have no character that JSON would write otherwise.
    let mut text = format!(
        "{{\n  \"cniVersion\": \"1.0.0\",\n  \"name\": \"penstock-{}\",\n  \"plugins\": [\n    {{\n      \"type\": \"penstock-cni\",\n      \
         \"pf\": \"{pf}\",\n      \"vfs\": [{}]",
        nic.name,
        free.join(", ")
    );
    if driver == FreeDriver::VfioPci {
        text.push_str(",\n      \"driver\": \"vfio-pci\"");
    }
    text.push_str("\n    }\n  ]\n}\n");
    Some(ExportedFile { name: format!("20-penstock-{}.conflist", nic.name), text })
}
