//! The machine with its real-time steps and without them, by turns.
//!
//! What stands of the runs that tuned it says what taking them off means: the inverses of those steps and of no others, so that
//! guests run on. They are carried out as a run of their own, with its journal; putting the steps on again is taking that run
//! back. A Penstock that is killed in between leaves a run that `penstock undo` takes back.

use penstock_apply::{
    Mode,
    history::{KnownRun, Phase, Purpose, recovery::RunToUndo},
};
use penstock_host::interrupt;
use penstock_measure::latency::machine::Toggle;
use penstock_plan::{Plan, Step, StepId, undo};

use crate::{
    failure::{Failure, Status},
    machine::Machine,
    model_file::ModelFile,
};

/// Takes the real-time steps of earlier runs off and puts them on again.
pub struct Steps<'a> {
    machine: &'a Machine,
    file: &'a ModelFile,
    /// What takes them off, as it was found at first.
    off: Plan,
    /// The run that took them off, while they are.
    taken_off: Option<KnownRun>,
}

/// The real-time steps of plans, given oldest first with what stands of each, as one plan.
fn realtime_of(plans: &[(&Plan, Vec<StepId>)]) -> Plan {
    let mut all = Plan::default();
    for (plan, standing) in plans {
        all.nics.extend(plan.nics.iter().map(|(name, bdf)| (name.clone(), *bdf)));
        let earlier: Vec<StepId> = all.steps.iter().map(|step| step.id).collect();
        let mut names: Vec<(StepId, StepId)> = Vec::new();
        let ours = plan.steps.iter().filter(|step| standing.contains(&step.id) && step.action.is_realtime());
        for step in ours {
            let id = StepId(u32::try_from(all.steps.len() + 1).unwrap_or(u32::MAX));
            let own = step.needs.iter().filter_map(|need| names.iter().find(|(from, _)| from == need));
            let needs = earlier.iter().copied().chain(own.map(|(_, to)| *to)).collect();
            names.push((step.id, id));
            // It concerns them all: a guest that fails alone would leave a machine that is half untuned.
            all.steps.push(Step { id, needs, guest: None, ..step.clone() });
        }
    }
    all
}

/// What takes off all that stands of the runs that tuned this machine; an error when nothing does.
fn off_now(machine: &Machine, file: &ModelFile) -> Result<Plan, Failure> {
    let runs = machine.runs();
    let (all, _) = runs.list()?;
    let mut deeds = Vec::new();
    for run in all.iter().filter(|run| matches!(run.record.purpose, Purpose::Apply)) {
        let deed = runs.deeds(run)?;
        if deed.state.phase != Phase::Nothing {
            deeds.push(deed);
        }
    }
    let plans: Vec<(&Plan, Vec<StepId>)> =
        deeds.iter().map(|deed| (&deed.plan, deed.state.standing().map(|(id, _)| id).collect())).collect();
    let off = undo(&realtime_of(&plans));
    if off.steps.is_empty() {
        let text = "this machine cannot be untuned: no run of Penstock has tuned it since it started";
        return Err(Failure::new(Status::DoesNotHold, text)
            .hint(format!("tune it first: `penstock apply {}`", file.source.name)));
    }
    Ok(off)
}

impl<'a> Steps<'a> {
    /// Those of all runs of which something stands on this machine.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(machine: &'a Machine, file: &'a ModelFile) -> Result<Steps<'a>, Failure> {
        Ok(Steps { machine, file, off: off_now(machine, file)?, taken_off: None })
    }

    /// What is taken off, in words.
    pub fn in_words(&self) -> Vec<String> {
        self.off.steps.iter().map(|step| step.action.to_string()).collect()
    }

    fn take_off(&mut self) -> Result<(), Failure> {
        let alone = self.machine.lock()?;
        // Others may have changed the machine while the lock was free.
        let off = off_now(self.machine, self.file)?;
        let begun = self.machine.begin(alone, &off, Mode::Apply, self.file, None)?;
        self.taken_off = begun.run.clone();
        self.machine.carry_out(begun, &off, Mode::Apply, &mut ())??;
        Ok(())
    }

    fn put_on(&mut self) -> Result<(), Failure> {
        let Some(run) = self.taken_off.clone() else { return Ok(()) };
        let alone = self.machine.lock()?;
        let runs = self.machine.runs();
        let deeds = runs.deeds(&run)?;
        if deeds.state.phase == Phase::Nothing {
            self.taken_off = None;
            return Ok(());
        }
        let (all, _) = runs.list()?;
        let is_later = |later: &&KnownRun| {
            later.id() > run.id()
                && !matches!(later.record.purpose, Purpose::Undo(_) | Purpose::Persist)
                && runs.state(later).phase != Phase::Nothing
        };
        if let Some(later) = all.iter().find(is_later) {
            let text = format!(
                "run {} of {} has changed the machine meanwhile: what it did is not overwritten",
                later.id(),
                later.record.who
            );
            return Err(Failure::new(Status::DoesNotHold, text));
        }
        let inventory = self.machine.inventory()?;
        let taken = [RunToUndo { id: run.id(), plan: &deeds.plan, state: &deeds.state }];
        let way = self.machine.way_back(&taken, &inventory)?;
        let begun = self.machine.begin_undo(alone, std::slice::from_ref(&run), &way);
        self.machine.carry_out(begun, &way.plan, Mode::Undo, &mut ())??;
        if self.machine.runs().state(&run).phase != Phase::Nothing {
            let text = "some of its real-time steps could not be put on again".to_owned();
            return Err(Failure::new(Status::HalfWay, text));
        }
        self.taken_off = None;
        Ok(())
    }
}

/// A failure in one line.
fn line(failure: Failure) -> String {
    match &failure.error {
        Some(_) => failure.in_one_line(),
        None => "it was interrupted".to_owned(),
    }
}

impl Toggle for Steps<'_> {
    fn set(&mut self, tuned: bool) -> Result<(), String> {
        let (done, what) = match (tuned, &self.taken_off) {
            (true, Some(_)) => (self.put_on(), "tuned again"),
            (false, None) => (self.take_off(), "untuned"),
            _ => return Ok(()),
        };
        done.map_err(|failure| format!("the machine could not be {what}: {}", line(failure)))
    }

    fn restore(&mut self) -> Result<(), String> {
        let Some(run) = self.taken_off.as_ref().map(KnownRun::id) else { return Ok(()) };
        interrupt::set_aside(|| self.put_on()).map_err(|failure| {
            format!(
                "the machine is not tuned as it was found: {}; `penstock undo {run}` puts it right",
                line(failure)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use penstock_plan::{Action, Fact, GuestAction, RealTimeAction};

    use super::*;

    fn step(id: u32, action: Action, inverse: Option<Action>, needs: &[u32]) -> Step {
        Step {
            id: StepId(id),
            postcondition: Fact::after(&action),
            action,
            inverse,
            needs: needs.iter().map(|need| StepId(*need)).collect(),
            reason: "because".into(),
            best_effort: false,
            guest: None,
        }
    }

    fn partition(cpus: &str, on: bool) -> Action {
        let (group, cpus) = ("penstock".to_owned(), cpus.parse().unwrap());
        if on {
            RealTimeAction::MakePartition { group, cpus }.into()
        } else {
            RealTimeAction::RemovePartition { group, cpus }.into()
        }
    }

    fn isolate(on: bool) -> Action {
        GuestAction::IsolateGuest { guest: "rt".parse().unwrap(), cpus: "3".parse().unwrap(), on }.into()
    }

    #[test]
    fn only_what_stands_and_only_what_tunes_is_taken_off_the_last_first() {
        let start = GuestAction::StartGuest { guest: "rt".parse().unwrap() }.into();
        let stop = GuestAction::StopGuest { guest: "rt".parse().unwrap() }.into();
        let first = Plan {
            steps: vec![step(1, partition("2", true), Some(partition("2", false)), &[])],
            ..Plan::default()
        };
        let second = Plan {
            steps: vec![
                step(1, start, Some(stop), &[]),
                step(2, isolate(true), Some(isolate(false)), &[1]),
                step(3, partition("1", true), Some(partition("1", false)), &[2]),
            ],
            ..Plan::default()
        };
        let all = realtime_of(&[(&first, vec![StepId(1)]), (&second, vec![StepId(1), StepId(2)])]);
        let off = undo(&all);
        let actions: Vec<&Action> = off.steps.iter().map(|step| &step.action).collect();
        assert_eq!(actions, [&isolate(false), &partition("2", false)]);
        // What takes them off can be taken back: that is what puts them on.
        let on: Vec<Action> = undo(&off).steps.into_iter().map(|step| step.action).collect();
        assert_eq!(on, [partition("2", true), isolate(true)]);
        assert_eq!(off.steps[1].needs, [StepId(1)], "in this order and in no other");
    }
}
