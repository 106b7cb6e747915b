//! The machine with its real-time steps and without them, by turns.
//!
//! What stands of the runs that tuned it says what taking them off means: the inverses of those steps and of no others, so that
//! guests run on. They are carried out as a run of their own, with its journal; putting the steps on again is taking that run
//! back. A Penstock that is killed in between leaves a run that `penstock undo` takes back.

use std::collections::BTreeSet;

use penstock_apply::{
    Mode,
    history::{KnownRun, Phase, Purpose, RunState, Runs, StoreError, recovery::RunToUndo},
    journal::{Entry, Journal},
};
use penstock_host::{chain, interrupt};
use penstock_measure::latency::machine::Toggle;
use penstock_model::{Bdf, CpuSet};
use penstock_plan::{Action, GuestAction, Plan, RealTimeAction, Step, StepId, undo};

use crate::{
    failure::{Failure, Status},
    model_file::ModelFile,
    runtime::machine::Machine,
};

/// Takes the real-time steps of earlier runs off and puts them on again.
pub struct Steps<'a> {
    machine: &'a Machine,
    file: &'a ModelFile,
    /// What takes them off, as it was found at first.
    off: Plan,
    /// The run that took them off, while they are.
    taken_off: Option<KnownRun>,
    /// Why they could not be put on again, as it was told.
    told: Option<String>,
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
    let mut applied_runs = Vec::new();
    for run in all.iter().filter(|run| matches!(run.record.purpose, Purpose::Apply)) {
        let applied_run = runs.applied_run(run)?;
        if applied_run.state.phase != Phase::Nothing {
            applied_runs.push(applied_run);
        }
    }
    let plans: Vec<(&Plan, Vec<StepId>)> = applied_runs
        .iter()
        .map(|applied_run| (&applied_run.plan, applied_run.state.standing().map(|(id, _)| id).collect()))
        .collect();
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
        Ok(Steps { machine, file, off: off_now(machine, file)?, taken_off: None, told: None })
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
        let applied_run = runs.applied_run(&run)?;
        if applied_run.state.phase == Phase::Nothing {
            self.taken_off = None;
            return Ok(());
        }
        if let Some(why) = changed_since(&runs, &run, &applied_run.plan)? {
            // It is another's machine by now: who looks what tunes it is not to take this for a part of that.
            leave_off(&run, &applied_run.state, &why)?;
            self.taken_off = None;
            let model = &self.file.source.name;
            let text = format!(
                "{}; the rest stays off, too: `penstock apply {model}` tunes the machine again",
                line(why)
            );
            return Err(Failure::new(Status::DoesNotHold, text));
        }
        let inventory = self.machine.inventory()?;
        let taken = [RunToUndo { id: run.id(), plan: &applied_run.plan, state: &applied_run.state }];
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

/// Records of the run that took steps off that they stay so, because of `why`: nothing of it is there to be taken back.
fn leave_off(run: &KnownRun, state: &RunState, why: &Failure) -> Result<(), Failure> {
    let left = |(step, _): (StepId, _)| {
        let anothers = Some(why.in_one_line());
        Entry::Undone { step, error: None, anothers }
    };
    let left: Vec<Entry> = state.standing().map(left).collect();
    let recorded = run.journal()?.record(&left, true);
    recorded.map_err(StoreError::from)?;
    Ok(run.release()?)
}

/// Why what `off`, the plan of `run`, took off is not put on again: somebody has set the same since.
fn changed_since(runs: &Runs, run: &KnownRun, off: &Plan) -> Result<Option<Failure>, Failure> {
    let ours: BTreeSet<String> = off.steps.iter().flat_map(|step| sets(&step.action)).collect();
    let (all, _) = runs.list()?;
    for later in all.iter().filter(|later| later.id() > run.id()) {
        // What came after ours and was taken back has left all as ours did.
        let taken_back = match &later.record.purpose {
            Purpose::Undo(runs) => runs.iter().find(|taken| **taken < run.id()),
            _ => None,
        };
        if matches!(later.record.purpose, Purpose::Undo(_)) && taken_back.is_none() {
            continue;
        }
        let unknown = |error: StoreError| {
            let (id, ours) = (later.id(), run.id());
            let text = format!(
                "whether run {id} has set the same meanwhile is not known, since it cannot be read: {}",
                chain(&error)
            );
            Failure::new(Status::DoesNotHold, text)
                .hint(format!("`penstock undo {ours}` tunes the machine all the same"))
        };
        let applied_run = runs.applied_run(later).map_err(unknown)?;
        let stands = |id: StepId| applied_run.state.standing().any(|(standing, _)| standing == id);
        let steps = applied_run.plan.steps.iter().filter(|step| stands(step.id));
        let Some(same) = steps.flat_map(|step| sets(&step.action)).find(|set| ours.contains(set)) else {
            continue;
        };
        let (id, who) = (later.id(), &later.record.who);
        let text = match taken_back {
            Some(taken) => {
                format!(
                    "run {id} of {who} has taken run {taken} back meanwhile, which had set {same}: that stays off"
                )
            }
            None => format!(
                "run {id} of {who} has set {same} meanwhile, and that is not overwritten: `penstock undo {id}` takes it back"
            ),
        };
        return Ok(Some(Failure::new(Status::DoesNotHold, text)));
    }
    Ok(None)
}

/// What an action sets, in words: two that set the same get in each other's way.
fn sets(action: &Action) -> Vec<String> {
    let cpus = |cpus: &CpuSet| cpus.0.iter().map(|cpu| format!("the partition of CPU {cpu}")).collect();
    let interrupts = |function: &Bdf| format!("the interrupts of {function}");
    let more: Vec<String> = match action {
        Action::RealTime(RealTimeAction::Tune { function, .. }) => function.iter().map(interrupts).collect(),
        Action::RealTime(RealTimeAction::PlaceInterrupts { functions, .. }) => {
            functions.iter().map(interrupts).collect()
        }
        Action::RealTime(
            RealTimeAction::MakePartition { cpus: of, .. } | RealTimeAction::RemovePartition { cpus: of, .. },
        )
        | Action::Guest(GuestAction::IsolateGuest { cpus: of, .. }) => cpus(of),
        _ => Vec::new(),
    };
    let own = match action {
        Action::RealTime(RealTimeAction::Tune { knob, .. }) => Some(knob.to_string()),
        Action::RealTime(
            RealTimeAction::MakeResctrlGroup { group, .. }
            | RealTimeAction::RemoveResctrlGroup { group, .. }
            | RealTimeAction::SetSchemata { group, .. },
        ) => Some(match group.as_str() {
            "" => "the shares of resctrl's default group".to_owned(),
            name => format!("the shares of resctrl group {name}"),
        }),
        action => action.guest().map(|guest| format!("guest {guest}")),
    };
    own.into_iter().chain(more).collect()
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
        done.map_err(|failure| {
            let why = line(failure);
            self.told = Some(why.clone());
            format!("the machine could not be {what}: {why}")
        })
    }

    fn restore(&mut self) -> Result<(), String> {
        let Some(run) = self.taken_off.as_ref().map(KnownRun::id) else { return Ok(()) };
        interrupt::set_aside(|| self.put_on()).map_err(|failure| {
            let why = line(failure);
            // Once is enough.
            let why = if self.told.as_ref() == Some(&why) { String::new() } else { format!(": {why}") };
            match self.taken_off {
                Some(_) => format!(
                    "the machine is not tuned as it was found{why}; `penstock undo {run}` puts it right"
                ),
                None => format!("the machine is not tuned as it was found{why}"),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use penstock_apply::{
        Journal,
        history::{RunId, RunRecord},
        journal::{Ending, Entry},
    };
    use penstock_model::inventory::tuning::{Knob, Value};
    use penstock_plan::{Fact, FunctionAction};

    use super::*;
    use crate::runtime::machine::runs::who;

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

    fn tune(knob: Knob, to: i64) -> Action {
        RealTimeAction::Tune { knob, to: Value::Number(to), function: None }.into()
    }

    /// A run of one step that was done.
    fn done(runs: &Runs, purpose: Purpose, action: Action, inverse: Action) -> KnownRun {
        let id = StepId(1);
        let plan =
            Plan { steps: vec![step(1, action.clone(), Some(inverse.clone()), &[])], ..Plan::default() };
        let run = runs.create(RunRecord::new(purpose, who()), &plan, None).unwrap();
        let entries = [
            Entry::Intent { step: id, action, inverse: Some(inverse) },
            Entry::Begun { steps: vec![id] },
            Entry::Outcome { step: id, outcome: Ending::Done, detail: None },
            Entry::End { applied: true },
        ];
        run.journal().unwrap().record(&entries, true).unwrap();
        run
    }

    #[test]
    fn what_was_taken_off_is_put_on_unless_somebody_has_set_the_same_since() {
        let (knob, other) = (Knob::ResumeLatency(2), Knob::ResumeLatency(3));
        let vfs = |count| FunctionAction::SetVfCount { pf: "04:00.0".parse().unwrap(), count }.into();
        let cases: [(&str, Purpose, Action, Action, Option<&str>); 6] = [
            ("another knob", Purpose::Apply, tune(other, 1), tune(other, 0), None),
            ("no knob at all", Purpose::Apply, vfs(2), vfs(0), None),
            (
                "the same",
                Purpose::Apply,
                tune(knob, 7),
                tune(knob, 0),
                Some("`penstock undo 3` takes it back"),
            ),
            (
                "what had tuned it is taken back",
                Purpose::Undo(vec![RunId(1)]),
                tune(knob, 0),
                tune(knob, 1),
                Some("has taken run 1 back meanwhile"),
            ),
            ("ours itself, in part", Purpose::Undo(vec![RunId(2)]), tune(knob, 1), tune(knob, 0), None),
            ("one that came after ours", Purpose::Undo(vec![RunId(9)]), tune(knob, 0), tune(knob, 7), None),
        ];
        for (what, purpose, action, inverse, wanted) in cases {
            let directory = tempfile::tempdir().unwrap();
            let runs = Runs::new(directory.path(), None);
            done(&runs, Purpose::Apply, tune(knob, 1), tune(knob, 0));
            let ours = done(&runs, Purpose::Apply, tune(knob, 0), tune(knob, 1));
            let off = runs.applied_run(&ours).unwrap().plan;
            assert!(changed_since(&runs, &ours, &off).unwrap().is_none(), "{what}");
            done(&runs, purpose, action, inverse);
            let why = changed_since(&runs, &ours, &off).unwrap().map(|why| why.in_one_line());
            assert_eq!(why.is_some(), wanted.is_some(), "{what}: {why:?}");
            assert!(why.unwrap_or_default().contains(wanted.unwrap_or_default()), "{what}");
            if wanted.is_some() {
                let why = changed_since(&runs, &ours, &off).unwrap().unwrap();
                leave_off(&ours, &runs.state(&ours), &why).unwrap();
                assert_eq!(runs.state(&ours).phase, Phase::Nothing, "{what}");
            }
        }
    }

    #[test]
    fn a_later_run_that_cannot_be_read_is_named_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let runs = Runs::new(directory.path(), None);
        let knob = Knob::ResumeLatency(2);
        let ours = done(&runs, Purpose::Apply, tune(knob, 0), tune(knob, 1));
        let off = runs.applied_run(&ours).unwrap().plan;
        let later = done(&runs, Purpose::Apply, tune(knob, 7), tune(knob, 0));
        penstock_host::files::write_atomic(later.directory.join("plan.json"), "{").unwrap();
        let why = changed_since(&runs, &ours, &off).unwrap_err();
        assert!(why.in_one_line().contains("whether run 2 has set the same"), "{}", why.in_one_line());
        assert!(why.hints[0].contains("`penstock undo 1`"), "{:?}", why.hints);
    }
}
