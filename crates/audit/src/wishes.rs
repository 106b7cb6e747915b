//! What a model asks for that decides how late threads wake.

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::{ByteSize, CpuSet, GuestKind, Model};

use crate::{rule::Need, sets::either};

/// What a model asks for.
pub(crate) struct Wishes {
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
    wake_latencies: BTreeMap<u32, u64>,
}

impl Wishes {
    pub(crate) fn of(model: &Model) -> Wishes {
        let mut own = BTreeMap::new();
        let mut vms = BTreeSet::new();
        let mut huge_pages = BTreeMap::new();
        for (name, guest) in &model.guests {
            if let Some(size) = guest.vm.huge_pages.filter(|size| size.0 > 0) {
                let memory = guest.memory.map_or(0, |size| size.0);
                *huge_pages.entry(size).or_insert(0) += memory.div_ceil(size.0);
            }
            let Some(pin) = guest.pin.as_ref().filter(|_| guest.exclusive) else { continue };
            own.insert(name.to_string(), pin.clone());
            if guest.kind == GuestKind::Vm {
                vms.insert(name.to_string());
            }
        }
        let cpus = own.values().fold(CpuSet::default(), |all, cpus| either(&all, cpus));
        let functions = model.guests.values().any(|guest| !guest.functions.is_empty());
        Wishes {
            cpus,
            guests: model.guests.len(),
            own,
            vms,
            huge_pages,
            functions,
            wake_latencies: BTreeMap::new(),
        }
    }

    pub(crate) fn need(&self, need: Need) -> bool {
        let isolation = !self.cpus.0.is_empty();
        match need {
            Need::Always => true,
            Need::Isolation | Need::Throttling | Need::Frequency | Need::WakeLatency => isolation,
            Need::Tickless | Need::Cache => false,
            Need::Vms => !self.vms.is_empty(),
            Need::Functions => self.functions,
        }
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
