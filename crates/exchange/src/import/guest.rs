//! A guest as another program's file has it.

use penstock_model::VfIndex;

/// A guest that owns VFs.
#[derive(Default)]
pub struct ForeignGuest {
    /// What the file calls it.
    pub name: String,
    /// What the file says of it besides: keys of a model, each with its value as a model writes it.
    pub keys: Vec<(&'static str, String)>,
    /// Its functions in the order of its interfaces.
    pub functions: Vec<ForeignFunction>,
}

/// A VF as a guest has it.
#[derive(Default)]
pub struct ForeignFunction {
    /// The position of its NIC among the NICs that were found, and its index. `None`: it is not chosen yet, or could not be.
    pub vf: Option<(usize, VfIndex)>,
    /// What the file says of it inside the guest: keys of a function of a model, each with its value as a model writes it.
    pub keys: Vec<(&'static str, String)>,
}
