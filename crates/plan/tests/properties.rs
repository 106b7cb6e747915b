//! What holds of every plan, on machines and models made by chance.

mod external;
mod support;

use std::{collections::BTreeSet, time::Duration};

use external::handed_over;
use nix::time::{ClockId, clock_gettime};
use penstock_model::{
    Bdf, ByteSize, Dns, GuestKind, GuestName, Inventory, Model, Mtu,
    inventory::{EswitchMode, Master, Pf, PresentVf, SwitchMode},
};
use penstock_plan::{
    Action, Direction, FunctionAction, GuestAction, Plan, PlanError, Step, StepId,
    check::{check, check_steps, simulate},
    plan, start, stop, undo,
};
use proptest::{prelude::*, test_runner::TestCaseResult};
use support::{Dice, Size, machine};

const SMALL: Size = Size { nics: 3, vfs: 5, guests: 4 };

/// The inventory without what no undo can bring back, or what nobody keeps: names and MTUs of VF interfaces, and all
/// that was set for VFs which the plan destroyed or made.
fn lasting(inventory: &Inventory, plan: &Plan) -> Inventory {
    let mut inventory = inventory.clone();
    let remade = |pf: Bdf| {
        plan.steps.iter().any(|step| {
            matches!(step.action, Action::Function(FunctionAction::SetVfCount { pf: of, .. }) if of == pf)
        })
    };
    for drive in inventory.nvme.iter_mut().filter(|drive| remade(drive.bdf)) {
        let vfs = drive.sriov.iter_mut().flat_map(|sriov| &mut sriov.vfs);
        vfs.filter_map(|vf| vf.present.as_mut()).for_each(|present| *present = PresentVf::default());
        let all = drive.virtualization.iter_mut().flat_map(|told| &mut told.secondary);
        all.for_each(|secondary| (secondary.online, secondary.queues, secondary.interrupts) = (false, 0, 0));
    }
    for pf in &mut inventory.pfs {
        let remade = remade(pf.bdf);
        if let Some(interface) = &mut pf.interface {
            interface.addresses.sort();
            interface.master = interface.master.take().filter(Master::takes_ports);
        }
        for vf in pf.sriov.iter_mut().flat_map(|sriov| &mut sriov.vfs) {
            if let Some(present) = &mut vf.present {
                present.interface = None;
                if remade {
                    *present = PresentVf::default();
                }
            }
            // What a driver did not report before, nobody can set back.
            if let Some(state) = vf.present.as_mut().and_then(|present| present.attributes.as_mut()) {
                (state.spoofchk, state.trust, state.link_state) = (None, None, None);
            }
        }
        let blind = plan.steps.iter().any(|step| {
            matches!(step.action, Action::Function(FunctionAction::SetSwitchMode { pf: of, .. }) if of == pf.bdf && step.inverse.is_none())
        });
        // VEB is what drivers are in when they come back to legacy mode, whether they report it or not (`ice_main.c`, `bnxt.c`,
        // `esw/legacy.c`). VEPA is compared all the same.
        let comes_back = plan.steps.iter().any(|step| {
            matches!(step.action, Action::Function(FunctionAction::SetEswitchMode { pf: of, mode: EswitchMode::Switchdev }) if of == pf.bdf)
        }) && pf.switch_mode == SwitchMode::Veb;
        if blind || comes_back {
            pf.switch_mode = Default::default();
        }
    }
    inventory
}

/// A plan and its way back as one, since what guests took with them is known only while they run: each step back comes
/// after all of the plan.
fn there_and_back(made: &Plan) -> Plan {
    let mut both = made.clone();
    let all: Vec<StepId> = made.steps.iter().map(|step| step.id).collect();
    let offset = all.len() as u32;
    for mut step in undo(made).steps {
        step.id = StepId(step.id.0 + offset);
        step.needs.iter_mut().for_each(|need| need.0 += offset);
        step.needs.extend(&all);
        both.steps.push(step);
    }
    both
}

/// Two plans as one, to be simulated only.
fn one_after_the_other(first: &Plan, second: &Plan) -> Plan {
    damaged(first, |plan| plan.steps.extend(second.steps.iter().cloned()))
}

/// A plan with one change.
fn damaged(plan: &Plan, change: impl FnOnce(&mut Plan)) -> Plan {
    let mut damaged = plan.clone();
    change(&mut damaged);
    damaged
}

/// Takes a step away, and keeps the numbers of the rest and their needs in order.
fn without(plan: &Plan, position: usize) -> Plan {
    let gone = StepId(position as u32 + 1);
    let shift = |id: StepId| if id > gone { StepId(id.0 - 1) } else { id };
    damaged(plan, |plan| {
        plan.steps.remove(position);
        for step in &mut plan.steps {
            step.id = shift(step.id);
            step.needs.retain(|need| *need != gone);
            step.needs.iter_mut().for_each(|need| *need = shift(*need));
        }
    })
}

/// Exchanges two steps. Each then says that it needs all before it, so that only the order can give it away.
fn swapped(plan: &Plan, earlier: usize, later: usize) -> Plan {
    damaged(plan, |plan| {
        plan.steps.swap(earlier, later);
        for (position, step) in plan.steps.iter_mut().enumerate() {
            step.id = StepId(position as u32 + 1);
            step.needs = (1..step.id.0).map(StepId).collect();
        }
    })
}

/// Whether a later step is impossible or harmful before an earlier one that it needs. Of other pairs, such as name and
/// MTU, the order is only settled.
fn binding(model: &Model, earlier: &Action, later: &Action) -> bool {
    match (earlier, later) {
        (
            Action::Function(FunctionAction::SetAutoprobe { .. }),
            Action::Function(FunctionAction::SetVfCount { count, .. }),
        ) => *count > 0,
        (
            Action::Function(FunctionAction::SetVfCount { .. }),
            Action::Function(FunctionAction::SetVfCount { .. })
            | Action::Function(FunctionAction::SetVfAttribute { .. }),
        )
        | (
            Action::Function(FunctionAction::SetVfCount { .. }),
            Action::Function(FunctionAction::SetDriver { .. }),
        )
        | (
            Action::Function(FunctionAction::SetVfAttribute { .. }),
            Action::Function(FunctionAction::SetDriver { driver: Some(_), .. }),
        )
        | (
            Action::Function(FunctionAction::SetDriver { driver: None, .. }),
            Action::Function(FunctionAction::SetVfAttribute { .. })
            | Action::Function(FunctionAction::SetDriver { .. }),
        )
        | (
            Action::Function(FunctionAction::SetDriver { .. }) | Action::Guest(GuestAction::DefineGuest(_)),
            Action::Guest(GuestAction::StartGuest { .. }),
        )
        | (
            Action::Function(FunctionAction::SetDriver { .. }) | Action::Guest(GuestAction::DefineGuest(_)),
            Action::Guest(GuestAction::CreateGuest { .. }),
        )
        | (Action::Guest(GuestAction::CreateGuest { .. }), Action::Guest(GuestAction::ResumeGuest { .. }))
        | (
            Action::Function(FunctionAction::AwaitLink { .. })
            | Action::Guest(GuestAction::AwaitGuest { .. }),
            Action::Guest(GuestAction::ResumeGuest { .. }) | Action::Guest(GuestAction::StartGuest { .. }),
        )
        | (
            Action::Guest(GuestAction::ResumeGuest { .. }) | Action::Guest(GuestAction::StartGuest { .. }),
            Action::Guest(GuestAction::AwaitGuest { .. }),
        )
        | (
            Action::Function(FunctionAction::SetDriver { .. }),
            Action::Function(FunctionAction::SetMac { .. }),
        )
        | (
            Action::Function(FunctionAction::SetLink { direction: Direction::Down, .. }),
            Action::Function(FunctionAction::Rename { .. }),
        ) => true,
        (
            Action::Guest(GuestAction::StartGuest { guest: before }),
            Action::Guest(GuestAction::StartGuest { guest }),
        ) => model.guests[guest].after.contains(before),
        _ => false,
    }
}

/// Steps that may be left out of a good plan without making it a wrong one.
fn matters(plan: &Plan, position: usize) -> bool {
    match &plan.steps[position].action {
        // Nothing lasting shows a reset.
        Action::Function(FunctionAction::ResetFunction { .. }) => false,
        // A mode that the driver does not report is not known to be wrong before it is set.
        Action::Function(FunctionAction::SetSwitchMode { .. }) => false,
        _ => true,
    }
}

/// A plan that is cut short anywhere is taken up by the next one.
fn taken_up(seed: u64) -> TestCaseResult {
    let (model, inventory) = machine(seed, &SMALL);
    let made = plan(&model, &inventory).unwrap();
    let steps = Dice(seed).below(made.steps.len() as u64 + 1) as usize;
    let half = damaged(&made, |plan| plan.steps.truncate(steps));
    let between = simulate(&inventory, &half);
    let rest = plan(&model, &between).unwrap();
    prop_assert_eq!(check(&model, &between, &rest), vec![], "after {} steps of\n{}\n{}", steps, made, rest);
    // Whoever was started is waited for, also when that is all that is left to be done.
    let awaited = |plan: &Plan| -> BTreeSet<GuestName> {
        let of = |step: &Step| match &step.action {
            Action::Guest(GuestAction::AwaitGuest { guest, .. }) => Some(guest.clone()),
            _ => None,
        };
        plan.steps.iter().filter_map(of).collect()
    };
    let all: BTreeSet<GuestName> = awaited(&half).union(&awaited(&rest)).cloned().collect();
    prop_assert!(all.is_superset(&awaited(&made)), "after {} steps of\n{}\n{}", steps, made, rest);
    // What was created is not created anew, but let run.
    for (guest, found) in &between.guests {
        let of = |step: &&penstock_plan::Step| step.action.guest() == Some(guest);
        let made_anew = rest.steps.iter().filter(of).any(|step| {
            matches!(
                step.action,
                Action::Guest(GuestAction::CreateGuest { .. })
                    | Action::Guest(GuestAction::StartGuest { .. })
                    | Action::Guest(GuestAction::DefineGuest(_))
            )
        });
        let resumed = rest
            .steps
            .iter()
            .filter(of)
            .any(|step| matches!(step.action, Action::Guest(GuestAction::ResumeGuest { .. })));
        prop_assert!(!found.running || !made_anew, "{}", rest);
        prop_assert_eq!(found.suspended, resumed && found.running, "{}", rest);
    }
    let after = simulate(&between, &rest);
    prop_assert_eq!(plan(&model, &after).unwrap().steps, vec![]);
    Ok(())
}

/// A VF that somebody had is destroyed with all others while its PF's embedded switch changes its mode, and nobody has the new one.
#[test]
fn nobody_has_a_vf_that_was_made_anew_for_another_mode() {
    taken_up(2_616_930_236_199_391_676).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_passes_its_check_and_leaves_nothing_to_do(seed: u64) {
        let (model, inventory) = machine(seed, &SMALL);
        let made = plan(&model, &inventory).unwrap();
        prop_assert_eq!(check(&model, &inventory, &made), vec![], "{}", made);
        let after = simulate(&inventory, &made);
        let again = plan(&model, &after).unwrap();
        prop_assert_eq!(again.steps, vec![]);
        prop_assert_eq!(again.nics, made.nics);
    }

    #[test]
    fn what_comes_with_a_guests_next_start_only_is_told(seed: u64) {
        let (mut model, inventory) = machine(seed, &SMALL);
        let there = simulate(&inventory, &plan(&model, &inventory).unwrap());
        let told = |model: &Model| {
            let notes = plan(model, &there).unwrap().notes;
            notes.into_iter().filter(|note| note.contains("runs with another")).collect::<Vec<_>>()
        };
        prop_assert_eq!(told(&model), Vec::<String>::new());
        for guest in model.guests.values_mut() {
            guest.memory = Some(ByteSize(guest.memory.map_or(0, |size| size.0) + (3 << 30)));
            guest.functions.iter_mut().for_each(|function| function.mtu = Mtu::new(1399));
        }
        let wanted = model.guests.iter().map(|(name, guest)| {
            let mtus = guest.functions.iter().map(|function| format!(", mtu of {}", function.name));
            format!(
                "guest {name} runs with another memory{} than the model gives it by now: that comes with its next stop and start",
                mtus.collect::<String>()
            )
        });
        let (mut wanted, mut told) = (wanted.collect::<Vec<_>>(), told(&model));
        wanted.sort();
        told.sort();
        prop_assert_eq!(told, wanted);
    }

    #[test]
    fn a_plan_that_was_cut_short_is_taken_up(seed: u64) {
        taken_up(seed)?;
    }

    #[test]
    fn what_a_guest_with_the_pf_hides_is_planned_right_or_refused(seed: u64) {
        let (model, inventory) = machine(seed, &SMALL);
        let made = plan(&model, &inventory).unwrap();
        let steps = Dice(seed).below(made.steps.len() as u64 + 1) as usize;
        let mut between = simulate(&inventory, &damaged(&made, |plan| plan.steps.truncate(steps)));
        // Nobody could look into the guests.
        let inside = |pf: &Pf| between.guests.values().any(|found| found.running && found.functions.contains(&pf.bdf));
        let hidden: Vec<Bdf> = between.pfs.iter().filter(|pf| inside(pf)).map(|pf| pf.bdf).collect();
        for pf in between.pfs.iter_mut().filter(|pf| hidden.contains(&pf.bdf)) {
            let present = pf.sriov.iter_mut().flat_map(|sriov| &mut sriov.vfs).filter_map(|vf| vf.present.as_mut());
            present.for_each(|present| present.attributes = None);
        }
        match plan(&model, &between) {
            Ok(rest) => prop_assert_eq!(check(&model, &between, &rest), vec![], "after {} steps of\n{}\n{}", steps, made, rest),
            Err(PlanError::Refused(_)) => prop_assert!(!hidden.is_empty()),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }

    #[test]
    fn a_vm_is_created_before_anybody_is_waited_for_and_never_waits(seed: u64) {
        let (model, inventory) = machine(seed, &SMALL);
        let made = plan(&model, &inventory).unwrap();
        for step in made.steps.iter().filter(|step| matches!(step.action, Action::Guest(GuestAction::CreateGuest { .. }))) {
            let mut open: Vec<StepId> = step.needs.clone();
            while let Some(id) = open.pop() {
                let needed = &made.steps[id.0 as usize - 1];
                let waits = matches!(
                    needed.action,
                    Action::Guest(GuestAction::AwaitGuest { .. }) | Action::Function(FunctionAction::AwaitLink { .. }) | Action::Guest(GuestAction::StartGuest { .. })
                );
                prop_assert!(!waits, "step {} waits by step {id} of\n{made}", step.id);
                open.extend(&needed.needs);
            }
        }
        // Whatever is done for a guest is marked as such, and nothing else.
        for step in &made.steps {
            if let Some(guest) = step.action.guest() {
                prop_assert_eq!(step.guest.as_ref(), Some(guest), "step {} of\n{}", step.id, made);
            }
        }
    }

    #[test]
    fn the_way_back_leads_back(seed: u64) {
        let (model, inventory) = machine(seed, &SMALL);
        let made = plan(&model, &inventory).unwrap();
        let both = there_and_back(&made);
        prop_assert_eq!(check_steps(&model, &inventory, &both), vec![], "{}", both);
        let restored = simulate(&inventory, &both);
        prop_assert_eq!(lasting(&restored, &made), lasting(&inventory, &made));
    }

    #[test]
    fn drives_are_led_back_after_any_step(seed: u64) {
        let (model, inventory) = machine(seed, &SMALL);
        let made = plan(&model, &inventory).unwrap();
        let drives: BTreeSet<StepId> = made.steps.iter().filter(|step| matches!(step.action, Action::Drive(_))).map(|step| step.id).collect();
        for (position, step) in made.steps.iter().enumerate().filter(|(_, step)| drives.contains(&step.id)) {
            let begun = damaged(&made, |plan| plan.steps.truncate(position + 1));
            let both = there_and_back(&begun);
            let of_drives = |at: &StepId| matches!(both.steps[at.0 as usize - 1].action, Action::Drive(_));
            let mut findings = check_steps(&model, &inventory, &both);
            findings.retain(|finding| finding.step.as_ref().is_some_and(of_drives));
            prop_assert_eq!(findings, vec![], "after step {} of\n{}\n{}", step.id, made, both);
            let restored = simulate(&inventory, &both);
            prop_assert_eq!(lasting(&restored, &begun).nvme, lasting(&inventory, &begun).nvme, "{}", both);
        }
    }

    #[test]
    fn stopped_guests_start_again(seed: u64) {
        let (model, inventory) = machine(seed, &SMALL);
        let made = plan(&model, &inventory).unwrap();
        let running = simulate(&inventory, &made);
        let one: Vec<_> = model.guests.keys().skip(seed as usize % 4).take(1).cloned().collect();
        for chosen in [&one[..], &[]] {
            let stopping = stop(&model, &running, chosen).unwrap();
            prop_assert_eq!(check_steps(&model, &running, &stopping), vec![], "{}", stopping);
            let stopped = simulate(&inventory, &one_after_the_other(&made, &stopping));
            if chosen.is_empty() {
                prop_assert!(stopped.guests.is_empty());
                prop_assert!(stop(&model, &stopped, &[]).unwrap().steps.is_empty());
            }
            let starting = start(&model, &stopped, chosen).unwrap();
            prop_assert_eq!(check_steps(&model, &stopped, &starting), vec![], "{}", starting);
        }
    }

    #[test]
    fn what_somebody_else_manages_is_used_and_comes_back(seed: u64) {
        let (mut model, mut inventory) = machine(seed, &SMALL);
        handed_over(&mut model, &mut inventory);
        let made = plan(&model, &inventory).unwrap();
        prop_assert_eq!(check(&model, &inventory, &made), vec![], "{}", made);
        let after = simulate(&inventory, &made);
        prop_assert_eq!(plan(&model, &after).unwrap().steps, vec![]);
        let both = there_and_back(&made);
        prop_assert_eq!(check_steps(&model, &inventory, &both), vec![], "{}", both);
        prop_assert_eq!(lasting(&simulate(&inventory, &both), &made), lasting(&inventory, &made));
        // A stop gives every VF back with the driver that it had.
        let stopping = stop(&model, &after, &[]).unwrap();
        prop_assert_eq!(check_steps(&model, &after, &stopping), vec![], "{}", stopping);
        let stopped = simulate(&inventory, &one_after_the_other(&made, &stopping));
        for (name, _) in model.nics.iter().filter(|(_, nic)| nic.externally_managed) {
            let drivers = |inventory: &Inventory| -> Vec<Option<String>> {
                let sriov = inventory.pf(made.nics[name]).unwrap().sriov.as_ref().unwrap();
                sriov.vfs.iter().map(|vf| vf.present.as_ref().and_then(|present| present.driver.clone())).collect()
            };
            prop_assert_eq!(drivers(&stopped), drivers(&inventory), "{}{}", made, stopping);
            // A step that changes the NIC itself is found, wherever it stands.
            let pf = made.nics[name];
            let damaged = damaged(&made, |plan| {
                let mut step = penstock_plan::Step {
                    id: StepId(plan.steps.len() as u32 + 1),
                    action: FunctionAction::SetAutoprobe { pf, on: false }.into(),
                    reason: String::new(),
                    needs: vec![],
                    inverse: None,
                    postcondition: penstock_plan::Fact::Autoprobe { pf, on: false },
                    best_effort: false,
                    guest: None,
                };
                let sriov = inventory.pf(pf).unwrap().sriov.as_ref().unwrap();
                step.inverse = Some(FunctionAction::SetAutoprobe { pf, on: sriov.autoprobe }.into());
                plan.steps.push(step);
            });
            let findings = check(&model, &inventory, &damaged);
            prop_assert!(findings.iter().any(|finding| finding.message.contains("externally managed")));
        }
    }

    #[test]
    fn a_step_left_out_is_missed(seed: u64) {
        let (model, inventory) = machine(seed, &SMALL);
        let made = plan(&model, &inventory).unwrap();
        for position in (0..made.steps.len()).filter(|position| matters(&made, *position)) {
            let damaged = without(&made, position);
            let findings = check(&model, &inventory, &damaged);
            prop_assert!(!findings.is_empty(), "nobody misses step {} of\n{made}", position + 1);
        }
    }

    #[test]
    fn a_step_before_what_it_needs_is_found(seed: u64) {
        let (model, inventory) = machine(seed, &SMALL);
        let made = plan(&model, &inventory).unwrap();
        for later in 0..made.steps.len() {
            for need in &made.steps[later].needs {
                let earlier = need.0 as usize - 1;
                if binding(&model, &made.steps[earlier].action, &made.steps[later].action) {
                    let findings = check(&model, &inventory, &swapped(&made, earlier, later));
                    prop_assert!(!findings.is_empty(), "steps {need} and {} of\n{made}", later + 1);
                }
            }
        }
    }

    #[test]
    fn a_need_left_unsaid_is_found(seed: u64) {
        let (model, inventory) = machine(seed, &SMALL);
        let made = plan(&model, &inventory).unwrap();
        // A bind also waits for what is done to its PF's interface on the host, which it could do without.
        let matters = |id: &StepId| matches!(
            made.steps[id.0 as usize - 1].action,
            Action::Function(FunctionAction::SetVfCount { .. }) | Action::Function(FunctionAction::SetVfAttribute { .. }) | Action::Function(FunctionAction::SetDriver { .. })
                | Action::Guest(GuestAction::DefineGuest(_)) | Action::Guest(GuestAction::StartGuest { .. }) | Action::Guest(GuestAction::CreateGuest { .. })
                | Action::Guest(GuestAction::ResumeGuest { .. }) | Action::Function(FunctionAction::AwaitLink { .. }) | Action::Guest(GuestAction::AwaitGuest { .. })
        );
        for later in (0..made.steps.len()).filter(|later| {
            let step = &made.steps[*later];
            matches!(
                step.action,
                Action::Guest(GuestAction::StartGuest { .. }) | Action::Guest(GuestAction::CreateGuest { .. }) | Action::Guest(GuestAction::ResumeGuest { .. })
                    | Action::Guest(GuestAction::AwaitGuest { .. }) | Action::Function(FunctionAction::SetDriver { driver: Some(_), .. })
            ) && step.needs.iter().any(matters)
        }) {
            let damaged = damaged(&made, |plan| plan.steps[later].needs.clear());
            prop_assert!(!check(&model, &inventory, &damaged).is_empty(), "step {} of\n{made}", later + 1);
        }
    }

    #[test]
    fn a_function_that_two_guests_are_given_is_found(seed: u64) {
        let (model, inventory) = machine(seed, &SMALL);
        let made = plan(&model, &inventory).unwrap();
        let defined = |(position, step): (usize, &Step)| match &step.action {
            Action::Guest(GuestAction::DefineGuest(definition)) => Some((position, definition.functions.first()?.clone())),
            _ => None,
        };
        let defined: Vec<_> = made.steps.iter().enumerate().filter_map(defined).collect();
        for pair in defined.windows(2) {
            let [(_, function), (later, _)] = pair else { continue };
            let damaged = damaged(&made, |plan| {
                if let Action::Guest(GuestAction::DefineGuest(definition)) = &mut plan.steps[*later].action {
                    definition.functions.push(function.clone());
                }
            });
            let twice = format!("{} is given to ", function.function);
            let findings = check(&model, &inventory, &damaged);
            prop_assert!(findings.iter().any(|finding| finding.message.starts_with(&twice)), "step {} of\n{made}", later + 1);
        }
    }

    #[test]
    fn name_servers_that_are_not_the_models_are_found(seed: u64) {
        let (model, inventory) = machine(seed, &SMALL);
        let made = plan(&model, &inventory).unwrap();
        for position in 0..made.steps.len() {
            let mut name = None;
            let damaged = damaged(&made, |plan| {
                if let Action::Guest(GuestAction::DefineGuest(definition)) = &mut plan.steps[position].action {
                    name = Some(definition.guest.clone());
                    let other = Dns { servers: vec!["203.0.113.66".parse().unwrap()], search: Vec::new() };
                    definition.dns = definition.dns.is_none().then_some(other);
                }
            });
            let Some(name) = name else { continue };
            let said = format!("guest {name} is defined with other name servers than the model gives it");
            let findings = check(&model, &inventory, &damaged);
            prop_assert!(findings.iter().any(|finding| finding.message == said), "step {} of\n{made}", position + 1);
        }
    }

    #[test]
    fn damage_to_one_step_is_found(seed: u64) {
        let (model, inventory) = machine(seed, &SMALL);
        let made = plan(&model, &inventory).unwrap();
        prop_assume!(made.steps.len() > 1);
        let mut dice = Dice(seed);
        let position = dice.below(made.steps.len() as u64) as usize;
        let other = (position + 1) % made.steps.len();
        let number = damaged(&made, |plan| plan.steps[position].id = StepId(9999));
        prop_assert!(!check(&model, &inventory, &number).is_empty());
        let forward = damaged(&made, |plan| { let own = plan.steps[position].id; plan.steps[position].needs.push(own); });
        prop_assert!(!check(&model, &inventory, &forward).is_empty());
        let fact = damaged(&made, |plan| plan.steps[position].postcondition = made.steps[other].postcondition.clone());
        // Two VMs may wait for one link: their steps bring about the same.
        let same = made.steps[position].postcondition == made.steps[other].postcondition;
        prop_assert!(same || !check(&model, &inventory, &fact).is_empty());
        let inverse = damaged(&made, |plan| plan.steps[position].inverse = Some(plan.steps[position].action.clone()));
        let same = made.steps[position].inverse == Some(made.steps[position].action.clone());
        prop_assert!(same || !check(&model, &inventory, &inverse).is_empty());
    }
}

/// What this thread has had of the processors, which others beside it do not lengthen.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("the kernel tells it").into()
}

/// Parse, check and plan have 50 ms together, and parsing has most of it. Without optimisation it takes longer.
#[test]
fn the_largest_machine_is_planned_in_time() {
    let size = Size { nics: 2, vfs: 255, guests: 64 };
    let limit = Duration::from_millis(if cfg!(debug_assertions) { 600 } else { 20 });
    let fastest = (0..5)
        .map(|seed| {
            let (mut model, inventory) = machine(seed, &size);
            model.nics.values_mut().for_each(|nic| nic.vfs = 255);
            let before = processor_time();
            let made = plan(&model, &inventory).unwrap();
            let findings = check(&model, &inventory, &made);
            let took = processor_time() - before;
            assert_eq!(findings, []);
            assert!(made.steps.len() > 500);
            took
        })
        .min()
        .unwrap();
    println!("plan and check: {fastest:?}");
    assert!(fastest < limit, "{fastest:?}");
}

/// The properties above are worth little on machines without what they are about.
#[test]
fn chance_makes_vms_of_every_kind() {
    let (mut created, mut resumed, mut links, mut owners, mut pinned) = (0, 0, 0, 0, 0);
    for seed in 0..50 {
        let (model, inventory) = machine(seed, &SMALL);
        for step in plan(&model, &inventory).unwrap().steps {
            match step.action {
                Action::Guest(GuestAction::CreateGuest { .. }) => created += 1,
                Action::Guest(GuestAction::ResumeGuest { .. }) => resumed += 1,
                Action::Function(FunctionAction::AwaitLink { .. }) => links += 1,
                Action::Guest(GuestAction::AwaitGuest { guest, .. }) => {
                    owners += usize::from(model.guests[&guest].kind == GuestKind::Container)
                }
                Action::Guest(GuestAction::DefineGuest(definition)) => {
                    pinned += usize::from(definition.vm.is_some() && definition.pin.is_some())
                }
                _ => {}
            }
        }
    }
    assert_eq!(created, resumed);
    assert!(
        [created, links, owners, pinned].iter().all(|count| *count > 10),
        "{created} {links} {owners} {pinned}"
    );
}
