//! What NVMe drives themselves say of their VFs and namespaces, and what this host uses the namespaces for.

use std::collections::BTreeMap;

use penstock_model::{
    Inventory,
    inventory::{NvmeController, NvmeVirtualization},
};

use crate::{
    Root, chain,
    device::used,
    nvme::{NvmeError, PrimaryController},
};

/// Asks each drive that has SR-IOV; no other is sent anything. Why one did not answer is noted.
pub(super) fn ask(root: &Root, inventory: &mut Inventory) {
    let Inventory { nvme, unknown, .. } = inventory;
    let mut known = None;
    for drive in nvme.iter_mut().filter(|drive| drive.sriov.is_some()) {
        match virtualization(root, drive, &mut known) {
            Ok(found) => drive.virtualization = Some(found),
            Err(error) => {
                let hint = error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
                unknown.push(format!(
                    "queues and interrupts of VFs, and namespaces, of {}: {}{hint}",
                    drive.bdf,
                    chain(&error)
                ));
            }
        }
    }
}

/// `known` is what the host uses, looked up for the first drive that answers.
fn virtualization(
    root: &Root,
    drive: &NvmeController,
    known: &mut Option<BTreeMap<(u64, u64), String>>,
) -> Result<NvmeVirtualization, NvmeError> {
    let controller = PrimaryController::open(root, drive.bdf)?;
    let mut found = controller.virtualization()?;
    let known = known.get_or_insert_with(|| used::by_anybody(root));
    for device in controller.namespace_devices() {
        if let Some(namespace) = found.namespaces.get_mut(&device.namespace)
            && namespace.used.is_none()
        {
            namespace.used = device.signs(root, known);
        }
    }
    Ok(found)
}
