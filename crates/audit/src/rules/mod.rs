//! The rules, by layer.

mod kernel;

use crate::rule::Rule;

/// All rules, by layer.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    [kernel::RULES].into_iter().flatten()
}
