//! What a plan does to VFs and to guests that run, whether or not that is refused.

use penstock_model::{Bdf, GuestName, InterfaceName, Inventory};
use serde::{Deserialize, Serialize};

use super::{
    harm::{How, Played},
    words::Words,
};
use crate::{Plan, StepId};

/// What a plan destroys and whom it concerns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Effects {
    /// VFs that vanish. Others may be made in their places: with nothing of what was set for these.
    pub vfs: Vec<LostVf>,
    /// Guests that run, and what happens to them.
    pub guests: Vec<AffectedGuest>,
}

/// A VF that vanishes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LostVf {
    /// As the model names it: `NET0#3`; else as the machine does.
    pub name: String,
    /// Its PCI address.
    pub function: Bdf,
    /// The step that destroys it.
    pub step: StepId,
    /// The guest that has it, running or not.
    pub guest: Option<GuestName>,
    /// Who else uses it.
    pub user: Option<String>,
    /// The host's interface that it is.
    pub interface: Option<InterfaceName>,
    /// The driver that it has.
    pub driver: Option<String>,
}

/// A guest that runs, and what a plan does to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AffectedGuest {
    /// The guest that is touched.
    pub guest: GuestName,
    /// The steps that touch it.
    pub steps: Vec<StepId>,
    /// What happens, one sentence each.
    pub what: Vec<String>,
}

/// What a plan does to VFs and to running guests. A guest that the plan stops is told of for that alone.
pub fn effects(plan: &Plan, inventory: &Inventory) -> Effects {
    let words = Words::new(plan, inventory);
    let mut played = Played::new(plan, inventory);
    let mut effects = Effects::default();
    for step in &plan.steps {
        if let crate::Action::Guest(crate::GuestAction::StopGuest { guest }) = &step.action
            && inventory.guests.get(guest).is_some_and(|found| found.running)
        {
            effects.affect(guest, step.id, format!("{guest} stops"));
        }
        for harm in played.harms(step) {
            if harm.how == How::Destroyed {
                effects.vfs.push(lost(harm.function, step.id, &words, &played, inventory));
            }
            if let Some(guest) = played.user(harm.function) {
                effects.affect(guest, step.id, words.harm(&harm));
            }
        }
        played.take(step);
    }
    effects
}

impl Effects {
    fn affect(&mut self, guest: &GuestName, step: StepId, what: String) {
        let affected = match self.guests.iter_mut().find(|affected| affected.guest == *guest) {
            Some(affected) => affected,
            None => {
                self.guests.push(AffectedGuest { guest: guest.clone(), steps: Vec::new(), what: Vec::new() });
                let last = self.guests.len() - 1;
                &mut self.guests[last]
            }
        };
        if !affected.steps.contains(&step) {
            affected.steps.push(step);
        }
        if !affected.what.contains(&what) {
            affected.what.push(what);
        }
    }
}

fn lost(
    function: Bdf,
    step: StepId,
    words: &Words<'_>,
    played: &Played<'_>,
    inventory: &Inventory,
) -> LostVf {
    let defined = || {
        let owner = inventory.guests.iter().find(|(_, found)| found.functions.contains(&function));
        owner.map(|(guest, _)| guest)
    };
    let guest = played.user(function).or_else(defined).cloned();
    LostVf {
        name: words.function(function),
        function,
        step,
        user: if guest.is_none() && !played.is_given_back(function) {
            words.stranger(function)
        } else {
            None
        },
        guest,
        interface: words.interface(function).map(|interface| interface.name.clone()),
        driver: played.driver(function).map(str::to_owned),
    }
}
