//! What the model wants where it can be had.

use penstock_model::{Bdf, FunctionName, FunctionOwners, Inventory, Model, NicName, VfAttribute, VfIndex};

use super::eswitch::{InSwitchdev, in_switchdev};

/// Whether the model lets an attribute go that the driver of `pf` was seen not to set, or refuses in switchdev mode. A MAC is never let go.
pub fn excused(
    model: &Model,
    owners: &FunctionOwners<'_>,
    inventory: &Inventory,
    pf: Bdf,
    nic: &NicName,
    index: VfIndex,
    attribute: &VfAttribute,
) -> bool {
    let seen = inventory.capabilities.get(&pf).and_then(|seen| seen.lack_of(attribute));
    let found = inventory.pf(pf);
    let refused = match found.map(|found| in_switchdev(&model.nics[nic], found, attribute)) {
        Some(InSwitchdev::OffAnyway) => return true,
        Some(InSwitchdev::Refused) => true,
        Some(InSwitchdev::Settable) | None => false,
    };
    if matches!(attribute, VfAttribute::Mac(_)) || (seen.is_none() && !refused) {
        return false;
    }
    let name = FunctionName { nic: nic.clone(), vf: Some(index) };
    // An uplink without what it needs would lose frames.
    if owners.is_uplink(&name) {
        return false;
    }
    let allowed = match owners.of(&name) {
        Some((_, function)) => &function.best_effort,
        None => &model.nics[nic].best_effort,
    };
    attribute.kind().keys().iter().any(|key| allowed.contains(*key))
}
