//! What can be said of one step: its number, what it needs, its postcondition, its way back.

use penstock_model::{
    GuestKind, GuestName, Model, Mtu, VfAttribute,
    inventory::{Interface, SwitchMode},
};

use super::{drive, eswitch, machine::Machine, realtime};
use crate::{
    Action, BootAction, Direction, Fact, FileAction, FunctionAction, GuestAction, RealTimeAction, Step,
};

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
            Action::Function(FunctionAction::LeaveAlone { manager, pf, functions }),
            Fact::LeftAlone { manager: who, pf: at, functions: told },
        ) => (manager, pf, functions) == (who, at, told),
        (Action::Function(FunctionAction::SetAutoprobe { pf, on }), Fact::Autoprobe { pf: at, on: is }) => {
            pf == at && on == is
        }
        (Action::Function(FunctionAction::SetVfCount { pf, count }), Fact::VfCount { pf: at, count: is }) => {
            pf == at && count == is
        }
        (
            Action::Function(FunctionAction::SetVfAttribute { pf, vf, attribute }),
            Fact::VfAttribute { pf: at, vf: of, attribute: is },
        ) => pf == at && vf == of && attribute == is,
        (
            Action::Function(FunctionAction::SetDriver { function, driver, mac }),
            Fact::Driver { function: at, driver: is, mac: has },
        ) => function == at && driver == is && mac == has,
        (Action::Function(FunctionAction::SetMac { function, mac }), Fact::Mac { function: at, mac: is }) => {
            function == at && mac == is
        }
        (Action::Function(FunctionAction::Rename { function, to }), Fact::Name { function: at, name }) => {
            function == at && to == name
        }
        (
            Action::Function(FunctionAction::SetMtu { function, mtu }),
            Fact::MtuIs { function: at, mtu: is },
        ) => function == at && mtu == is,
        (
            Action::Function(FunctionAction::SetLink { function, direction }),
            Fact::Link { function: at, direction: is },
        ) => function == at && direction == is,
        (
            Action::Function(FunctionAction::AddAddress { function, address }),
            Fact::HasAddress { function: at, address: is },
        ) => function == at && address == is,
        (
            Action::Function(FunctionAction::RemoveAddress { function, address }),
            Fact::LacksAddress { function: at, address: is },
        ) => function == at && address == is,
        (
            Action::Function(FunctionAction::RestoreInterface { function, setup }),
            Fact::InterfaceIs { function: at, setup: is },
        ) => function == at && setup == is,
        (Action::Function(FunctionAction::SetSwitchMode { pf, mode }), Fact::Switch { pf: at, mode: is }) => {
            pf == at && mode == is
        }
        (
            Action::Function(FunctionAction::SetEswitchMode { pf, mode }),
            Fact::EswitchMode { pf: at, mode: is },
        ) => pf == at && mode == is,
        (Action::Function(FunctionAction::ResetFunction { function }), Fact::Reset { function: at }) => {
            function == at
        }
        (
            Action::Guest(GuestAction::DefineGuest(definition)),
            Fact::GuestDefined { guest, defined: true },
        ) => definition.guest == *guest,
        (
            Action::Guest(GuestAction::UndefineGuest { guest }),
            Fact::GuestDefined { guest: of, defined: false },
        )
        | (
            Action::Guest(GuestAction::StartGuest { guest }),
            Fact::GuestRunning { guest: of, running: true },
        )
        | (
            Action::Guest(GuestAction::StopGuest { guest }),
            Fact::GuestRunning { guest: of, running: false },
        )
        | (Action::Guest(GuestAction::CreateGuest { guest }), Fact::GuestSuspended { guest: of })
        | (Action::Guest(GuestAction::SuspendGuest { guest }), Fact::GuestSuspended { guest: of })
        | (
            Action::Guest(GuestAction::ResumeGuest { guest }),
            Fact::GuestRunning { guest: of, running: true },
        )
        | (Action::Guest(GuestAction::AwaitGuest { guest, .. }), Fact::GuestReady { guest: of }) => {
            guest == of
        }
        (
            Action::Guest(GuestAction::StartSwitch { guest, nic }),
            Fact::SwitchRunning { guest: of, nic: is, running: true },
        )
        | (
            Action::Guest(GuestAction::StopSwitch { guest, nic }),
            Fact::SwitchRunning { guest: of, nic: is, running: false },
        ) => (guest, nic) == (of, is),
        (
            Action::Guest(GuestAction::MakeTaps { guest, nic }),
            Fact::TapsThere { guest: of, nic: is, there: true },
        )
        | (
            Action::Guest(GuestAction::RemoveTaps { guest, nic }),
            Fact::TapsThere { guest: of, nic: is, there: false },
        ) => (guest, nic) == (of, is),
        (
            Action::Guest(GuestAction::SetPortAttribute { guest, nic, vf, attribute }),
            Fact::PortAttribute { guest: of, nic: is, vf: at, attribute: has },
        ) => (guest, nic, vf, attribute) == (of, is, at, has),
        (Action::Function(FunctionAction::AwaitLink { pf, .. }), Fact::LinkUp { pf: at }) => pf == at,
        (Action::File(FileAction::WriteFile { path, text }), Fact::FileIs { path: at, text: is }) => {
            path == at && text == is
        }
        (Action::File(FileAction::RemoveFile { path }), Fact::NoFile { path: at }) => path == at,
        (Action::Boot(BootAction::EnableUnit { unit, on }), Fact::UnitEnabled { unit: of, on: is }) => {
            unit == of && on == is
        }
        (Action::Boot(BootAction::SetBootArguments(boot)), Fact::BootArguments(is)) => boot == is,
        (Action::Drive(action), fact) => action.after() == *fact,
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
                Action::RealTime(RealTimeAction::PlaceInterrupts { functions, .. }),
                Some(Action::RealTime(RealTimeAction::PlaceInterrupts { functions: of, .. })),
            ) => functions == of,
            (_, inverse) => inverse.is_none(),
        },
        (WayBack::Redefine, inverse) => {
            let (
                Action::Guest(GuestAction::UndefineGuest { guest }),
                Some(Action::Guest(GuestAction::DefineGuest(definition))),
            ) = (&step.action, inverse)
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
        Action::Function(FunctionAction::SetDriver { function, driver, .. }) => {
            FunctionAction::SetDriver { function, driver, mac: None }.into()
        }
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
        Action::Function(FunctionAction::LeaveAlone { manager, pf, .. }) => {
            let told = machine.inventory.managers.get(manager).and_then(|told| told.get(pf));
            let functions = told.cloned().unwrap_or_default();
            Must(FunctionAction::LeaveAlone { manager: *manager, pf: *pf, functions }.into())
        }
        // Before what takes the interface away it does nothing, and after that undoing it is taking it away again.
        Action::Function(FunctionAction::RestoreInterface { .. }) => Must(action.clone()),
        Action::Function(FunctionAction::SetAutoprobe { pf, .. }) => match machine.sriov(*pf) {
            Some(sriov) => Must(FunctionAction::SetAutoprobe { pf: *pf, on: sriov.autoprobe }.into()),
            None => WayBack::None,
        },
        Action::Function(FunctionAction::SetVfCount { pf, .. }) => match machine.sriov(*pf) {
            Some(sriov) => Must(FunctionAction::SetVfCount { pf: *pf, count: sriov.num_vfs }.into()),
            None => WayBack::None,
        },
        Action::Function(FunctionAction::SetVfAttribute { pf, vf, attribute }) => match machine
            .attribute(*pf, *vf, attribute)
        {
            Some(before) => {
                let inverse = FunctionAction::SetVfAttribute { pf: *pf, vf: *vf, attribute: before }.into();
                if machine.made_here(*pf) { May(inverse) } else { Must(inverse) }
            }
            None => WayBack::None,
        },
        Action::Function(FunctionAction::SetDriver { function, .. }) => {
            let driver = machine.driver(*function).map(str::to_owned);
            Must(FunctionAction::SetDriver { function: *function, driver, mac: None }.into())
        }
        Action::Function(FunctionAction::SetSwitchMode { pf, .. }) => {
            match machine.pf(*pf).map(|found| found.switch_mode) {
                None | Some(SwitchMode::Unreported) => WayBack::None,
                // What a driver comes back to is not what anybody had set.
                Some(mode @ SwitchMode::Veb) if machine.came_back(*pf) => {
                    May(FunctionAction::SetSwitchMode { pf: *pf, mode }.into())
                }
                Some(mode) => Must(FunctionAction::SetSwitchMode { pf: *pf, mode }.into()),
            }
        }
        Action::Function(FunctionAction::SetEswitchMode { pf, .. }) => {
            match machine.pf(*pf).and_then(eswitch::mode) {
                None => WayBack::None,
                Some(mode) => Must(FunctionAction::SetEswitchMode { pf: *pf, mode }.into()),
            }
        }
        Action::Function(FunctionAction::ResetFunction { .. }) => WayBack::None,
        Action::Drive(action) => match drive::restoring(machine, action) {
            Some(inverse) => Must(inverse),
            None => WayBack::None,
        },
        Action::Guest(GuestAction::DefineGuest(definition)) => match machine.guest(&definition.guest) {
            Some(_) => WayBack::None,
            None => Must(GuestAction::UndefineGuest { guest: definition.guest.clone() }.into()),
        },
        Action::Guest(GuestAction::UndefineGuest { .. }) => WayBack::Redefine,
        Action::Guest(GuestAction::StartSwitch { guest, nic }) => {
            Must(GuestAction::StopSwitch { guest: guest.clone(), nic: nic.clone() }.into())
        }
        Action::Guest(GuestAction::StopSwitch { guest, nic }) => {
            Must(GuestAction::StartSwitch { guest: guest.clone(), nic: nic.clone() }.into())
        }
        Action::Guest(GuestAction::MakeTaps { guest, nic }) => {
            Must(GuestAction::RemoveTaps { guest: guest.clone(), nic: nic.clone() }.into())
        }
        Action::Guest(GuestAction::RemoveTaps { guest, nic }) => {
            Must(GuestAction::MakeTaps { guest: guest.clone(), nic: nic.clone() }.into())
        }
        Action::Guest(GuestAction::SetPortAttribute { guest, nic, vf, attribute }) => {
            let before = machine.port(guest, nic, *vf).and_then(|state| state.attribute(attribute.kind()));
            match before {
                Some(attribute) => {
                    let (guest, nic) = (guest.clone(), nic.clone());
                    Must(GuestAction::SetPortAttribute { guest, nic, vf: *vf, attribute }.into())
                }
                None => WayBack::None,
            }
        }
        Action::Guest(GuestAction::StartGuest { guest }) => {
            Must(GuestAction::StopGuest { guest: guest.clone() }.into())
        }
        // A VM comes back suspended: what it waited for may no longer be so.
        Action::Guest(GuestAction::StopGuest { guest }) if is_vm(machine, model, guest) => {
            Must(GuestAction::CreateGuest { guest: guest.clone() }.into())
        }
        Action::Guest(GuestAction::StopGuest { guest }) => {
            Must(GuestAction::StartGuest { guest: guest.clone() }.into())
        }
        Action::Guest(GuestAction::CreateGuest { guest }) => {
            Must(GuestAction::StopGuest { guest: guest.clone() }.into())
        }
        Action::Guest(GuestAction::ResumeGuest { guest }) => {
            Must(GuestAction::SuspendGuest { guest: guest.clone() }.into())
        }
        Action::Guest(GuestAction::SuspendGuest { guest }) => {
            Must(GuestAction::ResumeGuest { guest: guest.clone() }.into())
        }
        Action::Function(FunctionAction::AwaitLink { .. })
        | Action::Guest(GuestAction::AwaitGuest { .. }) => WayBack::None,
        Action::File(FileAction::WriteFile { path, .. }) | Action::File(FileAction::RemoveFile { path }) => {
            Must(match machine.inventory.files.get(path) {
                Some(text) => FileAction::WriteFile { path: path.clone(), text: text.clone() }.into(),
                None => FileAction::RemoveFile { path: path.clone() }.into(),
            })
        }
        Action::RealTime(RealTimeAction::PlaceInterrupts { .. }) => WayBack::Elsewhere,
        Action::RealTime(
            RealTimeAction::Tune { .. }
            | RealTimeAction::MakePartition { .. }
            | RealTimeAction::RemovePartition { .. }
            | RealTimeAction::MakeResctrlGroup { .. }
            | RealTimeAction::RemoveResctrlGroup { .. }
            | RealTimeAction::SetSchemata { .. },
        )
        | Action::Guest(GuestAction::IsolateGuest { .. } | GuestAction::ScheduleGuest { .. }) => {
            match realtime::restoring(machine, action) {
                Some(inverse) => Must(inverse),
                None => WayBack::None,
            }
        }
        Action::Function(
            FunctionAction::SetMac { .. }
            | FunctionAction::Rename { .. }
            | FunctionAction::SetMtu { .. }
            | FunctionAction::SetLink { .. }
            | FunctionAction::AddAddress { .. }
            | FunctionAction::RemoveAddress { .. },
        ) => interface(machine, action),
        // No inventory tells what counts from the next start on, and no plan of a model has these.
        Action::Boot(BootAction::EnableUnit { .. } | BootAction::SetBootArguments(_)) => WayBack::None,
    }
}

fn interface(machine: &Machine, action: &Action) -> WayBack {
    use WayBack::{May, Must};
    let (Action::Function(FunctionAction::SetMac { function, .. })
    | Action::Function(FunctionAction::Rename { function, .. })
    | Action::Function(FunctionAction::SetMtu { function, .. })
    | Action::Function(FunctionAction::SetLink { function, .. })
    | Action::Function(FunctionAction::AddAddress { function, .. })
    | Action::Function(FunctionAction::RemoveAddress { function, .. })) = action
    else {
        return WayBack::None;
    };
    let function = *function;
    let Some(found) = machine.interface(function) else {
        return WayBack::None;
    };
    match action {
        Action::Function(FunctionAction::SetMac { .. }) => {
            let inverse = FunctionAction::SetMac { function, mac: found.mac }.into();
            // The interface of a VF that was bound in this plan had a random address and goes when it is unbound.
            if machine.bound_here(function) { May(inverse) } else { Must(inverse) }
        }
        Action::Function(FunctionAction::Rename { .. }) => {
            Must(FunctionAction::Rename { function, to: found.name.clone() }.into())
        }
        Action::Function(FunctionAction::SetMtu { .. }) => match Mtu::new(found.mtu) {
            Some(mtu) => Must(FunctionAction::SetMtu { function, mtu }.into()),
            None => WayBack::None,
        },
        Action::Function(FunctionAction::SetLink { .. }) => {
            let direction = if found.up { Direction::Up } else { Direction::Down };
            Must(FunctionAction::SetLink { function, direction }.into())
        }
        Action::Function(FunctionAction::AddAddress { address, .. }) => {
            Must(FunctionAction::RemoveAddress { function, address: *address }.into())
        }
        Action::Function(FunctionAction::RemoveAddress { address, .. }) => {
            Must(FunctionAction::AddAddress { function, address: *address }.into())
        }
        _ => WayBack::None,
    }
}

/// Whether an interface, or that of a VLAN on it, has what Linux takes away when it goes down.
fn goes_with_its_link(interface: &Interface) -> bool {
    let mut addresses = interface.addresses.iter().filter(|address| !address.is_kernel_made());
    !interface.routes.is_empty()
        || addresses.any(|address| address.ip().is_ipv6())
        || interface.uppers.iter().any(|upper| upper.vlan.is_some() && goes_with_its_link(&upper.interface))
}

/// What a step takes along that its inverse does not bring back.
pub fn loses(machine: &Machine, action: &Action) -> Option<String> {
    let lost = |function, all: bool| {
        let found = machine.interface(function).filter(|_| !machine.is_restored(function))?;
        let mut addresses = found.addresses.iter().filter(|address| !address.is_kernel_made());
        let address = addresses
            .find(|address| all || address.ip().is_ipv6())
            .map(|address| format!("address {address}"));
        let route = || Some(format!("route {}", found.routes.first()?));
        let up = || (all && found.up).then(|| "state, which is up".to_owned());
        let master = || {
            let master = found.master.as_ref().filter(|master| all && master.takes_ports())?;
            Some(format!("state, which is a port of {}", master.name))
        };
        let vlan = || {
            let vlans = found.uppers.iter().filter(|upper| upper.vlan.is_some());
            let lost = vlans.map(|upper| &upper.interface).find(|vlan| all || goes_with_its_link(vlan))?;
            Some(format!("interface {} as it is used, which is that of a VLAN", lost.name))
        };
        let what = address.or_else(route).or_else(up).or_else(master).or_else(vlan)?;
        Some(format!("{function} loses the {what}, and nothing brings that back"))
    };
    match action {
        Action::Function(FunctionAction::SetLink { function, direction: Direction::Down }) => {
            lost(*function, false)
        }
        Action::Function(FunctionAction::SetDriver { function, .. }) => lost(*function, true),
        // Linux takes the routes of IPv4 along with the last address of it.
        Action::Function(FunctionAction::RemoveAddress { function, address }) if address.ip().is_ipv4() => {
            let found = machine.interface(*function).filter(|_| !machine.is_restored(*function))?;
            let last = found.addresses.iter().all(|other| other == address || !other.ip().is_ipv4());
            let route = found.routes.iter().find(|route| route.is_ipv4()).filter(|_| last)?;
            Some(format!("{function} loses the route {route}, and nothing brings that back"))
        }
        Action::Guest(GuestAction::StartGuest { guest }) => {
            machine.functions(guest).iter().find_map(|function| {
                let moved = machine.seat(*function).is_some_and(|seat| seat.vf.is_none());
                let up = machine.interface(*function).is_some_and(|found| found.up);
                match moved {
                    true if up => Some(format!("{function} is up, and comes back from {guest} down")),
                    _ => lost(*function, true),
                }
            })
        }
        Action::Function(
            FunctionAction::LeaveAlone { .. }
            | FunctionAction::SetAutoprobe { .. }
            | FunctionAction::SetVfCount { .. }
            | FunctionAction::SetVfAttribute { .. }
            | FunctionAction::SetMac { .. }
            | FunctionAction::Rename { .. }
            | FunctionAction::SetMtu { .. }
            | FunctionAction::SetLink { direction: Direction::Up, .. }
            | FunctionAction::AddAddress { .. }
            | FunctionAction::RemoveAddress { .. }
            | FunctionAction::RestoreInterface { .. }
            | FunctionAction::SetSwitchMode { .. }
            | FunctionAction::SetEswitchMode { .. }
            | FunctionAction::ResetFunction { .. }
            | FunctionAction::AwaitLink { .. },
        )
        | Action::Guest(
            GuestAction::DefineGuest(_)
            | GuestAction::UndefineGuest { .. }
            | GuestAction::StartSwitch { .. }
            | GuestAction::StopSwitch { .. }
            | GuestAction::MakeTaps { .. }
            | GuestAction::RemoveTaps { .. }
            | GuestAction::SetPortAttribute { .. }
            | GuestAction::CreateGuest { .. }
            | GuestAction::ResumeGuest { .. }
            | GuestAction::SuspendGuest { .. }
            | GuestAction::AwaitGuest { .. }
            | GuestAction::StopGuest { .. }
            | GuestAction::IsolateGuest { .. }
            | GuestAction::ScheduleGuest { .. },
        )
        | Action::Drive(_)
        | Action::RealTime(_)
        | Action::Boot(_)
        | Action::File(_) => None,
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
