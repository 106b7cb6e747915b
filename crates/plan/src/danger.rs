//! What a finished plan would take away from the machine that it is for, and from those who use it.
//!
//! It looks at the actions alone and does not ask why the planner made them, so that an error there is caught here. What the
//! planner refuses by itself (a [`Refusal`](crate::Refusal)) never becomes a plan and is not said twice.

mod drivers;
mod effects;
mod harm;
mod words;

use std::collections::BTreeSet;

use penstock_model::{
    Bdf, Inventory,
    inventory::{Lifeline, LifelineKind, LifelinePath, LifelineSort, Lifelines},
};
use serde::{Deserialize, Serialize};

pub use self::effects::{AffectedGuest, Effects, LostVf, effects};
pub(crate) use self::harm::{How, Played};
use self::{harm::Harm, words::Words};
use crate::{Action, GuestAction, Plan, RealTimeAction, Step, StepId, action::named};

/// Something that is lost when a plan is carried out, and that nobody may want to lose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Danger {
    /// Its name, by which it is allowed, alone: `default-route:eno1`, `running-guest:rt-2`. It is the same for the same
    /// model on the same machine.
    pub name: String,
    /// The steps that would do it, in order.
    pub steps: Vec<StepId>,
    /// What would happen, what is lost and whose it is.
    pub lost: String,
    /// What to do instead.
    pub way_round: String,
    /// The VFs that somebody else uses, of `vfs-in-use`; of no other danger.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub functions: BTreeSet<Bdf>,
}

/// All dangers of a plan, in the order of the steps that bring them; each once, with all of its steps.
///
/// A machine whose lifelines nobody looked for ([`Inventory::lifelines`] is `None`) has no dangers from them: the caller
/// says that. Where somebody looked and could not see, that itself is a danger of whatever could be one.
pub fn dangers(plan: &Plan, inventory: &Inventory) -> Vec<Danger> {
    let mut found = Found { words: Words::new(plan, inventory), inventory, dangers: Vec::new() };
    let mut played = Played::new(plan, inventory);
    for step in &plan.steps {
        for harm in played.harms(step) {
            if let Some(lifelines) = &inventory.lifelines {
                found.lifelines(lifelines, step, &harm);
                found.packet_programs(lifelines, step, &harm);
            }
            found.users(&played, step, &harm);
        }
        if let (Some(function), Some(lifelines)) = (harm::given_to_vfio(step), &inventory.lifelines) {
            found.group(lifelines, step, function);
        }
        played.take(step);
    }
    found.session(plan);
    found.dangers.into_iter().map(Growing::done).collect()
}

/// The functions that a plan touches while somebody has them: a guest that it does not stop before, or somebody else. What it does to these is
/// known, and allowed once its dangers are; any other that somebody has by the time of its step was taken since.
pub fn in_use(plan: &Plan, inventory: &Inventory) -> BTreeSet<Bdf> {
    let words = Words::new(plan, inventory);
    let mut played = Played::new(plan, inventory);
    let mut found = BTreeSet::new();
    for step in &plan.steps {
        for harm in played.harms(step) {
            let function = harm.function;
            let by_stranger = || !played.is_given_back(function) && words.stranger(function).is_some();
            if played.user(function).is_some() || by_stranger() {
                found.insert(function);
            }
        }
        played.take(step);
    }
    found
}

/// A danger that further steps may add to.
struct Growing {
    name: String,
    steps: Vec<StepId>,
    /// What is lost, each with what happens to it.
    lost: Vec<(String, Vec<String>)>,
    way_round: String,
    functions: BTreeSet<Bdf>,
}

impl Growing {
    fn done(self) -> Danger {
        let lost = self.lost.into_iter().map(|(what, harms)| match harms.is_empty() {
            true => what,
            false => format!("{what}: {}", harms.join(", ")),
        });
        let lost: Vec<String> = lost.collect();
        Danger {
            name: self.name,
            steps: self.steps,
            lost: lost.join("; "),
            way_round: self.way_round,
            functions: self.functions,
        }
    }
}

struct Found<'a> {
    words: Words<'a>,
    inventory: &'a Inventory,
    dangers: Vec<Growing>,
}

impl Found<'_> {
    /// Adds a danger, or a step to the one of this name: `what` is lost by what is done to it.
    fn add(&mut self, name: String, step: &Step, what: String, harm: Option<String>, way_round: String) {
        let position = self.dangers.iter().position(|danger| danger.name == name).unwrap_or_else(|| {
            self.dangers.push(Growing {
                name,
                steps: Vec::new(),
                lost: Vec::new(),
                way_round,
                functions: BTreeSet::new(),
            });
            self.dangers.len() - 1
        });
        let danger = &mut self.dangers[position];
        if !danger.steps.contains(&step.id) {
            danger.steps.push(step.id);
        }
        let known = danger.lost.iter().position(|(known, _)| *known == what).unwrap_or_else(|| {
            danger.lost.push((what, Vec::new()));
            danger.lost.len() - 1
        });
        let harms = &mut danger.lost[known].1;
        harms.extend(harm.filter(|harm| !harms.contains(harm)));
    }

    /// The CPUs that the operator's session is bound to, all of which somebody else is to have alone.
    fn session(&mut self, plan: &Plan) {
        let tuning = self.inventory.tuning.as_ref();
        let Some(own) = tuning.and_then(|tuning| tuning.own_cpus.known()) else { return };
        let taking = |step: &&Step| match &step.action {
            Action::RealTime(RealTimeAction::MakePartition { cpus, .. })
            | Action::Guest(GuestAction::IsolateGuest { cpus, on: true, .. }) => !cpus.0.is_disjoint(&own.0),
            _ => false,
        };
        let steps: Vec<&Step> = plan.steps.iter().filter(taking).collect();
        let taken: BTreeSet<u32> = steps
            .iter()
            .flat_map(|step| match &step.action {
                Action::RealTime(RealTimeAction::MakePartition { cpus, .. })
                | Action::Guest(GuestAction::IsolateGuest { cpus, .. }) => cpus.0.clone(),
                _ => BTreeSet::new(),
            })
            .collect();
        if own.0.is_empty() || !own.0.is_subset(&taken) {
            return;
        }
        for step in steps {
            self.add(
                format!("session-cpus:{own}"),
                step,
                format!("this session may run on {} alone", named(own)),
                Some("isolated, so that nobody but their owner gets them".to_owned()),
                "start penstock where nothing binds it to these CPUs (taskset, a cpuset), or isolate others"
                    .to_owned(),
            );
        }
    }

    fn lifelines(&mut self, lifelines: &Lifelines, step: &Step, harm: &Harm) {
        let function = harm.function;
        for (lifeline, paths) in lifelines.through(function) {
            // What only waits a moment for a server loses nothing.
            if matches!(lifeline.kind, LifelineKind::Mount { .. }) && harm.how == How::Dropped {
                continue;
            }
            let what = format!(
                "{} goes through {}{}",
                lifeline.kind,
                self.words.place(function),
                others(lifeline, &paths, function)
            );
            let way_round = self.words.way_round(&lifeline.kind, harm);
            let harm = self.words.harm(harm);
            self.add(self.name(&lifeline.kind, function), step, what, Some(harm), way_round);
        }
        self.unknown(lifelines, step, harm);
    }

    fn name(&self, kind: &LifelineKind, function: Bdf) -> String {
        let word = kind.sort().word();
        match kind {
            LifelineKind::Swap { area } => format!("{word}:{area}"),
            LifelineKind::Mount { at } => format!("{word}:{at}"),
            _ => format!("{word}:{}", self.words.handle(function)),
        }
    }

    /// What may go through a function although nobody saw it. An interface that is down carries nothing.
    fn unknown(&mut self, lifelines: &Lifelines, step: &Step, harm: &Harm) {
        let function = harm.function;
        let network = self.words.interface(function).is_some_and(|interface| interface.up);
        let storage = self.words.may_be_storage(function);
        let may_be = |sort: LifelineSort| if sort.is_of_the_network() { network } else { storage };
        let sorts: BTreeSet<LifelineSort> =
            lifelines.unknown.iter().map(|unknown| unknown.sort).filter(|sort| may_be(*sort)).collect();
        for sort in sorts {
            let whys = lifelines.unknown.iter().filter(|unknown| unknown.sort == sort);
            let whys: Vec<&str> = whys.map(|unknown| unknown.why.as_str()).collect();
            let what = format!(
                "{} may go through {}, which is not known ({})",
                Words::sort(sort),
                self.words.place(function),
                whys.join("; ")
            );
            let way_round = Words::make_known(sort).to_owned();
            let name = format!("unknown-{}:{}", sort.word(), self.words.handle(function));
            self.add(name, step, what, Some(self.words.harm(harm)), way_round);
        }
    }

    /// Programs through which the packets of an interface go, which goes away with them.
    fn packet_programs(&mut self, lifelines: &Lifelines, step: &Step, harm: &Harm) {
        if !matches!(harm.how, How::Destroyed | How::Unbound | How::Into(_)) {
            return;
        }
        let (place, nic) = (self.words.place(harm.function), self.words.nic(harm.function));
        if let Some(programs) = lifelines.packet_programs.get(&harm.function) {
            let what = format!("{place} has {}, which somebody has put there", programs.join(" and "));
            let way_round = "have whoever put it there take it away or move it, or leave that function alone";
            let name = format!("packet-programs:{nic}");
            self.add(name, step, what, Some(self.words.harm(harm)), way_round.to_owned());
        }
        let unseen = &lifelines.unseen_packet_programs;
        if !unseen.is_empty() && self.words.interface(harm.function).is_some() {
            let what = format!(
                "somebody may have put XDP or tcx programs, or queueing disciplines of tc, at {place}, which is not known ({})",
                unseen.join("; ")
            );
            let way_round = "as root, see `ip -details link`, `tc qdisc` and `bpftool net`, and allow it if nobody has put anything there";
            let name = format!("unknown-packet-programs:{nic}");
            self.add(name, step, what, Some(self.words.harm(harm)), way_round.to_owned());
        }
    }

    /// VFs that somebody runs with.
    fn users(&mut self, played: &Played<'_>, step: &Step, harm: &Harm) {
        let function = harm.function;
        // A moment without a link, or another name, is told among the effects.
        let takes_away = match harm.how {
            How::Destroyed | How::Unbound | How::Reset | How::Into(_) | How::DownForGood => true,
            How::OffLine | How::Queues | How::Detached(_) => true,
            How::Down | How::Dropped | How::Renamed | How::Mtu | How::Attribute | How::Loses(_) => false,
        };
        if !takes_away {
            return;
        }
        let name = self.words.function(function);
        if let Some(guest) = played.user(function) {
            let what = format!("guest {guest} runs with {name}");
            let way_round = format!("stop it first: penstock stop MODEL {guest}");
            self.add(format!("running-guest:{guest}"), step, what, Some(self.words.harm(harm)), way_round);
            return;
        }
        if played.is_given_back(function) {
            return;
        }
        let Some(who) = self.words.stranger(function) else { return };
        let what = format!("{name} is in use by {who}");
        let way_round = "stop who uses it, or have it give the VF back".to_owned();
        let danger = format!("vfs-in-use:{}", self.words.nic(function));
        self.add(danger.clone(), step, what, Some(self.words.harm(harm)), way_round);
        let grown = self.dangers.iter_mut().find(|grown| grown.name == danger);
        if let Some(grown) = grown {
            grown.functions.insert(function);
        }
    }

    /// VFIO takes a group as a whole.
    fn group(&mut self, lifelines: &Lifelines, step: &Step, function: Bdf) {
        let Some(group) = self.words.group(function) else { return };
        let members = self.inventory.iommu_groups.get(&group.number).cloned().unwrap_or_default();
        let sure = if group.sure { "is" } else { "most likely comes to be" };
        for member in members.into_iter().filter(|member| *member != function && !group.leaves_out(*member)) {
            let start = format!(
                "{} is to be given to VFIO, which takes an IOMMU group as a whole, and it {sure} in one with {}",
                self.words.function(function),
                self.words.place(member)
            );
            let way_round = "put the card into a slot behind a root port of its own, or turn ACS on in the firmware; or give the guest another function";
            let kinds: Vec<String> =
                lifelines.through(member).map(|(lifeline, _)| lifeline.kind.to_string()).collect();
            let unknown = lifelines.unknown.iter().map(|unknown| unknown.sort);
            let unseen: BTreeSet<LifelineSort> = unknown
                .filter(|sort| !sort.is_of_the_network() && self.words.may_be_storage(member))
                .collect();
            let what = if kinds.is_empty() {
                let unseen: Vec<&str> = unseen.into_iter().map(Words::sort).collect();
                if unseen.is_empty() {
                    continue;
                }
                format!("through which {} may go, which is not known", unseen.join(" and "))
            } else {
                format!("through which {} goes", kinds.join(" and "))
            };
            let name = format!("iommu-group:{}", self.words.handle(member));
            self.add(name, step, format!("{start}, {what}"), None, way_round.to_owned());
        }
    }
}

/// What else a lifeline goes through.
fn others(lifeline: &Lifeline, paths: &[&LifelinePath], function: Bdf) -> String {
    let above = paths.first().and_then(|path| path.names.split_last()).map(|(_, above)| above.join(", "));
    let way =
        above.filter(|above| !above.is_empty()).map(|above| format!(", below {above}")).unwrap_or_default();
    let rest: BTreeSet<String> = lifeline
        .paths
        .iter()
        .filter(|path| path.function != Some(function))
        .map(|path| path.names.last().cloned().unwrap_or_default())
        .collect();
    if rest.is_empty() {
        return way;
    }
    let rest: Vec<String> = rest.into_iter().collect();
    format!("{way} (and through {}; whether it can do without one of them is not known)", rest.join(", "))
}
