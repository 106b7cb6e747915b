//! The PCI Express links of functions that guests may have (`drivers/pci/pci-sysfs.c`).

use std::collections::BTreeMap;

use penstock_model::{
    Bdf, Inventory,
    inventory::tuning::{PciLink, Reading},
};

use super::{device, number, word};
use crate::scan::reader::Reader;

pub(super) fn links(inventory: &Inventory, reader: &mut Reader<'_>) -> BTreeMap<Bdf, PciLink> {
    // A VF has its PF's link, and says nothing of it itself.
    let functions = inventory.pfs.iter().map(|pf| pf.bdf);
    let functions = functions.chain(inventory.nvme.iter().map(|controller| controller.bdf));
    let functions: Vec<Bdf> = functions.collect();
    functions.into_iter().filter_map(|bdf| Some((bdf, link(&device(bdf), reader)?))).collect()
}

fn link(directory: &str, reader: &mut Reader<'_>) -> Option<PciLink> {
    let (speed, width) = now(directory, reader)?;
    let mut most = ability(directory, reader)?;
    // What is above it may do less: the slot.
    let above = reader.canonical(directory).and_then(|path| Some(path.rsplit_once('/')?.0.to_owned()));
    if let Some((speed, width)) = above.and_then(|above| ability(&above, reader)) {
        if transfers(&speed) < transfers(&most.0) {
            most.0 = speed;
        }
        most.1 = most.1.min(width);
    }
    Some(PciLink { speed, most_speed: most.0, width, most_width: most.1 })
}

fn now(directory: &str, reader: &mut Reader<'_>) -> Option<(String, u32)> {
    pair(directory, "current", reader)
}

fn ability(directory: &str, reader: &mut Reader<'_>) -> Option<(String, u32)> {
    pair(directory, "max", reader)
}

fn pair(directory: &str, which: &str, reader: &mut Reader<'_>) -> Option<(String, u32)> {
    let speed = reader.reading(&format!("{directory}/{which}_link_speed"), word);
    let width = reader.reading(&format!("{directory}/{which}_link_width"), number);
    match (speed, width) {
        // 255 lanes are none that it knows of (`PCIE_LNK_WIDTH_UNKNOWN`).
        (Reading::Is(speed), Reading::Is(width)) if width > 0 && width < 255 && transfers(&speed) > 0.0 => {
            Some((speed, width))
        }
        _ => None,
    }
}

/// `8.0 GT/s PCIe` as a number; 0 for one that says nothing.
fn transfers(speed: &str) -> f64 {
    let number = speed.split_whitespace().next().and_then(|number| number.parse().ok());
    number.filter(|number: &f64| number.is_finite()).unwrap_or(0.0)
}
