//! Which runs have gone on from what others left.

use super::{decision::Confirmation, record::RunId, state::Phase, store::KnownRun};

/// Whether the run `later` of `all` went on from the run `earlier`, directly or through others.
pub fn has_gone_on_from(all: &[KnownRun], later: RunId, earlier: RunId) -> bool {
    let (mut reached, mut at) = (vec![later], 0);
    while let Some(id) = reached.get(at).copied() {
        at += 1;
        let of = all.iter().find(|run| run.id() == id);
        for from in of.into_iter().flat_map(|run| &run.record.supersedes) {
            // A damaged record may name a later one.
            if *from < id && !reached.contains(from) {
                reached.push(*from);
            }
        }
    }
    earlier < later && reached.contains(&earlier)
}

/// Whether later runs stand on what a run has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Successors {
    /// There is none, or they have come to nothing and left all as they found it.
    None,
    /// One stands that may still be taken back by itself, since nobody has confirmed it. Who takes it back so leaves the earlier one.
    Undecided,
    /// One stands, or has found all as somebody wanted it. Who undoes it undoes the earlier one, too.
    Stand,
}

/// Whether later runs of `all` stand on what the run `id` left. `phase` tells how a run stands ([`Runs::state`](super::Runs::state)).
pub fn successors(all: &[KnownRun], id: RunId, phase: impl Fn(&KnownRun) -> Phase) -> Successors {
    let later = all.iter().filter(|later| has_gone_on_from(all, later.id(), id));
    later.map(|later| stands(later, phase(later))).max().unwrap_or(Successors::None)
}

fn stands(run: &KnownRun, phase: Phase) -> Successors {
    // Where nothing was to be done the machine is as somebody wants it, too.
    let is_whole = run.outcome.as_ref().is_some_and(|outcome| outcome.error.is_none());
    let verdict = run.decision.as_ref().map(|decision| decision.verdict);
    match (run.record.confirm.is_some(), verdict, phase != Phase::Nothing) {
        (false, _, left) | (true, Some(Confirmation::Confirmed), left) if left || is_whole => {
            Successors::Stand
        }
        (true, None, false) if is_whole => Successors::Stand,
        (
            true,
            None
            | Some(
                Confirmation::Expired | Confirmation::Failed | Confirmation::TakenBack | Confirmation::Reset,
            ),
            true,
        ) => Successors::Undecided,
        _ => Successors::None,
    }
}
