//! Judges a finished plan, without knowing how it was made: plays it step by step on a simulated machine that starts as
//! the inventory says, and looks at every step before it is taken and at the machine at the end.
//!
//! It shares no code with the planner but the types of a plan, so that one error cannot hide the other.

mod causes;
mod definition;
mod drive;
mod eswitch;
mod excuse;
mod external;
mod interface;
mod machine;
mod realtime;
mod result;
mod rules;
mod step;

use std::fmt;

use penstock_model::{Inventory, Model};

use self::machine::Machine;
use crate::{Plan, StepId};

/// Something that is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The step; `None` for the plan as a whole.
    pub step: Option<StepId>,
    /// What is wrong, with the values.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => write!(f, "step {step}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Judges a plan that is to make the machine what the model says: its steps as [`check_steps`] does, and whether the
/// machine is then as the model says. Guests that run already are taken as they are.
pub fn check(model: &Model, inventory: &Inventory, plan: &Plan) -> Vec<Finding> {
    let mut findings = Vec::new();
    let machine = play(model, inventory, plan, rules::Wanted::AsTheModelSays, &mut findings);
    result::judge(model, inventory, plan, &machine, &mut findings);
    findings
}

/// Judges the steps of any plan, that starts or stops guests, or takes another plan back: the order, what each needs,
/// its way back, its postcondition.
pub fn check_steps(model: &Model, inventory: &Inventory, plan: &Plan) -> Vec<Finding> {
    let mut findings = Vec::new();
    play(model, inventory, plan, rules::Wanted::Anything, &mut findings);
    findings
}

/// What an inventory of the machine would say after the plan, as far as it can be known beforehand. Interfaces that
/// appear get made-up names.
pub fn simulate(inventory: &Inventory, plan: &Plan) -> Inventory {
    let mut machine = Machine::new(inventory);
    plan.steps.iter().for_each(|step| machine.take(step));
    machine.inventory
}

fn play(
    model: &Model,
    inventory: &Inventory,
    plan: &Plan,
    wanted: rules::Wanted,
    findings: &mut Vec<Finding>,
) -> Machine {
    let mut machine = Machine::new(inventory);
    let rules = rules::Rules::new(model, inventory, plan, wanted);
    let mut causes = causes::Causes::new(plan.steps.len());
    for (position, step) in plan.steps.iter().enumerate() {
        let mut messages = step::shape(position, step);
        messages.extend(rules.broken(&machine, step));
        messages.extend(external::touched(&machine, model, plan, step));
        messages.extend(step::way_back(&machine, model, step));
        messages.extend(causes.forgotten(&machine, model, position, step));
        findings.extend(messages.into_iter().map(|message| Finding { step: Some(step.id), message }));
        machine.take(step);
    }
    machine
}
