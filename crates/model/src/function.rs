//! How a model names a function: a PF by its NIC (`NET0`), a VF by NIC and index (`NET0#3`).

use std::{fmt, str::FromStr};

use thiserror::Error;

use crate::{NicName, VfIndex};

/// A PF (`NET0`) or a VF (`NET0#3`) as a model names it. Ordered by NIC, the PF before its VFs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionName {
    /// The NIC's name in the model, or among a VM's NICs in a [`TenantFunctionName`](crate::TenantFunctionName).
    pub nic: NicName,
    /// The VF's index; `None` is the PF itself.
    pub vf: Option<VfIndex>,
}

impl fmt::Display for FunctionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.vf {
            None => self.nic.fmt(f),
            Some(index) => write!(f, "{}#{index}", self.nic),
        }
    }
}

/// Text that names no function.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is no function: a PF is written NET0, a VF NET0#3{}", why.as_ref().map(|w| format!(" ({w})")).unwrap_or_default())]
pub struct ParseFunctionError {
    text: String,
    why: Option<String>,
}

impl FromStr for FunctionName {
    type Err = ParseFunctionError;

    fn from_str(text: &str) -> Result<FunctionName, ParseFunctionError> {
        let fail = |why: Option<String>| ParseFunctionError { text: text.to_owned(), why };
        let (nic, vf) = match text.split_once('#') {
            None => (text, None),
            Some((nic, index)) => (nic, Some(index_after(index).map_err(|why| fail(Some(why)))?)),
        };
        let nic = nic.parse().map_err(|error: crate::names::NameError| fail(Some(error.to_string())))?;
        Ok(FunctionName { nic, vf })
    }
}

/// The VF that digits behind a `#` say; as an error, why none.
pub(crate) fn index_after(digits: &str) -> Result<VfIndex, String> {
    // Octal for some, decimal for others.
    if digits.len() > 1 && digits.starts_with('0') {
        return Err(format!("{digits} begins with a 0"));
    }
    let all = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let index = all.then(|| digits.parse().ok().and_then(VfIndex::new)).flatten();
    index.ok_or_else(|| format!("a VF index goes from 0 to {}", VfIndex::MAX))
}

crate::names::text_serde!(
    FunctionName,
    "A PF (`NET0`) or a VF (`NET0#3`).",
    "NET0#3",
    "^[A-Za-z0-9][A-Za-z0-9_.-]{0,47}(#(0|[1-9][0-9]{0,3}|1[0-5][0-9]{3}|16[0-2][0-9]{2}|163[0-7][0-9]|1638[0-3]))?$",
    crate::names::SCALARS
);
