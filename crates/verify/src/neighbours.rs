//! Who in a VF's own NIC hears it. What nobody outside is ever to see is tried between two functions of one NIC, where the
//! model has frames pass and where they were just seen to.

use std::collections::HashMap;

use penstock_host::frames::Reach;
use penstock_model::{
    FunctionName, Outcome, VfSettings,
    inventory::VfState,
    verdict::{BY_FRAMES, Subject},
};

use super::{
    Expectation, nic,
    observation::Observation,
    probes::ProbeEnd,
    reach::{self, Path, Paths, Remotes, Trial},
    writer::{self, Hidden, Unobserved, VerdictSheet, VerdictWriter},
};

/// A way from a VF to another function of its NIC that its frames were seen to take.
pub struct ProvenPath {
    pub from: ProbeEnd,
    pub to: ProbeEnd,
    pub sender: FunctionName,
    pub receiver: FunctionName,
}

/// Whether both ends are under this kernel.
pub fn are_here(from: &ProbeEnd, to: &ProbeEnd) -> bool {
    from.remote.is_none() && to.remote.is_none()
}

/// Why there is no such way, although the model has one.
pub struct Nowhere {
    /// The function that was to receive.
    pub receiver: FunctionName,
    pub why: String,
    /// Whether nobody can tell from here.
    pub hidden: bool,
}

impl Nowhere {
    /// Tells that an `attribute` of `vf` could not be tried, which was to show what is `wanted`.
    pub fn tell(
        self,
        observation: &Observation<'_>,
        vf: &FunctionName,
        attribute: &str,
        wanted: String,
        sheet: &mut VerdictSheet,
    ) {
        let hidden = if self.hidden { Hidden::All } else { Hidden::Nothing };
        page(observation, vf, &self.receiver, sheet).hiding(hidden).put(
            attribute,
            wanted,
            self.why,
            Outcome::Unknown,
        );
    }
}

/// The paths that were tried, and what became of them.
pub struct Neighbours<'s, 'p> {
    observation: &'s Observation<'p>,
    /// By who sends along them.
    tried: HashMap<&'s FunctionName, Vec<(&'s Path, &'s Trial)>>,
    pub remotes: Remotes<'s>,
}

impl<'s, 'p> Neighbours<'s, 'p> {
    pub fn new(
        observation: &'s Observation<'p>,
        paths: &'s Paths,
        trials: &'s [Trial],
    ) -> Neighbours<'s, 'p> {
        let mut tried: HashMap<&FunctionName, Vec<(&Path, &Trial)>> = HashMap::new();
        for (path, trial) in paths.tried.iter().zip(trials) {
            tried.entry(&path.from).or_default().push((path, trial));
        }
        Neighbours { observation, tried, remotes: Remotes::default() }
    }

    /// A way that frames of `vf` take, with ends that `fit`; under this kernel alone where there is one. `None` where the model
    /// has none arrive in its own NIC.
    pub fn way(
        &mut self,
        vf: &FunctionName,
        fit: impl Fn(&ProbeEnd, &ProbeEnd) -> bool,
    ) -> Option<Result<ProvenPath, Nowhere>> {
        let observation = self.observation;
        let tried = self.tried.get(vf).into_iter().flatten().copied();
        let inside: Vec<(&Path, &Trial)> = tried
            .filter(|(path, _)| path.to.nic == vf.nic && path.expectation == Expectation::Arrives)
            .collect();
        let (first, _) = inside.first()?;
        let counted = |trial: &Trial| trial.reach == Ok(Reach::Arrived) && trial.witness.is_none();
        let (mut found, mut arrived): (Option<ProvenPath>, bool) = (None, false);
        for (path, _) in inside.iter().filter(|(_, trial)| counted(trial)) {
            arrived = true;
            let mut probe_end = |function| reach::probe_end(observation, function, &mut self.remotes);
            let (Ok(from), Ok(to)) = (probe_end(&path.from), probe_end(&path.to)) else { continue };
            let here = are_here(&from, &to);
            if fit(&from, &to) && (here || found.is_none()) {
                found = Some(ProvenPath { from, to, sender: vf.clone(), receiver: path.to.clone() });
                if here {
                    break;
                }
            }
        }
        if let Some(way) = found {
            return Some(Ok(way));
        }
        let unseen = |trial: &Trial| trial.hidden != Hidden::Nothing || trial.witness.is_some();
        let all_unseen = inside.iter().all(|(_, trial)| unseen(trial));
        let why = match inside.iter().find_map(|(_, trial)| trial.reach.as_ref().err()) {
            _ if arrived => "frames are sent or received inside a VM".to_owned(),
            _ if all_unseen => "no frames can be counted at one of the ends".to_owned(),
            Some(why) => why.clone(),
            None => "not even a frame from its own address arrives".to_owned(),
        };
        Some(Err(Nowhere { receiver: first.to.clone(), why, hidden: arrived || all_unseen }))
    }
}

/// The page for what is seen at `receiver` of what `sender` sends.
pub fn page<'a>(
    observation: &'a Observation<'_>,
    sender: &FunctionName,
    receiver: &FunctionName,
    sheet: &'a mut VerdictSheet,
) -> VerdictWriter<'a> {
    let nic = &sender.nic;
    let own = observation.owners.of(sender).map(|(_, owned)| &owned.best_effort);
    let best_effort = own.unwrap_or(&observation.model.nics[nic].best_effort);
    let page = sheet
        .page(Subject::Function(sender.clone()), observation.vantage_of(receiver), best_effort)
        .shown(BY_FRAMES);
    if observation.pf(nic).is_some_and(|pf| pf.identity.is_imitated()) { page.emulated() } else { page }
}

/// The VFs that guests own, with what the model wants of each, as far as its NIC has such an attribute: whatever lacks it was
/// told by re-reading it.
pub fn owned<'m, T>(
    observation: &Observation<'m>,
    attribute: &'static str,
    wanted: impl Fn(&VfSettings) -> Option<T>,
    reported: impl Fn(&VfState) -> Option<T>,
) -> Vec<(FunctionName, T)>
where
    T: PartialEq,
{
    let mut owned = Vec::new();
    for name in observation.model.nics.keys() {
        for (index, settings) in observation.model.vfs(name) {
            let vf = FunctionName { nic: name.clone(), vf: Some(index) };
            let Some(wanted) = wanted(settings).filter(|_| observation.owners.of(&vf).is_some()) else {
                continue;
            };
            let known = observation.pf(name).and_then(|pf| observation.inventory.capabilities.get(&pf.bdf));
            let lacking = match nic::state(observation, name, index) {
                Err(Unobserved::Unsupported(_)) => true,
                Err(_) => false,
                Ok(state) => match reported(state) {
                    None => true,
                    Some(seen) => seen != wanted && writer::lack(known, attribute).is_some(),
                },
            };
            if !lacking {
                owned.push((vf, wanted));
            }
        }
    }
    owned
}
