//! One machine, joined: what the rules ask of all layers at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use penstock_model::{
    Bdf, CpuSet, Inventory, Model,
    inventory::tuning::{CgroupVersion, Knob, Reading, Tuning, Value, VmProcess, VmThread},
};

use crate::{
    applies::{Need, NoFinding, left_out, unknown},
    command_line::CommandLine,
    release::Release,
    requirements::Requirements,
    sets::{both, either, is_within, without},
};

static NOTHING: LazyLock<Tuning> = LazyLock::new(Tuning::default);

/// A machine and, where there is one, what the model that it is judged by asks for.
pub(crate) struct Machine<'a> {
    pub(crate) inventory: &'a Inventory,
    pub(crate) requirements: Option<Requirements>,
    pub(crate) tuning: &'a Tuning,
    /// Whether anybody looked at its tuning.
    pub(crate) looked: bool,
    pub(crate) line: CommandLine,
    /// `None`: the release makes no sense.
    pub(crate) release: Option<Release>,
    /// CPUs in isolated partitions, or that cpusets of version 1 isolate.
    pub(crate) partitioned: CpuSet,
    /// CPUs that the boot command line or a partition isolates.
    pub(crate) isolated: CpuSet,
    /// CPUs that are to be kept free: the model's; without a model those that are isolated, and those that run virtual
    /// CPUs in real time.
    pub(crate) kept: CpuSet,
    pub(crate) vms: Vec<RunningVm<'a>>,
}

/// A VM that runs.
pub(crate) struct RunningVm<'a> {
    pub(crate) process: &'a VmProcess,
    /// The threads of its virtual CPUs.
    pub(crate) vcpus: Vec<&'a VmThread>,
    /// The VM's other threads, which run no virtual CPU.
    pub(crate) others: Vec<&'a VmThread>,
    /// Whether its virtual CPUs are to wake in time: they run in real time, on isolated CPUs alone, or the model says so.
    pub(crate) realtime: bool,
}

impl RunningVm<'_> {
    /// Where its virtual CPUs may run.
    pub(crate) fn cpus(&self) -> CpuSet {
        self.vcpus.iter().fold(CpuSet::default(), |all, thread| either(&all, &thread.cpus))
    }

    pub(crate) fn subject(&self) -> String {
        format!("VM {}", self.process.name)
    }

    /// Its virtual CPUs with a real-time policy.
    pub(crate) fn realtime_cpus(&self) -> CpuSet {
        let threads = self.vcpus.iter().filter(|thread| is_realtime(thread));
        threads.fold(CpuSet::default(), |all, thread| either(&all, &thread.cpus))
    }
}

/// Whether a thread has policy FIFO or RR.
pub(crate) fn is_realtime(thread: &VmThread) -> bool {
    matches!(thread.policy, 1 | 2)
}

/// `CPU 0/KVM`, as QEMU calls the threads of virtual CPUs.
fn is_vcpu(thread: &VmThread) -> bool {
    thread.name.starts_with("CPU ") && thread.name.contains("/KVM")
}

impl<'a> Machine<'a> {
    pub(crate) fn new(inventory: &'a Inventory, model: Option<&Model>) -> Machine<'a> {
        let looked = inventory.tuning.is_some();
        let tuning = inventory.tuning.as_ref().unwrap_or_else(|| &NOTHING);
        let line = CommandLine::new(&inventory.kernel.command_line);
        let release = inventory.kernel.release.parse().ok();
        let requirements = model.map(Requirements::of);
        let partitioned = tuning.cgroups.isolated.known().cloned().unwrap_or_else(|| {
            let partitions = tuning.cgroups.partitions.values();
            let isolated = partitions.filter(|partition| partition.state == "isolated");
            isolated.fold(CpuSet::default(), |all, partition| either(&all, &partition.effective))
        });
        // Version 1 isolates at run time too.
        let unbalanced = tuning.cgroups.unbalanced.known().cloned().unwrap_or_default();
        let partitioned = either(&partitioned, &unbalanced);
        let isolated = either(&inventory.cpus.isolated, &partitioned);
        let vms: Vec<RunningVm<'_>> =
            tuning.vms.values().map(|process| running(process, &isolated, requirements.as_ref())).collect();
        let kept = match &requirements {
            Some(requirements) => requirements.cpus.clone(),
            None => vms.iter().fold(isolated.clone(), |all, vm| either(&all, &vm.realtime_cpus())),
        };
        Machine { inventory, requirements, tuning, looked, line, release, partitioned, isolated, kept, vms }
    }

    /// Whether the model asks for it; without a model everything is asked for.
    pub(crate) fn needs(&self, need: Need) -> bool {
        self.requirements.as_ref().is_none_or(|requirements| requirements.need(need))
    }

    /// The CPUs that are judged: those to be kept free; all when there are none.
    pub(crate) fn judged(&self) -> &CpuSet {
        if self.kept.0.is_empty() { self.online() } else { &self.kept }
    }

    pub(crate) fn online(&self) -> &CpuSet {
        &self.inventory.cpus.online
    }

    pub(crate) fn boot_isolated(&self) -> &CpuSet {
        &self.inventory.cpus.isolated
    }

    /// Who does everything else: all that are on line and not to be kept free.
    pub(crate) fn housekeeping(&self) -> CpuSet {
        without(self.online(), &either(&self.kept, &self.isolated))
    }

    /// The last CPU, which `N` stands for on the command line.
    pub(crate) fn last(&self) -> u32 {
        self.online().0.last().copied().unwrap_or(0)
    }

    /// The CPUs that a key of the command line lists.
    pub(crate) fn listed(&self, key: &str) -> Option<CpuSet> {
        self.line.cpus(key, self.last())
    }

    /// The CPUs that are to be kept free; a rule about them is left out when there are none.
    pub(crate) fn kept(&self) -> Result<&CpuSet, NoFinding> {
        if !self.kept.0.is_empty() {
            return Ok(&self.kept);
        }
        // Without a model it is what is isolated that is to be kept free.
        if self.requirements.is_none() {
            read(&self.tuning.cgroups.isolated, "cpuset.cpus.isolated")?;
            read(&self.tuning.cgroups.unbalanced, "cpuset.sched_load_balance")?;
        }
        left_out("no CPU is to be kept free of anything")
    }

    pub(crate) fn release(&self) -> Result<Release, NoFinding> {
        let why = || format!("{:?} is no kernel's release", self.inventory.kernel.release);
        self.release.ok_or_else(|| NoFinding::Unknown(why()))
    }

    /// What a knob holds; `None`: there is none.
    pub(crate) fn knob(&self, knob: Knob) -> Result<Option<&Value>, NoFinding> {
        match self.tuning.knobs.get(&knob) {
            Some(reading) => read(reading, &knob.to_string()),
            None => unknown(format!("{knob} was not read")),
        }
    }

    /// A number that a knob holds; what is not there cannot be judged.
    pub(crate) fn number(&self, knob: Knob) -> Result<Option<i64>, NoFinding> {
        match self.knob(knob)? {
            Some(Value::Number(number)) => Ok(Some(*number)),
            Some(other) => unknown(format!("{knob} holds {other}, which is no number")),
            None => Ok(None),
        }
    }

    /// The CPUs that a knob holds.
    pub(crate) fn cpus_of(&self, knob: Knob) -> Result<Option<&CpuSet>, NoFinding> {
        match self.knob(knob)? {
            Some(Value::Cpus(cpus)) => Ok(Some(cpus)),
            Some(other) => unknown(format!("{knob} holds {other}, which is no set of CPUs")),
            None => Ok(None),
        }
    }

    /// What each of these CPUs has in a knob; without those where there is none.
    pub(crate) fn each(
        &self,
        cpus: &CpuSet,
        knob: fn(u32) -> Knob,
    ) -> Result<BTreeMap<u32, &Value>, NoFinding> {
        let mut values = BTreeMap::new();
        for cpu in both(cpus, self.online()).0 {
            if let Some(value) = self.knob(knob(cpu))? {
                values.insert(cpu, value);
            }
        }
        Ok(values)
    }

    /// A parameter of a module, as text. `None`: the module is not loaded, or has none.
    pub(crate) fn parameter(&self, name: &str) -> Result<Option<&str>, NoFinding> {
        match self.tuning.parameters.get(name) {
            Some(reading) => Ok(read(reading, name)?.map(String::as_str)),
            None => Ok(None),
        }
    }

    /// Whether SMT siblings are on line together.
    pub(crate) fn has_smt(&self) -> bool {
        self.inventory.cpus.siblings.iter().any(|siblings| both(siblings, self.online()).0.len() > 1)
    }

    /// The NUMA nodes that these CPUs are of.
    pub(crate) fn nodes(&self, cpus: &CpuSet) -> BTreeSet<u32> {
        let nodes = self.inventory.cpus.nodes.iter();
        nodes.filter(|(_, of_node)| !both(of_node, cpus).0.is_empty()).map(|(node, _)| *node).collect()
    }

    /// The NUMA node of a PF or VF; `None` where the kernel knows none.
    pub(crate) fn node_of(&self, function: Bdf) -> Option<u32> {
        self.inventory
            .pfs
            .iter()
            .find(|pf| pf.bdf == function || has_vf(pf.sriov.as_ref(), function))?
            .numa_node
    }

    /// Whether a program runs.
    pub(crate) fn runs(&self, program: &str) -> Result<bool, NoFinding> {
        self.sees_processes()?;
        Ok(self.tuning.programs.contains(program))
    }

    /// What runs is not known where processes are hidden from who looked.
    pub(crate) fn sees_processes(&self) -> Result<(), NoFinding> {
        if self.tuning.processes_hidden {
            return unknown("processes of others are hidden from who looked (hidepid): look as root");
        }
        if let Some(why) = self.tuning.unread.processes.first() {
            return unknown(format!("what VMs do is not wholly known: {why}"));
        }
        Ok(())
    }

    /// VMs whose virtual CPUs are to wake in time.
    pub(crate) fn realtime_vms(&self) -> Result<Vec<&RunningVm<'a>>, NoFinding> {
        self.sees_processes()?;
        let vms: Vec<_> = self.vms.iter().filter(|vm| vm.realtime).collect();
        if vms.is_empty() {
            left_out("no VM runs whose virtual CPUs have CPUs of their own")
        } else {
            Ok(vms)
        }
    }

    /// Who runs on this machine and must not read what the others have: running VMs, and guests of ours.
    pub(crate) fn tenants(&self) -> usize {
        let known = self.inventory.guests.values().filter(|guest| guest.running).count();
        self.vms
            .len()
            .max(known)
            .max(self.requirements.as_ref().map_or(0, |requirements| requirements.guests))
    }

    /// Whether cgroup v2 can make isolated partitions here; `None`: nothing tells. `isolated` came with Linux 6.1, and to kernels of
    /// distributions before that.
    pub(crate) fn has_partitions(&self) -> Option<bool> {
        let groups = &self.tuning.cgroups;
        if groups.version != CgroupVersion::V2 {
            return (groups.version == CgroupVersion::V1).then_some(false);
        }
        let is_one = |state: &str| state.starts_with("isolated");
        let seen = groups.isolated.known().is_some()
            || groups.partitions.values().any(|partition| is_one(&partition.state));
        (seen || self.is_at_least(6, 1)).then_some(true)
    }

    /// Whether the release is this one or a newer one. A newer kernel has what an older one had; that a number is lower does not say
    /// that something is missing, since distributions give it to their older kernels.
    pub(crate) fn is_at_least(&self, major: u32, minor: u32) -> bool {
        self.release.is_some_and(|release| release >= Release::new(major, minor))
    }

    /// Whether the machine is a VM, or emulated; `None`: the CPU's flags could not be read.
    pub(crate) fn is_vm(&self) -> Option<bool> {
        let flags = &self.tuning.cpu_flags;
        (!flags.is_empty()).then(|| flags.contains("hypervisor"))
    }

    /// Whether an option of the kernel's build is set; `None`: nobody kept how it was built.
    pub(crate) fn built_with(&self, option: &str) -> Option<bool> {
        let build = self.tuning.build.known()?;
        Some(build.get(option).is_some_and(|value| value == "y" || value == "m"))
    }

    /// Whether the kernel said that it refuses this value of this word.
    pub(crate) fn refuses(&self, key: &str, value: &str) -> bool {
        let said = |word: &String| {
            let (name, values) = word.split_once('=').unwrap_or((word, ""));
            name == key && values.split([',', ';']).any(|part| part == value)
        };
        self.tuning.refused_values.iter().any(said)
    }

    /// `isolcpus=` with a flag more, or less, and with at least these CPUs: what it says otherwise stays.
    pub(crate) fn isolcpus(&self, with: Option<&str>, without: Option<&str>, cpus: &CpuSet) -> String {
        let mut flags: Vec<&str> = self.line.isolcpus_flags();
        flags.retain(|flag| Some(*flag) != without);
        if let Some(flag) = with.filter(|flag| !flags.contains(flag)) {
            flags.insert(0, flag);
        }
        let cpus = either(&self.listed("isolcpus").unwrap_or_default(), cpus);
        flags.iter().fold(String::from("isolcpus="), |word, flag| word + flag + ",") + &cpus.to_string()
    }
}

fn has_vf(sriov: Option<&penstock_model::inventory::Sriov>, function: Bdf) -> bool {
    sriov.is_some_and(|sriov| sriov.vfs.iter().any(|vf| vf.bdf == function))
}

fn running<'a>(
    process: &'a VmProcess,
    isolated: &CpuSet,
    requirements: Option<&Requirements>,
) -> RunningVm<'a> {
    let (vcpus, others): (Vec<_>, Vec<_>) = process.threads.values().partition(|thread| is_vcpu(thread));
    let on_isolated = |thread: &&VmThread| !thread.cpus.0.is_empty() && is_within(&thread.cpus, isolated);
    let realtime = match requirements {
        Some(requirements) => requirements.names_vm(&process.name),
        None => vcpus.iter().any(|thread| is_realtime(thread) || on_isolated(thread)),
    };
    RunningVm { process, vcpus, others, realtime }
}

/// What was read; `None`: it is not there.
pub(crate) fn read<'a, T>(reading: &'a Reading<T>, what: &str) -> Result<Option<&'a T>, NoFinding> {
    match reading {
        Reading::Is(value) => Ok(Some(value)),
        Reading::Absent => Ok(None),
        Reading::Denied => unknown(format!("{what} may not be read by who looked")),
        Reading::Unreadable(why) => unknown(format!("{what}: {why}")),
    }
}
