//! Processors, who shares what with whom, and their caches.

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::{
    ByteSize, CpuSet,
    inventory::{Cache, Cpus},
};

use super::reader::Reader;

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";
/// Room for the first processor in `/proc/cpuinfo`, whose flags alone take 2 KB.
const FIRST_PROCESSOR: usize = 64 << 10;

/// What is known of the processors.
pub(super) fn cpus(reader: &mut Reader<'_>) -> Cpus {
    let directories = reader.numbered(CPUS, "cpu");
    let online = online(reader);
    let missing: BTreeSet<u32> = online.0.difference(&directories).copied().collect();
    if !missing.is_empty() {
        reader.note(format!("{CPUS} has no directory for the online CPUs {}", CpuSet(missing)));
    }
    let found: Vec<u32> = online.0.intersection(&directories).copied().collect();
    Cpus {
        model: model(reader),
        isolated: reader.value(&format!("{CPUS}/isolated"), "CPU list").unwrap_or_default(),
        nodes: nodes(&online, reader),
        siblings: siblings(&found, reader),
        caches: caches(&found, reader),
        online,
    }
}

/// The CPUs that are on line.
pub(super) fn online(reader: &mut Reader<'_>) -> CpuSet {
    reader.required_value(&format!("{CPUS}/online"), "CPU list").unwrap_or_default()
}

fn model(reader: &mut Reader<'_>) -> String {
    let path = "/proc/cpuinfo";
    let Some(bytes) = reader.bytes(path, FIRST_PROCESSOR) else {
        reader.note(format!("{path} is not there"));
        return String::new();
    };
    let text = String::from_utf8_lossy(&bytes);
    let model = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().chars().take(200).collect())
    });
    model.unwrap_or_else(|| {
        // Not every architecture has this line: Arm's has not.
        reader.note(format!("{path} names no processor model"));
        String::new()
    })
}

fn nodes(online: &CpuSet, reader: &mut Reader<'_>) -> BTreeMap<u32, CpuSet> {
    let mut nodes = BTreeMap::new();
    for number in reader.numbered(NODES, "node") {
        let path = format!("{NODES}/node{number}/cpulist");
        if let Some(cpus) = reader.required_value(&path, "CPU list") {
            nodes.insert(number, cpus);
        }
    }
    if nodes.is_empty() {
        nodes.insert(0, online.clone());
    }
    nodes
}

fn siblings(cpus: &[u32], reader: &mut Reader<'_>) -> Vec<CpuSet> {
    let mut sets = BTreeSet::new();
    for cpu in cpus {
        let path = format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list");
        if let Some(set) = reader.required_value::<CpuSet>(&path, "CPU list") {
            sets.insert(set.0);
        }
    }
    sets.into_iter().map(CpuSet).collect()
}

fn caches(cpus: &[u32], reader: &mut Reader<'_>) -> Vec<Cache> {
    let mut caches = BTreeMap::new();
    for cpu in cpus {
        let directory = format!("{CPUS}/cpu{cpu}/cache");
        for number in reader.numbered(&directory, "index") {
            if let Some(cache) = cache(&format!("{directory}/index{number}"), reader) {
                let key = (cache.level, cache.kind.clone(), cache.cpus.0.clone());
                caches.entry(key).or_insert(cache);
            }
        }
    }
    caches.into_values().collect()
}

fn cache(directory: &str, reader: &mut Reader<'_>) -> Option<Cache> {
    Some(Cache {
        level: reader.required_value(&format!("{directory}/level"), "number")?,
        kind: reader.required(&format!("{directory}/type"))?,
        cpus: reader.required_value(&format!("{directory}/shared_cpu_list"), "CPU list")?,
        // A hypervisor may hide the size alone; a cache of unknown size is still shared by the same CPUs.
        size: reader.required_value(&format!("{directory}/size"), "size").unwrap_or(ByteSize(0)),
    })
}
