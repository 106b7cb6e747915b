//! Isolated partitions of CPUs (`Documentation/admin-guide/cgroup-v2.rst`, cpuset).

use penstock_model::{
    CpuSet, GuestKind, Model, Realtime,
    inventory::{
        Inventory,
        tuning::{CgroupVersion, Tuning},
    },
};

use super::{RealtimeRequirements, guests, has_cpusets, named, not_since_start, union, version};
use crate::{
    RealTimeAction,
    draft::{Effect, StepSpec},
    planner::Planner,
};

/// The control group of CPUs that nothing may use and no guest owns.
pub const PARTITION: &str = "penstock-isolated";

/// The first kernel with partitions that are isolated (`kernel/cgroup/cpuset.c`, commit f28e22441f35).
const ISOLATED: (u32, u32) = (6, 1);
/// The first kernel with partitions below groups that are none (commit 181c8e091aae): libvirt has its VMs there.
const REMOTE: (u32, u32) = (6, 7);

/// The CPUs to isolate that no guest with `realtime` is pinned to.
pub fn nobodys(model: &Model, realtime: &Realtime) -> CpuSet {
    let owned = union(guests(model).map(|(.., pin)| pin));
    CpuSet(realtime.isolated.0.difference(&owned).copied().collect())
}

/// Why this machine has no partitions for what the model isolates; `None`: it has, or nobody looked.
pub fn why_none(model: &Model, inventory: &Inventory) -> Option<String> {
    let tuning = inventory.tuning.as_ref()?;
    let release = &inventory.kernel.release;
    let vm = guests(model).find(|(_, guest, _)| guest.kind == GuestKind::Vm);
    let needed = if vm.is_some() { REMOTE } else { ISOLATED };
    if let Some(seen) = version(release).filter(|seen| *seen < needed) {
        let what = match vm.filter(|_| seen >= ISOLATED) {
            Some((name, ..)) => format!("partitions where libvirt has {name}"),
            None => "isolated partitions of CPUs".to_owned(),
        };
        Some(format!("Linux {release} has no {what}: it takes {}.{}", needed.0, needed.1))
    } else if tuning.cgroups.version == CgroupVersion::V1 {
        Some("this machine has control groups of version 1, which have no isolated partitions".to_owned())
    } else if tuning.cgroups.version == CgroupVersion::Unknown {
        Some("no control groups could be seen".to_owned())
    } else {
        let none = || "this kernel's control groups have no controller `cpuset`".to_owned();
        (!has_cpusets(tuning)).then(none)
    }
}

/// Whether partitions can be made here. Where not, all CPUs that would need one must be isolated since the start.
pub fn possible(planner: &mut Planner<'_>, realtime: &Realtime, tuning: &Tuning) -> bool {
    let inventory = planner.inventory;
    if realtime.isolated.0.is_empty() {
        return false;
    }
    let Some(why) = why_none(planner.model, inventory) else {
        let both = realtime.isolated.0.intersection(&inventory.cpus.isolated.0).copied();
        let both = CpuSet(both.collect());
        if !both.0.is_empty() {
            let (are, them) = if both.0.len() == 1 { ("is", "it") } else { ("are", "them") };
            planner.note(format!(
                "{} {are} isolated since the kernel's start (isolcpus): a partition may have {them} only as an isolated one, and until then nothing spreads threads over {them}",
                named(&both)
            ));
        }
        return true;
    };
    let open = not_since_start(inventory, &realtime.isolated);
    if open.0.is_empty() {
        let are = if realtime.isolated.0.len() == 1 { "is" } else { "are" };
        planner.note(format!(
            "{why}; {} {are} isolated since the kernel's start, so that `pin` alone decides who is there",
            named(&realtime.isolated)
        ));
        return false;
    }
    let mut way_round = format!(
        "have the kernel isolate {} at its start: `penstock apply --persist` puts isolcpus=domain,managed_irq,{} on its command line",
        named(&realtime.isolated),
        realtime.isolated
    );
    let old = version(&inventory.kernel.release).is_some_and(|seen| seen < ISOLATED);
    if tuning.cgroups.version == CgroupVersion::V1 && !old {
        way_round += "; or start systemd with systemd.unified_cgroup_hierarchy=1";
    }
    planner.lack(format!("{} cannot be isolated while this kernel runs: {why}", named(&open)), way_round);
    false
}

/// The CPUs of the partition that is to be there, which may be none.
fn wanted(planner: &Planner<'_>, wishes: &RealtimeRequirements<'_>) -> CpuSet {
    // From those that it isolated at its start the kernel keeps everybody off who does not ask for them.
    not_since_start(planner.inventory, &nobodys(planner.model, wishes.realtime))
}

/// Takes a partition of ours away that has other CPUs, or is none: before interrupts and guests come to these.
pub fn remove_stale(planner: &mut Planner<'_>, wishes: &RealtimeRequirements<'_>) {
    let Some(present) = wishes.tuning.cgroups.partitions.get(PARTITION).filter(|_| wishes.partitions) else {
        return;
    };
    let is_isolated = present.state == "isolated";
    if is_isolated && present.cpus == wanted(planner, wishes) {
        return;
    }
    let (group, cpus) = (PARTITION.to_owned(), present.cpus.clone());
    planner.draft.push(StepSpec::new(
        RealTimeAction::RemovePartition { group: group.clone(), cpus: cpus.clone() }.into(),
        is_isolated.then_some(RealTimeAction::MakePartition { group, cpus }.into()),
        Vec::new(),
        Effect::Partition,
        match is_isolated {
            true => "other CPUs are to be isolated now".to_owned(),
            false => format!("its partition is \"{}\"", present.state),
        },
    ));
}

/// The partition of the CPUs that no guest owns.
pub fn steps(planner: &mut Planner<'_>, wishes: &RealtimeRequirements<'_>) {
    let wanted = wanted(planner, wishes);
    let present = wishes.tuning.cgroups.partitions.get(PARTITION);
    let is_there = present.is_some_and(|present| present.state == "isolated" && present.cpus == wanted);
    if !wishes.partitions || wanted.0.is_empty() || is_there {
        return;
    }
    planner.draft.push(StepSpec::new(
        RealTimeAction::MakePartition { group: PARTITION.to_owned(), cpus: wanted.clone() }.into(),
        Some(RealTimeAction::RemovePartition { group: PARTITION.to_owned(), cpus: wanted.clone() }.into()),
        vec![Effect::Quiet],
        Effect::Partition,
        format!("nothing else is to run on {}", named(&wanted)),
    ));
}
