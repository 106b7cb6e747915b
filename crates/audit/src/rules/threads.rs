//! The threads of running VMs.

use penstock_model::{CpuSet, audit::Layer, inventory::tuning::VmThread};

use crate::{
    advice::{Advice, by_hand, model, to_housekeeping},
    machine::{Machine, RunningVm, is_realtime},
    rule::{Finding, Need, Rule, RuleResult, left_out, unknown},
    sets::{both, either, is_within, named, without},
};

const KBASE: &str = "https://libvirt.org/kbase/kvm-realtime.html";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "vcpus-without-own-cpu",
        layer: Layer::Vm,
        what: "virtual CPUs of VMs in real time without a CPU of their own",
        why: "two threads on one CPU wait for each other; one that may move takes its time doing so. With isolcpus= all of them stay on the first CPU",
        price: None,
        source: "https://libvirt.org/kbase/kvm-realtime.html; https://github.com/seapath/ansible/issues/908",
        needs_root: false,
        need: Need::Vms,
        judge: own_cpu,
    },
    Rule {
        id: "vcpus-outside-isolation",
        layer: Layer::Vm,
        what: "virtual CPUs of VMs in real time on CPUs that nothing isolates",
        why: "every thread and interrupt of the machine may come between",
        price: None,
        source: KBASE,
        needs_root: false,
        need: Need::Vms,
        judge: outside_isolation,
    },
    Rule {
        id: "vcpu-policy",
        layer: Layer::Vm,
        what: "the policy of virtual CPUs of VMs in real time",
        why: "an ordinary thread waits for every other one of its CPU, kernel threads too",
        price: None,
        source: KBASE,
        needs_root: false,
        need: Need::Vms,
        judge: policy,
    },
    Rule {
        id: "emulator-on-vcpu-cpus",
        layer: Layer::Vm,
        what: "QEMU's own threads that may run where virtual CPUs do",
        why: "QEMU's main loop, migration and worker threads take the guest's CPU; under a FIFO virtual CPU they starve, and the VM hangs",
        price: None,
        source: KBASE,
        needs_root: false,
        need: Need::Vms,
        judge: emulator,
    },
    Rule {
        id: "io-threads-on-vcpu-cpus",
        layer: Layer::Vm,
        what: "I/O threads of QEMU that may run where virtual CPUs do",
        why: "disk I/O of the guest then stops the guest, or is starved by it",
        price: None,
        source: KBASE,
        needs_root: false,
        need: Need::Vms,
        judge: io_threads,
    },
    Rule {
        id: "vhost-on-vcpu-cpus",
        layer: Layer::Vm,
        what: "kernel threads that work for a VM (vhost, kvm-pit) and may run where virtual CPUs do",
        why: "packets of a virtio NIC then stop the guest, or are starved by it",
        price: None,
        source: KBASE,
        needs_root: false,
        need: Need::Vms,
        judge: vhost,
    },
    Rule {
        id: "emulator-without-housekeeping",
        layer: Layer::Vm,
        what: "QEMU's own threads on isolated CPUs of others",
        why: "they are work like any other, on CPUs that are kept free of it",
        price: None,
        source: KBASE,
        needs_root: false,
        need: Need::Vms,
        judge: emulator_on_isolated,
    },
    Rule {
        id: "vm-across-nodes",
        layer: Layer::Vm,
        what: "virtual CPUs of one VM on several NUMA nodes",
        why: "the guest's memory is far for half of its CPUs, and it does not know",
        price: None,
        source: "https://libvirt.org/formatdomain.html#numa-node-tuning",
        needs_root: false,
        need: Need::Vms,
        judge: across_nodes,
    },
    Rule {
        id: "functions-on-another-node",
        layer: Layer::Vm,
        what: "functions whose NUMA node is not that of the VM that owns them",
        why: "each descriptor, frame and interrupt crosses to the other node",
        price: None,
        source: "Documentation/ABI/testing/sysfs-bus-pci, numa_node",
        needs_root: false,
        need: Need::Vms,
        judge: functions_elsewhere,
    },
    Rule {
        id: "other-vms-on-isolated",
        layer: Layer::Vm,
        what: "VMs that are not in real time and may run on isolated CPUs",
        why: "a VM without pinning uses every CPU that its control group allows",
        price: None,
        source: KBASE,
        needs_root: false,
        need: Need::Isolation,
        judge: others_on_isolated,
    },
];

fn seen<'m, 'a>(machine: &'m Machine<'a>) -> Result<Vec<&'m RunningVm<'a>>, crate::rule::NoFinding> {
    let vms = machine.realtime_vms()?;
    match vms.iter().find(|vm| vm.vcpus.is_empty()) {
        Some(vm) => unknown(format!("the threads of {} could not be read", vm.subject())),
        None => Ok(vms),
    }
}

fn own_cpu(machine: &Machine<'_>) -> RuleResult {
    let wanted = "each virtual CPU on one CPU, and no other on it";
    let mut found = Vec::new();
    for vm in seen(machine)? {
        let mut wrong = Vec::new();
        let mut taken = CpuSet::default();
        for thread in &vm.vcpus {
            if thread.cpus.0.len() != 1 {
                wrong.push(format!("{} may run on {}", thread.name, thread.cpus));
            } else if is_within(&thread.cpus, &taken) {
                wrong.push(format!("{} is on {} with another", thread.name, thread.cpus));
            }
            taken = either(&taken, &thread.cpus);
        }
        found.push(if wrong.is_empty() {
            Finding::pass(format!("{} on {}", vm.vcpus.len(), named(&taken)), wanted).about(vm.subject())
        } else {
            let how = model("pin: with as many CPUs as virtual CPUs (libvirt: <vcpupin>; taskset is lost when it starts again)");
            Finding::conflict(wrong.join(", "), wanted, how).about(vm.subject())
        });
    }
    Ok(found)
}

fn outside_isolation(machine: &Machine<'_>) -> RuleResult {
    let wanted = "all on isolated CPUs";
    let found = seen(machine)?.into_iter().map(|vm| {
        let bare = without(&vm.cpus(), &machine.isolated);
        if bare.0.is_empty() {
            return Finding::pass(named(&vm.cpus()), wanted).about(vm.subject());
        }
        let how = model("realtime: on for this guest (an isolated partition while it runs)");
        Finding::conflict(format!("{} not isolated", named(&bare)), wanted, how).about(vm.subject())
    });
    Ok(found.collect())
}

fn policy(machine: &Machine<'_>) -> RuleResult {
    let wanted = "FIFO or RR";
    let found = seen(machine)?.into_iter().map(|vm| {
        let ordinary: Vec<&str> = vm
            .vcpus
            .iter()
            .filter(|thread| !is_realtime(thread))
            .map(|thread| thread.name.as_str())
            .collect();
        if ordinary.is_empty() {
            let priorities: Vec<String> = vm.vcpus.iter().map(|thread| thread.priority.to_string()).collect();
            return Finding::pass(format!("priorities {}", priorities.join(", ")), wanted)
                .about(vm.subject());
        }
        let how = model("realtime: {policy: fifo} (libvirt: <vcpusched scheduler='fifo' priority='1'/>)")
            .beware("a virtual CPU that spins then starves the kernel's own threads on its CPU");
        Finding::fail(format!("ordinary: {}", ordinary.join(", ")), wanted, how).about(vm.subject())
    });
    Ok(found.collect())
}

/// Of kernel threads `vhost-1234` and `kvm-pit/1234`, of QEMU's `IO iothread1`; all others are its emulator's.
fn sort(thread: &VmThread) -> Sort {
    if thread.name.starts_with("vhost-") || thread.name.starts_with("kvm-") {
        Sort::Kernel
    } else if thread.name.starts_with("IO ") {
        Sort::Io
    } else {
        Sort::Emulator
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    Emulator,
    Io,
    Kernel,
}

fn overlaps(machine: &Machine<'_>, which: Sort, how: fn(&CpuSet) -> Advice) -> RuleResult {
    let vms = seen(machine)?;
    let virtual_cpus = vms.iter().fold(CpuSet::default(), |all, vm| either(&all, &vm.cpus()));
    let wanted = format!("none of {virtual_cpus}");
    let mut found = Vec::new();
    for vm in &machine.vms {
        let threads: Vec<_> = vm.others.iter().filter(|thread| sort(thread) == which).collect();
        if threads.is_empty() {
            continue;
        }
        // What a VM without pinning may do to others has a rule of its own.
        if !vm.realtime {
            continue;
        }
        let on = threads.iter().fold(CpuSet::default(), |all, thread| either(&all, &thread.cpus));
        let shared = both(&on, &virtual_cpus);
        found.push(if shared.0.is_empty() {
            Finding::pass(format!("{} threads on {}", threads.len(), named(&on)), wanted.clone())
                .about(vm.subject())
        } else {
            let bad = threads.iter().find(|thread| !both(&thread.cpus, &virtual_cpus).0.is_empty());
            let name = bad.map_or("", |thread| thread.name.as_str());
            let read = format!("{name} may run on {}", named(&shared));
            Finding::conflict(read, wanted.clone(), to_housekeeping(machine, how)).about(vm.subject())
        });
    }
    if found.is_empty() { left_out("no VM in real time has such threads") } else { Ok(found) }
}

fn emulator_pin(cpus: &CpuSet) -> Advice {
    model(format!("emulator: {cpus} (libvirt: <emulatorpin>)"))
}

fn emulator(machine: &Machine<'_>) -> RuleResult {
    overlaps(machine, Sort::Emulator, emulator_pin)
}

fn io_threads(machine: &Machine<'_>) -> RuleResult {
    overlaps(machine, Sort::Io, |cpus| {
        by_hand(format!("libvirt: <iothreadpin iothread='1' cpuset='{cpus}'/>"))
    })
}

fn vhost(machine: &Machine<'_>) -> RuleResult {
    overlaps(machine, Sort::Kernel, |cpus| {
        model(format!("emulator: {cpus} (libvirt: <emulatorpin>, which places them as well)"))
            .or(model("a VF instead of a virtio NIC"))
    })
}

fn emulator_on_isolated(machine: &Machine<'_>) -> RuleResult {
    let vms = seen(machine)?;
    let virtual_cpus = vms.iter().fold(CpuSet::default(), |all, vm| either(&all, &vm.cpus()));
    let foreign = without(&either(&machine.kept, &machine.isolated), &virtual_cpus);
    let wanted = "on housekeeping CPUs";
    let found = vms.into_iter().map(|vm| {
        let on = vm.others.iter().fold(CpuSet::default(), |all, thread| either(&all, &thread.cpus));
        let shared = both(&on, &foreign);
        if shared.0.is_empty() {
            return Finding::pass(named(&on), wanted).about(vm.subject());
        }
        let how = to_housekeeping(machine, emulator_pin);
        Finding::conflict(format!("on {}, which are isolated", named(&shared)), wanted, how)
            .about(vm.subject())
    });
    Ok(found.collect())
}

fn across_nodes(machine: &Machine<'_>) -> RuleResult {
    if machine.inventory.cpus.nodes.len() < 2 {
        return left_out("the machine has one NUMA node");
    }
    let wanted = "one node";
    let found = seen(machine)?.into_iter().map(|vm| {
        let nodes: Vec<String> = machine.nodes(&vm.cpus()).iter().map(u32::to_string).collect();
        let read = format!("{} on node {}", named(&vm.cpus()), nodes.join(" and "));
        if nodes.len() < 2 {
            return Finding::pass(read, wanted).about(vm.subject());
        }
        Finding::conflict(read, wanted, model("pin: to CPUs of one node")).about(vm.subject())
    });
    Ok(found.collect())
}

fn functions_elsewhere(machine: &Machine<'_>) -> RuleResult {
    if machine.inventory.cpus.nodes.len() < 2 {
        return left_out("the machine has one NUMA node");
    }
    let mut found = Vec::new();
    for vm in seen(machine)? {
        let nodes = machine.nodes(&vm.cpus());
        for function in &vm.process.functions {
            let wanted = "the node of its virtual CPUs";
            let subject = format!("{function} of {}", vm.subject());
            let mine = nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(" and ");
            found.push(match machine.node_of(*function) {
                None => Finding::unknown("the kernel knows no node of it", wanted).about(subject),
                Some(node) if nodes.contains(&node) => {
                    Finding::pass(format!("node {node}"), wanted).about(subject)
                }
                Some(node) => {
                    let cpus = machine.inventory.cpus.nodes.get(&node).cloned().unwrap_or_default();
                    let how = model(format!("pin: to CPUs of {cpus}"))
                        .or(model(format!("a function of a NIC of node {mine}")));
                    Finding::conflict(format!("it is on node {node}, the VM on {mine}"), wanted, how)
                        .about(subject)
                }
            });
        }
    }
    if found.is_empty() { left_out("no VM in real time owns functions") } else { Ok(found) }
}

fn others_on_isolated(machine: &Machine<'_>) -> RuleResult {
    let kept = machine.kept()?;
    machine.sees_processes()?;
    let wanted = format!("none of {kept}");
    let mut found = Vec::new();
    for vm in machine.vms.iter().filter(|vm| !vm.realtime) {
        let all =
            vm.process.threads.values().fold(CpuSet::default(), |all, thread| either(&all, &thread.cpus));
        let shared = both(&all, kept);
        found.push(if all.0.is_empty() {
            Finding::unknown("none of its threads could be seen", wanted.clone()).about(vm.subject())
        } else if shared.0.is_empty() {
            Finding::pass(named(&all), wanted.clone()).about(vm.subject())
        } else {
            let how = to_housekeeping(machine, |cpus| model(format!("pin: {cpus}, emulator: {cpus}")));
            Finding::conflict(format!("it may run on {}", named(&shared)), wanted.clone(), how)
                .about(vm.subject())
        });
    }
    if found.is_empty() { left_out("no VM runs that is not in real time") } else { Ok(found) }
}
