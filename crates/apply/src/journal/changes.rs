//! A journal that is told the same again and again, and writes it once.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use penstock_plan::{Action, StepId};

use super::{Ending, Entry, Journal, JournalError};

/// A journal of attempts that may come to the same, each minute and for days: what says nothing new to whoever reads it is not written. A step
/// that is tried again is begun to a reader already, while the last that was told of it is that it failed. Once somebody else has written to the
/// journal all of it is new again: what they have told comes last to a reader. All clones are one journal.
#[derive(Clone, Debug)]
pub struct ChangesJournal<J>(Rc<RefCell<Inner<J>>>);

#[derive(Debug)]
struct Inner<J> {
    journal: J,
    told: Written,
    /// How long the journal was when that was told.
    length: Option<u64>,
}

/// What is written, as far as later entries may repeat it.
#[derive(Debug, Default)]
struct Written {
    begin: Option<Entry>,
    intents: BTreeMap<StepId, Entry>,
    /// The last of each step that was to be carried out.
    outcomes: BTreeMap<StepId, Entry>,
    /// How each step is to be taken back, and the last that came of it.
    undos: BTreeMap<StepId, Action>,
    undone: BTreeMap<StepId, Entry>,
    /// The last line, where that is an end.
    end: Option<Entry>,
}

impl<J: Journal> ChangesJournal<J> {
    /// A journal that writes to `journal`, of which nothing is known yet.
    pub fn new(journal: J) -> ChangesJournal<J> {
        ChangesJournal(Rc::new(RefCell::new(Inner { journal, told: Written::default(), length: None })))
    }
}

impl<J: Journal> Journal for ChangesJournal<J> {
    fn record(&mut self, entries: &[Entry], sync: bool) -> Result<(), JournalError> {
        let Inner { journal, told, length } = &mut *self.0.borrow_mut();
        if journal.length() != *length {
            *told = Written::default();
        }
        let new: Vec<Entry> = entries.iter().filter(|entry| told.is_new(entry)).cloned().collect();
        if new.is_empty() {
            return Ok(());
        }
        let written = journal.record(&new, sync);
        if written.is_err() {
            // Nobody knows what of it can be read.
            *told = Written::default();
        }
        *length = journal.length();
        written
    }

    fn length(&self) -> Option<u64> {
        self.0.borrow().journal.length()
    }
}

impl Written {
    /// Whether an entry says something new, which it has said from then on.
    fn is_new(&mut self, entry: &Entry) -> bool {
        let is_new = match entry {
            Entry::Begin { .. } => self.begin.replace(entry.clone()).as_ref() != Some(entry),
            Entry::Intent { step, .. } => self.intents.insert(*step, entry.clone()).as_ref() != Some(entry),
            Entry::Begun { steps } => {
                let has_failed = |step: &StepId| {
                    let last = self.outcomes.get(step);
                    matches!(last, Some(Entry::Outcome { outcome: Ending::Failed, .. }))
                };
                let is_new = !steps.iter().all(has_failed);
                if is_new {
                    steps.iter().for_each(|step| drop(self.outcomes.remove(step)));
                }
                is_new
            }
            Entry::Outcome { step, outcome, detail } => {
                let same = self.outcomes.get(step).is_some_and(|last| {
                    matches!(last, Entry::Outcome { outcome: before, detail: said, .. }
                        if before == outcome && is_same(said.as_deref(), detail.as_deref()))
                });
                self.outcomes.insert(*step, entry.clone());
                !same
            }
            Entry::Undo { step, action } => {
                let has_failed = matches!(self.undone.get(step), Some(Entry::Undone { error: Some(_), .. }));
                let is_new = !has_failed || self.undos.get(step) != Some(action);
                if is_new {
                    self.undone.remove(step);
                    self.undos.insert(*step, action.clone());
                }
                is_new
            }
            Entry::Undone { step, error, anothers } => {
                let same = self.undone.get(step).is_some_and(|last| {
                    matches!(last, Entry::Undone { error: before, anothers: of, .. }
                        if of == anothers && is_same(before.as_deref(), error.as_deref()))
                });
                self.undone.insert(*step, entry.clone());
                !same
            }
            Entry::End { .. } => return self.end.replace(entry.clone()).as_ref() != Some(entry),
        };
        if is_new {
            self.end = None;
        }
        is_new
    }
}

fn is_same(one: Option<&str>, other: Option<&str>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => says_the_same(one, other),
        (one, other) => one == other,
    }
}

/// Whether two texts are the same but for how long something took: `after 5.003 s`.
pub fn says_the_same(one: &str, other: &str) -> bool {
    let of = |text: &str| -> Vec<String> {
        let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        for at in 1..words.len() {
            let is_unit = words[at].trim_end_matches([',', ';', ':', '.', ')']) == "s";
            if is_unit && words[at - 1].parse::<f64>().is_ok() {
                words[at - 1] = "?".to_owned();
            }
        }
        words
    };
    one == other || of(one) == of(other)
}

#[cfg(test)]
mod tests {
    use penstock_plan::FunctionAction;

    use super::*;
    use crate::{
        history::{Fate, RunState},
        journal::{CatchUpJournal, FileJournal, read},
    };

    /// A journal that somebody else reads.
    #[derive(Clone, Debug, Default)]
    struct Shared {
        entries: Rc<RefCell<Vec<Entry>>>,
        full: Rc<RefCell<bool>>,
    }

    impl Journal for Shared {
        fn record(&mut self, entries: &[Entry], _: bool) -> Result<(), JournalError> {
            if *self.full.borrow() {
                let source = std::io::ErrorKind::StorageFull.into();
                return Err(JournalError::Write { path: "journal".into(), source });
            }
            self.entries.borrow_mut().extend_from_slice(entries);
            Ok(())
        }

        fn length(&self) -> Option<u64> {
            Some(self.entries.borrow().len() as u64)
        }
    }

    fn count(count: u16) -> Action {
        FunctionAction::SetVfCount { pf: "0000:04:00.0".parse().unwrap(), count }.into()
    }

    /// What an attempt tells of a step whose way back fails for this reason, or does not.
    fn attempt(error: Option<&str>) -> [Entry; 2] {
        let step = StepId(1);
        [
            Entry::Undo { step, action: count(0) },
            Entry::Undone { step, error: error.map(str::to_owned), anothers: None },
        ]
    }

    #[test]
    fn what_comes_to_the_same_is_written_once_and_what_changes_each_time() {
        let shared = Shared::default();
        let mut journal = ChangesJournal::new(shared.clone());
        let begun = [
            Entry::Intent { step: StepId(1), action: count(2), inverse: Some(count(0)) },
            Entry::Begun { steps: vec![StepId(1)] },
            Entry::Outcome { step: StepId(1), outcome: Ending::Done, detail: None },
            Entry::End { applied: true },
        ];
        journal.record(&begun, true).unwrap();
        let mut length = begun.len();
        let cases = [
            (Some("not so after 5.001 s"), 2),
            (Some("not so after 5.1 s"), 0),
            (Some("not so after 5 s"), 0),
            (Some("EBUSY"), 1),
            (Some("EBUSY"), 0),
            (None, 1),
            // Whoever goes on all the same is told of.
            (Some("EBUSY"), 2),
        ];
        for (error, new) in cases {
            for entry in attempt(error) {
                journal.clone().record(&[entry], true).unwrap();
                // Whenever it is killed: what it may have touched may stand to a reader.
                let state = RunState::read(&shared.entries.borrow(), false);
                assert!(error.is_none() || state.steps[0].1.may_stand(), "{state:?}");
            }
            length += new;
            assert_eq!(shared.entries.borrow().len(), length, "{error:?}");
            let fate = match error {
                Some(_) => {
                    matches!(RunState::read(&shared.entries.borrow(), false).steps[0].1, Fate::Stuck(_))
                }
                None => RunState::read(&shared.entries.borrow(), false).steps[0].1 == Fate::TakenBack,
            };
            assert!(fate, "{error:?}");
        }
    }

    #[test]
    fn an_attempt_of_an_undo_itself_is_written_once() {
        let shared = Shared::default();
        let mut journal = ChangesJournal::new(shared.clone());
        let attempt = |outcome, applied| {
            [
                Entry::Begin { version: 1, steps: 1 },
                Entry::Intent { step: StepId(1), action: count(0), inverse: Some(count(2)) },
                Entry::Begun { steps: vec![StepId(1)] },
                Entry::Outcome { step: StepId(1), outcome, detail: None },
                Entry::End { applied },
            ]
        };
        let mut tell = |entries: &[Entry]| {
            entries.iter().for_each(|entry| journal.record(std::slice::from_ref(entry), true).unwrap());
        };
        for _ in 0..3 {
            tell(&attempt(Ending::Failed, false));
        }
        assert_eq!(*shared.entries.borrow(), attempt(Ending::Failed, false));
        tell(&attempt(Ending::Done, true));
        let state = RunState::read(&shared.entries.borrow(), false);
        assert_eq!((&state.steps[0].1, shared.entries.borrow().len()), (&Fate::Done, 7));
    }

    #[test]
    fn what_could_not_be_written_is_told_again() {
        let shared = Shared::default();
        let mut journal = ChangesJournal::new(shared.clone());
        *shared.full.borrow_mut() = true;
        assert!(journal.record(&attempt(Some("EBUSY")), true).is_err());
        *shared.full.borrow_mut() = false;
        journal.record(&attempt(Some("EBUSY")), true).unwrap();
        assert_eq!(*shared.entries.borrow(), attempt(Some("EBUSY")));
    }

    /// An operator's undo is killed between two attempts of a guard.
    #[test]
    fn what_somebody_else_has_told_meanwhile_is_not_the_last_of_a_step() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let file = CatchUpJournal::new(&path);
        let mut journal = ChangesJournal::new(file.clone());
        let [begun, stuck] = attempt(Some("EBUSY"));
        let of_run = [
            Entry::Intent { step: StepId(1), action: count(2), inverse: Some(count(0)) },
            Entry::Begun { steps: vec![StepId(1)] },
            Entry::Outcome { step: StepId(1), outcome: Ending::Done, detail: None },
        ];
        FileJournal::open(&path).unwrap().record(&of_run, true).unwrap();
        let mut try_it = || {
            file.forget();
            for entry in [&begun, &stuck] {
                journal.record(std::slice::from_ref(entry), true).unwrap();
            }
            read(&path).unwrap()
        };
        assert_eq!(try_it()[3..], [begun.clone(), stuck.clone()]);
        FileJournal::open(&path).unwrap().record(std::slice::from_ref(&begun), true).unwrap();
        let told = [&begun, &stuck, &begun, &begun, &stuck].map(Clone::clone);
        let read_then = try_it();
        assert_eq!(read_then[3..], told);
        let state = RunState::read(&read_then, false);
        assert!(matches!(state.steps[0].1, Fate::Stuck(_)), "{state:?}");
        assert_eq!(try_it(), read_then, "and then once");
    }

    #[test]
    fn texts_are_the_same_but_for_how_long_something_took() {
        let same = |one, other| assert!(says_the_same(one, other), "{one} {other}");
        same("held for 3.2 s, by 5", "held for 4 s, by 5");
        for (one, other) in [("it has 2 VFs", "it has 8 VFs"), ("s", "1 s"), ("a 1 s", "a 1 ms")] {
            assert!(!says_the_same(one, other), "{one} {other}");
        }
    }
}
