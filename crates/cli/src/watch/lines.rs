//! What is said of what happens: one line each.

use std::collections::{BTreeMap, BTreeSet};

use penstock_host::process::quoted_where_needed;
use penstock_model::{
    FunctionName, GuestName, Model, NicName, Outcome, Verdict,
    verdict::{Subject, Vantage},
};
use penstock_verify::drift::{Change, Known, Turn};
use serde::Serialize;

use super::{
    advice::{self, Advice},
    schedule::PollSchedule,
    time,
    unwatched::Unwatched,
    watcher::Watcher,
};
use crate::{arguments::Subject as ModelArguments, failure::Failure, printer::Printer};

/// What happened, but for attributes that changed.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum WatchEvent {
    /// How all of it is.
    State {
        /// Whether all could be looked at, and holds.
        holds: bool,
        /// How many verdicts came out how.
        counts: BTreeMap<String, usize>,
        /// Those that are no pass.
        verdicts: Vec<Verdict>,
        /// How often what makes no event is looked at, in seconds.
        glance_every: f64,
        /// What cannot be listened to.
        unheard: Vec<String>,
    },
    /// What changes without an event, so that a change of it is told late or not at all. The first line.
    BlindSpots {
        /// Each with when it shows.
        unwatched: Vec<Unwatched>,
    },
    /// Somebody changes the machine; it is judged when that is done.
    Changing {
        /// Who makes the change: a program and its user.
        who: String,
    },
    /// Something cannot be seen or heard.
    Blind {
        /// What, and why.
        why: String,
    },
}

impl WatchEvent {
    /// All that is known, and whether it `holds`.
    pub fn state(watcher: &Watcher, schedule: &PollSchedule, holds: bool) -> WatchEvent {
        let mut counts = BTreeMap::new();
        for outcome in [Outcome::Pass, Outcome::Fail, Outcome::Unsupported, Outcome::Unknown] {
            let count = watcher.known.verdicts().filter(|verdict| verdict.outcome == outcome).count();
            counts.insert(outcome.to_string(), count);
        }
        let verdicts = watcher.known.verdicts().filter(|verdict| verdict.outcome != Outcome::Pass);
        WatchEvent::State {
            holds,
            counts,
            verdicts: verdicts.cloned().collect(),
            glance_every: schedule.every().as_secs_f64(),
            unheard: watcher.deaf.clone(),
        }
    }
}

/// A line as JSON has it.
#[derive(Serialize, schemars::JsonSchema)]
pub struct Line<'a> {
    /// When, in UTC.
    time: String,
    #[serde(flatten)]
    what: Event<'a>,
}

/// One line of what happened.
#[derive(Serialize, schemars::JsonSchema)]
#[serde(untagged)]
enum Event<'a> {
    WatchEvent(&'a WatchEvent),
    Turned(&'a Turned<'a>),
}

/// An attribute that changed, as JSON has it.
#[derive(Serialize, schemars::JsonSchema)]
struct Turned<'a> {
    event: &'static str,
    #[serde(flatten)]
    verdict: &'a Verdict,
    /// The guests that it concerns.
    concerns: Vec<GuestName>,
    /// The command that puts it right.
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<String>,
    /// What puts it right that is no command of Penstock's alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

/// Says what happens.
pub struct Lines {
    model: Model,
    /// The model's file as it was named, and the words that say where its NICs are.
    file: String,
    nics: String,
    /// The guests by NIC, and by function.
    of_nics: BTreeMap<NicName, BTreeSet<GuestName>>,
    of_functions: BTreeMap<String, GuestName>,
}

impl Lines {
    /// For this model.
    pub fn new(subject: &ModelArguments, model: &Model) -> Lines {
        let nics = subject.nics.iter().map(|nic| format!(" --nic {nic}")).collect();
        let file = quoted_where_needed(&subject.model.display().to_string());
        let (mut of_nics, mut of_functions): (BTreeMap<_, BTreeSet<_>>, _) = Default::default();
        for (guest, owner) in &model.guests {
            for function in &owner.functions {
                of_nics.entry(function.name.nic.clone()).or_default().insert(guest.clone());
                BTreeMap::insert(&mut of_functions, function.name.to_string(), guest.clone());
            }
        }
        for uplink in model.uplink_vfs() {
            of_nics.entry(uplink.function.nic.clone()).or_default().insert(uplink.guest.clone());
            of_functions.insert(uplink.function.to_string(), uplink.guest.clone());
        }
        let of_drives =
            model.guests.iter().flat_map(|(guest, found)| found.drives.iter().map(move |own| (own, guest)));
        of_functions.extend(of_drives.map(|(own, guest)| (own.name.to_string(), guest.clone())));
        Lines { model: model.clone(), file, nics, of_nics, of_functions }
    }

    /// Says what happened. Whether anybody still listens.
    pub fn tell(&self, told: WatchEvent, printer: &mut Printer) -> Result<bool, Failure> {
        let line = Line { time: time(), what: Event::WatchEvent(&told) };
        printer.line(&line, || in_words(&line.time, &told))
    }

    /// Says which attributes changed, `known` being how all is now. Whether anybody still listens.
    pub fn changes(&self, changes: &[Change], known: &Known, printer: &mut Printer) -> Result<bool, Failure> {
        let time = time();
        let stopped: BTreeSet<&GuestName> = changes.iter().filter_map(stopped).collect();
        let folded = |change: &&Change| {
            let inside = matches!(&change.verdict.vantage, Vantage::Guest(guest) if stopped.contains(guest));
            inside && change.turn == Turn::Unseen
        };
        let unseen = changes.iter().filter(folded).count();
        for change in changes {
            let turned = self.turned(change, known);
            let line = Line { time: time.clone(), what: Event::Turned(&turned) };
            let words = || match folded(&change) {
                true => String::new(),
                false => self.words(&time, change, &turned, if stopped.is_empty() { 0 } else { unseen }),
            };
            if !printer.line(&line, words)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn turned<'a>(&self, change: &'a Change, known: &Known) -> Turned<'a> {
        let concerns = match &change.verdict.subject {
            Subject::Tenant(function) => vec![function.guest.clone()],
            Subject::Guest(guest) => vec![guest.clone()],
            Subject::Nic(nic) => self.of_nics.get(nic).into_iter().flatten().cloned().collect(),
            Subject::Function(function) => match (&function.vf, self.of_functions.get(&function.to_string()))
            {
                (None, _) => self.of_nics.get(&function.nic).into_iter().flatten().cloned().collect(),
                (_, owner) => owner.into_iter().cloned().collect(),
            },
            Subject::DriveVf(vf) => self.of_functions.get(&vf.to_string()).into_iter().cloned().collect(),
            Subject::Machine | Subject::Drive(_) | Subject::Path { .. } => Vec::new(),
        };
        let event = match change.turn {
            Turn::Drift => "drift",
            Turn::Unseen => "unseen",
            Turn::HoldsAgain => "holds_again",
        };
        let (mut mend, mut advice) = (None, None);
        if change.turn == Turn::Drift {
            let found = self.advice(&change.verdict, known);
            let words = Some(found.words(&self.file, &self.nics));
            *if found.is_command() { &mut mend } else { &mut advice } = words;
        }
        Turned { event, verdict: &change.verdict, concerns, mend, advice }
    }

    /// What puts this right as everything is now.
    fn advice(&self, verdict: &Verdict, known: &Known) -> Advice {
        let of_pf = |nic: &NicName, attribute: &str| {
            let pf = Subject::Function(FunctionName { nic: nic.clone(), vf: None });
            let is_of = |verdict: &&Verdict| verdict.subject == pf && verdict.attribute == attribute;
            known.verdicts().filter(is_of).all(|verdict| verdict.outcome != Outcome::Fail)
        };
        let stopped: BTreeSet<&GuestName> = known
            .verdicts()
            .filter(|verdict| verdict.attribute == "running" && verdict.outcome == Outcome::Fail)
            .filter_map(|verdict| match &verdict.subject {
                Subject::Guest(guest) => Some(guest),
                _ => None,
            })
            .collect();
        let running = self.model.guests.keys().filter(|guest| !stopped.contains(guest)).cloned().collect();
        let known = advice::Known {
            model: &self.model,
            running: &running,
            is_up: &|nic| of_pf(nic, "up"),
            is_linked: &|nic| of_pf(nic, "carrier"),
        };
        known.advice(verdict)
    }

    fn words(&self, time: &str, change: &Change, turned: &Turned<'_>, unseen: usize) -> String {
        let Verdict { subject, attribute, vantage, wanted, seen, .. } = &change.verdict;
        let about = format!("{subject} {attribute} ({vantage})");
        let mut text = match change.turn {
            Turn::Drift => format!("{time} drift        {about}: wanted {wanted}, seen {seen}"),
            Turn::Unseen => format!("{time} unseen       {about}: wanted {wanted}; {seen}"),
            Turn::HoldsAgain => format!("{time} holds again  {about}: {seen}"),
        };
        if stopped(change).is_some() && unseen > 0 {
            text.push_str(&format!(" ({unseen} attributes inside cannot be seen)"));
        }
        if !turned.concerns.is_empty() && !matches!(subject, Subject::Guest(_)) {
            let concerns: Vec<&str> = turned.concerns.iter().map(GuestName::as_str).collect();
            text.push_str(&format!("; concerns {}", concerns.join(", ")));
        }
        if let Some(mend) = &turned.mend {
            text.push_str(&format!("; to mend it: {mend}"));
        }
        if let Some(advice) = &turned.advice {
            text.push_str(&format!("; {advice}"));
        }
        text
    }
}

/// The guest that has stopped.
fn stopped(change: &Change) -> Option<&GuestName> {
    match &change.verdict.subject {
        Subject::Guest(guest) if change.verdict.attribute == "running" && change.turn != Turn::HoldsAgain => {
            Some(guest)
        }
        _ => None,
    }
}

fn in_words(time: &str, told: &WatchEvent) -> String {
    match told {
        WatchEvent::State { holds, counts, verdicts, glance_every, unheard } => {
            let counts: Vec<String> = ["pass", "fail", "unsupported", "unknown"]
                .iter()
                .map(|outcome| format!("{} {outcome}", counts.get(*outcome).copied().unwrap_or(0)))
                .collect();
            let word = if *holds { "holds" } else { "does not hold" };
            let mut text = format!(
                "{time} {word:<12} {}; what makes no event is looked at every {glance_every:.1} s",
                counts.join(", ")
            );
            for verdict in verdicts {
                text.push_str(&format!(
                    "\n{time} {:<12} {} {} ({}): wanted {}, seen {}",
                    verdict.outcome,
                    verdict.subject,
                    verdict.attribute,
                    verdict.vantage,
                    verdict.wanted,
                    verdict.seen
                ));
            }
            for what in unheard {
                text.push_str(&format!("\n{time} {:<12} {what}", "not heard"));
            }
            text
        }
        WatchEvent::BlindSpots { unwatched } => {
            let lines = unwatched.iter().map(|Unwatched { what, seen }| match seen {
                Some(seen) => format!("{time} {:<12} {what}: a change shows {seen}", "not watched"),
                None => format!("{time} {:<12} {what}", "not watched"),
            });
            lines.collect::<Vec<_>>().join("\n")
        }
        WatchEvent::Changing { who } => {
            format!(
                "{time} changing     this machine is being changed by {who}; it is looked at when that is done"
            )
        }
        WatchEvent::Blind { why } => format!("{time} blind        {why}"),
    }
}
