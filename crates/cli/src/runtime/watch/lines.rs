//! What is said of what happens: one line each.

use std::collections::{BTreeMap, BTreeSet};

use penstock_host::process::quoted_where_needed;
use penstock_model::{
    FunctionName, FunctionOwners, GuestName, Model, NicName, Outcome, Verdict,
    verdict::{Subject, Vantage},
};
use penstock_verify::drift::{Change, Turn};
use serde::Serialize;

use super::{
    advice::{self, Advice},
    schedule::PollSchedule,
    time,
    unwatched::Unwatched,
    watcher::Watcher,
};
use crate::{arguments::Subject as ModelArguments, failure::Failure, ui::printer::Printer};

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
            unheard: watcher.unheard.clone(),
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
    /// The model's file as it was named, and the words that say where its NICs are.
    file: String,
    nics: String,
}

/// The guests of a model by NIC, and by function.
struct Owners {
    of_nics: BTreeMap<NicName, BTreeSet<GuestName>>,
    of_functions: BTreeMap<String, GuestName>,
}

impl Owners {
    fn of(model: &Model) -> Owners {
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
        Owners { of_nics, of_functions }
    }

    /// The guests that something wrong with a subject concerns.
    fn concerned(&self, subject: &Subject) -> Vec<GuestName> {
        let of_nic = |nic: &NicName| self.of_nics.get(nic).into_iter().flatten().cloned().collect();
        let of_function = |name: String| self.of_functions.get(&name).into_iter().cloned().collect();
        match subject {
            Subject::Tenant(function) => vec![function.guest.clone()],
            Subject::Guest(guest) => vec![guest.clone()],
            Subject::Nic(nic) => of_nic(nic),
            Subject::Function(function) if function.vf.is_none() => of_nic(&function.nic),
            Subject::Function(function) => of_function(function.to_string()),
            Subject::DriveVf(vf) => of_function(vf.to_string()),
            Subject::Machine | Subject::Drive(_) | Subject::Path { .. } => Vec::new(),
        }
    }
}

impl Lines {
    /// For this model.
    pub fn new(subject: &ModelArguments) -> Lines {
        let nics = subject.nics.iter().map(|nic| format!(" --nic {nic}")).collect();
        let file = quoted_where_needed(&subject.model.display().to_string());
        Lines { file, nics }
    }

    /// Says what happened. Whether anybody still listens.
    ///
    /// # Errors
    ///
    /// When standard output takes nothing, but for its reader's going away.
    pub fn tell(&self, told: WatchEvent, printer: &mut Printer) -> Result<bool, Failure> {
        let line = Line { time: time(), what: Event::WatchEvent(&told) };
        printer.line(&line, || in_words(&line.time, &told))
    }

    /// Says which attributes changed of what is watched. Whether anybody still listens.
    ///
    /// # Errors
    ///
    /// As [`Lines::tell`].
    pub fn changes(
        &self,
        changes: &[Change],
        watcher: &Watcher,
        printer: &mut Printer,
    ) -> Result<bool, Failure> {
        if changes.is_empty() {
            return Ok(true);
        }
        let time = time();
        let owners = Owners::of(watcher.model());
        let situation = Situation::of(watcher);
        let stopped: BTreeSet<&GuestName> = changes.iter().filter_map(stopped).collect();
        let folded = |change: &&Change| {
            let inside = matches!(&change.verdict.vantage, Vantage::Guest(guest) if stopped.contains(guest));
            inside && change.turn == Turn::Unseen
        };
        let unseen = changes.iter().filter(folded).count();
        for change in changes {
            let turned = self.turned(change, &owners, &situation);
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

    fn turned<'a>(&self, change: &'a Change, owners: &Owners, situation: &Situation<'_>) -> Turned<'a> {
        let concerns = owners.concerned(&change.verdict.subject);
        let event = match change.turn {
            Turn::Drift => "drift",
            Turn::Unseen => "unseen",
            Turn::HoldsAgain => "holds_again",
        };
        let (mut mend, mut advice) = (None, None);
        if change.turn == Turn::Drift {
            let found = situation.advice(&change.verdict);
            let words = Some(found.words(&self.file, &self.nics));
            *if found.is_command() { &mut mend } else { &mut advice } = words;
        }
        Turned { event, verdict: &change.verdict, concerns, mend, advice }
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

/// How everything is now, as far as it matters for what puts something right.
struct Situation<'a> {
    model: &'a Model,
    owners: FunctionOwners<'a>,
    of_incus: BTreeSet<GuestName>,
    running: BTreeSet<GuestName>,
    /// What fails of PFs.
    failed: BTreeSet<(&'a NicName, &'a str)>,
}

impl<'a> Situation<'a> {
    fn of(watcher: &'a Watcher) -> Situation<'a> {
        let (mut stopped, mut failed) = (BTreeSet::new(), BTreeSet::new());
        for verdict in watcher.known.verdicts().filter(|verdict| verdict.outcome == Outcome::Fail) {
            let attribute = verdict.attribute.as_str();
            match &verdict.subject {
                Subject::Guest(guest) if attribute == "running" => _ = stopped.insert(guest),
                Subject::Function(FunctionName { nic, vf: None }) => _ = failed.insert((nic, attribute)),
                _ => {}
            }
        }
        let model = watcher.model();
        let running = model.guests.keys().filter(|guest| !stopped.contains(*guest)).cloned().collect();
        Situation { model, owners: model.function_owners(), of_incus: watcher.of_incus(), running, failed }
    }

    /// What puts this right.
    fn advice(&self, verdict: &Verdict) -> Advice {
        let known = advice::Known {
            model: self.model,
            owners: &self.owners,
            of_incus: &self.of_incus,
            running: &self.running,
            is_up: &|nic| !self.failed.contains(&(nic, "up")),
            is_linked: &|nic| !self.failed.contains(&(nic, "carrier")),
        };
        known.advice(verdict)
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
