//! A VM as another program's file has it.

use penstock_model::VfIndex;

/// A VM that owns VFs.
#[derive(Default)]
pub struct ForeignGuest {
    /// What the file calls it.
    pub name: String,
    /// What the file says of it besides: keys of a model, each with its value as a model writes it.
    pub keys: Vec<(&'static str, String)>,
    /// Its VFs in the order of its interfaces: the position of each one's NIC among the NICs that were found, and its index. `None`: one that
    /// is not chosen yet, or could not be.
    pub vfs: Vec<Option<(usize, VfIndex)>>,
}
