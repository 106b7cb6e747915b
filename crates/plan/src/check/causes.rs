//! Which step brought about what a later one relies on: that step must be among those that it says it needs, directly
//! or not, or it would be tried after that step failed.

use std::collections::{BTreeSet, HashMap, VecDeque};

use penstock_model::{Bdf, GuestName, Model, NicName, inventory::tuning::Knob};

use super::{
    drive::{self, Passed},
    machine::Machine,
    rules::VFIO,
};
use crate::{Action, BootAction, FileAction, FunctionAction, GuestAction, RealTimeAction, Step};

/// Something that can be relied on.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Aspect {
    Autoprobe(Bdf),
    Count(Bdf),
    EswitchMode(Bdf),
    Link(Bdf),
    Driver(Bdf),
    Attributes(Bdf),
    /// The controller of a drive's VF.
    Controller(Bdf),
    /// What VFs of a drive had is free.
    Left(Bdf, Passed),
    InterfaceMac(Bdf),
    Defined(GuestName),
    /// The embedded switch of a VM's NIC runs, or its taps are there; or no longer.
    BackEnd(GuestName, NicName),
    /// The guest is there, or no longer.
    There(GuestName),
    /// The guest runs, or no longer.
    Running(GuestName),
    Ready(GuestName),
    Linked(Bdf, Option<GuestName>),
    /// Interrupts and workqueues keep off isolated CPUs.
    Quiet,
    /// Idle states and frequency of a CPU.
    Cpu(u32),
    /// The guest's CPUs are its alone, or no longer.
    Isolated(GuestName),
    /// The ways of resctrl's groups.
    Shares,
}

pub struct Causes {
    /// Which steps last brought it about, by position.
    steps: HashMap<Aspect, Vec<usize>>,
    /// What each step says that it needs, by position.
    needs: Vec<Vec<usize>>,
    /// For which step each was last come by in a search.
    passed: Vec<usize>,
}

impl Causes {
    pub fn new(steps: usize) -> Causes {
        Causes { steps: HashMap::new(), needs: Vec::with_capacity(steps), passed: vec![0; steps] }
    }

    /// What the step at `position` relies on and does not say that it needs.
    pub fn forgotten(
        &mut self,
        machine: &Machine,
        model: &Model,
        position: usize,
        step: &Step,
    ) -> Vec<String> {
        // A need that does not point back is reported elsewhere.
        let needs = step.needs.iter().filter_map(|need| (need.0 as usize).checked_sub(1));
        self.needs.push(needs.filter(|need| *need < position).collect());
        let causes = relies_on(machine, model, &step.action);
        let causes = causes.iter().filter_map(|aspect| self.steps.get(aspect)).flatten().copied().collect();
        let forgotten = self.not_needed(position, causes);
        for (aspect, parallel) in brings_about(machine, step) {
            let steps = self.steps.entry(aspect).or_default();
            if !parallel {
                steps.clear();
            }
            steps.push(position);
        }
        forgotten
            .into_iter()
            .map(|cause| format!("it does not say that it needs step {}", cause + 1))
            .collect()
    }
}

impl Causes {
    /// Those of `causes` that the step at `position` does not need, neither directly nor through others. Steps that are nearer are looked
    /// at first, since most causes are near; what is before all of the causes leads to none of them.
    fn not_needed(&mut self, position: usize, mut causes: BTreeSet<usize>) -> BTreeSet<usize> {
        let Some(first) = causes.first().copied() else { return causes };
        let mut open = VecDeque::from([position]);
        while let Some(at) = open.pop_front() {
            for need in self.needs[at].iter().copied().filter(|need| *need >= first) {
                if self.passed[need] == position {
                    continue;
                }
                self.passed[need] = position;
                if causes.remove(&need) && causes.is_empty() {
                    return causes;
                }
                open.push_back(need);
            }
        }
        causes
    }
}

/// What a step changes that others rely on, and whether others like it stand beside it.
fn brings_about(machine: &Machine, step: &Step) -> Vec<(Aspect, bool)> {
    let one = |aspect| vec![(aspect, false)];
    match &step.action {
        Action::Function(FunctionAction::SetAutoprobe { pf, .. }) => one(Aspect::Autoprobe(*pf)),
        Action::Function(FunctionAction::SetVfCount { pf, .. }) => one(Aspect::Count(*pf)),
        Action::Function(FunctionAction::SetEswitchMode { pf, .. }) => one(Aspect::EswitchMode(*pf)),
        Action::Function(FunctionAction::SetVfAttribute { pf, vf, .. }) => {
            machine.vf(*pf, *vf).map(|(vf, _)| (Aspect::Attributes(vf.bdf), true)).into_iter().collect()
        }
        Action::Function(FunctionAction::SetDriver { function, .. }) => one(Aspect::Driver(*function)),
        Action::Function(FunctionAction::SetMac { function, .. }) => one(Aspect::InterfaceMac(*function)),
        Action::Function(FunctionAction::SetLink { function, .. }) => one(Aspect::Link(*function)),
        Action::Drive(action) => {
            let vf = machine.vf(action.drive(), action.vf());
            let left = drive::leaves(machine, action).map(|what| (Aspect::Left(action.drive(), what), true));
            vf.map(|(vf, _)| (Aspect::Controller(vf.bdf), false)).into_iter().chain(left).collect()
        }
        Action::Guest(GuestAction::DefineGuest(definition)) => one(Aspect::Defined(definition.guest.clone())),
        Action::Guest(GuestAction::UndefineGuest { guest }) => one(Aspect::Defined(guest.clone())),
        Action::Guest(GuestAction::StartSwitch { guest, nic })
        | Action::Guest(GuestAction::StopSwitch { guest, nic })
        | Action::Guest(GuestAction::MakeTaps { guest, nic })
        | Action::Guest(GuestAction::RemoveTaps { guest, nic }) => {
            one(Aspect::BackEnd(guest.clone(), nic.clone()))
        }
        // One that is suspended does not run, and stopping it changes nothing for those who need it running.
        Action::Guest(GuestAction::StopGuest { guest }) if machine.suspended(guest) => {
            one(Aspect::There(guest.clone()))
        }
        Action::Guest(GuestAction::StartGuest { guest })
        | Action::Guest(GuestAction::StopGuest { guest }) => {
            vec![(Aspect::There(guest.clone()), false), (Aspect::Running(guest.clone()), false)]
        }
        Action::Guest(GuestAction::CreateGuest { guest }) => one(Aspect::There(guest.clone())),
        Action::Guest(GuestAction::ResumeGuest { guest })
        | Action::Guest(GuestAction::SuspendGuest { guest }) => one(Aspect::Running(guest.clone())),
        Action::Guest(GuestAction::AwaitGuest { guest, .. }) => one(Aspect::Ready(guest.clone())),
        Action::Function(FunctionAction::AwaitLink { pf, .. }) => {
            one(Aspect::Linked(*pf, step.guest.clone()))
        }
        Action::RealTime(RealTimeAction::Tune { knob, .. }) => match knob {
            Knob::DefaultIrqAffinity | Knob::Workqueues | Knob::WritebackWorkqueue | Knob::IrqAffinity(_) => {
                vec![(Aspect::Quiet, true)]
            }
            Knob::ResumeLatency(cpu)
            | Knob::Governor(cpu)
            | Knob::MinFrequency(cpu)
            | Knob::MaxFrequency(cpu) => vec![(Aspect::Cpu(*cpu), true)],
            _ => Vec::new(),
        },
        Action::Guest(GuestAction::IsolateGuest { guest, .. }) => one(Aspect::Isolated(guest.clone())),
        Action::RealTime(RealTimeAction::MakeResctrlGroup { .. })
        | Action::RealTime(RealTimeAction::RemoveResctrlGroup { .. })
        | Action::RealTime(RealTimeAction::SetSchemata { .. }) => one(Aspect::Shares),
        // Nothing waits for these, but the end of the plan.
        Action::Function(
            FunctionAction::LeaveAlone { .. }
            | FunctionAction::Rename { .. }
            | FunctionAction::SetMtu { .. }
            | FunctionAction::AddAddress { .. }
            | FunctionAction::RemoveAddress { .. }
            | FunctionAction::RestoreInterface { .. }
            | FunctionAction::SetSwitchMode { .. }
            | FunctionAction::ResetFunction { .. },
        )
        | Action::Guest(GuestAction::SetPortAttribute { .. } | GuestAction::ScheduleGuest { .. })
        | Action::RealTime(
            RealTimeAction::MakePartition { .. }
            | RealTimeAction::RemovePartition { .. }
            | RealTimeAction::PlaceInterrupts { .. },
        )
        | Action::Boot(BootAction::EnableUnit { .. } | BootAction::SetBootArguments(_))
        | Action::File(FileAction::WriteFile { .. } | FileAction::RemoveFile { .. }) => Vec::new(),
    }
}

/// What the machine does for a guest that runs in real time, before it starts.
fn for_real_time(model: &Model, guest: &GuestName) -> Vec<Aspect> {
    let Some(guest) = model.guests.get(guest).filter(|guest| guest.realtime.is_some()) else {
        return Vec::new();
    };
    let cpus = guest.pin.iter().flat_map(|pin| pin.0.iter().copied().map(Aspect::Cpu));
    [Aspect::Quiet, Aspect::Shares].into_iter().chain(cpus).collect()
}

fn relies_on(machine: &Machine, model: &Model, action: &Action) -> Vec<Aspect> {
    let drive_of = |function: Bdf| machine.drive(function).map(|drive| drive.bdf);
    let pf_of = |function: Bdf| machine.pf(function).map(|pf| pf.bdf).or_else(|| drive_of(function));
    match action {
        Action::Function(FunctionAction::SetVfCount { pf, count }) if *count > 0 => {
            vec![Aspect::Autoprobe(*pf), Aspect::Count(*pf), Aspect::EswitchMode(*pf)]
        }
        Action::Function(FunctionAction::SetEswitchMode { pf, .. }) => vec![Aspect::Count(*pf)],
        Action::Function(FunctionAction::SetVfAttribute { pf, vf, .. }) => {
            let vf = machine.vf(*pf, *vf).map(|(vf, _)| Aspect::Driver(vf.bdf));
            [Aspect::Count(*pf), Aspect::Link(*pf)].into_iter().chain(vf).collect()
        }
        Action::Function(FunctionAction::SetDriver { function, driver, .. }) => {
            let mut all = vec![Aspect::Driver(*function)];
            if let (Some(pf), Some(_)) = (pf_of(*function), driver) {
                all.extend([Aspect::Count(pf), Aspect::Attributes(*function), Aspect::Controller(*function)]);
            }
            let network = driver.as_deref().is_some_and(|driver| driver != VFIO);
            if let (Some(pf), true) = (pf_of(*function), network) {
                // Once its PF is in a guest, that guest keeps it up, and tells when it is.
                match machine.user(pf) {
                    None => all.push(Aspect::Link(pf)),
                    Some(guest) => all.extend([Aspect::Running(guest.clone()), Aspect::Ready(guest.clone())]),
                }
            }
            all
        }
        Action::Function(FunctionAction::ResetFunction { function }) => vec![Aspect::Driver(*function)],
        Action::Drive(action) => {
            let vf = machine.vf(action.drive(), action.vf()).map(|(vf, _)| vf.bdf);
            let own = vf.into_iter().flat_map(|vf| [Aspect::Controller(vf), Aspect::Driver(vf)]);
            let of_others = drive::takes(machine, action).map(|what| Aspect::Left(action.drive(), what));
            [Aspect::Count(action.drive())].into_iter().chain(own).chain(of_others).collect()
        }
        Action::Function(FunctionAction::SetMac { function, .. }) => vec![Aspect::Driver(*function)],
        Action::Function(FunctionAction::Rename { function, .. }) => vec![Aspect::Link(*function)],
        Action::Function(FunctionAction::RestoreInterface { function, .. }) => {
            vec![Aspect::Driver(*function), Aspect::Link(*function)]
        }
        Action::Guest(GuestAction::StartSwitch { guest, nic }) => {
            let definition = machine.definitions.get(guest);
            let uplink =
                definition.and_then(|all| all.nics.iter().find(|found| found.name == *nic)?.uplink_at);
            let of_uplink =
                |at| [Aspect::Link(at), Aspect::Driver(at), Aspect::Attributes(at), Aspect::InterfaceMac(at)];
            [Aspect::Defined(guest.clone())]
                .into_iter()
                .chain(uplink.into_iter().flat_map(of_uplink))
                .collect()
        }
        Action::Guest(GuestAction::MakeTaps { guest, .. }) => vec![Aspect::Defined(guest.clone())],
        Action::Guest(GuestAction::StopSwitch { guest, .. })
        | Action::Guest(GuestAction::RemoveTaps { guest, .. }) => {
            vec![Aspect::There(guest.clone())]
        }
        Action::Guest(GuestAction::UndefineGuest { guest }) => {
            let back_ends = machine.nics(guest).into_iter().map(|nic| Aspect::BackEnd(guest.clone(), nic));
            [Aspect::There(guest.clone())].into_iter().chain(back_ends).collect()
        }
        Action::Guest(GuestAction::StopGuest { guest }) if machine.suspended(guest) => {
            vec![Aspect::Running(guest.clone())]
        }
        Action::Guest(GuestAction::StopGuest { guest })
        | Action::Guest(GuestAction::SuspendGuest { guest }) => {
            let dependents = model.guests.iter().filter(|(_, other)| other.after.contains(guest));
            dependents.map(|(name, _)| Aspect::Running(name.clone())).collect()
        }
        Action::Guest(GuestAction::StartGuest { guest }) => {
            let mut all = vec![Aspect::Defined(guest.clone())];
            for function in machine.functions(guest) {
                all.extend([
                    Aspect::Driver(*function),
                    Aspect::InterfaceMac(*function),
                    Aspect::Link(*function),
                ]);
            }
            all.extend(machine.nics(guest).into_iter().map(|nic| Aspect::BackEnd(guest.clone(), nic)));
            all.extend(after(model, guest));
            all.extend(for_real_time(model, guest));
            all
        }
        Action::Guest(GuestAction::CreateGuest { guest }) => {
            let mut all = vec![Aspect::Defined(guest.clone())];
            for function in machine.functions(guest) {
                all.extend([
                    Aspect::Driver(*function),
                    Aspect::Attributes(*function),
                    Aspect::Controller(*function),
                ]);
            }
            all.extend(machine.nics(guest).into_iter().map(|nic| Aspect::BackEnd(guest.clone(), nic)));
            all
        }
        Action::Guest(GuestAction::ResumeGuest { guest }) => {
            let mut all = vec![Aspect::There(guest.clone()), Aspect::Isolated(guest.clone())];
            all.extend(after(model, guest));
            all.extend(for_real_time(model, guest));
            for pf in machine.functions(guest).iter().filter_map(|function| machine.pf(*function)) {
                let pf = pf.bdf;
                all.push(match machine.user(pf) {
                    Some(holder) => Aspect::Ready(holder.clone()),
                    None => Aspect::Linked(pf, Some(guest.clone())),
                });
            }
            all
        }
        Action::Guest(GuestAction::AwaitGuest { guest, .. }) => vec![Aspect::Running(guest.clone())],
        Action::Function(FunctionAction::AwaitLink { pf, .. }) => vec![Aspect::Link(*pf)],
        Action::RealTime(RealTimeAction::MakePartition { .. }) => vec![Aspect::Quiet],
        Action::Guest(GuestAction::IsolateGuest { guest, on: true, .. }) => {
            vec![Aspect::There(guest.clone()), Aspect::Quiet]
        }
        Action::Guest(GuestAction::ScheduleGuest { guest, .. }) => {
            vec![Aspect::There(guest.clone()), Aspect::Isolated(guest.clone())]
        }
        Action::RealTime(RealTimeAction::MakeResctrlGroup { .. })
        | Action::RealTime(RealTimeAction::RemoveResctrlGroup { .. })
        | Action::RealTime(RealTimeAction::SetSchemata { .. }) => {
            vec![Aspect::Shares]
        }
        // These rely on nothing that a step brings about.
        Action::Function(
            FunctionAction::LeaveAlone { .. }
            | FunctionAction::SetAutoprobe { .. }
            | FunctionAction::SetVfCount { .. }
            | FunctionAction::SetMtu { .. }
            | FunctionAction::SetLink { .. }
            | FunctionAction::AddAddress { .. }
            | FunctionAction::RemoveAddress { .. }
            | FunctionAction::SetSwitchMode { .. },
        )
        | Action::Guest(
            GuestAction::DefineGuest(_)
            | GuestAction::SetPortAttribute { .. }
            | GuestAction::IsolateGuest { on: false, .. },
        )
        | Action::RealTime(
            RealTimeAction::Tune { .. }
            | RealTimeAction::RemovePartition { .. }
            | RealTimeAction::PlaceInterrupts { .. },
        )
        | Action::Boot(BootAction::EnableUnit { .. } | BootAction::SetBootArguments(_))
        | Action::File(FileAction::WriteFile { .. } | FileAction::RemoveFile { .. }) => Vec::new(),
    }
}

/// That those that `guest` comes after run, and are ready.
fn after(model: &Model, guest: &GuestName) -> impl Iterator<Item = Aspect> {
    let after = model.guests.get(guest).into_iter().flat_map(|guest| &guest.after);
    after.flat_map(|before| [Aspect::Running(before.clone()), Aspect::Ready(before.clone())])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps with these needs, by position.
    fn steps(needs: &[&[usize]]) -> Causes {
        let needs: Vec<Vec<usize>> = needs.iter().map(|needs| needs.to_vec()).collect();
        Causes { steps: HashMap::new(), passed: vec![0; needs.len()], needs }
    }

    fn not_needed(causes: &mut Causes, position: usize, all: &[usize]) -> Vec<usize> {
        causes.not_needed(position, all.iter().copied().collect()).into_iter().collect()
    }

    #[test]
    fn a_cause_counts_where_a_need_leads_to_it_over_whatever_else() {
        // 0 <- 1 <- 2 <- 4, 0 <- 3, and 5 needs 4 and 3.
        let mut causes = steps(&[&[], &[0], &[1], &[0], &[2], &[4, 3]]);
        assert_eq!(not_needed(&mut causes, 5, &[0, 1, 2, 3, 4]), [0; 0]);
        assert_eq!(not_needed(&mut causes, 4, &[0, 3]), [3]);
        // The same step again, and one without needs.
        assert_eq!(not_needed(&mut causes, 3, &[1, 2]), [1, 2]);
        assert_eq!(not_needed(&mut causes, 0, &[]), [0; 0]);
    }

    #[test]
    fn a_long_chain_is_followed_to_its_end() {
        let chain: Vec<Vec<usize>> =
            (0..20_000_usize).map(|at| at.checked_sub(1).into_iter().collect()).collect();
        let mut causes = Causes { steps: HashMap::new(), passed: vec![0; chain.len()], needs: chain };
        assert_eq!(not_needed(&mut causes, 19_999, &[0, 10_000]), [0; 0]);
    }
}
