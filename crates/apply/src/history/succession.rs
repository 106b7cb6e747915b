//! Which runs have gone on from what others left.

use super::{record::RunId, state::Phase, store::KnownRun};

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

/// Whether a later run of `all` stands on what the run `id` left: it went on from there, and came to a good end or left something. One that
/// came to nothing has left all as it found it. `phase` tells how a run stands ([`Runs::state`](super::Runs::state)).
pub fn is_built_upon(all: &[KnownRun], id: RunId, phase: impl Fn(&KnownRun) -> Phase) -> bool {
    all.iter().filter(|later| has_gone_on_from(all, later.id(), id)).any(|later| {
        // Where nothing was to be done the machine is as somebody wants it, too.
        let whole = later.outcome.as_ref().is_some_and(|outcome| outcome.error.is_none());
        whole || phase(later) != Phase::Nothing
    })
}
