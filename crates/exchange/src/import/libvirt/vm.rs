//! What a domain says of its VM beside its VFs: memory, CPUs and where they run, and what it boots.

use penstock_model::{
    ByteSize, CpuSet,
    yaml::{FlowMapping, quoted, shown},
};

use super::{attribute, child};
use crate::import::{
    foreign::{ForeignFields, ForeignNode},
    xml::TEXT,
};

/// By this channel a VM's guest agent is reached.
const AGENT: &str = "org.qemu.guest_agent.0";

/// What a domain is told apart by, and what is its own while it runs.
const NAMES: [&str; 7] = ["type", "id", "uuid", "metadata", "currentMemory", "resource", "seclabel"];

/// Keys of a VM of a model with their values. What stays in `domain` and `devices` is told, in one message each.
pub fn keys(
    at: &ForeignNode<'_>,
    mut domain: ForeignFields<'_>,
    devices: Option<ForeignFields<'_>>,
) -> Vec<(&'static str, String)> {
    let mut keys = vec![("kind", "vm".to_owned())];
    if let Some(memory) = domain.take("memory").and_then(|memory| size(&memory)) {
        keys.push(("memory", quoted(&memory.to_string())));
    }
    let cpus = domain.take("vcpu").and_then(|vcpu| virtual_cpus(&vcpu));
    keys.extend(cpus.map(|cpus| ("cpus", cpus.to_string())));
    if let Some(tuning) = domain.take("cputune") {
        placed(tuning.fields(), cpus, &mut keys);
    }
    if let Some(backing) = domain.take("memoryBacking") {
        backed(backing.fields(), &mut keys);
    }
    let kernel = domain.take("os").is_some_and(|os| booted(&os, &mut keys));
    let agent = devices.is_some_and(|devices| disk(at, devices, kernel, &mut keys));
    if !agent {
        // It would be waited for in vain.
        keys.push(("inside", "none".to_owned()));
    }
    NAMES.iter().for_each(|name| domain.pass_over(name));
    left_out(at, domain, "of the VM only its VFs, memory, CPUs and what it boots are in the model");
    keys
}

/// One message for all that is left.
fn left_out(at: &ForeignNode<'_>, mut rest: ForeignFields<'_>, but: &str) {
    let mut names: Vec<String> = rest.names().map(shown).collect();
    names.dedup();
    rest.forget();
    if !names.is_empty() {
        at.left_out(format!("{but}; left out: {}", names.join(", ")));
    }
}

/// An element's text, whatever attributes it has.
fn text<'a>(node: &ForeignNode<'a>) -> Option<&'a str> {
    node.text().or_else(|| attribute(node, TEXT))
}

/// How many virtual CPUs ("Domain XML format", "CPU Allocation").
fn virtual_cpus(at: &ForeignNode<'_>) -> Option<u32> {
    let number = text(at).and_then(|number| number.trim().parse::<u32>().ok()).filter(|cpus| *cpus > 0);
    if number.is_none() {
        at.left_out("`vcpu` is left out: it is no number of CPUs; the model's default is one CPU");
    }
    if attribute(at, "cpuset").is_some() {
        at.left_out("`cpuset` of `vcpu` is left out: with `pin` each virtual CPU has one of the host's CPUs");
    }
    if attribute(at, "current").is_some_and(|current| current.trim().parse() != Ok(number.unwrap_or(1))) {
        at.left_out("`current` of `vcpu` is left out: a VM of a model starts with all of its CPUs");
    }
    number
}

/// A size of memory in whole MiB.
fn size(at: &ForeignNode<'_>) -> Option<ByteSize> {
    const MIB: u64 = 1 << 20;
    match text(at).and_then(|number| bytes(number, attribute(at, "unit"))) {
        Some(bytes) => Some(ByteSize(bytes.div_ceil(MIB).saturating_mul(MIB))),
        None => {
            at.left_out("this size is left out: it is no number with a unit");
            None
        }
    }
}

/// A number of this unit in bytes; KiB without one ("Domain XML format", "Memory Allocation"; `virScaleInteger`).
fn bytes(number: &str, unit: Option<&str>) -> Option<u64> {
    let scale = match unit.unwrap_or("KiB").to_ascii_lowercase().as_str() {
        "b" | "bytes" => 1,
        "kb" => 1000,
        "k" | "kib" => 1 << 10,
        "mb" => 1_000_000,
        "m" | "mib" => 1 << 20,
        "gb" => 1_000_000_000,
        "g" | "gib" => 1 << 30,
        "tb" => 1_000_000_000_000,
        "t" | "tib" => 1 << 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

/// `pin` and `emulator`: a model gives each virtual CPU one of the host's, in ascending order.
fn placed(mut tuning: ForeignFields<'_>, cpus: Option<u32>, keys: &mut Vec<(&'static str, String)>) {
    let pins = tuning.take_all("vcpupin");
    let said = |pin: &ForeignNode<'_>| {
        let number = |name| attribute(pin, name)?.parse::<u32>().ok();
        Some((number("vcpu")?, number("cpuset")?))
    };
    let mut each: Vec<(u32, u32)> = pins.iter().filter_map(said).collect();
    each.sort_unstable();
    let ascending = each.windows(2).all(|two| two[0].1 < two[1].1);
    let all = each.iter().map(|(vcpu, _)| *vcpu).eq(0..cpus.unwrap_or(1));
    match pins.first() {
        None => {}
        Some(_) if each.len() == pins.len() && ascending && all => {
            let hosts: Vec<String> = each.iter().map(|(_, host)| host.to_string()).collect();
            if let Ok(set) = hosts.join(",").parse::<CpuSet>() {
                keys.push(("pin", quoted(&set.to_string())));
            }
        }
        Some(first) => first.left_out(
            "`vcpupin` is left out: with `pin` each virtual CPU has one of the host's CPUs, in ascending order",
        ),
    }
    if let Some(pin) = tuning.take("emulatorpin") {
        match pin.fields().take("cpuset").and_then(|set| set.text()?.parse::<CpuSet>().ok()) {
            Some(set) => keys.push(("emulator", quoted(&set.to_string()))),
            None => pin.left_out("`emulatorpin` is left out: it is no list of CPUs"),
        }
    }
}

fn backed(mut backing: ForeignFields<'_>, keys: &mut Vec<(&'static str, String)>) {
    // An empty element, which says all.
    if !backing.take_all("locked").is_empty() {
        keys.push(("locked_memory", "on".to_owned()));
    }
    for pages in backing.take_all("hugepages") {
        let of_all = pages.fields().take_all("page");
        let sizes: Vec<ByteSize> = of_all.iter().filter_map(page).collect();
        match (&sizes[..], of_all.len()) {
            ([size], 1) => keys.push(("huge_pages", quoted(&size.to_string()))),
            (_, 0) => pages.left_out("`hugepages` is left out: write their size as `huge_pages`"),
            _ => pages.left_out("`hugepages` is left out: a VM of a model has those of one size"),
        }
    }
}

fn page(at: &ForeignNode<'_>) -> Option<ByteSize> {
    bytes(attribute(at, "size")?, attribute(at, "unit")).map(ByteSize)
}

/// A kernel, and the firmware. Whether there is a kernel.
fn booted(at: &ForeignNode<'_>, keys: &mut Vec<(&'static str, String)>) -> bool {
    let mut os = at.fields();
    // What it is: a machine of its own, not what it boots.
    ["type", "boot", "bootmenu", "smbios", "bios", "nvram"].iter().for_each(|key| os.pass_over(key));
    let firmware = os.take("firmware").is_some_and(|firmware| firmware.text() == Some("efi"));
    let loader = os.take("loader").is_some_and(|loader| attribute(&loader, "type") == Some("pflash"));
    if firmware || loader {
        keys.push(("firmware", "uefi".to_owned()));
    }
    let Some(kernel) = os.value::<String>("kernel") else { return false };
    let mut boot = FlowMapping::default();
    boot.put("kernel", quoted(&kernel));
    boot.maybe("initramfs", os.value::<String>("initrd").map(|path| quoted(&path)));
    keys.push(("boot", boot.line()));
    if let Some(line) = os.value::<String>("cmdline") {
        keys.push(("command_line", quoted(&line)));
    }
    true
}

/// The disk that it boots from, the first; whether it has a channel to a guest agent.
fn disk(
    at: &ForeignNode<'_>,
    mut devices: ForeignFields<'_>,
    kernel: bool,
    keys: &mut Vec<(&'static str, String)>,
) -> bool {
    let mut found = kernel;
    for disk in devices.take_all("disk") {
        match (!found).then(|| of_disk(&disk)).flatten() {
            Some(boot) => {
                keys.push(("boot", boot.line()));
                found = true;
            }
            None => disk.left_out(
                "`disk` is left out: a VM of a model has a kernel, or the one disk that it boots from",
            ),
        }
    }
    if !found {
        at.left_out("what the VM boots is left out: it is no kernel and no disk that is a file or a block device; the model's default is a small Linux");
    }
    let agent = devices.take_all("channel").iter().any(|channel| {
        let target = child(channel, "target");
        target.is_some_and(|target| attribute(&target, "name") == Some(AGENT))
    });
    devices.pass_over("emulator");
    left_out(
        at,
        devices,
        "of the VM's devices only its VFs and the disk that it boots from are in the model",
    );
    agent
}

fn of_disk(at: &ForeignNode<'_>) -> Option<FlowMapping> {
    let source = child(at, "source").filter(|_| attribute(at, "device").is_none_or(|kind| kind == "disk"))?;
    let path = attribute(&source, "file").or_else(|| attribute(&source, "dev"))?;
    let driver = child(at, "driver");
    let format = driver.as_ref().and_then(|driver| attribute(driver, "type")).unwrap_or("raw");
    if !matches!(format, "raw" | "qcow2") {
        return None;
    }
    let mut boot = FlowMapping::default();
    boot.put("disk", quoted(path));
    boot.put("format", format);
    Some(boot)
}
