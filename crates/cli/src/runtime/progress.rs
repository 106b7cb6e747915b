//! How far a run on this machine is: kept in a file while it lasts, so that `penstock status` can tell who waits for what.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use penstock_apply::{Mode, RunProgress, journal::Ending, runner::StepReport};
use penstock_host::{files, running::Running};
use penstock_model::{Bdf, GuestName, NicName};
use penstock_plan::{Action, ActionTimeLimit, FunctionAction, GuestAction, Plan, Step, StepId};
use serde::{Deserialize, Serialize};

/// The file is not written more often than this, but for what takes long.
const OFTEN: Duration = Duration::from_millis(100);

/// How far a run is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Progress {
    /// Who is at it.
    pub process: Running,
    /// What it does: "applying", "stopping guests", "taking back".
    pub doing: String,
    /// Since when, in milliseconds since 1970.
    pub since: u64,
    /// How many steps the plan has.
    pub steps: usize,
    /// How many of them have come out one way or the other.
    pub done: usize,
    /// The step that was begun last, and what it does.
    pub at: Option<(StepId, String)>,
    /// What each guest that is not as it is to be waits for.
    pub guests: BTreeMap<GuestName, Vec<Wait>>,
    /// Those of the guests that are not there any more at the end: their definitions are removed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub leaving: BTreeSet<GuestName>,
}

/// A step that a guest waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Wait {
    /// The number of the step.
    pub step: StepId,
    /// What it does or waits for, in words: "link of NET1 (0000:02:00.0)".
    pub what: String,
    /// Why it is needed.
    pub reason: String,
    /// When it was begun, in milliseconds since 1970; `None` when its turn has not come.
    pub since: Option<u64>,
    /// When it is given up, in milliseconds since 1970, for what waits for an event.
    pub until: Option<u64>,
}

/// What is known of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing is being changed.
    Nothing,
    /// It goes on.
    Running(Progress),
    /// Whoever was at it died in the middle.
    Died(Progress),
}

/// Reads the file at `path`. One that cannot be read, or makes no sense, tells nothing.
pub fn read(path: &std::path::Path) -> Found {
    let Some(progress) =
        files::read(path).ok().and_then(|bytes| serde_json::from_slice::<Progress>(&bytes).ok())
    else {
        return Found::Nothing;
    };
    if progress.process.is_alive() { Found::Running(progress) } else { Found::Died(progress) }
}

/// Milliseconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// An observer that keeps the file, and hands everything on to another. The file is gone when this is dropped.
pub struct Kept<'a> {
    next: &'a mut dyn RunProgress,
    path: PathBuf,
    progress: Option<Progress>,
    plan: Known,
    /// The steps that were begun and have not come out, with when they were begun.
    begun: BTreeMap<StepId, u64>,
    /// The steps that need not be waited for any more.
    over: HashSet<StepId>,
    /// The guests that nothing more is done for.
    given_up: BTreeSet<GuestName>,
    written: Option<Instant>,
}

/// What is needed of a plan.
struct Known {
    nics: HashMap<Bdf, NicName>,
    steps: Vec<KnownStep>,
    /// For each guest the steps, by their place, that must be over before it is as it is to be; in the plan's order.
    of_guests: BTreeMap<GuestName, Vec<usize>>,
}

struct KnownStep {
    id: StepId,
    action: Action,
    reason: String,
}

impl<'a> Kept<'a> {
    /// Keeps how far `plan` is in the file `path`, and tells `next` too. Nothing is written before the first step begins:
    /// then the caller holds the machine's lock.
    pub fn new(next: &'a mut dyn RunProgress, plan: &Plan, mode: Mode, path: PathBuf) -> Kept<'a> {
        let doing = match mode {
            Mode::Apply => "applying",
            Mode::TearDown => "stopping guests",
            Mode::Undo => "taking back what was done",
        };
        let progress = Running::this().map(|process| Progress {
            process,
            doing: doing.to_owned(),
            since: now(),
            steps: plan.steps.len(),
            done: 0,
            at: None,
            guests: BTreeMap::new(),
            leaving: leaving(plan),
        });
        Kept {
            next,
            path,
            progress,
            plan: Known::of(plan),
            begun: BTreeMap::new(),
            over: HashSet::new(),
            given_up: BTreeSet::new(),
            written: None,
        }
    }

    /// Writes the file, unless that was just done and this can wait.
    fn write(&mut self, at_once: bool) {
        if !at_once && self.written.is_some_and(|written| written.elapsed() < OFTEN) {
            return;
        }
        let Some(progress) = &mut self.progress else { return };
        progress.done = self.over.len();
        progress.guests = self.plan.waits(&self.begun, &self.over, &self.given_up);
        // It is only told to others: a full disk must not end a run.
        if let Ok(text) = serde_json::to_vec(progress) {
            let _ = files::write_atomic(&self.path, text);
        }
        self.written = Some(Instant::now());
    }
}

impl Known {
    fn of(plan: &Plan) -> Known {
        let places: HashMap<StepId, usize> =
            plan.steps.iter().enumerate().map(|(place, step)| (step.id, place)).collect();
        let mut of_guests: BTreeMap<GuestName, Vec<usize>> = BTreeMap::new();
        for (place, step) in plan.steps.iter().enumerate() {
            if let Some(guest) = step.guest.as_ref().or(step.action.guest()) {
                of_guests.entry(guest.clone()).or_default().push(place);
            }
        }
        for needed in of_guests.values_mut() {
            let mut seen: BTreeSet<usize> = needed.iter().copied().collect();
            while let Some(place) = needed.pop() {
                let needs = plan.steps[place].needs.iter().filter_map(|need| places.get(need));
                needed.extend(needs.filter(|need| seen.insert(**need)));
            }
            *needed = seen.into_iter().collect();
        }
        let known =
            |step: &Step| KnownStep { id: step.id, action: step.action.clone(), reason: step.reason.clone() };
        Known {
            nics: plan.nics.iter().map(|(name, pf)| (*pf, name.clone())).collect(),
            steps: plan.steps.iter().map(known).collect(),
            of_guests,
        }
    }

    /// What each unfinished guest waits for: those of its steps that were begun; when none was, the first that it still
    /// needs.
    fn waits(
        &self,
        begun: &BTreeMap<StepId, u64>,
        over: &HashSet<StepId>,
        given_up: &BTreeSet<GuestName>,
    ) -> BTreeMap<GuestName, Vec<Wait>> {
        let mut all = BTreeMap::new();
        for (guest, needed) in self.of_guests.iter().filter(|(guest, _)| !given_up.contains(*guest)) {
            let mut open =
                needed.iter().map(|place| &self.steps[*place]).filter(|step| !over.contains(&step.id));
            let Some(first) = open.next() else { continue };
            let wait = |step: &KnownStep, since: Option<u64>| Wait {
                step: step.id,
                what: self.words(&step.action),
                reason: step.reason.clone(),
                since,
                until: since
                    .zip(within(&step.action))
                    .map(|(since, within)| since + u64::from(within) * 1000),
            };
            let under_way = std::iter::once(first).chain(open);
            let mut waits: Vec<Wait> =
                under_way.filter_map(|step| Some(wait(step, Some(*begun.get(&step.id)?)))).collect();
            if waits.is_empty() {
                waits.push(wait(first, None));
            }
            all.insert(guest.clone(), waits);
        }
        all
    }

    /// The guests that a step is part of, and those that need it: when it fails, none of them becomes as it is to be.
    fn who_needs(&self, step: StepId) -> Vec<GuestName> {
        let needs = |needed: &Vec<usize>| needed.iter().any(|place| self.steps[*place].id == step);
        self.of_guests.iter().filter(|(_, needed)| needs(needed)).map(|(guest, _)| guest.clone()).collect()
    }

    /// What is waited for, in the model's words where it has some.
    fn words(&self, action: &Action) -> String {
        match action {
            Action::Function(FunctionAction::AwaitLink { pf, .. }) => match self.nics.get(pf) {
                Some(nic) => format!("link of {nic} ({pf})"),
                None => format!("link of {pf}"),
            },
            Action::Guest(GuestAction::AwaitGuest { guest, .. }) => format!("guest {guest} to be ready"),
            Action::Guest(GuestAction::CreateGuest { guest }) => format!("guest {guest} to be made"),
            Action::Guest(GuestAction::StartGuest { guest }) => format!("guest {guest} to be started"),
            Action::Guest(GuestAction::ResumeGuest { guest }) => format!("guest {guest} to be let run"),
            Action::Guest(GuestAction::StopGuest { guest }) => format!("guest {guest} to be stopped"),
            other => other.to_string(),
        }
    }
}

/// The guests whose definitions a plan removes, and does not write anew.
fn leaving(plan: &Plan) -> BTreeSet<GuestName> {
    let mut leaving = BTreeSet::new();
    for step in &plan.steps {
        match &step.action {
            Action::Guest(GuestAction::UndefineGuest { guest }) => {
                leaving.insert(guest.clone());
            }
            Action::Guest(GuestAction::DefineGuest(definition)) => {
                leaving.remove(&definition.guest);
            }
            _ => {}
        }
    }
    leaving
}

/// How many seconds a wait may last.
fn within(action: &Action) -> Option<u32> {
    match action.time_limit() {
        ActionTimeLimit::Wait(within) => Some(within),
        ActionTimeLimit::Step | ActionTimeLimit::Guest => None,
    }
}

impl RunProgress for Kept<'_> {
    fn started(&mut self, step: &Step) {
        self.begun.insert(step.id, now());
        if let Some(progress) = &mut self.progress {
            progress.at = Some((step.id, step.action.to_string()));
        }
        // Nothing else may come for long.
        self.write(within(&step.action).is_some() || step.action.guest().is_some());
        self.next.started(step);
    }

    fn finished(&mut self, step: &Step, report: &StepReport) {
        self.begun.remove(&step.id);
        self.over.insert(step.id);
        if report.outcome == Ending::Failed {
            self.given_up.extend(self.plan.who_needs(step.id));
        }
        self.write(false);
        self.next.finished(step, report);
    }

    fn rolling_back(&mut self, steps: usize, why: &str) {
        self.next.rolling_back(steps, why);
        self.write(true);
    }

    fn undone(&mut self, step: &Step, error: Option<&str>) {
        self.begun.remove(&step.id);
        self.next.undone(step, error);
        self.write(false);
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if self.written.is_some() {
            let _ = files::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use penstock_plan::Fact;

    use super::*;

    /// NET1's link, then rt-2 which needs it, then box which needs rt-2; `other` needs nobody.
    fn plan() -> Plan {
        let guest = |name: &str| name.parse::<GuestName>().unwrap();
        let pf: Bdf = "0000:02:00.0".parse().unwrap();
        let actions: [(Action, &[u32], Option<&str>); 5] = [
            (GuestAction::CreateGuest { guest: guest("rt-2") }.into(), &[], Some("rt-2")),
            (FunctionAction::AwaitLink { pf, within: 15 }.into(), &[], None),
            (GuestAction::ResumeGuest { guest: guest("rt-2") }.into(), &[1, 2], Some("rt-2")),
            (GuestAction::StartGuest { guest: guest("box") }.into(), &[3], Some("box")),
            (GuestAction::StartGuest { guest: guest("other") }.into(), &[], Some("other")),
        ];
        let steps = actions.into_iter().zip(1..).map(|((action, needs, of), id)| Step {
            id: StepId(id),
            postcondition: Fact::after(&action),
            action,
            reason: "because".to_owned(),
            needs: needs.iter().copied().map(StepId).collect(),
            inverse: None,
            best_effort: false,
            guest: of.map(guest),
        });
        Plan {
            steps: steps.collect(),
            nics: [("NET1".parse().unwrap(), pf)].into_iter().collect(),
            ..Plan::default()
        }
    }

    fn report(step: &Step, outcome: Ending) -> StepReport {
        let action = step.action.to_string();
        StepReport { step: step.id, action, outcome, detail: None, best_effort: false, seconds: 0.0 }
    }

    fn running(path: &std::path::Path) -> Progress {
        match read(path) {
            Found::Running(progress) => progress,
            other => panic!("{other:?}"),
        }
    }

    fn whats(progress: &Progress) -> Vec<String> {
        let wait = |(guest, waits): (&GuestName, &Vec<Wait>)| {
            let whats: Vec<&str> = waits.iter().map(|wait| wait.what.as_str()).collect();
            format!("{guest}: {}", whats.join(" + "))
        };
        progress.guests.iter().map(wait).collect()
    }

    #[test]
    fn who_waits_for_what() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("progress.json");
        let (plan, mut nobody) = (plan(), ());
        let mut kept = Kept::new(&mut nobody, &plan, Mode::Apply, path.clone());
        assert_eq!(read(&path), Found::Nothing, "not before the first step");
        kept.started(&plan.steps[0]);
        let making = "guest rt-2 to be made";
        assert_eq!(
            whats(&running(&path)),
            [
                format!("box: {making}"),
                "other: guest other to be started".to_owned(),
                format!("rt-2: {making}")
            ]
        );
        kept.finished(&plan.steps[0], &report(&plan.steps[0], Ending::Done));
        kept.started(&plan.steps[1]);
        let progress = running(&path);
        let link = "link of NET1 (0000:02:00.0)";
        assert_eq!(
            whats(&progress),
            [format!("box: {link}"), "other: guest other to be started".to_owned(), format!("rt-2: {link}")]
        );
        assert_eq!((progress.done, progress.at.as_ref().unwrap().0), (1, StepId(2)));
        let wait = &progress.guests[&"rt-2".parse::<GuestName>().unwrap()][0];
        assert_eq!(wait.until.unwrap() - wait.since.unwrap(), 15_000);
        assert!(progress.guests[&"other".parse::<GuestName>().unwrap()][0].since.is_none(), "not its turn");
        kept.finished(&plan.steps[1], &report(&plan.steps[1], Ending::Done));
        kept.started(&plan.steps[2]);
        kept.finished(&plan.steps[2], &report(&plan.steps[2], Ending::Failed));
        kept.rolling_back(1, "it failed");
        assert_eq!(
            whats(&running(&path)),
            ["other: guest other to be started"],
            "box needs rt-2, which failed"
        );
        kept.started(&plan.steps[4]);
        kept.finished(&plan.steps[4], &report(&plan.steps[4], Ending::Done));
        kept.rolling_back(0, "to write at once");
        assert!(running(&path).guests.is_empty());
        drop(kept);
        assert_eq!(read(&path), Found::Nothing, "gone with the run");
    }

    #[test]
    fn guests_whose_definitions_go_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("progress.json");
        let (mut plan, mut nobody) = (plan(), ());
        let guest: GuestName = "other".parse().unwrap();
        let removed = GuestAction::UndefineGuest { guest: guest.clone() }.into();
        plan.steps[4] =
            Step { postcondition: Fact::after(&removed), action: removed, ..plan.steps[4].clone() };
        let mut kept = Kept::new(&mut nobody, &plan, Mode::Undo, path.clone());
        kept.started(&plan.steps[0]);
        let progress = running(&path);
        assert_eq!(progress.leaving, BTreeSet::from([guest]));
        assert_eq!(progress.guests.len(), 3);
    }

    #[test]
    fn what_a_dead_process_left_is_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("progress.json");
        let (plan, mut nobody) = (plan(), ());
        let mut kept = Kept::new(&mut nobody, &plan, Mode::Apply, path.clone());
        kept.started(&plan.steps[1]);
        let mut left = running(&path);
        left.process.started += 1;
        files::write_atomic(&path, serde_json::to_vec(&left).unwrap()).unwrap();
        assert_eq!(read(&path), Found::Died(left));
        files::write_atomic(&path, "{").unwrap();
        assert_eq!(read(&path), Found::Nothing);
    }

    #[test]
    fn many_steps_are_not_slowed_down() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("progress.json");
        let mut plan = plan();
        let pf: Bdf = "0000:02:00.0".parse().unwrap();
        let first =
            Step { action: FunctionAction::ResetFunction { function: pf }.into(), ..plan.steps[1].clone() };
        plan.steps = (1..=500).map(|id| Step { id: StepId(id), guest: None, ..first.clone() }).collect();
        let mut nobody = ();
        let mut kept = Kept::new(&mut nobody, &plan, Mode::Apply, path.clone());
        let began = Instant::now();
        let mut written = 0;
        for step in &plan.steps {
            let before = kept.written;
            kept.started(step);
            kept.finished(step, &report(step, Ending::Done));
            written += usize::from(kept.written != before);
        }
        let most = 1 + began.elapsed().as_millis() / OFTEN.as_millis();
        assert!(written as u128 <= most, "{written} writes in {:?}", began.elapsed());
    }
}
