//! What can be said of one step: its number, what it needs, its postcondition, its way back.

use penstock_model::{GuestKind, GuestName, Model, Mtu, VfAttribute, inventory::SwitchMode};

use super::{
    machine::{Machine, is_link_local},
    realtime,
};
use crate::{Action, Direction, Fact, Step};

/// What is wrong with a step's number, its needs and its postcondition.
pub fn shape(position: usize, step: &Step) -> Vec<String> {
    let mut messages = Vec::new();
    if usize::try_from(step.id.0) != Ok(position + 1) {
        messages.push(format!("it stands at place {} of the plan", position + 1));
    }
    for need in step.needs.iter().filter(|need| need.0 == 0 || **need >= step.id) {
        messages.push(format!("it needs step {need}, which does not come before it"));
    }
    if !implied(&step.action, &step.postcondition) {
        messages.push(format!("`{}` does not make it so that {}", step.action, step.postcondition));
    }
    messages
}

/// Whether `action` by itself makes `fact` true.
fn implied(action: &Action, fact: &Fact) -> bool {
    match (action, fact) {
        (
            Action::LeaveAlone { manager, pf, functions },
            Fact::LeftAlone { manager: who, pf: at, functions: told },
        ) => (manager, pf, functions) == (who, at, told),
        (Action::SetAutoprobe { pf, on }, Fact::Autoprobe { pf: at, on: is }) => pf == at && on == is,
        (Action::SetVfCount { pf, count }, Fact::VfCount { pf: at, count: is }) => pf == at && count == is,
        (
            Action::SetVfAttribute { pf, vf, attribute },
            Fact::VfAttribute { pf: at, vf: of, attribute: is },
        ) => pf == at && vf == of && attribute == is,
        (
            Action::SetDriver { function, driver, mac },
            Fact::Driver { function: at, driver: is, mac: has },
        ) => function == at && driver == is && mac == has,
        (Action::SetMac { function, mac }, Fact::Mac { function: at, mac: is }) => {
            function == at && mac == is
        }
        (Action::Rename { function, to }, Fact::Name { function: at, name }) => function == at && to == name,
        (Action::SetMtu { function, mtu }, Fact::MtuIs { function: at, mtu: is }) => {
            function == at && mtu == is
        }
        (Action::SetLink { function, direction }, Fact::Link { function: at, direction: is }) => {
            function == at && direction == is
        }
        (Action::AddAddress { function, address }, Fact::HasAddress { function: at, address: is }) => {
            function == at && address == is
        }
        (Action::RemoveAddress { function, address }, Fact::LacksAddress { function: at, address: is }) => {
            function == at && address == is
        }
        (Action::SetSwitchMode { pf, mode }, Fact::Switch { pf: at, mode: is }) => pf == at && mode == is,
        (Action::ResetFunction { function }, Fact::Reset { function: at }) => function == at,
        (Action::DefineGuest(definition), Fact::GuestDefined { guest, defined: true }) => {
            definition.guest == *guest
        }
        (Action::UndefineGuest { guest }, Fact::GuestDefined { guest: of, defined: false })
        | (Action::StartGuest { guest }, Fact::GuestRunning { guest: of, running: true })
        | (Action::StopGuest { guest }, Fact::GuestRunning { guest: of, running: false })
        | (Action::CreateGuest { guest }, Fact::GuestSuspended { guest: of })
        | (Action::SuspendGuest { guest }, Fact::GuestSuspended { guest: of })
        | (Action::ResumeGuest { guest }, Fact::GuestRunning { guest: of, running: true })
        | (Action::AwaitGuest { guest, .. }, Fact::GuestReady { guest: of }) => guest == of,
        (Action::StartSwitch { guest, nic }, Fact::SwitchRunning { guest: of, nic: is, running: true })
        | (Action::StopSwitch { guest, nic }, Fact::SwitchRunning { guest: of, nic: is, running: false }) => {
            (guest, nic) == (of, is)
        }
        (Action::MakeTaps { guest, nic }, Fact::TapsThere { guest: of, nic: is, there: true })
        | (Action::RemoveTaps { guest, nic }, Fact::TapsThere { guest: of, nic: is, there: false }) => {
            (guest, nic) == (of, is)
        }
        (
            Action::SetPortAttribute { guest, nic, vf, attribute },
            Fact::PortAttribute { guest: of, nic: is, vf: at, attribute: has },
        ) => (guest, nic, vf, attribute) == (of, is, at, has),
        (Action::AwaitLink { pf, .. }, Fact::LinkUp { pf: at }) => pf == at,
        (Action::WriteFile { path, text }, Fact::FileIs { path: at, text: is }) => path == at && text == is,
        (Action::RemoveFile { path }, Fact::NoFile { path: at }) => path == at,
        (Action::EnableUnit { unit, on }, Fact::UnitEnabled { unit: of, on: is }) => unit == of && on == is,
        (Action::SetBootArguments(boot), Fact::BootArguments(is)) => boot == is,
        (action, fact) if realtime::implied(action, fact) => true,
        _ => false,
    }
}

/// What a step's inverse has to be on the machine as it is before the step.
enum WayBack {
    /// This one and no other.
    Must(Action),
    /// Any definition of that guest.
    Redefine,
    /// Anywhere else, or nothing: interrupts that this plan's guest asked for go with the guest.
    Elsewhere,
    /// None, because nothing can or need be taken back.
    None,
    /// This one, or none because the earlier value is not the user's: a VF that this plan made.
    May(Action),
}

/// What is wrong with a step's inverse.
pub fn way_back(machine: &Machine, model: &Model, step: &Step) -> Option<String> {
    let right = match (restoring(machine, model, &step.action), &step.inverse) {
        (WayBack::Must(wanted), Some(inverse)) => wanted == without_mac(inverse.clone()),
        (WayBack::Must(wanted), None) => return Some(format!("it has no inverse; {wanted} would be it")),
        (WayBack::May(wanted), inverse) => inverse.as_ref().is_none_or(|inverse| wanted == *inverse),
        (WayBack::None, inverse) => inverse.is_none(),
        (WayBack::Elsewhere, inverse) => match (&step.action, inverse) {
            (
                Action::PlaceInterrupts { functions, .. },
                Some(Action::PlaceInterrupts { functions: of, .. }),
            ) => functions == of,
            (_, inverse) => inverse.is_none(),
        },
        (WayBack::Redefine, inverse) => {
            let (Action::UndefineGuest { guest }, Some(Action::DefineGuest(definition))) =
                (&step.action, inverse)
            else {
                return Some("its inverse does not define the guest again".to_owned());
            };
            definition.guest == *guest
        }
    };
    let inverse = step.inverse.as_ref().map_or_else(|| "none".to_owned(), Action::to_string);
    (!right).then(|| format!("its inverse ({inverse}) does not bring back what was"))
}

/// The same, whichever address a driver that is bound again is to find: what was before may have been one of its own.
fn without_mac(inverse: Action) -> Action {
    match inverse {
        Action::SetDriver { function, driver, .. } => Action::SetDriver { function, driver, mac: None },
        other => other,
    }
}

/// Whether a guest is a VM: as it was defined in this plan, else as the model says.
pub fn is_vm(machine: &Machine, model: &Model, guest: &GuestName) -> bool {
    match machine.definitions.get(guest) {
        Some(definition) => definition.vm.is_some(),
        None => model.guests.get(guest).is_some_and(|guest| guest.kind == GuestKind::Vm),
    }
}

fn restoring(machine: &Machine, model: &Model, action: &Action) -> WayBack {
    use WayBack::{May, Must};
    match action {
        Action::LeaveAlone { manager, pf, .. } => {
            let told = machine.inventory.managers.get(manager).and_then(|told| told.get(pf));
            let functions = told.cloned().unwrap_or_default();
            Must(Action::LeaveAlone { manager: *manager, pf: *pf, functions })
        }
        Action::SetAutoprobe { pf, .. } => match machine.sriov(*pf) {
            Some(sriov) => Must(Action::SetAutoprobe { pf: *pf, on: sriov.autoprobe }),
            None => WayBack::None,
        },
        Action::SetVfCount { pf, .. } => match machine.sriov(*pf) {
            Some(sriov) => Must(Action::SetVfCount { pf: *pf, count: sriov.num_vfs }),
            None => WayBack::None,
        },
        Action::SetVfAttribute { pf, vf, attribute } => match machine.attribute(*pf, *vf, attribute) {
            Some(before) => {
                let inverse = Action::SetVfAttribute { pf: *pf, vf: *vf, attribute: before };
                if machine.made_here(*pf) { May(inverse) } else { Must(inverse) }
            }
            None => WayBack::None,
        },
        Action::SetDriver { function, .. } => {
            let driver = machine.driver(*function).map(str::to_owned);
            Must(Action::SetDriver { function: *function, driver, mac: None })
        }
        Action::SetSwitchMode { pf, .. } => match machine.pf(*pf).map(|found| found.switch_mode) {
            None | Some(SwitchMode::Unreported) => WayBack::None,
            Some(mode) => Must(Action::SetSwitchMode { pf: *pf, mode }),
        },
        Action::ResetFunction { .. } => WayBack::None,
        Action::DefineGuest(definition) => match machine.guest(&definition.guest) {
            Some(_) => WayBack::None,
            None => Must(Action::UndefineGuest { guest: definition.guest.clone() }),
        },
        Action::UndefineGuest { .. } => WayBack::Redefine,
        Action::StartSwitch { guest, nic } => {
            Must(Action::StopSwitch { guest: guest.clone(), nic: nic.clone() })
        }
        Action::StopSwitch { guest, nic } => {
            Must(Action::StartSwitch { guest: guest.clone(), nic: nic.clone() })
        }
        Action::MakeTaps { guest, nic } => {
            Must(Action::RemoveTaps { guest: guest.clone(), nic: nic.clone() })
        }
        Action::RemoveTaps { guest, nic } => {
            Must(Action::MakeTaps { guest: guest.clone(), nic: nic.clone() })
        }
        Action::SetPortAttribute { guest, nic, vf, attribute } => {
            let before = machine.port(guest, nic, *vf).and_then(|state| state.attribute(attribute.kind()));
            match before {
                Some(attribute) => {
                    let (guest, nic) = (guest.clone(), nic.clone());
                    Must(Action::SetPortAttribute { guest, nic, vf: *vf, attribute })
                }
                None => WayBack::None,
            }
        }
        Action::StartGuest { guest } => Must(Action::StopGuest { guest: guest.clone() }),
        // A VM comes back suspended: what it waited for may no longer be so.
        Action::StopGuest { guest } if is_vm(machine, model, guest) => {
            Must(Action::CreateGuest { guest: guest.clone() })
        }
        Action::StopGuest { guest } => Must(Action::StartGuest { guest: guest.clone() }),
        Action::CreateGuest { guest } => Must(Action::StopGuest { guest: guest.clone() }),
        Action::ResumeGuest { guest } => Must(Action::SuspendGuest { guest: guest.clone() }),
        Action::SuspendGuest { guest } => Must(Action::ResumeGuest { guest: guest.clone() }),
        Action::AwaitLink { .. } | Action::AwaitGuest { .. } => WayBack::None,
        Action::WriteFile { path, .. } | Action::RemoveFile { path } => {
            Must(match machine.inventory.files.get(path) {
                Some(text) => Action::WriteFile { path: path.clone(), text: text.clone() },
                None => Action::RemoveFile { path: path.clone() },
            })
        }
        Action::PlaceInterrupts { .. } => WayBack::Elsewhere,
        _ if action.is_realtime() => match realtime::restoring(machine, action) {
            Some(inverse) => Must(inverse),
            None => WayBack::None,
        },
        _ => interface(machine, action),
    }
}

fn interface(machine: &Machine, action: &Action) -> WayBack {
    use WayBack::{May, Must};
    let (Action::SetMac { function, .. }
    | Action::Rename { function, .. }
    | Action::SetMtu { function, .. }
    | Action::SetLink { function, .. }
    | Action::AddAddress { function, .. }
    | Action::RemoveAddress { function, .. }) = action
    else {
        return WayBack::None;
    };
    let function = *function;
    let Some(found) = machine.interface(function) else {
        return WayBack::None;
    };
    match action {
        Action::SetMac { .. } => {
            let inverse = Action::SetMac { function, mac: found.mac };
            // The interface of a VF that was bound in this plan had a random address and goes when it is unbound.
            if machine.bound_here(function) { May(inverse) } else { Must(inverse) }
        }
        Action::Rename { .. } => Must(Action::Rename { function, to: found.name.clone() }),
        Action::SetMtu { .. } => match Mtu::new(found.mtu) {
            Some(mtu) => Must(Action::SetMtu { function, mtu }),
            None => WayBack::None,
        },
        Action::SetLink { .. } => {
            let direction = if found.up { Direction::Up } else { Direction::Down };
            Must(Action::SetLink { function, direction })
        }
        Action::AddAddress { address, .. } => Must(Action::RemoveAddress { function, address: *address }),
        Action::RemoveAddress { address, .. } => Must(Action::AddAddress { function, address: *address }),
        _ => WayBack::None,
    }
}

/// What a step takes along that its inverse does not bring back.
pub fn loses(machine: &Machine, action: &Action) -> Option<String> {
    let lost = |function, all: bool| {
        machine.interface(function).and_then(|found| {
            found
                .addresses
                .iter()
                .find(|address| !is_link_local(**address) && (all || address.ip().is_ipv6()))
                .map(|address| format!("{function} loses the address {address}, which nothing brings back"))
        })
    };
    match action {
        Action::SetLink { function, direction: Direction::Down } => lost(*function, false),
        Action::StartGuest { guest } => machine.functions(guest).iter().find_map(|function| {
            let moved = machine.seat(*function).is_some_and(|seat| seat.vf.is_none());
            let up = machine.interface(*function).is_some_and(|found| found.up);
            match moved {
                true if up => Some(format!("{function} is up, and comes back from {guest} down")),
                true => lost(*function, true),
                false => None,
            }
        }),
        _ => None,
    }
}

impl Machine {
    /// The value of the attribute of `like`'s kind now; `None` when it is not reported.
    fn attribute(
        &self,
        pf: penstock_model::Bdf,
        vf: penstock_model::VfIndex,
        like: &VfAttribute,
    ) -> Option<VfAttribute> {
        self.vf(pf, vf)?.1.attributes.as_ref()?.attribute(like.kind())
    }
}
