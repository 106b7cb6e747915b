//! NVMe drives with SR-IOV: which controller is meant, and which of its VFs a guest owns.

use std::{collections::BTreeSet, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    Bdf, DriveName, SlotName, VfIndex, function::index_after, inventory::NvmeController, names::NameError,
};

/// An NVMe drive: one PF with its VFs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Drive {
    /// Which controller it is.
    pub matching: DriveMatch,
    /// How many VFs it is to have. Default: one more than the highest index that a guest uses.
    pub vfs: u16,
    /// Pairs of I/O queues of each VF that a guest owns. `None`, the default: one that has some keeps them; else as many as each of the VFs
    /// can have when all get the same, at most one for each CPU of its guest.
    pub queues: Option<u16>,
}

/// How a drive's controller is recognised. All that is given must hold; with nothing given, any NVMe PF matches that has room for the VFs
/// and that no other drive claims more exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a mapping like {serial: S6EUNX0R123456}")]
pub struct DriveMatch {
    /// The controller's serial number, as `/sys/class/nvme/*/serial` and `nvme list` have it. Survives renumbering, and another slot;
    /// prefer it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// The controller's model number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The slot that the drive is in. Survives renumbering, and another drive in that slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<SlotName>,
    /// The PF's PCI address. Changes when the machine is renumbered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bdf: Option<Bdf>,
}

impl DriveMatch {
    /// Whether it says which drive is meant, so that nothing is to be chosen.
    pub fn is_exact(&self) -> bool {
        self.serial.is_some() || self.slot.is_some() || self.bdf.is_some()
    }

    /// Whether all that is given holds of `controller`.
    pub fn holds_for(&self, controller: &NvmeController) -> bool {
        let DriveMatch { serial, model, slot, bdf } = self;
        let same = |wanted: &Option<String>, found: &Option<String>| {
            wanted.as_deref().is_none_or(|wanted| found.as_deref().map(str::trim) == Some(wanted.trim()))
        };
        same(serial, &controller.serial)
            && same(model, &controller.model)
            && slot.as_ref().is_none_or(|slot| controller.identity.is_in(slot))
            && bdf.is_none_or(|bdf| controller.bdf == bdf)
    }

    /// All that is given, in words.
    pub fn words(&self) -> Vec<String> {
        let DriveMatch { serial, model, slot, bdf } = self;
        let parts = [
            serial.as_ref().map(|serial| format!("serial number {serial}")),
            model.as_ref().map(|model| format!("model {model}")),
            slot.as_ref().map(|slot| format!("slot {slot}")),
            bdf.map(|bdf| format!("PCI address {bdf}")),
        ];
        parts.into_iter().flatten().collect()
    }
}

/// A VF of a drive as a model names it: `SSD0#3`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriveVfName {
    /// The drive's name in the model.
    pub drive: DriveName,
    /// The VF's index.
    pub vf: VfIndex,
}

impl fmt::Display for DriveVfName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.drive, self.vf)
    }
}

/// Text that names no VF of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is no VF of a drive, which is written SSD0#3{}", why.as_ref().map(|w| format!(" ({w})")).unwrap_or_default())]
pub struct ParseDriveVfError {
    text: String,
    why: Option<String>,
}

impl FromStr for DriveVfName {
    type Err = ParseDriveVfError;

    fn from_str(text: &str) -> Result<DriveVfName, ParseDriveVfError> {
        let fail = |why: Option<String>| ParseDriveVfError { text: text.to_owned(), why };
        let (drive, index) = text.split_once('#').ok_or_else(|| fail(None))?;
        let vf = index_after(index).map_err(|why| fail(Some(why)))?;
        let drive = drive.parse().map_err(|error: NameError| fail(Some(error.to_string())))?;
        Ok(DriveVfName { drive, vf })
    }
}

crate::names::text_serde!(
    DriveVfName,
    "A VF of a drive (`SSD0#3`).",
    "SSD0#3",
    "^[A-Za-z0-9][A-Za-z0-9_.-]{0,47}#(0|[1-9][0-9]{0,3}|1[0-5][0-9]{3}|16[0-2][0-9]{2}|163[0-7][0-9]|1638[0-3])$",
    crate::names::SCALARS
);

/// A VF of a drive as a guest owns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct GuestDrive {
    /// Which VF.
    pub name: DriveVfName,
    /// The namespaces that it is to have, by identifier (NSID). Default: none is attached or detached; it has those that it has.
    pub namespaces: BTreeSet<u32>,
    /// Pairs of I/O queues; what the drive says for its VFs is filled in.
    pub queues: Option<u16>,
}
