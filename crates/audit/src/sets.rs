//! Sets of CPUs, joined.

use penstock_model::CpuSet;

pub(crate) fn both(one: &CpuSet, other: &CpuSet) -> CpuSet {
    CpuSet(&one.0 & &other.0)
}

pub(crate) fn either(one: &CpuSet, other: &CpuSet) -> CpuSet {
    CpuSet(&one.0 | &other.0)
}

pub(crate) fn without(one: &CpuSet, other: &CpuSet) -> CpuSet {
    CpuSet(&one.0 - &other.0)
}

pub(crate) fn is_within(one: &CpuSet, other: &CpuSet) -> bool {
    one.0.is_subset(&other.0)
}

/// `CPU 3`, `CPUs 2-7`.
pub(crate) fn named(cpus: &CpuSet) -> String {
    match cpus.0.len() {
        0 => "no CPU".to_owned(),
        1 => format!("CPU {cpus}"),
        _ => format!("CPUs {cpus}"),
    }
}

/// What several CPUs hold, those with the same together: `performance on CPUs 2-3, powersave on CPU 4`.
pub(crate) fn grouped<T: ToString>(values: impl IntoIterator<Item = (u32, T)>) -> String {
    let mut groups: Vec<(String, CpuSet)> = Vec::new();
    for (cpu, value) in values {
        let value = value.to_string();
        match groups.iter_mut().find(|(other, _)| *other == value) {
            Some((_, cpus)) => _ = cpus.0.insert(cpu),
            None => groups.push((value, CpuSet([cpu].into()))),
        }
    }
    let texts: Vec<String> =
        groups.iter().map(|(value, cpus)| format!("{value} on {}", named(cpus))).collect();
    texts.join(", ")
}
