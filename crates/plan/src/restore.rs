//! How the host uses interfaces that a plan takes away, and its return.
//!
//! An interface that goes down loses its routes and its addresses of IPv6 but for link-local ones, which come back by themselves
//! (`net/ipv4/fib_frontend.c`, `fib_disable_ip`; `net/ipv6/addrconf.c`, `addrconf_ifdown`); one that moves into a guest those of IPv4
//! too (`net/core/dev.c`, `__dev_change_net_namespace`); and one whose driver goes its name and MTU as well. No inverse of such a step knows what there
//! was. So each plan gets a step before the first of them, which does nothing by then, and whose inverse, the same, ends the way back; and
//! another after the last, where the interface stays the host's.

use std::collections::{BTreeSet, HashMap};

use penstock_model::{
    Bdf, Inventory, Mtu,
    inventory::{Interface, Master, Upper},
};

use crate::{
    Action, Direction, Fact, FunctionAction, InterfaceSetup, Names, Plan, Step, StepId,
    danger::{How, Played},
};

/// What a plan does to an interface of the host, by places in its steps.
struct TakenInterface {
    /// The step that takes it away first, and all that do so or change it later.
    steps: Vec<usize>,
    /// How much of it goes.
    how: Loss,
    /// Whether it is the host's again after the last step.
    is_back: bool,
}

/// What goes with an interface that is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Loss {
    /// Its routes and its addresses of IPv6: it goes down.
    Routes,
    /// All but its name and MTU: it moves into a guest.
    Setup,
    /// All of it: its function loses its driver.
    Interface,
}

/// The plan with the steps that bring back how the host uses the interfaces that it takes away.
pub fn restore(mut plan: Plan, inventory: &Inventory) -> Plan {
    let mut played = Played::new(&plan, inventory);
    let taken = taken(&plan, &mut played);
    let names = Names::of(&plan, inventory);
    let told = lost(&taken, &played, &names);
    let mut added: Vec<(Bdf, TakenInterface, InterfaceSetup)> = taken
        .into_iter()
        .filter_map(|(function, taken)| {
            let sets_link = |place: &usize| {
                matches!(plan.steps[*place].action, Action::Function(FunctionAction::SetLink { .. }))
            };
            let setup = setup(played.interface(function)?, taken.how, taken.steps.iter().any(sets_link))?;
            Some((function, taken, setup))
        })
        .collect();
    plan.notes.extend(told);
    if added.is_empty() {
        return plan;
    }
    added.sort_by_key(|(function, ..)| *function);
    Plan { steps: with(plan.steps, &added, &names), ..plan }
}

/// What does not come back with interfaces that a plan takes away.
fn lost(taken: &HashMap<Bdf, TakenInterface>, played: &Played<'_>, names: &Names) -> Vec<String> {
    let mut functions: Vec<(&Bdf, Loss)> =
        taken.iter().map(|(function, taken)| (function, taken.how)).collect();
    functions.sort_unstable();
    let mut notes = Vec::new();
    for (function, how) in functions {
        let Some(interface) = played.interface(*function) else { continue };
        let name = format!("{}'s interface {}", names.short(*function), interface.name);
        if how != Loss::Routes
            && let Some(master) = &interface.master
            && let Some(what) = of_port(master)
        {
            notes.push(format!("{name} is a port of {}, {what}", master.name));
        }
        if how == Loss::Interface {
            notes.extend(without_a_vlan(interface).into_iter().map(|upper| {
                let (it, kind) = (&upper.interface.name, &upper.kind);
                format!("{it} ({kind}) stands on {name} and goes with it, and an undo does not make it again")
            }));
        }
    }
    notes
}

/// What does not come back of a port of this.
fn of_port(master: &Master) -> Option<&'static str> {
    match master {
        master if !master.takes_ports() => Some("and an undo does not make it one again"),
        Master { filters_vlans: true, vlans: None, .. } => Some(
            "which filters VLANs, and those of the port are not known: an undo makes it one again, with the VLANs that a new port \
             has",
        ),
        _ => None,
    }
}

/// What stands on an interface, or on what stands there, and is not the interface of a VLAN.
fn without_a_vlan(interface: &Interface) -> Vec<&Upper> {
    let (vlans, others): (Vec<&Upper>, Vec<&Upper>) =
        interface.uppers.iter().partition(|upper| upper.vlan.is_some());
    let above = vlans.into_iter().flat_map(|upper| without_a_vlan(&upper.interface));
    others.into_iter().chain(above).collect()
}

/// The host's interfaces that a plan takes away, wholly or in part.
fn taken<'a>(plan: &'a Plan, played: &mut Played<'a>) -> HashMap<Bdf, TakenInterface> {
    let mut all: HashMap<Bdf, TakenInterface> = HashMap::new();
    for (place, step) in plan.steps.iter().enumerate() {
        for harm in played.harms(step) {
            let how = match harm.how {
                How::Unbound => Loss::Interface,
                How::Into(_) => Loss::Setup,
                How::Down => Loss::Routes,
                How::Destroyed => {
                    // Made anew it is another.
                    all.entry(harm.function).and_modify(|taken| taken.is_back = false);
                    continue;
                }
                How::Reset
                | How::OffLine
                | How::Queues
                | How::Detached(_)
                | How::DownForGood
                | How::Dropped
                | How::Renamed
                | How::Mtu
                | How::Attribute
                | How::Loses(_) => continue,
            };
            let taken = all.entry(harm.function).or_insert_with(|| TakenInterface {
                steps: Vec::new(),
                how,
                is_back: false,
            });
            taken.how = taken.how.max(how);
            taken.steps.push(place);
            taken.is_back = false;
        }
        if let Some(function) = step.action.function()
            && let Some(taken) = all.get_mut(&function)
        {
            match &step.action {
                Action::Function(FunctionAction::SetDriver { driver: Some(driver), .. }) => {
                    taken.is_back = taken.how == Loss::Interface
                        && played.driver(function) == Some(driver.as_str())
                        && played.interface(function).is_some();
                }
                Action::Function(FunctionAction::SetLink { direction: Direction::Up, .. }) => {
                    taken.is_back |= taken.how == Loss::Routes;
                }
                _ => {}
            }
            if taken.steps.last() != Some(&place) {
                taken.steps.push(place);
            }
        }
        played.take(step);
    }
    all
}

/// How the host uses an interface, as far as that is lost; `None` where nothing is. Whether it is up is no part of it where the plan
/// `sets_link`: steps of its own see to that.
fn setup(found: &Interface, how: Loss, sets_link: bool) -> Option<InterfaceSetup> {
    let whole = how == Loss::Interface;
    let used = InterfaceSetup::used(found);
    let setup = InterfaceSetup {
        name: whole.then(|| found.name.clone()),
        mtu: Mtu::new(found.mtu).filter(|_| whole),
        up: found.up && !sets_link,
        master: used.master.clone().filter(|_| how != Loss::Routes),
        ..used
    };
    let lost = match how {
        Loss::Routes => loses_with_its_link(&setup),
        Loss::Setup | Loss::Interface => {
            setup.up
                || setup.master.is_some()
                || !setup.addresses.is_empty()
                || !setup.routes.is_empty()
                || !setup.vlans.is_empty()
        }
    };
    lost.then_some(setup)
}

/// Whether an interface, or that of a VLAN on it, has something that goes when it is taken down.
fn loses_with_its_link(setup: &InterfaceSetup) -> bool {
    !setup.routes.is_empty()
        || setup.addresses.iter().any(|address| address.ip().is_ipv6())
        || setup.vlans.iter().any(|vlan| loses_with_its_link(&vlan.setup))
}

/// `steps`, numbered anew, with those of `added` among them.
fn with(steps: Vec<Step>, added: &[(Bdf, TakenInterface, InterfaceSetup)], names: &Names) -> Vec<Step> {
    let id = |place: usize| StepId(u32::try_from(place + 1).unwrap_or(u32::MAX));
    let mut all: Vec<Step> = Vec::with_capacity(steps.len() + 2 * added.len());
    // By places in `steps`: what each is called now.
    let mut now: Vec<StepId> = Vec::with_capacity(steps.len());
    let mut firsts: HashMap<Bdf, StepId> = HashMap::new();
    // By places: whom of `added` a step concerns.
    let mut concerned: HashMap<usize, BTreeSet<usize>> = HashMap::new();
    for (number, (_, taken, _)) in added.iter().enumerate() {
        for place in &taken.steps {
            concerned.entry(*place).or_default().insert(number);
        }
    }
    // Which steps so far bind a function or set its link.
    let mut made: HashMap<Bdf, Vec<StepId>> = HashMap::new();
    let guests: Vec<_> = steps.iter().map(|step| step.guest.clone()).collect();
    for (place, mut step) in steps.into_iter().enumerate() {
        let here = || concerned.get(&place).into_iter().flatten().map(|number| &added[*number]);
        for (function, taken, setup) in here().filter(|(_, taken, _)| taken.steps.first() == Some(&place)) {
            let first = id(all.len());
            firsts.insert(*function, first);
            let name = names.short(*function);
            let reason = match taken.how {
                Loss::Routes => {
                    format!("{name}'s interface goes down, and undo brings back what goes with it")
                }
                Loss::Setup => {
                    format!("{name}'s interface goes into a guest, and undo brings back what it has")
                }
                Loss::Interface => format!("{name} loses its driver, and undo brings its interface back"),
            };
            let guest = guests[taken.steps[0]].clone();
            let needs = made.get(function).cloned().unwrap_or_default();
            all.push(step_for(first, *function, setup.clone(), reason, needs, guest));
        }
        step.needs = step
            .needs
            .iter()
            .filter_map(|need| now.get((need.0 as usize).checked_sub(1)?))
            .copied()
            .collect();
        step.needs.extend(here().filter_map(|(function, ..)| firsts.get(function)));
        step.needs.sort_unstable();
        step.needs.dedup();
        step.id = id(all.len());
        now.push(step.id);
        if let Action::Function(
            FunctionAction::SetDriver { function, .. } | FunctionAction::SetLink { function, .. },
        ) = &step.action
        {
            made.entry(*function).or_default().push(step.id);
        }
        all.push(step);
        let ends = |taken: &TakenInterface| taken.is_back && taken.steps.last() == Some(&place);
        for (function, taken, setup) in here().filter(|(_, taken, _)| ends(taken)) {
            // What the plan has set itself is not brought back.
            let mut setup = setup.clone();
            for place in &taken.steps {
                let Some(step) = all.get((now[*place].0 as usize).wrapping_sub(1)) else { continue };
                match &step.action {
                    Action::Function(FunctionAction::Rename { .. }) => setup.name = None,
                    Action::Function(FunctionAction::SetMtu { .. }) => setup.mtu = None,
                    _ => {}
                }
            }
            let name = names.short(*function);
            let reason = match taken.how {
                Loss::Routes => format!("{name} had this before its interface was taken down"),
                Loss::Setup | Loss::Interface => format!("{name} had this before it lost its driver"),
            };
            let mut needs: Vec<StepId> = taken.steps.iter().map(|place| now[*place]).collect();
            needs.dedup();
            all.push(step_for(id(all.len()), *function, setup, reason, needs, guests[place].clone()));
        }
    }
    all
}

fn step_for(
    id: StepId,
    function: Bdf,
    setup: InterfaceSetup,
    reason: String,
    needs: Vec<StepId>,
    guest: Option<penstock_model::GuestName>,
) -> Step {
    let action: Action = FunctionAction::RestoreInterface { function, setup }.into();
    Step {
        id,
        reason,
        needs,
        inverse: Some(action.clone()),
        postcondition: Fact::after(&action),
        action,
        best_effort: false,
        guest,
    }
}
