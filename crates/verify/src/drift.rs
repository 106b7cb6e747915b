//! What has changed between one look and the next. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use penstock_model::{Outcome, Verdict, Verdicts, verdict::VerdictKey};

use super::Part;

/// What is known of a machine, part by part.
#[derive(Clone, Debug, Default)]
pub struct Known {
    parts: BTreeMap<Part, Verdicts>,
    /// What was said last of each attribute, also of those that are not judged for now: those of a NIC that is away.
    told: BTreeMap<VerdictKey, LastVerdict>,
    replaced: Replaced,
}

/// What was said of an attribute: its outcome, whether it held, and what was seen.
type LastVerdict = (Outcome, bool, String);

/// What the look that goes on has replaced, as it was before; `None` where there was nothing.
#[derive(Clone, Debug, Default)]
struct Replaced {
    parts: BTreeMap<Part, Option<Verdicts>>,
    told: BTreeMap<VerdictKey, Option<LastVerdict>>,
}

/// How an attribute has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is not as the model wants it, since now or otherwise than before.
    Drift,
    /// It can no longer be seen, or not be told.
    Unseen,
    /// It is as the model wants it again.
    HoldsAgain,
}

/// An attribute that is not as it was when it was last told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// How it has changed since then.
    pub turn: Turn,
    /// As it is now.
    pub verdict: Verdict,
}

impl Known {
    /// Takes in what was seen of some parts, and gives what has changed in them, in order. An attribute that is new and holds
    /// is no change, nor is one that is not judged any more.
    pub fn take(&mut self, fresh: Vec<(Part, Vec<Verdict>)>) -> Vec<Change> {
        let mut changes = Vec::new();
        for (part, verdicts) in fresh {
            let verdicts: Verdicts = verdicts.into_iter().collect();
            for verdict in &verdicts {
                let (key, now) = (verdict.key(), (verdict.outcome, verdict.holds(), verdict.seen.clone()));
                if self.told.get(&key) == Some(&now) {
                    continue;
                }
                let before = self.told.insert(key.clone(), now);
                self.replaced.told.entry(key).or_insert_with(|| before.clone());
                let (before, held, seen) = before.unwrap_or((Outcome::Pass, true, String::new()));
                let turn = match (held, verdict.holds()) {
                    (false, true) => Turn::HoldsAgain,
                    (true, true) => continue,
                    (false, false) if before == verdict.outcome && seen == verdict.seen => continue,
                    (_, false) if verdict.outcome == Outcome::Fail => Turn::Drift,
                    (_, false) => Turn::Unseen,
                };
                changes.push(Change { turn, verdict: verdict.clone() });
            }
            let before = self.parts.insert(part.clone(), verdicts);
            self.replaced.parts.entry(part).or_insert(before);
        }
        changes
    }

    /// Begins a look, which ends with [`end`](Known::end) or [`put_back`](Known::put_back).
    pub fn begin(&mut self) {
        self.replaced = Replaced::default();
    }

    /// Forgets what was taken in since the look began.
    pub fn put_back(&mut self) {
        let Replaced { parts, told } = mem::take(&mut self.replaced);
        put_back(&mut self.parts, parts);
        put_back(&mut self.told, told);
    }

    /// Ends a look. Whether something that did not hold before it is not judged any more.
    pub fn end(&mut self) -> bool {
        let Replaced { parts, .. } = mem::take(&mut self.replaced);
        let before = parts.values().flatten().flatten();
        let mut gone: BTreeSet<_> = before.filter(|verdict| !verdict.holds()).map(Verdict::key).collect();
        if gone.is_empty() {
            return false;
        }
        for verdict in self.verdicts() {
            gone.remove(&verdict.key());
        }
        !gone.is_empty()
    }

    /// All that is judged for now.
    pub fn verdicts(&self) -> impl Iterator<Item = &Verdict> {
        self.parts.values().flatten()
    }

    /// Whether all of it holds; nothing at all does not.
    pub fn holds(&self) -> bool {
        self.verdicts().next().is_some() && self.verdicts().all(Verdict::holds)
    }
}

fn put_back<K: Ord, V>(now: &mut BTreeMap<K, V>, before: BTreeMap<K, Option<V>>) {
    for (key, before) in before {
        match before {
            Some(before) => drop(now.insert(key, before)),
            None => drop(now.remove(&key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use penstock_model::verdict::Subject;

    use super::*;

    fn verdict(attribute: &str, seen: &str, outcome: Outcome) -> Verdict {
        let host = Verdict::of_host(Subject::Machine, attribute, "a".to_owned(), Err(seen.to_owned()));
        Verdict { outcome, ..host }
    }

    fn told(known: &mut Known, verdicts: &[Verdict]) -> Vec<(Turn, String)> {
        let changes = known.take(vec![(Part::Rest, verdicts.to_vec())]);
        changes.into_iter().map(|change| (change.turn, change.verdict.attribute)).collect()
    }

    #[test]
    fn each_turn_is_told_once() {
        let mut known = Known::default();
        let (good, bad) = (verdict("mac", "a", Outcome::Pass), verdict("mac", "b", Outcome::Fail));
        assert!(!known.holds());
        assert_eq!(told(&mut known, std::slice::from_ref(&good)), []);
        assert!(known.holds());
        assert_eq!(told(&mut known, std::slice::from_ref(&bad)), [(Turn::Drift, "mac".to_owned())]);
        assert_eq!(told(&mut known, std::slice::from_ref(&bad)), []);
        let worse = verdict("mac", "c", Outcome::Fail);
        assert_eq!(told(&mut known, &[worse]), [(Turn::Drift, "mac".to_owned())]);
        let dark = verdict("mac", "it is dark", Outcome::Unknown);
        assert_eq!(told(&mut known, &[dark]), [(Turn::Unseen, "mac".to_owned())]);
        assert!(!known.holds());
        assert_eq!(told(&mut known, &[good]), [(Turn::HoldsAgain, "mac".to_owned())]);
        assert!(known.holds());
    }

    #[test]
    fn what_was_away_is_compared_with_what_was_last_told() {
        let mut known = Known::default();
        let (good, bad) = (verdict("vlan", "a", Outcome::Pass), verdict("vlan", "b", Outcome::Fail));
        let away = verdict("match", "there is no such PF", Outcome::Fail);
        told(&mut known, &[good.clone(), bad.clone()]);
        let (good, bad) = (verdict("mac", "a", Outcome::Pass), verdict("vlan", "b", Outcome::Fail));
        told(&mut known, &[good.clone(), bad.clone()]);
        assert_eq!(told(&mut known, &[away]), [(Turn::Drift, "match".to_owned())]);
        let back = verdict("match", "it is there", Outcome::Pass);
        let again = told(&mut known, &[back, good.clone(), bad]);
        assert_eq!(again, [(Turn::HoldsAgain, "match".to_owned())], "both are as they were last told");
        assert_eq!(
            told(&mut known, &[good.clone(), verdict("vlan", "a", Outcome::Pass)]),
            [(Turn::HoldsAgain, "vlan".to_owned())]
        );
    }

    #[test]
    fn what_did_not_hold_and_is_not_judged_any_more_is_noticed() {
        let mut known = Known::default();
        let (good, bad) = (verdict("mac", "a", Outcome::Pass), verdict("vlan", "b", Outcome::Fail));
        let mut drops = |verdicts: &[Verdict]| {
            known.begin();
            told(&mut known, &[good.clone(), bad.clone()]);
            known.end();
            known.begin();
            told(&mut known, verdicts);
            known.end()
        };
        assert!(!drops(std::slice::from_ref(&bad)), "what held is no news");
        assert!(!drops(&[verdict("vlan", "a", Outcome::Pass)]), "it is judged");
        assert!(drops(std::slice::from_ref(&good)));
        // Another part judges it.
        let part = Part::Nic("NET0".parse().unwrap());
        known.take(vec![(part, vec![bad])]);
        known.begin();
        told(&mut known, &[good]);
        assert!(!known.end());
    }

    #[test]
    fn what_a_look_has_brought_is_put_back_to_what_was_known_before() {
        let part = |name: &str| Part::Nic(name.parse().unwrap());
        let mut known = Known::default();
        let bad = verdict("vlan", "b", Outcome::Fail);
        known.take(vec![
            (part("NET0"), vec![verdict("mac", "a", Outcome::Pass), bad.clone()]),
            (part("NET1"), vec![verdict("mtu", "a", Outcome::Pass)]),
        ]);
        known.begin();
        let state = |known: &Known| format!("{:?} {:?}", known.parts, known.told);
        let before = state(&known);
        known.take(vec![
            (part("NET0"), vec![verdict("mac", "c", Outcome::Fail)]),
            (Part::Rest, vec![verdict("up", "a", Outcome::Pass)]),
        ]);
        // The same look comes to the same part again.
        known.take(vec![(part("NET0"), vec![verdict("mac", "d", Outcome::Unknown), bad])]);
        assert_ne!(state(&known), before);
        known.put_back();
        assert_eq!(state(&known), before);
        known.put_back();
        assert_eq!(state(&known), before, "once is enough");
    }

    #[test]
    fn parts_that_were_not_looked_at_stay() {
        let mut known = Known::default();
        let part = |name: &str| Part::Nic(name.parse().unwrap());
        known.take(vec![
            (part("NET0"), vec![verdict("mac", "b", Outcome::Fail)]),
            (part("NET1"), vec![verdict("vlan", "a", Outcome::Pass)]),
        ]);
        known.take(vec![(part("NET1"), vec![verdict("vlan", "a", Outcome::Pass)])]);
        assert!(!known.holds());
        known.take(vec![(part("NET0"), vec![verdict("mac", "a", Outcome::Pass)])]);
        assert!(known.holds());
        assert_eq!(known.verdicts().count(), 2);
    }
}
