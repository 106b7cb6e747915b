//! The running kernel and its pools of huge pages.

use penstock_model::{
    ByteSize,
    inventory::{HugePages, Kernel},
};

use super::reader::Reader;

const POOLS: &str = "/sys/kernel/mm/hugepages";

/// Release, command line, and whether it is a real-time kernel.
pub(super) fn kernel(reader: &mut Reader<'_>) -> Kernel {
    // Only a kernel with PREEMPT_RT has this file (`kernel/ksysfs.c`).
    let path = "/sys/kernel/realtime";
    let realtime = reader.text(path);
    if let Some(other) = realtime.as_deref().filter(|text| !matches!(*text, "0" | "1")) {
        reader.note(format!("{path} holds {}, which is neither 0 nor 1", super::reader::quoted(other)));
    }
    Kernel {
        release: reader.required("/proc/sys/kernel/osrelease").unwrap_or_default(),
        command_line: reader.required("/proc/cmdline").unwrap_or_default(),
        realtime: realtime.as_deref() == Some("1"),
    }
}

/// All of the RAM that the kernel manages (`MemTotal`); 0 where nothing says.
pub(super) fn memory(reader: &mut Reader<'_>) -> ByteSize {
    let path = "/proc/meminfo";
    let Some(text) = reader.large_text(path) else { return ByteSize(0) };
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).and_then(|rest| {
        let kib = rest.trim().strip_suffix("kB")?.trim_end();
        kib.parse::<u64>().ok()?.checked_mul(1024)
    });
    if total.is_none() {
        reader.note(format!("{path} does not say how much memory there is"));
    }
    ByteSize(total.unwrap_or_default())
}

/// The pools of huge pages, the smallest page first.
pub(super) fn huge_pages(reader: &mut Reader<'_>) -> Vec<HugePages> {
    huge_pages_of(POOLS, reader)
}

/// As [`huge_pages`], of one NUMA node.
pub(super) fn huge_pages_of(pools_in: &str, reader: &mut Reader<'_>) -> Vec<HugePages> {
    let mut pools = Vec::new();
    for name in reader.list(pools_in) {
        let size = name
            .strip_prefix("hugepages-")
            .and_then(|rest| rest.strip_suffix("kB"))
            .and_then(|kib| kib.parse::<u64>().ok()?.checked_mul(1024));
        let Some(size) = size else {
            reader.note(format!("{pools_in}/{name} has a name that is no page size"));
            continue;
        };
        let mut number = |file: &str| reader.required_value(&format!("{pools_in}/{name}/{file}"), "number");
        if let (Some(total), Some(free)) = (number("nr_hugepages"), number("free_hugepages")) {
            pools.push(HugePages { size: ByteSize(size), total, free });
        }
    }
    pools.sort_by_key(|pool| pool.size);
    pools
}
