//! Processors, who shares what with whom, and their caches.

use std::{
    collections::{BTreeMap, BTreeSet},
    str::FromStr,
};

use penstock_model::{
    ByteSize, CpuSet,
    inventory::{Cache, Cpus},
};

use super::reader::Reader;

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";
/// Room for the first processor in `/proc/cpuinfo`, whose flags alone take 2 KB.
const FIRST_PROCESSOR: usize = 64 << 10;

/// A size as the kernel prints that of a cache: `16896K`, always in KiB (`drivers/base/cacheinfo.c`, `size_show`). What a person writes
/// in a model has to say KiB.
struct Kib(ByteSize);

impl FromStr for Kib {
    type Err = ();

    fn from_str(text: &str) -> Result<Kib, ()> {
        let digits =
            text.strip_suffix('K').filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()));
        let bytes = digits.and_then(|digits| digits.parse::<u64>().ok()?.checked_mul(1024));
        bytes.map(|bytes| Kib(ByteSize(bytes))).ok_or(())
    }
}

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
        size: reader
            .required_value::<Kib>(&format!("{directory}/size"), "size of a cache")
            .map_or(ByteSize(0), |Kib(size)| size),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_cache_is_read_as_the_kernel_prints_it() {
        let size = |text: &str| text.parse().ok().map(|Kib(size)| size);
        assert_eq!(size("16896K"), Some(ByteSize(16896 << 10)));
        for odd in [
            "",
            "K",
            "16896",
            "16896k",
            "1.5K",
            "+1K",
            "16 MiB",
            "99999999999999999999K",
            "18014398509481984K",
        ] {
            assert_eq!(size(odd), None, "{odd}");
        }
    }
}
