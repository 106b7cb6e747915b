//! A plan while it is being made: numbers steps, and works out which earlier ones each needs.

use std::collections::{BTreeSet, HashMap};

use penstock_model::{Bdf, GuestName, NicName, inventory::Manager};

use crate::{Action, Fact, Step, StepId};

/// Something that steps establish and later ones may need.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// A manager of interfaces leaves functions of a PF alone.
    LeftAlone(Manager, Bdf),
    /// Driver autoprobe of a PF is off.
    Autoprobe(Bdf),
    /// A PF has its VFs.
    Vfs(Bdf),
    /// A function's interface is as wanted so far.
    Interface(Bdf),
    /// A VF's attributes are set.
    Attributes(Bdf),
    /// The controller of a drive's VF is as wanted so far.
    Controller(Bdf),
    /// What VFs of a drive had and others may have is free.
    GivenUp(Bdf),
    /// The VFs of a drive have what they are to have.
    Given(Bdf),
    /// A function has its driver, or lost it.
    Driver(Bdf),
    /// A guest is defined, or no longer.
    Defined(GuestName),
    /// What carries the frames of a NIC that a VM owns is there (its embedded switch, or its taps), or no longer.
    BackEnd(GuestName, NicName),
    /// A guest is there: it runs, or is a VM that is suspended; or it is there no longer.
    Running(GuestName),
    /// A guest is ready. Of one that nothing waits for, that it runs is all that there is to need.
    Ready(GuestName),
    /// A PF's link was waited for, for a guest.
    Linked(Bdf, GuestName),
    /// A file is as the model has it made.
    File(String),
    /// Interrupts and workqueues are off the isolated CPUs, as far as steps took them off.
    Quiet,
    /// Idle states and frequency of a CPU are as wanted.
    Cpu(u32),
    /// The partition of the CPUs that no guest owns.
    Partition,
    /// Caches and bandwidth are shared out.
    Shares,
    /// A guest has its partition.
    Isolated(GuestName),
    /// A guest's threads have their priority.
    Scheduled(GuestName),
    /// The interrupts of a guest's functions go where they are to go.
    Interrupts(GuestName),
    /// Ordinary threads are kept a share of each CPU, or no longer.
    Throttling,
}

/// One step before it has a number.
pub struct StepSpec {
    action: Action,
    reason: String,
    needs: Vec<Effect>,
    makes: Effect,
    also: Option<Effect>,
    inverse: Option<Action>,
    best_effort: bool,
}

impl StepSpec {
    /// A step that must succeed. Of what it needs, only what earlier steps make counts.
    pub fn new(
        action: Action,
        inverse: Option<Action>,
        needs: Vec<Effect>,
        makes: Effect,
        reason: String,
    ) -> StepSpec {
        StepSpec { action, reason, needs, makes, also: None, inverse, best_effort: false }
    }

    /// The same step, which establishes this besides.
    pub fn also(self, also: Option<Effect>) -> StepSpec {
        StepSpec { also, ..self }
    }

    /// The same step, which may turn out unsupported if `best_effort`.
    pub fn best_effort(self, best_effort: bool) -> StepSpec {
        StepSpec { best_effort, ..self }
    }
}

/// The steps so far.
#[derive(Default)]
pub struct Draft {
    steps: Vec<Step>,
    made: HashMap<Effect, Vec<StepId>>,
    guest: Option<GuestName>,
}

impl Draft {
    /// From here on, steps are part of the start or the stop of `guest`; with `None`, of the whole.
    pub fn on_behalf_of(&mut self, guest: Option<&GuestName>) {
        self.guest = guest.cloned();
    }

    /// Adds a step.
    pub fn push(&mut self, sketch: StepSpec) {
        let id = StepId(u32::try_from(self.steps.len() + 1).unwrap_or(u32::MAX));
        let needs: BTreeSet<StepId> =
            sketch.needs.iter().filter_map(|need| self.makers(need)).flatten().copied().collect();
        for made in std::iter::once(sketch.makes).chain(sketch.also) {
            // Attributes of one VF, and masks of interrupts, do not depend on each other, nor do VFs of a drive, so all of them count; of the
            // rest the last step tells.
            let parallel = matches!(
                made,
                Effect::Attributes(_)
                    | Effect::Quiet
                    | Effect::Throttling
                    | Effect::Cpu(_)
                    | Effect::GivenUp(_)
                    | Effect::Given(_)
            );
            let steps = self.made.entry(made).or_default();
            if !parallel {
                steps.clear();
            }
            steps.push(id);
        }
        self.steps.push(Step {
            id,
            postcondition: Fact::after(&sketch.action),
            action: sketch.action,
            reason: sketch.reason,
            needs: needs.into_iter().collect(),
            inverse: sketch.inverse,
            best_effort: sketch.best_effort,
            guest: self.guest.clone(),
        });
    }

    /// The steps that made what is needed.
    fn makers(&self, need: &Effect) -> Option<&Vec<StepId>> {
        self.made.get(need).or_else(|| match need {
            Effect::Ready(guest) => self.made.get(&Effect::Running(guest.clone())),
            _ => None,
        })
    }

    /// The finished steps.
    pub fn finish(self) -> Vec<Step> {
        self.steps
    }
}
