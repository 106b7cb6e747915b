//! What a model asks for that decides how late threads wake.

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::{ByteSize, CpuSet, Frequency, Guest, GuestKind, Model, Realtime, SchedulingPolicy};

use crate::{applies::Need, sets::either};

/// What a model asks for.
pub(crate) struct Requirements {
    /// CPUs that are to be kept free.
    pub(crate) cpus: CpuSet,
    /// How many guests there are to be.
    pub(crate) guests: usize,
    /// CPUs by guest that has them alone.
    pub(crate) own: BTreeMap<String, CpuSet>,
    /// VMs of these names have CPUs of their own.
    vms: BTreeSet<String>,
    /// Huge pages by size, and how many are asked for in all.
    pub(crate) huge_pages: BTreeMap<ByteSize, u64>,
    functions: bool,
    tickless: bool,
    throttling_off: bool,
    cache: bool,
    wake_latencies: BTreeMap<u32, u64>,
    frequencies: BTreeMap<u32, Frequency>,
}

impl Requirements {
    pub(crate) fn of(model: &Model) -> Requirements {
        let machine = model.realtime.clone().unwrap_or_default();
        let mut requirements = Requirements {
            cpus: machine.isolated.clone(),
            guests: model.guests.len(),
            own: BTreeMap::new(),
            vms: BTreeSet::new(),
            huge_pages: BTreeMap::new(),
            functions: model.guests.values().any(|guest| !guest.functions.is_empty()),
            tickless: machine.tickless == Some(true),
            throttling_off: machine.throttling == Some(false),
            cache: false,
            wake_latencies: BTreeMap::new(),
            frequencies: BTreeMap::new(),
        };
        requirements.set(&machine.isolated, machine.wake_latency, machine.frequency.as_ref());
        for (name, guest) in &model.guests {
            requirements.add(&name.to_string(), guest, &machine);
        }
        requirements
    }

    fn set(&mut self, cpus: &CpuSet, wake_latency: Option<u32>, frequency: Option<&Frequency>) {
        for cpu in &cpus.0 {
            if let Some(latency) = wake_latency {
                self.wake_latencies.insert(*cpu, latency.into());
            }
            if let Some(frequency) = frequency {
                self.frequencies.insert(*cpu, frequency.clone());
            }
        }
    }

    fn add(&mut self, name: &str, guest: &Guest, machine: &Realtime) {
        if let Some(size) = guest.vm.huge_pages.filter(|size| size.0 > 0 && guest.kind == GuestKind::Vm) {
            *self.huge_pages.entry(size).or_insert(0) += guest.vm_memory().div_ceil(size.0);
        }
        let Some(pin) = guest.pin.as_ref().filter(|_| guest.exclusive || guest.realtime.is_some()) else {
            return;
        };
        self.own.insert(name.to_owned(), pin.clone());
        self.cpus = either(&self.cpus, pin);
        if guest.kind == GuestKind::Vm {
            self.vms.insert(name.to_owned());
        }
        let Some(realtime) = &guest.realtime else { return };
        self.cache |= realtime.cache.is_some() || realtime.memory_bandwidth.is_some();
        self.throttling_off |= realtime.scheduling.policy != SchedulingPolicy::Other;
        self.set(pin, machine.wake_latency, machine.frequency.as_ref());
        self.set(pin, realtime.wake_latency, realtime.frequency.as_ref());
    }

    pub(crate) fn need(&self, need: Need) -> bool {
        match need {
            Need::Always => true,
            Need::Isolation => !self.cpus.0.is_empty(),
            Need::Throttling => self.throttling_off,
            Need::Frequency => !self.frequencies.is_empty(),
            Need::WakeLatency => !self.wake_latencies.is_empty(),
            Need::Tickless => self.tickless,
            Need::Cache => self.cache,
            Need::Vms => !self.vms.is_empty(),
            Need::Functions => self.functions,
        }
    }

    /// How this CPU's frequency is to be chosen; `None`: nothing is said of it.
    pub(crate) fn frequency(&self, cpu: u32) -> Option<&Frequency> {
        self.frequencies.get(&cpu)
    }

    /// Microseconds that waking of this CPU may take; `None`: nothing is said of it.
    pub(crate) fn wake_latency(&self, cpu: u32) -> Option<u64> {
        self.wake_latencies.get(&cpu).copied()
    }

    /// Whether a running VM of this name is one of the model's with CPUs of its own: libvirt knows it with our prefix.
    pub(crate) fn names_vm(&self, name: &str) -> bool {
        self.vms.contains(name) || name.strip_prefix("penstock-").is_some_and(|name| self.vms.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_that_says_nothing_of_its_memory_needs_huge_pages_too() {
        let text = "nics: {NET0: }\nguests:\n  a: {kind: vm, huge_pages: 2MiB}\n  b: {kind: vm, huge_pages: 2MiB, memory: 66MiB}\n";
        let source = penstock_model::Source::new("model.yaml", text);
        let model = penstock_model::parse(&source).unwrap().model;
        assert_eq!(Requirements::of(&model).huge_pages, [(ByteSize(2 << 20), 128 + 33)].into());
    }
}
