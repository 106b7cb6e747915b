//! What decides how late a thread wakes, as far as a plan can change it.

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::{
    CpuSet, GuestName, Model, Scheduling, SchedulingPolicy,
    inventory::{
        Inventory,
        tuning::{Knob, Partition, Reading, ResctrlGroup, Tuning, Value},
    },
};

use super::machine::Machine;
use crate::{Action, Fact, GuestAction, Plan, RealTimeAction};

/// Does what it can of `action`.
pub fn act(inventory: &mut Inventory, action: &Action) {
    match action {
        Action::Guest(GuestAction::IsolateGuest { guest, cpus, on }) => {
            if let Some(found) = inventory.guests.get_mut(guest) {
                found.isolated = if *on { cpus.clone() } else { CpuSet::default() };
            }
        }
        Action::Guest(GuestAction::ScheduleGuest { guest, scheduling }) => {
            if let Some(found) = inventory.guests.get_mut(guest) {
                found.scheduling = Some(*scheduling);
            }
        }
        action => {
            if let Some(tuning) = &mut inventory.tuning {
                tune(tuning, action);
            }
        }
    }
}

fn tune(tuning: &mut Tuning, action: &Action) {
    match action {
        Action::RealTime(RealTimeAction::Tune { knob, to, .. }) => set(tuning, *knob, to),
        Action::RealTime(RealTimeAction::MakePartition { group, cpus }) => {
            let partition = Partition {
                state: "isolated".to_owned(),
                cpus: cpus.clone(),
                effective: cpus.clone(),
                exclusive: CpuSet::default(),
            };
            tuning.cgroups.partitions.insert(group.clone(), partition);
        }
        Action::RealTime(RealTimeAction::RemovePartition { group, .. }) => {
            drop(tuning.cgroups.partitions.remove(group))
        }
        Action::RealTime(RealTimeAction::PlaceInterrupts { functions, cpus }) => {
            let of =
                tuning.irqs.iter().filter(|(_, irq)| irq.function.is_some_and(|f| functions.contains(&f)));
            let numbers: Vec<u32> = of.map(|(number, _)| *number).collect();
            for number in numbers {
                set(tuning, Knob::IrqAffinity(number), &Value::Cpus(cpus.clone()));
            }
        }
        Action::RealTime(RealTimeAction::MakeResctrlGroup { group, settings }) => {
            if let Reading::Is(resctrl) = &mut tuning.resctrl {
                resctrl.groups.values_mut().for_each(|other| {
                    other.cpus.0 = other.cpus.0.difference(&settings.cpus.0).copied().collect();
                });
                resctrl.groups.insert(group.clone(), settings.clone());
            }
        }
        Action::RealTime(RealTimeAction::RemoveResctrlGroup { group, .. }) => {
            if let Reading::Is(resctrl) = &mut tuning.resctrl {
                let cpus = resctrl.groups.remove(group).unwrap_or_default().cpus;
                resctrl.groups.entry(String::new()).or_default().cpus.0.extend(cpus.0);
            }
        }
        Action::RealTime(RealTimeAction::SetSchemata { group, schemata }) => {
            if let Reading::Is(resctrl) = &mut tuning.resctrl
                && let Some(found) = resctrl.groups.get_mut(group)
            {
                found.schemata.extend(schemata.clone());
            }
        }
        _ => {}
    }
}

fn set(tuning: &mut Tuning, knob: Knob, to: &Value) {
    tuning.knobs.insert(knob, Reading::Is(to.clone()));
    if let (Knob::IrqAffinity(number), Value::Cpus(cpus)) = (knob, to)
        && let Some(irq) = tuning.irqs.get_mut(&number)
    {
        // Where the kernel delivers it of these is not known before.
        irq.effective = Reading::Is(cpus.clone());
    }
}

/// Whether `action` by itself makes `fact` true.
pub fn implied(action: &Action, fact: &Fact) -> bool {
    match (action, fact) {
        (Action::RealTime(RealTimeAction::Tune { knob, to, .. }), Fact::KnobIs { knob: of, value }) => {
            knob == of && to == value
        }
        (
            Action::RealTime(RealTimeAction::MakePartition { group, cpus }),
            Fact::Partition { group: of, cpus: has },
        ) => group == of && cpus == has,
        (
            Action::RealTime(RealTimeAction::RemovePartition { group, .. }),
            Fact::NoPartition { group: of },
        )
        | (
            Action::RealTime(RealTimeAction::RemoveResctrlGroup { group, .. }),
            Fact::NoResctrlGroup { group: of },
        ) => group == of,
        (
            Action::Guest(GuestAction::IsolateGuest { guest, cpus, on }),
            Fact::GuestIsolated { guest: of, cpus: has, on: is },
        ) => guest == of && cpus == has && on == is,
        (
            Action::Guest(GuestAction::ScheduleGuest { guest, scheduling }),
            Fact::GuestScheduled { guest: of, scheduling: is },
        ) => guest == of && scheduling == is,
        (
            Action::RealTime(RealTimeAction::PlaceInterrupts { functions, cpus }),
            Fact::InterruptsAt { functions: of, cpus: at },
        ) => functions == of && cpus == at,
        (
            Action::RealTime(RealTimeAction::MakeResctrlGroup { group, settings }),
            Fact::ResctrlGroupIs { group: of, settings: is },
        ) => group == of && settings == is,
        (
            Action::RealTime(RealTimeAction::SetSchemata { group, schemata }),
            Fact::SchemataAre { group: of, schemata: are },
        ) => group == of && schemata == are,
        _ => false,
    }
}

/// What brings back what was before `action`; `None` when nothing is known that could.
pub fn restoring(machine: &Machine, action: &Action) -> Option<Action> {
    let tuning = machine.inventory.tuning.as_ref();
    let groups = || tuning.and_then(|tuning| tuning.resctrl.known()).map(|resctrl| &resctrl.groups);
    Some(match action {
        Action::RealTime(RealTimeAction::Tune { knob, function, .. }) => {
            let to = value(tuning?, *knob)?.clone();
            RealTimeAction::Tune { knob: *knob, to, function: *function }.into()
        }
        Action::RealTime(RealTimeAction::MakePartition { group, cpus }) => {
            RealTimeAction::RemovePartition { group: group.clone(), cpus: cpus.clone() }.into()
        }
        Action::RealTime(RealTimeAction::RemovePartition { group, .. }) => {
            let present = tuning?.cgroups.partitions.get(group)?;
            (present.state == "isolated").then(|| {
                RealTimeAction::MakePartition { group: group.clone(), cpus: present.cpus.clone() }.into()
            })?
        }
        Action::Guest(GuestAction::IsolateGuest { guest, cpus, on }) => {
            GuestAction::IsolateGuest { guest: guest.clone(), cpus: cpus.clone(), on: !on }.into()
        }
        Action::Guest(GuestAction::ScheduleGuest { guest, .. }) => {
            let before = machine.guest(guest).and_then(|found| found.scheduling);
            GuestAction::ScheduleGuest { guest: guest.clone(), scheduling: before.unwrap_or_default() }.into()
        }
        Action::RealTime(RealTimeAction::MakeResctrlGroup { group, settings }) => {
            RealTimeAction::RemoveResctrlGroup { group: group.clone(), settings: settings.clone() }.into()
        }
        Action::RealTime(RealTimeAction::RemoveResctrlGroup { group, .. }) => {
            RealTimeAction::MakeResctrlGroup { group: group.clone(), settings: groups()?.get(group)?.clone() }
                .into()
        }
        Action::RealTime(RealTimeAction::SetSchemata { group, schemata }) => {
            let now = &groups()?.get(group)?.schemata;
            let before = schemata.keys().map(|name| Some((name.clone(), now.get(name)?.clone())));
            RealTimeAction::SetSchemata { group: group.clone(), schemata: before.collect::<Option<_>>()? }
                .into()
        }
        _ => return None,
    })
}

fn value(tuning: &Tuning, knob: Knob) -> Option<&Value> {
    tuning.knobs.get(&knob)?.known()
}

/// CPUs that are in some partition, but for those of `except`: a partition has its CPUs alone, whatever its group is called.
fn partitioned(machine: &Machine, except: Option<&GuestName>) -> BTreeSet<u32> {
    let tuning = machine.inventory.tuning.as_ref();
    let groups = tuning.into_iter().flat_map(|tuning| tuning.cgroups.partitions.values());
    let groups = groups.filter(|partition| partition.state == "isolated").map(|partition| &partition.cpus);
    let of_guests = machine.inventory.guests.values().map(|found| &found.isolated);
    let own = except.and_then(|name| machine.guest(name)).map(|found| &found.isolated.0);
    let taken = groups.chain(of_guests).flat_map(|cpus| cpus.0.iter().copied());
    taken.filter(|cpu| !own.is_some_and(|own| own.contains(cpu))).collect()
}

/// Which rules `action` breaks on the machine as it is. `way_there`: it is part of a plan that makes the machine what the model
/// says, and not of a way back.
pub fn broken(machine: &Machine, model: &Model, action: &Action, way_there: bool) -> Vec<String> {
    let online = &machine.inventory.cpus.online.0;
    let mut wrong = Vec::new();
    match action {
        Action::RealTime(RealTimeAction::Tune { knob, to: Value::Cpus(cpus), .. }) => {
            if cpus.0.is_disjoint(online) {
                wrong.push(format!("{knob} would hold no CPU that is on line"));
            }
            let free: BTreeSet<u32> = online.difference(&partitioned(machine, None)).copied().collect();
            if way_there && cpus.0.is_disjoint(&free) && !is_of_guest(machine, model, *knob) {
                wrong.push(format!("{knob} would hold isolated CPUs alone"));
            }
            if let Knob::IrqAffinity(number) = knob {
                let there = machine.inventory.tuning.as_ref().is_some_and(|t| t.irqs.contains_key(number));
                if !there {
                    wrong.push(format!("there is no interrupt {number}"));
                }
            }
        }
        Action::RealTime(RealTimeAction::MakePartition { group, cpus }) => {
            wrong.extend(partition(machine, cpus, None));
            let tuning = machine.inventory.tuning.as_ref();
            if tuning.is_some_and(|tuning| tuning.cgroups.partitions.contains_key(group)) {
                wrong.push(format!("control group {group} is there already"));
            }
        }
        Action::RealTime(RealTimeAction::RemovePartition { group, .. }) => {
            let tuning = machine.inventory.tuning.as_ref();
            if !tuning.is_some_and(|tuning| tuning.cgroups.partitions.contains_key(group)) {
                wrong.push(format!("there is no control group {group}"));
            }
        }
        Action::Guest(GuestAction::IsolateGuest { guest, .. })
        | Action::Guest(GuestAction::ScheduleGuest { guest, .. })
            if !machine.runs(guest) =>
        {
            wrong.push(format!("guest {guest} is not there, and has no control group"));
        }
        Action::Guest(GuestAction::IsolateGuest { guest, cpus, on: true }) => {
            wrong.extend(partition(machine, cpus, Some(guest)))
        }
        Action::Guest(GuestAction::ScheduleGuest { scheduling, .. }) => {
            let ordinary = scheduling.policy == SchedulingPolicy::Other;
            let good = if ordinary { 0..=0 } else { 1..=Scheduling::MOST };
            if !good.contains(&scheduling.priority) {
                wrong.push(format!("there is no {scheduling}"));
            }
        }
        Action::RealTime(RealTimeAction::PlaceInterrupts { functions, cpus }) => {
            if cpus.0.is_disjoint(online) {
                wrong.push(format!("none of the CPUs {cpus} is on line"));
            }
            let gone = functions.iter().filter(|function| machine.seat(**function).is_none());
            wrong.extend(gone.map(|function| format!("{function} does not exist")));
        }
        Action::RealTime(RealTimeAction::MakeResctrlGroup { group, settings }) => {
            wrong.extend(resctrl_group(machine, group, settings, way_there));
        }
        Action::RealTime(RealTimeAction::RemoveResctrlGroup { group, .. }) => {
            let known = machine.inventory.tuning.as_ref().and_then(|tuning| tuning.resctrl.known());
            if !known.is_some_and(|resctrl| resctrl.groups.contains_key(group)) {
                wrong.push(format!("there is no resctrl group {group}"));
            }
        }
        Action::RealTime(RealTimeAction::SetSchemata { group, schemata }) => {
            wrong.extend(masks(machine, group, schemata))
        }
        Action::Guest(GuestAction::ResumeGuest { guest }) if way_there => {
            wrong.extend(alone(machine, model, guest))
        }
        // What is no CPU's may hold any value; CPUs that are no guest's alone any more were so with right.
        Action::RealTime(RealTimeAction::Tune { .. })
        | Action::Guest(
            GuestAction::IsolateGuest { on: false, .. }
            | GuestAction::ResumeGuest { .. }
            | GuestAction::DefineGuest(_)
            | GuestAction::UndefineGuest { .. }
            | GuestAction::StartSwitch { .. }
            | GuestAction::StopSwitch { .. }
            | GuestAction::MakeTaps { .. }
            | GuestAction::RemoveTaps { .. }
            | GuestAction::SetPortAttribute { .. }
            | GuestAction::StartGuest { .. }
            | GuestAction::CreateGuest { .. }
            | GuestAction::SuspendGuest { .. }
            | GuestAction::AwaitGuest { .. }
            | GuestAction::StopGuest { .. },
        )
        | Action::Function(_)
        | Action::Drive(_)
        | Action::Boot(_)
        | Action::File(_) => {}
    }
    wrong
}

/// Whether an interrupt is of a function that a guest runs with.
fn is_of_guest(machine: &Machine, model: &Model, knob: Knob) -> bool {
    let Knob::IrqAffinity(number) = knob else { return false };
    let tuning = machine.inventory.tuning.as_ref();
    let function = tuning.and_then(|tuning| tuning.irqs.get(&number)?.function);
    let user = function.and_then(|function| machine.user(function));
    user.and_then(|guest| model.guests.get(guest)?.realtime.as_ref()).is_some()
}

/// What stands against a partition of these CPUs.
fn partition(machine: &Machine, cpus: &CpuSet, guest: Option<&GuestName>) -> Vec<String> {
    let online = &machine.inventory.cpus.online.0;
    let taken = partitioned(machine, guest);
    let mut wrong = Vec::new();
    if cpus.0.is_empty() || !cpus.0.is_subset(online) {
        wrong.push(format!("not all of the CPUs \"{cpus}\" are on line"));
    }
    if !cpus.0.is_disjoint(&taken) {
        wrong.push(format!("some of the CPUs {cpus} are another partition's"));
    }
    if online.iter().all(|cpu| taken.contains(cpu) || cpus.0.contains(cpu)) {
        wrong.push("no CPU would be left for the machine itself".to_owned());
    }
    wrong
}

/// Whether the CPUs of a VM are its alone before it runs.
fn alone(machine: &Machine, model: &Model, guest: &GuestName) -> Option<String> {
    let wanted = model.guests.get(guest).filter(|wanted| wanted.realtime.is_some())?;
    let pin = wanted.pin.as_ref()?;
    let since_start = pin.0.is_subset(&machine.inventory.cpus.isolated.0);
    let has = machine.guest(guest).map(|found| &found.isolated);
    (!since_start && has != Some(pin))
        .then(|| format!("{guest} would run before the CPUs {pin} are its alone"))
}

fn resctrl_group(machine: &Machine, name: &str, settings: &ResctrlGroup, way_there: bool) -> Vec<String> {
    let known = machine.inventory.tuning.as_ref().and_then(|tuning| tuning.resctrl.known());
    let Some(resctrl) = known else { return vec!["resctrl is not there".to_owned()] };
    let mut wrong = masks(machine, name, &settings.schemata);
    if resctrl.groups.contains_key(name) {
        wrong.push(format!("resctrl group {name} is there already"));
    }
    if resctrl.most_groups.is_some_and(|most| resctrl.groups.len() >= most as usize) {
        wrong.push(format!("there is no room for resctrl group {name}"));
    }
    for (resource, domains) in settings.schemata.iter().filter(|(resource, _)| *resource != "MB") {
        let default = resctrl.groups.get("").and_then(|group| group.schemata.get(resource));
        let shared = domains.iter().any(|(domain, mask)| {
            default.and_then(|default| default.get(domain)).is_some_and(|other| mask & other != 0)
        });
        if way_there && shared {
            wrong.push(format!("the ways of resctrl group {name} are the default group's too"));
        }
    }
    wrong
}

/// Masks that the CPU would not take.
fn masks(machine: &Machine, group: &str, schemata: &BTreeMap<String, BTreeMap<u32, u64>>) -> Vec<String> {
    let known = machine.inventory.tuning.as_ref().and_then(|tuning| tuning.resctrl.known());
    let Some(resctrl) = known else { return vec!["resctrl is not there".to_owned()] };
    let mut wrong = Vec::new();
    for (resource, domains) in schemata.iter().filter(|(resource, _)| *resource != "MB") {
        let whole = resctrl.masks.get(resource).copied().unwrap_or_default();
        let least = resctrl.least_bits.get(resource).copied().unwrap_or(1);
        for mask in domains.values() {
            let pieces =
                (0..64).filter(|bit| mask >> bit & 1 == 1 && (*bit == 0 || mask >> (bit - 1) & 1 == 0));
            if mask & !whole != 0 || mask.count_ones() < least || pieces.count() != 1 {
                wrong.push(format!("{resource} of resctrl group \"{group}\" cannot be {mask:x}"));
            }
        }
    }
    wrong
}

/// What is not as the model says at the end.
pub fn judge(model: &Model, plan: &Plan, machine: &Machine) -> Vec<String> {
    let Some(realtime) = &model.realtime else {
        let touching = plan.steps.iter().filter(|step| step.action.is_realtime());
        return touching.map(|step| format!("the model says nothing of \"{}\"", step.action)).collect();
    };
    let Some(tuning) = &machine.inventory.tuning else { return Vec::new() };
    let isolated = &realtime.isolated.0;
    let mut wrong = Vec::new();
    let masks = [Knob::DefaultIrqAffinity, Knob::Workqueues, Knob::WritebackWorkqueue];
    let irqs = tuning.irqs.iter().filter(|(_, irq)| {
        let elsewhere = ["nvme", "virtio", "timer"];
        let by_kernel = irq.users.iter().any(|user| elsewhere.iter().any(|start| user.starts_with(start)));
        !irq.users.is_empty() && !by_kernel
    });
    for knob in masks.into_iter().chain(irqs.map(|(number, _)| Knob::IrqAffinity(*number))) {
        if let Some(Value::Cpus(cpus)) = value(tuning, knob)
            && !cpus.0.is_disjoint(isolated)
            && !is_of_guest(machine, model, knob)
        {
            wrong.push(format!("{knob} holds {cpus}, and {} is isolated", realtime.isolated));
        }
    }
    let mut alone = partitioned(machine, None);
    alone.extend(&machine.inventory.cpus.isolated.0);
    let open = CpuSet(isolated.difference(&alone).copied().collect());
    if !open.0.is_empty() {
        wrong.push(format!("the CPUs {open} are to be isolated and are in no partition"));
    }
    let number = |knob| match value(tuning, knob) {
        Some(Value::Number(number)) => Some(*number),
        _ => None,
    };
    if let (Some(throttling), Some(runtime)) = (realtime.throttling, number(Knob::RtRuntime))
        && throttling == (runtime == -1)
    {
        wrong.push(format!("{} holds {runtime}", Knob::RtRuntime));
    }
    for cpu in isolated {
        let owner = model.guests.values().find(|guest| {
            guest.realtime.is_some() && guest.pin.as_ref().is_some_and(|pin| pin.0.contains(cpu))
        });
        let own = owner.and_then(|guest| guest.realtime.as_ref()?.wake_latency);
        let knob = Knob::ResumeLatency(*cpu);
        if let (Some(most), Some(is)) = (own.or(realtime.wake_latency), value(tuning, knob)) {
            let good = match most {
                0 => *is == Value::Word("n/a".to_owned()),
                most => *is == Value::Number(i64::from(most)),
            };
            if !good {
                wrong.push(format!("{knob} holds {is}, and {most} is wanted"));
            }
        }
    }
    for (name, guest) in &model.guests {
        let Some(wanted) = &guest.realtime else { continue };
        let found = machine.guest(name).filter(|found| found.running);
        if let Some(seen) = found.and_then(|found| found.scheduling)
            && seen != wanted.scheduling
        {
            wrong.push(format!("{name} is scheduled as {seen}, and not as {}", wanted.scheduling));
        }
        if let Some(ways) = wanted.cache {
            wrong.extend(own_ways(tuning, name, guest.pin.as_ref(), ways));
        }
    }
    wrong
}

/// Whether a guest has as many ways as it is to have, and nobody else has them.
fn own_ways(tuning: &Tuning, name: &GuestName, pin: Option<&CpuSet>, ways: u32) -> Option<String> {
    let groups = &tuning.resctrl.known()?.groups;
    let group = groups.get(&format!("penstock-{name}"));
    let caches = |group: &ResctrlGroup| {
        let of = group.schemata.iter().filter(|(resource, _)| resource.starts_with('L'));
        of.flat_map(|(_, domains)| domains.values().copied()).collect::<Vec<u64>>()
    };
    let masks = group.map(caches).unwrap_or_default();
    let all = masks.iter().fold(0, |all, mask| all | mask);
    let ours = groups.iter().filter(|(other, _)| other.is_empty() || other.starts_with("penstock-"));
    let others = ours.filter(|(other, _)| **other != format!("penstock-{name}"));
    let shared = others.flat_map(|(_, other)| caches(other)).any(|mask| mask & all != 0);
    let enough = !masks.is_empty() && masks.iter().all(|mask| mask.count_ones() == ways);
    let right = enough && !shared && group.map(|group| &group.cpus) == pin;
    (!right).then(|| format!("{name} does not have {ways} cache ways of its own"))
}
