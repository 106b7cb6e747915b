//! Partitions of CPUs that control groups make.

use penstock_model::{audit::Layer, inventory::tuning::CgroupVersion};

use crate::{
    machine::{Machine, read},
    release::Release,
    rule::{Finding, Need, Rule, Said, left_out, unknown},
    sets::{both, named, without},
};

const CPUSET: &str = "Documentation/admin-guide/cgroup-v2.rst, cpuset";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "cgroup-version",
        layer: Layer::Isolation,
        what: "whether control groups are version 2, and this kernel makes isolated partitions",
        why: "only version 2 isolates CPUs without a new start: version 1 has no isolated partitions",
        price: None,
        source: CPUSET,
        needs_root: false,
        need: Need::Isolation,
        judge: version,
    },
    Rule {
        id: "cpuset-controller",
        layer: Layer::Isolation,
        what: "whether the cpuset controller is there (cgroup.controllers)",
        why: "without it no control group can be given CPUs",
        price: None,
        source: CPUSET,
        needs_root: false,
        need: Need::Isolation,
        judge: controller,
    },
    Rule {
        id: "partition-invalid",
        layer: Layer::Isolation,
        what: "partitions that the kernel has refused (`isolated invalid (reason)`)",
        why: "an invalid partition looks set up and isolates nothing",
        price: None,
        source: "Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition; kernel commit 7476a636d310",
        needs_root: false,
        need: Need::Always,
        judge: invalid,
    },
    Rule {
        id: "partition-on-boot-isolated-cpus",
        layer: Layer::Isolation,
        what: "partitions on CPUs that isolcpus= has isolated",
        why: "two mechanisms own one CPU: only an isolated partition may have it, and the CPU never comes back to the scheduler when that goes",
        price: None,
        source: "kernel commit 4a74e418881f",
        needs_root: false,
        need: Need::Always,
        judge: on_boot_isolated,
    },
    Rule {
        id: "partition-lacks-cpus",
        layer: Layer::Isolation,
        what: "isolated partitions that were not given all CPUs that they ask for",
        why: "threads that count on a CPU alone share the others",
        price: None,
        source: CPUSET,
        needs_root: false,
        need: Need::Always,
        judge: lacks_cpus,
    },
];

fn version(machine: &Machine<'_>) -> Said {
    let release = machine.release()?;
    let wanted = "cgroup v2 on Linux 6.1 or newer";
    match machine.tuning.cgroups.version {
        CgroupVersion::Unknown => unknown("how control groups are mounted could not be seen"),
        CgroupVersion::V2 if release >= Release::new(6, 1) => {
            Finding::pass(format!("v2, Linux {release}"), wanted).into()
        }
        CgroupVersion::V2 => {
            let how = "a newer kernel; until then isolcpus= on the boot command line";
            Finding::fail(format!("v2, but Linux {release} has no isolated partitions"), wanted, how).into()
        }
        CgroupVersion::V1 => {
            let how = "boot command line: systemd.unified_cgroup_hierarchy=1 (and no systemd.legacy_systemd_cgroup_controller); until then isolcpus=";
            Finding::fail("version 1", wanted, how).into()
        }
    }
}

fn controller(machine: &Machine<'_>) -> Said {
    let cgroups = &machine.tuning.cgroups;
    match cgroups.version {
        CgroupVersion::V2 => {}
        CgroupVersion::V1 => return left_out("control groups are version 1"),
        CgroupVersion::Unknown => return unknown("how control groups are mounted could not be seen"),
    }
    if cgroups.controllers.is_empty() {
        return unknown("cgroup.controllers could not be read");
    }
    let read = cgroups.controllers.iter().cloned().collect::<Vec<_>>().join(" ");
    if cgroups.controllers.contains("cpuset") {
        return Finding::pass(read, "cpuset among them").into();
    }
    let how = "remove cgroup_disable=cpuset from the boot command line, or unmount the version 1 hierarchy that holds it";
    Finding::fail(read, "cpuset among them", how).into()
}

fn invalid(machine: &Machine<'_>) -> Said {
    let partitions = &machine.tuning.cgroups.partitions;
    if partitions.is_empty() {
        return left_out("no control group is a partition");
    }
    let mut found = Vec::new();
    for (path, partition) in partitions {
        if partition.state.contains("invalid") {
            let how = format!(
                "put right what it names, then: echo isolated > /sys/fs/cgroup/{}/cpuset.cpus.partition",
                path.trim_start_matches('/')
            );
            let read = format!("{} (CPUs {})", partition.state, partition.cpus);
            found.push(Finding::conflict(read, "isolated", how).about(format!("control group {path}")));
        }
    }
    if found.is_empty() {
        return Finding::pass(format!("{} valid", partitions.len()), "no invalid partition").into();
    }
    Ok(found)
}

fn on_boot_isolated(machine: &Machine<'_>) -> Said {
    let partitions = &machine.tuning.cgroups.partitions;
    if partitions.is_empty() || machine.boot_isolated().0.is_empty() {
        return left_out("there are not both CPUs that isolcpus= isolates and partitions");
    }
    let wanted = "each CPU isolated by one of the two";
    let mut found = Vec::new();
    for (path, partition) in partitions {
        let shared = both(&partition.cpus, machine.boot_isolated());
        if !shared.0.is_empty() {
            let read = format!("{} on {}, which isolcpus= isolates", partition.state, named(&shared));
            let how = format!(
                "boot command line: isolcpus=managed_irq,{} without the domain flag",
                machine.boot_isolated()
            );
            found.push(Finding::conflict(read, wanted, how).about(format!("control group {path}")));
        }
    }
    if found.is_empty() { Finding::pass("no partition has one", wanted).into() } else { Ok(found) }
}

fn lacks_cpus(machine: &Machine<'_>) -> Said {
    read(&machine.tuning.cgroups.isolated, "cpuset.cpus.isolated")?;
    let wanted = "all that it asks for (cpuset.cpus = cpuset.cpus.effective)";
    let mut found = Vec::new();
    let mut seen = 0;
    for (path, partition) in &machine.tuning.cgroups.partitions {
        if partition.state != "isolated" {
            continue;
        }
        seen += 1;
        let lacking = without(&partition.cpus, &partition.effective);
        // Partitions within this one have theirs from it.
        let below = format!("{}/", path.trim_end_matches('/'));
        let children =
            machine.tuning.cgroups.partitions.iter().filter(|(other, _)| other.starts_with(&below));
        let lacking = children.fold(lacking, |lacking, (_, child)| without(&lacking, &child.effective));
        if !lacking.0.is_empty() {
            let how = format!("free {lacking}: another partition has it, or it is off line");
            let read = format!("asks for {}, has {}", partition.cpus, partition.effective);
            found.push(Finding::conflict(read, wanted, how).about(format!("control group {path}")));
        }
    }
    match (seen, found.is_empty()) {
        (0, _) => left_out("no control group is an isolated partition"),
        (_, true) => Finding::pass(format!("{seen} with all"), wanted).into(),
        (_, false) => Ok(found),
    }
}
