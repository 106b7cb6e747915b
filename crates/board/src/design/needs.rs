//! How much of the machine a board takes: CPUs, memory, huge pages.

use std::collections::BTreeMap;

use penstock_model::{BoardKernel, ByteSize, Guest, GuestKind, Model};

use crate::kernel;

/// CPUs enough for the interrupt vectors of `many` VFs, for some that are isolated beside some that are not, and for every
/// host CPU that the model names.
pub(super) fn cpus(model: &Model, many: bool, kernel: BoardKernel) -> u32 {
    let of_guest = |guest: &Guest| {
        let interrupts = guest.realtime.as_ref().and_then(|realtime| realtime.interrupts.clone());
        [guest.pin.clone(), guest.vm.emulator.clone(), interrupts]
    };
    let of_machine = model
        .realtime
        .iter()
        .flat_map(|realtime| [Some(realtime.isolated.clone()), realtime.housekeeping.clone()]);
    let named = model.guests.values().flat_map(of_guest).chain(of_machine).flatten();
    let last = named.filter_map(|cpus| cpus.0.last().copied()).max();
    let realtime = kernel == BoardKernel::Realtime || kernel::asks_for_real_time(model);
    last.map_or(0, |last| last.saturating_add(1)).max(if many || realtime { 4 } else { 2 })
}

/// What a VM takes beside its memory: QEMU, and twice the kernel and the first file system of the builtin guest.
const VM_EXTRA: u64 = 176;
/// What libvirt takes.
const LIBVIRT: u64 = 128;

/// Memory enough for the kernel and its tools, buffers of every function, and the guests.
pub(super) fn memory(model: &Model, vfs: u32) -> ByteSize {
    let mib = |guest: &Guest| match guest.kind {
        GuestKind::Vm => (guest.vm_memory() >> 20) + VM_EXTRA,
        // The model's limit is a limit, not a need.
        GuestKind::Container => 24,
    };
    let guests: u64 = model.guests.values().map(mib).sum();
    let libvirt = if has_vm(model) { LIBVIRT } else { 0 };
    let needed = 768 + u64::from(vfs) * 4 + guests + libvirt;
    ByteSize((needed.div_ceil(256) * 256) << 20)
}

/// The huge pages of each size that the model's VMs want.
pub(super) fn huge_pages(model: &Model) -> BTreeMap<ByteSize, u64> {
    let mut pages = BTreeMap::new();
    for guest in model.guests.values().filter(|guest| guest.kind == GuestKind::Vm) {
        if let Some(size) = guest.vm.huge_pages.filter(|size| size.0 > 0) {
            let memory = guest.vm_memory();
            *pages.entry(size).or_default() += memory.div_ceil(size.0);
        }
    }
    pages
}

pub(super) fn has_vm(model: &Model) -> bool {
    model.guests.values().any(|guest| guest.kind == GuestKind::Vm)
}
