//! `expect: latency ...` lines against what this model has.

use super::{super::Subject, unknown_guest};
use crate::{
    Diagnostic, GuestKind, GuestName, Inside, Path, measurement::latency::LatencyExpectation,
    verdict::Vantage,
};

/// Whether the guests are there, and whether anything can be measured in them.
pub(super) fn check(claim: &LatencyExpectation, path: &Path, subject: &mut Subject<'_>) {
    let text = claim.to_string();
    let mut named: Vec<&GuestName> = Vec::new();
    for side in claim.sides() {
        let Some(Vantage::Guest(guest)) = &side.place else { continue };
        if named.contains(&guest) {
            continue;
        }
        named.push(guest);
        let at = |message: Diagnostic| match word(&text, guest.as_str()) {
            Some(at) => message.at_part(at),
            None => message,
        };
        match subject.model.guests.get(guest) {
            None => {
                // A name can be anything, so that a word that is spelt wrongly is taken for one.
                let unknown = unknown_guest(subject.model, guest, path.clone());
                subject.messages.push(at(match LatencyExpectation::near(guest.as_str()) {
                    Some(near) => unknown.with_hint(format!("did you mean the word `{near}`?")),
                    None => unknown,
                }));
            }
            Some(found) if found.kind == GuestKind::Vm && found.vm.inside != Inside::Agent => {
                let why = format!("nothing can be run in {guest}, so that this cannot be measured");
                let hint = "that takes `inside: agent`";
                subject.messages.push(at(Diagnostic::warning(path.clone(), why).with_hint(hint)));
            }
            Some(found) if found.pin.is_none() => {
                let why = format!("{guest} has no CPU of its own whose latency could be measured");
                let hint = "give it one with `pin`, and `realtime` for one that nothing else disturbs";
                subject.messages.push(at(Diagnostic::warning(path.clone(), why).with_hint(hint)));
            }
            Some(_) => {}
        }
    }
}

/// Where this word stands.
fn word(text: &str, wanted: &str) -> Option<std::ops::Range<usize>> {
    let mut words = text.split(|c: char| c.is_whitespace() || c == '/');
    let found = words.find(|word| *word == wanted)?;
    let from = found.as_ptr() as usize - text.as_ptr() as usize;
    Some(from..from + found.len())
}
