//! The rules, by layer.

mod boot;
mod cache;
mod clock;
mod firmware;
mod frequency;
mod functions;
mod idle;
mod interrupts;
mod isolation;
mod kernel;
mod kvm;
mod memory;
mod mitigations;
mod partitions;
mod scheduling;
mod security;
mod threads;

use crate::rule::Rule;

/// All rules, by layer.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    let layers = [
        firmware::RULES,
        kernel::RULES,
        boot::RULES,
        isolation::RULES,
        partitions::RULES,
        interrupts::RULES,
        idle::RULES,
        frequency::RULES,
        clock::RULES,
        scheduling::RULES,
        memory::RULES,
        cache::RULES,
        kvm::RULES,
        threads::RULES,
        functions::RULES,
        security::RULES,
    ];
    layers.into_iter().flatten()
}
