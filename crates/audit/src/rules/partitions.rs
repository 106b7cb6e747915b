//! Partitions of CPUs that control groups make.

use penstock_model::{audit::Layer, inventory::tuning::CgroupVersion};

use crate::{
    advice::{boot, boot_without, by_hand, write},
    machine::{Machine, read},
    rule::{Finding, Need, NoFinding, Rule, RuleResult, left_out, unknown},
    sets::{both, named, without},
};

const CPUSET: &str = "Documentation/admin-guide/cgroup-v2.rst, cpuset";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "cgroup-version",
        layer: Layer::Isolation,
        what: "whether control groups can isolate CPUs for a guest as it starts (version 2 with isolated partitions)",
        why: "a partition comes and goes with its guest. cpusets of version 1 isolate at run time as well (sched_load_balance), but for all groups at once, and workqueues are not told",
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

fn version(machine: &Machine<'_>) -> RuleResult {
    let wanted = "cgroup v2 with isolated partitions";
    let release = &machine.inventory.kernel.release;
    match (machine.tuning.cgroups.version, machine.has_partitions()) {
        (CgroupVersion::Unknown, _) => unknown("how control groups are mounted could not be seen"),
        (CgroupVersion::V1, _) => {
            // What it isolates at run time is isolated; what it lacks is what Penstock works with.
            let unbalanced = machine.tuning.cgroups.unbalanced.known().cloned().unwrap_or_default();
            let how = boot("systemd.unified_cgroup_hierarchy=1")
                .beware("what knows version 1 alone (old container runtimes) no longer starts");
            if unbalanced.0.is_empty() {
                return Finding::fail("version 1", wanted, how).into();
            }
            Finding::recorded(
                format!("version 1, whose cpusets isolate {} at run time", named(&unbalanced)),
                wanted,
            )
            .changed_by(how)
            .into()
        }
        (CgroupVersion::V2, Some(true)) => Finding::pass(format!("v2, Linux {release}"), wanted).into(),
        (CgroupVersion::V2, _) => unknown(format!(
            "v2; nothing tells whether Linux {release} has isolated partitions, which kernel.org's have from 6.1 on: no group is one"
        )),
    }
}

fn controller(machine: &Machine<'_>) -> RuleResult {
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
    let disabled = machine.line.parts("cgroup_disable");
    let how = if disabled.contains(&"cpuset") {
        let rest: Vec<&str> = disabled.into_iter().filter(|name| *name != "cpuset").collect();
        if rest.is_empty() {
            boot_without("cgroup_disable")
        } else {
            boot(&format!("cgroup_disable={}", rest.join(",")))
        }
    } else {
        by_hand(
            "unmount the version 1 hierarchy that holds the cpuset controller; or use a kernel with CONFIG_CPUSETS=y",
        )
    };
    Finding::fail(read, "cpuset among them", how).into()
}

/// That everything of the groups could be read.
fn all_read(machine: &Machine<'_>) -> Result<(), NoFinding> {
    match machine.tuning.unread.partitions.first() {
        Some(why) => unknown(why.as_str()),
        None => Ok(()),
    }
}

fn invalid(machine: &Machine<'_>) -> RuleResult {
    let partitions = &machine.tuning.cgroups.partitions;
    if partitions.is_empty() {
        all_read(machine)?;
        return left_out("no control group is a partition");
    }
    let mut found = Vec::new();
    for (path, partition) in partitions {
        if partition.state.contains("invalid") {
            let file = format!("/sys/fs/cgroup/{}/cpuset.cpus.partition", path.trim_start_matches('/'));
            let how = by_hand("put right what the reason names").and(write(file, "isolated"));
            let read = format!("{} (CPUs {})", partition.state, partition.cpus);
            found.push(Finding::conflict(read, "isolated", how).about(format!("control group {path}")));
        }
    }
    if found.is_empty() {
        all_read(machine)?;
        return Finding::pass(format!("{} valid", partitions.len()), "no invalid partition").into();
    }
    Ok(found)
}

fn on_boot_isolated(machine: &Machine<'_>) -> RuleResult {
    let partitions = &machine.tuning.cgroups.partitions;
    if partitions.is_empty() || machine.boot_isolated().0.is_empty() {
        return left_out("there are not both CPUs that isolcpus= isolates and partitions");
    }
    all_read(machine)?;
    let wanted = "each CPU isolated by one of the two";
    let mut found = Vec::new();
    for (path, partition) in partitions {
        let shared = both(&partition.cpus, machine.boot_isolated());
        if !shared.0.is_empty() {
            let read = format!("{} on {}, which isolcpus= isolates", partition.state, named(&shared));
            let how = boot(&machine.isolcpus(Some("managed_irq"), Some("domain"), &Default::default()))
                .beware("CPUs that no partition has are then everybody's");
            found.push(Finding::conflict(read, wanted, how).about(format!("control group {path}")));
        }
    }
    if found.is_empty() { Finding::pass("no partition has one", wanted).into() } else { Ok(found) }
}

fn lacks_cpus(machine: &Machine<'_>) -> RuleResult {
    read(&machine.tuning.cgroups.isolated, "cpuset.cpus.isolated")?;
    all_read(machine)?;
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
            let how = by_hand(format!("free {lacking}: another partition has it, or it is off line"));
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
