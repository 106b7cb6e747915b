//! What of a model only the start of the machine can bring about: words on the kernel's command line, modules and their
//! options.
//!
//! What is needed does not depend on whether the running kernel has it already: it has to be there at the next start
//! too. Only what a machine has by itself (an IOMMU that its kernel uses unasked) is not asked for.

use std::{collections::BTreeSet, fmt};

use penstock_model::{
    ByteSize, GuestKind, GuestName, Inventory, Model, NicName, Path,
    inventory::{BootFacts, BootLoader, HugePages, IommuKind, tuning::Reading},
};
use serde::Serialize;

use crate::{
    action::{has_words, named},
    drivers::VFIO,
    realtime,
    resolve::resolve,
};

/// What is set where a machine is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BootSetting {
    /// Words on the kernel's command line that belong together: `hugepagesz=1G hugepages=4`.
    KernelArgument(String),
    /// A module that is loaded early.
    Module(String),
    /// An option of a module: `mlx4_core`, `num_vfs=4`.
    ModuleOption {
        /// The module whose parameter it is.
        module: String,
        /// Its option with the value.
        option: String,
    },
}

impl fmt::Display for BootSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BootSetting::KernelArgument(words) => write!(f, "kernel argument {words}"),
            BootSetting::Module(module) => write!(f, "module {module}"),
            BootSetting::ModuleOption { module, option } => write!(f, "module option {module} {option}"),
        }
    }
}

/// Something that the model needs at the start of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct BootNeed {
    /// The setting that is needed.
    pub setting: BootSetting,
    /// Whether the running kernel has it, or what it is for.
    pub live: bool,
    /// Whether it can come true by a reboot alone.
    pub reboot: bool,
    /// Why, for a person.
    pub reason: String,
    /// What in the model asks for it: `guests.rt-2.functions`.
    pub lines: Vec<String>,
}

/// All that a model needs at the start of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct BootNeeds {
    /// The settings that are needed.
    pub needs: Vec<BootNeed>,
    /// What stands in the way that no setting mends, and what is better not set.
    pub notes: Vec<String>,
}

impl BootNeeds {
    /// What the running kernel lacks and only a reboot brings.
    pub fn missing(&self) -> impl Iterator<Item = &BootNeed> {
        self.needs.iter().filter(|need| need.reboot)
    }

    /// The words for the kernel's command line, in order.
    pub fn arguments(&self) -> Vec<String> {
        let words = |need: &BootNeed| match &need.setting {
            BootSetting::KernelArgument(words) => Some(words.clone()),
            _ => None,
        };
        self.needs.iter().filter_map(words).collect()
    }

    fn add(&mut self, setting: BootSetting, live: bool, reason: String, lines: Vec<String>) {
        self.needs.push(BootNeed { setting, live, reboot: !live, reason, lines });
    }
}

/// Whether a kernel started with this command line goes by `words`: they stand one behind the other. Of pools of huge pages the first of
/// a size counts (`mm/hugetlb.c`, `hugepagesz_setup`), and may have more pages; and of `pci=` each option by itself. The quotes that the kernel takes off are
/// not looked at: none of our words has blanks.
pub fn is_on(command_line: &str, words: &str) -> bool {
    if let Some((size, pages)) = pool(words) {
        return first_pool(command_line, size).flatten().is_some_and(|first| first >= pages);
    }
    if let Some(options) = words.strip_prefix("pci=") {
        return options.split(',').all(|option| pci_options(command_line).any(|given| given == option));
    }
    has_words(command_line, words)
}

/// Whether a command line has `words`, or what comes to the same.
pub fn is_there(line: &str, words: &str) -> bool {
    has_words(line, words) || is_on(line, words)
}

/// Whether `entries` of the boot loader have `words`, or what comes to the same: each of those that `grubby` keeps, since it is told of
/// all; else one, since rescue entries start without.
pub fn entries_have(loader: &BootLoader, entries: &[String], words: &str) -> bool {
    let mut has = entries.iter().map(|entry| is_there(entry, words));
    match loader {
        BootLoader::Grubby => has.all(|has| has),
        _ => has.any(|has| has),
    }
}

/// The options of every `pci=` (`drivers/pci/pci.c`, `pci_setup`).
fn pci_options(command_line: &str) -> impl Iterator<Item = &str> {
    let given = command_line.split_ascii_whitespace().filter_map(|word| word.strip_prefix("pci="));
    given.flat_map(|options| options.split(','))
}

/// How many pages the kernel takes for the pool of this size: inside `None`, where it is given otherwise than by a number behind the size.
fn first_pool(command_line: &str, size: ByteSize) -> Option<Option<u64>> {
    let mut words = command_line.split_ascii_whitespace();
    let of_size = |word: &str| {
        let given = word.strip_prefix("hugepagesz=")?;
        let bytes: ByteSize = format!("{given}iB").parse().ok()?;
        (bytes == size).then_some(())
    };
    words.find(|word| of_size(word).is_some())?;
    Some(words.next().and_then(|next| next.strip_prefix("hugepages=")?.parse().ok()))
}

/// What `model` needs at the start of the machine of `inventory`.
pub fn boot_needs(model: &Model, inventory: &Inventory) -> BootNeeds {
    let mut needs = BootNeeds::default();
    iommu(model, inventory, &mut needs);
    huge_pages(model, inventory, &mut needs);
    vfs(model, inventory, &mut needs);
    realtime(model, inventory, &mut needs);
    needs
}

/// VMs with functions of their own need an IOMMU, and VFIO.
fn iommu(model: &Model, inventory: &Inventory, needs: &mut BootNeeds) {
    let vms =
        model.guests.iter().filter(|(_, guest)| guest.kind == GuestKind::Vm && !guest.functions.is_empty());
    let names: Vec<&GuestName> = vms.map(|(name, _)| name).collect();
    if names.is_empty() {
        return;
    }
    let lines: Vec<String> =
        names.iter().map(|name| Path::of(["guests", name.as_str(), "functions"]).to_string()).collect();
    let who = list(&names);
    let facts = inventory.boot.clone().unwrap_or_default();
    let on = !inventory.iommu_groups.is_empty();
    let line = inventory.kernel.command_line.as_str();
    let kind = kind(inventory);
    let described = facts.iommu.is_some() || inventory.boot.is_none();
    match kind {
        Some(IommuKind::Intel) => {
            let argument = "intel_iommu=on";
            let given = is_on(line, argument);
            if !on || given {
                let reason = format!("functions for {who} go through VFIO, which needs the IOMMU");
                needs.add(BootSetting::KernelArgument(argument.to_owned()), on, reason, lines.clone());
            }
            if !on && is_on(line, OFF) {
                needs.notes.push(off_because_of(OFF));
            } else if !on && (given || !described) {
                needs.notes.push(format!(
                    "the firmware describes no IOMMU to this kernel: turn VT-d on there; without it {argument} does nothing"
                ));
            }
        }
        Some(IommuKind::Amd) if !on => {
            let off = ["amd_iommu=off", OFF].into_iter().find(|word| is_on(line, word));
            needs.notes.push(match off {
                Some(word) => off_because_of(word),
                None => {
                    "the IOMMU (AMD-Vi) is off: turn it on in the firmware; the kernel then uses it unasked"
                        .to_owned()
                }
            });
        }
        _ if !on => needs.notes.push("the IOMMU is off: turn it on in the firmware".to_owned()),
        _ => {}
    }
    let x86 = matches!(kind, Some(IommuKind::Intel | IommuKind::Amd));
    let given = ["iommu=pt", "iommu.passthrough=1"].iter().any(|word| is_on(line, word));
    if x86 && (given || facts.passthrough != Some(true)) {
        let reason = "the host's own devices then do DMA without the IOMMU's tables: its NICs and drives stay as fast as without one";
        needs.add(
            BootSetting::KernelArgument("iommu=pt".to_owned()),
            given,
            reason.to_owned(),
            lines.clone(),
        );
    }
    let reason = format!("functions for {who} are bound to it before anything else can want them");
    // It is loaded when it is needed too: nobody has to reboot for it.
    needs.add(BootSetting::Module(VFIO.to_owned()), true, reason, lines);
    if facts.unsafe_interrupts {
        needs.notes.push(
            "vfio_iommu_type1 has allow_unsafe_interrupts=1: a guest's device can then send any interrupt to the host; take the option away (/etc/modprobe.d, /etc/default/grub), Penstock needs it nowhere".to_owned(),
        );
    }
}

/// Switches every IOMMU of x86 off (`arch/x86/kernel/pci-dma.c`, `iommu_setup`).
const OFF: &str = "iommu=off";

fn off_because_of(word: &str) -> String {
    format!("the IOMMU is off because of {word} on the kernel's command line: take it away there")
}

/// Whose IOMMU it is, or would be if it were on.
fn kind(inventory: &Inventory) -> Option<IommuKind> {
    let facts: Option<&BootFacts> = inventory.boot.as_ref();
    facts.and_then(|facts| facts.iommu).or_else(|| {
        let cpu = &inventory.cpus.model;
        if cpu.contains("Intel") {
            Some(IommuKind::Intel)
        } else if cpu.contains("AMD") {
            Some(IommuKind::Amd)
        } else {
            None
        }
    })
}

/// Pools of huge pages are empty again at each start.
fn huge_pages(model: &Model, inventory: &Inventory, needs: &mut BootNeeds) {
    let mut pools: Vec<(ByteSize, u64, Vec<&GuestName>)> = Vec::new();
    for (name, guest) in model.guests.iter().filter(|(_, guest)| guest.kind == GuestKind::Vm) {
        let Some(size) = guest.vm.huge_pages.filter(|size| size.0 > 0) else { continue };
        let pages = guest.vm_memory().div_ceil(size.0);
        match pools.iter_mut().find(|(known, ..)| *known == size) {
            Some((_, sum, users)) => {
                *sum += pages;
                users.push(name);
            }
            None => pools.push((size, pages, vec![name])),
        }
    }
    pools.sort_by_key(|(size, ..)| *size);
    for (size, pages, users) in pools {
        let short = size.to_string().trim_end_matches("iB").to_owned();
        let words = format!("hugepagesz={short} hugepages={pages}");
        let pool = inventory.huge_pages.iter().find(|pool| pool.size == size);
        let live = pool.is_some_and(|pool| pool.total >= pages);
        let large = size.0 >= 1 << 30;
        let word = if pages == 1 { "page" } else { "pages" };
        let why = if large {
            "memory for pages so large is seldom found in one piece once the machine has run"
        } else {
            "the pool is empty again at each start"
        };
        let reason = format!("the memory of {} is {pages} huge {word} of {size}, and {why}", list(&users));
        let lines =
            users.iter().map(|name| Path::of(["guests", name.as_str(), "huge_pages"]).to_string()).collect();
        let setting = BootSetting::KernelArgument(words);
        needs.needs.push(BootNeed { setting, live, reboot: !live && large, reason, lines });
        let first = first_pool(&inventory.kernel.command_line, size);
        if first.is_some_and(|first| first.map_or(!live, |first| first < pages)) {
            let has = pool.map_or(0, |pool| pool.total);
            needs.notes.push(format!(
                "the kernel's command line has hugepagesz={short} already and gives {has} pages; the kernel takes the first it reads, so that line is to be changed where it comes from"
            ));
        }
    }
}

/// VFs that the kernel cannot make as it was started.
fn vfs(model: &Model, inventory: &Inventory, needs: &mut BootNeeds) {
    // A model that does not fit has its own messages.
    let Ok(resolved) = resolve(model, inventory) else { return };
    let facts = inventory.boot.clone().unwrap_or_default();
    let line = &inventory.kernel.command_line;
    let wanted: Vec<_> = resolved.iter().filter(|(name, _)| model.nics[*name].vfs > 0).collect();
    let rows = [
        (
            "realloc",
            &facts.without_room,
            "found no room for the registers of VFs",
            "enable SR-IOV and \"above 4G decoding\" in the firmware",
        ),
        (
            "assign-busses",
            &facts.without_bus,
            "found no bus numbers for VFs",
            "enable SR-IOV and ARI in the firmware",
        ),
    ];
    let (mut options, mut found, mut users) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (option, seen, what, firmware) in rows {
        let given = pci_options(line).any(|given| given == option);
        let nics: Vec<&NicName> =
            wanted.iter().filter(|(_, bdf)| given || seen.contains(*bdf)).map(|(name, _)| *name).collect();
        if nics.is_empty() {
            continue;
        }
        if given && wanted.iter().any(|(_, bdf)| seen.contains(*bdf)) {
            needs.notes.push(format!("pci={option} is live and the kernel {what} all the same: {firmware}"));
        }
        options.push(option);
        found.push(format!("{what} of {}", list(&nics)));
        users.extend(nics);
    }
    if !options.is_empty() {
        // One word: grubby would take a second for the first.
        let live = wanted.iter().all(|(_, bdf)| rows.iter().all(|(_, seen, ..)| !seen.contains(*bdf)));
        let reason = format!("the kernel {}, unless it may lay the bus out anew", found.join(", and "));
        let users = wanted.iter().map(|(name, _)| *name).filter(|name| users.contains(name));
        let lines = users.map(|name| Path::of(["nics", name.as_str(), "vfs"]).to_string()).collect();
        needs.add(BootSetting::KernelArgument(format!("pci={}", options.join(","))), live, reason, lines);
    }
    // drivers/net/ethernet/mellanox/mlx4/main.c has no sriov_configure: `num_vfs` is read when the module is loaded, for
    // every card.
    let mlx4: Vec<(&NicName, u16, u16)> = wanted
        .iter()
        .filter_map(|(name, bdf)| {
            let pf = inventory.pf(**bdf).filter(|pf| pf.driver.as_deref() == Some("mlx4_core"))?;
            Some((*name, model.nics[*name].vfs, pf.sriov.as_ref()?.num_vfs))
        })
        .collect();
    if let Some(most) = mlx4.iter().map(|(_, vfs, _)| *vfs).max() {
        let names: Vec<&NicName> = mlx4.iter().map(|(name, ..)| *name).collect();
        let live = mlx4.iter().all(|(_, _, present)| *present == most);
        let lines: Vec<String> =
            names.iter().map(|name| Path::of(["nics", name.as_str(), "vfs"]).to_string()).collect();
        let reason = format!(
            "the driver of {} makes VFs only while it is loaded, as many for each card",
            list(&names)
        );
        let option = format!("num_vfs={most} probe_vf=0");
        let setting = BootSetting::ModuleOption { module: "mlx4_core".to_owned(), option };
        needs.add(setting, live, reason, lines.clone());
        // The initramfs has its own copy of /etc/modprobe.d, or none; modprobe reads the kernel's command line too (modprobe(8)).
        let words = format!("mlx4_core.num_vfs={most} mlx4_core.probe_vf=0");
        let live = live || is_on(line, &words);
        let reason = "the driver may be loaded from the initramfs, which does not have the option".to_owned();
        needs.add(BootSetting::KernelArgument(words), live, reason, lines);
    }
}

/// What of real time a running kernel does not change: the tick of a CPU, where it places interrupts itself, and, without isolated
/// partitions, who may run where.
fn realtime(model: &Model, inventory: &Inventory, needs: &mut BootNeeds) {
    let Some(realtime) = model.realtime.as_ref().filter(|realtime| !realtime.isolated.0.is_empty()) else {
        return;
    };
    let isolated = &realtime.isolated;
    let housekeeping = realtime::housekeeping(realtime, inventory);
    let line = &inventory.kernel.command_line;
    let guests: Vec<String> = model
        .guests
        .iter()
        .filter(|(_, guest)| guest.realtime.is_some())
        .map(|(name, _)| Path::of(["guests", name.as_str(), "realtime"]).to_string())
        .collect();
    let isolation = match guests.is_empty() {
        true => vec![Path::of(["realtime", "isolated"]).to_string()],
        false => guests,
    };
    let tickless = realtime.tickless == Some(true);
    let lines = || vec![Path::of(["realtime", "tickless"]).to_string()];
    let no_partitions = realtime::why_no_partitions(model, inventory);
    if tickless {
        let now = inventory.tuning.as_ref().and_then(|tuning| tuning.tickless.known());
        let live = now.map_or_else(
            || is_on(line, &format!("nohz_full={isolated}")),
            |now| isolated.0.is_subset(&now.0),
        );
        let reason = format!(
            "{} without a periodic tick while one thread runs: the kernel prepares that as it starts",
            named(isolated)
        );
        let words = format!("nohz_full={isolated}");
        if !live {
            note_another(line, "nohz_full", &words, &mut needs.notes);
        }
        needs.add(BootSetting::KernelArgument(words), live, reason, lines());
        let offloads = format!("rcu_nocbs={isolated}");
        let reason = "what RCU has to free is freed by threads on other CPUs".to_owned();
        needs.add(BootSetting::KernelArgument(offloads.clone()), is_on(line, &offloads), reason, lines());
        let affinity = format!("irqaffinity={housekeeping}");
        let reason = "interrupts that the kernel sets up before anybody can move them go there".to_owned();
        needs.add(BootSetting::KernelArgument(affinity.clone()), is_on(line, &affinity), reason, lines());
    }
    if !tickless && no_partitions.is_none() {
        return;
    }
    let (words, reason, lines) = match no_partitions {
        Some(why) => (
            format!("isolcpus=domain,managed_irq,{isolated}"),
            format!("the kernel keeps everybody off {} from its start: {why}", named(isolated)),
            isolation,
        ),
        None => (
            format!("isolcpus=managed_irq,{isolated}"),
            "interrupts that the kernel places itself (NVMe, some NICs) keep off as far as their queues allow"
                .to_owned(),
            lines(),
        ),
    };
    let live = is_on(line, &words);
    if !live {
        note_another(line, "isolcpus", &words, &mut needs.notes);
    }
    needs.add(BootSetting::KernelArgument(words), live, reason, lines);
}

/// Notes a word of somebody's for the same `key`, of which the kernel takes one (`kernel/sched/isolation.c`, `housekeeping_setup`).
fn note_another(line: &str, key: &str, words: &str, notes: &mut Vec<String>) {
    let same_key = |word: &&str| word.split_once('=').is_some_and(|(name, _)| name == key) && *word != words;
    if let Some(other) = line.split_ascii_whitespace().find(same_key) {
        notes.push(format!(
            "the kernel's command line has {other} already, and the kernel takes another {key}= only for the same CPUs: change that line where it comes from to {words}"
        ));
    }
}

/// "a", "a and b", "a, b and c".
fn list<T: fmt::Display>(items: &[&T]) -> String {
    match items {
        [] => String::new(),
        [one] => one.to_string(),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(ToString::to_string).collect();
            format!("{} and {last}", first.join(", "))
        }
    }
}

/// The machine of `inventory` as far as `needs` change it, once it was started with them: for a plan of what is done then.
/// Which IOMMU groups there will be nobody knows; each PF counts as alone in its own.
pub fn after_reboot(inventory: &Inventory, needs: &BootNeeds) -> Inventory {
    let mut later = inventory.clone();
    for need in needs.needs.iter().filter(|need| !need.live) {
        let BootSetting::KernelArgument(words) = &need.setting else { continue };
        if words == "intel_iommu=on" && later.iommu_groups.is_empty() {
            for (number, pf) in (0..).zip(&mut later.pfs) {
                pf.iommu_group = Some(number);
                later.iommu_groups.insert(number, vec![pf.bdf]);
            }
        }
        if let Some(cpus) =
            words.strip_prefix("isolcpus=domain,managed_irq,").and_then(|cpus| cpus.parse().ok())
        {
            later.cpus.isolated = cpus;
        }
        if let (Some(cpus), Some(tuning)) = (words.strip_prefix("nohz_full="), &mut later.tuning)
            && let Ok(cpus) = cpus.parse()
        {
            tuning.tickless = Reading::Is(cpus);
        }
        let Some((size, pages)) = pool(words) else { continue };
        match later.huge_pages.iter_mut().find(|pool| pool.size == size) {
            Some(pool) => {
                pool.free = pages.saturating_sub(pool.total.saturating_sub(pool.free));
                pool.total = pages;
            }
            None => later.huge_pages.push(HugePages { size, total: pages, free: pages }),
        }
    }
    later
}

/// The pool that `hugepagesz=1G hugepages=4` makes.
fn pool(words: &str) -> Option<(ByteSize, u64)> {
    let (size, pages) = words.strip_prefix("hugepagesz=")?.split_once(" hugepages=")?;
    Some((format!("{size}iB").parse().ok()?, pages.parse().ok()?))
}
