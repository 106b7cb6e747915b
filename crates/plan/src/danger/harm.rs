//! What each step of a plan does to functions that are there, step by step.

use std::collections::{BTreeSet, HashMap, HashSet};

use indexmap::IndexSet;
use penstock_model::{
    Bdf, GuestName, InterfaceAddress, Inventory,
    inventory::{Interface, Sriov, Vf},
    pci::is_vfio,
};

use super::drivers;
use crate::{
    Action, BootAction, Direction, DriveAction, FileAction, FunctionAction, GuestAction, Plan,
    RealTimeAction, Step,
};

/// What a step does to a function that is there before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Harm {
    /// The PCI address of the function.
    pub function: Bdf,
    /// What the step does to it.
    pub how: How,
}

/// What is done to a function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// A VF goes with its PF's VFs.
    Destroyed,
    /// It loses its driver, and with it its interface.
    Unbound,
    /// It is reset.
    Reset,
    /// The controller of a drive's VF goes off line, with all that it has not finished.
    OffLine,
    /// The controller of a drive's VF gets other queues.
    Queues,
    /// The controller of a drive's VF loses a namespace.
    Detached(u32),
    /// Its interface, or all of it, goes into a guest.
    Into(GuestName),
    /// Its interface is taken down, and routes over it go: they come back only where the plan brings them back.
    Down,
    /// Its PF's interface is taken down and stays so.
    DownForGood,
    /// It is without a link for some seconds.
    Dropped,
    /// Its interface gets another name.
    Renamed,
    /// Its MTU changes.
    Mtu,
    /// Its MAC address, or what its PF lets through, changes.
    Attribute,
    /// Its interface loses an address.
    Loses(InterfaceAddress),
}

/// A plan that is gone through.
pub struct Played<'a> {
    plan: &'a Plan,
    /// The SR-IOV of each PF, of NICs and of drives.
    sriov: HashMap<Bdf, &'a Sriov>,
    /// Each VF that there was.
    vfs: HashMap<Bdf, &'a Vf>,
    /// Which running guest has which function: only those that ran before the plan.
    users: HashMap<Bdf, &'a GuestName>,
    /// The functions of guests that are defined.
    owned: HashMap<&'a GuestName, Vec<Bdf>>,
    /// VFs that there are no more; what is made anew in their places is nobody's yet.
    gone: HashSet<Bdf>,
    /// Functions of guests that the plan stopped.
    given_back: HashSet<Bdf>,
    inventory: &'a Inventory,
}

impl<'a> Played<'a> {
    pub fn new(plan: &'a Plan, inventory: &'a Inventory) -> Played<'a> {
        let all = inventory.sriov().flat_map(|(_, sriov)| &sriov.vfs);
        let vfs = all.filter(|vf| vf.present.is_some()).map(|vf| (vf.bdf, vf)).collect();
        let running = inventory.guests.iter().filter(|(_, found)| found.running);
        Played {
            plan,
            sriov: inventory.sriov().collect(),
            vfs,
            users: running
                .flat_map(|(guest, found)| found.functions.iter().map(move |function| (*function, guest)))
                .collect(),
            owned: inventory.guests.iter().map(|(guest, found)| (guest, found.functions.clone())).collect(),
            gone: HashSet::new(),
            given_back: HashSet::new(),
            inventory,
        }
    }

    /// The guest that runs with `function`, and ran before the plan.
    pub fn user(&self, function: Bdf) -> Option<&'a GuestName> {
        self.users.get(&function).copied()
    }

    /// Whether a guest had `function` that the plan stopped.
    pub fn is_given_back(&self, function: Bdf) -> bool {
        self.given_back.contains(&function)
    }

    /// What a step does to functions that are there, before it is taken.
    pub fn harms(&self, step: &Step) -> IndexSet<Harm> {
        let mut harms: IndexSet<Harm> = IndexSet::new();
        self.of(step, &mut |function, how| {
            if !self.gone.contains(&function) {
                harms.insert(Harm { function, how });
            }
        });
        harms
    }

    fn of(&self, step: &Step, harm: &mut dyn FnMut(Bdf, How)) {
        match &step.action {
            Action::Function(FunctionAction::SetVfCount { pf, count }) => {
                self.above(*pf, *count).into_iter().for_each(|vf| harm(vf, How::Destroyed));
                // A drive has no link to lose.
                let is_nic = self.inventory.pf(*pf).is_some();
                if is_nic && !drivers::link_survives_vfs(self.driver(*pf)) {
                    harm(*pf, How::Dropped);
                    let left = self.vfs(*pf).into_iter().take(usize::from(*count));
                    left.for_each(|vf| harm(vf, How::Dropped));
                }
            }
            Action::Function(FunctionAction::SetDriver { function, driver, .. }) => {
                if driver.is_some() && driver.as_deref() == self.driver(*function) {
                    return;
                }
                harm(*function, How::Unbound);
                // Linux removes the VFs when the PF's driver lets go.
                self.vfs(*function).into_iter().for_each(|vf| harm(vf, How::Destroyed));
            }
            Action::Function(FunctionAction::ResetFunction { function }) => {
                harm(*function, How::Reset);
                self.vfs(*function).into_iter().for_each(|vf| harm(vf, How::Destroyed));
            }
            Action::Function(FunctionAction::SetLink { function, direction: Direction::Down }) => {
                harm(*function, How::Down);
                let how = if self.comes_back(*function, step) { How::Dropped } else { How::DownForGood };
                self.vfs(*function).into_iter().for_each(|vf| harm(vf, how.clone()));
            }
            Action::Function(FunctionAction::SetSwitchMode { pf, .. }) => {
                if !drivers::link_survives_switch_mode(self.driver(*pf)) {
                    harm(*pf, How::Dropped);
                    self.vfs(*pf).into_iter().for_each(|vf| harm(vf, How::Dropped));
                }
            }
            // `mlx5_core` closes and opens the interface (`mlx5/core/en_main.c`, `mlx5e_netdev_change_profile`), `bnxt_en` too (`bnxt_vfr.c`,
            // `bnxt_vf_reps_destroy`). Of others nothing is promised.
            Action::Function(FunctionAction::SetEswitchMode { pf, .. }) => {
                harm(*pf, How::Dropped);
                self.vfs(*pf).into_iter().for_each(|vf| harm(vf, How::Dropped));
            }
            Action::Guest(GuestAction::StartGuest { guest }) | Action::Guest(GuestAction::CreateGuest { guest }) => {
                for function in self.owned.get(guest).into_iter().flatten() {
                    harm(*function, How::Into(guest.clone()));
                    self.vfs(*function).into_iter().for_each(|vf| harm(vf, How::Dropped));
                }
            }
            Action::Guest(GuestAction::StopGuest { guest }) => {
                let functions = self.owned.get(guest).into_iter().flatten();
                // A PF's interface comes back down, and its VFs are without a link until it is up.
                for vf in functions
                    .filter(|function| self.user(**function) == Some(guest))
                    .flat_map(|pf| self.vfs(*pf))
                {
                    harm(vf, How::Dropped);
                }
            }
            Action::Function(FunctionAction::SetVfAttribute { pf, vf, .. }) => {
                let vf = self.sriov.get(pf).and_then(|sriov| sriov.vf(*vf));
                vf.filter(|vf| vf.present.is_some()).into_iter().for_each(|vf| harm(vf.bdf, How::Attribute));
            }
            Action::Function(FunctionAction::Rename { function, .. }) => harm(*function, How::Renamed),
            Action::Function(FunctionAction::SetMtu { function, .. }) => harm(*function, How::Mtu),
            Action::Function(FunctionAction::SetMac { function, .. }) => harm(*function, How::Attribute),
            Action::Function(FunctionAction::RemoveAddress { function, address }) => harm(*function, How::Loses(*address)),
            Action::Drive(action) => {
                let how = match *action {
                    DriveAction::SetVfOnline { online: false, .. } => How::OffLine,
                    DriveAction::SetVfResources { .. } => How::Queues,
                    DriveAction::AttachNamespace { namespace, attached: false, .. } => How::Detached(namespace),
                    DriveAction::SetVfOnline { online: true, .. }
                    | DriveAction::AttachNamespace { attached: true, .. } => return,
                };
                let vf = self.sriov.get(&action.drive()).and_then(|sriov| sriov.vf(action.vf()));
                vf.filter(|vf| vf.present.is_some()).into_iter().for_each(|vf| harm(vf.bdf, how.clone()));
            }
            // Nothing of these touches what a function carries.
            Action::Function(FunctionAction::LeaveAlone { .. })
            | Action::Function(FunctionAction::SetAutoprobe { .. })
            | Action::Function(FunctionAction::SetLink { direction: Direction::Up, .. })
            | Action::Function(FunctionAction::AddAddress { .. })
            | Action::Function(FunctionAction::RestoreInterface { .. })
            | Action::Guest(GuestAction::DefineGuest(_))
            | Action::Guest(GuestAction::UndefineGuest { .. })
            // A switch hears and sends through a socket of its own: what the uplink's interface is to the host, it stays.
            | Action::Guest(GuestAction::StartSwitch { .. })
            | Action::Guest(GuestAction::StopSwitch { .. })
            | Action::Guest(GuestAction::MakeTaps { .. })
            | Action::Guest(GuestAction::RemoveTaps { .. })
            | Action::Guest(GuestAction::SetPortAttribute { .. })
            | Action::Guest(GuestAction::ResumeGuest { .. })
            | Action::Guest(GuestAction::SuspendGuest { .. })
            | Action::Function(FunctionAction::AwaitLink { .. })
            | Action::Guest(GuestAction::AwaitGuest { .. })
            | Action::File(FileAction::WriteFile { .. })
            | Action::File(FileAction::RemoveFile { .. })
            | Action::Boot(BootAction::EnableUnit { .. })
            | Action::Boot(BootAction::SetBootArguments(_))
            | Action::RealTime(RealTimeAction::Tune { .. })
            | Action::RealTime(RealTimeAction::MakePartition { .. })
            | Action::RealTime(RealTimeAction::RemovePartition { .. })
            | Action::Guest(GuestAction::IsolateGuest { .. })
            | Action::Guest(GuestAction::ScheduleGuest { .. })
            | Action::RealTime(RealTimeAction::PlaceInterrupts { .. })
            | Action::RealTime(RealTimeAction::MakeResctrlGroup { .. })
            | Action::RealTime(RealTimeAction::RemoveResctrlGroup { .. })
            | Action::RealTime(RealTimeAction::SetSchemata { .. }) => {}
        }
    }

    /// Takes a step.
    pub fn take(&mut self, step: &'a Step) {
        match &step.action {
            Action::Function(FunctionAction::SetVfCount { pf, count }) => {
                self.gone.extend(self.above(*pf, *count))
            }
            Action::Function(FunctionAction::SetDriver { function, .. }) => {
                self.gone.extend(self.vfs(*function))
            }
            Action::Guest(GuestAction::DefineGuest(definition)) => {
                let functions = definition.host_functions().collect();
                self.owned.insert(&definition.guest, functions);
            }
            Action::Guest(GuestAction::StopGuest { guest }) => {
                let own =
                    self.users.iter().filter(|(_, user)| *user == &guest).map(|(function, _)| *function);
                self.given_back.extend(own);
                self.users.retain(|_, user| *user != guest);
            }
            // After these each function is where it was, for those that come later in the plan.
            Action::Function(
                FunctionAction::LeaveAlone { .. }
                | FunctionAction::SetAutoprobe { .. }
                | FunctionAction::SetVfAttribute { .. }
                | FunctionAction::SetMac { .. }
                | FunctionAction::Rename { .. }
                | FunctionAction::SetMtu { .. }
                | FunctionAction::SetLink { .. }
                | FunctionAction::AddAddress { .. }
                | FunctionAction::RemoveAddress { .. }
                | FunctionAction::RestoreInterface { .. }
                | FunctionAction::SetSwitchMode { .. }
                | FunctionAction::SetEswitchMode { .. }
                | FunctionAction::ResetFunction { .. }
                | FunctionAction::AwaitLink { .. },
            )
            | Action::Guest(
                GuestAction::UndefineGuest { .. }
                | GuestAction::StartSwitch { .. }
                | GuestAction::StopSwitch { .. }
                | GuestAction::MakeTaps { .. }
                | GuestAction::RemoveTaps { .. }
                | GuestAction::SetPortAttribute { .. }
                | GuestAction::StartGuest { .. }
                | GuestAction::CreateGuest { .. }
                | GuestAction::ResumeGuest { .. }
                | GuestAction::SuspendGuest { .. }
                | GuestAction::AwaitGuest { .. }
                | GuestAction::IsolateGuest { .. }
                | GuestAction::ScheduleGuest { .. },
            )
            | Action::Drive(_)
            | Action::RealTime(_)
            | Action::Boot(_)
            | Action::File(_) => {}
        }
    }

    /// The VFs of a PF that were there before the plan, and still are.
    pub fn vfs(&self, pf: Bdf) -> Vec<Bdf> {
        let vfs = self.sriov.get(&pf).into_iter().flat_map(|sriov| present(sriov));
        vfs.filter(|vf| !self.gone.contains(vf)).collect()
    }

    /// Those of them that go when there are to be `count`.
    fn above(&self, pf: Bdf, count: u16) -> Vec<Bdf> {
        self.vfs(pf).into_iter().skip(usize::from(count)).collect()
    }

    /// The driver that a function had before the plan.
    pub fn driver(&self, function: Bdf) -> Option<&str> {
        if let Some(pf) = self.inventory.pf(function) {
            return pf.driver.as_deref();
        }
        if let Some(vf) = self.vfs.get(&function) {
            return vf.present.as_ref()?.driver.as_deref();
        }
        let drive = self.inventory.drive(function);
        let other = self.inventory.others.get(&function);
        drive.and_then(|drive| drive.driver.as_deref()).or_else(|| other?.driver.as_deref())
    }

    /// The interface of a function that the host had before the plan.
    pub fn interface(&self, function: Bdf) -> Option<&'a Interface> {
        match self.inventory.pf(function) {
            Some(pf) => pf.interface.as_ref(),
            None => self.vfs.get(&function)?.present.as_ref()?.interface.as_ref(),
        }
    }

    /// Whether an interface that a step takes down is up again at the end: on the host, or in the guest that it goes into.
    fn comes_back(&self, function: Bdf, step: &Step) -> bool {
        let defined: BTreeSet<&GuestName> = self
            .plan
            .steps
            .iter()
            .filter_map(|step| match &step.action {
                Action::Guest(GuestAction::DefineGuest(definition)) => definition
                    .functions
                    .iter()
                    .any(|own| own.function == function)
                    .then_some(&definition.guest),
                _ => None,
            })
            .chain(self.owned.iter().filter(|(_, own)| own.contains(&function)).map(|(guest, _)| *guest))
            .collect();
        let later = self.plan.steps.iter().filter(|later| later.id > step.id);
        later.map(|later| &later.action).any(|action| match action {
            Action::Function(FunctionAction::SetLink { function: of, direction: Direction::Up }) => {
                *of == function
            }
            Action::Guest(GuestAction::StartGuest { guest }) => defined.contains(guest),
            _ => false,
        })
    }
}

/// The VFs of a PF that exist, in index order.
fn present(sriov: &Sriov) -> impl Iterator<Item = Bdf> {
    sriov.vfs.iter().filter(|vf| vf.present.is_some()).map(|vf| vf.bdf)
}

/// The function that a step gives to VFIO.
pub fn given_to_vfio(step: &Step) -> Option<Bdf> {
    match &step.action {
        Action::Function(FunctionAction::SetDriver { function, driver: Some(driver), .. })
            if is_vfio(driver) =>
        {
            Some(*function)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fact, StepId};

    #[test]
    fn each_driver_of_vfio_is_given_functions() {
        let function: Bdf = "0000:01:10.0".parse().unwrap();
        let given = |driver: Option<&str>| {
            let driver = driver.map(str::to_owned);
            let action: Action = FunctionAction::SetDriver { function, driver, mac: None }.into();
            given_to_vfio(&Step {
                id: StepId(1),
                postcondition: Fact::after(&action),
                action,
                reason: String::new(),
                needs: Vec::new(),
                inverse: None,
                best_effort: false,
                guest: None,
            })
        };
        for driver in ["vfio-pci", "mlx5_vfio_pci"] {
            assert_eq!(given(Some(driver)), Some(function), "{driver}");
        }
        for driver in [None, Some("mlx5_core"), Some("pci-stub")] {
            assert_eq!(given(driver), None, "{driver:?}");
        }
    }
}
