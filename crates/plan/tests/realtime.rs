//! What holds of every plan of real time, on machines and models made by chance.

#![allow(clippy::disallowed_methods, reason = "a test reads its own folders")]

#[allow(dead_code, reason = "models of chance are made here otherwise")]
mod support;

use std::fmt::Write;

use penstock_model::{
    CpuSet, Inventory, Model, Source,
    inventory::{
        FoundGuest,
        tuning::{CgroupVersion, Irq, Knob, Partition, Reading, Resctrl, ResctrlGroup, Tuning, Value},
    },
};
use penstock_plan::{
    Action, GuestAction, PARTITION, Plan, PlanError, RealTimeAction, Step,
    check::{check, check_steps, simulate},
    plan, stop, undo,
};
use proptest::prelude::*;
use support::Dice;

const CPUS: u32 = 8;

fn base() -> Inventory {
    let text = include_str!("golden/vm-pinned/inventory.json");
    serde_json::from_str(text).unwrap()
}

/// Some CPUs, at least one.
fn cpus(dice: &mut Dice) -> CpuSet {
    let bits = dice.below(255) + 1;
    CpuSet((0..CPUS).filter(|cpu| bits >> cpu & 1 == 1).collect())
}

fn machine(dice: &mut Dice) -> Inventory {
    let mut inventory = base();
    inventory.cpus.online = CpuSet((0..CPUS).collect());
    let mut tuning = Tuning::default();
    let mut set = |knob, value| drop(tuning.knobs.insert(knob, Reading::Is(value)));
    for knob in [Knob::DefaultIrqAffinity, Knob::Workqueues, Knob::WritebackWorkqueue] {
        set(knob, Value::Cpus(cpus(dice)));
    }
    set(Knob::RtRuntime, Value::Number(if dice.once_in(3) { -1 } else { 950_000 }));
    for cpu in 0..CPUS {
        let strict = dice.once_in(4);
        let latency = if strict { Value::Word("n/a".into()) } else { Value::Number(dice.below(3) as i64) };
        set(Knob::ResumeLatency(cpu), latency);
        set(Knob::Governor(cpu), Value::Word("schedutil".into()));
        set(Knob::MinFrequency(cpu), Value::Number(800_000));
        set(Knob::MaxFrequency(cpu), Value::Number(3_000_000));
        set(Knob::FairServer(cpu), Value::Number(if dice.once_in(4) { 0 } else { 50_000_000 }));
    }
    if dice.once_in(3) {
        let hidden = [Reading::Absent, Reading::Denied, Reading::Unreadable("odd".into())];
        tuning.knobs.insert(Knob::FairServer(dice.below(8) as u32), hidden[dice.below(3) as usize].clone());
    }
    for number in 0..dice.below(12) as u32 {
        let at = cpus(dice);
        let user = ["eth0-rx-0", "nvme0q3", "ehci_hcd:usb1", "timer"][dice.below(4) as usize];
        let users = if dice.once_in(4) { vec![] } else { vec![user.to_owned()] };
        tuning.irqs.insert(number, Irq { users, effective: Reading::Is(at.clone()), ..Irq::default() });
        tuning.knobs.insert(Knob::IrqAffinity(number), Reading::Is(Value::Cpus(at)));
    }
    tuning.cgroups.version = CgroupVersion::V2;
    tuning.cgroups.controllers = ["cpuset".to_owned()].into();
    if dice.once_in(4) {
        let own = CpuSet([dice.below(8) as u32].into());
        let state = "isolated".to_owned();
        let found = Partition { state, cpus: own.clone(), effective: own, exclusive: CpuSet::default() };
        tuning.cgroups.partitions.insert(PARTITION.to_owned(), found);
    }
    if !dice.once_in(4) {
        let all = inventory.cpus.online.clone();
        let schemata = [("L3", 0x7ff), ("MB", 100)]
            .map(|(name, share)| (name.to_owned(), [(0, share), (1, share)].into()));
        let default = ResctrlGroup { cpus: all, schemata: schemata.into() };
        tuning.resctrl = Reading::Is(Resctrl {
            masks: [("L3".to_owned(), 0x7ff)].into(),
            shareable: [("L3".to_owned(), if dice.once_in(2) { 0x600 } else { 0 })].into(),
            least_bits: [("L3".to_owned(), 1 + dice.below(2) as u32)].into(),
            most_groups: Some(2 + dice.below(4) as u32),
            bandwidth: Some((10, 10)),
            groups: [(String::new(), default)].into(),
        });
    }
    inventory.tuning = Some(tuning);
    inventory
}

fn model(dice: &mut Dice) -> Option<Model> {
    let mut text = "nics: {NET0: {vfs: 4}}\nrealtime:\n  housekeeping: 0-7\n".to_owned();
    let isolated = cpus(dice);
    let rest = CpuSet((0..CPUS).filter(|cpu| !isolated.0.contains(cpu)).collect());
    text = text.replace("0-7", &rest.to_string());
    writeln!(text, "  isolated: {isolated}").unwrap();
    for (key, values) in [
        ("wake_latency", ["0", "2"]),
        ("frequency", ["performance", "2.4GHz"]),
        ("throttling", ["on", "off"]),
        ("tickless", ["on", "off"]),
    ] {
        let value = values[dice.below(2) as usize];
        if dice.once_in(2) {
            writeln!(text, "  {key}: {value}").unwrap();
        }
    }
    text += "guests:\n  box: {functions: [NET0#3]}\n";
    let mut left: Vec<u32> = isolated.0.iter().copied().collect();
    for number in 0..dice.below(4) {
        let Some(last) = left.pop() else { break };
        let two = if dice.once_in(2) { left.pop() } else { None };
        let pin = CpuSet(two.into_iter().chain([last]).collect());
        let kind = ["vm", "container"][dice.below(2) as usize];
        write!(text, "  g{number}: {{kind: {kind}, pin: {pin}, functions: [NET0#{number}], realtime: {{")
            .unwrap();
        let house = rest.0.first().copied().unwrap_or(0).to_string();
        let options = [
            ("policy", "rr".to_owned()),
            ("interrupts", house),
            ("cache", (1 + dice.below(4)).to_string()),
            ("memory_bandwidth", "40%".to_owned()),
            ("wake_latency", "0".to_owned()),
        ];
        let chosen: Vec<String> = options
            .into_iter()
            .filter(|_| dice.once_in(2))
            .map(|(key, value)| format!("{key}: {value}"))
            .collect();
        writeln!(text, "{}}}}}", chosen.join(", ")).unwrap();
    }
    penstock_model::parse(&Source::new("m.yaml", text)).ok().map(|parsed| parsed.model)
}

/// Two plans as one.
fn then(first: &Plan, second: &Plan) -> Plan {
    let mut both = first.clone();
    both.steps.extend(second.steps.iter().cloned());
    both
}

fn made(seed: u64) -> Option<(Model, Inventory, Plan)> {
    let dice = &mut Dice(seed);
    let (inventory, model) = (machine(dice), model(dice)?);
    match plan(&model, &inventory) {
        Ok(plan) => Some((model, inventory, plan)),
        Err(PlanError::Model(_) | PlanError::Unsupported(_) | PlanError::Refused(_)) => None,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn most_of_what_is_made_up_can_be_planned() {
    let planned = (0..200).filter(|seed| made(*seed).is_some()).count();
    assert!(planned > 80, "{planned} of 200");
}

/// A plan without one step, its numbers and needs in order.
fn without(plan: &Plan, gone: usize) -> Plan {
    let mut plan = plan.clone();
    plan.steps.remove(gone);
    let gone = gone as u32 + 1;
    for (position, step) in plan.steps.iter_mut().enumerate() {
        step.id.0 = position as u32 + 1;
        step.needs.retain(|need| need.0 != gone);
        step.needs.iter_mut().filter(|need| need.0 > gone).for_each(|need| need.0 -= 1);
    }
    plan
}

/// What the checker has to miss when a step of this kind is left out.
fn is_missed(action: &Action) -> bool {
    match action {
        // What becomes of frequencies, of interrupts that the kernel places, and of bandwidth shows in no guest's definition.
        Action::RealTime(RealTimeAction::Tune { knob, .. }) => matches!(
            knob,
            Knob::DefaultIrqAffinity
                | Knob::Workqueues
                | Knob::WritebackWorkqueue
                | Knob::ResumeLatency(_)
                | Knob::RtRuntime
        ),
        Action::RealTime(RealTimeAction::MakePartition { .. })
        | Action::Guest(GuestAction::IsolateGuest { .. }) => true,
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_is_right_and_the_second_time_there_is_nothing_to_do(seed in any::<u64>()) {
        let Some((model, inventory, plan_made)) = made(seed) else { return Ok(()) };
        prop_assert_eq!(check(&model, &inventory, &plan_made), vec![], "{}", plan_made);
        let there = simulate(&inventory, &plan_made);
        let again = plan(&model, &there).unwrap();
        prop_assert!(again.steps.is_empty(), "{}\nthen\n{}", plan_made, again);
        let back = undo(&plan_made);
        prop_assert_eq!(check_steps(&model, &there, &back), vec![], "{}", back);
    }

    #[test]
    fn the_checker_misses_what_is_left_out_and_sees_what_is_too_much(seed in any::<u64>()) {
        let Some((model, inventory, whole)) = made(seed) else { return Ok(()) };
        for (at, step) in whole.steps.iter().enumerate() {
            if is_missed(&step.action) {
                let found = check(&model, &inventory, &without(&whole, at));
                prop_assert!(!found.is_empty(), "\"{}\" is not missed in\n{}", step.action, whole);
            }
            let mut damaged = whole.clone();
            let taken = damaged.steps[at].inverse.take();
            if matches!(step.action, Action::RealTime(RealTimeAction::Tune { .. }) | Action::Guest(GuestAction::IsolateGuest { .. })) && taken.is_some() {
                let found = check(&model, &inventory, &damaged);
                prop_assert!(!found.is_empty(), "\"{}\" needs a way back in\n{}", step.action, whole);
            }
            if let Action::Guest(GuestAction::IsolateGuest { cpus, .. }) = &mut damaged.steps[at].action {
                *cpus = inventory.cpus.online.clone();
                let found = check(&model, &inventory, &damaged);
                prop_assert!(!found.is_empty(), "all CPUs are taken in\n{}", damaged);
            }
        }
    }

    #[test]
    fn the_way_back_from_every_step_leads_back(seed in any::<u64>()) {
        let Some((_, inventory, whole)) = made(seed) else { return Ok(()) };
        for length in 0..=whole.steps.len() {
            let part = Plan { steps: whole.steps[..length].to_vec(), ..whole.clone() };
            let after = simulate(&inventory, &then(&part, &undo(&part)));
            prop_assert_eq!(&after.tuning, &inventory.tuning, "after {} steps of\n{}", length, whole);
            let bound = |inventory: &Inventory| {
                let guests = inventory.guests.values();
                guests.filter(|found| !found.isolated.0.is_empty() || found.running).count()
            };
            prop_assert_eq!(bound(&after), bound(&inventory));
        }
    }

    #[test]
    fn a_model_without_the_words_leaves_all_of_it_alone(seed in any::<u64>()) {
        let Some((model, inventory, whole)) = made(seed) else { return Ok(()) };
        let there = simulate(&inventory, &whole);
        let mut without = model.clone();
        without.realtime = None;
        without.guests.values_mut().for_each(|guest| guest.realtime = None);
        let planned = plan(&without, &there).unwrap();
        prop_assert!(planned.steps.is_empty(), "{}", planned);
    }

    #[test]
    fn guests_that_run_already_are_not_started_anew(seed in any::<u64>()) {
        let Some((model, inventory, whole)) = made(seed) else { return Ok(()) };
        let mut there = simulate(&inventory, &whole);
        there.tuning = inventory.tuning.clone();
        for found in there.guests.values_mut() {
            *found = FoundGuest { isolated: CpuSet::default(), scheduling: None, ..found.clone() };
        }
        let tuned = plan(&model, &there).unwrap();
        let starts = |action: &Action| matches!(
            action,
            Action::Guest(GuestAction::StartGuest { .. }) | Action::Guest(GuestAction::CreateGuest { .. }) | Action::Guest(GuestAction::StopGuest { .. })
        );
        prop_assert!(!tuned.steps.iter().any(|step| starts(&step.action)), "{}", tuned);
        prop_assert_eq!(check(&model, &there, &tuned), vec![], "{}", tuned);
        let after = simulate(&there, &then(&tuned, &undo(&tuned)));
        prop_assert_eq!(&after.tuning, &there.tuning);
        let isolated = |inventory: &Inventory| {
            inventory.guests.values().map(|found| found.isolated.clone()).collect::<Vec<_>>()
        };
        prop_assert_eq!(isolated(&after), isolated(&there));
    }

    #[test]
    fn a_partition_that_is_half_made_is_finished_before_its_guest_runs(seed in any::<u64>(), of in any::<u32>()) {
        let Some((model, inventory, whole)) = made(seed) else { return Ok(()) };
        let isolate = |step: &Step| matches!(&step.action, Action::Guest(GuestAction::IsolateGuest { on: true, .. }));
        let Some(position) = whole.steps.iter().position(isolate) else { return Ok(()) };
        let Action::Guest(GuestAction::IsolateGuest { guest, cpus, .. }) = &whole.steps[position].action else {
            unreachable!()
        };
        // As an `apply` leaves it that is killed in the middle of that step.
        let part = Plan { steps: whole.steps[..position].to_vec(), ..whole.clone() };
        let mut there = simulate(&inventory, &part);
        let half = CpuSet(cpus.0.iter().copied().filter(|cpu| of >> (cpu % 32) & 1 == 1).collect());
        if !half.0.is_empty() {
            let state = "isolated".to_owned();
            let own = Partition { state, cpus: half.clone(), effective: half.clone(), exclusive: half.clone() };
            there.tuning.as_mut().unwrap().cgroups.partitions.insert("/machine/rt/vcpu0".to_owned(), own);
        }
        there.guests.get_mut(guest).unwrap().isolated = half;
        let rest = plan(&model, &there).unwrap();
        prop_assert_eq!(check(&model, &there, &rest), vec![], "{}", rest);
        prop_assert_eq!(&simulate(&there, &rest).guests[guest].isolated, cpus, "{}", rest);
    }

    #[test]
    fn a_stop_takes_the_guests_shares_away_and_its_undo_brings_them_back(seed in any::<u64>()) {
        let Some((model, inventory, whole)) = made(seed) else { return Ok(()) };
        let there = simulate(&inventory, &whole);
        let stopped = stop(&model, &there, &[]).unwrap();
        prop_assert_eq!(check_steps(&model, &there, &stopped), vec![], "{}", stopped);
        let after = simulate(&there, &stopped);
        let groups = |inventory: &Inventory| {
            inventory.tuning.as_ref().and_then(|tuning| tuning.resctrl.known()).map(|found| found.groups.clone())
        };
        prop_assert_eq!(groups(&after), groups(&inventory));
        let again = simulate(&there, &then(&stopped, &undo(&stopped)));
        prop_assert_eq!(groups(&again), groups(&there));
    }
}

#[test]
fn interrupts_that_the_kernel_places_are_left_alone() {
    let mut inventory: Inventory =
        serde_json::from_str(include_str!("golden/realtime-both/inventory.json")).unwrap();
    let source = Source::new("model.yaml", "nics: {NET0: }\nrealtime: {isolated: 2-3}\n");
    let model = penstock_model::parse(&source).unwrap().model;
    let users = ["megasas14-msix3", "mpt3sas0-msix1", "nvme0q2", "virtio3-requests.0", "timer", "eth0-rx-0"];
    let tuning = inventory.tuning.as_mut().unwrap();
    let isolated: CpuSet = "2-3".parse().unwrap();
    for (number, user) in (90..).zip(users) {
        let effective = Reading::Is(isolated.clone());
        tuning.irqs.insert(number, Irq { users: vec![user.to_owned()], effective, ..Irq::default() });
        tuning.knobs.insert(Knob::IrqAffinity(number), Reading::Is(Value::Cpus(isolated.clone())));
    }
    let plan = plan(&model, &inventory).unwrap();
    let moved: Vec<&str> = (90..)
        .zip(users)
        .filter(|(number, _)| {
            let moves = |step: &Step| {
                matches!(step.action, Action::RealTime(RealTimeAction::Tune { knob: Knob::IrqAffinity(irq), .. }) if irq == *number)
            };
            plan.steps.iter().any(moves)
        })
        .map(|(_, user)| user)
        .collect();
    assert_eq!(moved, ["eth0-rx-0"], "{plan}");
}

#[test]
fn a_step_that_moves_an_interrupt_names_the_function_that_has_it() {
    let mut inventory: Inventory =
        serde_json::from_str(include_str!("golden/realtime-both/inventory.json")).unwrap();
    let source = Source::new("model.yaml", "nics: {NET0: }\nrealtime: {isolated: 2-3}\n");
    let model = penstock_model::parse(&source).unwrap().model;
    let function = "0000:81:00.0".parse().ok();
    let irq = Irq { users: vec!["eth0-rx-0".to_owned()], function, ..Irq::default() };
    let tuning = inventory.tuning.as_mut().unwrap();
    tuning.irqs.insert(90, irq);
    tuning.knobs.insert(Knob::IrqAffinity(90), Reading::Is(Value::Cpus("2-3".parse().unwrap())));
    let plan = plan(&model, &inventory).unwrap();
    let of = |action: &Action| match action {
        Action::RealTime(RealTimeAction::Tune { knob: Knob::IrqAffinity(90), function, .. }) => *function,
        _ => None,
    };
    let step = plan.steps.iter().find(|step| of(&step.action).is_some()).unwrap();
    assert_eq!((of(&step.action), step.inverse.as_ref().and_then(of)), (function, function));
    // Journals of earlier versions do not say whose it is.
    let mut earlier = serde_json::to_value(&step.action).unwrap();
    earlier["tune"].as_object_mut().unwrap().remove("function");
    let read: Action = serde_json::from_value(earlier).unwrap();
    assert_eq!((read.to_string(), of(&read)), (step.action.to_string(), None));
}
