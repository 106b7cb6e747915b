//! Where functions are, in firmware's words, which stay when buses are renumbered.

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::{SlotName, inventory::PciIdentity};

use super::{functions::Function, reader::Reader};

const SLOTS: &str = "/sys/bus/pci/slots";

/// The slots of the machine by the address of the device in them: domain, bus and device (`drivers/pci/slot.c`,
/// `address_read_file`).
pub(super) struct Slots(BTreeMap<String, SlotName>);

impl Slots {
    /// Reads them. Where firmware gives several slots one name, the kernel numbers them in the order in which it meets them
    /// (`make_slot_name`: `0`, `0-1`, `0-2`), which is no more stable than a bus number: such names are left out.
    pub fn read(reader: &mut Reader<'_>) -> Slots {
        let names: BTreeSet<String> = reader.list(SLOTS).into_iter().collect();
        let base = |name: &str| {
            let (base, number) = name.rsplit_once('-')?;
            let numbered = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            (numbered && names.contains(base)).then(|| base.to_owned())
        };
        let shared: BTreeSet<String> = names.iter().filter_map(|name| base(name)).collect();
        let mut slots = BTreeMap::new();
        for name in names.iter().filter(|name| !shared.contains(*name) && base(name).is_none()) {
            let directory = format!("{SLOTS}/{name}");
            let Some(address) = reader.text(&format!("{directory}/address")) else { continue };
            match name.parse::<SlotName>() {
                Ok(slot) => drop(slots.insert(address, slot)),
                Err(error) => reader.note(format!("{directory}: {error}")),
            }
        }
        Slots(slots)
    }

    /// Writes down where `function` is.
    pub fn fill(&self, function: &Function, identity: &mut PciIdentity, reader: &mut Reader<'_>) {
        // The label and the number come from ACPI or from SMBIOS, and a function has at most one of either sort
        // (`drivers/pci/pci-label.c`); `acpi_index` came with Linux 5.13, and SMBIOS' is called `index`.
        let label = function.attribute("label");
        identity.label = reader.text(&label).filter(|text| !text.is_empty()).and_then(|text| {
            let parsed = text.parse();
            parsed.inspect_err(|error| reader.note(format!("{label}: {error}"))).ok()
        });
        identity.onboard = ["acpi_index", "index"]
            .into_iter()
            .find_map(|name| reader.value(&function.attribute(name), "number"));
        if self.0.is_empty() {
            return;
        }
        // The directory is a link into the tree of devices: a card's own bridges are above the function.
        let Some(path) = reader.canonical(&function.directory) else { return };
        let mut above = path.rsplit('/').take_while(|name| !name.starts_with("pci"));
        identity.slot = above.find_map(|name| self.0.get(name.rsplit_once('.')?.0)).cloned();
    }
}
