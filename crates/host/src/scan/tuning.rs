//! What decides how late a thread wakes: CPU isolation, interrupts, idle states, frequencies, VMs' threads.
//!
//! Read as whoever runs Penstock: what only root may read is [`Reading::Denied`] for everybody else, never a default.

mod build;
mod cgroups;
mod cpu;
pub mod interrupts;
mod irqbalance;
mod links;
mod processes;
pub mod resctrl;
mod smi;
pub mod watch;

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::{
    Bdf, CpuSet, Inventory,
    inventory::tuning::{Knob, Reading, Tuning, Unread, Value},
};

use super::{boot, functions, kernel, reader::Reader};
use crate::Root;

/// The modules whose parameters matter.
const MODULES: [&str; 10] = [
    "cpufreq",
    "intel_idle",
    "kvm",
    "kvm_amd",
    "kvm_intel",
    "pcie_aspm",
    "processor",
    "rcupdate",
    "rcutree",
    "workqueue",
];
const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";
/// Room for the first processor in `/proc/cpuinfo`.
const FIRST_PROCESSOR: usize = 64 << 10;
/// The most CPUs that Linux can be built for (`CONFIG_NR_CPUS`).
const MOST_CPUS: usize = 8192;

/// The tuning of the machine whose file systems are under `root` and whose inventory is known, and what of it made no sense,
/// in words.
pub fn tuning(root: &Root, inventory: &Inventory) -> (Tuning, Vec<String>) {
    let mut reader = Reader::new(root);
    let mut there = reader.numbered(CPUS, "cpu");
    there.retain(|cpu| inventory.cpus.online.0.contains(cpu));
    let cpus: Vec<u32> = there.into_iter().take(MOST_CPUS).collect();
    // Each of these is hundreds or thousands of files on a large machine.
    let (mut tuning, of_irqs, of_processes) = std::thread::scope(|scope| {
        let irqs = scope.spawn(|| apart(root, interrupts::irqs));
        let processes = scope.spawn(|| apart(root, processes::processes));
        let tuning = of_machine(&cpus, inventory, &mut reader, root);
        (tuning, irqs.join(), processes.join())
    });
    // A thread ends with a panic only by a mistake of ours, which the tests of hostile trees look for.
    if let Ok((found, notes)) = of_irqs {
        tuning.irqs = found.irqs;
        tuning.irq_table = found.table;
        tuning.knobs.extend(found.knobs);
        notes.iter().for_each(|note| reader.note(note));
    }
    if let Ok((found, notes)) = of_processes {
        tuning.processes_hidden = found.hidden;
        tuning.programs.extend(found.programs);
        tuning.vms = found.vms;
        tuning.irqbalance = found.irqbalance;
        tuning.unread.processes = found.unread;
        notes.iter().for_each(|note| reader.note(note));
    }
    (tuning, reader.into_notes())
}

/// Reads something with a reader of its own, and gives its notes too.
fn apart<T>(root: &Root, read: impl FnOnce(&mut Reader<'_>) -> T) -> (T, Vec<String>) {
    let mut reader = Reader::new(root);
    let found = read(&mut reader);
    (found, reader.into_notes())
}

fn of_machine(cpus: &[u32], inventory: &Inventory, reader: &mut Reader<'_>, root: &Root) -> Tuning {
    let mut unread = Unread::default();
    let mut tuning = Tuning {
        idle_driver: reader.reading(&format!("{CPUS}/cpuidle/current_driver"), word),
        turbo: turbo(reader),
        tickless: reader.reading(&format!("{CPUS}/nohz_full"), cpu_list),
        workqueues_isolated: workqueues_isolated(reader),
        cgroups: cgroups::cgroups(reader, &mut unread.partitions),
        resctrl: resctrl::resctrl(reader, &mut unread.resctrl),
        command_line: reader.lines("/proc/cmdline").map(|_| ()),
        cpu_flags: cpu_flags(reader),
        clock_source: reader
            .reading("/sys/devices/system/clocksource/clocksource0/current_clocksource", word),
        clock_sources: reader
            .reading("/sys/devices/system/clocksource/clocksource0/available_clocksource", |text| {
                Ok(word(text)?.split_whitespace().map(str::to_owned).collect())
            }),
        parameters: parameters(reader),
        loadable: MODULES
            .into_iter()
            .filter(|module| reader.exists(&format!("/sys/module/{module}/initstate")))
            .map(str::to_owned)
            .collect(),
        build: build::build(&inventory.kernel.release, reader),
        transparent_sizes: transparent_sizes(reader),
        groups_without_iommu: groups_without_iommu(reader),
        vulnerabilities: vulnerabilities(reader),
        smt: reader.reading(&format!("{CPUS}/smt/control"), word),
        selinux_enforcing: reader.reading("/sys/fs/selinux/enforce", flag),
        selinux_cache: reader.reading("/sys/fs/selinux/avc/cache_threshold", number),
        security_modules: reader.reading("/sys/kernel/security/lsm", words),
        links: links::links(inventory, reader),
        own_cpus: reader.reading("/proc/self/status", |status| {
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            cpu_list(list.ok_or("it does not say where this program may run")?.trim())
        }),
        ..Tuning::default()
    };
    tuning.unread = unread;
    (tuning.unknown_parameters, tuning.refused_values) = boot::unknown_words(root);
    for node in inventory.cpus.nodes.keys() {
        let pools = kernel::huge_pages_of(&format!("{NODES}/node{node}/hugepages"), reader);
        if !pools.is_empty() {
            tuning.node_huge_pages.insert(*node, pools);
        }
    }
    if reader.exists("/etc/systemd/system/timers.target.wants/fwupd-refresh.timer") {
        tuning.programs.insert("fwupd-refresh.timer".to_owned());
    }
    for knob in Knob::OF_MACHINE {
        tuning.knobs.insert(knob, reading_of(knob, reader));
    }
    cpu::of_cpus(cpus, &mut tuning, reader);
    tuning
}

pub use processes::{container_threads, of_vm};

/// Why there is no value, where there should be one; of what is gone meanwhile nothing.
fn why_unread<T>(path: &str, reading: &Reading<T>) -> Option<String> {
    match reading {
        Reading::Is(_) | Reading::Absent => None,
        Reading::Denied => Some(format!("{path} may not be read by who looked")),
        Reading::Unreadable(why) => Some(why.clone()),
    }
}

/// What one knob holds.
fn reading_of(knob: Knob, reader: &mut Reader<'_>) -> Reading<Value> {
    reader.reading(&knob.to_string(), |text| knob.read(text).map_err(|error| error.to_string()))
}

/// What a knob of the machine `root` holds now.
pub fn knob(root: &Root, knob: Knob) -> Reading<Value> {
    reading_of(knob, &mut Reader::new(root))
}

fn turbo(reader: &mut Reader<'_>) -> Reading<bool> {
    match reader.reading(&format!("{CPUS}/intel_pstate/no_turbo"), flag) {
        Reading::Absent => reader.reading(&format!("{CPUS}/cpufreq/boost"), flag),
        Reading::Is(off) => Reading::Is(!off),
        other => other,
    }
}

fn workqueues_isolated(reader: &mut Reader<'_>) -> Reading<CpuSet> {
    // Written as that of the workqueues themselves.
    reader.reading("/sys/devices/virtual/workqueue/cpumask_isolated", |text| {
        match Knob::Workqueues.read(text).map_err(|error| error.to_string())? {
            Value::Cpus(cpus) => Ok(cpus),
            other => Err(format!("{other} is no CPU mask")),
        }
    })
}

fn cpu_flags(reader: &mut Reader<'_>) -> BTreeSet<String> {
    let bytes = reader.bytes("/proc/cpuinfo", FIRST_PROCESSOR).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let flags = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        ["flags", "Features"].contains(&key.trim()).then_some(value)
    });
    let plain = |flag: &&str| flag.len() <= 40 && flag.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    flags.unwrap_or_default().split_whitespace().filter(plain).map(str::to_owned).collect()
}

fn parameters(reader: &mut Reader<'_>) -> BTreeMap<String, Reading<String>> {
    let mut parameters = BTreeMap::new();
    for module in MODULES {
        let directory = format!("/sys/module/{module}/parameters");
        for name in reader.list(&directory).into_iter().take(200) {
            let value = reader.reading(&format!("{directory}/{name}"), word);
            parameters.insert(format!("{module}.{name}"), value);
        }
    }
    parameters
}

fn vulnerabilities(reader: &mut Reader<'_>) -> BTreeMap<String, Reading<String>> {
    let directory = format!("{CPUS}/vulnerabilities");
    let names = reader.list(&directory).into_iter().take(200);
    let mut reading = |name: String| {
        let value = reader.reading(&format!("{directory}/{name}"), word);
        (name, value)
    };
    names.collect::<Vec<_>>().into_iter().map(&mut reading).collect()
}

/// The groups that VFIO made up where no IOMMU is.
fn groups_without_iommu(reader: &mut Reader<'_>) -> Reading<BTreeSet<u32>> {
    let numbers: Vec<u32> = match reader.listing(functions::IOMMU_GROUPS) {
        Reading::Is(names) => names.iter().filter_map(|name| name.parse().ok()).collect(),
        other => return other.map(|_| BTreeSet::new()),
    };
    let mut made_up = BTreeSet::new();
    for number in numbers {
        match functions::group_name(number, reader) {
            Reading::Is(name) if name == functions::NO_IOMMU => _ = made_up.insert(number),
            // A group that an IOMMU made has no name.
            Reading::Is(_) | Reading::Absent => {}
            other => return other.map(|_| BTreeSet::new()),
        }
    }
    Reading::Is(made_up)
}

/// The choice for each size of transparent huge pages (`Documentation/admin-guide/mm/transhuge.rst`).
fn transparent_sizes(reader: &mut Reader<'_>) -> BTreeMap<u64, Reading<String>> {
    const SIZES: &str = "/sys/kernel/mm/transparent_hugepage";
    let mut found = BTreeMap::new();
    for name in reader.directories(SIZES).into_iter().take(100) {
        let size = name.strip_prefix("hugepages-").and_then(|rest| rest.strip_suffix("kB")?.parse().ok());
        let Some(size) = size else { continue };
        let chosen = reader.reading(&format!("{SIZES}/{name}/enabled"), |text| {
            match Knob::TransparentHugePages.read(text).map_err(|error| error.to_string())? {
                Value::Word(word) => Ok(word),
                other => Err(format!("{other} is no word")),
            }
        });
        found.insert(size, chosen);
    }
    found
}

/// Whether this function could be somebody's: its name as a directory of `/sys/bus/pci/devices`.
fn device(bdf: Bdf) -> String {
    format!("/sys/bus/pci/devices/{bdf}")
}

fn word(text: &str) -> Result<String, String> {
    if text.len() <= 1000 { Ok(text.to_owned()) } else { Err(format!("{} bytes are no word", text.len())) }
}

fn words(text: &str) -> Result<BTreeSet<String>, String> {
    Ok(word(text)?.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect())
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{} is no number", super::reader::quoted(text)))
}

fn flag(text: &str) -> Result<bool, String> {
    match text {
        "1" | "Y" => Ok(true),
        "0" | "N" => Ok(false),
        other => Err(format!("{} is neither 0 nor 1", super::reader::quoted(other))),
    }
}

/// A list of CPUs; what the kernel prints for a mask that it has not (`(null)`) is none of them.
fn cpu_list(text: &str) -> Result<CpuSet, String> {
    if text == "(null)" {
        return Ok(CpuSet::default());
    }
    text.parse().map_err(|_| format!("{} is no CPU list", super::reader::quoted(text)))
}
