//! What a domain says of its VM beside its VFs: memory, CPUs and where they run, and what it boots.

use penstock_model::{
    ByteSize, CpuSet,
    domain::{AGENT_CHANNEL, KERNEL_CONSOLE},
    yaml::{FlowMapping, quoted, shown},
};

use super::{attribute, child, disk, same};
use crate::import::{
    foreign::{ForeignFields, ForeignNode},
    xml::TEXT,
};

/// What a domain is told apart by.
const NAMES: [&str; 3] = ["id", "uuid", "metadata"];

/// Where libvirt finds QEMU for a VM of a model.
const EMULATORS: [&str; 4] =
    ["/usr/bin/qemu-system-x86_64", "/usr/bin/kvm", "/usr/bin/qemu-kvm", "/usr/libexec/qemu-kvm"];

/// Keys of a VM of a model with their values. What stays in `domain` and `devices` is told, in one message each.
pub fn keys(
    at: &ForeignNode<'_>,
    mut domain: ForeignFields<'_>,
    devices: Option<ForeignFields<'_>>,
) -> Vec<(&'static str, String)> {
    let mut keys = vec![("kind", "vm".to_owned())];
    let memory = domain.take("memory").and_then(|memory| size(&memory));
    keys.extend(memory.map(|memory| ("memory", quoted(&memory.to_string()))));
    if let Some(current) = domain.take("currentMemory")
        && size(&current) != memory
    {
        current.left_out("`currentMemory` is left out: a VM of a model has all of its memory from the start");
    }
    if let Some(kind) = domain.take("type").filter(|kind| kind.text() != Some("kvm")) {
        kind.left_out("`type` is left out: KVM runs a VM of a model");
    }
    // What libvirt writes of a VM that runs, or by itself.
    usual(&mut domain, "resource", |resource| attribute(resource, "partition") == Some("/machine"));
    usual(&mut domain, "seclabel", |label| attribute(label, "type").is_none_or(|kind| kind == "dynamic"));
    let cpus = domain.take("vcpu").and_then(|vcpu| virtual_cpus(&vcpu));
    keys.extend(cpus.map(|cpus| ("cpus", cpus.to_string())));
    if let Some(tuning) = domain.take("cputune") {
        placed(tuning.fields(), cpus, &mut keys);
    }
    if let Some(backing) = domain.take("memoryBacking") {
        backed(backing.fields(), &mut keys);
    }
    let kernel = domain.take("os").is_some_and(|os| booted(&os, &mut keys));
    let agent = devices.is_some_and(|devices| devices_of(at, devices, kernel, &mut keys));
    if !agent {
        // It would be waited for in vain.
        keys.push(("inside", "none".to_owned()));
    }
    NAMES.iter().for_each(|name| domain.pass_over(name));
    same::of_each_vm(&mut domain);
    left_out(at, domain, "of the VM only its VFs, memory, CPUs and what it boots are in the model");
    keys
}

/// Passes over what has this name and says what is so anyway.
fn usual(of: &mut ForeignFields<'_>, name: &str, is_usual: impl Fn(&ForeignNode<'_>) -> bool) {
    for node in of.take_all(name).into_iter().filter(|node| !node.is_null() && !is_usual(node)) {
        node.left_out(format!("`{name}` is left out: a model has no word for it"));
    }
}

/// Tells the attributes of an element beside its text and these.
fn beside(of: &ForeignNode<'_>, known: &[&str]) {
    if of.text().is_none() {
        let mut fields = of.fields();
        known.iter().chain(&[TEXT]).for_each(|key| fields.pass_over(key));
    }
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
    if attribute(at, "placement").is_some_and(|placement| placement != "static") {
        at.left_out("`placement` of `vcpu` is left out: `pin` says where the CPUs of a VM of a model run");
    }
    beside(at, &["cpuset", "current", "placement"]);
    number
}

/// A size of memory in whole MiB.
fn size(at: &ForeignNode<'_>) -> Option<ByteSize> {
    const MIB: u64 = 1 << 20;
    beside(at, &["unit"]);
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

/// `pin` and `emulator`: a model gives each virtual CPU one of the host's, in ascending order, or where `pin` has more than there are, all of them to each.
fn placed(mut tuning: ForeignFields<'_>, cpus: Option<u32>, keys: &mut Vec<(&'static str, String)>) {
    let pins = tuning.take_all("vcpupin");
    let said = |pin: &ForeignNode<'_>| {
        let vcpu = attribute(pin, "vcpu")?.parse::<u32>().ok()?;
        Some((vcpu, attribute(pin, "cpuset")?.parse::<CpuSet>().ok()?))
    };
    let mut each: Vec<(u32, CpuSet)> = pins.iter().filter_map(said).collect();
    each.sort_unstable_by_key(|(vcpu, _)| *vcpu);
    let cpus = cpus.unwrap_or(1);
    let all = each.len() == pins.len() && each.iter().map(|(vcpu, _)| *vcpu).eq(0..cpus);
    let set = pinned(&each, cpus).filter(|_| all);
    match (set, pins.first()) {
        (Some(set), _) => keys.push(("pin", quoted(&set.to_string()))),
        (None, Some(first)) => first.left_out(
            "`vcpupin` is left out: with `pin` each virtual CPU has one of the host's CPUs, in ascending order",
        ),
        (None, None) => {}
    }
    if let Some(pin) = tuning.take("emulatorpin") {
        match pin.fields().take("cpuset").and_then(|set| set.text()?.parse::<CpuSet>().ok()) {
            Some(set) => keys.push(("emulator", quoted(&set.to_string()))),
            None => pin.left_out("`emulatorpin` is left out: it is no list of CPUs"),
        }
    }
}

/// The CPUs of `pin` that these places come to, if there is such a set.
fn pinned(each: &[(u32, CpuSet)], cpus: u32) -> Option<CpuSet> {
    let (_, first) = each.first()?;
    let alike = each.iter().all(|(_, set)| set == first);
    if alike && u64::from(cpus) < first.0.len() as u64 {
        return Some(first.clone());
    }
    let hosts: Option<Vec<u32>> =
        each.iter().map(|(_, set)| set.0.first().copied().filter(|_| set.0.len() == 1)).collect();
    let hosts = hosts?;
    hosts.is_sorted_by(|one, next| one < next).then(|| CpuSet(hosts.into_iter().collect()))
}

fn backed(mut backing: ForeignFields<'_>, keys: &mut Vec<(&'static str, String)>) {
    // Nothing of a VM of a model is merged with another's.
    backing.pass_over("nosharepages");
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
    beside(at, &["size", "unit"]);
    bytes(attribute(at, "size")?, attribute(at, "unit")).map(ByteSize)
}

/// A kernel, and the firmware. Whether there is a kernel.
fn booted(at: &ForeignNode<'_>, keys: &mut Vec<(&'static str, String)>) -> bool {
    let mut os = at.fields();
    if let Some(kind) = os.take("type") {
        machine(&kind);
    }
    // As libvirt does without them.
    usual(&mut os, "boot", |boot| attribute(boot, "dev") == Some("hd"));
    usual(&mut os, "bootmenu", |menu| attribute(menu, "enable") == Some("no"));
    usual(&mut os, "smbios", |smbios| attribute(smbios, "mode") == Some("emulate"));
    let (chosen, wanted): (Vec<_>, Vec<_>) =
        os.take_all("firmware").into_iter().partition(|firmware| firmware.text().is_some());
    let is_chosen = !chosen.is_empty();
    for feature in wanted.iter().flat_map(|firmware| firmware.fields().take_all("feature")) {
        if attribute(&feature, "enabled") == Some("yes") {
            let name = shown(attribute(&feature, "name").unwrap_or_default());
            feature.left_out(format!("{name} of the firmware is left out: a model has no word for it"));
        }
    }
    let loader = os.take("loader");
    if let Some(loader) = &loader {
        if !is_chosen && text(loader).is_some() {
            loader.left_out("the path of `loader` is left out: libvirt chooses the file of a VM's firmware");
        }
        if attribute(loader, "secure") == Some("yes") {
            loader.left_out("`secure` of `loader` is left out: a model has no word for Secure Boot");
        }
        beside(loader, &["readonly", "secure", "type", "format"]);
    }
    let is_flash = loader.is_some_and(|loader| attribute(&loader, "type") == Some("pflash"));
    if is_flash || chosen.iter().any(|firmware| firmware.text() == Some("efi")) {
        keys.push(("firmware", "uefi".to_owned()));
    }
    os.left_out("nvram", "the VM's firmware begins without the variables that it has kept there");
    let Some(kernel) = os.value::<String>("kernel") else { return false };
    let mut boot = FlowMapping::default();
    boot.put("kernel", quoted(&kernel));
    boot.maybe("initramfs", os.value::<String>("initrd").map(|path| quoted(&path)));
    keys.push(("boot", boot.line()));
    let line = os.value::<String>("cmdline");
    // What Penstock gives each kernel is no part of it.
    let line = line.as_deref().map(|line| match line.strip_prefix(KERNEL_CONSOLE) {
        Some(more) if more.is_empty() || more.starts_with(' ') => more.trim_start(),
        _ => line,
    });
    keys.extend(line.filter(|line| !line.is_empty()).map(|line| ("command_line", quoted(line))));
    true
}

/// What is not the machine that a VM of a model is. A version of it is what libvirt makes of a name without one.
fn machine(at: &ForeignNode<'_>) {
    if let Some(other) = text(at).filter(|kind| *kind != "hvm") {
        at.left_out(format!("{} is left out: a VM of a model is `hvm`", shown(other)));
    }
    if let Some(other) = attribute(at, "arch").filter(|arch| *arch != "x86_64") {
        at.left_out(format!("`arch` {} is left out: a VM of a model is `x86_64`", shown(other)));
    }
    let is_q35 = |machine: &str| machine == "q35" || machine.starts_with("pc-q35-");
    if let Some(other) = attribute(at, "machine").filter(|machine| !is_q35(machine)) {
        at.left_out(format!("`machine` {} is left out: a VM of a model is a `q35`", shown(other)));
    }
    beside(at, &["arch", "machine"]);
}

/// The disk that it boots from; whether it has a channel to a guest agent.
fn devices_of(
    at: &ForeignNode<'_>,
    mut devices: ForeignFields<'_>,
    kernel: bool,
    keys: &mut Vec<(&'static str, String)>,
) -> bool {
    let disk = disk::boot(&devices.take_all("disk"), kernel);
    if disk.is_none() && !kernel {
        at.left_out("what the VM boots is left out: it is no kernel and no disk that a model could have; the model's default is a small Linux");
    }
    keys.extend(disk.map(|disk| ("boot", disk.line())));
    let is_agent = |channel: &ForeignNode<'_>| {
        let target = child(channel, "target");
        target.is_some_and(|target| attribute(&target, "name") == Some(AGENT_CHANNEL))
    };
    let (agent, others): (Vec<_>, Vec<_>) = devices.take_all("channel").into_iter().partition(is_agent);
    for other in others {
        other.left_out(
            "`channel` is left out: of a VM's channels only that of the guest agent is in the model",
        );
    }
    usual(&mut devices, "emulator", |emulator| text(emulator).is_some_and(|path| EMULATORS.contains(&path)));
    same::of_each_vms_devices(&mut devices);
    left_out(
        at,
        devices,
        "of the VM's devices only its VFs and the disk that it boots from are in the model",
    );
    !agent.is_empty()
}
